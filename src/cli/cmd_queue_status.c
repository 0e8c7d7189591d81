/* `queue status`: the whole queue at one moment, as text for a screen or as one document (nvidb 9.2). */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/parse.h"
#include "base/text.h"
#include "cli/cmd_once.h"
#include "cli/cmd_queue_tui.h"
#include "cli/global.h"
#include "cli/job_table.h"
#include "cli/queue_alerts.h"
#include "cli/queue_json.h"
#include "cli/queue_keeper.h"
#include "cli/queue_lanes.h"
#include "cli/queue_nodes.h"
#include "queue/daemon_client.h"
#include "queue/record_json.h"
#include "svc/backup.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
	RECENT = 10,
	ALERTS_JSON = 20,
	ALERTS_TEXT = 10,
	ACTIVE_TEXT = 100, /* rows of the table; JSON has them all */
	COMMAND_TEXT = 400,
	TROUBLE_CELLS = 120,
	STUCK_INTERVALS = 4,
	PAGE = 1000, /* rows that are read at once */
};

struct status_options {
	struct queue_options q;
	bool procs, with_ignored;
};

/* What is shown, read once. */
struct status {
	struct cluster c;
	struct store_jobs running, pending; /* for text, as many as it shows */
	struct store_jobs recent;
	struct store_alerts alerts;
	struct store_lease_row lease;
	struct keeper_state keeper;
	int64_t now_ms, last_tick_ms; /* 0: there was none */
	json_t *daemon; /* its state; NULL: none runs */
};

static void status_done(struct status *s)
{
	cluster_done(&s->c);
	store_jobs_done(&s->running);
	store_jobs_done(&s->pending);
	store_jobs_done(&s->recent);
	store_alerts_done(&s->alerts);
	free(s->lease.owner);
	json_decref(s->daemon);
}

static int read_last_tick(struct queue *q, int64_t *ret, struct err *e)
{
	CLEANUP_FREE char *text = NULL;
	int r = store_meta_get(q->store, "last_tick_at", &text, e);

	if (r == -ENOENT)
		return 0;
	/* What can't be read is as if it had never been. */
	if (!r && parse_int64(text, ret))
		*ret = 0;
	return r;
}

static int read_jobs(struct queue *q, struct status *s, struct err *e)
{
	struct store_question running = {.states = 1u << JOB_STATE_RUNNING,
		.limit = ACTIVE_TEXT,
		.command_max = COMMAND_TEXT};
	struct store_question pending = {
		.order = STORE_BY_TURN, .limit = ACTIVE_TEXT, .command_max = COMMAND_TEXT};
	struct store_question recent = {
		.states = JOB_STATES_TERMINAL, .order = STORE_BY_END, .limit = RECENT};
	int r = 0;

	/* JSON has all of them, and reads them as it writes. */
	if (!q->json) {
		recent.command_max = COMMAND_TEXT;
		r = store_jobs(q->store, &running, &s->running, e);
		if (!r)
			r = store_jobs(q->store, &pending, &s->pending, e);
	}
	return r ? r : store_jobs(q->store, &recent, &s->recent, e);
}

static int read_all(struct queue *q, struct status *s, struct err *e)
{
	int r = cluster_load(q->store, &q->config, s->now_ms, false, &s->c, e);

	if (!r)
		r = read_jobs(q, s, e);
	if (!r)
		r = store_alerts(q->store, STORE_ALERTS_OPEN, q->json ? ALERTS_JSON : ALERTS_TEXT,
			&s->alerts, e);
	if (!r)
		r = store_lease_read(q->store, &s->lease, e);
	if (!r)
		r = keeper_state(q->home, &s->keeper, e);
	if (!store_is_elsewheres(q->store))
		s->daemon = daemon_state(q->path, store_queue(q->store));
	return r ? r : read_last_tick(q, &s->last_tick_ms, e);
}

/* ---- JSON ---- */

/* All jobs of a question, a page at a time. */
static int put_jobs(struct queue *q, struct queue_json *out, const char *key,
	struct store_question *question, int64_t now_ms, struct err *e)
{
	bool has_more = true;
	int r = 0;

	queue_json_list(out, key);
	question->limit = PAGE;
	while (!r && has_more) {
		CLEANUP(store_jobs_done) struct store_jobs page = {0};

		r = store_jobs(q->store, question, &page, e);
		for (size_t i = 0; !r && i < page.n; i++)
			queue_json_item(out, record_job(&page.v[i], now_ms));
		has_more = page.has_more && page.n;
		if (page.n)
			question->behind_id = page.v[page.n - 1].id;
	}
	queue_json_list_end(out);
	return r;
}

