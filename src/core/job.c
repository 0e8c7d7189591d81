/*
 * The words of the queue and the table of transitions. Pure: it decides what may happen to a job; src/store/ makes it
 * happen, in one transaction with the event and the alert that the table names.
 */
#include "core/job.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <inttypes.h>
#include <string.h>

static const char *const state_names[JOB_STATE_N] = {
	[JOB_STATE_NONE] = "",
	[JOB_STATE_PENDING] = "pending",
	[JOB_STATE_RUNNING] = "running",
	[JOB_STATE_COMPLETED] = "completed",
	[JOB_STATE_FAILED] = "failed",
	[JOB_STATE_CANCELLED] = "cancelled",
	[JOB_STATE_TIMEOUT] = "timeout",
	[JOB_STATE_LOST] = "lost",
};

static const struct {
	const char *name, *text;
} causes[JOB_CAUSE_N] = {
	[JOB_CAUSE_NONE] = {"", ""},
	[JOB_CAUSE_CUDA_OOM] = {"cuda-oom",
		"It ran out of GPU memory; submit it with a larger --vram, or let --oom-retries raise it."},
	[JOB_CAUSE_HOST_OOM] = {"host-oom",
		"The machine ran out of main memory and the kernel killed it; declare --mem, or let it use less."},
	[JOB_CAUSE_GPU_FAULT] = {"gpu-fault",
		"The GPU it ran on reported a fault; look at the card before more jobs go there."},
	[JOB_CAUSE_VANISHED] = {"vanished",
		"Its process is gone and nobody saw how; requeue it once its output has been looked at."},
	[JOB_CAUSE_NODE_LOST] = {"node-lost",
		"Its node hasn't answered for so long that it was given up; requeue it, or bring the node back."},
	[JOB_CAUSE_NODE_REBOOTED] = {"node-rebooted",
		"Its node was restarted under it; requeue it, or submit with --retries."},
	[JOB_CAUSE_TIMEOUT] = {"timeout",
		"It ran longer than its time limit; submit it with a larger --timeout."},
	[JOB_CAUSE_CANCELLED] = {"cancelled", "It was cancelled."},
	[JOB_CAUSE_SIGNAL] = {"signal",
		"A signal that wasn't ours ended it; its exit code is 128 and the signal's number."},
	[JOB_CAUSE_EXIT_CODE] = {"exit-code",
		"Its command ended with an exit code that isn't 0; the end of its output usually says why."},
	[JOB_CAUSE_LAUNCH_FAILED] = {"launch-failed",
		"Its command could not be started; check the working directory and the command."},
	[JOB_CAUSE_DISK_FULL] = {"disk-full",
		"The disk of its node was full; make room there and requeue it."},
	[JOB_CAUSE_DEPENDENCY] = {"dependency",
		"A job it needs ended badly; requeue that one first, or drop the dependency."},
	[JOB_CAUSE_UNSCHEDULABLE] = {"unschedulable",
		"No node could ever hold what it asks for; ask for less, or for another node."},
};

static const char *const event_names[EVENT_KIND_N] = {
	[EVENT_NONE] = "",
	[EVENT_JOB_SUBMITTED] = "job_submitted",
	[EVENT_JOB_STARTED] = "job_started",
	[EVENT_JOB_FINISHED] = "job_finished",
	[EVENT_JOB_LOST] = "job_lost",
	[EVENT_JOB_REQUEUED] = "job_requeued",
	[EVENT_JOB_TIMEOUT] = "job_timeout",
	[EVENT_JOB_CANCELLED] = "job_cancelled",
	[EVENT_JOB_FAILED] = "job_failed",
	[EVENT_JOB_HELD] = "job_held",
	[EVENT_JOB_UNHELD] = "job_unheld",
	[EVENT_JOB_RELEASED] = "job_released",
	[EVENT_JOB_DEPENDENCIES] = "job_dependencies",
	[EVENT_JOB_PRIORITY] = "job_priority",
	[EVENT_JOB_REAPED] = "job_reaped",
	[EVENT_LANE_REORDERED] = "lane_reordered",
	[EVENT_LANE_ASSIGNED] = "lane_assigned",
	[EVENT_LANE_PAUSED] = "lane_paused",
	[EVENT_LANE_RESUMED] = "lane_resumed",
	[EVENT_NODE_UP] = "node_up",
	[EVENT_NODE_DOWN] = "node_down",
	[EVENT_CARD_OUT] = "card_out",
};

