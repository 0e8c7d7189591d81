/* UTF-8 and text for people; pure. */
#pragma once

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of the valid UTF-8 prefix (strict: no surrogates, no overlong forms, <= U+10FFFF). == n: all valid. */
size_t utf8_valid_len(const char *s, size_t n);
/* Decodes one code point of *valid* UTF-8; returns its bytes. */
size_t utf8_decode(const char *s, size_t n, uint32_t *ret_cp);
/* White space as Python's str.strip() has it: TAB..CR, 0x1C..0x20, U+0085, U+00A0, U+1680, U+2000..200A, 2028, 2029, 202F, 205F, 3000. */
bool utf8_is_py_space(uint32_t cp);
/* Narrows [*s, *s + *n) of valid UTF-8 by that white space at both ends. */
void utf8_trim(const char **s, size_t *n);
/* Appends s with C0, C1, DEL, bidi controls and invalid bytes replaced by U+FFFD: safe for a terminal and a log line. */
void text_put_clean(struct buf *b, const char *s, size_t n);
/* Python's repr() of a str for error texts: single quotes, double ones if it holds a single quote and no double. */
void text_put_repr(struct buf *b, const char *s, size_t n);
/* Python's shortest float with at least one decimal: 5.0, 0.1, 67.5, 1e-05. */
void text_put_float(struct buf *b, double v);
/* JSON string in gpusched's way: quotes, ", \ and control escapes, non-ASCII as \uXXXX (surrogate pairs). s is valid UTF-8. */
void text_put_json_ascii(struct buf *b, const char *s, size_t n);
/* In decimal: what "%lld" would, at a tenth of the cost. */
void text_put_int(struct buf *b, int64_t v);
/* "7.6 GiB", "512 MiB": for people. */
void text_put_mib(struct buf *b, int64_t mib);
/* "3s", "12m 05s", "3h 07m", "2d 04h". */
void text_put_duration(struct buf *b, int64_t ms);
/* The closest of n names by edit distance, if it's close enough to suggest (distance <= 2 and < length), else NULL. */
const char *text_closest(const char *word, const char *const *names, size_t n);
/* Cells a string takes on a terminal (wcwidth under the current LC_CTYPE; invalid or control = 1). */
size_t text_width(const char *s, size_t n);
