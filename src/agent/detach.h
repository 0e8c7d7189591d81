/*
 * From a command to a daemon: a process of its own session, without a terminal, without the starter's descriptors, and
 * without what its environment would hand on (a job's environment comes whole in its launch).
 */
#pragma once

#include "base/err.h"

#include <stdbool.h>

struct detach {
	int report_fd; /* in the daemon: to the starter */
};

/*
 * True in the daemon. False in the starter, once the daemon has called detach_ready or died: *ret_status is then what to
 * exit with, and *e says why unless it's 0.
 */
bool detach_begin(struct detach *d, int *ret_status, struct err *e);
/* Lets the starter go: error NULL, all is well. */
void detach_ready(struct detach *d, const char *error);
/* Which variables an agent keeps; pure. */
bool detach_keeps(const char *variable);
