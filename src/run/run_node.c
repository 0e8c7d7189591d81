/*
 * What the node's agent says of launches, taken into the run: claims, starts, ends, refusals; and what is asked of it:
 * stops and acks. It writes no end itself: run_settle.c does.
 */
#include "run/state.h"

#include "agent/claim.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "core/wire.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct run_job *job_in(struct run *r, const json_t *msg)
{
	int64_t job, attempt;
	struct err e;

	if (wire_int(msg, "job", 1, INT64_MAX, &job, &e) < 0 ||
		wire_int(msg, "attempt", 1, UINT32_MAX, &attempt, &e) < 0)
		return NULL;
	return run_job_attempt(r, (uint64_t)job, (uint32_t)attempt);
}

const char *run_text_in(const json_t *msg, const char *key, const char *otherwise)
{
	const char *s = json_string_value(json_object_get(msg, key));

	return s ? s : otherwise;
}

/* The attempt never started and never will: its bind is undone and the job waits again. */
void run_node_undo_bind(struct run *r, struct run_job *j, const char *why)
{
	bool was_stopped = j->attempt->want_stop && j->attempt->why_stop == STOP_CANCEL;

	journal_unbind(r->journal, j->rec, why);
	run_attempt_free(j);
	j->phase = PHASE_IDLE;
	j->cancel |= was_stopped;
	r->board_is_old = true;
}

static void on_refused(struct run *r, const json_t *msg)
{
	struct run_job *j = job_in(r, msg);

	if (!j)
		return;
	free(j->why_text);
	j->why_text = xstrdup(run_text_in(msg, "text", "the node refused the start"));
	j->refused_seq = r->sample.snap.seq;
	run_node_undo_bind(r, j, j->why_text);
	/* A fresh look soon: the memory of a job that just ended takes the driver a moment. */
	r->retry_ms = r->retry_ms ? (r->retry_ms < 2000 ? r->retry_ms * 2 : 2000) : 100;
	if (!r->look_at_ms)
		r->look_at_ms = clock_boot_ms() + r->retry_ms;
	run_wake_in(r, r->retry_ms);
}

static void on_conflict(struct run *r, const json_t *msg)
{
	struct run_job *j = job_in(r, msg);

	if (!j)
		return;
	run_warn(r,
		"job %" PRIu64
		": the node has another claim of that name, so this log directory was copied or went back in time; "
		"not started. --fresh, or another --log-dir, starts over",
		j->rec->no);
	run_node_undo_bind(r, j, "conflict");
	j->is_stuck = true;
}

/* The node will never start it under this root or this fence: both are final answers. */
static void on_not_taken(struct run *r, const json_t *msg)
{
	struct run_job *j = job_in(r, msg);

	if (j)
		run_node_undo_bind(r, j, run_text_in(msg, "op", "?"));
	run_wake_in(r, 1000);
}

static void on_claimed(struct run *r, const json_t *msg)
{
	struct run_job *j = job_in(r, msg);

	if (j && j->phase == PHASE_SENT)
		j->phase = PHASE_CLAIMED;
	r->retry_ms = 0;
}

static size_t count_running(const struct run *r)
{
	size_t n = 0;

	for (size_t i = 0; i < r->n_jobs; i++)
		n += r->jobs[i]->phase == PHASE_STARTED;
	return n;
}

void run_node_say_start(struct run *r, struct run_job *j)
{
	struct run_attempt *a = j->attempt;
	CLEANUP(buf_done) struct buf what = {0};

	if (a->said_start)
		return;
	a->said_start = true;
	if (!j->rec->last->n_gpus)
		buf_puts(&what, "no GPU");
	else if (a->declared_mib == UNDECLARED)
		buf_puts(&what, "undeclared (exclusive idle GPU)");
	else
		buf_printf(&what, "declared %" PRId64 " MiB/gpu", a->declared_mib);
	run_say(r, "job %" PRIu64 " started on %s%s%s (%" PRIu64 "/%zu dispatched, %s) — %s",
		j->rec->no, j->rec->last->n_gpus ? "gpu [" : "cpu",
		run_cards_text(
			r, j->rec->last->gpus, j->rec->last->uuids, j->rec->last->n_gpus, ","),
		j->rec->last->n_gpus ? "]" : "", r->finished + count_running(r), r->n_lines,
		buf_str(&what), run_text(r, j->rec->command));
}