/* Jobs by state as the record has it: held ones are pending. */
static json_t *counts_json(const struct store_counts *c)
{
	json_t *o = json_object();

	for (int i = JOB_STATE_PENDING; i < JOB_STATE_N; i++)
		json_object_set_new(o, job_state_name((enum job_state)i),
			json_integer(c->by_state[i] + (i == JOB_STATE_PENDING ? c->held : 0)));
	return o;
}

static json_t *lock_json(const struct status *s)
{
	const struct store_lease_row *l = &s->lease;

	if (!l->is_held)
		return json_null();
	return json_pack("{s:s, s:s, s:o, s:o}", "name", "tick", "owner", l->owner ? l->owner : "",
		"acquired_at", record_time(l->acquired_wall_ms), "expires_at",
		l->expires_in_ms > 0 ? record_time(s->now_ms + l->expires_in_ms) : json_null());
}

static const char *placement_name(enum queue_placement p)
{
	return p == QUEUE_PACK ? "pack" : "spread";
}

static json_t *alerts_json(const struct store_alerts *l)
{
	json_t *a = json_array();

	for (size_t i = 0; i < l->n; i++)
		json_array_append_new(a, record_alert(&l->v[i]));
	return a;
}

static json_t *head_json(const struct queue *q, const struct status *s)
{
	const struct queue_settings *set = &q->config.settings;
	json_t *o = json_object();

	json_object_set_new(o, "generated_at", record_time(s->now_ms));
	json_object_set_new(o, "db_path", json_string(q->path));
	json_object_set_new(o, "last_tick_at", record_time(s->last_tick_ms));
	json_object_set_new(o, "last_backup_at", record_time(backup_last_ms(q->store)));
	json_object_set_new(o, "tick_lock", lock_json(s));
	json_object_set_new(o, "keeper", queue_keeper_json(&s->keeper));
	json_object_set_new(o, "settings",
		json_pack("{s:I, s:I, s:s}", "headroom_mb", (json_int_t)set->headroom_mib,
			"max_jobs_per_gpu", (json_int_t)set->max_jobs_per_gpu, "placement",
			placement_name(set->placement)));
	json_object_set_new(o, "counts", counts_json(&s->c.counts));
	return o;
}

static int put_lanes(struct queue *q, const struct status *s, struct queue_json *out, struct err *e)
{
	int r = 0;

	queue_json_list(out, "lanes");
	for (size_t i = 0; !r && i < s->c.n_lanes; i++) {
		json_t *one;

		r = queue_lane_json(q, &s->c, &s->c.lanes[i], &one, e);
		if (!r)
			queue_json_item(out, one);
	}
	queue_json_list_end(out);
	return r;
}

static int print_json(
	struct queue *q, const struct status *s, const struct nodes_view *view, struct err *e)
{
	const struct store_counts *counts = &s->c.counts;
	struct store_question held = {.held = true}, active = {.states = JOB_STATES_ACTIVE};
	struct queue_json out;
	int r;

	queue_json_begin(&out, e);
	queue_json_members(&out, head_json(q, s));
	r = put_jobs(q, &out, "held", &held, s->now_ms, e);
	queue_json_members(&out, json_pack("{s:o}", "nodes", queue_nodes_json(&s->c, view)));
	if (!r)
		r = put_lanes(q, s, &out, e);
	if (!r)
		r = put_jobs(q, &out, "jobs", &active, s->now_ms, e);
	queue_json_list(&out, "recent");
	for (size_t i = 0; i < s->recent.n; i++)
		queue_json_item(&out, record_job(&s->recent.v[i], s->now_ms));
	queue_json_list_end(&out);
	queue_json_members(
		&out, json_pack("{s:o, s:I, s:I, s:o, s:o}", "alerts", alerts_json(&s->alerts),
			      "open_alerts", (json_int_t)counts->open_alerts, "pending_reaps",
			      (json_int_t)counts->pending_reaps, "ignored_nodes",
			      queue_nodes_ignored(&s->c), "daemon",
			      s->daemon ? json_incref(s->daemon) : json_null()));
	return queue_json_end(&out, r);
}

/* ---- text ---- */

static void put_age(struct row *r, const char *before, int64_t ms)
{
	CLEANUP(buf_done) struct buf b = {0};

	text_put_duration(&b, ms > 0 ? ms : 0);
	row_printf(r, ROW_DIM, "%s%s ago", before, buf_str(&b));
}

