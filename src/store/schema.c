/*
 * The tables, as numbered steps from one version to the next. A step that was released is never changed: a new one follows
 * it. The columns' meaning is in core/job.h and store.h; which of them a job has is listed once more in row.c.
 */
#include "store/store_inner.h"

#include <inttypes.h>
#include <stdio.h>

const struct schema_step schema_steps[STORE_VERSION] = {
	{
		"CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;"
		"CREATE TABLE lease ("
		" one INTEGER PRIMARY KEY CHECK (one = 1),"
		" epoch INTEGER NOT NULL,"
		" owner TEXT, pid INTEGER, start_ticks INTEGER, boot_id TEXT, pid_ns INTEGER,"
		" acquired_ms INTEGER, expires_boot_ms INTEGER"
		") STRICT;"
		"INSERT INTO lease (one, epoch) VALUES (1, 0);"
		/* Small columns first, the command last: a list needn't walk through megabytes. */
		"CREATE TABLE jobs ("
		" id INTEGER PRIMARY KEY AUTOINCREMENT,"
		" state TEXT NOT NULL CHECK (state IN ('pending', 'running', 'completed', 'failed', 'cancelled', 'timeout', 'lost')),"
		" is_bound INTEGER NOT NULL DEFAULT 0,"
		" priority INTEGER NOT NULL DEFAULT 0,"
		" gpus INTEGER NOT NULL DEFAULT 1 CHECK (gpus >= 0),"
		" vram_mib INTEGER CHECK (vram_mib >= 0),"
		" vram_source TEXT NOT NULL DEFAULT 'none',"
		" min_total_mib INTEGER, cpus INTEGER, mem_mib INTEGER,"
		" exclusive INTEGER NOT NULL DEFAULT 0, idle INTEGER NOT NULL DEFAULT 0,"
		" nvlink INTEGER NOT NULL DEFAULT 0, login INTEGER NOT NULL DEFAULT 0,"
		" max_runtime_ms INTEGER, grace_ms INTEGER, lead_signal INTEGER, lead_ms INTEGER,"
		" max_retries INTEGER NOT NULL DEFAULT 0, oom_retries INTEGER, retry_on INTEGER,"
		" on_dependency TEXT NOT NULL DEFAULT 'hold',"
		" created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL, started_ms INTEGER, finished_ms INTEGER,"
		" elapsed_ms INTEGER,"
		" attempt INTEGER NOT NULL DEFAULT 0, attempt_base INTEGER NOT NULL DEFAULT 0,"
		" n_oom INTEGER NOT NULL DEFAULT 0,"
		" heartbeat_ms INTEGER, gpu_mem_mib INTEGER, peak_mib INTEGER, progress_ms INTEGER,"
		" lane_seq INTEGER, cancel_ms INTEGER, exit_code INTEGER, cause TEXT,"
		" name TEXT, submitter TEXT, key TEXT, node_constraint TEXT, gpu_constraint TEXT, gpu_model TEXT, lane TEXT,"
		" progress TEXT, held_reason TEXT, cancel_reason TEXT, last_error TEXT, workdir TEXT, tags TEXT, notes TEXT,"
		" result TEXT, env TEXT, command TEXT NOT NULL,"
		" CHECK (is_bound = 0 OR state IN ('pending', 'running')),"
		" CHECK (is_bound = 1 OR state <> 'running')"
		") STRICT;"
		"CREATE INDEX jobs_state ON jobs (state);"
		"CREATE INDEX jobs_turn ON jobs (priority DESC, id) WHERE state = 'pending';"
		"CREATE INDEX jobs_held ON jobs (id) WHERE state = 'pending' AND held_reason IS NOT NULL;"
		"CREATE INDEX jobs_bound ON jobs (id) WHERE is_bound = 1;"
		"CREATE INDEX jobs_pinned ON jobs (node_constraint) WHERE node_constraint IS NOT NULL;"
		"CREATE INDEX jobs_name ON jobs (name) WHERE name IS NOT NULL;"
		"CREATE INDEX jobs_lane ON jobs (lane, lane_seq) WHERE lane IS NOT NULL;"
		"CREATE UNIQUE INDEX jobs_key ON jobs (key) WHERE key IS NOT NULL;"
		/* kind: 0 success, 1 any end. A prerequisite may have been purged: no reference. */
		"CREATE TABLE needs ("
		" job INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE, kind INTEGER NOT NULL, needs INTEGER NOT NULL,"
		" PRIMARY KEY (job, kind, needs)) STRICT, WITHOUT ROWID;"
		"CREATE INDEX needs_needs ON needs (needs);"
		"CREATE TABLE job_tags ("
		" tag TEXT NOT NULL, job INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,"
		" PRIMARY KEY (tag, job)) STRICT, WITHOUT ROWID;"
		"CREATE INDEX job_tags_job ON job_tags (job);"
		"CREATE TABLE attempts ("
		" job INTEGER NOT NULL, attempt INTEGER NOT NULL, token TEXT NOT NULL, node TEXT NOT NULL,"
		" root_id TEXT, boot_id TEXT, machine_key TEXT, cards TEXT,"
		" bound_ms INTEGER NOT NULL, started_ms INTEGER, finished_ms INTEGER, elapsed_ms INTEGER,"
		" pid INTEGER, start_ticks INTEGER, run_dir TEXT,"
		" is_settled INTEGER NOT NULL DEFAULT 0, ended_as INTEGER, exit_code INTEGER, cause TEXT, peak_mib INTEGER,"
		" wants_reap INTEGER NOT NULL DEFAULT 0, error TEXT, PRIMARY KEY (job, attempt)) STRICT, WITHOUT ROWID;"
		"CREATE INDEX attempts_node ON attempts (node, job);"
		"CREATE INDEX attempts_reap ON attempts (node) WHERE wants_reap = 1;"
		"CREATE UNIQUE INDEX attempts_token ON attempts (token);"
		"CREATE TABLE events ("
		" id INTEGER PRIMARY KEY AUTOINCREMENT, ts_ms INTEGER NOT NULL, kind TEXT NOT NULL, job INTEGER, node TEXT,"
		" message TEXT, data TEXT) STRICT;"
		"CREATE INDEX events_job ON events (job) WHERE job IS NOT NULL;"
		"CREATE TABLE alerts ("
		" id INTEGER PRIMARY KEY AUTOINCREMENT, ts_ms INTEGER NOT NULL, kind TEXT NOT NULL, severity TEXT NOT NULL,"
		" job INTEGER, node TEXT, title TEXT NOT NULL, detail TEXT, acknowledged_ms INTEGER, notified_ms INTEGER) STRICT;"
		"CREATE INDEX alerts_open ON alerts (id) WHERE acknowledged_ms IS NULL;"
		"CREATE INDEX alerts_undelivered ON alerts (id) WHERE notified_ms IS NULL;"
		"CREATE TABLE nodes ("
		" name TEXT PRIMARY KEY, hostname TEXT, port INTEGER, username TEXT, state TEXT NOT NULL DEFAULT 'unknown',"
		" last_error TEXT, root_id TEXT, machine_key TEXT, boot_id TEXT, last_seen_ms INTEGER, probed_ms INTEGER,"
		" sort_order INTEGER NOT NULL DEFAULT 0, is_drained INTEGER NOT NULL DEFAULT 0,"
		" is_ignored INTEGER NOT NULL DEFAULT 0, observed_incarnation INTEGER NOT NULL DEFAULT 0, inventory TEXT"
		") STRICT, WITHOUT ROWID;",
	},
	{
		/*
		 * The shape stands before the command, so that it's read without the megabytes that a command may have: the table
		 * is made anew. A queue's numbers go on where they were, those of purged jobs too.
		 */
		"CREATE TABLE jobs_2 ("
		" id INTEGER PRIMARY KEY AUTOINCREMENT,"
		" state TEXT NOT NULL CHECK (state IN ('pending', 'running', 'completed', 'failed', 'cancelled', 'timeout', 'lost')),"
		" is_bound INTEGER NOT NULL DEFAULT 0,"
		" priority INTEGER NOT NULL DEFAULT 0,"
		" gpus INTEGER NOT NULL DEFAULT 1 CHECK (gpus >= 0),"
		" vram_mib INTEGER CHECK (vram_mib >= 0),"
		" vram_source TEXT NOT NULL DEFAULT 'none',"
		" min_total_mib INTEGER, cpus INTEGER, mem_mib INTEGER,"
		" exclusive INTEGER NOT NULL DEFAULT 0, idle INTEGER NOT NULL DEFAULT 0,"
		" nvlink INTEGER NOT NULL DEFAULT 0, login INTEGER NOT NULL DEFAULT 0,"
		" max_runtime_ms INTEGER, grace_ms INTEGER, lead_signal INTEGER, lead_ms INTEGER,"
		" max_retries INTEGER NOT NULL DEFAULT 0, oom_retries INTEGER, retry_on INTEGER,"
		" on_dependency TEXT NOT NULL DEFAULT 'hold',"
		" created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL, started_ms INTEGER, finished_ms INTEGER,"
		" elapsed_ms INTEGER,"
		" attempt INTEGER NOT NULL DEFAULT 0, attempt_base INTEGER NOT NULL DEFAULT 0,"
		" n_oom INTEGER NOT NULL DEFAULT 0,"
		" heartbeat_ms INTEGER, gpu_mem_mib INTEGER, peak_mib INTEGER, progress_ms INTEGER,"
		" lane_seq INTEGER, cancel_ms INTEGER, exit_code INTEGER, cause TEXT, shape TEXT,"
		" name TEXT, submitter TEXT, key TEXT, node_constraint TEXT, gpu_constraint TEXT, gpu_model TEXT, lane TEXT,"
		" progress TEXT, held_reason TEXT, cancel_reason TEXT, last_error TEXT, workdir TEXT, tags TEXT, notes TEXT,"
		" result TEXT, env TEXT, command TEXT NOT NULL,"
		" CHECK (is_bound = 0 OR state IN ('pending', 'running')),"
		" CHECK (is_bound = 1 OR state <> 'running')"
		") STRICT;"
		"INSERT INTO jobs_2 (shape,"
		" id, state, is_bound, priority, gpus, vram_mib, vram_source, min_total_mib, cpus, mem_mib,"
		" exclusive, idle, nvlink, login, max_runtime_ms, grace_ms, lead_signal, lead_ms,"
		" max_retries, oom_retries, retry_on, on_dependency, created_ms, updated_ms, started_ms,"
		" finished_ms, elapsed_ms, attempt, attempt_base, n_oom, heartbeat_ms, gpu_mem_mib, peak_mib,"
		" progress_ms, lane_seq, cancel_ms, exit_code, cause, name, submitter, key, node_constraint,"
		" gpu_constraint, gpu_model, lane, progress, held_reason, cancel_reason, last_error, workdir,"
		" tags, notes, result, env, command) SELECT shape_of(command),"
		" id, state, is_bound, priority, gpus, vram_mib, vram_source, min_total_mib, cpus, mem_mib,"
		" exclusive, idle, nvlink, login, max_runtime_ms, grace_ms, lead_signal, lead_ms,"
		" max_retries, oom_retries, retry_on, on_dependency, created_ms, updated_ms, started_ms,"
		" finished_ms, elapsed_ms, attempt, attempt_base, n_oom, heartbeat_ms, gpu_mem_mib, peak_mib,"
		" progress_ms, lane_seq, cancel_ms, exit_code, cause, name, submitter, key, node_constraint,"
		" gpu_constraint, gpu_model, lane, progress, held_reason, cancel_reason, last_error, workdir,"
		" tags, notes, result, env, command FROM jobs;"
		"DELETE FROM sqlite_sequence WHERE name = 'jobs_2';"
		"INSERT INTO sqlite_sequence (name, seq) SELECT 'jobs_2', seq FROM sqlite_sequence WHERE name = 'jobs';"
		"DROP TABLE jobs;"
		"ALTER TABLE jobs_2 RENAME TO jobs;"
		"CREATE INDEX jobs_state ON jobs (state);"
		"CREATE INDEX jobs_turn ON jobs (priority DESC, id) WHERE state = 'pending';"
		"CREATE INDEX jobs_held ON jobs (id) WHERE state = 'pending' AND held_reason IS NOT NULL;"
		"CREATE INDEX jobs_bound ON jobs (id) WHERE is_bound = 1;"
		"CREATE INDEX jobs_pinned ON jobs (node_constraint) WHERE node_constraint IS NOT NULL;"
		"CREATE INDEX jobs_name ON jobs (name) WHERE name IS NOT NULL;"
		"CREATE INDEX jobs_lane ON jobs (lane, lane_seq) WHERE lane IS NOT NULL;"
		"CREATE UNIQUE INDEX jobs_key ON jobs (key) WHERE key IS NOT NULL;"
		"CREATE INDEX jobs_ended ON jobs (finished_ms DESC, id DESC) WHERE finished_ms IS NOT NULL;"
		"CREATE TABLE cards_out ("
		" node TEXT NOT NULL, uuid TEXT NOT NULL, why TEXT, by_whom TEXT, evidence TEXT, since_ms INTEGER NOT NULL,"
		" PRIMARY KEY (node, uuid)) STRICT, WITHOUT ROWID;"
		"CREATE TABLE card_faults ("
		" node TEXT NOT NULL, uuid TEXT NOT NULL, shape TEXT NOT NULL, xid INTEGER NOT NULL, n INTEGER NOT NULL,"
		" last_ms INTEGER NOT NULL, job INTEGER, what TEXT,"
		" PRIMARY KEY (node, uuid, shape, xid)) STRICT, WITHOUT ROWID;"
		"CREATE TABLE learned ("
		" shape TEXT NOT NULL, gpus INTEGER NOT NULL, n INTEGER NOT NULL, n_oom INTEGER NOT NULL, n_peaks INTEGER NOT NULL,"
		" peak_max_mib INTEGER, peak_last_mib INTEGER, oom_max_mib INTEGER,"
		" n_times INTEGER NOT NULL, run_sum_ms INTEGER NOT NULL, run_max_ms INTEGER NOT NULL, last_ms INTEGER NOT NULL,"
		" PRIMARY KEY (shape, gpus)) STRICT, WITHOUT ROWID;"
		"CREATE INDEX learned_last ON learned (last_ms);"
		"ALTER TABLE lease ADD COLUMN pass_begun INTEGER NOT NULL DEFAULT 0;"
		"ALTER TABLE lease ADD COLUMN pass_done INTEGER NOT NULL DEFAULT 0;"
		"ALTER TABLE nodes ADD COLUMN failed_since_ms INTEGER;"
		"ALTER TABLE nodes ADD COLUMN n_failures INTEGER NOT NULL DEFAULT 0;"
		"ALTER TABLE nodes ADD COLUMN next_try_ms INTEGER;",
	},
	{
		/* What is behind the command costs nothing to read while it's NULL, as the wish to leave a lane nearly always is. */
		"ALTER TABLE jobs ADD COLUMN lane_next TEXT;"
		"ALTER TABLE jobs ADD COLUMN lane_next_at INTEGER;"
		"ALTER TABLE attempts ADD COLUMN needs TEXT;"
		"CREATE INDEX jobs_lane_active ON jobs (lane, lane_seq) WHERE lane IS NOT NULL AND state IN ('pending', 'running');"
		"CREATE TABLE lanes ("
		" name TEXT PRIMARY KEY, node TEXT NOT NULL, cards TEXT NOT NULL,"
		" is_paused INTEGER NOT NULL DEFAULT 0, has_runner INTEGER NOT NULL DEFAULT 1, is_stopped INTEGER NOT NULL DEFAULT 0,"
		" concurrency INTEGER NOT NULL DEFAULT 1, generation INTEGER NOT NULL DEFAULT 0,"
		" acked_generation INTEGER NOT NULL DEFAULT 0, acked_ms INTEGER, acked_root TEXT,"
		" runner_state TEXT, runner_seen_ms INTEGER, created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL"
		") STRICT, WITHOUT ROWID;"
		"CREATE INDEX lanes_node ON lanes (node);",
	},
};

int schema_version(struct store *s, int *ret, struct err *e)
{
	sqlite3_stmt *st = NULL;
	int r = db_ask(s, &st, e, "PRAGMA user_version", "");

	if (r < 0)
		return r;
	*ret = r ? sqlite3_column_int(st, 0) : 0;
	db_done(st);
	return 0;
}

int schema_apply(struct store *s, const struct schema_step *steps, int from, int n, struct err *e)
{
	char version[64];
	int r;

	for (int i = from; i < n; i++) {
		r = db_exec(s, steps[i].sql, e);
		if (r < 0)
			return r;
	}
	snprintf(version, sizeof(version), "PRAGMA user_version = %d", n);
	return db_exec(s, version, e);
}
