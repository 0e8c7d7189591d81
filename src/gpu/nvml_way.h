/*
 * The ways to ask a card for each figure, as nvml_figure.c goes through them: what is asked of the driver, and what may be
 * believed of its answer. No way keeps anything but what one sample's calls have answered.
 */
#pragma once

#include "gpu/nvml.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NVML_NOT_ASKED_CODE (-1) /* no code of NVML's: we don't want to ask */
#define NVML_METRICS_MAX 96

/* Calls that answer several figures are made once for a sample. */
enum pair { PAIR_UTIL, PAIR_MIG, PAIR_BAR1, PAIR_RANGE, PAIR_ECC, PAIR_REMAP, PAIR_N };

struct asking {
	struct nvml *n;
	struct nvml_card *c;
	const struct nvml_functions *f;
	struct nvml_device *d;
	int64_t now_ms;
	struct {
		bool is_read;
		int code;
		uint64_t v[4];
	} pairs[PAIR_N];
};

/* A way: what the driver returned, and the figure. */
typedef int nvml_read(struct asking *a, int64_t *ret);

/* What is made of a field's counter: bytes or KiB a second, or the share of time of nanoseconds. */
enum derive { AS_IT_IS, RATE_BYTES, RATE_KIB, SHARE_NS };

struct nvml_metric {
	enum metric metric;
	int64_t min, max; /* a figure outside is the driver's garbage */
	uint32_t field, scope; /* 0: no field value */
	enum derive derive;
	nvml_read *ways[METRIC_WAYS];
};
static inline bool nvml_is_gentle(const struct nvml *n)
{
	return n->is_gentle && n->base.ask.details && n->base.ask.lets_sleep;
}

/* The figures in the order in which they're asked for. Memory is apart: three figures of one call. */
extern const struct nvml_metric nvml_metrics[];
extern const size_t nvml_n_metrics;
