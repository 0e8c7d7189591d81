/*
 * Lanes as rows: made, listed, paused, and what a node said of each. Their order is in lane_order.c. Whoever changes what a
 * lane's node should do bumps its generation in the same transaction.
 */
#include "store/store_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"

#include <inttypes.h>
#include <string.h>

#define COLUMNS \
	"SELECT name, node, cards, is_paused, has_runner, is_stopped, concurrency, generation, acked_generation, acked_ms," \
	" acked_root, runner_state, runner_seen_ms, created_ms, updated_ms FROM lanes "

static void read_lane(sqlite3_stmt *st, struct store_lane *ret)
{
	CLEANUP_FREE char *root = db_text(st, 10);

	*ret = (struct store_lane){.name = db_text(st, 0),
		.node = db_text(st, 1),
		.cards = db_text(st, 2),
		.is_paused = sqlite3_column_int(st, 3) != 0,
		.has_runner = sqlite3_column_int(st, 4) != 0,
		.is_stopped = sqlite3_column_int(st, 5) != 0,
		.concurrency = db_i64(st, 6, 1),
		.generation = db_i64(st, 7, 0),
		.acked_generation = db_i64(st, 8, 0),
		.acked_ms = db_i64(st, 9, 0),
		.runner_state = db_text(st, 11),
		.runner_seen_ms = db_i64(st, 12, 0),
		.created_ms = db_i64(st, 13, 0),
		.updated_ms = db_i64(st, 14, 0)};
	if (root && id_is_valid(root))
		memcpy(ret->acked_root, root, ID_LEN);
}

void store_lane_done(struct store_lane *l)
{
	free(l->name);
	free(l->node);
	free(l->cards);
	free(l->runner_state);
	*l = (struct store_lane){0};
}

void store_lanes_done(struct store_lanes *l)
{
	for (size_t i = 0; i < l->n; i++)
		store_lane_done(&l->v[i]);
	free(l->v);
	*l = (struct store_lanes){0};
}

int store_lanes(struct store *s, struct store_lanes *ret, struct err *e)
{
	struct store_lanes l = {0};
	sqlite3_stmt *st = NULL;
	size_t cap = 0;
	int r = db_ask(s, &st, e, COLUMNS "ORDER BY node, name", "");

	for (; r > 0; r = db_next(s, st, e)) {
		GROW(l.v, l.n, cap);
		read_lane(st, &l.v[l.n++]);
	}
	if (r < 0) {
		store_lanes_done(&l);
		return r;
	}
	*ret = l;
	return 0;
}

int store_lane(struct store *s, const char *name, struct store_lane *ret, struct err *e)
{
	sqlite3_stmt *st = NULL;
	int r = db_ask(s, &st, e, COLUMNS "WHERE name = ?1", "t", name);

	if (r <= 0)
		return r < 0 ? r : err_set(e, -ENOENT, "there's no lane %s", name);
	read_lane(st, ret);
	db_done(st);
	return 0;
}

int store_lane_make(struct store *s, const char *node, const char *cards, struct err *e)
{
	CLEANUP_FREE char *name = NULL;
	int r = store_need_txn(s, e);

	if (r < 0)
		return r;
	if (!node || !*node || !cards || !*cards)
		return err_set(e, -EINVAL, "a lane needs a node and a card");
	name = xasprintf("%s:%s", node, cards);
	if (strlen(name) > STORE_LANE_NAME_MAX)
		return err_set(
			e, -EINVAL, "a lane's name has at most %d bytes", STORE_LANE_NAME_MAX);
	r = db_run(s, e,
		"INSERT OR IGNORE INTO lanes (name, node, cards, created_ms, updated_ms) VALUES (?1, ?2, ?3, ?4, ?4)",
		"ttti", name, node, cards, s->now_ms);
	return r < 0 ? r : r == 0;
}

/* ---- what people say of one ---- */

/* An UPDATE that ends in "WHERE name = ?1 AND ...": 0 changed, 1 it was so already. */
static int changed(struct store *s, const char *name, int n, struct err *e)
{
	int64_t there;
	int r;

	if (n)
		return n < 0 ? n : 0;
	r = db_int(s, &there, e, "SELECT 1 FROM lanes WHERE name = ?1", "t", name);
	if (r < 0)
		return r;
	return r ? 1 : err_set(e, -ENOENT, "there's no lane %s", name);
}

int store_lane_pause(struct store *s, const char *name, bool on, struct err *e)
{
	CLEANUP(store_lane_done) struct store_lane l = {0};
	int r = store_need_txn(s, e);

	if (r == 0)
		r = store_lane(s, name, &l, e);
	if (r < 0 || l.is_paused == on)
		return r < 0 ? r : 1;
	r = db_run(s, e,
		"UPDATE lanes SET is_paused = ?2, generation = generation + 1, updated_ms = ?3 WHERE name = ?1",
		"tbi", name, (int)on, s->now_ms);
	if (r >= 0)
		r = store_event_add(
			s, on ? EVENT_LANE_PAUSED : EVENT_LANE_RESUMED, 0, l.node, name, NULL, e);
	return r < 0 ? r : 0;
}

