/*
 * What the fake NVML library pretends: a scenario file (grammar in README.md), read again whenever it changes, and the
 * files of simulated jobs. Knows nothing of NVML's interface.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define FAKE_CARDS 64
#define FAKE_PROCS 512
#define FAKE_RULES 64
#define FAKE_INSTANCES 8
#define FAKE_FIELDS 256
#define FAKE_XIDS 64
#define FAKE_USES 512

enum { FAKE_C = 1, FAKE_G = 2, FAKE_M = 4 };

/* Counters of a card: shares from 0 to 1, bytes a second; below 0: not had. */
#define FAKE_COUNTERS 12
struct fake_counters {
	bool is_there; /* the card can be profiled by this way */
	double v[FAKE_COUNTERS]; /* in the order of fake_counter_names */
};

struct fake_card {
	char uuid[96], name[96], bus[32];
	int64_t memory, reserved, used; /* MiB */
	int64_t arch, enc, dec, jpg, ofa, graphics, video, slowdown, shutdown, gen, width, genmax,
		widthmax, replays, mask, ecc, bar1, bar1used, persistence, computemode, migpending;
	int64_t util, memutil, temp, power, limit, fan, sm, mem, throttle, pstate, mig, numa,
		recovery;
	bool is_unified, is_blind, is_switched;
	int64_t lost_from, lost_to; /* ms after the file was read; lost_from < 0: never */
	bool has_instance[FAKE_INSTANCES];
	uint64_t links; /* bit i: NVLink to card i */
	struct fake_counters gpm, dcgm, part[FAKE_INSTANCES]; /* part: GPM of an instance */
};

struct fake_proc {
	int card, kind, gi;
	int64_t pid, used; /* used < 0: all ones */
};

/* A field value: value + rate a second since the file was read, or a code of its own. */
struct fake_field {
	int card, code;
	int64_t id, value, rate, type;
	int64_t link; /* -1: whatever the scope is */
};

struct fake_xid {
	int card;
	int64_t xid, after;
	bool is_told;
};

/* A sample of the use of a card by a process; its stamp is the file's reading + after. */
struct fake_use {
	int card;
	int64_t pid, sm, mem, enc, dec, after;
};

enum fake_act { FAKE_ERR, FAKE_HANG, FAKE_SLOW, FAKE_CRASH };

extern const char *const fake_counter_names[FAKE_COUNTERS];

struct fake_rule {
	enum fake_act act;
	char call[64];
	int card; /* -1: any */
	bool is_parent_only; /* not on a MIG instance */
	int64_t value;
	int64_t after, until; /* ms after the file was read */
};

struct fake_scenario {
	char driver[80], nvml[80];
	int n_cards, n_procs, n_rules, n_fields, n_xids, n_uses;
	bool allows_profiling; /* there's a line about it: somebody may ask */
	bool has_engine; /* a DCGM host engine runs */
	int64_t dcgm_id; /* DCGM's number of card 0; the others follow */
	int64_t dcgm_after; /* figures come so long after the file was read */
	int64_t garbage; /* rows of garbage behind the samples of use */
	int64_t element; /* bytes of a _v3 process element; 0: the library's own */
	struct fake_card cards[FAKE_CARDS];
	struct fake_proc procs[FAKE_PROCS];
	struct fake_rule rules[FAKE_RULES];
	struct fake_field fields[FAKE_FIELDS];
	struct fake_xid xids[FAKE_XIDS];
	struct fake_use uses[FAKE_USES];
};

int64_t fake_now_ms(void); /* since the scenario was read */
int64_t fake_read_wall_us(void); /* when it was read */
/* The scenario as it is now; looks at the file's change each time. Ends the program with a message on a bad line. */
struct fake_scenario *fake_scenario(void);
#define FAKE_UUID_LEN 64
/* The UUID of the MIG device at that index of that card. */
void fake_mig_uuid(int card, int instance, char ret[FAKE_UUID_LEN]);
/* Adds what simulated jobs hold on that card and its instances to out (room for max); returns how many. */
int fake_sim_procs(int card, const struct fake_card *c, struct fake_proc *out, int max);
