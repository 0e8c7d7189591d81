/*
 * Lanes with a real agent by its socket. The judge of order and number is a file that only the jobs write. Nobody is
 * connected while a lane runs, unless the test says so.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent_client.h"

#include "agent/lane_command.h"
#include "agent/lanes.h"
#include "agent/server.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/sys.h"
#include "core/sample.h"
#include "core/wire.h"
#include "gpu/sim_spec.h"

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
#define CARD_MIB 24576

static struct test_agent t;
static struct agent_client c;
static int64_t epoch, last_id;

/* ---- the bed ---- */

static void in_dir(const char *name, char ret[320])
{
	snprintf(ret, 320, "%s/%s", t.dir, name);
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

static void wait_there(const char *name)
{
	int64_t until = clock_boot_ms() + 20000;

	while (!is_there(name) && clock_boot_ms() < until)
		poll(NULL, 0, 2);
	assert_true(is_there(name));
}

/* The lines of `ran` in one, with blanks. The caller frees. */
static char *ran(void)
{
	struct buf b = {0};
	char path[320];

	in_dir("ran", path);
	fd_read_file_at(AT_FDCWD, path, &b, 1 << 20);
	for (size_t i = 0; i < b.len; i++)
		if (b.data[i] == '\n')
			b.data[i] = ' ';
	return buf_take(&b);
}

static size_t count_ran(void)
{
	CLEANUP_FREE char *text = ran();
	size_t n = 0;

	for (const char *s = text; *s; s++)
		n += *s == ' ';
	return n;
}

/* As long as there's one more now and then: how fast they are is the machine's. */
static void wait_ran(size_t n)
{
	int64_t until = clock_boot_ms() + 60000;
	size_t had = 0, has;

	while ((has = count_ran()) < n && clock_boot_ms() < until) {
		if (has > had)
			until = clock_boot_ms() + 60000;
		had = has;
		poll(NULL, 0, 2);
	}
	assert_int_equal(has, n);
}

static void assert_ran(const char *want)
{
	CLEANUP_FREE char *text = ran();

	assert_string_equal(text, want);
}

static void connect_again(void)
{
	agent_client_connect(&c, &t);
	assert_true(agent_client_hello(&c, QUEUE, 1, ++epoch, 1));
}

static void start_agent(void)
{
	test_agent_start(&t);
	connect_again();
}

static int set_up(void **state)
{
	char path[320];

	test_agent_init(&t, "2");
	in_dir("home", path);
	assert_int_equal(mkdir(path, 0700), 0);
	setenv("GPUSTOW_TEST_HOME", path, 1);
	start_agent();
	return 0;
}

static int tear_down(void **state)
{
	agent_client_close(&c);
	test_agent_done(&t);
	unsetenv("GPUSTOW_TEST_HOME");
	return 0;
}

static void restart(const char *fault)
{
	agent_client_close(&c);
	test_agent_end(&t, SIGKILL);
	if (fault)
		setenv("GPUSTOW_FAULT", fault, 1);
	start_agent();
	unsetenv("GPUSTOW_FAULT");
}

/* ---- words ---- */

static void token_of(int job, char ret[ID_LEN])
{
	snprintf(ret, ID_LEN, "%032x", job);
}

/* Says its number in `ran`, then runs `more`. */
static json_t *entry(int job, const char *more, int card, int64_t mib)
{
	char token[ID_LEN], script[1300];

	token_of(job, token);
	snprintf(script, sizeof(script), "echo %d >>ran; %s", job, more);
	return agent_client_job(&t, job, token, script, card, mib);
}

/* The same as a job of the queue, with a directory; `body` NULL: sent ahead. */
static json_t *entry_with_dir(int job, const char *body)
{
	json_t *o = entry(job, "", 0, 1000);
	char dir[128];

	snprintf(dir, sizeof(dir), ".gpustow/jobs/" QUEUE "/%d.1", job);
	json_object_del(o, "argv");
	json_object_del(o, "output");
	json_object_set_new(o, "dir", json_string(dir));
	json_object_set_new(o, "login", json_false());
	json_object_set_new(o, body ? "body" : "staged", body ? json_string(body) : json_true());
	return o;
}

/* Only its name: the agent has it. */
static json_t *known(int job)
{
	char token[ID_LEN];

	token_of(job, token);
	return json_pack("{s:i, s:i, s:s}", "job", job, "attempt", 1, "token", token);
}

static json_t *needing(json_t *o, int job, const char *when)
{
	if (!json_object_get(o, "needs"))
		json_object_set_new(o, "needs", json_array());
	json_array_append_new(
		json_object_get(o, "needs"), json_pack("[i, i, s]", job, job % 2, when));
	return o;
}

/* What of these the agent has from before isn't sent, only named in the order. */
static json_t *lane_message(const char *name, int64_t generation, json_t *entries)
{
	json_t *order = json_array(), *whole = json_array(), *msg;
	char uuid[2][GPU_UUID_LEN];

	for (size_t i = 0; i < json_array_size(entries); i++) {
		json_t *o = json_array_get(entries, i);

		json_array_append_new(
			order, json_pack("[O, O, O]", json_object_get(o, "job"),
				       json_object_get(o, "attempt"), json_object_get(o, "token")));
		if (json_object_get(o, "policy"))
			json_array_append(whole, o);
	}
	json_decref(entries);
	sim_uuid(t.sim, 0, uuid[0]);
	sim_uuid(t.sim, 1, uuid[1]);
	msg = json_pack("{s:s, s:I, s:s, s:s, s:I, s:[s, s], s:[s], s:o, s:o}", "op", "lane", "id",
		(json_int_t)++last_id, "root_id", c.root_id, "name", name, "generation",
		(json_int_t)generation, "cards", uuid[0], uuid[1], "env", "PATH=/usr/bin:/bin",
		"order", order, "entries", whole);
	return msg;
}

static json_t *ask(json_t *msg, const char *op)
{
	json_t *answer;

	agent_client_send(&c, msg);
	answer = agent_client_expect(&c, op, 0);
	assert_int_equal(json_integer_value(json_object_get(answer, "id")), last_id);
	return answer;
}

static json_t *put_lane(const char *name, int64_t generation, json_t *entries)
{
	return ask(lane_message(name, generation, entries), "lane");
}

static void go_lane(const char *name, int64_t generation, json_t *entries)
{
	json_decref(put_lane(name, generation, entries));
}

/* "1:ended 2:queued": a list of [job, attempt, state]. */
static void assert_list(const json_t *o, const char *key, const char *want)
{
	const json_t *list = json_object_get(o, key);
	CLEANUP(buf_done) struct buf b = {0};

	assert_true(json_is_array(list));
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *row = json_array_get(list, i);

		buf_printf(&b, "%s%lld:%s", i ? " " : "",
			(long long)json_integer_value(json_array_get(row, 0)),
			json_string_value(json_array_get(row, 2)));
	}
	assert_string_equal(buf_str(&b), want);
}

/* "2 3": what waits, in order. */
static void assert_queued(const json_t *lane, const char *want)
{
	const json_t *list = json_object_get(lane, "queued");
	CLEANUP(buf_done) struct buf b = {0};

	assert_true(json_is_array(list));
	for (size_t i = 0; i < json_array_size(list); i++)
		buf_printf(&b, "%s%lld", i ? " " : "",
			(long long)json_integer_value(json_array_get(json_array_get(list, i), 0)));
	assert_string_equal(buf_str(&b), want);
}

