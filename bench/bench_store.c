/*
 * The store's figures, as ratios within one run on one file system: a bulk submit against a bare loop that inserts the same
 * rows with their indexes, one durable submit against one durable row, and with 100,000 jobs the first page of a list and
 * the counts by state. Usage: bench_store [DIRECTORY [JOBS]]. Prints JSON lines.
 */
#include "store/store.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BULK 20000
#define ROUNDS 7
#define COMMITS 100

static void must(int r, const struct err *e)
{
	if (r < 0) {
		fprintf(stderr, "bench_store: %s\n", e->text);
		exit(1);
	}
}

static struct store *open_new(const char *dir, const char *name)
{
	CLEANUP_FREE char *path = xasprintf("%s/%s.db", dir, name);
	struct store_options o = {.mode = STORE_WRITE};
	struct store *s = NULL;
	struct err e;

	must(store_open(path, &o, &s, &e), &e);
	return s;
}

static void fill(struct job *j)
{
	job_init(j);
	j->name = (char *)"sweep";
	j->command =
		(char *)"python train.py --lr 0.001 --seed 17 --data /data/imagenet --epochs 90";
	j->workdir = (char *)"/home/someone/project";
	j->submitter = (char *)"someone@host:1234";
	j->vram_mib = 8192;
	j->vram_source = VRAM_DECLARED;
}

static void submit_many(struct store *s, int n)
{
	struct job j;
	struct err e;
	int64_t id;

	fill(&j);
	must(store_begin(s, NULL, &e), &e);
	for (int i = 0; i < n; i++)
		must(store_submit(s, &j, &id, &e), &e);
	must(store_commit(s, &e), &e);
}

/* The same rows by nothing but two prepared statements, into a file with the same tables. */
static void insert_many(sqlite3 *db, int n)
{
	sqlite3_stmt *job, *event;

	sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
	sqlite3_prepare_v2(db,
		"INSERT INTO jobs (state, vram_mib, vram_source, created_ms, updated_ms, name, submitter, workdir, command)"
		" VALUES ('pending', 8192, 'declared', ?1, ?1, 'sweep', 'someone@host:1234', '/home/someone/project',"
		" 'python train.py --lr 0.001 --seed 17 --data /data/imagenet --epochs 90')",
		-1, &job, NULL);
	sqlite3_prepare_v2(db,
		"INSERT INTO events (ts_ms, kind, job, message, data) VALUES (?1, 'job_submitted', ?2, 'sweep',"
		" '{\"gpus\": 1, \"vram_mb\": 8192, \"node\": null, \"lane\": null, \"submitter\": \"someone@host:1234\"}')",
		-1, &event, NULL);
	for (int i = 0; i < n; i++) {
		sqlite3_bind_int64(job, 1, clock_wall_ms());
		sqlite3_step(job);
		sqlite3_reset(job);
		sqlite3_bind_int64(event, 1, clock_wall_ms());
		sqlite3_bind_int64(event, 2, sqlite3_last_insert_rowid(db));
		sqlite3_step(event);
		sqlite3_reset(event);
	}
	sqlite3_finalize(job);
	sqlite3_finalize(event);
	sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
}

static sqlite3 *open_bare(const char *dir, const char *name)
{
	CLEANUP_FREE char *path = xasprintf("%s/%s.db", dir, name);
	sqlite3 *db;

	store_close(open_new(dir, name));
	if (sqlite3_open(path, &db) != SQLITE_OK)
		exit(1);
	sqlite3_exec(db,
		"PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=0; PRAGMA secure_delete=OFF",
		NULL, NULL, NULL);
	return db;
}

