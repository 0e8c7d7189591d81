/*
 * What users of GPU monitors ran into, by its number in the list of them, as far as samples are concerned and no other test
 * has it. (47, the order of the cards that a job sees, is in tests/e2e/test_nvml.py and test_running.py: PCI_BUS_ID; 19 and
 * 7 are also in tests/e2e/test_once.py.)
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "core/sample.h"
#include "gpu/facts.h"
#include "gpu/nvml.h"
#include "proc/host.h"
#include "core/xid.h"
#include "show/health.h"
#include "show/once.h"
#include "nvml_fixture.h"
#include "value_assert.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char *library(void)
{
	return xasprintf("%s/libnvidia-ml.so.1", getenv("FAKE_NVML_DIR"));
}

static struct nvml *open_fake(const char *text)
{
	CLEANUP_FREE char *path = library();
	struct gpu_backend *b = NULL;
	struct err e = {0};

	put_file("scenario", text);
	if (nvml_open_at(path, work, &b, &e) < 0)
		fail_msg("%s", e.text);
	return (struct nvml *)b;
}

static struct gpu_snapshot ask(struct nvml *n, struct gpu_ask how)
{
	struct gpu_snapshot s = {0};
	struct err e = {0};

	if (gpu_backend_ask(&n->base, &how, &s, &e) < 0)
		fail_msg("%s", e.text);
	return s;
}

/* A look that places no jobs. */
static struct gpu_snapshot look(struct nvml *n)
{
	return ask(n, (struct gpu_ask){.details = true, .lets_sleep = true});
}

/* One that only wants to be over. */
static void look_past(struct nvml *n)
{
	struct gpu_snapshot s = look(n);

	gpu_snapshot_done(&s);
}

#define M(s, i, what) ((s).cards[i].m[METRIC_##what])

static void put_text(const struct sample *s, bool with_timings, struct buf *out)
{
	struct show_host h = {.name = "local",
		.state = "up",
		.why = "",
		.has_answered = true,
		.sample = s,
		.connected_ms = -1,
		.hello_ms = -1,
		.first_sample_ms = -1,
		.rtt_ms = -1};

	once_text(&(struct show_fleet){.hosts = &h, .n = 1},
		&(struct once_style){.with_timings = with_timings}, out);
}

static json_t *document(const struct sample *s)
{
	struct show_host h = {
		.name = "local", .state = "up", .why = "", .has_answered = true, .sample = s};

	return once_json(&(struct show_fleet){.hosts = &h, .n = 1}, true);
}

static json_t *first_host(json_t *doc)
{
	return json_array_get(json_object_get(doc, "hosts"), 0);
}

/* ---- 19: another's process numbers ---- */

static void item_19_foreign_pids_have_no_facts_and_a_hint(void **state)
{
	struct sample s = {.with_details = true};
	struct facts *f = facts_new();
	CLEANUP(buf_done) struct buf text = {0};
	struct gpu_proc p = {.pid = getpid(), .used_mib = value_of(5)};
	struct gpu_proc_more more = {0};
	struct gpu_card c = {0};
	uint32_t row = 0;

	(void)state;
	s.snap = (struct gpu_snapshot){
		.n_cards = 1, .cards = &c, .n_procs = 1, .procs = &p, .more = &more};
	s.proc_row = &row;
	facts_fill(f, &s.snap, 1000, 0);
	assert_string_not_equal(p.comm, "");
	put_text(&s, false, &text);
	assert_null(strstr(buf_str(&text), "--pid=host"));
	/* The same number, but of another namespace: it's no process of ours. */
	p = (struct gpu_proc){.pid = getpid(), .used_mib = value_of(5)};
	more = (struct gpu_proc_more){0};
	s.snap.has_foreign_pids = true;
	facts_fill(f, &s.snap, 2000, 0);
	assert_string_equal(p.comm, "");
	assert_int_equal(p.start_ticks, 0);
	assert_int_equal(p.uid, (uint32_t)-1);
	assert_int_equal(p.n_ancestors, 0);
	assert_string_equal(more.cmdline, "");
	buf_clear(&text);
	put_text(&s, false, &text);
	assert_non_null(strstr(buf_str(&text), "--pid=host"));
	assert_null(strstr(strstr(buf_str(&text), "--pid=host") + 1, "--pid=host"));
	facts_free(f);
}

