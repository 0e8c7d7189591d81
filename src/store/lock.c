/*
 * The lock file beside the database: who holds its flock may write and checkpoint, nobody else. It waits in the kernel, in
 * turn, with a timer; says who is in the way when the time is over; and isn't stopped by Ctrl-Z while others wait. The
 * file also remembers how far the queue had come, so that a database put back from a backup is noticed.
 */
#include "store/store_inner.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/parse.h"
#include "base/sys.h"
#include "proc/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define HOLDER_BYTES 256 /* who it is, padded with blanks; then as many for the witness */

static int open_lock(struct store *s, struct err *e)
{
	char path[4096];
	int n = snprintf(path, sizeof(path), "%s.lock", s->path);

	if (n < 0 || (size_t)n >= sizeof(path))
		return err_set(e, -ENAMETOOLONG, "the path of the queue's database is too long");
	s->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (s->lock_fd < 0)
		return err_sys(e, -errno, "cannot open %s, which orders writers", path);
	return 0;
}

/* The file that we have open is still the one under that name: somebody may have tidied up. */
static bool is_current(const struct store *s)
{
	char path[4096];
	struct sys_stat mine, there;

	snprintf(path, sizeof(path), "%s.lock", s->path);
	return sys_fstat(s->lock_fd, &mine) == 0 && sys_stat_at(AT_FDCWD, path, 0, &there) == 0 &&
	       mine.dev == there.dev && mine.ino == there.ino;
}

static void on_alarm(int sig)
{
	(void)sig;
}

/* Takes the flock by the deadline (BOOTTIME): 0, -ETIMEDOUT or another error. */
static int wait_for_it(int fd, int64_t deadline)
{
	struct sigaction quiet = {.sa_handler = on_alarm}, before;
	struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
	int64_t left = deadline - clock_boot_ms();
	/* Again every 50 ms, in case the first one comes just before flock() begins to wait. */
	struct itimerspec when = {.it_interval = {.tv_nsec = 50000000}};
	sigset_t alarm_only, mask;
	timer_t timer;
	int r = 0;

	if (left <= 0)
		return -ETIMEDOUT;
	when.it_value.tv_sec = (time_t)(left / 1000);
	when.it_value.tv_nsec = (long)(left % 1000) * 1000000;
	if (timer_create(CLOCK_BOOTTIME, &ev, &timer) < 0)
		return -errno;
	sigaction(SIGALRM, &quiet, &before);
	sigemptyset(&alarm_only);
	sigaddset(&alarm_only, SIGALRM);
	sigprocmask(SIG_UNBLOCK, &alarm_only, &mask);
	timer_settime(timer, 0, &when, NULL);
	while (flock(fd, LOCK_EX) < 0) {
		r = -errno;
		if (r != -EINTR)
			break;
		r = clock_boot_ms() >= deadline ? -ETIMEDOUT : 0;
		if (r)
			break;
	}
	timer_delete(timer);
	sigprocmask(SIG_SETMASK, &mask, NULL);
	sigaction(SIGALRM, &before, NULL);
	return r;
}

/* The n bytes at `at` as a text without the padding; "" where nothing is. */
static void read_field(int fd, off_t at, char ret[HOLDER_BYTES])
{
	ssize_t n = pread(fd, ret, HOLDER_BYTES - 1, at);

	if (n < 0)
		n = 0;
	ret[n] = '\0';
	ret[strcspn(ret, "\n")] = '\0';
}

static void write_field(int fd, off_t at, const char *text)
{
	char field[HOLDER_BYTES];
	size_t n = strnlen(text, sizeof(field) - 1);

	memset(field, ' ', sizeof(field));
	memcpy(field, text, n);
	field[n] = '\n';
	/* On a full disk nobody learns who we are: no reason to fail. */
	(void)fd_pwrite_all(fd, field, sizeof(field), at);
}

/* Whoever took it without a word left the last one's there: ours, perhaps. */
static bool is_self(const char *who)
{
	char own[32];

	snprintf(own, sizeof(own), "process %d (", (int)getpid());
	return !strncmp(who, own, strlen(own));
}

