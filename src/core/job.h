/*
 * A job of the queue as a value: what was asked for, how far it came, and the one table of what may happen to it.
 * Pure. Times are wall clock milliseconds for people unless named boot; memory is MiB per card.
 *
 *               bind            started            ended
 *   pending ----------> bound --------> running --------> completed | failed | timeout | cancelled | lost
 *      ^  ^               |                |                 |
 *      |  `--- unbind ----'                |                 |
 *      `-------------- retry --------------'                 |
 *      `---------------------- requeue ----------------------'
 *
 * *Bound* isn't a state of its own: it's a pending job with an attempt in flight (is_bound), for which a node has to speak
 * before anything else is done with it. *Held* isn't one either: it's a pending job with a held_reason.
 */
#pragma once

#include "base/err.h"
#include "core/attempt.h"
#include "core/gpu.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JOB_TEXT_MAX (8 * 1024 * 1024) /* bytes of a command */
#define JOB_CARDS_MAX GPU_MAX
#define JOB_NEEDS_MAX 100000 /* prerequisites of one job */

enum job_state {
	JOB_STATE_NONE, /* not submitted yet, or purged */
	JOB_STATE_PENDING,
	JOB_STATE_RUNNING,
	JOB_STATE_COMPLETED, /* from here on terminal */
	JOB_STATE_FAILED,
	JOB_STATE_CANCELLED,
	JOB_STATE_TIMEOUT,
	JOB_STATE_LOST,
	JOB_STATE_N,
};
#define JOB_STATES_TERMINAL \
	(1u << JOB_STATE_COMPLETED | 1u << JOB_STATE_FAILED | 1u << JOB_STATE_CANCELLED | \
		1u << JOB_STATE_TIMEOUT | 1u << JOB_STATE_LOST)
#define JOB_STATES_ACTIVE (1u << JOB_STATE_PENDING | 1u << JOB_STATE_RUNNING)

/* Why it ended badly: exactly one of these. */
enum job_cause {
	JOB_CAUSE_NONE,
	JOB_CAUSE_CUDA_OOM,
	JOB_CAUSE_HOST_OOM,
	JOB_CAUSE_GPU_FAULT,
	JOB_CAUSE_VANISHED,
	JOB_CAUSE_NODE_LOST,
	JOB_CAUSE_NODE_REBOOTED,
	JOB_CAUSE_TIMEOUT,
	JOB_CAUSE_CANCELLED,
	JOB_CAUSE_SIGNAL,
	JOB_CAUSE_EXIT_CODE,
	JOB_CAUSE_LAUNCH_FAILED,
	JOB_CAUSE_DISK_FULL,
	JOB_CAUSE_DEPENDENCY,
	JOB_CAUSE_UNSCHEDULABLE,
	JOB_CAUSE_N,
};

enum event_kind {
	EVENT_NONE,
	EVENT_JOB_SUBMITTED,
	EVENT_JOB_STARTED,
	EVENT_JOB_FINISHED,
	EVENT_JOB_LOST,
	EVENT_JOB_REQUEUED,
	EVENT_JOB_TIMEOUT,
	EVENT_JOB_CANCELLED,
	EVENT_JOB_FAILED,
	EVENT_JOB_HELD,
	EVENT_JOB_UNHELD,
	EVENT_JOB_RELEASED,
	EVENT_JOB_DEPENDENCIES,
	EVENT_JOB_PRIORITY,
	EVENT_JOB_REAPED,
	EVENT_LANE_REORDERED,
	EVENT_LANE_ASSIGNED,
	EVENT_LANE_PAUSED,
	EVENT_LANE_RESUMED,
	EVENT_NODE_UP,
	EVENT_NODE_DOWN,
	EVENT_CARD_OUT, /* ours: faults took a card out of service */
	EVENT_KIND_N,
};

