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
#define WIRE_BULK_MAX (32 * 1024) /* bytes of data in one bulk frame */
#define WIRE_CREDIT \
	(256 * 1024) /* bytes of a stream that may be sent beyond what was given credit for */

enum wire_kind { WIRE_JSON = 'J', WIRE_BULK = 'B' };

/* Appends one frame with `msg` to *out. -E2BIG with a sentence when it would pass WIRE_JSON_MAX; *out is as before. */
int wire_put_json(struct buf *out, const json_t *msg, struct err *e);

/* Appends a piece of the stream to *out. -E2BIG with a sentence when n passes WIRE_BULK_MAX; *out is as before. */
int wire_put_bulk(struct buf *out, uint64_t stream, const void *bytes, size_t n, struct err *e);

/* A frame that was taken off. Zeroed before the first; used again for the next; wire_frame_done at the end. */
struct wire_frame {
	enum wire_kind kind;
	json_t *msg; /* WIRE_JSON: the caller's reference, to be taken or dropped before the next; else NULL */
	uint64_t stream; /* WIRE_BULK */
	struct buf bytes; /* WIRE_BULK: at most WIRE_BULK_MAX */
};
/* Drops what it holds. */
void wire_frame_done(struct wire_frame *f);

/*
 * Takes the first whole frame off *in. Returns 1 and the frame, 0 when more bytes are needed, negative when the peer broke
 * the rules (too long, unknown kind, a bulk frame without a stream, not JSON, not an object, duplicate keys); the link must
 * then be closed.
 */
int wire_get(struct buf *in, struct wire_frame *ret, struct err *e);
/* The same where nobody sends streams: a bulk frame breaks the rules. */
int wire_get_json(struct buf *in, json_t **ret_msg, struct err *e);

/* Members of a message, with bounds; -EINVAL and a sentence naming the key when missing or of another kind. */
int wire_str(const json_t *o, const char *key, char *ret, size_t size, struct err *e);
int wire_int(
	const json_t *o, const char *key, int64_t min, int64_t max, int64_t *ret, struct err *e);
int wire_bool(const json_t *o, const char *key, bool *ret, struct err *e);
