/* The jobs file: rows P1 to P13 of the specification, every error text, the key vectors, and what lines say of each other. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "run/jobsfile.h"

#include "base/buf.h"
#include "base/cleanup.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static struct jobsfile parse(const char *text)
{
	struct jobsfile f;

	jobsfile_parse(text, strlen(text), 0, &f);
	return f;
}

/* The only line of a good file. */
static struct jobsfile one(const char *text, struct jobline *ret)
{
	struct jobsfile f = parse(text);

	if (f.n_errors)
		print_message("%s\n", f.errors[0].text);
	assert_int_equal(f.n_errors, 0);
	assert_int_equal(f.n, 1);
	*ret = f.lines[0];
	return f;
}

#define GOOD(text) \
	struct jobline l; \
	CLEANUP(jobsfile_done) struct jobsfile f = one(text, &l)

/* All errors, "N: text" a line. */
static void assert_errors_known(const char *text, size_t n, uint64_t known, const char *wanted)
{
	CLEANUP(buf_done) struct buf all = {0};
	struct jobsfile f;

	jobsfile_parse(text, n, known, &f);
	for (size_t i = 0; i < f.n_errors; i++)
		buf_printf(&all, "%s%" PRIu32 ": %s", i ? "\n" : "", f.errors[i].lineno,
			f.errors[i].text);
	assert_string_equal(buf_str(&all), wanted);
	jobsfile_done(&f);
}

static void assert_errors(const char *text, const char *wanted)
{
	assert_errors_known(text, strlen(text), 0, wanted);
}

static void test_p1_plain_command(void **state)
{
	GOOD("python train.py --lr 1e-4\n");
	assert_string_equal(l.command, "python train.py --lr 1e-4");
	assert_int_equal(l.vram_mib, -1);
	assert_int_equal(l.gpus, 1);
	assert_int_equal(l.retries, -1);
	assert_int_equal(l.lineno, 1);
	assert_null(l.name);
	assert_false(f.last_line_is_open);
}

static void test_p2_blank_and_comment(void **state)
{
	CLEANUP(jobsfile_done)
	struct jobsfile f = parse("   \t \n# a comment\n   # another\n\xc2\xa0\n\n");
	assert_int_equal(f.n, 0);
	assert_int_equal(f.n_errors, 0);
}

static void test_p3_p4_sizes(void **state)
{
	static const struct {
		const char *text;
		int64_t mib;
	} rows[] = {{"12000", 12000}, {"22G", 22528}, {"22GiB", 22528}, {"1.5g", 1536},
		{"8000MiB", 8000}, {"12.5G", 12800}, {"0.6", 1}, {"1.5", 2}, {"2.5", 2}, {"3.5", 4},
		{"7gb", 7168}, {"7MB", 7}};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char text[64];
		snprintf(text, sizeof(text), "[vram=%s] python x.py", rows[i].text);
		GOOD(text);
		assert_int_equal(l.vram_mib, rows[i].mib);
		assert_string_equal(l.command, "python x.py");
	}
}

static void test_p5_several_attributes_on_line_seven(void **state)
{
	CLEANUP(jobsfile_done)
	struct jobsfile f = parse("a\n\n# x\nb\n\n\n[vram=30G gpus=2] torchrun train.py\n");
	assert_int_equal(f.n, 3);
	assert_int_equal(f.lines[2].vram_mib, 30720);
	assert_int_equal(f.lines[2].gpus, 2);
	assert_int_equal(f.lines[2].lineno, 7);
	assert_string_equal(f.lines[2].command, "torchrun train.py");
}

static void test_p6_brackets_in_the_command(void **state)
{
	GOOD("python x.py --tags '[a,b]'");
	assert_int_equal(l.vram_mib, -1);
	assert_string_equal(l.command, "python x.py --tags '[a,b]'");
}

static void test_a_second_block_is_the_command(void **state)
{
	GOOD("[vram=1G] [gpus=1] x");
	assert_string_equal(l.command, "[gpus=1] x");
	assert_int_equal(l.vram_mib, 1024);
}

static void test_p8_durations(void **state)
{
	static const struct {
		const char *text;
		int64_t ms;
	} rows[] = {{"90", 90000}, {"90s", 90000}, {"15m", 900000}, {"2h", 7200000},
		{"1.5h", 5400000}, {"1d", 86400000}, {"0.4s", 400}, {"15M", 900000}};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char text[64];
		snprintf(text, sizeof(text), "[timeout=%s] x", rows[i].text);
		GOOD(text);
		assert_int_equal(l.timeout_ms, rows[i].ms);
	}
}

