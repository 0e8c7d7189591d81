/* The screens' widgets: cells and their widths, bytes to keys and mouse reports, columns, bars, edited lines. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "tui/bar.h"
#include "tui/columns.h"
#include "tui/input.h"
#include "tui/pane.h"
#include "tui/theme.h"

/* ---- cells ---- */

static void assert_line(struct grid *g, const char *want)
{
	CLEANUP(buf_done) struct buf b = {0};

	grid_text(g, &b);
	assert_string_equal(buf_str(&b), want);
}

static void test_text_is_cleaned_cut_and_counted(void **state)
{
	static const struct {
		const char *text, *want;
	} cases[] = {
		{"0123456789", "0123456789\n"},
		{"01234567890", "01234567..\n"},
		{"\xe6\xb7\xb1\xe5\xb1\xa4\xe6\xb7\xb1\xe5\xb1\xa4\xe6\xb7\xb1",
			"\xe6\xb7\xb1\xe5\xb1\xa4\xe6\xb7\xb1\xe5\xb1\xa4\xe6\xb7\xb1\n"},
		{"x\xe6\xb7\xb1\xe5\xb1\xa4\xe6\xb7\xb1\xe5\xb1\xa4\xe6\xb7\xb1",
			"x\xe6\xb7\xb1\xe5\xb1\xa4\xe6\xb7\xb1..\n"},
		{"a\x1b[2Jb", "a\xef\xbf\xbd[2Jb\n"},
		{"a\xff\xc3", "a\xef\xbf\xbd\xef\xbf\xbd\n"},
		{"a\xc2\x9b"
		 "b",
			"a\xef\xbf\xbd"
			"b\n"},
		{"a\xe2\x80\xae"
		 "b",
			"a\xef\xbf\xbd"
			"b\n"},
		{"e\xcc\x81x", "e\xcc\x81x\n"},
		{"\xcc\x81", "\n"},
		{"", "\n"},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct grid g;
		struct pen p;

		grid_init(&g);
		grid_resize(&g, 10, 1);
		p = pen_at(&g, 0, 0, 10);
		pen_put(&p, STYLE(INK_PLAIN), cases[i].text);
		assert_line(&g, cases[i].want);
		grid_done(&g);
	}
}

static void test_marks_are_bounded(void **state)
{
	struct grid g;
	struct pen p;
	CLEANUP(buf_done) struct buf text = {0};

	buf_putc(&text, 'e');
	for (int i = 0; i < 50; i++)
		buf_puts(&text, "\xcc\x81");
	grid_init(&g);
	grid_resize(&g, 4, 1);
	p = pen_at(&g, 0, 0, 4);
	pen_put(&p, STYLE(INK_PLAIN), buf_str(&text));
	assert_true(strlen(grid_at(&g, 0, 0)->text) < CELL_TEXT);
	grid_done(&g);
}

static void test_half_a_wide_character_is_none(void **state)
{
	struct grid g;
	struct pen p;

	grid_init(&g);
	grid_resize(&g, 4, 1);
	p = pen_at(&g, 0, 0, 4);
	pen_put(&p, STYLE(INK_PLAIN), "\xe6\xb7\xb1\xe5\xb1\xa4");
	p = pen_at(&g, 1, 0, 1);
	pen_put(&p, STYLE(INK_PLAIN), "x");
	assert_line(&g, " x\xe5\xb1\xa4\n");
	p = pen_at(&g, 2, 0, 1);
	pen_put(&p, STYLE(INK_PLAIN), "y");
	assert_line(&g, " xy\n");
	grid_done(&g);
}

static void test_a_figure_is_there_whole_or_not_at_all(void **state)
{
	struct grid g;
	struct pen p, before;

	grid_init(&g);
	grid_resize(&g, 12, 1);
	p = pen_at(&g, 0, 0, 12);
	pen_put(&p, STYLE(INK_PLAIN), "util ");
	before = p;
	pen_put(&p, STYLE(INK_PLAIN), "12%  ");
	pen_whole(&p, &before);
	before = p;
	pen_put(&p, STYLE(INK_DIM), "CPU ");
	pen_put(&p, STYLE(INK_PLAIN), "34%");
	pen_whole(&p, &before);
	assert_line(&g, "util 12%\n");
	/* Nor is there anything behind it. */
	pen_put(&p, STYLE(INK_PLAIN), "x");
	assert_line(&g, "util 12%\n");
	/* A gap is given up for the second dot, a letter isn't. */
	grid_clear(&g);
	p = pen_at(&g, 2, 0, 6);
	pen_put(&p, STYLE(INK_PLAIN), "abc  ");
	pen_put(&p, STYLE(INK_PLAIN), "def");
	assert_line(&g, "  abc ..\n");
	grid_clear(&g);
	p = pen_at(&g, 2, 0, 4);
	pen_put(&p, STYLE(INK_PLAIN), "abc");
	pen_put(&p, STYLE(INK_PLAIN), "def");
	assert_line(&g, "  abc.\n");
	grid_done(&g);
}

