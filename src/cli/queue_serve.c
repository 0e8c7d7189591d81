/* What is done for the queue screen outside of it: see queue_serve.h. */
#include "cli/queue_serve.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/parse.h"
#include "cli/job_logs.h"
#include "cli/queue_news.h"
#include "queue/cluster.h"
#include "queue/record_json.h"
#include "svc/keeper.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	LISTED = 2000, /* of those that run, and of those that wait */
	ENDED = 300,
	ALERTS = 20,
	COMMAND_BYTES = 400,
	NEEDS_TOLD = 200,
	LOG_LINES = 200,
	LOG_BYTES = 256 * 1024,
	REQUEST_MAX = 64 * 1024,
	TICK_WAIT_MS = 60000
};

/* ---- a snapshot ---- */

/* Whatever bytes they are: one that isn't UTF-8 would make the whole line none. */
static json_t *text(const char *s)
{
	return s ? job_logs_json(s, strlen(s)) : json_string("");
}

static void set(json_t *o, const char *key, json_t *v)
{
	json_object_set_new_nocheck(o, key, v);
}

static void set_text(json_t *o, const char *key, const char *s)
{
	if (s && *s)
		set(o, key, text(s));
}

static void set_number(json_t *o, const char *key, int64_t v, int64_t otherwise)
{
	if (v != otherwise)
		set(o, key, json_integer(v));
}

static void set_flag(json_t *o, const char *key, bool v)
{
	if (v)
		set(o, key, json_true());
}

/* As people see it: by what the node has of that UUID, else the index it had then. */
static json_t *card_label(const struct cluster *c, const struct job *j, const struct job_card *card)
{
	char label[GPU_LABEL_LEN];

	for (size_t i = 0; i < c->n_nodes; i++)
		for (size_t k = 0;
			j->bind.node && !strcmp(cluster_node_name(&c->nodes[i]), j->bind.node) &&
			k < c->nodes[i].inv.n_cards;
			k++)
			if (!strcmp(c->nodes[i].inv.cards[k].uuid, card->uuid)) {
				inv_card_label(&c->nodes[i].inv.cards[k], label);
				return json_string(label);
			}
	snprintf(label, sizeof(label), "%d", card->index);
	return json_string(label);
}

static json_t *ids(const int64_t *v, size_t n)
{
	json_t *a = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(a, json_integer(v[i]));
	return a;
}

static const char *place(const struct job *j)
{
	if (j->bind.node && (j->state != JOB_STATE_PENDING || j->is_bound))
		return j->bind.node;
	return j->state == JOB_STATE_PENDING ? j->node_constraint : NULL;
}

static json_t *job_json(const struct cluster *c, const struct job *j)
{
	bool is_somewhere = j->state != JOB_STATE_PENDING || j->is_bound;
	json_t *o = json_object(), *cards = json_array();

	for (size_t i = 0; is_somewhere && i < j->bind.n_cards; i++)
		json_array_append_new(cards, card_label(c, j, &j->bind.cards[i]));
	/* There may be thousands of them, and the screen's process reads them all: what says nothing is left out. */
	set(o, "id", json_integer(j->id));
	set(o, "state", json_string(job_state_name(j->state)));
	set_text(o, "name", j->name);
	set(o, "command", text(j->command));
	set_number(o, "priority", j->priority, 0);
	set_number(o, "gpus", j->gpus, 0);
	set_number(o, "vram_mb", j->vram_mib, -1);
	set_number(o, "used_mb", j->gpu_mem_mib, -1);
	set_text(o, "node", place(j));
	if (json_array_size(cards))
		set(o, "cards", json_incref(cards));
	json_decref(cards);
	set_text(o, "lane", j->lane);
	set_number(o, "lane_seq", j->lane_seq, 0);
	set_flag(o, "held", job_is_held(j));
	set_text(o, "held_why", j->held_reason);
	set_flag(o, "bound", j->is_bound);
	set_flag(o, "cancelling", j->cancel_ms != 0);
	set_text(o, "progress", j->progress);
	set_number(o, "started_ms", j->started_ms, 0);
	set_number(o, "elapsed_ms", j->elapsed_ms, -1);
	if (j->has_exit_code)
		set(o, "exit_code", json_integer(j->exit_code));
	if (j->state == JOB_STATE_PENDING && j->n_after)
		set(o, "after", ids(j->after, j->n_after));
	if (j->state == JOB_STATE_PENDING && j->n_after_any)
		set(o, "after_any", ids(j->after_any, j->n_after_any));
	return o;
}

