/*
 * The parser of every command's options. It decides only from the command's table: names, values, bounds, and the
 * sentence for each mistake. It's written out rather than built on getopt_long, which keeps its state in globals, stops
 * permuting under POSIXLY_CORRECT and takes abbreviations whether one wants them or not.
 */
#include "cli/option.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/parse.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What every command has; parsed like the rest and never stored. */
static const struct option_spec help_spec = {
	.letter = 'h', .name = "help", .kind = OPTION_FLAG, .text = "show this help and end"};
static const struct option_spec version_spec = {
	.name = "version", .kind = OPTION_FLAG, .text = "show the version and end"};

struct parse {
	const struct option_spec *specs;
	bool abbreviations;
	int argc;
	char **argv;
	int next; /* position of the next word to read */
	unsigned char *opts;
	int answer; /* OPTION_HELP, OPTION_VERSION once asked for */
	struct err *e;
};

const struct option_spec *option_at(const struct option_spec *specs, size_t i)
{
	size_t n = 0;

	while (specs && *specs[n].name)
		n++;
	if (i < n)
		return &specs[i];
	return i == n ? &help_spec : i == n + 1 ? &version_spec : NULL;
}

bool option_has_range(const struct option_spec *o)
{
	return (o->kind == OPTION_INT || o->kind == OPTION_REAL) && (o->min != 0 || o->max != 0);
}

/* The word as the user gave it, for a sentence: quoted, without power over the terminal. */
static const char *quoted(struct buf *b, const char *s)
{
	text_put_repr(b, s, strnlen(s, 200));
	return buf_str(b);
}

static void put_bounds(struct buf *b, const struct option_spec *o)
{
	const char *what = o->kind == OPTION_INT ? "a whole number" : "a number";

	buf_puts(b, what);
	if (!option_has_range(o))
		return;
	if (isinf(o->max))
		buf_printf(b, " of at least %.15g", o->min);
	else
		buf_printf(b, " from %.15g to %.15g", o->min, o->max);
}

static int bad_value(struct parse *p, const struct option_spec *o, const char *value)
{
	CLEANUP(buf_done) struct buf q = {0}, bounds = {0};

	put_bounds(&bounds, o);
	return err_set(p->e, -EINVAL, "--%s takes %s, not %s", o->name, buf_str(&bounds),
		quoted(&q, value));
}

static bool is_within(const struct option_spec *o, double v)
{
	return !option_has_range(o) || (v >= o->min && v <= o->max);
}

static int store_number(struct parse *p, const struct option_spec *o, const char *value)
{
	int64_t whole;
	double real;

	if (o->kind == OPTION_INT) {
		if (parse_int64(value, &whole) < 0 || !is_within(o, (double)whole))
			return bad_value(p, o, value);
		memcpy(p->opts + o->offset, &whole, sizeof(whole));
		return 0;
	}
	if (parse_double(value, &real) < 0 || !is_within(o, real))
		return bad_value(p, o, value);
	memcpy(p->opts + o->offset, &real, sizeof(real));
	return 0;
}

static int store(struct parse *p, const struct option_spec *o, const char *value)
{
	struct option_list *list;
	bool yes = true;

	if (o == &help_spec || o == &version_spec) {
		if (!p->answer)
			p->answer = o == &help_spec ? OPTION_HELP : OPTION_VERSION;
		return 0;
	}
	switch (o->kind) {
	case OPTION_FLAG:
		memcpy(p->opts + o->offset, &yes, sizeof(yes));
		return 0;
	case OPTION_TEXT:
		memcpy(p->opts + o->offset, &value, sizeof(value));
		return 0;
	case OPTION_LIST:
		list = (struct option_list *)(void *)(p->opts + o->offset);
		GROW(list->items, list->n, list->cap);
		list->items[list->n++] = value;
		return 0;
	case OPTION_INT:
	case OPTION_REAL:
		break;
	}
	return store_number(p, o, value);
}

static int unknown(struct parse *p, const char *word, const char *name)
{
	CLEANUP(buf_done) struct buf q = {0};
	CLEANUP_FREE const char **names = NULL;
	const struct option_spec *o;
	const char *near;
	size_t n = 0, cap = 0;

	for (size_t i = 0; (o = option_at(p->specs, i)); i++) {
		if (o->is_hidden)
			continue;
		GROW(names, n, cap);
		names[n++] = o->name;
	}
	near = text_closest(name, names, n);
	if (near)
		return err_set(p->e, -EINVAL, "unknown option %s; did you mean --%s?",
			quoted(&q, word), near);
	return err_set(
		p->e, -EINVAL, "unknown option %s; --help lists the options", quoted(&q, word));
}

static int unknown_long(struct parse *p, const char *name, size_t len)
{
	CLEANUP_FREE char *word = xasprintf("--%.*s", (int)len, name);

	return unknown(p, word, word + 2);
}

static int ambiguous(struct parse *p, const char *name, size_t len)
{
	CLEANUP_FREE char *word = xasprintf("--%.*s", (int)len, name);
	CLEANUP(buf_done) struct buf q = {0}, could = {0};
	const struct option_spec *o;

	for (size_t i = 0; (o = option_at(p->specs, i)); i++)
		if (!o->is_hidden && strncmp(o->name, name, len) == 0)
			buf_printf(&could, "%s--%s", could.len ? " or " : "", o->name);
	return err_set(p->e, -EINVAL, "option %s isn't clear: it could be %s", quoted(&q, word),
		buf_str(&could));
}

