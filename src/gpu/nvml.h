/*
 * Inside of the NVML back end, for its own files and its tests only: nvml.c owns the library's life and the list of
 * cards, nvml_card.c asks one card its figures, nvml_procs.c its processes, nvml_host.c what the machine itself says.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "core/gpu.h"
#include "core/profile.h"
#include "gpu/gpu_backend.h"
#include "gpu/nvml_lib.h"

#include <stdbool.h>
#include <stdint.h>

enum nvml_list { LIST_COMPUTE, LIST_GRAPHICS, LIST_MPS, LIST_N };
#define LIST_VARIANTS 3 /* _v3, _v2, plain */

#define METRIC_WAYS 3
#define FIELD_GONE 0x80 /* in nvml_card.gone: the field value is unsupported */
#define NVML_MIG_MAX 8 /* instances of a card; today's have at most 7 */
#define NVML_UTIL_MAX 256 /* processes of a card whose use is remembered */

/* What the driver last said of a process's use of the card. */
struct nvml_use {
	uint32_t pid;
	uint64_t stamp_us;
	int64_t seen_ms;
	uint8_t sm, mem, enc, dec;
};

enum nvml_memory_call { MEMORY_UNDECIDED, MEMORY_V2, MEMORY_V1, MEMORY_UNIFIED };

/* Profiling counters of a card or of one of its GPU instances, while somebody wants them. */
struct nvml_gpm {
	int32_t gi; /* the instance's id + 1; 0: the card's own */
	bool is_known; /* whether it has them: code */
	int code;
	struct nvml_gpm_sample *samples[2]; /* ours; [0] the older */
	int64_t taken_ms; /* when [0] was taken; 0: never */
	struct value v[PROFILE_N]; /* of the last two */
};

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
	uint8_t gone
		[METRIC_N]; /* bit k: way k of asking this metric is permanently unsupported; FIELD_GONE */
	enum value_state gone_why[METRIC_N];
	struct value slow[METRIC_N];
	int64_t slow_ms; /* when the slow tier was read; 0 never */
	/* The same for what only details ask: static, slow, rare. */
	int64_t more_ms[TIER_RARE + 1];
	/* The last reading of a counter that a rate is made of. */
	struct {
		uint64_t raw;
		int64_t us; /* 0: none */
	} before[METRIC_N];
	int64_t pcie_ms; /* when the slow PCIe call was made; 0 never */
	int64_t rejected;
	int32_t links_active; /* -1: NVLink can't be asked */
	/* XIDs, seen since the card was first met. */
	bool has_xids;
	int64_t xid_last, xid_wall_ms, xid_boot_ms, xid_count;
	/* Its MIG instances as last seen; also of a card that has no handle at the moment. */
	struct gpu_instance mig[NVML_MIG_MAX];
	uint32_t n_mig;
	/* Use by process: the newest stamp had from this card, and what was said. */
	uint64_t use_stamp_us;
	uint32_t use_room; /* rows the driver wanted room for */
	bool use_gone;
	struct nvml_use use[NVML_UTIL_MAX];
	uint32_t n_use;
	char arch[16];
	bool is_blackwell; /* or later: some counters have other numbers */
	bool is_asleep; /* not opened, for that would wake it; known by its bus only */
	bool may_sleep; /* its power is managed at run time */
	bool list_gone[LIST_N];
	struct nvml_gpm gpm, parts[NVML_MIG_MAX]; /* parts: of its GPU instances */
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
	bool is_tegra; /* where the library answers with zeros */
	struct nvml_event_set *events; /* NULL: none */
	char driver[32], cuda[16], library[32];
	bool is_waking; /* sleeping cards are opened as well */
	int64_t idle_since_ms; /* 0: something happens, or somebody wants the cards up */
	int64_t idle_need_ms;
	int64_t rest_until_ms; /* 0: no rest */
	/* The rest is for a card whose MIG mode is to change. */
	bool is_yielding;
	int32_t yield_index;
	int64_t yield_next_ms, yield_gap_ms;
	int64_t placer_ms; /* when somebody asked last who places jobs by it; 0 never */
	bool is_gentle; /* on battery: what is slow is asked seldom, what is very slow not at all */
	int64_t power_ms; /* when that was looked at; 0 never */
	/* Of the look in hand. */
	int64_t spent_us;
	struct gpu_call slowest;
};

