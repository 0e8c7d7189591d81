/*
 * One file's way to a client (follow.h). What grows is seen by looking: at once when the owner heard of a change, every
 * second otherwise. The name is looked at only after the last byte of the file that had it until now.
 */
#include "agent/follow.h"

#include "base/cleanup.h"
#include "base/sys.h"
#include "core/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOK_MS 1000
#define SCAN_STEP (1024 * 1024) /* bytes looked through in one turn */

void follow_done(struct follow *f)
{
	if (f->fd >= 0)
		close(f->fd);
	free(f->path);
	*f = (struct follow){.fd = -1};
}

void follow_credit(struct follow *f, int64_t n)
{
	/* Nobody can have taken what wasn't sent. */
	f->credited += n < f->sent - f->credited ? n : f->sent - f->credited;
}

static int64_t credit_left(const struct follow *f)
{
	return WIRE_CREDIT - (f->sent - f->credited);
}

static bool may_send(const struct follow *f, const struct client *c)
{
	return credit_left(f) > 0 && client_takes_bulk(c);
}

/* ---- what is said ---- */

static void say_file(struct follow *f, struct client *c, int64_t size, bool is_cut)
{
	client_send(c, json_pack("{s:s, s:I, s:b, s:I, s:I, s:b}", "op", "file", "id",
			       (json_int_t)f->id, "exists", f->fd >= 0, "size", (json_int_t)size,
			       "offset", (json_int_t)f->pos, "is_cut", is_cut));
}

static void say_over(struct follow *f, struct client *c)
{
	client_send(c, json_pack("{s:s, s:I}", "op", "over", "id", (json_int_t)f->id));
	f->state = FOLLOW_OVER;
}

/* ---- the file ---- */