enum alert_kind {
	ALERT_NONE,
	ALERT_JOB_FAILED,
	ALERT_JOB_LOST,
	ALERT_JOB_TIMEOUT,
	ALERT_JOB_UNSCHEDULABLE,
	ALERT_NODE_DOWN,
	ALERT_JOB_RETRIED,
	ALERT_LAUNCH_FAILED,
	ALERT_DEPENDENCY_FAILED,
	ALERT_CARD_OUT, /* ours */
	ALERT_KIND_N,
};
enum alert_severity { ALERT_WARNING = 1, ALERT_ERROR };

/* Where vram_mib comes from. */
enum vram_source { VRAM_NONE, VRAM_DECLARED, VRAM_LEARNED, VRAM_DEFAULT, VRAM_SOURCE_N };
/* What becomes of a job whose prerequisite ended badly. */
enum on_dependency { ON_DEPENDENCY_HOLD, ON_DEPENDENCY_FAIL, ON_DEPENDENCY_RUN, ON_DEPENDENCY_N };

/* Words of all these, "" for the first of each; NULL outside the enum. The inverse: 0 or -EINVAL. */
const char *job_state_name(enum job_state s);
const char *job_cause_name(enum job_cause c);
const char *event_kind_name(enum event_kind k);
const char *alert_kind_name(enum alert_kind k);
const char *alert_severity_name(enum alert_severity s);
const char *vram_source_name(enum vram_source s); /* "none", "declared", ... */
const char *on_dependency_name(enum on_dependency d); /* "hold", "fail", "run" */
int job_state_from_name(const char *s, enum job_state *ret);
int job_cause_from_name(const char *s, enum job_cause *ret);
int event_kind_from_name(const char *s, enum event_kind *ret);
int alert_kind_from_name(const char *s, enum alert_kind *ret);
int vram_source_from_name(const char *s, enum vram_source *ret);
int on_dependency_from_name(const char *s, enum on_dependency *ret);

/* What it means and the way out, as a sentence; "" for none. */
const char *job_cause_text(enum job_cause c);
enum alert_severity alert_kind_severity(enum alert_kind k);
static inline bool job_state_is_terminal(enum job_state s)
{
	return JOB_STATES_TERMINAL >> s & 1;
}

/* One card of a bind, with what is promised on it. */
struct job_card {
	char uuid[GPU_UUID_LEN];
	int32_t index;
	int64_t mib;
};

/* Which attempt is where (protocol.md 1). A zeroed one is "nowhere". */
struct job_bind {
	char token[ID_LEN];
	char *node; /* the queue's name for it */
	char root_id[ID_LEN];
	char boot_id[40];
	char machine_key[65];
	struct job_card *cards;
	size_t n_cards;
};
void job_bind_done(struct job_bind *b);

/* All texts may be NULL: unknown, not asked for. Numbers say themselves what stands for that. Everything is owned. */
struct job {
	int64_t id; /* from 1; 0: not in a store */
	enum job_state state;
	/* What was asked for. */
	char *name, *command, *workdir, *submitter;
	char *env; /* a JSON object */
	char *tags; /* a JSON array of strings */
	char *key; /* submit --key: unique in a store */
	int64_t priority, gpus;
	int64_t vram_mib; /* -1: undeclared, a wholly idle card; 0 reserves nothing */
	enum vram_source vram_source;
	char *node_constraint, *gpu_constraint, *gpu_model;
	int64_t min_total_mib, cpus, mem_mib; /* 0: none */
	bool exclusive, idle, nvlink, login;
	int64_t max_runtime_ms; /* 0: no limit */
	int64_t grace_ms; /* -1: the queue's setting */
	int64_t lead_signal, lead_ms; /* --signal; 0: none */
	int64_t max_retries, oom_retries; /* oom_retries -1: the queue's setting */
	int64_t retry_on; /* bit i: enum job_cause i; 0: the queue's rule */
	enum on_dependency on_dependency;
	int64_t *after, *after_any; /* job ids: success, any end; ascending */
	size_t n_after, n_after_any;
	char *lane;
	int64_t lane_seq;
	char *lane_next; /* where a bound entry of a lane goes once its node has let go of it: another lane, "" the pool; NULL: it stays */
	char *shape; /* of the command (core/shape.h); the store's own, what a submit says is not looked at */
	/* Where it is. */
	int64_t created_ms, updated_ms, started_ms, finished_ms; /* 0: not yet */
	int64_t elapsed_ms; /* -1 unknown; of the last attempt */
	int64_t attempt; /* number of the last one bound, never used for another; 0: none yet */
	int64_t attempt_base; /* that number at the last requeue: people see attempt - attempt_base */
	int64_t n_oom; /* OOM retries since then */
	bool is_bound; /* an attempt is in flight: pending and bound, or running */
	struct job_bind bind; /* of the attempt in flight, of a terminal job the last one */
	int64_t pid, start_ticks; /* 0 unknown */
	char *run_dir;
	int64_t heartbeat_ms, gpu_mem_mib, peak_mib; /* 0; -1 unknown */
	char *progress;
	int64_t progress_ms;
	char *held_reason;
	int64_t cancel_ms; /* wanted since; 0: not */
	char *cancel_reason;
	/* How it ended. */
	bool has_exit_code;
	int64_t exit_code; /* 128 + n for a signal */
	enum job_cause cause;
	char *last_error, *result, *notes; /* result: JSON */
};
/* A pending job with the numbers' "nothing asked" values: one GPU, undeclared. */
void job_init(struct job *j);
void job_done(struct job *j);
static inline bool job_is_held(const struct job *j)
{
	return j->state == JOB_STATE_PENDING && j->held_reason;
}
/* Attempts since submit or requeue, as JSON tells. */
static inline int64_t job_attempt_count(const struct job *j)
{
	return j->attempt - j->attempt_base;
}

