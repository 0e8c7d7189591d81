/* The table of what a card can be unwell of. Thresholds and sentences stand here and nowhere else. */
#include "show/health.h"

#include "base/cleanup.h"

#include <stdio.h>
#include <stdarg.h>
#include <string.h>

struct facts {
	struct health_fact *items;
	size_t n;
};

/* NVML's clock-event bits. What is said of a bit with text NULL: nothing, for it's ordinary. */
static const struct {
	const char *word;
	enum health_weight weight;
	const char *text;
} throttles[] = {
	{"gpu_idle", HEALTH_NOTE, NULL},
	{"applications_clocks", HEALTH_NOTE, NULL},
	{"sw_power_cap", HEALTH_NOTE, "held back by its power limit"},
	{"hw_slowdown", HEALTH_WARNING, "slowed down by the hardware (heat or power)"},
	{"sync_boost", HEALTH_NOTE, NULL},
	{"sw_thermal", HEALTH_WARNING, "held back by heat"},
	{"hw_thermal", HEALTH_BAD, "slowed down by the hardware: too hot"},
	{"hw_power_brake", HEALTH_BAD, "slowed down by the hardware: the power supply says stop"},
	{"display_clocks", HEALTH_NOTE, NULL},
};

const char *health_weight_name(enum health_weight w)
{
	static const char *const names[] = {"note", "warning", "bad"};

	return names[w];
}

const char *health_throttle_word(unsigned bit)
{
	return bit < ARRAY_LEN(throttles) ? throttles[bit].word : NULL;
}

__attribute__((format(printf, 4, 5))) static void add(
	struct facts *f, const char *kind, enum health_weight w, const char *fmt, ...)
{
	struct health_fact *x;
	va_list ap;

	if (f->n == HEALTH_FACTS_MAX)
		return;
	x = &f->items[f->n++];
	x->kind = kind;
	x->weight = w;
	va_start(ap, fmt);
	vsnprintf(x->text, sizeof(x->text), fmt, ap);
	va_end(ap);
}

/* The figure if it's there and above 0, else 0. */
static int64_t count_of(const struct gpu_card *c, enum metric m)
{
	return value_is_present(c->m[m]) && c->m[m].v > 0 ? c->m[m].v : 0;
}

static void add_throttles(const struct gpu_card *c, struct facts *f)
{
	uint64_t bits = (uint64_t)count_of(c, METRIC_THROTTLE);

	/* The general bit says less than the two that go with it. */
	if (bits & 0xc0)
		bits &= ~(uint64_t)0x8;
	for (size_t i = 0; i < ARRAY_LEN(throttles); i++)
		if ((bits >> i & 1) && throttles[i].text)
			add(f, "throttle", throttles[i].weight, "%s", throttles[i].text);
}

static void add_memory_errors(const struct gpu_card *c, struct facts *f)
{
	int64_t n;

	if (count_of(c, METRIC_REMAP_FAILURE))
		add(f, "remap", HEALTH_BAD,
			"a memory row couldn't be remapped: the card should be replaced");
	if (count_of(c, METRIC_REMAP_PENDING))
		add(f, "remap", HEALTH_WARNING,
			"a memory row will be remapped at the next reset: reset the card when it's idle");
	if (count_of(c, METRIC_RETIRED_PENDING))
		add(f, "retired", HEALTH_WARNING,
			"memory pages will be retired at the next reboot");
	n = count_of(c, METRIC_ECC_UNCORR);
	if (n)
		add(f, "ecc", HEALTH_BAD,
			"%lld memory errors that weren't corrected since the driver was loaded",
			(long long)n);
}

static void add_recovery(const struct gpu_card *c, struct facts *f)
{
	static const char *const actions[] = {NULL, "the driver asks for a reset of the card",
		"the driver asks for a reboot of the machine",
		"the driver asks that peer-to-peer work be drained",
		"the driver asks that the card be drained and reset",
		"the driver asks that the fabric be recovered"};
	int64_t action = count_of(c, METRIC_RECOVERY);

	if (action > 0 && (size_t)action < ARRAY_LEN(actions))
		add(f, "recovery", HEALTH_BAD, "%s", actions[action]);
	else if (action)
		add(f, "recovery", HEALTH_BAD, "the driver asks for recovery action %lld",
			(long long)action);
}

enum health_weight health_of_xid(const struct xid_info *x)
{
	if (!x)
		return HEALTH_WARNING;
	switch (x->tier) {
	case XID_INFO:
	case XID_APP:
		return HEALTH_NOTE;
	case XID_CRITICAL:
		return HEALTH_BAD;
	case XID_DRIVER:
	case XID_WARNING:
		break;
	}
	return HEALTH_WARNING;
}

static void add_xid(const struct gpu_card *c, struct facts *f)
{
	int64_t xid = count_of(c, METRIC_XID_LAST), n = count_of(c, METRIC_XID_COUNT);
	const struct xid_info *x = xid_find(xid);
	CLEANUP(buf_done) struct buf text = {0};
	char which[64] = "XID error";

	if (!xid)
		return;
	xid_put(x, &text);
	if (n > 1)
		snprintf(which, sizeof(which), "last of %lld XID errors:", (long long)n);
	add(f, "xid", health_of_xid(x), "%s %lld%s%s", which, (long long)xid, text.len ? ", " : "",
		buf_str(&text));
}

static void add_mig(const struct gpu_card *c, struct facts *f)
{
	struct value now = c->m[METRIC_MIG_MODE], then = c->m[METRIC_MIG_PENDING];

	if (value_is_present(now) && value_is_present(then) && now.v != then.v)
		add(f, "mig", HEALTH_WARNING, "MIG mode will be %s after a reset of the card",
			then.v ? "on" : "off");
}

/* Worst first, else as they came. */
static void sort(struct facts *f)
{
	for (size_t i = 1; i < f->n; i++) {
		struct health_fact x = f->items[i];
		size_t k = i;

		for (; k > 0 && f->items[k - 1].weight < x.weight; k--)
			f->items[k] = f->items[k - 1];
		f->items[k] = x;
	}
}

size_t health_of(const struct gpu_card *c, struct health_fact ret[HEALTH_FACTS_MAX])
{
	struct facts f = {.items = ret};

	if (c->state != GPU_OK)
		add(&f, "state", HEALTH_BAD, "%s", gpu_state_text(c->state));
	add_recovery(c, &f);
	add_memory_errors(c, &f);
	add_throttles(c, &f);
	add_xid(c, &f);
	add_mig(c, &f);
	sort(&f);
	return f.n;
}
