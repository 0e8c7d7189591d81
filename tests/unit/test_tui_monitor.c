/*
 * The monitor without a terminal: every key of its table, clicks, signals and their confirmation, time travel. Its pictures
 * are test_tui_pictures.c's, its layout at any size test_tui_layout.c's.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <locale.h>
#include <signal.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "tui_world.h"

static struct card_row selected(const struct world *w)
{
	size_t n, all;
	CLEANUP_FREE struct card_row *rows = monitor_cards(&w->m, &n, &all);

	return n ? rows[monitor_selected(&w->m, rows, n)] : (struct card_row){UINT32_MAX, 0};
}

/* ---- keys ---- */

static void test_keys_of_the_views(void **state)
{
	struct world w;
	struct view_settings *v;

	world_make(&w, 2, 4);
	v = &w.m.view;
	world_draw(&w, 120, 40);
	assert_int_equal(v->mode, MODE_NODES);
	/* Only of the unified view: nothing happens here. */
	for (const char *k = "dsfgpoO+-[]iTKx/"; *k; k++)
		world_press(&w, (uint32_t)*k);
	assert_false(w.m.wishes.keep_settings);
	world_press(&w, 'v');
	assert_int_equal(v->mode, MODE_UNIFIED);
	assert_true(w.m.wishes.keep_settings);
	world_press(&w, 'd');
	assert_true(v->detailed);
	world_press(&w, 'd');
	for (int i = 1; i <= SORT_N; i++) {
		world_press(&w, 's');
		assert_int_equal(v->sort, i % SORT_N);
	}
	for (int i = 1; i <= FILTER_N; i++) {
		world_press(&w, 'f');
		assert_int_equal(v->filter, i % FILTER_N);
	}
	world_press(&w, 'g');
	assert_false(v->group_by_node);
	world_press(&w, 'u');
	assert_false(v->hide_unsupported);
	world_press(&w, 't');
	assert_true(v->trends);
	world_press(&w, 'y');
	assert_string_equal(v->theme, "classic");
	assert_true(w.m.wishes.new_theme);
	world_press(&w, KEY_CTRL_L);
	assert_true(w.m.wishes.redraw_all);
	world_press(&w, KEY_CTRL_Z);
	assert_true(w.m.wishes.stop);
	world_press(&w, 'r');
	assert_true(w.m.wishes.has_retry);
	assert_false(w.m.wishes.quit);
	world_press(&w, 'q');
	assert_true(w.m.wishes.quit);
	world_done(&w);
}

static void test_panes_and_focus(void **state)
{
	static const uint32_t enters[] = {KEY_RETURN, ' ', 'l', KEY_ARROW_RIGHT};
	struct world w;

	world_make(&w, 1, 4);
	w.m.view.mode = MODE_UNIFIED;
	for (size_t i = 0; i < ARRAY_LEN(enters); i++) {
		w.m.view.processes = false;
		w.m.focus = FOCUS_CARDS;
		for (int twice = 0; twice < 2; twice++) {
			world_press(&w, enters[i]);
			assert_true(w.m.view.processes);
			assert_int_equal(w.m.focus, FOCUS_PROCS);
		}
	}
	world_press(&w, 'h');
	assert_int_equal(w.m.focus, FOCUS_CARDS);
	assert_true(monitor_pane_is_wanted(&w.m));
	world_press(&w, KEY_TAB);
	assert_int_equal(w.m.focus, FOCUS_PROCS);
	world_press(&w, KEY_BACKTAB);
	assert_int_equal(w.m.focus, FOCUS_CARDS);
	world_press(&w, KEY_ARROW_RIGHT);
	world_press(&w, KEY_ARROW_LEFT);
	assert_int_equal(w.m.focus, FOCUS_CARDS);
	world_press(&w, 'p');
	assert_false(monitor_pane_is_wanted(&w.m));
	world_press(&w, KEY_TAB);
	assert_int_equal(w.m.focus, FOCUS_CARDS);
	/* In detailed mode the pane is there by itself, and hiding it isn't kept. */
	world_press(&w, 'd');
	assert_true(monitor_pane_is_wanted(&w.m));
	w.m.wishes.keep_settings = false;
	world_press(&w, 'p');
	assert_false(monitor_pane_is_wanted(&w.m));
	assert_false(w.m.wishes.keep_settings);
	world_done(&w);
}

