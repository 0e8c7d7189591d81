/* Streams of a real agent over its socket: files out, bodies in, credit, and what they must not hold up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent_client.h"

#include "agent/claim.h"
#include "agent/client.h"
#include "agent/stage.h"
#include "base/clock.h"
#include "base/fd.h"
#include "core/wire.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define QUEUE "0123456789abcdef0123456789abcdef"
#define TOKEN "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define DEADLINE_MS 20000
#define MIB (1024 * 1024)

static struct test_agent t;
static struct agent_client c;
static int64_t epoch;

static int set_up(void **state)
{
	test_agent_init(&t, "1");
	test_agent_start(&t);
	agent_client_connect(&c, &t);
	assert_true(agent_client_hello(&c, QUEUE, 1, ++epoch, 1));
	c.gives_credit = true;
	return 0;
}

static int tear_down(void **state)
{
	agent_client_close(&c);
	test_agent_done(&t);
	return 0;
}

static char *path_of(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", t.dir, name);
	return path;
}

static void put(const char *name, int flags, const void *bytes, size_t n)
{
	int fd = open(path_of(name), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, bytes, n), 0);
	close(fd);
}

static void put_text(const char *name, int flags, const char *text)
{
	put(name, flags, text, strlen(text));
}

/* What lies at `new` takes that name. */
static void replace(const char *name)
{
	char from[256];

	snprintf(from, sizeof(from), "%s", path_of("new"));
	assert_int_equal(rename(from, path_of(name)), 0);
}

/* So many bytes of which each says where it stands. */
static char *pattern(size_t n)
{
	char *p = malloc(n + 1);

	for (size_t i = 0; i < n; i++)
		p[i] = (char)(i * 7 + (i >> 9) * 13);
	return p;
}

static void ask(int64_t id, const char *name, json_t *more)
{
	json_t *msg = json_pack("{s:s, s:I, s:s, s:s}", "op", "file", "id", (json_int_t)id, "dir",
		t.dir, "name", name);

	assert_int_equal(json_object_update(msg, more), 0);
	json_decref(more);
	agent_client_send(&c, msg);
}

static json_t *follow_of(int64_t job)
{
	return json_pack("{s:b, s:i, s:s, s:I, s:i}", "follow", 1, "offset", 0, "queue", QUEUE,
		"job", (json_int_t)job, "attempt", 1);
}

static int64_t number(const json_t *o, const char *key)
{
	assert_true(json_is_integer(json_object_get(o, key)));
	return json_integer_value(json_object_get(o, key));
}

static json_t *next(const char *op, int64_t id)
{
	json_t *msg = agent_client_next(&c, op, DEADLINE_MS);

	if (!msg) {
		char *there = json_dumps(c.kept, 0);

		print_message("# no %s; there are %.1000s\n", op, there);
		free(there);
	}
	assert_non_null(msg);
	assert_int_equal(number(msg, "id"), id);
	return msg;
}

static void expect_file(int64_t id, bool exists, int64_t offset, bool is_cut)
{
	json_t *msg = next("file", id);

	assert_int_equal(json_is_true(json_object_get(msg, "exists")), exists);
	assert_int_equal(number(msg, "offset"), offset);
	assert_int_equal(json_is_true(json_object_get(msg, "is_cut")), is_cut);
	json_decref(msg);
}

static void expect_over(int64_t id)
{
	json_decref(next("over", id));
}

static void expect_error(int64_t id, const char *words)
{
	json_t *msg = next("error", id);
	const char *text = json_string_value(json_object_get(msg, "text"));

	if (!strstr(text, words))
		print_message("# %s\n", text);
	assert_non_null(strstr(text, words));
	json_decref(msg);
}

static void expect_content(int64_t id, const void *bytes, size_t n)
{
	const struct buf *b;

	agent_client_expect_bytes(&c, (uint64_t)id, n);
	b = agent_client_stream(&c, (uint64_t)id);
	assert_int_equal(b->len, n);
	assert_true(!n || memcmp(b->data, bytes, n) == 0);
	buf_clear(agent_client_stream(&c, (uint64_t)id));
}

