/* Questions about jobs: one, a page of them, counts, who waits for whom, the history of attempts. Reads only. */
#include "store/store_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int store_job(struct store *s, int64_t id, struct job *ret, struct err *e)
{
	sqlite3_stmt *st = NULL;
	struct job j = {0};
	bool mine;
	int r = db_read_begin(s, &mine, e);

	if (r < 0)
		return r;
	r = db_ask(s, &st, e, s->sql_job, "i", id);
	if (r > 0) {
		row_read(st, &j);
		db_done(st);
		r = row_read_needs(s, &j, e);
	} else if (r == 0) {
		r = err_set(e, -ENOENT, "there's no job %" PRId64, id);
	}
	db_read_end(s, mine);
	if (r < 0)
		job_done(&j);
	else
		*ret = j;
	return r;
}

/* ---- a page ---- */

static void put_states(struct buf *b, uint32_t states)
{
	const char *mark = " AND j.state IN (";

	if (!states)
		return;
	for (int i = 1; i < JOB_STATE_N; i++) {
		if (states >> i & 1) {
			buf_printf(b, "%s'%s'", mark, job_state_name((enum job_state)i));
			mark = ", ";
		}
	}
	buf_puts(b, *mark == ',' ? ")" : " AND 0");
}

static void put_ids(struct buf *b, const int64_t *ids, size_t n)
{
	if (!ids)
		return;
	buf_puts(b, " AND j.id IN (");
	for (size_t i = 0; i < n; i++)
		buf_printf(b, "%s%" PRId64, i ? "," : "", ids[i]);
	buf_putc(b, ')');
}

static void put_bounds(struct buf *b, const struct store_question *q)
{
	if (q->min_id)
		buf_printf(b, " AND j.id >= %" PRId64, q->min_id);
	if (q->max_id)
		buf_printf(b, " AND j.id <= %" PRId64, q->max_id);
	if (q->behind_id)
		buf_printf(b, " AND j.id > %" PRId64, q->behind_id);
}

/* A page of several states and nothing else. */
static bool is_page_of_states(const struct store_question *q)
{
	return (q->states & (q->states - 1)) && q->limit && q->order == STORE_BY_ID && !q->ids &&
	       !q->lane && !q->held && !q->bound && !q->cancelling && !q->node && !q->tag &&
	       !q->name && !q->submitter;
}

/* A page of each state, as the index has it, and of those the page: SQLite alone would sort all jobs of these states. */
static void put_page_of_states(struct buf *b, const struct store_question *q)
{
	const char *mark = " AND j.id IN (";

	for (int i = 1; i < JOB_STATE_N; i++) {
		if (!(q->states >> i & 1))
			continue;
		buf_printf(b,
			"%sSELECT id FROM (SELECT j.id FROM jobs j INDEXED BY jobs_state WHERE j.state = '%s'",
			mark, job_state_name((enum job_state)i));
		put_bounds(b, q);
		buf_printf(
			b, " ORDER BY j.id%s LIMIT %zu)", q->newest ? " DESC" : "", q->limit + 1);
		mark = " UNION ALL ";
	}
	buf_puts(b, mark[1] == 'U' ? ")" : " AND 0");
}

/* Numbers and our own words go into the text; what people typed is bound: ?1 node, ?2 tag, ?3 name, ?4 submitter, ?5 lane. */
static void put_where(struct buf *b, const struct store_question *q)
{
	buf_puts(b, " WHERE 1");
	if (is_page_of_states(q))
		put_page_of_states(b, q);
	else
		put_states(b, q->states);
	put_ids(b, q->ids, q->n_ids);
	if (q->order == STORE_BY_END)
		buf_puts(b, " AND j.finished_ms IS NOT NULL");
	/* As the partial indexes have it, so that they are used. */
	if (q->order == STORE_BY_TURN)
		buf_puts(b, " AND j.state = 'pending'");
	if (q->to_place)
		buf_puts(b, " AND j.is_bound = 0");
	if (q->order == STORE_BY_LANE)
		buf_puts(b, " AND j.lane IS NOT NULL AND j.state IN ('pending', 'running')");
	if (q->lane)
		buf_puts(b, " AND j.lane = ?5");
	if (q->held)
		buf_puts(b, " AND j.state = 'pending' AND j.held_reason IS NOT NULL");
	if (q->bound || q->cancelling)
		buf_puts(b, " AND j.is_bound = 1");
	if (q->cancelling)
		buf_puts(b, " AND j.cancel_ms IS NOT NULL");
	if (q->node)
		buf_puts(b,
			" AND j.id IN (SELECT job FROM attempts WHERE node = ?1"
			" UNION SELECT id FROM jobs WHERE node_constraint = ?1) AND coalesce(a.node, j.node_constraint) = ?1");
	if (q->tag)
		buf_puts(b, " AND j.id IN (SELECT job FROM job_tags WHERE tag = ?2)");
	if (q->name)
		buf_puts(b, " AND j.name = ?3");
	if (q->submitter)
		buf_puts(b, " AND j.submitter = ?4");
	put_bounds(b, q);
}