/* ---- 32: who stands in the way of a reset ---- */

#define WAITS "cards 2\ncard 0 mig=0 migpending=1\n"

static void item_32_lets_go_while_mig_mode_is_to_change_and_comes_back(void **state)
{
	struct nvml *n = open_fake(WAITS "proc 1 pid=1 used=5\n");
	struct gpu_snapshot s = look(n);

	(void)state;
	assert_value(M(s, 0, MIG_PENDING), 1);
	assert_string_equal(s.error, "");
	assert_int_equal(calls("nvmlShutdown"), 1);
	gpu_snapshot_done(&s);
	/* Meanwhile nothing is asked, and it says why. */
	s = look(n);
	assert_non_null(strstr(s.error, "card 0"));
	assert_non_null(strstr(s.error, "MIG"));
	assert_int_equal(s.n_cards, 2);
	assert_int_equal(M(s, 0, MEM_USED).state, VALUE_NOT_ASKED);
	assert_int_equal(calls("nvmlInit"), 1);
	gpu_snapshot_done(&s);
	/* It comes back by itself; the reset didn't come, so it's patient before it lets go again. */
	n->rest_until_ms = 1;
	s = look(n);
	assert_string_equal(s.error, "");
	assert_value(M(s, 0, TEMP), 40);
	assert_int_equal(calls("nvmlInit"), 2);
	assert_int_equal(calls("nvmlShutdown"), 1);
	gpu_snapshot_done(&s);
	n->yield_next_ms = 1;
	look_past(n);
	assert_int_equal(calls("nvmlShutdown"), 2);
	assert_int_equal(n->yield_gap_ms, 2 * NVML_YIELD_MS);
	/* This time it came. */
	put_file("scenario", "cards 2\ncard 0 mig=1 migpending=1\n");
	n->rest_until_ms = 1;
	s = look(n);
	assert_value(M(s, 0, MIG_MODE), 1);
	assert_int_equal(n->yield_gap_ms, 0);
	assert_int_equal(calls("nvmlShutdown"), 2);
	gpu_snapshot_done(&s);
	gpu_backend_free(&n->base);
}

static void item_32_not_from_under_a_process_nor_from_who_places_jobs(void **state)
{
	struct nvml *n = open_fake(WAITS "proc 0 pid=1 used=5\n");
	struct gpu_snapshot s;

	(void)state;
	look_past(n);
	assert_int_equal(calls("nvmlShutdown"), 0);
	put_file("scenario", WAITS);
	s = ask(n, (struct gpu_ask){0});
	gpu_snapshot_done(&s);
	look_past(n);
	assert_int_equal(calls("nvmlShutdown"), 0);
	n->placer_ms = 1;
	look_past(n);
	assert_int_equal(calls("nvmlShutdown"), 1);
	/* A question that jobs are placed by is answered at once. */
	s = ask(n, (struct gpu_ask){0});
	assert_string_equal(s.error, "");
	assert_value(M(s, 0, MEM_TOTAL), 24576);
	gpu_snapshot_done(&s);
	gpu_backend_free(&n->base);
}

/* ---- 36, 49: profiling ---- */