/* The order of a whole document, for its last part. */
static json_t *order_of(int n)
{
	json_t *order = json_array();
	char token[ID_LEN];

	for (int i = 1; i <= n; i++) {
		token_of(i, token);
		json_array_append_new(order, json_pack("[i, i, s]", i, 1, token));
	}
	return order;
}

static json_t *observe(json_t *want)
{
	json_t *msg = json_pack("{s:s, s:i}", "op", "observe", "id", 5);

	if (want)
		json_object_set_new(msg, "want", want);
	agent_client_send(&c, msg);
	return agent_client_expect(&c, "observed", 0);
}

static json_t *lane_in(const json_t *observed, const char *name)
{
	const json_t *lanes = json_object_get(observed, "lanes");

	for (size_t i = 0; i < json_array_size(lanes); i++) {
		json_t *l = json_array_get(lanes, i);

		if (!strcmp(json_string_value(json_object_get(l, "name")), name))
			return l;
	}
	return NULL;
}

static const char *text(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "(none)";
}

/* Until the lane's next one waits for that reason ("" for none). */
static void wait_reason(const char *name, const char *reason)
{
	int64_t until = clock_boot_ms() + 20000;
	char last[64] = "";

	do {
		json_t *msg = observe(NULL);
		const json_t *waits = json_object_get(lane_in(msg, name), "why");

		snprintf(last, sizeof(last), "%s", waits ? text(waits, "reason") : "");
		json_decref(msg);
		poll(NULL, 0, strcmp(last, reason) ? 5 : 0);
	} while (strcmp(last, reason) != 0 && clock_boot_ms() < until);
	assert_string_equal(last, reason);
}

static struct sample take_sample(void)
{
	struct sample s = {0};
	json_t *msg;

	agent_client_send(&c, json_pack("{s:s, s:i}", "op", "sample", "id", 4));
	msg = agent_client_expect(&c, "sample", 0);
	assert_int_equal(sample_decode(msg, &s, NULL), 0);
	json_decref(msg);
	return s;
}

/* The agent has heard of it, too. */
static void wait_started(int job)
{
	json_decref(agent_client_expect(&c, "started", job));
}

/* Ends with the test's directory, too. */
#define UNTIL(file) "until [ -e " file " ] || [ ! -e home ]; do sleep 0.02; done"

/* ---- the tests ---- */

static void keeps_order_without_a_client(void **state)
{
	CLEANUP(buf_done) struct buf want = {0};
	json_t *first = json_array(), *second = json_array(), *msg;

	for (int i = 1; i <= 200; i++) {
		json_array_append_new(i <= 120 ? first : second, entry(i, "", 0, 1000));
		buf_printf(&want, "%d ", i);
	}
	msg = lane_message("n1:0", 1, first);
	json_object_set_new(msg, "more", json_true());
	agent_client_send(&c, msg);
	msg = lane_message("n1:0", 1, second);
	json_object_set_new(msg, "id", json_integer(--last_id));
	json_object_set_new(msg, "order", order_of(200));
	json_object_set_new(msg, "part", json_integer(1));
	json_decref(ask(msg, "lane"));
	agent_client_close(&c);
	wait_ran(200);
	assert_ran(buf_str(&want));
	connect_again();
	msg = observe(NULL);
	assert_int_equal(json_array_size(json_object_get(msg, "claims")), 200);
	assert_queued(lane_in(msg, "n1:0"), "");
	json_decref(msg);
}

/* A part that's missing, or of another document: nothing of it counts. */
static void half_a_document_is_none(void **state)
{
	json_t *msg = lane_message("n1:0", 1, json_pack("[o]", entry(1, "", 0, 1000)));

	json_object_set_new(msg, "more", json_true());
	agent_client_send(&c, msg);
	msg = lane_message("n1:0", 1, json_pack("[o]", entry(3, "", 0, 1000)));
	json_object_set_new(msg, "id", json_integer(--last_id));
	json_object_set_new(msg, "part", json_integer(2));
	json_decref(ask(msg, "error"));
	msg = lane_message("n1:0", 1, json_pack("[o]", entry(3, "", 0, 1000)));
	json_object_set_new(msg, "part", json_integer(1));
	json_decref(ask(msg, "error"));
	msg = observe(NULL);
	assert_null(lane_in(msg, "n1:0"));
	json_decref(msg);
	go_lane("n1:0", 1, json_pack("[o]", entry(2, "", 0, 1000)));
	wait_ran(1);
	assert_ran("2 ");
}

static void bad_words_change_nothing(void **state)
{
	static const struct {
		const char *key, *value, *word;
	} rows[] = {
		{"name", "\"\"", "\"name\""},
		{"name", "\"a\\nb\"", "\"name\""},
		{"generation", "0", "\"generation\""},
		{"concurrency", "0", "\"concurrency\""},
		{"paused", "1", "\"paused\""},
		{"cards", "[7]", "\"cards\""},
		{"cards", "[]", "isn't the lane's"},
		{"entries", "{}", "\"entries\""},
		{"entries", "[{\"job\": 1}]", "\"attempt\""},
		{"order", "7", "\"order\""},
		{"order", "[[1, 1, \"x\"]]", "\"order\""},
		{"env", "7", "\"env\""},
		{"part", "-1", "\"part\""},
	};
	json_t *msg;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		json_t *m = lane_message("n1:0", 1, json_pack("[o]", entry(1, "", 0, 1000)));

		json_object_set_new(
			m, rows[i].key, json_loads(rows[i].value, JSON_DECODE_ANY, NULL));
		msg = ask(m, "error");
		if (!strstr(text(msg, "text"), rows[i].word))
			fail_msg("%s isn't in: %s", rows[i].word, text(msg, "text"));
		json_decref(msg);
	}
	msg = ask(lane_message("n1:0", 1,
			  json_pack("[o, o]", entry(1, "", 0, 1000), entry(1, "", 0, 1000))),
		"error");
	assert_non_null(strstr(text(msg, "text"), "twice"));
	json_decref(msg);
	msg = ask(lane_message(
			  "n1:0", 1, json_pack("[o]", needing(entry(1, "", 0, 1000), 2, "soon"))),
		"error");
	assert_non_null(strstr(text(msg, "text"), "\"needs\""));
	json_decref(msg);
	msg = lane_message("n1:0", 1, json_pack("[o]", entry(1, "", 0, 1000)));
	json_object_set_new(msg, "root_id", json_string(QUEUE));
	json_decref(ask(msg, "other-root"));
	msg = observe(NULL);
	assert_null(lane_in(msg, "n1:0"));
	json_decref(msg);
	assert_int_equal(count_ran(), 0);
}

static void reorder_and_take_out(void **state)
{
	json_t *msg;

	go_lane("n1:0", 1,
		json_pack("[o, o, o, o]", entry(1, UNTIL("go"), 0, 1000), entry(2, "", 0, 1000),
			entry(3, "", 0, 1000), entry(4, "", 0, 1000)));
	wait_ran(1);
	wait_started(1);
	msg = put_lane("n1:0", 2, json_pack("[o, o, o]", known(1), known(4), known(2)));
	assert_list(msg, "states", "1:started 4:queued 2:queued");
	assert_list(msg, "gone", "3:none");
	json_decref(msg);
	/* What runs stays, and keeps its place, whether or not it's listed. */
	msg = put_lane("n1:0", 3, json_pack("[o, o]", known(4), known(2)));
	assert_list(msg, "gone", "1:started");
	json_decref(msg);
	restart(NULL);
	msg = put_lane("n1:0", 3, json_array());
	assert_list(msg, "states", "4:queued 2:queued");
	json_decref(msg);
	assert_ran("1 ");
	put("go", "");
	wait_ran(3);
	assert_ran("1 4 2 ");
}

