/*
 * Frames and the members of messages. Pure: knows bytes and JSON, no descriptor and no message. Whatever the peer
 * sent, the answer is a message, "more bytes" or one sentence; sizes are bounded before anything is allocated.
 */
#include "core/wire.h"

#include <string.h>

#define WIRE_HEAD 5 /* length and kind */
#define STREAM_HEAD 8 /* the stream's id */

static int put_bytes(const char *bytes, size_t n, void *arg)
{
	struct buf *out = arg;

	buf_put(out, bytes, n);
	return 0;
}

static void put_u32(char *at, uint32_t v)
{
	at[0] = (char)(v >> 24);
	at[1] = (char)(v >> 16);
	at[2] = (char)(v >> 8);
	at[3] = (char)v;
}

static uint32_t get_u32(const char *at)
{
	const uint8_t *u = (const uint8_t *)at;

	return (uint32_t)u[0] << 24 | (uint32_t)u[1] << 16 | (uint32_t)u[2] << 8 | u[3];
}

/* Back to what *out was before a message that couldn't go out. */
static void put_undo(struct buf *out, size_t before)
{
	out->len = before;
	out->data[before] = '\0';
}

int wire_put_json(struct buf *out, const json_t *msg, struct err *e)
{
	size_t before = out->len, n;

	buf_put(out, "\0\0\0\0J", WIRE_HEAD);
	if (!json_is_object(msg) || json_dump_callback(msg, put_bytes, out, JSON_COMPACT)) {
		put_undo(out, before);
		return err_set(e, -EINVAL, "a message for the wire isn't a JSON object");
	}
	n = out->len - before - WIRE_HEAD;
	if (n > WIRE_JSON_MAX) {
		put_undo(out, before);
		return err_set(e, -E2BIG,
			"a message of %zu bytes is above the limit of %d bytes; ask for less at once",
			n, WIRE_JSON_MAX);
	}
	put_u32(out->data + before, (uint32_t)n + 1);
	return 0;
}

static int parse_object(const char *bytes, size_t n, json_t **ret, struct err *e)
{
	json_error_t je;
	json_t *o = json_loadb(bytes, n, JSON_REJECT_DUPLICATES, &je);

	if (!o)
		return err_set(e, -EBADMSG, "the peer sent a frame that isn't JSON: %s (byte %d)",
			je.text, je.position);
	if (!json_is_object(o)) {
		json_decref(o);
		return err_set(e, -EBADMSG, "the peer sent JSON that isn't an object");
	}
	*ret = o;
	return 0;
}

int wire_put_bulk(struct buf *out, uint64_t stream, const void *bytes, size_t n, struct err *e)
{
	char head[WIRE_HEAD + STREAM_HEAD];

	if (n > WIRE_BULK_MAX)
		return err_set(e, -E2BIG,
			"a piece of %zu bytes is above the limit of %d bytes for one bulk frame", n,
			WIRE_BULK_MAX);
	put_u32(head, (uint32_t)(1 + STREAM_HEAD + n));
	head[4] = WIRE_BULK;
	put_u32(head + WIRE_HEAD, (uint32_t)(stream >> 32));
	put_u32(head + WIRE_HEAD + 4, (uint32_t)stream);
	buf_put(out, head, sizeof(head));
	if (n)
		buf_put(out, bytes, n);
	return 0;
}

void wire_frame_done(struct wire_frame *f)
{
	json_decref(f->msg);
	buf_done(&f->bytes);
	*f = (struct wire_frame){0};
}

/* What the length and the kind allow, before anybody waits for the rest. n is the length, at least 1. */
static int check_head(const struct buf *in, uint32_t n, struct err *e)
{
	uint32_t max =
		in->data[4] == WIRE_BULK ? 1 + STREAM_HEAD + WIRE_BULK_MAX : WIRE_JSON_MAX + 1;

	if (in->data[4] != WIRE_JSON && in->data[4] != WIRE_BULK)
		return err_set(e, -EBADMSG,
			"the peer sent a frame of kind %u, which isn't known here",
			(unsigned)(uint8_t)in->data[4]);
	if (n > max)
		return err_set(e, -EBADMSG,
			"the peer announced a bulk frame of %u bytes; the limit is %u", n, max);
	if (in->data[4] == WIRE_BULK && n < 1 + STREAM_HEAD)
		return err_set(e, -EBADMSG, "the peer sent a bulk frame without a stream");
	return 0;
}

