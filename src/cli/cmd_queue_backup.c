/* `queue backup`, `queue restore`, `queue check`: copies of the queue's database, the way back, and whether it's whole. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "cli/queue_common.h"
#include "queue/record_json.h"
#include "svc/backup.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct backup_options {
	struct queue_options q;
	int64_t keep;
};

static void put_clean(struct buf *out, const char *text)
{
	text_put_clean(out, text, strlen(text));
}

/* ---- backup ---- */

static json_t *made_json(const struct backup_made *b)
{
	json_t *pruned = json_array();

	for (size_t i = 0; i < b->n_pruned; i++)
		json_array_append_new(pruned, json_string(b->pruned[i]));
	return json_pack("{s:s, s:s, s:o, s:I, s:b, s:o}", "path", b->path, "source", b->source,
		"created_at", record_time(b->created_ms), "bytes", (json_int_t)b->bytes, "verified",
		b->verified, "pruned", pruned);
}

static int tell_made(struct queue *q, const struct backup_made *b, struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0};

	if (q->json)
		return queue_print_json(
			json_pack("{s:b, s:o}", "ok", 1, "backup", made_json(b)), e);
	put_clean(&out, b->path);
	buf_printf(&out, ": %.1f MiB, checked\n", (double)b->bytes / 1048576.0);
	for (size_t i = 0; i < b->n_pruned; i++) {
		buf_puts(&out, "removed ");
		put_clean(&out, b->pruned[i]);
		buf_putc(&out, '\n');
	}
	return command_print(&out, e);
}

static int backup_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct backup_options *o = opts;
	CLEANUP(queue_close) struct queue q = {0};
	CLEANUP(backup_made_done) struct backup_made made = {0};
	CLEANUP_FREE char *directory = NULL;
	int r = queue_open_existing(&q, p, &o->q, STORE_WRITE, e);

	if (r)
		return r;
	directory = backup_directory(&q.config.settings.backup, q.home);
	r = backup_make(q.store, directory, argc ? argv[0] : NULL, o->keep, &made, e);
	return r ? r : tell_made(&q, &made, e);
}

static const struct option_spec backup_specs[] = {
	{.name = "keep",
		.arg = "N",
		.kind = OPTION_INT,
		.offset = offsetof(struct backup_options, keep),
		.min = 0,
		.max = 1000000,
		.text = "remove this queue's older backups in that directory, all but the newest N (default: 0, keep all)"},
	QUEUE_OPTION_ROWS(struct backup_options),
	OPTION_SPEC_END,
};

extern const struct command cmd_queue_backup;
const struct command cmd_queue_backup = {
	.name = "queue backup",
	.args = "[PATH]",
	.summary = "make a checked copy of the queue's database, while it's used",
	.about =
		"PATH is a directory, or a file that isn't there yet; without it the copy goes to\n"
		"`backup.directory` of the configuration, which is `backups` in gpustow's home. Nothing is\n"
		"ever replaced. With --keep only files go that have a backup's name and are backups of this\n"
		"very queue.",
	.examples = "$ gpustow queue backup\n$ gpustow queue backup /mnt/safe --keep 14",
	.options = backup_specs,
	.options_size = sizeof(struct backup_options),
	.max_args = 1,
	.complete = COMPLETE_FILE,
	.wants_json = queue_wants_json,
	.exec = backup_exec,
};

/* ---- restore ---- */

struct plain_options {
	struct queue_options q;
};

static const struct option_spec plain_specs[] = {
	QUEUE_OPTION_ROWS(struct plain_options),
	OPTION_SPEC_END,
};

static int restore_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct plain_options *o = opts;
	CLEANUP(queue_close) struct queue q = {0};
	CLEANUP(buf_done) struct buf out = {0};
	CLEANUP_FREE char *kept = NULL;
	int r = queue_find(&q, p, &o->q, e);

	(void)argc;
	if (!r)
		r = backup_restore(argv[0], q.path, &kept, e);
	if (r)
		return r;
	if (q.json)
		return queue_print_json(json_pack("{s:b, s:s, s:s, s:s?}", "ok", 1, "restored",
						argv[0], "db_path", q.path, "kept", kept),
			e);
	put_clean(&out, q.path);
	buf_puts(&out, " is now what ");
	put_clean(&out, argv[0]);
	buf_puts(&out, " was; nothing starts before every node has been looked at\n");
	if (kept) {
		buf_puts(&out, "what was there before is kept as ");
		put_clean(&out, kept);
		buf_putc(&out, '\n');
	}
	return command_print(&out, e);
}

extern const struct command cmd_queue_restore;
const struct command cmd_queue_restore = {
	.name = "queue restore",
	.args = "FILE",
	.summary = "put a backup in the place of the queue's database",
	.about =
		"End the daemon, its keeper and open screens first; a queue that's in use is left alone.\n"
		"What was there is kept beside it. Nodes may know of jobs that the backup doesn't: nothing\n"
		"starts before each of them has been looked at, and numbers of jobs go on far above the\n"
		"backup's.",
	.examples = "$ gpustow queue restore ~/.gpustow/backups/queue-20260102T030405.678000Z.db",
	.options = plain_specs,
	.options_size = sizeof(struct plain_options),
	.min_args = 1,
	.max_args = 1,
	.complete = COMPLETE_FILE,
	.wants_json = queue_wants_json,
	.exec = restore_exec,
};

/* ---- check ---- */

static int check_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct plain_options *o = opts;
	CLEANUP(queue_close) struct queue q = {0};
	CLEANUP(buf_done) struct buf out = {0};
	int64_t incarnation = 0;
	int r = queue_open_existing(&q, p, &o->q, STORE_READ, e);

	(void)argc, (void)argv;
	if (!r)
		r = store_check(q.store, e);
	if (!r)
		r = store_incarnation(q.store, &incarnation, e);
	if (r)
		return r;
	if (q.json)
		return queue_print_json(
			json_pack("{s:b, s:s, s:s, s:I, s:b, s:o}", "ok", 1, "db_path", q.path,
				"queue", store_queue(q.store), "incarnation",
				(json_int_t)incarnation, "elsewhere", store_is_elsewheres(q.store),
				"last_backup_at",
				backup_last_ms(q.store) ? record_time(backup_last_ms(q.store))
							: json_null()),
			e);
	put_clean(&out, q.path);
	buf_puts(&out, ": whole\n");
	return command_print(&out, e);
}

extern const struct command cmd_queue_check;
const struct command cmd_queue_check = {
	.name = "queue check",
	.args = "",
	.summary = "whether the queue's database is whole",
	.about =
		"Exit code 0: SQLite finds nothing wrong with it. 1: it's damaged or isn't there, and the\n"
		"message says what to do.",
	.examples = "$ gpustow queue check",
	.options = plain_specs,
	.options_size = sizeof(struct plain_options),
	.wants_json = queue_wants_json,
	.exec = check_exec,
};
