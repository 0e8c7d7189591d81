/*
 * The one table of what can be measured of a card. JSON keys, columns, help, the wire and docs/metrics.md are rendered
 * from it. Units are part of the key, base units only. Tiers say how often a back end asks (monitor-pitfalls 4c), kinds
 * say what two values of one metric mean beside each other.
 */
#pragma once

#include <stddef.h>

/* Once for each enumeration; every 5 s; every 60 s (a round trip to firmware); with every sample. */
enum metric_tier { TIER_STATIC, TIER_SLOW, TIER_FAST, TIER_RARE };

enum metric_kind {
	KIND_GAUGE, /* a level at that moment, or the mean of a short window: averages mean something */
	KIND_COUNTER, /* only grows, until the driver is loaded anew: differences mean something */
	KIND_STATE, /* one of several words, or bits: neither does */
};

/*
 * X(ID, json key, unit, tier, kind, what it is). The rows up to RECOVERY are in every sample, those up to REJECTED only in
 * one with details, the last ones only in one that somebody wants with profiling (core/profile.h).
 */
#define METRIC_TABLE(X) \
	X(MEM_TOTAL, "mem_total_mib", "MiB", TIER_FAST, KIND_GAUGE, "memory the card has") \
	X(MEM_USED, "mem_used_mib", "MiB", TIER_FAST, KIND_GAUGE, \
		"memory in use, without what the driver reserves") \
	X(MEM_RESERVED, "mem_reserved_mib", "MiB", TIER_FAST, KIND_GAUGE, \
		"memory the driver keeps for itself") \
	X(UTIL_GPU, "util_gpu_pct", "%", TIER_FAST, KIND_GAUGE, \
		"share of time a kernel was running") \
	X(UTIL_MEM, "util_mem_pct", "%", TIER_FAST, KIND_GAUGE, \
		"share of time memory was read or written") \
	X(TEMP, "temp_c", "C", TIER_FAST, KIND_GAUGE, "temperature of the chip") \
	X(POWER, "power_mw", "mW", TIER_FAST, KIND_GAUGE, "power drawn") \
	X(POWER_LIMIT, "power_limit_mw", "mW", TIER_SLOW, KIND_GAUGE, "power limit in force") \
	X(FAN, "fan_pct", "%", TIER_SLOW, KIND_GAUGE, "intended fan speed; may pass 100") \
	X(CLOCK_SM, "clock_sm_mhz", "MHz", TIER_FAST, KIND_GAUGE, "clock of the multiprocessors") \
	X(CLOCK_MEM, "clock_mem_mhz", "MHz", TIER_FAST, KIND_GAUGE, "clock of the memory") \
	X(THROTTLE, "throttle_bits", "bits", TIER_FAST, KIND_STATE, \
		"why the clocks are held back (NVML clock-event bits)") \
	X(PSTATE, "pstate", "P", TIER_SLOW, KIND_STATE, "performance state, 0 the fastest") \
	X(MIG_MODE, "mig_mode", "bool", TIER_SLOW, KIND_STATE, \
		"1 when the card is cut into MIG instances") \
	X(RECOVERY, "recovery_action", "enum", TIER_SLOW, KIND_STATE, \
		"what the driver asks for: 0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset, 5 recover fabric") \
	X(UTIL_ENC, "util_enc_pct", "%", TIER_FAST, KIND_GAUGE, "use of the video encoder") \
	X(UTIL_DEC, "util_dec_pct", "%", TIER_FAST, KIND_GAUGE, "use of the video decoder") \
	X(UTIL_JPG, "util_jpg_pct", "%", TIER_SLOW, KIND_GAUGE, "use of the JPEG decoder") \
	X(UTIL_OFA, "util_ofa_pct", "%", TIER_SLOW, KIND_GAUGE, \
		"use of the optical flow accelerator") \
	X(CLOCK_GRAPHICS, "clock_graphics_mhz", "MHz", TIER_SLOW, KIND_GAUGE, \
		"clock of the graphics engine") \
	X(CLOCK_VIDEO, "clock_video_mhz", "MHz", TIER_SLOW, KIND_GAUGE, \
		"clock of the video engines") \
	X(CLOCK_SM_MAX, "clock_sm_max_mhz", "MHz", TIER_STATIC, KIND_GAUGE, \
		"highest clock of the multiprocessors") \
	X(CLOCK_MEM_MAX, "clock_mem_max_mhz", "MHz", TIER_STATIC, KIND_GAUGE, \
		"highest clock of the memory") \
	X(CLOCK_GRAPHICS_MAX, "clock_graphics_max_mhz", "MHz", TIER_STATIC, KIND_GAUGE, \
		"highest clock of the graphics engine") \
	X(CLOCK_VIDEO_MAX, "clock_video_max_mhz", "MHz", TIER_STATIC, KIND_GAUGE, \
		"highest clock of the video engines") \
	X(TEMP_MEM, "temp_mem_c", "C", TIER_FAST, KIND_GAUGE, \
		"temperature of the memory (HBM boards)") \
	X(TEMP_SLOWDOWN, "temp_slowdown_c", "C", TIER_STATIC, KIND_GAUGE, \
		"temperature from which the card slows itself down") \
	X(TEMP_SHUTDOWN, "temp_shutdown_c", "C", TIER_STATIC, KIND_GAUGE, \
		"temperature at which the card turns itself off") \
	X(TEMP_MARGIN, "temp_margin_c", "C", TIER_SLOW, KIND_GAUGE, \
		"degrees left to the slowdown; below 0 it is slowed down") \
	X(POWER_INSTANT, "power_instant_mw", "mW", TIER_FAST, KIND_GAUGE, \
		"power drawn at this moment, not averaged") \
	X(POWER_LIMIT_DEFAULT, "power_limit_default_mw", "mW", TIER_STATIC, KIND_GAUGE, \
		"power limit the card comes with") \
	X(POWER_LIMIT_MIN, "power_limit_min_mw", "mW", TIER_STATIC, KIND_GAUGE, \
		"lowest power limit that can be set") \
	X(POWER_LIMIT_MAX, "power_limit_max_mw", "mW", TIER_STATIC, KIND_GAUGE, \
		"highest power limit that can be set") \
	X(ENERGY, "energy_mj", "mJ", TIER_FAST, KIND_COUNTER, \
		"energy used since the driver was loaded") \
	X(PCIE_GEN, "pcie_gen", "gen", TIER_SLOW, KIND_GAUGE, \
		"PCIe generation in use; lower when idle") \
	X(PCIE_WIDTH, "pcie_width", "lanes", TIER_SLOW, KIND_GAUGE, "PCIe lanes in use") \
	X(PCIE_GEN_MAX, "pcie_gen_max", "gen", TIER_STATIC, KIND_GAUGE, \
		"highest PCIe generation of card and slot") \
	X(PCIE_WIDTH_MAX, "pcie_width_max", "lanes", TIER_STATIC, KIND_GAUGE, \
		"most PCIe lanes of card and slot") \
	X(PCIE_TX, "pcie_tx_kib_s", "KiB/s", TIER_FAST, KIND_GAUGE, \
		"sent by the card over PCIe; not asked on machines of 3 and more cards whose driver has no byte counters, but where profiling has it") \
	X(PCIE_RX, "pcie_rx_kib_s", "KiB/s", TIER_FAST, KIND_GAUGE, \
		"received by the card over PCIe; as pcie_tx_kib_s") \
	X(PCIE_REPLAYS, "pcie_replay_count", "count", TIER_SLOW, KIND_COUNTER, \
		"packets sent once more over PCIe") \
	X(THROTTLE_MASK, "throttle_mask_bits", "bits", TIER_STATIC, KIND_STATE, \
		"which of throttle_bits this card can tell") \
	X(HELD_POWER, "held_power_pct", "%", TIER_FAST, KIND_GAUGE, \
		"share of time since the last sample the clocks were held back by power") \
	X(HELD_THERMAL, "held_thermal_pct", "%", TIER_FAST, KIND_GAUGE, "the same, by heat") \
	X(HELD_SYNC, "held_sync_pct", "%", TIER_FAST, KIND_GAUGE, \
		"the same, by a sync boost group") \
	X(HELD_BOARD, "held_board_pct", "%", TIER_FAST, KIND_GAUGE, \
		"the same, by the board's limit") \
	X(HELD_IDLE, "held_idle_pct", "%", TIER_FAST, KIND_GAUGE, \
		"the same, by having little to do") \
	X(HELD_RELIABILITY, "held_reliability_pct", "%", TIER_FAST, KIND_GAUGE, \
		"the same, by the voltage that is reliable") \
	X(ECC_MODE, "ecc_mode", "bool", TIER_RARE, KIND_STATE, \
		"1 when memory errors are corrected (ECC)") \
	X(ECC_MODE_PENDING, "ecc_mode_pending", "bool", TIER_RARE, KIND_STATE, \
		"ecc_mode after the next reboot") \
	X(ECC_CORR, "ecc_corrected_count", "count", TIER_SLOW, KIND_COUNTER, \
		"memory errors corrected since the driver was loaded") \
	X(ECC_UNCORR, "ecc_uncorrected_count", "count", TIER_SLOW, KIND_COUNTER, \
		"memory errors not corrected since the driver was loaded") \
	X(ECC_CORR_LIFE, "ecc_corrected_life_count", "count", TIER_RARE, KIND_COUNTER, \
		"memory errors corrected in the card's life") \
	X(ECC_UNCORR_LIFE, "ecc_uncorrected_life_count", "count", TIER_RARE, KIND_COUNTER, \
		"memory errors not corrected in the card's life") \
	X(RETIRED_CORR, "retired_corrected_count", "count", TIER_RARE, KIND_COUNTER, \
		"memory pages retired for corrected errors (before Ampere)") \
	X(RETIRED_UNCORR, "retired_uncorrected_count", "count", TIER_RARE, KIND_COUNTER, \
		"memory pages retired for uncorrected errors (before Ampere)") \
	X(RETIRED_PENDING, "retired_pending", "bool", TIER_RARE, KIND_STATE, \
		"1 when pages will be retired at the next reboot") \
	X(REMAP_CORR, "remap_corrected_count", "count", TIER_RARE, KIND_COUNTER, \
		"memory rows remapped for corrected errors (Ampere and later)") \
	X(REMAP_UNCORR, "remap_uncorrected_count", "count", TIER_RARE, KIND_COUNTER, \
		"memory rows remapped for uncorrected errors") \
	X(REMAP_PENDING, "remap_pending", "bool", TIER_RARE, KIND_STATE, \
		"1 when a remap waits for a reset of the card") \
	X(REMAP_FAILURE, "remap_failure", "bool", TIER_RARE, KIND_STATE, \
		"1 when a remap has failed: the card should be replaced") \
	X(XID_LAST, "xid_last", "enum", TIER_FAST, KIND_STATE, \
		"number of the last XID error seen by this agent") \
	X(XID_LAST_TIME, "xid_last_wall_ms", "ms", TIER_FAST, KIND_STATE, "when it was seen") \
	X(XID_COUNT, "xid_count", "count", TIER_FAST, KIND_COUNTER, \
		"XID errors seen by this agent since it first saw the card") \
	X(NVLINK_ACTIVE, "nvlink_active_count", "count", TIER_STATIC, KIND_GAUGE, \
		"NVLinks that are up") \
	X(NVLINK_TX, "nvlink_tx_kib_s", "KiB/s", TIER_FAST, KIND_GAUGE, \
		"sent over all NVLinks together") \
	X(NVLINK_RX, "nvlink_rx_kib_s", "KiB/s", TIER_FAST, KIND_GAUGE, \
		"received over all NVLinks together") \
	X(NVLINK_CRC, "nvlink_crc_error_count", "count", TIER_RARE, KIND_COUNTER, \
		"NVLink packets with a wrong checksum") \
	X(NVLINK_REPLAYS, "nvlink_replay_count", "count", TIER_RARE, KIND_COUNTER, \
		"NVLink packets sent once more") \
	X(NVLINK_RECOVERIES, "nvlink_recovery_count", "count", TIER_RARE, KIND_COUNTER, \
		"times an NVLink was brought up again") \
	X(BAR1_TOTAL, "bar1_total_mib", "MiB", TIER_SLOW, KIND_GAUGE, \
		"window through which the machine reaches the card's memory") \
	X(BAR1_USED, "bar1_used_mib", "MiB", TIER_SLOW, KIND_GAUGE, "part of that window in use") \
	X(PERSISTENCE, "persistence_mode", "bool", TIER_SLOW, KIND_STATE, \
		"1 when the driver stays loaded without clients") \
	X(COMPUTE_MODE, "compute_mode", "enum", TIER_SLOW, KIND_STATE, \
		"who may compute: 0 everybody, 1 one thread, 2 nobody, 3 one process") \
	X(MIG_PENDING, "mig_mode_pending", "bool", TIER_SLOW, KIND_STATE, \
		"mig_mode after the next reset") \
	X(REJECTED, "rejected_count", "count", TIER_FAST, KIND_COUNTER, \
		"figures of this card that the driver gave out of any range, and that were left out") \
	X(SM_ACTIVE, "sm_active_pct", "%", TIER_FAST, KIND_GAUGE, \
		"share of time that multiprocessors had work, over all of them") \
	X(SM_OCCUPANCY, "sm_occupancy_pct", "%", TIER_FAST, KIND_GAUGE, \
		"warps that were resident, of those that could be") \
	X(TENSOR_ACTIVE, "tensor_active_pct", "%", TIER_FAST, KIND_GAUGE, \
		"share of cycles the tensor pipes were busy") \
	X(FP64_ACTIVE, "fp64_active_pct", "%", TIER_FAST, KIND_GAUGE, \
		"the same of the pipe for 64-bit floating point") \
	X(FP32_ACTIVE, "fp32_active_pct", "%", TIER_FAST, KIND_GAUGE, \
		"the same of the pipe for 32-bit floating point") \
	X(FP16_ACTIVE, "fp16_active_pct", "%", TIER_FAST, KIND_GAUGE, \
		"the same of the pipe for 16-bit floating point, without the tensor pipes") \
	X(INT_ACTIVE, "int_active_pct", "%", TIER_FAST, KIND_GAUGE, \
		"the same of the pipe for integers") \
	X(DRAM_ACTIVE, "dram_active_pct", "%", TIER_FAST, KIND_GAUGE, \
		"share of cycles the memory's interface moved data") \
	X(INSTRUCTIONS, "instruction_throughput_pct", "%", TIER_FAST, KIND_GAUGE, \
		"the busiest pipe: the highest of tensor, fp64, fp32, fp16 and int") \
	X(SOL, "sol_pct", "%", TIER_FAST, KIND_GAUGE, \
		"what comes nearest to its limit (speed of light): the higher of instruction throughput and dram_active_pct")

#define METRIC_ENUM(id, key, unit, tier, kind, text) METRIC_##id,
enum metric { METRIC_TABLE(METRIC_ENUM) METRIC_N };
#undef METRIC_ENUM
#define METRIC_PLAIN_N (METRIC_RECOVERY + 1)
#define METRIC_PROFILE_FIRST METRIC_SM_ACTIVE /* from here on they're of profiling */

/* Its words are in it: a table of pointers would be written to by the loader at each start. */
struct metric_info {
	char key[32];
	char unit[8];
	enum metric_tier tier;
	enum metric_kind kind;
	char text[160];
};

extern const struct metric_info metric_info[METRIC_N];

/* "static", ...; "gauge", ...: the words of docs/metrics.md. */
const char *metric_tier_name(enum metric_tier t);
const char *metric_kind_name(enum metric_kind k);
