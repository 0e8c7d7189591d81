/*
 * Why a job doesn't run, in words and numbers (cluster.h). First what a person or another job can change, then the plan's
 * reason with the figures of the best card and who holds them, then what doesn't count and why. Lists are bounded.
 */
#include "queue/cluster_inner.h"

#include "base/cleanup.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NAMED_MAX 8 /* jobs, nodes in one sentence */

static const char *plural(int64_t n)
{
	return n == 1 ? "" : "s";
}

static void put_clean(struct buf *out, const char *s)
{
	text_put_clean(out, s, strlen(s));
}

static void put_cards(struct buf *out, const struct cluster_node *n, uint64_t cards)
{
	const char *between = " ";

	put_clean(out, cluster_node_name(n));
	for (size_t i = 0; i < n->inv.n_cards && i < GPU_MAX; i++) {
		char label[GPU_LABEL_LEN];

		if (!(cards >> i & 1))
			continue;
		inv_card_label(&n->inv.cards[i], label);
		buf_printf(out, "%sgpu%s", between, label);
		between = ",";
	}
}

/* ---- other jobs ---- */

static const char *state_word(enum job_state s)
{
	switch (s) {
	case JOB_STATE_NONE:
		return "gone";
	case JOB_STATE_PENDING:
		return "waits itself";
	case JOB_STATE_RUNNING:
		return "running";
	default:
		return job_state_name(s);
	}
}

static void put_unmet(
	struct buf *out, const struct job *j, const struct store_unmet_row *rows, size_t n)
{
	size_t named = 0, all = 0;

	for (size_t i = 0; i < n; i++) {
		if (!cluster_row_blocks(j, &rows[i]))
			continue;
		all++;
		if (named == NAMED_MAX)
			continue;
		buf_printf(out, "%s%" PRId64 " (%s)", named++ ? ", " : "waits for job ",
			rows[i].needs, state_word(rows[i].state));
	}
	if (all > named)
		buf_printf(out, " and %zu more", all - named);
}

static bool put_blocked(struct buf *out, const struct cluster *c, const struct job *j)
{
	const struct store_unmet_row *rows;
	size_t n = cluster_unmet_of(c, j, &rows), before = out->len;

	if (job_is_held(j)) {
		buf_puts(out, "held: ");
		put_clean(out, j->held_reason);
		buf_printf(out,
			"; `job release %" PRId64 "` lets it run all the same, `job cancel %" PRId64
			"` ends it",
			j->id, j->id);
		return true;
	}
	put_unmet(out, j, rows, n);
	if (out->len > before)
		return true;
	if (c->waits_for_nodes)
		buf_puts(out, c->waits_for_nodes);
	return c->waits_for_nodes != NULL;
}

/* ---- what is asked for ---- */

static void put_source(
	struct buf *out, const struct cluster *c, const struct job *j, enum vram_source from)
{
	const struct store_learned *l = from == VRAM_LEARNED ? cluster_learned(c, j) : NULL;

	if (l)
		buf_printf(out,
			" (learned: %" PRId64 " run%s of this command took %" PRId64
			" MiB at most)",
			l->n_peaks, plural(l->n_peaks), l->peak_max_mib);
	else if (from == VRAM_DEFAULT)
		buf_puts(out, " (default_vram)");
}

static void put_wishes(struct buf *out, const struct job *j)
{
	if (j->gpu_model && *j->gpu_model) {
		buf_puts(out, " of the model ");
		put_clean(out, j->gpu_model);
	}
	if (j->min_total_mib > 0)
		buf_printf(out, " with %" PRId64 " MiB in all or more", j->min_total_mib);
	if (j->gpu_constraint && *j->gpu_constraint) {
		buf_puts(out, " among ");
		put_clean(out, j->gpu_constraint);
	}
	if (j->node_constraint && *j->node_constraint) {
		buf_puts(out, " on ");
		put_clean(out, j->node_constraint);
	}
	if (j->lane && *j->lane) {
		buf_puts(out, " in lane ");
		put_clean(out, j->lane);
	}
}

