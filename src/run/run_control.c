/* The second terminal's requests: done on the state, answered on a socket of the log directory. */
#include "run/run_control.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "core/wire.h"
#include "run/view.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define CLIENTS_MAX 32
#define REQUEST_MAX 65536
#define ANSWER_MS 10000
#define LAST_ANSWER_MS 1000

struct client {
	struct control *control;
	struct event *event;
	int fd;
	struct buf in, out;
};

struct control {
	struct run *run;
	int fd;
	struct event *event;
	struct client *clients[CLIENTS_MAX];
};

/* --- requests --- */

static json_t *fail(json_t *failed, const char *word, const char *why)
{
	json_array_append_new(failed, json_pack("{s:s,s:s}", "job", word, "why", why));
	return failed;
}

static json_t *did(const struct run_job *j, const char *what)
{
	return json_pack("{s:I,s:s}", "job", (json_int_t)j->rec->no, "did", what);
}

static void cancel_one(
	struct run *r, struct run_job *j, const char *word, json_t *done, json_t *failed)
{
	if (j->phase != PHASE_IDLE) {
		j->cancel = true;
		json_array_append_new(done,
			did(j, j->attempt && j->attempt->want_stop ? "is being stopped already"
								   : "is being stopped"));
	} else if (job_status_is_terminal(j->rec->status)) {
		fail(failed, word, "it has ended already");
	} else {
		run_settle_cancelled_before_start(r, j);
		json_array_append_new(done, did(j, "was cancelled before it started"));
	}
}

static void retry_one(
	struct run *r, struct run_job *j, const char *word, json_t *done, json_t *failed)
{
	if (j->phase == PHASE_UNKNOWN && j->attempt && r->is_observed) {
		/* A person decides that the attempt is dead (protocol.md 5). */
		journal_interrupted(r->journal, j->rec);
		run_attempt_free(j);
		j->phase = PHASE_IDLE;
		json_array_append_new(done, did(j, "was given up on the node and waits again"));
	} else if (j->phase != PHASE_IDLE) {
		fail(failed, word, "it is running");
	} else if (!job_status_is_terminal(j->rec->status)) {
		fail(failed, word, "it is waiting already");
	} else if (j->lineno && j->line_cancel) {
		fail(failed, word,
			"its line in the jobs file says cancel; take that word out first");
	} else {
		journal_retry(r->journal, j->rec);
		j->cancel = false;
		j->waiting_since_ms = clock_boot_ms();
		free(j->result);
		j->result = NULL;
		/* Only lines are started. Without a scheduler nobody has read the file. */
		json_array_append_new(done,
			did(j, r->base && !j->lineno
					? "will wait again once its line is back in the jobs file"
					: "waits again"));
	}
}

static bool is_failed(const struct run_job *j)
{
	return job_status_is_terminal(j->rec->status) && j->rec->status != JOB_OK &&
	       j->rec->status != JOB_CANCELLED;
}

/* Names stand in the jobs file, which only a scheduler reads. */
static const char *no_such_job(const struct run *r, const char *word)
{
	return r->base || strspn(word, "0123456789") == strlen(word)
		       ? "there is no such job"
		       : "there is no such job; without a scheduler running, jobs are known by number only";
}

typedef void change_fn(
	struct run *r, struct run_job *j, const char *word, json_t *done, json_t *failed);

static json_t *change(struct run *r, const json_t *request, change_fn *fn)
{
	json_t *done = json_array(), *failed = json_array(), *word;
	size_t i;

	json_array_foreach(json_object_get(request, "jobs"), i, word)
	{
		const char *text = json_string_value(word);
		struct run_job *j = text ? run_job_find(r, text) : NULL;

		if (j)
			fn(r, j, text, done, failed);
		else
			fail(failed, text ? text : "?", no_such_job(r, text ? text : "?"));
	}
	if (json_is_true(json_object_get(request, "failed")))
		for (i = 0; i < r->n_jobs; i++)
			if (is_failed(r->jobs[i]) && (r->jobs[i]->lineno || !r->base))
				fn(r, r->jobs[i], "", done, failed);
	r->board_is_old = true;
	return json_pack("{s:s,s:o,s:o}", "op", "done", "jobs", done, "failed", failed);
}