static void paused(void **state)
{
	json_t *msg = lane_message("n1:0", 1, json_pack("[o]", entry(1, "", 0, 1000)));

	json_object_set_new(msg, "paused", json_true());
	json_decref(ask(msg, "lane"));
	/* Another lane's job comes and goes meanwhile. */
	go_lane("n1:1", 1, json_pack("[o]", entry(9, "", 1, 1000)));
	wait_ran(1);
	restart(NULL);
	msg = observe(NULL);
	assert_queued(lane_in(msg, "n1:0"), "1");
	assert_true(json_is_true(json_object_get(lane_in(msg, "n1:0"), "paused")));
	json_decref(msg);
	assert_ran("9 ");
	go_lane("n1:0", 2, json_pack("[o]", known(1)));
	wait_ran(2);
}

static void two_at_once(void **state)
{
	json_t *msg = lane_message("n1:0", 1,
		json_pack("[o, o, o, o]", entry(1, UNTIL("go1"), 0, 1000),
			entry(2, UNTIL("go2"), 0, 1000), entry(3, UNTIL("go3"), 0, 1000),
			entry(4, "", 0, 1000)));

	json_object_set_new(msg, "concurrency", json_integer(2));
	json_decref(ask(msg, "lane"));
	wait_ran(2);
	wait_started(1);
	wait_started(2);
	/* The third is ready, and no more than that. */
	wait_there("root/new/00000000000000000000000000000003/spec");
	msg = observe(NULL);
	assert_queued(lane_in(msg, "n1:0"), "3 4");
	json_decref(msg);
	put("go2", "");
	wait_ran(3);
	put("go1", "");
	put("go3", "");
	wait_ran(4);
	msg = observe(NULL);
	json_decref(msg);
}

static void needs(void **state)
{
	json_t *msg;

	go_lane("n1:0", 1,
		json_pack("[o, o, o, o]", entry(1, "exit 3", 0, 1000),
			needing(entry(2, "", 0, 1000), 1, "end"),
			needing(needing(entry(3, "", 0, 1000), 2, "ok"), 1, "ok"),
			needing(entry(4, "", 0, 1000), 2, "ok")));
	json_decref(agent_client_expect(&c, "ended", 2));
	wait_reason("n1:0", "need-failed");
	assert_ran("1 2 ");
	msg = put_lane(
		"n1:0", 2, json_pack("[o, o]", known(4), needing(entry(5, "", 0, 1000), 7, "ok")));
	assert_list(msg, "gone", "1:ended 2:ended 3:none");
	json_decref(msg);
	wait_ran(3);
	wait_reason("n1:0", "need");
	/* Nothing is known of 7 here until it has been launched, and has ended. */
	agent_client_launch(&c, entry(7, "", 1, 1000));
	wait_ran(5);
	assert_ran("1 2 4 7 5 ");
	json_decref(agent_client_expect(&c, "ended", 5));
	/* A retired line tells as well as a claim. */
	agent_client_send(&c, json_pack("{s:s, s:[[i, i], [i, i], [i, i], [i, i], [i, i]]}", "op",
				      "ack", "jobs", 1, 1, 2, 1, 4, 1, 7, 1, 5, 1));
	for (int i = 0; i < 2000; i++) {
		size_t n;

		msg = observe(NULL);
		n = json_array_size(json_object_get(msg, "claims"));
		json_decref(msg);
		if (!n)
			break;
		poll(NULL, 0, 5);
	}
	restart(NULL);
	msg = put_lane("n1:0", 3,
		json_pack(
			"[o, o, o]", known(4), known(5), needing(entry(6, "", 0, 1000), 7, "ok")));
	assert_list(msg, "states", "4:ended 5:ended 6:queued");
	json_decref(msg);
	wait_ran(6);
	assert_ran("1 2 4 7 5 6 ");
}

static void older_words(void **state)
{
	struct agent_client newer;
	json_t *msg = lane_message("n1:0", 5,
		json_pack("[o, o]", entry(1, UNTIL("go"), 0, 1000), entry(2, "", 0, 1000)));

	json_decref(ask(msg, "lane"));
	wait_started(1);
	for (int generation = 4; generation <= 5; generation++) {
		msg = put_lane("n1:0", generation, json_pack("[o]", entry(3, "", 0, 1000)));
		assert_int_equal(json_integer_value(json_object_get(msg, "generation")), 5);
		assert_list(msg, "gone", "");
		assert_int_equal(json_array_size(json_object_get(msg, "states")), 2);
		json_decref(msg);
	}
	/* A word that was sent again is told what became of those that it left out before. */
	msg = lane_message("n1:0", 5, json_array());
	json_object_set_new(msg, "want", json_pack("[[i, i], [i, i]]", 3, 1, 2, 1));
	msg = ask(msg, "lane");
	assert_list(msg, "gone", "3:none");
	json_decref(msg);
	/* Of a controller that was replaced nothing is heard. */
	agent_client_connect(&newer, &t);
	assert_true(agent_client_hello(&newer, QUEUE, 1, ++epoch, 1));
	agent_client_send(&c, lane_message("n1:0", 6, json_pack("[o]", entry(3, "", 0, 1000))));
	assert_true(agent_client_is_closed(&c, 10000));
	agent_client_close(&c);
	c = newer;
	msg = observe(NULL);
	assert_int_equal(
		json_integer_value(json_object_get(lane_in(msg, "n1:0"), "generation")), 5);
	json_decref(msg);
	/* A store that went back in time counts anew. */
	agent_client_close(&c);
	agent_client_connect(&c, &t);
	assert_true(agent_client_hello(&c, QUEUE, 2, 1, 1));
	msg = put_lane("n1:0", 1, json_pack("[o]", entry(4, "", 0, 1000)));
	assert_list(msg, "gone", "1:started 2:none");
	json_decref(msg);
	put("go", "");
	wait_ran(2);
	assert_ran("1 4 ");
}

/*
 * The hello of a newer controller closes the older one's link, and what was read of it already is dropped. Were that ever
 * otherwise, the word itself would still be measured: by its fence first, then by its generation.
 */
