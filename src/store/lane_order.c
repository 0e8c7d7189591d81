/*
 * Who stands where in a lane, and who comes and goes. The numbers of those that wait are written anew by a reordering, a
 * thousand apart and above those that run; who joins later goes behind the highest number that the lane ever had.
 */
#include "store/store_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <inttypes.h>
#include <string.h>

#define STEP 1000

/* Those of a lane that wait, in their order. */
struct order {
	int64_t *ids, *seqs;
	size_t n, cap;
	int64_t base; /* the highest number of those that run */
};

static void order_done(struct order *o)
{
	free(o->ids);
	free(o->seqs);
}

static int read_order(struct store *s, const char *name, struct order *ret, struct err *e)
{
	sqlite3_stmt *st = NULL;
	int r = db_ask(s, &st, e,
		"SELECT id, lane_seq, state = 'running' FROM jobs INDEXED BY jobs_lane_active WHERE lane = ?1"
		" AND lane IS NOT NULL AND state IN ('pending', 'running') ORDER BY lane_seq, id",
		"t", name);

	for (; r > 0; r = db_next(s, st, e)) {
		int64_t seq = db_i64(st, 1, 0);

		if (sqlite3_column_int(st, 2)) {
			ret->base = seq > ret->base ? seq : ret->base;
			continue;
		}
		if (ret->n == ret->cap) {
			ret->cap = ret->cap ? 2 * ret->cap : 16;
			ret->ids = xreallocarray(ret->ids, ret->cap, sizeof(*ret->ids));
			ret->seqs = xreallocarray(ret->seqs, ret->cap, sizeof(*ret->seqs));
		}
		ret->ids[ret->n] = sqlite3_column_int64(st, 0);
		ret->seqs[ret->n++] = seq;
	}
	return r;
}

static int write_order(struct store *s, const struct order *o, struct err *e)
{
	for (size_t i = 0; i < o->n; i++) {
		int64_t seq = o->base + STEP * ((int64_t)i + 1);
		int r = seq == o->seqs[i]
				? 0
				: db_run(s, e,
					  "UPDATE jobs SET lane_seq = ?2, updated_ms = ?3 WHERE id = ?1",
					  "iii", o->ids[i], seq, s->now_ms);

		if (r < 0)
			return r;
	}
	return 0;
}

static ssize_t find(const struct order *o, int64_t id)
{
	for (size_t i = 0; i < o->n; i++)
		if (o->ids[i] == id)
			return (ssize_t)i;
	return -1;
}

/* The one at `from` to `to`; the others close up. Their old numbers go with them. */
static void shift(struct order *o, size_t from, size_t to)
{
	if (!o->ids || !o->seqs)
		return;
	int64_t id = o->ids[from], seq = o->seqs[from];
	size_t n = from < to ? to - from : from - to, src = from < to ? from + 1 : to,
	       dst = from < to ? from : to + 1;

	memmove(o->ids + dst, o->ids + src, n * sizeof(*o->ids));
	memmove(o->seqs + dst, o->seqs + src, n * sizeof(*o->seqs));
	o->ids[to] = id;
	o->seqs[to] = seq;
}

/* ---- one of this lane that waits ---- */

static int check_here(struct store *s, const char *name, int64_t id, struct job *ret, struct err *e)
{
	int r = row_brief(s, id, ret, e);

	if (r < 0)
		return r;
	if (!ret->lane)
		return err_set(e, -EINVAL,
			"job %" PRId64 " is in no lane; `gpustow queue lane %s assign %" PRId64
			"` puts it there",
			id, name, id);
	if (strcmp(ret->lane, name) != 0)
		return err_set(e, -EINVAL,
			"job %" PRId64
			" is in lane %s, not in %s; `gpustow queue lane %s assign %" PRId64
			"` would bring it here",
			id, ret->lane, name, name, id);
	if (ret->state != JOB_STATE_PENDING)
		return err_set(e, -EPERM,
			"job %" PRId64 " %s; only those that wait have a place that can be changed",
			id, ret->state == JOB_STATE_RUNNING ? "runs" : "has ended");
	return 0;
}

static int tell_place(struct store *s, enum event_kind kind, int64_t id, const char *node,
	const char *lane, int64_t position, struct err *e)
{
	CLEANUP_FREE char *message = position ? xasprintf("%s, place %" PRId64, lane, position)
					      : xstrdup(lane ? lane : "the pool");

	return store_event_add(s, kind, id, node, message, NULL, e);
}

