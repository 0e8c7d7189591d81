/*
 * Names of attempts and the words for how far they came and how they ended: one table each, read in both directions.
 * Pure.
 */
#include "core/attempt.h"
#include "base/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const char *const state_names[] = {
	[ATTEMPT_CLAIMED] = "claimed",
	[ATTEMPT_STARTED] = "started",
	[ATTEMPT_ENDED] = "ended",
};

static const char *const how_names[END_HOW_N] = {
	[END_EXIT] = "exit",
	[END_SIGNAL] = "signal",
	[END_STOPPED] = "stopped",
	[END_LAUNCH_FAILED] = "launch-failed",
	[END_NOT_STARTED] = "not-started",
	[END_VANISHED] = "vanished",
	[END_REBOOTED] = "rebooted",
};

static const char *const reason_names[STOP_REASON_N] = {
	[STOP_NONE] = "none",
	[STOP_CANCEL] = "cancel",
	[STOP_TIMEOUT] = "timeout",
	[STOP_SHUTDOWN] = "shutdown",
};

static const char *name_at(const char *const *names, size_t n, size_t i)
{
	return i < n ? names[i] : NULL;
}

/* Position of a word, or -EINVAL. */
static int find_name(const char *const *names, size_t n, const char *s)
{
	for (size_t i = 0; i < n; i++) {
		if (names[i] && strcmp(names[i], s) == 0)
			return (int)i;
	}
	return -EINVAL;
}

const char *attempt_state_name(enum attempt_state s)
{
	return name_at(state_names, ARRAY_LEN(state_names), (size_t)s);
}

const char *end_how_name(enum end_how h)
{
	return name_at(how_names, ARRAY_LEN(how_names), (size_t)h);
}

const char *stop_reason_name(enum stop_reason r)
{
	return name_at(reason_names, ARRAY_LEN(reason_names), (size_t)r);
}

int attempt_state_from_name(const char *s, enum attempt_state *ret)
{
	int i = find_name(state_names, ARRAY_LEN(state_names), s);
	if (i < 0)
		return i;
	*ret = (enum attempt_state)i;
	return 0;
}

int end_how_from_name(const char *s, enum end_how *ret)
{
	int i = find_name(how_names, ARRAY_LEN(how_names), s);
	if (i < 0)
		return i;
	*ret = (enum end_how)i;
	return 0;
}

int stop_reason_from_name(const char *s, enum stop_reason *ret)
{
	int i = find_name(reason_names, ARRAY_LEN(reason_names), s);
	if (i < 0)
		return i;
	*ret = (enum stop_reason)i;
	return 0;
}

bool id_is_valid(const char *s)
{
	size_t n = 0;
	for (; s[n]; n++) {
		bool is_hex = (s[n] >= '0' && s[n] <= '9') || (s[n] >= 'a' && s[n] <= 'f');
		if (n == ID_LEN - 1 || !is_hex)
			return false;
	}
	return n == ID_LEN - 1;
}

void attempt_name_format(const struct attempt_name *n, char ret[ATTEMPT_NAME_LEN])
{
	snprintf(ret, ATTEMPT_NAME_LEN, "%.*s/%" PRIu64 ".%" PRIu32, ID_LEN - 1, n->queue, n->job,
		n->attempt);
}

/* A number from 1 without leading zeros, so that equal names are equal bytes. */
static int take_number(const char **p, uint64_t max, uint64_t *ret)
{
	const char *s = *p;
	if (*s < '1' || *s > '9')
		return -EINVAL;
	uint64_t v = 0;
	for (; *s >= '0' && *s <= '9'; s++) {
		uint64_t digit = (uint64_t)(*s - '0');
		if (v > (max - digit) / 10)
			return -ERANGE;
		v = v * 10 + digit;
	}
	*p = s;
	*ret = v;
	return 0;
}

int attempt_name_parse(const char *s, struct attempt_name *ret)
{
	struct attempt_name n = {0};
	size_t length = strnlen(s, ID_LEN);
	if (length < ID_LEN || s[ID_LEN - 1] != '/')
		return -EINVAL;
	memcpy(n.queue, s, ID_LEN - 1);
	if (!id_is_valid(n.queue))
		return -EINVAL;
	const char *p = s + ID_LEN;
	int r = take_number(&p, UINT64_MAX, &n.job);
	if (r < 0)
		return r;
	if (*p++ != '.')
		return -EINVAL;
	uint64_t attempt;
	r = take_number(&p, UINT32_MAX, &attempt);
	if (r < 0)
		return r;
	if (*p)
		return -EINVAL;
	n.attempt = (uint32_t)attempt;
	*ret = n;
	return 0;
}

bool attempt_name_equal(const struct attempt_name *a, const struct attempt_name *b)
{
	return a->job == b->job && a->attempt == b->attempt && strcmp(a->queue, b->queue) == 0;
}