static void words_by_themselves(void **state)
{
	static const struct {
		struct fence fence;
		int generation;
		const char *op;
		int stored; /* what the lane is at afterwards */
	} rows[] = {
		{{{1, 2, 1}}, 5, "lane", 5},
		{{{1, 1, 9}}, 6, "stale", 5}, /* another lease's */
		{{{1, 2, 0}}, 6, "stale", 5}, /* an older link's */
		{{{0, 9, 9}}, 6, "stale", 5}, /* of a store before it was restored */
		{{{1, 2, 1}}, 5, "lane", 5},
		{{{1, 2, 1}}, 4, "lane", 5},
		{{{1, 2, 1}}, 6, "lane", 6},
	};
	const struct agent_options options = {.idle_ms = 20000, .promise_dir = t.promise};
	static struct agent a;
	struct client x = {.id = 1, .fd = -1};
	char root[320];
	struct err e = {0};

	in_dir("root2", root);
	assert_int_equal(agent_init(&a, root, &options, &e), 0);
	memcpy(x.queue, QUEUE, ID_LEN);
	assert_int_equal(fences_raise(&a.fences, QUEUE, &rows[0].fence, &e), 0);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		CLEANUP(wire_frame_done) struct wire_frame f = {0};
		json_t *msg = lane_message("n1:0", rows[i].generation, json_array());

		x.fence = rows[i].fence;
		json_object_set_new(msg, "root_id", json_string(a.root.id));
		assert_int_equal(lane_command(&a, &x, msg, &e), 0);
		json_decref(msg);
		assert_int_equal(wire_get(&x.out, &f, &e), 1);
		assert_string_equal(text(f.msg, "op"), rows[i].op);
		assert_int_equal(lanes_find(&a, QUEUE, "n1:0")->generation, rows[i].stored);
	}
	buf_done(&x.in);
	buf_done(&x.out);
	buf_done(&x.sample);
	agent_done(&a);
}

static void lacking(void **state)
{
	json_t *msg;

	go_lane("n1:0", 1,
		json_pack("[o, o]", entry(1, UNTIL("go"), 0, 1000), entry(2, "", 0, 1000)));
	wait_started(1);
	msg = ask(lane_message("n1:0", 2,
			  json_pack("[o, o, o, o]", known(1), known(3), entry_with_dir(4, NULL),
				  known(2))),
		"lane-lacks");
	assert_int_equal(json_array_size(json_object_get(msg, "jobs")), 2);
	assert_int_equal(json_integer_value(json_array_get(
				 json_array_get(json_object_get(msg, "jobs"), 1), 0)),
		4);
	json_decref(msg);
	/* Nothing was stored. */
	msg = observe(NULL);
	assert_queued(lane_in(msg, "n1:0"), "2");
	json_decref(msg);
	/* Sent ahead, it's the lane's from the answer on, whatever becomes of the stage. */
	agent_client_send(&c, json_pack("{s:s, s:i, s:s, s:i}", "op", "stage", "id", 77, "token",
				      "00000000000000000000000000000004", "size", 22));
	agent_client_send_bulk(&c, 77, "echo 4 >>$HOME/../ran\n", 22);
	json_decref(agent_client_expect(&c, "staged", 0));
	msg = put_lane("n1:0", 2,
		json_pack("[o, o, o, o]", known(1), entry(3, "", 0, 1000), entry_with_dir(4, NULL),
			known(2)));
	json_decref(msg);
	assert_false(is_there("root/new/00000000000000000000000000000004/body"));
	restart(NULL);
	put("go", "");
	wait_ran(4);
	assert_ran("1 3 4 2 ");
}

/* 1,000 entries of 16 KiB each, in messages below 1 MiB; then only their names, the other way round. */
static void as_large_as_it_gets(void **state)
{
	CLEANUP_FREE char *body = xcalloc(1, 16 * 1024 + 1);
	json_t *entries = json_array(), *msg;
	int64_t id = last_id + 1;
	int part = 0;

	memset(body, '#', 16 * 1024);
	for (int i = 1; i <= 1000; i++) {
		json_array_append_new(entries, entry_with_dir(i, body));
		if (i % 50 && i != 1000)
			continue;
		msg = lane_message("n1:0", 1, entries);
		entries = json_array();
		json_object_set_new(msg, "id", json_integer(id));
		json_object_set_new(msg, "part", json_integer(part++));
		json_object_set_new(msg, "order", order_of(i == 1000 ? 1000 : 0));
		json_object_set_new(msg, "paused", json_true());
		json_object_set_new(msg, "more", json_boolean(i != 1000));
		agent_client_send(&c, msg);
	}
	json_decref(entries);
	last_id = id;
	msg = agent_client_expect(&c, "lane", 0);
	assert_int_equal(json_array_size(json_object_get(msg, "states")), 1000);
	json_decref(msg);
	restart(NULL);
	entries = json_array();
	for (int i = 1000; i >= 1; i--)
		json_array_append_new(entries, known(i));
	msg = lane_message("n1:0", 2, json_deep_copy(entries));
	json_object_set_new(msg, "paused", json_true());
	msg = ask(msg, "lane");
	assert_int_equal(json_integer_value(json_array_get(
				 json_array_get(json_object_get(msg, "states"), 999), 0)),
		1);
	json_decref(msg);
	json_array_append_new(entries, entry(1001, "", 0, 1000));
	msg = ask(lane_message("n1:0", 3, entries), "error");
	assert_non_null(strstr(text(msg, "text"), "1000"));
	json_decref(msg);
	msg = put_lane("n1:0", 3, json_pack("[o, o]", known(7), known(1000)));
	assert_int_equal(json_array_size(json_object_get(msg, "gone")), 998);
	json_decref(msg);
	json_decref(agent_client_expect(&c, "ended", 7));
	json_decref(agent_client_expect(&c, "ended", 1000));
}

/* A lane keeps max(running, next) of its card, against the pool; and the pool's jobs count against the lane. */
static void holds_room_for_the_next(void **state)
{
	struct sample s;
	json_t *msg;

	go_lane("n1:0", 1,
		json_pack("[o, o]", entry(1, UNTIL("go"), 0, 10000), entry(2, "", 0, 16000)));
	wait_ran(1);
	s = take_sample();
	assert_non_null(s.lane_mib);
	assert_int_equal(s.lane_mib[0], 6000);
	assert_int_equal(s.lane_mib[1], 0);
	sample_done(&s);
	agent_client_launch(&c, entry(8, UNTIL("go8"), 0, 8065));
	msg = agent_client_expect(&c, "refused", 8);
	assert_string_equal(text(msg, "reason"), "memory");
	assert_int_equal(json_integer_value(json_object_get(msg, "free_mib")), CARD_MIB - 16000);
	json_decref(msg);
	agent_client_launch(&c, entry(9, UNTIL("go9"), 0, 8064));
	json_decref(agent_client_expect(&c, "started", 9));
	wait_ran(2);
	put("go", "");
	wait_ran(3);
	assert_ran("1 9 2 ");
	/* And now it holds nothing. */
	json_decref(agent_client_expect(&c, "ended", 2));
	s = take_sample();
	assert_true(!s.lane_mib || !s.lane_mib[0]);
	sample_done(&s);
	/* What the pool has is not the lane's: it waits, with figures, until that ends. */
	go_lane("n1:0", 2, json_pack("[o]", entry(3, "", 0, 20000)));
	msg = agent_client_expect(&c, "lane-waits", 3);
	assert_string_equal(text(msg, "reason"), "memory");
	assert_string_equal(text(msg, "name"), "n1:0");
	assert_int_equal(json_integer_value(json_object_get(msg, "need_mib")), 20512);
	json_decref(msg);
	wait_reason("n1:0", "memory");
	put("go9", "");
	wait_ran(4);
}

