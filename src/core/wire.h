/*
 * Frames between gpustow and its agents (docs/wire.md has the messages): a 32-bit big-endian length N, then N bytes,
 * the first of which is the kind. Pure: bytes in, frames out; whoever owns the descriptor reads and writes.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_PROTOCOL 1
#define WIRE_JSON_MAX (1024 * 1024) /* bytes of one JSON message */
#define WIRE_BULK_MAX (32 * 1024)

enum wire_kind { WIRE_JSON = 'J', WIRE_BULK = 'B' };

/* Appends one frame with `msg` to *out. -E2BIG with a sentence when it would pass WIRE_JSON_MAX; *out is as before. */
int wire_put_json(struct buf *out, const json_t *msg, struct err *e);

/*
 * Takes the first whole frame off *in. Returns 1 and *ret_msg (the caller's reference) for a JSON frame, 0 when more
 * bytes are needed, negative when the peer broke the rules (too long, unknown kind, not JSON, not an object,
 * duplicate keys); the link must then be closed. WIRE_BULK frames are refused until something sends them.
 */
int wire_get_json(struct buf *in, json_t **ret_msg, struct err *e);

/* Members of a message, with bounds; -EINVAL and a sentence naming the key when missing or of another kind. */
int wire_str(const json_t *o, const char *key, char *ret, size_t size, struct err *e);
int wire_int(
	const json_t *o, const char *key, int64_t min, int64_t max, int64_t *ret, struct err *e);
int wire_bool(const json_t *o, const char *key, bool *ret, struct err *e);
