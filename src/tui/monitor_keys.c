/* What keys and clicks do to the model (monitor_keys.h): which action is whose, and events to actions. */
#include "tui/monitor_act.h"

#include "base/cleanup.h"

#include <signal.h>
#include <stdlib.h>

enum { STEP_MS = 1000 };

int monitor_where(const struct monitor *m)
{
	if (m->view.mode == MODE_NODES)
		return IN_NODES;
	return m->focus == FOCUS_PROCS && monitor_pane_is_wanted(m) ? IN_PROCS : IN_CARDS;
}

static void set_view(struct monitor *m, int action)
{
	struct view_settings *v = &m->view;

	switch (action) {
	case DO_VIEW:
		v->mode = v->mode == MODE_NODES ? MODE_UNIFIED : MODE_NODES;
		break;
	case DO_DETAIL:
		v->detailed = !v->detailed;
		break;
	case DO_SORT:
		v->sort = (v->sort + 1) % SORT_N;
		break;
	case DO_FILTER:
		v->filter = (v->filter + 1) % FILTER_N;
		m->first_error = 0;
		break;
	case DO_GROUP:
		v->group_by_node = !v->group_by_node;
		break;
	case DO_UNSUPPORTED:
		v->hide_unsupported = !v->hide_unsupported;
		break;
	default:
		v->trends = !v->trends;
		break;
	}
	monitor_cancel_signal(m);
	m->wishes.keep_settings = true;
}

static void do_pane(struct monitor *m, int action)
{
	switch (action) {
	case DO_ENTER:
		monitor_act_enter_pane(m);
		break;
	case DO_TOGGLE:
		monitor_act_toggle_node(m);
		break;
	case DO_LEAVE:
		m->focus = FOCUS_CARDS;
		monitor_cancel_signal(m);
		break;
	case DO_SWITCH:
		if (monitor_where(m) == IN_PROCS)
			m->focus = FOCUS_CARDS;
		else if (monitor_pane_is_wanted(m))
			m->focus = FOCUS_PROCS;
		break;
	case DO_PANE:
		monitor_act_toggle_pane(m);
		break;
	case DO_PROC_FILTER:
		monitor_act_enter_pane(m);
		m->is_filtering = m->view.filter != FILTER_ERRORS;
		break;
	case DO_PROC_SORT:
		monitor_act_enter_pane(m);
		m->proc_sort = m->proc_sort % (BY_N - 1) + 1;
		m->proc_reverse = false;
		break;
	case DO_PROC_REVERSE:
		monitor_act_enter_pane(m);
		m->proc_reverse = !m->proc_reverse;
		break;
	default:
		monitor_act_enter_pane(m);
		m->proc_group = (m->proc_group + 1) % GROUP_N;
		break;
	}
}

static void do_mouse(struct monitor *m, int action, int64_t arg, int64_t now_ms)
{
	size_t n, all;
	CLEANUP_FREE struct proc_row *rows = NULL;

	switch (action) {
	case DO_SELECT_CARD:
		monitor_select_card(m, (struct card_row){(uint32_t)(arg >> 32), (uint32_t)arg});
		m->focus = FOCUS_CARDS;
		break;
	case DO_SELECT_NODE:
		if (m->node == (uint32_t)arg)
			monitor_act_toggle_node(m);
		else if (arg < (int64_t)m->n_nodes)
			m->node = (uint32_t)arg;
		break;
	case DO_SELECT_PROC:
		/* The one that was drawn there: the order may have changed since. */
		rows = monitor_procs(m, monitor_act_card(m), now_ms, &n, &all);
		for (size_t i = 0; i < n; i++)
			if (monitor_proc_arg(&rows[i]) == arg) {
				monitor_select_proc(m, &rows[i]);
				break;
			}
		m->focus = FOCUS_PROCS;
		break;
	case DO_SORT_BY:
		monitor_act_sort_by(m, (int)arg);
		break;
	case DO_CARDS_PANE:
	case DO_PROCS_PANE:
	case DO_COMMAND_PANE:
		m->focus = action == DO_CARDS_PANE ? FOCUS_CARDS : FOCUS_PROCS;
		break;
	case DO_ERRORS:
		monitor_act_show_errors(m);
		break;
	case DO_WHY:
		monitor_act_why(m, arg, now_ms);
		break;
	default:
		break;
	}
}

