/* The carried agent: found, written out once, started. It decides where; agent/root.h decides where its state lies. */
#include "fleet/agent_file.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/sys.h"
#include "fleet/boot.h"

#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* The hashes are taken when it's built: half a megabyte costs milliseconds in every command that goes to a host. */
extern const char agent_bytes[], agent_bytes_end[], agent_bytes_sha256[65];
#ifdef GPUSTOW_AGENT_AARCH64
extern const char agent_aarch64_bytes[], agent_aarch64_bytes_end[], agent_aarch64_bytes_sha256[65];
#endif
#ifdef __aarch64__
#define OWN_CPU "aarch64"
#else
#define OWN_CPU "x86_64"
#endif

#define SERVE_MS 5000

const void *agent_file_bytes(size_t *ret_n)
{
	*ret_n = (size_t)(agent_bytes_end - agent_bytes);
	return agent_bytes;
}

static void put_carried(struct boot_agent *to, const char *cpu, const char *bytes, const char *end,
	const char *hash)
{
	*to = (struct boot_agent){.cpu = cpu, .bytes = bytes, .n = (size_t)(end - bytes)};
	memcpy(to->hash, hash, sizeof(to->hash));
}

size_t agent_file_carried(struct boot_agent *ret, size_t max)
{
	size_t n = 0;

	if (n < max)
		put_carried(&ret[n++], OWN_CPU, agent_bytes, agent_bytes_end, agent_bytes_sha256);
#ifdef GPUSTOW_AGENT_AARCH64
	if (n < max)
		put_carried(&ret[n++], "aarch64", agent_aarch64_bytes, agent_aarch64_bytes_end,
			agent_aarch64_bytes_sha256);
#endif
	return n;
}

/* "agent-<sha256 of the bytes>" */
static void file_name(char ret[80])
{
	memcpy(ret, "agent-", 6);
	memcpy(ret + 6, agent_bytes_sha256, sizeof(agent_bytes_sha256));
}

/* The i-th place to try, or NULL after the last; the caller frees. "" is a place this machine doesn't have. */
static char *place(int i)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME"),
		   *runtime = getenv("XDG_RUNTIME_DIR");
	unsigned uid = (unsigned)geteuid();
	const struct passwd *pw;

	switch (i) {
	case 0:
		if (cache && cache[0] == '/')
			return xasprintf("%s/gpustow", cache);
		pw = home && home[0] == '/' ? NULL : getpwuid(geteuid());
		home = pw ? pw->pw_dir : home;
		return home && home[0] == '/' ? xasprintf("%s/.cache/gpustow", home) : xstrdup("");
	case 1:
		return xasprintf("/var/tmp/gpustow-%u", uid);
	case 2:
		return runtime && runtime[0] == '/' ? xasprintf("%s/gpustow", runtime)
						    : xstrdup("");
	case 3:
		return xasprintf("/tmp/gpustow-%u", uid);
	case 4:
		return xasprintf("/dev/shm/gpustow-%u", uid);
	}
	return NULL;
}

/* Does it run here and is it whole? A file of the right size that is executable; its name vouches for the rest. */
static bool is_good(const char *path, size_t n)
{
	struct sys_stat st;

	return !sys_stat_at(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, &st) && S_ISREG(st.mode) &&
	       st.uid == geteuid() && (size_t)st.size == n && !(st.mode & 022) &&
	       access(path, X_OK) == 0;
}

/* Runs `PATH version` silently: the only honest test for noexec. */
static int try_run(const char *path)
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		return -errno;
	if (!pid) {
		int null = open("/dev/null", O_RDWR);

		if (null >= 0) {
			dup2(null, 0);
			dup2(null, 1);
			dup2(null, 2);
		}
		execl(path, "gpustow-agent", "version", (char *)NULL);
		_exit(127);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ENOEXEC;
}

/* A run that goes on for days needn't hold in memory what it wrote once: whole pages of the program's own file. */
static void give_back(const void *bytes, size_t n)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = ((uintptr_t)bytes + page - 1) / page * page,
		  to = ((uintptr_t)bytes + n) / page * page;

	if (to > from)
		madvise((void *)from, to - from, MADV_DONTNEED);
}

