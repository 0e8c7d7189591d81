/* nvidia-smi's text: every spelling of "absent", both formats, and the program as a child that may misbehave. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "gpu/smi.h"
#include "gpu/smi_parse.h"
#include "proc/proc.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char work[64], program[96];

static int setup(void **state)
{
	(void)state;
	snprintf(work, sizeof(work), "/tmp/gpustow-test-smi-XXXXXX");
	assert_non_null(mkdtemp(work));
	snprintf(program, sizeof(program), "%s/nvidia-smi", work);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	return fd_remove_tree_at(AT_FDCWD, work);
}

static void corpus(const char *name, struct buf *ret)
{
	CLEANUP(buf_done) struct buf path = {0};
	const char *root = getenv("SOURCE_ROOT");

	assert_non_null(root);
	buf_printf(&path, "%s/tests/fuzz/corpus/smi/%s", root, name);
	assert_int_equal(fd_read_file_at(AT_FDCWD, path.data, ret, 1 << 20), 0);
}

static struct gpu_snapshot parse(const char *name)
{
	CLEANUP(buf_done) struct buf b = {0};
	struct gpu_snapshot s = {0};
	struct err e = {0};

	corpus(name, &b);
	if (smi_parse_xml(buf_str(&b), b.len, &s, &e) < 0)
		fail_msg("%s: %s", name, e.text);
	return s;
}

static void assert_value(struct value v, int64_t want)
{
	assert_int_equal(v.state, VALUE_PRESENT);
	assert_int_equal(v.v, want);
}

static void item_71_every_spelling_of_absent(void **state)
{
	static const struct {
		const char *text;
		enum value_state want;
	} rows[] = {
		{"N/A", VALUE_UNSUPPORTED},
		{"[N/A]", VALUE_UNSUPPORTED},
		{"[n/a]", VALUE_UNSUPPORTED},
		{"n/a", VALUE_UNSUPPORTED},
		{"Not Supported", VALUE_UNSUPPORTED},
		{"[Not Supported]", VALUE_UNSUPPORTED},
		{"[NOT SUPPORTED]", VALUE_UNSUPPORTED},
		{"Unknown", VALUE_UNSUPPORTED},
		{"", VALUE_UNSUPPORTED},
		{"[]", VALUE_UNSUPPORTED},
		{"[ N/A ]", VALUE_UNSUPPORTED},
		{"[A word of tomorrow]", VALUE_UNSUPPORTED},
		{"[Unknown Error]", VALUE_FAILED},
		{"Unknown Error", VALUE_FAILED},
		{"ERR!", VALUE_FAILED},
		{"[GPU is lost]", VALUE_LOST},
		{"GPU is lost", VALUE_LOST},
		{"[GPU requires reset]", VALUE_LOST},
		{"[Insufficient Permissions]", VALUE_FORBIDDEN},
		{"Insufficient Permissions", VALUE_FORBIDDEN},
		{"[Requires root]", VALUE_FORBIDDEN},
		{"Not Active", VALUE_EMPTY},
		{"24576 MiB", VALUE_PRESENT},
		{"0", VALUE_PRESENT},
		{"[", VALUE_PRESENT},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		if (smi_absence(rows[i].text, strlen(rows[i].text)) != rows[i].want)
			fail_msg("\"%s\"", rows[i].text);
	}
}

static void xml_of_a_new_driver(void **state)
{
	struct gpu_snapshot s = parse("new-two-cards.xml");
	const struct gpu_card *c = s.cards;

	(void)state;
	assert_int_equal(s.n_cards, 2);
	assert_string_equal(c->uuid, "GPU-11111111-2222-3333-4444-555555555555");
	assert_string_equal(c->name, "NVIDIA L40S");
	assert_string_equal(c->bus_id, "00000000:3B:00.0");
	assert_value(c->m[METRIC_MEM_TOTAL], 46068);
	assert_value(c->m[METRIC_MEM_USED], 20480);
	assert_value(c->m[METRIC_MEM_RESERVED], 600);
	assert_value(c->m[METRIC_UTIL_GPU], 97);
	assert_value(c->m[METRIC_UTIL_MEM], 41);
	assert_value(c->m[METRIC_TEMP], 71);
	assert_value(c->m[METRIC_CLOCK_SM], 2520);
	assert_value(c->m[METRIC_CLOCK_MEM], 9001);
	assert_value(c->m[METRIC_PSTATE], 0);
	assert_value(c->m[METRIC_RECOVERY], 0);
	assert_value(c->m[METRIC_THROTTLE], 0x4 | 0x40);
	assert_int_equal(c->m[METRIC_FAN].state, VALUE_UNSUPPORTED);
	assert_int_equal(c->m[METRIC_MIG_MODE].state, VALUE_UNSUPPORTED);
	assert_int_equal(c[1].index, 1);
	assert_string_equal(c[1].bus_id, "00000000:5E:00.0");
	assert_value(c[1].m[METRIC_MEM_USED], 0);
	assert_value(c[1].m[METRIC_FAN], 120);
	assert_value(c[1].m[METRIC_PSTATE], 8);
	assert_value(c[1].m[METRIC_RECOVERY], 4);
	assert_int_equal(c[1].m[METRIC_TEMP].state, VALUE_UNSUPPORTED);
	gpu_snapshot_done(&s);
}

static void item_69_70_power_under_all_its_names(void **state)
{
	struct gpu_snapshot s = parse("new-two-cards.xml");

	(void)state;
	/* The module's power is not the card's. */
	assert_value(s.cards[0].m[METRIC_POWER], 301250);
	assert_value(s.cards[0].m[METRIC_POWER_LIMIT], 350000);
	gpu_snapshot_done(&s);
	s = parse("old-kepler.xml");
	assert_value(s.cards[0].m[METRIC_POWER], 16200);
	/* Enforced wins over managed, whichever comes first. */
	assert_value(s.cards[0].m[METRIC_POWER_LIMIT], 200000);
	assert_value(s.cards[0].m[METRIC_THROTTLE], 0x1);
	assert_int_equal(s.cards[0].m[METRIC_UTIL_GPU].state, VALUE_FAILED);
	assert_int_equal(s.cards[0].m[METRIC_UTIL_MEM].state, VALUE_UNSUPPORTED);
	assert_int_equal(s.n_procs, 0);
	gpu_snapshot_done(&s);
}

