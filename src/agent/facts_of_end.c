/* Reads a job's own files, and says what they said (facts_of_end.h). Believes none of them, changes none of them. */
#include "agent/facts_of_end.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/sys.h"
#include "base/text.h"
#include "core/says.h"
#include "proc/proc.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define STATUS_READ 4096
#define TAIL_READ \
	65536 /* what a progress bar wrote over and over in one line counts as that line's last state */
#define MARK "\xEF\xBF\xBD" /* U+FFFD, for bytes that aren't text */

enum { OUT, ERR, N_OUTPUTS };
static const char *const outputs[N_OUTPUTS] = {"stdout.log", "stderr.log"};

static int open_dir(const char *dir)
{
	return open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* A plain file of that directory: descriptor and what it is, or negative. Waits for nobody at the other end of a pipe. */
static int open_plain(int dirfd, const char *name, struct sys_stat *ret)
{
	CLEANUP_CLOSE int fd =
		dirfd < 0 ? -1
			  : openat(dirfd, name,
				    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	if (fd < 0 || sys_fstat(fd, ret) < 0 || !S_ISREG(ret->mode))
		return -ENOENT;
	return TAKE_FD(fd);
}

/* Up to n bytes from `at`, fewer when the file ends or fails there. */
static void read_at(int fd, int64_t at, size_t n, struct buf *b)
{
	buf_reserve(b, n);
	while (n) {
		ssize_t got = pread(fd, b->data + b->len, n, (off_t)at);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		b->len += (size_t)got;
		at += got;
		n -= (size_t)got;
	}
	if (b->data)
		b->data[b->len] = '\0';
}

/* The last n bytes of a plain file; its size, 0 without one. */
static int64_t read_end(int dirfd, const char *name, size_t n, struct buf *b)
{
	struct sys_stat st;
	CLEANUP_CLOSE int fd = open_plain(dirfd, name, &st);

	if (fd < 0)
		return 0;
	read_at(fd, st.size > (int64_t)n ? st.size - (int64_t)n : 0, n, b);
	return st.size;
}

/* ---- text ---- */

/* As it is, but for bytes that aren't UTF-8 and NULs. */
static void put_utf8(struct buf *out, const char *s, size_t n)
{
	while (n) {
		size_t ok = utf8_valid_len(s, n), nul = strnlen(s, ok);

		buf_put(out, s, nul);
		if (nul == n)
			return;
		buf_puts(out, MARK);
		s += nul + 1;
		n -= nul + 1;
	}
}

/* Length of an escape sequence for colours and cursor (ECMA-48 CSI) that s begins with; 0: it's none. */
static size_t sequence_len(const char *s, size_t n)
{
	size_t i = 2;

	if (n < 3 || s[0] != '\033' || s[1] != '[')
		return 0;
	while (i < n && s[i] >= 0x20 && s[i] <= 0x3F)
		i++;
	return i < n && s[i] >= 0x40 && s[i] <= 0x7E ? i + 1 : 0;
}

/* A line as a terminal would have shown it at the end: after its last carriage return, without colours, clean. */
static void put_line(struct buf *out, const char *s, size_t n)
{
	CLEANUP(buf_done) struct buf plain = {0};
	const char *back;

	while (n && s[n - 1] == '\r')
		n--;
	back = n ? memrchr(s, '\r', n) : NULL;
	if (back) {
		n -= (size_t)(back + 1 - s);
		s = back + 1;
	}
	while (n) {
		size_t len = sequence_len(s, n);

		if (!len)
			buf_putc(&plain, *s == '\t' ? ' ' : *s);
		s += len ? len : 1;
		n -= len ? len : 1;
	}
	text_put_clean(out, buf_str(&plain), plain.len);
}

static size_t cut_utf8(const char *s, size_t n, size_t max)
{
	return n <= max ? n : utf8_valid_len(s, max);
}

/* ---- progress ---- */

static json_t *read_progress(int dirfd)
{
	CLEANUP(buf_done) struct buf b = {0};
	CLEANUP(buf_done) struct buf line = {0};
	const char *start, *text;
	size_t n;

	read_end(dirfd, "status", STATUS_READ, &b);
	for (size_t end = b.len; end && !line.len;
		end = start > b.data ? (size_t)(start - b.data) - 1 : 0) {
		const char *newline = memrchr(b.data, '\n', end);

		start = newline ? newline + 1 : b.data;
		put_line(&line, start, (size_t)(b.data + end - start));
		text = buf_str(&line);
		n = line.len;
		utf8_trim(&text, &n);
		if (!n)
			buf_clear(&line);
	}
	text = buf_str(&line);
	n = line.len;
	utf8_trim(&text, &n);
	return json_stringn(text, cut_utf8(text, n, FACTS_PROGRESS_MAX));
}

/* ---- the end of the output ---- */

/* Where the last so many lines begin. A newline at the very end ends the last one. */
static size_t last_lines(const char *s, size_t n, int lines)
{
	size_t at = n && s[n - 1] == '\n' ? n - 1 : n;

	while (at) {
		const char *newline = memrchr(s, '\n', at);

		if (!newline)
			return 0;
		if (--lines == 0)
			return (size_t)(newline + 1 - s);
		at = (size_t)(newline - s);
	}
	return 0;
}

static void put_lines(struct buf *out, const char *s, size_t n)
{
	while (n) {
		const char *newline = memchr(s, '\n', n);
		size_t len = newline ? (size_t)(newline - s) : n;

		put_line(out, s, len);
		if (newline)
			buf_putc(out, '\n');
		len += newline ? 1 : 0;
		s += len;
		n -= len;
	}
}

static void put_tail(json_t *facts, int dirfd)
{
	CLEANUP(buf_done) struct buf b = {0};
	CLEANUP(buf_done) struct buf text = {0};
	int which = ERR;
	int64_t size = read_end(dirfd, outputs[ERR], TAIL_READ, &b);
	size_t from, cut;

	if (!b.len) {
		which = OUT;
		size = read_end(dirfd, outputs[OUT], TAIL_READ, &b);
	}
	from = last_lines(buf_str(&b), b.len, FACTS_TAIL_LINES);
	put_lines(&text, buf_str(&b) + from, b.len - from);
	cut = text.len > FACTS_TAIL_MAX ? text.len - FACTS_TAIL_MAX : 0;
	/* Not in the middle of a character. */
	while (cut && cut < text.len && (text.data[cut] & 0xC0) == 0x80)
		cut++;
	json_object_set_new(facts, "tail", json_stringn(buf_str(&text) + cut, text.len - cut));
	json_object_set_new(facts, "tail_of", json_string(which == ERR ? "stderr" : "stdout"));
	json_object_set_new(
		facts, "tail_is_cut", json_boolean(from || cut || size > (int64_t)b.len));
}

static void put_result(json_t *facts, int dirfd)
{
	CLEANUP(buf_done) struct buf b = {0};
	CLEANUP(buf_done) struct buf text = {0};
	struct sys_stat st;
	CLEANUP_CLOSE int fd = open_plain(dirfd, "result.json", &st);
	bool is_cut = false;
	size_t n;

	if (fd >= 0) {
		read_at(fd, 0, FACTS_RESULT_MAX + 1, &b);
		put_utf8(&text, buf_str(&b), b.len);
	}
	n = cut_utf8(buf_str(&text), text.len, FACTS_RESULT_MAX);
	is_cut = n < text.len;
	json_object_set_new(
		facts, "result", fd >= 0 ? json_stringn(buf_str(&text), n) : json_null());
	json_object_set_new(facts, "result_is_cut", json_boolean(is_cut));
}

/* ---- what it says ---- */

/* All of it, but at most the last FACTS_SEARCH_MAX bytes. */
static void search_file(
	int fd, int64_t size, struct says_search *search, void (*alive)(void *arg), void *arg)
{
	CLEANUP(buf_done) struct buf b = {0};
	int64_t at = size > FACTS_SEARCH_MAX ? size - FACTS_SEARCH_MAX : 0;

	for (; at < size; at += (int64_t)b.len) {
		buf_clear(&b);
		read_at(fd, at, SAYS_STEP, &b);
		if (!b.len)
			break;
		says_put(search, b.data, b.len);
		if (alive)
			alive(arg);
	}
}

static unsigned search_outputs(const int fds[N_OUTPUTS], const int64_t size[N_OUTPUTS],
	void (*alive)(void *arg), void *arg)
{
	CLEANUP_FREE struct says_search *search = NULL;
	unsigned found = 0;

	for (size_t i = 0; i < N_OUTPUTS; i++) {
		if (fds[i] < 0 || !size[i])
			continue;
		free(search);
		search = xcalloc(1, sizeof(*search));
		search_file(fds[i], size[i], search, alive, arg);
		found |= search->found;
	}
	return found;
}

static unsigned says_of(int dirfd, struct says_found *before, void (*alive)(void *arg), void *arg)
{
	struct says_found now = {.is_there = true};
	int fds[N_OUTPUTS];

	for (size_t i = 0; i < N_OUTPUTS; i++) {
		struct sys_stat st = {0};

		fds[i] = open_plain(dirfd, outputs[i], &st);
		now.size[i] = fds[i] < 0 ? 0 : st.size;
		now.mtime_ns[i] = fds[i] < 0 ? 0 : st.mtime_ns;
	}
	if (!before->is_there || memcmp(before->size, now.size, sizeof(now.size)) != 0 ||
		memcmp(before->mtime_ns, now.mtime_ns, sizeof(now.mtime_ns)) != 0) {
		now.found = search_outputs(fds, now.size, alive, arg);
		*before = now;
	}
	for (size_t i = 0; i < N_OUTPUTS; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	return before->found;
}

static json_t *says_words(unsigned found)
{
	json_t *words = json_array();

	for (size_t i = 0; i < SAYS_N; i++)
		if (found >> i & 1)
			json_array_append_new(words, json_string(says_name((enum says)i)));
	return words;
}

/* ---- the machine's side ---- */

/* How many the kernel killed for want of memory meanwhile: a counter of another boot says nothing about this one. */
static int64_t oom_kills_of(const struct attempt *a)
{
	if (a->oom_kills < 0 || a->oom_kills_end < a->oom_kills)
		return -1;
	return a->oom_kills_end - a->oom_kills;
}

static json_t *peaks_of(const struct attempt *a)
{
	json_t *peaks = json_array();

	for (uint32_t k = 0; k < a->n_cards; k++)
		if (a->cards[k].is_sampled)
			json_array_append_new(peaks, json_pack("[s, I]", a->cards[k].uuid,
							     (json_int_t)a->cards[k].peak_mib));
	return peaks;
}

static json_t *xids_of(const struct attempt *a)
{
	json_t *xids = json_array();

	for (uint32_t k = 0; k < a->n_cards; k++)
		if (a->cards[k].xid)
			json_array_append_new(xids,
				json_pack("[s, I]", a->cards[k].uuid, (json_int_t)a->cards[k].xid));
	return xids;
}

/* ---- reading, and telling ---- */

json_t *facts_read(const char *path, bool has_ended, struct says_found *says,
	void (*alive)(void *arg), void *arg)
{
	CLEANUP_CLOSE int dir = open_dir(path);
	json_t *o = json_object();

	json_object_set_new(o, "progress", read_progress(dir));
	if (!has_ended)
		return o;
	put_tail(o, dir);
	put_result(o, dir);
	json_object_set_new(o, "says", says_words(says_of(dir, says, alive, arg)));
	return o;
}

json_t *facts_unread(const char *why)
{
	return json_pack("{s:s, s:s, s:s, s:b, s:n, s:b, s:[], s:s}", "progress", "", "tail", "",
		"tail_of", "stdout", "tail_is_cut", 0, "result", "result_is_cut", 0, "says",
		"unread", why);
}

void job_files_free(struct job_files *f)
{
	if (!f)
		return;
	json_decref(f->read);
	free(f);
}

bool facts_are_there(const struct attempt *a)
{
	return !a->dir || (a->files && a->files->read && a->files->has_end);
}

json_t *progress_of(const struct attempt *a)
{
	json_t *progress = a->files ? json_object_get(a->files->read, "progress") : NULL;

	return progress ? json_incref(progress) : json_string("");
}

json_t *facts_of_end(const struct attempt *a)
{
	json_t *facts = json_copy(a->files->read);

	json_object_set_new(facts, "oom_kills", json_integer(oom_kills_of(a)));
	json_object_set_new(facts, "peaks", peaks_of(a));
	json_object_set_new(facts, "xids", xids_of(a));
	return facts;
}
