/*
 * From a channel to the resident agent. An agent that's there and answers is taken as it is; one of an older build is
 * asked to yield, one that says nothing for 3 s is killed (its jobs are their shims', not its own); where there's none
 * one is started through this program's own file. Reads and starts no job.
 *
 *   connect -> ask -> ready            hello came, not older
 *       |       `---> yield, kill -> connect again
 *       `---> start -> connect again   nobody listens
 */
#include "agent/attach.h"

#include "agent/root.h"
#include "agent/self.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "core/wire.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#define HUNG_MS 3000
#define YIELD_MS 5000
#define REACH_MS 20000
#define LAST_BYTES_MS 1000
#define RELAY_BYTES 65536

/* ---- one question to whoever listens ---- */

struct peer {
	int fd;
	struct buf in;
};

static void peer_done(struct peer *p)
{
	if (p->fd >= 0)
		close(p->fd);
	buf_done(&p->in);
	p->fd = -1;
}

/* 0 and a connected socket, or -errno: -ENOENT and -ECONNREFUSED mean that nobody listens. */
static int reach(const struct root *root, int *ret_fd, struct err *e)
{
	struct sockaddr_un address;
	struct ucred peer;
	socklen_t n = sizeof(peer);
	CLEANUP_CLOSE int fd = -1;
	int r = root_sockaddr(root, "agent.sock", &address, e);

	if (r)
		return r;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	/* EAGAIN: the backlog of one that doesn't accept is full. */
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)))
		return -errno;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) || peer.uid != geteuid())
		return err_set(e, -EPERM, "%s/agent.sock belongs to another user", root->path);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static bool say(struct peer *p, json_t *msg)
{
	CLEANUP(buf_done) struct buf out = {0};
	bool is_said = !wire_put_json(&out, msg, NULL) &&
		       send(p->fd, out.data, out.len, MSG_NOSIGNAL) == (ssize_t)out.len;

	json_decref(msg);
	return is_said;
}

/* The next message with that op; NULL: the peer ended, or said nothing of the kind in time (*ret_ended tells which). */
static json_t *hear(struct peer *p, const char *op, int64_t ms, bool *ret_ended)
{
	int64_t until_ms = clock_boot_ms() + ms, left_ms;

	*ret_ended = false;
	while ((left_ms = until_ms - clock_boot_ms()) > 0) {
		struct pollfd poll_fd = {.fd = p->fd, .events = POLLIN};
		json_t *msg = NULL;
		ssize_t n;
		int r;

		while ((r = wire_get_json(&p->in, &msg, NULL)) > 0) {
			const char *its = json_string_value(json_object_get(msg, "op"));

			if (its && !strcmp(its, op))
				return msg;
			json_decref(msg);
		}
		if (r < 0)
			break;
		if (poll(&poll_fd, 1, (int)left_ms) <= 0)
			continue;
		buf_reserve(&p->in, RELAY_BYTES);
		n = recv(p->fd, p->in.data + p->in.len, RELAY_BYTES, 0);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (n <= 0) {
			*ret_ended = true;
			break;
		}
		p->in.len += (size_t)n;
	}
	return NULL;
}

/* ---- the agent's state ---- */

enum agent_is { AGENT_ABSENT, AGENT_WELL, AGENT_OLDER, AGENT_HUNG, AGENT_LEAVING };

static enum agent_is ask(struct peer *p, int64_t *ret_build)
{
	bool has_ended;
	json_t *hello;
	int64_t build;
	int r;

	if (!say(p, json_pack("{s:s, s:i, s:i, s:s}", "op", "hello", "protocol", WIRE_PROTOCOL,
			    "build", GPUSTOW_BUILD, "who", "attach")))
		return AGENT_LEAVING;
	hello = hear(p, "hello", HUNG_MS, &has_ended);
	if (!hello)
		return has_ended ? AGENT_LEAVING : AGENT_HUNG;
	r = wire_int(hello, "build", 0, INT64_MAX, &build, NULL);
	json_decref(hello);
	if (r)
		return AGENT_HUNG;
	*ret_build = build;
	return build < GPUSTOW_BUILD ? AGENT_OLDER : AGENT_WELL;
}

