/*
 * The agent's state directory: where it is, that it's ours, what lies in it from the start, and its sockets' names.
 * Decides nothing about claims.
 */
#include "agent/root.h"
#include "agent/account.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/sys.h"
#include "proc/proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

void root_init(struct root *r)
{
	*r = (struct root){.fd = -1};
}

void root_done(struct root *r)
{
	if (r->fd >= 0)
		close(r->fd);
	root_init(r);
}

/* "<host>-<8 digits of the machine key>": homes are shared among machines, and images share machine ids. */
static int machine_name(char *ret, size_t size)
{
	char host[128] = "", key[65];
	if (gethostname(host, sizeof(host) - 1) < 0)
		return -errno;
	int r = proc_machine_key(key);
	if (r < 0)
		return r;
	for (char *p = host; *p; p++) {
		bool is_plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
				(*p >= '0' && *p <= '9') || *p == '.' || *p == '-' || *p == '_';
		if (!is_plain || (p == host && *p == '.'))
			*p = '_';
	}
	snprintf(ret, size, "%s-%.8s", host, key);
	return 0;
}

/*
 * The nearest directory on the way down to `path` that is there: is it ours, may we write to it, is it a local one? Its mode is
 * no matter here: the answer must not change once the first directory below a home has been made.
 */
static bool is_usable(const char *path)
{
	char p[3072];
	struct sys_stat st;
	snprintf(p, sizeof(p), "%s", path);
	while (access(p, F_OK) < 0 && errno == ENOENT) {
		char *slash = strrchr(p, '/');
		if (!slash || slash == p)
			return false;
		*slash = '\0';
	}
	return access(p, W_OK | X_OK) == 0 && fs_is_network(p) == 0 &&
	       sys_stat_at(AT_FDCWD, p, 0, &st) == 0 && st.uid == geteuid();
}

static int default_path(char *ret, size_t size)
{
	char machine[160];
	struct account account;
	account_read(&account);
	const char *home = account.home;
	if (home[0] && strcmp(home, "/") != 0 && access(home, X_OK) == 0 &&
		machine_name(machine, sizeof(machine)) == 0) {
		int n = snprintf(ret, size, "%s/.gpustow/agent/%s", home, machine);
		if (n > 0 && (size_t)n < size && is_usable(ret))
			return n;
	}
	return snprintf(ret, size, "/var/tmp/gpustow-%u", (unsigned)geteuid());
}

/* Sixteen digits that stand for the simulated cards and the directory in which their jobs say what they hold. */
static void sim_hash(const char *cards, char ret[17])
{
	char own[64];
	uint8_t sum[32];
	struct sha256 h;
	const char *dir = getenv("GPUSTOW_SIM_DIR");
	if (!dir || !*dir)
		dir = getenv("GPUSCHED_SIM_DIR");
	if (!dir || !*dir) {
		snprintf(own, sizeof(own), "/tmp/gpustow-sim-%u", (unsigned)geteuid());
		dir = own;
	}
	sha256_init(&h);
	sha256_put(&h, cards, strlen(cards) + 1);
	sha256_put(&h, dir, strlen(dir));
	sha256_end(&h, sum);
	hex_encode(sum, 8, ret);
}

int root_path(char *ret, size_t size, struct err *e)
{
	char path[3072], digits[17];
	const char *told = getenv("GPUSTOW_AGENT_ROOT");
	int n;
	if (told && *told) {
		if (told[0] != '/')
			return err_set(e, -EINVAL,
				"GPUSTOW_AGENT_ROOT must be an absolute path, but it is \"%.200s\"",
				told);
		n = snprintf(path, sizeof(path), "%s", told);
	} else {
		n = default_path(path, sizeof(path));
	}
	const char *cards = getenv("GPUSTOW_SIM");
	if (cards && *cards && n > 0 && (size_t)n < sizeof(path)) {
		sim_hash(cards, digits);
		n += snprintf(path + n, sizeof(path) - (size_t)n, "/sim-%s", digits);
	}
	if (n < 0 || (size_t)n >= sizeof(path) || (size_t)n >= size)
		return err_set(e, -ENAMETOOLONG,
			"the path of the agent's directory is longer than %zu bytes; set "
			"GPUSTOW_AGENT_ROOT to a shorter one",
			size - 1);
	memcpy(ret, path, (size_t)n + 1);
	return 0;
}

