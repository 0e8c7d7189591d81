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

/* Each fills *e (NULL: nobody reads it) and has the value of `code`, which must be negative. */
#define err_set(e, code, ...) \
	({ \
		int err_code_ = (code); \
		err_fill((e), __VA_ARGS__); \
		err_code_; \
	})

/* Like err_set, and appends ": " and strerror(-code). */
#define err_sys(e, code, ...) \
	({ \
		int err_code_ = (code); \
		err_fill_sys((e), err_code_, __VA_ARGS__); \
		err_code_; \
	})

/* Puts "<fmt>: " in front of what *e says. */
#define err_wrap(e, code, ...) \
	({ \
		int err_code_ = (code); \
		err_fill_wrap((e), __VA_ARGS__); \
		err_code_; \
	})

void err_fill(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void err_fill_sys(struct err *e, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void err_fill_wrap(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