static void do_program(struct monitor *m, int action)
{
	switch (action) {
	case DO_THEME:
		monitor_act_next_theme(m);
		break;
	case DO_RETRY:
		monitor_act_retry(m);
		break;
	case DO_HELP:
	case DO_FACTS:
		m->overlay = action == DO_HELP ? OVERLAY_HELP : OVERLAY_FACTS;
		m->overlay_scroll = 0;
		break;
	case DO_REDRAW:
		m->wishes.redraw_all = true;
		break;
	case DO_STOP:
		m->wishes.stop = true;
		break;
	case DO_QUIT:
		m->wishes.quit = true;
		break;
	default:
		m->overlay = OVERLAY_NONE;
		break;
	}
}

void monitor_do(struct monitor *m, int action, int64_t arg, int64_t now_ms)
{
	switch (action) {
	case DO_VIEW:
	case DO_DETAIL:
	case DO_SORT:
	case DO_FILTER:
	case DO_GROUP:
	case DO_UNSUPPORTED:
	case DO_TRENDS:
		set_view(m, action);
		break;
	case DO_ENTER:
	case DO_TOGGLE:
	case DO_LEAVE:
	case DO_SWITCH:
	case DO_PANE:
	case DO_PROC_FILTER:
	case DO_PROC_SORT:
	case DO_PROC_REVERSE:
	case DO_PROC_GROUP:
		do_pane(m, action);
		break;
	case DO_DOWN:
	case DO_UP:
		monitor_act_move(m, action == DO_DOWN ? 1 : -1, now_ms);
		break;
	case DO_PAGE_DOWN:
	case DO_PAGE_UP:
		monitor_act_move(m,
			action == DO_PAGE_DOWN ? monitor_act_page(m) : -monitor_act_page(m),
			now_ms);
		break;
	case DO_FIRST:
	case DO_LAST:
		monitor_act_move(m, action == DO_LAST ? 1000000 : -1000000, now_ms);
		break;
	case DO_MORE:
	case DO_LESS:
		monitor_act_more_rows(m, action == DO_MORE ? 1 : -1);
		break;
	case DO_COMMAND_BACK:
	case DO_COMMAND_ON:
		monitor_act_page_command(m, action == DO_COMMAND_ON ? 1 : -1);
		break;
	case DO_SIGINT:
		monitor_act_signal(m, SIGINT, now_ms);
		break;
	case DO_SIGTERM:
		monitor_act_signal(m, SIGTERM, now_ms);
		break;
	case DO_SIGKILL:
		monitor_act_signal(m, SIGKILL, now_ms);
		break;
	case DO_OPEN_ALL:
	case DO_CLOSE_ALL:
		monitor_act_open_all(m, action == DO_OPEN_ALL);
		break;
	case DO_PAST:
	case DO_PRESENT:
		monitor_act_travel(m, action == DO_PAST ? -STEP_MS : STEP_MS, now_ms);
		break;
	case DO_ESC:
		monitor_act_escape(m);
		break;
	case DO_THEME:
	case DO_RETRY:
	case DO_HELP:
	case DO_FACTS:
	case DO_REDRAW:
	case DO_STOP:
	case DO_QUIT:
	case DO_CLOSE_OVERLAY:
		do_program(m, action);
		break;
	default:
		do_mouse(m, action, arg, now_ms);
		break;
	}
}

/* ---- events ---- */

static int action_of(const struct monitor *m, uint32_t key)
{
	int where = monitor_where(m);

	for (size_t i = 0; i < monitor_keys_n; i++)
		for (size_t k = 0; k < 4 && monitor_keys[i].keys[k]; k++)
			if (monitor_keys[i].keys[k] == key && (monitor_keys[i].where & where))
				return monitor_keys[i].action;
	return DO_NOTHING;
}

