/* Jobs of the queue with a real agent: their directory, their surroundings, the lead signal, the facts of their ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent_client.h"

#include "agent/claim.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/sys.h"
#include "gpu/sim_spec.h"
#include "proc/proc.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define QUEUE "0123456789abcdef0123456789abcdef"
#define TOKEN "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define DIR_OF_7 "home/.gpustow/jobs/" QUEUE "/7.1"

static struct test_agent t;
static struct agent_client c;
static int64_t epoch;

static void in_dir(const char *name, char ret[320])
{
	snprintf(ret, 320, "%s/%s", t.dir, name);
}

static void make_dir(const char *name)
{
	char path[320];

	in_dir(name, path);
	assert_int_equal(mkdir(path, 0700), 0);
}

static void put(const char *name, const char *text)
{
	char path[320];
	int fd;

	in_dir(name, path);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
	close(fd);
}

static bool is_there(const char *name)
{
	struct sys_stat st;
	char path[320];

	in_dir(name, path);
	return sys_stat_at(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, &st) == 0;
}

/* Whoever takes it away does so beside the answer. */
static void wait_until_gone(const char *name)
{
	int64_t until = clock_boot_ms() + 20000;

	while (is_there(name) && clock_boot_ms() < until)
		poll(NULL, 0, 5);
	assert_false(is_there(name));
}

static mode_t mode_of(const char *name)
{
	struct sys_stat st = {0};
	char path[320];

	in_dir(name, path);
	sys_stat_at(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, &st);
	return st.mode;
}

/* What a file holds, "" when it isn't there. The caller frees. */
static char *read_file(const char *name)
{
	struct buf b = {0};
	char path[320];

	in_dir(name, path);
	fd_read_file_at(AT_FDCWD, path, &b, 1 << 20);
	return buf_take(&b);
}

static void wait_text(const char *name, const char *want)
{
	int64_t until = clock_boot_ms() + 20000;
	char *text;

	while (strcmp(text = read_file(name), want) != 0 && clock_boot_ms() < until) {
		free(text);
		poll(NULL, 0, 5);
	}
	assert_string_equal(text, want);
	free(text);
}

static void start_agent(void)
{
	test_agent_start(&t);
	agent_client_connect(&c, &t);
	assert_true(agent_client_hello(&c, QUEUE, 1, ++epoch, 1));
}

static int set_up(void **state)
{
	char path[320];

	test_agent_init(&t, "2");
	make_dir("home");
	make_dir("home/work");
	make_dir("host");
	make_dir("host/proc");
	put("host/proc/vmstat", "oom_kill 3\n");
	in_dir("home", path);
	setenv("GPUSTOW_TEST_HOME", path, 1);
	in_dir("host", path);
	setenv("GPUSTOW_HOST_ROOT", path, 1);
	start_agent();
	return 0;
}

/* Jobs outlive their agent. */
static void end_descendants(void)
{
	for (;;) {
		struct proc_table table;
		size_t found[256], n;

		assert_int_equal(proc_table_read(&table), 0);
		n = proc_table_tree(&table, getpid(), 0, found, 256);
		for (size_t i = 0; i < n; i++)
			proc_signal(table.rows[found[i]].pid, table.rows[found[i]].start_ticks,
				SIGKILL);
		proc_table_done(&table);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		if (!n)
			return;
		poll(NULL, 0, 5);
	}
}

static int tear_down(void **state)
{
	agent_client_close(&c);
	if (t.pid)
		test_agent_end(&t, SIGTERM);
	end_descendants();
	test_agent_done(&t);
	return 0;
}

static int64_t number(const json_t *o, const char *key)
{
	assert_true(json_is_integer(json_object_get(o, key)));
	return json_integer_value(json_object_get(o, key));
}

static const char *text(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "(none)";
}