static void test_selection_moves_and_sticks(void **state)
{
	struct world w;
	struct card_row r;

	world_make(&w, 2, 4);
	w.m.view.mode = MODE_UNIFIED;
	world_draw(&w, 120, 40);
	world_press(&w, 'j');
	world_press(&w, KEY_ARROW_DOWN);
	r = selected(&w);
	assert_int_equal(r.node, 0);
	assert_int_equal(r.card, 2);
	world_press(&w, 'k');
	world_press(&w, KEY_ARROW_UP);
	world_press(&w, KEY_ARROW_UP);
	assert_int_equal(selected(&w).card, 0);
	world_press(&w, KEY_LAST);
	r = selected(&w);
	assert_int_equal(r.node, 2);
	assert_int_equal(r.card, 7);
	/* Another order, the same card. */
	world_press(&w, 's');
	assert_int_equal(selected(&w).node, 2);
	assert_int_equal(selected(&w).card, 7);
	world_press(&w, KEY_FIRST);
	world_press(&w, KEY_PAGE_DOWN);
	world_press(&w, KEY_PAGE_UP);
	/* Per node. */
	world_press(&w, 'v');
	w.m.node = 0;
	world_press(&w, 'j');
	assert_int_equal(w.m.node, 1);
	world_press(&w, KEY_RETURN);
	assert_false(node_is_open(&w.m, &w.m.nodes[1]));
	world_press(&w, ' ');
	assert_true(node_is_open(&w.m, &w.m.nodes[1]));
	world_press(&w, 'c');
	assert_false(node_is_open(&w.m, &w.m.nodes[2]));
	world_press(&w, 'a');
	assert_true(node_is_open(&w.m, &w.m.nodes[2]));
	world_done(&w);
}

static size_t shown_procs(const struct world *w, struct proc_row **ret)
{
	size_t n, all;

	*ret = monitor_procs(&w->m, selected(w), WORLD_NOW.boot_ms, &n, &all);
	return n;
}

static void test_process_keys(void **state)
{
	struct world w;
	struct proc_row *rows;

	world_lab(&w);
	w.m.view.mode = MODE_UNIFIED;
	world_press(&w, KEY_RETURN);
	assert_int_equal(shown_procs(&w, &rows), 3);
	assert_true(rows[0].used_mib.v >= rows[1].used_mib.v);
	/* Absent ones are last either way. */
	assert_false(value_is_present(rows[2].used_mib));
	free(rows);
	world_press(&w, 'O');
	shown_procs(&w, &rows);
	assert_true(rows[0].used_mib.v <= rows[1].used_mib.v);
	assert_false(value_is_present(rows[2].used_mib));
	free(rows);
	for (int i = 1; i <= BY_N - 1; i++) {
		world_press(&w, i % 2 ? 'o' : KEY_FN + 6);
		assert_int_equal(w.m.proc_sort, i % (BY_N - 1) + 1);
	}
	world_press(&w, '+');
	world_press(&w, '=');
	assert_int_equal(w.m.proc_rows, w.m.proc_page > 1 ? w.m.proc_page + 2 : 3);
	for (int i = 0; i < 20; i++)
		world_press(&w, '+');
	assert_int_equal(w.m.proc_rows, PROC_ROWS_MAX);
	for (int i = 0; i < 20; i++)
		world_press(&w, '-');
	assert_int_equal(w.m.proc_rows, 1);
	world_press(&w, ']');
	assert_true(w.m.first_command > 0);
	world_press(&w, '[');
	assert_int_equal(w.m.first_command, 0);
	world_press(&w, 'G');
	assert_int_equal(w.m.proc_group, GROUP_TREE);
	assert_int_equal(shown_procs(&w, &rows), 3);
	assert_int_equal(rows[0].depth, 0);
	assert_int_equal(rows[1].depth, 1);
	assert_int_equal(rows[2].depth, 2);
	free(rows);
	world_press(&w, 'G');
	assert_int_equal(shown_procs(&w, &rows), 6);
	assert_true(rows[0].is_head);
	free(rows);
	world_press(&w, 'G');
	/* While a filter is typed no key does anything else. */
	world_press(&w, '/');
	for (const char *s = "QUIT"; *s; s++)
		world_press(&w, (uint32_t)*s);
	assert_false(w.m.wishes.quit);
	assert_int_equal(shown_procs(&w, &rows), 0);
	free(rows);
	world_press(&w, KEY_CTRL_U);
	for (const char *s = "EXPERIMENT-0x"; *s; s++)
		world_press(&w, (uint32_t)*s);
	world_press(&w, KEY_ERASE);
	world_press(&w, KEY_RETURN);
	assert_int_equal(shown_procs(&w, &rows), 1);
	free(rows);
	world_press(&w, KEY_ESC);
	assert_int_equal(shown_procs(&w, &rows), 3);
	free(rows);
	world_press(&w, '/');
	for (int i = 0; i < 200; i++)
		world_press(&w, 'x');
	assert_int_equal(w.m.proc_filter.n, PROC_FILTER_MAX);
	world_press(&w, KEY_ESC);
	assert_int_equal(w.m.proc_filter.n, 0);
	world_done(&w);
}

