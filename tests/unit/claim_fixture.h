/*
 * A root of its own for each test of claims and shims, the spec of a small job, and waiting for a condition. The tests run
 * below a guard that ends whatever a failed one leaves behind: it inherits all their orphans, and their directory.
 */
#pragma once

#include "agent/claim.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/sys.h"
#include "proc/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define QUEUE "0123456789abcdef0123456789abcdef"
#ifndef DEADLINE_MS
#define DEADLINE_MS 60000 /* a failed test, not a measure of speed */
#endif

static char guard_dir[] = "/tmp/gpustow-test-XXXXXX";

struct fixture {
	char dir[64];
	struct root root;
	struct err e;
};

static inline void fixture_init(struct fixture *f)
{
	char path[4096];
	*f = (struct fixture){0};
	snprintf(f->dir, sizeof(f->dir), "%s/XXXXXX", guard_dir);
	assert_non_null(mkdtemp(f->dir));
	snprintf(path, sizeof(path), "%s/root", f->dir);
	root_init(&f->root);
	assert_int_equal(root_open(&f->root, path, &f->e), 0);
}

static inline void fixture_done(struct fixture *f)
{
	retired_free(f->root.retired);
	root_done(&f->root);
	fd_remove_tree_at(AT_FDCWD, f->dir);
}

static inline char **string_list(const char *const *from)
{
	size_t n = 0;
	while (from[n])
		n++;
	char **list = xcalloc(n + 1, sizeof(*list));
	for (size_t i = 0; i < n; i++)
		list[i] = xstrdup(from[i]);
	return list;
}

/* Job `no`, attempt 1, a new token, a command for /bin/sh. */
static inline void spec_init(
	const struct fixture *f, uint64_t no, const char *command, struct claim_spec *ret)
{
	const char *const argv[] = {"/bin/sh", "-c", command, NULL};
	const char *const env[] = {"PATH=/usr/local/bin:/usr/bin:/bin", "GREETING=hello", NULL};
	*ret = (struct claim_spec){
		.name = {.queue = QUEUE, .job = no, .attempt = 1},
		.argv = string_list(argv),
		.env = string_list(env),
		.cwd = xstrdup(f->dir),
		.output = xasprintf("%s/out%d", f->dir, (int)no),
		.grace_ms = 20000,
		.umask_bits = 027,
	};
	random_hex(16, ret->token);
	assert_int_equal(proc_boot_id(ret->boot_id), 0);
}

static inline void must_claim(struct fixture *f, const struct claim_spec *s)
{
	enum claim_made made = CLAIM_OTHER_TOKEN;
	int r = claim_make(&f->root, s, &made, &f->e);
	if (r < 0)
		print_error("%s\n", f->e.text);
	assert_int_equal(r, 0);
	assert_int_equal(made, CLAIM_MADE);
}

static inline struct claim_record read_record(const struct fixture *f, const struct claim_spec *s)
{
	struct claim_record rec = {0};
	CLEANUP_CLOSE int fd = claim_open(&f->root, &s->name);
	assert_true(fd >= 0);
	assert_int_equal(claim_read_record(fd, &rec, NULL), 0);
	return rec;
}

static inline void sleep_ms(int64_t ms)
{
	nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

#define WAIT_FOR(condition) \
	do { \
		int64_t until_ms = clock_boot_ms() + DEADLINE_MS; \
		while (!(condition)) { \
			if (clock_boot_ms() > until_ms) \
				fail_msg("waited in vain for: %s", #condition); \
			sleep_ms(2); \
		} \
	} while (0)

static inline bool file_exists(const struct fixture *f, const char *name)
{
	char path[4096];
	struct sys_stat st;
	snprintf(path, sizeof(path), "%s/%s", f->dir, name);
	return sys_stat_at(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, &st) == 0;
}

/* What a file of the fixture holds; "" when it isn't there. The caller frees. */
static inline char *file_text(const struct fixture *f, const char *name)
{
	char path[4096];
	struct buf b = {0};
	snprintf(path, sizeof(path), "%s/%s", f->dir, name);
	fd_read_file_at(AT_FDCWD, path, &b, 1 << 20);
	return buf_take(&b);
}

/* How many names are in a directory below the root. */
static inline size_t count_names(const struct fixture *f, const char *name)
{
	char path[4096];
	size_t n = 0;
	snprintf(path, sizeof(path), "%s/%s", f->root.path, name);
	CLEANUP_CLOSEDIR DIR *d = opendir(path);
	const struct dirent *entry;
	while (d && (entry = readdir(d)))
		n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
	return n;
}

static inline void guard_end_orphans(void)
{
	for (bool is_first = true, has_some = true; has_some; is_first = false) {
		CLEANUP(proc_table_done) struct proc_table t = {0};
		size_t found[4096];
		if (!is_first)
			sleep_ms(5);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		has_some = false;
		if (proc_table_read(&t) < 0)
			return;
		size_t n = proc_table_tree(&t, getpid(), 0, found, ARRAY_LEN(found));
		for (size_t i = 0; i < n; i++)
			proc_signal(t.rows[found[i]].pid, t.rows[found[i]].start_ticks, SIGKILL);
		has_some = n > 0;
	}
}

static inline void guard_remove_dir(void)
{
	CLEANUP_CLOSEDIR DIR *d = opendir(guard_dir);
	const struct dirent *entry;
	while (d && (entry = readdir(d))) {
		char path[4096];
		snprintf(path, sizeof(path), "%s/%s/tiny", guard_dir, entry->d_name);
		umount2(path, MNT_DETACH);
	}
	fd_remove_tree_at(AT_FDCWD, guard_dir);
}

/* What main returns: the exit code of `run`, called in a child. */
static inline int guarded(int (*run)(void))
{
	int status = 1, code = 1;
	pid_t pid;
	if (!mkdtemp(guard_dir) || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
		return 1;
	pid_t tests = fork();
	if (tests == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		exit(run());
	}
	while ((pid = waitpid(-1, &status, 0)) > 0) {
		if (pid != tests)
			continue;
		code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
		break;
	}
	guard_end_orphans();
	guard_remove_dir();
	return code;
}
