/*
 * The jobs file: bytes to lines (jobsfile.h). Owns one copy of the text, in which the strings of all lines lie. Decides
 * what a line is, what is skipped, and each line's key. It reads no file and says nothing to anyone.
 */
#include "run/jobsfile_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

/* A digest's first bytes are as good a hash as any. */
#define HASH_FUNCTION(key, len, value) memcpy(&(value), (key), sizeof(value))
#define uthash_malloc(n) xmalloc(n)
#include <uthash.h>

#define BOM "\xef\xbb\xbf"

/* A command text and how often it stood in the file so far. */
struct command_seen {
	uint8_t digest[20];
	uint32_t n;
	UT_hash_handle hh;
};

/* They're made in blocks: the table holds pointers to them, and most files have few. */
struct seen_block {
	struct seen_block *before;
	struct command_seen items[256];
};

struct parse {
	struct jobsfile *f;
	struct command_seen *seen;
	struct seen_block *blocks;
	size_t n_in_block;
	struct jobsfile_name *names;
	size_t n_names, cap_names;
	bool has_after;
	bool is_plain; /* ASCII without NUL throughout: nothing to check line by line */
};

void jobsfile_error(struct jobsfile *f, uint32_t lineno, const char *fmt, ...)
{
	CLEANUP(buf_done) struct buf text = {0};
	va_list ap;

	if (f->n_errors > JOBSFILE_ERRORS_MAX)
		return;
	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	if (f->n_errors == JOBSFILE_ERRORS_MAX) {
		buf_clear(&text);
		buf_printf(&text, "and more errors from here on; the first %d are listed",
			JOBSFILE_ERRORS_MAX);
	}
	GROW(f->errors, f->n_errors, f->cap_errors);
	f->errors[f->n_errors++] = (struct jobsfile_error){lineno, buf_take(&text)};
}

/* By hand: with printf it's a sixth of the time a file takes. */
static void key_format(const uint8_t digest[20], uint32_t occurrence, char ret[JOB_KEY_LEN])
{
	char digits[10];
	size_t n = 0, at = 12;

	hex_encode(digest, 6, ret);
	ret[at++] = '#';
	do
		digits[n++] = (char)('0' + occurrence % 10);
	while ((occurrence /= 10) > 0);
	while (n > 0)
		ret[at++] = digits[--n];
	ret[at] = '\0';
}

void job_key(const char *command, size_t n, uint32_t occurrence, char ret[JOB_KEY_LEN])
{
	uint8_t digest[20];

	sha1(command, n, digest);
	key_format(digest, occurrence, ret);
}

static struct command_seen *seen_next(struct parse *p)
{
	if (!p->blocks || p->n_in_block == ARRAY_LEN(p->blocks->items)) {
		struct seen_block *b = xcalloc(1, sizeof(*b));
		b->before = p->blocks;
		p->blocks = b;
		p->n_in_block = 0;
	}
	return &p->blocks->items[p->n_in_block];
}

/* The occurrence is counted by the whole digest; only six bytes of it are shown. */
static void line_give_key(struct parse *p, struct jobline *l)
{
	struct command_seen *seen, *fresh = seen_next(p);

	sha1(l->command, l->command_len, fresh->digest);
	HASH_FIND(hh, p->seen, fresh->digest, sizeof(fresh->digest), seen);
	if (!seen) {
		seen = fresh;
		HASH_ADD(hh, p->seen, digest, sizeof(fresh->digest), fresh);
		p->n_in_block++;
	}
	key_format(seen->digest, seen->n++, l->key);
}

static void seen_done(struct parse *p)
{
	HASH_CLEAR(hh, p->seen);
	while (p->blocks) {
		struct seen_block *before = p->blocks->before;
		free(p->blocks);
		p->blocks = before;
	}
}

/* Eight bytes at a time; nearly every file is that. */
static bool is_plain_ascii(const char *s, size_t n)
{
	const uint64_t high = UINT64_C(0x8080808080808080), ones = UINT64_C(0x0101010101010101);
	uint64_t bad = 0, word;

	for (; n >= sizeof(word); s += sizeof(word), n -= sizeof(word)) {
		memcpy(&word, s, sizeof(word));
		bad |= (word | (word - ones)) & high;
	}
	for (; n > 0; s++, n--)
		bad |= (signed char)*s <= 0;
	return bad == 0;
}

/* Encoding faults of the raw line; each ends the look at it. */
static bool is_text(struct jobsfile *f, uint32_t lineno, const char *line, size_t n)
{
	const char *nul = memchr(line, '\0', n);
	size_t valid = utf8_valid_len(line, nul ? (size_t)(nul - line) : n);

	if (nul && valid == (size_t)(nul - line)) {
		jobsfile_error(f, lineno,
			"byte %zu of the line is a NUL; remove it, no command can hold one",
			valid + 1);
		return false;
	}
	if (valid < n) {
		jobsfile_error(f, lineno,
			"byte %zu of the line (0x%02x) is not UTF-8; save the file as UTF-8",
			valid + 1, (unsigned)(unsigned char)line[valid]);
		return false;
	}
	return true;
}

