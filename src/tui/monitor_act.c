/* Panes, selection, signals and time: what the monitor's keys are made of (monitor_act.h). */
#include "tui/monitor_act.h"

#include "base/cleanup.h"
#include "tui/theme.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_ROWS = 3 };

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

void monitor_act_enter_pane(struct monitor *m)
{
	if (m->view.filter == FILTER_ERRORS)
		return;
	show_pane(m);
	m->focus = FOCUS_PROCS;
}

void monitor_act_toggle_pane(struct monitor *m)
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

void monitor_act_move_node(struct monitor *m, int by)
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

void monitor_act_move_card(struct monitor *m, int by)
{
	size_t n, all;
	CLEANUP_FREE struct card_row *rows = monitor_cards(m, &n, &all);

	if (n)
		monitor_select_card(
			m, rows[list_move((int)monitor_selected(m, rows, n), by, (int)n)]);
}

struct card_row monitor_act_card(const struct monitor *m)
{
	size_t n, all;
	CLEANUP_FREE struct card_row *rows = monitor_cards(m, &n, &all);

	return n ? rows[monitor_selected(m, rows, n)] : (struct card_row){UINT32_MAX, 0};
}

void monitor_act_move_proc(struct monitor *m, int by, int64_t now_ms)
{
	size_t n, all;
	CLEANUP_FREE struct proc_row *rows =
		monitor_procs(m, monitor_act_card(m), now_ms, &n, &all);

	if (n)
		monitor_select_proc(
			m, &rows[list_move((int)monitor_selected_proc(m, rows, n), by, (int)n)]);
}

void monitor_act_move(struct monitor *m, int by, int64_t now_ms)
{
	int where = monitor_where(m);

	if (where == IN_NODES)
		monitor_act_move_node(m, by);
	else if (m->view.filter == FILTER_ERRORS)
		m->first_error = list_move(m->first_error, by, (int)monitor_failures(m));
	else if (where == IN_PROCS)
		monitor_act_move_proc(m, by, now_ms);
	else
		monitor_act_move_card(m, by);
}

int monitor_act_page(const struct monitor *m)
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
void monitor_act_signal(struct monitor *m, int signo, int64_t now_ms)
{
	struct card_row at = monitor_act_card(m);
	size_t n, all, i;
	CLEANUP_FREE struct proc_row *rows = NULL;

	if (monitor_where(m) != IN_PROCS) {
		monitor_act_enter_pane(m);
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

void monitor_act_travel(struct monitor *m, int64_t by_ms, int64_t now_ms)
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

void monitor_act_open_all(struct monitor *m, bool is_open)
{
	for (size_t i = 0; i < m->n_nodes; i++) {
		m->nodes[i].was_toggled = true;
		m->nodes[i].is_open = is_open;
	}
}

void monitor_act_toggle_node(struct monitor *m)
{
	struct monitor_node *n = m->node < m->n_nodes ? &m->nodes[m->node] : NULL;

	if (!n)
		return;
	n->is_open = !node_is_open(m, n);
	n->was_toggled = true;
}

void monitor_act_next_theme(struct monitor *m)
{
	for (size_t i = 0; i < themes_n; i++)
		if (!strcmp(themes[i].name, m->view.theme)) {
			m->view.theme = themes[(i + 1) % themes_n].name;
			break;
		}
	m->wishes.new_theme = true;
	keep(m);
}

void monitor_act_escape(struct monitor *m)
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

void monitor_act_sort_by(struct monitor *m, int sort)
{
	if (sort == m->proc_sort) {
		m->proc_reverse = !m->proc_reverse;
	} else {
		m->proc_sort = sort;
		m->proc_reverse = false;
	}
}

void monitor_act_more_rows(struct monitor *m, int by)
{
	int rows = (m->proc_rows	      ? m->proc_rows
			   : m->proc_page > 0 ? m->proc_page
					      : FIRST_ROWS) +
		   by;

	m->proc_rows = rows < 1 ? 1 : rows > PROC_ROWS_MAX ? PROC_ROWS_MAX : rows;
	monitor_act_enter_pane(m);
}

void monitor_act_page_command(struct monitor *m, int by)
{
	monitor_act_enter_pane(m);
	m->first_command += by * (m->command_page > 0 ? m->command_page : 1);
	if (m->first_command < 0)
		m->first_command = 0;
}

void monitor_act_why(struct monitor *m, int64_t arg, int64_t now_ms)
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

void monitor_act_show_errors(struct monitor *m)
{
	m->view.mode = MODE_UNIFIED;
	m->view.filter = FILTER_ERRORS;
	m->focus = FOCUS_CARDS;
	m->first_error = 0;
	keep(m);
}

/* In the list of failed nodes none is selected: it's all of them. */
void monitor_act_retry(struct monitor *m)
{
	bool is_all = m->view.mode == MODE_UNIFIED && m->view.filter == FILTER_ERRORS;

	m->wishes.has_retry = m->n_nodes > 0;
	m->wishes.retry = is_all ? RETRY_FAILED : m->node;
	for (uint32_t i = 0; i < m->n_nodes; i++)
		if (is_all ? node_has_failed(&m->nodes[i]) : i == m->node)
			m->nodes[i].refuses = false;
}
