/*
 * The dispatcher and everything that's rendered from the table. The scripts are given to the real shells and the pages to
 * the real scdoc, where this machine has them; what it lacks is skipped by name.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "cli/cmd_run_options.h"
#include "cli/command.h"
#include "cli/global.h"

static const struct program gpustow = {.name = "gpustow", .env_prefix = "GPUSTOW_"};
static const struct program gpusched = {.name = "gpusched", .env_prefix = ""};

struct outcome {
	int code; /* of the exit; -1: killed by a signal */
	struct buf out, err;
};

static void outcome_done(struct outcome *o)
{
	buf_done(&o->out);
	buf_done(&o->err);
}

static int temporary(void)
{
	char path[] = "/tmp/test-command-XXXXXX";
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	unlink(path);
	return fd;
}

static void take_file(int fd, struct buf *ret)
{
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	assert_int_equal(fd_read_all(fd, ret, 1 << 20), 0);
	close(fd);
}

/* Runs `child` in a process of its own; out_fd -1: its stdout is kept. */
static struct outcome in_child(int out_fd, int (*child)(const void *), const void *arg)
{
	struct outcome o = {0};
	int out = temporary(), err = temporary(), status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		dup2(out_fd >= 0 ? out_fd : out, STDOUT_FILENO);
		dup2(err, STDERR_FILENO);
		_exit(child(arg));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	o.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	take_file(out, &o.out);
	take_file(err, &o.err);
	return o;
}

static int call_main(const void *arg)
{
	char *words[16] = {NULL};
	int n = 0;

	for (const char *const *w = arg; *w; w++)
		words[n++] = xstrdup(*w);
	n = command_main(n, words);
	for (int i = 0; i < 16; i++)
		free(words[i]);
	return n;
}

static struct outcome run_words(int out_fd, const char *const *words)
{
	return in_child(out_fd, call_main, words);
}

#define RUN(...) run_words(-1, (const char *const[]){__VA_ARGS__, NULL})

static int call_exec(const void *arg)
{
	char *const *argv = (char *const *)(uintptr_t)arg;

	execvp(argv[0], argv);
	return 127;
}

/* A program with its words; code 127: it isn't installed. */
static struct outcome run_program(const char *const *words)
{
	return in_child(-1, call_exec, words);
}

#define PROGRAM(...) run_program((const char *const[]){__VA_ARGS__, NULL})

/* Is it on the PATH? Looked at before anything is made, since skip() jumps over clean-ups. */
static bool has_program(const char *name)
{
	const char *p = getenv("PATH");

	while (p && *p) {
		size_t n = strcspn(p, ":");
		CLEANUP_FREE char *path = xasprintf("%.*s/%s", (int)n, p, name);

		if (access(path, X_OK) == 0)
			return true;
		p += n + (p[n] == ':');
	}
	return false;
}

static void write_file(const char *path, const struct buf *text)
{
	assert_int_equal(fd_replace_at(AT_FDCWD, path, text->data, text->len, false), 0);
}

struct dir {
	char path[32];
};

static struct dir dir_make(void)
{
	struct dir d = {.path = "/tmp/test-command-XXXXXX"};

	assert_non_null(mkdtemp(d.path));
	return d;
}

static void dir_done(struct dir *d)
{
	fd_remove_tree_at(AT_FDCWD, d->path);
}

