/*
 * The table of live claims and how a claim is judged. It alone decides that a shim is dead and what follows; it starts
 * nothing by itself (admission does) and answers nobody.
 */
#include "agent/attempts.h"

#include "agent/facts_of_end.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "proc/proc.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WRITE_AGAIN_MS 5000
#define LEFTOVER_LOOK_MS 5000

void attempts_init(struct attempts *t, struct root *r, attempts_changed_fn *changed, void *arg)
{
	*t = (struct attempts){.root = r, .changed = changed, .arg = arg};
	proc_boot_id(t->boot_id);
	t->pid_ns = proc_pid_ns();
}

/* Gives up the lock last: closing it lets others judge the claim. */
static void stop_supervising(struct attempt *a)
{
	free(a->sup);
	a->sup = NULL;
	if (a->claim_fd >= 0)
		close(a->claim_fd);
	if (a->lock_fd >= 0)
		close(a->lock_fd);
	a->claim_fd = a->lock_fd = -1;
}

static void attempt_free(struct attempt *a)
{
	stop_supervising(a);
	free(a->cards);
	free(a->dir);
	job_files_free(a->files);
	free(a);
}

void attempts_done(struct attempts *t)
{
	for (size_t i = 0; i < t->n; i++)
		attempt_free(t->items[i]);
	free(t->items);
	*t = (struct attempts){0};
}

struct attempt *attempts_find(const struct attempts *t, const struct attempt_name *n)
{
	for (size_t i = 0; i < t->n; i++)
		if (t->items[i]->name.job == n->job && attempt_name_equal(&t->items[i]->name, n))
			return t->items[i];
	return NULL;
}

struct attempt *attempts_add(struct attempts *t, const struct claim_spec *s)
{
	struct attempt *a = xcalloc(1, sizeof(*a));

	a->serial = ++t->last_serial;
	a->name = s->name;
	memcpy(a->token, s->token, sizeof(a->token));
	memcpy(a->boot_id, s->boot_id, sizeof(a->boot_id));
	a->policy = s->policy;
	a->timeout_ms = s->timeout_ms;
	a->grace_ms = s->grace_ms;
	a->lead_signal = s->lead_signal;
	a->lead_ms = s->lead_ms;
	a->dir = s->dir ? xstrdup(s->dir) : NULL;
	a->oom_kills = s->dir ? s->oom_kills : -1;
	a->oom_kills_end = -1;
	a->n_cards = s->n_cards;
	a->cards = xcalloc(s->n_cards, sizeof(*a->cards));
	for (uint32_t i = 0; i < s->n_cards; i++) {
		memcpy(a->cards[i].uuid, s->cards[i].uuid, sizeof(a->cards[i].uuid));
		a->cards[i].declared_mib = s->cards[i].declared_mib;
	}
	a->rec.state = ATTEMPT_CLAIMED;
	a->claim_fd = a->lock_fd = -1;
	GROW(t->items, t->n, t->cap);
	t->items[t->n++] = a;
	return a;
}

void attempts_remove(struct attempts *t, struct attempt *a)
{
	for (size_t i = 0; i < t->n; i++) {
		if (t->items[i] != a)
			continue;
		t->items[i] = t->items[--t->n];
		attempt_free(a);
		return;
	}
}

bool attempt_is_live(const struct attempt *a)
{
	return a->rec.state != ATTEMPT_ENDED || a->is_watched;
}

int attempts_read_spec(
	const struct attempts *t, const struct attempt *a, struct claim_spec *ret, struct err *e)
{
	CLEANUP_CLOSE int fd = claim_open(t->root, &a->name);

	if (fd < 0)
		return err_sys(e, fd, "the claim of job %llu can't be opened",
			(unsigned long long)a->name.job);
	return claim_read_spec(fd, ret, e);
}

