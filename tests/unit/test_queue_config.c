/* The queue's configuration: every key with its default and its mistakes, one file over the other, nodes, remote:, the manual. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "config/queue_inner.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { S = 1000, MINUTE = 60 * S, HOUR = 60 * MINUTE };
#define DAY (24LL * HOUR)

static int try_both(const char *config_yml, const char *queue_yml, bool is_nvidb,
	struct queue_config *c, struct err *e)
{
	return queue_config_parse(config_yml, config_yml ? strlen(config_yml) : 0, "/h/config.yml",
		queue_yml, queue_yml ? strlen(queue_yml) : 0, "/h/queue.yml", is_nvidb, c, e);
}

static void both(const char *config_yml, const char *queue_yml, struct queue_config *c)
{
	struct err e = {0};

	if (try_both(config_yml, queue_yml, false, c, &e) < 0)
		fail_msg("%s\n%s\n--\n%s", e.text, config_yml ? config_yml : "(none)",
			queue_yml ? queue_yml : "(none)");
}

static void defaults(void **state)
{
	static const char *const empty[] = {
		NULL, "", "# nothing\n", "~\n", "queue:\n", "queue: {}\n", "servers:\nremote:\n"};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(empty); i++) {
		CLEANUP(queue_config_done) struct queue_config c = {0};
		const struct queue_settings *s = &c.settings;

		both(NULL, empty[i], &c);
		assert_int_equal(s->headroom_mib, 512);
		assert_int_equal(s->max_jobs_per_gpu, 4);
		assert_int_equal(s->max_cpu_jobs_per_node, 4);
		assert_int_equal(s->placement, QUEUE_SPREAD);
		assert_int_equal(s->default_vram_mib, -1);
		assert_int_equal(s->tick_min_interval_ms, 3 * S);
		assert_int_equal(s->lock_ttl_ms, 180 * S);
		assert_int_equal(s->probe_timeout_ms, 25 * S);
		assert_int_equal(s->launch_timeout_ms, 60 * S);
		assert_string_equal(s->job_root, ".gpustow/jobs");
		assert_string_equal(s->local_node_name, "local");
		assert_int_equal(s->guard_after_ms, 15 * MINUTE);
		assert_true(s->spike_buffer == 0);
		assert_int_equal(s->kill_grace_ms, 10 * S);
		assert_int_equal(s->oom_retries, 0);
		assert_int_equal(s->retry_on, 1u << JOB_CAUSE_VANISHED |
						      1u << JOB_CAUSE_NODE_REBOOTED |
						      1u << JOB_CAUSE_SIGNAL);
		assert_int_equal(s->on_dependency, ON_DEPENDENCY_HOLD);
		assert_int_equal(s->node_loss, NODE_LOSS_WAIT);
		assert_int_equal(s->node_loss_after_ms, HOUR);
		assert_int_equal(s->node_down_after_ms, 30 * S);
		assert_int_equal(s->idle_threshold_mib, 200);
		assert_int_equal(s->card_faults, 2);
		assert_int_equal(s->card_fault_window_ms, 10 * MINUTE);
		assert_int_equal(s->card_fault_fast_ms, 30 * S);
		assert_int_equal(s->keep_events_ms, 90 * DAY);
		assert_int_equal(s->keep_alerts_ms, 90 * DAY);
		assert_int_equal(s->keep_job_dirs_ms, 0);
		assert_int_equal(s->captured_output_bytes, 16384);
		assert_true(s->notify.enabled && s->notify.desktop && s->notify.log);
		assert_null(s->notify.command);
		assert_int_equal(s->notify.min_severity, ALERT_WARNING);
		assert_true(!s->notify.webhook.url && !s->notify.webhook.header &&
			    !s->notify.email && !s->notify.quiet_hours);
		assert_int_equal(s->notify.webhook.shape, WEBHOOK_PLAIN);
		assert_false(s->notify.quiet_hours_errors);
		assert_false(s->backup.enabled);
		assert_int_equal(s->backup.interval_ms, 24 * HOUR);
		assert_int_equal(s->backup.keep, 7);
		assert_null(s->backup.directory);
		/* Nobody else is there: this machine is the queue's node. */
		assert_true(s->include_local);
		assert_int_equal(c.n_nodes, 1);
		assert_null(c.nodes[0].host);
		assert_string_equal(c.nodes[0].name, "local");
		assert_null(c.remote.host);
		assert_string_equal(c.path, "/h/queue.yml");
		assert_int_equal(c.has_queue_yml, empty[i] != NULL);
		assert_true(c.config.is_missing);
		assert_int_equal(c.warnings.len, 0);
	}
}

static void defaults_of_nvidb(void **state)
{
	CLEANUP(queue_config_done) struct queue_config c = {0};
	struct queue_settings s;
	struct err e = {0};

	(void)state;
	assert_int_equal(try_both(NULL, "remote: {host: a}\n", true, &c, &e), 0);
	assert_string_equal(c.settings.job_root, ".nvidb/jobs");
	assert_string_equal(c.remote.program, "nvidb");
	queue_settings_defaults(&s, true);
	assert_string_equal(s.job_root, ".nvidb/jobs");
	assert_int_equal(s.lock_ttl_ms, 180 * S);
	queue_settings_done(&s);
	assert_null(s.job_root);
}

#define EVERYTHING \
	"  headroom_mb: 1G\n  max_jobs_per_gpu: 0\n  max_cpu_jobs_per_node: \"8\"\n  placement: pack\n  default_vram: 12.5GiB\n" \
	"  tick_min_interval: 0.5\n  lock_ttl: 5m\n  probe_timeout: 30\n  launch_timeout: 90s\n  job_root: /scratch/ä b/jobs\n" \
	"  include_local: yes\n  local_node_name: head\n  guard_after: 0\n  spike_buffer: 0.25\n  kill_grace: 1m\n  oom_retries: 2\n" \
	"  retry_on: [vanished, gpu-fault]\n  on_dependency: fail\n  node_loss: requeue\n  node_loss_after: 2h\n" \
	"  node_down_after: 45s\n  idle_threshold_mb: 0\n  card_faults: 3\n  card_fault_window: 20m\n  card_fault_fast: 15s\n" \
	"  keep_events: 1d\n  keep_alerts: 2d\n  keep_job_dirs: 3d\n  captured_output: 4K\n" \
	"  notify: {enabled: no, desktop: off, log: false, command: \"mail -s 'x' me\", min_severity: error,\n" \
	"    webhook: {url: 'https://h.example/x?y=1', shape: slack, header: ['A: b', 'X-C: d: e']},\n" \
	"    email: [ann@example.org, bob], quiet_hours: \"22:00-07:30\", quiet_hours_errors: yes}\n" \
	"  backup: {enabled: true, interval_hours: 0.5, keep: 0, directory: ~/b}\n"

