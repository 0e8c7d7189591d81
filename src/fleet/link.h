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

/* What `down` is told when a controller with a higher fence, or another link of this one, commands the queue there. */
#define LINK_STALE "another scheduler commands this queue now"

struct link_owner {
	void *arg;
	void (*up)(void *arg, const struct link_hello *hello);
	void (*message)(void *arg, const char *op, const json_t *msg); /* msg is borrowed */
	void (*down)(void *arg, const char *why); /* after up, or when the first try failed */
};

struct link_who {
	const char *who; /* for the agent's log */
	const char *queue; /* NULL: only watches */
	uint64_t incarnation, epoch;
	uint64_t
		number; /* of links of this epoch that there were before: its own numbers begin behind it */
};

/*
 * Over the user's own OpenSSH client, as a child with a shared master (reference: docs/ssh.md). The boot line finds or
 * carries the agent over the channel; `down` then says in words which step failed, and link_failure which kind it was.
 */
struct host_config;
struct link_ssh_options {
	const char *home; /* control sockets below it */
	bool can_ask; /* else BatchMode */
	struct ssh_site *
		site; /* shared by the links of one program (ssh_site.h); NULL: the link makes one of its own */
	/* ssh asks something (password, passphrase, host key); answer with link_answer. NULL with can_ask false. arg is the owner's. */
	void (*asks)(void *arg, uint64_t question, const char *prompt, bool is_secret);
};
/* NULL with a sentence when there's no place for its sockets. host must outlive the link. */
struct link *link_new_ssh(struct event_base *base, const struct host_config *host,
	const struct link_ssh_options *o, const struct link_who *who,
	const struct link_owner *owner, struct err *e);
void link_answer(struct link *l, uint64_t question, const char *answer); /* NULL: refused */

enum link_failure {
	LINK_FAIL_NONE,
	LINK_FAIL_NET, /* refused, unreachable, timed out, lost: tried again */
	LINK_FAIL_AUTH, /* permission denied, or a secret nobody could give: waits for a person */
	LINK_FAIL_HOST_KEY, /* unknown or changed */
	LINK_FAIL_AGENT, /* the agent can't run there (another processor or libc, no executable place): read text instead */
	LINK_FAIL_SHELL, /* the login shell never came to our line */
};
enum link_failure link_failure(
	const struct link *l); /* of the last down, or of the last link_run_text */
/* When the node's shell first spoke to us in this connection, and what it was found to be; -1 and "" before that. */
struct link_ssh_steps {
	int64_t connected_at_ms; /* BOOTTIME */
	bool was_uploaded;
	char cpu[32];
};
void link_ssh_steps(const struct link *l, struct link_ssh_steps *ret);
/*
 * Runs one command (sh, without ' \ ! and newline) on the same connection, for the text fallback: bounded output,
 * bounded time. status: its exit code, or -1 when it didn't come to that; then err_text says why and link_failure tells the
 * kind. It may be called while the link is down. Nothing comes after link_free.
 */
void link_run_text(struct link *l, const char *command, int64_t limit_ms, size_t max_bytes,
	void (*done)(void *arg, int status, const char *out, size_t n, const char *err_text),
	void *arg);

/* Connects to the agent of this machine (agent/root.h says where). Nothing is called before the loop runs. */
struct link *link_new_local(
	struct event_base *base, const struct link_who *who, const struct link_owner *owner);
/* Takes the reference. Dropped when the link is down (the owner asks again after up). */
void link_send(struct link *l, json_t *msg);
/* While it's held, what is sent waits, and then leaves as one: the agent takes it in one turn. Only within one turn of the loop. */
void link_hold(struct link *l, bool is_held);
/* A piece of a stream (stream.h), at most WIRE_BULK_MAX bytes. Dropped when the link is down. */
void link_send_bulk(struct link *l, uint64_t stream, const void *bytes, size_t n);
bool link_is_up(const struct link *l);
/* After LINK_STALE: incarnation and epoch of the one that commands there; 0 unknown. */
void link_stale_fence(const struct link *l, uint64_t ret[2]);
/* Of the last hello or ping; -1 before the first. */
int64_t link_rtt_ms(const struct link *l);
/* Tries again now, also where it wouldn't by itself (LINK_FAIL_AUTH and its like); nothing unless it's down. */
void link_retry(struct link *l);
/* Bytes waiting to be written: 0 when all has left. */
size_t link_unsent(const struct link *l);
void link_free(struct link *l);
