/*
 * A table for a terminal: typed cells, made once and rendered at any width. Columns leave in a fixed order when there's too
 * little room, then the wide ones shrink, and a cell that doesn't fit ends in "..". Cells are cells of the terminal:
 * wide characters count two. Pure; nothing of it depends on a locale but the width of a character (LC_CTYPE).
 *
 * Life cycle: table_init, for each row table_row and one table_text, table_number or table_absent for each column,
 * table_put, table_done.
 */
#pragma once

#include "base/buf.h"
#include "base/row.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TABLE_COLUMNS_MAX 24

struct table_column {
	const char *title;
	bool is_number; /* on the right */
	uint8_t drop; /* the place in the order in which columns leave, 1 first; 0: stays */
	size_t min; /* cells it may be shrunk to; 0: its title and its values are never cut */
};

struct table_cell {
	char *text; /* owned; raw; NULL: absent */
	enum row_color color;
};

struct table_row {
	struct table_cell *cells; /* one for each column; NULL for a note */
	char *note; /* lines of its own below the row before */
	enum row_color note_color;
};

struct table {
	const struct table_column *columns; /* borrowed */
	size_t n_columns, n_filled; /* cells of the last row that were given */
	struct table_row *rows;
	size_t n_rows, cap_rows;
};

void table_init(struct table *t, const struct table_column *columns, size_t n);
void table_done(struct table *t);

void table_row(struct table *t);
void table_text(struct table *t, enum row_color color, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The figure with `decimals` digits (0 to 3) of a number counted in 10^-decimals, and its unit: 125, 1, "W" is "12.5W". */
void table_number(struct table *t, enum row_color color, int64_t v, int decimals, const char *unit);
/* A dim dash. */
void table_absent(struct table *t);
/* A sentence that doesn't fit into columns: indented, over as many lines as it needs. */
void table_note(struct table *t, enum row_color color, const char *text);

/* Titles and rows, each line ended. is_compact: room that's left is not shared out among the columns. */
void table_put(
	const struct table *t, const struct row_style *style, bool is_compact, struct buf *out);