/* ---- signals ---- */

static void into_pane(struct world *w)
{
	world_make(w, 1, 2);
	w->m.view.mode = MODE_UNIFIED;
	world_press(w, KEY_RETURN);
}

static void test_a_signal_wants_two_presses(void **state)
{
	static const struct {
		uint32_t key, fkey;
		int signo;
	} cases[] = {
		{'i', KEY_FN + 7, SIGINT}, {'T', KEY_FN + 8, SIGTERM}, {'K', KEY_FN + 9, SIGKILL}};
	struct world w;
	struct proc_row *rows;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		into_pane(&w);
		world_press(&w, KEY_ARROW_LEFT);
		/* From the cards the first press only goes there. */
		world_press(&w, cases[i].key);
		assert_int_equal(w.m.focus, FOCUS_PROCS);
		assert_int_equal(w.m.armed.signo, 0);
		world_press(&w, cases[i].key);
		assert_int_equal(w.m.armed.signo, cases[i].signo);
		assert_int_equal(w.m.wishes.signal.signo, 0);
		world_press(&w, cases[i].fkey);
		shown_procs(&w, &rows);
		assert_int_equal(w.m.wishes.signal.signo, cases[i].signo);
		assert_int_equal(w.m.wishes.signal.pid, rows[0].pid);
		assert_int_equal(w.m.wishes.signal.start_ticks, rows[0].start_ticks);
		assert_int_equal(w.m.armed.signo, 0);
		free(rows);
		/* Enter confirms as well. */
		w.m.wishes.signal.signo = 0;
		world_press(&w, cases[i].key);
		world_press(&w, KEY_RETURN);
		assert_int_equal(w.m.wishes.signal.signo, cases[i].signo);
		world_done(&w);
	}
}

/* An arrow, or the bar that's pressed to page, kills nothing; nor does a button that has Enter's name. */
static void test_only_the_same_key_or_enter_confirms(void **state)
{
	static const uint32_t others[] = {' ', 'l', KEY_ARROW_RIGHT, KEY_TAB, KEY_BACKTAB};
	struct world w;

	for (size_t i = 0; i < ARRAY_LEN(others); i++) {
		into_pane(&w);
		world_press(&w, 'K');
		assert_int_equal(w.m.armed.signo, SIGKILL);
		world_press(&w, others[i]);
		assert_int_equal(w.m.wishes.signal.signo, 0);
		world_done(&w);
	}
	into_pane(&w);
	world_press(&w, 'K');
	monitor_do(&w.m, DO_ENTER, 0, WORLD_NOW.boot_ms);
	assert_int_equal(w.m.wishes.signal.signo, 0);
	world_done(&w);
}

/* Where the n-th row with that action is in the picture. */
static struct input_event click_on(const struct world *w, int action, size_t nth)
{
	for (size_t i = 0; i < w->f.n_hits; i++)
		if (w->f.hits[i].action == action && !nth--)
			return (struct input_event){.kind = EVENT_CLICK,
				.x = w->f.hits[i].at.x + 1,
				.y = w->f.hits[i].at.y};
	fail_msg("nothing there does %d", action);
	return (struct input_event){0};
}

