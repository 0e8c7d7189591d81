/* Panes, buttons, lists, edited lines and boxes (pane.h). */
#include "tui/pane.h"

#include "base/cleanup.h"
#include "base/text.h"

#include <string.h>

/* Corners from the upper left clockwise, then across and down. */
struct edges {
	const char *corner[4], *across, *down;
};
static const struct edges solid = {{"\xe2\x95\xad", "\xe2\x95\xae", "\xe2\x95\xaf", "\xe2\x95\xb0"},
				  "\xe2\x94\x80", "\xe2\x94\x82"},
			  dashed = {{"\xe2\x95\xad", "\xe2\x95\xae", "\xe2\x95\xaf",
					    "\xe2\x95\xb0"},
				  "\xe2\x95\x8c", "\xe2\x95\x8e"},
			  ascii_solid = {{"+", "+", "+", "+"}, "=", "|"},
			  ascii_dashed = {{"+", "+", "+", "+"}, "-", ":"};

static void edge_line(struct grid *g, struct rect r, int y, const char *left, const char *across,
	const char *right, struct style s)
{
	struct pen p = pen_at(g, r.x, y, r.w);

	pen_put(&p, s, left);
	pen_repeat(&p, s, across, across, r.w - 2);
	pen_put(&p, s, right);
}

struct rect pane_draw(struct frame *f, struct rect r, const char *title, bool is_active)
{
	struct grid *g = &f->grid;
	const struct edges *e = g->ascii    ? is_active ? &ascii_solid : &ascii_dashed
				: is_active ? &solid
					    : &dashed;
	struct style s = {.ink = is_active ? INK_FOCUS : INK_DIM};
	struct pen p;

	if (r.w < 3 || r.h < 2)
		return r;
	edge_line(g, r, r.y, e->corner[0], e->across, e->corner[1], s);
	edge_line(g, r, r.y + r.h - 1, e->corner[3], e->across, e->corner[2], s);
	for (int y = r.y + 1; y < r.y + r.h - 1; y++) {
		p = pen_at(g, r.x, y, 1);
		pen_put(&p, s, e->down);
		p = pen_at(g, r.x + r.w - 1, y, 1);
		pen_put(&p, s, e->down);
	}
	if (title && title[0] && r.w > 8) {
		p = pen_at(g, r.x + 2, r.y, r.w - 4);
		pen_put(&p, s, " ");
		pen_put(&p, is_active ? STYLE_STRONG(INK_FOCUS) : STYLE(INK_PLAIN), title);
		pen_put(&p, s, " ");
	}
	return rect_of(r.x + 1, r.y + 1, r.w - 2, r.h - 2);
}

void pane_rule(struct frame *f, struct rect r)
{
	struct pen p = pen_at(&f->grid, r.x, r.y, r.h > 0 ? r.w : 0);

	pen_repeat(&p, STYLE(INK_DIM), "\xe2\x94\x80", "-", r.w);
}

size_t buttons_draw(struct frame *f, struct rect r, const struct button *items, size_t n)
{
	int x = r.x;

	if (!r.h)
		return 0;
	for (size_t i = 0; i < n; i++) {
		const struct button *b = &items[i];
		int w = grid_width(b->key) + 3 + grid_width(b->text);
		struct style s = b->is_armed ? (struct style){INK_BAD, PAPER_NONE, STYLE_BOLD}
				 : b->is_on  ? STYLE_STRONG(INK_FOCUS)
					     : STYLE(INK_PLAIN);
		struct pen p = pen_at(&f->grid, x, r.y, w);

		if (x + w > r.x + r.w)
			return i;
		pen_put(&p, STYLE(INK_DIM), "[");
		pen_put(&p, b->is_armed ? s : STYLE(INK_FOCUS), b->key);
		pen_put(&p, STYLE(INK_DIM), "] ");
		pen_put(&p, s, b->text);
		frame_hit(f, rect_of(x, r.y, w, 1), b->action, b->arg);
		x += w + 2;
	}
	return n;
}

int list_window(int first, int selected, int n, int room)
{
	if (room < 1 || n <= room)
		return 0;
	if (selected < first)
		first = selected;
	if (selected >= first + room)
		first = selected - room + 1;
	if (first > n - room)
		first = n - room;
	return first < 0 ? 0 : first;
}

int list_move(int selected, int by, int n)
{
	int64_t to = (int64_t)selected + by;

	if (n <= 0 || to < 0)
		return 0;
	return to >= n ? n - 1 : (int)to;
}

/* ---- a line that's edited ---- */

void edit_clear(struct edit *e)
{
	explicit_bzero(e->text, sizeof(e->text));
	e->n = 0;
}

static size_t encode(uint32_t cp, char ret[4])
{
	if (cp < 0x80) {
		ret[0] = (char)cp;
		return 1;
	}
	if (cp < 0x800) {
		ret[0] = (char)(0xC0 | cp >> 6);
		ret[1] = (char)(0x80 | (cp & 0x3F));
		return 2;
	}
	if (cp < 0x10000) {
		ret[0] = (char)(0xE0 | cp >> 12);
		ret[1] = (char)(0x80 | (cp >> 6 & 0x3F));
		ret[2] = (char)(0x80 | (cp & 0x3F));
		return 3;
	}
	ret[0] = (char)(0xF0 | cp >> 18);
	ret[1] = (char)(0x80 | (cp >> 12 & 0x3F));
	ret[2] = (char)(0x80 | (cp >> 6 & 0x3F));
	ret[3] = (char)(0x80 | (cp & 0x3F));
	return 4;
}

