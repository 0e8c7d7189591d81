/*
 * What those who only look cause must not mislead those who place jobs: snapshots with old lists or sleeping cards
 * aren't fresh. Also what nvidia-smi's text has for a monitor, and that simulated cards are believable.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "agent/ledger.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "gpu/sim_figures.h"
#include "gpu/smi_parse.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct gpu_snapshot one_card(bool has_old_procs, struct value used)
{
	struct gpu_snapshot s = {
		.n_cards = 1, .has_details = true, .has_old_procs = has_old_procs, .begun_ms = 1};

	s.cards = calloc(1, sizeof(*s.cards));
	snprintf(s.cards[0].uuid, sizeof(s.cards[0].uuid), "GPU-1");
	s.cards[0].m[METRIC_MEM_TOTAL] = value_of(1000);
	s.cards[0].m[METRIC_MEM_USED] = used;
	return s;
}

static void only_lists_of_its_own_make_a_snapshot_fresh(void **state)
{
	struct ledger *l = ledger_new();
	struct attempts none = {0};
	struct attempt a = {.n_cards = 1};
	struct attempt_card card = {.uuid = "GPU-1"};
	struct gpu_snapshot s = one_card(false, value_of(5));

	(void)state;
	a.cards = &card;
	assert_false(ledger_is_fresh(l, "GPU-1"));
	ledger_take(l, &none, &s, 1);
	assert_true(ledger_is_fresh(l, "GPU-1"));
	ledger_note(l, &a, 1);
	assert_false(ledger_is_fresh(l, "GPU-1"));
	/* A later number, but lists from before what was noted. */
	s = one_card(true, value_of(5));
	ledger_take(l, &none, &s, 2);
	assert_int_equal(ledger_number(l), 2);
	assert_false(ledger_is_fresh(l, "GPU-1"));
	assert_false(ledger_is_fresh(l, "GPU-2"));
	s = one_card(false, value_of(5));
	ledger_take(l, &none, &s, 3);
	assert_true(ledger_is_fresh(l, "GPU-1"));
	/* One that was let sleep says nothing; it's asked again, and woken. */
	s = one_card(false, value_absent(VALUE_ASLEEP));
	ledger_take(l, &none, &s, 4);
	assert_false(ledger_is_fresh(l, "GPU-1"));
	/* Nor does one that wasn't asked, for the driver was let go of. */
	s = one_card(false, value_absent(VALUE_NOT_ASKED));
	ledger_take(l, &none, &s, 5);
	assert_false(ledger_is_fresh(l, "GPU-1"));
	ledger_free(l);
}

#define M(s, what) ((s).cards[0].m[METRIC_##what])

static void assert_value(struct value v, int64_t want)
{
	assert_int_equal(v.state, VALUE_PRESENT);
	assert_int_equal(v.v, want);
}

