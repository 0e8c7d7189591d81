/*
 * Why a job doesn't start: figures (why_never, why_waits) and the sentence made of them (plan_why_text). Figures for jobs
 * that may go anywhere are the same for all of one kind, so they're worked out once: for each k the largest room that k
 * cards of one node all have.
 */
#include "sched/plan_inner.h"

#include "base/buf.h"
#include "core/gpu.h"

#include <inttypes.h>

/* May the card ever be used, as far as is known? */
static bool card_counts(const struct plan_card *c)
{
	return c->is_usable || c->was_seen;
}

/* An undeclared job takes any card: its need is 0, and room is a yes or no. */
static int64_t capacity(const struct plan_card *c, enum sharing sharing)
{
	if (!card_counts(c))
		return NO_ROOM;
	/* A card that answered before and told no size may be of any. */
	if (sharing == WHOLE || (!c->is_usable && c->room.total_mib <= 0))
		return MIB_MAX;
	return mib_clamp(c->room.total_mib) - mib_clamp(c->room.headroom_mib);
}

/* Room on a card as it is at the plan's end, with one hindrance thought away. */
static int64_t room_in_view(
	struct plan_state *s, size_t node, uint32_t i, enum sharing sharing, enum view view)
{
	const struct node_state *n = &s->nodes[node];
	uint64_t bit = UINT64_C(1) << i;
	struct card_room r = s->rooms[n->first + i];
	bool is_kept = n->guard.is_set && (n->guard.cards & bit) && view != VIEW_UNGUARDED;
	struct card_need need = {.declared_mib = sharing == WHOLE ? UNDECLARED : 0,
		.idle_threshold_mib = s->policy->idle_threshold_mib,
		.exclusive = sharing == ALONE,
		.max_jobs_per_card = view == VIEW_UNLIMITED ? 0 : s->policy->max_jobs_per_card};

	if (view == VIEW_CAPACITY)
		return capacity(&s->in[node].cards[i], sharing);
	if (!(n->usable & bit) || (is_kept && sharing != SHARE))
		return NO_ROOM;
	if (view == VIEW_UNPROMISED)
		r.promised_mib = 0;
	enum fit fit = card_fits(&r, &need);
	if (sharing == WHOLE)
		return fit == FIT_YES ? MIB_MAX : NO_ROOM;
	if (fit != FIT_YES && fit != FIT_MEMORY && fit != FIT_PROMISED)
		return NO_ROOM;
	/* avail knows about the guard but not of what was thought away; without a guard the room is all there is. */
	int64_t room = mib_clamp(card_free(&r));
	return is_kept && s->avail[n->first + i] < room ? s->avail[n->first + i] : room;
}

static void kth_add_node(struct plan_state *s, size_t node, const struct plan_job *j,
	enum sharing sharing, enum view view, struct kth *t)
{
	const struct node_state *n = &s->nodes[node];
	int64_t sorted[CARDS_MAX];
	uint32_t len = 0;

	for (uint32_t i = 0; i < n->n; i++) {
		if (!(job_may_use_cards(j) & (UINT64_C(1) << i)))
			continue;
		int64_t room = room_in_view(s, node, i, sharing, view);
		uint32_t at = len++;
		for (; at > 0 && sorted[at - 1] < room; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = room;
	}
	for (uint32_t k = 1; k <= len; k++) {
		if (sorted[k - 1] > t->v[k]) {
			t->v[k] = sorted[k - 1];
			t->node[k] = (int32_t)node;
		}
	}
}

static const struct kth *kth_make(
	struct plan_state *s, const struct plan_job *j, enum view view, struct kth *pinned)
{
	enum sharing sharing = job_sharing(s, j);
	struct kth *t = job_is_pinned(j) ? pinned : &s->views[sharing][view];

