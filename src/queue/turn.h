/*
 * The record's lock for a loop that mustn't wait for it. It's had at once, or some milliseconds later as in any line of short
 * writers; else it's tried again and again, what was to be written waits in memory, and the loop goes on.
 *
 * Life cycle: turn_init; turn_take before each bit of work that writes, turn_end behind it; turn_done.
 */
#pragma once

#include "store/store.h"

#include <event2/event.h>

struct turn {
	struct store *store;
	struct event *again;
	bool is_held;
	char *who; /* the sentence that says who is in the way; NULL: nobody is */
	int64_t since_ms; /* then: BOOTTIME */
	int64_t waited_ms; /* in all, up to the last time that it was had */
	void (*come)(void *arg); /* what turn_take refused can be done now, perhaps */
	void *arg;
};

void turn_init(struct turn *t, struct event_base *base, struct store *s, void (*come)(void *arg),
	void *arg);
/*
 * True: write; a store that can't be locked for another reason than somebody's lock says so itself. False: somebody has the
 * lock, and `come` is called later.
 */
bool turn_take(struct turn *t);
void turn_end(struct turn *t);
void turn_done(struct turn *t);
