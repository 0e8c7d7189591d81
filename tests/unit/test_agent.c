/* The agent from end to end: launches, conflicts, fences, refusals, stops, and the deaths of agent and shim. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent_client.h"

#include "agent/promise.h"
#include "base/clock.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "core/sample.h"
#include "gpu/sim_spec.h"
#include "proc/proc.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define QUEUE "0123456789abcdef0123456789abcdef"
#define TOKEN_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define TOKEN_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
/* Says that it holds so many MiB of card 0, and stays. */
#define HOLD(mib) \
	"echo \"{\\\"pid\\\": $$, \\\"usage\\\": {\\\"0\\\": " #mib \
	"}}\" >$GPUSTOW_SIM_DIR/.$$; mv $GPUSTOW_SIM_DIR/.$$ $GPUSTOW_SIM_DIR/$$.json; echo up >>held; exec sleep 60"

static struct test_agent t;
static struct agent_client c;
static int64_t epoch;

static int set_up(void **state)
{
	test_agent_init(&t, "2");
	test_agent_start(&t);
	agent_client_connect(&c, &t);
	assert_true(agent_client_hello(&c, QUEUE, 1, ++epoch, 1));
	return 0;
}

static int tear_down(void **state)
{
	agent_client_close(&c);
	test_agent_done(&t);
	return 0;
}

static json_t *launch(int64_t job, const char *token, const char *script, int card, int64_t mib,
	const char *answer)
{
	agent_client_launch(&c, agent_client_job(&t, job, token, script, card, mib));
	return agent_client_expect(&c, answer, job);
}

