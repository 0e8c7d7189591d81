/*
 * MIG instances of a card: what they are and how much of their memory is in use. Their numbers have gaps, and their
 * handles die with them, so they are asked for anew each time; what doesn't change is asked once for each UUID and size.
 * An instance that can't be asked is still told. Each is a card of its own in the snapshot, behind the whole ones.
 */
#include "gpu/nvml.h"

#include <stdio.h>
#include <string.h>

#define INDEX_MAX 64
#define MIB (1024 * 1024)

int32_t nvml_mig_id(int (*call)(struct nvml_device *, uint32_t *), struct nvml_device *d)
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

/* Known from the look before: the same UUID, and as large, for an instance's UUID follows from its place on the card. */
static const struct gpu_instance *find_known(
	const struct gpu_instance *known, uint32_t n, const struct gpu_instance *g)
{
	for (uint32_t i = 0; g->uuid[0] != '\0' && i < n; i++) {
		if (strcmp(known[i].uuid, g->uuid) == 0 &&
			known[i].mem_total_mib.state == g->mem_total_mib.state &&
			known[i].mem_total_mib.v == g->mem_total_mib.v)
			return &known[i];
	}
	return NULL;
}

static void ask_instance(struct nvml *n, struct nvml_device *d, const struct gpu_instance *known,
	uint32_t n_known, struct gpu_instance *ret)
{
	struct gpu_instance g = {0};
	const struct gpu_instance *was;

	put_uuid(n, d, &g);
	put_memory(n, d, &g);
	was = find_known(known, n_known, &g);
	if (was != NULL) {
		g.gi = was->gi;
		g.ci = was->ci;
		g.sm_count = was->sm_count;
		memcpy(g.profile, was->profile, sizeof(g.profile));
	} else {
		g.gi = nvml_mig_id(n->lib.fn.gi_id, d);
		g.ci = nvml_mig_id(n->lib.fn.ci_id, d);
		put_profile(n, d, &g);
	}
	*ret = g;
}

/* The driver doesn't say now which there are: those of before, whose memory can't be told. */
static void forget_memory(struct nvml_card *c, enum value_state why)
{
	for (uint32_t i = 0; i < c->n_mig; i++)
		c->mig[i].mem_used_mib = value_absent(why);
}

void nvml_mig_ask(struct nvml *n, struct nvml_card *c)
{
	struct gpu_instance found[NVML_MIG_MAX];
	uint32_t max = 0, n_found = 0;
	int code = n->lib.fn.mig_max == NULL || n->lib.fn.mig_handle == NULL
			   ? NVML_FUNCTION_NOT_FOUND
			   : n->lib.fn.mig_max(c->handle, &max);

	if (nvml_card_drop(n, c, code))
		return;
	if (code != NVML_OK) {
		forget_memory(c, nvml_code_value(code));
		return;
	}
	for (uint32_t i = 0; i < max && i < INDEX_MAX && n_found < NVML_MIG_MAX; i++) {
		struct nvml_device *d = NULL;

		code = n->lib.fn.mig_handle(c->handle, i, &d);
		if (nvml_card_drop(n, c, code))
			return;
		if (code == NVML_OK && d != NULL)
			ask_instance(n, d, c->mig, c->n_mig, &found[n_found++]);
	}
	memcpy(c->mig, found, n_found * sizeof(*found));
	c->n_mig = n_found;
}

void nvml_mig_details(const struct nvml_card *c, uint32_t position, struct gpu_snapshot *s)
{
	for (uint32_t i = 0; i < c->n_mig && s->n_instances < GPU_INSTANCE_MAX; i++) {
		s->instances[s->n_instances] = c->mig[i];
		s->instances[s->n_instances++].card = position;
	}
}

static void put_name(const struct gpu_card *parent, struct gpu_card *to)
{
	char name[57]; /* so that the profile finds room behind it */

	snprintf(name, sizeof(name), "%.56s", parent->name);
	snprintf(to->name, sizeof(to->name), "%s MIG%s%s", name, to->profile[0] ? " " : "",
		to->profile);
}

/* The driver has no sensors for an instance; of a card that can't be asked, nothing is known of its instances either. */
static void put_figures(
	const struct gpu_card *parent, const struct gpu_instance *g, bool is_asked, struct value *m)
{
	enum value_state why = parent->m[METRIC_MEM_TOTAL].state;

	if (is_asked || why == VALUE_PRESENT)
		why = is_asked ? VALUE_UNSUPPORTED : VALUE_FAILED;
	for (int i = 0; i < METRIC_N; i++)
		m[i] = value_absent(why);
	if (!is_asked)
		return;
	m[METRIC_MEM_TOTAL] = g->mem_total_mib;
	m[METRIC_MEM_USED] = g->mem_used_mib;
}

void nvml_mig_cards(const struct nvml *n, const struct nvml_card *c, uint32_t position,
	bool is_asked, struct gpu_snapshot *s)
{
	for (uint32_t i = 0; i < c->n_mig; i++) {
		const struct gpu_card *parent = &s->cards[position];
		const struct gpu_instance *g = &c->mig[i];
		struct gpu_card *to = &s->cards[s->n_cards];

		if (s->n_cards == GPU_MAX || g->uuid[0] == '\0' || parent->uuid[0] == '\0') {
			s->n_left_out++;
			continue;
		}
		s->n_cards++;
		*to = (struct gpu_card){.index = parent->index,
			.gi = g->gi,
			.ci = g->ci,
			.state = parent->state,
			.is_blind = parent->is_blind,
			.numa = parent->numa};
		memcpy(to->uuid, g->uuid, sizeof(to->uuid));
		memcpy(to->parent, parent->uuid, sizeof(to->parent));
		memcpy(to->bus_id, parent->bus_id, sizeof(to->bus_id));
		memcpy(to->arch, parent->arch, sizeof(to->arch));
		memcpy(to->profile, g->profile, sizeof(to->profile));
		put_name(parent, to);
		put_figures(parent, g, is_asked, to->m);
		if (is_asked)
			nvml_gpm_put(n, c, to);
	}
}

static bool is_on(const struct gpu_card *g, const char *parent, const struct gpu_proc *p)
{
	return strcmp(g->parent, parent) == 0 && g->gi == p->gi &&
	       (p->ci == 0 || g->ci == 0 || g->ci == p->ci);
}

void nvml_mig_move(const struct gpu_snapshot *s, uint32_t position, uint32_t first_instance,
	struct gpu_proc *rows, uint32_t n_rows)
{
	for (uint32_t i = 0; i < n_rows; i++) {
		for (uint32_t k = first_instance; rows[i].gi > 0 && k < s->n_cards; k++) {
			if (!is_on(&s->cards[k], s->cards[position].uuid, &rows[i]))
				continue;
			rows[i].card = k;
			break;
		}
	}
}
