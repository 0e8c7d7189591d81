/*
 * Stands in for ssh: a host whose agent plays samples that a real one was recorded with. `-G` goes to the real ssh, `-O` finds
 * no master, and a boot line gets an agent's channel: READY, hello, pongs, and once it's watched one recorded frame for
 * each interval, from a place of its own in the recording on, round and round.
 *
 *   REPLAY_FRAMES   the recording: frames as they come over the wire (bench/recorded.py makes it). The first one has the
 *                   figures that the others build on: it's sent once, before them.
 *   REPLAY_OTHER    "HOST FILE": that host plays another one
 */
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MARK "gpustow:"
#define MARK_LEN (8 + 16)
#define IN_MAX (1024 * 1024)

struct host {
	const char *name;
	uint32_t hash;
	const char *frames;
	size_t first, n, at; /* first: behind the figures */
	int64_t every_ms, next_ms; /* 0: nobody watches */
};

static int64_t clock_ms(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void die(const char *what)
{
	fprintf(stderr, "replay: %s\n", what);
	exit(255);
}

static void put(const char *bytes, size_t n)
{
	while (n) {
		ssize_t k = write(STDOUT_FILENO, bytes, n);

		if (k <= 0)
			exit(0);
		bytes += k;
		n -= (size_t)k;
	}
}

static void put_json(const char *text)
{
	size_t n = strlen(text) + 1;
	char head[5] = {(char)(n >> 24), (char)(n >> 16), (char)(n >> 8), (char)n, 'J'};

	put(head, sizeof(head));
	put(text, n - 1);
}

static size_t frame_len(const char *at)
{
	const uint8_t *u = (const uint8_t *)at;

	return 4 + ((size_t)u[0] << 24 | (size_t)u[1] << 16 | (size_t)u[2] << 8 | u[3]);
}

static void open_frames(struct host *h)
{
	const char *path = getenv("REPLAY_FRAMES"), *other = getenv("REPLAY_OTHER");
	size_t n = strlen(h->name), skip = 0;
	struct stat st;
	int fd;

	if (other && !strncmp(other, h->name, n) && other[n] == ' ')
		path = other + n + 1;
	fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0 || fstat(fd, &st) || !st.st_size)
		die("no recording");
	h->n = (size_t)st.st_size;
	h->frames = mmap(NULL, h->n, PROT_READ, MAP_SHARED, fd, 0);
	if (h->frames == MAP_FAILED)
		die("the recording can't be mapped");
	h->at = h->first = frame_len(h->frames);
	for (skip = h->hash % 64; skip; skip--) {
		h->at += frame_len(h->frames + h->at);
		if (h->at >= h->n)
			h->at = h->first;
	}
}

static void play(struct host *h)
{
	size_t len = frame_len(h->frames + h->at);

	put(h->frames + h->at, len);
	h->at = h->at + len >= h->n ? h->first : h->at + len;
	h->next_ms += h->every_ms;
}

static void say_hello(const struct host *h)
{
	char text[1024];

	snprintf(text, sizeof(text),
		"{\"op\":\"hello\",\"protocol\":1,\"build\":%d,\"version\":\"%s\",\"root_id\":\"%032x\",\"root\":\"/replay\","
		"\"machine_key\":\"%08x\",\"boot_id\":\"%08x\",\"pid_ns\":\"1\",\"pid\":%d,\"source\":\"nvml\",\"boot_ms\":%lld,"
		"\"wall_ms\":%lld}",
		GPUSTOW_BUILD, GPUSTOW_VERSION, h->hash, h->hash, h->hash, (int)getpid(),
		(long long)clock_ms(CLOCK_BOOTTIME), (long long)clock_ms(CLOCK_REALTIME));
	put_json(text);
}

static void take(struct host *h, const char *msg)
{
	const char *every = strstr(msg, "\"interval_ms\":");

	if (strstr(msg, "\"op\":\"hello\"")) {
		say_hello(h);
	} else if (strstr(msg, "\"op\":\"ping\"")) {
		put_json("{\"op\":\"pong\"}");
	} else if (strstr(msg, "\"op\":\"watch\"") && every) {
		h->every_ms = atoll(every + strlen("\"interval_ms\":"));
		put(h->frames, h->first);
		/* Hosts don't keep step with each other. */
		h->next_ms =
			clock_ms(CLOCK_MONOTONIC) +
			(h->every_ms ? (int64_t)(h->hash / 64 % 1000) * h->every_ms / 1000 : 0);
	}
}

static void serve(struct host *h)
{
	static char in[IN_MAX + 1];
	size_t have = 0;

	for (;;) {
		int64_t left = h->every_ms ? h->next_ms - clock_ms(CLOCK_MONOTONIC) : -1;
		struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
		ssize_t n;

		if (h->every_ms && left <= 0) {
			play(h);
			continue;
		}
		if (poll(&p, 1, (int)left) <= 0)
			continue;
		n = read(STDIN_FILENO, in + have, IN_MAX - have);
		if (n <= 0)
			exit(0);
		have += (size_t)n;
		while (have >= 4 && have >= frame_len(in)) {
			size_t len = frame_len(in);
			char kept = in[len];

			in[len] = '\0';
			take(h, in + 5);
			in[len] = kept;
			memmove(in, in + len, have -= len);
		}
	}
}

int main(int argc, char **argv)
{
	struct host h = {.hash = 2166136261u};
	const char *mark;
	char line[128];
	int i = 1;

	for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
		if (!strcmp(argv[i], "-G"))
			execv("/usr/bin/ssh", argv);
		if (!strcmp(argv[i], "-O") || !strcmp(argv[i], "-G"))
			return 255;
	}
	if (i + 2 >= argc || !(mark = strstr(argv[i + 2], MARK)) || strlen(mark) < MARK_LEN)
		die("this isn't a boot line");
	h.name = argv[i + 1];
	for (const char *c = h.name; *c; c++)
		h.hash = (h.hash ^ (uint8_t)*c) * 16777619u;
	open_frames(&h);
	snprintf(line, sizeof(line), "\n%.*s READY build=%d cpu=x86_64\n", MARK_LEN, mark,
		GPUSTOW_BUILD);
	put(line, strlen(line));
	serve(&h);
}
