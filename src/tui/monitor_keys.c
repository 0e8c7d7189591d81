/* What keys and clicks do to the model (monitor_keys.h). */
#include "tui/monitor_keys.h"

#include "base/cleanup.h"
#include "tui/theme.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEP_MS = 1000, FIRST_ROWS = 3 };

int monitor_where(const struct monitor *m)
{
	if (m->view.mode == MODE_NODES)
		return IN_NODES;
	return m->focus == FOCUS_PROCS && monitor_pane_is_wanted(m) ? IN_PROCS : IN_CARDS;
}

static void keep(struct monitor *m)
{
	m->wishes.keep_settings = true;
}

/* ---- panes ---- */

static void show_pane(struct monitor *m)
{
	if (m->view.detailed) {
		m->hides_pane = false;
	} else if (!m->view.processes) {
		m->view.processes = true;
		keep(m);
	}
}

static void enter_pane(struct monitor *m)
{
	if (m->view.filter == FILTER_ERRORS)
		return;
	show_pane(m);
	m->focus = FOCUS_PROCS;
}

static void toggle_pane(struct monitor *m)
{
	bool is_shown = monitor_pane_is_wanted(m);

	if (m->view.detailed) {
		m->hides_pane = is_shown;
	} else {
		m->view.processes = !is_shown;
		keep(m);
	}
	if (is_shown) {
		m->focus = FOCUS_CARDS;
		monitor_cancel_signal(m);
	}
}

/* ---- moving ---- */

static void move_node(struct monitor *m, int by)
{
	int step = by < 0 ? -1 : 1, left = abs(by);
	int64_t at = m->node;

	for (int64_t i = at + step; left && i >= 0 && i < (int64_t)m->n_nodes; i += step)
		if (monitor_shows_node(m, (size_t)i)) {
			at = i;
			left--;
		}
	m->node = (uint32_t)at;
}

static void move_card(struct monitor *m, int by)
{
	size_t n, all;
	CLEANUP_FREE struct card_row *rows = monitor_cards(m, &n, &all);

	if (n)
		monitor_select_card(
			m, rows[list_move((int)monitor_selected(m, rows, n), by, (int)n)]);
}

static struct card_row selected_card(const struct monitor *m)
{
	size_t n, all;
	CLEANUP_FREE struct card_row *rows = monitor_cards(m, &n, &all);

	return n ? rows[monitor_selected(m, rows, n)] : (struct card_row){UINT32_MAX, 0};
}

static void move_proc(struct monitor *m, int by, int64_t now_ms)
{
	size_t n, all;
	CLEANUP_FREE struct proc_row *rows = monitor_procs(m, selected_card(m), now_ms, &n, &all);

	if (n)
		monitor_select_proc(
			m, &rows[list_move((int)monitor_selected_proc(m, rows, n), by, (int)n)]);
}

static void move(struct monitor *m, int by, int64_t now_ms)
{
	int where = monitor_where(m);

	if (where == IN_NODES)
		move_node(m, by);
	else if (m->view.filter == FILTER_ERRORS)
		m->first_error = list_move(m->first_error, by, (int)monitor_failures(m));
	else if (where == IN_PROCS)
		move_proc(m, by, now_ms);
	else
		move_card(m, by);
}

static int page_of(const struct monitor *m)
{
	return monitor_where(m) == IN_PROCS ? 5 : m->page > 1 ? m->page : 1;
}

/* ---- signals ---- */

static const char *signal_name(int signo)
{
	return signo == SIGINT ? "SIGINT" : signo == SIGTERM ? "SIGTERM" : "SIGKILL";
}

static bool is_same_proc(const struct armed *a, const struct proc_row *p, uint32_t node)
{
	return a->signo && a->node == node && a->pid == p->pid &&
	       a->start_ticks == p->start_ticks &&
	       !strncmp(a->command, p->command, sizeof(a->command) - 1);
}

/* The armed one is sent if it's still what was armed. */
static void confirm(struct monitor *m, const struct proc_row *p, uint32_t node, int64_t now_ms)
{
	if (p && is_same_proc(&m->armed, p, node))
		m->wishes.signal = m->armed;
	else
		monitor_notice(m, INK_BAD, now_ms,
			"nothing was sent: the process isn't the one that was armed any more");
	monitor_cancel_signal(m);
}

static void arm(
	struct monitor *m, int signo, const struct proc_row *p, uint32_t node, int64_t now_ms)
{
	if (m->travel_ms) {
		monitor_notice(m, INK_WARN, now_ms,
			"that is the past; Esc goes back to now, then signals can be sent");
		return;
	}
	if (p->is_head || p->pid <= 1) {
		monitor_notice(
			m, INK_WARN, now_ms, "%s is for a single process", signal_name(signo));
		return;
	}
	if (!p->start_ticks) {
		monitor_notice(m, INK_WARN, now_ms,
			"process %d can't be told from a later one of that number: its start isn't known",
			p->pid);
		return;
	}
	m->notice[0] = '\0';
	m->armed = (struct armed){.signo = signo,
		.node = node,
		.pid = p->pid,
		.start_ticks = p->start_ticks,
		.until_ms = now_ms + ARMED_MS};
	snprintf(m->armed.command, sizeof(m->armed.command), "%s", p->command);
}