static void note_name(struct parse *p, const struct jobline *l, bool is_good)
{
	if (!l->name)
		return;
	GROW(p->names, p->n_names, p->cap_names);
	p->names[p->n_names++] =
		(struct jobsfile_name){l->name, l->lineno, is_good ? p->f->n : SIZE_MAX};
}

static bool check_command(struct jobsfile *f, const struct jobline *l)
{
	if (l->command_len > JOBSFILE_COMMAND_MAX) {
		jobsfile_error(f, l->lineno,
			"the command has %zu bytes and may have %d at most; put it into a script and run that",
			l->command_len, JOBSFILE_COMMAND_MAX);
		return false;
	}
	if (l->command_len >= 3 && memcmp(l->command, BOM, 3) == 0) {
		jobsfile_error(
			f, l->lineno, "the line begins with a byte-order mark (U+FEFF); remove it");
		return false;
	}
	return true;
}

/* Splits "[...] command"; *text and *n are narrowed to the command. False: an error was noted. */
static bool take_block(struct parse *p, struct jobline *l, char **text, size_t *n)
{
	char *block = *text + 1, *end = memchr(*text, ']', *n);
	const char *command;

	if (!end) {
		jobsfile_error(p->f, l->lineno, "unterminated '[...]' attribute block");
		return false;
	}
	command = end + 1;
	*n -= (size_t)(command - *text);
	utf8_trim(&command, n);
	*text = *text + (command - *text);
	if (*n == 0) {
		jobsfile_error(p->f, l->lineno, "attribute block present but command is empty");
		return false;
	}
	return jobsfile_parse_block(p->f, block, (size_t)(end - block), l) == 0;
}

static void parse_line(struct parse *p, uint32_t lineno, char *line, size_t n)
{
	struct jobsfile *f = p->f;
	struct jobline l = {.lineno = lineno, .vram_mib = -1, .gpus = 1, .retries = -1};
	const char *trimmed = line;

	if (!p->is_plain && !is_text(f, lineno, line, n))
		return;
	utf8_trim(&trimmed, &n);
	line += trimmed - line;
	if (n == 0 || line[0] == '#')
		return;
	bool is_good = line[0] != '[' || take_block(p, &l, &line, &n);
	l.command = line;
	l.command_len = n;
	is_good = is_good && check_command(f, &l);
	note_name(p, &l, is_good);
	if (!is_good)
		return;
	line[n] = '\0';
	line_give_key(p, &l);
	p->has_after |= l.after != NULL;
	GROW(f->lines, f->n, f->cap);
	f->lines[f->n++] = l;
}

static void parse_lines(struct parse *p, char *s, size_t n)
{
	uint32_t lineno = 0;
	size_t at = 0;

	while (at < n) {
		size_t end = at;
		while (end < n && s[end] != '\n' && s[end] != '\r')
			end++;
		size_t next = end + (end + 1 < n && s[end] == '\r' && s[end + 1] == '\n') + 1;
		size_t before = p->f->n;
		parse_line(p, ++lineno, s + at, end - at);
		p->f->last_line_is_open = end == n && p->f->n > before;
		at = next;
	}
}

static int error_order(const void *a, const void *b)
{
	const struct jobsfile_error *x = a, *y = b;

	return (x->lineno > y->lineno) - (x->lineno < y->lineno);
}

void jobsfile_parse(const char *bytes, size_t n, uint64_t known_numbers, struct jobsfile *ret)
{
	struct jobsfile f = {0};
	struct parse p = {.f = &f};

	if (n > JOBSFILE_MAX) {
		jobsfile_error(&f, 1, "the file has %zu bytes; more than %d are not read", n,
			JOBSFILE_MAX);
		*ret = f;
		return;
	}
	if (n >= 3 && memcmp(bytes, BOM, 3) == 0) {
		bytes += 3;
		n -= 3;
	}
	buf_put(&f.arena, bytes, n);
	buf_putc(&f.arena, '\0'); /* the last command's NUL has a place of its own */
	p.is_plain = is_plain_ascii(bytes, n);
	parse_lines(&p, f.arena.data, n);
	if (p.n_names > 0 || p.has_after) {
		size_t from_lines = f.n_errors;
		jobsfile_check_after(&f, p.names, p.n_names, known_numbers);
		/* Stable by line: there are few, and qsort of glibc merges. */
		if (f.n_errors > from_lines)
			qsort(f.errors, f.n_errors, sizeof(f.errors[0]), error_order);
	}
	seen_done(&p);
	free(p.names);
	*ret = f;
}

void jobsfile_done(struct jobsfile *f)
{
	for (size_t i = 0; i < f->n_errors; i++)
		free(f->errors[i].text);
	free(f->errors);
	free(f->lines);
	buf_done(&f->arena);
	*f = (struct jobsfile){0};
}
