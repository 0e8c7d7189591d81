/*
 * The least that a program with a database of its own can do to submit a job: open it, one transaction with the job's row and
 * its event, close it. For comparison with `gpustow job submit`. Usage: one_row DATABASE.
 */
#include <sqlite3.h>
#include <stdio.h>

#define ROWS \
	"PRAGMA synchronous=FULL; BEGIN IMMEDIATE;" \
	"INSERT INTO jobs (state, vram_mib, vram_source, created_ms, updated_ms, shape, submitter, command)" \
	" VALUES ('pending', 1024, 'declared', 1, 1, 'true', 'someone@host:1234', 'true');" \
	"INSERT INTO events (ts_ms, kind, job, message, data) VALUES (1, 'job_submitted', last_insert_rowid(), 'true'," \
	" '{\"gpus\": 1, \"vram_mb\": 1024, \"node\": null, \"lane\": null, \"submitter\": \"someone@host:1234\"}');" \
	"COMMIT"

int main(int argc, char **argv)
{
	sqlite3 *db = NULL;
	char *said = NULL;

	if (argc != 2 || sqlite3_open_v2(argv[1], &db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK)
		return 2;
	/* As the queue does, so that the log isn't copied back each time. */
	sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	if (sqlite3_exec(db, ROWS, NULL, NULL, &said) != SQLITE_OK) {
		fprintf(stderr, "one_row: %s\n", said);
		return 1;
	}
	sqlite3_close(db);
	return 0;
}
