/* One card's cells: their text, their colours, and a row of them (monitor_view.h). */
#include "tui/monitor_view.h"

#include "base/cleanup.h"
#include "show/figure.h"

#include <stdio.h>
#include <string.h>

enum { CARD_USERS_MAX = 6, MODEL_CELLS_MAX = 28 };

/* ---- text ---- */

static void put_value(struct value v, const char *unit, struct buf *out)
{
	if (value_is_present(v))
		buf_printf(out, "%lld%s", (long long)v.v, unit);
}

/* This user's own jobs first: "#12", then who holds how much. */
static void put_users(const struct monitor *m, struct card_row r, struct buf *out)
{
	const struct sample *s = m->nodes[r.node].host.sample;
	CLEANUP(show_uses_done) struct show_uses u = {0};

	for (uint32_t i = 0; i < s->n_rows; i++)
		if (s->rows[i].card == r.card && !s->rows[i].has_ended)
			buf_printf(out, "#%llu ", (unsigned long long)s->rows[i].name.job);
	show_uses_add(&u, s, (int)r.card, -1);
	show_uses_sort(&u);
	if (u.n)
		show_uses_put(&u, CARD_USERS_MAX, out);
}

static void put_power(const struct monitor *m, struct card_row r, struct buf *out)
{
	struct gpu_card c = *monitor_card(m, r);

	c.m[METRIC_POWER] = monitor_value(m, r, METRIC_POWER);
	show_power_put(&c, out);
}

static void put_model(const struct gpu_card *c, struct buf *out)
{
	if (gpu_is_instance(c))
		buf_printf(out, "MIG %s", c->profile[0] ? c->profile : "instance");
	else
		show_card_name(c->name, out);
	if (c->is_unified)
		buf_puts(out, " (unified memory)");
}

static void put_rate(struct value v, struct buf *out)
{
	if (value_is_present(v))
		show_rate_put(v.v, out);
}

static void put_link(const struct gpu_card *c, struct buf *out)
{
	int64_t gen, width;

	if (show_link_of(c, &gen, &width))
		show_link_put(gen, width, out);
}

static void put_label(const struct gpu_card *c, struct buf *out)
{
	char label[GPU_LABEL_LEN];

	gpu_label(c->index, c->gi, c->ci, label);
	buf_puts(out, label);
}

void view_cell_text(
	const struct monitor *m, struct card_row r, enum card_cell cell, struct buf *out)
{
	const struct gpu_card *c = monitor_card(m, r);
	const struct monitor_node *n = &m->nodes[r.node];

	switch (cell) {
	case CELL_NODE:
		buf_puts(out, n->name);
		break;
	case CELL_ADDRESS:
		buf_puts(out, n->address ? n->address : "this machine");
		break;
	case CELL_INDEX:
		put_label(c, out);
		break;
	case CELL_MODEL:
		put_model(c, out);
		break;
	case CELL_FAN:
		put_value(monitor_value(m, r, METRIC_FAN), "%", out);
		break;
	case CELL_UTIL:
		put_value(monitor_value(m, r, METRIC_UTIL_GPU), "%", out);
		break;
	case CELL_TEMP:
		put_value(monitor_value(m, r, METRIC_TEMP), "C", out);
		break;
	case CELL_LINK:
		put_link(c, out);
		break;
	case CELL_RX:
		put_rate(monitor_value(m, r, METRIC_PCIE_RX), out);
		break;
	case CELL_TX:
		put_rate(monitor_value(m, r, METRIC_PCIE_TX), out);
		break;
	case CELL_POWER:
		put_power(m, r, out);
		break;
	case CELL_MEM_UTIL:
		put_value(monitor_value(m, r, METRIC_UTIL_MEM), "%", out);
		break;
	case CELL_MEMORY:
		show_memory_put(monitor_value(m, r, METRIC_MEM_USED),
			monitor_value(m, r, METRIC_MEM_TOTAL), out);
		break;
	case CELL_USERS:
		put_users(m, r, out);
		break;
	case CELL_MARK:
	case CARD_CELL_N:
		break;
	}
}

