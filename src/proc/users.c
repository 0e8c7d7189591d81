/*
 * The cache of names and its helper process: forked with the list of uids that are wanted, it writes one record for each
 * and ends. One helper at a time; one that takes too long is killed, and its uids are asked for again later.
 */
#include "proc/users.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define USERS_MAX 1024
#define BATCH_MAX 64 /* records that fit a pipe whole, without anybody reading */
#define KNOWN_MS (10 * 60 * 1000)
#define AGAIN_MS (60 * 1000) /* after a look-up that was killed */
#define HELPER_MS 30000

struct user {
	uint32_t uid;
	char name[USER_NAME_LEN];
	int64_t until_ms; /* looked up again after that; 0: wanted now */
};

struct users {
	struct user *items;
	size_t n, cap;
	pid_t helper; /* 0: none */
	pid_t ended; /* killed and not reaped yet; no other is started before */
	int fd;
	int64_t started_ms;
	uint32_t batch[BATCH_MAX];
	size_t n_batch;
};

struct record {
	uint32_t uid;
	char name[USER_NAME_LEN];
};

struct users *users_new(void)
{
	struct users *u = xcalloc(1, sizeof(*u));

	u->fd = -1;
	return u;
}

static void end_helper(struct users *u)
{
	if (u->fd >= 0)
		close(u->fd);
	u->fd = -1;
	if (u->helper > 0) {
		kill(u->helper, SIGKILL);
		u->ended = u->helper;
	}
	u->helper = 0;
	u->n_batch = 0;
}

static bool reap(struct users *u)
{
	if (u->ended != 0 && waitpid(u->ended, NULL, WNOHANG) != 0)
		u->ended = 0;
	return u->ended == 0;
}

void users_free(struct users *u)
{
	if (u == NULL)
		return;
	end_helper(u);
	reap(u);
	free(u->items);
	free(u);
}

static struct user *find(struct users *u, uint32_t uid)
{
	for (size_t i = 0; i < u->n; i++) {
		if (u->items[i].uid == uid)
			return &u->items[i];
	}
	return NULL;
}

const char *users_name(struct users *u, uint32_t uid, int64_t now_ms)
{
	struct user *x = uid == (uint32_t)-1 ? NULL : find(u, uid);

	if (x == NULL && uid != (uint32_t)-1 && u->n < USERS_MAX) {
		GROW(u->items, u->n, u->cap);
		x = &u->items[u->n++];
		*x = (struct user){.uid = uid};
	}
	if (x == NULL)
		return "";
	if (x->until_ms != 0 && now_ms >= x->until_ms)
		x->until_ms = 0;
	return x->name;
}

static _Noreturn void helper_main(const uint32_t *uids, size_t n, int fd, pid_t parent)
{
	char text[16384];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
	prctl(PR_SET_NAME, "gpustow-users");
	fd_close_from(3, &fd, 1);
	for (size_t i = 0; i < n; i++) {
		struct record r = {.uid = uids[i]};
		struct passwd pw, *found = NULL;

		if (getpwuid_r(uids[i], &pw, text, sizeof(text), &found) == 0 && found != NULL &&
			strlen(pw.pw_name) < sizeof(r.name))
			memcpy(r.name, pw.pw_name, strlen(pw.pw_name));
		if (fd_write_all(fd, &r, sizeof(r)) < 0)
			break;
	}
	_exit(0);
}

static void start(struct users *u, int64_t now_ms)
{
	pid_t self = getpid(), pid;
	int p[2];

	u->n_batch = 0;
	for (size_t i = 0; i < u->n && u->n_batch < BATCH_MAX; i++) {
		if (u->items[i].until_ms == 0)
			u->batch[u->n_batch++] = u->items[i].uid;
	}
	if (u->n_batch == 0 || pipe2(p, O_CLOEXEC | O_NONBLOCK) < 0)
		return;
	pid = fork();
	if (pid == 0)
		helper_main(u->batch, u->n_batch, p[1], self);
	close(p[1]);
	if (pid < 0) {
		close(p[0]);
		return;
	}
	u->helper = pid;
	u->fd = p[0];
	u->started_ms = now_ms;
}

/* What wasn't answered is asked for again, but not at once. */
static void finish(struct users *u, int64_t now_ms)
{
	for (size_t i = 0; i < u->n_batch; i++) {
		struct user *x = find(u, u->batch[i]);

		if (x != NULL && x->until_ms == 0)
			x->until_ms = now_ms + AGAIN_MS;
	}
	end_helper(u);
}

/* Records are written whole: a pipe doesn't cut what is so small. */
static void take(struct users *u, int64_t now_ms)
{
	struct record r;
	ssize_t n;

	while ((n = read(u->fd, &r, sizeof(r))) == (ssize_t)sizeof(r)) {
		struct user *x = find(u, r.uid);

		if (x == NULL)
			continue;
		memcpy(x->name, r.name, sizeof(x->name));
		x->name[sizeof(x->name) - 1] = '\0';
		x->until_ms = now_ms + KNOWN_MS;
	}
	if (n >= 0 || errno != EAGAIN)
		finish(u, now_ms);
}

void users_turn(struct users *u, int64_t now_ms, int wait_ms)
{
	struct pollfd p;

	if (u->helper == 0 && reap(u))
		start(u, now_ms);
	if (u->helper == 0)
		return;
	p = (struct pollfd){.fd = u->fd, .events = POLLIN};
	/* Usually it's a file, and done before we look. */
	for (int i = 0; i < BATCH_MAX && u->helper != 0 && poll(&p, 1, wait_ms) > 0; i++)
		take(u, now_ms);
	if (u->helper != 0 && now_ms - u->started_ms >= HELPER_MS)
		finish(u, now_ms);
}
