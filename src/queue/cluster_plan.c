/* The plan's input out of the cluster, and the plan. What was chosen, and why the rest waits, is told by cluster_why.c. */
#include "queue/cluster_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "core/shape.h"

#include <stdlib.h>
#include <string.h>

static void fill_plan_card(const struct cluster_node *n, size_t i, struct plan_card *ret)
{
	const struct cluster_card *card = &n->cards[i];

	*ret = (struct plan_card){.room = card->room,
		/* Positions, so that instances stand behind the whole cards: ties go to the lower. */
		.index = (int32_t)i,
		.is_usable = card->is_usable,
		.is_out = card->is_allowed && !card->is_in_service,
		.was_seen = card->is_allowed && !card->inv->is_mig_parent,
		.has_strangers = card->inv->external_computing > 0,
		.numa = card->inv->numa,
		.nvlink_peers = card->inv->nvlink_peers};
}

/* Nobody has told yet what it has. */
static bool is_unknown(const struct cluster_node *n)
{
	return n->config && !(n->row && n->row->is_ignored) &&
	       (!n->row || n->inv.sampled_wall_ms == 0);
}

static void fill_plan_nodes(
	const struct cluster *c, const bool *fresh, struct cluster_plan_inner *p)
{
	size_t n_cards = 0, first = 0;

	for (size_t i = 0; i < c->n_nodes; i++)
		n_cards += c->nodes[i].inv.n_cards;
	p->nodes = xcalloc(c->n_nodes + 1, sizeof(*p->nodes));
	p->cards = xcalloc(n_cards + 1, sizeof(*p->cards));
	for (size_t i = 0; i < c->n_nodes; i++) {
		const struct cluster_node *n = &c->nodes[i];

		p->nodes[i] = (struct plan_node){.cards = p->cards + first,
			.n_cards = n->inv.n_cards,
			.is_usable = n->is_usable && (!fresh || fresh[i]),
			.n_cpu_jobs = n->n_cpu_jobs,
			.max_cpu_jobs = (uint32_t)c->config->settings.max_cpu_jobs_per_node,
			.is_unknown = is_unknown(n),
			.cpus = n->inv.cores,
			.mem_mib = n->inv.mem_total_mib > 0 ? n->inv.mem_total_mib : 0,
			.cpus_used = n->cpus_used,
			.mem_used_mib = n->mem_used_mib,
			.running = c->inner->charges[i].running,
			.n_running = c->inner->charges[i].n};
		for (size_t k = 0; k < n->inv.n_cards; k++)
			fill_plan_card(n, k, &p->cards[first + k]);
		first += n->inv.n_cards;
	}
}

static void fill_plan_job(
	const struct cluster *c, struct cluster_plan_inner *p, size_t i, const struct job *j)
{
	struct plan_job *ret = &p->jobs[i];
	struct wish *w = wish_find(c, p, j);
	const struct kept_guard *g = guard_of(c, j->id);
	enum vram_source source = VRAM_NONE;

	*ret = (struct plan_job){.id = (uint64_t)j->id,
		.declared_mib = j->gpus > 0 ? wish_need_mib(c, w, j, &source) : 0,
		.gpus = j->gpus > GPU_MAX ? GPU_MAX + 1 : (uint32_t)j->gpus,
		.waiting_since_ms = j->created_ms,
		.only_node = w->only_node,
		.node_cards = w->masks,
		.need_nvlink = j->nvlink && j->gpus > 1,
		.idle = j->idle && j->gpus > 0,
		.cpus = j->cpus,
		.mem_mib = j->mem_mib,
		.exclusive = j->exclusive,
		.is_blocked = cluster_is_blocked(c, j) || lane_blocks(c, j),
		.guard_node = g ? g->node : -1,
		.guard_cards = g ? g->cards : 0};
	p->sources[i] = (uint8_t)source;
}

static struct plan_policy policy_of(const struct queue_settings *s)
{
	return (struct plan_policy){.place = s->placement == QUEUE_PACK ? PLACE_PACK : PLACE_SPREAD,
		.idle_threshold_mib = s->idle_threshold_mib,
		.max_jobs_per_card = (uint32_t)s->max_jobs_per_gpu,
		.is_in_order = true,
		.guard_after_ms = s->guard_after_ms};
}

/*
 * What no card of its lane could ever hold would hold up the lane for good: the first of each that no node has is judged, though
 * it isn't the plan's to place. Not in a lane whose cards aren't for jobs now: who took them away may give them back, and until
 * then the lane keeps what it has.
 */
static void judge_lane_heads(struct cluster *c, struct cluster_plan_inner *p,
	const struct plan_policy *policy, struct cluster_plan *ret)
{
	const char *lane = NULL;

	for (size_t i = 0; i < ret->n && c->pending.v[i].lane; i++) {
		struct plan_job one = p->jobs[i];
		struct plan_decision d;
		const struct cluster_lane *l;
		bool is_head = !lane || strcmp(lane, c->pending.v[i].lane) != 0;

		lane = c->pending.v[i].lane;
		l = cluster_lane_named(c, lane);
		if (l && l->why_not[0])
			continue;
		if (!is_head || !one.is_blocked || cluster_is_blocked(c, &c->pending.v[i]))
			continue;
		one.is_blocked = false;
		plan_make(p->nodes, c->n_nodes, &one, 1, policy, c->now_ms, &d);
		d.job = i;
		if (d.what == PLAN_NEVER)
			ret->decisions[i] = d;
	}
}

