/*
 * The profiler: figures come through the pipe and onto their cards; a library that hangs or crashes takes only the helper
 * with it; there's no helper while nobody wants figures, and none with simulated cards.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "agent/profiler.h"
#include "base/clock.h"
#include "nvml_fixture.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEADLINE_MS 20000

static void library_is(const char *file)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", getenv("FAKE_NVML_DIR"), file);
	setenv("GPUSTOW_DCGM_PATH", path, 1);
}

static struct profiler *begin(const char *text)
{
	put_file("scenario", text);
	library_is("libdcgm.so.4");
	return profiler_new();
}

/* A snapshot of two cards, as the sampler gives it: nobody has asked NVML for counters. */
static void snapshot(struct gpu_snapshot *s)
{
	*s = (struct gpu_snapshot){.n_cards = 3};
	s->cards = calloc(3, sizeof(*s->cards));
	for (int i = 0; i < 2; i++) {
		s->cards[i].index = i;
		snprintf(s->cards[i].uuid, GPU_UUID_LEN, "GPU-fa4e0000-0000-0000-0000-%012d", i);
	}
	snprintf(s->cards[2].uuid, GPU_UUID_LEN, "MIG-x");
	snprintf(s->cards[2].parent, GPU_UUID_LEN, "%s", s->cards[0].uuid);
}

static struct gpu_profiling put(const struct profiler *p, struct gpu_snapshot *s)
{
	gpu_snapshot_done(s);
	snapshot(s);
	profiler_put(p, s);
	return s->profiling;
}

/* Turns the parent's wheel, in real time but with the profiler's clock standing still, until `done`. */
static void until(struct profiler *p, int64_t now_ms, bool (*done)(const struct profiler *p))
{
	int64_t end = clock_boot_ms() + DEADLINE_MS;

	while (!done(p)) {
		struct pollfd f = {.fd = profiler_fd(p), .events = POLLIN};
		int status;
		pid_t pid;

		if (clock_boot_ms() > end)
			fail_msg("it didn't come");
		if (poll(&f, 1, 20) > 0)
			profiler_read(p, now_ms);
		while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
			profiler_reaped(p, pid, status, now_ms);
	}
}

static bool has_figures(const struct profiler *p)
{
	struct gpu_snapshot s = {0};

	profiler_put(p, &s);
	return s.profiling.source == PROFILE_DCGM;
}

static bool is_gone(const struct profiler *p)
{
	return profiler_is_gone(p);
}

static bool needs_gpm(const struct profiler *p)
{
	return profiler_wants_gpm(p, 1000);
}

static void figures_come_onto_their_cards(void **state)
{
	struct profiler *p = begin("cards 2\nprofiling id=3\ndcgm 0 sm=0.25\ndcgm 1 sm=0.75\n");
	struct gpu_snapshot s = {0};

	(void)state;
	assert_int_equal(profiler_fd(p), -1);
	assert_true(profiler_is_gone(p));
	profiler_want(p, true, 1000);
	assert_true(profiler_fd(p) >= 0);
	assert_int_equal(put(p, &s).source, PROFILE_STARTING);
	assert_false(profile_has(&s.cards[0]));
	until(p, 1000, has_figures);
	assert_int_equal(put(p, &s).source, PROFILE_DCGM);
	assert_int_equal(s.cards[0].m[METRIC_SM_ACTIVE].v, 25);
	assert_int_equal(s.cards[1].m[METRIC_SM_ACTIVE].v, 75);
	assert_int_equal(s.cards[2].m[METRIC_SM_ACTIVE].state, VALUE_UNSUPPORTED);
	assert_false(profiler_wants_gpm(p, 1000));
	/* Nobody wants them any more. */
	profiler_want(p, false, 1000);
	assert_int_equal(profiler_fd(p), -1);
	until(p, 1000, is_gone);
	assert_int_equal(profiler_turn(p, 1000), -1);
	gpu_snapshot_done(&s);
	profiler_free(p);
}

