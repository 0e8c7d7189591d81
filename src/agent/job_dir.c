/* Making and removing job directories (job_dir.h). Decides nothing about claims. */
#include "agent/job_dir.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/sys.h"
#include "core/job.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define WAY_OUT "make room there, or let job_root name another place"
#define GONE ".gone-"

/* ---- the way down ---- */

/* A link is as good as who made it: ours and the administrator's are followed, nobody else's. */
static int open_link(int at, const char *name, const char *path, struct err *e)
{
	struct sys_stat st;
	int r = sys_stat_at(at, name, AT_SYMLINK_NOFOLLOW, &st);

	if (r < 0)
		return err_sys(e, r, "cannot open %s", path);
	if (!S_ISLNK(st.mode))
		return err_set(e, -ENOTDIR,
			"%s isn't a directory; move it away, or let job_root name another place",
			path);
	if (st.uid != 0 && st.uid != geteuid())
		return err_set(e, -EPERM,
			"%s is a link that belongs to uid %u, so no job's directory is put behind it; let job_root name another place",
			path, st.uid);
	r = openat(at, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return r < 0 ? err_sys(e, -errno, "cannot open %s", path) : r;
}

/* One step down. With may_make a missing one is made, 0700 and durable. -ENOENT has no sentence worth reading. */
static int step_down(int at, const char *name, const char *path, bool may_make, struct err *e)
{
	int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(at, name, flags);

	if (fd < 0 && errno == ENOENT && may_make) {
		int r = mkdirat(at, name, 0700) < 0 ? -errno : fd_sync_dir_at(at, ".");

		if (r < 0 && r != -EEXIST)
			return err_sys(e, r, "cannot make the directory %s (" WAY_OUT ")", path);
		fd = openat(at, name, flags);
	}
	if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
		return open_link(at, name, path, e);
	return fd < 0 ? err_sys(e, -errno, "cannot open %s", path) : fd;
}

/* Nobody else may change what lies under it. */
static int check_ours(int fd, const char *path, struct err *e)
{
	struct sys_stat st;
	int r = sys_stat_at(fd, "", AT_EMPTY_PATH, &st);

	if (r < 0)
		return err_sys(e, r, "cannot look at %s", path);
	if (st.uid != geteuid())
		return err_set(e, -EPERM,
			"%s belongs to uid %u, not to us; let job_root name another place", path,
			st.uid);
	if (st.mode & 022)
		return err_set(e, -EPERM,
			"%s may be written by others; chmod 700 it, or let job_root name another place",
			path);
	return 0;
}

/* The directory at this absolute path, which must be ours: a descriptor (O_PATH). */
static int open_ours(const char *path, bool may_make, struct err *e)
{
	CLEANUP_FREE char *walked = xstrdup(path);
	CLEANUP_CLOSE int at = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char *name = walked + strspn(walked, "/");
	int r = at < 0 ? err_sys(e, -errno, "cannot open /") : 0;

	while (r >= 0 && *name) {
		char *end = name + strcspn(name, "/"), c = *end;

		*end = '\0';
		r = step_down(at, name, walked, may_make, e);
		*end = c;
		if (r < 0)
			return r;
		close(at);
		at = r;
		name = end + strspn(end, "/");
	}
	r = r < 0 ? r : check_ours(at, path, e);
	return r < 0 ? r : TAKE_FD(at);
}

/* The queue's directory, which holds the job's; *ret_leaf points into s->dir. */
static int open_parent(
	const struct claim_spec *s, bool may_make, const char **ret_leaf, struct err *e)
{
	const char *slash = strrchr(s->dir, '/');
	CLEANUP_FREE char *parent = xstrndup(s->dir, (size_t)(slash - s->dir));

	*ret_leaf = slash + 1;
	return open_ours(parent, may_make, e);
}

/* ---- one job's ---- */

static int write_run_sh(int fd, const char *text, size_t n)
{
	CLEANUP_CLOSE int file = -1;
	int r = fault_point("jobdir.before-run-sh");

	if (r < 0)
		return r;
	file = openat(fd, "run.sh", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0700);
	if (file < 0)
		return -errno;
	r = fd_write_all(file, text, n);
	if (!r && fsync(file) < 0)
		r = -errno;
	return r;
}

static int make_leaf(int parent, const char *leaf, const char *text, size_t n)
{
	CLEANUP_CLOSE int fd = -1;
	int r = fd_remove_tree_at(parent, leaf);

	if (!r && mkdirat(parent, leaf, 0700) < 0)
		r = -errno;
	if (r)
		return r;
	fd = openat(parent, leaf, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	r = fd < 0 ? -errno : write_run_sh(fd, text, n);
	if (!r && fsync(fd) < 0)
		r = -errno;
	if (!r)
		r = fd_sync_dir_at(parent, ".");
	if (r)
		fd_remove_tree_at(parent, leaf);
	return r;
}

/* The text of run.sh: the message's, or what was sent ahead. */
static int take_body(const struct root *r, const struct claim_spec *s, struct buf *b, struct err *e)
{
	char path[ID_LEN + 16];
	int code;

	if (!s->is_staged) {
		buf_puts(b, s->body);
		return 0;
	}
	snprintf(path, sizeof(path), "new/%s/body", s->token);
	code = fd_read_file_at(r->fd, path, b, JOB_TEXT_MAX);
	if (code == -ENOENT)
		return err_set(e, code,
			"the job's text isn't there: it wasn't sent ahead, or so long ago that it was cleared away; launch it anew");
	return code < 0 ? err_sys(e, code, "cannot read %s/%s", r->path, path) : 0;
}

int job_dir_make(const struct root *r, const struct claim_spec *s, struct err *e)
{
	CLEANUP(buf_done) struct buf text = {0};
	CLEANUP_CLOSE int parent = -1;
	const char *leaf = NULL;
	int code = take_body(r, s, &text, e);

	if (code < 0)
		return code;
	parent = open_parent(s, true, &leaf, e);
	if (parent < 0)
		return parent;
	code = make_leaf(parent, leaf, buf_str(&text), text.len);
	if (code < 0)
		return err_sys(e, code, "cannot make the job's directory %s (" WAY_OUT ")", s->dir);
	return 0;
}

void job_dir_drop(const struct claim_spec *s)
{
	const char *leaf = NULL;
	CLEANUP_CLOSE int parent = open_parent(s, false, &leaf, NULL);

	if (parent >= 0)
		fd_remove_tree_at(parent, leaf);
}

/* ---- many of them ---- */

/* In a child of the agent: whatever was put out of sight, now or by one that died over it. */
__attribute__((noreturn)) static void remove_gone(int queue_fd)
{
	struct sigaction action = {.sa_handler = SIG_DFL};
	sigset_t none;
	int keep = fcntl(queue_fd, F_DUPFD_CLOEXEC, 3);
	DIR *d;

	for (int i = 1; i < NSIG; i++)
		sigaction(i, &action, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	/* No socket of the agent's may live on here. */
	fd_close_from(3, &keep, 1);
	d = fdopendir(openat(keep, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	for (struct dirent *entry; d && (entry = readdir(d));)
		if (!strncmp(entry->d_name, GONE, sizeof(GONE) - 1))
			fd_remove_tree_at(keep, entry->d_name);
	_exit(0);
}

static bool hide(int queue_fd, const struct attempt_name *n)
{
	char name[ATTEMPT_NAME_LEN], gone[64], random[17];
	const char *leaf;

	attempt_name_format(n, name);
	leaf = strchr(name, '/') + 1;
	random_hex(8, random);
	snprintf(gone, sizeof(gone), GONE "%s", random);
	return renameat(queue_fd, leaf, queue_fd, gone) == 0;
}

int job_dir_remove(const char *job_root, const struct attempt_name *names, size_t n, struct err *e)
{
	CLEANUP_FREE char *path = NULL;
	CLEANUP_CLOSE int fd = -1;
	int hidden = 0;

	if (!n)
		return 0;
	path = xasprintf("%s/%s", job_root, names[0].queue);
	fd = open_ours(path, false, e);
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	for (size_t i = 0; i < n; i++)
		hidden += hide(fd, &names[i]);
	if (hidden && fork() == 0)
		remove_gone(fd);
	return hidden;
}
