/*
 * nvidia-smi as a source of figures: run as a child in a process group of its own, with a time limit and bounded
 * output. A child that can't even be killed (it hangs inside the driver) is left behind, and no second one is started
 * as long as it's there.
 */
#include "gpu/smi.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"
#include "gpu/nvml.h"
#include "gpu/smi_parse.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OUT_MAX (8 * 1024 * 1024)
#define ERR_MAX 2048
#define INFOROM_WARNING 14 /* exit code: everything was printed, and an infoROM is corrupted */

struct smi {
	struct gpu_backend base;
	char *program;
	char *host_root;
	int limit_ms;
	pid_t stuck; /* 0: none */
};

struct child {
	pid_t pid;
	int out, err, failed; /* our ends; `failed` carries the errno of an exec that failed */
};

static void run_program(const char *const *argv, const int out, const int err, const int failed)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC), code;
	sigset_t none;

	setpgid(0, 0);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	setenv("LC_ALL", "C", 1);
	if (dup2(null, 0) >= 0 && dup2(out, 1) >= 0 && dup2(err, 2) >= 0)
		execvp(argv[0], (char *const *)(uintptr_t)argv);
	code = errno;
	fd_write_all(failed, &code, sizeof(code));
	_exit(127);
}

static void close_pair(int p[2])
{
	for (int i = 0; i < 2; i++) {
		if (p[i] >= 0)
			close(p[i]);
	}
}

static int spawn(const char *const *argv, struct child *ret, struct err *e)
{
	int out[2] = {-1, -1}, err[2] = {-1, -1}, failed[2] = {-1, -1};
	int code = 0;
	pid_t pid = -1;

	if (pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0 ||
		pipe2(failed, O_CLOEXEC) < 0 || (pid = fork()) < 0) {
		code = -errno;
		close_pair(out);
		close_pair(err);
		close_pair(failed);
		return err_sys(e, code, "nvidia-smi failed: it can't be started");
	}
	if (pid == 0)
		run_program(argv, out[1], err[1], failed[1]);
	/* Both sides, so that the group is there whoever comes first. */
	setpgid(pid, pid);
	close(out[1]);
	close(err[1]);
	close(failed[1]);
	*ret = (struct child){.pid = pid, .out = out[0], .err = err[0], .failed = failed[0]};
	return 0;
}

/* One read; 0 at the end of the stream. Beyond max bytes of stderr are thrown away, of stdout are an error. */
static int pull(int fd, struct buf *b, size_t max, bool may_cut)
{
	char chunk[16384];
	ssize_t n = read(fd, chunk, sizeof(chunk));

	if (n < 0)
		return errno == EINTR || errno == EAGAIN ? 1 : -errno;
	if (n == 0)
		return 0;
	if (b->len + (size_t)n > max && !may_cut)
		return -EFBIG;
	if (b->len < max)
		buf_put(b, chunk, b->len + (size_t)n > max ? max - b->len : (size_t)n);
	return 1;
}

static int collect(struct child *c, int64_t until_ms, struct buf *out, struct buf *err)
{
	struct pollfd p[2] = {{.fd = c->out, .events = POLLIN}, {.fd = c->err, .events = POLLIN}};

	while (p[0].fd >= 0 || p[1].fd >= 0) {
		int64_t left = until_ms - clock_boot_ms();
		int r = left <= 0 ? 0 : poll(p, 2, (int)left);

		if (r == 0)
			return -ETIMEDOUT;
		if (r < 0 && errno != EINTR)
			return -errno;
		for (int i = 0; r > 0 && i < 2; i++) {
			if (p[i].fd < 0 || p[i].revents == 0)
				continue;
			r = i == 0 ? pull(p[i].fd, out, OUT_MAX, false)
				   : pull(p[i].fd, err, ERR_MAX, true);
			if (r < 0)
				return r;
			if (r == 0)
				p[i].fd = -1;
			r = 1;
		}
	}
	return 0;
}

static bool reap(pid_t pid, int64_t until_ms, int *ret_status)
{
	for (;;) {
		pid_t r = waitpid(pid, ret_status, WNOHANG);

		if (r == pid || (r < 0 && errno == ECHILD))
			return true;
		if (clock_boot_ms() >= until_ms)
			return false;
		poll(NULL, 0, 2);
	}
}

/* Ends the whole group; a member that sits in the kernel is remembered and left. */
static void kill_group(struct smi *s, pid_t pid)
{
	int status;

	kill(-pid, SIGKILL);
	if (!reap(pid, clock_boot_ms() + 500, &status))
		s->stuck = pid;
}

static int said(int code, const struct buf *out, const struct buf *err, struct err *e)
{
	const struct buf *from = err->len > 0 ? err : out;
	const char *s = buf_str(from);
	size_t n = from->len < 300 ? from->len : 300;
	CLEANUP(buf_done) struct buf clean = {0};
	CLEANUP(buf_done) struct buf line = {0};

	utf8_trim(&s, &n);
	for (size_t i = 0; i < n; i++)
		buf_putc(&line, s[i] == '\n' || s[i] == '\r' || s[i] == '\t' ? ' ' : s[i]);
	text_put_clean(&clean, buf_str(&line), line.len);
	return err_set(
		e, code, "nvidia-smi failed: %s", clean.len > 0 ? clean.data : "it said nothing");
}

/* Why the program didn't start; 0 when it did. */
static int exec_error(struct child *c, struct err *e)
{
	int code = 0;

	if (read(c->failed, &code, sizeof(code)) != sizeof(code))
		return 0;
	if (code == ENOENT || code == ENOTDIR)
		return err_set(
			e, -ENOENT, "nvidia-smi not found — is the NVIDIA driver installed?");
	return err_sys(e, -code, "nvidia-smi failed: it can't be started");
}

