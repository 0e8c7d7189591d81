/* How a helper process comes to be (helper.h); what it does is its own file's business. */
#include "agent/helper.h"

#include "base/fd.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

static void settle_in(const char *name, pid_t parent, int fd, int keep_fd)
{
	int keep[2] = {fd < keep_fd ? fd : keep_fd, fd < keep_fd ? keep_fd : fd};
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
	prctl(PR_SET_CHILD_SUBREAPER, 0);
	prctl(PR_SET_NAME, name);
	if (keep_fd < 0)
		fd_close_from(3, &fd, 1);
	else
		fd_close_from(3, keep, 2);
	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, sig == SIGPIPE ? SIG_IGN : SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

pid_t helper_fork(const char *name, int keep_fd, helper_fn *run, void *arg, int *ret_fd)
{
	pid_t self = getpid(), pid;
	int sv[2], code;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv))
		return -errno;
	pid = fork();
	code = pid < 0 ? -errno : 0;
	if (pid == 0) {
		settle_in(name, self, sv[1], keep_fd);
		run(sv[1], arg);
		_exit(0);
	}
	close(sv[1]);
	if (code < 0) {
		close(sv[0]);
		return code;
	}
	fd_set_nonblock(sv[0], true);
	*ret_fd = sv[0];
	return pid;
}
