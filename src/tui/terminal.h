/*
 * The terminal's side of a screen's loop, the same for both screens: its keys and mouse, a lone Esc once its time is over, its
 * size, and the signals that end a program. What they mean is the owner's.
 */
#pragma once

#include "tui/screen.h"

#include <event2/event.h>

struct terminal_owner {
	void *arg;
	void (*event)(void *arg, const struct input_event *ev);
	void (*draw)(void *arg); /* after events, and when the size has changed */
	void (*end)(void *arg, int signal_no); /* told to end; 0: the terminal is gone */
};

/* Zeroed: not begun. Must not move between begin and done. */
struct terminal {
	struct event_base *base;
	struct screen *screen;
	struct terminal_owner owner;
	struct event *readable, *writable, *esc, *signals[4];
	bool is_over; /* the owner was told to end: nothing is drawn any more */
};

/* screen NULL: only the signals (a program that answers line by line). A key goes before all else (priority 0). */
void terminal_begin(struct terminal *t, struct event_base *base, struct screen *screen,
	const struct terminal_owner *owner);
void terminal_done(struct terminal *t);
/*
 * Shows a picture without waiting for a terminal that doesn't read: once it does, the owner's draw is called for the latest.
 * The owner is told to end when the terminal is gone.
 */
void terminal_show(struct terminal *t, const struct frame *f);
void terminal_timer(struct event *ev, int64_t ms);
