/*
 * The log beside the database, as a name in its directory. SQLite syncs the directory once in every process that commits,
 * because it can't tell a log that it made from one that was there. We can: the name is made durable when it's new, and a
 * command that puts in one job pays for one sync and not for two.
 */
#include "store/store_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/sys.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define LOG "-wal"

static bool is_log(const char *path)
{
	size_t n = strlen(path);

	return n > strlen(LOG) && strcmp(path + n - strlen(LOG), LOG) == 0;
}

static char *directory_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? xstrndup(path, slash == path ? 1 : (size_t)(slash - path)) : xstrdup(".");
}

/* In place of SQLite's own. For a log there's nothing to open, and then it syncs none: os_unix.c, unixSync(). */
static int open_directory(const char *path, int *ret_fd)
{
	CLEANUP_FREE char *dir = NULL;
	int fd;

	if (is_log(path))
		return SQLITE_CANTOPEN;
	dir = directory_of(path);
	fd = open(dir, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return SQLITE_CANTOPEN;
	*ret_fd = fd;
	return SQLITE_OK;
}

static uint64_t inode_of(const char *log)
{
	struct sys_stat st;

	return sys_stat_at(AT_FDCWD, log, AT_SYMLINK_NOFOLLOW, &st) < 0 ? 0 : st.ino;
}

uint64_t wal_before(const struct store *s)
{
	CLEANUP_FREE char *log = xasprintf("%s" LOG, s->path);

	return inode_of(log);
}

int wal_after(const struct store *s, uint64_t before, struct err *e)
{
	sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
	CLEANUP_FREE char *log = xasprintf("%s" LOG, s->path), *dir = NULL;
	uint64_t now = inode_of(log);
	int r;

	if (!now || !vfs || vfs->iVersion < 3 || !vfs->xSetSystemCall)
		return 0;
	if (now != before) {
		dir = directory_of(s->path);
		r = fd_sync_dir_at(AT_FDCWD, dir);
		if (r < 0)
			return err_sys(e, r,
				"cannot write to the directory of the queue's database %s",
				s->path);
	}
	vfs->xSetSystemCall(vfs, "openDirectory", (sqlite3_syscall_ptr)open_directory);
	return 0;
}
