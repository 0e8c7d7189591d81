/*
 * The write transaction: under the lock, the lease's epoch checked inside, checkpoints after it; and the few facts that a
 * store keeps of itself.
 */
#include "store/store_inner.h"

#include "base/cleanup.h"
#include "base/fault.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * Half a megabyte of log, then it's copied back and begun anew. A command that finds nobody else at the database reads the
 * whole log before its first question, and doesn't know what of it was copied back already: the log has to stay short.
 */
#define CHECKPOINT_PAGES 128
#define LOG_KEPT_PAGES 256
#define ID_JUMP 1000000 /* ids that the lost part of a queue may have used */

const char *store_path(const struct store *s)
{
	return s->path;
}

const char *store_queue(const struct store *s)
{
	return s->queue;
}

bool store_is_elsewheres(const struct store *s)
{
	return s->is_elsewheres;
}

bool store_is_on_network(const struct store *s)
{
	return s->is_on_network;
}

int store_data_version(struct store *s, int64_t *ret, struct err *e)
{
	int r = db_int(s, ret, e, "PRAGMA data_version", "");

	return r < 0 ? r : 0;
}

int store_check(struct store *s, struct err *e)
{
	sqlite3_stmt *st = NULL;
	char *said;
	int r = db_ask(s, &st, e, "PRAGMA quick_check(1)", "");

	if (r <= 0)
		return r < 0 ? r : err_set(e, -EBADMSG, "%s: SQLite's check said nothing", s->path);
	said = db_text(st, 0);
	db_done(st);
	r = said && strcmp(said, "ok") == 0
		    ? 0
		    : err_set(e, -EBADMSG, "the queue's database %s is damaged: %s", s->path,
			      said ? said : "");
	free(said);
	return r;
}

/* ---- the write transaction ---- */

int store_need_txn(const struct store *s, struct err *e)
{
	if (!s->in_txn)
		return err_set(e, -EINVAL, "a change outside of a transaction");
	if (s->is_broken)
		return err_set(e, -EIO, "this transaction has failed and can only be taken back");
	return 0;
}

static int may_write(const struct store *s, struct err *e)
{
	uint64_t dev, ino;

	if (s->in_txn)
		return err_set(e, -EINVAL, "a transaction is open already");
	if (s->pid != getpid())
		return err_set(e, -EINVAL, "the store was opened by another process");
	if (s->is_elsewheres)
		return err_set(e, -EROFS,
			"the queue's database %s belongs to another machine: here it can only be read; give commands there, or take it over for good",
			s->path);
	if (s->mode != STORE_WRITE)
		return err_set(e, -EROFS, "the store was opened for reading");
	if (file_identity(s->path, &dev, &ino) < 0 || dev != s->dev || ino != s->ino)
		return err_set(e, -ESTALE,
			"the queue's database %s was moved or replaced while it was open; start this program again",
			s->path);
	return 0;
}

static int check_lease(struct store *s, const struct store_lease *l, struct err *e)
{
	int64_t incarnation = 0, epoch = -1;
	int r = store_incarnation(s, &incarnation, e);

	if (r == 0)
		r = db_int(s, &epoch, e, "SELECT epoch FROM lease WHERE owner IS NOT NULL", "");
	if (r < 0)
		return r;
	if (incarnation != l->incarnation || epoch != l->epoch)
		return err_set(e, -ESTALE,
			"this program is no longer the one that decides for the queue %s: another one has taken over",
			s->path);
	return 0;
}

static void finish(struct store *s)
{
	if (!sqlite3_get_autocommit(s->db))
		sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
	s->in_txn = s->is_broken = s->is_controller = false;
	s->taken = (struct store_lease){0};
	lock_drop(s);
}

int store_begin(struct store *s, const struct store_lease *l, struct err *e)
{
	int r = may_write(s, e);

	if (r == 0)
		r = lock_take(s, s->lock_wait_ms, e);
	if (r < 0)
		return r;
	r = db_run(s, e, "BEGIN IMMEDIATE", "");
	if (r >= 0)
		r = l ? check_lease(s, l, e) : 0;
	if (r < 0) {
		finish(s);
		return r;
	}
	s->in_txn = true;
	s->is_controller = l != NULL;
	s->now_ms = s->wall_ms();
	return 0;
}

/* Who doesn't keep the lock file's order (a shell at the database) is in the way all the same, for seconds. */
static int try_to_write(struct store *s, struct err *e)
{
	int r;

	sqlite3_busy_timeout(s->db, 0);
	r = db_run(s, e, "BEGIN IMMEDIATE", "");
	if (r >= 0)
		db_run(s, NULL, "ROLLBACK", "");
	sqlite3_busy_timeout(s->db, STORE_READ_WAIT_MS);
	return r == -EBUSY ? r : 0;
}

int store_lock(struct store *s, int64_t wait_ms, struct err *e)
{
	int r = 0;

	if (s->in_txn)
		r = err_set(e, -EINVAL, "a transaction is open already");
	else if (s->mode != STORE_WRITE || s->is_elsewheres)
		r = err_set(e, -EROFS, "the queue's database %s is only read here", s->path);
	if (!r)
		r = lock_take(s, wait_ms, e);
	if (r < 0)
		return r;
	s->n_holds++;
	r = s->n_holds == 1 ? try_to_write(s, e) : 0;
	if (r < 0)
		store_unlock(s);
	return r;
}

void store_unlock(struct store *s)
{
	if (s->n_holds && !--s->n_holds)
		lock_drop(s);
}

