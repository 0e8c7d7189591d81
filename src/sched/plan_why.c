/*
 * Why a job doesn't start, in figures; plan_text.c makes a sentence of them. They are the same for all jobs with the same
 * wishes, so they're worked out once: for each k the largest room that k cards of one node all have.
 */
#include "sched/plan_inner.h"

#include "base/alloc.h"

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
	int64_t room = mib_clamp(c->room.total_mib) - mib_clamp(c->room.headroom_mib);
	return room > 0 ? room : 0;
}

/* Room on a card as it is at the plan's end, with one hindrance thought away. */
static int64_t room_of_card(
	const struct plan_state *s, size_t node, uint32_t i, enum sharing sharing, enum view view)
{
	const struct node_state *n = &s->nodes[node];
	uint64_t bit = UINT64_C(1) << i;
	struct card_room r = s->rooms[n->first + i];
	bool is_kept = n->guard.is_set && (n->guard.cards & bit) && view == VIEW_NOW;
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
	room = room > 0 ? room : 0;
	return is_kept && s->avail[n->first + i] < room ? s->avail[n->first + i] : room;
}

/* The same for all cards at once, in the flat order; the figures of the plan's end don't change any more. */
static const int64_t *rooms_in_view(struct plan_state *s, enum sharing sharing, enum view view)
{
	int64_t **made = &s->view_rooms[sharing][view];

	if (*made)
		return *made;
	*made = xreallocarray(NULL, s->n_cards + 1, sizeof(**made));
	for (size_t node = 0; node < s->n_nodes; node++)
		for (uint32_t i = 0; i < s->nodes[node].n; i++)
			(*made)[s->nodes[node].first + i] = room_of_card(s, node, i, sharing, view);
	return *made;
}

static int64_t room_in_view(
	struct plan_state *s, size_t node, uint32_t i, enum sharing sharing, enum view view)
{
	return rooms_in_view(s, sharing, view)[s->nodes[node].first + i];
}

static uint64_t cards_in_view(
	const struct plan_state *s, const struct plan_job *j, size_t node, enum view view)
{
	return view == VIEW_CAPACITY ? job_may_use_cards(j, node) : job_open_cards(s, j, node);
}

/* Does the node itself do, its cards aside? */
static bool host_in_view(
	const struct plan_state *s, const struct plan_job *j, size_t node, enum view view)
{
	if (view == VIEW_ANY_HOST)
		return true;
	if (view == VIEW_CAPACITY)
		return host_is_large_enough(s, node, j);
	return host_takes(s, node, j) || (view == VIEW_UNGUARDED && host_would_take(s, node, j));
}

static void kth_add_node(struct plan_state *s, size_t node, const struct plan_job *j,
	enum sharing sharing, enum view view, struct kth *t)
{
	const struct node_state *n = &s->nodes[node];
	uint64_t open = cards_in_view(s, j, node, view);
	const int64_t *rooms = rooms_in_view(s, sharing, view) + n->first;
	int64_t sorted[CARDS_MAX];
	uint32_t len = 0;

