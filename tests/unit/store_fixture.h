/* A directory of its own with a store in it, and short ways to say the usual things. */
#pragma once

#include "store/store.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/hash.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct bed {
	char dir[64], path[128];
	struct store *s;
	struct store_lease lease;
};

/* For the last call that a test expects to succeed: prints the sentence before it fails. */
static struct err why;
#define OK(call) \
	do { \
		int ok_ = (call); \
		if (ok_ < 0) \
			fail_msg("%s:%d: %s = %d: %s", __FILE__, __LINE__, #call, ok_, why.text); \
	} while (0)

static inline int open_as(const char *path, enum store_mode mode, struct store **ret)
{
	struct store_options o = {.mode = mode};

	return store_open(path, &o, ret, &why);
}

static inline int bed_make(void **state)
{
	struct bed *b = xcalloc(1, sizeof(*b));
	const char *tmp = getenv("TMPDIR");

	snprintf(b->dir, sizeof(b->dir), "%.30s/store-XXXXXX",
		tmp && strlen(tmp) < 30 ? tmp : "/tmp");
	if (!mkdtemp(b->dir))
		return -1;
	snprintf(b->path, sizeof(b->path), "%s/queue.db", b->dir);
	*state = b;
	return open_as(b->path, STORE_WRITE, &b->s);
}

static inline int bed_drop(void **state)
{
	struct bed *b = *state;

	store_close(b->s);
	fd_remove_tree_at(AT_FDCWD, b->dir);
	free(b);
	return 0;
}

static inline void take_lease(struct bed *b)
{
	OK(store_lease_take(b->s, "test", 600000, &b->lease, NULL, &why));
}

/* The controller's transaction. */
static inline void begin(struct bed *b)
{
	if (!b->lease.epoch)
		take_lease(b);
	OK(store_begin(b->s, &b->lease, &why));
}

static inline void commit(struct bed *b)
{
	OK(store_commit(b->s, &why));
}

static inline int64_t add_job(struct store *s, const char *command, const int64_t *after, size_t n)
{
	struct job j;
	int64_t id = 0;

	job_init(&j);
	j.command = (char *)command;
	j.after = (int64_t *)after;
	j.n_after = n;
	OK(store_submit(s, &j, &id, &why));
	return id;
}

static inline int64_t submit(struct bed *b, const char *command)
{
	int64_t id;

	OK(store_begin(b->s, NULL, &why));
	id = add_job(b->s, command, NULL, 0);
	commit(b);
	return id;
}

static inline int try_bind(struct store *s, int64_t id, int64_t *ret)
{
	struct job_card card = {.uuid = "GPU-11", .index = 1, .mib = 4096};
	struct job_bind bind = {.node = (char *)"n1", .cards = &card, .n_cards = 1};

	random_hex(16, bind.token);
	random_hex(16, bind.root_id);
	snprintf(bind.boot_id, sizeof(bind.boot_id), "boot");
	return store_bind(s, id, &bind, ret, &why);
}

static inline int64_t bind_job(struct store *s, int64_t id)
{
	int64_t attempt = 0;

	OK(try_bind(s, id, &attempt));
	return attempt;
}

static inline int try_settle(
	struct store *s, int64_t id, int64_t attempt, enum job_step step, enum job_cause cause)
{
	struct store_end end = {.step = step,
		.cause = cause,
		.has_exit_code = true,
		.vram_mib = -1,
		.elapsed_ms = 5,
		.peak_mib = -1,
		.exit_code = step == JOB_STEP_COMPLETE ? 0 : 3};

	return store_settle(s, id, attempt, &end, &why);
}

static inline int try_start(struct store *s, int64_t id, int64_t attempt)
{
	struct store_started st = {.pid = 4711, .start_ticks = 99, .run_dir = "/run/1"};

	return store_started(s, id, attempt, &st, &why);
}

static inline struct job get(struct bed *b, int64_t id)
{
	struct job j = {0};

	OK(store_job(b->s, id, &j, &why));
	return j;
}

static inline int64_t count_events(struct bed *b, int64_t job)
{
	struct store_events l;
	int64_t n;

	OK(store_events(b->s, 0, job, 0, &l, &why));
	n = (int64_t)l.n;
	store_events_done(&l);
	return n;
}

static inline enum event_kind last_event(struct bed *b, int64_t job)
{
	struct store_events l;
	enum event_kind k;

	OK(store_events(b->s, -1, job, 1, &l, &why));
	k = l.n ? l.v[0].kind : EVENT_NONE;
	store_events_done(&l);
	return k;
}
