/*
 * Where GPU figures come from: nvml, nvidia-smi's text, or simulated cards. Siblings behind one struct; the caller
 * (the agent's sampler child, which may hang alone) never knows which. Calls block; nothing here has a timer except
 * the text back end, which ends its child after its limit.
 */
#pragma once

#include "base/err.h"
#include "core/gpu.h"

struct gpu_backend;

struct gpu_backend_impl {
	const char *name; /* "nvml", "nvidia-smi", "sim" */
	bool has_local_pids; /* its pids are of our own pid namespace: simulated jobs; the driver's are the host's */
	/* Asks the cards and their processes: fills n_cards, cards, n_procs, procs (pid, card, kind, used_mib) and error. */
	/* 0, or -errno with *e when nothing could be asked at all; a card that failed is a card with a state. */
	int (*snapshot)(struct gpu_backend *b, struct gpu_snapshot *ret, struct err *e);
	void (*free)(struct gpu_backend *b);
};

/* How much a snapshot is to cost. Zeroed: what admission needs, all of it asked now, whatever sleeps is woken. */
struct gpu_ask {
	bool details; /* every metric, and what struct gpu_proc_more and struct gpu_instance hold */
	bool old_procs; /* the process lists may be left out; the snapshot then says has_old_procs and has no rows */
	bool profiling; /* figures of hardware counters, as far as this back end has them; only with details */
	bool lets_sleep; /* cards that sleep aren't asked: their figures are absent */
};

struct gpu_backend {
	const struct gpu_backend_impl *impl; /* first member of each back end's own struct */
	uint64_t seq; /* of the last snapshot */
	struct gpu_ask ask; /* of the snapshot in hand */
};

/*
 * Opens what this machine has. GPUSTOW_SIM set (not empty): simulated cards. Else NVML (GPUSTOW_NVML_PATH overrides
 * the library's file), else nvidia-smi (GPUSTOW_NVIDIA_SMI overrides the program). Negative with a sentence that names
 * what was tried and why each failed; callers try again with back-off, for a driver may come later.
 */
int gpu_backend_open(struct gpu_backend **ret, struct err *e);
int gpu_backend_nvml_open(const char *path, struct gpu_backend **ret, struct err *e);
int gpu_backend_smi_open(const char *program, struct gpu_backend **ret, struct err *e);
int gpu_backend_sim_open(
	const char *spec, const char *dir, struct gpu_backend **ret, struct err *e);

/* Also fills seq (counted here), begun_ms, ended_ms, source, is_blind in a foreign pid namespace. */
int gpu_backend_snapshot(struct gpu_backend *b, struct gpu_snapshot *ret, struct err *e);
int gpu_backend_ask(
	struct gpu_backend *b, const struct gpu_ask *ask, struct gpu_snapshot *ret, struct err *e);
void gpu_backend_free(struct gpu_backend *b);

/* /proc facts of the process rows: start, uid, comm, ancestors, session, mark. Remembers nothing (facts.h does). */
void gpu_snapshot_fill_procs(struct gpu_snapshot *s);