static int read_id(struct root *r, struct err *e)
{
	CLEANUP(buf_done) struct buf b = {0};
	int code = fd_read_file_at(r->fd, "id", &b, 256);
	if (code == -ENOENT)
		return code;
	if (code < 0)
		return err_sys(e, code, "cannot read %s/id", r->path);
	if (b.len == ID_LEN && b.data[ID_LEN - 1] == '\n')
		b.data[ID_LEN - 1] = '\0';
	if (!id_is_valid(buf_str(&b)))
		return err_set(e, -EBADMSG,
			"%s/id is damaged; if no job of yours runs on this machine, move %s aside",
			r->path, r->path);
	memcpy(r->id, b.data, ID_LEN);
	return 0;
}

/* Writes the id whole and durable under another name, then links it: of two that come together one wins. */
static int write_id(struct root *r)
{
	char line[ID_LEN + 1], nonce[17], temporary[32];
	random_hex(16, line);
	line[ID_LEN - 1] = '\n';
	random_hex(8, nonce);
	snprintf(temporary, sizeof(temporary), "id.tmp%s", nonce);
	CLEANUP_CLOSE int fd =
		openat(r->fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	int code = fd_write_all(fd, line, ID_LEN);
	if (!code && fsync(fd) < 0)
		code = -errno;
	if (!code && linkat(r->fd, temporary, r->fd, "id", 0) < 0 && errno != EEXIST)
		code = -errno;
	unlinkat(r->fd, temporary, 0);
	if (!code && fsync(r->fd) < 0)
		code = -errno;
	return code;
}

static int make_parts(struct root *r, struct err *e)
{
	static const char *const dirs[] = {"fence", "new", "claims"};
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		if (mkdirat(r->fd, dirs[i], 0700) < 0 && errno != EEXIST)
			return err_sys(
				e, -errno, "cannot make the directory %s/%s", r->path, dirs[i]);
	}
	int code = read_id(r, e);
	if (code != -ENOENT)
		return code;
	code = write_id(r);
	if (code < 0)
		return err_sys(e, code, "cannot write %s/id", r->path);
	/* The names that lead here must outlive a power cut as well, or the next boot finds another root. */
	CLEANUP_CLOSE int parent = openat(r->fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (parent >= 0)
		fsync(parent);
	code = read_id(r, e);
	return code == -ENOENT ? err_sys(e, code, "cannot read %s/id", r->path) : code;
}

int root_open(struct root *r, const char *path, struct err *e)
{
	struct root new;
	root_init(&new);
	if (path[0] != '/' || strlen(path) >= sizeof(new.path))
		return err_set(e, -EINVAL,
			"the agent's directory must be an absolute path of fewer than %zu bytes",
			sizeof(new.path));
	memcpy(new.path, path, strlen(path) + 1);
	int code = fd_mkdirs(path, e);
	if (!code)
		code = fd_check_private_dir(path, e);
	if (code < 0)
		return code;
	new.fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (new.fd < 0)
		return err_sys(e, -errno, "cannot open the directory %s", path);
	code = make_parts(&new, e);
	if (code < 0) {
		root_done(&new);
		return code;
	}
	new.agent_exe = r->agent_exe;
	*r = new;
	return 0;
}

int root_sockaddr(const struct root *r, const char *name, struct sockaddr_un *ret, struct err *e)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int n = snprintf(a.sun_path, sizeof(a.sun_path), "%s/%s", r->path, name);
	/* Use the real path where it fits: a cleaner of temporary files spares sockets that it knows by name. */
	if (n < 0 || (size_t)n >= sizeof(a.sun_path))
		n = snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/%s", r->fd, name);
	if (n < 0 || (size_t)n >= sizeof(a.sun_path))
		return err_set(e, -ENAMETOOLONG, "the socket's name \"%.64s\" is too long", name);
	*ret = a;
	return 0;
}

int root_ring(const struct root *r, const char *text)
{
	struct sockaddr_un to;
	int code = root_sockaddr(r, "bell", &to, NULL);
	if (code < 0)
		return code;
	CLEANUP_CLOSE int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (sendto(fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&to,
		    sizeof(to)) < 0)
		return -errno;
	return 0;
}
