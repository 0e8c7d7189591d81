/* What others get to see of the ledger: the sample that goes out, and the rows of what we promise. Decides nothing. */
#include "agent/ledger_inner.h"
#include "base/alloc.h"

#include <string.h>

static void add_row(struct sample *s, const struct ledger *l, const struct attempt *a, uint32_t k,
	uint32_t card)
{
	const struct attempt_card *c = &a->cards[k];

	s->rows = xreallocarray(s->rows, s->n_rows + 1, sizeof(*s->rows));
	s->rows[s->n_rows++] = (struct ledger_row){
		.name = a->name,
		.card = card,
		.declared_mib = c->declared_mib,
		.budget_mib = ledger_charge(l, a, k),
		.held_mib = c->held_mib,
		.peak_mib = c->peak_mib,
		.is_sampled = c->is_sampled,
		.has_ended = a->rec.state == ATTEMPT_ENDED,
	};
}

static uint32_t row_of(const struct sample *s, const struct attempt_name *n, uint32_t card)
{
	for (uint32_t i = 0; i < s->n_rows; i++)
		if (s->rows[i].card == card && attempt_name_equal(&s->rows[i].name, n))
			return i + 1;
	return 0;
}

/* No more than what is left of the card beside what runs: that much is kept, and several lanes may wait for one card. */
static void put_lane_mib(const struct ledger *l, struct sample *s)
{
	if (!l->n_holds)
		return;
	s->lane_mib = xcalloc(l->snap.n_cards + 1, sizeof(*s->lane_mib));
	for (uint32_t i = 0; i < l->snap.n_cards; i++) {
		int64_t left = ledger_card_total(l, l->snap.cards[i].uuid);

		for (uint32_t k = 0; k < s->n_rows; k++)
			left -= s->rows[k].card == i ? s->rows[k].budget_mib : 0;
		s->lane_mib[i] =
			at_most(ledger_held_by_lanes(l, l->snap.cards[i].uuid, false), left);
	}
}

static void add_hold(const struct ledger_hold *h, uint32_t card, int64_t mib, struct sample *s)
{
	uint32_t i = 0;

	while (i < s->n_holds &&
		(s->holds[i].card != card || strcmp(s->holds[i].queue, h->queue) != 0))
		i++;
	if (i == s->n_holds) {
		s->holds[s->n_holds] = (struct sample_hold){.card = card};
		memcpy(s->holds[s->n_holds++].queue, h->queue, ID_LEN);
	}
	s->holds[i].mib += mib;
}

/* Each queue's own, so that a controller can tell what it knows of itself from what it must be told. */
static void put_holds(const struct ledger *l, struct sample *s)
{
	s->holds = xcalloc(l->n_holds + 1, sizeof(*s->holds));
	for (size_t i = 0; i < l->n_holds; i++) {
		int at = gpu_find_uuid(&l->snap, l->holds[i].uuid);

		if (at >= 0 && ledger_hold_mib(l, &l->holds[i]) > 0)
			add_hold(&l->holds[i], (uint32_t)at, ledger_hold_mib(l, &l->holds[i]), s);
	}
}

void ledger_sample(
	const struct ledger *l, const struct attempts *t, int64_t wall_ms, struct sample *ret)
{
	*ret = (struct sample){.wall_ms = wall_ms};
	gpu_snapshot_copy(&l->snap, &ret->snap);
	for (size_t i = 0; i < t->n; i++)
		for (uint32_t k = 0; k < t->items[i]->n_cards; k++) {
			int at = gpu_find_uuid(&l->snap, t->items[i]->cards[k].uuid);

			if (at >= 0 && is_charged(t->items[i], k))
				add_row(ret, l, t->items[i], k, (uint32_t)at);
		}
	ret->proc_row = xcalloc(l->snap.n_procs + 1, sizeof(*ret->proc_row));
	for (uint32_t i = 0; i < l->snap.n_procs; i++)
		if (is_owned(l, i))
			ret->proc_row[i] = row_of(ret, &l->proc_owner[i], l->snap.procs[i].card);
	ret->promised_mib = xcalloc(l->snap.n_cards + 1, sizeof(*ret->promised_mib));
	for (uint32_t i = 0; i < l->snap.n_cards; i++)
		ret->promised_mib[i] = ledger_promised(l, i, true);
	put_lane_mib(l, ret);
	put_holds(l, ret);
}

static size_t promise_at(struct promise_row *rows, size_t n, const char *uuid)
{
	size_t at = 0;

	while (at < n && strcmp(rows[at].uuid, uuid) != 0)
		at++;
	return at;
}

/*
 * Others' promises are left room for: two users' lanes that wait for one card would otherwise refuse each other for ever.
 * Each card once, for all its holds.
 */
static size_t add_holds(const struct ledger *l, struct promise_row *rows, size_t n, size_t max)
{
	for (size_t i = 0; i < l->n_holds; i++) {
		const char *uuid = l->holds[i].uuid;
		size_t at = promise_at(rows, n, uuid), k = 0;
		int64_t mib = ledger_held_by_lanes(l, uuid, true),
			left = ledger_card_total(l, uuid);

		while (k < i && strcmp(l->holds[k].uuid, uuid) != 0)
			k++;
		if (k < i || (at == n && n == max))
			continue;
		for (k = 0; k < l->n_others; k++)
			left -= strcmp(l->others[k].row.uuid, uuid) ? 0 : l->others[k].row.mib;
		mib = at_most(mib, left - (at < n ? rows[at].mib : 0));
		if (mib && at == n) {
			rows[n] = (struct promise_row){0};
			memcpy(rows[n++].uuid, uuid, GPU_UUID_LEN);
		}
		if (mib)
			rows[at].mib += mib;
	}
	return n;
}

size_t ledger_promises(
	const struct ledger *l, const struct attempts *t, struct promise_row *ret, size_t max)
{
	size_t n = 0;

	for (size_t i = 0; i < t->n; i++) {
		const struct attempt *a = t->items[i];

		for (uint32_t k = 0; k < a->n_cards; k++) {
			size_t at = promise_at(ret, n, a->cards[k].uuid);

			if (!is_charged(a, k))
				continue;
			if (at == n && n == max)
				continue;
			if (at == n) {
				ret[n] = (struct promise_row){0};
				memcpy(ret[n++].uuid, a->cards[k].uuid, GPU_UUID_LEN);
			}
			ret[at].mib += ledger_charge(l, a, k);
		}
	}
	return add_holds(l, ret, n, max);
}
