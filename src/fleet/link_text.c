/*
 * Single commands over the same connection, for hosts where the agent can't run. Output is taken between two lines of ours
 * and bounded, as is the time.
 */
#include "fleet/link_ssh.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "base/parse.h"
#include "fleet/ssh_failure.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define LAST_MS 2000

struct text_run {
	struct text_run *next;
	struct link_ssh *l;
	struct child *child;
	struct event *readable, *limit;
	struct boot_reader reader;
	char nonce[BOOT_NONCE_LEN];
	struct buf out;
	size_t max;
	bool is_out, is_too_long, is_late;
	void (*done)(void *arg, int status, const char *out, size_t n, const char *err_text);
	void *arg;
};

static void run_free(struct text_run *run)
{
	if (run->readable)
		event_free(run->readable);
	if (run->limit)
		event_free(run->limit);
	child_free(run->child, false);
	boot_reader_done(&run->reader);
	buf_done(&run->out);
	free(run);
}

static void drop(struct text_run *run)
{
	for (struct text_run **at = &run->l->runs; *at; at = &(*at)->next) {
		if (*at == run) {
			*at = run->next;
			break;
		}
	}
	run_free(run);
}

/* The last line "MARK END status" after the output: its exit code, the output cut before it; -1 without. */
static int take_end(struct text_run *run)
{
	char mark[64];
	int n = snprintf(mark, sizeof(mark), "\n%s END ", run->reader.mark);
	int64_t code;

	for (size_t i = run->out.len; i-- > 0;) {
		if (run->out.len - i <= (size_t)n ||
			memcmp(run->out.data + i, mark, (size_t)n) != 0)
			continue;
		run->out.data[i + (size_t)n + strcspn(run->out.data + i + n, "\r\n")] = '\0';
		if (parse_int64(run->out.data + i + n, &code) || code < 0 || code > 255)
			return -1;
		run->out.len = i;
		run->out.data[i] = '\0';
		return (int)code;
	}
	return -1;
}

static void finish(struct text_run *run, int status, const char *why)
{
	void (*done)(void *arg, int status, const char *out, size_t n, const char *err_text) =
		run->done;
	void *arg = run->arg;
	struct buf out = run->out;
	char *own = xstrdup(why);

	run->out = (struct buf){0};
	drop(run);
	done(arg, status, buf_str(&out), out.len, own);
	buf_done(&out);
	free(own);
}

static void read_some(struct text_run *run)
{
	char bytes[16384];
	ssize_t n;

	while ((n = recv(child_fd(run->child), bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) {
		size_t at = 0;

		while (!run->is_out && at < (size_t)n) {
			struct boot_event ev;

			at += boot_reader_put(&run->reader, bytes + at, (size_t)n - at, &ev);
			run->is_out = ev.word == BOOT_OUT;
			run->is_too_long |= ev.word == BOOT_NONSENSE;
		}
		buf_put(&run->out, bytes + at, (size_t)n - at);
		run->is_too_long |= run->out.len > run->max;
		if (run->is_too_long) {
			child_end(run->child, 0);
			event_del(run->readable);
			return;
		}
	}
	if (n == 0) {
		event_del(run->readable);
		child_end(run->child, LAST_MS);
	}
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	read_some(arg);
}

static void on_limit(evutil_socket_t fd, short what, void *arg)
{
	struct text_run *run = arg;

	run->is_late = true;
	child_end(run->child, 0);
}

static void on_ended(void *arg, int status)
{
	struct text_run *run = arg;
	struct buf why = {0}, noise = {0};
	enum link_failure kind = LINK_FAIL_NONE;
	int code;

	if (!run->is_too_long)
		read_some(run);
	code = run->is_out ? take_end(run) : -1;
	if (run->is_too_long) {
		code = -1;
		kind = LINK_FAIL_SHELL;
		buf_puts(&why, "the host printed more than is read");
	} else if (code < 0 && run->is_late) {
		kind = LINK_FAIL_NET;
		buf_puts(&why, "the command didn't come to an end in time");
	} else if (code < 0) {
		boot_reader_noise(&run->reader, &noise);
		kind = ssh_failure(link_ssh_code(status), child_said(run->child),
			buf_str(&run->l->by_hand), buf_str(&noise), &why);
	}
	link_set_failure(run->l->t.link, kind);
	finish(run, code, buf_str(&why));
	buf_done(&why);
	buf_done(&noise);
}

void link_text_run(struct transport *t, const char *command, int64_t limit_ms, size_t max_bytes,
	void (*done)(void *arg, int status, const char *out, size_t n, const char *err_text),
	void *arg)
{
	struct link_ssh *l = (struct link_ssh *)t;
	struct timeval limit = {.tv_sec = limit_ms / 1000, .tv_usec = limit_ms % 1000 * 1000};
	struct text_run *run = xcalloc(1, sizeof(*run));
	struct buf line = {0};
	struct err e = {0};

	run->l = l;
	run->next = l->runs;
	l->runs = run;
	run->max = max_bytes;
	run->done = done;
	run->arg = arg;
	l->password_given = false;
	random_hex((BOOT_NONCE_LEN - 1) / 2, run->nonce);
	boot_reader_init(&run->reader, run->nonce);
	if (boot_text_line(run->nonce, command, &line, &e) ||
		link_ssh_start(l, NULL, buf_str(&line), on_ended, run, &run->child, &e)) {
		link_set_failure(l->t.link, LINK_FAIL_AUTH);
		finish(run, -1, e.text);
	} else {
		run->readable = event_new(
			l->base, child_fd(run->child), EV_READ | EV_PERSIST, on_readable, run);
		run->limit = evtimer_new(l->base, on_limit, run);
		event_add(run->readable, NULL);
		event_add(run->limit, &limit);
	}
	buf_done(&line);
}

void link_text_free_all(struct link_ssh *l)
{
	for (struct text_run *run = l->runs, *next; run; run = next) {
		next = run->next;
		run_free(run);
	}
}