static void put_needs(
	struct buf *out, const struct cluster *c, const struct cluster_plan *p, size_t i)
{
	const struct plan_job *pj = &p->inner->jobs[i];
	const struct job *j = &c->pending.v[i];
	const char *plain = pj->idle ? "GPU that nobody uses" : "GPU";

	if (pj->declared_mib < 0)
		buf_printf(out, "needs %" PRIu32 " wholly idle GPU%s", pj->gpus, plural(pj->gpus));
	else if (pj->gpus == 1)
		buf_printf(out, "needs %" PRId64 " MiB on one %s", pj->declared_mib, plain);
	else
		buf_printf(out, "needs %" PRId64 " MiB on each of %" PRIu32 " GPUs%s of one node",
			pj->declared_mib, pj->gpus, pj->idle ? " that nobody uses" : "");
	if (pj->need_nvlink)
		buf_puts(out, " joined by NVLink");
	put_wishes(out, j);
	if (pj->declared_mib >= 0)
		put_source(out, c, j, (enum vram_source)p->inner->sources[i]);
	else
		buf_puts(out, ", since nothing says how much memory it takes (--vram)");
}

/* ---- the best card ---- */

/* "job 3 is charged 12000, others' processes hold 2964 MiB, 512 are kept free" */
static void put_holders(struct buf *out, const struct cluster *c, size_t node, size_t card)
{
	const struct cluster_card *k = &c->nodes[node].cards[card];
	const struct node_charges *l = &c->inner->charges[node];
	const struct card_room *r = &k->room;
	size_t named = 0;

	buf_printf(out, ": of %" PRId64 " MiB", r->total_mib);
	for (size_t i = 0; i < l->n; i++)
		if (l->v[i].card == card && l->v[i].job && named++ < NAMED_MAX)
			buf_printf(out, ", job %" PRId64 " %s %" PRId64, l->v[i].job,
				l->v[i].is_leftover ? "left behind" : "is charged", l->v[i].mib);
	if (named > NAMED_MAX)
		buf_printf(out, ", %zu more jobs", named - NAMED_MAX);
	if (k->others_mib > 0)
		buf_printf(out, ", your other queues are charged %" PRId64, k->others_mib);
	if (r->foreign_mib > 0)
		buf_printf(out, ", processes that aren't ours hold %" PRId64, r->foreign_mib);
	if (r->promised_mib > 0)
		buf_printf(out, ", other users were promised %" PRId64, r->promised_mib);
	if (r->headroom_mib > 0)
		buf_printf(out, ", %" PRId64 " are kept free", r->headroom_mib);
}

static void put_best(struct buf *out, const struct cluster *c, const struct plan_decision *d)
{
	if (d->best_node < 0 || d->best_card < 0) {
		buf_puts(out, "; no GPU takes another job now");
		return;
	}
	buf_puts(out, "; the best is ");
	put_cards(out, &c->nodes[d->best_node], UINT64_C(1) << d->best_card);
	buf_printf(out, " with %" PRId64 " MiB free", d->best_free_mib > 0 ? d->best_free_mib : 0);
	put_holders(out, c, (size_t)d->best_node, (size_t)d->best_card);
}

/* ---- what doesn't count ---- */

static bool may_use(const struct plan_job *j, size_t node)
{
	return j->only_node < 0 || (size_t)j->only_node == node;
}

static bool may_use_card(const struct plan_job *j, size_t node, size_t card)
{
	return !j->node_cards || (j->node_cards[node] >> card & 1);
}

