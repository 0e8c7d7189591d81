/* For tests: a value is there and is that one, else the line, why it's absent, and what it is. Behind cmocka.h. */
#pragma once

#include "core/value.h"

#include <stdint.h>

static void assert_value_at(struct value v, int64_t want, int line)
{
	if (v.state != VALUE_PRESENT || v.v != want)
		fail_msg("line %d: %s %lld, not %lld", line, value_state_name(v.state),
			(long long)v.v, (long long)want);
}
#define assert_value(v, want) assert_value_at(v, want, __LINE__)
