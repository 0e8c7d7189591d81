/* `job submit`: one transaction for all jobs of the call, then a pass, then what became of them. */
#include "cli/submit.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "cli/queue_lanes.h"
#include "cli/queue_wait.h"
#include "queue/cluster.h"
#include "queue/record_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_MAX 20 /* jobs that text speaks of one by one */
#define TRIED_MAX 1000 /* jobs that a dry run decides about */

struct submitted {
	int64_t *ids; /* parallel to the jobs */
	bool *was_there; /* the key was known */
	size_t n, n_old;
};

static void submitted_done(struct submitted *s)
{
	free(s->ids);
	free(s->was_there);
}

/* ---- into the store ---- */

/* after= of a jobs file names lines; they become numbers once those jobs are in. */
struct named {
	const char *name;
	size_t at;
};

static int named_order(const void *a, const void *b)
{
	const struct named *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static struct named *make_names(const struct submit_jobs *l, size_t *ret_n)
{
	struct named *v = xcalloc(l->n + 1, sizeof(*v));

	*ret_n = 0;
	for (size_t i = 0; i < l->n; i++)
		if (l->names[i])
			v[(*ret_n)++] = (struct named){.name = l->names[i], .at = i};
	if (*ret_n)
		qsort(v, *ret_n, sizeof(*v), named_order);
	return v;
}

/* The jobs that line i waits for, by position; what's already in is put into its list. Returns one that isn't in yet, or -1. */
static ssize_t resolve(const struct submit_jobs *l, size_t i, const struct named *names,
	size_t n_names, const struct submitted *s, struct id_list *ret)
{
	ret->n = 0;
	for (const char *at = l->after[i]; at && *at;) {
		size_t len = strcspn(at, ",");
		CLEANUP_FREE char *word = xstrndup(at, len);
		struct named key = {.name = word},
			     *hit = n_names ? bsearch(&key, names, n_names, sizeof(key),
						      named_order)
					    : NULL;

		at += len + (at[len] == ',');
		if (!hit)
			continue; /* a line marked `cancel`: nothing to wait for */
		if (!s->ids[hit->at])
			return (ssize_t)hit->at;
		GROW(ret->v, ret->n, ret->cap);
		ret->v[ret->n++] = s->ids[hit->at];
	}
	return -1;
}

static int put_one(struct queue *q, struct submit_jobs *l, size_t i, const struct id_list *needs,
	struct submitted *s, struct err *e)
{
	struct job *j = &l->v[i];
	int r;

	for (size_t k = 0; k < needs->n; k++) {
		j->after = xreallocarray(j->after, j->n_after + 1, sizeof(*j->after));
		j->after[j->n_after++] = needs->v[k];
	}
	r = store_submit(q->store, j, &s->ids[i], e);
	if (r < 0)
		return l->lines[i] ? err_wrap(e, r, "line %" PRIu32, l->lines[i]) : r;
	s->was_there[i] = r == 1;
	s->n_old += r == 1;
	return 0;
}

/* In the file's order, but prerequisites first: the jobs file has no circles. */
static int put_all(struct queue *q, struct submit_jobs *l, struct submitted *s, struct err *e)
{
	size_t n_names;
	CLEANUP_FREE struct named *names = make_names(l, &n_names);
	CLEANUP(id_list_done) struct id_list needs = {0}, todo = {0};
	int r = 0;

	for (size_t i = 0; !r && i < l->n; i++) {
		GROW(todo.v, todo.n, todo.cap);
		todo.v[todo.n++] = (int64_t)i;
		while (!r && todo.n) {
			size_t at = (size_t)todo.v[todo.n - 1];
			ssize_t first = s->ids[at] ? -1 : resolve(l, at, names, n_names, s, &needs);

			if (first >= 0) {
				GROW(todo.v, todo.n, todo.cap);
				todo.v[todo.n++] = first;
				continue;
			}
			if (!s->ids[at])
				r = put_one(q, l, at, &needs, s, e);
			todo.n--;
		}
	}
	return r;
}

/* NODE:GPUS, as submit_make has resolved it; made on demand. */
static int make_lane(struct queue *q, const struct submit_jobs *l, struct err *e)
{
	const struct job *j = l->n ? &l->v[0] : NULL;
	int r;

	if (!j || !j->lane)
		return 0;
	r = store_lane_make(
		q->store, j->node_constraint, j->lane + strlen(j->node_constraint) + 1, e);
	return r < 0 ? r : 0;
}

/* Several keep their order: each behind the one before it. What was there already isn't moved. */
static int place_all(struct queue *q, const struct submit_options *o, const struct submit_jobs *l,
	const struct submitted *s, struct err *e)
{
	struct store_place at;
	int64_t position;
	int r = queue_lane_parse_place("at", o->at, &at, e);

	for (size_t i = 0; o->at && !r && i < l->n; i++) {
		if (s->was_there[i])
			continue;
		r = store_lane_move(q->store, l->v[i].lane, s->ids[i], &at, &position, e);
		at = (struct store_place){STORE_PLACE_AFTER, s->ids[i]};
	}
	return r;
}

static int submit_all(struct queue *q, const struct submit_options *o, struct submit_jobs *l,
	struct submitted *ret, struct err *e)
{
	int r = store_begin(q->store, NULL, e);

	ret->n = l->n;
	ret->ids = xcalloc(l->n, sizeof(*ret->ids));
	ret->was_there = xcalloc(l->n, sizeof(*ret->was_there));
	if (r)
		return r;
	r = make_lane(q, l, e);
	if (!r)
		r = put_all(q, l, ret, e);
	if (!r)
		r = place_all(q, o, l, ret, e);
	if (r) {
		store_abort(q->store);
		return r;
	}
	return store_commit(q->store, e);
}

/* ---- a dry run ---- */

static json_t *tried_json(const struct cluster *c, const struct job *j,
	const struct plan_decision *d, const char *why, int64_t need_mib)
{
	json_t *o = json_object(), *gpus = json_array();
	const struct cluster_node *n = d->what == PLAN_START ? &c->nodes[d->node] : NULL;

	for (size_t i = 0; n && i < n->inv.n_cards; i++)
		if (d->cards >> i & 1)
			json_array_append_new(gpus, json_integer(n->inv.cards[i].index));
	json_object_set_new(o, "would",
		json_string(d->what == PLAN_START   ? "start"
			    : d->what == PLAN_NEVER ? "never"
						    : "wait"));
	json_object_set_new(o, "node", n ? json_string(n->row->name) : json_null());
	json_object_set_new(o, "gpu_ids", gpus);
	json_object_set_new(o, "need_mb", need_mib >= 0 ? json_integer(need_mib) : json_null());
	json_object_set_new(o, "expected_peak_mb",
		need_mib >= 0 && j->gpus ? json_integer(need_mib) : json_null());
	json_object_set_new(o, "why", d->what == PLAN_START ? json_null() : json_string(why));
	json_object_set_new(o, "command", json_string(j->command));
	json_object_set_new(o, "name", json_string(j->name ? j->name : ""));
	return o;
}

static void put_tried(const struct cluster *c, const struct job *j, const struct plan_decision *d,
	const char *why, struct buf *out)
{
	queue_put_line(out, j->name && *j->name ? j->name : j->command, 40);
	if (d->what == PLAN_START) {
		const struct cluster_node *n = &c->nodes[d->node];
		bool has_card = false;

		buf_printf(out, ": would start now on %s", n->row->name);
		for (size_t i = 0; i < n->inv.n_cards; i++)
			if (d->cards >> i & 1) {
				buf_printf(out, "%s%d", has_card ? "," : ", GPU ",
					n->inv.cards[i].index);
				has_card = true;
			}
		buf_putc(out, '\n');
	} else {
		buf_printf(out, ": %s: %s\n",
			d->what == PLAN_NEVER ? "could never start" : "would wait", why);
	}
}

static int dry_run(struct queue *q, const struct submit_jobs *l, struct err *e)
{
	CLEANUP(cluster_done) struct cluster c = {0};
	CLEANUP(buf_done) struct buf out = {0};
	json_t *all = json_array();
	size_t n = l->n < TRIED_MAX ? l->n : TRIED_MAX;
	int r;

	queue_refresh(q);
	r = cluster_load(q->store, &q->config, clock_wall_ms(), true, &c, e);
	for (size_t i = 0; !r && i < n; i++) {
		CLEANUP(buf_done) struct buf why = {0};
		struct plan_decision d;

		cluster_try(&c, &l->v[i], &d, &why);
		if (q->json)
			json_array_append_new(
				all, tried_json(&c, &l->v[i], &d, buf_str(&why), d.need_mib));
		else if (i < SHOWN_MAX)
			put_tried(&c, &l->v[i], &d, buf_str(&why), &out);
	}
	if (!r && q->json)
		return queue_print_json(json_pack("{s:b, s:b, s:I, s:o}", "ok", 1, "dry_run", 1,
						"count", (json_int_t)l->n, "jobs", all),
			e);
	json_decref(all);
	if (r)
		return r;
	if (l->n > SHOWN_MAX)
		buf_printf(&out, "and %zu more\n", l->n - SHOWN_MAX);
	buf_puts(&out, "nothing was submitted (--dry-run)\n");
	return command_print(&out, e);
}

/* ---- what became of them ---- */

static int read_back(
	struct queue *q, const struct submitted *s, struct store_jobs *ret, struct err *e)
{
	struct store_question question = {.ids = s->ids, .n_ids = s->n};

	return store_jobs(q->store, &question, ret, e);
}

static const struct job *find_job(const struct store_jobs *l, int64_t id)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->v[i].id == id)
			return &l->v[i];
	return NULL;
}

