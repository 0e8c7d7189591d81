/*
 * The pictures of both screens, compared whole: every mode at four sizes with no card, one, eight and eight hundred, and a
 * world with a bit of everything (failed nodes, wide and hostile names, absent values). They're the files of
 * tests/golden/tui; GPUSTOW_UPDATE_GOLDEN=1 writes them anew, and git shows what changed.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <locale.h>
#include <signal.h>

#include "golden_screen.h"
#include "queue_world.h"
#include "tui/queue_plain.h"
#include "tui_world.h"

static const int sizes[][2] = {{60, 20}, {80, 24}, {120, 40}, {250, 70}};

static void name_of(char ret[64], const char *world, const char *mode, size_t size)
{
	snprintf(ret, 64, "%s-%s-%dx%d", world, mode, sizes[size][0], sizes[size][1]);
}

/* Without styles but at one size, for they are the same at the others. */
static void compare(const struct frame *f, const char *name, bool has_styles)
{
	CLEANUP(buf_done) struct buf b = {0};

	grid_text(&f->grid, &b);
	if (has_styles)
		grid_styles(&f->grid, &b);
	assert_golden(name, &b);
}

/* ---- the monitor ---- */

static void golden(struct world *w, const char *world, const char *mode)
{
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		char name[64];

		/* Twice: the first remembers where its windows begin. */
		world_draw(w, sizes[i][0], sizes[i][1]);
		world_draw(w, sizes[i][0], sizes[i][1]);
		name_of(name, world, mode, i);
		compare(&w->f, name, sizes[i][0] == 80);
	}
}

static void monitor_modes(struct world *w, const char *world)
{
	struct view_settings *v = &w->m.view;

	golden(w, world, "nodes");
	v->trends = true;
	golden(w, world, "nodes_history");
	v->trends = false;
	v->mode = MODE_UNIFIED;
	golden(w, world, "unified");
	v->group_by_node = false;
	v->processes = true;
	golden(w, world, "flat");
	v->group_by_node = true;
	v->processes = false;
	v->detailed = v->trends = true;
	w->m.focus = FOCUS_PROCS;
	golden(w, world, "detailed");
}

static void test_the_monitor(void **state)
{
	static const struct {
		const char *name;
		size_t nodes;
		uint32_t local;
	} worlds[] = {{"none", 0, 0}, {"one", 0, 1}, {"eight", 0, 8}, {"many", 100, 0}};
	struct world w;

	for (size_t i = 0; i < ARRAY_LEN(worlds); i++) {
		world_make(&w, worlds[i].nodes, worlds[i].local);
		monitor_modes(&w, worlds[i].name);
		world_done(&w);
	}
	world_lab(&w);
	monitor_modes(&w, "lab");
	world_done(&w);
}

/* What's laid over both views, or changes a part of one. */
static void test_the_monitors_other_modes(void **state)
{
	struct view_settings *v;
	struct world w;

	world_lab(&w);
	v = &w.m.view;
	w.m.is_debug = true;
	golden(&w, "lab", "debug");
	w.m.is_debug = false;
	w.m.wants_dcgm = false;
	world_press(&w, '?');
	golden(&w, "lab", "help_nodes");
	world_press(&w, '?');
	monitor_ask(&w.m, 1, 3, "(alice@locked) Verification code or password, for " HOSTILE ": ",
		true);
	world_press(&w, 'a');
	world_press(&w, 0x6DF1);
	golden(&w, "lab", "question");
	world_press(&w, KEY_ESC);
	v->mode = MODE_UNIFIED;
	world_press(&w, '?');
	golden(&w, "lab", "help_cards");
	world_press(&w, '?');
	world_press(&w, 'x');
	golden(&w, "lab", "facts");
	world_press(&w, KEY_ESC);
	v->filter = FILTER_BUSY;
	golden(&w, "lab", "busy");
	v->filter = FILTER_ERRORS;
	golden(&w, "lab", "errors");
	v->filter = FILTER_ALL;
	world_press(&w, KEY_RETURN);
	world_press(&w, '?');
	golden(&w, "lab", "help_processes");
	world_press(&w, '?');
	world_press(&w, 'K');
	golden(&w, "lab", "armed");
	world_press(&w, KEY_ESC);
	world_press(&w, 'G');
	golden(&w, "lab", "tree");
	world_press(&w, 'G');
	golden(&w, "lab", "by_user");
	world_press(&w, 'G');
	world_press(&w, '/');
	world_press(&w, 'p');
	golden(&w, "lab", "find");
	world_press(&w, KEY_ESC);
	world_done(&w);
	world_make(&w, 1, 2);
	w.m.view.mode = MODE_UNIFIED;
	for (int i = 0; i < 3; i++)
		world_press(&w, '<');
	golden(&w, "two", "past");
	world_done(&w);
}

