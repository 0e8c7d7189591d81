/* `job show` and `job why`: all that is known of one job, and why it doesn't run. */
#include "cli/queue_candidates.h"
#include "cli/job_logs.h"
#include "cli/job_table.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "cli/cmd_once.h"
#include "queue/cluster.h"
#include "queue/record_json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS_MAX 50
#define LABEL_CELLS 14
#define SHOWN_COMMAND_MAX 4000

struct show_options {
	struct queue_options q;
	int64_t logs; /* lines; 0: none */
};

/* The queue's picture for the reason of a job that waits; made only when there is one. */
struct reason {
	struct cluster c;
	struct cluster_plan p;
	ssize_t at; /* -1: none */
	char *away; /* its node doesn't answer; NULL */
};

static int reason_make(struct queue *q, const struct job *j, struct reason *ret, struct err *e)
{
	int r;

	ret->at = -1;
	if (!job_state_is_terminal(j->state) && !queue_is_away(q, j->bind.node, &ret->away))
		ret->away = NULL;
	if (j->state != JOB_STATE_PENDING)
		return 0;
	r = cluster_load(q->store, &q->config, clock_wall_ms(), true, &ret->c, e);
	if (r)
		return r;
	if (j->is_bound)
		return 0;
	cluster_plan(&ret->c, NULL, &ret->p);
	ret->at = cluster_pending(&ret->c, j->id);
	return 0;
}

static void reason_done(struct reason *r)
{
	cluster_plan_done(&r->p);
	cluster_done(&r->c);
	free(r->away);
}

/* The sentence for any job: also for those that run or have ended. */
static void put_reason(const struct reason *r, const struct job *j, struct buf *out)
{
	if (r->at >= 0)
		cluster_why(&r->c, &r->p, (size_t)r->at, out);
	else if (j->state == JOB_STATE_PENDING)
		cluster_why_bound(&r->c, j, out);
	else if (j->state == JOB_STATE_RUNNING && r->away)
		buf_printf(out,
			"it ran when its node was last seen, and nothing was heard of it since: %s. What became of it is known once the node answers",
			r->away);
	else if (j->state == JOB_STATE_RUNNING)
		buf_printf(out, "it runs on %s", j->bind.node ? j->bind.node : "its node");
	else {
		buf_printf(out, "it has ended: %s", job_state_name(j->state));
		if (j->last_error)
			buf_printf(out, ": %s", j->last_error);
		if (j->cause)
			buf_printf(out, ". %s", job_cause_text(j->cause));
	}
}

/* ---- text ---- */

static void put_label(struct buf *out, const char *label)
{
	buf_printf(out, "%-*s ", LABEL_CELLS, label);
}

static void put_text(struct buf *out, const char *label, const char *text)
{
	bool is_first = true;

	if (!text || !*text)
		return;
	/* Each line of it is cleaned by itself, below its label. */
	while (*text) {
		size_t n = strcspn(text, "\n");

		put_label(out, is_first ? label : "");
		text_put_clean(out, text, n);
		buf_putc(out, '\n');
		text += n + (text[n] == '\n');
		is_first = false;
	}
}

static void put_time(struct buf *out, const char *label, int64_t ms)
{
	char text[RECORD_TIME_LEN];

	record_time_text(ms, text);
	put_text(out, label, text);
}

static void put_ids(struct buf *out, const char *label, const int64_t *ids, size_t n)
{
	if (!n)
		return;
	put_label(out, label);
	for (size_t i = 0; i < n && i < 50; i++)
		buf_printf(out, "%s%" PRId64, i ? ", " : "", ids[i]);
	buf_puts(out, n > 50 ? ", ...\n" : "\n");
}

static void put_request(struct buf *out, const struct job *j)
{
	put_label(out, "asked for");
	if (!j->gpus) {
		buf_puts(out, "no GPU");
	} else {
		buf_printf(out, "%" PRId64 " GPU%s, ", j->gpus, j->gpus == 1 ? "" : "s");
		if (j->vram_mib < 0) {
			buf_puts(out, "memory not declared");
		} else {
			queue_put_size(out, j->vram_mib);
			buf_printf(out, " each (%s)", vram_source_name(j->vram_source));
		}
	}
	if (j->gpu_model)
		buf_printf(out, ", model %s", j->gpu_model);
	if (j->min_total_mib) {
		buf_puts(out, ", cards of at least ");
		queue_put_size(out, j->min_total_mib);
	}
	buf_printf(out, "%s%s%s%s", j->exclusive ? ", exclusive" : "", j->idle ? ", idle" : "",
		j->nvlink ? ", NVLink" : "", j->login ? ", login shell" : "");
	if (j->cpus)
		buf_printf(out, ", %" PRId64 " cores", j->cpus);
	if (j->mem_mib) {
		buf_puts(out, ", main memory ");
		queue_put_size(out, j->mem_mib);
	}
	if (j->node_constraint)
		buf_printf(out, ", only on %s", j->node_constraint);
	if (j->gpu_constraint)
		buf_printf(out, " GPU %s", j->gpu_constraint);
	buf_printf(out, ", priority %" PRId64 "\n", j->priority);
}

