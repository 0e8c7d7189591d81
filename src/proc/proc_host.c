/*
 * What identifies the machine and the world of processes this one lives in: boot id, pid namespace, machine key
 * (protocol.md 1). Reads files of the kernel and /etc; keeps nothing.
 */
#include "proc/proc.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/parse.h"
#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Inode of the pid namespace that the kernel starts with (linux/proc_ns.h, PROC_PID_INIT_INO). */
#define INITIAL_PID_NS 0xEFFFFFFCu

#define BOOT_ID_CHARS 36

static bool is_boot_id(const char *s, size_t n)
{
	if (n != BOOT_ID_CHARS)
		return false;
	for (size_t i = 0; i < n; i++) {
		bool is_dash = i == 8 || i == 13 || i == 18 || i == 23;
		bool is_hex = (s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'f');
		if (is_dash ? s[i] != '-' : !is_hex)
			return false;
	}
	return true;
}

/* The first line of a small file, without its end. */
static int read_line(const char *path, struct buf *b)
{
	int r = fd_read_file_at(AT_FDCWD, path, b, 4096);
	if (r < 0)
		return r;
	char *newline = b->len ? memchr(b->data, '\n', b->len) : NULL;
	if (newline) {
		*newline = '\0';
		b->len = (size_t)(newline - b->data);
	}
	return b->len ? 0 : -ENODATA;
}

int proc_boot_id(char ret[40])
{
#ifdef GPUSTOW_FAULT_POINTS
	/* The fault suite can't restart the machine; it says that it did. */
	const char *told = getenv("GPUSTOW_TEST_BOOT_ID");
	if (told && is_boot_id(told, strlen(told))) {
		memcpy(ret, told, BOOT_ID_CHARS + 1);
		return 0;
	}
#endif
	/* No process outlives a boot, nor do those that are forked from it. */
	static char known[BOOT_ID_CHARS + 1];
	CLEANUP(buf_done) struct buf b = {0};
	if (!known[0]) {
		int r = read_line("/proc/sys/kernel/random/boot_id", &b);
		if (r < 0)
			return r;
		if (!is_boot_id(b.data, b.len))
			return -EBADMSG;
		memcpy(known, b.data, sizeof(known));
	}
	memcpy(ret, known, sizeof(known));
	return 0;
}

int64_t proc_parse_oom_kills(const char *text)
{
	static const char key[] = "oom_kill ";
	const char *line = text;
	while (line) {
		if (strncmp(line, key, sizeof(key) - 1) == 0) {
			const char *digits = line + sizeof(key) - 1;
			char number[24] = "";
			int64_t n;
			size_t len = strcspn(digits, "\n");
			if (len >= sizeof(number))
				return -1;
			memcpy(number, digits, len);
			return parse_int64(number, &n) == 0 && n >= 0 ? n : -1;
		}
		line = strchr(line, '\n');
		if (line)
			line++;
	}
	return -1;
}

int64_t proc_oom_kills(void)
{
	CLEANUP(buf_done) struct buf b = {0};
	const char *root = getenv("GPUSTOW_HOST_ROOT");
	CLEANUP_FREE char *path = xasprintf("%s/proc/vmstat", root ? root : "");
	if (fd_read_file_at(AT_FDCWD, path, &b, 65536) < 0)
		return -1;
	return proc_parse_oom_kills(buf_str(&b));
}

uint64_t proc_pid_ns(void)
{
	struct sys_stat st;
	return sys_stat_at(AT_FDCWD, "/proc/self/ns/pid", 0, &st) == 0 ? st.ino : 0;
}

bool proc_is_initial_pid_ns(void)
{
	return proc_pid_ns() == INITIAL_PID_NS;
}

/* Is this process's root another than that of process 1? Only root may ask; for others the answer is no. */
static bool is_foreign_root(void)
{
	struct sys_stat ours, theirs;
	return sys_stat_at(AT_FDCWD, "/", 0, &ours) == 0 &&
	       sys_stat_at(AT_FDCWD, "/proc/1/root/.", 0, &theirs) == 0 &&
	       (ours.dev != theirs.dev || ours.ino != theirs.ino);
}

int proc_machine_key(char ret[65])
{
	CLEANUP(buf_done) struct buf b = {0};
	char host[256] = "";
	uint8_t sum[32];

	int r = read_line("/etc/machine-id", &b);
	if (r < 0) {
		buf_clear(&b);
		r = read_line("/var/lib/dbus/machine-id", &b);
	}
	if (r < 0)
		buf_clear(&b);
	/* Containers are started from one image, so they share its machine-id; their names differ. */
	if (r < 0 || !proc_is_initial_pid_ns() || is_foreign_root()) {
		if (gethostname(host, sizeof(host) - 1) < 0)
			return -errno;
		buf_putc(&b, '\n');
		buf_puts(&b, host);
	}
	if (r < 0 && !host[0])
		return r;
	sha256(b.data, b.len, sum);
	hex_encode(sum, sizeof(sum), ret);
	return 0;
}
