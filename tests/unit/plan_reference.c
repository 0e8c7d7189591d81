/*
 * The plan's rules written down naively: no memory of failures, no flat scan, every card asked anew by card_fits. Also the
 * random numbers of all tests of plans.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "plan_world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t seed;

uint64_t random_below(uint64_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (seed >> 16) % n;
}

void random_start(void)
{
	const char *given = getenv("PLAN_SEED");

	seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) * 2654435761u + 1;
	fprintf(stderr, "# PLAN_SEED=%" PRIu64 "\n", seed);
}

struct ref {
	struct card_room rooms[NODES][CARDS];
	int64_t companions_mib[NODES][CARDS];
	uint32_t n_companions[NODES][CARDS];
	uint32_t n_cpu[NODES];
	int64_t cpus_used[NODES], mem_used[NODES];
	int guard_job[NODES]; /* -1 none */
	uint64_t guard_cards[NODES];
};

static bool ref_is_alone(const struct world *w, const struct plan_job *j)
{
	return j->exclusive || j->idle || w->policy.exclusive;
}

static struct card_need ref_need(const struct world *w, const struct plan_job *j)
{
	return (struct card_need){.declared_mib = j->declared_mib,
		.margin_mib = w->policy.margin_mib,
		.idle_threshold_mib = w->policy.idle_threshold_mib,
		.exclusive = ref_is_alone(w, j),
		.max_jobs_per_card = w->policy.max_jobs_per_card};
}

/* As far as the job's own wishes go. */
static bool ref_is_asked_for(const struct plan_job *j, size_t n, size_t c)
{
	return (j->only_node < 0 || (size_t)j->only_node == n) &&
	       (!j->only_cards || (j->only_cards >> c & 1)) &&
	       (!j->node_cards || (j->node_cards[n] >> c & 1));
}

static bool ref_may_use(const struct world *w, const struct plan_job *j, size_t n, size_t c)
{
	const struct plan_card *card = &w->cards[n][c];
	bool is_quiet = !card->has_strangers && card->room.promised_mib == 0 &&
			card->room.foreign_mib < w->policy.idle_threshold_mib;

	return w->nodes[n].is_usable && card->is_usable && ref_is_asked_for(j, n, c) &&
	       (!j->idle || is_quiet);
}

static bool ref_host_is_large_enough(const struct world *w, const struct plan_job *j, size_t n)
{
	return (w->nodes[n].cpus == 0 || j->cpus <= w->nodes[n].cpus) &&
	       (w->nodes[n].mem_mib == 0 || j->mem_mib <= w->nodes[n].mem_mib);
}

/* What the guarded job of that node will want is left alone. */
static bool ref_host_takes(
	const struct world *w, const struct ref *r, const struct plan_job *j, size_t n)
{
	const struct plan_node *node = &w->nodes[n];
	int64_t cpus = j->cpus, mem = j->mem_mib;

	if (r->guard_job[n] >= 0) {
		cpus += w->jobs[r->guard_job[n]].cpus;
		mem += w->jobs[r->guard_job[n]].mem_mib;
	}
	return (j->cpus == 0 || node->cpus == 0 || r->cpus_used[n] + cpus <= node->cpus) &&
	       (j->mem_mib == 0 || node->mem_mib == 0 || r->mem_used[n] + mem <= node->mem_mib);
}

/* Would the guarded job still fit once its blockers have ended, with this newcomer there? */
static bool ref_leaves_guard(
	const struct world *w, const struct ref *r, const struct plan_job *j, size_t n, size_t c)
{
	if (r->guard_job[n] < 0 || !(r->guard_cards[n] >> c & 1))
		return true;
	const struct plan_job *g = &w->jobs[r->guard_job[n]];
	if (j->declared_mib < 0 || ref_is_alone(w, j))
		return false;
	struct card_room later = r->rooms[n][c];
	later.budgets_mib = r->companions_mib[n][c] + j->declared_mib;
	later.n_ours = r->n_companions[n][c] + 1;
	later.has_whole = false;
	struct card_need need = ref_need(w, g);
	return card_fits(&later, &need) == FIT_YES;
}

static bool ref_card_takes(
	const struct world *w, const struct ref *r, const struct plan_job *j, size_t n, size_t c)
{
	struct card_need need = ref_need(w, j);

	return ref_may_use(w, j, n, c) && card_fits(&r->rooms[n][c], &need) == FIT_YES &&
	       ref_leaves_guard(w, r, j, n, c);
}