/* Job 7 of the queue, below the account's home. */
static json_t *job_of(const char *body)
{
	json_t *job = agent_client_job(&t, 7, TOKEN, "", 0, 1000);

	json_object_del(job, "argv");
	json_object_del(job, "output");
	json_object_set_new(job, "dir", json_string(".gpustow/jobs/" QUEUE "/7.1"));
	json_object_set_new(job, "body", json_string(body));
	json_object_set_new(job, "login", json_false());
	json_object_set_new(job, "cwd", json_string(""));
	json_object_set_new(job, "lead_signal", json_integer(0));
	json_object_set_new(job, "lead_ms", json_integer(0));
	return job;
}

static json_t *launch(json_t *job, const char *answer)
{
	agent_client_launch(&c, job);
	return agent_client_expect(&c, answer, 7);
}

static json_t *observed_7(void)
{
	json_t *msg, *claims, *found = NULL;

	agent_client_send(&c, json_pack("{s:s, s:i}", "op", "observe", "id", 5));
	msg = agent_client_expect(&c, "observed", 0);
	claims = json_object_get(msg, "claims");
	for (size_t i = 0; i < json_array_size(claims); i++)
		if (number(json_array_get(claims, i), "job") == 7)
			found = json_incref(json_array_get(claims, i));
	json_decref(msg);
	return found;
}

static void assert_dir(const json_t *msg)
{
	char want[320];

	in_dir(DIR_OF_7, want);
	assert_string_equal(text(msg, "dir"), want);
}

static void ack(void)
{
	json_t *left;

	agent_client_send(&c, json_pack("{s:s, s:[[i, i]]}", "op", "ack", "jobs", 7, 1));
	for (int i = 0; (left = observed_7()); i++) {
		json_decref(left);
		assert_true(i < 2000);
		poll(NULL, 0, 5);
	}
}

static int64_t remove_dirs(const char *name)
{
	json_t *msg;
	int64_t n;

	agent_client_send(&c, json_pack("{s:s, s:i, s:s, s:[s, s, s]}", "op", "remove", "id", 9,
				      "root", ".gpustow/jobs", "names", name, "../x", "7"));
	msg = agent_client_expect(&c, "removed", 0);
	assert_int_equal(number(msg, "id"), 9);
	n = number(msg, "n");
	json_decref(msg);
	return n;
}

static void runs_in_its_directory(void **state)
{
	json_t *msg, *claim, *facts,
		*job = job_of(
			"#!/usr/bin/python3\n"
			"echo \"$PWD|$HOME|${BASH_VERSION:+bash}|$OWN|$USER|$NVIDB_JOB_DIR|$(readlink /proc/self/fd/0)\"\n"
			"umask; echo x >made\n"
			"echo half >\"$GPUSTOW_STATUS_FILE\"\n"
			"until [ -e go ]; do sleep 0.02; done\n"
			"echo '{\"loss\": 1}' >\"$NVIDB_RESULT_FILE\"\n"
			"echo done >>\"$GPUSTOW_STATUS_FILE\"\n"
			"echo 'No space left on device' >&2\n"
			"exit 7\n");
	char want[1400], home[320], dir[320];

	json_object_set_new(job, "cwd", json_string("~/work"));
	json_array_append_new(json_object_get(job, "env"), json_string("USER=mine"));
	msg = launch(job, "claimed");
	assert_dir(msg);
	json_decref(msg);
	wait_text(DIR_OF_7 "/status", "half\n");
	claim = observed_7();
	assert_dir(claim);
	assert_string_equal(text(claim, "progress"), "half");
	assert_null(json_object_get(claim, "facts"));
	json_decref(claim);
	/* A live job's directory isn't taken away. */
	assert_int_equal(remove_dirs("7.1"), 0);
	put("host/proc/vmstat", "oom_kill 5\n");
	put("home/work/go", "");

	msg = agent_client_expect(&c, "ended", 7);
	assert_dir(msg);
	assert_string_equal(text(json_object_get(msg, "end"), "how"), "exit");
	assert_int_equal(number(json_object_get(msg, "end"), "code"), 7);
	facts = json_object_get(msg, "facts");
	assert_string_equal(text(facts, "tail"), "No space left on device\n");
	assert_string_equal(text(facts, "tail_of"), "stderr");
	assert_string_equal(text(facts, "result"), "{\"loss\": 1}\n");
	assert_string_equal(text(facts, "progress"), "done");
	assert_string_equal(
		json_string_value(json_array_get(json_object_get(facts, "says"), 0)), "disk-full");
	assert_int_equal(number(facts, "oom_kills"), 2);
	assert_true(json_is_array(json_object_get(facts, "peaks")));
	assert_true(json_is_array(json_object_get(facts, "xids")));
	claim = observed_7();
	assert_true(json_equal(json_object_get(claim, "facts"), facts));
	json_decref(claim);
	json_decref(msg);

	in_dir("home", home);
	in_dir(DIR_OF_7, dir);
	snprintf(
		want, sizeof(want), "%s/work|%s|bash|1|mine|%s|/dev/null\n0022\n", home, home, dir);
	wait_text(DIR_OF_7 "/stdout.log", want);
	assert_int_equal(mode_of(DIR_OF_7 "/stdout.log"), S_IFREG | 0600);
	assert_int_equal(mode_of(DIR_OF_7 "/stderr.log"), S_IFREG | 0600);
	assert_int_equal(mode_of(DIR_OF_7 "/run.sh"), S_IFREG | 0700);
	assert_int_equal(mode_of("home/work/made"), S_IFREG | 0644);
	ack();
	assert_int_equal(remove_dirs("7.1"), 1);
	assert_false(is_there(DIR_OF_7));
	assert_int_equal(remove_dirs("7.1"), 0);
}

