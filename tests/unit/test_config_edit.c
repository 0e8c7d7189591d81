/*
 * Edits of config.yml: pairs of files in tests/golden/config (NAME.edit says what is done to NAME.before; NAME.after is the
 * result, or NAME.error the sentence), and a property: random edits of random files touch nothing but what they're about.
 * With GOLDEN_UPDATE set the pairs are written anew.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "config/config_inner.h"
#include "config/scalar.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *golden_dir(void)
{
	const char *root = getenv("SOURCE_ROOT");

	return xasprintf("%s/tests/golden/config", root ? root : ".");
}

static void read_golden(const char *name, const char *suffix, struct buf *ret)
{
	CLEANUP_FREE char *dir = golden_dir(), *path = xasprintf("%s/%s%s", dir, name, suffix);

	if (fd_read_file_at(AT_FDCWD, path, ret, 1 << 20) < 0)
		buf_printf(ret, "(%s isn't there)", path);
	else
		buf_reserve(ret, 1);
}

/* "add key=value ...", "remove NAME", "set SECTION KEY VALUE" ("\n" in it is a line end). */
static void parse_edit(char *line, struct edit *edit, struct host_config *host)
{
	char *save = NULL, *verb = strtok_r(line, " \n", &save), *word;
	struct err e = {0};

	if (strcmp(verb, "remove") == 0) {
		edit->remove = strtok_r(NULL, "\n", &save);
	} else if (strcmp(verb, "set") == 0) {
		edit->section = strtok_r(NULL, " ", &save);
		edit->key = strtok_r(NULL, " ", &save);
		edit->value = strtok_r(NULL, "\n", &save);
		word = strstr(edit->value, "\\n");
		if (word) {
			word[0] = '\n';
			memmove(word + 1, word + 2, strlen(word + 2) + 1);
		}
	} else {
		assert_string_equal(verb, "add");
		while ((word = strtok_r(NULL, " \n", &save))) {
			char *equals = strchr(word, '=');

			*equals = '\0';
			if (host_config_set(host, word, equals + 1, &e) < 0)
				fail_msg("%s", e.text);
		}
		assert_int_equal(host_config_finish(host, &e), 0);
		edit->add = host;
		edit->n_add = 1;
	}
}

static void check_pair(const char *name)
{
	CLEANUP(buf_done) struct buf text = {0}, before = {0}, got = {0}, want = {0};
	CLEANUP(host_config_done) struct host_config host = {0};
	struct edit edit = {0};
	struct err e = {0};
	const char *suffix;

	read_golden(name, ".edit", &text);
	read_golden(name, ".before", &before);
	parse_edit(text.data, &edit, &host);
	suffix = edit_apply(&edit, buf_str(&before), before.len, "config.yml", &got, &e) < 0
			 ? ".error"
			 : ".after";
	if (strcmp(suffix, ".error") == 0) {
		buf_clear(&got);
		buf_printf(&got, "%s\n", e.text);
	}
	if (getenv("GOLDEN_UPDATE")) {
		CLEANUP_FREE char *dir = golden_dir(),
				  *path = xasprintf("%s/%s%s", dir, name, suffix);

		assert_int_equal(fd_replace_at(AT_FDCWD, path, buf_str(&got), got.len, false), 0);
	}
	read_golden(name, suffix, &want);
	if (got.len != want.len || memcmp(buf_str(&got), want.data, got.len) != 0)
		fail_msg("%s%s\n--- want\n%s\n--- got\n%s", name, suffix, buf_str(&want),
			buf_str(&got));
}

static void golden_pairs(void **state)
{
	CLEANUP_FREE char *path = golden_dir();
	CLEANUP_CLOSEDIR DIR *dir = opendir(path);
	struct dirent *entry;
	size_t n = 0;

	(void)state;
	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		char *dot = strrchr(entry->d_name, '.');

		if (!dot || strcmp(dot, ".edit") != 0)
			continue;
		*dot = '\0';
		check_pair(entry->d_name);
		n++;
	}
	assert_true(n >= 50);
}

/* --- random files, random edits --- */

static uint64_t rng;

static unsigned pick(unsigned n)
{
	rng = rng * 6364136223846793005ULL + 1442695040888963407ULL;
	return (unsigned)(rng >> 33) % n;
}

static const char *any(const char *const *words, unsigned n)
{
	return words[pick(n)];
}
#define ANY(...) \
	any((const char *const[]){__VA_ARGS__}, ARRAY_LEN(((const char *const[]){__VA_ARGS__})))

