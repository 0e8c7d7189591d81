/*
 * Where a backup is made, how it gets its name, and which old ones go. A backup is made under a name that nobody looks for,
 * and gets its own at the end: by link(2), which never replaces; where that can't be, by a rename that doesn't; where that
 * can't be either, by making the name first and renaming over what is certainly ours.
 */
#include "svc/backup.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/parse.h"
#include "base/sys.h"
#include "proc/proc.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define TEMPORARY ".queue-backup-" /* and 16 hex digits */
#define SAME_MOMENT_MAX 1000
#define NOREPLACE 1 /* RENAME_NOREPLACE of linux/fs.h, which clashes with sys/mount.h */
#define LEASE_KEY "database_backup"

void backup_made_done(struct backup_made *b)
{
	for (size_t i = 0; i < b->n_pruned; i++)
		free(b->pruned[i]);
	free(b->pruned);
	free(b->path);
	free(b->source);
	*b = (struct backup_made){0};
}

/* ---- names ---- */

void backup_name(int64_t now_ms, int nth, char ret[BACKUP_NAME_MAX])
{
	time_t t = (time_t)(now_ms / 1000);
	char stamp[24];
	struct tm tm;

	gmtime_r(&t, &tm);
	strftime(stamp, sizeof(stamp), "%Y%m%dT%H%M%S", &tm);
	if (nth > 1)
		snprintf(ret, BACKUP_NAME_MAX, "queue-%s.%03d000Z-%d.db", stamp,
			(int)(now_ms % 1000), nth);
	else
		snprintf(ret, BACKUP_NAME_MAX, "queue-%s.%03d000Z.db", stamp, (int)(now_ms % 1000));
}

bool backup_name_parse(const char *name, struct backup_order *ret)
{
	static const char shape[] = "queue-ddddddddTdddddd.ddddddZ";
	size_t n = sizeof(shape) - 1;
	int64_t nth = 1;

	for (size_t i = 0; i < n; i++)
		if (shape[i] == 'd' ? !isdigit((unsigned char)name[i]) : name[i] != shape[i])
			return false;
	memcpy(ret->stamp, name + 6, n - 6);
	ret->stamp[n - 6] = '\0';
	name += n;
	if (*name == '-') {
		size_t digits = strspn(name + 1, "0123456789");
		char text[8] = "";

		if (!digits || digits >= sizeof(text) || name[1] == '0')
			return false;
		memcpy(text, name + 1, digits);
		if (parse_int64(text, &nth) < 0 || nth < 2)
			return false;
		name += 1 + digits;
	}
	ret->nth = (int)nth;
	return !strcmp(name, ".db");
}

char *backup_directory(const struct backup_settings *b, const char *home)
{
	if (!b->directory)
		return xasprintf("%s/backups", home);
	return b->directory[0] == '/' ? xstrdup(b->directory)
				      : xasprintf("%s/%s", home, b->directory);
}

/* ---- publishing ---- */

#ifdef GPUSTOW_FAULT_POINTS
/* For tests: a file system without hard links ("link"), and without the newer rename too ("rename"). */
static bool lacks(const char *what)
{
	const char *told = getenv("GPUSTOW_TEST_LACKS");

	return told && strstr(told, what);
}
#else
#define lacks(what) false
#endif

static bool is_unsupported(int code)
{
	return code == EPERM || code == EOPNOTSUPP || code == ENOSYS || code == EINVAL ||
	       code == EMLINK;
}

