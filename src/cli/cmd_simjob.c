/*
 * gpustow simjob: a job that holds memory on simulated cards, for demos and tests. It writes what it holds to a file
 * in the directory of simulated jobs, every 50 ms, and takes it away when it ends. It behaves as badly as asked: grows,
 * runs out of memory, ignores TERM, leaves a daemon behind. It never touches a real card.
 */
#include "cli/command.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/parse.h"
#include "core/gpu.h"
#include "gpu/sim_spec.h"
#include "proc/proc.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TICK_MS 50
#define CHILDREN_MAX 64
#define OVER 256 /* its time is over: the exit code is the one that was asked for */

extern const struct command cmd_simjob;

struct simjob_options {
	const char *vram, *peak, *oom_at;
	const char *ramp, *hold, *length;
	const char *save_for, *save_to, *append, *oom_once;
	int64_t exit_code, children;
	bool ignore_term, daemonise;
};

static const struct option_spec options[] = {
	{.name = "vram",
		.arg = "SIZE",
		.kind = OPTION_TEXT,
		.offset = offsetof(struct simjob_options, vram),
		.text = "memory it holds on each of its cards: MiB, or with a unit (8G); required"},
	{.name = "ramp",
		.arg = "TIME",
		.kind = OPTION_TEXT,
		.offset = offsetof(struct simjob_options, ramp),
		.text = "time until it holds that much (default 0.5 s)"},
	{.name = "hold",
		.arg = "TIME",
		.kind = OPTION_TEXT,
		.offset = offsetof(struct simjob_options, hold),
		.text = "time it then goes on (default 1.0 s)"},
	{.name = "for",
		.arg = "TIME",
		.kind = OPTION_TEXT,
		.offset = offsetof(struct simjob_options, length),
		.text = "time it runs in all, in place of --hold"},
	{.name = "peak",
		.arg = "SIZE",
		.kind = OPTION_TEXT,
		.offset = offsetof(struct simjob_options, peak),
		.text = "memory it holds during the middle third of the time after the ramp"},
	{.name = "oom-at",
		.arg = "SIZE",
		.kind = OPTION_TEXT,
		.offset = offsetof(struct simjob_options, oom_at),
		.text = "run out of memory and exit with 1 when it would hold that much"},
	{.name = "oom-once",
		.arg = "MARKER",
		.kind = OPTION_TEXT,
		.offset = offsetof(struct simjob_options, oom_once),
		.text = "run out of memory at once if the file MARKER is not there, and make it",
		.complete = COMPLETE_FILE},
	{.name = "exit-code",
		.arg = "N",
		.kind = OPTION_INT,
		.offset = offsetof(struct simjob_options, exit_code),
		.min = 0,
		.max = 255,
		.text = "exit with N (default 0)"},
	{.name = "ignore-term",
		.kind = OPTION_FLAG,
		.offset = offsetof(struct simjob_options, ignore_term),
		.text = "do not end on SIGTERM"},
	{.name = "save-for",
		.arg = "TIME",
		.kind = OPTION_TEXT,
		.offset = offsetof(struct simjob_options, save_for),
		.text = "on SIGTERM go on for that time, as if saving a checkpoint, then exit with 0"},
	{.name = "save-to",
		.arg = "FILE",
		.kind = OPTION_TEXT,
		.offset = offsetof(struct simjob_options, save_to),
		.text = "the file that --save-for writes when it is done",
		.complete = COMPLETE_FILE},
	{.name = "append",
		.arg = "FILE",
		.kind = OPTION_TEXT,
		.offset = offsetof(struct simjob_options, append),
		.text = "at its start, append a line to FILE: $GPUSTOW_TOKEN, else its pid",
		.complete = COMPLETE_FILE},
	{.name = "children",
		.arg = "N",
		.kind = OPTION_INT,
		.offset = offsetof(struct simjob_options, children),
		.min = 0,
		.max = CHILDREN_MAX,
		.text = "share the memory with N child processes (default 0)"},
	{.name = "setsid",
		.kind = OPTION_FLAG,
		.offset = offsetof(struct simjob_options, daemonise),
		.text = "leave the memory with a daemon in a session of its own, and exit at once"},
	OPTION_SPEC_END,
};

