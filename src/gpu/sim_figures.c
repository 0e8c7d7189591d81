/* Waves and sums (sim_figures.h). Cheap: a few dozen integer operations a card. */
#include "gpu/sim_figures.h"

#include "base/cleanup.h"
#include "core/profile.h"

#include <stdio.h>

#define LIMIT_MW 350000
#define IDLE_MW 22000
#define CLOCK_MAX 1980
#define MEM_CLOCK_MAX 9501

/* A triangle from 0 to 1000 and back. */
static int64_t wave(int64_t now_ms, int64_t period_ms, int64_t phase_ms)
{
	int64_t at = (now_ms + phase_ms) % period_ms, half = period_ms / 2;

	return at < half ? at * 1000 / half : (period_ms - at) * 1000 / half;
}

static void put_limits(struct value *m)
{
	static const struct {
		enum metric metric;
		int64_t v;
	} fixed[] = {
		{METRIC_POWER_LIMIT, LIMIT_MW},
		{METRIC_POWER_LIMIT_DEFAULT, LIMIT_MW},
		{METRIC_POWER_LIMIT_MIN, 100000},
		{METRIC_POWER_LIMIT_MAX, 400000},
		{METRIC_CLOCK_SM_MAX, CLOCK_MAX},
		{METRIC_CLOCK_GRAPHICS_MAX, CLOCK_MAX},
		{METRIC_CLOCK_MEM_MAX, MEM_CLOCK_MAX},
		{METRIC_TEMP_SLOWDOWN, 90},
		{METRIC_TEMP_SHUTDOWN, 95},
		{METRIC_PCIE_WIDTH, 16},
		{METRIC_PCIE_WIDTH_MAX, 16},
		{METRIC_PCIE_GEN_MAX, 4},
		{METRIC_THROTTLE_MASK, 0x1ff},
		{METRIC_ECC_MODE, 0},
		{METRIC_ECC_MODE_PENDING, 0},
		{METRIC_MIG_PENDING, 0},
		{METRIC_BAR1_TOTAL, 256},
		{METRIC_BAR1_USED, 3},
		{METRIC_PERSISTENCE, 1},
		{METRIC_COMPUTE_MODE, 0},
		{METRIC_UTIL_ENC, 0},
		{METRIC_UTIL_DEC, 0},
		{METRIC_REJECTED, 0},
	};

	for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
		m[fixed[i].metric] = value_of(fixed[i].v);
}

static void put_xid(const struct gpu_xid *x, struct value *m)
{
	m[METRIC_XID_LAST] = x->count > 0 ? value_of(x->last) : value_absent(VALUE_EMPTY);
	m[METRIC_XID_LAST_TIME] = value_absent(VALUE_EMPTY);
	m[METRIC_XID_COUNT] = value_of(x->count);
}

void sim_figures(struct gpu_card *c, bool is_busy, int64_t now_ms)
{
	struct value *m = c->m;
	int64_t phase = c->index * 7919, total = m[METRIC_MEM_TOTAL].v;
	int64_t full = total > 0 ? m[METRIC_MEM_USED].v * 1000 / total : 0;
	int64_t util = is_busy ? 78 + wave(now_ms, 23000, phase) * 20 / 1000 : 0;
	/* A fuller card works harder on its memory. */
	int64_t util_mem = util * (300 + full / 2) / 1000;
	int64_t power = IDLE_MW + (LIMIT_MW - IDLE_MW) * util / 100 * (700 + full / 4) / 1000 +
			wave(now_ms, 7000, phase) * 4;
	int64_t temp = 31 + c->index % 4 + power * 45 / LIMIT_MW + wave(now_ms, 90000, phase) / 500;

	power = power > LIMIT_MW ? LIMIT_MW : power;
	put_limits(m);
	put_xid(&c->xid, m);
	snprintf(c->arch, sizeof(c->arch), "Simulated");
	m[METRIC_UTIL_GPU] = value_of(util);
	m[METRIC_UTIL_MEM] = value_of(util_mem);
	m[METRIC_TEMP] = value_of(temp);
	m[METRIC_TEMP_MARGIN] = value_of(90 - temp);
	m[METRIC_POWER] = m[METRIC_POWER_INSTANT] = value_of(power);
	m[METRIC_ENERGY] = value_of(now_ms / 1000 * (is_busy ? LIMIT_MW * 3 / 4 : IDLE_MW));
	m[METRIC_FAN] = value_of(temp < 40 ? 0 : 30 + (temp - 40) * 3 / 2);
	m[METRIC_CLOCK_SM] =
		value_of(is_busy ? CLOCK_MAX - 165 + wave(now_ms, 5000, phase) / 7 : 210);
	m[METRIC_CLOCK_GRAPHICS] = m[METRIC_CLOCK_SM];
	m[METRIC_CLOCK_MEM] = value_of(is_busy ? MEM_CLOCK_MAX : 405);
	m[METRIC_PSTATE] = value_of(is_busy ? 2 : 8);
	m[METRIC_THROTTLE] = value_of(!is_busy ? 0x1 : power >= LIMIT_MW * 9 / 10 ? 0x4 : 0);
	m[METRIC_PCIE_GEN] = value_of(is_busy ? 4 : 1);
	m[METRIC_PCIE_TX] = value_of(is_busy ? 40000 + wave(now_ms, 3000, phase) * 200 : 0);
	m[METRIC_PCIE_RX] = value_of(is_busy ? 90000 + wave(now_ms, 4000, phase) * 600 : 0);
	m[METRIC_HELD_POWER] = value_of(m[METRIC_THROTTLE].v == 0x4 ? 60 : 0);
	m[METRIC_HELD_THERMAL] = value_of(0);
}

void sim_profile(struct gpu_card *c, int64_t now_ms)
{
	int64_t util = value_is_present(c->m[METRIC_UTIL_GPU]) ? c->m[METRIC_UTIL_GPU].v : 0;
	int64_t tensor = util * (400 + wave(now_ms, 11000, c->index * 7919) / 4) / 1000;
	const struct value v[PROFILE_N] = {
		[PROFILE_SM_ACTIVE] = value_of(util * 9 / 10),
		[PROFILE_SM_OCCUPANCY] = value_of(util * 4 / 10),
		[PROFILE_TENSOR] = value_of(tensor),
		[PROFILE_FP64] = value_of(0),
		[PROFILE_FP32] = value_of(util / 5),
		[PROFILE_FP16] = value_of(util / 10),
		[PROFILE_INT] = value_of(util / 6),
		[PROFILE_DRAM] = c->m[METRIC_UTIL_MEM],
		[PROFILE_PCIE_TX] = value_absent(VALUE_UNSUPPORTED),
		[PROFILE_PCIE_RX] = value_absent(VALUE_UNSUPPORTED),
		[PROFILE_NVLINK_TX] = value_absent(VALUE_UNSUPPORTED),
		[PROFILE_NVLINK_RX] = value_absent(VALUE_UNSUPPORTED),
	};

	profile_put(v, c);
}

void sim_use(const struct gpu_card *c, uint32_t n, struct gpu_proc_more *ret)
{
	n = n > 0 ? n : 1;
	ret->sm_pct = value_of(c->m[METRIC_UTIL_GPU].v / n);
	ret->mem_pct = value_of(c->m[METRIC_UTIL_MEM].v / n);
	ret->enc_pct = ret->dec_pct = value_of(0);
}