/* By the kernel's own count, since somebody may have set the clock meanwhile; by the clock where that's not known. */
static int64_t boot_ms_of(int64_t ticks, int64_t wall_ms)
{
	int64_t now_ms = clock_boot_ms(), hz = sysconf(_SC_CLK_TCK), began_ms;

	began_ms = ticks > 0 && hz > 0 ? ticks / hz * 1000 + ticks % hz * 1000 / hz
				       : now_ms - (clock_wall_ms() - wall_ms);
	return began_ms < now_ms ? began_ms : now_ms;
}

void run_node_mark_started(
	struct run *r, struct run_job *j, int64_t pid, int64_t ticks, int64_t wall_ms)
{
	j->phase = PHASE_STARTED;
	j->attempt->pid = pid;
	j->attempt->start_ticks = (uint64_t)ticks;
	j->attempt->started_wall_ms = wall_ms;
	j->attempt->started_boot_ms = boot_ms_of(ticks, wall_ms);
	if (!j->rec->was_started && pid > 0)
		journal_started(r->journal, j->rec, pid, (uint64_t)ticks);
	r->board_is_old = true;
}

static void on_started(struct run *r, const json_t *msg)
{
	struct run_job *j = job_in(r, msg);
	int64_t pid, ticks, wall;
	struct err e;

	if (!j || j->phase == PHASE_STARTED || wire_int(msg, "pid", 1, INT32_MAX, &pid, &e) < 0 ||
		wire_int(msg, "start_ticks", 0, INT64_MAX, &ticks, &e) < 0 ||
		wire_int(msg, "started_wall_ms", 0, INT64_MAX, &wall, &e) < 0)
		return;
	run_node_mark_started(r, j, pid, ticks, wall);
	run_node_say_start(r, j);
	run_wake_to_tell(r);
}

void run_node_add_ack(struct run *r, uint64_t job, uint32_t attempt)
{
	GROW(r->acks, r->n_acks, r->cap_acks);
	r->acks[r->n_acks++] = (struct run_ack){.job = job, .attempt = attempt};
}

void run_node_ended(struct run *r, const json_t *msg)
{
	struct run_job *j = job_in(r, msg);
	struct attempt_end end;
	int64_t job, attempt, pid, ticks;
	struct err e;

	if (wire_int(msg, "job", 1, INT64_MAX, &job, &e) < 0 ||
		wire_int(msg, "attempt", 1, UINT32_MAX, &attempt, &e) < 0)
		return;
	if (j && attempt_end_decode(json_object_get(msg, "end"), &end, &e) < 0) {
		run_warn(r, "job %" PRIu64 ": the node's record of its end can't be read: %s",
			j->rec->no, e.text);
		return;
	}
	if (j) {
		/* A short one ends before its start was told. */
		if (j->phase != PHASE_STARTED && end.started_wall_ms) {
			if (wire_int(msg, "pid", 1, INT32_MAX, &pid, &e) < 0 ||
				wire_int(msg, "start_ticks", 0, INT64_MAX, &ticks, &e) < 0)
				pid = ticks = 0;
			run_node_mark_started(r, j, pid, ticks, end.started_wall_ms);
			run_node_say_start(r, j);
		}
		run_settle(
			r, j, &end, (size_t)json_integer_value(json_object_get(msg, "survivors")));
	}
	run_node_add_ack(r, (uint64_t)job, (uint32_t)attempt);
	run_wake(r);
}

void run_node_send_acks(struct run *r)
{
	json_t *jobs;

	if (!r->n_acks || !link_is_up(r->link))
		return;
	jobs = json_array();
	for (size_t i = 0; i < r->n_acks; i++)
		json_array_append_new(jobs, json_pack("[I,I]", (json_int_t)r->acks[i].job,
						    (json_int_t)r->acks[i].attempt));
	r->n_acks = 0;
	link_send(r->link, json_pack("{s:s,s:o}", "op", "ack", "jobs", jobs));
}

