/* A Python nvidb's database is taken over: all of it or nothing, and itself never touched. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "store_fixture.h"

#include "base/cleanup.h"
#include "store/store_inner.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define TABLES \
	"CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT);" \
	"INSERT INTO meta VALUES ('schema_version', '2');" \
	"CREATE TABLE nodes (name TEXT PRIMARY KEY, hostname TEXT, port INTEGER DEFAULT 22, username TEXT," \
	" state TEXT DEFAULT 'unknown', enabled INTEGER DEFAULT 1, ignored INTEGER DEFAULT 0, last_seen TEXT);" \
	"INSERT INTO nodes (name, enabled, ignored) VALUES ('n1', 1, 0), ('n2', 0, 0), ('n3', 1, 1);" \
	"CREATE TABLE lanes (name TEXT PRIMARY KEY, node TEXT, gpu_ids TEXT);" \
	"INSERT INTO lanes VALUES ('n1:0', 'n1', '0');"
#define JOBS \
	"CREATE TABLE jobs (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, command TEXT NOT NULL, workdir TEXT, env TEXT," \
	" state TEXT DEFAULT 'pending', priority INTEGER DEFAULT 0, gpus INTEGER DEFAULT 1, vram_mb INTEGER DEFAULT 0," \
	" node_constraint TEXT, depends_on TEXT, depends_any TEXT, max_runtime_s INTEGER, submitter TEXT, tags TEXT," \
	" created_at TEXT, updated_at TEXT, started_at TEXT, finished_at TEXT, node TEXT, gpu_ids TEXT, lane TEXT," \
	" lane_seq INTEGER, remote_pid INTEGER, remote_pgid INTEGER, run_dir TEXT, exit_code INTEGER, attempt INTEGER DEFAULT 0," \
	" max_retries INTEGER DEFAULT 0, last_error TEXT, heartbeat_at TEXT, gpu_mem_mb INTEGER, result TEXT, notes TEXT," \
	" progress TEXT, progress_at TEXT, held_reason TEXT);" \
	"INSERT INTO jobs (id, name, command, env, state, priority, gpus, vram_mb, max_runtime_s, submitter, tags, created_at," \
	" updated_at, started_at, finished_at, node, gpu_ids, remote_pid, run_dir, exit_code, attempt, max_retries, gpu_mem_mb," \
	" result, notes, progress) VALUES (3, 'first', 'python a.py --lr 1', '{\"A\": \"1\"}', 'completed', 5, 2, 8000, 60, 'me'," \
	" '[\"x\", \"y\"]', '2026-01-02T03:04:05+00:00', '2026-01-02T03:04:09+00:00', '2026-01-02T04:04:06+01:00'," \
	" '2026-01-02T03:04:08+00:00', 'n1', '3,0', 4711, '/home/me/.nvidb/jobs/3', 0, 1, 2, 7000, '{\"acc\": NaN}', 'a note', '9/9');" \
	"INSERT INTO jobs (id, command, state, created_at, started_at, finished_at, node, gpu_ids, exit_code, attempt)" \
	" VALUES (4, 'b', 'failed', '2026-01-02T03:04:05+00:00', '2026-01-02T03:04:06+00:00', '2026-01-02T03:04:07+00:00', 'n1', '1', 137, 1);" \
	"INSERT INTO jobs (id, command, state, created_at, last_error)" \
	" VALUES (5, 'c', 'failed', '2026-01-02T03:04:05+00:00', 'no card is that large');" \
	"INSERT INTO jobs (id, command, state, created_at, depends_on, depends_any, vram_mb, attempt, gpu_mem_mb, priority)" \
	" VALUES (6, 'd', 'pending', '2026-01-02T03:04:05+00:00', '4,3,2', '5', 4000, 1, 17, -3);" \
	"INSERT INTO jobs (id, command, state, created_at, started_at, node, gpu_ids, remote_pid, run_dir, attempt)" \
	" VALUES (7, 'e', 'running', '2026-01-02T03:04:05+00:00', '2026-01-02T03:04:06+00:00', 'n2', '0', 99, '/r/7', 2);" \
	"INSERT INTO jobs (id, command, state, created_at, lane, lane_seq, run_dir)" \
	" VALUES (8, 'f', 'pending', '2026-01-02T03:04:05+00:00', 'n1:0', 1000, '/r/8');" \
	"INSERT INTO jobs (id, command, state, created_at, lane, lane_seq, held_reason)" \
	" VALUES (9, 'g', 'pending', '2026-01-02T03:04:05+00:00', 'n1:0', 2000, 'waits for a dead one');" \
	"INSERT INTO jobs (id, command, state) VALUES (10, 'h', 'timeout'), (11, 'i', 'cancelled'), (12, 'j', 'lost'), (50, 'z', 'pending');" \
	"DELETE FROM jobs WHERE id = 50;"
#define NEWS \
	"CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, ts TEXT, kind TEXT, job_id INTEGER, node TEXT, message TEXT, data TEXT);" \
	"INSERT INTO events (ts, kind, job_id, node, message, data) VALUES" \
	" ('2026-01-02T03:04:05+00:00', 'job_submitted', 3, NULL, 'first', '{\"gpus\": 2}')," \
	" ('2026-01-02T03:04:06+00:00', 'of_another_time', 3, NULL, NULL, NULL)," \
	" ('2026-01-02T03:04:08+00:00', 'job_finished', 3, 'n1', 'completed', NULL);" \
	"CREATE TABLE alerts (id INTEGER PRIMARY KEY AUTOINCREMENT, ts TEXT, kind TEXT, severity TEXT DEFAULT 'error', job_id INTEGER," \
	" node TEXT, title TEXT NOT NULL, detail TEXT, acknowledged_at TEXT, notified_at TEXT);" \
	"INSERT INTO alerts (ts, kind, job_id, title, acknowledged_at) VALUES" \
	" ('2026-01-02T03:04:07+00:00', 'job_failed', 4, 'job 4 failed', NULL)," \
	" ('2026-01-02T03:04:07+00:00', 'job_failed', 5, 'job 5 failed', '2026-01-03T00:00:00+00:00');"
#define ALL TABLES JOBS NEWS

static char *at(const struct bed *b, const char *name)
{
	return xasprintf("%s/%s", b->dir, name);
}

static void run_sql(const char *path, const char *sql)
{
	sqlite3 *db;
	char *said = NULL;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	if (sqlite3_exec(db, sql, NULL, NULL, &said) != SQLITE_OK)
		fail_msg("%s", said);
	sqlite3_close(db);
}

/* As a Python that was killed at work leaves it: everything stands in the log only. */
static void make_killed(const char *path, const char *sql)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		sqlite3 *db;
		int r = sqlite3_open(path, &db);

		r |= sqlite3_exec(db, "PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0;", NULL,
			NULL, NULL);
		r |= sqlite3_exec(db, sql, NULL, NULL, NULL);
		_exit(r != 0);
	}
	waitpid(pid, &status, 0);
	assert_int_equal(status, 0);
}

