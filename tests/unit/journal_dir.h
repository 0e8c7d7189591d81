/* A journal's directory for a test, and short ways to load, write and commit. Include after cmocka.h. */
#pragma once

#include "run/journal.h"

#include "base/cleanup.h"
#include "base/fd.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEEN "{\"key\": \"k#0\", \"event\": \"seen\", \"no\": 7, \"command\": \"true\"}\n"
#define STARTED "{\"key\": \"k#0\", \"event\": \"started\", \"pgid\": 4711, \"gpus\": [0, 1]}\n"

struct dir {
	char path[64];
	int fd;
};

static inline int dir_make(void **state)
{
	struct dir *d = calloc(1, sizeof(*d));

	if (!d)
		return -1;
	/* Thousands of syncs are made here: in memory, where there's a place for that. */
	snprintf(d->path, sizeof(d->path), "%s/gpustow-journal-XXXXXX",
		access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	if (!mkdtemp(d->path))
		return -1;
	d->fd = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*state = d;
	return d->fd < 0;
}

static inline int dir_remove(void **state)
{
	struct dir *d = *state;

	close(d->fd);
	fd_remove_tree_at(AT_FDCWD, d->path);
	free(d);
	return 0;
}

static inline struct journal *load(const struct dir *d)
{
	struct err e = {0};
	struct journal *j = NULL;

	if (journal_load(d->fd, &j, &e) < 0)
		fail_msg("%s", e.text);
	return j;
}

static inline void open_append(struct journal *j)
{
	struct err e = {0};

	if (journal_open_append(j, &e) < 0)
		fail_msg("%s", e.text);
}

static inline void commit(struct journal *j)
{
	struct err e = {0};

	if (journal_commit(j, true, &e) < 0)
		fail_msg("%s", e.text);
	assert_false(journal_has_batch(j));
}

static inline void read_file(const struct dir *d, struct buf *b)
{
	buf_clear(b);
	assert_int_equal(fd_read_file_at(d->fd, "journal.jsonl", b, 1 << 26), 0);
}

static inline void write_file(const struct dir *d, const char *bytes, size_t n)
{
	assert_int_equal(fd_replace_at(d->fd, "journal.jsonl", bytes, n, false), 0);
}

static inline void bind(struct journal *j, struct job_record *r, uint32_t attempt)
{
	struct job_last bound = {.attempt = attempt,
		.token = "00112233445566778899aabbccddeeff",
		.root_id = "root",
		.machine_key = "machine",
		.boot_id = "boot",
		.bound_vram = 8192,
		.log_offset = 17};
	char log[] = "logs/job001_gpu0-1.log";

	bound.log = log;
	job_last_set_gpus(&bound, (int32_t[]){0, 1}, (const char *const[]){"GPU-a", "GPU-b"}, 2);
	journal_bind(j, r, &bound);
	job_last_clear_gpus(&bound);
}

#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, dir_make, dir_remove)