static void put_place(struct buf *out, const struct job *j)
{
	if (j->state == JOB_STATE_PENDING || !j->bind.node)
		return;
	put_label(out, "on");
	buf_puts(out, j->bind.node);
	if (j->bind.n_cards) {
		buf_puts(out, ", GPU ");
		job_cards_put(j, out);
	}
	if (j->pid)
		buf_printf(out, ", pid %" PRId64, j->pid);
	buf_putc(out, '\n');
}

static void put_used(struct buf *out, const struct job *j)
{
	if (j->gpu_mem_mib < 0 && j->peak_mib < 0)
		return;
	put_label(out, "memory");
	if (j->gpu_mem_mib >= 0) {
		buf_puts(out, "now ");
		queue_put_size(out, j->gpu_mem_mib);
	}
	if (j->peak_mib >= 0) {
		buf_printf(out, "%shighest ", j->gpu_mem_mib >= 0 ? ", " : "");
		queue_put_size(out, j->peak_mib);
	}
	buf_putc(out, '\n');
}

static void put_times(struct buf *out, const struct job *j, int64_t now_ms)
{
	int64_t elapsed = record_elapsed_ms(j, now_ms);

	put_time(out, "submitted", j->created_ms);
	put_time(out, "started", j->started_ms);
	put_time(out, "ended", j->finished_ms);
	if (elapsed >= 0) {
		put_label(out, "elapsed");
		queue_put_duration(out, elapsed);
		if (j->max_runtime_ms) {
			buf_puts(out, " of ");
			queue_put_duration(out, j->max_runtime_ms);
		}
		buf_putc(out, '\n');
	}
}

static void put_progress(struct buf *out, const struct job *j, int64_t now_ms)
{
	if (!j->progress || !*j->progress)
		return;
	put_label(out, "progress");
	queue_put_line(out, j->progress, 200);
	if (j->progress_ms && now_ms > j->progress_ms) {
		buf_puts(out, " (");
		text_put_duration(out, now_ms - j->progress_ms);
		buf_puts(out, " ago)");
	}
	buf_putc(out, '\n');
}

static void put_held(struct buf *out, const struct job *j)
{
	if (!job_is_held(j))
		return;
	put_text(out, "held", j->held_reason);
	put_label(out, "");
	buf_printf(out,
		"ways out: job requeue what failed; job release %" PRId64
		" (go on without); job edit %" PRId64 " --drop-after ID; job cancel %" PRId64 "\n",
		j->id, j->id, j->id);
}

static void put_command(struct buf *out, const struct job *j)
{
	CLEANUP_FREE char *cut = NULL;

	if (strlen(j->command) <= SHOWN_COMMAND_MAX) {
		put_text(out, "command", j->command);
		return;
	}
	cut = xstrndup(j->command, SHOWN_COMMAND_MAX);
	cut[utf8_valid_len(cut, strlen(cut))] = '\0';
	put_text(out, "command", cut);
	put_label(out, "");
	buf_printf(out, "(cut: %zu bytes in all; --json has it whole)\n", strlen(j->command));
}