static int by_size(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static double median_ms(int64_t *us, int n)
{
	qsort(us, (size_t)n, sizeof(*us), by_size);
	return (double)us[n / 2] / 1e3;
}

static void measure_bulk(const char *dir)
{
	int64_t ours[ROUNDS], bare[ROUNDS];

	for (int i = 0; i < ROUNDS; i++) {
		char name[32];
		struct store *s;
		sqlite3 *db;

		snprintf(name, sizeof(name), "ours%d", i);
		s = open_new(dir, name);
		ours[i] = clock_boot_us();
		submit_many(s, BULK);
		ours[i] = clock_boot_us() - ours[i];
		store_close(s);
		snprintf(name, sizeof(name), "bare%d", i);
		db = open_bare(dir, name);
		bare[i] = clock_boot_us();
		insert_many(db, BULK);
		bare[i] = clock_boot_us() - bare[i];
		sqlite3_close(db);
	}
	double a = median_ms(ours, ROUNDS), b = median_ms(bare, ROUNDS);
	printf("{\"what\": \"bulk submit against a bare loop\", \"ratio\": %.3f, \"at_least\": 0.7, \"ms\": %.1f,"
	       " \"bare_ms\": %.1f}\n",
		b / a, a, b);
}

static void measure_one(const char *dir)
{
	struct store *s = open_new(dir, "one");
	sqlite3 *db = open_bare(dir, "onebare");
	int64_t ours[COMMITS], bare[COMMITS];

	for (int i = 0; i < COMMITS; i++) {
		ours[i] = clock_boot_us();
		submit_many(s, 1);
		ours[i] = clock_boot_us() - ours[i];
		bare[i] = clock_boot_us();
		insert_many(db, 1);
		bare[i] = clock_boot_us() - bare[i];
	}
	double a = median_ms(ours, COMMITS), b = median_ms(bare, COMMITS);
	printf("{\"what\": \"one durable submit against one durable row\", \"ratio\": %.3f, \"ms\": %.3f, \"bare_ms\": %.3f}\n",
		a / b, a, b);
	sqlite3_close(db);
	store_close(s);
}

/* A reader of its own each time, as a command is. */
static void measure_reads(const char *dir, int jobs)
{
	CLEANUP_FREE char *path = xasprintf("%s/reads.db", dir);
	struct store_options o = {.mode = STORE_READ};
	struct store_question first = {.limit = 50}, newest = {.newest = true, .limit = 50},
			      turn = {.order = STORE_BY_TURN, .limit = 50};
	const struct store_question *const questions[] = {&first, &newest, &turn};
	static const char *const names[] = {"first page", "newest page", "page by turn"};
	int64_t page[ARRAY_LEN(questions)][ROUNDS], counts[ROUNDS];
	struct store *s = open_new(dir, "reads");
	struct store_jobs l;
	struct store_counts c;
	struct err e;

	for (int i = 0; i < jobs; i += BULK)
		submit_many(s, jobs - i < BULK ? jobs - i : BULK);
	store_close(s);
	for (int i = 0; i < ROUNDS; i++) {
		for (size_t k = 0; k < ARRAY_LEN(questions); k++) {
			page[k][i] = clock_boot_us();
			must(store_open(path, &o, &s, &e), &e);
			must(store_jobs(s, questions[k], &l, &e), &e);
			store_jobs_done(&l);
			store_close(s);
			page[k][i] = clock_boot_us() - page[k][i];
		}
		counts[i] = clock_boot_us();
		must(store_open(path, &o, &s, &e), &e);
		must(store_counts(s, &c, &e), &e);
		store_close(s);
		counts[i] = clock_boot_us() - counts[i];
	}
	for (size_t k = 0; k < ARRAY_LEN(questions); k++)
		printf("{\"what\": \"open and %s, %d jobs\", \"ms\": %.2f, \"at_most_ms\": 15}\n",
			names[k], jobs, median_ms(page[k], ROUNDS));
	printf("{\"what\": \"open and counts by state, %d jobs\", \"ms\": %.2f, \"at_most_ms\": 100}\n",
		jobs, median_ms(counts, ROUNDS));
}

int main(int argc, char **argv)
{
	CLEANUP_FREE char *dir = xasprintf("%s/bench-store-XXXXXX", argc > 1 ? argv[1] : "/tmp");

	if (!mkdtemp(dir)) {
		perror(dir);
		return 1;
	}
	measure_bulk(dir);
	measure_one(dir);
	measure_reads(dir, argc > 2 ? (int)strtol(argv[2], NULL, 10) : 100000);
	return fd_remove_tree_at(AT_FDCWD, dir) < 0;
}
