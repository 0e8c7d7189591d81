/*
 * `queue lane LANE [ACTION...]`: one lane, and what a person does with it. Each action is one transaction on the record; the
 * node hears of it with the next pass, and until it has acknowledged it, what was done here is a request, and is called so.
 */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/parse.h"
#include "base/text.h"
#include "cli/cmd_once.h"
#include "cli/queue_candidates.h"
#include "cli/queue_lanes.h"
#include "queue/record_json.h"

#include <inttypes.h>
#include <string.h>

struct lane_options {
	struct queue_options q;
	const char *to, *at;
	int64_t before, after;
	bool none, hard;
};

/* What an action works on. */
struct lane_work {
	struct queue *q;
	const struct lane_options *o;
	struct cluster *c;
	const struct cluster_lane *lane;
	const char *name; /* outlives a new load of the cluster */
	int argc; /* behind the action's word */
	char **argv;
	struct err *e;
};

enum { MAY_TO = 1, MAY_AT = 2, MAY_HARD = 4, MAY_TICK = 8, MAY_NO_TICK = 16 };

struct action {
	const char *word;
	int min_args, max_args;
	const char *args;
	int may; /* options that say something to it */
	int (*exec)(struct lane_work *w);
};

/* ---- helpers ---- */

static int begin(struct lane_work *w)
{
	return store_begin(w->q->store, NULL, w->e);
}

static int end(struct lane_work *w, int r)
{
	if (r < 0) {
		store_abort(w->q->store);
		return r;
	}
	return store_commit(w->q->store, w->e);
}

static int look_again(struct lane_work *w)
{
	int r;

	cluster_done(w->c);
	r = cluster_load(w->q->store, &w->q->config, clock_wall_ms(), false, w->c, w->e);
	w->lane = r < 0 ? NULL : cluster_lane_named(w->c, w->name);
	return r < 0 || w->lane ? r : err_set(w->e, -ENOENT, "there's no lane %s", w->name);
}

static json_t *lane_json(const struct lane_work *w)
{
	return cluster_lane_json(w->c, w->lane, NULL);
}

/* What waits, in its order. */
static json_t *order_json(const struct lane_work *w)
{
	json_t *a = json_array();

	for (size_t i = w->lane->n_running; i < w->lane->n; i++)
		json_array_append_new(a, json_integer(w->lane->jobs[i].id));
	return a;
}

