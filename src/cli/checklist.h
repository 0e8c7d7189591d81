/*
 * A list to tick things off, on the whole screen: up/down or k/j, space, a(ll), n(one), i(nvert), s or Enter saves, q or
 * Esc cancels. Model and view are pure; checklist_run alone touches the terminal.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct checklist_item {
	const char *label; /* fit for a terminal */
	bool is_checked;
};

struct checklist {
	const char *title;
	struct checklist_item *items;
	size_t n, cursor, top; /* top: the first that's shown */
};

enum checklist_answer { CHECKLIST_OPEN, CHECKLIST_SAVE, CHECKLIST_CANCEL };

size_t checklist_count(const struct checklist *c);
/* Bytes as a terminal sends them. A sequence that isn't known does nothing; a lone Esc cancels. */
enum checklist_answer checklist_feed(struct checklist *c, const char *bytes, size_t n);
/* The whole screen; `top` follows the cursor. */
void checklist_put(struct checklist *c, int rows, int cols, struct buf *out);

/* 0 and *ret_save; -ECANCELED: a signal ended it. The screen is as it was before, whichever way it ends. */
int checklist_run(struct checklist *c, bool *ret_save, struct err *e);