/* No library: said once, not asked again as long as it's wanted; NVML's word is put behind it. */
static void no_library(void **state)
{
	struct profiler *p = begin("cards 2\nprofiling\n");
	struct gpu_snapshot s = {0};
	struct gpu_profiling got;

	(void)state;
	library_is("nothing.so");
	profiler_want(p, true, 1000);
	assert_false(needs_gpm(p));
	until(p, 1000, needs_gpm);
	until(p, 1000, is_gone);
	/* NVML's counters are asked with the next look. */
	assert_int_equal(put(p, &s).source, PROFILE_STARTING);
	s.profiling = (struct gpu_profiling){.source = PROFILE_NONE, .why = "needs Hopper"};
	profiler_put(p, &s);
	got = s.profiling;
	assert_int_equal(got.source, PROFILE_NONE);
	assert_string_equal(got.error, "dcgm_import_failed");
	assert_non_null(strstr(got.why, "can't be loaded"));
	assert_non_null(strstr(got.why, "; needs Hopper"));
	s.profiling = (struct gpu_profiling){.source = PROFILE_GPM};
	profiler_put(p, &s);
	assert_int_equal(s.profiling.source, PROFILE_GPM);
	assert_string_equal(s.profiling.error, "dcgm_import_failed");
	profiler_turn(p, 1000 + 10 * PROFILER_PAUSE_MAX_MS);
	assert_true(profiler_is_gone(p));
	/* Whoever wants them later asks anew. */
	profiler_want(p, false, 2000);
	library_is("libdcgm.so.4");
	put_file("scenario", "cards 2\nprofiling\ndcgm 0 sm=1\n");
	profiler_want(p, true, 2000);
	assert_int_equal(put(p, &s).source, PROFILE_STARTING);
	assert_false(profiler_is_gone(p));
	gpu_snapshot_done(&s);
	profiler_free(p);
}

/* A library that hangs: NVML's counters after 3 s, its end after 10, another after 30. */
static void a_library_that_hangs(void **state)
{
	struct profiler *p = begin("cards 2\nprofiling\ndcgm 0 sm=0.5\nhang dcgmInit\n");
	struct gpu_snapshot s = {0};

	(void)state;
	profiler_want(p, true, 1000);
	assert_false(profiler_wants_gpm(p, 1000 + PROFILER_SLOW_MS - 1));
	assert_true(profiler_wants_gpm(p, 1000 + PROFILER_SLOW_MS));
	profiler_turn(p, 1000 + PROFILER_SILENT_MS - 1);
	assert_true(profiler_fd(p) >= 0);
	profiler_turn(p, 1000 + PROFILER_SILENT_MS);
	assert_int_equal(profiler_fd(p), -1);
	until(p, 11000, is_gone);
	put(p, &s);
	s.profiling.source = PROFILE_NONE;
	profiler_put(p, &s);
	assert_string_equal(s.profiling.error, "dcgm_connect_failed");
	assert_non_null(strstr(s.profiling.why, "hasn't answered"));
	put_file("scenario", "cards 2\nprofiling\ndcgm 0 sm=0.5\n");
	profiler_turn(p, 11000 + PROFILER_PAUSE_MIN_MS - 1);
	assert_true(profiler_is_gone(p));
	profiler_turn(p, 11000 + PROFILER_PAUSE_MIN_MS);
	assert_false(profiler_is_gone(p));
	gpu_snapshot_done(&s);
	profiler_free(p);
}

static void a_library_that_crashes(void **state)
{
	struct profiler *p = begin("cards 2\nprofiling\ndcgm 0 sm=0.5\ncrash dcgmGetAllDevices\n");
	struct gpu_snapshot s = {0};

	(void)state;
	profiler_want(p, true, 1000);
	until(p, 1000, is_gone);
	put(p, &s);
	s.profiling.source = PROFILE_NONE;
	profiler_put(p, &s);
	assert_non_null(strstr(s.profiling.why, "crashed (signal 11)"));
	assert_string_equal(s.profiling.error, "dcgm_connect_failed");
	assert_true(needs_gpm(p));
	gpu_snapshot_done(&s);
	profiler_free(p);
}

