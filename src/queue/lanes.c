/*
 * What the nodes' lanes should be, bound and recorded (lanes.h). Nothing is written, and nothing sent, where a node has what it
 * should.
 */
#include "queue/lanes.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "queue/launch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS_MAX 20
#define BYTES_MAX (16 * 1024 * 1024) /* of the jobs in one document */
#define BINDS_MAX 2000 /* of one round */
#define SEEN_MS 60000 /* what hasn't changed is written no more often */

/* ---- rows ---- */

struct new_lane {
	const char *node;
	char *cards;
};

static void add_new(const struct store_lanes *known, const char *node, const char *cards,
	struct new_lane **v, size_t *n, size_t *cap)
{
	CLEANUP_FREE char *name = xasprintf("%s:%s", node, cards);

	for (size_t i = 0; i < known->n; i++)
		if (!strcmp(known->v[i].name, name))
			return;
	GROW(*v, *n, *cap);
	(*v)[(*n)++] = (struct new_lane){node, xstrdup(cards)};
}

/* One for each card that jobs may get; those of several cards are made when somebody names them. */
static void find_new(const struct pass *p, const struct cluster *c, struct new_lane **v, size_t *n)
{
	size_t cap = 0;

	for (size_t i = 0; i < c->n_nodes; i++) {
		const struct cluster_node *node = &c->nodes[i];

		for (size_t k = 0; node->config && k < node->inv.n_cards; k++) {
			char label[GPU_LABEL_LEN];

			if (!node->cards[k].is_allowed || node->inv.cards[k].is_mig_parent)
				continue;
			inv_card_label(&node->inv.cards[k], label);
			add_new(&c->lane_rows, node->config->name, label, v, n, &cap);
		}
	}
	/* Those that only jobs name came with another program's record. */
	for (size_t i = 0; i < c->in_lanes.n; i++) {
		const char *name = c->in_lanes.v[i].lane;
		CLEANUP_FREE char *node = NULL, *cards = NULL;
		struct err e;

		if ((i && !strcmp(name, c->in_lanes.v[i - 1].lane)) ||
			cluster_lane_named(c, name) ||
			cluster_lane_resolve(c, name, &node, &cards, &e) < 0)
			continue;
		for (size_t m = 0; m < p->config->n_nodes; m++)
			if (!strcmp(p->config->nodes[m].name, node))
				add_new(&c->lane_rows, p->config->nodes[m].name, cards, v, n, &cap);
	}
}

static int make_rows(struct pass *p, const struct cluster *c, bool *ret_made, struct err *e)
{
	struct new_lane *v = NULL;
	size_t n = 0;
	int r = 0;

	find_new(p, c, &v, &n);
	if (n)
		r = pass_begin(p, e);
	for (size_t i = 0; n && r >= 0 && i < n; i++)
		r = store_lane_make(p->store, v[i].node, v[i].cards, e);
	if (n && r < 0)
		store_abort(p->store);
	else if (n)
		r = store_commit(p->store, e);
	for (size_t i = 0; i < n; i++)
		free(v[i].cards);
	free(v);
	*ret_made = n > 0;
	return r;
}

/* ---- what is wanted, and what there is ---- */

static bool is_claimed(const void *arg, int64_t job, int64_t attempt)
{
	return exchange_has_claim(arg, job, attempt);
}

static int64_t need_waits(const json_t *lane)
{
	const json_t *why = json_object_get(lane, "why");
	const char *reason = json_string_value(json_object_get(why, "reason"));

	return reason && !strncmp(reason, "need", 4)
		       ? json_integer_value(json_object_get(why, "job"))
		       : 0;
}

static bool is_of(const json_t *entry, int64_t job, int64_t attempt)
{
	return json_integer_value(json_array_get(entry, 0)) == job &&
	       json_integer_value(json_array_get(entry, 1)) == attempt;
}

