/* A monitor's model filled with machines that don't exist: for golden screens, keys and the layout's fuzz. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "tui/monitor_keys.h"
#include "tui/monitor_view.h"

#define WORLD_NOW ((struct view_time){.boot_ms = 1000000, .wall_ms = 1700000000000})
#define HOSTILE "\x1b]52;c;x\x07\xe6\xb7\xb1\xe5\xb1\xa4\xff\xe2\x80\xae"

struct world {
	struct monitor m;
	struct frame f;
	struct sample *samples;
	size_t n;
};

static inline void world_set(struct gpu_card *c, enum metric m, int64_t v)
{
	c->m[m] = value_of(v);
}

/* Figures differ from card to card, and are the same each time. */
static inline void world_card(struct gpu_card *c, int index, unsigned seed)
{
	*c = (struct gpu_card){.index = index, .numa = -1};
	for (size_t i = 0; i < METRIC_N; i++)
		c->m[i] = value_absent(VALUE_UNSUPPORTED);
	snprintf(c->uuid, sizeof(c->uuid), "GPU-%08u-0000-0000-0000-%012d", seed, index);
	snprintf(c->name, sizeof(c->name), "NVIDIA A100-SXM4-40GB");
	world_set(c, METRIC_UTIL_GPU, seed * 37 % 101);
	world_set(c, METRIC_UTIL_MEM, seed * 17 % 101);
	world_set(c, METRIC_MEM_TOTAL, 40960);
	world_set(c, METRIC_MEM_USED, seed * 7919 % 40961);
	world_set(c, METRIC_TEMP, 30 + seed * 13 % 60);
	world_set(c, METRIC_FAN, seed * 11 % 101);
	world_set(c, METRIC_POWER, (50 + seed * 29 % 350) * 1000);
	world_set(c, METRIC_POWER_LIMIT, 400000);
	world_set(c, METRIC_PSTATE, seed % 9);
	world_set(c, METRIC_PCIE_GEN, 4);
	world_set(c, METRIC_PCIE_WIDTH, seed % 3 ? 16 : 4);
	world_set(c, METRIC_PCIE_GEN_MAX, 4);
	world_set(c, METRIC_PCIE_WIDTH_MAX, 16);
	world_set(c, METRIC_PCIE_RX, (int64_t)seed * 104729 % 20000000);
	world_set(c, METRIC_PCIE_TX, (int64_t)seed * 1299709 % 9000000);
}

static inline void world_procs(struct sample *s, uint32_t n, unsigned seed)
{
	static const char *const users[] = {"alice", "bob", "carol"};

	s->snap.procs = xcalloc(n, sizeof(*s->snap.procs));
	s->snap.more = xcalloc(n, sizeof(*s->snap.more));
	s->proc_row = xcalloc(n, sizeof(*s->proc_row));
	s->snap.n_procs = n;
	for (uint32_t i = 0; i < n; i++) {
		struct gpu_proc *p = &s->snap.procs[i];
		struct gpu_proc_more *more = &s->snap.more[i];

		*p = (struct gpu_proc){.card = i % s->snap.n_cards,
			.kind = i % 5 ? GPU_PROC_COMPUTE : GPU_PROC_COMPUTE | GPU_PROC_GRAPHICS,
			.pid = (int)(1000 + seed * 100 + i),
			.start_ticks = 5000 + i,
			.used_mib = value_of(300 + i * 777 % 9000),
			.uid = 1000 + i % 3};
		snprintf(p->comm, sizeof(p->comm), "python");
		if (i >= s->snap.n_cards) {
			p->n_ancestors = 1;
			p->ancestors[0] = s->snap.procs[i - s->snap.n_cards].pid;
		}
		more->cpu_pct = value_of(i * 53 % 800);
		more->rss_mib = value_of(100 + i * 991 % 30000);
		more->start_wall_ms = 1700000000000 - (int64_t)(i + 1) * 1234567;
		more->state = i % 4 ? 'S' : 'R';
		more->threads = (int32_t)(i % 64 + 1);
		snprintf(more->user, sizeof(more->user), "%s", users[i % 3]);
		snprintf(more->cmdline, sizeof(more->cmdline),
			"python -m train --config configs/experiment-%u.yaml --lr 0.001 --resume",
			i);
	}
}