int attempts_start(struct attempts *t, struct attempt *a, const struct claim_spec *s, struct err *e)
{
	CLEANUP(claim_spec_done) struct claim_spec own = {0};
	pid_t pid;
	int r;

	a->wants_start = true;
	if (!s) {
		r = attempts_read_spec(t, a, &own, e);
		if (r)
			return r;
	}
	fault_point("agent.after-claim-before-fork");
	pid = shim_fork(t->root, s ? s : &own, e);
	if (pid < 0)
		return (int)pid;
	a->shim = pid;
	a->is_watched = true;
	a->wants_start = false;
	return 0;
}

int attempts_go(struct attempts *t, struct attempt *a, const struct claim_spec *s,
	struct shim_ready *ready, struct err *e)
{
	pid_t pid;

	if (!ready->pid)
		return attempts_start(t, a, s, e);
	fault_point("agent.after-claim-before-fork");
	pid = shim_go(ready);
	if (pid < 0)
		return attempts_start(t, a, s, e);
	a->shim = pid;
	a->is_watched = true;
	return 0;
}

/* ---- judging ---- */

static void tell(struct attempts *t, struct attempt *a)
{
	t->changed(t->arg, a);
}

static void set_record(struct attempts *t, struct attempt *a, const struct claim_record *rec)
{
	bool is_new = rec->state != a->rec.state;

	a->rec = *rec;
	/* The counter goes on; what it says now is as near to the end as it gets. */
	if (is_new && a->dir && rec->state == ATTEMPT_ENDED && !strcmp(a->boot_id, t->boot_id))
		a->oom_kills_end = proc_oom_kills();
	if (is_new)
		tell(t, a);
}

static void set_watched(struct attempts *t, struct attempt *a, bool is_watched)
{
	bool was = a->is_watched;

	a->is_watched = is_watched;
	if (was && !is_watched && a->rec.state == ATTEMPT_ENDED)
		tell(t, a);
}

/*
 * Writes an end that no shim can write. Not durable yet means not told: the next look tries again.
 * Requires the claim's lock.
 */
static int write_end(struct attempts *t, struct attempt *a, int claim_fd,
	const struct claim_record *rec, const struct attempt_end *end)
{
	struct claim_record next = *rec;
	int r;

	next.state = ATTEMPT_ENDED;
	next.end = *end;
	r = claim_write_record(claim_fd, &next, true, NULL);
	if (!r)
		set_record(t, a, &next);
	return r;
}

static struct attempt_end end_unseen(const struct claim_record *rec, enum end_how how)
{
	struct attempt_end end = {
		.how = how,
		.started_boot_ms = rec->end.started_boot_ms,
		.started_wall_ms = rec->end.started_wall_ms,
		.ended_boot_ms = clock_boot_ms(),
		.ended_wall_ms = clock_wall_ms(),
	};

	return end;
}

static bool is_other_boot(
	const struct attempts *t, const struct attempt *a, const struct claim_record *rec)
{
	return strcmp(rec->boot_id[0] ? rec->boot_id : a->boot_id, t->boot_id) != 0;
}

static bool is_our_child(pid_t pid)
{
	struct proc_stat st;

	return !proc_read_stat(pid, &st) && st.ppid == getpid();
}

/* The shim was killed under a running job: from here on the agent is its shim. Takes both descriptors. */
static void supervise_here(struct attempts *t, struct attempt *a, int claim_fd, int lock_fd,
	const struct claim_record *rec, int64_t now_ms)
{
	struct supervise *s = xcalloc(1, sizeof(*s));

	a->claim_fd = claim_fd;
	a->lock_fd = lock_fd;
	a->rec = *rec;
	s->claim_fd = claim_fd;
	s->rec = *rec;
	supervise_set_limits(s, a->timeout_ms, a->grace_ms, a->lead_signal, a->lead_ms);
	s->is_parent = a->has_status || is_our_child(rec->pid);
	s->phase = SUPERVISE_RUNNING;
	a->sup = s;
	a->is_watched = true;
	a->turn_at_ms = now_ms;
	if (a->has_status)
		supervise_leader_status(s, a->status, now_ms);
}

