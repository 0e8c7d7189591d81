/* A program run for what it prints: no terminal, no input, bounded in time and size. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#include <stdint.h>

/*
 * argv[0] is looked for in $PATH. What it prints goes to *out, what it complains of to *complaints, each up to `max` bytes
 * (the rest is thrown away). 0 and its exit code (128 + signal); -ETIMEDOUT after limit_ms, when it was killed.
 */
int capture(const char *const *argv, int64_t limit_ms, size_t max, struct buf *out,
	struct buf *complaints, int *ret_code, struct err *e);
