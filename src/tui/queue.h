/*
 * `gpustow queue` on a terminal. The screen's process only draws: what takes time is done by three others that were forked
 * before anything else and have a database handle of their own each, so that neither a slow node nor a slow disk delays a
 * key. They speak JSON, one object a line, over a socket pair each:
 *
 *   record  {"do":"look"|"cancel"|"requeue"|"priority"|"move"|"drain"|"resume"|"ack"|"show", "id", "by", "node"}
 *           -> {"snapshot":{...}}, {"shown":{...}}, {"notice":text,"bad":bool,"acted":bool}, {"fatal":text}
 *           A snapshot comes unasked, too, when the daemon tells that something has happened.
 *   ticks   {"do":"tick","forced":bool} -> {"ticked":true,"notice":text,"bad":bool}
 *   logs    {"do":"log","id"} -> {"log":{"id","text"|"error"}}
 */
#pragma once

#include "base/err.h"
#include "config/config.h"

#include <stdbool.h>
#include <stdint.h>

enum queue_role { QUEUE_RECORD, QUEUE_TICKS, QUEUE_LOGS, QUEUE_ROLE_N };
enum { QUEUE_LINE_MAX = 64 * 1024 * 1024 };

struct queue_screen_options {
	const char *home; /* config.yml lies there */
	const struct config *config;
	int64_t refresh_ms; /* 1000 at least */
	bool is_plain; /* lines instead of a screen */
	/* In the child: serves until the other end of fd is closed, and returns its exit code. */
	int (*serve)(void *arg, enum queue_role role, int fd);
	void *arg;
};

/* The exit code, or -errno with a sentence: no terminal, or the queue can't be read at all. */
int queue_screen_run(const struct queue_screen_options *o, struct err *e);
