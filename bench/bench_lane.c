/*
 * A lane's figure: from the end of one leader to the exec of the next, which lies ready, on simulated cards; beside it, in
 * turn with it and on the same file system, the least there is: fork, exec, wait, and two fdatasync. Both run this program as
 * the job, which notes the clock at its beginning and just before its end. Usage: bench_lane [DIRECTORY [JOBS]]. Prints JSON.
 */
#include "agent/server.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "core/wire.h"
#include "gpu/sim_spec.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define QUEUE "0123456789abcdef0123456789abcdef"
#define JOB_MS 200
#define BLOCK 20 /* jobs of one kind, before it's the other's turn */
#define STATE_BYTES 512

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

__attribute__((noreturn)) static void give_up(const char *what, const char *why)
{
	fprintf(stderr, "bench_lane: %s: %s\n", what, why);
	exit(1);
}

/* ---- the job ---- */

struct stamps {
	int64_t began, ended;
};

static int be_job(const char *path)
{
	struct stamps s = {.began = now_ns()};
	struct timespec nap = {.tv_nsec = JOB_MS * 1000000L};
	int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);

	nanosleep(&nap, NULL);
	s.ended = now_ns();
	return write(fd, &s, sizeof(s)) == sizeof(s) ? 0 : 1;
}

/* ---- the least there is ---- */

static void run_plain(const char *self, const char *stamps, int n)
{
	char bytes[STATE_BYTES] = {0};
	int fd = open("plain-state", O_RDWR | O_CREAT | O_CLOEXEC, 0600), status;

	if (fd < 0)
		give_up("plain-state", strerror(errno));
	for (int i = 0; i < n; i++) {
		pid_t pid = fork();

		if (!pid) {
			execl(self, self, "job", stamps, (char *)NULL);
			_exit(127);
		}
		if (pid < 0 || waitpid(pid, &status, 0) < 0 || status)
			give_up("the job", "it failed");
		for (int k = 0; k < 2; k++)
			if (pwrite(fd, bytes, sizeof(bytes), (off_t)k * STATE_BYTES) < 0 ||
				fdatasync(fd) < 0)
				give_up("plain-state", strerror(errno));
	}
	close(fd);
}

/* ---- the lane ---- */

static pid_t start_agent(const char *root)
{
	static struct agent a;
	const struct agent_options options = {.idle_ms = 600000};
	struct err e = {0};
	pid_t pid = fork();

	if (pid)
		return pid;
	if (agent_init(&a, root, &options, &e) || agent_run(&a, &e))
		give_up("the agent", e.text);
	agent_done(&a);
	_exit(0);
}

static int connect_to(const char *root)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/agent.sock", root);
	for (int i = 0; connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0; i++) {
		if (i == 2000)
			give_up(sa.sun_path, strerror(errno));
		poll(NULL, 0, 5);
	}
	return fd;
}

static void say(int fd, json_t *msg)
{
	CLEANUP(buf_done) struct buf b = {0};

	if (wire_put_json(&b, msg, NULL) || fd_write_all(fd, b.data, b.len))
		give_up("the agent's socket", "it takes no message");
	json_decref(msg);
}

static json_t *hear(int fd, struct buf *in, const char *op)
{
	for (;;) {
		char bytes[65536];
		json_t *msg = NULL;
		ssize_t n;

		while (wire_get_json(in, &msg, NULL) > 0) {
			const char *its = json_string_value(json_object_get(msg, "op"));

			if (its && !strcmp(its, op))
				return msg;
			if (its && !strcmp(its, "error"))
				give_up(op, json_string_value(json_object_get(msg, "text")));
			json_decref(msg);
		}
		n = read(fd, bytes, sizeof(bytes));
		if (n <= 0)
			give_up(op, "the agent closed the link");
		buf_put(in, bytes, (size_t)n);
	}
}

static json_t *entry(const char *self, const char *stamps, const char *sim, int job)
{
	CLEANUP_FREE char *token = xasprintf("%032x", job);
	CLEANUP_FREE char *output = xasprintf("%s/output", sim);
	char uuid[64];

	sim_uuid(sim, 0, uuid);
	/* No shell in between: the leader is this program, as it is the child beside it. */
	return json_pack(
		"{s:i, s:i, s:s, s:[{s:s, s:i}], s:{s:i, s:i, s:f, s:b, s:b, s:i}, s:[s, s, s], s:s, s:s, s:i, s:i, s:i}",
		"job", job, "attempt", 1, "token", token, "cards", "uuid", uuid, "declared_mib",
		1000, "policy", "margin_mib", 0, "idle_threshold_mib", 0, "spike_buffer", 0.0,
		"high_water", 0, "exclusive", 0, "max_jobs_per_card", 0, "argv", self, "job",
		stamps, "output", output, "cwd", sim, "timeout_ms", 0, "grace_ms", 1000, "umask",
		63);
}