/* What is asked for, as numbers. Times are milliseconds from the start. */
struct simjob {
	int64_t vram, peak, oom_at; /* MiB; -1: none */
	int64_t ramp_ms, length_ms, save_ms;
	bool is_saving;
	int64_t children;
	const char *save_to;
};

/* This process's own file, and the cards it names in it. */
struct holder {
	char dir[PATH_MAX], path[PATH_MAX + 64];
	uint64_t start_ticks;
	char **cards; /* keys of "usage": numbers, or UUIDs of instances and of cards that aren't simulated ones */
	size_t n_cards, cap_cards;
	int64_t shown_mib; /* -1: nothing written yet */
	int64_t shown_ms;
};

static volatile sig_atomic_t was_terminated;

static void on_term(int sig)
{
	(void)sig;
	was_terminated = 1;
}

static int take_size(const char *name, const char *text, int64_t *ret, struct err *e)
{
	int64_t mib;

	if (text == NULL)
		return 0;
	if ((parse_int64(text, &mib) < 0 || mib < 0) &&
		parse_size_mib(text, strlen(text), &mib) < 0)
		return err_set(
			e, -EINVAL, "simjob: --%s %s: not a size; write MiB, or 8G", name, text);
	*ret = mib;
	return 0;
}

static int take_time(const char *name, const char *text, int64_t *ret_ms, struct err *e)
{
	double s;

	if (text == NULL)
		return 0;
	if (parse_double(text, &s) == 0 && s < 1e9) {
		/* Up by hand: ceil() would have every start of the program load libm. */
		s = s > 0 ? s * 1000 : 0;
		*ret_ms = (int64_t)s + ((double)(int64_t)s < s);
		return 0;
	}
	if (parse_duration_ms(text, strlen(text), ret_ms) == 0)
		return 0;
	return err_set(e, -EINVAL, "simjob: --%s %s: not a time; write seconds, or 2m", name, text);
}

static int take_options(const struct simjob_options *o, struct simjob *ret, struct err *e)
{
	struct simjob j = {.vram = -1, .peak = -1, .oom_at = -1, .ramp_ms = 500};
	int64_t hold_ms = 1000, length_ms = -1;
	int r;

	if (o->vram == NULL)
		return err_set(
			e, -EINVAL, "simjob: --vram is missing: say how much memory it holds");
	if ((r = take_size("vram", o->vram, &j.vram, e)) < 0 ||
		(r = take_size("peak", o->peak, &j.peak, e)) < 0 ||
		(r = take_size("oom-at", o->oom_at, &j.oom_at, e)) < 0 ||
		(r = take_time("ramp", o->ramp, &j.ramp_ms, e)) < 0 ||
		(r = take_time("hold", o->hold, &hold_ms, e)) < 0 ||
		(r = take_time("for", o->length, &length_ms, e)) < 0 ||
		(r = take_time("save-for", o->save_for, &j.save_ms, e)) < 0)
		return r;
	j.length_ms = length_ms >= 0 ? length_ms : j.ramp_ms + hold_ms;
	if (j.ramp_ms > j.length_ms)
		j.ramp_ms = j.length_ms;
	j.is_saving = o->save_for != NULL;
	j.save_to = o->save_to;
	j.children = o->children;
	*ret = j;
	return 0;
}

/* What the whole job holds `t` ms after its start. */
static int64_t usage_at(const struct simjob *j, int64_t t)
{
	int64_t rest = j->length_ms - j->ramp_ms;

	if (t < j->ramp_ms)
		return j->vram * t / j->ramp_ms;
	if (j->peak >= 0 && t >= j->ramp_ms + rest / 3 && t < j->ramp_ms + rest - rest / 3)
		return j->peak;
	return j->vram;
}

