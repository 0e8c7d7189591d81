/* Figures and process lists of the fake's cards: the calls that every library has had, and the lists in all their sizes. */
#include "fake.h"

#include <string.h>

static int all_procs(
	const struct nvml_device *d, const struct fake_card *c, int kind, struct fake_proc *out)
{
	struct fake_scenario *s = fake_scenario();
	int n = 0;

	for (int i = 0; i < s->n_procs; i++) {
		if (s->procs[i].card == d->card && (s->procs[i].kind & kind) &&
			(d->instance < 0 || s->procs[i].gi == d->instance + 1))
			out[n++] = s->procs[i];
	}
	if (kind & FAKE_C) {
		int all = fake_sim_procs(d->card, c, out + n, FAKE_PROCS), kept = 0;

		for (int i = 0; i < all; i++)
			if (d->instance < 0 || out[n + i].gi == d->instance + 1)
				out[n + kept++] = out[n + i];
		n += kept;
	}
	return n;
}

/* An instance has an eighth of its card's memory. */
int64_t fake_memory_of(const struct nvml_device *d, const struct fake_card *c)
{
	return d->instance < 0 ? c->memory : c->memory / 8;
}

int64_t fake_reserved_of(const struct nvml_device *d, const struct fake_card *c)
{
	return d->instance < 0 ? c->reserved : 0;
}

uint64_t fake_used_of(const struct nvml_device *d, const struct fake_card *c)
{
	static struct fake_proc procs[2 * FAKE_PROCS];
	int n = all_procs(d, c, FAKE_C | FAKE_G | FAKE_M, procs);
	int64_t used = d->instance < 0 ? c->used : 0;
	int64_t most = fake_memory_of(d, c) - fake_reserved_of(d, c);

	for (int i = 0; i < n; i++)
		used += procs[i].used > 0 ? procs[i].used : 0;
	return (uint64_t)(used > most ? most : used) * MIB;
}

EXPORT int nvmlDeviceGetMemoryInfo(struct nvml_device *d, struct nvml_memory *m);
int nvmlDeviceGetMemoryInfo(struct nvml_device *d, struct nvml_memory *m)
{
	DEVICE(d);
	if (c->is_unified)
		return NVML_NOT_SUPPORTED;
	m->total = (uint64_t)fake_memory_of(d, c) * MIB;
	m->used = fake_used_of(d, c) + (uint64_t)fake_reserved_of(d, c) * MIB;
	m->free = m->total - m->used;
	return NVML_OK;
}

EXPORT int nvmlDeviceGetUtilizationRates(struct nvml_device *d, struct nvml_utilization *u);
int nvmlDeviceGetUtilizationRates(struct nvml_device *d, struct nvml_utilization *u)
{
	static struct fake_proc procs[FAKE_PROCS];

	DEVICE(d);
	if (c->mig)
		return NVML_NOT_SUPPORTED;
	u->gpu = (uint32_t)c->util;
	if (fake_sim_procs(d->card, c, procs, FAKE_PROCS) > 0)
		u->gpu = 90;
	u->memory = (uint32_t)c->memutil;
	return NVML_OK;
}

EXPORT int nvmlDeviceGetTemperature(struct nvml_device *d, int32_t sensor, uint32_t *ret);
int nvmlDeviceGetTemperature(struct nvml_device *d, int32_t sensor, uint32_t *ret)
{
	DEVICE(d);
	if (sensor != NVML_TEMPERATURE_GPU)
		return NVML_INVALID_ARGUMENT;
	*ret = (uint32_t)c->temp;
	return NVML_OK;
}

EXPORT int nvmlDeviceGetTemperatureThreshold(struct nvml_device *d, int32_t which, uint32_t *ret);
int nvmlDeviceGetTemperatureThreshold(struct nvml_device *d, int32_t which, uint32_t *ret)
{
	DEVICE(d);
	*ret = (uint32_t)(which == 0 ? c->shutdown : c->slowdown);
	return NVML_OK;
}

EXPORT int nvmlDeviceGetClockInfo(struct nvml_device *d, int32_t domain, uint32_t *ret);
int nvmlDeviceGetClockInfo(struct nvml_device *d, int32_t domain, uint32_t *ret)
{
	DEVICE(d);
	*ret = (uint32_t)(domain == NVML_CLOCK_MEM	  ? c->mem
			  : domain == NVML_CLOCK_GRAPHICS ? c->graphics
			  : domain == NVML_CLOCK_VIDEO	  ? c->video
							  : c->sm);
	return NVML_OK;
}

