/* The metric table of metric.h as an array. It holds nothing that the table doesn't say. */
#include "core/metric.h"

#define METRIC_INFO(id, json_key, unit_name, tier_name, kind_name, what) \
	[METRIC_##id] = {.key = json_key, \
		.unit = unit_name, \
		.tier = (tier_name), \
		.kind = (kind_name), \
		.text = what},
const struct metric_info metric_info[METRIC_N] = {METRIC_TABLE(METRIC_INFO)};
#undef METRIC_INFO

const char *metric_tier_name(enum metric_tier t)
{
	static const char *const names[] = {
		[TIER_STATIC] = "static",
		[TIER_SLOW] = "slow",
		[TIER_FAST] = "fast",
		[TIER_RARE] = "rare",
	};

	return names[t];
}

const char *metric_kind_name(enum metric_kind k)
{
	static const char *const names[] = {
		[KIND_GAUGE] = "gauge",
		[KIND_COUNTER] = "counter",
		[KIND_STATE] = "state",
	};

	return names[k];
}
