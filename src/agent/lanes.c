/*
 * The lanes at work (lanes.h): their state between the controller's words and the line's decisions. Starts nothing itself.
 */
#include "agent/chores.h"
#include "agent/lanes_inner.h"
#include "agent/launch.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fault.h"
#include "proc/proc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_MS 2000 /* a refused one is tried again then, and what couldn't be made ready */
#define READY_MS \
	20 /* after a start: making the next one ready mustn't hold up the one that starts */
#define TOUCH_MS 600000 /* what is ready is kept from being swept */

struct lanes *lanes_new(void)
{
	struct lanes *x = xcalloc(1, sizeof(*x));

	x->n_changes = 1;
	return x;
}

static void run_free(struct lane_run *lr)
{
	lane_done(&lr->lane);
	claim_spec_done(&lr->ready);
	claim_spec_done(&lr->making_spec);
	claim_stage_free(lr->stage);
	shim_drop(&lr->shim);
	free(lr->ready_dir);
	free(lr->running);
	free(lr);
}

void lanes_free(struct lanes *x)
{
	for (size_t i = 0; x && i < x->n; i++)
		run_free(x->items[i]);
	if (x)
		free(x->items);
	free(x);
}

/* ---- finding ---- */

struct lane_run *lanes_find_run(const struct agent *a, const char *queue, const char *name)
{
	for (size_t i = 0; i < a->lanes->n; i++) {
		struct lane_run *lr = a->lanes->items[i];

		if (!strcmp(lr->lane.queue, queue) && !strcmp(lr->lane.name, name))
			return lr;
	}
	return NULL;
}

const struct lane *lanes_find(const struct agent *a, const char *queue, const char *name)
{
	const struct lane_run *lr = lanes_find_run(a, queue, name);

	return lr ? &lr->lane : NULL;
}

size_t lanes_count(const struct agent *a)
{
	return a->lanes->n;
}

const struct lane *lanes_at(const struct agent *a, size_t i)
{
	return &a->lanes->items[i]->lane;
}

/* The lane whose next one this is. */
static struct lane_run *run_of_head(const struct agent *a, const struct claim_spec *s)
{
	for (size_t i = 0; i < a->lanes->n; i++) {
		const struct lane_entry *x = head_of(a->lanes->items[i]);

		if (x && !strcmp(x->token, s->token) && attempt_name_equal(&x->name, &s->name))
			return a->lanes->items[i];
	}
	return NULL;
}

static struct lane_run *run_in_line(const struct agent *a, uint64_t number)
{
	for (size_t i = 0; i < a->lanes->n; i++)
		if (a->lanes->items[i]->in_line == number)
			return a->lanes->items[i];
	return NULL;
}

ssize_t lanes_find_running(const struct lane_run *lr, const struct attempt_name *n)
{
	for (size_t i = 0; i < lr->n_running; i++)
		if (attempt_name_equal(&lr->running[i].name, n))
			return (ssize_t)i;
	return -1;
}

struct lane_run *lanes_with_waiting(
	const struct agent *a, const struct attempt_name *n, size_t *ret_i)
{
	for (size_t i = 0; i < a->lanes->n; i++) {
		struct lane_run *lr = a->lanes->items[i];
		ssize_t at = strcmp(lr->lane.queue, n->queue) != 0 ? -1 : lane_find(&lr->lane, n);

		if (at < 0 || lr->lane.entries[at].state != LANE_WAITING)
			continue;
		*ret_i = (size_t)at;
		return lr;
	}
	return NULL;
}

const struct lane *lanes_waiting(const struct agent *a, const struct attempt_name *n)
{
	size_t i;
	const struct lane_run *lr = lanes_with_waiting(a, n, &i);

	return lr ? &lr->lane : NULL;
}

/* ---- what claims say ---- */

void lanes_add_running(struct lane_run *lr, const struct attempt_name *n, const char *token)
{
	if (lanes_find_running(lr, n) >= 0)
		return;
	GROW(lr->running, lr->n_running, lr->cap_running);
	lr->running[lr->n_running].name = *n;
	memcpy(lr->running[lr->n_running++].token, token, ID_LEN);
}

/* A claim or a retired line of that name decides, whatever the lane's file says. */
enum lane_entry_state lanes_state_of(
	const struct agent *a, const struct attempt_name *n, const char *token)
{
	const struct attempt *at = attempts_find(&a->attempts, n);
	struct attempt_end end;
	char found[ID_LEN];

	if (at && strcmp(at->token, token) != 0)
		return LANE_CONFLICT;
	if (at)
		return at->rec.state == ATTEMPT_ENDED ? LANE_OVER : LANE_TAKEN;
	if (retired_find(a->retired, n, found, &end))
		return LANE_WAITING;
	return strcmp(found, token) != 0 ? LANE_CONFLICT : LANE_OVER;
}

