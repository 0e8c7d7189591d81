/*
 * The keys of `queue:`, each spelled once: what it may hold, what it is when nothing is said, where it goes and what it
 * means. Reader, defaults, sentences, dump (queue_values.c) and the manual's table come from here. Pure.
 */
#include "config/queue_inner.h"

#include "base/cleanup.h"

#include <string.h>

#define SECOND QUEUE_SECOND
#define DAY QUEUE_DAY
#define TIME_MAX QUEUE_TIME_MAX

static const char *placement_word(unsigned v)
{
	static const char *const words[] = {[QUEUE_SPREAD] = "spread", [QUEUE_PACK] = "pack"};

	return v < ARRAY_LEN(words) ? words[v] : NULL;
}

static const char *node_loss_word(unsigned v)
{
	static const char *const words[] = {[NODE_LOSS_WAIT] = "wait",
		[NODE_LOSS_REQUEUE] = "requeue",
		[NODE_LOSS_FAIL] = "fail"};

	return v < ARRAY_LEN(words) ? words[v] : NULL;
}

static const char *on_dependency_word(unsigned v)
{
	return on_dependency_name((enum on_dependency)v);
}

static const char *severity_word(unsigned v)
{
	return alert_severity_name((enum alert_severity)v);
}

static int check_job_root(const char *s, const char **ret_right)
{
	*ret_right =
		"write a directory below the node's home, or an absolute one, without .. in it";
	for (const char *p = s; *p; p += *p == '/') {
		size_t n = strcspn(p, "/");

		if (n == 2 && strncmp(p, "..", 2) == 0)
			return -EINVAL;
		p += n;
	}
	return s[0] == '~' || s[0] == '-' ? -EINVAL : 0;
}

/* It stands in <node>:<gpu>, and with commas between in lists of nodes. */
static int check_node_name(const char *s, const char **ret_right)
{
	*ret_right = "write a name without blanks, commas, slashes or a hyphen in front";
	return s[0] == '-' || strpbrk(s, " ,/") ? -EINVAL : 0;
}

static const char *shape_word(unsigned v)
{
	static const char *const words[] = {
		[WEBHOOK_PLAIN] = "plain", [WEBHOOK_SLACK] = "slack", [WEBHOOK_NTFY] = "ntfy"};

	return v < ARRAY_LEN(words) ? words[v] : NULL;
}

/* It's handed to curl, which knows many more kinds of address. */
static int check_url(const char *s, const char **ret_right)
{
	size_t n = strncmp(s, "https://", 8) == 0 ? 8 : strncmp(s, "http://", 7) == 0 ? 7 : 0;

	*ret_right = "write an address that begins with https:// or http://, without blanks";
	return n == 0 || !s[n] || strpbrk(s, " \"\\<>{}[]") ? -EINVAL : 0;
}

static int check_header(const char *s, const char **ret_right)
{
	size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_");

	*ret_right = "write a header as in \"Authorization: Bearer abc\"";
	return n == 0 || s[n] != ':' || !s[n + 1 + strspn(s + n + 1, " ")] ? -EINVAL : 0;
}

/* Addresses stand in a list with commas between, and mustn't be taken for anything but addresses. */
static int check_email(const char *s, const char **ret_right)
{
	*ret_right = "write an address as in ann@example.org, without a name before it";
	return !*s || s[0] == '-' || strpbrk(s, " ,;:<>()[]\"\\") ? -EINVAL : 0;
}

static int check_quiet_hours(const char *s, const char **ret_right)
{
	int from, to;

	*ret_right = "write two different times of the day, as in \"22:00-07:00\"";
	return queue_parse_quiet_hours(s, &from, &to);
}

static int check_directory(const char *s, const char **ret_right)
{
	*ret_right = "a path can't begin with a hyphen; write ./ in front";
	return s[0] == '-' ? -EINVAL : 0;
}

#define AT(member) .offset = offsetof(struct queue_settings, member)

