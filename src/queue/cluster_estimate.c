/*
 * When a job could start, where that can be said honestly: everything in its way has a time limit, or has run before and
 * told how long it takes; and nobody stands before it who could take the room. Else nothing is said.
 */
#include "queue/cluster_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <stdlib.h>

/* How long a job in flight may still take; ms -1: nobody knows. */
static struct estimate time_left(const struct cluster *c, const struct job *j)
{
	const struct store_learned *l;
	int64_t ran =
		j->started_ms > 0 && c->now_ms > j->started_ms ? c->now_ms - j->started_ms : 0;
	int64_t by_limit = j->max_runtime_ms > ran ? j->max_runtime_ms - ran : 0;

	l = cluster_learned(c, j);
	/* It has passed what it ever took: history says nothing any more. */
	if (l && l->n > 0 && l->run_max_ms > ran) {
		int64_t left = l->run_max_ms - ran;
		if (j->max_runtime_ms <= 0 || left < by_limit)
			return (struct estimate){left, false};
	}
	if (j->max_runtime_ms > 0)
		return (struct estimate){by_limit, true};
	return (struct estimate){-1, false};
}

/* All of these have to end. */
static struct estimate all_left(
	const struct cluster *c, size_t node, uint64_t cards, uint64_t guarded)
{
	const struct node_charges *l = &c->inner->charges[node];
	struct estimate most = {-1, true};

	for (size_t i = 0; i < l->n; i++) {
		const struct job *j;
		struct estimate its;

		if (l->v[i].card >= GPU_MAX || !(cards >> l->v[i].card & 1) ||
			(guarded && l->running[i].beside_guard == guarded))
			continue;
		j = l->v[i].job && !l->v[i].is_leftover ? cluster_live(c, l->v[i].job) : NULL;
		its = j ? time_left(c, j) : (struct estimate){-1, false};
		if (its.ms < 0)
			return its;
		most.is_bound &= its.is_bound;
		most.ms = its.ms > most.ms ? its.ms : most.ms;
	}
	return most;
}

struct ending {
	int64_t ms, mib;
	bool is_bound;
};

static int by_end(const void *a, const void *b)
{
	const struct ending *x = a, *y = b;

	return (x->ms > y->ms) - (x->ms < y->ms);
}

/* Enough of those on the best card have to end, the first ones first. */
static struct estimate enough_left(
	const struct cluster *c, size_t node, uint32_t card, int64_t missing_mib)
{
	const struct node_charges *l = &c->inner->charges[node];
	CLEANUP_FREE struct ending *ends = xcalloc(l->n + 1, sizeof(*ends));
	struct estimate ret = {0, true};
	size_t n = 0;

	for (size_t i = 0; i < l->n; i++) {
		const struct job *j;
		struct estimate its;

		if (l->v[i].card != card || l->v[i].is_leftover || !l->v[i].job)
			continue;
		j = cluster_live(c, l->v[i].job);
		its = j ? time_left(c, j) : (struct estimate){-1, false};
		if (its.ms >= 0)
			ends[n++] = (struct ending){its.ms, l->v[i].mib, its.is_bound};
	}
	qsort(ends, n, sizeof(*ends), by_end);
	for (size_t i = 0; i < n && missing_mib > 0; i++) {
		missing_mib -= ends[i].mib;
		ret.ms = ends[i].ms;
		ret.is_bound &= ends[i].is_bound;
	}
	return missing_mib > 0 ? (struct estimate){-1, false} : ret;
}

struct estimate cluster_estimate(const struct cluster *c, const struct cluster_plan *p, size_t i)
{
	const struct plan_decision *d = &p->decisions[i];
	const struct plan_job *j = &p->inner->jobs[i];

	if (d->what != PLAN_WAIT)
		return (struct estimate){-1, false};
	/* What's kept for it nobody else gets. */
	if (d->guard_cards && (d->why == WHY_MEMORY || d->why == WHY_FEW_CARDS ||
				      d->why == WHY_NO_IDLE || d->why == WHY_JOBS_LIMIT))
		return all_left(c, (size_t)d->guard_node, d->guard_cards, j->id);
	if (i == p->inner->first_unblocked && d->why == WHY_MEMORY && j->gpus == 1 &&
		!j->exclusive && d->best_card >= 0)
		return enough_left(c, (size_t)d->best_node, (uint32_t)d->best_card,
			d->need_mib - d->best_free_mib);
	return (struct estimate){-1, false};
}