static void make_closed(const char *path, const char *sql)
{
	CLEANUP_FREE char *text = xasprintf("PRAGMA journal_mode=WAL;%s", sql);

	run_sql(path, text);
}

/* All bytes of all files of that name. */
static char *fingerprint(const char *path)
{
	static const char *const ends[] = {"", "-wal", "-shm", "-journal", ".lock"};
	CLEANUP(buf_done) struct buf all = {0};
	uint8_t digest[32];
	char *hex = xcalloc(1, 65);

	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		CLEANUP_FREE char *name = xasprintf("%s%s", path, ends[i]);
		CLEANUP(buf_done) struct buf b = {0};

		if (fd_read_file_at(AT_FDCWD, name, &b, 64 << 20) == 0)
			buf_printf(&all, "%s %zu", ends[i], b.len);
		buf_put(&all, b.data, b.len);
	}
	sha256(all.data, all.len, digest);
	hex_encode(digest, 32, hex);
	return hex;
}

static void check_ended(struct bed *b)
{
	struct store_attempts l;
	struct job j = get(b, 3);

	assert_int_equal(j.state, JOB_STATE_COMPLETED);
	assert_string_equal(j.name, "first");
	assert_string_equal(j.command, "python a.py --lr 1");
	assert_string_equal(j.shape, "python a.py --lr <n>");
	assert_string_equal(j.env, "{\"A\": \"1\"}");
	assert_string_equal(j.tags, "[\"x\", \"y\"]");
	assert_string_equal(j.notes, "a note");
	assert_string_equal(j.progress, "9/9");
	/* Python writes what isn't JSON: kept as the text it was. */
	assert_string_equal(j.result, "\"{\\\"acc\\\": NaN}\"");
	assert_true(j.priority == 5 && j.gpus == 2 && j.vram_mib == 8000 &&
		    j.vram_source == VRAM_DECLARED && j.max_runtime_ms == 60000 &&
		    j.max_retries == 2 && j.gpu_mem_mib == 7000 && j.attempt == 1);
	assert_int_equal(j.created_ms, 1767323045000);
	assert_int_equal(j.started_ms, 1767323046000); /* it was written with an offset */
	assert_int_equal(j.finished_ms, 1767323048000);
	assert_int_equal(j.elapsed_ms, 2000);
	assert_true(j.has_exit_code && !j.exit_code && !j.is_bound);
	assert_string_equal(j.bind.node, "n1");
	assert_true(
		j.bind.n_cards == 2 && j.bind.cards[0].index == 0 && j.bind.cards[1].index == 3);
	assert_string_equal(j.run_dir, "/home/me/.nvidb/jobs/3");
	assert_int_equal(j.pid, 4711);
	job_done(&j);
	OK(store_attempts(b->s, 3, &l, &why));
	assert_true(l.n == 1 && l.v[0].is_settled && l.v[0].ended_as == JOB_STEP_COMPLETE);
	store_attempts_done(&l);
}

