/*
 * Between a link (hello, frames, pings, back-off) and what carries its bytes. A transport opens a channel, hands over a
 * descriptor, and knows why a channel ended; it knows no message.
 */
#pragma once

#include "fleet/link.h"

/* What close is told when a hello wasn't answered. */
#define LINK_UNANSWERED "the agent does not answer"

struct transport;

struct transport_impl {
	/* Begins; link_opened or link_failed follows, perhaps before this returns. */
	void (*open)(struct transport *t);
	/*
	 * The channel is no good any more: ends what open began. True: why isn't known yet, link_failed follows.
	 * `why` is what the link saw; NULL: the link itself is being freed, nothing follows.
	 */
	bool (*close)(struct transport *t, const char *why);
	void (*free)(struct transport *t);
	void (*answer)(struct transport *t, uint64_t question,
		const char *answer); /* NULL: nothing is ever asked */
	void (*run_text)(struct transport *t, const char *command, int64_t limit_ms,
		size_t max_bytes,
		void (*done)(
			void *arg, int status, const char *out, size_t n, const char *err_text),
		void *arg);
	bool has_noise; /* what a login left in the background may still print between frames */
	int64_t hello_ms; /* for the answer to a hello */
	/* Steps of this connection, for link_ssh_steps; NULL: none. */
	const struct link_ssh_steps *(*steps)(const struct transport *t);
	/* Before try number n_failures + 1; negative: not by itself. was_up: this failure ended a link that had proved itself. */
	int64_t (*delay_ms)(
		struct transport *t, enum link_failure kind, unsigned n_failures, bool was_up);
};

struct transport {
	const struct transport_impl *impl;
	struct link *link;
};

struct link *link_new(struct event_base *base, struct transport *t, const struct link_who *who,
	const struct link_owner *owner);
/* The channel is there; the link owns fd (a stream socket, not waiting). rest: frames' bytes that were read already. */
void link_opened(struct link *l, int fd, const char *rest, size_t n);
void link_failed(struct link *l, enum link_failure kind, const char *why);
/* ---- the link's streams (stream.c) ---- */

struct streams;
struct streams *link_streams(struct link *l);
struct streams *streams_new(struct link *l);
/* Nobody is called any more. */
void streams_free(struct streams *x);
/* A message about a stream; false: it isn't one, and is for the link's owner. */
bool streams_take(struct streams *x, const char *op, const json_t *msg);
void streams_bulk(struct streams *x, uint64_t id, const char *bytes, size_t n);
/* The link went down: all of them fail with that reason. */
void streams_fail(struct streams *x, const char *why);

/* What a text run met, for link_failure. */
void link_set_failure(struct link *l, enum link_failure kind);
