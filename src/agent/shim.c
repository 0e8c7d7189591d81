/*
 * The shim's life (shim.h): from the fork to the last process of its job. Owns the claim's lock and, while it lives, its
 * `state`. Must not talk to anybody but by the claim and the bell.
 */
#include "agent/shim.h"
#include "agent/leader.h"
#include "agent/supervise.h"
#include "base/sys.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "proc/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define LOOK_MS \
	5000 /* at the stop wish, at an end that couldn't be written, at what is left of the tree */
/* A job that ends sooner tells of its start with its end: one ring, one look, one message. */
#define TELL_START_MS 20
#define LEAVING_LOOK_MS 5
#define LEAVING_LOOKS 2000

struct shim {
	struct root root;
	const struct claim_spec *spec;
	char name[ATTEMPT_NAME_LEN];
	int claim_fd, lock_fd;
	int64_t tell_start_at_ms; /* when the agent is rung at for the start; 0: it has been, or needn't be */
	int go_fd; /* of one that was made ready; -1 */
	sigset_t events; /* CHLD and USR1, blocked: they're taken when there's time for them */
	struct claim_record rec;
	struct leader leader;
	struct supervise job;
};

static bool
	has_default_signals; /* this process, but for the ones that a shim ignores and its job gets back */

static void reset_signals(void)
{
	struct sigaction action = {.sa_handler = SIG_DFL};
	for (int i = 1; i < NSIG; i++)
		sigaction(i, &action, NULL);
}

void shim_reset_signals(void)
{
	reset_signals();
	has_default_signals = true;
}

static void set_up_signals(struct shim *h)
{
	struct sigaction action = {.sa_handler = SIG_IGN};
	if (!has_default_signals)
		reset_signals();
	for (size_t i = 0; i < LEADER_N_IGNORED; i++)
		sigaction(leader_ignored[i], &action, NULL);
	sigemptyset(&h->events);
	sigaddset(&h->events, SIGCHLD);
	sigaddset(&h->events, SIGUSR1);
	sigprocmask(SIG_SETMASK, &h->events, NULL);
}

/* Keeps the root, its own door and nothing else of the agent's descriptors, so that no socket of its lives on here. */
static int set_up_descriptors(struct shim *h)
{
	int root_fd = fcntl(h->root.fd, F_DUPFD_CLOEXEC, 3);
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC | O_NOCTTY);
	if (root_fd < 0 || null_fd < 0)
		return -errno;
	int keep[2] = {root_fd, root_fd};
	size_t n_keep = 1;
	if (h->go_fd >= 0)
		keep[h->go_fd > root_fd ? 1 : 0] = h->go_fd, n_keep = 2;
	for (int i = 0; i < 3; i++) {
		if (i == null_fd)
			fd_set_cloexec(i, false);
		else if (dup2(null_fd, i) < 0)
			return -errno;
	}
	fd_close_from(3, keep, n_keep);
	h->root.fd = root_fd;
	return 0;
}

/* Waits for an event, at most that long (-1 and more than LOOK_MS: LOOK_MS). */
static void wait_event(struct shim *h, int64_t wait_ms)
{
	if (wait_ms < 0 || wait_ms > LOOK_MS)
		wait_ms = LOOK_MS;
	struct timespec limit = {
		.tv_sec = wait_ms / 1000, .tv_nsec = (long)(wait_ms % 1000) * 1000 * 1000};
	if (wait_ms > 0)
		sigtimedwait(&h->events, NULL, &limit);
}

/* Takes the status of everyone who ended: the leader's counts, the others were left to us as their reaper. */
static void reap(struct shim *h)
{
	int status;
	pid_t pid;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == h->leader.pid && !h->job.leader_ended)
			supervise_leader_status(&h->job, status, clock_boot_ms());
	}
}