/* A sample that came since the picture has another order: the click is for what was seen. */
static void test_a_click_is_for_the_process_that_was_drawn_there(void **state)
{
	struct input_event ev;
	struct world w;
	struct proc_row *rows;
	int32_t pid;

	into_pane(&w);
	world_draw(&w, 120, 50);
	shown_procs(&w, &rows);
	pid = rows[1].pid;
	w.samples[0].snap.procs[rows[0].row].used_mib = value_of(1);
	free(rows);
	ev = click_on(&w, DO_SELECT_PROC, 1);
	monitor_event(&w.m, &ev, &w.f, WORLD_NOW.boot_ms);
	assert_int_equal(w.m.proc.pid, pid);
	/* One that has ended since is nobody; what was selected stays. */
	world_draw(&w, 120, 50);
	shown_procs(&w, &rows);
	ev = click_on(&w, DO_SELECT_PROC, 0);
	for (uint32_t i = 0; i < w.samples[0].snap.n_procs; i++)
		if (w.samples[0].snap.procs[i].pid == rows[0].pid)
			w.samples[0].snap.procs[i].start_ticks += 7;
	free(rows);
	pid = w.m.proc.pid;
	monitor_event(&w.m, &ev, &w.f, WORLD_NOW.boot_ms);
	assert_int_equal(w.m.proc.pid, pid);
	/* The line of a user is one, too. */
	w.m.proc_group = GROUP_USER;
	world_draw(&w, 120, 50);
	ev = click_on(&w, DO_SELECT_PROC, 0);
	monitor_event(&w.m, &ev, &w.f, WORLD_NOW.boot_ms);
	assert_true(w.m.proc.head[0] != '\0');
	world_done(&w);
}

static void test_nobody_types_into_a_line_that_is_not_there(void **state)
{
	struct input_event ev;
	struct world w;

	/* No cards, no pane. */
	world_make(&w, 0, 0);
	w.m.view.mode = MODE_UNIFIED;
	world_press(&w, '/');
	world_draw(&w, 80, 24);
	world_press(&w, 'q');
	assert_true(w.m.wishes.quit);
	world_done(&w);
	/* A click leads elsewhere; what was typed stays as after Enter. */
	into_pane(&w);
	world_press(&w, '/');
	world_press(&w, 'a');
	world_draw(&w, 80, 24);
	assert_true(w.m.is_filtering);
	ev = click_on(&w, DO_VIEW, 0);
	monitor_event(&w.m, &ev, &w.f, WORLD_NOW.boot_ms);
	assert_int_equal(w.m.view.mode, MODE_NODES);
	assert_string_equal(w.m.proc_filter.text, "a");
	world_press(&w, 'q');
	assert_true(w.m.wishes.quit);
	w.m.wishes.quit = false;
	w.m.view.mode = MODE_UNIFIED;
	/* Where the pane has no room for it there's no line either. */
	world_press(&w, '/');
	world_draw(&w, 60, 20);
	assert_true(w.m.is_filtering);
	world_draw(&w, 40, 10);
	assert_false(w.m.is_filtering);
	world_press(&w, '/');
	world_draw(&w, 39, 9);
	assert_false(w.m.is_filtering);
	world_done(&w);
}

static void test_what_disarms_a_signal(void **state)
{
	struct world w;

	into_pane(&w);
	world_press(&w, 'K');
	world_press(&w, KEY_ESC);
	assert_int_equal(w.m.armed.signo, 0);
	world_press(&w, 'K');
	world_press(&w, 'j');
	assert_int_equal(w.m.armed.signo, 0);
	world_press(&w, 'K');
	/* Another signal is armed anew, not sent. */
	world_press(&w, 'T');
	assert_int_equal(w.m.armed.signo, SIGTERM);
	assert_int_equal(w.m.wishes.signal.signo, 0);
	assert_false(monitor_tick(&w.m, WORLD_NOW.boot_ms + ARMED_MS - 1));
	assert_true(monitor_tick(&w.m, WORLD_NOW.boot_ms + ARMED_MS));
	assert_int_equal(w.m.armed.signo, 0);
	world_done(&w);
}

static void test_another_process_of_that_number_gets_no_signal(void **state)
{
	struct world w;
	struct proc_row *rows;

	into_pane(&w);
	world_press(&w, 'K');
	assert_int_equal(w.m.armed.signo, SIGKILL);
	shown_procs(&w, &rows);
	w.samples[0].snap.procs[rows[0].row].start_ticks++;
	free(rows);
	world_press(&w, 'K');
	assert_int_equal(w.m.wishes.signal.signo, 0);
	assert_non_null(strstr(w.m.notice, "nothing was sent"));
	/* Nor has one whose start isn't known. */
	for (uint32_t i = 0; i < w.samples[0].snap.n_procs; i++)
		w.samples[0].snap.procs[i].start_ticks = 0;
	world_press(&w, 'K');
	assert_int_equal(w.m.armed.signo, 0);
	assert_non_null(strstr(w.m.notice, "isn't known"));
	world_done(&w);
}

