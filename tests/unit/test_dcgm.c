/*
 * Figures of profiling from their two sources, over the fake libraries: DCGM of both generations, whole and in parts; NVML's
 * own counters; and what each field's value means.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/clock.h"
#include "gpu/dcgm.h"
#include "gpu/dcgm_abi.h"
#include "gpu/dcgm_lib.h"
#include "gpu/nvml.h"
#include "nvml_fixture.h"
#include "value_assert.h"

#include <math.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *library(const char *file)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/%s", getenv("FAKE_NVML_DIR"), file);
	return path;
}

static int try_open(const char *file, const char *text, struct dcgm **ret, enum dcgm_step *ret_step,
	struct err *e)
{
	put_file("scenario", text);
	return dcgm_open(library(file), ret, ret_step, e);
}

static struct dcgm *must_open(const char *file, const char *text)
{
	enum dcgm_step step = DCGM_STEP_NONE;
	struct dcgm *d = NULL;
	struct err e = {0};

	if (try_open(file, text, &d, &step, &e) < 0)
		fail_msg("%s: %s", dcgm_step_name(step), e.text);
	assert_int_equal(step, DCGM_STEP_NONE);
	return d;
}

static struct dcgm_report read_all(struct dcgm *d)
{
	enum dcgm_step step = DCGM_STEP_NONE;
	struct dcgm_report r;
	struct err e = {0};

	if (dcgm_read(d, clock_wall_ms(), &r, &step, &e) < 0)
		fail_msg("%s: %s", dcgm_step_name(step), e.text);
	return r;
}

static void assert_fails(const char *file, const char *text, const char *step, const char *words)
{
	enum dcgm_step got = DCGM_STEP_NONE;
	struct dcgm *d = NULL;
	struct err e = {0};

	if (try_open(file, text, &d, &got, &e) == 0)
		fail_msg("it opened: %s", text);
	assert_string_equal(dcgm_step_name(got), step);
	if (strstr(e.text, words) == NULL)
		fail_msg("%s isn't in: %s", words, e.text);
}

/* ---- DCGM ---- */

#define TWO \
	"cards 2\nprofiling id=5\n" \
	"dcgm 0 sm=0.834 occupancy=0.4 tensor=0.5 fp64=0.01 fp32=0.1 fp16=0.2 int=1.02 dram=0.7\n" \
	"dcgm 0 pcietx=1048576 pcierx=2048 nvlinktx=3072 nvlinkrx=0\n"

/* Each generation takes parameters of another size; figures come in whatever order, by cards that have other numbers. */
static void both_generations(void **state)
{
	static const char *const files[] = {"libdcgm.so.3", "libdcgm.so.4"};
	static const int64_t want[PROFILE_N] = {83, 40, 50, 1, 10, 20, 100, 70, 1024, 2, 3, 0};

	(void)state;
	for (size_t k = 0; k < ARRAY_LEN(files); k++) {
		struct dcgm *d = must_open(files[k], TWO "dcgm 1 sm=0.1\n");
		struct dcgm_report r = read_all(d);

		assert_int_equal(r.n_cards, 2);
		assert_string_equal(r.cards[0].uuid, "GPU-fa4e0000-0000-0000-0000-000000000000");
		assert_string_equal(r.cards[1].bus_id, "00000000:11:00.0");
		for (size_t i = 0; i < PROFILE_N; i++)
			assert_value(r.cards[0].v[i], want[i]);
		assert_value(r.cards[1].v[PROFILE_SM_ACTIVE], 10);
		dcgm_free(d);
	}
	assert_int_equal(calls("dcgmStopEmbedded"), 2);
	assert_int_equal(calls("dcgmShutdown"), 2);
}

static void an_engine_that_runs_is_used(void **state)
{
	struct dcgm *d = must_open("libdcgm.so.4", "profiling engine\ndcgm 0 sm=1\n");

	(void)state;
	assert_value(read_all(d).cards[0].v[PROFILE_SM_ACTIVE], 100);
	dcgm_free(d);
	assert_int_equal(calls("dcgmStartEmbedded"), 0);
	assert_int_equal(calls("dcgmDisconnect"), 1);
}

