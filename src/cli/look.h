/*
 * Looking at hosts for a command that ends: the fleet, its loop, the person who may be asked, and a limit on time. All hosts
 * at the same time; none waits for another.
 */
#pragma once

#include "cli/ask.h"
#include "cli/global.h"
#include "fleet/fleet.h"
#include "show/once.h"

#include <event2/event.h>

struct look_wish {
	bool local; /* this machine */
	bool remote; /* those of config.yml */
	const char *only; /* "local", or one nickname of config.yml, and then nothing else; NULL */
	int64_t interval_ms; /* of samples; 0: one of each host and no more */
	bool details;
	bool profiling; /* with details, and at an interval: figures of profiling too */
};

struct look {
	struct config config;
	char home[4096]; /* HOSTS_PATH */
	struct event_base *base;
	struct event *timer, *interrupts[2];
	struct fleet *fleet;
	struct ask *ask; /* NULL: nobody can be asked */
	bool (*is_done)(struct look *h, void *arg);
	void *arg;
	int64_t begun_ms, limit_ms;
	int signal_no; /* that ended the loop; 0 */
	bool is_over; /* the time was */
};

/*
 * config: what was read already, and is moved out of there; NULL: config.yml is read (and must be right) only where hosts
 * of it are asked for. Must not move until look_close, which is due whatever is returned.
 */
int look_open(struct look *h, const struct program *p, const struct look_wish *w,
	struct config *config, struct err *e);
/*
 * Until is_done says so (asked whenever something has changed, and at least every 100 ms) or limit_ms have passed (0: no
 * limit). Time that a person takes to answer doesn't count. is_over and signal_no say how it ended.
 */
void look_run(
	struct look *h, int64_t limit_ms, bool (*is_done)(struct look *h, void *arg), void *arg);
void look_close(struct look *h);

/* What was asked of it was answered: figures, or that it has none to give. */
bool look_has_answered(const struct fleet_host *h);
/* It has answered, or won't within this look: it's down, or wants a person. */
bool look_is_settled(const struct fleet_host *h);
/* The figures of profiling that were wanted are there, or won't come within this look: it's known why, or they took too long. */
bool look_is_profiled(const struct fleet_host *h);
/* "alice@gpu1:22"; NULL for this machine. The caller frees. */
char *look_address(const struct fleet_host *h);
