/*
 * Shortens old lines of <root>/retired (claim.h says which). No name and no token ever goes. The file is written anew beside
 * itself, synced and renamed, so a crash leaves the one or the other.
 */
#include "agent/claim.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEP ((size_t)65536)
#define NEW_NAME "retired.new"

/* One pass over the lines of the file, with what they become going to `out` (-1: it's only counted). */
struct pass {
	int in, out;
	size_t n,
		n_before_last; /* lines so far; lines that have RETIRED_KEEP newer ones behind them */
	size_t n_shortened;
	int64_t old_ms; /* ended before that: old */
	struct buf kept;
};

/* When the attempt of a line ended; a line that doesn't say is young, or was shortened before. */
static int64_t ended_ms(const char *line)
{
	static const char key[] = "\"ended_wall_ms\":";
	const char *at = strstr(line, key);
	return at ? strtoll(at + sizeof(key) - 1, NULL, 10) : INT64_MAX;
}

static int flush(struct pass *p)
{
	int code = p->out < 0 ? 0 : fd_write_all(p->out, p->kept.data, p->kept.len);
	buf_clear(&p->kept);
	return code;
}

/* What is left of an end: how, and with which code. An end that can't be read is as good as none (retired.c). */
static void put_short_end(struct buf *b, const char *text)
{
	json_t *o = json_loads(text, 0, NULL), *left = json_object();
	struct attempt_end end;
	char *out;
	if (o && attempt_end_decode(o, &end, NULL) == 0) {
		json_object_set_new(left, "how", json_string(end_how_name(end.how)));
		if (end.reason != STOP_NONE)
			json_object_set_new(
				left, "reason", json_string(stop_reason_name(end.reason)));
		if (end.code)
			json_object_set_new(left, "code", json_integer(end.code));
		if (end.by_signal)
			json_object_set_new(left, "by_signal", json_true());
	}
	out = json_dumps(left, JSON_COMPACT | JSON_ENSURE_ASCII);
	buf_puts(b, out);
	free(out);
	json_decref(left);
	json_decref(o);
}

/* "<name> <token> <end>" */
static void put_short(struct buf *b, const char *line)
{
	const char *token = strchr(line, ' ');
	const char *end = token ? strchr(token + 1, ' ') : NULL;
	if (!end) {
		buf_puts(b, line);
		return;
	}
	buf_put(b, line, (size_t)(end + 1 - line));
	put_short_end(b, end + 1);
}

/* `line` ends at its newline, which is overwritten and put back. */
static int take_line(struct pass *p, char *line, size_t len)
{
	bool is_old = false;
	line[len] = '\0';
	if (p->n++ < p->n_before_last)
		is_old = ended_ms(line) < p->old_ms;
	p->n_shortened += is_old;
	if (p->out >= 0 && is_old)
		put_short(&p->kept, line);
	else if (p->out >= 0)
		buf_put(&p->kept, line, len);
	line[len] = '\n';
	if (p->out < 0)
		return 0;
	buf_putc(&p->kept, '\n');
	return p->kept.len < STEP ? 0 : flush(p);
}

static int take_lines(struct pass *p, struct buf *b)
{
	size_t at = 0;
	char *newline;
	while ((newline = memchr(b->data + at, '\n', b->len - at))) {
		int code = take_line(p, b->data + at, (size_t)(newline - b->data) - at);
		if (code < 0)
			return code;
		at = (size_t)(newline - b->data) + 1;
	}
	buf_drop(b, at);
	return 0;
}

static int run_pass(struct pass *p)
{
	CLEANUP(buf_done) struct buf b = {0};
	off_t at = 0;
	int code = 0;
	p->n = p->n_shortened = 0;
	while (!code) {
		buf_reserve(&b, STEP);
		ssize_t got = pread(p->in, b.data + b.len, STEP, at);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			code = -errno;
		if (got <= 0)
			break;
		at += got;
		b.len += (size_t)got;
		code = take_lines(p, &b);
	}
	/* What follows the last newline was torn by a crash, and its claim is still there. */
	return code ? code : flush(p);
}

/* The index over the new file is whole before the name leads to it: an agent that forgets a line starts a job again. */
static int write_anew(struct root *r, struct pass *p)
{
	CLEANUP_CLOSE int out =
		openat(r->fd, NEW_NAME, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	struct retired_index *fresh = NULL;
	if (out < 0)
		return -errno;
	p->out = out;
	int code = run_pass(p);
	if (!code && fsync(out) < 0)
		code = -errno;
	if (!code)
		code = retired_index_of(r, out, &fresh);
	if (!code)
		code = fault_point("retired.before-rename");
	if (!code && renameat(r->fd, NEW_NAME, r->fd, "retired") < 0)
		code = -errno;
	if (code < 0) {
		unlinkat(r->fd, NEW_NAME, 0);
		retired_free(fresh);
		return code;
	}
	retired_swap(r->retired, fresh);
	retired_free(fresh);
	return fd_sync_dir_at(r->fd, ".");
}

ssize_t retired_compact(struct root *r, int64_t now_wall_ms, struct err *e)
{
	if (!r->retired || retired_count(r->retired) < 2 * RETIRED_KEEP)
		return 0;
	CLEANUP_CLOSE int in = openat(r->fd, "retired", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct pass p = {.in = in, .out = -1, .old_ms = now_wall_ms - RETIRED_KEEP_MS};
	int code = in < 0 ? -errno : run_pass(&p);
	p.n_before_last = p.n > RETIRED_KEEP ? p.n - RETIRED_KEEP : 0;
	if (!code)
		code = run_pass(&p);
	size_t n = p.n_shortened;
	if (!code && n < RETIRED_KEEP)
		n = 0;
	if (!code && n)
		code = write_anew(r, &p);
	buf_done(&p.kept);
	if (code < 0)
		return err_sys(e, code, "old lines of %s/retired can't be shortened", r->path);
	return (ssize_t)n;
}
