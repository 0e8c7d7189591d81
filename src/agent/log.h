/* The agent's own words: <root>/log, one line each with the wall clock's time, bounded by keeping one older file. */
#pragma once

#include "agent/root.h"

#include <stdarg.h>

void log_line(const struct root *r, const char *fmt, va_list ap)
	__attribute__((format(printf, 2, 0)));
