/* A walk over a directory of ours: see disk.h. */
#include "cli/disk.h"

#include "base/cleanup.h"
#include "base/fd.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <fts.h>
#include <string.h>
#include <sys/stat.h>

static FTS *open_walk(const char *path)
{
	char *const paths[] = {(char *)(uintptr_t)path, NULL};

	return fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
}

int64_t disk_usage(const char *path)
{
	FTS *walk = open_walk(path);
	int64_t blocks = 0;
	FTSENT *f;

	while (walk && (f = fts_read(walk)))
		if (f->fts_info != FTS_DP && f->fts_info != FTS_NS && f->fts_info != FTS_ERR &&
			f->fts_statp)
			blocks += f->fts_statp->st_blocks;
	if (walk)
		fts_close(walk);
	return blocks * 512;
}

void disk_put_bytes(struct buf *b, int64_t bytes)
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
	double v = (double)bytes / 1024;
	size_t unit = 0;

	if (bytes < 1024) {
		buf_printf(b, "%lld bytes", (long long)bytes);
		return;
	}
	for (; v >= 1024 && unit + 1 < ARRAY_LEN(units); unit++)
		v /= 1024;
	buf_printf(b, "%.1f %s", v, units[unit]);
}

static pid_t holder_of(const char *path)
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	pid_t pid = 0;

	return fd >= 0 && fd_lock_holder(fd, &pid) == 0 ? pid : 0;
}

pid_t disk_user(const char *path, struct buf *ret_path)
{
	FTS *walk = open_walk(path);
	pid_t pid = 0;
	FTSENT *f;

	while (walk && pid == 0 && (f = fts_read(walk))) {
		if (f->fts_info != FTS_F)
			continue;
		pid = holder_of(f->fts_accpath);
		if (pid != 0)
			buf_puts(ret_path, f->fts_path);
	}
	if (walk)
		fts_close(walk);
	return pid;
}

static const char *const our_names[] = {"config.yml*", "config.lock", "queue.yml*", "gpu_log.db*",
	"queue.db*", "queue-*", "queue.lock*", "alerts.log*", "backups", "jobs", "lanes", "agent",
	"ssh", "ctl"};

bool disk_is_ours(const char *path)
{
	CLEANUP_CLOSEDIR DIR *d = opendir(path);
	struct dirent *entry;

	while (d && (entry = readdir(d))) {
		size_t i = 0;

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		while (i < ARRAY_LEN(our_names) && fnmatch(our_names[i], entry->d_name, 0) != 0)
			i++;
		if (i == ARRAY_LEN(our_names))
			return false;
	}
	return d != NULL;
}
