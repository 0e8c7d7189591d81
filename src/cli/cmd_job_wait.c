/* `job wait`: until jobs have ended. The waiting is queue_wait.c's; this says what became of them. */
#include "cli/job_logs.h"
#include "cli/job_table.h"
#include "cli/queue_candidates.h"
#include "cli/queue_wait.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "cli/cmd_once.h"
#include "queue/record_json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 50 };

struct wait_options {
	struct queue_options q;
	bool any, all;
	const char *timeout;
	int64_t logs; /* lines; 0: none */
};

static void put_state(const struct queue_waited *d, struct buf *out)
{
	if (d->signal_no)
		buf_puts(out, "stopped waiting; the jobs go on\n");
	else if (d->timed_out)
		buf_puts(out, "the time is over, and work still goes on\n");
	else if (d->is_stuck)
		buf_puts(out,
			"nothing of it can go on by itself: see HELD BY, `job why ID`, `job release ID`\n");
}

static void put_log(struct queue *q, const struct job *j, int64_t lines, struct buf *out)
{
	CLEANUP(buf_done) struct buf log = {0};
	struct err e = {0};
	bool is_cut = false;

	if (job_logs_tail(q, j, "stdout", lines, JOB_TAIL_BYTES, &log, &is_cut, &e)) {
		buf_printf(out, "\njob %" PRId64 ": no output to show: ", j->id);
		text_put_clean(out, e.text, strlen(e.text));
		buf_putc(out, '\n');
		return;
	}
	buf_printf(out, "\njob %" PRId64 ", the end of its output%s:\n", j->id,
		is_cut ? " (cut)" : "");
	job_logs_put_clean(buf_str(&log), log.len, false, out);
	if (log.len && out->data[out->len - 1] != '\n')
		buf_putc(out, '\n');
}

static int print_text(
	struct queue *q, const struct wait_options *o, const struct queue_waited *d, struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0};
	size_t n = d->jobs.n < SHOWN ? d->jobs.n : SHOWN;
	struct row_style style;

	once_terminal(&style);
	job_table_put(d->jobs.v, n, clock_wall_ms(), &style, &out);
	if (n < d->jobs.n)
		buf_printf(&out, "(and %zu more; --json has them all)\n", d->jobs.n - n);
	put_state(d, &out);
	for (size_t i = 0; o->logs && i < n; i++)
		put_log(q, &d->jobs.v[i], o->logs, &out);
	return command_print(&out, e);
}

static void set_log(struct queue *q, const struct job *j, int64_t lines, json_t *o)
{
	CLEANUP(buf_done) struct buf log = {0};
	struct err e = {0};
	bool is_cut = false;
	int r = job_logs_tail(q, j, "stdout", lines, JOB_TAIL_BYTES, &log, &is_cut, &e);

	json_object_set_new(o, "log_tail", r ? json_null() : job_logs_json(buf_str(&log), log.len));
	json_object_set_new(o, "log_error", r ? json_string(e.text) : json_null());
	json_object_set_new(o, "log_is_cut", json_boolean(is_cut));
}

static int print_json(
	struct queue *q, const struct wait_options *o, const struct queue_waited *d, struct err *e)
{
	json_t *list = json_array();
	int64_t now = clock_wall_ms();

	for (size_t i = 0; i < d->jobs.n; i++) {
		json_t *j = record_job(&d->jobs.v[i], now);

		if (o->logs)
			set_log(q, &d->jobs.v[i], o->logs, j);
		json_array_append_new(list, j);
	}
	return queue_print_json(json_pack("{s:o, s:b, s:b, s:b, s:b}", "jobs", list, "all_done",
					(int)d->all_done, "all_succeeded", (int)d->all_succeeded,
					"timed_out", (int)d->timed_out, "stuck", (int)d->is_stuck),
		e);
}

static int read_options(const struct wait_options *o, int argc, char **argv, struct id_list *ids,
	struct queue_wait *ret, struct err *e)
{
	int r = 0;

	if (o->any && o->all)
		return err_set(
			e, -EINVAL, "--any and --all say different things; give one of them");
	ret->any = o->any;
	if (o->timeout &&
		(queue_parse_duration_ms(o->timeout, &ret->timeout_ms) || ret->timeout_ms <= 0))
		return err_set(e, -EINVAL,
			"--timeout wants seconds above 0, as 90, or 15m, 2h; not '%.60s'",
			o->timeout);
	for (int i = 0; !r && i < argc; i++)
		r = queue_parse_ids(argv[i], ids, e);
	ret->ids = ids->v;
	ret->n = ids->n;
	return r;
}

static int wait_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct wait_options *o = opts;
	CLEANUP(queue_close) struct queue q = {0};
	CLEANUP(id_list_done) struct id_list ids = {0};
	CLEANUP(queue_waited_done) struct queue_waited done = {0};
	struct queue_wait w = {0};
	int r = read_options(o, argc, argv, &ids, &w, e);

	if (!r)
		r = queue_open(&q, p, &o->q, STORE_READ, e);
	if (!r)
		r = queue_wait(&q, &w, &done, e);
	if (!r)
		r = q.json ? print_json(&q, o, &done, e) : print_text(&q, o, &done, e);
	return r ? r : queue_wait_code(&w, &done);
}

#define AT(member) .offset = offsetof(struct wait_options, member)
static const struct option_spec options[] = {
	{.name = "any", .kind = OPTION_FLAG, AT(any), .text = "until the first of them has ended"},
	{.name = "all", .kind = OPTION_FLAG, AT(all), .text = "until all have ended (the default)"},
	{.name = "timeout",
		.arg = "S",
		.kind = OPTION_TEXT,
		AT(timeout),
		.text = "no longer than that: seconds, or 15m, 2h; exit code 2 then"},
	{.name = "logs",
		.arg = "LINES",
		.kind = OPTION_INT,
		AT(logs),
		.min = 1,
		.max = 100000,
		.bare = JOB_TAIL_LINES,
		.text = "and the end of their output (default: 40 lines)"},
	QUEUE_OPTION_ROWS(struct wait_options),
	QUEUE_REFRESH_ROWS(struct wait_options),
	OPTION_SPEC_END,
};

extern const struct command cmd_job_wait;
const struct command cmd_job_wait = {
	.name = "job wait",
	.args = "ID...",
	.summary = "wait until jobs have ended",
	.about =
		"Exit code 0 when all that it waited for completed; 1 when one ended otherwise, or when\n"
		"what's left is held and a person has to act; 2 when the time was over with work still\n"
		"going: that's no failure; 130 after Ctrl-C. Waiting changes nothing about the jobs.",
	.examples = "$ gpustow job wait 12 13 --timeout 2h\n"
		    "$ gpustow job wait 20-29 --any --json",
	.options = options,
	.options_size = sizeof(struct wait_options),
	.min_args = 1,
	.max_args = -1,
	.complete = COMPLETE_JOB,
	.candidates = queue_job_candidates,
	.needs_locale = true,
	.abbreviations = true,
	.wants_json = queue_wants_json,
	.exec = wait_exec,
};