	for (uint32_t i = 0; i < n->n; i++) {
		if (!(open & (UINT64_C(1) << i)))
			continue;
		int64_t room = rooms[i];
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
	struct wish_memory *w = wish_of(s, j);
	struct kth *t = w ? w->views[sharing][view] : pinned;

	if (w && t)
		return t;
	if (w)
		t = w->views[sharing][view] = xreallocarray(NULL, 1, sizeof(*t));
	for (uint32_t k = 0; k <= CARDS_MAX; k++) {
		t->v[k] = NO_ROOM;
		t->node[k] = -1;
	}
	for (size_t i = 0; i < s->n_nodes; i++)
		if (job_may_use_node(j, i) && host_in_view(s, j, i, view))
			kth_add_node(s, i, j, sharing, view, t);
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

/* Nodes that it names, whatever cards are known there. */
static bool may_name_node(const struct plan_job *j, size_t node)
{
	return j->only_node < 0 || (size_t)j->only_node == node;
}

static bool is_any_card_listed(const struct plan_state *s, const struct plan_job *j)
{
	for (size_t i = 0; i < s->n_nodes; i++)
		if (may_name_node(j, i) && s->nodes[i].n > 0)
			return true;
	return false;
}

static bool is_any_node_unknown(const struct plan_state *s, const struct plan_job *j)
{
	if (!s->has_unknown)
		return false;
	for (size_t i = 0; i < s->n_nodes; i++)
		if (may_name_node(j, i) && s->in[i].is_unknown)
			return true;
	return false;
}

/* The node that has the most cores and memory, its own or what is left, as far as the job minds them. */
static void note_best_host(
	const struct plan_state *s, const struct plan_job *j, bool of_own, struct plan_decision *d)
{
	__int128 best = -1;

	for (size_t i = 0; i < s->n_nodes; i++) {
		const struct node_state *n = &s->nodes[i];
		int64_t cpus = of_own ? n->cpus_own : n->cpus_free;
		int64_t mem = of_own ? n->mem_own_mib : n->mem_free_mib;
		/* How much of each wish is met, up to all of it. */
		__int128 met = 0;

		if (!job_may_use_node(j, i) || (!of_own && !s->in[i].is_usable))
			continue;
		if (j->cpus > 0 && cpus > 0)
			met += cpus >= j->cpus ? 1000 : (__int128)cpus * 1000 / j->cpus;
		if (j->mem_mib > 0 && mem > 0)
			met += mem >= j->mem_mib ? 1000 : (__int128)mem * 1000 / j->mem_mib;
		if (met <= best)
			continue;
		best = met;
		d->best_node = (int32_t)i;
		d->host_cpus = cpus < MIB_MAX ? cpus : -1;
		d->host_mem_mib = mem < MIB_MAX ? mem : -1;
	}
}

static bool why_host_never(
	const struct plan_state *s, const struct plan_job *j, struct plan_decision *d)
{
	bool has_node = false;

	if (j->cpus <= 0 && j->mem_mib <= 0)
		return false;
	for (size_t i = 0; i < s->n_nodes; i++) {
		if (!job_may_use_node(j, i))
			continue;
		has_node = true;
		if (host_is_large_enough(s, i, j))
			return false;
	}
	if (!has_node)
		return false;
	d->why = WHY_HOST_TOO_SMALL;
	note_best_host(s, j, true, d);
	return true;
}

/* The most cards of that size which are joined on a node that is large enough. */
static uint32_t joined_capacity(struct plan_state *s, const struct plan_job *j)
{
	enum sharing sharing = job_sharing(s, j);
	int64_t need = job_need(s, j);
	uint32_t most = 0;

	for (size_t i = 0; i < s->n_nodes; i++) {
		uint64_t large = 0;

		if (!job_may_use_node(j, i) || !host_is_large_enough(s, i, j))
			continue;
		for (uint32_t k = 0; k < s->nodes[i].n; k++)
			if (capacity(&s->in[i].cards[k], sharing) >= need)
				large |= UINT64_C(1) << k;
		uint32_t joined = place_joined_max(s, i, large & job_may_use_cards(j, i));
		most = joined > most ? joined : most;
	}
	return most;
}

/* Only what the job itself asks for can be never: a policy of joined cards gives way where there are none. */
static bool why_joined_never(
	struct plan_state *s, const struct plan_job *j, struct plan_decision *d)
{
	struct wish_memory *w = wish_of(s, j);
	int64_t need = job_need(s, j);

	if (!j->need_nvlink || j->gpus < 2 || j->gpus > CARDS_MAX)
		return false;
	if (w && need <= w->joined_yes[j->gpus])
		return false;
	if (!w || need < w->joined_no[j->gpus] || j->declared_mib < 0) {
		d->have_cards = joined_capacity(s, j);
		if (d->have_cards >= j->gpus) {
			if (w && j->declared_mib >= 0)
				w->joined_yes[j->gpus] = need;
			d->have_cards = 0;
			return false;
		}
	} else {
		d->have_cards = w->joined_never[j->gpus];
	}
	if (w && j->declared_mib >= 0) {
		w->joined_no[j->gpus] = need;
		w->joined_never[j->gpus] = d->have_cards;
	}
	d->why = WHY_NOT_JOINED;
	return true;
}

bool why_never(struct plan_state *s, const struct plan_job *j, struct plan_decision *d)
{
	struct kth pinned;
	int64_t need = job_need(s, j);

	if (is_any_node_unknown(s, j))
		return false;
	if (j->gpus == 0)
		return why_host_never(s, j, d);
	const struct kth *t = kth_make(s, j, VIEW_CAPACITY, &pinned);
	if (j->gpus <= CARDS_MAX && t->v[j->gpus] >= need)
		return why_joined_never(s, j, d);
	/* Where nothing is known of any card, nothing is known. */
	if (!is_any_card_listed(s, j))
		return false;
	if (why_host_never(s, j, d))
		return true;
	uint32_t listed = kth_count(t, NO_ROOM + 1), large = kth_count(t, need);
	d->why = j->node_cards && listed == 0 ? WHY_NO_CARD
		 : j->gpus > listed	      ? WHY_TOO_MANY_CARDS
					      : WHY_TOO_BIG;
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
		if (!(cards_in_view(s, j, (size_t)node, view) & (UINT64_C(1) << i)))
			continue;
		int64_t room = room_in_view(s, (size_t)node, i, job_sharing(s, j), view);
		if (room <= NO_ROOM || (d->best_card >= 0 && room <= d->best_free_mib))
			continue;
		d->best_node = node;
		d->best_card = (int32_t)i;
		d->best_free_mib = room;
	}
}

/* Where all nodes are silent, ten thousand jobs would look at each of them. */
static bool is_any_card_usable(const struct plan_state *s, const struct plan_job *j)
{
	if (!s->has_usable)
		return false;
	for (size_t i = 0; i < s->n_nodes; i++)
		if (job_may_use_node(j, i) && (s->nodes[i].usable & job_may_use_cards(j, i)))
			return true;
	return false;
}

static bool is_any_card_out(const struct plan_state *s, const struct plan_job *j)
{
	if (!s->has_out)
		return false;
	for (size_t i = 0; i < s->n_nodes; i++)
		for (uint32_t k = 0; job_may_use_node(j, i) && k < s->nodes[i].n; k++)
			if (s->in[i].cards[k].is_out && (job_may_use_cards(j, i) >> k & 1))
				return true;
	return false;
}

static uint32_t count_joined(
	struct plan_state *s, const struct plan_job *j, enum sharing sharing, enum view view)
{
	uint32_t most = 0;

