/* The client's side of the daemon's socket: see daemon_client.h. Blocking, with a bound on every wait. */
#include "queue/daemon_client.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/fs.h"
#include "base/hash.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define SWEEP_AFTER_MS 60000

/* The directory's file system: the file itself may not be there yet. */
static bool is_on_network(const char *db_path)
{
	const char *slash = strrchr(db_path, '/');
	CLEANUP_FREE char *dir = !slash		    ? xstrdup(".")
				 : slash == db_path ? xstrdup("/")
						    : xstrndup(db_path, (size_t)(slash - db_path));

	return fs_is_network(dir) > 0;
}

static char *local_place(void)
{
	return xasprintf("/var/tmp/gpustow-%u", (unsigned)geteuid());
}

/* By the database's place, whatever links lead to it. */
static char *local_path(const char *db_path)
{
	CLEANUP_FREE char *real = realpath(db_path, NULL), *dir = local_place();
	const char *place = real ? real : db_path;
	uint8_t sum[32];
	char hex[17];

	sha256(place, strlen(place), sum);
	hex_encode(sum, 8, hex);
	return xasprintf("%s/queue-%s.sock", dir, hex);
}

static bool is_a_daemons(int dir, const char *name, struct stat *ret)
{
	const char *stem = !strncmp(name, "queue-", 6) ? name + 6 : "";

	return strspn(stem, "0123456789abcdef") == 16 && !strcmp(stem + 16, ".sock") &&
	       !fstatat(dir, name, ret, AT_SYMLINK_NOFOLLOW) && S_ISSOCK(ret->st_mode) &&
	       ret->st_uid == geteuid();
}

static bool is_dead(int dir, const char *name)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r;

	snprintf(to.sun_path, sizeof(to.sun_path), "/proc/self/fd/%d/%.40s", dir, name);
	r = fd < 0 || !connect(fd, (struct sockaddr *)&to, sizeof(to)) ? 0 : errno;
	if (fd >= 0)
		close(fd);
	return r == ECONNREFUSED;
}

void daemon_sweep(const char *path)
{
	DIR *d = opendir(path);
	const struct dirent *e;

	while (d && (e = readdir(d))) {
		int64_t old_ms = clock_wall_ms() - SWEEP_AFTER_MS;
		struct stat st, now;

		/* Looked at once more: a new daemon of that queue may have replaced it meanwhile. */
		if (is_a_daemons(dirfd(d), e->d_name, &st) &&
			(int64_t)st.st_mtime * 1000 < old_ms && is_dead(dirfd(d), e->d_name) &&
			is_a_daemons(dirfd(d), e->d_name, &now) && now.st_ino == st.st_ino &&
			now.st_mtime == st.st_mtime)
			unlinkat(dirfd(d), e->d_name, 0);
	}
	if (d)
		closedir(d);
}

char *daemon_socket_path(const char *db_path)
{
	size_t n = strlen(db_path);

	if (is_on_network(db_path))
		return local_path(db_path);
	if (n > 3 && !strcmp(db_path + n - 3, ".db"))
		n -= 3;
	return xasprintf("%.*s.sock", (int)n, db_path);
}

int daemon_address(const char *db_path, struct sockaddr_un *ret, int *ret_dir, struct err *e)
{
	CLEANUP_FREE char *path = daemon_socket_path(db_path);
	char *slash = strrchr(path, '/');
	int n;

	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	*ret_dir = -1;
	n = snprintf(ret->sun_path, sizeof(ret->sun_path), "%s", path);
	if ((size_t)n < sizeof(ret->sun_path))
		return 0;
	if (!slash)
		return err_set(e, -ENAMETOOLONG, "the socket's name \"%.64s\" is too long", path);
	*slash = '\0';
	*ret_dir = open(*path ? path : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (*ret_dir < 0)
		return err_sys(e, -errno, "cannot open %s", path);
	n = snprintf(
		ret->sun_path, sizeof(ret->sun_path), "/proc/self/fd/%d/%s", *ret_dir, slash + 1);
	if ((size_t)n < sizeof(ret->sun_path))
		return 0;
	close(TAKE_FD(*ret_dir));
	*ret_dir = -1;
	return err_set(e, -ENAMETOOLONG, "the socket's name \"%.64s\" is too long", slash + 1);
}

static bool is_ours(int fd)
{
	struct ucred who = {0};
	socklen_t n = sizeof(who);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) && who.uid == geteuid();
}

static int connect_to(const char *db_path)
{
	struct sockaddr_un to;
	struct err e;
	int dir = -1, fd, r = daemon_address(db_path, &to, &dir, &e);

	if (r < 0)
		return r;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 || !is_ours(fd))) {
		bool is_refused = errno == ECONNREFUSED;

		close(fd);
		fd = -1;
		if (is_refused && is_on_network(db_path)) {
			CLEANUP_FREE char *place = local_place();

			daemon_sweep(place);
		}
	}
	if (dir >= 0)
		close(dir);
	return fd < 0 ? -ENOENT : fd;
}

