/*
 * What holds of every plan, over random clusters: PLAN_SEED in the environment repeats a run. The reference below is the
 * plan's rules written down naively (no memory of failures, no flat scan, every card asked anew by card_fits); both must
 * decide alike.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "sched/plan.h"

#include "base/buf.h"
#include "base/cleanup.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NODES 5
#define CARDS 6
#define JOBS 60
#define ROWS 64
#define ROUNDS 4000
#define NOW 1000000

static uint64_t seed;

static uint64_t random_below(uint64_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (seed >> 16) % n;
}

struct world {
	struct plan_card cards[NODES][CARDS];
	struct plan_running running[NODES][ROWS];
	struct plan_node nodes[NODES];
	size_t n_nodes;
	struct plan_job jobs[JOBS];
	size_t n_jobs;
	struct plan_policy policy;
	struct plan_decision d[JOBS];
};

static void random_card(struct world *w, size_t node, size_t i)
{
	struct plan_card *c = &w->cards[node][i];
	struct plan_node *n = &w->nodes[node];

	*c = (struct plan_card){.index = (int32_t)i,
		.is_usable = random_below(12) != 0,
		.was_seen = random_below(4) != 0,
		.numa = (int32_t)random_below(3) - 1,
		.nvlink_peers = random_below(2) ? random_below(64) : 0};
	c->room = (struct card_room){.total_mib = 1000 * (int64_t)(8 + random_below(40)),
		.foreign_mib = random_below(3) ? 0 : (int64_t)random_below(12000),
		.headroom_mib = (int64_t)random_below(2) * 500,
		.promised_mib = random_below(6) ? 0 : (int64_t)random_below(9000)};
	uint32_t occupants = (uint32_t)random_below(4);
	for (uint32_t k = 0; k < occupants && n->n_running < ROWS; k++) {
		int64_t charge = (int64_t)random_below(12000);
		bool is_whole = occupants == 1 && random_below(5) == 0;
		if (is_whole)
			charge = c->room.total_mib;
		c->room.has_whole |= is_whole;
		c->room.budgets_mib += charge;
		c->room.n_ours++;
		w->running[node][n->n_running++] =
			(struct plan_running){.id = 900 + random_below(99),
				.card = (uint32_t)i,
				.charge_mib = charge,
				.beside_guard = random_below(3) ? 0 : 1 + random_below(JOBS)};
	}
}

static void random_job(struct world *w, size_t i)
{
	struct plan_job *j = &w->jobs[i];

	*j = (struct plan_job){.id = i + 1,
		.declared_mib = random_below(8) ? (int64_t)random_below(24) * 1000 : UNDECLARED,
		.gpus = random_below(3) ? 1 : (uint32_t)random_below(CARDS + 2),
		.priority = random_below(3) ? 0 : (int32_t)random_below(3),
		.waiting_since_ms = NOW - (int64_t)random_below(2000),
		.exclusive = random_below(6) == 0,
		.only_node = random_below(6) ? -1 : (int32_t)random_below(NODES),
		.only_cards = random_below(10) ? 0 : 1 + random_below(63),
		.is_blocked = random_below(20) == 0,
		.guard_node = -1};
	if (random_below(12) == 0) {
		j->guard_node = (int32_t)random_below(NODES);
		for (uint32_t k = 0; k < j->gpus && k < CARDS; k++)
			j->guard_cards |= UINT64_C(1) << k;
	}
}

static void random_world(struct world *w)
{
	memset(w, 0, sizeof(*w));
	w->n_nodes = 1 + random_below(NODES);
	for (size_t i = 0; i < w->n_nodes; i++) {
		w->nodes[i] = (struct plan_node){.cards = w->cards[i],
			.n_cards = 1 + random_below(CARDS),
			.is_usable = random_below(10) != 0,
			.max_cpu_jobs = (uint32_t)random_below(4),
			.n_cpu_jobs = (uint32_t)random_below(3),
			.running = w->running[i]};
		for (size_t k = 0; k < w->nodes[i].n_cards; k++)
			random_card(w, i, k);
	}
	w->n_jobs = random_below(JOBS + 1);
	for (size_t i = 0; i < w->n_jobs; i++)
		random_job(w, i);
	w->policy = (struct plan_policy){.place = (enum plan_place)random_below(3),
		.margin_mib = (int64_t)random_below(2) * 512,
		.idle_threshold_mib = random_below(10) ? 200 : 0,
		.exclusive = random_below(12) == 0,
		.need_nvlink = random_below(8) == 0,
		.max_jobs_per_card = (uint32_t)(random_below(3) ? 0 : 1 + random_below(3)),
		.max_jobs = (uint32_t)(random_below(6) ? 0 : 1 + random_below(10)),
		.guard_after_ms = random_below(3) ? 500 : 0};
}

static void make(struct world *w)
{
	memset(w->d, 0xa5, sizeof(w->d));
	plan_make(w->nodes, w->n_nodes, w->jobs, w->n_jobs, &w->policy, NOW, w->d);
}

/* ------------------------------------------------------------------ the reference */

