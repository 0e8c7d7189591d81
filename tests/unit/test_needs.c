/* Prerequisites: who waits, who is held, who fails, and when a hold goes by itself. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "queue/needs.h"

#include "base/cleanup.h"

#include <string.h>

#define ROW(needs_, any_, state_) \
	(struct store_unmet_row) \
	{ \
		.job = 9, .needs = needs_, .any = any_, .state = JOB_STATE_##state_ \
	}

static void comes_to(enum needs_word word, const struct store_unmet_row *rows, size_t n,
	enum on_dependency policy, const char *held, const char *why)
{
	CLEANUP(buf_done) struct buf b = {0};

	assert_int_equal(needs_decide(rows, n, policy, held, &b), word);
	assert_string_equal(buf_str(&b), why);
	/* What holds a job is known again as ours. */
	if (word == NEEDS_HOLD)
		assert_true(needs_is_ours(buf_str(&b)));
}

static void test_waits_while_something_may_come(void **state)
{
	const struct store_unmet_row rows[] = {ROW(1, false, PENDING), ROW(2, true, RUNNING)};

	(void)state;
	comes_to(NEEDS_WAIT, rows, 2, ON_DEPENDENCY_HOLD, NULL, "");
	comes_to(NEEDS_WAIT, rows, 2, ON_DEPENDENCY_FAIL, NULL, "");
	comes_to(NEEDS_WAIT, rows, 2, ON_DEPENDENCY_RUN, NULL, "");
	comes_to(NEEDS_MET, NULL, 0, ON_DEPENDENCY_HOLD, NULL, "");
}

static void test_what_came_is_met(void **state)
{
	const struct store_unmet_row rows[] = {ROW(1, true, FAILED), ROW(2, false, COMPLETED)};

	(void)state;
	comes_to(NEEDS_MET, rows, 2, ON_DEPENDENCY_HOLD, NULL, "");
}

static void test_bad_end_holds_or_fails(void **state)
{
	const struct store_unmet_row rows[] = {ROW(1, false, PENDING), ROW(2, false, FAILED)};

	(void)state;
	comes_to(NEEDS_HOLD, rows, 2, ON_DEPENDENCY_HOLD, NULL,
		"needs job 2, which ended as failed");
	comes_to(NEEDS_FAIL, rows, 2, ON_DEPENDENCY_FAIL, NULL,
		"needs job 2, which ended as failed");
	/* The one that may still come is waited for. */
	comes_to(NEEDS_WAIT, rows, 2, ON_DEPENDENCY_RUN, NULL, "");
	comes_to(NEEDS_MET, rows + 1, 1, ON_DEPENDENCY_RUN, NULL, "");
}

static void test_one_that_is_gone(void **state)
{
	const struct store_unmet_row rows[] = {ROW(3, true, NONE)};

	(void)state;
	comes_to(NEEDS_HOLD, rows, 1, ON_DEPENDENCY_HOLD, NULL,
		"needs job 3, which isn't there any more");
	comes_to(NEEDS_MET, rows, 1, ON_DEPENDENCY_RUN, NULL, "");
}

static void test_holds_go_with_their_cause(void **state)
{
	const struct store_unmet_row waits[] = {ROW(2, false, PENDING)},
				     dead[] = {ROW(2, false, LOST)};
	const char *held = "needs job 2, which ended as failed";

	(void)state;
	comes_to(NEEDS_UNHOLD, waits, 1, ON_DEPENDENCY_HOLD, held, "");
	comes_to(NEEDS_UNHOLD, NULL, 0, ON_DEPENDENCY_HOLD, held, "");
	comes_to(NEEDS_HOLD, dead, 1, ON_DEPENDENCY_HOLD, held, "needs job 2, which ended as lost");
}

/* What a person has to look at isn't let go of by itself, nor failed. */
static void test_other_holds_stay(void **state)
{
	const struct store_unmet_row dead[] = {ROW(2, false, FAILED)};

	(void)state;
	comes_to(NEEDS_WAIT, NULL, 0, ON_DEPENDENCY_HOLD, "attempt 1 of it is known to n1", "");
	comes_to(NEEDS_WAIT, dead, 1, ON_DEPENDENCY_FAIL, "attempt 1 of it is known to n1", "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_waits_while_something_may_come),
		cmocka_unit_test(test_what_came_is_met),
		cmocka_unit_test(test_bad_end_holds_or_fails),
		cmocka_unit_test(test_one_that_is_gone),
		cmocka_unit_test(test_holds_go_with_their_cause),
		cmocka_unit_test(test_other_holds_stay),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