static void expect_text(int64_t id, const char *text)
{
	expect_content(id, text, strlen(text));
}

static void ping(void)
{
	json_t *pong;

	agent_client_send(&c, json_pack("{s:s}", "op", "ping"));
	pong = agent_client_next(&c, "pong", DEADLINE_MS);
	assert_non_null(pong);
	json_decref(pong);
}

static void start_job(int64_t job, const char *script)
{
	char token[ID_LEN];

	snprintf(token, sizeof(token), "%032llx", (unsigned long long)job);
	agent_client_launch(&c, agent_client_job(&t, job, token, script, -1, 0));
	json_decref(agent_client_expect(&c, "claimed", job));
}

/* ---- whole files, last lines, offsets ---- */

static void last_lines(void **state)
{
	put_text("stdout.log", 0, "one\ntwo\r\nthr\xff\nfour");
	ask(1, "stdout.log", json_pack("{s:i}", "lines", 2));
	expect_file(1, true, 9, true);
	expect_over(1);
	expect_text(1, "thr\xff\nfour");
	ask(2, "stdout.log", json_pack("{s:i}", "lines", 40));
	expect_file(2, true, 0, false);
	expect_over(2);
	expect_text(2, "one\ntwo\r\nthr\xff\nfour");
	ask(3, "stdout.log", json_pack("{s:i, s:i}", "lines", 40, "max", 10));
	expect_file(3, true, 9, true);
	expect_over(3);
	expect_text(3, "thr\xff\nfour");
}

static void empty_and_absent(void **state)
{
	put_text("status", 0, "");
	ask(1, "status", json_pack("{s:i}", "lines", 2));
	expect_file(1, true, 0, false);
	expect_over(1);
	ask(2, "result.json", json_object());
	expect_file(2, false, 0, false);
	expect_over(2);
	ping();
	expect_text(1, "");
	expect_text(2, "");
}

static void offsets(void **state)
{
	char *p = pattern(3 * MIB);

	put("stderr.log", 0, p, 3 * MIB);
	ask(1, "stderr.log", json_object());
	expect_file(1, true, 0, false);
	expect_over(1);
	expect_content(1, p, 3 * MIB);
	ask(2, "stderr.log", json_pack("{s:i, s:i}", "offset", 100, "max", 70000));
	expect_file(2, true, 100, false);
	expect_over(2);
	expect_content(2, p + 100, 70000);
	ask(3, "stderr.log", json_pack("{s:i}", "offset", 3 * MIB));
	expect_file(3, true, 3 * MIB, false);
	expect_over(3);
	expect_text(3, "");
	/* Further than it's long: it isn't the file that was known, so it begins anew. */
	ask(4, "stderr.log", json_pack("{s:i, s:i}", "offset", 3 * MIB + 1, "max", 10));
	expect_file(4, true, 0, false);
	expect_over(4);
	expect_content(4, p, 10);
	free(p);
}

/* One line without an end, longer than what may be under way. */
static void huge_line(void **state)
{
	char *p = malloc(5 * MIB);

	for (size_t i = 0; i < 5 * MIB; i++)
		p[i] = i % 6 == 5 ? '\r' : (char)('0' + i % 6);
	put("stdout.log", 0, p, 5 * MIB);
	ask(1, "stdout.log", json_pack("{s:i, s:i}", "lines", 25, "max", 2 * MIB));
	expect_file(1, true, 3 * MIB, true);
	expect_over(1);
	expect_content(1, p + 3 * MIB, 2 * MIB);
	free(p);
}

