/*
 * Which jobs of a lane its node should have (cluster.h). A prerequisite that's on the same node is told to the node, which
 * sees for itself when it's met; every other one has to be met before its job is handed out.
 */
#include "queue/cluster_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void lane_wants_done(struct lane_wants *w)
{
	for (size_t i = 0; i < w->n; i++)
		json_decref(w->v[i].needs);
	free(w->v);
	*w = (struct lane_wants){0};
}

/* ---- prerequisites ---- */

static json_t *need(int64_t job, int64_t attempt, bool any)
{
	return json_pack("[I, I, s]", (json_int_t)job, (json_int_t)attempt, any ? "end" : "ok");
}

/* Another attempt may follow its end: whether it has ended for good is the queue's to say. */
static bool is_retried(const struct cluster *c, const struct job *j)
{
	return j->max_retries > 0 || j->oom_retries > 0 ||
	       (j->oom_retries < 0 && c->config->settings.oom_retries > 0);
}

static const struct handout_planned *planned(const struct handout *h, int64_t job, int32_t node)
{
	for (size_t i = 0; i < h->n_planned; i++)
		if (h->planned[i].job == job && h->planned[i].node == node)
			return &h->planned[i];
	return NULL;
}

/* Stands it behind j in j's own lane? There it could never be reached. */
static bool is_behind(const struct cluster_lane *l, const struct job *j, int64_t other)
{
	size_t mine = cluster_lane_place(l, j->id), its = cluster_lane_place(l, other);

	return its && its > mine;
}

/* One of them as the node is told of it; NULL: it isn't that node's to see. */
static json_t *local_need(const struct handout *h, const struct cluster_lane *l,
	const struct job *j, const struct store_unmet_row *row)
{
	const struct job *p = cluster_live(h->c, row->needs);
	const struct handout_planned *next = planned(h, row->needs, l->node);

	if (is_behind(l, j, row->needs))
		return NULL;
	if (next)
		return row->any && is_retried(h->c, next->of)
			       ? NULL
			       : need(next->job, next->attempt, row->any);
	if (!p || !p->bind.node || strcmp(p->bind.node, l->row->node) != 0)
		return NULL;
	return row->any && is_retried(h->c, p) ? NULL : need(p->id, p->attempt, row->any);
}

/* All of them; false: it can't be handed out. */
static bool local_needs(
	const struct handout *h, const struct cluster_lane *l, const struct job *j, json_t **ret)
{
	const struct store_unmet_row *rows;
	size_t n = cluster_unmet_of(h->c, j, &rows);
	json_t *list = json_array();

	for (size_t i = 0; i < n; i++) {
		json_t *one;

		if (!cluster_row_blocks(j, &rows[i]))
			continue;
		one = local_need(h, l, j, &rows[i]);
		if (!one || json_array_size(list) >= LANE_HANDED_MAX) {
			json_decref(one);
			json_decref(list);
			return false;
		}
		json_array_append_new(list, one);
	}
	*ret = list;
	return true;
}

static int by_job(const void *key, const void *row)
{
	int64_t a = *(const int64_t *)key, b = ((const struct store_lane_needs *)row)->job;

	return (a > b) - (a < b);
}

static bool has(const json_t *list, const json_t *item)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		if (json_equal(json_array_get(list, i), item))
			return true;
	return false;
}

/* It was told to wait for something that it needn't wait for any more, by what the record says. */
static bool is_dropped(const struct handout *h, const struct job *j, const json_t *item)
{
	int64_t id = json_integer_value(json_array_get(item, 0));
	const struct store_unmet_row *rows;
	size_t n = cluster_unmet_of(h->c, j, &rows);

	if (cluster_live(h->c, id) || cluster_pending(h->c, id) >= 0 || h->need_waits == j->id)
		return true;
	for (size_t i = 0; i < n; i++)
		if (rows[i].needs == id)
			return true;
	return false;
}

