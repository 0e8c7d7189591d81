/*
 * What is in flight: attempts found when a scheduler starts or its link comes back (the table of protocol.md 5), orphans of
 * gpusched's, and limits that pass.
 */
#include "run/state.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "proc/proc.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLOCK_SLACK_MS 2000
#define FIRST_TRIES \
	5 /* of a run that never reached its agent: a place that can't be written stays so */
#define JOURNAL_COMMAND_LOOK (1024 * 1024)

static bool group_lives(int64_t pgid)
{
	struct proc_stat st;

	/* A zombie that nobody reaps is no job (W6). */
	if (pgid <= 1 || kill((pid_t)-pgid, 0) < 0)
		return false;
	return proc_read_stat((pid_t)pgid, &st) < 0 || st.state != 'Z';
}

/* Is that what gpusched started for this command? A shell that replaced itself by the command can't be told. */
static bool runs_command(pid_t pid, const char *command)
{
	static const char shell[] = "/bin/sh\0-c"; /* its NUL counts */
	CLEANUP(buf_done) struct buf line = {0};
	CLEANUP_FREE char *path = xasprintf("/proc/%d/cmdline", (int)pid);

	return command && !fd_read_file_at(AT_FDCWD, path, &line, JOURNAL_COMMAND_LOOK) &&
	       line.len > sizeof(shell) && !memcmp(line.data, shell, sizeof(shell)) &&
	       !strcmp(line.data + sizeof(shell), command);
}

/* The number was given to somebody else since: he began after the journal's last word (W6). */
static bool is_somebody_else(const struct run *r, const struct job_record *rec)
{
	struct proc_stat st;
	int64_t hz = sysconf(_SC_CLK_TCK), began;

	if (proc_read_stat((pid_t)rec->last->pgid, &st) < 0)
		return false;
	began = clock_wall_ms() - clock_boot_ms() + (int64_t)st.start_ticks * 1000 / hz;
	return began > r->journal_wall_ms + CLOCK_SLACK_MS &&
	       !runs_command((pid_t)rec->last->pgid, rec->command);
}

bool run_flight_lives(const struct run *r, const struct job_record *rec)
{
	return group_lives(rec->last->pgid) && !is_somebody_else(r, rec);
}

/* A second time, and for good, when its grace is over. */
static void press_orphan(struct run *r, struct run_job *j)
{
	if (!j->orphan_kill_ms)
		return;
	run_wake_in(r, 100);
	if (clock_boot_ms() < j->orphan_kill_ms || j->orphan_kill_ms == INT64_MAX)
		return;
	run_warn(r, "job %" PRIu64 " did not exit after SIGTERM — SIGKILL", j->rec->no);
	kill((pid_t)-j->rec->last->pgid, SIGKILL);
	j->orphan_kill_ms = INT64_MAX;
}

/* A "started" of gpusched's own, or of a bind whose record is lost: only its group can be looked at. */
static void look_at_orphan(struct run *r, struct run_job *j)
{
	if (run_flight_lives(r, j->rec)) {
		if (!j->said_orphan)
			run_warn(r,
				"job %" PRIu64
				" is still running as an ORPHAN of a previous scheduler (pgid %" PRId64
				") — not re-dispatching. Its exit code is unrecoverable; wait for it or kill it: kill -TERM -%" PRId64,
				j->rec->no, j->rec->last->pgid, j->rec->last->pgid);
		j->said_orphan = true;
		press_orphan(r, j);
		return;
	}
	j->phase = PHASE_IDLE;
	j->orphan_kill_ms = 0;
	journal_interrupted(r->journal, j->rec);
	if (!j->cancel)
		run_say(r,
			"job %" PRIu64
			" was interrupted mid-run by a previous scheduler's death — re-queuing",
			j->rec->no);
	j->waiting_since_ms = clock_boot_ms();
	run_wake(r);
}

