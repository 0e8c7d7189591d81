/*
 * The ledger's arithmetic: sums over attempts and process rows. Owns the last snapshot, what was attributed in it, the
 * memory of foreign peaks and the stamps of starts and ends. Pure but for what attribution asks of /proc: whether a
 * session's leader is still the one we know.
 */
#include "agent/ledger_inner.h"

#include "agent/attribute.h"
#include "base/alloc.h"
#include "sched/track.h"

#include <stdlib.h>
#include <string.h>

#define XID_LATE_MS 1000

struct ledger *ledger_new(void)
{
	struct ledger *l = xcalloc(1, sizeof(*l));

	l->track = track_new();
	return l;
}

void ledger_free(struct ledger *l)
{
	if (!l)
		return;
	gpu_snapshot_done(&l->snap);
	free(l->proc_owner);
	track_free(l->track);
	free(l->others);
	free(l->holds);
	free(l->stamps);
	free(l->xids);
	free(l);
}

const struct gpu_snapshot *ledger_snapshot(const struct ledger *l)
{
	return &l->snap;
}

uint64_t ledger_number(const struct ledger *l)
{
	return l->number;
}

static int64_t used_of(const struct gpu_proc *p)
{
	return value_is_present(p->used_mib) && p->used_mib.v > 0 ? p->used_mib.v : 0;
}

/* ---- a new snapshot ---- */

static struct attempt_card *card_of(struct attempt *a, const char *uuid)
{
	for (uint32_t k = 0; k < a->n_cards; k++)
		if (!strcmp(a->cards[k].uuid, uuid))
			return &a->cards[k];
	return NULL;
}

/* A card that this snapshot lacks keeps what was held on it: silence isn't room. */
static void clear_held(const struct ledger *l, struct attempts *t)
{
	for (size_t i = 0; i < t->n; i++) {
		struct attempt *a = t->items[i];

		for (uint32_t k = 0; k < a->n_cards; k++) {
			int at = gpu_find_uuid(&l->snap, a->cards[k].uuid);

			if (at >= 0 && l->snap.cards[at].state == GPU_OK)
				a->cards[k].held_mib = 0;
		}
	}
}

static void add_held(struct ledger *l, struct attempts *t)
{
	for (uint32_t i = 0; i < l->snap.n_procs; i++) {
		const struct gpu_proc *p = &l->snap.procs[i];
		struct attempt *a = is_owned(l, i) ? attempts_find(t, &l->proc_owner[i]) : NULL;
		struct attempt_card *c = a && p->card < l->snap.n_cards
						 ? card_of(a, l->snap.cards[p->card].uuid)
						 : NULL;

		if (!c)
			continue;
		c->held_mib += used_of(p);
		c->is_sampled = true;
	}
	for (size_t i = 0; i < t->n; i++)
		for (uint32_t k = 0; k < t->items[i]->n_cards; k++)
			if (t->items[i]->cards[k].held_mib > t->items[i]->cards[k].peak_mib)
				t->items[i]->cards[k].peak_mib = t->items[i]->cards[k].held_mib;
}

static bool is_on_blind_card(const struct ledger *l, uint32_t proc)
{
	uint32_t card = l->snap.procs[proc].card;

	return card < l->snap.n_cards && l->snap.cards[card].is_blind;
}

static struct xids *xids_of(struct ledger *l, const char *uuid)
{
	for (size_t i = 0; i < l->n_xids; i++)
		if (!strcmp(l->xids[i].uuid, uuid))
			return &l->xids[i];
	GROW(l->xids, l->n_xids, l->cap_xids);
	l->xids[l->n_xids] = (struct xids){0};
	memcpy(l->xids[l->n_xids].uuid, uuid, GPU_UUID_LEN);
	return &l->xids[l->n_xids++];
}

static bool has_xids(const struct ledger *l, const struct gpu_card *c)
{
	for (size_t i = 0; i < l->n_xids; i++)
		if (!strcmp(l->xids[i].uuid, c->uuid))
			return true;
	return c->xid.count > 0;
}

