/* Events and alerts: written beside the change they tell of, read in pages without gaps, trimmed from the old end. */
#include "store/store_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <string.h>

#define MESSAGE_MAX 1000
#define TITLE_MAX 300
#define DETAIL_MAX 16384

int store_event_add(struct store *s, enum event_kind kind, int64_t job, const char *node,
	const char *message, const char *data, struct err *e)
{
	CLEANUP_FREE char *text = text_cut(message, MESSAGE_MAX);
	int r = store_need_txn(s, e);

	if (r < 0)
		return r;
	if (!kind || !event_kind_name(kind))
		return err_set(e, -EINVAL, "an event of no kind");
	r = db_run(s, e,
		"INSERT INTO events (ts_ms, kind, job, node, message, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
		"itzttt", s->now_ms, event_kind_name(kind), job, node, text, data);
	return r < 0 ? r : 0;
}

int store_alert_add(struct store *s, enum alert_kind kind, int64_t job, const char *node,
	const char *title, const char *detail, struct err *e)
{
	CLEANUP_FREE char *t = text_cut(title, TITLE_MAX);
	size_t n = detail ? strlen(detail) : 0;
	/* Of a log the end is what counts. */
	CLEANUP_FREE char *d = NULL;
	int r = store_need_txn(s, e);

	if (r < 0)
		return r;
	if (!kind || !alert_kind_name(kind) || !title)
		return err_set(e, -EINVAL, "an alert of no kind or without a title");
	if (n > DETAIL_MAX) {
		detail += n - DETAIL_MAX;
		while (((unsigned char)*detail & 0xC0) == 0x80)
			detail++;
	}
	d = detail ? xstrdup(detail) : NULL;
	r = db_run(s, e,
		"INSERT INTO alerts (ts_ms, kind, severity, job, node, title, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
		"ittzttt", s->now_ms, alert_kind_name(kind),
		alert_severity_name(alert_kind_severity(kind)), job, node, t, d);
	return r < 0 ? r : 0;
}

int news_event(struct store *s, const struct job_rule *r, int64_t job, const char *node,
	const char *message, const char *data, struct err *e)
{
	return r->event ? store_event_add(s, r->event, job, node, message, data, e) : 0;
}

int news_alert(struct store *s, const struct job_rule *r, int64_t job, const char *node,
	const char *title, const char *detail, struct err *e)
{
	return r->alert ? store_alert_add(s, r->alert, job, node, title, detail, e) : 0;
}

int store_alert_ack(struct store *s, const int64_t *ids, size_t n, int64_t *ret_n, struct err *e)
{
	int64_t acked = 0;
	int r = store_need_txn(s, e);

	if (r < 0)
		return r;
	if (!ids) {
		r = db_run(s, e,
			"UPDATE alerts SET acknowledged_ms = ?1 WHERE acknowledged_ms IS NULL", "i",
			s->now_ms);
		acked = r;
	}
	for (size_t i = 0; ids && r >= 0 && i < n; i++) {
		r = db_run(s, e,
			"UPDATE alerts SET acknowledged_ms = ?1 WHERE id = ?2 AND acknowledged_ms IS NULL",
			"ii", s->now_ms, ids[i]);
		acked += r;
	}
	if (r < 0)
		return r;
	*ret_n = acked;
	return 0;
}

int store_alert_notified(struct store *s, int64_t id, struct err *e)
{
	int r = store_need_txn(s, e);

	if (r == 0)
		r = db_run(s, e,
			"UPDATE alerts SET notified_ms = ?1 WHERE id = ?2 AND notified_ms IS NULL",
			"ii", s->now_ms, id);
	return r < 0 ? r : 0;
}

/*
 * From the old end up to the first row that is young enough, so that a clock which was set back for a while leaves no holes:
 * what is behind such a row stays a little longer. The last event always stays, for the numbers to go on from.
 */
int store_trim(struct store *s, int64_t events_before_ms, int64_t alerts_before_ms,
	int64_t *ret_removed, struct err *e)
{
	int64_t removed;
	int r = store_need_txn(s, e);

	if (r < 0)
		return r;
	r = db_run(s, e,
		"DELETE FROM events WHERE id < coalesce((SELECT id FROM events WHERE ts_ms >= ?1 ORDER BY id LIMIT 1),"
		" (SELECT max(id) FROM events))",
		"i", events_before_ms);
	if (r < 0)
		return r;
	removed = r;
	r = learned_trim(s, e);
	if (r < 0)
		return r;
	r = db_run(s, e, "DELETE FROM alerts WHERE ts_ms < ?1 AND acknowledged_ms IS NOT NULL", "i",
		alerts_before_ms);
	if (r < 0)
		return r;
	*ret_removed = removed + r;
	return 0;
}

#define EVENT_COLUMNS "SELECT id, ts_ms, kind, job, node, message, data FROM events "

