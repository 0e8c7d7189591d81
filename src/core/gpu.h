/*
 * What a node's GPUs are and do at one moment: plain values without pointers to anything outside, so that a
 * snapshot can cross a pipe as it is. Memory is MiB, times are milliseconds on CLOCK_BOOTTIME unless named wall.
 */
#pragma once

#include "core/value.h"
#include "core/metric.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define GPU_MAX 64 /* cards and MIG instances of a node together; more are left out and counted */
#define GPU_PROC_MAX 4096 /* process rows of one snapshot */
#define GPU_UUID_LEN 48
#define GPU_NAME_LEN 96
#define GPU_BUS_LEN 32
#define GPU_CMDLINE_LEN 512
#define GPU_LABEL_LEN 40
#define GPU_PROFILE_LEN 32
#define GPU_INSTANCE_MAX 256 /* MIG instances of one snapshot; a card has at most 7 */

enum gpu_state {
	GPU_OK = 0,
	GPU_LOST, /* off the bus or not answering to its handle (NVML 15, 28) */
	GPU_NEEDS_RESET, /* NVML 16 */
	GPU_FORBIDDEN, /* counted but may not be opened (NVML 4, 17) */
	GPU_FAILED, /* any other error on the card itself */
	GPU_STATE_N,
};

/* Does the card ask to be reset? Whoever places jobs takes a card out of service that needs one. */
enum gpu_reset {
	GPU_RESET_NONE,
	GPU_RESET_PENDING, /* it works; what the next reset will change waits (a memory row to be remapped, MIG mode) */
	GPU_RESET_NEEDED, /* the driver asks for it, or answers with NVML 16 */
	GPU_RESET_N,
};

/* The last XID error of a card: the driver's word that something went wrong on it. */
struct gpu_xid {
	int64_t last; /* its number; 0: none was seen; -1: one out of range */
	int64_t boot_ms; /* when it was seen */
	int64_t count; /* since the agent's start */
};

/*
 * What jobs are placed on: a whole card, or a MIG instance of one. An instance is a card of its own, with its own UUID
 * and memory; people call it "0:1" (GPU instance 1 of card 0), or "0:1:2" where it's not the first compute instance
 * there. The card it was cut from stays in the list as is_mig_parent, and nothing is placed on that.
 */
struct gpu_card {
	int32_t index; /* what people type: nvidia-smi's order (PCI bus id); an instance has its parent's */
	char uuid[GPU_UUID_LEN]; /* "GPU-...", "MIG-..."; "" when a lost card never told */
	char parent[GPU_UUID_LEN]; /* of an instance: its card's UUID; "" for a whole card */
	int32_t gi, ci; /* of an instance: GPU and compute instance + 1; 0: none */
	char profile[GPU_PROFILE_LEN]; /* of an instance: "1g.10gb"; "" unknown */
	bool is_mig_parent; /* MIG mode is on: its memory is used by its instances only */
	struct gpu_xid xid; /* an instance has its card's */
	enum gpu_reset reset; /* likewise */
	char name[GPU_NAME_LEN];
	char bus_id[GPU_BUS_LEN]; /* "00000000:3B:00.0", "" unknown */
	enum gpu_state state;
	bool is_unified; /* shares the machine's memory: total and used come from /proc/meminfo */
	bool is_blind; /* the driver names no memory per process here (WSL, foreign pid namespace) */
	int32_t numa; /* -1 unknown */
	uint64_t
		nvlink_peers; /* bit i: an active NVLink to the card at position i of the snapshot */
	char arch[16]; /* "Ampere", "" unknown */
	struct value m[METRIC_N];
};

enum gpu_proc_kind { GPU_PROC_COMPUTE = 1, GPU_PROC_GRAPHICS = 2, GPU_PROC_MPS = 4 }; /* bits */

/* One process on one card or MIG instance. A process on two has two rows. */
struct gpu_proc {
	uint32_t card; /* position in the snapshot's cards, not the index */
	uint32_t kind; /* enum gpu_proc_kind bits */
	int32_t pid;
	uint64_t
		start_ticks; /* /proc/PID/stat field 22; 0 when the process is gone or not visible */
	struct value used_mib;
	uint32_t uid; /* (uid_t)-1 unknown */
	int32_t gi, ci; /* GPU and compute instance (MIG) + 1; 0: none */
	char comm[32]; /* raw bytes from /proc, NUL-terminated: clean before showing */
	/* Whose child is it? Filled by the sampler from /proc, for rule 3 of DESIGN. */
	int32_t pgid, sid; /* 0 unknown */
	uint32_t n_ancestors;
	int32_t ancestors[32]; /* parent first */
	char mark
		[80]; /* value of GPUSTOW_MARK in its environment ("<queue uuid>/<job>.<attempt>"), "" if none */
};

