/*
 * `queue events`: what happened, in pages without gaps. With -f what happens, too: each time that something was written the
 * record is read on from where it was, so that it doesn't matter who tells, or whether a daemon goes and comes meanwhile.
 */
#include "cli/queue_common.h"
#include "cli/queue_json.h"
#include "cli/queue_watch.h"

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
	bool follow;
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

/* ---- following ---- */

/* A line of its own each: the widths of what comes later aren't known. */
static void put_line(const struct row_style *style, const struct store_event *v, struct buf *out)
{
	CLEANUP(buf_done) struct buf message = {0}, node = {0};
	char time[RECORD_TIME_LEN], job[24] = "-";
	struct row row;

	record_time_text(v->ts_ms, time);
	if (v->job)
		snprintf(job, sizeof(job), "%" PRId64, v->job);
	queue_put_line(&node, v->node ? v->node : "-", 32);
	queue_put_line(&message, v->message ? v->message : "", MESSAGE_CELLS);
	row_begin(&row, style, out);
	row_printf(&row, ROW_DIM, "%6" PRId64 "  %s  ", v->id, time);
	row_printf(&row, ROW_TEAL, "%-16s  ", event_kind_name(v->kind));
	row_printf(&row, v->job ? ROW_BOLD : ROW_DIM, "%6s  ", job);
	row_printf(&row, ROW_PLAIN, "%-10s  %s", buf_str(&node), buf_str(&message));
	row_end(&row);
}

static void put_document(json_t *o, struct buf *out)
{
	CLEANUP_FREE char *text = json_dumps(o, JSON_COMPACT);

	json_decref(o);
	if (text)
		buf_printf(out, "%s\n", text);
}

/* One page behind `since`, or the newest. 128 + SIGPIPE: nobody reads any more. */
static int print_next(struct queue *q, const struct events_options *o,
	const struct row_style *style, size_t limit, int64_t *since, bool *ret_more, struct err *e)
{
	CLEANUP(store_events_done) struct store_events l = {0};
	CLEANUP(buf_done) struct buf out = {0};
	int r = store_events(q->store, *since, o->job, limit, &l, e);

	if (r)
		return r;
	if (*since >= 0 && l.has_gap && q->json)
		put_document(
			json_pack("{s:b, s:I}", "has_gap", 1, "since", (json_int_t)*since), &out);
	else if (*since >= 0 && l.has_gap)
		buf_printf(&out,
			"(some behind %" PRId64 " were removed already: they were too old)\n",
			*since);
	for (size_t i = 0; i < l.n; i++) {
		if (q->json)
			put_document(record_event(&l.v[i]), &out);
		else
			put_line(style, &l.v[i], &out);
	}
	*ret_more = *since >= 0 && l.has_more;
	*since = l.last_id;
	r = out.len ? command_print(&out, e) : 0;
	return r == -EPIPE ? 128 + SIGPIPE : r;
}

/* The number of the newest event, whatever it's about: with it the following begins. */
static int newest_event(struct queue *q, int64_t *ret, struct err *e)
{
	struct store_counts counts = {0};
	int r = store_counts(q->store, &counts, e);

	*ret = counts.last_event;
	return r;
}

static int follow_loop(
	struct queue_watch *w, struct queue *q, const struct events_options *o, struct err *e)
{
	int64_t since = o->since, newest = 0;
	bool has_more = false;
	struct row_style style;
	int r = newest_event(q, &newest, e);

	once_terminal(&style);
	/* What was before is only shown as far as it's asked for, or fits a screen; a program has asked for what comes. */
	if (!r && since < 0 && (o->number || !q->json))
		r = print_next(
			q, o, &style, o->number ? (size_t)o->number : SHOWN, &since, &has_more, e);
	/* Of one job's, or of none at all, the last may be older than what there is. */
	if (o->since < 0 && since < newest)
		since = newest;
	for (;;) {
		enum queue_woke why;

		do {
			if (!r)
				r = print_next(q, o, &style, PAGE, &since, &has_more, e);
		} while (!r && has_more);
		if (!r)
			r = queue_watch_sleep(w, &why, e);
		if (r)
			return r;
		if (why == QUEUE_WOKE_SIGNAL)
			return 128 + w->signal_no;
		if (why == QUEUE_WOKE_NO_READER)
			return 128 + SIGPIPE;
	}
}

static int follow(struct queue *q, const struct events_options *o, struct err *e)
{
	struct queue_watch w;
	int r = queue_watch_begin(&w, q, e);

	if (!r)
		r = follow_loop(&w, q, o, e);
	queue_watch_done(&w);
	return r;
}

static int events_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct events_options *o = opts;
	CLEANUP(queue_close) struct queue q = {0};
	int r = queue_open(&q, p, &o->q, STORE_READ, e);

	(void)argc;
	(void)argv;
	if (!r && o->follow && o->since >= 0 && o->number)
		return err_set(e, -EINVAL,
			"-f begins with the newest N (-n) or behind --since; give one of them");
	if (r)
		return r;
	if (o->follow)
		return follow(&q, o, e);
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
	{.letter = 'f',
		.name = "follow",
		.kind = OPTION_FLAG,
		AT(follow),
		.text = "and what comes, until Ctrl-C; with --json one document a line"},
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
		"it were too old to be kept.\n"
		"\n"
		"With -f it goes on: what happens is shown as it happens, until Ctrl-C (exit code 130).\n"
		"Nothing is missed and nothing comes twice, whatever becomes of the daemon meanwhile. It\n"
		"begins behind --since, or with the newest (-n); with --json and neither of them, with\n"
		"what comes. Each event is one line of JSON then, and {\"has_gap\": true, \"since\": ID} is\n"
		"one where some were too old to be kept.",
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