	if (t != pinned && t->is_made)
		return t;
	for (uint32_t k = 0; k <= CARDS_MAX; k++) {
		t->v[k] = NO_ROOM;
		t->node[k] = -1;
	}
	for (size_t i = 0; i < s->n_nodes; i++)
		if (job_may_use_node(j, i))
			kth_add_node(s, i, j, sharing, view, t);
	t->is_made = true;
	return t;
}

/* The most cards of one node that have this much room each. */
static uint32_t kth_count(const struct kth *t, int64_t need)
{
	uint32_t k = 0;

	while (k < CARDS_MAX && t->v[k + 1] >= need)
		k++;
	return k;
}

static bool is_any_card_listed(const struct plan_state *s, const struct plan_job *j)
{
	for (size_t i = 0; i < s->n_nodes; i++)
		if (job_may_use_node(j, i) && s->nodes[i].n > 0)
			return true;
	return false;
}

bool why_never(struct plan_state *s, const struct plan_job *j, struct plan_decision *d)
{
	struct kth pinned;
	const struct kth *t = kth_make(s, j, VIEW_CAPACITY, &pinned);
	int64_t need = job_need(s, j);

	if (j->gpus <= CARDS_MAX && t->v[j->gpus] >= need)
		return false;
	/* Where nothing is known of any card, nothing is known. */
	if (!is_any_card_listed(s, j))
		return false;
	uint32_t listed = kth_count(t, NO_ROOM + 1), large = kth_count(t, need);
	d->why = j->gpus > listed ? WHY_TOO_MANY_CARDS : WHY_TOO_BIG;
	d->have_cards = j->gpus > listed ? listed : j->gpus - large;
	return true;
}

static bool fits_in_view(
	struct plan_state *s, const struct plan_job *j, enum view view, int32_t *ret_node)
{
	struct kth pinned;
	const struct kth *t = kth_make(s, j, view, &pinned);

	*ret_node = t->node[j->gpus];
	return t->v[j->gpus] >= job_need(s, j);
}

static void why_guarded(const struct plan_state *s, int32_t node, struct plan_decision *d)
{
	const struct guard *g = &s->nodes[node].guard;

	d->why = WHY_GUARDED;
	d->guard_id = s->jobs[g->job].id;
	d->best_node = node;
}

/* The card with the most room for a job of this kind, lowest node and index first. */
static void note_best_card(struct plan_state *s, const struct plan_job *j, enum view view,
	int32_t node, struct plan_decision *d)
{
	const struct node_state *n = &s->nodes[node];

	for (uint32_t i = 0; i < n->n; i++) {
		if (!(job_may_use_cards(j) & (UINT64_C(1) << i)))
			continue;
		int64_t room = room_in_view(s, (size_t)node, i, job_sharing(s, j), view);
		if (room <= NO_ROOM || (d->best_card >= 0 && room <= d->best_free_mib))
			continue;
		d->best_node = node;
		d->best_card = (int32_t)i;
		d->best_free_mib = room;
	}
}

static bool is_any_card_usable(const struct plan_state *s, const struct plan_job *j)
{
	for (size_t i = 0; i < s->n_nodes; i++)
		if (job_may_use_node(j, i) && (s->nodes[i].usable & job_may_use_cards(j)))
			return true;
	return false;
}

static uint32_t joined_with_room(struct plan_state *s, const struct plan_job *j, enum view view)
{
	uint32_t most = 0;

	for (size_t i = 0; i < s->n_nodes; i++) {
		uint64_t with_room = 0;
		for (uint32_t k = 0; job_may_use_node(j, i) && k < s->nodes[i].n; k++)
			if ((job_may_use_cards(j) & (UINT64_C(1) << k)) &&
				room_in_view(s, i, k, job_sharing(s, j), view) >= job_need(s, j))
				with_room |= UINT64_C(1) << k;
		uint32_t joined = place_joined_max(s, i, with_room);
		most = joined > most ? joined : most;
	}
	return most;
}

static void why_no_room(
	struct plan_state *s, const struct plan_job *j, enum view view, struct plan_decision *d)
{
	struct kth pinned;
	const struct kth *t = kth_make(s, j, view, &pinned);
	int32_t best = t->node[1];