static int put_jobs(struct queue *q, const struct cluster *c, uint32_t states,
	enum store_order order, size_t limit, json_t *list, struct err *e)
{
	CLEANUP(store_jobs_done) struct store_jobs jobs = {0};
	struct store_question question = {.states = states,
		.order = order,
		.limit = limit,
		.command_max = COMMAND_BYTES,
		.no_needs = !(states & 1u << JOB_STATE_PENDING)};
	int r = store_jobs(q->store, &question, &jobs, e);

	for (size_t i = 0; !r && i < jobs.n; i++)
		json_array_append_new(list, job_json(c, &jobs.v[i]));
	return r;
}

static json_t *counts_json(const struct store_counts *c)
{
	json_t *o = json_object();

	for (int i = JOB_STATE_PENDING; i < JOB_STATE_N; i++)
		set(o, job_state_name((enum job_state)i), json_integer(c->by_state[i]));
	set(o, "held", json_integer(c->held));
	return o;
}

static int put_alerts(struct queue *q, json_t *o, struct err *e)
{
	CLEANUP(store_alerts_done) struct store_alerts alerts = {0};
	json_t *list = json_array();
	int r = store_alerts(q->store, STORE_ALERTS_OPEN, ALERTS, &alerts, e);

	for (size_t i = alerts.n; !r && i-- > 0;)
		json_array_append_new(list, record_alert(&alerts.v[i]));
	set(o, "alerts", list);
	return r;
}

/* The configuration's servers, in its order; those that were taken out of it and those that are ignored aren't shown. */
static void put_nodes(const struct cluster *c, json_t *o)
{
	json_t *list = json_array();

	for (size_t i = 0; i < c->n_nodes; i++)
		if (c->nodes[i].config && !(c->nodes[i].row && c->nodes[i].row->is_ignored))
			json_array_append_new(list, cluster_node_json(c, i, true));
	set(o, "nodes", list);
}

static void put_head(struct queue *q, const struct cluster *c, json_t *o)
{
	CLEANUP_FREE char *last = NULL;
	struct keeper_state keeper = {0};
	struct err ignored = {0};
	int64_t tick_ms = 0;

	/* What can't be read is as if it had never been. */
	if (store_meta_get(q->store, "last_tick_at", &last, &ignored) ||
		parse_int64(last, &tick_ms))
		tick_ms = 0;
	(void)keeper_state(q->home, &keeper, &ignored);
	set(o, "last_tick_ms", json_integer(tick_ms));
	set(o, "keeper_installed", json_boolean(keeper.installed));
	set(o, "keeper_running", json_boolean(keeper.running));
	set(o, "counts", counts_json(&c->counts));
	set(o, "open_alerts", json_integer(c->counts.open_alerts));
}

int queue_serve_snapshot(struct queue *q, int64_t now_ms, json_t **ret, struct err *e)
{
	CLEANUP(cluster_done) struct cluster c = {0};
	json_t *o, *jobs;
	int64_t hidden;
	int r = cluster_load(q->store, &q->config, now_ms, false, &c, e);

	if (r)
		return r;
	o = json_object();
	jobs = json_array();
	set(o, "now_ms", json_integer(now_ms));
	set(o, "jobs", jobs);
	put_head(q, &c, o);
	put_nodes(&c, o);
	r = put_jobs(q, &c, 1u << JOB_STATE_RUNNING, STORE_BY_ID, LISTED, jobs, e);
	if (!r)
		r = put_jobs(q, &c, 1u << JOB_STATE_PENDING, STORE_BY_TURN, LISTED, jobs, e);
	hidden = c.counts.by_state[JOB_STATE_RUNNING] + c.counts.by_state[JOB_STATE_PENDING] +
		 c.counts.held - (int64_t)json_array_size(jobs);
	set(o, "hidden_jobs", json_integer(hidden > 0 ? hidden : 0));
	if (!r)
		r = put_jobs(q, &c, JOB_STATES_TERMINAL, STORE_BY_END, ENDED, jobs, e);
	if (!r)
		r = put_alerts(q, o, e);
	if (r)
		json_decref(o);
	else
		*ret = o;
	return r;
}