/* "n2: drained", "n1 gpu3: out of service: ..." of what the job might have used. */
static void put_absent(struct buf *out, const struct cluster *c, const struct cluster_plan *p,
	size_t i, const char *lead)
{
	const struct plan_job *j = &p->inner->jobs[i];
	size_t named = 0, more = 0;

	for (size_t n = 0; n < c->n_nodes; n++) {
		const struct cluster_node *node = &c->nodes[n];
		bool is_stale = node->is_usable && !p->inner->nodes[n].is_usable;

		if (!may_use(j, n))
			continue;
		if (!node->is_usable || is_stale) {
			if (named == NAMED_MAX) {
				more++;
				continue;
			}
			buf_puts(out, named++ ? "; " : lead);
			put_clean(out, cluster_node_name(node));
			buf_printf(out, ": %s",
				is_stale ? "hasn't answered in this pass" : node->why_not);
			continue;
		}
		for (size_t k = 0; j->gpus > 0 && k < node->inv.n_cards; k++) {
			const struct cluster_card *card = &node->cards[k];

			if (card->is_usable || !card->is_allowed || card->inv->is_mig_parent ||
				!may_use_card(j, n, k))
				continue;
			if (named == NAMED_MAX) {
				more++;
				continue;
			}
			buf_puts(out, named++ ? "; " : lead);
			put_cards(out, node, UINT64_C(1) << k);
			buf_printf(out, ": %s", card->why_not);
		}
	}
	if (more > 0)
		buf_printf(out, "; and %zu more", more);
}

/* ---- the guard ---- */

static void put_blockers(
	struct buf *out, const struct cluster *c, const struct plan_decision *d, int64_t id)
{
	const struct node_charges *l = &c->inner->charges[d->guard_node];
	int64_t seen[NAMED_MAX];
	size_t n = 0, more = 0;

	for (size_t i = 0; i < l->n; i++) {
		size_t k = 0;

		if (!(d->guard_cards >> l->v[i].card & 1) || !l->v[i].job ||
			l->running[i].beside_guard == (uint64_t)id)
			continue;
		while (k < n && seen[k] != l->v[i].job)
			k++;
		if (k < n)
			continue;
		if (n < NAMED_MAX)
			seen[n++] = l->v[i].job;
		else
			more++;
	}
	for (size_t k = 0; k < n; k++)
		buf_printf(out, "%s%" PRId64,
			k	? ", "
			: n > 1 ? " until jobs "
				: " until job ",
			seen[k]);
	if (more)
		buf_printf(out, " and %zu more", more);
	if (n)
		buf_puts(out, n > 1 ? " have ended" : " has ended");
}

static void put_own_guard(
	struct buf *out, const struct cluster *c, const struct plan_decision *d, int64_t id)
{
	if (!d->guard_cards)
		return;
	buf_puts(out, "; it has waited long, so its place on ");
	put_cards(out, &c->nodes[d->guard_node], d->guard_cards);
	buf_puts(out, " is kept");
	put_blockers(out, c, d, id);
}

static void put_guarded(
	struct buf *out, const struct cluster *c, const struct cluster_plan *p, uint64_t id)
{
	buf_printf(out, "would delay job %" PRIu64 ", which has waited long", id);
	for (size_t k = 0; k < p->n; k++) {
		const struct plan_decision *g = &p->decisions[k];

		if ((uint64_t)c->pending.v[k].id != id || !g->guard_cards)
			continue;
		buf_puts(out, ": its place on ");
		put_cards(out, &c->nodes[g->guard_node], g->guard_cards);
		buf_puts(out, " is kept");
		put_blockers(out, c, g, (int64_t)id);
		return;
	}
}

/* ---- never ---- */

static void put_largest(struct buf *out, const struct cluster *c, const struct plan_job *j)
{
	int64_t most = -1;
	size_t node = 0, card = 0;

	for (size_t n = 0; n < c->n_nodes; n++)
		for (size_t k = 0; may_use(j, n) && k < c->nodes[n].inv.n_cards; k++) {
			const struct cluster_card *x = &c->nodes[n].cards[k];
			if (!x->is_allowed || x->inv->is_mig_parent || !may_use_card(j, n, k) ||
				x->room.total_mib <= most)
				continue;
			most = x->room.total_mib;
			node = n;
			card = k;
		}
	if (most < 0)
		return;
	buf_puts(out, "; the largest is ");
	put_cards(out, &c->nodes[node], UINT64_C(1) << card);
	buf_printf(out, " with %" PRId64 " MiB, of which %" PRId64 " are kept free (headroom_mb)",
		most, c->nodes[node].cards[card].room.headroom_mib);
}

