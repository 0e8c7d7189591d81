/* What a terminal gets of a log, and what a document does: job_logs.h, queue_json.h. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "base/cleanup.h"
#include "cli/job_logs.h"

#define FFFD "\xef\xbf\xbd"

static void assert_clean(const char *in, size_t n, bool colors, const char *want)
{
	CLEANUP(buf_done) struct buf out = {0};

	job_logs_put_clean(in, n, colors, &out);
	assert_string_equal(buf_str(&out), want);
}
#define CLEAN(in, want) assert_clean(in, sizeof(in) - 1, true, want)
#define PLAIN(in, want) assert_clean(in, sizeof(in) - 1, false, want)

static void text_stays_as_it_is(void **state)
{
	(void)state;
	CLEAN("", "");
	CLEAN("one\ntwo\n", "one\ntwo\n");
	CLEAN("no end", "no end");
	CLEAN("\n\n", "\n\n");
	CLEAN("a\tb\t\n\t", "a\tb\t\n\t");
	CLEAN("gr\xc3\xbc\xc3\x9f"
	      "e \xe6\x97\xa5\n",
		"gr\xc3\xbc\xc3\x9f"
		"e \xe6\x97\xa5\n");
}

static void colors_stay_and_end_with_their_line(void **state)
{
	(void)state;
	CLEAN("\x1b[31mred\x1b[0m\n", "\x1b[31mred\x1b[0m\x1b[0m\n");
	CLEAN("\x1b[1;38;5;208mx\nplain\n", "\x1b[1;38;5;208mx\x1b[0m\nplain\n");
	CLEAN("\x1b[mx", "\x1b[mx\x1b[0m");
	PLAIN("\x1b[31mred\x1b[0m\n", "red\n");
}

static void other_sequences_are_taken_out_whole(void **state)
{
	(void)state;
	CLEAN("\x1b[2Jx\x1b[10;20Hy\x1b[?25lz\n", "xyz\n");
	CLEAN("\x1b]0;title\ax\n", "x\n");
	CLEAN("\x1b]8;;http://e.com\x1b\\link\x1b]8;;\x1b\\\n", "link\n");
	CLEAN("\x1bPq1\x1b\\x\x1b_a\x1b\\y\x1b^b\x1b\\z\n", "xyz\n");
	CLEAN("\x1b"
	      "cx\n",
		"x\n");
	/* One that never ends takes its line, and no more. */
	CLEAN("\x1b]0;title\nx\n", "\nx\n");
	CLEAN("a\x1b[31\nb\n", "a\nb\n");
	CLEAN("a\x1b", "a");
	CLEAN("a\x1b[", "a");
	/* What only begins as a colour. */
	CLEAN("\x1b[31;1Kx\n", "x\n");
	CLEAN("\x1b[>1mx\n", "x\n");
	CLEAN("\x1b[1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1mx\n", "x\n");
}

static void control_bytes_have_no_power(void **state)
{
	(void)state;
	CLEAN("a\ab\bc\x7f"
	      "d\0e\n",
		"a" FFFD "b" FFFD "c" FFFD "d" FFFD "e\n");
	CLEAN("\xc2\x9b"
	      "31mx\n",
		FFFD "31mx\n");
	CLEAN("\xff\xfe\n", FFFD FFFD "\n");
	CLEAN("a\xe2\x80\xae"
	      "b\n",
		"a" FFFD "b\n");
}

static void a_line_that_was_written_over_is_as_it_ended(void **state)
{
	(void)state;
	CLEAN("10%\r50%\r100%\n", "100%\n");
	CLEAN("10%\r50%\r", "50%");
	CLEAN("dos\r\nlines\r\n", "dos\nlines\n");
	CLEAN("10%\r\r\r\n", "10%\n");
	CLEAN("\r\n", "\n");
	CLEAN("\rx\n", "x\n");
	CLEAN("a\r\x1b[32mb\n", "\x1b[32mb\x1b[0m\n");
}

static void documents_hold_any_bytes(void **state)
{
	json_t *s;

	(void)state;
	s = job_logs_json("a\xff"
			  "b\0c\n\x1b",
		7);
	assert_string_equal(json_string_value(s), "a" FFFD "b");
	assert_int_equal(json_string_length(s), 3 + 2 + 4);
	json_decref(s);
	s = job_logs_json("", 0);
	assert_string_equal(json_string_value(s), "");
	json_decref(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_stays_as_it_is),
		cmocka_unit_test(colors_stay_and_end_with_their_line),
		cmocka_unit_test(other_sequences_are_taken_out_whole),
		cmocka_unit_test(control_bytes_have_no_power),
		cmocka_unit_test(a_line_that_was_written_over_is_as_it_ended),
		cmocka_unit_test(documents_hold_any_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
