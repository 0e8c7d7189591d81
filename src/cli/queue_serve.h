/*
 * The processes behind the queue screen (tui/queue.h): each has its own database handle, reads lines of JSON from fd, does
 * what they say and answers.
 */
#pragma once

#include "cli/queue_common.h"
#include "tui/queue.h"

/* arg: struct queue with everything but its store. */
int queue_serve(void *arg, enum queue_role role, int fd);
/* What the screen shows of the queue at this moment; to be owned. */
int queue_serve_snapshot(struct queue *q, int64_t now_ms, json_t **ret, struct err *e);