/* Is what it was handed out with still what it waits for? */
static bool is_rightly_handed(const struct handout *h, const struct job *j, const json_t *needs)
{
	const struct store_lane_needs *row =
		h->n_sent ? bsearch(&j->id, h->sent, h->n_sent, sizeof(*h->sent), by_job) : NULL;
	json_t *sent = row && row->attempt == j->attempt ? json_loads(row->needs, 0, NULL) : NULL;
	bool ok = true;

	for (size_t i = 0; ok && i < json_array_size(needs); i++)
		ok = has(sent, json_array_get(needs, i));
	for (size_t i = 0; ok && i < json_array_size(sent); i++)
		ok = has(needs, json_array_get(sent, i)) ||
		     !is_dropped(h, j, json_array_get(sent, i));
	json_decref(sent);
	return ok;
}

/* ---- memory, grace, directory ---- */

/* An agent that doesn't tell its entries' grace leaves them what they came with. */
static bool has_other_grace(const struct handout *h, const struct job *j)
{
	int64_t grace_ms = j->grace_ms >= 0 ? j->grace_ms : h->c->config->settings.kill_grace_ms;
	const json_t *entry;
	size_t i;

	json_array_foreach(json_object_get(h->there, "queued"), i, entry)
	{
		const json_t *its = json_array_get(entry, 2);

		if (json_integer_value(json_array_get(entry, 0)) == j->id &&
			json_integer_value(json_array_get(entry, 1)) == j->attempt)
			return json_is_integer(its) && json_integer_value(its) != grace_ms;
	}
	return false;
}

/* "<job_root>/<queue>/<job>.<attempt>", below the account's home where job_root isn't absolute. */
static bool is_below(const char *dir, const char *root, const struct job *j)
{
	CLEANUP_FREE char *end = xasprintf("/%" PRId64 ".%" PRId64, j->id, j->attempt);
	size_t n = strlen(dir), more = 1 + (ID_LEN - 1) + strlen(end), n_root = strlen(root);
	const char *at = n >= more + n_root ? dir + n - more - n_root : NULL;

	return at && !strncmp(at, root, n_root) && at[n_root] == '/' &&
	       (at == dir || (root[0] != '/' && at[-1] == '/')) &&
	       !strcmp(dir + n - strlen(end), end);
}

/* The node tells it of the next one only: where that one's is right, all are. */
static bool has_other_dir(const struct handout *h, const struct job *j)
{
	const json_t *next = json_array_get(json_object_get(h->there, "queued"), 0);
	const char *dir = json_string_value(json_object_get(h->there, "dir"));

	return dir && json_integer_value(json_array_get(next, 0)) == j->id &&
	       json_integer_value(json_array_get(next, 1)) == j->attempt &&
	       !is_below(dir, h->c->config->settings.job_root, j);
}

/* Is what was promised to it, and what it was told, still what the record and the configuration say? */
static bool is_as_said(const struct handout *h, const struct job *j)
{
	return !wish_has_other_need(h->c, j) && !has_other_grace(h, j) && !has_other_dir(h, j);
}

/* ---- cards ---- */

/* Of a lane of several cards that runs several jobs at a time: those that the fewest of its jobs have. */
static uint64_t choose_cards(const struct handout *h, const struct cluster_lane *l,
	const struct lane_wants *w, uint64_t from, uint32_t n)
{
	const struct inventory *inv = &h->c->nodes[l->node].inv;
	uint32_t used[GPU_MAX] = {0};
	uint64_t ret = 0;

	for (size_t i = 0; l->row->concurrency > 1 && i < w->n; i++)
		for (size_t k = 0; k < inv->n_cards && k < GPU_MAX; k++) {
			const struct lane_want *x = &w->v[i];
			bool has_it = x->pending >= 0 && (x->cards >> k & 1);

			for (size_t m = 0; x->pending < 0 && m < x->job->bind.n_cards; m++)
				has_it |= !strcmp(x->job->bind.cards[m].uuid, inv->cards[k].uuid);
			used[k] += has_it;
		}
	for (; n; n--) {
		size_t best = GPU_MAX;

		for (size_t k = 0; k < inv->n_cards && k < GPU_MAX; k++)
			if ((from >> k & 1) && (best == GPU_MAX || used[k] < used[best]))
				best = k;
		if (best == GPU_MAX)
			return 0;
		from &= ~(UINT64_C(1) << best);
		ret |= UINT64_C(1) << best;
	}
	return ret;
}

