/*
 * The queue's screen without a terminal: every key of its table, clicks, order, scope and activity. Its pictures are
 * test_tui_pictures.c's, its layout at any size test_tui_layout.c's.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <locale.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "queue_world.h"
#include "tui/queue_plain.h"

static struct queue_want wish(struct queue_world *w)
{
	struct queue_want first = queue_model_wish(&w->m);

	while (queue_model_wish(&w->m).what)
		;
	return first;
}

static enum queue_wish press(struct queue_world *w, uint32_t key)
{
	wish(w);
	queue_world_press(w, key);
	return wish(w).what;
}

static void click(struct queue_world *w, int action, int64_t arg)
{
	struct input_event ev = {.kind = EVENT_CLICK};

	queue_world_draw(w, 160, 50);
	for (size_t i = w->f.n_hits; i-- > 0;) {
		const struct hit *h = &w->f.hits[i];

		if (h->action != action || h->arg != arg || !h->at.w || !h->at.h)
			continue;
		ev.x = h->at.x;
		ev.y = h->at.y;
		if (frame_find(&w->f, ev.x, ev.y) != h)
			continue;
		queue_model_event(&w->m, &ev, &w->f, 1000);
		return;
	}
	fail_msg("nothing there does %d with %lld", action, (long long)arg);
}

static int64_t job_at(struct queue_world *w, size_t i)
{
	size_t n;
	size_t *v = queue_model_jobs(&w->m, QUEUE_NOW, &n);
	int64_t id = i < n ? w->m.snap.jobs[v[i]].id : 0;

	free(v);
	return id;
}

static size_t count(struct queue_world *w)
{
	size_t n;

	free(queue_model_jobs(&w->m, QUEUE_NOW, &n));
	return n;
}

static void select_job(struct queue_world *w, int64_t id)
{
	w->m.job = id;
	w->m.focus = QFOCUS_JOBS;
}

/* ---- keys ---- */

static void test_selection(void **state)
{
	struct queue_world w;

	queue_world_make(&w, 2, 8);
	queue_world_draw(&w, 120, 40);
	/* The longest runtime first. */
	assert_int_equal(w.m.job, 8);
	press(&w, 'j');
	assert_int_equal(w.m.job, 7);
	press(&w, KEY_ARROW_UP);
	assert_int_equal(w.m.job, 8);
	press(&w, 'G');
	assert_int_equal(w.m.job, job_at(&w, count(&w) - 1));
	press(&w, 'g');
	assert_int_equal(w.m.job, 8);
	press(&w, KEY_PAGE_DOWN);
	assert_int_equal(w.m.job, job_at(&w, (size_t)w.m.job_page < count(&w) ? (size_t)w.m.job_page
									      : count(&w) - 1));
	press(&w, KEY_PAGE_UP);
	assert_int_equal(w.m.job, 8);
	press(&w, KEY_TAB);
	assert_int_equal(w.m.focus, QFOCUS_NODES);
	press(&w, 'j');
	assert_int_equal(w.m.node, 1);
	press(&w, KEY_ARROW_RIGHT);
	press(&w, KEY_ARROW_RIGHT);
	assert_int_equal(w.m.card, 1);
	press(&w, KEY_ARROW_LEFT);
	press(&w, KEY_ARROW_LEFT);
	press(&w, KEY_ARROW_LEFT);
	assert_int_equal(w.m.card, -1);
	press(&w, KEY_PAGE_DOWN);
	assert_true(w.m.first_row > 0);
	press(&w, KEY_PAGE_UP);
	assert_int_equal(w.m.first_row, 0);
	/* The last row is what waits for any GPU. */
	press(&w, 'j');
	press(&w, 'j');
	assert_int_equal(w.m.node, 2);
	press(&w, 'k');
	assert_int_equal(w.m.node, 1);
	queue_world_done(&w);
}

