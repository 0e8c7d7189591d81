/* Runs a program and keeps its output: see capture.h. */
#include "cli/capture.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>

static int spawn(const char *const *argv, int out, int complaints, pid_t *ret)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t usual, none;
	int r;

	sigemptyset(&none);
	sigemptyset(&usual);
	sigaddset(&usual, SIGPIPE);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, out, 1);
	posix_spawn_file_actions_adddup2(&actions, complaints, 2);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setsigdefault(&attr, &usual);
	posix_spawnattr_setsigmask(&attr, &none);
	/* A group of its own: what it started goes with it when the time is over. */
	posix_spawnattr_setflags(
		&attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
	r = posix_spawnp(ret, argv[0], &actions, &attr, (char *const *)(uintptr_t)argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attr);
	return -r;
}

/* False at its end. */
static bool drain(int fd, struct buf *b, size_t max)
{
	char bytes[8192];
	ssize_t n = read(fd, bytes, sizeof(bytes));

	if (n > 0 && b->len < max)
		buf_put(b, bytes, (size_t)n < max - b->len ? (size_t)n : max - b->len);
	return n > 0 || (n < 0 && errno == EINTR);
}

static int drain_both(int fds[2], int64_t end, size_t max, struct buf *out, struct buf *complaints)
{
	struct pollfd p[] = {{.fd = fds[0], .events = POLLIN}, {.fd = fds[1], .events = POLLIN}};
	struct buf *bufs[] = {out, complaints};

	while (p[0].fd >= 0 || p[1].fd >= 0) {
		int64_t left = end - clock_boot_ms();
		int n = left > 0 ? poll(p, 2, (int)left) : 0;

		if (n == 0)
			return -ETIMEDOUT;
		if (n < 0 && errno != EINTR)
			return -errno;
		for (int i = 0; n > 0 && i < 2; i++)
			if (p[i].fd >= 0 && p[i].revents && !drain(p[i].fd, bufs[i], max))
				p[i].fd = -1;
	}
	return 0;
}

static int reap(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return 127;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int capture(const char *const *argv, int64_t limit_ms, size_t max, struct buf *out,
	struct buf *complaints, int *ret_code, struct err *e)
{
	int64_t end = clock_boot_ms() + limit_ms;
	int pipes[2][2], fds[2], r;
	pid_t pid;

	if (pipe2(pipes[0], O_CLOEXEC) < 0)
		return err_sys(e, -errno, "cannot make a pipe");
	if (pipe2(pipes[1], O_CLOEXEC) < 0) {
		r = -errno;
		close(pipes[0][0]);
		close(pipes[0][1]);
		return err_sys(e, r, "cannot make a pipe");
	}
	fds[0] = pipes[0][0];
	fds[1] = pipes[1][0];
	r = spawn(argv, pipes[0][1], pipes[1][1], &pid);
	close(pipes[0][1]);
	close(pipes[1][1]);
	if (r == 0) {
		r = drain_both(fds, end, max, out, complaints);
		if (r < 0)
			kill(-pid, SIGKILL);
		*ret_code = reap(pid);
		if (r < 0)
			err_sys(e, r, "%s doesn't come to an end", argv[0]);
	} else {
		err_sys(e, r, "cannot start %s", argv[0]);
	}
	close(fds[0]);
	close(fds[1]);
	return r;
}
