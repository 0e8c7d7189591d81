/*
 * `job cancel`, `job release`, `job requeue`: one transaction over all the jobs named, then a pass. Each job has its own result:
 * one that can't be changed keeps none of the others from being.
 */
#include "cli/queue_candidates.h"
#include "cli/job_select.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "queue/record_json.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_MAX 50 /* jobs that text speaks of one by one */

struct change_options {
	struct queue_options q;
	struct job_select select;
	const char *reason; /* of cancel */
};

enum what { CANCEL, RELEASE, REQUEUE };

/* What became of one. */
struct result {
	int64_t id;
	bool did;
	bool is_wanted; /* cancel: the node has to speak first */
	bool is_pending; /* and it hasn't started there, as far as is known */
	bool is_missing;
	char *why; /* when not; else NULL */
	int64_t *dropped; /* release */
	size_t n_dropped;
};

struct results {
	struct result *v;
	size_t n, cap;
};

static void results_done(struct results *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free(l->v[i].why);
		free(l->v[i].dropped);
	}
	free(l->v);
}

static struct result *add(struct results *l, int64_t id)
{
	GROW(l->v, l->n, l->cap);
	l->v[l->n] = (struct result){.id = id};
	return &l->v[l->n++];
}

/* ---- the changes ---- */

static int do_cancel(struct queue *q, const char *why, struct result *r, struct err *e)
{
	enum store_cancelled c;
	int ret = store_cancel(q->store, r->id, why, &c, e);

	if (ret < 0)
		return ret;
	r->did = c == STORE_CANCELLED;
	r->is_wanted = c == STORE_CANCEL_WANTED;
	if (c == STORE_CANCEL_LATE)
		r->why = xstrdup("it has ended already");
	return 0;
}

static int do_one(struct queue *q, enum what what, const char *why, struct result *r)
{
	struct err e = {0};
	int ret;

	if (what == CANCEL)
		ret = do_cancel(q, why, r, &e);
	else if (what == RELEASE)
		ret = store_release(q->store, r->id, &r->dropped, &r->n_dropped, &e);
	else
		ret = store_requeue(q->store, r->id, &e);
	if (!ret && what != CANCEL)
		r->did = true;
	/* The table says no, or it's gone: this one's result. Anything else ends it all. */
	if (ret == -EPERM || ret == -ENOENT) {
		r->why = xstrdup(e.text);
		r->is_missing = ret == -ENOENT;
		return 0;
	}
	return ret < 0 ? ret : 0;
}

static char *reason_of(const struct program *p, const struct change_options *o)
{
	CLEANUP_FREE char *key = xasprintf("%sSUBMITTER", p->env_prefix);
	const char *who = getenv(key);
	const struct passwd *pw = getpwuid(getuid());

	if (o->reason)
		return xstrdup(o->reason);
	return who && *who ? xasprintf("by hand (%s)", who)
	       : pw	   ? xasprintf("by hand (%s)", pw->pw_name)
			   : xasprintf("by hand (%u)", (unsigned)getuid());
}

static int change_all(struct queue *q, enum what what, const char *why,
	const struct store_jobs *jobs, const struct id_list *missing, struct results *ret,
	struct err *e)
{
	int r = store_begin(q->store, NULL, e);

	for (size_t i = 0; !r && i < jobs->n; i++) {
		r = do_one(q, what, why, add(ret, jobs->v[i].id));
		if (r < 0)
			err_sys(e, r, "job %" PRId64 " could not be changed; nothing was",
				jobs->v[i].id);
	}
	if (r) {
		store_abort(q->store);
		return r;
	}
	r = store_commit(q->store, e);
	for (size_t i = 0; !r && i < missing->n; i++) {
		struct result *m = add(ret, missing->v[i]);

		m->is_missing = true;
		m->why = xasprintf("there's no job %" PRId64, m->id);
	}
	return r;
}

/* ---- what became of them ---- */

/* After the pass: has the node confirmed it? */
static int look_again(struct queue *q, struct results *l, struct err *e)
{
	for (size_t i = 0; i < l->n; i++) {
		CLEANUP(job_done) struct job j = {0};
		int r;

		if (!l->v[i].is_wanted)
			continue;
		r = store_job(q->store, l->v[i].id, &j, e);
		if (r < 0)
			return r;
		l->v[i].did = j.state == JOB_STATE_CANCELLED;
		l->v[i].is_wanted = !job_state_is_terminal(j.state);
		l->v[i].is_pending = j.state == JOB_STATE_PENDING;
		if (l->v[i].is_wanted && !queue_is_away(q, j.bind.node, &l->v[i].why))
			l->v[i].why = NULL;
		else if (!l->v[i].did && !l->v[i].is_wanted)
			l->v[i].why = xasprintf("it ended first: %s", job_state_name(j.state));
	}
	return 0;
}

