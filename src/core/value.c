/* Names of the reasons for which a value is absent: JSON, the wire and screens all spell them from here. */
#include "core/value.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

static const char *const names[VALUE_STATE_N] = {
	[VALUE_NOT_ASKED] = "not-asked",
	[VALUE_PRESENT] = "present",
	[VALUE_UNSUPPORTED] = "unsupported",
	[VALUE_FORBIDDEN] = "forbidden",
	[VALUE_EMPTY] = "empty",
	[VALUE_ASLEEP] = "asleep",
	[VALUE_LOST] = "lost",
	[VALUE_FAILED] = "failed",
};

const char *value_state_name(enum value_state s)
{
	return (unsigned)s < VALUE_STATE_N ? names[s] : NULL;
}

int value_state_from_name(const char *name, enum value_state *ret)
{
	for (size_t i = 0; name != NULL && i < VALUE_STATE_N; i++) {
		if (strcmp(name, names[i]) == 0) {
			*ret = i;
			return 0;
		}
	}
	return -EINVAL;
}
