/* Where the fault suite strikes; empty unless compiled in. */
#include "base/fault.h"

#ifdef GPUSTOW_FAULT_POINTS

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One entry of GPUSTOW_FAULT: "name:action" or "name:action#n". */
struct strike {
	char name[64];
	char action[16];
	long nth;
};

static int parse(const char *s, size_t n, struct strike *ret)
{
	const char *colon = memchr(s, ':', n), *hash;
	size_t len;

	if (!colon || (size_t)(colon - s) >= sizeof(ret->name))
		return -EINVAL;
	memset(ret, 0, sizeof(*ret));
	memcpy(ret->name, s, (size_t)(colon - s));
	len = n - (size_t)(colon - s) - 1;
	hash = memchr(colon + 1, '#', len);
	if (hash) {
		ret->nth = strtol(hash + 1, NULL, 10);
		len = (size_t)(hash - colon) - 1;
	}
	if (len >= sizeof(ret->action))
		return -EINVAL;
	memcpy(ret->action, colon + 1, len);
	return 0;
}

static int strike(const char *action)
{
	if (!strcmp(action, "kill"))
		kill(getpid(), SIGKILL);
	else if (!strcmp(action, "stop"))
		kill(getpid(), SIGSTOP);
	else if (!strcmp(action, "exit"))
		_exit(99);
	else if (!strcmp(action, "enospc"))
		return -ENOSPC;
	else if (!strcmp(action, "eio"))
		return -EIO;
	return 0;
}

/* May it strike? With a directory only the first of all processes may. */
static bool take_turn(const char *name)
{
	const char *dir = getenv("GPUSTOW_TEST_FAULT_DIR");
	char path[1024];
	int fd;

	if (!dir || !*dir)
		return true;
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

int fault_point(const char *name)
{
	static long passes; /* of the one point that has a "#N" */
	const char *all = getenv("GPUSTOW_FAULT");
	struct strike s;

	while (all && *all) {
		size_t n = strcspn(all, ",");

		if (!parse(all, n, &s) && !strcmp(s.name, name) && (!s.nth || ++passes == s.nth) &&
			take_turn(name))
			return strike(s.action);
		all += n + (all[n] == ',');
	}
	return 0;
}

#else
typedef int fault_is_off; /* a translation unit may not be empty */
#endif
