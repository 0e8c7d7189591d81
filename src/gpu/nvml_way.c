/* Each figure's ways (nvml_way.h), and the table of them. */
#include "gpu/nvml_way.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "gpu/nvml_link.h"

#include <assert.h>
#include <string.h>

#define MIB (1024 * 1024)
#define PCIE_CALL_CARDS 2 /* on more, the call that takes 20 ms isn't made */
#define ALL_LINKS UINT32_MAX

/* All bits one is NVML's "not available", whatever the call returned. */
static int take_u32(int code, uint32_t v, int64_t *ret)
{
	if (code != NVML_OK)
		return code;
	if (v == NVML_ABSENT_U32)
		return NVML_NO_DATA;
	*ret = v;
	return NVML_OK;
}

static int take_u64(int code, uint64_t v, int64_t *ret)
{
	if (code != NVML_OK)
		return code;
	if (v > INT64_MAX)
		return NVML_NO_DATA;
	*ret = (int64_t)v;
	return NVML_OK;
}

int nvml_field_value(const struct nvml_field *f, int64_t *ret)
{
	switch (f->type) {
	case 0:
		if (!(f->value.real >= 0 && f->value.real < 9e15))
			return NVML_NO_DATA;
		*ret = (int64_t)f->value.real;
		return NVML_OK;
	case 1:
		return take_u32(NVML_OK, f->value.u32, ret);
	case 2:
	case 3:
		return take_u64(NVML_OK, f->value.u64, ret);
	case 4:
		*ret = f->value.i64;
		return NVML_OK;
	case 5:
		*ret = f->value.i32;
		return NVML_OK;
	case 6:
		*ret = f->value.u16;
		return NVML_OK;
	default:
		return NVML_NO_DATA;
	}
}

static int pair_util(struct asking *a, uint64_t v[4])
{
	struct nvml_utilization u = {0};
	int code =
		a->f->utilization == NULL ? NVML_FUNCTION_NOT_FOUND : a->f->utilization(a->d, &u);

	v[0] = u.gpu;
	v[1] = u.memory;
	return code;
}

static int pair_mig(struct asking *a, uint64_t v[4])
{
	uint32_t now = 0, pending = 0;
	int code = a->f->mig_mode == NULL ? NVML_FUNCTION_NOT_FOUND
					  : a->f->mig_mode(a->d, &now, &pending);

	v[0] = now;
	v[1] = pending;
	return code;
}

static int pair_bar1(struct asking *a, uint64_t v[4])
{
	struct nvml_bar1 b = {0};
	int code = a->f->bar1 == NULL ? NVML_FUNCTION_NOT_FOUND : a->f->bar1(a->d, &b);

	if (code == NVML_OK && (b.total == 0 || b.total == NVML_ABSENT_U64))
		return NVML_NOT_SUPPORTED;
	v[0] = b.total / MIB;
	v[1] = b.used / MIB + (b.used % MIB != 0);
	return code;
}

static int pair_range(struct asking *a, uint64_t v[4])
{
	uint32_t low = 0, high = 0;
	int code = a->f->limit_range == NULL ? NVML_FUNCTION_NOT_FOUND
					     : a->f->limit_range(a->d, &low, &high);

	v[0] = low;
	v[1] = high;
	return code;
}

static int pair_ecc(struct asking *a, uint64_t v[4])
{
	int32_t now = 0, pending = 0;
	int code = a->f->ecc_mode == NULL ? NVML_FUNCTION_NOT_FOUND
					  : a->f->ecc_mode(a->d, &now, &pending);

	v[0] = (uint32_t)now;
	v[1] = (uint32_t)pending;
	return code;
}

static int pair_remap(struct asking *a, uint64_t v[4])
{
	uint32_t r[4] = {0};
	int code = a->f->remapped == NULL ? NVML_FUNCTION_NOT_FOUND
					  : a->f->remapped(a->d, &r[0], &r[1], &r[2], &r[3]);

	for (int i = 0; i < 4; i++)
		v[i] = r[i];
	return code;
}

