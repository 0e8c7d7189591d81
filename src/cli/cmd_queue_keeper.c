/* `queue keeper`: the supervisor of the queue's daemon, installed, started, stopped and asked. */
#include "cli/queue_common.h"
#include "cli/queue_keeper.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "svc/external.h"
#include "svc/keeper.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INTERVAL = 15, INTERVAL_MIN = 2, LINES = 50, LINES_MAX = 100000 };

struct keeper_options {
	struct queue_options q;
	const char *program;
	int64_t interval, number;
	bool start, systemd;
};

static void defaults(void *opts)
{
	struct keeper_options *o = opts;

	o->interval = INTERVAL;
	o->number = LINES;
}

/* ---- which program the daemon is ---- */

static bool is_ours(const char *path)
{
	CLEANUP_FREE char *resolved = realpath(path, NULL), *own = realpath("/proc/self/exe", NULL);

	return resolved && own && strcmp(resolved, own) == 0 && access(path, X_OK) == 0;
}

/*
 * This very program under the name that it was called by: beside its own file, or on PATH; a name on PATH outlives an update that
 * moves the file, so it goes first.
 */
static bool own_program(const char *name, struct buf *ret)
{
	CLEANUP_FREE char *own = realpath("/proc/self/exe", NULL);
	char *slash = own ? strrchr(own, '/') : NULL;

	if (external_find(name, NULL, ret) && is_ours(buf_str(ret)))
		return true;
	if (!slash)
		return false;
	buf_clear(ret);
	buf_printf(ret, "%.*s/%s", (int)(slash - own), own, name);
	return is_ours(buf_str(ret));
}

static int find_program(const struct program *p, const char *told, struct buf *ret, struct err *e)
{
	CLEANUP_FREE char *absolute = NULL;

	if (told && !strchr(told, '/')) {
		if (external_find(told, NULL, ret))
			return 0;
		return err_set(e, -ENOENT, "there's no program \"%s\" on PATH", told);
	}
	if (told && told[0] != '/') {
		absolute = getcwd(NULL, 0);
		buf_printf(ret, "%s/%s", absolute ? absolute : "", told);
		return 0;
	}
	if (told) {
		buf_puts(ret, told);
		return 0;
	}
	if (own_program(p->name, ret) || external_find(p->name, NULL, ret))
		return 0;
	return err_set(e, -ENOENT, "there's no program \"%s\" on PATH; say where it is with --%s",
		p->name, "program");
}

/* ---- where ---- */

/* A queue.yml with a mistake in it mustn't keep a person from stopping what runs. */
static int find_home(
	struct queue *q, const struct program *p, const struct keeper_options *o, struct err *e)
{
	CLEANUP(buf_done) struct buf said = {0};
	struct err bad = {0};
	int r;

	if (o->q.db_path)
		return err_set(e, -EINVAL,
			"the keeper's daemon always serves the queue in the home; set %sHOME for another",
			p->env_prefix);
	r = queue_find(q, p, &o->q, &bad);
	if (r == -EINVAL && hosts_home(p, q->home, e) == 0) {
		text_put_clean(&said, bad.text, strlen(bad.text));
		fprintf(stderr, "%s: warning: %s\n", p->name, buf_str(&said));
		return 0;
	}
	if (r)
		*e = bad;
	return r;
}

/* ---- JSON ---- */

static json_t *text_or_null(const char *s)
{
	return s && *s ? json_string(s) : json_null();
}

json_t *queue_keeper_json(const struct keeper_state *s)
{
	return json_pack("{s:b, s:b, s:o, s:o, s:o, s:o, s:o}", "installed", s->installed,
		"running", s->running, "pid", s->pid ? json_integer(s->pid) : json_null(),
		"manager", text_or_null(keeper_manager_name(s->manager)), "script",
		text_or_null(s->script), "unit", text_or_null(s->unit), "log",
		text_or_null(s->log));
}

