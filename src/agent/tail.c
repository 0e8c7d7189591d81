/* The last lines of a file, from behind (tail.h). Owns nothing. */
#include "agent/tail.h"

#include <errno.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define PIECE 16384

void tail_begin(struct tail *t, int64_t size, int64_t lines, int64_t max)
{
	*t = (struct tail){.end = size,
		.at = size,
		.floor = size > max ? size - max : 0,
		.lines = lines,
		.lowest = -1};
}

/* The byte before the floor is looked at too: a newline there makes the floor the begin of a line. */
static int64_t last_look(const struct tail *t)
{
	return t->floor ? t->floor - 1 : 0;
}

static int done(const struct tail *t, int64_t start, int64_t *ret_start, bool *ret_is_cut)
{
	*ret_start = start;
	*ret_is_cut = start > 0;
	return 1;
}

/* Counts newlines down through the n bytes at t->at; true once the wanted line was found. */
static bool count_down(struct tail *t, const char *bytes, size_t n)
{
	while (n) {
		const char *newline = memrchr(bytes, '\n', n);
		int64_t pos;

		if (!newline)
			return false;
		n = (size_t)(newline - bytes);
		pos = t->at + (int64_t)n;
		/* The last line's own end doesn't begin another. */
		if (pos == t->end - 1)
			continue;
		t->lowest = pos + 1;
		if (++t->seen == t->lines)
			return true;
	}
	return false;
}

/* What a file that has shrunk meanwhile no longer holds counts as no newline: the caller sees the shrinking itself. */
static int read_piece(int fd, char *bytes, size_t n, int64_t at)
{
	size_t got = 0;

	memset(bytes, 0, n);
	while (got < n) {
		ssize_t r = pread(fd, bytes + got, n - got, (off_t)at + (off_t)got);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		if (!r)
			break;
		got += (size_t)r;
	}
	return 0;
}

int tail_step(struct tail *t, int fd, size_t budget, int64_t *ret_start, bool *ret_is_cut)
{
	char bytes[PIECE];

	if (!t->lines)
		return done(t, t->end, ret_start, ret_is_cut);
	while (t->at > last_look(t)) {
		int64_t left = t->at - last_look(t);
		size_t n = left < PIECE ? (size_t)left : PIECE;
		int r;

		if (!budget)
			return 0;
		t->at -= (int64_t)n;
		r = read_piece(fd, bytes, n, t->at);
		if (r)
			return r;
		if (count_down(t, bytes, n))
			return done(t, t->lowest, ret_start, ret_is_cut);
		budget -= n < budget ? n : budget;
	}
	return done(t, t->floor && t->lowest >= 0 ? t->lowest : t->floor, ret_start, ret_is_cut);
}
