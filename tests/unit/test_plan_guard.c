/* The guard over time: small jobs stream in without end, and the one that has waited too long still starts when it must. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "plan_world.h"

#include <string.h>

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
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_newcomers_dont_delay_the_guarded_job),
	};

	random_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