	for (size_t i = 0; i < s->n_nodes; i++) {
		uint64_t with_room = 0, open;

		if (!job_may_use_node(j, i))
			continue;
		open = cards_in_view(s, j, i, view);
		for (uint32_t k = 0; k < s->nodes[i].n; k++)
			if ((open >> k & 1) &&
				room_in_view(s, i, k, sharing, view) >= job_need(s, j))
				with_room |= UINT64_C(1) << k;
		uint32_t joined = place_joined_max(s, i, with_room);
		most = joined > most ? joined : most;
	}
	return most;
}

/* Jobs of a kind mostly need the same as well. */
static uint32_t joined_with_room(struct plan_state *s, const struct plan_job *j, enum view view)
{
	struct wish_memory *w = wish_of(s, j);
	enum sharing sharing = job_sharing(s, j);
	int64_t need = job_need(s, j);

	if (w && w->has_joined && w->joined_sharing == sharing && w->joined_view == view &&
		w->joined_need == need)
		return w->joined;
	uint32_t joined = count_joined(s, j, sharing, view);
	if (w) {
		w->has_joined = true;
		w->joined_sharing = sharing;
		w->joined_view = view;
		w->joined_need = need;
		w->joined = joined;
	}
	return joined;
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
	} else if (j->idle) {
		d->why = WHY_NOT_IDLE;
	} else if (j->declared_mib < 0) {
		d->why = WHY_NO_IDLE;
	} else {
		d->why = d->have_cards > 0 ? WHY_FEW_CARDS : WHY_MEMORY;
	}
	if (best >= 0 && j->declared_mib >= 0 && !j->idle)
		note_best_card(s, j, view, best, d);
}

void why_host(const struct plan_state *s, const struct plan_job *j, struct plan_decision *d)
{
	d->why = WHY_HOST;
	note_best_host(s, j, false, d);
}

void why_waits(struct plan_state *s, const struct plan_job *j, struct plan_decision *d)
{
	/* What is kept for the job itself isn't in its way. */
	enum view view = d->guard_node >= 0 ? VIEW_UNGUARDED : VIEW_NOW;
	int32_t node;

	if (d->why != WHY_NONE)
		return;
	if (j->gpus == 0 || j->gpus > CARDS_MAX)
		return;
	if (!is_any_card_usable(s, j))
		d->why = is_any_card_out(s, j) ? WHY_OUT_OF_SERVICE : WHY_NO_NODE;
	else if (s->n_guards > 0 && !fits_in_view(s, j, VIEW_NOW, &node) &&
		 fits_in_view(s, j, VIEW_UNGUARDED, &node) && node != d->guard_node &&
		 s->nodes[node].guard.is_set)
		why_guarded(s, node, d);
	else if (fits_in_view(s, j, view, &node))
		why_no_room(s, j, view, d);
	else if ((j->cpus > 0 || j->mem_mib > 0) && fits_in_view(s, j, VIEW_ANY_HOST, &node))
		why_host(s, j, d);
	else if (s->policy->max_jobs_per_card > 0 && fits_in_view(s, j, VIEW_UNLIMITED, &node))
		d->why = WHY_JOBS_LIMIT;
	else if (s->has_promises && fits_in_view(s, j, VIEW_UNPROMISED, &node))
		d->why = WHY_PROMISED;
	else
		why_no_room(s, j, j->cpus > 0 || j->mem_mib > 0 ? VIEW_ANY_HOST : view, d);
}
