/* What only a monitor asks: limits, links, errors, instances, events. A FAKE_OLD library has none of it. */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

#ifndef FAKE_OLD

#define FIGURE_CALL(name, type, expression) \
	EXPORT int name(struct nvml_device *d, type *ret); \
	int name(struct nvml_device *d, type *ret) \
	{ \
		DEVICE(d); \
		*ret = (type)(expression); \
		return NVML_OK; \
	}
FIGURE_CALL(nvmlDeviceGetArchitecture, uint32_t, c->arch)
FIGURE_CALL(nvmlDeviceGetPowerManagementDefaultLimit, uint32_t, c->limit)
FIGURE_CALL(nvmlDeviceGetCurrPcieLinkGeneration, uint32_t, c->gen)
FIGURE_CALL(nvmlDeviceGetCurrPcieLinkWidth, uint32_t, c->width)
FIGURE_CALL(nvmlDeviceGetMaxPcieLinkGeneration, uint32_t, c->genmax)
FIGURE_CALL(nvmlDeviceGetMaxPcieLinkWidth, uint32_t, c->widthmax)
FIGURE_CALL(nvmlDeviceGetPcieReplayCounter, uint32_t, c->replays)
FIGURE_CALL(nvmlDeviceGetSupportedClocksEventReasons, uint64_t, c->mask)
FIGURE_CALL(nvmlDeviceGetPersistenceMode, int32_t, c->persistence)
FIGURE_CALL(nvmlDeviceGetComputeMode, int32_t, c->computemode)
FIGURE_CALL(nvmlDeviceGetTotalEnergyConsumption, uint64_t, 1000 + c->power * fake_now_ms() / 1000)

EXPORT int nvmlDeviceGetPowerManagementLimitConstraints(
	struct nvml_device *d, uint32_t *low, uint32_t *high);
int nvmlDeviceGetPowerManagementLimitConstraints(
	struct nvml_device *d, uint32_t *low, uint32_t *high)
{
	DEVICE(d);
	*low = (uint32_t)(c->limit / 2);
	*high = (uint32_t)c->limit;
	return NVML_OK;
}

EXPORT int nvmlDeviceGetDynamicPstatesInfo(struct nvml_device *d, struct nvml_dynamic_pstates *p);
int nvmlDeviceGetDynamicPstatesInfo(struct nvml_device *d, struct nvml_dynamic_pstates *p)
{
	DEVICE(d);
	if (c->mig)
		return NVML_NOT_SUPPORTED;
	memset(p, 0, sizeof(*p));
	p->engine[0].is_present = p->engine[1].is_present = 1;
	p->engine[0].percent = (uint32_t)c->util;
	p->engine[1].percent = (uint32_t)c->memutil;
	return NVML_OK;
}

EXPORT int nvmlDeviceGetSamples(struct nvml_device *d, int32_t kind, uint64_t since, int32_t *type,
	uint32_t *count, struct nvml_sample *rows);
int nvmlDeviceGetSamples(struct nvml_device *d, int32_t kind, uint64_t since, int32_t *type,
	uint32_t *count, struct nvml_sample *rows)
{
	(void)since;
	DEVICE(d);
	if (c->mig || kind != NVML_SAMPLES_UTIL_GPU)
		return NVML_NOT_SUPPORTED;
	*type = 1;
	if (rows == NULL) {
		*count = 3;
		return NVML_OK;
	}
	/* The newest isn't the last. */
	rows[0] = (struct nvml_sample){.stamp_us = 1000, .value.u32 = 1};
	rows[1] = (struct nvml_sample){.stamp_us = 3000, .value.u32 = (uint32_t)c->util};
	rows[2] = (struct nvml_sample){.stamp_us = 2000, .value.u32 = 2};
	*count = 3;
	return NVML_OK;
}

EXPORT int nvmlDeviceGetEccMode(struct nvml_device *d, int32_t *now, int32_t *pending);
int nvmlDeviceGetEccMode(struct nvml_device *d, int32_t *now, int32_t *pending)
{
	DEVICE(d);
	*now = *pending = (int32_t)c->ecc;
	return NVML_OK;
}

EXPORT int nvmlDeviceGetTotalEccErrors(
	struct nvml_device *d, int32_t type, int32_t counter, uint64_t *ret);
int nvmlDeviceGetTotalEccErrors(struct nvml_device *d, int32_t type, int32_t counter, uint64_t *ret)
{
	DEVICE(d);
	if (!c->ecc)
		return NVML_NOT_SUPPORTED;
	*ret = (uint64_t)(100 + 10 * type + counter);
	return NVML_OK;
}

EXPORT int nvmlDeviceGetRemappedRows(
	struct nvml_device *d, uint32_t *corr, uint32_t *unc, uint32_t *pending, uint32_t *failure);