struct ref {
	struct card_room rooms[NODES][CARDS];
	int64_t companions_mib[NODES][CARDS];
	uint32_t n_companions[NODES][CARDS];
	uint32_t n_cpu[NODES];
	int guard_job[NODES]; /* -1 none */
	uint64_t guard_cards[NODES];
};

static bool ref_is_alone(const struct world *w, const struct plan_job *j)
{
	return j->exclusive || w->policy.exclusive;
}

static struct card_need ref_need(const struct world *w, const struct plan_job *j)
{
	return (struct card_need){.declared_mib = j->declared_mib,
		.margin_mib = w->policy.margin_mib,
		.idle_threshold_mib = w->policy.idle_threshold_mib,
		.exclusive = ref_is_alone(w, j),
		.max_jobs_per_card = w->policy.max_jobs_per_card};
}

static bool ref_may_use(const struct world *w, const struct plan_job *j, size_t n, size_t c)
{
	return w->nodes[n].is_usable && w->cards[n][c].is_usable &&
	       (j->only_node < 0 || (size_t)j->only_node == n) &&
	       (!j->only_cards || (j->only_cards >> c & 1));
}

/* Would the guarded job still fit once its blockers have ended, with this newcomer there? */
static bool ref_leaves_guard(
	const struct world *w, const struct ref *r, const struct plan_job *j, size_t n, size_t c)
{
	if (r->guard_job[n] < 0 || !(r->guard_cards[n] >> c & 1))
		return true;
	const struct plan_job *g = &w->jobs[r->guard_job[n]];
	if (j->declared_mib < 0 || ref_is_alone(w, j))
		return false;
	struct card_room later = r->rooms[n][c];
	later.budgets_mib = r->companions_mib[n][c] + j->declared_mib;
	later.n_ours = r->n_companions[n][c] + 1;
	later.has_whole = false;
	struct card_need need = ref_need(w, g);
	return card_fits(&later, &need) == FIT_YES;
}

static bool ref_card_takes(
	const struct world *w, const struct ref *r, const struct plan_job *j, size_t n, size_t c)
{
	struct card_need need = ref_need(w, j);

	return ref_may_use(w, j, n, c) && card_fits(&r->rooms[n][c], &need) == FIT_YES &&
	       ref_leaves_guard(w, r, j, n, c);
}

static bool ref_linked(const struct world *w, size_t n, size_t a, size_t b)
{
	return (w->cards[n][a].nvlink_peers >> b & 1) || (w->cards[n][b].nvlink_peers >> a & 1);
}

/* Size of the largest group of these cards that hang together. */
static uint32_t ref_group(const struct world *w, size_t n, uint64_t cards)
{
	uint32_t most = 0;

	for (size_t from = 0; from < w->nodes[n].n_cards; from++) {
		uint64_t in = cards & (UINT64_C(1) << from);
		for (int turn = 0; in && turn < CARDS; turn++)
			for (size_t a = 0; a < w->nodes[n].n_cards; a++)
				for (size_t b = 0; b < w->nodes[n].n_cards; b++)
					if (a != b && (in >> a & 1) && (cards >> b & 1) &&
						ref_linked(w, n, a, b))
						in |= UINT64_C(1) << b;
		if ((uint32_t)__builtin_popcountll(in) > most)
			most = (uint32_t)__builtin_popcountll(in);
	}
	return most;
}

static bool ref_must_join(const struct world *w, size_t n, uint32_t k)
{
	uint64_t usable = 0;

	for (size_t c = 0; c < w->nodes[n].n_cards; c++)
		if (w->nodes[n].is_usable && w->cards[n][c].is_usable)
			usable |= UINT64_C(1) << c;
	return w->policy.need_nvlink && k > 1 && ref_group(w, n, usable) >= k;
}