static inline void world_sample(struct sample *s, uint32_t n_cards, uint32_t n_procs, unsigned seed)
{
	*s = (struct sample){.wall_ms = 1700000000000, .with_details = true, .has_host = true};
	s->snap = (struct gpu_snapshot){.n_cards = n_cards, .has_details = true};
	s->snap.cards = xcalloc(n_cards ? n_cards : 1, sizeof(*s->snap.cards));
	s->promised_mib = xcalloc(n_cards ? n_cards : 1, sizeof(*s->promised_mib));
	snprintf(s->snap.source, sizeof(s->snap.source), n_cards ? "nvml" : "none");
	snprintf(s->snap.driver, sizeof(s->snap.driver), "550.54.15");
	snprintf(s->snap.cuda, sizeof(s->snap.cuda), "12.4");
	for (uint32_t i = 0; i < n_cards; i++)
		world_card(&s->snap.cards[i], (int)i, seed * 8 + i);
	if (n_cards && n_procs)
		world_procs(s, n_procs, seed);
	snprintf(s->host.host_name, sizeof(s->host.host_name), "desk");
	snprintf(s->host.os, sizeof(s->host.os), "Debian GNU/Linux 12 (bookworm)");
	snprintf(s->host.kernel, sizeof(s->host.kernel), "6.1.0-18-amd64");
	s->host.cores = 32;
	s->host.cpu_pct = value_of(seed * 31 % 101);
	s->host.mem_total_mib = value_of(128 * 1024);
	s->host.mem_used_mib = value_of(40 * 1024);
	s->host.load_1m_milli = value_of(3140);
}

static inline void world_node(struct world *w, size_t i, const char *name, const char *address,
	const char *state, const char *why, int64_t at_ms)
{
	bool is_well = !strcmp(state, "up") || !strcmp(state, "none");
	struct show_host h = {.name = name,
		.address = address,
		.state = state,
		.why = why,
		.has_answered = is_well,
		.sample = is_well || !strcmp(state, "suspect") ? &w->samples[i] : NULL,
		.sample_age_ms = 500,
		.connected_ms = 120,
		.hello_ms = 180,
		.first_sample_ms = 260,
		.rtt_ms = 3};

	monitor_take(&w->m, i, &h, at_ms);
}

static inline void world_init(struct world *w, size_t n)
{
	*w = (struct world){.n = n};
	monitor_init(&w->m, n);
	frame_init(&w->f);
	w->samples = xcalloc(n ? n : 1, sizeof(*w->samples));
}

/* n_nodes of 8 cards each by SSH, and this machine with n_local. */
static inline void world_make(struct world *w, size_t n_nodes, uint32_t n_local)
{
	world_init(w, n_nodes + 1);
	world_sample(&w->samples[0], n_local, n_local ? 5 : 0, 1);
	for (int64_t at = 0; at < 5; at++)
		world_node(w, 0, "local", NULL, n_local ? "up" : "none", "", 995000 + at * 1000);
	for (size_t i = 1; i <= n_nodes; i++) {
		char name[32], address[64];

		snprintf(name, sizeof(name), "gpu%zu", i);
		snprintf(address, sizeof(address), "alice@gpu%zu.lab:22", i);
		world_sample(&w->samples[i], 8, 12, (unsigned)i + 1);
		for (int64_t at = 0; at < 5; at++)
			world_node(w, i, name, address, "up", "", 995000 + at * 1000);
	}
}

