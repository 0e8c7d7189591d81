/*
 * What a job's output says about its end: a few phrases of CUDA, its frameworks and the kernel, looked for as the bytes
 * go by. Pure; upper and lower case count alike. A phrase is a hint to be weighed with the exit code, never a verdict.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum says { SAYS_CUDA_OOM, SAYS_DISK_FULL, SAYS_GPU_FAULT, SAYS_N };

/* "cuda-oom", "disk-full", "gpu-fault": the words on the wire, the same as the causes' (job.h). */
const char *says_name(enum says s);

#define SAYS_CARRY 64 /* above the longest phrase */
#define SAYS_STEP 65536
#define SAYS_PAIRS 4096

/* A search through bytes that come in pieces. Zeroed is a new one. */
struct says_search {
	unsigned found; /* bit i: enum says i */
	size_t carry_n;
	size_t least; /* bytes of the shortest phrase; 0: not prepared */
	uint8_t skip
		[SAYS_PAIRS]; /* by two bytes: how far on the next place is that could end one */
	char text[SAYS_CARRY + SAYS_STEP];
};

void says_put(struct says_search *s, const void *bytes, size_t n);