/* 1 and the length once a frame is whole, 0 when more bytes are needed. */
static int whole_frame(const struct buf *in, uint32_t *ret_n, struct err *e)
{
	uint32_t n;
	int r;

	if (in->len < 4)
		return 0;
	n = get_u32(in->data);
	if (n < 1)
		return err_set(e, -EBADMSG, "the peer sent an empty frame");
	if (n > WIRE_JSON_MAX + 1)
		return err_set(e, -EBADMSG,
			"the peer announced a frame of %u bytes; the limit is %d", n,
			WIRE_JSON_MAX);
	if (in->len < WIRE_HEAD)
		return 0;
	r = check_head(in, n, e);
	if (r)
		return r;
	*ret_n = n;
	return in->len - 4 >= n;
}

int wire_get(struct buf *in, struct wire_frame *ret, struct err *e)
{
	uint32_t n;
	int r = whole_frame(in, &n, e);

	if (r <= 0)
		return r;
	ret->kind = in->data[4] == WIRE_BULK ? WIRE_BULK : WIRE_JSON;
	ret->msg = NULL;
	buf_clear(&ret->bytes);
	if (ret->kind == WIRE_JSON) {
		r = parse_object(in->data + WIRE_HEAD, n - 1, &ret->msg, e);
		if (r)
			return r;
	} else {
		ret->stream = (uint64_t)get_u32(in->data + WIRE_HEAD) << 32 |
			      get_u32(in->data + WIRE_HEAD + 4);
		buf_put(&ret->bytes, in->data + WIRE_HEAD + STREAM_HEAD, n - 1 - STREAM_HEAD);
	}
	buf_drop(in, 4 + (size_t)n);
	return 1;
}

int wire_get_json(struct buf *in, json_t **ret_msg, struct err *e)
{
	struct wire_frame f = {0};
	int r;

	if (in->len >= WIRE_HEAD && in->data[4] == WIRE_BULK)
		return err_set(e, -EBADMSG, "the peer sent a piece of a stream, and none is open");
	r = wire_get(in, &f, e);
	if (r > 0)
		*ret_msg = f.msg;
	buf_done(&f.bytes);
	return r;
}

int wire_str(const json_t *o, const char *key, char *ret, size_t size, struct err *e)
{
	const json_t *v = json_object_get(o, key);
	size_t n;

	if (!json_is_string(v))
		return err_set(e, -EINVAL, "the message's \"%s\" is %s", key,
			v ? "not a text" : "missing");
	n = json_string_length(v);
	if (n >= size)
		return err_set(e, -EINVAL,
			"the message's \"%s\" has %zu bytes; at most %zu are taken", key, n,
			size - 1);
	if (memchr(json_string_value(v), 0, n))
		return err_set(e, -EINVAL, "the message's \"%s\" has a NUL in it", key);
	memcpy(ret, json_string_value(v), n + 1);
	return 0;
}

int wire_int(
	const json_t *o, const char *key, int64_t min, int64_t max, int64_t *ret, struct err *e)
{
	const json_t *v = json_object_get(o, key);
	int64_t n;

	if (!json_is_integer(v))
		return err_set(e, -EINVAL, "the message's \"%s\" is %s", key,
			v ? "not an integer" : "missing");
	n = json_integer_value(v);
	if (n < min || n > max)
		return err_set(e, -EINVAL,
			"the message's \"%s\" is %lld; it must lie in %lld to %lld", key,
			(long long)n, (long long)min, (long long)max);
	*ret = n;
	return 0;
}

int wire_bool(const json_t *o, const char *key, bool *ret, struct err *e)
{
	const json_t *v = json_object_get(o, key);

	if (!json_is_boolean(v))
		return err_set(e, -EINVAL, "the message's \"%s\" is %s", key,
			v ? "neither true nor false" : "missing");
	*ret = json_is_true(v);
	return 0;
}
