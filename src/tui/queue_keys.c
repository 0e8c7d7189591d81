/* What keys and clicks do to the queue screen's model (queue_keys.h). */
#include "tui/queue_act.h"

#include "base/cleanup.h"
#include "tui/theme.h"

#include <stdio.h>
#include <string.h>

enum { WHEEL = 3, FOREVER = 1 << 20 };

#define KEYS(...) \
	{ \
		__VA_ARGS__ \
	}
const struct queue_key queue_screen_keys[] = {
	{KEYS('j', KEY_ARROW_DOWN), QDO_DOWN, "j, Down", "the next server or job"},
	{KEYS('k', KEY_ARROW_UP), QDO_UP, "k, Up", "the one before"},
	{KEYS(KEY_ARROW_LEFT), QDO_LEFT, "Left",
		"the selected server's previous GPU, or the server itself"},
	{KEYS(KEY_ARROW_RIGHT), QDO_RIGHT, "Right", "its next GPU"},
	{KEYS(KEY_PAGE_DOWN), QDO_PAGE_DOWN, "PgDn", "a page of GPUs or jobs down"},
	{KEYS(KEY_PAGE_UP), QDO_PAGE_UP, "PgUp", "a page up"},
	{KEYS(KEY_TAB, KEY_BACKTAB), QDO_SWITCH, "Tab", "the other pane: servers or jobs"},
	{KEYS(KEY_RETURN), QDO_ENTER, "Enter",
		"on a server or GPU: only its jobs; on a job: its details, or hide them"},
	{KEYS('['), QDO_TEXT_BACK, "[", "details or log a page back"},
	{KEYS(']'), QDO_TEXT_ON, "]", "details or log a page on"},
	{KEYS('L'), QDO_LOG, "L", "the end of the selected job's output, as it grows"},
	{KEYS('c'), QDO_CANCEL, "c", "cancel the selected job; once more within 5 s confirms"},
	{KEYS('r'), QDO_REQUEUE, "r", "let an ended job wait for a new attempt"},
	{KEYS('+', '='), QDO_RAISE, "+", "priority one up"},
	{KEYS('-'), QDO_LOWER, "-", "priority one down"},
	{KEYS('K', KEY_SHIFT_UP), QDO_MOVE_UP, "K, Shift-Up",
		"a waiting job one place earlier; shows the queue's order"},
	{KEYS('J', KEY_SHIFT_DOWN), QDO_MOVE_DOWN, "J, Shift-Down", "one place later"},
	{KEYS('s'), QDO_SORT, "s", "sort by the next column"},
	{KEYS('S'), QDO_REVERSE, "S", "the other way round"},
	{KEYS('t'), QDO_TICK, "t", "look at the nodes and start jobs now"},
	{KEYS('a'), QDO_AUTO, "a", "do that by itself, or not"},
	{KEYS('f'), QDO_FILTER, "f", "jobs shown: active, all, running, pending, finished"},
	{KEYS('x', KEY_ESC), QDO_CLEAR, "x, Esc", "all jobs again; Esc first takes a cancel back"},
	{KEYS('v'), QDO_VIEW, "v", "task flow, or the servers' capacity"},
	{KEYS('p'), QDO_PROCS, "p", "capacity; again: others' processes, all figures, or neither"},
	{KEYS('d'), QDO_DRAIN, "d", "drain the selected server, or give it jobs again"},
	{KEYS('A'), QDO_ACK, "A", "acknowledge all alerts"},
	{KEYS('g', KEY_FIRST), QDO_FIRST, "g, Home", "to the first job"},
	{KEYS('G', KEY_LAST), QDO_LAST, "G, End", "to the last job"},
	{KEYS('T'), QDO_THEME, "T", "the next theme of colours"},
	{KEYS('?', KEY_FN + 1), QDO_HELP, "?", "this help"},
	{KEYS(KEY_CTRL_L), QDO_REDRAW, "Ctrl-L", "draw the screen anew"},
	{KEYS(KEY_CTRL_Z), QDO_STOP, "Ctrl-Z", "stop; fg goes on"},
	{KEYS('q', KEY_CTRL_C), QDO_QUIT, "q", "quit; jobs go on"},
};
const size_t queue_screen_keys_n = ARRAY_LEN(queue_screen_keys);

