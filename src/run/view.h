/*
 * What a run shows, as plain values made once and rendered several times: the status board (status.txt), the live panel
 * of a terminal, and JSON for `run status --json`. Pure: rendering reads no clock and no file.
 */
#pragma once

#include "base/buf.h"
#include "core/gpu.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum view_state {
	VIEW_RUNNING,
	VIEW_HANDED, /* bound, start not confirmed yet */
	VIEW_PENDING,
	VIEW_DONE, /* ended in this run */
	VIEW_DONE_BEFORE /* ended in an earlier run; on JSON and in counts, not on the board's result lines */
};

struct view_use {
	int32_t gpu;
	int64_t now_mib, peak_mib;
};

struct view_job {
	uint64_t no;
	const char *name; /* name= of the line, NULL */
	const char *command; /* as in the file */
	const char *key;
	uint32_t lineno; /* 0: its line is gone */
	enum view_state state;
	/* running, handed, done */
	const int32_t *gpus;
	uint32_t n_gpus;
	const struct view_use *use; /* per card */
	uint32_t n_use;
	bool is_sampled;
	int64_t started_wall_ms; /* 0 unknown */
	double seconds; /* running: so far; done: whole; < 0 unknown */
	bool is_cancelling, is_timing_out;
	bool is_unknown; /* handed over, and what became of it isn't known (yet) */
	bool was_taken_over; /* from a scheduler that died */
	int64_t pid; /* 0 unknown */
	const char *log; /* path, NULL */
	/* pending */
	int64_t declared_mib; /* -1 undeclared; of this attempt */
	uint32_t want_gpus;
	int64_t attempts; /* completed ones */
	int64_t bumped_mib; /* vram after an OOM; -1 none */
	const char *why; /* the reason it waits, or was never started: a sentence; NULL */
	int64_t waiting_ms;
	/* done */
	const char *status; /* journal word */
	const char *verdict; /* ok, over, under, unattributed, failed, ... */
	bool has_returncode;
	int64_t returncode;
	bool has_util;
	double avg_util;
	int64_t suggested_mib; /* a better declaration: from the peaks, or after running out of memory; -1 none */
};

struct view_card {
	int32_t index, gi, ci; /* gi, ci of a MIG instance, as in struct gpu_card */
	const char *uuid, *name;
	const char *state; /* "ok", "lost", ... */
	int64_t total_mib, used_mib; /* -1 unknown */
	int64_t own_mib; /* of used: held by jobs of this run */
	int64_t foreign_mib; /* as the scheduler counts it */
	int64_t budget_mib; /* promised to running jobs (all of this user's) */
	int64_t promised_mib; /* to other users' jobs, and to what waits in lanes */
	int64_t free_mib; /* for a newcomer, before the margin */
	int32_t util_pct; /* -1 unknown */
	bool is_usable; /* in --gpus, and answering */
	uint32_t n_jobs;
};

struct run_view {
	const char *program; /* "gpusched", "gpustow run": first word of the board */
	const char *jobs_file, *log_dir;
	int64_t now_wall_ms;
	int64_t scheduler_pid; /* 0: none is running */
	bool is_draining, is_stopping, is_watching;
	const char *source; /* "nvml", "sim", ... */
	const char *source_error; /* NULL */
	int64_t sample_age_ms; /* -1: none yet */
	size_t n_lines, n_running, n_pending, n_done; /* n_done: of this run */
	size_t n_ok, n_failed, n_cancelled, n_over, n_under; /* of this run */
	size_t n_done_before, n_failed_before; /* earlier runs, lines still in the file */
	const struct view_card *cards;
	size_t n_cards;
	const struct view_job *
		jobs; /* running by number, then pending in file order (the first of n_pending), then done by number */
	size_t n_jobs;
};

/* gpusched's section 14, with the reason behind a pending line: "· job 5   pending vram 14336 (needs ...) — CMD". */
void view_board(const struct run_view *v, struct buf *out);
/* At most `rows` lines of at most `cols` cells each, '\n' between, for below the log lines of a terminal. */
void view_panel(
	const struct run_view *v, size_t cols, size_t rows, bool color, bool utf8, struct buf *out);
/* One document; absent figures are null. The caller's reference. */
json_t *view_json(const struct run_view *v);
/* For people: what `gpustow run status` prints. */
void view_status_text(const struct run_view *v, size_t cols, struct buf *out);
