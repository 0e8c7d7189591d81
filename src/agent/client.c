/* The two byte streams of one link and their limits. Everything is bounded; nothing waits. */
#include "agent/client.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/text.h"
#include "core/wire.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_STEP 65536
#define BULK_UNREAD_MAX 65536
#define IN_MAX (2 * WIRE_JSON_MAX)

int client_new(int fd, uint64_t id, int64_t now_ms, struct client **ret, struct err *e)
{
	CLEANUP_CLOSE int own = fd;
	struct ucred peer;
	socklen_t n = sizeof(peer);
	struct client *c;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n))
		return err_sys(e, -errno, "a client's user can't be asked for");
	if (peer.uid != getuid())
		return err_set(e, -EPERM, "a client of user %u was sent away", (unsigned)peer.uid);
	fd_set_nonblock(fd, true);
	c = xcalloc(1, sizeof(*c));
	c->id = id;
	c->fd = TAKE_FD(own);
	c->heard_ms = now_ms;
	*ret = c;
	return 0;
}

void client_free(struct client *c)
{
	if (!c)
		return;
	close(c->fd);
	json_decref(c->held);
	buf_done(&c->in);
	buf_done(&c->out);
	buf_done(&c->sample);
	free(c);
}

static size_t unread(const struct client *c)
{
	return c->out.len - c->out_at;
}

bool client_wants_read(const struct client *c)
{
	return !c->is_closing && c->in.len < IN_MAX && unread(c) < CLIENT_UNREAD_MAX;
}

bool client_wants_write(const struct client *c)
{
	return unread(c) || c->sample.len;
}

bool client_read(struct client *c, int64_t now_ms)
{
	while (c->in.len < IN_MAX) {
		ssize_t n;

		buf_reserve(&c->in, READ_STEP);
		n = recv(c->fd, c->in.data + c->in.len, READ_STEP, MSG_DONTWAIT);
		if (n == 0)
			return false;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN;
		c->in.len += (size_t)n;
		c->in.data[c->in.len] = '\0';
		c->heard_ms = now_ms;
		if (n < READ_STEP)
			break;
	}
	return true;
}

/* A sample goes out only between other messages, so the newest is always the one that waits. */
static void take_sample(struct client *c)
{
	if (unread(c) || !c->sample.len)
		return;
	buf_clear(&c->out);
	c->out_at = 0;
	buf_put(&c->out, c->sample.data, c->sample.len);
	buf_clear(&c->sample);
	if (c->waiting_base)
		c->base_key = c->waiting_base;
	c->waiting_base = 0;
}

static void become_deaf(struct client *c)
{
	c->is_deaf = true;
	buf_clear(&c->out);
	c->out_at = 0;
	buf_clear(&c->sample);
}

bool client_write(struct client *c)
{
	take_sample(c);
	while (unread(c)) {
		ssize_t n = send(
			c->fd, c->out.data + c->out_at, unread(c), MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return true;
		if (n < 0) {
			become_deaf(c);
			return false;
		}
		c->out_at += (size_t)n;
		if (!unread(c)) {
			buf_clear(&c->out);
			c->out_at = 0;
			take_sample(c);
		}
	}
	return true;
}

static void drop_written(struct client *c)
{
	if (c->out_at > READ_STEP) {
		buf_drop(&c->out, c->out_at);
		c->out_at = 0;
	}
}

static void put(struct client *c, json_t *msg)
{
	struct err e = {0};

	drop_written(c);
	if (!c->is_dead && !c->is_deaf && wire_put_json(&c->out, msg, &e))
		client_error(c, e.text);
}

void client_send(struct client *c, json_t *msg)
{
	put(c, msg);
	json_decref(msg);
}

bool client_push(struct client *c, json_t *msg)
{
	bool has_room = unread(c) < CLIENT_UNREAD_MAX;

	if (has_room)
		put(c, msg);
	else
		c->has_lost_events = true;
	json_decref(msg);
	return has_room;
}

void client_put_sample(
	struct client *c, const struct buf *base, uint64_t key, const struct buf *frame)
{
	bool needs_base = base && c->base_key != key;

	/* What's replaced may have held figures: they're needed still. */
	buf_clear(&c->sample);
	c->waiting_base = 0;
	if (c->is_deaf)
		return;
	if (needs_base) {
		buf_put(&c->sample, base->data, base->len);
		c->waiting_base = key;
	}
	buf_put(&c->sample, frame->data, frame->len);
}

bool client_takes_bulk(const struct client *c)
{
	return !c->sample.len && unread(c) < BULK_UNREAD_MAX;
}

void client_send_bulk(struct client *c, uint64_t stream, const char *bytes, size_t n)
{
	drop_written(c);
	if (!c->is_deaf)
		wire_put_bulk(&c->out, stream, bytes, n, NULL);
}

static json_t *error_message(const char *text)
{
	CLEANUP(buf_done) struct buf clean = {0};

	text_put_clean(&clean, text, strlen(text));
	return json_pack("{s:s, s:s}", "op", "error", "text", buf_str(&clean));
}

void client_error(struct client *c, const char *text)
{
	client_send(c, error_message(text));
}

void client_error_of(struct client *c, int64_t id, const char *text)
{
	json_t *msg = error_message(text);

	json_object_set_new(msg, "id", json_integer(id));
	client_send(c, msg);
}

bool client_is_alive(struct client *c, int64_t now_ms)
{
	if (unread(c) < CLIENT_UNREAD_MAX)
		c->over_since_ms = 0;
	else if (!c->over_since_ms)
		c->over_since_ms = now_ms;
	else if (now_ms - c->over_since_ms >= CLIENT_UNREAD_MS)
		return false;
	return !c->has_pinged || now_ms - c->heard_ms < CLIENT_SILENT_MS;
}
