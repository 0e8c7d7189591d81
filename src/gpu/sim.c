/*
 * Simulated cards: a directory in which each simulated job keeps one file, {"pid": P, "usage": {"0": MiB, ...}},
 * optionally with "start": its start ticks. A key is a card's index, or the UUID of a card or of a MIG instance. The
 * directory belongs to whoever named it, so a file is believed only within bounds: what is malformed is passed over, what
 * belongs to a process that is gone is removed.
 *
 * A file `ills.N` makes card N unwell, for tests and demos. Each line is a number, an XID error (a line more is one XID
 * more), or a word: "reset" (the driver asks for a reset), "pending" (a memory row waits for one), "lost".
 */
#include "gpu/gpu_backend.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/parse.h"
#include "core/xid.h"
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
	/* By position: the whole cards, then the instances of the first that's cut, and so on. */
	char uuid[GPU_MAX][GPU_UUID_LEN];
	int64_t total_mib[GPU_MAX];
	uint32_t parent[GPU_MAX],
		instance[GPU_MAX]; /* parent: the position itself for a whole card */
	struct gpu_xid xid[GPU_MAX]; /* of whole cards */
};

struct sim_ills {
	int64_t n_xids;
	bool needs_reset, has_pending, is_lost;
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
	int64_t total = s->sim->total_mib[card];

	s->is_busy[card] = true;
	*used = mib > total - *used ? total : *used + mib;
	if (s->n_procs == GPU_PROC_MAX)
		return;
	s->procs[s->n_procs++] = (struct gpu_proc){
		.card = (uint32_t)card,
		.kind = GPU_PROC_COMPUTE,
		.pid = pid,
		.used_mib = value_of(mib),
		.gi = s->sim->parent[card] != card ? (int32_t)s->sim->instance[card] + 2 : 0,
		.ci = s->sim->parent[card] != card,
	};
}

/* -1: none of ours. */
static int64_t position_of(const struct sim *sim, const char *key)
{
	int64_t index;

	if (parse_int64(key, &index) == 0)
		return index >= 0 && index < (int64_t)sim->spec.n ? index : -1;
	for (uint32_t i = 0; i < sim->spec.n_all; i++) {
		if (strcmp(key, sim->uuid[i]) == 0)
			return i;
	}
	return -1;
}