/* The cards that it asked for, out of the lane's; false: there aren't so many that will do. */
static bool cards_for(const struct handout *h, const struct cluster_lane *l,
	const struct lane_wants *w, size_t pending, uint64_t *ret)
{
	const struct plan_job *pj = &h->plan->inner->jobs[pending];
	uint64_t from = l->cards & (pj->node_cards ? pj->node_cards[l->node] : UINT64_MAX);

	*ret = 0;
	if (!pj->gpus)
		return true;
	if (pj->only_node >= 0 && pj->only_node != l->node)
		return false;
	*ret = choose_cards(h, l, w, from, pj->gpus);
	return *ret != 0;
}

/* ---- the lane ---- */

static struct lane_want *add(struct lane_wants *w, const struct job *j)
{
	GROW(w->v, w->n, w->cap);
	w->v[w->n] = (struct lane_want){.job = j, .attempt = j->attempt, .pending = -1};
	return &w->v[w->n++];
}

/* One that waits: true, and it's wanted; false, and it and those behind it aren't. */
static bool want_queued(
	struct handout *h, const struct cluster_lane *l, const struct job *j, struct lane_wants *w)
{
	json_t *needs = NULL;
	ssize_t at = j->is_bound ? -1 : cluster_pending(h->c, j->id);
	struct lane_want *x;
	uint64_t cards = 0;
	bool ok = !job_is_held(j) && local_needs(h, l, j, &needs);

	if (ok && j->is_bound)
		ok = is_rightly_handed(h, j, needs) && is_as_said(h, j);
	else if (ok)
		ok = at >= 0 && !l->why_not[0] && !h->c->waits_for_nodes &&
		     h->plan->decisions[at].what != PLAN_NEVER &&
		     cards_for(h, l, w, (size_t)at, &cards);
	if (!ok) {
		json_decref(needs);
		return false;
	}
	x = add(w, j);
	x->is_queued = true;
	if (j->is_bound) {
		json_decref(needs);
		return true;
	}
	x->pending = at;
	x->attempt = j->attempt + 1;
	x->cards = cards;
	if (json_array_size(needs))
		x->needs = needs;
	else
		json_decref(needs);
	GROW(h->planned, h->n_planned, h->cap_planned);
	h->planned[h->n_planned++] = (struct handout_planned){j->id, x->attempt, l->node, j};
	return true;
}

void cluster_lane_wants(struct handout *h, const struct cluster_lane *l, struct lane_wants *ret)
{
	for (size_t i = 0; i < l->n && ret->n < LANE_HANDED_MAX; i++) {
		const struct job *j = &l->jobs[i];
		bool is_claimed = j->state == JOB_STATE_RUNNING ||
				  (j->is_bound && h->is_claimed(h->arg, j->id, j->attempt));

		if (is_claimed)
			add(ret, j);
	}
	/* Without a runner only what runs is its node's; the rest comes by the passes. */
	for (size_t i = l->n_running; l->row->has_runner && i < l->n && ret->n < LANE_HANDED_MAX;
		i++) {
		const struct job *j = &l->jobs[i];

		if ((j->is_bound && h->is_claimed(h->arg, j->id, j->attempt)) || j->cancel_ms ||
			j->lane_next)
			continue;
		if (!want_queued(h, l, j, ret))
			return;
	}
}
