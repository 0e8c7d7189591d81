/*
 * What the monitor costs whoever watches 100 nodes of 8 cards at one sample a second: samples as they come over the wire
 * are decoded, taken and drawn to a real pty, as often as the loop would. Prints CPU, memory, bytes to the terminal, and how
 * long a key takes from the event to the last byte of its picture while all that arrives.
 * usage: bench_monitor [SECONDS [NODES [PROCESSES]]]
 */
#include <fcntl.h>
#include <locale.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../tests/unit/tui_world.h"
#include "base/clock.h"
#include "tui/screen.h"

enum { DRAWS_A_SECOND = 5, COLS = 200, ROWS = 60 };

static double cpu_s(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static int64_t rss_kib(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long size = 0, rss = 0;

	if (f && fscanf(f, "%ld %ld", &size, &rss) != 2)
		rss = 0;
	if (f)
		fclose(f);
	return rss * (sysconf(_SC_PAGESIZE) / 1024);
}

static int by_size(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

struct bench {
	struct world w; /* what the nodes send */
	struct monitor m;
	struct frame f;
	struct screen *screen;
	struct sample *taken; /* what was decoded, until the next one of that node */
	size_t n;
	int64_t *keys_us;
	size_t n_keys;
	double decode_s, take_s, draw_s;
};

static void take_all(struct bench *b, int64_t second)
{
	for (size_t i = 0; i < b->n; i++) {
		struct sample *s = &b->w.samples[i], new = {0};
		struct show_host h = b->w.m.nodes[i].host;
		struct err e = {0};
		double begun = cpu_s();
		json_t *msg;
		char *text;

		for (uint32_t c = 0; c < s->snap.n_cards; c++)
			world_set(&s->snap.cards[c], METRIC_UTIL_GPU,
				(int64_t)((second * 7 + (int64_t)i * 3 + c) % 101));
		msg = sample_encode(s);
		text = json_dumps(msg, JSON_COMPACT);
		json_decref(msg);
		begun = cpu_s();
		msg = json_loads(text, 0, NULL);
		if (sample_decode(msg, &new, &e)) {
			fprintf(stderr, "bench_monitor: %s\n", e.text);
			exit(1);
		}
		json_decref(msg);
		free(text);
		b->decode_s += cpu_s() - begun;
		begun = cpu_s();
		h.sample = &new;
		sample_done(&b->taken[i]);
		b->taken[i] = new;
		h.sample = &b->taken[i];
		monitor_take(&b->m, i, &h, 1000000 + second * 1000 + (int64_t)i);
		b->take_s += cpu_s() - begun;
	}
}

static void show(struct bench *b, int64_t second, int part)
{
	double begun = cpu_s();

	monitor_draw(&b->m, &b->f, COLS, ROWS,
		(struct view_time){
			1000000 + second * 1000 + part * 200, 1700000000000 + second * 1000});
	screen_show(b->screen, &b->f);
	while (screen_push(b->screen) == 0 && screen_has_backlog(b->screen))
		poll(&(struct pollfd){.fd = screen_fd(b->screen), .events = POLLOUT}, 1, -1);
	b->draw_s += cpu_s() - begun;
}

static void press(struct bench *b, int64_t second, uint32_t key)
{
	struct input_event ev = {.kind = EVENT_KEY, .key = key};
	int64_t begun = clock_boot_us();

	monitor_event(&b->m, &ev, &b->f, 1000000 + second * 1000);
	show(b, second, 0);
	b->keys_us[b->n_keys++] = clock_boot_us() - begun;
}

static int run(int64_t seconds, size_t nodes, uint32_t procs, int report)
{
	static const uint32_t keys[] = {'j', 'v', 'd', 'j', 'd', 's', 's', 's', 'v', 'j'};
	struct bench b = {0};
	struct err e = {0};
	char text[400];
	int n;

	world_make(&b.w, nodes, 8);
	b.n = nodes + 1;
	for (size_t i = 0; i < b.n; i++) {
		sample_done(&b.w.samples[i]);
		world_sample(&b.w.samples[i], 8, procs, (unsigned)i + 1);
	}
	monitor_init(&b.m, b.n);
	frame_init(&b.f);
	b.taken = xcalloc(b.n, sizeof(*b.taken));
	b.keys_us = xcalloc((size_t)seconds + 1, sizeof(*b.keys_us));
	if (screen_open(&b.screen, theme_find("muted"), true, &e) < 0) {
		dprintf(report, "bench_monitor: %s\n", e.text);
		return 1;
	}
	for (int64_t s = 0; s < seconds; s++) {
		take_all(&b, s);
		for (int part = 0; part < DRAWS_A_SECOND; part++)
			show(&b, s, part);
		press(&b, s, keys[s % 10]);
	}
	screen_close(b.screen);
	qsort(b.keys_us, b.n_keys, sizeof(*b.keys_us), by_size);
	n = snprintf(text, sizeof(text),
		"CPU of a core: %.2f %% (decoding %.2f, taking in %.2f, drawing %.2f)\n"
		"memory: %.1f MiB, of which the test's own samples are a part\n"
		"a key to its picture: median %.2f ms, longest %.2f ms\n",
		(b.decode_s + b.take_s + b.draw_s) * 100 / (double)seconds,
		b.decode_s * 100 / (double)seconds, b.take_s * 100 / (double)seconds,
		b.draw_s * 100 / (double)seconds, (double)rss_kib() / 1024,
		(double)b.keys_us[b.n_keys / 2] / 1000, (double)b.keys_us[b.n_keys - 1] / 1000);
	return write(report, text, (size_t)n) == n ? 0 : 1;
}

int main(int argc, char **argv)
{
	int64_t seconds = argc > 1 ? atoll(argv[1]) : 60, bytes = 0;
	size_t nodes = argc > 2 ? (size_t)atoll(argv[2]) : 100;
	uint32_t procs = argc > 3 ? (uint32_t)atoll(argv[3]) : 16;
	struct winsize size = {.ws_row = ROWS, .ws_col = COLS};
	int master, report = dup(1), status;
	char buf[65536];
	ssize_t n;
	pid_t pid;

	setlocale(LC_CTYPE, "C.UTF-8");
	setenv("TERM", "xterm-256color", 1);
	pid = forkpty(&master, NULL, NULL, &size);
	if (pid < 0)
		return 1;
	if (!pid)
		exit(run(seconds, nodes, procs, report));
	while ((n = read(master, buf, sizeof(buf))) > 0)
		bytes += n;
	waitpid(pid, &status, 0);
	printf("to the terminal: %.1f KB a second (%d pictures, one key)\n",
		(double)bytes / 1000 / (double)seconds, DRAWS_A_SECOND + 1);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