static void say_timeout(struct run *r, struct run_job *j)
{
	struct run_attempt *a = j->attempt;
	int64_t elapsed = a->started_boot_ms ? clock_boot_ms() - a->started_boot_ms : 0;

	if (a->said_timeout || !a->timeout_ms || elapsed < a->timeout_ms)
		return;
	a->said_timeout = true;
	run_warn(r, "job %" PRIu64 " TIMEOUT after %.0fs (limit %.0fs) — SIGTERM", j->rec->no,
		(double)elapsed / 1000, (double)a->timeout_ms / 1000);
}

void run_flight_time(struct run *r)
{
	for (size_t i = 0; i < r->n_jobs; i++) {
		struct run_job *j = r->jobs[i];

		if (j->phase == PHASE_ORPHAN)
			look_at_orphan(r, j);
		else if (j->phase == PHASE_STARTED && j->attempt && !j->attempt->want_stop)
			say_timeout(r, j);
	}
}

static void ask_for_all(struct run *r)
{
	json_t *want = json_array();

	for (size_t i = 0; i < r->n_jobs; i++)
		if (r->jobs[i]->attempt && !r->jobs[i]->attempt->launch)
			json_array_append_new(
				want, json_pack("[I,I]", (json_int_t)r->jobs[i]->rec->no,
					      (json_int_t)r->jobs[i]->rec->last->attempt));
	link_send(r->link, json_pack("{s:s,s:i,s:o}", "op", "observe", "id", 1, "want", want));
}

void run_flight_up(void *arg, const struct link_hello *hello)
{
	struct run *r = arg;
	int64_t interval = (int64_t)(r->config->poll_s * 1000);

	r->hello = *hello;
	r->is_observed = false;
	json_array_clear(r->observing);
	r->was_up = true;
	free(r->down_why);
	r->down_why = NULL;
	/* Another agent counts its samples from 1. */
	for (size_t i = 0; i < r->n_jobs; i++)
		r->jobs[i]->refused_seq = r->jobs[i]->never_seq = 0;
	link_send(r->link, json_pack("{s:s,s:I}", "op", "watch", "interval_ms",
				   (json_int_t)(interval < 100	   ? 100
						: interval > 60000 ? 60000
								   : interval)));
	ask_for_all(r);
}

void run_flight_down(void *arg, const char *why)
{
	struct run *r = arg;

	r->is_observed = false;
	if (!strcmp(why, LINK_STALE)) {
		/* The lock keeps schedulers of one directory apart: that one has a copy of it, or this one is an old copy. */
		err_set(&r->failure, -EBUSY,
			"another scheduler commands the jobs of this log directory now, so %s was copied or went back in time; this "
			"run ends, its jobs go on under the other one. --fresh, or another --log-dir, starts over",
			r->config->log_dir);
		run_end(r, -EBUSY);
		return;
	}
	r->n_down++;
	if (!r->was_up && r->n_down == FIRST_TRIES) {
		err_set(&r->failure, -EIO, "this machine's agent can't be reached: %s", why);
		run_end(r, -EIO);
		return;
	}
	if (!r->down_why || strcmp(r->down_why, why)) {
		free(r->down_why);
		r->down_why = xstrdup(why);
		run_warn(r, "the link to this machine's agent is down: %s; trying again",
			run_text(r, why));
	}
	for (size_t i = 0; i < r->n_jobs; i++)
		if (r->jobs[i]->attempt && !r->jobs[i]->attempt->launch)
			r->jobs[i]->phase =
				r->jobs[i]->phase == PHASE_STARTED ? PHASE_STARTED : PHASE_UNKNOWN;
	run_wake(r);
}

static const json_t *claim_of(const json_t *claims, const struct run_job *j)
{
	size_t i;
	json_t *c;

	json_array_foreach(claims, i,
		c) if (json_integer_value(json_object_get(c, "job")) == (json_int_t)j->rec->no &&
		       json_integer_value(json_object_get(c, "attempt")) ==
			       (json_int_t)j->rec->last->attempt) return c;
	return NULL;
}

