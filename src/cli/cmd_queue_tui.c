/* `queue tui`, and `queue` alone on a terminal: the queue's screen. */
#include "cli/cmd_queue_tui.h"

#include "base/cleanup.h"
#include "cli/global.h"
#include "cli/queue_serve.h"

#include <math.h>
#include <unistd.h>

#define REFRESH_S 2.0
#define REFRESH_MAX_S 3600.0

struct tui_options {
	struct queue_options q;
	double refresh_s;
	bool plain;
};

static int open_screen(const struct program *p, const struct queue_options *o, double refresh_s,
	bool is_plain, struct err *e)
{
	CLEANUP(queue_close) struct queue q = {0};
	struct queue_screen_options so = {.refresh_ms = (int64_t)(refresh_s * 1000),
		.is_plain = is_plain,
		.serve = queue_serve,
		.arg = &q};
	int r = queue_find(&q, p, o, e);

	if (r < 0)
		return r;
	so.home = q.home;
	so.config = &q.config.config;
	return queue_screen_run(&so, e);
}

bool cmd_queue_tui_has_terminal(void)
{
	return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

int cmd_queue_tui_open(const struct program *p, const struct queue_options *o, struct err *e)
{
	return open_screen(p, o, REFRESH_S, p->global->plain, e);
}

static int tui_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct tui_options *o = opts;
	double s = o->refresh_s;
	bool is_plain = o->plain || p->global->plain;

	(void)argc;
	(void)argv;
	if (!is_plain && !cmd_queue_tui_has_terminal())
		return err_set(e, -ENOTTY,
			"the queue's screen needs a terminal; `%s queue status` prints the same",
			p->name);
	return open_screen(p, &o->q, s < 1 ? (s > 0 ? 1 : REFRESH_S) : s, is_plain, e);
}

static const struct option_spec options[] = {
	{.name = "refresh",
		.arg = "S",
		.kind = OPTION_REAL,
		.offset = offsetof(struct tui_options, refresh_s),
		.min = 0.01,
		.max = REFRESH_MAX_S,
		.text = "seconds between two looks at the queue (default 2, at least 1)"},
	{.name = "plain",
		.kind = OPTION_FLAG,
		.offset = offsetof(struct tui_options, plain),
		.text = "sentences, line by line, for screen readers and terminals that can't move their cursor"},
	QUEUE_OPTION_ROWS(struct tui_options),
	OPTION_SPEC_END,
};

extern const struct command cmd_queue_tui;
const struct command cmd_queue_tui = {
	.name = "queue tui",
	.args = "",
	.summary = "the queue on a screen: task flow, capacity, jobs, details and logs",
	.about =
		"Every GPU with what runs on it and what waits for it, the jobs as a table, one job's\n"
		"details or the end of its output, and keys to cancel, requeue and reorder. `?` shows the\n"
		"keys. It looks at the nodes and starts jobs by itself, unless `a` turns that off. It's what\n"
		"`queue` alone opens on a terminal.",
	.examples = "$ gpustow queue tui --refresh 5\n$ gpustow queue tui --plain",
	.options = options,
	.options_size = sizeof(struct tui_options),
	.needs_locale = true,
	.abbreviations = true,
	.wants_json = queue_wants_json,
	.exec = tui_exec,
};
