/*
 * What /proc says of processes: control groups, the host, names, and the memory of facts. Numbers in test names are
 * items of the list of what users of GPU monitors ran into.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "gpu/facts.h"
#include "proc/cgroup.h"
#include "proc/host.h"
#include "proc/proc.h"
#include "proc/users.h"

#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void cgroups(void **state)
{
	static const struct {
		const char *text, *container, *pod, *slurm, *unit;
	} cases[] = {
		{"0::/user.slice/user-1000.slice/session-3.scope\n", "", "", "", "session-3.scope"},
		{"0::/system.slice/nginx.service\n", "", "", "", "nginx.service"},
		{"0::/system.slice/docker-" HEX ".scope\n", HEX, "", "", ""},
		{"12:devices:/docker/" HEX "\n", HEX, "", "", ""},
		{"0::/machine.slice/libpod-" HEX ".scope/container\n", HEX, "", "", ""},
		{"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12345678_1234_1234_1234_123456789abc.slice/"
		 "cri-containerd-" HEX ".scope\n",
			HEX, "12345678-1234-1234-1234-123456789abc", "", ""},
		{"4:memory:/kubepods/besteffort/pod12345678-1234-1234-1234-123456789abc/" HEX "\n",
			HEX, "12345678-1234-1234-1234-123456789abc", "", ""},
		{"0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n", "", "",
			"4711.0", "slurmstepd.scope"},
		{"9:memory:/slurm/uid_1000/job_88/step_batch\n1:name=systemd:/system.slice/slurmd.service\n",
			"", "", "88.batch", "slurmd.service"},
		{"0::/\n", "", "", "", ""},
		{"", "", "", "", ""},
		{"0::", "", "", "", ""},
		{"nonsense", "", "", "", ""},
		/* Not Slurm's: a job_ of somebody else. */
		{"0::/user.slice/job_12\n", "", "", "", ""},
		{"0::/system.slice/docker-" HEX "0.scope\n", "", "", "", "docker-" HEX "0.scope"},
		{"0::/slurm/job_99999999999999999999999999\n", "", "", "", ""},
		{"0::/kubepods/pod12345678-1234-1234-1234-123456789ab\x1b[31m\n", "", "", "", ""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct cgroup_names n;

		cgroup_parse(cases[i].text, strlen(cases[i].text), &n);
		assert_string_equal(n.container, cases[i].container);
		assert_string_equal(n.pod, cases[i].pod);
		assert_string_equal(n.slurm_job, cases[i].slurm);
		assert_string_equal(n.unit, cases[i].unit);
	}
}

static void item_04_free_huge_pages_are_not_in_use(void **state)
{
	struct host_figures h = {0};

	(void)state;
	host_parse_meminfo(
		"MemTotal:       1048576 kB\nMemFree: 1 kB\nMemAvailable:    524288 kB\n"
		"SwapTotal: 2048 kB\nSwapFree: 1024 kB\nHugePages_Total:   100\nHugePages_Free:    60\n"
		"Hugepagesize:     2048 kB\n",
		&h);
	assert_int_equal(h.mem_total_mib.v, 1024);
	assert_int_equal(h.mem_used_mib.v, 512 - 120);
	assert_int_equal(h.swap_total_mib.v, 2);
	assert_int_equal(h.swap_used_mib.v, 1);
	host_parse_meminfo("MemTotal: 4096 kB\n", &h);
	assert_int_equal(h.mem_used_mib.state, VALUE_UNSUPPORTED);
	host_parse_meminfo("", &h);
	assert_int_equal(h.mem_total_mib.state, VALUE_FAILED);
}

static void put(const char *root, const char *name, const char *text)
{
	char path[256];
	struct err e = {0};

	snprintf(path, sizeof(path), "%s/%s", root, name);
	*strrchr(path, '/') = '\0';
	assert_int_equal(fd_mkdirs(path, &e), 0);
	path[strlen(path)] = '/';
	assert_int_equal(fd_replace_at(AT_FDCWD, path, text, strlen(text), false), 0);
}