void cluster_plan(struct cluster *c, const bool *fresh, struct cluster_plan *ret)
{
	struct cluster_plan_inner *p = xcalloc(1, sizeof(*p));
	struct plan_policy policy = policy_of(&c->config->settings);

	*ret = (struct cluster_plan){.n = c->pending.n, .inner = p};
	ret->decisions = xcalloc(ret->n + 1, sizeof(*ret->decisions));
	p->jobs = xcalloc(ret->n + 1, sizeof(*p->jobs));
	p->sources = xcalloc(ret->n + 1, sizeof(*p->sources));
	fill_plan_nodes(c, fresh, p);
	for (size_t i = 0; i < ret->n; i++)
		fill_plan_job(c, p, i, &c->pending.v[i]);
	plan_make(p->nodes, c->n_nodes, p->jobs, ret->n, &policy, c->now_ms, ret->decisions);
	judge_lane_heads(c, p, &policy, ret);
	while (p->first_unblocked < ret->n &&
		(ret->decisions[p->first_unblocked].what != PLAN_WAIT ||
			ret->decisions[p->first_unblocked].why == WHY_BLOCKED))
		p->first_unblocked++;
}

void cluster_plan_done(struct cluster_plan *p)
{
	if (p->inner) {
		for (size_t i = 0; i < p->inner->n_wishes; i++)
			free(p->inner->wishes[i].masks);
		free(p->inner->wishes);
		free(p->inner->wish_slots);
		free(p->inner->nodes);
		free(p->inner->cards);
		free(p->inner->jobs);
		free(p->inner->sources);
		free(p->inner);
	}
	free(p->decisions);
	*p = (struct cluster_plan){0};
}

int64_t cluster_need_mib(const struct cluster *c, const struct cluster_plan *p, size_t i,
	enum vram_source *ret_source)
{
	(void)c;
	if (ret_source)
		*ret_source = (enum vram_source)p->inner->sources[i];
	return p->inner->jobs[i].declared_mib;
}

/* ---- a job that isn't there yet ---- */

static size_t place_in_order(const struct cluster *c, const struct job *j)
{
	size_t at = 0;

	while (at < c->pending.n &&
		(c->pending.v[at].lane || c->pending.v[at].priority >= j->priority))
		at++;
	return at;
}

/* Prerequisites that haven't ended; whether those that have ended ended well is seen at the submit. */
static size_t unmet_of_try(
	const struct cluster *c, const struct job *j, struct store_unmet_row *rows)
{
	size_t n = 0;

	for (size_t k = 0; k < j->n_after + j->n_after_any; k++) {
		int64_t id = k < j->n_after ? j->after[k] : j->after_any[k - j->n_after];
		const struct job *live = cluster_live(c, id);

		if (live || cluster_pending(c, id) >= 0)
			rows[n++] = (struct store_unmet_row){.job = j->id,
				.needs = id,
				.any = k >= j->n_after,
				.state = live ? live->state : JOB_STATE_PENDING};
	}
	return n;
}

void cluster_try(struct cluster *c, const struct job *j, struct plan_decision *ret, struct buf *why)
{
	CLEANUP(buf_done) struct buf shape = {0};
	struct store_jobs pending = c->pending;
	struct store_unmet_row *unmet = c->unmet;
	size_t n_unmet = c->n_unmet, at = place_in_order(c, j);
	struct cluster_plan p;
	struct job mine = *j;

	/* Before all others, as its number is 0: the rows stay in order. */
	mine.id = 0;
	mine.created_ms = c->now_ms;
	shape_of(j->command ? j->command : "", j->command ? strlen(j->command) : 0, &shape);
	mine.shape = (char *)buf_str(&shape);
	c->unmet = xcalloc(n_unmet + mine.n_after + mine.n_after_any + 1, sizeof(*c->unmet));
	c->n_unmet = unmet_of_try(c, &mine, c->unmet);
	if (n_unmet)
		memcpy(c->unmet + c->n_unmet, unmet, n_unmet * sizeof(*unmet));
	c->n_unmet += n_unmet;
	c->pending.v = xcalloc(pending.n + 1, sizeof(*c->pending.v));
	if (pending.n) {
		memcpy(c->pending.v, pending.v, at * sizeof(*pending.v));
		memcpy(c->pending.v + at + 1, pending.v + at,
			(pending.n - at) * sizeof(*pending.v));
	}
	c->pending.v[at] = mine;
	c->pending.n = pending.n + 1;
	cluster_plan(c, NULL, &p);
	*ret = p.decisions[at];
	cluster_why(c, &p, at, why);
	cluster_plan_done(&p);
	free(c->pending.v);
	free(c->unmet);
	c->pending = pending;
	c->unmet = unmet;
	c->n_unmet = n_unmet;
}
