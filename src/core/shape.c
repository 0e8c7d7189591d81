/*
 * A command's shape: words as a shell would see them, quotes gone, blanks one, and in place of what changes from run to run
 * a placeholder: <n> numbers, <date>, <hash>, <path>, and <name> where an option only names the run. Nothing is run or looked
 * up. What is kept: programs, scripts, option names, words, numbers inside words.
 *
 * Two commands that differ may have one shape (then the larger of their peaks counts); what must not happen is that every
 * run of a sweep has a shape of its own, for then nothing is ever learned.
 */
#include "core/shape.h"

#include "base/cleanup.h"
#include "base/hash.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#define HASH_DIGITS 16
#define NESTING_MAX 3 /* bash -c "bash -c '...'" */

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_alpha(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_hex(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* A piece of text that isn't ours. */
struct piece {
	const char *s;
	size_t n;
};

static bool is_one_of(struct piece p, const char *const *words, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (strlen(words[i]) == p.n && strncasecmp(p.s, words[i], p.n) == 0)
			return true;
	}
	return false;
}

static bool starts_with(struct piece p, const char *word)
{
	size_t n = strlen(word);

	return p.n >= n && strncasecmp(p.s, word, n) == 0;
}

static bool ends_with(struct piece p, const char *word)
{
	size_t n = strlen(word);

	return p.n >= n && strncasecmp(p.s + p.n - n, word, n) == 0;
}

static bool contains(struct piece p, const char *word)
{
	for (; p.n; p.s++, p.n--) {
		if (starts_with(p, word))
			return true;
	}
	return false;
}

static bool has_char(struct piece p, char c)
{
	return memchr(p.s, c, p.n) != NULL;
}

static bool has_blank(struct piece p)
{
	return has_char(p, ' ') || has_char(p, '\n') || has_char(p, '\t');
}

/* ---- values ---- */

/* 8g, 250ms, 10%, 4k; not 7b and 13B, which are sizes of models. */
static bool is_unit(struct piece p)
{
	static const char *const units[] = {"k", "m", "g", "t", "kb", "mb", "gb", "tb", "kib",
		"mib", "gib", "tib", "s", "ms", "us", "h", "d", "min", "%"};

	return is_one_of(p, units, ARRAY_LEN(units));
}

/*
 * 3, -0.5, 1e-3, 0x1f, 8GiB, 1.2.3, 0-7, 224x224, 1/4, 10_000: begins with a digit behind a sign or point, and goes on with
 * digits that nothing but a sign of such kinds parts.
 */
static bool is_number(struct piece p)
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

	if (is_one_of(p, (const char *const[]){".", ".."}, 2) || contains(p, "://"))
		return true;
	for (size_t i = 0; i < ARRAY_LEN(starts); i++) {
		if (starts_with(p, starts[i]))
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

	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		if (ends_with(p, ends[i]) && !has_blank(p))
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

	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		size_t n = strlen(words[i]);

		if (!starts_with(p, words[i]))
			continue;
		if (n < p.n && strchr("-_", p.s[n]))
			n++;
		if (n < p.n && is_digit(p.s[n]) && is_number((struct piece){p.s + n, p.n - n}))
			return n;
	}
	return 0;
}

/* As it is, but on one line. */
static void put_piece(struct buf *b, struct piece p)
{
	for (size_t i = 0; i < p.n; i++)
		buf_putc(b, is_blank(p.s[i]) ? ' ' : p.s[i]);
}

/* Between two separators. */
static void put_atom(struct buf *b, struct piece p)
{
	size_t n = counted_word(p);

	if (is_date(p)) {
		buf_puts(b, "<date>");
	} else if (is_number(p) && !is_uuid(p)) {
		buf_puts(b, "<n>");
	} else if (is_hash(p)) {
		buf_puts(b, "<hash>");
	} else if (is_script(p)) {
		put_piece(b, p);
	} else if (is_path(p)) {
		buf_puts(b, "<path>");
	} else if (n) {
		buf_put(b, p.s, n);
		buf_puts(b, "<n>");
	} else {
		put_piece(b, p);
	}
}

#define SEPARATORS "=,:;@()[]{}\"'|&<>!?*#"

