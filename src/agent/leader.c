/*
 * Makes the job's first process and turns it into the job (leader.h). Between clone and exec only system calls are made.
 */
#include "agent/leader.h"
#include "base/buf.h"
#include "base/fd.h"
#include "base/raw.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#define OLD_FD_MAX 4096
#define STACK_SIZE 16384
#define START_ROOM 64 /* at its end; what is below stays aligned */

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

/* ---- in the leader, up to exec: it shares the shim's memory, so nothing here may touch what is libc's (base/raw.h) ---- */

struct start {
	const struct claim_spec *spec;
	int hold_fd, error_fd; /* its own ends */
};

/* As the kernel has it, on both kinds of processors. */
struct kernel_sigaction {
	uintptr_t handler, flags, restorer;
	uint64_t mask;
};

/* Whatever is ignored stays ignored in a new program, so everything goes back to its default. */
RAW static void reset_signals(void)
{
	struct kernel_sigaction action;
	uint64_t none = 0;
	action.handler = (uintptr_t)SIG_DFL;
	action.flags = action.restorer = 0;
	action.mask = 0;
	for (size_t i = 0; i < LEADER_N_IGNORED; i++)
		raw_call(SYS_rt_sigaction, leader_ignored[i], (long)&action, 0, sizeof(none));
	raw_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&none, 0, sizeof(none));
}

RAW static void close_span(int from, int to)
{
	if (from > to || raw_call(SYS_close_range, from, to, 0, 0) == 0)
		return;
	/* A kernel before 5.9. The shim has few open, and all of them go with exec; this is for the time until then. */
	for (int fd = from; fd <= to && fd < OLD_FD_MAX; fd++)
		raw_call(SYS_close, fd, 0, 0, 0);
}

RAW static void close_others(int a, int b)
{
	int low = a < b ? a : b, high = a < b ? b : a;
	close_span(3, low - 1);
	close_span(low + 1, high - 1);
	close_span(high + 1, INT32_MAX);
}

/* In a job's own directory nothing of that name was there, so a link is somebody else's doing. */
RAW static long open_output(const struct claim_spec *s, const char *path)
{
	int flags = O_WRONLY | O_CREAT | O_APPEND | O_NOCTTY | O_CLOEXEC;
	return raw_call(
		SYS_openat, AT_FDCWD, (long)path, s->dir ? flags | O_NOFOLLOW : flags, 0600);
}

RAW static enum step become_job(const struct claim_spec *s, long *ret_code)
{
	long fd = open_output(s, s->output);
	*ret_code = fd;
	if (fd < 0 || (*ret_code = raw_call(SYS_dup3, fd, 1, 0, 0)) < 0 ||
		(*ret_code = raw_call(SYS_dup3, fd, 2, 0, 0)) < 0)
		return STEP_OUTPUT;
	if (s->error_output) {
		fd = open_output(s, s->error_output);
		*ret_code = fd;
		if (fd < 0 || (*ret_code = raw_call(SYS_dup3, fd, 2, 0, 0)) < 0)
			return STEP_ERROR_OUTPUT;
	}
	raw_call(SYS_umask, s->umask_bits, 0, 0, 0);
	*ret_code = raw_call(SYS_chdir, (long)s->cwd, 0, 0, 0);
	if (*ret_code < 0)
		return STEP_CWD;
	*ret_code = raw_call(SYS_execve, (long)s->argv[0], (long)s->argv, (long)s->env, 0);
	return STEP_EXEC;
}

RAW static int leader_main(void *arg)
{
	const struct start *start = arg;
	int hold_fd = start->hold_fd, error_fd = start->error_fd;
	const struct claim_spec *s = start->spec;
	struct failure f;
	long n, code;
	char byte;
	/* It may be held for long: no end of the shim's own door may stay open here, nor of its own. */
	close_others(hold_fd, error_fd);
	raw_call(SYS_setsid, 0, 0, 0, 0);
	do
		n = raw_call(SYS_read, hold_fd, (long)&byte, 1, 0);
	while (n == -EINTR);
	reset_signals();
	if (n != 1)
		/* The shim died. An exit code would be taken for the job's; this can't be. */
		raw_call(SYS_kill, raw_call(SYS_getpid, 0, 0, 0, 0), SIGKILL, 0, 0);
	f.step = become_job(s, &code);
	f.code = (int32_t)-code;
	raw_call(SYS_write, error_fd, (long)&f, sizeof(f), 0);
	raw_call(SYS_exit_group, 127, 0, 0, 0);
	return 127;
}

/* ---- in the shim ---- */

/*
 * A process of its own on our memory: nothing is copied, neither now nor when it becomes the job. Nobody knows when it has left
 * its stack, so that stays; a shim has one leader in its life. Where that kind of process isn't known it's an ordinary fork.
 */
static pid_t fork_shared(const struct start *start)
{
	struct start own = *start, *there;
	char *stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	pid_t pid = -1;
	if (stack != MAP_FAILED) {
		there = (struct start *)(void *)(stack + STACK_SIZE - START_ROOM);
		*there = own;
		pid = clone(leader_main, there, CLONE_VM | SIGCHLD, there);
	}
	if (pid < 0)
		pid = fork();
	if (pid == 0)
		_exit(leader_main(&own));
	return pid;
}

int leader_fork(const struct claim_spec *s, struct leader *ret)
{
	struct start start;
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
	start = (struct start){.spec = s, .hold_fd = hold[0], .error_fd = error[1]};
	pid_t pid = fork_shared(&start);
	int code = pid < 0 ? -errno : 0;
	sigprocmask(SIG_SETMASK, &before, NULL);
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