/* signo 0: Enter. */
static void signal_key(struct monitor *m, int signo, int64_t now_ms)
{
	struct card_row at = selected_card(m);
	size_t n, all, i;
	CLEANUP_FREE struct proc_row *rows = NULL;

	if (monitor_where(m) != IN_PROCS) {
		enter_pane(m);
		return;
	}
	rows = monitor_procs(m, at, now_ms, &n, &all);
	i = monitor_selected_proc(m, rows, n);
	if (m->armed.signo && (!signo || signo == m->armed.signo)) {
		confirm(m, n ? &rows[i] : NULL, at.node, now_ms);
		return;
	}
	monitor_cancel_signal(m);
	if (!n)
		return;
	monitor_select_proc(m, &rows[i]);
	arm(m, signo, &rows[i], at.node, now_ms);
}

/* ---- time ---- */

static void travel(struct monitor *m, int64_t by_ms, int64_t now_ms)
{
	int64_t oldest = 0, latest = 0, to;

	for (size_t i = 0; i < m->n_nodes; i++) {
		const struct history *h = &m->nodes[i].history;

		if (!h->n)
			continue;
		if (!oldest || h->at_ms[(h->head + HISTORY_N - h->n + 1) % HISTORY_N] < oldest)
			oldest = h->at_ms[(h->head + HISTORY_N - h->n + 1) % HISTORY_N];
		if (h->at_ms[h->head] > latest)
			latest = h->at_ms[h->head];
	}
	if (!latest || (!m->travel_ms && by_ms > 0))
		return;
	monitor_cancel_signal(m);
	to = (m->travel_ms ? m->travel_ms : latest) + by_ms;
	m->travel_ms = to < oldest ? oldest : to >= latest ? 0 : to;
}

/* ---- the rest ---- */

static void set_all_open(struct monitor *m, bool is_open)
{
	for (size_t i = 0; i < m->n_nodes; i++) {
		m->nodes[i].was_toggled = true;
		m->nodes[i].is_open = is_open;
	}
}

static void toggle_node(struct monitor *m)
{
	struct monitor_node *n = m->node < m->n_nodes ? &m->nodes[m->node] : NULL;

	if (!n)
		return;
	n->is_open = !node_is_open(m, n);
	n->was_toggled = true;
}

static void next_theme(struct monitor *m)
{
	for (size_t i = 0; i < themes_n; i++)
		if (!strcmp(themes[i].name, m->view.theme)) {
			m->view.theme = themes[(i + 1) % themes_n].name;
			break;
		}
	m->wishes.new_theme = true;
	keep(m);
}

static void escape(struct monitor *m)
{
	if (m->armed.signo)
		monitor_cancel_signal(m);
	else if (m->notice[0])
		m->notice[0] = '\0';
	else if (m->proc_filter.n)
		edit_clear(&m->proc_filter);
	else
		m->travel_ms = 0;
}

static void sort_by(struct monitor *m, int sort)
{
	if (sort == m->proc_sort) {
		m->proc_reverse = !m->proc_reverse;
	} else {
		m->proc_sort = sort;
		m->proc_reverse = false;
	}
}

static void more_rows(struct monitor *m, int by)
{
	int rows = (m->proc_rows	      ? m->proc_rows
			   : m->proc_page > 0 ? m->proc_page
					      : FIRST_ROWS) +
		   by;

	m->proc_rows = rows < 1 ? 1 : rows > PROC_ROWS_MAX ? PROC_ROWS_MAX : rows;
	enter_pane(m);
}

static void page_command(struct monitor *m, int by)
{
	enter_pane(m);
	m->first_command += by * (m->command_page > 0 ? m->command_page : 1);
	if (m->first_command < 0)
		m->first_command = 0;
}

static void why(struct monitor *m, int64_t arg, int64_t now_ms)
{
	struct card_row r = {(uint32_t)(arg >> 40), (uint32_t)(arg >> 16 & 0xFFFFFF)};
	int64_t metric = arg & 0xFFFF;
	static const char *const reasons[VALUE_STATE_N] = {
		[VALUE_NOT_ASKED] = "it isn't asked for on this machine",
		[VALUE_UNSUPPORTED] = "this card or driver doesn't have it",
		[VALUE_FORBIDDEN] = "this account may not read it",
		[VALUE_EMPTY] = "the driver has no value for it at the moment",
		[VALUE_ASLEEP] = "the card is asleep, and asking would wake it",
		[VALUE_LOST] = "the card is gone",
		[VALUE_FAILED] = "the driver gave an error, or a figure out of range",
	};
	struct value v;

	if (metric >= METRIC_N || !monitor_card(m, r))
		return;
	v = monitor_value(m, r, (enum metric)metric);
	if (v.state != VALUE_PRESENT)
		monitor_notice(m, INK_PLAIN, now_ms, "no %s: %s", metric_info[metric].key,
			reasons[v.state]);
}