/* A whole card for the next one: nobody else comes onto it while it waits for it. */
/* The sample that lets the next one in was begun after the end of the one before it. */
static void sees_what_the_last_one_left(void **state)
{
	char script[1200], path[320];
	struct sample s;
	json_t *msg;

	in_dir("other", path);
	snprintf(script, sizeof(script),
		UNTIL("go") "; echo '{\"pid\": %d, \"usage\": {\"0\": 20000}}' >%s; mv %s %s/other.json",
		(int)getpid(), path, path, t.sim);
	go_lane("n1:0", 1, json_pack("[o, o]", entry(1, script, 0, 10000), entry(2, "", 0, 10000)));
	wait_ran(1);
	wait_reason("n1:0", "");
	/* A fresh one, from before the end. */
	s = take_sample();
	sample_done(&s);
	put("go", "");
	msg = agent_client_expect(&c, "lane-waits", 2);
	assert_string_equal(text(msg, "reason"), "memory");
	json_decref(msg);
	assert_ran("1 ");
	snprintf(path, sizeof(path), "%s/other.json", t.sim);
	assert_int_equal(unlink(path), 0);
	wait_ran(2);
}

static void holds_a_whole_card(void **state)
{
	json_t *msg;

	go_lane("n1:0", 1,
		json_pack("[o, o]", entry(1, UNTIL("go"), 0, 1000), entry(2, "", 0, -1)));
	wait_ran(1);
	agent_client_launch(&c, entry(8, "", 0, 100));
	msg = agent_client_expect(&c, "refused", 8);
	json_decref(msg);
	put("go", "");
	wait_ran(2);
	assert_ran("1 2 ");
}

/* Lanes that share a card neither pass its memory nor wait for each other for ever. */
static void lanes_that_share_a_card(void **state)
{
	json_t *one = json_array(), *both = json_array(), *cards;
	char uuid[GPU_UUID_LEN];

	sim_uuid(t.sim, 1, uuid);
	for (int i = 1; i <= 5; i++) {
		const char *alone = "mkdir alone || echo 99 >>ran; sleep 0.05; rmdir alone";

		json_array_append_new(one, entry(i, alone, 0, 14000));
		json_array_append_new(both, entry(10 + i, alone, 0, 14000));
		cards = json_object_get(json_array_get(both, (size_t)i - 1), "cards");
		json_array_append_new(
			cards, json_pack("{s:s, s:i}", "uuid", uuid, "declared_mib", 14000));
	}
	go_lane("n1:0", 1, one);
	go_lane("n1:0,1", 1, both);
	agent_client_close(&c);
	wait_ran(10);
	connect_again();
	assert_false(is_there("alone/x"));
	for (int i = 1; i <= 5; i++) {
		json_t *msg = observe(NULL);

		json_decref(msg);
	}
	{
		CLEANUP_FREE char *all = ran();

		assert_null(strstr(all, "99"));
	}
}

static void a_cpu_job_gets_no_card(void **state)
{
	json_t *msg, *claims;

	agent_client_launch(&c, entry(9, UNTIL("go"), 0, -1));
	json_decref(agent_client_expect(&c, "started", 9));
	go_lane("n1:0", 1, json_pack("[o]", entry(1, "", -1, 0)));
	wait_ran(2);
	msg = observe(NULL);
	claims = json_object_get(msg, "claims");
	for (size_t i = 0; i < json_array_size(claims); i++) {
		const json_t *o = json_array_get(claims, i);

		if (json_integer_value(json_object_get(o, "job")) == 1)
			assert_int_equal(json_array_size(json_object_get(o, "cards")), 0);
	}
	json_decref(msg);
	put("go", "");
}

/* Whoever takes it away does so beside the answer. */
static void wait_gone(const char *name)
{
	int64_t until = clock_boot_ms() + 20000;

	while (is_there(name) && clock_boot_ms() < until)
		poll(NULL, 0, 5);
	assert_false(is_there(name));
}

#define DIR_OF(n) "home/.gpustow/jobs/" QUEUE "/" #n ".1"
#define STAGE_OF_2 "root/new/00000000000000000000000000000002"
#define LOUD(n) "echo " #n " >>$HOME/../ran\n"

/* The next one lies ready while another runs; taken out, nothing of it is left. */
static void ready_before_its_turn(void **state)
{
	json_t *msg;

	go_lane("n1:0", 1,
		json_pack("[o, o, o]", entry_with_dir(1, LOUD(1) UNTIL("go")),
			entry_with_dir(2, LOUD(2)), entry_with_dir(3, LOUD(3))));
	wait_there(STAGE_OF_2 "/spec");
	assert_true(is_there(DIR_OF(2) "/run.sh"));
	assert_false(is_there(DIR_OF(3)));
	/* Its directory isn't one that's left over. */
	agent_client_send(&c, json_pack("{s:s, s:i, s:s, s:[s]}", "op", "remove", "id", 6, "root",
				      ".gpustow/jobs", "names", "2.1"));
	msg = agent_client_expect(&c, "removed", 0);
	assert_int_equal(json_integer_value(json_object_get(msg, "n")), 0);
	json_decref(msg);
	assert_true(is_there(DIR_OF(2) "/run.sh"));
	go_lane("n1:0", 2, json_pack("[o, o]", known(1), known(3)));
	assert_false(is_there(STAGE_OF_2));
	wait_gone(DIR_OF(2));
	/* An agent that dies with one ready: the next one makes it anew. */
	wait_there("root/new/00000000000000000000000000000003/spec");
	restart(NULL);
	wait_there(DIR_OF(3) "/run.sh");
	put("go", "");
	wait_ran(2);
	assert_ran("1 3 ");
	assert_true(is_there("root/claims/" QUEUE "/3.1/spec"));
}

static void read_children(pid_t pid, struct buf *ret)
{
	CLEANUP_FREE char *path = xasprintf("/proc/%d/task/%d/children", (int)pid, (int)pid);

	fd_read_file_at(AT_FDCWD, path, ret, 1 << 16);
}

/*
 * The agent's children that are called as shims are: how many, and the youngest. Each has its leader below it; a leader that
 * outlives its shim for a moment is called so, too, and is the agent's by then, but has nobody below it.
 */
static size_t count_shims(pid_t *ret_last)
{
	CLEANUP(buf_done) struct buf b = {0};
	size_t n = 0;

	read_children(t.pid, &b);
	for (const char *s = buf_str(&b); *s;) {
		char *end;
		pid_t pid = (pid_t)strtol(s, &end, 10);
		CLEANUP_FREE char *comm = xasprintf("/proc/%d/comm", (int)pid);
		CLEANUP(buf_done) struct buf name = {0}, below = {0};

		fd_read_file_at(AT_FDCWD, comm, &name, 64);
		read_children(pid, &below);
		if (below.len && !strcmp(buf_str(&name), "gpustow-shim\n")) {
			n++;
			*ret_last = pid;
		}
		s = *end ? end + 1 : end;
	}
	return n;
}

static void wait_shims(size_t n, pid_t *ret_last)
{
	int64_t until = clock_boot_ms() + 20000;
	size_t seen;

	while ((seen = count_shims(ret_last)) != n && clock_boot_ms() < until)
		poll(NULL, 0, 2);
	assert_int_equal(seen, n);
}

/* The shim that waits for the next one goes with it; and when it's killed, another one is made at the birth. */
static void its_shim_waits_too(void **state)
{
	pid_t first = 0, last = 0;

	go_lane("n1:0", 1,
		json_pack("[o, o, o]", entry(1, UNTIL("go"), 0, 1000), entry(2, "", 0, 1000),
			entry(3, "", 0, 1000)));
	wait_there(STAGE_OF_2 "/spec");
	wait_shims(2, &last);
	go_lane("n1:0", 2, json_pack("[o]", known(1)));
	wait_shims(1, &first);
	assert_int_not_equal(first, last);
	go_lane("n1:0", 3, json_pack("[o, o]", known(1), entry(3, "", 0, 1000)));
	wait_shims(2, &last);
	kill(last, SIGKILL);
	wait_shims(1, &first);
	put("go", "");
	wait_ran(2);
	assert_ran("1 3 ");
}

