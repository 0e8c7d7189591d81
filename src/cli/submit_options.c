/* The options of `job submit`, as one table. */
#include "cli/submit.h"

#include <math.h>

void submit_defaults(void *opts)
{
	struct submit_options *o = opts;

	o->gpus = 1;
	o->oom_retries = -1;
}

#define AT(member) .offset = offsetof(struct submit_options, member)
#define TEXT(n, a, m, t) \
	{ \
		.name = n, .arg = a, .kind = OPTION_TEXT, AT(m), .text = t \
	}
#define FLAG(n, m, t) \
	{ \
		.name = n, .kind = OPTION_FLAG, AT(m), .text = t \
	}
#define LIST(n, a, m, t) \
	{ \
		.name = n, .arg = a, .kind = OPTION_LIST, AT(m), .text = t \
	}
#define COUNT(n, lo, hi, m, t) \
	{ \
		.name = n, .arg = "N", .kind = OPTION_INT, AT(m), .min = lo, .max = hi, .text = t \
	}

const struct option_spec submit_specs[] = {
	{.letter = 'n',
		.name = "name",
		.arg = "NAME",
		.kind = OPTION_TEXT,
		AT(name),
		.text = "what people call it"},
	TEXT("vram", "SIZE", vram,
		"memory it needs on each of its GPUs: MiB, 8G, 1.5T; 0 reserves nothing; auto learns it (default: default_vram of the configuration, which is auto)"),
	COUNT("gpus", 0, GPU_MAX, gpus, "so many GPUs of one node; 0 is a CPU job (default: 1)"),
	{.name = "node",
		.arg = "NAME",
		.kind = OPTION_TEXT,
		AT(node),
		.text = "only there",
		.complete = COMPLETE_NODE},
	TEXT("gpu", "CARD", gpu,
		"only that card of --node: an index, a UUID, or several with commas"),
	TEXT("gpu-model", "TEXT", gpu_model, "only cards whose name has this in it, as A100"),
	TEXT("min-total", "SIZE", min_total, "only cards with at least so much memory in all"),
	FLAG("exclusive", exclusive, "no other job of gpustow on its cards"),
	FLAG("idle", idle, "only cards that nobody at all uses"),
	FLAG("nvlink", nvlink, "several GPUs joined by NVLink"),
	{.name = "cpus",
		.arg = "N",
		.kind = OPTION_INT,
		AT(cpus),
		.min = 0,
		.max = 100000,
		.text = "processor cores it's counted with on its node (declared, not enforced)"},
	TEXT("mem", "SIZE", mem,
		"main memory it's counted with on its node (declared, not enforced)"),
	TEXT("lane", "NODE:GPU", lane, "into that card's lane"),
	TEXT("at", "head|tail|N", at, "place in the lane (default: tail)"),
	{.name = "workdir",
		.arg = "DIR",
		.kind = OPTION_TEXT,
		AT(workdir),
		.text = "where it runs; ~ is this machine's home (default: the home on its node)",
		.complete = COMPLETE_DIR},
	LIST("env", "KEY=VALUE", env, "a variable for it; may be given again"),
	TEXT("export", "ALL|NONE|A,B", export,
		"variables of this environment that it takes along; ALL leaves out what belongs to this terminal and login (default: NONE)"),
	FLAG("login", login, "its shell reads the login files first, as conda and modules want"),
	{.name = "priority",
		.arg = "N",
		.kind = OPTION_INT,
		AT(priority),
		.min = -1000000,
		.max = 1000000,
		.text = "higher ones go first (default: 0)"},
	LIST("after", "ID[,ID]", after,
		"starts when these have completed; ranges as 4-9; may be given again"),
	LIST("after-any", "ID[,ID]", after_any, "starts when these have ended, well or not"),
	TEXT("on-dependency", "hold|fail|run", on_dependency,
		"what becomes of it when an --after job doesn't complete (default: hold)"),
	TEXT("timeout", "TIME", timeout, "ended after so long: seconds, 15m, 2h, 1d"),
	TEXT("grace", "TIME", grace, "between SIGTERM and SIGKILL when it's ended (default: 10 s)"),
	TEXT("signal", "SIG@TIME", signal,
		"sent to it that long before --timeout, as USR1@120, so that it can save"),
	COUNT("retries", 0, 1000, retries,
		"so many more attempts when it vanished, its node went down, or what --retry-on says (default: 0)"),
	TEXT("retry-on", "CAUSE[,CAUSE]", retry_on, "the causes that --retries is for"),
	{.name = "oom-retries",
		.arg = "N",
		.kind = OPTION_INT,
		AT(oom_retries),
		.min = 0,
		.max = 100,
		.text = "so many more attempts after a CUDA out-of-memory, each with more reserved (default: oom_retries of the configuration)"},
	LIST("tag", "TAG", tags, "a word to find it by; may be given again"),
	TEXT("submitter", "TEXT", submitter, "who it's recorded for (default: user@host:pid)"),
	TEXT("note", "TEXT", note, "a note kept with it"),
	{.name = "script",
		.arg = "FILE",
		.kind = OPTION_TEXT,
		AT(script),
		.text = "its bytes are what runs, in place of the words; - is standard input",
		.complete = COMPLETE_FILE},
	{.name = "file",
		.arg = "FILE",
		.kind = OPTION_TEXT,
		AT(file),
		.text = "a jobs file: each line is a job; retries= there means --oom-retries",
		.complete = COMPLETE_FILE},
	TEXT("array", "1-100", array,
		"one job for each number; {index} in the command, GPUSTOW_ARRAY_INDEX in its environment"),
	LIST("sweep", "NAME=V,V", sweep,
		"one job for each value, with {NAME} in the command; several multiply"),
	TEXT("key", "TEXT", key, "a name of yours that makes the submit repeatable"),
	FLAG("dry-run", dry_run, "only say where and when it would start"),
	FLAG("wait", wait, "until it has ended; the exit code says how"),
	TEXT("wait-timeout", "TIME", wait_timeout,
		"with --wait: give up after so long, with exit code 2"),
	QUEUE_OPTION_ROWS(struct submit_options),
	QUEUE_NO_TICK_ROW(struct submit_options),
	OPTION_SPEC_END,
};
