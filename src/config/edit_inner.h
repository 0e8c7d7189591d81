/* Between the parts of an edit: where to cut (edit.c), what to write (edit_write.c), whether it came out as meant (edit_check.c). */
#pragma once

#include "config/config_inner.h"

/* One server's lines: the dash at `column`, `gap` blanks behind it. */
void edit_put_host(
	struct buf *b, const struct host_config *h, size_t column, size_t gap, const char *eol);
/* What to write, or take out, by hand; a password isn't shown. */
void edit_put_wanted(const struct edit *edit, struct buf *b);

/* The new bytes hold the old values and the change, and nothing else has changed. */
bool edit_is_meant(const struct edit *edit, const struct config *old_config, const struct doc *old,
	size_t removed, const char *bytes, size_t n, const char *name);
