/* Names of attempts and the words of their states: one spelling each, read in both directions. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "core/attempt.h"

#include <errno.h>
#include <string.h>

#define Q "0123456789abcdef0123456789abcdef"

static void test_name(void **state)
{
	static const char *const good[] = {
		Q "/1.1", Q "/7.12", Q "/18446744073709551615.4294967295"};
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		struct attempt_name n;
		char text[ATTEMPT_NAME_LEN];
		assert_int_equal(attempt_name_parse(good[i], &n), 0);
		attempt_name_format(&n, text);
		assert_string_equal(text, good[i]);
	}
	static const char *const bad[] = {"", "/", Q, Q "/", Q "/1", Q "/1.", Q "/.1", Q "/0.1",
		Q "/1.0", Q "/01.1", Q "/1.01", Q "/1.1 ", Q "/1.1.1", Q "/-1.1", Q "/+1.1",
		Q "/18446744073709551616.1", Q "/1.4294967296", Q "0/1.1", Q "//1.1",
		"0123456789ABCDEF0123456789abcdef/1.1", "../../../../../etc/0123456789abc/1.1",
		"0123456789abcdef0123456789abcde/1.1"};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct attempt_name n = {.job = 5}, before = n;
		assert_true(attempt_name_parse(bad[i], &n) < 0);
		assert_memory_equal(&n, &before, sizeof(n));
	}
}

static void test_equal(void **state)
{
	struct attempt_name a, b;
	assert_int_equal(attempt_name_parse(Q "/7.2", &a), 0);
	b = a;
	assert_true(attempt_name_equal(&a, &b));
	b.attempt = 3;
	assert_false(attempt_name_equal(&a, &b));
	b = a;
	b.job = 8;
	assert_false(attempt_name_equal(&a, &b));
	b = a;
	b.queue[31] = '0';
	assert_false(attempt_name_equal(&a, &b));
}

static void test_words(void **state)
{
	for (int i = 0; i <= END_HOW_N; i++) {
		const char *name = end_how_name((enum end_how)i);
		enum end_how back = 0;
		assert_int_equal(name != NULL, i > 0 && i < END_HOW_N);
		if (name) {
			assert_int_equal(end_how_from_name(name, &back), 0);
			assert_int_equal(back, i);
		}
	}
	for (int i = 0; i <= STOP_REASON_N; i++) {
		const char *name = stop_reason_name((enum stop_reason)i);
		enum stop_reason back = STOP_NONE;
		assert_int_equal(name != NULL, i < STOP_REASON_N);
		if (name) {
			assert_int_equal(stop_reason_from_name(name, &back), 0);
			assert_int_equal(back, i);
		}
	}
	for (int i = 0; i <= ATTEMPT_ENDED + 1; i++) {
		const char *name = attempt_state_name((enum attempt_state)i);
		enum attempt_state back = 0;
		assert_int_equal(name != NULL, i > 0 && i <= ATTEMPT_ENDED);
		if (name) {
			assert_int_equal(attempt_state_from_name(name, &back), 0);
			assert_int_equal(back, i);
		}
	}
	enum end_how how = END_EXIT;
	assert_int_equal(end_how_from_name("Exit", &how), -EINVAL);
	assert_int_equal(end_how_from_name("", &how), -EINVAL);
	assert_int_equal(how, END_EXIT);
	assert_string_equal(end_how_name(END_LAUNCH_FAILED), "launch-failed");
	assert_string_equal(stop_reason_name(STOP_CANCEL), "cancel");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_name),
		cmocka_unit_test(test_equal),
		cmocka_unit_test(test_words),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
