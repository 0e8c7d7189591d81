/*
 * How an attempt's end is judged: the evidence that the node brings, what was asked for and the settings give one cause, one
 * sentence and one step. It reads no clock, no store and no network.
 *
 * Evidence in this order: what we did ourselves (cancel, limit), what never ran, what nobody saw (reboot, vanished), then
 * of bad ends memory of the card, memory of the machine, the card itself, the disk, a signal, the exit code.
 */
#include "queue/judge.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "core/wire.h"
#include "core/xid.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define LAST_LINE_MAX 200
#define RAW_RESULT_MAX 4000
#define TAIL_MAX (16 * 1024)
#define RESULT_MAX (64 * 1024)
#define PROGRESS_MAX 500
#define EXIT_NOT_EXECUTABLE 126
#define EXIT_NOT_FOUND 127
#define SHELL_SIGNAL \
	128 /* a shell says so of a command that a signal ended, and the number behind it */

/* ---- what the node tells ---- */

void end_facts_done(struct end_facts *f)
{
	free(f->tail);
	free(f->tail_of);
	free(f->result);
	free(f->progress);
	memset(f, 0, sizeof(*f));
}

static int decode_times(const json_t *o, struct attempt_end *ret, struct err *e)
{
	const struct {
		const char *key;
		int64_t *at;
	} times[] = {{"started_boot_ms", &ret->started_boot_ms},
		{"ended_boot_ms", &ret->ended_boot_ms}, {"started_wall_ms", &ret->started_wall_ms},
		{"ended_wall_ms", &ret->ended_wall_ms}};
	int r = 0;

	for (size_t i = 0; !r && i < ARRAY_LEN(times); i++)
		r = wire_int(o, times[i].key, 0, INT64_MAX / 4, times[i].at, e);
	return r;
}

static int decode_end(const json_t *o, struct attempt_end *ret, struct err *e)
{
	const char *how = json_string_value(json_object_get(o, "how"));
	const char *reason = json_string_value(json_object_get(o, "reason"));
	const char *text = json_string_value(json_object_get(o, "text"));
	int64_t code = 0;
	int r;

	if (!how || end_how_from_name(how, &ret->how) < 0 || !reason ||
		stop_reason_from_name(reason, &ret->reason) < 0)
		return err_set(
			e, -EINVAL, "the node's record of an end says neither how it came nor why");
	r = wire_int(o, "code", INT32_MIN, INT32_MAX, &code, e);
	if (!r)
		r = decode_times(o, ret, e);
	if (r < 0)
		return r;
	ret->code = (int32_t)code;
	ret->by_signal = json_is_true(json_object_get(o, "by_signal"));
	ret->was_killed = json_is_true(json_object_get(o, "was_killed"));
	ret->seen_by_shim = json_is_true(json_object_get(o, "seen_by_shim"));
	if (text)
		memcpy(ret->text, text, utf8_valid_len(text, strnlen(text, sizeof(ret->text) - 1)));
	return 0;
}

/* At most max bytes of a text, whole characters; the start of it, or the end. NULL when it isn't there. */
static char *text_in(const json_t *o, const char *key, size_t max, bool is_end, bool *ret_is_cut)
{
	const char *s = json_string_value(json_object_get(o, key));
	size_t n = s ? strlen(s) : 0;

	if (!s || !*s)
		return NULL;
	if (n <= max)
		return xstrdup(s);
	*ret_is_cut = true;
	if (!is_end)
		return xstrndup(s, utf8_valid_len(s, max));
	s += n - max;
	while (((unsigned char)*s & 0xC0) == 0x80)
		s++;
	return xstrdup(s);
}

static void decode_says(const json_t *facts, struct end_facts *ret)
{
	const json_t *word;
	size_t i;

	json_array_foreach(json_object_get(facts, "says"), i, word)
	{
		const char *s = json_string_value(word);

		ret->says_cuda_oom |= s && !strcmp(s, "cuda-oom");
		ret->says_disk_full |= s && !strcmp(s, "disk-full");
		ret->says_gpu_fault |= s && !strcmp(s, "gpu-fault");
	}
}