/* Does any process bear the attempt's mark? Asked only where there's no record to know its processes by. */
static bool has_marked_process(const struct attempt *a)
{
	CLEANUP(proc_table_done) struct proc_table table = {0};
	char name[ATTEMPT_NAME_LEN], mark[ATTEMPT_NAME_LEN];

	if (proc_table_read(&table))
		return true; /* not seen is not gone */
	attempt_name_format(&a->name, name);
	for (size_t i = 0; i < table.n; i++)
		if (table.rows[i].state != 'Z' &&
			!proc_env(table.rows[i].pid, "GPUSTOW_MARK", mark, sizeof(mark)) &&
			!strcmp(mark, name))
			return true;
	return false;
}

/*
 * Neither slot is whole, so how far it came is lost. It may have been started, so it never is again; it's over once nothing
 * of it lives. Requires the claim's lock.
 */
static void judge_without_record(struct attempts *t, struct attempt *a, int claim_fd)
{
	struct claim_record rec = {.pid_ns = t->pid_ns};
	struct attempt_end end;
	bool is_other = is_other_boot(t, a, &rec);

	a->wants_start = false;
	a->is_watched = true;
	if (!is_other && has_marked_process(a))
		return;
	memcpy(rec.boot_id, a->boot_id, sizeof(rec.boot_id));
	end = end_unseen(&rec, is_other ? END_REBOOTED : END_VANISHED);
	snprintf(end.text, sizeof(end.text), "the record of how far it came is damaged");
	if (!write_end(t, a, claim_fd, &rec, &end))
		set_watched(t, a, false);
}

/* Nobody held the lock. Lock first, record second: so no end is missed. */
static void judge(struct attempts *t, struct attempt *a, int claim_fd, int64_t now_ms)
{
	CLEANUP_CLOSE int dir = claim_fd;
	CLEANUP_CLOSE int lock = claim_lock(claim_fd);
	struct claim_record rec;
	struct attempt_end end;
	int r;

	if (lock < 0)
		return;
	r = claim_read_record(dir, &rec, NULL);
	if (r == -EBADMSG || r == -ENOENT)
		judge_without_record(t, a, dir);
	if (r)
		return;
	if (rec.state == ATTEMPT_ENDED) {
		set_record(t, a, &rec);
		set_watched(t, a, false);
	} else if (is_other_boot(t, a, &rec)) {
		end = end_unseen(&rec, END_REBOOTED);
		if (!write_end(t, a, dir, &rec, &end))
			set_watched(t, a, false);
	} else if (rec.pid_ns && t->pid_ns && rec.pid_ns != t->pid_ns) {
		/* Its processes can't be seen from here, so their absence says nothing. */
		a->is_watched = true;
	} else if (rec.state == ATTEMPT_CLAIMED) {
		a->rec = rec;
		a->is_watched = false;
		if (!a->wants_start) {
			a->wants_start = true;
			tell(t, a);
		}
	} else {
		set_record(t, a, &rec);
		supervise_here(t, a, TAKE_FD(dir), TAKE_FD(lock), &rec, now_ms);
	}
}

/*
 * How much of an ended job's tree is left, while its shim stays for it. The group is asked first, since a
 * whole reading of /proc for each short job would be the dearest thing the agent does.
 */
static uint32_t count_survivors(const struct claim_record *rec, pid_t shim)
{
	struct supervise s = {.rec = *rec, .tree_root = shim, .claim_fd = -1, .leader_ended = true};
	char path[64], c;
	CLEANUP_FCLOSE FILE *f = NULL;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)shim, (int)shim);
	f = fopen(path, "re");
	if (f && fread(&c, 1, 1, f) == 0 && kill(-rec->pid, 0) && errno == ESRCH)
		return 0;
	return (uint32_t)supervise_survivors(&s);
}