int store_lane_runner(struct store *s, const char *name, bool on, bool stopped, struct err *e)
{
	int r = store_need_txn(s, e);

	if (r < 0)
		return r;
	r = db_run(s, e,
		"UPDATE lanes SET has_runner = ?2, is_stopped = ?3, generation = generation + 1, updated_ms = ?4"
		" WHERE name = ?1 AND (has_runner <> ?2 OR is_stopped <> ?3)",
		"tbbi", name, (int)on, (int)stopped, s->now_ms);
	return changed(s, name, r, e);
}

int store_lane_concurrency(struct store *s, const char *name, int64_t n, struct err *e)
{
	int r = store_need_txn(s, e);

	if (r < 0)
		return r;
	if (n < 1 || n > STORE_LANE_CONCURRENCY_MAX)
		return err_set(e, -EINVAL, "a lane runs 1 to %d jobs at a time",
			STORE_LANE_CONCURRENCY_MAX);
	r = db_run(s, e,
		"UPDATE lanes SET concurrency = ?2, generation = generation + 1, updated_ms = ?3"
		" WHERE name = ?1 AND concurrency <> ?2",
		"tii", name, n, s->now_ms);
	return changed(s, name, r, e);
}

int lane_changed(struct store *s, const struct job *j, struct err *e)
{
	int r = j->lane ? db_run(s, e,
				  "UPDATE lanes SET generation = generation + 1, updated_ms = ?2 WHERE name = ?1",
				  "ti", j->lane, s->now_ms)
			: 0;

	return r < 0 ? r : 0;
}

/* ---- what its node said ---- */

static int check_controller(struct store *s, struct err *e)
{
	int r = store_need_txn(s, e);

	if (r == 0 && !s->is_controller)
		r = err_set(e, -EPERM, "only the holder of the queue's lease says that of a lane");
	return r;
}

int store_lane_acked(struct store *s, const char *name, const char *root_id, int64_t generation,
	const char *state, struct err *e)
{
	int r = check_controller(s, e);

	if (r == 0)
		r = text_check_json("a lane's state", state, '*', e);
	if (r < 0)
		return r;
	r = db_run(s, e,
		"UPDATE lanes SET acked_generation = ?2, acked_ms = ?3, acked_root = ?4, runner_state = ?5, runner_seen_ms = ?3"
		" WHERE name = ?1",
		"tiitt", name, generation, s->now_ms, root_id, state);
	return changed(s, name, r, e) < 0 ? -ENOENT : 0;
}

int store_lane_seen(struct store *s, const char *name, const char *state, struct err *e)
{
	int r = check_controller(s, e);

	if (r == 0)
		r = text_check_json("a lane's state", state, '*', e);
	if (r < 0)
		return r;
	r = db_run(s, e, "UPDATE lanes SET runner_state = ?2, runner_seen_ms = ?3 WHERE name = ?1",
		"tti", name, state, s->now_ms);
	return r < 0 ? r : 0;
}

int store_lane_bump(struct store *s, const char *name, int64_t least, int64_t *ret, struct err *e)
{
	int r = check_controller(s, e);

	if (r < 0)
		return r;
	r = db_run(s, e,
		"UPDATE lanes SET generation = max(generation + 1, ?2), updated_ms = ?3 WHERE name = ?1",
		"tii", name, least, s->now_ms);
	if (r >= 0)
		r = db_int(s, ret, e, "SELECT generation FROM lanes WHERE name = ?1", "t", name);
	if (r < 0)
		return r;
	return r ? 0 : err_set(e, -ENOENT, "there's no lane %s", name);
}

int store_lane_needs_put(
	struct store *s, int64_t id, int64_t attempt, const char *needs, struct err *e)
{
	int r = check_controller(s, e);

	if (r == 0)
		r = text_check_json("an entry's prerequisites", needs, '*', e);
	if (r < 0)
		return r;
	r = db_run(s, e, "UPDATE attempts SET needs = ?3 WHERE job = ?1 AND attempt = ?2", "iit",
		id, attempt, needs);
	return r < 0 ? r : 0;
}

int store_lane_needs(struct store *s, struct store_lane_needs **ret, size_t *ret_n, struct err *e)
{
	struct store_lane_needs *v = NULL;
	size_t n = 0, cap = 0;
	sqlite3_stmt *st = NULL;
	int r = db_ask(s, &st, e,
		"SELECT a.job, a.attempt, a.needs FROM jobs j INDEXED BY jobs_bound JOIN attempts a ON a.job = j.id"
		" AND a.attempt = j.attempt WHERE j.is_bound = 1 AND a.needs IS NOT NULL ORDER BY a.job",
		"");

	for (; r > 0; r = db_next(s, st, e)) {
		GROW(v, n, cap);
		v[n++] = (struct store_lane_needs){.job = sqlite3_column_int64(st, 0),
			.attempt = sqlite3_column_int64(st, 1),
			.needs = db_text(st, 2)};
	}
	if (r < 0) {
		store_lane_needs_done(v, n);
		return r;
	}
	*ret = v;
	*ret_n = n;
	return 0;
}

void store_lane_needs_done(struct store_lane_needs *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(v[i].needs);
	free(v);
}
