/* Whole reads and writes, durable replacement, bounds, locks. */
#include "base/fd.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/sys.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

int fd_write_all(int fd, const void *bytes, size_t n)
{
	const char *p = bytes;

	while (n) {
		ssize_t r = write(fd, p, n);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		p += r;
		n -= (size_t)r;
	}
	return 0;
}

int fd_push(int fd, struct buf *b, size_t *taken, size_t piece)
{
	while (*taken < b->len) {
		size_t left = b->len - *taken;
		ssize_t n = write(fd, b->data + *taken, left < piece ? left : piece);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n <= 0)
			return -EIO;
		*taken += (size_t)n;
	}
	buf_clear(b);
	*taken = 0;
	return 0;
}

int fd_pwrite_all(int fd, const void *bytes, size_t n, off_t off)
{
	const char *p = bytes;

	while (n) {
		ssize_t r = pwrite(fd, p, n, off);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		p += r;
		off += r;
		n -= (size_t)r;
	}
	return 0;
}

int fd_read_all(int fd, struct buf *b, size_t max)
{
	size_t start = b->len;

	for (;;) {
		ssize_t r;

		buf_reserve(b, 16384);
		r = read(fd, b->data + b->len, 16384);
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		if (!r)
			break;
		b->len += (size_t)r;
		if (b->len - start > max) {
			b->len = start;
			b->data[b->len] = '\0';
			return -EFBIG;
		}
	}
	b->data[b->len] = '\0';
	return 0;
}

int fd_read_file_at(int dirfd, const char *path, struct buf *b, size_t max)
{
	CLEANUP_CLOSE int fd =
		openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	struct sys_stat st;
	int r;

	if (fd < 0)
		return -errno;
	r = sys_fstat(fd, &st);
	if (r < 0)
		return r;
	if (S_ISDIR(st.mode))
		return -EISDIR;
	if (!S_ISREG(st.mode))
		return -EINVAL;
	return fd_read_all(fd, b, max);
}

static int write_new(int dirfd, const char *path, const void *bytes, size_t n, bool durable)
{
	CLEANUP_CLOSE int fd =
		openat(dirfd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	int r;

	if (fd < 0)
		return -errno;
	r = fd_write_all(fd, bytes, n);
	if (!r && durable && fdatasync(fd) < 0)
		r = -errno;
	return r;
}

/* fsync of the directory that holds path. */
static int sync_parent(int dirfd, const char *path)
{
	const char *slash = strrchr(path, '/');
	CLEANUP_FREE char *dir =
		slash ? xstrndup(path, slash == path ? 1 : (size_t)(slash - path)) : xstrdup(".");

	return fd_sync_dir_at(dirfd, dir);
}

int fd_replace_at(int dirfd, const char *path, const void *bytes, size_t n, bool durable)
{
	char hex[17];
	CLEANUP_FREE char *temporary = NULL;
	int r;

	random_hex(8, hex);
	temporary = xasprintf("%s.tmp%s", path, hex);
	r = write_new(dirfd, temporary, bytes, n, durable);
	if (!r && renameat(dirfd, temporary, dirfd, path) < 0)
		r = -errno;
	if (r < 0) {
		unlinkat(dirfd, temporary, 0);
		return r;
	}
	return durable ? sync_parent(dirfd, path) : 0;
}

int fd_sync_dir_at(int dirfd, const char *path)
{
	CLEANUP_CLOSE int fd = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 || fsync(fd) < 0)
		return -errno;
	return 0;
}

int fd_set_nonblock(int fd, bool on)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) < 0)
		return -errno;
	return 0;
}

int fd_set_cloexec(int fd, bool on)
{
	return fcntl(fd, F_SETFD, on ? FD_CLOEXEC : 0) < 0 ? -errno : 0;
}

/* Closes from..to inclusive one by one. */
static void close_each(int from, int to)
{
	for (int fd = from; fd <= to; fd++)
		close(fd);
}

static void close_span(int from, int to_or_end)
{
	struct rlimit limit;
	int to = to_or_end;

	if (to >= 0 && to < from)
		return;
	if (sys_close_range((unsigned)from, to < 0 ? ~0U : (unsigned)to) == 0)
		return;
	if (to < 0) {
		to = 65535;
		if (!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur < 65536)
			to = (int)limit.rlim_cur;
	}
	close_each(from, to);
}

void fd_close_from(int from, const int *keep, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (keep[i] < from)
			continue;
		close_span(from, keep[i] - 1);
		from = keep[i] + 1;
	}
	close_span(from, -1);
}

int fd_mkdirs(const char *path, struct err *e)
{
	CLEANUP_FREE char *p = xstrdup(path);
	struct sys_stat st;

	for (char *s = p + 1;; s++) {
		char c = *s;

		if (c && c != '/')
			continue;
		*s = '\0';
		if (mkdir(p, 0700) < 0 && errno != EEXIST && (!c || errno != EROFS) &&
			(!c || errno != EACCES))
			return err_sys(e, -errno, "cannot make the directory %s", p);
		*s = c;
		if (!c)
			break;
	}
	if (sys_stat_at(AT_FDCWD, path, 0, &st) < 0)
		return err_sys(e, -errno, "cannot make the directory %s", path);
	if (!S_ISDIR(st.mode))
		return err_set(e, -ENOTDIR, "%s is not a directory", path);
	return 0;
}

static int remove_children(int fd)
{
	CLEANUP_CLOSEDIR DIR *d = fdopendir(dup(fd));
	struct dirent *entry;
	int result = 0;

	if (!d)
		return -errno;
	while ((entry = readdir(d))) {
		int r;

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		r = fd_remove_tree_at(fd, entry->d_name);
		if (r < 0)
			result = r;
	}
	return result;
}

int fd_remove_tree_at(int dirfd, const char *path)
{
	CLEANUP_CLOSE int fd = -1;
	int r;

	if (!unlinkat(dirfd, path, 0) || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	fd = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = remove_children(fd);
	if (unlinkat(dirfd, path, AT_REMOVEDIR) < 0)
		return r < 0 ? r : -errno;
	return 0;
}

int fd_check_private_dir(const char *path, struct err *e)
{
	struct sys_stat st;
	int r = sys_stat_at(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, &st);

	if (r < 0)
		return err_sys(e, r, "cannot look at %s", path);
	if (!S_ISDIR(st.mode))
		return err_set(e, -ENOTDIR, "%s is not a directory; move it away", path);
	if (st.uid != geteuid())
		return err_set(e, -EPERM,
			"%s belongs to uid %u, not to us; remove it or choose another place", path,
			st.uid);
	if (st.mode & 022)
		return err_set(e, -EPERM, "%s may be written by others; chmod 700 it", path);
	return 0;
}

int fd_lock(int fd, pid_t *ret_holder)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int r = fcntl(fd, F_SETLK, &l) < 0 ? -errno : 0;

	if (r == -EACCES)
		r = -EAGAIN;
	if (r == -EAGAIN && ret_holder && fd_lock_holder(fd, ret_holder) < 0)
		*ret_holder = 0;
	return r;
}

int fd_lock_holder(int fd, pid_t *ret_holder)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	if (fcntl(fd, F_GETLK, &l) < 0)
		return -errno;
	*ret_holder = l.l_type == F_UNLCK ? 0 : l.l_pid;
	return 0;
}
