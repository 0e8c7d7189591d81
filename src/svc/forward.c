/*
 * This side of a forwarded command: ssh as a child whose three streams go through here. Its output is passed on once the far
 * side has shown its mark; what ssh says before that is kept for the sentence. Ctrl-C is the far command's: ssh doesn't get it,
 * and a byte tells the other side, whose answer still comes.
 */
#include "svc/forward.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/hash.h"
#include "fleet/ssh_command.h"
#include "fleet/ssh_failure.h"
#include "fleet/ssh_site.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#define SAID_KEPT 8192
#define PIECE 65536
#define INTERRUPT_MS 5000 /* the far command's time to end after Ctrl-C */
#define LINGER_MS \
	1000 /* for what is still on its way after END; a child over there may hold the stream open for ever */
enum { NOT_GPUSTOW = 1000 }; /* no exit code */

struct session {
	const struct queue_remote *r;
	const struct forward *f;
	const char *config; /* of ssh */
	pid_t pid;
	int in, out, err; /* our ends; -1: closed */
	int signals;
	struct forward_reader reader;
	struct buf said; /* ssh's standard error before the mark: its last bytes */
	struct buf send;
	size_t n_sent;
	bool is_script; /* all is sent at once, and the stream's end is the script's */
	int interrupted; /* how often */
	int64_t give_up_boot_ms; /* 0: never */
	int told; /* the signal that ends us; 0 */
	bool is_overdue; /* END came, and ssh doesn't end */
	struct err *e;
};

/* ---- ssh ---- */

static void add(struct ssh_argv *a, const char *arg)
{
	GROW(a->v, a->n, a->cap);
	a->v[a->n++] = arg ? xstrdup(arg) : NULL;
}

/* "[::1]" is how an address is written beside a port; ssh's own argument has no brackets. */
static void add_host(struct ssh_argv *a, const char *host)
{
	size_t n = strlen(host);
	CLEANUP_FREE char *bare = host[0] == '[' && n > 2 && host[n - 1] == ']'
					  ? xstrndup(host + 1, n - 2)
					  : xstrdup(host);

	add(a, bare);
}

/* The user's own options first: of each the first counts. */
static void make_argv(const struct session *s, const char *line, bool is_tui, struct ssh_argv *ret)
{
	char port[16];

	add(ret, "ssh");
	add(ret, "-F");
	add(ret, s->config);
	add(ret, is_tui ? "-t" : "-T");
	for (size_t i = 0; i < s->r->n_ssh_options; i++) {
		add(ret, "-o");
		add(ret, s->r->ssh_options[i]);
	}
	/* Else it says of each screen that its connection is closed now. */
	if (is_tui) {
		add(ret, "-o");
		add(ret, "LogLevel=ERROR");
	}
	if (s->r->port) {
		snprintf(port, sizeof(port), "%d", s->r->port);
		add(ret, "-p");
		add(ret, port);
	}
	if (s->r->username) {
		add(ret, "-l");
		add(ret, s->r->username);
	}
	add(ret, "--");
	add_host(ret, s->r->host);
	add(ret, line);
	add(ret, NULL);
}

static void put_by_hand(const struct queue_remote *r, struct buf *out)
{
	struct host_config h = {.hostname = r->host, .port = r->port, .username = r->username};

	ssh_by_hand(&h, out);
}

/*
 * In the child. The mask before ours, but Ctrl-C isn't for ssh: blocked and not ignored, since a client of a shared connection
 * takes it whatever it found. At ssh's own questions it's we who end ssh then. -1 as a stream: our own.
 */
static void become_ssh(char *const *argv, const int streams[3], const sigset_t *mask, int report)
{
	sigset_t own = *mask;
	int code;

	for (int i = 0; i < 3; i++)
		if (streams[i] >= 0)
			dup2(streams[i], i);
	if (streams[0] >= 0)
		sigaddset(&own, SIGINT);
	signal(SIGPIPE, SIG_DFL);
	sigprocmask(SIG_SETMASK, &own, NULL);
	errno = ENOENT;
	if (argv[0])
		execvp(argv[0], argv);
	code = errno;
	(void)fd_write_all(report, &code, sizeof(code));
	_exit(127);
}

