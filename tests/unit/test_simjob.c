/* gpustow simjob as a process: what it shows, when, and how it ends. Through the option parser, as people call it. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "cli/command.h"
#include "gpu/gpu_backend.h"
#include "gpu/sim_spec.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern const struct command cmd_simjob;

static char work[64], dir[96], out_path[96];

static int setup(void **state)
{
	(void)state;
	snprintf(work, sizeof(work), "/tmp/gpustow-test-simjob-XXXXXX");
	assert_non_null(mkdtemp(work));
	snprintf(dir, sizeof(dir), "%s/sim", work);
	snprintf(out_path, sizeof(out_path), "%s/out", work);
	setenv("GPUSTOW_SIM_DIR", dir, 1);
	unsetenv("CUDA_VISIBLE_DEVICES");
	unsetenv("GPUSTOW_TOKEN");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	return fd_remove_tree_at(AT_FDCWD, work);
}

static void child_main(char **argv)
{
	static uint8_t opts[1024];
	static const struct program program = {.name = "gpustow", .env_prefix = "GPUSTOW_"};
	int fd = open(out_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600), first, argc = 0,
	    r;
	struct err e = {0};

	while (argv[argc] != NULL)
		argc++;
	if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0)
		_exit(99);
	r = option_parse(cmd_simjob.options, false, argc, argv, opts, &first, &e);
	if (r == 0)
		r = cmd_simjob.exec(&program, opts, 0, NULL, &e);
	if (r < 0)
		dprintf(2, "%s\n", e.text);
	_exit(r == -EINVAL ? 2 : r < 0 ? 1 : r);
}

/* Arguments separated by blanks. */
static pid_t start(const char *args)
{
	char copy[512], *argv[32] = {copy}, *rest = copy;
	int argc = 1;
	pid_t pid;

	snprintf(copy, sizeof(copy), "simjob %s", args);
	for (char *blank; (blank = strchr(rest, ' ')) != NULL && argc < 31; rest = blank + 1) {
		*blank = '\0';
		if (blank[1] != '\0')
			argv[argc++] = blank + 1;
	}
	argv[argc] = NULL;
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		child_main(argv);
	assert_true(pid > 0);
	return pid;
}

static int ended(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static struct gpu_snapshot look(void)
{
	struct gpu_backend *b = NULL;
	struct gpu_snapshot s = {0};
	struct err e = {0};

	assert_int_equal(fd_mkdirs(dir, &e), 0);
	assert_int_equal(gpu_backend_sim_open("4", dir, &b, &e), 0);
	assert_int_equal(gpu_backend_snapshot(b, &s, &e), 0);
	gpu_backend_free(b);
	return s;
}

static int64_t used(int card)
{
	struct gpu_snapshot s = look();
	int64_t v = s.cards[card].m[METRIC_MEM_USED].v;

	gpu_snapshot_done(&s);
	return v;
}

static uint32_t rows(void)
{
	struct gpu_snapshot s = look();
	uint32_t n = s.n_procs;

	gpu_snapshot_done(&s);
	return n;
}

static void wait_used(int card, int64_t mib)
{
	int64_t until = clock_boot_ms() + 60000;

	while (used(card) != mib) {
		assert_true(clock_boot_ms() < until);
		poll(NULL, 0, 5);
	}
}

static bool has_ended(pid_t pid)
{
	siginfo_t info = {0};

	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT), 0);
	return info.si_pid == pid;
}

/*
 * What lasts for a while is to be seen meanwhile. On a machine that's busy the look may come too late: then it's tried anew,
 * four times as slowly.
 */
struct span {
	const char *args; /* besides the times */
	double for_s; /* or: */
	double ramp_s, hold_s;
	pid_t pid;
};

#define SPAN_MAX_S 40

static bool begin_span(struct span *span, bool was_seen)
{
	char text[256];

	if (was_seen)
		return false;
	for (int i = 0; span->pid && i < 2; i++) {
		span->for_s *= 2;
		span->ramp_s *= 2;
		span->hold_s *= 2;
	}
	if (span->for_s + span->ramp_s > SPAN_MAX_S)
		fail_msg("it's never seen: %s", span->args);
	if (span->for_s > 0)
		snprintf(text, sizeof(text), "%s --ramp 0 --for %g", span->args, span->for_s);
	else
		snprintf(text, sizeof(text), "%s --ramp %g --hold %g", span->args, span->ramp_s,
			span->hold_s);
	span->pid = start(text);
	return true;
}

static bool is_seen(const struct span *span, bool (*look_at)(const struct gpu_snapshot *s))
{
	for (;;) {
		bool is_over = has_ended(span->pid);
		struct gpu_snapshot s = look();
		bool is_there = look_at(&s);

		gpu_snapshot_done(&s);
		if (is_there || is_over)
			return is_there;
		poll(NULL, 0, 5);
	}
}

