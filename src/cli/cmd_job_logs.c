/*
 * `job logs`: the end of a job's output, and with -f what comes. Following is pushed by the node; a connection that's lost is
 * made again and goes on at the byte where it was. A job that is tried again is followed into its next attempt.
 */
#include "cli/job_logs.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/row.h"
#include "base/text.h"
#include "cli/queue_candidates.h"
#include "cli/cmd_once.h"
#include "queue/record_json.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum {
	LINES = 200,
	TEXT_MAX = 4 * 1024 * 1024, /* bytes of an answer; what's above is said to be cut */
	LINE_MAX_HELD = 64 * 1024, /* of a line that has no end yet, for the screen */
	LOOK_MS = 300,
	PASS_MS = 2000,
};

struct logs_options {
	struct queue_options q;
	int64_t number;
	bool is_stderr, follow, raw;
};

static void defaults(void *opts)
{
	struct logs_options *o = opts;

	o->number = LINES;
}

/* ---- out ---- */

/* Where the bytes go: as they are, or filtered for a screen, line by line. */
struct screen {
	bool is_raw, colors;
	size_t cols;
	struct buf held; /* a line without its end */
	bool is_shown; /* a start of it stands on the screen */
};

static int write_bytes(const char *bytes, size_t n)
{
	struct buf b = {.data = (char *)bytes, .len = n};
	struct err e = {0};

	return n ? command_print(&b, &e) : 0;
}

/* The line that has no end yet, as it is now; it's taken back before anything else is written. */
static void put_held(struct screen *s, struct buf *out)
{
	CLEANUP(buf_done) struct buf line = {0};
	size_t cells, fit;

	if (!s->held.len)
		return;
	job_logs_put_clean(buf_str(&s->held), s->held.len, false, &line);
	/* One that's wider than the screen couldn't be taken back. */
	fit = row_fitting(buf_str(&line), line.len, s->cols > 1 ? s->cols - 1 : 79, &cells);
	buf_put(out, buf_str(&line), fit);
	s->is_shown = true;
}

static void take_back(struct screen *s, struct buf *out)
{
	if (s->is_shown)
		buf_puts(out, "\r\x1b[K");
	s->is_shown = false;
}

static int screen_put(struct screen *s, const char *bytes, size_t n, bool is_last)
{
	CLEANUP(buf_done) struct buf out = {0};
	const char *nl;
	size_t whole;

	if (s->is_raw)
		return write_bytes(bytes, n);
	take_back(s, &out);
	buf_put(&s->held, bytes, n);
	nl = s->held.len ? memrchr(s->held.data, '\n', s->held.len) : NULL;
	whole = nl ? (size_t)(nl - s->held.data) + 1 : 0;
	if (is_last || s->held.len - whole > LINE_MAX_HELD)
		whole = s->held.len;
	if (whole) {
		job_logs_put_clean(s->held.data, whole, s->colors, &out);
		memmove(s->held.data, s->held.data + whole, s->held.len - whole);
		s->held.len -= whole;
	}
	if (is_last && out.len && out.data[out.len - 1] != '\n')
		buf_putc(&out, '\n');
	put_held(s, &out);
	return write_bytes(buf_str(&out), out.len);
}

static void screen_init(struct screen *s, const struct logs_options *o)
{
	struct row_style style;

	once_terminal(&style);
	*s = (struct screen){.is_raw = o->raw || !isatty(STDOUT_FILENO),
		.colors = style.color,
		.cols = style.cols};
}

static void screen_done(struct screen *s)
{
	(void)screen_put(s, "", 0, true);
	buf_done(&s->held);
}

