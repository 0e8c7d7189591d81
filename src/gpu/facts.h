/*
 * What /proc says of a snapshot's processes, with a memory: what doesn't change in a process's life is read once for
 * each (pid, start ticks), the rest with each sample, CPU use as the difference of two. Any read may fail because the
 * process ended meanwhile; its row stays, with what is unknown left unknown.
 */
#pragma once

#include "core/gpu.h"

#include <stdint.h>

struct facts; /* opaque */

struct facts *facts_new(void);
void facts_free(struct facts *f);

/*
 * Fills the /proc facts of the process rows; those of s->more too if it's there. now_ms: BOOTTIME; wall_ms: the wall
 * clock at that moment.
 */
void facts_fill(struct facts *f, struct gpu_snapshot *s, int64_t now_ms, int64_t wall_ms);