static int start(struct session *s, const char *line, const int streams[3], const sigset_t *mask)
{
	CLEANUP(ssh_argv_done) struct ssh_argv argv = {0};
	int report[2], code = 0;

	make_argv(s, line, s->f->is_tui, &argv);
	if (pipe2(report, O_CLOEXEC) < 0)
		return err_sys(s->e, -errno, "cannot start ssh");
	s->pid = fork();
	if (s->pid == 0)
		become_ssh(argv.v, streams, mask, report[1]);
	close(report[1]);
	if (s->pid < 0)
		code = errno;
	else if (read(report[0], &code, sizeof(code)) == (ssize_t)sizeof(code))
		(void)waitpid(s->pid, NULL, 0);
	else
		code = 0;
	close(report[0]);
	if (code == ENOENT)
		return err_set(s->e, -ENOENT,
			"there's no ssh here, by which the queue on %s is reached; install OpenSSH's client, or say --local for this machine's own queue",
			s->r->host);
	return code ? err_sys(s->e, -code, "cannot start ssh") : 0;
}

/* ---- streams ---- */

static int pass_on(int fd, const char *bytes, size_t n)
{
	while (n) {
		ssize_t k = write(fd, bytes, n);

		if (k >= 0) {
			bytes += k;
			n -= (size_t)k;
		} else if (errno == EAGAIN) {
			struct pollfd p = {.fd = fd, .events = POLLOUT};

			(void)poll(&p, 1, -1);
		} else if (errno != EINTR) {
			return -errno;
		}
	}
	return 0;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static int queue_header(struct session *s)
{
	const struct forward_header *h = s->f->header;
	CLEANUP(buf_done) struct buf text = {0};
	int r = forward_header_put(h, &text, s->e);

	if (r < 0)
		return r;
	buf_printf(&s->send, "%zu\n", text.len);
	buf_put(&s->send, text.data, text.len);
	for (size_t i = 0; i < h->n_files; i++)
		buf_put(&s->send, buf_str(&h->files[i].bytes), h->files[i].bytes.len);
	return 0;
}

static int read_out(struct session *s)
{
	enum forward_phase before = s->reader.phase;
	CLEANUP_FREE char *piece = xmalloc(PIECE);
	CLEANUP(buf_done) struct buf out = {0};
	ssize_t n = read(s->out, piece, PIECE);
	int r = 0;

	if (n < 0)
		return errno == EINTR || errno == EAGAIN ? 0 : -errno;
	if (n == 0) {
		close_fd(&s->out);
		forward_reader_end(&s->reader, &out);
	} else {
		forward_reader_put(&s->reader, piece, (size_t)n, &out);
	}
	if (before == FORWARD_NOISE && s->reader.phase != FORWARD_NOISE && s->reader.knows)
		r = queue_header(s);
	if (before != FORWARD_ENDED && s->reader.phase == FORWARD_ENDED)
		s->give_up_boot_ms = clock_boot_ms() + LINGER_MS;
	if (r == 0 && out.len) {
		r = pass_on(STDOUT_FILENO, out.data, out.len);
		if (r < 0)
			err_sys(s->e, r, "cannot write to standard output");
	}
	return r;
}

/* Before the mark it's ssh's or a login file's, for the sentence; after it the command's. */
static void read_err(struct session *s)
{
	char piece[4096];
	ssize_t n = read(s->err, piece, sizeof(piece));

	if (n == 0) {
		close_fd(&s->err);
	} else if (n > 0 && s->reader.phase != FORWARD_NOISE) {
		(void)pass_on(STDERR_FILENO, piece, (size_t)n);
	} else if (n > 0) {
		buf_put(&s->said, piece, (size_t)n);
		if (s->said.len > SAID_KEPT)
			buf_drop(&s->said, s->said.len - SAID_KEPT);
	}
}

static void write_in(struct session *s)
{
	ssize_t n = write(s->in, s->send.data + s->n_sent, s->send.len - s->n_sent);

	if (n < 0 && errno != EINTR && errno != EAGAIN)
		close_fd(&s->in);
	else if (n > 0)
		s->n_sent += (size_t)n;
	if (s->n_sent == s->send.len) {
		buf_clear(&s->send);
		s->n_sent = 0;
		if (s->is_script)
			close_fd(&s->in);
	}
}

static void read_signal(struct session *s)
{
	struct signalfd_siginfo info;

	if (read(s->signals, &info, sizeof(info)) != (ssize_t)sizeof(info))
		return;
	if (info.ssi_signo != SIGINT) {
		s->told = (int)info.ssi_signo;
		return;
	}
	if (s->interrupted++ || s->reader.phase != FORWARD_OPEN || !s->reader.knows) {
		s->told = SIGINT;
		return;
	}
	buf_putc(&s->send, 'I');
	s->give_up_boot_ms = clock_boot_ms() + INTERRUPT_MS;
}

static int wait_ms(const struct session *s)
{
	int64_t left;

	if (!s->give_up_boot_ms)
		return -1;
	left = s->give_up_boot_ms - clock_boot_ms();
	return left > 0 ? (int)left : 0;
}

/* Until both of its outputs have ended, or somebody wants an end. */
static int relay(struct session *s)
{
	while ((s->out >= 0 || s->err >= 0) && !s->told && !s->is_overdue) {
		struct pollfd p[] = {
			{.fd = s->out, .events = POLLIN},
			{.fd = s->err, .events = POLLIN},
			{.fd = s->send.len ? s->in : -1, .events = POLLOUT},
			{.fd = s->signals, .events = POLLIN},
		};
		int n = poll(p, ARRAY_LEN(p), wait_ms(s)), r = 0;

		if (n < 0 && errno != EINTR)
			return err_sys(s->e, -errno, "cannot wait for ssh");
		if (n == 0 && s->reader.phase == FORWARD_ENDED)
			s->is_overdue = true;
		else if (n == 0)
			s->told = SIGINT;
		if (n <= 0)
			continue;
		if (p[3].revents)
			read_signal(s);
		if (p[0].revents)
			r = read_out(s);
		if (r < 0)
			return r;
		if (p[1].revents)
			read_err(s);
		if (p[2].revents)
			write_in(s);
	}
	return 0;
}

/* ---- what became of it ---- */

static int lost(const struct session *s)
{
	return err_set(s->e, -EIO,
		"the connection to the queue's host %s was lost before the command there had ended; what it has done shows when it answers again",
		s->r->host);
}

/* It never came to the mark. */
static int not_reached(struct session *s, int status)
{
	CLEANUP(buf_done) struct buf by_hand = {0}, why = {0};
	const char *noise = buf_str(&s->reader.noise);

	if ((status == 1 || status == 2) && !s->is_script)
		return NOT_GPUSTOW;
	if (status == 127 || status == 126)
		return err_set(s->e, -ENOENT,
			"the queue's host %s can't run '%s'; say its absolute path there in queue.yml (remote: gpustow:)",
			s->r->host, s->r->program);
	put_by_hand(s->r, &by_hand);
	ssh_failure(status, buf_str(&s->said), buf_str(&by_hand), noise, &why);
	return err_set(
		s->e, -EIO, "the queue's host %s can't be reached: %s", s->r->host, buf_str(&why));
}

static int outcome(struct session *s, int status)
{
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : 255;

	if (s->reader.phase == FORWARD_ENDED)
		return s->reader.code;
	if (s->told)
		return 128 + s->told;
	/* A script of ours may have ended early, and has said why. */
	if (s->reader.phase == FORWARD_OPEN && s->is_script && code != 255)
		return code;
	if (s->reader.phase == FORWARD_OPEN)
		return s->interrupted ? 130 : lost(s);
	return not_reached(s, code);
}

/* Its end of the stream, or ours, ends the command over there. */
static int finish(struct session *s, int r)
{
	int status = 0;

	close_fd(&s->in);
	close_fd(&s->out);
	close_fd(&s->err);
	if (r < 0 || s->told || s->is_overdue)
		kill(s->pid, SIGTERM);
	while (waitpid(s->pid, &status, 0) < 0 && errno == EINTR)
		;
	return r < 0 ? r : outcome(s, status);
}

static int make_pipes(int ours[3], int theirs[3], struct err *e)
{
	for (int i = 0; i < 3; i++) {
		int p[2];

		if (pipe2(p, O_CLOEXEC) < 0)
			return err_sys(e, -errno, "cannot start ssh");
		ours[i] = i ? p[0] : p[1];
		theirs[i] = i ? p[1] : p[0];
	}
	return 0;
}

static int run_session(struct session *s, const char *line, const sigset_t *mask)
{
	int ours[3] = {-1, -1, -1}, theirs[3] = {-1, -1, -1};
	int r = make_pipes(ours, theirs, s->e);

	if (r == 0)
		r = start(s, line, theirs, mask);
	for (int i = 0; i < 3; i++)
		close_fd(&theirs[i]);
	s->in = ours[0];
	s->out = ours[1];
	s->err = ours[2];
	if (r < 0) {
		close_fd(&s->in);
		close_fd(&s->out);
		close_fd(&s->err);
		return r;
	}
	/* A far side that reads slowly mustn't keep us from its output. */
	fd_set_nonblock(s->in, true);
	return finish(s, relay(s));
}

/* One connection's worth: with FORWARD, or as a script. */
static int try_once(const struct queue_remote *r, const struct forward *f, const char *config,
	bool is_script, int signals, const sigset_t *mask, struct err *e)
{
	struct session s = {.r = r,
		.f = f,
		.config = config,
		.signals = signals,
		.is_script = is_script,
		.e = e};
	CLEANUP(buf_done) struct buf line = {0};
	int k = 0;

	random_hex((FORWARD_NONCE_LEN - 1) / 2, s.reader.nonce);
	if (is_script) {
		buf_puts(&line, "exec /bin/sh");
		k = forward_script(r, f->header, s.reader.nonce, &s.send, e);
	} else {
		k = forward_line(r->program, s.reader.nonce, &line, e);
	}
	if (k == 0)
		k = run_session(&s, buf_str(&line), mask);
	forward_reader_done(&s.reader);
	buf_done(&s.said);
	buf_done(&s.send);
	return k;
}

static int run_streams(
	const struct queue_remote *r, const struct forward *f, const char *config, struct err *e)
{
	sigset_t set, mask;
	int signals, k;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, &mask);
	signals = signalfd(-1, &set, SFD_CLOEXEC);
	if (signals < 0) {
		k = err_sys(e, -errno, "cannot wait for signals");
	} else {
		k = try_once(r, f, config, false, signals, &mask, e);
		if (k == NOT_GPUSTOW)
			k = try_once(r, f, config, true, signals, &mask, e);
		close(signals);
	}
	sigprocmask(SIG_SETMASK, &mask, NULL);
	return k;
}

