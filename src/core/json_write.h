/*
 * jansson's values as JSON text, byte for byte as json_dumps writes it, at a fifth of its cost: documents with ten thousand jobs,
 * and all that goes over a link, go through this. Pure; a test holds the two against each other.
 */
#pragma once

#include "base/buf.h"

#include <jansson.h>
#include <stdbool.h>

#define JSON_WRITE_DEPTH 2048 /* levels of lists and objects */

/*
 * Appends any value. flags: JSON_COMPACT, JSON_REAL_PRECISION(n); no other. False: it has a text that isn't UTF-8, a number that
 * JSON lacks, or too many levels; *b is as before.
 */
bool json_write(struct buf *b, const json_t *v, size_t flags);