static void versions(void **state)
{
	static const struct {
		const char *words[4];
		const char *out;
	} rows[] = {
		{{"gpustow", "--version"}, "gpustow " GPUSTOW_VERSION "\n"},
		{{"/opt/x/nvidb", "version"}, "gpustow " GPUSTOW_VERSION "\n"},
		{{"anything", "run", "--version"}, "gpustow " GPUSTOW_VERSION "\n"},
		{{"./gpusched", "--version"}, "gpusched 0.4.0 (gpustow " GPUSTOW_VERSION ")\n"},
		{{"gpusched", "jobs.txt", "--vers"},
			"gpusched 0.4.0 (gpustow " GPUSTOW_VERSION ")\n"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		CLEANUP(outcome_done) struct outcome o = run_words(-1, rows[i].words);

		assert_int_equal(o.code, 0);
		assert_string_equal(buf_str(&o.out), rows[i].out);
		assert_string_equal(buf_str(&o.err), "");
	}
}

static void mistakes(void **state)
{
	static const struct {
		const char *words[6];
		const char *err; /* all of it */
	} rows[] = {
		{{"gpustow", "rnu"},
			"gpustow: there's no command 'rnu'; did you mean 'gpustow run'?\n"},
		{{"nvidb", "hepl"},
			"nvidb: there's no command 'hepl'; did you mean 'nvidb help'?\n"},
		{{"gpustow", "a\033[2Jb"},
			"gpustow: there's no command 'a\\x1b[2Jb'; 'gpustow help' lists the commands\n"},
		{{"gpustow", "--simm"},
			"gpustow: unknown option '--simm'; did you mean --sim? ('gpustow help' shows the options and commands)\n"},
		{{"gpustow", "--once", "run", "x"},
			"gpustow: --once before a command says nothing to it; --once goes without one, and run has options "
			"of its own ('gpustow help' shows the options and commands)\n"},
		{{"gpustow", "--dcgm", "run", "x"},
			"gpustow: --dcgm is for the live monitor and for --once, which go without a command; run shows no "
			"profiling figures ('gpustow help' shows the options and commands)\n"},
		{{"gpustow", ""},
			"gpustow: there's no command ''; 'gpustow help' lists the commands\n"},
		{{"gpustow", "help", "rum"},
			"gpustow: there's no command 'rum'; 'gpustow help' lists the commands\n"},
		{{"gpusched"},
			"usage: gpusched [options] JOBS_FILE\ngpusched: error: JOBS_FILE is missing\n"},
		{{"gpusched", "--poll", "0", "jobs.txt"},
			"usage: gpusched [options] JOBS_FILE\n"
			"gpusched: error: --poll takes a number from 0.01 to 86400, not '0'\n"},
		{{"gpusched", "a", "b"},
			"usage: gpusched [options] JOBS_FILE\n"
			"gpusched: error: 'b' is one argument too many; there's only JOBS_FILE\n"},
		/* There are no sub-commands under this name: "status" is the file. */
		{{"gpusched", "status", "b"},
			"usage: gpusched [options] JOBS_FILE\n"
			"gpusched: error: 'b' is one argument too many; there's only JOBS_FILE\n"},
		{{"gpustow", "run", "status", "b"},
			"usage: gpustow run status [options]\n"
			"gpustow run status: error: no arguments are taken, but 'b' was given\n"},
		{{"gpustow", "run", "cancel"},
			"usage: gpustow run cancel [options] JOB...\ngpustow run cancel: error: JOB is missing\n"},
		{{"gpustow", "run", "why", "--jso", "1"},
			"usage: gpustow run why [options] [JOB...]\n"
			"gpustow run why: error: unknown option '--jso'; did you mean --json?\n"},
		{{"gpustow", "completion", "tcsh"},
			"gpustow: there's completion for bash, zsh and fish, not for 'tcsh'\n"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		CLEANUP(outcome_done) struct outcome o = run_words(-1, rows[i].words);

		assert_string_equal(buf_str(&o.err), rows[i].err);
		assert_string_equal(buf_str(&o.out), "");
		assert_int_equal(o.code, 2);
	}
}

static void overview(void **state)
{
	CLEANUP(outcome_done) struct outcome none = RUN("gpustow");
	CLEANUP(outcome_done) struct outcome help = RUN("gpustow", "--help");
	CLEANUP(outcome_done) struct outcome sched = RUN("gpusched", "-h");

	(void)state;
	/* Without anything: the monitor, which says what it lacks here. */
	assert_int_equal(none.code, 1);
	assert_non_null(strstr(buf_str(&none.err), "needs a terminal"));
	assert_int_equal(help.code, 0);
	for (size_t i = 0; i < commands_n; i++) {
		CLEANUP_FREE char *line = xasprintf("\n  %s ", commands[i]->name);

		assert_true(!commands[i]->is_hidden == !!strstr(help.out.data, line));
	}
	assert_int_equal(sched.code, 0);
	assert_memory_equal(sched.out.data, "usage: gpusched [options] JOBS_FILE\n", 36);
	assert_null(strstr(sched.out.data, "gpustow run"));
}

/* A stdout that takes nothing is an error with a sentence, never a crash and never a success. */
static void stdout_gone(void **state)
{
	static const char *const words[][4] = {{"gpustow", "help"}, {"gpustow", "--version"},
		{"gpusched", "--help"}, {"gpustow", "completion", "bash"}};
	int full = open("/dev/full", O_WRONLY), ends[2];

	(void)state;
	assert_true(full >= 0);
	assert_int_equal(pipe(ends), 0);
	close(ends[0]);
	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		CLEANUP(outcome_done) struct outcome o = run_words(full, words[i]);
		CLEANUP(outcome_done) struct outcome broken = run_words(ends[1], words[i]);

		assert_int_equal(o.code, 1);
		assert_non_null(strstr(buf_str(&o.err),
			": cannot write to standard output: No space left on device\n"));
		assert_int_equal(broken.code, 1);
		assert_non_null(strstr(
			buf_str(&broken.err), ": cannot write to standard output: Broken pipe\n"));
	}
	close(full);
	close(ends[1]);
}

static int with_closed_stdout(const void *arg)
{
	int code, fd;

	close(STDOUT_FILENO);
	code = call_main(arg);
	/* What is opened later must not become the new stdout, and be printed into. */
	fd = open("/dev/null", O_RDONLY);
	return fd > STDERR_FILENO ? code : 99;
}

static void stdout_closed(void **state)
{
	static const char *const words[] = {"gpustow", "help", NULL};
	CLEANUP(outcome_done) struct outcome o = in_child(-1, with_closed_stdout, words);

	(void)state;
	assert_int_equal(o.code, 1);
	assert_string_equal(
		buf_str(&o.err), "gpustow: cannot write to standard output: Bad file descriptor\n");
}

static const char *found(const struct program *p, const char *a, const char *b, int *words)
{
	char *const w[] = {(char *)(uintptr_t)a, (char *)(uintptr_t)b};
	const struct command *c = command_find(p, b ? 2 : 1, w, words);

	return c ? c->name : "none";
}

static void finding(void **state)
{
	int n;

	(void)state;
	assert_string_equal(found(&gpustow, "run", "status", &n), "run status");
	assert_int_equal(n, 2);
	assert_string_equal(found(&gpustow, "run", "./status", &n), "run");
	assert_int_equal(n, 1);
	assert_string_equal(found(&gpustow, "run", "statu", &n), "run");
	assert_string_equal(found(&gpustow, "run", NULL, &n), "run");
	assert_string_equal(found(&gpustow, "ru", NULL, &n), "none");
	assert_string_equal(found(&gpustow, "runs", NULL, &n), "none");
	assert_string_equal(found(&gpustow, "run status", NULL, &n), "none");
	assert_string_equal(found(&gpusched, "status", "x", &n), "run");
	assert_int_equal(n, 0);
}

/* gpusched's options and defaults, as its own command line has them. */
static void run_defaults_are_gpuscheds(void **state)
{
	struct run_options o = {0};
	struct option_spec const *s;
	static const char *const names[] = {"gpus", "idle-threshold", "margin", "tolerance", "poll",
		"spike-buffer", "exclusive", "log-dir", "watch", "oom-retries", "fresh", "verbose",
		"sim", "check", "json", "retry-failed", "max-jobs", "nvlink", "grace", "help",
		"version"};

	(void)state;
	cmd_run.defaults(&o);
	assert_null(o.gpus);
	assert_int_equal(o.idle_threshold_mib, 200);
	assert_int_equal(o.margin_mib, 512);
	assert_true(
		o.tolerance == 0.10 && o.poll_s == 5 && o.spike_buffer == 0.10 && o.grace_s == 10);
	assert_string_equal(o.log_dir, "gpusched_logs");
	assert_int_equal(o.oom_retries, 0);
	assert_int_equal(o.max_jobs, 0);
	assert_false(o.exclusive || o.watch || o.fresh || o.verbose || o.check || o.json ||
		     o.retry_failed || o.nvlink);
	assert_null(o.sim);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		s = option_at(cmd_run.options, i);
		assert_non_null(s);
		assert_string_equal(s->name, names[i]);
	}
	assert_null(option_at(cmd_run.options, ARRAY_LEN(names)));
}