/* One card that can't be profiled, and one that lacks a pipe, hide nothing of the others. */
static void cards_fail_alone(void **state)
{
	struct dcgm *d = must_open("libdcgm.so.4",
		"cards 4\nprofiling\ndcgm 0 sm=0.5\ndcgm 2 sm=0.25 fp64=none nvlinktx=none\n"
		"dcgm 3 sm=1\nerr dcgmWatchFields card=3 -29\n");
	struct dcgm_report r = read_all(d);

	(void)state;
	assert_int_equal(r.n_cards, 4);
	assert_value(r.cards[0].v[PROFILE_SM_ACTIVE], 50);
	assert_value(r.cards[2].v[PROFILE_SM_ACTIVE], 25);
	assert_value(r.cards[2].v[PROFILE_INT], 0);
	assert_int_equal(r.cards[2].v[PROFILE_FP64].state, VALUE_UNSUPPORTED);
	assert_int_equal(r.cards[2].v[PROFILE_NVLINK_TX].state, VALUE_UNSUPPORTED);
	for (size_t i = 0; i < PROFILE_N; i++) {
		assert_int_equal(r.cards[1].v[i].state, VALUE_UNSUPPORTED);
		assert_int_equal(r.cards[3].v[i].state, VALUE_FORBIDDEN);
	}
	dcgm_free(d);
}

/* A release that doesn't know the newest field has all the others in one watch. */
static void an_older_release(void **state)
{
	struct dcgm *d =
		must_open("libdcgm.so.3", "profiling\ndcgm 0 sm=0.5 int=0.5\nerr field1016 -13\n");
	struct dcgm_report r = read_all(d);

	(void)state;
	assert_value(r.cards[0].v[PROFILE_SM_ACTIVE], 50);
	assert_int_equal(r.cards[0].v[PROFILE_INT].state, VALUE_UNSUPPORTED);
	assert_int_equal(calls("dcgmWatchFields"), 1);
	dcgm_free(d);
}

static void no_figures_yet(void **state)
{
	struct dcgm *d = must_open("libdcgm.so.4", "profiling after=60000\ndcgm 0 sm=0.5\n");
	struct dcgm_report r = read_all(d);

	(void)state;
	assert_int_equal(r.cards[0].v[PROFILE_SM_ACTIVE].state, VALUE_EMPTY);
	assert_int_equal(r.cards[0].v[PROFILE_PCIE_TX].state, VALUE_EMPTY);
	dcgm_free(d);
}

static void each_step_has_its_word(void **state)
{
	(void)state;
	assert_fails("nothing.so", "profiling\n", "dcgm_import_failed", "can't be loaded");
	assert_fails("libdcgm-bare.so", "profiling\n", "dcgm_import_failed", "dcgmWatchFields");
	assert_fails(
		"libdcgm.so.4", "profiling\nerr dcgmInit -7\n", "dcgm_import_failed", "DCGM -7");
	assert_fails("libdcgm.so.4", "profiling\nerr dcgmStartEmbedded_v2 -29\n",
		"dcgm_connect_failed", "root");
	assert_fails("libdcgm.so.4", "profiling\nerr dcgmGetAllDevices -21\n", "dcgm_group_failed",
		"DCGM -21");
	assert_fails("libdcgm.so.4", "profiling\ndcgm 0 sm=1\nerr dcgmGroupCreate -24\n",
		"dcgm_group_failed", "taken");
	assert_fails("libdcgm.so.4", "profiling\ndcgm 0 sm=1\nerr dcgmWatchFields -34\n",
		"dcgm_group_failed", "another profiler");
	assert_fails(
		"libdcgm.so.4", "cards 2\nprofiling\n", "dcgm_group_failed", "isn't supported");
	assert_fails("libdcgm.so.4", "profiling\ndcgm 0 sm=1\nerr dcgmUpdateAllFields -3\n",
		"dcgm_update_failed", "DCGM -3");
}

