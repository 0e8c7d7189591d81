/* `queue lanes`, and what it shares with the other commands that show lanes. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/parse.h"
#include "base/text.h"
#include "cli/cmd_once.h"
#include "cli/job_table.h"
#include "cli/queue_candidates.h"
#include "cli/queue_lanes.h"
#include "show/table.h"

#include <inttypes.h>
#include <string.h>

enum { NAME_CELLS = 30, WHAT_CELLS = 60, QUEUED_TEXT = 200 };

/* ---- JSON ---- */

int queue_lane_json(struct queue *q, const struct cluster *c, const struct cluster_lane *l,
	json_t **ret, struct err *e)
{
	CLEANUP(store_jobs_done) struct store_jobs jobs = {0};
	struct store_question question = {.order = STORE_BY_LANE, .lane = l->row->name};
	int r = l->n ? store_jobs(q->store, &question, &jobs, e) : 0;

	if (r == 0)
		*ret = cluster_lane_json(c, l, &jobs);
	return r;
}

/* ---- text ---- */

static const struct table_column lane_columns[] = {
	{"LANE"},
	{"STATE"},
	{"RUNNER"},
	{"RUN", .is_number = true},
	{"QUEUED", .is_number = true},
	{"NOW", .min = 6},
	{"NEXT", .min = 6},
	{"BLOCKED", .min = 10},
};

static void put_job_name(struct table *t, enum row_color color, const struct job *j)
{
	CLEANUP(buf_done) struct buf b = {0};

	if (!j) {
		table_absent(t);
		return;
	}
	buf_printf(&b, "%" PRId64 " ", j->id);
	queue_put_line(&b, j->name && *j->name ? j->name : j->command, NAME_CELLS);
	table_text(t, color, "%s", buf_str(&b));
}

static const char *state_word(const struct cluster_lane *l)
{
	return l->row->is_paused    ? "paused"
	       : l->why_not[0]	    ? "stopped"
	       : l->row->is_stopped ? "stopped"
				    : "open";
}

static const char *runner_word(const struct cluster *c, const struct cluster_lane *l)
{
	if (!l->row->has_runner)
		return "off";
	if (cluster_lane_is_up(c, l))
		return "up";
	return l->row->acked_generation && l->n ? "DOWN" : "-";
}

static void put_lane(struct table *t, const struct cluster *c, const struct cluster_lane *l)
{
	CLEANUP(buf_done) struct buf blocked = {0}, line = {0};
	const char *state = state_word(l), *runner = runner_word(c, l);

	cluster_lane_blocked(c, l, &blocked);
	if (cluster_lane_is_request(l))
		buf_printf(&blocked, "%sits node hasn't acknowledged the last change",
			blocked.len ? "; " : "");
	table_row(t);
	table_text(t, ROW_BOLD, "%s", l->row->name);
	table_text(t, !strcmp(state, "open") ? ROW_PLAIN : ROW_AMBER, "%s", state);
	table_text(t,
		!strcmp(runner, "up")	  ? ROW_GREEN
		: !strcmp(runner, "DOWN") ? ROW_RED
					  : ROW_DIM,
		"%s", runner);
	table_text(t, ROW_PLAIN, "%zu", l->n_running);
	table_text(t, ROW_PLAIN, "%zu", l->n - l->n_running);
	put_job_name(t, ROW_GREEN, l->n_running ? &l->jobs[0] : NULL);
	put_job_name(t, ROW_PLAIN, l->n > l->n_running ? &l->jobs[l->n_running] : NULL);
	queue_put_line(&line, buf_str(&blocked), 120);
	if (line.len)
		table_text(t, ROW_AMBER, "%s", buf_str(&line));
	else
		table_absent(t);
}

size_t queue_lanes_put(const struct cluster *c, const char *only, bool all,
	const struct row_style *style, struct buf *out)
{
	CLEANUP(table_done) struct table t;
	size_t n;

	table_init(&t, lane_columns, ARRAY_LEN(lane_columns));
	for (size_t i = 0; i < c->n_lanes; i++) {
		const struct cluster_lane *l = &c->lanes[i];
		bool is_idle = !l->n && !l->row->is_paused && !l->row->is_stopped;

		if ((only && strcmp(only, l->row->node) != 0) || (is_idle && !all))
			continue;
		put_lane(&t, c, l);
	}
	n = t.n_rows;
	if (n)
		table_put(&t, style, true, out);
	return n;
}

