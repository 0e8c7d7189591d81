/*
 * Child processes of the agent that do what may hang: they ask drivers and libraries, and work on job directories. What
 * hangs, hangs alone, and dies with the agent.
 */
#pragma once

#include <sys/types.h>

/* Its work, with its end of a stream socket to the agent. What the agent had in memory at the fork is there. */
typedef void helper_fn(int fd, void *arg);

/*
 * Forks one. In it: name as its process's name; signals at their defaults, none blocked, but SIGPIPE ignored; of the
 * descriptors its end of the socket and keep_fd (-1: none). It exits with 0 when run returns.
 * The pid and the agent's end (non-blocking, closed on exec; the caller's to close), or -errno.
 */
pid_t helper_fork(const char *name, int keep_fd, helper_fn *run, void *arg, int *ret_fd);
