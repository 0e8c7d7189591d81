/*
 * The streams of this agent's clients (docs/wire.md: file, stage, credit, close): files that go out, bodies that come in.
 * A stream lives as long as its client's link and names itself by a number of the client's.
 *
 * Bodies go into the root, which is local. A file lies wherever a job root is, perhaps on a disk that hangs: a child of its
 * own reads it (follow.h), and a stream whose disk hangs holds up nothing but itself.
 */
#pragma once

#include "agent/client.h"
#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define FILES_OF_CLIENT_MAX 16
#define FILES_MAX \
	256 /* each keeps a descriptor open; and so many children, with those that hang after their stream's end */

struct agent;
struct files;

struct files *files_new(void);
void files_free(struct files *x);

/* Messages. What is wrong with them is in *e; a stream that fails later is told by an `error` with its id. */
int files_open(struct agent *a, struct client *c, const json_t *msg, struct err *e);
int files_stage(struct agent *a, struct client *c, const json_t *msg, struct err *e);
int files_credit(struct agent *a, struct client *c, const json_t *msg, struct err *e);
int files_close(struct agent *a, struct client *c, const json_t *msg, struct err *e);
/* A piece of a stream; of one that isn't known it's dropped. */
void files_bulk(struct agent *a, struct client *c, uint64_t stream, const char *bytes, size_t n);

/* Whose end it may be that a follower waits for. */
void files_attempt_changed(struct agent *a, const struct attempt_name *n);
/* To poll for reading. */
int files_fd(const struct files *x);
/* Passes on what may go now; forgets the streams of clients that went. */
void files_turn(struct agent *a);
/* 0: files_turn must be called again at once; -1: when something happens. */
int64_t files_wait_ms(const struct agent *a);
/* A child was reaped: true if it was one of these. */
bool files_reaped(struct files *x, pid_t pid);
