/* The clocks, read. */
#include "base/clock.h"

#ifdef GPUSTOW_FAULT_POINTS
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#endif

#ifndef CLOCK_BOOTTIME
#define CLOCK_BOOTTIME 7
#endif

static int64_t read_us(clockid_t id)
{
	struct timespec t;

	if (clock_gettime(id, &t) < 0)
		clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int64_t clock_boot_us(void)
{
	return read_us(CLOCK_BOOTTIME);
}

int64_t clock_boot_ms(void)
{
	return read_us(CLOCK_BOOTTIME) / 1000;
}

#ifdef GPUSTOW_FAULT_POINTS
/* The fault suite sets wall clocks: so many ms more, as the file named by GPUSTOW_TEST_WALL_OFFSET says at this moment. */
static int64_t step_ms(void)
{
	const char *path = getenv("GPUSTOW_TEST_WALL_OFFSET");
	char text[32];
	ssize_t n = -1;
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	return strtoll(text, NULL, 10);
}
#else
static int64_t step_ms(void)
{
	return 0;
}
#endif

int64_t clock_wall_ms(void)
{
	return read_us(CLOCK_REALTIME) / 1000 + step_ms();
}

int64_t clock_monotonic_us(void)
{
	return read_us(CLOCK_MONOTONIC);
}
