/* What a controller says of a lane, from the word to the file, and from the file to the lane at the agent's start (lanes.h). */
#include "agent/lanes_inner.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fault.h"

#include <stdlib.h>
#include <string.h>

int lane_compare_word(const struct lane *stored, const struct fence *f, uint64_t generation)
{
	/* A store that went back in time has another incarnation, and counts anew. */
	if (f->v[0] != stored->fence.v[0])
		return f->v[0] < stored->fence.v[0] ? -1 : 1;
	if (generation != stored->generation)
		return generation < stored->generation ? -1 : 1;
	return 0;
}

/* States of all entries, and of what the lane lists no more but runs. */
static void look_at_all(const struct agent *a, struct lane_run *lr)
{
	for (size_t i = 0; i < lr->lane.n; i++)
		lanes_look_at(a, lr, &lr->lane.entries[i]);
	for (size_t i = 0; i < lr->lane.n_left; i++)
		if (lanes_state_of(a, &lr->lane.left[i].name, lr->lane.left[i].token) == LANE_TAKEN)
			lanes_add_running(lr, &lr->lane.left[i].name, lr->lane.left[i].token);
}

static void set_left(const struct lane_run *lr, struct lane *l)
{
	for (size_t i = 0; lr && i < lr->n_running; i++) {
		if (lane_find(l, &lr->running[i].name) >= 0)
			continue;
		GROW(l->left, l->n_left, l->cap_left);
		l->left[l->n_left++] = lr->running[i];
	}
}

/* Is the next one of *l the one that it was, to the letter? What was made ready or stands in line is of the old word. */
static bool has_same_head(struct agent *a, const struct lane_run *lr, const struct lane *l)
{
	const struct lane_entry *x = head_of(lr);
	ssize_t at = x ? lane_find(l, &x->name) : -1;

	for (ssize_t i = 0; i < at; i++)
		if (lanes_state_of(a, &l->entries[i].name, l->entries[i].token) == LANE_WAITING)
			return false;
	return at >= 0 && x->crc == l->entries[at].crc && x->size == l->entries[at].size &&
	       !strcmp(x->token, l->entries[at].token);
}

static bool has_same_policy(const struct lane *a, const struct lane *b)
{
	return a->has_policy == b->has_policy &&
	       (!a->has_policy || claim_policy_equal(&a->policy, &b->policy));
}

/* Goes by *l from here on, which lies in the file. */
static void install(struct agent *a, struct lane_run *lr, struct lane *l)
{
	struct lane_entry *x;
	bool is_same = has_same_head(a, lr, l) && has_same_policy(&lr->lane, l);

	lane_done(&lr->lane);
	lr->lane = *l;
	*l = (struct lane){0};
	lr->head = 0;
	lr->need_seen = 0;
	lr->again_ms = 0;
	lr->waits = (struct refusal){0};
	look_at_all(a, lr);
	lanes_settle(a, lr);
	x = head_of(lr);
	if (!is_same)
		lr->in_line = 0;
	/* Before the answer: what was taken out must not lie there ready to be born. */
	if (!is_same)
		lanes_drop_ready(a, lr);
	if (x)
		lanes_look_at_needs(a, lr, x);
	lanes_hold(a);
}

static struct lane_run *new_run(struct agent *a, const struct lane *l)
{
	struct lane_run *lr = xcalloc(1, sizeof(*lr));

	memcpy(lr->lane.queue, l->queue, sizeof(lr->lane.queue));
	memcpy(lr->lane.name, l->name, sizeof(lr->lane.name));
	GROW(a->lanes->items, a->lanes->n, a->lanes->cap);
	a->lanes->items[a->lanes->n++] = lr;
	return lr;
}

int lanes_put(struct agent *a, struct lane *l, struct err *e)
{
	CLEANUP(lane_done) struct lane fresh = *l, there = {0};
	struct lane_run *lr = lanes_find_run(a, l->queue, l->name);
	int r;

	*l = (struct lane){0};
	if (!lr && a->lanes->n == LANES_MAX)
		return err_set(e, -E2BIG,
			"this machine has %d lanes already, and that's as many as it takes",
			LANES_MAX);
	set_left(lr, &fresh);
	r = lane_store(&a->root, &fresh, e);
	if (!r) {
		fault_point("agent.after-lane-stored");
		install(a, lr ? lr : new_run(a, &fresh), &fresh);
		return 0;
	}
	/* The error may be of the sync behind the rename: what lies there now is what the next agent would go by. */
	if (!lane_load(&a->root, fresh.queue, fresh.name, &there, NULL) &&
		(!lr || !lane_compare_word(&there, &fresh.fence, fresh.generation)))
		install(a, lr ? lr : new_run(a, &there), &there);
	return r;
}

int lanes_take_out(struct agent *a, const struct attempt_name *n, struct err *e)
{
	CLEANUP(lane_done) struct lane l = {0};
	size_t at;
	struct lane_run *lr = lanes_with_waiting(a, n, &at);
	const struct lane *old;

	if (!lr)
		return -ENOENT;
	old = &lr->lane;
	lane_copy_head(old, &l);
	for (size_t i = 0; i < old->n; i++) {
		int r = i == at ? 0 : lane_add_from(&a->root, &l, old, i, e);

		if (r)
			return r;
	}
	return lanes_put(a, &l, e);
}

static bool has_over(const struct lane *l)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->entries[i].state == LANE_OVER || l->entries[i].state == LANE_CONFLICT)
			return true;
	return false;
}

int lanes_leave_out_over(struct agent *a, struct err *e)
{
	for (size_t k = 0; k < a->lanes->n; k++) {
		const struct lane *old = &a->lanes->items[k]->lane;
		CLEANUP(lane_done) struct lane l = {0};
		int r = 0;

		if (!has_over(old))
			continue;
		lane_copy_head(old, &l);
		for (size_t i = 0; !r && i < old->n; i++)
			if (old->entries[i].state < LANE_OVER)
				r = lane_add_from(&a->root, &l, old, i, e);
		if (!r)
			r = lanes_put(a, &l, e);
		if (r)
			return r;
	}
	return 0;
}

/* ---- the beginning ---- */

static void load_one(void *arg, struct lane *l)
{
	struct agent *a = arg;

	if (a->lanes->n < LANES_MAX)
		install(a, new_run(a, l), l);
}

static void load_bad(void *arg, const char *file, const struct err *e)
{
	agent_log(arg, "%s", e->text);
}

void lanes_load(struct agent *a)
{
	lane_each(&a->root, load_one, load_bad, a);
}

/* ---- telling ---- */

const char *lanes_entry_state(const struct agent *a, const struct lane_entry *x)
{
	const struct attempt *at;

	switch (x->state) {
	case LANE_WAITING:
		return "queued";
	case LANE_CONFLICT:
		return "conflict";
	case LANE_OVER:
		return "ended";
	case LANE_TAKEN:
		break;
	}
	at = attempts_find(&a->attempts, &x->name);
	return at ? attempt_state_name(at->rec.state) : "ended";
}
