/*
 * The kernel's own asynchronous calls (io_submit), which take fsync and fdatasync since 4.18. What they don't take, and
 * everything where they're forbidden or used up, is synced here and now.
 */
#include "base/sync.h"

#include <errno.h>
#include <linux/aio_abi.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define AT_ONCE 128
#define PENDING 1

/* It belongs to the process that made it, not to one forked from it. */
static struct {
	aio_context_t context; /* 0: there's none to be had */
	pid_t owner;
} queue;

static bool has_queue(void)
{
	if (queue.owner == getpid())
		return queue.context != 0;
	queue.owner = getpid();
	queue.context = 0;
	if (syscall(SYS_io_setup, AT_ONCE, &queue.context) < 0)
		queue.context = 0;
	return queue.context != 0;
}

static void take_results(struct fd_sync *s, long n)
{
	struct io_event events[AT_ONCE];
	long got;

	do
		got = syscall(SYS_io_getevents, queue.context, n, n, events, NULL);
	while (got < 0 && errno == EINTR);
	for (long i = 0; i < got; i++)
		s[events[i].data].code = (int)events[i].res;
	if (got == n)
		return;
	/* Nobody knows what became of the others: they count as failed, and the queue isn't used again. */
	for (long i = 0; i < n; i++)
		if (s[i].code == PENDING)
			s[i].code = -EIO;
	syscall(SYS_io_destroy, queue.context);
	queue.context = 0;
}

/* At most AT_ONCE. Those that stay PENDING weren't taken. */
static void sync_together(struct fd_sync *s, size_t n)
{
	struct iocb calls[AT_ONCE], *list[AT_ONCE];
	long taken;

	memset(calls, 0, sizeof(calls));
	for (size_t i = 0; i < n; i++) {
		calls[i].aio_fildes = (uint32_t)s[i].fd;
		calls[i].aio_lio_opcode = s[i].is_dir ? IOCB_CMD_FSYNC : IOCB_CMD_FDSYNC;
		calls[i].aio_data = i;
		list[i] = &calls[i];
	}
	taken = syscall(SYS_io_submit, queue.context, (long)n, list);
	if (taken > 0)
		take_results(s, taken);
}

static int sync_now(const struct fd_sync *s)
{
	return (s->is_dir ? fsync(s->fd) : fdatasync(s->fd)) < 0 ? -errno : 0;
}

void fd_sync_all(struct fd_sync *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		s[i].code = PENDING;
	for (size_t at = 0; n > 1 && at < n && has_queue(); at += AT_ONCE)
		sync_together(s + at, n - at < AT_ONCE ? n - at : AT_ONCE);
	for (size_t i = 0; i < n; i++)
		if (s[i].code == PENDING || s[i].code == -EINVAL)
			s[i].code = sync_now(&s[i]);
}