static void put_page(const struct job *j, const struct reason *why, int64_t now_ms, struct buf *out)
{
	CLEANUP(buf_done) struct buf reason = {0};

	put_label(out, "job");
	buf_printf(out, "%" PRId64 "\n", j->id);
	put_label(out, "state");
	buf_puts(out, record_state(j));
	if (j->has_exit_code)
		buf_printf(out, ", exit code %" PRId64, j->exit_code);
	/* A cancelled job's cause is that it was cancelled. */
	if (j->cause && strcmp(job_cause_name(j->cause), job_state_name(j->state)) != 0)
		buf_printf(out, ", %s", job_cause_name(j->cause));
	if (j->cancel_ms && !job_state_is_terminal(j->state))
		buf_puts(out, ", cancel requested");
	buf_putc(out, '\n');
	put_text(out, "name", j->name);
	put_command(out, j);
	put_text(out, "in", j->workdir);
	put_request(out, j);
	put_place(out, j);
	put_text(out, "lane", j->lane);
	put_used(out, j);
	put_times(out, j, now_ms);
	put_label(out, "attempt");
	buf_printf(out, "%" PRId64, job_attempt_count(j));
	if (j->n_oom)
		buf_printf(out, ", %" PRId64 " of them after CUDA ran out of memory", j->n_oom);
	if (j->max_retries)
		buf_printf(out, "; --retries %" PRId64, j->max_retries);
	buf_putc(out, '\n');
	put_text(out, "submitter", j->submitter);
	put_text(out, "key", j->key);
	put_text(out, "directory", j->run_dir);
	put_progress(out, j, now_ms);
	put_text(out, "note", j->notes);
	put_held(out, j);
	put_ids(out, "after", j->after, j->n_after);
	put_ids(out, "after any", j->after_any, j->n_after_any);
	put_text(out, "tags", j->tags);
	put_text(out, "environment", j->env);
	put_text(out, "error", j->last_error);
	if (j->cause)
		put_text(out, "cause", job_cause_text(j->cause));
	if (j->state == JOB_STATE_PENDING) {
		put_reason(why, j, &reason);
		put_text(out, "why", buf_str(&reason));
	}
	put_text(out, "result", j->result);
}

/* ---- JSON ---- */

static json_t *events_of(struct queue *q, int64_t id)
{
	CLEANUP(store_events_done) struct store_events l = {0};
	json_t *a = json_array();
	struct err e = {0};

	if (!store_events(q->store, -1, id, EVENTS_MAX, &l, &e))
		for (size_t i = 0; i < l.n; i++)
			json_array_append_new(a, record_event(&l.v[i]));
	return a;
}

static json_t *attempts_of(struct queue *q, int64_t id)
{
	CLEANUP(store_attempts_done) struct store_attempts l = {0};
	json_t *a = json_array();
	struct err e = {0};

	if (store_attempts(q->store, id, &l, &e))
		return a;
	for (size_t i = 0; i < l.n; i++) {
		const struct store_attempt *t = &l.v[i];
		json_t *o = json_pack("{s:I, s:s?, s:o, s:o, s:o}", "attempt",
			(json_int_t)t->attempt, "node", t->bind.node, "bound_at",
			record_time(t->bound_ms), "started_at", record_time(t->started_ms),
			"finished_at", record_time(t->finished_ms));

		json_object_set_new(o, "exit_code",
			t->has_exit_code ? json_integer(t->exit_code) : json_null());
		json_object_set_new(
			o, "cause", t->cause ? json_string(job_cause_name(t->cause)) : json_null());
		json_object_set_new(
			o, "peak_mb", t->peak_mib >= 0 ? json_integer(t->peak_mib) : json_null());
		json_object_set_new(
			o, "run_dir", t->run_dir ? json_string(t->run_dir) : json_null());
		json_object_set_new(o, "error", t->error ? json_string(t->error) : json_null());
		json_array_append_new(a, o);
	}
	return a;
}

/* ---- show ---- */

static int print_show(struct queue *q, const struct show_options *o, const struct job *j,
	const struct reason *why, struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0}, log = {0};
	int64_t now = clock_wall_ms();
	bool is_cut = false;
	struct err log_error = {0};
	int r = o->logs ? job_logs_tail(q, j, "stdout", o->logs, JOB_TAIL_BYTES, &log, &is_cut,
				  &log_error)
			: 0;

	if (q->json) {
		json_t *doc = record_job(j, now);

		json_object_set_new(doc, "events", events_of(q, j->id));
		json_object_set_new(doc, "attempts", attempts_of(q, j->id));
		json_object_set_new(doc, "why",
			why->at >= 0 ? cluster_why_json(&why->c, &why->p, (size_t)why->at)
				     : json_null());
		if (o->logs) {
			json_object_set_new(doc, "log_tail",
				r ? json_null() : job_logs_json(buf_str(&log), log.len));
			json_object_set_new(
				doc, "log_error", r ? json_string(log_error.text) : json_null());
			json_object_set_new(doc, "log_is_cut", json_boolean(is_cut));
		}
		return queue_print_json(doc, e);
	}
	put_page(j, why, now, &out);
	if (o->logs && r)
		put_text(&out, "output", log_error.text);
	else if (o->logs) {
		buf_printf(&out, "\nthe end of stdout%s:\n", is_cut ? " (cut)" : "");
		job_logs_put_clean(buf_str(&log), log.len, false, &out);
	}
	return command_print(&out, e);
}

