/*
 * Which attempt a GPU process belongs to: by session, by descent from a shim or a leader (the nearest one), by its mark
 * in the environment. Charges memory; never a reason for a signal.
 */
#pragma once

#include "agent/attempts.h"
#include "core/gpu.h"

/* Fills ret_owner (s->n_procs) with the attempt's name, or job 0 where the process is nobody's of ours. */
void attribute(
	const struct gpu_snapshot *s, const struct attempts *t, struct attempt_name *ret_owner);
