/*
 * Values within a command: which of them change from run to run, by how they look, and what stands in their place. Each
 * guess errs on the side of one shape for two commands rather than a shape of its own for every run.
 */
#include "core/shape_inner.h"

#include "base/cleanup.h"

#include <string.h>

const unsigned char piece_kinds[256] = {
	['='] = SEPARATES,
	[','] = SEPARATES,
	[':'] = SEPARATES,
	['@'] = SEPARATES,
	['['] = SEPARATES,
	[']'] = SEPARATES,
	['{'] = SEPARATES,
	['}'] = SEPARATES,
	['!'] = SEPARATES,
	['?'] = SEPARATES,
	['*'] = SEPARATES,
	['#'] = SEPARATES,
	[';'] = SEPARATES | STOPS_WORD,
	['('] = SEPARATES | STOPS_WORD,
	[')'] = SEPARATES | STOPS_WORD,
	['|'] = SEPARATES | STOPS_WORD,
	['&'] = SEPARATES | STOPS_WORD,
	['<'] = SEPARATES | STOPS_WORD,
	['>'] = SEPARATES | STOPS_WORD,
	['"'] = SEPARATES | STOPS_WORD,
	['\''] = SEPARATES | STOPS_WORD,
	['\\'] = STOPS_WORD,
	['\0'] = STOPS_WORD,
	[' '] = BLANK | STOPS_WORD,
	['\t'] = BLANK | STOPS_WORD,
	['\r'] = BLANK | STOPS_WORD,
	['\n'] = BLANK | STOPS_WORD,
};

