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

static const char example[] = "write 4, 2x80G,1x24G or 1x80G/mig:3x20G";

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

static int parse_size(const char *s, size_t n, int64_t *ret, struct err *e)
{
	if (parse_size_mib(s, n, ret) < 0 || *ret > SIM_CARD_MAX_MIB)
		return err_set(e, -EINVAL, "simulated cards: \"%.*s\" is not a size of memory; %s",
			(int)(n > 40 ? 40 : n), s, example);
	return 0;
}

/* The instances of one card. */
struct cut {
	uint32_t n;
	int64_t mib[SIM_MIG_MAX], sum_mib;
};

/* 3x20G, or 1x40G+2x20G: what follows "/mig:". */
static int parse_cut(const char *s, size_t n, int64_t total_mib, struct cut *to, struct err *e)
{
	const char *end = s + n;

	while (s <= end) {
		const char *plus = memchr(s, '+', (size_t)(end - s)), *stop = plus ? plus : end;
		const char *x = memchr(s, 'x', (size_t)(stop - s));
		uint32_t count;
		int64_t mib;
		int r;

		if (x == NULL || parse_count(s, (size_t)(x - s), &count) < 0)
			return err_set(e, -EINVAL,
				"simulated cards: \"%.*s\" is not a number of MIG instances and their size; %s",
				(int)(stop - s > 40 ? 40 : stop - s), s, example);
		r = parse_size(x + 1, (size_t)(stop - x - 1), &mib, e);
		if (r < 0)
			return r;
		if (count > SIM_MIG_MAX - to->n || mib < 1 ||
			to->sum_mib + mib * (int64_t)count > total_mib)
			return err_set(e, -EINVAL,
				"simulated cards: a card has at most %d MIG instances, which together are no larger than itself",
				SIM_MIG_MAX);
		to->sum_mib += mib * (int64_t)count;
		for (uint32_t i = 0; i < count; i++)
			to->mib[to->n++] = mib;
		s = stop + 1;
	}
	return 0;
}

static int add_cards(
	uint32_t count, int64_t mib, const struct cut *cut, struct sim_spec *to, struct err *e)
{
	if (count > GPU_MAX || to->n_all + count * (1 + cut->n) > GPU_MAX)
		return err_set(e, -EINVAL, "simulated cards: more than %d cards%s; %s", GPU_MAX,
			cut->n ? " and MIG instances" : "", example);
	to->n_all += count * (1 + cut->n);
	for (uint32_t i = 0; i < count; i++) {
		to->n_mig[to->n] = cut->n;
		memcpy(to->mig_mib[to->n], cut->mib, sizeof(cut->mib));
		to->total_mib[to->n++] = mib;
	}
	return 0;
}

/* One group: COUNT or COUNTxSIZE, and perhaps /mig: behind it. */
static int parse_group(const char *s, size_t n, struct sim_spec *to, struct err *e)
{
	static const char mig[] = "/mig:";
	const char *slash = memchr(s, '/', n);
	size_t n_card = slash != NULL ? (size_t)(slash - s) : n, n_mig = n - n_card;
	const char *x = memchr(s, 'x', n_card);
	int64_t mib = SIM_CARD_MIB;
	struct cut cut = {0};
	uint32_t count;
	int r = 0;

	if (parse_count(s, x != NULL ? (size_t)(x - s) : n_card, &count) < 0)
		return err_set(e, -EINVAL, "simulated cards: \"%.*s\" is not a number of cards; %s",
			(int)(n > 40 ? 40 : n), s, example);
	if (x != NULL)
		r = parse_size(x + 1, n_card - (size_t)(x + 1 - s), &mib, e);
	if (r == 0 && slash != NULL) {
		if (n_mig < sizeof(mig) - 1 || memcmp(slash, mig, sizeof(mig) - 1) != 0)
			return err_set(e, -EINVAL,
				"simulated cards: \"%.*s\" is nothing that a card can have; %s",
				(int)(n_mig > 40 ? 40 : n_mig), slash, example);
		r = parse_cut(slash + sizeof(mig) - 1, n_mig - (sizeof(mig) - 1), mib, &cut, e);
	}
	return r < 0 ? r : add_cards(count, mib, &cut, to, e);
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

/* Two users may write the same directory in two ways; their cards are the same cards. */
static void uuid_of(const char *kind, const char *what, const char *dir, char ret[GPU_UUID_LEN])
{
	CLEANUP_FREE char *real = realpath(dir, NULL);
	CLEANUP(buf_done) struct buf b = {0};
	uint8_t digest[32];
	char hex[65];

	buf_printf(&b, "gpustow simulated %s\n%s", what, real != NULL ? real : dir);
	sha256(b.data, b.len, digest);
	hex_encode(digest, sizeof(digest), hex);
	snprintf(ret, GPU_UUID_LEN, "%s-%.8s-%.4s-%.4s-%.4s-%.12s", kind, hex, hex + 8, hex + 12,
		hex + 16, hex + 20);
}

void sim_uuid(const char *dir, uint32_t i, char ret[GPU_UUID_LEN])
{
	char what[32];

	snprintf(what, sizeof(what), "card\n%u", i);
	uuid_of("GPU", what, dir, ret);
}

void sim_mig_uuid(const char *dir, uint32_t i, uint32_t k, char ret[GPU_UUID_LEN])
{
	char what[48];

	snprintf(what, sizeof(what), "instance\n%u:%u", i, k);
	uuid_of("MIG", what, dir, ret);
}