static void xml_processes_are_merged(void **state)
{
	struct gpu_snapshot s = parse("new-two-cards.xml");

	(void)state;
	assert_int_equal(s.n_procs, 2);
	assert_int_equal(s.procs[0].pid, 4242);
	assert_int_equal(s.procs[0].kind, GPU_PROC_COMPUTE | GPU_PROC_GRAPHICS);
	assert_value(s.procs[0].used_mib, 20000);
	assert_int_equal(s.procs[1].kind, GPU_PROC_COMPUTE | GPU_PROC_MPS);
	assert_int_equal(s.procs[1].used_mib.state, VALUE_UNSUPPORTED);
	assert_false(s.cards[0].is_blind);
	gpu_snapshot_done(&s);
}

static void item_20_26_absent_figures_and_lost_cards_keep_their_rows(void **state)
{
	struct gpu_snapshot s = parse("absent-everything.xml");
	const struct value *m = s.cards[0].m;

	(void)state;
	assert_int_equal(s.n_cards, 3);
	assert_int_equal(m[METRIC_MEM_TOTAL].state, VALUE_UNSUPPORTED);
	assert_int_equal(m[METRIC_UTIL_GPU].state, VALUE_FAILED);
	assert_int_equal(m[METRIC_UTIL_MEM].state, VALUE_FORBIDDEN);
	assert_int_equal(m[METRIC_TEMP].state, VALUE_LOST);
	assert_int_equal(m[METRIC_POWER].state, VALUE_FAILED);
	assert_int_equal(m[METRIC_CLOCK_SM].state, VALUE_EMPTY);
	assert_int_equal(m[METRIC_CLOCK_MEM].state, VALUE_FORBIDDEN);
	assert_value(m[METRIC_MIG_MODE], 1);
	assert_true(s.cards[0].is_blind);
	assert_int_equal(s.cards[0].state, GPU_OK);
	assert_int_equal(s.cards[1].state, GPU_LOST);
	assert_string_equal(s.cards[1].uuid, "");
	assert_string_equal(s.cards[1].bus_id, "00000000:02:00.0");
	assert_int_equal(s.cards[2].state, GPU_NEEDS_RESET);
	gpu_snapshot_done(&s);
}

