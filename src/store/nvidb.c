/*
 * The rows of a Python nvidb's database (schema 2, and older ones that lack columns) as ours. What it can't have the way we
 * do is told: a running job as lost, a job that a runner may hold as held. Everything else keeps its number and its moment.
 */
#include "store/store_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/parse.h"
#include "base/text.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#define COLUMNS_MAX 40

/* Rows of one of its tables: the columns that are asked for, NULL for those that an older file lacks. */
struct rows {
	struct nvidb_source *src;
	sqlite3_stmt *st;
	const char *table;
};

static void rows_done(struct rows *r)
{
	sqlite3_finalize(r->st);
	r->st = NULL;
}

static int source_error(const struct nvidb_source *src, struct err *e)
{
	int rc = sqlite3_extended_errcode(src->db), code = db_errno(rc);

	return err_set(
		e, code ? code : -EIO, "cannot read %s: %s", src->path, sqlite3_errmsg(src->db));
}

static bool has_column(struct nvidb_source *src, const char *table, const char *column)
{
	sqlite3_stmt *st = NULL;
	bool has = false;

	if (sqlite3_prepare_v2(src->db, "SELECT 1 FROM pragma_table_info(?1) WHERE name = ?2", -1,
		    &st, NULL) == SQLITE_OK) {
		sqlite3_bind_text(st, 1, table, -1, SQLITE_STATIC);
		sqlite3_bind_text(st, 2, column, -1, SQLITE_STATIC);
		has = sqlite3_step(st) == SQLITE_ROW;
	}
	sqlite3_finalize(st);
	return has;
}

/* A table that isn't there has no rows: *ret->st stays NULL. */
static int rows_open(struct nvidb_source *src, const char *table, const char *const *columns,
	size_t n, struct rows *ret, struct err *e)
{
	CLEANUP(buf_done) struct buf sql = {0};

	*ret = (struct rows){.src = src, .table = table};
	if (!has_column(src, table, columns[0]))
		return 0;
	buf_puts(&sql, "SELECT ");
	for (size_t i = 0; i < n; i++)
		buf_printf(&sql, "%s%s", i ? ", " : "",
			has_column(src, table, columns[i]) ? columns[i] : "NULL");
	buf_printf(&sql, " FROM %s ORDER BY %s", table, columns[0]);
	if (sqlite3_prepare_v2(src->db, buf_str(&sql), -1, &ret->st, NULL) != SQLITE_OK)
		return source_error(src, e);
	return 0;
}

/* 1: a row; 0: no more. */
static int rows_next(struct rows *r, struct err *e)
{
	int rc = r->st ? sqlite3_step(r->st) : SQLITE_DONE;

	if (rc == SQLITE_ROW)
		return 1;
	return rc == SQLITE_DONE ? 0 : source_error(r->src, e);
}

static const char *text_at(sqlite3_stmt *st, int col)
{
	const char *text = (const char *)sqlite3_column_text(st, col);

	return text && *text ? text : NULL;
}

static char *copy_at(sqlite3_stmt *st, int col)
{
	const char *text = text_at(st, col);

	return text ? xstrdup(text) : NULL;
}

/* UTC ISO 8601 with an offset, as Python writes it; without one it's UTC. 0: none, or not a time. */
static int64_t time_at(sqlite3_stmt *st, int col)
{
	const char *text = text_at(st, col), *rest;
	struct tm tm = {0};
	int64_t s;

	rest = text ? strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) : NULL;
	if (!rest)
		rest = text ? strptime(text, "%Y-%m-%d %H:%M:%S", &tm) : NULL;
	if (!rest)
		return 0;
	s = (int64_t)timegm(&tm);
	rest += strcspn(rest, "+-Z");
	if (*rest == '+' || *rest == '-') {
		struct tm off = {0};

		if (strptime(rest + 1, "%H:%M", &off))
			s -= (*rest == '+' ? 1 : -1) * (off.tm_hour * 3600 + off.tm_min * 60);
	}
	return s > 0 ? s * 1000 : 0;
}

/* ---- jobs ---- */

