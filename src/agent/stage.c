/* The part file of a body and its way into the stage (stage.h). Must not touch a stage that another process works in. */
#include "agent/stage.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct stage_body {
	struct root *root;
	int fd;
	char part[40]; /* below the root; "" once it's in its place */
	char token[ID_LEN];
	int64_t size, got;
};

static bool is_token(const char *s)
{
	return strlen(s) == ID_LEN - 1 && strspn(s, "0123456789abcdef") == ID_LEN - 1;
}

int stage_body_new(
	struct root *r, const char *token, int64_t size, struct stage_body **ret, struct err *e)
{
	char hex[17];
	struct stage_body *s;

	if (!is_token(token))
		return err_set(
			e, -EINVAL, "the message's \"token\" must be 32 lower-case hex digits");
	if (size < 0 || size > STAGE_BODY_MAX)
		return err_set(e, -E2BIG,
			"a body of %lld bytes can't be staged; at most %d bytes are taken",
			(long long)size, STAGE_BODY_MAX);
	s = xcalloc(1, sizeof(*s));
	s->root = r;
	s->size = size;
	memcpy(s->token, token, ID_LEN);
	random_hex(8, hex);
	snprintf(s->part, sizeof(s->part), "new/part-%s", hex);
	s->fd = openat(r->fd, s->part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (s->fd < 0) {
		int code = err_sys(e, -errno, "cannot make %s/%s", r->path, s->part);

		s->part[0] = '\0';
		stage_body_free(s);
		return code;
	}
	*ret = s;
	return 0;
}

int stage_body_put(struct stage_body *s, const void *bytes, size_t n, struct err *e)
{
	int r;

	if (s->got + (int64_t)n > s->size)
		return err_set(e, -EBADMSG,
			"more came of a body than the %lld bytes that were announced",
			(long long)s->size);
	r = fd_write_all(s->fd, bytes, n);
	if (r)
		return err_sys(e, r, "cannot write %s/%s", s->root->path, s->part);
	/* The disk begins now, so that the sync at the end is short. */
	sync_file_range(s->fd, s->got, (off_t)n, SYNC_FILE_RANGE_WRITE);
	s->got += (int64_t)n;
	return s->got == s->size;
}

/* The stage's directory, locked as claim.c does: only the lock's holder writes there. */
static int open_stage(struct stage_body *s, int *ret_fd, int *ret_lock)
{
	char path[ID_LEN + 8];
	struct sys_stat own, there;
	CLEANUP_CLOSE int fd = -1;
	CLEANUP_CLOSE int lock = -1;
	int r;

	snprintf(path, sizeof(path), "new/%s", s->token);
	if (mkdirat(s->root->fd, path, 0700) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(s->root->fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	lock = openat(fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (lock < 0)
		return -errno;
	r = fd_lock(lock, NULL);
	if (!r)
		r = sys_fstat(fd, &own);
	if (!r)
		r = sys_stat_at(s->root->fd, path, AT_SYMLINK_NOFOLLOW, &there);
	if (r)
		return r;
	/* It became a claim in between. */
	if (own.ino != there.ino || own.dev != there.dev)
		return -EAGAIN;
	*ret_fd = TAKE_FD(fd);
	*ret_lock = TAKE_FD(lock);
	return 0;
}

int stage_body_end(struct stage_body *s, struct err *e)
{
	CLEANUP_CLOSE int fd = -1;
	CLEANUP_CLOSE int lock = -1;
	int r = fdatasync(s->fd) < 0 ? -errno : 0;

	if (!r)
		r = open_stage(s, &fd, &lock);
	if (!r && renameat(s->root->fd, s->part, fd, "body") < 0)
		r = -errno;
	if (!r)
		s->part[0] = '\0';
	if (!r && fsync(fd) < 0)
		r = -errno;
	if (r)
		return err_sys(e, r, "cannot put a body into %s/new/%s", s->root->path, s->token);
	return 0;
}

void stage_body_free(struct stage_body *s)
{
	if (!s)
		return;
	if (s->fd >= 0)
		close(s->fd);
	if (s->part[0])
		unlinkat(s->root->fd, s->part, 0);
	free(s);
}
