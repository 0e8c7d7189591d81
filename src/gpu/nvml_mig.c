/*
 * MIG instances of a card: what they are and how much of their memory is in use. Their numbers have gaps, and their
 * handles die with them, so they are asked for anew each time. An instance that can't be asked is still told.
 */
#include "gpu/nvml.h"

#include <stdio.h>
#include <string.h>

#define INDEX_MAX 64
#define MIB (1024 * 1024)

static int32_t id_of(int (*call)(struct nvml_device *, uint32_t *), struct nvml_device *d)
{
	uint32_t id = NVML_ABSENT_U32;

	if (call == NULL || call(d, &id) != NVML_OK || id >= INT32_MAX)
		return 0;
	return (int32_t)id + 1;
}

static void put_memory(struct nvml *n, struct nvml_device *d, struct gpu_instance *g)
{
	struct nvml_memory_v2 m = {.version = NVML_VERSION_WORD(struct nvml_memory_v2, 2)};
	struct nvml_memory old = {0};
	int code = NVML_FUNCTION_NOT_FOUND;

	if (n->lib.fn.memory_v2 != NULL)
		code = n->lib.fn.memory_v2(d, &m);
	if (code != NVML_OK && n->lib.fn.memory_v1 != NULL) {
		code = n->lib.fn.memory_v1(d, &old);
		m.total = old.total;
		m.used = old.used;
	}
	if (code != NVML_OK) {
		g->mem_total_mib = g->mem_used_mib = value_absent(nvml_code_value(code));
		return;
	}
	if (m.total / MIB > INT32_MAX || m.used > m.total) {
		g->mem_total_mib = g->mem_used_mib = value_absent(VALUE_FAILED);
		return;
	}
	g->mem_total_mib = value_of((int64_t)(m.total / MIB));
	g->mem_used_mib = value_of((int64_t)(m.used / MIB + (m.used % MIB != 0)));
}

/* "1g.10gb", or "1c.2g.20gb" for a part of an instance: the end of NVIDIA's own name, else made of its slices. */
static void put_profile(struct nvml *n, struct nvml_device *d, struct gpu_instance *g)
{
	struct nvml_attributes a = {0};
	char name[96] = "";
	const char *mig;
	unsigned gib;
	int code = n->lib.fn.attributes == NULL ? NVML_FUNCTION_NOT_FOUND
						: n->lib.fn.attributes(d, &a);

	g->sm_count =
		code == NVML_OK ? value_of(a.multiprocessors) : value_absent(nvml_code_value(code));
	if (n->lib.fn.name != NULL && n->lib.fn.name(d, name, sizeof(name)) == NVML_OK) {
		name[sizeof(name) - 1] = '\0';
		mig = strstr(name, " MIG ");
		if (mig != NULL && strlen(mig + 5) < sizeof(g->profile)) {
			memcpy(g->profile, mig + 5, strlen(mig + 5) + 1);
			return;
		}
	}
	if (code != NVML_OK || a.gi_slices == 0 || a.gi_slices > 99 || a.memory_mib > INT32_MAX)
		return;
	gib = (unsigned)((a.memory_mib + 512) / 1024);
	if (a.ci_slices != 0 && a.ci_slices < a.gi_slices)
		snprintf(g->profile, sizeof(g->profile), "%uc.%ug.%ugb", a.ci_slices, a.gi_slices,
			gib);
	else
		snprintf(g->profile, sizeof(g->profile), "%ug.%ugb", a.gi_slices, gib);
}

static void put_uuid(struct nvml *n, struct nvml_device *d, struct gpu_instance *g)
{
	char uuid[96] = "";

	if (n->lib.fn.uuid == NULL || n->lib.fn.uuid(d, uuid, sizeof(uuid)) != NVML_OK)
		return;
	uuid[sizeof(uuid) - 1] = '\0';
	/* The long form of old drivers, "MIG-GPU-.../3/0", doesn't fit; half of it would name nothing. */
	if (strlen(uuid) < sizeof(g->uuid))
		memcpy(g->uuid, uuid, strlen(uuid) + 1);
}

void nvml_card_instances(
	struct nvml *n, struct nvml_card *c, uint32_t position, struct gpu_snapshot *s)
{
	uint32_t max = 0;
	int code = n->lib.fn.mig_max == NULL || n->lib.fn.mig_handle == NULL
			   ? NVML_FUNCTION_NOT_FOUND
			   : n->lib.fn.mig_max(c->handle, &max);

	if (nvml_card_drop(n, c, code) || code != NVML_OK)
		return;
	for (uint32_t i = 0; i < max && i < INDEX_MAX && s->n_instances < GPU_INSTANCE_MAX; i++) {
		struct gpu_instance *g = &s->instances[s->n_instances];
		struct nvml_device *d = NULL;

		code = n->lib.fn.mig_handle(c->handle, i, &d);
		if (nvml_card_drop(n, c, code))
			return;
		if (code != NVML_OK || d == NULL)
			continue;
		*g = (struct gpu_instance){.card = position,
			.gi = id_of(n->lib.fn.gi_id, d),
			.ci = id_of(n->lib.fn.ci_id, d)};
		put_uuid(n, d, g);
		put_profile(n, d, g);
		put_memory(n, d, g);
		s->n_instances++;
	}
}
