/*
 * A backup takes the place of the queue's database. All of the work is done on a copy beside it; then, under the lock:
 *
 *   1. what is there gets a second name, "<queue>-replaced-<time>.db", and its log that name's;
 *   2. its log's first name goes: SQLite would take it for the new file's;
 *   3. the copy is renamed over the first name.
 *
 * Killed anywhere, what was there is whole under one of its names. Where there are no hard links, 1 is a rename.
 */
#include "store/store_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/hash.h"
#include "proc/proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int check_kinds(const char *from, const char *path, struct err *e)
{
	enum file_kind kind;
	bool is_wal;
	int r = file_look(from, &kind, &is_wal, e);

	if (r < 0)
		return r == -EMEDIUMTYPE
			       ? err_set(e, r, "%s isn't a backup: it's no plain file", from)
			       : r;
	if (kind == FILE_NEW)
		return access(from, F_OK) == 0
			       ? err_set(e, -EMEDIUMTYPE, "%s isn't a backup: it's empty", from)
			       : err_set(e, -ENOENT, "there's no backup at %s", from);
	if (kind != FILE_OURS)
		return err_set(e, -EMEDIUMTYPE, "%s isn't a backup of a gpustow queue", from);
	if (file_is_same(from, path))
		return err_set(
			e, -EINVAL, "%s is the queue's database itself; name a backup of it", from);
	r = file_look(path, &kind, &is_wal, e);
	if (r == 0 && (kind == FILE_NVIDB || kind == FILE_STRANGE))
		return err_set(e, -EMEDIUMTYPE,
			"%s isn't a queue database of gpustow, and is left alone; name another place with --db-path, or move it away",
			path);
	return r;
}

/* A damaged database, which is why one restores, tells nothing of its lease: then only who has it open counts. */
static int check_lease(const char *path, const struct store_options *o, struct err *e)
{
	struct store_options read = *o;
	struct store_lease_row l = {0};
	struct err ignored = {0};
	struct store *s;
	int r;

	read.mode = STORE_READ;
	if (store_open(path, &read, &s, &ignored) < 0)
		return 0;
	r = store_lease_read(s, &l, &ignored);
	if (r == 0 && l.is_held && !store_is_elsewheres(s))
		r = err_set(e, -EBUSY,
			"%s is deciding for the queue %s right now: end its daemon and keeper, then restore",
			l.owner ? l.owner : "a process", path);
	free(l.owner);
	store_close(s);
	return r == -EBUSY ? r : 0;
}

static int check_users(const char *path, struct err *e)
{
	pid_t pid = file_user(path);

	return pid ? err_set(e, -EBUSY,
			     "process %d has the queue's database %s open: end it (a daemon, a screen), then restore",
			     (int)pid, path)
		   : 0;
}

/* ---- the copy ---- */

static bool has_beside(const char *path, const char *end)
{
	CLEANUP_FREE char *name = xasprintf("%s%s", path, end);

	return access(name, F_OK) == 0;
}

/* A backup of ours is one file; somebody's own copy of a database may have its log beside it. */
static int copy_backup(const char *from, const char *to, const char *machine_key, struct err *e)
{
	const struct backup_facts facts = {.machine_key = machine_key};
	bool has_log = has_beside(from, "-wal") || has_beside(from, "-journal");
	CLEANUP_FREE char *uri = has_log ? xstrdup(from) : file_immutable_uri(from);
	sqlite3 *src = NULL;
	int rc = sqlite3_open_v2(uri, &src,
		has_log ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, NULL);
	int r = rc == SQLITE_OK
			? backup_copy(NULL, src, to, &facts, e)
			: err_set(e, db_errno(rc), "cannot open %s: %s", from, sqlite3_errstr(rc));

	sqlite3_close(src);
	return r < 0 ? err_wrap(e, r, "%s can't be restored", from) : 0;
}

/* Of today's version, with a new incarnation; one file. */
static int adopt_copy(const char *new, const struct store_options *o, struct err *e)
{
	struct store_options write = *o;
	struct store *s;
	int r;

	write.mode = STORE_WRITE;
	r = store_open(new, &write, &s, e);
	if (r < 0)
		return r;
	r = store_adopt(s, e);
	if (r == 0)
		r = file_close_whole(s, e);
	store_close(s);
	return r;
}

