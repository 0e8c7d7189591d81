/*
 * A card's figures: which are due, each by its ways (nvml_way.h) in order by return code. A field value comes first, all
 * those that are due in one call, then calls of their own. A way that is permanently unsupported is not tried again. An
 * absence is a metric's, never the card's. Rates and shares of time are made here of two readings of a counter.
 */
#include "gpu/nvml.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "gpu/nvml_link.h"
#include "gpu/nvml_way.h"

#include <string.h>

#define FIELDS_MAX 48
#define RATE_PERIOD_US 100000 /* below it the last rate holds */

/* A counter that went back was set to nothing, or has wrapped: there's no rate this time. */
static struct value rate_of(struct asking *a, const struct nvml_metric *m, int64_t raw, int64_t us)
{
	struct nvml_card *c = a->c;
	int64_t before_us = c->before[m->metric].us, span = us - before_us;
	uint64_t before = c->before[m->metric].raw, more;

	if (before_us != 0 && span < RATE_PERIOD_US && (uint64_t)raw >= before)
		return c->slow[m->metric];
	c->before[m->metric].raw = (uint64_t)raw;
	c->before[m->metric].us = us;
	c->slow[m->metric] = value_absent(VALUE_EMPTY);
	if (before_us == 0 || (uint64_t)raw < before || span <= 0)
		return c->slow[m->metric];
	more = (uint64_t)raw - before;
	if (m->derive == RATE_BYTES)
		more /= 1024;
	if (m->derive == SHARE_NS) {
		/* Both clocks are rounded. */
		more = more / 10 / (uint64_t)span;
		more = more > 100 && more <= 105 ? 100 : more;
	} else if (__builtin_mul_overflow(more, UINT64_C(1000000), &more)) {
		return c->slow[m->metric];
	} else {
		more /= (uint64_t)span;
	}
	c->slow[m->metric] = value_of((int64_t)more);
	return c->slow[m->metric];
}

static struct value checked(struct asking *a, const struct nvml_metric *m, struct value v)
{
	if (!value_is_present(v) || (v.v >= m->min && v.v <= m->max))
		return v;
	a->c->rejected++;
	return value_absent(VALUE_FAILED);
}

static void set_gone(struct nvml_card *c, enum metric m, unsigned bit, enum value_state why)
{
	c->gone[m] |= (uint8_t)bit;
	c->gone_why[m] = why;
}

/* Whether the field answered, with a figure or with a reason that holds for now: *ret then. */
static bool take_field(struct asking *a, const struct nvml_metric *m, const struct nvml_field *f,
	int64_t now_us, struct value *ret)
{
	int64_t v = 0;
	int code = f->code == NVML_OK ? nvml_field_value(f, &v) : f->code;

	/* A library that doesn't know a field's number answers so for that field. */
	if (code == NVML_INVALID_ARGUMENT)
		code = NVML_NOT_SUPPORTED;
	if (code == NVML_OK && m->metric == METRIC_TEMP_MEM && v == 0)
		code = NVML_NOT_SUPPORTED;
	if (code == NVML_OK) {
		*ret = checked(a, m,
			m->derive == AS_IT_IS
				? value_of(v)
				: rate_of(a, m, v, f->stamp_us > 0 ? f->stamp_us : now_us));
		return true;
	}
	*ret = value_absent(nvml_code_value(code));
	if (nvml_code_is_permanent(code))
		set_gone(a->c, m->metric, FIELD_GONE, ret->state);
	return m->ways[0] == NULL || !nvml_code_is_permanent(code);
}

static struct value read_ways(struct asking *a, const struct nvml_metric *m)
{
	struct nvml_card *c = a->c;
	struct value why = value_absent(c->gone_why[m->metric]);
	bool has_reason = false;

	for (unsigned k = 0; k < METRIC_WAYS && m->ways[k] != NULL; k++) {
		int64_t v = 0, begun_us;
		int code;

		if (c->gone[m->metric] & 1u << k)
			continue;
		begun_us = nvml_call_begin();
		code = m->ways[k](a, &v);
		nvml_call_end(a->n, c, metric_info[m->metric].key, begun_us);
		if (code == NVML_OK)
			return checked(a, m, value_of(v));
		if (code == NVML_NOT_ASKED_CODE)
			return value_absent(VALUE_NOT_ASKED);
		if (!has_reason)
			why = value_absent(nvml_code_value(code));
		if (nvml_card_drop(a->n, c, code))
			break;
		/* Of several reasons the first that may pass is the one to tell. */
		if (nvml_code_is_permanent(code))
			set_gone(c, m->metric, 1u << k, nvml_code_value(code));
		else
			has_reason = true;
	}
	return why;
}