/* Does what waits there, in its order, differ from what should? */
static bool has_other_order(const struct lane_doc *doc, const json_t *lane)
{
	const json_t *queued = json_object_get(lane, "queued"), *entry;
	size_t i, k = 0;

	json_array_foreach(queued, i, entry)
	{
		while (k < doc->wants.n && !doc->wants.v[k].is_queued)
			k++;
		if (k == doc->wants.n || doc->wants.v[k].pending >= 0 ||
			!is_of(entry, doc->wants.v[k].job->id, doc->wants.v[k].attempt))
			return true;
		k++;
	}
	while (k < doc->wants.n && !doc->wants.v[k].is_queued)
		k++;
	return k < doc->wants.n;
}

static bool is_other(const struct lane_doc *doc, const json_t *lane)
{
	return json_is_true(json_object_get(lane, "paused")) != doc->is_paused ||
	       json_integer_value(json_object_get(lane, "concurrency")) !=
		       doc->lane->row->concurrency ||
	       has_other_order(doc, lane) || lane_has_other_policy(doc->node, lane);
}

static bool is_acked(const struct lane_doc *doc)
{
	const struct store_lane *r = doc->lane->row;

	return r->generation <= r->acked_generation &&
	       !strcmp(r->acked_root, doc->node->hello.root_id);
}

/* It took what it was sent, and its answer came too late to be heard: what `observe` brought says the same. */
static bool is_taken(const struct lane_doc *doc, const json_t *lane)
{
	return lane && !is_acked(doc) && doc->lane->row->generation > 0 &&
	       json_integer_value(json_object_get(lane, "generation")) ==
		       doc->lane->row->generation &&
	       json_integer_value(json_object_get(lane, "incarnation")) ==
		       doc->node->pass->lease.incarnation &&
	       !is_other(doc, lane);
}

static bool has_changed(const struct lane_doc *doc, const json_t *lane)
{
	const struct store_lane *r = doc->lane->row;
	bool is_known = lane || r->acked_generation;

	if (!lane && !doc->wants.n && !(is_known && r->generation > r->acked_generation))
		return false;
	/* Nobody ever told the node of it, and there's nothing to tell. */
	if (!is_acked(doc))
		return !is_taken(doc, lane);
	return !lane || is_other(doc, lane);
}

static struct pass_node *node_of(
	struct pass *p, const struct cluster *c, const struct cluster_lane *l)
{
	struct pass_node *n = l->node >= 0 ? pass_node_named(p, l->row->node) : NULL;

	(void)c;
	return n && node_answers(n) && !n->is_lane_silent ? n : NULL;
}

static int make_docs(struct lane_docs *d, struct err *e)
{
	struct cluster *c = &d->cluster;
	struct store_lane_needs *sent = NULL;
	struct handout h = {.c = c, .plan = &d->plan, .is_claimed = is_claimed};
	int r = store_lane_needs(d->pass->store, &sent, &h.n_sent, e);

	h.sent = sent;
	d->v = xcalloc(c->n_lanes + 1, sizeof(*d->v));
	for (size_t i = 0; r >= 0 && i < c->n_lanes; i++) {
		struct lane_doc *doc = &d->v[d->n];
		const json_t *there;

		*doc = (struct lane_doc){.lane = &c->lanes[i]};
		doc->node = node_of(d->pass, c, doc->lane);
		if (!doc->node)
			continue;
		there = lane_of_node(doc->node, doc->lane->row->name);
		doc->is_paused = cluster_lane_is_paused(doc->lane);
		h.arg = doc->node;
		h.there = there;
		h.need_waits = need_waits(there);
		cluster_lane_wants(&h, doc->lane, &doc->wants);
		d->n++;
	}
	store_lane_needs_done(sent, h.n_sent);
	free(h.planned);
	return r;
}

static void docs_done(struct lane_docs *d)
{
	for (size_t i = 0; i < d->n; i++) {
		struct lane_doc *doc = &d->v[i];

		lane_wants_done(&doc->wants);
		for (size_t k = 0; k < doc->n; k++)
			json_decref(doc->items[k].whole);
		free(doc->items);
		json_decref(doc->answer);
	}
	free(d->v);
	cluster_plan_done(&d->plan);
	cluster_done(&d->cluster);
	free(d);
}

