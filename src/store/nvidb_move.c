/*
 * A Python nvidb's database gives its place to ours. The order of the steps is what matters:
 *
 *   1. "<queue>.new" is made, filled and closed: whole, durable, without a log.
 *   2. The Python's file gets a second name, "<queue>-nvidb.db", and its log that name's.
 *   3. The log's first name goes: SQLite would take it for the new file's.
 *   4. "<queue>.new" is renamed over the first name. From here on the queue is ours.
 *
 * Killed before 2, nothing has happened. Killed before 4, both names are one file, by which the next call knows that the log
 * is at the second name. A lock beside the place keeps out another take-over.
 */
#include "store/store_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* queue.db: queue-nvidb.db. */
static char *moved_name(const char *path)
{
	size_t n = strlen(path);

	if (n > 3 && strcmp(path + n - 3, ".db") == 0)
		return xasprintf("%.*s-nvidb.db", (int)(n - 3), path);
	return xasprintf("%s-nvidb.db", path);
}

static bool is_there(const char *path)
{
	return access(path, F_OK) == 0;
}

int file_close_whole(struct store *s, struct err *e)
{
	int busy = 0, rc = SQLITE_OK, r;

	r = lock_take(s, s->lock_wait_ms, e);
	if (r < 0)
		return r;
	if (!s->is_on_network)
		rc = sqlite3_wal_checkpoint_v2(
			s->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, &busy, NULL);
	lock_drop(s);
	return rc == SQLITE_OK ? 0 : db_error(s, rc, e);
}

static int import_into(struct store *s, const char *from, struct store_imported *ret, struct err *e)
{
	int r = store_begin(s, NULL, e);

	if (r < 0)
		return r;
	r = store_import_nvidb(s, from, ret, e);
	if (r < 0) {
		store_abort(s);
		return r;
	}
	return store_commit(s, e);
}

static int make_new(const char *from, const char *path, const struct store_options *o,
	struct store_imported *ret, struct err *e)
{
	struct store *s;
	int fd, r;

	file_remove_whole(path);
	r = store_open(path, o, &s, e);
	if (r < 0)
		return r;
	r = import_into(s, from, ret, e);
	if (r == 0)
		r = file_close_whole(s, e);
	store_close(s);
	if (r < 0)
		return r;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fsync(fd) < 0)
		r = err_sys(e, -errno, "cannot make %s durable", path);
	if (fd >= 0)
		close(fd);
	file_remove_beside(path);
	return r;
}

/* A second name for what is there; one that it has already is fine. */
static int give_name(const char *from, const char *to, const char *end, struct err *e)
{
	CLEANUP_FREE char *a = xasprintf("%s%s", from, end), *b = xasprintf("%s%s", to, end);

	if (link(a, b) == 0 || errno == ENOENT || (errno == EEXIST && file_is_same(a, b)))
		return 0;
	return err_sys(e, -errno, "cannot keep %s as %s", a, b);
}

static int point(const char *name, const char *path, struct err *e)
{
	int r = fault_point(name);

	return r < 0 ? err_sys(e, r, "cannot take over %s", path) : 0;
}

/* Steps 2 to 4. */
static int change_places(const char *path, const char *new, const char *moved, struct err *e)
{
	CLEANUP_FREE char *wal = xasprintf("%s-wal", path), *shm = xasprintf("%s-shm", path),
			  *journal = xasprintf("%s-journal", path);
	int r = point("takeover.before-names", path, e);

	/* The log first: while the file has one name, its log is where it was. */
	if (r == 0)
		r = give_name(path, moved, "-wal", e);
	if (r == 0)
		r = give_name(path, moved, "-journal", e);
	if (r == 0)
		r = give_name(path, moved, "", e);
	if (r == 0)
		r = file_sync_dir(path, e);
	if (r < 0)
		return r;
	unlink(wal);
	unlink(journal);
	unlink(shm);
	r = file_sync_dir(path, e);
	if (r == 0)
		r = point("takeover.before-rename", path, e);
	if (r == 0 && rename(new, path) < 0)
		r = err_sys(e, -errno, "cannot put %s in the place of %s", new, path);
	if (r == 0)
		fault_point("takeover.after-rename");
	return r == 0 ? file_sync_dir(path, e) : r;
}

static int take_place(const char *path, const struct store_options *o, struct store_imported *ret,
	char **ret_moved_to, struct err *e)
{
	CLEANUP_FREE char *moved = moved_name(path), *new = xasprintf("%s.new", path);
	bool goes_on = file_is_same(path, moved);
	int r;

	if (is_there(moved) && !goes_on)
		return err_set(e, -EEXIST,
			"%s is there already, and the Python nvidb's database would be kept under that name; move it away",
			moved);
	r = make_new(goes_on ? moved : path, new, o, ret, e);
	if (r == 0)
		r = change_places(path, new, moved, e);
	file_remove_whole(new);
	if (r == 0)
		*ret_moved_to = TAKE_PTR(moved);
	return r;
}

static int take_other(const char *path, const char *target, const struct store_options *o,
	struct store_imported *ret, char **ret_moved_to, struct err *e)
{
	struct store *s;
	int r = store_open(target, o, &s, e);

	if (r < 0)
		return r;
	r = import_into(s, path, ret, e);
	store_close(s);
	if (r == 0)
		*ret_moved_to = NULL;
	return r;
}

int store_take_over_nvidb(const char *path, const char *target, const struct store_options *o,
	struct store_imported *ret, char **ret_moved_to, struct err *e)
{
	struct store_options write = *o;
	struct store lock = {.path = (char *)target, .lock_fd = -1};
	int r;

	write.mode = STORE_WRITE;
	if (!file_is_same(path, target))
		return take_other(path, target, &write, ret, ret_moved_to, e);
	lock.lock_wait_ms = o->lock_wait_ms ? o->lock_wait_ms : STORE_LOCK_WAIT_MS;
	r = lock_take(&lock, lock.lock_wait_ms, e);
	if (r < 0)
		return r;
	r = take_place(target, &write, ret, ret_moved_to, e);
	lock_drop(&lock);
	close(lock.lock_fd);
	return r;
}