int daemon_talk_open(struct daemon_talk *t, const char *db_path, const char *queue)
{
	json_t *hello = NULL;
	const char *op, *of;
	int fd = connect_to(db_path), r;

	*t = (struct daemon_talk){.fd = -1};
	if (fd < 0)
		return -ENOENT;
	t->fd = fd;
	r = daemon_talk_hear(t, DAEMON_HELLO_MS, &hello);
	op = json_string_value(json_object_get(hello, "op"));
	of = json_string_value(json_object_get(hello, "queue"));
	if (r <= 0 || !op || strcmp(op, "hello") != 0 || !of || strcmp(of, queue) != 0) {
		json_decref(hello);
		daemon_talk_done(t);
		return -ENOENT;
	}
	t->pid = json_integer_value(json_object_get(hello, "pid"));
	json_decref(hello);
	return 0;
}

int daemon_talk_say(struct daemon_talk *t, json_t *msg)
{
	CLEANUP_FREE char *line = json_dumps(msg, JSON_COMPACT);
	size_t n = line ? strlen(line) : 0, done = 0;
	int64_t until = clock_boot_ms() + DAEMON_HELLO_MS;

	json_decref(msg);
	if (!line)
		return -EINVAL;
	line[n++] = '\n';
	while (done < n) {
		ssize_t w = send(t->fd, line + done, n - done, MSG_NOSIGNAL);
		struct pollfd pfd = {.fd = t->fd, .events = POLLOUT};

		if (w > 0)
			done += (size_t)w;
		else if (errno != EAGAIN && errno != EINTR)
			return -errno;
		else if (clock_boot_ms() >= until)
			return -ETIMEDOUT;
		else
			poll(&pfd, 1, 100);
	}
	return 0;
}

/* A whole line that is there already. */
static int take_line(struct daemon_talk *t, json_t **ret)
{
	char *end = t->in.len ? memchr(t->in.data, '\n', t->in.len) : NULL;
	size_t n;

	if (!end)
		return t->in.len > DAEMON_LINE_MAX ? -EBADMSG : 0;
	n = (size_t)(end - t->in.data);
	*ret = json_loadb(t->in.data, n, 0, NULL);
	buf_drop(&t->in, n + 1);
	return *ret ? 1 : -EBADMSG;
}

int daemon_talk_hear(struct daemon_talk *t, int64_t wait_ms, json_t **ret)
{
	int64_t until = clock_boot_ms() + wait_ms;

	*ret = NULL;
	for (;;) {
		struct pollfd pfd = {.fd = t->fd, .events = POLLIN};
		int64_t left = until - clock_boot_ms();
		int r = take_line(t, ret);
		ssize_t n;

		if (r)
			return r;
		buf_reserve(&t->in, 65536);
		n = recv(t->fd, t->in.data + t->in.len, 65536, 0);
		if (n > 0) {
			t->in.len += (size_t)n;
			t->in.data[t->in.len] = '\0';
			continue;
		}
		if (!n)
			return -ECONNRESET;
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		if (left <= 0)
			return 0;
		poll(&pfd, 1, left > 60000 ? 60000 : (int)left);
	}
}

void daemon_talk_done(struct daemon_talk *t)
{
	if (t->fd >= 0)
		close(t->fd);
	t->fd = -1;
	buf_done(&t->in);
}

int daemon_bell_open(struct daemon_talk *t, const char *db_path, const char *queue)
{
	int r = daemon_talk_open(t, db_path, queue);

	if (r < 0)
		return r;
	if (daemon_talk_say(t, json_pack("{s:s}", "op", "watch")) < 0) {
		daemon_talk_done(t);
		return -ENOENT;
	}
	return 0;
}

bool daemon_bell_rang(struct daemon_talk *t)
{
	bool has_rung = false;
	json_t *msg = NULL;
	int r;

	if (t->fd < 0)
		return false;
	while ((r = daemon_talk_hear(t, 0, &msg)) > 0) {
		const char *op = json_string_value(json_object_get(msg, "op"));

		has_rung |= op && !strcmp(op, "events");
		json_decref(msg);
	}
	if (r == 0)
		return has_rung;
	daemon_talk_done(t);
	return true;
}

json_t *daemon_state(const char *db_path, const char *queue)
{
	CLEANUP(daemon_talk_done) struct daemon_talk t = {.fd = -1};
	json_t *msg = NULL;

	if (daemon_talk_open(&t, db_path, queue) < 0 ||
		daemon_talk_say(&t, json_pack("{s:s}", "op", "state")) < 0 ||
		daemon_talk_hear(&t, DAEMON_HELLO_MS, &msg) <= 0)
		return NULL;
	json_object_del(msg, "op");
	return msg;
}
