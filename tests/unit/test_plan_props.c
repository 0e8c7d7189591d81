/*
 * What holds of every plan, over random clusters: PLAN_SEED in the environment repeats a run. plan_reference.c holds the
 * rules written down naively; both must decide alike.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "plan_world.h"

#include "base/buf.h"
#include "base/cleanup.h"

#include <string.h>

static void random_card(struct world *w, size_t node, size_t i)
{
	struct plan_card *c = &w->cards[node][i];
	struct plan_node *n = &w->nodes[node];

	*c = (struct plan_card){.index = (int32_t)i,
		.is_usable = random_below(12) != 0,
		.was_seen = random_below(4) != 0,
		.has_strangers = random_below(3) == 0,
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
		.idle = random_below(8) == 0,
		.need_nvlink = random_below(6) == 0,
		.node_cards = random_below(4) ? NULL : w->masks[random_below(MASKS)],
		.cpus = random_below(4) ? 0 : (int64_t)random_below(12),
		.mem_mib = random_below(5) ? 0 : (int64_t)random_below(9) * 1000,
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
			.is_unknown = random_below(25) == 0,
			.cpus = random_below(4) ? 4 + (int64_t)random_below(12) : 0,
			.mem_mib = random_below(4) ? 4000 + (int64_t)random_below(9) * 1000 : 0,
			.cpus_used = (int64_t)random_below(6),
			.mem_used_mib = (int64_t)random_below(5) * 1000,
			.max_cpu_jobs = (uint32_t)random_below(4),
			.n_cpu_jobs = (uint32_t)random_below(3),
			.running = w->running[i]};
		for (size_t k = 0; k < w->nodes[i].n_cards; k++)
			random_card(w, i, k);
	}
	for (size_t i = 0; i < MASKS; i++)
		for (size_t n = 0; n < NODES; n++)
			w->masks[i][n] = random_below(4) ? random_below(64) : 0;
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

/* Nothing on a card that isn't asked for, and no more of a node's cores and memory than it has. */
static void test_wishes_hold(void **state)
{
	static struct world w;

	for (int i = 0; i < ROUNDS; i++) {
		int64_t cpus[NODES] = {0}, mem[NODES] = {0};

		random_world(&w);
		make(&w);
		for (size_t k = 0; k < w.n_jobs; k++) {
			const struct plan_job *j = &w.jobs[k];
			const struct plan_decision *d = &w.d[k];

			if (d->what != PLAN_START)
				continue;
			cpus[d->node] += j->cpus;
			mem[d->node] += j->mem_mib;
			assert_true(j->only_node < 0 || j->only_node == d->node);
			assert_true(!j->node_cards || !(d->cards & ~j->node_cards[d->node]));
			for (size_t c = 0; c < CARDS; c++) {
				const struct plan_card *card = &w.cards[d->node][c];
				if (!(d->cards >> c & 1) || !j->idle)
					continue;
				assert_true(!card->has_strangers && card->room.n_ours == 0);
				for (size_t o = 0; o < w.n_jobs; o++)
					assert_true(o == k || w.d[o].what != PLAN_START ||
						    w.d[o].node != d->node ||
						    !(w.d[o].cards >> c & 1));
			}
		}
		for (size_t n = 0; n < w.n_nodes; n++) {
			const struct plan_node *node = &w.nodes[n];
			assert_true(
				!cpus[n] || !node->cpus || cpus[n] + node->cpus_used <= node->cpus);
			assert_true(!mem[n] || !node->mem_mib ||
				    mem[n] + node->mem_used_mib <= node->mem_mib);
		}
	}
}

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
				/* Who reserves nothing starts where there's less than nothing. */
				if (starts && !whole && (added || w.policy.margin_mib))
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
			assert_true((d->what == PLAN_NEVER) == (d->why >= WHY_TOO_MANY_CARDS));
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_as_the_naive_reference),
		cmocka_unit_test(test_never_oversubscribed),
		cmocka_unit_test(test_wishes_hold),
		cmocka_unit_test(test_a_word_for_every_job),
		cmocka_unit_test(test_same_input_same_plan),
		cmocka_unit_test(test_a_lone_job_that_fits_exactly_starts),
		cmocka_unit_test(test_backfill_passes_over),
	};

	random_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