/* The next moment at which usage_at() jumps, or the end. */
static int64_t next_edge(const struct simjob *j, int64_t t)
{
	int64_t rest = j->length_ms - j->ramp_ms;
	const int64_t edges[] = {j->ramp_ms, j->ramp_ms + rest / 3, j->ramp_ms + rest - rest / 3};

	for (size_t i = 0; i < ARRAY_LEN(edges); i++) {
		if (edges[i] > t && (i == 0 || j->peak >= 0))
			return edges[i];
	}
	return j->length_ms;
}

static void add_card(struct holder *h, const char *s, size_t n)
{
	char *key = xstrndup(s, n), uuid[GPU_UUID_LEN];
	bool is_instance = strncmp(key, "MIG-", 4) == 0;
	int64_t index;

	for (uint32_t i = 0; i < GPU_MAX && !is_instance; i++) {
		sim_uuid(h->dir, i, uuid);
		if (strcmp(key, uuid) != 0)
			continue;
		free(key);
		key = xasprintf("%u", i);
		break;
	}
	/* As CUDA reads the list: a number, or a UUID. Another library's card, and an instance, keep it as a key. */
	if (parse_int64(key, &index) < 0 && strncmp(key, "GPU-", 4) != 0 && !is_instance) {
		free(key);
		return;
	}
	GROW(h->cards, h->n_cards, h->cap_cards);
	h->cards[h->n_cards++] = key;
}

static void take_cards(struct holder *h)
{
	const char *s = getenv("CUDA_VISIBLE_DEVICES");

	if (s == NULL)
		s = "0";
	while (*s != '\0') {
		size_t n = strcspn(s, ",");
		size_t blank = strspn(s, " ");

		if (n > blank)
			add_card(h, s + blank, n - blank);
		s += n + (s[n] == ',');
	}
}

static int holder_init(struct holder *h, struct err *e)
{
	struct proc_stat st;
	int r;

	*h = (struct holder){.shown_mib = -1};
	r = sim_dir(h->dir, sizeof(h->dir), e);
	if (r < 0)
		return r;
	take_cards(h);
	r = proc_read_stat(getpid(), &st);
	if (r < 0)
		return err_sys(e, r, "simjob: cannot read its own /proc entry");
	h->start_ticks = st.start_ticks;
	snprintf(h->path, sizeof(h->path), "%s/%d-%llu.json", h->dir, (int)getpid(),
		(unsigned long long)st.start_ticks);
	return 0;
}

static void holder_done(struct holder *h)
{
	for (size_t i = 0; i < h->n_cards; i++)
		free(h->cards[i]);
	free(h->cards);
	*h = (struct holder){0};
}

static int holder_show(struct holder *h, int64_t mib, struct err *e)
{
	CLEANUP(buf_done) struct buf b = {0};
	int r;

	/* An unchanged figure is written again now and then: somebody may have swept the directory. */
	if (mib == h->shown_mib && clock_boot_ms() - h->shown_ms < 1000)
		return 0;
	buf_printf(&b, "{\"pid\": %d, \"start\": %llu, \"usage\": {", (int)getpid(),
		(unsigned long long)h->start_ticks);
	for (size_t i = 0; i < h->n_cards; i++)
		buf_printf(&b, "%s\"%s\": %lld", i > 0 ? ", " : "", h->cards[i], (long long)mib);
	buf_puts(&b, "}}\n");
	r = fd_replace_at(AT_FDCWD, h->path, b.data, b.len, false);
	if (r < 0)
		return err_sys(e, r, "simjob: cannot write %s", h->path);
	h->shown_mib = mib;
	h->shown_ms = clock_boot_ms();
	return 0;
}

