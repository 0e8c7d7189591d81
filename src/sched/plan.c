/*
 * The walk of the plan: order, one decision a job, the bookkeeping of what each start takes. Which cards is plan_place.c,
 * whose place is kept plan_guard.c, why a job waits plan_why.c. Reasons are worked out after the walk, from the figures
 * the plan ends with: while it runs only starts matter, and a reason given early could be stale at the end.
 */
#include "sched/plan_inner.h"

#include "base/alloc.h"

#include <stdlib.h>

enum sharing job_sharing(const struct plan_state *s, const struct plan_job *j)
{
	if (j->declared_mib < 0)
		return WHOLE;
	return j->exclusive || j->idle || s->policy->exclusive ? ALONE : SHARE;
}

/* A negative margin would promise what isn't there: it counts as none, as in card_fits. */
static int64_t margin_of(const struct plan_policy *p)
{
	return p->margin_mib > 0 ? mib_clamp(p->margin_mib) : 0;
}

int64_t job_need(const struct plan_state *s, const struct plan_job *j)
{
	if (j->declared_mib < 0)
		return 0;
	int64_t need = mib_clamp(j->declared_mib) + margin_of(s->policy);
	/* Beyond all bounds fits nowhere, however large a card says it is. */
	if (need > MIB_MAX || j->declared_mib > MIB_MAX)
		return MIB_MAX + 1;
	return need;
}

bool job_is_plain(const struct plan_job *j)
{
	return j->only_node < 0 && j->only_cards == 0 && !j->node_cards && !j->need_nvlink &&
	       !j->idle && j->cpus <= 0 && j->mem_mib <= 0;
}

bool job_may_use_node(const struct plan_job *j, size_t node)
{
	return (j->only_node < 0 || (size_t)j->only_node == node) &&
	       (j->gpus == 0 || !j->node_cards || j->node_cards[node] != 0);
}

uint64_t job_may_use_cards(const struct plan_job *j, size_t node)
{
	return (j->only_cards ? j->only_cards : UINT64_MAX) &
	       (j->node_cards ? j->node_cards[node] : UINT64_MAX);
}

uint64_t job_open_cards(const struct plan_state *s, const struct plan_job *j, size_t node)
{
	return job_may_use_cards(j, node) & (j->idle ? s->nodes[node].quiet : UINT64_MAX);
}

static int64_t at_least_0(int64_t v)
{
	return v > 0 ? v : 0;
}

/* cpus and mem_mib: what is left, or what there is. */
static bool host_has(const struct plan_job *j, int64_t cpus, int64_t mem_mib)
{
	return (j->cpus <= 0 || mib_clamp(j->cpus) <= cpus) &&
	       (j->mem_mib <= 0 || mib_clamp(j->mem_mib) <= mem_mib);
}

bool host_takes(const struct plan_state *s, size_t node, const struct plan_job *j)
{
	const struct node_state *n = &s->nodes[node];
	const struct plan_job *g = n->guard.is_set ? &s->jobs[n->guard.job] : NULL;

	if (!g)
		return host_has(j, n->cpus_free, n->mem_free_mib);
	return host_has(j, n->cpus_free - mib_clamp(at_least_0(g->cpus)),
		n->mem_free_mib - mib_clamp(at_least_0(g->mem_mib)));
}

bool host_would_take(const struct plan_state *s, size_t node, const struct plan_job *j)
{
	return host_has(j, s->nodes[node].cpus_free, s->nodes[node].mem_free_mib);
}

bool host_is_large_enough(const struct plan_state *s, size_t node, const struct plan_job *j)
{
	return host_has(j, s->nodes[node].cpus_own, s->nodes[node].mem_own_mib);
}

/* The node has given this to a job that starts there. */
static void host_take(struct node_state *n, const struct plan_job *j)
{
	if (n->cpus_own < MIB_MAX)
		n->cpus_free = mib_clamp(n->cpus_free - mib_clamp(at_least_0(j->cpus)));
	if (n->mem_own_mib < MIB_MAX)
		n->mem_free_mib = mib_clamp(n->mem_free_mib - mib_clamp(at_least_0(j->mem_mib)));
}

