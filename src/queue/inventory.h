/*
 * What the queue remembers of a node's last sample: cards, who holds what there, what's promised, the node's own amounts.
 * It's kept with the node's row (store_node.inventory) as JSON, so that whoever opens the store sees what the last pass saw,
 * and a node that is away keeps its cards. A value; pure. MiB; -1: unknown, absent.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "core/job.h"
#include "core/sample.h"

#define INVENTORY_CHARGES_MAX 4096
#define INVENTORY_PROCS_MAX 16 /* kept per card, largest first; n_procs counts all */

struct inv_proc {
	int64_t pid, mem_mib;
	char *name, *user; /* cleaned, bounded */
	char kind; /* 'C' compute, 'G' graphics, 'M' MPS */
	bool is_managed; /* an attempt's, of this or another queue of this user */
	int64_t job; /* of this queue; 0: not one */
};

struct inv_card {
	char uuid[GPU_UUID_LEN], parent[GPU_UUID_LEN]; /* parent: "" for a whole card */
	int32_t index;
	int32_t gi, ci; /* of a MIG instance; -1 */
	char *name;
	char *profile; /* of a MIG instance, else NULL */
	bool is_present; /* in the last sample, answering */
	bool is_mig_parent; /* shown, never placed on */
	bool needs_reset; /* the driver asks for it: nothing is placed on it */
	bool is_blind;
	enum gpu_state state;
	int64_t total_mib, used_mib, util_pct, mem_util_pct, temperature_c;
	int64_t external_mib, external_procs; /* processes that aren't any attempt's of this user */
	int64_t external_computing; /* of these, those that compute (a screen's server doesn't) */
	int64_t promised_mib; /* other users' agents, beyond what their jobs hold */
	/* What lanes of this user's other queues keep for their next ones, beyond what their running ones are charged. */
	int64_t others_lanes_mib;
	int32_t numa;
	uint64_t nvlink_peers; /* positions here */
	int64_t xid, xid_ms; /* the last one and when (wall clock); 0 none */
	struct inv_proc *procs;
	size_t n_procs, n_procs_kept;
};

/* What an attempt is charged on a card: the agent's ledger at that moment, all queues of this user. */
struct inv_charge {
	struct attempt_name name;
	uint32_t card; /* position */
	int64_t declared_mib; /* -1: the whole card */
	int64_t budget_mib, held_mib, peak_mib;
	bool is_sampled, has_ended;
};

struct inventory {
	struct inv_card *cards;
	size_t n_cards;
	struct inv_charge *charges;
	size_t n_charges;
	int64_t sampled_wall_ms; /* by the node's clock, corrected to ours */
	char *source; /* "nvml", "nvidia-smi", "sim", "none" */
	char *error; /* why the back end couldn't ask; NULL: it could */
	int64_t cores; /* the node's own that this user may use; 0 unknown */
	int64_t mem_total_mib, mem_available_mib;
	char *host_name;
};

/*
 * Takes in a sample. A card that was known and is missing now stays, with is_present false (absence isn't evidence); known:
 * the inventory before, or NULL. A sample with an error keeps the known cards and says the error.
 */
void inventory_take(const struct sample *s, const struct inventory *known, const char *queue,
	int64_t clock_offset_ms, struct inventory *ret);
char *inventory_encode(const struct inventory *v); /* to free */
int inventory_decode(const char *json, struct inventory *ret, struct err *e); /* NULL: empty */
void inventory_done(struct inventory *v);
/*
 * Is what a plan is made from the same? Figures that only people look at (utilization, temperature, when it was), and a change
 * of less than 64 MiB in what the node has free, make no difference.
 */
bool inventory_same_for_plan(const struct inventory *a, const struct inventory *b);
/* "0", "0:1": what people call it. */
void inv_card_label(const struct inv_card *c, char ret[GPU_LABEL_LEN]);
/* The same XID, of about the same moment: it's told on the node's clock, whose offset is only measured. */
bool inv_same_xid(const struct inv_card *a, const struct inv_card *b);
/* Position by UUID, or by what people type ("0", "0:1" for instance 1 of card 0, a UUID or its unique start of 8 characters or more); -1. */
int inventory_find(const struct inventory *v, const char *word);
