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
		"INSERT INTO jobs (state, vram_mib, vram_source, created_ms, updated_ms, shape, name, submitter, workdir, command)"
		" VALUES ('pending', 8192, 'declared', ?1, ?1,"
		" 'python train.py --lr <n> --seed <n> --data <path> --epochs <n>', 'sweep', 'someone@host:1234', '/home/someone/project',"
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

/* A third of them over: cancelled in one transaction, each with its event. */
static void measure_cancel(struct store *s, int n)
{
	enum store_cancelled c;
	struct err e;
	int64_t us = clock_boot_us();

	must(store_begin(s, NULL, &e), &e);
	for (int i = 1; i <= n; i++)
		must(store_cancel(s, i, "a bench", &c, &e), &e);
	must(store_commit(s, &e), &e);
	printf("{\"what\": \"cancel of %d jobs in one transaction\", \"ms\": %.1f, \"at_most_ms\": %.1f}\n",
		n, (double)(clock_boot_us() - us) / 1e3, (double)n / 10);
}

/* What a command that shows the queue asks, in one open store. */
static void ask_status(struct store *s)
{
	struct store_question live = {.bound = true}, turn = {.order = STORE_BY_TURN, .limit = 100},
			      recent = {.order = STORE_BY_END, .limit = 10};
	const struct store_question *const questions[] = {&live, &turn, &recent};
	struct store_alerts alerts;
	struct store_nodes nodes;
	struct store_cards cards;
	struct store_counts c;
	struct store_jobs l;
	struct err e;

	for (size_t i = 0; i < ARRAY_LEN(questions); i++) {
		must(store_jobs(s, questions[i], &l, &e), &e);
		store_jobs_done(&l);
	}
	must(store_counts(s, &c, &e), &e);
	must(store_nodes(s, &nodes, &e), &e);
	store_nodes_done(&nodes);
	must(store_cards(s, &cards, &e), &e);
	store_cards_done(&cards);
	must(store_alerts(s, STORE_ALERTS_OPEN, 20, &alerts, &e), &e);
	store_alerts_done(&alerts);
}

/* A reader of its own each time, as a command is. q NULL: the whole status. */
static double measure_question(const char *path, const struct store_question *q)
{
	struct store_options o = {.mode = STORE_READ};
	int64_t us[ROUNDS];
	struct store *s;
	struct store_jobs l;
	struct err e;

	for (int i = 0; i < ROUNDS; i++) {
		us[i] = clock_boot_us();
		must(store_open(path, &o, &s, &e), &e);
		if (q) {
			must(store_jobs(s, q, &l, &e), &e);
			store_jobs_done(&l);
		} else {
			ask_status(s);
		}
		store_close(s);
		us[i] = clock_boot_us() - us[i];
	}
	return median_ms(us, ROUNDS);
}

static void measure_reads(const char *dir, int jobs)
{
	CLEANUP_FREE char *path = xasprintf("%s/reads.db", dir);
	static const struct {
		const char *name;
		struct store_question q;
	} questions[] = {
		{"first page", {.limit = 50}},
		{"newest page", {.newest = true, .limit = 50}},
		{"newest page of the active",
			{.newest = true, .limit = 50, .states = JOB_STATES_ACTIVE}},
		{"newest page of the cancelled",
			{.newest = true, .limit = 50, .states = 1u << JOB_STATE_CANCELLED}},
		{"page by turn", {.order = STORE_BY_TURN, .limit = 50}},
		{"the last to finish", {.order = STORE_BY_END, .limit = 10}},
	};
	struct store *s = open_new(dir, "reads");

	for (int i = 0; i < jobs; i += BULK)
		submit_many(s, jobs - i < BULK ? jobs - i : BULK);
	for (int round = 0; round < 2; round++) {
		for (size_t k = 0; k < ARRAY_LEN(questions); k++)
			printf("{\"what\": \"open and %s, %d jobs%s\", \"ms\": %.2f, \"at_most_ms\": 15}\n",
				questions[k].name, jobs, round ? ", a part over" : "",
				measure_question(path, &questions[k].q));
		printf("{\"what\": \"open and all of a status, %d jobs%s\", \"ms\": %.2f, \"at_most_ms\": 100}\n",
			jobs, round ? ", a part over" : "", measure_question(path, NULL));
		if (!round)
			measure_cancel(s, jobs / 10);
	}
	store_close(s);
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