/* ---- which are due ---- */

struct due {
	bool slow; /* of the plain metrics */
	bool more[TIER_RARE + 1];
};

static bool is_due_at(int64_t last_ms, int64_t every_ms, int64_t now_ms)
{
	return last_ms == 0 || now_ms - last_ms >= every_ms;
}

static struct due due_now(const struct nvml *n, const struct nvml_card *c, int64_t now_ms)
{
	struct due d = {.slow = is_due_at(c->slow_ms, NVML_SLOW_MS, now_ms)};
	int64_t times;

	if (!n->base.ask.details)
		return d;
	d.more[TIER_FAST] = true;
	d.more[TIER_STATIC] = c->more_ms[TIER_STATIC] == 0;
	times = nvml_is_gentle(n) ? NVML_GENTLE : 1;
	d.slow = is_due_at(c->slow_ms, NVML_SLOW_MS * times, now_ms);
	d.more[TIER_SLOW] = is_due_at(c->more_ms[TIER_SLOW], NVML_SLOW_MS * times, now_ms);
	d.more[TIER_RARE] = is_due_at(c->more_ms[TIER_RARE], NVML_RARE_MS * times, now_ms);
	return d;
}

static bool is_due(const struct due *d, enum metric m)
{
	enum metric_tier t = metric_info[m].tier;

	if (m >= METRIC_PLAIN_N)
		return d->more[t];
	return t == TIER_FAST || d->slow;
}

static void note_due(struct nvml_card *c, const struct due *d, int64_t now_ms)
{
	if (d->slow)
		c->slow_ms = now_ms;
	for (int t = 0; t <= TIER_RARE; t++) {
		if (d->more[t])
			c->more_ms[t] = now_ms;
	}
}

/* ---- the whole card ---- */

/* Figures that came by field; has[i] says of nvml_metrics[i] whether it needs no other way. */
static void ask_fields(struct asking *a, const struct due *due, struct value *v, bool *has)
{
	struct nvml_field f[FIELDS_MAX];
	size_t at[FIELDS_MAX], n = 0;
	int64_t now_us = clock_boot_us(), begun_us;
	int code;

	for (size_t i = 0; i < nvml_n_metrics && n < FIELDS_MAX; i++) {
		const struct nvml_metric *m = &nvml_metrics[i];

		if (m->field == 0 || !is_due(due, m->metric) ||
			(a->c->gone[m->metric] & FIELD_GONE))
			continue;
		f[n] = (struct nvml_field){.id = m->field, .scope = m->scope};
		at[n++] = i;
	}
	if (n == 0)
		return;
	begun_us = nvml_call_begin();
	code = a->f->fields == NULL ? NVML_FUNCTION_NOT_FOUND : a->f->fields(a->d, (int32_t)n, f);
	nvml_call_end(a->n, a->c, "field values", begun_us);
	if (nvml_card_drop(a->n, a->c, code))
		return;
	for (size_t k = 0; k < n; k++) {
		size_t i = at[k];

		if (code != NVML_OK)
			f[k].code = code;
		has[i] = take_field(a, &nvml_metrics[i], &f[k], now_us, &v[i]);
	}
}

/* What a card cut into instances doesn't support, the same card in one piece does, and the other way round. */
static void note_mig_mode(struct nvml_card *c, struct value mode)
{
	if (!value_is_present(mode) || mode.v == c->mig_mode)
		return;
	if (c->mig_mode >= 0) {
		memset(c->gone, 0, sizeof(c->gone));
		memset(c->list_gone, 0, sizeof(c->list_gone));
		memset(c->more_ms, 0, sizeof(c->more_ms));
		c->use_gone = false;
		c->slow_ms = 0;
	}
	c->mig_mode = mode.v;
}

