/*
 * The daemon's socket: lines of JSON from programs of this account (queue/daemon_client.h is their side). It knows no word
 * but the greeting; its owner does. Bounded: connections, a line, what isn't read.
 */
#pragma once

#include "base/err.h"

#include <event2/event.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct daemon_server;
struct daemon_peer;

struct daemon_server_owner {
	void *arg;
	void (*said)(void *arg, struct daemon_peer *p, const char *op, const json_t *msg);
	void (*gone)(void *arg, struct daemon_peer *p); /* don't use it any more */
};

/* -EBUSY: a daemon of that queue answers already. */
int daemon_server_look(const char *db_path, const char *queue, struct err *e);
/* What a dead one left is replaced, so be sure of the lease first. */
int daemon_server_new(struct event_base *base, const char *db_path, const char *queue,
	const struct daemon_server_owner *owner, struct daemon_server **ret, struct err *e);
/* Is the socket under its name still ours? Else it's made anew. */
int daemon_server_check(struct daemon_server *s, struct err *e);
/* Takes msg. A peer that doesn't read is dropped once too much waits for it. */
void daemon_peer_say(struct daemon_peer *p, json_t *msg);
bool *daemon_peer_watches(struct daemon_peer *p); /* the owner's own mark; false at first */
/* To all that watch; takes msg. */
void daemon_server_tell(struct daemon_server *s, json_t *msg);
size_t daemon_server_watchers(const struct daemon_server *s);
/* The socket's file goes too, if it's still ours. */
void daemon_server_free(struct daemon_server *s);