/* The refused wait for a newer sample than the one they were planned with; the next of the poll may be long in coming. */
void run_node_look(struct run *r)
{
	int64_t now_ms = clock_boot_ms();

	if (!r->look_at_ms || !link_is_up(r->link))
		return;
	if (now_ms < r->look_at_ms) {
		run_wake_in(r, r->look_at_ms - now_ms);
		return;
	}
	r->look_at_ms = 0;
	link_send(r->link, json_pack("{s:s,s:i}", "op", "sample", "id", 0));
}

void run_node_send_stop(struct run *r, const struct run_job *j, int64_t grace_ms)
{
	link_send(r->link,
		json_pack("{s:s,s:I,s:I,s:s,s:I}", "op", "stop", "job", (json_int_t)j->rec->no,
			"attempt", (json_int_t)j->rec->last->attempt, "reason",
			stop_reason_name(j->attempt->why_stop), "grace_ms", (json_int_t)grace_ms));
}

void run_node_stop(struct run *r, struct run_job *j, enum stop_reason why, int64_t grace_ms)
{
	if (j->phase == PHASE_ORPHAN) {
		kill((pid_t)-j->rec->last->pgid, SIGTERM);
		if (!j->orphan_kill_ms)
			j->orphan_kill_ms = clock_boot_ms() + grace_ms;
		run_wake_in(r, 100);
		return;
	}
	if (!j->attempt)
		return;
	if (!j->attempt->want_stop)
		j->attempt->why_stop = why;
	j->attempt->want_stop = true;
	if (link_is_up(r->link) && !j->attempt->launch)
		run_node_send_stop(r, j, grace_ms);
	r->board_is_old = true;
}

/* A person gives up an attempt of which nobody knows what became (protocol.md 5). */
static void give_up(struct run *r, struct run_job *j)
{
	run_warn(r, "job %" PRIu64 ": attempt %u is given up", j->rec->no, j->rec->last->attempt);
	journal_interrupted(r->journal, j->rec);
	run_attempt_free(j);
	j->phase = PHASE_IDLE;
	run_settle_cancelled_before_start(r, j);
}

static bool was_told_of_cancel(const struct run_job *j)
{
	return j->attempt ? j->attempt->said_cancel : j->orphan_kill_ms != 0;
}

void run_node_cancels(struct run *r)
{
	for (size_t i = 0; i < r->n_jobs; i++) {
		struct run_job *j = r->jobs[i];

		if (!j->cancel || (run_job_is_pending(j) && !r->is_introduced))
			continue;
		if (run_job_is_pending(j)) {
			run_settle_cancelled_before_start(r, j);
		} else if (j->phase == PHASE_UNKNOWN) {
			if (r->is_observed)
				give_up(r, j);
		} else if (j->phase != PHASE_IDLE && !was_told_of_cancel(j)) {
			if (j->attempt)
				j->attempt->said_cancel = true;
			run_warn(r,
				"job %" PRIu64 " CANCELLED by user — SIGTERM to its process group",
				j->rec->no);
			run_node_stop(r, j, STOP_CANCEL, r->config->grace_ms);
		}
	}
}

static void on_message(void *arg, const char *op, const json_t *msg)
{
	static const struct {
		const char *op;
		void (*take)(struct run *r, const json_t *msg);
	} takes[] = {{"sample", run_take_sample}, {"claimed", on_claimed}, {"refused", on_refused},
		{"conflict", on_conflict}, {"other-root", on_not_taken}, {"stale", on_not_taken},
		{"started", on_started}, {"ended", run_node_ended},
		{"observed", run_flight_observed}};
	struct run *r = arg;

	for (size_t i = 0; i < ARRAY_LEN(takes); i++)
		if (!strcmp(takes[i].op, op))
			takes[i].take(r, msg);
	if (!strcmp(op, "error"))
		run_warn(r, "the agent refused a message: %s",
			run_text(r, run_text_in(msg, "text", "?")));
}

const struct link_owner run_link_owner_template = {
	.up = run_flight_up, .message = on_message, .down = run_flight_down};
