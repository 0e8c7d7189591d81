/* The only place that reads a clock. Pure code takes times as parameters. */
#pragma once

#include <stdint.h>
#include <time.h>

int64_t clock_boot_ms(void); /* CLOCK_BOOTTIME: counts suspend; for durations, limits, leases */
int64_t clock_boot_us(void);
int64_t clock_wall_ms(void); /* CLOCK_REALTIME: for people only */
int64_t clock_monotonic_us(
	void); /* CLOCK_MONOTONIC: only for what a service manager compares with its own */