static void put_place(const struct job *j, struct buf *out)
{
	buf_printf(out, " on %s", j->bind.node ? j->bind.node : "?");
	for (size_t i = 0; i < j->bind.n_cards; i++)
		buf_printf(out, "%s%d", i ? "," : ", GPU ", j->bind.cards[i].index);
}

/* That and what it waits for, from the same picture that the pass had. */
static void put_why(struct queue *q, struct cluster *c, struct cluster_plan *p, const struct job *j,
	struct buf *out)
{
	ssize_t i = cluster_pending(c, j->id);

	if (i < 0)
		buf_puts(out, job_is_held(j) ? "held" : "waits");
	else {
		buf_puts(out,
			job_is_held(j) ? "" : "waits: "); /* "held: " begins the sentence itself */
		cluster_why(c, p, (size_t)i, out);
		if (p->decisions[i].what == PLAN_NEVER)
			buf_puts(out, ". It's failed when the next passes come to the same");
	}
}

static void put_state(struct queue *q, struct cluster *c, struct cluster_plan *p,
	const struct job *j, bool was_there, struct buf *out)
{
	buf_puts(out, was_there ? "was there already (same key): " : "submitted: ");
	if (j->state == JOB_STATE_PENDING && j->is_bound) {
		cluster_why_bound(c, j, out);
	} else if (j->state == JOB_STATE_PENDING) {
		put_why(q, c, p, j, out);
	} else {
		buf_puts(out, job_state_name(j->state));
		if (j->state == JOB_STATE_RUNNING)
			put_place(j, out);
		else if (j->last_error) {
			buf_puts(out, ": ");
			queue_put_line(out, j->last_error, 300);
		}
	}
	buf_putc(out, '\n');
}