/* The cards' XIDs become those since the agent's start. A card that never had one isn't remembered. */
static void add_xids(struct ledger *l)
{
	for (uint32_t i = 0; i < l->snap.n_cards; i++) {
		struct gpu_card *c = &l->snap.cards[i];
		struct xids *x;

		if (!c->uuid[0] || !has_xids(l, c))
			continue;
		x = xids_of(l, c->uuid);
		if (c->xid.count < x->last.count) {
			x->before.count += x->last.count;
			x->before.last = x->last.last;
			x->before.boot_ms = x->last.boot_ms;
		}
		x->last = c->xid;
		if (c->xid.count == 0)
			c->xid = x->before;
		else
			c->xid.count += x->before.count;
	}
}

/* What went wrong on a card while an attempt had it. The driver may be a moment later with it than the job's end. */
static void note_xids(const struct ledger *l, struct attempts *t)
{
	for (size_t i = 0; i < t->n; i++) {
		struct attempt *a = t->items[i];
		const struct attempt_end *end = &a->rec.end;

		for (uint32_t k = 0; k < a->n_cards && end->started_boot_ms; k++) {
			int at = gpu_find_uuid(&l->snap, a->cards[k].uuid);
			const struct gpu_xid *x = at >= 0 ? &l->snap.cards[at].xid : NULL;

			if (x && x->last && x->boot_ms >= end->started_boot_ms &&
				(a->rec.state != ATTEMPT_ENDED ||
					x->boot_ms <= end->ended_boot_ms + XID_LATE_MS))
				a->cards[k].xid = x->last;
		}
	}
}

void ledger_take(struct ledger *l, struct attempts *t, struct gpu_snapshot *snap, uint64_t number)
{
	uint8_t *own;

	/* A snapshot that couldn't ask says nothing about who holds what; the cards of the last good one stay known. */
	if (snap->error[0] && !snap->n_cards && l->snap.n_cards) {
		memcpy(l->snap.error, snap->error, sizeof(l->snap.error));
		l->number = l->fresh_number = number;
		gpu_snapshot_done(snap);
		return;
	}
	gpu_snapshot_done(&l->snap);
	l->snap = *snap;
	*snap = (struct gpu_snapshot){0};
	l->number = number;
	add_xids(l);
	if (!l->snap.has_old_procs)
		l->fresh_number = number;
	free(l->proc_owner);
	l->proc_owner = xcalloc(l->snap.n_procs + 1, sizeof(*l->proc_owner));
	attribute(&l->snap, t, l->proc_owner);
	clear_held(l, t);
	add_held(l, t);
	note_xids(l, t);
	own = xcalloc(l->snap.n_procs + 1, 1);
	/* Rows of a blind card may bear pids of another namespace: no peak can be told ours or foreign there. */
	for (uint32_t i = 0; i < l->snap.n_procs; i++)
		own[i] = is_owned(l, i) || is_on_blind_card(l, i);
	track_update(l->track, &l->snap, own);
	free(own);
}

/* ---- freshness ---- */

uint64_t ledger_changes(const struct ledger *l)
{
	return l->n_changes;
}

void ledger_note(struct ledger *l, const struct attempt *a, uint64_t asked)
{
	l->n_changes++;
	for (uint32_t k = 0; k < a->n_cards; k++) {
		size_t i = 0;

		while (i < l->n_stamps && strcmp(l->stamps[i].uuid, a->cards[k].uuid) != 0)
			i++;
		if (i == l->n_stamps) {
			GROW(l->stamps, l->n_stamps, l->cap_stamps);
			l->stamps[l->n_stamps].asked = 0;
			memcpy(l->stamps[l->n_stamps++].uuid, a->cards[k].uuid, GPU_UUID_LEN);
		}
		/* What was told late mustn't hide what came after it. */
		if (asked > l->stamps[i].asked)
			l->stamps[i].asked = asked;
	}
}

uint64_t ledger_asked_before(const struct ledger *l, const char *uuid)
{
	for (size_t i = 0; i < l->n_stamps; i++)
		if (!strcmp(l->stamps[i].uuid, uuid))
			return l->stamps[i].asked;
	return 0;
}

