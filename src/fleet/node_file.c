/*
 * One stream over a link of its own, and the loop that it needs (node_file.h). Owns the place in the file: what was handed
 * over is never asked for again, and nothing in between is left out.
 */
#include "fleet/node_file.h"

#include "base/alloc.h"
#include "config/config.h"

#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>

struct fetch {
	struct event_base *base;
	struct link *link;
	struct stream *stream;
	struct event *timer;
	const struct node_file_sink *sink;
	struct stream_want want; /* as it's asked for next */
	int64_t timeout_ms;
	int64_t pos; /* the next byte to come */
	int64_t end; /* where one that isn't followed ends; -1: not known yet */
	bool was_heard; /* the node has said how the file is */
	bool has_begun; /* it was there */
	bool is_resuming, is_cut_told;
	bool is_done;
	int code;
	struct err *e, down; /* down: why the link isn't there */
};

static void finish(struct fetch *f, int code)
{
	if (f->is_done)
		return;
	f->is_done = true;
	f->code = code;
	event_base_loopbreak(f->base);
}

/* A follower that has heard of its file has time. */
static void set_timer(struct fetch *f)
{
	struct timeval t = {.tv_sec = f->timeout_ms / 1000, .tv_usec = f->timeout_ms % 1000 * 1000};

	if (f->want.follow && f->was_heard)
		event_del(f->timer);
	else
		event_add(f->timer, &t);
}

/* ---- the stream ---- */

static void on_begun(void *arg, bool exists, int64_t size, int64_t offset, bool is_cut)
{
	struct fetch *f = arg;
	bool is_told = f->is_resuming && exists && offset == f->pos;

	f->is_resuming = f->is_cut_told = false;
	f->was_heard = true;
	f->has_begun |= exists;
	f->pos = offset;
	if (f->end < 0 || offset == 0)
		f->end = f->want.max > 0 && size - offset > f->want.max ? offset + f->want.max
									: size;
	set_timer(f);
	if (f->sink->begun && !is_told && !f->is_done)
		f->sink->begun(f->sink->arg, exists, size, offset, is_cut);
}

static void on_data(void *arg, const char *bytes, size_t n)
{
	struct fetch *f = arg;
	int r;

	if (f->is_done)
		return;
	f->pos += (int64_t)n;
	set_timer(f);
	r = f->sink->data(f->sink->arg, bytes, n);
	if (r)
		finish(f, r);
}

static void on_over(void *arg)
{
	struct fetch *f = arg;

	f->stream = NULL;
	finish(f, 0);
}

/* Of a link that went down on_down hears too, right after this. */
static void on_failed(void *arg, const char *why)
{
	struct fetch *f = arg;

	f->stream = NULL;
	if (link_is_up(f->link))
		finish(f, err_set(f->e, -EIO, "%s", why));
}

/* From where it was, if it was anywhere. */
static void ask(struct fetch *f)
{
	static const struct stream_owner owner = {
		.begun = on_begun, .data = on_data, .over = on_over, .failed = on_failed};
	struct stream_owner o = owner;

	o.arg = f;
	if (f->has_begun) {
		f->is_resuming = true;
		f->want.lines = -1;
		f->want.offset = f->pos;
		if (!f->want.follow && f->end <= f->pos) {
			finish(f, 0);
			return;
		}
		if (!f->want.follow)
			f->want.max = f->end - f->pos;
	}
	f->stream = stream_open_file(f->link, &f->want, &o);
	if (!f->stream)
		finish(f, err_set(f->e, -EINVAL, "the directory's name isn't UTF-8"));
}

/* ---- the link ---- */

static void on_up(void *arg, const struct link_hello *hello)
{
	struct fetch *f = arg;

	set_timer(f);
	ask(f);
}

static void on_message(void *arg, const char *op, const json_t *msg)
{
	/* An agent that doesn't know `file` says nothing; the timer does. */
}

/* It wouldn't get better by itself. */
static bool is_final(const struct fetch *f)
{
	switch (link_failure(f->link)) {
	case LINK_FAIL_NONE:
	case LINK_FAIL_NET:
		return false;
	case LINK_FAIL_SHELL:
		return !f->was_heard;
	default:
		return true;
	}
}

static void on_down(void *arg, const char *why)
{
	struct fetch *f = arg;

	if (f->is_done)
		return;
	err_set(&f->down, -EIO, "%s", why);
	if (is_final(f)) {
		finish(f, err_set(f->e, -EIO, "%s", why));
		return;
	}
	if (!f->was_heard)
		return;
	if (!f->is_cut_told && f->sink->cut)
		f->sink->cut(f->sink->arg, why);
	f->is_cut_told = true;
	set_timer(f);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct fetch *f = arg;

	finish(f,
		f->down.text[0] && !link_is_up(f->link)
			? err_set(f->e, -ETIMEDOUT, "%s", f->down.text)
			: err_set(f->e, -ETIMEDOUT,
				  "the node said nothing of the file for %lld s: the connection to it hangs, or its agent is of an older build",
				  (long long)(f->timeout_ms / 1000)));
}

static void on_signal(evutil_socket_t sig, short what, void *arg)
{
	struct fetch *f = arg;

	finish(f, err_set(f->e, -EINTR, "interrupted"));
}

static struct link *make_link(struct fetch *f, const struct host_config *host, const char *home)
{
	const struct link_who who = {.who = "gpustow"};
	const struct link_owner owner = {
		.arg = f, .up = on_up, .message = on_message, .down = on_down};
	const struct link_ssh_options o = {.home = home};

	return host ? link_new_ssh(f->base, host, &o, &who, &owner, f->e)
		    : link_new_local(f->base, &who, &owner);
}

int node_file_fetch(const struct host_config *host, const char *home, const struct stream_want *w,
	const struct node_file_sink *sink, int64_t timeout_ms, struct err *e)
{
	struct fetch f = {.sink = sink, .want = *w, .timeout_ms = timeout_ms, .end = -1, .e = e};
	struct event *signals[2];

	f.base = event_base_new();
	f.timer = evtimer_new(f.base, on_timer, &f);
	signals[0] = evsignal_new(f.base, SIGINT, on_signal, &f);
	signals[1] = evsignal_new(f.base, SIGTERM, on_signal, &f);
	for (int i = 0; i < 2; i++)
		event_add(signals[i], NULL);
	f.link = make_link(&f, host, home);
	f.code = -EIO;
	if (f.link) {
		set_timer(&f);
		event_base_dispatch(f.base);
	}
	stream_close(f.stream);
	link_free(f.link);
	for (int i = 0; i < 2; i++)
		event_free(signals[i]);
	event_free(f.timer);
	event_base_free(f.base);
	return f.code;
}
