/*
 * Frames and the members of messages. Pure: knows bytes and JSON, no descriptor and no message. Whatever the peer
 * sent, the answer is a message, "more bytes" or one sentence; sizes are bounded before anything is allocated.
 */
#include "core/wire.h"

#include <string.h>

#define WIRE_HEAD 5 /* length and kind */

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

int wire_get_json(struct buf *in, json_t **ret_msg, struct err *e)
{
	json_t *o = NULL;
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
	if (in->data[4] != WIRE_JSON)
		return err_set(e, -EBADMSG,
			"the peer sent a frame of kind %u, which isn't known here",
			(unsigned)(uint8_t)in->data[4]);
	if (in->len - 4 < n)
		return 0;
	r = parse_object(in->data + WIRE_HEAD, n - 1, &o, e);
	if (r)
		return r;
	buf_drop(in, 4 + (size_t)n);
	*ret_msg = o;
	return 1;
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
