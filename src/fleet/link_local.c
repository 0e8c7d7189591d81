/*
 * The transport to the agent of this machine: its socket, or a new agent when nobody listens there. agent/root.h says
 * where.
 *
 * Everything that may take its time is done by a fork of this program, the starter: putting the agent's file into its place,
 * trying it, starting it, ending one that hangs. The loop only connects, which a Unix socket does at once or not at all.
 *
 *   open --somebody listens--> opened
 *     '--nobody, or one that hangs--> starter --0--> connected once more --> opened
 *                                       '--its words, or START_MS--> failed
 */
#include "fleet/link_inner.h"

#include "agent/root.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "fleet/agent_file.h"
#include "fleet/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define HELLO_MS 5000
#define START_MS 10000 /* for the starter; the agent itself has 5 s of them to come up */

struct link_local {
	struct transport t;
	struct event_base *base;
	bool is_hung; /* somebody listens and doesn't answer */
	int64_t full_ms; /* BOOTTIME: since when nobody takes up connections there; 0: somebody does */
	struct child *starter; /* NULL: none; it may have been given up, and not have ended yet */
	bool is_given_up;
	struct event *limit;
};

/* A connected socket, or -errno; without a sentence: -ECONNREFUSED and -ENOENT, nobody listens; -EAGAIN. */
static int connect_root(struct err *e)
{
	char path[4096];
	struct root root;
	struct sockaddr_un address;
	int fd = -1, r;

	root_init(&root);
	r = root_path(path, sizeof(path), e);
	if (!r)
		r = root_open(&root, path, e);
	if (!r)
		r = root_sockaddr(&root, "agent.sock", &address, e);
	if (!r && (fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) < 0)
		r = -errno;
	if (!r && connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		r = -errno;
	root_done(&root);
	if (!r)
		return fd;
	if (fd >= 0)
		close(fd);
	return r;
}

/* ---- in the starter ---- */

/* Whoever owns the socket is ended; its jobs are their shims' and don't notice. */
static void end_hung(const struct root *root)
{
	pid_t pid = 0;
	int fd = openat(root->fd, "agent.lock", O_RDWR | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0 && !fd_lock_holder(fd, &pid) && pid > 0 && !kill(pid, SIGKILL))
		/* Its lock and its socket go with it. */
		for (int i = 0; i < 100 && !fd_lock_holder(fd, &pid) && pid; i++)
			poll(NULL, 0, 5);
	if (fd >= 0)
		close(fd);
}

static int start_agent(const void *arg)
{
	const struct link_local *l = arg;
	char path[4096];
	struct err e = {0};
	struct root root;
	int r;

	root_init(&root);
	r = root_path(path, sizeof(path), &e);
	if (!r)
		r = root_open(&root, path, &e);
	if (!r && l->is_hung)
		end_hung(&root);
	if (!r)
		r = agent_file_serve(root.path, &e);
	root_done(&root);
	if (r < 0)
		dprintf(2, "%s", e.text);
	return r < 0;
}

/* ---- in the loop ---- */

static void take_socket(struct link_local *l, int fd, const struct err *e)
{
	struct err own = {0};

	l->full_ms = 0;
	if (fd >= 0) {
		link_opened(l->t.link, fd, NULL, 0);
		return;
	}
	if (!e->text[0])
		err_sys(&own, fd, "cannot reach this machine's agent");
	link_failed(l->t.link, LINK_FAIL_NET, e->text[0] ? e->text : own.text);
}

static void on_started(void *arg, int status)
{
	struct link_local *l = arg;
	struct child *starter = l->starter;
	bool was_given_up = l->is_given_up;
	struct err e = {0};

	l->starter = NULL;
	l->is_given_up = false;
	event_del(l->limit);
	if (was_given_up) {
		/* That was told when it was. */
	} else if (WIFEXITED(status) && !WEXITSTATUS(status)) {
		take_socket(l, connect_root(&e), &e);
	} else {
		const char *said = child_said(starter);

		link_failed(l->t.link, LINK_FAIL_NET,
			*said ? said : "this machine's agent could not be started");
	}
	child_free(starter, true);
}

static void on_limit(evutil_socket_t fd, short what, void *arg)
{
	struct link_local *l = arg;

	(void)fd, (void)what;
	if (!l->starter || l->is_given_up)
		return;
	l->is_given_up = true;
	child_end(l->starter, 0);
	link_failed(l->t.link, LINK_FAIL_NET,
		"starting this machine's agent took longer than 10 s, and was given up");
}

static void start(struct link_local *l)
{
	const struct timeval limit = {.tv_sec = START_MS / 1000};
	const struct child_spec spec = {.run = start_agent, .run_arg = l};
	struct err e = {0};

	if (child_new(l->base, &spec, on_started, l, &l->starter, &e) < 0) {
		link_failed(l->t.link, LINK_FAIL_NET, e.text);
		return;
	}
	/* It has its own copy of this by now. */
	l->is_hung = false;
	event_add(l->limit, &limit);
}

/* It takes up no connection: busy, or it hangs, and then no hello will ever tell. */
static void wait_for_room(struct link_local *l)
{
	int64_t now_ms = clock_boot_ms();

	if (!l->full_ms)
		l->full_ms = now_ms;
	l->is_hung = now_ms - l->full_ms >= HELLO_MS;
	if (l->is_hung)
		l->full_ms = 0;
	link_failed(l->t.link, LINK_FAIL_NET,
		"this machine's agent takes up no connection: too many wait for it already");
}

static void local_open(struct transport *t)
{
	struct link_local *l = (struct link_local *)t;
	struct err e = {0};
	int fd;

	if (l->starter) {
		link_failed(t->link, LINK_FAIL_NET,
			"the last start of this machine's agent was given up, and hasn't ended yet");
		return;
	}
	fd = l->is_hung ? -ECONNREFUSED : connect_root(&e);
	if (fd == -EAGAIN)
		wait_for_room(l);
	else if (fd == -ECONNREFUSED || fd == -ENOENT)
		start(l);
	else
		take_socket(l, fd, &e);
}

static bool local_close(struct transport *t, const char *why)
{
	struct link_local *l = (struct link_local *)t;

	l->is_hung = why && !strcmp(why, LINK_UNANSWERED);
	return false;
}

static void local_free(struct transport *t)
{
	struct link_local *l = (struct link_local *)t;

	child_free(l->starter, true);
	event_free(l->limit);
	free(l);
}

/* At once, then 0.1 s, doubling to 5 s. */
static int64_t local_delay_ms(
	struct transport *t, enum link_failure kind, unsigned n_failures, bool was_up)
{
	if (!n_failures)
		return 0;
	return n_failures > 6 ? 5000 : 100 << (n_failures - 1);
}

static const struct transport_impl local_impl = {
	.open = local_open,
	.close = local_close,
	.free = local_free,
	.hello_ms = HELLO_MS,
	.delay_ms = local_delay_ms,
};

struct link *link_new_local(
	struct event_base *base, const struct link_who *who, const struct link_owner *owner)
{
	struct link_local *l = xcalloc(1, sizeof(*l));

	l->t.impl = &local_impl;
	l->base = base;
	l->limit = evtimer_new(base, on_limit, l);
	return link_new(base, &l->t, who, owner);
}