EXPORT int nvmlDeviceGetMaxClockInfo(struct nvml_device *d, int32_t domain, uint32_t *ret);
int nvmlDeviceGetMaxClockInfo(struct nvml_device *d, int32_t domain, uint32_t *ret)
{
	DEVICE(d);
	*ret = domain == NVML_CLOCK_MEM ? 9501 : 2100;
	return NVML_OK;
}

EXPORT int nvmlDeviceGetPcieThroughput(struct nvml_device *d, int32_t which, uint32_t *ret);
int nvmlDeviceGetPcieThroughput(struct nvml_device *d, int32_t which, uint32_t *ret)
{
	DEVICE(d);
	*ret = which == 0 ? 70 : 40;
	return NVML_OK;
}

#define PERIOD_CALL(name, member) \
	EXPORT int name(struct nvml_device *d, uint32_t *ret, uint32_t *period); \
	int name(struct nvml_device *d, uint32_t *ret, uint32_t *period) \
	{ \
		DEVICE(d); \
		*ret = (uint32_t)c->member; \
		*period = 167000; \
		return NVML_OK; \
	}
PERIOD_CALL(nvmlDeviceGetEncoderUtilization, enc)
PERIOD_CALL(nvmlDeviceGetDecoderUtilization, dec)
#ifndef FAKE_OLD
PERIOD_CALL(nvmlDeviceGetJpgUtilization, jpg)
PERIOD_CALL(nvmlDeviceGetOfaUtilization, ofa)
#endif

#define FIGURE_CALL(name, type, member) \
	EXPORT int name(struct nvml_device *d, type *ret); \
	int name(struct nvml_device *d, type *ret) \
	{ \
		DEVICE(d); \
		*ret = (type)c->member; \
		return NVML_OK; \
	}
FIGURE_CALL(nvmlDeviceGetPowerUsage, uint32_t, power)
FIGURE_CALL(nvmlDeviceGetPowerManagementLimit, uint32_t, limit)
FIGURE_CALL(nvmlDeviceGetFanSpeed, uint32_t, fan)
FIGURE_CALL(nvmlDeviceGetCurrentClocksThrottleReasons, uint64_t, throttle)
FIGURE_CALL(nvmlDeviceGetPerformanceState, int32_t, pstate)
#ifndef FAKE_OLD
FIGURE_CALL(nvmlDeviceGetEnforcedPowerLimit, uint32_t, limit)
FIGURE_CALL(nvmlDeviceGetCurrentClocksEventReasons, uint64_t, throttle)
#endif

/* A row of a ring that nobody has written, or somebody who is long gone. */
static struct nvml_process_sample garbage_row(int64_t i)
{
	static const struct nvml_process_sample rows[] = {
		{0, 0, 0, 0, 0, 0},
		{2863311530u, UINT64_C(0xaaaaaaaaaaaaaaaa), 37100, 808334905, 1, 1},
		{101, UINT64_C(0xffffffffffffff00), 100, 0, 0, 0},
		{4194000, 0, 50, 50, 0, 0},
	};

	return rows[i % 4];
}

EXPORT int nvmlDeviceGetProcessUtilization(
	struct nvml_device *d, struct nvml_process_sample *rows, uint32_t *count, uint64_t since);
/* As the real one: what fits is the ring's size, not what's in it; nothing newer is "not found". */
int nvmlDeviceGetProcessUtilization(
	struct nvml_device *d, struct nvml_process_sample *rows, uint32_t *count, uint64_t since)
{
	struct fake_scenario *s = fake_scenario();
	uint32_t n = 0, room = *count;

