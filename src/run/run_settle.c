/*
 * How attempts end: the verdict, the retry after an OOM, the journal's record, the words; and the summary with the exit
 * code. An end is settled once: the attempt is gone afterwards, and a second report of it finds none.
 */
#include "run/state.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "core/says.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OOM_TAIL 16384

struct outcome {
	enum job_status status;
	const char *verdict;
	int64_t returncode;
	double seconds;
	int64_t peak_mib;
	bool is_peak_known; /* its memory was seen, and late enough in its life to say what it needs */
	char label[192];
};

/* Does what this attempt wrote (its last 16 KiB) speak of CUDA running out of memory? */
static bool says_oom(const struct job_record *rec)
{
	CLEANUP_CLOSE int fd =
		rec->last->log
			? open(rec->last->log, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
			: -1;
	CLEANUP_FREE struct says_search *search = NULL;
	char text[OOM_TAIL];
	off_t end, from;
	ssize_t n;

	end = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
	if (end < 0)
		return false;
	from = end - OOM_TAIL > rec->last->log_offset ? end - OOM_TAIL
						      : (off_t)rec->last->log_offset;
	if (from >= end)
		return false;
	n = pread(fd, text, sizeof(text), from);
	search = xcalloc(1, sizeof(*search));
	says_put(search, text, n < 0 ? 0 : (size_t)n);
	return search->found >> SAYS_CUDA_OOM & 1;
}

static int64_t peak_of(const struct run_attempt *a)
{
	int64_t peak = 0;

	for (uint32_t i = 0; i < a->n_use; i++)
		if (a->use[i].peak_mib > peak)
			peak = a->use[i].peak_mib;
	return peak;
}

static void set_label(struct outcome *o, const char *text)
{
	snprintf(o->label, sizeof(o->label), "%s", text);
}

static int64_t returncode_of(const struct attempt_end *end)
{
	switch (end->how) {
	case END_EXIT:
		return end->code;
	case END_SIGNAL:
		return -end->code;
	case END_STOPPED:
		return end->by_signal ? -end->code : end->code;
	case END_LAUNCH_FAILED:
		return 127;
	case END_NOT_STARTED:
		return 0;
	default:
		return 1;
	}
}

/*
 * Jobs start between two samples: one may have seen a short job while it was still loading, and never again. What it held
 * then is no measure of what it needs, unless that was too much already.
 */
static bool is_peak_known(const struct run *r, const struct run_attempt *a,
	const struct attempt_end *end, const struct outcome *o)
{
	int64_t life_ms = end->ended_boot_ms - end->started_boot_ms;

	if (!a->is_sampled)
		return false;
	if (a->declared_mib > 0 &&
		(double)o->peak_mib > (double)a->declared_mib * (1 + r->config->tolerance))
		return true;
	return !end->started_boot_ms || a->seen_boot_ms - end->started_boot_ms >= life_ms / 2;
}

static void judge_memory(const struct run *r, const struct run_attempt *a, struct outcome *o)
{
	double declared = (double)a->declared_mib, peak = (double)o->peak_mib;

	o->status = JOB_OK;
	set_label(o, "OK");
	if (!a->n_use || !o->is_peak_known)
		o->verdict = a->n_use ? "unattributed" : "ok";
	else if (a->declared_mib <= 0)
		o->verdict = "ok";
	else if (peak > declared * (1 + r->config->tolerance))
		o->verdict = "over";
	else if (peak < declared * (1 - r->config->tolerance))
		o->verdict = "under";
	else
		o->verdict = "ok";
}

static void judge(const struct run *r, const struct run_job *j, const struct attempt_end *end,
	struct outcome *o)
{
	const struct run_attempt *a = j->attempt;
	bool stopped = end->how == END_STOPPED || end->how == END_NOT_STARTED;

	*o = (struct outcome){.returncode = returncode_of(end),
		.peak_mib = peak_of(a),
		.status = JOB_FAILED,
		.verdict = "failed"};
	o->seconds = end->started_boot_ms
			     ? (double)(end->ended_boot_ms - end->started_boot_ms) / 1000
			     : 0;
	o->is_peak_known = is_peak_known(r, a, end, o);
	if (stopped && end->reason == STOP_CANCEL) {
		o->status = JOB_CANCELLED;
		o->verdict = "cancelled";
		set_label(o, "CANCELLED");
	} else if (stopped && end->reason == STOP_TIMEOUT) {
		o->status = JOB_TIMEOUT;
		o->verdict = "timeout";
		set_label(o, "TIMEOUT");
	} else if (end->how == END_LAUNCH_FAILED) {
		snprintf(o->label, sizeof(o->label), "NOT STARTED: %s", end->text);
	} else if (end->how == END_VANISHED) {
		set_label(o, "VANISHED: its process is gone and nobody saw how it ended");
		o->verdict = "vanished";
	} else if (o->returncode == 0) {
		judge_memory(r, a, o);
	} else if (says_oom(j->rec)) {
		o->status = JOB_FAILED_OOM;
		o->verdict = "failed_oom";
		snprintf(o->label, sizeof(o->label), "OOM (exit %" PRId64 ", retries exhausted)",
			o->returncode);
	} else {
		snprintf(o->label, sizeof(o->label), "EXIT %" PRId64, o->returncode);
	}
}

/* ceil(1.25 * max(peak, declared)), at most what the cards it may have can hold; -1 when there's nothing to go by. */
static int64_t bumped(const struct run *r, const struct run_job *j, int64_t peak)
{
	int64_t declared = j->attempt->declared_mib, base = peak > declared ? peak : declared,
		cap = run_largest_place(r, j), next;

	if (base <= 0)
		return -1;
	next = base + base / 4 + (base % 4 != 0);
	cap -= r->config->margin_mib;
	/* Never below what it was given: a cap that small means the card shrank, not the job. */
	if (cap > 0 && next > cap)
		next = cap > base ? cap : base;
	return next;
}

static bool retry_oom(struct run *r, struct run_job *j, const struct outcome *o)
{
	int64_t allowed = j->retries >= 0 ? j->retries : r->config->oom_retries, next;
	struct job_record *rec = j->rec;

	if (o->status != JOB_FAILED_OOM || rec->last->attempts + 1 > allowed)
		return false;
	next = bumped(r, j, o->peak_mib);
	if (next > 0) {
		CLEANUP_FREE char *from = j->attempt->declared_mib > 0
						  ? xasprintf("%" PRId64, j->attempt->declared_mib)
						  : xstrdup("n/a");

		run_say(r,
			"↻ job %" PRIu64 " hit CUDA OOM (attempt %" PRId64 "/%" PRId64
			") — requeued with vram %s → %" PRId64 " MiB",
			rec->no, rec->last->attempts + 1, allowed + 1, from, next);
	} else {
		run_say(r,
			"↻ job %" PRIu64 " hit CUDA OOM (attempt %" PRId64 "/%" PRId64
			") — requeued",
			rec->no, rec->last->attempts + 1, allowed + 1);
	}
	journal_oom(r->journal, rec, next, o->seconds);
	return true;
}

static void put_peaks(const struct run_attempt *a, const struct outcome *o, struct buf *b)
{
	if (!a->n_use) {
		buf_puts(b, "n/a (CPU job)");
		return;
	}
	if (!a->is_sampled) {
		buf_puts(
			b, a->n_looks < 2
				   ? "n/a (not sampled: it ended before a sample saw it on the GPU)"
				   : "n/a (not sampled: no sample saw it hold memory of its GPU)");
		return;
	}
	for (uint32_t i = 0; i < a->n_use; i++)
		buf_printf(b, "%sgpu%d:%" PRId64 " MiB", i ? ", " : "", a->use[i].gpu,
			a->use[i].peak_mib);
	if (!o->is_peak_known)
		buf_puts(b, " or more (no sample saw the second half of it)");
}

static void put_declared(
	const struct run *r, const struct run_attempt *a, const struct outcome *o, struct buf *b)
{
	double d = (double)a->declared_mib, peak = (double)o->peak_mib;

	if (!o->is_peak_known || a->declared_mib <= 0 || o->status != JOB_OK)
		return;
	buf_printf(b, " | declared %" PRId64 " MiB → ", a->declared_mib);
	if (!strcmp(o->verdict, "over"))
		buf_printf(b, "UNDER-DECLARED (+%.0f%%); raise it", 100 * (peak - d) / d);
	else if (!strcmp(o->verdict, "under"))
		buf_printf(b, "over-declared (-%.0f%%); lowering it frees packing headroom",
			100 * (d - peak) / d);
	else
		buf_printf(b, "within ±%.0f%%", 100 * r->config->tolerance);
}

static void say_finish(struct run *r, const struct run_job *j, const struct attempt_end *end,
	const struct outcome *o, size_t survivors)
{
	const struct run_attempt *a = j->attempt;
	CLEANUP(buf_done) struct buf b = {0};

	if (end->was_killed)
		run_warn(r, "job %" PRIu64 " did not exit after SIGTERM — SIGKILL", j->rec->no);
	put_peaks(a, o, &b);
	put_declared(r, a, o, &b);
	if (a->util_n)
		buf_printf(&b, " | avg gpu util %.0f%%", a->util_sum / a->util_n);
	run_say(r, "job %" PRIu64 " finished [%s] in %.0fs — peak vram %s", j->rec->no,
		run_text(r, o->label), o->seconds, buf_str(&b));
	if (survivors)
		run_warn(r,
			"job %" PRIu64
			" left %zu process%s behind; what they hold stays charged to it until they end",
			j->rec->no, survivors, survivors == 1 ? "" : "es");
}

static void set_result(
	struct run *r, struct run_job *j, const char *verdict, double seconds, int64_t peak)
{
	if (!j->result)
		j->result = xcalloc(1, sizeof(*j->result));
	j->result->verdict = verdict;
	j->result->seconds = seconds;
	j->result->peak_mib = peak;
	j->result->order = ++r->finished;
	j->result->n_gpus = 0;
	if (j->attempt) {
		j->result->n_gpus = j->rec->last->n_gpus;
		for (uint32_t i = 0; i < j->rec->last->n_gpus; i++)
			j->result->gpus[i] = j->rec->last->gpus[i];
	}
}

static void record_done(
	struct run *r, struct run_job *j, const struct attempt_end *end, const struct outcome *o)
{
	const struct run_attempt *a = j->attempt;
	struct journal_peak peaks[GPU_MAX];
	struct journal_done d = {.status = o->status,
		.returncode = o->returncode,
		.peaks = peaks,
		.seconds = o->seconds,
		.how = end_how_name(end->how),
		.why = end->how == END_LAUNCH_FAILED ? end->text : NULL};

	/* Suggestions are made from these: a job that went well is remembered with a peak that is one, or with none. */
	for (uint32_t i = 0; i < a->n_use; i++)
		if (a->use[i].peak_mib > 0 && (o->is_peak_known || o->status != JOB_OK))
			peaks[d.n_peaks++] = (struct journal_peak){
				.gpu = a->use[i].gpu, .mib = a->use[i].peak_mib};
	d.has_util = a->util_n > 0;
	d.avg_util = a->util_n ? a->util_sum / a->util_n : 0;
	journal_done_record(r->journal, j->rec, &d);
}

/* It was our own stop or the machine's end, not the job's: it waits again, as gpusched has it. */
static bool interrupted(struct run *r, struct run_job *j, const struct attempt_end *end)
{
	bool is_reboot = end->how == END_REBOOTED;
	bool is_shutdown = (end->how == END_STOPPED || end->how == END_NOT_STARTED) &&
			   end->reason == STOP_SHUTDOWN;

	if (!is_reboot && !is_shutdown)
		return false;
	journal_interrupted(r->journal, j->rec);
	if (is_reboot)
		run_say(r,
			"job %" PRIu64
			" was interrupted mid-run by a reboot of the machine — re-queuing",
			j->rec->no);
	else if (!r->is_stopping)
		run_say(r,
			"job %" PRIu64
			" was interrupted mid-run by a previous scheduler's death — re-queuing",
			j->rec->no);
	else
		run_say(r, "job %" PRIu64 " stopped; it starts again with the next run",
			j->rec->no);
	return true;
}

void run_settle(struct run *r, struct run_job *j, const struct attempt_end *end, size_t survivors)
{
	struct outcome o;

	if (!j->attempt)
		return;
	j->phase = PHASE_IDLE;
	j->waiting_since_ms = clock_boot_ms();
	r->board_is_old = true;
	if (!interrupted(r, j, end)) {
		judge(r, j, end, &o);
		if (o.status == JOB_TIMEOUT && !j->attempt->said_timeout)
			run_warn(r, "job %" PRIu64 " TIMEOUT after %.0fs (limit %.0fs) — SIGTERM",
				j->rec->no, (double)j->attempt->timeout_ms / 1000,
				(double)j->attempt->timeout_ms / 1000);
		if (!retry_oom(r, j, &o)) {
			record_done(r, j, end, &o);
			say_finish(r, j, end, &o, survivors);
			set_result(r, j, o.verdict, o.seconds, o.peak_mib);
		}
	}
	run_attempt_free(j);
	run_wake(r);
}

void run_settle_infeasible(struct run *r, struct run_job *j, const char *why)
{
	struct journal_done d = {
		.status = JOB_INFEASIBLE, .returncode = 1, .seconds = -1, .why = why};

	run_warn(r, "job %" PRIu64 " INFEASIBLE — %s; marking failed: %s", j->rec->no, why,
		run_text(r, j->rec->command));
	journal_done_record(r->journal, j->rec, &d);
	set_result(r, j, "infeasible", 0, 0);
	r->board_is_old = true;
}

void run_settle_cancelled_before_start(struct run *r, struct run_job *j)
{
	struct journal_done d = {.status = JOB_CANCELLED, .returncode = 0, .seconds = -1};

	run_say(r, "job %" PRIu64 " cancelled before start: %s", j->rec->no,
		run_text(r, j->rec->command));
	journal_done_record(r->journal, j->rec, &d);
	set_result(r, j, "cancelled", 0, 0);
	r->board_is_old = true;
}

static bool is_failed(const struct run_job *j)
{
	return job_status_is_terminal(j->rec->status) && j->rec->status != JOB_OK &&
	       j->rec->status != JOB_CANCELLED;
}

static int by_order(const void *a, const void *b)
{
	const struct run_job *const *x = a, *const *y = b;

	return (*x)->result->order < (*y)->result->order ? -1 : 1;
}

static void say_failed(struct run *r)
{
	CLEANUP_FREE struct run_job **done = xcalloc(r->n_jobs, sizeof(*done));
	size_t n = 0;

	for (size_t i = 0; i < r->n_jobs; i++)
		if (r->jobs[i]->result && is_failed(r->jobs[i]))
			done[n++] = r->jobs[i];
	qsort(done, n, sizeof(struct run_job *), by_order);
	for (size_t i = 0; i < n; i++)
		run_say(r, "  failed: job %" PRIu64 " (%s, exit %" PRId64 ") — %s",
			done[i]->rec->no, done[i]->result->verdict, done[i]->rec->last->returncode,
			run_text(r, done[i]->rec->command));
}

/* Failures of earlier runs that stand in the file, and jobs that can't go on: both are why the exit code isn't 0 (W7). */
static void say_standing(struct run *r)
{
	for (size_t i = 0; i < r->n_lines; i++) {
		struct run_job *j = r->lines[i];

		if (is_failed(j) && !j->result)
			run_say(r,
				"  failed earlier: job %" PRIu64 " (%s, exit %" PRId64
				") — %s; --retry-failed runs it again",
				j->rec->no, job_status_name(j->rec->status),
				j->rec->last->returncode, run_text(r, j->rec->command));
		else if (run_job_is_pending(j))
			run_say(r, "  not run: job %" PRIu64 " (%s) — %s", j->rec->no,
				j->why_text ? j->why_text : "still waiting",
				run_text(r, j->rec->command));
	}
}

void run_summary(struct run *r)
{
	size_t n = 0, failed = 0, cancelled = 0, over = 0, under = 0;

	for (size_t i = 0; i < r->n_jobs; i++) {
		const struct run_job *j = r->jobs[i];

		if (!j->result || !job_status_is_terminal(j->rec->status))
			continue;
		n++;
		failed += is_failed(j);
		cancelled += j->rec->status == JOB_CANCELLED;
		over += !strcmp(j->result->verdict, "over");
		under += !strcmp(j->result->verdict, "under");
	}
	run_say(r,
		"all %zu jobs done — %zu ok, %zu failed, %zu cancelled, %zu under-declared vram, %zu over-declared vram",
		n, n - failed - cancelled, failed, cancelled, over, under);
	say_failed(r);
	say_standing(r);
}

int run_exit_code(const struct run *r)
{
	int64_t code = 0;

	for (size_t i = 0; i < r->n_jobs; i++) {
		const struct run_job *j = r->jobs[i];
		bool counts = j->result || j->lineno;

		if (counts && is_failed(j) &&
			code < (j->result && j->rec->last->returncode > 1 ? j->rec->last->returncode
									  : 1))
			code = j->result && j->rec->last->returncode > 1 ? j->rec->last->returncode
									 : 1;
		else if (j->lineno && run_job_is_pending(j) && code < 1)
			code = 1;
	}
	return code > 255 ? 255 : (int)code;
}
