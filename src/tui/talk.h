/*
 * A talk line by line, for people who listen and for terminals that can't move their cursor: what's typed in, sentences out.
 * Nothing waits for a terminal that doesn't read: sentences wait in memory, and beyond TALK_WAITING_MAX they're left out whole,
 * which is said once it reads again.
 */
#pragma once

#include "base/buf.h"

#include <event2/event.h>
#include <stdbool.h>

enum { TALK_LINE_MAX = 4096, TALK_WAITING_MAX = 1 << 20 };

struct talk_owner {
	void *arg;
	void (*line)(void *arg, const char *line); /* one that was typed, without its end */
	void (*over)(void *arg); /* nobody types, or reads, any more */
};

/* Zeroed: not begun. Must not move between begin and done. */
struct talk {
	struct talk_owner owner;
	struct event *readable, *writable;
	struct buf typed, waiting;
	size_t taken,
		left_out; /* bytes of waiting that were written; answers that nobody will read */
	int fd; /* the output, opened anew where it can be: nobody else's writes are to fail for our not waiting */
	int flags; /* of the shared one, to be given back; -1: it's as it was */
	bool is_over;
};

/* Of standard input and output. listens: to what's typed; else it only speaks. Lines come before all else (priority 0). */
void talk_begin(
	struct talk *t, struct event_base *base, bool listens, const struct talk_owner *owner);
/* Whatever's still waiting has a moment to be written. */
void talk_done(struct talk *t);
/* No line of it may have a byte that moves a cursor. */
void talk_say(struct talk *t, const struct buf *text);
bool talk_is_waiting(const struct talk *t);
