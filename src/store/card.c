/* Cards out of service, and what stands against those that aren't yet. Whether they go is decided by who counts. */
#include "store/store_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <string.h>

#define WHAT_MAX 1000

static int check_card(struct store *s, const char *node, const char *uuid, struct err *e)
{
	int r = store_need_txn(s, e);

	if (r == 0 && (!node || !*node || !uuid || !*uuid))
		r = err_set(e, -EINVAL, "a card needs its node and its UUID");
	return r;
}

int store_card_out(struct store *s, const char *node, const char *uuid, const char *why,
	const char *by, const char *evidence, struct err *e)
{
	CLEANUP_FREE char *text = text_cut(why, WHAT_MAX);
	int r = check_card(s, node, uuid, e);

	if (r == 0)
		r = text_check_json("the evidence", evidence, '*', e);
	if (r == 0 && (!by || (strcmp(by, "person") != 0 && strcmp(by, "faults") != 0)))
		r = err_set(e, -EINVAL, "a card is taken out of service by a person or by faults");
	if (r < 0)
		return r;
	r = db_run(s, e,
		"INSERT OR IGNORE INTO cards_out (node, uuid, why, by_whom, evidence, since_ms)"
		" VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
		"ttttti", node, uuid, text, by, evidence, s->now_ms);
	return r < 0 ? r : r == 0;
}

static int forget_faults(struct store *s, const char *node, const char *uuid, struct err *e)
{
	return db_run(
		s, e, "DELETE FROM card_faults WHERE node = ?1 AND uuid = ?2", "tt", node, uuid);
}

int store_card_in(struct store *s, const char *node, const char *uuid, struct err *e)
{
	int r = check_card(s, node, uuid, e);

	if (r == 0)
		r = forget_faults(s, node, uuid, e);
	if (r >= 0)
		r = db_run(s, e, "DELETE FROM cards_out WHERE node = ?1 AND uuid = ?2", "tt", node,
			uuid);
	return r < 0 ? r : r == 0;
}

int store_card_good(struct store *s, const char *node, const char *uuid, struct err *e)
{
	int r = check_card(s, node, uuid, e);

	if (r == 0)
		r = forget_faults(s, node, uuid, e);
	return r < 0 ? r : 0;
}

int store_cards(struct store *s, struct store_cards *ret, struct err *e)
{
	struct store_cards l = {0};
	sqlite3_stmt *st = NULL;
	size_t cap = 0;
	int r = db_ask(s, &st, e,
		"SELECT node, uuid, why, by_whom, evidence, since_ms FROM cards_out ORDER BY node, uuid",
		"");

	for (; r > 0; r = db_next(s, st, e)) {
		GROW(l.v, l.n, cap);
		l.v[l.n++] = (struct store_card){.node = db_text(st, 0),
			.uuid = db_text(st, 1),
			.why = db_text(st, 2),
			.by = db_text(st, 3),
			.evidence = db_text(st, 4),
			.since_ms = db_i64(st, 5, 0)};
	}
	if (r < 0) {
		store_cards_done(&l);
		return r;
	}
	*ret = l;
	return 0;
}

void store_cards_done(struct store_cards *l)
{
	for (size_t i = 0; i < l->n; i++) {
		struct store_card *c = &l->v[i];

		free(c->node);
		free(c->uuid);
		free(c->why);
		free(c->by);
		free(c->evidence);
	}
	free(l->v);
	*l = (struct store_cards){0};
}

/* What is too old, and what is too much: the same commands that fail all day are one row each. */
static int drop_old_faults(
	struct store *s, const char *node, const char *uuid, int64_t before_ms, struct err *e)
{
	int r = db_run(s, e,
		"DELETE FROM card_faults WHERE node = ?1 AND uuid = ?2 AND last_ms < ?3", "tti",
		node, uuid, before_ms);

	if (r >= 0)
		r = db_run(s, e,
			"DELETE FROM card_faults WHERE node = ?1 AND uuid = ?2 AND (shape, xid) IN (SELECT shape, xid"
			" FROM card_faults WHERE node = ?1 AND uuid = ?2 ORDER BY last_ms DESC, shape, xid LIMIT -1 OFFSET ?3)",
			"tti", node, uuid, DB_I64(STORE_FAULTS_MAX));
	return r;
}

int store_card_fault(struct store *s, const char *node, const char *uuid, int64_t job,
	const char *shape, int64_t xid, const char *what, int64_t window_ms, int64_t *ret_n,
	struct err *e)
{
	CLEANUP_FREE char *text = text_cut(what, WHAT_MAX);
	int64_t n = 0;
	int r = check_card(s, node, uuid, e);

	if (r < 0)
		return r;
	r = db_run(s, e,
		"INSERT INTO card_faults (node, uuid, shape, xid, n, last_ms, job, what) VALUES (?1, ?2, ?3, ?4, 1, ?5, ?6, ?7)"
		" ON CONFLICT (node, uuid, shape, xid) DO UPDATE SET n = n + 1, last_ms = ?5, job = ?6, what = ?7",
		"tttiizt", node, uuid, shape ? shape : "", xid, s->now_ms, job, text);
	if (r >= 0)
		r = drop_old_faults(s, node, uuid, s->now_ms - window_ms, e);
	/* An XID without a job is a fault, but of no command. */
	if (r >= 0)
		r = db_int(s, &n, e,
			"SELECT count(DISTINCT shape) FROM card_faults WHERE node = ?1 AND uuid = ?2 AND shape <> ''",
			"tt", node, uuid);
	if (r < 0)
		return r;
	*ret_n = n;
	return 0;
}

int store_card_faults(struct store *s, const char *node, const char *uuid, struct store_faults *ret,
	struct err *e)
{
	struct store_faults l = {0};
	sqlite3_stmt *st = NULL;
	size_t cap = 0;
	int r = db_ask(s, &st, e,
		"SELECT job, xid, n, last_ms, shape, what FROM card_faults WHERE node = ?1 AND uuid = ?2"
		" ORDER BY last_ms, shape, xid",
		"tt", node, uuid);

	for (; r > 0; r = db_next(s, st, e)) {
		GROW(l.v, l.n, cap);
		l.v[l.n++] = (struct store_fault){.job = db_i64(st, 0, 0),
			.xid = db_i64(st, 1, 0),
			.n = db_i64(st, 2, 0),
			.last_ms = db_i64(st, 3, 0),
			.shape = db_text(st, 4),
			.what = db_text(st, 5)};
	}
	if (r < 0) {
		store_card_faults_done(&l);
		return r;
	}
	*ret = l;
	return 0;
}

void store_card_faults_done(struct store_faults *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free(l->v[i].shape);
		free(l->v[i].what);
	}
	free(l->v);
	*l = (struct store_faults){0};
}
