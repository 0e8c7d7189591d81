/*
 * The machine's own figures from /proc and /etc. A reader keeps what never changes and what the CPU counters were, for
 * the CPU's use is a difference; everything else is read each time.
 */
#pragma once

#include "core/host_figures.h"

#include <stdbool.h>
#include <stddef.h>

struct host_reader {
	char *root; /* before /proc and /etc; NULL: "" */
	bool is_known;
	struct host_figures fixed;
	int64_t cpu_ms; /* when the counters were read; 0 never */
	uint64_t busy, total;
	struct value cpu_pct;
};

void host_reader_done(struct host_reader *r);
void host_read(struct host_reader *r, int64_t now_ms, struct host_figures *ret);

/* 1 or 0; unsupported where no battery feeds the machine. root: before /sys. */
struct value host_on_battery(const char *root);

/* Pure. The number of "Key:   123 kB" in /proc/meminfo; -ENOENT without such a line. */
int meminfo_kib(const char *text, const char *key, int64_t *ret);
/* Pure. Memory and swap of *ret from /proc/meminfo. */
void host_parse_meminfo(const char *text, struct host_figures *ret);
/* Pure. The counters of all CPUs together out of /proc/stat: not idle, and all. */
int host_parse_cpu(const char *text, uint64_t *ret_busy, uint64_t *ret_total);
/* Pure. PRETTY_NAME of /etc/os-release; "" without. */
void host_parse_os(const char *text, char *ret, size_t size);