/* Does the job fit anywhere, now? */
static bool ref_fits(const struct world *w, const struct ref *r, const struct plan_job *j)
{
	for (size_t n = 0; n < w->n_nodes; n++) {
		uint64_t takes = 0;
		for (size_t c = 0; c < w->nodes[n].n_cards; c++)
			if (ref_card_takes(w, r, j, n, c))
				takes |= UINT64_C(1) << c;
		uint32_t k = ref_must_join(w, n, j->gpus) ? ref_group(w, n, takes)
							  : (uint32_t)__builtin_popcountll(takes);
		if (k >= j->gpus)
			return true;
	}
	return false;
}

static void ref_count_companions(const struct world *w, struct ref *r, size_t n, uint64_t id)
{
	memset(r->companions_mib[n], 0, sizeof(r->companions_mib[n]));
	memset(r->n_companions[n], 0, sizeof(r->n_companions[n]));
	for (size_t i = 0; id && i < w->nodes[n].n_running; i++) {
		const struct plan_running *run = &w->running[n][i];
		if (run->beside_guard != id)
			continue;
		r->companions_mib[n][run->card] += run->charge_mib;
		r->n_companions[n][run->card]++;
	}
}

static void ref_start(const struct world *w, struct ref *r, const struct plan_job *j,
	const struct plan_decision *d)
{
	if (j->gpus == 0) {
		r->n_cpu[d->node]++;
		return;
	}
	for (size_t c = 0; c < w->nodes[d->node].n_cards; c++) {
		struct card_room *room = &r->rooms[d->node][c];
		if (!(d->cards >> c & 1))
			continue;
		room->n_ours++;
		room->has_whole |= j->declared_mib < 0 || ref_is_alone(w, j);
		room->budgets_mib += j->declared_mib < 0 ? room->total_mib : j->declared_mib;
		if (r->guard_job[d->node] >= 0 && (r->guard_cards[d->node] >> c & 1)) {
			r->companions_mib[d->node][c] += j->declared_mib;
			r->n_companions[d->node][c]++;
		}
	}
}

static bool before(const struct plan_job *a, size_t ia, const struct plan_job *b, size_t ib)
{
	if (a->priority != b->priority)
		return a->priority > b->priority;
	if (a->waiting_since_ms != b->waiting_since_ms)
		return a->waiting_since_ms < b->waiting_since_ms;
	return ia < ib;
}

static void ref_order(const struct world *w, size_t *order)
{
	for (size_t i = 0; i < w->n_jobs; i++) {
		size_t at = i;
		while (at > 0 && before(&w->jobs[i], i, &w->jobs[order[at - 1]], order[at - 1])) {
			order[at] = order[at - 1];
			at--;
		}
		order[at] = i;
	}
}

static bool ref_is_due(const struct world *w, const struct plan_job *j)
{
	return w->policy.guard_after_ms > 0 && NOW - j->waiting_since_ms > w->policy.guard_after_ms;
}

/* Could these cards hold the job, were all of ours gone? */
static bool ref_could_hold(
	const struct world *w, const struct ref *r, const struct plan_job *j, size_t n, size_t c)
{
	struct card_room later = r->rooms[n][c];
	struct card_need need = ref_need(w, j);

	later.budgets_mib = 0;
	later.n_ours = 0;
	later.has_whole = false;
	return ref_may_use(w, j, n, c) && card_fits(&later, &need) == FIT_YES;
}

static bool ref_is_never(const struct world *w, const struct plan_job *j)
{
	uint32_t most = 0;
	bool is_listed = false;

	for (size_t n = 0; n < w->n_nodes; n++) {
		uint32_t large = 0;
		if (j->only_node >= 0 && (size_t)j->only_node != n)
			continue;
		is_listed = true;
		for (size_t c = 0; c < w->nodes[n].n_cards; c++) {
			const struct plan_card *card = &w->cards[n][c];
			if ((card->is_usable || card->was_seen) &&
				(!j->only_cards || (j->only_cards >> c & 1)) &&
				(j->declared_mib < 0 ||
					card->room.total_mib - card->room.headroom_mib >=
						j->declared_mib + w->policy.margin_mib))
				large++;
		}
		most = large > most ? large : most;
	}
	return is_listed && j->gpus > most;
}

