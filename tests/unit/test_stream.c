/* The client's side of streams, over a real link to a real agent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent_client.h"

#include "base/fd.h"
#include "fleet/node_file.h"
#include "fleet/stream.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define QUEUE "0123456789abcdef0123456789abcdef"
#define TOKEN "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define MIB (1024 * 1024)

static struct test_agent t;
static struct event_base *base;
static struct link *l;
static bool has_timed_out, is_down;
static char others[256]; /* ops that came to the link's owner */

struct got {
	struct stream *s;
	struct buf bytes;
	int64_t size, offset;
	int n_begun, n_over, n_failed;
	bool exists, is_cut;
	char why[256];
	size_t close_at; /* closes itself once so much has come; 0: never */
};

static void stop(void)
{
	event_base_loopbreak(base);
}

static void on_begun(void *arg, bool exists, int64_t size, int64_t offset, bool is_cut)
{
	struct got *g = arg;

	g->n_begun++;
	g->exists = exists;
	g->size = size;
	g->offset = offset;
	g->is_cut = is_cut;
	stop();
}

static void on_data(void *arg, const char *bytes, size_t n)
{
	struct got *g = arg;

	buf_put(&g->bytes, bytes, n);
	if (g->close_at && g->bytes.len >= g->close_at) {
		stream_close(g->s);
		g->close_at = 0;
	}
	stop();
}

static void on_over(void *arg)
{
	((struct got *)arg)->n_over++;
	stop();
}

static void on_failed(void *arg, const char *why)
{
	struct got *g = arg;

	g->n_failed++;
	snprintf(g->why, sizeof(g->why), "%s", why);
	/* The owner of the link hears of it afterwards. */
	assert_false(is_down);
	stop();
}

static struct stream_owner owner_of(struct got *g)
{
	return (struct stream_owner){
		.arg = g, .begun = on_begun, .data = on_data, .over = on_over, .failed = on_failed};
}

static void on_up(void *arg, const struct link_hello *hello)
{
	is_down = false;
	stop();
}

static void on_message(void *arg, const char *op, const json_t *msg)
{
	strncat(others, op, sizeof(others) - strlen(others) - 1);
	strncat(others, " ", sizeof(others) - strlen(others) - 1);
	stop();
}

static void on_down(void *arg, const char *why)
{
	is_down = true;
	stop();
}

static void on_time(evutil_socket_t fd, short what, void *arg)
{
	has_timed_out = true;
	stop();
}

#define WAIT_FOR(what) \
	do { \
		struct event *limit_ = evtimer_new(base, on_time, NULL); \
		evtimer_add(limit_, &(struct timeval){.tv_sec = 20}); \
		has_timed_out = false; \
		while (!(what) && !has_timed_out) \
			event_base_dispatch(base); \
		event_free(limit_); \
		assert_true(what); \
	} while (0)

static void connect_as(const char *queue)
{
	static int64_t epoch;
	const struct link_who who = {
		.who = "test", .queue = queue, .incarnation = 1, .epoch = (uint64_t)++epoch};
	const struct link_owner owner = {.up = on_up, .message = on_message, .down = on_down};

	l = link_new_local(base, &who, &owner);
	WAIT_FOR(link_is_up(l));
}

static int set_up(void **state)
{

	test_agent_init(&t, "1");
	setenv("GPUSTOW_AGENT_ROOT", t.root, 1);
	/* The root of simulated cards lies below the one that is set. */
	unsetenv("GPUSTOW_SIM");
	test_agent_start(&t);
	base = event_base_new();
	connect_as(QUEUE);
	others[0] = '\0';
	return 0;
}

static int tear_down(void **state)
{
	link_free(l);
	event_base_free(base);
	test_agent_done(&t);
	return 0;
}

static void put(const char *name, int flags, const char *bytes, size_t n)
{
	char path[160];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", t.dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);
	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, bytes, n), 0);
	close(fd);
}

static char *pattern(size_t n)
{
	char *p = malloc(n);

	for (size_t i = 0; i < n; i++)
		p[i] = (char)(i * 7 + (i >> 9) * 13);
	return p;
}

static void open_file(struct got *g, const char *name, int64_t offset, bool follow)
{
	const struct stream_owner o = owner_of(g);

	g->s = stream_open_file(l,
		&(struct stream_want){.dir = t.dir,
			.name = name,
			.lines = -1,
			.offset = offset,
			.follow = follow},
		&o);
	assert_non_null(g->s);
}