void lanes_look_at(const struct agent *a, struct lane_run *lr, struct lane_entry *x)
{
	if (x->state == LANE_OVER || x->state == LANE_CONFLICT)
		return;
	x->state = lanes_state_of(a, &x->name, x->token);
	if (x->state == LANE_TAKEN)
		lanes_add_running(lr, &x->name, x->token);
}

/* Finds the next one, and gives it its place among the holds when it's a new one. */
void lanes_settle(struct agent *a, struct lane_run *lr)
{
	const struct lane_entry *x;

	while (lr->head < lr->lane.n && lr->lane.entries[lr->head].state != LANE_WAITING)
		lr->head++;
	x = head_of(lr);
	if (!strcmp(lr->order_of, x ? x->token : ""))
		return;
	memcpy(lr->order_of, x ? x->token : "", x ? ID_LEN : 1);
	lr->order = ++a->lanes->last_order;
	lr->is_withdrawn = false;
	lr->again_ms = lr->ready_again_ms = 0;
	lr->need_seen = 0;
	lr->waits = (struct refusal){0};
}

static void forget_spec(struct lane_run *lr)
{
	shim_drop(&lr->shim);
	claim_spec_done(&lr->ready);
	free(lr->ready_dir);
	lr->ready_dir = NULL;
	lr->ready_token[0] = '\0';
}

/* It isn't the next one any more: nothing of it stays. */
void lanes_drop_ready(struct agent *a, struct lane_run *lr)
{
	if (lr->making) {
		/* After the making, as it's asked for after it. */
		chores_drop(a, &lr->making_spec.name, lr->making_spec.dir);
		claim_spec_done(&lr->making_spec);
		lr->making = 0;
	}
	if (!lr->ready_token[0])
		return;
	claim_stage_drop(&a->root, TAKE_PTR(lr->stage));
	if (lr->ready_dir)
		chores_drop(a, &lr->ready_name, lr->ready_dir);
	forget_spec(lr);
}

/* ---- making ready ---- */

static int read_spec(
	struct agent *a, const struct lane_run *lr, struct claim_spec *ret, struct err *e)
{
	int r = lane_read_spec(&a->root, &lr->lane, lr->head, ret, e);

	if (!r)
		memcpy(ret->boot_id, a->attempts.boot_id, sizeof(ret->boot_id));
	return r;
}

static bool has_place(const struct lane_run *lr)
{
	return lr->n_running < lr->lane.concurrency;
}

/* It could start, but for its place on the disk. */
static void wait_for_disk(struct agent *a, struct lane_run *lr, const struct err *e)
{
	struct refusal r;

	lanes_say_waits(&r, "disk", "%.500s", e->text);
	lanes_set_waits(a, lr, &r);
	lr->again_ms = a->now_ms + AGAIN_MS;
}

/* What fails ahead of its time fails again when it's its turn, and is told then. */
static void not_ready(struct agent *a, struct lane_run *lr, const struct err *e)
{
	lr->ready_again_ms = a->now_ms + AGAIN_MS;
	if (has_place(lr) && lr->need == NEED_MET)
		wait_for_disk(a, lr, e);
}

/* Its directory is there: now the claim, short of its birth. Takes *s. */
static void finish_ready(struct agent *a, struct lane_run *lr, struct claim_spec *s)
{
	struct err e = {0};

	s->oom_kills = s->dir ? proc_oom_kills() : -1;
	if (claim_stage_new(&a->root, s, &lr->stage, &e)) {
		if (s->dir)
			chores_drop(a, &s->name, s->dir);
		claim_spec_done(s);
		not_ready(a, lr, &e);
		return;
	}
	memcpy(lr->ready_token, s->token, ID_LEN);
	lr->ready_name = s->name;
	lr->ready_dir = s->dir ? xstrdup(s->dir) : NULL;
	s->is_of_lane = true;
	/* Without one it's forked when it's its turn. */
	shim_prepare(&a->root, s, &lr->shim, NULL);
	lr->ready = *s;
	*s = (struct claim_spec){0};
	lr->touch_at_ms = a->now_ms + TOUCH_MS;
}

static void dir_is_made(
	struct agent *a, uint64_t number, const json_t *answer, int code, const struct err *e)
{
	struct lane_run *lr = NULL;
	struct claim_spec s;

	for (size_t i = 0; !lr && i < a->lanes->n; i++)
		if (a->lanes->items[i]->making == number)
			lr = a->lanes->items[i];
	if (!lr)
		return;
	if (answer)
		fault_point("jobdir.after-sync");
	s = lr->making_spec;
	lr->making_spec = (struct claim_spec){0};
	lr->making = 0;
	if (answer) {
		finish_ready(a, lr, &s);
		return;
	}
	claim_spec_done(&s);
	not_ready(a, lr, e);
}

