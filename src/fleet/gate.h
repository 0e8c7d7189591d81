/*
 * At most so many at a time: SSH handshakes cost both sides, and a server turns away who comes with too many at once. A
 * seat is kept for a moment only: a host that doesn't answer by then costs nothing but time, and not the others'.
 */
#pragma once

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

struct gate;

/* One who waits or is inside; zeroed is neither. Must not move while it is. */
struct gate_seat {
	struct gate *gate;
	struct gate_seat *next;
	void (*enter)(void *arg);
	void *arg;
	struct event *out; /* when its time inside is over */
	bool is_inside, is_first;
};

/* hold_ms: how long a seat counts if nobody leaves it. */
struct gate *gate_new(struct event_base *base, unsigned max, int64_t hold_ms);
/* Everybody must have left. */
void gate_free(struct gate *g);
/* Calls enter from the loop as soon as there's room, first come first served; is_first: before all who aren't. */
void gate_wait(
	struct gate *g, struct gate_seat *s, bool is_first, void (*enter)(void *arg), void *arg);
/* Whether waiting or inside or neither. */
void gate_leave(struct gate_seat *s);