__attribute__((noreturn)) static void execute_agent(const struct root *r)
{
	char name[] = "gpustow-agent", verb[] = "serve";
	char *argv[] = {name, verb, (char *)(uintptr_t)r->path, NULL};
	sigset_t none;
	setsid();
	reset_signals();
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execve(r->agent_exe, argv, environ);
	_exit(127);
}

/* Whose the agent's lock is; 0: nobody's; -1: that can't be told. */
static pid_t agent_pid(const struct root *r)
{
	pid_t pid = -1;
	int fd = openat(r->fd, "agent.lock", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fd_lock_holder(fd, &pid) < 0)
		pid = -1;
	if (fd >= 0)
		close(fd);
	return pid;
}

/* Killed or not, it's on its way out and reads nothing any more: its door just isn't closed yet. */
static bool is_leaving(pid_t pid)
{
	struct proc_stat st;
	return pid == 0 || (pid > 0 && !proc_read_stat(pid, &st) && st.is_exiting);
}

void shim_ring(const struct root *r, const char *name, bool may_start_agent)
{
	int code = root_ring(r, name);
	if (!may_start_agent || !r->agent_exe || (code && code != -ECONNREFUSED && code != -ENOENT))
		return;
	pid_t pid = code ? 0 : agent_pid(r);
	if (!is_leaving(pid) || fork() != 0)
		return;
	for (int i = 0; pid && i < LEAVING_LOOKS && agent_pid(r) == pid; i++)
		poll(NULL, 0, LEAVING_LOOK_MS);
	execute_agent(r);
}

/* The claim's directory is gone, by whoever removed the root: nobody can ever read of the end. */
static bool is_removed(const struct shim *h)
{
	struct sys_stat st;
	return sys_fstat(h->claim_fd, &st) == 0 && st.nlink == 0;
}

/* The end is durable before anybody hears of it. A disk that takes nothing is tried again, for as long as it takes. */
static void put_end(struct shim *h, const struct attempt_end *end)
{
	h->rec.state = ATTEMPT_ENDED;
	h->rec.end = *end;
	for (;;) {
		int code = fault_point("shim.before-ended");
		if (!code)
			code = claim_write_record(h->claim_fd, &h->rec, true, NULL);
		if (!code)
			break;
		if (is_removed(h))
			return;
		int64_t again_ms = clock_boot_ms() + LOOK_MS;
		for (int64_t now = clock_boot_ms(); now < again_ms; now = clock_boot_ms()) {
			wait_event(h, again_ms - now);
			reap(h);
		}
	}
	fault_point("shim.after-ended-before-ring");
	shim_ring(&h->root, h->name, true);
}

/* So that a sample for who comes next is taken while the end is synced. */
static void ring_ending(const struct shim *h)
{
	char text[ATTEMPT_NAME_LEN + 1];
	if (!h->spec->n_cards || !h->spec->is_of_lane)
		return;
	snprintf(text, sizeof(text), "%s%c", h->name, SHIM_RING_ENDING);
	root_ring(&h->root, text);
}

static void end_before_start(struct shim *h, struct attempt_end end)
{
	end.seen_by_shim = true;
	end.ended_boot_ms = clock_boot_ms();
	end.ended_wall_ms = clock_wall_ms();
	put_end(h, &end);
}

/* 0 when the start is on record. It isn't synced: a reboot ends the process anyway. */
static int put_started(struct shim *h)
{
	struct proc_stat own = {0}, leader = {0};
	int code = proc_read_stat(getpid(), &own);
	if (!code)
		code = proc_read_stat(h->leader.pid, &leader);
	if (code < 0)
		return code;
	h->rec.state = ATTEMPT_STARTED;
	h->rec.shim_pid = own.pid;
	h->rec.shim_start_ticks = own.start_ticks;
	h->rec.pid = leader.pid;
	h->rec.start_ticks = leader.start_ticks;
	h->rec.end.started_boot_ms = clock_boot_ms();
	h->rec.end.started_wall_ms = clock_wall_ms();
	code = fault_point("shim.before-started");
	return code < 0 ? code : claim_write_record(h->claim_fd, &h->rec, false, NULL);
}