/* ---- binding ---- */

static struct lane_item *add_item(
	struct lane_doc *doc, int64_t job, int64_t attempt, const char *token)
{
	struct lane_item *x;

	GROW(doc->items, doc->n, doc->cap);
	x = &doc->items[doc->n++];
	*x = (struct lane_item){.job = job, .attempt = attempt};
	memcpy(x->token, token, ID_LEN);
	return x;
}

/* 1: it can't be bound now, and those behind it aren't. */
static int bind_entry(
	struct lane_docs *d, struct lane_doc *doc, const struct lane_want *w, struct err *e)
{
	struct pass *p = d->pass;
	const struct cluster_node *node = &d->cluster.nodes[doc->lane->node];
	enum vram_source from = VRAM_NONE;
	int64_t mib = cluster_need_mib(&d->cluster, &d->plan, (size_t)w->pending, &from);
	CLEANUP_FREE char *needs = w->needs ? json_dumps(w->needs, JSON_COMPACT) : NULL;
	CLEANUP(job_done) struct job j = {0};
	struct lane_item *x;
	int r = store_job(p->store, w->job->id, &j, e);

	if (r == -ENOENT)
		return 1;
	/* Somebody had it in his hands meanwhile. */
	if (r == 0 && (!j.lane || strcmp(j.lane, doc->lane->row->name) != 0 ||
			      j.attempt + 1 != w->attempt || j.is_bound))
		return 1;
	if (r == 0)
		r = launch_note_need(p, &j, mib, from, e);
	if (r < 0)
		return r == -EPERM ? 1 : r;
	launch_make_bind(doc->node, node, w->cards, j.idle ? UNDECLARED : mib, &j.bind);
	r = store_bind(p->store, j.id, &j.bind, &j.attempt, e);
	if (r >= 0 && needs)
		r = store_lane_needs_put(p->store, j.id, j.attempt, needs, e);
	if (r < 0)
		return r == -EPERM ? 1 : r;
	x = add_item(doc, j.id, j.attempt, j.bind.token);
	x->is_queued = true;
	x->whole = launch_entry(p, &j, &node->inv, w->needs, doc->node);
	doc->bytes += strlen(j.command);
	return 0;
}

static int bind_doc(struct lane_docs *d, struct lane_doc *doc, size_t *n_binds, struct err *e)
{
	for (size_t i = 0; i < doc->wants.n; i++) {
		const struct lane_want *w = &doc->wants.v[i];
		int r;

		if (w->pending < 0) {
			add_item(doc, w->job->id, w->attempt, w->job->bind.token)->is_queued =
				w->is_queued;
			continue;
		}
		doc->is_cut = doc->bytes >= BYTES_MAX || *n_binds >= BINDS_MAX;
		if (doc->is_cut)
			return 0;
		r = bind_entry(d, doc, w, e);
		if (r)
			return r < 0 ? r : 0;
		++*n_binds;
		d->n_bound++;
	}
	return 0;
}

/* The number it's sent under: above what the node has, and never one that another document had. */
static int fix_generation(struct lane_docs *d, struct lane_doc *doc, struct err *e)
{
	const struct store_lane *r = doc->lane->row;
	const json_t *there = lane_of_node(doc->node, r->name);
	int64_t its = json_integer_value(json_object_get(there, "generation")),
		most = r->acked_generation;

	most = its > most ? its : most;
	doc->generation = r->generation;
	return r->generation > most
		       ? 0
		       : store_lane_bump(d->pass->store, r->name, most + 1, &doc->generation, e);
}

/* 1: somebody changed it since it was read, and an acknowledgement of this document would count for that. */
static int was_changed(struct lane_docs *d, const struct lane_doc *doc, struct err *e)
{
	CLEANUP(store_lane_done) struct store_lane now = {0};
	int r = store_lane(d->pass->store, doc->lane->row->name, &now, e);

	return r < 0 ? r : now.generation != doc->lane->row->generation;
}