/* Takes o. The sentence is for people; a request is called one. */
static int tell(struct lane_work *w, json_t *o, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static int tell(struct lane_work *w, json_t *o, const char *fmt, ...)
{
	CLEANUP(buf_done) struct buf text = {0}, out = {0};
	bool is_request = cluster_lane_is_request(w->lane);
	va_list ap;

	json_object_set_new(o, "request", json_boolean(is_request));
	if (w->q->json)
		return queue_print_json(o, w->e);
	json_decref(o);
	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	text_put_clean(&out, buf_str(&text), text.len);
	if (is_request) {
		buf_puts(&out, "; a request until ");
		text_put_clean(&out, w->lane->row->node, strlen(w->lane->row->node));
		buf_puts(&out, " has acknowledged it");
	}
	buf_putc(&out, '\n');
	return command_print(&out, w->e);
}

/* ---- the actions ---- */

static int show(struct lane_work *w)
{
	CLEANUP(buf_done) struct buf out = {0};
	struct row_style style;
	json_t *o;
	int r;

	if (w->q->json) {
		r = queue_lane_json(w->q, w->c, w->lane, &o, w->e);
		return r ? r : queue_print_json(o, w->e);
	}
	once_terminal(&style);
	queue_lane_put(w->c, w->lane, &style, &out);
	return command_print(&out, w->e);
}

static int move(struct lane_work *w)
{
	struct store_place to = {0};
	int64_t id, position = 0;
	int r = queue_parse_id(w->argv[0], &id, w->e);

	if (w->o->before)
		to = (struct store_place){STORE_PLACE_BEFORE, w->o->before};
	else if (w->o->after)
		to = (struct store_place){STORE_PLACE_AFTER, w->o->after};
	else if (r == 0)
		r = queue_lane_parse_place("to", w->o->to, &to, w->e);
	if (r == 0 && (id == w->o->before || id == w->o->after))
		r = err_set(w->e, -EINVAL,
			"job %" PRId64 " can't stand before or behind itself; name another one",
			id);
	if (r == 0)
		r = begin(w);
	if (r)
		return r;
	r = end(w, store_lane_move(w->q->store, w->name, id, &to, &position, w->e));
	if (r == 0)
		r = look_again(w);
	return r ? r
		 : tell(w,
			   json_pack("{s:b, s:I, s:s, s:I}", "ok", 1, "id", (json_int_t)id, "lane",
				   w->name, "position", (json_int_t)position),
			   "job %" PRId64 " is at place %" PRId64 " of %s", id, position, w->name);
}

static int swap(struct lane_work *w)
{
	int64_t a, b;
	int r = queue_parse_id(w->argv[0], &a, w->e);

	if (r == 0)
		r = queue_parse_id(w->argv[1], &b, w->e);
	if (r == 0 && a == b)
		r = err_set(w->e, -EINVAL,
			"swap takes two jobs, and both are %" PRId64 "; name another one", a);
	if (r == 0)
		r = begin(w);
	if (r)
		return r;
	r = end(w, store_lane_swap(w->q->store, w->name, a, b, w->e));
	if (r == 0)
		r = look_again(w);
	return r ? r
		 : tell(w,
			   json_pack("{s:b, s:s, s:o}", "ok", 1, "lane", w->name, "order",
				   order_json(w)),
			   "jobs %" PRId64 " and %" PRId64 " have changed places in %s", a, b,
			   w->name);
}

/* Of the cards that it has, and the job asks for. */
static int assign(struct lane_work *w)
{
	struct store_assigned a = {0};
	struct store_place at = {0};
	CLEANUP(job_done) struct job j = {0};
	CLEANUP_FREE char *previous = NULL;
	json_t *tick, *o;
	int64_t id;
	int r = queue_parse_id(w->argv[0], &id, w->e);

	if (r == 0)
		r = queue_lane_parse_place("at", w->o->at, &at, w->e);
	if (r == 0)
		r = begin(w);
	if (r)
		return r;
	r = store_job(w->q->store, id, &j, w->e);
	if (r == 0 && !w->o->none && w->lane->node >= 0)
		r = cluster_lane_has_cards(&w->c->nodes[w->lane->node], w->lane->row->cards,
			j.gpu_constraint, j.gpus, w->e);
	if (r == 0 && w->o->none && (!j.lane || strcmp(j.lane, w->name) != 0))
		r = err_set(w->e, -EINVAL, "job %" PRId64 " is in %s, not in %s", id,
			j.lane ? j.lane : "no lane", w->name);
	if (r == 0)
		r = store_lane_assign(w->q->store, id, w->o->none ? NULL : w->name,
			w->lane->n_named, &at, &a, w->e);
	previous = a.previous;
	r = end(w, r);
	if (r)
		return r;
	tick = queue_tick_after(w->q);
	o = json_pack("{s:b, s:I, s:o, s:o}", "ok", 1, "id", (json_int_t)id, "lane",
		w->o->none ? json_null() : json_string(w->name), "previous",
		previous ? json_string(previous) : json_null());
	if (!w->o->none)
		json_object_set_new(o, "position", json_integer(a.position));
	json_object_set_new(o, "tick", tick);
	r = look_again(w);
	job_done(&j);
	j = (struct job){0};
	if (r == 0)
		r = store_job(w->q->store, id, &j, w->e);
	if (r) {
		json_decref(o);
		return r;
	}
	/* Its node has let go of it with that pass, or will. */
	json_object_set_new(o, "moved", json_boolean(!j.lane_next));
	if (j.lane_next)
		return tell(w, o,
			"job %" PRId64
			" is to go to %s; it stays in %s until its node has let go of it",
			id, *j.lane_next ? j.lane_next : "the pool", j.lane ? j.lane : "its lane");
	return w->o->none ? tell(w, o, "job %" PRId64 " is in the pool", id)
			  : tell(w, o, "job %" PRId64 " is at place %" PRId64 " of %s", id,
				    a.position, w->name);
}

static int pause_or_resume(struct lane_work *w, bool on)
{
	json_t *tick;
	int r = begin(w);

	if (r)
		return r;
	r = store_lane_pause(w->q->store, w->name, on, w->e);
	r = end(w, r);
	if (r)
		return r;
	tick = on ? json_object() : queue_tick_after(w->q);
	r = look_again(w);
	if (r) {
		json_decref(tick);
		return r;
	}
	return tell(w, json_pack("{s:b, s:o, s:o}", "ok", 1, "lane", lane_json(w), "tick", tick),
		on ? "%s is paused; what runs goes on" : "%s goes on", w->name);
}

static int pause_lane(struct lane_work *w)
{
	return pause_or_resume(w, true);
}

static int resume_lane(struct lane_work *w)
{
	return pause_or_resume(w, false);
}

static int skip(struct lane_work *w)
{
	int64_t id = 0;
	json_t *tick;
	int r = begin(w);

	if (r)
		return r;
	r = end(w, store_lane_skip(w->q->store, w->name, &id, w->e));
	if (r)
		return r;
	tick = queue_tick_after(w->q);
	r = look_again(w);
	if (r) {
		json_decref(tick);
		return r;
	}
	json_t *o = json_pack("{s:b, s:s, s:o, s:o, s:o}", "ok", 1, "lane", w->name, "skipped",
		id ? json_integer(id) : json_null(), "order", order_json(w), "tick", tick);
	return id ? tell(w, o, "job %" PRId64 " has gone to the end of %s", id, w->name)
		  : tell(w, o, "fewer than two wait in %s: nothing has changed", w->name);
}

static int concurrency(struct lane_work *w)
{
	int64_t n;
	int r = 0;

	if (parse_int64(w->argv[0], &n) < 0 || n < 1 || n > STORE_LANE_CONCURRENCY_MAX)
		return err_set(w->e, -EINVAL,
			"concurrency takes a number from 1 to %d, not '%.60s'",
			STORE_LANE_CONCURRENCY_MAX, w->argv[0]);
	r = begin(w);
	if (r)
		return r;
	r = end(w, store_lane_concurrency(w->q->store, w->name, n, w->e));
	if (r == 0)
		r = look_again(w);
	return r ? r
		 : tell(w, json_pack("{s:b, s:o}", "ok", 1, "lane", lane_json(w)),
			   "%s runs %" PRId64 " at a time", w->name, n);
}

/* ---- the runner ---- */

static int runner_status(struct lane_work *w)
{
	const struct store_lane *row = w->lane->row;
	CLEANUP(buf_done) struct buf blocked = {0}, out = {0};
	bool up = cluster_lane_is_up(w->c, w->lane);
	json_t *state = row->runner_state ? json_loads(row->runner_state, 0, NULL) : NULL;
	char seen[RECORD_TIME_LEN];
	int r;

	cluster_lane_blocked(w->c, w->lane, &blocked);
	if (w->q->json) {
		r = queue_print_json(
			json_pack("{s:s, s:b, s:b, s:o, s:o, s:o, s:b}", "lane", w->name, "enabled",
				row->has_runner, "up", up, "seen", record_time(row->runner_seen_ms),
				"state", state ? state : json_null(), "blocked",
				blocked.len ? json_string(buf_str(&blocked)) : json_null(),
				"stopped", row->is_stopped),
			w->e);
	} else {
		json_decref(state);
		record_time_text(row->runner_seen_ms, seen);
		buf_printf(&out, "%s: ", w->name);
		if (!row->has_runner)
			buf_puts(&out, "no runner; passes start its jobs\n");
		else
			buf_printf(&out, "%s%s%s%s\n", up ? "up" : "not up",
				row->is_stopped ? ", stopped" : "", *seen ? ", last seen " : "",
				seen);
		if (blocked.len)
			buf_printf(&out, "%s\n", buf_str(&blocked));
		r = command_print(&out, w->e);
	}
	return r ? r : row->has_runner && !up ? EXIT_FAILED : EXIT_OK;
}

static int runner(struct lane_work *w)
{
	const char *what = w->argc ? w->argv[0] : "status";
	bool on = !strcmp(what, "on"), off = !strcmp(what, "off"), stop = !strcmp(what, "stop"),
	     restart = !strcmp(what, "restart");
	const struct store_lane *row = w->lane->row;
	bool has_runner = on ? true : off ? false : row->has_runner;
	json_t *tick, *o;
	int r;

	if (!strcmp(what, "status"))
		return runner_status(w);
	if ((stop || restart) && !row->has_runner)
		return err_set(w->e, -EINVAL,
			"%s has no runner; `queue lane %s runner on` gives it one", w->name,
			w->name);
	r = begin(w);
	if (r)
		return r;
	r = end(w, store_lane_runner(w->q->store, w->name, has_runner, stop, w->e));
	if (r)
		return r;
	tick = on || restart ? queue_tick_after(w->q) : json_object();
	r = look_again(w);
	if (r) {
		json_decref(tick);
		return r;
	}
	if (on || off) {
		o = json_pack("{s:b, s:o, s:o}", "ok", 1, "lane", lane_json(w), "tick", tick);
		return tell(w, o,
			on ? "%s is run by its node"
			   : "passes start the jobs of %s; its node starts none of those that it has",
			w->name);
	}
	o = json_pack("{s:b, s:s, s:b, s:b}", "ok", 1, "lane", w->name, "stopped", 1, "hard",
		(int)w->o->hard);
	if (restart)
		json_object_set(o, "tick", tick);
	json_decref(tick);
	return tell(w, o,
		stop ? "the node starts no more of %s until `runner restart` or `on`; what runs goes on"
		     : "the node goes on with %s; what runs was left alone",
		w->name);
}

static const struct action actions[] = {
	{"move", 1, 1, "ID", MAY_TO, move},
	{"swap", 2, 2, "ID1 ID2", 0, swap},
	{"assign", 1, 1, "ID", MAY_AT | MAY_NO_TICK, assign},
	{"pause", 0, 0, "", 0, pause_lane},
	{"resume", 0, 0, "", MAY_NO_TICK, resume_lane},
	{"skip", 0, 0, "", MAY_NO_TICK, skip},
	{"runner", 0, 1, "[status|on|off|stop|restart]", MAY_HARD | MAY_TICK | MAY_NO_TICK, runner},
	{"concurrency", 1, 1, "N", 0, concurrency},
};
static const struct action no_action = {"", 0, 0, "", MAY_TICK | MAY_NO_TICK, show};

static const struct action *action_named(const char *word)
{
	if (!word)
		return &no_action;
	for (size_t i = 0; i < ARRAY_LEN(actions); i++)
		if (!strcmp(actions[i].word, word))
			return &actions[i];
	return NULL;
}

/* ---- the words ---- */

static bool is_refresh(const struct action *a, int argc, char **argv)
{
	return a == &no_action ||
	       (!strcmp(a->word, "runner") && (argc < 3 || !strcmp(argv[2], "status")));
}

static int check_runner(const struct lane_options *o, int argc, char **argv, struct err *e)
{
	static const char *const words[] = {"status", "on", "off", "stop", "restart"};
	const char *what = argc > 2 ? argv[2] : "status";

	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		if (strcmp(words[i], what) != 0)
			continue;
		if (o->hard && i < 3)
			return err_set(e, -EINVAL, "--hard goes with stop and restart");
		return 0;
	}
	return err_set(e, -EINVAL,
		"a runner is asked for status, on, off, stop or restart, not '%.60s'", what);
}

