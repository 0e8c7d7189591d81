/*
 * A document with long lists, written as it's read: a hundred thousand jobs are never in memory at once. Life cycle:
 * queue_json_begin; members and lists in any order; queue_json_end. Where an error comes after something was written, the document
 * is closed there, with "ok": false and "error" as its last members: it's valid, and says that it isn't whole.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>

struct queue_json {
	struct buf out;
	bool has_member, has_item;
	bool is_begun; /* something of it was written */
	bool is_broken; /* it couldn't be written any more */
	int code; /* the first error */
	struct err *e;
};

void queue_json_begin(struct queue_json *j, struct err *e);
/* Takes o, an object that isn't empty: its members become the document's. */
void queue_json_members(struct queue_json *j, json_t *o);
/* Items, each on a line of its own. */
void queue_json_list(struct queue_json *j, const char *key);
void queue_json_item(struct queue_json *j, json_t *item); /* takes it */
void queue_json_list_end(struct queue_json *j); /* after an error, too */
/*
 * Closes it; code: 0, or the error that ends it (*e is set). Returns what the command does: 0; the first error, where nothing
 * was written yet or nothing can be; EXIT_FAILED, where the document tells of it.
 */
int queue_json_end(struct queue_json *j, int code);
