/*
 * The decision: cluster + queue + policy + now -> a plan with a word for every job. A pure function: no clock, no I/O,
 * no globals; the same input gives the same plan.
 *
 * What always holds of a plan
 * 1. On no card: foreign + budgets + promised + headroom + what the plan starts there > total.
 * 2. No job is started twice, none on a card it may not use, each on exactly as many cards as it asked for, all on one node.
 * 3. A whole-card job is alone among ours on its cards.
 * 4. A job that fits and is first in the order is started, unless it would take a guarded job's place.
 * 5. A guarded job fits on its cards as soon as its blockers have ended: newcomers leave it that much.
 *
 * 6. On no node: the cores and the memory declared by jobs there, those that the plan starts included, > the node's own.
 *
 * The cost is about one pass over the queue: room only shrinks within a plan, so the smallest need that failed for jobs
 * with the same wishes fails for all larger ones. Jobs have the same wishes if everything from only_cards to mem_mib is
 * equal; node_cards is compared as a pointer, so whoever has many jobs shares the masks among them.
 */
#pragma once

#include "sched/budget.h"

#include <stddef.h>
#include <stdint.h>

struct plan_card {
	struct card_room room;
	int32_t index; /* ties go to the lower one */
	int32_t gi, ci; /* of a MIG instance, as in struct gpu_card: for the sentence only */
	bool is_usable; /* false: lost, drained, not in --gpus */
	bool is_out; /* taken out of service: why it isn't usable, for the reason only */
	bool has_strangers; /* somebody else's process computes on it: nothing for a job that asks for `idle` */
	bool was_seen; /* it answered at some time and may be used: never a reason for "never" when it's missing now */
	int32_t numa; /* -1 unknown */
	uint64_t nvlink_peers; /* bit i: linked to the card at position i of this node */
};

/* One of our attempts on one card. Only the guard asks for these; without them all charges count as blockers. */
struct plan_running {
	uint64_t id; /* the job's, for the sentence */
	uint32_t card; /* position in the node */
	int64_t charge_mib; /* its part of the card's budgets_mib */
	uint64_t
		beside_guard; /* guard_id of the PLAN_START decision that started it, 0: none. If that job is guarded still, it's no blocker */
};

struct plan_node {
	const struct plan_card *cards;
	size_t n_cards; /* <= 64 */
	bool is_usable; /* reachable, not drained; its cards count for "never" either way */
	uint32_t n_cpu_jobs; /* CPU jobs running there now */
	uint32_t max_cpu_jobs; /* 0: no limit */
	/* It may have cards that nobody has told of yet: a job that may go there is never "never". */
	bool is_unknown;
	int64_t cpus, mem_mib; /* its own, for what jobs declare; 0 unknown: no limit */
	int64_t cpus_used, mem_used_mib; /* declared by our attempts there */
	const struct plan_running *running; /* may be NULL */
	size_t n_running;
};

struct plan_job {
	uint64_t id;
	int64_t declared_mib; /* per card; UNDECLARED: a wholly idle card */
	uint32_t gpus; /* 0: a CPU job */
	int32_t priority; /* higher first */
	int64_t waiting_since_ms;
	uint64_t only_cards; /* 0: any; else bit i: position i of the node (with only_node) */
	int32_t only_node; /* -1: any */
	/*
	 * NULL: any. Else for each node the cards that will do (bit i: position i), which hold together with only_cards and
	 * only_node; 0: none of that node. n_nodes masks. Nothing to a CPU job.
	 */
	const uint64_t *node_cards;
	bool need_nvlink; /* several cards: only sets joined by NVLink, on no node that has none */
	bool idle; /* nobody's processes on its cards, ours or strangers' */
	int64_t cpus, mem_mib; /* of the node's own; 0: none */
	bool exclusive; /* no other job of ours on its cards */
	bool is_blocked; /* waits for something else (a dependency, a hold): counted, not placed */
	/* guard_node and guard_cards of its decision in the last plan: the place kept for it. guard_cards 0: none. */
	int32_t guard_node;
	uint64_t guard_cards;
};

/*
 * Of several places: the cards with the smallest sufficient room (best fit, pack) or the largest (spread), and the node
 * with the smallest, or largest, sum of it. Best fit takes the first idle cards by index for an undeclared job; spread and
 * pack go by room there too. Ties: NVLink, then NUMA, then the lower index and the lower node.
 */
