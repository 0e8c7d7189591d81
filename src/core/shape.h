/*
 * The shape of a command: what two runs of "the same" command have in common. Literal numbers, and values that look like
 * paths, dates, seeds or hashes, become placeholders; programs, scripts, option names and words stay. Pure.
 */
#pragma once

#include "base/buf.h"

#include <stddef.h>

#define SHAPE_MAX 512 /* bytes; a longer one ends in a hash of all of it */

/* *ret is replaced. A command of nothing but blanks and comments has the shape "". Linear in n. */
void shape_of(const char *command, size_t n, struct buf *ret);
