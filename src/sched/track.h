/*
 * What is remembered of a card between samples: the peak of each foreign process, so that a trough is no room until it
 * exits. A process is (pid, start ticks); it's forgotten as soon as one sample lacks it. Pure but for its own memory.
 */
#pragma once

#include "core/gpu.h"

#include <stdint.h>

struct track; /* opaque */

struct track *track_new(void);
void track_free(struct track *t);
/* Takes in a sample: proc_is_own[i] says whether row i is charged to an attempt of ours. A sample with an error is skipped. */
void track_update(struct track *t, const struct gpu_snapshot *s, const uint8_t *proc_is_own);
/* Sum of the peaks of the foreign processes on the card with this UUID, as of the last update. */
int64_t track_foreign_peaks(const struct track *t, const char *uuid);
