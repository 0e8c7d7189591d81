/*
 * What a person sees of the hosts at one moment (spec 4.10): for each host a line that sums it up, where its figures come
 * from, a table of its cards, who uses them; at the end who uses all. A host that failed has its sentence in its place.
 * Colours: cyan and grey for what's ordinary, yellow and red for what isn't, green only for what's free or well.
 */
#include "show/once.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "core/profile.h"
#include "show/figure.h"
#include "show/health.h"
#include "show/profile_columns.h"
#include "show/table.h"

#include <string.h>
#include <time.h>

enum { USERS_MAX = 12, CARD_USERS_MAX = 6, CLOCK_TOLERANCE_MS = 5000 };

/* In the order of the screen; they leave in the order that the spec gives. */
enum column {
	GPU,
	NAME,
	FAN,
	UTIL,
	TEMP,
	LINK,
	RX,
	TX,
	POWER,
	MEM_UTIL,
	MEMORY,
	PROCESSES,
	COLUMN_N
};
static const struct table_column columns[COLUMN_N] = {
	[GPU] = {"GPU"},
	[NAME] = {"name", .min = 8},
	[FAN] = {"fan", .is_number = true, .drop = 1},
	[UTIL] = {"util", .is_number = true},
	[TEMP] = {"temp", .is_number = true, .drop = 6},
	[LINK] = {"link", .drop = 2},
	[RX] = {"rx", .is_number = true, .drop = 4},
	[TX] = {"tx", .is_number = true, .drop = 3},
	[POWER] = {"power", .is_number = true, .drop = 5},
	[MEM_UTIL] = {"mem_util", .is_number = true, .drop = 7},
	[MEMORY] = {"memory[used/total]", .is_number = true, .min = 16},
	[PROCESSES] = {"processes", .drop = 8, .min = 20},
};

/* What a figure looks like: from `high` on it's red, from `middle` on yellow, below `low` it's grey. */
static enum row_color color_of(int64_t v, int64_t low, int64_t middle, int64_t high)
{
	return v >= high ? ROW_RED : v >= middle ? ROW_AMBER : v < low ? ROW_DIM : ROW_TEAL;
}

/* ---- cells ---- */

static void put_percent(struct table *t, struct value v, int64_t low, int64_t middle, int64_t high)
{
	if (value_is_present(v))
		table_number(t, color_of(v.v, low, middle, high), v.v, 0, "%");
	else
		table_absent(t);
}

static void put_temperature(struct table *t, struct value v)
{
	if (value_is_present(v))
		table_number(t, v.v >= 80 ? ROW_RED : v.v >= 65 ? ROW_AMBER : ROW_DIM, v.v, 0, "C");
	else
		table_absent(t);
}

static void put_link(struct table *t, const struct gpu_card *c)
{
	int64_t gen, width;

	if (show_link_of(c, &gen, &width))
		table_text(t, ROW_DIM, "%lld.0x%lld", (long long)gen, (long long)width);
	else
		table_absent(t);
}

static void put_traffic(struct table *t, const struct gpu_card *c, enum metric m)
{
	CLEANUP(buf_done) struct buf b = {0};
	struct value v = c->m[m];
	int64_t gen, width, capacity = 0;
	enum row_color color = ROW_TEAL;

	if (!value_is_present(v)) {
		table_absent(t);
		return;
	}
	if (show_link_of(c, &gen, &width))
		capacity = show_link_capacity_kib_s(gen, width);
	if (capacity)
		color = color_of(show_percent(v.v, capacity), 1, 40, 70);
	show_rate_put(v.v, &b);
	table_text(t, color, "%s", buf_str(&b));
}

static void put_power(struct table *t, const struct gpu_card *c)
{
	CLEANUP(buf_done) struct buf b = {0};

	show_power_put(c, &b);
	if (b.len)
		table_text(t, ROW_DIM, "%s", buf_str(&b));
	else
		table_absent(t);
}

static void put_memory(struct table *t, struct value used, struct value total)
{
	if (value_is_present(used) && value_is_present(total))
		table_text(t, color_of(show_percent(used.v, total.v), 1, 75, 90), "%lld/%lld MiB",
			(long long)used.v, (long long)total.v);
	else if (value_is_present(total))
		table_text(t, ROW_DIM, "-/%lld MiB", (long long)total.v);
	else if (value_is_present(used))
		table_text(t, ROW_TEAL, "%lld/- MiB", (long long)used.v);
	else
		table_absent(t);
}