static void cause_is(struct bed *b, int64_t id, enum job_state state, enum job_cause cause)
{
	struct job j = get(b, id);

	assert_int_equal(j.state, state);
	assert_int_equal(j.cause, cause);
	assert_true(j.finished_ms > 0);
	job_done(&j);
}

static void check_waiting(struct bed *b)
{
	struct job j = get(b, 6);

	assert_int_equal(j.state, JOB_STATE_PENDING);
	assert_true(j.n_after == 3 && j.after[0] == 2 && j.after[2] == 4);
	assert_true(j.n_after_any == 1 && j.after_any[0] == 5);
	assert_true(j.priority == -3 && j.vram_mib == 4000 && !j.held_reason && j.attempt == 1);
	assert_int_equal(j.gpu_mem_mib, -1);
	job_done(&j);
	/* A runner may start it without asking us. */
	j = get(b, 8);
	assert_string_equal(j.lane, "n1:0");
	assert_int_equal(j.lane_seq, 1000);
	assert_non_null(strstr(j.held_reason, "runner of lane n1:0"));
	assert_int_equal(j.vram_mib, 0);
	job_done(&j);
	j = get(b, 9);
	assert_string_equal(j.held_reason, "waits for a dead one");
	job_done(&j);
	j = get(b, 7);
	assert_int_equal(j.state, JOB_STATE_LOST);
	assert_int_equal(j.cause, JOB_CAUSE_VANISHED);
	assert_non_null(strstr(j.last_error, "on n2 as process 99 in /r/7"));
	assert_string_equal(j.bind.node, "n2");
	job_done(&j);
}

static void check_news(struct bed *b)
{
	struct store_events events;
	struct store_alerts alerts;
	struct store_nodes nodes;

	OK(store_events(b->s, 0, 0, 0, &events, &why));
	assert_int_equal(events.n, 2);
	assert_true(events.v[0].id == 1 && events.v[1].id == 3 && events.v[1].job == 3 &&
		    events.v[1].kind == EVENT_JOB_FINISHED && events.v[1].ts_ms == 1767323048000);
	assert_string_equal(events.v[0].data, "{\"gpus\": 2}");
	store_events_done(&events);
	OK(store_alerts(b->s, STORE_ALERTS_OPEN, 0, &alerts, &why));
	assert_int_equal(alerts.n, 1);
	assert_string_equal(alerts.v[0].title, "job 4 failed");
	assert_true(alerts.v[0].notified_ms > 0);
	store_alerts_done(&alerts);
	OK(store_alerts(b->s, STORE_ALERTS_UNDELIVERED, 0, &alerts, &why));
	assert_int_equal(alerts.n, 0); /* nobody is woken by last year's */
	store_alerts_done(&alerts);
	OK(store_nodes(b->s, &nodes, &why));
	assert_int_equal(nodes.n, 2);
	assert_true(nodes.v[0].is_drained && !nodes.v[0].is_ignored && nodes.v[1].is_ignored);
	store_nodes_done(&nodes);
}

