/*
 * `gpustow run` and its sub-commands as the table has them: names, options, bounds, defaults and what help says. The first
 * fourteen options of `run`, their names and their defaults are gpusched's, kept exactly; the others are ours.
 */
#include "cli/cmd_run_options.h"

#include <math.h>

#define AT(member) .offset = offsetof(struct run_options, member)
#define MIB_MAX 1099511627776.0

static const struct option_spec run_specs[] = {
	{.name = "gpus",
		.arg = "LIST",
		.kind = OPTION_TEXT,
		AT(gpus),
		.text = "use only these cards: indices joined by commas, as 0,1,3 (default: all)"},
	{.name = "idle-threshold",
		.arg = "MIB",
		.kind = OPTION_INT,
		AT(idle_threshold_mib),
		.max = MIB_MAX,
		.text = "a job without vram= takes a card on which others hold less than this (default: 200)"},
	{.name = "margin",
		.arg = "MIB",
		.kind = OPTION_INT,
		AT(margin_mib),
		.max = MIB_MAX,
		.text = "room asked for beyond a job's vram= when a place is sought for it (default: 512)"},
	{.name = "tolerance",
		.arg = "FRACTION",
		.kind = OPTION_REAL,
		AT(tolerance),
		.max = INFINITY,
		.text = "how far a peak may be from vram= before the declaration is called wrong (default: 0.10)"},
	{.name = "poll",
		.arg = "SEC",
		.kind = OPTION_REAL,
		AT(poll_s),
		.min = 0.01,
		.max = 86400,
		.text = "seconds between two looks at the cards and the jobs file (default: 5)"},
	{.name = "spike-buffer",
		.arg = "FRACTION",
		.kind = OPTION_REAL,
		AT(spike_buffer),
		.max = INFINITY,
		.text = "added to observed peaks: the next spike may be higher (default: 0.10)"},
	{.name = "exclusive",
		.kind = OPTION_FLAG,
		AT(exclusive),
		.text = "one job on a card at a time, however much room there is"},
	{.name = "log-dir",
		.arg = "DIR",
		.kind = OPTION_TEXT,
		AT(log_dir),
		.complete = COMPLETE_DIR,
		.text = "where logs, journal and status board are kept (default: " RUN_LOG_DIR ")"},
	{.name = "watch",
		.kind = OPTION_FLAG,
		AT(watch),
		.text = "stay when all jobs are done, and wait for new lines in the file"},
	{.name = "oom-retries",
		.arg = "N",
		.kind = OPTION_INT,
		AT(oom_retries),
		.max = 1000000,
		.text = "start a job again up to N times when it ran out of GPU memory; retries= on a line wins (default: 0)"},
	{.name = "fresh",
		.kind = OPTION_FLAG,
		AT(fresh),
		.text = "forget earlier runs: the journal is removed first, logs stay"},
	{.letter = 'v',
		.name = "verbose",
		.kind = OPTION_FLAG,
		AT(verbose),
		.text = "say whenever a job holds more memory than ever before"},
	{.name = "sim",
		.arg = "CARDS",
		.kind = OPTION_TEXT,
		AT(sim),
		.text = "simulated cards in place of the machine's: 4 (of 24 GiB each), or sizes, as 2x80G,1x24G; 1x80G/mig:3x20G is one cut into three MIG instances"},
	{.name = "check",
		.kind = OPTION_FLAG,
		AT(check),
		.text = "start nothing: list every mistake in the file, what would start, and what waits or never fits"},
	{.name = "json",
		.kind = OPTION_FLAG,
		AT(json),
		.text = "print one JSON document: with --check the plan, else the results at the end"},
	{.name = "retry-failed",
		.kind = OPTION_FLAG,
		AT(retry_failed),
		.text = "also run the lines again that failed in an earlier run"},
	{.name = "max-jobs",
		.arg = "N",
		.kind = OPTION_INT,
		AT(max_jobs),
		.max = 1000000,
		.text = "never run more than N jobs at once; 0 is no limit (default: 0)"},
	{.name = "nvlink",
		.kind = OPTION_FLAG,
		AT(nvlink),
		.text = "give a job on several cards only cards joined by NVLink, on machines that have it"},
	{.name = "grace",
		.arg = "SEC",
		.kind = OPTION_REAL,
		AT(grace_s),
		.max = 86400,
		.text = "seconds a job has to end by itself after SIGTERM, before SIGKILL (default: 10)"},
	OPTION_SPEC_END,
};

static void run_defaults(void *opts)
{
	struct run_options *o = opts;

	o->idle_threshold_mib = 200;
	o->margin_mib = 512;
	o->tolerance = 0.10;
	o->poll_s = 5;
	o->spike_buffer = 0.10;
	o->log_dir = RUN_LOG_DIR;
	o->grace_s = 10;
}

#undef AT
#define AT(member) .offset = offsetof(struct run_control_options, member)
#define LOG_DIR_SPEC \
	{ \
		.name = "log-dir", .arg = "DIR", .kind = OPTION_TEXT, AT(log_dir), \
		.complete = COMPLETE_DIR, \
		.text = "the run's log directory (default: " RUN_LOG_DIR ")" \
	}
