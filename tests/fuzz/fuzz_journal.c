/*
 * Any bytes as a journal: the folded state is sound, every key and number finds its record, and writing on from it folds
 * into what was meant.
 */
#include "run/journal.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MUST(x) \
	do { \
		if (!(x)) \
			abort(); \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void check_record(const struct journal *j, struct job_record *r)
{
	MUST(r->key[0] && journal_find(j, r->key) == r);
	MUST(r->no <= journal_highest_no(j));
	MUST(r->no == 0 || journal_find_no(j, r->no));
	MUST(r->status >= JOB_PENDING && r->status <= JOB_CANCELLED);
	MUST(!r->is_bound || r->status == JOB_RUNNING);
	MUST(r->last->attempts >= 0);
	MUST(r->last->n_gpus <= GPU_MAX);
	for (uint32_t i = 0; i < r->last->n_gpus; i++)
		MUST(strlen(r->last->uuids[i]) < 100000000 && r->last->gpus[i] >= INT32_MIN);
	MUST(r->last->root_id && r->last->machine_key && r->last->boot_id);
}

static void go_on(struct journal *j)
{
	struct job_record *r = journal_seen(j, "fuzz#0", "a command");
	struct job_last bound = {.attempt = r->last->attempt + 1, .bound_vram = -1};

	MUST(r->no > 0);
	job_last_set_gpus(&bound, (int32_t[]){3}, (const char *const[]){"GPU-x"}, 1);
	journal_bind(j, r, &bound);
	job_last_clear_gpus(&bound);
	MUST(r->is_bound && r->last->attempt == bound.attempt && r->last->n_gpus == 1 &&
		r->last->gpus[0] == 3);
	journal_started(j, r, 5, 6);
	MUST(r->was_started && r->last->pgid == 5);
	journal_done_record(j, r, &(struct journal_done){.status = JOB_OK, .seconds = -1});
	MUST(r->status == JOB_OK && !r->is_bound);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	struct journal *j = journal_load_bytes((const char *)bytes, n);

	for (size_t i = 0; i < journal_count(j); i++)
		check_record(j, journal_at(j, i));
	go_on(j);
	journal_free(j);
	return 0;
}
