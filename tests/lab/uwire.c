/*
 * A wire between two network namespaces, in user space: delay, jitter, loss and a cut, where the kernel has no netem.
 * usage: uwire NS_A DEV_A NS_B DEV_B CONTROL. CONTROL holds "delay_ms jitter_ms loss_percent cut", read again every
 * 20 ms; the delay is each way. Says "up" on stdout once both devices are there.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MS 20

struct packet {
	struct packet *next;
	int64_t due_us;
	size_t len;
	unsigned char bytes[];
};

struct wire {
	double delay_ms, jitter_ms, loss_pct;
	int is_cut;
	struct pollfd ends[2];
	struct packet *queue[2]; /* by due time, for that end */
};

static int64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static int open_end(const char *ns, const char *device)
{
	struct ifreq r = {.ifr_flags = IFF_TUN | IFF_NO_PI};
	char path[256];
	int ns_fd, fd;

	snprintf(path, sizeof(path), "/run/netns/%s", ns);
	ns_fd = open(path, O_RDONLY | O_CLOEXEC);
	if (ns_fd < 0 || setns(ns_fd, CLONE_NEWNET))
		die(path);
	close(ns_fd);
	snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", device);
	fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || ioctl(fd, TUNSETIFF, &r))
		die(device);
	return fd;
}

static void read_control(struct wire *w, const char *path)
{
	FILE *f = fopen(path, "re");
	double delay_ms = 0, jitter_ms = 0, loss_pct = 0;
	int is_cut = 0;

	if (!f)
		return;
	if (fscanf(f, "%lf %lf %lf %d", &delay_ms, &jitter_ms, &loss_pct, &is_cut) == 4) {
		w->delay_ms = delay_ms;
		w->jitter_ms = jitter_ms;
		w->loss_pct = loss_pct;
		w->is_cut = is_cut;
	}
	fclose(f);
}

static void put(struct wire *w, int to, const unsigned char *bytes, size_t len)
{
	double ms = w->delay_ms + w->jitter_ms * (2 * drand48() - 1);
	struct packet *p = malloc(sizeof(*p) + len), **at = &w->queue[to];

	if (!p)
		die("malloc");
	p->due_us = now_us() + (int64_t)(ms > 0 ? ms * 1000 : 0);
	p->len = len;
	memcpy(p->bytes, bytes, len);
	while (*at && (*at)->due_us <= p->due_us)
		at = &(*at)->next;
	p->next = *at;
	*at = p;
}

static void take(struct wire *w, int from)
{
	static unsigned char bytes[65536];
	ssize_t n;

	while ((n = read(w->ends[from].fd, bytes, sizeof(bytes))) > 0)
		if (!w->is_cut && drand48() * 100 >= w->loss_pct)
			put(w, 1 - from, bytes, (size_t)n);
}

static void deliver(struct wire *w, int to)
{
	struct packet *p;

	while ((p = w->queue[to]) && p->due_us <= now_us()) {
		w->queue[to] = p->next;
		/* An interface that is down takes nothing: lost, like on any wire. */
		if (!w->is_cut && write(w->ends[to].fd, p->bytes, p->len) < 0 && errno != EIO)
			perror("uwire");
		free(p);
	}
}

/* Until the first packet is due, rounded up. */
static int wait_ms(const struct wire *w)
{
	int64_t least = LOOK_MS;

	for (int i = 0; i < 2; i++) {
		int64_t ms = w->queue[i] ? (w->queue[i]->due_us - now_us() + 999) / 1000 : LOOK_MS;

		least = ms < least ? ms : least;
	}
	return least < 0 ? 0 : (int)least;
}

int main(int argc, char **argv)
{
	struct wire w = {0};
	int64_t read_us = 0;

	if (argc != 6)
		return 2;
	for (int i = 0; i < 2; i++)
		w.ends[i] = (struct pollfd){
			.fd = open_end(argv[1 + 2 * i], argv[2 + 2 * i]), .events = POLLIN};
	srand48(getpid());
	puts("up");
	fflush(stdout);
	for (;;) {
		if (now_us() - read_us > LOOK_MS * 1000) {
			read_control(&w, argv[5]);
			read_us = now_us();
		}
		poll(w.ends, 2, wait_ms(&w));
		for (int i = 0; i < 2; i++)
			take(&w, i);
		for (int i = 0; i < 2; i++)
			deliver(&w, i);
	}
}