static void only_plain_files_of_this_account(void **state)
{
	assert_int_equal(symlink("/etc/passwd", path_of("stdout.log")), 0);
	ask(1, "stdout.log", json_object());
	expect_error(1, "symbolic link");
	assert_int_equal(mkfifo(path_of("stderr.log"), 0600), 0);
	ask(2, "stderr.log", json_pack("{s:b}", "follow", 1));
	expect_error(2, "not a plain file");
	assert_int_equal(mkdir(path_of("status"), 0700), 0);
	ask(3, "status", json_object());
	expect_error(3, "not a plain file");
	if (geteuid() == 0) {
		put_text("run.sh", 0, "secret");
		assert_int_equal(chown(path_of("run.sh"), 12345, 12345), 0);
		ask(4, "run.sh", json_object());
		expect_error(4, "uid 12345");
	}
	ask(5, "../etc", json_object());
	expect_error(5, "\"name\" must be");
	ask(6, "stdout.log", json_pack("{s:s}", "dir", "tmp"));
	expect_error(6, "absolute");
	ask(7, "stdout.log", json_pack("{s:i}", "max", 64 * MIB + 1));
	expect_error(7, "max");
	ask(8, "stdout.log", json_pack("{s:i}", "lines", -1));
	expect_error(8, "lines");
}

static void so_many_at_once(void **state)
{
	put_text("stdout.log", 0, "x");
	for (int64_t id = 0; id < 16; id++) {
		ask(id, "stdout.log", json_pack("{s:b}", "follow", 1));
		expect_file(id, true, 0, false);
	}
	ask(16, "stdout.log", json_object());
	expect_error(16, "close one");
	ask(3, "stdout.log", json_object());
	expect_error(3, "open already");
	agent_client_send(&c, json_pack("{s:s, s:i}", "op", "close", "id", 5));
	ask(16, "stdout.log", json_object());
	expect_file(16, true, 0, false);
	expect_over(16);
	/* One that was closed says nothing more, the others do. */
	put_text("stdout.log", O_APPEND, "y");
	expect_text(15, "xy");
	ping();
	expect_text(5, "x");
}

/* ---- following ---- */

static void grows_until_the_job_ends(void **state)
{
	start_job(1,
		"printf 'a\\n' >>stdout.log; until test -e go; do sleep 0.02; done; printf 'b\\n' "
		">>stdout.log; until test -e on; do sleep 0.02; done; printf last >>stdout.log");
	ask(9, "stdout.log", follow_of(1));
	agent_client_expect_bytes(&c, 9, 2);
	expect_text(9, "a\n");
	put_text("go", 0, "");
	expect_text(9, "b\n");
	put_text("on", 0, "");
	expect_over(9);
	expect_text(9, "last");
	/* Nothing more after that, and its number is free again. */
	put_text("stdout.log", O_APPEND, "after");
	ask(9, "stdout.log", json_pack("{s:i}", "lines", 1));
	expect_over(9);
	expect_text(9, "lastafter");
}

static void comes_into_being(void **state)
{
	json_t *want = follow_of(2);

	start_job(2, "until test -e go; do sleep 0.02; done; printf '1\\n2\\n3\\n' >stderr.log");
	json_object_del(want, "offset");
	json_object_set_new(want, "lines", json_integer(1));
	ask(1, "stderr.log", want);
	expect_file(1, false, 0, false);
	put_text("go", 0, "");
	/* All of it is new to who waited for it. */
	expect_file(1, true, 0, false);
	expect_over(1);
	expect_text(1, "1\n2\n3\n");
}

static void never_comes_into_being(void **state)
{
	start_job(3, "until test -e go; do sleep 0.02; done");
	ask(1, "result.json", follow_of(3));
	expect_file(1, false, 0, false);
	ping();
	put_text("go", 0, "");
	expect_over(1);
	/* There's no such claim. */
	ask(2, "result.json", follow_of(77));
	expect_file(2, false, 0, false);
	expect_over(2);
	put_text("status", 0, "step 1");
	ask(3, "status", follow_of(77));
	expect_file(3, true, 0, false);
	expect_over(3);
	expect_text(3, "step 1");
}

