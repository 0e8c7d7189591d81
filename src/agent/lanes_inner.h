/* What lanes.c, lanes_need.c, lanes_hold.c and lanes_word.c share (lanes.h). */
#pragma once

#include "agent/lanes.h"
#include "agent/server.h"

#include <string.h>

/* What the next one's needs are worth, from what this root knows of them. The worst one counts. */
enum need_state {
	NEED_MET,
	NEED_NEAR, /* a live attempt of this root: it will be met or not without anybody's doing */
	NEED_FAR, /* nothing is known of it here, or it waits itself */
	NEED_FAILED,
};

struct lane_run {
	struct lane lane;
	size_t head; /* the first that waits; lane.n without */
	struct lane_ref *running; /* claims that haven't ended */
	size_t n_running, cap_running;
	enum need_state need;
	uint64_t need_seen; /* changes of attempts when the needs were looked at; 0: not yet */
	uint64_t in_line; /* number of the next one while it stands in line; 0 */
	/* Made ready: its directory, and its claim short of the birth. The spec is in the line while that stands there. */
	char ready_token[ID_LEN]; /* "": none */
	struct attempt_name ready_name;
	struct claim_spec ready;
	char *ready_dir;
	/* While its directory is being made (chores.h). */
	uint64_t making; /* the chore's number; 0: none */
	struct claim_spec making_spec;
	struct claim_stage *stage;
	struct shim_ready shim; /* waits for the birth, with the job's first process held */
	int64_t ready_again_ms, touch_at_ms;
	int64_t again_ms; /* not in line again before */
	struct refusal waits; /* reason NULL: nothing holds it up */
	bool is_withdrawn; /* others' promises were in the way: its hold isn't told them until it stands in line */
	uint64_t order;
	char order_of[ID_LEN]; /* token of the next one that the order is of */
};

struct lanes {
	struct lane_run **items; /* owned */
	size_t n, cap;
	uint64_t last_order, last_number;
	uint64_t n_changes; /* of attempts, from 1 */
};

static inline struct lane_entry *head_of(const struct lane_run *lr)
{
	return lr->head < lr->lane.n ? &lr->lane.entries[lr->head] : NULL;
}

/* The next one is made ready: its directory and its claim, short of the birth. */
static inline bool is_ready(const struct lane_run *lr, const char *token)
{
	return lr->ready_token[0] && !strcmp(lr->ready_token, token);
}

/* It'll start by itself, as soon as there's a place and room. */
static inline bool is_near(const struct lane_run *lr)
{
	return head_of(lr) && !lr->lane.paused && lr->need <= NEED_NEAR;
}

struct lane_run *lanes_find_run(const struct agent *a, const char *queue, const char *name);
ssize_t lanes_find_running(const struct lane_run *lr, const struct attempt_name *n);
/* The lane that has it in waiting, and its position there. */
struct lane_run *lanes_with_waiting(
	const struct agent *a, const struct attempt_name *n, size_t *ret_i);
void lanes_add_running(struct lane_run *lr, const struct attempt_name *n, const char *token);
/* A claim or a retired line of that name decides, whatever the lane's file says. */
enum lane_entry_state lanes_state_of(
	const struct agent *a, const struct attempt_name *n, const char *token);
void lanes_look_at(const struct agent *a, struct lane_run *lr, struct lane_entry *x);
/* Finds the next one, and gives it its place among the holds when it's a new one. */
void lanes_settle(struct agent *a, struct lane_run *lr);
/* What was made ready isn't the next one any more: nothing of it stays. */
void lanes_drop_ready(struct agent *a, struct lane_run *lr);

/* lanes_need.c */
__attribute__((format(printf, 3, 4))) void lanes_say_waits(
	struct refusal *r, const char *reason, const char *fmt, ...);
/* Why the next one waits; a hint to who commands, when it's another reason than before. */
void lanes_set_waits(struct agent *a, struct lane_run *lr, const struct refusal *r);
/* Brings lr->need up to date, if any attempt has changed. */
void lanes_look_at_needs(struct agent *a, struct lane_run *lr, struct lane_entry *x);
