/* `gpustow run`: a jobs file on the GPUs of this machine, until it's done (spec/gpusched, sections 2 to 16). */
#pragma once

#include "base/err.h"
#include "core/gpu.h"

#include <stdbool.h>
#include <stdint.h>

struct run_config {
	const char *program; /* what messages begin with: "gpustow run" or "gpusched" */
	const char *jobs_path; /* NULL with only_settle */
	const char *log_dir;
	int32_t gpus[GPU_MAX]; /* --gpus; n_gpus 0: all */
	uint32_t n_gpus;
	int64_t idle_threshold_mib, margin_mib;
	double tolerance, poll_s, spike_buffer;
	bool exclusive, watch, fresh, verbose, retry_failed, need_nvlink;
	int64_t oom_retries, max_jobs; /* max_jobs 0: no limit */
	int64_t grace_ms;
	bool first_interrupt_drains; /* on a terminal, under the name gpustow */
	bool has_panel; /* stdout is a terminal that can move its cursor */
	bool json; /* words go to stderr, one document to stdout at the end */
	/* No jobs file: settle what is in flight, starting nothing; cancel_no is stopped. For `run cancel` without a scheduler. */
	bool only_settle;
	const uint64_t *cancel_no;
	size_t n_cancel;
};

/* Runs to the end. The exit code (spec section 2), or negative with *e: -EINVAL for what is the user's to mend (exit 2). */
int run_main(const struct run_config *c, struct err *e);

/* `--check`: all errors of the file, the plan on the GPUs as they are, what can never fit. Runs nothing. Exit code 0, or 2
 * when the file has errors, 1 when a job can never fit. */
int run_check(const struct run_config *c, bool json, struct err *e);
