/*
 * The state machine of supervise.h. Decides when to stop, whom a stop reaches and when an attempt is over. Looks at /proc only
 * when there may be something to find. Writes nothing.
 */
#include "agent/supervise.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#define LEADER_LOOK_MS 1000 /* who isn't the parent hears of no death */
#define STOP_LOOK_MS 100
#define KILL_LOOK_MS 10
#define KILL_LOOK_MAX_MS 500
#define KILL_SWEEPS 3

/* Does that process run one of our programs? The file may be another build's, and may have been removed. */
static bool runs_our_file(pid_t pid)
{
	char path[64], target[4096];
	struct sys_stat ours, theirs;
	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	if (sys_stat_at(AT_FDCWD, path, 0, &theirs) == 0 &&
		sys_stat_at(AT_FDCWD, "/proc/self/exe", 0, &ours) == 0 && ours.dev == theirs.dev &&
		ours.ino == theirs.ino)
		return true;
	ssize_t n = readlink(path, target, sizeof(target) - 1);
	if (n < 0)
		return true; /* it can't be looked at: the name alone must do, for a wrong kill can't be undone */
	target[n] = '\0';
	const char *slash = strrchr(target, '/');
	const char *base = slash ? slash + 1 : target;
	return strstr(base, "gpustow") || strncmp(base, "agent-", strlen("agent-")) == 0;
}

/* An agent or another shim. Our own leader bears the shim's name until it has executed its program. */
static bool is_gpustow(void *arg, const struct proc_stat *row)
{
	const struct supervise *s = arg;
	if (row->pid == s->rec.pid)
		return false;
	bool has_name = strcmp(row->comm, SUPERVISE_SHIM_NAME) == 0 ||
			strcmp(row->comm, SUPERVISE_AGENT_NAME) == 0;
	return has_name && runs_our_file(row->pid);
}

static const struct proc_stat *leader_row(const struct supervise *s, const struct proc_table *t)
{
	for (size_t i = 0; i < t->n; i++) {
		if (t->rows[i].pid == s->rec.pid)
			return &t->rows[i];
	}
	return NULL;
}

/*
 * Rows of the tree. While the shim lives its descent is all there is: it's a subreaper, so whoever is in the job's session is
 * below it. Once it's gone, the session and the leader's descent are left; a session whose number has been given to
 * another leader meanwhile isn't ours, and neither is who was there before our leader.
 */
static size_t collect(
	const struct supervise *s, const struct proc_table *t, size_t *ret, size_t max)
{
	struct proc_tree q = {
		.root = s->tree_root, .is_barrier = is_gpustow, .arg = (void *)(uintptr_t)s};
	if (q.root)
		return proc_table_select(t, &q, ret, max);
	const struct proc_stat *leader = leader_row(s, t);
	if (s->rec.pid <= 1 || (leader && leader->start_ticks != s->rec.start_ticks))
		return 0;
	q.sid = s->rec.pid;
	q.root = leader ? leader->pid : 0;
	size_t n = proc_table_select(t, &q, ret, max), kept = 0;
	for (size_t i = 0; i < n; i++) {
		if (t->rows[ret[i]].start_ticks >= s->rec.start_ticks)
			ret[kept++] = ret[i];
	}
	return kept;
}

static bool has_no_children(void)
{
	siginfo_t info;
	return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD;
}

size_t supervise_survivors_in(const struct supervise *s, const struct proc_table *t)
{
	if (!t->n)
		return 0;
	CLEANUP_FREE size_t *found = xcalloc(t->n, sizeof(*found));
	size_t n = collect(s, t, found, t->n), others = 0;
	for (size_t i = 0; i < n; i++)
		others += t->rows[found[i]].pid != s->rec.pid;
	return others;
}

size_t supervise_survivors(const struct supervise *s)
{
	if (s->tree_root == getpid() && has_no_children())
		return 0;
	CLEANUP(proc_table_done) struct proc_table t = {0};
	if (proc_table_read(&t) < 0)
		return 1; /* not seen is not gone */
	return supervise_survivors_in(s, &t);
}

static bool tree_is_empty(const struct supervise *s)
{
	return s->leader_ended && supervise_survivors(s) == 0;
}

void supervise_leader_status(struct supervise *s, int status, int64_t now_ms)
{
	s->leader_ended = true;
	s->has_status = true;
	s->status = status;
	s->leader_ended_boot_ms = now_ms;
}

/* Who isn't the parent finds out by looking. */
static void look_at_leader(struct supervise *s, int64_t now_ms)
{
	if (s->is_parent || s->leader_ended || proc_is_alive(s->rec.pid, s->rec.start_ticks))
		return;
	s->leader_ended = true;
	s->leader_ended_boot_ms = now_ms;
}