/* Without statistics SQLite takes the index on the state for these, and then sorts or looks at all that wait. */
static const char *pick_index(const struct store_question *q)
{
	if (q->ids)
		return NULL;
	if (q->order == STORE_BY_TURN)
		return "jobs_turn";
	if (q->order == STORE_BY_END)
		return "jobs_ended";
	if (q->order == STORE_BY_LANE)
		return "jobs_lane_active";
	if (q->bound || q->cancelling)
		return "jobs_bound";
	return q->held ? "jobs_held" : NULL;
}

static void put_question(struct buf *b, const struct store_question *q)
{
	row_put_select(b, q->command_max, q->to_place, pick_index(q));
	put_where(b, q);
	if (q->order == STORE_BY_TURN)
		buf_puts(b, " ORDER BY j.priority DESC, j.id");
	else if (q->order == STORE_BY_END)
		buf_puts(b, " ORDER BY j.finished_ms DESC, j.id DESC");
	else if (q->order == STORE_BY_LANE)
		buf_puts(b, " ORDER BY j.lane, j.state = 'running' DESC, j.lane_seq, j.id");
	else
		buf_puts(b, q->newest && q->limit ? " ORDER BY j.id DESC" : " ORDER BY j.id");
	if (q->limit)
		buf_printf(b, " LIMIT %zu", q->limit + 1);
}

static void bind_question(sqlite3_stmt *st, const struct store_question *q)
{
	const char *texts[] = {q->node, q->tag, q->name, q->submitter, q->lane};

	for (int i = 0; i < (int)ARRAY_LEN(texts); i++) {
		if (texts[i])
			sqlite3_bind_text(st, i + 1, texts[i], -1, SQLITE_STATIC);
	}
}

static void reverse(struct store_jobs *l)
{
	for (size_t i = 0; i < l->n / 2; i++) {
		struct job j = l->v[i];

		l->v[i] = l->v[l->n - 1 - i];
		l->v[l->n - 1 - i] = j;
	}
}

/*
 * Room for one more. Ten thousand jobs are 7 MiB, and the kernel's work for each fresh page of them was a tenth of a whole pass: so
 * a long list lies in huge pages, where the machine has any to give. What isn't used of them costs nothing.
 */