static const char *const alert_names[ALERT_KIND_N] = {
	[ALERT_NONE] = "",
	[ALERT_JOB_FAILED] = "job_failed",
	[ALERT_JOB_LOST] = "job_lost",
	[ALERT_JOB_TIMEOUT] = "job_timeout",
	[ALERT_JOB_UNSCHEDULABLE] = "job_unschedulable",
	[ALERT_NODE_DOWN] = "node_down",
	[ALERT_JOB_RETRIED] = "job_retried",
	[ALERT_LAUNCH_FAILED] = "launch_failed",
	[ALERT_DEPENDENCY_FAILED] = "dependency_failed",
	[ALERT_CARD_OUT] = "card_out",
};

static const char *const severity_names[] = {"", "warning", "error"};
static const char *const source_names[VRAM_SOURCE_N] = {"none", "declared", "learned", "default"};
static const char *const on_dependency_names[ON_DEPENDENCY_N] = {"hold", "fail", "run"};

static const char *const step_names[JOB_STEP_N] = {
	[JOB_STEP_SUBMIT] = "submitted",
	[JOB_STEP_BIND] = "launched",
	[JOB_STEP_UNBIND] = "taken back from its node",
	[JOB_STEP_REFUSED] = "refused by a node",
	[JOB_STEP_START] = "started",
	[JOB_STEP_COMPLETE] = "completed",
	[JOB_STEP_FAIL] = "failed",
	[JOB_STEP_TIMEOUT] = "timed out",
	[JOB_STEP_STOP] = "stopped",
	[JOB_STEP_LOSE] = "given up as lost",
	[JOB_STEP_RETRY] = "retried",
	[JOB_STEP_UNSCHEDULABLE] = "failed as unschedulable",
	[JOB_STEP_DEPENDENCY] = "failed for a prerequisite",
	[JOB_STEP_HOLD] = "held",
	[JOB_STEP_UNHOLD] = "let go",
	[JOB_STEP_RELEASE] = "released",
	[JOB_STEP_CANCEL] = "cancelled",
	[JOB_STEP_WANT_CANCEL] = "cancelled on its node",
	[JOB_STEP_REQUEUE] = "requeued",
	[JOB_STEP_EDIT_NEEDS] = "given other prerequisites",
	[JOB_STEP_EDIT_PRIORITY] = "given another priority",
	[JOB_STEP_EDIT_VRAM] = "given another reservation",
	[JOB_STEP_PURGE] = "purged",
};

#define S(x) JOB_STATE_##x
#define E(x) EVENT_JOB_##x
#define ANYONE JOB_BY_ANYONE
#define CTRL JOB_BY_CONTROLLER

