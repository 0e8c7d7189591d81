/* Many processes, kill -9, a full disk, errors of the disk: nothing that was acknowledged is lost, nothing is half there. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "store_fixture.h"

#include "base/cleanup.h"

#include <sched.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

static int wait_code(pid_t pid)
{
	int status = 0;

	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Starts n children that all begin at the same moment; what they return is their exit code. */
static void all_at_once(struct bed *b, int n, int (*what)(struct bed *, int), pid_t *ret)
{
	int gate[2];
	char c;

	assert_int_equal(pipe(gate), 0);
	for (int i = 0; i < n; i++) {
		ret[i] = fork();
		if (ret[i] == 0) {
			close(gate[1]);
			if (read(gate[0], &c, 1) != 0)
				_exit(9);
			_exit(what(b, i));
		}
	}
	close(gate[0]);
	close(gate[1]);
}

static int plain_submit(struct store *s, const char *command, const char *key, int64_t *ret_id)
{
	struct job j;
	int r = store_begin(s, NULL, NULL);

	if (r < 0)
		return r;
	job_init(&j);
	j.command = (char *)command;
	j.key = (char *)key;
	r = store_submit(s, &j, ret_id, NULL);
	if (r < 0) {
		store_abort(s);
		return r;
	}
	return store_commit(s, NULL);
}

static int open_and_submit(struct bed *b, int i)
{
	struct store *s;
	int64_t id;

	(void)i;
	if (open_as(b->path, STORE_WRITE, &s) < 0) {
		fprintf(stderr, "# %s\n", why.text);
		return 1;
	}
	return plain_submit(s, "x", NULL, &id) < 0 ? 2 : 0;
}

static void test_a_new_file_opened_by_many_at_once(void **state)
{
	struct bed *b = *state;
	pid_t pids[8];
	struct store_counts c;

	for (int round = 0; round < 5; round++) {
		CLEANUP_FREE char *name = xasprintf("%s/new%d/deep/queue.db", b->dir, round);

		store_close(b->s);
		b->s = NULL;
		assert_true(strlen(name) < sizeof(b->path));
		memcpy(b->path, name, strlen(name) + 1);
		all_at_once(b, 8, open_and_submit, pids);
		for (int i = 0; i < 8; i++)
			assert_int_equal(wait_code(pids[i]), 0);
		OK(open_as(b->path, STORE_WRITE, &b->s));
		OK(store_counts(b->s, &c, &why));
		assert_int_equal(c.by_state[JOB_STATE_PENDING], 8);
		assert_int_equal(c.last_event, 8);
	}
}

#define WRITERS 10
#define EACH 30

static int write_many(struct bed *b, int me)
{
	struct store *s;
	char key[32];
	int64_t id;

	if (open_as(b->path, STORE_WRITE, &s) < 0)
		return 1;
	for (int i = 0; i < EACH; i++) {
		snprintf(key, sizeof(key), "%d-%d", me, i);
		if (plain_submit(s, "x", key, &id) < 0)
			return 2;
	}
	store_close(s);
	return 0;
}

static void test_ten_writers_lose_nothing(void **state)
{
	struct bed *b = *state;
	struct store_events l;
	pid_t pids[WRITERS];
	char key[32];
	int64_t id;

	all_at_once(b, WRITERS, write_many, pids);
	for (int i = 0; i < WRITERS; i++)
		assert_int_equal(wait_code(pids[i]), 0);
	for (int i = 0; i < WRITERS * EACH; i++) {
		snprintf(key, sizeof(key), "%d-%d", i / EACH, i % EACH);
		assert_int_equal(store_job_by_key(b->s, key, &id, &why), 0);
	}
	OK(store_events(b->s, 0, 0, 0, &l, &why));
	assert_int_equal(l.n, WRITERS * EACH);
	assert_int_equal(l.last_id, WRITERS * EACH);
	store_events_done(&l);
	OK(store_check(b->s, &why));
}

/* Submits k0, k1, ... and tells each number once it's acknowledged. */
static void submit_and_tell(const struct bed *b, int first, int n, int out)
{
	struct store *s;
	char key[32];
	int64_t id;

	if (open_as(b->path, STORE_WRITE, &s) < 0)
		_exit(1);
	for (int i = first; i < first + n; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		if (plain_submit(s, "some command that fills the log a little", key, &id) < 0)
			_exit(2);
		if (write(out, &i, sizeof(i)) != sizeof(i))
			_exit(3);
	}
	_exit(4);
}

