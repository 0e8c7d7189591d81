/*
 * What cards have and who is charged on them. A bind counts from the moment it's in the store; where the node's agent has a
 * figure of its own, that counts. What strangers hold and were promised is the inventory's.
 */
#include "queue/cluster_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

/* ---- cards ---- */

/* An instance is as allowed as the card that it was cut from. */
static bool is_allowed(const struct cluster_node *n, const struct inv_card *card)
{
	const struct host_config *h = n->config ? n->config->host : NULL;

	if (!h || !h->has_gpus)
		return true;
	for (size_t i = 0; i < h->n_gpus; i++)
		if (h->gpus[i] == card->index)
			return true;
	return false;
}

static const struct store_card *card_out(
	const struct cluster *c, const char *node, const char *uuid)
{
	const struct store_cards *out = &c->inner->out;

	for (size_t i = 0; i < out->n; i++)
		if (strcmp(out->v[i].node, node) == 0 && strcmp(out->v[i].uuid, uuid) == 0)
			return &out->v[i];
	return NULL;
}

static void judge_card(struct cluster_card *card, const char *error)
{
	const struct inv_card *i = card->inv;
	CLEANUP(buf_done) struct buf why = {0};

	if (!card->is_allowed)
		buf_puts(&why, "not in the node's list of GPUs");
	else if (i->is_mig_parent)
		buf_puts(&why, "cut into MIG instances");
	else if (!card->is_in_service)
		buf_printf(&why, "out of service: %s", card->out_why);
	else if (i->state != GPU_OK)
		buf_puts(&why, gpu_state_text(i->state));
	else if (!i->is_present && error)
		buf_printf(&why, "the GPUs can't be asked: %s", error);
	else if (!i->is_present)
		buf_puts(&why, "missing from the node's last look");
	else if (i->needs_reset)
		buf_puts(&why, "the driver asks for a reset of it");
	else if (i->total_mib <= 0 || i->used_mib < 0)
		buf_puts(&why, "it doesn't say how much memory it has or uses");
	card->is_usable = why.len == 0;
	CLEANUP(buf_done) struct buf cleaned = {0};
	text_put_clean(&cleaned, buf_str(&why), why.len);
	snprintf(card->why_not, sizeof(card->why_not), "%s", buf_str(&cleaned));
}

static void fill_card(struct cluster *c, struct cluster_node *n, size_t i)
{
	struct cluster_card *card = &n->cards[i];
	const struct inv_card *inv = &n->inv.cards[i];
	const struct store_card *out = card_out(c, cluster_node_name(n), inv->uuid);

	/* What it was cut from is out of service: so is the instance. */
	if (!out && inv->parent[0])
		out = card_out(c, cluster_node_name(n), inv->parent);
	*card = (struct cluster_card){.inv = inv,
		.is_allowed = is_allowed(n, inv),
		.is_in_service = !out,
		.out_why = out ? (out->why ? out->why : "no reason was given") : NULL};
	card->room = (struct card_room){.total_mib = inv->total_mib > 0 ? inv->total_mib : 0,
		.foreign_mib = inv->external_mib > 0 ? inv->external_mib : 0,
		.promised_mib = inv->promised_mib > 0 ? inv->promised_mib : 0,
		.headroom_mib = c->config->settings.headroom_mib};
	judge_card(card, n->inv.error);
}

/* ---- charges ---- */

static void add_charge(struct cluster *c, size_t node, const struct charge *charge, uint64_t beside)
{
	struct node_charges *l = &c->inner->charges[node];
	struct cluster_card *card = &c->nodes[node].cards[charge->card];

	if (l->n == l->cap) {
		l->cap = l->cap ? 2 * l->cap : 16;
		l->v = xreallocarray(l->v, l->cap, sizeof(*l->v));
		l->running = xreallocarray(l->running, l->cap, sizeof(*l->running));
	}
	l->running[l->n] = (struct plan_running){.id = (uint64_t)charge->job,
		.card = charge->card,
		.charge_mib = charge->mib,
		.beside_guard = beside};
	l->v[l->n++] = *charge;
	card->room.budgets_mib += charge->mib;
	card->room.n_ours++;
}

