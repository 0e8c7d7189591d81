/*
 * `run --check`: what would happen, without making it happen. Reads the file, the journal and one sample, makes the plan
 * with the same function as the run, prints it. Starts no job and writes nothing in the log directory.
 */
#include "run/run_control.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "core/wire.h"
#include "run/jobsfile.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_MS 20000 /* for a first answer of the driver */

static void on_up(void *arg, const struct link_hello *hello)
{
	struct run *r = arg;

	r->hello = *hello;
	link_send(r->link, json_pack("{s:s,s:i}", "op", "sample", "id", 1));
}

static void on_message(void *arg, const char *op, const json_t *msg)
{
	struct run *r = arg;

	if (strcmp(op, "sample"))
		return;
	run_take_sample(r, msg);
	if (!r->is_over)
		run_end(r, 0);
}

static void on_down(void *arg, const char *why)
{
	struct run *r = arg;

	err_set(&r->failure, -EIO, "%s", why);
}

static void on_late(evutil_socket_t fd, short what, void *arg)
{
	struct run *r = arg;

	if (!r->failure.text[0])
		err_set(&r->failure, -ETIME, "the driver did not answer within %d s",
			LOOK_MS / 1000);
	run_end(r, -ETIME);
}

static void on_nothing(evutil_socket_t fd, short what, void *arg)
{
}

static int look(struct run *r)
{
	struct timeval limit = {.tv_sec = LOOK_MS / 1000};
	struct link_who who = {.who = "gpustow run --check"};
	struct event *late;

	r->turn_event = event_new(r->base, -1, 0, on_nothing, r);
	r->soon_event = evtimer_new(r->base, on_nothing, r);
	late = evtimer_new(r->base, on_late, r);
	evtimer_add(late, &limit);
	r->link = link_new_local(r->base, &who,
		&(struct link_owner){
			.arg = r, .up = on_up, .message = on_message, .down = on_down});
	event_base_dispatch(r->base);
	link_free(r->link);
	event_free(late);
	event_free(r->turn_event);
	event_free(r->soon_event);
	return r->exit_code;
}

/* Its gpu= names nothing that it could have, and no card is away: the run would find it infeasible. */
static bool has_no_card(const struct run *r, const struct run_job *j)
{
	return j->gpu && !j->cancel && !j->after && run_has_all_cards(r) &&
	       (run_why_no_card(r, j) || !run_only_cards(r, j));
}

static const char *what_word(
	const struct run *r, const struct run_job *j, const struct plan_decision *d)
{
	if (job_status_is_terminal(j->rec->status))
		return "done";
	if (j->rec->status == JOB_RUNNING)
		return "running";
	if (d && has_no_card(r, j))
		return "never";
	return !d		       ? "waits"
	       : d->what == PLAN_START ? "starts"
	       : d->what == PLAN_NEVER ? "never"
				       : "waits";
}

/* A card's number, or what an instance is called. */
static json_t *card_json(const struct gpu_card *c)
{
	char label[GPU_LABEL_LEN];

	if (!gpu_is_instance(c))
		return json_integer(c->index);
	gpu_label(c->index, c->gi, c->ci, label);
	return json_string(label);
}

/* One row of the answer. d: NULL for a job that isn't pending. */
static json_t *row_of(struct run *r, const struct run_cluster *c, struct run_job *j,
	const struct plan_decision *d, const struct plan_job *p)
{
	CLEANUP(buf_done) struct buf why = {0};
	json_t *cards = json_array();
	int64_t declared = run_job_declared(j);

	if (d && d->what == PLAN_START)
		for (uint32_t i = 0; i < c->node.n_cards; i++)
			if (d->cards >> i & 1)
				json_array_append_new(cards, card_json(&r->sample.snap.cards[i]));
	if (d && d->what != PLAN_START)
		plan_why_text(d, &c->node, NULL, p, &why);
	if (!d)
		buf_printf(&why, "%s (journal)", job_status_name(j->rec->status));
	else if (j->why_text)
		buf_clear(&why), buf_puts(&why, j->why_text);
	return json_pack("{s:I,s:I,s:s,s:o,s:s?,s:o,s:i,s:s}", "line", (json_int_t)j->lineno, "job",
		(json_int_t)j->rec->no, "plan", what_word(r, j, d), "gpus", cards, "why",
		why.len ? buf_str(&why) : NULL, "vram_mib",
		declared == UNDECLARED ? json_null() : json_integer(declared), "want_gpus",
		(int)j->gpus, "command", j->rec->command);
}

static void fill_plan_job(struct run *r, struct run_job *j, struct plan_job *p)
{
	*p = (struct plan_job){.id = j->rec->no,
		.declared_mib = run_job_declared(j),
		.gpus = j->gpus,
		.only_node = -1,
		.is_blocked = j->after || j->cancel};
	free(j->why_text);
	j->why_text = j->cancel	 ? xstrdup("cancelled by its line")
		      : j->after ? xasprintf("waits for %s", j->after)
				 : NULL;
	p->only_cards = run_only_cards(r, j);
	if (j->gpu || p->only_cards)
		p->only_node = 0;
	if (!j->why_text && run_why_no_card(r, j))
		j->why_text = xstrdup(run_why_no_card(r, j));
	p->is_blocked |= j->gpu && (!p->only_cards || run_why_no_card(r, j));
}