/* The largest second member of [["GPU-...", n], ...]; `none` when there's no row. */
static int64_t largest(const json_t *rows, int64_t none)
{
	const json_t *row;
	int64_t most = none;
	size_t i;

	json_array_foreach(rows, i, row)
	{
		const json_t *n = json_array_get(row, 1);

		if (json_is_integer(n) && json_integer_value(n) > most)
			most = json_integer_value(n);
	}
	return most;
}

int end_facts_decode(const json_t *ended, struct end_facts *ret, struct err *e)
{
	const json_t *facts = json_object_get(ended, "facts");
	const json_t *kills = json_object_get(facts, "oom_kills");
	struct end_facts f = {.oom_kills = -1};
	bool ignored = false;
	int r = decode_end(json_object_get(ended, "end"), &f.end, e);

	if (r < 0)
		return r;
	f.survivors = json_integer_value(json_object_get(ended, "survivors"));
	if (json_is_integer(kills) && json_integer_value(kills) >= 0)
		f.oom_kills = json_integer_value(kills);
	decode_says(facts, &f);
	f.peak_mib = largest(json_object_get(facts, "peaks"), -1);
	f.xid = largest(json_object_get(facts, "xids"), 0);
	f.tail_is_cut = json_is_true(json_object_get(facts, "tail_is_cut"));
	f.result_is_cut = json_is_true(json_object_get(facts, "result_is_cut"));
	f.tail = text_in(facts, "tail", TAIL_MAX, true, &f.tail_is_cut);
	f.tail_of = text_in(facts, "tail_of", 16, false, &ignored);
	f.result = text_in(facts, "result", RESULT_MAX, false, &f.result_is_cut);
	f.progress = text_in(facts, "progress", PROGRESS_MAX, false, &ignored);
	*ret = f;
	return 0;
}

/* ---- the cause ---- */

/* A wait status as bash tells it. False: nobody saw one. */
static bool exit_code_of(const struct attempt_end *end, int64_t *ret)
{
	bool by_signal = end->how == END_SIGNAL || (end->how == END_STOPPED && end->by_signal);

	if (end->how != END_EXIT && end->how != END_SIGNAL && end->how != END_STOPPED)
		return false;
	if (end->how == END_STOPPED && end->code < 0)
		return false;
	*ret = by_signal ? SHELL_SIGNAL + end->code : end->code;
	return true;
}

/*
 * The signal that ended it, 0 none. The job's first process is a shell, which tells of a command of its own that died so by
 * an exit code; only those of a crash or a kill are read that way, for a program may mean others by itself.
 */
static int signal_of(const struct attempt_end *end)
{
	static const int told[] = {SIGABRT, SIGBUS, SIGFPE, SIGKILL, SIGSEGV, SIGILL};

	if (end->how == END_SIGNAL)
		return end->code;
	for (size_t i = 0; end->how == END_EXIT && i < ARRAY_LEN(told); i++)
		if (end->code == SHELL_SIGNAL + told[i])
			return told[i];
	return 0;
}

static bool is_stopped(const struct attempt_end *end)
{
	return end->how == END_STOPPED || end->how == END_NOT_STARTED;
}

static enum job_cause cause_of_bad_exit(const struct end_facts *f)
{
	int signo = signal_of(&f->end);

	if (f->says_cuda_oom)
		return JOB_CAUSE_CUDA_OOM;
	if (signo == SIGKILL && f->oom_kills > 0)
		return JOB_CAUSE_HOST_OOM;
	if (xid_is_of_card(f->xid) || f->says_gpu_fault)
		return JOB_CAUSE_GPU_FAULT;
	if (f->says_disk_full)
		return JOB_CAUSE_DISK_FULL;
	return signo ? JOB_CAUSE_SIGNAL : JOB_CAUSE_EXIT_CODE;
}

static enum job_cause cause_of(const struct job *j, const struct end_facts *f)
{
	const struct attempt_end *end = &f->end;

