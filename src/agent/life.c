/* The agent's beginning and end. Owns the lock, the sockets and their names; the loop in between is server.c's. */
#include "agent/life.h"

#include "agent/chores.h"
#include "agent/job_remove.h"
#include "agent/lane_command.h"
#include "agent/lanes.h"
#include "agent/server.h"
#include "agent/shim.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/parse.h"
#include "proc/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define IDLE_MS 60000
#define FAREWELL_MS 1000
#define BACKLOG 128

bool life_has_socket(const struct agent *a)
{
	struct sys_stat st;

	return !sys_stat_at(a->root.fd, "agent.sock", AT_SYMLINK_NOFOLLOW, &st) &&
	       st.dev == a->socket_id.dev && st.ino == a->socket_id.ino;
}

static int take_lock(struct agent *a, struct err *e)
{
	int r;

	a->lock_fd =
		openat(a->root.fd, "agent.lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (a->lock_fd < 0)
		return err_sys(e, -errno, "%s/agent.lock can't be opened", a->root.path);
	r = fd_lock(a->lock_fd, NULL);
	if (r && r != -EAGAIN)
		return err_sys(e, r, "%s/agent.lock can't be locked", a->root.path);
	return r;
}

static int bind_socket(struct agent *a, const char *name, int type, int *ret, struct err *e)
{
	struct sockaddr_un sa;
	CLEANUP_CLOSE int fd = -1;
	int r = root_sockaddr(&a->root, name, &sa, e);

	if (r)
		return r;
	unlinkat(a->root.fd, name, 0);
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) ||
		(type == SOCK_STREAM && listen(fd, BACKLOG)))
		return err_sys(e, -errno, "the socket %s/%s can't be made", a->root.path, name);
	*ret = TAKE_FD(fd);
	return 0;
}

static int bind_sockets(struct agent *a, struct err *e)
{
	int r = bind_socket(a, "bell", SOCK_DGRAM, &a->bell_fd, e);

	if (!r)
		r = bind_socket(a, "agent.sock", SOCK_STREAM, &a->listen_fd, e);
	if (!r)
		r = sys_stat_at(a->root.fd, "agent.sock", AT_SYMLINK_NOFOLLOW, &a->socket_id);
	return r;
}

static int take_signals(struct agent *a, struct err *e)
{
	sigset_t set;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	a->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return a->signal_fd < 0 ? err_sys(e, -errno, "the agent can't wait for signals") : 0;
}

static int64_t idle_ms(const struct agent_options *o)
{
	const char *env = getenv("GPUSTOW_AGENT_IDLE");
	int64_t s;

	if (o->idle_ms)
		return o->idle_ms;
	if (env && !parse_int64(env, &s) && s > 0 && s < 1000000)
		return s * 1000;
	return IDLE_MS;
}

static int load(struct agent *a, const struct agent_options *o, struct err *e)
{
	int r = retired_load(&a->root, &a->retired, e);

	if (r)
		return r;
	fences_init(&a->fences, &a->root);
	a->ledger = ledger_new();
	a->promise = promise_new(o->promise_dir);
	a->sampler = sampler_new(o->open_gpu);
	a->profiler = profiler_new();
	a->files = files_new();
	a->chores = chores_new();
	a->lanes = lanes_new();
	a->lane_drafts = lane_drafts_new();
	attempts_init(&a->attempts, &a->root, agent_attempt_changed, a);
	r = attempts_load(&a->attempts, a->now_ms, e);
	if (r)
		return r;
	lanes_load(a);
	/* After the loading, which removes claims by their retired lines. */
	agent_compact(a);
	launch_publish(a);
	return 0;
}

int agent_init(struct agent *a, const char *root_path_or_null, const struct agent_options *o,
	struct err *e)
{
	char path[3072];
	int r = 0;

	*a = (struct agent){.lock_fd = -1, .listen_fd = -1, .bell_fd = -1, .signal_fd = -1};
	root_init(&a->root);
	a->now_ms = clock_boot_ms();
	if (!root_path_or_null)
		r = root_path(path, sizeof(path), e);
	if (!r)
		r = root_open(&a->root, root_path_or_null ? root_path_or_null : path, e);
	if (!r)
		r = take_lock(a, e);
	if (!r)
		r = take_signals(a, e);
	if (!r)
		r = proc_machine_key(a->machine_key);
	if (r)
		return r;
	prctl(PR_SET_NAME, SUPERVISE_AGENT_NAME);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	a->root.agent_exe = o->agent_exe;
	a->idle_ms = idle_ms(o);
	a->idle_since_ms = a->look_at_ms = a->now_ms;
	/* The bell hangs before the claims are read, so that no ring after the reading is missed. */
	r = bind_sockets(a, e);
	return r ? r : load(a, o, e);
}

