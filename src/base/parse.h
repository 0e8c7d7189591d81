/* Text to values; pure. All return 0, -EINVAL (not that at all) or -ERANGE; outputs untouched on failure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decimal integer of the whole string, one optional sign. */
int parse_int64(const char *s, int64_t *ret);
/* As Python's int(): blanks around, sign, leading zeros, single underscores between digits. */
int parse_int_py(const char *s, size_t n, int64_t *ret);
/* Finite decimal real of the whole string, '.' as point whatever the locale; NaN and infinity are -EINVAL. */
int parse_double(const char *s, double *ret);
/*
 * gpusched's size: digits[.digits] and g|gb|gib|m|mb|mib in any case; no unit is MiB. Rounded half to even to whole
 * MiB; 0 is -ERANGE ("must be positive"). No sign, exponent, blank, K or T.
 */
int parse_size_mib(const char *s, size_t n, int64_t *ret_mib);
/* gpusched's duration: digits[.digits] and s|m|h|d in any case; no unit is seconds. 0 is -ERANGE. Milliseconds, rounded up. */
int parse_duration_ms(const char *s, size_t n, int64_t *ret_ms);
