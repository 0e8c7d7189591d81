/*
 * The table of commands and the dispatcher: it finds the command, meets its needs, parses its options, runs it, and prints
 * the one error. It knows no command's business. Nothing of it may die of a closed or a full stdout.
 */
#include "cli/command.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/parse.h"
#include "base/text.h"
#include "cli/cmd_monitor.h"
#include "cli/cmd_once.h"
#include "cli/global.h"
#include "cli/queue_remote.h"

#include <fcntl.h>
#include <jansson.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern const struct command cmd_run, cmd_run_status, cmd_run_why, cmd_run_cancel, cmd_run_retry;
extern const struct command cmd_wait, cmd_release, cmd_doctor;
extern const struct command cmd_ls, cmd_add, cmd_import, cmd_info;
extern const struct command cmd_clean, cmd_clean_server, cmd_clean_log, cmd_clean_all;
extern const struct command cmd_simjob, cmd_completion, cmd_help, cmd_version, cmd_man,
	cmd_complete, cmd_fleet, cmd_node_file;
extern const struct command cmd_queue, cmd_queue_tui, cmd_queue_status, cmd_queue_nodes,
	cmd_queue_cards, cmd_queue_events, cmd_queue_alerts, cmd_queue_ack, cmd_queue_tick,
	cmd_queue_drain, cmd_queue_resume, cmd_queue_ignore, cmd_queue_unignore, cmd_queue_card,
	cmd_queue_import, cmd_queue_lanes, cmd_queue_lane;
extern const struct command cmd_queue_backup, cmd_queue_restore, cmd_queue_check, cmd_forwarded;
extern const struct command cmd_job, cmd_job_submit, cmd_job_ls, cmd_job_show, cmd_job_why,
	cmd_job_logs, cmd_job_wait, cmd_job_advise, cmd_job_cancel, cmd_job_release,
	cmd_job_requeue, cmd_job_edit, cmd_job_priority, cmd_job_note, cmd_job_result,
	cmd_job_purge;
extern const struct command cmd_queue_notify_test, cmd_queue_keeper, cmd_queue_daemon;

/* In the order of the overview. */
const struct command *const commands[] = {
	&cmd_run,
	&cmd_run_status,
	&cmd_run_why,
	&cmd_run_cancel,
	&cmd_run_retry,
	&cmd_queue,
	&cmd_queue_tui,
	&cmd_queue_status,
	&cmd_queue_nodes,
	&cmd_queue_cards,
	&cmd_queue_events,
	&cmd_queue_alerts,
	&cmd_queue_ack,
	&cmd_queue_tick,
	&cmd_queue_drain,
	&cmd_queue_resume,
	&cmd_queue_ignore,
	&cmd_queue_unignore,
	&cmd_queue_card,
	&cmd_queue_lanes,
	&cmd_queue_lane,
	&cmd_queue_import,
	&cmd_queue_notify_test,
	&cmd_queue_keeper,
	&cmd_queue_daemon,
	&cmd_queue_backup,
	&cmd_queue_restore,
	&cmd_queue_check,
	&cmd_job,
	&cmd_job_submit,
	&cmd_job_ls,
	&cmd_job_show,
	&cmd_job_why,
	&cmd_job_logs,
	&cmd_job_wait,
	&cmd_job_advise,
	&cmd_job_cancel,
	&cmd_job_release,
	&cmd_job_requeue,
	&cmd_job_edit,
	&cmd_job_priority,
	&cmd_job_note,
	&cmd_job_result,
	&cmd_job_purge,
	&cmd_wait,
	&cmd_release,
	&cmd_doctor,
	&cmd_ls,
	&cmd_add,
	&cmd_import,
	&cmd_info,
	&cmd_clean,
	&cmd_clean_server,
	&cmd_clean_log,
	&cmd_clean_all,
	&cmd_simjob,
	&cmd_completion,
	&cmd_help,
	&cmd_version,
	&cmd_man,
	&cmd_complete,
	&cmd_fleet,
	&cmd_node_file,
	&cmd_forwarded,
};
const size_t commands_n = ARRAY_LEN(commands);

struct program program_of(const char *argv0)
{
	const char *slash = argv0 ? strrchr(argv0, '/') : NULL;
	const char *name = slash ? slash + 1 : argv0 ? argv0 : "";

