/* What is old enough to go: events, acknowledged alerts, and on the nodes the directories of jobs that ended long ago. */
#include "queue/pass.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/parse.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define META_KEY "retention_ms" /* when it was done last */
#define META_DIRS "dirs_removed" /* {"NODE": the moment up to which its directories are gone} */
#define EVERY_MS ((int64_t)60 * 60 * 1000)
#define OVERLAP_MS ((int64_t)24 * 60 * 60 * 1000)
#define DIRS_MAX 2000 /* names of one question */
#define REMOVE_ID 9

static int64_t meta_int(struct pass *p, const char *key)
{
	CLEANUP_FREE char *text = NULL;
	int64_t v = 0;
	struct err e;

	if (store_meta_get(p->store, key, &text, &e) < 0 || parse_int64(text, &v) < 0)
		return 0;
	return v;
}

static json_t *read_marks(struct pass *p)
{
	CLEANUP_FREE char *text = NULL;
	json_t *o = NULL;
	struct err e;

	if (!store_meta_get(p->store, META_DIRS, &text, &e))
		o = json_loads(text, 0, NULL);
	if (!json_is_object(o)) {
		json_decref(o);
		o = json_object();
	}
	return o;
}

/* "7.1", "7.2": all attempts of one job, wherever they ran; a node passes over those that it hasn't. */
static void put_names(json_t *names, const struct job *j)
{
	for (int64_t a = 1; a <= j->attempt && a <= DIRS_MAX; a++)
		json_array_append_new(names, json_sprintf("%" PRId64 ".%" PRId64, j->id, a));
}

/* Those that ended between the two moments, the first of them when there are many; *ret_to: up to where that reaches. */
static int names_of(struct pass *p, const char *node, int64_t from_ms, int64_t to_ms, json_t *names,
	struct err *e)
{
	struct store_question q = {.states = JOB_STATES_TERMINAL, .node = node, .command_max = 1};
	CLEANUP(store_jobs_done) struct store_jobs jobs = {0};
	int r = store_jobs(p->store, &q, &jobs, e);

	for (size_t i = 0; r >= 0 && i < jobs.n; i++)
		if (jobs.v[i].finished_ms > from_ms && jobs.v[i].finished_ms <= to_ms)
			put_names(names, &jobs.v[i]);
	return r < 0 ? r : 0;
}

static void send_remove(struct pass *p, struct pass_node *n, json_t *names)
{
	for (size_t i = 0; i < json_array_size(names); i += DIRS_MAX) {
		json_t *part = json_array();

		for (size_t k = i; k < json_array_size(names) && k < i + DIRS_MAX; k++)
			json_array_append(part, json_array_get(names, k));
		link_send(
			n->link, json_pack("{s:s, s:i, s:s, s:o}", "op", "remove", "id", REMOVE_ID,
					 "root", p->config->settings.job_root, "names", part));
	}
}

/* A day back: a directory that still had a claim, because something of its job went on, was passed over then. */
static int64_t mark_of(const json_t *marks, const char *node)
{
	return json_integer_value(json_object_get(marks, node)) - OVERLAP_MS;
}

/* A node that is away is asked once it's back: each has its own mark. */
static int remove_dirs(struct pass *p, json_t *marks, struct err *e)
{
	int64_t keep = p->config->settings.keep_job_dirs_ms, to = p->now_ms - keep;
	int r = 0;

	for (size_t i = 0; keep > 0 && r >= 0 && i < p->n_nodes; i++) {
		struct pass_node *n = &p->nodes[i];
		json_t *names = json_array();

		if (node_answers(n)) {
			r = names_of(p, n->name, mark_of(marks, n->name), to, names, e);
			if (r >= 0) {
				send_remove(p, n, names);
				json_object_set_new(marks, n->name, json_integer((json_int_t)to));
			}
		}
		json_decref(names);
	}
	return r;
}

static int set_int(struct pass *p, const char *key, int64_t v, struct err *e)
{
	CLEANUP_FREE char *text = xasprintf("%" PRId64, v);

	return store_meta_set(p->store, key, text, e);
}

static int write_all(struct pass *p, const json_t *marks, struct err *e)
{
	const struct queue_settings *s = &p->config->settings;
	CLEANUP_FREE char *text = json_dumps(marks, JSON_COMPACT | JSON_SORT_KEYS);
	int64_t removed;
	int r = pass_begin(p, e);

	if (r < 0)
		return r;
	r = store_trim(p->store, s->keep_events_ms > 0 ? p->now_ms - s->keep_events_ms : 0,
		s->keep_alerts_ms > 0 ? p->now_ms - s->keep_alerts_ms : 0, &removed, e);
	if (r >= 0)
		r = set_int(p, META_KEY, p->now_ms, e);
	if (r >= 0 && json_object_size(marks))
		r = store_meta_set(p->store, META_DIRS, text, e);
	if (r < 0) {
		store_abort(p->store);
		return r;
	}
	return store_commit(p->store, e);
}

int retention_apply(struct pass *p, struct err *e)
{
	int64_t last = meta_int(p, META_KEY);
	json_t *marks;
	int r;

	/* Also after a clock that was set back. */
	if (last && p->now_ms >= last && p->now_ms < last + EVERY_MS)
		return 0;
	marks = read_marks(p);
	r = remove_dirs(p, marks, e);
	if (r >= 0)
		r = write_all(p, marks, e);
	json_decref(marks);
	return r;
}
