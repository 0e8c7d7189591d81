/*
 * Figures of a card as text, the same in `--once` and in the monitor: units, rounding, what stands for a part that's
 * absent. Each puts nothing at all when there's nothing to say: the caller shows its dash then. Pure.
 */
#pragma once

#include "base/buf.h"
#include "core/sample.h"

#include <stdbool.h>
#include <stdint.h>

/* part of whole, 0 to 100 and beyond; 0 for an empty whole. */
int64_t show_percent(int64_t part, int64_t whole);
/* The link in use; where that isn't told, the widest there could be. False: no link worth a word. */
bool show_link_of(const struct gpu_card *c, int64_t *ret_gen, int64_t *ret_width);
/* "4.0x16" */
void show_link_put(int64_t gen, int64_t width, struct buf *out);
/* "812KB/s", "3.1MB/s", "1.25GB/s" */
void show_rate_put(int64_t kib_s, struct buf *out);
/* "P0 71/300W", absent parts as "-" */
void show_power_put(const struct gpu_card *c, struct buf *out);
/* "1024/24576", absent parts as "-" */
void show_memory_put(struct value used, struct value total, struct buf *out);
/* "12.3/24.0G" of numbers of MiB */
void show_gib_put(int64_t used_mib, int64_t total_mib, struct buf *out);

/* What the whole cards of a sample are together; figures that are absent don't count. */
struct show_sums {
	int64_t util, n_util; /* sum and number */
	int64_t used_mib, total_mib;
	int64_t n_cards, n_idle, n_busy; /* show_card_is_idle; utilisation of 50 % and more */
};
void show_sums_add(struct show_sums *x, const struct sample *s);
