/*
 * The queue's daemon: holds the lease and the nodes' links, makes a pass whenever something has happened (and each interval),
 * delivers alerts, makes backups, answers at its socket, and goes on whatever fails on the way. docs/daemon.md.
 */
#pragma once

#include "config/queue.h"
#include "queue/controller.h"
#include "store/store.h"

#define DAEMON_INTERVAL_MIN_MS 2000

struct daemon_options {
	const char *home; /* control sockets, alerts.log */
	const char *program; /* what messages call us */
	int64_t interval_ms; /* 15 s; DAEMON_INTERVAL_MIN_MS at least */
	bool notify, backup;
	bool is_once; /* one pass and what follows it, then the end */
	void *arg;
	/* Reads the configuration anew. Called at the start, at SIGHUP, and when one of the files has changed. */
	int (*load)(void *arg, struct queue_config *ret, struct err *e);
	/* After each pass: what happened since the last call. is_regular: the interval's, or one that somebody asked for. */
	void (*passed)(void *arg, const struct tick_summary *sum, int64_t n_notified,
		const json_t *backup, const char *backup_error, bool is_regular);
	/* A sentence for the log: once for each failure that goes on. */
	void (*says)(void *arg, const char *text);
};

/* Until SIGTERM or SIGINT: 0. -EBUSY: somebody decides for this queue already, named. Jobs go on when it ends. */
int daemon_run(struct store *s, const struct daemon_options *o, struct err *e);
