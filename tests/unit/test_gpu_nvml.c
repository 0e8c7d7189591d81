/*
 * The NVML back end over each variant of the fake library. Numbers in test names are items of the list of what users
 * of GPU monitors ran into. FAKE_NVML_DIR says where the libraries are.
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

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void scenario(const char *text)
{
	put_file("scenario", text);
}

static int open_variant(const char *file, const char *text, struct gpu_backend **ret, struct err *e)
{
	CLEANUP(buf_done) struct buf path = {0};
	const char *dir = getenv("FAKE_NVML_DIR");

	assert_non_null(dir);
	scenario(text);
	buf_printf(&path, "%s/%s", dir, file);
	return nvml_open_at(path.data, work, ret, e);
}

static struct gpu_backend *open_file(const char *file, const char *text)
{
	struct gpu_backend *b = NULL;
	struct err e = {0};

	if (open_variant(file, text, &b, &e) < 0)
		fail_msg("%s", e.text);
	return b;
}

static struct gpu_backend *open_fake(const char *text)
{
	return open_file("libnvidia-ml.so.1", text);
}

static struct gpu_snapshot sample(struct gpu_backend *b)
{
	struct gpu_snapshot s = {0};
	struct err e = {0};

	if (b->impl->snapshot(b, &s, &e) < 0)
		fail_msg("%s", e.text);
	return s;
}

#define MEM(s, i, what) ((s).cards[i].m[METRIC_MEM_##what])

static void assert_value(struct value v, int64_t want)
{
	assert_int_equal(v.state, VALUE_PRESENT);
	assert_int_equal(v.v, want);
}

static const struct gpu_proc *find_proc(const struct gpu_snapshot *s, uint32_t card, int32_t pid)
{
	for (uint32_t i = 0; i < s->n_procs; i++) {
		if (s->procs[i].card == card && s->procs[i].pid == pid)
			return &s->procs[i];
	}
	return NULL;
}

static void one_card_has_all_figures(void **state)
{
	struct gpu_backend *b = open_fake(
		"card 0 uuid=GPU-1 name=\"Fake A100\" memory=40960 reserved=600 used=1000 util=37 memutil=12\n"
		"card 0 temp=61 power=212345 limit=400000 fan=105 sm=1410 mem=1215 throttle=0x24 pstate=2 "
		"recovery=1\n");
	struct gpu_snapshot s = sample(b);
	const struct gpu_card *c = &s.cards[0];

	(void)state;
	assert_int_equal(s.n_cards, 1);
	assert_string_equal(c->uuid, "GPU-1");
	assert_string_equal(c->name, "Fake A100");
	assert_string_equal(c->bus_id, "00000000:10:00.0");
	assert_int_equal(c->state, GPU_OK);
	assert_value(c->m[METRIC_MEM_TOTAL], 40960);
	assert_value(c->m[METRIC_MEM_USED], 1000);
	assert_value(c->m[METRIC_MEM_RESERVED], 600);
	assert_value(c->m[METRIC_UTIL_GPU], 37);
	assert_value(c->m[METRIC_UTIL_MEM], 12);
	assert_value(c->m[METRIC_TEMP], 61);
	assert_value(c->m[METRIC_POWER], 212345);
	assert_value(c->m[METRIC_POWER_LIMIT], 400000);
	assert_value(c->m[METRIC_FAN], 105);
	assert_value(c->m[METRIC_CLOCK_SM], 1410);
	assert_value(c->m[METRIC_CLOCK_MEM], 1215);
	assert_value(c->m[METRIC_THROTTLE], 0x24);
	assert_value(c->m[METRIC_PSTATE], 2);
	assert_value(c->m[METRIC_MIG_MODE], 0);
	assert_value(c->m[METRIC_RECOVERY], 1);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void eight_and_sixteen_cards(void **state)
{
	struct gpu_backend *b = open_fake("cards 8\n");
	struct gpu_snapshot s = sample(b);

	(void)state;
	assert_int_equal(s.n_cards, 8);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
	b = open_fake("cards 16\n");
	s = sample(b);
	assert_int_equal(s.n_cards, 16);
	for (uint32_t i = 0; i < 16; i++)
		assert_int_equal(s.cards[i].index, i);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_88_initialises_once_and_caches_handles(void **state)
{
	struct gpu_backend *b = open_fake("cards 4\n");

	(void)state;
	for (int i = 0; i < 20; i++) {
		struct gpu_snapshot s = sample(b);

		gpu_snapshot_done(&s);
	}
	assert_int_equal(calls("nvmlInit"), 1);
	assert_int_equal(calls("nvmlDeviceGetHandleByIndex"), 4);
	assert_int_equal(calls("nvmlDeviceGetUUID"), 4);
	/* The slow tier is asked once in five seconds. */
	assert_int_equal(calls("nvmlDeviceGetMigMode 0"), 1);
	assert_int_equal(calls("nvmlDeviceGetUtilizationRates 0"), 20);
	gpu_backend_free(b);
	assert_int_equal(calls("nvmlShutdown"), 1);
}