static void test_scope(void **state)
{
	struct queue_world w;

	queue_world_make(&w, 2, 8);
	queue_world_draw(&w, 120, 40);
	press(&w, KEY_TAB);
	press(&w, KEY_RETURN);
	assert_int_equal(w.m.scope, SCOPE_NODE);
	assert_int_equal(count(&w), 4);
	press(&w, KEY_ARROW_RIGHT);
	press(&w, KEY_ARROW_RIGHT);
	press(&w, KEY_RETURN);
	assert_int_equal(w.m.scope, SCOPE_CARD);
	assert_int_equal(count(&w), 1);
	press(&w, 'x');
	assert_int_equal(w.m.scope, SCOPE_NONE);
	press(&w, KEY_RETURN);
	press(&w, KEY_ESC);
	assert_int_equal(w.m.scope, SCOPE_NONE);
	w.m.node = 2;
	w.m.card = -1;
	press(&w, KEY_RETURN);
	assert_int_equal(w.m.scope, SCOPE_POOL);
	assert_int_equal(count(&w), 5);
	queue_world_done(&w);
}

static void test_changes(void **state)
{
	struct queue_world w;
	struct queue_want wanted;

	queue_world_make(&w, 1, 8);
	select_job(&w, 1);
	assert_int_equal(press(&w, 'c'), WISH_NONE);
	assert_int_equal(w.m.armed, 1);
	/* Another job isn't cancelled by the second press. */
	press(&w, 'j');
	assert_int_equal(w.m.armed, 0);
	select_job(&w, 1);
	press(&w, 'c');
	assert_true(queue_model_tick(&w.m, 1000 + QUEUE_ARMED_MS));
	assert_int_equal(w.m.armed, 0);
	press(&w, 'c');
	press(&w, KEY_ESC);
	assert_int_equal(w.m.armed, 0);
	press(&w, 'c');
	queue_world_press(&w, 'c');
	wanted = wish(&w);
	assert_int_equal(wanted.what, WISH_CANCEL);
	assert_int_equal(wanted.id, 1);
	/* What has ended, and what doesn't wait. */
	select_job(&w, 11);
	assert_int_equal(press(&w, 'r'), WISH_REQUEUE);
	assert_int_equal(press(&w, 'c'), WISH_NONE);
	assert_non_null(strstr(w.m.notice, "ended already"));
	select_job(&w, 1);
	assert_int_equal(press(&w, 'r'), WISH_NONE);
	assert_int_equal(press(&w, '+'), WISH_NONE);
	assert_int_equal(press(&w, 'K'), WISH_NONE);
	select_job(&w, 6);
	queue_world_press(&w, '+');
	assert_int_equal(wish(&w).by, 1);
	queue_world_press(&w, '=');
	assert_int_equal(wish(&w).by, 1);
	queue_world_press(&w, '-');
	wanted = wish(&w);
	assert_int_equal(wanted.what, WISH_PRIORITY);
	assert_int_equal(wanted.by, -1);
	w.m.sort = QSORT_NAME;
	queue_world_press(&w, 'K');
	wanted = wish(&w);
	assert_int_equal(wanted.what, WISH_MOVE);
	assert_int_equal(wanted.by, 1);
	assert_int_equal(w.m.sort, QSORT_QUEUE);
	queue_world_press(&w, 'J');
	assert_int_equal(wish(&w).by, -1);
	{
		struct input_event up = {.kind = EVENT_KEY,
					   .key = KEY_ARROW_UP,
					   .is_shifted = true},
				   down = {.kind = EVENT_KEY,
					   .key = KEY_ARROW_DOWN,
					   .is_shifted = true};

		queue_model_event(&w.m, &up, &w.f, 1000);
		assert_int_equal(wish(&w).by, 1);
		queue_model_event(&w.m, &down, &w.f, 1000);
		assert_int_equal(wish(&w).by, -1);
	}
	queue_world_done(&w);
}