int view_model_width(const struct monitor *m, size_t from, size_t to)
{
	int widest = 0;

	for (size_t i = from; i < to; i++) {
		const struct sample *s = m->nodes[i].host.sample;
		const char *last = NULL;

		for (uint32_t k = 0; s && k < s->snap.n_cards; k++) {
			CLEANUP(buf_done) struct buf b = {0};
			int w;

			/* Those of one machine are mostly alike. */
			if (last && !gpu_is_instance(&s->snap.cards[k]) &&
				!strcmp(last, s->snap.cards[k].name))
				continue;
			last = s->snap.cards[k].name;
			put_model(&s->snap.cards[k], &b);
			w = grid_width(buf_str(&b));
			widest = w > widest ? w : widest;
		}
	}
	return widest < MODEL_CELLS_MAX ? widest : MODEL_CELLS_MAX;
}

/* ---- colours ---- */

static int64_t memory_percent(const struct monitor *m, struct card_row r)
{
	struct value used = monitor_value(m, r, METRIC_MEM_USED),
		     total = monitor_value(m, r, METRIC_MEM_TOTAL);

	return value_is_present(used) && value_is_present(total) ? show_percent(used.v, total.v)
								 : 0;
}

static int64_t rate_percent(const struct monitor *m, struct card_row r, enum metric metric)
{
	struct value v = monitor_value(m, r, metric);
	int64_t gen, width, capacity;

	if (!value_is_present(v) || !show_link_of(monitor_card(m, r), &gen, &width))
		return 0;
	capacity = show_link_capacity_kib_s(gen, width);
	return capacity ? show_percent(v.v, capacity) : 0;
}

static int64_t or_zero(struct value v)
{
	return value_is_present(v) ? v.v : 0;
}

static enum ink index_ink(int64_t util)
{
	return util >= 80 ? INK_BAD : util >= 50 ? INK_WARN : util >= 5 ? INK_GOOD : INK_DIM;
}

struct style view_cell_style(const struct monitor *m, struct card_row r, enum card_cell cell)
{
	int64_t util = or_zero(monitor_value(m, r, METRIC_UTIL_GPU)),
		temp = or_zero(monitor_value(m, r, METRIC_TEMP));

	if (monitor_card(m, r)->state != GPU_OK)
		return STYLE(INK_BAD);
	switch (cell) {
	case CELL_NODE:
		return STYLE_STRONG(INK_PLAIN);
	case CELL_INDEX:
		return STYLE_STRONG(index_ink(util));
	case CELL_UTIL:
		return STYLE(util >= 5 ? INK_FOCUS : INK_DIM);
	case CELL_TEMP:
		return temp >= 80 ? STYLE_STRONG(INK_BAD) : STYLE(temp >= 65 ? INK_WARN : INK_DIM);
	case CELL_MEMORY:
		return STYLE(view_level(memory_percent(m, r), 75, 90, INK_FOCUS));
	case CELL_RX:
		return STYLE(view_level(rate_percent(m, r, METRIC_PCIE_RX), 40, 70, INK_FOCUS));
	case CELL_TX:
		return STYLE(view_level(rate_percent(m, r, METRIC_PCIE_TX), 40, 70, INK_FOCUS));
	case CELL_USERS:
	case CELL_MODEL:
		return STYLE(INK_PLAIN);
	default:
		return STYLE(INK_DIM);
	}
}