static bool ref_linked(const struct world *w, size_t n, size_t a, size_t b)
{
	return (w->cards[n][a].nvlink_peers >> b & 1) || (w->cards[n][b].nvlink_peers >> a & 1);
}

/* Size of the largest group of these cards that hang together. */
static uint32_t ref_group(const struct world *w, size_t n, uint64_t cards)
{
	uint32_t most = 0;

	for (size_t from = 0; from < w->nodes[n].n_cards; from++) {
		uint64_t in = cards & (UINT64_C(1) << from);
		for (int turn = 0; in && turn < CARDS; turn++)
			for (size_t a = 0; a < w->nodes[n].n_cards; a++)
				for (size_t b = 0; b < w->nodes[n].n_cards; b++)
					if (a != b && (in >> a & 1) && (cards >> b & 1) &&
						ref_linked(w, n, a, b))
						in |= UINT64_C(1) << b;
		if ((uint32_t)__builtin_popcountll(in) > most)
			most = (uint32_t)__builtin_popcountll(in);
	}
	return most;
}

static bool ref_must_join(const struct world *w, size_t n, const struct plan_job *j)
{
	uint64_t usable = 0;

	for (size_t c = 0; c < w->nodes[n].n_cards; c++)
		if (w->nodes[n].is_usable && w->cards[n][c].is_usable)
			usable |= UINT64_C(1) << c;
	return j->gpus > 1 &&
	       (j->need_nvlink || (w->policy.need_nvlink && ref_group(w, n, usable) >= j->gpus));
}

/* Does the job fit anywhere, now? */
static bool ref_fits(const struct world *w, const struct ref *r, const struct plan_job *j)
{
	for (size_t n = 0; n < w->n_nodes; n++) {
		uint64_t takes = 0;
		if (!ref_host_takes(w, r, j, n))
			continue;
		for (size_t c = 0; c < w->nodes[n].n_cards; c++)
			if (ref_card_takes(w, r, j, n, c))
				takes |= UINT64_C(1) << c;
		uint32_t k = ref_must_join(w, n, j) ? ref_group(w, n, takes)
						    : (uint32_t)__builtin_popcountll(takes);
		if (k >= j->gpus)
			return true;
	}
	return false;
}

static void ref_count_companions(const struct world *w, struct ref *r, size_t n, uint64_t id)
{
	memset(r->companions_mib[n], 0, sizeof(r->companions_mib[n]));
	memset(r->n_companions[n], 0, sizeof(r->n_companions[n]));
	for (size_t i = 0; id && i < w->nodes[n].n_running; i++) {
		const struct plan_running *run = &w->running[n][i];
		if (run->beside_guard != id)
			continue;
		r->companions_mib[n][run->card] += run->charge_mib;
		r->n_companions[n][run->card]++;
	}
}

static void ref_start(const struct world *w, struct ref *r, const struct plan_job *j,
	const struct plan_decision *d)
{
	r->cpus_used[d->node] += j->cpus;
	r->mem_used[d->node] += j->mem_mib;
	if (j->gpus == 0) {
		r->n_cpu[d->node]++;
		return;
	}
	for (size_t c = 0; c < w->nodes[d->node].n_cards; c++) {
		struct card_room *room = &r->rooms[d->node][c];
		if (!(d->cards >> c & 1))
			continue;
		room->n_ours++;
		room->has_whole |= j->declared_mib < 0 || ref_is_alone(w, j);
		room->budgets_mib += j->declared_mib < 0 ? room->total_mib : j->declared_mib;
		if (r->guard_job[d->node] >= 0 && (r->guard_cards[d->node] >> c & 1)) {
			r->companions_mib[d->node][c] += j->declared_mib;
			r->n_companions[d->node][c]++;
		}
	}
}

static bool before(const struct plan_job *a, size_t ia, const struct plan_job *b, size_t ib)
{
	if (a->priority != b->priority)
		return a->priority > b->priority;
	if (a->waiting_since_ms != b->waiting_since_ms)
		return a->waiting_since_ms < b->waiting_since_ms;
	return ia < ib;
}