/* The highest number that was acknowledged, or first - 1. */
static int run_until_killed(struct bed *b, int first, unsigned wait_us, const char *fault)
{
	int out[2], last = first - 1, n;
	pid_t pid;

	assert_int_equal(pipe(out), 0);
	pid = fork();
	if (pid == 0) {
		close(out[0]);
		if (fault)
			setenv("GPUSTOW_FAULT", fault, 1);
		submit_and_tell(b, first, fault ? 20 : 1000000, out[1]);
	}
	close(out[1]);
	/* The first acknowledgement, so that each round has something to lose. */
	if (!fault) {
		assert_int_equal(read(out[0], &last, sizeof(last)), sizeof(last));
		usleep(wait_us);
		kill(pid, SIGKILL);
	}
	while (read(out[0], &n, sizeof(n)) == sizeof(n))
		last = n;
	close(out[0]);
	assert_int_equal(wait_code(pid), 128 + SIGKILL);
	return last;
}

/* All that were acknowledged are there, at most one more is, and job and event are there together. Returns how many. */
static int check_whole(struct bed *b, int acknowledged)
{
	struct store_counts c;
	struct store_events l;
	char key[32];
	int64_t id;

	OK(store_check(b->s, &why));
	for (int i = 0; i <= acknowledged; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		if (store_job_by_key(b->s, key, &id, &why) != 0)
			fail_msg("%s was acknowledged and is lost", key);
	}
	OK(store_counts(b->s, &c, &why));
	assert_in_range(c.by_state[JOB_STATE_PENDING], acknowledged + 1, acknowledged + 2);
	OK(store_events(b->s, 0, 0, 0, &l, &why));
	assert_int_equal(l.n, c.by_state[JOB_STATE_PENDING]);
	store_events_done(&l);
	return (int)c.by_state[JOB_STATE_PENDING];
}

static void test_kill_loses_nothing_that_was_acknowledged(void **state)
{
	struct bed *b = *state;
	unsigned seed = (unsigned)getpid();
	int next = 0;

	print_message("# seed %u\n", seed);
	srand(seed);
	for (int round = 0; round < 20; round++) {
		int last = run_until_killed(b, next, (unsigned)rand() % 20000, NULL);

		next = check_whole(b, last);
	}
}

static void test_killed_right_before_and_after_the_commit(void **state)
{
	struct bed *b = *state;
	int next = 0, last;

	last = run_until_killed(b, next, 0, "store.before-commit:kill#3");
	assert_int_equal(last, next + 1);
	next = check_whole(b, last);
	assert_int_equal(next, 2); /* what wasn't committed isn't there */
	last = run_until_killed(b, next, 0, "store.after-commit:kill#3");
	assert_int_equal(last, next + 1);
	assert_int_equal(
		check_whole(b, last), 5); /* what was committed is, though nobody heard of it */
}

static void test_an_error_of_the_disk(void **state)
{
	struct bed *b = *state;
	struct store_counts c;
	int64_t id;

	for (int i = 0; i < 2; i++) {
		setenv("GPUSTOW_FAULT",
			i ? "store.before-commit:eio" : "store.before-commit:enospc", 1);
		OK(store_begin(b->s, NULL, &why));
		add_job(b->s, "x", NULL, 0);
		assert_int_equal(store_commit(b->s, &why), i ? -EIO : -ENOSPC);
		assert_non_null(strstr(why.text, b->path));
	}
	unsetenv("GPUSTOW_FAULT");
	OK(store_counts(b->s, &c, &why));
	assert_int_equal(c.by_state[JOB_STATE_PENDING], 0);
	id = submit(b, "y");
	assert_int_equal(id, 1);
}

/* On a file system of its own with little room. 0 good, 77 not possible here, else the step that failed. */
static int fill_disk(struct bed *b)
{
	CLEANUP_FREE char *big = xcalloc(1, 20001);
	struct store_counts c;
	struct store *s;
	char path[160];
	int64_t id, good = 0;
	int r = 0;

	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		mount("none", b->dir, "tmpfs", 0, "size=2m") < 0)
		return 77;
	snprintf(path, sizeof(path), "%s/full.db", b->dir);
	if (open_as(path, STORE_WRITE, &s) < 0)
		return 1;
	memset(big, 'x', 20000);
	for (; good < 1000; good++) {
		r = plain_submit(s, big, NULL, &id);
		if (r < 0)
			break;
	}
	if (r != -ENOSPC || good < 10)
		return 2;
	if (store_counts(s, &c, &why) < 0 || c.by_state[JOB_STATE_PENDING] != good ||
		c.last_event != good)
		return 3;
	store_close(s);
	if (open_as(path, STORE_WRITE, &s) < 0 || store_check(s, &why) < 0)
		return 4;
	if (store_counts(s, &c, &why) < 0 || c.by_state[JOB_STATE_PENDING] != good)
		return 5;
	/* Room again: work goes on. */
	if (mount("none", b->dir, "tmpfs", MS_REMOUNT, "size=8m") < 0)
		return 6;
	if (plain_submit(s, big, NULL, &id) < 0 || id != good + 1)
		return 7;
	store_close(s);
	return 0;
}