static int check_options(const struct action *a, const struct lane_options *o, struct err *e)
{
	const struct {
		bool is_given;
		int may;
		const char *name;
	} given[] = {{o->to != NULL, MAY_TO, "to"}, {o->before != 0, MAY_TO, "before"},
		{o->after != 0, MAY_TO, "after"}, {o->at != NULL, MAY_AT, "at"},
		{o->none, MAY_AT, "none"}, {o->hard, MAY_HARD, "hard"},
		{o->q.tick, MAY_TICK, "tick"}, {o->q.no_tick, MAY_NO_TICK, "no-tick"}};

	for (size_t i = 0; i < ARRAY_LEN(given); i++)
		if (given[i].is_given && !(a->may & given[i].may))
			return err_set(e, -EINVAL, "--%s says nothing to `queue lane LANE%s%s`",
				given[i].name, *a->word ? " " : "", a->word);
	if (a->exec == move && !!o->to + !!o->before + !!o->after != 1)
		return err_set(e, -EINVAL,
			"move takes exactly one of --to head|tail|N, --before ID and --after ID");
	return o->none && o->at ? err_set(e, -EINVAL, "--at says nothing with --none") : 0;
}

static int lane_check(const void *opts, int argc, char **argv, struct err *e)
{
	const struct lane_options *o = opts;
	const struct action *a = action_named(argc > 1 ? argv[1] : NULL);
	int n = argc - 2;

	if (!a)
		return err_set(e, -EINVAL,
			"a lane can't be told '%.60s'; there's move, swap, assign, pause, resume, skip, runner and concurrency",
			argv[1]);
	if (argc > 1 && (n < a->min_args || n > a->max_args))
		return err_set(e, -EINVAL, "`queue lane LANE %s` takes %s", a->word,
			*a->args ? a->args : "no argument");
	if (a->exec == runner && check_runner(o, argc, argv, e) < 0)
		return -EINVAL;
	return check_options(a, o, e);
}

