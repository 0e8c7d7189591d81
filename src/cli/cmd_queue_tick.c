/* `queue tick`: one pass now, or one after the other. What it did comes from the pass's own summary. */
#include "cli/queue_common.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 60000
#define PERIOD_MIN_S 1.0
#define LINE_MAX 200
#define EXIT_INTERRUPTED 130

struct tick_command_options {
	struct queue_options q;
	double watch_s;
};

/* ---- one line each ---- */

static int64_t int_of(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

static void put_starts(const json_t *list, struct buf *out)
{
	const json_t *o, *id;
	size_t i, k;

	json_array_foreach(list, i, o)
	{
		const json_t *ids = json_object_get(o, "gpu_ids");

		buf_printf(out, "started job %" PRId64 " on ", int_of(o, "id"));
		queue_put_line(out, text_of(o, "node"), LINE_MAX);
		json_array_foreach(ids, k, id) buf_printf(
			out, "%s%" PRId64, k ? "," : " GPU ", (int64_t)json_integer_value(id));
		buf_putc(out, '\n');
	}
}

static void put_ends(const json_t *list, struct buf *out)
{
	const json_t *o;
	size_t i;

	json_array_foreach(list, i, o)
	{
		bool is_again = !strcmp(text_of(o, "state"), "pending");

		buf_printf(out, "%s job %" PRId64 ": %s", is_again ? "retried" : "finished",
			int_of(o, "id"), is_again ? text_of(o, "cause") : text_of(o, "state"));
		if (*text_of(o, "error")) {
			buf_puts(out, ", ");
			queue_put_line(out, text_of(o, "error"), LINE_MAX);
		}
		buf_putc(out, '\n');
	}
}

static void put_holds(const json_t *list, struct buf *out)
{
	const json_t *o;
	size_t i;

	json_array_foreach(list, i, o)
	{
		buf_printf(out, "held job %" PRId64 ": ", int_of(o, "id"));
		queue_put_line(out, text_of(o, "reason"), LINE_MAX);
		buf_putc(out, '\n');
	}
}

static void put_reaps(const json_t *list, struct buf *out)
{
	const json_t *o;
	size_t i;

	json_array_foreach(list, i, o)
	{
		buf_printf(out, "reaped job %" PRId64 " on ", int_of(o, "job"));
		queue_put_line(out, text_of(o, "node"), LINE_MAX);
		buf_putc(out, '\n');
	}
}

static void put_errors(const json_t *list, struct buf *out)
{
	const json_t *o;
	size_t i;

	json_array_foreach(list, i, o)
	{
		buf_puts(out, "error: ");
		if (*text_of(o, "node")) {
			queue_put_line(out, text_of(o, "node"), LINE_MAX);
			buf_puts(out, ": ");
		}
		if (int_of(o, "job"))
			buf_printf(out, "job %" PRId64 ": ", int_of(o, "job"));
		queue_put_line(out, text_of(o, "error"), 2 * LINE_MAX);
		buf_putc(out, '\n');
	}
}

static void put_summary(const struct tick_summary *t, struct buf *out)
{
	if (t->skipped) {
		buf_printf(out, "skipped: %s", t->skipped);
		if (t->lock_owner) {
			buf_puts(out, " by ");
			queue_put_line(out, t->lock_owner, LINE_MAX);
		}
		buf_putc(out, '\n');
		return;
	}
	buf_printf(out, "%" PRId64 " node%s up", t->nodes_up, t->nodes_up == 1 ? "" : "s");
	if (t->nodes_down)
		buf_printf(out, ", %" PRId64 " down", t->nodes_down);
	if (t->nodes_ignored)
		buf_printf(out, ", %" PRId64 " ignored", t->nodes_ignored);
	buf_printf(out, "; started %zu, finished %zu\n", json_array_size(t->dispatched),
		json_array_size(t->finished));
	put_starts(t->dispatched, out);
	put_ends(t->finished, out);
	put_holds(t->held, out);
	put_reaps(t->reaped, out);
	put_errors(t->errors, out);
}

/* ---- passes ---- */

static int one_pass(struct queue *q, bool *ret_enough, struct err *e)
{
	struct tick_options o = {.home = q->home, .is_forced = true, .wait_ms = WAIT_MS};
	CLEANUP(tick_summary_done) struct tick_summary t = {0};
	CLEANUP(buf_done) struct buf out = {0};
	int r = tick(q->store, &q->config, &o, &t, e);

	if (r < 0)
		return r;
	*ret_enough = t.signal_no != 0;
	if (q->json)
		return queue_print_json(tick_summary_json(&t), e);
	put_summary(&t, &out);
	return command_print(&out, e);
}

/* Whatever it's at: only a pass of its own has to come to a safe point, and for as long as that takes the signals are its. */
static void on_enough(int signo)
{
	(void)signo;
	_exit(EXIT_OK);
}

static int watch(struct queue *q, double seconds, struct err *e)
{
	int64_t period_ms = (int64_t)((seconds < PERIOD_MIN_S ? PERIOD_MIN_S : seconds) * 1000);
	struct sigaction enough = {.sa_handler = on_enough};

	sigaction(SIGINT, &enough, NULL);
	sigaction(SIGTERM, &enough, NULL);
	for (;;) {
		int64_t begun_ms = clock_boot_ms(), left_ms;
		bool is_enough = false;
		int r = one_pass(q, &is_enough, e);

		if (r < 0)
			return r == -EINTR ? EXIT_OK : r;
		if (is_enough)
			return EXIT_OK;
		left_ms = begun_ms + period_ms - clock_boot_ms();
		if (left_ms > 0)
			nanosleep(&(struct timespec){.tv_sec = left_ms / 1000,
					  .tv_nsec = left_ms % 1000 * 1000000},
				NULL);
	}
}

static int tick_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct tick_command_options *o = opts;
	CLEANUP(queue_close) struct queue q = {0};
	bool is_enough = false;
	int r = queue_open(&q, p, &o->q, STORE_WRITE, e);

	(void)argc, (void)argv;
	if (r < 0)
		return r;
	if (o->watch_s > 0)
		return watch(&q, o->watch_s, e);
	r = one_pass(&q, &is_enough, e);
	return r == -EINTR ? EXIT_INTERRUPTED : r;
}

static const struct option_spec specs[] = {
	{.name = "watch",
		.arg = "SECONDS",
		.kind = OPTION_REAL,
		.offset = offsetof(struct tick_command_options, watch_s),
		.min = 0,
		.max = INFINITY,
		.text = "a pass each so many seconds, at least 1, until Ctrl-C (default: 0, one pass)"},
	QUEUE_OPTION_ROWS(struct tick_command_options),
	OPTION_SPEC_END,
};

extern const struct command cmd_queue_tick;
const struct command cmd_queue_tick = {
	.name = "queue tick",
	.args = "",
	.summary = "look at the nodes, settle what ended, start what fits",
	.about =
		"All nodes are asked at once; one that's down costs the others nothing. If another pass\n"
		"is running, this waits for one that began after the call. With --watch and --json each\n"
		"pass is a document of its own.",
	.examples = "$ gpustow queue tick\n$ gpustow queue tick --watch 5",
	.options = specs,
	.options_size = sizeof(struct tick_command_options),
	.abbreviations = true,
	.wants_json = queue_wants_json,
	.exec = tick_exec,
};