/* Somebody removed it below us: there's nothing left to judge by, and nobody to start it. */
static void claim_was_removed(struct attempts *t, struct attempt *a)
{
	struct claim_record rec = a->rec;

	rec.end = end_unseen(&a->rec, END_VANISHED);
	snprintf(rec.end.text, sizeof(rec.end.text),
		"its claim was removed from the agent's directory");
	rec.state = ATTEMPT_ENDED;
	set_record(t, a, &rec);
	a->wants_start = false;
	set_watched(t, a, false);
}

void attempts_look(struct attempts *t, struct attempt *a, int64_t now_ms)
{
	struct claim_record rec;
	pid_t holder = 0;
	int fd;

	if (a->sup || (a->rec.state == ATTEMPT_ENDED && !a->is_watched))
		return;
	fd = claim_open(t->root, &a->name);
	if (fd < 0) {
		if (fd == -ENOENT && !a->shim)
			claim_was_removed(t, a);
		return;
	}
	if (claim_lock_holder(fd, &holder) || (!holder && !a->shim)) {
		judge(t, a, fd, now_ms);
		return;
	}
	a->is_watched = true;
	if (!claim_read_record(fd, &rec, NULL)) {
		if (rec.state == ATTEMPT_ENDED)
			a->survivors =
				rec.pid > 0 ? count_survivors(&rec, holder ? holder : a->shim) : 0;
		a->had_survivors |= a->survivors > 0;
		set_record(t, a, &rec);
	}
	close(fd);
}

void attempts_look_all(struct attempts *t, int64_t now_ms)
{
	/* A look may change the table's order by what follows from it, never its length: removal waits for retiring. */
	for (size_t i = 0; i < t->n; i++)
		attempts_look(t, t->items[i], now_ms);
}

static int load_one(void *arg, const struct attempt_name *n, int claim_fd)
{
	struct attempts *t = arg;
	CLEANUP(claim_spec_done) struct claim_spec s = {0};

	int64_t grace_ms;
	enum stop_reason why;

	/* One that can't be read is left as it is: its queue asks for it and gets no answer that binds. */
	if (claim_read_spec(claim_fd, &s, NULL))
		return 0;
	s.name = *n;
	attempts_add(t, &s)->stop_wanted = !claim_get_stop(claim_fd, &why, &grace_ms);
	return 0;
}

int attempts_load(struct attempts *t, int64_t now_ms, struct err *e)
{
	int r = claim_each(t->root, load_one, t);

	if (r)
		return err_sys(e, r, "the claims of %s can't be read", t->root->path);
	attempts_look_all(t, now_ms);
	return 0;
}

/* ---- children ---- */

static struct attempt *find_shim(const struct attempts *t, pid_t pid)
{
	for (size_t i = 0; i < t->n; i++)
		if (t->items[i]->shim == pid)
			return t->items[i];
	return NULL;
}

static struct attempt *find_leader(const struct attempts *t, pid_t pid)
{
	for (size_t i = 0; i < t->n; i++)
		if (t->items[i]->rec.state == ATTEMPT_STARTED && t->items[i]->rec.pid == pid)
			return t->items[i];
	return NULL;
}

static void shim_gone(struct attempts *t, struct attempt *a, int64_t now_ms)
{
	a->shim = 0;
	if (a->rec.state == ATTEMPT_ENDED) {
		a->survivors = 0;
		set_watched(t, a, false);
		return;
	}
	attempts_look(t, a, now_ms);
	if (a->rec.state == ATTEMPT_ENDED && !a->sup)
		a->survivors = 0;
}

void attempts_reaped(struct attempts *t, const struct reaped *r, size_t n, int64_t now_ms)
{
	/* Leaders before shims: a status must be there when the shim's death is judged. */
	for (size_t i = 0; i < n; i++) {
		struct attempt *a = find_shim(t, r[i].pid) ? NULL : find_leader(t, r[i].pid);

		if (!a && !find_shim(t, r[i].pid)) {
			/* Perhaps a leader whose start we haven't read yet. */
			for (size_t k = 0; k < t->n; k++)
				if (t->items[k]->rec.state == ATTEMPT_CLAIMED && t->items[k]->shim)
					attempts_look(t, t->items[k], now_ms);
			a = find_leader(t, r[i].pid);
		}
		if (!a)
			continue;
		a->has_status = true;
		a->status = r[i].status;
		if (a->sup) {
			supervise_leader_status(a->sup, a->status, now_ms);
			a->turn_at_ms = now_ms;
		}
	}
	for (size_t i = 0; i < n; i++) {
		struct attempt *a = find_shim(t, r[i].pid);

		if (a)
			shim_gone(t, a, now_ms);
	}
}

