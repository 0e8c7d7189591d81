/*
 * The jobs file: text to a list of lines, pure (spec sections 3 and 4 of gpusched, and our attributes). It never opens a
 * file: reading, and waiting for a half-written last line, is run/watchfile.c.
 *
 * Attributes: vram= gpus= retries= timeout= cancel (gpusched's), and name= after= gpu= (ours).
 *   name=WORD            letters, digits, '_', '-', '.'; unique in the file
 *   after=A[,B...]       names or job numbers: starts when all of them ended well
 *   gpu=INDEX or UUID[,..] only these cards
 */
#pragma once

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JOBSFILE_MAX (64 * 1024 * 1024) /* bytes */
#define JOBSFILE_COMMAND_MAX (512 * 1024)
#define JOB_KEY_LEN 32

struct jobline {
	uint32_t lineno; /* 1-based, counting every line */
	const char *command; /* trimmed; NUL-terminated, in the list's memory */
	size_t command_len;
	char key[JOB_KEY_LEN]; /* 12 hex digits, '#', occurrence */
	int64_t vram_mib; /* -1: undeclared */
	uint32_t gpus; /* 0: a CPU job */
	int64_t timeout_ms; /* 0: none */
	int64_t retries; /* -1: not given */
	bool cancel;
	const char *name; /* NULL: none */
	const char *after; /* raw list "a,b", NULL: none */
	const char *gpu; /* raw list, NULL: any */
};

struct jobsfile_error {
	uint32_t lineno;
	char *text; /* without the "jobs file line N: " in front */
};

struct jobsfile {
	struct jobline *lines;
	size_t n, cap;
	struct jobsfile_error *errors; /* all of them, ascending */
	size_t n_errors, cap_errors;
	bool last_line_is_open; /* the last line has no newline; it is in `lines` all the same */
	struct buf arena; /* private: holds the strings */
};

/*
 * Parses n bytes. A file with errors still has its good lines; callers decide. Invalid UTF-8, NUL bytes, a byte-order
 * mark, a command that is too long are errors with the line's number. A BOM at the very start is skipped (the spec's
 * seed ran it into the shell); LF, CRLF and lone CR end lines. name= twice and after= of an unknown name are errors
 * (known_numbers: highest job number the journal knows, so that after=12 can be checked; 0: none).
 */
void jobsfile_parse(const char *bytes, size_t n, uint64_t known_numbers, struct jobsfile *ret);
void jobsfile_done(struct jobsfile *f);
/* sha1 of the trimmed command, 12 hex digits, "#occurrence". */
void job_key(const char *command, size_t n, uint32_t occurrence, char ret[JOB_KEY_LEN]);