/* What was allotted wins over the login files; what they define is there, functions too. */
static void login_files_are_read(void **state)
{
	json_t *job = job_of(
		       "greet\necho $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER $# ${0##*/}\nexit 5\n"),
	       *msg;

	put("home/.bash_profile",
		"export CUDA_VISIBLE_DEVICES=9 CUDA_DEVICE_ORDER=FASTEST_FIRST\ngreet() { echo hello; }\n");
	json_object_set_new(job, "login", json_true());
	json_array_append_new(json_object_get(job, "env"), json_string("CUDA_VISIBLE_DEVICES=0,3"));
	json_array_append_new(
		json_object_get(job, "env"), json_string("CUDA_DEVICE_ORDER=PCI_BUS_ID"));
	json_decref(launch(job, "claimed"));
	msg = agent_client_expect(&c, "ended", 7);
	assert_int_equal(number(json_object_get(msg, "end"), "code"), 5);
	json_decref(msg);
	wait_text(DIR_OF_7 "/stdout.log", "hello\n0,3 PCI_BUS_ID 0 run.sh\n");
}

static void no_such_directory(void **state)
{
	json_t *job = job_of("echo x\n"), *msg, *end;

	json_object_set_new(job, "cwd", json_string("~/nowhere"));
	json_decref(launch(job, "claimed"));
	msg = agent_client_expect(&c, "ended", 7);
	end = json_object_get(msg, "end");
	assert_string_equal(text(end, "how"), "launch-failed");
	assert_non_null(strstr(text(end, "text"), "cannot change to the directory"));
	assert_non_null(strstr(text(end, "text"), "/home/nowhere"));
	assert_string_equal(text(json_object_get(msg, "facts"), "tail"), "");
	json_decref(msg);
}

