/*
 * Detaching. The lock and the sockets are taken after the fork, in the process that keeps them: fcntl locks don't go
 * through a fork.
 */
#include "agent/detach.h"

#include "base/cleanup.h"
#include "base/fd.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the agent itself and its sampler read. */
static const char *const kept[] = {
	"PATH",
	"LANG",
	"HOME",
	"TZ",
	"LD_LIBRARY_PATH",
	"GPUSTOW_SIM",
	"GPUSTOW_SIM_DIR",
	"GPUSCHED_SIM_DIR",
	"GPUSTOW_NVML_PATH",
	"GPUSTOW_DCGM_PATH",
	"GPUSTOW_NVIDIA_SMI",
	"GPUSTOW_HOST_ROOT",
	"GPUSTOW_AGENT_ROOT",
	"GPUSTOW_AGENT_IDLE",
	"GPUSTOW_PROMISE_DIR",
	"GPUSTOW_FAULT",
	"ASAN_OPTIONS",
	"UBSAN_OPTIONS",
	"LSAN_OPTIONS",
};

bool detach_keeps(const char *variable)
{
	size_t n = strcspn(variable, "=");

	/* Whatever the tests' fake library and fault points are told. */
	if (!strncmp(variable, "GPUSTOW_FAKE_", 13) || !strncmp(variable, "GPUSTOW_TEST_", 13))
		return true;
	for (size_t i = 0; i < ARRAY_LEN(kept); i++)
		if (strlen(kept[i]) == n && !strncmp(variable, kept[i], n))
			return true;
	return false;
}

/*
 * The kernel shows the bytes a program was started with, whatever it unset since: a mark left there would charge the
 * agent and every shim to the job from which the agent was started. So they're wiped where they lie.
 */
static void scrub_environment(void)
{
	size_t n = 0;

	for (size_t i = 0; environ && environ[i]; i++) {
		if (detach_keeps(environ[i]))
			environ[n++] = environ[i];
		else
			memset(environ[i], 0, strlen(environ[i]));
	}
	if (environ)
		environ[n] = NULL;
}

static void become_daemon(struct detach *d)
{
	int null_fd = open("/dev/null", O_RDWR | O_NOCTTY);

	setsid();
	umask(077);
	if (chdir("/") < 0) {
		/* Without a root there's nowhere better. */
	}
	for (int i = 0; null_fd >= 0 && i < 3; i++)
		if (i != null_fd)
			dup2(null_fd, i);
	fd_close_from(3, &d->report_fd, 1);
	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	scrub_environment();
}

/* What the daemon said until it was ready, and how the starter ends. */
static void wait_for_daemon(int fd, pid_t pid, int *ret_status, struct err *e)
{
	CLEANUP(buf_done) struct buf said = {0};
	int status = 0;

	fd_read_all(fd, &said, ERR_TEXT);
	if (said.len == 1 && said.data[0] == '\n') {
		*ret_status = 0;
		return;
	}
	*ret_status = 1;
	if (said.len)
		err_set(e, -EIO, "%s", buf_str(&said));
	else if (waitpid(pid, &status, 0) == pid && WIFSIGNALED(status))
		err_set(e, -EIO, "the agent was killed by signal %d while it started",
			WTERMSIG(status));
	else
		err_set(e, -EIO, "the agent ended while it started (status %d)",
			WEXITSTATUS(status));
}

bool detach_begin(struct detach *d, int *ret_status, struct err *e)
{
	int fds[2];
	pid_t pid;

	*ret_status = 1;
	if (pipe2(fds, O_CLOEXEC)) {
		err_sys(e, -errno, "the agent can't be started");
		return false;
	}
	pid = fork();
	if (pid == 0) {
		close(fds[0]);
		d->report_fd = fds[1];
		become_daemon(d);
		return true;
	}
	close(fds[1]);
	if (pid < 0)
		err_sys(e, -errno, "the agent can't be started");
	else
		wait_for_daemon(fds[0], pid, ret_status, e);
	close(fds[0]);
	return false;
}

void detach_ready(struct detach *d, const char *error)
{
	const char *text = error ? error : "\n";

	fd_write_all(d->report_fd, text, strlen(text));
	close(d->report_fd);
	d->report_fd = -1;
}