int nvmlDeviceGetRemappedRows(
	struct nvml_device *d, uint32_t *corr, uint32_t *unc, uint32_t *pending, uint32_t *failure)
{
	DEVICE(d);
	if (c->mig || !c->ecc)
		return NVML_NOT_SUPPORTED;
	*corr = 3;
	*unc = 1;
	*pending = 1;
	*failure = 0;
	return NVML_OK;
}

EXPORT int nvmlDeviceGetBAR1MemoryInfo(struct nvml_device *d, struct nvml_bar1 *b);
int nvmlDeviceGetBAR1MemoryInfo(struct nvml_device *d, struct nvml_bar1 *b)
{
	DEVICE(d);
	b->total = (uint64_t)c->bar1 * MIB;
	b->used = (uint64_t)c->bar1used * MIB;
	b->free = b->total - b->used;
	return NVML_OK;
}

/* Instances: the id is the index + 1, as the process lists have it. */

EXPORT int nvmlDeviceGetGpuInstanceId(struct nvml_device *d, uint32_t *ret);
int nvmlDeviceGetGpuInstanceId(struct nvml_device *d, uint32_t *ret)
{
	DEVICE(d);
	(void)c;
	if (d->instance < 0)
		return NVML_INVALID_ARGUMENT;
	*ret = (uint32_t)d->instance + 1;
	return NVML_OK;
}

EXPORT int nvmlDeviceGetComputeInstanceId(struct nvml_device *d, uint32_t *ret);
int nvmlDeviceGetComputeInstanceId(struct nvml_device *d, uint32_t *ret)
{
	DEVICE(d);
	(void)c;
	if (d->instance < 0)
		return NVML_INVALID_ARGUMENT;
	*ret = 0;
	return NVML_OK;
}

EXPORT int nvmlDeviceGetAttributes_v2(struct nvml_device *d, struct nvml_attributes *a);
int nvmlDeviceGetAttributes_v2(struct nvml_device *d, struct nvml_attributes *a)
{
	DEVICE(d);
	if (d->instance < 0)
		return NVML_NOT_SUPPORTED;
	*a = (struct nvml_attributes){.multiprocessors = 14,
		.gi_slices = 1,
		.ci_slices = 1,
		.memory_mib = (uint64_t)c->memory / 8};
	return NVML_OK;
}

/* Events */

struct nvml_event_set {
	bool is_open;
	struct nvml_device *devices[FAKE_CARDS];
};

static struct nvml_event_set sets[256];
static int n_sets;

EXPORT int nvmlEventSetCreate(struct nvml_event_set **ret);
int nvmlEventSetCreate(struct nvml_event_set **ret)
{
	int code = fake_begin(__func__);

	if (code != NVML_OK)
		return code;
	*ret = &sets[n_sets++ % 256];
	**ret = (struct nvml_event_set){.is_open = true};
	return NVML_OK;
}

EXPORT int nvmlEventSetFree(struct nvml_event_set *s);
int nvmlEventSetFree(struct nvml_event_set *s)
{
	if (!s->is_open)
		abort();
	s->is_open = false;
	return fake_begin(__func__);
}

EXPORT int nvmlDeviceGetSupportedEventTypes(struct nvml_device *d, uint64_t *ret);
int nvmlDeviceGetSupportedEventTypes(struct nvml_device *d, uint64_t *ret)
{
	DEVICE(d);
	(void)c;
	*ret = 0x1f;
	return NVML_OK;
}

EXPORT int nvmlDeviceRegisterEvents(struct nvml_device *d, uint64_t mask, struct nvml_event_set *s);
int nvmlDeviceRegisterEvents(struct nvml_device *d, uint64_t mask, struct nvml_event_set *s)
{
	DEVICE(d);
	(void)c;
	/* Events of clocks and P-states come by the thousand. */
	if (!s->is_open || mask != NVML_EVENT_XID)
		abort();
	s->devices[d->card] = d;
	return NVML_OK;
}

EXPORT int nvmlEventSetWait_v2(struct nvml_event_set *s, struct nvml_event *ev, uint32_t ms);
int nvmlEventSetWait_v2(struct nvml_event_set *s, struct nvml_event *ev, uint32_t ms)
{
	struct fake_scenario *sc = fake_scenario();
	int code = fake_begin(__func__);

	if (!s->is_open || ms != 0)
		abort();
	if (code != NVML_OK)
		return code;
	for (int i = 0; i < sc->n_xids; i++) {
		struct fake_xid *x = &sc->xids[i];

		if (x->is_told || x->after > fake_now_ms() || s->devices[x->card] == NULL)
			continue;
		x->is_told = true;
		*ev = (struct nvml_event){.device = s->devices[x->card],
			.type = NVML_EVENT_XID,
			.value = (uint64_t)x->xid,
			.gpu_instance = NVML_ABSENT_U32,
			.compute_instance = NVML_ABSENT_U32};
		return NVML_OK;
	}
	return 10; /* time-out */
}
#endif /* FAKE_OLD */