static bool output_has(const char *text)
{
	CLEANUP(buf_done) struct buf b = {0};

	return fd_read_file_at(AT_FDCWD, out_path, &b, 65536) == 0 &&
	       strstr(buf_str(&b), text) != NULL;
}

static bool holds(const struct gpu_snapshot *s, int card, int64_t mib)
{
	return s->cards[card].m[METRIC_MEM_USED].v == mib;
}

static bool holds_8g_on_two(const struct gpu_snapshot *s)
{
	return holds(s, 1, 8192) && holds(s, 3, 8192) && holds(s, 0, 0) && holds(s, 2, 0);
}

static void holds_it_and_takes_it_away(void **state)
{
	struct span span = {.args = "--vram 8G --exit-code 7", .for_s = 0.6};

	(void)state;
	setenv("CUDA_VISIBLE_DEVICES", "1,3", 1);
	for (bool seen = false; begin_span(&span, seen);) {
		/* What it holds comes onto both at once, or onto none. */
		seen = is_seen(&span, holds_8g_on_two);
		assert_int_equal(ended(span.pid), 7);
		/* Before anybody looks, who would sweep it away. */
		if (seen)
			assert_int_equal(rmdir(dir), 0);
	}
}

static void ramps_up_and_lasts_ramp_plus_hold(void **state)
{
	struct span span = {.args = "--vram 10000", .ramp_s = 0.8, .hold_s = 0.4};

	(void)state;
	for (int64_t begun = clock_boot_ms(), seen = 0; begin_span(&span, seen >= 3);
		begun = clock_boot_ms()) {
		int64_t ramp = (int64_t)(span.ramp_s * 1000), hold = (int64_t)(span.hold_s * 1000);
		bool is_over = false;

		seen = 0;
		for (int64_t last = 0, now; last < 10000 && !is_over; last = now) {
			is_over = has_ended(span.pid);
			now = used(0);
			assert_true(now >= last || has_ended(span.pid));
			seen += now > last && now < 10000;
		}
		assert_true(clock_boot_ms() - begun >= ramp);
		assert_int_equal(ended(span.pid), 0);
		assert_true(clock_boot_ms() - begun >= ramp + hold);
	}
}

static bool holds_100(const struct gpu_snapshot *s)
{
	return holds(s, 0, 100);
}

static bool holds_900(const struct gpu_snapshot *s)
{
	return holds(s, 0, 900);
}

static void peak_in_the_middle(void **state)
{
	struct span span = {.args = "--vram 100 --peak 900", .for_s = 1.5};

	(void)state;
	for (bool seen = false; begin_span(&span, seen);) {
		seen = is_seen(&span, holds_100) && is_seen(&span, holds_900) &&
		       is_seen(&span, holds_100);
		assert_int_equal(ended(span.pid), 0);
	}
}

static void out_of_memory_at_a_size(void **state)
{
	(void)state;
	assert_int_equal(ended(start("--vram 4000 --ramp 5 --oom-at 100")), 1);
	assert_true(output_has("RuntimeError: CUDA out of memory. Tried to allocate 2.50 GiB\n"));
	assert_int_equal(rows(), 0);
}

static void out_of_memory_once(void **state)
{
	char args[256];

	(void)state;
	snprintf(args, sizeof(args), "--vram 1 --ramp 0 --hold 0 --oom-once %s/deep/er/marker",
		work);
	assert_int_equal(ended(start(args)), 1);
	assert_true(output_has("CUDA out of memory"));
	assert_int_equal(ended(start(args)), 0);
}

static void terminated_it_leaves_its_file_which_the_next_look_removes(void **state)
{
	pid_t pid = start("--vram 50 --ramp 0 --for 60");

	(void)state;
	wait_used(0, 50);
	kill(pid, SIGTERM);
	assert_int_equal(ended(pid), -SIGTERM);
	assert_int_equal(rows(), 0);
}

static void ignores_term(void **state)
{
	pid_t pid = start("--vram 50 --ramp 0 --for 60 --ignore-term");
	int status;

	(void)state;
	wait_used(0, 50);
	kill(pid, SIGTERM);
	poll(NULL, 0, 200);
	assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
	kill(pid, SIGKILL);
	assert_int_equal(ended(pid), -SIGKILL);
}