static void put_trouble(struct row *r, const json_t *daemon, const char *key, const char *what)
{
	const char *text = json_string_value(json_object_get(daemon, key));
	CLEANUP(buf_done) struct buf line = {0};

	if (!text)
		return;
	queue_put_line(&line, text, TROUBLE_CELLS);
	row_printf(r, ROW_AMBER, ", %s: %s", what, buf_str(&line));
}

static void put_daemon(struct row *r, const json_t *daemon)
{
	int64_t age = json_integer_value(json_object_get(daemon, "last_pass_age_ms"));
	int64_t interval = json_integer_value(json_object_get(daemon, "interval_ms"));

	row_printf(r, ROW_TEAL, ", daemon %" PRId64 ", %" PRId64 " passes",
		(int64_t)json_integer_value(json_object_get(daemon, "pid")),
		(int64_t)json_integer_value(json_object_get(daemon, "passes")));
	/* It answers, but what it's there for doesn't happen. */
	if (age > STUCK_INTERVALS * interval)
		row_printf(r, ROW_AMBER, ", the last one %" PRId64 " s ago", age / 1000);
	put_trouble(r, daemon, "lock_owner", "it waits for the lease of");
	put_trouble(r, daemon, "record_busy", "what happens can't be written down yet");
	put_trouble(r, daemon, "config_error", "configuration");
	put_trouble(r, daemon, "last_error", "last error");
	put_trouble(r, daemon, "notify_problems", "alerts");
	put_trouble(r, daemon, "backup_error", "backup");
}

static void put_head(const struct queue *q, const struct status *s, const struct row_style *style,
	struct buf *out)
{
	int64_t last_backup_ms = backup_last_ms(q->store);
	struct row r;

	row_begin(&r, style, out);
	row_text(&r, ROW_BOLD, q->path);
	if (s->last_tick_ms)
		put_age(&r, ", last tick ", s->now_ms - s->last_tick_ms);
	else
		row_text(&r, ROW_AMBER, ", no tick yet");
	if (last_backup_ms)
		put_age(&r, ", last backup ", s->now_ms - last_backup_ms);
	if (s->daemon)
		put_daemon(&r, s->daemon);
	else if (s->lease.is_held)
		row_printf(
			&r, ROW_TEAL, ", a tick runs: %s", s->lease.owner ? s->lease.owner : "?");
	if (s->keeper.running)
		row_text(&r, ROW_GREEN, ", keeper up");
	else if (s->keeper.installed)
		row_text(&r, ROW_RED, ", keeper DOWN");
	if (store_is_elsewheres(q->store))
		row_text(&r, ROW_AMBER, ", read only: it belongs to another machine");
	row_end(&r);
}

static void put_title(const struct row_style *style, const char *title, struct buf *out)
{
	struct row r;

	buf_putc(out, '\n');
	row_begin(&r, style, out);
	row_text(&r, ROW_BOLD, title);
	row_end(&r);
}

static void put_alerts(const struct status *s, const struct row_style *style, struct buf *out)
{
	int64_t open = s->c.counts.open_alerts;
	CLEANUP_FREE char *title = xasprintf("ALERTS (%" PRId64 " open)", open);

	if (!open)
		return;
	put_title(style, title, out);
	queue_alerts_put(s->alerts.v, s->alerts.n, false, style, out);
	if ((int64_t)s->alerts.n < open)
		buf_puts(out, "(the newest; `queue alerts` lists them all)\n");
}

/* Running ones, then those that wait, in their turn; no more than a screen or two of them. */
static void put_active(const struct status *s, const struct row_style *style, struct buf *out)
{
	size_t n = 0, all = s->running.n + s->pending.n,
	       fit = all < ACTIVE_TEXT ? all : ACTIVE_TEXT;
	CLEANUP_FREE struct job *v = xcalloc(fit + 1, sizeof(*v));
	const struct store_counts *c = &s->c.counts;
	int64_t total = c->by_state[JOB_STATE_RUNNING] + c->by_state[JOB_STATE_PENDING] + c->held;

	/* Shallow copies: the lists keep what they own. */
	for (size_t i = 0; i < s->running.n && n < fit; i++)
		v[n++] = s->running.v[i];
	for (size_t i = 0; i < s->pending.n && n < fit; i++)
		v[n++] = s->pending.v[i];
	if (n)
		job_table_put(v, n, s->now_ms, style, out);
	if ((int64_t)n < total)
		buf_printf(out, "(and %" PRId64 " more; `job ls --active` lists them)\n",
			total - (int64_t)n);
}

