/*
 * Where the last lines of a file begin. Read backwards in pieces, a bounded number of bytes at a time, so that a log of
 * many megabytes without a newline costs memory for one piece, and nobody waits while it's looked through.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tail {
	int64_t end; /* what counts as the file's end */
	int64_t floor; /* nothing before this is sent, whatever the lines */
	int64_t at; /* looked through from here on */
	int64_t lines, seen; /* wanted; newlines met */
	int64_t lowest; /* the first line known to begin at or after floor; -1: none yet */
};

/* The last `lines` lines of the first `size` bytes, at most `max` bytes of them. A last line without newline is one. */
void tail_begin(struct tail *t, int64_t size, int64_t lines, int64_t max);
/*
 * Looks through at most `budget` more bytes of fd. 1: done, *ret_start is where they begin and *ret_is_cut whether anything
 * comes before. 0: not yet. Negative: the file can't be read. Where `max` is passed it begins with the first whole line
 * after that, or in the midst of the only one.
 */
int tail_step(struct tail *t, int fd, size_t budget, int64_t *ret_start, bool *ret_is_cut);
