/*
 * What `gpustow run` (and gpusched) and its sub-commands take. Descriptors and tables are in cmd_run_options.c; the exec
 * functions are the commands' own files.
 */
#pragma once

#include "cli/command.h"

#include <stdbool.h>
#include <stdint.h>

#define RUN_LOG_DIR "gpusched_logs" /* under every name, so that an existing one is taken over */

struct run_options {
	const char *gpus; /* "0,1,3" as typed; NULL or "": all */
	int64_t idle_threshold_mib, margin_mib;
	double tolerance, poll_s, spike_buffer;
	bool exclusive, watch, fresh, verbose;
	const char *log_dir; /* never NULL */
	int64_t oom_retries;
	const char *sim; /* "4", "2x80G,1x24G"; NULL: the machine's cards */
	bool check, json, retry_failed, nvlink;
	int64_t max_jobs; /* 0: no limit */
	double grace_s;
};

/* Of status, why, cancel and retry. */
struct run_control_options {
	const char *log_dir; /* never NULL */
	bool json;
	bool failed; /* retry only */
};

/* Each command's own file: argv holds the plain arguments only. opts: struct run_options. */
int cmd_run_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e);
/* opts: struct run_control_options. */
int cmd_run_status_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e);
int cmd_run_why_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e);
int cmd_run_cancel_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e);
int cmd_run_retry_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e);

/* What only a command's own rules find wrong with its options. opts: struct run_options, struct run_control_options. */
int cmd_run_check_options(const void *opts, int argc, char **argv, struct err *e);
int cmd_run_control_check(const void *opts, int argc, char **argv, struct err *e);

/* For the shell: the jobs that the journal of the log directory knows. opts: struct run_control_options. */
void cmd_run_candidates(const struct program *p, const void *opts, struct buf *out);

extern const struct command cmd_run, cmd_run_status, cmd_run_why, cmd_run_cancel, cmd_run_retry;