static void bad_jobs_start_nothing(void **state)
{
	static const struct {
		const char *key, *value, *word;
	} rows[] = {
		{"dir", "\"/tmp/" QUEUE "/8.1\"", "\"dir\""},
		{"dir", "7", "\"dir\""},
		{"cwd", "[]", "\"cwd\""},
		{"body", NULL, "\"body\""},
		{"staged", "true", "not both"},
		{"login", "1", "\"login\""},
		{"lead_signal", "65", "\"lead_signal\""},
		{"lead_ms", "-1", "\"lead_ms\""},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		json_t *job = job_of("echo x >$HOME/ran"), *msg;

		if (rows[i].value)
			json_object_set_new(job, rows[i].key,
				json_loads(rows[i].value, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL));
		else
			json_object_del(job, rows[i].key);
		agent_client_launch(&c, job);
		msg = agent_client_next(&c, "error", 20000);
		assert_non_null(msg);
		if (!strstr(text(msg, "text"), rows[i].word))
			fail_msg("%s isn't in: %s", rows[i].word, text(msg, "text"));
		json_decref(msg);
	}
	assert_null(observed_7());
	wait_until_gone(DIR_OF_7);
}

/* What a busy machine hadn't done within the time that was given to it is tried anew with four times as much. */
static int64_t begin_anew(int64_t ms)
{
	assert_true(ms < 60000);
	tear_down(NULL);
	set_up(NULL);
	return 4 * ms;
}

static json_t *listening_job(int64_t limit_ms, int64_t lead_ms)
{
	json_t *job = job_of("trap 'echo led >>$HOME/heard' USR1\n"
			     "trap 'echo term >>$HOME/heard; exit 3' TERM\n"
			     "echo up >>$HOME/heard\nwhile :; do sleep 0.01; done\n");

	json_object_set_new(job, "timeout_ms", json_integer(limit_ms));
	json_object_set_new(job, "lead_signal", json_integer(SIGUSR1));
	json_object_set_new(job, "lead_ms", json_integer(lead_ms));
	json_object_set_new(job, "grace_ms", json_integer(60000));
	return job;
}

static bool has_heard(const char *begin)
{
	CLEANUP_FREE char *heard = read_file("home/heard");

	return !strncmp(heard, begin, strlen(begin));
}

static void lead_signal_comes_first(void **state)
{
	json_t *msg, *end;

	for (int64_t limit_ms = 1500;; limit_ms = begin_anew(limit_ms)) {
		json_decref(launch(listening_job(limit_ms, limit_ms / 2), "claimed"));
		msg = agent_client_expect(&c, "ended", 7);
		if (has_heard("up\n"))
			break;
		json_decref(msg);
	}
	end = json_object_get(msg, "end");
	assert_string_equal(text(end, "how"), "stopped");
	assert_string_equal(text(end, "reason"), "timeout");
	assert_int_equal(number(end, "code"), 3);
	json_decref(msg);
	wait_text("home/heard", "up\nled\nterm\n");
}

static struct claim_record record_7(void)
{
	const struct attempt_name name = {.queue = QUEUE, .job = 7, .attempt = 1};
	struct claim_record rec = {0};
	struct root r;
	int fd;

	root_init(&r);
	assert_int_equal(root_open(&r, t.root, NULL), 0);
	fd = claim_open(&r, &name);
	assert_true(fd >= 0);
	assert_int_equal(claim_read_record(fd, &rec, NULL), 0);
	close(fd);
	root_done(&r);
	return rec;
}

/* Kills the shim once the job has heard that, and the record says of the lead signal what it should; false: it ended before. */
static bool kill_shim_after(const char *heard, bool is_led)
{
	struct claim_record rec;

	for (;; poll(NULL, 0, 5)) {
		rec = record_7();
		if (rec.state == ATTEMPT_ENDED)
			return false;
		if (rec.state == ATTEMPT_STARTED && has_heard(heard) &&
			(rec.lead_sent_boot_ms > 0) == is_led)
			break;
	}
	return proc_signal(rec.shim_pid, rec.shim_start_ticks, SIGKILL) == 0;
}

/* Nobody but the agent has seen the end. The caller's reference; NULL: the shim was faster. */
static json_t *ended_without_shim(bool was_killed)
{
	json_t *msg = agent_client_expect(&c, "ended", 7);

	if (was_killed &&
		!json_is_true(json_object_get(json_object_get(msg, "end"), "seen_by_shim")))
		return msg;
	json_decref(msg);
	return NULL;
}