/* Where `to` leads for the one at `from`; -EINVAL: its neighbour isn't there. */
static int target(const struct order *o, const char *name, size_t from,
	const struct store_place *to, size_t *ret, struct err *e)
{
	size_t last = o->n - 1;
	ssize_t by;

	switch (to->how) {
	case STORE_PLACE_HEAD:
		*ret = 0;
		return 0;
	case STORE_PLACE_AT:
		*ret = to->n < 1 ? 0 : (uint64_t)to->n > o->n ? last : (size_t)to->n - 1;
		return 0;
	case STORE_PLACE_BEFORE:
	case STORE_PLACE_AFTER:
		by = find(o, to->n);
		if (by < 0)
			return err_set(
				e, -EINVAL, "job %" PRId64 " doesn't wait in lane %s", to->n, name);
		/* The one that moves leaves its place first. */
		*ret = (size_t)by + (to->how == STORE_PLACE_AFTER) - ((size_t)by > from);
		if ((size_t)by == from)
			*ret = from;
		return 0;
	default:
		*ret = last;
		return 0;
	}
}

int store_lane_move(struct store *s, const char *name, int64_t id, const struct store_place *to,
	int64_t *ret_position, struct err *e)
{
	CLEANUP(order_done) struct order o = {0};
	CLEANUP(job_done) struct job j = {0};
	ssize_t from;
	size_t at = 0;
	int r = store_need_txn(s, e);

	if (r == 0)
		r = check_here(s, name, id, &j, e);
	if (r == 0)
		r = read_order(s, name, &o, e);
	if (r < 0)
		return r;
	from = find(&o, id);
	if (from < 0)
		return err_set(e, -ENOENT, "job %" PRId64 " isn't in lane %s", id, name);
	r = target(&o, name, (size_t)from, to, &at, e);
	if (r < 0)
		return r;
	*ret_position = (int64_t)at + 1;
	if (at == (size_t)from)
		return 0;
	shift(&o, (size_t)from, at);
	r = write_order(s, &o, e);
	if (r == 0)
		r = lane_changed(s, &j, e);
	return r < 0 ? r : tell_place(s, EVENT_LANE_REORDERED, id, NULL, name, *ret_position, e);
}

int store_lane_swap(struct store *s, const char *name, int64_t a, int64_t b, struct err *e)
{
	CLEANUP(order_done) struct order o = {0};
	CLEANUP(job_done) struct job x = {0}, y = {0};
	ssize_t i, k;
	int r = store_need_txn(s, e);

	if (r == 0)
		r = check_here(s, name, a, &x, e);
	if (r == 0)
		r = check_here(s, name, b, &y, e);
	if (r == 0)
		r = read_order(s, name, &o, e);
	if (r < 0 || a == b)
		return r;
	i = find(&o, a);
	k = find(&o, b);
	if (i < 0 || k < 0 || !o.ids || !o.seqs)
		return err_set(e, -ENOENT, "job %" PRId64 " isn't in lane %s", i < 0 ? a : b, name);
	int64_t seq = o.seqs[i];
	o.ids[i] = b;
	o.seqs[i] = o.seqs[k];
	o.ids[k] = a;
	o.seqs[k] = seq;
	r = write_order(s, &o, e);
	if (r == 0)
		r = lane_changed(s, &x, e);
	if (r >= 0)
		r = tell_place(s, EVENT_LANE_REORDERED, a, NULL, name, (int64_t)k + 1, e);
	return r < 0 ? r : tell_place(s, EVENT_LANE_REORDERED, b, NULL, name, (int64_t)i + 1, e);
}

int store_lane_skip(struct store *s, const char *name, int64_t *ret_id, struct err *e)
{
	CLEANUP(order_done) struct order o = {0};
	CLEANUP(store_lane_done) struct store_lane l = {0};
	struct store_place tail = {0};
	int64_t position;
	int r = store_need_txn(s, e);

	*ret_id = 0;
	if (r == 0)
		r = store_lane(s, name, &l, e);
	if (r == 0)
		r = read_order(s, name, &o, e);
	if (r < 0 || o.n < 2)
		return r;
	r = store_lane_move(s, name, o.ids[0], &tail, &position, e);
	if (r == 0)
		*ret_id = o.ids[0];
	return r;
}

/* ---- coming ---- */

/* Behind the highest number that the lane ever had, ended ones included. */
static int next_seq(struct store *s, const char *name, int64_t *ret, struct err *e)
{
	int64_t most = 0;
	int r = db_int(s, &most, e,
		"SELECT max(lane_seq) FROM jobs INDEXED BY jobs_lane WHERE lane = ?1 AND lane IS NOT NULL",
		"t", name);

	*ret = (r > 0 ? most : 0) + STEP;
	return r < 0 ? r : 0;
}

int lane_enter(struct store *s, struct job *row, struct err *e)
{
	CLEANUP(store_lane_done) struct store_lane l = {0};
	int r;

	if (!row->lane)
		return 0;
	r = store_lane(s, row->lane, &l, e);
	if (r == -ENOENT)
		return err_set(e, -EINVAL, "there's no lane %s", row->lane);
	if (r == 0)
		r = next_seq(s, row->lane, &row->lane_seq, e);
	return r < 0 ? r : lane_changed(s, row, e);
}