/* Beside the output, never in it. */
static void note(const struct queue *q, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void note(const struct queue *q, const char *fmt, ...)
{
	CLEANUP(buf_done) struct buf text = {0}, clean = {0};
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	text_put_clean(&clean, buf_str(&text), text.len);
	fprintf(stderr, "%s: %s\n", q->program->name, buf_str(&clean));
}

/* ---- once ---- */

static int find(struct queue *q, const char *word, struct job *ret, struct err *e)
{
	int64_t id;
	int r = queue_parse_id(word, &id, e);

	return r ? r : store_job(q->store, id, ret, e);
}

static int print_once(
	struct queue *q, const struct logs_options *o, const struct job *j, struct err *e)
{
	const char *stream = o->is_stderr ? "stderr" : "stdout";
	CLEANUP(buf_done) struct buf log = {0};
	CLEANUP(screen_done) struct screen s;
	bool is_cut = false;
	int r = job_logs_tail(q, j, stream, o->number, TEXT_MAX, &log, &is_cut, e);

	screen_init(&s, o);
	if (r == -EINTR)
		return 128 + SIGINT;
	if (r)
		return r;
	if (q->json)
		return queue_print_json(
			json_pack("{s:I, s:s, s:o, s:b, s:I}", "id", (json_int_t)j->id, "stream",
				stream, "log", job_logs_json(buf_str(&log), log.len), "is_cut",
				(int)is_cut, "attempt", (json_int_t)job_attempt_count(j)),
			e);
	if (!j->run_dir)
		note(q, "job %" PRId64 " hasn't run%s", j->id,
			job_state_is_terminal(j->state) ? "" : " yet; -f waits for it");
	else if (!log.len)
		note(q, "nothing on standard %s%s", o->is_stderr ? "error" : "output",
			o->is_stderr ? "" : "; --stderr shows the other");
	if (is_cut)
		note(q, "only the last %" PRId64 " lines, and at most 4 MiB; -n N shows more",
			o->number);
	r = screen_put(&s, buf_str(&log), log.len, false);
	return r < 0 ? err_sys(e, r, "cannot write to standard output") : 0;
}

/* ---- following ---- */

struct follow {
	struct queue *q;
	const struct logs_options *o;
	struct screen screen;
	int signal_fd;
	int64_t pass_at_ms;
	bool is_anew; /* of an attempt all is shown that's asked for */
};

static void on_begun(void *arg, bool exists, int64_t size, int64_t offset, bool is_cut)
{
	struct follow *f = arg;

	(void)exists;
	(void)size;
	(void)offset;
	if (is_cut)
		note(f->q, "earlier output is left out; -n N shows more");
}

static int on_data(void *arg, const char *bytes, size_t n)
{
	struct follow *f = arg;

	return screen_put(&f->screen, bytes, n, false);
}

static void on_cut(void *arg, const char *why)
{
	struct follow *f = arg;

	note(f->q, "the connection was lost (%s); it's tried again", why);
}

/* 0, or 128 + the signal that came meanwhile. A pass is made now and then, so that an end is seen. */
static int pause_a_while(struct follow *f)
{
	struct pollfd pfd = {.fd = f->signal_fd, .events = POLLIN};
	struct signalfd_siginfo si;

	if (clock_boot_ms() >= f->pass_at_ms) {
		queue_refresh(f->q);
		f->pass_at_ms = clock_boot_ms() + PASS_MS;
	}
	if (poll(&pfd, 1, LOOK_MS) > 0 &&
		read(f->signal_fd, &si, sizeof(si)) == (ssize_t)sizeof(si))
		return 128 + (int)si.ssi_signo;
	return 0;
}

/* Until the job has an attempt that wasn't followed yet (0), or has ended (1), or a signal came. */
static int next_attempt(struct follow *f, struct job *j, int64_t followed, struct err *e)
{
	bool is_told = false;

	for (;;) {
		int64_t id = j->id;
		int r;

		job_done(j);
		*j = (struct job){0};
		r = store_job(f->q->store, id, j, e);
		if (r)
			return r;
		if (j->attempt > followed && j->run_dir && j->state != JOB_STATE_PENDING)
			return 0;
		if (job_state_is_terminal(j->state))
			return 1;
		if (!followed && !is_told) {
			note(f->q, "job %" PRId64 " hasn't started yet; waiting for it", j->id);
			is_told = true;
		}
		r = pause_a_while(f);
		if (r)
			return r;
	}
}

static int follow_attempt(struct follow *f, const struct job *j, sigset_t *before, struct err *e)
{
	const struct node_file_sink sink = {
		.arg = f, .begun = on_begun, .data = on_data, .cut = on_cut};
	const struct host_config *host;
	struct stream_want w;
	sigset_t blocked;
	int r = job_logs_where(f->q, j, f->o->is_stderr ? "stderr" : "stdout", &w, &host, e);

	if (r)
		return r;
	w.follow = true;
	w.lines = f->is_anew ? -1 : f->o->number;
	w.max = f->is_anew ? 0 : TEXT_MAX;
	/* The loop over the connection takes the signals itself. */
	sigprocmask(SIG_SETMASK, before, &blocked);
	r = node_file_fetch(host, f->q->home, &w, &sink, JOB_LOG_TIMEOUT_MS, e);
	sigprocmask(SIG_SETMASK, &blocked, NULL);
	return r == -EINTR ? 128 + SIGINT : r;
}

static void say_end(const struct queue *q, const struct job *j)
{
	CLEANUP(buf_done) struct buf b = {0};

	buf_printf(&b, "job %" PRId64 " has ended: %s", j->id, job_state_name(j->state));
	if (j->has_exit_code)
		buf_printf(&b, ", exit code %" PRId64, j->exit_code);
	if (j->cause && j->state != JOB_STATE_CANCELLED) /* the state's own word is its cause */
		buf_printf(&b, ", %s", job_cause_name(j->cause));
	note(q, "%s", buf_str(&b));
}

static int follow_all(struct follow *f, struct job *j, sigset_t *before, struct err *e)
{
	int64_t followed = 0;
	int r = 0;

	for (;;) {
		r = next_attempt(f, j, followed, e);
		if (r)
			break;
		if (followed)
			note(f->q, "attempt %" PRId64 ":", job_attempt_count(j));
		followed = j->attempt;
		r = follow_attempt(f, j, before, e);
		(void)screen_put(&f->screen, "", 0, true);
		f->is_anew = true;
		if (r)
			break;
		f->pass_at_ms = 0;
	}
	if (r == 1) {
		say_end(f->q, j);
		return 0;
	}
	return r;
}

static int follow(struct queue *q, const struct logs_options *o, struct job *j, struct err *e)
{
	struct follow f = {.q = q, .o = o};
	sigset_t set, before;
	int r;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, &before);
	f.signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	screen_init(&f.screen, o);
	r = f.signal_fd < 0 ? err_sys(e, -errno, "cannot watch for signals")
			    : follow_all(&f, j, &before, e);
	screen_done(&f.screen);
	if (f.signal_fd >= 0)
		close(f.signal_fd);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return r;
}

