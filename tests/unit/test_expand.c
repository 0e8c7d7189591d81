/* Sweeps and arrays become the jobs that a person means. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "base/cleanup.h"
#include "queue/expand.h"

static void expect_text(const struct expand *x, size_t i, const char *text, const char *want)
{
	CLEANUP(buf_done) struct buf b = {0};

	expand_text(x, i, text, &b);
	assert_string_equal(buf_str(&b), want);
}

static void product_in_order(void **state)
{
	CLEANUP(expand_done) struct expand x = {0};
	struct err e = {0};

	assert_int_equal(expand_sweep(&x, "lr=1e-3,1e-4", &e), 0);
	assert_int_equal(expand_sweep(&x, "seed=1-3", &e), 0);
	assert_int_equal(expand_count(&x), 6);
	expect_text(&x, 0, "t --lr {lr} --seed {seed}", "t --lr 1e-3 --seed 1");
	expect_text(&x, 1, "t --lr {lr} --seed {seed}", "t --lr 1e-3 --seed 2");
	expect_text(&x, 5, "t --lr {lr} --seed {seed}", "t --lr 1e-4 --seed 3");
}

static void other_braces_stay(void **state)
{
	CLEANUP(expand_done) struct expand x = {0};
	struct err e = {0};

	assert_int_equal(expand_sweep(&x, "a=7", &e), 0);
	expect_text(
		&x, 0, "awk '{print $1}' ${a} {b} {{a}} {a", "awk '{print $1}' ${a} {b} {7} {a");
}

static void array_ranges(void **state)
{
	CLEANUP(expand_done) struct expand x = {0};
	struct err e = {0};

	assert_int_equal(expand_array(&x, "1,5-6,0-30:10,-2", &e), 0);
	assert_int_equal(expand_count(&x), 8);
	expect_text(&x, 0, "{index}", "1");
	expect_text(&x, 2, "{index}", "6");
	expect_text(&x, 6, "{index}", "30");
	expect_text(&x, 7, "{index}", "-2");
}

static void mistakes_are_named(void **state)
{
	static const char *const bad[] = {
		"lr", "=1", "1x=2", "lr=", "lr=1,,2", "index=1", "lr=5-1"};
	struct err e = {0};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		CLEANUP(expand_done) struct expand x = {0};

		assert_int_equal(expand_sweep(&x, bad[i], &e), -EINVAL);
		assert_true(e.text[0] != '\0');
		assert_int_equal(expand_count(&x), 1);
	}
	{
		CLEANUP(expand_done) struct expand x = {0};

		assert_int_equal(expand_array(&x, "a-b", &e), -EINVAL);
		assert_int_equal(expand_array(&x, "1-100001", &e), -E2BIG);
		assert_int_equal(
			expand_array(&x, "9223372036854775806-9223372036854775807", &e), 0);
		assert_int_equal(expand_count(&x), 2);
	}
}

static void product_is_bounded(void **state)
{
	CLEANUP(expand_done) struct expand x = {0};
	struct err e = {0};

	assert_int_equal(expand_sweep(&x, "a=1-1000", &e), 0);
	assert_int_equal(expand_sweep(&x, "b=1-101", &e), -E2BIG);
	assert_int_equal(expand_sweep(&x, "b=1-100", &e), 0);
	assert_int_equal(expand_sweep(&x, "b=1-2", &e), -EINVAL);
}

static void env_and_unused(void **state)
{
	CLEANUP(expand_done) struct expand x = {0};
	const char *texts[] = {"train {lr}", NULL};
	json_t *env = json_object();
	struct err e = {0};

	assert_int_equal(expand_sweep(&x, "lr=1,2", &e), 0);
	assert_int_equal(expand_array(&x, "4", &e), 0);
	assert_null(expand_unused(&x, texts, 2));
	assert_int_equal(expand_sweep(&x, "wd=0", &e), 0);
	assert_string_equal(expand_unused(&x, texts, 2), "wd");
	expand_env(&x, 1, env);
	assert_string_equal(json_string_value(json_object_get(env, "GPUSTOW_SWEEP_lr")), "2");
	assert_string_equal(json_string_value(json_object_get(env, "GPUSTOW_ARRAY_INDEX")), "4");
	json_decref(env);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(product_in_order),
		cmocka_unit_test(other_braces_stay),
		cmocka_unit_test(array_ranges),
		cmocka_unit_test(mistakes_are_named),
		cmocka_unit_test(product_is_bounded),
		cmocka_unit_test(env_and_unused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
