/*
 * What a doctor found, one line a check: fine, worth a look, or broken, and then the way to mend it. Values in, text or JSON
 * out; pure.
 */
#pragma once

#include "base/buf.h"
#include "base/row.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum check_weight { CHECK_OK, CHECK_WARN, CHECK_BAD, CHECK_WEIGHT_N };

struct check {
	enum check_weight weight;
	char *id; /* "driver", "ssh.connect": stable, for programs */
	char *text; /* what is so */
	char *mend; /* NULL: nothing to mend */
	int64_t ms; /* how long finding it out took; -1: no matter */
};

struct checklist {
	struct check *items;
	size_t n, cap;
};

void checklist_done(struct checklist *l);
/* mend NULL: nothing to mend. Texts from outside are cleaned when shown. */
void checklist_add(struct checklist *l, enum check_weight w, const char *id, const char *mend,
	const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* For the check added last. */
void checklist_took(struct checklist *l, int64_t ms);
/* The worst there is. */
enum check_weight checklist_worst(const struct checklist *l);
void checklist_text(const struct checklist *l, const struct row_style *style, struct buf *out);
/* [{id, result, text, mend, took_ms}, ...]; the caller's reference. */
json_t *checklist_json(const struct checklist *l);
/* Takes in what checklist_json made; what isn't of that shape is passed over. */
void checklist_take_json(struct checklist *l, const json_t *list);