static void check_everything(const struct queue_settings *s)
{
	assert_int_equal(s->headroom_mib, 1024);
	assert_int_equal(s->max_jobs_per_gpu, 0);
	assert_int_equal(s->max_cpu_jobs_per_node, 8);
	assert_int_equal(s->placement, QUEUE_PACK);
	assert_int_equal(s->default_vram_mib, 12800);
	assert_int_equal(s->tick_min_interval_ms, 500);
	assert_int_equal(s->lock_ttl_ms, 300 * S);
	assert_int_equal(s->probe_timeout_ms, 30 * S);
	assert_int_equal(s->launch_timeout_ms, 90 * S);
	assert_string_equal(s->job_root, "/scratch/ä b/jobs");
	assert_true(s->include_local);
	assert_string_equal(s->local_node_name, "head");
	assert_int_equal(s->guard_after_ms, 0);
	assert_true(s->spike_buffer == 0.25);
	assert_int_equal(s->kill_grace_ms, MINUTE);
	assert_int_equal(s->oom_retries, 2);
	assert_int_equal(s->retry_on, 1u << JOB_CAUSE_VANISHED | 1u << JOB_CAUSE_GPU_FAULT);
	assert_int_equal(s->on_dependency, ON_DEPENDENCY_FAIL);
	assert_int_equal(s->node_loss, NODE_LOSS_REQUEUE);
	assert_int_equal(s->node_loss_after_ms, 2 * HOUR);
	assert_int_equal(s->node_down_after_ms, 45 * S);
	assert_int_equal(s->idle_threshold_mib, 0);
	assert_int_equal(s->card_faults, 3);
	assert_int_equal(s->card_fault_window_ms, 20 * MINUTE);
	assert_int_equal(s->card_fault_fast_ms, 15 * S);
	assert_int_equal(s->keep_events_ms, DAY);
	assert_int_equal(s->keep_alerts_ms, 2 * DAY);
	assert_int_equal(s->keep_job_dirs_ms, 3 * DAY);
	assert_int_equal(s->captured_output_bytes, 4096);
	assert_false(s->notify.enabled || s->notify.desktop || s->notify.log);
	assert_string_equal(s->notify.command, "mail -s 'x' me");
	assert_int_equal(s->notify.min_severity, ALERT_ERROR);
	assert_string_equal(s->notify.webhook.url, "https://h.example/x?y=1");
	assert_int_equal(s->notify.webhook.shape, WEBHOOK_SLACK);
	assert_string_equal(s->notify.webhook.header, "A: b\nX-C: d: e");
	assert_string_equal(s->notify.email, "ann@example.org\nbob");
	assert_string_equal(s->notify.quiet_hours, "22:00-07:30");
	assert_true(s->notify.quiet_hours_errors);
	assert_true(s->backup.enabled);
	assert_int_equal(s->backup.interval_ms, 30 * MINUTE);
	assert_int_equal(s->backup.keep, 0);
	assert_string_equal(s->backup.directory, "/home/ann/b");
}

/* In either file; and what's dumped is read back. */
static void everything(void **state)
{
	CLEANUP(queue_config_done) struct queue_config a = {0}, b = {0}, again = {0};
	CLEANUP(buf_done) struct buf text = {0}, text_again = {0};

	(void)state;
	setenv("HOME", "/home/ann", 1);
	both("queue:\n" EVERYTHING, NULL, &a);
	check_everything(&a.settings);
	assert_string_equal(buf_str(&a.warnings), "");
	both(NULL, "queue:\n" EVERYTHING, &b);
	check_everything(&b.settings);
	buf_puts(&text, "queue: ");
	queue_settings_json(&b.settings, &text);
	both(NULL, buf_str(&text), &again);
	check_everything(&again.settings);
	buf_puts(&text_again, "queue: ");
	queue_settings_json(&again.settings, &text_again);
	assert_string_equal(buf_str(&text), buf_str(&text_again));
	assert_string_equal(buf_str(&again.warnings), "");
	/* Every key was written above: a new one has to be put there. */
	for (size_t i = 0; i < queue_keys_n; i++) {
		CLEANUP_FREE char *key = xasprintf("%s: ", queue_keys[i].name);

		if (queue_keys[i].kind != QUEUE_KEY_IGNORED && !strstr(EVERYTHING, key))
			fail_msg("EVERYTHING lacks %s", key);
	}
}

static void dump(void **state)
{
	CLEANUP(buf_done) struct buf text = {0};
	struct queue_settings s;

	(void)state;
	queue_settings_defaults(&s, false);
	s.tick_min_interval_ms = 1500;
	queue_settings_json(&s, &text);
	queue_settings_done(&s);
	assert_string_equal(buf_str(&text),
		"{\"headroom_mb\":512,\"max_jobs_per_gpu\":4,\"max_cpu_jobs_per_node\":4,\"placement\":\"spread\","
		"\"default_vram\":\"auto\",\"tick_min_interval\":1.5,\"lock_ttl\":180,\"probe_timeout\":25,"
		"\"launch_timeout\":60,\"job_root\":\".gpustow/jobs\",\"include_local\":false,\"local_node_name\":\"local\","
		"\"guard_after\":900,\"spike_buffer\":0.0,\"kill_grace\":10,\"oom_retries\":0,"
		"\"retry_on\":[\"vanished\",\"node-rebooted\",\"signal\"],\"on_dependency\":\"hold\",\"node_loss\":\"wait\","
		"\"node_loss_after\":3600,\"node_down_after\":30,\"idle_threshold_mb\":200,\"card_faults\":2,"
		"\"card_fault_window\":600,\"card_fault_fast\":30,\"keep_events\":7776000,\"keep_alerts\":7776000,"
		"\"keep_job_dirs\":0,\"captured_output\":16384,\"notify\":{\"enabled\":true,\"desktop\":true,\"log\":true,"
		"\"command\":null,\"min_severity\":\"warning\",\"webhook\":{\"url\":null,\"shape\":\"plain\",\"header\":null},"
		"\"email\":null,\"quiet_hours\":null,\"quiet_hours_errors\":false},\"backup\":{\"enabled\":false,\"interval_hours\":24,\"keep\":7,"
		"\"directory\":null}}");
}

