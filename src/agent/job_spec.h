/* A job object of docs/wire.md ("A job of `launch`") as the spec of a claim. */
#pragma once

#include "agent/claim.h"

#include <jansson.h>

struct agent;

/*
 * `shared`: the message's list of variables, or NULL; the agent's own are added. The spec is of this boot and has its
 * name; claim_spec_done is the caller's. The sentence in *e names the job and the member that won't do.
 */
int job_spec(struct agent *a, const char *queue, const json_t *job, json_t *shared,
	struct claim_spec *ret, struct err *e);
