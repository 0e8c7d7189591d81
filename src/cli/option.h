/*
 * One table of options for each command: parser, --help, man page and completion come from it. Exact long names
 * only, unless the command allows abbreviations (gpusched's, and `run`).
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum option_kind {
	OPTION_FLAG, /* bool */
	OPTION_TEXT, /* const char *, not copied */
	OPTION_INT, /* int64_t, within min..max */
	OPTION_REAL, /* double, within min..max, never NaN */
	OPTION_LIST, /* struct option_list: each use adds one */
};

/* What a shell may complete after the option, or for the argument. */
enum option_complete {
	COMPLETE_NONE,
	COMPLETE_FILE,
	COMPLETE_DIR,
	COMPLETE_JOB, /* what the command's candidates say */
	COMPLETE_NODE, /* the queue's nodes */
};

struct option_list {
	const char **items;
	size_t n, cap;
};

/*
 * Words are in it, not pointed to: every page of a table with pointers is written to by the loader at each start of the
 * program (a page copied, a microsecond or two), and these tables are as large as all others together.
 */
struct option_spec {
	char letter; /* 0: none */
	char name[20]; /* without "--" */
	char arg[24]; /* placeholder "MIB", "" for a flag */
	enum option_kind kind;
	size_t offset; /* of the member in the command's options struct */
	double min, max; /* OPTION_INT, OPTION_REAL: both 0 is no bound; max INFINITY: none above */
	char text[208]; /* one sentence for help and man page; the default said in it */
	enum option_complete complete;
	bool is_hidden;
	int64_t bare; /* OPTION_INT: what it is without a value; only a whole number behind it is taken as one. 0: it needs a value */
};

#define OPTION_SPEC_END \
	{ \
		.name = "" \
	}

enum { OPTION_HELP = 1, OPTION_VERSION = 2 };

/*
 * Fills *opts. Options may stand before, between and after the plain arguments; "--" ends them; the last of a repeated one
 * counts. Returns 0 and the plain arguments in argv[*ret_first..argc) (argv is permuted), OPTION_HELP or OPTION_VERSION
 * when --help or --version was asked for, -EINVAL with a sentence (unknown option: the closest name is suggested; bad
 * value: option, value and what would be right). Every command has -h/--help and --version without naming them.
 */
int option_parse(const struct option_spec *specs, bool abbreviations, int argc, char **argv,
	void *opts, int *ret_first, struct err *e);
/*
 * The same for options before a command: ends at the first plain argument, which is at argv[*ret_first] (argc: there's
 * none), and permutes nothing.
 */
int option_parse_leading(const struct option_spec *specs, bool abbreviations, int argc, char **argv,
	void *opts, int *ret_first, struct err *e);
/* Frees the lists in *opts. */
void option_done(const struct option_spec *specs, void *opts);

/* The i-th option of a command: those of the table, then --help and --version; NULL after the last. */
const struct option_spec *option_at(const struct option_spec *specs, size_t i);
bool option_has_range(const struct option_spec *o);
