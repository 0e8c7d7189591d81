/*
 * A link to an agent, whatever carries it (link_local.c, link_ssh.c). Owns the descriptor once it's open, the back-off
 * and the link number; knows nothing of jobs.
 *
 *   down --open--> opening --opened--> greeting --hello--> up --end, silence or nonsense--> closing --> down (back-off)
 */
#include "fleet/link_inner.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "core/wire.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PING_MS 10000
#define DEAD_MS 35000
#define NOISE_MAX 65536
#define PROVEN_MS 5000 /* a link that was up for less has failed, not been lost */

enum link_state { LINK_DOWN, LINK_OPENING, LINK_GREETING, LINK_UP, LINK_CLOSING };

struct link {
	struct transport *transport;
	struct event_base *base;
	struct link_owner owner;
	char *who;
	char queue[ID_LEN];
	uint64_t incarnation, epoch, number;
	uint64_t above[2]; /* link_stale_fence */
	enum link_state state;
	enum link_failure failure;
	unsigned n_failures; /* since it was last up */
	int64_t up_at_ms; /* in this connection; 0: not yet */
	int fd;
	bool is_held; /* what is sent waits (link_hold) */
	size_t n_noise;
	struct buf in, out;
	struct streams *streams;
	struct event *readable, *writable, *timer;
	int64_t heard_ms, asked_ms, rtt_ms;
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

void link_failed(struct link *l, enum link_failure kind, const char *why)
{
	bool was_up = l->up_at_ms && clock_boot_ms() - l->up_at_ms >= PROVEN_MS;
	int64_t delay_ms;

	drop_socket(l);
	l->state = LINK_DOWN;
	l->failure = kind;
	l->up_at_ms = 0;
	delay_ms = l->transport->impl->delay_ms(l->transport, kind, l->n_failures, was_up);
	l->n_failures++;
	if (delay_ms >= 0)
		set_timer(l, delay_ms);
	else
		event_del(l->timer);
	streams_fail(l->streams, why);
	l->owner.down(l->owner.arg, why);
}

/* The link has seen enough; the transport may know better why. */
static void go_down(struct link *l, const char *why)
{
	drop_socket(l);
	l->state = LINK_CLOSING;
	event_del(l->timer);
	if (!l->transport->impl->close(l->transport, why))
		link_failed(l, LINK_FAIL_NET, why);
}

static void flush(struct link *l)
{
	while (l->out.len && !l->is_held) {
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
	if (l->out.len && !l->is_held)
		event_add(l->writable, NULL);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	flush(arg);
}

void link_hold(struct link *l, bool is_held)
{
	l->is_held = is_held;
	if (!is_held && (l->state == LINK_GREETING || l->state == LINK_UP))
		flush(l);
}

void link_send(struct link *l, json_t *msg)
{
	struct err e;

	if ((l->state == LINK_GREETING || l->state == LINK_UP) && !wire_put_json(&l->out, msg, &e))
		flush(l);
	json_decref(msg);
}

void link_send_bulk(struct link *l, uint64_t stream, const void *bytes, size_t n)
{
	struct err e;

	if (l->state == LINK_UP && !wire_put_bulk(&l->out, stream, bytes, n, &e))
		flush(l);
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
	l->asked_ms = clock_boot_ms();
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

/* Who commands there. Numbers of a stranger: what isn't one counts as none. */
static void read_above(struct link *l, const json_t *msg)
{
	const json_t *fence = json_object_get(msg, "fence");

	for (size_t i = 0; i < 2; i++) {
		json_int_t v = json_integer_value(json_array_get(fence, i));

		l->above[i] = v > 0 ? (uint64_t)v : 0;
	}
}

static void greeted(struct link *l, const char *op, const json_t *msg)
{
	struct link_hello hello;

	if (!strcmp(op, "stale")) {
		read_above(l, msg);
		go_down(l, LINK_STALE);
	} else if (strcmp(op, "hello") != 0 || !read_hello(msg, &hello)) {
		go_down(l, "the agent did not say hello as agreed");
	} else {
		l->state = LINK_UP;
		l->failure = LINK_FAIL_NONE;
		l->n_failures = 0;
		l->up_at_ms = clock_boot_ms();
		l->rtt_ms = l->up_at_ms - l->asked_ms;
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
	else if (!strcmp(op, "pong"))
		l->rtt_ms = clock_boot_ms() - l->asked_ms;
	else if (!streams_take(l->streams, op, msg))
		l->owner.message(l->owner.arg, op, msg);
}

/*
 * Drops text that stands where a frame should begin: a frame's first byte is 0, for it's never 16 MiB long, and text
 * has no such byte. False: too much of it.
 */
static bool skip_noise(struct link *l)
{
	const char *frame = l->in.len ? memchr(l->in.data, 0, l->in.len) : NULL;
	size_t n = frame ? (size_t)(frame - l->in.data) : l->in.len;

	buf_drop(&l->in, n);
	l->n_noise += n;
	return l->n_noise <= NOISE_MAX;
}

/* Of one that isn't open any more, or not yet, it's dropped. */
static void take_bulk(struct link *l, const struct wire_frame *f)
{
	if (l->state == LINK_UP)
		streams_bulk(l->streams, f->stream, f->bytes.data, f->bytes.len);
}

static void take_frames(struct link *l)
{
	struct wire_frame f = {0};

	while (l->state == LINK_GREETING || l->state == LINK_UP) {
		struct err e = {0};
		int r;

		if (l->transport->impl->has_noise && !skip_noise(l)) {
			go_down(l,
				"something else than the agent writes into the channel; look at what the account's "
				"login files leave running in the background");
			break;
		}
		r = wire_get(&l->in, &f, &e);
		if (r < 0) {
			go_down(l, e.text);
		} else if (!r) {
			break;
		} else if (f.kind == WIRE_BULK) {
			take_bulk(l, &f);
		} else {
			take_message(l, f.msg);
			json_decref(f.msg);
			f.msg = NULL;
		}
	}
	wire_frame_done(&f);
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

void link_opened(struct link *l, int fd, const char *rest, size_t n)
{
	l->fd = fd;
	l->state = LINK_GREETING;
	l->n_noise = 0;
	l->heard_ms = clock_boot_ms();
	l->readable = event_new(l->base, fd, EV_READ | EV_PERSIST, on_readable, l);
	l->writable = event_new(l->base, fd, EV_WRITE, on_writable, l);
	event_add(l->readable, NULL);
	set_timer(l, l->transport->impl->hello_ms);
	say_hello(l);
	if (n) {
		buf_put(&l->in, rest, n);
		take_frames(l);
	}
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct link *l = arg;
	int64_t now = clock_boot_ms();

	if (l->state == LINK_DOWN) {
		l->state = LINK_OPENING;
		l->transport->impl->open(l->transport);
	} else if (l->state == LINK_GREETING) {
		go_down(l, LINK_UNANSWERED);
	} else if (now - l->heard_ms > DEAD_MS) {
		go_down(l, "the agent has been silent for 35 s");
	} else {
		l->asked_ms = now;
		link_send(l, json_pack("{s:s}", "op", "ping"));
		set_timer(l, PING_MS);
	}
}

struct link *link_new(struct event_base *base, struct transport *t, const struct link_who *who,
	const struct link_owner *owner)
{
	struct link *l = xcalloc(1, sizeof(*l));

	t->link = l;
	l->transport = t;
	l->base = base;
	l->owner = *owner;
	l->who = xstrdup(who->who);
	if (who->queue)
		memcpy(l->queue, who->queue, strnlen(who->queue, ID_LEN - 1));
	l->incarnation = who->incarnation;
	l->epoch = who->epoch;
	l->number = who->number;
	l->fd = -1;
	l->rtt_ms = -1;
	l->streams = streams_new(l);
	l->timer = evtimer_new(base, on_timer, l);
	set_timer(l, 0);
	return l;
}

struct streams *link_streams(struct link *l)
{
	return l->streams;
}

bool link_is_up(const struct link *l)
{
	return l->state == LINK_UP;
}

size_t link_unsent(const struct link *l)
{
	return l->out.len;
}

int64_t link_rtt_ms(const struct link *l)
{
	return l->rtt_ms;
}

enum link_failure link_failure(const struct link *l)
{
	return l->failure;
}

void link_set_failure(struct link *l, enum link_failure kind)
{
	l->failure = kind;
}

void link_ssh_steps(const struct link *l, struct link_ssh_steps *ret)
{
	const struct transport *t = l->transport;

	*ret = t->impl->steps ? *t->impl->steps(t) : (struct link_ssh_steps){.connected_at_ms = -1};
}

void link_retry(struct link *l)
{
	if (l->state == LINK_DOWN)
		set_timer(l, 0);
}

void link_answer(struct link *l, uint64_t question, const char *answer)
{
	if (l->transport->impl->answer)
		l->transport->impl->answer(l->transport, question, answer);
}

void link_run_text(struct link *l, const char *command, int64_t limit_ms, size_t max_bytes,
	void (*done)(void *arg, int status, const char *out, size_t n, const char *err_text),
	void *arg)
{
	if (l->transport->impl->run_text)
		l->transport->impl->run_text(l->transport, command, limit_ms, max_bytes, done, arg);
	else
		done(arg, -1, "", 0, "commands are run on other hosts only");
}

void link_free(struct link *l)
{
	if (!l)
		return;
	drop_socket(l);
	l->transport->impl->close(l->transport, NULL);
	l->transport->impl->free(l->transport);
	streams_free(l->streams);
	event_free(l->timer);
	buf_done(&l->in);
	buf_done(&l->out);
	free(l->who);
	free(l);
}

void link_stale_fence(const struct link *l, uint64_t ret[2])
{
	memcpy(ret, l->above, sizeof(l->above));
}