/* ---- one job ---- */

static void put_needs(struct queue *q, const int64_t *v, size_t n, bool is_any, json_t *list)
{
	for (size_t i = 0; i < n && json_array_size(list) < NEEDS_TOLD; i++) {
		CLEANUP(job_done) struct job j = {0};
		struct err ignored = {0};
		bool is_there = !store_job(q->store, v[i], &j, &ignored);

		json_array_append_new(list,
			json_pack("{s:I, s:b, s:o, s:o}", "id", (json_int_t)v[i], "any", is_any,
				"state", is_there ? json_string(record_state(&j)) : json_null(),
				"name", is_there ? text(j.name) : json_null()));
	}
}

static void put_why(struct queue *q, const struct job *j, json_t *o)
{
	CLEANUP(cluster_done) struct cluster c = {0};
	CLEANUP(buf_done) struct buf why = {0};
	struct err e = {0};
	ssize_t at;

	if (j->state != JOB_STATE_PENDING)
		return;
	if (cluster_load(q->store, &q->config, clock_wall_ms(), true, &c, &e))
		return;
	at = cluster_pending(&c, j->id);
	if (at >= 0) {
		CLEANUP(cluster_plan_done) struct cluster_plan p = {0};

		cluster_plan(&c, NULL, &p);
		cluster_why(&c, &p, (size_t)at, &why);
	} else {
		cluster_why_bound(&c, j, &why);
	}
	set(o, "why", text(buf_str(&why)));
}

static json_t *shown(struct queue *q, int64_t id)
{
	CLEANUP(job_done) struct job j = {0};
	struct err e = {0};
	json_t *o = json_pack("{s:I}", "id", (json_int_t)id), *needs = json_array();

	if (store_job(q->store, id, &j, &e)) {
		set(o, "why", text(e.text));
		json_decref(needs);
		return o;
	}
	set(o, "job", record_job(&j, clock_wall_ms()));
	put_why(q, &j, o);
	put_needs(q, j.after, j.n_after, false, needs);
	put_needs(q, j.after_any, j.n_after_any, true, needs);
	set(o, "needs", needs);
	return o;
}

/* ---- what's done ---- */

static int do_cancel(struct queue *q, int64_t id, struct buf *said, struct err *e)
{
	const char *user = getenv("USER");
	CLEANUP_FREE char *why = xasprintf("by hand (%s)", user && *user ? user : "unknown");
	enum store_cancelled c;
	int r = store_cancel(q->store, id, why, &c, e);

	if (r < 0)
		return r;
	buf_printf(said, "job %" PRId64 " %s", id,
		c == STORE_CANCELLED	   ? "is cancelled"
		: c == STORE_CANCEL_WANTED ? "is told to end"
					   : "had ended already");
	return 0;
}

static int do_priority(struct queue *q, int64_t id, int64_t by, struct buf *said, struct err *e)
{
	CLEANUP(job_done) struct job j = {0};
	int r = store_job(q->store, id, &j, e);

	if (!r)
		r = store_set_priority(q->store, id, j.priority + by, e);
	if (!r)
		buf_printf(said, "job %" PRId64 " has priority %" PRId64, id, j.priority + by);
	return r < 0 ? r : 0;
}

static int do_move(struct queue *q, int64_t id, int64_t by, struct buf *said, struct err *e)
{
	int64_t moved = 0;
	int r = store_move(q->store, id, by, &moved, e);

	if (r < 0)
		return r;
	if (moved)
		buf_printf(said, "job %" PRId64 " moved %s", id, moved > 0 ? "up" : "down");
	else
		buf_printf(said, "job %" PRId64 " is at the end already", id);
	return 0;
}

