/*
 * The link to the local machine's agent. Owns the socket, the back-off and the link number; knows nothing of jobs.
 *
 *   down --connect--> greeting --hello--> up --end, silence or nonsense--> down (back-off)
 */
#include "fleet/link.h"

#include "agent/root.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "core/wire.h"
#include "fleet/agent_file.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PING_MS 10000
#define DEAD_MS 35000
#define HELLO_MS 5000

enum link_state { LINK_DOWN, LINK_GREETING, LINK_UP };

struct link {
	struct event_base *base;
	struct link_owner owner;
	char *who;
	char queue[ID_LEN];
	uint64_t incarnation, epoch, number;
	enum link_state state;
	int fd;
	struct buf in, out;
	struct event *readable, *writable, *timer;
	int64_t heard_ms, back_off_ms;
};

static void set_timer(struct link *l, int64_t ms)
{
	struct timeval t = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	event_add(l->timer, &t);
}

static void drop_socket(struct link *l)
{
	if (l->readable)
		event_free(l->readable);
	if (l->writable)
		event_free(l->writable);
	l->readable = l->writable = NULL;
	if (l->fd >= 0)
		close(l->fd);
	l->fd = -1;
	buf_clear(&l->in);
	buf_clear(&l->out);
}

static void go_down(struct link *l, const char *why)
{
	drop_socket(l);
	l->state = LINK_DOWN;
	set_timer(l, l->back_off_ms);
	l->back_off_ms =
		l->back_off_ms ? (l->back_off_ms * 2 > 5000 ? 5000 : l->back_off_ms * 2) : 100;
	l->owner.down(l->owner.arg, why);
}

static void flush(struct link *l)
{
	while (l->out.len) {
		ssize_t n = send(l->fd, l->out.data, l->out.len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			break;
		if (n < 0) {
			/* The end of the stream tells the reader why. */
			buf_clear(&l->out);
			return;
		}
		buf_drop(&l->out, (size_t)n);
	}
	if (l->out.len)
		event_add(l->writable, NULL);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	flush(arg);
}

void link_send(struct link *l, json_t *msg)
{
	struct err e;

	if (l->state != LINK_DOWN && !wire_put_json(&l->out, msg, &e))
		flush(l);
	json_decref(msg);
}

static void say_hello(struct link *l)
{
	json_t *msg = json_pack("{s:s,s:i,s:i,s:s}", "op", "hello", "protocol", WIRE_PROTOCOL,
		"build", GPUSTOW_BUILD, "who", l->who);

	if (l->queue[0]) {
		json_object_set_new(msg, "queue", json_string(l->queue));
		json_object_set_new(msg, "fence",
			json_pack("[I,I,I]", (json_int_t)l->incarnation, (json_int_t)l->epoch,
				(json_int_t)++l->number));
	}
	link_send(l, msg);
}

/* Reads the agent's hello; false when it isn't one. */
static bool read_hello(const json_t *msg, struct link_hello *ret)
{
	struct err e;

	*ret = (struct link_hello){0};
	return !wire_str(msg, "root_id", ret->root_id, sizeof(ret->root_id), &e) &&
	       !wire_str(msg, "boot_id", ret->boot_id, sizeof(ret->boot_id), &e) &&
	       !wire_str(msg, "machine_key", ret->machine_key, sizeof(ret->machine_key), &e) &&
	       !wire_str(msg, "source", ret->source, sizeof(ret->source), &e) &&
	       !wire_int(msg, "boot_ms", 0, INT64_MAX, &ret->boot_ms, &e) &&
	       !wire_int(msg, "wall_ms", 0, INT64_MAX, &ret->wall_ms, &e) &&
	       !wire_int(msg, "pid", 0, INT32_MAX, &ret->pid, &e);
}

static void greeted(struct link *l, const char *op, const json_t *msg)
{
	struct link_hello hello;

	if (!strcmp(op, "stale")) {
		go_down(l, "another scheduler commands this queue now");
	} else if (strcmp(op, "hello") || !read_hello(msg, &hello)) {
		go_down(l, "the agent did not say hello as agreed");
	} else {
		l->state = LINK_UP;
		l->back_off_ms = 0;
		set_timer(l, PING_MS);
		l->owner.up(l->owner.arg, &hello);
	}
}

static void take_message(struct link *l, const json_t *msg)
{
	const char *op = json_string_value(json_object_get(msg, "op"));

	if (!op)
		return;
	if (l->state == LINK_GREETING)
		greeted(l, op, msg);
	else if (!strcmp(op, "ping"))
		link_send(l, json_pack("{s:s}", "op", "pong"));
	else if (!strcmp(op, "bye"))
		go_down(l, "the agent left");
	else if (strcmp(op, "pong"))
		l->owner.message(l->owner.arg, op, msg);
}

static void take_frames(struct link *l)
{
	while (l->state != LINK_DOWN) {
		struct err e = {0};
		json_t *msg = NULL;
		int r = wire_get_json(&l->in, &msg, &e);

		if (r < 0) {
			go_down(l, e.text);
		} else if (!r) {
			break;
		} else {
			take_message(l, msg);
			json_decref(msg);
		}
	}
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct link *l = arg;
	ssize_t n;

	buf_reserve(&l->in, 65536);
	n = recv(l->fd, l->in.data + l->in.len, 65536, 0);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		go_down(l, n ? strerror(errno) : "the agent closed the link");
		return;
	}
	l->in.len += (size_t)n;
	l->in.data[l->in.len] = '\0';
	l->heard_ms = clock_boot_ms();
	take_frames(l);
}

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

static void try_connect(struct link *l)
{
	struct err e = {0};

	l->fd = connect_root(&e);
	if (l->fd < 0) {
		go_down(l, e.text);
		return;
	}
	l->state = LINK_GREETING;
	l->heard_ms = clock_boot_ms();
	l->readable = event_new(l->base, l->fd, EV_READ | EV_PERSIST, on_readable, l);
	l->writable = event_new(l->base, l->fd, EV_WRITE, on_writable, l);
	event_add(l->readable, NULL);
	set_timer(l, HELLO_MS);
	say_hello(l);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct link *l = arg;
	int64_t now = clock_boot_ms();

	if (l->state == LINK_DOWN) {
		try_connect(l);
	} else if (l->state == LINK_GREETING) {
		go_down(l, "the agent does not answer");
	} else if (now - l->heard_ms > DEAD_MS) {
		go_down(l, "the agent has been silent for 35 s");
	} else {
		link_send(l, json_pack("{s:s}", "op", "ping"));
		set_timer(l, PING_MS);
	}
}

struct link *link_new_local(
	struct event_base *base, const struct link_who *who, const struct link_owner *owner)
{
	struct link *l = xcalloc(1, sizeof(*l));

	l->base = base;
	l->owner = *owner;
	l->who = xstrdup(who->who);
	if (who->queue)
		memcpy(l->queue, who->queue, strnlen(who->queue, ID_LEN - 1));
	l->incarnation = who->incarnation;
	l->epoch = who->epoch;
	l->fd = -1;
	l->timer = evtimer_new(base, on_timer, l);
	set_timer(l, 0);
	return l;
}

bool link_is_up(const struct link *l)
{
	return l->state == LINK_UP;
}

size_t link_unsent(const struct link *l)
{
	return l->out.len;
}

void link_free(struct link *l)
{
	if (!l)
		return;
	drop_socket(l);
	event_free(l->timer);
	buf_done(&l->in);
	buf_done(&l->out);
	free(l->who);
	free(l);
}