static void put_queued(const struct cluster_lane *l, const struct row_style *style, struct buf *out)
{
	static const struct table_column columns[] = {
		{"#", .is_number = true},
		{"ID", .is_number = true},
		{"STATE"},
		{"NAME", .min = 6, .drop = 1},
		{"VRAM", .is_number = true},
		{"WHAT", .min = 10},
	};
	size_t n = l->n - l->n_running, shown = n < QUEUED_TEXT ? n : QUEUED_TEXT;
	CLEANUP(table_done) struct table t;

	table_init(&t, columns, ARRAY_LEN(columns));
	for (size_t i = 0; i < shown; i++) {
		const struct job *j = &l->jobs[l->n_running + i];
		CLEANUP(buf_done) struct buf name = {0}, size = {0}, what = {0};

		queue_put_line(&name, j->name ? j->name : "", NAME_CELLS);
		queue_put_size(&size, j->gpus ? j->vram_mib : -1);
		if (job_is_held(j))
			queue_put_line(&what, j->held_reason, WHAT_CELLS);
		else
			queue_put_line(&what, j->command ? j->command : "", WHAT_CELLS);
		table_row(&t);
		table_text(&t, ROW_DIM, "%zu", i + 1);
		table_text(&t, ROW_BOLD, "%" PRId64, j->id);
		table_text(&t, job_color(j), "%s",
			job_is_held(j) ? "held"
			: j->cancel_ms ? "to be cancelled"
			: j->lane_next ? "to leave"
			: j->is_bound  ? "handed out"
				       : "pending");
		if (name.len)
			table_text(&t, ROW_PLAIN, "%s", buf_str(&name));
		else
			table_absent(&t);
		table_text(&t, ROW_TEAL, "%s", buf_str(&size));
		table_text(&t, job_is_held(j) ? ROW_AMBER : ROW_DIM, "%s", buf_str(&what));
	}
	table_put(&t, style, true, out);
	if (n > shown)
		buf_printf(out, "(and %zu more; --json has them all)\n", n - shown);
}

void queue_lane_put(const struct cluster *c, const struct cluster_lane *l,
	const struct row_style *style, struct buf *out)
{
	CLEANUP(buf_done) struct buf blocked = {0};
	const char *state = state_word(l);
	struct row r;

	row_begin(&r, style, out);
	row_text(&r, ROW_BOLD, l->row->name);
	row_printf(&r, !strcmp(state, "open") ? ROW_PLAIN : ROW_AMBER, "  %s", state);
	row_printf(&r, ROW_PLAIN, ", runner %s, %" PRId64 " at a time, %zu running, %zu queued",
		runner_word(c, l), l->row->concurrency, l->n_running, l->n - l->n_running);
	row_end(&r);
	cluster_lane_blocked(c, l, &blocked);
	if (blocked.len) {
		row_begin(&r, style, out);
		row_wrap(&r, ROW_AMBER, 2, buf_str(&blocked));
	}
	if (cluster_lane_is_request(l)) {
		row_begin(&r, style, out);
		row_wrap(&r, ROW_AMBER, 2,
			"its node hasn't acknowledged the last change: until then what it has from before goes on");
	}
	if (l->n_running) {
		buf_puts(out, "\nRUNNING\n");
		job_table_put(l->jobs, l->n_running, c->now_ms, style, out);
	}
	if (l->n > l->n_running) {
		buf_puts(out, "\nQUEUED\n");
		put_queued(l, style, out);
	}
}

/* ---- names ---- */

static int make_lane(struct queue *q, const char *node, const char *cards, struct err *e)
{
	int r = store_begin(q->store, NULL, e);

	if (r == 0)
		r = store_lane_make(q->store, node, cards, e);
	if (r < 0) {
		store_abort(q->store);
		return r;
	}
	return store_commit(q->store, e);
}

