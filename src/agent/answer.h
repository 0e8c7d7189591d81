/* What the agent says (docs/wire.md): answers, events, samples. Each message from the agent is spelled here. */
#pragma once

#include "agent/admit.h"
#include "agent/attempts.h"
#include "agent/client.h"

#include <stdbool.h>

struct agent;

void answer_hello(struct agent *a, struct client *c);
/* n NULL: the whole link is stale. */
void answer_stale(struct client *c, const struct fence *highest, const struct attempt_name *n);

/* The answers of a launch; c may be NULL (nobody is there any more). dir: a job's of the queue, else NULL. */
void answer_claimed(struct client *c, const struct attempt_name *n, const char *dir);
/* The message itself. */
json_t *claimed_message(const struct attempt_name *n, const char *dir);
void answer_refused(struct client *c, const struct attempt_name *n, const struct refusal *r);
void answer_conflict(struct client *c, const struct attempt_name *n, const char *token);
void answer_other_root(struct client *c, const struct attempt_name *n, const char *root_id);
/* What may be told of it. */
enum attempt_state answer_state_of(const struct attempt *a);
/* `claimed` and, if it came further, `started` or `ended`. */
void answer_state(struct client *c, struct attempt *a);
void answer_retired(struct client *c, const struct attempt_name *n, const char *token,
	const struct attempt_end *end);

/* A new {"op": op, "job", "attempt"}. */
json_t *message_of(const char *op, const struct attempt_name *n);
/* One entry of "claims" in `observed`. */
json_t *observed_claim(struct attempt *a);
json_t *observed_retired(
	const struct attempt_name *n, const char *token, const struct attempt_end *end);

/* `started` or `ended` to whom it may concern, if it wasn't told yet. */
void event_push(struct agent *a, struct attempt *at);
/* The state of everything of a queue, after events were lost. */
void event_push_all(struct agent *a, struct client *c);
/* Sends the last sample to those who asked for it or whose time has come. */
void sample_push(struct agent *a);