/* The controller's right outlives any single thing that it may be waiting for. */
static void lease_time(void **state)
{
	static const struct {
		const char *text;
		int64_t ms;
	} rows[] = {
		{"queue: {lock_ttl: 5}\n", 180 * S}, /* twice 60 and 60 */
		{"queue: {lock_ttl: 5, launch_timeout: 1}\n", 80 * S}, /* twice 25 and 30 */
		{"queue: {lock_ttl: 5, launch_timeout: 1, probe_timeout: 100}\n", 230 * S},
		{"queue: {lock_ttl: 5, launch_timeout: 100}\n", 260 * S},
		{"queue: {lock_ttl: 5, launch_timeout: 1, probe_timeout: 1}\n", 62 * S},
		{"queue: {lock_ttl: 900}\n", 900 * S},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		CLEANUP(queue_config_done) struct queue_config c = {0};

		both(NULL, rows[i].text, &c);
		assert_int_equal(c.settings.lock_ttl_ms, rows[i].ms);
	}
}

#define SIZE "write a size: MiB, or with a unit as in 512M, 2G"
#define TIME "write a time: seconds, or with a unit as in 90s, 15m, 2h, 1d"
#define CAUSES \
	"write a list of causes: cuda-oom, host-oom, gpu-fault, vanished, node-lost, node-rebooted, timeout, signal, exit-code, launch-failed, disk-full"

