/*
 * How long the driver takes: each question's time is added up, and the slowest one of a look is remembered with its card.
 * There are drivers whose single calls stop a machine for milliseconds, and only a figure finds them.
 */
#include "gpu/nvml.h"

#include "base/clock.h"

#include <stdio.h>

int64_t nvml_call_begin(void)
{
	return clock_boot_us();
}

void nvml_call_end(struct nvml *n, const struct nvml_card *c, const char *what, int64_t begun_us)
{
	int64_t took_us = clock_boot_us() - begun_us;

	n->spent_us += took_us;
	if (took_us <= n->slowest.took_us && n->slowest.what[0] != '\0')
		return;
	n->slowest = (struct gpu_call){.index = c != NULL ? c->index : -1, .took_us = took_us};
	snprintf(n->slowest.what, sizeof(n->slowest.what), "%s", what);
}

void nvml_call_take(struct nvml *n, struct gpu_snapshot *ret)
{
	ret->driver_us = n->spent_us;
	ret->slowest = n->slowest;
	n->spent_us = 0;
	n->slowest = (struct gpu_call){0};
}