/* ---- panes ---- */

static void toggle_detail(struct queue_model *m)
{
	/* Who reads about a job keeps it, whichever is first by the next look. */
	m->was_moved = true;
	if (m->has_log) {
		m->has_log = false;
		m->has_detail = true;
	} else {
		m->has_detail = !m->has_detail;
	}
	queue_act_text_changed(m);
}

static void toggle_log(struct queue_model *m, int64_t now_ms)
{
	if (!m->has_log && !queue_act_job_or_notice(m, now_ms))
		return;
	m->has_log = !m->has_log;
	queue_act_text_changed(m);
}

static void enter(struct queue_model *m)
{
	if (m->focus == QFOCUS_JOBS)
		toggle_detail(m);
	else
		queue_act_scope_to(m, m->card < 0 ? SCOPE_NODE : SCOPE_CARD);
}

/* A task's card: opens that job, again hides it. */
static void open_card(struct queue_model *m, int64_t id)
{
	if (m->job == id && m->has_detail && !m->has_log) {
		m->has_detail = false;
		return;
	}
	m->has_log = false;
	m->has_detail = true;
	m->job = 0;
	queue_act_select_job(m, id);
}

static void click_job(struct queue_model *m, int64_t id)
{
	m->focus = QFOCUS_JOBS;
	if (m->job == id && m->was_moved)
		toggle_detail(m);
	else
		queue_act_select_job(m, id);
}

static void click_alert(struct queue_model *m, int64_t alert)
{
	const struct snap_alert *a = NULL;
	int64_t id;

	for (size_t i = 0; i < m->snap.n_alerts && !a; i++)
		if (m->snap.alerts[i].id == alert)
			a = &m->snap.alerts[i];
	if (!a)
		return;
	id = a->job;
	for (size_t k = 0; !id && k < m->snap.n_nodes; k++)
		if (!strcmp(m->snap.nodes[k].name, a->node)) {
			queue_act_select_node(m, (int)k, -1);
			queue_act_scope_to(m, SCOPE_NODE);
			return;
		}
	if (!id)
		return;
	m->scope = SCOPE_NONE;
	m->filter = QFILTER_ALL;
	m->focus = QFOCUS_JOBS;
	m->has_log = true;
	m->job = 0;
	queue_act_select_job(m, id);
}

static void scroll_text(struct queue_model *m, int by)
{
	int most = m->text_lines - m->text_page;

	/* A log is read from its end: backwards is further from it. */
	m->first_line += m->has_log ? -by : by;
	if (m->first_line > most)
		m->first_line = most;
	if (m->first_line < 0)
		m->first_line = 0;
}

static void sort_by(struct queue_model *m, int sort)
{
	if (m->sort == sort)
		m->is_reversed = !m->is_reversed;
	else
		m->is_reversed = false;
	m->sort = sort;
}

static void filter_by(struct queue_model *m, int filter)
{
	m->filter = filter;
	m->first_job = 0;
	queue_act_after_scope(m);
}

static void theme(struct queue_model *m)
{
	m->theme = (m->theme + 1) % (int)themes_n;
	queue_model_want(m, WISH_THEME, 0, m->theme);
}

static void procs(struct queue_model *m)
{
	if (m->is_capacity)
		m->procs = (m->procs + 1) % QPROCS_N;
	m->is_capacity = true;
	m->first_row = 0;
	m->follows = true;
}

