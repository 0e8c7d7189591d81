/* sd_notify(3) without its library. */
#include "svc/sd_notify.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/parse.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void sd_notify_say(const char *text)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	size_t n = path ? strlen(path) : 0;
	CLEANUP_CLOSE int fd = -1;

	if (!n || n >= sizeof(to.sun_path) || (*path != '/' && *path != '@'))
		return;
	memcpy(to.sun_path, path, n);
	if (*path == '@')
		to.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0)
		(void)!sendto(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT,
			(struct sockaddr *)&to,
			(socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
}

void sd_notify_reloading(void)
{
	char text[80];

	snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%" PRId64, clock_monotonic_us());
	sd_notify_say(text);
}

int64_t sd_notify_watchdog_ms(void)
{
	const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
	int64_t v, who;

	if (!usec || parse_int64(usec, &v) < 0 || v <= 0)
		return 0;
	if (pid && (parse_int64(pid, &who) < 0 || who != getpid()))
		return 0;
	return v / 2000 > 0 ? v / 2000 : 1;
}
