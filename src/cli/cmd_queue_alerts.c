/* `queue alerts` and `queue ack`: what a person should know of, until they say that they do. */
#include "cli/queue_alerts.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "cli/cmd_once.h"
#include "cli/queue_common.h"
#include "queue/record_json.h"
#include "show/table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 50, TITLE_CELLS = 200 };

struct alerts_options {
	struct queue_options q;
	bool all, detail;
	int64_t number;
};

/* ---- text ---- */

static const struct table_column columns[] = {
	{"ID", .is_number = true},
	{"TIME", .drop = 1},
	{"LEVEL"},
	{"KIND"},
	{"JOB", .is_number = true},
	{"NODE", .min = 6},
	{"WHAT", .min = 16},
};

static void put_row(struct table *t, const struct store_alert *a)
{
	CLEANUP(buf_done) struct buf title = {0};
	enum alert_severity level = alert_kind_severity(a->kind);
	char time[RECORD_TIME_LEN];

	record_time_text(a->ts_ms, time);
	table_row(t);
	table_text(t, a->acknowledged_ms ? ROW_DIM : ROW_BOLD, "%" PRId64, a->id);
	table_text(t, ROW_DIM, "%s", time);
	table_text(t,
		a->acknowledged_ms     ? ROW_DIM
		: level == ALERT_ERROR ? ROW_RED
				       : ROW_AMBER,
		"%s", alert_severity_name(level));
	table_text(t, ROW_PLAIN, "%s", alert_kind_name(a->kind));
	if (a->job)
		table_text(t, ROW_BOLD, "%" PRId64, a->job);
	else
		table_absent(t);
	if (a->node)
		table_text(t, ROW_PLAIN, "%s", a->node);
	else
		table_absent(t);
	queue_put_line(&title, a->title ? a->title : "", TITLE_CELLS);
	table_text(t, a->acknowledged_ms ? ROW_DIM : ROW_PLAIN, "%s%s", buf_str(&title),
		a->acknowledged_ms ? " (acknowledged)" : "");
}

static void put_detail(const struct store_alert *a, struct buf *out)
{
	const char *at = a->detail;

	buf_printf(out, "\n%" PRId64 ": %s\n", a->id,
		a->detail && *a->detail ? "" : "no output was kept");
	while (at && *at) {
		size_t n = strcspn(at, "\n");

		buf_puts(out, "  | ");
		text_put_clean(out, at, n);
		buf_putc(out, '\n');
		at += n + (at[n] == '\n');
	}
}

void queue_alerts_put(const struct store_alert *v, size_t n, bool with_detail,
	const struct row_style *style, struct buf *out)
{
	CLEANUP(table_done) struct table t;

	table_init(&t, columns, ARRAY_LEN(columns));
	for (size_t i = 0; i < n; i++)
		put_row(&t, &v[i]);
	if (n)
		table_put(&t, style, true, out);
	for (size_t i = 0; with_detail && i < n; i++)
		put_detail(&v[i], out);
}

static int print_text(
	const struct alerts_options *o, const struct store_alerts *l, int64_t open, struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0};
	struct row_style style;

	once_terminal(&style);
	queue_alerts_put(l->v, l->n, o->detail, &style, &out);
	if (!l->n)
		buf_puts(&out, o->all ? "no alerts\n" : "no open alerts\n");
	else if (!o->all && (int64_t)l->n < open)
		buf_printf(&out, "(the newest %zu of %" PRId64 " open ones; -n N shows more)\n",
			l->n, open);
	if (open)
		buf_puts(&out, "`queue ack ID` puts one away, `queue ack --all` all of them\n");
	return command_print(&out, e);
}

static int print_json(const struct store_alerts *l, int64_t open, struct err *e)
{
	json_t *list = json_array();

	for (size_t i = 0; i < l->n; i++)
		json_array_append_new(list, record_alert(&l->v[i]));
	return queue_print_json(
		json_pack("{s:o, s:I}", "alerts", list, "open", (json_int_t)open), e);
}

