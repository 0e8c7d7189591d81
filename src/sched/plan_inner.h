/*
 * What the files of the plan share: the state of one plan_make call. Nothing here outlives the call, and nothing outside
 * src/sched/plan*.c includes it.
 *
 * A card's `avail` is all a newcomer's declaration + margin may come to: what is free, less what is kept for a guarded
 * job. So one comparison answers both questions, and the search is a scan of one flat array.
 */
#pragma once

#include "sched/plan.h"

#define CARDS_MAX 64
/* Figures are held within this, so that sums over a node's cards and differences can't wrap. */
#define MIB_MAX (INT64_C(1) << 50)
#define NO_ROOM (-MIB_MAX) /* below every need */

static inline int64_t mib_clamp(int64_t mib)
{
	return mib > MIB_MAX ? MIB_MAX : mib < NO_ROOM ? NO_ROOM : mib;
}

/* How a job shares its cards; the three kinds of which avail, alone and idle say where they go. */
enum sharing { SHARE, ALONE, WHOLE, SHARING_N };

/* The place kept on a node. */
struct guard {
	bool is_set;
	size_t job; /* position in jobs */
	uint64_t cards;
	int64_t need_mib; /* margin included */
	enum sharing sharing;
};

struct node_state {
	size_t first; /* of its cards in the flat arrays */
	uint32_t n;
	uint64_t usable; /* cards that may be used now; 0 when the node can't */
	uint32_t n_usable;
	int64_t most_mib; /* the largest avail of its cards */
	uint64_t alone; /* usable, none of ours on it, not kept for a guarded job */
	uint64_t idle; /* fits an undeclared job */
	uint64_t
		quiet; /* no stranger is on it and nothing is promised there: the same all through the plan */
	uint32_t n_cpu_jobs;
	int64_t cpus_free, mem_free_mib; /* MIB_MAX: no limit known */
	int64_t cpus_own, mem_own_mib; /* likewise */
	struct guard guard;
};

/* For each k: the largest room that k cards of one node all have, and the node. v[0] isn't used. */
struct kth {
	int64_t v[CARDS_MAX + 1];
	int32_t node[CARDS_MAX + 1];
};

enum view {
	VIEW_NOW,
	VIEW_UNGUARDED,
	VIEW_UNLIMITED,
	VIEW_UNPROMISED,
	VIEW_ANY_HOST,
	VIEW_CAPACITY,
	VIEW_N
};

/*
 * Jobs with the same wishes share what is remembered of failures and the figures for sentences. The first kind is that
 * of the jobs that may go anywhere.
 */
struct wish_memory {
	/* Smallest declaration that found no place, and no place to keep. */
	int64_t failed[SHARING_N][CARDS_MAX + 1];
	int64_t unguardable[SHARING_N][CARDS_MAX + 1];
	struct kth *views[SHARING_N][VIEW_N]; /* made when asked for */
	/* What was found out of NVLink: for so many cards, the largest need that some node can hold and the smallest that none can. */
	int64_t joined_yes[CARDS_MAX + 1], joined_no[CARDS_MAX + 1];
	uint32_t joined_never[CARDS_MAX + 1]; /* have_cards of the latter */
	/* The last answer of joined_with_room. */
	bool has_joined;
	enum sharing joined_sharing;
	enum view joined_view;
	int64_t joined_need;
	uint32_t joined;
};

/* Kinds of wishes that are remembered; jobs of a kind beyond these are looked at one by one. */
#define WISHES_MAX 512

struct plan_state {
	const struct plan_node *in;
	struct node_state *nodes;
	size_t n_nodes;
	/* Flat, one entry a card. */
	struct card_room *rooms;
	int64_t *avail;
	int64_t *companions_mib; /* of the guard on it: charges that aren't its blockers' */
	uint32_t *n_companions;
	uint64_t *peers; /* NVLink, made symmetric */
	int32_t *index;
	uint32_t *node_of;
	size_t n_cards;
	bool is_ascending; /* positions ascend with the indices on every node */