/* The shim dies after the lead signal: whoever goes on knows of it, and the job hears it once. */
static void lead_signal_comes_once(void **state)
{
	json_t *msg;

	for (int64_t limit_ms = 2500;; limit_ms = begin_anew(limit_ms)) {
		json_decref(launch(listening_job(limit_ms, limit_ms * 4 / 5), "claimed"));
		msg = ended_without_shim(kill_shim_after("up\nled\n", true));
		if (msg)
			break;
	}
	assert_string_equal(text(json_object_get(msg, "end"), "reason"), "timeout");
	json_decref(msg);
	wait_text("home/heard", "up\nled\nterm\n");
}

/* A shim that's killed before it leaves the signal to the agent. */
static void agent_sends_the_lead_signal(void **state)
{
	json_t *msg;

	for (int64_t before_ms = 1500;; before_ms = begin_anew(before_ms)) {
		json_t *job = listening_job(before_ms + 60000, 60000);

		json_object_set_new(job, "body",
			json_string("trap 'echo led >>$HOME/heard; exit 4' USR1\n"
				    "echo up >>$HOME/heard\nwhile :; do sleep 0.01; done\n"));
		json_decref(launch(job, "claimed"));
		msg = ended_without_shim(kill_shim_after("up\n", false));
		if (msg)
			break;
	}
	assert_string_equal(text(json_object_get(msg, "end"), "how"), "exit");
	assert_int_equal(number(json_object_get(msg, "end"), "code"), 4);
	json_decref(msg);
	wait_text("home/heard", "up\nled\n");
}

static void no_place_is_a_refusal(void **state)
{
	json_t *msg;

	put("home/.gpustow", "a file where the directory should be");
	msg = launch(job_of("echo x >$HOME/ran"), "refused");
	assert_string_equal(text(msg, "reason"), "disk");
	assert_non_null(strstr(text(msg, "text"), "/home/.gpustow isn't a directory"));
	json_decref(msg);
	assert_null(observed_7());
	assert_false(is_there("home/ran"));
}

static void put_stage(const char *body)
{
	char name[128];

	snprintf(name, sizeof(name), "root/new/" TOKEN);
	make_dir(name);
	put("root/new/" TOKEN "/body", body);
}

static void staged_body(void **state)
{
	json_t *job = job_of("");

	json_object_del(job, "body");
	json_object_set_new(job, "staged", json_true());
	put_stage("echo staged\n");
	json_decref(launch(json_deep_copy(job), "claimed"));
	json_decref(agent_client_expect(&c, "ended", 7));
	wait_text(DIR_OF_7 "/stdout.log", "staged\n");
	assert_true(is_there("root/claims/" QUEUE "/7.1/spec"));
	assert_false(is_there("root/claims/" QUEUE "/7.1/body"));
	assert_false(is_there("root/new/" TOKEN));
	json_decref(job);
}

/* A refusal is final: what was sent ahead for it goes, and what wasn't sent is said. */
static void staged_and_refused(void **state)
{
	json_t *job = job_of(""), *msg;

	json_object_del(job, "body");
	json_object_set_new(job, "staged", json_true());
	msg = launch(json_deep_copy(job), "refused");
	assert_string_equal(text(msg, "reason"), "disk");
	assert_non_null(strstr(text(msg, "text"), "launch it anew"));
	json_decref(msg);
	put_stage("echo staged\n");
	json_object_set_new(json_array_get(json_object_get(job, "cards"), 0), "declared_mib",
		json_integer(1 << 30));
	msg = launch(job, "refused");
	assert_string_equal(text(msg, "reason"), "memory");
	json_decref(msg);
	assert_false(is_there("root/new/" TOKEN));
	wait_until_gone(DIR_OF_7);
}