static const char *state_word(const struct view_job *v)
{
	switch (v->state) {
	case VIEW_RUNNING:
		return "running";
	case VIEW_HANDED:
		return "handed";
	case VIEW_PENDING:
		return "pending";
	default:
		return v->status;
	}
}

static bool has_status(const struct view_job *v, enum job_status s)
{
	return strcmp(v->status, job_status_name(s)) == 0;
}

/* What ran out, and what helps. */
static void put_out_of_memory(const struct view_job *v, struct buf *out)
{
	buf_puts(out, "; it ran out of GPU memory");
	if (v->declared_mib > 0)
		buf_printf(out, " with vram=%" PRId64, v->declared_mib);
	if (v->suggested_mib > 0)
		buf_printf(out,
			": vram=%" PRId64
			" is a quarter more, and retries=1 on its line does that by itself",
			v->suggested_mib);
}

/* How it ended, from the journal: "failed (exit 7) after 3s", what that means, and where its output lies. */
static void put_end(const struct view_job *v, struct buf *out)
{
	bool went_well = has_status(v, JOB_OK);

	buf_printf(out, "it has ended: %s", v->status);
	if (v->has_returncode)
		buf_printf(out, " (exit %" PRId64 ")", v->returncode);
	if (v->seconds >= 0)
		buf_printf(out, " after %.0fs", v->seconds);
	if (v->why)
		buf_printf(out, "; %s", v->why);
	if (has_status(v, JOB_FAILED_OOM))
		put_out_of_memory(v, out);
	else if (has_status(v, JOB_TIMEOUT))
		buf_puts(out, "; its time limit was over");
	if (v->seconds >= 0 && v->log && *v->log && !went_well)
		buf_printf(out, "; its output is in %s", v->log);
}

/* For how long, where, and what it holds there. */
static void put_running(const struct view_job *v, struct buf *out)
{
	buf_puts(out, "it is running");
	if (v->seconds >= 0)
		buf_printf(out, " for %.0fs", v->seconds);
	for (uint32_t i = 0; i < v->n_use; i++) {
		buf_printf(out, "%s gpu%" PRId32, i ? "," : " on", v->use[i].gpu);
		if (v->is_sampled)
			buf_printf(out, ":%" PRId64 " MiB", v->use[i].now_mib);
	}
	if (v->n_use && v->declared_mib > 0)
		buf_printf(out, ", declared %" PRId64 " MiB", v->declared_mib);
	if (v->is_cancelling || v->is_timing_out)
		buf_puts(out, "; it is being stopped");
	if (v->log && *v->log)
		buf_printf(out, "; its output is in %s", v->log);
}

static json_t *why_one(const struct view_job *v)
{
	CLEANUP(buf_done) struct buf why = {0};

	if (v->state == VIEW_DONE || v->state == VIEW_DONE_BEFORE)
		put_end(v, &why);
	else if (v->why)
		buf_puts(&why, v->why);
	else if (v->state == VIEW_RUNNING)
		put_running(v, &why);
	else
		buf_puts(&why, "it is looked at again at the next turn");
	return json_pack("{s:I,s:s,s:s,s:s}", "job", (json_int_t)v->no, "state", state_word(v),
		"why", buf_str(&why), "command", v->command);
}

static json_t *answer_why(struct run *r, const json_t *request)
{
	json_t *rows = json_array(), *failed = json_array(),
	       *words = json_object_get(request, "jobs"), *word;
	struct run_view v;
	struct run_view_memory *m = run_view_make(r, SIZE_MAX, &v);
	size_t i;

	json_array_foreach(words, i, word)
	{
		struct run_job *j =
			json_is_string(word) ? run_job_find(r, json_string_value(word)) : NULL;
		size_t k = 0;

		while (j && k < v.n_jobs && v.jobs[k].no != j->rec->no)
			k++;
		if (j && k < v.n_jobs)
			json_array_append_new(rows, why_one(&v.jobs[k]));
		else
			fail(failed, json_is_string(word) ? json_string_value(word) : "?",
				no_such_job(
					r, json_is_string(word) ? json_string_value(word) : "?"));
	}
	for (i = 0; !json_array_size(words) && i < v.n_jobs; i++)
		if (v.jobs[i].state == VIEW_PENDING || v.jobs[i].state == VIEW_HANDED)
			json_array_append_new(rows, why_one(&v.jobs[i]));
	run_view_free(m);
	return json_pack("{s:s,s:o,s:o}", "op", "why", "jobs", rows, "failed", failed);
}

