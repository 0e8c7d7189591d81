/* Children of the loop. Their end is found by looking, for pidfds aren't everywhere and SIGCHLD has one owner only. */
#include "fleet/child.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/sys.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_MS 20
#define LAST_WORDS_MS \
	100 /* for stderr after its end: a child of its own may hold it open for ever */

struct child {
	pid_t pid; /* 0: reaped */
	int fd, err_fd, pid_fd;
	int status;
	int64_t reaped_ms;
	struct buf said;
	bool is_fork;
	struct event *on_err, *on_pid, *look, *kill;
	void (*ended)(void *arg, int status);
	void *arg;
};

static void set_timer(struct event *ev, int64_t ms)
{
	struct timeval t = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	event_add(ev, &t);
}

/* What can be read of stderr now; false at its end. */
static bool read_said(struct child *c)
{
	char bytes[2048];
	ssize_t n;

	while ((n = read(c->err_fd, bytes, sizeof(bytes))) > 0) {
		buf_put(&c->said, bytes, (size_t)n);
		if (c->said.len > CHILD_SAID_MAX)
			buf_drop(&c->said, c->said.len - CHILD_SAID_MAX);
	}
	return n < 0 && (errno == EAGAIN || errno == EINTR);
}

static void close_err(struct child *c)
{
	if (c->on_err)
		event_free(c->on_err);
	c->on_err = NULL;
	if (c->err_fd >= 0)
		close(c->err_fd);
	c->err_fd = -1;
}

/* Reaps if it has ended; tells the owner once stderr is at its end too, or has had its time. */
static void look(struct child *c)
{
	if (c->pid && waitpid(c->pid, &c->status, WNOHANG) == c->pid) {
		c->pid = 0;
		c->reaped_ms = clock_boot_ms();
		event_del(c->kill);
		if (c->on_pid)
			event_del(c->on_pid);
	}
	if (!c->pid && (c->err_fd < 0 || clock_boot_ms() - c->reaped_ms >= LAST_WORDS_MS)) {
		close_err(c);
		event_del(c->look);
		c->ended(c->arg, c->status);
		return;
	}
	if (!c->pid || !c->on_pid)
		set_timer(c->look, LOOK_MS);
}

static void on_err(evutil_socket_t fd, short what, void *arg)
{
	struct child *c = arg;

	if (!read_said(c)) {
		close_err(c);
		/* The end of stderr mostly means the end of the child. */
		set_timer(c->look, 0);
	}
}

static void on_look(evutil_socket_t fd, short what, void *arg)
{
	look(arg);
}

static void on_kill(evutil_socket_t fd, short what, void *arg)
{
	struct child *c = arg;

	if (c->pid)
		kill(c->is_fork ? -c->pid : c->pid, SIGKILL);
	set_timer(c->look, 0);
}

/* Our environment with the spec's variables in place of those of the same name. The strings are borrowed. */
static char **make_env(const char *const *more)
{
	size_t n_own = 0, n_more = 0, n = 0;
	char **env;

	while (environ[n_own])
		n_own++;
	while (more && more[n_more])
		n_more++;
	env = xcalloc(n_own + n_more + 1, sizeof(*env));
	for (size_t i = 0; i < n_own; i++) {
		size_t len = strcspn(environ[i], "=") + 1;
		bool is_replaced = false;

		for (size_t k = 0; k < n_more; k++)
			is_replaced |= !strncmp(environ[i], more[k], len);
		if (!is_replaced)
			env[n++] = environ[i];
	}
	for (size_t k = 0; k < n_more; k++)
		env[n++] = (char *)more[k];
	return env;
}

static int spawn(const struct child_spec *spec, int fd, int err_fd, pid_t *ret_pid)
{
	CLEANUP_FREE char **env = make_env(spec->env);
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none, all;
	int r;

	sigemptyset(&none);
	sigfillset(&all);
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, fd, 0);
	posix_spawn_file_actions_adddup2(&files, fd, 1);
	posix_spawn_file_actions_adddup2(&files, err_fd, 2);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(
		&attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	r = posix_spawnp(ret_pid, spec->argv[0], &files, &attr, (char *const *)spec->argv, env);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&files);
	return -r;
}