#define NVML_SLOW_MS 5000
#define NVML_IDLE_MS \
	10000 /* before the library is closed; doubles each time that a card stays awake all the same */
#define NVML_IDLE_MAX_MS 640000
#define NVML_REST_MS 20000 /* a card is off some 6 s after its last user */
#define NVML_RARE_MS 60000
#define NVML_GENTLE 6 /* times as seldom, on battery */
#define NVML_POWER_MS 10000
#define NVML_YIELD_MS 30000
#define NVML_PLACER_MS 60000 /* so long after a question of his the driver isn't let go of */
#define NVML_USE_HOLD_MS 2000 /* a driver's sampling period, and some */
#define NVML_COUNT_MS 30000
#define NVML_RESTART_MAX_MS 30000

/* host_root: see above. The public gpu_backend_nvml_open() uses "" or $GPUSTOW_HOST_ROOT. */
int nvml_open_at(const char *path, const char *host_root, struct gpu_backend **ret, struct err *e);

/* Drops the card's handle and says what became of it. Returns false when `code` doesn't mean that. */
bool nvml_card_drop(struct nvml *n, struct nvml_card *c, int code);

void nvml_card_sample(struct nvml *n, struct nvml_card *c, int64_t now_ms, struct gpu_card *ret);

/* Shuts the library down; cards keep what they are. */
void nvml_stop(struct nvml *n);

/* nvml_figure.c: everything but memory and processes, into ret->m. Forgets what was found out when MIG mode changes. */
void nvml_card_figures(struct nvml *n, struct nvml_card *c, int64_t now_ms, struct gpu_card *ret);

/* A field's number, whatever its type; NVML_NO_DATA when it isn't one. */
int nvml_field_value(const struct nvml_field *f, int64_t *ret);

/* Process rows of a snapshot under construction; items has room for GPU_PROC_MAX. */
struct nvml_rows {
	struct gpu_proc *items;
	uint32_t n;
};

/* nvml_util.c: each row's use of the card; rows and more are the card's own. has_mig: it can't be told. */
void nvml_card_use(struct nvml *n, struct nvml_card *c, bool has_mig, const struct gpu_proc *rows,
	uint32_t n_rows, int64_t now_ms, struct gpu_proc_more *more);

/* nvml_mig.c: asks which instances the card has now (c->mig), and their memory. It must have a handle. */
void nvml_mig_ask(struct nvml *n, struct nvml_card *c);
/* The instance id of one's handle + 1 (call: gi_id or ci_id); 0: it can't be told. */
int32_t nvml_mig_id(int (*call)(struct nvml_device *, uint32_t *), struct nvml_device *d);
/* Appends what was found to s->instances, which has room for GPU_INSTANCE_MAX. */
void nvml_mig_details(const struct nvml_card *c, uint32_t position, struct gpu_snapshot *s);
/* Appends them to the snapshot's cards, which have room for GPU_MAX. is_asked: the memory was had with this look. */
void nvml_mig_cards(const struct nvml *n, const struct nvml_card *c, uint32_t position,
	bool is_asked, struct gpu_snapshot *s);
/* Rows of the card at `position` that name an instance among the cards from first_instance on are that one's. */
void nvml_mig_move(const struct gpu_snapshot *s, uint32_t position, uint32_t first_instance,
	struct gpu_proc *rows, uint32_t n_rows);

/*
 * nvml_gpm.c: figures of profiling into ret->m where ask.profiling wants them; where not, what was taken for them is given
 * back. `look` says in the snapshot where they come from. `drop` before the library is shut down.
 */
