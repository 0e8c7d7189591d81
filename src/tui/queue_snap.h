/*
 * What the screen knows of the queue: one moment, as the process that reads the database sent it. Values only, owned, bounded.
 * A figure that isn't known is -1, a text "". Pure.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	SNAP_NODES_MAX = 1024,
	SNAP_CARDS_MAX = 256,
	SNAP_PROCS_MAX = 256,
	SNAP_JOBS_MAX = 10000,
	SNAP_NEEDS_MAX = 64, /* of one job; detail has them all */
	SNAP_ALERTS_MAX = 64,
	SNAP_JOB_CARDS = 16
};

enum snap_state {
	SNAP_PENDING,
	SNAP_RUNNING,
	SNAP_COMPLETED,
	SNAP_FAILED,
	SNAP_CANCELLED,
	SNAP_TIMEOUT,
	SNAP_LOST,
	SNAP_STATE_N
};
const char *snap_state_name(enum snap_state s);

struct snap_proc {
	int64_t pid, mem_mib;
	char user[33], name[32];
	bool is_ours;
};

struct snap_card {
	char label[24], name[64], why[160]; /* why: it's out of service, or not placeable */
	int64_t total_mib, used_mib, foreign_mib, reserved_mib, free_mib, util_pct, temperature_c;
	int64_t n_external;
	uint32_t n_jobs;
	bool is_blind, is_present, is_in_service, is_lane_paused;
	char lane_why[160]; /* why the card's lane doesn't go on; "" */
	struct snap_proc *procs;
	size_t n_procs;
};

struct snap_node {
	char name[65], hostname[65], state[16], why[256];
	bool is_drained;
	struct snap_card *cards;
	size_t n_cards;
};

struct snap_need {
	int64_t id;
	bool is_any; /* any end would do */
};

struct snap_job {
	int64_t id, priority, gpus, vram_mib, used_mib, started_ms, elapsed_ms, exit_code, lane_seq;
	enum snap_state state;
	bool is_held, is_bound, is_cancelling, has_exit_code;
	char node[65]; /* where it is or was, is handed to, or is pinned to */
	char lane[96]; /* "node:label" */
	char cards[SNAP_JOB_CARDS][12]; /* labels */
	size_t n_cards;
	char *name, *command, *progress, *held_why;
	struct snap_need *needs;
	size_t n_needs;
};

struct snap_alert {
	int64_t id, job;
	bool is_error;
	char node[65], kind[32];
	char *title;
};

struct snap {
	int64_t now_ms, last_tick_ms; /* wall; 0: there was none */
	bool has_keeper, is_keeper_up;
	int64_t by_state[SNAP_STATE_N], held; /* pending without the held ones */
	int64_t open_alerts, hidden_jobs; /* those that wait or run but weren't sent */
	struct snap_node *nodes;
	size_t n_nodes;
	struct snap_job *jobs;
	size_t n_jobs;
	struct snap_alert *alerts; /* the newest first */
	size_t n_alerts;
};

/* -EINVAL: it isn't one; *ret is empty then. */
int snap_read(const json_t *o, struct snap *ret);
void snap_done(struct snap *s);
const struct snap_job *snap_job(const struct snap *s, int64_t id);
