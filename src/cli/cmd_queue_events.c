/* `queue events`: what happened, in pages without gaps. */
#include "cli/queue_common.h"
#include "cli/queue_json.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "cli/cmd_once.h"
#include "queue/record_json.h"
#include "show/table.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 50, PAGE = 1000, MESSAGE_CELLS = 200 };

struct events_options {
	struct queue_options q;
	int64_t since, job, number; /* since -1, job 0, number 0: not given */
};

static void defaults(void *opts)
{
	struct events_options *o = opts;

	o->since = -1;
}

/* ---- JSON: written a page at a time, for a history may be long ---- */

/* What became of the pages so far. */
struct pages {
	int64_t since, left; /* left 0: no bound */
	bool is_newest, has_more, has_gap;
};

static int put_page(struct queue *q, const struct events_options *o, struct pages *p,
	struct queue_json *out, struct err *e)
{
	CLEANUP(store_events_done) struct store_events page = {0};
	size_t limit = p->left && (p->is_newest || p->left < PAGE) ? (size_t)p->left : PAGE;
	int r = store_events(q->store, p->is_newest ? -1 : p->since, o->job, limit, &page, e);

	if (r)
		return r;
	for (size_t i = 0; i < page.n; i++)
		queue_json_item(out, record_event(&page.v[i]));
	p->has_gap |= o->since >= 0 && page.has_gap;
	p->has_more = !p->is_newest && page.has_more;
	p->since = page.last_id;
	if (p->left)
		p->left -= (int64_t)page.n;
	return 0;
}

static int print_json(struct queue *q, const struct events_options *o, struct err *e)
{
	/* Without --since and -n: all of it, from the oldest on. */
	struct pages p = {.since = o->since < 0 ? 0 : o->since,
		.left = o->number,
		.is_newest = o->since < 0 && o->number};
	struct queue_json out;
	int r;

	queue_json_begin(&out, e);
	queue_json_list(&out, "events");
	do {
		r = put_page(q, o, &p, &out, e);
	} while (!r && p.has_more && (!o->number || p.left > 0));
	queue_json_list_end(&out);
	queue_json_members(&out, json_pack("{s:I, s:b, s:b}", "last_id", (json_int_t)p.since,
					 "has_more", (int)p.has_more, "has_gap", (int)p.has_gap));
	return queue_json_end(&out, r);
}

/* ---- text ---- */

static const struct table_column columns[] = {
	{"ID", .is_number = true},
	{"TIME", .drop = 1},
	{"KIND"},
	{"JOB", .is_number = true},
	{"NODE", .min = 6},
	{"MESSAGE", .min = 16},
};

static void put_row(struct table *t, const struct store_event *v)
{
	CLEANUP(buf_done) struct buf message = {0};
	char time[RECORD_TIME_LEN];

	record_time_text(v->ts_ms, time);
	table_row(t);
	table_text(t, ROW_DIM, "%" PRId64, v->id);
	table_text(t, ROW_DIM, "%s", time);
	table_text(t, ROW_TEAL, "%s", event_kind_name(v->kind));
	if (v->job)
		table_text(t, ROW_BOLD, "%" PRId64, v->job);
	else
		table_absent(t);
	if (v->node)
		table_text(t, ROW_PLAIN, "%s", v->node);
	else
		table_absent(t);
	queue_put_line(&message, v->message ? v->message : "", MESSAGE_CELLS);
	table_text(t, ROW_PLAIN, "%s", buf_str(&message));
}

static int print_text(struct queue *q, const struct events_options *o, struct err *e)
{
	CLEANUP(store_events_done) struct store_events l = {0};
	CLEANUP(buf_done) struct buf out = {0};
	CLEANUP(table_done) struct table t;
	struct row_style style;
	int r = store_events(
		q->store, o->since, o->job, o->number ? (size_t)o->number : SHOWN, &l, e);

	table_init(&t, columns, ARRAY_LEN(columns));
	if (r)
		return r;
	once_terminal(&style);
	for (size_t i = 0; i < l.n; i++)
		put_row(&t, &l.v[i]);
	if (l.n)
		table_put(&t, &style, true, &out);
	else
		buf_puts(&out, "no events like that\n");
	if (o->since >= 0 && l.has_gap)
		buf_printf(&out,
			"(some behind %" PRId64 " were removed already: they were too old)\n",
			o->since);
	if (l.has_more)
		buf_printf(&out,
			o->since >= 0 ? "(there are more; --since %" PRId64 " goes on)\n"
				      : "(older ones aren't shown, up to %" PRId64
					"; -n N shows more, --json all)\n",
			o->since >= 0 ? l.last_id : l.v[0].id - 1);
	return command_print(&out, e);
}

static int events_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct events_options *o = opts;
	CLEANUP(queue_close) struct queue q = {0};
	int r = queue_open(&q, p, &o->q, STORE_READ, e);

	(void)argc;
	(void)argv;
	if (r)
		return r;
	return q.json ? print_json(&q, o, e) : print_text(&q, o, e);
}

#define AT(member) .offset = offsetof(struct events_options, member)
static const struct option_spec options[] = {
	{.name = "since",
		.arg = "ID",
		.kind = OPTION_INT,
		AT(since),
		.min = 0,
		.max = INFINITY,
		.text = "only those behind that number, the oldest first: page forward without gaps"},
	{.name = "job",
		.arg = "ID",
		.kind = OPTION_INT,
		AT(job),
		.min = 1,
		.max = INFINITY,
		.text = "only those of that job",
		.complete = COMPLETE_JOB},
	{.letter = 'n',
		.name = "number",
		.arg = "N",
		.kind = OPTION_INT,
		AT(number),
		.min = 1,
		.max = 1000000,
		.text = "at most so many (text: 50; JSON: all)"},
	QUEUE_OPTION_ROWS(struct events_options),
	OPTION_SPEC_END,
};

extern const struct command cmd_queue_events;
const struct command cmd_queue_events = {
	.name = "queue events",
	.args = "",
	.summary = "what happened to jobs and nodes",
	.about =
		"The newest ones, oldest first. With --since the oldest behind that number: take last_id\n"
		"of the answer as the next --since, and nothing is missed. has_gap says that some behind\n"
		"it were too old to be kept.",
	.examples = "$ gpustow queue events -n 20\n"
		    "$ gpustow queue events --since 120 --json",
	.options = options,
	.options_size = sizeof(struct events_options),
	.defaults = defaults,
	.needs_locale = true,
	.abbreviations = true,
	.wants_json = queue_wants_json,
	.exec = events_exec,
};