/* The engine goes while it's watched: the reading fails, and says so. */
static void the_engine_goes(void **state)
{
	struct dcgm *d = must_open("libdcgm.so.4", "profiling engine\ndcgm 0 sm=1\n");
	enum dcgm_step step = DCGM_STEP_NONE;
	struct dcgm_report r;
	struct err e = {0};

	(void)state;
	put_file(
		"scenario", "profiling engine\ndcgm 0 sm=1\nerr dcgmEntitiesGetLatestValues -21\n");
	assert_true(dcgm_read(d, clock_wall_ms(), &r, &step, &e) < 0);
	assert_string_equal(dcgm_step_name(step), "dcgm_get_latest_failed");
	assert_non_null(strstr(e.text, "DCGM -21"));
	dcgm_free(d);
}

static struct value real_of(double r)
{
	struct dcgm_value v = {.type = DCGM_TYPE_DOUBLE, .value.real = r};

	return dcgm_figure(PROFILE_TENSOR, &v, 0);
}

static struct value integer_of(int64_t i)
{
	struct dcgm_value v = {.type = DCGM_TYPE_INT64, .value.i64 = i};

	return dcgm_figure(PROFILE_PCIE_RX, &v, 0);
}

/* Blanks, what is out of range, what is old, what is of another kind: absent with its reason, and never a number. */
static void what_a_value_means(void **state)
{
	struct dcgm_value v = {.type = DCGM_TYPE_DOUBLE, .value.real = 0.5};

	(void)state;
	assert_value(real_of(0), 0);
	assert_value(real_of(0.004), 0);
	assert_value(real_of(0.006), 1);
	assert_value(real_of(1.04), 100);
	assert_int_equal(real_of(1.5).state, VALUE_FAILED);
	assert_int_equal(real_of(-0.1).state, VALUE_FAILED);
	assert_int_equal(real_of(NAN).state, VALUE_FAILED);
	assert_int_equal(real_of(DCGM_BLANK_REAL).state, VALUE_EMPTY);
	assert_int_equal(real_of(DCGM_BLANK_REAL + 1).state, VALUE_EMPTY);
	assert_int_equal(real_of(DCGM_BLANK_REAL + 2).state, VALUE_UNSUPPORTED);
	assert_int_equal(real_of(DCGM_BLANK_REAL + 3).state, VALUE_FORBIDDEN);
	assert_value(integer_of(10240), 10);
	assert_int_equal(integer_of(-1).state, VALUE_FAILED);
	assert_int_equal(integer_of(INT64_C(1) << 55).state, VALUE_FAILED);
	assert_int_equal(integer_of(DCGM_BLANK_INT).state, VALUE_EMPTY);
	assert_int_equal(integer_of(DCGM_BLANK_INT + 2).state, VALUE_UNSUPPORTED);
	assert_int_equal(integer_of(INT64_MAX).state, VALUE_EMPTY);
	v.stamp_us = 1000000;
	assert_value(dcgm_figure(PROFILE_SM_ACTIVE, &v, 9000), 50);
	assert_int_equal(dcgm_figure(PROFILE_SM_ACTIVE, &v, 20000).state, VALUE_EMPTY);
	assert_int_equal(dcgm_figure(PROFILE_NVLINK_TX, &v, 9000).state, VALUE_FAILED);
	v.status = DCGM_PAUSED;
	assert_int_equal(dcgm_figure(PROFILE_SM_ACTIVE, &v, 9000).state, VALUE_EMPTY);
	v.status = DCGM_NO_PERMISSION;
	assert_int_equal(dcgm_figure(PROFILE_SM_ACTIVE, &v, 9000).state, VALUE_FORBIDDEN);
	v.status = DCGM_RESET_REQUIRED;
	assert_int_equal(dcgm_figure(PROFILE_SM_ACTIVE, &v, 9000).state, VALUE_LOST);
	v.status = -4711;
	assert_int_equal(dcgm_figure(PROFILE_SM_ACTIVE, &v, 9000).state, VALUE_FAILED);
}