static void items_69_70_71_xml_has_it_for_a_monitor(void **state)
{
	CLEANUP(buf_done) struct buf b = {0};
	struct gpu_snapshot s = {0};
	struct err e = {0};
	char path[512];

	(void)state;
	snprintf(
		path, sizeof(path), "%s/tests/fuzz/corpus/smi/mig-h100.xml", getenv("SOURCE_ROOT"));
	assert_int_equal(fd_read_file_at(AT_FDCWD, path, &b, 1 << 20), 0);
	assert_int_equal(smi_parse_xml(buf_str(&b), b.len, &s, &e), 0);
	assert_string_equal(s.driver, "550.54.15");
	assert_string_equal(s.cuda, "12.4");
	assert_string_equal(s.cards[0].arch, "Ada");
	assert_value(M(s, PCIE_GEN), 4);
	assert_value(M(s, PCIE_GEN_MAX), 5);
	assert_value(M(s, PCIE_WIDTH), 8);
	assert_value(M(s, PCIE_WIDTH_MAX), 16);
	assert_value(M(s, PCIE_TX), 1200);
	assert_int_equal(M(s, PCIE_RX).state, VALUE_UNSUPPORTED);
	assert_value(M(s, PCIE_REPLAYS), 3);
	assert_value(M(s, UTIL_ENC), 3);
	assert_value(M(s, UTIL_DEC), 4);
	assert_value(M(s, UTIL_JPG), 5);
	assert_value(M(s, UTIL_OFA), 6);
	assert_value(M(s, ECC_MODE), 1);
	assert_value(M(s, ECC_MODE_PENDING), 0);
	assert_value(M(s, ECC_CORR), 5);
	assert_value(M(s, ECC_UNCORR), 10);
	assert_value(M(s, ECC_CORR_LIFE), 30);
	assert_int_equal(M(s, ECC_UNCORR_LIFE).state, VALUE_UNSUPPORTED);
	assert_value(M(s, REMAP_CORR), 2);
	assert_value(M(s, REMAP_UNCORR), 1);
	assert_value(M(s, REMAP_PENDING), 1);
	assert_value(M(s, REMAP_FAILURE), 0);
	assert_value(M(s, TEMP_MEM), 52);
	assert_value(M(s, TEMP_MARGIN), 41);
	assert_value(M(s, POWER), 100000);
	assert_value(M(s, POWER_INSTANT), 120500);
	assert_value(M(s, POWER_LIMIT_DEFAULT), 700000);
	assert_value(M(s, POWER_LIMIT_MIN), 200000);
	assert_value(M(s, CLOCK_GRAPHICS), 1980);
	assert_value(M(s, CLOCK_VIDEO), 1545);
	assert_value(M(s, CLOCK_MEM_MAX), 2619);
	assert_value(M(s, BAR1_TOTAL), 131072);
	assert_value(M(s, PERSISTENCE), 1);
	assert_value(M(s, COMPUTE_MODE), 3);
	assert_value(M(s, MIG_PENDING), 0);
	/* The card's own memory, not an instance's. */
	assert_value(M(s, MEM_TOTAL), 81559);
	assert_int_equal(s.n_instances, 2);
	assert_int_equal(s.instances[1].gi, 5 + 1);
	assert_value(s.instances[0].mem_total_mib, 40448);
	assert_value(s.instances[0].sm_count, 60);
	assert_int_equal(s.instances[1].mem_used_mib.state, VALUE_UNSUPPORTED);
	assert_int_equal(s.procs[0].gi, 1 + 1);
	assert_int_equal(s.procs[0].ci, 0 + 1);
	gpu_snapshot_done(&s);
}

static void simulated_cards_are_believable_and_the_same_twice(void **state)
{
	(void)state;
	for (int64_t ms = 0; ms < 200000; ms += 777) {
		for (int busy = 0; busy < 2; busy++) {
			struct gpu_card a = {.index = 3}, b;

			a.m[METRIC_MEM_TOTAL] = value_of(24576);
			a.m[METRIC_MEM_USED] = value_of(busy ? 20000 : 0);
			b = a;
			sim_figures(&a, busy, ms);
			sim_figures(&b, busy, ms);
			assert_memory_equal(&a, &b, sizeof(a));
			assert_in_range(a.m[METRIC_UTIL_GPU].v, busy ? 70 : 0, busy ? 100 : 0);
			assert_in_range(a.m[METRIC_TEMP].v, busy ? 50 : 25, busy ? 89 : 45);
			assert_in_range(
				a.m[METRIC_POWER].v, busy ? 150000 : 20000, busy ? 350000 : 40000);
			assert_true(a.m[METRIC_CLOCK_SM].v <= a.m[METRIC_CLOCK_SM_MAX].v);
			assert_in_range(a.m[METRIC_FAN].v, 0, 100);
			assert_in_range(a.m[METRIC_UTIL_MEM].v, 0, 100);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_lists_of_its_own_make_a_snapshot_fresh),
		cmocka_unit_test(items_69_70_71_xml_has_it_for_a_monitor),
		cmocka_unit_test(simulated_cards_are_believable_and_the_same_twice),
	};

	return cmocka_run_group_tests_name("looks", tests, NULL, NULL);
}