static int card_by_uuid(const struct inventory *v, const char *uuid)
{
	for (size_t i = 0; i < v->n_cards; i++)
		if (strcmp(v->cards[i].uuid, uuid) == 0)
			return (int)i;
	return -1;
}

/* The agent's row of this attempt there, or NULL; it's marked as told of. */
static const struct inv_charge *ledger_row(const struct cluster_node *n, const char *queue,
	const struct job *j, uint32_t card, bool *is_told)
{
	for (size_t i = 0; i < n->inv.n_charges; i++) {
		const struct inv_charge *r = &n->inv.charges[i];

		if (r->card != card || (int64_t)r->name.job != j->id ||
			(int64_t)r->name.attempt != j->attempt || strcmp(r->name.queue, queue) != 0)
			continue;
		is_told[i] = true;
		return r;
	}
	return NULL;
}

/* A bind counts from the moment it's in the store, whether the node has heard of it or not. */
static void charge_job_card(struct cluster *c, size_t node, const char *queue, const struct job *j,
	const struct job_card *bound, bool *is_told)
{
	struct cluster_node *n = &c->nodes[node];
	int at = card_by_uuid(&n->inv, bound->uuid);

	if (at < 0)
		return;
	struct cluster_card *card = &n->cards[at];
	const struct inv_charge *row = ledger_row(n, queue, j, (uint32_t)at, is_told);
	bool is_over = row && row->has_ended;
	int64_t mib = row ? row->budget_mib : bound->mib < 0 ? card->room.total_mib : bound->mib;

	struct charge charge = {j->id, (uint32_t)at, mib > 0 ? mib : 0, is_over};
	add_charge(c, node, &charge, beside_of(c, j->id, j->attempt));
	card->queue_jobs++;
	card->reserved_mib += charge.mib;
	card->queue_mem_mib += row && row->held_mib > 0 ? row->held_mib : 0;
	if (!is_over)
		card->room.has_whole |= bound->mib < 0 || j->exclusive || j->idle;
}

static void charge_job(
	struct cluster *c, size_t node, const char *queue, const struct job *j, bool *is_told)
{
	struct cluster_node *n = &c->nodes[node];

	if (lane_waits(c, n, queue, j))
		return;
	n->n_jobs++;
	n->n_cpu_jobs += j->bind.n_cards == 0;
	n->cpus_used += j->cpus;
	n->mem_used_mib += j->mem_mib;
	for (size_t i = 0; i < j->bind.n_cards; i++)
		charge_job_card(c, node, queue, j, &j->bind.cards[i], is_told);
}

/* What the lane's running ones are charged on that card. */
static int64_t lane_charge(
	const struct node_charges *l, const struct cluster_lane *lane, uint32_t card)
{
	int64_t sum = 0;

	for (size_t i = 0; i < l->n; i++)
		for (size_t k = 0; k < lane->n && l->v[i].card == card && l->v[i].job; k++)
			if (lane->jobs[k].id == l->v[i].job) {
				sum += l->v[i].mib;
				break;
			}
	return sum;
}

/* A lane holds max(running, next) of its cards: what the next one needs beyond what runs is charged to it already. */
static void hold_lanes(struct cluster *c, size_t node, const char *queue)
{
	struct cluster_node *n = &c->nodes[node];

	for (size_t i = 0; i < c->n_lanes; i++) {
		const struct cluster_lane *lane = &c->lanes[i];
		size_t k = 0;

		if (lane->node != (int32_t)node)
			continue;
		while (k < lane->n && !lane_waits(c, n, queue, &lane->jobs[k]))
			k++;
		for (size_t m = 0; k < lane->n && m < lane->jobs[k].bind.n_cards; m++) {
			const struct job_card *bound = &lane->jobs[k].bind.cards[m];
			int at = card_by_uuid(&n->inv, bound->uuid);
			struct charge charge = {.job = lane->jobs[k].id};

			if (at < 0)
				continue;
			charge.card = (uint32_t)at;
			charge.mib = bound->mib < 0 ? n->cards[at].room.total_mib : bound->mib;
			charge.mib -= lane_charge(&c->inner->charges[node], lane, charge.card);
			if (charge.mib <= 0)
				continue;
			add_charge(c, node, &charge, 0);
			/* It isn't there yet. */
			n->cards[at].room.n_ours--;
			n->cards[at].reserved_mib += charge.mib;
		}
	}
}

