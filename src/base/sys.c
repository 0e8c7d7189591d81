/* System calls by number (see sys.h for why). */
#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel's struct stat of x86-64 and aarch64 as glibc declares it; filled by newfstatat, no glibc symbol needed. */
#include <sys/stat.h>

#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

static int result(long r)
{
	return r < 0 ? -errno : (int)r;
}

int sys_stat_at(int dirfd, const char *path, int flags, struct sys_stat *ret)
{
	struct stat st;
	int r = result(syscall(SYS_newfstatat, dirfd, path, &st, flags));

	if (r < 0)
		return r;
	*ret = (struct sys_stat){
		.mode = st.st_mode,
		.uid = st.st_uid,
		.gid = st.st_gid,
		.size = st.st_size,
		.dev = st.st_dev,
		.ino = st.st_ino,
		.mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
		.nlink = (uint32_t)st.st_nlink,
	};
	return 0;
}

int sys_fstat(int fd, struct sys_stat *ret)
{
	return sys_stat_at(fd, "", AT_EMPTY_PATH, ret);
}

int sys_pidfd_open(pid_t pid)
{
	return result(syscall(SYS_pidfd_open, pid, 0));
}

int sys_pidfd_send_signal(int pidfd, int sig)
{
	return result(syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0));
}

int sys_close_range(unsigned from, unsigned to)
{
	return result(syscall(SYS_close_range, from, to, 0));
}

int sys_getrandom(void *ret, size_t n)
{
	long r = syscall(SYS_getrandom, ret, n, 0);

	if (r < 0)
		return -errno;
	return (size_t)r == n ? 0 : -EIO;
}
