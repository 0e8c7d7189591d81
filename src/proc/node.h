/*
 * What this user's processes may use of the machine (struct node_figures of core/sample.h): cores by CPU affinity and the
 * quotas of the control groups that this process is in, memory by the machine's and by these groups' limits. Read at most
 * once a second, the limits once a minute: they hardly ever change.
 */
#pragma once

#include "core/sample.h"

#include <stdbool.h>
#include <stdint.h>

#define NODE_GROUPS_MAX 32 /* levels of control groups that are looked at, of both hierarchies */

/* A control group with a limit of memory. */
struct node_group {
	char *path; /* of its directory */
	bool is_v2;
	int64_t limit_bytes;
};

struct node_reader {
	char *root; /* before /proc and /sys; NULL: "" */
	struct node_figures last;
	int64_t read_ms, limits_ms; /* when; 0 never */
	int64_t quota_milli; /* thousandths of a core; -1: none */
	struct node_group groups[NODE_GROUPS_MAX];
	size_t n_groups;
};

void node_reader_done(struct node_reader *r);
/* now_ms: CLOCK_BOOTTIME. Figures that can't be read are unknown. */
void node_read(struct node_reader *r, int64_t now_ms, struct node_figures *ret);

/* Pure. "max 100000" or "150000 100000" of cpu.max, in thousandths of a core; -1: no quota. */
int64_t node_parse_cpu_max(const char *text);
/* Pure. The number behind a key at the start of a line: memory.stat, /proc/vmstat; -1 without. */
int64_t node_parse_key(const char *text, const char *key);