static int do_drain(struct queue *q, const char *node, bool on, struct buf *said, struct err *e)
{
	int r = store_node_drain(q->store, node, on, e);

	if (!r)
		buf_printf(said, on ? "%s gets no more jobs" : "%s gets jobs again", node);
	return r < 0 ? r : 0;
}

static int do_ack(struct queue *q, struct buf *said, struct err *e)
{
	int64_t n = 0;
	int r = store_alert_ack(q->store, NULL, 0, &n, e);

	if (!r)
		buf_printf(said, "%" PRId64 " alert%s acknowledged", n, n == 1 ? "" : "s");
	return r < 0 ? r : 0;
}

static int do_requeue(struct queue *q, int64_t id, struct buf *said, struct err *e)
{
	int r = store_requeue(q->store, id, e);

	if (!r)
		buf_printf(said, "job %" PRId64 " waits again", id);
	return r < 0 ? r : 0;
}

static int do_one(
	struct queue *q, const char *what, const json_t *o, struct buf *said, struct err *e)
{
	int64_t id = json_integer_value(json_object_get(o, "id")),
		by = json_integer_value(json_object_get(o, "by"));
	const char *node = json_string_value(json_object_get(o, "node"));

	if (!strcmp(what, "cancel"))
		return do_cancel(q, id, said, e);
	if (!strcmp(what, "requeue"))
		return do_requeue(q, id, said, e);
	if (!strcmp(what, "priority"))
		return do_priority(q, id, by, said, e);
	if (!strcmp(what, "move"))
		return do_move(q, id, by, said, e);
	if (!strcmp(what, "ack"))
		return do_ack(q, said, e);
	return do_drain(q, node ? node : "", !strcmp(what, "drain"), said, e);
}

static json_t *notice(const char *said, bool is_bad, bool has_acted)
{
	return json_pack(
		"{s:o, s:b, s:b}", "notice", text(said), "bad", is_bad, "acted", has_acted);
}

/* One change, one transaction. */
static json_t *act(struct queue *q, const char *what, const json_t *o)
{
	CLEANUP(buf_done) struct buf said = {0};
	struct err e = {0};
	int r = store_begin(q->store, NULL, &e);

	if (r)
		return notice(e.text, true, false);
	r = do_one(q, what, o, &said, &e);
	if (r < 0) {
		store_abort(q->store);
		return notice(e.text, true, false);
	}
	r = store_commit(q->store, &e);
	return r < 0 ? notice(e.text, true, false) : notice(buf_str(&said), false, true);
}

/* ---- lines ---- */

static int answer(int fd, json_t *o)
{
	CLEANUP_FREE char *s = o ? json_dumps(o, JSON_COMPACT) : NULL;
	CLEANUP(buf_done) struct buf line = {0};

	json_decref(o);
	buf_printf(&line, "%s\n", s ? s : "{}");
	return fd_write_all(fd, line.data, line.len);
}

static json_t *fatal(const char *why)
{
	return json_pack("{s:o}", "fatal", text(why));
}

static int answer_snapshot(struct queue *q, int fd)
{
	struct err e = {0};
	json_t *o = NULL;

	if (queue_serve_snapshot(q, clock_wall_ms(), &o, &e))
		return answer(fd, fatal(e.text));
	return answer(fd, json_pack("{s:o}", "snapshot", o));
}

/* Whatever it was asked for by: what has happened until now is in it. */
static int look(struct queue *q, struct queue_news *news, int fd)
{
	int64_t begun_ms = clock_boot_ms();
	int r = answer_snapshot(q, fd);

	queue_news_looked(news, clock_boot_ms() - begun_ms);
	return r;
}

static int serve_record(
	struct queue *q, struct queue_news *news, int fd, const char *what, const json_t *o)
{
	int r;

	if (!strcmp(what, "look"))
		return look(q, news, fd);
	if (!strcmp(what, "show"))
		return answer(fd, json_pack("{s:o}", "shown",
					  shown(q, json_integer_value(json_object_get(o, "id")))));
	r = answer(fd, act(q, what, o));
	return r ? r : look(q, news, fd);
}

