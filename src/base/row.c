/* One line for a terminal, never wider than its cells. Pure: text in a buffer. */
#include "base/row.h"

#include "base/cleanup.h"
#include "base/text.h"

#include <stdarg.h>
#include <stdint.h>
#include <string.h>

/* Bytes looked at for each free cell: enough for a character with its marks, a bound for a command of half a megabyte. */
enum { BYTES_PER_CELL = 16, MARKS_MAX = 4 };

static const char *const sgr[] = {
	[ROW_PLAIN] = "",
	[ROW_GREEN] = "\033[32m",
	[ROW_AMBER] = "\033[33m",
	[ROW_TEAL] = "\033[36m",
	[ROW_RED] = "\033[31m",
	[ROW_DIM] = "\033[2m",
	[ROW_BOLD] = "\033[1m",
};

void row_begin(struct row *r, const struct row_style *style, struct buf *out)
{
	*r = (struct row){.out = out, .style = style, .left = style->cols ? style->cols : SIZE_MAX};
}

size_t row_fitting(const char *s, size_t n, size_t cells, size_t *ret_cells)
{
	size_t i = 0, used = 0, marks = 0;

	while (i < n) {
		uint32_t cp;
		size_t k = utf8_decode(s + i, n - i, &cp), w = text_width(s + i, k);

		if (used + w > cells)
			break;
		marks = w ? 0 : marks + 1;
		/* A pile of combining marks takes no cell, but every terminal's patience. */
		if (marks > MARKS_MAX)
			break;
		used += w;
		i += k;
	}
	*ret_cells = used;
	return i;
}

static void put_ascii(struct buf *out, const char *s, size_t n)
{
	for (size_t i = 0; i < n;) {
		uint32_t cp;

		i += utf8_decode(s + i, n - i, &cp);
		buf_putc(out, cp < 0x80 ? (char)cp : '?');
	}
}

void row_clean(const struct row_style *style, const char *s, size_t n, struct buf *ret)
{
	CLEANUP(buf_done) struct buf utf8 = {0};

	if (style->utf8) {
		text_put_clean(ret, s, n);
		return;
	}
	text_put_clean(&utf8, s, n);
	put_ascii(ret, buf_str(&utf8), utf8.len);
}

/* What the terminal will be given; of a text much longer than the line only the beginning is looked at. */
static void clean(const struct row *r, const char *s, struct buf *ret)
{
	size_t limit = r->left < SIZE_MAX / BYTES_PER_CELL - 64 ? (r->left + 4) * BYTES_PER_CELL
								: SIZE_MAX;

	row_clean(r->style, s, strnlen(s, limit), ret);
}

static void put_ellipsis(struct row *r)
{
	if (r->left >= 1)
		buf_puts(r->out, r->style->utf8 ? "\xe2\x80\xa6" : "~");
	r->left = 0;
	r->is_cut = true;
}

void row_text(struct row *r, enum row_color color, const char *s)
{
	CLEANUP(buf_done) struct buf text = {0};
	bool is_colored = r->style->color && color != ROW_PLAIN;
	size_t len, cells;

	if (r->is_cut || !*s)
		return;
	clean(r, s, &text);
	len = row_fitting(text.data, text.len, r->left, &cells);
	/* The ellipsis needs a cell of its own. */
	if (len < text.len && r->left)
		len = row_fitting(text.data, text.len, r->left - 1, &cells);
	if (is_colored)
		buf_puts(r->out, sgr[color]);
	buf_put(r->out, text.data, len);
	r->left -= cells;
	if (len < text.len)
		put_ellipsis(r);
	if (is_colored)
		buf_puts(r->out, "\033[0m");
}

void row_printf(struct row *r, enum row_color color, const char *fmt, ...)
{
	CLEANUP(buf_done) struct buf text = {0};
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	row_text(r, color, buf_str(&text));
}

void row_either(struct row *r, enum row_color color, const char *utf8, const char *ascii)
{
	row_text(r, color, r->style->utf8 ? utf8 : ascii);
}

void row_end(struct row *r)
{
	buf_putc(r->out, '\n');
}

void row_wrap(struct row *r, enum row_color color, size_t indent, const char *s)
{
	CLEANUP(buf_done) struct buf text = {0};
	bool is_first = true;

	row_clean(r->style, s, strlen(s), &text);
	for (const char *word = buf_str(&text); *word;) {
		CLEANUP(buf_done) struct buf one = {0};
		size_t len = strcspn(word, " "), cells = text_width(word, len);
		const struct row_style *style = r->style;
		struct buf *out = r->out;

		if (!is_first && r->left < cells + 1 && style->cols > indent + 8) {
			row_end(r);
			row_begin(r, style, out);
			row_printf(r, ROW_PLAIN, "%*s", (int)indent, "");
			is_first = true;
		}
		buf_printf(&one, "%s%.*s", is_first ? "" : " ", (int)len, word);
		row_text(r, color, buf_str(&one));
		is_first = false;
		word += len + strspn(word + len, " ");
	}
	row_end(r);
}