static bool is_hex(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static char fold(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* How many bytes of `word` p begins with, whatever the case; 0 unless it's all of them. */
static size_t beginning(struct piece p, const char *word)
{
	size_t i = 0;

	for (; word[i]; i++) {
		if (i >= p.n || fold(p.s[i]) != fold(word[i]))
			return 0;
	}
	return i;
}

bool piece_starts(struct piece p, const char *word)
{
	return beginning(p, word) != 0;
}

bool piece_is_one_of(struct piece p, const char *const *words, size_t n)
{
	char first = p.n ? fold(*p.s) : '\0';

	for (size_t i = 0; first && i < n; i++) {
		if (fold(*words[i]) == first && beginning(p, words[i]) == p.n)
			return true;
	}
	return false;
}

bool piece_ends(struct piece p, const char *word)
{
	size_t n = strlen(word);

	return p.n >= n && piece_starts((struct piece){p.s + p.n - n, n}, word);
}

bool piece_contains(struct piece p, const char *word)
{
	for (; p.n; p.s++, p.n--) {
		if (fold(*p.s) == fold(*word) && piece_starts(p, word))
			return true;
	}
	return false;
}

bool piece_has(struct piece p, char c)
{
	return memchr(p.s, c, p.n) != NULL;
}

bool piece_has_blank(struct piece p)
{
	return piece_has(p, ' ') || piece_has(p, '\n') || piece_has(p, '\t');
}

/* ---- values ---- */

/* 8g, 250ms, 10%, 4k; not 7b and 13B, which are sizes of models. */
static bool is_unit(struct piece p)
{
	static const char *const units[] = {"k", "m", "g", "t", "kb", "mb", "gb", "tb", "kib",
		"mib", "gib", "tib", "s", "ms", "us", "h", "d", "min", "%"};

	return piece_is_one_of(p, units, ARRAY_LEN(units));
}

/*
 * 3, -0.5, 1e-3, 0x1f, 8GiB, 1.2.3, 0-7, 224x224, 1/4, 10_000: begins with a digit behind a sign or point, and goes on with
 * digits that nothing but a sign of such kinds parts.
 */
bool piece_is_number(struct piece p)
{
	size_t i = 0;

	if (p.n && (*p.s == '-' || *p.s == '+'))
		i++;
	if (i < p.n && p.s[i] == '.')
		i++;
	if (i >= p.n || !is_digit(p.s[i]))
		return false;
	if (p.n > i + 2 && p.s[i] == '0' && (p.s[i + 1] == 'x' || p.s[i + 1] == 'X')) {
		for (i += 2; i < p.n && is_hex(p.s[i]); i++)
			;
		return i == p.n;
	}
	for (; i < p.n; i++) {
		if (is_digit(p.s[i]))
			continue;
		if (is_unit((struct piece){p.s + i, p.n - i}))
			return true;
		/* An exponent, a product, a range, a version: digits have to follow, by way of a sign at most. */
		if (!strchr("eExX.-_/:+", p.s[i]))
			return false;
		if ((p.s[i] == 'e' || p.s[i] == 'E') && i + 2 < p.n &&
			(p.s[i + 1] == '-' || p.s[i + 1] == '+'))
			i++;
		/* "3." is one too. */
		if (i + 1 < p.n ? !is_digit(p.s[i + 1]) : p.s[i] != '.')
			return false;
	}
	return true;
}

/* 2026-11-30, 2026_11_30-12:05, 20261130_120500, 2026-11-30T12:05:00.25Z. */
static bool is_date(struct piece p)
{
	size_t digits = 0;

	for (; digits < p.n && is_digit(p.s[digits]); digits++)
		;
	if (p.n < 10 || (strncmp(p.s, "19", 2) != 0 && strncmp(p.s, "20", 2) != 0))
		return false;
	if (digits == 4 && !(strchr("-_/.", p.s[4]) && is_digit(p.s[5])))
		return false;
	if (digits != 4 && (digits != 8 || !strchr("-_T", p.s[8])))
		return false;
	for (size_t i = digits; i < p.n; i++) {
		if (!is_digit(p.s[i]) && !strchr("-_/.:T+Zh", p.s[i]))
			return false;
	}
	return true;
}

static bool is_uuid(struct piece p)
{
	if (p.n != 36)
		return false;
	for (size_t i = 0; i < p.n; i++) {
		if (i == 8 || i == 13 || i == 18 || i == 23 ? p.s[i] != '-' : !is_hex(p.s[i]))
			return false;
	}
	return true;
}

/* Commits, digests, the random names of runs: hex with both kinds in it, or long and restless. */
static bool is_hash(struct piece p)
{
	size_t digits = 0, hex = 0, turns = 0;
	bool lower = false, upper = false;

	if (is_uuid(p))
		return true;
	for (size_t i = 0; i < p.n; i++) {
		if (!is_digit(p.s[i]) && !is_alpha(p.s[i]))
			return false;
		digits += is_digit(p.s[i]);
		hex += is_hex(p.s[i]);
		lower |= p.s[i] >= 'a' && p.s[i] <= 'z';
		upper |= p.s[i] >= 'A' && p.s[i] <= 'Z';
		turns += i && is_digit(p.s[i]) != is_digit(p.s[i - 1]);
	}
	if (hex == p.n && lower != upper)
		return p.n >= 7 && digits >= 2;
	return p.n >= 20 && digits >= 4 && turns >= 6;
}

/* An ending of letters as files have it: "x.tar", not "Llama-3.1-8B". */
static bool has_ending(struct piece p)
{
	size_t n = 0;

	while (n < p.n && n < 8 && (is_alpha(p.s[p.n - 1 - n]) || is_digit(p.s[p.n - 1 - n])))
		n++;
	return n && n < p.n && p.s[p.n - 1 - n] == '.' && is_alpha(p.s[p.n - n]);
}

/* "meta-llama/Llama-3.1-8B" names a model and stays: one stroke inside alone makes no path. */
static bool is_path(struct piece p)
{
	static const char *const starts[] = {"/", "./", "../", "~", "$HOME", "${HOME}"};
	size_t strokes = 0;

	if (piece_is_one_of(p, (const char *const[]){".", ".."}, 2))
		return true;
	if (!piece_has(p, '/') && !strchr("~$", *p.s))
		return false;
	if (piece_contains(p, "://"))
		return true;
	for (size_t i = 0; i < ARRAY_LEN(starts); i++) {
		if (piece_starts(p, starts[i]))
			return true;
	}
	for (size_t i = 0; i < p.n; i++)
		strokes += p.s[i] == '/';
	if (!strokes || *p.s == '-')
		return false;
	return strokes > 1 || *p.s == '$' || p.s[p.n - 1] == '/' || has_ending(p);
}

static bool is_script(struct piece p)
{
	static const char *const ends[] = {".py", ".sh", ".bash", ".pl", ".r", ".jl", ".lua", ".js",
		".rb", ".ipynb", ".exe", ".jar"};

	for (size_t i = 0; piece_has(p, '.') && i < ARRAY_LEN(ends); i++) {
		if (piece_ends(p, ends[i]) && !piece_has_blank(p))
			return true;
	}
	return false;
}

/* seed3, run_17, exp-004, fold2: how many bytes stay of such a word; 0: it isn't one. */
static size_t counted_word(struct piece p)
{
	static const char *const words[] = {"seed", "run", "exp", "experiment", "trial", "fold",
		"job", "part", "shard", "rank", "try", "task", "rep", "repeat", "chunk", "iter",
		"step", "epoch", "ckpt", "checkpoint", "version"};

	/* All of them begin with a letter, and most words and numbers differ in it. */
	for (size_t i = 0; p.n && i < ARRAY_LEN(words); i++) {
		size_t n = fold(*p.s) == *words[i] ? beginning(p, words[i]) : 0;

		if (!n)
			continue;
		if (n < p.n && strchr("-_", p.s[n]))
			n++;
		if (n < p.n && is_digit(p.s[n]) &&
			piece_is_number((struct piece){p.s + n, p.n - n}))
			return n;
	}
	return 0;
}

void piece_put(struct buf *b, struct piece p)
{
	size_t at = b->len;

	buf_put(b, p.s, p.n);
	for (; at < b->len; at++) {
		if (is_blank(b->data[at]))
			b->data[at] = ' ';
	}
}

/* Between two separators. */
static void put_atom(struct buf *b, struct piece p)
{
	size_t n = counted_word(p);

	if (is_date(p)) {
		buf_puts(b, "<date>");
	} else if (piece_is_number(p) && !is_uuid(p)) {
		buf_puts(b, "<n>");
	} else if (is_hash(p)) {
		buf_puts(b, "<hash>");
	} else if (is_script(p)) {
		piece_put(b, p);
	} else if (is_path(p)) {
		buf_puts(b, "<path>");
	} else if (n) {
		buf_put(b, p.s, n);
		buf_puts(b, "<n>");
	} else {
		piece_put(b, p);
	}
}

void piece_put_text(struct buf *b, struct piece p)
{
	while (p.n) {
		size_t n = 0;

		while (n < p.n && !is_kind(p.s[n], BLANK | SEPARATES))
			n++;
		if (n) {
			put_atom(b, (struct piece){p.s, n});
		} else {
			n = 1;
			if (!is_blank(*p.s))
				buf_putc(b, *p.s);
			else if (b->len && b->data[b->len - 1] != ' ')
				buf_putc(b, ' ');
		}
		p.s += n;
		p.n -= n;
	}
}

void piece_put_value(struct buf *b, struct piece p)
{
	bool is_plain = strchr("/.~$", *p.s) == NULL;

	if (is_date(p))
		buf_puts(b, "<date>");
	else if (piece_is_number(p) && !is_uuid(p))
		buf_puts(b, "<n>");
	/* A path may have blanks, strokes and separators in it, so it's looked for before they are. */
	else if (!is_script(p) && is_path(p) &&
		 !(is_plain && (piece_has_blank(p) || piece_has(p, ','))))
		buf_puts(b, "<path>");
	else
		piece_put_text(b, p);
}
