/*
 * The agent: one struct that everything hangs from, and its loop. command.c decides what a message means, launch.c who
 * may start, attempts.c what a claim is worth; the loop only brings them together.
 */
#pragma once

#include "agent/account.h"
#include "agent/attempts.h"
#include "agent/client.h"
#include "agent/files.h"
#include "agent/fence.h"
#include "agent/launch.h"
#include "agent/ledger.h"
#include "agent/profiler.h"
#include "agent/promise.h"
#include "agent/root.h"
#include "agent/sampler.h"
#include "base/sys.h"
#include "proc/host.h"
#include "proc/node.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How samples are made for those who watch. */
enum frame_kind {
	FRAME_PLAIN,
	FRAME_DETAILS,
	FRAME_PROFILING,
	FRAME_DETAILS_ON_BASE,
	FRAME_PROFILING_ON_BASE,
	FRAME_N
};

struct agent {
	struct root root;
	char machine_key[65];
	int64_t now_ms; /* read once a turn */
	int lock_fd, listen_fd, bell_fd, signal_fd;
	struct sys_stat
		socket_id; /* of the socket's name: another one there means that we're forgotten */
	struct attempts attempts;
	struct fences fences;
	struct retired_index *retired;
	struct ledger *ledger;
	struct promise *promise;
	struct sampler *sampler;
	struct profiler *profiler;
	struct launch launch;
	struct chores *chores;
	struct removal *removals; /* of job directories, under way (job_remove.c) */
	bool is_restless; /* something came of the end of this turn: the next one is due at once */
	struct lanes *lanes;
	struct lane_drafts *lane_drafts; /* documents of which more is to come (lane_command.c) */
	struct files *files;
	struct client **clients; /* owned */
	size_t n_clients, cap_clients;
	uint64_t last_client;
	bool promises_are_old; /* charges may have changed since they were published */
	int64_t retire_at_ms; /* 0: nothing waits to be retired */
	size_t n_retiring; /* about how many wait for it */
	int64_t look_at_ms, socket_at_ms, turn_ms; /* turn_ms: when the last turn began */
	int64_t idle_since_ms, idle_ms;
	const char *leaving; /* the reason of "bye"; NULL: staying */
	/* The last sample as a frame of each kind, and its number. */
	struct buf frame[FRAME_N];
	uint64_t frame_number[FRAME_N];
	uint64_t frame_changes[FRAME_N]; /* what ledger_changes said then */
	struct sample_base base; /* what frames build on, and itself as a frame */
	struct buf base_frame;
	uint64_t last_base;
	struct host_reader host;
	struct node_reader node;
	bool is_on_battery; /* when the machine's figures were last read */
	size_t n_compacted; /* retired lines when they were last looked through */
	struct account account; /* asked of passwd with the first job of a queue */
	json_t *sim_vars; /* variables that every job gets under simulated cards; NULL: not asked yet */
};

/* How a new agent is set up; zeroed is what the program uses. */
struct agent_options {
	sampler_open_fn *open_gpu;
	const char *promise_dir;
	const char *agent_exe; /* what a shim starts when it finds no agent; NULL: nothing */
	int64_t idle_ms; /* 0: $GPUSTOW_AGENT_IDLE, else 60 s */
};

/*
 * Takes the root and its lock, binds the sockets, loads the claims. -EAGAIN: another agent has the lock (no sentence).
 * The struct must not move afterwards.
 */
int agent_init(
	struct agent *a, const char *root_path, const struct agent_options *o, struct err *e);
/* Serves until it's idle, asked to yield or told to stop. */
int agent_run(struct agent *a, struct err *e);
void agent_done(struct agent *a);

struct client *agent_find_client(const struct agent *a, uint64_t id);
/* The link that commands this queue; NULL without. */
struct client *agent_commander(const struct agent *a, const char *queue);
/* The account as passwd has it; asked once, for the directory behind it may be slow. */
const struct account *agent_account(struct agent *a);
/* A sample as soon as there's a new one; returns the request's number. */
uint64_t agent_ask_sample(struct agent *a);
/* An attempt changed (attempts.h); arg is the agent. */
void agent_attempt_changed(void *arg, struct attempt *at);
/* Retires what is over: soon and together, or at once. */
void agent_retire_soon(struct agent *a, size_t n);
void agent_retire(struct agent *a);
/* Shortens old retired lines, when there are many. */
void agent_compact(struct agent *a);
/* One line into the root's log, bounded. */
void agent_log(struct agent *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