	DEVICE(d);
	if (c->mig)
		return NVML_NOT_SUPPORTED;
	*count = (uint32_t)(s->n_uses + s->garbage);
	if (room < *count || rows == NULL)
		return NVML_INSUFFICIENT_SIZE;
	for (int i = 0; i < s->n_uses; i++) {
		const struct fake_use *u = &s->uses[i];
		uint64_t stamp = (uint64_t)(fake_read_wall_us() + u->after * 1000);

		if (u->card == d->card && stamp > since && u->after <= fake_now_ms())
			rows[n++] = (struct nvml_process_sample){(uint32_t)u->pid, stamp,
				(uint32_t)u->sm, (uint32_t)u->mem, (uint32_t)u->enc,
				(uint32_t)u->dec};
	}
	if (n == 0 && s->garbage == 0)
		return NVML_NOT_FOUND;
	for (int64_t i = 0; i < s->garbage; i++)
		rows[n++] = garbage_row(i);
	*count = n;
	return NVML_OK;
}

/* Processes */

static int fill_procs(struct nvml_device *d, const struct fake_card *c, int kind, size_t size,
	uint32_t *count, void *rows)
{
	static struct fake_proc procs[2 * FAKE_PROCS];
	uint32_t n = (uint32_t)all_procs(d, c, kind, procs), room = *count;

	*count = n;
	if (room < n)
		return NVML_INSUFFICIENT_SIZE;
	for (uint32_t i = 0; i < n; i++) {
		struct nvml_process_535 e;
		uint8_t *at = (uint8_t *)rows + i * size;

		/* Padding is garbage in the real library too. */
		memset(&e, 0xaa, sizeof(e));
		e.pid = (uint32_t)procs[i].pid;
		e.used = procs[i].used < 0 || c->is_blind ? NVML_ABSENT_U64
							  : (uint64_t)procs[i].used * MIB;
		e.gpu_instance = procs[i].gi < 0 ? NVML_ABSENT_U32 : (uint32_t)procs[i].gi;
		e.compute_instance = procs[i].gi < 0 ? NVML_ABSENT_U32 : 0;
		e.used_protected = i % 2 ? NVML_ABSENT_U64 : 0;
		memcpy(at, &e, size);
	}
	return NVML_OK;
}

#define LIST_CALL(name, kind, size) \
	EXPORT int name(struct nvml_device *d, uint32_t *count, void *rows); \
	int name(struct nvml_device *d, uint32_t *count, void *rows) \
	{ \
		DEVICE(d); \
		return fill_procs(d, c, kind, size, count, rows); \
	}

LIST_CALL(nvmlDeviceGetComputeRunningProcesses, FAKE_C, sizeof(struct nvml_process_v1))
LIST_CALL(nvmlDeviceGetGraphicsRunningProcesses, FAKE_G, sizeof(struct nvml_process_v1))
#ifndef FAKE_OLD
LIST_CALL(nvmlDeviceGetMPSComputeRunningProcesses, FAKE_M, sizeof(struct nvml_process_v1))
LIST_CALL(nvmlDeviceGetComputeRunningProcesses_v2, FAKE_C, sizeof(struct nvml_process_v2))
LIST_CALL(nvmlDeviceGetGraphicsRunningProcesses_v2, FAKE_G, sizeof(struct nvml_process_v2))
LIST_CALL(nvmlDeviceGetMPSComputeRunningProcesses_v2, FAKE_M, sizeof(struct nvml_process_v2))

static size_t element(void)
{
	if (fake_scenario()->element != 0)
		return (size_t)fake_scenario()->element;
#ifdef FAKE_535
	return sizeof(struct nvml_process_535);
#else
	return sizeof(struct nvml_process_v2);
#endif
}

LIST_CALL(nvmlDeviceGetComputeRunningProcesses_v3, FAKE_C, element())
LIST_CALL(nvmlDeviceGetGraphicsRunningProcesses_v3, FAKE_G, element())
LIST_CALL(nvmlDeviceGetMPSComputeRunningProcesses_v3, FAKE_M, element())

EXPORT int nvmlDeviceGetConfComputeMemSizeInfo(struct nvml_device *d, void *info);
int nvmlDeviceGetConfComputeMemSizeInfo(struct nvml_device *d, void *info)
{
	(void)info;
	DEVICE(d);
	return NVML_NOT_SUPPORTED;
}

#ifndef FAKE_535
EXPORT int nvmlDeviceGetRunningProcessDetailList(struct nvml_device *d, void *list);
int nvmlDeviceGetRunningProcessDetailList(struct nvml_device *d, void *list)
{
	(void)list;
	DEVICE(d);
	return NVML_NOT_SUPPORTED;
}
#endif
#endif /* FAKE_OLD */
