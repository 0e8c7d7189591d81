/*
 * The agent's link to DCGM: a helper process that alone loads libdcgm, watches the cards once a second and hands over what
 * it reads, so that a library that hangs or crashes takes nothing else with it. It's there only while somebody wants
 * figures of profiling; no sample ever waits for it.
 *
 *   off --wanted--> starting --figures--> up
 *                      |  |               |
 *                      |  `--its sentence, a crash, 10 s of silence (killed)--> failed --pause--> starting
 *                      `-- not wanted any more, or the driver is let go of: killed --> off
 *
 * A machine without the library isn't asked again as long as figures are wanted; other failures are tried again after 30 s,
 * twice as long each time. Meanwhile, and when the first answer takes long, NVML's own counters are to be asked.
 */
#pragma once

#include "core/profile.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PROFILER_NAME "gpustow-dcgm" /* of the helper process */
#define PROFILER_SILENT_MS 10000
#define PROFILER_SLOW_MS 3000
#define PROFILER_PAUSE_MIN_MS 30000
#define PROFILER_PAUSE_MAX_MS 480000

struct profiler; /* opaque */

struct profiler *profiler_new(void);
/* Kills the helper; doesn't wait for one that can't die. */
void profiler_free(struct profiler *p);

/* Whether anybody wants figures, told each turn. Simulated cards ($GPUSTOW_SIM) never start a helper. */
void profiler_want(struct profiler *p, bool is_wanted, int64_t now_ms);
/* To poll for reading; -1 while there's no helper. */
int profiler_fd(const struct profiler *p);
/* Takes what has arrived. */
void profiler_read(struct profiler *p, int64_t now_ms);
/* Limits and replacements. Returns ms until it must be called again, -1 for never. */
int64_t profiler_turn(struct profiler *p, int64_t now_ms);
/* A child was reaped: true if it was the helper. */
bool profiler_reaped(struct profiler *p, pid_t pid, int status, int64_t now_ms);
/* There is no helper, also none that was killed and hasn't gone yet. */
bool profiler_is_gone(const struct profiler *p);

/* Samples are to be asked with NVML's own counters: DCGM doesn't serve, or not yet. */
bool profiler_wants_gpm(const struct profiler *p, int64_t now_ms);
/* Puts DCGM's figures on the cards, and says in s->profiling where figures come from, or why there are none. */
void profiler_put(const struct profiler *p, struct gpu_snapshot *s);