static void test_ascii_terminals_get_ascii(void **state)
{
	struct grid g = {.ascii = true};
	struct pen p;

	grid_resize(&g, 12, 1);
	p = pen_at(&g, 0, 0, 12);
	pen_put(&p, STYLE(INK_PLAIN),
		"\xe6\xb7\xb1"
		"e\xcc\x81");
	pen_either(&p, STYLE(INK_PLAIN), "\xe2\x96\xbe", "v");
	bar_put(&p, 4, 500, STYLE(INK_PLAIN));
	assert_line(&g, "?ev##..\n");
	grid_done(&g);
}

static void test_wrapping(void **state)
{
	struct grid g;
	CLEANUP(buf_done) struct buf b = {0};

	grid_init(&g);
	grid_resize(&g, 10, 3);
	assert_int_equal(grid_wrap(&g, rect_of(0, 0, 10, 3), STYLE(INK_PLAIN),
				 "one two three four-and-a-long-word", 0),
		4);
	grid_text(&g, &b);
	assert_string_equal(buf_str(&b), "one two\nthree\nfour-and-a\n");
	assert_int_equal(grid_wrap(&g, rect_of(0, 0, 0, 0), STYLE(INK_PLAIN), "abc", 0), 3);
	grid_done(&g);
}

/* ---- input ---- */

/* Events as text: "j Up click3,4 wheel+1". */
static void feed(struct input *in, const char *bytes, size_t n, struct buf *out)
{
	for (size_t i = 0; i < n; i++) {
		struct input_event ev;
		char name[16];

		if (!input_byte(in, bytes[i], &ev))
			continue;
		if (ev.kind == EVENT_CLICK) {
			buf_printf(out, "click%d,%d ", ev.x, ev.y);
		} else if (ev.kind == EVENT_WHEEL) {
			buf_printf(out, "wheel%+d@%d,%d ", ev.wheel, ev.x, ev.y);
		} else {
			input_key_name(ev.key, name);
			buf_printf(out, "%s%s ", ev.is_pasted ? "pasted:" : "", name);
		}
	}
}

static const struct {
	const char *bytes, *want;
} inputs[] = {
	{"jk", "j k "},
	{"\r\n\t\x7f\x08", "Enter Enter Tab Backspace Backspace "},
	{"\033[A\033OB\033[5~\033[6~\033[H\033[4~", "Up Down PgUp PgDn Home End "},
	{"\033OP\033[17~\033[18~\033[19~\033[20~\033[[E", "F1 F6 F7 F8 F9 F5 "},
	{"\033[1;5C\033[5;2~", "Right PgUp "},
	{"\033[Z", "Shift-Tab "},
	{"\033[<0;11;3M\033[<0;11;3m", "click10,2 "},
	{"\033[<64;5;6M\033[<65;300;100M", "wheel-1@4,5 wheel+1@299,99 "},
	{"\033[<4;1;1M\033[<1;1;1M\033[<2;1;1M\033[<35;1;1M", "click0,0 "},
	{"\033[<0;0;3M\033[<0;1M\033[<?M", ""},
	{"\033[?1;2c\033[>0;1c", ""},
	{"\033[999999999999999999999999999999999999999mq", "q "},
	{"\033\033[A", "Esc Up "},
	{"\033[200~qK\r\033[Ax\033[201~q", "pasted:q pasted:K pasted:x q "},
	{"\xe6\xb7\xb1\xff\xc3(q", "? q "},
};

static void test_bytes_to_events(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(inputs); i++) {
		struct input in = {0};
		CLEANUP(buf_done) struct buf b = {0};

		feed(&in, inputs[i].bytes, strlen(inputs[i].bytes), &b);
		assert_string_equal(buf_str(&b), inputs[i].want);
	}
}