static json_t *make_plan(struct run *r)
{
	CLEANUP_FREE struct plan_job *jobs = xcalloc(r->n_lines, sizeof(*jobs));
	CLEANUP_FREE struct plan_decision *decisions = xcalloc(r->n_lines, sizeof(*decisions));
	CLEANUP_FREE struct plan_decision **of = xcalloc(r->n_lines, sizeof(*of));
	CLEANUP_FREE size_t *line = xcalloc(r->n_lines, sizeof(*line));
	struct plan_policy policy = run_policy(r);
	json_t *rows = json_array();
	struct run_cluster c;
	size_t n = 0, k = 0;

	policy.max_jobs = (uint32_t)r->config->max_jobs;
	run_cluster_make(r, &c);
	for (size_t i = 0; i < r->n_lines; i++) {
		if (r->lines[i]->rec->status != JOB_PENDING)
			continue;
		line[n] = i;
		fill_plan_job(r, r->lines[i], &jobs[n++]);
	}
	plan_make(&c.node, 1, jobs, n, &policy, 0, decisions);
	for (size_t i = 0; i < n; i++)
		of[line[decisions[i].job]] = &decisions[i];
	for (size_t i = 0; i < r->n_lines; i++)
		json_array_append_new(
			rows, row_of(r, &c, r->lines[i], of[i], of[i] ? &jobs[k++] : NULL));
	return rows;
}

static int print_text(const json_t *rows, const struct run *r)
{
	size_t i, n[3] = {0};
	json_t *row;

	json_array_foreach(rows, i, row)
	{
		const char *plan = json_string_value(json_object_get(row, "plan")),
			   *why = json_string_value(json_object_get(row, "why"));
		CLEANUP_FREE char *cards = json_dumps(json_object_get(row, "gpus"), JSON_COMPACT);
		bool is_cpu = !json_array_size(json_object_get(row, "gpus"));

		n[0] += !strcmp(plan, "starts");
		n[1] += !strcmp(plan, "waits");
		n[2] += !strcmp(plan, "never");
		printf("line %-4d job %-4d %-7s %s%s%s%s — %s\n",
			(int)json_integer_value(json_object_get(row, "line")),
			(int)json_integer_value(json_object_get(row, "job")), plan,
			!strcmp(plan, "starts") ? is_cpu ? "on cpu" : "on gpu " : "",
			!strcmp(plan, "starts") && !is_cpu ? cards : "", why ? "— " : "",
			why ? why : "",
			run_text((struct run *)r,
				json_string_value(json_object_get(row, "command"))));
	}
	printf("%zu jobs: %zu would start now, %zu would wait, %zu can never fit\n",
		json_array_size(rows), n[0], n[1], n[2]);
	return n[2] ? 1 : 0;
}

static json_t *errors_json(const struct jobsfile *f)
{
	json_t *list = json_array();

	for (size_t i = 0; i < f->n_errors; i++)
		json_array_append_new(list, json_pack("{s:i,s:s}", "line", (int)f->errors[i].lineno,
						    "text", f->errors[i].text));
	return list;
}

/* All errors of the file on stderr, or in the document; 2 when there are any. */
static int check_file(struct run *r, bool json)
{
	CLEANUP(jobsfile_done) struct jobsfile f = {0};

	jobsfile_parse(buf_str(&r->file.believed), r->file.believed.len,
		journal_highest_no(r->journal), &f);
	for (size_t i = 0; i < f.n_errors && !json; i++)
		fprintf(stderr, "%s: jobs file line %u: %s\n", r->config->program,
			f.errors[i].lineno, f.errors[i].text);
	if (f.n_errors && json) {
		json_t *document = json_pack("{s:s,s:o,s:[]}", "jobs_file", r->config->jobs_path,
			"errors", errors_json(&f), "jobs");

		json_dumpf(document, stdout, JSON_INDENT(2));
		putchar('\n');
		json_decref(document);
	}
	return f.n_errors ? 2 : 0;
}

static int begin(struct run *r, bool json, struct err *e)
{
	int code = r->config->fresh ? 0 : run_load_journal(r, e);

	if (r->config->fresh)
		r->journal = journal_load_bytes("", 0);

	if (!code)
		code = run_jobs_read_first(r, e);
	if (code < 0 && r->file.believed.len && check_file(r, json))
		return 2;
	return code;
}

static int answer(struct run *r, bool json)
{
	json_t *rows = make_plan(r), *row;
	int code = 0;
	size_t i;

	if (!json) {
		code = print_text(rows, r);
		json_decref(rows);
		return code;
	}
	json_array_foreach(rows, i,
		row) if (!strcmp(json_string_value(json_object_get(row, "plan")), "never")) code =
		1;
	row = json_pack(
		"{s:s,s:[],s:o}", "jobs_file", r->config->jobs_path, "errors", "jobs", rows);
	json_dumpf(row, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(row);
	return code;
}

int run_check(const struct run_config *c, bool json, struct err *e)
{
	struct run r = {.config = c,
		.dirfd = -1,
		.lock_fd = -1,
		.file.inotify = -1,
		.said_gpus = c->n_gpus == 0};
	int code = begin(&r, json, e);

	if (!code) {
		r.track = track_new();
		r.base = event_base_new();
		code = look(&r);
		if (!code && r.sample.snap.error[0])
			code = err_set(&r.failure, -ENODEV, "%s", r.sample.snap.error);
		if (code < 0)
			*e = r.failure;
		else
			code = answer(&r, json);
		event_base_free(r.base);
		r.base = NULL;
	}
	run_offline_close(&r, false, e);
	watchfile_done(&r.file);
	return code;
}