static void put_users(struct table *t, const struct sample *s, int card, int instance)
{
	CLEANUP(buf_done) struct buf b = {0};
	CLEANUP(show_uses_done) struct show_uses u = {0};

	show_uses_add(&u, s, card, instance);
	show_uses_sort(&u);
	if (!u.n) {
		table_absent(t);
		return;
	}
	show_uses_put(&u, CARD_USERS_MAX, &b);
	table_text(t, ROW_TEAL, "%s", buf_str(&b));
}

/* ---- rows ---- */

static void add_card(struct table *t, const struct sample *s, uint32_t i)
{
	const struct gpu_card *c = &s->snap.cards[i];
	CLEANUP(buf_done) struct buf name = {0};

	show_card_name(c->name, &name);
	table_row(t);
	table_number(t, ROW_BOLD, c->index, 0, "");
	if (name.len)
		table_text(t, ROW_PLAIN, "%s%s", buf_str(&name),
			c->is_unified ? " (unified memory)" : "");
	else
		table_absent(t);
	put_percent(t, c->m[METRIC_FAN], 101, 101, 101);
	put_percent(t, c->m[METRIC_UTIL_GPU], 5, 50, 80);
	put_temperature(t, c->m[METRIC_TEMP]);
	put_link(t, c);
	put_traffic(t, c, METRIC_PCIE_RX);
	put_traffic(t, c, METRIC_PCIE_TX);
	put_power(t, c);
	put_percent(t, c->m[METRIC_UTIL_MEM], 5, 50, 80);
	put_memory(t, c->m[METRIC_MEM_USED], c->m[METRIC_MEM_TOTAL]);
	put_users(t, s, (int)i, -1);
}

/* A MIG instance stands below its card; the driver has no utilisation for it. */
static void add_instance(struct table *t, const struct sample *s, uint32_t i)
{
	const struct gpu_instance *g = &s->snap.instances[i];

	table_row(t);
	table_text(t, ROW_DIM, "  %d", g->gi ? g->gi - 1 : 0);
	table_text(t, ROW_PLAIN, "  MIG %s", g->profile[0] ? g->profile : "instance");
	for (int k = FAN; k < MEMORY; k++)
		table_absent(t);
	put_memory(t, g->mem_used_mib, g->mem_total_mib);
	put_users(t, s, (int)g->card, (int)i);
}

static void add_health(struct table *t, const struct gpu_card *c)
{
	struct health_fact facts[HEALTH_FACTS_MAX];
	size_t n = health_of(c, facts);
	CLEANUP(buf_done) struct buf b = {0};

	if (!n)
		return;
	buf_printf(
		&b, "%s %d: ", facts[0].weight == HEALTH_NOTE ? "note, card" : "! card", c->index);
	for (size_t i = 0; i < n; i++)
		buf_printf(&b, "%s%s", i ? "; " : "", facts[i].text);
	table_note(t,
		facts[0].weight == HEALTH_BAD	    ? ROW_RED
		: facts[0].weight == HEALTH_WARNING ? ROW_AMBER
						    : ROW_DIM,
		buf_str(&b));
}

static void put_table(const struct sample *s, const struct once_style *style, struct buf *out)
{
	CLEANUP(table_done) struct table t;

	table_init(&t, columns, COLUMN_N);
	for (uint32_t i = 0; i < s->snap.n_cards; i++) {
		if (gpu_is_instance(&s->snap.cards[i]))
			continue;
		add_card(&t, s, i);
		for (uint32_t k = 0; k < s->snap.n_instances; k++)
			if (s->snap.instances[k].card == i)
				add_instance(&t, s, k);
		add_health(&t, &s->snap.cards[i]);
	}
	table_put(&t, &style->row, style->is_compact, out);
}

static void add_profile(struct table *t, const struct gpu_card *c)
{
	char label[GPU_LABEL_LEN];

	gpu_label(c->index, c->gi, c->ci, label);
	table_row(t);
	table_text(t, ROW_PLAIN, "%s", label);
	for (size_t k = 0; k < SHOW_PROFILE_N; k++)
		put_percent(t, c->m[show_profile_columns[k].metric], 5, 101, 101);
}

