/* The terminal: see tty.h. Signals are blocked while it's held and read as events, so no way out leaves it without echo. */
#include "cli/tty.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/text.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

bool tty_is_there(void)
{
	return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

static void held_signals(sigset_t *ret)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH};

	sigemptyset(ret);
	for (size_t i = 0; i < ARRAY_LEN(signals); i++)
		sigaddset(ret, signals[i]);
}

int tty_begin(struct tty *t, struct err *e)
{
	struct termios raw;
	sigset_t held;

	if (tcgetattr(STDIN_FILENO, &t->before) < 0)
		return err_sys(e, -errno, "this needs a terminal");
	held_signals(&held);
	t->signal_fd = signalfd(-1, &held, SFD_CLOEXEC | SFD_NONBLOCK);
	if (t->signal_fd < 0)
		return err_sys(e, -errno, "cannot watch for signals");
	sigprocmask(SIG_BLOCK, &held, &t->mask_before);
	raw = t->before;
	raw.c_lflag &= ~(tcflag_t)(ECHO | ICANON | ISIG | IEXTEN);
	raw.c_iflag &= ~(tcflag_t)(IXON);
	raw.c_cc[VMIN] = 1;
	raw.c_cc[VTIME] = 0;
	t->is_begun = true;
	if (tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw) < 0) {
		int r = -errno;

		tty_end(t);
		return err_sys(e, r, "cannot set up the terminal");
	}
	return 0;
}

void tty_end(struct tty *t)
{
	if (!t->is_begun)
		return;
	t->is_begun = false;
	(void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &t->before);
	close(t->signal_fd);
	sigprocmask(SIG_SETMASK, &t->mask_before, NULL);
}

static int read_signal(const struct tty *t)
{
	struct signalfd_siginfo info;

	if (read(t->signal_fd, &info, sizeof(info)) != sizeof(info))
		return 0;
	return info.ssi_signo == SIGWINCH ? -EINTR : info.ssi_signo == SIGTSTP ? 0 : -ECANCELED;
}

int tty_wait(struct tty *t, int ms)
{
	for (;;) {
		struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN},
			{.fd = t->signal_fd, .events = POLLIN}};
		int n = poll(fds, 2, ms), r;

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			return 0;
		if (n > 0 && fds[1].revents && (r = read_signal(t)) < 0)
			return r;
		if (n > 0 && fds[0].revents)
			return 1;
	}
}

void tty_size(int *ret_rows, int *ret_cols)
{
	struct winsize w = {0};

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) < 0)
		w = (struct winsize){0};
	*ret_rows = w.ws_row ? w.ws_row : 24;
	*ret_cols = w.ws_col ? w.ws_col : 80;
}

/* Byte by byte: what stands behind the line is for the next question. Returns its length, or -ECANCELED at the end of all input. */
static ssize_t read_line(struct tty *t, char *ret, size_t size)
{
	size_t n = 0;

	for (;;) {
		char c;
		int ready = t ? tty_wait(t, -1) : 1;
		ssize_t k;

		if (ready == -EINTR)
			continue;
		if (ready < 0)
			return -ECANCELED;
		k = read(STDIN_FILENO, &c, 1);
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		if ((k == 0 && n == 0) || (t && (c == 3 || (c == 4 && n == 0))))
			return -ECANCELED;
		if (k == 0 || c == '\n' || (t && c == '\r'))
			break;
		/* Without the line discipline's help: DEL and BS. */
		if (t && (c == 0x7f || c == 8)) {
			while (n > 0 && ((unsigned char)ret[--n] & 0xc0) == 0x80)
				;
			continue;
		}
		if (n + 1 == size)
			return -EMSGSIZE;
		ret[n++] = c;
	}
	ret[n] = '\0';
	return strlen(ret) == n ? (ssize_t)n : -EILSEQ;
}

static int line_failed(ssize_t r, struct err *e)
{
	if (r == -ECANCELED)
		return err_set(e, -ECANCELED, "the input ended; nothing was changed");
	if (r == -EMSGSIZE)
		return err_set(e, -EMSGSIZE, "the line is too long");
	if (r == -EILSEQ)
		return err_set(e, -EILSEQ, "the line holds a zero byte");
	return err_sys(e, (int)r, "cannot read the answer");
}

int tty_ask(const char *prompt, char *ret, size_t size, struct err *e)
{
	const char *s = ret;
	ssize_t r;
	size_t n;

	(void)fd_write_all(STDOUT_FILENO, prompt, strlen(prompt));
	r = read_line(NULL, ret, size);
	if (r < 0) {
		(void)fd_write_all(STDOUT_FILENO, "\n", 1);
		return line_failed(r, e);
	}
	n = (size_t)r;
	while (n > 0 && (s[n - 1] == ' ' || s[n - 1] == '\t' || s[n - 1] == '\r'))
		n--;
	while (n > 0 && (*s == ' ' || *s == '\t'))
		s++, n--;
	memmove(ret, s, n);
	ret[n] = '\0';
	return 0;
}

int tty_ask_yes(const char *prompt, bool enter_is_yes, bool *ret, struct err *e)
{
	for (;;) {
		char answer[64];
		int r = tty_ask(prompt, answer, sizeof(answer), e);

		if (r < 0 && r != -EMSGSIZE && r != -EILSEQ)
			return r;
		if (r == 0 && !answer[0])
			*ret = enter_is_yes;
		else if (r == 0 && (!strcasecmp(answer, "y") || !strcasecmp(answer, "yes")))
			*ret = true;
		else if (r == 0 && (!strcasecmp(answer, "n") || !strcasecmp(answer, "no")))
			*ret = false;
		else
			continue;
		return 0;
	}
}

int tty_ask_secret(const char *prompt, char *ret, size_t size, struct err *e)
{
	CLEANUP(tty_end) struct tty t = {0};
	bool is_terminal = isatty(STDIN_FILENO);
	ssize_t n;
	int r = is_terminal ? tty_begin(&t, e) : 0;

	if (r < 0)
		return r;
	/* To the terminal, wherever stdout goes. */
	if (is_terminal)
		(void)fd_write_all(STDERR_FILENO, prompt, strlen(prompt));
	n = read_line(is_terminal ? &t : NULL, ret, size);
	if (is_terminal)
		(void)fd_write_all(STDERR_FILENO, "\n", 1);
	if (n < 0)
		return line_failed(n, e);
	if (n > 0 && ret[n - 1] == '\r')
		ret[n - 1] = '\0';
	return 0;
}