static void show_errors(struct monitor *m)
{
	m->view.mode = MODE_UNIFIED;
	m->view.filter = FILTER_ERRORS;
	m->focus = FOCUS_CARDS;
	m->first_error = 0;
	keep(m);
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
	keep(m);
}

static void do_pane(struct monitor *m, int action, int64_t now_ms)
{
	switch (action) {
	case DO_ENTER:
		if (m->armed.signo)
			signal_key(m, 0, now_ms);
		else
			enter_pane(m);
		break;
	case DO_TOGGLE:
		toggle_node(m);
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
		toggle_pane(m);
		break;
	case DO_PROC_FILTER:
		enter_pane(m);
		m->is_filtering = m->view.filter != FILTER_ERRORS;
		break;
	case DO_PROC_SORT:
		enter_pane(m);
		m->proc_sort = m->proc_sort % (BY_N - 1) + 1;
		m->proc_reverse = false;
		break;
	case DO_PROC_REVERSE:
		enter_pane(m);
		m->proc_reverse = !m->proc_reverse;
		break;
	default:
		enter_pane(m);
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
			toggle_node(m);
		else if (arg < (int64_t)m->n_nodes)
			m->node = (uint32_t)arg;
		break;
	case DO_SELECT_PROC:
		rows = monitor_procs(m, selected_card(m), now_ms, &n, &all);
		if (arg < (int64_t)n)
			monitor_select_proc(m, &rows[arg]);
		m->focus = FOCUS_PROCS;
		break;
	case DO_SORT_BY:
		sort_by(m, (int)arg);
		break;
	case DO_CARDS_PANE:
	case DO_PROCS_PANE:
	case DO_COMMAND_PANE:
		m->focus = action == DO_CARDS_PANE ? FOCUS_CARDS : FOCUS_PROCS;
		break;
	case DO_ERRORS:
		show_errors(m);
		break;
	case DO_WHY:
		why(m, arg, now_ms);
		break;
	default:
		break;
	}
}

static void do_program(struct monitor *m, int action)
{
	switch (action) {
	case DO_THEME:
		next_theme(m);
		break;
	case DO_RETRY:
		m->wishes.has_retry = m->n_nodes > 0;
		m->wishes.retry = m->node;
		if (m->node < m->n_nodes)
			m->nodes[m->node].refuses = false;
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
		do_pane(m, action, now_ms);
		break;
	case DO_DOWN:
	case DO_UP:
		move(m, action == DO_DOWN ? 1 : -1, now_ms);
		break;
	case DO_PAGE_DOWN:
	case DO_PAGE_UP:
		move(m, action == DO_PAGE_DOWN ? page_of(m) : -page_of(m), now_ms);
		break;
	case DO_FIRST:
	case DO_LAST:
		move(m, action == DO_LAST ? 1000000 : -1000000, now_ms);
		break;
	case DO_MORE:
	case DO_LESS:
		more_rows(m, action == DO_MORE ? 1 : -1);
		break;
	case DO_COMMAND_BACK:
	case DO_COMMAND_ON:
		page_command(m, action == DO_COMMAND_ON ? 1 : -1);
		break;
	case DO_SIGINT:
		signal_key(m, SIGINT, now_ms);
		break;
	case DO_SIGTERM:
		signal_key(m, SIGTERM, now_ms);
		break;
	case DO_SIGKILL:
		signal_key(m, SIGKILL, now_ms);
		break;
	case DO_OPEN_ALL:
	case DO_CLOSE_ALL:
		set_all_open(m, action == DO_OPEN_ALL);
		break;
	case DO_PAST:
	case DO_PRESENT:
		travel(m, action == DO_PAST ? -STEP_MS : STEP_MS, now_ms);
		break;
	case DO_ESC:
		escape(m);
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

	if (r == EDIT_DONE)
		monitor_answer(m, !m->answer.n);
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
	else
		monitor_do(m, action_of(m, ev->key), 0, now_ms);
}

static void wheel_event(
	struct monitor *m, const struct input_event *ev, const struct hit *hit, int64_t now_ms)
{
	if (m->overlay) {
		m->overlay_scroll += 3 * ev->wheel;
	} else if (m->view.mode == MODE_NODES) {
		move_node(m, ev->wheel);
	} else if (m->view.filter == FILTER_ERRORS) {
		move(m, ev->wheel, now_ms);
	} else if (hit && hit->action == DO_COMMAND_PANE) {
		m->first_command =
			m->first_command + ev->wheel < 0 ? 0 : m->first_command + ev->wheel;
	} else if (hit && (hit->action == DO_PROCS_PANE || hit->action == DO_SELECT_PROC)) {
		move_proc(m, ev->wheel, now_ms);
	} else {
		move_card(m, ev->wheel);
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
	if (ev->kind == EVENT_WHEEL)
		wheel_event(m, ev, hit, now_ms);
	else if (hit && m->overlay)
		m->overlay = OVERLAY_NONE;
	else if (hit)
		monitor_do(m, hit->action, hit->arg, now_ms);
}
