/* An alert as words and as JSON, alone or with others. Pure. What comes from outside is clean and bounded here. */
#include "svc/notify_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "queue/record_json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { TITLE_MAX = 300, DETAIL_MAX = 3000, LISTED_MAX = 30 };

void notify_message_done(struct notify_message *m)
{
	free(m->uid);
	free(m->title);
	free(m->text);
	free(m->json);
	*m = (struct notify_message){0};
}

/* One line, whatever it was; cut between characters. */
static void put_line(struct buf *b, const char *s, size_t max)
{
	CLEANUP(buf_done) struct buf raw = {0}, clean = {0};
	size_t n;

	for (; *s && raw.len < 4 * max; s++) {
		bool is_blank = strchr(" \t\r\n", *s) != NULL;

		if (!is_blank)
			buf_putc(&raw, *s);
		else if (raw.len && raw.data[raw.len - 1] != ' ')
			buf_putc(&raw, ' ');
	}
	text_put_clean(&clean, buf_str(&raw), raw.len);
	n = clean.len;
	if (n > max)
		n = utf8_valid_len(buf_str(&clean), max);
	buf_put(b, buf_str(&clean), n);
	if (n < clean.len)
		buf_puts(b, "...");
}

/* The end of a job's output, line by line. */
static void put_detail(struct buf *b, const char *detail)
{
	size_t n = strlen(detail), from = n > DETAIL_MAX ? n - DETAIL_MAX : 0;
	const char *p = detail + from;

	if (from) {
		const char *next = strchr(p, '\n');

		p = next && next[1] ? next + 1 : p;
		buf_puts(b, "[...]\n");
	}
	while (*p) {
		n = strcspn(p, "\n");
		text_put_clean(b, p, n);
		buf_putc(b, '\n');
		p += n + (p[n] == '\n');
	}
}

static void put_place(struct buf *b, const struct store_alert *a)
{
	if (a->job)
		buf_printf(b, ", job %" PRId64, a->job);
	if (a->node) {
		buf_puts(b, ", node ");
		put_line(b, a->node, TITLE_MAX);
	}
}

static void put_words(
	struct buf *b, const char *host, const char *program, const struct store_alert *a)
{
	char time[RECORD_TIME_LEN];

	record_time_text(a->ts_ms, time);
	put_line(b, a->title ? a->title : "", TITLE_MAX);
	buf_printf(b, "\n\n%s (%s)", alert_severity_name(alert_kind_severity(a->kind)),
		alert_kind_name(a->kind));
	put_place(b, a);
	buf_printf(b, "\n%s, queue on %s\n", time, host);
	if (a->detail && *a->detail) {
		buf_putc(b, '\n');
		put_detail(b, a->detail);
	}
	buf_printf(b,
		"\n`%s queue alerts --detail` shows it, `%s queue ack %" PRId64 "` puts it away.\n",
		program, program, a->id);
}

static json_t *alert_json(const char *queue, const char *host, const struct store_alert *a)
{
	CLEANUP_FREE char *uid = xasprintf("%s-%" PRId64, queue, a->id);
	json_t *o = record_alert(a);

	json_object_set_new(o, "uid", json_string(uid));
	json_object_set_new(o, "queue", json_string(queue));
	json_object_set_new(o, "host", json_string(host));
	return o;
}

static char *take_json(json_t *o)
{
	char *text = json_dumps(o, JSON_COMPACT);

	json_decref(o);
	return text ? text : xstrdup("{}");
}

void notify_message_one(const char *queue, const char *host, const char *program,
	const struct store_alert *a, struct notify_message *ret)
{
	struct buf title = {0}, text = {0};

	put_line(&title, a->title ? a->title : "", TITLE_MAX);
	put_words(&text, host, program, a);
	*ret = (struct notify_message){.uid = xasprintf("%s-%" PRId64, queue, a->id),
		.severity = alert_kind_severity(a->kind),
		.json = take_json(alert_json(queue, host, a)),
		.ts_ms = a->ts_ms};
	buf_printf(&text, "%s\n", ret->uid);
	ret->title = buf_take(&title);
	ret->text = buf_take(&text);
}