/* The pid of whoever owns the socket, by the lock; 0 when nobody does. */
static pid_t holder(const struct root *root)
{
	CLEANUP_CLOSE int fd = openat(root->fd, "agent.lock", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	pid_t pid = 0;

	return fd < 0 || fd_lock_holder(fd, &pid) ? 0 : pid;
}

/* Waits until the lock is free or another's. */
static bool has_gone(const struct root *root, pid_t pid, int64_t ms)
{
	int64_t until_ms = clock_boot_ms() + ms;

	while (holder(root) == pid) {
		if (clock_boot_ms() >= until_ms)
			return false;
		poll(NULL, 0, 10);
	}
	return true;
}

static void end_hung(const struct root *root)
{
	pid_t pid = holder(root);

	if (pid > 0 && !kill(pid, SIGKILL))
		has_gone(root, pid, YIELD_MS);
}

/* Asks an older agent to go. It finishes the launch in hand first; one that doesn't understand is as good as hung. */
static void end_older(const struct root *root, struct peer *p)
{
	pid_t pid = holder(root);

	say(p, json_pack("{s:s, s:i}", "op", "yield", "build", GPUSTOW_BUILD));
	if (pid > 0 && !has_gone(root, pid, YIELD_MS))
		end_hung(root);
}

/* "<own file> serve ROOT": its first process leaves once the agent listens, or another has the lock. */
static int start(const struct root *root, struct err *e)
{
	CLEANUP(buf_done) struct buf said = {0};
	int fds[2], status = 0;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC))
		return err_sys(e, -errno, "the agent can't be started");
	pid = fork();
	if (!pid) {
		int null_fd = open("/dev/null", O_RDWR);

		/* The channel's descriptors must not live on in the agent, or ssh never ends. */
		if (null_fd < 0 || dup2(null_fd, 0) < 0 || dup2(null_fd, 1) < 0 ||
			dup2(fds[1], 2) < 0)
			_exit(126);
		signal(SIGPIPE, SIG_DFL);
		execl("/proc/self/exe", "gpustow-agent", "serve", root->path, (char *)NULL);
		_exit(127);
	}
	close(fds[1]);
	if (pid > 0)
		fd_read_all(fds[0], &said, ERR_TEXT);
	close(fds[0]);
	if (pid < 0)
		return err_sys(e, -errno, "the agent can't be started");
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFEXITED(status) && !WEXITSTATUS(status))
		return 0;
	for (size_t i = 0; i < said.len; i++)
		if ((unsigned char)said.data[i] < ' ')
			said.data[i] = ' ';
	return err_set(e, -EIO, "the agent doesn't start: %s",
		said.len ? buf_str(&said) : "it said nothing");
}

/* A connection to an agent that has just answered, whatever it takes. */
static int find_agent(const struct root *root, int *ret_fd, int64_t *ret_build, struct err *e)
{
	int64_t until_ms = clock_boot_ms() + REACH_MS;

	while (clock_boot_ms() < until_ms) {
		struct peer p = {.fd = -1};
		enum agent_is is = AGENT_ABSENT;
		int r = reach(root, &p.fd, e);

		if (!r)
			is = ask(&p, ret_build);
		else if (r == -EAGAIN)
			is = AGENT_HUNG;
		else if (r != -ENOENT && r != -ECONNREFUSED)
			return e->text[0] ? r : err_sys(e, r, "the agent can't be reached");
		if (is == AGENT_OLDER)
			end_older(root, &p);
		peer_done(&p);
		if (is == AGENT_WELL && !reach(root, ret_fd, e))
			return 0;
		if (is == AGENT_HUNG)
			end_hung(root);
		if (is == AGENT_ABSENT && (r = start(root, e)))
			return r;
		if (is == AGENT_LEAVING)
			poll(NULL, 0, 20);
	}
	return err_set(e, -ETIMEDOUT, "no agent could be started in %d s; %s/log may say why",
		REACH_MS / 1000, root->path);
}

/* ---- the relay ---- */