static void check_all(struct bed *b, const struct store_imported *c)
{
	assert_true(c->jobs == 10 && c->pending == 3 && c->running == 1 && c->held == 2);
	assert_true(c->events == 2 && c->alerts == 2 && c->skipped == 1);
	check_ended(b);
	check_waiting(b);
	check_news(b);
	cause_is(b, 4, JOB_STATE_FAILED, JOB_CAUSE_SIGNAL);
	cause_is(b, 5, JOB_STATE_FAILED, JOB_CAUSE_UNSCHEDULABLE);
	cause_is(b, 10, JOB_STATE_TIMEOUT, JOB_CAUSE_TIMEOUT);
	cause_is(b, 11, JOB_STATE_CANCELLED, JOB_CAUSE_CANCELLED);
	cause_is(b, 12, JOB_STATE_LOST, JOB_CAUSE_VANISHED);
	OK(store_check(b->s, &why));
	assert_int_equal(submit(b, "new"), 51); /* the purged one's number isn't given again */
}

static int import(struct bed *b, const char *path, struct store_imported *ret)
{
	int r;

	OK(store_begin(b->s, NULL, &why));
	r = store_import_nvidb(b->s, path, ret, &why);
	if (r < 0)
		store_abort(b->s);
	else
		commit(b);
	return r;
}

static void test_all_of_it(void **state)
{
	struct bed *b = *state;
	CLEANUP_FREE char *path = at(b, "py.db"), *before = NULL, *after = NULL;
	struct store_imported c;

	make_closed(path, ALL);
	before = fingerprint(path);
	OK(import(b, path, &c));
	after = fingerprint(path);
	assert_string_equal(before, after);
	check_all(b, &c);
}

static void test_what_stands_in_the_log_only(void **state)
{
	struct bed *b = *state;
	CLEANUP_FREE char *path = at(b, "py.db"), *tmp = at(b, "tmp"), *before = NULL,
			  *after = NULL;
	struct store_imported c;

	make_killed(path, ALL);
	before = fingerprint(path);
	mkdir(tmp, 0700);
	setenv("TMPDIR", tmp, 1);
	OK(import(b, path, &c));
	unsetenv("TMPDIR");
	after = fingerprint(path);
	assert_string_equal(before, after);
	assert_int_equal(rmdir(tmp), 0); /* nothing of the copy stays */
	check_all(b, &c);
}

/* An old file lacks columns and tables. */
static void test_an_older_schema(void **state)
{
	struct bed *b = *state;
	CLEANUP_FREE char *path = at(b, "py.db");
	struct store_imported c;
	struct job j;

	make_closed(path,
		"CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT); INSERT INTO meta VALUES ('schema_version', '1');"
		"CREATE TABLE jobs (id INTEGER PRIMARY KEY, command TEXT NOT NULL, state TEXT);"
		"INSERT INTO jobs VALUES (2, 'x', 'completed'), (4, 'y', 'pending');");
	OK(import(b, path, &c));
	assert_true(c.jobs == 2 && c.pending == 1 && !c.events);
	j = get(b, 4);
	assert_true(j.gpus == 1 && !j.n_after && j.created_ms > 0);
	job_done(&j);
	assert_int_equal(submit(b, "new"), 5);
}

static void test_one_bad_row_and_nothing_is_taken(void **state)
{
	struct bed *b = *state;
	CLEANUP_FREE char *path = at(b, "py.db");
	struct store_imported c;
	struct store_counts n;

	make_closed(path, ALL "UPDATE jobs SET state = 'odd' WHERE id = 12;");
	assert_int_equal(import(b, path, &c), -EBADMSG);
	assert_non_null(strstr(why.text, "job 12 of "));
	assert_non_null(strstr(why.text, "'odd'"));
	run_sql(path, "UPDATE jobs SET state = 'lost', env = '[1]' WHERE id = 12");
	assert_int_equal(import(b, path, &c), -EINVAL);
	/* And whoever goes on all the same can't keep the half. */
	OK(store_begin(b->s, NULL, &why));
	assert_true(store_import_nvidb(b->s, path, &c, &why) < 0);
	assert_int_equal(store_commit(b->s, &why), -EIO);
	OK(store_counts(b->s, &n, &why));
	assert_true(!n.last_job && !n.last_event);
}

static void test_what_is_refused(void **state)
{
	struct bed *b = *state;
	CLEANUP_FREE char *path = at(b, "py.db"), *other = at(b, "other.db");
	struct store_imported c;

	assert_int_equal(import(b, path, &c), -ENOENT);
	run_sql(other, "CREATE TABLE x (y)");
	assert_int_equal(import(b, other, &c), -EMEDIUMTYPE);
	assert_int_equal(import(b, b->path, &c), -EMEDIUMTYPE);
	make_closed(path, ALL);
	submit(b, "mine");
	assert_int_equal(import(b, path, &c), -EEXIST);
	assert_int_equal(store_import_nvidb(b->s, path, &c, &why), -EINVAL);
}

