/*
 * The metric table holds together, and docs/metrics.md is what it says. `test_metrics --write` (with SOURCE_ROOT set)
 * writes the page anew.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "core/metric.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char head[] =
	"# What is measured of a card\n"
	"\n"
	"This page is written from the program's own table (`src/core/metric.h`) by `test_metrics --write`; a test fails when it "
	"is stale. The keys are those of JSON and of the wire. A figure that can't be had is `null`, with a reason beside it: "
	"`unsupported`, `forbidden`, `empty` (no sample at the moment), `asleep` (asking would wake the card), `lost`, `failed`, "
	"`not-asked`. It's never 0.\n"
	"\n"
	"How often a figure is read: *fast* with every sample, *slow* every 5 s, *rare* every 60 s, *static* once. What two values "
	"mean beside each other: a *gauge* is a level or the mean of a short window, a *counter* only grows, a *state* is a word, "
	"a switch or a set of bits. The figures in the first table are in every sample, those in the second only where somebody "
	"looks, those in the third only where somebody wants them besides.\n"
	"\n"
	"Memory of a process doesn't include managed memory (cudaMallocManaged), which the driver attributes to no process. On "
	"boards that share the machine's memory, the card's memory is the machine's. `recovery_action` is the best single figure of "
	"a card's health.\n";

static const char profiling[] =
	"\n## With profiling\n"
	"\n"
	"Only with `--dcgm`: from DCGM, or from NVML's own counters (GPM) on Hopper and later. Where the driver itself gives no "
	"PCIe or NVLink traffic, the counters' figures stand in `pcie_tx_kib_s`, `pcie_rx_kib_s`, `nvlink_tx_kib_s` and "
	"`nvlink_rx_kib_s` meanwhile.\n";

static void put_rows(struct buf *b, int from, int to)
{
	buf_puts(b, "\n| key | unit | read | kind | is |\n|---|---|---|---|---|\n");
	for (int i = from; i < to; i++)
		buf_printf(b, "| `%s` | %s | %s | %s | %s |\n", metric_info[i].key,
			metric_info[i].unit, metric_tier_name(metric_info[i].tier),
			metric_kind_name(metric_info[i].kind), metric_info[i].text);
}

static void render(struct buf *b)
{
	buf_puts(b, head);
	buf_puts(b, "\n## In every sample\n");
	put_rows(b, 0, METRIC_PLAIN_N);
	buf_puts(b, "\n## With details\n");
	put_rows(b, METRIC_PLAIN_N, METRIC_PROFILE_FIRST);
	buf_puts(b, profiling);
	put_rows(b, METRIC_PROFILE_FIRST, METRIC_N);
}

static const char *page_path(char path[512])
{
	snprintf(path, 512, "%s/docs/metrics.md", getenv("SOURCE_ROOT"));
	return path;
}

static void page_is_the_table(void **state)
{
	CLEANUP(buf_done) struct buf want = {0};
	CLEANUP(buf_done) struct buf got = {0};
	char path[512];

	(void)state;
	render(&want);
	assert_int_equal(fd_read_file_at(AT_FDCWD, page_path(path), &got, 1 << 20), 0);
	if (strcmp(buf_str(&want), buf_str(&got)) != 0)
		fail_msg(
			"docs/metrics.md is stale: SOURCE_ROOT=. build-test/tests/test_metrics --write");
}

static bool ends_with(const char *s, const char *end)
{
	return strlen(s) > strlen(end) && strcmp(s + strlen(s) - strlen(end), end) == 0;
}

/* The unit is in the key: whoever reads JSON needs no table. */
static void keys_carry_their_units(void **state)
{
	static const char *const ends[][2] = {{"MiB", "_mib"}, {"%", "_pct"}, {"C", "_c"},
		{"mW", "_mw"}, {"MHz", "_mhz"}, {"mJ", "_mj"}, {"KiB/s", "_kib_s"},
		{"count", "_count"}, {"bits", "_bits"}, {"ms", "_ms"}};

	(void)state;
	for (int i = 0; i < METRIC_N; i++) {
		for (size_t k = 0; k < ARRAY_LEN(ends); k++)
			if (strcmp(metric_info[i].unit, ends[k][0]) == 0 &&
				!ends_with(metric_info[i].key, ends[k][1]))
				fail_msg("%s is in %s", metric_info[i].key, ends[k][0]);
		for (const char *s = metric_info[i].key; *s; s++)
			assert_true(islower((unsigned char)*s) || isdigit((unsigned char)*s) ||
				    *s == '_');
		for (int k = 0; k < i; k++)
			assert_string_not_equal(metric_info[i].key, metric_info[k].key);
		assert_non_null(memchr(metric_info[i].key, '\0', sizeof(metric_info[i].key)));
		assert_non_null(memchr(metric_info[i].unit, '\0', sizeof(metric_info[i].unit)));
		assert_non_null(memchr(metric_info[i].text, '\0', sizeof(metric_info[i].text)));
		assert_null(strchr(metric_info[i].text, '|'));
	}
}

static void plain_ones_come_first(void **state)
{
	(void)state;
	assert_int_equal(METRIC_PLAIN_N, 15);
	assert_string_equal(metric_info[METRIC_PLAIN_N - 1].key, "recovery_action");
	assert_true(METRIC_N > 60);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(page_is_the_table),
		cmocka_unit_test(keys_carry_their_units),
		cmocka_unit_test(plain_ones_come_first),
	};
	CLEANUP(buf_done) struct buf page = {0};
	char path[512];

	if (argc != 2 || strcmp(argv[1], "--write") != 0)
		return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
	render(&page);
	return fd_replace_at(AT_FDCWD, page_path(path), page.data, page.len, false) < 0;
}