enum plan_place { PLACE_BEST_FIT, PLACE_SPREAD, PLACE_PACK };

struct plan_policy {
	enum plan_place place;
	int64_t margin_mib, idle_threshold_mib;
	bool exclusive;
	bool need_nvlink; /* several cards: only sets joined by NVLink (each to another of the set) where a node has sets of that size */
	uint32_t max_jobs_per_card; /* 0: no limit */
	uint32_t max_jobs; /* starts allowed by this plan; 0: no limit */
	bool is_in_order; /* the order is that of the array, whatever priorities and ages are */
	int64_t guard_after_ms; /* 0: off. A job that waited longer keeps its place: protocol and decisions.md, "The guard" */
};

enum plan_what { PLAN_START, PLAN_WAIT, PLAN_NEVER };

enum plan_why {
	WHY_NONE,
	WHY_MEMORY, /* fits an empty card, not now: need_mib, best_free_mib on best_card of best_node */
	WHY_NO_IDLE, /* undeclared: no card is wholly idle (enough of them) */
	WHY_FEW_CARDS, /* enough room on some, not on `gpus` cards of one node: have_cards */
	WHY_PROMISED, /* other users' promises are in the way */
	WHY_JOBS_LIMIT, /* max_jobs, max_jobs_per_card or max_cpu_jobs */
	WHY_GUARDED, /* would delay the guarded job guard_id */
	WHY_BLOCKED, /* is_blocked */
	WHY_NO_NODE, /* no usable node or card now */
	WHY_NVLINK, /* enough cards have room, but no `gpus` of them are joined: have_cards are at most */
	WHY_THRESHOLD, /* undeclared, and the idle threshold is 0: can never be met */
	WHY_NOT_IDLE, /* asks for idle cards: have_cards of one node are at most */
	WHY_OUT_OF_SERVICE, /* no usable card now, and some that would do are taken out of service */
	WHY_HOST, /* cards there are, but no node has so many cores or so much memory left: best_node has the most */
	/* with PLAN_NEVER */
	WHY_TOO_MANY_CARDS, /* have_cards usable at most on one node */
	WHY_TOO_BIG, /* need_mib above the capacity; have_cards = how many cards are missing */
	WHY_NO_CARD, /* no card known is what node_cards asks for */
	WHY_NOT_JOINED, /* so many cards of that size are joined by NVLink nowhere: have_cards are at most */
	WHY_HOST_TOO_SMALL, /* no node has so many cores or so much memory: best_node has the most */
};

struct plan_decision {
	size_t job; /* position in the jobs array */
	enum plan_what what;
	enum plan_why why;
	int32_t node; /* PLAN_START: position; else -1 */
	uint64_t cards; /* PLAN_START: bits of positions in that node */
	int64_t need_mib, best_free_mib; /* margin included; best_free may be negative */
	int32_t best_node, best_card; /* -1: none */
	uint32_t have_cards;
	int64_t host_cpus,
		host_mem_mib; /* WHY_HOST: left on best_node; WHY_HOST_TOO_SMALL: its own; -1 unknown */
	int32_t guard_node; /* with guard_cards; -1: none */
	/*
	 * WHY_GUARDED: the job it would delay. PLAN_START: the guarded job on whose cards it starts as well; keep it with
	 * the attempt (plan_running.beside_guard). 0: none.
	 */
	uint64_t guard_id;
	/* PLAN_WAIT: the place kept for this job; hand it back in the next plan. */
	uint64_t guard_cards;
};

/*
 * Decides about all n jobs. `jobs` is in queue order already when priorities and ages are equal; the order used is
 * priority (higher first), then waiting_since_ms, then position (but see is_in_order). Writes n decisions into ret, in the order of `jobs`.
 * `now_ms` and waiting_since_ms share one clock.
 */
void plan_make(const struct plan_node *nodes, size_t n_nodes, const struct plan_job *jobs,
	size_t n_jobs, const struct plan_policy *policy, int64_t now_ms, struct plan_decision *ret);

/* The reason as a sentence: "needs 20992 MiB on one GPU; the best is gpu1 with 9100 MiB free". names: may be NULL. */
struct buf;
void plan_why_text(const struct plan_decision *d, const struct plan_node *nodes,
	const char *const *node_names, const struct plan_job *job, struct buf *out);