static void w48_host_cpu_is_a_difference(void **state)
{
	char root[] = "/tmp/gpustow-test-host-XXXXXX";
	struct host_reader r = {0};
	struct host_figures h;

	(void)state;
	assert_non_null(mkdtemp(root));
	r.root = strdup(root);
	put(root, "etc/os-release", "ID=x\nPRETTY_NAME=\"A \\\"fine\\\" system 12\"\n");
	put(root, "proc/stat", "cpu  1000 0 1000 8000 0 0 0 0 0 0\ncpu0 1 2 3\n");
	put(root, "proc/loadavg", "0.52 12.5 3 1/234 5\n");
	put(root, "proc/uptime", "123.45 99.9\n");
	host_read(&r, 1000, &h);
	assert_string_equal(h.os, "A \"fine\" system 12");
	assert_true(h.cores > 0 && h.host_name[0] && h.kernel[0] && h.boot_id[0]);
	assert_int_equal(h.cpu_pct.state, VALUE_EMPTY);
	assert_int_equal(h.load_1m_milli.v, 520);
	assert_int_equal(h.load_5m_milli.v, 12500);
	assert_int_equal(h.load_15m_milli.v, 3000);
	assert_int_equal(h.uptime_ms.v, 123450);
	assert_int_equal(h.mem_total_mib.state, VALUE_FAILED);
	/* W-48. Since boot it was 20 %; since the last look it's 75 %. */
	put(root, "proc/stat", "cpu  1150 0 1150 8050 50 0 0 0 0 0\n");
	host_read(&r, 2000, &h);
	assert_int_equal(h.cpu_pct.v, 75);
	/* Too soon: the last holds. */
	put(root, "proc/stat", "cpu  1150 0 1150 9050 50 0 0 0 0 0\n");
	host_read(&r, 2100, &h);
	assert_int_equal(h.cpu_pct.v, 75);
	host_read(&r, 3000, &h);
	assert_int_equal(h.cpu_pct.v, 0);
	put(root, "proc/stat", "nonsense\n");
	host_read(&r, 4000, &h);
	assert_int_equal(h.cpu_pct.state, VALUE_FAILED);
	host_reader_done(&r);
	fd_remove_tree_at(AT_FDCWD, root);
}

static void item_68_a_uid_without_a_name_is_empty(void **state)
{
	struct users *u = users_new();
	int64_t until = clock_boot_ms() + 60000;

	(void)state;
	assert_string_equal(users_name(u, 0, 1), "");
	assert_string_equal(users_name(u, 3999999999u, 1), "");
	while (strcmp(users_name(u, 0, clock_boot_ms()), "root") != 0 && clock_boot_ms() < until)
		users_turn(u, clock_boot_ms(), 100);
	assert_string_equal(users_name(u, 0, clock_boot_ms()), "root");
	assert_string_equal(users_name(u, 3999999999u, clock_boot_ms()), "");
	assert_string_equal(users_name(u, (uint32_t)-1, 1), "");
	users_free(u);
}

/* A child whose name and arguments are hostile bytes; it sleeps, or burns its CPU. */
static pid_t hostile_child(bool burns)
{
	int p[2];
	char c;
	pid_t pid;

	assert_int_equal(pipe(p), 0);
	pid = fork();
	if (pid == 0) {
		char comm[16] = "\x1b]52;c;\xc2\x9b"
				"\xff\n\xe4\xb8\xad";

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, comm);
		setenv("GPUSTOW_MARK", "x", 1);
		assert_int_equal(write(p[1], "x", 1), 1);
		for (;;) {
			if (!burns)
				pause();
		}
	}
	close(p[1]);
	assert_int_equal(read(p[0], &c, 1), 1);
	close(p[0]);
	return pid;
}

