/* What lies at the path: new, ours, somebody else's, damaged, newer, on a network, of another machine; and the lock. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "store_fixture.h"

#include "base/cleanup.h"
#include "base/sys.h"
#include "store/store_inner.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char *beside(const struct bed *b, const char *end)
{
	return xasprintf("%s%s", b->path, end);
}

static struct stat look(const struct bed *b, const char *end)
{
	CLEANUP_FREE char *path = beside(b, end);
	struct stat st = {0};

	stat(path, &st);
	return st;
}

static void raw(const char *path, const char *sql)
{
	sqlite3 *db;
	char *said = NULL;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	if (sqlite3_exec(db, sql, NULL, NULL, &said) != SQLITE_OK)
		fail_msg("%s: %s", sql, said);
	sqlite3_close(db);
}

static void close_store(struct bed *b)
{
	store_close(b->s);
	b->s = NULL;
}

/* Starts with nothing at the path. */
static void start_over(struct bed *b)
{
	const char *ends[] = {"", "-wal", "-shm", "-journal", ".lock"};

	close_store(b);
	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		CLEANUP_FREE char *path = beside(b, ends[i]);

		unlink(path);
	}
}

static void read_bytes(const struct bed *b, const char *end, struct buf *ret)
{
	CLEANUP_FREE char *path = beside(b, end);

	if (fd_read_file_at(AT_FDCWD, path, ret, 64 << 20) < 0)
		buf_puts(ret, "none");
}

static void test_opening_writes_nothing(void **state)
{
	struct bed *b = *state;
	const char *ends[] = {"", "-wal"};

	submit(b, "x");
	close_store(b);
	for (int mode = STORE_READ; mode <= STORE_WRITE; mode++) {
		struct buf before[2] = {0}, after[2] = {0};
		struct stat st[2];
		struct store_counts c;

		for (int i = 0; i < 2; i++) {
			read_bytes(b, ends[i], &before[i]);
			st[i] = look(b, ends[i]);
		}
		OK(open_as(b->path, (enum store_mode)mode, &b->s));
		OK(store_counts(b->s, &c, &why));
		assert_int_equal(c.by_state[JOB_STATE_PENDING], 1);
		close_store(b);
		for (int i = 0; i < 2; i++) {
			struct stat now = look(b, ends[i]);

			read_bytes(b, ends[i], &after[i]);
			assert_int_equal(before[i].len, after[i].len);
			assert_memory_equal(before[i].data, after[i].data, after[i].len);
			assert_int_equal(st[i].st_mtim.tv_nsec, now.st_mtim.tv_nsec);
			buf_done(&before[i]);
			buf_done(&after[i]);
		}
	}
	assert_int_equal(look(b, "").st_mode & 0777, 0600);
	assert_int_equal(look(b, "-wal").st_mode & 0777, 0600);
	assert_int_equal(look(b, ".lock").st_mode & 0777, 0600);
	assert_true(look(b, "-wal").st_size > 0); /* the last one to close left the log alone */
}

static void test_a_reader_makes_nothing_and_changes_nothing(void **state)
{
	struct bed *b = *state;

	submit(b, "x");
	close_store(b);
	OK(open_as(b->path, STORE_READ, &b->s));
	assert_int_equal(store_begin(b->s, NULL, &why), -EROFS);
	start_over(b);
	assert_int_equal(open_as(b->path, STORE_READ, &b->s), -ENOENT);
	assert_non_null(strstr(why.text, "gpustow job submit"));
	assert_int_equal(look(b, "").st_ino, 0);
	assert_int_equal(look(b, ".lock").st_ino, 0);
}

#define NVIDB \
	"CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT);" \
	"INSERT INTO meta VALUES ('schema_version', '2'), ('last_tick_at', '2026-01-01T00:00:00+00:00');" \
	"CREATE TABLE jobs (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, command TEXT NOT NULL, state TEXT);" \
	"INSERT INTO jobs (command, state) VALUES ('train', 'pending');" \
	"CREATE TABLE locks (name TEXT PRIMARY KEY, owner TEXT, acquired_at TEXT, expires_at TEXT);"

