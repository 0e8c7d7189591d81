/* The recent past as graphs: of the selected card and process, or of a node's cards together. */
#include "base/cleanup.h"
#include "show/figure.h"
#include "tui/monitor_view.h"

#include <stdio.h>
#include <string.h>

enum { LABEL_CELLS = 30, TALL = 4, SPARK_LEAST = 8 };

struct series {
	const char *name, *unit;
	int32_t v[HISTORY_N];
	size_t n;
	int32_t low, high;
	int64_t divide; /* a figure is shown divided by this; 0: as it is */
	bool has_max;
};

static void put_figure(struct pen *p, const char *name, int64_t v, const struct series *s)
{
	struct pen before = *p;

	pen_printf(p, STYLE(INK_DIM), " %s ", name);
	pen_printf(
		p, STYLE(INK_PLAIN), "%lld%s", (long long)(s->divide ? v / s->divide : v), s->unit);
	pen_whole(p, &before);
}

/* "util now 45% avg 40%" */
static void put_label(struct pen *p, const struct series *s)
{
	int64_t sum = 0, n = 0, most = INT32_MIN;
	int32_t now = s->n ? s->v[s->n - 1] : GRAPH_GAP;

	for (size_t i = 0; i < s->n; i++) {
		if (s->v[i] == GRAPH_GAP)
			continue;
		sum += s->v[i];
		most = s->v[i] > most ? s->v[i] : most;
		n++;
	}
	pen_printf(p, STYLE_STRONG(INK_PLAIN), "%s", s->name);
	if (now == GRAPH_GAP)
		pen_put(p, STYLE(INK_DIM), " now -");
	else
		put_figure(p, "now", now, s);
	if (n)
		put_figure(p, "avg", sum / n, s);
	if (n && s->has_max)
		put_figure(p, "max", most, s);
}

static void draw_series(struct frame *f, struct rect r, const struct series *s)
{
	struct rect label = rect_take_top(&r, 1);
	struct pen p = pen_at(&f->grid, label.x, label.y, label.h ? label.w : 0);

	put_label(&p, s);
	graph_put(&f->grid, r, s->v, s->n, s->low, s->high, STYLE(INK_FOCUS));
}

static void draw_spark(struct frame *f, struct rect r, const struct series *s)
{
	struct pen p = pen_at(&f->grid, r.x, r.y, r.h ? r.w : 0), label;
	int cells = r.w - LABEL_CELLS;

	label = pen_at(&f->grid, r.x, r.y, r.h && r.w > LABEL_CELLS ? LABEL_CELLS - 1 : r.w);
	put_label(&label, s);
	if (cells < 1 || !r.h)
		return;
	pen_skip(&p, LABEL_CELLS);
	graph_spark(&p, cells < HISTORY_N ? cells : HISTORY_N, s->v, s->n, s->low, s->high,
		STYLE(INK_FOCUS));
}

static void draw_all(
	struct frame *f, struct rect r, const struct series *s, size_t n, size_t n_tall)
{
	int columns, w;

	/* The first few side by side in braille where there's room, the rest as lines. */
	if (n_tall && r.h > TALL && r.w >= NARROW_COLS) {
		struct rect top = rect_take_top(&r, r.h - (n > n_tall ? 1 : 0));

		w = top.w / (int)n_tall;
		for (size_t i = 0; i < n_tall; i++)
			draw_series(f, rect_of(top.x + (int)i * w, top.y, w - 2, top.h), &s[i]);
		s += n_tall;
		n -= n_tall;
		if (n) {
			w = r.w / (int)n;
			for (size_t i = 0; i < n; i++) {
				struct pen p = pen_at(&f->grid, r.x + (int)i * w, r.y, w - 1);

				put_label(&p, &s[i]);
				pen_put(&p, STYLE(INK_DIM), " ");
				graph_spark(&p, pen_left(&p) < HISTORY_N ? pen_left(&p) : HISTORY_N,
					s[i].v, s[i].n, s[i].low, s[i].high, STYLE(INK_FOCUS));
			}
		}
		return;
	}
	/* Two beside each other where there are more of them than lines. */
	columns = (int)n > r.h && r.w >= 2 * (LABEL_CELLS + SPARK_LEAST) ? 2 : 1;
	w = r.w / columns;
	for (size_t i = 0; i < n && (int)i / columns < r.h; i++)
		draw_spark(f,
			rect_of(r.x + (int)i % columns * w, r.y + (int)i / columns,
				w - 2 * (columns - 1), r.h > 0),
			&s[i]);
}

/* In percent of a whole. */
static void scale(struct series *s, int64_t whole)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->v[i] != GRAPH_GAP)
			s->v[i] = whole > 0 ? (int32_t)show_percent(s->v[i], whole) : GRAPH_GAP;
}

