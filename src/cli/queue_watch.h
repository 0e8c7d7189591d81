/*
 * What a command that goes on waits for: the daemon's word that something has happened; without a daemon, or beside it, that
 * somebody has written to the record; a signal; a reader of our output that has gone. It decides nothing.
 */
#pragma once

#include "cli/queue_common.h"
#include "queue/daemon_client.h"

#include <signal.h>

/* The daemon that tells when something has happened; t->fd -1: there's none. */
void queue_find_daemon(struct queue *q, struct daemon_talk *t);

enum queue_woke {
	QUEUE_WOKE_NEWS, /* look at the record again */
	QUEUE_WOKE_SIGNAL, /* SIGINT, SIGTERM or SIGHUP: signal_no */
	QUEUE_WOKE_NO_READER, /* nobody reads standard output any more */
};
struct queue_watch {
	struct queue *q;
	struct daemon_talk talk;
	int64_t find_at_ms, version;
	int signal_fd, signal_no;
	sigset_t before;
};
/* From here on nothing is missed. Those signals are blocked until queue_watch_done. */
int queue_watch_begin(struct queue_watch *w, struct queue *q, struct err *e);
/* Waits as long as it takes. Negative: the record can't be read. */
int queue_watch_sleep(struct queue_watch *w, enum queue_woke *ret, struct err *e);
void queue_watch_done(struct queue_watch *w);
