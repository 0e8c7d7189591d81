/* Notify's pure parts: back-off, quiet hours, messages, what each channel is given, and the state file there and back. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "svc/notify_inner.h"

#define MINUTE 60000LL
#define HOUR (60 * MINUTE)

static void backoff(void **state)
{
	static const int64_t minutes[] = {0, 1, 2, 5, 15, 60, 60, 60};

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(minutes); i++)
		assert_int_equal(notify_backoff_ms(i), minutes[i] * MINUTE);
	assert_int_equal(notify_backoff_ms(UINT32_MAX), HOUR);
	assert_true(notify_is_due(1000, 1000));
	assert_false(notify_is_due(1001, 1000));
	assert_false(notify_is_due(1000 + HOUR, 1000));
	/* The clock was set back. */
	assert_true(notify_is_due(1001 + HOUR, 1000));
}

/* 2026-03-28 in Berlin; the clocks go forward in the night. */
static int64_t berlin(int day, int hour, int minute)
{
	struct tm tm = {.tm_year = 126,
		.tm_mon = 2,
		.tm_mday = day,
		.tm_hour = hour,
		.tm_min = minute,
		.tm_isdst = -1};

	return (int64_t)mktime(&tm) * 1000;
}

static void quiet_hours(void **state)
{
	static const struct {
		const char *hours;
		int day, hour, minute;
		bool is_quiet;
		int end_day, end_hour, end_minute;
	} rows[] = {
		{"22:00-07:00", 27, 21, 59, false, 0, 0, 0},
		{"22:00-07:00", 27, 22, 0, true, 28, 7, 0},
		{"22:00-07:00", 27, 23, 59, true, 28, 7, 0},
		{"22:00-07:00", 28, 0, 0, true, 28, 7, 0},
		{"22:00-07:00", 28, 6, 59, true, 28, 7, 0},
		{"22:00-07:00", 28, 7, 0, false, 0, 0, 0},
		{"22:00-07:00", 28, 23, 0, true, 29, 7, 0}, /* seven hours, not eight */
		{"22:00-07:00", 31, 22, 30, true, 32, 7, 0}, /* into the next month */
		{"12:30-13:15", 27, 12, 29, false, 0, 0, 0},
		{"12:30-13:15", 27, 12, 30, true, 27, 13, 15},
		{"12:30-13:15", 27, 13, 14, true, 27, 13, 15},
		{"12:30-13:15", 27, 13, 15, false, 0, 0, 0},
		{NULL, 27, 3, 0, false, 0, 0, 0},
	};

	(void)state;
	setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3", 1);
	tzset();
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		int64_t end = -1;
		bool is_quiet = notify_is_quiet(
			rows[i].hours, berlin(rows[i].day, rows[i].hour, rows[i].minute), &end);

		if (is_quiet != rows[i].is_quiet)
			fail_msg("row %zu", i);
		if (is_quiet)
			assert_int_equal(
				end, berlin(rows[i].end_day, rows[i].end_hour, rows[i].end_minute));
	}
	assert_int_equal(berlin(29, 7, 0) - berlin(28, 23, 0), 7 * HOUR);
}

static const struct store_alert evil = {.id = 12,
	.ts_ms = 1700000000000,
	.job = 3,
	.kind = ALERT_JOB_FAILED,
	.node = (char *)"n1",
	.title = (char *)"job 3\r\nBcc: all@example.org\n\x1b[31m<b>&\"\\ ende",
	.detail = (char *)"one\n\x1b]0;t\x07two\n"};

static void message(void **state)
{
	CLEANUP(notify_message_done) struct notify_message m;
	json_t *o;

	(void)state;
	notify_message_one("abc", "h", "gpustow", &evil, &m);
	assert_string_equal(m.uid, "abc-12");
	assert_int_equal(m.severity, ALERT_ERROR);
	assert_string_equal(m.title, "job 3 Bcc: all@example.org \xef\xbf\xbd[31m<b>&\"\\ ende");
	assert_non_null(strstr(m.text, "\nerror (job_failed), job 3, node n1\n"));
	assert_non_null(strstr(m.text, "\none\n\xef\xbf\xbd]0;t\xef\xbf\xbdtwo\n"));
	assert_non_null(strstr(m.text, "\nabc-12\n"));
	assert_null(strchr(m.text, '\x1b'));
	o = json_loads(m.json, 0, NULL);
	assert_int_equal(json_integer_value(json_object_get(o, "id")), 12);
	assert_string_equal(json_string_value(json_object_get(o, "uid")), "abc-12");
	assert_string_equal(json_string_value(json_object_get(o, "title")), evil.title);
	assert_null(strchr(m.json, '\n'));
	json_decref(o);
}

