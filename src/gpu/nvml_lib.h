/*
 * The NVML library, opened: one table of functions, each NULL when the library lacks it. Also NVML's return codes in
 * our own words and classes, for nvmlErrorString may itself be missing. Nothing here knows a card.
 */
#pragma once

#include "base/err.h"
#include "core/gpu.h"
#include "core/value.h"
#include "gpu/nvml_abi.h"

#include <stdbool.h>

/* Return codes are int, not the enum: a newer library may return what we have no name for. */
struct nvml_functions {
#define NVML_MEMBER(member, args, ...) int(*member) args;
	NVML_FUNCTIONS(NVML_MEMBER)
#undef NVML_MEMBER
};

struct nvml_lib {
	void *handle; /* NULL: closed */
	char path[256];
	struct nvml_functions fn;
};

/*
 * path NULL: the usual names, and the place where WSL has it. Opens and looks up, doesn't initialise. -ENOENT when
 * there's no such library, -ENOSYS when it lacks what nothing can be done without.
 */
int nvml_lib_open(const char *path, struct nvml_lib *ret, struct err *e);
void nvml_lib_close(struct nvml_lib *l);

/* "the GPU is lost (NVML 15)" is what a sentence looks like that uses it. Never NULL. */
const char *nvml_code_text(int code);
enum value_state nvml_code_value(int code);
/* What a card is whose handle answers so; GPU_OK when the code isn't about the card. */
enum gpu_state nvml_code_card(int code);
/* The card's handle must not be used again, and cards are to be enumerated anew. */
bool nvml_code_is_stale(int code);
/* Will be the same next time: don't ask again before the library is initialised anew. */
bool nvml_code_is_permanent(int code);
int nvml_code_errno(int code);

/* Drivers 535.43.02 to 535.86.05 fill 32 bytes a process in the _v3 lists; they are known by what they export. */
bool nvml_lib_has_wide_processes(const struct nvml_lib *l);
