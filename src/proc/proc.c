/*
 * One process as /proc shows it: its line of figures, whether it is still the one that was meant, a signal that
 * reaches that one only, its parents, its owner, one variable of its environment. Reads nothing into the heap.
 * Must not decide what is to be done with a process.
 */
#include "proc/proc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PF_EXITING 0x4 /* of the kernel's, in field 9 */

#define ENV_VALUE_MAX 4096

ssize_t proc_read_bytes(pid_t pid, const char *file, char *ret, size_t size)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	size_t n = 0;
	while (n < size) {
		ssize_t got = read(fd, ret + n, size - n);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		n += (size_t)got;
	}
	return (ssize_t)n;
}

/* The same with a NUL behind. */
static ssize_t read_file(pid_t pid, const char *file, char *buf, size_t size)
{
	ssize_t n = proc_read_bytes(pid, file, buf, size - 1);
	if (n >= 0)
		buf[n] = '\0';
	return n;
}

/* The next blank-separated decimal number, sign allowed. Past the end of what 64 bits hold: -ERANGE. */
static int take_number(const char **p, const char *end, int64_t *ret)
{
	const char *s = *p;
	while (s < end && *s == ' ')
		s++;
	bool is_negative = s < end && *s == '-';
	if (is_negative)
		s++;
	if (s == end || *s < '0' || *s > '9')
		return -EINVAL;
	uint64_t v = 0;
	for (; s < end && *s >= '0' && *s <= '9'; s++) {
		if (__builtin_mul_overflow(v, 10, &v) ||
			__builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
			return -ERANGE;
	}
	/* The limits of memory are printed as 2^64 - 1; nothing that is kept here comes near 2^63. */
	int64_t value = v > INT64_MAX ? INT64_MAX : (int64_t)v;
	*ret = is_negative ? -value : value;
	*p = s;
	return 0;
}

static int take_pid(const int64_t value, pid_t *ret)
{
	if (value < -1 || value > INT32_MAX)
		return -EINVAL;
	*ret = (pid_t)value;
	return 0;
}

static uint64_t not_negative(int64_t value)
{
	return value < 0 ? 0 : (uint64_t)value;
}

int proc_parse_stat(const char *text, size_t n, struct proc_stat *ret)
{
	const char *open_paren = memchr(text, '(', n);
	const char *close_paren = memrchr(text, ')', n);
	if (!open_paren || !close_paren || close_paren < open_paren)
		return -EINVAL;
	const char *end = text + n;
	struct proc_stat s = {0};

	int64_t pid;
	const char *p = text;
	if (take_number(&p, open_paren, &pid) < 0 || pid <= 0 || take_pid(pid, &s.pid) < 0)
		return -EINVAL;
	size_t comm_n = (size_t)(close_paren - open_paren - 1);
	if (comm_n > sizeof(s.comm) - 1)
		comm_n = sizeof(s.comm) - 1;
	memcpy(s.comm, open_paren + 1, comm_n);

	p = close_paren + 1;
	if (end - p < 2 || p[0] != ' ' || p[1] <= ' ' || p[1] > '~')
		return -EINVAL;
	s.state = p[1];
	p += 2;
	int64_t field[25] = {0}; /* as proc(5) numbers them; 3 is the state */
	for (size_t i = 4; i <= 24; i++) {
		int r = take_number(&p, end, &field[i]);
		if (r < 0)
			return r;
	}
	if (take_pid(field[4], &s.ppid) < 0 || take_pid(field[5], &s.pgid) < 0 ||
		take_pid(field[6], &s.sid) < 0)
		return -EINVAL;
	s.is_exiting = not_negative(field[9]) & PF_EXITING;
	s.cpu_ticks = not_negative(field[14]) + not_negative(field[15]);
	s.start_ticks = not_negative(field[22]);
	s.rss_pages = not_negative(field[24]);
	s.threads = field[20] > 0 && field[20] < INT32_MAX ? (int32_t)field[20] : 0;
	*ret = s;
	return 0;
}

int proc_read_stat(pid_t pid, struct proc_stat *ret)
{
	char text[1024];
	if (pid <= 0)
		return -ESRCH;
	ssize_t n = read_file(pid, "stat", text, sizeof(text));
	if (n == -EMFILE || n == -ENFILE || n == -ENOMEM)
		return (int)n; /* our trouble says nothing about the process */
	if (n <= 0)
		return -ESRCH;
	return proc_parse_stat(text, (size_t)n, ret);
}

static bool is_dead(const struct proc_stat *s)
{
	return s->state == 'Z' || s->state == 'X' || s->state == 'x';
}

/* 0, -ESRCH when it's gone or another, any other error when that couldn't be found out. */
static int check_identity(pid_t pid, uint64_t start_ticks)
{
	struct proc_stat s;
	int r = proc_read_stat(pid, &s);
	if (r < 0)
		return r;
	if (is_dead(&s) || (start_ticks && s.start_ticks != start_ticks))
		return -ESRCH;
	return 0;
}

bool proc_is_alive(pid_t pid, uint64_t start_ticks)
{
	/* What couldn't be looked at counts as there: absence is not evidence. */
	return pid > 0 && check_identity(pid, start_ticks) != -ESRCH;
}

int proc_signal(pid_t pid, uint64_t start_ticks, int sig)
{
	/* 0, -1 and other negatives are groups, and 1 is never a job's. */
	if (pid <= 1)
		return -EINVAL;
	CLEANUP_CLOSE int pidfd = sys_pidfd_open(pid);
	if (pidfd == -ESRCH)
		return -ESRCH;
	int r = check_identity(pid, start_ticks);
	if (r < 0)
		return r;
	if (pidfd >= 0) {
		r = sys_pidfd_send_signal(pidfd, sig);
		if (r != -ENOSYS && r != -EPERM)
			return r;
	}
	/* A kernel before 5.3, or a seccomp filter that doesn't know pidfds. */
	return kill(pid, sig) < 0 ? -errno : 0;
}

size_t proc_ancestors(pid_t pid, pid_t *ret, size_t max)
{
	size_t n = 0;
	struct proc_stat s;
	while (n < max && proc_read_stat(pid, &s) == 0 && s.ppid > 1) {
		ret[n++] = s.ppid;
		pid = s.ppid;
	}
	return n;
}

/* Looks for NAME= in a stream of NUL-terminated entries, whatever the size of its pieces. */
struct env_search {
	const char *name;
	size_t name_n;
	size_t matched; /* bytes of this entry that agree so far; NO_MATCH: it's another */
	bool is_value;
	size_t value_n;
	char value[ENV_VALUE_MAX];
};
#define NO_MATCH ((size_t)-1)

/* 1 when the value is whole, 0 to go on, -ERANGE when it's longer than any that is looked for. */
static int env_feed(struct env_search *q, char c)
{
	if (q->is_value) {
		if (q->value_n == sizeof(q->value))
			return -ERANGE;
		q->value[q->value_n++] = c;
		return c == '\0';
	}
	if (c == '\0')
		q->matched = 0;
	else if (q->matched == NO_MATCH)
		;
	else if (q->matched == q->name_n)
		q->is_value = c == '=', q->matched = NO_MATCH;
	else if (c == q->name[q->matched])
		q->matched++;
	else
		q->matched = NO_MATCH;
	return 0;
}

int proc_env(pid_t pid, const char *name, char *ret, size_t size)
{
	char path[64], chunk[8192];
	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	struct env_search q = {.name = name, .name_n = strlen(name)};
	for (;;) {
		ssize_t n = read(fd, chunk, sizeof(chunk));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		int r = 0;
		for (ssize_t i = 0; i < n && r == 0; i++)
			r = env_feed(&q, chunk[i]);
		if (n == 0 && q.is_value) /* the process cut off its own last NUL */
			r = env_feed(&q, '\0');
		if (r < 0)
			return r;
		if (r > 0)
			break;
		if (n == 0)
			return -ENOENT;
	}
	if (q.value_n > size)
		return -ERANGE;
	memcpy(ret, q.value, q.value_n);
	return 0;
}

uid_t proc_uid(pid_t pid)
{
	char path[64], text[2048];
	struct sys_stat st;
	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	if (sys_stat_at(AT_FDCWD, path, 0, &st) < 0)
		return (uid_t)-1;
	if (st.uid != 0)
		return st.uid;
	/* The directory of a process that may not be dumped is root's, whoever runs it. */
	if (read_file(pid, "status", text, sizeof(text)) <= 0)
		return (uid_t)-1;
	const char *line = strstr(text, "\nUid:\t");
	if (!line)
		return (uid_t)-1;
	int64_t uid;
	const char *p = line + strlen("\nUid:\t");
	if (take_number(&p, text + strlen(text), &uid) < 0 || uid < 0 || uid >= UINT32_MAX)
		return (uid_t)-1;
	return (uid_t)uid;
}