static void mistakes(void **state)
{
	static const struct {
		const char *line, *sentence; /* below queue:, so line 2 */
	} rows[] = {
		{"headroom_mb: lots", "headroom_mb: 'lots' won't do; " SIZE},
		{"headroom_mb: -1", "headroom_mb: '-1' won't do; " SIZE},
		{"headroom_mb: true", "headroom_mb: 'true' won't do; " SIZE},
		{"headroom_mb: [1]", "headroom_mb: " SIZE},
		{"headroom_mb: {a: 1}", "headroom_mb: " SIZE},
		{"headroom_mb: !!int 3", "headroom_mb: '3' won't do; " SIZE},
		{"headroom_mb: 2000T", "headroom_mb: '2000T' won't do; " SIZE},
		{"headroom_mb: 0512",
			"headroom_mb: YAML reads 0512 as another number; write it without the leading 0 or colon"},
		{"headroom_mb: \"5\\0\"", "headroom_mb: '5\\x00' won't do; " SIZE},
		{"max_jobs_per_gpu: 1.5",
			"max_jobs_per_gpu: '1.5' won't do; write a whole number from 0 to 1000"},
		{"max_jobs_per_gpu: 1001",
			"max_jobs_per_gpu: '1001' won't do; write a whole number from 0 to 1000"},
		{"max_jobs_per_gpu: -1",
			"max_jobs_per_gpu: '-1' won't do; write a whole number from 0 to 1000"},
		{"max_jobs_per_gpu: no",
			"max_jobs_per_gpu: 'no' won't do; write a whole number from 0 to 1000"},
		{"max_cpu_jobs_per_node: many",
			"max_cpu_jobs_per_node: 'many' won't do; write a whole number from 0 to 100000"},
		{"placement: best", "placement: 'best' won't do; write spread or pack"},
		{"placement: [pack]", "placement: write spread or pack"},
		{"default_vram: Auto",
			"default_vram: 'Auto' won't do; write auto, or a size: MiB, or with a unit as in 512M, 2G"},
		{"tick_min_interval: 1:30",
			"tick_min_interval: YAML reads 1:30 as another number; write it without the leading 0 or colon"},
		{"tick_min_interval: 2d", "tick_min_interval: '2d' won't do; " TIME "; at most 1d"},
		{"lock_ttl: soon", "lock_ttl: 'soon' won't do; " TIME "; at most 1d"},
		{"probe_timeout: 0",
			"probe_timeout: '0' won't do; " TIME "; at least 1s; at most 1d"},
		{"launch_timeout: 0.9",
			"launch_timeout: '0.9' won't do; " TIME "; at least 1s; at most 1d"},
		{"job_root: ~/jobs",
			"job_root: '~/jobs' won't do; write a directory below the node's home, or an absolute one, without .. in it"},
		{"job_root: a/../b",
			"job_root: 'a/../b' won't do; write a directory below the node's home, or an absolute one, without .. in it"},
		{"job_root: \"\"",
			"job_root: '' won't do; it can't be empty; leave the key out for the default"},
		{"job_root: \"a\\nb\"",
			"job_root: 'a\\nb' won't do; it holds control characters; write plain text"},
		{"job_root: \"a\\uFFFEb\"",
			"job_root: 'a\xef\xbf\xbe"
			"b' won't do; it holds control characters; write plain text"},
		{"job_root: [a]", "job_root: takes one value, not a list or a mapping"},
		{"include_local: 1",
			"include_local: '1' won't do; write true or false, without quotes"},
		{"include_local: 'true'",
			"include_local: 'true' won't do; write true or false, without quotes"},
		{"local_node_name: a b",
			"local_node_name: 'a b' won't do; write a name without blanks, commas, slashes or a hyphen in front"},
		{"guard_after: never", "guard_after: 'never' won't do; " TIME},
		{"guard_after: 15 minutes", "guard_after: '15 minutes' won't do; " TIME},
		{"spike_buffer: 10%", "spike_buffer: '10%' won't do; write a number from 0 to 10"},
		{"spike_buffer: -0.1",
			"spike_buffer: '-0.1' won't do; write a number from 0 to 10"},
		{"spike_buffer: 11", "spike_buffer: '11' won't do; write a number from 0 to 10"},
		{"kill_grace: ten", "kill_grace: 'ten' won't do; " TIME "; at most 1d"},
		{"oom_retries: yes",
			"oom_retries: 'yes' won't do; write a whole number from 0 to 100"},
		{"retry_on: vanished", "retry_on: 'vanished' won't do; " CAUSES},
		{"retry_on: [vanished, oops]", "retry_on: 'oops' won't do; " CAUSES},
		{"retry_on: [cancelled]", "retry_on: 'cancelled' won't do; " CAUSES},
		{"retry_on: ['']", "retry_on: '' won't do; " CAUSES},
		{"on_dependency: wait", "on_dependency: 'wait' won't do; write hold, fail or run"},
		{"node_loss: retry", "node_loss: 'retry' won't do; write wait, requeue or fail"},
		{"node_loss_after: -1h", "node_loss_after: '-1h' won't do; " TIME},
		{"node_down_after: 0",
			"node_down_after: '0' won't do; " TIME "; at least 1s; at most 1d"},
		{"idle_threshold_mb: some", "idle_threshold_mb: 'some' won't do; " SIZE},
		{"card_faults: 2x",
			"card_faults: '2x' won't do; write a whole number from 0 to 1000"},
		{"card_fault_window: x", "card_fault_window: 'x' won't do; " TIME},
		{"card_fault_fast: x", "card_fault_fast: 'x' won't do; " TIME "; at most 1d"},
		{"keep_events: forever", "keep_events: 'forever' won't do; " TIME},
		{"keep_alerts: 1w", "keep_alerts: '1w' won't do; " TIME},
		{"keep_job_dirs: 40000d", "keep_job_dirs: '40000d' won't do; " TIME},
		{"captured_output: 2M",
			"captured_output: '2M' won't do; write bytes, or with a unit as in 16K; at most 1024K"},
		{"notify: loud",
			"notify: 'loud' won't do; write true, false, or its keys on lines of their own"},
		{"notify: [a]", "notify: write true, false, or its keys on lines of their own"},
		{"notify: {enabled: 1}",
			"notify.enabled: '1' won't do; write true or false, without quotes"},
		{"notify: {desktop: maybe}",
			"notify.desktop: 'maybe' won't do; write true or false, without quotes"},
		{"notify: {log: alerts.log}",
			"notify.log: 'alerts.log' won't do; write true or false, without quotes"},
		{"notify: {command: [mail, me]}",
			"notify.command: takes one value, not a list or a mapping"},
		{"notify: {min_severity: info}",
			"notify.min_severity: 'info' won't do; write warning or error"},
#define URL "write an address that begins with https:// or http://, without blanks"
#define EMAIL "write an address as in ann@example.org, without a name before it"
#define QUIET "write two different times of the day, as in \"22:00-07:00\""
		{"notify: {webhook: 'ftp://h/x'}",
			"notify.webhook.url: 'ftp://h/x' won't do; " URL},
		{"notify: {webhook: {url: 'http://'}}",
			"notify.webhook.url: 'http://' won't do; " URL},
		{"notify: {webhook: ['http://a']}",
			"notify.webhook.url: takes one value, not a list or a mapping"},
		{"notify: {webhook: {url: 'http://a', shape: teams}}",
			"notify.webhook.shape: 'teams' won't do; write plain, slack or ntfy"},
		{"notify: {webhook: {url: 'http://a', header: ['A: b', secret]}}",
			"notify.webhook.header: 'secret' won't do; write a header as in \"Authorization: Bearer abc\""},
		{"notify: {email: 'Ann <ann@example.org>'}",
			"notify.email: 'Ann <ann@example.org>' won't do; " EMAIL},
		{"notify: {email: [ann, '-oX']}", "notify.email: '-oX' won't do; " EMAIL},
		{"notify: {email: {a: b}}",
			"notify.email: takes one value, not a list or a mapping"},
		{"notify: {quiet_hours: '22-7'}", "notify.quiet_hours: '22-7' won't do; " QUIET},
		{"notify: {quiet_hours: '22:00-22:00'}",
			"notify.quiet_hours: '22:00-22:00' won't do; " QUIET},
		{"notify: {quiet_hours: '22:00-24:00'}",
			"notify.quiet_hours: '22:00-24:00' won't do; " QUIET},
		{"notify: {quiet_hours: '22:60-23:00'}",
			"notify.quiet_hours: '22:60-23:00' won't do; " QUIET},
		{"notify: {quiet_hours_errors: 1}",
			"notify.quiet_hours_errors: '1' won't do; write true or false, without quotes"},
		{"notify: {log: true, log: true}",
			"notify: has the key 'log' twice, here and in line 2; keep one"},
		{"backup: daily",
			"backup: 'daily' won't do; write true, false, or its keys on lines of their own"},
		{"backup: {enabled: 'no'}",
			"backup.enabled: 'no' won't do; write true or false, without quotes"},
		{"backup: {interval_hours: 0}",
			"backup.interval_hours: '0' won't do; write hours, as in 24 or 0.5; at least a minute"},
		{"backup: {interval_hours: 24h}",
			"backup.interval_hours: '24h' won't do; write hours, as in 24 or 0.5; at least a minute"},
		{"backup: {keep: all}",
			"backup.keep: 'all' won't do; write a whole number from 0 to 100000"},
		{"backup: {directory: -x}",
			"backup.directory: '-x' won't do; a path can't begin with a hyphen; write ./ in front"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		CLEANUP_FREE char *text = xasprintf("queue:\n  %s\n", rows[i].line);

		/* The same in both files: nothing falls back in silence (W-62). */
		for (int f = 0; f < 2; f++) {
			CLEANUP_FREE char *want = xasprintf(
				"%s line 2: %s", f ? "queue.yml" : "config.yml", rows[i].sentence);
			struct queue_config c = {.n_nodes = 77};
			struct err e = {0};
			int r = try_both(f ? NULL : text, f ? text : NULL, false, &c, &e);

			if (r != -EINVAL || strcmp(e.text, want) != 0)
				fail_msg("%swant %s\ngot  %s (%d)", text, want, e.text, r);
			assert_int_equal(c.n_nodes, 77);
			assert_null(c.path);
		}
	}
	/* Every key has a row. */
	for (size_t i = 0; i < queue_keys_n; i++) {
		CLEANUP(buf_done) struct buf name = {0};
		bool has = queue_keys[i].kind == QUEUE_KEY_IGNORED;

		queue_key_put_name(&queue_keys[i], &name);
		buf_putc(&name, ':');
		for (size_t j = 0; !has && j < ARRAY_LEN(rows); j++)
			has = strncmp(rows[j].sentence, buf_str(&name), name.len) == 0;
		if (!has)
			fail_msg("no mistake is tried with %s", buf_str(&name));
	}
}

static void odd_files(void **state)
{
	static const struct {
		const char *config, *queue, *sentence;
	} rows[] = {
		{NULL, "- a\n", "queue.yml line 1: the file must hold lines \"key: value\""},
		{NULL, "text\n", "queue.yml line 1: the file must hold lines \"key: value\""},
		{NULL, "queue: 3\n", "queue.yml line 1: queue: must hold lines \"key: value\""},
		{"queue: 3\n", NULL, "config.yml line 1: queue: must hold lines \"key: value\""},
		{NULL, "queue:\n\tx: 1\n",
			"queue.yml line 2: a tab stands where YAML takes only blanks"},
		{NULL, "queue: &a {}\n",
			"queue.yml line 1: anchors and aliases (&name, *name) aren't read here; write the values out"},
		{NULL, "a: \xff\n", "queue.yml line 1: this isn't UTF-8; save the file as UTF-8"},
		{NULL, "queue: {card_faults: 1}\nqueue: {card_faults: 2}\n",
			"queue.yml line 2: the file has the key 'queue' twice, here and in line 1; keep one"},
		{NULL, "queue:\n  card_faults: 1\n  card_faults: 2\n",
			"queue.yml line 3: queue: has the key 'card_faults' twice, here and in line 2; keep one"},
		{NULL, "servers: []\nnodes: []\n",
			"queue.yml line 2: servers: and nodes: mean the same; keep one"},
		{NULL, "nodes: a\n",
			"queue.yml line 1: servers: must be a list; each server begins with \"- hostname: ...\""},
		{NULL, "nodes:\n- hostname: a\n  port: x\n",
			"queue.yml line 3: port: 'x' won't do; write a number from 1 to 65535"},
		{NULL, "nodes:\n- {hostname: a, nickname: n}\n- {hostname: b, nickname: n}\n",
			"queue.yml line 3: nickname: 'n' belongs to the server in line 2 already; names are unique"},
		{NULL, "nodes:\n- {hostname: a, nickname: n}\nqueue: {include_local: on, local_node_name: n}\n",
			"queue.yml line 2: nickname: 'n' is this machine's name as a node; change it, or local_node_name:"},
		{"servers:\n- hostname: a\n  nickname: n\n",
			"queue: {include_local: on, local_node_name: n}\n",
			"config.yml line 2: nickname: 'n' is this machine's name as a node; change it, or local_node_name:"},
		{"basic: {remote: 1}\n", "queue: {}\n",
			"config.yml line 1: remote: '1' won't do; write true or false, without quotes"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct queue_config c = {0};
		struct err e = {0};
		int r = try_both(rows[i].config, rows[i].queue, false, &c, &e);

		if (r != -EINVAL || strcmp(e.text, rows[i].sentence) != 0)
			fail_msg("%s\nwant %s\ngot  %s (%d)",
				rows[i].queue ? rows[i].queue : rows[i].config, rows[i].sentence,
				e.text, r);
	}
}

static void warnings(void **state)
{
	static const struct {
		const char *config, *queue, *warning;
	} rows[] = {
		{NULL, "queue:\n  headroom: 1\n",
			"queue.yml line 2: unknown key 'headroom' in queue: is ignored\n"},
		{NULL, "queue:\n  kill_grase: 1\n",
			"queue.yml line 2: unknown key 'kill_grase' in queue: is ignored; did you mean kill_grace?\n"},
		{"queue:\n  placment: pack\n", NULL,
			"config.yml line 2: unknown key 'placment' in queue: is ignored; did you mean placement?\n"},
		{NULL, "queue:\n  notify:\n    webhooks: x\n    webhook: {uri: x}\n",
			"queue.yml line 3: unknown key 'webhooks' in notify: is ignored; did you mean webhook?\n"
			"queue.yml line 4: unknown key 'uri' in notify.webhook: is ignored; did you mean url?\n"},
		{NULL, "queue:\n  notify:\n    sound: on\n    logs: on\n",
			"queue.yml line 3: unknown key 'sound' in notify: is ignored\n"
			"queue.yml line 4: unknown key 'logs' in notify: is ignored; did you mean log?\n"},
		{NULL, "queue: {backups: true}\n",
			"queue.yml line 1: unknown key 'backups' in queue: is ignored; did you mean backup?\n"},
		{NULL, "kill_grace: 3\nnotify: false\nnode: []\n",
			"queue.yml line 1: key 'kill_grace' is ignored here; it belongs below queue:\n"
			"queue.yml line 2: key 'notify' is ignored here; it belongs below queue:\n"
			"queue.yml line 3: unknown key 'node' is ignored; did you mean nodes?\n"},
		{NULL, "remote: {host: a, prot: 3}\n",
			"queue.yml line 1: unknown key 'prot' in remote: is ignored; did you mean port?\n"},
		{NULL, "nodes:\n- host: a\n",
			"queue.yml line 2: host: is an old name; write hostname:\n"},
		/* nvidb's keys without meaning, whatever they hold. */
		{"queue:\n  lane_lookahead: 1\n  lane_poll_interval: x\n  lane_spool_root: [a]\n  lane_idle_exit:\n",
			"queue:\n  lane_lookahead: {}\n", ""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		CLEANUP(queue_config_done) struct queue_config c = {0};

		both(rows[i].config, rows[i].queue, &c);
		assert_string_equal(buf_str(&c.warnings), rows[i].warning);
		assert_string_equal(buf_str(&c.config.warnings), "");
	}
}

static void one_over_the_other(void **state)
{
	CLEANUP(queue_config_done) struct queue_config c = {0}, d = {0}, f = {0}, w = {0}, x = {0};

	(void)state;
	both("queue:\n  headroom_mb: 100\n  placement: pack\n  kill_grace: 5\n  retry_on: [vanished, timeout]\n  card_faults: 9\n"
	     "  notify: {desktop: false, command: hook}\n  backup: {enabled: true, keep: 3, directory: /b}\n",
		"queue:\n  headroom_mb: 200\n  retry_on: [signal]\n  card_faults:\n"
		"  notify: {log: false}\n  backup: {interval_hours: 2}\n",
		&c);
	/* Key by key; nothing is the default again. */
	assert_int_equal(c.settings.headroom_mib, 200);
	assert_int_equal(c.settings.placement, QUEUE_PACK);
	assert_int_equal(c.settings.kill_grace_ms, 5 * S);
	assert_int_equal(c.settings.retry_on, 1u << JOB_CAUSE_SIGNAL);
	assert_int_equal(c.settings.card_faults, 2);
	/* notify: one level deeper. */
	assert_true(c.settings.notify.enabled);
	assert_false(c.settings.notify.desktop || c.settings.notify.log);
	assert_string_equal(c.settings.notify.command, "hook");
	/* backup: whole. */
	assert_false(c.settings.backup.enabled);
	assert_int_equal(c.settings.backup.interval_ms, 2 * HOUR);
	assert_int_equal(c.settings.backup.keep, 7);
	assert_null(c.settings.backup.directory);

	/* A webhook's header goes with its address. */
	both("queue: {notify: {webhook: {url: 'http://a', header: 'A: b'}, email: ann}}\n",
		"queue: {notify: {webhook: 'http://b'}}\n", &w);
	assert_string_equal(w.settings.notify.webhook.url, "http://b");
	assert_null(w.settings.notify.webhook.header);
	assert_string_equal(w.settings.notify.email, "ann");
	both("queue: {notify: {webhook: 'http://a', email: ann}}\n", "queue: {notify: ~}\n", &x);
	assert_null(x.settings.notify.webhook.url);
	assert_null(x.settings.notify.email);
	both("queue: {notify: false, backup: {enabled: false, keep: 3}, remote: {host: a, user: u}}\n",
		"queue: {notify: {command: x}, backup: true, remote: {host: b}}\n", &d);
	assert_false(d.settings.notify.enabled);
	assert_string_equal(d.settings.notify.command, "x");
	assert_true(d.settings.backup.enabled);
	assert_int_equal(d.settings.backup.keep, 7);
	assert_string_equal(d.remote.host, "b");
	assert_null(d.remote.username);

	both("queue: {notify: {enabled: false, log: false}, backup: true, remote: {host: a}, retry_on: []}\n",
		"remote: false\nqueue: {notify: ~, backup: false}\n", &f);
	assert_true(f.settings.notify.enabled && f.settings.notify.log);
	assert_false(f.settings.backup.enabled);
	assert_null(f.remote.host);
	assert_int_equal(f.settings.retry_on, 0);
}

static void check_nodes(const char *config, const char *queue, const char *names)
{
	CLEANUP(queue_config_done) struct queue_config c = {0};
	CLEANUP(buf_done) struct buf got = {0};

	both(config, queue, &c);
	for (size_t i = 0; i < c.n_nodes; i++) {
		buf_printf(
			&got, "%s%s%s", i ? " " : "", c.nodes[i].host ? "" : "+", c.nodes[i].name);
		if (c.nodes[i].host)
			assert_ptr_equal(c.nodes[i].name, c.nodes[i].host->nickname);
	}
	assert_string_equal(buf_str(&got), names);
}

static void nodes(void **state)
{
#define AB "servers:\n- {hostname: x, nickname: b, gpus: [1]}\n- {hostname: y, nickname: a}\n"
	CLEANUP(queue_config_done) struct queue_config c = {0};

	(void)state;
	check_nodes(AB, NULL, "b a");
	check_nodes(AB, "queue: {include_local: true}\n", "+local b a");
	check_nodes(
		AB "queue: {include_local: true}\n", "queue: {local_node_name: me}\n", "+me b a");
	check_nodes(AB "queue: {include_local: true}\n", "queue: {include_local: false}\n", "b a");
	check_nodes(AB, "nodes:\n- {hostname: z, nickname: c}\n", "c");
	check_nodes(AB, "servers:\n- {hostname: z, nickname: c}\n", "c");
	check_nodes(AB, "servers:\n", "b a");
	check_nodes(AB, "", "b a");
	check_nodes(AB, "servers: []\n", "+local");
	/* Said outright, it's so, and so for a name of this machine's that isn't used. */
	check_nodes(AB, "servers: []\nqueue: {include_local: false}\n", "");
	check_nodes(NULL, "queue: {include_local: false}\n", "");
	check_nodes("queue: {include_local: false}\n", "queue: {include_local: ~}\n", "+local");
	check_nodes(AB, "queue: {local_node_name: a}\n", "b a");
	/* The card numbers come along; gpu_ids is gpus (W-61). */
	both(AB, "nodes:\n- {hostname: z, gpu_ids: [3]}\n", &c);
	assert_true(c.has_own_servers);
	assert_int_equal(c.nodes[0].host->gpus[0], 3);
	assert_string_equal(c.nodes[0].name, "z:22");
}

static void finds(void **state)
{
	CLEANUP(queue_config_done) struct queue_config c = {0}, none = {0};
	struct err e = {0};
	size_t i = 99;

	(void)state;
	both(AB "- {hostname: z, nickname: Big}\n- {hostname: v, nickname: bigger}\n",
		"queue: {include_local: true, local_node_name: head}\n", &c);
	assert_int_equal(queue_config_find(&c, "head", &i, &e), 0);
	assert_int_equal(i, 0);
	assert_int_equal(queue_config_find(&c, "b", &i, &e), 0);
	assert_int_equal(i, 1);
	assert_int_equal(queue_config_find(&c, "BIG", &i, &e), 0);
	assert_int_equal(i, 3);
	assert_int_equal(queue_config_find(&c, "gg", &i, &e), 0);
	assert_int_equal(i, 4);
	assert_int_equal(queue_config_find(&c, "ig", &i, &e), -EEXIST);
	assert_string_equal(e.text, "'ig' isn't clear: it could be Big, bigger");
	assert_int_equal(queue_config_find(&c, "x", &i, &e), -ENOENT);
	assert_string_equal(e.text,
		"there's no node 'x'; the queue's configuration has head, b, a, Big, bigger");
	both(NULL, "queue: {include_local: false}\n", &none);
	assert_int_equal(queue_config_find(&none, "x", &i, &e), -ENOENT);
	assert_string_equal(e.text, "there's no node 'x'; the queue's configuration names none");
	assert_int_equal(i, 4);
}

static void remote(void **state)
{
	CLEANUP(queue_config_done) struct queue_config a = {0}, b = {0}, c = {0};

	(void)state;
	both(NULL, "remote:\n  host: head.example.org\n", &a);
	assert_string_equal(a.remote.host, "head.example.org");
	assert_int_equal(a.remote.port, 0);
	assert_null(a.remote.username);
	assert_string_equal(a.remote.program, "gpustow");
	assert_null(a.remote.home);
	assert_true(a.remote.keeper_ensure);
	assert_int_equal(a.remote.n_ssh_options, 0);
	both(NULL,
		"queue:\n  remote:\n    hostname: h\n    user: ann\n    port: 2222\n    nvidb: /opt/my tools/nvidb\n    nvidb_home: ~/.nvidb\n"
		"    keeper: none\n    ssh_options: [ServerAliveInterval=15, 'ProxyCommand nc %h %p']\n",
		&b);
	assert_string_equal(b.remote.host, "h");
	assert_int_equal(b.remote.port, 2222);
	assert_string_equal(b.remote.username, "ann");
	assert_string_equal(b.remote.program, "/opt/my tools/nvidb");
	assert_string_equal(b.remote.home, "~/.nvidb");
	assert_false(b.remote.keeper_ensure);
	assert_int_equal(b.remote.n_ssh_options, 2);
	assert_string_equal(b.remote.ssh_options[0], "ServerAliveInterval=15");
	assert_string_equal(b.remote.ssh_options[1], "ProxyCommand nc %h %p");
	both("queue: {remote: {host: ann@h, gpustow: g, gpustow_home: /g, keeper: , ssh_options: }}\n",
		NULL, &c);
	assert_string_equal(c.remote.host, "h");
	assert_string_equal(c.remote.username, "ann");
	assert_string_equal(c.remote.program, "g");
	assert_string_equal(c.remote.home, "/g");
	assert_true(c.remote.keeper_ensure);
}

static void remote_mistakes(void **state)
{
	static const struct {
		const char *text, *sentence;
	} rows[] = {
		{"remote: h", "remote: must hold lines \"key: value\""},
		{"remote: true", "remote: must hold lines \"key: value\""},
		{"remote: {user: u}",
			"remote: needs host:, the machine that has the queue; remote: false says that it's here"},
		{"remote: {host: }",
			"remote: needs host:, the machine that has the queue; remote: false says that it's here"},
		{"remote: {host: -oProxyCommand=x}",
			"remote: hostname: '-oProxyCommand=x' won't do; write a host's name, address or ssh alias"},
		{"remote: {host: 'a;b'}",
			"remote: hostname: 'a;b' won't do; write a host's name, address or ssh alias"},
		{"remote: {host: [a]}", "remote.host: takes one value, not a list or a mapping"},
		{"remote: {host: a, hostname: b}", "host: and hostname: mean the same; keep one"},
		{"remote: {host: a, gpustow: x, nvidb: y}",
			"gpustow: and nvidb: mean the same; keep one"},
		{"remote: {host: u@a, user: v}",
			"remote.username: 'v' won't do; host: says the user already"},
		{"remote: {user: v, host: u@a}",
			"remote.host: 'u@a' won't do; username: says the user already"},
		{"remote: {host: a, user: -x}",
			"remote: username: '-x' won't do; write the account's name on that host"},
		{"remote: {host: a, port: 0}",
			"remote: port: '0' won't do; write a number from 1 to 65535"},
		{"remote: {host: a, port: 022}",
			"remote.port: YAML reads 022 as another number; write it without the leading 0 or colon"},
		{"remote: {host: a, nvidb: -x}",
			"remote.nvidb: '-x' won't do; write a path of at most 1024 bytes that begins with no hyphen"},
		{"remote: {host: a, nvidb_home: \"a\\nb\"}",
			"remote.nvidb_home: it holds control characters; write plain text"},
		{"remote: {host: a, keeper: [ensure]}",
			"remote.keeper: write ensure, or none to leave the keeper there alone"},
		{"remote: {host: a, ssh_options: A=b}",
			"remote.ssh_options: 'A=b' won't do; takes a list of ssh's options, as [\"ServerAliveInterval=15\"]"},
		{"remote: {host: a, ssh_options: [-oA=b]}",
			"remote.ssh_options: '-oA=b' won't do; each is one option of ssh_config(5), without -o in front"},
		{"remote: {host: a}\nqueue: {remote: {host: b}}", NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		CLEANUP_FREE char *want =
			xasprintf("queue.yml line 1: %s", rows[i].sentence ? rows[i].sentence : "");
		struct queue_config c = {0};
		struct err e = {0};
		int r = try_both(NULL, rows[i].text, false, &c, &e);

		if (!rows[i].sentence)
			assert_string_equal(e.text,
				"queue.yml line 2: remote: stands at the top and in queue:; keep one");
		else if (r != -EINVAL || strcmp(e.text, want) != 0)
			fail_msg("%s\nwant %s\ngot  %s (%d)", rows[i].text, want, e.text, r);
	}
}

static void sizes_and_times(void **state)
{
	static const struct {
		const char *text;
		int64_t size, time; /* -1: none */
	} rows[] = {
		{"0", 0, 0},
		{"1", 1, 1000},
		{"1.5", 2, 1500},
		{"2.4", 2, 2400},
		{"512M", 512, 512 * MINUTE},
		{"512 mb", 512, -1},
		{"1MiB", 1, -1},
		{"24g", 24576, -1},
		{"24 GB", 24576, -1},
		{"0.5GiB", 512, -1},
		{"2t", 2097152, -1},
		{"1TB", 1048576, -1},
		{"1tib", 1048576, -1},
		{"1024T", 1 << 30, -1},
		{"1025T", -1, -1},
		{"90s", -1, 90 * S},
		{"15m", 15, 15 * MINUTE},
		{"2h", -1, 2 * HOUR},
		{"1.5D", -1, 36 * HOUR},
		{"36500d", -1, 36500 * DAY},
		{"36501d", -1, -1},
		{"", -1, -1},
		{" 1", -1, -1},
		{"1 ", -1, -1},
		{"1  m", -1, -1},
		{"-1", -1, -1},
		{"+1", -1, -1},
		{"1.", -1, -1},
		{".5", -1, -1},
		{"1.2.3", -1, -1},
		{"1e3", -1, -1},
		{"0x10", -1, -1},
		{"1k", -1, -1},
		{"1 gi", -1, -1},
		{"1 g m", -1, -1},
		{"nan", -1, -1},
		{"m", -1, -1},
		{"99999999999999999999999999999999999999", -1, -1},
		{"1mm", -1, -1},
		{"1GG", -1, -1},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		int64_t size = -1, time = -1;
		int r = queue_parse_size_mib(rows[i].text, &size),
		    t = queue_parse_duration_ms(rows[i].text, &time);

		if (size != rows[i].size || time != rows[i].time || (r < 0) != (size < 0) ||
			(t < 0) != (time < 0))
			fail_msg("%s: %lld %lld (%d, %d)", rows[i].text, (long long)size,
				(long long)time, r, t);
	}
}

/* --- on the disk --- */

static void put(const char *path, const char *text, mode_t mode)
{
	assert_int_equal(fd_replace_at(AT_FDCWD, path, text, strlen(text), false), 0);
	assert_int_equal(chmod(path, mode), 0);
}

static void loads(void **state)
{
	char dir[] = "/tmp/test_queue_config.XXXXXX";
	CLEANUP_FREE char *config = NULL, *queue = NULL, *other = NULL, *want = NULL;
	struct queue_config c = {0};
	struct err e = {0};

	(void)state;
	assert_non_null(mkdtemp(dir));
	config = xasprintf("%s/config.yml", dir);
	queue = xasprintf("%s/queue.yml", dir);
	other = xasprintf("%s/other.yml", dir);
	assert_int_equal(queue_config_load(dir, NULL, false, &c, &e), 0);
	assert_true(c.config.is_missing && !c.has_queue_yml);
	assert_string_equal(c.path, queue);
	queue_config_done(&c);

	put(config, "servers:\n- {hostname: a, password: x}\n", 0644);
	put(queue, "queue: {card_faults: 5}\n", 0644);
	assert_int_equal(queue_config_load(dir, NULL, false, &c, &e), 0);
	assert_true(!c.config.is_missing && c.has_queue_yml);
	assert_int_equal(c.settings.card_faults, 5);
	want = xasprintf(
		"config.yml holds a password and others may read it (mode 0644); 'chmod 600 %s' keeps it yours\n",
		config);
	assert_string_equal(buf_str(&c.config.warnings), want);
	assert_int_equal(c.warnings.len, 0);
	queue_config_done(&c);

	put(other, "servers:\n- {hostname: b, password: x}\n", 0640);
	assert_int_equal(queue_config_load(dir, other, false, &c, &e), 0);
	assert_string_equal(c.nodes[0].name, "b:22");
	assert_string_equal(c.path, other);
	free(want);
	want = xasprintf(
		"other.yml holds a password and others may read it (mode 0640); 'chmod 600 %s' keeps it yours\n",
		other);
	assert_string_equal(buf_str(&c.warnings), want);
	queue_config_done(&c);

	/* A file that was named has to be there; one that can't be read is no empty one. */
	assert_int_equal(unlink(other), 0);
	assert_int_equal(queue_config_load(dir, other, false, &c, &e), -ENOENT);
	assert_non_null(strstr(e.text, other));
	assert_int_equal(unlink(queue), 0);
	assert_int_equal(mkdir(queue, 0700), 0);
	assert_true(queue_config_load(dir, NULL, false, &c, &e) < 0);
	assert_int_equal(rmdir(queue), 0);
	assert_int_equal(symlink("nowhere", queue), 0);
	assert_int_equal(queue_config_load(dir, NULL, false, &c, &e), -ENOENT);
	assert_non_null(strstr(e.text, "is a link to a file that isn't there"));
	assert_null(c.path);
	(void)fd_remove_tree_at(AT_FDCWD, dir);
}

/* --- the manual and the examples --- */

static void read_source(const char *name, struct buf *ret)
{
	const char *root = getenv("SOURCE_ROOT");
	CLEANUP_FREE char *path = xasprintf("%s/%s", root ? root : ".", name);

	assert_int_equal(fd_read_file_at(AT_FDCWD, path, ret, 1 << 20), 0);
}

static void put_row(const struct queue_key *k, struct buf *b)
{
	buf_puts(b, "| `");
	queue_key_put_name(k, b);
	buf_puts(b, "` | ");
	queue_key_put_type(k, b);
	if (!k->initial)
		buf_puts(b, " | none | ");
	else if (k->kind == QUEUE_KEY_CAUSES)
		buf_printf(b, " | `[%s]` | ", k->initial);
	else
		buf_printf(b, " | `%s` | ", k->initial);
	buf_printf(b, "%s |\n", k->text);
}

/* The examples between the headings `from` and `to`, read as the file that they're for. */
static void check_blocks(const char *md, const char *from, const char *to, bool is_queue_yml)
{
	const char *s = strstr(md, from), *stop, *end;
	size_t n = 0;

	assert_non_null(s);
	stop = to ? strstr(s, to) : s + strlen(s);
	assert_non_null(stop);
	while ((s = strstr(s, "```yaml\n")) && s < stop) {
		CLEANUP(queue_config_done) struct queue_config c = {0};
		CLEANUP_FREE char *text = NULL;

		s += strlen("```yaml\n");
		end = strstr(s, "```");
		assert_non_null(end);
		text = xstrndup(s, (size_t)(end - s));
		both(is_queue_yml ? NULL : text, is_queue_yml ? text : NULL, &c);
		assert_string_equal(buf_str(&c.warnings), "");
		s = end + 3;
		n++;
	}
	assert_true(n > 0);
}

/* Its table is the table of keys. */
static void manual(void **state)
{
	CLEANUP(buf_done) struct buf md = {0}, rows = {0};

	(void)state;
	read_source("docs/config.md", &md);
	check_blocks(buf_str(&md), "\n## queue\n", "\n## queue.yml\n", false);
	check_blocks(buf_str(&md), "\n## queue.yml\n", NULL, true);
	for (size_t i = 0; i < queue_keys_n; i++) {
		const struct queue_key *k = &queue_keys[i];
		CLEANUP_FREE char *ignored = xasprintf("`%s`", k->name);

		if (k->kind != QUEUE_KEY_IGNORED)
			put_row(k, &rows);
		else if (!strstr(buf_str(&md), ignored))
			fail_msg("docs/config.md lacks %s", ignored);
	}
	if (!strstr(buf_str(&md), buf_str(&rows)))
		fail_msg("docs/config.md should have this table:\n%s", buf_str(&rows));
}

static void examples(void **state)
{
	CLEANUP(buf_done) struct buf config = {0}, queue = {0}, bare = {0};
	CLEANUP(queue_config_done) struct queue_config c = {0}, all = {0};
	CLEANUP(buf_done) struct buf want = {0}, got = {0};
	struct queue_settings initial;

	(void)state;
	read_source("config.example.yml", &config);
	read_source("queue.example.yml", &queue);
	both(buf_str(&config), buf_str(&queue), &c);
	assert_string_equal(buf_str(&c.config.warnings), "");
	assert_string_equal(buf_str(&c.warnings), "");
	assert_true(c.has_own_servers && c.n_nodes == 3 && !c.remote.host);
	/* Its settings are the defaults, those in comments too: "#key: value" is a key, "# word" is a remark. */
	for (const char *p = buf_str(&queue); *p;) {
		const char *end = strchrnul(p, '\n'), *s = p + strspn(p, " ");

		if (*s == '#' && s[1] >= 'a' && s[1] <= 'z')
			buf_printf(&bare, "%.*s%.*s\n", (int)(s - p), p, (int)(end - s - 1), s + 1);
		else
			buf_printf(&bare, "%.*s\n", (int)(end - p), p);
		p = end + (*end == '\n');
	}
	both(NULL, buf_str(&bare), &all);
	assert_string_equal(buf_str(&all.warnings), "");
	assert_string_equal(all.remote.host, "head.example.org");
	queue_settings_defaults(&initial, false);
	initial.include_local = true;
	queue_settings_json(&initial, &want);
	queue_settings_json(&all.settings, &got);
	assert_string_equal(buf_str(&got), buf_str(&want));
	for (size_t i = 0; i < queue_keys_n; i++) {
		CLEANUP_FREE char *key = xasprintf("%s:", queue_keys[i].name);

		if (queue_keys[i].kind != QUEUE_KEY_IGNORED && !strstr(buf_str(&queue), key))
			fail_msg("queue.example.yml lacks %s", key);
	}
	queue_settings_done(&initial);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults),
		cmocka_unit_test(defaults_of_nvidb),
		cmocka_unit_test(everything),
		cmocka_unit_test(dump),
		cmocka_unit_test(lease_time),
		cmocka_unit_test(mistakes),
		cmocka_unit_test(odd_files),
		cmocka_unit_test(warnings),
		cmocka_unit_test(one_over_the_other),
		cmocka_unit_test(nodes),
		cmocka_unit_test(finds),
		cmocka_unit_test(remote),
		cmocka_unit_test(remote_mistakes),
		cmocka_unit_test(sizes_and_times),
		cmocka_unit_test(loads),
		cmocka_unit_test(manual),
		cmocka_unit_test(examples),
	};

	umask(022);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