static json_t *under(json_t *msg, int margin_mib, int max_jobs)
{
	json_object_set_new(msg, "policy",
		json_pack("{s:i, s:i, s:f, s:b, s:b, s:i}", "margin_mib", margin_mib,
			"idle_threshold_mib", 200, "spike_buffer", 0.0, "high_water", 0,
			"exclusive", 0, "max_jobs_per_card", max_jobs));
	return msg;
}

/* What came with an entry counts no more than the lane's values do now; but whether it wants a card alone is its own. */
static void limits_that_change(void **state)
{
	json_t *msg, *alone = entry_with_dir(2, LOUD(2)), *file, *spec;
	char path[320];

	json_object_set_new(json_object_get(alone, "policy"), "exclusive", json_true());
	json_decref(ask(under(lane_message("n1:0", 1,
				      json_pack("[o, o, o]", entry_with_dir(1, LOUD(1) UNTIL("go")),
					      alone, entry(3, "", 0, 1000))),
				20000, 0),
		"lane"));
	wait_there(STAGE_OF_2 "/spec");
	wait_ran(1);
	agent_client_launch(&c, entry(8, UNTIL("go8"), 0, 1000));
	json_decref(agent_client_expect(&c, "started", 8));
	/* Made ready under the values of before, it isn't any more. */
	json_decref(ask(
		under(lane_message("n1:0", 2, json_pack("[o, o, o]", known(1), known(2), known(3))),
			23577, 0),
		"lane"));
	wait_there(STAGE_OF_2 "/spec");
	put("go8", "");
	json_decref(agent_client_expect(&c, "ended", 8));
	put("go", "");
	msg = agent_client_expect(&c, "lane-waits", 2);
	assert_string_equal(text(msg, "reason"), "memory");
	assert_int_equal(json_integer_value(json_object_get(msg, "need_mib")), 24577);
	json_decref(msg);
	restart(NULL);
	wait_reason("n1:0", "memory");
	msg = observe(NULL);
	assert_int_equal(json_integer_value(json_object_get(
				 json_object_get(lane_in(msg, "n1:0"), "policy"), "margin_mib")),
		23577);
	json_decref(msg);
	json_decref(
		ask(under(lane_message("n1:0", 3, json_pack("[o, o]", known(2), known(3))), 100, 7),
			"lane"));
	wait_ran(4);
	assert_ran("1 8 2 3 ");
	in_dir("root/claims/" QUEUE "/2.1/spec", path);
	file = json_load_file(path, JSON_DISABLE_EOF_CHECK, NULL);
	spec = json_object_get(file, "policy");
	assert_int_equal(json_integer_value(json_object_get(spec, "margin_mib")), 100);
	assert_int_equal(json_integer_value(json_object_get(spec, "max_jobs_per_card")), 7);
	assert_true(json_is_true(json_object_get(spec, "exclusive")));
	json_decref(file);
	/* Whoever says none: each as it came. */
	go_lane("n1:0", 4, json_pack("[o]", entry(4, "", 0, 24000)));
	wait_ran(5);
}

/* The next one lies ready, and may stand in line: what is said of it anew counts all the same. */
static void edited_while_it_waits(void **state)
{
	json_t *msg;

	go_lane("n1:0", 1,
		json_pack("[o, o]", entry_with_dir(1, LOUD(1) UNTIL("go")),
			entry_with_dir(2, LOUD(2))));
	wait_there(STAGE_OF_2 "/spec");
	go_lane("n1:0", 2, json_pack("[o, o]", known(1), entry_with_dir(2, LOUD(22))));
	put("go", "");
	wait_ran(2);
	assert_ran("1 22 ");
	/* Refused as it was said first, let in as it's said now. */
	agent_client_launch(&c, entry(9, UNTIL("go9"), 0, 20000));
	json_decref(agent_client_expect(&c, "started", 9));
	go_lane("n1:0", 3, json_pack("[o]", entry(3, "", 0, 10000)));
	wait_reason("n1:0", "memory");
	msg = put_lane("n1:0", 4, json_pack("[o]", entry(3, "", 0, 1000)));
	assert_list(msg, "states", "3:queued");
	assert_string_equal(text(msg, "waits"), "");
	json_decref(msg);
	wait_ran(4);
	put("go9", "");
}

/* To stop one that waits is to take it out, durably. */
static void stopped_while_it_waits(void **state)
{
	json_t *msg;

	go_lane("n1:0", 1,
		json_pack("[o, o, o]", entry(1, UNTIL("go"), 0, 1000), entry(2, "", 0, 1000),
			entry(3, "", 0, 1000)));
	wait_ran(1);
	wait_started(1);
	agent_client_send(&c, json_pack("{s:s, s:i, s:i, s:s, s:i}", "op", "stop", "job", 2,
				      "attempt", 1, "reason", "cancel", "grace_ms", 0));
	json_decref(agent_client_expect(&c, "none", 2));
	restart(NULL);
	msg = put_lane(
		"n1:0", 1, json_pack("[o, o, o]", known(1), entry(2, "", 0, 1000), known(3)));
	assert_list(msg, "states", "1:started 3:queued");
	json_decref(msg);
	put("go", "");
	wait_ran(2);
	assert_ran("1 3 ");
}

/* An entry whose name has a claim of another token never starts, and doesn't hold up the others. */
static void a_name_that_is_taken(void **state)
{
	json_t *other = entry(2, "", 1, 1000), *msg;

	json_object_set_new(other, "token", json_string(QUEUE));
	agent_client_launch(&c, other);
	json_decref(agent_client_expect(&c, "ended", 2));
	msg = put_lane(
		"n1:0", 1, json_pack("[o, o]", entry(2, "", 0, 1000), entry(3, "", 0, 1000)));
	assert_list(msg, "states", "2:conflict 3:queued");
	json_decref(msg);
	wait_ran(2);
	assert_ran("2 3 ");
}

static void a_damaged_file_starts_nothing(void **state)
{
	json_t *msg = lane_message("n1:0", 7, json_pack("[o]", entry(1, "", 0, 1000)));
	const char *name = "root/lanes/" QUEUE "-n1_0-";
	CLEANUP_FREE char *path = NULL;
	char lanes[320];
	DIR *d;

	json_object_set_new(msg, "paused", json_true());
	json_decref(ask(msg, "lane"));
	in_dir("root/lanes", lanes);
	d = opendir(lanes);
	assert_non_null(d);
	for (const struct dirent *x; (x = readdir(d));)
		if (!strncmp(x->d_name, strrchr(name, '/') + 1, 38))
			path = xasprintf("root/lanes/%s", x->d_name);
	closedir(d);
	assert_non_null(path);
	put(path, "{\"version\": 1}\n");
	restart(NULL);
	msg = observe(NULL);
	assert_null(lane_in(msg, "n1:0"));
	json_decref(msg);
	msg = ask(lane_message("n1:0", 8, json_pack("[o]", known(1))), "lane-lacks");
	json_decref(msg);
	go_lane("n1:0", 8, json_pack("[o]", entry(1, "", 0, 1000)));
	wait_ran(1);
}