static void test_a_lone_esc_is_a_key_once_nothing_follows(void **state)
{
	struct input in = {0};
	struct input_event ev = {0};

	assert_false(input_byte(&in, 27, &ev));
	assert_true(input_is_waiting(&in));
	assert_true(input_idle(&in, &ev));
	assert_int_equal(ev.key, KEY_ESC);
	assert_false(input_idle(&in, &ev));
	/* A report in two pieces with a pause between is still one. */
	for (const char *s = "\033[<0;1"; *s; s++)
		assert_false(input_byte(&in, *s, &ev));
	assert_false(input_idle(&in, &ev));
	for (const char *s = "1;3"; *s; s++)
		assert_false(input_byte(&in, *s, &ev));
	assert_true(input_byte(&in, 'M', &ev));
	assert_int_equal(ev.kind, EVENT_CLICK);
	assert_int_equal(ev.x, 10);
}

static void test_learned_keys(void **state)
{
	struct input in = {0};
	CLEANUP(buf_done) struct buf b = {0};

	input_learn(&in, "\033[25~", KEY_FN + 6);
	input_learn(&in, "", KEY_FN + 7);
	feed(&in, "\033[25~", 5, &b);
	assert_string_equal(buf_str(&b), "F6 ");
}

static void test_any_bytes_at_all(void **state)
{
	struct input in = {0};
	struct input_event ev;
	unsigned seed = 12345;

	for (int i = 0; i < 200000; i++) {
		seed = seed * 1103515245 + 12345;
		(void)input_byte(&in, seed >> 16 & 7 ? (char)(seed >> 20) : 27, &ev);
		assert_true(in.n < INPUT_SEQ_MAX);
	}
}

/* ---- columns ---- */

static const struct column three[] = {
	{"A", .min = 4}, {"B", .min = 6, .drop = 2}, {"C", .min = 10, .drop = 1, .want = 20}};

static void assert_widths(int w, bool compact, int a, int b, int c)
{
	struct columns k;

	columns_fit(&k, three, 3, NULL, 0, w, 1, compact);
	if (k.w[0] != a || k.w[1] != b || k.w[2] != c)
		fail_msg("width %d: %d %d %d, not %d %d %d", w, k.w[0], k.w[1], k.w[2], a, b, c);
}

static void test_columns_leave_in_order_and_share_the_rest(void **state)
{
	assert_widths(32, true, 4, 6, 20);
	assert_widths(40, true, 4, 6, 20);
	assert_widths(35, false, 5, 7, 21);
	assert_widths(25, true, 4, 6, 13);
	assert_widths(22, true, 4, 6, 10);
	assert_widths(21, true, 4, 6, 0);
	assert_widths(11, true, 4, 6, 0);
	assert_widths(10, true, 4, 0, 0);
	assert_widths(3, true, 3, 0, 0);
	assert_widths(0, true, 0, 0, 0);
}

static void test_columns_of_any_width(void **state)
{
	for (int w = -3; w < 300; w++) {
		struct columns k;
		int sum = 0, n = 0;

		columns_fit(&k, three, 3, NULL, 2, w, 1, w % 2);
		for (int i = 0; i < 3; i++) {
			sum += k.w[i];
			n += k.w[i] > 0;
			assert_true(k.w[i] >= 0);
		}
		assert_true(sum + (n ? n - 1 : 0) <= (w > 0 ? w : 0));
	}
}

/* ---- bars ---- */

static void test_bars(void **state)
{
	static const struct {
		int64_t permille;
		const char *want;
	} cases[] = {{0, "\n"}, {1, "\xe2\x96\x8f\n"}, {500, "\xe2\x96\x88\xe2\x96\x88\n"},
		{1000, "\xe2\x96\x88\xe2\x96\x88\xe2\x96\x88\xe2\x96\x88\n"},
		{5000, "\xe2\x96\x88\xe2\x96\x88\xe2\x96\x88\xe2\x96\x88\n"}, {-5, "\n"}};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct grid g;
		struct pen p;

		grid_init(&g);
		grid_resize(&g, 6, 1);
		p = pen_at(&g, 0, 0, 6);
		bar_put(&p, 4, cases[i].permille, STYLE(INK_PLAIN));
		assert_int_equal(p.x, 4);
		assert_line(&g, cases[i].want);
		grid_done(&g);
	}
}

