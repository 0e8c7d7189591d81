/* Cells, their cleaning and their widths (grid.h). Nothing here knows a colour or a terminal. */
#include "tui/grid.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#define REPLACEMENT "\xef\xbf\xbd"

/* ---- rectangles ---- */

struct rect rect_of(int x, int y, int w, int h)
{
	return (struct rect){x, y, w > 0 ? w : 0, h > 0 ? h : 0};
}

struct rect rect_take_top(struct rect *r, int n)
{
	struct rect top;

	n = n < 0 ? 0 : n > r->h ? r->h : n;
	top = rect_of(r->x, r->y, r->w, n);
	r->y += n;
	r->h -= n;
	return top;
}

struct rect rect_take_bottom(struct rect *r, int n)
{
	n = n < 0 ? 0 : n > r->h ? r->h : n;
	r->h -= n;
	return rect_of(r->x, r->y + r->h, r->w, n);
}

bool rect_has(struct rect r, int x, int y)
{
	return x >= r.x && x < r.x + r.w && y >= r.y && y < r.y + r.h;
}

/* ---- the grid ---- */

void grid_init(struct grid *g)
{
	*g = (struct grid){0};
}

void grid_done(struct grid *g)
{
	free(g->cells);
	*g = (struct grid){0};
}

static int within(int v, int most)
{
	return v < 1 ? 1 : v > most ? most : v;
}

void grid_resize(struct grid *g, int cols, int rows)
{
	cols = within(cols, GRID_COLS_MAX);
	rows = within(rows, GRID_ROWS_MAX);
	if (!g->cells || g->cols != cols || g->rows != rows)
		g->cells = xreallocarray(g->cells, (size_t)cols * (size_t)rows, sizeof(*g->cells));
	g->cols = cols;
	g->rows = rows;
	grid_clear(g);
}

void grid_clear(struct grid *g)
{
	size_t n = (size_t)g->cols * (size_t)g->rows;

	if (!n)
		return;
	memset(g->cells, 0, n * sizeof(*g->cells));
	for (size_t i = 0; i < n; i++)
		g->cells[i].width = 1;
}

struct cell *grid_at(struct grid *g, int x, int y)
{
	if (x < 0 || y < 0 || x >= g->cols || y >= g->rows)
		return NULL;
	return &g->cells[(size_t)y * (size_t)g->cols + (size_t)x];
}

