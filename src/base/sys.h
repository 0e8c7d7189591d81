/*
 * System calls by number, for what the agent's ELF may not take from a newer glibc: stat and its family became symbols
 * in 2.33, pidfds in 2.36, close_range in 2.34, getrandom in 2.25. Code in base, core, proc, gpu, sched and agent uses
 * these and never stat, fstat, lstat, fstatat, mknod, getrandom, pidfd_*, close_range, pthread_* or arc4random.
 * All return 0 (or a descriptor) or -errno.
 */
#pragma once

#include <signal.h>
#include <stdint.h>
#include <sys/types.h>

struct sys_stat {
	mode_t mode;
	uid_t uid;
	gid_t gid;
	int64_t size;
	uint64_t dev, ino;
	int64_t mtime_ns;
	uint32_t nlink;
};

/* flags: AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH (with path ""). */
int sys_stat_at(int dirfd, const char *path, int flags, struct sys_stat *ret);
int sys_fstat(int fd, struct sys_stat *ret);
int sys_pidfd_open(pid_t pid);
int sys_pidfd_send_signal(int pidfd, int sig);
int sys_close_range(unsigned from, unsigned to);
int sys_getrandom(void *ret, size_t n);
