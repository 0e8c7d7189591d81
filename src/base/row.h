/*
 * One line for a terminal, never wider than its cells, whatever is put into it: text from outside is cleaned, wide and
 * combining characters are counted, what doesn't fit ends in an ellipsis, colours are always taken back. Life cycle:
 * row_begin, any number of row_text, row_end.
 */
#pragma once

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

struct row_style {
	size_t cols; /* cells of the terminal; 0: as wide as it needs */
	bool color, utf8;
};

struct row {
	struct buf *out;
	const struct row_style *style;
	size_t left; /* cells still free */
	bool is_cut; /* the end was reached: the rest is dropped */
};

/* SGR colours (ROW_TEAL is the terminal's cyan, ROW_AMBER its yellow); ROW_PLAIN is the terminal's own. */
enum row_color { ROW_PLAIN, ROW_GREEN, ROW_AMBER, ROW_TEAL, ROW_RED, ROW_DIM, ROW_BOLD };

/*
 * Length in bytes of the longest start of clean text that takes at most `cells`; *ret_cells is what it takes. A pile of
 * combining marks counts as too long.
 */
size_t row_fitting(const char *s, size_t n, size_t cells, size_t *ret_cells);
/* s as the terminal may have it: cleaned, and ASCII only without utf8. */
void row_clean(const struct row_style *style, const char *s, size_t n, struct buf *ret);

void row_begin(struct row *r, const struct row_style *style, struct buf *out);
/* In C.UTF-8 or the like (LC_CTYPE) widths are right; without utf8 only ASCII is written. */
void row_text(struct row *r, enum row_color color, const char *s);
void row_printf(struct row *r, enum row_color color, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The first of two texts where the terminal has more than ASCII. */
void row_either(struct row *r, enum row_color color, const char *utf8, const char *ascii);
/* Ends the line: nothing but '\n'. */
void row_end(struct row *r);

/*
 * A sentence over as many lines as it needs, broken at blanks; lines after the first begin with `indent` blanks. The row has
 * been begun and may have text in it; afterwards it's ended. A word wider than the line is cut.
 */
void row_wrap(struct row *r, enum row_color color, size_t indent, const char *s);