/* A plain file of this account, whatever a job has put at that name. -ENOENT without a sentence. */
static int open_file(const char *path, int *ret_fd, struct sys_stat *ret, struct err *e)
{
	CLEANUP_CLOSE int fd =
		open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	int r;

	if (fd < 0 && errno == ENOENT)
		return -ENOENT;
	if (fd < 0 && errno == ELOOP)
		return err_set(e, -ELOOP, "%s is a symbolic link; only plain files are read", path);
	if (fd < 0)
		return err_sys(e, -errno, "cannot open %s", path);
	r = sys_fstat(fd, ret);
	if (r)
		return err_sys(e, r, "cannot look at %s", path);
	if (!S_ISREG(ret->mode))
		return err_set(e, -EINVAL, "%s is not a plain file; nothing else is read", path);
	if (ret->uid != geteuid())
		return err_set(e, -EPERM, "%s belongs to uid %u, not to this account", path,
			(unsigned)ret->uid);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static void take_file(struct follow *f, int fd, const struct sys_stat *st)
{
	if (f->fd >= 0)
		close(f->fd);
	f->fd = fd;
	f->dev = st->dev;
	f->ino = st->ino;
	f->is_new_fd = true;
}

static void begin_at(struct follow *f, struct client *c, int64_t size, int64_t start, bool is_cut)
{
	f->state = FOLLOW_SENDING;
	f->has_more = true;
	f->pos = start;
	f->end = -1;
	if (!f->follow)
		f->end = size - start < f->max ? size : start + f->max;
	say_file(f, c, size, is_cut);
}

/* It's there for the first time. */
static void begin(struct follow *f, struct client *c, int64_t size)
{
	if (f->is_absent_told) {
		/* It came into being while the client waited: all of it is new. */
		begin_at(f, c, size, 0, false);
	} else if (f->lines >= 0) {
		tail_begin(&f->tail, size, f->lines, f->max);
		f->state = FOLLOW_SCANNING;
	} else {
		/* What ended before the offset isn't the file that the client knows. */
		begin_at(f, c, size, f->offset > size ? 0 : f->offset, false);
	}
}

static int look_for_it(struct follow *f, struct client *c, struct err *e)
{
	struct sys_stat st = {0};
	int fd = -1, r = open_file(f->path, &fd, &st, e);

	if (!r) {
		take_file(f, fd, &st);
		begin(f, c, st.size);
		return 0;
	}
	if (r != -ENOENT)
		return r;
	if (!f->is_absent_told)
		say_file(f, c, 0, false);
	f->is_absent_told = true;
	if (!f->follow || f->has_ended)
		say_over(f, c);
	return 0;
}

/* Shorter than what was sent: written anew. */
static int look_at_size(struct follow *f, struct client *c, struct err *e)
{
	struct sys_stat st;
	int r = sys_fstat(f->fd, &st);

	if (r)
		return err_sys(e, r, "cannot look at %s", f->path);
	if (st.size < f->pos)
		begin_at(f, c, st.size, 0, false);
	f->has_more = true;
	return 0;
}

/* After the last byte: is there another file of that name? One that can't be read doesn't end the one that can. */
static void look_at_name(struct follow *f, struct client *c)
{
	struct sys_stat st = {0};
	int fd = -1;

	f->is_name_due = false;
	if (sys_stat_at(AT_FDCWD, f->path, AT_SYMLINK_NOFOLLOW, &st) ||
		(st.dev == f->dev && st.ino == f->ino) || open_file(f->path, &fd, &st, NULL))
		return;
	take_file(f, fd, &st);
	begin_at(f, c, st.size, 0, false);
}

/* ---- its bytes ---- */

static int scan(struct follow *f, struct client *c, struct err *e)
{
	struct sys_stat st;
	int64_t start;
	bool is_cut;
	int r = tail_step(&f->tail, f->fd, SCAN_STEP, &start, &is_cut);

	if (!r)
		return 0;
	if (r > 0)
		r = sys_fstat(f->fd, &st);
	if (r < 0)
		return err_sys(e, r, "cannot read %s", f->path);
	/* max was kept by the scan, and ends where it began from. */
	begin_at(f, c, st.size, start > st.size ? 0 : start, is_cut);
	if (!f->follow)
		f->end = f->tail.end;
	return 0;
}

/* One piece. 1: sent; 0: there's no more; negative: -errno. */
static int send_piece(struct follow *f, struct client *c)
{
	char bytes[WIRE_BULK_MAX];
	int64_t n = sizeof(bytes);
	ssize_t got;

	if (n > credit_left(f))
		n = credit_left(f);
	if (f->end >= 0 && n > f->end - f->pos)
		n = f->end - f->pos;
	if (n <= 0)
		return 0;
	do
		got = pread(f->fd, bytes, (size_t)n, (off_t)f->pos);
	while (got < 0 && errno == EINTR);
	if (got <= 0)
		return got < 0 ? -errno : 0;
	client_send_bulk(c, (uint64_t)f->id, bytes, (size_t)got);
	f->pos += got;
	f->sent += got;
	return 1;
}

static int send_on(struct follow *f, struct client *c, struct err *e)
{
	int r = 1;

	while (r > 0 && may_send(f, c))
		r = send_piece(f, c);
	if (r < 0)
		return err_sys(e, r, "cannot read %s", f->path);
	f->has_more = r > 0;
	if (f->has_more)
		return 0;
	if (f->follow && f->is_name_due)
		look_at_name(f, c);
	if (!f->has_more && (!f->follow || f->has_ended))
		say_over(f, c);
	return 0;
}

/* ---- turns ---- */

static int look(struct follow *f, struct client *c, struct err *e)
{
	if (f->state == FOLLOW_WAITING)
		return look_for_it(f, c, e);
	if (f->state != FOLLOW_SENDING || !f->follow)
		return 0;
	f->is_name_due = true;
	return look_at_size(f, c, e);
}

int follow_turn(struct follow *f, struct client *c, int64_t now_ms, struct err *e)
{
	int r = 0;

	if (now_ms >= f->look_at_ms) {
		f->look_at_ms = now_ms + LOOK_MS;
		r = look(f, c, e);
	}
	if (!r && f->state == FOLLOW_SCANNING)
		r = scan(f, c, e);
	if (!r && f->state == FOLLOW_SENDING && f->has_more)
		r = send_on(f, c, e);
	return r;
}

int64_t follow_wait_ms(const struct follow *f, const struct client *c, int64_t now_ms)
{
	if (f->state == FOLLOW_SCANNING ||
		(f->state == FOLLOW_SENDING && f->has_more && may_send(f, c)))
		return 0;
	if (!f->follow && f->state == FOLLOW_SENDING)
		return -1;
	return f->look_at_ms > now_ms ? f->look_at_ms - now_ms : 0;
}
