/* Nodes as the queue remembers them: what people said of them, and the last that was known when one doesn't answer. */
#include "store/store_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/parse.h"

#include <inttypes.h>
#include <string.h>

#define CLOCK_STEP_MS 1000

int store_node_put(struct store *s, const struct store_node *n, struct err *e)
{
	int r = store_need_txn(s, e);

	if (r == 0)
		r = text_check_json("the inventory", n->inventory, '*', e);
	if (r < 0)
		return r;
	if (!n->name || !*n->name)
		return err_set(e, -EINVAL, "a node needs a name");
	r = db_run(s, e,
		"INSERT INTO nodes (name, hostname, port, username, state, last_error, root_id, machine_key, boot_id,"
		" last_seen_ms, probed_ms, sort_order, observed_incarnation, inventory, failed_since_ms, n_failures, next_try_ms)"
		" VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17) ON CONFLICT (name) DO UPDATE SET"
		" hostname = ?2, port = ?3, username = ?4, state = ?5, last_error = ?6, root_id = ?7, machine_key = ?8,"
		" boot_id = ?9, last_seen_ms = ?10, probed_ms = ?11, sort_order = ?12, observed_incarnation = ?13,"
		" inventory = ?14, failed_since_ms = ?15, n_failures = ?16, next_try_ms = ?17",
		"ttzttttttzziitziz", n->name, n->hostname, n->port, n->username,
		n->state ? n->state : "unknown", n->last_error, n->root_id, n->machine_key,
		n->boot_id, n->last_seen_ms, n->probed_ms, n->sort_order, n->observed_incarnation,
		n->inventory, n->failed_since_ms, n->n_failures, n->next_try_ms);
	return r < 0 ? r : 0;
}

static int set_flag(struct store *s, const char *sql, const char *name, bool on, struct err *e)
{
	int r = store_need_txn(s, e);

	if (r == 0)
		r = db_run(s, e, sql, "tb", name, (int)on);
	return r < 0 ? r : 0;
}

int store_node_drain(struct store *s, const char *name, bool on, struct err *e)
{
	return set_flag(s,
		"INSERT INTO nodes (name, is_drained) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET is_drained = ?2",
		name, on, e);
}

int store_node_ignore(struct store *s, const char *name, bool on, struct err *e)
{
	return set_flag(s,
		"INSERT INTO nodes (name, is_ignored) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET is_ignored = ?2",
		name, on, e);
}

int store_node_remove(struct store *s, const char *name, struct err *e)
{
	int64_t job;
	int r = store_need_txn(s, e);

	if (r == 0)
		r = db_int(s, &job, e,
			"SELECT job FROM attempts WHERE node = ?1 AND is_settled = 0", "t", name);
	if (r > 0)
		return err_set(
			e, -EPERM, "node %s still has work of the queue; let that end first", name);
	if (r == 0)
		r = db_run(s, e, "DELETE FROM nodes WHERE name = ?1", "t", name);
	return r < 0 ? r : 0;
}

static void read_node(sqlite3_stmt *st, struct store_node *ret)
{
	*ret = (struct store_node){.name = db_text(st, 0),
		.hostname = db_text(st, 1),
		.port = db_i64(st, 2, 0),
		.username = db_text(st, 3),
		.state = db_text(st, 4),
		.last_error = db_text(st, 5),
		.root_id = db_text(st, 6),
		.machine_key = db_text(st, 7),
		.boot_id = db_text(st, 8),
		.last_seen_ms = db_i64(st, 9, 0),
		.probed_ms = db_i64(st, 10, 0),
		.sort_order = db_i64(st, 11, 0),
		.is_drained = sqlite3_column_int(st, 12) != 0,
		.is_ignored = sqlite3_column_int(st, 13) != 0,
		.observed_incarnation = db_i64(st, 14, 0),
		.inventory = db_text(st, 15),
		.failed_since_ms = db_i64(st, 16, 0),
		.n_failures = db_i64(st, 17, 0),
		.next_try_ms = db_i64(st, 18, 0)};
}

int store_nodes(struct store *s, struct store_nodes *ret, struct err *e)
{
	struct store_nodes l = {0};
	sqlite3_stmt *st = NULL;
	size_t cap = 0;
	int r = db_ask(s, &st, e,
		"SELECT name, hostname, port, username, state, last_error, root_id, machine_key, boot_id, last_seen_ms,"
		" probed_ms, sort_order, is_drained, is_ignored, observed_incarnation, inventory, failed_since_ms, n_failures,"
		" next_try_ms FROM nodes"
		" ORDER BY sort_order, name",
		"");

	for (; r > 0; r = db_next(s, st, e)) {
		GROW(l.v, l.n, cap);
		read_node(st, &l.v[l.n++]);
	}
	if (r < 0) {
		store_nodes_done(&l);
		return r;
	}
	*ret = l;
	return 0;
}

void store_nodes_done(struct store_nodes *l)
{
	for (size_t i = 0; i < l->n; i++) {
		struct store_node *n = &l->v[i];
		char *texts[] = {n->name, n->hostname, n->username, n->state, n->last_error,
			n->root_id, n->machine_key, n->boot_id, n->inventory};

		for (size_t t = 0; t < ARRAY_LEN(texts); t++)
			free(texts[t]);
	}
	free(l->v);
	*l = (struct store_nodes){0};
}

/* ---- the machine's clock ---- */

/* "<boot id> <wall clock less BOOTTIME>", of the last lease. False: none, or of another boot. */
static bool read_clock(struct store *s, const char *boot_id, int64_t *ret_ms)
{
	CLEANUP_FREE char *text = NULL;
	size_t n = strlen(boot_id);
	struct err ignored;

	return store_meta_get(s, "clock", &text, &ignored) == 0 && !strncmp(text, boot_id, n) &&
	       text[n] == ' ' && parse_int64(text + n + 1, ret_ms) == 0;
}

int node_follow_clock(struct store *s, const char *boot_id, struct err *e)
{
	int64_t now_ms = s->now_ms - clock_boot_ms(), before_ms = 0, step_ms = 0;
	bool is_known = read_clock(s, boot_id, &before_ms);
	CLEANUP_FREE char *text = xasprintf("%s %" PRId64, boot_id, now_ms);
	int r = 0;

	if (is_known)
		step_ms = now_ms - before_ms;
	if (is_known && step_ms < CLOCK_STEP_MS && step_ms > -CLOCK_STEP_MS)
		return 0;
	if (is_known)
		r = db_run(s, e,
			"UPDATE nodes SET probed_ms = probed_ms + ?1, failed_since_ms = failed_since_ms + ?1,"
			" next_try_ms = next_try_ms + ?1",
			"i", step_ms);
	return r < 0 ? r : meta_put(s, "clock", text, e);
}
