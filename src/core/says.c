/*
 * The phrases and the search (says.h). Keeps the end of what went by, so that a phrase may lie across two pieces.
 *
 * gpu-fault is only what a healthy card never makes a program say: an uncorrectable memory or link error, and a card that
 * the driver lost. "an illegal memory access", "unspecified launch failure", "misaligned address" and "illegal
 * instruction" aren't among them, for each is what a program's own bug looks like, and a job with a bug would otherwise
 * go from card to card and have each of them called broken. "no CUDA-capable device" and "busy or unavailable" are what a
 * wrong setting says.
 */
#include "core/says.h"

#include <string.h>

static const struct phrase {
	enum says means;
	const char *text; /* lower case */
} phrases[] = {
	{SAYS_CUDA_OOM, "cuda out of memory"},
	{SAYS_CUDA_OOM, "torch.outofmemoryerror"},
	{SAYS_CUDA_OOM, "cuda error: out of memory"},
	{SAYS_CUDA_OOM, "cuda_error_out_of_memory"},
	{SAYS_CUDA_OOM, "cudaerrormemoryallocation"},
	{SAYS_CUDA_OOM, "resource_exhausted"},
	{SAYS_DISK_FULL, "no space left on device"},
	{SAYS_DISK_FULL, "disk quota exceeded"},
	{SAYS_GPU_FAULT, "uncorrectable ecc"},
	{SAYS_GPU_FAULT, "cudaerroreccuncorrectable"},
	{SAYS_GPU_FAULT, "cuda_error_ecc_uncorrectable"},
	{SAYS_GPU_FAULT, "uncorrectable nvlink error"},
	{SAYS_GPU_FAULT, "cuda_error_nvlink_uncorrectable"},
	{SAYS_GPU_FAULT, "gpu has fallen off the bus"},
	{SAYS_GPU_FAULT, "gpu is lost"},
};

static const char *const names[SAYS_N] = {
	[SAYS_CUDA_OOM] = "cuda-oom",
	[SAYS_DISK_FULL] = "disk-full",
	[SAYS_GPU_FAULT] = "gpu-fault",
};

const char *says_name(enum says s)
{
	return (unsigned)s < SAYS_N ? names[s] : NULL;
}

static void search(struct says_search *s, size_t n)
{
	for (size_t i = 0; i < sizeof(phrases) / sizeof(phrases[0]); i++) {
		const struct phrase *p = &phrases[i];

		if (!(s->found >> p->means & 1) && memmem(s->text, n, p->text, strlen(p->text)))
			s->found |= 1u << p->means;
	}
}

/* ASCII only: what the locale calls a letter must not matter. */
static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

void says_put(struct says_search *s, const void *bytes, size_t n)
{
	const char *from = bytes;

	while (n) {
		size_t take = n < SAYS_STEP ? n : SAYS_STEP, all = s->carry_n + take;

		for (size_t i = 0; i < take; i++)
			s->text[s->carry_n + i] = lower(from[i]);
		search(s, all);
		s->carry_n = all < SAYS_CARRY ? all : SAYS_CARRY;
		memmove(s->text, s->text + all - s->carry_n, s->carry_n);
		from += take;
		n -= take;
	}
}