static json_t *many_json(const char *queue, const char *host, const struct store_alert *const *v,
	size_t n, const struct notify_message *m)
{
	json_t *list = json_array();

	for (size_t i = 0; i < n; i++) {
		json_t *o = alert_json(queue, host, v[i]);

		json_object_del(o, "detail");
		json_array_append_new(list, o);
	}
	return json_pack("{s:n, s:o, s:s, s:s, s:n, s:n, s:s, s:s, s:s, s:s, s:s, s:o}", "id", "ts",
		record_time(m->ts_ms), "kind", "digest", "severity",
		alert_severity_name(m->severity), "job_id", "node", "title", m->title, "detail",
		m->text, "uid", m->uid, "queue", queue, "host", host, "alerts", list);
}

void notify_message_many(const char *queue, const char *host, const char *program,
	const struct store_alert *const *v, size_t n, struct notify_message *ret)
{
	struct buf text = {0};
	size_t errors = 0;

	*ret = (struct notify_message){.uid = xasprintf("%s-%" PRId64 "-%" PRId64 "-%zu", queue,
					       v[0]->id, v[n - 1]->id, n),
		.severity = ALERT_WARNING,
		.ts_ms = v[n - 1]->ts_ms};
	for (size_t i = 0; i < n; i++)
		errors += alert_kind_severity(v[i]->kind) == ALERT_ERROR;
	if (errors)
		ret->severity = ALERT_ERROR;
	ret->title = xasprintf("%zu alerts, %zu of them errors", n, errors);
	buf_printf(&text, "%s, queue on %s\n\n", ret->title, host);
	for (size_t i = 0; i < n && i < LISTED_MAX; i++) {
		char time[RECORD_TIME_LEN];

		record_time_text(v[i]->ts_ms, time);
		buf_printf(&text, "%" PRId64 ": %s %s: ", v[i]->id, time,
			alert_severity_name(alert_kind_severity(v[i]->kind)));
		put_line(&text, v[i]->title ? v[i]->title : "", TITLE_MAX);
		put_place(&text, v[i]);
		buf_putc(&text, '\n');
	}
	if (n > LISTED_MAX)
		buf_printf(&text, "and %zu more\n", n - LISTED_MAX);
	buf_printf(&text,
		"\n`%s queue alerts` lists them, `%s queue ack --all` puts them away.\n%s\n",
		program, program, ret->uid);
	ret->text = buf_take(&text);
	ret->json = take_json(many_json(queue, host, v, n, ret));
}

void notify_message_test(const char *queue, const char *host, const char *program, int64_t now_ms,
	struct notify_message *ret)
{
	CLEANUP_FREE char *title = xasprintf("a test of %s's notifications", program);
	json_t *o = json_object();

	*ret = (struct notify_message){.uid = xasprintf("%s-test-%" PRId64, queue, now_ms),
		.severity = ALERT_WARNING,
		.title = xstrdup(title),
		.ts_ms = now_ms};
	ret->text =
		xasprintf("%s\n\nNothing is wrong: `%s queue notify test` on %s sent this.\n%s\n",
			title, program, host, ret->uid);
	json_object_set_new(o, "id", json_null());
	json_object_set_new(o, "ts", record_time(now_ms));
	json_object_set_new(o, "kind", json_string("test"));
	json_object_set_new(o, "severity", json_string(alert_severity_name(ret->severity)));
	json_object_set_new(o, "job_id", json_null());
	json_object_set_new(o, "node", json_null());
	json_object_set_new(o, "title", json_string(title));
	json_object_set_new(o, "detail", json_null());
	json_object_set_new(o, "uid", json_string(ret->uid));
	json_object_set_new(o, "queue", json_string(queue));
	json_object_set_new(o, "host", json_string(host));
	ret->json = take_json(o);
}