/* One direction: what was read and not yet written. */
struct lane {
	int from, to;
	char bytes[RELAY_BYTES];
	size_t at, len;
	bool has_end;
};

static bool lane_read(struct lane *l)
{
	ssize_t n = read(l->from, l->bytes, sizeof(l->bytes));

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	l->has_end = n <= 0;
	l->at = 0;
	l->len = n > 0 ? (size_t)n : 0;
	return !l->has_end;
}

/* False when the other side is gone. */
static bool lane_write(struct lane *l)
{
	while (l->at < l->len) {
		ssize_t n = write(l->to, l->bytes + l->at, l->len - l->at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN;
		l->at += (size_t)n;
	}
	return true;
}

static bool is_full(const struct lane *l)
{
	return l->at < l->len;
}

/* What was read before the end came goes on its way, if it goes soon. */
static void write_last(struct lane *l)
{
	int64_t until_ms = clock_boot_ms() + LAST_BYTES_MS, left_ms;

	while (lane_write(l) && is_full(l) && (left_ms = until_ms - clock_boot_ms()) > 0) {
		struct pollfd p = {.fd = l->to, .events = POLLOUT};

		poll(&p, 1, (int)left_ms);
	}
}

/* One turn. False when either side has ended. */
static bool relay_turn(struct lane *up, struct lane *down)
{
	struct pollfd p[3] = {
		{.fd = up->from, .events = is_full(up) ? 0 : POLLIN},
		{.fd = down->from,
			.events = (is_full(down) ? 0 : POLLIN) | (is_full(up) ? POLLOUT : 0)},
		{.fd = down->to, .events = is_full(down) ? POLLOUT : 0},
	};
	const short over = POLLHUP | POLLERR | POLLNVAL;

	/* Without events poll would still tell of a hangup, each time anew; then the write finds out. */
	if (is_full(up))
		p[0].fd = -1;
	if (poll(p, 3, -1) < 0)
		return errno == EINTR;
	if (p[2].revents & over && !(p[2].revents & POLLOUT))
		return false;
	if (!is_full(up) && p[0].revents && !lane_read(up))
		return false;
	if (!is_full(down) && p[1].revents & (POLLIN | over) && !lane_read(down))
		return false;
	return lane_write(up) && lane_write(down);
}

static void relay(int agent_fd)
{
	static struct lane up, down;

	up = (struct lane){.from = STDIN_FILENO, .to = agent_fd};
	down = (struct lane){.from = agent_fd, .to = STDOUT_FILENO};
	fd_set_nonblock(agent_fd, true);
	fd_set_nonblock(STDIN_FILENO, true);
	fd_set_nonblock(STDOUT_FILENO, true);
	while (relay_turn(&up, &down))
		;
	write_last(&up);
	write_last(&down);
}

/* ---- the whole ---- */

static bool say_line(const char *mark, const char *word, const char *text)
{
	CLEANUP(buf_done) struct buf b = {0};

	buf_printf(&b, "\n%s %s %s\n", mark, word, text);
	return !fd_write_all(STDOUT_FILENO, b.data, b.len);
}

static int open_root(struct root *root, struct err *e)
{
	char path[3072];
	int r = root_path(path, sizeof(path), e);

	root_init(root);
	return r ? r : root_open(root, path, e);
}

int attach_run(const char *mark, const char *hash)
{
	char own[65], ready[96];
	struct utsname machine = {0};
	struct root root;
	struct err e = {0};
	CLEANUP_CLOSE int fd = -1;
	int64_t build = 0;

	/* A dead channel is seen at the write; a boot line may have had it ignored anyway. */
	signal(SIGPIPE, SIG_IGN);
	if (hash && (self_hash(own, &e) || strcmp(own, hash) != 0))
		return 1;
	if (open_root(&root, &e) || find_agent(&root, &fd, &build, &e)) {
		say_line(mark, "FAIL", e.text);
		return 1;
	}
	uname(&machine);
	snprintf(ready, sizeof(ready), "build=%lld cpu=%.32s", (long long)build, machine.machine);
	if (!say_line(mark, "READY", ready))
		return 1;
	self_tidy();
	relay(fd);
	root_done(&root);
	return 0;
}
