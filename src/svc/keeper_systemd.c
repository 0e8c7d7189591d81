/* The keeper as a unit of the user's systemd, by systemctl and journalctl. */
#include "svc/keeper_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/parse.h"
#include "base/sys.h"
#include "svc/external.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ASK_MS 15000
#define DO_MS \
	100000 /* a stop may take the unit's 30 s, a start its 120 s, which nobody waits for */
#define LOG_BYTES (8 * 1024 * 1024)
#define STEPS_SINCE 254

static const char *name_of(const char *unit)
{
	const char *slash = strrchr(unit, '/');

	return slash ? slash + 1 : unit;
}

/* Over ssh or su it's often not set, but the user's systemd is there all the same. */
static int run(
	const char *const *argv, int64_t limit_ms, size_t said_max, struct buf *out, struct err *e)
{
	CLEANUP_FREE char *dir = xasprintf("XDG_RUNTIME_DIR=/run/user/%u", (unsigned)getuid());
	const char *told = getenv("XDG_RUNTIME_DIR");
	const char *const env[] = {told && *told ? NULL : dir, NULL};
	struct external_spec spec = {
		.argv = argv, .env = env, .limit_ms = limit_ms, .said_max = said_max};

	return external_run(&spec, out, e);
}

static int systemctl(const char *verb, const char *more, const char *unit, int64_t limit_ms,
	struct buf *out, struct err *e)
{
	const char *argv[8] = {"systemctl", "--user", "--no-pager"};
	size_t n = 3;

	argv[n++] = verb;
	if (more)
		argv[n++] = more;
	if (unit)
		argv[n++] = name_of(unit);
	argv[n] = NULL;
	return run(argv, limit_ms, 0, out, e);
}

static const char *last_line(struct buf *b)
{
	char *end;

	while (b->len && b->data[b->len - 1] == '\n')
		b->data[--b->len] = '\0';
	end = b->len ? strrchr(b->data, '\n') : NULL;
	return end ? end + 1 : buf_str(b);
}

int keeper_systemd_reach(struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0};
	int r = systemctl("show-environment", NULL, NULL, ASK_MS, &out, e);

	if (r > 0)
		return err_set(e, -EHOSTUNREACH,
			"your systemd can't be asked (%s); leave --systemd out for the keeper that needs none",
			last_line(&out));
	return r;
}

int keeper_systemd_path(const char *unit_name, char ret[KEEPER_PATH], struct err *e)
{
	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	int n;

	if (config && config[0] == '/')
		n = snprintf(ret, KEEPER_PATH, "%s/systemd/user/%s", config, unit_name);
	else if (home && home[0] == '/')
		n = snprintf(ret, KEEPER_PATH, "%s/.config/systemd/user/%s", home, unit_name);
	else
		return err_set(e, -ENOENT, "HOME isn't set, so there's no place for a unit");
	return n >= KEEPER_PATH ? err_set(e, -ENAMETOOLONG, "the unit's path is too long") : 0;
}

static int version(void)
{
	static const char *const argv[] = {"systemctl", "--version", NULL};
	CLEANUP(buf_done) struct buf out = {0};
	static const char word[] = "systemd ";

	if (run(argv, ASK_MS, 0, &out, NULL) != 0)
		return 0;
	return strncmp(buf_str(&out), word, strlen(word)) == 0
		       ? (int)strtol(buf_str(&out) + strlen(word), NULL, 10)
		       : 0;
}

static int reload(struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0};
	int r = systemctl("daemon-reload", NULL, NULL, DO_MS, &out, e);

	return r > 0 ? err_set(e, -EIO, "systemctl --user daemon-reload failed: %s",
			       last_line(&out))
		     : r;
}

int keeper_systemd_install(const struct keeper_spec *s, const char *unit, struct err *e)
{
	CLEANUP(buf_done) struct buf text = {0};
	CLEANUP_FREE char *dir = xstrndup(unit, (size_t)(name_of(unit) - unit));
	struct keeper_spec spec = *s;
	int r;

	spec.has_steps = version() >= STEPS_SINCE;
	keeper_unit(&spec, &text);
	r = fd_mkdirs(dir, e);
	if (r < 0)
		return r;
	r = fd_replace_at(AT_FDCWD, unit, buf_str(&text), text.len, true);
	if (r == 0 && chmod(unit, 0644) < 0)
		r = -errno;
	return r < 0 ? err_sys(e, r, "%s can't be written", unit) : reload(e);
}