/* The node knows the attempt: it's ours again, in whatever state. */
static void take_over(struct run *r, struct run_job *j, const json_t *claim)
{
	const char *state = run_text_in(claim, "state", "");
	int64_t pid = json_integer_value(json_object_get(claim, "pid"));
	bool was_lost =
		j->phase == PHASE_UNKNOWN && j->attempt->was_taken_over && !j->attempt->said_start;

	if (!strcmp(state, "ended")) {
		run_node_ended(r, claim);
		return;
	}
	if (!strcmp(state, "started")) {
		j->attempt->said_start |= was_lost;
		run_node_mark_started(r, j, pid,
			json_integer_value(json_object_get(claim, "start_ticks")),
			json_integer_value(json_object_get(claim, "started_wall_ms")));
		if (was_lost)
			run_say(r,
				"job %" PRIu64 " still runs (pid %" PRId64
				") — taken over from a previous scheduler: %s",
				j->rec->no, pid, run_text(r, j->rec->command));
		else
			run_node_say_start(r, j);
	} else {
		j->phase = PHASE_CLAIMED;
	}
	if (j->attempt->want_stop)
		run_node_send_stop(r, j, r->config->grace_ms);
}

/* Nothing of that name there (protocol.md 5, the table). */
static void judge_absence(struct run *r, struct run_job *j)
{
	struct job_record *rec = j->rec;
	bool same_root = !strcmp(rec->last->root_id, r->hello.root_id);

	if (same_root && !rec->was_started) {
		run_node_undo_bind(r, j, "the node never had it");
	} else if (!strcmp(rec->last->machine_key, r->hello.machine_key) &&
		   strcmp(rec->last->boot_id, r->hello.boot_id)) {
		struct attempt_end end = {.how = END_REBOOTED};

		run_settle(r, j, &end, 0);
	} else {
		CLEANUP_FREE char *why = xasprintf(
			"what became of attempt %u can't be known (%s); it keeps its memory. `gpustow run retry %" PRIu64
			"` starts it again, `gpustow run cancel %" PRIu64 "` gives it up",
			rec->last->attempt,
			strcmp(rec->last->machine_key, r->hello.machine_key)
				? "it was started on another machine"
			: same_root ? "the node's record of it is gone"
				    : "the node's state directory is another one",
			rec->no, rec->no);

		if (j->phase != PHASE_UNKNOWN || j->attempt->said_start == false)
			run_warn(r, "job %" PRIu64 ": %s", rec->no, why);
		free(j->why_text);
		j->why_text = TAKE_PTR(why);
		j->attempt->said_start = true;
		j->phase = PHASE_UNKNOWN;
	}
}

static void ack_strays(struct run *r, const json_t *claims)
{
	size_t i;
	json_t *c;

	json_array_foreach(claims, i, c)
	{
		int64_t job = json_integer_value(json_object_get(c, "job")),
			attempt = json_integer_value(json_object_get(c, "attempt"));

		if (run_job_attempt(r, (uint64_t)job, (uint32_t)attempt) ||
			json_is_true(json_object_get(c, "retired")))
			continue;
		if (!strcmp(run_text_in(c, "state", ""), "ended"))
			run_node_add_ack(r, (uint64_t)job, (uint32_t)attempt);
	}
}

/* Absence means something only once all of the answer is here: it may come in several messages. */
void run_flight_observed(struct run *r, const json_t *msg)
{
	CLEANUP(json_decrefp) json_t *claims = NULL;

	json_array_extend(r->observing, json_object_get(msg, "claims"));
	if (json_is_true(json_object_get(msg, "more")))
		return;
	claims = r->observing;
	r->observing = json_array();
	ack_strays(r, claims);
	for (size_t i = 0; i < r->n_jobs; i++) {
		struct run_job *j = r->jobs[i];
		const json_t *claim;

		if (!j->attempt || j->attempt->launch)
			continue;
		claim = claim_of(claims, j);
		if (claim)
			take_over(r, j, claim);
		else
			judge_absence(r, j);
	}
	r->is_observed = true;
	run_wake(r);
}
