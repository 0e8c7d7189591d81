/*
 * The process that follows one file (follow.h): its loop, and inotify. Where the file system, or /proc, doesn't have that,
 * the look every second remains.
 */
#include "agent/follow.h"
#include "agent/helper.h"
#include "base/clock.h"
#include "core/wire.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <unistd.h>

#define HEAR_MS 20 /* a job that writes line by line wakes nobody for each of them */

struct reader {
	struct follow file;
	struct client link; /* to the agent: of a client it has what frames need */
	int notify_fd, watch;
	int64_t heard_ms;
};

static void watch(struct reader *x)
{
	char path[40];

	x->file.is_new_fd = false;
	if (x->notify_fd < 0 || !x->file.follow)
		return;
	if (x->watch >= 0)
		inotify_rm_watch(x->notify_fd, x->watch);
	/* By the descriptor: the name may be another file's by now. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", x->file.fd);
	x->watch = inotify_add_watch(
		x->notify_fd, path, IN_MODIFY | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF);
}

static void hear(struct reader *x, int64_t now_ms)
{
	char bytes[4096];

	while (read(x->notify_fd, bytes, sizeof(bytes)) > 0)
		x->file.look_at_ms = now_ms;
	x->heard_ms = now_ms;
}

static void take_words(struct reader *x, int64_t now_ms)
{
	json_t *msg;
	const json_t *v;

	while (wire_get_json(&x->link.in, &msg, NULL) > 0) {
		if ((v = json_object_get(msg, "credit")))
			follow_credit(&x->file, json_integer_value(v));
		if ((v = json_object_get(msg, "ended"))) {
			x->file.has_ended |= json_is_true(v);
			x->file.look_at_ms = now_ms;
		}
		json_decref(msg);
	}
}

/* All that's left to say goes out; nobody waits for this process. */
__attribute__((noreturn)) static void finish(struct reader *x)
{
	struct pollfd p = {.fd = x->link.fd, .events = POLLOUT};

	while (client_write(&x->link) && client_wants_write(&x->link))
		poll(&p, 1, -1);
	_exit(0);
}

static void wait_for_something(struct reader *x, int64_t now_ms)
{
	bool may_hear = now_ms - x->heard_ms >= HEAR_MS;
	struct pollfd p[2] = {{.fd = x->link.fd, .events = POLLIN},
		{.fd = may_hear ? x->notify_fd : -1, .events = POLLIN}};
	int64_t ms = follow_wait_ms(&x->file, &x->link, now_ms);

	if (client_wants_write(&x->link))
		p[0].events |= POLLOUT;
	if (!may_hear && (ms < 0 || ms > HEAR_MS))
		ms = HEAR_MS;
	poll(p, 2, ms < 0 || ms > 60000 ? 60000 : (int)ms);
	now_ms = clock_boot_ms();
	if (p[1].revents)
		hear(x, now_ms);
	if (!client_read(&x->link, now_ms))
		_exit(0);
	take_words(x, now_ms);
}

static void read_it(int fd, void *arg)
{
	const struct follow *f = arg;
	struct reader x = {.file = *f, .link = {.fd = fd}, .notify_fd = -1, .watch = -1};
	struct err e = {0};

	x.notify_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	x.file.look_at_ms = clock_boot_ms();
	for (;;) {
		if (follow_turn(&x.file, &x.link, clock_boot_ms(), &e)) {
			client_error_of(&x.link, x.file.id, e.text);
			finish(&x);
		}
		if (x.file.state == FOLLOW_OVER)
			finish(&x);
		if (x.file.is_new_fd)
			watch(&x);
		if (!client_write(&x.link))
			_exit(0);
		wait_for_something(&x, clock_boot_ms());
	}
}

pid_t follow_fork(const struct follow *f, int *ret_fd)
{
	return helper_fork(FOLLOW_NAME, -1, read_it, (void *)(uintptr_t)f, ret_fd);
}