/* Jobs that wait for it to complete: they can't go on now. */
static json_t *held_by(struct queue *q, int64_t id)
{
	CLEANUP_FREE int64_t *ids = NULL;
	json_t *a = json_array();
	struct err e = {0};
	size_t n = 0;

	if (store_dependents(q->store, id, &ids, &n, &e))
		return a;
	for (size_t i = 0; i < n; i++) {
		CLEANUP(job_done) struct job j = {0};
		bool needs = false;

		if (store_job(q->store, ids[i], &j, &e) || j.state != JOB_STATE_PENDING)
			continue;
		for (size_t k = 0; k < j.n_after; k++)
			needs |= j.after[k] == id;
		if (needs && j.on_dependency == ON_DEPENDENCY_HOLD)
			json_array_append_new(a, json_integer(j.id));
	}
	return a;
}

static json_t *result_json(struct queue *q, enum what what, const struct result *r)
{
	static const char *const did[] = {"cancelled", "released", "requeued"};
	json_t *o = json_pack("{s:I, s:b}", "id", (json_int_t)r->id, did[what], r->did);

	if (what == CANCEL) {
		json_object_set_new(o, "cancel_requested", json_boolean(r->is_wanted));
		json_object_set_new(
			o, "holds", r->did || r->is_wanted ? held_by(q, r->id) : json_array());
	}
	if (what == RELEASE) {
		json_t *dropped = json_array();

		for (size_t i = 0; i < r->n_dropped; i++)
			json_array_append_new(dropped, json_integer(r->dropped[i]));
		json_object_set_new(o, "dropped", dropped);
	}
	json_object_set_new(o, "reason", r->why ? json_string(r->why) : json_null());
	return o;
}

static void put_result(struct queue *q, enum what what, const struct result *r, struct buf *out)
{
	static const char *const did[] = {"cancelled", "released", "waits again"};
	json_t *holds;

	buf_printf(out, "job %" PRId64 ": ", r->id);
	if (r->is_wanted && r->is_pending)
		buf_printf(out,
			"its cancel is a request until its node has let go of it%s%s; `job wait` says when it has",
			r->why ? ": " : "", r->why ? r->why : "");
	else if (r->is_wanted && r->why)
		buf_printf(out, "will be told to end when its node answers: %s", r->why);
	else if (r->is_wanted)
		buf_puts(out, "is told to end; `job wait` says when it has");
	else if (r->did)
		buf_puts(out, did[what]);
	else
		text_put_clean(out, r->why ? r->why : "not changed",
			strlen(r->why ? r->why : "not changed"));
	for (size_t i = 0; i < r->n_dropped; i++)
		buf_printf(out, "%s%" PRId64, i ? ", " : "; it doesn't wait any more for ",
			r->dropped[i]);
	holds = what == CANCEL && (r->did || r->is_wanted) ? held_by(q, r->id) : NULL;
	for (size_t i = 0; i < json_array_size(holds); i++)
		buf_printf(out, "%s%lld", i ? ", " : "; that holds ",
			(long long)json_integer_value(json_array_get(holds, i)));
	json_decref(holds);
	buf_putc(out, '\n');
}

static int tell(
	struct queue *q, enum what what, const struct results *l, json_t *tick, struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0};
	json_t *list = json_array();
	size_t n_did = 0, n_missing = 0;
	int r;

	for (size_t i = 0; i < l->n; i++) {
		n_did += l->v[i].did || l->v[i].is_wanted;
		n_missing += l->v[i].is_missing;
		if (q->json)
			json_array_append_new(list, result_json(q, what, &l->v[i]));
		else if (i < SHOWN_MAX)
			put_result(q, what, &l->v[i], &out);
	}
	if (q->json) {
		r = queue_print_json(json_pack("{s:o, s:O}", "results", list, "tick", tick), e);
	} else {
		json_decref(list);
		if (!l->n)
			buf_puts(&out, "no jobs like that\n");
		if (l->n > SHOWN_MAX)
			buf_printf(&out, "and %zu more; changed: %zu of %zu\n", l->n - SHOWN_MAX,
				n_did, l->n);
		r = command_print(&out, e);
	}
	return r ? r : n_missing ? EXIT_FAILED : EXIT_OK;
}