static void put_noise(struct buf *b, unsigned indent, const char *eol)
{
	while (pick(3) == 0) {
		if (pick(3) == 0)
			buf_printf(b, "%s%s", ANY("", "   ", " "), eol);
		else
			buf_printf(b, "%*s# %s%s", (int)pick(indent + 4), "",
				ANY("- hostname: no", "größe 大", "servers:", "x: [", "'", "😀"),
				eol);
	}
}

static void put_tail(struct buf *b, const char *eol)
{
	buf_printf(b, "%s%s", ANY("", "", "  ", " # c", "\t# 大: - {", "   #'"), eol);
}

static void put_key(struct buf *b, unsigned column, const char *eol, unsigned k)
{
	buf_printf(b, "%*s", (int)column, "");
	switch (pick(7)) {
	case 0:
		buf_printf(b, "x%u: 'quoted # text: %u'", k, k);
		break;
	case 1:
		buf_printf(b, "x%u: \"two%s%*slines\"", k, eol, (int)column + 2, "");
		break;
	case 2:
		buf_printf(b, "x%u: |%s%s%*s# text%s%*s- more", k, ANY("", "-", "+"), eol,
			(int)column + 2, "", eol, (int)column + 3, "");
		buf_puts(b, eol);
		return;
	case 3:
		buf_printf(b, "x%u: [a, {b: c}, %s ]", k, eol[0] == '\r' ? "d" : "\"d\"");
		break;
	case 4:
		buf_printf(b, "x%u:", k);
		break;
	case 5:
		buf_printf(b, "x%u:%s%*s- a%s%*s- b: 1", k, eol, (int)column + 1, "", eol,
			(int)column + 1, "");
		break;
	default:
		buf_printf(b, "x%u: plain größe %u", k, k);
	}
	put_tail(b, eol);
}

static void put_random_host(
	struct buf *b, unsigned column, unsigned gap, const char *eol, unsigned i)
{
	unsigned inner = column + 1 + gap, n = pick(4);

	if (pick(6) == 0) {
		buf_printf(b, "%*s- {hostname: h%u, nickname: n%u}", (int)column, "", i, i);
		put_tail(b, eol);
		return;
	}
	buf_printf(b, "%*s-", (int)column, "");
	if (pick(5) == 0) {
		buf_printf(b, "%s%s", ANY("", " ", " # c: - ["), eol);
		put_noise(b, inner, eol);
		buf_printf(b, "%*s", (int)inner, "");
	} else {
		buf_printf(b, "%*s", (int)gap, "");
	}
	buf_printf(b, "hostname: h%u", i);
	put_tail(b, eol);
	put_noise(b, inner, eol);
	buf_printf(b, "%*snickname: n%u", (int)inner, "", i);
	put_tail(b, eol);
	for (unsigned k = 0; k < n; k++) {
		put_noise(b, inner, eol);
		put_key(b, inner, eol, k);
	}
}

/* Returns how many servers it has; -1: a form that may be refused. */
static int put_file(struct buf *b)
{
	const char *eol = pick(4) ? "\n" : "\r\n";
	unsigned column = pick(3) * 2, gap = 1 + pick(3), n = pick(4), form = pick(8);

	if (pick(8) == 0)
		buf_puts(b, "\xef\xbb\xbf");
	put_noise(b, 0, eol);
	if (pick(6) == 0)
		buf_printf(b, "---%s", eol);
	if (pick(2)) {
		buf_printf(b, "basic:");
		put_tail(b, eol);
		put_noise(b, 2, eol);
		buf_printf(b, "  remote: %s", ANY("true", "no", "On"));
		put_tail(b, eol);
		put_noise(b, 2, eol);
	}
	if (pick(2)) {
		buf_printf(b, "view:");
		put_tail(b, eol);
		for (unsigned k = 0; k < 1 + pick(3); k++)
			put_key(b, 2, eol, k);
		put_noise(b, 2, eol);
	}
	if (form != 0) {
		buf_printf(b, "servers:%s", n ? "" : ANY("", " []", " ~", " null"));
		put_tail(b, eol);
		for (unsigned i = 0; i < n; i++) {
			put_noise(b, column, eol);
			put_random_host(b, column, gap, eol, i);
		}
		put_noise(b, column, eol);
	} else {
		n = 0;
	}
	if (pick(2)) {
		buf_printf(b, "queue:%s", eol);
		put_key(b, 3, eol, 0);
	}
	if (pick(5) == 0 && b->len > 2 && b->data[b->len - 1] == '\n') {
		b->len -= b->data[b->len - 2] == '\r' ? 2 : 1;
		b->data[b->len] = '\0';
	}
	return (int)n;
}

