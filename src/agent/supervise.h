/*
 * Watching one attempt to its end: the time limit, the stop, the grace, the kill, what it left behind. A state machine
 * without a loop of its own, because two kinds of process turn it: the shim (parent of the job), and the agent when
 * the shim was killed.
 *
 *   running --limit or stop--> terminating (TERM to the group) --grace over--> killing (KILL to the tree, again each step)
 *      |  `- lead signal, once       |                                            |
 *      `--- leader ended ---------> `--- tree empty --------------------------> ended
 *
 * When it wasn't asked to stop, the leader's end is the attempt's end, and what is left of the tree stays (charged,
 * named, reaped). When it was, the attempt ends when the tree is empty or was killed.
 * The tree for killing: the job's session and whatever lives below its shim. Never an agent or another shim, and what lives
 * below those: they're known by the names they gave themselves (below) and by the file they run.
 *
 * A process that KILL doesn't end (it hangs in a driver) holds the end up for SUPERVISE_PATIENCE_MS; then the attempt ends
 * with it among the survivors. A leader that KILL doesn't end holds it up for as long as it takes.
 */
#pragma once

#include "agent/claim.h"
#include "proc/proc.h"

#include <stdbool.h>
#include <stdint.h>

#define SUPERVISE_SHIM_NAME "gpustow-shim" /* prctl(PR_SET_NAME): the shim's, set by shim_fork */
#define SUPERVISE_AGENT_NAME \
	"gpustow-agent" /* the agent's main must set it before it starts anything */
#define SUPERVISE_PATIENCE_MS 10000

enum supervise_phase {
	SUPERVISE_RUNNING,
	SUPERVISE_TERMINATING,
	SUPERVISE_KILLING,
	SUPERVISE_ENDED
};

struct supervise {
	int claim_fd; /* borrowed */
	struct claim_record rec; /* what was last written; started_boot_ms is the limit's zero */
	int64_t timeout_ms, grace_ms;
	int32_t lead_signal; /* to the group lead_ms before the limit; 0: none */
	int64_t lead_ms;
	/*
	 * BOOTTIME at which it was sent; 0: not yet. Whoever turns the machine puts it on record when it changes, so that
	 * who supervises next neither sends it again nor forgets how long the job has to be waited for.
	 */
	int64_t lead_sent_ms;
	pid_t tree_root; /* descent is counted from here: the shim, checked to be alive; 0 when it's gone */
	bool is_parent; /* the leader is our child: its wait status will be told */
	enum supervise_phase phase;
	enum stop_reason reason;
	int64_t term_at_ms, kill_at_ms; /* BOOTTIME */
	bool leader_ended;
	bool has_status; /* status is what wait said */
	int status;
	int64_t leader_ended_boot_ms;
	bool was_killed;
	uint32_t kill_rounds;
};

/* What the spec and the record say of limit and lead. */
void supervise_set_limits(struct supervise *s, int64_t timeout_ms, int64_t grace_ms,
	int32_t lead_signal, int64_t lead_ms);
/* One turn at BOOTTIME now_ms. Reads the stop wish if look_for_stop. Returns how many ms until the next turn at the latest
 * (-1: only events). Never blocks. When phase is SUPERVISE_ENDED, `ret_end` is filled. */
int64_t supervise_turn(
	struct supervise *s, int64_t now_ms, bool look_for_stop, struct attempt_end *ret_end);
/* The leader's wait status, as soon as the parent has it. */
void supervise_leader_status(struct supervise *s, int status, int64_t now_ms);
/* Processes of the tree still there (the leader not counted). */
size_t supervise_survivors(const struct supervise *s);
/* The same with a table read by the caller, for many attempts at once. */
size_t supervise_survivors_in(const struct supervise *s, const struct proc_table *t);