/* A bit of everything: failed nodes, one without cards, wide and hostile names, absent values, MIG, health. */
static inline void world_lab(struct world *w)
{
	struct sample *s;

	world_init(w, 7);
	for (size_t i = 0; i < 7; i++)
		world_sample(&w->samples[i],
			i == 1	 ? 4
			: i == 4 ? 2
				 : 0,
			i == 1 || i == 4 ? 9 : 0, (unsigned)i + 1);
	s = &w->samples[1];
	s->snap.cards[1].m[METRIC_UTIL_GPU] = value_absent(VALUE_EMPTY);
	s->snap.cards[1].m[METRIC_TEMP] = value_absent(VALUE_FORBIDDEN);
	s->snap.cards[1].m[METRIC_MEM_USED] = value_absent(VALUE_FAILED);
	s->snap.cards[2].state = GPU_LOST;
	for (size_t i = 0; i < METRIC_N; i++)
		s->snap.cards[2].m[i] = value_absent(VALUE_LOST);
	world_set(&s->snap.cards[0], METRIC_THROTTLE, 64);
	world_set(&s->snap.cards[0], METRIC_REMAP_PENDING, 1);
	s->rows = xcalloc(1, sizeof(*s->rows));
	s->rows[0] = (struct ledger_row){.name = {.job = 12, .attempt = 1}, .card = 0};
	s->n_rows = 1;
	s->proc_row[0] = 1;
	snprintf(s->snap.more[0].slurm_job, sizeof(s->snap.more[0].slurm_job), "4711");
	snprintf(s->snap.more[0].container, sizeof(s->snap.more[0].container),
		"0123456789abcdef0123456789abcdef");
	snprintf(s->snap.more[4].cmdline, sizeof(s->snap.more[4].cmdline), HOSTILE);
	snprintf(s->snap.more[4].user, sizeof(s->snap.more[4].user), "\xe6\x9d\x8e\xe9\x9b\xb7");
	s->snap.procs[8].used_mib = value_absent(VALUE_UNSUPPORTED);
	world_node(w, 0, "local", NULL, "none", "it has no GPU", 999000);
	world_node(w, 1, "\xe6\xb7\xb1\xe5\xb1\xa4-node", "li@10.0.0.7:22", "up", "", 999000);
	world_node(w, 2, "dead", "alice@dead:22", "down",
		"ssh: connect to host dead port 22: No route to host", 0);
	world_node(w, 3, "locked", "alice@locked:22", "auth",
		"permission denied (publickey,password)", 0);
	world_node(w, 4, HOSTILE, "x@y:22", "suspect",
		"it is connected, but no sample has come for two intervals", 999000);
	world_node(w, 5, "cpu-only", "alice@cpu:22", "none", "it has no GPU", 999000);
	world_node(w, 6, "slow", "alice@slow:22", "connecting", "", 0);
}

static inline void world_done(struct world *w)
{
	monitor_done(&w->m);
	frame_done(&w->f);
	for (size_t i = 0; i < w->n; i++)
		sample_done(&w->samples[i]);
	free(w->samples);
}

static inline void world_draw(struct world *w, int cols, int rows)
{
	monitor_draw(&w->m, &w->f, cols, rows, WORLD_NOW);
}

static inline void world_press(struct world *w, uint32_t key)
{
	struct input_event ev = {.kind = EVENT_KEY, .key = key};

	monitor_event(&w->m, &ev, &w->f, WORLD_NOW.boot_ms);
}

/* One node with figures (a card without), one that says why it has none. */
static inline void world_profile(struct world *w)
{
	struct sample *s;

	world_lab(w);
	w->m.wants_dcgm = true;
	s = &w->samples[1];
	s->with_profiling = true;
	s->snap.profiling = (struct gpu_profiling){.source = PROFILE_DCGM};
	for (int64_t i = METRIC_PROFILE_FIRST; i < METRIC_N; i++) {
		world_set(&s->snap.cards[0], (enum metric)i, (i - METRIC_PROFILE_FIRST) * 11);
		world_set(&s->snap.cards[1], (enum metric)i, 0);
	}
	s->snap.cards[1].m[METRIC_FP64_ACTIVE] = value_absent(VALUE_UNSUPPORTED);
	s = &w->samples[4];
	s->with_profiling = true;
	s->snap.profiling = (struct gpu_profiling){.source = PROFILE_NONE,
		.error = "dcgm_import_failed",
		.why = "there is no DCGM library here" HOSTILE};
}