static int alerts_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct alerts_options *o = opts;
	CLEANUP(queue_close) struct queue q = {0};
	CLEANUP(store_alerts_done) struct store_alerts l = {0};
	struct store_counts counts = {0};
	int r = queue_open(&q, p, &o->q, STORE_READ, e);

	(void)argc;
	(void)argv;
	if (r)
		return r;
	queue_refresh(&q);
	r = store_alerts(q.store, o->all ? STORE_ALERTS_ALL : STORE_ALERTS_OPEN,
		o->number ? (size_t)o->number
		: q.json  ? 0
			  : SHOWN,
		&l, e);
	if (!r)
		r = store_counts(q.store, &counts, e);
	if (!r)
		r = q.json ? print_json(&l, counts.open_alerts, e)
			   : print_text(o, &l, counts.open_alerts, e);
	return r ? r : counts.open_alerts ? EXIT_FAILED : EXIT_OK;
}

/* ---- ack ---- */

struct ack_options {
	struct queue_options q;
	bool all;
};

static int take_ids(int argc, char **argv, bool all, struct id_list *ret, struct err *e)
{
	int r = 0;

	if (!argc == !all)
		return err_set(e, -EINVAL,
			all ? "numbers and --all say different things; give one of them"
			    : "say which alerts: numbers, as 3 or 3,5-8, or --all; `queue alerts` lists them");
	for (int i = 0; !r && i < argc; i++)
		r = queue_parse_ids(argv[i], ret, e);
	return r;
}

static int ack_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct ack_options *o = opts;
	CLEANUP(queue_close) struct queue q = {0};
	CLEANUP(id_list_done) struct id_list ids = {0};
	CLEANUP(buf_done) struct buf out = {0};
	int64_t n = 0;
	int r = take_ids(argc, argv, o->all, &ids, e);

	if (!r)
		r = queue_open(&q, p, &o->q, STORE_WRITE, e);
	if (!r)
		r = store_begin(q.store, NULL, e);
	if (r)
		return r;
	r = store_alert_ack(q.store, ids.v, ids.n, &n, e);
	if (r) {
		store_abort(q.store);
		return r;
	}
	r = store_commit(q.store, e);
	if (r)
		return r;
	if (q.json)
		return queue_print_json(
			json_pack("{s:b, s:I}", "ok", 1, "acknowledged", (json_int_t)n), e);
	buf_printf(&out, "%" PRId64 " alert%s acknowledged\n", n, n == 1 ? "" : "s");
	return command_print(&out, e);
}

#define AT(member) .offset = offsetof(struct alerts_options, member)
static const struct option_spec alerts_specs[] = {
	{.name = "all", .kind = OPTION_FLAG, AT(all), .text = "those that were acknowledged too"},
	{.name = "detail",
		.kind = OPTION_FLAG,
		AT(detail),
		.text = "with the end of the output that was kept with each"},
	{.letter = 'n',
		.name = "number",
		.arg = "N",
		.kind = OPTION_INT,
		AT(number),
		.min = 1,
		.max = 1000000,
		.text = "only the newest N (text: 50; JSON: all)"},
	QUEUE_OPTION_ROWS(struct alerts_options),
	QUEUE_REFRESH_ROWS(struct alerts_options),
	OPTION_SPEC_END,
};
static const struct option_spec ack_specs[] = {
	{.name = "all",
		.kind = OPTION_FLAG,
		.offset = offsetof(struct ack_options, all),
		.text = "all that are open"},
	QUEUE_OPTION_ROWS(struct ack_options),
	OPTION_SPEC_END,
};

extern const struct command cmd_queue_alerts, cmd_queue_ack;
const struct command cmd_queue_alerts = {
	.name = "queue alerts",
	.args = "",
	.summary = "what went wrong and nobody has acknowledged yet",
	.about = "Exit code 1 while any alert is open, however few are listed; 0 when none is.",
	.examples = "$ gpustow queue alerts --detail\n$ gpustow queue alerts --json",
	.options = alerts_specs,
	.options_size = sizeof(struct alerts_options),
	.needs_locale = true,
	.abbreviations = true,
	.wants_json = queue_wants_json,
	.exec = alerts_exec,
};
const struct command cmd_queue_ack = {
	.name = "queue ack",
	.args = "[ID...]",
	.summary = "acknowledge alerts",
	.about =
		"Numbers, lists and ranges as 3,5-8, or --all. It says how many were open until now.",
	.examples = "$ gpustow queue ack 3,5-8",
	.options = ack_specs,
	.options_size = sizeof(struct ack_options),
	.max_args = -1,
	.abbreviations = true,
	.wants_json = queue_wants_json,
	.exec = ack_exec,
};
