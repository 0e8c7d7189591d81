/*
 * A measured value that may be absent, with the reason. "Absent" is never 0: it's a dash on a screen and null in
 * JSON. A zeroed value is "not asked".
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum value_state {
	VALUE_NOT_ASKED = 0,
	VALUE_PRESENT,
	VALUE_UNSUPPORTED, /* this card or driver doesn't have it (NVML 3, 13, 22, 26) */
	VALUE_FORBIDDEN, /* we may not read it (4, 17) */
	VALUE_EMPTY, /* no sample at the moment (6, 21) */
	VALUE_ASLEEP, /* asking would wake the card */
	VALUE_LOST, /* the card is gone (15, 16, 28) */
	VALUE_FAILED, /* any other error, or a figure out of its range */
	VALUE_STATE_N,
};

struct value {
	enum value_state state;
	int64_t v; /* meaningful only when present; the unit is the metric's */
};

static inline struct value value_of(int64_t v)
{
	return (struct value){.state = VALUE_PRESENT, .v = v};
}

static inline struct value value_absent(enum value_state why)
{
	return (struct value){.state = why};
}

static inline bool value_is_present(struct value v)
{
	return v.state == VALUE_PRESENT;
}

static inline bool value_is_same(struct value a, struct value b)
{
	return a.state == b.state && (a.state != VALUE_PRESENT || a.v == b.v);
}

/* "unsupported", "forbidden", ...; the word in JSON's "absent" members. NULL for a number outside the enum. */
const char *value_state_name(enum value_state s);
int value_state_from_name(const char *name, enum value_state *ret);
