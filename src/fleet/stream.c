/*
 * The client's side of streams (stream.h): who is called for which id, how much was taken, what is still to be sent. Owns
 * the streams of one link; knows no file and no job.
 */
#include "fleet/stream.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "core/wire.h"
#include "fleet/link_inner.h"

#include <stdlib.h>
#include <string.h>

/* Apart from the numbers that the link's owner puts into his own messages: an `error` says only one of them. */
#define FIRST_ID ((int64_t)1 << 32)
#define CREDIT_STEP (64 * 1024) /* taken bytes are told together, well before the node would stop */

struct stream {
	struct streams *all;
	int64_t id;
	struct stream_owner owner;
	bool is_gone; /* closed; freed once nobody is at work with it */
	int64_t untold; /* taken, and no credit given yet */
	struct buf body; /* of a stage */
	int64_t sent, credited;
};

struct streams {
	struct link *link;
	struct stream **items; /* owned */
	size_t n, cap;
	int64_t last_id;
	unsigned depth; /* callbacks under way */
};

struct streams *streams_new(struct link *l)
{
	struct streams *x = xcalloc(1, sizeof(*x));

	x->link = l;
	x->last_id = FIRST_ID;
	return x;
}

static void stream_free(struct stream *s)
{
	buf_done(&s->body);
	free(s);
}

void streams_free(struct streams *x)
{
	if (!x)
		return;
	for (size_t i = 0; i < x->n; i++)
		stream_free(x->items[i]);
	free(x->items);
	free(x);
}

static struct stream *find(const struct streams *x, int64_t id)
{
	for (size_t i = 0; i < x->n; i++)
		if (x->items[i]->id == id)
			return x->items[i];
	return NULL;
}

/* Frees those that are gone, unless a callback may still be at work with one. */
static void sweep(struct streams *x)
{
	size_t kept = 0;

	if (x->depth)
		return;
	for (size_t i = 0; i < x->n; i++) {
		if (x->items[i]->is_gone)
			stream_free(x->items[i]);
		else
			x->items[kept++] = x->items[i];
	}
	x->n = kept;
}

static void enter(struct streams *x)
{
	x->depth++;
}

static void leave(struct streams *x)
{
	x->depth--;
	sweep(x);
}

static void fail(struct stream *s, const char *why)
{
	if (s->is_gone)
		return;
	s->is_gone = true;
	if (s->owner.failed)
		s->owner.failed(s->owner.arg, why);
}

static struct stream *add(struct link *l, const struct stream_owner *o)
{
	struct streams *x = link_streams(l);
	struct stream *s = xcalloc(1, sizeof(*s));

	s->all = x;
	s->owner = *o;
	s->id = x->last_id++;
	GROW(x->items, x->n, x->cap);
	x->items[x->n++] = s;
	return s;
}

/* ---- files ---- */

struct stream *stream_open_file(
	struct link *l, const struct stream_want *w, const struct stream_owner *o)
{
	struct stream *s;
	json_t *msg;

	if (!link_is_up(l))
		return NULL;
	msg = json_pack("{s:s, s:s, s:s, s:b}", "op", "file", "dir", w->dir, "name", w->name,
		"follow", w->follow);
	if (!msg)
		return NULL;
	s = add(l, o);
	json_object_set_new(msg, "id", json_integer(s->id));
	if (w->lines >= 0)
		json_object_set_new(msg, "lines", json_integer(w->lines));
	else
		json_object_set_new(msg, "offset", json_integer(w->offset));
	if (w->max > 0)
		json_object_set_new(msg, "max", json_integer(w->max));
	if (w->queue) {
		json_object_set_new(msg, "queue", json_string(w->queue));
		json_object_set_new(msg, "job", json_integer((json_int_t)w->job));
		json_object_set_new(msg, "attempt", json_integer(w->attempt));
	}
	link_send(l, msg);
	return s;
}

static void give_credit(struct stream *s, size_t n)
{
	s->untold += (int64_t)n;
	if (s->is_gone || s->untold < CREDIT_STEP)
		return;
	link_send(s->all->link, json_pack("{s:s, s:I, s:I}", "op", "credit", "id",
					(json_int_t)s->id, "n", (json_int_t)s->untold));
	s->untold = 0;
}