int64_t room_when_ours_ended(const struct card_room *r)
{
	struct card_room empty = *r;

	empty.budgets_mib = 0;
	return mib_clamp(card_free(&empty));
}

/* What the guard on this card leaves for a newcomer's declaration + margin. */
static int64_t card_kept_limit(const struct plan_state *s, const struct guard *g, size_t c)
{
	const struct plan_policy *p = s->policy;

	if (g->sharing != SHARE)
		return NO_ROOM;
	/* The newcomer takes one slot and the guarded job needs another. */
	if (p->max_jobs_per_card > 0 && s->n_companions[c] + 2 > p->max_jobs_per_card)
		return NO_ROOM;
	/* It reserves nothing: nobody can take it away. */
	if (g->need_mib == 0)
		return MIB_MAX;
	return room_when_ours_ended(&s->rooms[c]) - s->companions_mib[c] - g->need_mib +
	       margin_of(p);
}

static void card_refresh(struct plan_state *s, struct node_state *n, uint32_t i)
{
	const struct plan_policy *p = s->policy;
	size_t c = n->first + i;
	const struct card_room *r = &s->rooms[c];
	uint64_t bit = UINT64_C(1) << i;
	bool is_usable = n->usable & bit, is_kept = n->guard.is_set && (n->guard.cards & bit);
	struct card_need whole = {
		.declared_mib = UNDECLARED, .idle_threshold_mib = p->idle_threshold_mib};

	n->alone &= ~bit;
	n->idle &= ~bit;
	s->avail[c] = NO_ROOM;
	if (!is_usable)
		return;
	if (!is_kept && card_fits(r, &whole) == FIT_YES)
		n->idle |= bit;
	if (r->has_whole || (p->max_jobs_per_card > 0 && r->n_ours >= p->max_jobs_per_card))
		return;
	if (!is_kept && r->n_ours == 0)
		n->alone |= bit;
	/* Only who reserves nothing needs no more than 0, and may have it where there's less. */
	int64_t room = at_least_0(card_free(r));
	if (is_kept) {
		int64_t limit = card_kept_limit(s, &n->guard, c);
		room = limit < room ? limit : room;
	}
	s->avail[c] = mib_clamp(room);
}

void node_refresh(struct plan_state *s, size_t node, uint64_t which)
{
	struct node_state *n = &s->nodes[node];

	for (uint32_t i = 0; i < n->n; i++)
		if (which & (UINT64_C(1) << i))
			card_refresh(s, n, i);
	n->most_mib = NO_ROOM;
	for (uint32_t i = 0; i < n->n; i++)
		if (s->avail[n->first + i] > n->most_mib)
			n->most_mib = s->avail[n->first + i];
}

void memo_clear(struct plan_state *s)
{
	for (size_t w = 0; w < s->n_wishes; w++)
		for (size_t i = 0; i < SHARING_N; i++)
			for (size_t k = 0; k <= CARDS_MAX; k++)
				s->wishes[w]->failed[i][k] = s->wishes[w]->unguardable[i][k] =
					INT64_MAX;
}

/* Nobody holds less than nothing: else a sum at its limit would hide what one more job takes. */
static struct card_room sane_room(const struct card_room *r)
{
	struct card_room sane = *r;

	sane.total_mib = at_least_0(r->total_mib);
	sane.foreign_mib = at_least_0(r->foreign_mib);
	sane.budgets_mib = at_least_0(r->budgets_mib);
	sane.promised_mib = at_least_0(r->promised_mib);
	sane.headroom_mib = at_least_0(r->headroom_mib);
	return sane;
}

static void host_init(struct node_state *n, const struct plan_node *in)
{
	n->cpus_own = in->cpus > 0 ? mib_clamp(in->cpus) : MIB_MAX;
	n->mem_own_mib = in->mem_mib > 0 ? mib_clamp(in->mem_mib) : MIB_MAX;
	n->cpus_free = n->cpus_own;
	n->mem_free_mib = n->mem_own_mib;
	struct plan_job used = {.cpus = in->cpus_used, .mem_mib = in->mem_used_mib};
	host_take(n, &used);
}