/* Names that would be one file, were they only made safe. */
static void names_are_kept_apart(void **state)
{
	go_lane("n1:0", 1, json_pack("[o]", entry(1, "", 0, 1000)));
	go_lane("n1_0", 1, json_pack("[o]", entry(2, "", 0, 1000)));
	go_lane("../../n1/0", 1, json_pack("[o]", entry(3, "", 0, 1000)));
	wait_ran(3);
	restart(NULL);
	{
		json_t *msg = observe(NULL);

		assert_int_equal(json_array_size(json_object_get(msg, "lanes")), 3);
		json_decref(msg);
	}
}

/* It stays while one waits for room, with nobody connected, and goes when the lane is done. */
static void stays_for_its_lane(void **state)
{
	char usage[320], file[64];

	snprintf(usage, sizeof(usage), "{\"pid\": %d, \"usage\": {\"0\": 24000}}", (int)getpid());
	snprintf(file, sizeof(file), "sim/%d.json", (int)getpid());
	put(file, usage);
	go_lane("n1:0", 1, json_pack("[o]", entry(1, "", 0, 10000)));
	wait_reason("n1:0", "memory");
	agent_client_close(&c);
	test_agent_end(&t, SIGTERM);
	/* It has its lane from its first moment on: it needn't be reached within its patience. */
	t.idle_ms = 300;
	test_agent_start(&t);
	poll(NULL, 0, 1500);
	assert_int_equal(waitpid(t.pid, NULL, WNOHANG), 0);
	assert_int_equal(count_ran(), 0);
	in_dir(file, usage);
	unlink(usage);
	wait_ran(1);
	assert_int_equal(waitpid(t.pid, NULL, 0), t.pid);
	t.pid = 0;
	t.idle_ms = 0;
	start_agent();
}

static pid_t lock_holder(void)
{
	char path[160];
	pid_t pid = 0;
	int fd;

	snprintf(path, sizeof(path), "%s/agent.lock", t.root);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_int_equal(fd_lock_holder(fd, &pid), 0);
	close(fd);
	return pid;
}

/* No agent is there when a job ends: its shim starts one, and the lane goes on. */
static void goes_on_without_an_agent(void **state)
{
	pid_t pid;

	agent_client_close(&c);
	test_agent_end(&t, SIGTERM);
	t.agent_exe = "/proc/self/exe";
	start_agent();
	go_lane("n1:0", 1,
		json_pack("[o, o, o]", entry(1, UNTIL("go"), 0, 1000), entry(2, "", 0, 1000),
			entry(3, "", 0, 1000)));
	wait_ran(1);
	agent_client_close(&c);
	test_agent_end(&t, SIGKILL);
	put("go", "");
	wait_ran(3);
	assert_ran("1 2 3 ");
	t.pid = pid = lock_holder();
	assert_true(pid > 0);
	connect_again();
	agent_client_close(&c);
	/* Not this process's child yet, perhaps: then a shim's. */
	kill(pid, SIGTERM);
	for (int64_t until = clock_boot_ms() + 20000; lock_holder() == pid;) {
		assert_true(clock_boot_ms() < until);
		poll(NULL, 0, 2);
	}
	t.agent_exe = NULL;
	start_agent();
}

/* The agent is killed again and again, at no point in particular. */
static void killed_at_random(void **state)
{
	CLEANUP(buf_done) struct buf want = {0};
	json_t *entries = json_array();
	unsigned seed = (unsigned)clock_boot_ms();

	print_message("# seed %u\n", seed);
	for (int i = 1; i <= 40; i++) {
		char body[64];

		snprintf(body, sizeof(body), "echo %d >>$HOME/../ran; sleep 0.0%d\n", i, i % 5);
		json_array_append_new(entries, entry_with_dir(i, body));
		buf_printf(&want, "%d ", i);
	}
	go_lane("n1:0", 1, entries);
	for (int i = 0; i < 25; i++) {
		poll(NULL, 0, (int)(rand_r(&seed) % 120));
		restart(NULL);
	}
	wait_ran(40);
	assert_ran(buf_str(&want));
}

/* A name that two have is the first claim's, and so is its directory: what the lane made ready doesn't take it away. */
static void anothers_directory_stays(void **state)
{
	json_t *job = entry_with_dir(2, LOUD(20) UNTIL("go2")), *msg;

	go_lane("n1:0", 1,
		json_pack("[o, o]", entry_with_dir(1, LOUD(1) UNTIL("go")),
			entry_with_dir(2, LOUD(2))));
	wait_there(STAGE_OF_2 "/spec");
	json_object_del(job, "needs");
	json_object_set_new(job, "token", json_string("000000000000000000000000000000ff"));
	json_object_set_new(job, "cards", json_array());
	agent_client_launch(&c, job);
	json_decref(agent_client_expect(&c, "claimed", 2));
	wait_ran(2);
	put("go", "");
	json_decref(agent_client_expect(&c, "ended", 1));
	msg = observe(NULL);
	assert_queued(lane_in(msg, "n1:0"), "");
	json_decref(msg);
	/* Whoever was to take it away has had his turn once another one is made and gone. */
	go_lane("n1:0", 2, json_pack("[o]", entry_with_dir(3, LOUD(3))));
	wait_ran(3);
	assert_true(is_there(DIR_OF(2) "/stdout.log"));
	put("go2", "");
	json_decref(agent_client_expect(&c, "ended", 2));
	assert_ran("1 20 3 ");
}

#ifdef GPUSTOW_FAULT_POINTS
/* Taken out while its directory is being made: it never starts, and nothing of it is left. */
static void taken_out_while_it_is_made(void **state)
{
	json_t *msg;
	pid_t pid;

	restart("jobdir.before-run-sh:stop");
	go_lane("n1:0", 1, json_pack("[o]", entry_with_dir(1, LOUD(1))));
	pid = test_agent_stopped_child(&t, "gpustow-disk");
	agent_client_send(&c, json_pack("{s:s, s:i, s:i, s:s, s:i}", "op", "stop", "job", 1,
				      "attempt", 1, "reason", "cancel", "grace_ms", 0));
	json_decref(agent_client_expect(&c, "none", 1));
	kill(pid, SIGCONT);
	wait_gone(DIR_OF(1));
	msg = observe(NULL);
	assert_queued(lane_in(msg, "n1:0"), "");
	assert_int_equal(json_array_size(json_object_get(msg, "claims")), 0);
	json_decref(msg);
	assert_ran("");
}

/*
 * Wherever the agent dies, each entry runs once and in order. The controller comes back and says its word again, as it
 * does when it had no answer.
 */
static void killed_at_each_point(void **state)
{
	static const char *const faults[] = {
		"agent.before-lane-stored:kill",
		"agent.after-lane-stored:kill",
		"agent.before-lane-start:kill",
		"agent.before-lane-start:kill#3",
		"agent.after-lane-claim:kill",
		"agent.after-lane-claim:kill#3",
		"agent.after-claim-before-fork:kill#2",
		"agent.before-ended-report:kill#2",
		"jobdir.after-sync:kill#3",
		"claim.before-sync:kill#2",
		"claim.between-sync-and-rename:kill#2",
		"claim.after-rename:kill#2",
	};

	for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
		json_t *entries = json_array(), *msg;

		print_message("# %s\n", faults[i]);
		restart(faults[i]);
		for (int k = 1; k <= 4; k++) {
			char body[64];

			snprintf(body, sizeof(body), "echo %d >>$HOME/../ran; sleep 0.1\n", k);
			json_array_append_new(entries, entry_with_dir(k, body));
		}
		agent_client_send(&c, lane_message("n1:0", 1, json_deep_copy(entries)));
		assert_true(agent_client_is_closed(&c, 20000));
		assert_int_equal(waitpid(t.pid, NULL, 0), t.pid);
		agent_client_close(&c);
		start_agent();
		msg = put_lane("n1:0", 1, entries);
		json_decref(msg);
		wait_ran(4);
		assert_ran("1 2 3 4 ");
		tear_down(NULL);
		set_up(NULL);
	}
}