static int finish(struct smi *s, struct child *c, int r, int64_t until_ms, const struct buf *out,
	const struct buf *err, struct err *e)
{
	int status = 0;

	if (r == 0 && !reap(c->pid, until_ms, &status))
		r = -ETIMEDOUT;
	if (r < 0) {
		kill_group(s, c->pid);
		if (r == -ETIMEDOUT)
			return err_set(e, r, "nvidia-smi timed out after %d.%ds",
				s->limit_ms / 1000, s->limit_ms % 1000 / 100);
		return err_sys(e, r, "nvidia-smi failed: its output can't be read");
	}
	r = exec_error(c, e);
	if (r < 0)
		return r;
	if (WIFEXITED(status) &&
		(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == INFOROM_WARNING))
		return 0;
	return said(-EIO, out, err, e);
}

static int run(struct smi *s, const char *const *argv, struct buf *out, struct err *e)
{
	CLEANUP(buf_done) struct buf err = {0};
	int64_t until_ms = clock_boot_ms() + s->limit_ms;
	struct child c = {0};
	int r, status;

	if (s->stuck != 0 && !reap(s->stuck, 0, &status))
		return err_set(e, -EBUSY,
			"nvidia-smi failed: an earlier one (pid %d) hangs in the driver; look at the kernel log",
			(int)s->stuck);
	s->stuck = 0;
	r = spawn(argv, &c, e);
	if (r < 0)
		return r;
	r = collect(&c, until_ms, out, &err);
	r = finish(s, &c, r, until_ms, out, &err, e);
	close(c.out);
	close(c.err);
	close(c.failed);
	return r;
}

static int ask_xml(struct smi *s, struct gpu_snapshot *ret, struct err *e)
{
	const char *const argv[] = {s->program, "-q", "-x", NULL};
	CLEANUP(buf_done) struct buf out = {0};
	int r = run(s, argv, &out, e);

	return r < 0 ? r : smi_parse_xml(buf_str(&out), out.len, ret, e);
}

static int ask_csv(struct smi *s, struct gpu_snapshot *ret, struct err *e)
{
	const char *const gpus_argv[] = {s->program,
		"--query-gpu=index,uuid,memory.total,memory.used,utilization.gpu",
		"--format=csv,noheader,nounits", NULL};
	const char *const apps_argv[] = {s->program,
		"--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader,nounits",
		NULL};
	CLEANUP(buf_done) struct buf gpus = {0};
	CLEANUP(buf_done) struct buf apps = {0};
	int r = run(s, gpus_argv, &gpus, e);

	if (r == 0)
		r = run(s, apps_argv, &apps, e);
	if (r < 0)
		return r;
	return smi_parse_csv(buf_str(&gpus), gpus.len, buf_str(&apps), apps.len, ret, e);
}

/* Boards that share the machine's memory report none of their own. */
static void complete(struct smi *s, struct gpu_snapshot *ret)
{
	for (uint32_t i = 0; i < ret->n_cards; i++) {
		struct gpu_card *c = &ret->cards[i];
		int64_t total, available;

		if (c->bus_id[0] != '\0')
			c->numa = nvml_host_numa(s->host_root, c->bus_id);
		if (c->state != GPU_OK || c->m[METRIC_MEM_TOTAL].state != VALUE_UNSUPPORTED ||
			nvml_host_memory(s->host_root, &total, &available) < 0)
			continue;
		c->is_unified = true;
		c->m[METRIC_MEM_TOTAL] = value_of(total);
		c->m[METRIC_MEM_USED] = value_of(total - available);
	}
}

static int smi_snapshot(struct gpu_backend *b, struct gpu_snapshot *ret, struct err *e)
{
	struct smi *s = (struct smi *)b;
	struct err first = {0};
	int r = ask_xml(s, ret, &first);

	/* A program that isn't there, or hangs, is not asked a second time; one that can't do XML may do CSV. */
	if (r < 0 && r != -ENOENT && r != -ETIMEDOUT && r != -EBUSY)
		r = ask_csv(s, ret, e);
	else if (r < 0)
		return err_set(e, r, "%s", first.text);
	if (r == 0)
		complete(s, ret);
	return r;
}

static void smi_free(struct gpu_backend *b)
{
	struct smi *s = (struct smi *)b;

	free(s->program);
	free(s->host_root);
	free(s);
}

static const struct gpu_backend_impl smi_impl = {
	.name = "nvidia-smi",
	.snapshot = smi_snapshot,
	.free = smi_free,
};

int smi_open_at(const char *program, const char *host_root, int limit_ms, struct gpu_backend **ret,
	struct err *e)
{
	struct smi *s = xcalloc(1, sizeof(*s));
	struct gpu_snapshot first = {0};
	int r;

	s->base.impl = &smi_impl;
	s->program = xstrdup(program != NULL ? program : "nvidia-smi");
	s->host_root = xstrdup(host_root);
	s->limit_ms = limit_ms;
	/* That the program is there says little: the driver behind it may not be. */
	r = smi_snapshot(&s->base, &first, e);
	gpu_snapshot_done(&first);
	if (r < 0) {
		smi_free(&s->base);
		return r;
	}
	*ret = &s->base;
	return 0;
}

int gpu_backend_smi_open(const char *program, struct gpu_backend **ret, struct err *e)
{
	const char *host_root = getenv("GPUSTOW_HOST_ROOT");

	return smi_open_at(program, host_root != NULL ? host_root : "", SMI_LIMIT_MS, ret, e);
}
