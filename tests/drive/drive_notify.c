/*
 * The part of the daemon that delivers alerts, with a clock and limits that a test may set: end-to-end tests talk to it by
 * lines of JSON on stdin, and each is answered by a line that says how things stand. It ends with its stdin.
 *
 *   {"alert": "job_failed", "title": "...", "detail": "...", "node": "n1"}   comes up, and a turn is made
 *   {"forward": MS}      the clock goes on by that much, and a turn is made
 *   {"clock": MS}        the clock stands there (wall time, goes on from there)
 *   {"limit": MS}        for each channel's child
 *   {"ack": ID}          somebody has seen it
 *   {}                   only the answer
 */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "svc/notify_inner.h"

#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int64_t clock_shift; /* the one thing that the clock's function can see */

static int64_t shifted(void)
{
	return clock_wall_ms() + clock_shift;
}

struct drive {
	struct event_base *base;
	struct store *store;
	struct notify *notify;
	struct buf in;
};

static _Noreturn void fail(const char *what, const struct err *e)
{
	fprintf(stderr, "%s: %s\n", what, e->text);
	exit(3);
}

static void add(struct drive *d, const json_t *o)
{
	const char *node = json_string_value(json_object_get(o, "node"));
	enum alert_kind kind;
	struct err e = {0};

	if (alert_kind_from_name(json_string_value(json_object_get(o, "alert")), &kind) < 0 ||
		store_begin(d->store, NULL, &e) < 0 ||
		store_alert_add(d->store, kind, 0, node,
			json_string_value(json_object_get(o, "title")),
			json_string_value(json_object_get(o, "detail")), &e) < 0 ||
		store_commit(d->store, &e) < 0)
		fail("alert", &e);
}

static void ack(struct drive *d, int64_t id)
{
	struct err e = {0};
	int64_t n;

	if (store_begin(d->store, NULL, &e) < 0 || store_alert_ack(d->store, &id, 1, &n, &e) < 0 ||
		store_commit(d->store, &e) < 0)
		fail("ack", &e);
}

static void set_limits(struct drive *d, int64_t ms)
{
	struct notify_limits l;

	for (int c = 0; c < NOTIFY_CHANNELS; c++)
		l.ms[c] = ms;
	notify_set_limits(d->notify, &l);
}

static void answer(struct drive *d)
{
	CLEANUP(store_alerts_done) struct store_alerts l = {0};
	CLEANUP(buf_done) struct buf problems = {0};
	CLEANUP_FREE char *text = NULL;
	json_t *open = json_array(), *o;
	struct err e = {0};

	if (store_alerts(d->store, STORE_ALERTS_UNDELIVERED, 0, &l, &e) < 0)
		fail("alerts", &e);
	for (size_t i = 0; i < l.n; i++)
		json_array_append_new(open, json_integer(l.v[i].id));
	notify_problems(d->notify, &problems);
	o = json_pack("{s:I, s:I, s:o, s:s, s:s, s:I}", "delivered",
		(json_int_t)notify_delivered(d->notify), "wait",
		(json_int_t)notify_wait_ms(d->notify), "undelivered", open, "problems",
		buf_str(&problems), "queue", store_queue(d->store), "now", (json_int_t)shifted());
	text = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	printf("%s\n", text);
	fflush(stdout);
}

static void obey(struct drive *d, const char *line)
{
	json_error_t why;
	json_t *o = json_loads(line, 0, &why), *v;

	if (!o)
		exit(4);
	if ((v = json_object_get(o, "limit")))
		set_limits(d, json_integer_value(v));
	if ((v = json_object_get(o, "clock")))
		clock_shift = json_integer_value(v) - clock_wall_ms();
	if ((v = json_object_get(o, "forward")))
		clock_shift += json_integer_value(v);
	if ((v = json_object_get(o, "ack")))
		ack(d, json_integer_value(v));
	if (json_object_get(o, "alert"))
		add(d, o);
	if (json_object_size(o))
		notify_turn(d->notify);
	json_decref(o);
	answer(d);
}

static void on_line(evutil_socket_t fd, short what, void *arg)
{
	struct drive *d = arg;
	char bytes[4096];
	ssize_t n = read(fd, bytes, sizeof(bytes));
	char *end;

	if (n <= 0) {
		event_base_loopbreak(d->base);
		return;
	}
	buf_put(&d->in, bytes, (size_t)n);
	while ((end = memchr(d->in.data, '\n', d->in.len))) {
		*end = '\0';
		obey(d, d->in.data);
		buf_drop(&d->in, (size_t)(end - d->in.data) + 1);
	}
}

int main(int argc, char **argv)
{
	CLEANUP(queue_config_done) struct queue_config config = {0};
	CLEANUP_FREE char *path = argc > 1 ? xasprintf("%s/queue.db", argv[1]) : NULL;
	struct event_config *how = event_config_new();
	struct store_options options = {.mode = STORE_WRITE, .wall_ms = shifted};
	struct drive d = {0};
	struct event *on;
	struct err e = {0};

	if (!path || !how)
		return 2;
	/* What no child may come to have: a descriptor that would be inherited, and the daemon's way with SIGPIPE. */
	if (open("/dev/zero", O_RDONLY) < 0)
		return 2;
	signal(SIGPIPE, SIG_IGN);
	/* epoll takes no file for a stdin. */
	event_config_avoid_method(how, "epoll");
	d.base = event_base_new_with_config(how);
	event_config_free(how);
	if (queue_config_load(argv[1], NULL, false, &config, &e) < 0 ||
		store_open(path, &options, &d.store, &e) < 0)
		fail("start", &e);
	d.notify = notify_new(d.base, d.store, argv[1], "gpustow");
	notify_set_clock(d.notify, shifted);
	notify_configure(d.notify, &config.settings.notify);
	on = event_new(d.base, 0, EV_READ | EV_PERSIST, on_line, &d);
	event_add(on, NULL);
	notify_turn(d.notify);
	answer(&d);
	event_base_dispatch(d.base);
	notify_free(d.notify);
	event_free(on);
	event_base_free(d.base);
	store_close(d.store);
	buf_done(&d.in);
	return 0;
}
