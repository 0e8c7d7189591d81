/*
 * Kinds of jobs by their wishes: which nodes, which cards, NVLink, idleness, cores and memory of the node. What is found
 * out for one job of a kind holds for all of it, so that ten thousand jobs of a few kinds cost little more than a few.
 */
#include "sched/plan_inner.h"

#include "base/alloc.h"

#include <stdlib.h>

#define SLOTS (4 * WISHES_MAX) /* a power of two */

static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
	return h ^ h >> 29;
}

static uint64_t wish_hash(const struct plan_job *j)
{
	uint64_t h = mix(0, (uint64_t)(uintptr_t)j->node_cards);

	h = mix(h, j->only_cards);
	h = mix(h, (uint64_t)(uint32_t)j->only_node | (uint64_t)j->need_nvlink << 32 |
			   (uint64_t)j->idle << 33);
	h = mix(h, (uint64_t)j->cpus);
	return mix(h, (uint64_t)j->mem_mib);
}

static bool wish_equal(const struct plan_job *a, const struct plan_job *b)
{
	return a->node_cards == b->node_cards && a->only_cards == b->only_cards &&
	       a->only_node == b->only_node && a->need_nvlink == b->need_nvlink &&
	       a->idle == b->idle && a->cpus == b->cpus && a->mem_mib == b->mem_mib;
}

static struct wish_memory *memory_new(void)
{
	struct wish_memory *w = xcalloc(1, sizeof(*w));

	for (size_t k = 0; k <= CARDS_MAX; k++) {
		w->joined_yes[k] = INT64_MIN;
		w->joined_no[k] = INT64_MAX;
	}
	return w;
}

/* The kind of a job that isn't plain; WISHES_MAX: there are too many. slots: kind + 1, or 0; like: a job of each kind. */
static uint16_t find_kind(struct plan_state *s, const struct plan_job *j, uint16_t *slots,
	const struct plan_job **like)
{
	size_t at = wish_hash(j) & (SLOTS - 1);

	for (; slots[at]; at = (at + 1) & (SLOTS - 1))
		if (wish_equal(like[slots[at] - 1], j))
			return (uint16_t)(slots[at] - 1);
	if (s->n_wishes == WISHES_MAX)
		return WISHES_MAX;
	like[s->n_wishes] = j;
	s->wishes[s->n_wishes++] = memory_new();
	slots[at] = (uint16_t)s->n_wishes;
	return (uint16_t)(s->n_wishes - 1);
}

void wishes_make(struct plan_state *s)
{
	uint16_t *slots = xcalloc(SLOTS, sizeof(*slots));
	const struct plan_job **like = xcalloc(WISHES_MAX, sizeof(*like));

	s->wish_of = xcalloc(s->n_jobs + 1, sizeof(*s->wish_of));
	s->wishes[s->n_wishes++] = memory_new();
	for (size_t i = 0; i < s->n_jobs; i++)
		if (!job_is_plain(&s->jobs[i]))
			s->wish_of[i] = find_kind(s, &s->jobs[i], slots, like);
	free(slots);
	free(like);
}

void wishes_done(struct plan_state *s)
{
	for (size_t i = 0; i < s->n_wishes; i++) {
		for (size_t k = 0; k < SHARING_N; k++)
			for (size_t v = 0; v < VIEW_N; v++)
				free(s->wishes[i]->views[k][v]);
		free(s->wishes[i]);
	}
	free(s->wish_of);
}

struct wish_memory *wish_of(const struct plan_state *s, const struct plan_job *j)
{
	uint16_t kind = s->wish_of[j - s->jobs];

	return kind < WISHES_MAX ? s->wishes[kind] : NULL;
}