/* While help is open. */
static void do_help(struct queue_model *m, int action)
{
	switch (action) {
	case QDO_DOWN:
		m->help_scroll++;
		break;
	case QDO_UP:
		m->help_scroll--;
		break;
	case QDO_PAGE_DOWN:
	case QDO_TEXT_ON:
		m->help_scroll += 10;
		break;
	case QDO_PAGE_UP:
	case QDO_TEXT_BACK:
		m->help_scroll -= 10;
		break;
	case QDO_FIRST:
		m->help_scroll = 0;
		break;
	case QDO_LAST:
		m->help_scroll = FOREVER;
		break;
	case QDO_HELP:
	case QDO_CLEAR:
	case QDO_ENTER:
	case QDO_QUIT:
	case QDO_CLOSE_HELP:
		m->has_help = false;
		break;
	}
}

static void do_more(struct queue_model *m, int action, int64_t arg, int64_t now_ms)
{
	switch (action) {
	case QDO_SELECT_NODE:
		queue_act_click_place(m, arg, false);
		break;
	case QDO_LANE:
		queue_act_click_place(m, arg, true);
		break;
	case QDO_POOL:
		queue_act_select_node(m, (int)m->snap.n_nodes, -1);
		queue_act_open_waiting(m, SCOPE_POOL);
		break;
	case QDO_SELECT_JOB:
		click_job(m, arg);
		break;
	case QDO_CARD_OF_JOB:
		open_card(m, arg);
		break;
	case QDO_SORT_BY:
		sort_by(m, (int)arg);
		break;
	case QDO_FILTER_BY:
		filter_by(m, (int)arg);
		break;
	case QDO_ALERT:
		click_alert(m, arg);
		break;
	case QDO_DETAIL:
		toggle_detail(m);
		break;
	case QDO_RESOURCES:
		m->focus = QFOCUS_NODES;
		break;
	case QDO_JOBS:
		m->focus = QFOCUS_JOBS;
		break;
	case QDO_REDRAW:
		queue_model_want(m, WISH_REDRAW, 0, 0);
		break;
	case QDO_STOP:
		queue_model_want(m, WISH_STOP, 0, 0);
		break;
	case QDO_QUIT:
		queue_model_want(m, WISH_QUIT, 0, 0);
		break;
	}
	(void)now_ms;
}

void queue_model_do(struct queue_model *m, int action, int64_t arg, int64_t now_ms)
{
	if (m->has_help && action != QDO_REDRAW && action != QDO_STOP) {
		do_help(m, action);
		return;
	}
	switch (action) {
	case QDO_DOWN:
	case QDO_UP:
		queue_act_move(m, action == QDO_DOWN ? 1 : -1);
		break;
	case QDO_LEFT:
	case QDO_RIGHT:
		queue_act_move_card(m, action == QDO_RIGHT ? 1 : -1);
		break;
	case QDO_PAGE_DOWN:
	case QDO_PAGE_UP:
		queue_act_page(m, action == QDO_PAGE_DOWN ? 1 : -1);
		break;
	case QDO_SWITCH:
		m->focus = m->focus == QFOCUS_JOBS ? QFOCUS_NODES : QFOCUS_JOBS;
		m->follows = true;
		break;
	case QDO_ENTER:
		enter(m);
		break;
	case QDO_TEXT_BACK:
	case QDO_TEXT_ON:
		scroll_text(m,
			(action == QDO_TEXT_ON ? 1 : -1) * (m->text_page > 1 ? m->text_page : 1));
		break;
	case QDO_LOG:
		toggle_log(m, now_ms);
		break;
	case QDO_CANCEL:
		queue_act_cancel(m, now_ms);
		break;
	case QDO_REQUEUE:
		queue_act_requeue(m, now_ms);
		break;
	case QDO_RAISE:
	case QDO_LOWER:
		queue_act_change_waiting(m, WISH_PRIORITY, action == QDO_RAISE ? 1 : -1, now_ms);
		break;
	case QDO_MOVE_UP:
	case QDO_MOVE_DOWN:
		queue_act_change_waiting(m, WISH_MOVE, action == QDO_MOVE_UP ? 1 : -1, now_ms);
		break;
	case QDO_SORT:
		m->sort = m->sort % (QSORT_N - 1) + 1;
		m->is_reversed = false;
		break;
	case QDO_REVERSE:
		m->is_reversed = !m->is_reversed;
		break;
	case QDO_TICK:
		queue_model_want(m, WISH_TICK, 0, 0);
		break;
	case QDO_AUTO:
		m->is_auto = !m->is_auto;
		break;
	case QDO_FILTER:
		filter_by(m, m->filter >= QFILTER_FINISHED ? QFILTER_ACTIVE : m->filter + 1);
		break;
	case QDO_CLEAR:
		queue_act_clear(m);
		break;
	case QDO_VIEW:
		m->is_capacity = !m->is_capacity;
		m->first_row = 0;
		m->follows = true;
		break;
	case QDO_PROCS:
		procs(m);
		break;
	case QDO_DRAIN:
		queue_act_drain(m, now_ms);
		break;
	case QDO_ACK:
		queue_model_want(m, WISH_ACK, 0, 0);
		break;
	case QDO_FIRST:
	case QDO_LAST:
		queue_act_move_job(m, action == QDO_FIRST ? -FOREVER : FOREVER);
		break;
	case QDO_THEME:
		theme(m);
		break;
	case QDO_HELP:
		m->has_help = true;
		m->help_scroll = 0;
		break;
	default:
		do_more(m, action, arg, now_ms);
		break;
	}
}