#define JSON_SPEC \
	{ \
		.name = "json", .kind = OPTION_FLAG, AT(json), .text = "print one JSON document" \
	}

static const struct option_spec control_specs[] = {LOG_DIR_SPEC, JSON_SPEC, OPTION_SPEC_END};

static const struct option_spec retry_specs[] = {
	LOG_DIR_SPEC,
	JSON_SPEC,
	{.name = "failed",
		.kind = OPTION_FLAG,
		AT(failed),
		.text = "every job that failed, whatever its number"},
	OPTION_SPEC_END,
};

static void control_defaults(void *opts)
{
	((struct run_control_options *)opts)->log_dir = RUN_LOG_DIR;
}

const struct command cmd_run = {
	.name = "run",
	.args = "JOBS_FILE",
	.summary = "run the commands of a file on this machine's GPUs, by memory",
	.about =
		"JOBS_FILE has one shell command a line, with what it needs in front:\n"
		"  [vram=8G gpus=2 timeout=2h retries=1] python train.py\n"
		"vram= is for each card (MiB, or G); without it a job gets a wholly idle card. gpus= is how\n"
		"many cards (0: none), timeout= a limit (s, m, h, d), retries= new starts after running out of\n"
		"GPU memory, name= a name, after= the names or numbers that must end well first, gpu= the only\n"
		"cards to use, cancel stops the job. Empty lines and lines that begin with # are skipped.\n"
		"\n"
		"The file is read again while it runs and never written: add lines, remove them, change\n"
		"their order. What was done is in the log directory's journal; started again, it goes on.\n"
		"\n"
		"Exit codes: 0 all went well; 2 a mistake in options or file; 130 interrupted; else the\n"
		"largest exit code of the failed jobs, at least 1.",
	.examples = "$ gpustow run jobs.txt\n"
		    "$ gpustow run --check jobs.txt\n"
		    "$ gpustow run --gpus 0,1 --watch jobs.txt\n"
		    "$ gpustow run --sim 2x80G,1x24G jobs.txt",
	.options = run_specs,
	.options_size = sizeof(struct run_options),
	.defaults = run_defaults,
	.min_args = 1,
	.max_args = 1,
	.abbreviations = true,
	.needs_locale = true,
	.complete = COMPLETE_FILE,
	.check = cmd_run_check_options,
	.exec = cmd_run_exec,
};

const struct command cmd_run_status = {
	.name = "run status",
	.args = "",
	.summary = "show what a run does: its jobs, its cards, what waits and why",
	.about =
		"It reads the log directory, so it works beside a run, after it, and after its death.\n"
		"A jobs file called status is reached as ./status.",
	.examples = "$ gpustow run status\n$ gpustow run status --json",
	.options = control_specs,
	.options_size = sizeof(struct run_control_options),
	.defaults = control_defaults,
	.needs_locale = true,
	.check = cmd_run_control_check,
	.exec = cmd_run_status_exec,
};

const struct command cmd_run_why = {
	.name = "run why",
	.args = "[JOB...]",
	.summary = "say why a job waits, or how it ended",
	.about = "JOB is a number or the line's name=. Without one: every job that waits.",
	.examples = "$ gpustow run why\n$ gpustow run why 12",
	.options = control_specs,
	.options_size = sizeof(struct run_control_options),
	.defaults = control_defaults,
	.max_args = -1,
	.complete = COMPLETE_JOB,
	.needs_locale = true,
	.candidates = cmd_run_candidates,
	.check = cmd_run_control_check,
	.exec = cmd_run_why_exec,
};

const struct command cmd_run_cancel = {
	.name = "run cancel",
	.args = "JOB...",
	.summary = "stop jobs that run, forbid jobs that wait",
	.about =
		"JOB is a number or the line's name=. A job that runs gets SIGTERM, then its grace, then\n"
		"SIGKILL. A cancelled job is never started again, unless 'run retry' says so.",
	.examples = "$ gpustow run cancel 12 13",
	.options = control_specs,
	.options_size = sizeof(struct run_control_options),
	.defaults = control_defaults,
	.min_args = 1,
	.max_args = -1,
	.complete = COMPLETE_JOB,
	.needs_locale = true,
	.candidates = cmd_run_candidates,
	.check = cmd_run_control_check,
	.exec = cmd_run_cancel_exec,
};

const struct command cmd_run_retry = {
	.name = "run retry",
	.args = "[JOB...]",
	.summary = "run ended jobs again: those named, or --failed",
	.about =
		"JOB is a number or the line's name=. The jobs wait again, at their places in the file.",
	.examples = "$ gpustow run retry 12\n$ gpustow run retry --failed",
	.options = retry_specs,
	.options_size = sizeof(struct run_control_options),
	.defaults = control_defaults,
	.max_args = -1,
	.complete = COMPLETE_JOB,
	.needs_locale = true,
	.candidates = cmd_run_candidates,
	.check = cmd_run_control_check,
	.exec = cmd_run_retry_exec,
};
