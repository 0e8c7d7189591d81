/* Start and end of the processes behind the queue screen (queue_child.h). */
#include "tui/queue_child.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int serve(const struct queue_screen_options *o, const struct queue_child all[QUEUE_ROLE_N],
	enum queue_role role, int fd)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int i = 0; i < QUEUE_ROLE_N; i++)
		if (all[i].fd >= 0)
			close(all[i].fd);
	for (int i = 0; null >= 0 && i < 3; i++)
		dup2(null, i);
	signal(SIGWINCH, SIG_IGN);
	return o->serve(o->arg, role, fd);
}

int queue_child_start(struct queue_child all[QUEUE_ROLE_N], enum queue_role role,
	const struct queue_screen_options *o, struct err *e)
{
	int pair[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, -errno, "no sockets for the screen's processes");
	pid = fork();
	if (pid < 0) {
		int code = -errno;

		close(pair[0]);
		close(pair[1]);
		return err_sys(e, code, "the screen's processes could not be started");
	}
	if (!pid) {
		close(pair[0]);
		_exit(serve(o, all, role, pair[1]));
	}
	close(pair[1]);
	all[role] = (struct queue_child){.fd = pair[0], .pid = pid};
	return 0;
}

void queue_child_stop(struct queue_child all[QUEUE_ROLE_N], int64_t limit_ms)
{
	int64_t until = clock_boot_ms() + limit_ms;

	for (int i = 0; i < QUEUE_ROLE_N; i++) {
		if (all[i].fd >= 0)
			close(all[i].fd);
		all[i].fd = -1;
		/* A pass ends at its next safe point. */
		if (all[i].pid > 0 && i == QUEUE_TICKS)
			kill(all[i].pid, SIGTERM);
	}
	for (int i = 0; i < QUEUE_ROLE_N; i++)
		while (all[i].pid > 0 && waitpid(all[i].pid, NULL, WNOHANG) == 0 &&
			clock_boot_ms() < until)
			poll(NULL, 0, 5);
}