static void ref_restore_guards(const struct world *w, struct ref *r, const size_t *order)
{
	for (size_t i = 0; i < w->n_jobs; i++) {
		const struct plan_job *j = &w->jobs[order[i]];
		size_t n = (size_t)j->guard_node;

		if (!j->guard_cards || j->is_blocked || !ref_is_due(w, j) || n >= w->n_nodes ||
			r->guard_job[n] >= 0 ||
			(uint32_t)__builtin_popcountll(j->guard_cards) != j->gpus)
			continue;
		bool holds = true;
		for (size_t c = 0; c < CARDS; c++)
			if (j->guard_cards >> c & 1)
				holds = holds && c < w->nodes[n].n_cards &&
					ref_could_hold(w, r, j, n, c);
		if (!holds ||
			(ref_must_join(w, n, j->gpus) && ref_group(w, n, j->guard_cards) < j->gpus))
			continue;
		r->guard_job[n] = (int)order[i];
		r->guard_cards[n] = j->guard_cards;
		ref_count_companions(w, r, n, j->id);
	}
}

/*
 * Walks the order with the plan's own choices of cards (their quality is the scenarios' business) and asks at each step
 * whether start, wait and never are what the rules say, whether the cards take the job, and what is kept for whom.
 */
static void check_against_reference(const struct world *w)
{
	static struct ref r;
	size_t order[JOBS];
	uint32_t started = 0;

	memset(&r, 0, sizeof(r));
	for (size_t n = 0; n < w->n_nodes; n++) {
		r.guard_job[n] = -1;
		r.n_cpu[n] = w->nodes[n].n_cpu_jobs;
		for (size_t c = 0; c < w->nodes[n].n_cards; c++)
			r.rooms[n][c] = w->cards[n][c].room;
	}
	ref_order(w, order);
	ref_restore_guards(w, &r, order);
	for (size_t i = 0; i < w->n_jobs; i++) {
		const struct plan_job *j = &w->jobs[order[i]];
		const struct plan_decision *d = &w->d[order[i]];
		int kept_on = -1;

		if (j->is_blocked) {
			assert_int_equal(d->why, WHY_BLOCKED);
			continue;
		}
		if (j->gpus > 0) {
			assert_int_equal(d->what == PLAN_NEVER, ref_is_never(w, j));
			if (d->what == PLAN_NEVER)
				continue;
		}
		if (w->policy.max_jobs && started == w->policy.max_jobs) {
			assert_int_equal(d->why, WHY_JOBS_LIMIT);
			continue;
		}
		if (j->gpus == 0) {
			bool fits = false;
			for (size_t n = 0; n < w->n_nodes; n++)
				fits |= w->nodes[n].is_usable &&
					(j->only_node < 0 || (size_t)j->only_node == n) &&
					(!w->nodes[n].max_cpu_jobs ||
						r.n_cpu[n] < w->nodes[n].max_cpu_jobs);
			assert_int_equal(d->what == PLAN_START, fits);
			if (fits) {
				assert_true(!w->nodes[d->node].max_cpu_jobs ||
					    r.n_cpu[d->node] < w->nodes[d->node].max_cpu_jobs);
				ref_start(w, &r, j, d);
				started++;
			}
			continue;
		}
		if (j->declared_mib < 0 && w->policy.idle_threshold_mib <= 0) {
			assert_int_equal(d->why, WHY_THRESHOLD);
			continue;
		}
		for (size_t n = 0; n < w->n_nodes; n++)
			if (r.guard_job[n] == (int)order[i])
				kept_on = (int)n;
		if (kept_on >= 0)
			r.guard_job[kept_on] = -1;
		assert_int_equal(d->what == PLAN_START, ref_fits(w, &r, j));
		if (d->what == PLAN_START) {
			assert_int_equal(__builtin_popcountll(d->cards), j->gpus);
			for (size_t c = 0; c < 64; c++)
				if (d->cards >> c & 1)
					assert_true(c < w->nodes[d->node].n_cards &&
						    ref_card_takes(w, &r, j, (size_t)d->node, c));
			if (ref_must_join(w, (size_t)d->node, j->gpus))
				assert_int_equal(ref_group(w, (size_t)d->node, d->cards), j->gpus);
			int guarded = r.guard_job[d->node];
			bool is_beside = guarded >= 0 && (r.guard_cards[d->node] & d->cards);
			assert_int_equal(d->guard_id, is_beside ? w->jobs[guarded].id : 0);
			ref_start(w, &r, j, d);
			started++;
			continue;
		}
		if (kept_on >= 0) {
			r.guard_job[kept_on] = (int)order[i];
			assert_int_equal(d->guard_node, kept_on);
			assert_int_equal(d->guard_cards, r.guard_cards[kept_on]);
			continue;
		}
		/* Nothing kept for it yet: it must be now, if it's due and a free node could hold it. */
		bool could = false;
		for (size_t n = 0; n < w->n_nodes; n++) {
			uint64_t holds = 0;
			for (size_t c = 0; c < w->nodes[n].n_cards; c++)
				if (ref_could_hold(w, &r, j, n, c))
					holds |= UINT64_C(1) << c;
			uint32_t k = ref_must_join(w, n, j->gpus)
					     ? ref_group(w, n, holds)
					     : (uint32_t)__builtin_popcountll(holds);
			could |= r.guard_job[n] < 0 && k >= j->gpus;
		}
		assert_int_equal(d->guard_cards != 0, could && ref_is_due(w, j));
		if (d->guard_cards) {
			assert_int_equal(__builtin_popcountll(d->guard_cards), j->gpus);
			for (size_t c = 0; c < 64; c++)
				if (d->guard_cards >> c & 1)
					assert_true(
						ref_could_hold(w, &r, j, (size_t)d->guard_node, c));
			r.guard_job[d->guard_node] = (int)order[i];
			r.guard_cards[d->guard_node] = d->guard_cards;
			ref_count_companions(w, &r, (size_t)d->guard_node, 0);
		}
	}
}

