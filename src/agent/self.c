/* The program's own file. Removes only what bears the names that a boot line gives, and nothing of another user. */
#include "agent/self.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/sys.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define DAY_MS ((int64_t)24 * 3600 * 1000)
#define UNFINISHED_MS ((int64_t)3600 * 1000)
#define UNUSED_MS (60 * DAY_MS)
#define ENTRIES_MAX 10000

int self_hash(char ret[65], struct err *e)
{
	struct sha256 s;
	uint8_t sum[32];
	char bytes[16384];
	ssize_t n = -1;
	CLEANUP_CLOSE int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	sha256_init(&s);
	while (fd >= 0 && (n = read(fd, bytes, sizeof(bytes))) > 0)
		sha256_put(&s, bytes, (size_t)n);
	if (n < 0)
		return err_sys(e, -errno, "this program's own file can't be read");
	sha256_end(&s, sum);
	hex_encode(sum, sizeof(sum), ret);
	return 0;
}

static bool is_agent_name(const char *name)
{
	return !strncmp(name, "agent-", 6) && strlen(name) == 6 + 64 &&
	       strspn(name + 6, "0123456789abcdef") == 64;
}

/* Is that file, by its name and age, nobody's any more? */
static bool is_waste(int dir_fd, const char *name, int64_t now_ms)
{
	bool is_unfinished = !strncmp(name, ".new-", 5);
	struct sys_stat st;
	int64_t age_ms;

	if (!is_unfinished && !is_agent_name(name))
		return false;
	if (sys_stat_at(dir_fd, name, AT_SYMLINK_NOFOLLOW, &st) || !S_ISREG(st.mode) ||
		st.uid != geteuid())
		return false;
	age_ms = now_ms - st.mtime_ns / 1000000;
	return age_ms > (is_unfinished ? UNFINISHED_MS : UNUSED_MS);
}

/* The time of last use is the file's mtime: atime isn't kept on many machines. Once a day is enough. */
static void note_use(int dir_fd, const char *name, int64_t now_ms)
{
	struct sys_stat st;

	if (!sys_stat_at(dir_fd, name, AT_SYMLINK_NOFOLLOW, &st) &&
		now_ms - st.mtime_ns / 1000000 > DAY_MS)
		utimensat(dir_fd, name, NULL, AT_SYMLINK_NOFOLLOW);
}

void self_tidy(void)
{
	char path[4096], *slash;
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
	int64_t now_ms = clock_wall_ms();
	const struct dirent *entry;
	CLEANUP_CLOSEDIR DIR *d = NULL;
	int left = ENTRIES_MAX;

	if (n <= 0)
		return;
	path[n] = '\0';
	slash = strrchr(path, '/');
	if (!slash || !is_agent_name(slash + 1))
		return;
	*slash = '\0';
	if (fd_check_private_dir(path, NULL) || !(d = opendir(path)))
		return;
	note_use(dirfd(d), slash + 1, now_ms);
	while (left-- > 0 && (entry = readdir(d)))
		if (strcmp(entry->d_name, slash + 1) != 0 &&
			is_waste(dirfd(d), entry->d_name, now_ms))
			unlinkat(dirfd(d), entry->d_name, 0);
}
