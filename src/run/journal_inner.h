/* What the files of the journal share. Nothing outside src/run/journal*.c includes it. */
#pragma once

#include "run/journal.h"

#define JOURNAL_FILE "journal.jsonl"
#define JOURNAL_LINE_MAX \
	(8 * 1024 * 1024) /* a command of 512 KiB, each byte six when escaped, and room */

/* An open-addressing table of positions in records; the key is compared by the caller's eyes. */
struct journal_index {
	uint32_t *slots; /* position + 1; 0: empty */
	size_t n, cap; /* cap: a power of two */
};

struct journal_text {
	struct journal_text *before;
	size_t used, size;
	char bytes[];
};

#define RECORDS_BLOCK 128

struct journal {
	int dirfd; /* ours; -1: from memory */
	int fd; /* appending; -1: not open */
	struct job_record **blocks; /* RECORDS_BLOCK each, so that a record never moves */
	size_t n, cap_blocks;
	struct journal_index by_key, by_no;
	struct journal_text *texts; /* strings that stay as long as the journal */
	const char *shared[64]; /* ids that many records have: the last ones seen */
	size_t n_shared;
	size_t skipped;
	char queue[ID_LEN];
	uint64_t epoch, incarnation, highest_no;
	const char *sim, *sim_dir; /* of the last epoch, kept; NULL none */
	int64_t size; /* of the file, as far as it's known to be good */
	bool has_tail; /* past `size` there may be the rest of a failed write */
	bool is_unsynced;
	bool must_last; /* the batch holds more than starts */
	struct buf batch;
};

/* Memory, and a copy of a string, that live as long as the journal. What a later record replaces stays till then. */
void *journal_alloc(struct journal *j, size_t n);
char *journal_keep(struct journal *j, const char *s);
/* The same, once for equal strings as long as there are few of them. */
const char *journal_share(struct journal *j, const char *s);
struct job_record *journal_get(struct journal *j, const char *key); /* makes a fresh one */
struct job_last *journal_last(struct journal *j, struct job_record *r); /* its own, to write in */
void journal_number(struct journal *j, struct job_record *r, uint64_t no);
/* journal_fold.c: one line without its newline. False when it's no record: torn, strange, without key. */
bool journal_fold(struct journal *j, const char *line, size_t n);
