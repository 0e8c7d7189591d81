/*
 * Simulated cards: a directory in which each simulated job keeps one file, {"pid": P, "usage": {"0": MiB, ...}},
 * optionally with "start": its start ticks. The directory belongs to whoever named it, so a file is believed only
 * within bounds: what is malformed is passed over, what belongs to a process that is gone is removed.
 */
#include "gpu/gpu_backend.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/parse.h"
#include "gpu/sim_figures.h"
#include "gpu/sim_spec.h"
#include "proc/proc.h"

#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIM_FILE_MAX (64 * 1024)
#define SIM_FILES_MAX 8192

struct sim {
	struct gpu_backend base;
	struct sim_spec spec;
	char *dir;
	char uuid[GPU_MAX][GPU_UUID_LEN];
};

/* The rows under construction: procs has room for GPU_PROC_MAX. */
struct sim_scan {
	const struct sim *sim;
	struct gpu_proc *procs;
	uint32_t n_procs;
	int64_t used_mib[GPU_MAX];
	bool is_busy[GPU_MAX];
};

static void add_usage(struct sim_scan *s, int32_t pid, int64_t card, int64_t mib)
{
	int64_t *used = &s->used_mib[card];
	int64_t total = s->sim->spec.total_mib[card];

	s->is_busy[card] = true;
	*used = mib > total - *used ? total : *used + mib;
	if (s->n_procs == GPU_PROC_MAX)
		return;
	s->procs[s->n_procs++] = (struct gpu_proc){
		.card = (uint32_t)card,
		.kind = GPU_PROC_COMPUTE,
		.pid = pid,
		.used_mib = value_of(mib),
	};
}

static void scan_usage(struct sim_scan *s, int32_t pid, json_t *usage)
{
	const char *key;
	json_t *v;

	json_object_foreach(usage, key, v)
	{
		int64_t card, mib = json_is_integer(v) ? json_integer_value(v) : -1;

		if (parse_int64(key, &card) < 0 || card < 0 || card >= (int64_t)s->sim->spec.n ||
			mib < 0)
			continue;
		add_usage(s, pid, card, mib);
	}
}

static void scan_file(struct sim_scan *s, int dirfd, const char *name)
{
	CLEANUP(buf_done) struct buf b = {0};
	json_t *o, *pid, *usage, *start;
	uint64_t ticks;

	if (fd_read_file_at(dirfd, name, &b, SIM_FILE_MAX) < 0)
		return;
	o = json_loadb(buf_str(&b), b.len, JSON_REJECT_DUPLICATES, NULL);
	pid = json_object_get(o, "pid");
	usage = json_object_get(o, "usage");
	start = json_object_get(o, "start");
	ticks = json_is_integer(start) && json_integer_value(start) > 0
			? (uint64_t)json_integer_value(start)
			: 0;
	if (json_is_integer(pid) && json_integer_value(pid) > 0 &&
		json_integer_value(pid) <= INT_MAX && json_is_object(usage)) {
		int32_t p = (int32_t)json_integer_value(pid);

		if (proc_is_alive(p, ticks))
			scan_usage(s, p, usage);
		else
			unlinkat(dirfd, name, 0);
	}
	json_decref(o);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_entry(const char *name)
{
	size_t n = strlen(name);

	return n > 5 && name[0] != '.' && strcmp(name + n - 5, ".json") == 0;
}

static int scan_dir(struct sim_scan *s, struct err *e)
{
	CLEANUP_CLOSEDIR DIR *d = opendir(s->sim->dir);
	char **names = NULL;
	size_t n = 0, cap = 0;
	struct dirent *ent;

	if (d == NULL)
		return err_sys(
			e, -errno, "cannot read the directory of simulated jobs %s", s->sim->dir);
	while (n < SIM_FILES_MAX && (ent = readdir(d)) != NULL) {
		if (!is_entry(ent->d_name))
			continue;
		GROW(names, n, cap);
		names[n++] = xstrdup(ent->d_name);
	}
	if (n > 0)
		qsort(names, n, sizeof(*names), by_name);
	for (size_t i = 0; i < n; i++) {
		scan_file(s, dirfd(d), names[i]);
		free(names[i]);
	}
	free(names);
	return 0;
}

static void fill_card(
	const struct sim *sim, const struct sim_scan *s, uint32_t i, struct gpu_card *c)
{
	*c = (struct gpu_card){.index = (int32_t)i, .state = GPU_OK, .numa = -1};
	memcpy(c->uuid, sim->uuid[i], sizeof(c->uuid));
	snprintf(c->name, sizeof(c->name), "Simulated GPU");
	for (int m = 0; m < METRIC_N; m++)
		c->m[m] = value_absent(VALUE_UNSUPPORTED);
	c->m[METRIC_MEM_TOTAL] = value_of(sim->spec.total_mib[i]);
	c->m[METRIC_MEM_USED] = value_of(s->used_mib[i]);
	c->m[METRIC_MEM_RESERVED] = value_of(0);
	c->m[METRIC_UTIL_GPU] = value_of(s->is_busy[i] ? 90 : 0);
	c->m[METRIC_MIG_MODE] = value_of(0);
}

static void put_use(struct gpu_snapshot *s)
{
	uint32_t n[GPU_MAX] = {0};

	s->more = xcalloc(s->n_procs, sizeof(*s->more));
	for (uint32_t i = 0; i < s->n_procs; i++)
		n[s->procs[i].card]++;
	for (uint32_t i = 0; i < s->n_procs; i++)
		sim_use(&s->cards[s->procs[i].card], n[s->procs[i].card], &s->more[i]);
}

static int sim_snapshot(struct gpu_backend *b, struct gpu_snapshot *ret, struct err *e)
{
	struct sim *sim = (struct sim *)b;
	struct sim_scan s = {.sim = sim, .procs = xcalloc(GPU_PROC_MAX, sizeof(*s.procs))};
	int r = scan_dir(&s, e);

	if (r < 0) {
		free(s.procs);
		return r;
	}
	ret->n_cards = sim->spec.n;
	ret->cards = xcalloc(sim->spec.n, sizeof(*ret->cards));
	for (uint32_t i = 0; i < sim->spec.n; i++)
		fill_card(sim, &s, i, &ret->cards[i]);
	ret->n_procs = s.n_procs;
	ret->procs = xreallocarray(s.procs, s.n_procs ? s.n_procs : 1, sizeof(*s.procs));
	if (!b->ask.details)
		return 0;
	for (uint32_t i = 0; i < sim->spec.n; i++)
		sim_figures(&ret->cards[i], s.is_busy[i], clock_boot_ms());
	put_use(ret);
	return 0;
}

static void sim_free(struct gpu_backend *b)
{
	struct sim *sim = (struct sim *)b;

	free(sim->dir);
	free(sim);
}

static const struct gpu_backend_impl sim_impl = {
	.name = "sim",
	.has_local_pids = true,
	.snapshot = sim_snapshot,
	.free = sim_free,
};

int gpu_backend_sim_open(const char *spec, const char *dir, struct gpu_backend **ret, struct err *e)
{
	struct sim_spec parsed;
	struct sim *sim;
	int r = sim_spec_parse(spec, &parsed, e);

	if (r < 0)
		return r;
	sim = xcalloc(1, sizeof(*sim));
	sim->base.impl = &sim_impl;
	sim->spec = parsed;
	sim->dir = xstrdup(dir);
	for (uint32_t i = 0; i < parsed.n; i++)
		sim_uuid(dir, i, sim->uuid[i]);
	*ret = &sim->base;
	return 0;
}
