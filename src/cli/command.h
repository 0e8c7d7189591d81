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

/* What the program knows before a command starts. */
struct program {
	const char *name;	/* what messages begin with: "gpustow", "nvidb", "gpusched" */
	const char *env_prefix; /* "GPUSTOW_", "NVIDB_", "" */
};

struct command {
	const char *name;     /* "run", "run status", "simjob" */
	const char *args;     /* "JOBS_FILE", "[JOB...]", "" */
	const char *summary;  /* one line */
	const char *about;    /* paragraphs for --help and the man page; lines of at most 90, '\n' between; may be NULL */
	const char *examples; /* lines "$ gpustow ..." and what they do; run by the documentation's tests; may be NULL */
	const struct option_spec *options; /* may be NULL */
	size_t options_size;  /* of the options struct, zeroed before `defaults` */
	void (*defaults)(void *opts);
	int min_args, max_args; /* max -1: any */
	bool abbreviations;
	enum option_complete complete; /* of its arguments */
	bool is_hidden;
	/* Returns the exit code; negative: *e holds the one sentence that main prints, exit 1 (-EINVAL: exit 2). */
	int (*exec)(const struct program *p, void *opts, int argc, char **argv, struct err *e);
};

extern const struct command *const commands[];
extern const size_t commands_n;

/* argv[0] of the process decides the program; argv[1..] the command. Returns the exit code; prints errors and help. */
int command_main(int argc, char **argv);

/* Rendered from the table: pure. */
void command_help(const struct program *p, const struct command *c, struct buf *out);
void command_overview(const struct program *p, struct buf *out);
void command_man(const struct command *c, struct buf *out);	/* scdoc source; c NULL: gpustow(1) */
int command_completion(const char *shell, struct buf *out, struct err *e); /* "bash", "zsh", "fish" */