void streams_bulk(struct streams *x, uint64_t id, const char *bytes, size_t n)
{
	struct stream *s = id > INT64_MAX ? NULL : find(x, (int64_t)id);

	if (!s || !n)
		return;
	enter(x);
	if (s->owner.data)
		s->owner.data(s->owner.arg, bytes, n);
	give_credit(s, n);
	leave(x);
}

/* ---- bodies ---- */

static void send_body(struct stream *s)
{
	int64_t left;

	while ((left = (int64_t)s->body.len - s->sent) > 0 && s->sent - s->credited < WIRE_CREDIT) {
		int64_t n = WIRE_CREDIT - (s->sent - s->credited);

		n = n < left ? n : left;
		n = n < WIRE_BULK_MAX ? n : WIRE_BULK_MAX;
		link_send_bulk(s->all->link, (uint64_t)s->id, s->body.data + s->sent, (size_t)n);
		s->sent += n;
	}
}

struct stream *stream_stage(struct link *l, const char *token, const void *bytes, size_t n,
	const struct stream_owner *o)
{
	struct stream *s;

	if (!link_is_up(l) || n > STREAM_STAGE_MAX)
		return NULL;
	s = add(l, o);
	if (n)
		buf_put(&s->body, bytes, n);
	link_send(l, json_pack("{s:s, s:I, s:s, s:I}", "op", "stage", "id", (json_int_t)s->id,
			     "token", token, "size", (json_int_t)n));
	send_body(s);
	return s;
}

/* ---- messages ---- */

static void take_begun(struct stream *s, const json_t *msg)
{
	int64_t size = 0, offset = 0;

	if (wire_int(msg, "size", 0, INT64_MAX, &size, NULL) ||
		wire_int(msg, "offset", 0, INT64_MAX, &offset, NULL)) {
		fail(s, "the agent's answer about a file isn't as agreed");
		return;
	}
	if (s->owner.begun)
		s->owner.begun(s->owner.arg, json_is_true(json_object_get(msg, "exists")), size,
			offset, json_is_true(json_object_get(msg, "is_cut")));
}

static void take_over(struct stream *s, const json_t *msg)
{
	s->is_gone = true;
	if (s->owner.over)
		s->owner.over(s->owner.arg);
}

static void take_error(struct stream *s, const json_t *msg)
{
	const char *text = json_string_value(json_object_get(msg, "text"));

	fail(s, text ? text : "the agent refused it without a reason");
}

static void take_credit(struct stream *s, const json_t *msg)
{
	int64_t n = 0;

	if (wire_int(msg, "n", 0, INT64_MAX, &n, NULL))
		return;
	s->credited += n < s->sent - s->credited ? n : s->sent - s->credited;
	send_body(s);
}

static const struct {
	const char *op;
	void (*take)(struct stream *s, const json_t *msg);
} takers[] = {
	{"file", take_begun},
	{"over", take_over},
	{"staged", take_over},
	{"credit", take_credit},
	{"error", take_error},
};

bool streams_take(struct streams *x, const char *op, const json_t *msg)
{
	const json_t *id = json_object_get(msg, "id");
	struct stream *s;

	/* Higher numbers are the owner's as the lower ones are: no stream had them yet. */
	if (!json_is_integer(id) || json_integer_value(id) < FIRST_ID ||
		json_integer_value(id) >= x->last_id)
		return false;
	for (size_t i = 0; i < sizeof(takers) / sizeof(*takers); i++) {
		if (strcmp(takers[i].op, op) != 0)
			continue;
		/* One that isn't known was closed while this was on its way. */
		s = find(x, json_integer_value(id));
		if (s) {
			enter(x);
			takers[i].take(s, msg);
			leave(x);
		}
		return true;
	}
	return false;
}

void streams_fail(struct streams *x, const char *why)
{
	/* Those that are opened meanwhile lie behind, and there are none: the link is down. */
	enter(x);
	for (size_t i = 0; i < x->n; i++)
		fail(x->items[i], why);
	leave(x);
}

void stream_close(struct stream *s)
{
	struct streams *x;

	if (!s || s->is_gone)
		return;
	x = s->all;
	s->is_gone = true;
	link_send(x->link, json_pack("{s:s, s:I}", "op", "close", "id", (json_int_t)s->id));
	sweep(x);
}
