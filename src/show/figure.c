/* Figures as text (figure.h). */
#include "show/figure.h"

#include "show/once.h"

int64_t show_percent(int64_t part, int64_t whole)
{
	return whole > 0 ? (int64_t)((__int128)part * 100 / whole) : 0;
}

bool show_link_of(const struct gpu_card *c, int64_t *ret_gen, int64_t *ret_width)
{
	struct value gen = c->m[METRIC_PCIE_GEN], width = c->m[METRIC_PCIE_WIDTH];

	if (!value_is_present(gen) || !value_is_present(width)) {
		gen = c->m[METRIC_PCIE_GEN_MAX];
		width = c->m[METRIC_PCIE_WIDTH_MAX];
	}
	/* A board that shares the machine's memory has no link worth a word. */
	if (c->is_unified || !value_is_present(gen) || !value_is_present(width))
		return false;
	*ret_gen = gen.v;
	*ret_width = width.v;
	return true;
}

void show_link_put(int64_t gen, int64_t width, struct buf *out)
{
	buf_printf(out, "%lld.0x%lld", (long long)gen, (long long)width);
}

void show_rate_put(int64_t kib_s, struct buf *out)
{
	if (kib_s < 1024)
		buf_printf(out, "%lldKB/s", (long long)kib_s);
	else if (kib_s < 1024 * 1024)
		buf_printf(out, "%lld.%lldMB/s", (long long)(kib_s / 1024),
			(long long)(kib_s % 1024 * 10 / 1024));
	else
		buf_printf(out, "%lld.%02lldGB/s", (long long)(kib_s / 1024 / 1024),
			(long long)(kib_s / 1024 % 1024 * 100 / 1024));
}

static void put_watts(struct value v, struct buf *out)
{
	if (value_is_present(v))
		buf_printf(out, "%lld", (long long)((v.v + 500) / 1000));
	else
		buf_putc(out, '-');
}

void show_power_put(const struct gpu_card *c, struct buf *out)
{
	struct value state = c->m[METRIC_PSTATE], draw = c->m[METRIC_POWER],
		     limit = c->m[METRIC_POWER_LIMIT];

	if (!value_is_present(state) && !value_is_present(draw) && !value_is_present(limit))
		return;
	if (value_is_present(state))
		buf_printf(out, "P%lld ", (long long)state.v);
	put_watts(draw, out);
	buf_putc(out, '/');
	put_watts(limit, out);
	buf_putc(out, 'W');
}

static void put_mib(struct value v, struct buf *out)
{
	if (value_is_present(v))
		buf_printf(out, "%lld", (long long)v.v);
	else
		buf_putc(out, '-');
}

void show_memory_put(struct value used, struct value total, struct buf *out)
{
	if (!value_is_present(used) && !value_is_present(total))
		return;
	put_mib(used, out);
	buf_putc(out, '/');
	put_mib(total, out);
}

void show_gib_put(int64_t used_mib, int64_t total_mib, struct buf *out)
{
	buf_printf(out, "%lld.%lld/%lld.%lldG", (long long)(used_mib / 1024),
		(long long)(used_mib % 1024 * 10 / 1024), (long long)(total_mib / 1024),
		(long long)(total_mib % 1024 * 10 / 1024));
}

void show_sums_add(struct show_sums *x, const struct sample *s)
{
	for (uint32_t i = 0; i < s->snap.n_cards; i++) {
		const struct gpu_card *c = &s->snap.cards[i];
		struct value util = c->m[METRIC_UTIL_GPU], used = c->m[METRIC_MEM_USED],
			     total = c->m[METRIC_MEM_TOTAL];

		if (gpu_is_instance(c))
			continue;
		x->n_cards++;
		x->n_idle += show_card_is_idle(c);
		if (value_is_present(util)) {
			x->util += util.v;
			x->n_util++;
			x->n_busy += util.v >= 50;
		}
		if (value_is_present(used) && value_is_present(total)) {
			x->used_mib += used.v;
			x->total_mib += total.v;
		}
	}
}