static int lane_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct lane_options *o = opts;
	const struct action *a = action_named(argc > 1 ? argv[1] : NULL);
	CLEANUP(queue_close) struct queue q = {0};
	CLEANUP(cluster_done) struct cluster c = {0};
	CLEANUP_FREE char *name = NULL;
	struct lane_work w = {.q = &q,
		.o = o,
		.c = &c,
		.argc = argc > 2 ? argc - 2 : 0,
		.argv = argv + 2,
		.e = e};
	int r = queue_open(&q, p, &o->q, STORE_WRITE, e);

	if (r)
		return r;
	if (is_refresh(a, argc, argv))
		queue_refresh(&q);
	r = cluster_load(q.store, &q.config, clock_wall_ms(), false, &c, e);
	if (!r)
		r = queue_lane_find(&q, &c, argv[0], &w.lane, e);
	if (r)
		return r;
	w.name = name = xstrdup(w.lane->row->name);
	return a->exec(&w);
}

#define AT(member) .offset = offsetof(struct lane_options, member)
static const struct option_spec specs[] = {
	{.name = "to",
		.arg = "head|tail|N",
		.kind = OPTION_TEXT,
		AT(to),
		.text = "move: to that place among those that wait, from 1"},
	{.name = "before",
		.arg = "ID",
		.kind = OPTION_INT,
		AT(before),
		.min = 1,
		.max = 9007199254740992.0,
		.text = "move: before that job"},
	{.name = "after",
		.arg = "ID",
		.kind = OPTION_INT,
		AT(after),
		.min = 1,
		.max = 9007199254740992.0,
		.text = "move: behind that job"},
	{.name = "at",
		.arg = "head|tail|N",
		.kind = OPTION_TEXT,
		AT(at),
		.text = "assign: the place in the lane (default: tail)"},
	{.name = "none",
		.kind = OPTION_FLAG,
		AT(none),
		.text = "assign: out of the lane, to the pool"},
	{.name = "hard",
		.kind = OPTION_FLAG,
		AT(hard),
		.text = "runner stop and restart: as nvidb has it; jobs are left alone either way"},
	QUEUE_OPTION_ROWS(struct lane_options),
	QUEUE_REFRESH_ROWS(struct lane_options),
	OPTION_SPEC_END,
};