/* It worked, and then the engine goes: no figures of before stay. */
static void an_engine_that_goes(void **state)
{
	struct profiler *p = begin("cards 2\nprofiling engine\ndcgm 0 sm=0.5\n");
	struct gpu_snapshot s = {0};

	(void)state;
	profiler_want(p, true, 1000);
	until(p, 1000, has_figures);
	put_file("scenario",
		"profiling engine\ncards 2\ndcgm 0 sm=1\nerr dcgmEntitiesGetLatestValues -21\n");
	until(p, 1000, needs_gpm);
	assert_int_equal(put(p, &s).source, PROFILE_STARTING);
	assert_false(profile_has(&s.cards[0]));
	s.profiling.source = PROFILE_NONE;
	profiler_put(p, &s);
	assert_string_equal(s.profiling.error, "dcgm_get_latest_failed");
	gpu_snapshot_done(&s);
	profiler_free(p);
}

static void none_with_simulated_cards(void **state)
{
	struct gpu_snapshot s = {0};
	struct profiler *p;

	(void)state;
	setenv("GPUSTOW_SIM", "2", 1);
	p = begin("cards 2\n");
	unsetenv("GPUSTOW_SIM");
	profiler_want(p, true, 1000);
	profiler_turn(p, 1000);
	assert_true(profiler_is_gone(p));
	assert_true(needs_gpm(p));
	snapshot(&s);
	s.profiling.source = PROFILE_SIM;
	profiler_put(p, &s);
	assert_int_equal(s.profiling.source, PROFILE_SIM);
	gpu_snapshot_done(&s);
	profiler_free(p);
}

/* The letter of a process's state; 0 when it's gone. */
static char state_of(int pid)
{
	char path[64], letter = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	if (f && fscanf(f, "%*d (%*[^)]) %c", &letter) != 1)
		letter = 0;
	if (f)
		fclose(f);
	return letter;
}

static int only_child(void)
{
	char path[64];
	int pid = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	f = fopen(path, "re");
	if (f && fscanf(f, "%d", &pid) != 1)
		pid = 0;
	if (f)
		fclose(f);
	return pid;
}

static bool is_called(const char *call)
{
	CLEANUP(buf_done) struct buf b = {0};

	return fd_read_file_at(AT_FDCWD, log_path, &b, 1 << 20) == 0 && strstr(buf_str(&b), call);
}

/* Whoever started it may be killed at any moment: it goes with him. */
static void it_ends_with_its_parent(void **state)
{
	int ends[2], child = 0, status;
	int64_t end = clock_boot_ms() + DEADLINE_MS;
	char letter;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(ends), 0);
	pid = fork();
	if (pid == 0) {
		profiler_want(begin("cards 2\nprofiling\nhang dcgmInit\n"), true, 1000);
		child = only_child();
		/* It hangs inside the library by then, and notices nothing by itself. */
		while (!is_called("dcgmInit"))
			poll(NULL, 0, 5);
		if (write(ends[1], &child, sizeof(child)) != sizeof(child))
			_exit(1);
		kill(getpid(), SIGKILL);
	}
	assert_int_equal(read(ends[0], &child, sizeof(child)), sizeof(child));
	assert_true(child > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	while ((letter = state_of(child)) != 0 && letter != 'Z' && clock_boot_ms() < end)
		poll(NULL, 0, 10);
	if (letter != 0 && letter != 'Z')
		kill(child, SIGKILL);
	assert_true(letter == 0 || letter == 'Z');
	close(ends[0]);
	close(ends[1]);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(figures_come_onto_their_cards),
		T(no_library),
		T(a_library_that_hangs),
		T(a_library_that_crashes),
		T(an_engine_that_goes),
		T(none_with_simulated_cards),
		T(it_ends_with_its_parent),
	};

	signal(SIGPIPE, SIG_IGN);
	unsetenv("GPUSTOW_SIM");
	return cmocka_run_group_tests_name("profiler", tests, NULL, NULL);
}