/* Each number's bounds, at the bound and beyond it. */
static void run_bounds(void **state)
{
	static const char *const good[] = {"--margin=0", "--idle-threshold=0", "--tolerance=0",
		"--spike-buffer=0", "--poll=0.01", "--oom-retries=0", "--max-jobs=0", "--grace=0",
		"--si=2", "--pol=1", "--tolerance=3"};
	static const char *const bad[] = {"--margin=-1", "--idle-threshold=-1", "--tolerance=-0.1",
		"--spike-buffer=-0.1", "--poll=0.009", "--poll=nan", "--tolerance=nan",
		"--spike-buffer=inf", "--oom-retries=-1", "--max-jobs=-1", "--grace=-1",
		"--grace=nan", "--margin=1.5", "--margin=", "--poll="};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good) + ARRAY_LEN(bad); i++) {
		bool is_good = i < ARRAY_LEN(good);
		CLEANUP_FREE char *word = xstrdup(is_good ? good[i] : bad[i - ARRAY_LEN(good)]);
		struct run_options o = {0};
		struct err e = {0};
		int first, r;

		cmd_run.defaults(&o);
		r = option_parse(cmd_run.options, cmd_run.abbreviations, 1, &word, &o, &first, &e);
		if (r != (is_good ? 0 : -EINVAL))
			fail_msg("%s: %d %s", word, r, e.text);
	}
}

