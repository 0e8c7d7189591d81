/*
 * The layout of both screens at sizes from 1x1 to 300x100, in every mode, and after random keys and clicks at random sizes:
 * nothing is written outside (that's the sanitizers' to say), no half of a wide character is left, no control byte is in a
 * cell, nothing is in the bottom row. The tests have some of the sizes; GPUSTOW_LONG=1 has all of them, a few modes at each,
 * so that every mode meets every width and every height.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <locale.h>
#include <time.h>

#include "queue_world.h"
#include "tui_world.h"

enum { COLS_MAX = 300, ROWS_MAX = 100 };

static bool is_long(void)
{
	return getenv("GPUSTOW_LONG") != NULL;
}

static int modes_a_size(void)
{
	return is_long() ? 4 : 12;
}

/* The k-th of n modes to be tried at a size. 11 has no factor in common with the n: each width and each height meets all. */
static int mode_at(int cols, int rows, int k, int n)
{
	return (rows + cols * 11 + k * (n / modes_a_size())) % n;
}

static int next_rows(int rows)
{
	return rows + (is_long() ? 1 : rows < 45 ? 3 : 18);
}

static int next_cols(int cols)
{
	return cols + (is_long() ? 1 : cols < 110 ? 7 : 47);
}

static void seed_random(void)
{
	const char *given = getenv("GPUSTOW_SEED");
	unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);

	print_message("# GPUSTOW_SEED=%u\n", seed);
	srandom(seed);
}

static int below(int n)
{
	return (int)(random() % n);
}

/* What's wrong with a cell; NULL: nothing. Plain code, for there are millions of them. */
static const char *fault_of(const struct cell *c, bool is_first, bool is_last, bool is_bottom)
{
	if (c->width > 2 || c->style.ink >= INK_N || c->style.paper >= PAPER_N)
		return "a width or a style that there isn't";
	for (const char *s = c->text; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7F)
			return "a control byte";
	if (c->width == 2 && (is_last || c[1].width != 0))
		return "the left half of a wide character";
	if (c->width == 0 && (is_first || c[-1].width != 2))
		return "the right half of a wide character";
	/* It's never written: some terminals scroll when its end is. */
	return is_bottom && c->text[0] ? "something in the bottom row" : NULL;
}

static void check(const struct frame *f, int cols, int rows, int mode)
{
	const struct grid *g = &f->grid;
	const struct cell *c = g->cells;

	if (g->cols != cols || g->rows != rows)
		fail_msg("%dx%d, mode %d: the grid has %dx%d", cols, rows, mode, g->cols, g->rows);
	for (int y = 0; y < rows; y++)
		for (int x = 0; x < cols; x++, c++) {
			const char *fault =
				fault_of(c, x == 0, x == cols - 1, y == rows - 1 && rows > 1);

			if (fault)
				fail_msg("%dx%d, mode %d, cell %d,%d: %s", cols, rows, mode, x, y,
					fault);
		}
	for (size_t i = 0; i < f->n_hits; i++) {
		struct rect r = f->hits[i].at;

		if (r.x < 0 || r.y < 0 || r.x + r.w > cols || r.y + r.h > rows)
			fail_msg("%dx%d, mode %d: %dx%d cells at %d,%d can be clicked for %d", cols,
				rows, mode, r.w, r.h, r.x, r.y, f->hits[i].action);
	}
}

/* ---- the monitor ---- */

enum { MONITOR_WORLDS = 4, MONITOR_MODES = 9 };

static void make_monitor(struct world *w, int which)
{
	if (which == 0)
		world_lab(w);
	else if (which == 1)
		world_make(w, 0, 0);
	else
		world_make(w, which == 2 ? 3 : 0, which == 2 ? 8 : 16);
}

static void set_monitor(struct world *w, int mode)
{
	w->m.view.mode = mode ? MODE_UNIFIED : MODE_NODES;
	w->m.view.detailed = mode == 2;
	w->m.view.processes = w->m.view.trends = mode >= 2;
	w->m.view.filter = mode == 6 ? FILTER_ERRORS : FILTER_ALL;
	w->m.overlay = mode == 4 ? OVERLAY_HELP : mode == 5 ? OVERLAY_FACTS : OVERLAY_NONE;
	w->m.view.group_by_node = mode != 3;
	w->m.is_debug = mode == 3;
	w->m.focus = mode == 2 || mode >= 7 ? FOCUS_PROCS : FOCUS_CARDS;
	w->m.proc_group = mode == 7 ? GROUP_TREE : mode == 8 ? GROUP_USER : GROUP_NONE;
}

static void test_the_monitor_at_every_size(void **state)
{
	struct world w[MONITOR_WORLDS];
	int n = MONITOR_WORLDS * MONITOR_MODES;

	for (int i = 0; i < MONITOR_WORLDS; i++)
		make_monitor(&w[i], i);
	for (int rows = 1; rows <= ROWS_MAX; rows = next_rows(rows))
		for (int cols = 1; cols <= COLS_MAX; cols = next_cols(cols))
			for (int k = 0; k < modes_a_size(); k++) {
				int at = mode_at(cols, rows, k, n);
				struct world *x = &w[at % MONITOR_WORLDS];

				set_monitor(x, at / MONITOR_WORLDS);
				world_draw(x, cols, rows);
				check(&x->f, cols, rows, at);
			}
	for (int i = 0; i < MONITOR_WORLDS; i++)
		world_done(&w[i]);
}

