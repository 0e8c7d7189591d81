/*
 * All hosts as one picture: a link to each, its state, its latest sample. The local machine is just another host. Samples
 * are immutable once published: a reader may keep the pointer until the next turn of the loop, or copy.
 *
 *   CONNECTING --hello--> UP --no answer for two intervals or a lost link--> SUSPECT --8 s more--> DOWN
 *        ^                 ^----------------any sample--------------------------'                   |
 *        `----------------------- 2, 5, 10, then 15 s (own clock for each host) --------------------'
 *   AUTH: wants a person (a password, an unknown or changed host key); never retried by itself.
 *   TEXT: the agent can't run there; nvidia-smi's text is read instead (samples without processes' details).
 *   NONE: answers, but has no GPU and no driver: a state, not an error.
 */
#pragma once

#include "base/err.h"
#include "config/config.h"
#include "core/sample.h"

#include <event2/event.h>
#include <stdbool.h>

enum host_state {
	HOST_CONNECTING,
	HOST_UP,
	HOST_TEXT,
	HOST_NONE,
	HOST_SUSPECT,
	HOST_DOWN,
	HOST_AUTH
};
const char *host_state_name(enum host_state s); /* "up", "down", ... */

struct fleet_host {
	const struct host_config *config; /* NULL: this machine */
	const char *name; /* "local", or the nickname */
	enum host_state state;
	char why[512]; /* the sentence behind any state but UP; "" */
	const struct sample *
		sample; /* the latest; NULL before the first. Kept while the host is down (stale) */
	int64_t sample_at_ms; /* our BOOTTIME when it arrived */
	int64_t rtt_ms; /* of the last exchange; -1 unknown */
	int64_t clock_offset_ms; /* its wall clock less ours, half the round trip allowed for */
	int64_t started_ms; /* our BOOTTIME when it was added */
	/* --debug: when each step was done, ms after the start; -1: not yet */
	int64_t connected_ms, hello_ms, first_sample_ms;
};

struct fleet_options {
	int64_t interval_ms; /* of samples; 0: one and no more (--once) */
	bool can_ask; /* a person is at the terminal: passwords and host keys may be asked for */
	bool details; /* ask for processes' details and host figures too */
	bool profiling; /* and for figures of profiling; only with details and an interval */
	bool may_slow; /* nobody asked for this interval: a machine on battery may take twice as long */
	const char *home; /* control sockets lie below it */
};

struct fleet;
struct fleet_owner {
	void *arg;
	void (*changed)(void *arg, const struct fleet_host *h); /* state, sample or both */
	/* Somebody has to answer; the answer (NULL: refused) comes by fleet_answer. prompt is ssh's own text. NULL: nobody can. */
	void (*asks)(void *arg, const struct fleet_host *h, uint64_t question, const char *prompt,
		bool is_secret);
	/* What came of fleet_signal; why NULL: it was sent. NULL: nobody wants to know. */
	void (*signalled)(void *arg, const struct fleet_host *h, uint64_t request, const char *why);
};

struct fleet *fleet_new(
	struct event_base *base, const struct fleet_options *o, const struct fleet_owner *owner);
/* is_local: this machine. config must outlive the fleet. */
void fleet_add(struct fleet *f, const struct host_config *config);
size_t fleet_count(const struct fleet *f);
const struct fleet_host *fleet_at(const struct fleet *f, size_t i);
void fleet_answer(struct fleet *f, uint64_t question, const char *answer);
/*
 * A signal (SIGINT, SIGTERM, SIGKILL) to exactly that process on host i; `request` comes back with the answer. -ENOTCONN with a sentence
 * when the host isn't there or has no agent: then nothing was sent and no answer comes. A link that's lost before the
 * answer answers too.
 */
int fleet_signal(struct fleet *f, size_t i, uint64_t request, int32_t pid, uint64_t start_ticks,
	int signo, struct err *e);
/* "alice@gpu1:22"; NULL for this machine. The caller frees. */
char *fleet_address(const struct fleet_host *h);
/* What was asked of it was answered: figures, or that it has none to give. */
bool fleet_has_answered(const struct fleet_host *h);
/* A person wants it tried now: the only way out of AUTH, and a shorter one out of DOWN. */
void fleet_retry(struct fleet *f, size_t i);
/* Not from within a callback. */
void fleet_free(struct fleet *f);
