/*
 * Figures of profiling from DCGM: an engine that runs already (nv-hostengine, by TCP or by its socket), else one of our own
 * inside this process. All of it may block, for ever in the worst case, and the library may take the process with it: to
 * be used in a process of its own (agent/profiler.h).
 */
#pragma once

#include "base/err.h"
#include "core/profile.h"

/* What failed, as a word: the names nvidb has for it. */
enum dcgm_step {
	DCGM_STEP_NONE,
	DCGM_STEP_IMPORT, /* there's no library, or none that is known */
	DCGM_STEP_CONNECT,
	DCGM_STEP_GROUP, /* cards, groups, watches */
	DCGM_STEP_UPDATE,
	DCGM_STEP_LATEST,
	DCGM_STEP_N,
};
/* "", "dcgm_import_failed", ... */
const char *dcgm_step_name(enum dcgm_step s);

/* A card as DCGM tells it. */
struct dcgm_card {
	char uuid[GPU_UUID_LEN]; /* "" unknown */
	char bus_id[GPU_BUS_LEN]; /* likewise */
	struct value v[PROFILE_N];
};

struct dcgm_report {
	uint32_t n_cards;
	struct dcgm_card cards[GPU_MAX];
};

struct dcgm; /* opaque */

/*
 * Opens the library (path NULL: the usual names), connects, watches the figures of all cards once a second. Negative with
 * the step that failed and a sentence. A card of which nothing can be had has its reason in the report; when that's all
 * of them it's a failure of the whole.
 */
int dcgm_open(const char *path, struct dcgm **ret, enum dcgm_step *ret_step, struct err *e);
/* The newest figures. Negative: as dcgm_open; then it's to be freed. */
int dcgm_read(struct dcgm *d, int64_t wall_ms, struct dcgm_report *ret, enum dcgm_step *ret_step,
	struct err *e);
void dcgm_free(struct dcgm *d);

/* Pure: what a field's value says of a figure. */
struct dcgm_value;
struct value dcgm_figure(enum profile_figure figure, const struct dcgm_value *v, int64_t wall_ms);
