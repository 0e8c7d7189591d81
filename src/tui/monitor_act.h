/* Panes, selection, signals and time: the parts that the monitor's keys are made of. Inside of the model. */
#pragma once

#include "tui/monitor_keys.h"

/* Shows the process pane and goes there; not from the list of failed nodes. */
void monitor_act_enter_pane(struct monitor *m);
void monitor_act_toggle_pane(struct monitor *m);

void monitor_act_move_node(struct monitor *m, int by);
void monitor_act_move_card(struct monitor *m, int by);
void monitor_act_move_proc(struct monitor *m, int by, int64_t now_ms);
/* Whichever of them has the focus, or the list of failed nodes. */
void monitor_act_move(struct monitor *m, int by, int64_t now_ms);
/* Rows of a page where the focus is. */
int monitor_act_page(const struct monitor *m);
/* The selected one; its node is UINT32_MAX where there's no card. */
struct card_row monitor_act_card(const struct monitor *m);

/* Arms, and the second time sends: the armed one is sent if it's still what was armed. signo 0: Enter, which only confirms. */
void monitor_act_signal(struct monitor *m, int signo, int64_t now_ms);
/* Within what the histories have; at their end it's now again. */
void monitor_act_travel(struct monitor *m, int64_t by_ms, int64_t now_ms);

void monitor_act_open_all(struct monitor *m, bool is_open);
void monitor_act_toggle_node(struct monitor *m);
void monitor_act_next_theme(struct monitor *m);
/* The signal, else the notice, else the filter, else the past. */
void monitor_act_escape(struct monitor *m);
/* The same again turns it round. */
void monitor_act_sort_by(struct monitor *m, int sort);
void monitor_act_more_rows(struct monitor *m, int by);
void monitor_act_page_command(struct monitor *m, int by);
/* The selected node, or all of the list of those that failed. */
void monitor_act_retry(struct monitor *m);
/* arg: as of DO_WHY. */
void monitor_act_why(struct monitor *m, int64_t arg, int64_t now_ms);
void monitor_act_show_errors(struct monitor *m);