static int find(struct queue *q, const char *word, struct job *ret, struct err *e)
{
	int64_t id;
	int r = queue_parse_id(word, &id, e);

	return r ? r : store_job(q->store, id, ret, e);
}

static int show_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct show_options *o = opts;
	CLEANUP(queue_close) struct queue q = {0};
	CLEANUP(job_done) struct job j = {0};
	CLEANUP(reason_done) struct reason why = {.at = -1};
	int r = queue_open(&q, p, &o->q, STORE_READ, e);

	(void)argc;
	if (!r) {
		queue_refresh(&q);
		r = find(&q, argv[0], &j, e);
	}
	if (!r)
		r = reason_make(&q, &j, &why, e);
	return r ? r : print_show(&q, o, &j, &why, e);
}

/* ---- why ---- */

static int why_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct show_options *o = opts;
	CLEANUP(queue_close) struct queue q = {0};
	CLEANUP(job_done) struct job j = {0};
	CLEANUP(reason_done) struct reason why = {.at = -1};
	CLEANUP(buf_done) struct buf text = {0}, out = {0};
	int r = queue_open(&q, p, &o->q, STORE_READ, e);
	json_t *doc;

	(void)argc;
	if (!r) {
		queue_refresh(&q);
		r = find(&q, argv[0], &j, e);
	}
	if (!r)
		r = reason_make(&q, &j, &why, e);
	if (r)
		return r;
	put_reason(&why, &j, &text);
	if (!q.json) {
		buf_printf(&out, "job %" PRId64 " (%s): ", j.id, record_state(&j));
		text_put_clean(&out, buf_str(&text), text.len);
		buf_putc(&out, '\n');
		return command_print(&out, e);
	}
	doc = why.at >= 0 ? cluster_why_json(&why.c, &why.p, (size_t)why.at)
			  : json_pack("{s:s, s:s}", "reason", job_state_name(j.state), "text",
				    buf_str(&text));
	json_object_set_new(doc, "id", json_integer(j.id));
	json_object_set_new(doc, "state", json_string(job_state_name(j.state)));
	return queue_print_json(doc, e);
}

#define AT(member) .offset = offsetof(struct show_options, member)
static const struct option_spec show_specs[] = {
	{.name = "logs",
		.arg = "LINES",
		.kind = OPTION_INT,
		AT(logs),
		.min = 1,
		.max = 100000,
		.bare = JOB_TAIL_LINES,
		.text = "and the end of its output (default: 40 lines)"},
	QUEUE_OPTION_ROWS(struct show_options),
	QUEUE_REFRESH_ROWS(struct show_options),
	OPTION_SPEC_END,
};
static const struct option_spec why_specs[] = {
	QUEUE_OPTION_ROWS(struct show_options),
	QUEUE_REFRESH_ROWS(struct show_options),
	OPTION_SPEC_END,
};

extern const struct command cmd_job_show, cmd_job_why;
const struct command cmd_job_show = {
	.name = "job show",
	.args = "ID",
	.summary = "all that is known of one job",
	.examples = "$ gpustow job show 12 --logs",
	.options = show_specs,
	.options_size = sizeof(struct show_options),
	.min_args = 1,
	.max_args = 1,
	.needs_locale = true,
	.complete = COMPLETE_JOB,
	.candidates = queue_job_candidates,
	.abbreviations = true,
	.wants_json = queue_wants_json,
	.exec = show_exec,
};
const struct command cmd_job_why = {
	.name = "job why",
	.args = "ID",
	.summary = "why a job doesn't run, in words and numbers",
	.about =
		"What it waits for, by the last look at the nodes: memory, with the best card's figures;\n"
		"another job; a node; a person. For one that ended it's the cause and what to do about\n"
		"it.",
	.examples = "$ gpustow job why 12",
	.options = why_specs,
	.options_size = sizeof(struct show_options),
	.min_args = 1,
	.max_args = 1,
	.needs_locale = true,
	.complete = COMPLETE_JOB,
	.candidates = queue_job_candidates,
	.abbreviations = true,
	.wants_json = queue_wants_json,
	.exec = why_exec,
};
