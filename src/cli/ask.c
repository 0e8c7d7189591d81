/* The terminal's side of a question: a line of /dev/tty, read without blocking anybody, its echo off for secrets. */
#include "cli/ask.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 1024 };

struct question {
	struct question *next;
	uint64_t id;
	char *text; /* as it's shown */
	bool is_secret;
};

struct ask {
	int fd;
	struct event *readable, *interrupts[2];
	void (*answered)(void *arg, uint64_t question, const char *text);
	void *arg;
	struct question *first;
	bool is_shown;
	bool is_hidden; /* echo is off, and `before` is what to put back */
	struct termios before;
	char line[LINE_MAX_BYTES];
	size_t n;
	int64_t since_ms, spent_ms;
};

static void say(struct ask *a, const char *text)
{
	(void)fd_write_all(a->fd, text, strlen(text));
}

static void show_echo(struct ask *a)
{
	if (a->is_hidden)
		tcsetattr(a->fd, TCSADRAIN, &a->before);
	a->is_hidden = false;
}

static void hide_echo(struct ask *a)
{
	struct termios t;

	if (tcgetattr(a->fd, &a->before) < 0)
		return;
	t = a->before;
	t.c_lflag &= ~(tcflag_t)ECHO;
	t.c_lflag |= ECHONL;
	a->is_hidden = tcsetattr(a->fd, TCSADRAIN, &t) == 0;
}

/* The first of the line is shown, if none is. */
static void show(struct ask *a)
{
	struct question *q = a->first;

	if (!q || a->is_shown)
		return;
	a->is_shown = true;
	a->since_ms = clock_boot_ms();
	a->n = 0;
	if (q->is_secret)
		hide_echo(a);
	say(a, q->text);
	event_add(a->readable, NULL);
}

static void forget_first(struct ask *a)
{
	struct question *q = a->first;

	a->first = q->next;
	free(q->text);
	free(q);
}

static void answer(struct ask *a, const char *text)
{
	uint64_t id = a->first->id;

	show_echo(a);
	a->spent_ms += clock_boot_ms() - a->since_ms;
	a->is_shown = false;
	event_del(a->readable);
	forget_first(a);
	a->answered(a->arg, id, text);
	explicit_bzero(a->line, sizeof(a->line));
	show(a);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct ask *a = arg;
	char *end;
	ssize_t n;

	(void)what;
	n = read(fd, a->line + a->n, sizeof(a->line) - 1 - a->n);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		answer(a, NULL);
		return;
	}
	a->n += (size_t)n;
	a->line[a->n] = '\0';
	end = memchr(a->line, '\n', a->n);
	if (end)
		*end = '\0';
	else if (a->n < sizeof(a->line) - 1)
		return;
	/* An empty line gives nothing away; a line that's too long is nobody's password. */
	answer(a, end && a->line[0] ? a->line : NULL);
}

/* Ctrl-C at a question ends the program as ever, but not with the echo off. */
static void on_interrupt(evutil_socket_t sig, short what, void *arg)
{
	struct ask *a = arg;

	(void)what;
	show_echo(a);
	signal((int)sig, SIG_DFL);
	raise((int)sig);
}

struct ask *ask_new(struct event_base *base,
	void (*answered)(void *arg, uint64_t question, const char *text), void *arg)
{
	int fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct ask *a;

	if (fd < 0)
		return NULL;
	a = xcalloc(1, sizeof(*a));
	a->fd = fd;
	a->answered = answered;
	a->arg = arg;
	a->readable = event_new(base, fd, EV_READ | EV_PERSIST, on_readable, a);
	a->interrupts[0] = evsignal_new(base, SIGINT, on_interrupt, a);
	a->interrupts[1] = evsignal_new(base, SIGTERM, on_interrupt, a);
	for (int i = 0; i < 2; i++)
		event_add(a->interrupts[i], NULL);
	return a;
}

void ask_put(struct ask *a, uint64_t question, const char *host, const char *prompt, bool is_secret)
{
	struct question *q = xcalloc(1, sizeof(*q)), **at = &a->first;
	struct buf b = {0};

	text_put_clean(&b, host, strlen(host));
	buf_puts(&b, ": ");
	text_put_clean(&b, prompt, strlen(prompt));
	q->id = question;
	q->text = buf_take(&b);
	q->is_secret = is_secret;
	while (*at)
		at = &(*at)->next;
	*at = q;
	show(a);
}

int64_t ask_spent_ms(const struct ask *a)
{
	return a ? a->spent_ms + (a->is_shown ? clock_boot_ms() - a->since_ms : 0) : 0;
}

bool ask_is_open(const struct ask *a)
{
	return a && a->first;
}

void ask_free(struct ask *a)
{
	if (!a)
		return;
	show_echo(a);
	while (a->first)
		forget_first(a);
	event_free(a->readable);
	for (int i = 0; i < 2; i++)
		event_free(a->interrupts[i]);
	close(a->fd);
	free(a);
}
