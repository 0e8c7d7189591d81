/*
 * The shim: parent and witness of one job. Forked from the agent, not executed. It takes the claim's lock, starts the
 * job, keeps the limit, writes the end down, and stays until nothing of the job is left.
 */
#pragma once

#include "agent/claim.h"

/*
 * Forks the shim for a claim. In the agent: the shim's pid, or -errno. Never returns in the child. The child closes
 * every descriptor but its own, so the agent's sockets don't live on in it, restores signals, limits nothing.
 * s is only read, and the child has its own copy by the fork. r->agent_exe (root.h) says what it may start.
 *
 * The shim ignores HUP, INT, QUIT and TERM, for a witness that leaves at logout has seen nothing; only KILL ends it early.
 * The job gets them all at their defaults. USR1 is the doorbell: "look for `stop`".
 * If it dies before it has let the leader go, the leader kills itself, and nothing of the job has run.
 * Points where the fault suite strikes are named fault_point() (base/fault.h).
 */
pid_t shim_fork(const struct root *r, const struct claim_spec *s, struct err *e);

/*
 * Every signal to its default, once: no shim has to do it then. Whoever calls it changes no disposition afterwards but to
 * ignore what a shim ignores, too.
 */
void shim_reset_signals(void);

/*
 * A shim made ready ahead of its claim's birth, with the job's first process held at its pipe: it has no right yet and looks
 * for none before it's told to. Whoever made it ends, or drops it: it leaves, and nothing of the job has run.
 */
struct shim_ready {
	pid_t pid; /* 0: none */
	int go_fd;
};
/* 0 or negative, as shim_fork. s must say what the claim will. */
int shim_prepare(
	const struct root *r, const struct claim_spec *s, struct shim_ready *ret, struct err *e);
/* The claim is born: from here on it's as one that shim_fork made. Its pid, or -errno: it's gone. Clears *x. SIGPIPE must be ignored. */
pid_t shim_go(struct shim_ready *x);
void shim_drop(struct shim_ready *x);

/*
 * The doorbell of whoever wrote a state. An end that no agent hears of would strand who waits for it, so one is started
 * when nobody listens; of several the lock of the root leaves one.
 */
void shim_ring(const struct root *r, const char *name, bool may_start_agent);
/* Behind the name: its job's processes have ended, and the record of that is being written. Binds nothing. */
#define SHIM_RING_ENDING '!'
