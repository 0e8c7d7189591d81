/* The jobs file on disk: read when it changed, believed when it holds still. */
#include "run/watchfile.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/sys.h"
#include "run/jobsfile.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define RING_READS 16 /* of 4 KiB each, in one turn */

static int refuse(struct err *e, const char *path, mode_t mode)
{
	const char *what = S_ISDIR(mode)    ? "a directory"
			   : S_ISFIFO(mode) ? "a pipe"
					    : "not a plain file";

	return err_set(e, -EINVAL,
		"cannot read jobs file: %s is %s; it has to be a plain text file", path, what);
}

/* Reads the file into *b if it isn't what was read last. 1: read, 0: same. */
static int read_if_changed(struct watchfile *w, struct buf *b, struct err *e)
{
	CLEANUP_CLOSE int fd = open(w->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct sys_stat st;
	int r;

	if (fd < 0)
		return err_set(e, -errno, "cannot read jobs file: [Errno %d] %s: '%s'", errno,
			strerror(errno), w->path);
	r = sys_fstat(fd, &st);
	if (r < 0)
		return err_sys(e, r, "cannot read jobs file %s", w->path);
	if (!S_ISREG(st.mode))
		return refuse(e, w->path, st.mode);
	if (w->was_read && st.mtime_ns == w->mtime_ns && st.size == w->size && st.ino == w->ino &&
		st.dev == w->dev)
		return 0;
	r = fd_read_all(fd, b, JOBSFILE_MAX);
	if (r == -EFBIG)
		return err_set(e, r, "cannot read jobs file: %s is larger than %d MiB", w->path,
			JOBSFILE_MAX >> 20);
	if (r < 0)
		return err_sys(e, r, "cannot read jobs file %s", w->path);
	w->mtime_ns = st.mtime_ns;
	w->size = st.size;
	w->ino = st.ino;
	w->dev = st.dev;
	w->was_read = true;
	return 1;
}

static void watch_directory(struct watchfile *w)
{
	const char *slash = strrchr(w->path, '/');
	CLEANUP_FREE char *dir = !slash		    ? xstrdup(".")
				 : slash == w->path ? xstrdup("/")
						    : xstrndup(w->path, (size_t)(slash - w->path));

	w->inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (w->inotify >= 0 && inotify_add_watch(w->inotify, dir,
				       IN_CLOSE_WRITE | IN_MODIFY | IN_MOVED_TO | IN_CREATE |
					       IN_DELETE | IN_MOVED_FROM) < 0) {
		close(w->inotify);
		w->inotify = -1;
	}
}

int watchfile_open(struct watchfile *w, const char *path, struct err *e)
{
	int r;

	*w = (struct watchfile){.inotify = -1};
	w->path = xstrdup(path);
	watch_directory(w);
	r = read_if_changed(w, &w->believed, e);
	return r < 0 ? r : 0;
}

bool watchfile_rang(struct watchfile *w)
{
	const char *slash = strrchr(w->path, '/'), *name = slash ? slash + 1 : w->path;
	char events[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
	bool ours = false;
	ssize_t n;

	/* Bounded: a directory in which somebody writes all the time never runs dry. What is left rings again. */
	for (int i = 0; i < RING_READS && (n = read(w->inotify, events, sizeof(events))) > 0; i++) {
		for (char *p = events; p < events + n;) {
			const struct inotify_event *event = (const struct inotify_event *)p;

			ours |= (event->mask & IN_Q_OVERFLOW) ||
				(event->len && !strcmp(event->name, name));
			p += sizeof(*event) + event->len;
		}
	}
	return ours;
}

static bool equal(const struct buf *a, const char *bytes, size_t n)
{
	return a->len == n && (!n || !memcmp(a->data, bytes, n));
}

/* Bytes up to and with the last newline. */
static size_t whole_lines(const struct buf *b)
{
	size_t n = b->len;

	while (n && b->data[n - 1] != '\n' && b->data[n - 1] != '\r')
		n--;
	return n;
}

static enum watch_result believe(
	struct watchfile *w, size_t n, const char **ret_bytes, size_t *ret_n)
{
	if (equal(&w->believed, buf_str(&w->seen), n))
		return WATCH_SAME;
	buf_clear(&w->believed);
	buf_put(&w->believed, buf_str(&w->seen), n);
	*ret_bytes = buf_str(&w->believed);
	*ret_n = n;
	return WATCH_NEW;
}

enum watch_result watchfile_look(struct watchfile *w, int64_t now_ms, int64_t settle_ms,
	const char **ret_bytes, size_t *ret_n, struct err *e)
{
	CLEANUP(buf_done) struct buf b = {0};
	int r = read_if_changed(w, &b, e);
	size_t n;

	if (r < 0) {
		w->was_read = false;
		return WATCH_FAILED;
	}
	if (r && (!w->is_waiting || !equal(&w->seen, buf_str(&b), b.len))) {
		buf_clear(&w->seen);
		buf_put(&w->seen, buf_str(&b), b.len);
		w->seen_since_ms = now_ms;
		w->is_waiting = !equal(&w->believed, buf_str(&b), b.len);
	}
	if (!w->is_waiting)
		return WATCH_SAME;
	if (now_ms - w->seen_since_ms >= settle_ms) {
		w->is_waiting = false;
		return believe(w, w->seen.len, ret_bytes, ret_n);
	}
	n = whole_lines(&w->seen);
	if (w->seen.len < w->believed.len || !n)
		return WATCH_SAME;
	if (n == w->seen.len)
		w->is_waiting = false;
	return believe(w, n, ret_bytes, ret_n);
}

void watchfile_done(struct watchfile *w)
{
	if (w->inotify >= 0)
		close(w->inotify);
	free(w->path);
	buf_done(&w->believed);
	buf_done(&w->seen);
	*w = (struct watchfile){.inotify = -1};
}
