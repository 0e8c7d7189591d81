/* The far side's standard output: what of it is noise, what is the command's, and how it ended. Pure. */
#include "svc/forward.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/parse.h"

#include <stdio.h>
#include <string.h>

#define LINE_MAX_ 512 /* a line of noise that's longer isn't the mark */
#define MARK_MAX 64

void forward_reader_done(struct forward_reader *r)
{
	buf_done(&r->held);
	buf_done(&r->noise);
}

static void keep_noise(struct forward_reader *r, const char *bytes, size_t n)
{
	buf_put(&r->noise, bytes, n);
	if (r->noise.len > FORWARD_NOISE_KEPT)
		buf_drop(&r->noise, r->noise.len - FORWARD_NOISE_KEPT);
}

/* Takes the held line, which is whole. */
static void take_line(struct forward_reader *r)
{
	char knows[MARK_MAX], script[MARK_MAX];

	snprintf(knows, sizeof(knows), "gpustow:%s FORWARD 1\n", r->nonce);
	snprintf(script, sizeof(script), "gpustow:%s SCRIPT\n", r->nonce);
	if (!strcmp(buf_str(&r->held), knows) || !strcmp(buf_str(&r->held), script)) {
		r->knows = r->held.data[strlen("gpustow: ") + FORWARD_NONCE_LEN - 1] == 'F';
		r->phase = FORWARD_OPEN;
	} else {
		keep_noise(r, buf_str(&r->held), r->held.len);
	}
	buf_clear(&r->held);
}

static size_t put_noise(struct forward_reader *r, const char *bytes, size_t n)
{
	const char *newline = memchr(bytes, '\n', n);
	size_t k = newline ? (size_t)(newline - bytes) + 1 : n;

	buf_put(&r->held, bytes, k);
	if (newline) {
		take_line(r);
	} else if (r->held.len > LINE_MAX_) {
		keep_noise(r, buf_str(&r->held), r->held.len);
		buf_clear(&r->held);
	}
	return k;
}

/* 1: the held bytes are all of END, 0: they're its beginning, -1: they aren't. */
static int is_end(struct forward_reader *r)
{
	char mark[MARK_MAX], digits[8] = "";
	int n = snprintf(mark, sizeof(mark), "\1gpustow:%s END ", r->nonce);
	size_t len = r->held.len, more;
	int64_t code;

	if (len <= (size_t)n)
		return memcmp(buf_str(&r->held), mark, len) == 0 ? 0 : -1;
	more = len - (size_t)n;
	if (memcmp(buf_str(&r->held), mark, (size_t)n) != 0 || more > 4)
		return -1;
	memcpy(digits, r->held.data + n, more);
	if (digits[more - 1] != '\n')
		return strspn(digits, "0123456789") == more && more < 4 ? 0 : -1;
	digits[more - 1] = '\0';
	if (parse_int64(digits, &code) < 0 || code < 0 || code > 255)
		return -1;
	r->code = (int)code;
	return 1;
}

/* Up to a byte that may begin END; then byte by byte, while it may be. */
static size_t put_output(struct forward_reader *r, const char *bytes, size_t n, struct buf *out)
{
	if (!r->held.len) {
		const char *begin = memchr(bytes, '\1', n);
		size_t k = begin ? (size_t)(begin - bytes) : n;

		buf_put(out, bytes, k);
		if (begin)
			buf_putc(&r->held, '\1');
		return k + (begin != NULL);
	}
	/* A second \1 is no part of END, but may be its beginning. */
	if (*bytes == '\1') {
		buf_put(out, buf_str(&r->held), r->held.len);
		buf_clear(&r->held);
		return 0;
	}
	buf_putc(&r->held, *bytes);
	switch (is_end(r)) {
	case 1:
		r->phase = FORWARD_ENDED;
		buf_clear(&r->held);
		break;
	case -1:
		buf_put(out, buf_str(&r->held), r->held.len);
		buf_clear(&r->held);
		break;
	default:
		break;
	}
	return 1;
}

void forward_reader_put(struct forward_reader *r, const char *bytes, size_t n, struct buf *out)
{
	while (n) {
		size_t k = r->phase == FORWARD_NOISE  ? put_noise(r, bytes, n)
			   : r->phase == FORWARD_OPEN ? put_output(r, bytes, n, out)
						      : n;

		bytes += k;
		n -= k;
	}
}

void forward_reader_end(struct forward_reader *r, struct buf *out)
{
	if (r->phase == FORWARD_OPEN)
		buf_put(out, buf_str(&r->held), r->held.len);
	else
		keep_noise(r, buf_str(&r->held), r->held.len);
	buf_clear(&r->held);
}