static void test_the_other_keys(void **state)
{
	struct queue_world w;

	queue_world_make(&w, 1, 8);
	queue_world_draw(&w, 120, 40);
	for (int i = 1; i < QSORT_N; i++) {
		int was = w.m.sort;

		press(&w, 's');
		assert_int_equal(w.m.sort, was % (QSORT_N - 1) + 1);
	}
	press(&w, 'S');
	assert_true(w.m.is_reversed);
	for (int i = 1; i <= QFILTER_HELD; i++) {
		press(&w, 'f');
		assert_int_equal(w.m.filter, i % QFILTER_HELD);
	}
	assert_int_equal(press(&w, 't'), WISH_TICK);
	press(&w, 'a');
	assert_false(w.m.is_auto);
	press(&w, 'v');
	assert_true(w.m.is_capacity);
	press(&w, 'v');
	press(&w, 'p');
	assert_true(w.m.is_capacity);
	assert_int_equal(w.m.procs, QPROCS_SUMMARY);
	press(&w, 'p');
	assert_int_equal(w.m.procs, QPROCS_ALL);
	press(&w, 'p');
	assert_int_equal(w.m.procs, QPROCS_OFF);
	queue_world_press(&w, 'd');
	assert_string_equal(w.m.wants[0].node, "gpu1");
	assert_int_equal(wish(&w).what, WISH_DRAIN);
	w.m.snap.nodes[0].is_drained = true;
	assert_int_equal(press(&w, 'd'), WISH_RESUME);
	assert_int_equal(press(&w, 'A'), WISH_ACK);
	assert_int_equal(press(&w, 'T'), WISH_THEME);
	assert_int_equal(press(&w, KEY_CTRL_L), WISH_REDRAW);
	assert_int_equal(press(&w, KEY_CTRL_Z), WISH_STOP);
	w.m.focus = QFOCUS_JOBS;
	assert_int_equal(press(&w, KEY_RETURN), WISH_SHOW);
	assert_true(w.m.has_detail);
	assert_int_equal(press(&w, 'L'), WISH_LOG);
	assert_true(w.m.has_log);
	press(&w, 'L');
	press(&w, KEY_RETURN);
	assert_false(w.m.has_detail);
	assert_int_equal(press(&w, 'q'), WISH_QUIT);
	queue_world_done(&w);
}

static void test_help_quits_only_itself(void **state)
{
	static const uint32_t closes[] = {'?', KEY_ESC, 'q', KEY_RETURN, ' '};
	struct queue_world w;

	queue_world_make(&w, 1, 2);
	for (size_t i = 0; i < ARRAY_LEN(closes); i++) {
		press(&w, '?');
		assert_true(w.m.has_help);
		assert_int_equal(press(&w, closes[i]), WISH_NONE);
		assert_false(w.m.has_help);
	}
	press(&w, '?');
	press(&w, 'j');
	queue_world_draw(&w, 80, 24);
	assert_int_equal(w.m.help_scroll, 1);
	press(&w, 'G');
	queue_world_draw(&w, 80, 24);
	assert_true(w.m.help_scroll > 10);
	press(&w, 'g');
	assert_int_equal(w.m.help_scroll, 0);
	press(&w, KEY_PAGE_DOWN);
	assert_int_equal(w.m.help_scroll, 10);
	assert_int_equal(press(&w, 'c'), WISH_NONE);
	assert_int_equal(w.m.armed, 0);
	click(&w, QDO_CLOSE_HELP, 0);
	assert_false(w.m.has_help);
	queue_world_done(&w);
}

static void test_pages_of_text(void **state)
{
	CLEANUP(buf_done) struct buf log = {0};
	struct queue_world w;

	queue_world_make(&w, 1, 2);
	select_job(&w, 1);
	for (int i = 0; i < 100; i++)
		buf_printf(&log, "line %d\n", i);
	press(&w, 'L');
	queue_model_take_log(&w.m, 1, buf_str(&log), NULL);
	queue_world_draw(&w, 120, 40);
	assert_int_equal(w.m.text_lines, 100);
	/* Its end first; back is up. */
	assert_int_equal(w.m.first_line, 0);
	press(&w, '[');
	assert_int_equal(w.m.first_line, w.m.text_page);
	press(&w, ']');
	assert_int_equal(w.m.first_line, 0);
	for (int i = 0; i < 100; i++)
		press(&w, '[');
	assert_int_equal(w.m.first_line, 100 - w.m.text_page);
	queue_world_done(&w);
}

/* ---- the mouse ---- */

