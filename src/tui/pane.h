/*
 * Panes, buttons, a scrolled list's window, a line that's edited, and boxes on top: what both screens are put together
 * from. Pure.
 */
#pragma once

#include "tui/frame.h"
#include "tui/input.h"

/* ---- panes ---- */

/* A frame, solid when active, dashed when not, with its title in the upper edge; returns what's inside. A rectangle of less than 3 by 2 has no frame. */
struct rect pane_draw(struct frame *f, struct rect r, const char *title, bool is_active);
/* One line of structure across. */
void pane_rule(struct frame *f, struct rect r);

/* ---- action bar ---- */

struct button {
	const char *key; /* "i" */
	const char *text; /* "SIGINT" */
	int action;
	int64_t arg;
	bool is_armed; /* shown as waiting for its confirmation */
	bool is_on; /* what it switches is on */
};
/* As many as fit into one line: "[i] SIGINT  [T] SIGTERM". Returns how many were drawn. */
size_t buttons_draw(struct frame *f, struct rect r, const struct button *items, size_t n);

/* ---- lists ---- */

/* The first of n rows to show of `room`, so that `selected` is seen and `first` changes as little as possible. */
int list_window(int first, int selected, int n, int room);
/* selected moved by `by`, within 0..n-1; 0 when there's nothing. */
int list_move(int selected, int by, int n);

/* ---- a line that's edited ---- */

#define EDIT_MAX 512
struct edit {
	char text[EDIT_MAX]; /* UTF-8 */
	size_t n, limit; /* bytes; limit 0: EDIT_MAX - 1 */
	bool is_secret; /* shown as stars */
};
enum edit_result { EDIT_NOTHING, EDIT_CHANGED, EDIT_DONE, EDIT_CANCELLED };
enum edit_result edit_key(struct edit *e, uint32_t key);
void edit_clear(struct edit *e); /* wiped: it may have been a secret */
/* The label, the text's end and the cursor in one line. */
void edit_draw(struct frame *f, struct rect r, const char *label, const struct edit *e);

/* ---- boxes on top ---- */

/* A framed, cleared box in the middle, at most w by h and at most the screen; returns its inside. */
struct rect box_draw(struct frame *f, int w, int h, const char *title);

struct help_line {
	const char *keys; /* "j, Down"; NULL: text is a heading */
	const char *text;
};
/* Drawn from line *scroll on, which is cut to what there is; texts are wrapped where the box is too wide for the screen. A click anywhere is `action`. Returns the number of lines. */
int help_draw(struct frame *f, const char *title, const struct help_line *lines, size_t n,
	int *scroll, int action);
/* "the terminal has 30x5 cells; 40x10 are needed", as much as fits. */
void too_small_draw(struct frame *f, int cols, int rows);
