/* The tests' agent and client (agent_client.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent_client.h"

#include "agent/server.h"
#include "base/clock.h"
#include "base/fd.h"
#include "core/wire.h"
#include "gpu/sim_spec.h"
#include "proc/proc.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEADLINE_MS 20000 /* a failed test, not a measure of speed */

void test_agent_init(struct test_agent *t, const char *cards)
{
	*t = (struct test_agent){0};
	snprintf(t->dir, sizeof(t->dir), "/tmp/gpustow-test-XXXXXX");
	assert_non_null(mkdtemp(t->dir));
	snprintf(t->root, sizeof(t->root), "%s/root", t->dir);
	snprintf(t->sim, sizeof(t->sim), "%s/sim", t->dir);
	snprintf(t->promise, sizeof(t->promise), "%s/promise", t->dir);
	assert_int_equal(mkdir(t->sim, 0700), 0);
	assert_int_equal(mkdir(t->promise, 0700), 0);
	assert_int_equal(chmod(t->promise, 01777), 0);
	assert_int_equal(chmod(t->dir, 0711), 0);
	setenv("GPUSTOW_SIM", cards, 1);
	setenv("GPUSTOW_SIM_DIR", t->sim, 1);
	setenv("GPUSTOW_PROMISE_DIR", t->promise, 1);
}

static void serve(const struct test_agent *t)
{
	const struct agent_options options = {
		.idle_ms = t->idle_ms ? t->idle_ms : 60000,
		.open_gpu = t->open_gpu,
		.agent_exe = t->agent_exe,
	};
	static struct agent a;
	struct err e = {0};
	int r;

	setpgid(0, 0);
	r = agent_init(&a, t->root, &options, &e);
	if (!r)
		r = agent_run(&a, &e);
	if (r)
		fprintf(stderr, "# the agent: %d %s\n", r, e.text);
	agent_done(&a);
	_exit(r ? 1 : 0);
}

/*
 * A process that a killed agent has just forked keeps the old socket open until it has closed all it doesn't need: for
 * that moment there's somebody to connect to who'll never answer. Only whoever bound the socket counts.
 */
static int try_connect(const struct test_agent *t)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct ucred peer;
	socklen_t n = sizeof(peer);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/agent.sock", t->root);
	if (!connect(fd, (struct sockaddr *)&sa, sizeof(sa)) &&
		!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) && peer.pid == t->pid)
		return fd;
	close(fd);
	return -1;
}

static int connect_within(const struct test_agent *t, int64_t ms)
{
	int64_t until = clock_boot_ms() + ms;
	int fd;

	while ((fd = try_connect(t)) < 0 && clock_boot_ms() < until)
		poll(NULL, 0, 5);
	return fd;
}

void test_agent_start(struct test_agent *t)
{
	int fd;

	t->pid = fork();
	assert_true(t->pid >= 0);
	if (!t->pid)
		serve(t);
	fd = connect_within(t, DEADLINE_MS);
	assert_true(fd >= 0);
	close(fd);
}

int test_agent_end(struct test_agent *t, int sig)
{
	int status = 0;

	kill(t->pid, sig);
	assert_int_equal(waitpid(t->pid, &status, 0), t->pid);
	t->pid = 0;
	return status;
}

void test_agent_done(struct test_agent *t)
{
	if (t->pid)
		test_agent_end(t, SIGTERM);
	fd_remove_tree_at(AT_FDCWD, t->dir);
}

void agent_client_connect(struct agent_client *c, const struct test_agent *t)
{
	*c = (struct agent_client){.fd = connect_within(t, DEADLINE_MS), .kept = json_array()};
	assert_true(c->fd >= 0);
}

void agent_client_close(struct agent_client *c)
{
	close(c->fd);
	buf_done(&c->in);
	for (size_t i = 0; i < c->n_streams; i++)
		buf_done(&c->streams[i].bytes);
	json_decref(c->kept);
	*c = (struct agent_client){.fd = -1};
}

static void send_all(struct agent_client *c, const struct buf *b)
{
	/* A link that the agent has closed shows in what can be read. */
	for (size_t at = 0; at < b->len;) {
		ssize_t n = send(c->fd, b->data + at, b->len - at, MSG_NOSIGNAL);

		if (n < 0)
			break;
		at += (size_t)n;
	}
}