/* The same launch again answers with the claim; its directory is left alone. */
static void launched_twice(void **state)
{
	json_t *msg;

	json_decref(launch(job_of("echo one; exec sleep 60"), "claimed"));
	wait_text(DIR_OF_7 "/stdout.log", "one\n");
	msg = launch(job_of("echo two"), "claimed");
	assert_dir(msg);
	json_decref(msg);
	wait_text(DIR_OF_7 "/run.sh", "echo one; exec sleep 60");
	wait_text(DIR_OF_7 "/stdout.log", "one\n");
}

/* A claim that the agent can't read isn't nothing: its directory isn't made anew. */
static void damaged_claim_keeps_its_directory(void **state)
{
	json_t *msg;

	json_decref(launch(job_of("echo one; exec sleep 60"), "claimed"));
	wait_text(DIR_OF_7 "/stdout.log", "one\n");
	agent_client_close(&c);
	test_agent_end(&t, SIGKILL);
	put("root/claims/" QUEUE "/7.1/spec", "{");
	start_agent();
	msg = launch(job_of("echo two"), "refused");
	assert_string_equal(text(msg, "reason"), "disk");
	json_decref(msg);
	wait_text(DIR_OF_7 "/stdout.log", "one\n");
	assert_int_equal(remove_dirs("7.1"), 0);
}

/* The agent's successor knows the job as well. */
static void next_agent_knows(void **state)
{
	json_t *msg, *facts;

	json_decref(launch(
		job_of("echo half >$GPUSTOW_STATUS_FILE; until [ -e go ]; do sleep 0.02; done; "
		       "echo whole >$GPUSTOW_STATUS_FILE"),
		"claimed"));
	wait_text(DIR_OF_7 "/status", "half\n");
	agent_client_close(&c);
	test_agent_end(&t, SIGKILL);
	start_agent();
	msg = observed_7();
	assert_dir(msg);
	assert_string_equal(text(msg, "progress"), "half");
	json_decref(msg);
	put("home/go", "");
	msg = agent_client_expect(&c, "ended", 7);
	facts = json_object_get(msg, "facts");
	assert_string_equal(text(facts, "progress"), "whole");
	assert_int_equal(number(facts, "oom_kills"), 0);
	json_decref(msg);
}

#ifdef GPUSTOW_FAULT_POINTS
static void restart_with(const char *fault)
{
	agent_client_close(&c);
	test_agent_end(&t, SIGTERM);
	if (fault)
		setenv("GPUSTOW_FAULT", fault, 1);
	start_agent();
	unsetenv("GPUSTOW_FAULT");
}

static void full_disk_is_a_refusal(void **state)
{
	json_t *msg;

	restart_with("jobdir.before-run-sh:enospc");
	msg = launch(job_of("echo x >$HOME/ran"), "refused");
	assert_string_equal(text(msg, "reason"), "disk");
	assert_non_null(strstr(text(msg, "text"), "No space left on device"));
	json_decref(msg);
	assert_false(is_there(DIR_OF_7));
	assert_null(observed_7());
}

/* The claim can't be written: its directory goes with it. */
static void no_claim_no_directory(void **state)
{
	json_t *msg;

	restart_with("claim.before-sync:enospc");
	msg = launch(job_of("echo x >$HOME/ran"), "refused");
	assert_string_equal(text(msg, "reason"), "disk");
	json_decref(msg);
	wait_until_gone(DIR_OF_7);
}

/* The agent dies with a directory and no claim: nothing has run, and the same launch makes it anew. */
static void killed_between_directory_and_claim(void **state)
{
	static const char *const faults[] = {"jobdir.after-sync:kill", "agent.before-claim:kill"};

	for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
		restart_with(faults[i]);
		agent_client_launch(&c, job_of("echo first >>$HOME/ran"));
		assert_true(agent_client_is_closed(&c, 20000));
		assert_int_equal(waitpid(t.pid, NULL, 0), t.pid);
		assert_true(is_there(DIR_OF_7));
		agent_client_close(&c);
		start_agent();
		assert_null(observed_7());
	}
	json_decref(launch(job_of("echo second >>$HOME/ran"), "claimed"));
	json_decref(agent_client_expect(&c, "ended", 7));
	wait_text("home/ran", "second\n");
}

