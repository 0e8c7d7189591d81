/*
 * The options that stand before a command, and what they mean to any of them: which hosts, whose figures, how it's printed.
 * The dispatcher reads them; overview, man page and completion render their table.
 */
#pragma once

#include "cli/command.h"
#include "config/config.h"

struct global_options {
	bool remote, no_remote, once, compact, dcgm, debug, json, plain;
	double timeout_s;
	const char *sim; /* NULL: the machine's own cards */
};

extern const struct option_spec global_specs[];
/* The defaults; also what commands see that were started without the dispatcher. */
void global_defaults(struct global_options *g);
/* For a command: -EINVAL when an option was given that says nothing to it. */
int global_check(const struct global_options *g, const struct command *c, struct err *e);

/* --sim says the same to every command and agent as GPUSTOW_SIM does. `option`: how it was spelled, for the sentence. */
int global_set_sim(const char *spec, const char *option, struct err *e);
/* config.yml of the program's home; its warnings go to standard error. config_done when done, whatever is returned. */
int global_config(const struct program *p, struct config *ret, struct err *e);
/* The configured hosts are to be looked at, too. */
bool global_is_remote(const struct global_options *g, const struct config *c);