void agent_done(struct agent *a)
{
	for (size_t i = 0; i < a->n_clients; i++)
		client_free(a->clients[i]);
	free(a->clients);
	files_free(a->files);
	chores_free(a->chores);
	job_removals_free(a->removals);
	launch_done(&a->launch);
	lane_drafts_free(a->lane_drafts);
	lanes_free(a->lanes);
	attempts_done(&a->attempts);
	sampler_free(a->sampler);
	profiler_free(a->profiler);
	promise_free(a->promise);
	ledger_free(a->ledger);
	fences_done(&a->fences);
	retired_free(a->retired);
	for (size_t i = 0; i < FRAME_N; i++)
		buf_done(&a->frame[i]);
	buf_done(&a->base_frame);
	sample_base_done(&a->base);
	host_reader_done(&a->host);
	node_reader_done(&a->node);
	json_decref(a->sim_vars);
	for (int *fd = (int[]){a->listen_fd, a->bell_fd, a->signal_fd, a->lock_fd}, i = 0; i < 4;
		i++)
		if (fd[i] >= 0)
			close(fd[i]);
	root_done(&a->root);
}

/* ---- leaving ---- */

/* Who came in the last moment isn't turned away by an idle agent. */
static bool somebody_came(struct agent *a)
{
	struct pollfd p = {.fd = a->listen_fd, .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

static void say_bye(struct agent *a)
{
	for (size_t i = 0; i < a->n_clients; i++) {
		struct client *c = a->clients[i];

		if (c->is_dead)
			continue;
		if (!c->is_closing)
			client_send(c, json_pack("{s:s, s:s}", "op", "bye", "reason", a->leaving));
		c->is_closing = true;
	}
}

/* A client that doesn't read has had its time. */
static void flush_clients(struct agent *a)
{
	int64_t until_ms = clock_boot_ms() + FAREWELL_MS;
	size_t waiting = 1;

	while (waiting && clock_boot_ms() < until_ms) {
		waiting = 0;
		for (size_t i = 0; i < a->n_clients; i++)
			waiting += client_write(a->clients[i]) && client_wants_write(a->clients[i]);
		if (waiting)
			poll(NULL, 0, 10);
	}
}

bool life_leave(struct agent *a)
{
	bool is_idle = !strcmp(a->leaving, "idle");

	if (is_idle && life_has_socket(a) && (a->n_clients || somebody_came(a))) {
		a->leaving = NULL;
		a->idle_since_ms = clock_boot_ms();
		return false;
	}
	agent_retire(a);
	say_bye(a);
	flush_clients(a);
	/* Stop listening, unlink, unlock (agent_done). A name that is somebody else's by now stays. */
	close(a->listen_fd);
	a->listen_fd = -1;
	if (life_has_socket(a)) {
		unlinkat(a->root.fd, "agent.sock", 0);
		unlinkat(a->root.fd, "bell", 0);
	}
	return true;
}

/* ---- staying ---- */

/* The next agent hears of it as it hears of a shim's. */
static void ring_of(void *arg, struct attempt *at)
{
	struct agent *a = arg;
	char name[ATTEMPT_NAME_LEN];

	attempt_name_format(&at->name, name);
	shim_ring(&a->root, name, at->rec.state == ATTEMPT_ENDED);
}

static void keep_supervised(struct attempts *t)
{
	for (size_t i = t->n; i-- > 0;)
		if (!t->items[i]->sup)
			attempts_remove(t, t->items[i]);
}

/* Everything that the next agent has of its own. The lock goes first: a promise too many only refuses. */
static void give_up_office(struct agent *a)
{
	for (size_t i = 0; i < a->n_clients; i++)
		client_free(a->clients[i]);
	a->n_clients = 0;
	for (int *fd[] = {&a->lock_fd, &a->listen_fd, &a->bell_fd}, **p = fd;
		p < fd + ARRAY_LEN(fd); p++) {
		if (**p >= 0)
			close(**p);
		**p = -1;
	}
	files_free(a->files);
	a->files = NULL;
	chores_free(a->chores);
	a->chores = NULL;
	promise_free(a->promise);
	a->promise = NULL;
	sampler_free(a->sampler);
	a->sampler = NULL;
	profiler_free(a->profiler);
	a->profiler = NULL;
	a->attempts.changed = ring_of;
	prctl(PR_SET_NAME, SUPERVISE_SHIM_NAME);
}

static void reap_all(struct agent *a, int64_t now_ms)
{
	struct reaped r;

	while ((r.pid = waitpid(-1, &r.status, WNOHANG)) > 0)
		attempts_reaped(&a->attempts, &r, 1, now_ms);
}

void life_stay(struct agent *a)
{
	struct pollfd p = {.fd = a->signal_fd, .events = POLLIN};
	struct signalfd_siginfo s;
	int64_t ms = 0;

	keep_supervised(&a->attempts);
	if (!a->attempts.n)
		return;
	agent_log(a, "pid %d stays for %zu jobs whose shims were killed", (int)getpid(),
		a->attempts.n);
	give_up_office(a);
	while (a->attempts.n) {
		poll(&p, 1, (int)ms);
		/* As a shim does, it passes over requests to go. */
		while (read(a->signal_fd, &s, sizeof(s)) == sizeof(s))
			;
		a->now_ms = clock_boot_ms();
		reap_all(a, a->now_ms);
		ms = attempts_turn(&a->attempts, a->now_ms);
		keep_supervised(&a->attempts);
	}
}
