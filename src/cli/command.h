/*
 * A command is one const struct in one file, cmd_<name>.c: what it is called, what it takes, what it says of itself, and
 * what runs. The dispatcher, help, man pages and shell completion read the table in command.c; nothing else lists them.
 */
#pragma once

#include "base/err.h"
#include "cli/option.h"

#include <stdbool.h>
#include <stddef.h>

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

struct global_options;
struct forward_file;

/* What the program knows before a command starts. */
struct program {
	const char *name; /* what messages begin with: "gpustow", "nvidb", "gpusched" */
	const char *env_prefix; /* "GPUSTOW_", "NVIDB_", "" */
	const struct global_options
		*global; /* what stood before the command (global.h); never NULL in exec */
	const struct forward_file *
		files; /* what came along with a command from another machine (svc/forward.h); NULL */
	size_t n_files;
};

struct command {
	char name[24]; /* "run", "run status", "simjob"; each start reads them all */
	const char *args; /* "JOBS_FILE", "[JOB...]", "" */
	const char *summary; /* one line */
	const char *
		about; /* paragraphs for --help and the man page; lines of at most 90, '\n' between; may be NULL */
	const char *
		examples; /* lines "$ gpustow ..." and what they do; run by the documentation's tests; may be NULL */
	const struct option_spec *options; /* may be NULL */
	size_t options_size; /* of the options struct, zeroed before `defaults` */
	void (*defaults)(void *opts);
	int min_args, max_args; /* max -1: any */
	bool abbreviations;
	enum option_complete complete; /* of its arguments */
	bool is_hidden;
	bool needs_locale; /* it measures text for a terminal: LC_CTYPE is set before it runs, so that nl_langinfo(CODESET) is the terminal's own */
	/* Prints what a shell may offer for COMPLETE_JOB, "12<TAB>what it is" a line, from the options typed so far; may be NULL. */
	void (*candidates)(const struct program *p, const void *opts, struct buf *out);
	/*
	 * Commands of the queue: --json may stand between their words, an error is one JSON document then, and a mistake that
	 * only the command finds is an error (exit 1), not one of usage. NULL: not one of them.
	 */
	bool (*wants_json)(const void *opts);
	/* Do options and arguments go together? -EINVAL: a mistake of usage, shown with the usage line, exit 2. May be NULL. */
	int (*check)(const void *opts, int argc, char **argv, struct err *e);
	/* Returns the exit code; negative: *e holds the one sentence that main prints, exit 1 (-EINVAL: exit 2). */
	int (*exec)(const struct program *p, void *opts, int argc, char **argv, struct err *e);
};

extern const struct command *const commands[];
extern const size_t commands_n;

/* argv[0] of the process decides the program; argv[1..] the command. Returns the exit code; prints errors and help. */
int command_main(int argc, char **argv);
/* The same for a command that came from another machine: argv[0] is its first word. argv's order may change. */
int command_dispatch(const struct program *p, int argc, char **argv);

/* The program that argv[0] names. */
struct program program_of(const char *argv0);
/*
 * The command whose name is the longest that begins words[0..n); NULL: none. *ret_words is how many words its name has.
 * As gpusched it's always `run`, with no word.
 */
const struct command *command_find(
	const struct program *p, int n, char *const *words, int *ret_words);
/* By its whole name, "run status"; NULL: none. */
const struct command *command_named(const char *name);

/* All of it to stdout, at once. 0, or -errno with a sentence (a full disk, nobody reads): what a command's exec returns then. */
int command_print(const struct buf *out, struct err *e);
int command_print_text(const char *text, struct err *e);

/* A terminal that shows colours, and NO_COLOR isn't set. */
bool command_wants_color(int fd);

/* Rendered from the table: pure. */
void command_usage(const struct program *p, const struct command *c,
	struct buf *out); /* "usage: ..." and newline */
void command_help(const struct program *p, const struct command *c, struct buf *out);
void command_overview(const struct program *p, struct buf *out);
/* What the user types for it: "gpustow run status", "gpusched". */
void command_put_name(const struct program *p, const struct command *c, struct buf *out);
void command_man(const struct command *c, struct buf *out); /* scdoc source; c NULL: gpustow(1) */
int command_completion(
	const char *shell, struct buf *out, struct err *e); /* "bash", "zsh", "fish" */
/* Lines for the words typed so far (without the program's name): what `gpustow __complete` prints. */
void command_candidates(const struct program *p, int n, char **words, struct buf *out);
