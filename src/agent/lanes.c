/*
 * The lanes at work (lanes.h). It owns their state between the controller's words and the line's decisions; it starts nothing
 * itself and answers nobody but by the hint that a lane waits.
 */
#include "agent/lanes.h"

#include "agent/answer.h"
#include "agent/job_dir.h"
#include "agent/launch.h"
#include "agent/server.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fault.h"
#include "proc/proc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_MS 2000 /* a refused one is tried again then, and what couldn't be made ready */
#define READY_MS 20 /* after a start: making the next one ready mustn't hold up the one that starts */
#define TOUCH_MS 600000 /* what is ready is kept from being swept */

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
	char in_line[ID_LEN]; /* token of the one that stands in line; "" */
	/* Made ready: its directory, and its claim short of the birth. The spec is in the line while that stands there. */
	char ready_token[ID_LEN]; /* "": none */
	struct claim_spec ready;
	char *ready_dir;
	struct claim_stage *stage;
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
	uint64_t last_order;
	uint64_t n_changes; /* of attempts, from 1 */
};

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
	claim_stage_free(lr->stage);
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

static struct lane_run *find_run(const struct agent *a, const char *queue, const char *name)
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
	const struct lane_run *lr = find_run(a, queue, name);

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

static struct lane_entry *head_of(const struct lane_run *lr)
{
	return lr->head < lr->lane.n ? &lr->lane.entries[lr->head] : NULL;
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

static struct lane_run *run_in_line(const struct agent *a, const struct claim_spec *s)
{
	for (size_t i = 0; i < a->lanes->n; i++)
		if (!strcmp(a->lanes->items[i]->in_line, s->token))
			return a->lanes->items[i];
	return NULL;
}

static ssize_t find_running(const struct lane_run *lr, const struct attempt_name *n)
{
	for (size_t i = 0; i < lr->n_running; i++)
		if (attempt_name_equal(&lr->running[i].name, n))
			return (ssize_t)i;
	return -1;
}

static struct lane_run *run_with_waiting(
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
	const struct lane_run *lr = run_with_waiting(a, n, &i);

	return lr ? &lr->lane : NULL;
}

/* ---- what claims say ---- */

static void add_running(struct lane_run *lr, const struct attempt_name *n, const char *token)
{
	if (find_running(lr, n) >= 0)
		return;
	GROW(lr->running, lr->n_running, lr->cap_running);
	lr->running[lr->n_running].name = *n;
	memcpy(lr->running[lr->n_running++].token, token, ID_LEN);
}

/* A claim or a retired line of that name decides, whatever the lane's file says. */
static enum lane_entry_state state_of(
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

static void look_at_entry(const struct agent *a, struct lane_run *lr, struct lane_entry *x)
{
	if (x->state == LANE_OVER || x->state == LANE_CONFLICT)
		return;
	x->state = state_of(a, &x->name, x->token);
	if (x->state == LANE_TAKEN)
		add_running(lr, &x->name, x->token);
}

/* Finds the next one, and gives it its place among the holds when it's a new one. */
static void settle_head(struct agent *a, struct lane_run *lr)
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
	claim_spec_done(&lr->ready);
	free(lr->ready_dir);
	lr->ready_dir = NULL;
	lr->ready_token[0] = '\0';
}

/* It isn't the next one any more: nothing of it stays. */
static void drop_ready(struct agent *a, struct lane_run *lr)
{
	struct claim_spec of_dir = {.dir = lr->ready_dir};

	if (!lr->ready_token[0])
		return;
	claim_stage_drop(&a->root, TAKE_PTR(lr->stage));
	if (lr->ready_dir)
		job_dir_drop(&of_dir);
	forget_spec(lr);
}

/* ---- why it waits ---- */

__attribute__((format(printf, 3, 4))) static void say_waits(
	struct refusal *r, const char *reason, const char *fmt, ...)
{
	va_list ap;