/* Who makes the directory dies over it: a refusal, and the same launch makes it anew. */
static void killed_over_the_directory(void **state)
{
	json_t *msg;

	restart_with("jobdir.before-run-sh:kill");
	msg = launch(job_of("echo first >>$HOME/ran"), "refused");
	assert_string_equal(text(msg, "reason"), "disk");
	json_decref(msg);
	assert_true(is_there(DIR_OF_7));
	assert_null(observed_7());
	restart_with(NULL);
	json_decref(launch(job_of("echo second >>$HOME/ran"), "claimed"));
	json_decref(agent_client_expect(&c, "ended", 7));
	wait_text("home/ran", "second\n");
}

/* The first child of that agent, and of those after it, which passes the point is stopped there: as if its disk hung. */
static void restart_hanging(const char *point)
{
	char path[320];

	make_dir("strikes");
	in_dir("strikes", path);
	setenv("GPUSTOW_TEST_FAULT_DIR", path, 1);
	restart_with(point);
	unsetenv("GPUSTOW_TEST_FAULT_DIR");
}

/* A job root that hangs: whoever needs it is told so, and everybody else goes on; nothing is begun there before it's over. */
static void hung_job_root(void **state)
{
	struct agent_client other = {0};
	json_t *msg;
	pid_t pid;

	restart_hanging("jobdir.before-run-sh:stop");
	agent_client_launch(&c, job_of("echo x >>$HOME/ran"));
	pid = test_agent_stopped_child(&t, "gpustow-disk");
	/* An observe of the same link must not say that there's nothing of what may start any moment. */
	agent_client_send(&c, json_pack("{s:s, s:i}", "op", "observe", "id", 5));
	agent_client_connect(&other, &t);
	assert_true(agent_client_hello(&other, "ffffffffffffffffffffffffffffffff", 1, 1, 1));
	agent_client_launch(&other, agent_client_job(&t, 3, TOKEN, "exit 3", 1, 100));
	json_decref(agent_client_expect(&other, "ended", 3));
	msg = agent_client_expect(&c, "observed", 0);
	assert_int_equal(json_array_size(json_object_get(msg, "claims")), 0);
	json_decref(msg);
	/* It came before. */
	msg = agent_client_next(&c, "refused", 0);
	assert_non_null(msg);
	assert_string_equal(text(msg, "reason"), "disk");
	assert_non_null(strstr(text(msg, "text"), "doesn't answer"));
	json_decref(msg);
	test_agent_wait_gone(pid);
	json_decref(launch(job_of("echo y >>$HOME/ran"), "claimed"));
	json_decref(agent_client_expect(&c, "ended", 7));
	wait_text("home/ran", "y\n");
	agent_client_close(&other);
}

/* "There is nothing" binds under the newer fence: what the older one launched and has no claim yet never starts. */
static void hung_launch_of_an_older_controller(void **state)
{
	struct agent_client newer = {0};
	json_t *msg;
	pid_t pid;

	restart_hanging("jobdir.before-run-sh:stop");
	agent_client_launch(&c, job_of("echo x >>$HOME/ran"));
	pid = test_agent_stopped_child(&t, "gpustow-disk");
	agent_client_connect(&newer, &t);
	assert_true(agent_client_hello(&newer, QUEUE, 1, ++epoch, 1));
	agent_client_send(&newer, json_pack("{s:s, s:i}", "op", "observe", "id", 5));
	msg = agent_client_expect(&newer, "observed", 0);
	assert_int_equal(json_array_size(json_object_get(msg, "claims")), 0);
	json_decref(msg);
	kill(pid, SIGCONT);
	test_agent_wait_gone(pid);
	/* Its number is used again, under another token; and that's the one that runs. */
	msg = job_of("echo y >>$HOME/ran");
	json_object_set_new(msg, "token", json_string(QUEUE));
	agent_client_launch(&newer, msg);
	json_decref(agent_client_expect(&newer, "ended", 7));
	wait_text("home/ran", "y\n");
	agent_client_close(&newer);
}

