/*
 * The transport to the agent of this machine: its socket, or a new agent when nobody listens there. agent/root.h says
 * where.
 */
#include "fleet/link_inner.h"

#include "agent/root.h"
#include "base/alloc.h"
#include "base/fd.h"
#include "fleet/agent_file.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define HELLO_MS 5000

/* A connected socket, or -errno. */
static int connect_root(struct err *e)
{
	char path[4096];
	struct root root;
	struct sockaddr_un address;
	int fd, r;

	root_init(&root);
	r = root_path(path, sizeof(path), e);
	if (!r)
		r = root_open(&root, path, e);
	if (r < 0)
		return r;
	r = root_sockaddr(&root, "agent.sock", &address, e);
	fd = r < 0 ? -1 : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (!r && fd < 0)
		r = -errno;
	if (!r && connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		r = -errno;
	if ((r == -ECONNREFUSED || r == -ENOENT) && !(r = agent_file_serve(root.path, e)) &&
		connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		r = err_sys(e, -errno, "cannot reach the agent at %s/agent.sock", root.path);
	root_done(&root);
	if (r < 0) {
		if (fd >= 0)
			close(fd);
		if (!e->text[0])
			err_sys(e, r, "cannot reach the agent");
		return r;
	}
	fd_set_nonblock(fd, true);
	return fd;
}

struct link_local {
	struct transport t;
	bool is_hung; /* somebody listens and doesn't answer */
};

/* Whoever owns the socket is ended; its jobs are their shims' and don't notice. */
static void end_hung(void)
{
	char path[4096];
	struct root root;
	pid_t pid = 0;
	int fd;

	root_init(&root);
	if (root_path(path, sizeof(path), NULL) || root_open(&root, path, NULL))
		return;
	fd = openat(root.fd, "agent.lock", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 && !fd_lock_holder(fd, &pid) && pid > 0 && !kill(pid, SIGKILL))
		/* Its lock and its socket go with it. */
		for (int i = 0; i < 100 && !fd_lock_holder(fd, &pid) && pid; i++)
			poll(NULL, 0, 5);
	if (fd >= 0)
		close(fd);
	root_done(&root);
}

static void local_open(struct transport *t)
{
	struct link_local *l = (struct link_local *)t;
	struct err e = {0};
	int fd;

	if (l->is_hung)
		end_hung();
	l->is_hung = false;
	fd = connect_root(&e);

	if (fd < 0)
		link_failed(t->link, LINK_FAIL_NET, e.text);
	else
		link_opened(t->link, fd, NULL, 0);
}

static bool local_close(struct transport *t, const char *why)
{
	((struct link_local *)t)->is_hung = why && !strcmp(why, LINK_UNANSWERED);
	return false;
}

static void local_free(struct transport *t)
{
	free(t);
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
	return link_new(base, &l->t, who, owner);
}
