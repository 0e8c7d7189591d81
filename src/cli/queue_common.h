/*
 * What all commands of the queue share: their common options, where the queue lies, how it's opened, the pass before or after
 * the command's own work, and the one JSON document.
 */
#pragma once

#include "cli/command.h"
#include "cli/hosts.h"
#include "config/queue.h"
#include "queue/controller.h"
#include "store/store.h"

#include <jansson.h>

/* The first member of each such command's options struct, named `q`. */
struct queue_options {
	const char *db_path;
	bool local, json, tick, no_tick;
};

/* Rows for the command's table; type: its options struct. */
#define QUEUE_OPTION_ROWS(type) \
	{.name = "db-path", \
		.arg = "PATH", \
		.kind = OPTION_TEXT, \
		.offset = offsetof(type, q.db_path), \
		.text = "the queue's database (default: queue.db in gpustow's home)", \
		.complete = COMPLETE_FILE}, \
		{.name = "local", \
			.kind = OPTION_FLAG, \
			.offset = offsetof(type, q.local), \
			.text = "this machine's queue, even where queue.yml says `remote:`"}, \
	{ \
		.name = "json", .kind = OPTION_FLAG, .offset = offsetof(type, q.json), \
		.text = "print one JSON document" \
	}
/* For commands that look at the nodes first. */
#define QUEUE_REFRESH_ROWS(type) \
	{.name = "tick", \
		.kind = OPTION_FLAG, \
		.offset = offsetof(type, q.tick), \
		.text = "look at the nodes first, whenever that was done last"}, \
	{ \
		.name = "no-tick", .kind = OPTION_FLAG, .offset = offsetof(type, q.no_tick), \
		.text = "only read the database" \
	}
/* For commands that let the queue move on after their change. */
#define QUEUE_NO_TICK_ROW(type) \
	{ \
		.name = "no-tick", .kind = OPTION_FLAG, .offset = offsetof(type, q.no_tick), \
		.text = "leave it to the next pass to act on it" \
	}

/* $GPUSTOW_<name> or the like, as the program is called; NULL when it's empty or not there. */
const char *queue_env(const struct program *p, const char *name);
/* Lines of warnings of the configuration, to standard error. */
void queue_say_warnings(const struct program *p, const struct buf *warnings);
/* For struct command.wants_json of every command whose options begin with struct queue_options. */
bool queue_wants_json(const void *opts);

struct queue {
	const struct program *program;
	const struct queue_options *o;
	bool json; /* asked for here or before the command */
	char home[HOSTS_PATH], path[HOSTS_PATH];
	struct queue_config config;
	struct store *store;
	enum store_mode mode; /* how it was opened */
};

/*
 * Configuration and store. A queue that nobody made yet is made, in both modes: an empty one is answered for like any other.
 * A Python nvidb's database is refused with the one sentence that names the import. Call queue_close whatever is returned; *q must not move.
 */
int queue_open(struct queue *q, const struct program *p, const struct queue_options *o,
	enum store_mode mode, struct err *e);
/* The same for what makes no sense of a queue that isn't there: -ENOENT, and none is made. */
int queue_open_existing(struct queue *q, const struct program *p, const struct queue_options *o,
	enum store_mode mode, struct err *e);
void queue_close(struct queue *q);
/* Only configuration and path: for what has no store yet, or mustn't open it. */
int queue_find(
	struct queue *q, const struct program *p, const struct queue_options *o, struct err *e);
/* The same without a word about what's odd in the configuration: for completion. */
int queue_find_quietly(
	struct queue *q, const struct program *p, const struct queue_options *o, struct err *e);

/* The configuration as it's now, for whoever has found the queue before. */
int queue_load_config(const struct queue *q, struct queue_config *ret, struct err *e);

/* The pass before a reading command: as --tick and --no-tick say, else one that the rate limit may skip. Errors are warnings. */
void queue_refresh(struct queue *q);
/*
 * The pass after a change, unless --no-tick. The "tick" member for JSON ({"skipped":"disabled"} with --no-tick); a failed
 * pass is a warning: the change itself is done.
 */
json_t *queue_tick_after(struct queue *q);

/* Takes `o`, prints it as one document. */
/*
 * Whether that node didn't answer in the last pass, and how people are told: "fish is suspect: it didn't answer in time".
 * An error counts as one that answers: it's only for a sentence. free(*ret).
 */
bool queue_is_away(struct queue *q, const char *node, char **ret);

int queue_print_json(json_t *o, struct err *e);
/* A job's number from a word: -EINVAL with a sentence. */
int queue_parse_id(const char *word, int64_t *ret, struct err *e);
/* "1,2,5-8" (commas, ranges), appended to a growing list; at most 1,000,000. */
struct id_list {
	int64_t *v;
	size_t n, cap;
};
int queue_parse_ids(const char *word, struct id_list *ret, struct err *e);
void id_list_done(struct id_list *l);
/* By node name as people type it (queue_config_find). The sentence of what's known is in *e. */
int queue_parse_node(
	const struct queue *q, const char *word, const struct queue_node **ret, struct err *e);

/* Text for people: durations "HH:MM:SS", "D-HH:MM:SS"; sizes "512M", "4.2G", "128G"; "-" unknown (-1). */
void queue_put_duration(struct buf *b, int64_t ms);
void queue_put_size(struct buf *b, int64_t mib);
/* One line, cleaned, cut with an ellipsis at max cells. */
void queue_put_line(struct buf *b, const char *text, size_t max);