/* Starts the job: true once it runs, false when the attempt has ended already. */
static bool launch(struct shim *h)
{
	struct attempt_end end = {0};
	int code = h->leader.pid > 0 ? 0 : leader_fork(h->spec, &h->leader);
	if (code < 0) {
		leader_fill_failure("cannot make a process for the job", -code, NULL, &end);
		end_before_start(h, end);
		return false;
	}
	code = put_started(h);
	if (code < 0) {
		/* What isn't on record must not run. The leader ends itself when its door closes. */
		leader_failure(&h->leader, h->spec, &end);
		waitpid(h->leader.pid, NULL, 0);
		h->rec.pid = 0;
		h->rec.end = (struct attempt_end){0};
		leader_fill_failure("cannot put the job's start on record", -code, NULL, &end);
		end_before_start(h, end);
		return false;
	}
	fault_point("shim.between-started-and-exec");
	leader_let_go(&h->leader);
	h->tell_start_at_ms = h->rec.end.started_boot_ms + TELL_START_MS;
	return true;
}

/* ms until the start is to be told; tells it when it's time. INT64_MAX: it's told. */
static int64_t tell_start(struct shim *h)
{
	int64_t now_ms = clock_boot_ms();

	if (!h->tell_start_at_ms)
		return INT64_MAX;
	if (now_ms < h->tell_start_at_ms)
		return h->tell_start_at_ms - now_ms;
	h->tell_start_at_ms = 0;
	shim_ring(&h->root, h->name, false);
	return INT64_MAX;
}

/* Not synced, like the start: a reboot ends the job anyway. When it can't be written, a later one sends it again. */
static void note_lead(struct shim *h)
{
	if (h->rec.lead_sent_boot_ms == h->job.lead_sent_ms)
		return;
	h->rec.lead_sent_boot_ms = h->job.lead_sent_ms;
	claim_write_record(h->claim_fd, &h->rec, false, NULL);
}

static void watch(struct shim *h)
{
	struct attempt_end end = {0};
	h->job = (struct supervise){
		.claim_fd = h->claim_fd,
		.rec = h->rec,
		.tree_root = getpid(),
		.is_parent = true,
	};
	supervise_set_limits(&h->job, h->spec->timeout_ms, h->spec->grace_ms, h->spec->lead_signal,
		h->spec->lead_ms);
	for (;;) {
		reap(h);
		int64_t wait_ms = supervise_turn(&h->job, clock_boot_ms(), true, &end);
		if (h->job.phase == SUPERVISE_ENDED)
			break;
		note_lead(h);
		int64_t tell_ms = tell_start(h);
		wait_event(h, wait_ms < 0 || tell_ms < wait_ms ? tell_ms : wait_ms);
	}
	if (leader_failure(&h->leader, h->spec, &end)) {
		end.started_boot_ms = end.started_wall_ms = 0;
		end.reason = STOP_NONE;
	}
	ring_ending(h);
	put_end(h, &end);
}

/* Whoever the job left behind has a parent as long as he lives, and the claim is not retired before. */
static void stay_for_survivors(struct shim *h)
{
	for (;;) {
		reap(h);
		if (supervise_survivors(&h->job) == 0)
			return;
		wait_event(h, LOOK_MS);
	}
}

/* Everything up to the right to start: 0, or negative when it isn't ours. */
static int take_claim(struct shim *h)
{
	char boot_id[40];
	h->claim_fd = claim_open(&h->root, &h->spec->name);
	if (h->claim_fd < 0)
		return h->claim_fd;
	fault_point("shim.before-lock");
	h->lock_fd = claim_lock(h->claim_fd);
	if (h->lock_fd < 0)
		return h->lock_fd;
	fault_point("shim.after-lock");
	/* Who comes late may have opened what serves another attempt by now: only what bears the name is the claim. */
	if (!claim_is_at(&h->root, &h->spec->name, h->claim_fd))
		return -ESTALE;
	int code = claim_read_record(h->claim_fd, &h->rec, NULL);
	if (code < 0)
		return code;
	if (h->rec.state != ATTEMPT_CLAIMED)
		return -EALREADY;
	/* A start isn't synced: a claim of another boot may have been started there. The agent says what it came to. */
	if (proc_boot_id(boot_id) < 0 || strcmp(boot_id, h->rec.boot_id) != 0)
		return -ESTALE;
	return 0;
}

