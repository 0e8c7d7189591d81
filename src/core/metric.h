/*
 * The one table of what can be measured of a card. JSON keys, columns, help and the wire are rendered from it.
 * Units are part of the key, base units only. Tiers say how often a back end asks (monitor-pitfalls 4c).
 */
#pragma once

#include <stddef.h>

enum metric_tier { TIER_STATIC, TIER_SLOW, TIER_FAST };

/* X(ID, json key, unit, tier, what it is) */
#define METRIC_TABLE(X)                                                                            \
	X(MEM_TOTAL, "mem_total_mib", "MiB", TIER_FAST, "memory the card has")                     \
	X(MEM_USED, "mem_used_mib", "MiB", TIER_FAST, "memory in use, without what the driver reserves") \
	X(MEM_RESERVED, "mem_reserved_mib", "MiB", TIER_FAST, "memory the driver keeps for itself") \
	X(UTIL_GPU, "util_gpu_pct", "%", TIER_FAST, "share of time a kernel was running")           \
	X(UTIL_MEM, "util_mem_pct", "%", TIER_FAST, "share of time memory was read or written")     \
	X(TEMP, "temp_c", "C", TIER_FAST, "temperature of the chip")                                \
	X(POWER, "power_mw", "mW", TIER_FAST, "power drawn")                                        \
	X(POWER_LIMIT, "power_limit_mw", "mW", TIER_SLOW, "power limit in force")                   \
	X(FAN, "fan_pct", "%", TIER_SLOW, "intended fan speed; may pass 100")                       \
	X(CLOCK_SM, "clock_sm_mhz", "MHz", TIER_FAST, "clock of the multiprocessors")               \
	X(CLOCK_MEM, "clock_mem_mhz", "MHz", TIER_FAST, "clock of the memory")                      \
	X(THROTTLE, "throttle_bits", "bits", TIER_FAST, "why the clocks are held back (NVML clock-event bits)") \
	X(PSTATE, "pstate", "P", TIER_SLOW, "performance state, 0 the fastest")                     \
	X(MIG_MODE, "mig_mode", "bool", TIER_SLOW, "1 when the card is cut into MIG instances")     \
	X(RECOVERY, "recovery_action", "enum", TIER_SLOW, "what the driver asks for: 0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset, 5 recover fabric")

#define METRIC_ENUM(id, key, unit, tier, text) METRIC_##id,
enum metric { METRIC_TABLE(METRIC_ENUM) METRIC_N };
#undef METRIC_ENUM

struct metric_info {
	const char *key;
	const char *unit;
	enum metric_tier tier;
	const char *text;
};

extern const struct metric_info metric_info[METRIC_N];