void agent_client_send(struct agent_client *c, json_t *msg)
{
	struct buf b = {0};

	assert_non_null(msg);
	assert_int_equal(wire_put_json(&b, msg, NULL), 0);
	send_all(c, &b);
	buf_done(&b);
	json_decref(msg);
}

void agent_client_send_bulk(struct agent_client *c, uint64_t stream, const void *bytes, size_t n)
{
	struct buf b = {0};

	assert_int_equal(wire_put_bulk(&b, stream, bytes, n, NULL), 0);
	send_all(c, &b);
	buf_done(&b);
}

struct buf *agent_client_stream(struct agent_client *c, uint64_t id)
{
	for (size_t i = 0; i < c->n_streams; i++)
		if (c->streams[i].id == id)
			return &c->streams[i].bytes;
	assert_true(c->n_streams < AGENT_CLIENT_STREAMS);
	c->streams[c->n_streams].id = id;
	return &c->streams[c->n_streams++].bytes;
}

static void take_bulk(struct agent_client *c, const struct wire_frame *f)
{
	struct buf *b = agent_client_stream(c, f->stream);

	buf_put(b, f->bytes.data, f->bytes.len);
	if (c->gives_credit)
		agent_client_send(c, json_pack("{s:s, s:I, s:I}", "op", "credit", "id",
					     (json_int_t)f->stream, "n", (json_int_t)f->bytes.len));
}

/* Reads what comes within ms into `kept`; false when nothing did. */
static bool fill(struct agent_client *c, int ms)
{
	struct pollfd p = {.fd = c->fd, .events = POLLIN};
	struct wire_frame f = {0};
	char bytes[65536];
	ssize_t n;
	int r;

	if (c->has_end || poll(&p, 1, ms) <= 0)
		return false;
	n = recv(c->fd, bytes, sizeof(bytes), 0);
	if (n <= 0) {
		c->has_end = true;
		return false;
	}
	buf_put(&c->in, bytes, (size_t)n);
	while ((r = wire_get(&c->in, &f, NULL)) > 0)
		if (f.kind == WIRE_BULK)
			take_bulk(c, &f);
		else
			json_array_append_new(c->kept, f.msg);
	f.msg = NULL;
	wire_frame_done(&f);
	assert_int_equal(r, 0);
	return true;
}

bool agent_client_has_bytes(struct agent_client *c, uint64_t id, size_t n, int ms)
{
	int64_t until = clock_boot_ms() + ms, left;

	while (agent_client_stream(c, id)->len < n && (left = until - clock_boot_ms()) > 0 &&
		!c->has_end)
		fill(c, (int)left);
	return agent_client_stream(c, id)->len >= n;
}

void agent_client_expect_bytes(struct agent_client *c, uint64_t id, size_t n)
{
	if (!agent_client_has_bytes(c, id, n, DEADLINE_MS))
		print_message("# %zu bytes of stream %llu came, not %zu\n",
			agent_client_stream(c, id)->len, (unsigned long long)id, n);
	assert_int_equal(agent_client_stream(c, id)->len, n);
}

static json_t *take_kept(struct agent_client *c, const char *op, int64_t job)
{
	for (size_t i = 0; i < json_array_size(c->kept); i++) {
		json_t *msg = json_array_get(c->kept, i);
		const char *its = json_string_value(json_object_get(msg, "op"));

		if (!its || strcmp(its, op) != 0 ||
			(job && json_integer_value(json_object_get(msg, "job")) != job))
			continue;
		json_incref(msg);
		json_array_remove(c->kept, i);
		return msg;
	}
	return NULL;
}

static json_t *wait_for(struct agent_client *c, const char *op, int64_t job, int ms)
{
	int64_t until = clock_boot_ms() + ms, left;
	json_t *msg;

	while (!(msg = take_kept(c, op, job))) {
		left = until - clock_boot_ms();
		if (left <= 0 || c->has_end)
			return NULL;
		fill(c, (int)left);
	}
	return msg;
}

json_t *agent_client_next(struct agent_client *c, const char *op, int ms)
{
	return wait_for(c, op, 0, ms);
}

