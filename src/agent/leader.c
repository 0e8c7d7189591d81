/*
 * Forks the job's first process and turns it into the job (leader.h). Between fork and exec only system calls are made.
 */
#include "agent/leader.h"
#include "base/buf.h"
#include "base/fd.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum step { STEP_OUTPUT, STEP_ERROR_OUTPUT, STEP_CWD, STEP_EXEC };

struct failure {
	int32_t step;
	int32_t code;
};

static const char *const step_words[] = {
	[STEP_OUTPUT] = "cannot open the output file",
	[STEP_ERROR_OUTPUT] = "cannot open the file for stderr",
	[STEP_CWD] = "cannot change to the directory",
	[STEP_EXEC] = "cannot execute",
};

const int leader_ignored[LEADER_N_IGNORED] = {
	SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGTTOU, SIGTTIN};

/* Whatever is ignored stays ignored in a new program, so everything goes back to its default. */
static void reset_signals(void)
{
	struct sigaction action = {.sa_handler = SIG_DFL};
	sigset_t none;
	for (size_t i = 0; i < LEADER_N_IGNORED; i++)
		sigaction(leader_ignored[i], &action, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* In a job's own directory nothing of that name was there, so a link is somebody else's doing. */
static int open_output(const struct claim_spec *s, const char *path)
{
	int flags = O_WRONLY | O_CREAT | O_APPEND | O_NOCTTY | O_CLOEXEC;
	return open(path, s->dir ? flags | O_NOFOLLOW : flags, 0600);
}

static enum step become_job(const struct claim_spec *s)
{
	int fd = open_output(s, s->output);
	if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0)
		return STEP_OUTPUT;
	if (s->error_output) {
		fd = open_output(s, s->error_output);
		if (fd < 0 || dup2(fd, 2) < 0)
			return STEP_ERROR_OUTPUT;
	}
	umask((mode_t)s->umask_bits);
	if (chdir(s->cwd) < 0)
		return STEP_CWD;
	execve(s->argv[0], s->argv, s->env);
	return STEP_EXEC;
}

__attribute__((noreturn)) static void leader_main(
	const struct claim_spec *s, int hold_fd, int error_fd)
{
	char byte;
	ssize_t n;
	const int keep[] = {
		hold_fd < error_fd ? hold_fd : error_fd, hold_fd < error_fd ? error_fd : hold_fd};
	/* It may be held for long: no end of the shim's own door may stay open here. */
	fd_close_from(3, keep, 2);
	setsid();
	do
		n = read(hold_fd, &byte, 1);
	while (n < 0 && errno == EINTR);
	reset_signals();
	if (n != 1) {
		/* The shim died. An exit code would be taken for the job's; this can't be. */
		kill(getpid(), SIGKILL);
		_exit(127);
	}
	struct failure f = {.step = become_job(s)};
	f.code = errno;
	fd_write_all(error_fd, &f, sizeof(f));
	_exit(127);
}

int leader_fork(const struct claim_spec *s, struct leader *ret)
{
	int hold[2], error[2];
	if (pipe2(hold, O_CLOEXEC) < 0)
		return -errno;
	if (pipe2(error, O_CLOEXEC | O_NONBLOCK) < 0) {
		int code = -errno;
		close(hold[0]);
		close(hold[1]);
		return code;
	}
	/*
	 * The shim ignores most signals, and the leader would until it resets them: a stop that comes as early as that must
	 * wait, and a blocked signal does, even where it's ignored.
	 */
	sigset_t all, before;
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before);
	pid_t pid = fork();
	int code = pid < 0 ? -errno : 0;
	if (pid != 0)
		sigprocmask(SIG_SETMASK, &before, NULL);
	if (pid == 0) {
		/* Else the leader would hold its own door open after the shim's death. */
		close(hold[1]);
		leader_main(s, hold[0], error[1]);
	}
	close(hold[0]);
	close(error[1]);
	if (code < 0) {
		close(hold[1]);
		close(error[0]);
		return code;
	}
	*ret = (struct leader){.pid = pid, .hold_fd = hold[1], .error_fd = error[0]};
	return 0;
}

static void close_end(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void leader_let_go(struct leader *l)
{
	fd_write_all(l->hold_fd, "", 1);
	close_end(&l->hold_fd);
}

void leader_fill_failure(const char *what, int code, const char *path, struct attempt_end *ret)
{
	struct buf b = {0};
	buf_printf(&b, "%s (%s)%s", what, strerror(code), path ? ": " : "");
	if (path)
		text_put_clean(&b, path, strlen(path));
	size_t n = b.len < sizeof(ret->text) ? b.len : sizeof(ret->text) - 1;
	n = utf8_valid_len(b.data, n);
	memset(ret->text, 0, sizeof(ret->text));
	memcpy(ret->text, b.data, n);
	buf_done(&b);
	ret->how = END_LAUNCH_FAILED;
	ret->code = code;
	ret->by_signal = false;
}

int leader_failure(struct leader *l, const struct claim_spec *s, struct attempt_end *ret)
{
	struct failure f;
	ssize_t n = l->error_fd < 0 ? 0 : read(l->error_fd, &f, sizeof(f));
	close_end(&l->error_fd);
	close_end(&l->hold_fd);
	if (n != sizeof(f) || f.step < STEP_OUTPUT || f.step > STEP_EXEC)
		return 0;
	const char *const paths[] = {[STEP_OUTPUT] = s->output,
		[STEP_ERROR_OUTPUT] = s->error_output,
		[STEP_CWD] = s->cwd,
		[STEP_EXEC] = s->argv[0]};
	leader_fill_failure(step_words[f.step], f.code, paths[f.step], ret);
	return 1;
}