/* What can happen to a job. */
enum job_step {
	JOB_STEP_SUBMIT,
	JOB_STEP_BIND, /* an attempt is about to be launched */
	JOB_STEP_UNBIND, /* a node said for certain that it never started */
	JOB_STEP_REFUSED, /* a launch was refused or can't be made: only a word about it */
	JOB_STEP_START,
	JOB_STEP_COMPLETE,
	JOB_STEP_FAIL,
	JOB_STEP_TIMEOUT,
	JOB_STEP_STOP, /* it ended because a cancel was wanted */
	JOB_STEP_LOSE,
	JOB_STEP_RETRY, /* the attempt ended badly, another one is allowed */
	JOB_STEP_UNSCHEDULABLE, /* fails without ever having been bound */
	JOB_STEP_DEPENDENCY, /* fails because a prerequisite did */
	JOB_STEP_HOLD,
	JOB_STEP_UNHOLD, /* the cause has gone */
	JOB_STEP_RELEASE, /* a person said so */
	JOB_STEP_CANCEL,
	JOB_STEP_WANT_CANCEL, /* of an attempt in flight: wanted, never taken back */
	JOB_STEP_REQUEUE,
	JOB_STEP_EDIT_NEEDS,
	JOB_STEP_EDIT_PRIORITY,
	JOB_STEP_EDIT_VRAM,
	JOB_STEP_PURGE,
	JOB_STEP_N,
};
/* Who may: anyone with the store, or only the controller, under the lease. */
enum job_who { JOB_BY_ANYONE = 1, JOB_BY_CONTROLLER };
/* JOB_NO_OR_LANE, of `bound`: no; or yes, for one with a lane, whose node lets go of it before what was changed counts. */
enum job_when { JOB_EITHER, JOB_YES, JOB_NO, JOB_NO_OR_LANE };

/* One row of the table. */
struct job_rule {
	enum job_state from;
	enum job_step step;
	enum job_state to;
	enum job_who who;
	enum job_when bound, held;
	bool not_when_cancelled; /* refused once a cancel is wanted */
	enum event_kind event; /* what it records; EVENT_NONE: the row itself is enough */
	enum alert_kind alert;
};
extern const struct job_rule job_rules[];
extern const size_t job_rules_n;

const char *job_step_name(enum job_step s);
/*
 * May this happen to j now? Its rule, or NULL with the reason and the way out in *e. is_controller: the lease is held.
 */
const struct job_rule *job_can(
	const struct job *j, enum job_step step, bool is_controller, struct err *e);