extern const struct command cmd_queue_lane;
const struct command cmd_queue_lane = {
	.name = "queue lane",
	.args = "LANE [ACTION [ARGUMENT...]]",
	.summary = "one lane: show, reorder, pause, fill or empty it",
	.about =
		"LANE is NODE:GPU, as gpu1:0, or gpu1:0,1 for a lane of two cards. Without an action it's\n"
		"shown. Actions:\n"
		"\n"
		"move ID with --to, --before or --after; swap ID1 ID2; assign ID, from the pool or another\n"
		"lane, with --at, or with --none back to the pool; pause and resume; skip: the first of\n"
		"those that wait goes to the end; concurrency N: so many at a time; runner [status].\n"
		"\n"
		"runner off: passes of the queue start the jobs, not the node. runner stop: the node\n"
		"starts none until `runner restart` or `runner on`. None of them touches a job that runs.\n"
		"\n"
		"A change counts once the lane's node has acknowledged it; while the node is away it's a\n"
		"request, and the answer says so. Never start what was taken out holds from then on.\n"
		"\n"
		"Exit codes: 0; 1 an error, or `runner status` of a lane whose runner isn't up; 2 a\n"
		"mistake in the command line.",
	.examples = "$ gpustow queue lane gpu1:0\n"
		    "$ gpustow queue lane gpu1:0 move 12 --to head\n"
		    "$ gpustow queue lane gpu1:0 assign 14 --at 2\n"
		    "$ gpustow queue lane gpu1:0 pause",
	.options = specs,
	.options_size = sizeof(struct lane_options),
	.min_args = 1,
	.max_args = 4,
	.complete = COMPLETE_JOB,
	.candidates = queue_lane_candidates,
	.needs_locale = true,
	.wants_json = queue_wants_json,
	.check = lane_check,
	.exec = lane_exec,
};
