/*
 * A command's shape: words as a shell would see them, quotes gone, blanks one, and in place of what changes from run to run
 * a placeholder: <n> numbers, <date>, <hash>, <path>, and <name> where an option only names the run. Nothing is run or looked
 * up. What is kept: programs, scripts, option names, words, numbers inside words.
 *
 * Two commands that differ may have one shape (then the larger of their peaks counts); what must not happen is that every
 * run of a sweep has a shape of its own, for then nothing is ever learned.
 */
#include "core/shape.h"
#include "core/shape_inner.h"

#include "base/cleanup.h"
#include "base/hash.h"

#include <stdbool.h>
#include <string.h>

#define HASH_DIGITS 16
#define NESTING_MAX 3 /* bash -c "bash -c '...'" */

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
	const char *value = NULL;

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
	if (piece_ends(name, "seed") || piece_ends(name, "seeds"))
		return "<n>";
	if (piece_is_one_of(name, names, ARRAY_LEN(names)))
		value = "<name>";
	for (size_t i = 0; !value && i < ARRAY_LEN(ends); i++) {
		if (piece_ends(name, ends[i]))
			value = "<path>";
	}
	return value && (piece_contains(name, "model") || piece_contains(name, "arch")) ? NULL
											: value;
}

/* name=value: the length of the name, or 0. */
static size_t assigned(struct piece p)
{
	size_t i = 0;

	if (!piece_has(p, '='))
		return 0;
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
	return p.n > 1 && *p.s == '-' && !piece_is_number(p) && !piece_has_blank(p);
}

/* -j8, -n4: one letter and a number. */
static bool is_short_with_number(struct piece p)
{
	return p.n > 2 && *p.s == '-' && is_alpha(p.s[1]) && is_digit(p.s[2]) &&
	       piece_is_number((struct piece){p.s + 2, p.n - 2});
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
	piece_put(b, p);
	at->is_wrapper = piece_is_one_of(name, wrappers, ARRAY_LEN(wrappers));
	at->wants_program = at->is_wrapper;
	at->is_shell = piece_is_one_of(name, shells, ARRAY_LEN(shells));
	at->is_cd = piece_is_one_of(name, (const char *const[]){"cd", "pushd"}, 2);
	at->wants_script = at->is_shell || piece_starts(name, "python") ||
			   piece_is_one_of(name, interpreters, ARRAY_LEN(interpreters));
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
			piece_put_value(b, (struct piece){p.s + n + 1, p.n - n - 1});
		return;
	}
	if (is_short_with_number(p)) {
		buf_put(b, p.s, 2);
		buf_puts(b, "<n>");
		return;
	}
	piece_put(b, p);
	at->value = placeholder_for(p);
	at->wants_command = at->is_shell && p.n <= 4 && p.s[1] != '-' && p.s[p.n - 1] == 'c';
	/* python -m module, python -c code: no script follows. */
	if (piece_is_one_of(p, (const char *const[]){"-m", "-c"}, 2))
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
	} else if (at->wants_program && !n && !(at->is_wrapper && piece_is_number(p))) {
		put_program(b, p, at);
	} else if (n && !piece_has((struct piece){p.s, n}, '/')) {
		value = placeholder_for((struct piece){p.s, n});
		buf_put(b, p.s, n + 1);
		if (value)
			buf_puts(b, value);
		else
			piece_put_value(b, (struct piece){p.s + n + 1, p.n - n - 1});
	} else if (at->wants_script) {
		at->wants_script = false;
		piece_put(b, p);
	} else {
		piece_put_value(b, p);
	}
}

static void put_word(struct buf *b, struct piece p, struct place *at)
{
	if (b->len && !strchr(" {", b->data[b->len - 1]))
		buf_putc(b, ' ');
	if (at->wants_target) {
		at->wants_target = false;
		buf_puts(b, piece_is_number(p) ? "<n>" : "<path>");
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
		size_t n = 0;

		while (n < p->n && !is_kind(p->s[n], STOPS_WORD))
			n++;
		if (n) {
			buf_put(word, p->s, n);
			p->s += n - 1;
			p->n -= n - 1;
		} else if (quote && c == quote) {
			quote = 0;
		} else if (!quote && (c == '\'' || c == '"')) {
			quote = c;
		} else if (c == '\\' && quote != '\'' && p->n > 1) {
			p->s++;
			p->n--;
			if (*p->s && *p->s != '\n')
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
		piece_put_text(b, p);
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
static void bound(struct buf *b)
{
	char hex[HASH_DIGITS + 1];
	uint8_t digest[32];
	size_t n = SHAPE_MAX - HASH_DIGITS - 1;

	sha256(b->data, b->len, digest);
	hex_encode(digest, HASH_DIGITS / 2, hex);
	while (n && ((unsigned char)b->data[n] & 0xC0) == 0x80)
		n--;
	b->len = n;
	buf_printf(b, "~%s", hex);
}

void shape_of(const char *command, size_t n, struct buf *ret)
{
	buf_clear(ret);
	put_command(ret, (struct piece){command, n}, 0);
	if (ret->len > SHAPE_MAX)
		bound(ret);
}
