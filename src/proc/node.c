/*
 * Reads the node's amounts (node.h). Each level of the control groups has a say, from the process's own up to the root;
 * in a container its own group is the root, and the levels above can't be seen but for their effect.
 */
#include "proc/node.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/parse.h"
#include "proc/host.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EVERY_MS 1000
#define LIMITS_MS 60000
#define FILE_MAX (256 * 1024)
#define MIB (1024 * 1024)
/* Version 1 writes "no limit" as the largest number of whole pages. */
#define NO_LIMIT (INT64_C(1) << 62)
#define CPUS_MAX 65536

static const char *read_text(const struct node_reader *r, const char *path, struct buf *b)
{
	CLEANUP(buf_done) struct buf full = {0};

	buf_clear(b);
	buf_printf(&full, "%s%s", r->root != NULL ? r->root : "", path);
	return fd_read_file_at(AT_FDCWD, full.data, b, FILE_MAX) < 0 ? "" : buf_str(b);
}

static const char *read_in(
	const struct node_reader *r, const char *dir, const char *name, struct buf *b)
{
	CLEANUP(buf_done) struct buf path = {0};

	buf_printf(&path, "%s/%s", dir, name);
	return read_text(r, path.data, b);
}

/* The whole text is a number, but for its line end; -1 otherwise ("max"). */
static int64_t number_of(const char *text)
{
	char *end;
	long long v = strtoll(text, &end, 10);

	return end == text || v < 0 ? -1 : v;
}

int64_t node_parse_cpu_max(const char *text)
{
	char *end;
	long long quota = strtoll(text, &end, 10), period;

	if (end == text || quota <= 0)
		return -1;
	period = strtoll(end, NULL, 10);
	if (period <= 0 || quota > INT64_MAX / 1000)
		return -1;
	return quota * 1000 / period;
}

int64_t node_parse_key(const char *text, const char *key)
{
	size_t n = strlen(key);

	for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, n) == 0 && line[n] == ' ')
			return number_of(line + n + 1);
	}
	return -1;
}

/* ---- limits ---- */

static void forget_groups(struct node_reader *r)
{
	for (size_t i = 0; i < r->n_groups; i++)
		free(r->groups[i].path);
	r->n_groups = 0;
	r->quota_milli = -1;
}

static void take_quota(struct node_reader *r, int64_t milli)
{
	if (milli > 0 && (r->quota_milli < 0 || milli < r->quota_milli))
		r->quota_milli = milli;
}

static void take_memory(struct node_reader *r, const char *dir, bool is_v2, int64_t limit)
{
	if (limit < 0 || limit >= NO_LIMIT || r->n_groups == NODE_GROUPS_MAX)
		return;
	r->groups[r->n_groups++] = (struct node_group){xstrdup(dir), is_v2, limit};
}

static void look_v2(struct node_reader *r, const char *dir)
{
	CLEANUP(buf_done) struct buf b = {0};

	take_quota(r, node_parse_cpu_max(read_in(r, dir, "cpu.max", &b)));
	take_memory(r, dir, true, number_of(read_in(r, dir, "memory.max", &b)));
}

static void look_v1_cpu(struct node_reader *r, const char *dir)
{
	CLEANUP(buf_done) struct buf b = {0}, period = {0};
	int64_t us = number_of(read_in(r, dir, "cpu.cfs_quota_us", &b)),
		of = number_of(read_in(r, dir, "cpu.cfs_period_us", &period));

	if (us > 0 && of > 0 && us <= INT64_MAX / 1000)
		take_quota(r, us * 1000 / of);
}

static void look_v1_memory(struct node_reader *r, const char *dir)
{
	CLEANUP(buf_done) struct buf b = {0};

	take_memory(r, dir, false, number_of(read_in(r, dir, "memory.limit_in_bytes", &b)));
}

/* That group and all above it, up to the root of the hierarchy. */
static void climb(struct node_reader *r, const char *mount, const char *path, size_t n,
	void (*look)(struct node_reader *r, const char *dir))
{
	for (int level = 0; level < NODE_GROUPS_MAX; level++) {
		CLEANUP(buf_done) struct buf dir = {0};

		while (n > 0 && path[n - 1] == '/')
			n--;
		buf_printf(&dir, "%s%.*s", mount, (int)n, path);
		look(r, dir.data);
		if (n == 0)
			return;
		while (n > 0 && path[n - 1] != '/')
			n--;
	}
}

static bool names(const char *controllers, size_t n, const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i + len <= n; i++)
		if (memcmp(controllers + i, name, len) == 0 &&
			(i == 0 || controllers[i - 1] == ',') &&
			(i + len == n || controllers[i + len] == ','))
			return true;
	return false;
}

