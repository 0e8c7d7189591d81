/* `queue notify test`: does what's configured under notify: reach anybody? Nothing of the queue is touched. */
#include "cli/queue_common.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "cli/cmd_once.h"
#include "show/table.h"
#include "svc/notify.h"

#include <string.h>

struct notify_options {
	struct queue_options q;
};

static int print_text(const struct notify_outcome *v, size_t n, struct err *e)
{
	static const struct table_column columns[] = {{"CHANNEL"}, {"STATE"}, {"WHAT", .min = 16}};
	CLEANUP(buf_done) struct buf out = {0};
	CLEANUP(table_done) struct table t;
	struct row_style style;

	once_terminal(&style);
	table_init(&t, columns, ARRAY_LEN(columns));
	for (size_t i = 0; i < n; i++) {
		enum row_color color = !v[i].is_on ? ROW_DIM : v[i].worked ? ROW_GREEN : ROW_RED;

		table_row(&t);
		table_text(&t, ROW_BOLD, "%s", v[i].channel);
		table_text(&t, color, "%s", !v[i].is_on ? "off" : v[i].worked ? "works" : "failed");
		if (style.cols && strlen(v[i].text) > style.cols / 2) {
			table_absent(&t);
			table_note(&t, ROW_PLAIN, v[i].text);
		} else {
			table_text(&t, ROW_PLAIN, "%s", v[i].text);
		}
	}
	table_put(&t, &style, true, &out);
	return command_print(&out, e);
}

static int print_json(const struct notify_outcome *v, size_t n, bool is_good, struct err *e)
{
	json_t *list = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(list,
			json_pack("{s:s, s:b, s:o, s:s}", "channel", v[i].channel, "on", v[i].is_on,
				"worked", v[i].is_on ? json_boolean(v[i].worked) : json_null(),
				"text", v[i].text));
	return queue_print_json(json_pack("{s:b, s:o}", "ok", is_good, "channels", list), e);
}

static int test_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct notify_options *o = opts;
	CLEANUP(queue_close) struct queue q = {0};
	struct notify_outcome outcomes[8];
	bool is_good = true;
	size_t n;
	int r = queue_find(&q, p, &o->q, e);

	if (!r)
		r = fd_mkdirs(q.home, e);
	if (r)
		return r;
	n = notify_test(&q.config.settings.notify, q.home, p->name, outcomes);
	for (size_t i = 0; i < n; i++)
		is_good &= !outcomes[i].is_on || outcomes[i].worked;
	r = q.json ? print_json(outcomes, n, is_good, e) : print_text(outcomes, n, e);
	return r ? r : is_good ? EXIT_OK : EXIT_FAILED;
}

static const struct option_spec options[] = {
	QUEUE_OPTION_ROWS(struct notify_options),
	OPTION_SPEC_END,
};

extern const struct command cmd_queue_notify_test;
const struct command cmd_queue_notify_test = {
	.name = "queue notify test",
	.args = "",
	.summary = "send a made-up alert through every channel that's on",
	.about =
		"All channels of queue.yml's notify: at the same time, each to its end; a line for each\n"
		"says what came of it. Exits 1 when one that's on failed. The desktop counts as off where\n"
		"there's none to show anything.",
	.examples = "$ gpustow queue notify test",
	.options = options,
	.options_size = sizeof(struct notify_options),
	.needs_locale = true,
	.wants_json = queue_wants_json,
	.exec = test_exec,
};
