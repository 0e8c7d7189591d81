/* The node's own amounts, on trees of files that look like /proc and /sys; and on this machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "proc/node.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[] = "/tmp/gpustow-node-XXXXXX";

static int set_up(void **state)
{
	memcpy(dir + sizeof(dir) - 7, "XXXXXX", 6);
	return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
	return fd_remove_tree_at(AT_FDCWD, dir);
}

static void put(const char *name, const char *text)
{
	CLEANUP(buf_done) struct buf path = {0};

	buf_printf(&path, "%s%s", dir, name);
	*strrchr(path.data, '/') = '\0';
	assert_int_equal(fd_mkdirs(path.data, NULL), 0);
	path.data[strlen(path.data)] = '/';
	assert_int_equal(fd_replace_at(AT_FDCWD, path.data, text, strlen(text), false), 0);
}

static struct node_figures read_at(struct node_reader *r, int64_t now_ms)
{
	struct node_figures f;

	if (!r->root)
		r->root = xstrdup(dir);
	node_read(r, now_ms, &f);
	return f;
}

#define MEMINFO "MemTotal:       16384000 kB\nMemFree: 1 kB\nMemAvailable:    8192000 kB\n"

static void a_machine_without_groups(void **state)
{
	CLEANUP(node_reader_done) struct node_reader r = {0};
	struct node_figures f;

	put("/proc/meminfo", MEMINFO);
	put("/proc/vmstat", "nr_free_pages 3\noom_kill_not 9\noom_kill 4\npgfault 1\n");
	f = read_at(&r, 1);
	assert_int_equal(f.mem_total_mib, 16000);
	assert_int_equal(f.mem_available_mib, 8000);
	assert_int_equal(f.oom_kills, 4);
	assert_true(f.cores > 0);
	assert_true(f.host_name[0] != '\0');
}

static void nothing_can_be_read(void **state)
{
	CLEANUP(node_reader_done) struct node_reader r = {0};
	struct node_figures f = read_at(&r, 1);

	assert_int_equal(f.mem_total_mib, -1);
	assert_int_equal(f.mem_available_mib, -1);
	assert_int_equal(f.oom_kills, -1);
	assert_true(f.cores > 0);
}

/* The narrowest level decides, be it the own one or one above. */
static void limits_of_version_2(void **state)
{
	CLEANUP(node_reader_done) struct node_reader r = {0};
	struct node_figures f;

	put("/proc/meminfo", MEMINFO);
	put("/proc/self/cgroup", "0::/user.slice/user-7.slice/x.scope\n");
	put("/sys/fs/cgroup/user.slice/cpu.max", "400000 100000\n");
	put("/sys/fs/cgroup/user.slice/memory.max", "max\n");
	put("/sys/fs/cgroup/user.slice/user-7.slice/cpu.max", "150000 100000\n");
	put("/sys/fs/cgroup/user.slice/user-7.slice/memory.max", "2147483648\n");
	put("/sys/fs/cgroup/user.slice/user-7.slice/memory.current", "1610612736\n");
	put("/sys/fs/cgroup/user.slice/user-7.slice/memory.stat",
		"anon 5\ninactive_file 536870912\n");
	put("/sys/fs/cgroup/user.slice/user-7.slice/x.scope/memory.max", "max\n");
	f = read_at(&r, 1);
	assert_int_equal(f.cores, 1);
	assert_int_equal(f.mem_total_mib, 2048);
	assert_int_equal(f.mem_available_mib, 2048 - 1536 + 512);
}

/* In a container the path is the host's, and what can be seen is the root only. */
static void limits_of_version_1(void **state)
{
	CLEANUP(node_reader_done) struct node_reader r = {0};
	struct node_figures f;

	put("/proc/meminfo", MEMINFO);
	put("/proc/self/cgroup", "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n2:cpuset:/\n");
	put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
	put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
	put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
	put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "2147483648\n");
	f = read_at(&r, 1);
	assert_int_equal(f.cores, 1);
	assert_int_equal(f.mem_total_mib, 1024);
	assert_int_equal(f.mem_available_mib, 0);
}

static void no_limit_of_version_1(void **state)
{
	CLEANUP(node_reader_done) struct node_reader r = {0};

	put("/proc/meminfo", MEMINFO);
	put("/proc/self/cgroup", "4:memory:/\n3:cpu,cpuacct:/\nnonsense\n::\n0::/../x\n");
	put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
	put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
	put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	assert_int_equal(read_at(&r, 1).mem_total_mib, 16000);
}

/* Once a second, however often it's asked; limits once a minute. */
static void it_is_read_seldom(void **state)
{
	CLEANUP(node_reader_done) struct node_reader r = {0};

	put("/proc/meminfo", MEMINFO);
	assert_int_equal(read_at(&r, 1000).mem_total_mib, 16000);
	put("/proc/meminfo", "MemTotal: 1024 kB\n");
	assert_int_equal(read_at(&r, 1999).mem_total_mib, 16000);
	assert_int_equal(read_at(&r, 2000).mem_total_mib, 1);
	put("/proc/meminfo", MEMINFO);
	put("/proc/self/cgroup", "0::/\n");
	put("/sys/fs/cgroup/memory.max", "1048576\n");
	assert_int_equal(read_at(&r, 4000).mem_total_mib, 16000);
	assert_int_equal(read_at(&r, 61000).mem_total_mib, 1);
}

static void quotas(void **state)
{
	assert_int_equal(node_parse_cpu_max("max 100000"), -1);
	assert_int_equal(node_parse_cpu_max(""), -1);
	assert_int_equal(node_parse_cpu_max("250000 100000\n"), 2500);
	assert_int_equal(node_parse_cpu_max("250000 0\n"), -1);
	assert_int_equal(node_parse_cpu_max("-1 100000\n"), -1);
	assert_int_equal(node_parse_key("a 1\nab 2\n", "ab"), 2);
	assert_int_equal(node_parse_key("xab 2\n", "ab"), -1);
}

static void this_machine(void **state)
{
	struct node_reader r = {.root = xstrdup("")};
	struct node_figures f;

	node_read(&r, 1, &f);
	assert_true(f.cores > 0 && f.cores <= sysconf(_SC_NPROCESSORS_CONF));
	assert_true(f.mem_total_mib > 0 && f.mem_available_mib >= 0);
	assert_true(f.mem_available_mib <= f.mem_total_mib);
	node_reader_done(&r);
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_machine_without_groups),
		T(nothing_can_be_read),
		T(limits_of_version_2),
		T(limits_of_version_1),
		T(no_limit_of_version_1),
		T(it_is_read_seldom),
		T(quotas),
		T(this_machine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
