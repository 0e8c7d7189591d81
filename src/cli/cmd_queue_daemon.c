/* `queue daemon`: the daemon's face. What it did is a document a pass, or a line for each alert and backup on stderr. */
#include "cli/queue_common.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "svc/daemon.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_CELLS 200

struct daemon_command_options {
	struct queue_options q;
	double interval_s;
	bool no_notify, no_backup, once;
};

struct face {
	struct queue q;
	bool is_deaf; /* nobody reads stdout any more */
};

static void defaults(void *opts)
{
	struct daemon_command_options *o = opts;

	o->interval_s = 15;
}

/* ---- what's told ---- */

static void says(void *arg, const char *text)
{
	const struct face *f = arg;
	CLEANUP(buf_done) struct buf clean = {0};

	text_put_clean(&clean, text, strlen(text));
	fprintf(stderr, "%s: %s\n", f->q.program->name, buf_str(&clean));
}

/* One document a pass: of those in which something happened, and of those that are the interval's or somebody's wish. */
static void print_document(struct face *f, const struct tick_summary *sum, int64_t n_notified,
	const json_t *backup, const char *backup_error)
{
	json_t *o = json_pack("{s:o, s:I, s:o, s:s?}", "tick", tick_summary_json(sum), "notified",
		(json_int_t)n_notified, "backup",
		backup ? json_incref((json_t *)(uintptr_t)backup) : json_null(), "backup_error",
		backup_error);
	char *text = json_dumps(o, JSON_INDENT(2));

	if (!f->is_deaf && (printf("%s\n", text) < 0 || fflush(stdout))) {
		f->is_deaf = true;
		says(f, "nobody reads the documents any more; the daemon goes on without");
	}
	free(text);
	json_decref(o);
}

static void print_lines(struct face *f, const struct tick_summary *sum, const json_t *backup)
{
	const json_t *a;
	size_t i;

	json_array_foreach(sum->alerts, i, a)
	{
		const char *title = json_string_value(json_object_get(a, "title"));
		const char *kind = json_string_value(json_object_get(a, "kind"));
		CLEANUP(buf_done) struct buf line = {0};

		queue_put_line(&line, title ? title : "", LINE_CELLS);
		fprintf(stderr, "%s: alert %lld, %s: %s\n", f->q.program->name,
			json_integer_value(json_object_get(a, "id")), kind ? kind : "?",
			buf_str(&line));
	}
	if (backup) {
		const char *path = json_string_value(json_object_get(backup, "path"));
		CLEANUP(buf_done) struct buf line = {0};

		queue_put_line(&line, path ? path : "?", 4096);
		fprintf(stderr, "%s: backup made: %s\n", f->q.program->name, buf_str(&line));
	}
}

static void passed(void *arg, const struct tick_summary *sum, int64_t n_notified,
	const json_t *backup, const char *backup_error, bool is_regular)
{
	struct face *f = arg;

	if (!f->q.json)
		print_lines(f, sum, backup);
	else if (is_regular || !tick_summary_is_empty(sum) || backup || backup_error || n_notified)
		print_document(f, sum, n_notified, backup, backup_error);
}

static int load(void *arg, struct queue_config *ret, struct err *e)
{
	struct face *f = arg;

	return queue_load_config(&f->q, ret, e);
}

/* ---- the command ---- */

static int daemon_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct daemon_command_options *o = opts;
	struct face f = {0};
	struct daemon_options d = {.interval_ms = (int64_t)(o->interval_s * 1000),
		.notify = !o->no_notify,
		.backup = !o->no_backup,
		.is_once = o->once,
		.arg = &f,
		.load = load,
		.passed = passed,
		.says = says};
	int r = queue_open(&f.q, p, &o->q, STORE_WRITE, e);

	(void)argc;
	(void)argv;
	if (!r && store_is_elsewheres(f.q.store))
		r = err_set(e, -EROFS,
			"the queue's database %s belongs to another machine: its daemon runs there",
			store_path(f.q.store));
	d.home = f.q.home;
	d.program = p->name;
	if (!r)
		r = daemon_run(f.q.store, &d, e);
	queue_close(&f.q);
	return r < 0 ? r : EXIT_OK;
}

#define AT(member) .offset = offsetof(struct daemon_command_options, member)
static const struct option_spec options[] = {
	{.name = "interval",
		.arg = "SECONDS",
		.kind = OPTION_REAL,
		AT(interval_s),
		.min = 2,
		.max = 86400,
		.text = "a pass at least so often, also when nothing happens (default: 15; at least 2)"},
	{.name = "no-notify", .kind = OPTION_FLAG, AT(no_notify), .text = "deliver no alerts"},
	{.name = "no-backup", .kind = OPTION_FLAG, AT(no_backup), .text = "make no backups"},
	{.name = "once",
		.kind = OPTION_FLAG,
		AT(once),
		.text = "one pass with what follows it (alerts, a backup that's due), and then the end"},
	QUEUE_OPTION_ROWS(struct daemon_command_options),
	OPTION_SPEC_END,
};

extern const struct command cmd_queue_daemon;
const struct command cmd_queue_daemon = {
	.name = "queue daemon",
	.args = "",
	.summary = "keep the queue going: passes, alerts, backups",
	.about =
		"It keeps its links to the nodes open and acts when something happens: a job that ended, a\n"
		"card that became free, a node that came back, a command that changed the queue. Commands\n"
		"find it and leave their passes to it. A node or a program that hangs holds up nothing\n"
		"else; a configuration that can't be read is told of, and the last good one stays.\n"
		"SIGHUP reads it anew. SIGTERM and Ctrl-C end the daemon; the jobs go on.\n"
		"New alerts and backups are told on stderr; with --json each pass is a document.",
	.examples = "$ gpustow queue daemon\n$ gpustow queue daemon --once --json",
	.options = options,
	.options_size = sizeof(struct daemon_command_options),
	.defaults = defaults,
	.wants_json = queue_wants_json,
	.abbreviations = true,
	.exec = daemon_exec,
};
