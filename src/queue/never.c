/*
 * Jobs that no node could ever hold. One look is no proof: a card may be missing just then. So it takes three passes in a row
 * that come to the same figures, in each of which every node that is up has answered; what the passes before found is
 * kept in the record, as {"ID": [passes, "figures"]}.
 */
#include "queue/cluster.h"
#include "queue/pass.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define META_KEY "never"
#define PASSES 3
#define JOBS_MAX 10000 /* that are remembered */

static json_t *read_before(struct pass *p)
{
	CLEANUP_FREE char *text = NULL;
	json_t *o = NULL;
	struct err e;

	if (!store_meta_get(p->store, META_KEY, &text, &e))
		o = json_loads(text, 0, NULL);
	if (!json_is_object(o)) {
		json_decref(o);
		o = json_object();
	}
	return o;
}

/* Does the picture have a hole? Then "never" is said of nothing. */
static bool is_blind(const struct pass *p)
{
	for (size_t i = 0; i < p->n_nodes; i++) {
		const struct pass_node *n = &p->nodes[i];
		bool is_ignored = n->row && n->row->is_ignored;

		if (n->config && !is_ignored && !node_answers(n) &&
			(!n->row || !n->row->state || strcmp(n->row->state, NODE_DOWN) != 0))
			return true;
	}
	return false;
}

static char *figures(const struct plan_decision *d)
{
	return xasprintf("%d/%" PRId64 "/%u", (int)d->why, d->need_mib, d->have_cards);
}

static int64_t count_of(const json_t *before, const char *key, const char *now)
{
	const json_t *pair = json_object_get(before, key);
	const char *then = json_string_value(json_array_get(pair, 1));

	return then && !strcmp(then, now) ? json_integer_value(json_array_get(pair, 0)) : 0;
}

static int fail_job(struct pass *p, int64_t id, const char *why, struct err *e)
{
	int r = store_fail(p->store, id, JOB_STEP_UNSCHEDULABLE, why, e);

	if (!r)
		json_array_append_new(p->sum->finished,
			json_pack("{s:I, s:s, s:s, s:s}", "id", (json_int_t)id, "state", "failed",
				"cause", "unschedulable", "error", why));
	return r == -EPERM || r == -ENOENT ? 0 : r;
}

static int write_all(struct pass *p, const json_t *after, const int64_t *fail, char *const *why,
	size_t n, bool has_changed, struct err *e)
{
	CLEANUP_FREE char *text = json_dumps(after, JSON_COMPACT | JSON_SORT_KEYS);
	int r = pass_begin(p, e);

	if (r < 0)
		return r;
	for (size_t i = 0; r >= 0 && i < n; i++)
		r = fail_job(p, fail[i], why[i], e);
	if (r >= 0 && has_changed)
		r = store_meta_set(p->store, META_KEY, json_object_size(after) ? text : NULL, e);
	if (r < 0) {
		store_abort(p->store);
		return r;
	}
	return store_commit(p->store, e);
}

int never_apply(struct pass *p, struct cluster *c, const struct cluster_plan *plan, struct err *e)
{
	json_t *before, *after;
	CLEANUP_FREE int64_t *fail = NULL;
	CLEANUP_FREE char **why = NULL;
	size_t n = 0;
	int r = 0;

	if (is_blind(p))
		return 0;
	before = read_before(p);
	after = json_object();
	fail = xcalloc(plan->n + 1, sizeof(*fail));
	why = xcalloc(plan->n + 1, sizeof(*why));
	for (size_t i = 0; i < plan->n && json_object_size(after) < JOBS_MAX; i++) {
		const struct plan_decision *d = &plan->decisions[i];
		CLEANUP_FREE char *now = NULL;
		char key[24];
		int64_t passes;

		if (d->what != PLAN_NEVER || job_is_held(&c->pending.v[i]))
			continue;
		now = figures(d);
		snprintf(key, sizeof(key), "%" PRId64, c->pending.v[i].id);
		passes = count_of(before, key, now) + 1;
		if (passes < PASSES) {
			json_object_set_new(
				after, key, json_pack("[I,s]", (json_int_t)passes, now));
			continue;
		}
		CLEANUP(buf_done) struct buf text = {0};

		cluster_why(c, plan, i, &text);
		fail[n] = c->pending.v[i].id;
		why[n++] = xstrdup(buf_str(&text));
	}
	if (n || !json_equal(before, after))
		r = write_all(p, after, fail, why, n, !json_equal(before, after), e);
	for (size_t i = 0; i < n; i++)
		free(why[i]);
	json_decref(before);
	json_decref(after);
	return r;
}