static void ref_order(const struct world *w, size_t *order)
{
	for (size_t i = 0; i < w->n_jobs; i++) {
		size_t at = i;
		while (at > 0 && before(&w->jobs[i], i, &w->jobs[order[at - 1]], order[at - 1])) {
			order[at] = order[at - 1];
			at--;
		}
		order[at] = i;
	}
}

static bool ref_is_due(const struct world *w, const struct plan_job *j)
{
	return w->policy.guard_after_ms > 0 && NOW - j->waiting_since_ms > w->policy.guard_after_ms;
}

/* Could these cards hold the job, were all of ours gone? */
static bool ref_could_hold(
	const struct world *w, const struct ref *r, const struct plan_job *j, size_t n, size_t c)
{
	struct card_room later = r->rooms[n][c];
	struct card_need need = ref_need(w, j);

	later.budgets_mib = 0;
	later.n_ours = 0;
	later.has_whole = false;
	return ref_may_use(w, j, n, c) && card_fits(&later, &need) == FIT_YES;
}

static bool ref_names(const struct plan_job *j, size_t n)
{
	return j->only_node < 0 || (size_t)j->only_node == n;
}

/* Cards of the node that would hold the job if they were empty. */
static uint64_t ref_large(const struct world *w, const struct plan_job *j, size_t n)
{
	uint64_t large = 0;

	for (size_t c = 0; c < w->nodes[n].n_cards; c++) {
		const struct plan_card *card = &w->cards[n][c];
		if ((card->is_usable || card->was_seen) && ref_is_asked_for(j, n, c) &&
			(j->declared_mib < 0 || j->declared_mib + w->policy.margin_mib == 0 ||
				card->room.total_mib - card->room.headroom_mib >=
					j->declared_mib + w->policy.margin_mib))
			large |= UINT64_C(1) << c;
	}
	return large;
}

static bool ref_is_never(const struct world *w, const struct plan_job *j)
{
	bool is_listed = false, is_possible = false;

	for (size_t n = 0; n < w->n_nodes; n++) {
		if (!ref_names(j, n))
			continue;
		if (w->nodes[n].is_unknown)
			return false;
		is_listed = true;
		if (!ref_host_is_large_enough(w, j, n))
			continue;
		uint64_t large = ref_large(w, j, n);
		uint32_t k = j->need_nvlink && j->gpus > 1 ? ref_group(w, n, large)
							   : (uint32_t)__builtin_popcountll(large);
		is_possible |= k >= j->gpus;
	}
	return is_listed && !is_possible;
}

static void ref_restore_guards(const struct world *w, struct ref *r, const size_t *order)
{
	for (size_t i = 0; i < w->n_jobs; i++) {
		const struct plan_job *j = &w->jobs[order[i]];
		size_t n = (size_t)j->guard_node;

		if (!j->guard_cards || j->is_blocked || !ref_is_due(w, j) || n >= w->n_nodes ||
			r->guard_job[n] >= 0 || !ref_host_is_large_enough(w, j, n) ||
			(uint32_t)__builtin_popcountll(j->guard_cards) != j->gpus)
			continue;
		bool holds = true;
		for (size_t c = 0; c < CARDS; c++)
			if (j->guard_cards >> c & 1)
				holds = holds && c < w->nodes[n].n_cards &&
					ref_could_hold(w, r, j, n, c);
		if (!holds || (ref_must_join(w, n, j) && ref_group(w, n, j->guard_cards) < j->gpus))
			continue;
		r->guard_job[n] = (int)order[i];
		r->guard_cards[n] = j->guard_cards;
		ref_count_companions(w, r, n, j->id);
	}
}

/*
 * Walks the order with the plan's own choices of cards (their quality is the scenarios' business) and asks at each step
 * whether start, wait and never are what the rules say, whether the cards take the job, and what is kept for whom.
 */
