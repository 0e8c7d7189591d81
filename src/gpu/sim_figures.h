/*
 * What a simulated card's sensors show: believable figures that follow from what its jobs hold, the time and the card's
 * number, and from nothing else, so that a demo or a test sees the same twice. Pure.
 */
#pragma once

#include "core/gpu.h"

/* Fills the metrics that only a sample with details has, and varies the use of the card. used and total are in c->m. */
void sim_figures(struct gpu_card *c, bool is_busy, int64_t now_ms);
/* What its counters show, after sim_figures. */
void sim_profile(struct gpu_card *c, int64_t now_ms);
/* One process's share of the card's use, of n that are on it. */
void sim_use(const struct gpu_card *c, uint32_t n, struct gpu_proc_more *ret);
