/*
 * Figures of a card's hardware counters (profiling), whichever back end they come from: DCGM, NVML's GPM calls, simulated
 * cards. They cost power and may have one owner at a time, so they're asked for only while somebody wants them. Pure.
 */
#pragma once

#include "core/gpu.h"

/* What the counters tell of a card. The rows up to DRAM are %, the rest KiB/s. */
enum profile_figure {
	PROFILE_SM_ACTIVE,
	PROFILE_SM_OCCUPANCY,
	PROFILE_TENSOR,
	PROFILE_FP64,
	PROFILE_FP32,
	PROFILE_FP16,
	PROFILE_INT,
	PROFILE_DRAM,
	PROFILE_PCIE_TX,
	PROFILE_PCIE_RX,
	PROFILE_NVLINK_TX,
	PROFILE_NVLINK_RX,
	PROFILE_N
};

/*
 * Puts them among the card's metrics, with the two that are made of them. Traffic goes only where the driver gave none:
 * its own figure is one of the same thing, and is had without profiling.
 */
void profile_put(const struct value v[PROFILE_N], struct gpu_card *c);
/* The same reason for all of them. */
void profile_put_absent(enum value_state why, struct gpu_card *c);
/* One of the card's figures of profiling is present. */
bool profile_has(const struct gpu_card *c);
/* The same of any card. */
bool profile_has_any(const struct gpu_snapshot *s);

/* "", "starting", "dcgm", "gpm", "sim", "none": the word on the wire and in JSON. */
const char *profile_source_name(enum profile_source s);
/* An unknown word is "none": a later agent's. */
enum profile_source profile_source_from_name(const char *name);
