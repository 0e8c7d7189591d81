/* `queue nodes`: the nodes and all their cards, those that `gpus:` leaves out too. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/cmd_once.h"
#include "cli/queue_nodes.h"

struct nodes_options {
	struct queue_options q;
	bool procs, with_ignored;
};

static int nodes_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct nodes_options *o = opts;
	CLEANUP(queue_close) struct queue q = {0};
	CLEANUP(cluster_done) struct cluster c = {0};
	CLEANUP(buf_done) struct buf out = {0};
	struct nodes_view view = {.with_procs = o->procs, .with_ignored = o->with_ignored};
	struct row_style style;
	int r = queue_open(&q, p, &o->q, STORE_READ, e);

	(void)argc;
	(void)argv;
	if (r)
		return r;
	queue_refresh(&q);
	view.now_ms = clock_wall_ms();
	r = cluster_load(q.store, &q.config, view.now_ms, false, &c, e);
	if (r)
		return r;
	if (q.json)
		return queue_print_json(
			json_pack("{s:o, s:o}", "nodes", queue_nodes_json(&c, &view),
				"ignored_nodes", queue_nodes_ignored(&c)),
			e);
	once_terminal(&style);
	queue_nodes_put(&c, &view, &style, &out);
	return command_print(&out, e);
}

#define AT(member) .offset = offsetof(struct nodes_options, member)
static const struct option_spec options[] = {
	{.name = "procs",
		.kind = OPTION_FLAG,
		AT(procs),
		.text = "a table of the processes on the cards, ours and others'"},
	{.name = "include-ignored",
		.kind = OPTION_FLAG,
		AT(with_ignored),
		.text = "nodes that are ignored, too"},
	QUEUE_OPTION_ROWS(struct nodes_options),
	QUEUE_REFRESH_ROWS(struct nodes_options),
	OPTION_SPEC_END,
};

extern const struct command cmd_queue_nodes;
const struct command cmd_queue_nodes = {
	.name = "queue nodes",
	.args = "",
	.summary = "the nodes and their cards",
	.about =
		"Memory in use, what strangers hold (UNMANAGED), what our jobs hold (QUEUE) and have\n"
		"reserved, and what is free for another job. Cards that `gpus:` leaves out are listed\n"
		"here, and not in `queue status`.",
	.examples = "$ gpustow queue nodes --procs",
	.options = options,
	.options_size = sizeof(struct nodes_options),
	.needs_locale = true,
	.abbreviations = true,
	.wants_json = queue_wants_json,
	.exec = nodes_exec,
};