/* "0::/user.slice/...", "4:cpu,cpuacct:/...": one line of /proc/self/cgroup. */
static void take_group(struct node_reader *r, const char *line, size_t n)
{
	const char *kind = memchr(line, ':', n), *end = line + n, *path;

	path = kind ? memchr(kind + 1, ':', (size_t)(end - kind - 1)) : NULL;
	if (path == NULL || path + 1 == end || memmem(path, (size_t)(end - path), "/..", 3) != NULL)
		return;
	if (path == kind + 1) {
		climb(r, "/sys/fs/cgroup", path + 1, (size_t)(end - path - 1), look_v2);
		return;
	}
	if (names(kind + 1, (size_t)(path - kind - 1), "cpu"))
		climb(r, "/sys/fs/cgroup/cpu", path + 1, (size_t)(end - path - 1), look_v1_cpu);
	if (names(kind + 1, (size_t)(path - kind - 1), "memory"))
		climb(r, "/sys/fs/cgroup/memory", path + 1, (size_t)(end - path - 1),
			look_v1_memory);
}

static void read_limits(struct node_reader *r, struct buf *b)
{
	const char *line = read_text(r, "/proc/self/cgroup", b);

	forget_groups(r);
	while (*line) {
		size_t n = strcspn(line, "\n");

		take_group(r, line, n);
		line += n + (line[n] == '\n');
	}
}

/* ---- figures ---- */

static int32_t count_cores(const struct node_reader *r)
{
	long online = sysconf(_SC_NPROCESSORS_ONLN);
	cpu_set_t *set = CPU_ALLOC(CPUS_MAX);
	int64_t cores = online > 0 && online <= CPUS_MAX ? online : 0;

	if (set != NULL && sched_getaffinity(0, CPU_ALLOC_SIZE(CPUS_MAX), set) == 0 &&
		CPU_COUNT_S(CPU_ALLOC_SIZE(CPUS_MAX), set) > 0)
		cores = CPU_COUNT_S(CPU_ALLOC_SIZE(CPUS_MAX), set);
	CPU_FREE(set);
	if (cores > 0 && r->quota_milli >= 0 && r->quota_milli / 1000 < cores)
		cores = r->quota_milli / 1000 > 0 ? r->quota_milli / 1000 : 1;
	return (int32_t)cores;
}

/* What the group may still take: files that it has in memory and doesn't use are given up for it. */
static int64_t left_in(const struct node_reader *r, const struct node_group *g)
{
	CLEANUP(buf_done) struct buf b = {0};
	int64_t used = number_of(read_in(
			r, g->path, g->is_v2 ? "memory.current" : "memory.usage_in_bytes", &b)),
		files;

	if (used < 0)
		return -1;
	files = node_parse_key(read_in(r, g->path, "memory.stat", &b),
		g->is_v2 ? "inactive_file" : "total_inactive_file");
	used -= files > 0 && files < used ? files : 0;
	return used < g->limit_bytes ? g->limit_bytes - used : 0;
}

static void read_memory(const struct node_reader *r, struct buf *b, struct node_figures *ret)
{
	const char *text = read_text(r, "/proc/meminfo", b);
	int64_t total_kib, available_kib;

	ret->mem_total_mib = ret->mem_available_mib = -1;
	if (meminfo_kib(text, "MemTotal", &total_kib) == 0)
		ret->mem_total_mib = total_kib / 1024;
	if (meminfo_kib(text, "MemAvailable", &available_kib) == 0)
		ret->mem_available_mib = available_kib / 1024;
	for (size_t i = 0; i < r->n_groups; i++) {
		int64_t limit = r->groups[i].limit_bytes / MIB, left = left_in(r, &r->groups[i]);

		if (ret->mem_total_mib < 0 || limit < ret->mem_total_mib)
			ret->mem_total_mib = limit;
		if (left >= 0 &&
			(ret->mem_available_mib < 0 || left / MIB < ret->mem_available_mib))
			ret->mem_available_mib = left / MIB;
	}
}

void node_read(struct node_reader *r, int64_t now_ms, struct node_figures *ret)
{
	CLEANUP(buf_done) struct buf b = {0};
	struct node_figures f = {0};

	if (r->read_ms != 0 && now_ms - r->read_ms < EVERY_MS) {
		*ret = r->last;
		return;
	}
	if (r->limits_ms == 0 || now_ms - r->limits_ms >= LIMITS_MS) {
		read_limits(r, &b);
		r->limits_ms = now_ms;
	}
	if (gethostname(f.host_name, sizeof(f.host_name) - 1) < 0)
		f.host_name[0] = '\0';
	f.cores = count_cores(r);
	read_memory(r, &b, &f);
	f.oom_kills = node_parse_key(read_text(r, "/proc/vmstat", &b), "oom_kill");
	r->last = *ret = f;
	r->read_ms = now_ms;
}

void node_reader_done(struct node_reader *r)
{
	forget_groups(r);
	free(r->root);
	*r = (struct node_reader){0};
}
