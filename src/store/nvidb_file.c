/*
 * Opening a Python nvidb's database without touching it. SQLite's own read-only mode would make files beside it, or fail
 * where it may not; so a database that was closed properly is read as one that can't change, and one whose log or journal
 * was left behind is copied first. Whether it stayed the same meanwhile is looked at afterwards.
 */
#include "store/store_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/sys.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const ends[NVIDB_FILES] = {"", "-wal", "-journal"};

static int stamp(const char *path, const char *end, struct nvidb_stamp *ret, struct err *e)
{
	CLEANUP_FREE char *name = xasprintf("%s%s", path, end);
	struct sys_stat st;
	int r = sys_stat_at(AT_FDCWD, name, 0, &st);

	*ret = (struct nvidb_stamp){0};
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return err_sys(e, r, "cannot look at %s", name);
	*ret = (struct nvidb_stamp){.is_there = true,
		.dev = st.dev,
		.ino = st.ino,
		.size = (int64_t)st.size,
		.mtime_ns = st.mtime_ns};
	return 0;
}

static int stamp_all(const char *path, struct nvidb_stamp ret[NVIDB_FILES], struct err *e)
{
	int r = 0;

	for (int i = 0; r == 0 && i < NVIDB_FILES; i++)
		r = stamp(path, ends[i], &ret[i], e);
	return r;
}

/* A scheduler at work would go on starting jobs that are ours by then. */
static int check_nobody(const char *path, struct err *e)
{
	pid_t pid = file_user(path);

	if (!pid)
		return 0;
	return err_set(e, -EBUSY,
		"process %d has %s open: end the Python nvidb (its daemon, keeper and screens) on all machines, then try again",
		(int)pid, path);
}

static int copy_file(const char *path, const char *dir, const char *end, struct err *e)
{
	CLEANUP_FREE char *from = xasprintf("%s%s", path, end),
			  *to = xasprintf("%s/db%s", dir, end), *bytes = xmalloc(1 << 20);
	CLEANUP_CLOSE int in = open(from, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	CLEANUP_CLOSE int out = -1;
	ssize_t n;
	int r = 0;

	if (in < 0)
		return err_sys(e, -errno, "cannot read %s", from);
	out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (out < 0)
		return err_sys(e, -errno, "cannot copy %s to %s", from, to);
	while (r == 0 && (n = read(in, bytes, 1 << 20)) != 0)
		r = n < 0 ? -errno : fd_write_all(out, bytes, (size_t)n);
	return r < 0 ? err_sys(e, r, "cannot copy %s to %s", from, to) : 0;
}

static int copy_all(struct nvidb_source *src, struct err *e)
{
	const char *tmp = getenv("TMPDIR");
	CLEANUP_FREE char *dir = xasprintf("%s/gpustow-nvidb-XXXXXX", tmp && *tmp ? tmp : "/tmp");
	int r = 0;

	if (!mkdtemp(dir))
		return err_sys(e, -errno, "cannot make a directory for a copy of %s; set TMPDIR",
			src->path);
	src->copy = TAKE_PTR(dir);
	for (int i = 0; r == 0 && i < NVIDB_FILES; i++) {
		if (src->stamps[i].is_there)
			r = copy_file(src->path, src->copy, ends[i], e);
	}
	return r == 0 ? nvidb_is_unchanged(src, e) : r;
}

static int connect_source(struct nvidb_source *src, struct err *e)
{
	CLEANUP_FREE char *name =
		src->copy ? xasprintf("%s/db", src->copy) : file_immutable_uri(src->path);
	int flags = src->copy ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY | SQLITE_OPEN_URI;
	int rc = sqlite3_open_v2(
		name, &src->db, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL);

	if (rc != SQLITE_OK)
		return err_set(
			e, db_errno(rc), "cannot open %s: %s", src->path, sqlite3_errstr(rc));
	sqlite3_db_config(src->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	return 0;
}

int nvidb_open(const char *path, struct nvidb_source *ret, struct err *e)
{
	struct nvidb_source src = {.path = xstrdup(path)};
	enum file_kind kind;
	bool is_wal;
	int r = file_look(path, &kind, &is_wal, e);

	if (r == 0 && kind == FILE_NEW)
		r = err_set(e, -ENOENT, "there's no Python nvidb's database at %s", path);
	if (r == 0 && kind == FILE_OURS)
		r = err_set(e, -EMEDIUMTYPE, "%s is gpustow's own already", path);
	if (r == 0 && kind == FILE_STRANGE)
		r = err_set(e, -EMEDIUMTYPE, "%s isn't a Python nvidb's database", path);
	if (r == 0)
		r = check_nobody(path, e);
	if (r == 0)
		r = stamp_all(path, src.stamps, e);
	if (r == 0 && ((src.stamps[1].is_there && src.stamps[1].size) || src.stamps[2].is_there))
		r = copy_all(&src, e);
	if (r == 0)
		r = connect_source(&src, e);
	if (r < 0) {
		nvidb_close(&src);
		return r;
	}
	*ret = src;
	return 0;
}

int nvidb_is_unchanged(const struct nvidb_source *src, struct err *e)
{
	struct nvidb_stamp now[NVIDB_FILES];
	int r = check_nobody(src->path, e);

	if (r == 0)
		r = stamp_all(src->path, now, e);
	for (int i = 0; r == 0 && i < NVIDB_FILES; i++) {
		const struct nvidb_stamp *a = &src->stamps[i], *b = &now[i];

		if (a->is_there != b->is_there || a->ino != b->ino || a->dev != b->dev ||
			a->size != b->size || a->mtime_ns != b->mtime_ns)
			r = err_set(e, -EBUSY,
				"%s was written to while it was read: end the Python nvidb on all machines, then try again",
				src->path);
	}
	return r;
}

void nvidb_close(struct nvidb_source *src)
{
	sqlite3_close(src->db);
	if (src->copy)
		fd_remove_tree_at(AT_FDCWD, src->copy);
	free(src->copy);
	free(src->path);
	*src = (struct nvidb_source){0};
}
