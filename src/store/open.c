/*
 * Opening a store: what lies at the path, whose it is, and, under the lock, making a new file or bringing an older one up to
 * date. It owns the connection and knows nothing about jobs.
 */
#include "store/store_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/hash.h"
#include "core/shape.h"
#include "proc/proc.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int on_wal(void *arg, sqlite3 *db, const char *name, int pages)
{
	struct store *s = arg;

	(void)db;
	(void)name;
	s->wal_pages = pages;
	return SQLITE_OK;
}

void store_disconnect(struct store *s)
{
	db_forget(s);
	sqlite3_close(s->db);
	s->db = NULL;
}

int store_connect(struct store *s, int flags, struct err *e)
{
	uint64_t log = wal_before(s);
	int rc = sqlite3_open_v2(
		s->path, &s->db, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL);

	if (rc != SQLITE_OK) {
		rc = db_error(s, rc, e);
		store_disconnect(s);
		return rc;
	}
	sqlite3_busy_timeout(s->db, STORE_READ_WAIT_MS);
	/* The last one to go must not checkpoint outside of the lock. */
	sqlite3_db_config(s->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	sqlite3_db_config(s->db, SQLITE_DBCONFIG_DQS_DML, 0, NULL);
	sqlite3_db_config(s->db, SQLITE_DBCONFIG_DQS_DDL, 0, NULL);
	sqlite3_db_config(s->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	sqlite3_wal_hook(s->db, on_wal, s); /* in place of the automatic checkpoint */
	rc = db_exec(s,
		"PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON; PRAGMA secure_delete=OFF; PRAGMA temp_store=MEMORY",
		e);
	return rc == 0 && flags & SQLITE_OPEN_READWRITE ? wal_after(s, log, e) : rc;
}

/* ---- making and mending, under the lock ---- */

static int fill_new(struct store *s, struct err *e)
{
	char queue[ID_LEN], id[64];
	int r;

	snprintf(id, sizeof(id), "PRAGMA application_id = %d", STORE_APPLICATION_ID);
	random_hex((ID_LEN - 1) / 2, queue);
	r = db_exec(s, id, e);
	if (r == 0)
		r = schema_apply(s, schema_steps, 0, STORE_VERSION, e);
	if (r == 0)
		r = meta_put(s, "queue", queue, e);
	if (r == 0)
		r = meta_put(s, "machine_key", s->machine_key, e);
	if (r == 0)
		r = meta_put_int(s, "incarnation", 1, e);
	if (r == 0)
		r = meta_put_int(s, "created_ms", s->wall_ms(), e);
	return r;
}

static int too_new(const struct store *s, int version, struct err *e)
{
	return err_set(e, -ENOTSUP,
		"the queue's database %s has version %d, made by a newer gpustow; this one knows version %d: use the newer program",
		s->path, version, STORE_VERSION);
}

static void sql_shape(sqlite3_context *ctx, int n, sqlite3_value **args)
{
	CLEANUP(buf_done) struct buf shape = {0};
	const char *text = (const char *)sqlite3_value_text(args[0]);

	(void)n;
	shape_of(text ? text : "", (size_t)sqlite3_value_bytes(args[0]), &shape);
	sqlite3_result_text(ctx, buf_str(&shape), -1, SQLITE_TRANSIENT);
}

/* What the steps need of the connection: shapes, and that a table can be replaced without losing the rows that name it. */
static int allow_steps(struct store *s, struct err *e)
{
	int rc = sqlite3_create_function(s->db, "shape_of", 1, SQLITE_UTF8 | SQLITE_DETERMINISTIC,
		NULL, sql_shape, NULL, NULL);

	return rc == SQLITE_OK ? db_exec(s, "PRAGMA foreign_keys=OFF", e) : db_error(s, rc, e);
}

/* In one transaction: everything that a new or older file lacks. The first one is written with the old journal, so that
   the application id stands in the file itself from the very first moment. */
static int upgrade(struct store *s, struct err *e)
{
	int version, r = allow_steps(s, e);

	if (r == 0)
		r = db_exec(s, "BEGIN IMMEDIATE", e);
	if (r < 0)
		return r;
	r = schema_version(s, &version, e);
	if (r == 0 && version == 0)
		r = fill_new(s, e);
	else if (r == 0 && version < STORE_VERSION)
		r = schema_apply(s, schema_steps, version, STORE_VERSION, e);
	else if (r == 0 && version > STORE_VERSION)
		r = too_new(s, version, e);
	if (r == 0 && fault_point("store.before-upgrade") < 0)
		r = err_set(e, -EIO, "cannot write to the queue's database %s", s->path);
	if (r == 0)
		r = db_exec(s, "COMMIT", e);
	if (r < 0 && !sqlite3_get_autocommit(s->db))
		sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
	return r;
}

static int set_journal(struct store *s, struct err *e)
{
	const char *want = s->is_on_network ? "truncate" : "wal";
	sqlite3_stmt *st = NULL;
	bool ok;
	int r = db_ask(s, &st, e,
		s->is_on_network ? "PRAGMA journal_mode=TRUNCATE" : "PRAGMA journal_mode=WAL", "");

	if (r < 0)
		return r;
	ok = r && strcmp((const char *)sqlite3_column_text(st, 0), want) == 0;
	db_done(st);
	if (!ok)
		return err_set(e, -EBUSY,
			"cannot give the queue's database %s the journal it needs (%s): end what uses it and try again",
			s->path, want);
	return 0;
}

static int read_meta_into(struct store *s, const char *key, char *ret, size_t size, struct err *e)
{
	CLEANUP_FREE char *text = NULL;
	int r = store_meta_get(s, key, &text, e);

	if (r == -ENOENT || (r == 0 && strlen(text) >= size))
		return err_set(e, -EBADMSG,
			"the queue's database %s lacks its %s: put a backup in its place", s->path,
			key);
	if (r == 0)
		memcpy(ret, text, strlen(text) + 1);
	return r;
}

/* Whose it is. Reads only. */
static int read_identity(struct store *s, struct err *e)
{
	char key[65];
	int r = read_meta_into(s, "queue", s->queue, sizeof(s->queue), e);

	if (r == 0)
		r = read_meta_into(s, "machine_key", key, sizeof(key), e);
	if (r == 0)
		s->is_elsewheres = strcmp(key, s->machine_key) != 0;
	return r;
}

static int make_directory(const struct store *s, struct err *e)
{
	CLEANUP_FREE char *dir = xstrdup(s->path);
	char *slash = strrchr(dir, '/');

	if (!slash || slash == dir)
		return 0;
	*slash = '\0';
	return fd_mkdirs(dir, e);
}

static int make_file(const struct store *s, struct err *e)
{
	/* SQLite gives the files beside it the same mode. */
	int fd = open(s->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0 && errno != EEXIST)
		return err_sys(e, -errno, "cannot make the queue's database %s", s->path);
	if (fd >= 0)
		close(fd);
	return 0;
}

/* Whether somebody else made it, meanwhile or long ago. */
static int check_kind(const struct store *s, enum file_kind kind, struct err *e)
{
	if (kind == FILE_NVIDB)
		return err_set(e, -EMEDIUMTYPE,
			"%s was made by the Python nvidb; `gpustow queue import-nvidb %s` takes its jobs over, and until then nothing there is touched",
			s->path, s->path);
	if (kind == FILE_STRANGE)
		return err_set(e, -EMEDIUMTYPE,
			"%s isn't a queue database of gpustow, and is left alone; name another place with --db-path, or move it away",
			s->path);
	return 0;
}

/* A log's shared memory doesn't work there: with the file to ourselves SQLite does without. */
static int leave_wal(struct store *s, bool is_wal, struct err *e)
{
	return s->is_on_network && is_wal ? db_exec(s, "PRAGMA locking_mode=EXCLUSIVE", e) : 0;
}

static int prepare_locked(struct store *s, struct err *e)
{
	enum file_kind kind;
	bool is_wal;
	int r = file_look(s->path, &kind, &is_wal, e);

	if (r == 0)
		r = check_kind(s, kind, e);
	if (r == 0 && kind == FILE_NEW)
		r = make_file(s, e);
	if (r == 0)
		r = store_connect(s, SQLITE_OPEN_READWRITE, e);
	if (r == 0)
		r = leave_wal(s, is_wal, e);
	if (r == 0 && kind == FILE_OURS)
		r = read_identity(s, e);
	if (r == 0 && s->is_elsewheres)
		r = err_set(e, -EROFS,
			"the queue's database %s belongs to another machine and has to be changed before this one can read it; use it there",
			s->path);
	if (r == 0)
		r = upgrade(s, e);
	if (r == 0)
		r = set_journal(s, e);
	store_disconnect(s);
	return r;
}

/* Under the lock: a new file is made, an older one brought up to date. */
static int prepare(struct store *s, struct err *e)
{
	int r = s->mode == STORE_WRITE ? make_directory(s, e) : 0;

	if (r == 0)
		r = lock_take(s, s->lock_wait_ms, e);
	if (r < 0)
		return r;
	r = prepare_locked(s, e);
	lock_drop(s);
	return r;
}

/* ---- opening ---- */

/*
 * On a network's disk another machine's locks aren't seen: a change that's under way there looks like one that was
 * interrupted, and whoever may write would take it back.
 */
static bool may_be_elsewheres(const struct store *s)
{
	char key[65];

	if (!s->is_on_network)
		return false;
	file_machine_key(s->path, key);
	return key[0] && strcmp(key, s->machine_key) != 0;
}

static int open_checked(struct store *s, bool *ret_old, struct err *e)
{
	bool may_write = s->mode == STORE_WRITE && !may_be_elsewheres(s);
	int version = 0, r;

	*ret_old = false;
	r = store_connect(s, may_write ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY, e);
	if (r == 0)
		r = schema_version(s, &version, e);
	if (r == 0 && version > STORE_VERSION)
		r = too_new(s, version, e);
	if (r == 0 && version < STORE_VERSION) {
		*ret_old = true;
		store_disconnect(s);
		return 0;
	}
	return r == 0 ? read_identity(s, e) : r;
}

/* Whether a change was interrupted (its writer was killed), and has to be taken back before anybody can read. */
static bool is_half_changed(const struct store *s)
{
	return s->db && sqlite3_extended_errcode(s->db) == SQLITE_READONLY_ROLLBACK;
}

/* SQLite takes it back at the first look of a connection that may write. */
static int take_back(struct store *s, struct err *e)
{
	int version, r;

	store_disconnect(s);
	if (may_be_elsewheres(s))
		return err_set(e, -EROFS,
			"the queue's database %s was left in the middle of a change, or is being changed, on the machine that it belongs to; try again, or give a command there (`gpustow queue status`)",
			s->path);
	r = lock_take(s, s->lock_wait_ms, e);
	if (r < 0)
		return r;
	r = store_connect(s, SQLITE_OPEN_READWRITE, e);
	if (r == 0)
		r = schema_version(s, &version, e);
	store_disconnect(s);
	lock_drop(s);
	return r;
}

static int open_file(struct store *s, struct err *e)
{
	enum file_kind kind;
	bool is_wal, is_old;
	int r = file_look(s->path, &kind, &is_wal, e);

	if (r == 0)
		r = check_kind(s, kind, e);
	if (r < 0)
		return r;
	if (kind == FILE_NEW && s->mode == STORE_READ)
		return err_set(e, -ENOENT,
			"there's no queue at %s yet; `gpustow job submit` makes one", s->path);
	s->is_on_network = file_is_on_network(s->path);
	if (kind == FILE_NEW || is_wal == s->is_on_network) {
		r = prepare(s, e);
		if (r < 0)
			return r;
	}
	r = open_checked(s, &is_old, e);
	if (r < 0 && is_half_changed(s)) {
		r = take_back(s, e);
		if (r == 0)
			r = open_checked(s, &is_old, e);
	}
	if (r == 0 && is_old) {
		r = prepare(s, e);
		if (r == -EACCES || r == -EROFS || r == -EPERM)
			return err_set(e, -EACCES,
				"the queue's database %s was made by an older gpustow and has to be brought up to date, which may not be done from here: give its owner's account a command first (`gpustow queue status`)",
				s->path);
		if (r == 0)
			r = open_checked(s, &is_old, e);
	}
	if (r == 0 && s->is_elsewheres && s->mode == STORE_WRITE) {
		store_disconnect(s);
		r = store_connect(s, SQLITE_OPEN_READONLY, e);
	}
	return r == 0 ? file_identity(s->path, &s->dev, &s->ino) : r;
}

int store_open(const char *path, const struct store_options *o, struct store **ret, struct err *e)
{
	struct store *s = xcalloc(1, sizeof(*s));
	int r = 0;

	s->path = xstrdup(path);
	s->mode = o->mode;
	s->lock_fd = -1;
	s->lock_wait_ms = o->lock_wait_ms ? o->lock_wait_ms : STORE_LOCK_WAIT_MS;
	s->wall_ms = o->wall_ms ? o->wall_ms : clock_wall_ms;
	s->pid = getpid();
	if (o->machine_key)
		snprintf(s->machine_key, sizeof(s->machine_key), "%s", o->machine_key);
	else
		r = proc_machine_key(s->machine_key);
	if (r < 0)
		err_sys(e, r, "cannot tell which machine this is");
	row_init(s);
	if (r == 0)
		r = open_file(s, e);
	if (r < 0) {
		store_close(s);
		return r;
	}
	*ret = s;
	return 0;
}

void store_close(struct store *s)
{
	if (!s)
		return;
	if (s->in_txn)
		store_abort(s);
	store_disconnect(s);
	if (s->lock_fd >= 0)
		close(s->lock_fd);
	row_done(s);
	free(s->path);
	free(s);
}
