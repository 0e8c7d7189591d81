/*
 * Programs of others as children that may hang: notify-send, curl, sendmail, systemctl, the user's own. Each is a session
 * of its own with a bound on its time, gets none of our descriptors, and what it says is kept within bounds. When its time
 * is over its whole group is killed. Nothing here waits but external_run.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

#define EXTERNAL_SAID_MAX 4096

struct external;

struct external_spec {
	const char *const *argv; /* argv[0] by PATH */
	const char *dir; /* its working directory; NULL: ours */
	const char *const
		*env; /* "NAME=VALUE" over our own environment, NULL-terminated; NULL: none */
	const struct buf *in; /* its stdin; NULL: empty */
	const struct buf *more; /* its descriptor 3; NULL: it has none */
	int64_t limit_ms;
	size_t said_max; /* 0: EXTERNAL_SAID_MAX */
};

struct external_end {
	int status; /* as from waitpid; killed by us when is_late */
	bool is_late; /* its time was over */
	const char *said; /* the last bytes of stdout and stderr together, for the call */
};

/* ended: called once, from the loop; external_free may be called in it. -ENOENT: there's no such program. */
int external_new(struct event_base *base, const struct external_spec *spec,
	void (*ended)(void *arg, const struct external_end *end), void *arg, struct external **ret,
	struct err *e);
/* Kills its group if it's still there, and reaps. NULL is fine. */
void external_free(struct external *x);

/* To its end: the exit code (128+n: a signal), -ETIME, or what external_new says. out: what it said. */
int external_run(const struct external_spec *spec, struct buf *out, struct err *e);

/* Absolute path of an executable: by PATH (name without '/'), then in `more` ("/usr/sbin:/usr/lib"; NULL: nowhere). false: none. */
bool external_find(const char *name, const char *more, struct buf *ret);
/* "ended with exit code 3: <what it said last>", one line, at most 300 bytes of it. */
void external_put_end(const struct external_end *end, int64_t limit_ms, struct buf *out);
