/* Which figures of profiling are shown, in which order, and the words for where they come from. */
#include "show/profile_columns.h"

#include "core/profile.h"

#include <stdio.h>

const struct show_profile_column show_profile_columns[SHOW_PROFILE_N] = {
	{"SM", METRIC_SM_ACTIVE, 0},
	{"occupancy", METRIC_SM_OCCUPANCY, 6},
	{"tensor", METRIC_TENSOR_ACTIVE, 0},
	{"fp64", METRIC_FP64_ACTIVE, 3},
	{"fp32", METRIC_FP32_ACTIVE, 4},
	{"fp16", METRIC_FP16_ACTIVE, 2},
	{"int", METRIC_INT_ACTIVE, 1},
	{"DRAM", METRIC_DRAM_ACTIVE, 7},
	{"throughput", METRIC_INSTRUCTIONS, 5},
	{"SOL", METRIC_SOL, 0},
};

bool show_profiling_put(const struct sample *s, struct buf *out)
{
	const struct gpu_profiling *p = &s->snap.profiling;

	switch (p->source) {
	case PROFILE_NOT_ASKED:
	case PROFILE_SOURCE_N:
		return false;
	case PROFILE_NONE:
		buf_printf(out, "profiling isn't available%s%s", p->why[0] ? ": " : "", p->why);
		return true;
	case PROFILE_STARTING:
		buf_puts(out, "profiling: no answer yet");
		return false;
	case PROFILE_DCGM:
	case PROFILE_GPM:
	case PROFILE_SIM:
		break;
	}
	buf_printf(out, "profiling: %s", profile_source_name(p->source));
	if (!profile_has_any(&s->snap))
		buf_puts(out, ", no figures at the moment");
	if (p->why[0])
		buf_printf(out, " (not DCGM: %s)", p->why);
	return false;
}