	if (is_stopped(end) && end->reason == STOP_TIMEOUT)
		return JOB_CAUSE_TIMEOUT;
	if (is_stopped(end) && (end->reason == STOP_CANCEL || j->cancel_ms))
		return JOB_CAUSE_CANCELLED;
	/* Somebody shut it down who isn't this queue. */
	if (is_stopped(end))
		return JOB_CAUSE_VANISHED;
	if (end->how == END_LAUNCH_FAILED)
		return JOB_CAUSE_LAUNCH_FAILED;
	if (end->how == END_REBOOTED)
		return JOB_CAUSE_NODE_REBOOTED;
	if (end->how == END_VANISHED)
		return JOB_CAUSE_VANISHED;
	if (end->how == END_EXIT && !end->code)
		return JOB_CAUSE_NONE;
	return cause_of_bad_exit(f);
}

/* ---- retries ---- */

static bool is_oom_retried(
	const struct job *j, const struct queue_settings *s, enum job_cause cause)
{
	int64_t allowed = j->oom_retries >= 0 ? j->oom_retries : s->oom_retries;

	return cause == JOB_CAUSE_CUDA_OOM && j->n_oom < allowed;
}

/* Does --retries cover that end? The queue's own rule means by "signal" a SIGKILL only: a crash comes again. */
static bool is_covered(
	const struct job *j, const struct queue_settings *s, enum job_cause cause, int signo)
{
	uint32_t named = j->retry_on ? (uint32_t)j->retry_on : s->retry_on;

	if (named >> cause & 1)
		return j->retry_on || cause != JOB_CAUSE_SIGNAL || signo == SIGKILL;
	return !j->retry_on && cause == JOB_CAUSE_HOST_OOM && named >> JOB_CAUSE_SIGNAL & 1;
}

static bool is_retried(
	const struct job *j, const struct queue_settings *s, enum job_cause cause, int signo)
{
	if (cause == JOB_CAUSE_NONE || cause == JOB_CAUSE_CANCELLED)
		return false;
	return j->max_retries > 0 && job_attempt_count(j) - j->n_oom <= j->max_retries &&
	       is_covered(j, s, cause, signo);
}

/* What it is given after an OOM: a quarter more than it had or was seen to need, at most what a card can hold. */
static int64_t bumped_mib(const struct job *j, int64_t peak_mib, int64_t cap_mib)
{
	int64_t base = peak_mib > j->vram_mib ? peak_mib : j->vram_mib, next;

	if (base <= 0)
		return -1;
	next = base + (base + 3) / 4;
	/* Never below what it had: a cap that small means that the cards shrank, not the job. */
	if (cap_mib > 0 && next > cap_mib)
		next = cap_mib > base ? cap_mib : base;
	return next;
}

static enum job_step step_of(enum job_cause cause, bool is_again)
{
	if (is_again)
		return JOB_STEP_RETRY;
	switch (cause) {
	case JOB_CAUSE_NONE:
		return JOB_STEP_COMPLETE;
	case JOB_CAUSE_TIMEOUT:
		return JOB_STEP_TIMEOUT;
	case JOB_CAUSE_CANCELLED:
		return JOB_STEP_STOP;
	case JOB_CAUSE_VANISHED:
	case JOB_CAUSE_NODE_REBOOTED:
	case JOB_CAUSE_NODE_LOST:
		return JOB_STEP_LOSE;
	default:
		return JOB_STEP_FAIL;
	}
}

/* ---- words ---- */

/* The last line with something in it, cleaned, at most LAST_LINE_MAX bytes of it. */
static void put_last_line(struct buf *b, const char *tail)
{
	size_t n = tail ? strlen(tail) : 0, from, len;

	while (n && (unsigned char)tail[n - 1] <= ' ')
		n--;
	for (from = n; from && tail[from - 1] != '\n' && tail[from - 1] != '\r'; from--)
		;
	if (from == n)
		return;
	len = n - from > LAST_LINE_MAX ? LAST_LINE_MAX : n - from;
	buf_puts(b, ": ");
	text_put_clean(b, tail + from, len == n - from ? len : utf8_valid_len(tail + from, len));
}

