/*
 * config.yml on the disk: read with bounds, and changed under <home>/config.lock by a temporary and a rename. Mode and
 * owner stay; a link is followed, so that its target changes and the link stays. A file that somebody saved between our
 * look and the rename is looked at again: an editor knows nothing of the lock.
 */
#include "config/config_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/sys.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_WAIT_MS = 10000, LOOKS_MAX = 5 };

void config_file_done(struct config_file *f)
{
	free(f->path);
	if (f->bytes.data)
		explicit_bzero(f->bytes.data, f->bytes.len);
	buf_done(&f->bytes);
}

/* Where the path leads. A link to nothing is a mistake that a new file would only hide. */
static int resolve(const char *path, char **ret, bool *ret_missing, struct err *e)
{
	char target[PATH_MAX];
	struct sys_stat st;
	int r;

	if (realpath(path, target)) {
		*ret = xstrdup(target);
		return 0;
	}
	r = -errno;
	if (r != -ENOENT)
		return err_sys(e, r, "cannot read %s", path);
	if (sys_stat_at(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, &st) == 0)
		return err_set(e, r, "%s is a link to a file that isn't there", path);
	*ret = xstrdup(path);
	*ret_missing = true;
	return 0;
}

static int read_bytes(struct config_file *f, struct err *e)
{
	CLEANUP_CLOSE int fd =
		f->path ? open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1;
	int r = !f->path ? -ENOENT : fd < 0 ? -errno : sys_fstat(fd, &f->st);

	if (r < 0)
		return err_sys(e, r, "cannot read %s", f->path);
	if (!S_ISREG(f->st.mode))
		return err_set(e, -EINVAL, "%s is no plain file", f->path);
	r = fd_read_all(fd, &f->bytes, DOC_BYTES);
	if (r == -EFBIG)
		return err_set(e, r, "%s is larger than 1 MiB, which no such file is", f->path);
	return r < 0 ? err_sys(e, r, "cannot read %s", f->path) : 0;
}

int config_file_read(const char *path, struct config_file *f, struct err *e)
{
	int r = resolve(path, &f->path, &f->is_missing, e);

	return r < 0 || f->is_missing ? r : read_bytes(f, e);
}

/* A password in a file that others can read is as good as told. */
void config_file_warn_of_mode(const struct config_file *f, const char *path,
	const struct config *servers, struct buf *warnings)
{
	bool has_password = false;

	for (size_t i = 0; i < servers->n_servers; i++)
		has_password = has_password || servers->servers[i].password;
	if (!f->is_missing && has_password && (f->st.mode & 077))
		buf_printf(warnings,
			"%s holds a password and others may read it (mode %04o); 'chmod 600 %s' keeps it yours\n",
			config_file_name(path), f->st.mode & 07777, path);
}

int config_load(const char *home, struct config *ret, struct err *e)
{
	CLEANUP_FREE char *path = xasprintf("%s/config.yml", home);
	CLEANUP(config_file_done) struct config_file f = {0};
	struct config c = {0};
	int r = config_file_read(path, &f, e);

	if (r == 0)
		r = config_parse(buf_str(&f.bytes), f.bytes.len, path, &c, e);
	if (r < 0)
		return r;
	c.is_missing = f.is_missing;
	config_file_warn_of_mode(&f, path, &c, &c.warnings);
	*ret = c;
	return 0;
}

static int lock(const char *home, int *ret, struct err *e)
{
	CLEANUP_FREE char *path = xasprintf("%s/config.lock", home);
	CLEANUP_CLOSE int fd = -1;
	int64_t end = clock_boot_ms() + LOCK_WAIT_MS;
	struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
	pid_t holder = 0;
	int r = fd_mkdirs(home, e);

	if (r < 0)
		return r;
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (fd < 0)
		return err_sys(e, -errno, "cannot lock config.yml by way of %s", path);
	while ((r = fd_lock(fd, &holder)) == -EAGAIN && clock_boot_ms() < end)
		nanosleep(&pause, NULL);
	if (r == -EAGAIN)
		return err_set(e, r,
			"config.yml is being changed by process %d for 10 s already; try again",
			(int)holder);
	if (r < 0)
		return err_sys(e, r, "cannot lock %s", path);
	*ret = TAKE_FD(fd);
	return 0;
}

static int write_all(int fd, const struct config_file *f, const struct buf *b)
{
	/* The owner first: a change of it may take set-id bits away. Only root can, and only root needs to. */
	if (!f->is_missing && f->st.uid != geteuid() && fchown(fd, f->st.uid, f->st.gid) < 0)
		return -errno;
	if (!f->is_missing && f->st.uid == geteuid() && f->st.gid != getegid())
		(void)!fchown(fd, (uid_t)-1, f->st.gid);
	if (fchmod(fd, f->is_missing ? 0600 : f->st.mode & 0777) < 0)
		return -errno;
	if (fd_write_all(fd, buf_str(b), b->len) < 0 || fsync(fd) < 0)
		return -errno;
	return 0;
}