	const struct plan_job *jobs;
	size_t n_jobs;
	const struct plan_policy *policy;
	int64_t now_ms;
	struct plan_decision *ret;

	uint32_t n_started;
	size_t n_guards;
	bool has_promises, has_unknown;
	bool has_usable, has_out; /* any card that may be used; that is out of service */
	uint16_t *wish_of; /* of each job: WISHES_MAX when its kind isn't remembered */
	struct wish_memory *wishes[WISHES_MAX];
	size_t n_wishes;
	int64_t *view_rooms[SHARING_N][VIEW_N]; /* of all cards; made when asked for */
};

enum sharing job_sharing(const struct plan_state *s, const struct plan_job *j);
int64_t job_need(const struct plan_state *s, const struct plan_job *j);
/* May it go anywhere? */
bool job_is_plain(const struct plan_job *j);
bool job_may_use_node(const struct plan_job *j, size_t node);
/* Of a node that it may use. */
uint64_t job_may_use_cards(const struct plan_job *j, size_t node);
/* Those of them that it could be given now as far as strangers go. */
uint64_t job_open_cards(const struct plan_state *s, const struct plan_job *j, size_t node);
/* Has the node the cores and the memory that the job declares? What a guarded job waits for there is kept. */
bool host_takes(const struct plan_state *s, size_t node, const struct plan_job *j);
/* The same without what is kept there. */
bool host_would_take(const struct plan_state *s, size_t node, const struct plan_job *j);
bool host_is_large_enough(const struct plan_state *s, size_t node, const struct plan_job *j);

/* plan_wish.c. NULL: its kind isn't remembered. */
void wishes_make(struct plan_state *s);
void wishes_done(struct plan_state *s);
struct wish_memory *wish_of(const struct plan_state *s, const struct plan_job *j);
/* What strangers, other users' promises and headroom leave when all of ours have ended. */
int64_t room_when_ours_ended(const struct card_room *r);
/* Works out avail, alone and idle anew for the cards in `which`. */
void node_refresh(struct plan_state *s, size_t node, uint64_t which);
void memo_clear(struct plan_state *s);

/* plan_place.c. A place: the node, or -1, and its cards. */
struct place {
	int32_t node;
	uint64_t cards;
};
struct place place_find(const struct plan_state *s, const struct plan_job *j);
/*
 * Of the candidates, the j->gpus with the smallest keys (keys: one for each position of the node). 0 when there are too few,
 * or when NVLink is required and there's no joined set.
 */
uint64_t place_choose(const struct plan_state *s, size_t node, const struct plan_job *j,
	uint64_t candidates, const int64_t *keys);
/* Most cards of `cards` that are joined by NVLink. */
uint32_t place_joined_max(const struct plan_state *s, size_t node, uint64_t cards);
/* Must the job's set of cards on this node be joined? */
bool place_needs_joined(const struct plan_state *s, size_t node, const struct plan_job *j);

/* plan_guard.c */
void guard_restore(struct plan_state *s, const size_t *order);
bool guard_is_due(const struct plan_state *s, const struct plan_job *j);
void guard_try(struct plan_state *s, size_t job);
/* Position of the node where this job's place is kept, or -1. */
int32_t guard_node_of(const struct plan_state *s, size_t job);
void guard_set(struct plan_state *s, size_t node, const struct guard *g);
void guard_lift(struct plan_state *s, size_t node);
/* A newcomer starts on the node: whose place does it share? 0: nobody's. Its charge becomes a companion's. */
uint64_t guard_note_start(struct plan_state *s, struct place p, int64_t charge_mib);

/* plan_why.c */
/* Can it never start, as far as the cards known go? Then *d says why. */
bool why_never(struct plan_state *s, const struct plan_job *j, struct plan_decision *d);
void why_host(const struct plan_state *s, const struct plan_job *j, struct plan_decision *d);
/* Why a job that waits does so, by the figures at the plan's end. */
void why_waits(struct plan_state *s, const struct plan_job *j, struct plan_decision *d);
