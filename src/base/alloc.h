/* Allocation that dies with one sentence when there's no memory. Every size from outside has a limit first. */
#pragma once

#include <stddef.h>

#define ALLOC_NONNULL __attribute__((returns_nonnull))

void *xmalloc(size_t n) ALLOC_NONNULL;
void *xcalloc(size_t n, size_t size) ALLOC_NONNULL;
void *xrealloc(void *p, size_t n) ALLOC_NONNULL;
/* Array growth with overflow check: n elements of `size`. */
void *xreallocarray(void *p, size_t n, size_t size) ALLOC_NONNULL;
char *xstrdup(const char *s) ALLOC_NONNULL;
char *xstrndup(const char *s, size_t n) ALLOC_NONNULL;
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Room for one more in a {ptr,len,cap} array: GROW(a->items, a->len, a->cap). */
#define GROW(ptr, len, cap) \
	do { \
		if ((len) == (cap)) { \
			(cap) = (cap) ? (cap)*2 : 8; \
			(ptr) = xreallocarray((ptr), (cap), sizeof(*(ptr))); \
		} \
	} while (0)