/* A word that fills its array to the last byte has no end, and no compiler says so. */
static bool is_ended(const char *word, size_t size)
{
	return memchr(word, '\0', size) != NULL;
}

static void words_are_ended(const struct option_spec *o)
{
	assert_true(is_ended(o->name, sizeof(o->name)));
	assert_true(is_ended(o->arg, sizeof(o->arg)));
	assert_true(is_ended(o->text, sizeof(o->text)));
}

/* What the table says is what it may say: a summary without a full stop, options in order, an exec. */
static void table(void **state)
{
	(void)state;
	for (const struct option_spec *o = global_specs; *o->name; o++)
		words_are_ended(o);
	for (size_t i = 0; i < commands_n; i++) {
		const struct command *c = commands[i];

		assert_non_null(c->exec);
		assert_non_null(c->args);
		assert_true(is_ended(c->name, sizeof(c->name)));
		assert_true(c->summary && *c->summary && c->summary[strlen(c->summary) - 1] != '.');
		assert_true(c->max_args < 0 || c->min_args <= c->max_args);
		assert_true(c->complete != COMPLETE_JOB || c->candidates);
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(c->name, commands[k]->name);
		for (const struct option_spec *o = c->options; o && *o->name; o++) {
			words_are_ended(o);
			assert_true(*o->text);
			assert_true((o->kind == OPTION_FLAG) == !*o->arg);
			assert_true(o->offset < c->options_size);
			for (const struct option_spec *p = c->options; p != o; p++)
				assert_true(strcmp(p->name, o->name) != 0 &&
					    (!p->letter || p->letter != o->letter));
		}
	}
}

static bool has_option(const char *text, const char *before, const struct option_spec *o)
{
	CLEANUP_FREE char *want = xasprintf("%s%s", before, o->name);
	size_t n = strlen(want);

	for (const char *s = text; (s = strstr(s, want)); s += n)
		if (!strchr("abcdefghijklmnopqrstuvwxyz-", s[n]))
			return true;
	return false;
}

