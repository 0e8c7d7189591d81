/*
 * A held link to a node's agent, on libevent's loop. It connects, starts the agent when there's none, says hello, answers
 * nothing by itself but pings, and tells its owner three things: up, message, down. When it goes down it comes back
 * by itself (at once, then 0.1 s, doubling to 5 s), with the next link number in its fence.
 */
#pragma once

#include "base/err.h"
#include "core/attempt.h"

#include <event2/event.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct link;

struct link_hello {
	char root_id[ID_LEN], boot_id[40], machine_key[72], source[16];
	int64_t boot_ms, wall_ms, pid;
};

struct link_owner {
	void *arg;
	void (*up)(void *arg, const struct link_hello *hello);
	void (*message)(void *arg, const char *op, const json_t *msg); /* msg is borrowed */
	void (*down)(void *arg, const char *why);		       /* after up, or when the first try failed */
};

struct link_who {
	const char *who;   /* for the agent's log */
	const char *queue; /* NULL: only watches */
	uint64_t incarnation, epoch;
};

/* Connects to the agent of this machine (agent/root.h says where). Nothing is called before the loop runs. */
struct link *link_new_local(struct event_base *base, const struct link_who *who, const struct link_owner *owner);
/* Takes the reference. Dropped when the link is down (the owner asks again after up). */
void link_send(struct link *l, json_t *msg);
bool link_is_up(const struct link *l);
/* Bytes waiting to be written: 0 when all has left. */
size_t link_unsent(const struct link *l);
void link_free(struct link *l);