/* The largest figures there are: where a column is there, its figure is whole. */
static void test_large_figures_are_not_cut(void **state)
{
	static const int widths[] = {72, 80, 100, 120, 132, 160, 200};
	struct world w;

	world_make(&w, 0, 1);
	world_set(&w.samples[0].snap.cards[0], METRIC_POWER, 1400000);
	world_set(&w.samples[0].snap.cards[0], METRIC_POWER_LIMIT, 1400000);
	world_set(&w.samples[0].snap.cards[0], METRIC_MEM_TOTAL, 294912);
	world_set(&w.samples[0].snap.cards[0], METRIC_MEM_USED, 294900);
	world_set(&w.samples[0].snap.cards[0], METRIC_TEMP, 105);
	world_set(&w.samples[0].snap.cards[0], METRIC_UTIL_GPU, 100);
	for (size_t i = 0; i < 2 * ARRAY_LEN(widths); i++) {
		CLEANUP(buf_done) struct buf b = {0};

		w.m.view.mode = i % 2 ? MODE_UNIFIED : MODE_NODES;
		world_draw(&w, widths[i / 2], 30);
		grid_text(&w.f.grid, &b);
		assert_non_null(strstr(buf_str(&b), "100%"));
		assert_non_null(strstr(buf_str(&b), "294900/294912"));
		if (strstr(buf_str(&b), i % 2 ? "Power" : "power"))
			assert_non_null(strstr(buf_str(&b), "1400/1400W"));
		if (strstr(buf_str(&b), i % 2 ? "Temp" : "temp"))
			assert_non_null(strstr(buf_str(&b), "105C"));
	}
	world_done(&w);
}

static void assert_ascii(const struct frame *f)
{
	for (int i = 0; i < f->grid.cols * f->grid.rows; i++)
		for (const char *s = f->grid.cells[i].text; *s; s++)
			assert_true(*s > 0);
}

static void test_the_monitor_without_utf8(void **state)
{
	struct world w;

	world_lab(&w);
	w.f.grid.ascii = true;
	golden(&w, "lab", "ascii_nodes");
	assert_ascii(&w.f);
	w.m.view.mode = MODE_UNIFIED;
	w.m.view.detailed = w.m.view.trends = true;
	golden(&w, "lab", "ascii_detailed");
	assert_ascii(&w.f);
	world_done(&w);
}

static void test_the_monitors_profiling(void **state)
{
	CLEANUP(buf_done) struct buf b = {0};
	struct world w;

	world_profile(&w);
	w.m.nodes[4].is_open = w.m.nodes[4].was_toggled = true;
	golden(&w, "profiling", "nodes");
	w.m.view.mode = MODE_UNIFIED;
	w.m.view.detailed = true;
	golden(&w, "profiling", "detailed");
	monitor_plain(&w.m, WORLD_NOW, &b);
	assert_golden("profiling-plain", &b);
	assert_null(strchr(buf_str(&b), 27));
	world_done(&w);
}

static void test_the_monitors_sentences(void **state)
{
	struct world w;
	CLEANUP(buf_done) struct buf b = {0};

	world_lab(&w);
	monitor_plain(&w.m, WORLD_NOW, &b);
	assert_golden("lab-plain", &b);
	assert_null(strchr(buf_str(&b), 27));
	world_done(&w);
}

/* ---- the queue's screen ---- */

static void queue_golden(struct queue_world *w, const char *world, const char *mode)
{
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		char name[64];

		queue_world_draw(w, sizes[i][0], sizes[i][1]);
		queue_world_draw(w, sizes[i][0], sizes[i][1]);
		name_of(name, world, mode, i);
		compare(&w->f, name, sizes[i][0] == 120);
	}
}

static void press(struct queue_world *w, uint32_t key)
{
	queue_world_press(w, key);
	w->m.n_wants = 0;
}

