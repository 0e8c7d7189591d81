/* Where figures of profiling go among a card's metrics, and the two that follow from them. */
#include "core/profile.h"

#include "base/cleanup.h"

#include <string.h>

static const enum metric metrics[PROFILE_N] = {
	[PROFILE_SM_ACTIVE] = METRIC_SM_ACTIVE,
	[PROFILE_SM_OCCUPANCY] = METRIC_SM_OCCUPANCY,
	[PROFILE_TENSOR] = METRIC_TENSOR_ACTIVE,
	[PROFILE_FP64] = METRIC_FP64_ACTIVE,
	[PROFILE_FP32] = METRIC_FP32_ACTIVE,
	[PROFILE_FP16] = METRIC_FP16_ACTIVE,
	[PROFILE_INT] = METRIC_INT_ACTIVE,
	[PROFILE_DRAM] = METRIC_DRAM_ACTIVE,
	[PROFILE_PCIE_TX] = METRIC_PCIE_TX,
	[PROFILE_PCIE_RX] = METRIC_PCIE_RX,
	[PROFILE_NVLINK_TX] = METRIC_NVLINK_TX,
	[PROFILE_NVLINK_RX] = METRIC_NVLINK_RX,
};

/* The highest of those that are there; the first one's reason when none is. */
static struct value highest(const struct value *v, size_t n)
{
	struct value max = v[0];

	for (size_t i = 1; i < n; i++)
		if (value_is_present(v[i]) && (!value_is_present(max) || v[i].v > max.v))
			max = v[i];
	return max;
}

static void put_derived(struct gpu_card *c)
{
	const struct value pipes[] = {c->m[METRIC_TENSOR_ACTIVE], c->m[METRIC_FP64_ACTIVE],
		c->m[METRIC_FP32_ACTIVE], c->m[METRIC_FP16_ACTIVE], c->m[METRIC_INT_ACTIVE]};
	struct value limits[2];

	c->m[METRIC_INSTRUCTIONS] = highest(pipes, ARRAY_LEN(pipes));
	limits[0] = c->m[METRIC_INSTRUCTIONS];
	limits[1] = c->m[METRIC_DRAM_ACTIVE];
	c->m[METRIC_SOL] = highest(limits, ARRAY_LEN(limits));
}

void profile_put(const struct value v[PROFILE_N], struct gpu_card *c)
{
	for (size_t i = 0; i < PROFILE_N; i++) {
		struct value *to = &c->m[metrics[i]];

		if (i <= PROFILE_DRAM || (!value_is_present(*to) && value_is_present(v[i])))
			*to = v[i];
	}
	put_derived(c);
}

void profile_put_absent(enum value_state why, struct gpu_card *c)
{
	for (size_t m = METRIC_PROFILE_FIRST; m < METRIC_N; m++)
		c->m[m] = value_absent(why);
}

bool profile_has(const struct gpu_card *c)
{
	for (size_t m = METRIC_PROFILE_FIRST; m < METRIC_N; m++)
		if (value_is_present(c->m[m]))
			return true;
	return false;
}

bool profile_has_any(const struct gpu_snapshot *s)
{
	for (uint32_t i = 0; i < s->n_cards; i++)
		if (profile_has(&s->cards[i]))
			return true;
	return false;
}

static const char *const source_names[PROFILE_SOURCE_N] = {
	[PROFILE_NOT_ASKED] = "",
	[PROFILE_STARTING] = "starting",
	[PROFILE_DCGM] = "dcgm",
	[PROFILE_GPM] = "gpm",
	[PROFILE_SIM] = "sim",
	[PROFILE_NONE] = "none",
};

const char *profile_source_name(enum profile_source s)
{
	return source_names[s];
}

enum profile_source profile_source_from_name(const char *name)
{
	for (int i = 0; i < PROFILE_SOURCE_N; i++)
		if (strcmp(name, source_names[i]) == 0)
			return (enum profile_source)i;
	return PROFILE_NONE;
}
