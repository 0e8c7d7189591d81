/*
 * Walks over what lies in the root: every claim, once, when an agent starts, and what was staged and never claimed.
 */
#include "agent/claim.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/parse.h"
#include "base/sys.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define STAGE_AGE_MS ((int64_t)3600 * 1000)

static DIR *open_dir_at(int dirfd, const char *path)
{
	int fd = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	DIR *d = fdopendir(fd);
	if (!d)
		close(fd);
	return d;
}

/* A claim with a retired line: the agent died between the line and the removal. */
static bool is_retired(struct root *r, const struct attempt_name *n, char token[ID_LEN])
{
	struct attempt_end end;
	return r->retired && retired_find(r->retired, n, token, &end) == 0;
}

static int visit(struct root *r, const struct attempt_name *n,
	int (*fn)(void *arg, const struct attempt_name *n, int claim_fd), void *arg)
{
	char token[ID_LEN];
	if (is_retired(r, n, token)) {
		claim_remove(r, n, token);
		return 0;
	}
	CLEANUP_CLOSE int fd = claim_open(r, n);
	struct sys_stat st;
	/* An empty directory is no claim: a rename may replace it. */
	if (fd < 0 || sys_stat_at(fd, "spec", AT_SYMLINK_NOFOLLOW, &st) == -ENOENT)
		return 0;
	return fn(arg, n, fd);
}

static int each_of_queue(struct root *r, DIR *claims, const char *queue,
	int (*fn)(void *arg, const struct attempt_name *n, int claim_fd), void *arg)
{
	CLEANUP_CLOSEDIR DIR *d = open_dir_at(dirfd(claims), queue);
	bool is_synced = false;
	if (!d)
		return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
	for (;;) {
		char text[ATTEMPT_NAME_LEN + 256];
		struct attempt_name n;
		errno = 0;
		const struct dirent *entry = readdir(d);
		if (!entry)
			return -errno;
		snprintf(text, sizeof(text), "%s/%s", queue, entry->d_name);
		if (attempt_name_parse(text, &n) < 0)
			continue;
		/* Who renamed it may have died before he could make the name durable; from now on it's believed, and started. */
		if (!is_synced && fsync(dirfd(d)) < 0)
			return -errno;
		is_synced = true;
		int code = visit(r, &n, fn, arg);
		if (code)
			return code;
	}
}

int claim_each(
	struct root *r, int (*fn)(void *arg, const struct attempt_name *n, int claim_fd), void *arg)
{
	CLEANUP_CLOSEDIR DIR *d = open_dir_at(r->fd, "claims");
	if (!d)
		return -errno;
	for (;;) {
		errno = 0;
		const struct dirent *entry = readdir(d);
		if (!entry)
			return -errno;
		if (!id_is_valid(entry->d_name))
			continue;
		int code = each_of_queue(r, d, entry->d_name, fn, arg);
		if (code)
			return code;
	}
}

/* One of those that the next claims are made of; an earlier agent's are only in the way. */
static bool is_spare(const struct root *r, const char *name)
{
	int64_t i;
	return strncmp(name, "spare-", 6) == 0 && parse_int64(name + 6, &i) == 0 && i >= 0 &&
	       i < r->n_spares;
}

void claim_sweep_stage(struct root *r, int64_t now_wall_ms)
{
	CLEANUP_CLOSEDIR DIR *d = open_dir_at(r->fd, "new");
	const struct dirent *entry;
	while (d && (entry = readdir(d))) {
		struct sys_stat st;
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
			sys_stat_at(dirfd(d), entry->d_name, AT_SYMLINK_NOFOLLOW, &st) < 0)
			continue;
		bool is_old = st.mtime_ns / 1000000 < now_wall_ms - STAGE_AGE_MS;
		if (is_spare(r, entry->d_name))
			continue;
		if (is_old || strncmp(entry->d_name, "gone-", 5) == 0 ||
			strncmp(entry->d_name, "spare-", 6) == 0)
			fd_remove_tree_at(dirfd(d), entry->d_name);
	}
}
