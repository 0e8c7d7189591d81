/*
 * The border to SQLite: statements that are kept, arguments by letters, and the one place where its codes become -errno
 * and a sentence. A failure of the disk inside a transaction spoils that transaction.
 */
#include "store/store_inner.h"

#include "base/alloc.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

int db_errno(int rc)
{
	switch (rc & 0xff) {
	case SQLITE_OK:
		return 0;
	case SQLITE_FULL:
		return -ENOSPC;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return -EBUSY;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return -EBADMSG;
	case SQLITE_READONLY:
		return -EROFS;
	case SQLITE_CANTOPEN:
	case SQLITE_PERM:
	case SQLITE_AUTH:
		return -EACCES;
	case SQLITE_CONSTRAINT:
		return -EEXIST;
	case SQLITE_TOOBIG:
		return -E2BIG;
	case SQLITE_INTERRUPT:
		return -EINTR;
	default:
		return -EIO;
	}
}

int db_error(struct store *s, int rc, struct err *e)
{
	int code = db_errno(rc);
	const char *why = s->db ? sqlite3_errmsg(s->db) : sqlite3_errstr(rc);

	if (s->in_txn && code != -EEXIST && code != -E2BIG)
		s->is_broken = true;
	switch (code) {
	case -EBADMSG:
		return err_set(e, code,
			"the queue's database %s is damaged (%s); move it aside and put a backup in its place: jobs that run are not harmed",
			s->path, why);
	case -ENOSPC:
		return err_set(e, code,
			"no room on the disk for the queue's database %s; nothing was changed",
			s->path);
	case -EROFS:
	case -EACCES:
		return err_set(
			e, code, "cannot write to the queue's database %s: %s", s->path, why);
	case -EBUSY:
		return err_set(e, code,
			"another program holds the queue's database %s; end it, or try again",
			s->path);
	case -EIO:
		return err_set(e, code,
			"the disk of the queue's database %s gave an error (%s); look at what was changed last before trying again",
			s->path, why);
	default:
		return err_set(e, code, "the queue's database %s: %s", s->path, why);
	}
}

sqlite3_stmt *db_kept(struct store *s, const char *sql, struct err *e)
{
	struct db_kept *k;
	int rc;

	for (size_t i = 0; i < s->n_kept; i++) {
		if (s->kept[i].sql == sql) {
			sqlite3_reset(s->kept[i].st);
			return s->kept[i].st;
		}
	}
	GROW(s->kept, s->n_kept, s->cap_kept);
	k = &s->kept[s->n_kept];
	rc = sqlite3_prepare_v3(s->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &k->st, NULL);
	if (rc != SQLITE_OK) {
		db_error(s, rc, e);
		return NULL;
	}
	k->sql = sql;
	s->n_kept++;
	return k->st;
}

void db_forget(struct store *s)
{
	for (size_t i = 0; i < s->n_kept; i++)
		sqlite3_finalize(s->kept[i].st);
	free(s->kept);
	s->kept = NULL;
	s->n_kept = s->cap_kept = 0;
}

static void bind_int(sqlite3_stmt *st, int i, int64_t v, int64_t null, bool has_null)
{
	if (has_null && v == null)
		sqlite3_bind_null(st, i);
	else
		sqlite3_bind_int64(st, i, v);
}

static void bind_args(sqlite3_stmt *st, const char *args, va_list ap)
{
	assert((int)strlen(args) == sqlite3_bind_parameter_count(st));
	for (int i = 1; *args; args++, i++) {
		const char *text;

		switch (*args) {
		case 'i':
			bind_int(st, i, va_arg(ap, int64_t), 0, false);
			break;
		case 'o':
			bind_int(st, i, va_arg(ap, int64_t), -1, true);
			break;
		case 'z':
			bind_int(st, i, va_arg(ap, int64_t), 0, true);
			break;
		case 'b':
			sqlite3_bind_int(st, i, va_arg(ap, int) != 0);
			break;
		default:
			text = va_arg(ap, const char *);
			sqlite3_bind_text(st, i, text, -1, SQLITE_STATIC);
		}
	}
}

int db_next(struct store *s, sqlite3_stmt *st, struct err *e)
{
	int rc = sqlite3_step(st);
	int r;

	if (rc == SQLITE_ROW)
		return 1;
	r = rc == SQLITE_DONE ? 0 : db_error(s, rc, e);
	sqlite3_reset(st);
	return r;
}

void db_done(sqlite3_stmt *st)
{
	if (st)
		sqlite3_reset(st);
}

static int ask(struct store *s, sqlite3_stmt **ret_st, struct err *e, const char *sql,
	const char *args, va_list ap)
{
	sqlite3_stmt *st = db_kept(s, sql, e);
	int r;

	if (!st)
		return db_errno(sqlite3_extended_errcode(s->db));
	bind_args(st, args, ap);
	r = db_next(s, st, e);
	if (r > 0)
		*ret_st = st;
	return r;
}

int db_ask(struct store *s, sqlite3_stmt **ret_st, struct err *e, const char *sql, const char *args,
	...)
{
	va_list ap;
	int r;

	va_start(ap, args);
	r = ask(s, ret_st, e, sql, args, ap);
	va_end(ap);
	return r;
}

int db_run(struct store *s, struct err *e, const char *sql, const char *args, ...)
{
	sqlite3_stmt *st = NULL;
	va_list ap;
	int r;

	va_start(ap, args);
	r = ask(s, &st, e, sql, args, ap);
	va_end(ap);
	if (r < 0)
		return r;
	db_done(st);
	return sqlite3_changes(s->db);
}

int db_int(struct store *s, int64_t *ret, struct err *e, const char *sql, const char *args, ...)
{
	sqlite3_stmt *st = NULL;
	va_list ap;
	int r;

	va_start(ap, args);
	r = ask(s, &st, e, sql, args, ap);
	va_end(ap);
	if (r <= 0)
		return r;
	r = sqlite3_column_type(st, 0) != SQLITE_NULL;
	if (r)
		*ret = sqlite3_column_int64(st, 0);
	db_done(st);
	return r;
}

int db_exec(struct store *s, const char *sql, struct err *e)
{
	int rc = sqlite3_exec(s->db, sql, NULL, NULL, NULL);

	return rc == SQLITE_OK ? 0 : db_error(s, rc, e);
}

char *db_text(sqlite3_stmt *st, int col)
{
	const unsigned char *text = sqlite3_column_text(st, col);

	return text ? xstrndup((const char *)text, (size_t)sqlite3_column_bytes(st, col)) : NULL;
}

int64_t db_i64(sqlite3_stmt *st, int col, int64_t null)
{
	return sqlite3_column_type(st, col) == SQLITE_NULL ? null : sqlite3_column_int64(st, col);
}

int db_read_begin(struct store *s, bool *ret_mine, struct err *e)
{
	int r;

	*ret_mine = false;
	if (!sqlite3_get_autocommit(s->db))
		return 0;
	r = db_run(s, e, "BEGIN", "");
	if (r < 0)
		return r;
	*ret_mine = true;
	return 0;
}

void db_read_end(struct store *s, bool mine)
{
	if (mine)
		db_run(s, NULL, "COMMIT", "");
}