	*r = (struct refusal){.reason = reason};
	va_start(ap, fmt);
	vsnprintf(r->text, sizeof(r->text), fmt, ap);
	va_end(ap);
}

json_t *lanes_waits(struct agent *a, const struct lane *l)
{
	const struct lane_run *lr = find_run(a, l->queue, l->name);
	const struct lane_entry *x = lr ? head_of(lr) : NULL;
	json_t *o;

	if (!x || !lr->waits.reason)
		return NULL;
	o = refusal_encode(&lr->waits, &x->name);
	json_object_del(o, "op");
	return o;
}

/* A hint to who commands, when it's another reason than before. */
static void set_waits(struct agent *a, struct lane_run *lr, const struct refusal *r)
{
	bool is_new = !lr->waits.reason || strcmp(lr->waits.reason, r->reason) != 0;
	struct client *c = is_new ? agent_commander(a, lr->lane.queue) : NULL;
	json_t *msg;

	lr->waits = *r;
	if (!c)
		return;
	msg = refusal_encode(r, &head_of(lr)->name);
	json_object_set_new(msg, "op", json_string("lane-waits"));
	json_object_set_new(msg, "lane", json_string(lr->lane.name));
	json_object_set_new(msg, "generation", json_integer((json_int_t)lr->lane.generation));
	client_push(c, msg);
}

/* ---- needs ---- */

static void say_failed(
	const struct lane_need *need, const struct attempt_end *end, struct refusal *r)
{
	if (end->how == END_EXIT)
		say_waits(r, "need-failed",
			"job %llu was to end well, and it ended with exit code %d",
			(unsigned long long)need->job, (int)end->code);
	else
		say_waits(r, "need-failed", "job %llu was to end well, and its end is \"%s\"",
			(unsigned long long)need->job, end_how_name(end->how));
}

static enum need_state need_of(const struct agent *a, const struct lane_run *lr,
	const struct lane_need *need, struct refusal *r)
{
	struct attempt_name n = {.job = need->job, .attempt = need->attempt};
	const struct attempt *at;
	struct attempt_end end;
	char token[ID_LEN];

	memcpy(n.queue, lr->lane.queue, ID_LEN);
	at = attempts_find(&a->attempts, &n);
	if (at && at->rec.state != ATTEMPT_ENDED) {
		say_waits(r, "need", "it waits for job %llu, which hasn't ended",
			(unsigned long long)need->job);
		return NEED_NEAR;
	}
	if (at) {
		end = at->rec.end;
	} else if (retired_find(a->retired, &n, token, &end)) {
		say_waits(r, "need", "it waits for job %llu, which hasn't begun on this machine",
			(unsigned long long)need->job);
		return NEED_FAR;
	}
	if (!need->ok || (end.how == END_EXIT && !end.code))
		return NEED_MET;
	say_failed(need, &end, r);
	return NEED_FAILED;
}

/* An end is final, so what is met is left out from then on. */
static void look_at_needs(struct agent *a, struct lane_run *lr, struct lane_entry *x)
{
	struct refusal r, worst = {0};
	uint32_t kept = 0;

	if (lr->need_seen == a->lanes->n_changes)
		return;
	lr->need_seen = a->lanes->n_changes;
	lr->need = NEED_MET;
	for (uint32_t i = 0; i < x->n_needs; i++) {
		enum need_state s = need_of(a, lr, &x->needs[i], &r);

		if (s == NEED_MET)
			continue;
		x->needs[kept++] = x->needs[i];
		if (s <= lr->need)
			continue;
		lr->need = s;
		worst = r;
	}
	x->n_needs = kept;
	if (lr->need != NEED_MET)
		set_waits(a, lr, &worst);
	else if (lr->waits.reason && !strncmp(lr->waits.reason, "need", 4))
		lr->waits = (struct refusal){0};
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

/* The directory first, then the claim short of its birth. A claim that's there already, readable or not, is left alone. */
static int make_ready(
	struct agent *a, struct claim_spec *s, struct claim_stage **ret, struct err *e)
{
	CLEANUP_CLOSE int there = claim_open(&a->root, &s->name);
	int r = 0;

	if (there != -ENOENT)
		return err_set(e, -EEXIST, "there is a claim of that name already");
	if (s->dir)
		r = job_dir_make(&a->root, s, e);
	if (r)
		return r;
	s->oom_kills = s->dir ? proc_oom_kills() : -1;
	r = claim_stage_new(&a->root, s, ret, e);
	if (r && s->dir)
		job_dir_drop(s);
	return r;
}

/* What fails here fails again when it's its turn, and is told then. */
static void get_ready(struct agent *a, struct lane_run *lr)
{
	CLEANUP(claim_spec_done) struct claim_spec s = {0};

	if (read_spec(a, lr, &s, NULL) || make_ready(a, &s, &lr->stage, NULL)) {
		lr->ready_again_ms = a->now_ms + AGAIN_MS;
		return;
	}
	memcpy(lr->ready_token, s.token, ID_LEN);
	lr->ready_dir = s.dir ? xstrdup(s.dir) : NULL;
	lr->ready = s;
	s = (struct claim_spec){0};
	lr->touch_at_ms = a->now_ms + TOUCH_MS;
}

static bool is_ready(const struct lane_run *lr, const char *token)
{
	return lr->ready_token[0] && !strcmp(lr->ready_token, token);
}

/* ---- the turn ---- */

static bool has_place(const struct lane_run *lr)
{
	return lr->n_running < lr->lane.concurrency;
}

/* It'll start by itself, as soon as there's a place and room. */
static bool is_near(const struct lane_run *lr)
{
	return head_of(lr) && !lr->lane.paused && lr->need <= NEED_NEAR;
}

static void put_in_line(struct agent *a, struct lane_run *lr, const struct lane_entry *x)
{
	CLEANUP(claim_spec_done) struct claim_spec s = {0};
	struct refusal r;
	struct err e = {0};

	if (is_ready(lr, x->token)) {
		s = lr->ready;
		lr->ready = (struct claim_spec){0};
	} else if (read_spec(a, lr, &s, &e)) {
		say_waits(&r, "disk", "%.500s", e.text);
		set_waits(a, lr, &r);
		lr->again_ms = a->now_ms + AGAIN_MS;
		return;
	}
	memcpy(lr->in_line, x->token, ID_LEN);
	launch_add_lane(a, &s);
}

static void turn_one(struct agent *a, struct lane_run *lr)
{
	struct lane_entry *x;

	settle_head(a, lr);
	while ((x = head_of(lr)) && has_place(lr) && !lr->in_line[0]) {
		look_at_entry(a, lr, x);
		if (x->state == LANE_WAITING)
			break;
		settle_head(a, lr);
	}
	if (lr->ready_token[0] && !(x && is_ready(lr, x->token)))
		drop_ready(a, lr);
	if (!x)
		return;
	look_at_needs(a, lr, x);
	if (lr->stage && a->now_ms >= lr->touch_at_ms) {
		claim_stage_touch(lr->stage);
		lr->touch_at_ms = a->now_ms + TOUCH_MS;
	}
	if (lr->lane.paused || lr->in_line[0])
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

		if (!is_near(lr) || lr->in_line[0])
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
	ssize_t i = find_running(lr, &at->name), k;

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

/* ---- holds ---- */

static int64_t running_charge(const struct agent *a, const struct lane_run *lr, const char *uuid)
{
	int64_t sum = 0;

	for (size_t i = 0; i < lr->n_running; i++) {
		const struct attempt *at = attempts_find(&a->attempts, &lr->running[i].name);

		for (uint32_t k = 0; at && k < at->n_cards; k++)
			if (!strcmp(at->cards[k].uuid, uuid))
				sum += ledger_charge(a->ledger, at, k);
	}
	return sum;
}

static bool runs_on(const struct agent *a, const struct lane_run *lr, const char *uuid)
{
	for (size_t i = 0; i < lr->n_running; i++) {
		const struct attempt *at = attempts_find(&a->attempts, &lr->running[i].name);

		for (uint32_t k = 0; at && k < at->n_cards; k++)
			if (!strcmp(at->cards[k].uuid, uuid))
				return true;
	}
	return false;
}

void lanes_hold(struct agent *a)
{
	struct ledger_hold *rows = NULL;
	size_t n = 0, cap = 0;

	if (!a->lanes->n)
		return;
	for (size_t i = 0; i < a->lanes->n; i++) {
		const struct lane_run *lr = a->lanes->items[i];
		const struct lane_entry *x = head_of(lr);

		for (uint32_t k = 0; is_near(lr) && k < x->n_cards; k++) {
			GROW(rows, n, cap);
			rows[n] = (struct ledger_hold){
				.order = lr->order,
				.next_mib = x->cards[k].declared_mib,
				.running_mib = running_charge(a, lr, x->cards[k].uuid),
				.is_place = !runs_on(a, lr, x->cards[k].uuid),
				.is_told = !lr->is_withdrawn,
			};
			memcpy(rows[n++].uuid, x->cards[k].uuid, sizeof(rows[0].uuid));
		}
	}
	if (ledger_set_holds(a->ledger, rows, n))
		a->promises_are_old = true;
}

uint64_t lanes_order(const struct agent *a, const struct attempt_name *n)
{
	for (size_t i = 0; i < a->lanes->n; i++) {
		const struct lane_run *lr = a->lanes->items[i];
		const struct lane_entry *x = head_of(lr);

		if ((x && attempt_name_equal(&x->name, n)) || find_running(lr, n) >= 0)
			return lr->order;
	}
	return UINT64_MAX;
}

/* ---- the line ---- */

bool lanes_may_start(struct agent *a, const struct claim_spec *s)
{
	struct lane_run *lr = run_of_head(a, s);
	struct lane_entry *x = lr ? head_of(lr) : NULL;

	if (!x || lr->lane.paused || !has_place(lr))
		return false;
	look_at_entry(a, lr, x);
	if (x->state != LANE_WAITING)
		return false;
	look_at_needs(a, lr, x);
	return lr->need == NEED_MET;
}

int lanes_claim(struct agent *a, struct claim_spec *s, enum claim_made *ret_made, struct err *e)
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
		job_dir_drop(s);
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
		if (!strcmp(lr->in_line, lr->lane.entries[at].token))
			lr->in_line[0] = '\0';
		look_at_entry(a, lr, &lr->lane.entries[at]);
		settle_head(a, lr);
		lr->ready_again_ms = a->now_ms + READY_MS;
	}
	a->lanes->n_changes++;
	lanes_hold(a);
}

void lanes_refused(struct agent *a, struct claim_spec *s, const struct refusal *r)
{
	struct lane_run *lr = run_in_line(a, s);

	if (!lr)
		return;
	lr->in_line[0] = '\0';
	if (is_ready(lr, s->token)) {
		claim_spec_done(&lr->ready);
		lr->ready = *s;
		*s = (struct claim_spec){0};
	}
	if (!r || run_of_head(a, s->token[0] ? s : &lr->ready) != lr)
		return;
	set_waits(a, lr, r);
	lr->is_withdrawn = !strcmp(r->reason, "promise");
	lr->again_ms = a->now_ms + AGAIN_MS;
	lanes_hold(a);
}

/* ---- a new word ---- */

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
		look_at_entry(a, lr, &lr->lane.entries[i]);
	for (size_t i = 0; i < lr->lane.n_left; i++)
		if (state_of(a, &lr->lane.left[i].name, lr->lane.left[i].token) == LANE_TAKEN)
			add_running(lr, &lr->lane.left[i].name, lr->lane.left[i].token);
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

/* Goes by *l from here on, which lies in the file. */
static void install(struct agent *a, struct lane_run *lr, struct lane *l)
{
	struct lane_entry *x;

	lane_done(&lr->lane);
	lr->lane = *l;
	*l = (struct lane){0};
	lr->head = 0;
	lr->need_seen = 0;
	lr->again_ms = 0;
	lr->waits = (struct refusal){0};
	look_at_all(a, lr);
	settle_head(a, lr);
	x = head_of(lr);
	if (lr->in_line[0] && !(x && !strcmp(lr->in_line, x->token)))
		lr->in_line[0] = '\0';
	/* Before the answer: what was taken out must not lie there ready to be born. */
	if (lr->ready_token[0] && !(x && is_ready(lr, x->token)))
		drop_ready(a, lr);
	if (x)
		look_at_needs(a, lr, x);
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
	struct lane_run *lr = find_run(a, l->queue, l->name);
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
	struct lane_run *lr = run_with_waiting(a, n, &at);
	const struct lane *old;

	if (!lr)
		return -ENOENT;
	old = &lr->lane;
	memcpy(l.queue, old->queue, sizeof(l.queue));
	memcpy(l.name, old->name, sizeof(l.name));
	l.fence = old->fence;
	l.generation = old->generation;
	l.concurrency = old->concurrency;
	l.paused = old->paused;
	for (size_t i = 0; i < old->n; i++) {
		int r = i == at ? 0 : lane_add_from(&a->root, &l, old, i, e);

		if (r)
			return r;
	}
	return lanes_put(a, &l, e);
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
		return "waiting";
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
