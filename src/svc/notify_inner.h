/* Between the parts of notify: messages and their shapes (pure), times (pure), what channels have taken, and how each is sent. */
#pragma once

#include "svc/external.h"
#include "svc/notify.h"

enum notify_channel {
	NOTIFY_LOG,
	NOTIFY_DESKTOP,
	NOTIFY_COMMAND,
	NOTIFY_WEBHOOK,
	NOTIFY_EMAIL,
	NOTIFY_CHANNELS
};
const char *notify_channel_name(enum notify_channel c);

/* ---- messages: notify_message.c ---- */

#define NOTIFY_TOGETHER_MAX 100 /* alerts in one message */

/* What is said: one alert, or several together. All of it is owned. */
struct notify_message {
	char *uid; /* the same whenever it's said again: "<queue's uuid>-<alert's id>" */
	enum alert_severity severity;
	char *title; /* one line, clean */
	char *text; /* lines for people, clean, bounded */
	char *json; /* the alert's object in one line, with "uid", "queue" and "host" besides */
	int64_t ts_ms;
};
void notify_message_done(struct notify_message *m);
void notify_message_one(const char *queue, const char *host, const char *program,
	const struct store_alert *a, struct notify_message *ret);
/* Its JSON has an alert's keys, kind "digest", and "alerts": those without their details. n >= 1. */
void notify_message_many(const char *queue, const char *host, const char *program,
	const struct store_alert *const *v, size_t n, struct notify_message *ret);
void notify_message_test(const char *queue, const char *host, const char *program, int64_t now_ms,
	struct notify_message *ret);

/* ---- shapes: notify_shape.c ---- */

/* config: what `curl -K -` reads, the secrets in it; body: what it posts from its descriptor 3. */
void notify_webhook(const struct notify_settings *s, const char *program,
	const struct notify_message *m, int64_t limit_ms, struct buf *config, struct buf *body);
/* A whole message for `sendmail -t -i`. */
void notify_mail(const struct notify_settings *s, const char *program, const char *host,
	const struct notify_message *m, struct buf *ret);
/* The notification's body: markup escaped. */
void notify_desktop_body(const struct notify_message *m, struct buf *ret);
/* Text for a header: as it is in ASCII, else RFC 2047's encoded words with `between` between them. Never a line break of s. */
void notify_put_header(struct buf *b, const char *s, const char *between);

/* ---- times: notify_time.c ---- */

#define NOTIFY_GIVE_UP_MS (24 * 3600 * 1000LL)
#define NOTIFY_BACKOFF_MAX_MS (3600 * 1000LL)
/* After so many failures in a row: 1, 2, 5, 15, 60 min, and 60 from there on; 0 for none. */
int64_t notify_backoff_ms(unsigned failures);
/* Is it time again? A moment that lies further away than any wait can be comes from a clock that was set back. */
bool notify_is_due(int64_t next_ms, int64_t now_ms);
/* "22:00-07:00" in local time; NULL: never. *ret_end_ms: when they're over. */
bool notify_is_quiet(const char *quiet_hours, int64_t now_ms, int64_t *ret_end_ms);

/* ---- what channels have taken: notify_state.c ---- */

#define NOTIFY_ENTRIES_MAX 1000

struct notify_entry {
	int64_t alert;
	int64_t since_ms; /* taken up, or let out of the quiet hours */
	uint32_t done; /* channels that have it, or for which it was given up */
	bool was_held; /* by quiet hours: it comes together with the others */
	uint32_t tries[NOTIFY_CHANNELS];
	int64_t next_ms[NOTIFY_CHANNELS];
};
struct notify_health {
	uint32_t failures; /* in a row */
	int64_t next_ms, failed_ms; /* when again; when last */
	int64_t given_up, given_up_ms; /* alerts; the last one */
	char error[400];
};
struct notify_state {
	struct notify_entry *v; /* ascending by alert */
	size_t n, cap;
	struct notify_health health[NOTIFY_CHANNELS];
	bool is_dirty;
};
void notify_state_done(struct notify_state *s);
/* NULL: not there. */
struct notify_entry *notify_state_find(struct notify_state *s, int64_t alert);
struct notify_entry *notify_state_add(struct notify_state *s, int64_t alert, int64_t now_ms);
void notify_state_remove(struct notify_state *s, int64_t alert);
void notify_state_json(const struct notify_state *s, const char *queue, struct buf *ret);
/* -EINVAL: no such document; of another queue: empty. */
int notify_state_parse(
	const char *text, size_t n, const char *queue, struct notify_state *ret, struct err *e);
/* <home>/notify-state.json. A missing one is empty; one that can't be read too, with a sentence and its code. */
int notify_state_load(const char *home, const char *queue, struct notify_state *ret, struct err *e);
int notify_state_save(const char *home, const char *queue, struct notify_state *s, struct err *e);

/* ---- sending: notify_send.c ---- */

struct notify_limits {
	int64_t ms[NOTIFY_CHANNELS];
};
extern const struct notify_limits notify_limits;

struct notify_how {
	const struct notify_settings *settings;
	const char *home, *program, *host;
};
bool notify_is_on(const struct notify_settings *s, enum notify_channel c);
/* A desktop session is here to show something: else *why says what's missing. */
bool notify_has_desktop(const char **ret_why);
/* This machine's name, fit for a mail's header. */
#define NOTIFY_HOST_LEN 65
void notify_host(char ret[NOTIFY_HOST_LEN]);
/* Whole lines, durable. alerts.log is put aside as alerts.log.1 when it's larger than NOTIFY_LOG_MAX. */
#define NOTIFY_LOG_MAX (4 * 1024 * 1024)
int notify_log(const char *home, const struct buf *lines, struct err *e);
/* All others: their child. */
int notify_start(struct event_base *base, const struct notify_how *how, enum notify_channel c,
	const struct notify_message *m, int64_t limit_ms,
	void (*ended)(void *arg, const struct external_end *end), void *arg, struct external **ret,
	struct err *e);
enum notify_verdict { NOTIFY_TAKEN, NOTIFY_FAILED, NOTIFY_NOBODY /* no desktop to show it on */ };
/* why: a sentence about it, also when it was taken. */
enum notify_verdict notify_judge(
	enum notify_channel c, const struct external_end *end, int64_t limit_ms, struct buf *why);

/* For tests: another clock (NULL: clock_wall_ms) and other limits. */
void notify_set_clock(struct notify *n, int64_t (*wall_ms)(void));
void notify_set_limits(struct notify *n, const struct notify_limits *limits);
