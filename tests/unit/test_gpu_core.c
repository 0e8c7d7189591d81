/* Names of values, metrics and states, and the look-ups of a snapshot. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "core/gpu.h"

#include <errno.h>
#include <string.h>

static void value_states_have_names_both_ways(void **state)
{
	enum value_state s = VALUE_STATE_N;

	(void)state;
	for (int i = 0; i < VALUE_STATE_N; i++) {
		assert_non_null(value_state_name(i));
		assert_int_equal(value_state_from_name(value_state_name(i), &s), 0);
		assert_int_equal(s, i);
	}
	assert_null(value_state_name(VALUE_STATE_N));
	assert_null(value_state_name(-1));
	s = VALUE_LOST;
	assert_int_equal(value_state_from_name("elsewhere", &s), -EINVAL);
	assert_int_equal(value_state_from_name(NULL, &s), -EINVAL);
	assert_int_equal(s, VALUE_LOST);
}

static void gpu_states_have_names_both_ways(void **state)
{
	enum gpu_state s = GPU_STATE_N;

	(void)state;
	for (int i = 0; i < GPU_STATE_N; i++) {
		assert_int_equal(gpu_state_from_name(gpu_state_name(i), &s), 0);
		assert_int_equal(s, i);
		assert_int_equal(gpu_state_text(i)[0] == '\0', i == GPU_OK);
	}
	assert_null(gpu_state_name(GPU_STATE_N));
	assert_int_equal(gpu_state_from_name("odd", &s), -EINVAL);
}

static void metric_table_is_whole(void **state)
{
	(void)state;
	for (int i = 0; i < METRIC_N; i++) {
		assert_true(strlen(metric_info[i].key) > 0);
		assert_true(strlen(metric_info[i].text) > 0);
		for (int k = 0; k < i; k++)
			assert_string_not_equal(metric_info[i].key, metric_info[k].key);
	}
	assert_string_equal(metric_info[METRIC_MEM_TOTAL].key, "mem_total_mib");
	assert_string_equal(metric_info[METRIC_MEM_TOTAL].unit, "MiB");
	assert_int_equal(metric_info[METRIC_POWER_LIMIT].tier, TIER_SLOW);
}

static struct gpu_snapshot two_cards(void)
{
	struct gpu_snapshot s = {.n_cards = 2, .n_procs = 1};

	s.cards = xcalloc(2, sizeof(*s.cards));
	s.procs = xcalloc(1, sizeof(*s.procs));
	s.cards[0].index = 3;
	s.cards[1].index = 7;
	memcpy(s.cards[1].uuid, "GPU-b", sizeof("GPU-b"));
	s.procs[0].pid = 42;
	return s;
}

static void copies_own_their_rows(void **state)
{
	struct gpu_snapshot a = two_cards(), b = {0};

	(void)state;
	gpu_snapshot_copy(&a, &b);
	gpu_snapshot_done(&a);
	assert_null(a.cards);
	assert_int_equal(a.n_cards, 0);
	assert_int_equal(b.cards[1].index, 7);
	assert_int_equal(b.procs[0].pid, 42);
	gpu_snapshot_done(&b);
	gpu_snapshot_copy(&a, &b);
	assert_null(b.cards);
	gpu_snapshot_done(&b);
	gpu_snapshot_done(NULL);
}

static void cards_are_found_by_uuid_and_index(void **state)
{
	struct gpu_snapshot s = two_cards();

	(void)state;
	assert_int_equal(gpu_find_uuid(&s, "GPU-b"), 1);
	assert_int_equal(gpu_find_uuid(&s, "GPU-"), -1);
	/* Card 0 never told its UUID; no name finds it. */
	assert_int_equal(gpu_find_uuid(&s, ""), -1);
	assert_int_equal(gpu_find_index(&s, 3), 0);
	assert_int_equal(gpu_find_index(&s, 0), -1);
	gpu_snapshot_done(&s);
}

/* An instance has its card's number and is never meant by it, not even when the card is missing. */
static void instances_are_found_by_uuid_and_label(void **state)
{
	struct gpu_snapshot s = two_cards();
	struct gpu_card *g = &s.cards[1];
	char label[GPU_LABEL_LEN];

	(void)state;
	memcpy(s.cards[0].uuid, "GPU-a", sizeof("GPU-a"));
	memcpy(g->parent, "GPU-a", sizeof("GPU-a"));
	g->gi = 8;
	g->ci = 1;
	assert_int_equal(gpu_find_index(&s, 7), -1);
	assert_int_equal(gpu_find_label(&s, "7:7"), 1);
	assert_int_equal(gpu_find_label(&s, "3"), 0);
	assert_int_equal(gpu_find_label(&s, "7"), -1);
	assert_int_equal(gpu_whole_of(&s, 1), 0);
	assert_int_equal(gpu_whole_of(&s, 0), 0);
	assert_int_equal(gpu_count_whole(&s), 1);
	memcpy(g->parent, "GPU-x", sizeof("GPU-x"));
	assert_int_equal(gpu_whole_of(&s, 1), 1);
	gpu_label(INT32_MAX, INT32_MAX, INT32_MAX, label);
	assert_string_equal(label, "2147483647:2147483646:2147483646");
	gpu_snapshot_done(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(value_states_have_names_both_ways),
		cmocka_unit_test(gpu_states_have_names_both_ways),
		cmocka_unit_test(metric_table_is_whole),
		cmocka_unit_test(copies_own_their_rows),
		cmocka_unit_test(cards_are_found_by_uuid_and_index),
		cmocka_unit_test(instances_are_found_by_uuid_and_label),
	};

	return cmocka_run_group_tests_name("gpu_core", tests, NULL, NULL);
}
