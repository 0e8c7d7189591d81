/*
 * What the monitor knows and what a person has chosen: events and samples in, a new state and wishes out. Pure: the time
 * is a parameter, the wishes (a signal, an answer, settings to be kept) are the loop's to carry out. Samples are borrowed
 * from whoever gave them, until the next monitor_take for that node.
 */
#pragma once

#include "show/health.h"
#include "show/once.h"
#include "tui/frame.h"
#include "tui/history.h"
#include "tui/input.h"
#include "tui/pane.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ARMED_MS = 5000, NOTICE_MS = 8000, PROC_FILTER_MAX = 80, PROC_ROWS_MAX = 12 };

enum view_mode { MODE_NODES, MODE_UNIFIED };
enum view_sort { SORT_NODE, SORT_AVAILABLE, SORT_UTILIZATION, SORT_N };
enum view_filter { FILTER_ALL, FILTER_AVAILABLE, FILTER_BUSY, FILTER_ERRORS, FILTER_N };

/* What view: in config.yml keeps; the names of the words are view_words'. */
struct view_settings {
	int mode, sort, filter; /* enum view_* */
	bool detailed, processes, trends, group_by_node, hide_unsupported, mouse;
	const char *theme; /* one of theme.h's names */
};
void view_defaults(struct view_settings *v);
/* As the file spells them; false: such a key or value isn't known, *v is as before. */
bool view_set(struct view_settings *v, const char *key, const char *value);
/* The i-th key and its value as text; false after the last. */
bool view_get(
	const struct view_settings *v, size_t i, const char **ret_key, const char **ret_value);

enum proc_sort { BY_VRAM = 1, BY_CPU, BY_MEM, BY_RSS, BY_TIME, BY_PID, BY_COMMAND, BY_N };
enum proc_group { GROUP_NONE, GROUP_TREE, GROUP_USER, GROUP_N };
enum focus { FOCUS_CARDS, FOCUS_PROCS };
enum overlay { OVERLAY_NONE, OVERLAY_HELP, OVERLAY_FACTS };

struct monitor_node {
	struct show_host
		host; /* name, state, why, ... : owned copies of its texts below; sample borrowed */
	char *name, *address, *why;
	int64_t sample_at_ms;
	bool is_open, was_toggled; /* per-node view */
	bool refuses; /* a person wouldn't answer it: it isn't to ask again before it's retried */
	struct history history;
};

/* A card in the unified view, or below its node: where it is, not what it is. */
struct card_row {
	uint32_t node, card; /* positions */
};

/* A process as the pane shows it: values, so that a moment of the past looks like the present. */
struct proc_row {
	int32_t pid;
	uint64_t start_ticks;
	uint32_t row; /* in snap.procs; UINT32_MAX: it's of the past */
	uint32_t kind; /* enum gpu_proc_kind bits */
	char state; /* R, S, D, ...; 0 unknown */
	int32_t threads; /* 0 unknown */
	char user[40];
	char comm[32];
	const char *command; /* borrowed; the whole line, or comm */
	struct value used_mib, cpu_pct, mem_permille, rss_mib, time_ms;
	int depth; /* GROUP_TREE: below its parent */
	bool is_head; /* GROUP_USER: a line for the user himself, with the sums; pid 0 */
};

/* A card or process that stays selected while rows move. */
struct card_key {
	uint32_t node;
	int32_t index, gi, ci;
};
struct proc_key {
	int32_t pid;
	uint64_t start_ticks;
	char head[40]; /* GROUP_USER's lines */
};

struct question {
	uint64_t id;
	uint32_t node;
	char *host, *text; /* owned */
	bool is_secret;
	struct question *next;
};

struct armed {
	int signo; /* 0: none */
	uint32_t node;
	int32_t pid;
	uint64_t start_ticks;
	char command[160]; /* as it was when armed: must still be so */
	int64_t until_ms;
};

#define RETRY_FAILED UINT32_MAX
/* What the loop shall do; it clears each once it's done. */
struct wishes {
	bool quit, stop, redraw_all, keep_settings, new_theme;
	struct armed signal; /* signo != 0: send it */
	bool has_answer;
	uint64_t question;
	char answer[EDIT_MAX];
	bool is_refused;
	bool has_retry;
	uint32_t retry; /* node, or RETRY_FAILED */
};