/* What isn't a figure of NVML's own, but of what was seen. */
static void put_own(const struct nvml_card *c, struct gpu_card *ret)
{
	struct value slowdown = ret->m[METRIC_TEMP_SLOWDOWN], temp = ret->m[METRIC_TEMP];
	struct value mask = ret->m[METRIC_THROTTLE_MASK];

	if (!value_is_present(ret->m[METRIC_TEMP_MARGIN]) && value_is_present(slowdown) &&
		value_is_present(temp))
		ret->m[METRIC_TEMP_MARGIN] = value_of(slowdown.v - temp.v);
	if (value_is_present(mask) && value_is_present(ret->m[METRIC_THROTTLE]))
		ret->m[METRIC_THROTTLE].v &= mask.v;
	ret->m[METRIC_REJECTED] = value_of(c->rejected);
	ret->m[METRIC_NVLINK_ACTIVE] =
		c->links_active >= 0 ? value_of(c->links_active) : value_absent(VALUE_UNSUPPORTED);
	if (!c->has_xids && c->xid_count == 0) {
		for (enum metric m = METRIC_XID_LAST; m <= METRIC_XID_COUNT; m++)
			ret->m[m] = value_absent(VALUE_UNSUPPORTED);
		return;
	}
	ret->m[METRIC_XID_COUNT] = value_of(c->xid_count);
	ret->m[METRIC_XID_LAST] =
		c->xid_count > 0 ? value_of(c->xid_last) : value_absent(VALUE_EMPTY);
	ret->m[METRIC_XID_LAST_TIME] =
		c->xid_count > 0 ? value_of(c->xid_wall_ms) : value_absent(VALUE_EMPTY);
}

/* Jetson's library answers "success" with zeros: figures that are all zero are none, and sysfs has the real ones. */
static void mend_tegra(const struct nvml *n, struct gpu_card *ret)
{
	static const enum metric doubtful[] = {METRIC_UTIL_GPU, METRIC_UTIL_MEM, METRIC_TEMP,
		METRIC_POWER, METRIC_CLOCK_SM, METRIC_CLOCK_MEM, METRIC_FAN, METRIC_POWER_LIMIT};
	bool is_all_zero = true;
	int64_t v;

	for (size_t i = 0; i < ARRAY_LEN(doubtful); i++)
		is_all_zero &= !value_is_present(ret->m[doubtful[i]]) || ret->m[doubtful[i]].v == 0;
	for (size_t i = 0; is_all_zero && i < ARRAY_LEN(doubtful); i++)
		ret->m[doubtful[i]] = value_absent(VALUE_UNSUPPORTED);
	if (nvml_host_tegra_load(n->host_root, &v) == 0)
		ret->m[METRIC_UTIL_GPU] = value_of(v);
	if (nvml_host_tegra_temp(n->host_root, &v) == 0)
		ret->m[METRIC_TEMP] = value_of(v);
}

void nvml_card_figures(struct nvml *n, struct nvml_card *c, int64_t now_ms, struct gpu_card *ret)
{
	struct asking a = {.n = n, .c = c, .f = &n->lib.fn, .d = c->handle, .now_ms = now_ms};
	struct due due = due_now(n, c, now_ms);
	struct value v[NVML_METRICS_MAX] = {0};
	bool has[NVML_METRICS_MAX] = {0};

	ask_fields(&a, &due, v, has);
	for (size_t i = 0; i < nvml_n_metrics && c->handle != NULL; i++) {
		enum metric m = nvml_metrics[i].metric;
		bool is_fast = metric_info[m].tier == TIER_FAST;

		if (m >= METRIC_PLAIN_N && !n->base.ask.details)
			break;
		if (is_due(&due, m)) {
			if (!has[i])
				v[i] = read_ways(&a, &nvml_metrics[i]);
			if (!is_fast)
				c->slow[m] = v[i];
		}
		ret->m[m] = is_fast ? v[i] : c->slow[m];
	}
	if (c->handle == NULL)
		return;
	note_due(c, &due, now_ms);
	if (n->base.ask.details)
		put_own(c, ret);
	if (n->is_tegra)
		mend_tegra(n, ret);
	note_mig_mode(c, c->slow[METRIC_MIG_MODE]);
}
