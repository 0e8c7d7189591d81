/*
 * NVML's binary interface as far as it is used here, declared on our own from its published layout (64-bit Linux).
 * Sizes and offsets are asserted, for a wrong one writes past our memory. Every function is optional: which ones a
 * library has is known only after it was opened (nvml_lib.h).
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Opaque; passed by value. A handle is stale after its card was lost or the library was shut down. */
struct nvml_device;
struct nvml_event_set;
struct nvml_gpm_sample; /* of counters at one moment; two of them make a figure */

enum nvml_code {
	NVML_OK = 0,
	NVML_UNINITIALIZED = 1,
	NVML_INVALID_ARGUMENT = 2,
	NVML_NOT_SUPPORTED = 3,
	NVML_NO_PERMISSION = 4,
	NVML_NOT_FOUND = 6,
	NVML_INSUFFICIENT_SIZE = 7,
	NVML_DRIVER_NOT_LOADED = 9,
	NVML_FUNCTION_NOT_FOUND = 13,
	NVML_GPU_IS_LOST = 15,
	NVML_RESET_REQUIRED = 16,
	NVML_OPERATING_SYSTEM = 17,
	NVML_LIB_RM_VERSION_MISMATCH = 18,
	NVML_NO_DATA = 21,
	NVML_VGPU_ECC_NOT_SUPPORTED = 22,
	NVML_ARGUMENT_VERSION_MISMATCH = 25,
	NVML_DEPRECATED = 26,
	NVML_GPU_NOT_FOUND = 28,
	NVML_UNKNOWN = 999,
};

#define NVML_ABSENT_U32 UINT32_MAX
#define NVML_ABSENT_U64 UINT64_MAX
#define NVML_VERSION_WORD(type, n) ((uint32_t)(sizeof(type) | (n) << 24))

#define NVML_CLOCK_SM 1
#define NVML_CLOCK_MEM 2
#define NVML_TEMPERATURE_GPU 0
#define NVML_PSTATE_UNKNOWN 32
#define NVML_LINK_DEVICE_GPU 0
#define NVML_LINK_DEVICE_SWITCH 2
#define NVML_LINKS_MAX 36
#define NVML_CLOCK_GRAPHICS 0
#define NVML_CLOCK_VIDEO 3
#define NVML_THRESHOLD_SHUTDOWN 0
#define NVML_THRESHOLD_SLOWDOWN 1
#define NVML_PCIE_TX 0
#define NVML_PCIE_RX 1
#define NVML_ECC_CORRECTED 0
#define NVML_ECC_UNCORRECTED 1
#define NVML_ECC_VOLATILE 0
#define NVML_ECC_AGGREGATE 1
#define NVML_SAMPLES_UTIL_GPU 1
#define NVML_EVENT_XID UINT64_C(0x8)
/* Field numbers from 251 on, 199 and 200 meant other things in other releases: they are never asked. */
#define NVML_FIELD_LINK_COUNT 91
#define NVML_FIELD_RECOVERY_ACTION 230
#define NVML_FIELD_LINK_RECOVERY_OLD 162 /* of a link; until Hopper */
#define NVML_FIELD_LINK_RECOVERY_OK 213 /* of a link; from Blackwell on, these three */
#define NVML_FIELD_LINK_RECOVERY_BAD 214
#define NVML_FIELD_LINK_RECOVERY_ALL 215

struct nvml_memory {
	uint64_t total, free, used;
};

struct nvml_memory_v2 {
	uint32_t version;
	uint64_t total, reserved, free, used;
};

struct nvml_utilization {
	uint32_t gpu, memory;
};

/* Plain process calls. */
struct nvml_process_v1 {
	uint32_t pid;
	uint64_t used;
};

/* _v2 and _v3. */
struct nvml_process_v2 {
	uint32_t pid;
	uint64_t used;
	uint32_t gpu_instance, compute_instance;
};

/* What _v3 fills in drivers 535.43.02 to 535.86.05 only. */
struct nvml_process_535 {
	uint32_t pid;
	uint64_t used;
	uint32_t gpu_instance, compute_instance;
	uint64_t used_protected;
};

