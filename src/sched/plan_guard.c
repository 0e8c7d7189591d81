/*
 * The guard: a job that has waited too long gets its place kept, so that small jobs can't keep it out for ever. Owns
 * node_state.guard and the companions' sums.
 *
 *   none --(due, doesn't fit, some node could hold it)--> kept --(it starts, or its place can't hold it any more)--> none
 *
 * Kept means: its cards stay the same from plan to plan. What runs there when they're chosen are its blockers. Whatever
 * starts on them later is a companion, and starts only if blockers' ends alone still make room for the guarded job, with
 * all companions staying. One guarded job a node.
 */
#include "sched/plan_inner.h"

bool guard_is_due(const struct plan_state *s, const struct plan_job *j)
{
	int64_t after = s->policy->guard_after_ms, waited;

	if (after <= 0 || __builtin_sub_overflow(s->now_ms, j->waiting_since_ms, &waited))
		return false;
	return waited > after;
}

int32_t guard_node_of(const struct plan_state *s, size_t job)
{
	/* Its own decision remembers it: set by guard_set, taken back by guard_lift. */
	const struct plan_decision *d = &s->ret[job];

	return d->guard_node;
}

/* Would the job fit on this card once all of ours there have ended? */
static bool card_could_hold(
	const struct plan_state *s, size_t c, enum sharing sharing, int64_t need)
{
	struct card_room alone = s->rooms[c];

	if (sharing != WHOLE)
		return need == 0 || room_when_ours_ended(&alone) >= need;
	alone.n_ours = 0;
	alone.has_whole = false;
	struct card_need whole = {
		.declared_mib = UNDECLARED, .idle_threshold_mib = s->policy->idle_threshold_mib};
	return card_fits(&alone, &whole) == FIT_YES;
}

static uint64_t cards_could_hold(const struct plan_state *s, size_t node, const struct plan_job *j)
{
	const struct node_state *n = &s->nodes[node];
	uint64_t open = n->usable & job_open_cards(s, j, node), found = 0;

	for (uint32_t i = 0; i < n->n; i++) {
		uint64_t bit = UINT64_C(1) << i;
		if ((open & bit) &&
			card_could_hold(s, n->first + i, job_sharing(s, j), job_need(s, j)))
			found |= bit;
	}
	return found;
}

void guard_set(struct plan_state *s, size_t node, const struct guard *g)
{
	struct plan_decision *d = &s->ret[g->job];

	s->nodes[node].guard = *g;
	s->nodes[node].guard.is_set = true;
	s->n_guards++;
	d->guard_node = (int32_t)node;
	d->guard_cards = g->cards;
	node_refresh(s, node, g->cards);
}

void guard_lift(struct plan_state *s, size_t node)
{
	struct guard *g = &s->nodes[node].guard;
	struct plan_decision *d = &s->ret[g->job];

	g->is_set = false;
	s->n_guards--;
	d->guard_node = -1;
	d->guard_cards = 0;
	node_refresh(s, node, g->cards);
}

/* Companions of this job that run already. */
static void companions_count(struct plan_state *s, size_t node, uint64_t guarded_id)
{
	const struct plan_node *in = &s->in[node];
	struct node_state *n = &s->nodes[node];

	for (uint32_t i = 0; i < n->n; i++) {
		s->companions_mib[n->first + i] = 0;
		s->n_companions[n->first + i] = 0;
	}
	for (size_t i = 0; in->running && i < in->n_running; i++) {
		const struct plan_running *r = &in->running[i];
		if (guarded_id == 0 || r->beside_guard != guarded_id || r->card >= n->n)
			continue;
		size_t c = n->first + r->card;
		s->companions_mib[c] = mib_clamp(s->companions_mib[c] + mib_clamp(r->charge_mib));
		s->n_companions[c]++;
	}
}

static void keep(struct plan_state *s, size_t job, size_t node, uint64_t cards)
{
	const struct plan_job *j = &s->jobs[job];
	struct guard g = {.job = job,
		.cards = cards,
		.need_mib = job_need(s, j),
		.sharing = job_sharing(s, j)};

	guard_set(s, node, &g);
}