static void test_the_monitor_after_any_keys(void **state)
{
	int rounds = is_long() ? 50000 : 1500, cols = 80, rows = 24;
	struct world w;

	seed_random();
	world_lab(&w);
	for (int i = 0; i < rounds; i++) {
		struct input_event ev = {.kind = EVENT_KEY};
		int what = below(10);

		if (what == 0) {
			cols = 1 + below(200);
			rows = 1 + below(60);
		} else if (what < 3) {
			ev = (struct input_event){.kind = what == 1 ? EVENT_CLICK : EVENT_WHEEL,
				.x = below(cols),
				.y = below(rows),
				.wheel = below(2) ? 1 : -1};
		} else {
			ev.key = what == 3 ? (uint32_t)below(0x110020)
					   : monitor_keys[below((int)monitor_keys_n)].keys[0];
		}
		if (below(200) == 0)
			monitor_ask(&w.m, (uint64_t)i, 3, "What is it?", below(2));
		monitor_event(&w.m, &ev, &w.f, 1000000 + i * 100);
		monitor_tick(&w.m, 1000000 + i * 100);
		world_draw(&w, cols, rows);
		check(&w.f, cols, rows, -1);
	}
	world_done(&w);
}

/* ---- the queue's screen ---- */

enum { QUEUE_WORLDS = 3, QUEUE_MODES = 24 };

static void make_queue(struct queue_world *w, int which)
{
	if (which == 0)
		queue_world_lab(w);
	else if (which == 1)
		queue_world_init(w);
	else
		queue_world_make(w, 3, 16);
	if (which)
		return;
	queue_model_take_log(&w->m, w->m.job, "one\n" QUEUE_HOSTILE "\n\nthree\n", NULL);
	queue_model_notice(&w->m, true, 0, "a notice, and a long one: %s", QUEUE_HOSTILE);
}

static void set_queue(struct queue_world *w, int mode)
{
	int rest = mode / 8;

	w->m.is_capacity = mode & 1;
	w->m.has_detail = mode & 2;
	w->m.has_log = mode & 4;
	w->m.has_help = rest == 1 && !(mode & 6);
	w->m.procs = rest;
	w->m.focus = rest == 2 ? QFOCUS_NODES : QFOCUS_JOBS;
	w->m.armed = rest == 2 ? w->m.job : 0;
}

static void test_the_queue_at_every_size(void **state)
{
	struct queue_world w[QUEUE_WORLDS];
	int n = QUEUE_WORLDS * QUEUE_MODES;

	for (int i = 0; i < QUEUE_WORLDS; i++)
		make_queue(&w[i], i);
	for (int rows = 1; rows <= ROWS_MAX; rows = next_rows(rows))
		for (int cols = 1; cols <= COLS_MAX; cols = next_cols(cols))
			for (int k = 0; k < modes_a_size(); k++) {
				int at = mode_at(cols, rows, k, n);
				struct queue_world *x = &w[at % QUEUE_WORLDS];

				set_queue(x, at / QUEUE_WORLDS);
				queue_world_draw(x, cols, rows);
				check(&x->f, cols, rows, at);
			}
	for (int i = 0; i < QUEUE_WORLDS; i++)
		queue_world_done(&w[i]);
}

static void any_event_of_the_queue(struct queue_world *w, int i, int cols, int rows)
{
	struct input_event ev = {.kind = below(3)   ? EVENT_KEY
					 : below(2) ? EVENT_CLICK
						    : EVENT_WHEEL,
		.x = below(cols),
		.y = below(rows),
		.wheel = below(2) ? 1 : -1};

	ev.key = queue_screen_keys[below((int)queue_screen_keys_n)].keys[0];
	queue_model_event(&w->m, &ev, &w->f, i * 100);
	queue_model_tick(&w->m, i * 100);
	while (queue_model_wish(&w->m).what)
		;
	if (!below(20)) {
		json_array_remove(json_object_get(w->o, below(2) ? "nodes" : "jobs"), 0);
		queue_world_take(w);
	}
}

static void test_the_queue_after_any_keys(void **state)
{
	int rounds = is_long() ? 15000 : 1500;

	seed_random();
	for (int world = 0; world < 3; world++) {
		struct queue_world w;
		int cols = 120, rows = 40;

		if (world == 2)
			queue_world_lab(&w);
		else
			queue_world_make(&w, world * 3, 8);
		for (int i = 0; i < rounds; i++) {
			any_event_of_the_queue(&w, i, cols, rows);
			cols = 1 + below(200);
			rows = 1 + below(60);
			queue_world_draw(&w, cols, rows);
			check(&w.f, cols, rows, -1);
		}
		queue_world_done(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_monitor_at_every_size),
		cmocka_unit_test(test_the_monitor_after_any_keys),
		cmocka_unit_test(test_the_queue_at_every_size),
		cmocka_unit_test(test_the_queue_after_any_keys),
	};

	setlocale(LC_CTYPE, "C.UTF-8");
	setenv("TZ", "UTC", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