static void truncated(void **state)
{
	put_text("stdout.log", 0, "first, and longer\n");
	ask(1, "stdout.log", json_pack("{s:b, s:i}", "follow", 1, "lines", 5));
	expect_file(1, true, 0, false);
	expect_text(1, "first, and longer\n");
	put_text("stdout.log", O_TRUNC, "anew");
	expect_file(1, true, 0, false);
	expect_text(1, "anew");
	put_text("stdout.log", O_APPEND, "+");
	expect_text(1, "+");
}

static void replaced(void **state)
{
	put_text("status", 0, "step 1");
	ask(1, "status", json_pack("{s:b}", "follow", 1));
	expect_file(1, true, 0, false);
	expect_text(1, "step 1");
	for (char step = '2'; step < '5'; step++) {
		char text[] = "step ?";

		text[5] = step;
		put_text("new", 0, text);
		replace("status");
		expect_file(1, true, 0, false);
		expect_text(1, text);
	}
	put_text("status", O_APPEND, "!");
	expect_text(1, "!");
	/* Something that isn't read in its place changes nothing. */
	assert_int_equal(unlink(path_of("status")), 0);
	assert_int_equal(symlink("/etc/passwd", path_of("status")), 0);
	assert_false(agent_client_has_bytes(&c, 1, 1, 1500));
	assert_null(agent_client_next(&c, "error", 0));
}

/* What was written to the old file up to its replacement comes first. */
static void replaced_with_bytes_left(void **state)
{
	char *p = pattern(MIB);
	struct buf all = {0};

	c.gives_credit = false;
	put("stdout.log", 0, p, MIB);
	ask(1, "stdout.log", json_pack("{s:b}", "follow", 1));
	agent_client_expect_bytes(&c, 1, WIRE_CREDIT);
	put_text("new", 0, "other");
	replace("stdout.log");
	c.gives_credit = true;
	agent_client_send(
		&c, json_pack("{s:s, s:i, s:i}", "op", "credit", "id", 1, "n", WIRE_CREDIT));
	buf_put(&all, p, MIB);
	buf_puts(&all, "other");
	expect_content(1, all.data, all.len);
	buf_done(&all);
	free(p);
}

/* ---- credit ---- */

static void no_credit_no_bytes(void **state)
{
	char *p = pattern(2 * MIB);

	c.gives_credit = false;
	put("stdout.log", 0, p, 2 * MIB);
	ask(1, "stdout.log", json_object());
	agent_client_expect_bytes(&c, 1, WIRE_CREDIT);
	/* Other messages are answered meanwhile, and jobs start and end. */
	ping();
	start_job(4, "true");
	json_decref(agent_client_expect(&c, "ended", 4));
	assert_false(agent_client_has_bytes(&c, 1, WIRE_CREDIT + 1, 300));
	agent_client_send(&c, json_pack("{s:s, s:i, s:i}", "op", "credit", "id", 1, "n", 1000));
	agent_client_expect_bytes(&c, 1, WIRE_CREDIT + 1000);
	assert_false(agent_client_has_bytes(&c, 1, WIRE_CREDIT + 1001, 200));
	/* Credit for what was never sent widens nothing. */
	agent_client_send(
		&c, json_pack("{s:s, s:i, s:i}", "op", "credit", "id", 1, "n", 1000000000));
	agent_client_expect_bytes(&c, 1, 2 * WIRE_CREDIT + 1000);
	assert_false(agent_client_has_bytes(&c, 1, 2 * WIRE_CREDIT + 1001, 300));
	assert_int_equal(memcmp(agent_client_stream(&c, 1)->data, p, 2 * WIRE_CREDIT + 1000), 0);
	free(p);
}

static size_t of_all_streams(void)
{
	size_t n = 0;

	for (size_t i = 0; i < c.n_streams; i++)
		n += c.streams[i].bytes.len;
	return n;
}