static int logs_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct logs_options *o = opts;
	CLEANUP(queue_close) struct queue q = {0};
	CLEANUP(job_done) struct job j = {0};
	int r = queue_open(&q, p, &o->q, STORE_READ, e);

	(void)argc;
	if (!r && q.json && o->follow)
		return err_set(e, -EINVAL,
			"-f goes on for as long as the job does, and --json is one document; give one of them");
	if (!r) {
		queue_refresh(&q);
		r = find(&q, argv[0], &j, e);
	}
	if (r)
		return r;
	return o->follow ? follow(&q, o, &j, e) : print_once(&q, o, &j, e);
}

#define AT(member) .offset = offsetof(struct logs_options, member)
static const struct option_spec options[] = {
	{.letter = 'n',
		.name = "number",
		.arg = "N",
		.kind = OPTION_INT,
		AT(number),
		.min = 1,
		.max = 1000000,
		.text = "the last so many lines (default: 200)"},
	{.name = "stderr",
		.kind = OPTION_FLAG,
		AT(is_stderr),
		.text = "what it wrote to standard error"},
	{.letter = 'f',
		.name = "follow",
		.kind = OPTION_FLAG,
		AT(follow),
		.text = "and what comes, until the job has ended"},
	{.name = "raw",
		.kind = OPTION_FLAG,
		AT(raw),
		.text = "all bytes as they are, also on a terminal: it may do what they say"},
	QUEUE_OPTION_ROWS(struct logs_options),
	QUEUE_REFRESH_ROWS(struct logs_options),
	OPTION_SPEC_END,
};

extern const struct command cmd_job_logs;
const struct command cmd_job_logs = {
	.name = "job logs",
	.args = "ID",
	.summary = "a job's output",
	.about =
		"Read on its node, of its last attempt. A terminal gets it without control bytes other\n"
		"than colours, and of a line that was written over (a progress bar) what it ended as; a\n"
		"file or a pipe gets every byte. With -f it comes as the job writes it; a lost connection\n"
		"is made again, and a retry is followed too.",
	.examples = "$ gpustow job logs 12 -n 50\n$ gpustow job logs -f 12 --stderr",
	.options = options,
	.options_size = sizeof(struct logs_options),
	.defaults = defaults,
	.min_args = 1,
	.max_args = 1,
	.complete = COMPLETE_JOB,
	.candidates = queue_job_candidates,
	.needs_locale = true,
	.abbreviations = true,
	.wants_json = queue_wants_json,
	.exec = logs_exec,
};
