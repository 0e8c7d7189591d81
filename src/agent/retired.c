/*
 * The claims that are gone: one line each in <root>/retired, written and synced before the claim is removed. It stays for as
 * long as the root does, at last in few words (retired_compact.c); so a launch that was answered long ago is still known.
 * Owns the file and the index over it.
 *
 * The index is a hash table of 64-bit words: 28 bits of the name's hash, which also give the position, and 36 bits of
 * the line's offset + 1. What a word says is always checked against the line itself.
 */
#include "agent/claim.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/sys.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES 4096
#define READ_STEP 16384
#define OFFSET_BITS 36
#define OFFSET_MASK (((uint64_t)1 << OFFSET_BITS) - 1)
#define SIZE_MAX_WORDS ((size_t)1 << (64 - OFFSET_BITS))

struct retired_index {
	struct root *root;
	int fd; /* -1: there was no file yet */
	uint64_t *words;
	size_t n, size; /* size is a power of two */
	uint64_t read_to;
};

static int open_file(const struct root *r, int flags)
{
	int fd = openat(r->fd, "retired", flags | O_NOFOLLOW | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : fd;
}

static uint64_t name_tag(const char *name)
{
	uint64_t h = 14695981039346656037u;
	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * 1099511628211u;
	h ^= h >> 32;
	h *= 0x9E3779B97F4A7C15u;
	return h >> OFFSET_BITS;
}

static void insert_word(struct retired_index *x, uint64_t word)
{
	size_t at = (size_t)(word >> OFFSET_BITS) & (x->size - 1);
	while (x->words[at])
		at = (at + 1) & (x->size - 1);
	x->words[at] = word;
	x->n++;
}

static void grow(struct retired_index *x)
{
	uint64_t *old = x->words;
	size_t old_size = x->size;
	x->size = old_size ? old_size * 2 : 64;
	x->words = xcalloc(x->size, sizeof(*x->words));
	x->n = 0;
	for (size_t i = 0; i < old_size; i++) {
		if (old[i])
			insert_word(x, old[i]);
	}
	free(old);
}

/* Splits "<name> <token> <end>\n"; the pieces lie in `line`. */
static int split_line(char *line, char **ret_name, char **ret_token, char **ret_end)
{
	struct attempt_name n;
	char *first = strchr(line, ' ');
	char *second = first ? strchr(first + 1, ' ') : NULL;
	if (!second)
		return -EBADMSG;
	*first = *second = '\0';
	if (attempt_name_parse(line, &n) < 0 || !id_is_valid(first + 1))
		return -EBADMSG;
	*ret_name = line;
	*ret_token = first + 1;
	*ret_end = second + 1;
	return 0;
}

/* 0 and the line at that offset, -ENOENT when it is of another name. */
static int read_line_of(const struct retired_index *x, uint64_t offset, const char *name,
	char ret_token[ID_LEN], struct attempt_end *ret)
{
	char line[LINE_MAX_BYTES + 1], *found, *token, *text;
	ssize_t got = pread(x->fd, line, LINE_MAX_BYTES, (off_t)offset);
	if (got <= 0)
		return -ENOENT;
	line[got] = '\0';
	line[strcspn(line, "\n")] = '\0';
	if (split_line(line, &found, &token, &text) < 0 || strcmp(found, name) != 0)
		return -ENOENT;
	struct attempt_end end = {0};
	json_t *o = json_loads(text, 0, NULL), *rest = attempt_end_encode(&end);
	/* A shortened end says only what isn't as in an empty one. */
	json_object_del(rest, "how");
	json_object_update_missing(o, rest);
	json_decref(rest);
	/* A line whose end can't be read still says that the attempt is over and whose it was. */
	if (!o || attempt_end_decode(o, &end, NULL) < 0)
		end.how = END_VANISHED;
	json_decref(o);
	memcpy(ret_token, token, ID_LEN);
	*ret = end;
	return 0;
}

int retired_find(const struct retired_index *x, const struct attempt_name *n,
	char ret_token[ID_LEN], struct attempt_end *ret)
{
	char name[ATTEMPT_NAME_LEN];
	if (!x->size)
		return -ENOENT;
	attempt_name_format(n, name);
	uint64_t tag = name_tag(name);
	size_t at = (size_t)tag & (x->size - 1);
	for (; x->words[at]; at = (at + 1) & (x->size - 1)) {
		if (x->words[at] >> OFFSET_BITS != tag)
			continue;
		uint64_t offset = (x->words[at] & OFFSET_MASK) - 1;
		if (read_line_of(x, offset, name, ret_token, ret) == 0)
			return 0;
	}
	return -ENOENT;
}

size_t retired_count(const struct retired_index *x)
{
	return x->n;
}

static int index_line(struct retired_index *x, char *line, uint64_t offset)
{
	char *name, *token, *end, found[ID_LEN];
	struct attempt_name n;
	struct attempt_end nobody_reads;
	if (split_line(line, &name, &token, &end) < 0)
		return 0; /* torn by a crash; the claim is still there and will be retired again */
	if (attempt_name_parse(name, &n) < 0 || retired_find(x, &n, found, &nobody_reads) == 0)
		return 0;
	if (offset + 1 > OFFSET_MASK || x->n + 1 >= SIZE_MAX_WORDS / 2)
		return -EFBIG;
	if (x->n + 1 > x->size / 4 * 3)
		grow(x);
	insert_word(x, name_tag(name) << OFFSET_BITS | (offset + 1));
	return 0;
}

/* Takes the whole lines out of b, the first of which begins at x->read_to. */
static int index_lines(struct retired_index *x, struct buf *b)
{
	size_t at = 0;
	for (;;) {
		char *start = b->data + at;
		char *newline = memchr(start, '\n', b->len - at);
		if (!newline)
			break;
		*newline = '\0';
		int r = index_line(x, start, x->read_to + at);
		if (r < 0)
			return r;
		at = (size_t)(newline - b->data) + 1;
	}
	/* No line of ours is that long: pass over what isn't one. */
	if (!at && b->len > LINE_MAX_BYTES)
		at = b->len;
	buf_drop(b, at);
	x->read_to += at;
	return 0;
}

static int catch_up(struct retired_index *x)
{
	if (x->fd < 0) {
		int fd = open_file(x->root, O_RDONLY);
		if (fd < 0)
			return fd == -ENOENT ? 0 : fd;
		x->fd = fd;
	}
	CLEANUP(buf_done) struct buf b = {0};
	for (;;) {
		buf_reserve(&b, READ_STEP);
		ssize_t got = pread(x->fd, b.data + b.len, READ_STEP, (off_t)(x->read_to + b.len));
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : 0;
		b.len += (size_t)got;
		int r = index_lines(x, &b);
		if (r < 0)
			return r;
	}
}

int retired_load(struct root *r, struct retired_index **ret, struct err *e)
{
	struct retired_index *x = xcalloc(1, sizeof(*x));
	x->root = r;
	x->fd = -1;
	int code = catch_up(x);
	if (code < 0) {
		retired_free(x);
		return err_sys(e, code, "cannot read %s/retired", r->path);
	}
	r->retired = x;
	*ret = x;
	return 0;
}

int retired_index_of(struct root *r, int fd, struct retired_index **ret)
{
	struct retired_index *x = xcalloc(1, sizeof(*x));
	x->root = r;
	x->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	int code = x->fd < 0 ? -errno : catch_up(x);
	if (code < 0)
		retired_free(x);
	else
		*ret = x;
	return code;
}

void retired_swap(struct retired_index *x, struct retired_index *fresh)
{
	struct retired_index old = *x;
	*x = *fresh;
	*fresh = old;
}

void retired_free(struct retired_index *x)
{
	if (!x)
		return;
	if (x->root->retired == x)
		x->root->retired = NULL;
	if (x->fd >= 0)
		close(x->fd);
	free(x->words);
	free(x);
}

static int put_line(struct buf *b, const struct claim_retire *item)
{
	char name[ATTEMPT_NAME_LEN];
	json_t *o = attempt_end_encode(&item->end);
	char *text = o ? json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
	json_decref(o);
	if (!text || !id_is_valid(item->token)) {
		free(text);
		return -EINVAL;
	}
	attempt_name_format(&item->name, name);
	buf_printf(b, "%s %s %s\n", name, item->token, text);
	free(text);
	return 0;
}

/* A line that a crash or a full disk tore must not swallow the next one. */
static int has_open_line(int fd, int64_t size)
{
	char last = '\n';
	return size > 0 && pread(fd, &last, 1, (off_t)size - 1) == 1 && last != '\n';
}

static int append_lines(struct root *r, struct buf *lines)
{
	struct sys_stat st;
	CLEANUP_CLOSE int fd = open_file(r, O_RDWR | O_CREAT | O_APPEND);
	if (fd < 0)
		return fd;
	int code = sys_fstat(fd, &st);
	if (code < 0)
		return code;
	code = fault_point("claim.before-retire");
	if (!code && has_open_line(fd, st.size))
		code = fd_write_all(fd, "\n", 1);
	if (!code)
		code = fd_write_all(fd, lines->data, lines->len);
	if (!code && fdatasync(fd) < 0)
		code = -errno;
	if (!code && st.size == 0)
		code = fd_sync_dir_at(r->fd, ".");
	if (code < 0 && ftruncate(fd, (off_t)st.size) < 0)
		return code; /* the torn line stays; has_open_line knows what to do about it */
	return code;
}

int claim_retire(struct root *r, const struct claim_retire *items, size_t n, struct err *e)
{
	CLEANUP(buf_done) struct buf lines = {0};
	if (!n)
		return 0;
	for (size_t i = 0; i < n; i++) {
		int code = put_line(&lines, &items[i]);
		if (code < 0)
			return err_set(e, code, "an attempt to be retired has no valid token");
	}
	int code = append_lines(r, &lines);
	if (code < 0)
		return err_sys(e, code, "cannot write %s/retired", r->path);
	if (r->retired)
		catch_up(r->retired);
	fault_point("claim.after-retired-line");
	for (size_t i = 0; i < n; i++)
		claim_recycle(r, &items[i].name, items[i].token);
	return 0;
}