enum job_column {
	J_ID,
	J_NAME,
	J_COMMAND,
	J_WORKDIR,
	J_ENV,
	J_STATE,
	J_PRIORITY,
	J_GPUS,
	J_VRAM,
	J_NODE_CONSTRAINT,
	J_AFTER,
	J_AFTER_ANY,
	J_MAX_RUNTIME,
	J_SUBMITTER,
	J_TAGS,
	J_CREATED,
	J_UPDATED,
	J_STARTED,
	J_FINISHED,
	J_NODE,
	J_GPU_IDS,
	J_LANE,
	J_LANE_SEQ,
	J_PID,
	J_RUN_DIR,
	J_EXIT_CODE,
	J_ATTEMPT,
	J_MAX_RETRIES,
	J_LAST_ERROR,
	J_GPU_MEM,
	J_RESULT,
	J_NOTES,
	J_PROGRESS,
	J_PROGRESS_AT,
	J_HELD,
	J_N,
};

static const char *const job_columns[J_N] = {"id", "name", "command", "workdir", "env", "state",
	"priority", "gpus", "vram_mb", "node_constraint", "depends_on", "depends_any",
	"max_runtime_s", "submitter", "tags", "created_at", "updated_at", "started_at",
	"finished_at", "node", "gpu_ids", "lane", "lane_seq", "remote_pid", "run_dir", "exit_code",
	"attempt", "max_retries", "last_error", "gpu_mem_mb", "result", "notes", "progress",
	"progress_at", "held_reason"};

