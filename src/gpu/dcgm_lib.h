/* The DCGM library, opened: one table of functions, and its return codes in our words and classes. Knows no card. */
#pragma once

#include "base/err.h"
#include "core/value.h"
#include "gpu/dcgm_abi.h"

#include <stdbool.h>

struct dcgm_functions {
#define DCGM_MEMBER(member, args, name, is_needed) int(*member) args;
	DCGM_FUNCTIONS(DCGM_MEMBER)
#undef DCGM_MEMBER
};

struct dcgm_lib {
	void *handle; /* NULL: closed */
	struct dcgm_functions fn;
};

/*
 * path NULL: libdcgm.so.4, else libdcgm.so.3. Opens and looks up, doesn't initialise. -ENOENT when there's no such library,
 * -ENOSYS when it lacks what nothing can be done without, or has no way to reach an engine.
 */
int dcgm_lib_open(const char *path, struct dcgm_lib *ret, struct err *e);
void dcgm_lib_close(struct dcgm_lib *l);

/* "profiling isn't supported by this card". Never NULL. */
const char *dcgm_code_text(int code);
enum value_state dcgm_code_value(int code);
/* It's one field, or several at once, that can't be had: others may be. */
bool dcgm_code_is_about_fields(int code);
