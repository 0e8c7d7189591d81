/* Until jobs have ended: what `job wait` and `job submit --wait` share. */
#pragma once

#include "cli/queue_common.h"

struct queue_wait {
	const int64_t *ids;
	size_t n;
	bool any; /* the first end will do */
	int64_t timeout_ms; /* 0: none */
};

struct queue_waited {
	struct store_jobs jobs; /* in the order of the ids that are there */
	bool all_done, all_succeeded, timed_out;
	bool is_stuck; /* what hasn't ended is held, or waits for what is: a person has to act */
	int signal_no; /* told to end by this; 0 */
};

/* -ENOENT: a job that isn't there, named. Passes are made meanwhile, as the rate limit allows (not with --no-tick). */
int queue_wait(
	struct queue *q, const struct queue_wait *w, struct queue_waited *ret, struct err *e);
void queue_waited_done(struct queue_waited *w);
/* 0; 1 when one ended otherwise than completed, or is stuck; 2 when the time was over; 128 + signal. */
int queue_wait_code(const struct queue_wait *w, const struct queue_waited *d);