struct nvml_pci {
	char bus_id_legacy[16];
	uint32_t domain, bus, device, pci_device_id, pci_subsystem_id;
	char bus_id[32]; /* _v3 only */
};

struct nvml_temperature {
	uint32_t version;
	int32_t sensor;
	int32_t celsius;
};

struct nvml_field {
	uint32_t id, scope;
	int64_t stamp_us, latency_us;
	int32_t type; /* 0 double, 1 u32, 2 unsigned long, 3 u64, 4 i64, 5 i32, 6 u16 */
	int32_t code; /* each field has a return code of its own */
	union {
		double real;
		uint32_t u32;
		uint64_t u64;
		int64_t i64;
		int32_t i32;
		uint16_t u16;
	} value;
};

struct nvml_bar1 {
	uint64_t total, free, used;
};

struct nvml_process_sample {
	uint32_t pid;
	uint64_t stamp_us;
	uint32_t sm, mem, enc, dec;
};

struct nvml_attributes {
	uint32_t multiprocessors, copy_engines, decoders, encoders, jpegs, ofas, gi_slices,
		ci_slices;
	uint64_t memory_mib;
};

struct nvml_event {
	struct nvml_device *device;
	uint64_t type, value;
	uint32_t gpu_instance, compute_instance;
};

struct nvml_dynamic_pstates {
	uint32_t flags;
	struct {
		uint32_t is_present, percent, rises, falls;
	} engine[8]; /* 0 graphics, 1 memory, 2 video, 3 bus */
};

struct nvml_sample {
	uint64_t stamp_us;
	union {
		uint32_t u32;
		uint64_t u64;
		double real;
	} value;
};

struct nvml_margin {
	uint32_t version;
	int32_t celsius;
};

/* Profiling (GPM), Hopper and later. Its version words are plain numbers. */
#define NVML_GPM_VERSION 1
#define NVML_GPM_METRICS_ROOM 333 /* of the largest header; only n_metrics of them are touched */

struct nvml_gpm_support {
	uint32_t version, is_supported;
};

struct nvml_gpm_metric {
	uint32_t id;
	int32_t code;
	double value; /* 0 to 100, or MiB/s */
	const char *texts[3];
};

struct nvml_gpm_metrics {
	uint32_t version, n_metrics;
	struct nvml_gpm_sample *older, *newer;
	struct nvml_gpm_metric metrics[NVML_GPM_METRICS_ROOM];
};