/* ssh makes it raw once the far side has the terminal; for its own questions it only turns the echo off. */
static bool is_raw(void)
{
	struct termios t;

	return tcgetattr(STDIN_FILENO, &t) == 0 && !(t.c_lflag & ICANON);
}

/* Waits for ssh, and passes on what would end us: the far side is to hear of it. Returns that signal, or 0. */
static int wait_for_screen(pid_t pid, const sigset_t *set, int *ret_status, bool *ret_was_raw)
{
	static const struct timespec look = {.tv_nsec = 50 * 1000000};
	int signal_no = 0;
	pid_t done;

	while ((done = waitpid(pid, ret_status, WNOHANG)) == 0 || (done < 0 && errno == EINTR)) {
		int sig;

		*ret_was_raw = *ret_was_raw || is_raw();
		sig = *ret_was_raw ? sigwaitinfo(set, NULL) : sigtimedwait(set, NULL, &look);
		if (sig == SIGTERM || sig == SIGHUP) {
			signal_no = sig;
			kill(pid, SIGTERM);
		}
	}
	return signal_no;
}

static int run_screen(
	const struct queue_remote *r, const struct forward *f, const char *config, struct err *e)
{
	static const int own[3] = {-1, -1, -1};
	struct session s = {.r = r, .f = f, .config = config, .e = e};
	CLEANUP(buf_done) struct buf line = {0};
	int status = 0, signal_no, k = forward_screen_line(r, f->header, &line, e);
	sigset_t set, mask;
	bool was_raw = false;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, &mask);
	if (k == 0)
		k = start(&s, buf_str(&line), own, &mask);
	if (k == 0) {
		signal_no = wait_for_screen(s.pid, &set, &status, &was_raw);
		*f->was_cut = was_raw && (WIFSIGNALED(status) || WEXITSTATUS(status) == 255);
		k = signal_no		  ? 128 + signal_no
		    : WIFSIGNALED(status) ? 128 + WTERMSIG(status)
					  : WEXITSTATUS(status);
		if (k == 255)
			k = err_set(e, -EIO, "the connection to the queue's host %s %s", r->host,
				was_raw ? "was lost; jobs go on, and the screen can be opened again"
					: "has ended");
	}
	sigprocmask(SIG_SETMASK, &mask, NULL);
	return k;
}

/* ssh asks for what it needs where there's a terminal to ask. */
static bool can_ask(void)
{
	CLEANUP_CLOSE int fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);

	return fd >= 0;
}

int forward_run(const struct queue_remote *r, const struct forward *f, struct err *e)
{
	struct event_base *base = event_base_new();
	struct ssh_site *site = NULL;
	int k = base ? ssh_site_new(base, f->home, can_ask(), &site, e)
		     : err_set(e, -ENOMEM, "cannot make an event loop");

	if (k == 0)
		k = f->is_tui ? run_screen(r, f, site->config, e)
			      : run_streams(r, f, site->config, e);
	ssh_site_free(site);
	if (base)
		event_base_free(base);
	return k;
}
