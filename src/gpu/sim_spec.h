/*
 * "4", "2x80G,1x24G", "1x24000M": what --sim and GPUSTOW_SIM take. N cards of 24576 MiB, or COUNTxSIZE groups joined by
 * commas. "1x80G/mig:3x20G" and "1x80G/mig:1x40G+2x20G" are cards cut into MIG instances, all of a group alike. Pure. At
 * least one card; cards and instances together at most GPU_MAX.
 */
#pragma once

#include "base/err.h"
#include "core/gpu.h"

#define SIM_MIG_MAX 7 /* instances of a card, as on real ones */

struct sim_spec {
	uint32_t n; /* whole cards */
	int64_t total_mib[GPU_MAX];
	uint32_t n_mig[GPU_MAX]; /* instances of card i; 0: it isn't cut */
	int64_t mig_mib[GPU_MAX][SIM_MIG_MAX];
	uint32_t n_all; /* with the instances */
};

int sim_spec_parse(const char *text, struct sim_spec *ret, struct err *e);
/*
 * Where simulated jobs say what they hold: $GPUSTOW_SIM_DIR, else $GPUSCHED_SIM_DIR, else /tmp/gpustow-sim-<uid>. Made
 * (0700) if it isn't there.
 */
int sim_dir(char *ret, size_t size, struct err *e);
/* The made-up UUID of card i: "GPU-" and a hash of (spec's size list, dir, i), so that one directory is one machine for all its users. */
void sim_uuid(const char *dir, uint32_t i, char ret[GPU_UUID_LEN]);
/* Likewise of its instance k ("MIG-..."). */
void sim_mig_uuid(const char *dir, uint32_t i, uint32_t k, char ret[GPU_UUID_LEN]);