/* Far more than the window: the credit flows. Two at once don't mix. */
static void two_files_at_once(void **state)
{
	struct got a = {0}, b = {0};
	char *p = pattern(3 * MIB);

	put("stdout.log", 0, p, 3 * MIB);
	put("stderr.log", 0, p + 1, 2 * MIB);
	open_file(&a, "stdout.log", 0, false);
	open_file(&b, "stderr.log", 5, false);
	WAIT_FOR(a.n_over && b.n_over);
	assert_int_equal(a.bytes.len, 3 * MIB);
	assert_memory_equal(a.bytes.data, p, 3 * MIB);
	assert_int_equal(b.bytes.len, 2 * MIB - 5);
	assert_memory_equal(b.bytes.data, p + 6, 2 * MIB - 5);
	assert_int_equal(b.offset, 5);
	assert_int_equal(b.size, 2 * MIB);
	assert_int_equal(a.n_begun + b.n_begun, 2);
	assert_string_equal(others, "");
	buf_done(&a.bytes);
	buf_done(&b.bytes);
	free(p);
}

static void refusal_is_its_own(void **state)
{
	struct got a = {0}, b = {0};

	put("status", 0, "x", 1);
	open_file(&a, "secret", 0, false);
	open_file(&b, "status", 0, false);
	WAIT_FOR(a.n_failed && b.n_over);
	assert_non_null(strstr(a.why, "stdout.log"));
	assert_int_equal(a.n_over + b.n_failed, 0);
	assert_string_equal(others, "");
	buf_done(&b.bytes);
}

static void closed_from_within(void **state)
{
	struct got a = {.close_at = 100000}, b = {0};
	char *p = pattern(3 * MIB);
	size_t len;

	put("stdout.log", 0, p, 3 * MIB);
	open_file(&a, "stdout.log", 0, false);
	WAIT_FOR(a.bytes.len >= 100000);
	len = a.bytes.len;
	/* Whatever was on its way is dropped, and the link goes on. */
	open_file(&b, "stdout.log", 2 * MIB, false);
	WAIT_FOR(b.n_over);
	assert_int_equal(a.bytes.len, len);
	assert_int_equal(a.n_over + a.n_failed, 0);
	assert_int_equal(b.bytes.len, MIB);
	buf_done(&a.bytes);
	buf_done(&b.bytes);
	free(p);
}

/* A follower goes on at its offset on the next link. */
static void cut_and_reopened(void **state)
{
	struct got a = {0}, b = {0};

	put("stdout.log", 0, "one ", 4);
	open_file(&a, "stdout.log", 0, true);
	WAIT_FOR(a.bytes.len == 4);
	test_agent_end(&t, SIGKILL);
	WAIT_FOR(is_down);
	assert_int_equal(a.n_failed, 1);
	assert_true(a.why[0]);
	put("stdout.log", O_APPEND, "two", 3);
	test_agent_start(&t);
	WAIT_FOR(link_is_up(l));
	open_file(&b, "stdout.log", 4, true);
	WAIT_FOR(b.bytes.len == 3);
	assert_string_equal(buf_str(&b.bytes), "two");
	assert_int_equal(b.offset, 4);
	stream_close(b.s);
	buf_done(&a.bytes);
	buf_done(&b.bytes);
}

static void staged(void **state)
{
	struct got a = {0}, b = {0};
	struct stream_owner o = owner_of(&a);
	char *p = pattern(STREAM_STAGE_MAX + 1), path[256];
	struct buf there = {0};

	assert_null(stream_stage(l, TOKEN, p, STREAM_STAGE_MAX + 1, &o));
	a.s = stream_stage(l, TOKEN, p, STREAM_STAGE_MAX, &o);
	WAIT_FOR(a.n_over || a.n_failed);
	assert_string_equal(a.why, "");
	snprintf(path, sizeof(path), "%s/new/" TOKEN "/body", t.root);
	assert_int_equal(fd_read_file_at(AT_FDCWD, path, &there, STREAM_STAGE_MAX), 0);
	assert_int_equal(there.len, STREAM_STAGE_MAX);
	assert_memory_equal(there.data, p, STREAM_STAGE_MAX);
	/* A link without a fence. */
	link_free(l);
	connect_as(NULL);
	o = owner_of(&b);
	b.s = stream_stage(l, TOKEN, p, STREAM_STAGE_MAX, &o);
	WAIT_FOR(b.n_over || b.n_failed);
	assert_non_null(strstr(b.why, "controller"));
	buf_done(&there);
	free(p);
}