/* A Python that has it open would go on with the jobs. */
static pid_t hold_open(const char *path, const char *sql, int *ret_in)
{
	int go[2], said[2];
	char c;
	pid_t pid;

	assert_int_equal(pipe(go), 0);
	assert_int_equal(pipe(said), 0);
	pid = fork();
	if (pid == 0) {
		sqlite3 *db;

		close(go[1]);
		close(said[0]);
		if (sqlite3_open(path, &db) != SQLITE_OK ||
			sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK ||
			write(said[1], "x", 1) != 1 || read(go[0], &c, 1) < 0)
			_exit(1);
		_exit(0);
	}
	close(go[0]);
	close(said[1]);
	assert_int_equal(read(said[0], &c, 1), 1);
	close(said[0]);
	*ret_in = go[1];
	return pid;
}

static void test_one_that_is_in_use_is_left_alone(void **state)
{
	struct bed *b = *state;
	CLEANUP_FREE char *path = at(b, "py.db");
	struct nvidb_source src;
	struct store_imported c;
	char name[32];
	int in, status;
	pid_t pid;

	make_closed(path, ALL);
	pid = hold_open(path, "SELECT count(*) FROM jobs", &in);
	snprintf(name, sizeof(name), "process %d has ", (int)pid);
	assert_int_equal(nvidb_open(path, &src, &why), -EBUSY);
	assert_int_equal(import(b, path, &c), -EBUSY);
	assert_non_null(strstr(why.text, name));
	close(in);
	waitpid(pid, &status, 0);
	OK(import(b, path, &c));
	check_all(b, &c);
}

static void test_one_that_changes_meanwhile(void **state)
{
	struct bed *b = *state;
	CLEANUP_FREE char *path = at(b, "py.db");
	struct nvidb_source src;

	make_closed(path, ALL);
	OK(nvidb_open(path, &src, &why));
	OK(nvidb_is_unchanged(&src, &why));
	run_sql(path, "UPDATE jobs SET priority = 9");
	assert_int_equal(nvidb_is_unchanged(&src, &why), -EBUSY);
	nvidb_close(&src);
}

/* ---- the take-over ---- */

static int take_over(const char *path, const char *target, struct store_imported *c, char **moved)
{
	struct store_options o = {.mode = STORE_WRITE};

	return store_take_over_nvidb(path, target, &o, c, moved, &why);
}

static void drop_store(struct bed *b)
{
	CLEANUP_FREE char *wal = at(b, "queue.db-wal"), *shm = at(b, "queue.db-shm"),
			  *lock = at(b, "queue.db.lock");

	store_close(b->s);
	b->s = NULL;
	unlink(b->path);
	unlink(wal);
	unlink(shm);
	unlink(lock);
}

static void nothing_is_left(struct bed *b)
{
	static const char *const names[] = {"queue.db.new", "queue.db.new-wal", "queue.db.new-shm",
		"queue.db.new.lock", "queue-nvidb.db.lock"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		CLEANUP_FREE char *path = at(b, names[i]);

		if (access(path, F_OK) == 0)
			fail_msg("%s is left", path);
	}
}

static int n_fresh;

static void check_taken(struct bed *b, const struct store_imported *c, bool had_log)
{
	CLEANUP_FREE char *moved = at(b, "queue-nvidb.db"), *log = at(b, "queue-nvidb.db-wal"),
			  *fresh = xasprintf("%s/fresh%d.db", b->dir, n_fresh++);
	struct bed again = {0};
	struct store_imported d;

	nothing_is_left(b);
	assert_int_equal(access(log, F_OK), had_log ? 0 : -1);
	OK(open_as(b->path, STORE_WRITE, &b->s));
	check_all(b, c);
	/* The Python's is whole under its new name. */
	OK(open_as(fresh, STORE_WRITE, &again.s));
	OK(import(&again, moved, &d));
	assert_int_equal(d.jobs, 10);
	store_close(again.s);
}