static json_t *installed_json(const struct keeper_options *o, const char *program,
	const struct keeper_installed *done, const struct keeper_state *s)
{
	return json_pack("{s:b, s:o, s:s, s:I, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "ok",
		!o->start || done->started, "script", text_or_null(s->script), "nvidb", program,
		"interval", (json_int_t)o->interval, "replaced", done->replaced, "manager",
		text_or_null(keeper_manager_name(s->manager)), "unit", text_or_null(s->unit), "log",
		text_or_null(s->log), "started",
		o->start ? json_boolean(done->started) : json_null(), "start_error",
		text_or_null(done->start_error), "advice", text_or_null(done->advice), "state",
		queue_keeper_json(s));
}

/* ---- install ---- */

static void put_installed(const struct queue *q, const struct keeper_options *o,
	const struct keeper_installed *done, const struct keeper_state *s, struct buf *out)
{
	const char *what = s->manager == KEEPER_SYSTEMD ? s->unit : s->script;

	buf_puts(out, done->replaced ? "replaced: " : "installed: ");
	text_put_clean(out, what, strlen(what));
	buf_putc(out, '\n');
	if (o->start && done->started)
		buf_printf(out, "running (pid %" PRId64 ")\n", s->pid);
	else if (!o->start && !s->running)
		buf_printf(out, "`%s queue keeper start` starts it\n", q->program->name);
	if (done->advice[0])
		buf_printf(out, "note: %s\n", done->advice);
}

static int install(struct queue *q, const struct keeper_options *o, struct err *e)
{
	CLEANUP(buf_done) struct buf program = {0}, env_home = {0}, out = {0};
	struct keeper_installed done;
	struct keeper_state s;
	int r = find_program(q->program, o->program, &program, e);

	buf_printf(&env_home, "%sHOME", q->program->env_prefix);
	if (!r) {
		struct keeper_install how = {.program = buf_str(&program),
			.env_home = buf_str(&env_home),
			.interval_s = o->interval,
			.systemd = o->systemd,
			.start = o->start};

		r = keeper_install(q->home, &how, &done, e);
	}
	if (!r)
		r = keeper_state(q->home, &s, e);
	if (r)
		return r == -EINVAL ? -EIO : r;
	if (q->json) {
		r = queue_print_json(installed_json(o, buf_str(&program), &done, &s), e);
	} else {
		put_installed(q, o, &done, &s, &out);
		r = command_print(&out, e);
	}
	if (!r && o->start && !done.started)
		return q->json ? EXIT_FAILED
			       : err_set(e, -EIO, "it didn't start: %s", done.start_error);
	return r;
}

/* ---- the others ---- */

static int print_state(const struct queue *q, struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0};
	struct keeper_state s;
	const char *what;
	int r = keeper_state(q->home, &s, e);

	if (r)
		return r;
	what = s.manager == KEEPER_SYSTEMD ? s.unit : s.script;
	if (q->json) {
		r = queue_print_json(queue_keeper_json(&s), e);
	} else {
		if (s.running)
			buf_printf(&out, "running (pid %" PRId64 ")", s.pid);
		else
			buf_puts(&out, s.installed ? "stopped" : "not installed");
		if (s.installed) {
			buf_printf(&out, ", %s: ", keeper_manager_name(s.manager));
			text_put_clean(&out, what, strlen(what));
		}
		buf_putc(&out, '\n');
		if (!s.installed)
			buf_printf(&out, "`%s queue keeper install` makes one\n", q->program->name);
		r = command_print(&out, e);
	}
	return r ? r : s.running ? EXIT_OK : EXIT_FAILED;
}

/* Lines of another program: clean, each ended. */
static void put_lines(const struct buf *said, struct buf *out)
{
	for (const char *p = buf_str(said); *p;) {
		size_t n = strcspn(p, "\n");

		text_put_clean(out, p, n);
		buf_putc(out, '\n');
		p += n + (p[n] == '\n');
	}
}

static int tell(
	const struct queue *q, const char *action, int code, const struct buf *said, struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0};
	struct keeper_state s;
	int r;

	put_lines(said, &out);
	if (q->json) {
		/* Without its last line's end. */
		CLEANUP_FREE char *text = xstrndup(buf_str(&out), out.len ? out.len - 1 : 0);

		r = keeper_state(q->home, &s, e);
		if (!r)
			r = queue_print_json(
				json_pack("{s:b, s:s, s:s, s:o}", "ok", code == 0, "action", action,
					"output", text, "state", queue_keeper_json(&s)),
				e);
	} else {
		r = command_print(&out, e);
	}
	return r ? r : code;
}