/* Which models there are, once each. */
static void put_models(struct buf *out, const struct cluster *c, const struct plan_job *j)
{
	const char *seen[NAMED_MAX];
	size_t n = 0;

	for (size_t i = 0; i < c->n_nodes; i++)
		for (size_t k = 0; may_use(j, i) && k < c->nodes[i].inv.n_cards; k++) {
			const struct inv_card *card = &c->nodes[i].inv.cards[k];
			size_t at = 0;

			if (!c->nodes[i].cards[k].is_allowed || !card->name || card->is_mig_parent)
				continue;
			while (at < n && strcmp(seen[at], card->name) != 0)
				at++;
			if (at == n && n < NAMED_MAX)
				seen[n++] = card->name;
		}
	for (size_t k = 0; k < n; k++) {
		buf_puts(out, k ? ", " : "; there are: ");
		put_clean(out, seen[k]);
	}
}

static void put_never(
	struct buf *out, const struct cluster *c, const struct cluster_plan *p, size_t i)
{
	const struct plan_decision *d = &p->decisions[i];
	const struct plan_job *j = &p->inner->jobs[i];

	buf_puts(out, "can't start on any node: ");
	if (d->why == WHY_HOST_TOO_SMALL) {
		plan_why_text(d, p->inner->nodes, NULL, j, out);
		if (d->best_node >= 0)
			buf_printf(out, " (%s)", cluster_node_name(&c->nodes[d->best_node]));
		return;
	}
	put_needs(out, c, p, i);
	if (d->why == WHY_TOO_MANY_CARDS)
		buf_printf(
			out, "; one node has %" PRIu32 " at most that jobs may use", d->have_cards);
	else if (d->why == WHY_NOT_JOINED)
		buf_printf(out, "; at most %" PRIu32 " that are large enough are", d->have_cards);
	else if (d->why == WHY_NO_CARD)
		put_models(out, c, j);
	else
		put_largest(out, c, j);
}

/* ---- the plan's reason ---- */

static void put_host(
	struct buf *out, const struct cluster *c, const struct cluster_plan *p, size_t i)
{
	const struct plan_decision *d = &p->decisions[i];

	plan_why_text(&(struct plan_decision){.what = d->what,
			      .why = d->why,
			      .best_node = d->best_node,
			      .host_cpus = d->host_cpus,
			      .host_mem_mib = d->host_mem_mib,
			      .guard_node = -1},
		p->inner->nodes, NULL, &p->inner->jobs[i], out);
	if (d->best_node >= 0)
		buf_printf(out, " (%s)", cluster_node_name(&c->nodes[d->best_node]));
}

static void put_limit(struct buf *out, const struct cluster *c, const struct plan_job *j)
{
	const struct queue_settings *s = &c->config->settings;

	if (j->gpus == 0)
		buf_printf(out,
			"%" PRId64
			" CPU jobs run on every node that it may use, and that's the limit (max_cpu_jobs_per_node)",
			s->max_cpu_jobs_per_node);
	else
		buf_printf(out,
			"there is room, but %" PRId64
			" jobs on a GPU are the limit (max_jobs_per_gpu)",
			s->max_jobs_per_gpu);
}

static void put_reason(
	struct buf *out, const struct cluster *c, const struct cluster_plan *p, size_t i)
{
	const struct plan_decision *d = &p->decisions[i];
	const struct plan_job *j = &p->inner->jobs[i];