/* Writes the agent to dir/name by way of a temporary file that has proved to run. */
static int write_out(const char *dir, const char *name, struct err *e)
{
	char hex[17];
	size_t n;
	const void *bytes = agent_file_bytes(&n);
	CLEANUP_FREE char *path = xasprintf("%s/%s", dir, name);
	CLEANUP_FREE char *temporary = NULL;
	int fd, r;

	random_hex(8, hex);
	temporary = xasprintf("%s/.new-%s", dir, hex);
	fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0700);
	if (fd < 0)
		return err_sys(e, -errno, "%s", dir);
	r = fd_write_all(fd, bytes, n);
	close(fd);
	give_back(bytes, n);
	if (!r)
		r = try_run(temporary);
	if (!r && rename(temporary, path) < 0)
		r = -errno;
	if (r < 0) {
		unlink(temporary);
		return r == -ENOEXEC ? err_set(e, r, "%s: programs may not run from there", dir)
				     : err_sys(e, r, "%s", dir);
	}
	return 0;
}

static int use_place(const char *dir, const char *name, char *ret, size_t size, struct err *e)
{
	CLEANUP_FREE char *path = xasprintf("%s/%s", dir, name);
	size_t n;
	int r;

	agent_file_bytes(&n);
	if (strlen(path) >= size)
		return err_set(e, -ENAMETOOLONG, "%s: the path is too long", dir);
	if (!is_good(path, n)) {
		r = fd_mkdirs(dir, e);
		if (r < 0 || (r = fd_check_private_dir(dir, e)) < 0 ||
			(r = write_out(dir, name, e)) < 0)
			return r;
	} else if ((r = fd_check_private_dir(dir, e)) < 0) {
		return r;
	}
	memcpy(ret, path, strlen(path) + 1);
	return 0;
}

int agent_file_path(char *ret, size_t size, struct err *e)
{
	const char *set = getenv("GPUSTOW_AGENT");
	CLEANUP(buf_done) struct buf why = {0};
	char name[80];
	char *dir;

	if (set && *set) {
		if (strlen(set) >= size)
			return err_set(e, -ENAMETOOLONG, "GPUSTOW_AGENT is too long");
		memcpy(ret, set, strlen(set) + 1);
		return 0;
	}
	file_name(name);
	for (int i = 0; (dir = place(i)); i++) {
		CLEANUP_FREE char *owned = dir;
		struct err one = {0};

		if (!*dir)
			continue;
		if (!use_place(dir, name, ret, size, &one))
			return 0;
		buf_printf(&why, "%s%s", why.len ? "; " : "", one.text);
	}
	return err_set(e, -ENOEXEC,
		"there is no place to put the agent's program (set GPUSTOW_AGENT to one that is installed): %s",
		buf_str(&why));
}

/* In the child: nothing of ours but stderr's pipe goes along. */
static _Noreturn void exec_serve(const char *path, const char *root, int err_fd)
{
	int null = open("/dev/null", O_RDWR);
	sigset_t none;

	signal(SIGPIPE, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (null >= 0) {
		dup2(null, 0);
		dup2(null, 1);
	}
	dup2(err_fd, 2);
	fd_close_from(3, NULL, 0);
	execl(path, "gpustow-agent", "serve", root, (char *)NULL);
	dprintf(2, "cannot run %s: %s", path, strerror(errno));
	_exit(127);
}

/* What the starter said until it closed its stderr or the deadline passed; -ETIME then. */
static int collect(int fd, struct buf *said, int64_t deadline_ms)
{
	for (;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		int64_t left = deadline_ms - clock_boot_ms();
		char text[512];
		ssize_t n;

		if (left <= 0)
			return -ETIME;
		if (poll(&p, 1, (int)left) < 0 && errno != EINTR)
			return -errno;
		if (!p.revents)
			continue;
		n = read(fd, text, sizeof(text));
		if (n <= 0)
			return 0;
		if (said->len < 2048)
			buf_put(said, text, (size_t)n);
	}
}

int agent_file_serve(const char *root, struct err *e)
{
	char path[4096];
	CLEANUP(buf_done) struct buf said = {0};
	int fds[2], status = 0, r;
	pid_t pid;

	r = agent_file_path(path, sizeof(path), e);
	if (r < 0)
		return r;
	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_sys(e, -errno, "cannot start the agent");
	pid = fork();
	if (pid < 0) {
		r = -errno;
		close(fds[0]);
		close(fds[1]);
		return err_sys(e, r, "cannot start the agent");
	}
	if (!pid)
		exec_serve(path, root, fds[1]);
	close(fds[1]);
	r = collect(fds[0], &said, clock_boot_ms() + SERVE_MS);
	close(fds[0]);
	if (r == -ETIME)
		kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (r == -ETIME)
		return err_set(
			e, r, "the agent (%s) did not come up within %d s", path, SERVE_MS / 1000);
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		while (said.len && said.data[said.len - 1] == '\n')
			said.data[--said.len] = '\0';
		return err_set(e, -EIO, "the agent (%s) could not start: %s", path,
			said.len ? buf_str(&said) : "it said nothing");
	}
	return 0;
}
