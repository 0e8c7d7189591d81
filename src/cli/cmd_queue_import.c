/* `queue import-nvidb`: a Python nvidb's database becomes this queue. The store does it all; this says what was taken over. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "cli/queue_common.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct import_options {
	struct queue_options q;
};

static void put_count(struct buf *out, int64_t n, const char *what)
{
	if (n)
		buf_printf(out, "  %" PRId64 " %s\n", n, what);
}

static int tell(struct queue *q, const char *path, const struct store_imported *m,
	const char *moved_to, struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0};

	if (q->json)
		return queue_print_json(
			json_pack("{s:b, s:s, s:s, s:s?, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "ok",
				1, "source", path, "db_path", q->path, "moved_to", moved_to, "jobs",
				(json_int_t)m->jobs, "pending", (json_int_t)m->pending, "running",
				(json_int_t)m->running, "held", (json_int_t)m->held, "events",
				(json_int_t)m->events, "alerts", (json_int_t)m->alerts, "skipped",
				(json_int_t)m->skipped),
			e);
	text_put_clean(&out, path, strlen(path));
	buf_printf(&out, ": %" PRId64 " job%s taken over, with their numbers, notes and results\n",
		m->jobs, m->jobs == 1 ? "" : "s");
	put_count(&out, m->pending, "wait; the next pass may start them");
	put_count(&out, m->running,
		"ran when that database was last written: they count as lost here, and their error says where to look");
	put_count(&out, m->held,
		"are held: a lane's runner on a node may have them; look there, then `job release`");
	put_count(&out, m->events, "events");
	put_count(&out, m->alerts, "alerts, as open or acknowledged as they were");
	put_count(&out, m->skipped, "events and alerts of a kind that isn't known were left out");
	if (moved_to) {
		buf_puts(&out, "the old database is kept as ");
		text_put_clean(&out, moved_to, strlen(moved_to));
		buf_putc(&out, '\n');
	}
	return command_print(&out, e);
}

static int import_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct import_options *o = opts;
	CLEANUP(queue_close) struct queue q = {0};
	CLEANUP_FREE char *moved_to = NULL;
	struct store_options store = {.mode = STORE_WRITE};
	struct store_imported made = {0};
	const char *path;
	int r = queue_find(&q, p, &o->q, e);

	if (r)
		return r;
	path = argc ? argv[0] : q.path;
	r = store_take_over_nvidb(path, q.path, &store, &made, &moved_to, e);
	return r ? r : tell(&q, path, &made, moved_to, e);
}

static const struct option_spec options[] = {
	QUEUE_OPTION_ROWS(struct import_options),
	OPTION_SPEC_END,
};

extern const struct command cmd_queue_import;
const struct command cmd_queue_import = {
	.name = "queue import-nvidb",
	.args = "[PATH]",
	.summary = "take over a Python nvidb's queue",
	.about =
		"Jobs keep their numbers, notes and results; those that wait go on waiting here. The\n"
		"Python's database is only read. Where it lies at this queue's own path (what's meant\n"
		"without PATH) it's kept as queue-nvidb.db beside it. End its daemon and keeper first.",
	.examples = "$ gpustow queue import-nvidb ~/.nvidb/queue.db",
	.options = options,
	.options_size = sizeof(struct import_options),
	.max_args = 1,
	.complete = COMPLETE_FILE,
	.abbreviations = true,
	.wants_json = queue_wants_json,
	.exec = import_exec,
};