static void item_01_reserved_memory_is_not_used(void **state)
{
	struct gpu_backend *b = open_fake("card 0 memory=81920 reserved=900 used=8\n");
	struct gpu_snapshot s = sample(b);

	(void)state;
	assert_value(MEM(s, 0, USED), 8);
	assert_value(MEM(s, 0, RESERVED), 900);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_02_v2_that_fails_gives_way_to_v1_for_that_card_only(void **state)
{
	struct gpu_backend *b = open_fake("cards 2\ncard 0 reserved=500 used=100\n"
					  "card 1 reserved=500 used=100\n"
					  "err nvmlDeviceGetMemoryInfo_v2 card=1 999\n");
	struct gpu_snapshot s = sample(b);

	(void)state;
	assert_value(MEM(s, 0, USED), 100);
	assert_value(MEM(s, 1, USED), 600);
	assert_int_equal(MEM(s, 1, RESERVED).state, VALUE_UNSUPPORTED);
	gpu_snapshot_done(&s);
	s = sample(b);
	/* The choice is remembered. */
	assert_int_equal(calls("nvmlDeviceGetMemoryInfo_v2 1"), 1);
	assert_int_equal(calls("nvmlDeviceGetMemoryInfo 0"), 0);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_02_hiccup_of_v2_does_not_turn_reserved_into_used(void **state)
{
	struct gpu_backend *b = open_fake("card 0 reserved=500 used=100\n");
	struct gpu_snapshot s = sample(b);

	(void)state;
	gpu_snapshot_done(&s);
	scenario("card 0 reserved=500 used=100\nerr nvmlDeviceGetMemoryInfo_v2 999\n");
	s = sample(b);
	assert_int_equal(MEM(s, 0, USED).state, VALUE_FAILED);
	assert_int_equal(s.cards[0].state, GPU_OK);
	gpu_snapshot_done(&s);
	scenario("card 0 reserved=500 used=100\n");
	s = sample(b);
	assert_value(MEM(s, 0, USED), 100);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_03_unified_board_uses_the_machine_memory(void **state)
{
	struct gpu_backend *b;
	struct gpu_snapshot s;

	(void)state;
	put_file("proc/meminfo", "MemTotal:  1048576 kB\nMemFree: 1 kB\nMemAvailable:  524288 kB\n"
				 "HugePages_Total:  0\nHugePages_Free: 0\nHugepagesize: 2048 kB\n");
	b = open_fake("cards 2\ncard 0 unified\nproc 0 pid=4000 used=77\n");
	s = sample(b);
	assert_true(s.cards[0].is_unified);
	assert_value(MEM(s, 0, TOTAL), 1024);
	assert_value(MEM(s, 0, USED), 512);
	assert_false(s.cards[1].is_unified);
	assert_value(find_proc(&s, 0, 4000)->used_mib, 77);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_03_forbidden_memory_is_not_a_unified_board(void **state)
{
	struct gpu_backend *b;
	struct gpu_snapshot s;

	(void)state;
	put_file("proc/meminfo", "MemTotal:  1048576 kB\nMemAvailable:  524288 kB\n");
	b = open_fake("card 0\nerr nvmlDeviceGetMemoryInfo_v2 3\nerr nvmlDeviceGetMemoryInfo 4\n");
	s = sample(b);
	assert_false(s.cards[0].is_unified);
	assert_int_equal(MEM(s, 0, TOTAL).state, VALUE_FORBIDDEN);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_04_huge_pages_are_what_is_available(void **state)
{
	int64_t total, available;

	(void)state;
	assert_int_equal(
		nvml_parse_meminfo(
			"MemTotal: 131072000 kB\nMemAvailable: 1000 kB\n"
			"HugePages_Total: 100\nHugePages_Free: 60\nHugepagesize: 2048 kB\n",
			&total, &available),
		0);
	assert_int_equal(total, 128000);
	assert_int_equal(available, 120);
	assert_int_equal(nvml_parse_meminfo("MemTotal: 10 kB\n", &total, &available), -EINVAL);
	assert_int_equal(total, 128000);
}

static void item_05_06_all_ones_is_absent_and_the_row_stays(void **state)
{
	struct gpu_backend *b =
		open_fake("cards 2\nproc 0 pid=4001 used=absent\nproc 1 pid=4001 used=12\n"
			  "proc 1 pid=4002 used=absent\n");
	struct gpu_snapshot s = sample(b);

	(void)state;
	assert_int_equal(s.n_procs, 3);
	assert_int_equal(find_proc(&s, 0, 4001)->used_mib.state, VALUE_UNSUPPORTED);
	assert_true(s.cards[0].is_blind);
	/* One figure that's named is enough: the driver does name them. */
	assert_false(s.cards[1].is_blind);
	gpu_snapshot_done(&s);
	/* With nobody on the card anymore it can't be told, and an empty card is not blind. */
	scenario("cards 2\n");
	s = sample(b);
	assert_false(s.cards[0].is_blind);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_06_wsl_is_blind_without_any_process(void **state)
{
	struct gpu_backend *b;
	struct gpu_snapshot s;

	(void)state;
	put_file("dev/dxg", "");
	b = open_fake("card 0\n");
	s = sample(b);
	assert_true(s.cards[0].is_blind);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_08_one_process_on_four_cards_has_four_rows(void **state)
{
	struct gpu_backend *b =
		open_fake("cards 4\nproc 0 pid=4003 used=10\nproc 1 pid=4003 used=11\n"
			  "proc 2 pid=4003 used=12\nproc 3 pid=4003 used=13\n");
	struct gpu_snapshot s = sample(b);

	(void)state;
	assert_int_equal(s.n_procs, 4);
	for (uint32_t i = 0; i < 4; i++)
		assert_value(find_proc(&s, i, 4003)->used_mib, 10 + i);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

/* Five processes with figures that look like pids or don't; whatever the element, these rows must come out. */
static const char five[] =
	"proc 0 pid=4101 used=2\nproc 0 pid=4102 used=8192\nproc 0 pid=4103 used=1\n"
	"proc 0 pid=4104 used=300\nproc 0 pid=4105 used=4\n";

static void assert_five(struct gpu_backend *b)
{
	static const int64_t used[] = {2, 8192, 1, 300, 4};
	struct gpu_snapshot s = sample(b);

	assert_int_equal(s.n_procs, 5);
	for (int i = 0; i < 5; i++) {
		const struct gpu_proc *p = find_proc(&s, 0, 4101 + i);

		assert_non_null(p);
		assert_value(p->used_mib, used[i]);
		assert_int_equal(p->kind, GPU_PROC_COMPUTE);
	}
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_09_each_library_has_its_own_element(void **state)
{
	(void)state;
	assert_five(open_file("libnvidia-ml.so.1", five)); /* 24 bytes */
	assert_five(open_file("libnvidia-ml-535.so", five)); /* 32 bytes, and its symbols say so */
	assert_five(open_file("libnvidia-ml-old.so", five)); /* 16 bytes */
}

static void item_09_symbols_that_lie_are_found_out(void **state)
{
	CLEANUP(buf_done) struct buf b = {0};

	(void)state;
	buf_printf(&b, "%selement 32\n", five);
	assert_five(open_file("libnvidia-ml.so.1", b.data));
	buf_clear(&b);
	buf_printf(&b, "%selement 24\n", five);
	assert_five(open_file("libnvidia-ml-535.so", b.data));
}

static void item_09_the_widest_element_never_overflows(void **state)
{
	CLEANUP(buf_done) struct buf text = {0};
	struct gpu_backend *b;
	struct gpu_snapshot s;

	(void)state;
	/* As many as the first call has room for. */
	for (int i = 0; i < 32; i++)
		buf_printf(&text, "proc 0 pid=%d used=3\n", 4700 + i);
	b = open_file("libnvidia-ml-535.so", text.data);
	s = sample(b);
	assert_int_equal(s.n_procs, 32);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_09_wide_elements_are_known_by_the_symbols(void **state)
{
	static const struct {
		const char *file;
		bool want;
	} rows[] = {{"libnvidia-ml.so.1", false}, {"libnvidia-ml-535.so", true},
		{"libnvidia-ml-old.so", false}};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct gpu_backend *b = open_file(rows[i].file, "cards 1\n");

		assert_int_equal(((struct nvml *)b)->has_wide_processes, rows[i].want);
		gpu_backend_free(b);
	}
}

static void put_row(uint8_t *rows, size_t at, uint32_t pid, uint64_t used)
{
	memcpy(rows + at, &pid, sizeof(pid));
	memcpy(rows + at + 8, &used, sizeof(used));
	memset(rows + at + 16, 0xff, 8);
}

static void item_09_stride_by_proc_when_numbers_do_not_tell(void **state)
{
	uint8_t rows[64] = {0};
	uint32_t self = (uint32_t)getpid();

	(void)state;
	/* Two rows of 24: read as rows of 32, the second pid is the first figure's bytes, here a possible pid. */
	put_row(rows, 0, self, 7);
	put_row(rows, 24, self, 4194303);
	assert_int_equal(nvml_pick_stride(rows, 2, 24, 32), 24);
	assert_int_equal(nvml_pick_stride(rows, 2, 32, 24), 24);
	memset(rows, 0, sizeof(rows));
	put_row(rows, 0, self, 7);
	put_row(rows, 32, self, 7);
	assert_int_equal(nvml_pick_stride(rows, 2, 24, 32), 32);
}

static void item_11_long_lists_grow_and_stay_whole(void **state)
{
	CLEANUP(buf_done) struct buf text = {0};
	struct gpu_backend *b;
	struct gpu_snapshot s;

	(void)state;
	for (int i = 0; i < 400; i++)
		buf_printf(&text, "proc 0 pid=%d used=3\n", 5000 + i);
	b = open_fake(text.data);
	s = sample(b);
	assert_int_equal(s.n_procs, 400);
	assert_non_null(find_proc(&s, 0, 5399));
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_15_gone_processes_keep_their_rows(void **state)
{
	struct gpu_backend *b = open_fake("proc 0 pid=4194304 used=9\n");
	struct gpu_snapshot s = sample(b);

	(void)state;
	gpu_snapshot_fill_procs(&s);
	assert_int_equal(s.n_procs, 1);
	assert_int_equal(s.procs[0].start_ticks, 0);
	assert_int_equal(s.procs[0].uid, (uid_t)-1);
	assert_value(s.procs[0].used_mib, 9);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_16_17_lists_are_merged_with_the_larger_figure(void **state)
{
	struct gpu_backend *b =
		open_fake("proc 0 pid=4201 used=50 kind=C\nproc 0 pid=4201 used=80 kind=G\n"
			  "proc 0 pid=4202 used=30 kind=M\nproc 0 pid=4203 used=5 kind=G\n");
	struct gpu_snapshot s = sample(b);

	(void)state;
	assert_int_equal(s.n_procs, 3);
	assert_value(find_proc(&s, 0, 4201)->used_mib, 80);
	assert_int_equal(find_proc(&s, 0, 4201)->kind, GPU_PROC_COMPUTE | GPU_PROC_GRAPHICS);
	assert_int_equal(find_proc(&s, 0, 4202)->kind, GPU_PROC_MPS);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_17_missing_list_is_not_asked_again(void **state)
{
	struct gpu_backend *b = open_fake(
		"err nvmlDeviceGetMPSComputeRunningProcesses_v3 13\n"
		"err nvmlDeviceGetMPSComputeRunningProcesses_v2 13\n"
		"err nvmlDeviceGetMPSComputeRunningProcesses 13\nproc 0 pid=4301 used=1\n");

	(void)state;
	for (int i = 0; i < 3; i++) {
		struct gpu_snapshot s = sample(b);

		assert_int_equal(s.n_procs, 1);
		assert_false(s.cards[0].is_blind);
		gpu_snapshot_done(&s);
	}
	assert_int_equal(calls("nvmlDeviceGetMPSComputeRunningProcesses"), 3);
	gpu_backend_free(b);
}

static void process_list_v3_that_fails_gives_way_to_v2(void **state)
{
	struct gpu_backend *b = open_fake(
		"err nvmlDeviceGetComputeRunningProcesses_v3 999\nproc 0 pid=4302 used=6\n");
	struct gpu_snapshot s = sample(b);

	(void)state;
	assert_value(find_proc(&s, 0, 4302)->used_mib, 6);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void unreadable_process_list_makes_the_card_blind(void **state)
{
	struct gpu_backend *b =
		open_fake("card 0 used=500\nerr nvmlDeviceGetComputeRunningProcesses_v3 4\n");
	struct gpu_snapshot s = sample(b);

	(void)state;
	assert_true(s.cards[0].is_blind);
	assert_int_equal(s.cards[0].state, GPU_OK);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_20_38_a_field_that_fails_takes_nothing_along(void **state)
{
	struct gpu_backend *b = open_fake(
		"cards 2\nerr nvmlDeviceGetPowerUsage card=0 3\n"
		"err nvmlDeviceGetTemperatureV card=0 4\nerr nvmlDeviceGetTemperature card=0 4\n"
		"err nvmlDeviceGetClockInfo card=0 999\nerr nvmlDeviceGetPerformanceState card=0 21\n");
	struct gpu_snapshot s = sample(b);

	(void)state;
	assert_int_equal(s.cards[0].m[METRIC_POWER].state, VALUE_UNSUPPORTED);
	assert_int_equal(s.cards[0].m[METRIC_TEMP].state, VALUE_FORBIDDEN);
	assert_int_equal(s.cards[0].m[METRIC_CLOCK_SM].state, VALUE_FAILED);
	assert_int_equal(s.cards[0].m[METRIC_PSTATE].state, VALUE_EMPTY);
	assert_int_equal(s.cards[0].state, GPU_OK);
	assert_value(MEM(s, 0, TOTAL), 24576);
	assert_value(s.cards[1].m[METRIC_POWER], 30000);
	gpu_snapshot_done(&s);
	s = sample(b);
	/* What is unsupported for good isn't asked again, and keeps its reason. */
	assert_int_equal(calls("nvmlDeviceGetPowerUsage 0"), 1);
	assert_int_equal(s.cards[0].m[METRIC_POWER].state, VALUE_UNSUPPORTED);
	assert_int_equal(calls("nvmlDeviceGetPowerUsage 1"), 2);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_37_enforced_power_limit_first_managed_second(void **state)
{
	struct gpu_backend *b = open_fake("cards 2\nerr nvmlDeviceGetPowerManagementLimit 3\n"
					  "err nvmlDeviceGetEnforcedPowerLimit card=1 3\n");
	struct gpu_snapshot s = sample(b);

	(void)state;
	assert_value(s.cards[0].m[METRIC_POWER_LIMIT], 250000);
	assert_int_equal(s.cards[1].m[METRIC_POWER_LIMIT].state, VALUE_UNSUPPORTED);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
	b = open_fake("cards 1\nerr nvmlDeviceGetEnforcedPowerLimit 3\n");
	s = sample(b);
	assert_value(s.cards[0].m[METRIC_POWER_LIMIT], 250000);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_10_41_garbage_is_not_a_figure(void **state)
{
	struct gpu_backend *b =
		open_fake("cards 3\ncard 0 util=808334905 temp=-200\ncard 1 util=4294967295\n"
			  "card 2 util=100 memutil=101 pstate=32\n");
	struct gpu_snapshot s = sample(b);

	(void)state;
	assert_int_equal(s.cards[0].m[METRIC_UTIL_GPU].state, VALUE_FAILED);
	assert_int_equal(s.cards[0].m[METRIC_TEMP].state, VALUE_FAILED);
	assert_int_equal(s.cards[1].m[METRIC_UTIL_GPU].state, VALUE_EMPTY);
	assert_value(s.cards[2].m[METRIC_UTIL_GPU], 100);
	assert_int_equal(s.cards[2].m[METRIC_UTIL_MEM].state, VALUE_FAILED);
	assert_int_equal(s.cards[2].m[METRIC_PSTATE].state, VALUE_EMPTY);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

/* Samples until the card has that state; the fake aborts should a lost card's handle be touched again. */
static void wait_state(struct gpu_backend *b, uint32_t card, enum gpu_state want)
{
	int64_t until = clock_boot_ms() + 15000;

	for (;;) {
		struct gpu_snapshot s = sample(b);
		enum gpu_state now = s.cards[card].state;

		gpu_snapshot_done(&s);
		if (now == want)
			return;
		assert_true(clock_boot_ms() < until);
		poll(NULL, 0, 20);
	}
}

static void item_25_26_27_lost_card_is_a_row_and_comes_back(void **state)
{
	struct gpu_backend *b = open_fake("cards 3\n");
	struct gpu_snapshot s = sample(b);
	char uuid[GPU_UUID_LEN];

	(void)state;
	memcpy(uuid, s.cards[1].uuid, sizeof(uuid));
	gpu_snapshot_done(&s);
	scenario("cards 3\nlost 1\n");
	wait_state(b, 1, GPU_LOST);
	/* Through the enumeration that finds it gone, too. */
	for (int i = 0; i < 5; i++) {
		s = sample(b);
		assert_int_equal(s.n_cards, 3);
		assert_int_equal(s.cards[1].state, GPU_LOST);
		assert_string_equal(s.cards[1].uuid, uuid);
		assert_int_equal(MEM(s, 1, USED).state, VALUE_LOST);
		assert_value(MEM(s, 0, TOTAL), 24576);
		assert_value(MEM(s, 2, TOTAL), 24576);
		gpu_snapshot_done(&s);
	}
	scenario("cards 3\n");
	wait_state(b, 1, GPU_OK);
	s = sample(b);
	assert_string_equal(s.cards[1].uuid, uuid);
	assert_value(MEM(s, 1, TOTAL), 24576);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_26_lost_from_the_start_is_named_by_the_bus(void **state)
{
	struct gpu_backend *b;
	struct gpu_snapshot s;

	(void)state;
	put_file("proc/driver/nvidia/gpus/0000:10:00.0/information", "");
	put_file("proc/driver/nvidia/gpus/0000:11:00.0/information", "");
	b = open_fake("cards 2\nlost 1\n");
	s = sample(b);
	assert_int_equal(s.n_cards, 2);
	assert_int_equal(s.cards[1].state, GPU_LOST);
	assert_string_equal(s.cards[1].uuid, "");
	assert_string_equal(s.cards[1].bus_id, "00000000:11:00.0");
	assert_value(MEM(s, 0, TOTAL), 24576);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_26_any_error_of_one_card_leaves_the_others(void **state)
{
	static const struct {
		int code;
		enum gpu_state want;
	} rows[] = {{15, GPU_LOST}, {28, GPU_LOST}, {16, GPU_NEEDS_RESET}, {4, GPU_FORBIDDEN},
		{17, GPU_FORBIDDEN}, {999, GPU_FAILED}, {2, GPU_FAILED}, {12345, GPU_FAILED}};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char text[96];
		struct gpu_backend *b;
		struct gpu_snapshot s;

		snprintf(text, sizeof(text),
			"cards 3\nerr nvmlDeviceGetHandleByIndex_v2 card=0 %d\n", rows[i].code);
		b = open_fake(text);
		s = sample(b);
		assert_int_equal(s.n_cards, 3);
		assert_int_equal(s.cards[0].state, rows[i].want);
		assert_int_equal(s.cards[2].state, GPU_OK);
		assert_true(strlen(gpu_state_text(s.cards[0].state)) > 10);
		gpu_snapshot_done(&s);
		gpu_backend_free(b);
	}
}

static void card_that_left_the_count_stays_as_lost(void **state)
{
	struct gpu_backend *b =
		open_fake("card 0 uuid=GPU-a\ncard 1 uuid=GPU-b\ncard 2 uuid=GPU-c\n");
	struct gpu_snapshot s = sample(b);
	struct nvml *n = (struct nvml *)b;

	(void)state;
	gpu_snapshot_done(&s);
	scenario("card 0 uuid=GPU-a\ncard 1 uuid=GPU-c\n");
	n->count_ms = 0; /* half a minute has passed */
	s = sample(b);
	assert_int_equal(s.n_cards, 3);
	assert_string_equal(s.cards[1].uuid, "GPU-c");
	assert_int_equal(s.cards[1].state, GPU_OK);
	assert_string_equal(s.cards[2].uuid, "GPU-b");
	assert_int_equal(s.cards[2].index, 2);
	assert_int_equal(s.cards[2].state, GPU_LOST);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

/* What's plugged in later is found, and the library is bound once: its file may have gone since. */
static void w49_cards_are_enumerated_again_and_symbols_bound_once(void **state)
{
	struct gpu_backend *b = NULL;
	struct nvml_functions bound;
	struct gpu_snapshot s;
	struct nvml *n;
	struct err e = {0};
	char from[512], to[512];
	CLEANUP(buf_done) struct buf bytes = {0};

	(void)state;
	snprintf(from, sizeof(from), "%s/libnvidia-ml.so.1", getenv("FAKE_NVML_DIR"));
	snprintf(to, sizeof(to), "%s/libnvidia-ml.so.1", work);
	assert_true(fd_read_file_at(AT_FDCWD, from, &bytes, 64 << 20) >= 0);
	assert_int_equal(fd_replace_at(AT_FDCWD, to, bytes.data, bytes.len, false), 0);
	scenario("cards 1\n");
	if (nvml_open_at(to, work, &b, &e) < 0)
		fail_msg("%s", e.text);
	s = sample(b);
	n = (struct nvml *)b;
	assert_int_equal(s.n_cards, 1);
	gpu_snapshot_done(&s);
	bound = n->lib.fn;
	assert_int_equal(unlink(to), 0);
	scenario("cards 3\n");
	n->count_ms = 0; /* half a minute has passed */
	s = sample(b);
	assert_int_equal(s.n_cards, 3);
	assert_int_equal(s.cards[2].state, GPU_OK);
	assert_value(MEM(s, 2, TOTAL), 24576);
	assert_memory_equal(&bound, &n->lib.fn, sizeof(bound));
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_27_library_shut_down_under_us_is_started_again(void **state)
{
	struct gpu_backend *b = open_fake("cards 2\n");
	struct gpu_snapshot s = sample(b);
	struct nvml *n = (struct nvml *)b;

	(void)state;
	gpu_snapshot_done(&s);
	n->lib.fn.shutdown();
	s = sample(b);
	assert_int_equal(s.cards[0].state, GPU_OK);
	assert_value(MEM(s, 1, TOTAL), 24576);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_28_mismatch_names_both_versions(void **state)
{
	struct gpu_backend *b = NULL;
	struct err e = {0};

	(void)state;
	put_file("proc/driver/nvidia/version",
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.90.07  Release Build\nGCC version: 12.2\n");
	assert_true(open_variant("libnvidia-ml.so.1", "nvml 12.560.35.03\nerr nvmlInit_v2 18\n", &b,
			    &e) < 0);
	assert_non_null(strstr(e.text, "12.560.35.03"));
	assert_non_null(strstr(e.text, "550.90.07"));
	assert_non_null(strstr(e.text, "reboot"));
	assert_null(b);
}

static void item_72_no_driver_and_no_library_are_sentences(void **state)
{
	struct gpu_backend *b = NULL;
	struct err e = {0};

	(void)state;
	assert_int_equal(open_variant("libnvidia-ml.so.1", "err nvmlInit_v2 9\n", &b, &e), -ENODEV);
	assert_non_null(strstr(e.text, "not loaded"));
	assert_int_equal(nvml_open_at("/nowhere/libnvidia-ml.so.1", work, &b, &e), -ENOENT);
	assert_non_null(strstr(e.text, "/nowhere/libnvidia-ml.so.1"));
	assert_int_equal(nvml_open_at("libc.so.6", work, &b, &e), -ENOSYS);
	assert_null(b);
}

static void item_33_driver_that_comes_later_is_found(void **state)
{
	struct gpu_backend *b = open_fake("cards 1\n");
	struct gpu_snapshot s = sample(b);
	struct err e = {0};
	struct nvml *n = (struct nvml *)b;

	(void)state;
	gpu_snapshot_done(&s);
	scenario("cards 1\nerr nvmlInit_v2 9\n");
	n->wants_restart = true;
	assert_true(b->impl->snapshot(b, &s, &e) < 0);
	assert_non_null(strstr(e.text, "not loaded"));
	/* The driver may come with another library. */
	assert_null(n->lib.handle);
	scenario("cards 1\n");
	s = sample(b);
	assert_int_equal(s.cards[0].state, GPU_OK);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_29_30_31_codes_have_words(void **state)
{
	(void)state;
	assert_non_null(strstr(nvml_code_text(17), "cgroup"));
	assert_non_null(strstr(nvml_code_text(999), "container"));
	assert_int_equal(nvml_code_value(4), VALUE_FORBIDDEN);
	assert_int_equal(nvml_code_value(3), VALUE_UNSUPPORTED);
	assert_int_equal(nvml_code_value(6), VALUE_EMPTY);
	for (int code = 1; code < 1001; code++) {
		assert_true(strlen(nvml_code_text(code)) > 3);
		assert_true(nvml_code_errno(code) < 0);
		assert_true(nvml_code_value(code) != VALUE_PRESENT);
	}
}

static void item_30_31_card_that_answers_nothing_is_not_well(void **state)
{
	struct gpu_backend *b = open_fake("cards 2\nerr * card=1 999 after=0\nerr nvmlInit_v2 0\n");
	struct gpu_snapshot s = sample(b);

	(void)state;
	assert_int_equal(s.cards[1].state, GPU_FAILED);
	assert_int_equal(s.cards[0].state, GPU_OK);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
	b = open_fake("cards 2\n");
	s = sample(b);
	gpu_snapshot_done(&s);
	scenario("cards 2\nerr * card=1 17\n");
	s = sample(b);
	assert_int_equal(s.cards[1].state, GPU_FORBIDDEN);
	assert_int_equal(MEM(s, 1, USED).state, VALUE_FORBIDDEN);
	assert_int_equal(s.cards[0].state, GPU_OK);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_72_old_library_gives_what_it_has(void **state)
{
	struct gpu_backend *b = open_file("libnvidia-ml-old.so",
		"card 0 reserved=300 used=200 bus=00000001:AF:00.0\n"
		"proc 0 pid=4401 used=20\n");
	struct gpu_snapshot s = sample(b);
	const struct gpu_card *c = &s.cards[0];

	(void)state;
	assert_string_equal(c->bus_id, "0001:AF:00.0");
	assert_value(c->m[METRIC_MEM_USED], 520);
	assert_int_equal(c->m[METRIC_MEM_RESERVED].state, VALUE_UNSUPPORTED);
	assert_value(c->m[METRIC_TEMP], 40);
	assert_value(c->m[METRIC_POWER_LIMIT], 250000);
	assert_value(c->m[METRIC_FAN], 30);
	assert_value(c->m[METRIC_THROTTLE], 1);
	assert_int_equal(c->m[METRIC_MIG_MODE].state, VALUE_UNSUPPORTED);
	assert_int_equal(c->m[METRIC_RECOVERY].state, VALUE_UNSUPPORTED);
	assert_value(find_proc(&s, 0, 4401)->used_mib, 20);
	assert_int_equal(c->nvlink_peers, 0);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void all_optional_calls_unsupported(void **state)
{
	struct gpu_backend *b = open_fake("cards 2\n");
	struct gpu_snapshot s = sample(b);

	(void)state;
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
	put_file("proc/meminfo", "MemTotal:  1048576 kB\nMemAvailable:  524288 kB\n");
	b = open_fake(
		"cards 1\nerr nvmlInit_v2 0\nerr nvmlDeviceGetCount_v2 0\n"
		"err nvmlDeviceGetHandleByIndex_v2 0\nerr nvmlDeviceGetUUID 0\nerr nvmlShutdown 0\nerr * 3\n");
	s = sample(b);
	assert_int_equal(s.n_cards, 1);
	assert_true(s.cards[0].is_unified);
	for (int m = METRIC_UTIL_GPU; m < METRIC_PLAIN_N; m++)
		assert_int_equal(s.cards[0].m[m].state, VALUE_UNSUPPORTED);
	assert_int_equal(s.cards[0].state, GPU_OK);
	assert_true(s.cards[0].is_blind);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_18_mig_seven_instances(void **state)
{
	static const char text[] =
		"card 0 mig=1\ninstance 0 0\ninstance 0 1\ninstance 0 2\ninstance 0 3\ninstance 0 4\n"
		"instance 0 5\ninstance 0 6\n"
		"proc 0 pid=4501 used=100 gi=1\nproc 0 pid=4501 used=50 gi=2\nproc 0 pid=4502 used=7 gi=7\n";
	struct gpu_backend *b = open_fake(text);
	struct gpu_snapshot s = sample(b);

	(void)state;
	assert_value(s.cards[0].m[METRIC_MIG_MODE], 1);
	assert_int_equal(s.cards[0].m[METRIC_UTIL_GPU].state, VALUE_UNSUPPORTED);
	assert_true(s.cards[0].is_mig_parent);
	assert_int_equal(s.n_cards, 8);
	assert_null(find_proc(&s, 0, 4501));
	/* One process on two instances has a row on each. */
	assert_value(find_proc(&s, 1, 4501)->used_mib, 100);
	assert_value(find_proc(&s, 2, 4501)->used_mib, 50);
	assert_value(find_proc(&s, 7, 4502)->used_mib, 7);
	for (uint32_t i = 1; i < 8; i++) {
		assert_int_equal(s.cards[i].index, 0);
		assert_int_equal(s.cards[i].gi, i + 1);
		assert_int_equal(s.cards[i].ci, 1);
		assert_int_equal(s.cards[i].state, GPU_OK);
		assert_false(s.cards[i].is_mig_parent);
		assert_string_equal(s.cards[i].parent, s.cards[0].uuid);
		assert_value(s.cards[i].m[METRIC_MEM_TOTAL], 24576 / 8);
		assert_int_equal(s.cards[i].m[METRIC_TEMP].state, VALUE_UNSUPPORTED);
	}
	assert_string_equal(s.cards[1].profile, "1g.3gb");
	assert_string_equal(s.cards[1].name, "Fake GPU MIG 1g.3gb");
	assert_value(s.cards[1].m[METRIC_MEM_USED], 100);
	/* A number is the whole card. */
	assert_int_equal(gpu_find_index(&s, 0), 0);
	assert_int_equal(gpu_find_label(&s, "0:7"), 7);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void item_18_mig_parent_forbidden_instances_answer(void **state)
{
	struct gpu_backend *b =
		open_fake("card 0 mig=1\ninstance 0 0\ninstance 0 4\n"
			  "proc 0 pid=4601 used=100 gi=1\nproc 0 pid=4602 used=7 gi=5\n"
			  "parent-err nvmlDeviceGetComputeRunningProcesses_v3 4\n");
	struct gpu_snapshot s = sample(b);

	(void)state;
	assert_int_equal(s.n_procs, 2);
	assert_value(find_proc(&s, 1, 4601)->used_mib, 100);
	assert_value(find_proc(&s, 2, 4602)->used_mib, 7);
	assert_false(s.cards[0].is_blind);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

/* Its instances went with the card; they aren't gone, and nobody takes them for free. */
static void instances_of_a_lost_card_are_lost(void **state)
{
	struct gpu_backend *b = open_fake("card 0 mig=1\ninstance 0 0\ninstance 0 1\ncard 1\n");
	struct gpu_snapshot s = sample(b);

	(void)state;
	assert_int_equal(s.n_cards, 4);
	assert_int_equal(s.cards[1].index, 1);
	assert_int_equal(s.cards[3].state, GPU_OK);
	gpu_snapshot_done(&s);
	scenario("card 0 mig=1\ninstance 0 0\ninstance 0 1\nlost 0\ncard 1\n");
	s = sample(b);
	assert_int_equal(s.n_cards, 4);
	assert_int_equal(s.cards[0].state, GPU_LOST);
	assert_int_equal(s.cards[3].state, GPU_LOST);
	assert_int_equal(s.cards[3].m[METRIC_MEM_USED].state, VALUE_LOST);
	gpu_snapshot_done(&s);
	/* Enumerated anew, it's known only by what it was. */
	((struct nvml *)b)->restart_ms = 0;
	s = sample(b);
	assert_int_equal(s.n_cards, 4);
	assert_int_equal(s.cards[0].state, GPU_LOST);
	assert_true(s.cards[0].is_mig_parent);
	assert_int_equal(s.cards[3].state, GPU_LOST);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

/* 64 is the limit of both together; what's beyond is counted, and the whole cards come first. */
static void too_many_instances_are_counted(void **state)
{
	CLEANUP(buf_done) struct buf text = {0};
	struct gpu_backend *b;
	struct gpu_snapshot s;

	(void)state;
	buf_puts(&text, "cards 10\n");
	for (int c = 0; c < 10; c++) {
		buf_printf(&text, "card %d mig=1\n", c);
		for (int i = 0; i < 7; i++)
			buf_printf(&text, "instance %d %d\n", c, i);
	}
	b = open_fake(buf_str(&text));
	s = sample(b);
	assert_int_equal(s.n_cards, GPU_MAX);
	assert_int_equal(s.n_left_out, 80 - GPU_MAX);
	assert_int_equal(gpu_count_whole(&s), 10);
	assert_false(gpu_is_instance(&s.cards[9]));
	assert_string_equal(s.error, "");
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void an_instance_without_a_uuid_is_left_out(void **state)
{
	struct gpu_backend *b = open_fake("card 0 mig=1\ninstance 0 0\n");
	struct gpu_snapshot s = sample(b);

	(void)state;
	assert_int_equal(s.n_cards, 2);
	gpu_snapshot_done(&s);
	scenario("card 0 mig=1\ninstance 0 0\nerr nvmlDeviceGetUUID 3\n");
	s = sample(b);
	assert_int_equal(s.n_cards, 1);
	assert_int_equal(s.n_left_out, 1);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

/* An XID and the wish for a reset are in every sample, an instance has its card's. */
static void xids_and_resets_are_in_plain_samples(void **state)
{
	struct gpu_backend *b = open_fake("card 0 mig=1\ninstance 0 0\ncard 1 recovery=1\n"
					  "card 2\nxid 0 31\nxid 0 79\n");
	struct gpu_snapshot s = {0};

	(void)state;
	assert_int_equal(gpu_backend_snapshot(b, &s, NULL), 0);
	assert_int_equal(s.cards[0].xid.last, 79);
	assert_int_equal(s.cards[0].xid.count, 2);
	assert_in_range(s.cards[0].xid.boot_ms, s.begun_ms, s.ended_ms);
	assert_int_equal(s.cards[0].reset, GPU_RESET_NONE);
	assert_int_equal(s.cards[1].reset, GPU_RESET_NEEDED);
	assert_int_equal(s.cards[1].xid.count, 0);
	assert_int_equal(s.cards[2].reset, GPU_RESET_NONE);
	assert_int_equal(s.cards[3].xid.last, 79);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

/* A card that fails has its programs torn down: that comes last, and hides nothing. */
static void xid_that_only_follows_hides_nothing(void **state)
{
	struct gpu_backend *b = open_fake("cards 2\nxid 0 48\nxid 0 45\nxid 1 45\n");
	struct gpu_snapshot s = sample(b);

	(void)state;
	assert_int_equal(s.cards[0].xid.last, 48);
	assert_int_equal(s.cards[0].xid.count, 2);
	assert_int_equal(s.cards[1].xid.last, 45);
	gpu_snapshot_done(&s);
	scenario("cards 2\nxid 0 154\nxid 1 31\n");
	s = sample(b);
	assert_int_equal(s.cards[0].xid.last, 48);
	assert_int_equal(s.cards[0].xid.count, 3);
	assert_int_equal(s.cards[1].xid.last, 31);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void what_mig_did_not_support_is_asked_again_without_it(void **state)
{
	struct gpu_backend *b = open_fake("card 0 mig=1 util=55\n");
	struct nvml *n = (struct nvml *)b;
	struct gpu_snapshot s = sample(b);

	(void)state;
	assert_int_equal(s.cards[0].m[METRIC_UTIL_GPU].state, VALUE_UNSUPPORTED);
	gpu_snapshot_done(&s);
	scenario("card 0 mig=0 util=55\n");
	n->cards[0].slow_ms = 0; /* five seconds have passed */
	s = sample(b);
	gpu_snapshot_done(&s);
	s = sample(b);
	assert_value(s.cards[0].m[METRIC_UTIL_GPU], 55);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void nvlink_peers_by_bus_and_by_switch(void **state)
{
	struct gpu_backend *b =
		open_fake("cards 5\nlink 0 1\nlink 2 switch\nlink 3 switch\nlink 4 switch\n");
	struct gpu_snapshot s = sample(b);

	(void)state;
	assert_int_equal(s.cards[0].nvlink_peers, 1 << 1);
	assert_int_equal(s.cards[1].nvlink_peers, 1 << 0);
	assert_int_equal(s.cards[2].nvlink_peers, 1 << 3 | 1 << 4);
	assert_int_equal(s.cards[4].nvlink_peers, 1 << 2 | 1 << 3);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void numa_from_sysfs_else_from_nvml(void **state)
{
	struct gpu_backend *b;
	struct gpu_snapshot s;

	(void)state;
	put_file("sys/bus/pci/devices/0000:10:00.0/numa_node", "1\n");
	put_file("sys/bus/pci/devices/0000:11:00.0/numa_node", "-1\n");
	b = open_fake("cards 3\ncard 0 numa=7\ncard 1 numa=3\n");
	s = sample(b);
	assert_int_equal(s.cards[0].numa, 1);
	assert_int_equal(s.cards[1].numa, 3);
	assert_int_equal(s.cards[2].numa, -1);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void simulated_jobs_show_up_in_the_fake(void **state)
{
	struct gpu_backend *b;
	struct gpu_snapshot s;
	char text[96];

	(void)state;
	snprintf(text, sizeof(text), "{\"pid\": %d, \"usage\": {\"1\": 2048, \"GPU-x\": 5}}",
		(int)getpid());
	put_file("sim/a.json", text);
	snprintf(text, sizeof(text), "%s/sim", work);
	setenv("GPUSTOW_SIM_DIR", text, 1);
	b = open_fake("cards 3\ncard 2 uuid=GPU-x\n");
	s = sample(b);
	assert_value(find_proc(&s, 1, getpid())->used_mib, 2048);
	assert_value(find_proc(&s, 2, getpid())->used_mib, 5);
	assert_value(MEM(s, 1, USED), 2048);
	assert_value(s.cards[1].m[METRIC_UTIL_GPU], 90);
	assert_value(s.cards[0].m[METRIC_UTIL_GPU], 0);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

/* Calls block by contract: whoever owns the process owns the timer, and the process must die of a KILL. */
static void item_44_call_that_never_returns_hangs_alone(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	scenario("cards 1\nhang nvmlDeviceGetUtilizationRates card=0\n");
	pid = fork();
	if (pid == 0) {
		struct gpu_backend *b =
			open_fake("cards 1\nhang nvmlDeviceGetUtilizationRates card=0\n");
		struct gpu_snapshot s = {0};
		struct err e = {0};

		b->impl->snapshot(b, &s, &e);
		_exit(0);
	}
	for (int i = 0; i < 500 && calls("nvmlDeviceGetUtilizationRates 0") == 0; i++)
		poll(NULL, 0, 20);
	assert_int_equal(calls("nvmlDeviceGetUtilizationRates 0"), 1);
	poll(NULL, 0, 200);
	assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
}

static void slow_call_is_waited_for(void **state)
{
	struct gpu_backend *b =
		open_fake("card 0 util=5\nslow nvmlDeviceGetUtilizationRates 150\n");
	int64_t begun = clock_boot_ms();
	struct gpu_snapshot s = sample(b);

	(void)state;
	assert_true(clock_boot_ms() - begun >= 150);
	assert_value(s.cards[0].m[METRIC_UTIL_GPU], 5);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void module_version_of_both_kinds_of_driver(void **state)
{
	char v[80] = "";

	(void)state;
	assert_int_equal(
		nvml_parse_module_version(
			"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n",
			v, sizeof(v)),
		0);
	assert_string_equal(v, "535.104.05");
	assert_int_equal(nvml_parse_module_version("nothing of that 1.2\n", v, sizeof(v)), -EINVAL);
	assert_int_equal(nvml_parse_module_version(
				 "NVRM version: none\nGCC version: gcc 12.2\n", v, sizeof(v)),
		-EINVAL);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(one_card_has_all_figures),
		T(eight_and_sixteen_cards),
		T(item_88_initialises_once_and_caches_handles),
		T(item_01_reserved_memory_is_not_used),
		T(item_02_v2_that_fails_gives_way_to_v1_for_that_card_only),
		T(item_02_hiccup_of_v2_does_not_turn_reserved_into_used),
		T(item_03_unified_board_uses_the_machine_memory),
		T(item_03_forbidden_memory_is_not_a_unified_board),
		T(item_04_huge_pages_are_what_is_available),
		T(item_05_06_all_ones_is_absent_and_the_row_stays),
		T(item_06_wsl_is_blind_without_any_process),
		T(item_08_one_process_on_four_cards_has_four_rows),
		T(item_09_each_library_has_its_own_element),
		T(item_09_symbols_that_lie_are_found_out),
		T(item_09_the_widest_element_never_overflows),
		T(item_09_wide_elements_are_known_by_the_symbols),
		T(item_09_stride_by_proc_when_numbers_do_not_tell),
		T(item_11_long_lists_grow_and_stay_whole),
		T(item_15_gone_processes_keep_their_rows),
		T(item_16_17_lists_are_merged_with_the_larger_figure),
		T(item_17_missing_list_is_not_asked_again),
		T(process_list_v3_that_fails_gives_way_to_v2),
		T(unreadable_process_list_makes_the_card_blind),
		T(item_20_38_a_field_that_fails_takes_nothing_along),
		T(item_37_enforced_power_limit_first_managed_second),
		T(item_10_41_garbage_is_not_a_figure),
		T(item_25_26_27_lost_card_is_a_row_and_comes_back),
		T(item_26_lost_from_the_start_is_named_by_the_bus),
		T(item_26_any_error_of_one_card_leaves_the_others),
		T(card_that_left_the_count_stays_as_lost),
		T(w49_cards_are_enumerated_again_and_symbols_bound_once),
		T(item_27_library_shut_down_under_us_is_started_again),
		T(item_28_mismatch_names_both_versions),
		T(item_72_no_driver_and_no_library_are_sentences),
		T(item_33_driver_that_comes_later_is_found),
		T(item_29_30_31_codes_have_words),
		T(item_30_31_card_that_answers_nothing_is_not_well),
		T(item_72_old_library_gives_what_it_has),
		T(all_optional_calls_unsupported),
		T(item_18_mig_seven_instances),
		T(item_18_mig_parent_forbidden_instances_answer),
		T(instances_of_a_lost_card_are_lost),
		T(too_many_instances_are_counted),
		T(an_instance_without_a_uuid_is_left_out),
		T(xids_and_resets_are_in_plain_samples),
		T(xid_that_only_follows_hides_nothing),
		T(what_mig_did_not_support_is_asked_again_without_it),
		T(nvlink_peers_by_bus_and_by_switch),
		T(numa_from_sysfs_else_from_nvml),
		T(simulated_jobs_show_up_in_the_fake),
		T(item_44_call_that_never_returns_hangs_alone),
		T(slow_call_is_waited_for),
		T(module_version_of_both_kinds_of_driver),
	};

	return cmocka_run_group_tests_name("gpu_nvml", tests, NULL, NULL);
}
