/* How each channel is reached: alerts.log by our own hand, all others by a child that may hang. */
#include "svc/notify_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/sys.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

const struct notify_limits notify_limits = {.ms = {[NOTIFY_DESKTOP] = 10000,
						    [NOTIFY_COMMAND] = 30000,
						    [NOTIFY_WEBHOOK] = 20000,
						    [NOTIFY_EMAIL] = 30000}};

const char *notify_channel_name(enum notify_channel c)
{
	static const char *const names[] = {[NOTIFY_LOG] = "log",
		[NOTIFY_DESKTOP] = "desktop",
		[NOTIFY_COMMAND] = "command",
		[NOTIFY_WEBHOOK] = "webhook",
		[NOTIFY_EMAIL] = "email"};

	return names[c];
}

void notify_host(char ret[NOTIFY_HOST_LEN])
{
	if (gethostname(ret, NOTIFY_HOST_LEN - 1) < 0)
		snprintf(ret, NOTIFY_HOST_LEN, "localhost");
	ret[NOTIFY_HOST_LEN - 1] = '\0';
	for (char *p = ret; *p; p++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-", *p))
			*p = '-';
}

bool notify_is_on(const struct notify_settings *s, enum notify_channel c)
{
	switch (c) {
	case NOTIFY_LOG:
		return s->enabled && s->log;
	case NOTIFY_DESKTOP:
		return s->enabled && s->desktop;
	case NOTIFY_COMMAND:
		return s->enabled && s->command;
	case NOTIFY_WEBHOOK:
		return s->enabled && s->webhook.url;
	case NOTIFY_EMAIL:
		return s->enabled && s->email;
	default:
		return false;
	}
}

/* Most queues lie on machines without a desktop, and `desktop` is on unless it's turned off. */
bool notify_has_desktop(const char **ret_why)
{
	const char *bus = getenv("DBUS_SESSION_BUS_ADDRESS"), *dir = getenv("XDG_RUNTIME_DIR");
	CLEANUP_FREE char *path = xasprintf("%s/bus", dir ? dir : "");
	CLEANUP(buf_done) struct buf found = {0};

	*ret_why = NULL;
	if (!external_find("notify-send", NULL, &found))
		*ret_why = "there's no program notify-send here";
	else if (!(bus && *bus) && !(dir && *dir && access(path, F_OK) == 0))
		*ret_why = "there's no desktop session here (no D-Bus session bus)";
	return !*ret_why;
}

/* ---- alerts.log ---- */

static int put_aside(const char *path)
{
	CLEANUP_FREE char *old = xasprintf("%s.1", path);

	return rename(path, old) < 0 ? -errno : 0;
}

int notify_log(const char *home, const struct buf *lines, struct err *e)
{
	CLEANUP_FREE char *path = xasprintf("%s/alerts.log", home);
	CLEANUP_CLOSE int fd = -1;
	struct sys_stat st;
	int r = sys_stat_at(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, &st);

	if (r == 0 && !S_ISREG(st.mode))
		return err_set(e, -EINVAL, "%s isn't a plain file", path);
	if (r == 0 && st.size > NOTIFY_LOG_MAX)
		r = put_aside(path);
	if (r < 0 && r != -ENOENT)
		return err_sys(e, r, "%s can't be put aside", path);
	fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	if (fd < 0)
		return err_sys(e, -errno, "%s can't be opened", path);
	r = fd_write_all(fd, buf_str(lines), lines->len);
	if (r == 0 && fdatasync(fd) < 0)
		r = -errno;
	return r < 0 ? err_sys(e, r, "%s can't be written", path) : 0;
}

/* ---- the others ---- */

static int start_desktop(struct external_spec spec, struct event_base *base,
	const struct notify_how *how, const struct notify_message *m,
	void (*ended)(void *arg, const struct external_end *end), void *arg, struct external **ret,
	struct err *e)
{
	CLEANUP(buf_done) struct buf body = {0};
	CLEANUP_FREE char *title = xasprintf("%s: %s", how->program, m->title);
	const char *argv[] = {"notify-send", "-a", how->program, "-u",
		m->severity == ALERT_ERROR ? "critical" : "normal", "--", title, NULL, NULL};

	notify_desktop_body(m, &body);
	argv[7] = buf_str(&body);
	spec.argv = argv;
	return external_new(base, &spec, ended, arg, ret, e);
}

static int start_email(struct external_spec spec, struct event_base *base,
	const struct notify_how *how, const struct notify_message *m,
	void (*ended)(void *arg, const struct external_end *end), void *arg, struct external **ret,
	struct err *e)
{
	CLEANUP(buf_done) struct buf mail = {0}, path = {0};
	const char *argv[] = {NULL, "-t", "-i", NULL};

	if (!external_find("sendmail", "/usr/sbin:/usr/lib", &path))
		return err_set(e, -ENOENT,
			"there's no program \"sendmail\" on PATH, in /usr/sbin or /usr/lib; a mail server's package or msmtp brings one");
	argv[0] = buf_str(&path);
	notify_mail(how->settings, how->program, how->host, m, &mail);
	spec.argv = argv;
	spec.in = &mail;
	return external_new(base, &spec, ended, arg, ret, e);
}

/* Address and headers, which may be secret, go by its stdin: a command line can be read by everyone on the machine. */
static int start_webhook(struct external_spec spec, struct event_base *base,
	const struct notify_how *how, const struct notify_message *m,
	void (*ended)(void *arg, const struct external_end *end), void *arg, struct external **ret,
	struct err *e)
{
	static const char *const argv[] = {"curl", "-q", "-K", "-", NULL};
	CLEANUP(buf_done) struct buf config = {0}, body = {0};

	notify_webhook(how->settings, how->program, m, spec.limit_ms, &config, &body);
	spec.argv = argv;
	spec.in = &config;
	spec.more = &body;
	return external_new(base, &spec, ended, arg, ret, e);
}

static int start_command(struct external_spec spec, struct event_base *base,
	const struct notify_how *how, const struct notify_message *m,
	void (*ended)(void *arg, const struct external_end *end), void *arg, struct external **ret,
	struct err *e)
{
	CLEANUP(buf_done) struct buf in = {0};
	const char *argv[] = {"sh", "-c", how->settings->command, NULL};

	buf_printf(&in, "%s\n", m->json);
	spec.argv = argv;
	spec.in = &in;
	return external_new(base, &spec, ended, arg, ret, e);
}

int notify_start(struct event_base *base, const struct notify_how *how, enum notify_channel c,
	const struct notify_message *m, int64_t limit_ms,
	void (*ended)(void *arg, const struct external_end *end), void *arg, struct external **ret,
	struct err *e)
{
	struct external_spec spec = {.dir = how->home, .limit_ms = limit_ms};

	switch (c) {
	case NOTIFY_DESKTOP:
		return start_desktop(spec, base, how, m, ended, arg, ret, e);
	case NOTIFY_COMMAND:
		return start_command(spec, base, how, m, ended, arg, ret, e);
	case NOTIFY_WEBHOOK:
		return start_webhook(spec, base, how, m, ended, arg, ret, e);
	case NOTIFY_EMAIL:
		return start_email(spec, base, how, m, ended, arg, ret, e);
	default:
		return err_set(e, -EINVAL, "%s has no child", notify_channel_name(c));
	}
}

/* What the bus itself answers where no program shows notifications; it isn't translated. */
static bool is_nobody(const char *said)
{
	return strstr(said, "ServiceUnknown") || strstr(said, "not provided by any .service") ||
	       strstr(said, "Could not connect") || strstr(said, "Cannot autolaunch");
}

/* What the receiver answered, which curl says last; 0: nothing. A body that doesn't come to its end changes nothing of it. */
static int http_code(const struct external_end *end)
{
	size_t n = strlen(end->said), word = strlen("HTTP 200");
	const char *at = n >= word ? end->said + n - word : "";

	return strncmp(at, "HTTP ", 5) != 0 || strspn(at + 5, "0123456789") != 3
		       ? 0
		       : (at[5] - '0') * 100 + (at[6] - '0') * 10 + at[7] - '0';
}

static void put_webhook(const struct external_end *end, int code, int64_t limit_ms, struct buf *why)
{
	size_t n = strlen(end->said), none = strlen("HTTP 000");
	CLEANUP_FREE char *text = NULL;
	struct external_end shown = *end;

	if (code >= 300 && code < 400) {
		buf_printf(why,
			"the webhook answered HTTP %d, a redirection, and these aren't followed; set the address where it leads",
			code);
		return;
	}
	if (code >= 100) {
		buf_printf(why, "the webhook answered HTTP %d", code);
		return;
	}
	/* Of no answer there's no code. */
	text = n >= none && !strcmp(end->said + n - none, "HTTP 000")
		       ? xstrndup(end->said, n - none)
		       : xstrdup(end->said);
	shown.said = text;
	buf_puts(why, "curl ");
	external_put_end(&shown, limit_ms, why);
}

enum notify_verdict notify_judge(
	enum notify_channel c, const struct external_end *end, int64_t limit_ms, struct buf *why)
{
	static const char *const programs[] = {[NOTIFY_DESKTOP] = "notify-send",
		[NOTIFY_COMMAND] = "the command",
		[NOTIFY_WEBHOOK] = "curl",
		[NOTIFY_EMAIL] = "sendmail"};
	bool is_good = !end->is_late && WIFEXITED(end->status) && WEXITSTATUS(end->status) == 0;
	int code = c == NOTIFY_WEBHOOK ? http_code(end) : 0;

	if (c == NOTIFY_WEBHOOK ? code >= 200 && code < 300 : is_good) {
		buf_printf(why, "%s took it", c == NOTIFY_WEBHOOK ? "the webhook" : programs[c]);
		return NOTIFY_TAKEN;
	}
	if (c == NOTIFY_DESKTOP && !end->is_late && is_nobody(end->said)) {
		buf_puts(why, "no program shows notifications on this desktop");
		return NOTIFY_NOBODY;
	}
	if (c == NOTIFY_WEBHOOK) {
		put_webhook(end, code, limit_ms, why);
		return NOTIFY_FAILED;
	}
	buf_printf(why, "%s ", programs[c]);
	external_put_end(end, limit_ms, why);
	return NOTIFY_FAILED;
}