static void item_36_49_profiling_counters_are_never_touched(void **state)
{
	struct nvml *n = open_fake("cards 2\ncard 1 arch=9\nproc 0 pid=1 used=5\n");
	CLEANUP_FREE char *path = library();
	int status = 0;
	pid_t pid;

	(void)state;
	for (int i = 0; i < 20; i++)
		look_past(n);
	assert_int_equal(calls("nvmlGpm"), 0);
	gpu_backend_free(&n->base);
	/* Whoever does ends there, and is in the log. */
	pid = fork();
	if (pid == 0) {
		void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		int (*init)(void) = (int (*)(void))dlsym(lib, "nvmlInit_v2");
		int (*gpm)(void) = (int (*)(void))dlsym(lib, "nvmlGpmQueryDeviceSupport");

		signal(SIGABRT, SIG_DFL);
		close(STDERR_FILENO);
		if (init() == 0)
			gpm();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	assert_int_equal(calls("nvmlGpm"), 1);
}

/* ---- 39: fans ---- */

static void item_39_no_fan_is_absent_and_a_fan_may_pass_100(void **state)
{
	struct nvml *n = open_fake(
		"cards 3\ncard 1 fan=130\ncard 2 fan=0\n"
		"err nvmlDeviceGetFanSpeed_v2 card=0 3\nerr nvmlDeviceGetFanSpeed card=0 3\n");
	struct sample s = {.with_details = true};
	json_t *doc, *cards;

	(void)state;
	s.snap = look(n);
	assert_int_equal(M(s.snap, 0, FAN).state, VALUE_UNSUPPORTED);
	assert_value(M(s.snap, 1, FAN), 130);
	assert_value(M(s.snap, 2, FAN), 0);
	doc = document(&s);
	cards = json_object_get(first_host(doc), "cards");
	assert_true(json_is_null(json_object_get(json_array_get(cards, 0), "fan_pct")));
	assert_int_equal(
		json_integer_value(json_object_get(json_array_get(cards, 1), "fan_pct")), 130);
	json_decref(doc);
	gpu_snapshot_done(&s.snap);
	gpu_backend_free(&n->base);
}

/* ---- 43: what a number means ---- */

static void item_43_xids_have_words_a_weight_and_a_way_out(void **state)
{
	static const struct {
		int64_t xid;
		enum health_weight weight;
		const char *word;
	} known[] = {{13, HEALTH_NOTE, "program"}, {31, HEALTH_NOTE, "program"},
		{45, HEALTH_NOTE, "before"}, {48, HEALTH_BAD, "drain"}, {54, HEALTH_BAD, "cable"},
		{62, HEALTH_BAD, "reboot"}, {63, HEALTH_WARNING, "reset"},
		{64, HEALTH_BAD, "replaced"}, {74, HEALTH_BAD, "NVLink"}, {79, HEALTH_BAD, "bus"},
		{92, HEALTH_WARNING, "replace"}, {94, HEALTH_WARNING, "again"},
		{95, HEALTH_BAD, "reset"}, {119, HEALTH_BAD, "reboot"}, {120, HEALTH_BAD, "reboot"},
		{144, HEALTH_BAD, "NVLink"}, {150, HEALTH_BAD, "NVLink"},
		{154, HEALTH_NOTE, "recovery_action"}};
	struct gpu_card c = {0};
	struct health_fact facts[HEALTH_FACTS_MAX];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		const struct xid_info *x = xid_find(known[i].xid);
		CLEANUP(buf_done) struct buf b = {0};

		assert_non_null(x);
		xid_put(x, &b);
		if (health_of_xid(x) != known[i].weight || !strstr(buf_str(&b), known[i].word))
			fail_msg("XID %lld: %s", (long long)known[i].xid, buf_str(&b));
		c.m[METRIC_XID_LAST] = value_of(known[i].xid);
		c.m[METRIC_XID_COUNT] = value_of(3);
		assert_int_equal(health_of(&c, facts), 1);
		/* None is cut short in a line of health. */
		assert_non_null(strstr(facts[0].text, buf_str(&b)));
	}
	for (int64_t xid = -1; xid < 400; xid++) {
		const struct xid_info *x = xid_find(xid);

		assert_true(!x || (xid >= x->first && xid <= x->last && x->what[0]));
	}
	assert_null(xid_find(0));
	assert_null(xid_find(151));
	assert_true(xid_is_of_card(79) && xid_is_of_card(151) && !xid_is_of_card(31) &&
		    !xid_is_of_card(45) && !xid_is_of_card(0));
	c.m[METRIC_XID_LAST] = value_of(151);
	assert_int_equal(health_of(&c, facts), 1);
	assert_int_equal(facts[0].weight, HEALTH_WARNING);
	assert_non_null(strstr(facts[0].text, "151"));
}

