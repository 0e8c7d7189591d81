/* A random cluster with its queue, and what the tests of plans share: their random numbers, and the naive reference. */
#pragma once

#include "sched/plan.h"

#include <stdint.h>

#define NODES 5
#define CARDS 6
#define JOBS 60
#define ROWS 64
#define ROUNDS 4000
#define NOW 1000000
#define MASKS 4

struct world {
	struct plan_card cards[NODES][CARDS];
	struct plan_running running[NODES][ROWS];
	struct plan_node nodes[NODES];
	size_t n_nodes;
	struct plan_job jobs[JOBS];
	size_t n_jobs;
	struct plan_policy policy;
	uint64_t masks[MASKS][NODES]; /* what some of the jobs share as node_cards */
	struct plan_decision d[JOBS];
};

/* Below n; PLAN_SEED in the environment repeats a run. */
uint64_t random_below(uint64_t n);
/* Reads PLAN_SEED or makes a seed, and prints it. */
void random_start(void);
/* Asserts that the plan in w->d is what the rules, written down naively, say. */
void check_against_reference(const struct world *w);
