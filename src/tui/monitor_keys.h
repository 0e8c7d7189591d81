/*
 * The table of the monitor's keys: what each does where. Dispatch, the line of hints, help and the manual are made from it,
 * and so is the test that presses all of them.
 */
#pragma once

#include "tui/monitor_model.h"

enum { IN_NODES = 1, IN_CARDS = 2, IN_PROCS = 4, IN_UNIFIED = IN_CARDS | IN_PROCS, IN_ALL = 7 };

enum monitor_action {
	DO_NOTHING,
	DO_VIEW,
	DO_DETAIL,
	DO_SORT,
	DO_FILTER,
	DO_GROUP,
	DO_UNSUPPORTED,
	DO_TRENDS,
	DO_ENTER, /* shows and focuses the process pane */
	DO_TOGGLE, /* the selected server */
	DO_LEAVE,
	DO_SWITCH,
	DO_PANE,
	DO_DOWN,
	DO_UP,
	DO_PAGE_DOWN,
	DO_PAGE_UP,
	DO_FIRST,
	DO_LAST,
	DO_PROC_FILTER,
	DO_PROC_SORT,
	DO_PROC_REVERSE,
	DO_MORE,
	DO_LESS,
	DO_COMMAND_BACK,
	DO_COMMAND_ON,
	DO_SIGINT,
	DO_SIGTERM,
	DO_SIGKILL,
	DO_OPEN_ALL,
	DO_CLOSE_ALL,
	DO_PAST,
	DO_PRESENT,
	DO_PROC_GROUP,
	DO_FACTS,
	DO_THEME,
	DO_RETRY,
	DO_HELP,
	DO_ESC,
	DO_REDRAW,
	DO_STOP,
	DO_QUIT,
	/* By the mouse only: */
	DO_SELECT_CARD, /* arg: node << 32 | card */
	DO_SELECT_NODE,
	DO_SELECT_PROC, /* arg: monitor_proc_arg */
	DO_SORT_BY, /* arg: enum proc_sort */
	DO_ERRORS,
	DO_CLOSE_OVERLAY,
	DO_CARDS_PANE, /* only where the wheel is */
	DO_PROCS_PANE,
	DO_COMMAND_PANE,
	DO_WHY, /* arg: node << 40 | card << 16 | metric */
};

struct monitor_key {
	uint32_t keys[4];
	int where;
	int action;
	char shown[24]; /* "Enter, Space" */
	char hint[16]; /* a word for the line of hints; "": not there */
	char text[80];
};
extern const struct monitor_key monitor_keys[];
extern const size_t monitor_keys_n;

/* IN_NODES, IN_CARDS or IN_PROCS. */
int monitor_where(const struct monitor *m);
void monitor_do(struct monitor *m, int action, int64_t arg, int64_t now_ms);
