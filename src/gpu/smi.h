/* Inside of the text back end, for its tests: the same as gpu_backend_smi_open() with a limit and a root of one's own. */
#pragma once

#include "gpu/gpu_backend.h"

#define SMI_LIMIT_MS 10000

int smi_open_at(const char *program, const char *host_root, int limit_ms, struct gpu_backend **ret,
	struct err *e);
