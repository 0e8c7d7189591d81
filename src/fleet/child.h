/*
 * A child process with one stream socket as its stdin and stdout, in a session of its own, and what it says on stderr kept
 * within bounds. The owner hears of its end once; whoever frees it before that hears nothing and leaves no zombie.
 */
#pragma once

#include "base/err.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>

#define CHILD_SAID_MAX 8192 /* the last bytes of stderr that are kept */

struct child;

struct child_spec {
	const char *const *argv; /* argv[0] by PATH */
	/*
	 * In place of argv (NULL then): a fork of this process that has nothing of it but its memory, no descriptor and no
	 * handler, and leaves with what this returns. For what may hang. The loop and the store are the parent's.
	 */
	int (*run)(const void *arg);
	const void *run_arg;
	const char *const
		*env; /* "NAME=VALUE" beside our own environment, the later wins; NULL-terminated */
};

/* ended: its wait status; stderr is complete by then, as far as the child itself goes. */
int child_new(struct event_base *base, const struct child_spec *spec,
	void (*ended)(void *arg, int status), void *arg, struct child **ret, struct err *e);
/* Our end of its stdin and stdout: not waiting. The child keeps it until it's taken (the caller's then). */
int child_fd(const struct child *c);
int child_take_fd(struct child *c);
/* So far; never NULL. */
const char *child_said(const struct child *c);
/* Kills it (of a fork: its whole group) after ms unless it ends by itself; `ended` is still called. */
void child_end(struct child *c, int64_t ms);
/* Kills and reaps. is_group: also what it started, unless that made a session of its own. */
void child_free(struct child *c, bool is_group);
