/* See daemon_server.h. A peer is freed by the loop only, from `dead`, never while somebody may hold it on the stack. */
#include "svc/daemon_server.h"

#include "queue/daemon_client.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define PEERS_MAX 64
#define IN_MAX 65536
#define OUT_MAX (16 * 1024 * 1024)
#define BACKLOG 32

struct daemon_peer {
	struct daemon_server *server;
	int fd;
	bool is_dead, watches;
	struct buf in, out;
	struct event *readable, *writable;
};

struct daemon_server {
	struct event_base *base;
	char *db_path, *path;
	const char *queue;
	struct daemon_server_owner owner;
	int fd;
	dev_t dev;
	ino_t ino;
	struct event *readable, *sweep;
	struct daemon_peer *peers[PEERS_MAX];
	size_t n;
};

/* ---- peers ---- */

static void free_peer(struct daemon_peer *p)
{
	event_free(p->readable);
	event_free(p->writable);
	close(p->fd);
	buf_done(&p->in);
	buf_done(&p->out);
	free(p);
}

static void on_sweep(evutil_socket_t fd, short what, void *arg)
{
	struct daemon_server *s = arg;
	size_t n = 0;

	(void)fd, (void)what;
	for (size_t i = 0; i < s->n; i++) {
		if (s->peers[i]->is_dead)
			free_peer(s->peers[i]);
		else
			s->peers[n++] = s->peers[i];
	}
	s->n = n;
}

static void drop(struct daemon_peer *p)
{
	if (p->is_dead)
		return;
	p->is_dead = true;
	p->watches = false;
	event_del(p->readable);
	event_del(p->writable);
	p->server->owner.gone(p->server->owner.arg, p);
	event_active(p->server->sweep, 0, 0);
}

static void flush(struct daemon_peer *p)
{
	while (p->out.len) {
		ssize_t n = send(p->fd, p->out.data, p->out.len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN) {
			drop(p);
			return;
		}
		if (n < 0)
			break;
		buf_drop(&p->out, (size_t)n);
	}
	if (p->out.len)
		event_add(p->writable, NULL);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	flush(arg);
}

void daemon_peer_say(struct daemon_peer *p, json_t *msg)
{
	CLEANUP_FREE char *line = json_dumps(msg, JSON_COMPACT);

	json_decref(msg);
	if (!line || p->is_dead)
		return;
	if (p->out.len > OUT_MAX) {
		drop(p);
		return;
	}
	buf_puts(&p->out, line);
	buf_putc(&p->out, '\n');
	flush(p);
}

bool *daemon_peer_watches(struct daemon_peer *p)
{
	return &p->watches;
}

static void take_lines(struct daemon_peer *p)
{
	char *end;

	while (!p->is_dead && p->in.len && (end = memchr(p->in.data, '\n', p->in.len))) {
		size_t n = (size_t)(end - p->in.data);
		json_t *msg = json_loadb(p->in.data, n, 0, NULL);
		const char *op = json_string_value(json_object_get(msg, "op"));

		buf_drop(&p->in, n + 1);
		if (op)
			p->server->owner.said(p->server->owner.arg, p, op, msg);
		else
			daemon_peer_say(p, json_pack("{s:s, s:s}", "op", "error", "error",
						   "a line is one JSON object with an \"op\""));
		json_decref(msg);
	}
	if (p->in.len > IN_MAX)
		drop(p);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct daemon_peer *p = arg;
	char bytes[8192];
	ssize_t n = recv(fd, bytes, sizeof(bytes), 0);

	(void)what;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		drop(p);
		return;
	}
	buf_put(&p->in, bytes, (size_t)n);
	take_lines(p);
}

static bool is_ours(int fd)
{
	struct ucred who = {0};
	socklen_t n = sizeof(who);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) && who.uid == geteuid();
}

static void on_connect(evutil_socket_t fd, short what, void *arg)
{
	struct daemon_server *s = arg;
	int got = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct daemon_peer *p;

	(void)what;
	if (got < 0)
		return;
	if (s->n == PEERS_MAX || !is_ours(got)) {
		close(got);
		return;
	}
	p = xcalloc(1, sizeof(*p));
	p->server = s;
	p->fd = got;
	p->readable = event_new(s->base, got, EV_READ | EV_PERSIST, on_readable, p);
	p->writable = event_new(s->base, got, EV_WRITE, on_writable, p);
	event_add(p->readable, NULL);
	s->peers[s->n++] = p;
	daemon_peer_say(p, json_pack("{s:s, s:s, s:s, s:i}", "op", "hello", "queue", s->queue,
				   "version", GPUSTOW_VERSION, "pid", (int)getpid()));
}

