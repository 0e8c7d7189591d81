/* Error sentences: filled, extended, never decided upon. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 2, 0))) static void put(struct err *e, const char *fmt, va_list ap)
{
	vsnprintf(e->text, sizeof(e->text), fmt, ap);
}

void err_fill(struct err *e, const char *fmt, ...)
{
	va_list ap;

	if (!e)
		return;
	va_start(ap, fmt);
	put(e, fmt, ap);
	va_end(ap);
}

/* Appends "<sep><tail>" within the bounds of the text. */
static void append(struct err *e, const char *sep, const char *tail)
{
	size_t n = strlen(e->text);

	snprintf(e->text + n, sizeof(e->text) - n, "%s%s", sep, tail);
}

void err_fill_sys(struct err *e, int code, const char *fmt, ...)
{
	va_list ap;

	if (!e)
		return;
	va_start(ap, fmt);
	put(e, fmt, ap);
	va_end(ap);
	append(e, ": ", strerror(code < 0 ? -code : code));
}

void err_fill_wrap(struct err *e, const char *fmt, ...)
{
	char old[ERR_TEXT];
	va_list ap;

	if (!e)
		return;
	memcpy(old, e->text, sizeof(old));
	va_start(ap, fmt);
	put(e, fmt, ap);
	va_end(ap);
	append(e, ": ", old);
}
