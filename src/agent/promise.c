/*
 * The file with our promises, and reading those of others. Owns its descriptor and lock for the agent's whole life.
 *
 * Closing any descriptor of our own file would drop our lock (POSIX), whatever name it was opened by, so a candidate is
 * looked at through O_PATH first, which takes part in no locking, and our own inode is never opened a second time.
 */
#include "agent/promise.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/parse.h"
#include "base/sys.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX ".gpustow-"
#define NAME_MAX_LEN 48
#define MAGIC UINT32_C(0x47535031)
#define OTHERS_MAX 1024 /* files of others that are looked at */

struct slot_row {
	char uuid[GPU_UUID_LEN];
	int64_t mib;
	uint32_t is_tentative;
	uint32_t spare;
};

/* crc covers everything from `seq` to the last row in use. */
struct slot {
	uint32_t magic;
	uint32_t crc;
	uint64_t seq;
	uint32_t n_rows;
	uint32_t spare;
	struct slot_row rows[PROMISE_ROWS_MAX];
};

#define CRC_FROM offsetof(struct slot, seq)

struct candidate {
	char name[NAME_MAX_LEN];
	uid_t uid;
};

struct promise {
	char *dir;
	char name[NAME_MAX_LEN]; /* ours */
	int fd; /* -1: no file yet */
	uint64_t dev, ino;
	struct slot last; /* as published */
	struct candidate *found;
	size_t n_found, cap_found;
	int64_t listed_mtime_ns; /* the directory's, when it was listed; 0: list it again */
};

static size_t slot_size(const struct slot *s)
{
	return offsetof(struct slot, rows) + s->n_rows * sizeof(s->rows[0]);
}

static uint32_t slot_crc(const struct slot *s)
{
	return crc32_ieee((const char *)s + CRC_FROM, slot_size(s) - CRC_FROM);
}

static bool slot_is_valid(const struct slot *s)
{
	return s->magic == MAGIC && s->n_rows <= PROMISE_ROWS_MAX && s->crc == slot_crc(s);
}

struct promise *promise_new(const char *dir)
{
	struct promise *p = xcalloc(1, sizeof(*p));
	const char *env = getenv("GPUSTOW_PROMISE_DIR");

	if (!dir)
		dir = env && *env ? env : "/tmp";
	p->dir = xstrdup(dir);
	p->fd = -1;
	return p;
}

static void forget_file(struct promise *p)
{
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
	p->name[0] = '\0';
}

void promise_free(struct promise *p)
{
	char path[4096];

	if (!p)
		return;
	if (p->fd >= 0 &&
		snprintf(path, sizeof(path), "%s/%s", p->dir, p->name) < (int)sizeof(path))
		unlink(path);
	forget_file(p);
	free(p->found);
	free(p->dir);
	free(p);
}

static int make_file(struct promise *p, struct err *e)
{
	static const struct slot empty[2];
	char hex[17], path[4096];
	struct sys_stat st;
	CLEANUP_CLOSE int fd = -1;
	int r;

	random_hex(8, hex);
	snprintf(p->name, sizeof(p->name), PREFIX "%u-%s", (unsigned)getuid(), hex);
	if (snprintf(path, sizeof(path), "%s/%s", p->dir, p->name) >= (int)sizeof(path))
		return err_set(e, -ENAMETOOLONG,
			"the directory for promises has too long a name: %s", p->dir);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return err_sys(e, -errno,
			"%s can't be made, where other users see what this agent has promised",
			path);
	/* The agent's umask hides everything; this one is meant to be read. */
	r = fchmod(fd, 0644) ? -errno : 0;
	if (!r)
		r = fd_lock(fd, NULL);
	if (!r)
		r = fd_pwrite_all(fd, empty, sizeof(empty), 0);
	if (!r)
		r = sys_fstat(fd, &st);
	if (r) {
		unlink(path);
		return err_sys(e, r,
			"%s can't be written, where other users see what this agent has promised",
			path);
	}
	p->dev = st.dev;
	p->ino = st.ino;
	p->fd = TAKE_FD(fd);
	p->listed_mtime_ns = 0;
	return 0;
}

/* The file is still there under some name: temporary directories are swept. */
static bool has_file(const struct promise *p)
{
	struct sys_stat st;

	return p->fd >= 0 && !sys_fstat(p->fd, &st) && st.nlink > 0;
}

int promise_publish(struct promise *p, const struct promise_row *rows, size_t n, struct err *e)
{
	struct slot s = {.magic = MAGIC, .seq = p->last.seq + 1};
	bool has = has_file(p);
	int r;

	if (n > PROMISE_ROWS_MAX)
		return err_set(e, -E2BIG, "more than %d promises at once", PROMISE_ROWS_MAX);
	s.n_rows = (uint32_t)n;
	for (size_t i = 0; i < n; i++) {
		memcpy(s.rows[i].uuid, rows[i].uuid, sizeof(s.rows[i].uuid));
		s.rows[i].mib = rows[i].mib;
		s.rows[i].is_tentative = rows[i].is_tentative;
	}
	if (!has && !n) {
		p->last.n_rows = 0;
		return 0;
	}
	if (has && p->last.n_rows == s.n_rows &&
		!memcmp(p->last.rows, s.rows, n * sizeof(s.rows[0])))
		return 0;
	if (!has) {
		forget_file(p);
		r = make_file(p, e);
		if (r)
			return r;
	}
	s.crc = slot_crc(&s);
	r = fd_pwrite_all(p->fd, &s, slot_size(&s), (off_t)((s.seq & 1) * sizeof(s)));
	if (r)
		return err_sys(e, r, "%s/%s can't be written", p->dir, p->name);
	p->last = s;
	return 0;
}