static const char *events_text(int64_t since, int64_t job)
{
	if (since >= 0)
		return job ? EVENT_COLUMNS "WHERE id > ?1 AND job = ?3 ORDER BY id LIMIT ?2"
			   : EVENT_COLUMNS "WHERE id > ?1 ORDER BY id LIMIT ?2";
	return job ? "SELECT * FROM (" EVENT_COLUMNS
		     "WHERE id > ?1 AND job = ?3 ORDER BY id DESC LIMIT ?2) ORDER BY id"
		   : "SELECT * FROM (" EVENT_COLUMNS
		     "WHERE id > ?1 ORDER BY id DESC LIMIT ?2) ORDER BY id";
}

static void read_event(sqlite3_stmt *st, struct store_event *ret)
{
	*ret = (struct store_event){.id = sqlite3_column_int64(st, 0),
		.ts_ms = sqlite3_column_int64(st, 1),
		.job = db_i64(st, 3, 0),
		.node = db_text(st, 4),
		.message = db_text(st, 5),
		.data = db_text(st, 6)};
	event_kind_from_name((const char *)sqlite3_column_text(st, 2), &ret->kind);
}

static int read_events(struct store *s, int64_t since, int64_t job, size_t limit,
	struct store_events *ret, struct err *e)
{
	sqlite3_stmt *st = NULL;
	size_t cap = 0;
	/* One more than is shown says whether there are more. */
	int64_t want = limit ? (int64_t)limit + 1 : -1;
	int r = job ? db_ask(s, &st, e, events_text(since, job), "iii", since, want, job)
		    : db_ask(s, &st, e, events_text(since, job), "ii", since, want);

	for (; r > 0; r = db_next(s, st, e)) {
		if (limit && ret->n == limit && since >= 0) {
			ret->has_more = true;
			db_done(st);
			return 0;
		}
		GROW(ret->v, ret->n, cap);
		read_event(st, &ret->v[ret->n++]);
	}
	return r;
}

static void drop_first_event(struct store_events *l)
{
	free(l->v[0].node);
	free(l->v[0].message);
	free(l->v[0].data);
	memmove(l->v, l->v + 1, --l->n * sizeof(*l->v));
	l->has_more = true;
}

int store_events(struct store *s, int64_t since, int64_t job, size_t limit,
	struct store_events *ret, struct err *e)
{
	struct store_events l = {.last_id = since < 0 ? 0 : since};
	int64_t first = 0;
	bool mine;
	int r = db_read_begin(s, &mine, e);

	if (r < 0)
		return r;
	r = read_events(s, since, job, limit, &l, e);
	if (r == 0 && limit && l.n > limit)
		drop_first_event(&l);
	if (r == 0 && since >= 0)
		r = db_int(s, &first, e, "SELECT min(id) FROM events", "");
	db_read_end(s, mine);
	if (r < 0) {
		store_events_done(&l);
		return r;
	}
	if (l.n)
		l.last_id = l.v[l.n - 1].id;
	l.has_gap = first > since + 1;
	*ret = l;
	return 0;
}

void store_events_done(struct store_events *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free(l->v[i].node);
		free(l->v[i].message);
		free(l->v[i].data);
	}
	free(l->v);
	*l = (struct store_events){0};
}

#define ALERT_COLUMNS \
	"SELECT id, ts_ms, kind, job, node, title, detail, acknowledged_ms, notified_ms FROM alerts "

int store_alerts(struct store *s, enum store_which_alerts which, size_t limit,
	struct store_alerts *ret, struct err *e)
{
	static const char *const texts[] = {
		[STORE_ALERTS_OPEN] =
			"SELECT * FROM (" ALERT_COLUMNS
			"WHERE acknowledged_ms IS NULL ORDER BY id DESC LIMIT ?1) ORDER BY id",
		[STORE_ALERTS_ALL] =
			"SELECT * FROM (" ALERT_COLUMNS "ORDER BY id DESC LIMIT ?1) ORDER BY id",
		[STORE_ALERTS_UNDELIVERED] =
			ALERT_COLUMNS "WHERE notified_ms IS NULL ORDER BY id LIMIT ?1",
	};
	struct store_alerts l = {0};
	sqlite3_stmt *st = NULL;
	size_t cap = 0;
	int r = db_ask(s, &st, e, texts[which], "i", limit ? (int64_t)limit : DB_I64(-1));

	for (; r > 0; r = db_next(s, st, e)) {
		struct store_alert *a;

		GROW(l.v, l.n, cap);
		a = &l.v[l.n++];
		*a = (struct store_alert){.id = sqlite3_column_int64(st, 0),
			.ts_ms = sqlite3_column_int64(st, 1),
			.job = db_i64(st, 3, 0),
			.node = db_text(st, 4),
			.title = db_text(st, 5),
			.detail = db_text(st, 6),
			.acknowledged_ms = db_i64(st, 7, 0),
			.notified_ms = db_i64(st, 8, 0)};
		alert_kind_from_name((const char *)sqlite3_column_text(st, 2), &a->kind);
	}
	if (r < 0) {
		store_alerts_done(&l);
		return r;
	}
	*ret = l;
	return 0;
}

void store_alerts_done(struct store_alerts *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free(l->v[i].node);
		free(l->v[i].title);
		free(l->v[i].detail);
	}
	free(l->v);
	*l = (struct store_alerts){0};
}
