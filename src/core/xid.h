/*
 * What an XID number means and what to do about it: NVIDIA's catalogue in our words, as far as it's known. One table for the
 * health of a card, the document of --once, the doctor, and the queue, which takes a card out of service. Pure.
 */
#pragma once

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

enum xid_tier {
	XID_INFO,
	XID_APP, /* a program's fault: the card is well */
	XID_DRIVER,
	XID_WARNING,
	XID_CRITICAL
};

struct xid_info {
	int64_t first, last; /* numbers that mean the same */
	enum xid_tier tier;
	char what[64]; /* a clause */
	char mend[80]; /* the way out, a clause; "": nothing to be done about it */
};

/* NULL for a number that isn't known here. */
const struct xid_info *xid_find(int64_t xid);
/* The card or the driver is to blame for it, and not a program; so is one that isn't known. 0: none. */
bool xid_is_of_card(int64_t xid);
/*
 * Does it stand for the card's state from now on, in place of one that came `after_ms` before it? A card that fails has its
 * programs torn down, which are XIDs too and come last: they don't hide for the next minute what went wrong. last 0: none.
 */
bool xid_replaces(int64_t xid, int64_t last, int64_t after_ms);
/* "fell off the bus: reboot ..."; nothing for NULL. */
void xid_put(const struct xid_info *x, struct buf *out);
