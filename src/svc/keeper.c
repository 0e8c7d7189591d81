/*
 * Which keeper there is, installing one, and asking it to do something. Whoever is switched away from is stopped first: two
 * keepers of one home would start two daemons.
 */
#include "svc/keeper_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/parse.h"
#include "proc/proc.h"
#include "svc/external.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A restart may take the grace of 40 s, the kill and the start. */
#define DO_MS 150000
#define LOG_BYTES (8 * 1024 * 1024)

const char *keeper_manager_name(enum keeper_manager m)
{
	return m == KEEPER_SHELL ? "shell" : m == KEEPER_SYSTEMD ? "systemd" : NULL;
}

int keeper_path(const char *home, const char *suffix, char ret[KEEPER_PATH], struct err *e)
{
	int n = snprintf(ret, KEEPER_PATH, "%s/queue-keeper%s", home, suffix);

	return n >= KEEPER_PATH ? err_set(e, -ENAMETOOLONG, "the path of the home is too long") : 0;
}

/* ---- what's there ---- */

static void read_text(const char *path, struct buf *ret)
{
	buf_clear(ret);
	if (fd_read_file_at(AT_FDCWD, path, ret, 2 * KEEPER_PATH) < 0)
		buf_clear(ret);
}

/* "shell", or "systemd" and the unit's path in the next line. */
static enum keeper_manager read_manager(const char *home, char unit[KEEPER_PATH])
{
	CLEANUP(buf_done) struct buf text = {0};
	char path[KEEPER_PATH], script[KEEPER_PATH];
	static const char systemd[] = "systemd\n";

	unit[0] = '\0';
	if (keeper_path(home, ".manager", path, NULL) < 0 ||
		keeper_path(home, ".sh", script, NULL) < 0)
		return KEEPER_NONE;
	read_text(path, &text);
	if (strncmp(buf_str(&text), systemd, strlen(systemd)) == 0) {
		const char *s = buf_str(&text) + strlen(systemd);

		snprintf(unit, KEEPER_PATH, "%.*s", (int)strcspn(s, "\n"), s);
		return unit[0] == '/' && access(unit, F_OK) == 0 ? KEEPER_SYSTEMD : KEEPER_NONE;
	}
	return access(script, F_OK) == 0 ? KEEPER_SHELL : KEEPER_NONE;
}

/* As the script's own is_up. */
static bool shell_is_up(const char *home, int64_t *ret_pid)
{
	CLEANUP(buf_done) struct buf text = {0};
	char path[KEEPER_PATH], boot[40], boot_now[40], token[64], line[8192], want[80];
	char pid_word[24], start_word[24];
	int64_t pid = 0, start = 0;
	ssize_t n;

	*ret_pid = 0;
	if (keeper_path(home, ".pid", path, NULL) < 0)
		return false;
	read_text(path, &text);
	if (sscanf(buf_str(&text), "%23s %23s %39s %63s", pid_word, start_word, boot, token) != 4 ||
		parse_int64(pid_word, &pid) < 0 || parse_int64(start_word, &start) < 0 ||
		proc_boot_id(boot_now) < 0 || strcmp(boot, boot_now) != 0 || pid <= 0 ||
		pid > INT32_MAX || start <= 0 || !proc_is_alive((pid_t)pid, (uint64_t)start))
		return false;
	n = proc_read_bytes((pid_t)pid, "cmdline", line, sizeof(line));
	for (ssize_t i = 0; i < n; i++)
		if (!line[i])
			line[i] = ' ';
	snprintf(want, sizeof(want), "_loop %s ", token);
	if (n <= 0 || !memmem(line, (size_t)n, want, strlen(want)))
		return false;
	*ret_pid = pid;
	return true;
}

int keeper_state(const char *home, struct keeper_state *ret, struct err *e)
{
	struct keeper_state s = {0};
	int r = keeper_path(home, ".log", s.log, e);

	if (r < 0)
		return r;
	s.manager = read_manager(home, s.unit);
	s.installed = s.manager != KEEPER_NONE;
	if (s.manager == KEEPER_SYSTEMD) {
		s.log[0] = '\0';
		s.running = keeper_systemd_is_up(s.unit, &s.pid);
	} else {
		s.unit[0] = '\0';
		if (s.installed)
			(void)keeper_path(home, ".sh", s.script, NULL);
		/* A script that was deleted leaves its loop running. */
		s.running = shell_is_up(home, &s.pid);
		if (!s.installed && !s.running)
			s.log[0] = '\0';
	}
	*ret = s;
	return 0;
}

/* ---- doing ---- */

static int run_script(const char *home, const char *action, const char *arg, size_t said_max,
	struct buf *out, struct err *e)
{
	char script[KEEPER_PATH];
	const char *const argv[] = {"/bin/sh", script, action, arg, NULL};
	struct external_spec spec = {.argv = argv, .limit_ms = DO_MS, .said_max = said_max};
	int r = keeper_path(home, ".sh", script, e);

	return r < 0 ? r : external_run(&spec, out, e);
}

static int not_installed(struct err *e)
{
	return err_set(e, -ENOENT, "no keeper is installed here; `queue keeper install` makes one");
}

int keeper_do(const char *home, const char *action, struct buf *out, struct err *e)
{
	char unit[KEEPER_PATH];

	switch (read_manager(home, unit)) {
	case KEEPER_SYSTEMD:
		return keeper_systemd_do(unit, action, out, e);
	case KEEPER_SHELL:
		return run_script(home, action, NULL, 0, out, e);
	default:
		return not_installed(e);
	}
}