/* The part of `text` that starts at `mark`. */
static const char *from(const char *text, const char *mark)
{
	const char *s = strstr(text, mark);

	if (!s)
		fail_msg("'%s' is nowhere", mark);
	return s;
}

/* In man pages a hyphen is escaped. */
static bool man_has_option(const char *text, const struct option_spec *o)
{
	CLEANUP(buf_done) struct buf want = {0};

	buf_puts(&want, "*\\-\\-");
	for (const char *s = o->name; *s; s++)
		buf_printf(&want, "%s%c", *s == '-' ? "\\" : "", *s);
	buf_putc(&want, '*');
	return strstr(text, want.data);
}

/* The same without what stands before a character only so that it's taken as it is. */
static bool man_has_text(const char *text, const char *want)
{
	CLEANUP(buf_done) struct buf plain = {0};

	for (; *text; text++)
		if (*text != '\\')
			buf_putc(&plain, *text);
	return strstr(buf_str(&plain), want) != NULL;
}

static void every_option_is_everywhere(void **state)
{
	CLEANUP(buf_done) struct buf bash = {0}, zsh = {0}, fish = {0};

	(void)state;
	assert_int_equal(command_completion("bash", &bash, NULL), 0);
	assert_int_equal(command_completion("zsh", &zsh, NULL), 0);
	assert_int_equal(command_completion("fish", &fish, NULL), 0);
	for (size_t i = 0; i < commands_n; i++) {
		const struct command *c = commands[i];
		CLEANUP(buf_done) struct buf help = {0}, man = {0};
		CLEANUP_FREE char *arm = xasprintf("\t'%s')\n", c->name);
		CLEANUP_FREE char *in_fish = xasprintf("'__gpustow_is \\'%s\\''", c->name);
		const struct option_spec *o;

		if (c->is_hidden)
			continue;
		command_help(&gpustow, c, &help);
		command_man(c, &man);
		for (size_t k = 0; (o = option_at(c->options, k)); k++) {
			CLEANUP_FREE char *fish_line = xasprintf("%s -l %s", in_fish, o->name);
			CLEANUP_FREE char *fish_short =
				xasprintf("%s -s %c -l %s", in_fish, o->letter, o->name);

			if (!has_option(help.data, "--", o) || !man_has_option(man.data, o) ||
				!has_option(from(bash.data, arm), "--", o) ||
				!has_option(from(zsh.data, arm),
					o->kind == OPTION_LIST ? "'*--" : "'--", o) ||
				!strstr(fish.data, o->letter ? fish_short : fish_line))
				fail_msg("--%s of '%s' is missing somewhere", o->name, c->name);
			if (!man_has_text(man.data, o->arg))
				fail_msg("%s of --%s isn't in the page of '%s'", o->arg, o->name,
					c->name);
		}
	}
}

static void help_is_narrow(void **state)
{
	(void)state;
	for (size_t i = 0; i < commands_n; i++) {
		CLEANUP(buf_done) struct buf help = {0};

		command_help(&gpustow, commands[i], &help);
		for (const char *s = help.data; *s; s += strcspn(s, "\n") + 1)
			if (strcspn(s, "\n") > 100)
				fail_msg("too wide: %.*s", (int)strcspn(s, "\n"), s);
	}
}

static void man_pages_pass_scdoc(void **state)
{
	if (!has_program("scdoc"))
		skip();

	CLEANUP(dir_done) struct dir d = dir_make();
	CLEANUP_FREE char *path = xasprintf("%s/page", d.path);

	(void)state;
	for (size_t i = 0; i <= commands_n; i++) {
		const struct command *c = i < commands_n ? commands[i] : NULL;
		CLEANUP(buf_done) struct buf man = {0};

		command_man(c, &man);
		write_file(path, &man);
		{
			CLEANUP(outcome_done)
			struct outcome o = PROGRAM("sh", "-c", "exec scdoc <\"$0\"", path);

			if (o.code != 0)
				fail_msg("%s: %s", c ? c->name : "gpustow", buf_str(&o.err));
			assert_non_null(strstr(buf_str(&o.out), ".SH NAME"));
		}
	}
}

