/* The script and the unit as text. Pure. */
#include "svc/keeper_inner.h"

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* queue-keeper.sh.in, put into the program by the build, with a NUL behind it. */
extern const char keeper_template[];

int keeper_check_path(const char *what, const char *path, struct err *e)
{
	CLEANUP(buf_done) struct buf q = {0};
	bool is_clean = true;

	for (const char *p = path; *p; p++)
		is_clean &= (unsigned char)*p >= ' ' && *p != 0x7f;
	if (path[0] == '/' && is_clean)
		return 0;
	text_put_repr(&q, path, strnlen(path, 200));
	return err_set(e, -EINVAL,
		"%s %s won't do; it has to be absolute, without control characters", what,
		buf_str(&q));
}

static void put_quoted(struct buf *b, const char *s)
{
	buf_putc(b, '\'');
	for (; *s; s++) {
		if (*s == '\'')
			buf_puts(b, "'\\''");
		else
			buf_putc(b, *s);
	}
	buf_putc(b, '\'');
}

/* "GPUSTOW_HOME" is of "GPUSTOW_", and of gpustow. */
static size_t prefix_len(const char *env_home)
{
	const char *end = strrchr(env_home, '_');

	return end ? (size_t)(end - env_home) + 1 : 0;
}

static void put_name(struct buf *b, const char *env_home)
{
	size_t n = prefix_len(env_home);

	for (size_t i = 0; i + 1 < n; i++)
		buf_putc(b, (char)(env_home[i] | 0x20));
}

/* A word of the template between two '@'. False: it's no such word. */
static bool put_word(const struct keeper_spec *s, const char *word, size_t n, struct buf *ret)
{
	CLEANUP(buf_done) struct buf w = {0};

	buf_put(&w, word, n);
	if (!strcmp(buf_str(&w), "HOME"))
		put_quoted(ret, s->home);
	else if (!strcmp(buf_str(&w), "PROGRAM"))
		put_quoted(ret, s->program);
	else if (!strcmp(buf_str(&w), "INTERVAL"))
		buf_printf(ret, "%" PRId64, s->interval_s);
	else if (!strcmp(buf_str(&w), "TOKEN"))
		buf_puts(ret, s->token);
	else if (!strcmp(buf_str(&w), "NAME"))
		put_name(ret, s->env_home);
	else if (!strcmp(buf_str(&w), "ENV_HOME"))
		buf_puts(ret, s->env_home);
	else if (!strcmp(buf_str(&w), "PREFIX"))
		buf_put(ret, s->env_home, prefix_len(s->env_home));
	else
		return false;
	return true;
}

void keeper_script(const struct keeper_spec *s, struct buf *ret)
{
	const char *p = keeper_template, *at, *end;

	while ((at = strchr(p, '@')) && (end = strchr(at + 1, '@'))) {
		buf_put(ret, p, (size_t)(at - p));
		p = end + 1;
		if (!put_word(s, at + 1, (size_t)(end - at - 1), ret)) {
			buf_putc(ret, '@');
			p = at + 1;
		}
	}
	buf_puts(ret, p);
}

/* Within double quotes of a unit: systemd's own escapes and specifiers are made plain; `$` means something in ExecStart only. */
static void put_unit_quoted(struct buf *b, const char *before, const char *s, bool is_exec)
{
	buf_printf(b, "\"%s", before);
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			buf_putc(b, '\\');
		else if (*s == '%' || (*s == '$' && is_exec))
			buf_putc(b, *s);
		buf_putc(b, *s);
	}
	buf_putc(b, '"');
}

/*
 * Only the daemon itself is ended with the unit: agents and jobs of this machine may have been started from it, and stay. For
 * the same reason neither a job's memory nor how many processes it has is the unit's business.
 */
void keeper_unit(const struct keeper_spec *s, struct buf *ret)
{
	CLEANUP(buf_done) struct buf name = {0}, before = {0};

	put_name(&name, s->env_home);
	buf_printf(&before, "%s=", s->env_home);
	buf_printf(ret,
		"# Written by `%s queue keeper install --systemd`, which also replaces it.\n[Unit]\n"
		"Description=%s's queue of GPU jobs\nStartLimitIntervalSec=0\n\n[Service]\nType=notify\nNotifyAccess=main\n"
		"WatchdogSec=300\nTimeoutStartSec=120\nEnvironment=",
		buf_str(&name), buf_str(&name));
	put_unit_quoted(ret, buf_str(&before), s->home, false);
	buf_puts(ret, "\nExecStart=");
	/* systemd takes no program with a quote or a backslash in its path. */
	if (strpbrk(s->program, "'\"\\"))
		buf_puts(ret, "/bin/sh -c \"exec \\\"$$0\\\" \\\"$$@\\\"\" ");
	put_unit_quoted(ret, "", s->program, true);
	buf_printf(ret, " queue daemon --interval %" PRId64 "\nRestart=always\nRestartSec=5\n",
		s->interval_s);
	if (s->has_steps)
		buf_puts(ret, "RestartSteps=6\nRestartMaxDelaySec=300\n");
	buf_puts(ret,
		"TimeoutStopSec=30\nKillMode=process\nOOMPolicy=continue\nTasksMax=infinity\n\n"
		"[Install]\nWantedBy=default.target\n");
}

void keeper_unit_name(
	const char *env_home, const char *home, const char *user_home, struct buf *ret)
{
	CLEANUP(buf_done) struct buf name = {0}, usual = {0};
	uint8_t sum[20];
	char hex[9];

	put_name(&name, env_home);
	buf_printf(&usual, "%s/.%s", user_home, buf_str(&name));
	buf_printf(ret, "%s-queue", buf_str(&name));
	if (strcmp(buf_str(&usual), home) != 0) {
		sha1(home, strlen(home), sum);
		hex_encode(sum, 4, hex);
		buf_printf(ret, "-%s", hex);
	}
	buf_puts(ret, ".service");
}
