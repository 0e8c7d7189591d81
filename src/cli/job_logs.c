/* A job's output: see job_logs.h. It reads files where they are and writes nothing. */
#include "cli/job_logs.h"

#include "base/cleanup.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ESCAPE_MAX 64 /* bytes of a colour's escape sequence; a longer one is none */

int job_logs_where(const struct queue *q, const struct job *j, const char *stream,
	struct stream_want *ret, const struct host_config **ret_host, struct err *e)
{
	const char *node = j->bind.node;

	if (!j->run_dir || !node)
		return err_set(e, -ENOENT, "job %" PRId64 " has no output: it hasn't run%s", j->id,
			job_state_is_terminal(j->state) ? "" : " yet");
	*ret = (struct stream_want){.dir = j->run_dir,
		.name = strcmp(stream, "stderr") ? "stdout.log" : "stderr.log",
		.queue = store_queue(q->store),
		.job = (uint64_t)j->id,
		.attempt = (uint32_t)j->attempt};
	for (size_t i = 0; i < q->config.n_nodes; i++) {
		if (strcmp(q->config.nodes[i].name, node) != 0)
			continue;
		*ret_host = q->config.nodes[i].host;
		return 0;
	}
	return err_set(e, -ENOENT,
		"job %" PRId64
		" ran on %s, which isn't in the configuration any more; its output is there in %s",
		j->id, node, j->run_dir);
}

/* ---- the end of it ---- */

struct tail {
	struct buf *out;
	size_t max, begun; /* bytes that were in out before */
	bool exists, is_cut;
};

static void on_begun(void *arg, bool exists, int64_t size, int64_t offset, bool is_cut)
{
	struct tail *t = arg;

	(void)size;
	(void)offset;
	t->exists = exists;
	t->is_cut = is_cut;
	/* It may begin anew: a file that was replaced. */
	t->out->len = t->begun;
}

static int on_data(void *arg, const char *bytes, size_t n)
{
	struct tail *t = arg;
	size_t left = t->max - (t->out->len - t->begun);

	buf_put(t->out, bytes, n < left ? n : left);
	t->is_cut |= n > left;
	return 0;
}

int job_logs_tail(struct queue *q, const struct job *j, const char *stream, int64_t lines,
	size_t max_bytes, struct buf *ret, bool *ret_is_cut, struct err *e)
{
	struct tail t = {.out = ret, .max = max_bytes, .begun = ret->len};
	const struct node_file_sink sink = {.arg = &t, .begun = on_begun, .data = on_data};
	const struct host_config *host;
	struct stream_want w;
	int r;

	*ret_is_cut = false;
	if (!j->run_dir)
		return 0;
	r = job_logs_where(q, j, stream, &w, &host, e);
	if (r)
		return r;
	w.lines = lines;
	w.max = (int64_t)max_bytes;
	r = node_file_fetch(host, q->home, &w, &sink, JOB_LOG_TIMEOUT_MS, e);
	if (!r && !t.exists)
		r = err_set(e, -ENOENT,
			"job %" PRId64 "'s %s isn't there any more: %s on %s was removed", j->id,
			w.name, j->run_dir, j->bind.node);
	*ret_is_cut = t.is_cut;
	return r;
}

/* ---- for a terminal ---- */

/* The length of an escape sequence at s: *ret_is_color when it's one that only sets colours and the like. */
static size_t escape_len(const char *s, size_t n, bool *ret_is_color)
{
	size_t at = 2;

	*ret_is_color = false;
	if (n < 2)
		return n;
	if (s[1] == ']' || s[1] == 'P' || s[1] == '_' || s[1] == '^' || s[1] == 'X') {
		/* A string for the terminal itself: up to BEL or ST, but no further than the line. */
		while (at < n && s[at] != '\a' &&
			!(s[at] == '\x1b' && at + 1 < n && s[at + 1] == '\\'))
			at++;
		return at < n ? at + (s[at] == '\a' ? 1 : 2) : n;
	}
	if (s[1] != '[')
		return 2;
	while (at < n && at < ESCAPE_MAX && ((s[at] >= '0' && s[at] <= '9') || s[at] == ';'))
		at++;
	*ret_is_color = at < n && at < ESCAPE_MAX && s[at] == 'm';
	/* Whatever else it is: up to its final byte. */
	while (at < n && (unsigned char)s[at] >= 0x20 && (unsigned char)s[at] < 0x40)
		at++;
	return at < n ? at + 1 : n;
}

/* A piece between two controls that have a meaning. */
static void put_piece(const char *s, size_t n, struct buf *out)
{
	for (size_t i = 0; i < n;) {
		const char *tab = memchr(s + i, '\t', n - i);
		size_t len = tab ? (size_t)(tab - s) - i : n - i;

		text_put_clean(out, s + i, len);
		if (tab)
			buf_putc(out, '\t');
		i += len + (tab ? 1 : 0);
	}
}

static void put_line(const char *s, size_t n, bool colors, struct buf *out)
{
	bool is_colored = false;

	for (size_t i = 0; i < n;) {
		const char *esc = memchr(s + i, '\x1b', n - i);
		size_t len = esc ? (size_t)(esc - s) - i : n - i;
		bool is_color;

		put_piece(s + i, len, out);
		i += len;
		if (!esc)
			break;
		len = escape_len(s + i, n - i, &is_color);
		if (is_color && colors) {
			buf_put(out, s + i, len);
			is_colored = true;
		}
		i += len;
	}
	/* No line leaves its colour to the next one, nor to the prompt. */
	if (is_colored)
		buf_puts(out, "\x1b[0m");
}

/* What is left to see of a line that was written over: behind its last \r that something follows. */
static size_t visible_from(const char *s, size_t n)
{
	size_t end = n;

	while (end && s[end - 1] == '\r')
		end--;
	for (size_t i = end; i-- > 0;)
		if (s[i] == '\r')
			return i + 1;
	return 0;
}

void job_logs_put_clean(const char *bytes, size_t n, bool colors, struct buf *out)
{
	for (size_t at = 0; at < n;) {
		const char *nl = memchr(bytes + at, '\n', n - at);
		size_t len = nl ? (size_t)(nl - bytes) - at : n - at, from, to = len;

		from = visible_from(bytes + at, len);
		while (to > from && bytes[at + to - 1] == '\r')
			to--;
		put_line(bytes + at + from, to - from, colors, out);
		if (nl)
			buf_putc(out, '\n');
		at += len + (nl ? 1 : 0);
	}
}

json_t *job_logs_json(const char *bytes, size_t n)
{
	CLEANUP(buf_done) struct buf clean = {0};

	for (size_t at = 0; at < n;) {
		size_t k = utf8_valid_len(bytes + at, n - at);

		buf_put(&clean, bytes + at, k);
		at += k;
		if (at < n) {
			buf_puts(&clean, "\xef\xbf\xbd");
			at++;
		}
	}
	return json_stringn(buf_str(&clean), clean.len);
}
