/*
 * The queue's configuration: `queue:` of config.yml, overridden key by key by queue.yml, which may bring its own list of
 * nodes and may say that the queue lies elsewhere (`remote:`). Read strictly, both (spec nvidb 2.2, 2.3). Pure but for
 * queue_config_load. Sizes are MiB, times milliseconds.
 */
#pragma once

#include "config/config.h"
#include "core/job.h"

enum queue_placement { QUEUE_SPREAD, QUEUE_PACK };
enum node_loss { NODE_LOSS_WAIT, NODE_LOSS_REQUEUE, NODE_LOSS_FAIL };

/* What a webhook's body looks like: the alert's JSON, {"text": ...} as Slack and its kin take it, or text and headers (ntfy). */
enum webhook_shape { WEBHOOK_PLAIN, WEBHOOK_SLACK, WEBHOOK_NTFY };

/* What the daemon does with alerts. `notify: false` is {enabled: false}. */
struct notify_settings {
	bool enabled, desktop, log; /* all true */
	char *command; /* NULL: none; for the shell */
	enum alert_severity min_severity; /* warning */
	struct {
		char *url; /* NULL: none; http or https; `webhook: URL` is {url: URL} */
		enum webhook_shape shape; /* plain */
		char *header; /* NULL: none; "Name: value", '\n' between several */
	} webhook;
	char *email; /* NULL: none; addresses, '\n' between */
	char *quiet_hours; /* NULL: none; "22:00-07:00", local time */
	bool quiet_hours_errors; /* false; errors are delivered in them too */
};

/* The daemon's backups. `backup: true` is {enabled: true}; a later file's backup: replaces all of it. */
struct backup_settings {
	bool enabled; /* false */
	int64_t interval_ms; /* interval_hours, 24 */
	int64_t keep; /* 7; 0: all */
	char *directory; /* NULL: backups below the home; `~` expanded; a relative one is below the home */
};

struct queue_settings {
	/* nvidb's keys, with its defaults. */
	int64_t headroom_mib; /* headroom_mb, 512 */
	int64_t max_jobs_per_gpu; /* 4; 0: no limit */
	int64_t max_cpu_jobs_per_node; /* 4; 0: no limit */
	enum queue_placement placement; /* spread */
	int64_t default_vram_mib; /* default_vram: "auto" is -1 (the default); an explicit 0 reserves nothing */
	int64_t tick_min_interval_ms; /* 3 s */
	int64_t lock_ttl_ms; /* 180 s, raised as 6.4 says: max(60, lock_ttl, 2*probe_timeout+30, 2*launch_timeout+60) */
	int64_t probe_timeout_ms; /* 25 s */
	int64_t launch_timeout_ms; /* 60 s */
	char *job_root; /* ".gpustow/jobs" (".nvidb/jobs" under the name nvidb); below the node's home, or absolute */
	bool include_local; /* false as in nvidb; when nothing is said, true if there are no servers at all */
	char *local_node_name; /* "local" */
	/* Ours. */
	int64_t guard_after_ms; /* guard_after, 15 min; 0: off */
	double spike_buffer; /* 0 */
	int64_t kill_grace_ms; /* kill_grace, 10 s */
	int64_t oom_retries; /* 0 */
	uint32_t
		retry_on; /* bits of enum job_cause that --retries covers; default vanished, node-rebooted, signal (SIGKILL not ours) */
	enum on_dependency on_dependency; /* hold */
	enum node_loss node_loss; /* wait */
	int64_t node_loss_after_ms; /* node_loss_after, 1 h: how long a node must be down before node_loss acts */
	int64_t node_down_after_ms; /* 30 s: how long a node must be silent before it's down; suspect until then */
	int64_t idle_threshold_mib; /* 200: foreign use below which a card counts as idle */
	int64_t card_faults; /* 2: so many different commands that fail fast on a card take it out of service; 0: never, and no XID does */
	int64_t card_fault_window_ms; /* 10 min: within that time */
	int64_t card_fault_fast_ms; /* 30 s: "fast" is shorter than this */
	int64_t keep_events_ms, keep_alerts_ms,
		keep_job_dirs_ms; /* 90 days, 90 days (acknowledged ones), 0; 0: for ever */
	int64_t captured_output_bytes; /* 16 KiB: of a job's output kept with an alert */
	struct notify_settings notify;
	struct backup_settings backup;
};

/* Another machine has the queue. */
struct queue_remote {
	char *host; /* NULL: the queue is here */
	int port; /* 0: ssh decides */
	char *username;
	char *program; /* nvidb: key "nvidb" or "gpustow"; the name we were called by when neither is there */
	char *home; /* nvidb_home / gpustow_home; NULL: its own */
	bool keeper_ensure; /* keeper: ensure (default) */
	char **ssh_options;
	size_t n_ssh_options;
};

struct queue_node {
	const struct host_config *host; /* NULL: this machine */
	const char *name; /* the nickname, or local_node_name; unique */
};

struct queue_config {
	struct config
		config; /* config.yml, with queue.yml's servers in place of its own where it has any */
	struct queue_settings settings;
	struct queue_remote remote;
	struct queue_node
		*nodes; /* the configuration's order; this machine first where it's included */
	size_t n_nodes;
	char *path; /* of queue.yml */
	bool has_queue_yml;
	bool has_own_servers; /* config's servers are queue.yml's */
	struct buf
		warnings; /* keys of nvidb that mean nothing here are passed over silently (decisions.md); unknown ones warn */
};

void queue_settings_defaults(struct queue_settings *ret, bool is_nvidb);
void queue_settings_done(struct queue_settings *s);
/* One JSON object, keys and values as `queue:` takes them (times in seconds, sizes in MiB): read back, it gives the same. */
void queue_settings_json(const struct queue_settings *s, struct buf *ret);
/*
 * Both files' bytes; either may be NULL (missing). -EINVAL: "queue.yml line N: ...: what would be right". Two nodes of one
 * name are an error (W-42).
 */
int queue_config_parse(const char *config_yml, size_t n_config, const char *config_path,
	const char *queue_yml, size_t n_queue, const char *queue_path, bool is_nvidb,
	struct queue_config *ret, struct err *e);
/* home: config.yml's. queue_path NULL: <home>/queue.yml, which may be missing; -ENOENT: a named one is. */
int queue_config_load(const char *home, const char *queue_path, bool is_nvidb,
	struct queue_config *ret, struct err *e);
void queue_config_done(struct queue_config *c);
/* Exact, then unique ignoring case, then unique part of it. -ENOENT, -EEXIST (several: named in *e). */
int queue_config_find(const struct queue_config *c, const char *name, size_t *ret, struct err *e);
/* nvidb's size: number (decimals allowed), optional m|mb|mib|g|gb|gib|t|tb|tib; rounded; 0 is allowed; never negative. */
int queue_parse_size_mib(const char *s, int64_t *ret);
/* "22:00-07:00": minutes of the day, the second may be the smaller; -EINVAL, also for an empty span. */
int queue_parse_quiet_hours(const char *s, int *ret_from, int *ret_to);
/* Seconds as a number, or 90s, 15m, 2h, 1d. */
int queue_parse_duration_ms(const char *s, int64_t *ret);