static int say_who(const struct store *s, int64_t wait_ms, struct err *e)
{
	char text[HOLDER_BYTES];
	const char *who = text;

	read_field(s->lock_fd, 0, text);
	if (!*who || is_self(who))
		who = "a process that didn't say who it is";
	if (wait_ms < 1000)
		return err_set(e, -EBUSY, "the queue's database %s is being written to by %s",
			s->path, who);
	return err_set(e, -EBUSY,
		"the queue's database %s has been written to for %.1f s by %s; nothing was changed: try again, or look at that process",
		s->path, (double)wait_ms / 1000.0, who);
}

static void sign(const struct store *s)
{
	char who[HOLDER_BYTES], host[65] = "";
	struct proc_stat st;

	gethostname(host, sizeof(host) - 1);
	if (proc_read_stat(getpid(), &st) < 0)
		st.start_ticks = 0;
	snprintf(who, sizeof(who), "process %d (%.40s on %.64s, start %" PRIu64 ")", (int)getpid(),
		program_invocation_short_name, host, st.start_ticks);
	write_field(s->lock_fd, 0, who);
}

/* "<queue> <incarnation> <epoch>"; anything else is no witness. */
static void read_witness(struct store *s)
{
	char text[HOLDER_BYTES], *rest = text;
	const char *queue, *first, *second;
	int64_t incarnation, epoch;

	s->seen_incarnation = s->seen_epoch = 0;
	read_field(s->lock_fd, HOLDER_BYTES, text);
	queue = strsep(&rest, " ");
	first = strsep(&rest, " ");
	second = strsep(&rest, " ");
	if (!first || !second || strcmp(queue, s->queue) != 0 ||
		parse_int64(first, &incarnation) < 0 || parse_int64(second, &epoch) < 0)
		return;
	s->seen_incarnation = incarnation;
	s->seen_epoch = epoch;
}

static void block_stop(struct store *s)
{
	sigset_t set, before;

	sigemptyset(&set);
	sigaddset(&set, SIGTSTP);
	sigprocmask(SIG_BLOCK, &set, &before);
	s->tstp_was_blocked = sigismember(&before, SIGTSTP) == 1;
}

static void unblock_stop(const struct store *s)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTSTP);
	if (!s->tstp_was_blocked)
		sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static int take(struct store *s, int64_t wait_ms, struct err *e)
{
	int64_t deadline = clock_boot_ms() + wait_ms;
	int r = 0;

	for (;;) {
		if (s->lock_fd < 0)
			r = open_lock(s, e);
		if (r < 0)
			return r;
		if (flock(s->lock_fd, LOCK_EX | LOCK_NB) < 0) {
			r = errno == EWOULDBLOCK ? wait_for_it(s->lock_fd, deadline) : -errno;
			if (r == -ETIMEDOUT)
				return say_who(s, wait_ms, e);
			if (r < 0)
				return err_sys(e, r, "cannot lock %s.lock", s->path);
		}
		if (is_current(s))
			return 0;
		close(s->lock_fd);
		s->lock_fd = -1;
	}
}

int lock_take(struct store *s, int64_t wait_ms, struct err *e)
{
	int r;

	if (s->n_holds)
		return 0;
	/* Before the lock is had, so that there's no moment in which it stops with it. */
	block_stop(s);
	r = take(s, wait_ms, e);
	if (r < 0) {
		unblock_stop(s);
		return r;
	}
	s->is_locked = true;
	sign(s);
	read_witness(s);
	return 0;
}

void lock_drop(struct store *s)
{
	if (!s->is_locked || s->n_holds)
		return;
	s->is_locked = false;
	flock(s->lock_fd, LOCK_UN);
	unblock_stop(s);
}

void lock_witness(struct store *s, int64_t incarnation, int64_t epoch)
{
	char text[HOLDER_BYTES];

	snprintf(text, sizeof(text), "%s %" PRId64 " %" PRId64, s->queue, incarnation, epoch);
	write_field(s->lock_fd, HOLDER_BYTES, text);
}
