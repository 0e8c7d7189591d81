/* The far side of a forwarded command: what was sent is read, and the command is run in a child that ends with the stream. */
#include "svc/forward.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/parse.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define KILL_MS 5000

static int cut_short(struct err *e)
{
	return err_set(e, -EPIPE, "the forwarded command was cut short");
}

static int read_exactly(struct buf *b, size_t n, struct err *e)
{
	buf_clear(b);
	buf_reserve(b, n + 1);
	while (b->len < n) {
		ssize_t k = read(STDIN_FILENO, b->data + b->len, n - b->len);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return cut_short(e);
		b->len += (size_t)k;
	}
	if (b->data)
		b->data[b->len] = '\0';
	return 0;
}

/* Byte by byte: what follows belongs to somebody else. */
static int read_length(size_t *ret, struct err *e)
{
	char text[16] = "";
	int64_t n;

	for (size_t i = 0; i < sizeof(text) - 1; i++) {
		ssize_t k = read(STDIN_FILENO, &text[i], 1);

		if (k <= 0)
			return cut_short(e);
		if (text[i] != '\n')
			continue;
		text[i] = '\0';
		if (parse_int64(text, &n) < 0 || n < 2 || n > FORWARD_HEADER_MAX)
			break;
		*ret = (size_t)n;
		return 0;
	}
	return err_set(e, -EINVAL, "what was sent isn't a forwarded command of gpustow's");
}

static bool is_nonce(const char *nonce)
{
	return strlen(nonce) == FORWARD_NONCE_LEN - 1 &&
	       strspn(nonce, "0123456789abcdef") == FORWARD_NONCE_LEN - 1;
}

static int say(const struct buf *line)
{
	return fd_write_all(STDOUT_FILENO, line->data, line->len);
}

int forward_receive(const char *nonce, struct forward_header *ret, struct err *e)
{
	CLEANUP(buf_done) struct buf text = {0}, mark = {0};
	size_t sizes[FORWARD_FILES_MAX], n = 0;
	int r;

	if (!is_nonce(nonce))
		return err_set(e, -EINVAL, "this is for gpustow itself, over ssh");
	buf_printf(&mark, "\ngpustow:%s FORWARD 1\n", nonce);
	r = say(&mark);
	if (r == 0)
		r = read_length(&n, e);
	if (r == 0)
		r = read_exactly(&text, n, e);
	if (r == 0)
		r = forward_header_parse(buf_str(&text), text.len, ret, sizes, e);
	if (r < 0)
		return r;
	for (size_t i = 0; r == 0 && i < ret->n_files; i++)
		r = read_exactly(&ret->files[i].bytes, sizes[i], e);
	if (r < 0)
		forward_header_done(ret);
	return r;
}

/* ---- running it ---- */

static void run_child(pid_t parent, const sigset_t *mask, int (*command)(void *), void *arg)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	sigprocmask(SIG_SETMASK, mask, NULL);
	if (null >= 0)
		dup2(null, STDIN_FILENO);
	/* Whoever started us may be gone already. */
	if (getppid() != parent)
		_exit(EXIT_FAILURE);
	exit(command(arg));
}

/* What came from over there: Ctrl-C, or the end of it all. */
static bool read_stream(pid_t child)
{
	char bytes[64];
	ssize_t n = read(STDIN_FILENO, bytes, sizeof(bytes));

	if (n <= 0)
		return n < 0 && errno == EINTR;
	if (memchr(bytes, 'I', (size_t)n))
		kill(child, SIGINT);
	return true;
}

/* Until the child has ended; its wait status. */
static int wait_child(pid_t child, int signals)
{
	struct pollfd p[] = {
		{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
	int64_t kill_at_ms = 0;
	int status = 0;

	for (;;) {
		struct signalfd_siginfo info;
		int64_t left_ms = kill_at_ms ? kill_at_ms - clock_boot_ms() : -1;

		if (waitpid(child, &status, WNOHANG) == child)
			return status;
		if (kill_at_ms && left_ms <= 0) {
			kill(child, SIGKILL);
			kill_at_ms = 0;
			continue;
		}
		if (poll(p, ARRAY_LEN(p), (int)left_ms) < 0)
			continue;
		if (p[1].revents && read(signals, &info, sizeof(info)) == (ssize_t)sizeof(info) &&
			info.ssi_signo != SIGCHLD && p[0].fd >= 0)
			p[0].revents = POLLHUP;
		if (p[0].fd >= 0 && p[0].revents &&
			(!(p[0].revents & POLLIN) || !read_stream(child))) {
			p[0].fd = -1;
			p[0].revents = 0;
			kill(child, SIGTERM);
			kill_at_ms = clock_boot_ms() + KILL_MS;
		}
	}
}

int forward_serve(const char *nonce, int (*command)(void *arg), void *arg, struct err *e)
{
	CLEANUP(buf_done) struct buf mark = {0};
	pid_t parent = getpid(), child;
	sigset_t set, mask;
	int signals, status, code;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, &mask);
	signals = signalfd(-1, &set, SFD_CLOEXEC);
	fflush(stdout);
	child = signals < 0 ? -1 : fork();
	if (child < 0)
		return err_sys(e, -errno, "cannot start the forwarded command");
	if (child == 0)
		run_child(parent, &mask, command, arg);
	status = wait_child(child, signals);
	close(signals);
	code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	buf_printf(&mark, "\1gpustow:%s END %d\n", nonce, code);
	(void)say(&mark);
	return code;
}