static void saves_on_term(void **state)
{
	char args[256], path[96];
	int64_t begun;
	bool is_there;
	pid_t pid;

	(void)state;
	snprintf(path, sizeof(path), "%s/checkpoint", work);
	snprintf(args, sizeof(args),
		"--vram 50 --ramp 0 --for 60 --save-for 0.4 --exit-code 9 --save-to %s", path);
	pid = start(args);
	wait_used(0, 50);
	begun = clock_boot_ms();
	kill(pid, SIGTERM);
	poll(NULL, 0, 50);
	is_there = access(path, F_OK) == 0;
	/* Unless this process slept so long. */
	assert_false(is_there && clock_boot_ms() - begun < 400);
	assert_int_equal(ended(pid), 0);
	assert_true(clock_boot_ms() - begun >= 400);
	assert_int_equal(access(path, F_OK), 0);
}

static bool three_hold_1000(const struct gpu_snapshot *s)
{
	return holds(s, 0, 1000) && s->n_procs == 3;
}

static void children_share_the_memory(void **state)
{
	struct span span = {.args = "--vram 1000 --children 2", .for_s = 1};

	(void)state;
	for (bool seen = false; begin_span(&span, seen);) {
		seen = is_seen(&span, three_hold_1000);
		assert_int_equal(ended(span.pid), 0);
		assert_int_equal(rows(), 0);
	}
}

static void daemon_outlives_it_in_another_session(void **state)
{
	struct span span = {.args = "--vram 70 --setsid --exit-code 3", .for_s = 1};

	(void)state;
	for (bool seen = false; begin_span(&span, seen);) {
		struct gpu_snapshot s;

		assert_int_equal(ended(span.pid), 3);
		s = look();
		gpu_snapshot_fill_procs(&s);
		seen = s.n_procs == 1 && s.procs[0].sid; /* else it has ended by now */
		if (seen) {
			assert_int_equal(s.procs[0].used_mib.v, 70);
			assert_int_not_equal(s.procs[0].sid, getsid(0));
		}
		gpu_snapshot_done(&s);
		wait_used(0, 0);
	}
}

static void appends_its_token_or_pid(void **state)
{
	CLEANUP(buf_done) struct buf b = {0};
	char args[256], path[96], want[64];
	pid_t pid;

	(void)state;
	snprintf(path, sizeof(path), "%s/judge", work);
	snprintf(args, sizeof(args), "--vram 0 --ramp 0 --hold 0 --append %s", path);
	setenv("GPUSTOW_TOKEN", "0123456789abcdef", 1);
	assert_int_equal(ended(start(args)), 0);
	unsetenv("GPUSTOW_TOKEN");
	pid = start(args);
	assert_int_equal(ended(pid), 0);
	snprintf(want, sizeof(want), "0123456789abcdef\n%d\n", (int)pid);
	assert_int_equal(fd_read_file_at(AT_FDCWD, path, &b, 4096), 0);
	assert_string_equal(buf_str(&b), want);
}

static bool holds_33_on_2(const struct gpu_snapshot *s)
{
	return holds(s, 2, 33);
}

static void cards_by_uuid_and_none(void **state)
{
	char uuid[GPU_UUID_LEN];
	struct span span = {.args = "--vram 33", .for_s = 0.5};
	struct err e = {0};
	pid_t pid;

	(void)state;
	assert_int_equal(fd_mkdirs(dir, &e), 0);
	sim_uuid(dir, 2, uuid);
	setenv("CUDA_VISIBLE_DEVICES", uuid, 1);
	for (bool seen = false; begin_span(&span, seen);) {
		seen = is_seen(&span, holds_33_on_2);
		assert_int_equal(ended(span.pid), 0);
	}
	setenv("CUDA_VISIBLE_DEVICES", "", 1);
	pid = start("--vram 33 --ramp 0 --for 0.3");
	poll(NULL, 0, 150);
	assert_int_equal(rows(), 0);
	assert_int_equal(ended(pid), 0);
}

static void bad_arguments_are_usage_errors(void **state)
{
	static const char *const bad[] = {"", "--vram 5Q", "--vram -5", "--vram 1 --ramp soon",
		"--vram 1 --for 5x", "--vram 1 --peak big", "--vram 1 --exit-code 256",
		"--vram 1 --children 65"};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		int code = ended(start(bad[i]));

		if (code != 2)
			fail_msg("\"%s\": %d", bad[i], code);
	}
	assert_true(output_has("--vram is missing"));
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(holds_it_and_takes_it_away),
		T(ramps_up_and_lasts_ramp_plus_hold),
		T(peak_in_the_middle),
		T(out_of_memory_at_a_size),
		T(out_of_memory_once),
		T(terminated_it_leaves_its_file_which_the_next_look_removes),
		T(ignores_term),
		T(saves_on_term),
		T(children_share_the_memory),
		T(daemon_outlives_it_in_another_session),
		T(appends_its_token_or_pid),
		T(cards_by_uuid_and_none),
		T(bad_arguments_are_usage_errors),
	};

	return cmocka_run_group_tests_name("simjob", tests, NULL, NULL);
}
