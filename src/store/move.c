/*
 * Moving a waiting job among the others of the pool. Its order is priority, then number, so a place is taken by lowering
 * priorities: from the new order's top down each may be at most what lets it stand behind the one before it.
 */
#include "store/store_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <inttypes.h>
#include <string.h>

struct place {
	int64_t id, priority;
};

static int read_pool(struct store *s, struct place **ret, size_t *ret_n, struct err *e)
{
	size_t cap = 0;
	sqlite3_stmt *st = NULL;
	int r = db_ask(s, &st, e,
		"SELECT id, priority FROM jobs INDEXED BY jobs_turn WHERE state = 'pending' AND is_bound = 0 AND lane IS NULL"
		" ORDER BY priority DESC, id",
		"");

	for (; r > 0; r = db_next(s, st, e)) {
		GROW(*ret, *ret_n, cap);
		(*ret)[(*ret_n)++] =
			(struct place){sqlite3_column_int64(st, 0), sqlite3_column_int64(st, 1)};
	}
	return r;
}

/* Puts the one at `from` to `to`; the others close up. */
static void shift(struct place *v, size_t from, size_t to)
{
	struct place moved = v[from];

	if (to < from)
		memmove(v + to + 1, v + to, (from - to) * sizeof(*v));
	else
		memmove(v + from, v + from + 1, (to - from) * sizeof(*v));
	v[to] = moved;
}

static int lower(struct store *s, const struct place *v, size_t n, struct err *e)
{
	int64_t above = v[0].priority;

	for (size_t i = 1; i < n; i++) {
		bool is_later = v[i].id > v[i - 1].id;
		int64_t most;
		int r;

		if (!is_later && above == INT64_MIN)
			return err_set(e, -ERANGE,
				"job %" PRId64
				" can't be given a lower priority than it would need; raise the others'",
				v[i].id);
		most = is_later ? above : above - 1;
		if (v[i].priority <= most) {
			above = v[i].priority;
			continue;
		}
		r = db_run(s, e, "UPDATE jobs SET priority = ?2, updated_ms = ?3 WHERE id = ?1",
			"iii", v[i].id, most, s->now_ms);
		if (r < 0)
			return r;
		above = most;
	}
	return 0;
}

/* Where slots from `at` leads, within the list. */
static size_t target(size_t at, size_t n, int64_t slots)
{
	if (slots > 0)
		return (uint64_t)slots > at ? 0 : at - (size_t)slots;
	return slots < -(int64_t)(n - 1 - at) ? n - 1 : at + (size_t)-slots;
}

static int check_movable(struct store *s, int64_t id, const struct job_rule **ret, struct err *e)
{
	CLEANUP(job_done) struct job j = {0};
	int r = change_begin(s, id, JOB_STEP_EDIT_PRIORITY, &j, ret, e);

	if (r < 0)
		return r;
	if (j.lane)
		return err_set(e, -EPERM,
			"job %" PRId64
			" has its place in lane %s, where priorities don't count; `gpustow queue lane %s move %" PRId64
			"` moves it there",
			id, j.lane, j.lane, id);
	if (j.state != JOB_STATE_PENDING || j.is_bound)
		return err_set(e, -EPERM,
			"job %" PRId64 " doesn't wait in the pool: an attempt of it is in flight",
			id);
	return 0;
}

int store_move(struct store *s, int64_t id, int64_t slots, int64_t *ret_moved, struct err *e)
{
	CLEANUP_FREE struct place *pool = NULL;
	CLEANUP_FREE char *message = NULL;
	const struct job_rule *rule;
	size_t n = 0, at = 0, to;
	int64_t moved;
	int r = check_movable(s, id, &rule, e);

	if (r == 0)
		r = read_pool(s, &pool, &n, e);
	if (r < 0)
		return r;
	while (at < n && pool[at].id != id)
		at++;
	if (at == n)
		return err_set(e, -ENOENT, "job %" PRId64 " isn't in the pool", id);
	to = target(at, n, slots);
	moved = (int64_t)at - (int64_t)to;
	if (moved) {
		shift(pool, at, to);
		r = lower(s, pool, n, e);
		message = xasprintf("%" PRId64 " %s, to place %zu", moved < 0 ? -moved : moved,
			moved < 0 ? "down" : "up", to + 1);
	}
	if (moved && r == 0)
		r = news_event(s, rule, id, NULL, message, NULL, e);
	if (r == 0)
		*ret_moved = moved;
	return r;
}