static void put_seconds(struct buf *b, int64_t ms)
{
	buf_printf(b, "%.15g s", (double)ms / 1000);
}

static void put_exit(struct buf *b, const struct end_facts *f, int64_t code)
{
	int signo = signal_of(&f->end);

	buf_printf(b, "exit code %" PRId64, code);
	if (signo)
		buf_printf(b, " (signal %d, %s)", signo, strsignal(signo));
	if (f->xid)
		buf_printf(b, ", Xid %" PRId64 " on its GPU", f->xid);
	put_last_line(b, f->tail);
}

static void put_error(const struct job *j, const struct end_facts *f, enum job_cause cause,
	int64_t code, struct buf *b)
{
	switch (cause) {
	case JOB_CAUSE_NONE:
		return;
	case JOB_CAUSE_CANCELLED:
		buf_puts(b, f->end.how == END_NOT_STARTED ? "cancelled before it started"
							  : "cancelled");
		if (j->cancel_reason && *j->cancel_reason) {
			buf_puts(b, ": ");
			text_put_clean(b, j->cancel_reason, strlen(j->cancel_reason));
		}
		return;
	case JOB_CAUSE_TIMEOUT:
		buf_puts(b, "ran longer than its limit of ");
		put_seconds(b, j->max_runtime_ms);
		put_last_line(b, f->tail);
		return;
	case JOB_CAUSE_LAUNCH_FAILED:
		buf_puts(b, "could not be started: ");
		text_put_clean(b, f->end.text, strlen(f->end.text));
		return;
	case JOB_CAUSE_NODE_REBOOTED:
		buf_puts(b, "its node was restarted under it");
		return;
	case JOB_CAUSE_VANISHED:
		buf_puts(b, is_stopped(&f->end)
				    ? "it was stopped, but not by this queue"
				    : "its process is gone and nobody saw how it ended");
		put_last_line(b, f->tail);
		return;
	default:
		put_exit(b, f, code);
	}
}

/* The end of its output for the alert, from a whole line on. */
static void put_detail(const struct end_facts *f, const struct queue_settings *s, struct buf *b)
{
	size_t n = f->tail ? strlen(f->tail) : 0;
	size_t max = s->captured_output_bytes > 0 ? (size_t)s->captured_output_bytes : 0;
	const char *from = f->tail, *line;
	bool is_cut = f->tail_is_cut;

	if (n && max) {
		if (n > max) {
			from += n - max;
			line = strchr(from, '\n');
			from = line && line[1] ? line + 1 : from;
			while (((unsigned char)*from & 0xC0) == 0x80)
				from++;
			is_cut = true;
		}
		if (is_cut)
			buf_printf(b, "(the end of its %s)\n", f->tail_of ? f->tail_of : "output");
		buf_puts(b, from);
	}
	if (f->survivors > 0)
		buf_printf(b,
			"%s(it left %" PRId64
			" process%s behind; what they hold stays charged to it until they end)\n",
			b->len && b->data[b->len - 1] != '\n' ? "\n" : "", f->survivors,
			f->survivors == 1 ? "" : "es");
}

/* What the job wrote as its result: JSON as it is, anything else as {"raw": its start}. */
static void put_result(const struct end_facts *f, struct buf *b)
{
	json_t *v = f->result && !f->result_is_cut ? json_loads(f->result, JSON_DECODE_ANY, NULL)
						   : NULL;
	CLEANUP_FREE char *text = NULL;
	size_t n;

	if (!f->result)
		return;
	if (!v) {
		n = strnlen(f->result, RAW_RESULT_MAX);
		v = json_pack("{s:s%}", "raw", f->result, utf8_valid_len(f->result, n));
	}
	text = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
	json_decref(v);
	if (text)
		buf_puts(b, text);
}

/* ---- the judgement ---- */

