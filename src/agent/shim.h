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
 * The doorbell of whoever wrote a state. An end that no agent hears of would strand who waits for it, so one is started
 * when nobody listens; of several the lock of the root leaves one.
 */
void shim_ring(const struct root *r, const char *name, bool may_start_agent);
