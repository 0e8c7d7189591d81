/* The table widget: which columns stay at a width, how wide each is, and the lines. Decides nothing about what they mean. */
#include "show/table.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { GAP = 2, STRETCH_MAX = 8, NOTE_INDENT = 4 };

void table_init(struct table *t, const struct table_column *columns, size_t n)
{
	*t = (struct table){
		.columns = columns, .n_columns = n < TABLE_COLUMNS_MAX ? n : TABLE_COLUMNS_MAX};
}

void table_done(struct table *t)
{
	for (size_t i = 0; i < t->n_rows; i++) {
		for (size_t k = 0; t->rows[i].cells && k < t->n_columns; k++)
			free(t->rows[i].cells[k].text);
		free(t->rows[i].cells);
		free(t->rows[i].note);
	}
	free(t->rows);
	*t = (struct table){0};
}

void table_row(struct table *t)
{
	GROW(t->rows, t->n_rows, t->cap_rows);
	t->rows[t->n_rows++] =
		(struct table_row){.cells = xcalloc(t->n_columns, sizeof(struct table_cell))};
	t->n_filled = 0;
}

/* Takes text. */
static void add_cell(struct table *t, enum row_color color, char *text)
{
	if (!t->n_rows || !t->rows[t->n_rows - 1].cells || t->n_filled == t->n_columns) {
		free(text);
		return;
	}
	t->rows[t->n_rows - 1].cells[t->n_filled++] = (struct table_cell){text, color};
}

void table_text(struct table *t, enum row_color color, const char *fmt, ...)
{
	struct buf b = {0};
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&b, fmt, ap);
	va_end(ap);
	add_cell(t, color, buf_take(&b));
}

void table_number(struct table *t, enum row_color color, int64_t v, int decimals, const char *unit)
{
	static const int64_t powers[] = {1, 10, 100, 1000};
	int64_t power = powers[decimals < 0 || decimals > 3 ? 0 : decimals];
	uint64_t size = v < 0 ? -(uint64_t)v : (uint64_t)v;
	struct buf b = {0};

	/* By whole numbers: no locale has a say in the point. */
	buf_printf(&b, "%s%llu", v < 0 ? "-" : "", (unsigned long long)(size / (uint64_t)power));
	if (power > 1)
		buf_printf(&b, ".%0*llu", decimals, (unsigned long long)(size % (uint64_t)power));
	buf_puts(&b, unit);
	add_cell(t, color, buf_take(&b));
}

void table_absent(struct table *t)
{
	add_cell(t, ROW_DIM, NULL);
}

void table_note(struct table *t, enum row_color color, const char *text)
{
	GROW(t->rows, t->n_rows, t->cap_rows);
	t->rows[t->n_rows++] = (struct table_row){.note = xstrdup(text), .note_color = color};
}

/* ---- widths ---- */

/* One rendering: cells cleaned for this terminal, and the columns' widths; 0: the column has left. */
struct layout {
	const struct table *t;
	const struct row_style *style;
	struct buf *clean; /* rows * columns */
	size_t width[TABLE_COLUMNS_MAX];
	bool is_shown[TABLE_COLUMNS_MAX];
};

static const struct buf *cell_at(const struct layout *l, size_t row, size_t column)
{
	return &l->clean[row * l->t->n_columns + column];
}

static void layout_done(struct layout *l)
{
	for (size_t i = 0; i < l->t->n_rows * l->t->n_columns; i++)
		buf_done(&l->clean[i]);
	free(l->clean);
}

static void measure(struct layout *l)
{
	const struct table *t = l->t;

	for (size_t k = 0; k < t->n_columns; k++) {
		l->is_shown[k] = true;
		l->width[k] = text_width(t->columns[k].title, strlen(t->columns[k].title));
	}
	for (size_t i = 0; i < t->n_rows; i++) {
		for (size_t k = 0; t->rows[i].cells && k < t->n_columns; k++) {
			const char *text = t->rows[i].cells[k].text;
			struct buf *b = &l->clean[i * t->n_columns + k];
			size_t w;

			if (!text)
				text = "-";
			row_clean(l->style, text, strlen(text), b);
			w = text_width(buf_str(b), b->len);
			if (w > l->width[k])
				l->width[k] = w;
		}
	}
}

static size_t total_width(const struct layout *l)
{
	size_t sum = 0, n = 0;

	for (size_t k = 0; k < l->t->n_columns; k++) {
		if (!l->is_shown[k])
			continue;
		sum += l->width[k];
		n++;
	}
	return n ? sum + (n - 1) * GAP : 0;
}

/* The narrowest that column may become. */
static size_t min_of(const struct layout *l, size_t k)
{
	size_t min = l->t->columns[k].min;

	return min && min < l->width[k] ? min : l->width[k];
}

static size_t min_width(const struct layout *l)
{
	size_t sum = total_width(l);

	for (size_t k = 0; k < l->t->n_columns; k++)
		if (l->is_shown[k])
			sum -= l->width[k] - min_of(l, k);
	return sum;
}

