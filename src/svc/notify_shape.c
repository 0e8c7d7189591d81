/*
 * What each channel is given: curl's configuration and body, a mail, a notification's markup. Pure. A title can never make
 * a header, an option or a tag of its own.
 */
#include "svc/notify_inner.h"

#include "base/cleanup.h"
#include "base/text.h"

#include <jansson.h>
#include <string.h>
#include <time.h>

enum { WORD_BYTES = 45, BASE64_LINE = 57, DESKTOP_MAX = 400 };

static void put_base64(struct buf *b, const char *s, size_t n)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const unsigned char *p = (const unsigned char *)s;

	for (size_t i = 0; i < n; i += 3) {
		uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) |
			     (i + 2 < n ? p[i + 2] : 0);

		buf_putc(b, digits[v >> 18]);
		buf_putc(b, digits[v >> 12 & 63]);
		buf_putc(b, i + 1 < n ? digits[v >> 6 & 63] : '=');
		buf_putc(b, i + 2 < n ? digits[v & 63] : '=');
	}
}

static bool is_plain(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < ' ' || (unsigned char)*s > '~')
			return false;
	return true;
}

void notify_put_header(struct buf *b, const char *s, const char *between)
{
	CLEANUP(buf_done) struct buf clean = {0};
	size_t at = 0;

	/* "=?" would be read as an encoded word. */
	if (is_plain(s) && !strstr(s, "=?")) {
		buf_puts(b, s);
		return;
	}
	text_put_clean(&clean, s, strlen(s));
	while (at < clean.len) {
		size_t n = clean.len - at;

		if (n > WORD_BYTES)
			n = utf8_valid_len(clean.data + at, WORD_BYTES);
		buf_printf(b, "%s=?UTF-8?B?", at ? between : "");
		put_base64(b, clean.data + at, n);
		buf_puts(b, "?=");
		at += n;
	}
}

/* ---- webhook ---- */

/* A value of curl's configuration, in quotes. It has no control bytes. */
static void put_quoted(struct buf *b, const char *key, const char *value, size_t n)
{
	buf_printf(b, "%s = \"", key);
	for (size_t i = 0; i < n; i++) {
		if (value[i] == '"' || value[i] == '\\')
			buf_putc(b, '\\');
		buf_putc(b, value[i]);
	}
	buf_puts(b, "\"\n");
}

static void put_setting(struct buf *b, const char *key, const char *value)
{
	put_quoted(b, key, value, strlen(value));
}

/* Slack's own three. */
static void slack_body(const struct notify_message *m, struct buf *body)
{
	CLEANUP(buf_done) struct buf text = {0};
	CLEANUP_FREE char *json = NULL;
	json_t *o;

	for (const char *p = m->text; *p; p++) {
		if (*p == '&')
			buf_puts(&text, "&amp;");
		else if (*p == '<')
			buf_puts(&text, "&lt;");
		else if (*p == '>')
			buf_puts(&text, "&gt;");
		else
			buf_putc(&text, *p);
	}
	o = json_pack("{s:s}", "text", buf_str(&text));
	json = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	buf_puts(body, json ? json : "{}");
}

static void ntfy_headers(const char *program, const struct notify_message *m, struct buf *config)
{
	CLEANUP(buf_done) struct buf title = {0};

	buf_printf(&title, "Title: %s: ", program);
	notify_put_header(&title, m->title, " ");
	put_setting(config, "header", buf_str(&title));
	put_setting(config, "header", m->severity == ALERT_ERROR ? "Priority: 4" : "Priority: 3");
	put_setting(config, "header",
		m->severity == ALERT_ERROR ? "Tags: rotating_light" : "Tags: warning");
	put_setting(config, "header", "Content-Type: text/plain; charset=utf-8");
}