static int by_number(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* "3,17,4": what isn't a number is passed over. Ascending, each once. */
static void read_list(const char *text, int64_t min, int64_t **ret, size_t *ret_n)
{
	size_t cap = 0, kept = 0;

	while (text && *text) {
		size_t n = strcspn(text, ",");
		int64_t v;

		if (parse_int_py(text, n, &v) == 0 && v >= min && *ret_n < JOB_NEEDS_MAX) {
			GROW(*ret, *ret_n, cap);
			(*ret)[(*ret_n)++] = v;
		}
		text += n + (text[n] == ',');
	}
	if (*ret_n)
		qsort(*ret, *ret_n, sizeof(**ret), by_number);
	for (size_t i = 0; i < *ret_n; i++) {
		if (!kept || (*ret)[i] != (*ret)[kept - 1])
			(*ret)[kept++] = (*ret)[i];
	}
	*ret_n = kept;
}

/* JSON that isn't (Python writes NaN) is kept as the text that it was. */
static char *json_at(sqlite3_stmt *st, int col, char kind)
{
	CLEANUP(buf_done) struct buf b = {0};
	const char *text = text_at(st, col);
	struct err e;

	if (!text || text_check_json("", text, kind, &e) == 0)
		return text ? xstrdup(text) : NULL;
	buf_puts(&b, kind == 'a' ? "[" : "");
	text_put_json_ascii(&b, text, utf8_valid_len(text, strlen(text)));
	buf_puts(&b, kind == 'a' ? "]" : "");
	return buf_take(&b);
}

static void read_asked(sqlite3_stmt *st, struct job *j)
{
	int64_t limit_s = db_i64(st, J_MAX_RUNTIME, 0);

	j->name = copy_at(st, J_NAME);
	j->command = copy_at(st, J_COMMAND);
	j->workdir = copy_at(st, J_WORKDIR);
	j->env = copy_at(st, J_ENV);
	j->priority = db_i64(st, J_PRIORITY, 0);
	j->gpus = db_i64(st, J_GPUS, 1);
	j->vram_mib = db_i64(st, J_VRAM, 0);
	j->vram_source = VRAM_DECLARED;
	j->node_constraint = copy_at(st, J_NODE_CONSTRAINT);
	read_list(text_at(st, J_AFTER), 1, &j->after, &j->n_after);
	read_list(text_at(st, J_AFTER_ANY), 1, &j->after_any, &j->n_after_any);
	j->max_runtime_ms = limit_s > 0 && limit_s < INT64_MAX / 1000 ? limit_s * 1000 : 0;
	j->submitter = copy_at(st, J_SUBMITTER);
	j->tags = json_at(st, J_TAGS, 'a');
	j->lane = copy_at(st, J_LANE);
	j->lane_seq = db_i64(st, J_LANE_SEQ, 0);
	j->max_retries = db_i64(st, J_MAX_RETRIES, 0);
	if (j->max_retries < 0)
		j->max_retries = 0;
	j->notes = copy_at(st, J_NOTES);
}

static void read_came(sqlite3_stmt *st, struct job *j, int64_t now_ms)
{
	j->created_ms = time_at(st, J_CREATED);
	if (!j->created_ms)
		j->created_ms = now_ms;
	j->updated_ms = time_at(st, J_UPDATED);
	if (!j->updated_ms)
		j->updated_ms = j->created_ms;
	j->started_ms = time_at(st, J_STARTED);
	j->finished_ms = time_at(st, J_FINISHED);
	j->attempt = db_i64(st, J_ATTEMPT, 0);
	if (j->attempt < 0)
		j->attempt = 0;
	j->last_error = copy_at(st, J_LAST_ERROR);
	j->gpu_mem_mib = db_i64(st, J_GPU_MEM, -1);
	j->result = json_at(st, J_RESULT, '*');
	j->progress = copy_at(st, J_PROGRESS);
	j->progress_ms = time_at(st, J_PROGRESS_AT);
	j->held_reason = copy_at(st, J_HELD);
	j->has_exit_code = sqlite3_column_type(st, J_EXIT_CODE) != SQLITE_NULL;
	j->exit_code = db_i64(st, J_EXIT_CODE, 0);
}

static enum job_cause cause_of(const struct job *j)
{
	switch (j->state) {
	case JOB_STATE_TIMEOUT:
		return JOB_CAUSE_TIMEOUT;
	case JOB_STATE_CANCELLED:
		return JOB_CAUSE_CANCELLED;
	case JOB_STATE_LOST:
		return JOB_CAUSE_VANISHED;
	case JOB_STATE_FAILED:
		if (j->has_exit_code)
			return j->exit_code > 128 ? JOB_CAUSE_SIGNAL : JOB_CAUSE_EXIT_CODE;
		return j->started_ms ? JOB_CAUSE_VANISHED : JOB_CAUSE_UNSCHEDULABLE;
	default:
		return JOB_CAUSE_NONE;
	}
}

static void lose_running(sqlite3_stmt *st, struct job *j, int64_t now_ms)
{
	const char *node = text_at(st, J_NODE), *dir = text_at(st, J_RUN_DIR);

	free(j->last_error);
	j->last_error = xasprintf(
		"it ran under the Python nvidb when the queue was taken over, on %.100s as process %" PRId64
		" in %.300s: look there what became of it, then `gpustow job requeue %" PRId64
		"` if it's to run again",
		node ? node : "a node that isn't named", db_i64(st, J_PID, 0),
		dir ? dir : "a directory that isn't named", j->id);
	j->state = JOB_STATE_LOST;
	j->finished_ms = now_ms;
}

/* The job as ours. Its state's word is one that we know. */
static void settle_state(
	struct job *j, sqlite3_stmt *st, int64_t now_ms, struct store_imported *count)
{
	if (j->state == JOB_STATE_RUNNING) {
		lose_running(st, j, now_ms);
		count->running++;
	}
	if (j->state == JOB_STATE_PENDING) {
		/* Its spool may hold the job, and its runner starts it without asking. */
		if (j->lane && text_at(st, J_RUN_DIR) && !j->held_reason)
			j->held_reason = xasprintf(
				"the Python nvidb's runner of lane %.100s may have it and start it: stop that runner, then `gpustow job release %" PRId64
				"`",
				j->lane, j->id);
		j->started_ms = j->finished_ms = 0;
		j->gpu_mem_mib = -1;
		j->has_exit_code = false;
		count->pending++;
		count->held += j->held_reason != NULL;
		return;
	}
	free(TAKE_PTR(j->held_reason));
	if (!j->finished_ms)
		j->finished_ms = j->updated_ms;
	if (j->started_ms && j->finished_ms >= j->started_ms)
		j->elapsed_ms = j->finished_ms - j->started_ms;
	j->cause = cause_of(j);
}

static enum job_step step_to(enum job_state s)
{
	switch (s) {
	case JOB_STATE_COMPLETED:
		return JOB_STEP_COMPLETE;
	case JOB_STATE_CANCELLED:
		return JOB_STEP_STOP;
	case JOB_STATE_TIMEOUT:
		return JOB_STEP_TIMEOUT;
	case JOB_STATE_LOST:
		return JOB_STEP_LOSE;
	default:
		return JOB_STEP_FAIL;
	}
}

/* Where it ran: a settled attempt under a token that nobody has. */
static int put_place(struct store *s, sqlite3_stmt *st, const struct job *j, struct err *e)
{
	CLEANUP_FREE int64_t *gpus = NULL;
	CLEANUP_FREE struct job_card *cards = NULL;
	CLEANUP(buf_done) struct buf text = {0};
	char token[ID_LEN];
	size_t n = 0;
	int r;

	read_list(text_at(st, J_GPU_IDS), 0, &gpus, &n);
	if (n > JOB_CARDS_MAX)
		n = JOB_CARDS_MAX;
	if (n)
		cards = xcalloc(n, sizeof(*cards));
	for (size_t i = 0; i < n; i++) {
		cards[i].index = (int32_t)gpus[i];
		cards[i].mib = j->vram_mib;
	}
	row_put_cards(&text, cards, n);
	random_hex((ID_LEN - 1) / 2, token);
	r = db_run(s, e,
		"INSERT INTO attempts (job, attempt, token, node, cards, bound_ms, started_ms, finished_ms, elapsed_ms, pid,"
		" run_dir, is_settled, ended_as, exit_code, cause, error) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, 1,"
		" ?12, CASE WHEN ?13 THEN ?14 END, ?15, ?16)",
		"iitttizzoztibitt", j->id, j->attempt, token, text_at(st, J_NODE), buf_str(&text),
		j->started_ms ? j->started_ms : j->finished_ms, j->started_ms, j->finished_ms,
		j->elapsed_ms, db_i64(st, J_PID, 0), text_at(st, J_RUN_DIR),
		DB_I64(step_to(j->state)), (int)j->has_exit_code, j->exit_code,
		j->cause ? job_cause_name(j->cause) : NULL, j->last_error);
	return r < 0 ? r : 0;
}

static int import_one(
	struct store *s, sqlite3_stmt *st, struct store_imported *count, struct err *e)
{
	CLEANUP(job_done) struct job j = {0};
	const char *state = text_at(st, J_STATE);
	int r;

	job_init(&j);
	j.id = sqlite3_column_int64(st, J_ID);
	if (!state || job_state_from_name(state, &j.state) < 0 || j.state == JOB_STATE_NONE)
		return err_set(
			e, -EBADMSG, "its state '%.20s' is none that is known", state ? state : "");
	read_asked(st, &j);
	read_came(st, &j, s->now_ms);
	settle_state(&j, st, s->now_ms, count);
	if (job_state_is_terminal(j.state) && text_at(st, J_NODE) && !j.attempt)
		j.attempt = 1;
	r = store_import_job(s, &j, e);
	if (r == 0 && job_state_is_terminal(j.state) && text_at(st, J_NODE))
		r = put_place(s, st, &j, e);
	return r;
}

static int import_jobs(
	struct store *s, struct nvidb_source *src, struct store_imported *count, struct err *e)
{
	CLEANUP(rows_done) struct rows rows = {0};
	int r = rows_open(src, "jobs", job_columns, J_N, &rows, e);

	if (r < 0)
		return r;
	while ((r = rows_next(&rows, e)) > 0) {
		struct err why;

		r = import_one(s, rows.st, count, &why);
		if (r < 0)
			return err_set(e, r, "job %" PRId64 " of %s can't be taken over: %s",
				DB_I64(sqlite3_column_int64(rows.st, J_ID)), src->path, why.text);
		count->jobs++;
	}
	return r;
}

/* ---- events, alerts, nodes ---- */

/* Behind those that are here, so that numbers stay where nothing is. */
static int import_events(
	struct store *s, struct nvidb_source *src, struct store_imported *count, struct err *e)
{
	static const char *const columns[] = {
		"id", "ts", "kind", "job_id", "node", "message", "data"};
	CLEANUP(rows_done) struct rows rows = {0};
	int64_t base = 0;
	int r = rows_open(src, "events", columns, ARRAY_LEN(columns), &rows, e);

	if (r == 0)
		r = db_int(s, &base, e, "SELECT max(id) FROM events", "");
	if (r < 0)
		return r;
	while ((r = rows_next(&rows, e)) > 0) {
		CLEANUP_FREE char *data = json_at(rows.st, 6, '*');
		const char *kind = text_at(rows.st, 2);
		enum event_kind k;

		if (!kind || event_kind_from_name(kind, &k) < 0) {
			count->skipped++;
			continue;
		}
		r = db_run(s, e,
			"INSERT INTO events (id, ts_ms, kind, job, node, message, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
			"iitzttt", base + sqlite3_column_int64(rows.st, 0), time_at(rows.st, 1),
			kind, db_i64(rows.st, 3, 0), text_at(rows.st, 4), text_at(rows.st, 5),
			data);
		if (r < 0)
			return r;
		count->events++;
	}
	return r;
}

/* They were told of, or nobody wanted to be: what is new is told from here on. */
static int import_alerts(
	struct store *s, struct nvidb_source *src, struct store_imported *count, struct err *e)
{
	static const char *const columns[] = {"id", "ts", "kind", "job_id", "node", "title",
		"detail", "acknowledged_at", "notified_at"};
	CLEANUP(rows_done) struct rows rows = {0};
	int64_t base = 0;
	int r = rows_open(src, "alerts", columns, ARRAY_LEN(columns), &rows, e);

	if (r == 0)
		r = db_int(s, &base, e, "SELECT max(id) FROM alerts", "");
	if (r < 0)
		return r;
	while ((r = rows_next(&rows, e)) > 0) {
		const char *kind = text_at(rows.st, 2), *title = text_at(rows.st, 5);
		int64_t told = time_at(rows.st, 8);
		enum alert_kind k;

		if (!kind || alert_kind_from_name(kind, &k) < 0) {
			count->skipped++;
			continue;
		}
		r = db_run(s, e,
			"INSERT INTO alerts (id, ts_ms, kind, severity, job, node, title, detail, acknowledged_ms, notified_ms)"
			" VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
			"iittztttzi", base + sqlite3_column_int64(rows.st, 0), time_at(rows.st, 1),
			kind, alert_severity_name(alert_kind_severity(k)), db_i64(rows.st, 3, 0),
			text_at(rows.st, 4), title ? title : kind, text_at(rows.st, 6),
			time_at(rows.st, 7), told ? told : s->now_ms);
		if (r < 0)
			return r;
		count->alerts++;
	}
	return r;
}

/* Only what people said of them; the rest is seen anew. */
static int import_nodes(struct store *s, struct nvidb_source *src, struct err *e)
{
	static const char *const columns[] = {"name", "enabled", "ignored"};
	CLEANUP(rows_done) struct rows rows = {0};
	int r = rows_open(src, "nodes", columns, ARRAY_LEN(columns), &rows, e);

	if (r < 0)
		return r;
	while ((r = rows_next(&rows, e)) > 0) {
		const char *name = text_at(rows.st, 0);

		if (name && !db_i64(rows.st, 1, 1))
			r = store_node_drain(s, name, true, e);
		if (r >= 0 && name && db_i64(rows.st, 2, 0))
			r = store_node_ignore(s, name, true, e);
		if (r < 0)
			return r;
	}
	return r;
}

/* Numbers of jobs that were purged there aren't given again. */
static int keep_numbers(struct store *s, struct nvidb_source *src, struct err *e)
{
	sqlite3_stmt *st = NULL;
	int64_t last = 0;
	int r;

	if (sqlite3_prepare_v2(src->db, "SELECT seq FROM sqlite_sequence WHERE name = 'jobs'", -1,
		    &st, NULL) == SQLITE_OK &&
		sqlite3_step(st) == SQLITE_ROW)
		last = sqlite3_column_int64(st, 0);
	sqlite3_finalize(st);
	r = db_run(s, e, "UPDATE sqlite_sequence SET seq = max(seq, ?1) WHERE name = 'jobs'", "i",
		last);
	if (r == 0)
		r = db_run(s, e, "INSERT INTO sqlite_sequence (name, seq) VALUES ('jobs', ?1)", "i",
			last);
	return r < 0 ? r : 0;
}

static int import_all(
	struct store *s, struct nvidb_source *src, struct store_imported *count, struct err *e)
{
	int r = import_jobs(s, src, count, e);

	if (r == 0)
		r = import_events(s, src, count, e);
	if (r == 0)
		r = import_alerts(s, src, count, e);
	if (r == 0)
		r = import_nodes(s, src, e);
	if (r == 0)
		r = keep_numbers(s, src, e);
	return r == 0 ? nvidb_is_unchanged(src, e) : r;
}

int store_import_nvidb(struct store *s, const char *path, struct store_imported *ret, struct err *e)
{
	struct store_imported count = {0};
	struct nvidb_source src = {0};
	int64_t id;
	int r = store_need_txn(s, e);

	if (r == 0)
		r = db_int(s, &id, e, "SELECT id FROM jobs LIMIT 1", "");
	if (r > 0)
		return err_set(e, -EEXIST,
			"the queue %s has jobs already, so another queue's can't be taken over into it; name a new one with --db-path",
			s->path);
	if (r == 0)
		r = nvidb_open(path, &src, e);
	if (r < 0)
		return r;
	r = import_all(s, &src, &count, e);
	nvidb_close(&src);
	/* Half of it is worse than nothing. */
	if (r < 0)
		s->is_broken = true;
	else
		*ret = count;
	return r;
}