static json_t *answer_status(struct run *r)
{
	struct run_view v;
	struct run_view_memory *m = run_view_make(r, SIZE_MAX, &v);
	CLEANUP(buf_done) struct buf text = {0};
	json_t *answer;

	view_status_text(&v, 100, &text);
	answer = json_pack(
		"{s:s,s:o,s:s}", "op", "status", "view", view_json(&v), "text", buf_str(&text));
	run_view_free(m);
	return answer;
}

json_t *run_control_do(struct run *r, const json_t *request)
{
	const char *op = run_text_in(request, "op", "");

	if (!strcmp(op, "status"))
		return answer_status(r);
	if (!strcmp(op, "why"))
		return answer_why(r, request);
	if (!strcmp(op, "cancel"))
		return change(r, request, cancel_one);
	if (!strcmp(op, "retry"))
		return change(r, request, retry_one);
	return json_pack(
		"{s:s,s:s}", "op", "error", "text", "this scheduler doesn't know that request");
}

/* --- the socket --- */

static int address_of(int dirfd, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(ret->sun_path, sizeof(ret->sun_path), "/proc/self/fd/%d/run.sock", dirfd);
	return 0;
}

static void client_free(struct client *c)
{
	for (size_t i = 0; i < CLIENTS_MAX; i++)
		if (c->control->clients[i] == c)
			c->control->clients[i] = NULL;
	event_free(c->event);
	close(c->fd);
	buf_done(&c->in);
	buf_done(&c->out);
	free(c);
}

/* An answer may be longer than a frame: its length in front, then the document. */
static void put_answer(struct buf *out, json_t *answer)
{
	CLEANUP_FREE char *text = json_dumps(answer, JSON_COMPACT);
	size_t n = text ? strlen(text) : 0;
	uint32_t be = htobe32((uint32_t)n);

	json_decref(answer);
	buf_put(out, &be, 4);
	buf_put(out, text, n);
}

static void on_client(evutil_socket_t fd, short what, void *arg)
{
	struct client *c = arg;
	struct run *r = c->control->run;
	json_t *request = NULL;
	struct err e;
	ssize_t n;

	if (c->out.len) {
		n = send(c->fd, c->out.data, c->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n > 0)
			buf_drop(&c->out, (size_t)n);
		if (!c->out.len || (n < 0 && errno != EAGAIN && errno != EINTR))
			client_free(c);
		return;
	}
	buf_reserve(&c->in, 4096);
	n = recv(c->fd, c->in.data + c->in.len, 4096, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0 || c->in.len + (size_t)n > REQUEST_MAX) {
		client_free(c);
		return;
	}
	c->in.len += (size_t)n;
	switch (wire_get_json(&c->in, &request, &e)) {
	case 0:
		return;
	case 1:
		put_answer(&c->out, run_control_do(r, request));
		json_decref(request);
		event_free(c->event);
		c->event = event_new(r->base, c->fd, EV_WRITE | EV_PERSIST, on_client, c);
		event_add(c->event, NULL);
		run_wake(r);
		return;
	default:
		client_free(c);
	}
}