static enum edit_result edit_add(struct edit *e, uint32_t cp)
{
	char bytes[4];
	size_t n = encode(cp, bytes), limit = e->limit ? e->limit : EDIT_MAX - 1;

	if (e->n + n > limit || e->n + n > EDIT_MAX - 1)
		return EDIT_NOTHING;
	memcpy(e->text + e->n, bytes, n);
	e->n += n;
	e->text[e->n] = '\0';
	return EDIT_CHANGED;
}

enum edit_result edit_key(struct edit *e, uint32_t key)
{
	switch (key) {
	case KEY_RETURN:
		return EDIT_DONE;
	case KEY_ESC:
	case KEY_CTRL_C:
		return EDIT_CANCELLED;
	case KEY_CTRL_U:
		edit_clear(e);
		return EDIT_CHANGED;
	case KEY_ERASE:
		if (!e->n)
			return EDIT_NOTHING;
		do
			e->n--;
		while (e->n && ((unsigned char)e->text[e->n] & 0xC0) == 0x80);
		e->text[e->n] = '\0';
		return EDIT_CHANGED;
	default:
		return key < 0x20 || key >= 0x110000 ? EDIT_NOTHING : edit_add(e, key);
	}
}

void edit_draw(struct frame *f, struct rect r, const char *label, const struct edit *e)
{
	struct pen p = pen_at(&f->grid, r.x, r.y, r.h > 0 ? r.w : 0);
	const char *text = e->text;
	int room;

	if (pen_left(&p) < 1)
		return;
	pen_put(&p, STYLE(INK_FOCUS), label);
	room = pen_left(&p) - 1;
	if (e->is_secret) {
		size_t chars = 0;

		for (size_t i = 0; i < e->n; i++)
			chars += ((unsigned char)e->text[i] & 0xC0) != 0x80;
		pen_repeat(&p, STYLE(INK_PLAIN), "*", "*",
			(int)chars < room ? (int)chars
			: room > 0	  ? room
					  : 0);
	} else {
		/* The end is what's being typed. */
		while (*text && grid_width(text) > room)
			do
				text++;
			while (((unsigned char)*text & 0xC0) == 0x80);
		pen_put(&p, STYLE(INK_PLAIN), text);
	}
	f->cursor_x = p.x < f->grid.cols ? p.x : f->grid.cols - 1;
	f->cursor_y = r.y;
}

/* ---- boxes on top ---- */

struct rect box_draw(struct frame *f, int w, int h, const char *title)
{
	int cols = f->grid.cols, rows = f->grid.rows;
	struct rect r;

	if (w > cols)
		w = cols;
	/* The bottom row isn't written. */
	if (h > rows - 1)
		h = rows - 1;
	r = rect_of((cols - w) / 2, (rows - h) / 2, w, h);
	grid_fill(&f->grid, r, "", STYLE(INK_PLAIN));
	return pane_draw(f, r, title, true);
}

/* The line's cells of text in a box whose inside has w cells, and where they begin in it. */
static int help_width(const struct help_line *l, int keys, int w, int *ret_x)
{
	*ret_x = l->keys ? keys + 3 : 0;
	return w - *ret_x;
}

/* Draws one from its line `from` on, and returns how many it has. */
static int help_line(struct frame *f, struct rect r, const struct help_line *l, int keys, int from)
{
	int x, w = help_width(l, keys, r.w, &x);

	if (l->keys && !from && r.h) {
		struct pen p = pen_at(&f->grid, r.x + 1, r.y, w > 0 ? keys : r.w - 1);

		pen_put(&p, STYLE(INK_FOCUS), l->keys);
	}
	return grid_wrap(&f->grid, rect_of(r.x + x, r.y, w, w > 0 ? r.h : 0),
		l->keys ? STYLE(INK_PLAIN) : STYLE_STRONG(INK_PLAIN), l->text, from);
}

int help_draw(struct frame *f, const char *title, const struct help_line *lines, size_t n,
	int *scroll, int action)
{
	int keys = 0, widest = 0, total = 0, at = 0, most;
	struct rect r;

	for (size_t i = 0; i < n; i++) {
		int k = lines[i].keys ? grid_width(lines[i].keys) : 0,
		    w = grid_width(lines[i].text);

		keys = k > keys ? k : keys;
		widest = w > widest ? w : widest;
	}
	r = rect_of(
		0, 0, keys + widest + 6 < f->grid.cols ? keys + widest + 4 : f->grid.cols - 2, 0);
	for (size_t i = 0; i < n; i++)
		total += help_line(f, r, &lines[i], keys, 0);
	r = box_draw(f, r.w + 2, total + 2, title);
	most = total - r.h;
	if (*scroll > most)
		*scroll = most;
	if (*scroll < 0)
		*scroll = 0;
	for (size_t i = 0; i < n && at < *scroll + r.h; i++) {
		int from = *scroll > at ? *scroll - at : 0, y = at > *scroll ? at - *scroll : 0;

		at += help_line(f, rect_of(r.x, r.y + y, r.w, r.h - y), &lines[i], keys, from);
	}
	frame_hit(f, rect_of(0, 0, f->grid.cols, f->grid.rows), action, 0);
	return total;
}

void too_small_draw(struct frame *f, int cols, int rows)
{
	CLEANUP(buf_done) struct buf b = {0};

	buf_printf(&b, "The terminal has %dx%d cells; %dx%d are needed.", f->grid.cols,
		f->grid.rows, cols, rows);
	grid_wrap(&f->grid, rect_of(0, 0, f->grid.cols, f->grid.rows > 1 ? f->grid.rows - 1 : 1),
		STYLE(INK_PLAIN), buf_str(&b), 0);
}