/* The option a long name means; 0, or the error. An exact name wins over abbreviations; hidden ones aren't abbreviated. */
static int find_long(struct parse *p, const char *name, size_t len, const struct option_spec **ret)
{
	const struct option_spec *o, *found = NULL;
	size_t n = 0;

	for (size_t i = 0; (o = option_at(p->specs, i)); i++) {
		if (strncmp(o->name, name, len) != 0)
			continue;
		if (!o->name[len]) {
			*ret = o;
			return 0;
		}
		if (len && !o->is_hidden) {
			found = o;
			n++;
		}
	}
	if (n == 0 || !p->abbreviations)
		return unknown_long(p, name, len);
	if (n > 1)
		return ambiguous(p, name, len);
	*ret = found;
	return 0;
}

/* The value in the next word; NULL and the error when there's none. */
static const char *next_value(struct parse *p, const struct option_spec *o, int *r)
{
	if (p->next < p->argc)
		return p->argv[p->next++];
	*r = err_set(p->e, -EINVAL, "--%s needs a value (%s)", o->name, *o->arg ? o->arg : "VALUE");
	return NULL;
}

/* `--logs 20` has a value, `--logs` and `--logs --json` have none. */
static int store_bare(struct parse *p, const struct option_spec *o)
{
	int64_t n;

	if (p->next < p->argc && !parse_int64(p->argv[p->next], &n))
		return store(p, o, p->argv[p->next++]);
	memcpy(p->opts + o->offset, &o->bare, sizeof(o->bare));
	return 0;
}

static int parse_long(struct parse *p, const char *word)
{
	const char *equals = strchr(word, '='), *value = NULL, *name = word + 2;
	const struct option_spec *o = NULL;
	int r = find_long(p, name, equals ? (size_t)(equals - name) : strlen(name), &o);

	if (r < 0 || !o)
		return r;
	if (o->kind == OPTION_FLAG) {
		if (equals)
			return err_set(p->e, -EINVAL, "--%s takes no value", o->name);
		return store(p, o, NULL);
	}
	if (!equals && o->bare)
		return store_bare(p, o);
	value = equals ? equals + 1 : next_value(p, o, &r);
	return value ? store(p, o, value) : r;
}

static const struct option_spec *find_letter(const struct parse *p, char letter)
{
	const struct option_spec *o;

	for (size_t i = 0; (o = option_at(p->specs, i)); i++)
		if (o->letter == letter)
			return o;
	return NULL;
}

/* "-v", "-vh", "-n5", "-n 5": flags may share a word, and one with a value takes the rest of it. */
static int parse_letters(struct parse *p, const char *word)
{
	for (const char *c = word + 1; *c; c++) {
		const struct option_spec *o = find_letter(p, *c);
		const char *value = NULL;
		int r = 0;

		if (!o)
			return unknown(p, word, word + 1);
		if (o->kind != OPTION_FLAG) {
			value = c[1] ? c + 1 : next_value(p, o, &r);
			return value ? store(p, o, value) : r;
		}
		r = store(p, o, NULL);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Reads all words; the plain ones are collected in `plain`, the others in `used`, both in their order. */
static int parse_words(struct parse *p, char **used, int *n_used, char **plain, int *n_plain)
{
	while (p->next < p->argc) {
		int first = p->next++, r;
		char *word = p->argv[first];

		if (word[0] != '-' || !word[1]) {
			plain[(*n_plain)++] = word;
			continue;
		}
		if (strcmp(word, "--") == 0) {
			used[(*n_used)++] = word;
			while (p->next < p->argc)
				plain[(*n_plain)++] = p->argv[p->next++];
			break;
		}
		r = word[1] == '-' ? parse_long(p, word) : parse_letters(p, word);
		if (r < 0)
			return r;
		for (int i = first; i < p->next; i++)
			used[(*n_used)++] = p->argv[i];
	}
	return 0;
}

int option_parse(const struct option_spec *specs, bool abbreviations, int argc, char **argv,
	void *opts, int *ret_first, struct err *e)
{
	struct parse p = {.specs = specs,
		.abbreviations = abbreviations,
		.argc = argc,
		.argv = argv,
		.opts = opts,
		.e = e};
	size_t room = argc > 0 ? (size_t)argc : 1;
	CLEANUP_FREE char **used = xcalloc(room, sizeof(*used));
	CLEANUP_FREE char **plain = xcalloc(room, sizeof(*plain));
	int n_used = 0, n_plain = 0;
	int r = parse_words(&p, used, &n_used, plain, &n_plain);

	if (r < 0)
		return r;
	for (int i = 0; i < n_used; i++)
		argv[i] = used[i];
	for (int i = 0; i < n_plain; i++)
		argv[n_used + i] = plain[i];
	*ret_first = n_used;
	return p.answer;
}

int option_parse_leading(const struct option_spec *specs, bool abbreviations, int argc, char **argv,
	void *opts, int *ret_first, struct err *e)
{
	struct parse p = {.specs = specs,
		.abbreviations = abbreviations,
		.argc = argc,
		.argv = argv,
		.opts = opts,
		.e = e};

	while (p.next < argc) {
		char *word = argv[p.next];
		int r;

		if (word[0] != '-' || !word[1])
			break;
		p.next++;
		if (strcmp(word, "--") == 0)
			break;
		r = word[1] == '-' ? parse_long(&p, word) : parse_letters(&p, word);
		if (r < 0)
			return r;
		if (p.answer)
			break;
	}
	*ret_first = p.next;
	return p.answer;
}

void option_done(const struct option_spec *specs, void *opts)
{
	for (const struct option_spec *o = specs; o && *o->name; o++) {
		struct option_list *list;

		if (o->kind != OPTION_LIST)
			continue;
		list = (struct option_list *)(void *)((unsigned char *)opts + o->offset);
		free(list->items);
		*list = (struct option_list){0};
	}
}
