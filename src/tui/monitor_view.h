/*
 * The monitor as a picture: a model, a size and the time in, a frame out. Pure, but that the model remembers what a window
 * showed first and how large a page was. monitor_view.c has head, overlays and the frame; the rest is for its siblings.
 */
#pragma once

#include "tui/columns.h"
#include "tui/monitor_keys.h"

enum { VIEW_COLS_MIN = 40, VIEW_ROWS_MIN = 10, NARROW_COLS = 72, SHORT_ROWS = 36 };

struct view_time {
	int64_t boot_ms, wall_ms;
};

/* f's grid has `ascii` set already. */
void monitor_draw(struct monitor *m, struct frame *f, int cols, int rows, struct view_time now);
/* The same facts for people who listen: sentences, one a line, without positions, marks or colours. */
void monitor_plain(const struct monitor *m, struct view_time now, struct buf *out);

/* ---- between the files of the view ---- */

/* What a cell of a table of cards shows. */
enum card_cell {
	CELL_MARK,
	CELL_NODE,
	CELL_ADDRESS,
	CELL_INDEX,
	CELL_MODEL,
	CELL_FAN,
	CELL_UTIL,
	CELL_TEMP,
	CELL_LINK,
	CELL_RX,
	CELL_TX,
	CELL_POWER,
	CELL_MEM_UTIL,
	CELL_MEMORY,
	CELL_USERS,
	CARD_CELL_N
};
/* Draws one card as a row of columns whose i-th shows cells[i]. */
void view_card_row(struct monitor *m, struct frame *f, const struct columns *c,
	const enum card_cell *cells, struct card_row r, int y, bool is_selected);
/* Text of one cell; nothing for a dash. */
void view_cell_text(
	const struct monitor *m, struct card_row r, enum card_cell cell, struct buf *out);
/* Cells of the widest model's name on those nodes' cards, within reason: a table is to have room for them first. */
int view_model_width(const struct monitor *m, size_t from, size_t to);
struct style view_cell_style(const struct monitor *m, struct card_row r, enum card_cell cell);
/* The card's facts of health joined to one sentence; false: there are none of that weight. */
bool view_health(const struct monitor *m, struct card_row r, enum health_weight least,
	struct buf *out, enum ink *ret_ink);
/* "down: its sentence", the kind of words a failed or waiting node has instead of figures. */
void view_node_state(const struct monitor_node *n, struct buf *out);
enum ink view_level(int64_t v, int64_t warn, int64_t bad, enum ink ordinary);
void view_uses_line(struct frame *f, struct rect r, const char *title, struct show_uses *u);
/* Lines of the window that are hidden above and below, said in a line each where there are some. */
void view_more(struct frame *f, struct rect r, int n, bool is_above, const char *what);

void view_nodes(struct monitor *m, struct frame *f, struct rect r, struct view_time now);
void view_unified(struct monitor *m, struct frame *f, struct rect r, struct view_time now);
/* Lines of `rows` that the pane would like, with `cards` of them left to the table; and what it draws into those it gets. */
int view_procs_height(const struct monitor *m, int rows, int cards);
void view_procs(struct monitor *m, struct frame *f, struct rect r, struct card_row card,
	struct view_time now);
/* Graphs of the card, and of the process when there's one. */
void view_trends(struct monitor *m, struct frame *f, struct rect r, struct card_row card,
	const struct proc_row *p);
/* Of all cards of a node together. */
void view_node_trends(struct monitor *m, struct frame *f, struct rect r, uint32_t node);