static void test_p10_and_ours(void **state)
{
	struct jobsfile f;
	const char *text =
		"[name=other] y\n[VRAM=8G\ttimeout=2h retries=2 name=warm-up.1 after=3,other gpu=0,GPU-8f2a-1 Cancel]x";

	jobsfile_parse(text, strlen(text), 3, &f);
	assert_int_equal(f.n_errors, 0);
	assert_int_equal(f.n, 2);
	assert_int_equal(f.lines[1].vram_mib, 8192);
	assert_int_equal(f.lines[1].timeout_ms, 7200000);
	assert_int_equal(f.lines[1].retries, 2);
	assert_string_equal(f.lines[1].name, "warm-up.1");
	assert_string_equal(f.lines[1].after, "3,other");
	assert_string_equal(f.lines[1].gpu, "0,GPU-8f2a-1");
	assert_true(f.lines[1].cancel);
	assert_string_equal(f.lines[1].command, "x");
	assert_true(f.last_line_is_open);
	jobsfile_done(&f);
}

static void test_p11_cancel_leaves_the_key(void **state)
{
	CLEANUP(jobsfile_done) struct jobsfile a = parse("[vram=1G cancel] python x.py\n");
	CLEANUP(jobsfile_done) struct jobsfile b = parse("[vram=1G]python x.py\n");
	assert_true(a.lines[0].cancel);
	assert_false(b.lines[0].cancel);
	assert_string_equal(a.lines[0].key, b.lines[0].key);
}

static void test_p13_defaults_with_an_empty_block(void **state)
{
	GOOD("[ ] x");
	assert_int_equal(l.timeout_ms, 0);
	assert_int_equal(l.gpus, 1);
	assert_string_equal(l.command, "x");
}

static void test_last_one_wins_and_python_integers(void **state)
{
	GOOD("[gpus=1_0 gpus=+2 retries=007 vram=1 vram=2] x");
	assert_int_equal(l.gpus, 2);
	assert_int_equal(l.retries, 7);
	assert_int_equal(l.vram_mib, 2);
}

static void test_a_cpu_job(void **state)
{
	GOOD("[gpus=0] x");
	assert_int_equal(l.gpus, 0);
}