/* from, step, to, who, bound, held, not once a cancel is wanted, event, alert */
const struct job_rule job_rules[] = {
	{S(NONE), JOB_STEP_SUBMIT, S(PENDING), ANYONE, JOB_NO, JOB_EITHER, false, E(SUBMITTED),
		ALERT_NONE},

	{S(PENDING), JOB_STEP_BIND, S(PENDING), CTRL, JOB_NO, JOB_NO, true, EVENT_NONE, ALERT_NONE},
	{S(PENDING), JOB_STEP_UNBIND, S(PENDING), CTRL, JOB_YES, JOB_NO, false, EVENT_NONE,
		ALERT_NONE},
	{S(PENDING), JOB_STEP_REFUSED, S(PENDING), CTRL, JOB_NO, JOB_NO, false, E(FAILED),
		ALERT_LAUNCH_FAILED},
	{S(PENDING), JOB_STEP_START, S(RUNNING), CTRL, JOB_YES, JOB_NO, false, E(STARTED),
		ALERT_NONE},
	/* An end seen before any start makes both steps at once. */
	{S(PENDING), JOB_STEP_COMPLETE, S(COMPLETED), CTRL, JOB_YES, JOB_NO, false, E(FINISHED),
		ALERT_NONE},
	{S(PENDING), JOB_STEP_FAIL, S(FAILED), CTRL, JOB_YES, JOB_NO, false, E(FINISHED),
		ALERT_JOB_FAILED},
	{S(PENDING), JOB_STEP_TIMEOUT, S(TIMEOUT), CTRL, JOB_YES, JOB_NO, false, E(TIMEOUT),
		ALERT_JOB_TIMEOUT},
	{S(PENDING), JOB_STEP_STOP, S(CANCELLED), CTRL, JOB_YES, JOB_NO, false, E(CANCELLED),
		ALERT_NONE},
	{S(PENDING), JOB_STEP_LOSE, S(LOST), CTRL, JOB_YES, JOB_NO, false, E(LOST), ALERT_JOB_LOST},
	{S(PENDING), JOB_STEP_RETRY, S(PENDING), CTRL, JOB_YES, JOB_NO, true, E(REQUEUED),
		ALERT_JOB_RETRIED},
	{S(PENDING), JOB_STEP_UNSCHEDULABLE, S(FAILED), CTRL, JOB_NO, JOB_EITHER, false, E(FAILED),
		ALERT_JOB_UNSCHEDULABLE},
	{S(PENDING), JOB_STEP_DEPENDENCY, S(FAILED), CTRL, JOB_NO, JOB_EITHER, false, E(FAILED),
		ALERT_DEPENDENCY_FAILED},
	{S(PENDING), JOB_STEP_HOLD, S(PENDING), CTRL, JOB_NO, JOB_EITHER, false, E(HELD),
		ALERT_DEPENDENCY_FAILED},
	{S(PENDING), JOB_STEP_UNHOLD, S(PENDING), CTRL, JOB_NO, JOB_YES, false, E(UNHELD),
		ALERT_NONE},
	{S(PENDING), JOB_STEP_RELEASE, S(PENDING), ANYONE, JOB_NO, JOB_YES, false, E(RELEASED),
		ALERT_NONE},
	{S(PENDING), JOB_STEP_CANCEL, S(CANCELLED), ANYONE, JOB_NO, JOB_EITHER, false, E(CANCELLED),
		ALERT_NONE},
	{S(PENDING), JOB_STEP_WANT_CANCEL, S(PENDING), ANYONE, JOB_YES, JOB_EITHER, false,
		EVENT_NONE, ALERT_NONE},
	{S(PENDING), JOB_STEP_EDIT_NEEDS, S(PENDING), ANYONE, JOB_NO_OR_LANE, JOB_EITHER, false,
		E(DEPENDENCIES), ALERT_NONE},
	{S(PENDING), JOB_STEP_EDIT_PRIORITY, S(PENDING), ANYONE, JOB_EITHER, JOB_EITHER, false,
		E(PRIORITY), ALERT_NONE},
	{S(PENDING), JOB_STEP_EDIT_VRAM, S(PENDING), ANYONE, JOB_NO_OR_LANE, JOB_EITHER, false,
		EVENT_NONE, ALERT_NONE},

	{S(RUNNING), JOB_STEP_COMPLETE, S(COMPLETED), CTRL, JOB_YES, JOB_NO, false, E(FINISHED),
		ALERT_NONE},
	{S(RUNNING), JOB_STEP_FAIL, S(FAILED), CTRL, JOB_YES, JOB_NO, false, E(FINISHED),
		ALERT_JOB_FAILED},
	{S(RUNNING), JOB_STEP_TIMEOUT, S(TIMEOUT), CTRL, JOB_YES, JOB_NO, false, E(TIMEOUT),
		ALERT_JOB_TIMEOUT},
	{S(RUNNING), JOB_STEP_STOP, S(CANCELLED), CTRL, JOB_YES, JOB_NO, false, E(CANCELLED),
		ALERT_NONE},
	{S(RUNNING), JOB_STEP_LOSE, S(LOST), CTRL, JOB_YES, JOB_NO, false, E(LOST), ALERT_JOB_LOST},
	{S(RUNNING), JOB_STEP_RETRY, S(PENDING), CTRL, JOB_YES, JOB_NO, true, E(REQUEUED),
		ALERT_JOB_RETRIED},
	{S(RUNNING), JOB_STEP_WANT_CANCEL, S(RUNNING), ANYONE, JOB_YES, JOB_EITHER, false,
		EVENT_NONE, ALERT_NONE},
	{S(RUNNING), JOB_STEP_EDIT_NEEDS, S(RUNNING), ANYONE, JOB_YES, JOB_EITHER, false,
		E(DEPENDENCIES), ALERT_NONE},
	{S(RUNNING), JOB_STEP_EDIT_PRIORITY, S(RUNNING), ANYONE, JOB_YES, JOB_EITHER, false,
		E(PRIORITY), ALERT_NONE},

#define TERMINAL(x) \
	{S(x), JOB_STEP_REQUEUE, S(PENDING), ANYONE, JOB_NO, JOB_EITHER, false, E(REQUEUED), \
		ALERT_NONE}, \
	{ \
		S(x), JOB_STEP_PURGE, S(NONE), ANYONE, JOB_NO, JOB_EITHER, false, EVENT_NONE, \
			ALERT_NONE \
	}
	TERMINAL(COMPLETED),
	TERMINAL(FAILED),
	TERMINAL(CANCELLED),
	TERMINAL(TIMEOUT),
	TERMINAL(LOST),
};
const size_t job_rules_n = ARRAY_LEN(job_rules);

static const char *name_at(const char *const *names, size_t n, size_t i)
{
	return i < n ? names[i] : NULL;
}

static int find_name(const char *const *names, size_t n, const char *s)
{
	for (size_t i = 0; s && i < n; i++) {
		if (names[i] && *names[i] && strcmp(names[i], s) == 0)
			return (int)i;
	}
	return -EINVAL;
}