/* -EAGAIN: not the file any more that was read. */
static int check_unchanged(const struct config_file *f)
{
	struct sys_stat now;
	int r = sys_stat_at(AT_FDCWD, f->path, 0, &now);

	if (r == -ENOENT)
		return f->is_missing ? 0 : -EAGAIN;
	if (r < 0)
		return r;
	return !f->is_missing && now.ino == f->st.ino && now.dev == f->st.dev &&
			       now.size == f->st.size && now.mtime_ns == f->st.mtime_ns
		       ? 0
		       : -EAGAIN;
}

static int replace(const struct config_file *f, const struct buf *b)
{
	char random[17];
	CLEANUP_FREE char *temporary = NULL;
	CLEANUP_CLOSE int fd = -1;
	int r;

	random_hex(8, random);
	temporary = xasprintf("%s.tmp%s", f->path, random);
	fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	r = write_all(fd, f, b);
	if (r == 0)
		r = fault_point("config.before-replace");
	if (r == 0)
		r = check_unchanged(f);
	if (r == 0 && rename(temporary, f->path) < 0)
		r = -errno;
	if (r < 0) {
		unlink(temporary);
		return r;
	}
	/* The new file is in place; that its name is on the disk too is all that's left to hope for. */
	(void)fd_sync_dir_at(AT_FDCWD, f->path);
	return 0;
}

/* No Ctrl-C between temporary and rename: nothing is left lying about. */
static int replace_undisturbed(const struct config_file *f, const struct buf *b)
{
	sigset_t held, before;
	int r;

	sigemptyset(&held);
	sigaddset(&held, SIGINT);
	sigaddset(&held, SIGTERM);
	sigaddset(&held, SIGHUP);
	sigaddset(&held, SIGQUIT);
	sigaddset(&held, SIGTSTP);
	sigprocmask(SIG_BLOCK, &held, &before);
	r = replace(f, b);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return r;
}

static int check_secrets(const struct edit *edit, const struct config_file *f, struct err *e)
{
	bool has_password = false;

	for (size_t i = 0; i < edit->n_add; i++)
		has_password = has_password || edit->add[i].password;
	if (!has_password || f->is_missing || !(f->st.mode & 077))
		return 0;
	return err_set(e, -EPERM,
		"others may read %s (mode %04o), so no password is put there; 'chmod 600 %s' first",
		f->path, f->st.mode & 07777, f->path);
}

static int change_once(const char *home, const struct edit *edit, struct err *e)
{
	CLEANUP_FREE char *path = xasprintf("%s/config.yml", home);
	CLEANUP(config_file_done) struct config_file f = {0};
	CLEANUP(buf_done) struct buf out = {0};
	int r = config_file_read(path, &f, e);

	if (r == 0)
		r = check_secrets(edit, &f, e);
	if (r == 0)
		r = edit_apply(
			edit, buf_str(&f.bytes), f.bytes.len, config_file_name(f.path), &out, e);
	if (r < 0)
		return r;
	if (out.len > DOC_BYTES)
		return err_set(e, -EFBIG, "%s would become larger than 1 MiB", f.path);
	if (!f.is_missing && out.len == f.bytes.len &&
		!memcmp(buf_str(&out), buf_str(&f.bytes), out.len))
		return 0;
	r = replace_undisturbed(&f, &out);
	if (r < 0 && r != -EAGAIN)
		return err_sys(e, r, "cannot write %s, which stays as it was", f.path);
	return r;
}

static int change(const char *home, const struct edit *edit, struct err *e)
{
	CLEANUP_CLOSE int fd = -1;
	int r = lock(home, &fd, e);

	for (int looks = 0; r == 0; looks++) {
		r = change_once(home, edit, e);
		if (r != -EAGAIN)
			return r;
		if (looks == LOOKS_MAX)
			return err_set(e, r, "%s/config.yml changes all the time; try again", home);
		r = 0;
	}
	return r;
}

int config_add(const char *home, const struct host_config *hosts, size_t n, struct err *e)
{
	struct edit edit = {.add = hosts, .n_add = n};

	return n ? change(home, &edit, e) : 0;
}

int config_remove(const char *home, const char *nickname, struct err *e)
{
	struct edit edit = {.remove = nickname};

	return change(home, &edit, e);
}

int config_set(
	const char *home, const char *section, const char *key, const char *value, struct err *e)
{
	struct edit edit = {.section = section, .key = key, .value = value};

	return change(home, &edit, e);
}
