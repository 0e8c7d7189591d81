/*
 * The check itself and its words. The arithmetic is sched/budget.h's; here it's given one card at a time, and a refusal
 * carries the figures it was made with.
 */
#include "agent/admit.h"

#include "base/cleanup.h"
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static enum admission refuse(struct refusal *r, const char *reason, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static enum admission refuse(struct refusal *r, const char *reason, const char *fmt, ...)
{
	va_list ap;

	r->reason = reason;
	va_start(ap, fmt);
	vsnprintf(r->text, sizeof(r->text), fmt, ap);
	va_end(ap);
	return ADMIT_NO;
}

static void put_figures(
	struct refusal *r, const char *uuid, const struct card_room *room, int64_t need_mib)
{
	r->has_figures = true;
	snprintf(r->card, sizeof(r->card), "%s", uuid);
	r->need_mib = need_mib;
	r->free_mib = card_free(room);
	r->total_mib = room->total_mib;
	r->foreign_mib = room->foreign_mib;
	r->budget_mib = room->budgets_mib;
	r->promised_mib = room->promised_mib;
}

static bool has_memory(const struct gpu_card *g)
{
	return value_is_present(g->m[METRIC_MEM_TOTAL]) && value_is_present(g->m[METRIC_MEM_USED]);
}

static void label_of(const struct gpu_card *g, char ret[GPU_LABEL_LEN])
{
	gpu_label(g->index, g->gi, g->ci, ret);
}

/* The card's position in the snapshot, or -1 and a refusal. */
static int find_card(const struct gpu_snapshot *s, const char *uuid, struct refusal *r)
{
	char label[GPU_LABEL_LEN];
	int at;

	if (s->error[0]) {
		refuse(r, "driver", "the GPUs can't be asked: %s", s->error);
		return -1;
	}
	at = gpu_find_uuid(s, uuid);
	if (at < 0) {
		refuse(r, "card", "this machine has no card %s", uuid);
		return -1;
	}
	label_of(&s->cards[at], label);
	if (s->cards[at].state != GPU_OK)
		refuse(r, "card", "card %s (%s) is %s", label, uuid,
			gpu_state_name(s->cards[at].state));
	else if (!gpu_is_placeable(&s->cards[at]))
		refuse(r, "card", "card %s (%s) is cut into MIG instances: jobs run on these",
			label, uuid);
	else if (!has_memory(&s->cards[at]))
		refuse(r, "driver", "card %s (%s) doesn't say how much memory it has or uses",
			label, uuid);
	else
		return at;
	return -1;
}

static enum admission refuse_promised(const struct ledger *l, uint32_t card,
	const struct card_room *room, const struct card_need *need, struct refusal *r)
{
	const struct gpu_card *g = &ledger_snapshot(l)->cards[card];
	struct card_room firm = *room;
	uid_t uid = ledger_promiser(l, g->uuid), tentative = (uid_t)-1;
	bool all_after_us = false, may_wait;
	char label[GPU_LABEL_LEN];

	label_of(g, label);
	firm.promised_mib = ledger_promised(l, card, false);
	/* Would the firm promises alone let it in? Then only those who are asking like us are to blame. */
	may_wait = card_fits(&firm, need) == FIT_YES &&
		   ledger_tentative(l, g->uuid, &tentative, &all_after_us);
	if (may_wait)
		uid = tentative;
	refuse(r, "promise", "card %s: %lld MiB are promised to jobs of user %u%s", label,
		(long long)room->promised_mib, (unsigned)uid,
		may_wait ? ", who asks at this moment" : "");
	return may_wait && all_after_us ? ADMIT_TIE : ADMIT_NO;
}

static enum admission check_card(const struct ledger *l, uint32_t card,
	const struct card_room *room, const struct card_need *need, struct refusal *r)
{
	const struct gpu_card *g = &ledger_snapshot(l)->cards[card];
	bool is_whole = need->declared_mib < 0;
	char label[GPU_LABEL_LEN];

	label_of(g, label);
	put_figures(r, g->uuid, room,
		is_whole ? room->total_mib : need->declared_mib + need->margin_mib);
	switch (card_fits(room, need)) {
	case FIT_YES:
		return ADMIT_YES;
	case FIT_WHOLE_TAKEN:
		return refuse(r, "busy", "card %s belongs to one job alone", label);
	case FIT_NOT_IDLE:
		return refuse(r, "busy", "card %s isn't idle: %u of our jobs, %lld MiB of others",
			label, room->n_ours, (long long)room->foreign_mib);
	case FIT_EXCLUSIVE:
		return refuse(r, "busy",
			"card %s has %u of our jobs already, and this one wants it alone", label,
			room->n_ours);
	case FIT_JOBS_LIMIT:
		return refuse(r, "busy", "card %s has %u jobs already, and the limit is %u", label,
			room->n_ours, need->max_jobs_per_card);
	case FIT_PROMISED:
		return refuse_promised(l, card, room, need, r);
	case FIT_MEMORY:
		break;
	}
	return refuse(r, "memory", "card %s has %lld MiB free, and %lld MiB are needed", label,
		(long long)r->free_mib, (long long)r->need_mib);
}

enum admission admit_check(const struct ledger *l, const struct attempts *t,
	const struct attempt *except, uint64_t order, uint32_t n_cards,
	const struct claim_card *cards, const struct claim_policy *policy, struct refusal *ret)
{
	enum admission worst = ADMIT_YES;

	for (uint32_t i = 0; i < n_cards; i++) {
		struct card_need need = {
			.declared_mib =
				cards[i].declared_mib < 0 ? UNDECLARED : cards[i].declared_mib,
			.margin_mib = policy->margin_mib,
			.idle_threshold_mib = policy->idle_threshold_mib,
			.exclusive = policy->exclusive,
			.max_jobs_per_card = (uint32_t)policy->max_jobs_per_card,
		};
		struct refusal r = {0};
		struct card_room room;
		enum admission a;
		int at = find_card(ledger_snapshot(l), cards[i].uuid, &r);

		if (at < 0) {
			*ret = r;
			return ADMIT_NO;
		}
		ledger_room(l, t, except, order, (uint32_t)at, policy, &room);
		a = check_card(l, (uint32_t)at, &room, &need, &r);
		if (a != ADMIT_YES)
			*ret = r;
		if (a == ADMIT_NO)
			return a;
		if (a == ADMIT_TIE)
			worst = a;
	}
	return worst;
}

json_t *refusal_encode(const struct refusal *r, const struct attempt_name *n)
{
	CLEANUP(buf_done) struct buf text = {0};
	json_t *o = json_object();

	text_put_clean(&text, r->text, strlen(r->text));
	json_object_set_new(o, "op", json_string("refused"));
	json_object_set_new(o, "job", json_integer((json_int_t)n->job));
	json_object_set_new(o, "attempt", json_integer(n->attempt));
	json_object_set_new(o, "reason", json_string(r->reason));
	json_object_set_new(o, "text", json_string(buf_str(&text)));
	if (!r->has_figures)
		return o;
	json_object_set_new(o, "card", json_string(r->card));
	json_object_set_new(o, "need_mib", json_integer(r->need_mib));
	json_object_set_new(o, "free_mib", json_integer(r->free_mib));
	json_object_set_new(o, "total_mib", json_integer(r->total_mib));
	json_object_set_new(o, "foreign_mib", json_integer(r->foreign_mib));
	json_object_set_new(o, "budget_mib", json_integer(r->budget_mib));
	json_object_set_new(o, "promised_mib", json_integer(r->promised_mib));
	return o;
}