/* Of a sweep most wait for the same: that's said once. */
static void put_each(struct queue *q, struct cluster *c, struct cluster_plan *p,
	const struct submitted *s, const struct store_jobs *jobs, struct buf *out)
{
	CLEANUP(buf_done) struct buf last = {0};

	for (size_t i = 0; i < s->n; i++) {
		CLEANUP(buf_done) struct buf said = {0};
		const struct job *j = find_job(jobs, s->ids[i]);

		if (!j)
			continue;
		put_state(q, c, p, j, s->was_there[i], &said);
		if (last.len && !strcmp(buf_str(&last), buf_str(&said)))
			buf_printf(out, "job %" PRId64 " submitted: likewise\n", j->id);
		else
			buf_printf(out, "job %" PRId64 " %s", j->id, buf_str(&said));
		buf_clear(&last);
		buf_put(&last, said.data, said.len);
	}
}

/* In a lane they wait for those before them, though their node has them. */
static bool has_waiting(const struct store_jobs *l)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->v[i].state == JOB_STATE_PENDING && (!l->v[i].is_bound || l->v[i].lane))
			return true;
	return false;
}

static int put_text(struct queue *q, const struct submitted *s, const struct store_jobs *jobs,
	struct buf *out, struct err *e)
{
	CLEANUP(cluster_done) struct cluster c = {0};
	CLEANUP(cluster_plan_done) struct cluster_plan p = {0};
	size_t counts[JOB_STATE_N] = {0};