static void test_clicks(void **state)
{
	struct queue_world w;

	queue_world_make(&w, 1, 4);
	click(&w, QDO_SELECT_NODE, QUEUE_PLACE(0, 1));
	assert_int_equal(w.m.scope, SCOPE_CARD);
	assert_string_equal(w.m.scope_card, "1");
	click(&w, QDO_CLEAR, 0);
	assert_int_equal(w.m.scope, SCOPE_NONE);
	click(&w, QDO_SELECT_NODE, QUEUE_PLACE(0, -1));
	assert_int_equal(w.m.scope, SCOPE_NODE);
	press(&w, 'x');
	click(&w, QDO_CARD_OF_JOB, 1);
	assert_true(w.m.has_detail);
	assert_int_equal(w.m.job, 1);
	click(&w, QDO_CARD_OF_JOB, 1);
	assert_false(w.m.has_detail);
	click(&w, QDO_POOL, 0);
	assert_int_equal(w.m.scope, SCOPE_POOL);
	press(&w, 'x');
	click(&w, QDO_SORT_BY, QSORT_ID);
	assert_int_equal(w.m.sort, QSORT_ID);
	click(&w, QDO_SORT_BY, QSORT_ID);
	assert_true(w.m.is_reversed);
	click(&w, QDO_FILTER_BY, QFILTER_RUNNING);
	assert_int_equal(w.m.filter, QFILTER_RUNNING);
	assert_int_equal(w.m.job, 2);
	click(&w, QDO_SELECT_JOB, 1);
	assert_int_equal(w.m.job, 1);
	assert_false(w.m.has_detail);
	click(&w, QDO_SELECT_JOB, 1);
	assert_true(w.m.has_detail);
	click(&w, QDO_CANCEL, 0);
	assert_int_equal(w.m.armed, 1);
	click(&w, QDO_QUIT, 0);
	queue_world_done(&w);
	queue_world_lab(&w);
	click(&w, QDO_LANE, QUEUE_PLACE(0, 0));
	assert_int_equal(w.m.scope, SCOPE_LANE);
	assert_int_equal(count(&w), 3);
	/* By their place in the lane, whatever their priority. */
	assert_int_equal(job_at(&w, 0), 4);
	assert_int_equal(job_at(&w, 2), 2);
	click(&w, QDO_ALERT, w.m.snap.alerts[1].id);
	assert_int_equal(w.m.scope, SCOPE_NODE);
	assert_string_equal(w.m.scope_node, "dead");
	queue_world_done(&w);
}

/* An alert that has come since the picture stands above it: the click is for the one that was seen. */
static void test_a_click_is_for_the_alert_that_was_drawn_there(void **state)
{
	struct input_event ev = {.kind = EVENT_CLICK, .x = 5, .y = 2};
	struct queue_world w;
	json_t *newer;

	queue_world_lab(&w);
	queue_world_draw(&w, 160, 50);
	assert_int_equal(frame_find(&w.f, ev.x, ev.y)->arg, w.m.snap.alerts[0].id);
	queue_world_alert(&w, "job 1 was lost", 1, "");
	newer = json_incref(json_array_get(json_object_get(w.o, "alerts"),
		json_array_size(json_object_get(w.o, "alerts")) - 1));
	json_array_insert_new(json_object_get(w.o, "alerts"), 0, newer);
	queue_world_take(&w);
	queue_model_event(&w.m, &ev, &w.f, 1000);
	assert_int_equal(w.m.job, 9);
	assert_true(w.m.has_log);
	queue_world_done(&w);
}

static void test_the_wheel_acts_where_it_is(void **state)
{
	struct queue_world w;
	struct input_event ev = {.kind = EVENT_WHEEL, .x = 5, .y = 5, .wheel = 1};

	queue_world_make(&w, 8, 8);
	queue_world_draw(&w, 120, 40);
	queue_model_event(&w.m, &ev, &w.f, 0);
	assert_int_equal(w.m.first_row, 1);
	queue_world_draw(&w, 120, 40);
	assert_int_equal(w.m.first_row, 1);
	ev.y = 25;
	queue_model_event(&w.m, &ev, &w.f, 0);
	assert_int_equal(w.m.job, job_at(&w, 1));
	queue_world_done(&w);
}

/* ---- rules ---- */