/* In the fork: handlers go before anything is let through, for they would speak to the parent's loop. */
static _Noreturn void be_fork(const struct child_spec *spec, int fd, int err_fd)
{
	sigset_t none;

	setsid();
	for (int sig = 1; sig < NSIG; sig++)
		signal(sig, SIG_DFL);
	dup2(fd, 0);
	dup2(fd, 1);
	dup2(err_fd, 2);
	fd_close_from(3, NULL, 0);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	_exit(spec->run(spec->run_arg));
}

static int start_fork(const struct child_spec *spec, int fd, int err_fd, pid_t *ret_pid)
{
	sigset_t all, before;
	int r = 0;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	*ret_pid = fork();
	if (*ret_pid < 0)
		r = -errno;
	else if (!*ret_pid)
		be_fork(spec, fd, err_fd);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return r;
}

static void watch(struct child *c, struct event_base *base)
{
	fd_set_nonblock(c->fd, true);
	fd_set_nonblock(c->err_fd, true);
	c->pid_fd = sys_pidfd_open(c->pid);
	c->look = evtimer_new(base, on_look, c);
	c->kill = evtimer_new(base, on_kill, c);
	c->on_err = event_new(base, c->err_fd, EV_READ | EV_PERSIST, on_err, c);
	event_add(c->on_err, NULL);
	if (c->pid_fd >= 0) {
		fd_set_cloexec(c->pid_fd, true);
		c->on_pid = event_new(base, c->pid_fd, EV_READ, on_look, c);
		event_add(c->on_pid, NULL);
	} else {
		set_timer(c->look, LOOK_MS);
	}
}

int child_new(struct event_base *base, const struct child_spec *spec,
	void (*ended)(void *arg, int status), void *arg, struct child **ret, struct err *e)
{
	int fds[2] = {-1, -1}, errs[2] = {-1, -1}, r;
	struct child *c;
	pid_t pid = 0;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) || pipe2(errs, O_CLOEXEC))
		r = -errno;
	else
		r = (spec->run ? start_fork : spawn)(spec, fds[1], errs[1], &pid);
	for (int *fd = (int[]){fds[1], errs[1], r ? fds[0] : -1, r ? errs[0] : -1}, i = 0; i < 4;
		i++)
		if (fd[i] >= 0)
			close(fd[i]);
	if (r && spec->run)
		return err_sys(e, r, "this program can't be forked");
	if (r == -ENOENT)
		return err_set(e, r, "there's no program \"%s\" on PATH", spec->argv[0]);
	if (r)
		return err_sys(e, r, "%s can't be started", spec->argv[0]);
	c = xcalloc(1, sizeof(*c));
	c->pid = pid;
	c->is_fork = spec->run != NULL;
	c->fd = fds[0];
	c->err_fd = errs[0];
	c->ended = ended;
	c->arg = arg;
	watch(c, base);
	*ret = c;
	return 0;
}

int child_fd(const struct child *c)
{
	return c->fd;
}

int child_take_fd(struct child *c)
{
	return TAKE_FD(c->fd);
}

const char *child_said(const struct child *c)
{
	return buf_str(&c->said);
}

void child_end(struct child *c, int64_t ms)
{
	if (c->pid)
		set_timer(c->kill, ms);
}

void child_free(struct child *c, bool is_group)
{
	if (!c)
		return;
	if (c->pid) {
		kill(is_group ? -c->pid : c->pid, SIGKILL);
		while (waitpid(c->pid, &c->status, 0) < 0 && errno == EINTR)
			;
	}
	if (c->fd >= 0)
		close(c->fd);
	close_err(c);
	if (c->on_pid)
		event_free(c->on_pid);
	if (c->pid_fd >= 0)
		close(c->pid_fd);
	event_free(c->look);
	event_free(c->kill);
	buf_done(&c->said);
	free(c);
}