/* Everything that needs no claim is done ahead; then it's waited for. False: the door was shut. */
static bool wait_for_go(struct shim *h)
{
	char byte;
	ssize_t n;
	if (leader_fork(h->spec, &h->leader) < 0)
		h->leader.pid = 0; /* it's tried again, and told, when it's its turn */
	do
		n = read(h->go_fd, &byte, 1);
	while (n < 0 && errno == EINTR);
	close(h->go_fd);
	return n == 1;
}

/* Nothing of it has run: its door closes, and it ends itself. */
static void drop_leader(struct shim *h)
{
	struct attempt_end end;
	if (h->leader.pid <= 0)
		return;
	leader_failure(&h->leader, h->spec, &end);
	waitpid(h->leader.pid, NULL, 0);
}

__attribute__((noreturn)) static void shim_main(
	const struct root *r, const struct claim_spec *s, int go_fd)
{
	struct shim h = {.root = *r, .spec = s, .claim_fd = -1, .lock_fd = -1, .go_fd = go_fd};
	enum stop_reason reason;
	int64_t grace_ms;
	h.root.retired = NULL;
	attempt_name_format(&s->name, h.name);

	prctl(PR_SET_NAME, SUPERVISE_SHIM_NAME);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	setsid();
	set_up_signals(&h);
	umask(077);
	if (set_up_descriptors(&h) < 0 || chdir("/") < 0 || (go_fd >= 0 && !wait_for_go(&h)) ||
		take_claim(&h) < 0)
		_exit(1);
	if (claim_get_stop(h.claim_fd, &reason, &grace_ms) == 0) {
		drop_leader(&h);
		end_before_start(
			&h, (struct attempt_end){.how = END_NOT_STARTED, .reason = reason});
		_exit(0);
	}
	if (launch(&h)) {
		watch(&h);
		stay_for_survivors(&h);
	}
	_exit(0);
}

static pid_t fork_shim(const struct root *r, const struct claim_spec *s, int go_fd, struct err *e)
{
	sigset_t all, before;
	/* A doorbell that comes before the shim is ready for it would end it. */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	pid_t pid = fork();
	if (pid == 0)
		shim_main(r, s, go_fd);
	int code = pid < 0 ? -errno : 0;
	sigprocmask(SIG_SETMASK, &before, NULL);
	return code < 0 ? err_sys(e, code, "cannot make a process for the shim of a job") : pid;
}

pid_t shim_fork(const struct root *r, const struct claim_spec *s, struct err *e)
{
	return fork_shim(r, s, -1, e);
}

int shim_prepare(
	const struct root *r, const struct claim_spec *s, struct shim_ready *ret, struct err *e)
{
	int go[2];
	if (pipe2(go, O_CLOEXEC) < 0)
		return err_sys(e, -errno, "cannot make a pipe for the shim of a job");
	pid_t pid = fork_shim(r, s, go[0], e);
	close(go[0]);
	if (pid < 0) {
		close(go[1]);
		return pid;
	}
	*ret = (struct shim_ready){.pid = pid, .go_fd = go[1]};
	return 0;
}

pid_t shim_go(struct shim_ready *x)
{
	pid_t pid = x->pid;
	int code = pid > 0 ? fd_write_all(x->go_fd, "", 1) : -ESRCH;
	shim_drop(x);
	return code < 0 ? code : pid;
}

void shim_drop(struct shim_ready *x)
{
	if (x->pid > 0)
		close(x->go_fd);
	*x = (struct shim_ready){0};
}