static int serve_tick(struct queue *q, int fd, const json_t *o)
{
	CLEANUP(tick_summary_done) struct tick_summary t = {0};
	struct tick_options to = {.home = q->home,
		.is_forced = json_is_true(json_object_get(o, "forced")),
		.wait_ms = TICK_WAIT_MS};
	struct err e = {0};
	json_t *a;
	int r;

	/* Of another machine's queue only what it wrote down can be told. */
	if (store_is_elsewheres(q->store) || q->mode != STORE_WRITE)
		return answer(fd, json_pack("{s:b}", "ticked", 1));
	r = tick(q->store, &q->config, &to, &t, &e);
	if (r == -EINTR)
		return r;
	a = r < 0 ? notice(e.text, true, false) : json_object();
	set(a, "ticked", json_true());
	return answer(fd, a);
}

static int serve_log(struct queue *q, int fd, const json_t *o)
{
	CLEANUP(job_done) struct job j = {0};
	CLEANUP(buf_done) struct buf raw = {0}, clean = {0};
	int64_t id = json_integer_value(json_object_get(o, "id"));
	struct err e = {0};
	bool is_cut;
	json_t *a = json_pack("{s:I}", "id", (json_int_t)id);
	int r = store_job(q->store, id, &j, &e);

	if (!r)
		r = job_logs_tail(q, &j, "stdout", LOG_LINES, LOG_BYTES, &raw, &is_cut, &e);
	if (r == -EINTR) {
		json_decref(a);
		return r;
	}
	if (r < 0) {
		set(a, "error", text(e.text));
	} else {
		job_logs_put_clean(raw.data, raw.len, false, &clean);
		set(a, "text", job_logs_json(buf_str(&clean), clean.len));
	}
	return answer(fd, json_pack("{s:o}", "log", a));
}

/* news: NULL for all but the record. */
static int serve_line(struct queue *q, struct queue_news *news, enum queue_role role, int fd,
	const char *line, size_t n)
{
	json_t *o = json_loadb(line, n, 0, NULL);
	const char *what = json_string_value(json_object_get(o, "do"));
	int r = 0;

	if (what)
		r = role == QUEUE_RECORD  ? serve_record(q, news, fd, what, o)
		    : role == QUEUE_TICKS ? serve_tick(q, fd, o)
					  : serve_log(q, fd, o);
	json_decref(o);
	return r;
}

static void serve_lines(struct queue *q, struct queue_news *news, enum queue_role role, int fd)
{
	CLEANUP(buf_done) struct buf in = {0};

	for (;;) {
		const char *nl = in.len ? memchr(in.data, '\n', in.len) : NULL;
		ssize_t n;

		if (nl) {
			size_t len = (size_t)(nl - in.data);

			if (serve_line(q, news, role, fd, in.data, len) < 0)
				return;
			buf_drop(&in, len + 1);
			continue;
		}
		while (news && queue_news_wait(news, fd))
			if (look(q, news, fd) < 0)
				return;
		if (in.len > REQUEST_MAX)
			return;
		buf_reserve(&in, 4096);
		do
			n = read(fd, in.data + in.len, 4096);
		while (n < 0 && errno == EINTR);
		if (n <= 0)
			return;
		in.len += (size_t)n;
		in.data[in.len] = '\0';
	}
}

static int open_store(struct queue *q, struct err *e)
{
	struct store_options o = {.mode = STORE_WRITE};
	int r = store_open(q->path, &o, &q->store, e);

	q->mode = STORE_WRITE;
	/* What can't be written here can still be read. */
	if (r == -EROFS || r == -EACCES || r == -EPERM) {
		o.mode = q->mode = STORE_READ;
		r = store_open(q->path, &o, &q->store, e);
	}
	return r;
}

int queue_serve(void *arg, enum queue_role role, int fd)
{
	struct queue *q = arg;
	struct queue_news news;
	struct err e = {0};

	if (open_store(q, &e) < 0) {
		(void)answer(fd, fatal(e.text));
		return 1;
	}
	queue_news_init(&news, q->path, store_queue(q->store));
	if (role != QUEUE_RECORD)
		serve_lines(q, NULL, role, fd);
	else if (!look(q, &news, fd))
		serve_lines(q, &news, role, fd);
	queue_news_done(&news);
	store_close(q->store);
	q->store = NULL;
	return 0;
}
