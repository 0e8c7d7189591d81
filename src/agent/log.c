/* Writes the log. What can't be written is lost: a full disk must not stop an agent. */
#include "agent/log.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/sys.h"
#include "base/text.h"

#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define LOG_MAX (256 * 1024)

static void put_time(struct buf *b)
{
	int64_t ms = clock_wall_ms();
	time_t s = (time_t)(ms / 1000);
	struct tm tm;

	if (gmtime_r(&s, &tm))
		buf_printf(b, "%04d-%02d-%02dT%02d:%02d:%02dZ ", tm.tm_year + 1900, tm.tm_mon + 1,
			tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
}

void log_line(const struct root *r, const char *fmt, va_list ap)
{
	CLEANUP(buf_done) struct buf line = {0};
	CLEANUP(buf_done) struct buf text = {0};
	struct sys_stat st;
	CLEANUP_CLOSE int fd = openat(r->fd, "log",
		O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);

	if (fd < 0)
		return;
	if (!sys_fstat(fd, &st) && st.size > LOG_MAX)
		renameat(r->fd, "log", r->fd, "log.1");
	buf_vprintf(&text, fmt, ap);
	put_time(&line);
	text_put_clean(&line, buf_str(&text), text.len);
	buf_putc(&line, '\n');
	if (write(fd, line.data, line.len) < 0)
		return;
}
