/*
 * Who decides for the queue. The lease is kept on BOOTTIME with its holder's identity (boot id, pid namespace, pid, start
 * time), so that a dead holder is replaced at once and no step of the wall clock gives two the right. Each taking is a new
 * epoch; what is decided under an older one is refused inside its transaction.
 */
#include "store/store_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "proc/proc.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

struct holder {
	bool is_held;
	char *owner, *boot_id;
	int64_t epoch, pid, start_ticks, pid_ns, acquired_ms, expires_boot_ms;
};

static void holder_done(struct holder *h)
{
	free(h->owner);
	free(h->boot_id);
}

static int read_holder(struct store *s, struct holder *ret, struct err *e)
{
	sqlite3_stmt *st = NULL;
	int r = db_ask(s, &st, e,
		"SELECT epoch, owner, boot_id, pid, start_ticks, pid_ns, acquired_ms, expires_boot_ms FROM lease",
		"");

	if (r < 0)
		return r;
	if (r == 0)
		return err_set(e, -EBADMSG, "the queue's database %s lacks its lease", s->path);
	*ret = (struct holder){.epoch = sqlite3_column_int64(st, 0),
		.owner = db_text(st, 1),
		.boot_id = db_text(st, 2),
		.pid = sqlite3_column_int64(st, 3),
		.start_ticks = sqlite3_column_int64(st, 4),
		.pid_ns = sqlite3_column_int64(st, 5),
		.acquired_ms = sqlite3_column_int64(st, 6),
		.expires_boot_ms = sqlite3_column_int64(st, 7)};
	ret->is_held = ret->owner != NULL;
	db_done(st);
	return 0;
}

/* This process, as the row has it. */
static int describe_self(struct holder *ret, char boot_id[40], struct err *e)
{
	struct proc_stat st = {0};
	int r = proc_boot_id(boot_id);

	if (r == 0)
		r = proc_read_stat(getpid(), &st);
	if (r < 0)
		return err_sys(e, r, "cannot read /proc, by which the queue's lease is kept");
	*ret = (struct holder){.pid = getpid(),
		.start_ticks = (int64_t)st.start_ticks,
		.pid_ns = (int64_t)proc_pid_ns()};
	return 0;
}

static bool is_in_the_way(const struct holder *h, const struct holder *self, const char *boot_id)
{
	if (!h->is_held || !h->boot_id || strcmp(h->boot_id, boot_id) != 0)
		return false;
	if (h->expires_boot_ms <= clock_boot_ms())
		return false;
	/* In another pid namespace its number says nothing: only time does. */
	if (h->pid_ns != self->pid_ns)
		return true;
	if (h->pid == self->pid && h->start_ticks == self->start_ticks)
		return false;
	return proc_is_alive((pid_t)h->pid, (uint64_t)h->start_ticks);
}

/* Somebody saw this queue further on than it is: it was put back from a backup. */
static bool went_back(const struct store *s, const struct holder *h, int64_t incarnation)
{
	return s->seen_incarnation > incarnation ||
	       (s->seen_incarnation == incarnation && s->seen_epoch > h->epoch);
}

/*
 * The file isn't the one whose lease was taken last: a copy of it, or put back from one. A file that's moved on its disk, or
 * written to, keeps its number; a network may give it another one at any time.
 */
static int is_copy(struct store *s, bool *ret, struct err *e)
{
	int64_t ino = 0;
	int r = db_int(
		s, &ino, e, "SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'inode'", "");

	*ret = r > 0 && !s->is_on_network && ino != (int64_t)s->ino;
	if (r < 0 || (r > 0 && !*ret))
		return r < 0 ? r : 0;
	return meta_put_int(s, "inode", (int64_t)s->ino, e);
}

static int take(struct store *s, const char *owner, int64_t ttl_ms, struct store_lease *ret,
	char **ret_holder, struct err *e)
{
	CLEANUP(holder_done) struct holder h = {0};
	struct holder self;
	char boot_id[40];
	int64_t incarnation = 0;
	bool copied = false;
	int r = describe_self(&self, boot_id, e);

	if (r == 0)
		r = read_holder(s, &h, e);
	if (r == 0)
		r = store_incarnation(s, &incarnation, e);
	if (r < 0)
		return r;
	if (is_in_the_way(&h, &self, boot_id)) {
		if (ret_holder)
			*ret_holder = xstrdup(h.owner);
		return err_set(e, -EBUSY,
			"%s (process %" PRId64 ") is deciding for the queue right now", h.owner,
			h.pid);
	}
	r = is_copy(s, &copied, e);
	if (r < 0)
		return r;
	if (copied || went_back(s, &h, incarnation)) {
		r = store_move_on(s, e);
		if (r == 0)
			r = store_incarnation(s, &incarnation, e);
		if (r < 0)
			return r;
	}
	if (s->seen_epoch > h.epoch)
		h.epoch = s->seen_epoch;
	r = db_run(s, e,
		"UPDATE lease SET epoch = ?1, owner = ?2, pid = ?3, start_ticks = ?4, boot_id = ?5, pid_ns = ?6,"
		" acquired_ms = ?7, expires_boot_ms = ?8",
		"itiitiii", h.epoch + 1, owner, self.pid, self.start_ticks, boot_id, self.pid_ns,
		s->now_ms, clock_boot_ms() + ttl_ms);
	if (r < 0)
		return r;
	*ret = (struct store_lease){.incarnation = incarnation, .epoch = h.epoch + 1};
	return node_follow_clock(s, boot_id, e);
}