json_t *agent_client_expect(struct agent_client *c, const char *op, int64_t job)
{
	json_t *msg = wait_for(c, op, job, DEADLINE_MS);

	if (!msg) {
		char *there = json_dumps(c->kept, JSON_COMPACT);

		print_message("# no \"%s\" of job %lld came; there are: %.2000s\n", op,
			(long long)job, there);
		free(there);
	}
	assert_non_null(msg);
	return msg;
}

bool agent_client_is_closed(struct agent_client *c, int ms)
{
	int64_t until = clock_boot_ms() + ms;

	while (!c->has_end && clock_boot_ms() < until)
		fill(c, 50);
	return c->has_end;
}

bool agent_client_hello(
	struct agent_client *c, const char *queue, int64_t incarnation, int64_t epoch, int64_t link)
{
	json_t *msg = json_pack("{s:s, s:i, s:i, s:s}", "op", "hello", "protocol", WIRE_PROTOCOL,
		"build", 1, "who", "test");
	json_t *answer;

	if (queue) {
		json_object_set_new(msg, "queue", json_string(queue));
		json_object_set_new(msg, "fence",
			json_pack("[I, I, I]", (json_int_t)incarnation, (json_int_t)epoch,
				(json_int_t)link));
	}
	agent_client_send(c, msg);
	answer = agent_client_next(c, "hello", DEADLINE_MS);
	if (!answer) {
		char *there = json_dumps(c->kept, JSON_COMPACT);

		print_message("# no \"hello\" came%s; there are: %.2000s\n",
			c->has_end ? " and the link ended" : "", there);
		free(there);
		return false;
	}
	assert_int_equal(wire_str(answer, "root_id", c->root_id, sizeof(c->root_id), NULL), 0);
	json_decref(answer);
	return true;
}

json_t *agent_client_job(const struct test_agent *t, int64_t job, const char *token,
	const char *script, int card, int64_t declared_mib)
{
	char uuid[GPU_UUID_LEN], output[160];
	json_t *cards = json_array();

	snprintf(output, sizeof(output), "%s/job%lld.log", t->dir, (long long)job);
	if (card >= 0) {
		sim_uuid(t->sim, (uint32_t)card, uuid);
		json_array_append_new(cards, json_pack("{s:s, s:I}", "uuid", uuid, "declared_mib",
						     (json_int_t)declared_mib));
	}
	return json_pack(
		"{s:I, s:i, s:s, s:o, s:{s:i, s:i, s:f, s:b, s:b, s:i}, s:[s, s, s], s:[s], s:s, s:s, s:i, s:i, s:i}",
		"job", (json_int_t)job, "attempt", 1, "token", token, "cards", cards, "policy",
		"margin_mib", 512, "idle_threshold_mib", 200, "spike_buffer", 0.1, "high_water", 1,
		"exclusive", 0, "max_jobs_per_card", 0, "argv", "/bin/sh", "-c", script, "env",
		"OWN=1", "cwd", t->dir, "output", output, "timeout_ms", 0, "grace_ms", 2000,
		"umask", 18);
}

void agent_client_launch(struct agent_client *c, json_t *job)
{
	agent_client_send(c, json_pack("{s:s, s:s, s:[s], s:[o]}", "op", "launch", "root_id",
				     c->root_id, "env", "PATH=/usr/bin:/bin", "jobs", job));
}

static pid_t find_stopped(pid_t parent, const char *comm)
{
	struct proc_table table;
	pid_t found = 0;

	assert_int_equal(proc_table_read(&table), 0);
	for (size_t i = 0; i < table.n; i++)
		if (table.rows[i].ppid == parent && table.rows[i].state == 'T' &&
			!strcmp(table.rows[i].comm, comm))
			found = table.rows[i].pid;
	proc_table_done(&table);
	return found;
}

pid_t test_agent_stopped_child(const struct test_agent *t, const char *comm)
{
	int64_t until = clock_boot_ms() + 20000;
	pid_t pid;

	while (!(pid = find_stopped(t->pid, comm)) && clock_boot_ms() < until)
		poll(NULL, 0, 5);
	assert_true(pid > 0);
	return pid;
}

void test_agent_wait_gone(pid_t pid)
{
	int64_t until = clock_boot_ms() + 20000;

	while (proc_is_alive(pid, 0) && clock_boot_ms() < until)
		poll(NULL, 0, 5);
	assert_false(proc_is_alive(pid, 0));
}