/* Free text: blanks become one, everything between blanks and separators is looked at by itself. */
static void put_pieces(struct buf *b, struct piece p)
{
	while (p.n) {
		size_t n = 0;

		while (n < p.n && !is_blank(p.s[n]) && !(p.s[n] && strchr(SEPARATORS, p.s[n])))
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

/* The value of an option or of an assignment, or an operand. */
static void put_value(struct buf *b, struct piece p)
{
	bool is_plain = strchr("/.~$", *p.s) == NULL;

	if (is_date(p))
		buf_puts(b, "<date>");
	else if (is_number(p) && !is_uuid(p))
		buf_puts(b, "<n>");
	/* A path may have blanks, strokes and separators in it, so it's looked for before they are. */
	else if (!is_script(p) && is_path(p) && !(is_plain && (has_blank(p) || has_char(p, ','))))
		buf_puts(b, "<path>");
	else
		put_pieces(b, p);
}

/* ---- options ---- */

/* The value says where things go or what the run is called, or seeds it: whatever it is, it's no part of the shape. */
static const char *placeholder_for(struct piece name)
{
	static const char *const names[] = {"o", "out", "output", "log", "logs", "logfile", "tag",
		"tags", "comment", "run", "run-name", "run_name", "runname", "exp-name", "exp_name",
		"expname", "exp", "experiment-name", "experiment_name", "experiment", "run-id",
		"run_id", "job-name", "job_name", "wandb-name", "wandb_name", "wandb-group",
		"wandb_group", "suffix", "exp-id", "exp_id", "save", "resume", "resume-from",
		"resume_from"};
	static const char *const ends[] = {"dir", "path", "file", "folder"};

	while (name.n && (*name.s == '-' || *name.s == '+')) {
		name.s++;
		name.n--;
	}
	/* trainer.seed, hydra.run.dir */
	for (size_t i = name.n; i > 0; i--) {
		if (name.s[i - 1] == '.') {
			name = (struct piece){name.s + i, name.n - i};
			break;
		}
	}
	if (ends_with(name, "seed") || ends_with(name, "seeds"))
		return "<n>";
	if (contains(name, "model") || contains(name, "arch"))
		return NULL;
	if (is_one_of(name, names, ARRAY_LEN(names)))
		return "<name>";
	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		if (ends_with(name, ends[i]))
			return "<path>";
	}
	return NULL;
}

/* name=value: the length of the name, or 0. */
static size_t assigned(struct piece p)
{
	size_t i = 0;

	for (; i < p.n; i++) {
		if (p.s[i] == '=')
			return i;
		if (!is_alpha(p.s[i]) && !is_digit(p.s[i]) && !strchr("_-.+/", p.s[i]))
			return 0;
	}
	return 0;
}

static bool is_option(struct piece p)
{
	return p.n > 1 && *p.s == '-' && !is_number(p) && !has_blank(p);
}

/* -j8, -n4: one letter and a number. */
static bool is_short_with_number(struct piece p)
{
	return p.n > 2 && *p.s == '-' && is_alpha(p.s[1]) && is_digit(p.s[2]) &&
	       is_number((struct piece){p.s + 2, p.n - 2});
}

/* ---- words of a command ---- */

/* What a word is, by those before it in the same simple command. */
struct place {
	bool wants_program; /* the first word, or behind what runs another program */
	bool wants_script; /* an interpreter's first operand */
	bool is_shell, is_cd, is_wrapper;
	bool wants_command; /* behind bash -c */
	bool wants_target; /* behind > */
	const char *value; /* the placeholder of the option before; NULL */
	int depth;
};

static void start_command(struct place *at)
{
	*at = (struct place){.wants_program = true, .depth = at->depth};
}

static void put_command(struct buf *b, struct piece p, int depth);

static void put_program(struct buf *b, struct piece p, struct place *at)
{
	static const char *const wrappers[] = {"env", "nohup", "time", "nice", "sudo", "exec",
		"command", "setsid", "ionice", "taskset", "numactl", "timeout", "stdbuf", "chrt",
		"then", "do", "else", "if", "while", "until", "!", "{"};
	static const char *const shells[] = {"sh", "bash", "zsh", "dash", "ksh"};
	static const char *const interpreters[] = {
		"python", "perl", "ruby", "Rscript", "julia", "node", "source", "."};
	struct piece name = p;

	for (size_t i = p.n; i > 0; i--) {
		if (p.s[i - 1] == '/') {
			name = (struct piece){p.s + i, p.n - i};
			break;
		}
	}
	put_piece(b, p);
	at->is_wrapper = is_one_of(name, wrappers, ARRAY_LEN(wrappers));
	at->wants_program = at->is_wrapper;
	at->is_shell = is_one_of(name, shells, ARRAY_LEN(shells));
	at->is_cd = is_one_of(name, (const char *const[]){"cd", "pushd"}, 2);
	at->wants_script = at->is_shell || starts_with(name, "python") ||
			   is_one_of(name, interpreters, ARRAY_LEN(interpreters));
}

static void put_option(struct buf *b, struct piece p, struct place *at)
{
	size_t n = assigned(p);

	at->value = NULL;
	if (n) {
		const char *value = placeholder_for((struct piece){p.s, n});

		buf_put(b, p.s, n + 1);
		if (value)
			buf_puts(b, value);
		else
			put_value(b, (struct piece){p.s + n + 1, p.n - n - 1});
		return;
	}
	if (is_short_with_number(p)) {
		buf_put(b, p.s, 2);
		buf_puts(b, "<n>");
		return;
	}
	put_piece(b, p);
	at->value = placeholder_for(p);
	at->wants_command = at->is_shell && p.n <= 4 && p.s[1] != '-' && p.s[p.n - 1] == 'c';
	/* python -m module, python -c code: no script follows. */
	if (is_one_of(p, (const char *const[]){"-m", "-c"}, 2))
		at->wants_script = false;
}

static void put_operand(struct buf *b, struct piece p, struct place *at)
{
	size_t n = assigned(p);
	const char *value = at->value;

	at->value = NULL;
	if (at->wants_command) {
		at->wants_command = at->wants_script = false;
		buf_putc(b, '{');
		put_command(b, p, at->depth + 1);
		buf_putc(b, '}');
	} else if (at->is_cd) {
		buf_puts(b, "<path>");
	} else if (value) {
		buf_puts(b, value);
	} else if (at->wants_program && !n && !(at->is_wrapper && is_number(p))) {
		put_program(b, p, at);
	} else if (n && !has_char((struct piece){p.s, n}, '/')) {
		value = placeholder_for((struct piece){p.s, n});
		buf_put(b, p.s, n + 1);
		if (value)
			buf_puts(b, value);
		else
			put_value(b, (struct piece){p.s + n + 1, p.n - n - 1});
	} else if (at->wants_script) {
		at->wants_script = false;
		put_piece(b, p);
	} else {
		put_value(b, p);
	}
}

static void put_word(struct buf *b, struct piece p, struct place *at)
{
	if (b->len && !strchr(" {", b->data[b->len - 1]))
		buf_putc(b, ' ');
	if (at->wants_target) {
		at->wants_target = false;
		buf_puts(b, is_number(p) ? "<n>" : "<path>");
	} else if (is_option(p) && !(at->wants_program && !at->is_wrapper)) {
		put_option(b, p, at);
	} else {
		put_operand(b, p, at);
	}
}

/* ---- the shell's words ---- */

/* One word from *p on, quotes taken off, into *word; *p stands behind it. */
static void take_word(struct piece *p, struct buf *word)
{
	char quote = 0;

	for (; p->n; p->s++, p->n--) {
		char c = *p->s;

		if (quote && c == quote) {
			quote = 0;
		} else if (!quote && (c == '\'' || c == '"')) {
			quote = c;
		} else if (c == '\\' && quote != '\'' && p->n > 1) {
			p->s++;
			p->n--;
			if (*p->s != '\n')
				buf_putc(word, *p->s);
		} else if (!quote && (is_blank(c) || strchr(";|&<>()", c))) {
			return;
		} else if (c) {
			buf_putc(word, c);
		}
	}
}

/* An operator at *p: put down, and what it makes of the word that follows. */
static void take_operator(struct buf *b, struct piece *p, struct place *at)
{
	char c = *p->s;
	size_t n = 1;

	while (n < p->n && n < 3 && p->s[n] &&
		strchr(c == '<' || c == '>' ? "<>&|-" : "&|;", p->s[n]))
		n++;
	if (c == '(' || c == ')')
		n = 1;
	if (b->len && b->data[b->len - 1] != ' ')
		buf_putc(b, ' ');
	buf_put(b, p->s, n);
	p->s += n;
	p->n -= n;
	if (c == '<' || c == '>')
		at->wants_target = true;
	else
		start_command(at);
}

/* Lines are parted as commands are; empty ones and comments leave nothing. */
static void take_line_end(struct buf *b, struct place *at)
{
	while (b->len && b->data[b->len - 1] == ' ')
		b->len--;
	if (b->len && !strchr(";&|({", b->data[b->len - 1]))
		buf_puts(b, " ;");
	start_command(at);
}

static void drop_comment(struct piece *p)
{
	while (p->n && *p->s != '\n') {
		p->s++;
		p->n--;
	}
}

static void put_command(struct buf *b, struct piece p, int depth)
{
	struct place at = {.depth = depth};
	struct buf word = {0};

	if (depth > NESTING_MAX) {
		put_pieces(b, p);
		return;
	}
	start_command(&at);
	while (p.n) {
		if (*p.s == '\n') {
			take_line_end(b, &at);
			p.s++;
			p.n--;
		} else if (is_blank(*p.s) || !*p.s) {
			p.s++;
			p.n--;
		} else if (*p.s == '#') {
			drop_comment(&p);
		} else if (strchr(";|&<>()", *p.s)) {
			take_operator(b, &p, &at);
		} else {
			buf_clear(&word);
			take_word(&p, &word);
			if (word.len)
				put_word(b, (struct piece){word.data, word.len}, &at);
		}
	}
	buf_done(&word);
	while (b->len && strchr(" ;", b->data[b->len - 1]))
		b->len--;
	if (b->data)
		b->data[b->len] = '\0';
}

/* Whole characters of the start, and a hash of everything. */
static void put_bounded(struct buf *ret, const struct buf *whole)
{
	uint8_t digest[32];
	char hex[HASH_DIGITS + 1];
	size_t n = SHAPE_MAX - HASH_DIGITS - 1;

	sha256(whole->data, whole->len, digest);
	hex_encode(digest, HASH_DIGITS / 2, hex);
	while (n && ((unsigned char)whole->data[n] & 0xC0) == 0x80)
		n--;
	buf_put(ret, whole->data, n);
	buf_printf(ret, "~%s", hex);
}

void shape_of(const char *command, size_t n, struct buf *ret)
{
	struct buf whole = {0};

	put_command(&whole, (struct piece){command, n}, 0);
	if (whole.len > SHAPE_MAX)
		put_bounded(ret, &whole);
	else
		buf_puts(ret, buf_str(&whole));
	buf_done(&whole);
}
