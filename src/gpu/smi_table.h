/*
 * The rows that both of nvidia-smi's formats are parsed into, and the reading of single figures. Inside of the text
 * back end: smi_parse.c (CSV and figures) and smi_xml.c.
 */
#pragma once

#include "core/gpu.h"

#include <stdint.h>

struct smi_table {
	struct gpu_card *cards; /* GPU_MAX */
	uint32_t n_cards;
	struct gpu_proc *procs; /* GPU_PROC_MAX */
	uint32_t n_procs;
	struct gpu_instance *instances; /* GPU_INSTANCE_MAX */
	uint32_t n_instances;
	char driver[32], cuda[16];
};

void smi_table_init(struct smi_table *t);
void smi_table_done(struct smi_table *t);
/* A new card with everything absent as unsupported; NULL when there are too many. */
struct gpu_card *smi_table_card(struct smi_table *t);
/* The same process on the same card becomes one row with the larger figure. */
void smi_table_proc(struct smi_table *t, struct gpu_proc p);
/* Moves the rows to *ret and says which cards are blind. */
void smi_table_take(struct smi_table *t, struct gpu_snapshot *ret);

enum smi_unit {
	SMI_MIB,
	SMI_PERCENT,
	SMI_CELSIUS,
	SMI_WATT,
	SMI_MHZ,
	SMI_PSTATE,
	SMI_SWITCH,
	SMI_RECOVERY,
	SMI_COUNT,
	SMI_LANES, /* "16x" */
	SMI_KIB_S, /* "50 KB/s" */
	SMI_MJ, /* "123.4 J" */
	SMI_YESNO,
	SMI_COMPUTE_MODE,
};

/* "24576 MiB", "24576", "35.20 W", "P8", "Enabled": absent with a reason when it isn't a figure of that unit. */
struct value smi_figure(const char *s, size_t n, enum smi_unit unit);
/* Narrows by ASCII white space at both ends. */
void smi_trim(const char **s, size_t *n);
/* Copies what is printable, at most size - 1 bytes. */
void smi_copy(const char *s, size_t n, char *ret, size_t size);
