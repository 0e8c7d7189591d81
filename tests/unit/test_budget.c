/* Charges and room: the vectors of the specification's section 7, and the edges of card_fits. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "sched/budget.h"

#include <math.h>

static void test_budget_vectors(void **state)
{
	assert_int_equal(budget_of(8000, 0, 8000, 0.10), 8000);
	assert_int_equal(budget_of(8000, 0, 8001, 0.10), 8802);
	assert_int_equal(budget_of(8000, 4000, 12000, 0.10), 13200);
	assert_int_equal(budget_of(8000, 9000, 7000, 0.10), 9000);
	assert_int_equal(budget_of(100, 0, 105, 0.10), 116);
	assert_int_equal(budget_of(8000, 3000, 7500, 0.10), 8000);
	assert_int_equal(budget_of(0, 0, 0, 0.10), 0);
}

static void test_round_to_six_decimals_before_ceil(void **state)
{
	assert_int_equal(budget_buffered(1010, 0.10), 1111);
	assert_int_equal(budget_buffered(182, 0.10), 201);
	assert_int_equal(budget_buffered(180, 0.10), 198);
	assert_int_equal(budget_buffered(1, 0.10), 2);
	assert_int_equal(budget_buffered(3, 0.000001), 4);
	assert_int_equal(budget_buffered(1, 0.0000004), 1);
}

static void test_buffer_of_zero_or_nonsense_gives_the_peak(void **state)
{
	assert_int_equal(budget_buffered(5000, 0), 5000);
	assert_int_equal(budget_buffered(5000, -0.5), 5000);
	assert_int_equal(budget_buffered(5000, NAN), 5000);
	assert_int_equal(budget_buffered(-5, 0.1), 0);
	assert_true(budget_buffered(INT64_MAX, 0.1) > 0);
	assert_true(budget_buffered(5000, INFINITY) > 0);
}

static void test_foreign(void **state)
{
	assert_int_equal(budget_foreign(10000, 4000, 0, 0.10, true), 6000);
	assert_int_equal(budget_foreign(1000, 0, 12000, 0.10, true), 13200);
	assert_int_equal(budget_foreign(1000, 0, 12000, 0.10, false), 1000);
	/* Our processes may be seen to hold more than the card shows in use. */
	assert_int_equal(budget_foreign(1000, 4000, 0, 0.10, true), 0);
	assert_int_equal(budget_foreign(INT64_MIN, INT64_MAX, 0, 0.10, false), 0);
}

static void test_free_never_wraps_round(void **state)
{
	struct card_room r = {.total_mib = 24000,
		.foreign_mib = 1000,
		.budgets_mib = 30000,
		.promised_mib = 5,
		.headroom_mib = 10};
	assert_int_equal(card_free(&r), -7015);
	r = (struct card_room){.total_mib = -5, .foreign_mib = INT64_MAX, .budgets_mib = INT64_MAX};
	assert_true(card_free(&r) < 0);
}

static void test_what_stands_in_the_way(void **state)
{
	struct card_room r = {.total_mib = 10000,
		.foreign_mib = 1000,
		.budgets_mib = 2000,
		.promised_mib = 500,
		.headroom_mib = 500,
		.n_ours = 1};
	struct card_need n = {.declared_mib = 5500, .margin_mib = 500};

	assert_int_equal(card_fits(&r, &n), FIT_YES); /* exactly */
	n.declared_mib++;
	assert_int_equal(card_fits(&r, &n), FIT_PROMISED);
	n.declared_mib += 500;
	assert_int_equal(card_fits(&r, &n), FIT_MEMORY);
	n.declared_mib = 100;
	n.max_jobs_per_card = 1;
	assert_int_equal(card_fits(&r, &n), FIT_JOBS_LIMIT);
	n.max_jobs_per_card = 2;
	assert_int_equal(card_fits(&r, &n), FIT_YES);
	n.exclusive = true;
	assert_int_equal(card_fits(&r, &n), FIT_EXCLUSIVE);
	r.has_whole = true;
	assert_int_equal(card_fits(&r, &n), FIT_WHOLE_TAKEN);
}

static void test_whole_card_wants_it_idle(void **state)
{
	struct card_room r = {.total_mib = 10000, .foreign_mib = 199};
	struct card_need n = {
		.declared_mib = UNDECLARED, .margin_mib = 512, .idle_threshold_mib = 200};

	assert_int_equal(card_fits(&r, &n), FIT_YES);
	r.promised_mib = 1;
	assert_int_equal(card_fits(&r, &n), FIT_PROMISED);
	r.promised_mib = 0;
	r.foreign_mib = 200;
	assert_int_equal(card_fits(&r, &n), FIT_NOT_IDLE);
	r.foreign_mib = 0;
	r.n_ours = 1;
	assert_int_equal(card_fits(&r, &n), FIT_NOT_IDLE);
	r.n_ours = 0;
	n.idle_threshold_mib = 0;
	assert_int_equal(card_fits(&r, &n), FIT_NOT_IDLE);
	/* The total isn't looked at. */
	n.idle_threshold_mib = 200;
	r.total_mib = 0;
	assert_int_equal(card_fits(&r, &n), FIT_YES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_budget_vectors),
		cmocka_unit_test(test_round_to_six_decimals_before_ceil),
		cmocka_unit_test(test_buffer_of_zero_or_nonsense_gives_the_peak),
		cmocka_unit_test(test_foreign),
		cmocka_unit_test(test_free_never_wraps_round),
		cmocka_unit_test(test_what_stands_in_the_way),
		cmocka_unit_test(test_whole_card_wants_it_idle),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
