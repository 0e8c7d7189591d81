/* At most so many at a time: SSH handshakes cost both sides, and a server turns away who comes with too many at once. */
#pragma once

#include <event2/event.h>
#include <stdbool.h>

struct gate;

/* One who waits or is inside; zeroed is neither. Must not move while it is. */
struct gate_seat {
	struct gate *gate;
	struct gate_seat *next;
	void (*enter)(void *arg);
	void *arg;
	bool is_inside;
};

struct gate *gate_new(struct event_base *base, unsigned max);
/* Everybody must have left. */
void gate_free(struct gate *g);
/* Calls enter from the loop as soon as there's room, first come first served. */
void gate_wait(struct gate *g, struct gate_seat *s, void (*enter)(void *arg), void *arg);
/* Whether waiting or inside or neither. */
void gate_leave(struct gate_seat *s);