/* The bytes that the two have in common at both ends are all of the shorter one, the `cut` ones aside. */
static size_t lost(const struct buf *before, const struct buf *after)
{
	size_t head = 0, tail = 0, n = before->len < after->len ? before->len : after->len;

	while (head < n && before->data[head] == after->data[head])
		head++;
	while (tail < n - head &&
		before->data[before->len - 1 - tail] == after->data[after->len - 1 - tail])
		tail++;
	return before->len - head - tail;
}

static const char *line_end(const char *s)
{
	return s + strcspn(s, "\r\n");
}

/* How many lines of `before` aren't in `after`, in their order. */
static unsigned lines_lost(const struct buf *before, const struct buf *after)
{
	const char *from = after->data;
	unsigned n = 0;

	for (const char *p = before->data; *p;
		p = line_end(p), p += strspn(p, "\r"), p += *p == '\n') {
		size_t len = (size_t)(line_end(p) - p);
		const char *q = from;

		while (*q && !((size_t)(line_end(q) - q) == len && memcmp(p, q, len) == 0))
			q = line_end(q), q += strspn(q, "\r"), q += *q == '\n';
		if (!*q && len)
			n++;
		else if (*q)
			q = line_end(q), q += strspn(q, "\r"), q += *q == '\n', from = q;
	}
	return n;
}

static bool is_refusable(const struct err *e)
{
	return strstr(e->text, " by hand:\n") != NULL;
}

static void show_failure(
	uint64_t seed, const char *what, const struct buf *before, const char *after)
{
	fail_msg("seed %llu: %s\n--- before\n%s\n--- after\n%s", (unsigned long long)seed, what,
		buf_str(before), after);
}

static void try_add(uint64_t seed, const struct buf *before, int n, unsigned *refused)
{
	CLEANUP(host_config_done) struct host_config h = {0};
	CLEANUP(config_done) struct config c = {0};
	CLEANUP(buf_done) struct buf after = {0};
	struct edit edit = {.add = &h, .n_add = 1};
	struct err e = {0};

	host_config_set(&h, "hostname", ANY("gpu9", "10.0.0.1", "2001:db8::2"), NULL);
	host_config_set(&h, "username", ANY("ann", "no", "1_0", "大"), NULL);
	host_config_set(&h, "nickname", ANY("new: one", "0x10", "größe", "# no", "a'b\"c\\"), NULL);
	assert_int_equal(host_config_finish(&h, NULL), 0);
	if (edit_apply(&edit, before->data, before->len, "config.yml", &after, &e) < 0) {
		if (!is_refusable(&e))
			show_failure(seed, e.text, before, "");
		++*refused;
		return;
	}
	assert_int_equal(config_parse(after.data, after.len, "config.yml", &c, &e), 0);
	if ((int)c.n_servers != n + 1 || strcmp(c.servers[n].nickname, h.nickname) != 0)
		show_failure(seed, "the new server isn't the last", before, after.data);
	/* Only an empty value may go, " []" or " null", and with it that line's look. */
	if (n == 0 ? lines_lost(before, &after) > 1 : lost(before, &after) > 0)
		show_failure(seed, "bytes were lost", before, after.data);
}

static void try_remove(uint64_t seed, const struct buf *before, int n, unsigned *refused)
{
	CLEANUP(config_done) struct config c = {0}, old = {0};
	CLEANUP(buf_done) struct buf after = {0}, joined = {0};
	char name[16];
	unsigned i = pick((unsigned)n);
	struct edit edit = {.remove = name};
	struct err e = {0};

	snprintf(name, sizeof(name), "n%u", i);
	if (edit_apply(&edit, before->data, before->len, "config.yml", &after, &e) < 0) {
		/* Blank lines that would become part of a |+ above. */
		if (!is_refusable(&e) || !strstr(before->data, "|+"))
			show_failure(seed, e.text, before, "");
		++*refused;
		return;
	}
	assert_int_equal(config_parse(after.data, after.len, "config.yml", &c, &e), 0);
	assert_int_equal(config_parse(before->data, before->len, "config.yml", &old, &e), 0);
	assert_int_equal(c.n_servers, n - 1);
	for (size_t k = 0; k < c.n_servers; k++)
		assert_true(host_config_same(&c.servers[k], &old.servers[k + (k >= i)]));
	/* One stretch went, and it held the one name. */
	if (lost(before, &after) != before->len - after.len || strstr(after.data, name))
		show_failure(seed, "more than the server went", before, after.data);
}