static int read_pair(struct asking *a, enum pair p, int at, int64_t *ret)
{
	static int (*const calls[PAIR_N])(struct asking *, uint64_t[4]) = {
		[PAIR_UTIL] = pair_util,
		[PAIR_MIG] = pair_mig,
		[PAIR_BAR1] = pair_bar1,
		[PAIR_RANGE] = pair_range,
		[PAIR_ECC] = pair_ecc,
		[PAIR_REMAP] = pair_remap,
	};

	if (!a->pairs[p].is_read)
		a->pairs[p].code = calls[p](a, a->pairs[p].v);
	a->pairs[p].is_read = true;
	if (a->pairs[p].code == NVML_OK && a->pairs[p].v[at] == NVML_ABSENT_U32)
		return NVML_NO_DATA;
	return take_u64(a->pairs[p].code, a->pairs[p].v[at], ret);
}

#define READ_PAIR(name, pair, at) \
	static int name(struct asking *a, int64_t *ret) \
	{ \
		return read_pair(a, pair, at, ret); \
	}
READ_PAIR(read_util, PAIR_UTIL, 0)
READ_PAIR(read_util_mem, PAIR_UTIL, 1)
READ_PAIR(read_mig, PAIR_MIG, 0)
READ_PAIR(read_mig_pending, PAIR_MIG, 1)
READ_PAIR(read_bar1_total, PAIR_BAR1, 0)
READ_PAIR(read_bar1_used, PAIR_BAR1, 1)
READ_PAIR(read_limit_min, PAIR_RANGE, 0)
READ_PAIR(read_limit_max, PAIR_RANGE, 1)
READ_PAIR(read_ecc_mode, PAIR_ECC, 0)
READ_PAIR(read_ecc_pending, PAIR_ECC, 1)
READ_PAIR(read_remap_corr, PAIR_REMAP, 0)
READ_PAIR(read_remap_uncorr, PAIR_REMAP, 1)
READ_PAIR(read_remap_pending, PAIR_REMAP, 2)
READ_PAIR(read_remap_failure, PAIR_REMAP, 3)
#undef READ_PAIR

static int read_engine(struct asking *a, int engine, int64_t *ret)
{
	struct nvml_dynamic_pstates p = {0};
	int code = a->f->dynamic_pstates == NULL ? NVML_FUNCTION_NOT_FOUND
						 : a->f->dynamic_pstates(a->d, &p);

	if (code == NVML_OK && !(p.engine[engine].is_present & 1))
		return NVML_NOT_SUPPORTED;
	return take_u32(code, p.engine[engine].percent, ret);
}

static int read_util_engine(struct asking *a, int64_t *ret)
{
	return read_engine(a, 0, ret);
}

static int read_util_mem_engine(struct asking *a, int64_t *ret)
{
	return read_engine(a, 1, ret);
}

/* The newest of the driver's own samples. */
static int read_util_samples(struct asking *a, int64_t *ret)
{
	struct nvml_sample s[128];
	uint32_t count = ARRAY_LEN(s), newest = 0;
	int32_t type = 1;
	int code = a->f->samples == NULL
			   ? NVML_FUNCTION_NOT_FOUND
			   : a->f->samples(a->d, NVML_SAMPLES_UTIL_GPU, 0, &type, &count, s);

	if (code != NVML_OK)
		return code;
	if (count == 0 || count > ARRAY_LEN(s))
		return NVML_NO_DATA;
	for (uint32_t i = 1; i < count; i++) {
		if (s[i].stamp_us > s[newest].stamp_us)
			newest = i;
	}
	return take_u32(code, s[newest].value.u32, ret);
}

static int read_temp_v(struct asking *a, int64_t *ret)
{
	struct nvml_temperature t = {.version = NVML_VERSION_WORD(struct nvml_temperature, 1),
		.sensor = NVML_TEMPERATURE_GPU};
	int code;

	if (a->f->temperature_v == NULL)
		return NVML_FUNCTION_NOT_FOUND;
	code = a->f->temperature_v(a->d, &t);
	return take_u32(code, (uint32_t)t.celsius, ret);
}

static int read_margin(struct asking *a, int64_t *ret)
{
	struct nvml_margin m = {.version = NVML_VERSION_WORD(struct nvml_margin, 1)};
	int code = a->f->margin == NULL ? NVML_FUNCTION_NOT_FOUND : a->f->margin(a->d, &m);

	if (code == NVML_OK)
		*ret = m.celsius;
	return code;
}