/* What a row has besides in a sample with details. Texts are raw bytes: clean before showing. */
struct gpu_proc_more {
	/* Between two looks of the driver; held for one of its periods, then 0 as long as the process is listed. */
	struct value sm_pct, mem_pct, enc_pct, dec_pct;
	struct value cpu_pct; /* 100 is one core; between two samples */
	struct value rss_mib;
	int64_t start_wall_ms; /* 0 unknown */
	char user[33]; /* "" when the uid has no name (yet): show the number */
	char cmdline
		[GPU_CMDLINE_LEN]; /* arguments joined by blanks; "" for a kernel thread or one that is gone */
	/* From the path of its cgroup; "" without. */
	char container[65]; /* the container's id */
	char pod[64]; /* uid of the Kubernetes pod */
	char slurm_job[32];
	char unit[96]; /* systemd unit or scope */
	char state; /* R S D Z T ..., as ps has it; 0 unknown */
	int32_t threads; /* 0 unknown */
};

/* A MIG instance as a monitor shows it, with details only: also one that found no room among the cards. */
struct gpu_instance {
	uint32_t card; /* position of its card in the snapshot */
	int32_t gi, ci; /* as in struct gpu_proc */
	char uuid[GPU_UUID_LEN]; /* "MIG-..." */
	char profile[GPU_PROFILE_LEN]; /* "1g.10gb"; "" unknown */
	struct value mem_total_mib, mem_used_mib, sm_count;
};

/* A question to the driver and how long it took. */
struct gpu_call {
	char what[32]; /* a metric's key, or "process list", "memory", ...; "" none */
	int32_t index; /* of the card; -1: no card's */
	int64_t took_us;
};

/* Where figures of profiling come from (core/profile.h). */
enum profile_source {
	PROFILE_NOT_ASKED, /* nobody wants them */
	PROFILE_STARTING, /* they're wanted, and nothing was heard yet */
	PROFILE_DCGM,
	PROFILE_GPM, /* NVML's calls, Hopper and later */
	PROFILE_SIM,
	PROFILE_NONE, /* there's nowhere to have them from: why says so */
	PROFILE_SOURCE_N,
};

struct gpu_profiling {
	enum profile_source source;
	char error[32]; /* why not from DCGM, as a word: "dcgm_import_failed", ...; "" */
	char why[400]; /* the sentence behind it, or behind "none"; "" */
};

struct gpu_snapshot {
	uint64_t seq;
	int64_t begun_ms; /* BOOTTIME before the first question to the driver */
	int64_t ended_ms;
	char source[16]; /* "nvml", "nvidia-smi", "sim", "none" */
	char error[256]; /* why the back end could not ask, as a sentence; "" when it could */
	uint32_t n_cards, n_procs;
	/* n_cards: the whole cards by ascending index, then the MIG instances, also by ascending index; owned. */
	struct gpu_card *cards;
	uint32_t n_left_out; /* cards and instances beyond GPU_MAX, or that have no UUID */
	struct gpu_proc *procs; /* n_procs; owned */
	/* What comes with details only; the process rows of such a sample may be those of an earlier one. */
	bool has_details, has_old_procs;
	/* The driver names pids of another pid namespace (we're in a container): its rows have no facts. */
	bool has_foreign_pids;
	int64_t driver_us; /* spent in the driver; 0 unknown */
	struct gpu_call slowest; /* of this look */
	struct gpu_profiling profiling;
	char driver[32], cuda[16], library[32]; /* versions; "" unknown */
	struct gpu_proc_more *more; /* parallel to procs; NULL without details; owned */
	uint32_t n_instances;
	struct gpu_instance *instances; /* n_instances, by card; owned */
};

void gpu_snapshot_done(struct gpu_snapshot *s);
void gpu_snapshot_copy(const struct gpu_snapshot *from, struct gpu_snapshot *ret);
/* Position of a card or MIG instance by UUID, of a whole card by index; -1 when there's none. */
int gpu_find_uuid(const struct gpu_snapshot *s, const char *uuid);
int gpu_find_index(const struct gpu_snapshot *s, int index);
/* "0", "0:1", "0:1:2": also of an instance. */
int gpu_find_label(const struct gpu_snapshot *s, const char *label);
bool gpu_is_instance(const struct gpu_card *c);
/* It's no card that was cut into instances. Its state is another matter. */
bool gpu_is_placeable(const struct gpu_card *c);
/* The whole card's position: itself, or the card that an instance was cut from; itself when that isn't in the snapshot. */
uint32_t gpu_whole_of(const struct gpu_snapshot *s, uint32_t card);
uint32_t gpu_count_whole(const struct gpu_snapshot *s);
/* What people call it. gi and ci as in struct gpu_card. */
void gpu_label(int32_t index, int32_t gi, int32_t ci, char ret[GPU_LABEL_LEN]);
/* "none", "pending", "needed"; NULL for a number outside the enum. */
const char *gpu_reset_name(enum gpu_reset r);
int gpu_reset_from_name(const char *name, enum gpu_reset *ret);
const char *gpu_state_name(enum gpu_state s);
/* What to tell a person about a card in that state, and the way out: a clause without a full stop. "" for GPU_OK. */
const char *gpu_state_text(enum gpu_state s);
int gpu_state_from_name(const char *name, enum gpu_state *ret);
