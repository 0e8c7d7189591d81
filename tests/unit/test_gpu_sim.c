/* Simulated cards: the spec's grammar, the directory, what is read from it and what is removed. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/sys.h"
#include "gpu/gpu_backend.h"
#include "gpu/sim_spec.h"
#include "proc/proc.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64];

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/gpustow-test-sim-XXXXXX");
	assert_non_null(mkdtemp(dir));
	unsetenv("GPUSTOW_SIM");
	unsetenv("GPUSCHED_SIM_DIR");
	setenv("GPUSTOW_SIM_DIR", dir, 1);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	return fd_remove_tree_at(AT_FDCWD, dir);
}

static void put(const char *name, const char *text)
{
	CLEANUP(buf_done) struct buf path = {0};

	buf_printf(&path, "%s/%s", dir, name);
	assert_int_equal(fd_replace_at(AT_FDCWD, path.data, text, strlen(text), false), 0);
}

static bool is_there(const char *name)
{
	CLEANUP(buf_done) struct buf path = {0};

	buf_printf(&path, "%s/%s", dir, name);
	return access(path.data, F_OK) == 0;
}

static void job(const char *name, int pid, const char *usage)
{
	CLEANUP(buf_done) struct buf b = {0};

	buf_printf(&b, "{\"pid\": %d, \"usage\": {%s}}", pid, usage);
	put(name, b.data);
}

static struct gpu_backend *open_sim(const char *spec)
{
	struct gpu_backend *b = NULL;
	struct err e = {0};

	setenv("GPUSTOW_SIM", spec, 1);
	if (gpu_backend_open(&b, &e) < 0)
		fail_msg("%s", e.text);
	return b;
}

static struct gpu_snapshot sample(struct gpu_backend *b)
{
	struct gpu_snapshot s = {0};
	struct err e = {0};

	if (gpu_backend_snapshot(b, &s, &e) < 0)
		fail_msg("%s", e.text);
	return s;
}

static void spec_grammar(void **state)
{
	struct sim_spec s;
	struct err e = {0};

	(void)state;
	assert_int_equal(sim_spec_parse("4", &s, &e), 0);
	assert_int_equal(s.n, 4);
	assert_int_equal(s.total_mib[3], 24576);
	assert_int_equal(sim_spec_parse("2x80G,1x24G,1", &s, &e), 0);
	assert_int_equal(s.n, 4);
	assert_int_equal(s.total_mib[1], 81920);
	assert_int_equal(s.total_mib[2], 24576);
	assert_int_equal(s.total_mib[3], 24576);
	assert_int_equal(sim_spec_parse("1x24000M", &s, &e), 0);
	assert_int_equal(s.total_mib[0], 24000);
	assert_int_equal(sim_spec_parse("64", &s, &e), 0);
	assert_int_equal(s.n, 64);
}

static void cut_cards_grammar(void **state)
{
	static const char *const bad[] = {"1x80G/", "1x80G/mig", "1x80G/mig:", "1x80G/mig:3",
		"1x80G/mig:3x", "1x80G/mig:3x30G", "1x80G/mig:8x1G", "1x80G/mig:0x1G",
		"1x80G/mig:1x10G+", "1x80G/cut:2x1G", "9x80G/mig:7x10G"};
	struct sim_spec s;
	struct err e = {0};

	(void)state;
	assert_int_equal(sim_spec_parse("2x80G,1x80G/mig:1x40G+2x20G,2/mig:2x10G", &s, &e), 0);
	assert_int_equal(s.n, 5);
	assert_int_equal(s.n_all, 5 + 3 + 2 * 2);
	assert_int_equal(s.n_mig[0], 0);
	assert_int_equal(s.n_mig[2], 3);
	assert_int_equal(s.mig_mib[2][0], 40960);
	assert_int_equal(s.mig_mib[2][2], 20480);
	assert_int_equal(s.n_mig[4], 2);
	assert_int_equal(sim_spec_parse("8x80G/mig:7x10G", &s, &e), 0);
	assert_int_equal(s.n_all, 64);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		e.text[0] = '\0';
		assert_true(sim_spec_parse(bad[i], &s, &e) < 0);
		assert_true(strlen(e.text) > 20);
	}
}

/* What a job holds on an instance is used there, and on the card that it was cut from. */
static void instances_are_cards(void **state)
{
	struct gpu_backend *b = open_sim("1x80G/mig:1x40G+1x20G,1x24G");
	struct gpu_snapshot s = sample(b);
	char usage[120];

	(void)state;
	assert_int_equal(s.n_cards, 4);
	assert_true(s.cards[0].is_mig_parent && !s.cards[1].is_mig_parent);
	assert_string_equal(s.cards[3].parent, s.cards[0].uuid);
	assert_string_equal(s.cards[3].profile, "1g.20gb");
	assert_int_equal(s.cards[3].gi, 2 + 1);
	assert_int_equal(s.cards[3].m[METRIC_MEM_TOTAL].v, 20480);
	assert_int_equal(gpu_find_label(&s, "0:2"), 3);
	assert_true(strncmp(s.cards[2].uuid, "MIG-", 4) == 0);
	snprintf(usage, sizeof(usage), "\"%s\": 700", s.cards[3].uuid);
	gpu_snapshot_done(&s);
	job("a.json", getpid(), usage);
	s = sample(b);
	assert_int_equal(s.n_procs, 1);
	assert_int_equal(s.procs[0].card, 3);
	assert_int_equal(s.procs[0].gi, 3);
	assert_int_equal(s.cards[3].m[METRIC_MEM_USED].v, 700);
	assert_int_equal(s.cards[2].m[METRIC_MEM_USED].v, 0);
	assert_int_equal(s.cards[0].m[METRIC_MEM_USED].v, 700);
	assert_int_equal(s.cards[0].m[METRIC_UTIL_GPU].state, VALUE_UNSUPPORTED);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void a_file_makes_a_card_unwell(void **state)
{
	struct gpu_backend *b = open_sim("2,1x80G/mig:1x40G");
	struct gpu_snapshot s = sample(b);

	(void)state;
	assert_int_equal(s.cards[0].xid.count, 0);
	assert_int_equal(s.cards[0].reset, GPU_RESET_NONE);
	gpu_snapshot_done(&s);
	put("ills.0", "79\n");
	put("ills.2", "31\nreset\nnonsense\n48\n");
	s = sample(b);
	assert_int_equal(s.cards[0].xid.last, 79);
	assert_int_equal(s.cards[0].xid.count, 1);
	assert_in_range(s.cards[0].xid.boot_ms, s.begun_ms, s.ended_ms);
	assert_int_equal(s.cards[1].xid.count, 0);
	assert_int_equal(s.cards[2].xid.last, 48);
	assert_int_equal(s.cards[2].xid.count, 2);
	assert_int_equal(s.cards[2].reset, GPU_RESET_NEEDED);
	assert_int_equal(s.cards[3].xid.last, 48);
	assert_int_equal(s.cards[3].reset, GPU_RESET_NEEDED);
	gpu_snapshot_done(&s);
	put("ills.2", "pending\n");
	put("ills.1", "lost\n");
	s = sample(b);
	assert_int_equal(s.cards[2].xid.count, 2);
	assert_int_equal(s.cards[2].reset, GPU_RESET_PENDING);
	assert_int_equal(s.cards[1].state, GPU_LOST);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

/* Programs torn down on a card that fails say so after it: what went wrong keeps its number and its date. */
static void aftermath_dates_nothing_anew(void **state)
{
	struct gpu_backend *b = open_sim("1");
	struct gpu_snapshot s;
	int64_t first_ms;

	(void)state;
	put("ills.0", "79\n");
	s = sample(b);
	first_ms = s.cards[0].xid.boot_ms;
	gpu_snapshot_done(&s);
	while (clock_boot_ms() <= first_ms)
		poll(NULL, 0, 1);
	put("ills.0", "79\n45\n");
	s = sample(b);
	assert_int_equal(s.cards[0].xid.last, 79);
	assert_int_equal(s.cards[0].xid.count, 2);
	assert_int_equal(s.cards[0].xid.boot_ms, first_ms);
	gpu_snapshot_done(&s);
	put("ills.0", "79\n45\n48\n");
	s = sample(b);
	assert_int_equal(s.cards[0].xid.last, 48);
	assert_true(s.cards[0].xid.boot_ms > first_ms);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void bad_specs_are_sentences_and_change_nothing(void **state)
{
	static const char *const bad[] = {"", "0", "-1", "x", "4x", "x24G", "4,", ",4", "4x24Q",
		"4x0", "65", "60,5", "1x99999999G", "4 ", " 4", "4x24G,,1", "1e3",
		"99999999999999999999", "2X24G", "4x-1G"};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct sim_spec s = {.n = 77};
		struct err e = {0};

		if (sim_spec_parse(bad[i], &s, &e) == 0)
			fail_msg("\"%s\" was taken", bad[i]);
		assert_int_equal(s.n, 77);
		assert_non_null(strstr(e.text, "simulated cards"));
	}
}

static void bad_spec_never_falls_back_to_real_cards(void **state)
{
	struct gpu_backend *b = NULL;
	struct err e = {0};

	(void)state;
	setenv("GPUSTOW_SIM", "many", 1);
	assert_int_equal(gpu_backend_open(&b, &e), -EINVAL);
	assert_null(b);
	assert_non_null(strstr(e.text, "GPUSTOW_SIM=many"));
}

static void usage_adds_up_and_is_capped(void **state)
{
	struct gpu_backend *b = open_sim("2x1000M,1");
	struct gpu_snapshot s;

	(void)state;
	job("a.json", getpid(), "\"0\": 300, \"1\": 800");
	job("b.json", getppid(), "\"1\": 700, \"2\": 0, \"9\": 5");
	s = sample(b);
	assert_string_equal(s.source, "sim");
	assert_int_equal(s.seq, 1);
	assert_true(s.begun_ms > 0 && s.ended_ms >= s.begun_ms);
	assert_int_equal(s.cards[0].m[METRIC_MEM_USED].v, 300);
	assert_int_equal(s.cards[1].m[METRIC_MEM_USED].v, 1000);
	assert_int_equal(s.cards[2].m[METRIC_MEM_USED].v, 0);
	assert_int_equal(s.cards[0].m[METRIC_UTIL_GPU].v, 90);
	/* An entry of 0 MiB is an entry. */
	assert_int_equal(s.cards[2].m[METRIC_UTIL_GPU].v, 90);
	assert_int_equal(s.n_procs, 4);
	assert_int_equal(s.procs[0].pid, getpid());
	assert_int_equal(s.procs[2].pid, getppid());
	assert_false(s.cards[0].is_blind);
	gpu_snapshot_done(&s);
	s = sample(b);
	assert_int_equal(s.seq, 2);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void idle_card_has_zero_not_absent(void **state)
{
	struct gpu_backend *b = open_sim("1");
	struct gpu_snapshot s = sample(b);

	(void)state;
	assert_int_equal(s.cards[0].m[METRIC_UTIL_GPU].state, VALUE_PRESENT);
	assert_int_equal(s.cards[0].m[METRIC_UTIL_GPU].v, 0);
	assert_int_equal(s.cards[0].m[METRIC_MEM_TOTAL].v, 24576);
	assert_int_equal(s.cards[0].m[METRIC_TEMP].state, VALUE_UNSUPPORTED);
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void malformed_files_are_passed_over_and_kept(void **state)
{
	static const char *const bad[] = {"", "{", "[]", "{\"pid\": \"1\", \"usage\": {}}",
		"{\"pid\": 1}", "{\"pid\": -4, \"usage\": {\"0\": 5}}",
		"{\"pid\": 99999999999, \"usage\": {\"0\": 5}}", "{\"pid\": 1, \"usage\": [5]}"};
	struct gpu_backend *b = open_sim("1");
	struct gpu_snapshot s;
	char name[32];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		snprintf(name, sizeof(name), "%zu.json", i);
		put(name, bad[i]);
	}
	job("x.json.tmp", getpid(), "\"0\": 100");
	job("y.json", getpid(), "\"0\": 7, \"0x\": 8, \"-1\": 9, \"1\": \"a\", \"\": 3");
	job("z.json", getpid(), "\"0\": -7");
	s = sample(b);
	assert_int_equal(s.cards[0].m[METRIC_MEM_USED].v, 7);
	assert_int_equal(s.n_procs, 1);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		snprintf(name, sizeof(name), "%zu.json", i);
		assert_true(is_there(name));
	}
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void file_of_a_dead_process_is_removed(void **state)
{
	struct gpu_backend *b = open_sim("1");
	struct proc_stat st;
	struct gpu_snapshot s;
	char text[128];
	pid_t pid = fork();

	(void)state;
	if (pid == 0)
		_exit(0);
	waitpid(pid, NULL, 0);
	job("dead.json", pid, "\"0\": 100");
	/* A pid that is somebody else now: the start ticks tell. */
	assert_int_equal(proc_read_stat(getpid(), &st), 0);
	snprintf(text, sizeof(text), "{\"pid\": %d, \"start\": %llu, \"usage\": {\"0\": 50}}",
		(int)getpid(), (unsigned long long)st.start_ticks + 1);
	put("other.json", text);
	snprintf(text, sizeof(text), "{\"pid\": %d, \"start\": %llu, \"usage\": {\"0\": 3}}",
		(int)getpid(), (unsigned long long)st.start_ticks);
	put("self.json", text);
	s = sample(b);
	assert_int_equal(s.cards[0].m[METRIC_MEM_USED].v, 3);
	assert_false(is_there("dead.json"));
	assert_false(is_there("other.json"));
	assert_true(is_there("self.json"));
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

static void directory_is_private_when_ours_and_as_named_when_named(void **state)
{
	struct sys_stat st;
	struct err e = {0};
	char got[128], named[96];

	(void)state;
	snprintf(named, sizeof(named), "%s/new/deep", dir);
	setenv("GPUSTOW_SIM_DIR", named, 1);
	assert_int_equal(sim_dir(got, sizeof(got), &e), 0);
	assert_string_equal(got, named);
	assert_int_equal(sys_stat_at(AT_FDCWD, named, 0, &st), 0);
	assert_int_equal(st.mode & 0777, 0700);
	/* Two users may share a directory that both name. */
	assert_int_equal(chmod(named, 0777), 0);
	assert_int_equal(sim_dir(got, sizeof(got), &e), 0);
	unsetenv("GPUSTOW_SIM_DIR");
	setenv("GPUSCHED_SIM_DIR", named, 1);
	assert_int_equal(sim_dir(got, sizeof(got), &e), 0);
	assert_string_equal(got, named);
	put("file", "");
	snprintf(named, sizeof(named), "%s/file", dir);
	setenv("GPUSCHED_SIM_DIR", named, 1);
	assert_true(sim_dir(got, sizeof(got), &e) < 0);
	assert_true(sim_dir(got, 4, &e) < 0);
}

static void cards_are_the_same_for_everybody_who_names_the_directory(void **state)
{
	char a[GPU_UUID_LEN], b[GPU_UUID_LEN], other[96];

	(void)state;
	snprintf(other, sizeof(other), "%s/../%s", dir, strrchr(dir, '/') + 1);
	sim_uuid(dir, 0, a);
	sim_uuid(other, 0, b);
	assert_string_equal(a, b);
	sim_uuid(dir, 1, b);
	assert_string_not_equal(a, b);
	assert_int_equal(strlen(a), 40);
	assert_memory_equal(a, "GPU-", 4);
	sim_uuid("/", 0, b);
	assert_string_not_equal(a, b);
}

static void process_rows_get_their_facts(void **state)
{
	struct gpu_backend *b = open_sim("2");
	struct gpu_snapshot s;
	struct proc_stat st;

	(void)state;
	assert_int_equal(proc_read_stat(getpid(), &st), 0);
	job("a.json", getpid(), "\"0\": 1, \"1\": 2");
	s = sample(b);
	gpu_snapshot_fill_procs(&s);
	assert_int_equal(s.n_procs, 2);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(s.procs[i].start_ticks, st.start_ticks);
		assert_int_equal(s.procs[i].uid, getuid());
		assert_int_equal(s.procs[i].pgid, getpgrp());
		assert_int_equal(s.procs[i].ancestors[0], getppid());
		assert_string_equal(s.procs[i].comm, st.comm);
		assert_int_equal(s.procs[i].card, i);
		assert_int_equal(s.procs[i].used_mib.v, i + 1);
	}
	gpu_snapshot_done(&s);
	gpu_backend_free(b);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(spec_grammar),
		T(cut_cards_grammar),
		T(instances_are_cards),
		T(a_file_makes_a_card_unwell),
		T(aftermath_dates_nothing_anew),
		T(bad_specs_are_sentences_and_change_nothing),
		T(bad_spec_never_falls_back_to_real_cards),
		T(usage_adds_up_and_is_capped),
		T(idle_card_has_zero_not_absent),
		T(malformed_files_are_passed_over_and_kept),
		T(file_of_a_dead_process_is_removed),
		T(directory_is_private_when_ours_and_as_named_when_named),
		T(cards_are_the_same_for_everybody_who_names_the_directory),
		T(process_rows_get_their_facts),
	};

	return cmocka_run_group_tests_name("gpu_sim", tests, NULL, NULL);
}
