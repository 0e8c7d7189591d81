/*
 * What lies at the database's path, found by reading its first bytes: opening another program's file with SQLite can
 * leave files beside it, and a Python nvidb's database is not to be touched at all.
 */
#include "store/store_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/fs.h"
#include "base/parse.h"
#include "base/sys.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER 100
#define WAL_LOOK (4 * 1024 * 1024)
/* The byte of the shared memory on which each connection to a database with a log holds a lock (SQLite's wal.c). */
#define DMS_BYTE 128

/* Shared memory and locks don't reach every client there. */
static bool is_network(const char *dir)
{
#ifdef GPUSTOW_FAULT_POINTS
	if (getenv("GPUSTOW_TEST_NFS"))
		return true;
#endif
	return fs_is_network(dir) > 0;
}

bool file_is_on_network(const char *path)
{
	CLEANUP_FREE char *dir = xstrdup(path);
	char *slash = strrchr(dir, '/');

	if (!slash)
		return is_network(".");
	slash[slash == dir] = '\0';
	return is_network(dir);
}

int file_identity(const char *path, uint64_t *ret_dev, uint64_t *ret_ino)
{
	struct sys_stat st;
	int r = sys_stat_at(AT_FDCWD, path, 0, &st);

	if (r < 0)
		return r;
	*ret_dev = st.dev;
	*ret_ino = st.ino;
	return 0;
}

bool file_is_same(const char *a, const char *b)
{
	uint64_t dev[2], ino[2];

	return file_identity(a, &dev[0], &ino[0]) == 0 && file_identity(b, &dev[1], &ino[1]) == 0 &&
	       dev[0] == dev[1] && ino[0] == ino[1];
}

static pid_t log_user(const char *path)
{
	CLEANUP_FREE char *name = xasprintf("%s-shm", path);
	CLEANUP_CLOSE int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = DMS_BYTE, .l_len = 1};

	return fd < 0 || fcntl(fd, F_GETLK, &l) < 0 || l.l_type == F_UNLCK ? 0 : l.l_pid;
}

/* Its name first: whatever else that process has open may lie on a disk that hangs. */
static bool has_open(const char *pid, const char *real)
{
	CLEANUP_FREE char *dir = xasprintf("/proc/%s/fd", pid);
	CLEANUP_CLOSEDIR DIR *d = opendir(dir);
	const char *name = strrchr(real, '/');
	const struct dirent *entry;

	while (d && (entry = readdir(d))) {
		CLEANUP_FREE char *link = xasprintf("%s/%s", dir, entry->d_name);
		char to[PATH_MAX];
		ssize_t n = readlink(link, to, sizeof(to) - 1);

		if (n <= 0 || !name)
			continue;
		to[n] = '\0';
		if (strrchr(to, '/') && !strcmp(strrchr(to, '/'), name) &&
			(!strcmp(to, real) || file_is_same(link, real)))
			return true;
	}
	return false;
}

/* A process of this account; others' don't say what they have open, and can't open it. */
static pid_t process_with(const char *path)
{
	CLEANUP_FREE char *real = realpath(path, NULL);
	CLEANUP_CLOSEDIR DIR *d = real ? opendir("/proc") : NULL;
	const struct dirent *entry;

	while (d && (entry = readdir(d))) {
		int64_t pid;

		if (parse_int64(entry->d_name, &pid) == 0 && pid > 0 && pid != getpid() &&
			has_open(entry->d_name, real))
			return (pid_t)pid;
	}
	return 0;
}

pid_t file_user(const char *path)
{
	pid_t pid = log_user(path);

	return pid ? pid : process_with(path);
}

int file_sync_dir(const char *path, struct err *e)
{
	CLEANUP_FREE char *dir = xstrdup(path);
	char *slash = strrchr(dir, '/');
	int r;

	if (slash)
		slash[slash == dir] = '\0';
	r = fd_sync_dir_at(AT_FDCWD, slash ? dir : ".");
	return r < 0 ? err_sys(e, r, "cannot make the names beside %s durable", path) : 0;
}

void file_remove_beside(const char *path)
{
	static const char *const ends[] = {"-wal", "-shm", "-journal", ".lock"};

	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		CLEANUP_FREE char *name = xasprintf("%s%s", path, ends[i]);

		unlink(name);
	}
}