static void test_parts_of_a_bar_fill_it_and_no_more(void **state)
{
	unsigned seed = 7;

	for (int i = 0; i < 2000; i++) {
		struct bar_part parts[3];
		struct grid g;
		struct pen p;
		int cells;

		for (int k = 0; k < 3; k++) {
			seed = seed * 1103515245 + 12345;
			parts[k] = (struct bar_part){seed >> 8 & 0xFFFF, STYLE(INK_OURS)};
		}
		cells = (int)(seed >> 16 & 15);
		grid_init(&g);
		grid_resize(&g, 20, 1);
		p = pen_at(&g, 0, 0, 20);
		bar_parts(&p, cells, parts, 3, seed >> 4 & 0x1FFFF);
		assert_int_equal(p.x, cells);
		grid_done(&g);
	}
}

static void test_graphs_have_gaps_and_never_leave_their_place(void **state)
{
	int32_t v[60];
	struct grid g;
	struct pen p;

	for (int i = 0; i < 60; i++)
		v[i] = i % 7 ? i * 3 - 20 : GRAPH_GAP;
	grid_init(&g);
	grid_resize(&g, 8, 1);
	p = pen_at(&g, 0, 0, 8);
	graph_spark(&p, 6, (int32_t[]){0, GRAPH_GAP, 100, 50}, 4, 0, 100, STYLE(INK_PLAIN));
	assert_line(&g, "..\xe2\x96\x81.\xe2\x96\x88\xe2\x96\x85\n");
	for (int w = 0; w < 8; w++)
		for (int h = 0; h < 4; h++) {
			grid_resize(&g, 10, 6);
			graph_put(&g, rect_of(1, 1, w, h), v, 60, 0, 100, STYLE(INK_PLAIN));
			for (int y = 0; y < 6; y++)
				for (int x = 0; x < 10; x++)
					if (!rect_has(rect_of(1, 1, w, h), x, y))
						assert_string_equal(grid_at(&g, x, y)->text, "");
		}
	grid_done(&g);
}

/* ---- lists, lines, themes ---- */

static void test_list_windows(void **state)
{
	for (int n = 0; n < 12; n++)
		for (int room = 0; room < 6; room++)
			for (int sel = 0; sel < (n ? n : 1); sel++)
				for (int first = -2; first < 14; first++) {
					int f = list_window(first, sel, n, room);

					assert_true(f >= 0 && f <= (n ? n - 1 : 0));
					if (n && room)
						assert_true(sel >= f && sel < f + room);
				}
	assert_int_equal(list_move(3, 5, 6), 5);
	assert_int_equal(list_move(3, -5, 6), 0);
	assert_int_equal(list_move(3, 1, 0), 0);
}

static void test_a_line_is_edited(void **state)
{
	struct edit e = {.limit = 5};

	assert_int_equal(edit_key(&e, 'a'), EDIT_CHANGED);
	assert_int_equal(edit_key(&e, 0x6DF1), EDIT_CHANGED);
	assert_int_equal(edit_key(&e, 0x6DF1), EDIT_NOTHING);
	assert_string_equal(e.text, "a\xe6\xb7\xb1");
	assert_int_equal(edit_key(&e, KEY_ERASE), EDIT_CHANGED);
	assert_string_equal(e.text, "a");
	assert_int_equal(edit_key(&e, KEY_ARROW_UP), EDIT_NOTHING);
	assert_int_equal(edit_key(&e, KEY_CTRL_U), EDIT_CHANGED);
	assert_int_equal(edit_key(&e, KEY_ERASE), EDIT_NOTHING);
	assert_int_equal(edit_key(&e, KEY_RETURN), EDIT_DONE);
	assert_int_equal(edit_key(&e, KEY_CTRL_C), EDIT_CANCELLED);
}

static void test_a_secret_is_never_drawn(void **state)
{
	struct edit e = {.is_secret = true};
	struct frame f;
	CLEANUP(buf_done) struct buf b = {0};

	for (const char *s = "hunter2"; *s; s++)
		edit_key(&e, (uint32_t)*s);
	frame_init(&f);
	frame_begin(&f, 20, 1);
	edit_draw(&f, rect_of(0, 0, 20, 1), "> ", &e);
	grid_text(&f.grid, &b);
	assert_string_equal(buf_str(&b), "> *******\n");
	assert_int_equal(f.cursor_x, 9);
	frame_done(&f);
}

static void test_themes(void **state)
{
	assert_string_equal(themes[0].name, "muted");
	assert_non_null(theme_find("classic"));
	assert_null(theme_find("pink"));
	/* The colour-blind-safe one: no two states share a colour. */
	for (int a = INK_FOCUS; a <= INK_BAD; a++)
		for (int b = a + 1; b <= INK_BAD; b++)
			assert_int_not_equal(themes[0].ink[a], themes[0].ink[b]);
}

