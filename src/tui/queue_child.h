/*
 * The processes behind the queue screen: forked before anything else, each at the other end of a socket pair. Inside of the
 * screen; what they say is queue.h's.
 */
#pragma once

#include "tui/queue.h"

#include <sys/types.h>

struct queue_child {
	int fd; /* -1: there's none, or it's gone */
	pid_t pid; /* 0: there's none */
};

/* all[] are its siblings, begun or not: nothing of theirs is left open in it, and nothing of the terminal. */
int queue_child_start(struct queue_child all[QUEUE_ROLE_N], enum queue_role role,
	const struct queue_screen_options *o, struct err *e);
/* Closes what's open and waits for their end, no longer than that in all. */
void queue_child_stop(struct queue_child all[QUEUE_ROLE_N], int64_t limit_ms);