static void run_lane(int fd, struct buf *in, const char *root_id, json_t *entries, int block)
{
	json_t *order = json_array(), *first = json_array_get(entries, 0);
	size_t n = json_array_size(entries);
	json_t *uuid = json_object_get(json_array_get(json_object_get(first, "cards"), 0), "uuid");

	for (size_t i = 0; i < n; i++) {
		json_t *o = json_array_get(entries, i);

		json_array_append_new(
			order, json_pack("[O, O, O]", json_object_get(o, "job"),
				       json_object_get(o, "attempt"), json_object_get(o, "token")));
	}
	say(fd, json_pack("{s:s, s:i, s:s, s:s, s:i, s:[O], s:o, s:o}", "op", "lane", "id", block,
			"root_id", root_id, "name", "n1:0", "generation", block, "cards", uuid,
			"order", order, "entries", entries));
	json_decref(hear(fd, in, "lane"));
	for (size_t i = 0; i < n; i++)
		json_decref(hear(fd, in, "ended"));
}

/* ---- the figures ---- */

static int by_size(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* Gaps between neighbours of one block. */
static double put_gaps(const char *name, const char *path, size_t jobs)
{
	CLEANUP(buf_done) struct buf b = {0};
	CLEANUP_FREE int64_t *gaps = xcalloc(jobs, sizeof(*gaps));
	const struct stamps *s;
	size_t n = 0;

	if (fd_read_file_at(AT_FDCWD, path, &b, 1 << 24) || b.len != jobs * sizeof(*s))
		give_up(path, "not all jobs ran");
	s = (const struct stamps *)(const void *)b.data;
	for (size_t i = 1; i < jobs; i++)
		if (i % BLOCK)
			gaps[n++] = s[i].began - s[i - 1].ended;
	qsort(gaps, n, sizeof(*gaps), by_size);
	printf("\"%s\": {\"median_us\": %.0f, \"low_us\": %.0f, \"high_us\": %.0f}", name,
		(double)gaps[n / 2] / 1000, (double)gaps[n / 10] / 1000,
		(double)gaps[n * 9 / 10] / 1000);
	return (double)gaps[n / 2];
}

static void measure(const char *self, const char *dir, int jobs)
{
	CLEANUP(buf_done) struct buf in = {0};
	CLEANUP_FREE char *root = xasprintf("%s/root", dir);
	CLEANUP_FREE char *lane = xasprintf("%s/lane", dir);
	CLEANUP_FREE char *plain = xasprintf("%s/plain", dir);
	pid_t agent = start_agent(root);
	int fd = connect_to(root);
	char root_id[ID_LEN];
	json_t *hello;
	double a, b;

	say(fd, json_pack("{s:s, s:i, s:i, s:s, s:s, s:[i, i, i]}", "op", "hello", "protocol",
			WIRE_PROTOCOL, "build", 1, "who", "bench", "queue", QUEUE, "fence", 1, 1,
			1));
	hello = hear(fd, &in, "hello");
	if (wire_str(hello, "root_id", root_id, sizeof(root_id), NULL))
		give_up("hello", "no root id");
	json_decref(hello);
	for (int i = 0; i < jobs; i += BLOCK) {
		json_t *entries = json_array();

		for (int k = 1; k <= BLOCK; k++)
			json_array_append_new(entries, entry(self, lane, dir, i + k));
		run_lane(fd, &in, root_id, entries, i / BLOCK + 1);
		run_plain(self, plain, BLOCK);
	}
	close(fd);
	kill(agent, SIGTERM);
	waitpid(agent, NULL, 0);
	printf("{\"jobs\": %d, ", jobs);
	a = put_gaps("lane", lane, (size_t)jobs);
	printf(", ");
	b = put_gaps("plain", plain, (size_t)jobs);
	printf(", \"ratio\": %.2f}\n", a / b);
}

int main(int argc, char **argv)
{
	CLEANUP_FREE char *dir = NULL;
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	int jobs = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 200;

	if (argc == 3 && !strcmp(argv[1], "job"))
		return be_job(argv[2]);
	if (n < 0 || jobs < BLOCK)
		return 2;
	self[n] = '\0';
	jobs -= jobs % BLOCK;
	dir = xasprintf("%s/bench_lane-XXXXXX", argc > 1 ? argv[1] : "/tmp");
	if (!mkdtemp(dir) || chdir(dir))
		give_up(dir, strerror(errno));
	setenv("GPUSTOW_SIM", "1", 1);
	setenv("GPUSTOW_SIM_DIR", dir, 1);
	setenv("GPUSTOW_PROMISE_DIR", dir, 1);
	close(open("lane", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	close(open("plain", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	measure(self, dir, jobs);
	fflush(stdout);
	return chdir("/") || fd_remove_tree_at(AT_FDCWD, dir) ? 1 : 0;
}