static void expect(const char *op, int64_t job)
{
	json_decref(agent_client_expect(&c, op, job));
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

/* Lines in a file of the test's directory. */
static size_t lines(const char *name)
{
	char path[160];
	struct buf b = {0};
	size_t n = 0;

	snprintf(path, sizeof(path), "%s/%s", t.dir, name);
	fd_read_file_at(AT_FDCWD, path, &b, 1 << 20);
	for (size_t i = 0; i < b.len; i++)
		n += b.data[i] == '\n';
	buf_done(&b);
	return n;
}

static void wait_lines(const char *name, size_t n)
{
	int64_t until = clock_boot_ms() + 20000;

	while (lines(name) < n && clock_boot_ms() < until)
		poll(NULL, 0, 5);
	assert_int_equal(lines(name), n);
}

static json_t *observe(json_t *want)
{
	json_t *msg = json_pack("{s:s, s:i}", "op", "observe", "id", 5);

	if (want)
		json_object_set_new(msg, "want", want);
	agent_client_send(&c, msg);
	msg = agent_client_expect(&c, "observed", 0);
	assert_int_equal(number(msg, "id"), 5);
	assert_string_equal(text(msg, "root_id"), c.root_id);
	return msg;
}

static json_t *claim_of(json_t *observed, int64_t job)
{
	json_t *claims = json_object_get(observed, "claims");

	for (size_t i = 0; i < json_array_size(claims); i++)
		if (number(json_array_get(claims, i), "job") == job)
			return json_array_get(claims, i);
	return NULL;
}

static void reconnect(void)
{
	agent_client_close(&c);
	agent_client_connect(&c, &t);
	assert_true(agent_client_hello(&c, QUEUE, 1, ++epoch, 1));
}

static struct sample take_sample(int64_t id)
{
	struct sample s = {0};
	json_t *msg;

	agent_client_send(&c, json_pack("{s:s, s:I}", "op", "sample", "id", (json_int_t)id));
	msg = agent_client_expect(&c, "sample", 0);
	assert_int_equal(number(msg, "id"), id);
	assert_int_equal(sample_decode(msg, &s, NULL), 0);
	json_decref(msg);
	return s;
}

/* Retired once the shim is gone; from then on only who names it hears of it. */
static void wait_retired(int64_t job)
{
	for (int i = 0;; i++) {
		json_t *msg = observe(NULL);
		bool is_there = claim_of(msg, job) != NULL;

		json_decref(msg);
		if (!is_there)
			return;
		assert_true(i < 2000);
		poll(NULL, 0, 5);
	}
}

static void launch_and_retire(void **state)
{
	json_t *msg, *end;

	json_decref(launch(1, TOKEN_A, "echo x >>ran; echo $GPUSTOW_MARK $OWN >>mark; exit 3", 0,
		1000, "claimed"));
	msg = agent_client_expect(&c, "ended", 1);
	end = json_object_get(msg, "end");
	assert_string_equal(text(end, "how"), "exit");
	assert_int_equal(number(end, "code"), 3);
	assert_true(json_is_true(json_object_get(end, "seen_by_shim")));
	assert_string_equal(text(msg, "token"), TOKEN_A);
	assert_int_equal(number(msg, "survivors"), 0);
	json_decref(msg);
	assert_int_equal(lines("ran"), 1);

	agent_client_send(&c, json_pack("{s:s, s:[[i, i]]}", "op", "ack", "jobs", 1, 1));
	wait_retired(1);
	/* Its end was told once. */
	assert_null(agent_client_next(&c, "ended", 0));
	msg = observe(json_pack("[[i, i], [i, i]]", 1, 1, 9, 1));
	assert_true(json_is_true(json_object_get(claim_of(msg, 1), "retired")));
	assert_int_equal(number(json_object_get(claim_of(msg, 1), "end"), "code"), 3);
	assert_null(claim_of(msg, 9));
	json_decref(msg);
	/* Retired isn't forgotten: the same launch starts nothing, another is a conflict. */
	json_decref(launch(1, TOKEN_A, "echo x >>ran", 0, 1000, "claimed"));
	expect("ended", 1);
	json_decref(launch(1, TOKEN_B, "echo x >>ran", 0, 1000, "conflict"));
	assert_int_equal(lines("ran"), 1);
}

static void starts_once(void **state)
{
	json_t *msg;

	json_decref(launch(1, TOKEN_A, "echo x >>ran; exec sleep 60", 0, 1000, "claimed"));
	expect("started", 1);
	wait_lines("ran", 1);
	msg = launch(1, TOKEN_A, "echo x >>ran", 0, 1000, "claimed");
	json_decref(msg);
	msg = agent_client_expect(&c, "started", 1);
	assert_true(proc_is_alive((pid_t)number(msg, "pid"), (uint64_t)number(msg, "start_ticks")));
	json_decref(msg);
	msg = launch(1, TOKEN_B, "echo x >>ran", 0, 1000, "conflict");
	assert_string_equal(text(msg, "token"), TOKEN_A);
	json_decref(msg);
	agent_client_send(&c, json_pack("{s:s, s:i, s:i, s:s, s:i}", "op", "stop", "job", 1,
				      "attempt", 1, "reason", "cancel", "grace_ms", 2000));
	msg = agent_client_expect(&c, "stopping", 1);
	assert_string_equal(text(msg, "state"), "started");
	json_decref(msg);
	msg = agent_client_expect(&c, "ended", 1);
	assert_string_equal(text(json_object_get(msg, "end"), "how"), "stopped");
	assert_string_equal(text(json_object_get(msg, "end"), "reason"), "cancel");
	json_decref(msg);
	assert_int_equal(lines("ran"), 1);
	agent_client_send(&c, json_pack("{s:s, s:i, s:i, s:s, s:i}", "op", "stop", "job", 77,
				      "attempt", 1, "reason", "cancel", "grace_ms", 0));
	expect("none", 77);
}

static void fences(void **state)
{
	struct agent_client old = c, low;
	json_t *msg;

	agent_client_connect(&low, &t);
	assert_false(agent_client_hello(&low, QUEUE, 1, epoch, 1));
	json_decref(agent_client_expect(&low, "stale", 0));
	assert_true(agent_client_is_closed(&low, 10000));
	agent_client_close(&low);

	agent_client_connect(&c, &t);
	assert_true(agent_client_hello(&c, QUEUE, 1, epoch, 2));
	msg = agent_client_expect(&old, "stale", 0);
	assert_int_equal(json_integer_value(json_array_get(json_object_get(msg, "fence"), 2)), 2);
	json_decref(msg);
	assert_true(agent_client_is_closed(&old, 10000));
	agent_client_close(&old);
	json_decref(observe(NULL));

	/* Durable since the observe: an agent that knows nothing else still refuses. */
	test_agent_end(&t, SIGKILL);
	test_agent_start(&t);
	agent_client_connect(&low, &t);
	assert_false(agent_client_hello(&low, QUEUE, 1, epoch, 2));
	agent_client_close(&low);
	/* One that only watches commands nothing. */
	agent_client_connect(&low, &t);
	assert_true(agent_client_hello(&low, NULL, 0, 0, 0));
	agent_client_launch(&low, agent_client_job(&t, 5, TOKEN_A, "echo x >>ran", -1, 0));
	json_decref(agent_client_expect(&low, "error", 0));
	assert_int_equal(lines("ran"), 0);
	agent_client_close(&low);
}

static void refused_with_figures(void **state)
{
	struct sample s;
	json_t *msg;

	json_decref(launch(1, TOKEN_A, HOLD(9000), 0, 8192, "claimed"));
	expect("started", 1);
	wait_lines("held", 1);
	s = take_sample(4);
	assert_int_equal(s.n_rows, 1);
	assert_int_equal(s.rows[0].held_mib, 9000);
	assert_int_equal(s.rows[0].declared_mib, 8192);
	assert_int_equal(s.rows[0].budget_mib, 9900); /* past its declaration: peak and a tenth */
	assert_true(s.rows[0].is_sampled);
	assert_int_equal(s.snap.n_procs, 1);
	assert_int_equal(s.proc_row[0], 1);
	sample_done(&s);

	msg = launch(2, TOKEN_A, "echo x >>ran", 0, 14165, "refused");
	assert_string_equal(text(msg, "reason"), "memory");
	assert_int_equal(number(msg, "need_mib"), 14165 + 512);
	assert_int_equal(number(msg, "free_mib"), 24576 - 9900);
	assert_int_equal(number(msg, "total_mib"), 24576);
	assert_int_equal(number(msg, "foreign_mib"), 0);
	assert_int_equal(number(msg, "budget_mib"), 9900);
	assert_int_equal(number(msg, "promised_mib"), 0);
	json_decref(msg);
	msg = launch(3, TOKEN_A, "echo x >>ran", 0, -1, "refused");
	assert_string_equal(text(msg, "reason"), "busy");
	json_decref(msg);
	msg = agent_client_job(&t, 4, TOKEN_A, "echo x >>ran", 0, 100);
	json_object_set_new(
		json_array_get(json_object_get(msg, "cards"), 0), "uuid", json_string("GPU-none"));
	agent_client_launch(&c, msg);
	msg = agent_client_expect(&c, "refused", 4);
	assert_string_equal(text(msg, "reason"), "card");
	json_decref(msg);
	/* An exact fit fits, and a refusal left nothing behind. */
	json_decref(launch(5, TOKEN_A, "true", 0, 14164, "claimed"));
	msg = observe(json_pack("[[i, i], [i, i]]", 2, 1, 3, 1));
	assert_null(claim_of(msg, 2));
	assert_null(claim_of(msg, 3));
	json_decref(msg);
	assert_int_equal(lines("ran"), 0);
}

/* What a job took since the last sample counts, however young that sample is. */
static void a_start_makes_the_sample_old(void **state)
{
	json_t *msg;

	json_decref(launch(1, TOKEN_A, HOLD(20000), 0, 1000, "claimed"));
	wait_lines("held", 1);
	msg = launch(2, TOKEN_A, "echo x >>ran", 0, 10000, "refused");
	assert_string_equal(text(msg, "reason"), "memory");
	assert_int_equal(number(msg, "budget_mib"), 22000);
	json_decref(msg);
	assert_int_equal(lines("ran"), 0);
}

static void a_batch_counts_its_own(void **state)
{
	json_t *jobs = json_array();

	for (int i = 1; i <= 3; i++)
		json_array_append_new(
			jobs, agent_client_job(&t, i, TOKEN_A, "exec sleep 60", 0, 10000));
	agent_client_send(&c, json_pack("{s:s, s:s, s:[s], s:o}", "op", "launch", "root_id",
				      c.root_id, "env", "PATH=/usr/bin:/bin", "jobs", jobs));
	expect("claimed", 1);
	expect("claimed", 2);
	expect("refused", 3);
	/* A bad job spoils the message, and nothing of it starts. */
	jobs = json_array();
	json_array_append_new(jobs, agent_client_job(&t, 4, TOKEN_A, "echo x >>ran", -1, 0));
	json_array_append_new(jobs, agent_client_job(&t, 5, TOKEN_A, "echo x >>ran", -1, 0));
	json_object_del(json_array_get(jobs, 1), "cwd");
	agent_client_send(&c,
		json_pack("{s:s, s:s, s:o}", "op", "launch", "root_id", c.root_id, "jobs", jobs));
	json_decref(agent_client_expect(&c, "error", 0));
	agent_client_send(
		&c, json_pack("{s:s, s:s, s:[o]}", "op", "launch", "root_id", QUEUE, "jobs",
			    agent_client_job(&t, 6, TOKEN_A, "echo x >>ran", -1, 0)));
	expect("other-root", 6);
	json_decref(observe(NULL));
	assert_int_equal(lines("ran"), 0);
}

/* Jobs that a test left running are its descendants: nothing of it may outlive it. */
static int end_descendants(void **state)
{
	for (int i = 0; i < 50; i++) {
		struct proc_table table;
		size_t found[256], n;

		assert_int_equal(proc_table_read(&table), 0);
		n = proc_table_tree(&table, getpid(), 0, found, 256);
		for (size_t k = 0; k < n; k++)
			kill(table.rows[found[k]].pid, SIGKILL);
		proc_table_done(&table);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		if (!n)
			break;
		poll(NULL, 0, 10);
	}
	return 0;
}

/* Another user's agent: promises on card 0 until it's ended. */
static pid_t start_other_user(uid_t uid, int64_t mib, bool is_tentative)
{
	struct promise_row row = {.mib = mib, .is_tentative = is_tentative};
	int fds[2];
	char byte;
	pid_t pid;

	sim_uuid(t.sim, 0, row.uuid);
	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (!pid) {
		struct promise *p;

		if (setgid(uid) || setuid(uid))
			_exit(1);
		p = promise_new(t.promise);
		if (promise_publish(p, &row, 1, NULL) || write(fds[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(fds[1]);
	assert_int_equal(read(fds[0], &byte, 1), 1);
	close(fds[0]);
	return pid;
}

static void end_other_user(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

#define TIE_MS 1900 /* two seconds, but for what lies between two clocks */

static void other_users_promises(void **state)
{
	int64_t begun, took = TIE_MS;
	json_t *msg;
	pid_t pid;

	if (getuid()) {
		print_message("# skipped: needs root\n");
		skip();
	}
	/* At once: a busy machine may take as long as a tie lasts, but not each time. */
	pid = start_other_user(12345, 20000, false);
	for (int i = 0; took >= TIE_MS; i++) {
		assert_true(i < 10);
		begun = clock_boot_ms();
		msg = launch(1, TOKEN_A, "echo x >>ran", 0, 10000, "refused");
		took = clock_boot_ms() - begun;
		assert_string_equal(text(msg, "reason"), "promise");
		assert_int_equal(number(msg, "promised_mib"), 20000);
		assert_non_null(strstr(text(msg, "text"), "12345"));
		json_decref(msg);
	}
	end_other_user(pid);
	/* One who asks at the same moment and comes after us: we look again until he has gone. */
	for (int i = 0, has_claim = 0; !has_claim; i++) {
		assert_true(i < 10);
		pid = start_other_user(12345, 20000, true);
		begun = clock_boot_ms();
		agent_client_launch(&c, agent_client_job(&t, 2, TOKEN_A, "echo x >>ran", 0, 10000));
		msg = agent_client_next(&c, "refused", 300);
		end_other_user(pid);
		took = clock_boot_ms() - begun;
		/* Its answer comes once it's decided. */
		json_decref(observe(json_pack("[[i, i]]", 2, 1)));
		if (!msg)
			msg = agent_client_next(&c, "refused", 0);
		has_claim = !msg;
		assert_true(has_claim || took >= TIE_MS);
		json_decref(msg);
	}
	expect("claimed", 2);
	expect("ended", 2);
	/* Or until two seconds are over. */
	pid = start_other_user(12345, 20000, true);
	begun = clock_boot_ms();
	msg = launch(3, TOKEN_A, "echo x >>ran", 0, 10000, "refused");
	assert_string_equal(text(msg, "reason"), "promise");
	assert_true(clock_boot_ms() - begun >= TIE_MS);
	json_decref(msg);
	end_other_user(pid);
	assert_int_equal(lines("ran"), 1);
}

static int hang(struct gpu_backend **ret, struct err *e)
{
	while (!pause() || errno)
		;
	return -EIO;
}

/* A hung driver hangs no answer, and no CPU job. */
static void hung_driver(void **state)
{
	struct sample s;
	json_t *msg;

	test_agent_end(&t, SIGKILL);
	t.open_gpu = hang;
	test_agent_start(&t);
	reconnect();
	agent_client_send(&c, json_pack("{s:s, s:i}", "op", "watch", "interval_ms", 100));
	agent_client_launch(&c, agent_client_job(&t, 1, TOKEN_A, "echo x >>ran", 0, 1000));
	agent_client_launch(&c, agent_client_job(&t, 2, TOKEN_A, "echo x >>ran", -1, 0));
	msg = agent_client_expect(&c, "refused", 1);
	assert_string_equal(text(msg, "reason"), "driver");
	json_decref(msg);
	expect("ended", 2);
	assert_int_equal(lines("ran"), 1);
	msg = agent_client_expect(&c, "sample", 0);
	assert_int_equal(sample_decode(msg, &s, NULL), 0);
	assert_non_null(strstr(s.snap.error, "driver"));
	sample_done(&s);
	json_decref(msg);
}

/* After a reboot nothing of before runs any more, and what wasn't on record as ended is said to have gone with it. */
static void rebooted(void **state)
{
	json_t *msg, *end;

	json_decref(launch(1, TOKEN_A, "echo x >>ran; exec sleep 60", 0, 1000, "claimed"));
	wait_lines("ran", 1);
	kill(t.pid, SIGKILL);
	t.pid = 0;
	end_descendants(state);
	setenv("GPUSTOW_TEST_BOOT_ID", "11111111-2222-3333-4444-555555555555", 1);
	test_agent_start(&t);
	unsetenv("GPUSTOW_TEST_BOOT_ID");
	reconnect();
	msg = observe(NULL);
	end = json_object_get(claim_of(msg, 1), "end");
	assert_string_equal(text(end, "how"), "rebooted");
	json_decref(msg);
	json_decref(launch(1, TOKEN_A, "echo x >>ran", 0, 1000, "claimed"));
	expect("ended", 1);
	assert_int_equal(lines("ran"), 1);
}

/* What is about to start isn't called absent: absence binds. */
static void observe_waits_for_the_launch(void **state)
{
	json_t *msg;

	agent_client_launch(&c, agent_client_job(&t, 1, TOKEN_A, "exec sleep 60", 0, 1000));
	msg = observe(json_pack("[[i, i]]", 1, 1));
	assert_non_null(claim_of(msg, 1));
	json_decref(msg);
	/* A stop that overtakes nothing: it finds the claim. */
	agent_client_launch(&c, agent_client_job(&t, 2, TOKEN_A, "exec sleep 60", 1, 1000));
	agent_client_send(&c, json_pack("{s:s, s:i, s:i, s:s, s:i}", "op", "stop", "job", 2,
				      "attempt", 1, "reason", "cancel", "grace_ms", 2000));
	expect("stopping", 2);
	expect("ended", 2);
}

static void agent_killed(void **state)
{
	json_t *msg, *claim;
	int64_t pid;

	json_decref(
		launch(1, TOKEN_A, "echo x >>ran; while [ ! -e go ]; do sleep 0.02; done; exit 7",
			0, 1000, "claimed"));
	msg = agent_client_expect(&c, "started", 1);
	pid = number(msg, "pid");
	json_decref(msg);
	wait_lines("ran", 1);
	test_agent_end(&t, SIGKILL);
	assert_true(agent_client_is_closed(&c, 10000));
	test_agent_start(&t);
	reconnect();
	msg = observe(json_pack("[[i, i]]", 1, 1));
	claim = claim_of(msg, 1);
	assert_string_equal(text(claim, "state"), "started");
	assert_int_equal(number(claim, "pid"), pid);
	assert_string_equal(text(claim, "token"), TOKEN_A);
	json_decref(msg);
	/* Its promise holds under the new agent too. */
	msg = launch(2, TOKEN_A, "echo x >>ran", 0, 24000, "refused");
	assert_int_equal(number(msg, "budget_mib"), 1000);
	json_decref(msg);
	json_decref(launch(1, TOKEN_A, "echo x >>ran", 0, 1000, "claimed"));

	test_agent_end(&t, SIGKILL);
	char go[160];
	snprintf(go, sizeof(go), "%s/go", t.dir);
	close(open(go, O_WRONLY | O_CREAT, 0600));
	for (int i = 0; proc_is_alive((pid_t)pid, 0) && i < 2000; i++)
		poll(NULL, 0, 5);
	test_agent_start(&t);
	reconnect();
	for (int i = 0;; i++) {
		msg = observe(NULL);
		claim = claim_of(msg, 1);
		if (!strcmp(text(claim, "state"), "ended"))
			break;
		json_decref(msg);
		assert_true(i < 2000);
		poll(NULL, 0, 5);
	}
	assert_int_equal(number(json_object_get(claim, "end"), "code"), 7);
	json_decref(msg);
	assert_int_equal(lines("ran"), 1);
}

static pid_t parent_of(pid_t pid)
{
	struct proc_stat st;

	assert_int_equal(proc_read_stat(pid, &st), 0);
	return st.ppid;
}

static void shim_killed(void **state)
{
	json_t *msg, *end;
	pid_t pid, shim;
	char go[160];

	json_decref(launch(1, TOKEN_A,
		"echo x >>up; while [ ! -e go ]; do sleep 0.02; done; exit 5", 0, 1000, "claimed"));
	msg = agent_client_expect(&c, "started", 1);
	pid = (pid_t)number(msg, "pid");
	json_decref(msg);
	wait_lines("up", 1);
	shim = parent_of(pid);
	assert_int_not_equal(shim, t.pid);
	assert_int_equal(parent_of(shim), t.pid);
	kill(shim, SIGKILL);
	for (int i = 0; parent_of(pid) != t.pid; i++) {
		assert_true(i < 2000);
		poll(NULL, 0, 5);
	}
	snprintf(go, sizeof(go), "%s/go", t.dir);
	close(open(go, O_WRONLY | O_CREAT, 0600));
	msg = agent_client_expect(&c, "ended", 1);
	end = json_object_get(msg, "end");
	assert_string_equal(text(end, "how"), "exit");
	assert_int_equal(number(end, "code"), 5);
	assert_false(json_is_true(json_object_get(end, "seen_by_shim")));
	json_decref(msg);

	/* And a stop reaches a job whose shim is dead. */
	json_decref(launch(2, TOKEN_A, "echo x >>ran; exec sleep 60", 0, 1000, "claimed"));
	msg = agent_client_expect(&c, "started", 2);
	pid = (pid_t)number(msg, "pid");
	json_decref(msg);
	wait_lines("ran", 1);
	kill(parent_of(pid), SIGKILL);
	agent_client_send(&c, json_pack("{s:s, s:i, s:i, s:s, s:i}", "op", "stop", "job", 2,
				      "attempt", 1, "reason", "shutdown", "grace_ms", 2000));
	msg = agent_client_expect(&c, "ended", 2);
	assert_string_equal(text(json_object_get(msg, "end"), "how"), "stopped");
	json_decref(msg);
	assert_false(proc_is_alive(pid, 0));
}

/* Makes the claim's `state` one of which neither slot is whole, or removes it. */
static void spoil_state(int64_t job, bool removes)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/claims/" QUEUE "/%d.1/state", t.root, (int)job);
	if (removes) {
		assert_int_equal(unlink(path), 0);
		return;
	}
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, "xxxx", 4, 0), 4);
	assert_int_equal(pwrite(fd, "xxxx", 4, 512), 4);
	close(fd);
}

/* The end of a job that `observe` shows within the deadline. The caller's reference. */
static json_t *observed_end(int64_t job)
{
	json_t *msg, *end;

	for (int i = 0; i < 2000; i++) {
		msg = observe(NULL);
		end = json_incref(json_object_get(claim_of(msg, job), "end"));
		json_decref(msg);
		if (end)
			return end;
		poll(NULL, 0, 5);
	}
	fail_msg("job %d never ended", (int)job);
	return NULL;
}

/* A claim whose record is damaged is never started again, keeps its promise while it lives, and is over after that. */
static void record_damaged(void **state)
{
	json_t *msg, *end;
	pid_t pid[2];

	for (int job = 1; job <= 2; job++) {
		json_decref(
			launch(job, TOKEN_A, "echo x >>ran; exec sleep 60", 0, 1000, "claimed"));
		msg = agent_client_expect(&c, "started", job);
		pid[job - 1] = (pid_t)number(msg, "pid");
		json_decref(msg);
	}
	wait_lines("ran", 2);
	test_agent_end(&t, SIGKILL);
	for (int job = 1; job <= 2; job++) {
		kill(parent_of(pid[job - 1]), SIGKILL);
		spoil_state(job, job == 2);
	}
	test_agent_start(&t);
	reconnect();
	msg = observe(NULL);
	assert_string_equal(text(claim_of(msg, 1), "state"), "claimed");
	json_decref(msg);
	msg = launch(3, TOKEN_A, "true", 0, 23000, "refused");
	assert_int_equal(number(msg, "budget_mib"), 2000);
	json_decref(msg);
	for (int job = 1; job <= 2; job++) {
		kill(pid[job - 1], SIGKILL);
		end = observed_end(job);
		assert_string_equal(text(end, "how"), "vanished");
		json_decref(end);
	}
	/* On record: the next agent says the same. */
	test_agent_end(&t, SIGKILL);
	test_agent_start(&t);
	reconnect();
	end = observed_end(2);
	assert_string_equal(text(end, "how"), "vanished");
	json_decref(end);
	assert_int_equal(lines("ran"), 2);
}

static void record_damaged_in_another_boot(void **state)
{
	json_t *end;

	json_decref(launch(1, TOKEN_A, "echo x >>ran; exec sleep 60", 0, 1000, "claimed"));
	wait_lines("ran", 1);
	kill(t.pid, SIGKILL);
	t.pid = 0;
	end_descendants(state);
	spoil_state(1, false);
	setenv("GPUSTOW_TEST_BOOT_ID", "11111111-2222-3333-4444-555555555555", 1);
	test_agent_start(&t);
	unsetenv("GPUSTOW_TEST_BOOT_ID");
	reconnect();
	end = observed_end(1);
	assert_string_equal(text(end, "how"), "rebooted");
	json_decref(end);
	assert_int_equal(lines("ran"), 1);
}

/* Who has said bye holds the root's lock a moment longer. */
static void wait_until_it_left(void)
{
	char path[160];
	pid_t holder = 0;
	int fd;

	snprintf(path, sizeof(path), "%s/agent.lock", t.root);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	for (int i = 0; !fd_lock_holder(fd, &holder) && holder; i++) {
		assert_true(i < 2000);
		poll(NULL, 0, 5);
	}
	close(fd);
}

/* An agent that does a dead shim's work and is asked to yield stays for that, silently; the exit code isn't lost. */
static void yields_but_stays_for_its_jobs(void **state)
{
	json_t *msg, *end;
	pid_t pid, old = t.pid;
	char go[160];
	int status = 0;

	json_decref(launch(1, TOKEN_A,
		"echo x >>up; while [ ! -e go ]; do sleep 0.02; done; exit 5", 0, 1000, "claimed"));
	msg = agent_client_expect(&c, "started", 1);
	pid = (pid_t)number(msg, "pid");
	json_decref(msg);
	wait_lines("up", 1);
	kill(parent_of(pid), SIGKILL);
	for (int i = 0; parent_of(pid) != old; i++) {
		assert_true(i < 2000);
		poll(NULL, 0, 5);
	}
	/* It has taken the job over once it answers after the shim's end. */
	json_decref(observe(NULL));
	agent_client_send(&c, json_pack("{s:s, s:i}", "op", "yield", "build", GPUSTOW_BUILD + 1));
	json_decref(agent_client_expect(&c, "bye", 0));
	wait_until_it_left();
	test_agent_start(&t);
	reconnect();
	msg = observe(NULL);
	assert_string_equal(text(claim_of(msg, 1), "state"), "started");
	json_decref(msg);
	/* A second promise of the same memory would be a neighbour's. */
	msg = launch(2, TOKEN_A, "true", 0, 24000, "refused");
	assert_int_equal(number(msg, "budget_mib"), 1000);
	assert_int_equal(number(msg, "promised_mib"), 0);
	json_decref(msg);
	snprintf(go, sizeof(go), "%s/go", t.dir);
	close(open(go, O_WRONLY | O_CREAT, 0600));
	msg = agent_client_expect(&c, "ended", 1);
	end = json_object_get(msg, "end");
	assert_string_equal(text(end, "how"), "exit");
	assert_int_equal(number(end, "code"), 5);
	json_decref(msg);
	assert_int_equal(waitpid(old, &status, 0), old);
	assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
}

static void leftovers_keep_the_claim(void **state)
{
	struct sample s;
	json_t *msg;

	/* The leader ends at once; what it left in a session of its own holds memory. */
	json_decref(launch(1, TOKEN_A,
		"setsid sh -c 'echo \"{\\\"pid\\\": $$, \\\"usage\\\": {\\\"0\\\": 3000}}\" >$GPUSTOW_SIM_DIR/x.json; "
		"echo up >>held; echo $$ >left; exec sleep 60' & while [ ! -e left ]; do sleep 0.02; done; exit 0",
		0, 4000, "claimed"));
	msg = agent_client_expect(&c, "ended", 1);
	assert_true(number(msg, "survivors") > 0);
	json_decref(msg);
	agent_client_send(&c, json_pack("{s:s, s:[[i, i]]}", "op", "ack", "jobs", 1, 1));
	s = take_sample(1);
	assert_int_equal(s.n_rows, 1);
	assert_true(s.rows[0].has_ended);
	assert_int_equal(s.rows[0].budget_mib, 3000);
	sample_done(&s);
	msg = launch(2, TOKEN_A, "true", 0, 22000, "refused");
	assert_int_equal(number(msg, "budget_mib"), 3000);
	assert_int_equal(number(msg, "foreign_mib"), 0);
	json_decref(msg);
	/* A later one is acknowledged and retired; the first, acknowledged before it, has to stay. */
	json_decref(launch(3, TOKEN_A, "true", 1, 1000, "claimed"));
	expect("ended", 3);
	agent_client_send(&c, json_pack("{s:s, s:[[i, i]]}", "op", "ack", "jobs", 3, 1));
	wait_retired(3);
	msg = observe(NULL);
	assert_non_null(claim_of(msg, 1));
	json_decref(msg);
	char left[160];
	struct buf b = {0};
	snprintf(left, sizeof(left), "%s/left", t.dir);
	assert_int_equal(fd_read_file_at(AT_FDCWD, left, &b, 100), 0);
	kill((pid_t)strtol(buf_str(&b), NULL, 10), SIGKILL);
	buf_done(&b);
	wait_retired(1);
}

static void watching(void **state)
{
	struct agent_client w;

	agent_client_connect(&w, &t);
	assert_true(agent_client_hello(&w, NULL, 0, 0, 0));
	agent_client_send(&w, json_pack("{s:s, s:i}", "op", "watch", "interval_ms", 100));
	for (int i = 0; i < 3; i++) {
		struct sample s;
		json_t *msg = agent_client_expect(&w, "sample", 0);

		assert_int_equal(sample_decode(msg, &s, NULL), 0);
		assert_int_equal(s.snap.n_cards, 2);
		assert_string_equal(s.snap.source, "sim");
		sample_done(&s);
		json_decref(msg);
	}
	agent_client_send(&w, json_pack("{s:s}", "op", "ping"));
	json_decref(agent_client_expect(&w, "pong", 0));
	/* What breaks the framing closes the link; everybody else's stays. */
	assert_int_equal(send(w.fd, "\0\0\0\2Jx", 6, MSG_NOSIGNAL), 6);
	json_decref(agent_client_expect(&w, "error", 0));
	assert_true(agent_client_is_closed(&w, 10000));
	agent_client_close(&w);
	json_decref(observe(NULL));
}

static void put_power(const char *file, const char *text)
{
	CLEANUP(buf_done) struct buf path = {0};
	struct err e = {0};

	buf_printf(&path, "%s/host/sys/class/power_supply/BAT0", t.dir);
	assert_int_equal(fd_mkdirs(path.data, &e), 0);
	buf_printf(&path, "/%s", file);
	assert_int_equal(fd_replace_at(AT_FDCWD, path.data, text, strlen(text), false), 0);
}

/* On battery who may wait gets every second sample (item 46 of the pitfalls); who wants his interval gets that. */
static void watching_on_battery(void **state)
{
	char root[96];
	struct agent_client w;
	int64_t before = 0;

	(void)state;
	test_agent_end(&t, SIGTERM);
	put_power("type", "Battery\n");
	put_power("status", "Discharging\n");
	snprintf(root, sizeof(root), "%s/host", t.dir);
	setenv("GPUSTOW_HOST_ROOT", root, 1);
	test_agent_start(&t);
	unsetenv("GPUSTOW_HOST_ROOT");
	agent_client_connect(&w, &t);
	assert_true(agent_client_hello(&w, NULL, 0, 0, 0));
	agent_client_send(&w, json_pack("{s:s, s:i, s:b, s:b}", "op", "watch", "interval_ms", 400,
				      "details", 1, "may_slow", 1));
	for (int i = 0; i < 4; i++) {
		json_t *msg = agent_client_expect(&w, "sample", 0);
		struct sample s;

		assert_int_equal(sample_decode(msg, &s, NULL), 0);
		assert_int_equal(s.host.on_battery.v, 1);
		/* Never sooner, but for the tenth that is near enough. */
		if (i > 1)
			assert_true(s.snap.begun_ms - before >= 600);
		before = s.snap.begun_ms;
		sample_done(&s);
		json_decref(msg);
	}
	agent_client_close(&w);
}

/* Figures come once, before the first sample that builds on them; who comes later gets the same. */
static void watching_on_a_base(void **state)
{
	struct agent_client w[2];
	json_int_t key = 0;

	(void)state;
	for (int k = 0; k < 2; k++) {
		struct sample_base b = {0};
		json_t *msg;

		agent_client_connect(&w[k], &t);
		assert_true(agent_client_hello(&w[k], NULL, 0, 0, 0));
		agent_client_send(&w[k], json_pack("{s:s, s:i, s:b, s:b}", "op", "watch",
						 "interval_ms", 100, "details", 1, "base", 1));
		msg = agent_client_expect(&w[k], "sample-base", 0);
		assert_int_equal(sample_base_decode(msg, &b, NULL), 0);
		json_decref(msg);
		assert_true(!key || key == (json_int_t)b.key);
		key = (json_int_t)b.key;
		for (int i = 0; i < 3; i++) {
			struct sample s;

			msg = agent_client_expect(&w[k], "sample", 0);
			assert_int_equal(json_integer_value(json_object_get(msg, "base")), key);
			assert_int_equal(sample_decode_on(msg, &b, &s, NULL), 0);
			assert_true(s.with_details && s.snap.n_cards == 2);
			assert_true(value_is_present(s.snap.cards[1].m[METRIC_MEM_TOTAL]));
			assert_true(value_is_present(s.snap.cards[1].m[METRIC_PCIE_GEN]));
			sample_done(&s);
			json_decref(msg);
		}
		assert_null(agent_client_next(&w[k], "sample-base", 0));
		sample_base_done(&b);
	}
	for (int k = 0; k < 2; k++)
		agent_client_close(&w[k]);
}

/* Who watches with details gets them, beside one who doesn't; and a job is admitted by lists that were read for it. */
static void watching_details(void **state)
{
	struct agent_client w, d;
	struct sample s;
	json_t *msg;

	agent_client_connect(&w, &t);
	agent_client_connect(&d, &t);
	assert_true(agent_client_hello(&w, NULL, 0, 0, 0));
	assert_true(agent_client_hello(&d, NULL, 0, 0, 0));
	agent_client_send(&w, json_pack("{s:s, s:i}", "op", "watch", "interval_ms", 100));
	agent_client_send(
		&d, json_pack("{s:s, s:i, s:b}", "op", "watch", "interval_ms", 100, "details", 1));
	for (int i = 0; i < 4; i++) {
		msg = agent_client_expect(&w, "sample", 0);
		assert_int_equal(sample_decode(msg, &s, NULL), 0);
		assert_false(s.with_details || s.has_host);
		assert_int_equal(s.snap.cards[0].m[METRIC_PCIE_GEN].state, VALUE_NOT_ASKED);
		sample_done(&s);
		json_decref(msg);
		msg = agent_client_expect(&d, "sample", 0);
		assert_int_equal(sample_decode(msg, &s, NULL), 0);
		assert_true(s.with_details && s.has_host);
		assert_true(s.host.mem_total_mib.v > 0 && s.host.cores > 0);
		assert_true(value_is_present(s.snap.cards[0].m[METRIC_PCIE_GEN]));
		assert_true(value_is_present(s.snap.cards[0].m[METRIC_TEMP]));
		sample_done(&s);
		json_decref(msg);
	}
	agent_client_close(&w);
	/* Only those who look are left: jobs are admitted all the same. */
	json_decref(launch(1, TOKEN_A, "exit 0", 0, 1000, "claimed"));
	expect("ended", 1);
	agent_client_send(&d, json_pack("{s:s, s:i, s:b}", "op", "sample", "id", 9, "details", 1));
	for (bool found = false; !found;) {
		msg = agent_client_expect(&d, "sample", 0);
		found = json_object_get(msg, "id") != NULL;
		assert_int_equal(sample_decode(msg, &s, NULL), 0);
		assert_true(s.with_details);
		sample_done(&s);
		json_decref(msg);
	}
	agent_client_close(&d);
}

static void yields_upward_only(void **state)
{
	json_t *msg;
	int status = 0;

	agent_client_send(&c, json_pack("{s:s, s:i}", "op", "yield", "build", GPUSTOW_BUILD));
	json_decref(agent_client_expect(&c, "no", 0));
	json_decref(launch(1, TOKEN_A, "exec sleep 60", 0, 1000, "claimed"));
	expect("started", 1);
	agent_client_send(&c, json_pack("{s:s, s:i}", "op", "yield", "build", GPUSTOW_BUILD + 1));
	msg = agent_client_expect(&c, "bye", 0);
	assert_string_equal(text(msg, "reason"), "yield");
	json_decref(msg);
	assert_int_equal(waitpid(t.pid, &status, 0), t.pid);
	assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
	test_agent_start(&t);
	reconnect();
	msg = observe(NULL);
	assert_string_equal(text(claim_of(msg, 1), "state"), "started");
	json_decref(msg);
}

/* The socket's name is all that a client has: an agent without it makes room for another. */
static void leaves_without_its_socket(void **state)
{
	char path[160];
	int status = 0;

	snprintf(path, sizeof(path), "%s/agent.sock", t.root);
	assert_int_equal(unlink(path), 0);
	/* Another file under that name is somebody else's, and stays. */
	close(open(path, O_WRONLY | O_CREAT, 0600));
	assert_int_equal(waitpid(t.pid, &status, 0), t.pid);
	assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
	assert_int_equal(access(path, F_OK), 0);
	test_agent_start(&t);
	reconnect();
	json_decref(observe(NULL));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down_all)

static int tear_down_all(void **state)
{
	tear_down(state);
	return end_descendants(state);
}

/* ---- the driver is let go of ---- */

/* Processes below the agent that call themselves a sampler. */
static size_t samplers(void)
{
	struct proc_table table;
	size_t n = 0;

	assert_int_equal(proc_table_read(&table), 0);
	for (size_t i = 0; i < table.n; i++)
		n += table.rows[i].ppid == t.pid &&
		     !strcmp(table.rows[i].comm, "gpustow-sampler") && table.rows[i].state != 'Z';
	proc_table_done(&table);
	return n;
}

static void ask_sample(struct agent_client *who, bool has_error)
{
	json_t *msg;

	agent_client_send(who, json_pack("{s:s, s:i}", "op", "sample", "id", 9));
	msg = agent_client_next(who, "sample", 20000);
	assert_non_null(msg);
	assert_int_equal(strlen(text(msg, "error")) > 0, has_error);
	json_decref(msg);
}

static void release_and_resume(void **state)
{
	ask_sample(&c, false);
	assert_int_equal(samplers(), 1);
	agent_client_send(&c, json_pack("{s:s}", "op", "release"));
	expect("released", 0);
	assert_int_equal(samplers(), 0);
	/* Who asks hears why, and nobody opens the driver, however often: longer than the pause after a sampler's death. */
	for (int i = 0; i < 30; i++) {
		ask_sample(&c, true);
		assert_int_equal(samplers(), 0);
		poll(NULL, 0, 50);
	}
	json_decref(launch(1, TOKEN_A, "exit 0", 0, 100, "refused"));
	agent_client_send(&c, json_pack("{s:s}", "op", "resume"));
	expect("resumed", 0);
	ask_sample(&c, false);
	assert_int_equal(samplers(), 1);
	json_decref(launch(2, TOKEN_B, "exit 0", 0, 100, "claimed"));
}

static void release_ends_with_its_link(void **state)
{
	struct agent_client other;

	agent_client_connect(&other, &t);
	assert_true(agent_client_hello(&other, NULL, 0, 0, 0));
	agent_client_send(&other, json_pack("{s:s}", "op", "release"));
	json_decref(agent_client_expect(&other, "released", 0));
	ask_sample(&c, true);
	agent_client_close(&other);
	for (int64_t until = clock_boot_ms() + 20000;;) {
		json_t *msg;
		bool is_well;

		agent_client_send(&c, json_pack("{s:s, s:i}", "op", "sample", "id", 9));
		msg = agent_client_next(&c, "sample", 20000);
		assert_non_null(msg);
		is_well = !strlen(text(msg, "error"));
		json_decref(msg);
		if (is_well)
			break;
		assert_true(clock_boot_ms() < until);
	}
}

static void release_waits_for_nobodys_job(void **state)
{
	json_t *msg;

	json_decref(launch(1, TOKEN_A, HOLD(500), 0, 500, "started"));
	agent_client_send(&c, json_pack("{s:s}", "op", "release"));
	msg = agent_client_expect(&c, "held-by", 0);
	assert_int_equal(number(json_array_get(json_object_get(msg, "jobs"), 0), "job"), 1);
	json_decref(msg);
	ask_sample(&c, false);
	agent_client_send(&c, json_pack("{s:s, s:b}", "op", "release", "force", 1));
	expect("released", 0);
	agent_client_send(&c, json_pack("{s:s}", "op", "resume"));
	expect("resumed", 0);
}

/* ---- signals ---- */

/* A process that waits; *ret_start is its start. */
static pid_t sleeper(uint64_t *ret_start)
{
	struct proc_stat st;
	pid_t pid = fork();

	if (!pid) {
		signal(SIGTERM, SIG_DFL);
		for (;;)
			pause();
	}
	assert_true(pid > 0);
	assert_int_equal(proc_read_stat(pid, &st), 0);
	*ret_start = st.start_ticks;
	return pid;
}

static void ask_signal(json_int_t id, pid_t pid, uint64_t start, int signo)
{
	agent_client_send(
		&c, json_pack("{s:s, s:I, s:i, s:I, s:i}", "op", "signal", "id", id, "pid",
			    (int)pid, "start_ticks", (json_int_t)start, "signo", signo));
}

static void expect_refused(json_int_t id, const char *part)
{
	json_t *msg = agent_client_expect(&c, "error", 0);

	assert_int_equal(number(msg, "id"), id);
	assert_non_null(strstr(text(msg, "text"), part));
	json_decref(msg);
}

static void signal_reaches_exactly_its_process(void **state)
{
	uint64_t start;
	pid_t pid = sleeper(&start);
	json_t *msg;
	int status;

	ask_signal(1, pid, start + 1, SIGTERM);
	expect_refused(1, "another has its number");
	ask_signal(2, pid, start, SIGSTOP);
	expect_refused(2, "only SIGINT");
	ask_signal(3, 1, 1, SIGTERM);
	expect_refused(3, "\"pid\"");
	ask_signal(4, pid, 0, SIGTERM);
	expect_refused(4, "\"start_ticks\"");
	assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
	ask_signal(5, pid, start, SIGTERM);
	msg = agent_client_expect(&c, "signalled", 0);
	assert_int_equal(number(msg, "id"), 5);
	assert_int_equal(number(msg, "pid"), pid);
	json_decref(msg);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	ask_signal(6, pid, start, SIGTERM);
	expect_refused(6, "has ended");
}

static void signal_spares_the_agent(void **state)
{
	struct proc_stat st;

	assert_int_equal(proc_read_stat(t.pid, &st), 0);
	ask_signal(1, t.pid, st.start_ticks, SIGKILL);
	expect_refused(1, "the agent itself");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(launch_and_retire),
		TEST(starts_once),
		TEST(fences),
		TEST(refused_with_figures),
		TEST(a_start_makes_the_sample_old),
		TEST(a_batch_counts_its_own),
		TEST(other_users_promises),
		TEST(hung_driver),
		TEST(rebooted),
		TEST(observe_waits_for_the_launch),
		TEST(agent_killed),
		TEST(shim_killed),
		TEST(record_damaged),
		TEST(record_damaged_in_another_boot),
		TEST(yields_but_stays_for_its_jobs),
		TEST(leftovers_keep_the_claim),
		TEST(watching),
		TEST(watching_details),
		TEST(watching_on_a_base),
		TEST(watching_on_battery),
		TEST(yields_upward_only),
		TEST(leaves_without_its_socket),
		TEST(release_and_resume),
		TEST(release_ends_with_its_link),
		TEST(release_waits_for_nobodys_job),
		TEST(signal_reaches_exactly_its_process),
		TEST(signal_spares_the_agent),
	};

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
