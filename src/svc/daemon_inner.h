/*
 * The daemon's state, shared by its files. One struct over one loop.
 *
 *   daemon.c         life, when a pass is made, what follows each
 *   daemon_ask.c     what peers want: a pass, the state, events
 *   daemon_config.c  the configuration's files, watched
 *   daemon_backup.c  backups, in a child
 */
#pragma once

#include "svc/daemon.h"
#include "svc/daemon_server.h"
#include "svc/notify.h"

#include "base/buf.h"
#include "fleet/child.h"

/* Of one file of the configuration, to tell whether it has changed. */
struct file_mark {
	int64_t mtime_ns, size;
	uint64_t ino;
	int error;
};

struct config_watch {
	int fd; /* inotify; -1 */
	struct event *readable, *settle;
	struct queue_config *now; /* the last good one */
	struct queue_config *old[8]; /* that the controller may still use */
	size_t n_old;
	struct file_mark marks[2];
	char *error; /* of what's there now; NULL: it's good */
};

/* Somebody waits for a pass that begins after he asked. */
struct asked {
	struct daemon_peer *peer; /* NULL: he has gone */
	bool has_begun, is_made;
	int64_t begun_ms, until_ms; /* BOOTTIME */
	struct tick_summary sum;
};

struct backup_run {
	struct child *child; /* NULL: none runs */
	json_t *made; /* of the last one, until it's told */
	char *error;
	char *last_error; /* that was said */
	int64_t not_before_ms; /* BOOTTIME */
};

struct daemon {
	struct event_base *base;
	struct store *store;
	const struct daemon_options *o;
	struct controller *controller;
	struct daemon_server *server;
	struct notify *notify;
	struct config_watch config;
	struct backup_run backup;

	struct event *pass, *interval, *lease, *deliver, *look, *watchdog;
	struct event *on_int, *on_term, *on_hup;
	int64_t pass_at_ms; /* BOOTTIME of the wanted pass; INT64_MAX: none is */
	int64_t begun_ms, ended_ms, took_ms; /* of the last pass; BOOTTIME */
	bool is_regular; /* the pass that runs or is wanted is the interval's */
	bool is_ending;

	int64_t since_wall_ms, since_ms, last_wall_ms;
	int64_t n_passes;
	char *last_error;
	char *record_error; /* that somebody has the record's lock, as it was told */
	char *holder; /* who has the lease in our place */
	struct tick_summary sum; /* not told yet */
	int64_t n_notified, last_event, nudged_ms;
	struct asked *asked;
	size_t n_asked, cap_asked;
};

/* ---- daemon.c ---- */

/* A pass in so many ms at the latest; those close together are one. */
void daemon_want(struct daemon *d, int64_t in_ms);
/* Once for each text that isn't the one before; *last is what was said. NULL: it's well again. */
void daemon_complain(struct daemon *d, char **last, const char *what, const char *text);

/* ---- daemon_ask.c ---- */

void daemon_said(void *arg, struct daemon_peer *p, const char *op, const json_t *msg);
void daemon_gone(void *arg, struct daemon_peer *p);
void asked_begun(struct daemon *d);
void asked_happened(struct daemon *d, const struct tick_summary *sum);
/* r < 0: the pass was broken off. */
void asked_passed(struct daemon *d, int r, const char *why);
/* Answers those that have all they wait for. BOOTTIME of the next look; INT64_MAX. */
int64_t asked_look(struct daemon *d);
bool asked_waiting(const struct daemon *d); /* for a pass to begin */
void asked_done(struct daemon *d);
/* New events of the record, to those that watch. */
void daemon_tell_events(struct daemon *d);

/* ---- daemon_config.c ---- */

int config_watch_begin(struct daemon *d, struct err *e);
/* Reads the files if they aren't what they were; always: in any case. */
void config_watch_look(struct daemon *d, bool always);
void config_watch_sweep(struct daemon *d); /* what the controller doesn't use any more */
void config_watch_done(struct daemon *d);

/* ---- daemon_backup.c ---- */

void backup_turn(struct daemon *d); /* begins one that's due */
void backup_end(struct daemon *d);