int keeper_systemd_remove(const char *unit, struct err *e)
{
	if (unlink(unit) < 0 && errno != ENOENT)
		return err_sys(e, -errno, "%s can't be removed", unit);
	return reload(e);
}

/* The value of "Key=value" in what `show` says; "" without. */
static void property(const struct buf *b, const char *key, char *ret, size_t size)
{
	size_t n = strlen(key);

	ret[0] = '\0';
	for (const char *p = buf_str(b); *p; p += strcspn(p, "\n"), p += *p == '\n')
		if (strncmp(p, key, n) == 0 && p[n] == '=')
			snprintf(ret, size, "%.*s", (int)strcspn(p + n + 1, "\n"), p + n + 1);
}

bool keeper_systemd_is_up(const char *unit, int64_t *ret_pid)
{
	CLEANUP(buf_done) struct buf out = {0};
	char state[32], pid[32];
	int64_t v = 0;

	*ret_pid = 0;
	if (systemctl("show", "--property=ActiveState,MainPID", unit, ASK_MS, &out, NULL) != 0)
		return false;
	property(&out, "ActiveState", state, sizeof(state));
	property(&out, "MainPID", pid, sizeof(pid));
	if (parse_int64(pid, &v) == 0)
		*ret_pid = v;
	return !strcmp(state, "active") || !strcmp(state, "reloading") ||
	       !strcmp(state, "activating");
}

/* What systemctl says of a stop is believed only when nothing is left. */
static int stop(const char *unit, struct buf *out, struct err *e)
{
	int r = systemctl("disable", "--now", unit, DO_MS, out, e);
	int64_t pid;

	if (r != 0)
		return r;
	if (keeper_systemd_is_up(unit, &pid) || pid) {
		buf_printf(out, "still running (pid %" PRId64 ")\n", pid);
		return 1;
	}
	buf_puts(out, "stopped\n");
	return 0;
}

static int start(
	const char *unit, const char *verb, const char *more, struct buf *out, struct err *e)
{
	int r = systemctl(verb, more, unit, DO_MS, out, e);
	int64_t pid;

	if (r != 0)
		return r;
	if (!keeper_systemd_is_up(unit, &pid)) {
		buf_puts(out, "it was started but isn't running\n");
		return 1;
	}
	buf_printf(out, "running (pid %" PRId64 ")\n", pid);
	return 0;
}

int keeper_systemd_do(const char *unit, const char *action, struct buf *out, struct err *e)
{
	int r = keeper_systemd_reach(e);

	if (r < 0)
		return r;
	if (!strcmp(action, "stop"))
		return stop(unit, out, e);
	if (!strcmp(action, "start"))
		return start(unit, "enable", "--now", out, e);
	if (!strcmp(action, "ensure"))
		return start(unit, "start", NULL, out, e);
	r = systemctl("enable", NULL, unit, DO_MS, out, e);
	return r ? r : start(unit, "restart", NULL, out, e);
}

int keeper_systemd_logs(const char *unit, int64_t lines, struct buf *out, struct err *e)
{
	CLEANUP_FREE char *n = xasprintf("%" PRId64, lines);
	const char *const argv[] = {
		"journalctl", "--user", "--no-pager", "-q", "-u", name_of(unit), "-n", n, NULL};
	int r = run(argv, DO_MS, LOG_BYTES, out, e);

	return r > 0 ? err_set(e, -EIO, "journalctl ended with exit code %d: %s", r, last_line(out))
		     : r;
}

bool keeper_systemd_lingers(void)
{
	const struct passwd *pw = getpwuid(getuid());
	CLEANUP_FREE char *path = xasprintf("/var/lib/systemd/linger/%s", pw ? pw->pw_name : "");

	return pw && access(path, F_OK) == 0;
}