static void checkpoint(struct store *s)
{
	/* Who opens the record reads what the log holds. A short one keeps its length, for a commit that writes over what's
	   there syncs bytes alone, and one that makes the file longer its inode too. */
	int mode = s->wal_pages > LOG_KEPT_PAGES ? SQLITE_CHECKPOINT_TRUNCATE
						 : SQLITE_CHECKPOINT_RESTART;

	if (s->is_on_network || s->wal_pages < CHECKPOINT_PAGES)
		return;
	/* Readers aren't waited for: what fails here is done by a later one. */
	sqlite3_busy_timeout(s->db, 0);
	sqlite3_wal_checkpoint_v2(s->db, NULL, mode, NULL, NULL);
	sqlite3_busy_timeout(s->db, STORE_READ_WAIT_MS);
	s->wal_pages = 0;
}

static int commit(struct store *s, struct err *e)
{
	int r;

	if (!s->in_txn)
		return err_set(e, -EINVAL, "there's no transaction to commit");
	if (s->is_broken)
		return err_set(e, -EIO,
			"a write to the queue's database %s failed; nothing of it was kept",
			s->path);
	r = fault_point("store.before-commit");
	if (r < 0)
		return err_sys(e, r, "cannot write to the queue's database %s", s->path);
	r = db_run(s, e, "COMMIT", "");
	if (r < 0)
		return r;
	fault_point("store.after-commit");
	if (s->taken.epoch)
		lock_witness(s, s->taken.incarnation, s->taken.epoch);
	checkpoint(s);
	return 0;
}

int store_commit(struct store *s, struct err *e)
{
	int r = commit(s, e);

	if (s->in_txn)
		finish(s);
	return r;
}

void store_abort(struct store *s)
{
	if (s->in_txn)
		finish(s);
}

/* ---- the store's own facts ---- */

int meta_put(struct store *s, const char *key, const char *value, struct err *e)
{
	int r = db_run(s, e,
		"INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
		"tt", key, value);

	return r < 0 ? r : 0;
}

int meta_put_int(struct store *s, const char *key, int64_t value, struct err *e)
{
	char text[32];

	snprintf(text, sizeof(text), "%" PRId64, value);
	return meta_put(s, key, text, e);
}

static bool is_own_fact(const char *key)
{
	static const char *const own[] = {
		"queue", "incarnation", "machine_key", "created_ms", "inode", "clock"};

	for (size_t i = 0; i < ARRAY_LEN(own); i++) {
		if (strcmp(key, own[i]) == 0)
			return true;
	}
	return false;
}

int store_meta_set(struct store *s, const char *key, const char *value, struct err *e)
{
	int r = store_need_txn(s, e);

	if (r < 0)
		return r;
	if (is_own_fact(key))
		return err_set(e, -EINVAL, "'%s' is the store's own", key);
	if (value)
		return meta_put(s, key, value, e);
	r = db_run(s, e, "DELETE FROM meta WHERE key = ?1", "t", key);
	return r < 0 ? r : 0;
}

int store_meta_get(struct store *s, const char *key, char **ret, struct err *e)
{
	sqlite3_stmt *st = NULL;
	int r = db_ask(s, &st, e, "SELECT value FROM meta WHERE key = ?1", "t", key);

	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	*ret = db_text(st, 0);
	db_done(st);
	return 0;
}

int store_incarnation(struct store *s, int64_t *ret, struct err *e)
{
	int r = db_int(
		s, ret, e, "SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'incarnation'", "");

	return r < 0 ? r : r ? 0 : err_set(e, -EBADMSG, "%s lacks its incarnation", s->path);
}

/* Later than whatever the lost part of this queue may have said. */
int store_move_on(struct store *s, struct err *e)
{
	int64_t incarnation = 0;
	int r = store_incarnation(s, &incarnation, e);

	if (r < 0)
		return r;
	if (s->seen_incarnation > incarnation)
		incarnation = s->seen_incarnation;
	r = meta_put_int(s, "incarnation", incarnation + 1, e);
	if (r == 0)
		r = db_run(s, e, "DELETE FROM sqlite_sequence WHERE name = 'jobs'", "");
	if (r >= 0)
		r = db_run(s, e,
			"INSERT INTO sqlite_sequence (name, seq) SELECT 'jobs', coalesce(max(id), 0) + ?1 FROM jobs",
			"i", DB_I64(ID_JUMP));
	/* Which file it is now is found out by the next lease. */
	if (r >= 0)
		r = db_run(s, e, "DELETE FROM meta WHERE key = 'inode'", "");
	return r < 0 ? r : 0;
}

static int adopt(struct store *s, struct err *e)
{
	int r = store_move_on(s, e);

	if (r == 0)
		r = meta_put(s, "machine_key", s->machine_key, e);
	if (r == 0)
		r = db_run(s, e, "UPDATE lease SET owner = NULL", "");
	return r < 0 ? r : 0;
}

int store_adopt(struct store *s, struct err *e)
{
	bool was_elsewheres = s->is_elsewheres;
	int r;

	if (s->mode != STORE_WRITE)
		return err_set(e, -EROFS, "the store was opened for reading");
	if (was_elsewheres) {
		store_disconnect(s);
		r = store_connect(s, SQLITE_OPEN_READWRITE, e);
		if (r < 0)
			return r;
	}
	s->is_elsewheres = false;
	r = store_begin(s, NULL, e);
	if (r == 0) {
		r = adopt(s, e);
		if (r == 0)
			r = store_commit(s, e);
		else
			store_abort(s);
	}
	s->is_elsewheres = r < 0 && was_elsewheres;
	return r;
}
