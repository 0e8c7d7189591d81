/*
 * One error, as a sentence for a person. It lives on the caller's stack, is filled at the depth that knows
 * what went wrong, may be wrapped on the way up, and is printed once by whoever owns the process.
 * Functions return 0 or a negative errno; the text is only for reading, never for deciding.
 */
#pragma once

#include <errno.h>
#include <stddef.h>

#define ERR_TEXT 1024

/* A zeroed struct is "no error". `text` is UTF-8, NUL-terminated, cut at ERR_TEXT - 1 bytes. */
struct err {
	char text[ERR_TEXT];
};

/* Fills *e (NULL: nobody reads it) and returns `code`, which must be negative. */
int err_set(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Like err_set, and appends ": " and strerror(-code). */
int err_sys(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Puts "<fmt>: " in front of what *e says; returns `code`. */
int err_wrap(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
