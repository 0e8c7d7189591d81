/* Between the parts of the queue's configuration: the table of its keys, `remote:`, and who puts them together. */
#pragma once

#include "config/config_inner.h"
#include "config/queue.h"

#define QUEUE_SECOND 1000LL
#define QUEUE_DAY (86400 * QUEUE_SECOND)
#define QUEUE_TIME_MAX (36500 * QUEUE_DAY)

enum queue_key_kind {
	QUEUE_KEY_COUNT, /* int64_t, min to max */
	QUEUE_KEY_SIZE, /* int64_t MiB */
	QUEUE_KEY_VRAM, /* the same, or auto: -1 */
	QUEUE_KEY_BYTES, /* int64_t */
	QUEUE_KEY_TIME, /* int64_t ms */
	QUEUE_KEY_HOURS, /* int64_t ms, written in hours */
	QUEUE_KEY_SHARE, /* double, min to max */
	QUEUE_KEY_BOOL,
	QUEUE_KEY_WORD, /* an enum of `word` */
	QUEUE_KEY_TEXT, /* char *, NULL: none */
	QUEUE_KEY_TEXTS, /* char *, one text or a list of them: '\n' between; `check` sees each */
	QUEUE_KEY_CAUSES, /* uint32_t: bits of enum job_cause */
	QUEUE_KEY_IGNORED, /* nvidb's, without meaning here */
};

/* One key of `queue:`. min and max are in what the member is in. */
struct queue_key {
	const char *section; /* NULL; "notify", "notify.webhook", "backup" */
	const char *name;
	enum queue_key_kind kind;
	size_t offset; /* in struct queue_settings */
	const char *initial; /* the default, as it's written; NULL: none */
	const char *nvidb_initial; /* under the name nvidb; NULL: the same */
	int64_t min, max;
	const char *(*word)(unsigned value); /* NULL behind the last; "": no word */
	int (*check)(const char *text,
		const char **ret_right); /* -EINVAL: `right` instead of the kind's sentence */
	bool is_local_path; /* a leading `~` is the home here */
	const char *text; /* its meaning, for the manual */
};
extern const struct queue_key queue_keys[];
extern const size_t queue_keys_n;

/* section NULL: of queue: itself. NULL: no such key. */
const struct queue_key *queue_key_find(const char *section, const struct doc_node *name);
/* "notify.log"; what sentences and the manual call it. */
void queue_key_put_name(const struct queue_key *k, struct buf *b);
/* "a whole number from 0 to 1000": what may be written. */
void queue_key_put_type(const struct queue_key *k, struct buf *b);
/* What never had an attempt, or was meant to end, isn't tried again. */
bool queue_cause_is_retryable(enum job_cause c);
void queue_key_reset(const struct queue_key *k, bool is_nvidb, struct queue_settings *s);
/* Nothing (null) is the default. -EINVAL: "<name> line N: <key>: ... won't do; write <type>". */
int queue_key_read(const struct queue_key *k, const char *name, const struct doc_node *n,
	bool is_nvidb, struct queue_settings *s, struct err *e);
/* The lease's time follows from others (spec nvidb 6.4); once all are read. */
void queue_settings_settle(struct queue_settings *s);

void queue_remote_done(struct queue_remote *r);
/* `remote:`; false and nothing: the queue is here. */
int queue_remote_read(const char *name, const struct doc_node *n, bool is_nvidb,
	struct queue_remote *ret, struct buf *warnings, struct err *e);
