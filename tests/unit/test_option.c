/* The option parser: what each kind takes, every sentence it can say, order, abbreviations. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "cli/option.h"

struct opts {
	bool watch, verbose, secret;
	const char *log_dir;
	int64_t margin, any;
	double poll, factor, free;
	struct option_list env;
};

#define AT(m) .offset = offsetof(struct opts, m)

static const struct option_spec specs[] = {
	{.name = "watch", .kind = OPTION_FLAG, AT(watch), .text = "t"},
	{.letter = 'v', .name = "verbose", .kind = OPTION_FLAG, AT(verbose), .text = "t"},
	{.name = "log-dir", .arg = "DIR", .kind = OPTION_TEXT, AT(log_dir), .text = "t"},
	{.letter = 'm',
		.name = "margin",
		.arg = "MIB",
		.kind = OPTION_INT,
		AT(margin),
		.max = 100000,
		.text = "t"},
	{.name = "any", .arg = "N", .kind = OPTION_INT, AT(any), .text = "t"},
	{.name = "poll",
		.arg = "SEC",
		.kind = OPTION_REAL,
		AT(poll),
		.min = 0.01,
		.max = INFINITY,
		.text = "t"},
	{.name = "factor",
		.arg = "F",
		.kind = OPTION_REAL,
		AT(factor),
		.min = -1,
		.max = 1,
		.text = "t"},
	{.name = "free", .arg = "F", .kind = OPTION_REAL, AT(free), .text = "t"},
	{.letter = 'e', .name = "env", .arg = "K=V", .kind = OPTION_LIST, AT(env), .text = "t"},
	{.name = "secret", .kind = OPTION_FLAG, AT(secret), .text = "t", .is_hidden = true},
	OPTION_SPEC_END,
};

enum { WORDS_MAX = 12 };

struct parsed {
	struct opts o;
	char *argv[WORDS_MAX];
	int argc, first, r;
	struct err e;
};

/* The words are given up to a NULL. */
static void parse(struct parsed *p, bool abbreviations, const char *const *words)
{
	*p = (struct parsed){.first = -7, .o = {.margin = 512, .poll = 5}};
	while (words[p->argc]) {
		p->argv[p->argc] = (char *)(uintptr_t)words[p->argc];
		p->argc++;
	}
	p->r = option_parse(specs, abbreviations, p->argc, p->argv, &p->o, &p->first, &p->e);
}

#define PARSE(p, abbreviations, ...) \
	parse((p), (abbreviations), (const char *const[]){__VA_ARGS__, NULL})

static void values(void **state)
{
	struct parsed p;

	(void)state;
	PARSE(&p, false, "--watch", "--log-dir", "a b", "--margin=7", "--poll", "0.01", "--factor",
		"-0.5", "--any", "-3");
	assert_int_equal(p.r, 0);
	assert_true(p.o.watch);
	assert_false(p.o.verbose);
	assert_string_equal(p.o.log_dir, "a b");
	assert_int_equal(p.o.margin, 7);
	assert_int_equal(p.o.any, -3);
	assert_true(p.o.poll == 0.01 && p.o.factor == -0.5);
	assert_int_equal(p.first, p.argc);
	/* An empty value is a value, and the last of several counts. */
	PARSE(&p, false, "--log-dir=x", "--log-dir=", "--margin", "0", "--margin=100000");
	assert_int_equal(p.r, 0);
	assert_string_equal(p.o.log_dir, "");
	assert_int_equal(p.o.margin, 100000);
	/* A value may look like an option. */
	PARSE(&p, false, "--log-dir", "--watch");
	assert_int_equal(p.r, 0);
	assert_string_equal(p.o.log_dir, "--watch");
	assert_false(p.o.watch);
}

static void letters(void **state)
{
	struct parsed p;

	(void)state;
	PARSE(&p, false, "-vm7", "-e", "A=1", "-eB=2", "--env=C=3");
	assert_int_equal(p.r, 0);
	assert_true(p.o.verbose);
	assert_int_equal(p.o.margin, 7);
	assert_int_equal(p.o.env.n, 3);
	assert_string_equal(p.o.env.items[0], "A=1");
	assert_string_equal(p.o.env.items[1], "B=2");
	assert_string_equal(p.o.env.items[2], "C=3");
	option_done(specs, &p.o);
	assert_int_equal(p.o.env.n, 0);
	assert_null(p.o.env.items);
}

static void order(void **state)
{
	struct parsed p;

	(void)state;
	/* Also where the environment asks for the other way. */
	setenv("POSIXLY_CORRECT", "1", 1);
	PARSE(&p, false, "one", "--margin", "3", "two", "-", "-v", "--", "--watch", "three");
	unsetenv("POSIXLY_CORRECT");
	assert_int_equal(p.r, 0);
	assert_int_equal(p.argc - p.first, 5);
	assert_string_equal(p.argv[p.first], "one");
	assert_string_equal(p.argv[p.first + 1], "two");
	assert_string_equal(p.argv[p.first + 2], "-");
	assert_string_equal(p.argv[p.first + 3], "--watch");
	assert_string_equal(p.argv[p.first + 4], "three");
	assert_true(p.o.verbose);
	assert_false(p.o.watch);
}

static void abbreviations(void **state)
{
	struct parsed p;

	(void)state;
	PARSE(&p, true, "--wa", "--pol", "1", "--marg=9", "--verb");
	assert_int_equal(p.r, 0);
	assert_true(p.o.watch && p.o.verbose);
	assert_true(p.o.poll == 1);
	assert_int_equal(p.o.margin, 9);
	/* A hidden option is reached by its whole name only. */
	PARSE(&p, true, "--secret");
	assert_int_equal(p.r, 0);
	assert_true(p.o.secret);
	PARSE(&p, true, "--secre");
	assert_int_equal(p.r, -EINVAL);
}

