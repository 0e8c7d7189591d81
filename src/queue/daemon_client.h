/*
 * Talking to the daemon of a queue: how it's found by its socket, and lines of JSON with an answer that has its time. The
 * socket lies beside the database ("queue.sock" for queue.db), so whoever names the queue finds its daemon; for a database on
 * a network file system, where only its own machine may write and where there may be no sockets, in /var/tmp. docs/daemon.md
 * has the words.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/un.h>

#define DAEMON_LINE_MAX (8 * 1024 * 1024)
#define DAEMON_HELLO_MS 1000 /* who hasn't greeted by then isn't waited for */

/*
 * Its address; where the path is too long for one, it goes by way of the directory, which *ret_dir holds open for it (else
 * -1; close it when connected or bound).
 */
int daemon_address(const char *db_path, struct sockaddr_un *ret, int *ret_dir, struct err *e);
/* "<...>/queue.sock", or "/var/tmp/gpustow-UID/queue-<hash of the path>.sock"; to free. Makes nothing. */
char *daemon_socket_path(const char *db_path);
/*
 * The place in /var/tmp is nobody's home, so what killed daemons left there is tidied by whoever comes by: those of its
 * sockets that are this account's, older than a minute, and have nobody who listens. A daemon that lives is never taken for
 * one of these: between making its socket and listening there's no minute, and from then on it doesn't refuse.
 */
void daemon_sweep(const char *dir);

struct daemon_talk {
	int fd; /* -1: not open; for poll */
	struct buf in;
	int64_t pid;
};
/*
 * 0: a daemon of this account that serves the queue `queue` has greeted us. -ENOENT: none answers within DAEMON_HELLO_MS, no
 * sentence.
 */
int daemon_talk_open(struct daemon_talk *t, const char *db_path, const char *queue);
int daemon_talk_say(struct daemon_talk *t, json_t *msg); /* takes msg */
/* 1: *ret is the next message, to free. 0: none within wait_ms. Negative: it's gone, or talks nonsense. */
int daemon_talk_hear(struct daemon_talk *t, int64_t wait_ms, json_t **ret);
void daemon_talk_done(struct daemon_talk *t);
/*
 * For whoever wants to be woken: opened, and asked to tell what happens. 0, or -ENOENT as daemon_talk_open. All that it has said
 * by the time it's asked is one thing: true, look again. One that has gone is closed (fd -1), and what it did last is to be
 * seen, too. Without a daemon (fd -1): false.
 */
int daemon_bell_open(struct daemon_talk *t, const char *db_path, const char *queue);
bool daemon_bell_rang(struct daemon_talk *t);
/* Its live state (docs/daemon.md); NULL: there's no daemon. */
json_t *daemon_state(const char *db_path, const char *queue);
