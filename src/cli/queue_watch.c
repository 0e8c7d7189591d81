/* See queue_watch.h. The record itself says what happened: whoever wakes us is only a reason to look. */
#include "cli/queue_watch.h"

#include "base/clock.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define LOOK_MS 300
#define FIND_MS 2000

void queue_find_daemon(struct queue *q, struct daemon_talk *t)
{
	if (!store_is_elsewheres(q->store))
		(void)daemon_bell_open(t, q->path, store_queue(q->store));
}

int queue_watch_begin(struct queue_watch *w, struct queue *q, struct err *e)
{
	sigset_t set;

	*w = (struct queue_watch){.q = q, .talk = {.fd = -1}};
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, &w->before);
	w->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (w->signal_fd < 0)
		return err_sys(e, -errno, "cannot watch for signals");
	return store_data_version(q->store, &w->version, e);
}

/* 1: somebody has written since it was asked last. */
static int has_changed(struct queue_watch *w, struct err *e)
{
	int64_t version = 0;
	int r = store_data_version(w->q->store, &version, e);

	if (r)
		return r;
	r = version != w->version;
	w->version = version;
	return r;
}

static bool took_signal(struct queue_watch *w)
{
	struct signalfd_siginfo si;

	if (read(w->signal_fd, &si, sizeof(si)) != (ssize_t)sizeof(si))
		return false;
	w->signal_no = (int)si.ssi_signo;
	return true;
}

int queue_watch_sleep(struct queue_watch *w, enum queue_woke *ret, struct err *e)
{
	for (;;) {
		struct pollfd pfd[3];
		int r;

		if (w->talk.fd < 0 && clock_boot_ms() >= w->find_at_ms) {
			queue_find_daemon(w->q, &w->talk);
			w->find_at_ms = clock_boot_ms() + FIND_MS;
		}
		pfd[0] = (struct pollfd){.fd = w->signal_fd, .events = POLLIN};
		pfd[1] = (struct pollfd){.fd = STDOUT_FILENO};
		pfd[2] = (struct pollfd){.fd = w->talk.fd, .events = POLLIN};
		r = poll(pfd, 3, LOOK_MS) > 0;
		if (r && pfd[0].revents && took_signal(w)) {
			*ret = QUEUE_WOKE_SIGNAL;
			return 0;
		}
		if (r && pfd[1].revents & (POLLERR | POLLHUP)) {
			*ret = QUEUE_WOKE_NO_READER;
			return 0;
		}
		if (r && pfd[2].revents)
			(void)daemon_bell_rang(&w->talk);
		r = has_changed(w, e);
		if (r) {
			*ret = QUEUE_WOKE_NEWS;
			return r < 0 ? r : 0;
		}
	}
}

void queue_watch_done(struct queue_watch *w)
{
	daemon_talk_done(&w->talk);
	if (w->signal_fd >= 0)
		close(w->signal_fd);
	sigprocmask(SIG_SETMASK, &w->before, NULL);
}