static void test_activity(void **state)
{
	struct snap_node n = {.state = "up"};
	struct snap_card c = {.is_present = true, .util_pct = 0, .used_mib = 0};

	assert_int_equal(queue_activity(&n, &c), ACT_IDLE);
	c.util_pct = 50;
	assert_int_equal(queue_activity(&n, &c), ACT_BUSY);
	c.n_external = 1;
	assert_int_equal(queue_activity(&n, &c), ACT_EXTERNAL);
	c.n_jobs = 1;
	assert_int_equal(queue_activity(&n, &c), ACT_RUN);
	snprintf(n.state, sizeof(n.state), "down");
	assert_int_equal(queue_activity(&n, &c), ACT_UNKNOWN);
	snprintf(n.state, sizeof(n.state), "up");
	c = (struct snap_card){.is_present = true, .util_pct = -1, .used_mib = -1};
	assert_int_equal(queue_activity(&n, &c), ACT_UNKNOWN);
	/* Nothing held, but nobody measured what it does: that's no confirmed idleness. */
	c.used_mib = 10;
	assert_int_equal(queue_activity(&n, &c), ACT_UNKNOWN);
	c = (struct snap_card){.util_pct = 0, .used_mib = 0};
	assert_int_equal(queue_activity(&n, &c), ACT_UNKNOWN);
}

static void test_order(void **state)
{
	struct queue_world w;

	queue_world_make(&w, 1, 4);
	/* Without a runtime last, both ways. */
	w.m.filter = QFILTER_ALL;
	assert_int_equal(job_at(&w, 0), 2);
	assert_int_equal(job_at(&w, 1), 1);
	assert_int_equal(job_at(&w, 2), 8);
	w.m.is_reversed = true;
	assert_int_equal(job_at(&w, 0), 8);
	assert_int_equal(job_at(&w, 2), 2);
	w.m.sort = QSORT_QUEUE;
	w.m.is_reversed = false;
	w.m.filter = QFILTER_PENDING;
	assert_int_equal(job_at(&w, 0), 7);
	assert_int_equal(job_at(&w, 4), 3);
	queue_world_done(&w);
}

static void test_selection_sticks(void **state)
{
	struct queue_world w;

	queue_world_make(&w, 2, 4);
	press(&w, 'j');
	press(&w, 'j');
	assert_int_equal(w.m.job, 2);
	w.m.node = 1;
	w.m.card = 2;
	/* The first node is gone, a new job has come. */
	json_array_remove(json_object_get(w.o, "nodes"), 0);
	queue_world_job(&w, "running", "new", 0);
	queue_world_take(&w);
	assert_int_equal(w.m.job, 2);
	assert_int_equal(w.m.node, 0);
	assert_int_equal(w.m.card, 2);
	queue_world_done(&w);
}

/* Until something is done with it the first one is selected; then it's that one, whatever comes. */
static void test_a_job_that_is_acted_on_stays_selected(void **state)
{
	static const uint32_t keys[] = {KEY_RETURN, 'L', 'c', '+', 'K'};
	struct queue_world w;

	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		int64_t was;

		queue_world_make(&w, 1, 2);
		w.m.sort = QSORT_ID;
		w.m.is_reversed = true;
		queue_world_job(&w, "pending", "first", 0);
		queue_world_take(&w);
		was = w.m.job;
		assert_int_equal(was, job_at(&w, 0));
		press(&w, keys[i]);
		queue_world_job(&w, "pending", "newer", 0);
		queue_world_take(&w);
		w.m.sort = QSORT_ID;
		w.m.is_reversed = true;
		assert_int_not_equal(was, job_at(&w, 0));
		assert_int_equal(w.m.job, was);
		/* The second press is about the same one. */
		if (keys[i] == 'c')
			assert_int_equal(press(&w, 'c'), WISH_CANCEL);
		queue_world_done(&w);
	}
}

