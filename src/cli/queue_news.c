/* The daemon's events as a bell: see queue_news.h. */
#include "cli/queue_news.h"

#include "base/clock.h"

#include <poll.h>

enum {
	TRY_MS = 3000,
	SLOW_TRY_MS = 60000, /* after one that didn't greet in time */
	GATHER_MS = 50, /* what happens together is one look */
	PAUSE_MIN_MS = 200
};

void queue_news_init(struct queue_news *n, const char *db_path, const char *queue)
{
	*n = (struct queue_news){.db_path = db_path, .queue = queue, .talk.fd = -1};
}

void queue_news_done(struct queue_news *n)
{
	daemon_talk_done(&n->talk);
}

/* A daemon that comes may have done something already. */
static void look_soon(struct queue_news *n, int64_t now_ms)
{
	int64_t at_ms = now_ms + GATHER_MS;

	if (!n->look_at_ms)
		n->look_at_ms = at_ms > n->free_at_ms ? at_ms : n->free_at_ms;
}

static void connect_to(struct queue_news *n)
{
	int64_t begun_ms = clock_boot_ms();

	if (n->talk.fd >= 0 || !n->queue || begun_ms < n->try_at_ms)
		return;
	if (!daemon_bell_open(&n->talk, n->db_path, n->queue))
		look_soon(n, begun_ms);
	n->try_at_ms = clock_boot_ms() +
		       (clock_boot_ms() - begun_ms > DAEMON_HELLO_MS / 2 ? SLOW_TRY_MS : TRY_MS);
}

static int wait_ms(const struct queue_news *n, int64_t now_ms)
{
	int64_t at = n->look_at_ms;

	if (n->talk.fd < 0 && n->queue && (!at || n->try_at_ms < at))
		at = n->try_at_ms;
	return !at ? -1 : at <= now_ms ? 0 : (int)(at - now_ms);
}

bool queue_news_wait(struct queue_news *n, int fd)
{
	for (;;) {
		struct pollfd p[] = {{.fd = fd, .events = POLLIN}, {.events = POLLIN}};
		int64_t now_ms;

		connect_to(n);
		now_ms = clock_boot_ms();
		p[1].fd = n->talk.fd;
		if (poll(p, 2, wait_ms(n, now_ms)) > 0 && p[1].revents &&
			daemon_bell_rang(&n->talk))
			look_soon(n, clock_boot_ms());
		/* A wish goes before news: its answer has the news in it. */
		if (p[0].revents)
			return false;
		if (n->look_at_ms && clock_boot_ms() >= n->look_at_ms)
			return true;
	}
}

void queue_news_looked(struct queue_news *n, int64_t took_ms)
{
	n->look_at_ms = 0;
	/* A fifth of the time at most is spent on looks. */
	n->free_at_ms = clock_boot_ms() + (took_ms * 4 > PAUSE_MIN_MS ? took_ms * 4 : PAUSE_MIN_MS);
}