static bool card_is_quiet(const struct plan_state *s, const struct plan_card *c)
{
	return !c->has_strangers && c->room.promised_mib <= 0 &&
	       c->room.foreign_mib < s->policy->idle_threshold_mib;
}

static void node_init(struct plan_state *s, size_t node, size_t first)
{
	const struct plan_node *in = &s->in[node];
	struct node_state *n = &s->nodes[node];

	n->first = first;
	n->n = in->n_cards < CARDS_MAX ? (uint32_t)in->n_cards : CARDS_MAX;
	n->n_cpu_jobs = in->n_cpu_jobs;
	s->has_unknown |= in->is_unknown;
	host_init(n, in);
	for (uint32_t i = 0; i < n->n; i++) {
		const struct plan_card *card = &in->cards[i];

		s->rooms[first + i] = sane_room(&card->room);
		s->index[first + i] = card->index;
		s->node_of[first + i] = (uint32_t)node;
		if (i > 0 && card->index < in->cards[i - 1].index)
			s->is_ascending = false;
		if (in->is_usable && card->is_usable)
			n->usable |= UINT64_C(1) << i;
		s->has_out |= card->is_out;
		if (card_is_quiet(s, card))
			n->quiet |= UINT64_C(1) << i;
		if (card->room.promised_mib > 0)
			s->has_promises = true;
		for (uint32_t k = 0; k < n->n; k++) {
			if (k == i || !(card->nvlink_peers & (UINT64_C(1) << k)))
				continue;
			s->peers[first + i] |= UINT64_C(1) << k;
			s->peers[first + k] |= UINT64_C(1) << i;
		}
	}
	n->n_usable = (uint32_t)__builtin_popcountll(n->usable);
	s->has_usable |= n->usable != 0;
	node_refresh(s, node, UINT64_MAX);
}

static void state_init(struct plan_state *s)
{
	size_t first = 0;

	for (size_t i = 0; i < s->n_nodes; i++)
		s->n_cards += s->in[i].n_cards < CARDS_MAX ? s->in[i].n_cards : CARDS_MAX;
	s->nodes = xcalloc(s->n_nodes + 1, sizeof(*s->nodes));
	s->rooms = xcalloc(s->n_cards + 1, sizeof(*s->rooms));
	s->avail = xcalloc(s->n_cards + 1, sizeof(*s->avail));
	s->companions_mib = xcalloc(s->n_cards + 1, sizeof(*s->companions_mib));
	s->n_companions = xcalloc(s->n_cards + 1, sizeof(*s->n_companions));
	s->peers = xcalloc(s->n_cards + 1, sizeof(*s->peers));
	s->index = xcalloc(s->n_cards + 1, sizeof(*s->index));
	s->node_of = xcalloc(s->n_cards + 1, sizeof(*s->node_of));
	s->is_ascending = true;
	for (size_t i = 0; i < s->n_nodes; i++) {
		node_init(s, i, first);
		first += s->nodes[i].n;
	}
	wishes_make(s);
	memo_clear(s);
}

static void state_done(struct plan_state *s)
{
	free(s->nodes);
	free(s->rooms);
	free(s->avail);
	free(s->companions_mib);
	free(s->n_companions);
	free(s->peers);
	free(s->index);
	free(s->node_of);
	for (size_t i = 0; i < SHARING_N; i++)
		for (size_t k = 0; k < VIEW_N; k++)
			free(s->view_rooms[i][k]);
	wishes_done(s);
}

struct rank {
	int32_t priority;
	int64_t since_ms;
	size_t job;
};

static bool is_behind(const struct rank *x, const struct rank *y)
{
	if (x->priority != y->priority)
		return x->priority < y->priority;
	return x->since_ms > y->since_ms;
}