static int do_action(
	const struct queue *q, const struct keeper_options *o, const char *action, struct err *e)
{
	CLEANUP(buf_done) struct buf said = {0};
	int r = strcmp(action, "logs") == 0 ? keeper_logs(q->home, o->number, &said, e)
					    : keeper_do(q->home, action, &said, e);

	return r < 0 ? r : tell(q, action, r, &said, e);
}

static bool is_action(const char *word)
{
	static const char *const words[] = {
		"install", "start", "ensure", "stop", "restart", "status", "logs"};

	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (strcmp(word, words[i]) == 0)
			return true;
	return false;
}

static int keeper_check(const void *opts, int argc, char **argv, struct err *e)
{
	const struct keeper_options *o = opts;
	CLEANUP(buf_done) struct buf word = {0};

	if (argc && !is_action(argv[0])) {
		text_put_repr(&word, argv[0], strnlen(argv[0], 100));
		return err_set(e, -EINVAL,
			"%s is nothing a keeper does; say install, start, ensure, stop, restart, status or logs",
			buf_str(&word));
	}
	if ((!argc || strcmp(argv[0], "install") != 0) && (o->start || o->systemd || o->program))
		return err_set(e, -EINVAL, "--start, --systemd and --program go with install");
	return 0;
}

static int keeper_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct keeper_options *o = opts;
	CLEANUP(queue_close) struct queue q = {0};
	const char *action = argc ? argv[0] : "status";
	int r = find_home(&q, p, o, e);

	if (r)
		return r;
	if (strcmp(action, "install") == 0)
		return install(&q, o, e);
	return strcmp(action, "status") == 0 ? print_state(&q, e) : do_action(&q, o, action, e);
}

#define AT(member) .offset = offsetof(struct keeper_options, member)
static const struct option_spec options[] = {
	{.name = "program",
		.arg = "PATH",
		.kind = OPTION_TEXT,
		AT(program),
		.text = "install: the program that the daemon is (default: this one)",
		.complete = COMPLETE_FILE},
	{.name = "nvidb",
		.arg = "PATH",
		.kind = OPTION_TEXT,
		AT(program),
		.text = "the same, nvidb's name for it",
		.complete = COMPLETE_FILE},
	{.name = "interval",
		.arg = "SECONDS",
		.kind = OPTION_INT,
		AT(interval),
		.min = INTERVAL_MIN,
		.max = 86400,
		.text = "install: between two passes of the daemon (default: 15)"},
	{.name = "start",
		.kind = OPTION_FLAG,
		AT(start),
		.text = "install: start it, or start it anew if it runs"},
	{.name = "systemd",
		.kind = OPTION_FLAG,
		AT(systemd),
		.text = "install: as a unit of your systemd, which can start it with the machine"},
	{.letter = 'n',
		.name = "number",
		.arg = "LINES",
		.kind = OPTION_INT,
		AT(number),
		.min = 1,
		.max = LINES_MAX,
		.text = "logs: the last so many lines (default: 50)"},
	QUEUE_OPTION_ROWS(struct keeper_options),
	OPTION_SPEC_END,
};

extern const struct command cmd_queue_keeper;
const struct command cmd_queue_keeper = {
	.name = "queue keeper",
	.args = "[install|start|ensure|stop|restart|status|logs]",
	.summary = "keep the queue's daemon running",
	.about =
		"install writes a script, queue-keeper.sh in the home, that starts the daemon again\n"
		"whenever it ends, after 5 s at first and 5 min at most; or a unit of your systemd with\n"
		"--systemd. ensure starts it unless it runs. stop returns once nothing of it is left, and\n"
		"says what is if something stays (exit 1). status exits 1 when it isn't running. The\n"
		"script's keeper doesn't come back by itself after a reboot.",
	.examples = "$ gpustow queue keeper install --start\n$ gpustow queue keeper logs -n 20",
	.options = options,
	.options_size = sizeof(struct keeper_options),
	.defaults = defaults,
	.max_args = 1,
	.wants_json = queue_wants_json,
	.check = keeper_check,
	.exec = keeper_exec,
};
