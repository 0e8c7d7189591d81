/*
 * Any bytes as what nvidia-smi prints, to both parsers. For the CSV, a
 * byte 1 stands between the cards' and the processes' query. What comes out must keep the snapshot's own rules.
 */
#include "core/gpu.h"
#include "gpu/smi_parse.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct gpu_snapshot *s)
{
	if (s->n_cards == 0 || s->n_cards > GPU_MAX || s->n_procs > GPU_PROC_MAX)
		abort();
	for (uint32_t i = 0; i < s->n_cards; i++) {
		const struct gpu_card *c = &s->cards[i];

		if (memchr(c->uuid, '\0', sizeof(c->uuid)) == NULL || c->state >= GPU_STATE_N ||
			memchr(c->name, '\0', sizeof(c->name)) == NULL ||
			memchr(c->bus_id, '\0', sizeof(c->bus_id)) == NULL)
			abort();
		for (int m = 0; m < METRIC_N; m++) {
			if (c->m[m].state >= VALUE_STATE_N || c->m[m].state == VALUE_NOT_ASKED)
				abort();
		}
	}
	for (uint32_t i = 0; i < s->n_procs; i++) {
		if (s->procs[i].card >= s->n_cards || s->procs[i].pid <= 0 || s->procs[i].kind == 0)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* A copy without a NUL behind it: a parser that reads on is caught. */
	char *text = calloc(1, size ? size : 1);
	struct gpu_snapshot s = {0};
	struct err e = {0};
	const char *cut;
	size_t n;

	if (text == NULL)
		abort();
	if (size > 0)
		memcpy(text, data, size);
	if (smi_parse_xml(text, size, &s, &e) == 0)
		check(&s);
	gpu_snapshot_done(&s);
	cut = size > 0 ? memchr(text, 1, size) : NULL;
	n = cut != NULL ? (size_t)(cut - text) : size;
	if (smi_parse_csv(text, n, cut != NULL ? cut + 1 : text + n, cut != NULL ? size - n - 1 : 0,
		    &s, &e) == 0)
		check(&s);
	gpu_snapshot_done(&s);
	free(text);
	return 0;
}