const struct queue_key queue_keys[] = {
	{.name = "headroom_mb",
		.kind = QUEUE_KEY_SIZE,
		AT(headroom_mib),
		.initial = "512",
		.text = "never handed out, on each card"},
	{.name = "max_jobs_per_gpu",
		.kind = QUEUE_KEY_COUNT,
		AT(max_jobs_per_gpu),
		.initial = "4",
		.max = 1000,
		.text = "jobs of the queue on one card at a time; 0: no limit"},
	{.name = "max_cpu_jobs_per_node",
		.kind = QUEUE_KEY_COUNT,
		AT(max_cpu_jobs_per_node),
		.initial = "4",
		.max = 100000,
		.text = "jobs without a card (`--gpus 0`) on one node at a time; 0: no limit"},
	{.name = "placement",
		.kind = QUEUE_KEY_WORD,
		AT(placement),
		.initial = "spread",
		.word = placement_word,
		.text = "`spread` takes the emptiest card, `pack` the fullest that still fits"},
	{.name = "default_vram",
		.kind = QUEUE_KEY_VRAM,
		AT(default_vram_mib),
		.initial = "auto",
		.text = "what a job reserves that doesn't say `--vram`; `auto`: what the command is known to need, else a wholly idle card; 0 reserves nothing"},
	{.name = "tick_min_interval",
		.kind = QUEUE_KEY_TIME,
		AT(tick_min_interval_ms),
		.initial = "3s",
		.max = DAY,
		.text = "the queue isn't looked through more often than this, unless a command asks for it"},
	{.name = "lock_ttl",
		.kind = QUEUE_KEY_TIME,
		AT(lock_ttl_ms),
		.initial = "180s",
		.max = DAY,
		.text = "how long a controller that has gone silent keeps its right; at least 60s, twice `probe_timeout` and 30s, twice `launch_timeout` and 60s"},
	{.name = "probe_timeout",
		.kind = QUEUE_KEY_TIME,
		AT(probe_timeout_ms),
		.initial = "25s",
		.min = SECOND,
		.max = DAY,
		.text = "for a node's answer about what it holds"},
	{.name = "launch_timeout",
		.kind = QUEUE_KEY_TIME,
		AT(launch_timeout_ms),
		.initial = "60s",
		.min = SECOND,
		.max = DAY,
		.text = "for a node's answer to a start or to a lane's new order"},
	{.name = "job_root",
		.kind = QUEUE_KEY_TEXT,
		AT(job_root),
		.initial = ".gpustow/jobs",
		.nvidb_initial = ".nvidb/jobs",
		.min = 1,
		.check = check_job_root,
		.text = "where nodes keep the jobs' directories: below the home there, or absolute (`.nvidb/jobs` under the name nvidb)"},
	{.name = "include_local",
		.kind = QUEUE_KEY_BOOL,
		AT(include_local),
		.initial = "false",
		.text = "this machine is a node too; when nothing is said and there are no servers at all, it is"},
	{.name = "local_node_name",
		.kind = QUEUE_KEY_TEXT,
		AT(local_node_name),
		.initial = "local",
		.min = 1,
		.check = check_node_name,
		.text = "what this machine is called as a node"},
	{.name = "guard_after",
		.kind = QUEUE_KEY_TIME,
		AT(guard_after_ms),
		.initial = "15m",
		.max = TIME_MAX,
		.text = "once a job has waited this long, nothing is started that would delay it; 0: never"},
	{.name = "spike_buffer",
		.kind = QUEUE_KEY_SHARE,
		AT(spike_buffer),
		.initial = "0",
		.max = 10,
		.text = "share of its peak that is kept free on top of it for a job that passed its `--vram`"},
	{.name = "kill_grace",
		.kind = QUEUE_KEY_TIME,
		AT(kill_grace_ms),
		.initial = "10s",
		.max = DAY,
		.text = "between TERM and KILL"},
	{.name = "oom_retries",
		.kind = QUEUE_KEY_COUNT,
		AT(oom_retries),
		.initial = "0",
		.max = 100,
		.text = "attempts with more memory for a job that ran out of it on a card"},
	{.name = "retry_on",
		.kind = QUEUE_KEY_CAUSES,
		AT(retry_on),
		.initial = "vanished, node-rebooted, signal",
		.text = "causes that `--retries` covers; `signal` is a SIGKILL that wasn't ours"},
	{.name = "on_dependency",
		.kind = QUEUE_KEY_WORD,
		AT(on_dependency),
		.initial = "hold",
		.word = on_dependency_word,
		.text = "what becomes of a job whose prerequisite ended badly"},
	{.name = "node_loss",
		.kind = QUEUE_KEY_WORD,
		AT(node_loss),
		.initial = "wait",
		.word = node_loss_word,
		.text = "what becomes of the jobs on a node that stays down: they're waited for, started elsewhere, or given up"},
	{.name = "node_loss_after",
		.kind = QUEUE_KEY_TIME,
		AT(node_loss_after_ms),
		.initial = "1h",
		.max = TIME_MAX,
		.text = "how long it must be down before that"},
	{.name = "node_down_after",
		.kind = QUEUE_KEY_TIME,
		AT(node_down_after_ms),
		.initial = "30s",
		.min = SECOND,
		.max = DAY,
		.text = "how long a node must be silent before it counts as down"},
	{.name = "idle_threshold_mb",
		.kind = QUEUE_KEY_SIZE,
		AT(idle_threshold_mib),
		.initial = "200",
		.text = "a card on which others use less than this counts as idle"},
	{.name = "card_faults",
		.kind = QUEUE_KEY_COUNT,
		AT(card_faults),
		.initial = "2",
		.max = 1000,
		.text = "so many different commands that fail fast on a card take it out of service, as an XID does that only a reset, a reboot or a repair mends; 0: never"},
	{.name = "card_fault_window",
		.kind = QUEUE_KEY_TIME,
		AT(card_fault_window_ms),
		.initial = "10m",
		.max = TIME_MAX,
		.text = "the time within which they're counted"},
	{.name = "card_fault_fast",
		.kind = QUEUE_KEY_TIME,
		AT(card_fault_fast_ms),
		.initial = "30s",
		.max = DAY,
		.text = "fast is shorter than this"},
	{.name = "keep_events",
		.kind = QUEUE_KEY_TIME,
		AT(keep_events_ms),
		.initial = "90d",
		.max = TIME_MAX,
		.text = "how long events are kept; 0: for ever"},
	{.name = "keep_alerts",
		.kind = QUEUE_KEY_TIME,
		AT(keep_alerts_ms),
		.initial = "90d",
		.max = TIME_MAX,
		.text = "how long acknowledged alerts are kept; 0: for ever"},
	{.name = "keep_job_dirs",
		.kind = QUEUE_KEY_TIME,
		AT(keep_job_dirs_ms),
		.initial = "0",
		.max = TIME_MAX,
		.text = "how long the directories of ended jobs are kept; 0: for ever"},
	{.name = "captured_output",
		.kind = QUEUE_KEY_BYTES,
		AT(captured_output_bytes),
		.initial = "16K",
		.max = 1 << 20,
		.text = "of the end of a job's output, kept with its alert"},
	{.section = "notify",
		.name = "enabled",
		.kind = QUEUE_KEY_BOOL,
		AT(notify.enabled),
		.initial = "true",
		.text = "alerts are delivered; `notify: false` is the short form"},
	{.section = "notify",
		.name = "desktop",
		.kind = QUEUE_KEY_BOOL,
		AT(notify.desktop),
		.initial = "true",
		.text = "by `notify-send`"},
	{.section = "notify",
		.name = "log",
		.kind = QUEUE_KEY_BOOL,
		AT(notify.log),
		.initial = "true",
		.text = "into alerts.log in the home"},
	{.section = "notify",
		.name = "command",
		.kind = QUEUE_KEY_TEXT,
		AT(notify.command),
		.text = "by this command, through the shell, with the alert as JSON on its stdin"},
	{.section = "notify",
		.name = "min_severity",
		.kind = QUEUE_KEY_WORD,
		AT(notify.min_severity),
		.initial = "warning",
		.word = severity_word,
		.text = "lesser ones aren't delivered"},
	{.section = "notify.webhook",
		.name = "url",
		.kind = QUEUE_KEY_TEXT,
		AT(notify.webhook.url),
		.check = check_url,
		.text = "alerts are posted there, by `curl`; `webhook: URL` is the short form"},
	{.section = "notify.webhook",
		.name = "shape",
		.kind = QUEUE_KEY_WORD,
		AT(notify.webhook.shape),
		.initial = "plain",
		.word = shape_word,
		.text = "what is posted: the alert's JSON, a message for Slack and its kin, or one for ntfy"},
	{.section = "notify.webhook",
		.name = "header",
		.kind = QUEUE_KEY_TEXTS,
		AT(notify.webhook.header),
		.check = check_header,
		.text = "sent along, as in `Authorization: Bearer abc`"},
	{.section = "notify",
		.name = "email",
		.kind = QUEUE_KEY_TEXTS,
		AT(notify.email),
		.check = check_email,
		.text = "addresses that get alerts by mail, by `sendmail`"},
	{.section = "notify",
		.name = "quiet_hours",
		.kind = QUEUE_KEY_TEXT,
		AT(notify.quiet_hours),
		.check = check_quiet_hours,
		.text = "as in `22:00-07:00`, local time: alerts wait until they're over and come as one; alerts.log is written at once"},
	{.section = "notify",
		.name = "quiet_hours_errors",
		.kind = QUEUE_KEY_BOOL,
		AT(notify.quiet_hours_errors),
		.initial = "false",
		.text = "errors don't wait for the end of the quiet hours"},
	{.section = "backup",
		.name = "enabled",
		.kind = QUEUE_KEY_BOOL,
		AT(backup.enabled),
		.initial = "false",
		.text = "the daemon backs the queue up; `backup: true` is the short form"},
	{.section = "backup",
		.name = "interval_hours",
		.kind = QUEUE_KEY_HOURS,
		AT(backup.interval_ms),
		.initial = "24",
		.min = 60 * SECOND,
		.max = TIME_MAX,
		.text = "how often"},
	{.section = "backup",
		.name = "keep",
		.kind = QUEUE_KEY_COUNT,
		AT(backup.keep),
		.initial = "7",
		.max = 100000,
		.text = "older ones than the last so many are deleted; 0: none"},
	{.section = "backup",
		.name = "directory",
		.kind = QUEUE_KEY_TEXT,
		AT(backup.directory),
		.check = check_directory,
		.is_local_path = true,
		.text = "where they go; `backups` in the home when nothing is said, and a relative one is below the home"},
	{.name = "lane_spool_root", .kind = QUEUE_KEY_IGNORED},
	{.name = "lane_lookahead", .kind = QUEUE_KEY_IGNORED},
	{.name = "lane_poll_interval", .kind = QUEUE_KEY_IGNORED},
	{.name = "lane_idle_exit", .kind = QUEUE_KEY_IGNORED},
};
const size_t queue_keys_n = ARRAY_LEN(queue_keys);

