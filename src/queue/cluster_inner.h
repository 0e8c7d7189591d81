/* What the files of the cluster share. Nothing outside src/queue/cluster*.c includes this. */
#pragma once

#include "queue/cluster.h"

/* What an attempt is charged on one card of the node; job 0: another queue's, or of an attempt that isn't in flight any more. */
struct charge {
	int64_t job;
	uint32_t card; /* position */
	int64_t mib;
	bool is_leftover; /* its job has ended and left it behind */
};

struct node_charges {
	struct charge *v;
	struct plan_running *running; /* the same for the plan */
	size_t n, cap;
};

/* A place kept, as the last pass left it. */
struct kept_guard {
	int64_t job;
	int32_t node;
	uint64_t cards;
};
/* An attempt that was started beside a guarded job. */
struct kept_beside {
	int64_t job, attempt, guard;
};

struct cluster_inner {
	struct store_cards out;
	struct store_learned *learned;
	size_t n_learned;
	uint32_t *learned_slots; /* by hash: position + 1; n_slots is a power of two */
	size_t n_slots;
	struct node_charges *charges; /* by node */
	struct kept_guard *guards;
	size_t n_guards;
	struct kept_beside *beside;
	size_t n_beside;
};

/* Jobs that ask for the same of nodes and cards share one of these. */
struct wish {
	const char *node, *gpu, *model, *lane; /* the job's texts */
	int64_t min_total_mib;
	int32_t only_node; /* -1 any; n_nodes: none that is there */
	uint64_t *masks; /* NULL: any card; else n_nodes */
	int64_t cap_mib; /* what the largest card known that will do can hold; -1 none */
};

struct cluster_plan_inner {
	struct plan_node *nodes;
	struct plan_card *cards; /* of all nodes */
	struct plan_job *jobs;
	uint8_t *sources; /* enum vram_source of each job's need */
	struct wish *wishes;
	size_t n_wishes, cap_wishes;
	uint32_t *wish_slots;
	size_t n_slots;
	size_t first_unblocked; /* the first job that waits and isn't blocked */
};

/* Does the job wait for others, or isn't it to run at all? */
bool cluster_is_blocked(const struct cluster *c, const struct job *j);
/* Its rows in cluster.unmet; returns how many. */
size_t cluster_unmet_of(
	const struct cluster *c, const struct job *j, const struct store_unmet_row **ret);
/* Does this row keep it from running, with the job's rule for those that ended badly? */
bool cluster_row_blocks(const struct job *j, const struct store_unmet_row *r);
int32_t cluster_node_named(const struct cluster *c, const char *name);
/* What is known of the job's shape, or NULL. */
const struct store_learned *cluster_learned(const struct cluster *c, const struct job *j);

/* cluster_lane.c: after nodes and jobs; the rows are read. */
void lanes_fill(struct cluster *c);
void lanes_judge(struct cluster *c); /* after rooms_fill: why_not */
/* Is it not for the plan to place it: handed out by the lane, or not its turn? */
bool lane_blocks(const struct cluster *c, const struct job *j);
/* Does it stand in a lane that a node runs, not known to have started? Then only the first of them holds memory. */
bool lane_waits(const struct cluster *c, const struct cluster_node *n, const char *queue,
	const struct job *j);
/* "place 3 in lane n1:0, behind 5 (running), 6"; what the node says. False: nothing was said. */
bool lane_put_why(const struct cluster *c, const struct job *j, struct buf *out);
/* Those of lanes first, in their order. */
void lanes_sort(struct store_jobs *pending);

/* cluster_room.c: all cards of all nodes; `queue` is this queue's uuid. After the guard was read. */
void rooms_fill(struct cluster *c, const char *queue);

/* cluster_wish.c */
struct wish *wish_find(const struct cluster *c, struct cluster_plan_inner *p, const struct job *j);
/* MiB or UNDECLARED, after defaults and learning. */
int64_t wish_need_mib(const struct cluster *c, const struct wish *w, const struct job *j,
	enum vram_source *ret_source);
/*
 * A bound job that hasn't started: was it bound to other memory than it would be now, because it was edited, or because
 * `default_vram` is another one? What was learned meanwhile doesn't count: that may change with every job that ends.
 */
bool wish_has_other_need(const struct cluster *c, const struct job *j);

/* cluster_guard.c */
void guard_read(struct cluster *c, const char *text);
const struct kept_guard *guard_of(const struct cluster *c, int64_t job);
uint64_t beside_of(const struct cluster *c, int64_t job, int64_t attempt);

/* cluster_estimate.c: ms until the job could start, by limits and known run times of what is in its way; -1: not honest. */
struct estimate {
	int64_t ms;
	bool is_bound; /* by limits alone: "at most" */
};
struct estimate cluster_estimate(const struct cluster *c, const struct cluster_plan *p, size_t i);

/* Positions of jobs in flight by id; NULL: not there. */
const struct job *cluster_live(const struct cluster *c, int64_t id);