bool cell_same(const struct cell *a, const struct cell *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

void grid_paper(struct grid *g, int x, int y, int w, enum paper paper, uint8_t attr)
{
	for (int i = 0; i < w; i++) {
		struct cell *c = grid_at(g, x + i, y);

		if (!c)
			continue;
		c->style.paper = (uint8_t)paper;
		c->style.attr |= attr;
	}
}

/* A wide character that loses one half loses the other too. */
static void break_wide(struct grid *g, int x, int y)
{
	struct cell *c = grid_at(g, x, y), *other = NULL;

	if (!c || c->width == 1)
		return;
	other = grid_at(g, c->width ? x + 1 : x - 1, y);
	if (other) {
		memset(other->text, 0, sizeof(other->text));
		other->width = 1;
	}
	memset(c->text, 0, sizeof(c->text));
	c->width = 1;
}

static void set_cell(
	struct grid *g, int x, int y, const char *text, size_t n, int width, struct style s)
{
	struct cell *c;

	break_wide(g, x, y);
	if (width == 2)
		break_wide(g, x + 1, y);
	c = grid_at(g, x, y);
	*c = (struct cell){.style = s, .width = (uint8_t)width};
	/* A blank is a blank, however it was put. */
	if (n && n < CELL_TEXT && !(n == 1 && text[0] == ' '))
		memcpy(c->text, text, n);
	if (width == 2)
		*grid_at(g, x + 1, y) = (struct cell){.style = s};
}

void grid_fill(struct grid *g, struct rect r, const char *glyph, struct style s)
{
	for (int y = r.y; y < r.y + r.h; y++)
		for (int x = r.x; x < r.x + r.w; x++)
			if (grid_at(g, x, y))
				set_cell(g, x, y, glyph, strlen(glyph), 1, s);
}

void grid_text(const struct grid *g, struct buf *out)
{
	for (int y = 0; y < g->rows; y++) {
		size_t end = out->len;

		for (int x = 0; x < g->cols; x++) {
			const struct cell *c = &g->cells[(size_t)y * (size_t)g->cols + (size_t)x];

			if (!c->width)
				continue;
			buf_puts(out, c->text[0] ? c->text : " ");
			if (c->text[0])
				end = out->len;
		}
		if (out->data)
			out->data[end] = '\0';
		out->len = end;
		buf_putc(out, '\n');
	}
}

void grid_styles(const struct grid *g, struct buf *out)
{
	static const char inks[INK_N + 1] = ".dfgwbox", papers[PAPER_N + 1] = " SGWBT";

	for (int y = 0; y < g->rows; y++) {
		for (int x = 0; x < g->cols; x++) {
			const struct cell *c = &g->cells[(size_t)y * (size_t)g->cols + (size_t)x];
			uint8_t paper = c->style.paper;

			buf_putc(out, paper && paper < PAPER_N		   ? papers[paper]
				      : c->text[0] && c->style.ink < INK_N ? inks[c->style.ink]
									   : ' ');
		}
		buf_putc(out, '\n');
	}
}

/* ---- characters ---- */

/* Bytes of the first character of valid text; 0: it isn't one that may go to a terminal, and *ret_skip bytes are passed over. */
static size_t next_char(const char *s, size_t n, uint32_t *ret_cp, size_t *ret_skip)
{
	unsigned char c = (unsigned char)s[0];
	size_t want = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
	uint32_t cp;

	*ret_skip = 1;
	if (c >= 0x20 && c < 0x7F) {
		*ret_cp = c;
		return 1;
	}
	if (want == 1 || want > n || utf8_valid_len(s, want) != want)
		return 0;
	*ret_skip = utf8_decode(s, want, &cp);
	if (cp < 0xA0 || cp == 0x61C || (cp >= 0x200B && cp <= 0x200F) ||
		(cp >= 0x2028 && cp <= 0x202E) || (cp >= 0x2060 && cp <= 0x206F) || cp == 0xFEFF)
		return 0;
	*ret_cp = cp;
	return *ret_skip;
}

struct glyph {
	const char *text;
	size_t n, skip;
	int width;
};

static struct glyph next_glyph(const char *s, size_t n, bool ascii)
{
	uint32_t cp = 0;
	size_t skip, k = next_char(s, n, &cp, &skip);
	int w;

	if (!k)
		return (struct glyph){ascii ? "?" : REPLACEMENT, ascii ? 1 : 3, skip, 1};
	if (cp < 0x80)
		return (struct glyph){s, 1, 1, 1};
	w = wcwidth((wchar_t)cp);
	if (w < 0)
		w = 1;
	/* An ASCII terminal shows a mark for each character, and nothing for what only decorates one. */
	if (ascii)
		return (struct glyph){"?", w ? 1 : 0, k, w ? 1 : 0};
	return (struct glyph){s, k, k, w};
}

static int width_of(const char *s, size_t n, bool ascii)
{
	int w = 0;

	while (n) {
		struct glyph gl = next_glyph(s, n, ascii);

		w += gl.width;
		s += gl.skip;
		n -= gl.skip;
		if (w > GRID_COLS_MAX * 16)
			break;
	}
	return w;
}

int grid_width(const char *text)
{
	return width_of(text, strlen(text), false);
}

/* ---- pens ---- */

struct pen pen_at(struct grid *g, int x, int y, int w)
{
	struct pen p = {.g = g, .from = x < 0 ? 0 : x, .x = x < 0 ? 0 : x, .y = y};

	p.end = x + w;
	if (p.end > g->cols)
		p.end = g->cols;
	if (y < 0 || y >= g->rows || p.end < p.x)
		p.end = p.x;
	return p;
}

int pen_left(const struct pen *p)
{
	return p->end - p->x;
}

/* A mark goes onto the character before it, if there's room in its cell. */
static void add_mark(struct pen *p, const char *s, size_t n)
{
	struct cell *c = grid_at(p->g, p->x - 1, p->y);
	size_t len;

	if (c && !c->width)
		c = grid_at(p->g, p->x - 2, p->y);
	len = c ? strlen(c->text) : 0;
	if (c && len && len + n < CELL_TEXT)
		memcpy(c->text + len, s, n);
}

static void put_chars(struct pen *p, struct style s, const char *text, size_t n, int end)
{
	while (n) {
		struct glyph gl = next_glyph(text, n, p->g->ascii);

		if (gl.width && p->x + gl.width > end)
			break;
		if (gl.width) {
			set_cell(p->g, p->x, p->y, gl.text, gl.n, gl.width, s);
			p->x += gl.width;
		} else if (gl.n) {
			add_mark(p, gl.text, gl.n);
		}
		text += gl.skip;
		n -= gl.skip;
	}
}

static bool is_blank(const struct pen *p, int x)
{
	const struct cell *c = grid_at(p->g, x, p->y);

	return c && c->width == 1 && !c->text[0];
}

void pen_putn(struct pen *p, struct style s, const char *text, size_t n)
{
	int left = pen_left(p), dots;

	if (!n || p->is_cut)
		return;
	if (width_of(text, n, p->g->ascii) <= left) {
		put_chars(p, s, text, n, p->end);
		return;
	}
	p->is_cut = true;
	/* A gap before it can be spared: one dot alone reads as a full stop. */
	for (; left < 2 && p->x > p->from && is_blank(p, p->x - 1); left++)
		p->x--;
	p->cut = p->x;
	dots = left < 2 ? left : 2;
	put_chars(p, s, text, n, p->end - dots);
	for (int i = 0; i < dots; i++)
		set_cell(p->g, p->x++, p->y, ".", 1, 1, s);
}

void pen_put(struct pen *p, struct style s, const char *text)
{
	pen_putn(p, s, text, strlen(text));
}

void pen_printf(struct pen *p, struct style s, const char *fmt, ...)
{
	CLEANUP(buf_done) struct buf b = {0};
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&b, fmt, ap);
	va_end(ap);
	pen_putn(p, s, buf_str(&b), b.len);
}