static int change(const struct program *p, const struct change_options *o, enum what what, int argc,
	char **argv, struct err *e)
{
	CLEANUP(queue_close) struct queue q = {0};
	CLEANUP(store_jobs_done) struct store_jobs jobs = {0};
	CLEANUP(id_list_done) struct id_list missing = {0};
	CLEANUP(results_done) struct results results = {0};
	CLEANUP_FREE char *why = reason_of(p, o);
	json_t *tick;
	int r = queue_open(&q, p, &o->q, STORE_WRITE, e);

	if (!r)
		r = job_select_find(&q, &o->select, argc, argv, &jobs, &missing, e);
	if (!r)
		r = change_all(&q, what, why, &jobs, &missing, &results, e);
	if (r)
		return r;
	tick = queue_tick_after(&q);
	r = look_again(&q, &results, e);
	if (!r)
		r = tell(&q, what, &results, tick, e);
	json_decref(tick);
	return r;
}

static int cancel_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	return change(p, opts, CANCEL, argc, argv, e);
}

static int release_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	return change(p, opts, RELEASE, argc, argv, e);
}

static int requeue_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	return change(p, opts, REQUEUE, argc, argv, e);
}

static const struct option_spec specs[] = {
	JOB_SELECT_ROWS(struct change_options),
	QUEUE_OPTION_ROWS(struct change_options),
	QUEUE_NO_TICK_ROW(struct change_options),
	OPTION_SPEC_END,
};
static const struct option_spec cancel_specs[] = {
	{.name = "reason",
		.arg = "TEXT",
		.kind = OPTION_TEXT,
		.offset = offsetof(struct change_options, reason),
		.text = "why, for the record"},
	JOB_SELECT_ROWS(struct change_options),
	QUEUE_OPTION_ROWS(struct change_options),
	QUEUE_NO_TICK_ROW(struct change_options),
	OPTION_SPEC_END,
};

extern const struct command cmd_job_cancel, cmd_job_release, cmd_job_requeue;
const struct command cmd_job_cancel = {
	.name = "job cancel",
	.args = "[ID|RANGE...]",
	.summary = "end jobs that run, and take back those that wait",
	.about =
		"A job that waits is cancelled at once. One that runs is told to end: SIGTERM, then\n"
		"SIGKILL after its grace; until its node has said so it isn't cancelled but asked to be.\n"
		"A node that's away is told when it comes back. Jobs that need a cancelled one to\n"
		"complete are held, not cancelled.",
	.examples =
		"$ gpustow job cancel 12 15-19\n$ gpustow job cancel --tag sweep --state pending",
	.options = cancel_specs,
	.options_size = sizeof(struct change_options),
	.max_args = -1,
	.complete = COMPLETE_JOB,
	.candidates = queue_job_candidates,
	.abbreviations = true,
	.wants_json = queue_wants_json,
	.exec = cancel_exec,
};
const struct command cmd_job_release = {
	.name = "job release",
	.args = "[ID|RANGE...]",
	.summary = "let held jobs go on without what failed",
	.about =
		"What can't be met any more of a held job's prerequisites is dropped, of both kinds, and\n"
		"the hold with it.",
	.examples = "$ gpustow job release 14",
	.options = specs,
	.options_size = sizeof(struct change_options),
	.max_args = -1,
	.complete = COMPLETE_JOB,
	.candidates = queue_job_candidates,
	.abbreviations = true,
	.wants_json = queue_wants_json,
	.exec = release_exec,
};
const struct command cmd_job_requeue = {
	.name = "job requeue",
	.args = "[ID|RANGE...]",
	.summary = "run jobs again that have ended",
	.about =
		"A clean new attempt under the same number: result, error and count of attempts start\n"
		"anew; name, notes, priority and history stay.",
	.examples = "$ gpustow job requeue --state failed --tag sweep",
	.options = specs,
	.options_size = sizeof(struct change_options),
	.max_args = -1,
	.complete = COMPLETE_JOB,
	.candidates = queue_job_candidates,
	.abbreviations = true,
	.wants_json = queue_wants_json,
	.exec = requeue_exec,
};