void nvml_gpm_card(struct nvml *n, struct nvml_card *c, int64_t now_ms, struct gpu_card *ret);
/*
 * The same of the GPU instances among c->mig, into c->parts; the card's own comes first. `put` gives them to an instance's card:
 * several compute instances of one GPU instance have its figures together.
 */
void nvml_gpm_instances(struct nvml *n, struct nvml_card *c, int64_t now_ms);
void nvml_gpm_put(const struct nvml *n, const struct nvml_card *c, struct gpu_card *ret);
void nvml_gpm_look(const struct nvml *n, struct gpu_snapshot *s);
void nvml_gpm_drop(struct nvml *n, struct nvml_card *c);

/* nvml_event.c: the event set's life, from one enumeration to the next, and what has come. */
void nvml_event_start(struct nvml *n);
void nvml_event_stop(struct nvml *n);
void nvml_event_take(struct nvml *n, int64_t wall_ms, int64_t boot_ms);

/* nvml_sleep.c: asks sysfs alone. A card that isn't managed at run time never sleeps. */
bool nvml_bus_is_asleep(const char *host_root, const char *bus_id);
bool nvml_bus_may_sleep(const char *host_root, const char *bus_id);
/* UUID and name out of the kernel module's own file; false when it doesn't tell. Doesn't wake the card. */
bool nvml_bus_identity(const char *host_root, const char *bus_id, char uuid[GPU_UUID_LEN],
	char name[GPU_NAME_LEN]);
/*
 * An open library keeps a card awake that nobody uses. So where all cards are managed at run time and nothing happens
 * on them, it's closed for a while; a card that then doesn't fall asleep is kept up by somebody else. `look` decides on
 * a finished snapshot, for those who let cards sleep. `is_over`: there are cards to be opened that were left alone; as
 * long as rest_until_ms stays set, the rest goes on.
 */
void nvml_rest_look(struct nvml *n, int64_t now_ms, const struct gpu_snapshot *s);
bool nvml_rest_is_over(struct nvml *n, int64_t now_ms);
/*
 * nvml_yield.c: looks at a finished snapshot; where a card waits for a reset into another MIG mode, nobody uses it and
 * nobody places jobs, the library is closed for NVML_YIELD_MS. s->error of the snapshots until then says so.
 */
void nvml_yield_look(struct nvml *n, int64_t now_ms, struct gpu_snapshot *s);

/* nvml_call.c: around each question to the driver. `what` as in struct gpu_call; c NULL: it's about no card. */
int64_t nvml_call_begin(void);
void nvml_call_end(struct nvml *n, const struct nvml_card *c, const char *what, int64_t begun_us);
/* Moves what was measured since the last time into the snapshot. */
void nvml_call_take(struct nvml *n, struct gpu_snapshot *ret);
/* Pure, for nvml_sleep.c. */
bool nvml_parse_information(const char *text, char uuid[GPU_UUID_LEN], char name[GPU_NAME_LEN]);
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
bool nvml_host_is_tegra(const char *host_root);
/* Load of an integrated GPU in %, and its temperature, from sysfs; -ENOENT when there's no such file. */
int nvml_host_tegra_load(const char *host_root, int64_t *ret_pct);
int nvml_host_tegra_temp(const char *host_root, int64_t *ret_c);
/* "0000:3b:00.0", as the kernel spells it. */
void nvml_host_kernel_bus(const char *bus_id, char ret[GPU_BUS_LEN]);
int nvml_host_read(const char *host_root, const char *path, struct buf *ret);
int32_t nvml_host_numa(const char *host_root, const char *bus_id);
bool nvml_host_is_wsl(const char *host_root);
/* Bus ids of the cards the kernel module drives, ascending, NVML's spelling; returns how many. */
uint32_t nvml_host_buses(const char *host_root, char ret[GPU_MAX][GPU_BUS_LEN]);