/* The lane is as it was when it can't be written, and what was taken out of it isn't. */
static void full_disk(void **state)
{
	json_t *msg;

	restart("agent.before-lane-stored:enospc#2");
	go_lane("n1:0", 1,
		json_pack("[o, o]", entry(1, UNTIL("go"), 0, 1000), entry(2, "", 0, 1000)));
	wait_ran(1);
	wait_started(1);
	msg = ask(lane_message("n1:0", 2, json_pack("[o]", known(1))), "error");
	assert_non_null(strstr(text(msg, "text"), "No space left on device"));
	json_decref(msg);
	msg = observe(NULL);
	assert_queued(lane_in(msg, "n1:0"), "2");
	json_decref(msg);
	put("go", "");
	wait_ran(2);
}

/* A claim that can't be made: the entry waits, says why, and is tried again. */
static void no_room_for_a_claim(void **state)
{
	json_t *msg;

	restart("claim.between-sync-and-rename:enospc#2");
	go_lane("n1:0", 1,
		json_pack("[o, o]", entry_with_dir(1, LOUD(1) "sleep 0.3\n"),
			entry_with_dir(2, LOUD(2))));
	msg = agent_client_expect(&c, "lane-waits", 2);
	assert_string_equal(text(msg, "reason"), "disk");
	json_decref(msg);
	wait_ran(2);
	assert_ran("1 2 ");
}

/* Lines of other attempts, so many that those which ended long ago are shortened. */
static void fill_retired(int n)
{
	CLEANUP(buf_done) struct buf b = {0};
	CLEANUP_CLOSE int fd = -1;
	char path[512];

	snprintf(path, sizeof(path), "%s/retired", t.root);
	fd = open(path, O_WRONLY | O_APPEND);
	assert_true(fd >= 0);
	for (int i = 1; i <= n; i++)
		buf_printf(&b,
			"ffffffffffffffffffffffffffffffff/%d.1 %032x {\"how\":\"exit\",\"reason\":\"none\",\"code\":0,"
			"\"ended_wall_ms\":1000,\"text\":\"\"}\n",
			i, i);
	assert_int_equal(fd_write_all(fd, b.data, b.len), 0);
}

static void wait_retired(void)
{
	json_t *o = NULL;
	size_t n = 1;

	for (int64_t until = clock_boot_ms() + 20000; n && clock_boot_ms() < until;
		poll(NULL, 0, 20)) {
		json_decref(o);
		o = observe(NULL);
		n = json_array_size(json_object_get(o, "claims"));
	}
	json_decref(o);
	assert_int_equal(n, 0);
}

/* What keeps an entry that is over from starting again is its line, and that stays, shortened. */
static void over_for_good(void **state)
{
	char path[320];
	const json_t *was;
	json_t *msg;

	go_lane("n1:0", 1,
		json_pack("[o, o]", entry(1, ":", 0, 1000),
			needing(entry(2, ":", 0, 1000), 9, "ok")));
	wait_ran(1);
	json_decref(agent_client_expect(&c, "ended", 1));
	agent_client_send(&c, json_pack("{s:s, s:[[i, i]]}", "op", "ack", "jobs", 1, 1));
	wait_retired();
	fill_retired(25000);
	put("wall", "3000000000"); /* a month and some days */
	in_dir("wall", path);
	setenv("GPUSTOW_TEST_WALL_OFFSET", path, 1);
	for (int i = 0; i < 3; i++) {
		json_t *o;

		restart(NULL);
		o = observe(NULL);
		assert_queued(lane_in(o, "n1:0"), "2");
		json_decref(o);
	}
	unsetenv("GPUSTOW_TEST_WALL_OFFSET");
	assert_ran("1 ");
	/* Who was away all the time and has never heard of the answer asks, and launches. */
	msg = observe(json_pack("[[i, i]]", 1, 1));
	was = json_array_get(json_object_get(msg, "claims"), 0);
	assert_string_equal(text(was, "state"), "ended");
	assert_string_equal(text(json_object_get(was, "end"), "how"), "exit");
	assert_int_equal(
		json_integer_value(json_object_get(json_object_get(was, "end"), "ended_wall_ms")),
		0);
	json_decref(msg);
	agent_client_launch(&c, agent_client_job(&t, 1, "00000000000000000000000000000001",
					"echo 1 >>$HOME/../ran", -1, 0));
	json_decref(agent_client_expect(&c, "ended", 1));
	agent_client_launch(&c, agent_client_job(&t, 1, "00000000000000000000000000000077",
					"echo 1 >>$HOME/../ran", -1, 0));
	json_decref(agent_client_expect(&c, "conflict", 1));
	assert_ran("1 ");
	/* What waits is still whole. */
	go_lane("n1:0", 2, json_pack("[o, o]", entry(3, ":", 0, 1000), known(2)));
	wait_ran(2);
	assert_ran("1 3 ");
}
#endif

/* What a shim of these tests starts: an agent like theirs. */
static int serve(const char *root)
{
	const struct agent_options options = {.idle_ms = 20000};
	static struct agent a;
	struct err e = {0};
	int r = agent_init(&a, root, &options, &e);

	if (!r)
		r = agent_run(&a, &e);
	agent_done(&a);
	return r ? 1 : 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(keeps_order_without_a_client),
		TEST(half_a_document_is_none),
		TEST(bad_words_change_nothing),
		TEST(reorder_and_take_out),
		TEST(paused),
		TEST(two_at_once),
		TEST(needs),
		TEST(older_words),
		TEST(words_by_themselves),
		TEST(lacking),
		TEST(as_large_as_it_gets),
		TEST(holds_room_for_the_next),
		TEST(holds_a_whole_card),
		TEST(lanes_that_share_a_card),
		TEST(a_cpu_job_gets_no_card),
		TEST(ready_before_its_turn),
		TEST(anothers_directory_stays),
#ifdef GPUSTOW_FAULT_POINTS
		TEST(taken_out_while_it_is_made),
#endif
		TEST(its_shim_waits_too),
		TEST(limits_that_change),
		TEST(sees_what_the_last_one_left),
		TEST(edited_while_it_waits),
		TEST(stopped_while_it_waits),
		TEST(a_name_that_is_taken),
		TEST(a_damaged_file_starts_nothing),
		TEST(names_are_kept_apart),
		TEST(stays_for_its_lane),
		TEST(goes_on_without_an_agent),
		TEST(killed_at_random),
#ifdef GPUSTOW_FAULT_POINTS
		TEST(killed_at_each_point),
		TEST(full_disk),
		TEST(no_room_for_a_claim),
		TEST(over_for_good),
#endif
	};

	if (argc == 3 && !strcmp(argv[1], "serve"))
		return serve(argv[2]);
	if (argc == 2)
		cmocka_set_test_filter(argv[1]);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
