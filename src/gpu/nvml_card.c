/*
 * Asks one card its figures. Each metric has one or two ways of being asked, tried in order by return code; a way that
 * is permanently unsupported is not tried again. An absence is a metric's, never the card's, except for the codes that
 * say the card itself is gone: then its handle is dropped at once and nothing more is asked of it.
 */
#include "gpu/nvml.h"

#include "base/cleanup.h"

#include <string.h>

#define MIB (1024 * 1024)

typedef int nvml_read(const struct nvml_functions *f, struct nvml_device *d, int64_t *ret);

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

static int read_util(const struct nvml_functions *f, struct nvml_device *d, int64_t *ret)
{
	struct nvml_utilization u = {0};
	int code;

	if (f->utilization == NULL)
		return NVML_FUNCTION_NOT_FOUND;
	code = f->utilization(d, &u);
	return take_u32(code, u.gpu, ret);
}

static int read_util_mem(const struct nvml_functions *f, struct nvml_device *d, int64_t *ret)
{
	struct nvml_utilization u = {0};
	int code;

	if (f->utilization == NULL)
		return NVML_FUNCTION_NOT_FOUND;
	code = f->utilization(d, &u);
	return take_u32(code, u.memory, ret);
}

static int read_temp_v(const struct nvml_functions *f, struct nvml_device *d, int64_t *ret)
{
	struct nvml_temperature t = {.version = NVML_VERSION_WORD(struct nvml_temperature, 1),
		.sensor = NVML_TEMPERATURE_GPU};
	int code;

	if (f->temperature_v == NULL)
		return NVML_FUNCTION_NOT_FOUND;
	code = f->temperature_v(d, &t);
	return take_u32(code, (uint32_t)t.celsius, ret);
}

static int read_temp(const struct nvml_functions *f, struct nvml_device *d, int64_t *ret)
{
	uint32_t v = 0;
	int code;

	if (f->temperature == NULL)
		return NVML_FUNCTION_NOT_FOUND;
	code = f->temperature(d, NVML_TEMPERATURE_GPU, &v);
	return take_u32(code, v, ret);
}