int lane_pin(struct store *s, int64_t id, struct err *e)
{
	int r = db_run(s, e,
		"UPDATE jobs SET node_constraint = (SELECT node FROM lanes WHERE name = jobs.lane) WHERE id = ?1",
		"i", id);

	return r < 0 ? r : 0;
}

/* Puts a job that is in no order into the lane at `at`. */
static int put_into(struct store *s, const struct job *j, const struct store_lane *l,
	const struct store_place *at, int64_t *ret_position, struct err *e)
{
	CLEANUP(order_done) struct order o = {0};
	int64_t seq;
	size_t to = 0;
	int r = next_seq(s, l->name, &seq, e);

	if (r == 0)
		r = db_run(s, e,
			"UPDATE jobs SET lane = ?2, lane_seq = ?3, node_constraint = ?4, lane_next = NULL, lane_next_at = NULL,"
			" updated_ms = ?5 WHERE id = ?1",
			"ititi", j->id, l->name, seq, l->node, s->now_ms);
	if (r >= 0)
		r = read_order(s, l->name, &o, e);
	if (r < 0)
		return r;
	ssize_t from = find(&o, j->id);
	if (from < 0)
		return err_set(e, -EPERM, "job %" PRId64 " doesn't wait", j->id);
	r = target(&o, l->name, (size_t)from, at, &to, e);
	if (r < 0)
		return r;
	*ret_position = (int64_t)to + 1;
	if (to != (size_t)from) {
		shift(&o, (size_t)from, to);
		r = write_order(s, &o, e);
	}
	return r;
}

static int put_into_pool(struct store *s, const struct job *j, struct err *e)
{
	int r = db_run(s, e,
		"UPDATE jobs SET lane = NULL, lane_seq = NULL, lane_next = NULL, lane_next_at = NULL, updated_ms = ?2"
		" WHERE id = ?1",
		"ii", j->id, s->now_ms);

	return r < 0 ? r : 0;
}

/* Both lanes are other ones now. */
static int assign_now(struct store *s, const struct job *j, const struct store_lane *l,
	const struct store_place *at, int64_t *ret_position, struct err *e)
{
	int r = lane_changed(s, j, e);

	*ret_position = 0;
	if (r == 0)
		r = l->name ? put_into(s, j, l, at, ret_position, e) : put_into_pool(s, j, e);
	if (r == 0 && l->name)
		r = lane_changed(s, &(struct job){.lane = l->name}, e);
	return r < 0 ? r
		     : tell_place(
			       s, EVENT_LANE_ASSIGNED, j->id, l->node, l->name, *ret_position, e);
}

/* As one number: NULL the end, 0 the head, from 1 that place. Neighbours are made a place. */
static int64_t place_number(const struct order *o, const struct store_place *at)
{
	ssize_t by;

	switch (at->how) {
	case STORE_PLACE_HEAD:
		return 0;
	case STORE_PLACE_AT:
		return at->n < 1 ? 0 : at->n;
	case STORE_PLACE_BEFORE:
	case STORE_PLACE_AFTER:
		by = find(o, at->n);
		return by < 0 ? -1 : by + 1 + (at->how == STORE_PLACE_AFTER);
	default:
		return -1;
	}
}

/* Its node has it: only a word about where it's to go. */
static int assign_later(struct store *s, const struct job *j, const struct store_lane *l,
	const struct store_place *at, int64_t *ret_position, struct err *e)
{
	CLEANUP(order_done) struct order o = {0};
	int64_t number;
	int r = l->name ? read_order(s, l->name, &o, e) : 0;

	if (r < 0)
		return r;
	number = place_number(&o, at);
	*ret_position = !l->name			      ? 0
			: number < 0 || number > (int64_t)o.n ? (int64_t)o.n + 1
			: number == 0			      ? 1
							      : number;
	r = db_run(s, e,
		"UPDATE jobs SET lane_next = ?2, lane_next_at = ?3, updated_ms = ?4 WHERE id = ?1",
		"itoi", j->id, l->name ? l->name : "", number, s->now_ms);
	return r < 0 ? r : lane_changed(s, j, e);
}

