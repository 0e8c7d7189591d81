/*
 * Asks one card: its memory here, its other figures in nvml_figure.c. The codes that say the card itself is gone drop
 * its handle at once, and nothing more is asked of it; a card that sleeps isn't asked at all.
 */
#include "gpu/nvml.h"

#include "base/cleanup.h"

#include <string.h>

#define MIB (1024 * 1024)

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
	int64_t begun_us;
	int code = NVML_OK;

	for (enum nvml_memory_call call = first; call <= last; call++) {
		begun_us = nvml_call_begin();
		code = ask_memory(n, c, call, ret);
		nvml_call_end(n, c, "memory", begun_us);
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

	for (int m = 0; m < METRIC_PLAIN_N; m++) {
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

/* What never changes is known from before; the rest would have to be asked. */
static void put_asleep(const struct nvml *n, const struct nvml_card *c, struct gpu_card *ret)
{
	enum value_state why = n->is_yielding ? VALUE_NOT_ASKED : VALUE_ASLEEP;

	for (int m = 0; m < METRIC_N; m++) {
		bool is_kept = metric_info[m].tier == TIER_STATIC && value_is_present(c->slow[m]);

		ret->m[m] = is_kept ? c->slow[m] : value_absent(why);
	}
}

/* What is known without a question: of a look with details, even if it was somebody else's. */
static void put_ills(const struct nvml_card *c, struct gpu_card *ret)
{
	static const enum metric waits[] = {METRIC_REMAP_PENDING, METRIC_RETIRED_PENDING};
	struct value pending = c->slow[METRIC_MIG_PENDING];

	ret->xid = (struct gpu_xid){
		.last = c->xid_last, .boot_ms = c->xid_boot_ms, .count = c->xid_count};
	/* One that hasn't been asked since it was enumerated is what it was. */
	ret->is_mig_parent = c->mig_mode == 1 || (c->mig_mode < 0 && c->n_mig > 0);
	for (size_t i = 0; i < ARRAY_LEN(waits); i++)
		if (value_is_present(c->slow[waits[i]]) && c->slow[waits[i]].v == 1)
			ret->reset = GPU_RESET_PENDING;
	if (value_is_present(pending) && c->mig_mode >= 0 && pending.v != c->mig_mode)
		ret->reset = GPU_RESET_PENDING;
}

void nvml_card_sample(struct nvml *n, struct nvml_card *c, int64_t now_ms, struct gpu_card *ret)
{
	*ret = (struct gpu_card){.index = c->index, .numa = c->numa, .nvlink_peers = c->link_peers};
	memcpy(ret->uuid, c->uuid, sizeof(ret->uuid));
	memcpy(ret->name, c->name, sizeof(ret->name));
	memcpy(ret->bus_id, c->bus_id, sizeof(ret->bus_id));
	memcpy(ret->arch, c->arch, sizeof(ret->arch));
	put_ills(c, ret);
	if (c->is_asleep || (n->base.ask.lets_sleep && c->may_sleep && c->handle != NULL &&
				    nvml_bus_is_asleep(n->host_root, c->bus_id))) {
		put_asleep(n, c, ret);
		return;
	}
	if (c->handle != NULL)
		sample_memory(n, c, ret);
	if (c->handle != NULL)
		nvml_card_figures(n, c, now_ms, ret);
	if (c->handle != NULL)
		nvml_gpm_card(n, c, now_ms, ret);
	put_ills(c, ret);
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