bool ledger_is_fresh(const struct ledger *l, const char *uuid)
{
	int at = gpu_find_uuid(&l->snap, uuid);

	/* It was let sleep, or the driver was let go of: nothing was asked of it. */
	if (at >= 0 && (l->snap.cards[at].m[METRIC_MEM_USED].state == VALUE_ASLEEP ||
			       l->snap.cards[at].m[METRIC_MEM_USED].state == VALUE_NOT_ASKED))
		return false;
	for (size_t i = 0; i < l->n_stamps; i++)
		if (!strcmp(l->stamps[i].uuid, uuid))
			return l->fresh_number == l->number && l->number > l->stamps[i].asked;
	return l->number > 0 && l->fresh_number == l->number;
}

/* ---- other users' promises ---- */

void ledger_set_promises(struct ledger *l, struct promise_other *rows, size_t n)
{
	l->n_changes++;
	free(l->others);
	l->others = rows;
	l->n_others = n;
}

static int64_t uid_promised(
	const struct ledger *l, const char *uuid, uid_t uid, bool with_tentative)
{
	int64_t sum = 0;

	for (size_t i = 0; i < l->n_others; i++) {
		const struct promise_other *o = &l->others[i];

		if (o->uid == uid && !strcmp(o->row.uuid, uuid) &&
			(with_tentative || !o->row.is_tentative))
			sum += o->row.mib;
	}
	return sum;
}

/* What that user's processes hold on the card, our own attempts' left out. */
static int64_t uid_held(const struct ledger *l, uint32_t card, uid_t uid)
{
	int64_t sum = 0;

	for (uint32_t i = 0; i < l->snap.n_procs; i++)
		if (l->snap.procs[i].card == card && l->snap.procs[i].uid == uid && !is_owned(l, i))
			sum += used_of(&l->snap.procs[i]);
	return sum;
}

static bool is_first_of_uid(const struct ledger *l, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (l->others[k].uid == l->others[i].uid)
			return false;
	return true;
}

int64_t ledger_promised(const struct ledger *l, uint32_t card, bool with_tentative)
{
	const char *uuid = l->snap.cards[card].uuid;
	int64_t sum = 0;

	for (size_t i = 0; i < l->n_others; i++) {
		int64_t beyond;

		if (!is_first_of_uid(l, i))
			continue;
		beyond = uid_promised(l, uuid, l->others[i].uid, with_tentative) -
			 uid_held(l, card, l->others[i].uid);
		if (beyond > 0)
			sum += beyond;
	}
	return sum;
}

bool ledger_tentative(
	const struct ledger *l, const char *uuid, uid_t *ret_uid, bool *ret_all_after_us)
{
	bool found = false, all_after = true;

	for (size_t i = 0; i < l->n_others; i++) {
		const struct promise_other *o = &l->others[i];

		if (!o->row.is_tentative || strcmp(o->row.uuid, uuid) != 0)
			continue;
		if (!found || o->rank < 0)
			*ret_uid = o->uid;
		found = true;
		if (o->rank < 0)
			all_after = false;
	}
	*ret_all_after_us = all_after;
	return found;
}

uid_t ledger_promiser(const struct ledger *l, const char *uuid)
{
	uid_t best = (uid_t)-1;
	int64_t most = 0;

	for (size_t i = 0; i < l->n_others; i++) {
		int64_t mib = uid_promised(l, uuid, l->others[i].uid, true);

		if (mib > most) {
			most = mib;
			best = l->others[i].uid;
		}
	}
	return best;
}

/* ---- room and charges ---- */

int64_t ledger_card_total(const struct ledger *l, const char *uuid)
{
	int at = gpu_find_uuid(&l->snap, uuid);

	if (at < 0 || !value_is_present(l->snap.cards[at].m[METRIC_MEM_TOTAL]))
		return PROMISE_ALL_MIB;
	return l->snap.cards[at].m[METRIC_MEM_TOTAL].v;
}