/* A lane is handed out as a whole: what waits in it waits, and is shown there. */
static void test_a_lane_that_was_handed_out_waits(void **state)
{
	struct queue_world w;
	CLEANUP(buf_done) struct buf b = {0};
	const char *node = "\xe6\xb7\xb1\xe5\xb1\xa4-node";
	enum ink ink;
	size_t n;

	queue_world_lab(&w);
	for (size_t i = 1; i < 4; i++) {
		json_t *j = json_array_get(json_object_get(w.o, "jobs"), i);

		json_object_set_new(j, "bound", json_true());
		json_object_set_new(j, "node", json_string_nocheck(node));
		json_object_set_new(j, "cards", json_pack("[s]", "0"));
	}
	queue_world_take(&w);
	free(queue_model_waiting(&w.m, node, "0", &n));
	assert_int_equal(n, 3);
	assert_null(queue_model_on_card(&w.m, &w.m.snap.nodes[0], &w.m.snap.nodes[0].cards[0], 1));
	assert_string_equal(queue_badge(&w.m.snap.jobs[1], true, &ink), ". pend");
	queue_world_draw(&w, 200, 50);
	grid_text(&w.f.grid, &b);
	assert_non_null(
		strstr(buf_str(&b), "{ lane Q3 } \xe2\x94\x80\xe2\x94\x80\xe2\x96\xb6 [1:#4"));
	queue_world_done(&w);
}

/* ---- line by line ---- */

struct talk {
	struct queue_world w;
	struct queue_plain p;
	struct buf said;
};

static void type(struct talk *t, const char *line)
{
	buf_clear(&t->said);
	wish(&t->w);
	queue_plain_line(&t->p, &t->w.m, line, 1000, QUEUE_NOW, &t->said);
}

static void news(struct talk *t)
{
	buf_clear(&t->said);
	queue_plain_news(&t->p, &t->w.m, QUEUE_NOW, &t->said);
}

static void assert_says(const struct talk *t, const char *words)
{
	if (!strstr(buf_str(&t->said), words))
		fail_msg("\"%s\" isn't in: %s", words, buf_str(&t->said));
}

static void test_lines_do_what_keys_do(void **state)
{
	static const struct {
		const char *line;
		enum queue_wish what;
		int64_t id, by;
	} cases[] = {{"11", WISH_SHOW, 11, 0}, {"L 1", WISH_LOG, 1, 0},
		{" r 11 ", WISH_REQUEUE, 11, 0}, {"+6", WISH_PRIORITY, 6, 1},
		{"- 6", WISH_PRIORITY, 6, -1}, {"K 6", WISH_MOVE, 6, 1},
		{"J 6\r", WISH_MOVE, 6, -1}, {"t", WISH_TICK, 0, 0}, {"A", WISH_ACK, 0, 0},
		{"q", WISH_QUIT, 0, 0}, {"d gpu1", WISH_DRAIN, 0, 0}, {"r", WISH_NONE, 0, 0},
		{"c 99", WISH_NONE, 0, 0}, {"d nowhere", WISH_NONE, 0, 0},
		{"quit", WISH_NONE, 0, 0}, {"v", WISH_NONE, 0, 0},
		{"9999999999999999999999", WISH_NONE, 0, 0}};
	struct talk t = {.p = {0}};
	struct queue_want got;

	queue_world_make(&t.w, 1, 8);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		type(&t, cases[i].line);
		got = wish(&t.w);
		assert_int_equal(got.what, cases[i].what);
		assert_int_equal(got.id, cases[i].id);
		assert_int_equal(got.by, cases[i].by);
		if (!cases[i].what)
			assert_true(t.said.len > 0);
	}
	type(&t, "");
	assert_says(&t, "Server gpu1: up, 8 GPUs.");
	type(&t, "?");
	assert_says(&t, "c cancels it");
	type(&t, "a");
	assert_false(t.w.m.is_auto);
	type(&t, "f");
	assert_int_equal(t.w.m.filter, QFILTER_ALL);
	assert_says(&t, "11 all jobs, by queue:");
	queue_world_done(&t.w);
	buf_done(&t.said);
}

static void test_a_cancel_by_line_is_confirmed(void **state)
{
	struct talk t = {.p = {0}};
	struct queue_want got;

	queue_world_make(&t.w, 1, 8);
	type(&t, "c 1");
	assert_int_equal(wish(&t.w).what, WISH_NONE);
	assert_says(&t, "Cancel job 1, train-1-1? y cancels it");
	/* Another line keeps it, and is done. */
	type(&t, "c 2");
	assert_says(&t, "It's kept.");
	assert_says(&t, "Cancel job 2");
	assert_int_equal(wish(&t.w).what, WISH_NONE);
	type(&t, "yes");
	got = wish(&t.w);
	assert_int_equal(got.what, WISH_CANCEL);
	assert_int_equal(got.id, 2);
	/* A later yes means nothing. */
	type(&t, "y");
	assert_int_equal(wish(&t.w).what, WISH_NONE);
	queue_world_done(&t.w);
	buf_done(&t.said);
}