/* ---- 45: how long the driver takes ---- */

static void item_45_the_slowest_answer_is_told(void **state)
{
	struct nvml *n = open_fake("cards 2\nslow nvmlDeviceGetPowerUsage card=1 60\n");
	struct sample s = {.with_details = true}, back = {0};
	CLEANUP(buf_done) struct buf text = {0};
	struct err e = {0};
	json_t *msg, *doc, *call;

	(void)state;
	look_past(n);
	s.snap = look(n);
	assert_string_equal(s.snap.slowest.what, "power_mw");
	assert_int_equal(s.snap.slowest.index, 1);
	assert_in_range(s.snap.slowest.took_us, 60000, 10000000);
	assert_true(s.snap.driver_us >= s.snap.slowest.took_us);
	/* By wire, as a document and as text. */
	s.proc_row = xcalloc(1, sizeof(*s.proc_row));
	s.promised_mib = xcalloc(2, sizeof(*s.promised_mib));
	msg = sample_encode(&s);
	if (sample_decode(msg, &back, &e) < 0)
		fail_msg("%s", e.text);
	json_decref(msg);
	doc = document(&back);
	call = json_object_get(first_host(doc), "slowest_call");
	assert_string_equal(json_string_value(json_object_get(call, "what")), "power_mw");
	assert_int_equal(json_integer_value(json_object_get(call, "gpu_index")), 1);
	assert_int_equal(
		json_integer_value(json_object_get(call, "took_us")), s.snap.slowest.took_us);
	assert_int_equal(json_integer_value(json_object_get(first_host(doc), "driver_took_us")),
		s.snap.driver_us);
	json_decref(doc);
	put_text(&back, true, &text);
	assert_non_null(strstr(buf_str(&text), "slowest: power_mw of card 1"));
	sample_done(&back);
	sample_done(&s);
	/* The first look pays for the start. */
	gpu_backend_free(&n->base);
	n = open_fake("cards 1\nslow nvmlInit_v2 40\n");
	s = (struct sample){.snap = look(n)};
	assert_string_equal(s.snap.slowest.what, "init");
	assert_int_equal(s.snap.slowest.index, -1);
	gpu_snapshot_done(&s.snap);
	gpu_backend_free(&n->base);
}

/* ---- 46: gently on battery ---- */

static void put_power(const char *mains, const char *battery)
{
	put_file("sys/class/power_supply/AC/type", "Mains\n");
	put_file("sys/class/power_supply/AC/online", mains);
	put_file("sys/class/power_supply/BAT0/type", "Battery\n");
	put_file("sys/class/power_supply/BAT0/status", battery);
	put_file("sys/class/power_supply/mouse/type", "Battery\n");
	put_file("sys/class/power_supply/mouse/scope", "Device\n");
	put_file("sys/class/power_supply/mouse/status", "Discharging\n");
}

static void item_46_battery_is_recognised(void **state)
{
	(void)state;
	assert_int_equal(host_on_battery(work).state, VALUE_UNSUPPORTED);
	put_power("1\n", "Charging\n");
	assert_value(host_on_battery(work), 0);
	put_power("0\n", "Discharging\n");
	assert_value(host_on_battery(work), 1);
	put_power("1\n", "Discharging\n");
	assert_value(host_on_battery(work), 0);
	put_power("0\n", "Full\n");
	assert_value(host_on_battery(work), 0);
}

static void age(struct nvml_card *c, int64_t ms)
{
	c->slow_ms -= ms;
	for (size_t t = 0; t < ARRAY_LEN(c->more_ms); t++)
		c->more_ms[t] -= c->more_ms[t] > ms ? ms : 0;
}