#define HUGE_PAGE ((size_t)2 << 20)
#define LONG_LIST ((size_t)16 << 20)
static void make_room(struct store_jobs *l, size_t *cap)
{
	size_t size = 2 * *cap * sizeof(*l->v);
	void *v;

	if (l->n < *cap || size < HUGE_PAGE) {
		GROW(l->v, l->n, *cap);
		return;
	}
	size = size < LONG_LIST ? LONG_LIST : (size + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
	v = aligned_alloc(HUGE_PAGE, size);
	if (!v) {
		GROW(l->v, l->n, *cap);
		return;
	}
	madvise(v, size, MADV_HUGEPAGE);
	memcpy(v, l->v, l->n * sizeof(*l->v));
	free(l->v);
	l->v = v;
	*cap = size / sizeof(*l->v);
}

static int read_page(struct store *s, sqlite3_stmt *st, const struct store_question *q,
	struct store_jobs *ret, struct err *e)
{
	size_t cap = 0;
	int r;

	while ((r = db_next(s, st, e)) > 0) {
		if (q->limit && ret->n == q->limit) {
			ret->has_more = true;
			break;
		}
		make_room(ret, &cap);
		if (q->to_place)
			row_read_to_place(st, &ret->v[ret->n++]);
		else
			row_read(st, &ret->v[ret->n++]);
	}
	for (size_t i = 0; r >= 0 && !q->no_needs && i < ret->n; i++)
		r = row_read_needs(s, &ret->v[i], e);
	return r < 0 ? r : 0;
}

int store_jobs(
	struct store *s, const struct store_question *q, struct store_jobs *ret, struct err *e)
{
	CLEANUP(buf_done) struct buf text = {0};
	struct store_jobs l = {0};
	sqlite3_stmt *st = NULL;
	bool mine;
	int rc, r = db_read_begin(s, &mine, e);

	if (r < 0)
		return r;
	put_question(&text, q);
	rc = sqlite3_prepare_v2(s->db, buf_str(&text), -1, &st, NULL);
	if (rc != SQLITE_OK) {
		r = db_error(s, rc, e);
	} else {
		bind_question(st, q);
		r = read_page(s, st, q, &l, e);
		sqlite3_finalize(st);
	}
	db_read_end(s, mine);
	if (r < 0) {
		store_jobs_done(&l);
		return r;
	}
	if (q->newest && q->limit && q->order == STORE_BY_ID)
		reverse(&l);
	*ret = l;
	return 0;
}

void store_jobs_done(struct store_jobs *l)
{
	for (size_t i = 0; i < l->n; i++)
		job_done(&l->v[i]);
	free(l->v);
	*l = (struct store_jobs){0};
}

/* ---- figures ---- */

static int count_states(struct store *s, struct store_counts *ret, struct err *e)
{
	sqlite3_stmt *st = NULL;
	enum job_state state;
	int r = db_ask(s, &st, e, "SELECT state, count(*) FROM jobs GROUP BY state", "");

	for (; r > 0; r = db_next(s, st, e)) {
		if (job_state_from_name((const char *)sqlite3_column_text(st, 0), &state) == 0)
			ret->by_state[state] = sqlite3_column_int64(st, 1);
	}
	return r;
}

int store_counts(struct store *s, struct store_counts *ret, struct err *e)
{
	struct store_counts c = {0};
	bool mine;
	int r = db_read_begin(s, &mine, e);

	if (r < 0)
		return r;
	r = count_states(s, &c, e);
	if (r >= 0)
		r = db_int(s, &c.held, e,
			"SELECT count(*) FROM jobs INDEXED BY jobs_held WHERE state = 'pending' AND held_reason IS NOT NULL",
			"");
	if (r >= 0)
		r = db_int(s, &c.cancelling, e,
			"SELECT count(*) FROM jobs WHERE is_bound = 1 AND cancel_ms IS NOT NULL",
			"");
	if (r >= 0)
		r = db_int(s, &c.pending_reaps, e,
			"SELECT count(*) FROM attempts WHERE wants_reap = 1", "");
	if (r >= 0)
		r = db_int(s, &c.open_alerts, e,
			"SELECT count(*) FROM alerts WHERE acknowledged_ms IS NULL", "");
	if (r >= 0)
		r = db_int(s, &c.last_event, e, "SELECT max(id) FROM events", "");
	if (r >= 0)
		r = db_int(s, &c.last_job, e, "SELECT max(id) FROM jobs", "");
	db_read_end(s, mine);
	if (r < 0)
		return r;
	c.by_state[JOB_STATE_PENDING] -= c.held;
	*ret = c;
	return 0;
}

int store_some_wait(struct store *s, bool held, bool *ret, struct err *e)
{
	int64_t id;
	int r = db_int(s, &id, e,
		held ? "SELECT id FROM jobs INDEXED BY jobs_held WHERE state = 'pending' AND held_reason IS NOT NULL LIMIT 1"
		     : "SELECT id FROM jobs INDEXED BY jobs_turn WHERE state = 'pending' AND held_reason IS NULL LIMIT 1",
		"");

	if (r < 0)
		return r;
	*ret = r > 0;
	return 0;
}

/*
 * From the first that waits on, have few jobs any needs? Then the way goes from those to the jobs; else from the jobs that wait
 * to their needs: all of history may have some.
 */
#define FEW_NEEDS 1000
static int has_few_needs(struct store *s, int64_t *ret_first, bool *ret_few, struct err *e)
{
	int64_t n = 0;
	int r = db_int(s, ret_first, e,
		"SELECT id FROM jobs INDEXED BY jobs_state WHERE state = 'pending' ORDER BY id LIMIT 1",
		"");

	/* Nothing waits. */
	if (r == 0)
		*ret_first = INT64_MAX;
	if (r > 0)
		r = db_int(s, &n, e,
			"SELECT count(*) FROM (SELECT 1 FROM needs WHERE job >= ?1 LIMIT ?2)", "ii",
			*ret_first, DB_I64(FEW_NEEDS));
	*ret_few = n < FEW_NEEDS;
	return r < 0 ? r : 0;
}

#define UNMET \
	" LEFT JOIN jobs p ON p.id = n.needs WHERE n.job >= ?1 AND j.state = 'pending' AND (p.id IS NULL" \
	" OR (n.kind = 0 AND p.state <> 'completed') OR p.state IN ('pending', 'running'))" \
	" ORDER BY n.job, n.kind, n.needs"

int store_unmet(struct store *s, struct store_unmet_row **ret, size_t *ret_n, struct err *e)
{
	struct store_unmet_row *rows = NULL;
	size_t n = 0, cap = 0;
	sqlite3_stmt *st = NULL;
	int64_t first = 0;
	bool few = false;
	int r = has_few_needs(s, &first, &few, e);

	if (r == 0)
		r = db_ask(s, &st, e,
			few ? "SELECT n.job, n.needs, n.kind, p.state FROM needs n CROSS JOIN jobs j ON j.id = n.job" UNMET
			    : "SELECT n.job, n.needs, n.kind, p.state FROM jobs j INDEXED BY jobs_state"
			      " CROSS JOIN needs n ON n.job = j.id" UNMET,
			"i", first);
	for (; r > 0; r = db_next(s, st, e)) {
		GROW(rows, n, cap);
		rows[n] = (struct store_unmet_row){.job = sqlite3_column_int64(st, 0),
			.needs = sqlite3_column_int64(st, 1),
			.any = sqlite3_column_int(st, 2) != 0};
		job_state_from_name((const char *)sqlite3_column_text(st, 3), &rows[n++].state);
	}
	if (r < 0) {
		free(rows);
		return r;
	}
	*ret = rows;
	*ret_n = n;
	return 0;
}

int store_dependents(struct store *s, int64_t id, int64_t **ret, size_t *ret_n, struct err *e)
{
	int64_t *ids = NULL;
	size_t n = 0, cap = 0;
	sqlite3_stmt *st = NULL;
	int r = db_ask(s, &st, e,
		"SELECT DISTINCT n.job FROM needs n JOIN jobs j ON j.id = n.job WHERE n.needs = ?1"
		" AND j.state IN ('pending', 'running') ORDER BY 1",
		"i", id);

	for (; r > 0; r = db_next(s, st, e)) {
		GROW(ids, n, cap);
		ids[n++] = sqlite3_column_int64(st, 0);
	}
	if (r < 0) {
		free(ids);
		return r;
	}
	*ret = ids;
	*ret_n = n;
	return 0;
}

/* ---- history ---- */

static void read_attempt(sqlite3_stmt *st, struct store_attempt *ret)
{
	*ret = (struct store_attempt){.job = sqlite3_column_int64(st, 0),
		.attempt = sqlite3_column_int64(st, 1),
		.bound_ms = sqlite3_column_int64(st, 8),
		.started_ms = db_i64(st, 9, 0),
		.finished_ms = db_i64(st, 10, 0),
		.elapsed_ms = db_i64(st, 11, -1),
		.pid = db_i64(st, 12, 0),
		.start_ticks = db_i64(st, 13, 0),
		.run_dir = db_text(st, 14),
		.is_settled = sqlite3_column_int(st, 15) != 0,
		.ended_as = (enum job_step)sqlite3_column_int(st, 16),
		.has_exit_code = sqlite3_column_type(st, 17) != SQLITE_NULL,
		.exit_code = db_i64(st, 17, 0),
		.peak_mib = db_i64(st, 19, -1),
		.error = db_text(st, 20)};
	row_read_bind(st, 2, &ret->bind);
	job_cause_from_name((const char *)sqlite3_column_text(st, 18), &ret->cause);
}

#define ATTEMPT_COLUMNS \
	"SELECT job, attempt, token, node, root_id, boot_id, machine_key, cards, bound_ms, started_ms, finished_ms," \
	" elapsed_ms, pid, start_ticks, run_dir, is_settled, ended_as, exit_code, cause, peak_mib, error FROM attempts "

/* r and st: what the question was answered with. */
static int read_attempts(
	struct store *s, int r, sqlite3_stmt *st, struct store_attempts *ret, struct err *e)
{
	struct store_attempts l = {0};
	size_t cap = 0;

	for (; r > 0; r = db_next(s, st, e)) {
		GROW(l.v, l.n, cap);
		read_attempt(st, &l.v[l.n++]);
	}
	if (r < 0) {
		store_attempts_done(&l);
		return r;
	}
	*ret = l;
	return 0;
}

int store_attempts(struct store *s, int64_t job, struct store_attempts *ret, struct err *e)
{
	sqlite3_stmt *st = NULL;
	int r = db_ask(s, &st, e, ATTEMPT_COLUMNS "WHERE job = ?1 ORDER BY attempt", "i", job);

	return read_attempts(s, r, st, ret, e);
}

int store_reaps(struct store *s, const char *node, struct store_attempts *ret, struct err *e)
{
	sqlite3_stmt *st = NULL;
	int r = db_ask(s, &st, e,
		ATTEMPT_COLUMNS
		"WHERE wants_reap = 1 AND (?1 IS NULL OR node = ?1) ORDER BY job, attempt",
		"t", node);

	return read_attempts(s, r, st, ret, e);
}

void store_attempts_done(struct store_attempts *l)
{
	for (size_t i = 0; i < l->n; i++) {
		job_bind_done(&l->v[i].bind);
		free(l->v[i].run_dir);
		free(l->v[i].error);
	}
	free(l->v);
	*l = (struct store_attempts){0};
}
