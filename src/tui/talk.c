/* Lines in and sentences out, without waiting for either side (talk.h). */
#include "tui/talk.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LEAVE_MS = 400, PIECE = 64 * 1024 };

/*
 * A file takes what it's given; opened anew it would be written from its beginning. A terminal that's another user's (after su)
 * can't be opened: then the one we share doesn't make us wait until we're done.
 */
static void open_output(struct talk *t)
{
	struct stat st;

	t->fd = STDOUT_FILENO;
	t->flags = -1;
	if (!isatty(STDOUT_FILENO) && (fstat(STDOUT_FILENO, &st) < 0 || !S_ISFIFO(st.st_mode)))
		return;
	t->fd = open("/proc/self/fd/1", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (t->fd >= 0)
		return;
	t->fd = STDOUT_FILENO;
	t->flags = fcntl(STDOUT_FILENO, F_GETFL);
	if (t->flags >= 0)
		fcntl(STDOUT_FILENO, F_SETFL, t->flags | O_NONBLOCK);
}

static void close_output(struct talk *t)
{
	if (t->fd != STDOUT_FILENO)
		close(t->fd);
	else if (t->flags >= 0)
		fcntl(STDOUT_FILENO, F_SETFL, t->flags);
}

static void end(struct talk *t)
{
	if (t->is_over)
		return;
	t->is_over = true;
	t->owner.over(t->owner.arg);
}

bool talk_is_waiting(const struct talk *t)
{
	return t->waiting.len > t->taken;
}

static void push_or_wait(struct talk *t)
{
	if (fd_push(t->fd, &t->waiting, &t->taken, PIECE) < 0)
		end(t);
	else if (talk_is_waiting(t))
		event_add(t->writable, NULL);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	struct talk *t = arg;

	(void)fd, (void)what;
	push_or_wait(t);
	if (t->is_over || !t->left_out || talk_is_waiting(t))
		return;
	buf_printf(&t->waiting,
		"Nobody read for a while: %zu answer%s left out. Enter says all of it anew.\n",
		t->left_out, t->left_out == 1 ? " was" : "s were");
	t->left_out = 0;
	push_or_wait(t);
}

void talk_say(struct talk *t, const struct buf *text)
{
	if (!text->len || t->is_over)
		return;
	if (t->waiting.len - t->taken + text->len > TALK_WAITING_MAX && talk_is_waiting(t)) {
		t->left_out++;
		return;
	}
	buf_drop(&t->waiting, t->taken);
	t->taken = 0;
	buf_put(&t->waiting, text->data, text->len);
	push_or_wait(t);
}

static void take_lines(struct talk *t)
{
	char *nl;

	while (!t->is_over && t->typed.len && (nl = memchr(t->typed.data, '\n', t->typed.len))) {
		size_t n = (size_t)(nl - t->typed.data);
		char line[TALK_LINE_MAX + 1];

		n = n < TALK_LINE_MAX ? n : TALK_LINE_MAX;
		memcpy(line, t->typed.data, n);
		line[n] = '\0';
		buf_drop(&t->typed, (size_t)(nl - t->typed.data) + 1);
		t->owner.line(t->owner.arg, line);
	}
	/* A line that long is none. */
	if (t->typed.len > TALK_LINE_MAX)
		buf_clear(&t->typed);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct talk *t = arg;
	char bytes[512];
	ssize_t n = read(fd, bytes, sizeof(bytes));

	(void)what;
	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n <= 0) {
		end(t);
		return;
	}
	buf_put(&t->typed, bytes, (size_t)n);
	take_lines(t);
}

void talk_begin(
	struct talk *t, struct event_base *base, bool listens, const struct talk_owner *owner)
{
	*t = (struct talk){.owner = *owner};
	open_output(t);
	t->writable = event_new(base, t->fd, EV_WRITE, on_writable, t);
	if (!listens)
		return;
	t->readable = event_new(base, STDIN_FILENO, EV_READ | EV_PERSIST, on_readable, t);
	event_priority_set(t->readable, 0);
	event_add(t->readable, NULL);
}

void talk_done(struct talk *t)
{
	struct pollfd pfd = {.fd = t->fd, .events = POLLOUT};

	if (!t->writable)
		return;
	for (int turns = 0;
		turns < 2 && !fd_push(t->fd, &t->waiting, &t->taken, PIECE) && talk_is_waiting(t);
		turns++)
		poll(&pfd, 1, LEAVE_MS / 2);
	if (t->readable)
		event_free(t->readable);
	event_free(t->writable);
	close_output(t);
	buf_done(&t->typed);
	buf_done(&t->waiting);
	*t = (struct talk){0};
}