/* The column that leaves next; false when all that's left stays. */
static bool drop_one(struct layout *l)
{
	size_t found = TABLE_COLUMNS_MAX;

	for (size_t k = 0; k < l->t->n_columns; k++) {
		uint8_t place = l->t->columns[k].drop;

		if (l->is_shown[k] && place &&
			(found == TABLE_COLUMNS_MAX || place < l->t->columns[found].drop))
			found = k;
	}
	if (found == TABLE_COLUMNS_MAX)
		return false;
	l->is_shown[found] = false;
	return true;
}

/* Takes cells from the widest that may shrink, one by one, until it fits. */
static void shrink(struct layout *l, size_t cols)
{
	while (total_width(l) > cols) {
		size_t widest = TABLE_COLUMNS_MAX;

		for (size_t k = 0; k < l->t->n_columns; k++)
			if (l->is_shown[k] && l->width[k] > min_of(l, k) &&
				(widest == TABLE_COLUMNS_MAX || l->width[k] > l->width[widest]))
				widest = k;
		if (widest == TABLE_COLUMNS_MAX)
			return;
		l->width[widest]--;
	}
}

/* Room that's left goes to all columns evenly, within reason; the last one needs none. */
static void stretch(struct layout *l, size_t cols)
{
	size_t used = total_width(l), n = 0, each;

	for (size_t k = 0; k < l->t->n_columns; k++)
		n += l->is_shown[k];
	if (n < 2 || used >= cols)
		return;
	each = (cols - used) / (n - 1);
	for (size_t k = 0, seen = 0; k < l->t->n_columns; k++)
		if (l->is_shown[k] && ++seen < n)
			l->width[k] += each < STRETCH_MAX ? each : STRETCH_MAX;
}

/* ---- lines ---- */

static size_t last_shown(const struct layout *l)
{
	size_t last = 0;

	for (size_t k = 0; k < l->t->n_columns; k++)
		if (l->is_shown[k])
			last = k;
	return last;
}

/* One cell: the text, cut if need be, with blanks on the side it doesn't lean to. The last one has none after it. */
static void put_cell(const struct layout *l, struct row *r, size_t k, const struct buf *text,
	enum row_color color, bool is_last)
{
	CLEANUP(buf_done) struct buf cut = {0};
	size_t width = l->width[k], cells = text_width(buf_str(text), text->len), len = text->len;

	if (cells > width) {
		len = row_fitting(buf_str(text), text->len, width > 2 ? width - 2 : 0, &cells);
		cells += width > 2 ? 2 : 0;
	}
	buf_put(&cut, buf_str(text), len);
	if (len < text->len)
		buf_puts(&cut, width > 2 ? ".." : "");
	if (l->t->columns[k].is_number)
		row_printf(r, ROW_PLAIN, "%*s", (int)(width - cells), "");
	row_text(r, color, buf_str(&cut));
	if (!l->t->columns[k].is_number && !is_last)
		row_printf(r, ROW_PLAIN, "%*s", (int)(width - cells), "");
	if (!is_last)
		row_printf(r, ROW_PLAIN, "%*s", GAP, "");
}

static void put_titles(const struct layout *l, struct buf *out)
{
	size_t last = last_shown(l);
	struct row r;

	row_begin(&r, l->style, out);
	for (size_t k = 0; k < l->t->n_columns; k++) {
		CLEANUP(buf_done) struct buf title = {0};

		if (!l->is_shown[k])
			continue;
		buf_puts(&title, l->t->columns[k].title);
		put_cell(l, &r, k, &title, ROW_DIM, k == last);
	}
	row_end(&r);
}

static void put_row(const struct layout *l, size_t i, struct buf *out)
{
	const struct table_row *row = &l->t->rows[i];
	size_t last = last_shown(l);
	struct row r;

	row_begin(&r, l->style, out);
	if (row->note) {
		row_text(&r, ROW_PLAIN, "  ");
		row_wrap(&r, row->note_color, NOTE_INDENT, row->note);
		return;
	}
	for (size_t k = 0; k < l->t->n_columns; k++)
		if (l->is_shown[k])
			put_cell(l, &r, k, cell_at(l, i, k), row->cells[k].color, k == last);
	row_end(&r);
}

void table_put(
	const struct table *t, const struct row_style *style, bool is_compact, struct buf *out)
{
	struct layout l = {.t = t,
		.style = style,
		.clean = xcalloc(t->n_rows * t->n_columns + 1, sizeof(struct buf))};

	measure(&l);
	if (style->cols) {
		while (min_width(&l) > style->cols && drop_one(&l))
			;
		shrink(&l, style->cols);
		if (!is_compact)
			stretch(&l, style->cols);
	}
	put_titles(&l, out);
	for (size_t i = 0; i < t->n_rows; i++)
		put_row(&l, i, out);
	layout_done(&l);
}