void notify_webhook(const struct notify_settings *s, const char *program,
	const struct notify_message *m, int64_t limit_ms, struct buf *config, struct buf *body)
{
	buf_puts(config, "silent\nshow-error\nfail\ngloboff\n");
	put_setting(config, "proto", "=http,https");
	/* It ends by itself before it would be ended, and says why. */
	buf_printf(config, "max-time = %.3f\n", (double)limit_ms * 0.9 / 1000);
	put_setting(config, "output", "/dev/null");
	put_setting(config, "write-out", "HTTP %{http_code}");
	put_setting(config, "user-agent", program);
	put_setting(config, "data-binary", "@/proc/self/fd/3");
	put_setting(config, "url", s->webhook.url);
	if (s->webhook.shape == WEBHOOK_NTFY) {
		ntfy_headers(program, m, config);
		buf_puts(body, m->text);
	} else {
		put_setting(config, "header", "Content-Type: application/json");
		if (s->webhook.shape == WEBHOOK_SLACK)
			slack_body(m, body);
		else
			buf_puts(body, m->json);
	}
	for (const char *h = s->webhook.header; h && *h;) {
		size_t n = strcspn(h, "\n");

		put_quoted(config, "header", h, n);
		h += n + (h[n] == '\n');
	}
}

/* ---- e-mail ---- */

static void put_date(struct buf *b, int64_t ms)
{
	static const char *const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
	static const char *const months[] = {
		"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
	time_t t = (time_t)(ms / 1000);
	struct tm tm;

	if (!gmtime_r(&t, &tm))
		return;
	buf_printf(b, "Date: %s, %d %s %d %02d:%02d:%02d +0000\n", days[tm.tm_wday], tm.tm_mday,
		months[tm.tm_mon], tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
}

/* A folded list: one address a line. */
static void put_to(struct buf *b, const char *email)
{
	buf_puts(b, "To: ");
	for (const char *p = email; *p;) {
		size_t n = strcspn(p, "\n");

		buf_printf(b, "%s%.*s", p == email ? "" : ",\n ", (int)n, p);
		p += n + (p[n] == '\n');
	}
	buf_putc(b, '\n');
}

void notify_mail(const struct notify_settings *s, const char *program, const char *host,
	const struct notify_message *m, struct buf *ret)
{
	size_t n = strlen(m->text);

	put_to(ret, s->email);
	buf_printf(ret, "Subject: [%s] %s: ", program, alert_severity_name(m->severity));
	notify_put_header(ret, m->title, "\n ");
	buf_putc(ret, '\n');
	put_date(ret, m->ts_ms);
	/* The same each time it's sent, so that a mailbox may drop the second one. */
	buf_printf(ret, "Message-ID: <%s@%s>\nX-Gpustow-Alert: %s\n", m->uid, host, m->uid);
	buf_puts(ret,
		"Auto-Submitted: auto-generated\nMIME-Version: 1.0\n"
		"Content-Type: text/plain; charset=UTF-8\nContent-Transfer-Encoding: base64\n\n");
	for (size_t i = 0; i < n; i += BASE64_LINE) {
		put_base64(ret, m->text + i, n - i < BASE64_LINE ? n - i : BASE64_LINE);
		buf_putc(ret, '\n');
	}
}

/* ---- desktop ---- */

void notify_desktop_body(const struct notify_message *m, struct buf *ret)
{
	const char *text = strstr(m->text, "\n\n");
	size_t n = text ? utf8_valid_len(text + 2, strnlen(text + 2, DESKTOP_MAX)) : 0;

	for (size_t i = 0; i < n; i++) {
		char c = text[2 + i];

		if (c == '&')
			buf_puts(ret, "&amp;");
		else if (c == '<')
			buf_puts(ret, "&lt;");
		else if (c == '>')
			buf_puts(ret, "&gt;");
		else
			buf_putc(ret, c);
	}
	while (ret->len && ret->data[ret->len - 1] == '\n')
		ret->data[--ret->len] = '\0';
	if (!strstr(buf_str(ret), m->uid))
		buf_printf(ret, "\n%s", m->uid);
}