void daemon_server_tell(struct daemon_server *s, json_t *msg)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->peers[i]->watches)
			daemon_peer_say(s->peers[i], json_incref(msg));
	json_decref(msg);
}

size_t daemon_server_watchers(const struct daemon_server *s)
{
	size_t n = 0;

	for (size_t i = 0; s && i < s->n; i++)
		n += s->peers[i]->watches;
	return n;
}

/* ---- the socket ---- */

/* The one in /var/tmp has to be made, and to be ours alone. */
static int make_place(const struct daemon_server *s, struct err *e)
{
	CLEANUP_FREE char *dir = xstrdup(s->path);
	char *slash = strrchr(dir, '/');
	int r;

	if (!slash)
		return 0;
	*slash = '\0';
	/* As a rule it's the database's own directory, whoever else may use that. */
	if (!strncmp(s->db_path, s->path, strlen(dir) + 1))
		return 0;
	r = fd_mkdirs(dir, e);
	if (r >= 0)
		r = fd_check_private_dir(dir, e);
	if (r >= 0)
		daemon_sweep(dir);
	return r;
}

static int bind_to(struct daemon_server *s, struct err *e)
{
	struct sockaddr_un a;
	struct stat st = {0};
	int dir = -1, fd, r = make_place(s, e);
	mode_t mask;

	if (r == 0)
		r = daemon_address(s->db_path, &a, &dir, e);
	if (r < 0)
		return r;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	unlink(s->path);
	mask = umask(0177);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, BACKLOG) < 0 ||
		stat(s->path, &st) < 0)
		r = err_sys(e, errno ? -errno : -EIO, "cannot listen at %s", s->path);
	umask(mask);
	if (dir >= 0)
		close(dir);
	if (r < 0) {
		if (fd >= 0)
			close(fd);
		return r;
	}
	s->fd = fd;
	s->dev = st.st_dev;
	s->ino = st.st_ino;
	s->readable = event_new(s->base, fd, EV_READ | EV_PERSIST, on_connect, s);
	event_add(s->readable, NULL);
	return 0;
}

static bool is_still_there(const struct daemon_server *s)
{
	struct stat st;

	return !lstat(s->path, &st) && st.st_dev == s->dev && st.st_ino == s->ino;
}

static void unbind(struct daemon_server *s)
{
	if (s->fd < 0)
		return;
	event_free(s->readable);
	close(s->fd);
	s->fd = -1;
	if (is_still_there(s))
		unlink(s->path);
}

int daemon_server_check(struct daemon_server *s, struct err *e)
{
	if (s->fd >= 0 && is_still_there(s))
		return 0;
	unbind(s);
	return bind_to(s, e);
}

int daemon_server_look(const char *db_path, const char *queue, struct err *e)
{
	CLEANUP(daemon_talk_done) struct daemon_talk t = {.fd = -1};

	if (daemon_talk_open(&t, db_path, queue) < 0)
		return 0;
	return err_set(e, -EBUSY,
		"a daemon runs for this queue already (process %lld); `queue status` shows how it is",
		(long long)t.pid);
}

int daemon_server_new(struct event_base *base, const char *db_path, const char *queue,
	const struct daemon_server_owner *owner, struct daemon_server **ret, struct err *e)
{
	struct daemon_server *s;
	int r;

	s = xcalloc(1, sizeof(*s));
	s->base = base;
	s->db_path = xstrdup(db_path);
	s->path = daemon_socket_path(db_path);
	s->queue = queue;
	s->owner = *owner;
	s->fd = -1;
	s->sweep = evtimer_new(base, on_sweep, s);
	r = bind_to(s, e);
	if (r < 0) {
		daemon_server_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

void daemon_server_free(struct daemon_server *s)
{
	if (!s)
		return;
	unbind(s);
	for (size_t i = 0; i < s->n; i++)
		free_peer(s->peers[i]);
	event_free(s->sweep);
	free(s->db_path);
	free(s->path);
	free(s);
}
