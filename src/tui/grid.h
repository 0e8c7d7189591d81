/*
 * A picture of a terminal as values: cells with text and a style, and a pen that writes into them and never leaves its
 * line. Everything a screen shows is drawn into a grid by pure code; screen.c alone carries it to a terminal. Texts from
 * outside are cleaned here: control bytes, bidi controls and invalid bytes become U+FFFD. Widths are those of LC_CTYPE
 * (wcwidth); a wide character that would be cut in half is left out.
 *
 * Life cycle: grid_init, grid_resize and grid_clear for each picture, pens and grid_* into it, grid_done.
 */
#pragma once

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRID_COLS_MAX 1000
#define GRID_ROWS_MAX 500
#define CELL_TEXT 8 /* a character and what fits of its marks, NUL included */

/* What a colour means, not which it is: theme.h has the colours. Green is for healthy and running only. */
enum ink {
	INK_PLAIN,
	INK_DIM, /* structure, what's secondary, absent values */
	INK_FOCUS, /* the active pane, what can be pressed, ordinary figures worth a look */
	INK_GOOD,
	INK_WARN,
	INK_BAD,
	INK_OURS, /* this queue's share of a bar */
	INK_FOREIGN, /* somebody else's */
	INK_N
};
enum paper { PAPER_NONE, PAPER_SELECTED, PAPER_GOOD, PAPER_WARN, PAPER_BAD, PAPER_TRACK, PAPER_N };
enum { STYLE_BOLD = 1, STYLE_REVERSE = 2, STYLE_UNDERLINE = 4 };

struct style {
	uint8_t ink, paper,
		attr; /* enum ink, enum paper, STYLE_* bits; zeroed: the terminal's own */
};
#define STYLE(i) ((struct style){.ink = (i)})
#define STYLE_STRONG(i) ((struct style){.ink = (i), .attr = STYLE_BOLD})

struct cell {
	char text[CELL_TEXT]; /* "" is a blank; NUL-terminated UTF-8 */
	struct style style;
	uint8_t width; /* 1, 2, or 0: the right half of the wide one before it */
};

struct grid {
	int cols, rows;
	struct cell *cells; /* rows * cols */
	bool ascii; /* the terminal has nothing else: set before drawing */
};

/* A rectangle of cells; may be empty (w or h 0), is never negative. */
struct rect {
	int x, y, w, h;
};
struct rect rect_of(int x, int y, int w, int h); /* negative sizes become 0 */
/* Takes the first n lines off (no more than there are) and returns them. */
struct rect rect_take_top(struct rect *r, int n);
struct rect rect_take_bottom(struct rect *r, int n);
bool rect_has(struct rect r, int x, int y);

void grid_init(struct grid *g);
void grid_done(struct grid *g);
/* Sizes beyond the limits are cut to them; all cells are blank afterwards. */
void grid_resize(struct grid *g, int cols, int rows);
void grid_clear(struct grid *g);
struct cell *grid_at(struct grid *g, int x, int y); /* NULL outside */
bool cell_same(const struct cell *a, const struct cell *b);
/* Only the paper (and further attributes) of w cells; the text stays. */
void grid_paper(struct grid *g, int x, int y, int w, enum paper paper, uint8_t attr);
void grid_fill(struct grid *g, struct rect r, const char *glyph, struct style s);
/* Without colours, lines ended, blanks at their ends left out: what a golden file holds. */
void grid_text(const struct grid *g, struct buf *out);
/* The styles beside it, one letter a cell: for golden files that are about colours. */
void grid_styles(const struct grid *g, struct buf *out);

/* ---- a pen: one line, from x to end ---- */

struct pen {
	struct grid *g;
	int from, x, y, end; /* its first cell; the next; the first that isn't ours */
	bool is_cut; /* something didn't fit; what comes is dropped */
	int cut; /* where its dots begin */
};
/* Clipped to the grid. */
struct pen pen_at(struct grid *g, int x, int y, int w);
int pen_left(const struct pen *p);
/* Whatever doesn't fit ends in "..". */
void pen_put(struct pen *p, struct style s, const char *text);
void pen_putn(struct pen *p, struct style s, const char *text, size_t n);
void pen_printf(struct pen *p, struct style s, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The first where the terminal has more than ASCII. */
void pen_either(struct pen *p, struct style s, const char *utf8, const char *ascii);
void pen_skip(struct pen *p, int cells);
/*
 * What was put since `before`, a copy of the pen, is there whole or not at all, for half a figure is worse than none. Behind
 * one that didn't fit nothing more is put.
 */
void pen_whole(struct pen *p, const struct pen *before);
/* Repeats a glyph of one cell. */
void pen_repeat(struct pen *p, struct style s, const char *utf8, const char *ascii, int n);
/*
 * Lines of a text that's broken at blanks, at w cells; a longer word is broken anywhere. Draws those from `first` on that fit into
 * r and returns how many there are in all (also with an empty r: then w is 1).
 */
int grid_wrap(struct grid *g, struct rect r, struct style s, const char *text, int first);
/* Cells that a text takes once cleaned. */
int grid_width(const char *text);