struct monitor {
	struct monitor_node *nodes;
	size_t n_nodes;
	struct view_settings view;
	bool is_debug, is_compact, wants_dcgm;
	bool hides_pane; /* detailed mode: hidden by `p`; not kept */
	enum focus focus;
	enum overlay overlay;
	int overlay_scroll;
	/* nodes: the selected server. cards: the selected card. errors: the first line shown. */
	uint32_t node;
	struct card_key card;
	struct proc_key proc;
	int first_line, first_card, first_proc, first_error,
		first_command; /* what a window shows first */
	int proc_sort; /* enum proc_sort */
	bool proc_reverse;
	int proc_group;
	int proc_rows; /* asked for; 0: automatic */
	bool is_filtering;
	struct edit proc_filter;
	struct armed armed;
	char notice[256];
	uint8_t notice_ink;
	int64_t notice_until_ms;
	int64_t travel_ms; /* the moment that's shown; 0: now */
	struct question *questions;
	struct edit answer;
	/* What the last picture had room for: pages, and whether there's a second pane. */
	int page, proc_page, command_page, n_errors_shown;
	bool has_pane, is_small;
	struct wishes wishes;
};

/* names: of the nodes, in order; NULL address: this machine. */
void monitor_init(struct monitor *m, size_t n_nodes);
void monitor_done(struct monitor *m);
/* Node i as it is now; a sample that arrived at another time than the last one goes into its history. */
void monitor_take(struct monitor *m, size_t i, const struct show_host *h, int64_t sample_at_ms);
void monitor_event(
	struct monitor *m, const struct input_event *ev, const struct frame *shown, int64_t now_ms);
/* Time passes: an armed signal or a notice that's over. Returns whether that changed anything. */
bool monitor_tick(struct monitor *m, int64_t now_ms);
void monitor_notice(struct monitor *m, enum ink ink, int64_t now_ms, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* False: it was refused before, so nobody is bothered; the caller answers that. */
bool monitor_ask(struct monitor *m, uint64_t id, uint32_t node, const char *text, bool is_secret);

/* ---- asked by views and keys ---- */

/* Cards that pass the filter, in order; the caller frees. ret_all: how many there are without it. */
struct card_row *monitor_cards(const struct monitor *m, size_t *ret_n, size_t *ret_all);
const struct gpu_card *monitor_card(const struct monitor *m, struct card_row r);
/* A figure now, or at the moment that's travelled to (where only history's tracks are known). */
struct value monitor_value(const struct monitor *m, struct card_row r, enum metric metric);
/* The selected one's position in rows, 0 when it's gone. */
size_t monitor_selected(const struct monitor *m, const struct card_row *rows, size_t n);
/* The processes on a card, filtered, sorted and grouped; the caller frees. ret_all: without the filter. */
struct proc_row *monitor_procs(
	const struct monitor *m, struct card_row r, int64_t now_ms, size_t *ret_n, size_t *ret_all);
size_t monitor_selected_proc(const struct monitor *m, const struct proc_row *rows, size_t n);
/* What a row is known by in a picture: its process, or whose line it is, wherever it stands by now. */
int64_t monitor_proc_arg(const struct proc_row *p);
bool monitor_pane_is_wanted(const struct monitor *m);
bool node_has_failed(const struct monitor_node *n);
/* Shown among the nodes: not hidden for having no card. */
bool monitor_shows_node(const struct monitor *m, size_t i);
/* Open in the per-node view. */
bool node_is_open(const struct monitor *m, const struct monitor_node *n);
size_t monitor_failures(const struct monitor *m);
bool proc_sort_is_ascending(int sort);

/* ---- for keys (monitor_keys.c) ---- */
void monitor_select_card(struct monitor *m, struct card_row r);
void monitor_select_proc(struct monitor *m, const struct proc_row *p);
void monitor_cancel_signal(struct monitor *m);
void monitor_answer(struct monitor *m, bool is_refused);