#define NVML_SIZE(type, size) _Static_assert(sizeof(type) == (size), #type)
#define NVML_AT(type, member, offset) \
	_Static_assert(offsetof(type, member) == (offset), #type "." #member)
NVML_SIZE(struct nvml_memory, 24);
NVML_AT(struct nvml_memory, used, 16);
NVML_SIZE(struct nvml_memory_v2, 40);
NVML_AT(struct nvml_memory_v2, total, 8);
NVML_AT(struct nvml_memory_v2, reserved, 16);
NVML_AT(struct nvml_memory_v2, free, 24);
NVML_AT(struct nvml_memory_v2, used, 32);
_Static_assert(NVML_VERSION_WORD(struct nvml_memory_v2, 2) == 0x02000028, "version word");
NVML_SIZE(struct nvml_utilization, 8);
NVML_SIZE(struct nvml_process_v1, 16);
NVML_AT(struct nvml_process_v1, used, 8);
NVML_SIZE(struct nvml_process_v2, 24);
NVML_AT(struct nvml_process_v2, gpu_instance, 16);
NVML_AT(struct nvml_process_v2, compute_instance, 20);
NVML_SIZE(struct nvml_process_535, 32);
NVML_AT(struct nvml_process_535, used_protected, 24);
NVML_SIZE(struct nvml_pci, 68);
NVML_AT(struct nvml_pci, domain, 16);
NVML_AT(struct nvml_pci, bus_id, 36);
NVML_SIZE(struct nvml_temperature, 12);
_Static_assert(NVML_VERSION_WORD(struct nvml_temperature, 1) == 0x0100000c, "version word");
NVML_SIZE(struct nvml_field, 40);
NVML_AT(struct nvml_field, stamp_us, 8);
NVML_AT(struct nvml_field, latency_us, 16);
NVML_AT(struct nvml_field, type, 24);
NVML_AT(struct nvml_field, code, 28);
NVML_AT(struct nvml_field, value, 32);
NVML_SIZE(struct nvml_bar1, 24);
NVML_AT(struct nvml_bar1, used, 16);
NVML_SIZE(struct nvml_process_sample, 32);
NVML_AT(struct nvml_process_sample, stamp_us, 8);
NVML_AT(struct nvml_process_sample, dec, 28);
NVML_SIZE(struct nvml_attributes, 40);
NVML_AT(struct nvml_attributes, memory_mib, 32);
NVML_SIZE(struct nvml_event, 32);
NVML_AT(struct nvml_event, value, 16);
NVML_AT(struct nvml_event, gpu_instance, 24);
NVML_SIZE(struct nvml_dynamic_pstates, 132);
NVML_AT(struct nvml_dynamic_pstates, engine, 4);
NVML_SIZE(struct nvml_sample, 16);
NVML_SIZE(struct nvml_margin, 8);
_Static_assert(NVML_VERSION_WORD(struct nvml_margin, 1) == 0x01000008, "version word");
NVML_SIZE(struct nvml_gpm_support, 8);
NVML_SIZE(struct nvml_gpm_metric, 40);
NVML_AT(struct nvml_gpm_metric, value, 8);
NVML_SIZE(struct nvml_gpm_metrics, 13344);
NVML_AT(struct nvml_gpm_metrics, metrics, 24);
_Static_assert(sizeof(void *) == 8 && sizeof(unsigned long) == 8, "layouts are those of LP64");

#define NVML_DEV struct nvml_device *

/*
 * X(member, (arguments), names...), the highest suffix first: the first name the library has is taken. Calls whose
 * variants fill different structures, or whose newer one may be there and not work, are members of their own.
 */
#define NVML_FUNCTIONS(X) \
	X(init, (void), "nvmlInit_v2", "nvmlInit") \
	X(shutdown, (void), "nvmlShutdown") \
	X(driver_version, (char *, uint32_t), "nvmlSystemGetDriverVersion") \
	X(nvml_version, (char *, uint32_t), "nvmlSystemGetNVMLVersion") \
	X(count, (uint32_t *), "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount") \
	X(by_index, (uint32_t, NVML_DEV *), "nvmlDeviceGetHandleByIndex_v2", \
		"nvmlDeviceGetHandleByIndex") \
	X(uuid, (NVML_DEV, char *, uint32_t), "nvmlDeviceGetUUID") \
	X(name, (NVML_DEV, char *, uint32_t), "nvmlDeviceGetName") \
	X(pci, (NVML_DEV, struct nvml_pci *), "nvmlDeviceGetPciInfo_v3", \
		"nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo") \
	X(numa_node, (NVML_DEV, uint32_t *), "nvmlDeviceGetNumaNodeId") \
	X(memory_v2, (NVML_DEV, struct nvml_memory_v2 *), "nvmlDeviceGetMemoryInfo_v2") \
	X(memory_v1, (NVML_DEV, struct nvml_memory *), "nvmlDeviceGetMemoryInfo") \
	X(utilization, (NVML_DEV, struct nvml_utilization *), "nvmlDeviceGetUtilizationRates") \
	X(temperature_v, (NVML_DEV, struct nvml_temperature *), "nvmlDeviceGetTemperatureV") \
	X(temperature, (NVML_DEV, int32_t, uint32_t *), "nvmlDeviceGetTemperature") \
	X(power, (NVML_DEV, uint32_t *), "nvmlDeviceGetPowerUsage") \
	X(limit_enforced, (NVML_DEV, uint32_t *), "nvmlDeviceGetEnforcedPowerLimit") \
	X(limit_managed, (NVML_DEV, uint32_t *), "nvmlDeviceGetPowerManagementLimit") \
	X(fan_v2, (NVML_DEV, uint32_t, uint32_t *), "nvmlDeviceGetFanSpeed_v2") \
	X(fan, (NVML_DEV, uint32_t *), "nvmlDeviceGetFanSpeed") \
	X(clock, (NVML_DEV, int32_t, uint32_t *), "nvmlDeviceGetClockInfo") \
	X(throttle, (NVML_DEV, uint64_t *), "nvmlDeviceGetCurrentClocksEventReasons", \
		"nvmlDeviceGetCurrentClocksThrottleReasons") \
	X(pstate, (NVML_DEV, int32_t *), "nvmlDeviceGetPerformanceState") \
	X(mig_mode, (NVML_DEV, uint32_t *, uint32_t *), "nvmlDeviceGetMigMode") \
	X(mig_max, (NVML_DEV, uint32_t *), "nvmlDeviceGetMaxMigDeviceCount") \
	X(mig_handle, (NVML_DEV, uint32_t, NVML_DEV *), "nvmlDeviceGetMigDeviceHandleByIndex") \
	X(fields, (NVML_DEV, int32_t, struct nvml_field *), "nvmlDeviceGetFieldValues") \
	X(link_state, (NVML_DEV, uint32_t, int32_t *), "nvmlDeviceGetNvLinkState") \
	X(link_pci, (NVML_DEV, uint32_t, struct nvml_pci *), \
		"nvmlDeviceGetNvLinkRemotePciInfo_v2", "nvmlDeviceGetNvLinkRemotePciInfo") \
	X(link_kind, (NVML_DEV, uint32_t, int32_t *), "nvmlDeviceGetNvLinkRemoteDeviceType") \
	X(compute_v3, (NVML_DEV, uint32_t *, void *), "nvmlDeviceGetComputeRunningProcesses_v3") \
	X(compute_v2, (NVML_DEV, uint32_t *, void *), "nvmlDeviceGetComputeRunningProcesses_v2") \
	X(compute_v1, (NVML_DEV, uint32_t *, void *), "nvmlDeviceGetComputeRunningProcesses") \
	X(graphics_v3, (NVML_DEV, uint32_t *, void *), "nvmlDeviceGetGraphicsRunningProcesses_v3") \
	X(graphics_v2, (NVML_DEV, uint32_t *, void *), "nvmlDeviceGetGraphicsRunningProcesses_v2") \
	X(graphics_v1, (NVML_DEV, uint32_t *, void *), "nvmlDeviceGetGraphicsRunningProcesses") \
	X(mps_v3, (NVML_DEV, uint32_t *, void *), "nvmlDeviceGetMPSComputeRunningProcesses_v3") \
	X(mps_v2, (NVML_DEV, uint32_t *, void *), "nvmlDeviceGetMPSComputeRunningProcesses_v2") \
	X(mps_v1, (NVML_DEV, uint32_t *, void *), "nvmlDeviceGetMPSComputeRunningProcesses") \
	X(conf_compute, (void), "nvmlDeviceGetConfComputeMemSizeInfo") \
	X(process_detail, (void), "nvmlDeviceGetRunningProcessDetailList") \
	X(cuda_version, (int32_t *), "nvmlSystemGetCudaDriverVersion_v2", \
		"nvmlSystemGetCudaDriverVersion") \
	X(architecture, (NVML_DEV, uint32_t *), "nvmlDeviceGetArchitecture") \
	X(dynamic_pstates, (NVML_DEV, struct nvml_dynamic_pstates *), \
		"nvmlDeviceGetDynamicPstatesInfo") \
	X(samples, (NVML_DEV, int32_t, uint64_t, int32_t *, uint32_t *, struct nvml_sample *), \
		"nvmlDeviceGetSamples") \
	X(encoder, (NVML_DEV, uint32_t *, uint32_t *), "nvmlDeviceGetEncoderUtilization") \
	X(decoder, (NVML_DEV, uint32_t *, uint32_t *), "nvmlDeviceGetDecoderUtilization") \
	X(jpeg, (NVML_DEV, uint32_t *, uint32_t *), "nvmlDeviceGetJpgUtilization") \
	X(ofa, (NVML_DEV, uint32_t *, uint32_t *), "nvmlDeviceGetOfaUtilization") \
	X(clock_max, (NVML_DEV, int32_t, uint32_t *), "nvmlDeviceGetMaxClockInfo") \
	X(threshold, (NVML_DEV, int32_t, uint32_t *), "nvmlDeviceGetTemperatureThreshold") \
	X(margin, (NVML_DEV, struct nvml_margin *), "nvmlDeviceGetMarginTemperature") \
	X(limit_default, (NVML_DEV, uint32_t *), "nvmlDeviceGetPowerManagementDefaultLimit") \
	X(limit_range, (NVML_DEV, uint32_t *, uint32_t *), \
		"nvmlDeviceGetPowerManagementLimitConstraints") \
	X(energy, (NVML_DEV, uint64_t *), "nvmlDeviceGetTotalEnergyConsumption") \
	X(pcie_gen, (NVML_DEV, uint32_t *), "nvmlDeviceGetCurrPcieLinkGeneration") \
	X(pcie_width, (NVML_DEV, uint32_t *), "nvmlDeviceGetCurrPcieLinkWidth") \
	X(pcie_gen_max, (NVML_DEV, uint32_t *), "nvmlDeviceGetMaxPcieLinkGeneration") \
	X(pcie_width_max, (NVML_DEV, uint32_t *), "nvmlDeviceGetMaxPcieLinkWidth") \
	X(pcie_throughput, (NVML_DEV, int32_t, uint32_t *), "nvmlDeviceGetPcieThroughput") \
	X(pcie_replays, (NVML_DEV, uint32_t *), "nvmlDeviceGetPcieReplayCounter") \
	X(throttle_mask, (NVML_DEV, uint64_t *), "nvmlDeviceGetSupportedClocksEventReasons", \
		"nvmlDeviceGetSupportedClocksThrottleReasons") \
	X(ecc_mode, (NVML_DEV, int32_t *, int32_t *), "nvmlDeviceGetEccMode") \
	X(ecc_total, (NVML_DEV, int32_t, int32_t, uint64_t *), "nvmlDeviceGetTotalEccErrors") \
	X(remapped, (NVML_DEV, uint32_t *, uint32_t *, uint32_t *, uint32_t *), \
		"nvmlDeviceGetRemappedRows") \
	X(bar1, (NVML_DEV, struct nvml_bar1 *), "nvmlDeviceGetBAR1MemoryInfo") \
	X(persistence, (NVML_DEV, int32_t *), "nvmlDeviceGetPersistenceMode") \
	X(compute_mode, (NVML_DEV, int32_t *), "nvmlDeviceGetComputeMode") \
	X(attributes, (NVML_DEV, struct nvml_attributes *), "nvmlDeviceGetAttributes_v2") \
	X(gi_id, (NVML_DEV, uint32_t *), "nvmlDeviceGetGpuInstanceId") \
	X(ci_id, (NVML_DEV, uint32_t *), "nvmlDeviceGetComputeInstanceId") \
	X(process_util, (NVML_DEV, struct nvml_process_sample *, uint32_t *, uint64_t), \
		"nvmlDeviceGetProcessUtilization") \
	X(event_set_create, (struct nvml_event_set **), "nvmlEventSetCreate") \
	X(event_set_free, (struct nvml_event_set *), "nvmlEventSetFree") \
	X(event_types, (NVML_DEV, uint64_t *), "nvmlDeviceGetSupportedEventTypes") \
	X(event_register, (NVML_DEV, uint64_t, struct nvml_event_set *), \
		"nvmlDeviceRegisterEvents") \
	X(event_wait, (struct nvml_event_set *, struct nvml_event *, uint32_t), \
		"nvmlEventSetWait_v2") \
	X(gpm_support, (NVML_DEV, struct nvml_gpm_support *), "nvmlGpmQueryDeviceSupport") \
	X(gpm_alloc, (struct nvml_gpm_sample **), "nvmlGpmSampleAlloc") \
	X(gpm_free, (struct nvml_gpm_sample *), "nvmlGpmSampleFree") \
	X(gpm_get, (NVML_DEV, struct nvml_gpm_sample *), "nvmlGpmSampleGet") \
	X(gpm_mig_get, (NVML_DEV, uint32_t, struct nvml_gpm_sample *), "nvmlGpmMigSampleGet") \
	X(gpm_metrics, (struct nvml_gpm_metrics *), "nvmlGpmMetricsGet")