static void end_child(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static struct gpu_snapshot rows_of(pid_t a, pid_t b)
{
	struct gpu_snapshot s = {.n_procs = 2};

	s.procs = calloc(2, sizeof(*s.procs));
	s.more = calloc(2, sizeof(*s.more));
	s.procs[0] = (struct gpu_proc){.card = 0, .pid = a, .gi = 1};
	s.procs[1] = (struct gpu_proc){.card = 1, .pid = b, .gi = 2};
	s.more[0].sm_pct = value_of(11);
	s.more[1].sm_pct = value_of(22);
	return s;
}

static uint64_t ticks_of(pid_t pid)
{
	struct proc_stat st;

	assert_int_equal(proc_read_stat(pid, &st), 0);
	return st.cpu_ticks;
}

/* In per cent of a core. */
static uint64_t pct_of(uint64_t ticks, int64_t ms)
{
	return ticks * 100000 / ((uint64_t)sysconf(_SC_CLK_TCK) * (uint64_t)ms);
}

/* Not over its life: busy at first, then stopped. */
static void w48_process_cpu_is_a_difference(void **state)
{
	pid_t pid = hostile_child(true);
	struct facts *f = facts_new();
	struct gpu_snapshot s = rows_of(pid, pid);

	(void)state;
	facts_fill(f, &s, clock_boot_ms(), clock_wall_ms());
	gpu_snapshot_done(&s);
	poll(NULL, 0, 400);
	s = rows_of(pid, pid);
	facts_fill(f, &s, clock_boot_ms(), clock_wall_ms());
	assert_true(s.more[0].cpu_pct.v > 0);
	gpu_snapshot_done(&s);
	kill(pid, SIGSTOP);
	/* What it had before it stopped is between these two. */
	poll(NULL, 0, 400);
	s = rows_of(pid, pid);
	facts_fill(f, &s, clock_boot_ms(), clock_wall_ms());
	gpu_snapshot_done(&s);
	poll(NULL, 0, 400);
	s = rows_of(pid, pid);
	facts_fill(f, &s, clock_boot_ms(), clock_wall_ms());
	assert_int_equal(s.more[0].cpu_pct.state, VALUE_PRESENT);
	assert_int_equal(s.more[0].cpu_pct.v, 0);
	gpu_snapshot_done(&s);
	kill(pid, SIGCONT);
	end_child(pid);
	facts_free(f);
}

static void items_63_24_host_facts_once_gpu_facts_by_card(void **state)
{
	pid_t pid = hostile_child(true);
	struct facts *f = facts_new();
	struct gpu_snapshot s = rows_of(pid, pid);
	int64_t now = clock_boot_ms(), wall = clock_wall_ms(), until = now + 60000, later;
	uint64_t before[2] = {ticks_of(pid)}, after[2];

	(void)state;
	facts_fill(f, &s, now, wall);
	before[1] = ticks_of(pid);
	assert_int_equal(s.procs[0].uid, getuid());
	assert_true(s.procs[0].start_ticks > 0);
	assert_int_equal(s.more[0].cpu_pct.state, VALUE_EMPTY);
	assert_true(value_is_present(s.more[1].rss_mib));
	assert_int_equal(s.more[0].sm_pct.v, 11);
	assert_int_equal(s.more[1].sm_pct.v, 22);
	assert_int_equal(s.procs[1].gi, 2);
	assert_int_equal(s.procs[1].start_ticks, s.procs[0].start_ticks);
	assert_in_range(s.more[0].start_wall_ms, wall - 10000, wall + 2000);
	assert_true(strlen(s.more[0].cmdline) > 0);
	gpu_snapshot_done(&s);
	/* However long that takes it: others want the processor, too. */
	while (ticks_of(pid) < before[1] + 20 && clock_boot_ms() < until)
		poll(NULL, 0, 10);
	poll(NULL, 0, 250);
	s = rows_of(pid, 2147483647);
	later = clock_boot_ms();
	after[0] = ticks_of(pid);
	facts_fill(f, &s, later, clock_wall_ms());
	after[1] = ticks_of(pid);
	assert_true(value_is_present(s.more[0].cpu_pct));
	assert_in_range(s.more[0].cpu_pct.v, pct_of(after[0] - before[1], later - now),
		pct_of(after[1] - before[0], later - now));
	/* A process that is gone keeps its row, and nothing is made up about it. */
	assert_int_equal(s.procs[1].uid, (uint32_t)-1);
	assert_int_equal(s.procs[1].start_ticks, 0);
	assert_int_equal(s.more[1].cpu_pct.state, VALUE_NOT_ASKED);
	assert_int_equal(s.more[1].sm_pct.v, 22);
	gpu_snapshot_done(&s);
	end_child(pid);
	s = rows_of(pid, pid);
	facts_fill(f, &s, clock_boot_ms(), clock_wall_ms());
	assert_int_equal(s.procs[0].start_ticks, 0);
	assert_string_equal(s.more[0].cmdline, "");
	gpu_snapshot_done(&s);
	facts_free(f);
}

/* exec keeps pid and start: another name means another program. */
static void facts_follow_an_exec(void **state)
{
	struct facts *f = facts_new();
	int64_t until = clock_boot_ms() + 60000;
	struct gpu_snapshot s;
	int p[2];
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(p), 0);
	pid = fork();
	if (pid == 0) {
		char c;

		if (read(p[0], &c, 1) == 1)
			execl("/bin/sleep", "\x1b[31m", "1000", (char *)NULL);
		_exit(1);
	}
	s = rows_of(pid, pid);
	facts_fill(f, &s, clock_boot_ms(), clock_wall_ms());
	assert_null(strstr(s.more[0].cmdline, "sleep"));
	gpu_snapshot_done(&s);
	assert_int_equal(write(p[1], "x", 1), 1);
	for (;;) {
		s = rows_of(pid, pid);
		facts_fill(f, &s, clock_boot_ms(), clock_wall_ms());
		/* The name comes a moment before the arguments. */
		if (strcmp(s.procs[0].comm, "sleep") == 0 && s.more[0].cmdline[0])
			break;
		gpu_snapshot_done(&s);
		assert_true(clock_boot_ms() < until);
		poll(NULL, 0, 10);
	}
	/* Arguments as they are: bytes are cleaned where they're shown. */
	assert_string_equal(s.more[0].cmdline, "\x1b[31m 1000");
	gpu_snapshot_done(&s);
	end_child(pid);
	close(p[0]);
	close(p[1]);
	facts_free(f);
}