static int bind_all(struct lane_docs *d, struct err *e)
{
	size_t n_binds = 0;
	int r = pass_begin(d->pass, e);

	if (r < 0)
		return r;
	for (size_t i = 0; r >= 0 && i < d->n; i++) {
		struct lane_doc *doc = &d->v[i];

		if (!has_changed(doc, lane_of_node(doc->node, doc->lane->row->name)))
			continue;
		r = was_changed(d, doc, e);
		d->has_stale |= r > 0;
		if (r > 0)
			continue;
		if (r == 0)
			r = bind_doc(d, doc, &n_binds, e);
		if (r >= 0)
			r = fix_generation(d, doc, e);
	}
	if (r < 0) {
		store_abort(d->pass->store);
		return r;
	}
	return store_commit(d->pass->store, e);
}

/* ---- what came of it ---- */

/* In a transaction. *ret_n: how many were let go of. */
static int take_gone(struct lane_docs *d, const struct lane_doc *doc, size_t *ret_n, struct err *e)
{
	const json_t *list = json_object_get(doc->answer, "gone"), *entry;
	CLEANUP_FREE char *why = xasprintf("%s has let go of it", doc->node->name);
	size_t i;

	json_array_foreach(list, i, entry)
	{
		int64_t job = json_integer_value(json_array_get(entry, 0)),
			attempt = json_integer_value(json_array_get(entry, 1));
		const char *state = json_string_value(json_array_get(entry, 2));
		int r;

		if (state && strcmp(state, "none") != 0)
			exchange_stop_wanted(doc->node, job, attempt);
		if (!state || strcmp(state, "none") != 0)
			continue;
		r = store_unbind(d->pass->store, job, attempt, NULL, e);
		/* Purged, or of another time: nothing of it is bound here. */
		if (r < 0 && r != -ENOENT && r != -EPERM)
			return r;
		*ret_n += r == 0;
	}
	return 0;
}

static int take_answer(
	struct lane_docs *d, const struct lane_doc *doc, size_t *ret_n, struct err *e)
{
	struct store *s = d->pass->store;
	const char *name = doc->lane->row->name;
	int64_t its = json_integer_value(json_object_get(doc->answer, "generation")), ignored;
	CLEANUP_FREE char *state = lane_state_text(doc->answer);
	int r;

	/* It has a newer one, of a time that this record doesn't know: the next is above it. */
	if (its != doc->generation)
		return store_lane_bump(s, name, its + 1, &ignored, e);
	r = store_lane_acked(s, name, doc->node->hello.root_id, doc->generation, state, e);
	return r < 0 ? r : take_gone(d, doc, ret_n, e);
}

/* What is there already needn't be told; that it was seen is written now and then. */
static bool is_seen_news(const struct lane_docs *d, const struct lane_doc *doc, char **ret_state)
{
	const json_t *there = lane_of_node(doc->node, doc->lane->row->name);
	const struct store_lane *r = doc->lane->row;

	if (!there || doc->generation || !r->acked_generation)
		return false;
	*ret_state = lane_state_text(there);
	return d->pass->now_ms - r->runner_seen_ms >= SEEN_MS || !r->runner_state ||
	       strcmp(r->runner_state, *ret_state) != 0;
}

static int record_all(struct lane_docs *d, size_t *ret_n, struct err *e)
{
	bool is_open = false;
	int r = 0;

	for (size_t i = 0; r >= 0 && i < d->n; i++) {
		struct lane_doc *doc = &d->v[i];
		const json_t *there = lane_of_node(doc->node, doc->lane->row->name);
		CLEANUP_FREE char *state = NULL;
		bool is_late = !doc->generation && is_taken(doc, there);
		bool is_seen = !is_late && is_seen_news(d, doc, &state);

		if (!is_seen && !is_late && doc->state != DOC_ANSWERED)
			continue;
		if (!is_open)
			r = pass_begin(d->pass, e);
		if (r < 0)
			return r;
		is_open = true;
		if (is_late) {
			state = lane_state_text(there);
			r = store_lane_acked(d->pass->store, doc->lane->row->name,
				doc->node->hello.root_id, doc->lane->row->generation, state, e);
			continue;
		}
		r = is_seen ? store_lane_seen(d->pass->store, doc->lane->row->name, state, e)
			    : take_answer(d, doc, ret_n, e);
	}
	if (!is_open)
		return r;
	if (r < 0) {
		store_abort(d->pass->store);
		return r;
	}
	return store_commit(d->pass->store, e);
}

