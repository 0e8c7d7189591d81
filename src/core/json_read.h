/*
 * JSON text into jansson's values, several times as fast as its own reader, which goes byte by byte through three functions.
 * What nodes say in each pass and what is remembered of them is read with this. Pure.
 *
 * It takes and refuses what json_loadb does with JSON_REJECT_DUPLICATES and JSON_DECODE_ANY, escaped NUL characters and numbers
 * out of range included, but for a bare NUL, which it takes nowhere; a test holds the two against each other.
 */
#pragma once

#include "base/err.h"

#include <jansson.h>
#include <stddef.h>

#define JSON_READ_DEPTH 2048 /* levels of lists and objects */

/* A new reference, or NULL and what's wrong where: "',' or '}' expected (byte 17)", -EBADMSG. e may be NULL. */
json_t *json_read(const char *bytes, size_t n, struct err *e);