static bool has_claim(const struct agent *a, const struct claim_spec *s)
{
	CLEANUP_CLOSE int fd = claim_open(&a->root, &s->name);

	return fd != -ENOENT;
}

/* Takes *s. A claim that's there already, readable or not, is left alone. */
static void make_ready(struct agent *a, struct lane_run *lr, struct claim_spec *s)
{
	if (!s->dir) {
		finish_ready(a, lr, s);
		return;
	}
	lr->making = chores_make(a, s, dir_is_made);
	lr->making_spec = *s;
	*s = (struct claim_spec){0};
}

static void get_ready(struct agent *a, struct lane_run *lr)
{
	CLEANUP(claim_spec_done) struct claim_spec s = {0};

	if (read_spec(a, lr, &s, NULL) || has_claim(a, &s))
		lr->ready_again_ms = a->now_ms + AGAIN_MS;
	else
		make_ready(a, lr, &s);
}

/* ---- the turn ---- */

static void put_in_line(struct agent *a, struct lane_run *lr, const struct lane_entry *x)
{
	CLEANUP(claim_spec_done) struct claim_spec s = {0};
	struct err e = {0};

	if (is_ready(lr, x->token)) {
		s = lr->ready;
		lr->ready = (struct claim_spec){0};
	} else if (read_spec(a, lr, &s, &e)) {
		wait_for_disk(a, lr, &e);
		return;
	} else if (s.dir && !has_claim(a, &s)) {
		/* It comes here again when it has its directory. */
		make_ready(a, lr, &s);
		return;
	}
	lr->in_line = ++a->lanes->last_number;
	launch_add_lane(a, lr->in_line, &s);
}

static void turn_one(struct agent *a, struct lane_run *lr)
{
	struct lane_entry *x;

	lanes_settle(a, lr);
	while ((x = head_of(lr)) && has_place(lr) && !lr->in_line) {
		lanes_look_at(a, lr, x);
		if (x->state == LANE_WAITING)
			break;
		lanes_settle(a, lr);
	}
	if ((lr->ready_token[0] && !(x && is_ready(lr, x->token))) ||
		(lr->making && !(x && !strcmp(lr->making_spec.token, x->token))))
		lanes_drop_ready(a, lr);
	if (!x)
		return;
	lanes_look_at_needs(a, lr, x);
	if (lr->stage && a->now_ms >= lr->touch_at_ms) {
		claim_stage_touch(lr->stage);
		lr->touch_at_ms = a->now_ms + TOUCH_MS;
	}
	if (lr->lane.paused || lr->in_line || lr->making)
		return;
	if (has_place(lr) && lr->need == NEED_MET) {
		if (a->now_ms >= lr->again_ms)
			put_in_line(a, lr, x);
	} else if (lr->need <= NEED_NEAR && !lr->ready_token[0] &&
		   a->now_ms >= lr->ready_again_ms) {
		get_ready(a, lr);
	}
}

void lanes_turn(struct agent *a)
{
	if (!a->lanes->n)
		return;
	for (size_t i = 0; !a->leaving && i < a->lanes->n; i++)
		turn_one(a, a->lanes->items[i]);
	lanes_hold(a);
}

int64_t lanes_wait_ms(const struct agent *a)
{
	int64_t ms = -1;

	for (size_t i = 0; i < a->lanes->n; i++) {
		const struct lane_run *lr = a->lanes->items[i];
		int64_t at;

		if (!is_near(lr) || lr->in_line || lr->making)
			continue;
		if (has_place(lr) && lr->need == NEED_MET)
			at = lr->again_ms;
		else if (!lr->ready_token[0])
			at = lr->ready_again_ms;
		else
			continue;
		at = at > a->now_ms ? at - a->now_ms : 0;
		ms = ms < 0 || at < ms ? at : ms;
	}
	return ms;
}

bool lanes_are_due(const struct agent *a)
{
	for (size_t i = 0; i < a->lanes->n; i++) {
		const struct lane_run *lr = a->lanes->items[i];

		if (is_near(lr) && lr->need == NEED_MET)
			return true;
	}
	return false;
}

/* ---- what changes ---- */

static bool shares_card(const struct lane_entry *x, const struct attempt *at)
{
	for (uint32_t i = 0; i < x->n_cards; i++)
		for (uint32_t k = 0; k < at->n_cards; k++)
			if (!strcmp(x->cards[i].uuid, at->cards[k].uuid))
				return true;
	return false;
}