static bool is_any_changed(const struct lane_docs *d)
{
	for (size_t i = 0; i < d->n; i++)
		if (has_changed(&d->v[i], lane_of_node(d->v[i].node, d->v[i].lane->row->name)))
			return true;
	return false;
}

/* The answers are what the nodes have from now on. */
static void remember(struct lane_docs *d)
{
	for (size_t i = 0; i < d->n; i++)
		if (d->v[i].state == DOC_ANSWERED)
			json_object_set(
				d->v[i].node->lanes, d->v[i].lane->row->name, d->v[i].answer);
}

static bool is_any_cut(const struct lane_docs *d)
{
	for (size_t i = 0; i < d->n; i++)
		if (d->v[i].is_cut && d->v[i].state == DOC_ANSWERED)
			return true;
	return false;
}

/* What was bound just now may be what others of the node waited for. */
static bool has_more(const struct lane_docs *d)
{
	size_t n = 0;

	for (size_t i = 0; i < d->cluster.in_lanes.n; i++)
		n += !d->cluster.in_lanes.v[i].is_bound;
	return d->n_bound && n > d->n_bound;
}

/* The round's end. Another one, when some were let go of, or there was more than one document takes. */
static int take_round(struct pass *p, struct err *e)
{
	struct lane_docs *d = p->lane_docs;
	size_t n_gone = 0;
	int r;

	if (d->has_sent)
		fault_point("queue.before-lane-ack");
	r = record_all(d, &n_gone, e);
	if (r < 0)
		return r;
	remember(d);
	p->is_lane_again = n_gone > 0 || d->has_stale || is_any_cut(d) || has_more(d);
	lanes_drop(p);
	p->stage = PASS_LANES;
	return 0;
}

static int hand_out(struct pass *p, struct err *e)
{
	struct lane_docs *d = p->lane_docs;
	int r = make_docs(d, e);

	if (r < 0)
		return r;
	if (!is_any_changed(d))
		return take_round(p, e);
	fault_point("queue.before-lane-bind");
	r = bind_all(d, e);
	fault_point("queue.after-lane-bind");
	/* As with launches: whoever has the lease now decides about these binds. */
	if (r >= 0)
		r = pass_keep(p, e);
	if (r < 0)
		return r;
	p->stage = PASS_LANE_ANSWERS;
	return lane_docs_begin(d, e);
}

void lanes_drop(struct pass *p)
{
	if (p->lane_docs)
		docs_done(p->lane_docs);
	p->lane_docs = NULL;
}

static int one_round(struct pass *p, struct err *e)
{
	struct lane_docs *d = p->lane_docs = xcalloc(1, sizeof(*d));
	int r;

	d->pass = p;
	p->is_lane_again = false;
	r = cluster_load_for_lanes(p->store, p->config, p->now_ms, &d->cluster, e);
	if (r >= 0)
		r = make_rows(p, &d->cluster, &p->is_lane_again, e);
	if (r < 0 || p->is_lane_again || !d->cluster.n_lanes) {
		lanes_drop(p);
		return r < 0 ? r : 0;
	}
	cluster_plan(&d->cluster, NULL, &d->plan);
	r = hand_out(p, e);
	if (r < 0)
		lanes_drop(p);
	return r;
}

int lanes_round(struct pass *p, struct err *e)
{
	if (p->is_lane_again && !p->signal_no && p->lane_round++ < ROUNDS_MAX)
		return one_round(p, e);
	p->stage = PASS_PLANS;
	return settle(p, false, e);
}

int lanes_answers(struct pass *p, struct err *e)
{
	int r = lane_docs_turn(p->lane_docs, e);

	if (r)
		return r;
	return take_round(p, e);
}
