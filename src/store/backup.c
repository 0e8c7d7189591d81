/*
 * A copy of the store while others write. With a log the copy reads one snapshot and nobody waits; without one (on a network
 * file system) it goes in steps and begins anew when somebody wrote, and takes the lock after some of that. The copy is then
 * made a database of its own: no log, nobody's lease.
 */
#include "store/store_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define STEP_PAGES 256
#define RESTARTS_MAX 3
#define BUSY_MAX_MS 10000
#define VERSIONS_AT \
	18 /* of the file format's header: who may write it, who may read it; 1: no log */

static int copy_error(sqlite3 *db, int rc, const char *to, struct err *e)
{
	int code = db_errno(rc);

	if (code == -ENOSPC)
		return err_set(e, code, "no room on the disk for the backup %s", to);
	return err_set(e, code, "the backup %s can't be written: %s", to,
		db ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
}

static int connect_copy(const char *to, sqlite3 **ret, struct err *e)
{
	sqlite3 *db = NULL;
	int rc = sqlite3_open_v2(
		to, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL);

	/* A copy that isn't finished is thrown away, so it needs no journal; it's made durable at its end, once. */
	if (rc == SQLITE_OK)
		rc = sqlite3_exec(db,
			"PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA trusted_schema=OFF",
			NULL, NULL, NULL);
	if (rc != SQLITE_OK) {
		rc = copy_error(db, rc, to, e);
		sqlite3_close(db);
		return rc;
	}
	*ret = db;
	return 0;
}

/* ---- pages ---- */

static bool is_busy(int rc)
{
	return (rc & 0xff) == SQLITE_BUSY || (rc & 0xff) == SQLITE_LOCKED;
}

/* Steps to the end; or, with may_restart, to the restart after RESTARTS_MAX: then SQLITE_OK. Else SQLITE_DONE or an error. */
static int steps(sqlite3_backup *b, bool may_restart)
{
	int64_t until = clock_boot_ms() + BUSY_MAX_MS;
	int left = INT32_MAX, restarts = 0;

	for (;;) {
		int rc = sqlite3_backup_step(b, STEP_PAGES), now_left;

		if (is_busy(rc) && clock_boot_ms() < until) {
			nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
			continue;
		}
		if (rc != SQLITE_OK)
			return rc;
		until = clock_boot_ms() + BUSY_MAX_MS;
		now_left = sqlite3_backup_remaining(b);
		if (now_left > left && ++restarts > RESTARTS_MAX && may_restart)
			return SQLITE_OK;
		left = now_left;
	}
}

/* Without a log a reader that stays would keep writers out: so it comes again for each step. */
static int copy_without_log(struct store *s, sqlite3_backup *b, struct err *e)
{
	int rc = steps(b, true), r;

	if (rc != SQLITE_OK)
		return rc;
	r = lock_take(s, s->lock_wait_ms, e);
	if (r < 0)
		return r;
	rc = steps(b, false);
	lock_drop(s);
	return rc;
}

static int copy_pages(struct store *s, sqlite3 *src, sqlite3 *db, const char *to, struct err *e)
{
	sqlite3_backup *b = sqlite3_backup_init(db, "main", src, "main");
	int rc, finish;

	if (!b)
		return copy_error(db, sqlite3_errcode(db), to, e);
	rc = s && s->is_on_network ? copy_without_log(s, b, e) : steps(b, false);
	finish = sqlite3_backup_finish(b);
	if (rc < 0)
		return rc;
	if (rc == SQLITE_DONE)
		return finish == SQLITE_OK ? 0 : copy_error(db, finish, to, e);
	if (((rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB) && !s)
		return err_set(e, -EBADMSG, "it's damaged: %s", sqlite3_errstr(rc));
	if ((rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB)
		return err_set(e, -EBADMSG, "what the backup %s was to be made of is damaged: %s",
			to, sqlite3_errstr(rc));
	return copy_error(NULL, rc, to, e);
}

/* ---- a database of its own ---- */

/* The pages say "with a log", as their source. */
static int drop_log(const char *to, struct err *e)
{
	static const char no_log[2] = {1, 1};
	CLEANUP_CLOSE int fd = open(to, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	int r = fd < 0 ? -errno : fd_pwrite_all(fd, no_log, sizeof(no_log), VERSIONS_AT);

	return r < 0 ? err_sys(e, r, "the backup %s can't be written", to) : 0;
}

/* s NULL: of a backup that is to be restored, which the caller names. */
static int check_copy(struct store *s, sqlite3 *db, const char *to, struct err *e)
{
	CLEANUP_FREE char *words = NULL;
	sqlite3_stmt *st = NULL;
	const char *said = NULL;
	int r = 0;

	if (sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &st, NULL) == SQLITE_OK &&
		sqlite3_step(st) == SQLITE_ROW)
		said = (const char *)sqlite3_column_text(st, 0);
	if (said && !strcmp(said, "ok")) {
		sqlite3_finalize(st);
		return 0;
	}
	words = xstrdup(said ? said : sqlite3_errmsg(db));
	/* Of its complaints the first has a headline. */
	for (char *p = strchr(words, '\n'); p; p = strchr(p, '\n'))
		*p = ' ';
	r = s ? err_set(e, -EBADMSG,
			"the copy %s doesn't pass SQLite's check (%s): the queue's database is damaged, or the disk is",
			to, words)
	      : err_set(e, -EBADMSG,
			"it's damaged, or the disk is: it doesn't pass SQLite's check (%s)", words);
	sqlite3_finalize(st);
	return r;
}

static int set_fact(sqlite3 *db, const char *key, const char *value)
{
	sqlite3_stmt *st = NULL;
	int rc = sqlite3_prepare_v2(db,
		"INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
		-1, &st, NULL);

	if (rc != SQLITE_OK)
		return rc;
	sqlite3_bind_text(st, 1, key, -1, SQLITE_STATIC);
	sqlite3_bind_text(st, 2, value, -1, SQLITE_STATIC);
	rc = sqlite3_step(st);
	sqlite3_finalize(st);
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int set_facts(
	struct store *s, sqlite3 *db, const char *to, const struct backup_facts *f, struct err *e)
{
	char text[32];
	int rc = sqlite3_exec(db, "UPDATE lease SET owner = NULL", NULL, NULL, NULL);

	snprintf(text, sizeof(text), "%" PRId64, f->now_ms);
	if (rc == SQLITE_OK && f->now_ms)
		rc = set_fact(db, STORE_LAST_BACKUP, text);
	if (rc == SQLITE_OK && f->machine_key)
		rc = set_fact(db, "machine_key", f->machine_key);
	/* What is damaged so far that nothing can be written into it says so itself. */
	if ((rc & 0xff) == SQLITE_CORRUPT && check_copy(s, db, to, e) < 0)
		return -EBADMSG;
	return rc == SQLITE_OK ? 0 : copy_error(db, rc, to, e);
}

static int make_durable(const char *to, struct err *e)
{
	CLEANUP_CLOSE int fd = open(to, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0 || fsync(fd) < 0)
		return err_sys(e, -errno, "cannot make the backup %s durable", to);
	return 0;
}

int backup_copy(
	struct store *s, sqlite3 *src, const char *to, const struct backup_facts *f, struct err *e)
{
	sqlite3 *db = NULL;
	int r = connect_copy(to, &db, e);

	if (r < 0)
		return r;
	r = copy_pages(s, src, db, to, e);
	sqlite3_close(db);
	if (r == 0 && fault_point("store.backup-after-copy") < 0)
		r = err_set(e, -ENOSPC, "no room on the disk for the backup %s", to);
	if (r == 0)
		r = drop_log(to, e);
	if (r == 0)
		r = connect_copy(to, &db, e);
	if (r < 0)
		return r;
	r = set_facts(s, db, to, f, e);
	if (r == 0)
		r = check_copy(s, db, to, e);
	sqlite3_close(db);
	return r == 0 ? make_durable(to, e) : r;
}

int store_copy(struct store *s, const char *to, int64_t now_ms, struct err *e)
{
	const struct backup_facts facts = {.now_ms = now_ms};
	int64_t any;
	bool mine = false;
	int r = 0;

	if (s->in_txn)
		return err_set(e, -EINVAL, "a backup inside of a transaction");
	/* The snapshot begins with the first thing that's read. */
	if (!s->is_on_network)
		r = db_read_begin(s, &mine, e);
	if (r == 0)
		r = store_incarnation(s, &any, e);
	if (r == 0)
		r = backup_copy(s, s->db, to, &facts, e);
	db_read_end(s, mine);
	return r;
}

int store_file_queue(const char *path, char ret[ID_LEN], struct err *e)
{
	CLEANUP_FREE char *uri = file_immutable_uri(path);
	sqlite3_stmt *st = NULL;
	sqlite3 *db = NULL;
	enum file_kind kind;
	bool is_wal, is = false;
	int r = file_look(path, &kind, &is_wal, e);

	if (r < 0)
		return r;
	if (kind == FILE_OURS &&
		sqlite3_open_v2(uri, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, NULL) ==
			SQLITE_OK &&
		sqlite3_prepare_v2(db, "SELECT value FROM meta WHERE key = 'queue'", -1, &st,
			NULL) == SQLITE_OK &&
		sqlite3_step(st) == SQLITE_ROW && sqlite3_column_bytes(st, 0) == ID_LEN - 1) {
		memcpy(ret, sqlite3_column_text(st, 0), ID_LEN);
		is = true;
	}
	sqlite3_finalize(st);
	sqlite3_close(db);
	return is ? 0 : err_set(e, -EMEDIUMTYPE, "%s isn't a queue database of gpustow", path);
}