static void item_46_on_battery_what_is_slow_is_asked_seldom(void **state)
{
	struct nvml *n;
	struct gpu_snapshot s;

	(void)state;
	put_power("0\n", "Discharging\n");
	n = open_fake("cards 1\n");
	s = look(n);
	assert_int_equal(calls("nvmlDeviceGetPcieThroughput"), 0);
	assert_int_equal(M(s, 0, PCIE_TX).state, VALUE_NOT_ASKED);
	assert_value(M(s, 0, TEMP), 40);
	gpu_snapshot_done(&s);
	assert_int_equal(calls("nvmlDeviceGetPerformanceState"), 1);
	age(&n->cards[0], NVML_SLOW_MS + 1);
	look_past(n);
	assert_int_equal(calls("nvmlDeviceGetPerformanceState"), 1);
	age(&n->cards[0], NVML_SLOW_MS * NVML_GENTLE);
	look_past(n);
	assert_int_equal(calls("nvmlDeviceGetPerformanceState"), 2);
	/* Plugged in, all is as ever. */
	put_power("1\n", "Charging\n");
	n->power_ms = 0;
	age(&n->cards[0], NVML_SLOW_MS + 1);
	look_past(n);
	assert_int_equal(calls("nvmlDeviceGetPerformanceState"), 3);
	assert_int_equal(calls("nvmlDeviceGetPcieThroughput"), 2);
	gpu_backend_free(&n->base);
}

/* ---- 48: NVLink's counters ---- */

static int64_t recoveries(const char *arch, const char *fields)
{
	CLEANUP(buf_done) struct buf b = {0};
	struct gpu_snapshot s;
	struct nvml *n;
	struct value v;

	buf_printf(&b, "cards 3\nlink 0 1\nlink 0 2\ncard 0 arch=%s\n%s", arch, fields);
	n = open_fake(buf_str(&b));
	s = look(n);
	v = M(s, 0, NVLINK_RECOVERIES);
	gpu_snapshot_done(&s);
	gpu_backend_free(&n->base);
	return value_is_present(v) ? v.v : -(int64_t)v.state;
}

static void item_48_link_recoveries_before_and_since_blackwell(void **state)
{
	static const char hopper[] =
		"field 0 162 3 link=0\nfield 0 162 4 link=1\nfield 0 162 99 link=2\n";
	static const char blackwell[] =
		"field 0 215 5 link=0\nfield 0 213 2 link=1\nfield 0 214 1 link=1\n"
		"field 0 213 50 link=0\nfield 0 214 50 link=0\n";

	(void)state;
	/* All links in one, where there is such a figure. */
	assert_int_equal(recoveries("8", "field 0 59 23\nfield 0 162 3 link=0\n"), 23);
	assert_int_equal(recoveries("9", hopper), 7);
	assert_int_equal(recoveries("10", blackwell), 8);
	assert_int_equal(recoveries("13", blackwell), 8);
	/* Numbers of the other kind aren't asked. */
	assert_int_equal(recoveries("10", hopper), -VALUE_UNSUPPORTED);
	assert_int_equal(recoveries("9", blackwell), -VALUE_UNSUPPORTED);
}

/* ---- 67: any figure can be shown ---- */

static int64_t strange(uint64_t *seed)
{
	static const int64_t some[] = {INT64_MIN, INT64_MAX, -1, 0, 1, 100, 101, INT32_MAX,
		(int64_t)INT32_MAX + 1, INT32_MIN, INT64_C(1) << 53, INT64_MAX / 1000,
		INT64_MAX / 1024};

	*seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return some[(*seed >> 33) % ARRAY_LEN(some)];
}

static void fill_strange(struct sample *s, uint64_t *seed)
{
	for (size_t i = 0; i < 2; i++) {
		struct gpu_card *c = &s->snap.cards[i];

		c->index = (int32_t)i;
		c->state = (enum gpu_state)((uint64_t)strange(seed) % GPU_STATE_N);
		for (size_t k = 0; k < METRIC_N; k++)
			c->m[k] = value_of(strange(seed));
		s->snap.procs[i] = (struct gpu_proc){.card = (uint32_t)i,
			.kind = (uint32_t)strange(seed),
			.pid = (int32_t)i,
			.uid = (uint32_t)strange(seed),
			.used_mib = value_of(strange(seed))};
		s->snap.more[i].start_wall_ms = strange(seed);
		s->snap.more[i].sm_pct = s->snap.more[i].cpu_pct = value_of(strange(seed));
		s->snap.more[i].rss_mib = value_of(strange(seed));
	}
	s->host.cpu_pct = value_of(strange(seed));
	s->host.mem_total_mib = value_of(strange(seed));
	s->host.mem_used_mib = value_of(strange(seed));
	s->host.swap_used_mib = value_of(strange(seed));
	s->host.on_battery = value_of(strange(seed));
	s->snap.driver_us = strange(seed);
	s->snap.slowest.took_us = strange(seed);
}

