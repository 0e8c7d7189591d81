/*
 * News of the queue's daemon for whoever shows the queue: something has happened, so look again. Where there's no daemon there's
 * none, and it's looked for one now and then.
 */
#pragma once

#include "queue/daemon_client.h"

struct queue_news {
	const char *db_path, *queue; /* the caller's, to outlive it */
	struct daemon_talk talk;
	int64_t try_at_ms; /* BOOTTIME: not sooner */
	int64_t look_at_ms; /* what has happened is to be looked at then; 0: nothing has */
	int64_t free_at_ms; /* no look before that, for one may be dear */
};

void queue_news_init(struct queue_news *n, const char *db_path, const char *queue);
void queue_news_done(struct queue_news *n);
/*
 * Waits until fd is readable, or until something has happened and its time has come; true: that. Connects when it's time.
 * Takes at most DAEMON_HELLO_MS longer than that.
 */
bool queue_news_wait(struct queue_news *n, int fd);
/* It was looked, and that took so long. */
void queue_news_looked(struct queue_news *n, int64_t took_ms);
