/*
 * The process that follows one file (follow.h): its loop, and inotify. Where the file system, or /proc, doesn't have that,
 * the look every second remains.
 */
#include "agent/follow.h"
#include "base/clock.h"
#include "base/fd.h"
#include "core/wire.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/socket.h>
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

__attribute__((noreturn)) static void read_it(const struct follow *f, int fd, pid_t parent)
{
	struct reader x = {.file = *f, .link = {.fd = fd}, .notify_fd = -1, .watch = -1};
	struct sigaction action = {.sa_handler = SIG_DFL};
	struct err e = {0};
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
	prctl(PR_SET_CHILD_SUBREAPER, 0);
	prctl(PR_SET_NAME, FOLLOW_NAME);
	for (int i = 1; i < NSIG; i++)
		sigaction(i, &action, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	fd_close_from(3, &fd, 1);
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
	pid_t self = getpid(), pid;
	int sv[2], code;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv))
		return -errno;
	pid = fork();
	code = pid < 0 ? -errno : 0;
	if (pid == 0)
		read_it(f, sv[1], self);
	close(sv[1]);
	if (code < 0) {
		close(sv[0]);
		return code;
	}
	fd_set_nonblock(sv[0], true);
	*ret_fd = sv[0];
	return pid;
}