int store_lease_take(struct store *s, const char *owner, int64_t ttl_ms, struct store_lease *ret,
	char **ret_holder, struct err *e)
{
	struct store_lease l;
	int r = store_begin(s, NULL, e);

	if (r < 0)
		return r;
	r = take(s, owner, ttl_ms, &l, ret_holder, e);
	if (r < 0) {
		store_abort(s);
		return r;
	}
	s->taken = l;
	r = store_commit(s, e);
	if (r == 0)
		*ret = l;
	return r;
}

static int give_way(struct store *s, int64_t incarnation, int64_t epoch, struct err *e)
{
	int r;

	if (incarnation > s->seen_incarnation)
		s->seen_incarnation = incarnation;
	r = store_move_on(s, e);
	if (r == 0)
		r = db_run(
			s, e, "UPDATE lease SET owner = NULL, epoch = max(epoch, ?1)", "i", epoch);
	return r < 0 ? r : 0;
}

int store_lease_outrun(struct store *s, const struct store_lease *l, int64_t incarnation,
	int64_t epoch, struct err *e)
{
	int r = store_begin(s, l, e);

	if (r < 0)
		return r;
	r = give_way(s, incarnation, epoch, e);
	if (r < 0) {
		store_abort(s);
		return r;
	}
	return store_commit(s, e);
}

int store_lease_renew(struct store *s, const struct store_lease *l, int64_t ttl_ms, struct err *e)
{
	int r = store_begin(s, l, e);

	if (r < 0)
		return r;
	r = db_run(s, e, "UPDATE lease SET expires_boot_ms = ?1", "i", clock_boot_ms() + ttl_ms);
	if (r < 0) {
		store_abort(s);
		return r;
	}
	return store_commit(s, e);
}

int store_lease_release(struct store *s, const struct store_lease *l, struct err *e)
{
	int r = store_begin(s, l, e);

	if (r < 0)
		return r;
	r = db_run(s, e, "UPDATE lease SET owner = NULL", "");
	if (r < 0) {
		store_abort(s);
		return r;
	}
	return store_commit(s, e);
}

int store_lease_read(struct store *s, struct store_lease_row *ret, struct err *e)
{
	CLEANUP(holder_done) struct holder h = {0};
	struct holder self;
	char boot_id[40];
	int64_t left;
	bool is_mine;
	int r = describe_self(&self, boot_id, e);

	if (r == 0)
		r = read_holder(s, &h, e);
	if (r < 0)
		return r;
	left = h.expires_boot_ms - clock_boot_ms();
	is_mine = h.pid == self.pid && h.start_ticks == self.start_ticks && left > 0;
	/* A store of another machine: its BOOTTIME says nothing here. */
	*ret = (struct store_lease_row){
		.is_held = h.is_held &&
			   (s->is_elsewheres || is_mine || is_in_the_way(&h, &self, boot_id)),
		.epoch = h.epoch,
		.acquired_wall_ms = h.acquired_ms,
		.expires_in_ms = s->is_elsewheres ? 0 : left};
	ret->owner = TAKE_PTR(h.owner);
	return 0;
}

/* ---- passes ---- */

/* A controller's change, in the transaction that is open or in one of its own. */
static int begin_own(struct store *s, const struct store_lease *l, bool *ret_own, struct err *e)
{
	*ret_own = !s->in_txn;
	if (*ret_own ? !l : !s->is_controller)
		return err_set(e, -EPERM, "only the holder of the queue's lease makes a pass");
	return *ret_own ? store_begin(s, l, e) : store_need_txn(s, e);
}

static int end_own(struct store *s, bool own, int r, struct err *e)
{
	if (!own)
		return r;
	if (r < 0) {
		store_abort(s);
		return r;
	}
	return store_commit(s, e);
}

int store_pass_begin(
	struct store *s, const struct store_lease *l, int64_t *ret_number, struct err *e)
{
	int64_t number = 0;
	bool own;
	int r = begin_own(s, l, &own, e);

	if (r < 0)
		return r;
	r = db_run(s, e, "UPDATE lease SET pass_begun = pass_begun + 1", "");
	if (r >= 0)
		r = db_int(s, &number, e, "SELECT pass_begun FROM lease", "");
	r = end_own(s, own, r < 0 ? r : 0, e);
	if (r == 0)
		*ret_number = number;
	return r;
}

int store_pass_done(struct store *s, const struct store_lease *l, int64_t number, struct err *e)
{
	bool own;
	int r = begin_own(s, l, &own, e);

	if (r < 0)
		return r;
	r = db_run(s, e, "UPDATE lease SET pass_done = max(pass_done, min(?1, pass_begun))", "i",
		number);
	return end_own(s, own, r < 0 ? r : 0, e);
}

int store_passes(struct store *s, int64_t *ret_begun, int64_t *ret_done, struct err *e)
{
	sqlite3_stmt *st = NULL;
	int r = db_ask(s, &st, e, "SELECT pass_begun, pass_done FROM lease", "");

	if (r <= 0)
		return r < 0 ? r : err_set(e, -EBADMSG, "%s lacks its lease", s->path);
	*ret_begun = sqlite3_column_int64(st, 0);
	*ret_done = sqlite3_column_int64(st, 1);
	db_done(st);
	return 0;
}