static void refuse_nvidb(struct bed *b)
{
	const char *ends[] = {"", "-wal", "-shm"};

	for (int mode = STORE_READ; mode <= STORE_WRITE; mode++) {
		CLEANUP(buf_done) struct buf before = {0}, after = {0};

		for (size_t i = 0; i < ARRAY_LEN(ends); i++)
			read_bytes(b, ends[i], &before);
		assert_int_equal(open_as(b->path, (enum store_mode)mode, &b->s), -EMEDIUMTYPE);
		assert_non_null(strstr(why.text, "gpustow queue import-nvidb"));
		for (size_t i = 0; i < ARRAY_LEN(ends); i++)
			read_bytes(b, ends[i], &after);
		assert_int_equal(before.len, after.len);
		assert_memory_equal(before.data, after.data, after.len);
	}
	assert_int_equal(look(b, ".lock").st_ino, 0);
}

static void test_an_nvidb_database_is_named_and_left_alone(void **state)
{
	struct bed *b = *state;
	pid_t pid;
	int status;

	start_over(b);
	raw(b->path, "PRAGMA journal_mode=WAL;" NVIDB);
	refuse_nvidb(b);
	/* Killed at work: all there is stands in its log. */
	start_over(b);
	pid = fork();
	if (pid == 0) {
		sqlite3 *db;

		sqlite3_open(b->path, &db);
		sqlite3_exec(db, "PRAGMA journal_mode=WAL;" NVIDB, NULL, NULL, NULL);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	assert_true(look(b, "-wal").st_size > 0);
	refuse_nvidb(b);
}

static void test_strange_files_are_left_alone(void **state)
{
	struct bed *b = *state;
	FILE *f;

	start_over(b);
	raw(b->path, "CREATE TABLE other (x)");
	assert_int_equal(open_as(b->path, STORE_WRITE, &b->s), -EMEDIUMTYPE);
	start_over(b);
	f = fopen(b->path, "w");
	fputs("a poem", f);
	fclose(f);
	assert_int_equal(open_as(b->path, STORE_WRITE, &b->s), -EMEDIUMTYPE);
	start_over(b);
	mkdir(b->path, 0700);
	assert_int_equal(open_as(b->path, STORE_WRITE, &b->s), -EMEDIUMTYPE);
	rmdir(b->path);
	/* An empty file is as good as none. */
	f = fopen(b->path, "w");
	fclose(f);
	OK(open_as(b->path, STORE_WRITE, &b->s));
}

static void test_a_newer_version_is_refused(void **state)
{
	struct bed *b = *state;

	close_store(b);
	raw(b->path, "PRAGMA user_version = 99");
	assert_int_equal(open_as(b->path, STORE_WRITE, &b->s), -ENOTSUP);
	assert_non_null(strstr(why.text, "99"));
	assert_int_equal(open_as(b->path, STORE_READ, &b->s), -ENOTSUP);
}

static void test_steps_are_all_or_nothing(void **state)
{
	struct bed *b = *state;
	const struct schema_step good[] = {
		{""}, {""}, {""}, {"CREATE TABLE fourth (x)"}, {"CREATE TABLE fifth (x)"}};
	const struct schema_step bad[] = {
		{""}, {""}, {""}, {"CREATE TABLE fourth (x)"}, {"CREATE TABLE jobs (x)"}};
	int v;

	OK(store_begin(b->s, NULL, &why));
	assert_true(schema_apply(b->s, bad, STORE_VERSION, STORE_VERSION + 2, &why) < 0);
	assert_int_equal(store_commit(b->s, &why), -EIO);
	OK(schema_version(b->s, &v, &why));
	assert_int_equal(v, STORE_VERSION);
	OK(store_begin(b->s, NULL, &why));
	OK(schema_apply(b->s, good, STORE_VERSION, STORE_VERSION + 2, &why));
	commit(b);
	OK(schema_version(b->s, &v, &why));
	assert_int_equal(v, STORE_VERSION + 2);
}

/* A file as version 1 left it, with a few jobs, one of them purged since. */
static void make_version_1(struct bed *b)
{
	CLEANUP_FREE char *rows = xasprintf(
		"PRAGMA application_id = %d; PRAGMA user_version = 1;"
		"INSERT INTO meta VALUES ('queue', '0123456789abcdef0123456789abcdef'), ('incarnation', '3'),"
		" ('machine_key', '%s');"
		"INSERT INTO jobs (id, state, created_ms, updated_ms, finished_ms, command, name) VALUES"
		" (1, 'completed', 5, 6, 7, 'python a.py --lr 3', 'one'), (2, 'pending', 5, 6, NULL, 'python a.py --lr 4', NULL),"
		" (90, 'pending', 5, 6, NULL, 'x', NULL);"
		"DELETE FROM jobs WHERE id = 90;"
		"INSERT INTO needs VALUES (2, 0, 1); INSERT INTO job_tags VALUES ('t', 2);"
		"INSERT INTO nodes (name, is_drained) VALUES ('n1', 1);"
		"INSERT INTO events (ts_ms, kind, job) VALUES (5, 'job_submitted', 1);",
		STORE_APPLICATION_ID, b->s->machine_key);
	CLEANUP_FREE char *sql =
		xasprintf("PRAGMA journal_mode = WAL; %s%s", schema_steps[0].sql, rows);

	start_over(b);
	raw(b->path, sql);
}

static void check_brought_forward(struct bed *b)
{
	struct store_question tagged = {.tag = "t"};
	struct store_learned learned;
	struct store_nodes nodes;
	struct store_jobs l;
	struct job j;
	int v;

	OK(schema_version(b->s, &v, &why));
	assert_int_equal(v, STORE_VERSION);
	OK(store_check(b->s, &why));
	j = get(b, 1);
	assert_string_equal(j.name, "one");
	assert_string_equal(j.shape, "python a.py --lr <n>");
	assert_int_equal(j.finished_ms, 7);
	job_done(&j);
	j = get(b, 2);
	assert_int_equal(j.n_after, 1);
	assert_int_equal(j.after[0], 1);
	job_done(&j);
	OK(store_jobs(b->s, &tagged, &l, &why));
	assert_int_equal(l.n, 1);
	store_jobs_done(&l);
	OK(store_nodes(b->s, &nodes, &why));
	assert_true(nodes.n == 1 && nodes.v[0].is_drained && !nodes.v[0].n_failures);
	store_nodes_done(&nodes);
	assert_int_equal(count_events(b, 1), 1);
	assert_int_equal(store_learned(b->s, "x", 1, &learned, &why), -ENOENT);
}

static void test_version_1_is_brought_forward(void **state)
{
	struct bed *b = *state;

	for (int mode = STORE_READ; mode <= STORE_WRITE; mode++) {
		if (!b->s)
			OK(open_as(b->path, STORE_WRITE, &b->s));
		make_version_1(b);
		OK(open_as(b->path, (enum store_mode)mode, &b->s));
		check_brought_forward(b);
		if (mode == STORE_WRITE)
			assert_int_equal(submit(b, "new"), 91); /* no number twice */
		else
			close_store(b);
	}
	/* What hangs on a job still goes with it. */
	OK(store_begin(b->s, NULL, &why));
	OK(db_run(b->s, &why, "DELETE FROM jobs WHERE id = 2", ""));
	commit(b);
	int64_t n = 0;
	OK(db_int(b->s, &n, &why, "SELECT count(*) FROM needs", ""));
	assert_int_equal(n, 0);
}

/* Somebody else's, who may look: what to do is said. */
static void test_version_1_that_may_not_be_changed(void **state)
{
	struct bed *b = *state;
	CLEANUP_FREE char *lock = beside(b, ".lock");
	pid_t pid;
	int status;

	if (geteuid() != 0) {
		print_message("# only root may become somebody else\n");
		skip();
	}
	make_version_1(b);
	chmod(b->dir, 0777);
	chmod(b->path, 0644);
	close(open(lock, O_CREAT | O_WRONLY, 0600));
	pid = fork();
	if (pid == 0) {
		struct store *s;
		int r = setuid(65534) < 0 ? 0 : open_as(b->path, STORE_READ, &s);

		if (r != -EACCES)
			fprintf(stderr, "%d %s\n", r, why.text);
		_exit(r == -EACCES && strstr(why.text, "brought up to date") ? 0 : 1);
	}
	waitpid(pid, &status, 0);
	assert_int_equal(status, 0);
}

/* Killed on the way: as it was, and the next one does it. */
static void test_killed_while_it_was_brought_forward(void **state)
{
	struct bed *b = *state;
	pid_t pid;
	int status;

	make_version_1(b);
	pid = fork();
	if (pid == 0) {
		struct store *s;

		setenv("GPUSTOW_FAULT", "store.before-upgrade:kill", 1);
		open_as(b->path, STORE_WRITE, &s);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	assert_true(WIFSIGNALED(status));
	OK(open_as(b->path, STORE_WRITE, &b->s));
	check_brought_forward(b);
}

static void test_damage_is_named(void **state)
{
	struct bed *b = *state;
	CLEANUP_FREE char *wal = beside(b, "-wal");
	struct store_counts c;
	char junk[4096];
	int fd, r;

	OK(store_begin(b->s, NULL, &why));
	for (int i = 0; i < 200; i++)
		add_job(b->s, "a command that takes some room in the file", NULL, 0);
	commit(b);
	close_store(b);
	raw(b->path, "PRAGMA wal_checkpoint(TRUNCATE)");
	unlink(wal);
	memset(junk, 0xa5, sizeof(junk));
	fd = open(b->path, O_RDWR);
	for (off_t at = 4096; at < 4096 * 40; at += 4096)
		assert_int_equal(pwrite(fd, junk, sizeof(junk), at), sizeof(junk));
	close(fd);
	r = open_as(b->path, STORE_WRITE, &b->s);
	if (r == 0)
		r = store_counts(b->s, &c, &why);
	assert_int_equal(r, -EBADMSG);
	assert_non_null(strstr(why.text, "damaged"));
}

static void test_another_machine_only_reads(void **state)
{
	struct bed *b = *state;
	struct store_options o = {.mode = STORE_WRITE, .machine_key = "another"};
	int64_t incarnation;
	struct store_counts c;
	struct stat before;

	submit(b, "x");
	close_store(b);
	before = look(b, "");
	OK(store_open(b->path, &o, &b->s, &why));
	assert_true(store_is_elsewheres(b->s));
	OK(store_counts(b->s, &c, &why));
	assert_int_equal(c.by_state[JOB_STATE_PENDING], 1);
	assert_int_equal(store_begin(b->s, NULL, &why), -EROFS);
	assert_non_null(strstr(why.text, "another machine"));
	assert_int_equal(before.st_mtim.tv_nsec, look(b, "").st_mtim.tv_nsec);
	/* Taken over for good: a later incarnation, and numbers that nobody has used. */
	OK(store_adopt(b->s, &why));
	assert_false(store_is_elsewheres(b->s));
	OK(store_incarnation(b->s, &incarnation, &why));
	assert_int_equal(incarnation, 2);
	assert_int_equal(submit(b, "y"), 1000002);
	close_store(b);
	OK(open_as(b->path, STORE_WRITE, &b->s));
	assert_true(store_is_elsewheres(b->s));
}

static void test_on_a_network_there_is_no_log(void **state)
{
	struct bed *b = *state;

	submit(b, "before");
	close_store(b);
	setenv("GPUSTOW_TEST_NFS", "1", 1);
	/* One that had a log is taken out of it, nothing lost. */
	OK(open_as(b->path, STORE_WRITE, &b->s));
	assert_true(store_is_on_network(b->s));
	assert_int_equal(look(b, "-wal").st_ino, 0);
	assert_int_equal(submit(b, "there"), 2);
	assert_int_equal(look(b, "-wal").st_ino, 0);
	close_store(b);
	OK(open_as(b->path, STORE_READ, &b->s));
	struct job j = get(b, 1);
	assert_string_equal(j.command, "before");
	job_done(&j);
	start_over(b);
	OK(open_as(b->path, STORE_WRITE, &b->s));
	assert_int_equal(submit(b, "new there"), 1);
	assert_int_equal(look(b, "-wal").st_ino, 0);
	close_store(b);
	unsetenv("GPUSTOW_TEST_NFS");
	OK(open_as(b->path, STORE_WRITE, &b->s));
	assert_int_equal(submit(b, "and back"), 2);
	assert_true(look(b, "-wal").st_size > 0);
}

/* ---- the lock and the lease, with a second process ---- */

/* A child that does `what`, says so, and stays until it's told to go. */
static pid_t start_child(struct bed *b, int (*what)(struct store *), int *ret_in)
{
	int go[2], said[2];
	char c;
	pid_t pid;

	assert_int_equal(pipe(go), 0);
	assert_int_equal(pipe(said), 0);
	pid = fork();
	if (pid == 0) {
		struct store *s;

		close(go[1]);
		close(said[0]);
		if (open_as(b->path, STORE_WRITE, &s) < 0 || what(s) < 0)
			_exit(1);
		if (write(said[1], "x", 1) != 1 || read(go[0], &c, 1) < 0)
			_exit(2);
		_exit(0);
	}
	close(go[0]);
	close(said[1]);
	assert_int_equal(read(said[0], &c, 1), 1);
	close(said[0]);
	*ret_in = go[1];
	return pid;
}

static void end_child(pid_t pid, int in)
{
	int status;

	close(in);
	waitpid(pid, &status, 0);
}

static int hold_lock(struct store *s)
{
	return store_begin(s, NULL, NULL);
}

static void test_who_holds_the_lock_is_named(void **state)
{
	struct bed *b = *state;
	struct store_options o = {.mode = STORE_WRITE, .lock_wait_ms = 300};
	CLEANUP_FREE char *lock = beside(b, ".lock");
	struct store_counts c;
	char name[32];
	int in;
	pid_t pid;

	close_store(b);
	OK(store_open(b->path, &o, &b->s, &why));
	submit(b, "x");
	/* Somebody tidied up: the lock that counts is the one under the name. */
	unlink(lock);
	pid = start_child(b, hold_lock, &in);
	snprintf(name, sizeof(name), "process %d ", (int)pid);
	assert_int_equal(store_begin(b->s, NULL, &why), -EBUSY);
	assert_non_null(strstr(why.text, name));
	OK(store_counts(b->s, &c, &why)); /* reading doesn't wait */
	end_child(pid, in);
	submit(b, "y");
}

static int hold_longer(struct store *s)
{
	return store_lock(s, 0, NULL);
}

static int is_kept_out(struct store *s)
{
	return store_lock(s, 0, NULL) == -EBUSY ? 0 : -1;
}

/* Somebody else's: said at once. Ours: as many transactions as one likes, and others are kept out between them. */
static void test_lock_for_longer_than_a_transaction(void **state)
{
	struct bed *b = *state;
	int in;
	pid_t pid;

	submit(b, "x");
	pid = start_child(b, hold_longer, &in);
	assert_int_equal(store_lock(b->s, 0, &why), -EBUSY);
	assert_non_null(strstr(why.text, "is being written to by process"));
	end_child(pid, in);
	OK(store_lock(b->s, 0, &why));
	OK(store_lock(b->s, 0, &why));
	submit(b, "y");
	submit(b, "z");
	store_unlock(b->s);
	end_child(start_child(b, is_kept_out, &in), in);
	store_unlock(b->s);
	end_child(start_child(b, hold_longer, &in), in);
	OK(store_begin(b->s, NULL, &why));
	assert_int_equal(store_lock(b->s, 0, &why), -EINVAL);
	store_abort(b->s);
}

static volatile sig_atomic_t stops;
static void on_stop(int sig)
{
	(void)sig;
	stops++;
}

static void test_ctrl_z_waits_until_the_lock_is_free(void **state)
{
	struct bed *b = *state;
	struct sigaction old, mine = {.sa_handler = on_stop};

	sigaction(SIGTSTP, &mine, &old);
	stops = 0;
	OK(store_begin(b->s, NULL, &why));
	raise(SIGTSTP);
	assert_int_equal(stops, 0);
	commit(b);
	assert_int_equal(stops, 1);
	OK(store_begin(b->s, NULL, &why));
	raise(SIGTSTP);
	store_abort(b->s);
	assert_int_equal(stops, 2);
	sigaction(SIGTSTP, &old, NULL);
}

static int take_long_lease(struct store *s)
{
	struct store_lease l;

	return store_lease_take(s, "the other one", 3600000, &l, NULL, NULL);
}

static void test_a_living_holder_is_named_and_a_dead_one_replaced(void **state)
{
	struct bed *b = *state;
	struct store_lease_row row;
	CLEANUP_FREE char *holder = NULL;
	int in;
	pid_t pid = start_child(b, take_long_lease, &in);

	assert_int_equal(store_lease_take(b->s, "me", 1000, &b->lease, &holder, &why), -EBUSY);
	assert_string_equal(holder, "the other one");
	OK(store_lease_read(b->s, &row, &why));
	assert_true(row.is_held && row.expires_in_ms > 3000000);
	free(row.owner);
	end_child(pid, in);
	OK(store_lease_read(b->s, &row, &why));
	assert_false(row.is_held);
	free(row.owner);
	OK(store_lease_take(b->s, "me", 1000, &b->lease, NULL, &why));
	assert_int_equal(b->lease.epoch, 2);
}

static void test_a_lease_of_another_boot_is_over(void **state)
{
	struct bed *b = *state;
	int in;
	pid_t pid = start_child(b, take_long_lease, &in);

	setenv("GPUSTOW_TEST_BOOT_ID", "11111111-1111-1111-1111-111111111111", 1);
	OK(store_lease_take(b->s, "me", 1000, &b->lease, NULL, &why));
	unsetenv("GPUSTOW_TEST_BOOT_ID");
	end_child(pid, in);
}

static void copy(const struct bed *b, const char *from, const char *to)
{
	CLEANUP(buf_done) struct buf bytes = {0};
	CLEANUP_FREE char *target = beside(b, to);

	read_bytes(b, from, &bytes);
	assert_int_equal(fd_replace_at(AT_FDCWD, target, bytes.data, bytes.len, false), 0);
}

static void test_a_database_of_yesterday_is_noticed(void **state)
{
	struct bed *b = *state;
	struct store_lease l;

	take_lease(b);
	submit(b, "x");
	close_store(b);
	raw(b->path, "PRAGMA wal_checkpoint(TRUNCATE)");
	copy(b, "", ".yesterday");
	OK(open_as(b->path, STORE_WRITE, &b->s));
	submit(b, "lost");
	take_lease(b);
	close_store(b);
	CLEANUP_FREE char *wal = beside(b, "-wal"), *shm = beside(b, "-shm");
	unlink(wal);
	unlink(shm);
	copy(b, ".yesterday", "");
	OK(open_as(b->path, STORE_WRITE, &b->s));
	OK(store_lease_take(b->s, "me", 1000, &l, NULL, &why));
	assert_int_equal(l.incarnation, 2);
	assert_true(l.epoch > b->lease.epoch);
	assert_int_equal(submit(b, "new"), 1000002);
	/* Once is enough. */
	OK(store_lease_take(b->s, "me", 1000, &l, NULL, &why));
	assert_int_equal(l.incarnation, 2);
	/* Another file under the name, while this one is open. */
	copy(b, ".yesterday", "");
	assert_int_equal(store_begin(b->s, NULL, &why), -ESTALE);
}

/* The lock's file went back with it, or went away: what's left is that it's another file. */
static void test_a_copy_is_noticed_and_a_moved_file_is_none(void **state)
{
	struct bed *b = *state;
	CLEANUP_FREE char *wal = beside(b, "-wal"), *shm = beside(b, "-shm"),
			  *lock = beside(b, ".lock"), *moved = beside(b, ".moved");
	struct store_lease l;

	take_lease(b);
	close_store(b);
	raw(b->path, "PRAGMA wal_checkpoint(TRUNCATE)");
	assert_int_equal(rename(b->path, moved), 0);
	assert_int_equal(rename(moved, b->path), 0);
	unlink(lock);
	OK(open_as(b->path, STORE_WRITE, &b->s));
	OK(store_lease_take(b->s, "me", 1000, &l, NULL, &why));
	assert_int_equal(l.incarnation, 1);
	close_store(b);
	raw(b->path, "PRAGMA wal_checkpoint(TRUNCATE)");
	copy(b, "", ".copy");
	unlink(wal);
	unlink(shm);
	unlink(lock);
	copy(b, ".copy", "");
	OK(open_as(b->path, STORE_WRITE, &b->s));
	OK(store_lease_take(b->s, "me", 1000, &l, NULL, &why));
	assert_int_equal(l.incarnation, 2);
	OK(store_lease_take(b->s, "me", 1000, &l, NULL, &why));
	assert_int_equal(l.incarnation, 2);
}

static void test_a_node_that_knows_a_later_state_is_believed(void **state)
{
	struct bed *b = *state;
	struct store_lease l;

	take_lease(b);
	OK(store_lease_outrun(b->s, &b->lease, 4, 1000, &why));
	/* Given back: who had it decides nothing more. */
	assert_int_equal(store_begin(b->s, &b->lease, &why), -ESTALE);
	OK(store_lease_take(b->s, "me", 1000, &l, NULL, &why));
	assert_true(l.incarnation == 5 && l.epoch > 1000);
	assert_int_equal(store_lease_outrun(b->s, &b->lease, 9, 1, &why), -ESTALE);
	OK(store_begin(b->s, &l, &why));
	commit(b);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, bed_make, bed_drop)
	const struct CMUnitTest tests[] = {
		T(test_opening_writes_nothing),
		T(test_a_reader_makes_nothing_and_changes_nothing),
		T(test_an_nvidb_database_is_named_and_left_alone),
		T(test_strange_files_are_left_alone),
		T(test_a_newer_version_is_refused),
		T(test_steps_are_all_or_nothing),
		T(test_version_1_is_brought_forward),
		T(test_version_1_that_may_not_be_changed),
		T(test_killed_while_it_was_brought_forward),
		T(test_damage_is_named),
		T(test_another_machine_only_reads),
		T(test_on_a_network_there_is_no_log),
		T(test_who_holds_the_lock_is_named),
		T(test_lock_for_longer_than_a_transaction),
		T(test_ctrl_z_waits_until_the_lock_is_free),
		T(test_a_living_holder_is_named_and_a_dead_one_replaced),
		T(test_a_lease_of_another_boot_is_over),
		T(test_a_database_of_yesterday_is_noticed),
		T(test_a_copy_is_noticed_and_a_moved_file_is_none),
		T(test_a_node_that_knows_a_later_state_is_believed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