static void help_and_version(void **state)
{
	struct parsed p;

	(void)state;
	PARSE(&p, false, "--help");
	assert_int_equal(p.r, OPTION_HELP);
	PARSE(&p, false, "x", "-vh");
	assert_int_equal(p.r, OPTION_HELP);
	PARSE(&p, false, "--version", "--help");
	assert_int_equal(p.r, OPTION_VERSION);
	PARSE(&p, true, "--he");
	assert_int_equal(p.r, OPTION_HELP);
	PARSE(&p, true, "--vers");
	assert_int_equal(p.r, OPTION_VERSION);
	/* Behind "--" it's an argument, and behind an option with a value it's the value. */
	PARSE(&p, false, "--", "--help");
	assert_int_equal(p.r, 0);
	PARSE(&p, false, "--log-dir", "--help");
	assert_int_equal(p.r, 0);
}

static void sentences(void **state)
{
	static const struct {
		bool abbreviations;
		const char *words[4];
		const char *text;
	} rows[] = {
		{false, {"--wacth"}, "unknown option '--wacth'; did you mean --watch?"},
		{false, {"--wat"}, "unknown option '--wat'; did you mean --watch?"},
		{false, {"--mragin=3"}, "unknown option '--mragin'; did you mean --margin?"},
		{true, {"--nothing-like-it"},
			"unknown option '--nothing-like-it'; --help lists the options"},
		{false, {"--secret2"}, "unknown option '--secret2'; --help lists the options"},
		{false, {"-x"}, "unknown option '-x'; --help lists the options"},
		{false, {"-vx"}, "unknown option '-vx'; --help lists the options"},
		{false, {"-poll"}, "unknown option '-poll'; did you mean --poll?"},
		{true, {"--ver"}, "option '--ver' isn't clear: it could be --verbose or --version"},
		{true, {"--"}, NULL},
		{true, {"--=x"}, "unknown option '--'; --help lists the options"},
		{false, {"--log-dir"}, "--log-dir needs a value (DIR)"},
		{false, {"-m"}, "--margin needs a value (MIB)"},
		{false, {"--watch=yes"}, "--watch takes no value"},
		{false, {"--help=yes"}, "--help takes no value"},
		{false, {"--margin", "many"},
			"--margin takes a whole number from 0 to 100000, not 'many'"},
		{false, {"--margin", "1.5"},
			"--margin takes a whole number from 0 to 100000, not '1.5'"},
		{false, {"--margin", ""}, "--margin takes a whole number from 0 to 100000, not ''"},
		{false, {"--margin=-1"},
			"--margin takes a whole number from 0 to 100000, not '-1'"},
		{false, {"--margin=100001"},
			"--margin takes a whole number from 0 to 100000, not '100001'"},
		{false, {"--any=99999999999999999999"},
			"--any takes a whole number, not '99999999999999999999'"},
		{false, {"--poll=0"}, "--poll takes a number of at least 0.01, not '0'"},
		{false, {"--poll=nan"}, "--poll takes a number of at least 0.01, not 'nan'"},
		{false, {"--poll=inf"}, "--poll takes a number of at least 0.01, not 'inf'"},
		{false, {"--poll=1e999"}, "--poll takes a number of at least 0.01, not '1e999'"},
		{false, {"--poll", "-1"}, "--poll takes a number of at least 0.01, not '-1'"},
		{false, {"--factor=1.1"}, "--factor takes a number from -1 to 1, not '1.1'"},
		{false, {"--free=nan"}, "--free takes a number, not 'nan'"},
		{false, {"--free=1x"}, "--free takes a number, not '1x'"},
		{false, {"--free=\033[2J"}, "--free takes a number, not '\\x1b[2J'"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct parsed p;

		parse(&p, rows[i].abbreviations, rows[i].words);
		if (!rows[i].text) {
			assert_int_equal(p.r, 0);
			continue;
		}
		if (p.r != -EINVAL)
			fail_msg("row %zu (%s): %d", i, rows[i].words[0], p.r);
		assert_string_equal(p.e.text, rows[i].text);
		/* Outputs are untouched on failure. */
		assert_int_equal(p.first, -7);
		assert_int_equal(p.o.margin, 512);
	}
}

/* A sentence quotes at most so much of what it was given. */
static void long_words(void **state)
{
	CLEANUP_FREE char *word = calloc(1, 70000);
	struct parsed p;

	(void)state;
	assert_non_null(word);
	memset(word, 'x', 69999);
	memcpy(word, "--free=", 7);
	PARSE(&p, true, word);
	assert_int_equal(p.r, -EINVAL);
	assert_true(strlen(p.e.text) < 300);
	memcpy(word, "--xxxx=", 6);
	word[6] = 'x';
	PARSE(&p, true, word);
	assert_int_equal(p.r, -EINVAL);
	assert_true(strlen(p.e.text) < 300);
}

static void no_table(void **state)
{
	char *argv[] = {(char *)(uintptr_t) "a", (char *)(uintptr_t) "-h"};
	int first;

	(void)state;
	assert_int_equal(option_parse(NULL, false, 0, NULL, NULL, &first, NULL), 0);
	assert_int_equal(first, 0);
	assert_int_equal(option_parse(NULL, false, 2, argv, NULL, &first, NULL), OPTION_HELP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values),
		cmocka_unit_test(letters),
		cmocka_unit_test(order),
		cmocka_unit_test(abbreviations),
		cmocka_unit_test(help_and_version),
		cmocka_unit_test(sentences),
		cmocka_unit_test(long_words),
		cmocka_unit_test(no_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