static void freed_without_a_word(void **state)
{
	struct got a = {0};

	put("stdout.log", 0, "x", 1);
	open_file(&a, "stdout.log", 0, true);
	WAIT_FOR(a.bytes.len);
	link_free(l);
	assert_int_equal(a.n_over + a.n_failed, 0);
	connect_as(NULL);
	/* Nothing can be opened before a link is up. */
	link_free(l);
	l = link_new_local(base, &(struct link_who){.who = "test"},
		&(struct link_owner){.up = on_up, .message = on_message, .down = on_down});
	assert_null(stream_open_file(l,
		&(struct stream_want){.dir = t.dir, .name = "status", .lines = -1},
		&(struct stream_owner){.arg = NULL}));
	buf_done(&a.bytes);
}

/* Whoever waited in connect() for somebody who takes up nothing would wait for ever, and all his other links with him. */
static void nobody_takes_it_up(void **state)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int first = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	char root[80];

	link_free(l);
	snprintf(root, sizeof(root), "%.64s/full", t.dir);
	assert_int_equal(mkdir(root, 0700), 0);
	setenv("GPUSTOW_AGENT_ROOT", root, 1);
	snprintf(a.sun_path, sizeof(a.sun_path), "%s/agent.sock", root);
	assert_int_equal(bind(listener, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(listener, 0), 0);
	assert_int_equal(connect(first, (struct sockaddr *)&a, sizeof(a)), 0);
	is_down = false;
	l = link_new_local(base, &(struct link_who){.who = "test"},
		&(struct link_owner){.up = on_up, .message = on_message, .down = on_down});
	WAIT_FOR(is_down);
	assert_false(link_is_up(l));
	close(first);
	close(listener);
}

/* ---- node_file ---- */

static int take(void *arg, const char *bytes, size_t n)
{
	buf_put(arg, bytes, n);
	return ((struct buf *)arg)->len > 3 * MIB ? -EPIPE : 0;
}

static void fetched(void **state)
{
	struct buf got = {0};
	const struct node_file_sink sink = {.arg = &got, .data = take};
	struct stream_want want = {.dir = t.dir, .name = "stdout.log", .lines = -1};
	struct err e = {0};
	char *p = pattern(4 * MIB);

	put("stdout.log", 0, p, 3 * MIB);
	assert_int_equal(node_file_fetch(NULL, NULL, &want, &sink, 20000, &e), 0);
	assert_int_equal(got.len, 3 * MIB);
	assert_memory_equal(got.data, p, 3 * MIB);
	buf_clear(&got);
	/* The sink's no. */
	put("stdout.log", 0, p, 4 * MIB);
	assert_int_equal(node_file_fetch(NULL, NULL, &want, &sink, 20000, &e), -EPIPE);
	want.name = "secret";
	assert_int_equal(node_file_fetch(NULL, NULL, &want, &sink, 20000, &e), -EIO);
	assert_non_null(strstr(e.text, "stdout.log"));
	buf_done(&got);
	free(p);
}

/* What the link's owner asks under numbers of its own is answered to it, below the streams' numbers and above them. */
static void refusal_of_the_owners_message(void **state)
{
	struct got a = {0};

	put("stdout.log", 0, "x", 1);
	open_file(&a, "stdout.log", 0, false);
	WAIT_FOR(a.n_over);
	link_send(l, json_pack("{s:s, s:I}", "op", "lane", "id", (json_int_t)1 << 40));
	WAIT_FOR(!strcmp(others, "error "));
	link_send(l, json_pack("{s:s, s:i}", "op", "lane", "id", 7));
	WAIT_FOR(!strcmp(others, "error error "));
	assert_int_equal(a.n_failed, 0);
	buf_done(&a.bytes);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(two_files_at_once),
		TEST(refusal_is_its_own),
		TEST(refusal_of_the_owners_message),
		TEST(closed_from_within),
		TEST(cut_and_reopened),
		TEST(staged),
		TEST(freed_without_a_word),
		TEST(nobody_takes_it_up),
		TEST(fetched),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
