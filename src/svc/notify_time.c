/* When something may be said, and when it's tried again. Pure but for the time zone. */
#include "svc/notify_inner.h"

#include "base/cleanup.h"

#include <time.h>

#define MINUTE 60000LL

int64_t notify_backoff_ms(unsigned failures)
{
	static const int minutes[] = {0, 1, 2, 5, 15, 60};

	return MINUTE * minutes[failures < ARRAY_LEN(minutes) ? failures : ARRAY_LEN(minutes) - 1];
}

bool notify_is_due(int64_t next_ms, int64_t now_ms)
{
	return next_ms <= now_ms || next_ms > now_ms + NOTIFY_BACKOFF_MAX_MS;
}

bool notify_is_quiet(const char *quiet_hours, int64_t now_ms, int64_t *ret_end_ms)
{
	time_t now = (time_t)(now_ms / 1000), end;
	int from, to, at;
	struct tm tm;

	if (!quiet_hours || queue_parse_quiet_hours(quiet_hours, &from, &to) < 0 ||
		!localtime_r(&now, &tm))
		return false;
	at = tm.tm_hour * 60 + tm.tm_min;
	if (from < to ? at < from || at >= to : at < from && at >= to)
		return false;
	/* The next time that the clock on the wall shows the end, whatever summer time does in between. */
	tm.tm_mday += at >= to;
	tm.tm_hour = to / 60;
	tm.tm_min = to % 60;
	tm.tm_sec = 0;
	tm.tm_isdst = -1;
	end = mktime(&tm);
	*ret_end_ms = end > now ? (int64_t)end * 1000 : now_ms + MINUTE;
	return true;
}
