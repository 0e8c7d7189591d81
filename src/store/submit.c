/* New jobs, theirs to need, and the rings that prerequisites may not form. */
#include "store/store_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"

#include <inttypes.h>
#include <string.h>

int needs_put(struct store *s, int64_t job, bool any, const int64_t *ids, size_t n, struct err *e)
{
	int64_t there;
	int r;

	if (n > JOB_NEEDS_MAX)
		return err_set(e, -E2BIG, "a job may need at most %d others", JOB_NEEDS_MAX);
	for (size_t i = 0; i < n; i++) {
		if (ids[i] == job)
			return err_set(e, -EINVAL, "job %" PRId64 " can't wait for itself", job);
		r = db_int(s, &there, e, "SELECT id FROM jobs WHERE id = ?1", "i", ids[i]);
		if (r == 0)
			return err_set(
				e, -EINVAL, "there's no job %" PRId64 " to wait for", ids[i]);
		if (r > 0)
			r = db_run(s, e,
				"INSERT OR IGNORE INTO needs (job, kind, needs) VALUES (?1, ?2, ?3)",
				"ibi", job, (int)any, ids[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

static int put_tags(struct store *s, int64_t id, const char *tags, struct err *e)
{
	int r = tags ? db_run(s, e,
			       "INSERT OR IGNORE INTO job_tags (tag, job) SELECT value, ?1 FROM json_each(?2)",
			       "it", id, tags)
		     : 0;

	return r < 0 ? r : 0;
}

static void put_text(struct buf *b, const char *key, const char *text)
{
	buf_puts(b, key);
	if (text)
		text_put_json_ascii(b, text, strlen(text));
	else
		buf_puts(b, "null");
}

static int tell(struct store *s, const struct job *j, int64_t id, struct err *e)
{
	CLEANUP_FREE char *what = text_cut(j->name && *j->name ? j->name : j->command, 80);
	struct buf *b = &s->told;

	buf_clear(b);
	buf_puts(b, "{\"gpus\": ");
	text_put_int(b, j->gpus);
	buf_puts(b, ", \"vram_mb\": ");
	if (j->vram_mib < 0)
		buf_puts(b, "null");
	else
		text_put_int(b, j->vram_mib);
	put_text(b, ", \"node\": ", j->node_constraint);
	put_text(b, ", \"lane\": ", j->lane);
	put_text(b, ", \"submitter\": ", j->submitter);
	buf_putc(b, '}');
	return store_event_add(s, EVENT_JOB_SUBMITTED, id, NULL, what, buf_str(b), e);
}

static int check_ids(struct store *s, const int64_t *ids, size_t n, struct err *e)
{
	int64_t there;

	for (size_t i = 0; i < n; i++) {
		int r = db_int(s, &there, e, "SELECT id FROM jobs WHERE id = ?1", "i", ids[i]);

		if (r < 0)
			return r;
		if (r == 0)
			return err_set(
				e, -EINVAL, "there's no job %" PRId64 " to wait for", ids[i]);
	}
	return 0;
}

/* Whether it may be put in at all: nothing is written before this is known. */
static int check(struct store *s, const struct job *j, struct err *e)
{
	const struct job nobody = {0};
	int r = store_need_txn(s, e);

	if (r == 0 && !job_can(&nobody, JOB_STEP_SUBMIT, s->is_controller, e))
		r = -EPERM;
	if (r == 0)
		r = row_check(j, e);
	if (r == 0 && (j->n_after > JOB_NEEDS_MAX || j->n_after_any > JOB_NEEDS_MAX))
		r = err_set(e, -E2BIG, "a job may need at most %d others", JOB_NEEDS_MAX);
	if (r == 0)
		r = check_ids(s, j->after, j->n_after, e);
	return r == 0 ? check_ids(s, j->after_any, j->n_after_any, e) : r;
}

int store_submit(struct store *s, const struct job *j, int64_t *ret_id, struct err *e)
{
	struct job row = *j;
	int64_t id;
	int r;

	r = check(s, j, e);
	if (r < 0)
		return r;
	if (j->key) {
		r = store_job_by_key(s, j->key, &id, e);
		if (r == 0) {
			*ret_id = id;
			return 1;
		}
		if (r != -ENOENT)
			return r;
	}
	row.state = JOB_STATE_PENDING;
	row.updated_ms = s->now_ms;
	if (!row.created_ms)
		row.created_ms = s->now_ms;
	r = lane_enter(s, &row, e);
	if (r < 0)
		return r;
	r = row_insert(s, &row, false, &id, e);
	if (r == 0 && j->lane)
		r = lane_pin(s, id, e);
	if (r == 0)
		r = put_tags(s, id, j->tags, e);
	if (r == 0)
		r = needs_put(s, id, false, j->after, j->n_after, e);
	if (r == 0)
		r = needs_put(s, id, true, j->after_any, j->n_after_any, e);
	if (r == 0)
		r = tell(s, j, id, e);
	if (r == 0)
		*ret_id = id;
	return r;
}

/* Needs may name jobs that were purged where it comes from. */
static int import_needs(struct store *s, const struct job *j, struct err *e)
{
	int r = 0;

	for (size_t i = 0; r >= 0 && i < j->n_after + j->n_after_any; i++) {
		bool any = i >= j->n_after;

		r = db_run(s, e,
			"INSERT OR IGNORE INTO needs (job, kind, needs) VALUES (?1, ?2, ?3)", "ibi",
			j->id, (int)any, any ? j->after_any[i - j->n_after] : j->after[i]);
	}
	return r < 0 ? r : 0;
}

int store_import_job(struct store *s, const struct job *j, struct err *e)
{
	int64_t id;
	int r = store_need_txn(s, e);

	if (r == 0)
		r = row_check(j, e);
	if (r < 0)
		return r;
	if (j->id <= 0 || j->is_bound || j->state == JOB_STATE_RUNNING || !j->state ||
		j->state >= JOB_STATE_N)
		return err_set(e, -EINVAL,
			"job %" PRId64
			" can't be taken over: only jobs that wait or have ended can",
			j->id);
	r = db_int(s, &id, e, "SELECT id FROM jobs WHERE id = ?1 OR key = ?2", "it", j->id, j->key);
	if (r > 0)
		return err_set(
			e, -EEXIST, "there's a job %" PRId64 " or one with its key already", j->id);
	if (r == 0)
		r = row_insert(s, j, true, &id, e);
	if (r == 0)
		r = put_tags(s, j->id, j->tags, e);
	return r == 0 ? import_needs(s, j, e) : r;
}

int store_job_by_key(struct store *s, const char *key, int64_t *ret_id, struct err *e)
{
	int r = db_int(s, ret_id, e, "SELECT id FROM jobs WHERE key = ?1", "t", key);

	return r < 0 ? r : r ? 0 : -ENOENT;
}

/* ---- edits of the lists ---- */

/* A chain from `from` back to `job` over either kind of prerequisite, as "4 -> 2 -> 3", or NULL. */
static int find_ring(struct store *s, int64_t job, int64_t from, char **ret, struct err *e)
{
	sqlite3_stmt *st = NULL;
	int r = db_ask(s, &st, e,
		"WITH RECURSIVE up (id) AS (SELECT ?1 UNION SELECT n.needs FROM needs n JOIN up ON n.job = up.id)"
		" SELECT 1 FROM up WHERE id = ?2",
		"ii", from, job);

	if (r <= 0)
		return r;
	db_done(st);
	*ret = xasprintf(
		"job %" PRId64 " waits, over others or itself, for job %" PRId64, from, job);
	return 1;
}

static int check_rings(struct store *s, int64_t job, const int64_t *ids, size_t n, struct err *e)
{
	for (size_t i = 0; i < n; i++) {
		CLEANUP_FREE char *ring = NULL;
		int r;

		if (ids[i] == job)
			return err_set(e, -EINVAL, "job %" PRId64 " can't wait for itself", job);
		r = find_ring(s, job, ids[i], &ring, e);
		if (r < 0)
			return r;
		if (r)
			return err_set(e, -ELOOP, "that would be a ring: %s already", ring);
	}
	return 0;
}

static void put_list(struct buf *b, const char *name, const int64_t *ids, size_t n)
{
	buf_printf(b, "%s", name);
	for (size_t i = 0; i < n && i < 50; i++)
		buf_printf(b, "%s%" PRId64, i ? "," : "", ids[i]);
	if (!n)
		buf_puts(b, "-");
	else if (n > 50)
		buf_printf(b, ",... (%zu)", n);
}

static int replace_needs(struct store *s, int64_t id, const int64_t *after, size_t n_after,
	const int64_t *after_any, size_t n_any, struct err *e)
{
	int r = db_run(s, e, "DELETE FROM needs WHERE job = ?1", "i", id);

	if (r >= 0)
		r = needs_put(s, id, false, after, n_after, e);
	if (r >= 0)
		r = needs_put(s, id, true, after_any, n_any, e);
	if (r >= 0)
		r = db_run(s, e,
			"UPDATE jobs SET held_reason = NULL, updated_ms = ?2 WHERE id = ?1", "ii",
			id, s->now_ms);
	return r < 0 ? r : 0;
}

int store_set_needs(struct store *s, int64_t id, const int64_t *after, size_t n_after,
	const int64_t *after_any, size_t n_any, struct err *e)
{
	CLEANUP(job_done) struct job j = {0};
	CLEANUP(buf_done) struct buf b = {0};
	const struct job_rule *rule;
	int r = change_begin(s, id, JOB_STEP_EDIT_NEEDS, &j, &rule, e);

	/* Dead prerequisites that stay in the list are fine; new ones have to be there. */
	if (r == 0)
		r = check_rings(s, id, after, n_after, e);
	if (r == 0)
		r = check_rings(s, id, after_any, n_any, e);
	if (r == 0)
		r = check_ids(s, after, n_after, e);
	if (r == 0)
		r = check_ids(s, after_any, n_any, e);
	if (r == 0)
		r = replace_needs(s, id, after, n_after, after_any, n_any, e);
	if (r == 0)
		r = lane_changed(s, &j, e);
	if (r < 0)
		return r;
	put_list(&b, "after ", after, n_after);
	put_list(&b, ", after any ", after_any, n_any);
	return news_event(s, rule, id, NULL, buf_str(&b), NULL, e);
}