	if (s->n > SHOWN_MAX) {
		for (size_t i = 0; i < jobs->n; i++)
			counts[jobs->v[i].state]++;
		buf_printf(out,
			"jobs %" PRId64 " to %" PRId64
			" submitted (%zu): %zu running, %zu waiting\n",
			s->ids[0], s->ids[s->n - 1], s->n, counts[JOB_STATE_RUNNING],
			counts[JOB_STATE_PENDING]);
		if (s->n_old)
			buf_printf(out, "%zu of them were there already (same key)\n", s->n_old);
		return 0;
	}
	if (has_waiting(jobs)) {
		int r = cluster_load(q->store, &q->config, clock_wall_ms(), true, &c, e);
		if (r)
			return r;
		cluster_plan(&c, NULL, &p);
	}
	put_each(q, &c, &p, s, jobs, out);
	return 0;
}

/* Nobody has looked at them yet, and a picture of the whole queue would cost more than the submit. */
static bool is_only_in(
	const struct queue *q, const struct submit_options *o, const struct submitted *s)
{
	return q->o->no_tick && !q->json && !o->wait && !s->n_old;
}

static int tell_numbers(const struct submitted *s, struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0};

	if (s->n > SHOWN_MAX)
		buf_printf(&out,
			"jobs %" PRId64 " to %" PRId64
			" submitted (%zu): they wait for the next pass\n",
			s->ids[0], s->ids[s->n - 1], s->n);
	else
		for (size_t i = 0; i < s->n; i++)
			buf_printf(&out, "job %" PRId64 " submitted: waits for the next pass\n",
				s->ids[i]);
	return command_print(&out, e);
}

/* One job: nvidb's document. Several: "jobs" in its place. Takes `tick`. */
static json_t *document(const struct submit_options *o, const struct submitted *s,
	const struct store_jobs *jobs, json_t *tick)
{
	bool is_bulk = o->file || o->array || o->sweep.n;
	json_t *d = json_pack("{s:b}", "ok", 1), *list = json_array();
	int64_t now = clock_wall_ms();

	for (size_t i = 0; i < s->n; i++) {
		const struct job *j = find_job(jobs, s->ids[i]);
		json_t *one = j ? record_job(j, now) : NULL;

		if (!one)
			continue;
		json_object_set_new(one, "was_there", json_boolean(s->was_there[i]));
		json_array_append_new(list, one);
	}
	if (is_bulk)
		json_object_set(d, "jobs", list);
	else
		json_object_set(d, "job", json_array_get(list, 0));
	json_decref(list);
	json_object_set_new(d, "tick", tick);
	return d;
}

static bool has_failed(const struct store_jobs *jobs)
{
	for (size_t i = 0; i < jobs->n; i++)
		if (jobs->v[i].state == JOB_STATE_FAILED)
			return true;
	return false;
}

/* Waits and puts what came of it in *jobs. */
static int wait_for(struct queue *q, const struct submit_options *o, const struct submitted *s,
	struct store_jobs *jobs, int *ret_code, struct err *e)
{
	CLEANUP(queue_waited_done) struct queue_waited done = {0};
	struct queue_wait w = {.ids = s->ids, .n = s->n};
	int r = 0;

	if (o->wait_timeout && queue_parse_duration_ms(o->wait_timeout, &w.timeout_ms))
		return err_set(e, -EINVAL,
			"--wait-timeout takes seconds, or a time as 15m, not '%.60s'",
			o->wait_timeout);
	r = queue_wait(q, &w, &done, e);
	if (r)
		return r;
	*ret_code = queue_wait_code(&w, &done);
	store_jobs_done(jobs);
	*jobs = done.jobs;
	done.jobs = (struct store_jobs){0};
	return 0;
}