static void test_p7_p9_p12_every_error_of_the_specification(void **state)
{
	static const char *const rows[][2] = {
		{"[vram=1G x", "1: unterminated '[...]' attribute block"},
		{"[vram=1G]  ", "1: attribute block present but command is empty"},
		{"[kancel] x",
			"1: malformed attribute 'kancel' (expected key=value, or bare 'cancel')"},
		{"[vram=8 G] x",
			"1: malformed attribute 'G' (expected key=value, or bare 'cancel')"},
		{"[vram=abc] x", "1: cannot parse vram value 'abc' (use MiB or a G/GiB suffix)"},
		{"[vram=-5] x", "1: cannot parse vram value '-5' (use MiB or a G/GiB suffix)"},
		{"[vram=] x", "1: cannot parse vram value '' (use MiB or a G/GiB suffix)"},
		{"[vram=8G, gpus=2] x",
			"1: cannot parse vram value '8G,' (use MiB or a G/GiB suffix)"},
		{"[vram=0.5] x", "1: vram must be positive, got '0.5'"},
		{"[vram=0.0004G] x", "1: vram must be positive, got '0.0004G'"},
		{"[timeout=soon] x", "1: cannot parse duration 'soon' (use s/m/h/d)"},
		{"[timeout=0] x", "1: timeout must be positive, got '0'"},
		{"[retries=x] x", "1: retries must be an integer, got 'x'"},
		{"[retries=-1] x", "1: retries must be >= 0, got -1"},
		{"[gpus=1.0] x", "1: gpus must be an integer, got '1.0'"},
		{"[gpus=-1] x", "1: gpus must be >= 0, got -1"},
		{"[Foo=1] x",
			"1: unknown attribute 'foo' (known: vram, gpus, timeout, retries, cancel, name, after, gpu)"},
		{"[cancel=1] x",
			"1: unknown attribute 'cancel' (known: vram, gpus, timeout, retries, cancel, name, after, gpu)"},
		{"[vram=a'b] x", "1: cannot parse vram value \"a'b\" (use MiB or a G/GiB suffix)"},
		{"[ -f x ] && y",
			"1: malformed attribute '-f' (expected key=value, or bare 'cancel')\n"
			"1: malformed attribute 'x' (expected key=value, or bare 'cancel')"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_errors(rows[i][0], rows[i][1]);
}

static void test_our_own_errors(void **state)
{
	static const char *const rows[][2] = {
		{"[vram=99999999999999999] x",
			"1: vram is larger than any GPU, got '99999999999999999'"},
		{"[timeout=9999999999999d] x", "1: timeout is too long, got '9999999999999d'"},
		{"[gpus=100001] x", "1: gpus must be at most 100000, got 100001"},
		{"[gpus=99999999999999999999] x",
			"1: gpus must be at most 100000, got 99999999999999999999"},
		{"[name=a/b] x", "1: name takes letters, digits, '_', '-' and '.', got 'a/b'"},
		{"[name=] x", "1: name takes letters, digits, '_', '-' and '.', got ''"},
		{"[name=12] x",
			"1: name must not be a number alone, got '12' (after= would take it for a job's number)"},
		{"[after=a,,b] x", "1: after must list names or job numbers, got 'a,,b'"},
		{"[gpu=x] x", "1: gpu must list indices or UUIDs, got 'x'"},
		{"[gpu=0,] x", "1: gpu must list indices or UUIDs, got '0,'"},
		{"[name=a] x\n[name=a] y", "2: name 'a' is taken by line 1 already"},
		{"[after=b] x", "1: after wants 'b', but no line has name=b"},
		{"[after=4] x",
			"1: after wants job 4, but there's no job of that number yet; give its line a name= and use that"},
		{"[name=a after=b] x\n[name=b after=a] y\n[after=b] z\nfree",
			"1: after='b' leads round in a circle: the job would wait for ever\n"
			"2: after='a' leads round in a circle: the job would wait for ever\n"
			"3: after='b' leads round in a circle: the job would wait for ever"},
		{"[name=a after=a] x",
			"1: after='a' leads round in a circle: the job would wait for ever"},
		{"x\n\xff\xfe y",
			"2: byte 1 of the line (0xff) is not UTF-8; save the file as UTF-8"},
		{"echo \xc3(", "1: byte 6 of the line (0xc3) is not UTF-8; save the file as UTF-8"},
		{"x\n\xef\xbb\xbf[vram=1G] y",
			"2: the line begins with a byte-order mark (U+FEFF); remove it"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_errors(rows[i][0], rows[i][1]);
	assert_errors_known(
		"a\0b", 3, 0, "1: byte 2 of the line is a NUL; remove it, no command can hold one");
	assert_errors_known("a line that is long\na second \0 one that is long\n", 46, 0,
		"2: byte 10 of the line is a NUL; remove it, no command can hold one");
	assert_errors_known("[after=4] x", 11, 4, "");
}

static void test_a_broken_line_keeps_its_name(void **state)
{
	/* Only the real fault is told, not that nobody has the name. */
	assert_errors("[name=a vram=x] y\n[after=a] z",
		"1: cannot parse vram value 'x' (use MiB or a G/GiB suffix)");
}

static void test_all_errors_with_their_lines(void **state)
{
	CLEANUP(jobsfile_done)
	struct jobsfile f = parse("ok\r\n[vram=0] a\r[gpus=x retries=-2] b\n\n[x=1] c\ngood\n");
	assert_int_equal(f.n, 2);
	assert_string_equal(f.lines[1].command, "good");
	assert_int_equal(f.n_errors, 4);
	assert_int_equal(f.errors[0].lineno, 2);
	assert_int_equal(f.errors[1].lineno, 3);
	assert_string_equal(f.errors[1].text, "gpus must be an integer, got 'x'");
	assert_int_equal(f.errors[2].lineno, 3);
	assert_int_equal(f.errors[3].lineno, 5);
}

static void test_errors_have_an_end(void **state)
{
	CLEANUP(buf_done) struct buf text = {0};
	struct jobsfile f;

	for (int i = 0; i < 20000; i++)
		buf_puts(&text, "[\n");
	jobsfile_parse(text.data, text.len, 0, &f);
	assert_int_equal(f.n_errors, 10001);
	assert_string_equal(
		f.errors[10000].text, "and more errors from here on; the first 10000 are listed");
	jobsfile_done(&f);
}

static void test_a_command_that_is_too_long(void **state)
{
	CLEANUP(buf_done) struct buf text = {0};
	struct jobsfile f;

	for (int i = 0; i < JOBSFILE_COMMAND_MAX; i++)
		buf_putc(&text, 'x');
	jobsfile_parse(text.data, text.len, 0, &f);
	assert_int_equal(f.n, 1);
	jobsfile_done(&f);
	buf_putc(&text, 'x');
	jobsfile_parse(text.data, text.len, 0, &f);
	assert_int_equal(f.n, 0);
	assert_string_equal(f.errors[0].text,
		"the command has 524289 bytes and may have 524288 at most; put it into a script and run that");
	jobsfile_done(&f);
}

static void test_line_ends_and_white_space(void **state)
{
	CLEANUP(jobsfile_done)
	struct jobsfile f =
		parse("\xef\xbb\xbf"
		      "[vram=1] a\r\nb\rc\n\xc2\xa0 d \xe3\x80\x80\n[vram=2\xc2\xa0gpus=2]e");
	assert_int_equal(f.n_errors, 0);
	assert_int_equal(f.n, 5);
	assert_int_equal(f.lines[0].vram_mib, 1);
	assert_string_equal(f.lines[1].command, "b");
	assert_int_equal(f.lines[2].lineno, 3);
	assert_string_equal(f.lines[3].command, "d");
	assert_int_equal(f.lines[4].gpus, 2);
	assert_string_equal(f.lines[4].command, "e");
}

static void test_whether_the_last_line_is_open(void **state)
{
	static const struct {
		const char *text;
		bool is_open;
	} rows[] = {{"", false}, {"a\n", false}, {"a", true}, {"a\nb", true}, {"a\n# b", false},
		{"a\r", false}, {"a\n  ", false}};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		CLEANUP(jobsfile_done) struct jobsfile f = parse(rows[i].text);
		assert_int_equal(f.last_line_is_open, rows[i].is_open);
	}
}

static void test_key_vectors(void **state)
{
	static const char *const rows[][2] = {{"true", "5ffe533b830f#0"},
		{"python train.py --config a.yaml", "87530a8a8af9#0"},
		{"echo \"\xc3\xa9\"", "28d219932dae#0"}, {"a\tb", "89df1bfd2d73#0"}};
	char key[JOB_KEY_LEN];

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		CLEANUP(jobsfile_done) struct jobsfile f = parse(rows[i][0]);
		assert_string_equal(f.lines[0].key, rows[i][1]);
		job_key(rows[i][0], strlen(rows[i][0]), 0, key);
		assert_string_equal(key, rows[i][1]);
	}
	CLEANUP(jobsfile_done) struct jobsfile f = parse("true\nfalse\n[vram=1G] true\n  true  \n");
	assert_string_equal(f.lines[0].key, "5ffe533b830f#0");
	assert_string_equal(f.lines[2].key, "5ffe533b830f#1");
	assert_string_equal(f.lines[3].key, "5ffe533b830f#2");
}

static void test_a_hundred_thousand_lines(void **state)
{
	CLEANUP(buf_done) struct buf text = {0};
	struct jobsfile f;
	struct timespec a, b;

	for (int i = 0; i < 100000; i++)
		buf_printf(&text,
			"[vram=%dG gpus=1 timeout=2h] python train.py --lr 1e-%d --seed %d\n",
			1 + i % 40, i % 7, i / 2);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
	jobsfile_parse(text.data, text.len, 0, &f);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
	print_message("# 100,000 lines: %.1f ms\n",
		(double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) / 1e6);
	assert_int_equal(f.n, 100000);
	jobsfile_done(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_p1_plain_command),
		cmocka_unit_test(test_p2_blank_and_comment),
		cmocka_unit_test(test_p3_p4_sizes),
		cmocka_unit_test(test_p5_several_attributes_on_line_seven),
		cmocka_unit_test(test_p6_brackets_in_the_command),
		cmocka_unit_test(test_a_second_block_is_the_command),
		cmocka_unit_test(test_p8_durations),
		cmocka_unit_test(test_p10_and_ours),
		cmocka_unit_test(test_p11_cancel_leaves_the_key),
		cmocka_unit_test(test_p13_defaults_with_an_empty_block),
		cmocka_unit_test(test_last_one_wins_and_python_integers),
		cmocka_unit_test(test_a_cpu_job),
		cmocka_unit_test(test_p7_p9_p12_every_error_of_the_specification),
		cmocka_unit_test(test_our_own_errors),
		cmocka_unit_test(test_a_broken_line_keeps_its_name),
		cmocka_unit_test(test_all_errors_with_their_lines),
		cmocka_unit_test(test_errors_have_an_end),
		cmocka_unit_test(test_a_command_that_is_too_long),
		cmocka_unit_test(test_line_ends_and_white_space),
		cmocka_unit_test(test_whether_the_last_line_is_open),
		cmocka_unit_test(test_key_vectors),
		cmocka_unit_test(test_a_hundred_thousand_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