/* What follows from the pipes; the driver's own traffic stands, the counters' fills a gap. */
static void where_figures_go(void **state)
{
	struct value v[PROFILE_N];
	struct gpu_card c = {0};

	(void)state;
	for (size_t i = 0; i < PROFILE_N; i++)
		v[i] = value_of((int64_t)i * 5);
	v[PROFILE_TENSOR] = value_absent(VALUE_UNSUPPORTED);
	c.m[METRIC_PCIE_TX] = value_of(7);
	c.m[METRIC_NVLINK_TX] = value_absent(VALUE_UNSUPPORTED);
	c.m[METRIC_NVLINK_RX] = value_absent(VALUE_LOST);
	v[PROFILE_NVLINK_RX] = value_absent(VALUE_EMPTY);
	assert_false(profile_has(&c));
	profile_put(v, &c);
	assert_true(profile_has(&c));
	assert_value(c.m[METRIC_SM_OCCUPANCY], 5);
	assert_int_equal(c.m[METRIC_TENSOR_ACTIVE].state, VALUE_UNSUPPORTED);
	assert_value(c.m[METRIC_INSTRUCTIONS], 30);
	assert_value(c.m[METRIC_SOL], 35);
	assert_value(c.m[METRIC_PCIE_TX], 7);
	assert_value(c.m[METRIC_PCIE_RX], 45);
	assert_value(c.m[METRIC_NVLINK_TX], 50);
	assert_int_equal(c.m[METRIC_NVLINK_RX].state, VALUE_LOST);
	for (size_t i = 0; i < PROFILE_N; i++)
		v[i] = value_absent(VALUE_FORBIDDEN);
	profile_put(v, &c);
	assert_int_equal(c.m[METRIC_SOL].state, VALUE_FORBIDDEN);
	assert_false(profile_has(&c));
}

/* ---- NVML's counters ---- */

static struct gpu_backend *open_nvml(const char *text)
{
	struct gpu_backend *b = NULL;
	struct err e = {0};

	put_file("scenario", text);
	if (nvml_open_at(library("libnvidia-ml.so.1"), work, &b, &e) < 0)
		fail_msg("%s", e.text);
	return b;
}

static struct gpu_snapshot ask(struct gpu_backend *b, bool profiling)
{
	const struct gpu_ask how = {.details = true, .lets_sleep = true, .profiling = profiling};
	struct gpu_snapshot s = {0};
	struct err e = {0};

	if (gpu_backend_ask(b, &how, &s, &e) < 0)
		fail_msg("%s", e.text);
	return s;
}

#define M(s, i, what) ((s).cards[i].m[METRIC_##what])

static void two_samples_make_a_figure(void **state)
{
	struct gpu_backend *b = open_nvml(
		"cards 2\ngpm 0 sm=0.5 occupancy=0.25 tensor=0.75 int=none dram=0.9 nvlinktx=2097152\n");
	struct gpu_snapshot s = ask(b, true);
	struct nvml_gpm *g = &((struct nvml *)b)->cards[0].gpm;
	int64_t taken_ms = g->taken_ms;

	(void)state;
	assert_int_equal(s.profiling.source, PROFILE_GPM);
	assert_int_equal(M(s, 0, SM_ACTIVE).state, VALUE_EMPTY);
	assert_int_equal(M(s, 1, SM_ACTIVE).state, VALUE_UNSUPPORTED);
	gpu_snapshot_done(&s);
	/* Too soon after the first for another sample (the fake ends who compares those), however slow this machine is. */
	g->taken_ms = INT64_MAX / 2;
	s = ask(b, true);
	assert_int_equal(M(s, 0, SM_ACTIVE).state, VALUE_EMPTY);
	gpu_snapshot_done(&s);
	g->taken_ms = taken_ms;
	poll(NULL, 0, 120);
	s = ask(b, true);
	assert_value(M(s, 0, SM_ACTIVE), 50);
	assert_value(M(s, 0, SM_OCCUPANCY), 25);
	assert_value(M(s, 0, TENSOR_ACTIVE), 75);
	assert_value(M(s, 0, DRAM_ACTIVE), 90);
	assert_value(M(s, 0, FP64_ACTIVE), 0);
	assert_value(M(s, 0, SOL), 90);
	assert_value(M(s, 0, NVLINK_TX), 2048);
	assert_int_equal(M(s, 0, INT_ACTIVE).state, VALUE_UNSUPPORTED);
	gpu_snapshot_done(&s);
	/* At once again: the last figures, and no call. */
	g->taken_ms = INT64_MAX / 2;
	s = ask(b, true);
	assert_value(M(s, 0, SM_ACTIVE), 50);
	assert_int_equal(calls("nvmlGpmMetricsGet"), 1);
	gpu_snapshot_done(&s);
	assert_int_equal(calls("nvmlGpmQueryDeviceSupport"), 2);
	gpu_backend_free(b);
	assert_int_equal(calls("nvmlGpmSampleAlloc"), 2);
	assert_int_equal(calls("nvmlGpmSampleFree"), 2);
}