static void put_end(const struct job *j, struct buf *out)
{
	buf_printf(out, "job %" PRId64 ": %s", j->id, record_state(j));
	if (job_state_is_terminal(j->state) && j->last_error) {
		buf_puts(out, ": ");
		queue_put_line(out, j->last_error, 300);
	}
	buf_putc(out, '\n');
}

static int tell(
	struct queue *q, const struct submit_options *o, const struct submitted *s, struct err *e)
{
	CLEANUP(store_jobs_done) struct store_jobs jobs = {0};
	CLEANUP(buf_done) struct buf out = {0};
	json_t *tick;
	int code = EXIT_OK, r;

	if (is_only_in(q, o, s))
		return tell_numbers(s, e);
	tick = queue_tick_after(q);
	r = read_back(q, s, &jobs, e);
	if (!r)
		code = has_failed(&jobs) ? EXIT_FAILED : EXIT_OK;
	/* Before a long wait a person wants to see that they are in. */
	if (!r && !q->json)
		r = put_text(q, s, &jobs, &out, e);
	if (!r && !q->json)
		r = command_print(&out, e);
	if (!r && o->wait) {
		r = wait_for(q, o, s, &jobs, &code, e);
		buf_clear(&out);
		for (size_t i = 0; !r && !q->json && i < jobs.n && i < SHOWN_MAX; i++)
			put_end(&jobs.v[i], &out);
		if (!r && !q->json && code >= 128)
			buf_puts(&out, "stopped waiting; the jobs go on\n");
		if (!r && !q->json)
			r = command_print(&out, e);
	}
	if (!r && q->json)
		r = queue_print_json(document(o, s, &jobs, json_incref(tick)), e);
	json_decref(tick);
	return r ? r : code;
}

static int submit_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct submit_options *o = opts;
	CLEANUP(queue_close) struct queue q = {0};
	CLEANUP(submit_jobs_done) struct submit_jobs jobs = {0};
	CLEANUP(submitted_done) struct submitted s = {0};
	int r = queue_open(&q, p, &o->q, STORE_WRITE, e);

	if (!r)
		r = submit_make(&q, o, argc, argv, &jobs, e);
	if (!r && o->dry_run)
		return dry_run(&q, &jobs, e);
	if (!r)
		r = submit_all(&q, o, &jobs, &s, e);
	return r ? r : tell(&q, o, &s, e);
}

extern const struct command cmd_job_submit;
const struct command cmd_job_submit = {
	.name = "job submit",
	.args = "[COMMAND...]",
	.summary = "put a job into the queue",
	.about =
		"One word is taken as shell text as it is; several words are quoted and joined. The job\n"
		"waits until its memory is free on a card, then runs detached on its node; it belongs to\n"
		"no terminal. Say --vram: what isn't said is learned from earlier runs of the same\n"
		"command, and until then the job gets a wholly idle card.\n"
		"\n"
		"--file takes a jobs file (gpustow run's syntax), --array and --sweep make many jobs of\n"
		"one command; all of them go in together or not at all. With --key, the same key again\n"
		"answers with the same job: a submit whose answer was lost may simply be repeated.\n"
		"\n"
		"Causes for --retry-on: cuda-oom, host-oom, gpu-fault, vanished, node-lost,\n"
		"node-rebooted, timeout, signal, exit-code, launch-failed, disk-full.\n"
		"\n"
		"Exit codes: 0 it's in (with --wait: it completed); 1 an error, or a job failed; 2 a\n"
		"mistake in options, or --wait-timeout was over with work still going.",
	.examples = "$ gpustow job submit --vram 8G -n base -- python train.py --lr 1e-3\n"
		    "$ gpustow job submit --vram 8G --sweep lr=1e-3,1e-4 -- 'train --lr {lr}'\n"
		    "$ gpustow job submit --after 12 --gpus 0 -- python report.py\n"
		    "$ gpustow job submit --dry-run --json --vram 40G -- ./big",
	.options = submit_specs,
	.options_size = sizeof(struct submit_options),
	.defaults = submit_defaults,
	.max_args = -1,
	.needs_locale = true,
	.abbreviations = true,
	.wants_json = queue_wants_json,
	.exec = submit_exec,
};