static int print_text(
	struct queue *q, const struct status *s, const struct nodes_view *view, struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0}, counts = {0}, lanes = {0};
	struct row_style style;
	struct row r;

	once_terminal(&style);
	put_head(q, s, &style, &out);
	put_alerts(s, &style, &out);
	put_title(&style, "NODES", &out);
	queue_nodes_put(&s->c, view, &style, &out);
	if (queue_lanes_put(&s->c, NULL, false, &style, &lanes)) {
		put_title(&style, "LANES", &out);
		buf_puts(&out, buf_str(&lanes));
	}
	job_counts_put(&s->c.counts, &style, &counts);
	buf_putc(&out, '\n');
	row_begin(&r, &style, &out);
	row_text(&r, ROW_BOLD, "JOBS");
	row_printf(&r, ROW_PLAIN, "  %s", buf_str(&counts));
	row_end(&r);
	put_active(s, &style, &out);
	if (s->recent.n) {
		put_title(&style, "RECENTLY FINISHED", &out);
		job_table_put(s->recent.v, s->recent.n, s->now_ms, &style, &out);
	}
	if (s->c.counts.pending_reaps)
		buf_printf(&out,
			"\n%" PRId64
			" given-up attempt%s may still run on nodes that are away; what's left is ended when they answer\n",
			s->c.counts.pending_reaps, s->c.counts.pending_reaps == 1 ? "" : "s");
	return command_print(&out, e);
}

static int status_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct status_options *o = opts;
	CLEANUP(queue_close) struct queue q = {0};
	CLEANUP(status_done) struct status s = {0};
	struct nodes_view view = {
		.with_procs = o->procs, .with_ignored = o->with_ignored, .is_masked = true};
	int r = queue_open(&q, p, &o->q, STORE_READ, e);

	(void)argc;
	(void)argv;
	if (r)
		return r;
	queue_refresh(&q);
	s.now_ms = view.now_ms = clock_wall_ms();
	r = read_all(&q, &s, e);
	if (r)
		return r;
	return q.json ? print_json(&q, &s, &view, e) : print_text(&q, &s, &view, e);
}

/* Alone on a terminal it's the screen; where its output goes elsewhere, or something particular is asked for, the text. */
static int bare_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct status_options *o = opts;
	bool is_plain = o->q.json || p->global->json || o->q.tick || o->q.no_tick || o->procs ||
			o->with_ignored;

	if (!is_plain && cmd_queue_tui_has_terminal())
		return cmd_queue_tui_open(p, &o->q, e);
	return status_exec(p, opts, argc, argv, e);
}

#define AT(member) .offset = offsetof(struct status_options, member)
static const struct option_spec options[] = {
	{.name = "procs",
		.kind = OPTION_FLAG,
		AT(procs),
		.text = "a table of the processes on the cards, ours and others'"},
	{.name = "include-ignored",
		.kind = OPTION_FLAG,
		AT(with_ignored),
		.text = "nodes that are ignored, too"},
	QUEUE_OPTION_ROWS(struct status_options),
	QUEUE_REFRESH_ROWS(struct status_options),
	OPTION_SPEC_END,
};

extern const struct command cmd_queue_status, cmd_queue;
const struct command cmd_queue_status = {
	.name = "queue status",
	.args = "",
	.summary = "the whole queue: alerts, nodes, jobs",
	.about =
		"Alerts that are open, the nodes with their cards, the jobs that run and wait, and the\n"
		"ten that ended last. JSON has every job that waits or runs; the tables show what fits,\n"
		"and say what they leave out.",
	.examples = "$ gpustow queue status\n$ gpustow queue status --no-tick --json",
	.options = options,
	.options_size = sizeof(struct status_options),
	.needs_locale = true,
	.abbreviations = true,
	.wants_json = queue_wants_json,
	.exec = status_exec,
};
const struct command cmd_queue = {
	.name = "queue",
	.args = "",
	.summary = "the cluster queue: jobs on the cards of many machines",
	.about =
		"Without a further word, on a terminal, it's the screen (`queue tui`); where the output goes\n"
		"elsewhere, or with an option of it, `queue status`. `q` is short for it.",
	.examples = "$ gpustow queue",
	.options = options,
	.options_size = sizeof(struct status_options),
	.needs_locale = true,
	.abbreviations = true,
	.wants_json = queue_wants_json,
	.exec = bare_exec,
};