/* ---- time ---- */

static void test_time_travel(void **state)
{
	struct world w;
	struct card_row r = {0, 0};

	world_init(&w, 1);
	world_sample(&w.samples[0], 1, 1, 1);
	for (int64_t i = 0; i < 100; i++) {
		world_set(&w.samples[0].snap.cards[0], METRIC_UTIL_GPU, i);
		world_node(&w, 0, "local", NULL, "up", "", 900000 + i * 1000);
	}
	assert_int_equal(monitor_value(&w.m, r, METRIC_UTIL_GPU).v, 99);
	world_press(&w, '>');
	assert_int_equal(w.m.travel_ms, 0);
	for (int i = 0; i < 10; i++)
		world_press(&w, '<');
	assert_int_equal(monitor_value(&w.m, r, METRIC_UTIL_GPU).v, 89);
	/* Only the last 60 are kept, and the oldest is the end. */
	for (int i = 0; i < 100; i++)
		world_press(&w, '<');
	assert_int_equal(monitor_value(&w.m, r, METRIC_UTIL_GPU).v, 40);
	/* What hadn't been measured then is a dash, not today's figure. */
	w.m.travel_ms = 1;
	assert_false(value_is_present(monitor_value(&w.m, r, METRIC_UTIL_GPU)));
	w.m.travel_ms = 950000;
	w.m.view.mode = MODE_UNIFIED;
	world_press(&w, KEY_RETURN);
	world_press(&w, 'K');
	assert_int_equal(w.m.armed.signo, 0);
	assert_non_null(strstr(w.m.notice, "the past"));
	world_press(&w, KEY_ESC);
	world_press(&w, KEY_ESC);
	assert_int_equal(w.m.travel_ms, 0);
	world_done(&w);
}

static void test_history_forgets_what_is_gone(void **state)
{
	struct history h = {0};
	struct sample s;
	int32_t v[HISTORY_N];

	world_sample(&s, 1, 1, 1);
	history_take(&h, &s, 1000);
	s.snap.cards[0].m[METRIC_UTIL_GPU] = value_absent(VALUE_EMPTY);
	history_take(&h, &s, 2000);
	assert_int_equal(history_series(&h, h.cards[0].v[CARD_UTIL], 0, v), 2);
	assert_int_equal(v[0], 8 * 37 % 101);
	assert_int_equal(v[1], GRAPH_GAP);
	assert_int_equal(h.n_procs, 1);
	for (int i = 0; i < HISTORY_N; i++) {
		/* Ever new processes: one lives, those before it are gaps. */
		s.snap.procs[0].start_ticks++;
		history_take(&h, &s, 3000 + i);
	}
	assert_true(h.n_procs <= HISTORY_N);
	s.snap.n_procs = 0;
	for (int i = 0; i < HISTORY_N; i++)
		history_take(&h, &s, 9000 + i);
	assert_int_equal(h.n_procs, 0);
	sample_done(&s);
	history_done(&h);
}

/* ---- questions, help, clicks ---- */

