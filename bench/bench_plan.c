/*
 * CPU time of one plan: 10,000 pending jobs of many sizes, one to eight cards each, some exclusive, some undeclared, the
 * guard on, 64 nodes of 8 cards. Two clusters: a busy one, where little starts and nearly every job needs a reason, and
 * an empty one, where thousands start. Then half of the jobs have wishes: cards by model, NVLink, idleness, cores and
 * memory of the node. Prints the median and the smallest of many runs.
 */
#include "sched/plan.h"

#include "base/alloc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NODES 64
#define CARDS 8
#define JOBS 10000
#define RUNS 41
#define TOTAL_MIB 81559

static uint64_t seed = 42;

static uint64_t next_random(uint64_t below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed % below;
}

static void fill_cluster(struct plan_card *cards, struct plan_node *nodes, bool is_busy)
{
	for (int i = 0; i < NODES * CARDS; i++) {
		cards[i] = (struct plan_card){.index = i % CARDS,
			.is_usable = true,
			.was_seen = true,
			.numa = i % CARDS / 4,
			.nvlink_peers = 0xff & ~(UINT64_C(1) << i % CARDS)};
		cards[i].room.total_mib = TOTAL_MIB;
		cards[i].room.headroom_mib = 512;
		cards[i].room.foreign_mib = (int64_t)next_random(400);
		if (is_busy) {
			cards[i].room.n_ours = 1 + (uint32_t)next_random(3);
			cards[i].room.budgets_mib = 50000 + (int64_t)next_random(30000);
		}
	}
	for (int i = 0; i < NODES; i++)
		nodes[i] = (struct plan_node){
			.cards = cards + (ptrdiff_t)i * CARDS, .n_cards = CARDS, .is_usable = true};
}

static void fill_jobs(struct plan_job *jobs)
{
	static const uint32_t gpus[] = {1, 1, 1, 1, 1, 1, 2, 2, 4, 8};

	for (int i = 0; i < JOBS; i++)
		jobs[i] = (struct plan_job){.id = (uint64_t)i + 1,
			.declared_mib = next_random(20) == 0 ? UNDECLARED
							     : 1000 + (int64_t)next_random(79000),
			.gpus = gpus[next_random(10)],
			.priority = (int32_t)next_random(5),
			.waiting_since_ms = (int64_t)next_random(3600000),
			.exclusive = next_random(10) == 0,
			.only_node = next_random(50) == 0 ? (int32_t)next_random(NODES) : -1,
			.guard_node = -1};
}

/* Eight lists of cards that will do, shared among the jobs, as models and sizes are. */
static void add_wishes(struct plan_job *jobs, struct plan_node *nodes)
{
	static uint64_t masks[8][NODES];

	for (int i = 0; i < 8; i++)
		for (int n = 0; n < NODES; n++)
			masks[i][n] = next_random(3) == 0 ? 0 : next_random(4) ? 0xff : 0x0f;
	for (int i = 0; i < NODES; i++) {
		nodes[i].cpus = 64;
		nodes[i].mem_mib = 512 * 1024;
	}
	for (int i = 0; i < JOBS; i++) {
		if (next_random(2))
			continue;
		jobs[i].node_cards = next_random(4) ? masks[next_random(8)] : NULL;
		jobs[i].need_nvlink = next_random(4) == 0;
		jobs[i].idle = next_random(10) == 0;
		jobs[i].cpus = next_random(3) ? 0 : 8;
		jobs[i].mem_mib = next_random(3) ? 0 : 32768;
	}
}

static double cpu_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void measure(const char *what, const struct plan_node *nodes, const struct plan_job *jobs,
	enum plan_place place)
{
	struct plan_policy policy = {.place = place,
		.margin_mib = 512,
		.idle_threshold_mib = 500,
		.guard_after_ms = 900000};
	struct plan_decision *d = xcalloc(JOBS, sizeof(*d));
	double t[RUNS];
	size_t n[3] = {0}, n_kept = 0;

	for (int i = 0; i < RUNS; i++) {
		double before = cpu_ms();
		plan_make(nodes, NODES, jobs, JOBS, &policy, 3600000, d);
		t[i] = cpu_ms() - before;
	}
	for (size_t i = 0; i < JOBS; i++) {
		n[d[i].what]++;
		n_kept += d[i].guard_cards != 0;
	}
	qsort(t, RUNS, sizeof(t[0]), by_size);
	printf("%-22s median %6.2f ms  least %6.2f ms   %zu start, %zu wait, %zu never, %zu guarded\n",
		what, t[RUNS / 2], t[0], n[PLAN_START], n[PLAN_WAIT], n[PLAN_NEVER], n_kept);
	free(d);
}

int main(void)
{
	struct plan_card *cards = xcalloc(NODES * CARDS, sizeof(*cards));
	struct plan_node nodes[NODES];
	struct plan_job *jobs = xcalloc(JOBS, sizeof(*jobs));

	printf("plan_make, CPU time: %d pending, %d nodes of %d cards, guard on\n", JOBS, NODES,
		CARDS);
	fill_jobs(jobs);
	fill_cluster(cards, nodes, true);
	measure("busy, best fit", nodes, jobs, PLACE_BEST_FIT);
	measure("busy, spread", nodes, jobs, PLACE_SPREAD);
	fill_cluster(cards, nodes, false);
	measure("empty, best fit", nodes, jobs, PLACE_BEST_FIT);
	measure("empty, spread", nodes, jobs, PLACE_SPREAD);
	add_wishes(jobs, nodes);
	measure("empty, with wishes", nodes, jobs, PLACE_SPREAD);
	fill_cluster(cards, nodes, true);
	add_wishes(jobs, nodes);
	measure("busy, with wishes", nodes, jobs, PLACE_SPREAD);
	fill_cluster(cards, nodes, false);
	fill_jobs(jobs);
	for (size_t i = 0; i < JOBS; i++) {
		jobs[i].gpus = 1;
		jobs[i].declared_mib = 1000 + (int64_t)next_random(4000);
	}
	measure("empty, all small", nodes, jobs, PLACE_BEST_FIT);
	free(jobs);
	free(cards);
	return 0;
}