static void put_profile_table(
	const struct sample *s, const struct once_style *style, struct buf *out)
{
	struct table_column titles[1 + SHOW_PROFILE_N] = {{"GPU"}};
	CLEANUP(table_done) struct table t = {0};

	for (size_t i = 0; i < SHOW_PROFILE_N; i++)
		titles[1 + i] = (struct table_column){show_profile_columns[i].title,
			.is_number = true, .drop = show_profile_columns[i].drop};
	table_init(&t, titles, ARRAY_LEN(titles));
	for (uint32_t i = 0; i < s->snap.n_cards; i++) {
		if (gpu_is_instance(&s->snap.cards[i]))
			continue;
		add_profile(&t, &s->snap.cards[i]);
		for (uint32_t g = 0; g < s->snap.n_cards; g++)
			if (gpu_is_instance(&s->snap.cards[g]) && gpu_whole_of(&s->snap, g) == i &&
				profile_has(&s->snap.cards[g]))
				add_profile(&t, &s->snap.cards[g]);
	}
	table_put(&t, &style->row, style->is_compact, out);
}

/* ---- lines ---- */

static void put_rule(const struct once_style *style, size_t cells, struct buf *out)
{
	size_t n = style->row.cols && style->row.cols < cells ? style->row.cols : cells;
	struct row r;

	if (style->row.cols && !style->is_compact)
		n = style->row.cols;
	row_begin(&r, &style->row, out);
	for (size_t i = 0; i < n; i++)
		row_either(&r, ROW_DIM, "\xe2\x94\x80", "-");
	row_end(&r);
}

static void put_uses_line(
	const char *title, struct show_uses *u, const struct once_style *style, struct buf *out)
{
	CLEANUP(buf_done) struct buf b = {0};
	struct row r;

	show_uses_sort(u);
	show_uses_put(u, USERS_MAX, &b);
	row_begin(&r, &style->row, out);
	row_text(&r, ROW_DIM, title);
	row_text(&r, u->n ? ROW_TEAL : ROW_DIM, buf_str(&b));
	row_end(&r);
}

/* "12.3" GiB of a number of MiB. */
static void put_gib(struct row *r, enum row_color color, int64_t used, int64_t total)
{
	CLEANUP(buf_done) struct buf b = {0};

	show_gib_put(used, total, &b);
	row_text(r, color, buf_str(&b));
}

static void put_card_sums(struct row *r, const struct sample *s)
{
	struct show_sums x = {0};
	int64_t util, mem;

	show_sums_add(&x, s);
	util = x.n_util ? x.util / x.n_util : 0;
	mem = show_percent(x.used_mib, x.total_mib);

	row_printf(r, ROW_PLAIN, "%u GPU%s", gpu_count_whole(&s->snap),
		gpu_count_whole(&s->snap) == 1 ? "" : "s");
	if (!s->snap.n_cards)
		return;
	row_printf(r, x.n_idle ? ROW_GREEN : ROW_AMBER, "  %lld idle", (long long)x.n_idle);
	if (x.n_util)
		row_printf(r, color_of(util, 0, 50, 80), "  util %lld%%", (long long)util);
	if (x.total_mib) {
		row_text(r, ROW_PLAIN, "  VRAM ");
		put_gib(r, color_of(mem, 0, 75, 90), x.used_mib, x.total_mib);
		row_printf(r, color_of(mem, 0, 75, 90), " (%lld%%)", (long long)mem);
	}
}

static void put_host_sums(struct row *r, const struct host_figures *h)
{
	if (value_is_present(h->cpu_pct))
		row_printf(r, color_of(h->cpu_pct.v, 0, 50, 80), "  CPU %lld%%",
			(long long)h->cpu_pct.v);
	if (value_is_present(h->cpu_pct) && h->cores)
		row_printf(r, ROW_DIM, "(%d)", h->cores);
	if (value_is_present(h->mem_used_mib) && value_is_present(h->mem_total_mib)) {
		row_text(r, ROW_PLAIN, "  Mem ");
		put_gib(r, color_of(show_percent(h->mem_used_mib.v, h->mem_total_mib.v), 0, 75, 90),
			h->mem_used_mib.v, h->mem_total_mib.v);
	}
	if (value_is_present(h->swap_used_mib) && h->swap_used_mib.v > 0)
		row_printf(r, ROW_AMBER, " (+%lldM swap)", (long long)h->swap_used_mib.v);
}

