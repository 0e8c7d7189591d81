/* `job ls`: the jobs of the record, oldest first. */
#include "cli/queue_candidates.h"
#include "cli/queue_json.h"
#include "cli/job_select.h"
#include "cli/job_table.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/cmd_once.h"
#include "queue/record_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 1000 /* rows that are read at once: memory stays small with 100,000 jobs */
#define TEXT_MAX 1000 /* rows of a table for people, unless -n says more */

struct ls_options {
	struct queue_options q;
	struct job_select select;
	bool active, held;
	int64_t number, after;
};

struct listing {
	const struct ls_options *o;
	struct store_jobs jobs;
	bool has_more; /* text only: older ones were left out */
};

static int question_of(struct queue *q, const struct ls_options *o, int argc, char **argv,
	struct id_list *ids, struct store_question *ret, struct err *e)
{
	int r = job_select_question(q, &o->select, argc, argv, ids, ret, e);

	if (r)
		return r;
	if (o->active && ret->states)
		return err_set(
			e, -EINVAL, "--active and --state say different things; give one of them");
	if (o->active)
		ret->states = JOB_STATES_ACTIVE;
	ret->held |= o->held;
	ret->min_id = o->after ? o->after + 1 : 0;
	ret->newest = o->number > 0 && !o->after;
	ret->limit = (size_t)o->number;
	return 0;
}

/* JSON is complete; text shows the newest that fit a person's patience. */
static int read_text(
	struct queue *q, struct store_question *question, struct listing *ret, struct err *e)
{
	if (!question->limit) {
		question->limit = TEXT_MAX;
		question->newest = true;
	}
	question->command_max = 400;
	return store_jobs(q->store, question, &ret->jobs, e);
}

static int print_text(
	struct queue *q, struct listing *l, const struct store_counts *counts, struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0};
	struct row_style style;

	once_terminal(&style);
	if (l->jobs.n)
		job_table_put(l->jobs.v, l->jobs.n, clock_wall_ms(), &style, &out);
	else
		buf_puts(&out, counts->last_job ? "no jobs like that\n"
						: "no jobs yet; `job submit` makes one\n");
	if (l->jobs.has_more)
		buf_printf(&out, "(the newest %zu; -n N shows more, --json all)\n", l->jobs.n);
	(void)q;
	return command_print(&out, e);
}

/* In pages, so that a hundred thousand jobs aren't all in memory at once. */
static int put_pages(struct queue *q, struct store_question *question, const struct ls_options *o,
	struct queue_json *out, struct err *e)
{
	int64_t now = clock_wall_ms();
	bool has_more = true, is_paged = !question->limit;
	int r = 0;

	if (is_paged)
		question->limit = PAGE;
	while (!r && has_more) {
		CLEANUP(store_jobs_done) struct store_jobs page = {0};

		r = store_jobs(q->store, question, &page, e);
		for (size_t i = 0; !r && i < page.n; i++)
			if (job_select_has_tags(&o->select, &page.v[i]))
				queue_json_item(out, record_job(&page.v[i], now));
		has_more = is_paged && page.has_more && page.n;
		if (page.n)
			question->behind_id = page.v[page.n - 1].id;
	}
	return r;
}

static int print_json(
	struct queue *q, struct store_question *question, const struct ls_options *o, struct err *e)
{
	struct queue_json out;
	int r;

	queue_json_begin(&out, e);
	queue_json_list(&out, "jobs");
	r = put_pages(q, question, o, &out, e);
	queue_json_list_end(&out);
	return queue_json_end(&out, r);
}

static int ls_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct ls_options *o = opts;
	CLEANUP(queue_close) struct queue q = {0};
	CLEANUP(id_list_done) struct id_list ids = {0};
	struct store_question question = {0};
	struct store_counts counts = {0};
	struct listing l = {.o = o};
	int r = queue_open(&q, p, &o->q, STORE_READ, e);

	if (!r)
		r = question_of(&q, o, argc, argv, &ids, &question, e);
	if (r)
		return r;
	queue_refresh(&q);
	if (q.json)
		return print_json(&q, &question, o, e);
	r = read_text(&q, &question, &l, e);
	if (!r)
		r = store_counts(q.store, &counts, e);
	if (!r)
		r = print_text(&q, &l, &counts, e);
	store_jobs_done(&l.jobs);
	return r;
}

#define AT(member) .offset = offsetof(struct ls_options, member)
static const struct option_spec options[] = {
	JOB_SELECT_ROWS(struct ls_options),
	{.name = "active", .kind = OPTION_FLAG, AT(active), .text = "only jobs that wait or run"},
	{.name = "held", .kind = OPTION_FLAG, AT(held), .text = "only jobs that are held"},
	{.letter = 'n',
		.name = "number",
		.arg = "N",
		.kind = OPTION_INT,
		AT(number),
		.min = 1,
		.max = 1000000,
		.text = "only the newest N, still oldest first"},
	{.name = "after-id",
		.arg = "ID",
		.kind = OPTION_INT,
		AT(after),
		.min = 1,
		.max = INFINITY,
		.text = "only jobs behind that number: with -n, the next page"},
	QUEUE_OPTION_ROWS(struct ls_options),
	QUEUE_REFRESH_ROWS(struct ls_options),
	OPTION_SPEC_END,
};

extern const struct command cmd_job_ls;
const struct command cmd_job_ls = {
	.name = "job ls",
	.args = "[ID|RANGE...]",
	.summary = "list jobs",
	.about =
		"All jobs, oldest first. JSON is complete; the table shows at most the newest 1000 unless\n"
		"-n says more.",
	.examples = "$ gpustow job ls --active\n"
		    "$ gpustow job ls --state failed --tag sweep --json",
	.options = options,
	.options_size = sizeof(struct ls_options),
	.max_args = -1,
	.needs_locale = true,
	.complete = COMPLETE_JOB,
	.candidates = queue_job_candidates,
	.abbreviations = true,
	.wants_json = queue_wants_json,
	.exec = ls_exec,
};