static void on_connect(evutil_socket_t fd, short what, void *arg)
{
	struct control *control = arg;
	struct ucred peer;
	socklen_t size = sizeof(peer);
	struct client *c;
	size_t i = 0;
	int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (client < 0)
		return;
	while (i < CLIENTS_MAX && control->clients[i])
		i++;
	if (i == CLIENTS_MAX || getsockopt(client, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 ||
		(peer.uid != geteuid() && peer.uid != 0)) {
		close(client);
		return;
	}
	c = control->clients[i] = xcalloc(1, sizeof(*c));
	c->control = control;
	c->fd = client;
	c->event = event_new(control->run->base, client, EV_READ | EV_PERSIST, on_client, c);
	event_add(c->event, NULL);
}

int run_control_open(struct run *r, struct err *e)
{
	struct control *control;
	struct sockaddr_un address;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	mode_t mask;
	int bound;

	if (fd < 0)
		return err_sys(e, -errno, "cannot make a socket");
	/* The lock is ours, so a socket left there is a dead scheduler's. */
	unlinkat(r->dirfd, "run.sock", 0);
	address_of(r->dirfd, &address);
	mask = umask(077);
	bound = bind(fd, (struct sockaddr *)&address, sizeof(address));
	umask(mask);
	if (bound < 0 || listen(fd, 16) < 0) {
		/* Some file systems have no sockets: the run goes on without a second terminal. */
		run_warn(r,
			"no socket can be made in %s (%s): `run status` will read the journal, `run cancel` won't reach this run",
			r->config->log_dir, strerror(errno));
		close(fd);
		return 0;
	}
	control = r->control = xcalloc(1, sizeof(*control));
	control->run = r;
	control->fd = fd;
	control->event = event_new(r->base, fd, EV_READ | EV_PERSIST, on_connect, control);
	event_add(control->event, NULL);
	return 0;
}

static int wait_for(int fd, short what, int64_t deadline_ms)
{
	struct pollfd p = {.fd = fd, .events = what};
	int64_t left = deadline_ms - clock_boot_ms();

	if (left <= 0)
		return -ETIME;
	if (poll(&p, 1, (int)left) < 0 && errno != EINTR)
		return -errno;
	return 0;
}

/* What was asked may have been the end of the run: who asked gets the answer all the same. */
static void send_rest(struct client *c)
{
	int64_t deadline = clock_boot_ms() + LAST_ANSWER_MS;

	while (c->out.len) {
		ssize_t n = send(c->fd, c->out.data, c->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n > 0)
			buf_drop(&c->out, (size_t)n);
		else if ((errno != EAGAIN && errno != EINTR) ||
			 wait_for(c->fd, POLLOUT, deadline) < 0)
			return;
	}
}

void run_control_close(struct run *r)
{
	struct control *control = r->control;

	if (!control)
		return;
	for (size_t i = 0; i < CLIENTS_MAX; i++)
		if (control->clients[i]) {
			send_rest(control->clients[i]);
			client_free(control->clients[i]);
		}
	event_free(control->event);
	close(control->fd);
	unlinkat(r->dirfd, "run.sock", 0);
	free(control);
	r->control = NULL;
}

/* --- the other side --- */

static int left_before(struct err *e)
{
	return err_set(e, -EPIPE, "the scheduler of this log directory left before it answered");
}

static int read_answer(int fd, json_t **ret, struct err *e)
{
	int64_t deadline = clock_boot_ms() + ANSWER_MS;
	CLEANUP(buf_done) struct buf b = {0};
	json_error_t why;

	for (;;) {
		uint32_t be, n;
		ssize_t got;

		if (b.len >= 4) {
			memcpy(&be, b.data, 4);
			n = be32toh(be);
			if (b.len >= 4 + (size_t)n) {
				*ret = json_loadb(b.data + 4, n, 0, &why);
				return *ret ? 0
					    : err_set(e, -EBADMSG,
						      "the scheduler's answer can't be read: %s",
						      why.text);
			}
		}
		if (wait_for(fd, POLLIN, deadline) < 0)
			return err_set(
				e, -ETIME, "the scheduler of this log directory does not answer");
		buf_reserve(&b, 65536);
		got = recv(fd, b.data + b.len, 65536, MSG_DONTWAIT);
		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (got <= 0)
			return left_before(e);
		b.len += (size_t)got;
	}
}

int run_control_ask(const char *log_dir, const json_t *request, json_t **ret, struct err *e)
{
	CLEANUP_CLOSE int dirfd = open(log_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CLEANUP_CLOSE int fd = -1;
	CLEANUP(buf_done) struct buf out = {0};
	struct sockaddr_un address;
	int r;

	if (dirfd < 0)
		return err_sys(e, -errno,
			"cannot open the log directory %s (--log-dir names another)", log_dir);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_sys(e, -errno, "cannot make a socket");
	address_of(dirfd, &address);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return -ESRCH;
	r = wire_put_json(&out, request, e);
	if (r < 0)
		return r;
	if (fd_write_all(fd, out.data, out.len) < 0)
		return left_before(e);
	return read_answer(fd, ret, e);
}
