/* Promises across users: who is believed, and what a torn, squatted or lying file can do (nothing but refuse). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/promise.h"
#include "base/clock.h"
#include "base/fd.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64];

static int set_up(void **state)
{
	snprintf(dir, sizeof(dir), "/tmp/gpustow-test-XXXXXX");
	assert_non_null(mkdtemp(dir));
	assert_int_equal(chmod(dir, 01777), 0);
	return 0;
}

static int tear_down(void **state)
{
	fd_remove_tree_at(AT_FDCWD, dir);
	return 0;
}

/* An agent of another process: publishes, then waits to be ended. */
struct other {
	pid_t pid;
	char file[128];
};

static void find_file(const char *prefix, char ret[128])
{
	DIR *d = opendir(dir);
	struct dirent *de;

	ret[0] = '\0';
	while ((de = readdir(d)))
		if (!strncmp(de->d_name, prefix, strlen(prefix)))
			snprintf(ret, 128, "%s/%.60s", dir, de->d_name);
	closedir(d);
	assert_true(ret[0]);
}

/* In the child: the file it holds, by its descriptors; what it inherited has lower ones. */
static void own_file(char ret[128])
{
	char path[64];

	memset(ret, 0, 128);
	for (int fd = 63; fd > 2; fd--) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		memset(ret, 0, 128);
		if (readlink(path, ret, 127) > 0 && strstr(ret, "/.gpustow-"))
			return;
	}
}

static struct other start(uid_t uid, int64_t mib, bool is_tentative)
{
	struct promise_row row = {.uuid = "GPU-x", .mib = mib, .is_tentative = is_tentative};
	struct other o;
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	o.pid = fork();
	if (!o.pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		struct promise *p;

		if (uid != getuid() && (setgid(uid) || setuid(uid)))
			_exit(2);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		p = promise_new(dir);
		/* Both slots get used, and the newer one counts. */
		row.mib = 1;
		promise_publish(p, &row, 1, NULL);
		row.mib = mib;
		if (promise_publish(p, &row, 1, NULL))
			_exit(1);
		own_file(o.file);
		if (write(fds[1], o.file, sizeof(o.file)) != sizeof(o.file))
			_exit(1);
		for (;;)
			pause();
	}
	close(fds[1]);
	assert_int_equal(read(fds[0], o.file, sizeof(o.file)), sizeof(o.file));
	close(fds[0]);
	return o;
}

static void end(struct other *o)
{
	kill(o->pid, SIGKILL);
	waitpid(o->pid, NULL, 0);
}

/* What is believed now: the sum, and the last row. */
static int64_t believed(struct promise *p, struct promise_other *ret_last)
{
	struct promise_other *rows = NULL;
	size_t n = 0;
	int64_t sum = 0;

	assert_int_equal(promise_read(p, &rows, &n, NULL), 0);
	for (size_t i = 0; i < n; i++) {
		sum += rows[i].row.mib;
		if (ret_last)
			*ret_last = rows[i];
	}
	free(rows);
	return sum;
}

static struct promise *ours(void)
{
	struct promise *p = promise_new(dir);
	struct promise_row row = {.uuid = "GPU-x", .mib = 7};

	assert_int_equal(promise_publish(p, &row, 1, NULL), 0);
	return p;
}