	switch (d->why) {
	case WHY_GUARDED:
		put_guarded(out, c, p, d->guard_id);
		return;
	case WHY_JOBS_LIMIT:
		put_limit(out, c, j);
		return;
	case WHY_HOST:
		put_host(out, c, p, i);
		return;
	case WHY_NO_NODE:
	case WHY_OUT_OF_SERVICE:
		if (j->gpus > 0)
			put_needs(out, c, p, i);
		buf_puts(out, j->gpus > 0 ? "; none that would do can be used now"
					  : "no node can take it now");
		return;
	case WHY_THRESHOLD:
		plan_why_text(d, p->inner->nodes, NULL, j, out);
		return;
	default:
		break;
	}
	put_needs(out, c, p, i);
	switch (d->why) {
	case WHY_MEMORY:
		put_best(out, c, d);
		break;
	case WHY_FEW_CARDS:
		buf_printf(out, "; only %" PRIu32 " of one node ha%s that much free", d->have_cards,
			d->have_cards == 1 ? "s" : "ve");
		put_best(out, c, d);
		break;
	case WHY_NO_IDLE:
	case WHY_NOT_IDLE:
		buf_printf(out, "; of one node %" PRIu32 " %s so at most", d->have_cards,
			d->have_cards == 1 ? "is" : "are");
		break;
	case WHY_NVLINK:
		buf_printf(out, "; of joined ones %" PRIu32 " at most have room", d->have_cards);
		break;
	case WHY_PROMISED:
		buf_puts(out, "; what is free is promised to another user's jobs");
		put_best(out, c, d);
		break;
	default:
		break;
	}
}

static void put_estimate(
	struct buf *out, const struct cluster *c, const struct cluster_plan *p, size_t i)
{
	struct estimate e = cluster_estimate(c, p, i);

	if (e.ms < 0)
		return;
	buf_puts(out,
		e.is_bound ? "; by the others' time limits in " : "; by earlier runs in about ");
	text_put_duration(out, e.ms);
	buf_puts(out, e.is_bound ? " at most" : "");
}

void cluster_why(const struct cluster *c, const struct cluster_plan *p, size_t i, struct buf *text)
{
	const struct plan_decision *d = &p->decisions[i];
	const struct job *j = &c->pending.v[i];

	if (put_blocked(text, c, j) || (d->what == PLAN_WAIT && lane_put_why(c, j, text)))
		return;
	if (d->what == PLAN_START) {
		buf_puts(text, "starts with the next pass on ");
		put_cards(text, &c->nodes[d->node], d->cards);
	} else if (d->what == PLAN_NEVER) {
		put_never(text, c, p, i);
	} else {
		put_reason(text, c, p, i);
		put_own_guard(text, c, d, j->id);
		put_estimate(text, c, p, i);
		put_absent(text, c, p, i, "; not counted: ");
	}
	if (j->last_error && *j->last_error && d->what != PLAN_NEVER) {
		buf_puts(text, "; the last try: ");
		put_clean(text, j->last_error);
	}
}

void cluster_why_bound(const struct cluster *c, const struct job *j, struct buf *text)
{
	int32_t node = j->bind.node ? cluster_node_named(c, j->bind.node) : -1;

	if (!j->is_bound || j->state != JOB_STATE_PENDING)
		return;
	if (lane_put_why(c, j, text))
		return;
	buf_puts(text, "handed to ");
	put_clean(text, j->bind.node ? j->bind.node : "a node");
	for (size_t i = 0; i < j->bind.n_cards; i++)
		buf_printf(text, "%sgpu%" PRId32, i ? "," : " ", j->bind.cards[i].index);
	buf_puts(text, ", its start isn't confirmed yet");
	if (node >= 0 && !c->nodes[node].is_usable)
		buf_printf(text, "; %s: %s", cluster_node_name(&c->nodes[node]),
			c->nodes[node].why_not);
	if (j->cancel_ms)
		buf_puts(text, "; its cancel is wanted and waits for the node's word");
}