static bool same_section(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

const struct queue_key *queue_key_find(const char *section, const struct doc_node *name)
{
	for (size_t i = 0; i < queue_keys_n; i++)
		if (same_section(queue_keys[i].section, section) &&
			doc_text_is(name, queue_keys[i].name))
			return &queue_keys[i];
	return NULL;
}

void queue_key_put_name(const struct queue_key *k, struct buf *b)
{
	buf_printf(b, "%s%s%s", k->section ? k->section : "", k->section ? "." : "", k->name);
}

static void put_words(const struct queue_key *k, struct buf *b)
{
	const char *word, *next;
	size_t n = 0;

	for (unsigned i = 0; (word = k->word(i)); i++) {
		if (!*word)
			continue;
		next = k->word(i + 1);
		buf_printf(b, "%s%s", n == 0 ? "" : next ? ", " : " or ", word);
		n++;
	}
}

static void put_time_type(const struct queue_key *k, struct buf *b)
{
	buf_puts(b, "a time: seconds, or with a unit as in 90s, 15m, 2h, 1d");
	if (k->min)
		buf_printf(b, "; at least %llds", (long long)(k->min / SECOND));
	if (k->max < TIME_MAX)
		buf_printf(b, "; at most %lldd", (long long)(k->max / DAY));
}

static void put_causes(struct buf *b)
{
	buf_puts(b, "a list of causes: ");
	for (unsigned c = JOB_CAUSE_NONE, n = 0; c < JOB_CAUSE_N; c++)
		if (queue_cause_is_retryable((enum job_cause)c))
			buf_printf(b, "%s%s", n++ ? ", " : "", job_cause_name((enum job_cause)c));
}

void queue_key_put_type(const struct queue_key *k, struct buf *b)
{
	static const char size[] = "a size: MiB, or with a unit as in 512M, 2G";

	switch (k->kind) {
	case QUEUE_KEY_COUNT:
		buf_printf(b, "a whole number from %lld to %lld", (long long)k->min,
			(long long)k->max);
		break;
	case QUEUE_KEY_SIZE:
		buf_puts(b, size);
		break;
	case QUEUE_KEY_VRAM:
		buf_printf(b, "auto, or %s", size);
		break;
	case QUEUE_KEY_BYTES:
		buf_printf(b, "bytes, or with a unit as in 16K; at most %lldK",
			(long long)(k->max / 1024));
		break;
	case QUEUE_KEY_TIME:
		put_time_type(k, b);
		break;
	case QUEUE_KEY_HOURS:
		buf_puts(b, "hours, as in 24 or 0.5; at least a minute");
		break;
	case QUEUE_KEY_SHARE:
		buf_printf(b, "a number from %lld to %lld", (long long)k->min, (long long)k->max);
		break;
	case QUEUE_KEY_BOOL:
		buf_puts(b, "true or false, without quotes");
		break;
	case QUEUE_KEY_WORD:
		put_words(k, b);
		break;
	case QUEUE_KEY_TEXT:
		buf_puts(b, "text");
		break;
	case QUEUE_KEY_TEXTS:
		buf_puts(b, "text, or a list of texts");
		break;
	case QUEUE_KEY_CAUSES:
		put_causes(b);
		break;
	case QUEUE_KEY_IGNORED:
		buf_puts(b, "anything");
		break;
	}
}