/* ---- events ---- */

static void wheel(struct queue_model *m, int action, int by, int64_t now_ms)
{
	if (m->has_help) {
		m->help_scroll += by * WHEEL;
		return;
	}
	switch (action) {
	case QDO_TEXT:
		scroll_text(m, by * WHEEL);
		break;
	case QDO_RESOURCES:
		m->first_row += by;
		if (m->first_row < 0)
			m->first_row = 0;
		m->follows = false;
		break;
	case QDO_JOBS:
		queue_act_move_job(m, by);
		break;
	}
	(void)now_ms;
}

/* The pane below a place, whatever smaller thing is drawn on it. */
static int pane_at(const struct frame *f, int x, int y)
{
	for (size_t i = f->n_hits; i-- > 0;) {
		int a = f->hits[i].action;

		if ((a == QDO_RESOURCES || a == QDO_JOBS || a == QDO_TEXT) &&
			rect_has(f->hits[i].at, x, y))
			return a;
	}
	return QDO_NOTHING;
}

static void key(struct queue_model *m, uint32_t k, int64_t now_ms)
{
	if (k == KEY_ESC && m->armed) {
		m->armed = 0;
		return;
	}
	if (m->has_help && k == ' ')
		k = KEY_RETURN;
	for (size_t i = 0; i < queue_screen_keys_n; i++)
		for (size_t n = 0; n < ARRAY_LEN(queue_screen_keys[i].keys); n++)
			if (k && queue_screen_keys[i].keys[n] == k) {
				queue_model_do(m, queue_screen_keys[i].action, 0, now_ms);
				return;
			}
}

static uint32_t shifted(const struct input_event *ev)
{
	if (ev->is_shifted && ev->key == KEY_ARROW_UP)
		return KEY_SHIFT_UP;
	return ev->is_shifted && ev->key == KEY_ARROW_DOWN ? KEY_SHIFT_DOWN : ev->key;
}

void queue_model_event(
	struct queue_model *m, const struct input_event *ev, const struct frame *f, int64_t now_ms)
{
	const struct hit *h;

	switch (ev->kind) {
	case EVENT_KEY:
		if (!ev->is_pasted)
			key(m, shifted(ev), now_ms);
		break;
	case EVENT_CLICK:
		h = frame_find(f, ev->x, ev->y);
		if (h)
			queue_model_do(m, h->action, h->arg, now_ms);
		break;
	case EVENT_WHEEL:
		wheel(m, pane_at(f, ev->x, ev->y), ev->wheel, now_ms);
		break;
	case EVENT_CLOSED:
		queue_model_want(m, WISH_QUIT, 0, 0);
		break;
	default:
		break;
	}
}
