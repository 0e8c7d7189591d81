/* What becomes of a job that waits for others: pure. The controller makes it happen (needs_apply.c). */
#pragma once

#include "base/buf.h"
#include "store/store.h"

enum needs_word {
	NEEDS_MET, /* it may run */
	NEEDS_WAIT, /* something it needs hasn't ended */
	NEEDS_HOLD, /* something it needs can't come any more; `why` */
	NEEDS_FAIL, /* the same, and it's to fail for that */
	NEEDS_UNHOLD, /* it was held for that, and the cause has gone */
};
/* Was a job held because of its prerequisites (and not for anything a person has to look at)? */
bool needs_is_ours(const char *held_reason);
/* rows: what is unmet of this job's. A hold of another kind stays: NEEDS_WAIT then. */
enum needs_word needs_decide(const struct store_unmet_row *rows, size_t n,
	enum on_dependency policy, const char *held_reason, struct buf *why);
