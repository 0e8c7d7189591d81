/*
 * A growable byte string. Zeroed is empty and valid. Always followed by a NUL that `len` doesn't count, once
 * anything was put in. Allocation failure ends the process (alloc.h): callers bound sizes first.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>

struct buf {
	char *data; /* NULL while empty and never used */
	size_t len; /* bytes in use */
	size_t cap; /* bytes allocated, including the NUL */
};

void buf_done(struct buf *b); /* frees; the struct is empty again */
void buf_clear(struct buf *b); /* len = 0, keeps the memory */
void buf_reserve(struct buf *b, size_t extra);
void buf_put(struct buf *b, const void *bytes, size_t n);
void buf_puts(struct buf *b, const char *s);
void buf_putc(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(struct buf *b, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
/* Drops the first n bytes (n <= len). */
void buf_drop(struct buf *b, size_t n);
/* The string (never NULL; "" when empty), still owned by the buffer. */
const char *buf_str(const struct buf *b);
/* The caller owns the returned string (free); the buffer is empty again. Never NULL. */
char *buf_take(struct buf *b);