/* How full a cell's background is, and of what; 0: it has none. */
static int64_t fill_of(
	const struct monitor *m, struct card_row r, enum card_cell cell, enum paper *ret)
{
	bool is_rate = cell == CELL_RX || cell == CELL_TX;
	int64_t pct, middle = is_rate ? 40 : 10, high = is_rate ? 70 : 60;

	switch (cell) {
	case CELL_UTIL:
		pct = or_zero(monitor_value(m, r, METRIC_UTIL_GPU));
		break;
	case CELL_MEM_UTIL:
		pct = or_zero(monitor_value(m, r, METRIC_UTIL_MEM));
		break;
	case CELL_MEMORY:
		pct = memory_percent(m, r);
		break;
	case CELL_RX:
	case CELL_TX:
		pct = rate_percent(m, r, cell == CELL_RX ? METRIC_PCIE_RX : METRIC_PCIE_TX);
		break;
	default:
		return 0;
	}
	if (is_rate && pct < 5)
		return 0;
	*ret = pct >= high ? PAPER_BAD : pct >= middle ? PAPER_WARN : PAPER_GOOD;
	return pct > 100 ? 100 : pct;
}

/* ---- rows ---- */

static int metric_of(enum card_cell cell)
{
	static const int metrics[CARD_CELL_N] = {
		[CELL_FAN] = METRIC_FAN + 1,
		[CELL_UTIL] = METRIC_UTIL_GPU + 1,
		[CELL_TEMP] = METRIC_TEMP + 1,
		[CELL_LINK] = METRIC_PCIE_GEN + 1,
		[CELL_RX] = METRIC_PCIE_RX + 1,
		[CELL_TX] = METRIC_PCIE_TX + 1,
		[CELL_POWER] = METRIC_POWER + 1,
		[CELL_MEM_UTIL] = METRIC_UTIL_MEM + 1,
		[CELL_MEMORY] = METRIC_MEM_USED + 1,
	};

	return cell < CARD_CELL_N ? metrics[cell] - 1 : -1;
}

void view_card_row(struct monitor *m, struct frame *f, const struct columns *c,
	const enum card_cell *cells, struct card_row r, int y, bool is_selected)
{
	frame_hit(f, rect_of(c->x[0], y, c->right - c->x[0], 1), DO_SELECT_CARD,
		(int64_t)r.node << 32 | r.card);
	if (is_selected)
		grid_paper(&f->grid, c->x[0], y, c->right - c->x[0], PAPER_SELECTED, 0);
	for (size_t i = 0; i < c->n; i++) {
		CLEANUP(buf_done) struct buf text = {0};
		struct style s = view_cell_style(m, r, cells[i]);
		enum paper paper = PAPER_NONE;
		int64_t pct;

		if (!columns_has(c, i) || cells[i] == CELL_MARK)
			continue;
		view_cell_text(m, r, cells[i], &text);
		if (is_selected)
			s = (struct style){
				s.ink == INK_DIM ? INK_PLAIN : s.ink, PAPER_SELECTED, s.attr};
		columns_cell(f, c, i, y, s, buf_str(&text));
		if (!text.len && metric_of(cells[i]) >= 0)
			frame_hit(f, rect_of(c->x[i], y, c->w[i], 1), DO_WHY,
				(int64_t)r.node << 40 | (int64_t)r.card << 16 |
					metric_of(cells[i]));
		pct = fill_of(m, r, cells[i], &paper);
		if (pct > 0)
			grid_paper(
				&f->grid, c->x[i], y, (int)((c->w[i] * pct + 99) / 100), paper, 0);
	}
}

bool view_health(const struct monitor *m, struct card_row r, enum health_weight least,
	struct buf *out, enum ink *ret_ink)
{
	struct health_fact facts[HEALTH_FACTS_MAX];
	const struct gpu_card *c = monitor_card(m, r);
	size_t n = c && !gpu_is_instance(c) ? health_of(c, facts) : 0, shown = 0;

	for (size_t i = 0; i < n; i++) {
		if (facts[i].weight < least)
			continue;
		buf_printf(out, "%s%s", shown++ ? "; " : "", facts[i].text);
	}
	if (shown)
		*ret_ink = facts[0].weight == HEALTH_BAD       ? INK_BAD
			   : facts[0].weight == HEALTH_WARNING ? INK_WARN
							       : INK_DIM;
	return shown > 0;
}