/* The leader has ended, but its parent hasn't taken its status yet. */
static bool has_unread_status(const struct supervise *s)
{
	siginfo_t info = {0};
	return s->is_parent && !s->leader_ended &&
	       waitid(P_PID, (id_t)s->rec.pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
	       info.si_pid == s->rec.pid;
}

void supervise_set_limits(struct supervise *s, int64_t timeout_ms, int64_t grace_ms,
	int32_t lead_signal, int64_t lead_ms)
{
	s->timeout_ms = timeout_ms;
	s->grace_ms = grace_ms;
	s->lead_signal = lead_signal;
	/* A lead longer than the limit begins with the job, and the limit stands. */
	s->lead_ms = lead_ms < timeout_ms ? lead_ms : timeout_ms;
	s->lead_sent_ms = s->rec.lead_sent_boot_ms;
}

/* When the limit is over by the clock alone. */
static int64_t clock_limit_at(const struct supervise *s)
{
	int64_t at;
	if (s->timeout_ms <= 0 ||
		__builtin_add_overflow(s->rec.end.started_boot_ms, s->timeout_ms, &at))
		return INT64_MAX;
	return at;
}

static bool owes_lead(const struct supervise *s)
{
	return s->lead_signal > 0 && s->timeout_ms > 0 && !s->lead_sent_ms;
}

/* When TERM is due. A machine that slept past both still gives the lead signal its lead. */
static int64_t limit_at(const struct supervise *s)
{
	int64_t at = clock_limit_at(s), led;
	if (s->lead_sent_ms && !__builtin_add_overflow(s->lead_sent_ms, s->lead_ms, &led) &&
		led > at)
		return led;
	return at;
}

static bool wants_stop(struct supervise *s, int64_t now_ms, bool look_for_stop)
{
	enum stop_reason reason;
	int64_t grace_ms;
	if (look_for_stop && claim_get_stop(s->claim_fd, &reason, &grace_ms) == 0) {
		s->reason = reason;
		s->grace_ms = grace_ms;
		return true;
	}
	if (!owes_lead(s) && now_ms >= limit_at(s)) {
		s->reason = STOP_TIMEOUT;
		return true;
	}
	return false;
}

/* TERM to the group. A group that is stopped must be let go, or it never hears of it. */
static void terminate(struct supervise *s, int64_t now_ms)
{
	pid_t pid = s->rec.pid;
	s->phase = SUPERVISE_TERMINATING;
	s->term_at_ms = now_ms;
	if (__builtin_add_overflow(now_ms, s->grace_ms, &s->kill_at_ms))
		s->kill_at_ms = INT64_MAX;
	if (pid <= 1)
		return;
	/* The leader is there, seen a moment ago, and unreaped if it's ours: the number is still its group's. */
	if (kill(-pid, SIGTERM) < 0 && errno == ESRCH)
		proc_signal(pid, s->rec.start_ticks, SIGTERM); /* it hasn't made its session yet */
	kill(-pid, SIGCONT);
}

/* May KILL go to the whole group in one call? Not if one of ours is in it, nor if nobody of the tree is. */
static bool group_is_safe(
	const struct supervise *s, const struct proc_table *t, const size_t *found, size_t n)
{
	bool has_member = false;
	for (size_t i = 0; i < n; i++)
		has_member |= t->rows[found[i]].pgid == s->rec.pid;
	for (size_t i = 0; has_member && i < t->n; i++) {
		if (t->rows[i].pgid == s->rec.pid && is_gpustow((void *)(uintptr_t)s, &t->rows[i]))
			return false;
	}
	return has_member;
}

/* KILL to everyone who's in the tree now; how many that were. */
static size_t sweep(const struct supervise *s)
{
	CLEANUP(proc_table_done) struct proc_table t = {0};
	if (proc_table_read(&t) < 0 || !t.n)
		return 0;
	CLEANUP_FREE size_t *found = xcalloc(t.n, sizeof(*found));
	size_t n = collect(s, &t, found, t.n);
	if (s->rec.pid > 1 && group_is_safe(s, &t, found, n))
		kill(-s->rec.pid, SIGKILL);
	for (size_t i = 0; i < n; i++)
		proc_signal(t.rows[found[i]].pid, t.rows[found[i]].start_ticks, SIGKILL);
	if (!s->leader_ended && proc_signal(s->rec.pid, s->rec.start_ticks, SIGKILL) == 0)
		n++;
	return n;
}

/* A tree that forks while it's being killed is swept again at once, a few times, before it gets the processor back. */
static int64_t kill_tree(struct supervise *s)
{
	for (int i = 0; i < KILL_SWEEPS && sweep(s) > 0; i++)
		s->was_killed = true;
	int64_t wait_ms = KILL_LOOK_MS << (s->kill_rounds < 6 ? s->kill_rounds : 6);
	s->kill_rounds++;
	return wait_ms < KILL_LOOK_MAX_MS ? wait_ms : KILL_LOOK_MAX_MS;
}

static void fill_code(const struct supervise *s, struct attempt_end *end)
{
	end->code = -1;
	if (!s->has_status)
		return;
	end->by_signal = WIFSIGNALED(s->status);
	end->code = end->by_signal ? WTERMSIG(s->status) : WEXITSTATUS(s->status);
}

static int64_t finish(struct supervise *s, int64_t now_ms, struct attempt_end *ret_end)
{
	struct attempt_end end = {
		.started_boot_ms = s->rec.end.started_boot_ms,
		.started_wall_ms = s->rec.end.started_wall_ms,
		.ended_boot_ms = now_ms,
		.seen_by_shim = s->tree_root == getpid(),
		.reason = s->reason,
		.was_killed = s->was_killed,
	};
	fill_code(s, &end);
	if (s->phase != SUPERVISE_RUNNING) {
		end.how = END_STOPPED;
	} else {
		end.how = !s->has_status ? END_VANISHED : end.by_signal ? END_SIGNAL : END_EXIT;
		end.code = s->has_status ? end.code : 0;
		end.by_signal = false;
		end.ended_boot_ms = s->leader_ended_boot_ms;
	}
	end.ended_wall_ms = clock_wall_ms() - (clock_boot_ms() - end.ended_boot_ms);
	s->phase = SUPERVISE_ENDED;
	*ret_end = end;
	return -1;
}

/* ms until the lead signal is due, INT64_MAX when none is; sends it when it is. */
static int64_t turn_lead(struct supervise *s, int64_t now_ms)
{
	if (!owes_lead(s))
		return INT64_MAX;
	int64_t due_ms = clock_limit_at(s) - s->lead_ms;
	if (now_ms < due_ms)
		return due_ms - now_ms;
	pid_t pid = s->rec.pid;
	s->lead_sent_ms = now_ms;
	if (pid > 1 && kill(-pid, s->lead_signal) < 0 && errno == ESRCH)
		proc_signal(pid, s->rec.start_ticks,
			s->lead_signal); /* it hasn't made its session yet */
	return INT64_MAX;
}

static int64_t turn_running(struct supervise *s, int64_t now_ms, bool look_for_stop)
{
	if (wants_stop(s, now_ms, look_for_stop)) {
		/* An end of its own, a moment ago, stands: let the parent take the status first. */
		if (!has_unread_status(s))
			terminate(s, now_ms);
		return 0;
	}
	int64_t lead_wait_ms = turn_lead(s, now_ms), limit = limit_at(s);
	int64_t wait_ms = limit == INT64_MAX ? -1 : limit - now_ms;
	if (lead_wait_ms < wait_ms)
		wait_ms = lead_wait_ms;
	if (!s->is_parent && (wait_ms < 0 || wait_ms > LEADER_LOOK_MS))
		wait_ms = LEADER_LOOK_MS;
	return wait_ms;
}

static int64_t turn_stopping(struct supervise *s, int64_t now_ms, struct attempt_end *ret_end)
{
	if (tree_is_empty(s))
		return finish(s, now_ms, ret_end);
	if (s->phase == SUPERVISE_TERMINATING && now_ms < s->kill_at_ms) {
		int64_t wait_ms = s->kill_at_ms - now_ms;
		/* The parent of a leader that's there hears of its death; what it leaves behind must be looked for. */
		if (s->is_parent && !s->leader_ended)
			return wait_ms;
		return wait_ms < STOP_LOOK_MS ? wait_ms : STOP_LOOK_MS;
	}
	s->phase = SUPERVISE_KILLING;
	if (s->leader_ended && now_ms - s->kill_at_ms >= SUPERVISE_PATIENCE_MS)
		return finish(s, now_ms, ret_end);
	return kill_tree(s);
}

int64_t supervise_turn(
	struct supervise *s, int64_t now_ms, bool look_for_stop, struct attempt_end *ret_end)
{
	if (s->phase == SUPERVISE_ENDED)
		return -1;
	look_at_leader(s, now_ms);
	if (s->phase != SUPERVISE_RUNNING)
		return turn_stopping(s, now_ms, ret_end);
	if (s->leader_ended)
		return finish(s, now_ms, ret_end);
	return turn_running(s, now_ms, look_for_stop);
}