/* Pieces of `width` that are in order, two by two into larger ones. Equal ones stay as they stood. */
static void merge_pieces(const struct rank *from, struct rank *to, size_t n, size_t width)
{
	for (size_t at = 0; at < n; at += 2 * width) {
		size_t end = at + 2 * width < n ? at + 2 * width : n;
		size_t mid = at + width < end ? at + width : end, a = at, b = mid;

		for (size_t i = at; i < end; i++)
			to[i] = a < mid && (b == end || !is_behind(&from[a], &from[b])) ? from[a++]
											: from[b++];
	}
}

/* A merge sort, with the comparison in it: qsort calls for each, which is half of what a plan costs. v, or other. */
static struct rank *sort_ranks(struct rank *v, struct rank *other, size_t n)
{
	for (size_t width = 1; width < n; width *= 2) {
		struct rank *from = v;

		merge_pieces(from, other, n, width);
		v = other;
		other = from;
	}
	return v;
}

/* Positions of the jobs in the order in which they're looked at; the caller frees it. */
static size_t *order_make(const struct plan_job *jobs, size_t n, bool is_in_order)
{
	struct rank *ranks = xreallocarray(NULL, 2 * n + 1, sizeof(*ranks)), *sorted = ranks;
	size_t *order = xreallocarray(NULL, n + 1, sizeof(*order));
	bool is_sorted = true;

	for (size_t i = 0; i < n; i++) {
		ranks[i] = (struct rank){jobs[i].priority, jobs[i].waiting_since_ms, i};
		if (!is_in_order && i > 0 && is_behind(&ranks[i - 1], &ranks[i]))
			is_sorted = false;
	}
	if (!is_sorted)
		sorted = sort_ranks(ranks, ranks + n, n);
	for (size_t i = 0; i < n; i++)
		order[i] = sorted[i].job;
	free(ranks);
	return order;
}

static void start(struct plan_state *s, size_t job, struct place p)
{
	const struct plan_job *j = &s->jobs[job];
	struct plan_decision *d = &s->ret[job];
	struct node_state *n = &s->nodes[p.node];
	enum sharing sharing = job_sharing(s, j);

	for (uint32_t i = 0; i < n->n; i++) {
		if (!(p.cards & (UINT64_C(1) << i)))
			continue;
		struct card_room *r = &s->rooms[n->first + i];
		int64_t charge = sharing == WHOLE ? r->total_mib : mib_clamp(j->declared_mib);
		if (__builtin_add_overflow(r->budgets_mib, charge, &r->budgets_mib))
			r->budgets_mib = INT64_MAX;
		r->n_ours++;
		r->has_whole |= sharing != SHARE;
	}
	host_take(n, j);
	d->guard_id = guard_note_start(s, p, j->declared_mib);
	node_refresh(s, (size_t)p.node, p.cards);
	d->what = PLAN_START;
	d->node = p.node;
	d->cards = p.cards;
	s->n_started++;
}

static void decide_cpu_job(struct plan_state *s, size_t job)
{
	const struct plan_job *j = &s->jobs[job];
	struct plan_decision *d = &s->ret[job];
	bool has_node = false, has_slot = false;
	int32_t best = -1;

	for (size_t i = 0; i < s->n_nodes; i++) {
		const struct plan_node *in = &s->in[i];
		uint32_t now = s->nodes[i].n_cpu_jobs;

		if (!in->is_usable || !job_may_use_node(j, i))
			continue;
		has_node = true;
		if (in->max_cpu_jobs > 0 && now >= in->max_cpu_jobs)
			continue;
		has_slot = true;
		if (!host_takes(s, i, j))
			continue;
		if (best < 0 || now < s->nodes[best].n_cpu_jobs)
			best = (int32_t)i;
	}
	if (best < 0) {
		if (has_slot)
			why_host(s, j, d);
		else
			d->why = has_node ? WHY_JOBS_LIMIT : WHY_NO_NODE;
		return;
	}
	host_take(&s->nodes[best], j);
	s->nodes[best].n_cpu_jobs++;
	s->n_started++;
	d->what = PLAN_START;
	d->node = best;
}

