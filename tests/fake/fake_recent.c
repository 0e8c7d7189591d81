/* What libraries since 2021 have besides: memory v2, MIG, NVLink, field values. A FAKE_OLD library has none of it. */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef FAKE_OLD

EXPORT const char *nvmlErrorString(int code);
const char *nvmlErrorString(int code)
{
	return code == NVML_OK ? "Success" : "Fake error";
}

EXPORT int nvmlDeviceGetPciInfo_v3(struct nvml_device *d, struct nvml_pci *ret);
int nvmlDeviceGetPciInfo_v3(struct nvml_device *d, struct nvml_pci *ret)
{
	DEVICE(d);
	fake_pci_of(c, ret, true);
	return NVML_OK;
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(struct nvml_device *d, struct nvml_memory_v2 *m);
int nvmlDeviceGetMemoryInfo_v2(struct nvml_device *d, struct nvml_memory_v2 *m)
{
	DEVICE(d);
	if (m->version != 0x02000028)
		return NVML_ARGUMENT_VERSION_MISMATCH;
	if (c->is_unified)
		return NVML_NOT_SUPPORTED;
	m->total = (uint64_t)fake_memory_of(d, c) * MIB;
	m->reserved = (uint64_t)fake_reserved_of(d, c) * MIB;
	m->used = fake_used_of(d, c);
	m->free = m->total - m->used - m->reserved;
	return NVML_OK;
}

EXPORT int nvmlDeviceGetTemperatureV(struct nvml_device *d, struct nvml_temperature *t);
int nvmlDeviceGetTemperatureV(struct nvml_device *d, struct nvml_temperature *t)
{
	DEVICE(d);
	if (t->version != 0x0100000c)
		return NVML_ARGUMENT_VERSION_MISMATCH;
	t->celsius = (int32_t)c->temp;
	return NVML_OK;
}

EXPORT int nvmlDeviceGetFanSpeed_v2(struct nvml_device *d, uint32_t fan, uint32_t *ret);
int nvmlDeviceGetFanSpeed_v2(struct nvml_device *d, uint32_t fan, uint32_t *ret)
{
	DEVICE(d);
	if (fan != 0)
		return NVML_INVALID_ARGUMENT;
	*ret = (uint32_t)c->fan;
	return NVML_OK;
}

EXPORT int nvmlDeviceGetNumaNodeId(struct nvml_device *d, uint32_t *ret);
int nvmlDeviceGetNumaNodeId(struct nvml_device *d, uint32_t *ret)
{
	DEVICE(d);
	if (c->numa < 0)
		return NVML_NOT_SUPPORTED;
	*ret = (uint32_t)c->numa;
	return NVML_OK;
}

EXPORT int nvmlDeviceGetMigMode(struct nvml_device *d, uint32_t *now, uint32_t *pending);
int nvmlDeviceGetMigMode(struct nvml_device *d, uint32_t *now, uint32_t *pending)
{
	DEVICE(d);
	*now = (uint32_t)c->mig;
	*pending = (uint32_t)(c->mig | c->migpending);
	return NVML_OK;
}

EXPORT int nvmlDeviceGetMaxMigDeviceCount(struct nvml_device *d, uint32_t *ret);
int nvmlDeviceGetMaxMigDeviceCount(struct nvml_device *d, uint32_t *ret)
{
	DEVICE(d);
	*ret = c->mig ? 7 : 0;
	return NVML_OK;
}

EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(
	struct nvml_device *d, uint32_t i, struct nvml_device **ret);
int nvmlDeviceGetMigDeviceHandleByIndex(struct nvml_device *d, uint32_t i, struct nvml_device **ret)
{
	DEVICE(d);
	if (i >= FAKE_INSTANCES || !c->has_instance[i])
		return NVML_NOT_FOUND;
	return fake_open_handle(d->card, (int)i, ret);
}

static int popcount(uint64_t bits)
{
	return __builtin_popcountll(bits);
}

/* Numbers whose meaning changed between releases: whoever asks for them is wrong. */
static void check_id(uint32_t id)
{
	if (id < 251 && id != 199 && id != 200)
		return;
	fprintf(stderr, "fake nvml: field %u means other things in other releases\n", id);
	abort();
}

static void take_field(int card, struct nvml_field *f)
{
	struct fake_scenario *s = fake_scenario();

	check_id(f->id);
	f->code = NVML_NOT_SUPPORTED;
	for (int i = 0; i < s->n_fields; i++) {
		const struct fake_field *x = &s->fields[i];
		int64_t v = x->value + x->rate * fake_now_ms() / 1000;

		if (x->card != card || x->id != f->id ||
			(x->link >= 0 && (uint64_t)x->link != f->scope))
			continue;
		f->code = x->code;
		f->type = (int32_t)x->type;
		if (x->type == 0)
			f->value.real = (double)v;
		else
			f->value.u64 = (uint64_t)v;
	}
}

EXPORT int nvmlDeviceGetFieldValues(struct nvml_device *d, int32_t n, struct nvml_field *f);
int nvmlDeviceGetFieldValues(struct nvml_device *d, int32_t n, struct nvml_field *f)
{
	DEVICE(d);
	for (int32_t i = 0; i < n; i++) {
		f[i].type = 1;
		f[i].code = NVML_OK;
		if (f[i].id == NVML_FIELD_LINK_COUNT)
			f[i].value.u32 = (uint32_t)(popcount(c->links) + c->is_switched);
		else if (f[i].id == NVML_FIELD_RECOVERY_ACTION)
			f[i].value.u32 = (uint32_t)c->recovery;
		else
			take_field(d->card, &f[i]);
	}
	return NVML_OK;
}

EXPORT int nvmlDeviceGetNvLinkState(struct nvml_device *d, uint32_t link, int32_t *ret);
int nvmlDeviceGetNvLinkState(struct nvml_device *d, uint32_t link, int32_t *ret)
{
	DEVICE(d);
	if (link >= (uint32_t)(popcount(c->links) + c->is_switched))
		return NVML_INVALID_ARGUMENT;
	*ret = 1;
	return NVML_OK;
}

/* The far card of link number `link`: the link-th bit of the mask; -1 for the switch. */
static int far_card(const struct fake_card *c, uint32_t link)
{
	for (int i = 0; i < FAKE_CARDS; i++) {
		if (c->links >> i & 1 && link-- == 0)
			return i;
	}
	return -1;
}

EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(
	struct nvml_device *d, uint32_t link, struct nvml_pci *ret);
int nvmlDeviceGetNvLinkRemotePciInfo_v2(struct nvml_device *d, uint32_t link, struct nvml_pci *ret)
{
	DEVICE(d);
	if (far_card(c, link) < 0)
		return NVML_INVALID_ARGUMENT;
	fake_pci_of(&fake_scenario()->cards[far_card(c, link)], ret, true);
	return NVML_OK;
}

EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(struct nvml_device *d, uint32_t link, int32_t *ret);
int nvmlDeviceGetNvLinkRemoteDeviceType(struct nvml_device *d, uint32_t link, int32_t *ret)
{
	DEVICE(d);
	*ret = far_card(c, link) < 0 ? NVML_LINK_DEVICE_SWITCH : NVML_LINK_DEVICE_GPU;
	return NVML_OK;
}
#endif /* FAKE_OLD */