static void put_age(const struct show_host *h, struct row *r)
{
	CLEANUP(buf_done) struct buf b = {0};

	if (!h->is_stale || h->sample_age_ms < 0)
		return;
	buf_puts(&b, "  stale: ");
	text_put_duration(&b, h->sample_age_ms);
	buf_puts(&b, " old");
	row_text(r, ROW_AMBER, buf_str(&b));
}

static void put_sentence(
	enum row_color color, const char *text, const struct once_style *style, struct buf *out)
{
	struct row r;

	row_begin(&r, &style->row, out);
	row_text(&r, ROW_PLAIN, "    ");
	row_wrap(&r, color, 4, text);
}

/* "[2] gpu1  2 GPUs  1 idle ..." or its sentence. */
static void put_summary(
	const struct show_host *h, size_t number, const struct once_style *style, struct buf *out)
{
	CLEANUP(buf_done) struct buf why = {0};
	struct row r;

	row_begin(&r, &style->row, out);
	row_printf(&r, ROW_DIM, "[%zu] ", number);
	row_text(&r, ROW_BOLD, h->name);
	row_text(&r, ROW_PLAIN, "  ");
	if (!h->sample) {
		buf_printf(&why, "%s%s%s", h->state, h->why[0] ? ": " : "", h->why);
		row_wrap(&r, h->has_answered ? ROW_DIM : ROW_RED, 4, buf_str(&why));
		return;
	}
	if (!h->has_answered)
		row_printf(&r, ROW_RED, "%s  ", h->state);
	put_card_sums(&r, h->sample);
	if (h->sample->has_host)
		put_host_sums(&r, &h->sample->host);
	if (h->sample->snap.source[0])
		row_printf(&r, ROW_DIM, "  src:%s", h->sample->snap.source);
	put_age(h, &r);
	row_end(&r);
	if (!h->has_answered && h->why[0])
		put_sentence(ROW_RED, h->why, style, out);
}

static void put_fact(struct row *r, bool *has_any, const char *name, const char *value)
{
	if (!value[0])
		return;
	row_printf(r, ROW_DIM, "%s%s %s", *has_any ? " | " : "    ", name, value);
	*has_any = true;
}

static void put_source(const struct show_host *h, const struct once_style *style, struct buf *out)
{
	const struct gpu_snapshot *s = &h->sample->snap;
	CLEANUP(buf_done) struct buf clock = {0};
	bool has_any = false;
	struct row r;

	if (h->clock_offset_ms > CLOCK_TOLERANCE_MS || h->clock_offset_ms < -CLOCK_TOLERANCE_MS) {
		text_put_duration(
			&clock, h->clock_offset_ms < 0 ? -h->clock_offset_ms : h->clock_offset_ms);
		buf_puts(&clock, h->clock_offset_ms < 0 ? " behind" : " ahead");
	}
	row_begin(&r, &style->row, out);
	put_fact(&r, &has_any, "Driver", s->driver);
	put_fact(&r, &has_any, "CUDA", s->cuda);
	put_fact(&r, &has_any, "Source:", s->source);
	put_fact(&r, &has_any, "Host:", h->address ? h->address : "");
	put_fact(&r, &has_any, "Clock:", buf_str(&clock));
	row_end(&r);
}

static void put_step(struct row *r, const char *name, int64_t ms)
{
	if (ms >= 0)
		row_printf(r, ROW_DIM, "  %s %lld.%03llds", name, (long long)(ms / 1000),
			(long long)(ms % 1000));
}

static void put_us(struct row *r, int64_t us)
{
	row_printf(r, ROW_DIM, " %lld.%03lld ms", (long long)(us / 1000), (long long)(us % 1000));
}

