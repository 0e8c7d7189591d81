/*
 * What earlier runs of a command's shape took: fed where an attempt is settled, in that transaction, so no run counts twice
 * and none is missed. A shape that doesn't come any more is forgotten in the end.
 */
#include "store/store_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <string.h>

/* Sums and largest ones; what wasn't seen changes nothing. */
#define PUT \
	"INSERT INTO learned (shape, gpus, n, n_oom, n_peaks, peak_max_mib, peak_last_mib, oom_max_mib, n_times, run_sum_ms," \
	" run_max_ms, last_ms) VALUES (?1, ?2, ?3, ?4, ?5 IS NOT NULL, ?5, ?5, ?6, ?7 IS NOT NULL, coalesce(?7, 0)," \
	" coalesce(?7, 0), ?8) ON CONFLICT (shape, gpus) DO UPDATE SET n = n + ?3, n_oom = n_oom + ?4," \
	" n_peaks = n_peaks + (?5 IS NOT NULL), peak_max_mib = max(coalesce(peak_max_mib, ?5), coalesce(?5, peak_max_mib))," \
	" peak_last_mib = coalesce(?5, peak_last_mib)," \
	" oom_max_mib = max(coalesce(oom_max_mib, ?6), coalesce(?6, oom_max_mib))," \
	" n_times = n_times + (?7 IS NOT NULL), run_sum_ms = run_sum_ms + coalesce(?7, 0)," \
	" run_max_ms = max(run_max_ms, coalesce(?7, 0)), last_ms = ?8"

int learn(struct store *s, const struct job *j, const struct store_end *end, struct err *e)
{
	bool is_good = end->step == JOB_STEP_COMPLETE, is_oom = end->cause == JOB_CAUSE_CUDA_OOM;
	int64_t peak = end->peak_mib > 0 ? end->peak_mib : -1;
	int r;

	if (!j->shape || !*j->shape || (!is_good && !is_oom))
		return 0;
	r = db_run(s, e, PUT, "tibboooi", j->shape, j->gpus, (int)is_good, (int)is_oom,
		is_good ? peak : DB_I64(-1), is_oom ? peak : DB_I64(-1),
		is_good ? end->elapsed_ms : DB_I64(-1), s->now_ms);
	return r < 0 ? r : 0;
}

int learned_trim(struct store *s, struct err *e)
{
	int r = db_run(s, e,
		"DELETE FROM learned WHERE last_ms < (SELECT last_ms FROM learned ORDER BY last_ms DESC LIMIT 1 OFFSET ?1)",
		"i", DB_I64(STORE_LEARNED_MAX - 1));

	return r < 0 ? r : 0;
}

#define COLUMNS \
	"SELECT shape, gpus, n, n_oom, n_peaks, peak_max_mib, peak_last_mib, oom_max_mib, n_times, run_sum_ms, run_max_ms," \
	" last_ms FROM learned "

static void read_learned(sqlite3_stmt *st, struct store_learned *ret)
{
	int64_t n_times = db_i64(st, 8, 0);

	*ret = (struct store_learned){.shape = db_text(st, 0),
		.gpus = db_i64(st, 1, 0),
		.n = db_i64(st, 2, 0),
		.n_oom = db_i64(st, 3, 0),
		.n_peaks = db_i64(st, 4, 0),
		.peak_max_mib = db_i64(st, 5, 0),
		.peak_last_mib = db_i64(st, 6, 0),
		.oom_max_mib = db_i64(st, 7, 0),
		.run_mean_ms = n_times ? db_i64(st, 9, 0) / n_times : 0,
		.run_max_ms = db_i64(st, 10, 0),
		.last_ms = db_i64(st, 11, 0)};
}

int store_learned(
	struct store *s, const char *shape, int64_t gpus, struct store_learned *ret, struct err *e)
{
	sqlite3_stmt *st = NULL;
	int r = db_ask(s, &st, e, COLUMNS "WHERE shape = ?1 AND gpus = ?2", "ti", shape, gpus);

	if (r <= 0)
		return r < 0 ? r : -ENOENT;
	read_learned(st, ret);
	db_done(st);
	return 0;
}

int store_learned_all(
	struct store *s, size_t limit, struct store_learned **ret, size_t *ret_n, struct err *e)
{
	struct store_learned *v = NULL;
	size_t n = 0, cap = 0;
	sqlite3_stmt *st = NULL;
	int r = db_ask(s, &st, e, COLUMNS "ORDER BY last_ms DESC, shape, gpus LIMIT ?1", "i",
		limit ? (int64_t)limit : DB_I64(-1));

	for (; r > 0; r = db_next(s, st, e)) {
		GROW(v, n, cap);
		read_learned(st, &v[n++]);
	}
	if (r < 0) {
		store_learned_done(v, n);
		return r;
	}
	*ret = v;
	*ret_n = n;
	return 0;
}

void store_learned_done(struct store_learned *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(v[i].shape);
	free(v);
}