/* "<prefix><uid>-<16 hex digits>" and nothing else. */
static bool parse_name(const char *name, uid_t *ret_uid)
{
	char digits[12];
	int64_t uid;
	size_t n;

	if (strncmp(name, PREFIX, sizeof(PREFIX) - 1))
		return false;
	name += sizeof(PREFIX) - 1;
	n = strspn(name, "0123456789");
	if (!n || n >= sizeof(digits) || name[n] != '-')
		return false;
	memcpy(digits, name, n);
	digits[n] = '\0';
	if (parse_int64(digits, &uid) || uid > UINT32_MAX || (n > 1 && digits[0] == '0'))
		return false;
	if (strspn(name + n + 1, "0123456789abcdef") != 16 || name[n + 17])
		return false;
	*ret_uid = (uid_t)uid;
	return true;
}

static int list_names(struct promise *p, struct err *e)
{
	CLEANUP_CLOSEDIR DIR *d = opendir(p->dir);
	const struct dirent *de;
	struct candidate c;

	if (!d)
		return err_sys(e, -errno,
			"%s can't be read, where other users' agents say what they promised",
			p->dir);
	p->n_found = 0;
	while ((de = readdir(d))) {
		if (!parse_name(de->d_name, &c.uid) || !strcmp(de->d_name, p->name))
			continue;
		if (p->n_found == OTHERS_MAX)
			break;
		memcpy(c.name, de->d_name, strlen(de->d_name) + 1);
		GROW(p->found, p->n_found, p->cap_found);
		p->found[p->n_found++] = c;
	}
	return 0;
}

/*
 * Lists the directory when its time of change moved. A change within the clock's grain of the listing may hide behind
 * the same time, so a young time is never remembered.
 */
static int refresh_names(struct promise *p, struct err *e)
{
	struct sys_stat st;
	int64_t now_ns = clock_wall_ms() * 1000000;
	int r = sys_stat_at(AT_FDCWD, p->dir, 0, &st);

	if (r)
		return err_sys(e, r,
			"%s can't be read, where other users' agents say what they promised",
			p->dir);
	if (p->listed_mtime_ns && p->listed_mtime_ns == st.mtime_ns)
		return 0;
	p->listed_mtime_ns = 0;
	r = list_names(p, e);
	if (!r && now_ns - st.mtime_ns > INT64_C(100000000))
		p->listed_mtime_ns = st.mtime_ns;
	return r;
}

static bool is_locked(int fd)
{
	struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	/* The holder's pid may be hidden by a pid namespace: only the kind of the answer counts. */
	return !fcntl(fd, F_GETLK, &fl) && fl.l_type != F_UNLCK;
}

/* Opens a candidate for reading, if it's what it must be; else -1. */
static int open_believed(const struct promise *p, const struct candidate *c)
{
	char path[4096];
	struct sys_stat st;
	CLEANUP_CLOSE int look = -1;
	CLEANUP_CLOSE int fd = -1;

	if (snprintf(path, sizeof(path), "%s/%s", p->dir, c->name) >= (int)sizeof(path))
		return -1;
	look = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (look < 0 || sys_fstat(look, &st))
		return -1;
	if (!S_ISREG(st.mode) || st.uid != c->uid || st.size != 2 * sizeof(struct slot))
		return -1;
	if (p->fd >= 0 && st.dev == p->dev && st.ino == p->ino)
		return -1;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", look);
	fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || !is_locked(fd))
		return -1;
	return TAKE_FD(fd);
}

static bool read_slots(int fd, struct slot *ret)
{
	struct slot s[2];
	int best = -1;

	/* The writer may be at work in one slot while the other is read; not twice in a row for long. */
	for (int tries = 0; tries < 5 && best < 0; tries++) {
		if (pread(fd, s, sizeof(s), 0) != sizeof(s))
			return false;
		for (int i = 0; i < 2; i++)
			if (slot_is_valid(&s[i]) && (best < 0 || s[i].seq > s[best].seq))
				best = i;
	}
	if (best >= 0)
		*ret = s[best];
	return best >= 0;
}

static int rank_of(const struct promise *p, const struct candidate *c)
{
	if (c->uid != getuid())
		return c->uid < getuid() ? -1 : 1;
	return strcmp(c->name, p->name) < 0 ? -1 : 1;
}

static size_t add_rows(const struct promise *p, const struct candidate *c, const struct slot *s,
	struct promise_other **rows, size_t n)
{
	*rows = xreallocarray(*rows, n + s->n_rows, sizeof(**rows));
	for (uint32_t i = 0; i < s->n_rows; i++) {
		struct promise_other *o = &(*rows)[n];
		const struct slot_row *row = &s->rows[i];

		if (row->mib <= 0 || !memchr(row->uuid, 0, sizeof(row->uuid)))
			continue;
		*o = (struct promise_other){.uid = c->uid, .rank = rank_of(p, c)};
		memcpy(o->row.uuid, row->uuid, sizeof(o->row.uuid));
		o->row.mib = row->mib < PROMISE_ALL_MIB ? row->mib : PROMISE_ALL_MIB;
		o->row.is_tentative = row->is_tentative != 0;
		n++;
	}
	return n;
}

int promise_read(struct promise *p, struct promise_other **ret, size_t *ret_n, struct err *e)
{
	struct promise_other *rows = NULL;
	struct slot s;
	size_t n = 0;
	int r = refresh_names(p, e);

	if (r)
		return r;
	for (size_t i = 0; i < p->n_found; i++) {
		CLEANUP_CLOSE int fd = open_believed(p, &p->found[i]);

		if (fd >= 0 && read_slots(fd, &s) && s.n_rows)
			n = add_rows(p, &p->found[i], &s, &rows, n);
	}
	*ret = rows;
	*ret_n = n;
	return 0;
}