static void digest(void **state)
{
	CLEANUP(notify_message_done) struct notify_message m;
	struct store_alert v[40];
	const struct store_alert *all[40];
	json_t *o, *list;

	(void)state;
	for (int i = 0; i < 40; i++) {
		v[i] = evil;
		v[i].id = i + 1;
		v[i].kind = i < 39 ? ALERT_JOB_RETRIED : ALERT_NODE_DOWN;
		all[i] = &v[i];
	}
	notify_message_many("abc", "h", "gpustow", all, 40, &m);
	assert_string_equal(m.uid, "abc-1-40-40");
	assert_string_equal(m.title, "40 alerts, 1 of them errors");
	assert_int_equal(m.severity, ALERT_ERROR);
	assert_non_null(strstr(m.text, "\nand 10 more\n"));
	o = json_loads(m.json, 0, NULL);
	list = json_object_get(o, "alerts");
	assert_int_equal(json_array_size(list), 40);
	assert_string_equal(json_string_value(json_object_get(o, "kind")), "digest");
	assert_string_equal(json_string_value(json_object_get(o, "uid")), m.uid);
	assert_string_equal(
		json_string_value(json_object_get(json_array_get(list, 39), "uid")), "abc-40");
	assert_null(json_object_get(json_array_get(list, 0), "detail"));
	json_decref(o);
}

static void headers(void **state)
{
	static const struct {
		const char *text, *header;
	} rows[] = {
		{"plain text", "plain text"},
		{"a\nBcc: x", "=?UTF-8?B?Ye+/vUJjYzogeA==?="},
		{"Größe", "=?UTF-8?B?R3LDtsOfZQ==?="},
		{"=?UTF-8?B?eA==?=", "=?UTF-8?B?PT9VVEYtOD9CP2VBPT0/PQ==?="},
		/* 45 bytes a word, and no character cut in two: 44 and 2. */
		{"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaö",
			"=?UTF-8?B?YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=?=|=?UTF-8?B?w7Y=?="},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		CLEANUP(buf_done) struct buf b = {0};

		notify_put_header(&b, rows[i].text, "|");
		assert_string_equal(buf_str(&b), rows[i].header);
	}
}

static void mail(void **state)
{
	CLEANUP(notify_message_done) struct notify_message m;
	CLEANUP(buf_done) struct buf b = {0};
	struct notify_settings s = {.email = (char *)"ann@example.org\nbob"};
	static const char start[] =
		"To: ann@example.org,\n bob\nSubject: [gpustow] error: =?UTF-8?B?";
	const char *body;

	(void)state;
	notify_message_one("abc", "h", "gpustow", &evil, &m);
	notify_mail(&s, "gpustow", "h", &m, &b);
	assert_ptr_equal(strstr(buf_str(&b), start), buf_str(&b));
	assert_non_null(strstr(buf_str(&b), "\nMessage-ID: <abc-12@h>\n"));
	assert_non_null(strstr(buf_str(&b), "\nDate: Tue, 14 Nov 2023 22:13:20 +0000\n"));
	assert_null(strstr(buf_str(&b), "\nBcc:"));
	body = strstr(buf_str(&b), "\n\n");
	assert_non_null(body);
	assert_int_equal(
		strspn(body + 2,
			"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\n"),
		strlen(body + 2));
}

static void webhook(void **state)
{
	CLEANUP(notify_message_done) struct notify_message m;
	struct notify_settings s = {
		.webhook = {.url = (char *)"https://h.example/a?b=c",
			.header = (char *)"Authorization: Bearer \"s\\\nX-A: b"}};

	(void)state;
	notify_message_one("abc", "h", "gpustow", &evil, &m);
	for (int shape = WEBHOOK_PLAIN; shape <= WEBHOOK_NTFY; shape++) {
		CLEANUP(buf_done) struct buf config = {0}, body = {0};
		json_t *o;

		s.webhook.shape = (enum webhook_shape)shape;
		notify_webhook(&s, "gpustow", &m, 20000, &config, &body);
		assert_non_null(strstr(buf_str(&config), "\nurl = \"https://h.example/a?b=c\"\n"));
		assert_non_null(strstr(buf_str(&config),
			"\nheader = \"Authorization: Bearer \\\"s\\\\\"\nheader = \"X-A: b\"\n"));
		assert_non_null(strstr(buf_str(&config), "\nmax-time = 18.000\n"));
		assert_null(strstr(buf_str(&config), "\nBcc"));
		o = json_loads(buf_str(&body), 0, NULL);
		if (shape == WEBHOOK_PLAIN) {
			assert_string_equal(buf_str(&body), m.json);
		} else if (shape == WEBHOOK_SLACK) {
			const char *text = json_string_value(json_object_get(o, "text"));

			assert_int_equal(json_object_size(o), 1);
			assert_non_null(strstr(text, "&lt;b&gt;&amp;"));
			assert_non_null(strstr(text, "\nabc-12\n"));
		} else {
			assert_string_equal(buf_str(&body), m.text);
			assert_non_null(strstr(
				buf_str(&config), "\nheader = \"Title: gpustow: =?UTF-8?B?"));
			assert_non_null(strstr(buf_str(&config), "\nheader = \"Priority: 4\"\n"));
		}
		json_decref(o);
	}
}