static int make_copy(
	const char *from, const char *new, const struct store_options *o, struct err *e)
{
	char key[65] = "";
	int fd, r = o->machine_key ? 0 : proc_machine_key(key);

	if (r < 0)
		return err_sys(e, r, "cannot tell which machine this is");
	fd = open(new, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(e, -errno, "cannot make %s", new);
	close(fd);
	r = copy_backup(from, new, o->machine_key ? o->machine_key : key, e);
	if (r == 0)
		r = adopt_copy(new, o, e);
	if (r < 0)
		return r;
	fd = open(new, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fsync(fd) < 0)
		r = err_sys(e, -errno, "cannot make %s durable", new);
	if (fd >= 0)
		close(fd);
	file_remove_beside(new);
	return r;
}

/* ---- changing places ---- */

/* "queue.db": "queue-replaced-20260102T030405Z.db"; a name that's free. */
static char *kept_name(const char *path, int64_t now_ms)
{
	time_t t = (time_t)(now_ms / 1000);
	size_t n = strlen(path);
	bool has_end = n > 3 && !strcmp(path + n - 3, ".db");
	char stamp[32];
	struct tm tm;

	gmtime_r(&t, &tm);
	strftime(stamp, sizeof(stamp), "%Y%m%dT%H%M%SZ", &tm);
	for (int i = 1;; i++) {
		char more[16] = "", *name;

		if (i > 1)
			snprintf(more, sizeof(more), "-%d", i);
		name = xasprintf(
			"%.*s-replaced-%s%s.db", (int)(has_end ? n - 3 : n), path, stamp, more);
		if (!has_beside(name, "") && !has_beside(name, "-wal"))
			return name;
		free(name);
	}
}

static int keep_one(const char *path, const char *kept, const char *end, struct err *e)
{
	CLEANUP_FREE char *a = xasprintf("%s%s", path, end), *b = xasprintf("%s%s", kept, end);

	if (link(a, b) == 0 || errno == ENOENT)
		return 0;
	if (errno != EEXIST && rename(a, b) == 0)
		return 0;
	return err_sys(e, -errno, "cannot keep %s as %s", a, b);
}

static int change_places(const char *path, const char *new, const char *kept, struct err *e)
{
	static const char *const beside[] = {"-wal", "-journal", "-shm"};
	int r = 0;

	if (kept) {
		/* The log first: while the file has one name, its log is where it was. */
		for (size_t i = 0; r == 0 && i < 2; i++)
			r = keep_one(path, kept, beside[i], e);
		if (r == 0)
			r = keep_one(path, kept, "", e);
	}
	if (r == 0)
		r = file_sync_dir(path, e);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(beside); i++) {
		CLEANUP_FREE char *name = xasprintf("%s%s", path, beside[i]);

		unlink(name);
	}
	if (r == 0)
		r = file_sync_dir(path, e);
	if (r == 0)
		fault_point("store.restore-before-rename");
	if (r == 0 && rename(new, path) < 0)
		r = err_sys(e, -errno, "cannot put %s in the place of %s", new, path);
	return r == 0 ? file_sync_dir(path, e) : r;
}

static int restore_locked(const char *from, const char *path, const char *new,
	const struct store_options *o, char **ret_kept, struct err *e)
{
	CLEANUP_FREE char *kept = NULL;
	int r = check_users(path, e);

	if (r == 0)
		r = make_copy(from, new, o, e);
	if (r == 0)
		r = check_users(path, e);
	if (r < 0)
		return r;
	if (has_beside(path, ""))
		kept = kept_name(path, clock_wall_ms());
	r = change_places(path, new, kept, e);
	if (r == 0)
		*ret_kept = TAKE_PTR(kept);
	return r;
}

static int make_directory(const char *path, struct err *e)
{
	CLEANUP_FREE char *dir = xstrdup(path);
	char *slash = strrchr(dir, '/');

	if (!slash || slash == dir)
		return 0;
	*slash = '\0';
	return fd_mkdirs(dir, e);
}

int store_restore(const char *from, const char *path, const struct store_options *o,
	char **ret_kept, struct err *e)
{
	struct store lock = {.path = (char *)path, .lock_fd = -1};
	CLEANUP_FREE char *new = NULL;
	char hex[17];
	int r = check_kinds(from, path, e);

	random_hex(8, hex);
	new = xasprintf("%s.new-%s", path, hex);
	lock.lock_wait_ms = o->lock_wait_ms ? o->lock_wait_ms : STORE_LOCK_WAIT_MS;
	if (r == 0)
		r = make_directory(path, e);
	/* Before the lock: opening an older database takes it, too. Who begins after this has it open when we look again. */
	if (r == 0)
		r = check_lease(path, o, e);
	if (r == 0)
		r = lock_take(&lock, lock.lock_wait_ms, e);
	if (r < 0)
		return r;
	r = restore_locked(from, path, new, o, ret_kept, e);
	file_remove_whole(new);
	lock_drop(&lock);
	close(lock.lock_fd);
	return r;
}