#define READ_U32(name, member, ...) \
	static int name(const struct nvml_functions *f, struct nvml_device *d, int64_t *ret) \
	{ \
		uint32_t v = 0; \
		int code; \
\
		if (f->member == NULL) \
			return NVML_FUNCTION_NOT_FOUND; \
		code = f->member(d, ##__VA_ARGS__, &v); \
		return take_u32(code, v, ret); \
	}
READ_U32(read_power, power)
READ_U32(read_limit_enforced, limit_enforced)
READ_U32(read_limit_managed, limit_managed)
READ_U32(read_fan_v2, fan_v2, 0)
READ_U32(read_fan, fan)
READ_U32(read_clock_sm, clock, NVML_CLOCK_SM)
READ_U32(read_clock_mem, clock, NVML_CLOCK_MEM)
#undef READ_U32

static int read_throttle(const struct nvml_functions *f, struct nvml_device *d, int64_t *ret)
{
	uint64_t v = 0;
	int code;

	if (f->throttle == NULL)
		return NVML_FUNCTION_NOT_FOUND;
	code = f->throttle(d, &v);
	if (code == NVML_OK && v == NVML_ABSENT_U64)
		return NVML_NO_DATA;
	if (code == NVML_OK)
		*ret = (int64_t)v;
	return code;
}

static int read_pstate(const struct nvml_functions *f, struct nvml_device *d, int64_t *ret)
{
	int32_t v = NVML_PSTATE_UNKNOWN;
	int code;

	if (f->pstate == NULL)
		return NVML_FUNCTION_NOT_FOUND;
	code = f->pstate(d, &v);
	if (code == NVML_OK && v == NVML_PSTATE_UNKNOWN)
		return NVML_NO_DATA;
	if (code == NVML_OK)
		*ret = v;
	return code;
}

static int read_mig(const struct nvml_functions *f, struct nvml_device *d, int64_t *ret)
{
	uint32_t now = 0, pending = 0;
	int code;

	if (f->mig_mode == NULL)
		return NVML_FUNCTION_NOT_FOUND;
	code = f->mig_mode(d, &now, &pending);
	return take_u32(code, now, ret);
}

static int read_recovery(const struct nvml_functions *f, struct nvml_device *d, int64_t *ret)
{
	struct nvml_field v = {.id = NVML_FIELD_RECOVERY_ACTION};
	int code;

	if (f->fields == NULL)
		return NVML_FUNCTION_NOT_FOUND;
	code = f->fields(d, 1, &v);
	if (code == NVML_OK)
		code = v.code;
	/* A library that doesn't know a field's number answers so for that field. */
	if (code == NVML_INVALID_ARGUMENT)
		code = NVML_NOT_SUPPORTED;
	return take_u32(code, v.value.u32, ret);
}

struct nvml_metric {
	enum metric metric;
	int64_t min, max; /* a figure outside is the driver's garbage */
	nvml_read *ways[2];
};

/* Tiers are metric_info's. Memory is apart: three figures of one call. */
static const struct nvml_metric metrics[] = {
	{METRIC_UTIL_GPU, 0, 100, {read_util}},
	{METRIC_UTIL_MEM, 0, 100, {read_util_mem}},
	{METRIC_TEMP, -100, 300, {read_temp_v, read_temp}},
	{METRIC_POWER, 0, 100000000, {read_power}},
	{METRIC_POWER_LIMIT, 0, 100000000, {read_limit_enforced, read_limit_managed}},
	{METRIC_FAN, 0, 1000, {read_fan_v2, read_fan}},
	{METRIC_CLOCK_SM, 0, 100000, {read_clock_sm}},
	{METRIC_CLOCK_MEM, 0, 100000, {read_clock_mem}},
	{METRIC_THROTTLE, 0, INT64_MAX, {read_throttle}},
	{METRIC_PSTATE, 0, 15, {read_pstate}},
	{METRIC_MIG_MODE, 0, 1, {read_mig}},
	{METRIC_RECOVERY, 0, 100, {read_recovery}},
};

static struct value read_metric(struct nvml *n, struct nvml_card *c, const struct nvml_metric *m)
{
	struct value why = value_absent(c->gone_why[m->metric]);

	for (unsigned k = 0; k < ARRAY_LEN(m->ways) && m->ways[k] != NULL; k++) {
		int64_t v = 0;
		int code;

		if (c->gone[m->metric] & 1u << k)
			continue;
		code = m->ways[k](&n->lib.fn, c->handle, &v);
		if (code == NVML_OK)
			return v < m->min || v > m->max ? value_absent(VALUE_FAILED) : value_of(v);
		why = value_absent(nvml_code_value(code));
		if (nvml_card_drop(n, c, code))
			break;
		if (nvml_code_is_permanent(code)) {
			c->gone[m->metric] |= (uint8_t)(1u << k);
			c->gone_why[m->metric] = why.state;
		}
	}
	return why;
}

/* What a card cut into instances doesn't support, the same card in one piece does, and the other way round. */
static void note_mig_mode(struct nvml_card *c, struct value mode)
{
	if (!value_is_present(mode) || mode.v == c->mig_mode)
		return;
	if (c->mig_mode >= 0) {
		memset(c->gone, 0, sizeof(c->gone));
		memset(c->list_gone, 0, sizeof(c->list_gone));
		c->slow_ms = 0;
	}
	c->mig_mode = mode.v;
}

static void sample_metrics(
	struct nvml *n, struct nvml_card *c, int64_t now_ms, struct gpu_card *ret)
{
	bool is_due = c->slow_ms == 0 || now_ms - c->slow_ms >= NVML_SLOW_MS;

	for (size_t i = 0; i < ARRAY_LEN(metrics) && c->handle != NULL; i++) {
		enum metric m = metrics[i].metric;

		if (metric_info[m].tier == TIER_FAST) {
			ret->m[m] = read_metric(n, c, &metrics[i]);
			continue;
		}
		if (is_due)
			c->slow[m] = read_metric(n, c, &metrics[i]);
		ret->m[m] = c->slow[m];
	}
	if (is_due)
		c->slow_ms = now_ms;
	note_mig_mode(c, c->slow[METRIC_MIG_MODE]);
}

static int64_t mib_up(uint64_t bytes)
{
	return (int64_t)(bytes / MIB + (bytes % MIB != 0));
}

/* Room is rounded down and use up: half a MiB is never promised twice. */
static void put_memory(struct gpu_card *ret, uint64_t total, uint64_t used, struct value reserved)
{
	if (total == NVML_ABSENT_U64 || total / MIB > INT32_MAX) {
		ret->m[METRIC_MEM_TOTAL] = value_absent(VALUE_UNSUPPORTED);
	} else {
		ret->m[METRIC_MEM_TOTAL] = value_of((int64_t)(total / MIB));
	}
	if (used == NVML_ABSENT_U64)
		ret->m[METRIC_MEM_USED] = value_absent(VALUE_UNSUPPORTED);
	else if (used > total)
		ret->m[METRIC_MEM_USED] = value_absent(VALUE_FAILED);
	else
		ret->m[METRIC_MEM_USED] = value_of(mib_up(used));
	ret->m[METRIC_MEM_RESERVED] = reserved;
}

static int memory_v2(struct nvml *n, struct nvml_card *c, struct gpu_card *ret)
{
	struct nvml_memory_v2 m = {.version = NVML_VERSION_WORD(struct nvml_memory_v2, 2)};
	int code;

	if (n->lib.fn.memory_v2 == NULL)
		return NVML_FUNCTION_NOT_FOUND;
	code = n->lib.fn.memory_v2(c->handle, &m);
	if (code == NVML_OK && m.total == 0)
		return NVML_NOT_SUPPORTED;
	if (code == NVML_OK)
		put_memory(ret, m.total, m.used,
			m.reserved > m.total ? value_absent(VALUE_UNSUPPORTED)
					     : value_of(mib_up(m.reserved)));
	return code;
}

static int memory_v1(struct nvml *n, struct nvml_card *c, struct gpu_card *ret)
{
	struct nvml_memory m = {0};
	int code;

	if (n->lib.fn.memory_v1 == NULL)
		return NVML_FUNCTION_NOT_FOUND;
	code = n->lib.fn.memory_v1(c->handle, &m);
	if (code == NVML_OK && m.total == 0)
		return NVML_NOT_SUPPORTED;
	if (code == NVML_OK)
		put_memory(ret, m.total, m.used, value_absent(VALUE_UNSUPPORTED));
	return code;
}

/* The machine's own memory is the card's: it reports none of its own (GB10 and its kind). */
static int memory_unified(struct nvml *n, struct gpu_card *ret)
{
	int64_t total, available;

	if (nvml_host_memory(n->host_root, &total, &available) < 0)
		return NVML_UNKNOWN;
	ret->is_unified = true;
	ret->m[METRIC_MEM_TOTAL] = value_of(total);
	ret->m[METRIC_MEM_USED] = value_of(total - available);
	ret->m[METRIC_MEM_RESERVED] = value_absent(VALUE_UNSUPPORTED);
	return NVML_OK;
}

static int ask_memory(
	struct nvml *n, struct nvml_card *c, enum nvml_memory_call call, struct gpu_card *ret)
{
	if (call == MEMORY_V2)
		return memory_v2(n, c, ret);
	if (call == MEMORY_V1)
		return memory_v1(n, c, ret);
	return memory_unified(n, ret);
}

/*
 * The first call that works is the card's from then on: v1 counts what the driver reserves as used, so changing over
 * for a hiccup would look like a process. That v2 is there says nothing about whether it works (WSL answers 999).
 */
static void sample_memory(struct nvml *n, struct nvml_card *c, struct gpu_card *ret)
{
	enum nvml_memory_call first = c->memory == MEMORY_UNDECIDED ? MEMORY_V2 : c->memory;
	enum nvml_memory_call last = c->memory == MEMORY_UNDECIDED ? MEMORY_V1 : c->memory;
	bool is_unsupported = true;
	int code = NVML_OK;

	for (enum nvml_memory_call call = first; call <= last; call++) {
		code = ask_memory(n, c, call, ret);
		if (code == NVML_OK) {
			c->memory = call;
			return;
		}
		if (nvml_card_drop(n, c, code))
			break;
		is_unsupported &= nvml_code_value(code) == VALUE_UNSUPPORTED;
	}
	if (c->handle != NULL && c->memory == MEMORY_UNDECIDED && is_unsupported &&
		memory_unified(n, ret) == NVML_OK) {
		c->memory = MEMORY_UNIFIED;
		return;
	}
	for (enum metric m = METRIC_MEM_TOTAL; m <= METRIC_MEM_RESERVED; m++)
		ret->m[m] = value_absent(nvml_code_value(code));
}

/* A card of which no figure at all can be had is not well, whatever its handle says. One figure is enough. */
static enum gpu_state state_of(const struct gpu_card *c)
{
	enum gpu_state s = GPU_OK;

	for (int m = 0; m < METRIC_N; m++) {
		if (metric_info[m].tier != TIER_FAST)
			continue;
		if (value_is_present(c->m[m]))
			return GPU_OK;
		if (c->m[m].state == VALUE_FAILED)
			s = GPU_FAILED;
		else if (c->m[m].state == VALUE_FORBIDDEN && s == GPU_OK)
			s = GPU_FORBIDDEN;
	}
	return s;
}

static enum value_state absence_of(enum gpu_state s)
{
	if (s == GPU_FORBIDDEN)
		return VALUE_FORBIDDEN;
	return s == GPU_LOST || s == GPU_NEEDS_RESET ? VALUE_LOST : VALUE_FAILED;
}

void nvml_card_sample(struct nvml *n, struct nvml_card *c, int64_t now_ms, struct gpu_card *ret)
{
	*ret = (struct gpu_card){.index = c->index, .numa = c->numa, .nvlink_peers = c->link_peers};
	memcpy(ret->uuid, c->uuid, sizeof(ret->uuid));
	memcpy(ret->name, c->name, sizeof(ret->name));
	memcpy(ret->bus_id, c->bus_id, sizeof(ret->bus_id));
	if (c->handle != NULL)
		sample_memory(n, c, ret);
	if (c->handle != NULL)
		sample_metrics(n, c, now_ms, ret);
	ret->is_blind = c->is_blind;
	if (c->handle != NULL) {
		ret->state = state_of(ret);
		return;
	}
	ret->state = c->state;
	/* Half of a card that went while it was asked is no use to anybody. */
	for (int m = 0; m < METRIC_N; m++)
		ret->m[m] = value_absent(absence_of(c->state));
}
