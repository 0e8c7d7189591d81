/* Inside of the fleet: one host, its link, its clock. fleet.c has the list, host.c the states, host_text.c nvidia-smi. */
#pragma once

#include "fleet/fleet.h"
#include "fleet/link.h"
#include "fleet/text_sample.h"

struct ssh_site;

enum { HOST_SIGNALS_MAX = 8 };

struct host {
	struct fleet_host pub; /* first: fleet_at hands it out */
	const struct fleet_options *options;
	const struct fleet_owner *owner;
	size_t index;
	struct link *link; /* NULL: it couldn't even be tried, and no_link says why */
	struct err no_link;
	struct event *timer; /* silence -> SUSPECT -> DOWN */
	struct sample *sample;
	struct sample_base base; /* what this link's samples build on */
	/* Text instead of an agent: */
	bool is_text, is_running;
	char *agent_why; /* why there's no agent */
	unsigned n_failures;
	int64_t agent_again_ms; /* when the agent is tried again */
	struct event *poll;
	uint64_t signals[HOST_SIGNALS_MAX]; /* requests that wait for their answer */
	size_t n_signals;
};

struct host *host_new(struct event_base *base, const struct host_config *config, size_t index,
	const struct fleet_options *o, const struct fleet_owner *owner, struct ssh_site *site,
	const char *no_site);
void host_free(struct host *h);
void host_retry(struct host *h);
/* As fleet_signal. */
int host_signal(struct host *h, uint64_t request, int32_t pid, uint64_t start_ticks, int signo,
	struct err *e);

/* ---- between host.c and host_text.c ---- */

/* A new state with its sentence (NULL: none); tells the owner. */
void host_set(struct host *h, enum host_state state, const char *why);
/* It can't be reached just now: suspect first if it was well, then down. */
void host_lost(struct host *h, enum link_failure kind, const char *why);
/* Takes the sample over (its contents), whatever it came by. is_text: read from nvidia-smi. */
void host_publish(struct host *h, struct sample *s);
void host_text_begin(struct host *h, const char *why);
/* The next sample, if it's still text. */
void host_text_poll(struct host *h);
void host_text_end(struct host *h);