static void test_it_takes_the_place(void **state)
{
	struct bed *b = *state;
	CLEANUP_FREE char *want = at(b, "queue-nvidb.db");

	for (int had_log = 0; had_log < 2; had_log++) {
		CLEANUP_FREE char *moved = NULL;
		struct store_imported c;

		drop_store(b);
		(had_log ? make_killed : make_closed)(b->path, ALL);
		OK(take_over(b->path, b->path, &c, &moved));
		assert_string_equal(moved, want);
		check_taken(b, &c, had_log);
		/* Once is enough; another one isn't put over what was kept. */
		assert_int_equal(take_over(b->path, b->path, &c, &moved), -EEXIST);
		unlink(want);
	}
}

static void test_from_another_place(void **state)
{
	struct bed *b = *state;
	CLEANUP_FREE char *path = at(b, "py.db"), *before = NULL, *after = NULL;
	char *moved = (char *)"x";
	struct store_imported c;

	drop_store(b);
	make_closed(path, ALL);
	before = fingerprint(path);
	OK(take_over(path, b->path, &c, &moved));
	assert_null(moved);
	after = fingerprint(path);
	assert_string_equal(before, after);
	OK(open_as(b->path, STORE_WRITE, &b->s));
	check_all(b, &c);
	assert_int_equal(take_over(path, b->path, &c, &moved), -EEXIST);
}

static void test_a_take_over_that_fails_changes_nothing(void **state)
{
	struct bed *b = *state;
	CLEANUP_FREE char *kept = at(b, "queue-nvidb.db"), *lock = at(b, "queue.db.lock"),
			  *before = NULL, *after = NULL;
	char *moved = NULL;
	struct store_imported c;

	drop_store(b);
	make_closed(b->path, ALL "UPDATE jobs SET state = 'odd' WHERE id = 12;");
	before = fingerprint(b->path);
	assert_int_equal(take_over(b->path, b->path, &c, &moved), -EBADMSG);
	setenv("GPUSTOW_FAULT", "store.before-commit:enospc", 1);
	assert_true(take_over(b->path, b->path, &c, &moved) < 0);
	unsetenv("GPUSTOW_FAULT");
	nothing_is_left(b);
	assert_int_equal(access(kept, F_OK), -1);
	unlink(lock);
	after = fingerprint(b->path);
	assert_string_equal(before, after);
	assert_null(moved);
}

/* Killed anywhere on the way: the same command makes it whole. */
static void test_killed_on_the_way(void **state)
{
	static const char *const points[] = {"store.before-commit", "store.after-commit",
		"takeover.before-names", "takeover.before-rename", "takeover.after-rename"};
	struct bed *b = *state;
	CLEANUP_FREE char *kept = at(b, "queue-nvidb.db"), *log = at(b, "queue-nvidb.db-wal");

	for (size_t i = 0; i < 2 * ARRAY_LEN(points); i++) {
		CLEANUP_FREE char *moved = NULL;
		struct store_imported c;
		const char *point = points[i / 2];
		bool had_log = i % 2;
		int status;
		pid_t pid;

		drop_store(b);
		unlink(kept);
		unlink(log);
		(had_log ? make_killed : make_closed)(b->path, ALL);
		pid = fork();
		if (pid == 0) {
			CLEANUP_FREE char *fault = xasprintf("%s:kill", point);

			setenv("GPUSTOW_FAULT", fault, 1);
			_exit(take_over(b->path, b->path, &c, &moved) < 0);
		}
		waitpid(pid, &status, 0);
		if (!WIFSIGNALED(status))
			fail_msg("%s wasn't passed", point);
		if (strcmp(point, "takeover.after-rename") == 0) {
			c = (struct store_imported){10, 3, 1, 2, 2, 2, 1};
		} else {
			/* Nobody can use half a queue meanwhile. */
			assert_int_equal(open_as(b->path, STORE_WRITE, &b->s), -EMEDIUMTYPE);
			OK(take_over(b->path, b->path, &c, &moved));
		}
		check_taken(b, &c, had_log);
	}
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, bed_make, bed_drop)
	const struct CMUnitTest tests[] = {
		T(test_all_of_it),
		T(test_what_stands_in_the_log_only),
		T(test_an_older_schema),
		T(test_one_bad_row_and_nothing_is_taken),
		T(test_what_is_refused),
		T(test_one_that_is_in_use_is_left_alone),
		T(test_one_that_changes_meanwhile),
		T(test_it_takes_the_place),
		T(test_from_another_place),
		T(test_a_take_over_that_fails_changes_nothing),
		T(test_killed_on_the_way),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