static void test_a_full_disk_keeps_the_file_whole(void **state)
{
	struct bed *b = *state;
	pid_t pid;
	int code;

	if (geteuid() != 0) {
		print_message("# only root may mount a small tmpfs\n");
		skip();
	}
	pid = fork();
	if (pid == 0)
		_exit(fill_disk(b));
	code = wait_code(pid);
	if (code == 77) {
		print_message("# no mounts in this sandbox\n");
		skip();
	}
	assert_int_equal(code, 0);
}

/* Ten megabytes through the log, one commit at a time: it's copied back under the lock and begun again. */
static void test_the_log_stays_short(void **state)
{
	struct bed *b = *state;
	CLEANUP_FREE char *big = xcalloc(1, 20001), *wal = xasprintf("%s-wal", b->path);
	struct stat st;

	memset(big, 'x', 20000);
	for (int i = 0; i < 500; i++)
		submit(b, big);
	assert_int_equal(stat(wal, &st), 0);
	assert_in_range(st.st_size, 1, 6 << 20);
	assert_int_equal(stat(b->path, &st), 0);
	assert_true(st.st_size > 4 << 20);
}

/* Once it was copied back it's written over in place: a commit that doesn't lengthen it syncs its bytes alone. One that
   a large transaction made long is emptied. */
static void test_the_log_is_written_over(void **state)
{
	struct bed *b = *state;
	CLEANUP_FREE char *huge = xcalloc(1, 3000001), *wal = xasprintf("%s-wal", b->path);
	struct stat st;
	off_t full;
	sqlite3 *reader = NULL;

	for (int i = 0; i < 60; i++)
		submit(b, "true");
	assert_int_equal(stat(wal, &st), 0);
	full = st.st_size;
	assert_in_range(full, 128 * 4096, 1 << 20);
	for (int i = 0; i < 60; i++)
		submit(b, "true");
	assert_int_equal(stat(wal, &st), 0);
	assert_in_range(
		st.st_size, full, full + 10 * 4120); /* by the last one before it begins again */
	memset(huge, 'x', 3000000);
	submit(b, huge);
	assert_int_equal(stat(wal, &st), 0);
	assert_int_equal(st.st_size, 0); /* else everybody who comes would read it first */
	/* A reader in the middle of something keeps the log; once he has gone it's emptied all the same. */
	assert_int_equal(sqlite3_open(b->path, &reader), SQLITE_OK);
	assert_int_equal(sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM jobs", NULL, NULL, NULL),
		SQLITE_OK);
	submit(b, huge);
	assert_int_equal(stat(wal, &st), 0);
	assert_true(st.st_size > 3000000);
	sqlite3_close(reader);
	for (int i = 0; i < 60; i++)
		submit(b, "true");
	assert_int_equal(stat(wal, &st), 0);
	assert_in_range(st.st_size, 0, 1 << 20);
}

/* A reader sees all of a transaction or nothing, whatever the writers do meanwhile. */
static void test_readers_never_see_half(void **state)
{
	struct bed *b = *state;
	struct store *reader;
	struct store_counts c;
	pid_t pids[2];
	int done = 0;

	OK(open_as(b->path, STORE_READ, &reader));
	all_at_once(b, 2, write_many, pids);
	while (done < 2) {
		OK(store_counts(reader, &c, &why));
		assert_int_equal(c.by_state[JOB_STATE_PENDING], c.last_event);
		done += waitpid(-1, &(int){0}, WNOHANG) > 0;
	}
	OK(store_counts(reader, &c, &why));
	assert_int_equal(c.last_event, 2 * EACH);
	store_close(reader);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, bed_make, bed_drop)
	const struct CMUnitTest tests[] = {
		T(test_a_new_file_opened_by_many_at_once),
		T(test_ten_writers_lose_nothing),
		T(test_kill_loses_nothing_that_was_acknowledged),
		T(test_killed_right_before_and_after_the_commit),
		T(test_an_error_of_the_disk),
		T(test_a_full_disk_keeps_the_file_whole),
		T(test_the_log_stays_short),
		T(test_the_log_is_written_over),
		T(test_readers_never_see_half),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