/* The agent has had many turns when this returns. */
static void serve_another(void)
{
	struct agent_client other;

	agent_client_connect(&other, &t);
	assert_true(agent_client_hello(&other, NULL, 0, 0, 0));
	agent_client_send(&other, json_pack("{s:s, s:i}", "op", "watch", "interval_ms", 100));
	for (int i = 0; i < 3; i++) {
		json_t *sample = agent_client_next(&other, "sample", DEADLINE_MS);

		assert_non_null(sample);
		json_decref(sample);
	}
	agent_client_close(&other);
}

/* Sixteen windows are 4 MiB; what's said besides waits for none of them. */
static void answers_overtake_streams(void **state)
{
	char *p = pattern(MIB);
	size_t before;

	c.gives_credit = false;
	put("stdout.log", 0, p, MIB);
	for (int64_t id = 1; id <= 16; id++)
		ask(id, "stdout.log", json_object());
	/* Nothing is read here; the agent serves others. */
	serve_another();
	ping();
	before = of_all_streams();
	assert_true(before < 2 * MIB);
	/* All of it comes in the end. */
	for (int64_t id = 1; id <= 16; id++)
		agent_client_expect_bytes(&c, (uint64_t)id, WIRE_CREDIT);
	assert_int_equal(of_all_streams(), 16 * WIRE_CREDIT);
	free(p);
}

/* A sample goes before what streams have yet to send, also to a client that was slow. */
static void samples_come_through(void **state)
{
	char *p = pattern(MIB);
	json_t *sample;

	c.gives_credit = false;
	put("stdout.log", 0, p, MIB);
	for (int64_t id = 1; id <= 16; id++)
		ask(id, "stdout.log", json_object());
	serve_another();
	agent_client_send(&c, json_pack("{s:s, s:i}", "op", "watch", "interval_ms", 100));
	serve_another();
	sample = agent_client_next(&c, "sample", DEADLINE_MS);
	assert_non_null(sample);
	json_decref(sample);
	assert_true(of_all_streams() < 2 * MIB);
	free(p);
}

/* While a sample waits behind other bytes, no piece of a stream gets before it. */
static void waiting_sample_keeps_streams_back(void **state)
{
	struct client *one = NULL;
	json_t *empty = json_object();
	struct buf frame = {0};
	char *p = pattern(4 * MIB), *bytes = malloc(MIB);
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	assert_int_equal(client_new(fds[0], 1, 0, &one, NULL), 0);
	while (client_takes_bulk(one)) {
		client_send_bulk(one, 1, p, WIRE_BULK_MAX);
		assert_true(client_write(one));
	}
	assert_int_equal(wire_put_json(&frame, empty, NULL), 0);
	client_put_sample(one, NULL, 0, &frame);
	while (one->out.len - one->out_at >= 4096) {
		assert_true(read(fds[1], bytes, 4096) > 0);
		assert_true(client_write(one));
		assert_true(!one->sample.len || !client_takes_bulk(one));
	}
	while (one->sample.len) {
		assert_false(client_takes_bulk(one));
		assert_true(read(fds[1], bytes, MIB) > 0);
		assert_true(client_write(one));
	}
	assert_true(client_takes_bulk(one));
	client_free(one);
	json_decref(empty);
	close(fds[1]);
	buf_done(&frame);
	free(bytes);
	free(p);
}

/* ---- stage ---- */

static void stage(int64_t id, const char *token, int64_t size)
{
	agent_client_send(&c, json_pack("{s:s, s:I, s:s, s:I}", "op", "stage", "id", (json_int_t)id,
				      "token", token, "size", (json_int_t)size));
}

static void send_body(int64_t id, const char *p, size_t n)
{
	for (size_t at = 0, step; at < n; at += step) {
		step = n - at < WIRE_BULK_MAX ? n - at : WIRE_BULK_MAX;
		agent_client_send_bulk(&c, (uint64_t)id, p + at, step);
		json_decref(next("credit", id));
	}
}

