/*
 * The job's first process: forked by the shim, held at a pipe until its start is on record, then the job itself.
 * Leader of its own session and process group; stdin is /dev/null, stdout and stderr
 * the output file, or each its own.
 */
#pragma once

#include "agent/claim.h"

#include <sys/types.h>

/* A zeroed struct with descriptors -1 is none. */
struct leader {
	pid_t pid;
	int hold_fd; /* a byte lets it go; closing without one makes it end itself */
	int error_fd; /* what kept it from being executed, readable once it has ended */
};

/*
 * What the shim ignores, and the job must not: the only dispositions that the shim leaves other than at their default, so
 * the only ones that are put back for the job.
 */
#define LEADER_N_IGNORED 7
extern const int leader_ignored[LEADER_N_IGNORED];

/* 0 or -errno. s must last until the leader has become the job or ended: it reads it where it lies. */
int leader_fork(const struct claim_spec *s, struct leader *ret);
void leader_let_go(struct leader *l);
/* After its death: 1 and the end's code and text when it never was executed, 0 when it was. Closes what is open. */
int leader_failure(struct leader *l, const struct claim_spec *s, struct attempt_end *ret);
/* "<what> (<error>): <path>", clean and cut to size, with how and code: the end of what couldn't be launched. */
void leader_fill_failure(const char *what, int code, const char *path, struct attempt_end *ret);