/* The build must list the pages by name; here it's held to the table. */
static void build_lists_every_page(void **state)
{
	const char *root = getenv("SOURCE_ROOT");
	CLEANUP_FREE char *path = xasprintf("%s/docs/meson.build", root ? root : ".");
	CLEANUP(buf_done) struct buf text = {0};
	size_t listed = 0, pages = 0;

	(void)state;
	assert_int_equal(fd_read_file_at(AT_FDCWD, path, &text, 1 << 20), 0);
	for (size_t i = 0; i < commands_n; i++) {
		CLEANUP_FREE char *item = xasprintf("  '%s',\n", commands[i]->name);
		bool is_listed = strstr(text.data, item);

		if (is_listed == commands[i]->is_hidden)
			fail_msg("docs/meson.build and the table differ about '%s'",
				commands[i]->name);
		pages += !commands[i]->is_hidden;
	}
	for (const char *s = text.data; (s = strstr(s, "\n  '")); s++)
		listed++;
	assert_int_equal(listed, pages);
}

static void script(const char *shell, const struct dir *d, char **ret_path)
{
	CLEANUP(buf_done) struct buf text = {0};

	assert_int_equal(command_completion(shell, &text, NULL), 0);
	*ret_path = xasprintf("%s/%s", d->path, shell);
	write_file(*ret_path, &text);
}

static void scripts_parse(void **state)
{
	static const char *const shells[] = {"bash", "zsh", "fish"};
	CLEANUP(dir_done) struct dir d = dir_make();

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(shells); i++) {
		CLEANUP_FREE char *path = NULL;

		script(shells[i], &d, &path);
		{
			CLEANUP(outcome_done) struct outcome o = PROGRAM(shells[i], "-n", path);

			if (o.code == 127)
				print_message("# no %s here\n", shells[i]);
			else if (o.code != 0 || o.err.len)
				fail_msg("%s -n: %d %s", shells[i], o.code, buf_str(&o.err));
		}
	}
}

/* Completes a line in a real bash. `gpustow` and `nvidb` there is a program that knows jobs 12 and 120, and notes its words. */
static void assert_bash(const struct dir *d, const char *line, const char *want)
{
	static const char *const driver =
		"cd \"$1\" && PATH=$1/bin:$PATH && . ./bash && set -f && read -ra COMP_WORDS <<<\"$2\" && set +f\n"
		"[[ $2 == *' ' ]] && COMP_WORDS+=('')\n"
		"COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
		"_gpustow \"${COMP_WORDS[0]}\" \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"\n"
		"echo $(printf '%s\\n' \"${COMPREPLY[@]}\" | LC_ALL=C sort)\n";
	CLEANUP(outcome_done)
	struct outcome o = PROGRAM("bash", "--norc", "-c", driver, "bash", d->path, line);
	CLEANUP_FREE char *want_line = xasprintf("%s\n", want);

	if (strcmp(buf_str(&o.out), want_line) != 0 || o.err.len)
		fail_msg("'%s': got '%s', not '%s'; %s", line, buf_str(&o.out), want,
			buf_str(&o.err));
}

static void make_world(const struct dir *d)
{
	static const char *const knows_jobs =
		"mkdir bin jobs.d; : >jobs.txt; : >other\n"
		"printf '%s\\n' '#!/bin/sh' 'echo \"$*\" >words' "
		"'printf \"120\\tdone: a b\\n12\\tpending: c\\n\"' >bin/gpustow\n"
		"chmod +x bin/gpustow; cp bin/gpustow bin/nvidb";
	CLEANUP_FREE char *in = xasprintf("cd %s && %s", d->path, knows_jobs);
	CLEANUP(outcome_done) struct outcome o = PROGRAM("sh", "-c", in);

	assert_int_equal(o.code, 0);
}