	if (strcmp(name, "gpusched") == 0)
		return (struct program){.name = "gpusched", .env_prefix = ""};
	if (strcmp(name, "nvidb") == 0)
		return (struct program){.name = "nvidb", .env_prefix = "NVIDB_"};
	return (struct program){.name = "gpustow", .env_prefix = "GPUSTOW_"};
}

static bool is_gpusched(const struct program *p)
{
	return strcmp(p->name, "gpusched") == 0;
}

/* How many words `name` has if words[0..n) begin with them, else 0. */
static int words_matched(const char *name, int n, char *const *words)
{
	int k = 0;

	while (k < n) {
		size_t len = strcspn(name, " ");

		if (strlen(words[k]) != len || memcmp(words[k], name, len) != 0)
			return 0;
		k++;
		if (!name[len])
			return k;
		name += len + 1;
	}
	return 0;
}

const struct command *command_find(
	const struct program *p, int n, char *const *words, int *ret_words)
{
	const struct command *found = NULL;
	int longest = 0;

	if (is_gpusched(p)) {
		*ret_words = 0;
		return &cmd_run;
	}
	for (size_t i = 0; i < commands_n; i++) {
		int k = words_matched(commands[i]->name, n, words);

		if (k > longest) {
			longest = k;
			found = commands[i];
		}
	}
	*ret_words = longest;
	return found;
}

const struct command *command_named(const char *name)
{
	for (size_t i = 0; i < commands_n; i++)
		if (strcmp(commands[i]->name, name) == 0)
			return commands[i];
	return NULL;
}

/* To stderr, line by line, without power over the terminal. Nobody to tell when that fails. */
static void complain(const char *who, const char *text)
{
	CLEANUP(buf_done) struct buf out = {0};

	buf_printf(&out, "%s: ", who);
	for (;;) {
		size_t len = strcspn(text, "\n");

		text_put_clean(&out, text, len);
		buf_putc(&out, '\n');
		if (!text[len] || !text[len + 1])
			break;
		text += len + 1;
	}
	(void)fd_write_all(STDERR_FILENO, out.data, out.len);
}

static int write_out(const char *bytes, size_t n)
{
	while (n) {
		ssize_t k = write(STDOUT_FILENO, bytes, n);

		if (k >= 0) {
			bytes += k;
			n -= (size_t)k;
		} else if (errno == EAGAIN) {
			/* Somebody else made the shared terminal or pipe non-blocking. */
			struct pollfd pfd = {.fd = STDOUT_FILENO, .events = POLLOUT};

			(void)poll(&pfd, 1, -1);
		} else if (errno != EINTR) {
			return -errno;
		}
	}
	return 0;
}

static int print_bytes(const char *bytes, size_t n, struct err *e)
{
	int r = fflush(stdout) == 0 ? 0 : -errno;

	if (r == 0)
		r = write_out(bytes, n);
	if (r < 0)
		return err_sys(e, r, "cannot write to standard output");
	return 0;
}

int command_print(const struct buf *out, struct err *e)
{
	return print_bytes(buf_str(out), out->len, e);
}

int command_print_text(const char *text, struct err *e)
{
	return print_bytes(text, strlen(text), e);
}

bool command_wants_color(int fd)
{
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

	return !(no && *no) && term && strcmp(term, "dumb") != 0 && isatty(fd);
}

/* What was printed counts only once it has arrived: a full disk may tell at the flush, a network disk at the close. */
static int check_stdout(struct err *e)
{
	int fd;

	if (fflush(stdout) != 0)
		return err_sys(e, -errno, "cannot write to standard output");
	if (ferror(stdout))
		return err_set(e, -EIO, "not all of the output reached standard output");
	fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	if (fd >= 0 && close(fd) < 0 && errno != EINTR)
		return err_sys(e, -errno, "cannot write to standard output");
	return 0;
}