static void counters_only_while_wanted(void **state)
{
	struct gpu_backend *b = open_nvml("gpm 0 sm=0.5\n");
	struct gpu_snapshot s = ask(b, false);

	(void)state;
	assert_int_equal(calls("nvmlGpm"), 0);
	assert_int_equal(s.profiling.source, PROFILE_NOT_ASKED);
	assert_int_equal(M(s, 0, SM_ACTIVE).state, VALUE_NOT_ASKED);
	gpu_snapshot_done(&s);
	s = ask(b, true);
	gpu_snapshot_done(&s);
	/* Long after the last who wanted them, what was taken for them is given back. */
	((struct nvml *)b)->cards[0].gpm.taken_ms -= 20000;
	s = ask(b, false);
	assert_int_equal(calls("nvmlGpmSampleFree"), 2);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
	assert_int_equal(calls("nvmlGpmSampleFree"), 2);
}

static void counters_that_cannot_be_had(void **state)
{
	static const struct {
		const char *text, *words;
		enum value_state why;
	} cases[] = {
		{"cards 2\nprofiling\n", "Hopper", VALUE_UNSUPPORTED},
		{"gpm 0 sm=1\nerr nvmlGpmQueryDeviceSupport 4\n", "NVML 4", VALUE_FORBIDDEN},
		{"gpm 0 sm=1\nerr nvmlGpmSampleAlloc 20\n", "NVML 20", VALUE_FAILED},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct gpu_backend *b = open_nvml(cases[i].text);
		struct gpu_snapshot s = ask(b, true);

		assert_int_equal(s.profiling.source, PROFILE_NONE);
		if (strstr(s.profiling.why, cases[i].words) == NULL)
			fail_msg("%s", s.profiling.why);
		assert_int_equal(M(s, 0, SM_ACTIVE).state, cases[i].why);
		assert_int_equal(s.cards[0].state, GPU_OK);
		gpu_snapshot_done(&s);
		gpu_backend_free(b);
	}
}

/* An instance's figures are its own, and its card's are its card's. */
static void counters_of_mig_instances(void **state)
{
	static const char scenario[] = "card 0 mig=1\ninstance 0 0\ninstance 0 4\n"
				       "gpm 0 sm=0.6\ngpm 0 instance=0 sm=0.9 dram=0.3\n"
				       "gpm 0 instance=4 sm=0.2 tensor=none\n";
	struct gpu_backend *b = open_nvml(scenario);
	struct gpu_snapshot s = ask(b, true);

	(void)state;
	assert_int_equal(s.n_cards, 3);
	assert_int_equal(M(s, 1, SM_ACTIVE).state, VALUE_EMPTY);
	gpu_snapshot_done(&s);
	poll(NULL, 0, 120);
	s = ask(b, true);
	assert_value(M(s, 0, SM_ACTIVE), 60);
	assert_int_equal(s.cards[1].gi, 2);
	assert_value(M(s, 1, SM_ACTIVE), 90);
	assert_value(M(s, 1, SOL), 30);
	assert_int_equal(s.cards[2].gi, 6);
	assert_value(M(s, 2, SM_ACTIVE), 20);
	assert_int_equal(M(s, 2, TENSOR_ACTIVE).state, VALUE_UNSUPPORTED);
	gpu_snapshot_done(&s);
	/* Somebody else's look has none of them. */
	s = ask(b, false);
	assert_int_equal(M(s, 1, SM_ACTIVE).state, VALUE_NOT_ASKED);
	gpu_snapshot_done(&s);
	/* One is destroyed and another made: what was taken of the first is given back, and isn't the other's. */
	put_file("scenario", "card 0 mig=1\ninstance 0 4\ninstance 0 2\ngpm 0 sm=0.5\n"
			     "gpm 0 instance=4 sm=0.25\ngpm 0 instance=2 sm=0.75\n");
	poll(NULL, 0, 120);
	s = ask(b, true);
	assert_int_equal(calls("nvmlGpmSampleFree"), 2);
	assert_int_equal(s.cards[1].gi, 4);
	assert_int_equal(M(s, 1, SM_ACTIVE).state, VALUE_EMPTY);
	assert_value(M(s, 2, SM_ACTIVE), 25);
	gpu_snapshot_done(&s);
	poll(NULL, 0, 120);
	s = ask(b, true);
	assert_value(M(s, 1, SM_ACTIVE), 75);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
	assert_int_equal(calls("nvmlGpmSampleAlloc"), calls("nvmlGpmSampleFree"));
}