static void bash_completes(void **state)
{
	if (!has_program("bash"))
		skip();

	CLEANUP(dir_done) struct dir d = dir_make();
	CLEANUP_FREE char *path = NULL, *words = xasprintf("%s/words", d.path);
	CLEANUP(buf_done) struct buf asked = {0};

	(void)state;
	make_world(&d);
	script("bash", &d, &path);
	assert_bash(&d, "gpustow ru", "run");
	assert_bash(&d, "gpustow --v", "--version");
	assert_bash(&d, "gpustow run --mar", "--margin");
	assert_bash(&d, "gpustow run --margin ", "");
	assert_bash(&d, "gpustow run --log-dir j", "jobs.d");
	assert_bash(&d, "gpustow run --log-dir = j", "jobs.d");
	assert_bash(&d, "gpustow run --log-dir =", "bin jobs.d");
	assert_bash(&d, "gpustow run jobs.t", "jobs.txt");
	assert_bash(&d, "gpustow run st", "status");
	assert_bash(&d, "gpustow run o", "other");
	assert_bash(&d, "gpustow run -v st", "");
	assert_bash(&d, "gpusched st", "");
	assert_bash(&d, "gpusched jobs.t", "jobs.txt");
	assert_bash(&d, "gpusched --si", "--sim");
	assert_bash(&d, "gpustow run status ", "");
	assert_bash(&d, "gpustow run retry --f", "--failed");
	assert_bash(&d, "nvidb run why --log-dir jobs.d 12", "12 120");
	/* The words typed so far were handed on, so the right journal is read. */
	assert_int_equal(fd_read_file_at(AT_FDCWD, words, &asked, 1000), 0);
	assert_string_equal(buf_str(&asked), "__complete -- run why --log-dir jobs.d\n");
	assert_bash(&d, "gpustow run why 3", "");
	assert_bash(&d, "gpustow nonsense x", "");
}

static void fish_completes(void **state)
{
	static const struct {
		const char *line, *want;
	} rows[] = {
		{"gpustow vers", "version"},
		{"gpustow run --marg", "--margin"},
		{"gpustow run why 12", "120 12"},
		{"gpustow run why --log-dir jobs.d 12", "120 12"},
		{"gpustow run stat", "status"},
		{"gpusched --oom", "--oom-retries"},
		{"gpusched stat", ""},
		{"gpusched jobs.t", "jobs.txt"},
		{"nvidb run why 12", "120 12"},
		{"gpustow run status --fai", ""},
		{"nvidb run retry --fai", "--failed"},
		{"gpustow run jobs.t", "jobs.txt"},
	};
	if (!has_program("fish"))
		skip();

	CLEANUP(dir_done) struct dir d = dir_make();
	CLEANUP_FREE char *path = NULL, *home = xasprintf("HOME=%s", d.path);

	(void)state;
	make_world(&d);
	script("fish", &d, &path);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		CLEANUP_FREE char *cmd = xasprintf(
			"cd %s; set -x PATH $PWD/bin $PATH; source ./fish; set -l got (complete -C '%s' | "
			"string replace -r '\\t.*' ''); echo \"$got\"",
			d.path, rows[i].line);
		CLEANUP(outcome_done)
		struct outcome o = PROGRAM("env", home, "fish", "--no-config", "-c", cmd);
		CLEANUP_FREE char *want = xasprintf("%s\n", rows[i].want);

		if (strcmp(buf_str(&o.out), want) != 0)
			fail_msg("'%s': got '%s', not '%s'; %s", rows[i].line, buf_str(&o.out),
				want, buf_str(&o.err));
	}
}