/* Has a job that wanted no more, and had the same wishes, failed already? */
static bool is_known_to_fail(const struct plan_state *s, const struct plan_job *j)
{
	const struct wish_memory *w = wish_of(s, j);

	return w && job_need(s, j) >= w->failed[job_sharing(s, j)][j->gpus];
}

static void remember_failure(struct plan_state *s, const struct plan_job *j)
{
	struct wish_memory *w = wish_of(s, j);
	int64_t *least = w ? &w->failed[job_sharing(s, j)][j->gpus] : NULL;

	if (least && job_need(s, j) < *least)
		*least = job_need(s, j);
}

/* A guarded job looks for a place as if its own weren't taken. */
static bool try_guarded(struct plan_state *s, size_t job, int32_t node)
{
	struct guard kept = s->nodes[node].guard;

	guard_lift(s, (size_t)node);
	struct place p = place_find(s, &s->jobs[job]);
	if (p.node < 0) {
		guard_set(s, (size_t)node, &kept);
		return false;
	}
	start(s, job, p);
	/* What was kept is free for others: failures before this say nothing any more. */
	memo_clear(s);
	return true;
}

static void decide_gpu_job(struct plan_state *s, size_t job)
{
	const struct plan_job *j = &s->jobs[job];
	int32_t kept = guard_node_of(s, job);

	if (kept >= 0) {
		try_guarded(s, job, kept);
		return;
	}
	if (!is_known_to_fail(s, j)) {
		struct place p = place_find(s, j);
		if (p.node >= 0) {
			start(s, job, p);
			return;
		}
		remember_failure(s, j);
	}
	if (guard_is_due(s, j))
		guard_try(s, job);
}

static void decide(struct plan_state *s, size_t job)
{
	const struct plan_job *j = &s->jobs[job];
	struct plan_decision *d = &s->ret[job];

	if (j->is_blocked)
		d->why = WHY_BLOCKED;
	else if (why_never(s, j, d))
		d->what = PLAN_NEVER;
	else if (s->policy->max_jobs > 0 && s->n_started >= s->policy->max_jobs)
		d->why = WHY_JOBS_LIMIT;
	else if (j->gpus == 0)
		decide_cpu_job(s, job);
	else if (j->gpus > CARDS_MAX)
		d->why = WHY_NO_NODE; /* nothing is known of any card yet, else it were never */
	else if (j->declared_mib < 0 && s->policy->idle_threshold_mib <= 0)
		d->why = WHY_THRESHOLD;
	else
		decide_gpu_job(s, job);
}

static void decision_init(struct plan_decision *d, const struct plan_state *s, size_t job)
{
	*d = (struct plan_decision){
		.job = job,
		.what = PLAN_WAIT,
		.node = -1,
		.need_mib = s->jobs[job].gpus > 0 ? job_need(s, &s->jobs[job]) : 0,
		.best_node = -1,
		.best_card = -1,
		.host_cpus = -1,
		.host_mem_mib = -1,
		.guard_node = -1,
	};
}

void plan_make(const struct plan_node *nodes, size_t n_nodes, const struct plan_job *jobs,
	size_t n_jobs, const struct plan_policy *policy, int64_t now_ms, struct plan_decision *ret)
{
	struct plan_state s = {.in = nodes,
		.n_nodes = n_nodes,
		.jobs = jobs,
		.n_jobs = n_jobs,
		.policy = policy,
		.now_ms = now_ms,
		.ret = ret};
	size_t *order = order_make(jobs, n_jobs, policy->is_in_order);

	state_init(&s);
	for (size_t i = 0; i < n_jobs; i++)
		decision_init(&ret[i], &s, i);
	guard_restore(&s, order);
	for (size_t i = 0; i < n_jobs; i++)
		decide(&s, order[i]);
	for (size_t i = 0; i < n_jobs; i++)
		if (ret[i].what == PLAN_WAIT)
			why_waits(&s, &jobs[i], &ret[i]);
	free(order);
	state_done(&s);
}