int queue_lane_find(struct queue *q, struct cluster *c, const char *word,
	const struct cluster_lane **ret, struct err *e)
{
	CLEANUP_FREE char *node = NULL, *cards = NULL, *name = NULL;
	int r = cluster_lane_resolve(c, word, &node, &cards, e);

	if (r < 0)
		return r;
	name = xasprintf("%s:%s", node, cards);
	*ret = cluster_lane_named(c, name);
	if (*ret)
		return 0;
	r = make_lane(q, node, cards, e);
	if (r < 0)
		return r;
	cluster_done(c);
	r = cluster_load(q->store, &q->config, clock_wall_ms(), false, c, e);
	*ret = r < 0 ? NULL : cluster_lane_named(c, name);
	return r < 0 || *ret ? r : err_set(e, -ENOENT, "there's no lane %s", name);
}

int queue_lane_parse_place(
	const char *option, const char *word, struct store_place *ret, struct err *e)
{
	int64_t n;

	*ret = (struct store_place){0};
	if (!word || !strcmp(word, "tail"))
		return 0;
	if (!strcmp(word, "head")) {
		ret->how = STORE_PLACE_HEAD;
		return 0;
	}
	if (parse_int64(word, &n) < 0 || n < 1)
		return err_set(e, -EINVAL,
			"--%s takes head, tail or a place counted from 1, not '%.60s'", option,
			word);
	*ret = (struct store_place){STORE_PLACE_AT, n};
	return 0;
}

/* ---- the command ---- */

struct lanes_options {
	struct queue_options q;
	const char *node;
};

static int print_json(struct queue *q, const struct cluster *c, const char *only, struct err *e)
{
	json_t *list = json_array(), *one;
	int r = 0;

	for (size_t i = 0; r == 0 && i < c->n_lanes; i++) {
		if (only && strcmp(only, c->lanes[i].row->node) != 0)
			continue;
		r = queue_lane_json(q, c, &c->lanes[i], &one, e);
		if (r == 0)
			json_array_append_new(list, one);
	}
	if (r == 0)
		return queue_print_json(json_pack("{s:o}", "lanes", list), e);
	json_decref(list);
	return r;
}

static int lanes_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct lanes_options *o = opts;
	CLEANUP(queue_close) struct queue q = {0};
	CLEANUP(cluster_done) struct cluster c = {0};
	CLEANUP(buf_done) struct buf out = {0};
	const char *only = NULL;
	struct row_style style;
	size_t node;
	int r = queue_open(&q, p, &o->q, STORE_READ, e);

	(void)argc;
	(void)argv;
	if (r)
		return r;
	queue_refresh(&q);
	r = cluster_load(q.store, &q.config, clock_wall_ms(), false, &c, e);
	if (r == 0 && o->node) {
		r = cluster_find_node(&c, o->node, &node, e);
		only = r == 0 ? cluster_node_name(&c.nodes[node]) : NULL;
	}
	if (r)
		return r;
	if (q.json)
		return print_json(&q, &c, only, e);
	once_terminal(&style);
	if (!queue_lanes_put(&c, only, true, &style, &out))
		buf_puts(&out, "no lanes are known yet; `queue tick` looks at the nodes\n");
	return command_print(&out, e);
}

static const struct option_spec specs[] = {
	{.name = "node",
		.arg = "NAME",
		.kind = OPTION_TEXT,
		.offset = offsetof(struct lanes_options, node),
		.text = "only that node's",
		.complete = COMPLETE_NODE},
	QUEUE_OPTION_ROWS(struct lanes_options),
	QUEUE_REFRESH_ROWS(struct lanes_options),
	OPTION_SPEC_END,
};

extern const struct command cmd_queue_lanes;
const struct command cmd_queue_lanes = {
	.name = "queue lanes",
	.args = "",
	.summary = "the serial queues of the cards: what runs, what's next, what keeps them",
	.about =
		"A lane is a card's own queue, strictly in order. Its node has all of it and starts the\n"
		"next job when the last one ends, with nobody logged in anywhere. RUNNER is `up` while\n"
		"the node's agent was seen alive with the lane, `off` where passes start its jobs.",
	.examples = "$ gpustow queue lanes\n$ gpustow queue lanes --no-tick --json",
	.options = specs,
	.options_size = sizeof(struct lanes_options),
	.needs_locale = true,
	.wants_json = queue_wants_json,
	.exec = lanes_exec,
};