static size_t in_new(const char *prefix)
{
	char path[128];
	DIR *d;
	struct dirent *entry;
	size_t n = 0;

	snprintf(path, sizeof(path), "%s/new", t.root);
	d = opendir(path);
	assert_non_null(d);
	while ((entry = readdir(d)))
		n += !strncmp(entry->d_name, prefix, strlen(prefix));
	closedir(d);
	return n;
}

/* 0 and the content, or -errno. */
static int try_read_root(const char *name, struct buf *b)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", t.root, name);
	buf_clear(b);
	return fd_read_file_at(AT_FDCWD, path, b, 16 * MIB);
}

static void read_root(const char *name, struct buf *b)
{
	assert_int_equal(try_read_root(name, b), 0);
}

static void body_is_staged(void **state)
{
	struct buf b = {0};
	char *p = pattern(MIB + 5);

	stage(7, TOKEN, MIB + 5);
	send_body(7, p, MIB);
	/* Not before it's whole. */
	ping();
	assert_null(agent_client_next(&c, "staged", 0));
	assert_int_equal(in_new("part-"), 1);
	assert_int_equal(in_new(TOKEN), 0);
	send_body(7, p + MIB, 5);
	json_decref(next("staged", 7));
	assert_int_equal(in_new("part-"), 0);
	read_root("new/" TOKEN "/body", &b);
	assert_int_equal(b.len, MIB + 5);
	assert_int_equal(memcmp(b.data, p, b.len), 0);
	/* Again, and shorter. */
	stage(8, TOKEN, 2);
	send_body(8, "ok", 2);
	json_decref(next("staged", 8));
	read_root("new/" TOKEN "/body", &b);
	assert_string_equal(buf_str(&b), "ok");
	stage(9, TOKEN, 0);
	json_decref(next("staged", 9));
	read_root("new/" TOKEN "/body", &b);
	assert_int_equal(b.len, 0);
	buf_done(&b);
	free(p);
}

static void stage_is_refused(void **state)
{
	char *p = pattern(100);

	stage(1, "../../../../tmp/aaaaaaaaaaaaaaaaaa", 5);
	expect_error(1, "token");
	stage(2, "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", 5);
	expect_error(2, "32 lower-case hex digits");
	stage(3, "aaaa", 5);
	expect_error(3, "32 lower-case hex digits");
	stage(4, TOKEN, STAGE_BODY_MAX + 1);
	expect_error(4, "8388608");
	stage(5, TOKEN, -1);
	expect_error(5, "size");
	/* More than was announced. */
	stage(6, TOKEN, 10);
	agent_client_send_bulk(&c, 6, p, 11);
	expect_error(6, "announced");
	/* What follows of it is nobody's. */
	agent_client_send_bulk(&c, 6, p, 11);
	agent_client_send_bulk(&c, 12345, p, 11);
	ping();
	assert_int_equal(in_new(""), 2); /* . and .. */
	/* Who doesn't command stages nothing. */
	agent_client_close(&c);
	agent_client_connect(&c, &t);
	assert_true(agent_client_hello(&c, NULL, 0, 0, 0));
	stage(7, TOKEN, 5);
	expect_error(7, "controller");
	assert_int_equal(in_new(""), 2);
	free(p);
}

static void unfinished_body_goes_with_its_link(void **state)
{
	int64_t until;

	stage(1, TOKEN, 100);
	send_body(1, "half", 4);
	assert_int_equal(in_new("part-"), 1);
	agent_client_close(&c);
	until = clock_boot_ms() + DEADLINE_MS;
	while (in_new("part-") && clock_boot_ms() < until)
		poll(NULL, 0, 10);
	assert_int_equal(in_new("part-"), 0);
	agent_client_connect(&c, &t);
	assert_true(agent_client_hello(&c, QUEUE, 1, ++epoch, 1));
}