/* How long the driver took in all, and what it took longest for: some stop the whole machine meanwhile. */
static void put_driver_time(
	const struct show_host *h, const struct once_style *style, struct buf *out)
{
	const struct gpu_snapshot *s = h->sample ? &h->sample->snap : NULL;
	struct row r;

	if (!s || s->driver_us <= 0)
		return;
	row_begin(&r, &style->row, out);
	row_text(&r, ROW_DIM, "    driver:");
	put_us(&r, s->driver_us);
	if (s->slowest.what[0]) {
		row_text(&r, ROW_DIM, "  slowest: ");
		row_text(&r, ROW_DIM, s->slowest.what);
		if (s->slowest.index >= 0)
			row_printf(&r, ROW_DIM, " of card %d", (int)s->slowest.index);
		put_us(&r, s->slowest.took_us);
	}
	row_end(&r);
}

static void put_timings(const struct show_host *h, const struct once_style *style, struct buf *out)
{
	struct row r;

	if (!style->with_timings)
		return;
	row_begin(&r, &style->row, out);
	row_text(&r, ROW_DIM, "    timings:");
	put_step(&r, "connected", h->connected_ms);
	put_step(&r, "hello", h->hello_ms);
	put_step(&r, "first sample", h->first_sample_ms);
	put_step(&r, "round trip", h->rtt_ms);
	put_step(&r, "age", h->sample_age_ms);
	row_end(&r);
	put_driver_time(h, style, out);
}

static void put_left_out(uint32_t n, const struct once_style *style, struct buf *out)
{
	char text[160];

	snprintf(text, sizeof(text),
		"nothing can be placed on %u of the cards and MIG instances: there are more than %d, or they have no UUID",
		n, GPU_MAX);
	put_sentence(ROW_AMBER, text, style, out);
}

/* Where figures of profiling come from, or why there are none; where no card has a figure, the sentence alone. */
static void put_profile(const struct sample *s, const struct once_style *style, struct buf *out)
{
	CLEANUP(buf_done) struct buf b = {0};
	bool is_complaint = show_profiling_put(s, &b);

	if (b.len)
		put_sentence(is_complaint ? ROW_AMBER : ROW_DIM, buf_str(&b), style, out);
	if (profile_has_any(&s->snap))
		put_profile_table(s, style, out);
}

static void put_host(
	const struct show_host *h, size_t number, const struct once_style *style, struct buf *out)
{
	CLEANUP(show_uses_done) struct show_uses u = {0};

	put_summary(h, number, style, out);
	if (h->sample)
		put_source(h, style, out);
	put_timings(h, style, out);
	if (!h->sample)
		return;
	/* What the node itself couldn't ask stands where the table would. */
	if (h->sample->snap.error[0])
		put_sentence(h->sample->snap.n_cards ? ROW_AMBER : ROW_DIM, h->sample->snap.error,
			style, out);
	if (!h->sample->snap.n_cards)
		return;
	if (h->sample->snap.n_left_out > 0)
		put_left_out(h->sample->snap.n_left_out, style, out);
	if (h->sample->snap.has_foreign_pids)
		put_sentence(ROW_AMBER,
			"in a container with process numbers of its own: the driver's are the host's, so processes have "
			"no names here, and memory can't be told by process; start it with --pid=host",
			style, out);
	put_table(h->sample, style, out);
	put_profile(h->sample, style, out);
	show_uses_add(&u, h->sample, -1, -1);
	put_uses_line("    Users: ", &u, style, out);
}

static void put_head(const struct show_fleet *f, const struct once_style *style, struct buf *out)
{
	time_t seconds = (time_t)(f->now_wall_ms / 1000);
	CLEANUP(buf_done) struct buf b = {0};
	char text[32] = "?";
	struct tm tm;
	struct row r;

	if (localtime_r(&seconds, &tm))
		strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &tm);
	buf_printf(&b, "Time %s | Server(s): %zu", text, f->n);
	row_begin(&r, &style->row, out);
	row_text(&r, ROW_BOLD, buf_str(&b));
	row_end(&r);
	put_rule(style, text_width(buf_str(&b), b.len), out);
}

void once_text(const struct show_fleet *f, const struct once_style *style, struct buf *out)
{
	CLEANUP(show_uses_done) struct show_uses all = {0};

	put_head(f, style, out);
	for (size_t i = 0; i < f->n; i++) {
		if (i)
			buf_putc(out, '\n');
		put_host(&f->hosts[i], i + 1, style, out);
		if (f->hosts[i].sample)
			show_uses_add(&all, f->hosts[i].sample, -1, -1);
	}
	buf_putc(out, '\n');
	put_uses_line("All users: ", &all, style, out);
}