/* Whatever figures an agent sends (this is why tests run with UBSan's errors fatal). */
static void item_67_no_figure_ends_the_program(void **state)
{
	uint64_t seed = 67;

	(void)state;
	for (int round = 0; round < 300; round++) {
		CLEANUP(buf_done) struct buf text = {0};
		struct gpu_card cards[2] = {0};
		struct gpu_proc procs[2];
		struct gpu_proc_more more[2] = {0};
		uint32_t rows[2] = {0};
		int64_t promised[2] = {0};
		struct sample s = {.with_details = true, .has_host = true}, back = {0};
		struct err e = {0};
		json_t *msg, *doc;

		s.proc_row = rows;
		s.promised_mib = promised;
		s.snap = (struct gpu_snapshot){.n_cards = 2,
			.cards = cards,
			.n_procs = 2,
			.procs = procs,
			.more = more,
			.slowest = {.what = "memory"}};
		fill_strange(&s, &seed);
		msg = sample_encode(&s);
		if (sample_decode(msg, &back, &e) < 0)
			fail_msg("%s", e.text);
		json_decref(msg);
		for (size_t i = 0; i < 2; i++) {
			struct value v = back.snap.procs[i].used_mib;

			/* Thousands of them still add up. */
			assert_true(!value_is_present(v) ||
				    (v.v >= 0 && v.v <= INT64_MAX / 16 / GPU_PROC_MAX));
		}
		put_text(&back, true, &text);
		assert_true(text.len > 0);
		doc = document(&back);
		assert_int_equal(json_array_size(json_object_get(first_host(doc), "cards")), 2);
		json_decref(doc);
		sample_done(&back);
	}
}

/* ---- 88: one start for a whole life ---- */

static void item_88_one_init_for_fifty_samples(void **state)
{
	struct nvml *n = open_fake("cards 4\nproc 2 pid=1 used=5\n");
	struct gpu_snapshot s;

	(void)state;
	for (int i = 0; i < 50; i++) {
		s = ask(n, i % 2 == 0 ? (struct gpu_ask){.details = true, .lets_sleep = true}
				      : (struct gpu_ask){0});
		assert_value(M(s, 3, MEM_TOTAL), 24576);
		gpu_snapshot_done(&s);
	}
	assert_int_equal(calls("nvmlInit"), 1);
	assert_int_equal(calls("nvmlShutdown"), 0);
	assert_int_equal(calls("nvmlDeviceGetHandleByIndex"), 4);
	gpu_backend_free(&n->base);
	assert_int_equal(calls("nvmlShutdown"), 1);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(item_19_foreign_pids_have_no_facts_and_a_hint),
		T(item_32_lets_go_while_mig_mode_is_to_change_and_comes_back),
		T(item_32_not_from_under_a_process_nor_from_who_places_jobs),
		T(item_36_49_profiling_counters_are_never_touched),
		T(item_39_no_fan_is_absent_and_a_fan_may_pass_100),
		T(item_43_xids_have_words_a_weight_and_a_way_out),
		T(item_45_the_slowest_answer_is_told),
		T(item_46_battery_is_recognised),
		T(item_46_on_battery_what_is_slow_is_asked_seldom),
		T(item_48_link_recoveries_before_and_since_blackwell),
		T(item_67_no_figure_ends_the_program),
		T(item_88_one_init_for_fifty_samples),
	};

	return cmocka_run_group_tests_name("pitfalls", tests, NULL, NULL);
}