/* The body goes into the claim with its stage, and no further: not into the claim that the next job is given. */
static void body_goes_with_its_claim(void **state)
{
	struct buf b = {0};
	int64_t until;

	stage(1, TOKEN, 4);
	send_body(1, "body", 4);
	json_decref(next("staged", 1));
	agent_client_launch(&c, agent_client_job(&t, 5, TOKEN, "true", -1, 0));
	json_decref(agent_client_expect(&c, "ended", 5));
	read_root("claims/" QUEUE "/5.1/body", &b);
	assert_string_equal(buf_str(&b), "body");
	agent_client_send(&c, json_pack("{s:s, s:[[i, i]]}", "op", "ack", "jobs", 5, 1));
	until = clock_boot_ms() + DEADLINE_MS;
	while (!try_read_root("claims/" QUEUE "/5.1/body", &b) && clock_boot_ms() < until)
		poll(NULL, 0, 10);
	start_job(6, "true");
	json_decref(agent_client_expect(&c, "ended", 6));
	read_root("claims/" QUEUE "/6.1/spec", &b);
	assert_int_equal(try_read_root("claims/" QUEUE "/6.1/body", &b), -ENOENT);
	buf_done(&b);
}

static void stage_is_swept(void **state)
{
	struct root r;

	stage(1, TOKEN, 4);
	send_body(1, "body", 4);
	json_decref(next("staged", 1));
	stage(2, TOKEN, 100);
	send_body(2, "half", 4);
	assert_int_equal(in_new(""), 4);
	root_init(&r);
	assert_int_equal(root_open(&r, t.root, NULL), 0);
	claim_sweep_stage(&r, clock_wall_ms() + 3500 * 1000);
	assert_int_equal(in_new(""), 4);
	claim_sweep_stage(&r, clock_wall_ms() + 3700 * 1000);
	assert_int_equal(in_new(""), 2);
	root_done(&r);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

/* A sample that replaces one that hadn't gone out has the figures that both build on, until they have gone out once. */
static void a_replaced_sample_keeps_its_figures(void **state)
{
	struct client *one = NULL;
	struct buf base = {0}, frame = {0};
	int fds[2];

	(void)state;
	buf_puts(&base, "base");
	buf_puts(&frame, "sample");
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	assert_int_equal(client_new(fds[0], 1, 0, &one, NULL), 0);
	for (int i = 0; i < 2; i++) {
		client_put_sample(one, &base, 7, &frame);
		assert_string_equal(buf_str(&one->sample), "basesample");
	}
	assert_true(client_write(one));
	client_put_sample(one, &base, 7, &frame);
	assert_string_equal(buf_str(&one->sample), "sample");
	/* Others to build on. */
	client_put_sample(one, &base, 8, &frame);
	assert_string_equal(buf_str(&one->sample), "basesample");
	client_put_sample(one, NULL, 8, &frame);
	assert_string_equal(buf_str(&one->sample), "sample");
	client_free(one);
	close(fds[1]);
	buf_done(&base);
	buf_done(&frame);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(last_lines),
		TEST(empty_and_absent),
		TEST(offsets),
		TEST(huge_line),
		TEST(only_plain_files_of_this_account),
		TEST(so_many_at_once),
		TEST(grows_until_the_job_ends),
		TEST(comes_into_being),
		TEST(never_comes_into_being),
		TEST(truncated),
		TEST(replaced),
		TEST(replaced_with_bytes_left),
		TEST(no_credit_no_bytes),
		TEST(answers_overtake_streams),
		TEST(samples_come_through),
		cmocka_unit_test(waiting_sample_keeps_streams_back),
		TEST(body_is_staged),
		TEST(stage_is_refused),
		TEST(unfinished_body_goes_with_its_link),
		TEST(body_goes_with_its_claim),
		TEST(stage_is_swept),
		cmocka_unit_test(a_replaced_sample_keeps_its_figures),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