static void cut_or_odd_xml_is_refused(void **state)
{
	static const char *const bad[] = {"", "<", "<nvidia_smi_log>",
		"<nvidia_smi_log></nvidia_smi_log>", "<html><gpu></gpu></html>",
		"NVIDIA-SMI has failed", "<nvidia_smi_log><gpu></gpu>",
		"<nvidia_smi_log><gpu></gpu></nvidia_smi_log"};
	CLEANUP(buf_done) struct buf whole = {0};
	struct gpu_snapshot s = {0};
	struct err e = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		if (smi_parse_xml(bad[i], strlen(bad[i]), &s, &e) == 0)
			fail_msg("%s", bad[i]);
	}
	assert_null(s.cards);
	/* Wherever the document is cut, no half of it is believed. */
	corpus("new-two-cards.xml", &whole);
	for (size_t n = 0; n < whole.len - 2; n++)
		assert_true(smi_parse_xml(whole.data, n, &s, &e) < 0);
	assert_null(s.cards);
}

static void csv_of_both_queries(void **state)
{
	CLEANUP(buf_done) struct buf b = {0};
	struct gpu_snapshot s = {0};
	struct err e = {0};
	const char *cut;

	(void)state;
	corpus("two-queries.csv", &b);
	cut = strchr(b.data, 1);
	assert_int_equal(
		smi_parse_csv(b.data, (size_t)(cut - b.data), cut + 1, strlen(cut + 1), &s, &e), 0);
	assert_int_equal(s.n_cards, 4);
	assert_string_equal(s.cards[0].uuid, "GPU-a");
	assert_value(s.cards[0].m[METRIC_MEM_TOTAL], 81559);
	assert_int_equal(s.cards[1].index, 1);
	assert_value(s.cards[1].m[METRIC_UTIL_GPU], 7);
	assert_int_equal(s.cards[2].m[METRIC_MEM_USED].state, VALUE_UNSUPPORTED);
	assert_int_equal(s.cards[3].index, 4);
	assert_int_equal(s.cards[3].state, GPU_LOST);
	assert_int_equal(s.n_procs, 2);
	assert_int_equal(s.procs[0].card, 1);
	/* Several rows of one process: the largest, not their sum. */
	assert_value(s.procs[0].used_mib, 95);
	assert_int_equal(s.procs[1].used_mib.state, VALUE_UNSUPPORTED);
	assert_true(s.cards[0].is_blind);
	gpu_snapshot_done(&s);
	assert_int_equal(smi_parse_csv("", 0, "", 0, &s, &e), -EINVAL);
}

static void script(const char *body)
{
	CLEANUP(buf_done) struct buf b = {0};

	buf_printf(&b, "#!/bin/sh\n%s\n", body);
	assert_int_equal(fd_replace_at(AT_FDCWD, program, b.data, b.len, false), 0);
	assert_int_equal(chmod(program, 0700), 0);
}

static int try_open(int limit_ms, struct gpu_backend **ret, struct err *e)
{
	return smi_open_at(program, work, limit_ms, ret, e);
}