static void test_news_are_said_once(void **state)
{
	CLEANUP(buf_done) struct buf log = {0};
	struct talk t = {.p = {0}};
	json_t *o = json_pack("{s:I, s:s, s:{s:s}}", "id", (json_int_t)1, "why", "it runs", "job",
		"command", "true " QUEUE_HOSTILE);

	queue_world_make(&t.w, 1, 2);
	news(&t);
	assert_says(&t, "Job 1, train-1-1: running on gpu1 GPU 1");
	news(&t);
	assert_int_equal(t.said.len, 0);
	type(&t, "1");
	news(&t);
	assert_int_equal(t.said.len, 0);
	queue_model_take_shown(&t.w.m, o);
	news(&t);
	assert_says(&t, "Details of job 1:\n");
	assert_says(&t, "why: it runs\n");
	assert_null(strchr(buf_str(&t.said), 27));
	news(&t);
	assert_int_equal(t.said.len, 0);
	type(&t, "L 1");
	queue_model_take_log(&t.w.m, 1, "epoch 1\nepoch 2\n", NULL);
	news(&t);
	assert_string_equal(
		buf_str(&t.said), "The end of the output of job 1:\nepoch 1\nepoch 2\n");
	for (int i = 0; i < 200; i++)
		buf_printf(&log, "line %d\n", i);
	type(&t, "L 1");
	queue_model_take_log(&t.w.m, 1, buf_str(&log), NULL);
	news(&t);
	assert_says(&t, "The end of the output of job 1:\nline 180\nline 181\n");
	assert_says(&t, "line 199\n");
	queue_model_notice(&t.w.m, false, 1000, "job 1 is cancelled");
	news(&t);
	assert_string_equal(buf_str(&t.said), "job 1 is cancelled\n");
	news(&t);
	assert_int_equal(t.said.len, 0);
	json_decref(o);
	queue_world_done(&t.w);
	buf_done(&t.said);
}

static void test_what_is_no_snapshot(void **state)
{
	static const char *const bad[] = {"null", "[]", "{}", "{\"nodes\":[],\"jobs\":[]}",
		"{\"nodes\":1,\"jobs\":[],\"alerts\":[]}"};
	struct snap s;
	json_t *o = json_loads(
		"{\"nodes\":[null,{\"gpus\":[1]}],\"jobs\":[{},7],\"alerts\":[[]]}", 0, NULL);

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		json_t *v = json_loads(bad[i], JSON_DECODE_ANY, NULL);

		assert_int_equal(snap_read(v, &s), -EINVAL);
		json_decref(v);
	}
	assert_int_equal(snap_read(o, &s), 0);
	assert_int_equal(s.nodes[1].cards[0].util_pct, -1);
	assert_string_equal(s.jobs[1].name, "");
	snap_done(&s);
	json_decref(o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_selection),
		cmocka_unit_test(test_scope),
		cmocka_unit_test(test_changes),
		cmocka_unit_test(test_the_other_keys),
		cmocka_unit_test(test_help_quits_only_itself),
		cmocka_unit_test(test_pages_of_text),
		cmocka_unit_test(test_clicks),
		cmocka_unit_test(test_the_wheel_acts_where_it_is),
		cmocka_unit_test(test_activity),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_selection_sticks),
		cmocka_unit_test(test_a_job_that_is_acted_on_stays_selected),
		cmocka_unit_test(test_a_click_is_for_the_alert_that_was_drawn_there),
		cmocka_unit_test(test_what_is_no_snapshot),
		cmocka_unit_test(test_a_lane_that_was_handed_out_waits),
		cmocka_unit_test(test_lines_do_what_keys_do),
		cmocka_unit_test(test_a_cancel_by_line_is_confirmed),
		cmocka_unit_test(test_news_are_said_once),
	};

	if (!setlocale(LC_ALL, "C.UTF-8"))
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
