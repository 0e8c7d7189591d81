/*
 * Inside of the NVML back end, for its own files and its tests only: nvml.c owns the library's life and the list of
 * cards, nvml_card.c asks one card its figures, nvml_procs.c its processes, nvml_host.c what the machine itself says.
 */
#pragma once

#include "base/err.h"
#include "core/gpu.h"
#include "gpu/gpu_backend.h"
#include "gpu/nvml_lib.h"

#include <stdbool.h>
#include <stdint.h>

enum nvml_list { LIST_COMPUTE, LIST_GRAPHICS, LIST_MPS, LIST_N };
#define LIST_VARIANTS 3 /* _v3, _v2, plain */

enum nvml_memory_call { MEMORY_UNDECIDED, MEMORY_V2, MEMORY_V1, MEMORY_UNIFIED };

/* A card as it was enumerated. Invariant: handle is NULL whenever the card may not be asked. */
struct nvml_card {
	struct nvml_device *handle;
	enum gpu_state state;
	bool is_missing; /* known from before, not enumerated this time */
	int32_t index;
	char uuid[GPU_UUID_LEN];
	char name[GPU_NAME_LEN];
	char bus_id[GPU_BUS_LEN];
	int32_t numa;
	uint64_t link_peers;
	/* What was found out by asking; forgotten with the next enumeration. */
	enum nvml_memory_call memory;
	uint8_t gone[METRIC_N]; /* bit k: way k of asking this metric is permanently unsupported */
	enum value_state gone_why[METRIC_N];
	struct value slow[METRIC_N];
	int64_t slow_ms; /* when the slow tier was read; 0 never */
	bool list_gone[LIST_N];
	int64_t mig_mode; /* under which that was found out; -1 before it's known */
	bool is_blind;
};

struct nvml {
	struct gpu_backend base;
	char *path; /* NULL: the usual names */
	char *host_root; /* "" on a real machine; before /proc and /sys */
	struct nvml_lib lib;
	bool is_up;
	uint32_t count; /* as NVML counts */
	uint32_t n_cards;
	struct nvml_card cards[GPU_MAX]; /* ascending index */
	bool wants_restart; /* a handle went stale: shut down, initialise, enumerate */
	int64_t restart_ms; /* not before */
	int64_t restart_pause_ms; /* doubles while cards stay lost */
	int64_t count_ms; /* when to count again */
	int first_variant[LIST_N]; /* LIST_VARIANTS: the library has no such list */
	bool has_wide_processes;
	bool is_wsl; /* where no memory is ever named for a process */
};

#define NVML_SLOW_MS 5000
#define NVML_COUNT_MS 30000
#define NVML_RESTART_MAX_MS 30000

/* host_root: see above. The public gpu_backend_nvml_open() uses "" or $GPUSTOW_HOST_ROOT. */
int nvml_open_at(const char *path, const char *host_root, struct gpu_backend **ret, struct err *e);

/* Drops the card's handle and says what became of it. Returns false when `code` doesn't mean that. */
bool nvml_card_drop(struct nvml *n, struct nvml_card *c, int code);

void nvml_card_sample(struct nvml *n, struct nvml_card *c, int64_t now_ms, struct gpu_card *ret);

/* Process rows of a snapshot under construction; items has room for GPU_PROC_MAX. */
struct nvml_rows {
	struct gpu_proc *items;
	uint32_t n;
};
void nvml_card_procs(struct nvml *n, struct nvml_card *c, uint32_t position, bool has_mig,
	struct nvml_rows *rows);

/* Which of two element sizes a process list of n rows was filled with: `expected` unless `other` is plainly better. */
size_t nvml_pick_stride(const uint8_t *rows, uint32_t n, size_t expected, size_t other);

/* Pure. Outputs in MiB; -EINVAL without MemTotal or MemAvailable. */
int nvml_parse_meminfo(const char *text, int64_t *ret_total_mib, int64_t *ret_available_mib);
/* Pure: the kernel module's version out of /proc/driver/nvidia/version; -EINVAL when there's none. */
int nvml_parse_module_version(const char *text, char *ret, size_t size);

int nvml_host_memory(const char *host_root, int64_t *ret_total_mib, int64_t *ret_available_mib);
int nvml_host_module_version(const char *host_root, char *ret, size_t size);
int32_t nvml_host_numa(const char *host_root, const char *bus_id);
bool nvml_host_is_wsl(const char *host_root);
/* Bus ids of the cards the kernel module drives, ascending, NVML's spelling; returns how many. */
uint32_t nvml_host_buses(const char *host_root, char ret[GPU_MAX][GPU_BUS_LEN]);
