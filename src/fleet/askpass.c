/* Questions and answers over a private socket. Keeps no secret longer than it takes to write it. */
#include "fleet/askpass.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/hash.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>

/* ---- prompts ---- */

bool askpass_is_password(const char *prompt, const char *user, const char *host)
{
	char own[256];
	const char *rest;
	int n;

	if (!user || !host || !*user || !*host)
		return false;
	/* ssh cuts both names, and writes the host in lower case. */
	snprintf(own, sizeof(own), "%.30s@%.128s's password: ", user, host);
	if (!strncmp(prompt, own, strcspn(own, "@") + 1) && !strcasecmp(prompt, own))
		return true;
	n = snprintf(own, sizeof(own), "(%.30s@%.128s) ", user, host);
	if (strncmp(prompt, own, strcspn(own, "@") + 1) != 0 ||
		strncasecmp(prompt, own, (size_t)n) != 0)
		return false;
	rest = prompt + n;
	if (strncasecmp(rest, "password:", 9) != 0)
		return false;
	return strspn(rest + 9, " \t\r\n") == strlen(rest + 9);
}

bool askpass_is_secret(const char *prompt)
{
	return !strstr(prompt, "(yes/no");
}

/* ---- the program's side ---- */

static int reach(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	CLEANUP_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || strlen(path) >= sizeof(address.sun_path))
		return -1;
	memcpy(address.sun_path, path, strlen(path) + 1);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)))
		return -1;
	return TAKE_FD(fd);
}

int askpass_main(int argc, char **argv)
{
	const char *path = getenv(ASKPASS_SOCKET), *token = getenv(ASKPASS_TOKEN),
		   *kind = getenv("SSH_ASKPASS_PROMPT");
	CLEANUP(buf_done) struct buf b = {0};
	CLEANUP_CLOSE int fd = -1;
	bool is_answered;

	if (argc != 2 || !path || !token)
		return 1;
	fd = reach(path);
	buf_printf(&b, "%s\n%s\n%.*s", token, kind ? kind : "", ASKPASS_PROMPT_MAX, argv[1]);
	if (fd < 0 || fd_write_all(fd, b.data, b.len) || shutdown(fd, SHUT_WR))
		return 1;
	buf_clear(&b);
	if (fd_read_all(fd, &b, 4096) || !b.len || b.data[0] != '+')
		return 1;
	buf_putc(&b, '\n');
	is_answered = !fd_write_all(STDOUT_FILENO, b.data + 1, b.len - 1);
	explicit_bzero(b.data, b.len);
	return is_answered ? 0 : 1;
}

/* ---- the link's side ---- */

struct question {
	struct question *next;
	struct askpass *askpass;
	uint64_t id; /* 0: not read yet */
	int fd;
	struct buf in;
	struct event *readable;
};

struct askpass {
	struct event_base *base;
	struct askpass_owner owner;
	char path[108], token[33];
	int fd;
	struct event *readable;
	struct question *first;
	uint64_t last_id;
};

static void question_free(struct question *q)
{
	event_free(q->readable);
	close(q->fd);
	buf_done(&q->in);
	free(q);
}

static void drop(struct question *q)
{
	for (struct question **at = &q->askpass->first; *at; at = &(*at)->next) {
		if (*at == q) {
			*at = q->next;
			break;
		}
	}
	question_free(q);
}

/* Whole: does it know the word, and what is it about? */
static void take(struct question *q)
{
	struct askpass *a = q->askpass;
	size_t n = strlen(a->token);
	const char *said = buf_str(&q->in), *prompt;

	prompt = strncmp(said, a->token, n) != 0 || said[n] != '\n' ? NULL
								    : strchr(said + n + 1, '\n');
	if (!prompt || memchr(said, '\0', q->in.len)) {
		drop(q);
		return;
	}
	q->id = ++a->last_id;
	a->owner.asks(a->owner.arg, q->id, prompt + 1, askpass_is_secret(prompt + 1));
}

/* Reads the question; later, only its end: ssh doesn't want to know any more. */
static void on_question(evutil_socket_t fd, short what, void *arg)
{
	struct question *q = arg;
	char bytes[1024];
	ssize_t n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0 && !q->id && q->in.len + (size_t)n <= ASKPASS_PROMPT_MAX + 128) {
		buf_put(&q->in, bytes, (size_t)n);
	} else if (n == 0 && !q->id) {
		/* The end of the question is also all that a vanished peer shows; the answer's write finds out. */
		event_del(q->readable);
		take(q);
	} else {
		drop(q);
	}
}

static void on_listen(evutil_socket_t fd, short what, void *arg)
{
	struct askpass *a = arg;
	struct ucred peer;
	socklen_t n = sizeof(peer);
	CLEANUP_CLOSE int own = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct question *q;

	if (own < 0 || getsockopt(own, SOL_SOCKET, SO_PEERCRED, &peer, &n) || peer.uid != geteuid())
		return;
	q = xcalloc(1, sizeof(*q));
	q->askpass = a;
	q->fd = TAKE_FD(own);
	q->next = a->first;
	a->first = q;
	q->readable = event_new(a->base, q->fd, EV_READ | EV_PERSIST, on_question, q);
	event_add(q->readable, NULL);
}

int askpass_new(struct event_base *base, const char *dir, const struct askpass_owner *owner,
	struct askpass **ret, struct err *e)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	CLEANUP_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct askpass *a;
	char name[17];

	random_hex(6, name);
	if (snprintf(address.sun_path, sizeof(address.sun_path), "%s/ask-%s", dir, name) >=
		(int)sizeof(address.sun_path))
		return err_set(e, -ENAMETOOLONG, "%s is too long a name for a socket", dir);
	/* The directory is 0700: nobody else comes this far. */
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, 16))
		return err_sys(e, -errno, "a socket for ssh's questions can't be made in %s", dir);
	a = xcalloc(1, sizeof(*a));
	a->base = base;
	a->owner = *owner;
	memcpy(a->path, address.sun_path, sizeof(address.sun_path));
	random_hex(16, a->token);
	a->fd = TAKE_FD(fd);
	a->readable = event_new(base, a->fd, EV_READ | EV_PERSIST, on_listen, a);
	event_add(a->readable, NULL);
	*ret = a;
	return 0;
}

const char *askpass_path(const struct askpass *a)
{
	return a->path;
}

const char *askpass_token(const struct askpass *a)
{
	return a->token;
}

void askpass_answer(struct askpass *a, uint64_t question, const char *answer)
{
	for (struct question *q = a->first; q; q = q->next) {
		if (q->id != question)
			continue;
		/* At most a password: it fits the socket's buffer. */
		if (answer) {
			send(q->fd, "+", 1, MSG_NOSIGNAL);
			send(q->fd, answer, strnlen(answer, 4000), MSG_NOSIGNAL);
		} else {
			send(q->fd, "-", 1, MSG_NOSIGNAL);
		}
		drop(q);
		return;
	}
}

size_t askpass_open(const struct askpass *a)
{
	size_t n = 0;

	for (const struct question *q = a->first; q; q = q->next)
		n++;
	return n;
}

void askpass_free(struct askpass *a)
{
	if (!a)
		return;
	for (struct question *q = a->first, *next; q; q = next) {
		next = q->next;
		question_free(q);
	}
	event_free(a->readable);
	close(a->fd);
	unlink(a->path);
	free(a);
}
