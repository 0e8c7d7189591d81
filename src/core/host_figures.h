/*
 * What a machine itself is and does at one moment: plain values, as the sample carries them beside its cards. What
 * can't be read is absent, or "" as a text.
 */
#pragma once

#include "core/value.h"

#include <stdint.h>

struct host_figures {
	char host_name[65];
	char os[96]; /* "Debian GNU/Linux 12 (bookworm)" */
	char kernel[96]; /* "6.1.0-18-amd64" */
	char boot_id[40];
	int32_t cores; /* 0 unknown */
	/* Of the whole machine, 0 to 100, between two samples; empty in the first. */
	struct value cpu_pct;
	struct value mem_total_mib;
	/* Total - available. Free pages set aside as huge ones aren't in use, though the kernel leaves them out of "available". */
	struct value mem_used_mib;
	struct value swap_total_mib, swap_used_mib;
	struct value load_1m_milli, load_5m_milli, load_15m_milli; /* load average * 1000 */
	struct value uptime_ms;
	struct value
		on_battery; /* 1 while no mains feeds it; unsupported where there's no battery */
};
