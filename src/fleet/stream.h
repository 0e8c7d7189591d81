/*
 * Streams over a held link (docs/wire.md: file, stage): a file of the node as it is and as it grows, and a job's body on
 * its way there. The link routes them by id, so its owner hears nothing of them. What the node may send ahead is bounded:
 * it gets credit once data() has returned.
 *
 * A stream ends with `over` or `failed`, whichever is called, and is gone when that returns; with stream_close; or without a
 * word when its link is freed. A link that goes down fails its streams before its owner hears `down`; a follower may ask
 * again from its offset after `up`.
 */
#pragma once

#include "core/attempt.h"
#include "fleet/link.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STREAM_STAGE_MAX (8 * 1024 * 1024)

/* NULL members aren't called. In each of them any stream may be closed or opened; the link must not be freed. */
struct stream_owner {
	void *arg;
	/*
	 * What follows is the file's bytes from `offset` on. Comes again, with offset 0, when the file begins anew (it came into
	 * being, was truncated or replaced). is_cut: earlier lines were left out. exists false: it may come into being if
	 * it's followed.
	 */
	void (*begun)(void *arg, bool exists, int64_t size, int64_t offset, bool is_cut);
	void (*data)(void *arg, const char *bytes, size_t n); /* borrowed */
	void (*over)(void *arg); /* all is there; of stream_stage: it's staged, durably */
	void (*failed)(void *arg, const char *why);
};

struct stream;

struct stream_want {
	const char *dir; /* absolute, on the node */
	const char *name; /* "stdout.log", "stderr.log", "status", "result.json", "run.sh" */
	int64_t lines; /* the last so many; -1: from `offset` */
	int64_t offset;
	int64_t max; /* bytes, up to 64 MiB; 0: that. With `follow` it bounds only what `lines` begins with */
	bool follow;
	const char *queue; /* whose end ends the following; NULL: nobody's, until it's closed */
	uint64_t job;
	uint32_t attempt;
};

/* NULL: the link isn't up, or a text isn't UTF-8. Strings are copied. Nothing is called before the loop runs again. */
struct stream *stream_open_file(
	struct link *l, const struct stream_want *w, const struct stream_owner *o);
/* The bytes are copied; above STREAM_STAGE_MAX, or when the link isn't up, NULL. The link must have a fence. */
struct stream *stream_stage(struct link *l, const char *token, const void *bytes, size_t n,
	const struct stream_owner *o);
/* No more of it. NULL is fine. */
void stream_close(struct stream *s);