	d->have_cards = kth_count(t, job_need(s, j));
	if (d->have_cards >= j->gpus) {
		d->why = WHY_NVLINK;
		d->have_cards = joined_with_room(s, j, view);
	} else if (j->declared_mib < 0) {
		d->why = WHY_NO_IDLE;
	} else {
		d->why = d->have_cards > 0 ? WHY_FEW_CARDS : WHY_MEMORY;
	}
	if (best >= 0 && j->declared_mib >= 0)
		note_best_card(s, j, view, best, d);
}

void why_waits(struct plan_state *s, const struct plan_job *j, struct plan_decision *d)
{
	/* What is kept for the job itself isn't in its way. */
	enum view view = d->guard_node >= 0 ? VIEW_UNGUARDED : VIEW_NOW;
	int32_t node;

	if (d->why != WHY_NONE)
		return;
	if (!is_any_card_usable(s, j))
		d->why = WHY_NO_NODE;
	else if (s->n_guards > 0 && !fits_in_view(s, j, VIEW_NOW, &node) &&
		 fits_in_view(s, j, VIEW_UNGUARDED, &node) && node != d->guard_node &&
		 s->nodes[node].guard.is_set)
		why_guarded(s, node, d);
	else if (fits_in_view(s, j, view, &node))
		why_no_room(s, j, view, d);
	else if (s->policy->max_jobs_per_card > 0 && fits_in_view(s, j, VIEW_UNLIMITED, &node))
		d->why = WHY_JOBS_LIMIT;
	else if (s->has_promises && fits_in_view(s, j, VIEW_UNPROMISED, &node))
		d->why = WHY_PROMISED;
	else
		why_no_room(s, j, view, d);
}

static void put_cards(struct buf *out, const struct plan_node *n, const char *name, uint64_t cards)
{
	const char *between = "";

	if (name)
		buf_printf(out, "%s ", name);
	for (size_t i = 0; i < n->n_cards && i < CARDS_MAX; i++) {
		char label[GPU_LABEL_LEN];

		if (!(cards & (UINT64_C(1) << i)))
			continue;
		gpu_label(n->cards[i].index, n->cards[i].gi, n->cards[i].ci, label);
		buf_printf(out, "%sgpu%s", between, label);
		between = ",";
	}
}

static const char *name_of(const char *const *names, int32_t node)
{
	return names && node >= 0 ? names[node] : NULL;
}

static void put_wanted(struct buf *out, const struct plan_decision *d, const struct plan_job *job)
{
	if (job->declared_mib < 0 && job->gpus == 1)
		buf_puts(out, "needs a wholly idle GPU");
	else if (job->declared_mib < 0)
		buf_printf(out, "needs %" PRIu32 " wholly idle GPUs", job->gpus);
	else if (job->gpus == 1)
		buf_printf(out, "needs %" PRId64 " MiB on one GPU", d->need_mib);
	else
		buf_printf(out, "needs %" PRId64 " MiB on each of %" PRIu32 " GPUs", d->need_mib,
			job->gpus);
}

static void put_best(struct buf *out, const struct plan_decision *d, const struct plan_node *nodes,
	const char *const *names)
{
	if (d->best_node < 0 || d->best_card < 0) {
		buf_puts(out, "; no GPU takes another job now");
		return;
	}
	buf_puts(out, "; the best is ");
	put_cards(out, &nodes[d->best_node], name_of(names, d->best_node),
		UINT64_C(1) << d->best_card);
	buf_printf(out, " with %" PRId64 " MiB free", d->best_free_mib > 0 ? d->best_free_mib : 0);
}

/* "; its place on gpu0,gpu1 is kept until jobs 3 and 9 have ended" */
static void put_kept_place(struct buf *out, const struct plan_decision *d,
	const struct plan_node *nodes, const char *const *names, const struct plan_job *job)
{
	const struct plan_node *n = &nodes[d->guard_node];
	uint64_t ids[8];
	size_t n_ids = 0, more = 0;

	for (size_t i = 0; n->running && i < n->n_running; i++) {
		const struct plan_running *r = &n->running[i];
		size_t k = 0;

		if (r->card >= CARDS_MAX || !(d->guard_cards & (UINT64_C(1) << r->card)) ||
			r->beside_guard == job->id)
			continue;
		while (k < n_ids && ids[k] != r->id)
			k++;
		if (k < n_ids)
			continue;
		if (n_ids < sizeof(ids) / sizeof(ids[0]))
			ids[n_ids++] = r->id;
		else
			more++;
	}
	buf_puts(out, "; its place on ");
	put_cards(out, n, name_of(names, d->guard_node), d->guard_cards);
	buf_puts(out, " is kept");
	for (size_t i = 0; i < n_ids; i++)
		buf_printf(out, "%s%" PRIu64,
			i	    ? ", "
			: n_ids > 1 ? " until these jobs have ended: "
				    : " until this job has ended: ",
			ids[i]);
	if (more > 0)
		buf_puts(out, ", and more");
}

static void put_never(struct buf *out, const struct plan_decision *d, const struct plan_job *job)
{
	if (d->why == WHY_TOO_MANY_CARDS)
		buf_printf(out, "needs %" PRIu32 " GPUs but only %" PRIu32 " are usable", job->gpus,
			d->have_cards);
	else
		buf_printf(out,
			"declared %" PRId64 " MiB + %" PRId64
			" MiB margin exceeds total capacity of %" PRIu32 " required GPU(s)",
			job->declared_mib, d->need_mib - job->declared_mib, d->have_cards);
}

static void put_limit(struct buf *out, const struct plan_job *job)
{
	if (job->gpus == 0)
		buf_puts(out, "as many CPU jobs run as the limit allows");
	else
		buf_puts(out, "as many jobs run as the limit allows");
}

static void put_waits(struct buf *out, const struct plan_decision *d, const struct plan_node *nodes,
	const char *const *names, const struct plan_job *job)
{
	switch (d->why) {
	case WHY_MEMORY:
		put_wanted(out, d, job);
		put_best(out, d, nodes, names);
		break;
	case WHY_FEW_CARDS:
		put_wanted(out, d, job);
		buf_printf(out, "; only %" PRIu32 " of one machine ha%s that much free",
			d->have_cards, d->have_cards == 1 ? "s" : "ve");
		break;
	case WHY_NO_IDLE:
		put_wanted(out, d, job);
		if (d->have_cards == 0)
			buf_puts(out, ", since it declares no vram; none is idle");
		else
			buf_printf(out, ", since it declares no vram; only %" PRIu32 " %s idle",
				d->have_cards, d->have_cards == 1 ? "is" : "are");
		break;
	case WHY_NVLINK:
		put_wanted(out, d, job);
		buf_printf(out, " joined by NVLink; at most %" PRIu32 " joined ones have room",
			d->have_cards);
		break;
	case WHY_PROMISED:
		put_wanted(out, d, job);
		buf_puts(out, "; what is free is promised to another user's jobs");
		break;
	case WHY_GUARDED:
		buf_printf(out, "would delay job %" PRIu64 ", whose place is kept", d->guard_id);
		if (name_of(names, d->best_node))
			buf_printf(out, " on %s", name_of(names, d->best_node));
		break;
	case WHY_JOBS_LIMIT:
		put_limit(out, job);
		break;
	case WHY_BLOCKED:
		buf_puts(out, "waits for something else first");
		break;
	case WHY_NO_NODE:
		buf_puts(out, job->gpus == 0 ? "no machine can take it now"
					     : "no usable GPU answers now");
		break;
	case WHY_THRESHOLD:
		buf_puts(out,
			"declares no vram, and with an idle threshold of 0 MiB no GPU ever counts as "
			"idle; declare vram or raise the threshold");
		break;
	case WHY_NONE:
	case WHY_TOO_MANY_CARDS:
	case WHY_TOO_BIG:
		break;
	}
}

void plan_why_text(const struct plan_decision *d, const struct plan_node *nodes,
	const char *const *node_names, const struct plan_job *job, struct buf *out)
{
	if (d->what == PLAN_NEVER) {
		put_never(out, d, job);
		return;
	}
	if (d->what == PLAN_START) {
		buf_puts(out, "starts on ");
		if (d->cards)
			put_cards(out, &nodes[d->node], name_of(node_names, d->node), d->cards);
		else
			buf_puts(out, name_of(node_names, d->node) ? name_of(node_names, d->node)
								   : "the CPU");
		return;
	}
	put_waits(out, d, nodes, node_names, job);
	if (d->guard_node >= 0)
		put_kept_place(out, d, nodes, node_names, job);
}