static void try_set(uint64_t seed, const struct buf *before, unsigned *refused)
{
	CLEANUP(buf_done) struct buf after = {0};
	CLEANUP(doc_done) struct doc doc = {0};
	const struct doc_node *view;
	struct edit edit = {.section = "view",
		.key = ANY("mode", "x0", "x1"),
		.value = ANY("unified", "'a # b'", "true")};
	struct err e = {0};

	if (edit_apply(&edit, before->data, before->len, "config.yml", &after, &e) < 0) {
		if (!is_refusable(&e))
			show_failure(seed, e.text, before, "");
		++*refused;
		return;
	}
	assert_int_equal(doc_parse(after.data, after.len, "x", &doc, &e), 0);
	view = doc_get(&doc.root, "view");
	assert_non_null(view);
	assert_non_null(doc_get(view, edit.key));
	if (strcmp(edit.key, "mode") == 0 && lost(before, &after) > 0)
		show_failure(seed, "bytes were lost", before, after.data);
}

static void random_edits(void **state)
{
	const char *set = getenv("SEED"), *rounds = getenv("ROUNDS");
	uint64_t first = set ? strtoull(set, NULL, 10) : (uint64_t)clock_wall_ms() * 1000;
	unsigned n_rounds = set && !rounds ? 1
			    : rounds	   ? (unsigned)strtoul(rounds, NULL, 10)
					   : 4000;
	unsigned refused = 0;

	(void)state;
	print_message("# seeds from %llu\n", (unsigned long long)first);
	for (unsigned i = 0; i < n_rounds; i++) {
		CLEANUP(buf_done) struct buf file = {0};
		uint64_t seed = first + i;
		int n;

		rng = seed;
		(void)pick(2);
		buf_reserve(&file, 1);
		file.data[0] = '\0';
		n = put_file(&file);
		if (pick(3) == 0)
			try_set(seed, &file, &refused);
		else if (n > 0 && pick(2))
			try_remove(seed, &file, n, &refused);
		else
			try_add(seed, &file, n, &refused);
	}
	print_message("# %u of %u edits were refused\n", refused, n_rounds);
	assert_true(refused * 5 <= n_rounds);
}

/* Whatever text is written is read back as that text, and as no bool, number or nothing. */
static void text_round_trip(void **state)
{
	static const char *const texts[] = {"a", "no", "~", "null", "", "0x10", "1e3", "1:30", "22",
		"10.0.0.1", "::1", "a: b", "a #b", "#", "- a", "'", "\"", "\\", "a'b", " a ",
		"a\tb", "a\nb", "\x01", "\xc2\x85", "\xe2\x80\xa8", "\xef\xbb\xbf", "\xef\xbf\xbd",
		"\xf0\x9f\x98\x80", "größe", "!x", "&a", "*a", "%a", "@a", "`a", "|", ">", "?",
		"{a}", "[a]", "=", "<<", ".", ".5", "-", "--- a", "2020-01-01", "0o17", "y", "+1",
		"1_000", "~/x", "a:", ":a", "a,b", "0b1", "-.inf", "abc", "beef", "be:ef"};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		CLEANUP(buf_done) struct buf b = {0};
		CLEANUP(doc_done) struct doc doc = {0};
		struct err e = {0};
		const struct doc_node *n;
		bool yes;
		int64_t v;

		buf_puts(&b, "k: ");
		scalar_put(&b, texts[i]);
		buf_puts(&b, " # c\nl: 1\n");
		if (doc_parse(b.data, b.len, "x", &doc, &e) < 0)
			fail_msg("%s in %s", e.text, b.data);
		n = doc_get(&doc.root, "k");
		assert_non_null(n);
		assert_string_equal(n->text, texts[i]);
		assert_false(scalar_is_null(n));
		assert_int_equal(scalar_bool(n, &yes), -EINVAL);
		assert_int_equal(scalar_int(n, &v), -EINVAL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(golden_pairs),
		cmocka_unit_test(random_edits),
		cmocka_unit_test(text_round_trip),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