static void others_are_seen(void **state)
{
	struct promise *p = ours();
	struct promise_other last = {0};
	struct other o = start(getuid(), 500, true);
	struct stat st;

	assert_int_equal(believed(p, &last), 500);
	assert_string_equal(last.row.uuid, "GPU-x");
	assert_true(last.row.is_tentative);
	assert_int_equal(last.uid, getuid());
	assert_int_equal(stat(o.file, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0644);
	/* Whose agent is gone has promised nothing. */
	end(&o);
	assert_int_equal(stat(o.file, &st), 0);
	assert_int_equal(believed(p, NULL), 0);
	promise_free(p);
}

static void two_users(void **state)
{
	struct promise *p;
	struct promise_other last = {0};
	struct other o;

	if (getuid()) {
		print_message("# skipped: needs root\n");
		skip();
	}
	p = ours();
	o = start(12345, 800, false);
	assert_int_equal(believed(p, &last), 800);
	assert_int_equal(last.uid, 12345);
	assert_false(last.row.is_tentative);
	assert_int_equal(last.rank, 1); /* the higher uid comes after us */
	end(&o);
	promise_free(p);
}

static void copy_as(const struct other *o, const char *name, uid_t owner)
{
	char path[160], bytes[65536];
	int from = open(o->file, O_RDONLY), to;
	ssize_t n = read(from, bytes, sizeof(bytes));
	struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	close(from);
	assert_true(n > 0);
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	to = open(path, O_RDWR | O_CREAT | O_EXCL, 0644);
	assert_true(to >= 0);
	assert_int_equal(write(to, bytes, (size_t)n), n);
	if (owner != getuid())
		assert_int_equal(fchown(to, owner, owner), 0);
	close(to);
	/* Held by a child, so that a lock is there and the copy is only refused for what it is. */
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		to = open(path, O_RDWR);
		if (fcntl(to, F_SETLK, &fl))
			_exit(1);
		close(open("/dev/null", O_RDONLY));
		if (write(to, bytes, 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	for (int i = 0; i < 2000; i++) {
		struct flock got = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

		to = open(path, O_RDONLY);
		fcntl(to, F_GETLK, &got);
		close(to);
		if (got.l_type != F_UNLCK)
			return;
		poll(NULL, 0, 5);
	}
	fail();
}

static void end_all_children(void)
{
	char path[64];
	FILE *f;
	int pid;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
	f = fopen(path, "r");
	while (f && fscanf(f, "%d", &pid) == 1)
		kill(pid, SIGKILL);
	if (f)
		fclose(f);
	while (waitpid(-1, NULL, 0) > 0)
		;
}

static void squatted_name(void **state)
{
	struct promise *p;
	struct other o;

	if (getuid()) {
		print_message("# skipped: needs root\n");
		skip();
	}
	p = ours();
	o = start(getuid(), 500, false);
	/* In uid 4242's name, but somebody else's. */
	copy_as(&o, ".gpustow-4242-0123456789abcdef", 5555);
	assert_int_equal(believed(p, NULL), 500);
	/* The same bytes by their rightful owner are believed: it was the owner that counted. */
	copy_as(&o, ".gpustow-5555-0123456789abcdef", 5555);
	assert_int_equal(believed(p, NULL), 1000);
	end_all_children();
	promise_free(p);
}

static void not_plain_files(void **state)
{
	struct promise *p = ours();
	struct other o = start(getuid(), 500, false);
	char path[160], name[64];

	snprintf(name, sizeof(name), ".gpustow-%u-", (unsigned)getuid());
	snprintf(path, sizeof(path), "%s/%s0000000000000001", dir, name);
	assert_int_equal(symlink(o.file, path), 0);
	snprintf(path, sizeof(path), "%s/%s0000000000000002", dir, name);
	assert_int_equal(mkfifo(path, 0644), 0);
	snprintf(path, sizeof(path), "%s/%s0000000000000003", dir, name);
	assert_int_equal(mkdir(path, 0755), 0);
	/* Too large, though locked and ours. */
	assert_int_equal(truncate(o.file, 1 << 20), 0);
	assert_int_equal(believed(p, NULL), 0);
	end(&o);
	promise_free(p);
}

static void torn_slot(void **state)
{
	struct promise *p = ours();
	struct other o = start(getuid(), 500, false);
	struct stat st;
	int fd = open(o.file, O_RDWR);

	/* The newer slot is the one of even sequence: the first. Its sequence number is torn: the older one counts. */
	assert_int_equal(stat(o.file, &st), 0);
	assert_int_equal(believed(p, NULL), 500);
	assert_int_equal(pwrite(fd, "\377", 1, 10), 1);
	assert_int_equal(believed(p, NULL), 1);
	assert_int_equal(pwrite(fd, "\377", 1, st.st_size / 2 + 10), 1);
	assert_int_equal(believed(p, NULL), 0);
	close(fd);
	end(&o);
	promise_free(p);
}

/* Others' names for our own file must not cost us our lock when they're read. */
static void our_lock_survives(void **state)
{
	struct promise *p = ours();
	char mine[128], prefix[40], link_name[160];
	struct other o;
	int status = 0;
	pid_t pid;

	snprintf(prefix, sizeof(prefix), ".gpustow-%u-", (unsigned)getuid());
	find_file(prefix, mine);
	snprintf(link_name, sizeof(link_name), "%s/%sfffffffffffffff0", dir, prefix);
	assert_int_equal(link(mine, link_name), 0);
	assert_int_equal(believed(p, NULL), 0);
	pid = fork();
	if (!pid) {
		struct promise *q = promise_new(dir);

		/* By either name; the second is read as another file. */
		_exit(believed(q, NULL) == 14 ? 0 : 1);
	}
	waitpid(pid, &status, 0);
	assert_int_equal(status, 0);
	unlink(link_name);
	/* A file that was swept away is made again, and others see it. */
	unlink(mine);
	o = start(getuid(), 1, false);
	struct promise_row row = {.uuid = "GPU-x", .mib = 7};
	assert_int_equal(promise_publish(p, &row, 1, NULL), 0);
	pid = fork();
	if (!pid) {
		struct promise *q = promise_new(dir);

		_exit(believed(q, NULL) == 8 ? 0 : 1);
	}
	waitpid(pid, &status, 0);
	assert_int_equal(status, 0);
	end(&o);
	promise_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(others_are_seen, set_up, tear_down),
		cmocka_unit_test_setup_teardown(two_users, set_up, tear_down),
		cmocka_unit_test_setup_teardown(squatted_name, set_up, tear_down),
		cmocka_unit_test_setup_teardown(not_plain_files, set_up, tear_down),
		cmocka_unit_test_setup_teardown(torn_slot, set_up, tear_down),
		cmocka_unit_test_setup_teardown(our_lock_survives, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