void file_remove_whole(const char *path)
{
	unlink(path);
	file_remove_beside(path);
}

char *file_immutable_uri(const char *path)
{
	struct buf b = {0};

	buf_puts(&b, "file:");
	for (const char *p = path; *p; p++) {
		if (strchr("?#%", *p))
			buf_printf(&b, "%%%02x", (unsigned char)*p);
		else
			buf_putc(&b, *p);
	}
	buf_puts(&b, "?immutable=1");
	return buf_take(&b);
}

void file_machine_key(const char *path, char ret[static 65])
{
	CLEANUP_FREE char *uri = file_immutable_uri(path);
	sqlite3_stmt *st = NULL;
	sqlite3 *db = NULL;

	ret[0] = '\0';
	if (sqlite3_open_v2(uri, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, NULL) == SQLITE_OK &&
		sqlite3_prepare_v2(db, "SELECT value FROM meta WHERE key = 'machine_key'", -1, &st,
			NULL) == SQLITE_OK &&
		sqlite3_step(st) == SQLITE_ROW && sqlite3_column_type(st, 0) == SQLITE_TEXT)
		snprintf(ret, 65, "%s", (const char *)sqlite3_column_text(st, 0));
	sqlite3_finalize(st);
	sqlite3_close(db);
}

static bool has_schema_version(const char *path)
{
	CLEANUP_FREE char *uri = file_immutable_uri(path);
	sqlite3_stmt *st = NULL;
	sqlite3 *db = NULL;
	bool is = false;

	if (sqlite3_open_v2(uri, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, NULL) == SQLITE_OK &&
		sqlite3_prepare_v2(db,
			"SELECT 1 FROM meta, sqlite_master WHERE key = 'schema_version' AND name = 'jobs'",
			-1, &st, NULL) == SQLITE_OK)
		is = sqlite3_step(st) == SQLITE_ROW;
	sqlite3_finalize(st);
	sqlite3_close(db);
	return is;
}

/* Its tables may stand in the log beside it only, when whoever made it was killed. ret: is there such a log at all? */
static bool log_has_schema_version(const char *path, bool *ret_has_log)
{
	CLEANUP_FREE char *name = xasprintf("%s-wal", path);
	CLEANUP_CLOSE int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	CLEANUP_FREE char *bytes = NULL;
	ssize_t n;

	*ret_has_log = false;
	if (fd < 0)
		return false;
	bytes = xmalloc(WAL_LOOK);
	n = pread(fd, bytes, WAL_LOOK, 0);
	*ret_has_log = n > 0;
	return n > 0 && memmem(bytes, (size_t)n, "schema_version", 14);
}

static enum file_kind judge(const char *path, const unsigned char *head, ssize_t n)
{
	uint32_t id;
	bool has_log;

	if (n >= HEADER && memcmp(head, "SQLite format 3", 16) == 0) {
		id = (uint32_t)head[68] << 24 | (uint32_t)head[69] << 16 | (uint32_t)head[70] << 8 |
		     head[71];
		if (id == STORE_APPLICATION_ID)
			return FILE_OURS;
		if (id == 0 && (has_schema_version(path) || log_has_schema_version(path, &has_log)))
			return FILE_NVIDB;
		return FILE_STRANGE;
	}
	if (n > 0)
		return FILE_STRANGE;
	if (log_has_schema_version(path, &has_log))
		return FILE_NVIDB;
	return has_log ? FILE_STRANGE : FILE_NEW;
}

int file_look(const char *path, enum file_kind *ret, bool *ret_wal, struct err *e)
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	unsigned char head[HEADER] = {0};
	struct sys_stat st;
	ssize_t n;
	int r;

	*ret_wal = false;
	if (fd < 0 && errno == ENOENT) {
		*ret = judge(path, head, 0);
		return 0;
	}
	if (fd < 0)
		return err_sys(e, -errno, "cannot open the queue's database %s", path);
	r = sys_fstat(fd, &st);
	if (r == 0 && !S_ISREG(st.mode))
		return err_set(e, -EMEDIUMTYPE,
			"%s is not a plain file; name another place for the queue's database",
			path);
	n = pread(fd, head, sizeof(head), 0);
	if (n < 0)
		return err_sys(e, -errno, "cannot read the queue's database %s", path);
	*ret = judge(path, head, n);
	*ret_wal = head[18] == 2;
	return 0;
}