static void test_same_as_the_naive_reference(void **state)
{
	static struct world w;

	for (int i = 0; i < ROUNDS; i++) {
		random_world(&w);
		make(&w);
		check_against_reference(&w);
	}
}

/* ------------------------------------------------------------------ invariants, asked without the reference */

static void test_never_oversubscribed(void **state)
{
	static struct world w;

	for (int i = 0; i < ROUNDS; i++) {
		random_world(&w);
		make(&w);
		for (size_t n = 0; n < w.n_nodes; n++) {
			for (size_t c = 0; c < w.nodes[n].n_cards; c++) {
				const struct card_room *r = &w.cards[n][c].room;
				int64_t added = 0;
				size_t whole = 0, starts = 0;
				for (size_t k = 0; k < w.n_jobs; k++) {
					if (w.d[k].what != PLAN_START || (size_t)w.d[k].node != n ||
						!(w.d[k].cards >> c & 1))
						continue;
					starts++;
					whole += w.jobs[k].declared_mib < 0;
					added += w.jobs[k].declared_mib < 0
							 ? 0
							 : w.jobs[k].declared_mib;
				}
				assert_true(starts == 0 || w.cards[n][c].is_usable);
				assert_true(starts == 0 || !r->has_whole);
				if (whole)
					assert_true(starts == 1 && r->n_ours == 0);
				if (starts && !whole)
					assert_true(added + r->foreign_mib + r->budgets_mib +
							    r->promised_mib + r->headroom_mib <=
						    r->total_mib);
			}
		}
	}
}

static void test_a_word_for_every_job(void **state)
{
	static struct world w;

	for (int i = 0; i < ROUNDS; i++) {
		random_world(&w);
		make(&w);
		for (size_t k = 0; k < w.n_jobs; k++) {
			CLEANUP(buf_done) struct buf text = {0};
			const struct plan_decision *d = &w.d[k];
			assert_int_equal(d->job, k);
			assert_true(d->what == PLAN_START || d->why != WHY_NONE);
			assert_true((d->what == PLAN_NEVER) ==
				    (d->why == WHY_TOO_BIG || d->why == WHY_TOO_MANY_CARDS));
			plan_why_text(d, w.nodes, NULL, &w.jobs[k], &text);
			assert_true(text.len > 8);
			/* The best card named in a refusal for memory is too small indeed. */
			if (d->why == WHY_MEMORY && d->best_card >= 0)
				assert_true(d->best_free_mib < d->need_mib);
			if (d->why == WHY_FEW_CARDS)
				assert_true(d->have_cards > 0 && d->have_cards < w.jobs[k].gpus);
		}
	}
}

