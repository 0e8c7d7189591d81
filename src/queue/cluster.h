/*
 * The queue at one moment, as the decision sees it: nodes with what the last pass saw of them, jobs in flight with their
 * charges, jobs that wait. Made from the store and the configuration alone, never from a node: so a tick, `job why`,
 * `queue status` and a dry run all see the same, and a dry run costs no node anything.
 */
#pragma once

#include "config/queue.h"
#include "queue/inventory.h"
#include "sched/plan.h"
#include "store/store.h"

#include <jansson.h>

struct cluster_card {
	const struct inv_card *inv;
	struct card_room room; /* what the plan sees */
	bool is_allowed; /* the node's `gpus:` list has it */
	bool is_in_service; /* not taken out by faults or by a person */
	const char *out_why; /* when it isn't; into the cluster */
	bool is_usable; /* a job may get it now, as far as the card goes; the node has its own */
	char why_not
		[160]; /* when it isn't: "out of service: ...", "not in the node's list of GPUs" */
	/* For people and JSON (nvidb 6.6, 9.4). */
	int64_t queue_mem_mib; /* measured, our jobs' of this queue */
	int64_t reserved_mib; /* sum of their charges */
	int64_t others_mib; /* charges of this user's other queues */
	int64_t free_mib; /* max(0, total - external - others' - reserved - headroom) */
	uint32_t queue_jobs;
};

struct cluster_node {
	const struct store_node *row;
	const struct queue_node *config; /* NULL: not in the configuration any more */
	struct inventory inv;
	struct cluster_card *cards; /* inv.n_cards */
	bool is_usable; /* jobs may be placed there now */
	char why_not
		[512]; /* "drained", "down: ...", "runs no agent (nvidia-smi text only)", "suspect: ...", "" */
	uint32_t n_jobs, n_cpu_jobs;
	int64_t cpus_used, mem_used_mib; /* declared by jobs in flight there */
};

/* A lane, with what is in it. Its jobs are of cluster.in_lanes: those that run, then those that wait, in their order. */
struct cluster_lane {
	const struct store_lane *row;
	int32_t node; /* position; -1: it isn't there */
	uint64_t cards; /* positions of its cards there */
	size_t n_named, n_known; /* cards that its name has; that its node is known to have */
	const struct job *jobs;
	size_t n, n_running;
	char why_not
		[256]; /* why its node starts none of it, whatever people said: "drained", "GPU 0: out of service: ..."; "" */
};

/*
 * What is kept between passes that each live in a process of their own: for whom a place is kept, and who was started beside.
 * The controller writes cluster_guard_text under this name (store_meta_set) in the transaction of its binds; cluster_load
 * reads it. Without it nothing breaks, but places are chosen anew.
 */
#define CLUSTER_GUARD_KEY "guard"

struct cluster {
	const struct queue_config *config;
	struct store_nodes rows;
	struct cluster_node
		*nodes; /* the configuration's order, then those that only have work left */
	size_t n_nodes;
	struct store_jobs live; /* bound: an attempt is in flight */
	struct store_jobs
		pending; /* not bound: those of lanes in their order, then the pool by turn; as store_question.to_place has them */
	struct store_unmet_row *unmet;
	size_t n_unmet;
	struct store_counts counts; /* loaded without the jobs that wait; else zeroed */
	struct store_lanes lane_rows;
	struct store_jobs
		in_lanes; /* those that wait or run, without their commands' tails; by lane and place */
	struct cluster_lane *lanes; /* by node, name */
	size_t n_lanes;
	char *waits_for_nodes; /* NULL, or why nothing at all may start: the store was moved or put back, and these weren't asked since */
	int64_t now_ms; /* wall */
	struct cluster_inner *inner; /* what else it owns */
};

/* pending false: without the jobs that wait, but with how many there are (status of nodes only). */
int cluster_load(struct store *s, const struct queue_config *config, int64_t now_ms, bool pending,
	struct cluster *ret, struct err *e);
/* For what the nodes' lanes should have: jobs that wait are loaded only if some job is in a lane. */
int cluster_load_for_lanes(struct store *s, const struct queue_config *config, int64_t now_ms,
	struct cluster *ret, struct err *e);
void cluster_done(struct cluster *c);
/* Exact, then unique ignoring case, then unique part; rows that aren't configured any more too. */
int cluster_find_node(const struct cluster *c, const char *name, size_t *ret, struct err *e);

const char *cluster_node_name(const struct cluster_node *n);

/* A decision about each of cluster.pending, in that order. */
struct cluster_plan {
	struct plan_decision *decisions;
	size_t n;
	struct cluster_plan_inner *inner; /* the plan's input, for the sentences */
};
/*
 * How much of an undeclared job's memory is guessed (default_vram: auto). From at least one run of the same shape on as
 * many cards that ended well and whose peak was seen: its largest peak and a fifth on top; from three on, a tenth; at least
 * 256 MiB on top. A run that went out of memory at more than that raises it to a quarter above where it did. A guess that
 * no card the job may use could hold is none: the job gets a wholly idle card, as one of which nothing is known.
 */
#define LEARNED_SURE 3
/* By that rule, whatever cards there are; UNDECLARED: nothing is known. */
int64_t cluster_learned_mib(const struct store_learned *l);
/* fresh[i]: node i answered in this pass with a sample, so jobs may start there; NULL: every usable node counts as fresh. */
void cluster_plan(struct cluster *c, const bool *fresh, struct cluster_plan *ret);
void cluster_plan_done(struct cluster_plan *p);
/* What is asked of a card for pending job i of the plan: MiB, or UNDECLARED (a wholly idle card); after learning. */
int64_t cluster_need_mib(const struct cluster *c, const struct cluster_plan *p, size_t i,
	enum vram_source *ret_source);