/* A descriptor below 3 that's closed would be given to the next file opened, which would then be printed into. */
static void open_missing_fds(void)
{
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
			(void)open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

static int usage_error(const struct program *p, const struct command *c, const struct err *e)
{
	CLEANUP(buf_done) struct buf usage = {0}, who = {0};

	command_usage(p, c, &usage);
	(void)fd_write_all(STDERR_FILENO, usage.data, usage.len);
	command_put_name(p, c, &who);
	buf_puts(&who, ": error");
	complain(buf_str(&who), e->text);
	return EXIT_USAGE;
}

static int check_count(const struct command *c, int argc, char **argv, struct err *e)
{
	CLEANUP(buf_done) struct buf q = {0};

	if (argc < c->min_args) {
		const char *word = c->args;

		for (int i = 0; i < argc && strchr(word, ' '); i++)
			word = strchr(word, ' ') + 1;
		return err_set(e, -EINVAL, "%.*s is missing", (int)strcspn(word, " ."), word);
	}
	if (!argv || c->max_args < 0 || argc <= c->max_args)
		return 0;
	text_put_repr(&q, argv[c->max_args], strnlen(argv[c->max_args], 200));
	if (c->max_args == 0)
		return err_set(e, -EINVAL, "no arguments are taken, but %s was given", buf_str(&q));
	return err_set(
		e, -EINVAL, "%s is one argument too many; there's only %s", buf_str(&q), c->args);
}

static int print_help(const struct program *p, const struct command *c, struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0};

	command_help(p, c, &out);
	return command_print(&out, e);
}

/* The exit code of what a command returned; its error is printed here. */
static int finish(const struct program *p, int r, struct err *e)
{
	struct err out = {0};

	if (r < 0)
		complain(p->name, e->text[0] ? e->text : strerror(-r));
	/* An exit status has eight bits, and 256 must not become a success. */
	r = r == -EINVAL ? EXIT_USAGE : r < 0 ? EXIT_FAILED : r > 255 ? 255 : r;
	if (r == EXIT_OK && check_stdout(&out) < 0) {
		complain(p->name, out.text);
		return EXIT_FAILED;
	}
	return r;
}

/* The same for a command of the queue, whose answer is JSON where that was asked for. */
static int finish_queue(const struct program *p, bool wants_json, int r, struct err *e)
{
	struct err ignored = {0};
	CLEANUP(buf_done) struct buf out = {0};
	CLEANUP_FREE char *text = NULL;
	json_t *o;

	if (r >= 0)
		return finish(p, r, e);
	if (!wants_json)
		return finish(p, r == -EINVAL ? -EIO : r, e);
	o = json_pack("{s:b, s:s}", "ok", 0, "error", e->text[0] ? e->text : strerror(-r));
	text = o ? json_dumps(o, 0) : NULL;
	json_decref(o);
	buf_printf(&out, "%s\n", text ? text : "{\"ok\": false}");
	if (command_print(&out, &ignored) < 0)
		complain(p->name, e->text[0] ? e->text : strerror(-r));
	return EXIT_FAILED;
}

static bool has_separator(int argc, char **argv)
{
	for (int i = 0; i < argc; i++)
		if (!strcmp(argv[i], "--"))
			return true;
	return false;
}

/* Most often it's the command's own option: train.py --lr 1. */
static void separator_hint(int code, struct err *e)
{
	CLEANUP_FREE char *text = xstrdup(e->text);

	err_set(e, code, "%s. The command and its own options go behind --", text);
}

/* Where the first word is that isn't an option; argc: there's none. What the options before it say is forgotten. */
static int first_plain(const struct command *c, int argc, char **argv)
{
	CLEANUP_FREE void *opts = xcalloc(1, c->options_size ? c->options_size : 1);
	struct err ignored;
	int first = argc;
	int r = option_parse_leading(
		c->options, c->abbreviations, argc, argv, opts, &first, &ignored);

	option_done(c->options, opts);
	return r ? argc : first;
}

/*
 * `job submit sleep -n 5`: sleep's, says everybody, and yet we know that option. Neither is guessed. Behind a whole line of shell
 * ('train.py --lr 1') or a number there's no doubt.
 */
static int check_behind_command(const struct command *c, int argc, char **argv, struct err *e)
{
	CLEANUP(buf_done) struct buf option = {0}, word = {0};
	int64_t number;
	int at;

	if (!argv || !strstr(c->args ? c->args : "", "COMMAND...") || has_separator(argc, argv))
		return 0;
	at = first_plain(c, argc, argv);
	if (at >= argc || strpbrk(argv[at], " \t\n") || parse_int64(argv[at], &number) == 0)
		return 0;
	for (int i = at + 1; i < argc; i++) {
		if (argv[i][0] != '-' || !argv[i][1])
			continue;
		text_put_repr(&option, argv[i], strnlen(argv[i], 200));
		text_put_repr(&word, argv[at], strnlen(argv[at], 200));
		return err_set(e, -EINVAL,
			"%s stands behind %s: whose option is it? The command and its own options go behind --, those of '%s' before it",
			buf_str(&option), buf_str(&word), c->name);
	}
	return 0;
}