void check_against_reference(const struct world *w)
{
	static struct ref r;
	size_t order[JOBS];
	uint32_t started = 0;

	memset(&r, 0, sizeof(r));
	for (size_t n = 0; n < w->n_nodes; n++) {
		r.guard_job[n] = -1;
		r.n_cpu[n] = w->nodes[n].n_cpu_jobs;
		r.cpus_used[n] = w->nodes[n].cpus_used;
		r.mem_used[n] = w->nodes[n].mem_used_mib;
		for (size_t c = 0; c < w->nodes[n].n_cards; c++)
			r.rooms[n][c] = w->cards[n][c].room;
	}
	ref_order(w, order);
	ref_restore_guards(w, &r, order);
	for (size_t i = 0; i < w->n_jobs; i++) {
		const struct plan_job *j = &w->jobs[order[i]];
		const struct plan_decision *d = &w->d[order[i]];
		int kept_on = -1;

		if (j->is_blocked) {
			assert_int_equal(d->why, WHY_BLOCKED);
			continue;
		}
		assert_int_equal(d->what == PLAN_NEVER, ref_is_never(w, j));
		if (d->what == PLAN_NEVER)
			continue;
		if (w->policy.max_jobs && started == w->policy.max_jobs) {
			assert_int_equal(d->why, WHY_JOBS_LIMIT);
			continue;
		}
		if (j->gpus == 0) {
			bool fits = false;
			for (size_t n = 0; n < w->n_nodes; n++)
				fits |= w->nodes[n].is_usable && ref_host_takes(w, &r, j, n) &&
					(j->only_node < 0 || (size_t)j->only_node == n) &&
					(!w->nodes[n].max_cpu_jobs ||
						r.n_cpu[n] < w->nodes[n].max_cpu_jobs);
			assert_int_equal(d->what == PLAN_START, fits);
			if (fits) {
				assert_true(!w->nodes[d->node].max_cpu_jobs ||
					    r.n_cpu[d->node] < w->nodes[d->node].max_cpu_jobs);
				ref_start(w, &r, j, d);
				started++;
			}
			continue;
		}
		if (j->declared_mib < 0 && w->policy.idle_threshold_mib <= 0) {
			assert_int_equal(d->why, WHY_THRESHOLD);
			continue;
		}
		for (size_t n = 0; n < w->n_nodes; n++)
			if (r.guard_job[n] == (int)order[i])
				kept_on = (int)n;
		if (kept_on >= 0)
			r.guard_job[kept_on] = -1;
		assert_int_equal(d->what == PLAN_START, ref_fits(w, &r, j));
		if (d->what == PLAN_START) {
			assert_int_equal(__builtin_popcountll(d->cards), j->gpus);
			for (size_t c = 0; c < 64; c++)
				if (d->cards >> c & 1)
					assert_true(c < w->nodes[d->node].n_cards &&
						    ref_card_takes(w, &r, j, (size_t)d->node, c));
			if (ref_must_join(w, (size_t)d->node, j))
				assert_int_equal(ref_group(w, (size_t)d->node, d->cards), j->gpus);
			int guarded = r.guard_job[d->node];
			bool is_beside = guarded >= 0 && (r.guard_cards[d->node] & d->cards);
			assert_int_equal(d->guard_id, is_beside ? w->jobs[guarded].id : 0);
			ref_start(w, &r, j, d);
			started++;
			continue;
		}
		if (kept_on >= 0) {
			r.guard_job[kept_on] = (int)order[i];
			assert_int_equal(d->guard_node, kept_on);
			assert_int_equal(d->guard_cards, r.guard_cards[kept_on]);
			continue;
		}
		/* Nothing kept for it yet: it must be now, if it's due and a free node could hold it. */
		bool could = false;
		for (size_t n = 0; n < w->n_nodes; n++) {
			uint64_t holds = 0;
			for (size_t c = 0; c < w->nodes[n].n_cards; c++)
				if (ref_could_hold(w, &r, j, n, c))
					holds |= UINT64_C(1) << c;
			uint32_t k = ref_must_join(w, n, j) ? ref_group(w, n, holds)
							    : (uint32_t)__builtin_popcountll(holds);
			could |= r.guard_job[n] < 0 && k >= j->gpus &&
				 ref_host_is_large_enough(w, j, n);
		}
		assert_int_equal(d->guard_cards != 0, could && ref_is_due(w, j));
		if (d->guard_cards) {
			assert_int_equal(__builtin_popcountll(d->guard_cards), j->gpus);
			for (size_t c = 0; c < 64; c++)
				if (d->guard_cards >> c & 1)
					assert_true(
						ref_could_hold(w, &r, j, (size_t)d->guard_node, c));
			r.guard_job[d->guard_node] = (int)order[i];
			r.guard_cards[d->guard_node] = d->guard_cards;
			ref_count_companions(w, &r, (size_t)d->guard_node, 0);
		}
	}
}