/* An end is told with what the job said, or with the sentence why that can't be had; not before. */
static void hung_at_the_end(void **state)
{
	json_t *o, *facts;
	pid_t pid;

	restart_hanging("jobdir.before-read:stop");
	json_decref(launch(job_of("echo CUDA out of memory >&2; exit 3"), "claimed"));
	pid = test_agent_stopped_child(&t, "gpustow-disk");
	o = observed_7();
	facts = json_object_get(o, "facts");
	if (strcmp(text(o, "state"), "started") != 0)
		assert_non_null(strstr(text(facts, "unread"), "doesn't answer"));
	assert_int_equal(!facts, !strcmp(text(o, "state"), "started"));
	json_decref(o);
	o = agent_client_expect(&c, "ended", 7);
	assert_int_equal(number(json_object_get(o, "end"), "code"), 3);
	facts = json_object_get(o, "facts");
	assert_non_null(strstr(text(facts, "unread"), "doesn't answer"));
	json_decref(o);
	test_agent_wait_gone(pid);
	/* Once it can be read, whoever observes hears it. */
	o = observed_7();
	facts = json_object_get(o, "facts");
	assert_string_equal(text(facts, "tail"), "CUDA out of memory\n");
	assert_null(json_object_get(facts, "unread"));
	json_decref(o);
}
#endif

/* More facts than fit into one message go in several. */
static void many_facts(void **state)
{
	size_t n = 0, messages = 0;
	bool more = true;

	for (int i = 1; i <= 24; i++) {
		char token[ID_LEN], dir[128];
		json_t *job =
			job_of("head -c 60000 /dev/zero | tr '\\0' '\"' >$GPUSTOW_RESULT_FILE");

		snprintf(token, sizeof(token), "%032x", i);
		snprintf(dir, sizeof(dir), ".gpustow/jobs/" QUEUE "/%d.1", i);
		json_object_set_new(job, "job", json_integer(i));
		json_object_set_new(job, "token", json_string(token));
		json_object_set_new(job, "dir", json_string(dir));
		json_object_set_new(job, "cards", json_array());
		agent_client_launch(&c, job);
	}
	for (int i = 1; i <= 24; i++)
		json_decref(agent_client_expect(&c, "ended", i));
	agent_client_send(&c, json_pack("{s:s, s:i}", "op", "observe", "id", 5));
	while (more) {
		json_t *msg = agent_client_expect(&c, "observed", 0);
		const json_t *claims = json_object_get(msg, "claims");

		for (size_t i = 0; i < json_array_size(claims); i++)
			n += json_string_length(json_object_get(
				     json_object_get(json_array_get(claims, i), "facts"),
				     "result")) == 60000;
		more = json_is_true(json_object_get(msg, "more"));
		messages++;
		json_decref(msg);
	}
	assert_int_equal(n, 24);
	assert_true(messages >= 3);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(runs_in_its_directory),
		TEST(login_files_are_read),
		TEST(no_such_directory),
		TEST(bad_jobs_start_nothing),
		TEST(lead_signal_comes_first),
		TEST(lead_signal_comes_once),
		TEST(agent_sends_the_lead_signal),
		TEST(no_place_is_a_refusal),
		TEST(staged_body),
		TEST(staged_and_refused),
		TEST(launched_twice),
		TEST(damaged_claim_keeps_its_directory),
		TEST(next_agent_knows),
#ifdef GPUSTOW_FAULT_POINTS
		TEST(full_disk_is_a_refusal),
		TEST(no_claim_no_directory),
		TEST(killed_between_directory_and_claim),
		TEST(killed_over_the_directory),
		TEST(hung_job_root),
		TEST(hung_launch_of_an_older_controller),
		TEST(hung_at_the_end),
#endif
		TEST(many_facts),
	};

	if (argc == 2)
		cmocka_set_test_filter(argv[1]);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