static void test_questions_take_all_keys(void **state)
{
	struct world w;

	world_make(&w, 1, 1);
	monitor_ask(&w.m, 7, 1, "alice@gpu1's password: ", true);
	monitor_ask(&w.m, 8, 1, "continue (yes/no)?", false);
	for (const char *s = "quit?"; *s; s++)
		world_press(&w, (uint32_t)*s);
	assert_false(w.m.wishes.quit);
	world_draw(&w, 80, 24);
	{
		CLEANUP(buf_done) struct buf b = {0};

		grid_text(&w.f.grid, &b);
		assert_null(strstr(buf_str(&b), "quit?"));
		assert_non_null(strstr(buf_str(&b), "*****"));
	}
	world_press(&w, KEY_RETURN);
	assert_true(w.m.wishes.has_answer);
	assert_int_equal(w.m.wishes.question, 7);
	assert_string_equal(w.m.wishes.answer, "quit?");
	w.m.wishes.has_answer = false;
	world_press(&w, KEY_CTRL_C);
	assert_int_equal(w.m.wishes.question, 8);
	assert_true(w.m.wishes.is_refused);
	assert_null(w.m.questions);
	/* A host that was refused bothers nobody until it's tried again. */
	assert_false(monitor_ask(&w.m, 9, 1, "again: ", true));
	assert_true(monitor_ask(&w.m, 10, 0, "another host: ", true));
	world_press(&w, KEY_ESC);
	w.m.node = 1;
	world_press(&w, 'r');
	assert_true(monitor_ask(&w.m, 11, 1, "again: ", true));
	/* An empty answer is given: for a passphrase that's the way on to the next key, or to the password. */
	w.m.wishes.has_answer = false;
	world_press(&w, KEY_RETURN);
	assert_true(w.m.wishes.has_answer);
	assert_false(w.m.wishes.is_refused);
	assert_string_equal(w.m.wishes.answer, "");
	assert_true(monitor_ask(&w.m, 12, 1, "password: ", true));
	world_done(&w);
}

/* Sentences that take several lines: by pages each failed node is seen whole once, and r tries all of them. */
static void test_every_failed_node_is_seen_by_pages(void **state)
{
	char why[200];
	struct world w;
	bool seen[12] = {false};

	memset(why, 'x', sizeof(why) - 1);
	why[sizeof(why) - 1] = '\0';
	world_make(&w, 12, 0);
	for (size_t i = 1; i <= 12; i++) {
		char name[32];

		snprintf(name, sizeof(name), "n%02zu", i);
		world_node(&w, i, name, "a@b:22", i == 5 ? "auth" : "down", why, 0);
		w.m.nodes[i].refuses = true;
	}
	w.m.view.mode = MODE_UNIFIED;
	w.m.view.filter = FILTER_ERRORS;
	for (int page = 0; page < 12; page++) {
		CLEANUP(buf_done) struct buf b = {0};

		world_draw(&w, 80, 24);
		grid_text(&w.f.grid, &b);
		for (size_t i = 1; i <= 12; i++) {
			char head[40];

			/* Its beginning; 200 cells of sentence are three lines of 80, and the next one's head is behind it. */
			snprintf(head, sizeof(head), "\nn%02zu (a@b:22): ", i);
			seen[i - 1] |= strstr(buf_str(&b), head) != NULL;
		}
		world_press(&w, KEY_PAGE_DOWN);
	}
	for (size_t i = 0; i < 12; i++)
		assert_true(seen[i]);
	w.m.wishes.has_retry = false;
	world_press(&w, 'r');
	assert_true(w.m.wishes.has_retry);
	assert_int_equal(w.m.wishes.retry, RETRY_FAILED);
	for (size_t i = 1; i <= 12; i++)
		assert_false(w.m.nodes[i].refuses);
	world_done(&w);
}

/* On 80x24 with the pane in use: its command, and the history in its place; a signal that's pending moves no button. */
static void test_a_short_screen_has_command_and_history(void **state)
{
	struct world w;
	CLEANUP(buf_done) struct buf command = {0}, history = {0}, armed = {0};
	struct rect was = {0};

	into_pane(&w);
	for (uint32_t i = 0; i < w.samples[0].snap.n_procs; i++)
		memset(w.samples[0].snap.more[i].cmdline, 'c', 300);
	world_draw(&w, 80, 24);
	grid_text(&w.f.grid, &command);
	assert_non_null(strstr(buf_str(&command), "ccccccccccccccccccccccccccccccccccccccccccccccc"
						  "ccccccccccccccccccccccccccccccc"));
	assert_non_null(strstr(buf_str(&command), "lines 1-"));
	world_press(&w, 't');
	world_draw(&w, 80, 24);
	grid_text(&w.f.grid, &history);
	assert_non_null(strstr(buf_str(&history), "util now"));
	assert_non_null(strstr(buf_str(&history), "VRAM now"));
	assert_non_null(strstr(buf_str(&history), "CPU now"));
	assert_non_null(strstr(buf_str(&history), "host mem now"));
	world_press(&w, 't');
	for (int turn = 0; turn < 2; turn++) {
		world_draw(&w, 80, 24);
		for (size_t i = 0; i < w.f.n_hits; i++)
			if (w.f.hits[i].action == DO_SIGKILL) {
				assert_true(!turn || !memcmp(&was, &w.f.hits[i].at, sizeof(was)));
				was = w.f.hits[i].at;
			}
		world_press(&w, 'K');
	}
	assert_true(was.w > 0);
	world_press(&w, 'K');
	world_draw(&w, 80, 24);
	grid_text(&w.f.grid, &armed);
	assert_non_null(strstr(buf_str(&armed), "SIGKILL to process"));
	world_done(&w);
}

