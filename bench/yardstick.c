/*
 * What gpustow is measured against: the least that keeps its promises, without gpustow.
 *
 *   yardstick jobs DIR N P     N times `sh -c true`, P at once: a durable claim, a forked shim, a durable end each
 *   yardstick bare DIR N P     the same without shims and claims: what starts or ended at one moment is one block written in
 *                              place and synced before the start, and before the end counts. Nothing durable does less
 *   yardstick spawn N A -- B   runs A and B in turn, N times each: wall time and minor faults of both, as JSON
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SPEC_BYTES 2048
#define STATE_BYTES 1024

extern char **environ;

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

__attribute__((noreturn)) static void give_up(const char *what)
{
	fprintf(stderr, "yardstick: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* --- jobs --- */

static int write_begun(int dir, const char *name, size_t size)
{
	char bytes[SPEC_BYTES] = {0};
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
		give_up(name);
	sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
	return fd;
}

/* Staged, four syncs and a rename, as protocol.md 2 asks and in the agent's order. Returns the claim's descriptor. */
static int make_claim(int top, int n)
{
	char stage[64], name[64];
	int dir, state, spec;

	snprintf(stage, sizeof(stage), "new-%d", n);
	snprintf(name, sizeof(name), "claim-%d", n);
	if (mkdirat(top, stage, 0700) < 0 ||
		(dir = openat(top, stage, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
		give_up(stage);
	state = write_begun(dir, "state", STATE_BYTES);
	spec = write_begun(dir, "spec", SPEC_BYTES);
	if (fsync(state) < 0 || fsync(spec) < 0 || fsync(dir) < 0)
		give_up(stage);
	if (renameat(top, stage, top, name) < 0 || fsync(top) < 0)
		give_up(name);
	close(state);
	close(spec);
	return dir;
}

__attribute__((noreturn)) static void be_shim(int claim)
{
	char end[STATE_BYTES / 2] = {0};
	int status, state;
	pid_t pid;

	setsid();
	pid = fork();
	if (!pid) {
		setsid();
		execl("/bin/sh", "sh", "-c", "true", (char *)NULL);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		give_up("the job");
	state = openat(claim, "state", O_WRONLY | O_CLOEXEC);
	if (state < 0 || pwrite(state, end, sizeof(end), 0) != (ssize_t)sizeof(end) ||
		fdatasync(state) < 0)
		give_up("state");
	_exit(WEXITSTATUS(status));
}

static int run_jobs(const char *path, int n, int at_once)
{
	int top = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), running = 0;

	if (top < 0)
		give_up(path);
	for (int i = 0; i < n || running;) {
		int status;

		if (i < n && running < at_once) {
			int claim = make_claim(top, i++);
			pid_t pid = fork();

			if (!pid)
				be_shim(claim);
			if (pid < 0)
				give_up("fork");
			close(claim);
			running++;
			continue;
		}
		if (wait(&status) < 0)
			give_up("wait");
		running--;
	}
	return 0;
}

/* --- bare --- */

static void start_bare(void)
{
	char name[] = "sh", option[] = "-c", command[] = "true";
	char *argv[] = {name, option, command, NULL};
	pid_t pid;

	if ((errno = posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ)))
		give_up("/bin/sh");
}

/* Waits for one, and takes all who have ended by then. */
static int take_ended(void)
{
	int n = 0, status;

	while (waitpid(-1, &status, n ? WNOHANG : 0) > 0)
		n++;
	if (!n)
		give_up("wait");
	return n;
}

static int run_bare(const char *path, int n, int at_once)
{
	int top = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), running = 0, started = 0;
	char record[STATE_BYTES / 2] = {0};
	int fd = top < 0 ? -1 : openat(top, "records", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0 || pwrite(fd, record, sizeof(record), 0) != (ssize_t)sizeof(record) ||
		fsync(fd) < 0)
		give_up(path);
	while (started < n || running) {
		if (running)
			running -= take_ended();
		if (pwrite(fd, record, sizeof(record), 0) != (ssize_t)sizeof(record) ||
			fdatasync(fd) < 0)
			give_up("records");
		for (; started < n && running < at_once; started++, running++)
			start_bare();
	}
	return 0;
}

/* --- spawn --- */

struct measured {
	int64_t *ns;
	long faults;
};

static int by_size(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static void spawn_once(char **argv, int null, struct measured *m, int i)
{
	posix_spawn_file_actions_t actions;
	struct rusage usage;
	int64_t began = now_ns();
	int status;
	pid_t pid;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, null, 1);
	if ((errno = posix_spawn(&pid, argv[0], &actions, NULL, argv, environ)))
		give_up(argv[0]);
	if (wait4(pid, &status, 0, &usage) < 0 || !WIFEXITED(status) || WEXITSTATUS(status))
		give_up(argv[0]);
	m->ns[i] = now_ns() - began;
	m->faults = usage.ru_minflt;
	posix_spawn_file_actions_destroy(&actions);
}

static void put(const char *name, struct measured *m, int n)
{
	qsort(m->ns, (size_t)n, sizeof(*m->ns), by_size);
	printf("\"%s\": {\"median_us\": %.1f, \"low_us\": %.1f, \"faults\": %ld}", name,
		(double)m->ns[n / 2] / 1000, (double)m->ns[n / 10] / 1000, m->faults);
}

static int spawn_both(int n, char **a)
{
	struct measured one = {.ns = calloc((size_t)n, sizeof(int64_t))},
			other = {.ns = calloc((size_t)n, sizeof(int64_t))};
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	char **b = a;

	while (*b && strcmp(*b, "--"))
		b++;
	if (!*b || !b[1] || null < 0 || !one.ns || !other.ns)
		return 2;
	*b++ = NULL;
	for (int i = 0; i < n; i++) {
		spawn_once(a, null, &one, i);
		spawn_once(b, null, &other, i);
	}
	printf("{");
	put("a", &one, n);
	printf(", ");
	put("b", &other, n);
	printf("}\n");
	free(one.ns);
	free(other.ns);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 5 && !strcmp(argv[1], "jobs"))
		return run_jobs(
			argv[2], (int)strtol(argv[3], NULL, 10), (int)strtol(argv[4], NULL, 10));
	if (argc == 5 && !strcmp(argv[1], "bare"))
		return run_bare(
			argv[2], (int)strtol(argv[3], NULL, 10), (int)strtol(argv[4], NULL, 10));
	if (argc > 5 && !strcmp(argv[1], "spawn"))
		return spawn_both((int)strtol(argv[2], NULL, 10), argv + 3);
	fprintf(stderr, "yardstick jobs|bare DIR N P | spawn N A... -- B...\n");
	return 2;
}