static int check_assign(
	const struct job *j, const struct store_lane *l, size_t n_cards, struct err *e)
{
	if (j->state != JOB_STATE_PENDING)
		return err_set(e, -EPERM,
			"job %" PRId64 " %s; only one that waits can go to a lane", j->id,
			j->state == JOB_STATE_RUNNING ? "runs" : "has ended");
	if (j->is_bound && !j->lane)
		return err_set(e, -EPERM,
			"job %" PRId64 " was handed to %s and is about to start there", j->id,
			j->bind.node ? j->bind.node : "its node");
	if (!l->name && !j->lane)
		return err_set(e, -EPERM, "job %" PRId64 " is in no lane", j->id);
	if (l->name && j->gpus > (int64_t)n_cards)
		return err_set(e, -EINVAL,
			"job %" PRId64 " asks for %" PRId64 " GPUs, and lane %s has %zu", j->id,
			j->gpus, l->name, n_cards);
	return 0;
}

int store_lane_assign(struct store *s, int64_t id, const char *name, size_t n_cards,
	const struct store_place *at, struct store_assigned *ret, struct err *e)
{
	CLEANUP(store_lane_done) struct store_lane l = {0};
	CLEANUP(job_done) struct job j = {0};
	struct store_assigned a = {0};
	int r = store_need_txn(s, e);

	if (r == 0)
		r = row_brief(s, id, &j, e);
	if (r == 0 && name)
		r = store_lane(s, name, &l, e);
	if (r == 0)
		r = check_assign(&j, &l, n_cards, e);
	if (r < 0)
		return r;
	if (name && j.lane && !strcmp(j.lane, name)) {
		/* It's there already: a place in it, and no wish to leave it any more. */
		r = lane_forget_next(s, id, e);
		if (r == 0)
			r = store_lane_move(s, name, id, at, &a.position, e);
		if (r == 0 && j.lane_next)
			r = lane_changed(s, &j, e);
	} else if (j.is_bound) {
		a.is_request = true;
		r = assign_later(s, &j, &l, at, &a.position, e);
	} else {
		r = assign_now(s, &j, &l, at, &a.position, e);
	}
	if (r < 0)
		return r;
	a.previous = j.lane ? xstrdup(j.lane) : NULL;
	*ret = a;
	return 0;
}

/* ---- going, and coming back ---- */

int lane_forget_next(struct store *s, int64_t id, struct err *e)
{
	int r = db_run(s, e,
		"UPDATE jobs SET lane_next = NULL, lane_next_at = NULL WHERE id = ?1 AND lane_next IS NOT NULL",
		"i", id);

	return r < 0 ? r : 0;
}

int lane_leave(struct store *s, int64_t id, struct err *e)
{
	CLEANUP(store_lane_done) struct store_lane l = {0};
	CLEANUP(job_done) struct job j = {0};
	struct store_place at = {0};
	int64_t number = -1, position;
	int r = row_brief(s, id, &j, e);

	if (r < 0 || !j.lane_next || j.state != JOB_STATE_PENDING)
		return r < 0 ? r : 0;
	r = db_int(s, &number, e, "SELECT lane_next_at FROM jobs WHERE id = ?1", "i", id);
	if (r > 0)
		at = (struct store_place){number ? STORE_PLACE_AT : STORE_PLACE_HEAD, number};
	if (r >= 0 && *j.lane_next)
		r = store_lane(s, j.lane_next, &l, e);
	/* That lane is gone meanwhile: it stays where it was. */
	if (r == -ENOENT)
		return lane_forget_next(s, id, e);
	return r < 0 ? r : assign_now(s, &j, &l, &at, &position, e);
}

/* The first of the lane's waiting ones that needs it, if any: behind that, it would never be reached. */
static int first_that_needs(
	struct store *s, const struct order *o, int64_t id, ssize_t *ret, struct err *e)
{
	sqlite3_stmt *st = NULL;
	int r = db_ask(s, &st, e, "SELECT job FROM needs WHERE needs = ?1", "i", id);

	*ret = -1;
	for (; r > 0; r = db_next(s, st, e)) {
		ssize_t at = find(o, sqlite3_column_int64(st, 0));

		if (at >= 0 && (*ret < 0 || at < *ret))
			*ret = at;
	}
	return r;
}

int lane_again(struct store *s, const struct job *j, struct err *e)
{
	CLEANUP(order_done) struct order o = {0};
	int64_t seq;
	ssize_t before = -1, from;
	int r;

	if (!j->lane)
		return 0;
	r = next_seq(s, j->lane, &seq, e);
	if (r == 0)
		r = db_run(s, e, "UPDATE jobs SET lane_seq = ?2 WHERE id = ?1", "ii", j->id, seq);
	if (r >= 0)
		r = read_order(s, j->lane, &o, e);
	if (r == 0)
		r = first_that_needs(s, &o, j->id, &before, e);
	from = r < 0 ? -1 : find(&o, j->id);
	if (r == 0 && before >= 0 && from > before) {
		shift(&o, (size_t)from, (size_t)before);
		r = write_order(s, &o, e);
	}
	return r < 0 ? r : lane_changed(s, j, e);
}