static int64_t or_zero(struct value v)
{
	return value_is_present(v) ? v.v : 0;
}

static size_t card_series(const struct monitor *m, struct card_row card, struct series *s)
{
	const struct history *h = &m->nodes[card.node].history;
	const struct card_series *x = history_card(h, monitor_card(m, card));
	int back = m->travel_ms ? history_back(h, m->travel_ms) : 0;

	s[0] = (struct series){.name = "util", .unit = "%", .high = 100};
	s[1] = (struct series){.name = "VRAM", .unit = "%", .high = 100};
	s[2] = (struct series){.name = "temp", .unit = "C", .low = 20, .high = 100};
	if (!x)
		return 3;
	s[0].n = history_series(h, x->v[CARD_UTIL], back, s[0].v);
	s[1].n = history_series(h, x->v[CARD_USED], back, s[1].v);
	scale(&s[1], or_zero(monitor_value(m, card, METRIC_MEM_TOTAL)));
	s[2].n = history_series(h, x->v[CARD_TEMP], back, s[2].v);
	return 3;
}

static int32_t highest(const struct series *s, int32_t least)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->v[i] != GRAPH_GAP && s->v[i] > least)
			least = s->v[i];
	return least;
}

static size_t proc_series_of(
	const struct monitor *m, struct card_row card, const struct proc_row *p, struct series *s)
{
	const struct history *h = &m->nodes[card.node].history;
	const struct proc_series *x = NULL;
	const struct sample *sample = m->nodes[card.node].host.sample;
	int back = m->travel_ms ? history_back(h, m->travel_ms) : 0;

	if (p && !p->is_head)
		x = history_proc(h,
			p->row < sample->snap.n_procs
				? sample->snap.cards[sample->snap.procs[p->row].card].uuid
				: monitor_card(m, card)->uuid,
			p->pid, p->start_ticks);
	if (!x)
		return 0;
	s[0] = (struct series){.name = "CPU", .unit = "%", .has_max = true};
	s[1] = (struct series){.name = "its VRAM", .unit = "%", .high = 100, .has_max = true};
	s[2] = (struct series){.name = "host mem", .unit = "%", .high = 100, .has_max = true};
	s[3] = (struct series){.name = "RSS", .unit = "M", .has_max = true};
	s[0].n = history_series(h, x->v[PROC_CPU], back, s[0].v);
	s[1].n = history_series(h, x->v[PROC_USED], back, s[1].v);
	scale(&s[1], or_zero(monitor_value(m, card, METRIC_MEM_TOTAL)));
	s[2].n = history_series(h, x->v[PROC_RSS], back, s[2].v);
	scale(&s[2], sample->has_host ? or_zero(sample->host.mem_total_mib) : 0);
	s[3].n = history_series(h, x->v[PROC_RSS], back, s[3].v);
	s[0].high = highest(&s[0], 100);
	s[3].high = highest(&s[3], 1);
	return 4;
}

void view_trends(struct monitor *m, struct frame *f, struct rect r, struct card_row card,
	const struct proc_row *p)
{
	struct series s[7];
	size_t n = card_series(m, card, s);

	n += proc_series_of(m, card, p, s + n);
	draw_all(f, r, s, n, 3);
}

/* The mean of the cards that told, sample by sample. */
static void mean_of(const struct history *h, enum card_track track, int back, struct series *s)
{
	s->n = 0;
	for (int i = (int)h->n - 1; i >= back; i--) {
		int64_t sum = 0, n = 0;

		for (size_t c = 0; c < h->n_cards; c++) {
			int32_t v = history_at(h, h->cards[c].v[track], i);

			if (h->cards[c].gi || v == GRAPH_GAP)
				continue;
			sum += v;
			n++;
		}
		s->v[s->n++] = n ? (int32_t)(sum / n) : GRAPH_GAP;
	}
}

void view_node_trends(struct monitor *m, struct frame *f, struct rect r, uint32_t node)
{
	const struct monitor_node *n = node < m->n_nodes ? &m->nodes[node] : NULL;
	struct series s[3] = {{.name = "mean util", .unit = "%", .high = 100},
		{.name = "mean power", .unit = "W", .divide = 1000},
		{.name = "mean temp", .unit = "C", .low = 20, .high = 100}};
	int back;

	if (!n || !n->history.n)
		return;
	back = m->travel_ms ? history_back(&n->history, m->travel_ms) : 0;
	mean_of(&n->history, CARD_UTIL, back < 0 ? 0 : back, &s[0]);
	mean_of(&n->history, CARD_POWER, back < 0 ? 0 : back, &s[1]);
	mean_of(&n->history, CARD_TEMP, back < 0 ? 0 : back, &s[2]);
	s[1].high = highest(&s[1], 1000);
	draw_all(f, r, s, 3, 3);
}