static void test_same_input_same_plan(void **state)
{
	static struct world w;
	static struct plan_decision first[JOBS];

	for (int i = 0; i < ROUNDS / 4; i++) {
		random_world(&w);
		make(&w);
		memcpy(first, w.d, sizeof(first));
		make(&w);
		for (size_t k = 0; k < w.n_jobs; k++) {
			assert_int_equal(first[k].what, w.d[k].what);
			assert_int_equal(first[k].why, w.d[k].why);
			assert_int_equal(first[k].node, w.d[k].node);
			assert_int_equal(first[k].cards, w.d[k].cards);
			assert_int_equal(first[k].guard_cards, w.d[k].guard_cards);
			assert_int_equal(first[k].best_free_mib, w.d[k].best_free_mib);
		}
	}
}

static void test_a_lone_job_that_fits_exactly_starts(void **state)
{
	for (int i = 0; i < ROUNDS; i++) {
		int64_t total = 1000 + (int64_t)random_below(80000),
			foreign = (int64_t)random_below(500);
		int64_t margin = (int64_t)random_below(513);
		struct plan_card card = {.is_usable = true, .numa = -1};
		card.room = (struct card_room){.total_mib = total, .foreign_mib = foreign};
		struct plan_node node = {.cards = &card, .n_cards = 1, .is_usable = true};
		struct plan_job job = {.id = 1,
			.declared_mib = total - foreign - margin,
			.gpus = 1,
			.only_node = -1,
			.guard_node = -1};
		struct plan_policy policy = {.margin_mib = margin, .idle_threshold_mib = 200};
		struct plan_decision d;

		if (job.declared_mib < 0)
			continue;
		plan_make(&node, 1, &job, 1, &policy, 0, &d);
		assert_int_equal(d.what, PLAN_START);
		job.declared_mib++;
		plan_make(&node, 1, &job, 1, &policy, 0, &d);
		assert_int_equal(d.what, foreign ? PLAN_WAIT : PLAN_NEVER);
	}
}

/* What stands behind a job that can't start is looked at as if it weren't there. */
static void test_backfill_passes_over(void **state)
{
	static struct world w;
	static struct plan_decision alone[JOBS];

	for (int i = 0; i < ROUNDS / 4; i++) {
		random_world(&w);
		w.policy.guard_after_ms = 0;
		make(&w);
		memcpy(alone, w.d, sizeof(alone));
		size_t n = 0;
		static struct plan_job started[JOBS];
		size_t was[JOBS];
		for (size_t k = 0; k < w.n_jobs; k++) {
			if (alone[k].what != PLAN_START)
				continue;
			was[n] = k;
			started[n++] = w.jobs[k];
		}
		memcpy(w.jobs, started, sizeof(started));
		w.n_jobs = n;
		make(&w);
		for (size_t k = 0; k < n; k++) {
			assert_int_equal(w.d[k].what, PLAN_START);
			assert_int_equal(w.d[k].node, alone[was[k]].node);
			assert_int_equal(w.d[k].cards, alone[was[k]].cards);
		}
	}
}

/* ------------------------------------------------------------------ the guard over time */

struct attempt {
	uint64_t id, cards, beside;
	int64_t charge, ends;
	bool is_whole;
};

struct lab {
	struct plan_card cards[CARDS];
	struct plan_node node;
	struct plan_running running[512];
	struct attempt attempts[512];
	size_t n_attempts;
};

static void lab_load(struct lab *l, int64_t total)
{
	l->node = (struct plan_node){
		.cards = l->cards, .n_cards = CARDS, .is_usable = true, .running = l->running};
	for (size_t c = 0; c < CARDS; c++) {
		l->cards[c] =
			(struct plan_card){.index = (int32_t)c, .is_usable = true, .numa = -1};
		l->cards[c].room.total_mib = total;
		for (size_t i = 0; i < l->n_attempts; i++) {
			const struct attempt *a = &l->attempts[i];
			if (!(a->cards >> c & 1))
				continue;
			l->cards[c].room.budgets_mib += a->charge;
			l->cards[c].room.n_ours++;
			l->cards[c].room.has_whole |= a->is_whole;
			assert_true(l->node.n_running < 512);
			l->running[l->node.n_running++] =
				(struct plan_running){a->id, (uint32_t)c, a->charge, a->beside};
		}
		assert_true(l->cards[c].room.budgets_mib <= total);
	}
}