static void show(struct queue_world *w, int64_t id)
{
	json_t *o = json_pack("{s:I, s:s, s:[{s:I, s:b, s:s, s:s}], s:{s:s, s:s}}", "id",
		(json_int_t)id, "why", "held: job 1 failed, and it was to complete", "needs", "id",
		(json_int_t)1, "any", 0, "state", "failed", "name", QUEUE_HOSTILE, "job", "command",
		"python -m train --config configs/base.yaml --out /data/some/long/path/to/results --seed 17 --resume",
		"workdir", "/home/li/\xe6\xb7\xb1\xe5\xb1\xa4");

	queue_model_take_shown(&w->m, o);
	json_decref(o);
}

static void queue_modes(struct queue_world *w, const char *world)
{
	int64_t job = w->m.job;

	queue_golden(w, world, "flow");
	w->m.is_capacity = true;
	queue_golden(w, world, "capacity");
	w->m.procs = QPROCS_ALL;
	queue_golden(w, world, "procs");
	w->m.procs = QPROCS_OFF;
	queue_golden(w, world, "procs_off");
	w->m.procs = QPROCS_SUMMARY;
	w->m.is_capacity = false;
	w->m.has_detail = true;
	show(w, job);
	queue_golden(w, world, "detail");
	w->m.has_log = true;
	queue_model_take_log(&w->m, job, "epoch 1\nepoch 2\n" QUEUE_HOSTILE "\nepoch 3\n", NULL);
	queue_golden(w, world, "log");
}

static void test_the_queue(void **state)
{
	static const struct {
		const char *name;
		int nodes, cards;
	} worlds[] = {{"queue_none", 0, 0}, {"queue_one", 1, 1}, {"queue_eight", 1, 8},
		{"queue_many", 100, 8}};
	struct queue_world w;

	queue_world_init(&w);
	queue_golden(&w, "queue_none", "reading");
	queue_world_take(&w);
	queue_golden(&w, "queue_none", "empty");
	queue_world_done(&w);
	for (size_t i = 0; i < ARRAY_LEN(worlds); i++) {
		queue_world_make(&w, worlds[i].nodes, worlds[i].cards);
		queue_modes(&w, worlds[i].name);
		queue_world_done(&w);
	}
	queue_world_lab(&w);
	queue_modes(&w, "queue_lab");
	queue_world_done(&w);
}

static void test_the_queues_other_modes(void **state)
{
	struct queue_world w;

	queue_world_lab(&w);
	press(&w, '?');
	queue_golden(&w, "queue_lab", "help");
	press(&w, '?');
	press(&w, KEY_TAB);
	press(&w, KEY_RETURN);
	queue_golden(&w, "queue_lab", "scope");
	press(&w, 'x');
	press(&w, KEY_TAB);
	w.m.job = 5;
	press(&w, KEY_RETURN);
	show(&w, 5);
	press(&w, 'c');
	queue_golden(&w, "queue_lab", "armed");
	press(&w, KEY_ESC);
	queue_model_notice(&w.m, true, 0, "job 5 can't be cancelled: %s", QUEUE_HOSTILE);
	queue_golden(&w, "queue_lab", "notice");
	w.f.grid.ascii = true;
	queue_golden(&w, "queue_lab", "ascii");
	assert_ascii(&w.f);
	w.m.is_capacity = true;
	queue_golden(&w, "queue_lab", "ascii_capacity");
	assert_ascii(&w.f);
	queue_world_done(&w);
}

static void test_the_queues_sentences(void **state)
{
	struct queue_world w;
	CLEANUP(buf_done) struct buf b = {0};

	queue_world_lab(&w);
	w.m.filter = QFILTER_ALL;
	queue_plain_put(&w.m, QUEUE_NOW, &b);
	assert_golden("queue_lab-plain", &b);
	assert_null(strchr(buf_str(&b), 27));
	queue_world_done(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_monitor),
		cmocka_unit_test(test_the_monitors_other_modes),
		cmocka_unit_test(test_large_figures_are_not_cut),
		cmocka_unit_test(test_the_monitor_without_utf8),
		cmocka_unit_test(test_the_monitors_profiling),
		cmocka_unit_test(test_the_monitors_sentences),
		cmocka_unit_test(test_the_queue),
		cmocka_unit_test(test_the_queues_other_modes),
		cmocka_unit_test(test_the_queues_sentences),
	};

	setlocale(LC_CTYPE, "C.UTF-8");
	setenv("TZ", "UTC", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