static int run_command(const struct program *p, const struct command *c, int argc, char **argv)
{
	CLEANUP_FREE void *opts = xcalloc(1, c->options_size ? c->options_size : 1);
	struct err e = {0}, behind = {0};
	int misplaced = check_behind_command(c, argc, argv, &behind);
	int first = 0, r;

	if (c->defaults)
		c->defaults(opts);
	r = option_parse(c->options, c->abbreviations, argc, argv, opts, &first, &e);
	if (r < 0 && strstr(c->args ? c->args : "", "COMMAND") && !has_separator(argc, argv))
		separator_hint(r, &e);
	if (r == 0 && misplaced) {
		r = misplaced;
		e = behind;
	}
	if (r == OPTION_HELP) {
		r = finish(p, print_help(p, c, &e), &e);
	} else if (r == OPTION_VERSION) {
		r = finish(p, cmd_version.exec(p, NULL, 0, NULL, &e), &e);
	} else if (r < 0 || check_count(c, argc - first, argv + first, &e) < 0 ||
		   (c->check && c->check(opts, argc - first, argv + first, &e) < 0)) {
		r = usage_error(p, c, &e);
	} else {
		if (c->needs_locale)
			setlocale(LC_CTYPE, "");
		r = c->exec(p, opts, argc - first, argv + first, &e);
		r = c->wants_json ? finish_queue(p, c->wants_json(opts) || p->global->json, r, &e)
				  : finish(p, r, &e);
	}
	option_done(c->options, opts);
	return r;
}

/* The command whose first word the user may have meant. */
static const char *closest_command(const char *word)
{
	CLEANUP_FREE const char **names = xcalloc(commands_n, sizeof(*names));
	size_t n = 0;

	for (size_t i = 0; i < commands_n; i++)
		if (!commands[i]->is_hidden && !strchr(commands[i]->name, ' '))
			names[n++] = commands[i]->name;
	return text_closest(word, names, n);
}

static int unknown_command(const struct program *p, const char *word)
{
	CLEANUP(buf_done) struct buf q = {0}, text = {0};
	const char *near = closest_command(word[0] == '-' ? word + strspn(word, "-") : word);

	text_put_repr(&q, word, strnlen(word, 200));
	buf_printf(&text, "%s %s", word[0] == '-' ? "there's no option" : "there's no command",
		buf_str(&q));
	if (near)
		buf_printf(&text, "; did you mean '%s %s'?", p->name, near);
	else
		buf_printf(&text, "; '%s help' lists the commands", p->name);
	complain(p->name, buf_str(&text));
	return EXIT_USAGE;
}

/* A group's further word that isn't there: `queue stats`. */
static bool is_unknown_word(const struct command *c, int n_words, int argc, char **argv)
{
	return n_words == 1 && argc > 1 && argv[1][0] != '-' && c->max_args == 0 && c->wants_json &&
	       !strchr(c->name, ' ');
}

static int unknown_word(const struct program *p, const char *group, const char *word)
{
	CLEANUP(buf_done) struct buf q = {0}, text = {0};
	CLEANUP_FREE const char **names = xcalloc(commands_n, sizeof(*names));
	size_t n = 0, len = strlen(group);
	const char *near;

	for (size_t i = 0; i < commands_n; i++)
		if (!strncmp(commands[i]->name, group, len) && commands[i]->name[len] == ' ')
			names[n++] = commands[i]->name + len + 1;
	near = text_closest(word, names, n);
	text_put_repr(&q, word, strnlen(word, 200));
	buf_printf(&text, "there's no command %s of '%s'", buf_str(&q), group);
	if (near) {
		buf_printf(&text, "; did you mean '%s %s %s'?", p->name, group, near);
	} else {
		buf_puts(&text, "; there are");
		for (size_t i = 0; i < n; i++)
			buf_printf(&text, "%s %s", i ? "," : "", names[i]);
	}
	complain(p->name, buf_str(&text));
	return EXIT_USAGE;
}

/* What stands before the command: its mistakes are shown as the overview's. */
static int global_error(const struct program *p, const struct err *e)
{
	CLEANUP(buf_done) struct buf text = {0};

	buf_printf(&text, "%s ('%s help' shows the options and commands)", e->text, p->name);
	complain(p->name, buf_str(&text));
	return EXIT_USAGE;
}