static void mark_over(struct lane_run *lr, const struct attempt *at)
{
	ssize_t i = lanes_find_running(lr, &at->name), k;

	if (i < 0)
		return;
	lr->running[i] = lr->running[--lr->n_running];
	k = lane_find(&lr->lane, &at->name);
	if (k >= 0 && lr->lane.entries[k].state == LANE_TAKEN)
		lr->lane.entries[k].state = LANE_OVER;
}

void lanes_attempt_changed(struct agent *a, const struct attempt *at)
{
	struct lanes *x = a->lanes;

	x->n_changes++;
	if (at->rec.state != ATTEMPT_ENDED)
		return;
	for (size_t i = 0; i < x->n; i++) {
		struct lane_run *lr = x->items[i];

		mark_over(lr, at);
		if (head_of(lr) && shares_card(head_of(lr), at))
			lr->again_ms = 0;
	}
}

void lanes_attempt_ends(struct agent *a, struct attempt *at)
{
	if (at->rec.state == ATTEMPT_ENDED || at->asked_at_end)
		return;
	for (size_t i = 0; i < a->lanes->n; i++) {
		const struct lane_run *lr = a->lanes->items[i];

		if (!is_near(lr) || lr->in_line || lanes_find_running(lr, &at->name) < 0 ||
			!shares_card(head_of(lr), at))
			continue;
		at->asked_at_end = sampler_asked(a->sampler);
		a->launch.early = agent_ask_sample(a);
		return;
	}
}

/* ---- the line ---- */

bool lanes_may_start(struct agent *a, uint64_t number, const struct claim_spec *s)
{
	struct lane_run *lr = run_in_line(a, number);
	struct lane_entry *x = lr ? head_of(lr) : NULL;

	if (!x || strcmp(x->token, s->token) != 0 || lr->lane.paused || !has_place(lr))
		return false;
	lanes_look_at(a, lr, x);
	if (x->state != LANE_WAITING)
		return false;
	lanes_look_at_needs(a, lr, x);
	return lr->need == NEED_MET;
}

int lanes_claim(struct agent *a, struct claim_spec *s, enum claim_made *ret_made,
	struct shim_ready *ret_shim, struct err *e)
{
	struct lane_run *lr = run_of_head(a, s);
	int64_t kills;
	int r;

	if (!lr || !is_ready(lr, s->token))
		return launch_make_claim(a, s, ret_made, e);
	/* What the kernel killed while another one ran isn't this one's. */
	kills = s->dir ? proc_oom_kills() : -1;
	if (kills != s->oom_kills) {
		s->oom_kills = kills;
		claim_stage_drop(&a->root, TAKE_PTR(lr->stage));
		r = claim_make(&a->root, s, ret_made, e);
	} else {
		r = claim_stage_birth(&a->root, TAKE_PTR(lr->stage), s, ret_made, e);
	}
	if (r && s->dir)
		chores_drop(a, &s->name, s->dir);
	if (!r && *ret_made == CLAIM_MADE) {
		*ret_shim = lr->shim;
		lr->shim = (struct shim_ready){0};
	}
	forget_spec(lr);
	return r;
}

void lanes_claimed(struct agent *a, const struct attempt_name *n)
{
	for (size_t i = 0; i < a->lanes->n; i++) {
		struct lane_run *lr = a->lanes->items[i];
		ssize_t at = strcmp(lr->lane.queue, n->queue) != 0 ? -1 : lane_find(&lr->lane, n);

		if (at < 0)
			continue;
		if ((size_t)at == lr->head)
			lr->in_line = 0;
		lanes_look_at(a, lr, &lr->lane.entries[at]);
		/* What isn't there after all isn't asked about again at once. */
		lr->again_ms = a->now_ms + AGAIN_MS;
		lanes_settle(a, lr);
		lr->ready_again_ms = a->now_ms + READY_MS;
	}
	a->lanes->n_changes++;
	lanes_hold(a);
}

void lanes_refused(struct agent *a, uint64_t number, struct claim_spec *s, const struct refusal *r)
{
	struct lane_run *lr = run_in_line(a, number);
	const struct lane_entry *x = lr ? head_of(lr) : NULL;

	if (!lr)
		return;
	lr->in_line = 0;
	if (!x || strcmp(x->token, s->token) != 0)
		return;
	if (is_ready(lr, s->token)) {
		claim_spec_done(&lr->ready);
		lr->ready = *s;
		*s = (struct claim_spec){0};
	}
	if (!r)
		return;
	lanes_set_waits(a, lr, r);
	lr->is_withdrawn = !strcmp(r->reason, "promise");
	lr->again_ms = a->now_ms + AGAIN_MS;
	lanes_hold(a);
}
