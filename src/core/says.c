/*
 * The phrases and the search (says.h). Keeps the end of what went by, so that a phrase may lie across two pieces.
 *
 * The search looks at all phrases together, cut to the length of the shortest: two neighbouring bytes say how far the next
 * place is at which any of them could end (Wu and Manber, "A Fast Algorithm for Multi-Pattern Searching", 1994). Most
 * bytes of a log are never looked at.
 *
 * gpu-fault is only what a healthy card never makes a program say: an uncorrectable memory or link error, and a card that
 * the driver lost. "an illegal memory access", "unspecified launch failure", "misaligned address" and "illegal
 * instruction" aren't among them, for each is what a program's own bug looks like, and a job with a bug would otherwise
 * go from card to card and have each of them called broken. "no CUDA-capable device" and "busy or unavailable" are what a
 * wrong setting says.
 */
#include "core/says.h"
#include "base/cleanup.h"

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

/* ASCII only: what the locale calls a letter must not matter. */
static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

/* Of two bytes, whatever their case. Two pairs may share one: that costs a look, never a find. */
static size_t pair_of(const char *at)
{
	return ((size_t)(uint8_t)lower(at[0]) << 4 ^ (uint8_t)lower(at[1])) % SAYS_PAIRS;
}

static void prepare(struct says_search *s)
{
	size_t m = SAYS_CARRY;

	for (size_t i = 0; i < ARRAY_LEN(phrases); i++)
		m = strlen(phrases[i].text) < m ? strlen(phrases[i].text) : m;
	s->least = m;
	memset(s->skip, (int)m - 1, sizeof(s->skip));
	for (size_t i = 0; i < ARRAY_LEN(phrases); i++) {
		for (size_t end = 1; end < m; end++) {
			uint8_t *skip = &s->skip[pair_of(phrases[i].text + end - 1)];

			if (m - 1 - end < *skip)
				*skip = (uint8_t)(m - 1 - end);
		}
	}
}

static void match(struct says_search *s, const char *text, size_t n)
{
	for (size_t i = 0; i < ARRAY_LEN(phrases); i++) {
		const char *want = phrases[i].text;
		size_t k = 0;

		while (k < n && want[k] && lower(text[k]) == want[k])
			k++;
		if (!want[k])
			s->found |= 1u << phrases[i].means;
	}
}

static void search(struct says_search *s, size_t n)
{
	size_t end = s->least - 1;

	while (end < n) {
		size_t skip = s->skip[pair_of(s->text + end - 1)];

		if (!skip)
			match(s, s->text + end - (s->least - 1), n - (end - (s->least - 1)));
		end += skip ? skip : 1;
	}
}

void says_put(struct says_search *s, const void *bytes, size_t n)
{
	const char *from = bytes;

	if (!s->least)
		prepare(s);
	while (n) {
		size_t take = n < SAYS_STEP ? n : SAYS_STEP, all = s->carry_n + take;

		memcpy(s->text + s->carry_n, from, take);
		search(s, all);
		s->carry_n = all < SAYS_CARRY ? all : SAYS_CARRY;
		memmove(s->text, s->text + all - s->carry_n, s->carry_n);
		from += take;
		n -= take;
	}
}