/* Without a command: one look, or the live monitor. */
static int run_bare(const struct program *p)
{
	struct err e = {0};

	setlocale(LC_CTYPE, "");
	return finish(p, p->global->once ? cmd_once_exec(p, &e) : cmd_monitor_exec(p, &e), &e);
}

/* How many arguments an option takes up that may stand between the words of the queue's commands; 0: it's none of these. */
static int common_option(int argc, char **argv)
{
	if (!strcmp(argv[0], "--json") || !strcmp(argv[0], "--local"))
		return 1;
	if (!strncmp(argv[0], "--db-path=", strlen("--db-path=")))
		return 1;
	return !strcmp(argv[0], "--db-path") && argc > 1 ? 2 : 0;
}

/*
 * `queue --json status` is `queue status --json`: common options that stand between the words of a command move behind
 * them.
 */
static void move_behind_words(const struct program *p, int argc, char **argv)
{
	CLEANUP_FREE char **words = xcalloc((size_t)argc + 1, sizeof(*words)),
			  **moved = xcalloc((size_t)argc + 1, sizeof(*moved));
	int n_words = 1, n_moved = 0, at = 1, found;

	words[0] = argv[0];
	for (;;) {
		int next = at, n;

		while (next < argc && (n = common_option(argc - next, argv + next)) > 0)
			next += n;
		if (next >= argc)
			break;
		words[n_words] = argv[next];
		(void)command_find(p, n_words + 1, words, &found);
		if (found != n_words + 1)
			break;
		memcpy(moved + n_moved, argv + at, (size_t)(next - at) * sizeof(*moved));
		n_moved += next - at;
		n_words++;
		at = next + 1;
	}
	memcpy(argv, words, (size_t)n_words * sizeof(*argv));
	memcpy(argv + n_words, moved, (size_t)n_moved * sizeof(*argv));
}

/* The command in argv, after the global options. */
static int run_named(const struct program *p, int argc, char **argv)
{
	static char queue_word[] = "queue";
	struct err e = {0};
	int words;
	const struct command *c;

	if (!strcmp(argv[0], "q"))
		argv[0] = queue_word;
	if (!strcmp(argv[0], "queue") || !strcmp(argv[0], "job"))
		move_behind_words(p, argc, argv);
	c = command_find(p, argc, argv, &words);
	if (!c)
		return unknown_command(p, argv[0]);
	if (c->wants_json) {
		struct queue_away away = {0};
		int r = queue_remote(p, c, words, argc, argv, &away, &e);

		if (r < 0 || away.is_away)
			return finish_queue(p, away.wants_json, r, &e);
	}
	if (is_unknown_word(c, words, argc, argv))
		return unknown_word(p, c->name, argv[1]);
	if (global_check(p->global, c, &e) < 0)
		return global_error(p, &e);
	return run_command(p, c, argc - words, argv + words);
}

static int run_with_options(struct program *p, struct global_options *g, int argc, char **argv)
{
	struct err e = {0};
	int first = 0, r = option_parse_leading(global_specs, true, argc, argv, g, &first, &e);

	if (r == OPTION_VERSION)
		return finish(p, cmd_version.exec(p, NULL, 0, NULL, &e), &e);
	if (r == OPTION_HELP)
		return run_command(p, &cmd_help, 0, NULL);
	if (!r && g->sim)
		r = global_set_sim(g->sim, "--sim", &e);
	if (r < 0)
		return r == -EINVAL ? global_error(p, &e) : finish(p, r, &e);
	return first == argc ? run_bare(p) : run_named(p, argc - first, argv + first);
}

int command_dispatch(const struct program *p, int argc, char **argv)
{
	struct program own = *p;
	struct global_options g;

	global_defaults(&g);
	own.global = &g;
	return run_with_options(&own, &g, argc, argv);
}

int command_main(int argc, char **argv)
{
	struct program p = program_of(argc > 0 ? argv[0] : NULL);
	struct global_options g;

	global_defaults(&g);
	p.global = &g;
	open_missing_fds();
	/* A reader that went away is an error of the write, not the end of a scheduler with jobs running. */
	signal(SIGPIPE, SIG_IGN);
	/* Whoever started us may ignore it; then no child of ours could be waited for. */
	signal(SIGCHLD, SIG_DFL);
	if (argc > 0) {
		argc--;
		argv++;
	}
	if (is_gpusched(&p))
		return run_command(&p, &cmd_run, argc, argv);
	return run_with_options(&p, &g, argc, argv);
}
