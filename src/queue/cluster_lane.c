/*
 * Lanes in the cluster (cluster.h): their cards on their nodes, their jobs in order, and what the plan must know of them. A
 * lane that its node runs isn't the plan's to place; it only counts what the lane holds. One without a runner is: its first
 * jobs are placed by each pass, on its cards only.
 */
#include "queue/cluster_inner.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what there is ---- */

static void find_cards(const struct cluster *c, struct cluster_lane *l)
{
	const struct inventory *inv = l->node >= 0 ? &c->nodes[l->node].inv : NULL;

	for (const char *at = l->row->cards; *at; at += *at == ',') {
		size_t n = strcspn(at, ",");
		CLEANUP_FREE char *word = xstrndup(at, n);
		int card = inv ? inventory_find(inv, word) : -1;

		at += n;
		l->n_named++;
		if (card < 0 || card >= GPU_MAX)
			continue;
		l->n_known++;
		l->cards |= UINT64_C(1) << card;
	}
}

const struct cluster_lane *cluster_lane_named(const struct cluster *c, const char *name)
{
	for (size_t i = 0; name && i < c->n_lanes; i++)
		if (!strcmp(c->lanes[i].row->name, name))
			return &c->lanes[i];
	return NULL;
}

/* Jobs come by lane: each has a piece of the list. */
static void give_jobs(struct cluster *c)
{
	for (size_t i = 0, end; i < c->in_lanes.n; i = end) {
		const char *name = c->in_lanes.v[i].lane;
		struct cluster_lane *l =
			(struct cluster_lane *)(uintptr_t)cluster_lane_named(c, name);

		for (end = i; end < c->in_lanes.n && !strcmp(c->in_lanes.v[end].lane, name); end++)
			if (l && c->in_lanes.v[end].state == JOB_STATE_RUNNING)
				l->n_running++;
		if (!l)
			continue;
		l->jobs = &c->in_lanes.v[i];
		l->n = end - i;
	}
}

void lanes_fill(struct cluster *c)
{
	c->n_lanes = c->lane_rows.n;
	c->lanes = xcalloc(c->n_lanes + 1, sizeof(*c->lanes));
	for (size_t i = 0; i < c->n_lanes; i++) {
		struct cluster_lane *l = &c->lanes[i];

		*l = (struct cluster_lane){.row = &c->lane_rows.v[i]};
		l->node = cluster_node_named(c, l->row->node);
		find_cards(c, l);
	}
	give_jobs(c);
}

/* ---- may its node start anything of it? ---- */

static void say(struct cluster_lane *l, const char *who, const char *why)
{
	CLEANUP(buf_done) struct buf text = {0};

	text_put_clean(&text, who, strlen(who));
	if (*who)
		buf_puts(&text, ": ");
	text_put_clean(&text, why, strlen(why));
	snprintf(l->why_not, sizeof(l->why_not), "%.250s", buf_str(&text));
}

static void judge(const struct cluster *c, struct cluster_lane *l)
{
	const struct cluster_node *n = l->node >= 0 ? &c->nodes[l->node] : NULL;

	if (!n) {
		say(l, l->row->node, "not in the configuration");
		return;
	}
	/* One that is silent is told nothing; what it has goes on. */
	if (!n->is_usable) {
		say(l, l->row->node, n->why_not);
		return;
	}
	for (size_t k = 0; k < n->inv.n_cards && k < GPU_MAX; k++) {
		char label[GPU_LABEL_LEN], who[GPU_LABEL_LEN + 8];

		if (!(l->cards >> k & 1) || n->cards[k].is_usable)
			continue;
		inv_card_label(n->cards[k].inv, label);
		snprintf(who, sizeof(who), "GPU %s", label);
		say(l, who, n->cards[k].why_not);
		return;
	}
	if (l->n_known < l->n_named)
		say(l, l->row->node, "isn't known to have all of the lane's GPUs");
}

void lanes_judge(struct cluster *c)
{
	for (size_t i = 0; i < c->n_lanes; i++)
		judge(c, &c->lanes[i]);
}

bool cluster_lane_is_paused(const struct cluster_lane *l)
{
	return l->row->is_paused || l->row->is_stopped || l->why_not[0];
}

/* ---- for the plan ---- */

static int lane_order(const void *a, const void *b)
{
	const struct job *x = a, *y = b;
	int by_name = strcmp(x->lane, y->lane);

	if (by_name)
		return by_name;
	if (x->lane_seq != y->lane_seq)
		return x->lane_seq < y->lane_seq ? -1 : 1;
	return (x->id > y->id) - (x->id < y->id);
}

void lanes_sort(struct store_jobs *pending)
{
	struct job *v;
	size_t n = 0, rest = 0;

	for (size_t i = 0; i < pending->n; i++)
		n += pending->v[i].lane != NULL;
	if (!n)
		return;
	v = xcalloc(pending->n, sizeof(*v));
	for (size_t i = 0, k = 0; i < pending->n; i++) {
		if (pending->v[i].lane)
			v[k++] = pending->v[i];
		else
			v[n + rest++] = pending->v[i];
	}
	qsort(v, n, sizeof(*v), lane_order);
	free(pending->v);
	pending->v = v;
}

