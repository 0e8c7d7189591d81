/* Allocation that dies with one sentence when there's no memory. Every size from outside has a limit first. */
#pragma once

#include <stddef.h>

void *xmalloc(size_t n);
void *xcalloc(size_t n, size_t size);
void *xrealloc(void *p, size_t n);
/* Array growth with overflow check: n elements of `size`. */
void *xreallocarray(void *p, size_t n, size_t size);
char *xstrdup(const char *s);
char *xstrndup(const char *s, size_t n);
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Room for one more in a {ptr,len,cap} array: GROW(a->items, a->len, a->cap). */
#define GROW(ptr, len, cap)                                                                        \
	do {                                                                                       \
		if ((len) == (cap)) {                                                              \
			(cap) = (cap) ? (cap)*2 : 8;                                               \
			(ptr) = xreallocarray((ptr), (cap), sizeof(*(ptr)));                       \
		}                                                                                  \
	} while (0)