#define READ_U32(name, member, ...) \
	static int name(struct asking *a, int64_t *ret) \
	{ \
		uint32_t v = 0; \
		int code; \
\
		if (a->f->member == NULL) \
			return NVML_FUNCTION_NOT_FOUND; \
		code = a->f->member(a->d, ##__VA_ARGS__, &v); \
		return take_u32(code, v, ret); \
	}
READ_U32(read_temp, temperature, NVML_TEMPERATURE_GPU)
READ_U32(read_power, power)
READ_U32(read_limit_enforced, limit_enforced)
READ_U32(read_limit_managed, limit_managed)
READ_U32(read_limit_default, limit_default)
READ_U32(read_fan_v2, fan_v2, 0)
READ_U32(read_fan, fan)
READ_U32(read_clock_sm, clock, NVML_CLOCK_SM)
READ_U32(read_clock_mem, clock, NVML_CLOCK_MEM)
READ_U32(read_clock_graphics, clock, NVML_CLOCK_GRAPHICS)
READ_U32(read_clock_video, clock, NVML_CLOCK_VIDEO)
READ_U32(read_max_sm, clock_max, NVML_CLOCK_SM)
READ_U32(read_max_mem, clock_max, NVML_CLOCK_MEM)
READ_U32(read_max_graphics, clock_max, NVML_CLOCK_GRAPHICS)
READ_U32(read_max_video, clock_max, NVML_CLOCK_VIDEO)
READ_U32(read_slowdown, threshold, NVML_THRESHOLD_SLOWDOWN)
READ_U32(read_shutdown, threshold, NVML_THRESHOLD_SHUTDOWN)
READ_U32(read_pcie_gen, pcie_gen)
READ_U32(read_pcie_width, pcie_width)
READ_U32(read_pcie_gen_max, pcie_gen_max)
READ_U32(read_pcie_width_max, pcie_width_max)
READ_U32(read_pcie_replays, pcie_replays)
#undef READ_U32

#define READ_PERIOD(name, member) \
	static int name(struct asking *a, int64_t *ret) \
	{ \
		uint32_t v = 0, period_us = 0; \
		int code; \
\
		if (a->f->member == NULL) \
			return NVML_FUNCTION_NOT_FOUND; \
		code = a->f->member(a->d, &v, &period_us); \
		return take_u32(code, v, ret); \
	}
READ_PERIOD(read_encoder, encoder)
READ_PERIOD(read_decoder, decoder)
READ_PERIOD(read_jpeg, jpeg)
READ_PERIOD(read_ofa, ofa)
#undef READ_PERIOD

#define READ_U64(name, member, ...) \
	static int name(struct asking *a, int64_t *ret) \
	{ \
		uint64_t v = 0; \
		int code; \
\
		if (a->f->member == NULL) \
			return NVML_FUNCTION_NOT_FOUND; \
		code = a->f->member(a->d, ##__VA_ARGS__, &v); \
		return take_u64(code, v, ret); \
	}
READ_U64(read_energy, energy)
READ_U64(read_throttle, throttle)
READ_U64(read_throttle_mask, throttle_mask)
READ_U64(read_ecc_corr, ecc_total, NVML_ECC_CORRECTED, NVML_ECC_VOLATILE)
READ_U64(read_ecc_uncorr, ecc_total, NVML_ECC_UNCORRECTED, NVML_ECC_VOLATILE)
READ_U64(read_ecc_corr_life, ecc_total, NVML_ECC_CORRECTED, NVML_ECC_AGGREGATE)
READ_U64(read_ecc_uncorr_life, ecc_total, NVML_ECC_UNCORRECTED, NVML_ECC_AGGREGATE)
#undef READ_U64

#define READ_MODE(name, member) \
	static int name(struct asking *a, int64_t *ret) \
	{ \
		int32_t v = 0; \
		int code = \
			a->f->member == NULL ? NVML_FUNCTION_NOT_FOUND : a->f->member(a->d, &v); \
\
		if (code == NVML_OK) \
			*ret = v; \
		return code; \
	}
READ_MODE(read_persistence, persistence)
READ_MODE(read_compute_mode, compute_mode)
#undef READ_MODE

static int read_pstate(struct asking *a, int64_t *ret)
{
	int32_t v = NVML_PSTATE_UNKNOWN;
	int code;

	if (a->f->pstate == NULL)
		return NVML_FUNCTION_NOT_FOUND;
	code = a->f->pstate(a->d, &v);
	if (code == NVML_OK && v == NVML_PSTATE_UNKNOWN)
		return NVML_NO_DATA;
	if (code == NVML_OK)
		*ret = v;
	return code;
}

static int read_link_recoveries(struct asking *a, int64_t *ret)
{
	return nvml_link_recoveries(a->n, a->c, ret);
}

/* The call blocks for 20 ms each way: on few cards only, and seldom. */
static int read_pcie_call(struct asking *a, int which, enum metric m, int64_t *ret)
{
	struct nvml_card *c = a->c;
	uint32_t v = 0;
	int code;

	if (a->f->pcie_throughput == NULL)
		return NVML_FUNCTION_NOT_FOUND;
	if (a->n->n_cards > PCIE_CALL_CARDS || nvml_is_gentle(a->n))
		return NVML_NOT_ASKED_CODE;
	if (value_is_present(c->slow[m]) && a->now_ms - c->pcie_ms < NVML_SLOW_MS) {
		*ret = c->slow[m].v;
		return NVML_OK;
	}
	code = a->f->pcie_throughput(a->d, which, &v);
	code = take_u32(code, v, ret);
	c->slow[m] = code == NVML_OK ? value_of(*ret) : (struct value){0};
	/* The second of the two sets the time of both. */
	if (which == NVML_PCIE_RX)
		c->pcie_ms = a->now_ms;
	return code;
}

static int read_pcie_tx(struct asking *a, int64_t *ret)
{
	return read_pcie_call(a, NVML_PCIE_TX, METRIC_PCIE_TX, ret);
}

static int read_pcie_rx(struct asking *a, int64_t *ret)
{
	return read_pcie_call(a, NVML_PCIE_RX, METRIC_PCIE_RX, ret);
}
#define COUNT_MAX (INT64_C(1) << 53)
#define KIB_S_MAX (INT64_C(1) << 34)
#define WAY(id, low, high, ...) \
	{ \
		METRIC_##id, low, high, 0, 0, AS_IT_IS, \
		{ \
			__VA_ARGS__ \
		} \
	}
#define FIELD(id, low, high, number, ...) \
	{ \
		METRIC_##id, low, high, number, 0, AS_IT_IS, \
		{ \
			__VA_ARGS__ \
		} \
	}
#define RATE(id, high, number, scope, derive, ...) \
	{ \
		METRIC_##id, 0, high, number, scope, derive, \
		{ \
			__VA_ARGS__ \
		} \
	}

/* Tiers are metric_info's. */
const struct nvml_metric nvml_metrics[] = {
	WAY(UTIL_GPU, 0, 100, read_util, read_util_engine, read_util_samples),
	WAY(UTIL_MEM, 0, 100, read_util_mem, read_util_mem_engine),
	WAY(TEMP, -100, 300, read_temp_v, read_temp),
	WAY(POWER, 0, 100000000, read_power),
	WAY(POWER_LIMIT, 0, 100000000, read_limit_enforced, read_limit_managed),
	WAY(FAN, 0, 1000, read_fan_v2, read_fan),
	WAY(CLOCK_SM, 0, 100000, read_clock_sm),
	WAY(CLOCK_MEM, 0, 100000, read_clock_mem),
	WAY(THROTTLE, 0, INT64_MAX, read_throttle),
	WAY(PSTATE, 0, 15, read_pstate),
	WAY(MIG_MODE, 0, 1, read_mig),
	FIELD(RECOVERY, 0, 100, NVML_FIELD_RECOVERY_ACTION, NULL),
	WAY(UTIL_ENC, 0, 100, read_encoder),
	WAY(UTIL_DEC, 0, 100, read_decoder),
	WAY(UTIL_JPG, 0, 100, read_jpeg),
	WAY(UTIL_OFA, 0, 100, read_ofa),
	WAY(CLOCK_GRAPHICS, 0, 100000, read_clock_graphics),
	WAY(CLOCK_VIDEO, 0, 100000, read_clock_video),
	WAY(CLOCK_SM_MAX, 0, 100000, read_max_sm),
	WAY(CLOCK_MEM_MAX, 0, 100000, read_max_mem),
	WAY(CLOCK_GRAPHICS_MAX, 0, 100000, read_max_graphics),
	WAY(CLOCK_VIDEO_MAX, 0, 100000, read_max_video),
	FIELD(TEMP_MEM, 0, 300, 82, NULL),
	WAY(TEMP_SLOWDOWN, 1, 300, read_slowdown),
	WAY(TEMP_SHUTDOWN, 1, 300, read_shutdown),
	WAY(TEMP_MARGIN, -300, 300, read_margin),
	FIELD(POWER_INSTANT, 0, 100000000, 186, NULL),
	WAY(POWER_LIMIT_DEFAULT, 0, 100000000, read_limit_default),
	WAY(POWER_LIMIT_MIN, 0, 100000000, read_limit_min),
	WAY(POWER_LIMIT_MAX, 0, 100000000, read_limit_max),
	FIELD(ENERGY, 0, COUNT_MAX, 83, read_energy),
	WAY(PCIE_GEN, 1, 16, read_pcie_gen),
	WAY(PCIE_WIDTH, 1, 64, read_pcie_width),
	WAY(PCIE_GEN_MAX, 1, 16, read_pcie_gen_max),
	WAY(PCIE_WIDTH_MAX, 1, 64, read_pcie_width_max),
	RATE(PCIE_TX, KIB_S_MAX, 197, 0, RATE_BYTES, read_pcie_tx),
	RATE(PCIE_RX, KIB_S_MAX, 198, 0, RATE_BYTES, read_pcie_rx),
	FIELD(PCIE_REPLAYS, 0, COUNT_MAX, 94, read_pcie_replays),
	WAY(THROTTLE_MASK, 0, INT64_MAX, read_throttle_mask),
	RATE(HELD_POWER, 100, 74, 0, SHARE_NS, NULL),
	RATE(HELD_THERMAL, 100, 75, 0, SHARE_NS, NULL),
	RATE(HELD_SYNC, 100, 76, 0, SHARE_NS, NULL),
	RATE(HELD_BOARD, 100, 77, 0, SHARE_NS, NULL),
	RATE(HELD_IDLE, 100, 78, 0, SHARE_NS, NULL),
	RATE(HELD_RELIABILITY, 100, 79, 0, SHARE_NS, NULL),
	FIELD(ECC_MODE, 0, 1, 1, read_ecc_mode),
	FIELD(ECC_MODE_PENDING, 0, 1, 2, read_ecc_pending),
	FIELD(ECC_CORR, 0, COUNT_MAX, 3, read_ecc_corr),
	FIELD(ECC_UNCORR, 0, COUNT_MAX, 4, read_ecc_uncorr),
	FIELD(ECC_CORR_LIFE, 0, COUNT_MAX, 5, read_ecc_corr_life),
	FIELD(ECC_UNCORR_LIFE, 0, COUNT_MAX, 6, read_ecc_uncorr_life),
	FIELD(RETIRED_CORR, 0, COUNT_MAX, 29, NULL),
	FIELD(RETIRED_UNCORR, 0, COUNT_MAX, 30, NULL),
	FIELD(RETIRED_PENDING, 0, 1, 31, NULL),
	FIELD(REMAP_CORR, 0, COUNT_MAX, 142, read_remap_corr),
	FIELD(REMAP_UNCORR, 0, COUNT_MAX, 143, read_remap_uncorr),
	FIELD(REMAP_PENDING, 0, 1, 144, read_remap_pending),
	FIELD(REMAP_FAILURE, 0, 1, 145, read_remap_failure),
	RATE(NVLINK_TX, KIB_S_MAX, 138, ALL_LINKS, RATE_KIB, NULL),
	RATE(NVLINK_RX, KIB_S_MAX, 139, ALL_LINKS, RATE_KIB, NULL),
	FIELD(NVLINK_CRC, 0, COUNT_MAX, 38, NULL),
	FIELD(NVLINK_REPLAYS, 0, COUNT_MAX, 52, NULL),
	/* These two cover all links; recoveries have counters of each link besides, which newer cards still have. */
	FIELD(NVLINK_RECOVERIES, 0, COUNT_MAX, 59, read_link_recoveries),
	WAY(BAR1_TOTAL, 0, INT32_MAX, read_bar1_total),
	WAY(BAR1_USED, 0, INT32_MAX, read_bar1_used),
	WAY(PERSISTENCE, 0, 1, read_persistence),
	WAY(COMPUTE_MODE, 0, 3, read_compute_mode),
	WAY(MIG_PENDING, 0, 1, read_mig_pending),
};

const size_t nvml_n_metrics = ARRAY_LEN(nvml_metrics);
static_assert(ARRAY_LEN(nvml_metrics) <= NVML_METRICS_MAX, "nvml_figure.c has room for so many");
