/*
 * A sample on the wire: a snapshot, whose process rows carry the attempt they're charged to, and the agent's ledger
 * beside it. Encoder and decoder of the "sample" message of docs/wire.md; pure.
 */
#pragma once

#include "core/attempt.h"
#include "core/gpu.h"
#include "core/host_figures.h"
#include "core/wire.h"

/* What one live attempt holds or has been promised on one card, whichever queue of this user it belongs to. */
struct ledger_row {
	struct attempt_name name;
	uint32_t card; /* position in the snapshot's cards */
	int64_t declared_mib; /* -1: undeclared, the whole card */
	int64_t budget_mib; /* what it's charged now; the card's total when whole */
	int64_t held_mib; /* measured now */
	int64_t peak_mib; /* highest measured since its start */
	bool is_sampled; /* seen on the card at least once */
	bool has_ended; /* leader ended, leftovers still hold memory */
};

/*
 * The node's own amounts, for whoever counts jobs' declared cores and memory against them. Unlike host_figures they are
 * what this user's agent may use: its CPU affinity, and the limits of its control groups.
 */
struct node_figures {
	char host_name[65];
	int32_t cores; /* usable ones, a quota of CPU time rounded down but at least 1; 0 unknown */
	int64_t mem_total_mib, mem_available_mib; /* -1 unknown */
	int64_t oom_kills; /* the kernel's, of the whole machine since its boot; -1 unknown */
};

struct sample {
	struct gpu_snapshot snap;
	int64_t wall_ms;
	/* Parallel to snap.procs: index into rows + 1 of the attempt the process is charged to; 0: nobody's of ours. */
	uint32_t *proc_row;
	/* Parallel to snap.cards: what other users' agents have promised there beyond what their jobs hold, MiB. */
	int64_t *promised_mib;
	/*
	 * Parallel to snap.cards, or NULL (none anywhere): what lanes keep there for their next ones beyond what their running
	 * ones are charged, MiB. Not free for a newcomer.
	 */
	int64_t *lane_mib;
	struct ledger_row *rows;
	uint32_t n_rows;
	/*
	 * Everything there is goes out: all metrics, instances, host, versions, and the process rows' details. Encoding
	 * with false leaves out what the snapshot may have of these; decoding says which it was.
	 */
	bool with_details;
	/* Besides the details the figures of profiling, and where they come from (snap.profiling). */
	bool with_profiling;
	bool has_host;
	struct host_figures host;
	/* In every sample of an agent, with details or without. */
	bool has_node;
	struct node_figures node;
};

void sample_done(struct sample *s);

/*
 * Most of a card's figures are the same for hours. A watcher that can do with it gets them once, as a "sample-base", and then
 * samples whose cards have only what differs from it. Zeroed: none (key 0).
 */
struct sample_base {
	uint64_t
		key; /* a sample names the one it builds on; never 0, never used twice by one agent */
	uint32_t n_cards;
	struct sample_base_card {
		char uuid[GPU_UUID_LEN];
		struct value m[METRIC_N];
	} * cards; /* n_cards, by position; owned */
};
/* The figures of that moment. */
void sample_base_take(struct sample_base *b, const struct gpu_snapshot *s, uint64_t key);
/* The same cards at the same places, and most figures still the same: worth building on. */
bool sample_base_fits(const struct sample_base *b, const struct gpu_snapshot *s);
json_t *sample_base_encode(const struct sample_base *b);
/* *ret is replaced when it's one. */
int sample_base_decode(const json_t *msg, struct sample_base *ret, struct err *e);
void sample_base_done(struct sample_base *b);
/*
 * A new {"op":"sample",...}; the caller's reference. Texts of process rows have a limit together, so that a sample with
 * details stays below that of a message: rows past it go without.
 */
json_t *sample_encode(const struct sample *s);
/* On a base that fits; with details. */
json_t *sample_encode_on(const struct sample *s, const struct sample_base *b);
int sample_decode(const json_t *msg, struct sample *ret, struct err *e);
/* -EINVAL too when it builds on another base than this one. A whole sample needs none. */
int sample_decode_on(
	const json_t *msg, const struct sample_base *b, struct sample *ret, struct err *e);