static int run_out_of_memory(void)
{
	fputs("RuntimeError: CUDA out of memory. Tried to allocate 2.50 GiB\n", stdout);
	fflush(stdout);
	return 1;
}

static int save(const struct simjob *j, struct err *e)
{
	static const char text[] = "saved\n";
	int r;

	if (j->save_to == NULL)
		return EXIT_OK;
	r = fd_replace_at(AT_FDCWD, j->save_to, text, sizeof(text) - 1, false);
	return r < 0 ? err_sys(e, r, "simjob: cannot write %s", j->save_to) : EXIT_OK;
}

/* Holds its part (share of `of`) until the time is over. Returns an exit code, OVER, or an error. */
static int hold(const struct simjob *j, struct holder *h, int64_t begun_ms, int64_t share,
	int64_t of, struct err *e)
{
	int64_t end_ms = j->length_ms;
	bool is_saving = false;

	for (;;) {
		int64_t t = clock_boot_ms() - begun_ms, all, wait, r;

		if (was_terminated && j->is_saving && !is_saving) {
			is_saving = true;
			end_ms = t + j->save_ms;
		}
		if (t >= end_ms)
			return is_saving ? save(j, e) : OVER;
		all = usage_at(j, t);
		if (j->oom_at >= 0 && all >= j->oom_at)
			return run_out_of_memory();
		r = holder_show(h, all / of + (share < all % of ? 1 : 0), e);
		if (r < 0)
			return (int)r;
		wait = next_edge(j, t) - t;
		wait = wait <= 0 || wait > TICK_MS ? TICK_MS : wait;
		if (end_ms - t < wait)
			wait = end_ms - t;
		poll(NULL, 0, (int)wait);
	}
}

static int hold_and_leave(
	const struct simjob *j, int64_t begun_ms, int64_t share, int64_t of, struct err *e)
{
	CLEANUP(holder_done) struct holder h;
	int r = holder_init(&h, e);

	if (r == 0)
		r = hold(j, &h, begun_ms, share, of, e);
	unlink(h.path);
	return r;
}

static int hold_with_children(const struct simjob *j, int64_t begun_ms, struct err *e)
{
	pid_t children[CHILDREN_MAX];
	int64_t n = 0;
	int r;

	for (; n < j->children; n++) {
		children[n] = fork();
		if (children[n] < 0)
			return err_sys(e, -errno, "simjob: cannot start a child");
		if (children[n] == 0) {
			r = hold_and_leave(j, begun_ms, n + 1, j->children + 1, e);
			fflush(NULL);
			_exit(r < 0 || r == 1 ? 1 : 0);
		}
	}
	r = hold_and_leave(j, begun_ms, 0, j->children + 1, e);
	for (int64_t i = 0; i < n; i++) {
		while (waitpid(children[i], NULL, 0) < 0 && errno == EINTR)
			;
	}
	return r;
}

/* The daemon's own life; its parent is told by the pipe once the memory is shown. */
static void daemon_life(const struct simjob *j, int ready)
{
	CLEANUP(holder_done) struct holder h;
	struct err e = {0};
	int null;

	if (setsid() < 0 || fork() != 0)
		_exit(0);
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (holder_init(&h, &e) < 0 || holder_show(&h, usage_at(j, 0), &e) < 0)
		_exit(1);
	fd_write_all(ready, "1", 1);
	close(ready);
	for (int fd = 0; fd < 3 && null >= 0; fd++)
		dup2(null, fd);
	hold(j, &h, clock_boot_ms(), 0, 1, &e);
	unlink(h.path);
	_exit(0);
}

