/* Columns in a width (columns.h). */
#include "tui/columns.h"

#include <stdio.h>
#include <string.h>

static int total(const struct columns *c, int gap)
{
	int w = 0, n = 0;

	for (size_t i = 0; i < c->n; i++)
		if (c->w[i]) {
			w += c->w[i];
			n++;
		}
	return w + (n > 1 ? (n - 1) * gap : 0);
}

static int least(const struct columns *c, int gap)
{
	struct columns x = *c;

	for (size_t i = 0; i < c->n; i++)
		if (x.w[i] > x.items[i].min)
			x.w[i] = x.items[i].min;
	return total(&x, gap);
}

/* The next to leave: the lowest place there is; when only those that stay are left, the last one. */
static int next_to_leave(const struct columns *c)
{
	int found = -1, n = 0;

	for (size_t i = 0; i < c->n; i++) {
		if (!c->w[i])
			continue;
		n++;
		if (c->items[i].drop && (found < 0 || c->items[i].drop < c->items[found].drop))
			found = (int)i;
	}
	for (size_t i = c->n; i > 1 && found < 0 && n > 1; i--)
		if (c->w[i - 1])
			found = (int)i - 1;
	return n > 1 ? found : -1;
}

/* The column that has most above its least width gives one cell. */
static bool shrink(struct columns *c)
{
	int found = -1, most = 0;

	for (size_t i = 0; i < c->n; i++)
		if (c->w[i] - c->items[i].min > most) {
			most = c->w[i] - c->items[i].min;
			found = (int)i;
		}
	if (found >= 0)
		c->w[found]--;
	return found >= 0;
}

static void share_out(struct columns *c, int rest)
{
	bool has_any = false;

	for (size_t i = 0; i < c->n; i++)
		has_any |= c->w[i] && c->items[i].title[0];
	while (has_any && rest > 0)
		for (size_t i = 0; i < c->n && rest > 0; i++)
			/* A column without a title is for a mark: it stays as narrow as it is. */
			if (c->w[i] && c->items[i].title[0]) {
				c->w[i]++;
				rest--;
			}
}

void columns_fit(struct columns *c, const struct column *items, size_t n, const int *widest, int x,
	int w, int gap, bool is_compact)
{
	int leaver;

	*c = (struct columns){.items = items, .n = n < COLUMNS_MAX ? n : COLUMNS_MAX};
	for (size_t i = 0; i < c->n; i++) {
		int want = widest ? widest[i] : items[i].want;

		c->w[i] = want > items[i].min ? want : items[i].min;
	}
	while (least(c, gap) > w && (leaver = next_to_leave(c)) >= 0)
		c->w[leaver] = 0;
	while (total(c, gap) > w && shrink(c))
		;
	/* One column that's still too wide. */
	for (size_t i = 0; i < c->n; i++)
		if (c->w[i] > w)
			c->w[i] = w > 0 ? w : 0;
	if (!is_compact && total(c, gap) > 0)
		share_out(c, w - total(c, gap));
	for (size_t i = 0; i < c->n; i++) {
		c->x[i] = x;
		if (c->w[i])
			x += c->w[i] + gap;
	}
	c->right = x - gap;
}

bool columns_has(const struct columns *c, size_t i)
{
	return i < c->n && c->w[i] > 0;
}

void columns_head(struct frame *f, const struct columns *c, int y, struct style s, int sort,
	bool is_reversed, int action)
{
	for (size_t i = 0; i < c->n; i++) {
		const struct column *k = &c->items[i];
		bool is_sorted = sort && k->sort == sort;
		const char *mark = !is_sorted	   ? ""
				   : f->grid.ascii ? is_reversed ? "^" : "v"
				   : is_reversed   ? "\xe2\x96\xb4"
						   : "\xe2\x96\xbe";
		const char *title = k->title;
		char text[64];

		if (!c->w[i] || !title[0])
			continue;
		if (k->brief && grid_width(title) + is_sorted > c->w[i])
			title = k->brief;
		snprintf(text, sizeof(text), "%.50s%s", title, mark);
		columns_cell(f, c, i, y, is_sorted ? STYLE_STRONG(s.ink) : s, text);
		if (k->sort)
			frame_hit(f, rect_of(c->x[i], y, c->w[i], 1), action, k->sort);
	}
}

struct pen columns_pen(struct frame *f, const struct columns *c, size_t i, int y)
{
	if (!columns_has(c, i))
		return (struct pen){.g = &f->grid, .is_cut = true};
	return pen_at(&f->grid, c->x[i], y, c->w[i]);
}

void columns_cell(
	struct frame *f, const struct columns *c, size_t i, int y, struct style s, const char *text)
{
	struct pen p = columns_pen(f, c, i, y);
	int rest;

	if (p.is_cut)
		return;
	if (!text || !text[0]) {
		text = "-";
		s = (struct style){INK_DIM, s.paper, 0};
	}
	rest = pen_left(&p) - grid_width(text);
	if (c->items[i].is_number && rest > 0)
		pen_skip(&p, rest);
	pen_put(&p, s, text);
}