/* zsh completes only on a terminal: it's given one, and each answer is waited for. */
static void zsh_completes(void **state)
{
	static const struct {
		const char *line, *want; /* a pattern of what must then be on the terminal */
	} rows[] = {
		{"gpustow run --mar", "run --margin="},
		{"gpustow run stat", "run status"},
		{"gpustow comp", "gpustow completion"},
		{"gpusched --oom", "gpusched --oom-retries="},
		{"nvidb run retry --fa", "retry --failed"},
		{"gpustow run why --log-dir jobs.d 12", "120  -- done: a b"},
		{"gpustow run jobs.t", "run jobs.txt"},
	};
	static const char *const driver =
		"zmodload zsh/zpty || exit 127\n"
		"cd $1; zpty z 'TERM=dumb zsh -f -i'\n"
		"zpty -w z 'PS1= PATH=$PWD/bin:$PATH fpath=($PWD $fpath); setopt no_beep; autoload -U compinit; compinit -u -D; print RE\"\"ADY'\n"
		"zpty -r z x '*READY*' || exit 1\n"
		"zpty -w -n z $2$'\\t\\t'; zpty -r z x \"*${(b)3}*\"; r=$?; zpty -d z; exit $r\n";
	if (!has_program("zsh"))
		skip();

	CLEANUP(dir_done) struct dir d = dir_make();
	CLEANUP(buf_done) struct buf text = {0};
	CLEANUP_FREE char *path = xasprintf("%s/_gpustow", d.path);

	(void)state;
	make_world(&d);
	assert_int_equal(command_completion("zsh", &text, NULL), 0);
	write_file(path, &text);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		CLEANUP(outcome_done)
		struct outcome o = PROGRAM("timeout", "30", "zsh", "-f", "-c", driver, "zsh",
			d.path, rows[i].line, rows[i].want);

		if (o.code != 0)
			fail_msg("'%s' doesn't become '%s' (%d): %s", rows[i].line, rows[i].want,
				o.code, buf_str(&o.err));
	}
}

/* Numbers come from the journal of the log directory on the line, the latest first; no directory, no word. */
static void candidates_are_the_journals(void **state)
{
	CLEANUP(dir_done) struct dir d = dir_make();
	CLEANUP_FREE char *path = xasprintf("%s/journal.jsonl", d.path),
			  *none = xasprintf("%s/none", d.path);
	CLEANUP(buf_done) struct buf journal = {0};

	(void)state;
	buf_puts(&journal,
		"{\"key\": \"a#0\", \"event\": \"seen\", \"no\": 3, \"command\": \"python a\\u001b[2J\"}\n"
		"{\"key\": \"b#0\", \"event\": \"seen\", \"no\": 12, \"command\": \"echo b\"}\n"
		"{\"key\": \"a#0\", \"event\": \"done\", \"status\": \"failed\", \"returncode\": 1, "
		"\"peak_mib\": {}, \"avg_util\": null}\n");
	write_file(path, &journal);
	{
		CLEANUP(outcome_done)
		struct outcome o = RUN("gpustow", "__complete", "--", "run", "why", "--log-dir",
			d.path, "--nonsense");
		CLEANUP(outcome_done)
		struct outcome gone =
			RUN("gpustow", "__complete", "--", "run", "why", "--log-dir", none);

		assert_string_equal(buf_str(&o.out),
			"12\tpending: echo b\n3\tfailed: python a\xef\xbf\xbd[2J\n");
		assert_string_equal(buf_str(&o.err), "");
		assert_int_equal(o.code, 0);
		assert_string_equal(buf_str(&gone.out), "");
		assert_string_equal(buf_str(&gone.err), "");
		assert_int_equal(access(none, F_OK), -1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(versions),
		cmocka_unit_test(mistakes),
		cmocka_unit_test(overview),
		cmocka_unit_test(stdout_gone),
		cmocka_unit_test(stdout_closed),
		cmocka_unit_test(finding),
		cmocka_unit_test(run_defaults_are_gpuscheds),
		cmocka_unit_test(run_bounds),
		cmocka_unit_test(table),
		cmocka_unit_test(every_option_is_everywhere),
		cmocka_unit_test(help_is_narrow),
		cmocka_unit_test(man_pages_pass_scdoc),
		cmocka_unit_test(build_lists_every_page),
		cmocka_unit_test(scripts_parse),
		cmocka_unit_test(bash_completes),
		cmocka_unit_test(fish_completes),
		cmocka_unit_test(zsh_completes),
		cmocka_unit_test(candidates_are_the_journals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
