/*
 * What simulated cards a text asks for, and where their jobs say what they hold. The parser is pure; sim_dir() makes
 * the directory. A directory that the environment names may be shared by several users and keeps its mode; the one
 * we choose ourselves lies in a world-writable place and must be ours alone.
 */
#include "gpu/sim_spec.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/parse.h"
#include "base/sys.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIM_CARD_MIB 24576
#define SIM_CARD_MAX_MIB (16 * 1024 * 1024) /* 16 TiB: beyond it a figure is a slip of the finger */

static const char example[] = "write 4 or 2x80G,1x24G";

static int parse_count(const char *s, size_t n, uint32_t *ret)
{
	char digits[8];
	int64_t v;

	if (n == 0 || n >= sizeof(digits))
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		if (!isdigit((unsigned char)s[i]))
			return -EINVAL;
		digits[i] = s[i];
	}
	digits[n] = '\0';
	if (parse_int64(digits, &v) < 0 || v < 1)
		return -EINVAL;
	*ret = v > GPU_MAX ? GPU_MAX + 1 : (uint32_t)v;
	return 0;
}

/* One group: COUNT or COUNTxSIZE. */
static int parse_group(const char *s, size_t n, struct sim_spec *to, struct err *e)
{
	const char *x = memchr(s, 'x', n);
	int64_t mib = SIM_CARD_MIB;
	uint32_t count;

	if (parse_count(s, x != NULL ? (size_t)(x - s) : n, &count) < 0)
		return err_set(e, -EINVAL, "simulated cards: \"%.*s\" is not a number of cards; %s",
			(int)(n > 40 ? 40 : n), s, example);
	if (x != NULL) {
		size_t len = n - (size_t)(x + 1 - s);

		if (parse_size_mib(x + 1, len, &mib) < 0 || mib > SIM_CARD_MAX_MIB)
			return err_set(e, -EINVAL,
				"simulated cards: \"%.*s\" is not a size of memory; %s",
				(int)(len > 40 ? 40 : len), x + 1, example);
	}
	if (to->n + count > GPU_MAX)
		return err_set(
			e, -EINVAL, "simulated cards: more than %d cards; %s", GPU_MAX, example);
	for (uint32_t i = 0; i < count; i++)
		to->total_mib[to->n++] = mib;
	return 0;
}

int sim_spec_parse(const char *text, struct sim_spec *ret, struct err *e)
{
	struct sim_spec to = {0};
	const char *s = text;

	for (;;) {
		size_t n = strcspn(s, ",");
		int r = parse_group(s, n, &to, e);

		if (r < 0)
			return r;
		if (s[n] == '\0')
			break;
		s += n + 1;
	}
	*ret = to;
	return 0;
}

static int take_dir(const char *path, bool is_named, struct err *e)
{
	struct sys_stat st;
	int r = fd_mkdirs(path, e);

	if (r < 0)
		return r;
	if (!is_named)
		return fd_check_private_dir(path, e);
	r = sys_stat_at(AT_FDCWD, path, 0, &st);
	if (r < 0)
		return err_sys(e, r, "cannot look at the directory of simulated jobs %s", path);
	if (!S_ISDIR(st.mode))
		return err_set(
			e, -ENOTDIR, "the directory of simulated jobs %s is not a directory", path);
	return 0;
}

int sim_dir(char *ret, size_t size, struct err *e)
{
	const char *named = getenv("GPUSTOW_SIM_DIR");
	CLEANUP(buf_done) struct buf path = {0};
	int r;

	if (named == NULL || named[0] == '\0')
		named = getenv("GPUSCHED_SIM_DIR");
	if (named != NULL && named[0] == '\0')
		named = NULL;
	if (named != NULL)
		buf_puts(&path, named);
	else
		buf_printf(&path, "/tmp/gpustow-sim-%u", (unsigned)getuid());
	if (path.len >= size)
		return err_set(
			e, -ENAMETOOLONG, "the directory of simulated jobs has too long a name");
	r = take_dir(path.data, named != NULL, e);
	if (r < 0)
		return r;
	memcpy(ret, path.data, path.len + 1);
	return 0;
}

void sim_uuid(const char *dir, uint32_t i, char ret[GPU_UUID_LEN])
{
	CLEANUP_FREE char *real = realpath(dir, NULL);
	CLEANUP(buf_done) struct buf b = {0};
	uint8_t digest[32];
	char hex[65];

	/* Two users may write the same directory in two ways; their cards are the same cards. */
	buf_printf(&b, "gpustow simulated card\n%u\n%s", i, real != NULL ? real : dir);
	sha256(b.data, b.len, digest);
	hex_encode(digest, sizeof(digest), hex);
	snprintf(ret, GPU_UUID_LEN, "GPU-%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12,
		hex + 16, hex + 20);
}