/* One that can't be read is alone with that; an instance on a lost card is lost. */
static void counters_of_instances_that_cannot_be_had(void **state)
{
	struct gpu_backend *b = open_nvml("card 0 mig=1\ninstance 0 0\ngpm 0 sm=0.6\n"
					  "err nvmlGpmMigSampleGet 4\n");
	struct gpu_snapshot s = ask(b, true);

	(void)state;
	gpu_snapshot_done(&s);
	poll(NULL, 0, 120);
	s = ask(b, true);
	assert_value(M(s, 0, SM_ACTIVE), 60);
	assert_int_equal(M(s, 1, SM_ACTIVE).state, VALUE_FORBIDDEN);
	assert_int_equal(s.profiling.source, PROFILE_GPM);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
	b = open_nvml("card 0 mig=1\ninstance 0 0\ngpm 0 sm=0.6\nerr nvmlGpmMigSampleGet 15\n");
	s = ask(b, true);
	assert_int_equal(s.cards[0].state, GPU_LOST);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
	/* Cards before Hopper aren't asked of their instances. */
	b = open_nvml("card 0 mig=1\ninstance 0 0\nprofiling\n");
	s = ask(b, true);
	assert_int_equal(calls("nvmlGpmMigSampleGet"), calls("nvmlGpmMigSampleGet 0"));
	assert_int_equal(M(s, 1, SM_ACTIVE).state, VALUE_UNSUPPORTED);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

/* A library of 2018 has no such calls; a card that's lost while it's profiled is a lost card. */
static void old_libraries_and_lost_cards(void **state)
{
	struct gpu_backend *b = NULL;
	struct gpu_snapshot s;
	struct err e = {0};

	(void)state;
	put_file("scenario", "cards 1\n");
	assert_int_equal(nvml_open_at(library("libnvidia-ml-old.so"), work, &b, &e), 0);
	s = ask(b, true);
	assert_int_equal(s.profiling.source, PROFILE_NONE);
	assert_non_null(strstr(s.profiling.why, "does not have the call"));
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
	b = open_nvml("cards 2\ngpm 0 sm=1\ngpm 1 sm=1\nerr nvmlGpmSampleGet card=1 15\n");
	s = ask(b, true);
	assert_int_equal(s.cards[1].state, GPU_LOST);
	assert_int_equal(M(s, 1, SM_ACTIVE).state, VALUE_LOST);
	assert_int_equal(s.cards[0].state, GPU_OK);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(both_generations),
		T(an_engine_that_runs_is_used),
		T(cards_fail_alone),
		T(an_older_release),
		T(no_figures_yet),
		T(each_step_has_its_word),
		T(the_engine_goes),
		T(what_a_value_means),
		T(where_figures_go),
		T(two_samples_make_a_figure),
		T(counters_only_while_wanted),
		T(counters_that_cannot_be_had),
		T(counters_of_mig_instances),
		T(counters_of_instances_that_cannot_be_had),
		T(old_libraries_and_lost_cards),
	};

	return cmocka_run_group_tests_name("dcgm", tests, NULL, NULL);
}