static void scan_usage(struct sim_scan *s, int32_t pid, json_t *usage)
{
	const char *key;
	json_t *v;

	json_object_foreach(usage, key, v)
	{
		int64_t mib = json_is_integer(v) ? json_integer_value(v) : -1;
		int64_t card = position_of(s->sim, key);

		if (card >= 0 && mib >= 0)
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

/* As the driver's events are taken (nvml_event.c): one that stands for nothing new leaves the earlier one its date. */
static void take_xid(int64_t xid, struct gpu_xid *x)
{
	int64_t now_ms = clock_boot_ms();

	x->count++;
	if (!xid_replaces(xid, x->last, now_ms - x->boot_ms))
		return;
	x->last = xid;
	x->boot_ms = now_ms;
}

/* *x: what was told of XIDs so far. */
static void take_ill(const char *line, struct sim_ills *ret, struct gpu_xid *x)
{
	int64_t xid;

	if (strcmp(line, "reset") == 0) {
		ret->needs_reset = true;
	} else if (strcmp(line, "pending") == 0) {
		ret->has_pending = true;
	} else if (strcmp(line, "lost") == 0) {
		ret->is_lost = true;
	} else if (parse_int64(line, &xid) == 0 && xid > 0 && xid <= INT32_MAX) {
		if (++ret->n_xids > x->count)
			take_xid(xid, x);
	}
}

static struct sim_ills read_ills(struct sim *sim, uint32_t card)
{
	CLEANUP(buf_done) struct buf path = {0}, b = {0};
	struct sim_ills ills = {0};

	buf_printf(&path, "%s/ills.%u", sim->dir, card);
	if (fd_read_file_at(AT_FDCWD, path.data, &b, SIM_FILE_MAX) < 0 || b.len == 0)
		return ills;
	for (char *line = b.data, *end = line + b.len; line < end;) {
		size_t n = strcspn(line, "\n");

		line[n] = '\0';
		take_ill(line, &ills, &sim->xid[card]);
		line += n + 1;
	}
	return ills;
}

static void fill_ills(struct sim *sim, uint32_t i, struct gpu_card *c)
{
	struct sim_ills ills = read_ills(sim, i);

	c->xid = sim->xid[i];
	c->m[METRIC_RECOVERY] = value_of(ills.needs_reset);
	if (ills.has_pending)
		c->m[METRIC_REMAP_PENDING] = value_of(1);
	if (!ills.is_lost)
		return;
	c->state = GPU_LOST;
	for (int m = 0; m < METRIC_N; m++)
		c->m[m] = value_absent(VALUE_LOST);
}

/* What every card has, whole or not. */
static void fill_common(
	const struct sim *sim, const struct sim_scan *s, uint32_t i, struct gpu_card *c)
{
	*c = (struct gpu_card){.index = (int32_t)sim->parent[i], .state = GPU_OK, .numa = -1};
	memcpy(c->uuid, sim->uuid[i], sizeof(c->uuid));
	for (int m = 0; m < METRIC_N; m++)
		c->m[m] = value_absent(VALUE_UNSUPPORTED);
	c->m[METRIC_MEM_TOTAL] = value_of(sim->total_mib[i]);
	c->m[METRIC_MEM_USED] = value_of(s->used_mib[i]);
	c->m[METRIC_MEM_RESERVED] = value_of(0);
}

static void fill_card(struct sim *sim, const struct sim_scan *s, uint32_t i, struct gpu_card *c)
{
	fill_common(sim, s, i, c);
	snprintf(c->name, sizeof(c->name), "Simulated GPU");
	c->m[METRIC_UTIL_GPU] = value_of(s->is_busy[i] ? 90 : 0);
	c->m[METRIC_MIG_MODE] = value_of(sim->spec.n_mig[i] > 0);
	/* NVML has no use for a card that's cut. */
	if (sim->spec.n_mig[i] > 0)
		c->m[METRIC_UTIL_GPU] = value_absent(VALUE_UNSUPPORTED);
	c->is_mig_parent = sim->spec.n_mig[i] > 0;
	fill_ills(sim, i, c);
}

static void fill_instance(
	const struct sim *sim, const struct sim_scan *s, uint32_t i, struct gpu_card *cards)
{
	const struct gpu_card *parent = &cards[sim->parent[i]];
	struct gpu_card *c = &cards[i];
	int64_t slices = sim->total_mib[i] * 7 / sim->total_mib[sim->parent[i]];

	fill_common(sim, s, i, c);
	memcpy(c->parent, parent->uuid, sizeof(c->parent));
	c->state = parent->state;
	c->gi = (int32_t)sim->instance[i] + 2; /* the first has the id 1 */
	c->ci = 1;
	snprintf(c->profile, sizeof(c->profile), "%dg.%dgb", (int)(slices > 0 ? slices : 1),
		(int)((sim->total_mib[i] + 512) / 1024));
	snprintf(c->name, sizeof(c->name), "Simulated GPU MIG %s", c->profile);
	if (parent->state != GPU_OK)
		memcpy(c->m, parent->m, sizeof(c->m));
}

static void put_use(struct gpu_snapshot *s)
{
	uint32_t n[GPU_MAX] = {0};

	s->more = xcalloc(s->n_procs, sizeof(*s->more));
	for (uint32_t i = 0; i < s->n_procs; i++)
		n[s->procs[i].card]++;
	for (uint32_t i = 0; i < s->n_procs; i++) {
		struct gpu_proc_more *m = &s->more[i];

		if (gpu_is_instance(&s->cards[s->procs[i].card]))
			m->sm_pct = m->mem_pct = m->enc_pct = m->dec_pct =
				value_absent(VALUE_UNSUPPORTED);
		else
			sim_use(&s->cards[s->procs[i].card], n[s->procs[i].card], m);
	}
}

static void put_figures(struct gpu_card *c, bool is_busy)
{
	int64_t now_ms = clock_boot_ms();

	sim_figures(c, is_busy, now_ms);
	if (c->is_mig_parent)
		c->m[METRIC_UTIL_GPU] = value_absent(VALUE_UNSUPPORTED);
	if (c->xid.count > 0)
		c->m[METRIC_XID_LAST_TIME] = value_of(clock_wall_ms() - (now_ms - c->xid.boot_ms));
}

static void put_details(const struct sim *sim, const struct sim_scan *scan, struct gpu_snapshot *s)
{
	s->instances = xcalloc(GPU_INSTANCE_MAX, sizeof(*s->instances));
	for (uint32_t i = 0; i < s->n_cards; i++) {
		struct gpu_card *c = &s->cards[i];
		struct gpu_instance *g;

		if (!gpu_is_instance(c)) {
			if (c->state == GPU_OK)
				put_figures(c, scan->is_busy[i]);
			if (c->state == GPU_OK && sim->base.ask.profiling)
				sim_profile(c, clock_boot_ms());
			continue;
		}
		g = &s->instances[s->n_instances++];
		*g = (struct gpu_instance){.card = sim->parent[i],
			.gi = c->gi,
			.ci = c->ci,
			.mem_total_mib = c->m[METRIC_MEM_TOTAL],
			.mem_used_mib = c->m[METRIC_MEM_USED],
			.sm_count = value_absent(VALUE_UNSUPPORTED)};
		memcpy(g->uuid, c->uuid, sizeof(g->uuid));
		memcpy(g->profile, c->profile, sizeof(g->profile));
	}
	if (sim->base.ask.profiling)
		s->profiling.source = PROFILE_SIM;
	put_use(s);
}

/* The memory of a card that's cut is used by its instances. */
static void add_to_parents(const struct sim *sim, struct sim_scan *s)
{
	for (uint32_t i = sim->spec.n; i < sim->spec.n_all; i++) {
		s->used_mib[sim->parent[i]] += s->used_mib[i];
		s->is_busy[sim->parent[i]] |= s->is_busy[i];
	}
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
	add_to_parents(sim, &s);
	ret->n_cards = sim->spec.n_all;
	ret->cards = xcalloc(ret->n_cards, sizeof(*ret->cards));
	for (uint32_t i = 0; i < sim->spec.n; i++)
		fill_card(sim, &s, i, &ret->cards[i]);
	for (uint32_t i = sim->spec.n; i < ret->n_cards; i++)
		fill_instance(sim, &s, i, ret->cards);
	ret->n_procs = s.n_procs;
	ret->procs = xreallocarray(s.procs, s.n_procs ? s.n_procs : 1, sizeof(*s.procs));
	if (b->ask.details)
		put_details(sim, &s, ret);
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

static void place_cards(struct sim *sim)
{
	uint32_t at = sim->spec.n;

	for (uint32_t i = 0; i < sim->spec.n; i++) {
		sim_uuid(sim->dir, i, sim->uuid[i]);
		sim->total_mib[i] = sim->spec.total_mib[i];
		sim->parent[i] = i;
		for (uint32_t k = 0; k < sim->spec.n_mig[i]; k++, at++) {
			sim_mig_uuid(sim->dir, i, k, sim->uuid[at]);
			sim->total_mib[at] = sim->spec.mig_mib[i][k];
			sim->parent[at] = i;
			sim->instance[at] = k;
		}
	}
}

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
	place_cards(sim);
	*ret = &sim->base;
	return 0;
}