static void program_gives_a_snapshot(void **state)
{
	CLEANUP(buf_done) struct buf b = {0};
	struct gpu_backend *g = NULL;
	struct gpu_snapshot s = {0};
	struct err e = {0};

	(void)state;
	buf_printf(&b, "[ \"$*\" = '-q -x' ] && cat %s/tests/fuzz/corpus/smi/new-two-cards.xml",
		getenv("SOURCE_ROOT"));
	script(b.data);
	if (try_open(10000, &g, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(gpu_backend_snapshot(g, &s, &e), 0);
	assert_string_equal(s.source, "nvidia-smi");
	assert_int_equal(s.n_cards, 2);
	gpu_snapshot_done(&s);
	gpu_backend_free(g);
}

static void csv_when_xml_fails(void **state)
{
	struct gpu_backend *g = NULL;
	struct gpu_snapshot s = {0};
	struct err e = {0};

	(void)state;
	script("case \"$1\" in\n"
	       "--query-gpu=index,uuid,memory.total,memory.used,utilization.gpu) echo '0, GPU-a, 24576, 10, 3';;\n"
	       "--query-compute-apps=gpu_uuid,pid,used_memory) echo 'GPU-a, 99, 5';;\n"
	       "*) echo '<broken'; exit 0;;\nesac");
	if (try_open(10000, &g, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(g->impl->snapshot(g, &s, &e), 0);
	assert_value(s.cards[0].m[METRIC_MEM_TOTAL], 24576);
	assert_int_equal(s.procs[0].pid, 99);
	gpu_snapshot_done(&s);
	gpu_backend_free(g);
}

static void item_03_unified_board_by_text(void **state)
{
	CLEANUP(buf_done) struct buf path = {0};
	struct gpu_backend *g = NULL;
	struct gpu_snapshot s = {0};
	struct err e = {0};
	static const char meminfo[] = "MemTotal: 2097152 kB\nMemAvailable: 1048576 kB\n";

	(void)state;
	buf_printf(&path, "%s/proc", work);
	assert_int_equal(fd_mkdirs(path.data, &e), 0);
	buf_puts(&path, "/meminfo");
	assert_int_equal(fd_replace_at(AT_FDCWD, path.data, meminfo, strlen(meminfo), false), 0);
	script("case \"$1\" in --query-gpu*) echo '0, GPU-gb, [N/A], [N/A], 3';; -q) exit 1;; esac");
	if (try_open(10000, &g, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(g->impl->snapshot(g, &s, &e), 0);
	assert_true(s.cards[0].is_unified);
	assert_value(s.cards[0].m[METRIC_MEM_TOTAL], 2048);
	assert_value(s.cards[0].m[METRIC_MEM_USED], 1024);
	gpu_snapshot_done(&s);
	gpu_backend_free(g);
}

static void failures_in_the_known_words(void **state)
{
	struct gpu_backend *g = NULL;
	struct err e = {0};

	(void)state;
	assert_int_equal(try_open(60000, &g, &e), -ENOENT);
	assert_string_equal(e.text, "nvidia-smi not found — is the NVIDIA driver installed?");
	script("echo \"it couldn't talk to the driver\" >&2; exit 9");
	assert_true(try_open(60000, &g, &e) < 0);
	assert_string_equal(e.text, "nvidia-smi failed: it couldn't talk to the driver");
	/* The real one writes its complaint to stdout; escape bytes go no further. */
	script("printf 'no\\033[31m\\ndevices\\n'; exit 6");
	assert_true(try_open(60000, &g, &e) < 0);
	assert_non_null(strstr(e.text, "nvidia-smi failed: no"));
	assert_non_null(strstr(e.text, " devices"));
	assert_null(strchr(e.text, '\033'));
	assert_null(g);
}

/* A pid that the script wrote; 0: it didn't. */
static pid_t pid_from(const char *name)
{
	CLEANUP(buf_done) struct buf path = {0};
	CLEANUP(buf_done) struct buf b = {0};

	buf_printf(&path, "%s/%s", work, name);
	if (fd_read_file_at(AT_FDCWD, path.data, &b, 64) < 0)
		return 0;
	return (pid_t)strtol(buf_str(&b), NULL, 10);
}

static void remove_file(const char *name)
{
	CLEANUP(buf_done) struct buf path = {0};

	buf_printf(&path, "%s/%s", work, name);
	unlink(path.data);
}

static void item_44_hanging_program_is_killed_with_its_group(void **state)
{
	CLEANUP(buf_done) struct buf b = {0};
	CLEANUP(buf_done) struct buf times = {0};
	struct gpu_backend *g = NULL;
	struct err e = {0};
	pid_t grandchild = 0;

	(void)state;
	buf_printf(&b,
		"echo once >> %s/times; sleep 300 & echo $! > %s/new; mv %s/new %s/pid; wait", work,
		work, work, work);
	script(b.data);
	/* With more time when a busy machine didn't get as far as that in less. */
	for (size_t i = 0; !grandchild; i++) {
		static const struct {
			int ms;
			const char *text;
		} rows[] = {{700, "0.7s"}, {3500, "3.5s"}, {20500, "20.5s"}};
		CLEANUP(buf_done) struct buf said = {0};

		assert_true(i < ARRAY_LEN(rows));
		remove_file("times");
		assert_int_equal(try_open(rows[i].ms, &g, &e), -ETIMEDOUT);
		buf_printf(&said, "nvidia-smi timed out after %s", rows[i].text);
		assert_string_equal(e.text, buf_str(&said));
		grandchild = pid_from("pid");
	}
	for (int i = 0; i < 200 && proc_is_alive(grandchild, 0); i++)
		poll(NULL, 0, 10);
	assert_false(proc_is_alive(grandchild, 0));
	/* Only the first question is asked of a program that hangs. */
	buf_clear(&b);
	buf_printf(&b, "%s/times", work);
	assert_int_equal(fd_read_file_at(AT_FDCWD, b.data, &times, 4096), 0);
	assert_string_equal(buf_str(&times), "once\n");
}

static void endless_output_is_cut_off(void **state)
{
	struct gpu_backend *g = NULL;
	struct err e = {0};

	(void)state;
	script("exec cat /dev/zero");
	assert_true(try_open(20000, &g, &e) < 0);
	assert_non_null(strstr(e.text, "nvidia-smi failed"));
	assert_null(g);
}

static void no_source_at_all_names_both(void **state)
{
	struct gpu_backend *g = NULL;
	struct err e = {0};

	(void)state;
	unsetenv("GPUSTOW_SIM");
	setenv("GPUSTOW_NVML_PATH", "/nowhere/libnvidia-ml.so.1", 1);
	setenv("GPUSTOW_NVIDIA_SMI", program, 1);
	assert_true(gpu_backend_open(&g, &e) < 0);
	assert_non_null(strstr(e.text, "/nowhere/libnvidia-ml.so.1"));
	assert_non_null(strstr(e.text, "nvidia-smi not found"));
	script("echo '0, GPU-a, 24576, 10, 3'");
	assert_int_equal(gpu_backend_open(&g, &e), 0);
	assert_string_equal(g->impl->name, "nvidia-smi");
	gpu_backend_free(g);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(item_71_every_spelling_of_absent),
		T(xml_of_a_new_driver),
		T(item_69_70_power_under_all_its_names),
		T(xml_processes_are_merged),
		T(item_20_26_absent_figures_and_lost_cards_keep_their_rows),
		T(cut_or_odd_xml_is_refused),
		T(csv_of_both_queries),
		T(program_gives_a_snapshot),
		T(csv_when_xml_fails),
		T(item_03_unified_board_by_text),
		T(failures_in_the_known_words),
		T(item_44_hanging_program_is_killed_with_its_group),
		T(endless_output_is_cut_off),
		T(no_source_at_all_names_both),
	};

	return cmocka_run_group_tests_name("gpu_smi", tests, NULL, NULL);
}