/* ---- colours that can be read ---- */

/* One of the 256 as xterm has it. */
static void rgb_of(int colour, int ret[3])
{
	if (colour >= 232) {
		ret[0] = ret[1] = ret[2] = 8 + (colour - 232) * 10;
		return;
	}
	colour -= 16;
	for (int i = 2; i >= 0; i--, colour /= 6)
		ret[i] = colour % 6 ? 55 + colour % 6 * 40 : 0;
}

static double luminance(int colour)
{
	static const double share[] = {0.2126, 0.7152, 0.0722};
	double sum = 0;
	int rgb[3];

	rgb_of(colour, rgb);
	for (int i = 0; i < 3; i++) {
		double c = rgb[i] / 255.0;

		/* WCAG 2's curve, with 2 for its exponent of 2.4, which is near enough without a library of mathematics. */
		sum += share[i] * (c <= 0.03928 ? c / 12.92 : c * c);
	}
	return sum;
}

static double contrast(int a, int b)
{
	double x = luminance(a) + 0.05, y = luminance(b) + 0.05;

	return x > y ? x / y : y / x;
}

/* Black, 16, and white, 231, of the cube. */
static void test_every_ink_can_be_read_on_every_paper(void **state)
{
	for (size_t i = 0; i < themes_n; i++) {
		const struct theme *t = &themes[i];
		int behind = !strcmp(t->name, "light") ? 231 : 16;

		if (!strcmp(t->name, "mono"))
			continue;
		for (int ink = 0; ink < INK_N; ink++) {
			int own = theme_ink(t, (enum ink)ink, PAPER_NONE, true);

			assert_true(own < 0 || contrast(own, behind) >= 3);
			for (int paper = PAPER_SELECTED; paper <= PAPER_BAD; paper++) {
				int c = theme_ink(t, (enum ink)ink, (enum paper)paper, true),
				    on = theme_paper(t, (enum paper)paper, true);

				/* Never the terminal's own, for its background isn't behind it. */
				assert_true(c >= 16 && on >= 16);
				if (contrast(c, on) < 2.5)
					fail_msg("%s: ink %d on paper %d: %.1f", t->name, ink,
						paper, contrast(c, on));
				c = theme_ink(t, (enum ink)ink, (enum paper)paper, false);
				assert_true(c >= 0);
				assert_int_not_equal(c, theme_paper(t, (enum paper)paper, false));
			}
		}
	}
}

static void test_the_theme_that_nobody_chose(void **state)
{
	static const struct {
		const char *no_color, *colorfgbg, *theme;
	} cases[] = {{NULL, NULL, "muted"}, {"", "15;0", "muted"}, {"1", NULL, "mono"},
		{"0", "0;15", "mono"}, {NULL, "0;15", "light"}, {NULL, "0;default;15", "light"},
		{NULL, "12;7", "light"}, {NULL, "15", "muted"}, {NULL, "0;8", "muted"}};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		assert_string_equal(
			theme_default(cases[i].no_color, cases[i].colorfgbg)->name, cases[i].theme);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_ink_can_be_read_on_every_paper),
		cmocka_unit_test(test_the_theme_that_nobody_chose),
		cmocka_unit_test(test_text_is_cleaned_cut_and_counted),
		cmocka_unit_test(test_marks_are_bounded),
		cmocka_unit_test(test_half_a_wide_character_is_none),
		cmocka_unit_test(test_a_figure_is_there_whole_or_not_at_all),
		cmocka_unit_test(test_ascii_terminals_get_ascii),
		cmocka_unit_test(test_wrapping),
		cmocka_unit_test(test_bytes_to_events),
		cmocka_unit_test(test_a_lone_esc_is_a_key_once_nothing_follows),
		cmocka_unit_test(test_learned_keys),
		cmocka_unit_test(test_any_bytes_at_all),
		cmocka_unit_test(test_columns_leave_in_order_and_share_the_rest),
		cmocka_unit_test(test_columns_of_any_width),
		cmocka_unit_test(test_bars),
		cmocka_unit_test(test_parts_of_a_bar_fill_it_and_no_more),
		cmocka_unit_test(test_graphs_have_gaps_and_never_leave_their_place),
		cmocka_unit_test(test_list_windows),
		cmocka_unit_test(test_a_line_is_edited),
		cmocka_unit_test(test_a_secret_is_never_drawn),
		cmocka_unit_test(test_themes),
	};

	setlocale(LC_CTYPE, "C.UTF-8");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
