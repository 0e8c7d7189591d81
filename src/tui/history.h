/*
 * The recent past of one node: its last samples, as few figures of each card and each process. All series of a node share
 * one ring of moments, so that "n samples ago" means the same everywhere. A figure that was absent is a gap. Pure.
 */
#pragma once

#include "core/sample.h"
#include "tui/bar.h"

#include <stdint.h>

enum { HISTORY_N = 60, HISTORY_PROCS_MAX = 8192 };

enum card_track {
	CARD_UTIL,
	CARD_UTIL_MEM,
	CARD_USED, /* MiB */
	CARD_TEMP,
	CARD_FAN,
	CARD_POWER, /* mW */
	CARD_RX, /* KiB/s */
	CARD_TX,
	CARD_TRACK_N
};
enum proc_track { PROC_USED, PROC_CPU, PROC_RSS, PROC_TRACK_N };

struct card_series {
	char uuid[GPU_UUID_LEN];
	int32_t index, gi, ci;
	int32_t v[CARD_TRACK_N][HISTORY_N];
};
struct proc_series {
	char uuid[GPU_UUID_LEN]; /* of its card */
	int32_t pid;
	uint64_t start_ticks;
	char user[33], comm[32];
	int32_t v[PROC_TRACK_N][HISTORY_N];
	uint8_t idle; /* samples since it was last seen */
};

struct history {
	int64_t at_ms[HISTORY_N]; /* when each arrived */
	unsigned head, n; /* the latest is at head */
	struct card_series *cards;
	size_t n_cards, cap_cards;
	struct proc_series *procs;
	size_t n_procs, cap_procs;
};

void history_done(struct history *h);
void history_take(struct history *h, const struct sample *s, int64_t now_ms);
/* How many samples ago was the latest one that had arrived by then? -1: none of those that are kept. */
int history_back(const struct history *h, int64_t at_ms);
const struct card_series *history_card(const struct history *h, const struct gpu_card *c);
const struct proc_series *history_proc(
	const struct history *h, const char *uuid, int32_t pid, uint64_t start_ticks);
/* One figure; GRAPH_GAP when it was absent or isn't kept. `track` is a series' v[...]. */
int32_t history_at(const struct history *h, const int32_t track[HISTORY_N], int back);
/* The oldest first, from `back` samples ago to the past; returns how many. */
size_t history_series(
	const struct history *h, const int32_t track[HISTORY_N], int back, int32_t ret[HISTORY_N]);