#define WORDS(type, prefix, names) \
	const char *prefix##_name(enum type v) \
	{ \
		return name_at(names, ARRAY_LEN(names), (size_t)v); \
	} \
	int prefix##_from_name(const char *s, enum type *ret) \
	{ \
		int i = find_name(names, ARRAY_LEN(names), s); \
\
		if (i < 0) \
			return i; \
		*ret = (enum type)i; \
		return 0; \
	}

WORDS(job_state, job_state, state_names)
WORDS(event_kind, event_kind, event_names)
WORDS(alert_kind, alert_kind, alert_names)
WORDS(vram_source, vram_source, source_names)
WORDS(on_dependency, on_dependency, on_dependency_names)

const char *job_cause_name(enum job_cause c)
{
	return (size_t)c < JOB_CAUSE_N ? causes[c].name : NULL;
}

int job_cause_from_name(const char *s, enum job_cause *ret)
{
	for (size_t i = 1; s && i < JOB_CAUSE_N; i++) {
		if (strcmp(causes[i].name, s) == 0) {
			*ret = (enum job_cause)i;
			return 0;
		}
	}
	return -EINVAL;
}

const char *job_cause_text(enum job_cause c)
{
	return (size_t)c < JOB_CAUSE_N ? causes[c].text : "";
}

const char *alert_severity_name(enum alert_severity s)
{
	return name_at(severity_names, ARRAY_LEN(severity_names), (size_t)s);
}

enum alert_severity alert_kind_severity(enum alert_kind k)
{
	return k == ALERT_JOB_RETRIED || k == ALERT_LAUNCH_FAILED ? ALERT_WARNING : ALERT_ERROR;
}

const char *job_step_name(enum job_step s)
{
	return name_at(step_names, ARRAY_LEN(step_names), (size_t)s);
}

void job_bind_done(struct job_bind *b)
{
	free(b->node);
	free(b->cards);
	memset(b, 0, sizeof(*b));
}

void job_init(struct job *j)
{
	*j = (struct job){.state = JOB_STATE_PENDING,
		.gpus = 1,
		.vram_mib = -1,
		.grace_ms = -1,
		.oom_retries = -1,
		.elapsed_ms = -1,
		.gpu_mem_mib = -1,
		.peak_mib = -1};
}

void job_done(struct job *j)
{
	char *texts[] = {j->name, j->command, j->workdir, j->submitter, j->env, j->tags, j->key,
		j->node_constraint, j->gpu_constraint, j->gpu_model, j->lane, j->lane_next,
		j->run_dir, j->progress, j->held_reason, j->cancel_reason, j->last_error, j->result,
		j->notes, j->shape};

	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		free(texts[i]);
	free(j->after);
	free(j->after_any);
	job_bind_done(&j->bind);
	memset(j, 0, sizeof(*j));
}

static const struct job_rule *find_rule(enum job_state from, enum job_step step)
{
	for (size_t i = 0; i < job_rules_n; i++) {
		if (job_rules[i].from == from && job_rules[i].step == step)
			return &job_rules[i];
	}
	return NULL;
}

static bool is_met(enum job_when when, bool is)
{
	return when == JOB_EITHER || (when == JOB_YES) == is;
}

/* Why a rule doesn't hold for j, or NULL. */
static const char *objection(const struct job *j, const struct job_rule *r)
{
	if (!(r->bound == JOB_NO_OR_LANE && j->lane) && !is_met(r->bound, j->is_bound))
		return j->is_bound
			       ? "an attempt of it is on its way to a node; wait for it, or cancel it"
			       : "no attempt of it is in flight";
	if (!is_met(r->held, job_is_held(j)))
		return job_is_held(j) ? "it's held; `gpustow job release` lets it go"
				      : "it isn't held";
	if (r->not_when_cancelled && j->cancel_ms)
		return "it's being cancelled";
	return NULL;
}

const struct job_rule *job_can(
	const struct job *j, enum job_step step, bool is_controller, struct err *e)
{
	const struct job_rule *r = find_rule(j->state, step);
	const char *why;

	if (!r) {
		err_fill(e, "job %" PRId64 " can't be %s: it's %s", j->id, job_step_name(step),
			j->state ? job_state_name(j->state) : "not in the queue");
		return NULL;
	}
	why = objection(j, r);
	if (!why && r->who == JOB_BY_CONTROLLER && !is_controller)
		why = "only the holder of the queue's lease decides that";
	if (why) {
		err_fill(e, "job %" PRId64 " can't be %s: %s", j->id, job_step_name(step), why);
		return NULL;
	}
	return r;
}