static void test_overlays_close_without_quitting(void **state)
{
	static const uint32_t closers[] = {'?', KEY_ESC, 'q', KEY_RETURN, ' '};
	struct world w;

	world_make(&w, 1, 1);
	w.m.view.mode = MODE_UNIFIED;
	for (size_t i = 0; i < ARRAY_LEN(closers); i++) {
		world_press(&w, i % 2 ? '?' : 'x');
		assert_int_not_equal(w.m.overlay, OVERLAY_NONE);
		world_draw(&w, 80, 24);
		world_press(&w, closers[i]);
		assert_int_equal(w.m.overlay, OVERLAY_NONE);
		assert_false(w.m.wishes.quit);
	}
	world_press(&w, '?');
	world_draw(&w, 80, 24);
	monitor_event(&w.m, &(struct input_event){.kind = EVENT_CLICK, .x = 40, .y = 12}, &w.f, 1);
	assert_int_equal(w.m.overlay, OVERLAY_NONE);
	world_done(&w);
}

static void click(struct world *w, int action, int64_t arg)
{
	for (size_t i = w->f.n_hits; i; i--)
		if (w->f.hits[i - 1].action == action && w->f.hits[i - 1].arg == arg) {
			struct input_event ev = {.kind = EVENT_CLICK,
				.x = w->f.hits[i - 1].at.x,
				.y = w->f.hits[i - 1].at.y};

			monitor_event(&w->m, &ev, &w->f, WORLD_NOW.boot_ms);
			return;
		}
	fail_msg("nothing to click for action %d, %lld", action, (long long)arg);
}

static void test_clicks(void **state)
{
	struct proc_row *rows;
	struct world w;

	world_lab(&w);
	world_draw(&w, 160, 50);
	click(&w, DO_SELECT_NODE, 2);
	assert_int_equal(w.m.node, 2);
	world_draw(&w, 160, 50);
	click(&w, DO_SELECT_NODE, 1);
	assert_true(node_is_open(&w.m, &w.m.nodes[1]));
	click(&w, DO_SELECT_NODE, 1);
	assert_false(node_is_open(&w.m, &w.m.nodes[1]));
	click(&w, DO_ERRORS, 0);
	assert_int_equal(w.m.view.filter, FILTER_ERRORS);
	assert_int_equal(w.m.view.mode, MODE_UNIFIED);
	world_press(&w, 'j');
	assert_int_equal(w.m.first_error, 1);
	world_press(&w, 'f');
	world_draw(&w, 160, 50);
	click(&w, DO_WHY, (int64_t)1 << 40 | 1 << 16 | METRIC_TEMP);
	assert_non_null(strstr(w.m.notice, "this account may not read it"));
	click(&w, DO_SELECT_CARD, (int64_t)1 << 32 | 3);
	assert_int_equal(selected(&w).card, 3);
	click(&w, DO_SELECT_CARD, (int64_t)1 << 32);
	world_press(&w, KEY_RETURN);
	world_draw(&w, 160, 50);
	click(&w, DO_SORT_BY, BY_CPU);
	assert_int_equal(w.m.proc_sort, BY_CPU);
	assert_false(w.m.proc_reverse);
	click(&w, DO_SORT_BY, BY_CPU);
	assert_true(w.m.proc_reverse);
	shown_procs(&w, &rows);
	click(&w, DO_SELECT_PROC, monitor_proc_arg(&rows[1]));
	free(rows);
	click(&w, DO_SIGTERM, 0);
	assert_int_equal(w.m.armed.signo, SIGTERM);
	world_done(&w);
}

static void test_settings_by_name(void **state)
{
	struct view_settings v, u;
	const char *key, *value;

	view_defaults(&v);
	assert_true(view_set(&v, "mode", "unified"));
	assert_true(view_set(&v, "sort", "utilization"));
	assert_true(view_set(&v, "mouse", "false"));
	assert_true(view_set(&v, "theme", "classic"));
	assert_false(view_set(&v, "mode", "sideways"));
	assert_false(view_set(&v, "colour", "red"));
	view_defaults(&u);
	for (size_t i = 0; view_get(&v, i, &key, &value); i++)
		assert_true(view_set(&u, key, value));
	assert_memory_equal(&u, &v, sizeof(u));
}

