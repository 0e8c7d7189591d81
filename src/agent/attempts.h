/*
 * The live claims of this root, as the agent has them in memory: what they are, how far they came, who watches them.
 * The truth lies in the claims; this table is loaded from them and brought up to date by looking (on a ring, on a
 * child's end, every 5 s). It judges as protocol.md 5 says: lock first, record second.
 *
 *   claimed, shim there ------> started ------> ended, shim there ------> ended, alone --> retired (out of the table)
 *   claimed, nobody: wants_start      `- shim killed: supervised here -'
 */
#pragma once

#include "agent/claim.h"
#include "agent/root.h"
#include "agent/shim.h"
#include "agent/supervise.h"
#include "core/attempt.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct job_files;

struct attempt_card {
	char uuid[48];
	int64_t declared_mib; /* -1: the whole card */
	int64_t held_mib; /* as of the last sample; 0 before */
	int64_t peak_mib;
	bool is_sampled;
	int64_t xid; /* the last XID error seen on it while the attempt ran; 0 none */
};

struct attempt {
	uint64_t serial; /* in the order in which they came into the table, from 1 */
	struct attempt_name name;
	char token[ID_LEN];
	char boot_id[40]; /* boot of the claim */
	uint32_t n_cards;
	struct attempt_card *cards;
	struct claim_policy policy;
	int64_t timeout_ms, grace_ms;
	int32_t lead_signal;
	int64_t lead_ms;
	char *dir; /* a job of the queue: its directory; else NULL */
	int64_t oom_kills; /* the machine's counter at the claim, and as it was when the end was heard of; -1 unknown */
	int64_t oom_kills_end;
	struct job_files
		*files; /* of one with a directory: what was read there (facts_of_end.h); owned */
	struct claim_record rec; /* as last read */
	pid_t shim; /* forked by this agent and not reaped; 0 */
	bool is_watched; /* a shim holds the lock, or is about to, or the agent does its work */
	bool wants_start; /* claimed, and nobody is there to start it: admission decides again */
	bool is_admitting; /* it stands in the admission's line */
	bool is_acked;
	bool stop_wanted;
	uint32_t survivors; /* of the job's tree after its end; as of the last look */
	bool had_survivors;
	/* Samples asked for when its shim told that its processes have ended, before the end was on record; 0: it didn't. */
	uint64_t asked_at_end;
	enum attempt_state told; /* what was pushed last; 0: nothing */
	/* The leader's end, when the agent as subreaper reaped it. */
	bool has_status;
	int status;
	/* Set while the agent does the dead shim's work. */
	struct supervise *sup;
	int claim_fd, lock_fd;
	int64_t turn_at_ms;
	int64_t unwritten_at_ms; /* the end couldn't be written; tried again then. 0: it's written */
};

/* Told of each change of state, and when `is_watched` ends. */
typedef void attempts_changed_fn(void *arg, struct attempt *a);

struct attempts {
	struct root *root;
	char boot_id[40];
	uint64_t pid_ns;
	struct attempt **items; /* owned, in no order */
	size_t n, cap;
	uint64_t last_serial;
	attempts_changed_fn *changed;
	void *arg;
};

void attempts_init(struct attempts *t, struct root *r, attempts_changed_fn *changed, void *arg);
void attempts_done(struct attempts *t);
/* Takes in all claims of the root and judges each. A claim that can't be read is left alone and named in *e (once). */
int attempts_load(struct attempts *t, int64_t now_ms, struct err *e);
struct attempt *attempts_find(const struct attempts *t, const struct attempt_name *n);
/* A claim that was made just now. The table owns the result. */
struct attempt *attempts_add(struct attempts *t, const struct claim_spec *s);
/* The whole spec, from the claim. */
int attempts_read_spec(
	const struct attempts *t, const struct attempt *a, struct claim_spec *ret, struct err *e);
/* Forks its shim. The spec is read from the claim when NULL. */
int attempts_start(
	struct attempts *t, struct attempt *a, const struct claim_spec *s, struct err *e);
/* The same by a shim that was made ready for it, if it's there and still lives. Clears *ready. */
int attempts_go(struct attempts *t, struct attempt *a, const struct claim_spec *s,
	struct shim_ready *ready, struct err *e);
void attempts_remove(struct attempts *t, struct attempt *a);

/* One look at one, or at all that may have changed by themselves. */
void attempts_look(struct attempts *t, struct attempt *a, int64_t now_ms);
void attempts_look_all(struct attempts *t, int64_t now_ms);
/* Children that were reaped, all of one turn at once: a shim's end and its job's may come in either order. */
struct reaped {
	pid_t pid;
	int status;
};
void attempts_reaped(struct attempts *t, const struct reaped *r, size_t n, int64_t now_ms);
/* The supervised ones' turns. Returns ms until the next, -1 for none. */
int64_t attempts_turn(struct attempts *t, int64_t now_ms);
/* Leaves the wish to end in the claim and wakes whoever must hear of it. */
int attempts_stop(struct attempts *t, struct attempt *a, enum stop_reason why, int64_t grace_ms,
	int64_t now_ms);

/* Something of it may still run or is about to. */
bool attempt_is_live(const struct attempt *a);
