/*
 * What a monitor asks of NVML besides: figures in tiers, rates, XIDs, instances, use by process, cards that sleep.
 * Numbers in test names are items of the list of what users of GPU monitors ran into.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "gpu/nvml.h"
#include "nvml_fixture.h"
#include "value_assert.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct gpu_backend *open_file(const char *file, const char *text)
{
	CLEANUP(buf_done) struct buf path = {0};
	struct gpu_backend *b = NULL;
	struct err e = {0};

	put_file("scenario", text);
	buf_printf(&path, "%s/%s", getenv("FAKE_NVML_DIR"), file);
	if (nvml_open_at(path.data, work, &b, &e) < 0)
		fail_msg("%s", e.text);
	return b;
}

static struct gpu_backend *open_fake(const char *text)
{
	return open_file("libnvidia-ml.so.1", text);
}

static struct gpu_snapshot ask(struct gpu_backend *b, struct gpu_ask how)
{
	struct gpu_snapshot s = {0};
	struct err e = {0};

	if (gpu_backend_ask(b, &how, &s, &e) < 0)
		fail_msg("%s", e.text);
	return s;
}

static struct gpu_snapshot details(struct gpu_backend *b)
{
	return ask(b, (struct gpu_ask){.details = true, .lets_sleep = true});
}

static struct gpu_snapshot plain(struct gpu_backend *b)
{
	return ask(b, (struct gpu_ask){0});
}

#define M(s, i, what) ((s).cards[i].m[METRIC_##what])

static void every_figure_arrives(void **state)
{
	struct gpu_backend *b = open_fake(
		"card 0 arch=9 enc=11 dec=12 jpg=13 ofa=14 graphics=1500 video=1300 slowdown=87 shutdown=92 temp=60\n"
		"card 0 gen=3 width=8 genmax=5 widthmax=16 limit=300000 bar1=512 bar1used=7 persistence=1 computemode=3\n"
		"card 0 migpending=1 throttle=0x204 mask=0x1ff\n"
		"field 0 82 71\nfield 0 186 123456\nfield 0 83 987654321\nfield 0 94 5\nfield 0 1 1 type=1\nfield 0 2 0 type=1\n"
		"field 0 3 6\nfield 0 4 7\nfield 0 5 8\nfield 0 6 9\nfield 0 29 1\nfield 0 30 2\nfield 0 31 1\n"
		"field 0 142 3\nfield 0 143 4\nfield 0 144 1\nfield 0 145 0\nfield 0 38 21\nfield 0 52 22\nfield 0 59 23\n"
		"driver 550.54.15\nnvml 12.550.54.15\n");
	struct gpu_snapshot s = details(b);

	(void)state;
	assert_string_equal(s.cards[0].arch, "Hopper");
	assert_string_equal(s.driver, "550.54.15");
	assert_string_equal(s.library, "12.550.54.15");
	assert_string_equal(s.cuda, "12.4");
	assert_true(s.has_details);
	assert_value(M(s, 0, UTIL_ENC), 11);
	assert_value(M(s, 0, UTIL_DEC), 12);
	assert_value(M(s, 0, UTIL_JPG), 13);
	assert_value(M(s, 0, UTIL_OFA), 14);
	assert_value(M(s, 0, CLOCK_GRAPHICS), 1500);
	assert_value(M(s, 0, CLOCK_VIDEO), 1300);
	assert_value(M(s, 0, CLOCK_SM_MAX), 2100);
	assert_value(M(s, 0, CLOCK_MEM_MAX), 9501);
	assert_value(M(s, 0, TEMP_MEM), 71);
	assert_value(M(s, 0, TEMP_SLOWDOWN), 87);
	assert_value(M(s, 0, TEMP_SHUTDOWN), 92);
	/* Without a call for the margin it's what is left to the threshold. */
	assert_value(M(s, 0, TEMP_MARGIN), 27);
	assert_value(M(s, 0, POWER_INSTANT), 123456);
	assert_value(M(s, 0, POWER_LIMIT_DEFAULT), 300000);
	assert_value(M(s, 0, POWER_LIMIT_MIN), 150000);
	assert_value(M(s, 0, POWER_LIMIT_MAX), 300000);
	assert_value(M(s, 0, ENERGY), 987654321);
	assert_value(M(s, 0, PCIE_GEN), 3);
	assert_value(M(s, 0, PCIE_WIDTH), 8);
	assert_value(M(s, 0, PCIE_GEN_MAX), 5);
	assert_value(M(s, 0, PCIE_WIDTH_MAX), 16);
	assert_value(M(s, 0, PCIE_REPLAYS), 5);
	/* What the card can't tell is no reason. */
	assert_value(M(s, 0, THROTTLE), 4);
	assert_value(M(s, 0, THROTTLE_MASK), 0x1ff);
	assert_value(M(s, 0, ECC_MODE), 1);
	assert_value(M(s, 0, ECC_MODE_PENDING), 0);
	assert_value(M(s, 0, ECC_CORR), 6);
	assert_value(M(s, 0, ECC_UNCORR), 7);
	assert_value(M(s, 0, ECC_CORR_LIFE), 8);
	assert_value(M(s, 0, ECC_UNCORR_LIFE), 9);
	assert_value(M(s, 0, RETIRED_CORR), 1);
	assert_value(M(s, 0, RETIRED_UNCORR), 2);
	assert_value(M(s, 0, RETIRED_PENDING), 1);
	assert_value(M(s, 0, REMAP_CORR), 3);
	assert_value(M(s, 0, REMAP_UNCORR), 4);
	assert_value(M(s, 0, REMAP_PENDING), 1);
	assert_value(M(s, 0, REMAP_FAILURE), 0);
	assert_value(M(s, 0, NVLINK_CRC), 21);
	assert_value(M(s, 0, NVLINK_REPLAYS), 22);
	assert_value(M(s, 0, NVLINK_RECOVERIES), 23);
	assert_value(M(s, 0, BAR1_TOTAL), 512);
	assert_value(M(s, 0, BAR1_USED), 7);
	assert_value(M(s, 0, PERSISTENCE), 1);
	assert_value(M(s, 0, COMPUTE_MODE), 3);
	assert_value(M(s, 0, MIG_PENDING), 1);
	assert_value(M(s, 0, REJECTED), 0);
	assert_value(M(s, 0, NVLINK_ACTIVE), 0);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void a_plain_sample_asks_no_more_than_it_did(void **state)
{
	struct gpu_backend *b = open_fake("cards 2\nproc 0 pid=1 used=5\n");
	struct gpu_snapshot s = plain(b);

	(void)state;
	assert_null(s.more);
	assert_int_equal(s.n_instances, 0);
	for (int m = METRIC_PLAIN_N; m < METRIC_N; m++)
		assert_int_equal(s.cards[0].m[m].state, VALUE_NOT_ASKED);
	assert_int_equal(calls("nvmlDeviceGetEncoder"), 0);
	assert_int_equal(calls("nvmlDeviceGetProcessUtilization"), 0);
	assert_int_equal(calls("nvmlDeviceGetPcie"), 0);
	assert_int_equal(calls("nvmlDeviceGetBAR1"), 0);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void tiers_static_once_slow_and_rare_seldom_one_batch(void **state)
{
	struct gpu_backend *b = open_fake(
		"cards 1\nfield 0 82 50\nfield 0 83 1\nfield 0 197 1\nfield 0 198 1\nfield 0 3 0\n");

	(void)state;
	for (int i = 0; i < 10; i++) {
		struct gpu_snapshot s = details(b);

		gpu_snapshot_done(&s);
	}
	assert_int_equal(calls("nvmlDeviceGetMaxClockInfo 0"), 4);
	assert_int_equal(calls("nvmlDeviceGetTemperatureThreshold 0"), 2);
	assert_int_equal(calls("nvmlDeviceGetBAR1MemoryInfo 0"), 1);
	assert_int_equal(calls("nvmlDeviceGetEccMode 0"), 1);
	assert_int_equal(calls("nvmlDeviceGetUtilizationRates 0"), 10);
	/* One is the enumeration's, for links. */
	assert_int_equal(calls("nvmlDeviceGetFieldValues 0"), 11);
	/* Counters of bytes answer: the call of 20 ms is never made. */
	assert_int_equal(calls("nvmlDeviceGetPcieThroughput"), 0);
	gpu_backend_free(b);
}

static void fields_answer_each_for_itself(void **state)
{
	struct gpu_backend *b =
		open_fake("cards 2\nfield 0 82 err=4\nfield 0 83 77\nfield 1 83 err=999\n"
			  "field 1 186 err=2\nfield 0 186 err=21\n");
	struct gpu_snapshot s = details(b);

	(void)state;
	assert_int_equal(M(s, 0, TEMP_MEM).state, VALUE_FORBIDDEN);
	assert_value(M(s, 0, ENERGY), 77);
	assert_int_equal(M(s, 1, ENERGY).state, VALUE_FAILED);
	assert_int_equal(M(s, 1, TEMP_MEM).state, VALUE_UNSUPPORTED);
	/* A number that the library doesn't know. */
	assert_int_equal(M(s, 1, POWER_INSTANT).state, VALUE_UNSUPPORTED);
	assert_int_equal(M(s, 0, POWER_INSTANT).state, VALUE_EMPTY);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

/* A field that's unsupported isn't asked again, and gives way to the call. */
static void unsupported_is_remembered_by_card_and_field(void **state)
{
	struct gpu_backend *b = open_fake("cards 1\ncard 0 ecc=1\n");
	struct nvml *n = (struct nvml *)b;
	struct gpu_snapshot s = details(b);

	(void)state;
	assert_value(M(s, 0, ECC_CORR), 100);
	assert_value(M(s, 0, ECC_UNCORR_LIFE), 111);
	assert_value(M(s, 0, REMAP_CORR), 3);
	assert_true(n->cards[0].gone[METRIC_TEMP_MEM] & FIELD_GONE);
	assert_true(n->cards[0].gone[METRIC_ECC_CORR] & FIELD_GONE);
	gpu_snapshot_done(&s);
	put_file("scenario", "cards 1\ncard 0 ecc=1\nfield 0 82 50\n");
	s = details(b);
	assert_int_equal(M(s, 0, TEMP_MEM).state, VALUE_UNSUPPORTED);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_66_memory_temperature_of_nothing_is_absent(void **state)
{
	struct gpu_backend *b =
		open_fake("cards 1\nfield 0 82 0 type=1\nfield 0 83 0xffffffffffffffff\n");
	struct gpu_snapshot s = details(b);

	(void)state;
	assert_int_equal(M(s, 0, TEMP_MEM).state, VALUE_UNSUPPORTED);
	/* All bits one is no counter. */
	assert_false(value_is_present(M(s, 0, ENERGY)));
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void assert_in(struct value v, double least, double most)
{
	assert_int_equal(v.state, VALUE_PRESENT);
	if ((double)v.v < least || (double)v.v > most)
		fail_msg("%lld isn't within %.0f and %.0f", (long long)v.v, least, most);
}

/* 2 GiB/s to the card, 1 GiB/s from it; power holds the clocks half of the time. */
static void item_87_rates_are_differences(void **state)
{
	struct gpu_backend *b =
		open_fake("cards 1\nfield 0 197 5 rate=1073741824\nfield 0 198 9 rate=2147483648\n"
			  "field 0 74 1 rate=500000000\nfield 0 138 1 rate=4096\nfield 0 139 1\n");
	int64_t begun[2] = {clock_boot_us()}, done[2];
	struct gpu_snapshot s = details(b);
	double least, most;

	(void)state;
	done[0] = clock_boot_us();
	assert_int_equal(M(s, 0, PCIE_TX).state, VALUE_EMPTY);
	assert_int_equal(M(s, 0, HELD_POWER).state, VALUE_EMPTY);
	gpu_snapshot_done(&s);
	poll(NULL, 0, 300);
	begun[1] = clock_boot_us();
	s = details(b);
	done[1] = clock_boot_us();
	/* The fake's clock and ours are read at different moments, a machine's hiccup apart; all lie within these four. */
	least = (double)(begun[1] - done[0]) / (double)(done[1] - begun[0]) * 0.98;
	most = (double)(done[1] - begun[0]) / (double)(begun[1] - done[0]) * 1.02;
	assert_in(M(s, 0, PCIE_TX), 1048576 * least, 1048576 * most);
	assert_in(M(s, 0, PCIE_RX), 2097152 * least, 2097152 * most);
	assert_in(M(s, 0, HELD_POWER), 50 * least - 1, 50 * most + 1);
	assert_in(M(s, 0, NVLINK_TX), 4096 * least, 4096 * most);
	assert_value(M(s, 0, NVLINK_RX), 0);
	assert_int_equal(M(s, 0, HELD_THERMAL).state, VALUE_UNSUPPORTED);
	gpu_snapshot_done(&s);
	/* Counters that begin anew give no rate, and none below nothing. */
	put_file("scenario", "cards 1\nfield 0 197 0\nfield 0 198 0\nfield 0 74 0\n");
	poll(NULL, 0, 150);
	s = details(b);
	assert_int_equal(M(s, 0, PCIE_TX).state, VALUE_EMPTY);
	assert_int_equal(M(s, 0, HELD_POWER).state, VALUE_EMPTY);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void pcie_call_on_two_cards_at_most(void **state)
{
	struct gpu_backend *b = open_fake("cards 2\n");
	struct gpu_snapshot s = details(b);

	(void)state;
	assert_value(M(s, 0, PCIE_TX), 70);
	assert_value(M(s, 1, PCIE_RX), 40);
	gpu_snapshot_done(&s);
	s = details(b);
	assert_value(M(s, 1, PCIE_RX), 40);
	/* Two directions, two cards, once in five seconds. */
	assert_int_equal(calls("nvmlDeviceGetPcieThroughput"), 4);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
	b = open_fake("cards 3\n");
	s = details(b);
	assert_int_equal(M(s, 0, PCIE_TX).state, VALUE_NOT_ASKED);
	assert_int_equal(calls("nvmlDeviceGetPcieThroughput"), 4);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_42_xids_are_counted_and_stay(void **state)
{
	struct gpu_backend *b = open_fake("cards 2\nxid 1 31\nxid 1 79\nxid 0 13 after=100000\n");
	int64_t before_ms = clock_wall_ms();
	struct gpu_snapshot s = details(b);

	(void)state;
	assert_value(M(s, 1, XID_COUNT), 2);
	assert_value(M(s, 1, XID_LAST), 79);
	assert_in_range(M(s, 1, XID_LAST_TIME).v, before_ms, clock_wall_ms());
	assert_value(M(s, 0, XID_COUNT), 0);
	assert_int_equal(M(s, 0, XID_LAST).state, VALUE_EMPTY);
	gpu_snapshot_done(&s);
	s = details(b);
	assert_value(M(s, 1, XID_COUNT), 2);
	gpu_snapshot_done(&s);
	/* A card that was lost and is back has its history. */
	put_file("scenario", "cards 2\nlost 1 for=200\n");
	for (int i = 0; i < 200; i++) {
		s = details(b);
		if (i > 2 && s.cards[1].state == GPU_OK)
			break;
		gpu_snapshot_done(&s);
		poll(NULL, 0, 50);
	}
	assert_value(M(s, 1, XID_COUNT), 2);
	assert_value(M(s, 1, XID_LAST), 79);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
	/* Each set was given back. */
	assert_int_equal(calls("nvmlEventSetFree"), calls("nvmlEventSetCreate"));
}

static void plain_samples_take_xids_too(void **state)
{
	struct gpu_backend *b = open_fake("cards 1\nxid 0 48\n");
	struct gpu_snapshot s = plain(b);

	(void)state;
	gpu_snapshot_done(&s);
	s = details(b);
	assert_value(M(s, 0, XID_LAST), 48);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_72_old_library_has_no_xids(void **state)
{
	struct gpu_backend *b = open_file("libnvidia-ml-old.so", "cards 1\n");
	struct gpu_snapshot s = details(b);

	(void)state;
	assert_int_equal(M(s, 0, XID_LAST).state, VALUE_UNSUPPORTED);
	assert_int_equal(M(s, 0, XID_COUNT).state, VALUE_UNSUPPORTED);
	assert_int_equal(M(s, 0, PCIE_GEN).state, VALUE_UNSUPPORTED);
	assert_value(M(s, 0, TEMP_SLOWDOWN), 90);
	assert_int_equal(s.cards[0].state, GPU_OK);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_18_instances_are_told_and_are_cards(void **state)
{
	struct gpu_backend *b = open_fake(
		"card 0 name=H100 memory=81920 mig=1\ninstance 0 0\ninstance 0 4\ncard 1 name=A\n"
		"proc 0 pid=77 used=100 gi=5\nuse 0 pid=77 sm=50\n");
	struct gpu_snapshot s = details(b);

	(void)state;
	assert_int_equal(s.n_cards, 4);
	assert_int_equal(s.n_instances, 2);
	assert_int_equal(s.instances[0].card, 0);
	assert_int_equal(s.instances[0].gi, 1 + 1);
	assert_int_equal(s.instances[1].gi, 5 + 1);
	assert_int_equal(s.instances[1].ci, 0 + 1);
	assert_string_equal(s.instances[1].profile, "1g.10gb");
	assert_true(strncmp(s.instances[1].uuid, "MIG-", 4) == 0);
	assert_value(s.instances[0].sm_count, 14);
	assert_value(s.instances[1].mem_used_mib, 100);
	assert_int_equal(gpu_find_uuid(&s, s.instances[0].uuid), 2);
	assert_int_equal(s.procs[0].card, 3);
	assert_int_equal(gpu_whole_of(&s, 3), 0);
	assert_int_equal(s.procs[0].gi, 5 + 1);
	assert_int_equal(s.more[0].sm_pct.state, VALUE_UNSUPPORTED);
	gpu_snapshot_done(&s);
	s = plain(b);
	assert_int_equal(s.n_instances, 0);
	assert_int_equal(s.n_cards, 4);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static const struct gpu_proc_more *more_of(const struct gpu_snapshot *s, int32_t pid)
{
	for (uint32_t i = 0; i < s->n_procs; i++) {
		if (s->procs[i].pid == pid)
			return &s->more[i];
	}
	fail_msg("no row of %d", pid);
	return NULL;
}

/* The last use of the first card's processes holds for a period; a busy machine may take longer from one look to the next. */
static void seen_now(struct gpu_backend *b)
{
	struct nvml_card *c = &((struct nvml *)b)->cards[0];

	for (uint32_t i = 0; i < c->n_use; i++)
		c->use[i].seen_ms = clock_boot_ms() + 60000;
}

static void items_10_11_12_use_is_joined_with_who_is_there(void **state)
{
	struct gpu_backend *b = open_fake(
		"cards 2\nproc 0 pid=101 used=1\nproc 0 pid=102 used=1\nproc 1 pid=101 used=1\n"
		"use 0 pid=101 sm=40 mem=30 enc=2 dec=1 after=-90\nuse 0 pid=101 sm=60 mem=35 after=-30\n"
		"use 0 pid=999 sm=99\nuse 1 pid=101 sm=7 after=-50\ngarbage 140\n");
	struct gpu_snapshot s = details(b);

	(void)state;
	assert_int_equal(s.n_procs, 3);
	assert_value(s.more[0].sm_pct, 60);
	assert_value(s.more[0].mem_pct, 35);
	assert_value(more_of(&s, 102)->sm_pct, 0);
	assert_value(s.more[2].sm_pct, 7);
	gpu_snapshot_done(&s);
	/* Rows of garbage are counted, in the sample after; a stamp from the future freezes nothing. */
	seen_now(b);
	s = details(b);
	assert_value(M(s, 0, REJECTED), 70);
	assert_value(s.more[0].sm_pct, 60);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_10_a_ring_full_of_the_dead_hides_nobody(void **state)
{
	CLEANUP(buf_done) struct buf text = {0};
	struct gpu_backend *b;
	struct gpu_snapshot s;

	(void)state;
	buf_puts(&text, "cards 1\nproc 0 pid=101 used=1\n");
	for (int i = 0; i < NVML_UTIL_MAX + 40; i++)
		buf_printf(&text, "use 0 pid=%d sm=9 after=-50\n", 100000 + i);
	buf_puts(&text, "use 0 pid=101 sm=44 after=-50\n");
	b = open_fake(buf_str(&text));
	s = details(b);
	assert_value(s.more[0].sm_pct, 44);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_13_last_use_holds_for_a_period(void **state)
{
	struct gpu_backend *b =
		open_fake("cards 1\nproc 0 pid=101 used=1\nuse 0 pid=101 sm=40 after=-100\n");
	struct nvml *n = (struct nvml *)b;
	struct gpu_snapshot s = details(b);

	(void)state;
	assert_value(s.more[0].sm_pct, 40);
	gpu_snapshot_done(&s);
	/* Nothing new: the library says "not found". */
	seen_now(b);
	s = details(b);
	assert_value(s.more[0].sm_pct, 40);
	gpu_snapshot_done(&s);
	n->cards[0].use[0].seen_ms = clock_boot_ms() - NVML_USE_HOLD_MS;
	s = details(b);
	assert_value(s.more[0].sm_pct, 0);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_14_no_samples_is_no_error_and_unsupported_is_remembered(void **state)
{
	struct gpu_backend *b = open_fake("cards 2\nproc 0 pid=5 used=1\nproc 1 pid=6 used=1\n"
					  "err nvmlDeviceGetProcessUtilization card=1 3\n");
	struct gpu_snapshot s = details(b);

	(void)state;
	assert_value(s.more[0].sm_pct, 0);
	assert_int_equal(s.more[1].sm_pct.state, VALUE_UNSUPPORTED);
	gpu_snapshot_done(&s);
	s = details(b);
	assert_int_equal(calls("nvmlDeviceGetProcessUtilization 1"), 1);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_41_use_of_the_card_has_three_ways(void **state)
{
	struct gpu_backend *b =
		open_fake("card 0 util=33 memutil=22\nerr nvmlDeviceGetUtilizationRates 3\n");
	struct gpu_snapshot s = details(b);

	(void)state;
	assert_value(M(s, 0, UTIL_GPU), 33);
	assert_value(M(s, 0, UTIL_MEM), 22);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
	b = open_fake(
		"card 0 util=34\nerr nvmlDeviceGetUtilizationRates 3\nerr nvmlDeviceGetDynamicPstatesInfo 3\n");
	s = details(b);
	assert_value(M(s, 0, UTIL_GPU), 34);
	assert_int_equal(M(s, 0, UTIL_MEM).state, VALUE_UNSUPPORTED);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
	b = open_fake("card 0 util=808334905 enc=4000 gen=77\n");
	s = details(b);
	assert_int_equal(M(s, 0, UTIL_GPU).state, VALUE_FAILED);
	assert_value(M(s, 0, REJECTED), 3);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_40_zeros_of_tegra_are_nothing(void **state)
{
	static const char zeros[] =
		"card 0 name=Orin util=0 memutil=0 temp=0 power=0 limit=0 fan=0 sm=0 mem=0 unified\n";
	struct gpu_backend *b;
	struct gpu_snapshot s;
	CLEANUP(buf_done) struct buf path = {0};
	int fd;

	(void)state;
	put_file("proc/meminfo", "MemTotal: 16000000 kB\nMemAvailable: 8000000 kB\n");
	b = open_fake(zeros);
	s = plain(b);
	/* A card of another make that's idle at 0 is just that. */
	assert_value(M(s, 0, UTIL_GPU), 0);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
	put_file("proc/device-tree/compatible", "");
	buf_printf(&path, "%s/proc/device-tree/compatible", work);
	fd = open(path.data, O_WRONLY | O_CLOEXEC);
	assert_int_equal(write(fd, "nvidia,p3737\0nvidia,tegra234", 29), 29);
	close(fd);
	put_file("sys/devices/gpu.0/load", "734\n");
	put_file("sys/class/thermal/thermal_zone0/type", "CPU-therm\n");
	put_file("sys/class/thermal/thermal_zone0/temp", "90000\n");
	put_file("sys/class/thermal/thermal_zone1/type", "GPU-therm\n");
	put_file("sys/class/thermal/thermal_zone1/temp", "45500\n");
	b = open_fake(zeros);
	s = plain(b);
	assert_value(M(s, 0, UTIL_GPU), 73);
	assert_value(M(s, 0, TEMP), 45);
	assert_int_equal(M(s, 0, POWER).state, VALUE_UNSUPPORTED);
	assert_true(s.cards[0].is_unified);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

#define DEVICE "sys/bus/pci/devices/0000:10:00.0/power/"
#define INFORMATION "proc/driver/nvidia/gpus/0000:10:00.0/information"

static void sleeping_laptop(const char *status)
{
	put_file(DEVICE "control", "auto\n");
	put_file(DEVICE "runtime_status", status);
	put_file(INFORMATION, "Model: \t\t NVIDIA GeForce RTX 4070 Laptop GPU\nIRQ:   \t\t 185\n"
			      "GPU UUID: \t GPU-fa4e0000-0000-0000-0000-000000000000\n");
}

static void item_34_a_sleeping_card_is_not_woken(void **state)
{
	struct gpu_backend *b;
	struct gpu_snapshot s;

	(void)state;
	sleeping_laptop("suspended\n");
	b = open_fake("cards 1\n");
	s = details(b);
	assert_int_equal(s.n_cards, 1);
	assert_int_equal(s.cards[0].state, GPU_OK);
	assert_string_equal(s.cards[0].name, "NVIDIA GeForce RTX 4070 Laptop GPU");
	assert_string_equal(s.cards[0].uuid, "GPU-fa4e0000-0000-0000-0000-000000000000");
	assert_int_equal(M(s, 0, TEMP).state, VALUE_ASLEEP);
	assert_int_equal(M(s, 0, MEM_USED).state, VALUE_ASLEEP);
	assert_int_equal(calls("nvmlDeviceGetHandleByIndex"), 0);
	gpu_snapshot_done(&s);
	/* Somebody else wakes it: then it's asked. */
	put_file(DEVICE "runtime_status", "active\n");
	s = details(b);
	assert_value(M(s, 0, TEMP), 40);
	gpu_snapshot_done(&s);
	/* It falls asleep again, though the library is open: it's left alone. */
	put_file(DEVICE "runtime_status", "suspended\n");
	s = details(b);
	assert_int_equal(M(s, 0, TEMP).state, VALUE_ASLEEP);
	assert_int_equal(calls("nvmlDeviceGetTemperatureV"), 1);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_34_who_places_jobs_wakes_it(void **state)
{
	struct gpu_backend *b;
	struct gpu_snapshot s;

	(void)state;
	sleeping_laptop("suspended\n");
	b = open_fake("cards 1\n");
	s = details(b);
	assert_int_equal(M(s, 0, MEM_TOTAL).state, VALUE_ASLEEP);
	gpu_snapshot_done(&s);
	s = plain(b);
	assert_value(M(s, 0, MEM_TOTAL), 24576);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_35_a_card_that_never_sleeps_keeps_its_handle(void **state)
{
	struct gpu_backend *b;
	struct nvml *n;
	struct gpu_snapshot s;

	(void)state;
	put_file(DEVICE "control", "on\n");
	put_file(DEVICE "runtime_status", "active\n");
	b = open_fake("cards 1\n");
	n = (struct nvml *)b;
	s = details(b);
	gpu_snapshot_done(&s);
	n->idle_since_ms = 1;
	s = details(b);
	assert_int_equal(n->rest_until_ms, 0);
	assert_int_equal(calls("nvmlShutdown"), 0);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_34_the_library_is_closed_so_that_it_can_sleep(void **state)
{
	struct gpu_backend *b;
	struct nvml *n;
	struct gpu_snapshot s;

	(void)state;
	sleeping_laptop("active\n");
	b = open_fake("cards 1\n");
	n = (struct nvml *)b;
	s = details(b);
	assert_value(M(s, 0, TEMP), 40);
	gpu_snapshot_done(&s);
	assert_true(n->idle_since_ms > 0);
	n->idle_since_ms = 1; /* long ago */
	s = details(b);
	gpu_snapshot_done(&s);
	assert_int_equal(calls("nvmlShutdown"), 1);
	s = details(b);
	assert_int_equal(M(s, 0, TEMP).state, VALUE_ASLEEP);
	assert_string_equal(s.cards[0].uuid, "GPU-fa4e0000-0000-0000-0000-000000000000");
	assert_int_equal(calls("nvmlInit"), 1);
	gpu_snapshot_done(&s);
	/* It stays awake all the same: another keeps it up, and it's asked again, with more patience. */
	n->rest_until_ms = 1;
	s = details(b);
	assert_value(M(s, 0, TEMP), 40);
	assert_int_equal(n->idle_need_ms, 2 * NVML_IDLE_MS);
	gpu_snapshot_done(&s);
	/* With a process on it nothing is closed. */
	put_file("scenario", "cards 1\nproc 0 pid=1 used=1\n");
	s = details(b);
	assert_int_equal(n->idle_since_ms, 0);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void old_process_lists_are_left_out_when_they_may(void **state)
{
	struct gpu_backend *b = open_fake("cards 1\nproc 0 pid=1 used=5\n");
	struct gpu_snapshot s = ask(b, (struct gpu_ask){.details = true, .old_procs = true});

	(void)state;
	assert_true(s.has_old_procs);
	assert_int_equal(s.n_procs, 0);
	assert_int_equal(calls("nvmlDeviceGetComputeRunningProcesses"), 0);
	gpu_snapshot_done(&s);
	s = details(b);
	assert_false(s.has_old_procs);
	assert_int_equal(s.n_procs, 1);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

/* Each of the calls that came with details may fail in each way without harm to the rest. */
static void item_20_38_any_call_of_details_may_fail(void **state)
{
	static const char *const names[] = {"nvmlDeviceGetArchitecture",
		"nvmlDeviceGetEncoderUtilization", "nvmlDeviceGetMaxClockInfo",
		"nvmlDeviceGetTemperatureThreshold", "nvmlDeviceGetFieldValues",
		"nvmlDeviceGetPowerManagementLimitConstraints", "nvmlDeviceGetCurrPcieLinkWidth",
		"nvmlDeviceGetBAR1MemoryInfo", "nvmlDeviceGetPersistenceMode",
		"nvmlDeviceGetComputeMode", "nvmlDeviceGetSupportedEventTypes",
		"nvmlEventSetCreate", "nvmlEventSetWait_v2", "nvmlDeviceRegisterEvents",
		"nvmlDeviceGetProcessUtilization", "nvmlDeviceGetPcieThroughput",
		"nvmlDeviceGetAttributes_v2", "nvmlDeviceGetGpuInstanceId",
		"nvmlDeviceGetMigDeviceHandleByIndex"};
	static const int codes[] = {3, 4, 6, 13, 17, 25, 999};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		for (size_t k = 0; k < ARRAY_LEN(codes); k++) {
			CLEANUP(buf_done) struct buf text = {0};
			struct gpu_backend *b;
			struct gpu_snapshot s;

			buf_printf(&text,
				"cards 2\ncard 1 mig=1\ninstance 1 2\nproc 0 pid=1 used=5\nerr %s %d\n",
				names[i], codes[k]);
			b = open_fake(buf_str(&text));
			for (int again = 0; again < 2; again++) {
				s = details(b);
				assert_int_equal(gpu_count_whole(&s), 2);
				assert_int_equal(s.cards[0].state, GPU_OK);
				assert_int_equal(s.cards[1].state, GPU_OK);
				assert_value(M(s, 0, MEM_TOTAL), 24576);
				assert_int_equal(s.n_procs, 1);
				gpu_snapshot_done(&s);
			}
			gpu_backend_free(b);
		}
	}
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(every_figure_arrives),
		T(a_plain_sample_asks_no_more_than_it_did),
		T(tiers_static_once_slow_and_rare_seldom_one_batch),
		T(fields_answer_each_for_itself),
		T(unsupported_is_remembered_by_card_and_field),
		T(item_66_memory_temperature_of_nothing_is_absent),
		T(item_87_rates_are_differences),
		T(pcie_call_on_two_cards_at_most),
		T(item_42_xids_are_counted_and_stay),
		T(plain_samples_take_xids_too),
		T(item_72_old_library_has_no_xids),
		T(item_18_instances_are_told_and_are_cards),
		T(items_10_11_12_use_is_joined_with_who_is_there),
		T(item_10_a_ring_full_of_the_dead_hides_nobody),
		T(item_13_last_use_holds_for_a_period),
		T(item_14_no_samples_is_no_error_and_unsupported_is_remembered),
		T(item_41_use_of_the_card_has_three_ways),
		T(item_40_zeros_of_tegra_are_nothing),
		T(item_34_a_sleeping_card_is_not_woken),
		T(item_34_who_places_jobs_wakes_it),
		T(item_35_a_card_that_never_sleeps_keeps_its_handle),
		T(item_34_the_library_is_closed_so_that_it_can_sleep),
		T(old_process_lists_are_left_out_when_they_may),
		T(item_20_38_any_call_of_details_may_fail),
	};

	return cmocka_run_group_tests_name("nvml_details", tests, NULL, NULL);
}
