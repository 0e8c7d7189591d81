/*
 * Commands of a queue that lies on another machine (queue.yml `remote:`): what of this machine they need (files, exported
 * variables, the home of --workdir, the submitter) is taken here, the rest of their words goes there as it is. Options are
 * the far side's business, so that a newer one may have more.
 */
#pragma once

#include "cli/command.h"

struct queue_away {
	bool is_away; /* the command was run there */
	bool wants_json; /* how an error is to be told */
};
/*
 * c: what argv begins with, with n_words words of it. Not away (`remote:` isn't there, --local, --help): 0, and nothing was done.
 * Away: the exit code over there. Negative: it can't be run there, with the sentence.
 */
int queue_remote(const struct program *p, const struct command *c, int n_words, int argc,
	char **argv, struct queue_away *ret, struct err *e);
/* $..._SUBMITTER, else user@host:pid; to free. */
char *queue_submitter(const struct program *p);