/* Is the place of the last plan still one? Its cards are, and the job on them would fit. */
static bool place_still_holds(const struct plan_state *s, const struct plan_job *j)
{
	if (j->is_blocked || j->guard_node < 0 || (size_t)j->guard_node >= s->n_nodes)
		return false;
	size_t node = (size_t)j->guard_node;
	return job_may_use_node(j, node) && host_is_large_enough(s, node, j) &&
	       !s->nodes[node].guard.is_set &&
	       (uint32_t)__builtin_popcountll(j->guard_cards) == j->gpus &&
	       (cards_could_hold(s, node, j) & j->guard_cards) == j->guard_cards &&
	       (!place_needs_joined(s, node, j) ||
		       place_joined_max(s, node, j->guard_cards) == j->gpus);
}

void guard_restore(struct plan_state *s, const size_t *order)
{
	if (s->policy->guard_after_ms <= 0)
		return;
	for (size_t i = 0; i < s->n_jobs; i++) {
		const struct plan_job *j = &s->jobs[order[i]];

		if (j->guard_cards == 0 || !guard_is_due(s, j) || !place_still_holds(s, j))
			continue;
		companions_count(s, (size_t)j->guard_node, j->id);
		keep(s, order[i], (size_t)j->guard_node, j->guard_cards);
	}
}

/* Cards nearest to having room come first: the fewest, smallest blockers. */
static uint64_t choose_on_node(
	const struct plan_state *s, size_t node, const struct plan_job *j, int64_t *ret_worst)
{
	const struct node_state *n = &s->nodes[node];
	int64_t keys[CARDS_MAX];

	for (uint32_t i = 0; i < n->n; i++) {
		const struct card_room *r = &s->rooms[n->first + i];
		keys[i] = job_sharing(s, j) == SHARE ? -mib_clamp(card_free(r))
						     : mib_clamp(r->budgets_mib);
	}
	uint64_t cards = place_choose(s, node, j, cards_could_hold(s, node, j), keys);
	*ret_worst = INT64_MIN;
	for (uint64_t rest = cards; rest; rest &= rest - 1) {
		int64_t key = keys[__builtin_ctzll(rest)];
		*ret_worst = key > *ret_worst ? key : *ret_worst;
	}
	return cards;
}

void guard_try(struct plan_state *s, size_t job)
{
	const struct plan_job *j = &s->jobs[job];
	struct wish_memory *w = wish_of(s, j);
	int64_t *least = w ? &w->unguardable[job_sharing(s, j)][j->gpus] : NULL, best_worst = 0,
		worst;
	struct place best = {.node = -1};

	if (s->n_guards == s->n_nodes || (least && job_need(s, j) >= *least))
		return;
	for (size_t i = 0; i < s->n_nodes; i++) {
		if (!job_may_use_node(j, i) || s->nodes[i].guard.is_set ||
			!host_is_large_enough(s, i, j) || s->nodes[i].n_usable < j->gpus)
			continue;
		uint64_t cards = choose_on_node(s, i, j, &worst);
		if (cards && (best.node < 0 || worst < best_worst)) {
			best = (struct place){(int32_t)i, cards};
			best_worst = worst;
		}
	}
	if (best.node < 0) {
		if (least)
			*least = job_need(s, j);
		return;
	}
	companions_count(s, (size_t)best.node, 0);
	keep(s, job, (size_t)best.node, best.cards);
}

uint64_t guard_note_start(struct plan_state *s, struct place p, int64_t charge_mib)
{
	const struct node_state *n = &s->nodes[p.node];
	uint64_t shared = n->guard.is_set ? p.cards & n->guard.cards : 0;

	if (!shared)
		return 0;
	for (uint64_t rest = shared; rest; rest &= rest - 1) {
		size_t c = n->first + (uint32_t)__builtin_ctzll(rest);
		s->companions_mib[c] = mib_clamp(s->companions_mib[c] + mib_clamp(charge_mib));
		s->n_companions[c]++;
	}
	return s->jobs[n->guard.job].id;
}