static void overlay_key(struct monitor *m, uint32_t key)
{
	switch (key) {
	case 'j':
	case KEY_ARROW_DOWN:
		m->overlay_scroll++;
		break;
	case 'k':
	case KEY_ARROW_UP:
		m->overlay_scroll--;
		break;
	case KEY_PAGE_DOWN:
		m->overlay_scroll += 10;
		break;
	case KEY_PAGE_UP:
		m->overlay_scroll -= 10;
		break;
	case KEY_CTRL_C:
		m->wishes.quit = true;
		break;
	case KEY_CTRL_L:
		m->wishes.redraw_all = true;
		break;
	case '?':
	case 'x':
	case 'q':
	case ' ':
	case KEY_ESC:
	case KEY_RETURN:
	case KEY_FN + 1:
		m->overlay = OVERLAY_NONE;
		break;
	default:
		break;
	}
}

static void answer_key(struct monitor *m, uint32_t key)
{
	enum edit_result r = edit_key(&m->answer, key);

	/* An empty one is one, too: ssh goes on to the next key or way in. */
	if (r == EDIT_DONE)
		monitor_answer(m, false);
	else if (r == EDIT_CANCELLED)
		monitor_answer(m, true);
}

static void filter_key(struct monitor *m, uint32_t key)
{
	enum edit_result r = edit_key(&m->proc_filter, key);

	m->is_filtering = r != EDIT_DONE && r != EDIT_CANCELLED;
	if (r == EDIT_CANCELLED)
		edit_clear(&m->proc_filter);
	if (r == EDIT_CHANGED || r == EDIT_CANCELLED)
		monitor_cancel_signal(m);
}

static void key_event(struct monitor *m, const struct input_event *ev, int64_t now_ms)
{
	if (m->questions)
		answer_key(m, ev->key);
	else if (m->is_filtering)
		filter_key(m, ev->key);
	else if (ev->is_pasted)
		return;
	else if (m->overlay)
		overlay_key(m, ev->key);
	/* Space, l and Right lead into the pane, too, but send nothing. */
	else if (m->armed.signo && ev->key == KEY_RETURN)
		monitor_act_signal(m, 0, now_ms);
	else
		monitor_do(m, action_of(m, ev->key), 0, now_ms);
}

static void wheel_event(
	struct monitor *m, const struct input_event *ev, const struct hit *hit, int64_t now_ms)
{
	if (m->overlay) {
		m->overlay_scroll += 3 * ev->wheel;
	} else if (m->view.mode == MODE_NODES) {
		monitor_act_move_node(m, ev->wheel);
	} else if (m->view.filter == FILTER_ERRORS) {
		monitor_act_move(m, ev->wheel, now_ms);
	} else if (hit && hit->action == DO_COMMAND_PANE) {
		m->first_command =
			m->first_command + ev->wheel < 0 ? 0 : m->first_command + ev->wheel;
	} else if (hit && (hit->action == DO_PROCS_PANE || hit->action == DO_SELECT_PROC)) {
		monitor_act_move_proc(m, ev->wheel, now_ms);
	} else {
		monitor_act_move_card(m, ev->wheel);
	}
}

void monitor_event(
	struct monitor *m, const struct input_event *ev, const struct frame *shown, int64_t now_ms)
{
	const struct hit *hit = NULL;

	if (ev->kind == EVENT_KEY) {
		key_event(m, ev, now_ms);
		return;
	}
	if (ev->kind == EVENT_CLOSED) {
		m->wishes.quit = true;
		return;
	}
	if (m->questions || ev->kind == EVENT_RESIZE)
		return;
	hit = frame_find(shown, ev->x, ev->y);
	if (ev->kind == EVENT_WHEEL) {
		wheel_event(m, ev, hit, now_ms);
	} else if (hit && m->overlay) {
		m->overlay = OVERLAY_NONE;
	} else if (hit) {
		/* As Enter does: what's pressed may lead to where the line isn't. */
		m->is_filtering = false;
		monitor_do(m, hit->action, hit->arg, now_ms);
	}
}