static int leave_daemon(const struct simjob *j, struct err *e)
{
	int ready[2];
	char byte;
	ssize_t n;
	pid_t pid;

	if (pipe2(ready, O_CLOEXEC) < 0 || (pid = fork()) < 0)
		return err_sys(e, -errno, "simjob: cannot start the daemon");
	if (pid == 0) {
		close(ready[0]);
		daemon_life(j, ready[1]);
	}
	close(ready[1]);
	do {
		n = read(ready[0], &byte, 1);
	} while (n < 0 && errno == EINTR);
	close(ready[0]);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return n == 1 ? 0 : err_set(e, -EIO, "simjob: the daemon did not start");
}

static int append_line(const char *path, struct err *e)
{
	const char *token = getenv("GPUSTOW_TOKEN");
	CLEANUP(buf_done) struct buf b = {0};
	CLEANUP_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	int r;

	if (token != NULL && token[0] != '\0')
		buf_printf(&b, "%s\n", token);
	else
		buf_printf(&b, "%d\n", (int)getpid());
	/* One write: lines of jobs that start together don't mix. */
	r = fd < 0 ? -errno : fd_write_all(fd, b.data, b.len);
	return r < 0 ? err_sys(e, r, "simjob: cannot append to %s", path) : 0;
}

/* 1 when the marker was made now: this is the time it runs out of memory. */
static int take_marker(const char *path, struct err *e)
{
	CLEANUP_FREE char *dir = xstrdup(path);
	char *slash = strrchr(dir, '/');
	int fd, r = 0;

	if (slash != NULL && slash != dir) {
		*slash = '\0';
		r = fd_mkdirs(dir, e);
	}
	if (r < 0)
		return r;
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 && errno == EEXIST)
		return 0;
	if (fd < 0)
		return err_sys(e, -errno, "simjob: cannot make the marker %s", path);
	close(fd);
	return 1;
}

static void take_signals(const struct simjob_options *o)
{
	struct sigaction sa = {.sa_handler = SIG_DFL};

	if (o->ignore_term)
		sa.sa_handler = SIG_IGN;
	else if (o->save_for != NULL)
		sa.sa_handler = on_term;
	else
		return;
	sigaction(SIGTERM, &sa, NULL);
}

static int simjob_exec(const struct program *p, void *opts, int argc, char **argv, struct err *e)
{
	const struct simjob_options *o = opts;
	int64_t begun_ms = clock_boot_ms();
	struct simjob j;
	int r = take_options(o, &j, e);

	(void)p, (void)argc, (void)argv;
	if (r < 0)
		return r;
	take_signals(o);
	if (o->append != NULL && (r = append_line(o->append, e)) < 0)
		return r == -EINVAL ? -EIO : r;
	if (o->oom_once != NULL) {
		r = take_marker(o->oom_once, e);
		if (r != 0)
			return r < 0 ? r : run_out_of_memory();
	}
	if (o->daemonise)
		r = leave_daemon(&j, e);
	else
		r = hold_with_children(&j, begun_ms, e);
	if (r == OVER || (r == 0 && o->daemonise))
		return (int)o->exit_code;
	return r;
}

const struct command cmd_simjob = {
	.name = "simjob",
	.args = "",
	.summary = "a job that holds memory on simulated GPUs, for demos and tests",
	.about =
		"Pretends to hold memory on each card that CUDA_VISIBLE_DEVICES names (card 0 without it).\n"
		"The figures lie in a file in $GPUSTOW_SIM_DIR, where the simulated GPUs of --sim take them\n"
		"from; no real GPU is touched. It ramps up to --vram, holds it, and ends with --exit-code.\n"
		"\n"
		"Times are seconds, or have a unit (2m); sizes are MiB, or have a unit (8G).",
	.examples = "$ gpustow simjob --vram 8G --for 2\n"
		    "holds 8 GiB on simulated card 0 for two seconds\n"
		    "$ gpustow simjob --vram 2000 --oom-once first-time\n"
		    "fails for lack of memory the first time, works from then on",
	.options = options,
	.options_size = sizeof(struct simjob_options),
	.min_args = 0,
	.max_args = 0,
	.exec = simjob_exec,
};
