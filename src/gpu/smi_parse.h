/*
 * What nvidia-smi prints, to cards and processes: its XML (-q -x), and the two CSV queries that older schedulers use.
 * Pure and bounded: any bytes may come, for the program on PATH may be anything.
 */
#pragma once

#include "base/err.h"
#include "core/gpu.h"

#include <stddef.h>

/*
 * Any spelling of "not available" (N/A, [Not Supported], ERR!, [GPU is lost], ...; any case, with or without brackets)
 * to the reason; VALUE_PRESENT for anything else. `s` is trimmed.
 */
enum value_state smi_absence(const char *s, size_t n);

/*
 * Fill cards and procs of *ret (the rest untouched). -EINVAL with a sentence when it isn't such a document or has no
 * card in it. Cards are numbered by their place in the document, which is nvidia-smi's index.
 */
int smi_parse_xml(const char *text, size_t n, struct gpu_snapshot *ret, struct err *e);

/* gpus: index,uuid,memory.total,memory.used,utilization.gpu; apps: gpu_uuid,pid,used_memory; no header, no units. */
int smi_parse_csv(const char *gpus, size_t n_gpus, const char *apps, size_t n_apps,
	struct gpu_snapshot *ret, struct err *e);
