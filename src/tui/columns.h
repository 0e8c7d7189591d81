/*
 * A table's columns in a width: they leave in a fixed order when there's too little room, then the wide ones shrink to
 * their least width, and cells end in "..". Titles can be clicked to sort. Pure.
 *
 * A table is drawn row by row: columns_fit once (its widths want the widest cell of each, or none), then columns_head, then
 * for each row a pen for each column that's there.
 */
#pragma once

#include "tui/frame.h"

#define COLUMNS_MAX 24

struct column {
	const char *title;
	int min; /* least width in cells */
	int want; /* its usual width; 0: min */
	uint8_t drop; /* the place in the order in which columns leave, 1 first; 0: stays */
	bool is_number; /* on the right */
	int sort; /* what a click on the title sorts by; 0: nothing */
	const char *brief; /* the title where that doesn't fit; NULL: it's cut */
};

struct columns {
	const struct column *items;
	size_t n;
	int x[COLUMNS_MAX], w[COLUMNS_MAX]; /* w 0: it left */
	int right; /* the end of the last */
};

/* widest: of the cells of each column, NULL: `want` decides. is_compact: room that's left isn't shared out. gap: cells between two. */
void columns_fit(struct columns *c, const struct column *items, size_t n, const int *widest, int x,
	int w, int gap, bool is_compact);
bool columns_has(const struct columns *c, size_t i);
/* A mark stands behind the title that's sorted by. action 0: titles can't be clicked. */
void columns_head(struct frame *f, const struct columns *c, int y, struct style s, int sort,
	bool is_reversed, int action);
/* For the cell; when it isn't there everything put is dropped. */
struct pen columns_pen(struct frame *f, const struct columns *c, size_t i, int y);
/* On the right for numbers. NULL or "": a dim dash. */
void columns_cell(struct frame *f, const struct columns *c, size_t i, int y, struct style s,
	const char *text);