int64_t ledger_charge(const struct ledger *l, const struct attempt *a, uint32_t k)
{
	const struct attempt_card *c = &a->cards[k];

	/* What a finished job left behind is charged as long as it holds it; its promise is over. */
	if (a->rec.state == ATTEMPT_ENDED)
		return c->held_mib;
	if (c->declared_mib < 0)
		return ledger_card_total(l, c->uuid);
	return budget_of(c->declared_mib, c->held_mib, c->peak_mib, a->policy.spike_buffer);
}

static bool is_same_hold(const struct ledger_hold *x, const struct ledger_hold *y)
{
	return x->order == y->order && x->next_mib == y->next_mib &&
	       x->running_mib == y->running_mib && x->is_place == y->is_place &&
	       x->is_told == y->is_told && !strcmp(x->uuid, y->uuid) && !strcmp(x->queue, y->queue);
}

bool ledger_set_holds(struct ledger *l, struct ledger_hold *rows, size_t n)
{
	bool is_same = n == l->n_holds;

	for (size_t i = 0; is_same && i < n; i++)
		is_same = is_same_hold(&rows[i], &l->holds[i]);
	if (is_same) {
		free(rows);
		return false;
	}
	free(l->holds);
	l->holds = rows;
	l->n_holds = n;
	l->n_changes++;
	return true;
}

/* Beyond what the lane's running ones are charged already. */
int64_t ledger_hold_mib(const struct ledger *l, const struct ledger_hold *h)
{
	int64_t next = h->next_mib < 0 ? ledger_card_total(l, h->uuid) : h->next_mib;

	return next > h->running_mib ? next - h->running_mib : 0;
}

/* What all lanes hold on a card, of those whose hold is told or of all. */
int64_t ledger_held_by_lanes(const struct ledger *l, const char *uuid, bool only_told)
{
	int64_t sum = 0;

	for (size_t i = 0; i < l->n_holds; i++)
		if (!strcmp(l->holds[i].uuid, uuid) && (l->holds[i].is_told || !only_told))
			sum += ledger_hold_mib(l, &l->holds[i]);
	return sum;
}

static int64_t own_held(const struct ledger *l, uint32_t card)
{
	int64_t sum = 0;

	for (uint32_t i = 0; i < l->snap.n_procs; i++)
		if (l->snap.procs[i].card == card && is_owned(l, i))
			sum += used_of(&l->snap.procs[i]);
	return sum;
}

void ledger_room(const struct ledger *l, const struct attempts *t, const struct attempt *except,
	uint64_t order, uint32_t card, const struct claim_policy *policy, struct card_room *ret)
{
	const struct gpu_card *g = &l->snap.cards[card];
	int64_t used = value_is_present(g->m[METRIC_MEM_USED]) ? g->m[METRIC_MEM_USED].v : 0, held,
		ours;

	*ret = (struct card_room){
		.total_mib =
			value_is_present(g->m[METRIC_MEM_TOTAL]) ? g->m[METRIC_MEM_TOTAL].v : 0,
		.promised_mib = ledger_promised(l, card, true),
	};
	for (size_t i = 0; i < t->n; i++) {
		const struct attempt *a = t->items[i];

		for (uint32_t k = 0; a != except && k < a->n_cards; k++) {
			if (strcmp(a->cards[k].uuid, g->uuid) != 0 || !is_charged(a, k))
				continue;
			ret->budgets_mib += ledger_charge(l, a, k);
			ret->n_ours++;
			if (a->rec.state != ATTEMPT_ENDED &&
				(a->cards[k].declared_mib < 0 || a->policy.exclusive))
				ret->has_whole = true;
		}
	}
	ours = ret->budgets_mib;
	for (size_t i = 0; i < l->n_holds; i++) {
		const struct ledger_hold *h = &l->holds[i];

		if (h->order >= order || strcmp(h->uuid, g->uuid) != 0)
			continue;
		ret->budgets_mib += ledger_hold_mib(l, h);
		ret->n_ours += h->is_place;
	}
	/* Where nobody says which process holds what, our own are credited with what they were promised. */
	held = own_held(l, card);
	if (g->is_blind && ours > held)
		held = ours;
	ret->foreign_mib = budget_foreign(used, held, track_foreign_peaks(l->track, g->uuid),
		policy->spike_buffer, policy->high_water);
}