/* For CLUSTER_GUARD_KEY; NULL: nothing is to be kept, the key can go. To free. */
char *cluster_guard_text(const struct cluster *c, const struct cluster_plan *p);

/*
 * Why pending job i doesn't run, in words and numbers: held, waits for jobs, bound and not confirmed, the plan's reason,
 * what the node said at the last refusal, which cards don't count and why. One sentence or a few, no newline at the end. And as JSON:
 * {"reason": word, "text": sentence, "need_mib", "best": {"node","gpu","free_mib"}|null, "blocked_by": [job...], "guard":
 * id|null, "estimate_s": number|null}. The estimate is given only where it's honest: jobs in its way have limits or known
 * run times.
 */
void cluster_why(const struct cluster *c, const struct cluster_plan *p, size_t i, struct buf *text);
json_t *cluster_why_json(const struct cluster *c, const struct cluster_plan *p, size_t i);
/* "handed to n1, its start isn't confirmed yet" of a job in flight that doesn't run yet, or nothing. */
void cluster_why_bound(const struct cluster *c, const struct job *j, struct buf *text);
/* The position of a job in cluster.pending; -1: it isn't pending. */
ssize_t cluster_pending(const struct cluster *c, int64_t id);
/* A job that isn't submitted: put at the end of its priority, decided about, taken away again. For submit --dry-run. */
void cluster_try(
	struct cluster *c, const struct job *j, struct plan_decision *ret, struct buf *why);

/* By its whole name; NULL. */
const struct cluster_lane *cluster_lane_named(const struct cluster *c, const char *name);
/* Its place among those that wait, from 1; 0: it isn't there, or runs. */
size_t cluster_lane_place(const struct cluster_lane *l, int64_t id);
/* Does the node start none of it now: by people's word, or for why_not? */
bool cluster_lane_is_paused(const struct cluster_lane *l);
/* Why nothing of it starts (nvidb 6.8, then ours), from the record alone; nothing is written when all is well. */
void cluster_lane_blocked(const struct cluster *c, const struct cluster_lane *l, struct buf *text);
/* Its node's agent was seen alive with the lane, lately. */
bool cluster_lane_is_up(const struct cluster *c, const struct cluster_lane *l);
/* It has changed since its node acknowledged it: what it shows is a request. */
bool cluster_lane_is_request(const struct cluster_lane *l);
/* 9.5: the lane; with jobs (its own, whole: running ones, then those that wait) the lane-view. NULL: without. */
json_t *cluster_lane_json(
	const struct cluster *c, const struct cluster_lane *l, const struct store_jobs *jobs);
/*
 * From what people type: the whole name of a lane there is; else NODE:CARDS, where NODE is resolved as nodes are and CARDS are
 * indices, exactly (W-33). ret_node and ret_cards (to free) are the name's parts in their usual form. -EINVAL: a card that that
 * node isn't known to have, or no such form; -ENOENT, -EEXIST: of the node.
 */
int cluster_lane_resolve(const struct cluster *c, const char *word, char **ret_node,
	char **ret_cards, struct err *e);

/* Positions of the cards that a list of indices or UUIDs names on this node. */
uint64_t cluster_cards_named(const struct cluster_node *n, const char *words);
/*
 * Has the lane of these cards as many as the job asks for among those that its --gpu names (NULL: any)? -EINVAL with a
 * sentence. A node whose cards aren't known yet is believed.
 */
int cluster_lane_has_cards(const struct cluster_node *n, const char *cards, const char *gpu,
	int64_t gpus, struct err *e);

/*
 * What a lane's node should have of it, in order: what runs, then those that wait, up to the first that can't be handed out. It
 * can't when it's held, waits for something that isn't on that node or isn't handed out before it, could never run there, or was
 * handed out with prerequisites that aren't right any more; those behind it wait too. One whose cancel is wanted or that is to
 * leave is left out. Pure.
 */
struct lane_want {
	const struct job *job; /* of in_lanes */
	int64_t attempt; /* of one that isn't bound: the number that it gets */
	ssize_t pending; /* that one's position in cluster.pending; -1: it's bound */
	uint64_t cards; /* positions, of one to be bound */
	json_t *needs; /* [[job, attempt, "ok" or "end"], ...] as on the wire; NULL: none, or it's bound */
	bool is_queued; /* not known to have a claim */
};
struct lane_wants {
	struct lane_want *v;
	size_t n, cap;
};
struct handout {
	const struct cluster *c;
	const struct cluster_plan *plan;
	const struct store_lane_needs *sent; /* by job */
	size_t n_sent;
	/* Has the node a claim of it? */
	bool (*is_claimed)(const void *arg, int64_t job, int64_t attempt);
	const void *arg;
	const json_t *there; /* what the node has of the lane; NULL */
	int64_t need_waits; /* the job of which the node says that it waits for a prerequisite; 0 */
	/* Those that are to be bound on each node by what was wanted so far: [job, attempt]. Zeroed; free(planned). */
	struct handout_planned {
		int64_t job, attempt;
		int32_t node;
		const struct job *of;
	} * planned;
	size_t n_planned, cap_planned;
};
#define LANE_HANDED_MAX 1000
void cluster_lane_wants(struct handout *h, const struct cluster_lane *l, struct lane_wants *ret);
void lane_wants_done(struct lane_wants *w);

/*
 * A node as `queue nodes` and `queue status` show it (nvidb 9.4 key by key, then ours). mask_allowlist: without the
 * cards that the node's `gpus:` leaves out.
 */
json_t *cluster_node_json(const struct cluster *c, size_t node, bool mask_allowlist);
json_t *cluster_gpu_json(const struct cluster *c, size_t node, size_t card);