static void desktop(void **state)
{
	CLEANUP(notify_message_done) struct notify_message m;
	CLEANUP(buf_done) struct buf b = {0};
	struct store_alert a = evil;

	(void)state;
	a.node = (char *)"<i>";
	notify_message_one("abc", "h", "gpustow", &a, &m);
	notify_desktop_body(&m, &b);
	assert_non_null(strstr(buf_str(&b), "node &lt;i&gt;"));
	assert_non_null(strstr(buf_str(&b), "abc-12"));
	assert_null(strchr(buf_str(&b), '<'));
}

static void state_file(void **state)
{
	CLEANUP(notify_state_done) struct notify_state s = {0}, got = {0}, other = {0};
	CLEANUP(buf_done) struct buf text = {0}, again = {0};
	struct notify_entry *en;
	struct err e = {0};

	(void)state;
	notify_state_add(&s, 9, 77)->done = 1u << NOTIFY_LOG;
	en = notify_state_add(&s, 5, 66);
	en->was_held = true;
	en->tries[NOTIFY_WEBHOOK] = 3;
	en->next_ms[NOTIFY_WEBHOOK] = 1234567890123;
	s.health[NOTIFY_EMAIL] = (struct notify_health){.failures = 2,
		.next_ms = 5,
		.failed_ms = 4,
		.given_up = 3,
		.given_up_ms = 2,
		.error = "no \"mail\""};
	assert_int_equal(s.v[0].alert, 5);
	assert_int_equal(notify_state_find(&s, 9)->since_ms, 77);
	assert_null(notify_state_find(&s, 6));
	notify_state_json(&s, "q", &text);
	assert_int_equal(notify_state_parse(buf_str(&text), text.len, "q", &got, &e), 0);
	assert_false(got.is_dirty);
	notify_state_json(&got, "q", &again);
	assert_string_equal(buf_str(&text), buf_str(&again));
	assert_int_equal(got.health[NOTIFY_EMAIL].given_up, 3);
	assert_true(got.v[0].was_held && !got.v[1].was_held);
	assert_int_equal(got.v[1].done, 1u << NOTIFY_LOG);
	assert_int_equal(got.v[0].next_ms[NOTIFY_WEBHOOK], 1234567890123);
	/* Another queue's says nothing about this one. */
	assert_int_equal(notify_state_parse(buf_str(&text), text.len, "r", &other, &e), 0);
	assert_int_equal(other.n, 0);
}

static void broken_state(void **state)
{
	static const char *const rows[] = {"", "{}", "[1]", "{\"queue\":\"q\",\"alerts\":3}",
		"{\"queue\":\"q\",\"alerts\":[", "\xff"};
	static const char odd[] =
		"{\"queue\":\"q\",\"alerts\":[3,{\"id\":-1},{\"id\":4,\"done\":\"log\",\"tries\":{\"log\":[-5]}},{\"id\":4}],\"channels\":7}";
	CLEANUP(notify_state_done) struct notify_state s = {0};
	struct err e = {0};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_int_equal(
			notify_state_parse(rows[i], strlen(rows[i]), "q", &s, &e), -EINVAL);
	assert_int_equal(notify_state_parse(odd, strlen(odd), "q", &s, &e), 0);
	assert_int_equal(s.n, 1);
	assert_int_equal(s.v[0].tries[NOTIFY_LOG], 0);
	notify_state_remove(&s, 4);
	notify_state_remove(&s, 4);
	assert_int_equal(s.n, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(backoff),
		cmocka_unit_test(quiet_hours),
		cmocka_unit_test(message),
		cmocka_unit_test(digest),
		cmocka_unit_test(headers),
		cmocka_unit_test(mail),
		cmocka_unit_test(webhook),
		cmocka_unit_test(desktop),
		cmocka_unit_test(state_file),
		cmocka_unit_test(broken_state),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