int keeper_logs(const char *home, int64_t lines, struct buf *out, struct err *e)
{
	CLEANUP_FREE char *n = xasprintf("%" PRId64, lines);
	char unit[KEEPER_PATH];
	int r;

	switch (read_manager(home, unit)) {
	case KEEPER_SYSTEMD:
		return keeper_systemd_logs(unit, lines, out, e);
	case KEEPER_SHELL:
		r = run_script(home, "logs", n, LOG_BYTES, out, e);
		return r > 0 ? err_set(e, -EIO, "the log can't be read") : r;
	default:
		return not_installed(e);
	}
}

/* ---- installing ---- */

static int write_file(const char *home, const char *suffix, const char *text, size_t n, mode_t mode,
	struct err *e)
{
	char path[KEEPER_PATH];
	int r = keeper_path(home, suffix, path, e);

	if (r < 0)
		return r;
	r = fd_replace_at(AT_FDCWD, path, text, n, true);
	if (r == 0 && mode != 0600 && chmod(path, mode) < 0)
		r = -errno;
	return r < 0 ? err_sys(e, r, "%s can't be written", path) : 0;
}

static int write_manager(const char *home, enum keeper_manager m, const char *unit, struct err *e)
{
	CLEANUP_FREE char *text =
		m == KEEPER_SYSTEMD ? xasprintf("systemd\n%s\n", unit) : xstrdup("shell\n");

	return write_file(home, ".manager", text, strlen(text), 0600, e);
}

/* The one before is stopped and gone, or this says why not. */
static int leave(const char *home, const struct keeper_state *old, struct err *e)
{
	CLEANUP(buf_done) struct buf out = {0};
	int r = keeper_do(home, "stop", &out, e);

	if (r != 0) {
		size_t n = strcspn(buf_str(&out), "\n");

		return r < 0 ? r
			     : err_set(e, -EBUSY, "the %s keeper can't be stopped: %.*s",
				       keeper_manager_name(old->manager), (int)n, buf_str(&out));
	}
	if (old->manager == KEEPER_SYSTEMD)
		return keeper_systemd_remove(old->unit, e);
	return unlink(old->script) < 0 && errno != ENOENT
		       ? err_sys(e, -errno, "%s can't be removed", old->script)
		       : 0;
}

static int install_shell(const char *home, const struct keeper_spec *s, struct err *e)
{
	CLEANUP(buf_done) struct buf text = {0};
	struct keeper_spec spec = *s;
	char token[KEEPER_TOKEN];
	int r;

	random_hex(16, token);
	spec.token = token;
	keeper_script(&spec, &text);
	r = write_manager(home, KEEPER_SHELL, NULL, e);
	return r < 0 ? r : write_file(home, ".sh", text.data, text.len, 0755, e);
}

static int install_systemd(
	const char *home, const struct keeper_spec *s, struct keeper_installed *ret, struct err *e)
{
	CLEANUP(buf_done) struct buf name = {0};
	const char *user_home = getenv("HOME");
	char unit[KEEPER_PATH];
	int r;

	keeper_unit_name(s->env_home, home, user_home ? user_home : "", &name);
	r = keeper_systemd_path(buf_str(&name), unit, e);
	if (r == 0)
		r = keeper_systemd_install(s, unit, e);
	if (r == 0)
		r = write_manager(home, KEEPER_SYSTEMD, unit, e);
	if (r == 0 && !keeper_systemd_lingers())
		snprintf(ret->advice, sizeof(ret->advice),
			"it ends with your last login and doesn't start with the machine; `loginctl enable-linger` changes both");
	return r;
}

static void begin(const char *home, bool is_up, struct keeper_installed *ret)
{
	CLEANUP(buf_done) struct buf out = {0};
	struct err e = {0};
	int r = keeper_do(home, is_up ? "restart" : "start", &out, &e);

	ret->started = r == 0;
	while (out.len && out.data[out.len - 1] == '\n')
		out.data[--out.len] = '\0';
	if (r != 0)
		snprintf(ret->start_error, sizeof(ret->start_error), "%.*s",
			(int)sizeof(ret->start_error) - 1, r < 0 ? e.text : buf_str(&out));
}

int keeper_install(const char *home, const struct keeper_install *o, struct keeper_installed *ret,
	struct err *e)
{
	enum keeper_manager manager = o->systemd ? KEEPER_SYSTEMD : KEEPER_SHELL;
	struct keeper_spec spec = {.home = home,
		.program = o->program,
		.env_home = o->env_home,
		.interval_s = o->interval_s};
	struct keeper_state old = {0};
	int r = keeper_check_path("the home", home, e);

	*ret = (struct keeper_installed){0};
	if (r == 0)
		r = keeper_check_path("the program", o->program, e);
	if (r == 0 && access(o->program, X_OK) < 0)
		r = err_sys(e, -errno, "%s can't be executed", o->program);
	if (r == 0 && o->systemd)
		r = keeper_systemd_reach(e);
	if (r == 0)
		r = fd_mkdirs(home, e);
	if (r == 0)
		r = keeper_state(home, &old, e);
	if (r == 0 && old.installed && old.manager != manager)
		r = leave(home, &old, e);
	if (r < 0)
		return r;
	ret->replaced = old.installed;
	r = o->systemd ? install_systemd(home, &spec, ret, e) : install_shell(home, &spec, e);
	if (r == 0 && o->start)
		begin(home, old.running && old.manager == manager, ret);
	else if (r == 0 && old.running && old.manager == manager)
		snprintf(ret->advice, sizeof(ret->advice),
			"the one that's running was started before; `queue keeper restart` lets this one take over");
	return r;
}