/* By BOOTTIME, so that neither a clock that was set nor one of another machine makes it longer (W-28, W-30). */
static void set_times(const struct end_facts *f, struct store_end *end)
{
	const struct attempt_end *a = &f->end;

	end->elapsed_ms = -1;
	if (a->started_boot_ms && a->ended_boot_ms >= a->started_boot_ms)
		end->elapsed_ms = a->ended_boot_ms - a->started_boot_ms;
	if (a->started_wall_ms)
		end->started_ms = a->started_wall_ms - f->clock_offset_ms;
	if (a->ended_wall_ms)
		end->finished_ms = a->ended_wall_ms - f->clock_offset_ms;
}

/*
 * Evidence against the cards it ran on: an Xid that isn't a program's fault, or its words, or a command that failed fast. What the command line itself is
 * to blame for (no such program, no memory asked for) and what we did says nothing about a card.
 */
static bool is_card_fault(const struct job *j, const struct end_facts *f,
	const struct queue_settings *s, const struct store_end *end)
{
	int64_t code = end->has_exit_code ? end->exit_code : 0;

	if (!j->bind.n_cards)
		return false;
	if (end->cause == JOB_CAUSE_GPU_FAULT || (xid_is_of_card(f->xid) && end->cause))
		return true;
	if (end->cause != JOB_CAUSE_EXIT_CODE && end->cause != JOB_CAUSE_SIGNAL)
		return false;
	if (code == EXIT_NOT_EXECUTABLE || code == EXIT_NOT_FOUND)
		return false;
	return end->elapsed_ms >= 0 && end->elapsed_ms < s->card_fault_fast_ms;
}

static const char *text_or_null(const struct buf *b)
{
	return b->len ? buf_str(b) : NULL;
}

void judge(const struct job *j, const struct end_facts *f, const struct queue_settings *s,
	int64_t cap_mib, struct judgement *ret)
{
	struct judgement g = {.end = {.vram_mib = -1}};
	struct store_end *end = &g.end;
	bool is_oom;

	end->cause = cause_of(j, f);
	end->has_exit_code = exit_code_of(&f->end, &end->exit_code);
	end->peak_mib = f->peak_mib > j->peak_mib ? f->peak_mib : j->peak_mib;
	set_times(f, end);
	/* Whose end is wanted anyway doesn't start again. */
	is_oom = !j->cancel_ms && is_oom_retried(j, s, end->cause);
	end->step = step_of(end->cause,
		is_oom || (!j->cancel_ms && is_retried(j, s, end->cause, signal_of(&f->end))));
	end->is_oom_retry = is_oom;
	if (end->step == JOB_STEP_RETRY && end->cause == JOB_CAUSE_CUDA_OOM)
		end->vram_mib = bumped_mib(j, end->peak_mib, cap_mib);
	put_error(j, f, end->cause, end->exit_code, &g.error);
	if (end->cause)
		put_detail(f, s, &g.detail);
	put_result(f, &g.result);
	g.is_card_fault = is_card_fault(j, f, s, end);
	end->error = text_or_null(&g.error);
	end->detail = text_or_null(&g.detail);
	end->result = text_or_null(&g.result);
	*ret = g;
}

void judgement_done(struct judgement *j)
{
	buf_done(&j->error);
	buf_done(&j->detail);
	buf_done(&j->result);
	memset(j, 0, sizeof(*j));
}

void judge_lost(const struct job *j, enum job_cause cause, const char *why,
	const struct queue_settings *s, struct judgement *ret)
{
	struct judgement g = {.end = {.vram_mib = -1, .elapsed_ms = -1, .peak_mib = j->peak_mib}};
	bool is_again = cause == JOB_CAUSE_NODE_LOST ? s->node_loss == NODE_LOSS_REQUEUE
						     : is_retried(j, s, cause, 0);

	g.end.cause = cause;
	g.end.step = step_of(cause, is_again && !j->cancel_ms);
	text_put_clean(&g.error, why, strlen(why));
	g.end.error = text_or_null(&g.error);
	*ret = g;
}
