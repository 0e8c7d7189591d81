/* The writer of settings (keep.h). */
#include "tui/keep.h"

#include "base/clock.h"
#include "config/config.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void keep_init(struct keep *k, const char *home, const struct view_settings *now)
{
	*k = (struct keep){.home = home, .written = *now};
}

static bool differs(const struct view_settings *a, const struct view_settings *b, size_t i,
	const char **ret_key, const char **ret_value)
{
	const char *key, *old;

	return view_get(a, i, ret_key, ret_value) && view_get(b, i, &key, &old) &&
	       strcmp(*ret_value, old) != 0;
}

static bool has_changes(const struct view_settings *a, const struct view_settings *b)
{
	const char *key, *value;

	for (size_t i = 0; view_get(a, i, &key, &value); i++)
		if (differs(a, b, i, &key, &value))
			return true;
	return false;
}

/* In the child: the file is edited under its lock; who can't write it keeps the settings for this time only. */
static void write_all(const struct keep *k)
{
	const char *key, *value;
	int code = 0;

	for (int sig = 1; sig < 32; sig++)
		signal(sig, SIG_DFL);
	/* A terminal that's closed takes its processes along, but not in the middle of this. */
	signal(SIGHUP, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	for (size_t i = 0; view_get(&k->writing, i, &key, &value); i++)
		if (differs(&k->writing, &k->written, i, &key, &value)) {
			struct err e = {0};

			code |= config_set(k->home, "view", key, value, &e) < 0;
		}
	_exit(code);
}

void keep_write(struct keep *k, const struct view_settings *now)
{
	if (keep_look(k) || !has_changes(now, &k->written))
		return;
	k->writing = *now;
	k->child = fork();
	if (k->child == 0)
		write_all(k);
	if (k->child < 0)
		k->child = 0;
	else
		k->written = *now;
}

bool keep_look(struct keep *k)
{
	int status = 0;

	if (k->child && waitpid(k->child, &status, WNOHANG) != 0) {
		k->child = 0;
		k->has_failed = status != 0;
	}
	return k->child != 0;
}

void keep_done(struct keep *k, const struct view_settings *now, int64_t limit_ms)
{
	int64_t end_ms = clock_boot_ms() + limit_ms;

	do {
		keep_write(k, now);
		if (!k->child)
			return;
		(void)poll(NULL, 0, 5);
	} while (clock_boot_ms() < end_ms);
}