/* The name is made first, so whatever is renamed over is our own empty file. One at a time, for those who look at names. */
static int publish_by_name(int dir, const char *from, const char *to)
{
	int fd, r = 0;

	(void)flock(dir, LOCK_EX);
	fd = openat(dir, to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		r = -errno;
	else
		close(fd);
	if (r == 0 && renameat(dir, from, dir, to) < 0) {
		r = -errno;
		unlinkat(dir, to, 0);
	}
	(void)flock(dir, LOCK_UN);
	return r;
}

/* 0, or -EEXIST, or another error; the temporary name may still be there. */
static int publish(int dir, const char *from, const char *to)
{
	errno = EPERM;
	if (!lacks("link") && linkat(dir, from, dir, to, 0) == 0)
		return 0;
	if (!is_unsupported(errno))
		return -errno;
	errno = EINVAL;
	if (!lacks("rename") && syscall(SYS_renameat2, dir, from, dir, to, NOREPLACE) == 0)
		return 0;
	if (!is_unsupported(errno))
		return -errno;
	return publish_by_name(dir, from, to);
}

/* ---- who is at it ---- */

struct lease {
	char boot_id[40];
	int64_t expires_boot_ms, pid, start_ticks; /* pid 0: it has failed */
};

/* "<boot id> <expires> <pid> <start>"; anything else is none. */
static bool read_lease(struct store *s, struct lease *ret)
{
	CLEANUP_FREE char *text = NULL;
	char *rest, *word[4];

	*ret = (struct lease){0};
	if (store_meta_get(s, LEASE_KEY, &text, NULL) < 0)
		return false;
	rest = text;
	for (int i = 0; i < 4; i++)
		if (!(word[i] = strsep(&rest, " ")))
			return false;
	if (strlen(word[0]) >= sizeof(ret->boot_id) ||
		parse_int64(word[1], &ret->expires_boot_ms) < 0 ||
		parse_int64(word[2], &ret->pid) < 0 || parse_int64(word[3], &ret->start_ticks) < 0)
		return false;
	memcpy(ret->boot_id, word[0], strlen(word[0]) + 1);
	return true;
}

static bool is_running(const struct lease *l)
{
	return l->pid && l->pid != getpid() &&
	       proc_is_alive((pid_t)l->pid, (uint64_t)l->start_ticks);
}

/* Not over yet, and of this boot. */
static bool is_current(const struct lease *l)
{
	char boot_id[40];

	return proc_boot_id(boot_id) == 0 && !strcmp(boot_id, l->boot_id) &&
	       l->expires_boot_ms > clock_boot_ms();
}

static int write_lease(struct store *s, bool is_at_it, struct err *e)
{
	struct proc_stat st = {0};
	char boot_id[40], text[160];
	int r = proc_boot_id(boot_id);

	if (r == 0)
		r = proc_read_stat(getpid(), &st);
	if (r < 0)
		return err_sys(e, r, "cannot read /proc");
	snprintf(text, sizeof(text), "%s %" PRId64 " %d %" PRIu64, boot_id,
		clock_boot_ms() + BACKUP_LEASE_MS, is_at_it ? (int)getpid() : 0, st.start_ticks);
	return store_meta_set(s, LEASE_KEY, text, e);
}

static int begin(struct store *s, struct err *e)
{
	struct lease l;
	int r = store_begin(s, NULL, e);

	if (r < 0)
		return r;
	if (read_lease(s, &l) && is_current(&l) && is_running(&l))
		r = err_set(e, -EBUSY,
			"process %" PRId64 " is making a backup of this queue right now", l.pid);
	if (r == 0)
		r = write_lease(s, true, e);
	if (r < 0) {
		store_abort(s);
		return r;
	}
	return store_commit(s, e);
}

enum outcome { MADE, FAILED, REFUSED };

/* Made: the time is remembered. Failed: for a while nobody tries by himself. Refused: as if it hadn't been asked for. */
static int end(struct store *s, enum outcome how, int64_t now_ms, struct err *e)
{
	char text[32];
	int r = store_begin(s, NULL, e);

	if (r < 0)
		return r;
	snprintf(text, sizeof(text), "%" PRId64, now_ms);
	if (how == MADE)
		r = store_meta_set(s, STORE_LAST_BACKUP, text, e);
	if (r == 0)
		r = how == FAILED ? write_lease(s, false, e)
				  : store_meta_set(s, LEASE_KEY, NULL, e);
	if (r < 0) {
		store_abort(s);
		return r;
	}
	return store_commit(s, e);
}

int64_t backup_last_ms(struct store *s)
{
	CLEANUP_FREE char *text = NULL;
	int64_t ms;

	return store_meta_get(s, STORE_LAST_BACKUP, &text, NULL) == 0 && !parse_int64(text, &ms) &&
			       ms > 0
		       ? ms
		       : 0;
}

bool backup_is_due(struct store *s, const struct backup_settings *b, int64_t now_ms)
{
	int64_t last = backup_last_ms(s);
	struct lease l;

	if (!b->enabled || store_is_elsewheres(s))
		return false;
	/* A last one that lies ahead was made under a wrong clock: it says nothing. */
	if (last && last <= now_ms && now_ms - last < b->interval_ms)
		return false;
	return !(read_lease(s, &l) && is_current(&l) && (!l.pid || is_running(&l)));
}

/* ---- where ---- */

struct target {
	char *directory, *name; /* name NULL: a generated one */
	int dir;
};

static void target_done(struct target *t)
{
	free(t->directory);
	free(t->name);
	if (t->dir >= 0)
		close(t->dir);
}

static bool is_directory(const char *path)
{
	struct sys_stat st;

	return sys_stat_at(AT_FDCWD, path, 0, &st) == 0 && S_ISDIR(st.mode);
}

static int refuse_existing(const char *path, const char *source, struct err *e)
{
	struct sys_stat there, ours;

	if (sys_stat_at(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, &there) < 0)
		return 0;
	if (sys_stat_at(AT_FDCWD, path, 0, &there) == 0 &&
		sys_stat_at(AT_FDCWD, source, 0, &ours) == 0 && there.dev == ours.dev &&
		there.ino == ours.ino)
		return err_set(e, -EINVAL,
			"%s is the queue's database itself; name another place for the backup",
			path);
	return err_set(e, -EEXIST,
		"%s is there already, and a backup never replaces anything; name another file, or a directory",
		path);
}

static int choose(
	struct store *s, const char *directory, const char *path, struct target *ret, struct err *e)
{
	const char *slash = path ? strrchr(path, '/') : NULL;
	int r = 0;

	if (path && !*path)
		return err_set(e, -EINVAL,
			"an empty name can't be a backup's; name a file that isn't there yet, or a directory");
	if (!path) {
		ret->directory = xstrdup(directory);
	} else if (is_directory(path) || (slash && !slash[1])) {
		ret->directory = xstrdup(path);
	} else {
		r = refuse_existing(path, store_path(s), e);
		ret->directory = slash ? xstrndup(path, slash == path ? 1 : (size_t)(slash - path))
				       : xstrdup(".");
		ret->name = xstrdup(slash ? slash + 1 : path);
	}
	if (r == 0 && !is_directory(ret->directory))
		r = fd_mkdirs(ret->directory, e);
	if (r < 0)
		return r;
	ret->dir = open(ret->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return ret->dir < 0 ? err_sys(e, -errno, "cannot open the directory %s for a backup",
				      ret->directory)
			    : 0;
}

static char *below(const struct target *t, const char *name)
{
	size_t n = strlen(t->directory);

	while (n && t->directory[n - 1] == '/')
		n--;
	return !strcmp(t->directory, ".") ? xstrdup(name)
					  : xasprintf("%.*s/%s", (int)n, t->directory, name);
}

/* ---- the temporary file ---- */

/* It's locked as long as it's worked on, so what a killed backup left behind can be told from one that's being made. */
static void sweep(const struct target *t)
{
	CLEANUP_CLOSEDIR DIR *d = opendir(t->directory);
	const struct dirent *entry;

	while (d && (entry = readdir(d))) {
		CLEANUP_CLOSE int fd = -1;

		if (strncmp(entry->d_name, TEMPORARY, strlen(TEMPORARY)) != 0 ||
			strlen(entry->d_name) != strlen(TEMPORARY) + 16)
			continue;
		fd = openat(t->dir, entry->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
		if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
			unlinkat(t->dir, entry->d_name, 0);
	}
}

static int make_temporary(const struct target *t, char name[BACKUP_NAME_MAX], struct err *e)
{
	char hex[17];
	int fd;

	random_hex(8, hex);
	snprintf(name, BACKUP_NAME_MAX, TEMPORARY "%s", hex);
	fd = openat(t->dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_sys(e, -errno, "cannot make a backup in %s", t->directory);
	(void)flock(fd, LOCK_EX | LOCK_NB);
	return fd;
}

/* ---- old ones ---- */

struct old {
	struct backup_order order;
	char *name;
};

static int newest_first(const void *a, const void *b)
{
	const struct old *x = a, *y = b;
	int c = strcmp(y->order.stamp, x->order.stamp);

	return c ? c : (y->order.nth > x->order.nth) - (y->order.nth < x->order.nth);
}

/* By its name, a plain file, its content, and of this very queue. */
static bool is_of(struct store *s, const struct target *t, const char *name)
{
	CLEANUP_FREE char *path = below(t, name);
	char queue[ID_LEN];
	struct sys_stat st, live;

	if (sys_stat_at(t->dir, name, AT_SYMLINK_NOFOLLOW, &st) < 0 || !S_ISREG(st.mode))
		return false;
	if (sys_stat_at(AT_FDCWD, store_path(s), 0, &live) < 0 ||
		(live.dev == st.dev && live.ino == st.ino))
		return false;
	return store_file_queue(path, queue, NULL) == 0 && !strcmp(queue, store_queue(s));
}

static void prune(struct store *s, const struct target *t, int64_t keep, struct backup_made *ret)
{
	CLEANUP_CLOSEDIR DIR *d = opendir(t->directory);
	CLEANUP_FREE struct old *v = NULL;
	const struct dirent *entry;
	size_t n = 0, cap = 0, n_pruned_max = 0;

	while (d && (entry = readdir(d))) {
		struct backup_order order;

		if (!backup_name_parse(entry->d_name, &order) || !is_of(s, t, entry->d_name))
			continue;
		GROW(v, n, cap);
		v[n++] = (struct old){.order = order, .name = xstrdup(entry->d_name)};
	}
	if (n)
		qsort(v, n, sizeof(*v), newest_first);
	for (size_t i = 0; i < n; i++) {
		if (i >= (size_t)keep && unlinkat(t->dir, v[i].name, 0) == 0) {
			GROW(ret->pruned, ret->n_pruned, n_pruned_max);
			ret->pruned[ret->n_pruned++] = below(t, v[i].name);
		}
		free(v[i].name);
	}
}

/* ---- all of it ---- */

static int give_name(const struct target *t, const char *temporary, int64_t now_ms,
	struct backup_made *ret, struct err *e)
{
	char made[BACKUP_NAME_MAX];
	const char *name = t->name;
	int r = -EEXIST;

	for (int nth = 1; r == -EEXIST && nth <= (t->name ? 1 : SAME_MOMENT_MAX); nth++) {
		if (!t->name) {
			backup_name(now_ms, nth, made);
			name = made;
		}
		r = publish(t->dir, temporary, name);
	}
	ret->path = below(t, name);
	if (r == -EEXIST)
		return err_set(e, r,
			"%s is there already, and a backup never replaces anything; name another file, or a directory",
			ret->path);
	return r < 0 ? err_sys(e, r, "cannot give the backup its name %s", ret->path) : 0;
}

static int make(struct store *s, const struct target *t, int64_t now_ms, struct backup_made *ret,
	struct err *e)
{
	CLEANUP_FREE char *path = NULL;
	char temporary[BACKUP_NAME_MAX];
	CLEANUP_CLOSE int fd = -1;
	struct sys_stat st = {0};
	int r;

	sweep(t);
	fd = make_temporary(t, temporary, e);
	if (fd < 0)
		return fd;
	path = below(t, temporary);
	r = store_copy(s, path, now_ms, e);
	if (r == 0) {
		(void)sys_fstat(fd, &st);
		r = give_name(t, temporary, now_ms, ret, e);
	}
	/* After a rename it isn't there any more. */
	unlinkat(t->dir, temporary, 0);
	if (r == 0 && fsync(t->dir) < 0 && errno != EINVAL)
		r = err_sys(e, -errno, "cannot make the name %s durable", ret->path);
	ret->bytes = (int64_t)st.size;
	return r;
}

static int make_into(struct store *s, const char *directory, const char *path, int64_t keep,
	struct backup_made *ret, struct err *e)
{
	struct target t = {.dir = -1};
	int r = choose(s, directory, path, &t, e);

	if (r == 0)
		r = make(s, &t, ret->created_ms, ret, e);
	if (r == 0 && keep > 0)
		prune(s, &t, keep, ret);
	target_done(&t);
	return r;
}

int backup_make(struct store *s, const char *directory, const char *path, int64_t keep,
	struct backup_made *ret, struct err *e)
{
	struct backup_made made = {.created_ms = clock_wall_ms(), .verified = true};
	struct err ignored = {0};
	bool writes = !store_is_elsewheres(s);
	int r = writes ? begin(s, e) : 0;

	if (r < 0)
		return r;
	made.source = xstrdup(store_path(s));
	r = make_into(s, directory, path, keep, &made, e);
	if (writes) {
		int k = end(s,
			r == 0 ? MADE
			: path ? REFUSED
			       : FAILED,
			made.created_ms, r == 0 ? e : &ignored);

		r = r == 0 ? k : r;
	}
	if (r < 0)
		backup_made_done(&made);
	else
		*ret = made;
	return r;
}

int backup_restore(const char *from, const char *path, char **ret_kept, struct err *e)
{
	struct store_options o = {.mode = STORE_WRITE};

	return store_restore(from, path, &o, ret_kept, e);
}
