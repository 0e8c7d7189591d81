/* The metric table of metric.h as an array. It holds nothing that the table doesn't say. */
#include "core/metric.h"

#define METRIC_INFO(id, json_key, unit_name, tier_name, what) \
	[METRIC_##id] = { \
		.key = (json_key), .unit = (unit_name), .tier = (tier_name), .text = (what)},
const struct metric_info metric_info[METRIC_N] = {METRIC_TABLE(METRIC_INFO)};
#undef METRIC_INFO
