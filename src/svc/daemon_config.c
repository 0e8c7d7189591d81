/*
 * The configuration of a daemon: both files are looked at when their directories say that something happened there, and once
 * in each interval (a link's target, another machine's change). What can't be read is said once, and the last good one stays.
 */
#include "svc/daemon_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/sys.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#define SETTLE_MS 50 /* an editor writes in several steps */

static struct file_mark mark_of(const char *path)
{
	struct sys_stat st = {0};
	int r = path ? sys_stat_at(AT_FDCWD, path, 0, &st) : -ENOENT;

	if (r < 0)
		return (struct file_mark){.error = r};
	return (struct file_mark){.mtime_ns = st.mtime_ns, .size = st.size, .ino = st.ino};
}

static bool same_mark(const struct file_mark *a, const struct file_mark *b)
{
	return a->mtime_ns == b->mtime_ns && a->size == b->size && a->ino == b->ino &&
	       a->error == b->error;
}

static void free_config(struct queue_config *c)
{
	if (!c)
		return;
	queue_config_done(c);
	free(c);
}

void config_watch_sweep(struct daemon *d)
{
	struct config_watch *w = &d->config;

	if (controller_config(d->controller) != w->now)
		return;
	for (size_t i = 0; i < w->n_old; i++)
		free_config(w->old[i]);
	w->n_old = 0;
}

static void take(struct daemon *d, struct queue_config *c)
{
	struct config_watch *w = &d->config;

	/* So many changes within one pass: the oldest were never anybody's. */
	if (w->now && w->n_old == ARRAY_LEN(w->old)) {
		free_config(w->old[w->n_old - 1]);
		w->n_old--;
	}
	if (w->now)
		w->old[w->n_old++] = w->now;
	w->now = c;
	controller_configure(d->controller, c);
	if (d->notify)
		notify_configure(d->notify, &c->settings.notify);
}

static int load(struct daemon *d, struct err *e)
{
	struct config_watch *w = &d->config;
	struct queue_config *c = xcalloc(1, sizeof(*c));
	int r = d->o->load(d->o->arg, c, e);

	/* Of the files as they were before they were read: a change meanwhile is seen by the next look. */
	if (r < 0) {
		free_config(c);
		daemon_complain(d, &w->error, "the configuration is left as it was", e->text);
		return r;
	}
	daemon_complain(d, &w->error, "", NULL);
	take(d, c);
	return 0;
}

static void read_marks(const struct config_watch *w, struct file_mark ret[2])
{
	ret[0] = mark_of(w->now ? w->now->config.path : NULL);
	ret[1] = mark_of(w->now ? w->now->path : NULL);
}

void config_watch_look(struct daemon *d, bool always)
{
	struct config_watch *w = &d->config;
	struct file_mark marks[2];
	struct err e = {0};

	read_marks(w, marks);
	if (!always && same_mark(&marks[0], &w->marks[0]) && same_mark(&marks[1], &w->marks[1]))
		return;
	memcpy(w->marks, marks, sizeof(marks));
	if (!load(d, &e))
		daemon_want(d, 0);
}

static void on_settle(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	config_watch_look(arg, false);
}

static bool is_name_of(const char *path, const char *name)
{
	const char *slash = path ? strrchr(path, '/') : NULL;

	return slash && !strcmp(slash + 1, name);
}

/* The database lies in the same directory, and something happens to it all the time. */
static bool names_ours(const struct config_watch *w, const char *bytes, size_t n)
{
	bool found = false;

	for (size_t at = 0; at + sizeof(struct inotify_event) <= n;) {
		const struct inotify_event *ev = (const struct inotify_event *)(bytes + at);

		/* Too much happened to be told of: look. */
		found |= (ev->mask & IN_Q_OVERFLOW) ||
			 (ev->len && (is_name_of(w->now->config.path, ev->name) ||
					     is_name_of(w->now->path, ev->name)));
		at += sizeof(*ev) + ev->len;
	}
	return found;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	static const struct timeval soon = {.tv_usec = SETTLE_MS * 1000};
	struct daemon *d = arg;
	_Alignas(struct inotify_event) char bytes[8192];
	bool is_ours = false;
	ssize_t n;

	(void)what;
	while ((n = read(fd, bytes, sizeof(bytes))) > 0)
		is_ours |= names_ours(&d->config, bytes, (size_t)n);
	/* What is being waited for already isn't put off by the next change. */
	if (is_ours && !evtimer_pending(d->config.settle, NULL))
		event_add(d->config.settle, &soon);
}

static void watch_dir_of(struct config_watch *w, const char *path)
{
	CLEANUP_FREE char *dir = path ? xstrdup(path) : NULL;
	char *slash = dir ? strrchr(dir, '/') : NULL;

	if (!slash)
		return;
	slash[slash == dir] = '\0';
	inotify_add_watch(w->fd, dir,
		IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_CREATE | IN_ONLYDIR);
}

int config_watch_begin(struct daemon *d, struct err *e)
{
	struct config_watch *w = &d->config;
	int r;

	w->fd = -1;
	r = load(d, e);
	if (r < 0)
		return r;
	read_marks(w, w->marks);
	w->settle = evtimer_new(d->base, on_settle, d);
	/* Without it the interval's look is what remains. */
	w->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (w->fd < 0)
		return 0;
	watch_dir_of(w, w->now->config.path);
	watch_dir_of(w, w->now->path);
	w->readable = event_new(d->base, w->fd, EV_READ | EV_PERSIST, on_readable, d);
	event_add(w->readable, NULL);
	return 0;
}

/* The controller is gone by then. */
void config_watch_done(struct daemon *d)
{
	struct config_watch *w = &d->config;

	if (w->readable)
		event_free(w->readable);
	if (w->settle)
		event_free(w->settle);
	if (w->fd >= 0)
		close(w->fd);
	for (size_t i = 0; i < w->n_old; i++)
		free_config(w->old[i]);
	free_config(w->now);
	free(w->error);
}