static void lab_end(struct lab *l, int64_t now)
{
	size_t kept = 0;

	for (size_t i = 0; i < l->n_attempts; i++)
		if (l->attempts[i].ends > now)
			l->attempts[kept++] = l->attempts[i];
	l->n_attempts = kept;
}

/*
 * Small jobs stream in without end, some of a higher priority. The big one must start no later than when the last of
 * those that ran at the moment its place was chosen has ended.
 */
static void guard_in_one_lab(void)
{
	static struct lab l;
	struct plan_policy policy = {.place = (enum plan_place)random_below(3),
		.margin_mib = 100,
		.idle_threshold_mib = 200,
		.guard_after_ms = 20};
	struct plan_job jobs[12];
	struct plan_decision d[12];
	struct plan_job big = {.id = 1,
		.declared_mib = random_below(6) ? 15000 + (int64_t)random_below(8000) : UNDECLARED,
		.gpus = 1 + (uint32_t)random_below(CARDS),
		.only_node = -1,
		.guard_node = -1,
		.exclusive = random_below(6) == 0};
	int64_t must_start = INT64_MAX, started = -1;
	uint64_t next_id = 2;

	memset(&l, 0, sizeof(l));
	for (int64_t now = 0; now < 400 && started < 0; now++) {
		size_t n = 1 + random_below(11);
		lab_end(&l, now);
		lab_load(&l, 24000);
		jobs[0] = big;
		for (size_t i = 1; i < n; i++)
			jobs[i] = (struct plan_job){.id = next_id++,
				.declared_mib = 500 + (int64_t)random_below(9000),
				.gpus = 1,
				.priority = (int32_t)random_below(2),
				.waiting_since_ms = now,
				.only_node = -1,
				.guard_node = -1};
		if (now == 0)
			jobs[0].is_blocked = true; /* the cards fill up first */
		plan_make(&l.node, 1, jobs, n, &policy, now, d);
		if (d[0].guard_cards && !big.guard_cards) {
			must_start = now;
			for (size_t i = 0; i < l.n_attempts; i++)
				if ((l.attempts[i].cards & d[0].guard_cards) &&
					l.attempts[i].ends > must_start)
					must_start = l.attempts[i].ends;
		} else if (d[0].what == PLAN_WAIT && big.guard_cards) {
			assert_int_equal(d[0].guard_cards, big.guard_cards);
		}
		for (size_t i = 0; i < n; i++) {
			if (d[i].what != PLAN_START)
				continue;
			if (i == 0)
				started = now;
			assert_true(l.n_attempts < 512);
			int64_t length = 1 + (int64_t)random_below(60);
			/* Started in the plan that chose the place, before it was chosen: a blocker as well. */
			if (d[0].guard_cards && !big.guard_cards && !d[i].guard_id &&
				(d[i].cards & d[0].guard_cards) && now + length > must_start)
				must_start = now + length;
			l.attempts[l.n_attempts++] = (struct attempt){.id = jobs[i].id,
				.cards = d[i].cards,
				.beside = d[i].guard_id,
				.charge = jobs[i].declared_mib < 0 ? 24000 : jobs[i].declared_mib,
				.ends = now + length,
				.is_whole = jobs[i].declared_mib < 0 || jobs[i].exclusive};
		}
		big.guard_node = d[0].guard_node;
		big.guard_cards = d[0].guard_cards;
		assert_true(now <= must_start || started >= 0);
	}
	assert_true(started >= 0);
	assert_true(started <= must_start);
}

static void test_newcomers_dont_delay_the_guarded_job(void **state)
{
	for (int i = 0; i < 1500; i++)
		guard_in_one_lab();
}

int main(void)
{
	const char *given = getenv("PLAN_SEED");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_as_the_naive_reference),
		cmocka_unit_test(test_never_oversubscribed),
		cmocka_unit_test(test_a_word_for_every_job),
		cmocka_unit_test(test_same_input_same_plan),
		cmocka_unit_test(test_a_lone_job_that_fits_exactly_starts),
		cmocka_unit_test(test_backfill_passes_over),
		cmocka_unit_test(test_newcomers_dont_delay_the_guarded_job),
	};

	seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) * 2654435761u + 1;
	fprintf(stderr, "# PLAN_SEED=%" PRIu64 "\n", seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
