/* Children of the loop whose end is found by pidfd, or by looking where there are none. */
#include "svc/external.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/sys.h"
#include "base/text.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_MS 20
#define SAID_SHOWN 300
#define NOT_STARTED 127

struct external {
	pid_t pid; /* 0: reaped */
	int pid_fd, said_fd;
	int status;
	bool is_late;
	size_t said_max;
	struct buf said;
	struct event *on_said, *on_pid, *look, *limit;
	void (*ended)(void *arg, const struct external_end *end);
	void *arg;
};

/* ---- its start ---- */

/* What it's given to read: no pipe that would have to be filled, no file with a name. */
static int sealed(const struct buf *b)
{
	int fd;

	if (!b)
		return open("/dev/null", O_RDONLY | O_CLOEXEC);
	fd = memfd_create("in", MFD_CLOEXEC);
	if (fd >= 0 && (fd_write_all(fd, buf_str(b), b->len) < 0 || lseek(fd, 0, SEEK_SET) < 0)) {
		close(fd);
		fd = -1;
		errno = ENOSPC;
	}
	return fd;
}

static void default_signals(void)
{
	sigset_t none;

	for (int s = 1; s < NSIG; s++)
		(void)signal(s, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static void set_env(const char *const *env)
{
	for (; env && *env; env++) {
		const char *value = strchr(*env, '=');
		char name[64] = "";

		if (value && (size_t)(value - *env) < sizeof(name)) {
			memcpy(name, *env, (size_t)(value - *env));
			setenv(name, value + 1, 1);
		}
	}
}

/* In the child. There's no other thread that could hold a lock. */
static _Noreturn void become(const struct external_spec *spec, int in, int more, int said)
{
	static const char cannot[] = "it can't be started";
	/* Out of the way of 0 to 3, whatever they're now. */
	int high[3] = {fcntl(in, F_DUPFD, 10), more < 0 ? -1 : fcntl(more, F_DUPFD, 10),
		fcntl(said, F_DUPFD, 10)};

	setsid();
	default_signals();
	dup2(high[0], 0);
	dup2(high[2], 1);
	dup2(high[2], 2);
	if (high[1] >= 0)
		dup2(high[1], 3);
	fd_close_from(high[1] >= 0 ? 4 : 3, NULL, 0);
	set_env(spec->env);
	if (!spec->dir || chdir(spec->dir) == 0)
		execvp(spec->argv[0], (char *const *)spec->argv);
	(void)!write(2, cannot, sizeof(cannot) - 1);
	_exit(NOT_STARTED);
}

static int start(const struct external_spec *spec, int *ret_said, pid_t *ret_pid)
{
	CLEANUP_CLOSE int in = sealed(spec->in), more = spec->more ? sealed(spec->more) : -1;
	int said[2];
	pid_t pid;

	if (in < 0 || (spec->more && more < 0) || pipe2(said, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid == 0)
		become(spec, in, more, said[1]);
	close(said[1]);
	if (pid < 0) {
		close(said[0]);
		return -EAGAIN;
	}
	fd_set_nonblock(said[0], true);
	*ret_said = said[0];
	*ret_pid = pid;
	return 0;
}

/* ---- its life ---- */

static void set_timer(struct event *ev, int64_t ms)
{
	struct timeval t = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	event_add(ev, &t);
}

/* At most some at a time: one that never stops talking mustn't keep the loop. False at the end of it. */
static bool read_said(struct external *x)
{
	char bytes[4096];
	ssize_t n = -1;

	for (int i = 0; i < 16; i++) {
		n = read(x->said_fd, bytes, sizeof(bytes));
		if (n <= 0)
			break;
		buf_put(&x->said, bytes, (size_t)n);
		if (x->said.len > x->said_max)
			buf_drop(&x->said, x->said.len - x->said_max);
	}
	return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

static void on_said(evutil_socket_t fd, short what, void *arg)
{
	struct external *x = arg;

	if (!read_said(x))
		event_del(x->on_said);
}

/* Somebody else may keep the pipe open: what's in it when the child ends is all that counts. */
static void look(struct external *x)
{
	struct external_end end;

	if (x->pid && waitpid(x->pid, &x->status, WNOHANG) == x->pid)
		x->pid = 0;
	if (x->pid) {
		if (!x->on_pid || x->is_late)
			set_timer(x->look, LOOK_MS);
		return;
	}
	event_del(x->limit);
	event_del(x->on_said);
	event_del(x->look);
	(void)read_said(x);
	end = (struct external_end){
		.status = x->status, .is_late = x->is_late, .said = buf_str(&x->said)};
	x->ended(x->arg, &end);
}

static void on_look(evutil_socket_t fd, short what, void *arg)
{
	look(arg);
}

static void on_limit(evutil_socket_t fd, short what, void *arg)
{
	struct external *x = arg;

	x->is_late = true;
	if (x->pid)
		kill(-x->pid, SIGKILL);
	set_timer(x->look, 0);
}

int external_new(struct event_base *base, const struct external_spec *spec,
	void (*ended)(void *arg, const struct external_end *end), void *arg, struct external **ret,
	struct err *e)
{
	CLEANUP(buf_done) struct buf path = {0};
	struct external *x;
	int said_fd = -1, r;
	pid_t pid = 0;

	if (!external_find(spec->argv[0], NULL, &path))
		return err_set(e, -ENOENT, "there's no program \"%s\" on PATH", spec->argv[0]);
	r = start(spec, &said_fd, &pid);
	if (r < 0)
		return err_sys(e, r, "%s can't be started", spec->argv[0]);
	x = xcalloc(1, sizeof(*x));
	*x = (struct external){.pid = pid,
		.said_fd = said_fd,
		.said_max = spec->said_max ? spec->said_max : EXTERNAL_SAID_MAX,
		.ended = ended,
		.arg = arg};
	x->pid_fd = sys_pidfd_open(pid);
	x->look = evtimer_new(base, on_look, x);
	x->limit = evtimer_new(base, on_limit, x);
	x->on_said = event_new(base, said_fd, EV_READ | EV_PERSIST, on_said, x);
	event_add(x->on_said, NULL);
	set_timer(x->limit, spec->limit_ms);
	if (x->pid_fd >= 0) {
		fd_set_cloexec(x->pid_fd, true);
		x->on_pid = event_new(base, x->pid_fd, EV_READ, on_look, x);
		event_add(x->on_pid, NULL);
	} else {
		set_timer(x->look, LOOK_MS);
	}
	*ret = x;
	return 0;
}

void external_free(struct external *x)
{
	if (!x)
		return;
	if (x->pid) {
		kill(-x->pid, SIGKILL);
		/* Before its setsid there's no such group. */
		kill(x->pid, SIGKILL);
		while (waitpid(x->pid, &x->status, 0) < 0 && errno == EINTR)
			;
	}
	event_free(x->on_said);
	event_free(x->look);
	event_free(x->limit);
	if (x->on_pid)
		event_free(x->on_pid);
	if (x->pid_fd >= 0)
		close(x->pid_fd);
	close(x->said_fd);
	buf_done(&x->said);
	free(x);
}

/* ---- to its end ---- */

struct run {
	struct buf *out;
	int code;
};

static void run_ended(void *arg, const struct external_end *end)
{
	struct run *r = arg;

	buf_puts(r->out, end->said);
	r->code = end->is_late		     ? -ETIME
		  : WIFSIGNALED(end->status) ? 128 + WTERMSIG(end->status)
					     : WEXITSTATUS(end->status);
}

int external_run(const struct external_spec *spec, struct buf *out, struct err *e)
{
	struct event_base *base = event_base_new();
	struct run run = {.out = out, .code = -EINPROGRESS};
	struct external *x = NULL;
	int r;

	if (!base)
		return err_set(e, -ENOMEM, "there's no room for an event loop");
	r = external_new(base, spec, run_ended, &run, &x, e);
	while (r == 0 && run.code == -EINPROGRESS)
		event_base_loop(base, EVLOOP_ONCE);
	external_free(x);
	event_base_free(base);
	if (r == 0 && run.code == -ETIME)
		return err_set(e, -ETIME, "%s was given up after %lld s", spec->argv[0],
			(long long)(spec->limit_ms / 1000));
	return r < 0 ? r : run.code;
}

/* ---- around it ---- */

static bool find_in(const char *dirs, const char *name, struct buf *ret)
{
	struct sys_stat st;

	for (size_t n; dirs && *dirs; dirs += n + (dirs[n] == ':')) {
		n = strcspn(dirs, ":");
		buf_clear(ret);
		buf_printf(ret, "%.*s/%s", (int)n, dirs, name);
		if (dirs[0] == '/' && access(buf_str(ret), X_OK) == 0 &&
			sys_stat_at(AT_FDCWD, buf_str(ret), 0, &st) == 0 && S_ISREG(st.mode))
			return true;
	}
	return false;
}

bool external_find(const char *name, const char *more, struct buf *ret)
{
	const char *path = getenv("PATH");

	buf_clear(ret);
	if (strchr(name, '/')) {
		buf_puts(ret, name);
		return access(name, X_OK) == 0;
	}
	return find_in(path ? path : "/usr/local/bin:/usr/bin:/bin", name, ret) ||
	       find_in(more, name, ret);
}

void external_put_end(const struct external_end *end, int64_t limit_ms, struct buf *out)
{
	CLEANUP(buf_done) struct buf line = {0};
	size_t n = strlen(end->said), from = n > SAID_SHOWN ? n - SAID_SHOWN : 0;

	if (end->is_late)
		buf_printf(
			out, "gave no answer within %g s and was ended", (double)limit_ms / 1000);
	else if (WIFSIGNALED(end->status))
		buf_printf(out, "was ended by signal %d", WTERMSIG(end->status));
	else
		buf_printf(out, "ended with exit code %d", WEXITSTATUS(end->status));
	for (const char *p = end->said + from; *p; p++) {
		bool is_blank = strchr(" \t\r\n", *p) != NULL;

		if (!is_blank)
			buf_putc(&line, *p);
		else if (line.len && line.data[line.len - 1] != ' ')
			buf_putc(&line, ' ');
	}
	while (line.len && line.data[line.len - 1] == ' ')
		line.data[--line.len] = '\0';
	if (line.len) {
		buf_puts(out, ": ");
		text_put_clean(out, line.data, line.len);
	}
}