/* This program's own, where ps reads them. */
static char *own_arguments;

/* In the middle of an exec there are none for a moment. They're read with the next look, not half a minute later. */
static void arguments_that_come_late(void **state)
{
	struct facts *f = facts_new();
	int64_t now = clock_boot_ms();
	struct gpu_snapshot s;
	int ready[2], go[2];
	char byte;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(ready), 0);
	assert_int_equal(pipe(go), 0);
	pid = fork();
	if (pid == 0) {
		size_t n = strlen(own_arguments);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		memset(own_arguments, 0, n);
		if (write(ready[1], "x", 1) != 1 || read(go[0], &byte, 1) != 1)
			_exit(1);
		memset(own_arguments, 'a', n);
		if (write(ready[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	for (int i = 0; i < 2; i++) {
		assert_int_equal(read(ready[0], &byte, 1), 1);
		s = rows_of(pid, pid);
		facts_fill(f, &s, now + i, clock_wall_ms());
		assert_int_equal(s.more[0].cmdline[0], i ? 'a' : 0);
		gpu_snapshot_done(&s);
		if (!i)
			assert_int_equal(write(go[1], "x", 1), 1);
	}
	end_child(pid);
	for (int i = 0; i < 2; i++) {
		close(ready[i]);
		close(go[i]);
	}
	facts_free(f);
}

static void item_23_names_are_raw_here(void **state)
{
	pid_t pid = hostile_child(false);
	struct facts *f = facts_new();
	struct gpu_snapshot s = rows_of(pid, pid);

	(void)state;
	facts_fill(f, &s, clock_boot_ms(), clock_wall_ms());
	assert_non_null(strchr(s.procs[0].comm, 0x1b));
	gpu_snapshot_done(&s);
	end_child(pid);
	facts_free(f);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cgroups),
		cmocka_unit_test(item_04_free_huge_pages_are_not_in_use),
		cmocka_unit_test(w48_host_cpu_is_a_difference),
		cmocka_unit_test(w48_process_cpu_is_a_difference),
		cmocka_unit_test(item_68_a_uid_without_a_name_is_empty),
		cmocka_unit_test(items_63_24_host_facts_once_gpu_facts_by_card),
		cmocka_unit_test(facts_follow_an_exec),
		cmocka_unit_test(arguments_that_come_late),
		cmocka_unit_test(item_23_names_are_raw_here),
	};

	(void)argc;
	own_arguments = argv[0];
	return cmocka_run_group_tests_name("facts", tests, NULL, NULL);
}