/* One whose turn it is, in a lane that passes start from: as many as its places are free, and none behind one that can't. */
static bool is_its_turn(const struct cluster *c, const struct cluster_lane *l, const struct job *j)
{
	int64_t free_places = l->row->concurrency;

	for (size_t i = 0; i < l->n; i++)
		free_places -= l->jobs[i].is_bound;
	for (size_t i = 0; i < l->n && free_places > 0; i++) {
		if (l->jobs[i].is_bound)
			continue;
		if (l->jobs[i].id == j->id)
			return true;
		if (cluster_is_blocked(c, &l->jobs[i]))
			return false;
		free_places--;
	}
	return false;
}

bool lane_blocks(const struct cluster *c, const struct job *j)
{
	const struct cluster_lane *l = cluster_lane_named(c, j->lane);

	if (!j->lane || !l)
		return false;
	if (cluster_lane_is_paused(l))
		return true;
	/* One that isn't submitted would stand at the end. */
	if (!j->id)
		return (int64_t)l->n >= l->row->concurrency;
	return l->row->has_runner || !is_its_turn(c, l, j);
}

bool lane_waits(const struct cluster *c, const struct cluster_node *n, const char *queue,
	const struct job *j)
{
	const struct cluster_lane *l = cluster_lane_named(c, j->lane);

	if (!l || !l->row->has_runner || !j->is_bound || j->state != JOB_STATE_PENDING)
		return false;
	for (size_t i = 0; i < n->inv.n_charges; i++) {
		const struct inv_charge *r = &n->inv.charges[i];

		if ((int64_t)r->name.job == j->id && (int64_t)r->name.attempt == j->attempt &&
			!strcmp(r->name.queue, queue))
			return false;
	}
	return true;
}

/* ---- names ---- */

/* "0", "0,1", "0:1": indices, each once, in the order of the cards. */
static int usual_cards(
	const struct cluster_node *n, const char *words, struct buf *ret, struct err *e)
{
	uint64_t found = 0;
	const char *name = cluster_node_name(n);

	for (const char *at = words; *at; at += *at == ',') {
		size_t len = strcspn(at, ",");
		CLEANUP_FREE char *word = xstrndup(at, len);
		int card = -1;

		at += len;
		for (size_t k = 0; k < n->inv.n_cards && k < GPU_MAX; k++) {
			char label[GPU_LABEL_LEN];

			inv_card_label(&n->inv.cards[k], label);
			if (!strcmp(label, word))
				card = (int)k;
		}
		if (card < 0 && !n->inv.n_cards)
			return err_set(e, -EINVAL,
				"what GPUs %s has isn't known yet; a lane can be made once it has answered (`queue tick`)",
				name);
		if (card < 0)
			return err_set(e, -EINVAL,
				"%s has no GPU %.40s; its lanes are named by the indices that `queue cards` shows, as %s:0",
				name, word, name);
		found |= UINT64_C(1) << card;
	}
	for (size_t k = 0; k < n->inv.n_cards && k < GPU_MAX; k++) {
		char label[GPU_LABEL_LEN];

		if (!(found >> k & 1))
			continue;
		inv_card_label(&n->inv.cards[k], label);
		buf_printf(ret, "%s%s", ret->len ? "," : "", label);
	}
	return 0;
}

/* Digits, commas and, for an instance, one colon: what can stand behind a node's name. */
static bool is_cards(const char *s)
{
	return *s && s[strspn(s, "0123456789,:")] == '\0' && isdigit((unsigned char)*s) &&
	       isdigit((unsigned char)s[strlen(s) - 1]);
}

/* The node part ends at the first colon behind which only cards stand, so "n1:0:1" is instance 1 of card 0. */
static const char *cards_part(const char *word)
{
	for (const char *at = strchr(word, ':'); at; at = strchr(at + 1, ':'))
		if (is_cards(at + 1))
			return at + 1;
	return NULL;
}

int cluster_lane_has_cards(const struct cluster_node *n, const char *cards, const char *gpu,
	int64_t gpus, struct err *e)
{
	uint64_t of_lane = cluster_cards_named(n, cards);

	if (!gpu || gpus < 1 || !of_lane ||
		__builtin_popcountll(of_lane & cluster_cards_named(n, gpu)) >= gpus)
		return 0;
	return err_set(e, -EINVAL,
		"it asks for GPU %.100s, which isn't lane %s:%s's; leave --gpu out, or name another lane",
		gpu, cluster_node_name(n), cards);
}

int cluster_lane_resolve(
	const struct cluster *c, const char *word, char **ret_node, char **ret_cards, struct err *e)
{
	const struct cluster_lane *l = cluster_lane_named(c, word);
	const char *cards = cards_part(word);
	CLEANUP_FREE char *node = cards ? xstrndup(word, (size_t)(cards - word) - 1) : NULL;
	CLEANUP(buf_done) struct buf usual = {0};
	size_t at;
	int r;

	if (l) {
		*ret_node = xstrdup(l->row->node);
		*ret_cards = xstrdup(l->row->cards);
		return 0;
	}
	if (!cards)
		return err_set(e, -EINVAL,
			"'%.100s' is no lane; a lane is named by its node and its GPUs, as n1:0 or n1:0,1",
			word);
	r = cluster_find_node(c, node, &at, e);
	if (r == 0)
		r = usual_cards(&c->nodes[at], cards, &usual, e);
	if (r < 0)
		return r;
	*ret_node = xstrdup(cluster_node_name(&c->nodes[at]));
	*ret_cards = buf_take(&usual);
	return 0;
}