/* ---- in the dead shim's place ---- */

static void finish_supervising(
	struct attempts *t, struct attempt *a, const struct attempt_end *end, int64_t now_ms)
{
	int r = write_end(t, a, a->claim_fd, &a->sup->rec, end);

	a->unwritten_at_ms = r ? now_ms + WRITE_AGAIN_MS : 0;
	if (r)
		a->turn_at_ms = a->unwritten_at_ms;
}

static void leftover_turn(struct attempts *t, struct attempt *a, int64_t now_ms)
{
	a->survivors = (uint32_t)supervise_survivors(a->sup);
	if (a->survivors) {
		a->turn_at_ms = now_ms + LEFTOVER_LOOK_MS;
		return;
	}
	stop_supervising(a);
	set_watched(t, a, false);
}

/* As the shim does it (shim.c). */
static void note_lead(struct attempt *a)
{
	if (a->sup->rec.lead_sent_boot_ms == a->sup->lead_sent_ms)
		return;
	a->sup->rec.lead_sent_boot_ms = a->sup->lead_sent_ms;
	claim_write_record(a->claim_fd, &a->sup->rec, false, NULL);
	a->rec = a->sup->rec;
}

static void supervised_turn(struct attempts *t, struct attempt *a, int64_t now_ms)
{
	struct attempt_end end = {0};
	int64_t ms;

	if (a->rec.state == ATTEMPT_ENDED) {
		leftover_turn(t, a, now_ms);
		return;
	}
	ms = supervise_turn(a->sup, now_ms, true, &end);
	a->turn_at_ms = now_ms + (ms < 0 || ms > 5000 ? 5000 : ms);
	if (a->sup->phase != SUPERVISE_ENDED) {
		note_lead(a);
		return;
	}
	end.seen_by_shim = false;
	finish_supervising(t, a, &end, now_ms);
	if (a->rec.state == ATTEMPT_ENDED)
		leftover_turn(t, a, now_ms);
}

int64_t attempts_turn(struct attempts *t, int64_t now_ms)
{
	int64_t next = -1;

	for (size_t i = 0; i < t->n; i++) {
		struct attempt *a = t->items[i];

		if (a->sup && now_ms >= a->turn_at_ms)
			supervised_turn(t, a, now_ms);
		if (a->sup && (next < 0 || a->turn_at_ms - now_ms < next))
			next = a->turn_at_ms > now_ms ? a->turn_at_ms - now_ms : 0;
	}
	return next;
}

int attempts_stop(struct attempts *t, struct attempt *a, enum stop_reason why, int64_t grace_ms,
	int64_t now_ms)
{
	CLEANUP_CLOSE int fd = -1;
	int r;

	if (a->rec.state == ATTEMPT_ENDED)
		return 0;
	fd = claim_open(t->root, &a->name);
	if (fd < 0)
		return fd;
	r = claim_put_stop(fd, why, grace_ms);
	if (r)
		return r;
	a->stop_wanted = true;
	if (a->sup)
		a->turn_at_ms = now_ms;
	else if (a->shim || a->rec.shim_pid > 0)
		proc_signal(a->shim ? a->shim : a->rec.shim_pid,
			a->shim ? 0 : a->rec.shim_start_ticks, SIGUSR1);
	else if (a->wants_start)
		/* The shim sees the wish before anything else and writes that it never started. */
		r = attempts_start(t, a, NULL, NULL);
	return r;
}