/* What the node's agent charges besides: other queues of this user, and what ended jobs left behind. */
static void charge_rest(struct cluster *c, size_t node, const char *queue, const bool *is_told)
{
	struct cluster_node *n = &c->nodes[node];

	for (size_t i = 0; i < n->inv.n_charges; i++) {
		const struct inv_charge *r = &n->inv.charges[i];
		struct cluster_card *card = &n->cards[r->card];
		bool is_ours = strcmp(r->name.queue, queue) == 0;
		struct charge charge = {.card = r->card,
			.mib = r->budget_mib > 0 ? r->budget_mib : 0,
			.job = is_ours ? (int64_t)r->name.job : 0,
			.is_leftover = is_ours || r->has_ended};

		/* A live row of ours that the store knows nothing of in flight was settled a moment ago. */
		if (is_told[i] || (r->has_ended && charge.mib == 0))
			continue;
		add_charge(c, node, &charge, 0);
		card->room.has_whole |= r->declared_mib < 0 && !r->has_ended;
		if (is_ours) {
			card->reserved_mib += charge.mib;
			card->queue_mem_mib += r->held_mib > 0 ? r->held_mib : 0;
		} else {
			card->others_mib += charge.mib;
		}
	}
}

static bool has_other_queue(const struct cluster_node *n, const char *queue, uint32_t card)
{
	for (size_t i = 0; i < n->inv.n_charges; i++)
		if (n->inv.charges[i].card == card && !n->inv.charges[i].has_ended &&
			strcmp(n->inv.charges[i].name.queue, queue) != 0)
			return true;
	return false;
}

/*
 * Lanes of other queues keep their cards too: the node refuses what would take that from them. Where none of theirs runs, the
 * next one takes a place among the card's jobs as well.
 */
static void hold_others(struct cluster *c, size_t node, const char *queue)
{
	struct cluster_node *n = &c->nodes[node];

	for (size_t k = 0; k < n->inv.n_cards && k < GPU_MAX; k++) {
		struct charge charge = {
			.card = (uint32_t)k, .mib = n->inv.cards[k].others_lanes_mib};

		if (charge.mib <= 0)
			continue;
		add_charge(c, node, &charge, 0);
		n->cards[k].others_mib += charge.mib;
		if (has_other_queue(n, queue, charge.card))
			n->cards[k].room.n_ours--;
	}
}

static void finish_card(struct cluster_card *card)
{
	const struct inv_card *i = card->inv;
	struct card_room *r = &card->room;

	/* Nobody says who holds what there: our own are credited with what they are charged. */
	if (i->is_blind)
		r->foreign_mib = i->used_mib > r->budgets_mib ? i->used_mib - r->budgets_mib : 0;
	int64_t left = card_free(r);
	card->free_mib = left > 0 ? left : 0;
}

void rooms_fill(struct cluster *c, const char *queue)
{
	c->inner->charges = xcalloc(c->n_nodes + 1, sizeof(*c->inner->charges));
	for (size_t i = 0; i < c->n_nodes; i++) {
		struct cluster_node *n = &c->nodes[i];
		CLEANUP_FREE bool *is_told = xcalloc(n->inv.n_charges + 1, sizeof(*is_told));

		for (size_t k = 0; k < n->inv.n_cards; k++)
			fill_card(c, n, k);
		for (size_t k = 0; k < c->live.n; k++)
			if (c->live.v[k].bind.node &&
				strcmp(c->live.v[k].bind.node, cluster_node_name(n)) == 0)
				charge_job(c, i, queue, &c->live.v[k], is_told);
		hold_lanes(c, i, queue);
		charge_rest(c, i, queue, is_told);
		hold_others(c, i, queue);
		for (size_t k = 0; k < n->inv.n_cards; k++)
			finish_card(&n->cards[k]);
	}
}
