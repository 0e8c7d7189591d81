/* What the files of the jobs file's parser share. Nothing outside src/run/jobsfile*.c includes it. */
#pragma once

#include "run/jobsfile.h"

/* Errors past this many are only said to be there. */
#define JOBSFILE_ERRORS_MAX 10000

/* Adds an error about a line. */
void jobsfile_error(struct jobsfile *f, uint32_t lineno, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Reads the n bytes between '[' and ']' into *l, whose defaults are set. They're valid UTF-8 in memory that may be written
 * to: values that stay get their NUL there, at the place of the white space, or of the ']', that follows. Every bad token
 * is an error; returns how many there were.
 */
size_t jobsfile_parse_block(struct jobsfile *f, char *block, size_t n, struct jobline *l);

/* What name= and after= say of each other, over all lines; `broken` are lines with errors of their own, whose names count. */
struct jobsfile_name {
	const char *name;
	uint32_t lineno;
	size_t line; /* position in lines, or SIZE_MAX for a broken one */
};
void jobsfile_check_after(struct jobsfile *f, const struct jobsfile_name *names, size_t n_names,
	uint64_t known_numbers);