void pen_either(struct pen *p, struct style s, const char *utf8, const char *ascii)
{
	pen_put(p, s, p->g->ascii ? ascii : utf8);
}

void pen_skip(struct pen *p, int cells)
{
	p->x += cells < pen_left(p) ? cells : pen_left(p);
}

void pen_whole(struct pen *p, const struct pen *before)
{
	int x = p->cut < before->x ? p->cut : before->x;

	if (!p->is_cut || before->is_cut)
		return;
	for (; x < p->end; x++)
		set_cell(p->g, x, p->y, "", 0, 1, (struct style){0});
	*p = *before;
	p->is_cut = true;
}

void pen_repeat(struct pen *p, struct style s, const char *utf8, const char *ascii, int n)
{
	const char *glyph = p->g->ascii ? ascii : utf8;

	for (int i = 0; i < n && pen_left(p) > 0 && !p->is_cut; i++)
		set_cell(p->g, p->x++, p->y, glyph, strlen(glyph), 1, s);
}

/* ---- wrapping ---- */

/* Bytes of the next line: up to the last blank that fits, or as many characters as fit. */
static size_t line_bytes(const char *s, size_t n, int w, bool ascii)
{
	size_t i = 0, blank = 0;
	int used = 0;

	while (i < n) {
		struct glyph gl = next_glyph(s + i, n - i, ascii);

		if (used + gl.width > w)
			return blank ? blank : i ? i : gl.skip;
		if (s[i] == ' ')
			blank = i + 1;
		used += gl.width;
		i += gl.skip;
	}
	return n;
}

int grid_wrap(struct grid *g, struct rect r, struct style s, const char *text, int first)
{
	size_t n = strlen(text);
	int line = 0;

	while (n) {
		size_t k = line_bytes(text, n, r.w > 0 ? r.w : 1, g->ascii), shown = k;

		while (shown && text[shown - 1] == ' ')
			shown--;
		if (line >= first && line - first < r.h) {
			struct pen p = pen_at(g, r.x, r.y + line - first, r.w);

			pen_putn(&p, s, text, shown);
		}
		line++;
		text += k;
		n -= k;
	}
	return line;
}
