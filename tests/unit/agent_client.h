/*
 * For tests: an agent of one's own, forked from the test on a temporary root with simulated cards, and a client that
 * speaks the wire with it. Everything waits for a message with a deadline, never for a time.
 */
#pragma once

#include "agent/sampler.h"
#include "base/buf.h"
#include "core/attempt.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct test_agent {
	char dir[64]; /* temporary, removed at the end */
	char root[96]; /* the agent's */
	char sim[96]; /* where simulated jobs say what they hold */
	char promise[96]; /* where agents say what they promised; open to all users */
	sampler_open_fn *open_gpu; /* NULL: simulated cards */
	const char *agent_exe; /* what a shim starts when it finds no agent; NULL: nothing */
	int64_t idle_ms; /* 0: a minute */
	pid_t pid; /* 0: none runs */
};

/* Makes the directories and sets GPUSTOW_SIM (`cards`), GPUSTOW_SIM_DIR and GPUSTOW_PROMISE_DIR. Starts nothing. */
void test_agent_init(struct test_agent *t, const char *cards);
/* Forks an agent and waits until it listens. */
void test_agent_start(struct test_agent *t);
/* Ends it with that signal and reaps it; returns its wait status. */
int test_agent_end(struct test_agent *t, int sig);
void test_agent_done(struct test_agent *t);
/* Waits for a child of the agent's of that name that was stopped (a fault point's ":stop"), and for it to be there no more. */
pid_t test_agent_stopped_child(const struct test_agent *t, const char *comm);
void test_agent_wait_gone(pid_t pid);

#define AGENT_CLIENT_STREAMS 32

struct agent_client {
	int fd;
	struct buf in;
	/* What came of each stream, in order. */
	struct {
		uint64_t id;
		struct buf bytes;
	} streams[AGENT_CLIENT_STREAMS];
	size_t n_streams;
	bool gives_credit; /* for whatever comes */
	json_t *kept; /* messages that were read while another was waited for */
	bool has_end; /* the agent closed */
	char root_id[ID_LEN];
};

/* Connects to the agent whose pid is t->pid; waits for its socket for 20 s. */
void agent_client_connect(struct agent_client *c, const struct test_agent *t);
void agent_client_close(struct agent_client *c);
/* Takes the reference. */
void agent_client_send(struct agent_client *c, json_t *msg);
void agent_client_send_bulk(struct agent_client *c, uint64_t stream, const void *bytes, size_t n);
/* What has come of a stream; an empty one when nothing has. */
struct buf *agent_client_stream(struct agent_client *c, uint64_t id);
/* Reads until so much of it has come, or fails the test after 20 s; or for at most ms: false when it didn't come. */
void agent_client_expect_bytes(struct agent_client *c, uint64_t id, size_t n);
bool agent_client_has_bytes(struct agent_client *c, uint64_t id, size_t n, int ms);
/* hello of a controller (queue not NULL) and its answer, which fills root_id. False when it was answered `stale`. */
bool agent_client_hello(struct agent_client *c, const char *queue, int64_t incarnation,
	int64_t epoch, int64_t link);
/* The next message with that op, the others kept for later; NULL when none comes within ms. The caller's reference. */
json_t *agent_client_next(struct agent_client *c, const char *op, int ms);
/* The same, but for one job; fails the test when it doesn't come within 20 s. */
json_t *agent_client_expect(struct agent_client *c, const char *op, int64_t job);
/* True once the agent has closed the link, within ms. */
bool agent_client_is_closed(struct agent_client *c, int ms);

/* A job for "launch": "/bin/sh -c script", on card `card` of the agent's (-1: none) with that much declared. */
json_t *agent_client_job(const struct test_agent *t, int64_t job, const char *token,
	const char *script, int card, int64_t declared_mib);
/* Launches one job. Takes the reference. */
void agent_client_launch(struct agent_client *c, json_t *job);