/* ---- the manual ---- */

/* ---- profiling ---- */

static void assert_header(struct world *w, const char *words)
{
	CLEANUP(buf_done) struct buf b = {0};

	world_draw(w, 160, 40);
	grid_text(&w->f.grid, &b);
	if (!strstr(buf_str(&b), words))
		fail_msg("%s isn't in\n%s", words, buf_str(&b));
}

static void test_header_of_profiling(void **state)
{
	struct world w;

	world_profile(&w);
	assert_header(&w, "| profiling on 1 of 2");
	/* It goes: DCGM still answers, but has no figures. */
	for (int i = METRIC_PROFILE_FIRST; i < METRIC_N; i++)
		w.samples[1].snap.cards[0].m[i] = w.samples[1].snap.cards[1].m[i] =
			value_absent(VALUE_EMPTY);
	assert_header(&w, "| waiting for profiling");
	w.samples[1].snap.profiling.source = PROFILE_NONE;
	assert_header(&w, "| profiling isn't available");
	/* An agent of before doesn't know what it's asked for. */
	w.samples[1].with_profiling = false;
	w.samples[1].snap.profiling.source = PROFILE_NOT_ASKED;
	assert_header(&w, "| profiling isn't available");
	w.samples[1].with_profiling = true;
	w.samples[1].snap.profiling.source = PROFILE_STARTING;
	assert_header(&w, "| waiting for profiling");
	world_done(&w);
}

/* The manual has each key, where it works and what it does, in the words of the help. */
static void test_the_manual_has_every_key(void **state)
{
	const char *root = getenv("SOURCE_ROOT");
	CLEANUP_FREE char *path = xasprintf("%s/docs/monitor.md", root ? root : ".");
	CLEANUP(buf_done) struct buf manual = {0};
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(fd_read_all(fd, &manual, 1 << 20), 0);
	for (size_t i = 0; i < monitor_keys_n; i++) {
		const struct monitor_key *k = &monitor_keys[i];
		CLEANUP(buf_done) struct buf line = {0};

		buf_puts(&line, "\n| `");
		for (const char *s = k->shown; *s; s++)
			if (s[0] == ',' && s[1] == ' ') {
				buf_puts(&line, "`, `");
				s++;
			} else {
				buf_putc(&line, *s);
			}
		buf_printf(&line, "` | %s | %s |\n",
			k->where == IN_ALL	 ? "everywhere"
			: k->where == IN_UNIFIED ? "all cards"
						 : "by node",
			k->text);
		if (!strstr(buf_str(&manual), buf_str(&line)))
			fail_msg("docs/monitor.md lacks %s", buf_str(&line));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_keys_of_the_views),
		cmocka_unit_test(test_panes_and_focus),
		cmocka_unit_test(test_selection_moves_and_sticks),
		cmocka_unit_test(test_process_keys),
		cmocka_unit_test(test_a_signal_wants_two_presses),
		cmocka_unit_test(test_only_the_same_key_or_enter_confirms),
		cmocka_unit_test(test_a_click_is_for_the_process_that_was_drawn_there),
		cmocka_unit_test(test_nobody_types_into_a_line_that_is_not_there),
		cmocka_unit_test(test_what_disarms_a_signal),
		cmocka_unit_test(test_every_failed_node_is_seen_by_pages),
		cmocka_unit_test(test_a_short_screen_has_command_and_history),
		cmocka_unit_test(test_another_process_of_that_number_gets_no_signal),
		cmocka_unit_test(test_time_travel),
		cmocka_unit_test(test_history_forgets_what_is_gone),
		cmocka_unit_test(test_questions_take_all_keys),
		cmocka_unit_test(test_overlays_close_without_quitting),
		cmocka_unit_test(test_clicks),
		cmocka_unit_test(test_settings_by_name),
		cmocka_unit_test(test_header_of_profiling),
		cmocka_unit_test(test_the_manual_has_every_key),
	};

	setlocale(LC_CTYPE, "C.UTF-8");
	setenv("TZ", "UTC", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
