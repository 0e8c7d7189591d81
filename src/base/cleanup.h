/* Clean-up by leaving the scope: declare with one of these and return early as you like. */
#pragma once

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_free_p(void *p)
{
	free(*(void **)p);
}

/* Closes a descriptor >= 0; errno is kept. */
void cleanup_close_p(int *fd);
void cleanup_fclose_p(FILE **f);
void cleanup_closedir_p(DIR **d);

#define CLEANUP_FREE __attribute__((cleanup(cleanup_free_p), unused))
#define CLEANUP_CLOSE __attribute__((cleanup(cleanup_close_p), unused))
#define CLEANUP_FCLOSE __attribute__((cleanup(cleanup_fclose_p), unused))
#define CLEANUP_CLOSEDIR __attribute__((cleanup(cleanup_closedir_p), unused))
/* For our own types: CLEANUP(buf_done) struct buf b = {0}; */
#define CLEANUP(fn) __attribute__((cleanup(fn), unused))

/* Moves an owned pointer or descriptor out of a cleaned-up variable. */
#define TAKE_PTR(p) \
	({ \
		__typeof__(p) take_ = (p); \
		(p) = NULL; \
		take_; \
	})
#define TAKE_FD(fd) \
	({ \
		int take_ = (fd); \
		(fd) = -1; \
		take_; \
	})

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
