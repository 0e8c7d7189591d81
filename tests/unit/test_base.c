/* base/: digests by published vectors, strict parsing, text for people, whole-file replacement. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/parse.h"
#include "base/sync.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void check_hex(const uint8_t *digest, size_t n, const char *expected)
{
	char hex[80];

	hex_encode(digest, n, hex);
	assert_string_equal(hex, expected);
}

static void sha1_vectors(void **state)
{
	uint8_t d[20];
	char long_text[200];

	sha1("", 0, d);
	check_hex(d, 20, "da39a3ee5e6b4b0d3255bfef95601890afd80709");
	sha1("abc", 3, d);
	check_hex(d, 20, "a9993e364706816aba3e25717850c26c9cd0d89d");
	sha1("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, d);
	check_hex(d, 20, "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
	memset(long_text, 'a', sizeof(long_text));
	sha1(long_text, 200, d);
	check_hex(d, 20, "e61cfffe0d9195a525fc6cf06ca2d77119c24a40");
}

static void sha256_vectors(void **state)
{
	uint8_t d[32];
	struct sha256 s;

	sha256("abc", 3, d);
	check_hex(d, 32, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	sha256_init(&s);
	for (int i = 0; i < 1000000; i++)
		sha256_put(&s, "a", 1);
	sha256_end(&s, d);
	check_hex(d, 32, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void crc32_vector(void **state)
{
	assert_int_equal(crc32_ieee("123456789", 9), 0xcbf43926);
}

static int64_t size_of(const char *s)
{
	int64_t v = -1;
	int r = parse_size_mib(s, strlen(s), &v);

	return r < 0 ? r : v;
}

static void sizes_P4(void **state)
{
	static const struct {
		const char *text;
		int64_t mib;
	} rows[] = {{"22G", 22528}, {"22GiB", 22528}, {"1.5g", 1536}, {"8000MiB", 8000},
		{"12.5G", 12800}, {"0.6", 1}, {"1.5", 2}, {"2.5", 2}, {"3.5", 4}, {"0.5", -ERANGE},
		{"0.0004G", -ERANGE}, {"-5", -EINVAL}, {"abc", -EINVAL}, {"8 G", -EINVAL},
		{"1e3", -EINVAL}, {".5", -EINVAL}, {"5.", -EINVAL}, {"1T", -EINVAL},
		{"1K", -EINVAL}, {"", -EINVAL}, {"nan", -EINVAL},
		{"9999999999999999999G", -ERANGE}};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_int_equal(size_of(rows[i].text), rows[i].mib);
}

static void durations_P8_P9(void **state)
{
	static const struct {
		const char *text;
		int64_t ms;
	} rows[] = {{"90", 90000}, {"90s", 90000}, {"15m", 900000}, {"15M", 900000},
		{"2h", 7200000}, {"1.5h", 5400000}, {"1d", 86400000}, {"0.4s", 400},
		{"soon", -EINVAL}, {"0", -ERANGE}, {"1ms", -EINVAL}, {"", -EINVAL}};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		int64_t v = -1;
		int r = parse_duration_ms(rows[i].text, strlen(rows[i].text), &v);

		assert_int_equal(r < 0 ? r : v, rows[i].ms);
	}
}

static void python_integers(void **state)
{
	static const struct {
		const char *text;
		int64_t v;
		int r;
	} rows[] = {{"+1", 1, 0}, {"007", 7, 0}, {"1_0", 10, 0}, {" 2 ", 2, 0}, {"-3", -3, 0},
		{"1.0", 0, -EINVAL}, {"_1", 0, -EINVAL}, {"1__0", 0, -EINVAL}, {"1_", 0, -EINVAL},
		{"", 0, -EINVAL}, {"-", 0, -EINVAL}, {"99999999999999999999", 0, -ERANGE}};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		int64_t v = 0;

		assert_int_equal(parse_int_py(rows[i].text, strlen(rows[i].text), &v), rows[i].r);
		assert_int_equal(v, rows[i].v);
	}
}

static void reals(void **state)
{
	double v = 7;

	assert_int_equal(parse_double("nan", &v), -EINVAL);
	assert_int_equal(parse_double("inf", &v), -EINVAL);
	assert_int_equal(parse_double("0x10", &v), -EINVAL);
	assert_int_equal(parse_double("1,5", &v), -EINVAL);
	assert_int_equal(parse_double("1e999", &v), -ERANGE);
	assert_true(v == 7);
	assert_int_equal(parse_double("-0.5", &v), 0);
	assert_true(v == -0.5);
	assert_int_equal(parse_double("1e-3", &v), 0);
	assert_true(v == 1e-3);
}

static void floats_as_python(void **state)
{
	static const struct {
		double v;
		const char *text;
	} rows[] = {{5, "5.0"}, {0.1, "0.1"}, {67.5, "67.5"}, {1e-5, "1e-05"}, {0.0001, "0.0001"},
		{1e16, "1e+16"}, {123456789012345, "123456789012345.0"},
		{0.1 + 0.2, "0.30000000000000004"}, {0, "0.0"}, {-2.5, "-2.5"}, {100, "100.0"}};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		CLEANUP(buf_done) struct buf b = {0};

		text_put_float(&b, rows[i].v);
		assert_string_equal(buf_str(&b), rows[i].text);
	}
}

static void utf8_rejects(void **state)
{
	static const char *const bad[] = {
		"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\x80"};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(utf8_valid_len(bad[i], strlen(bad[i])), 0);
	assert_int_equal(utf8_valid_len("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 10), 10);
}

static void trims_as_python(void **state)
{
	const char *s = "\xc2\xa0\t\xe3\x80\x80 a b\x1c\xe2\x80\xa8\r\n";
	size_t n = strlen(s);

	utf8_trim(&s, &n);
	assert_int_equal(n, 3);
	assert_memory_equal(s, "a b", 3);
}

static void cleans_for_a_terminal(void **state)
{
	CLEANUP(buf_done) struct buf b = {0};
	const char *s = "a\x1b]52;c;x\x07\xc2\x9b\xe2\x80\xae\xff\tz";

	text_put_clean(&b, s, strlen(s));
	assert_string_equal(buf_str(&b),
		"a\xef\xbf\xbd]52;c;x\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd z");
}

static void integers_in_decimal(void **state)
{
	static const int64_t v[] = {0, 7, -7, 10, 99, 100, 1234567890123, INT64_MAX, INT64_MIN};

	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
		struct buf b = {0};
		char text[32];

		text_put_int(&b, v[i]);
		snprintf(text, sizeof(text), "%lld", (long long)v[i]);
		assert_string_equal(b.data, text);
		buf_done(&b);
	}
}

static void json_ascii(void **state)
{
	CLEANUP(buf_done) struct buf b = {0};
	const char *s = "\"\\\n\x01\x7f\xc3\xa9\xf0\x9f\x98\x80";

	text_put_json_ascii(&b, s, strlen(s));
	assert_string_equal(buf_str(&b), "\"\\\"\\\\\\n\\u0001\\u007f\\u00e9\\ud83d\\ude00\"");
}

static void repr_quotes(void **state)
{
	CLEANUP(buf_done) struct buf b = {0};

	text_put_repr(&b, "a'b", 3);
	text_put_repr(&b, "a'\"", 3);
	text_put_repr(&b, "8G,", 3);
	assert_string_equal(buf_str(&b), "\"a'b\"'a\\'\"''8G,'");
}

static void closest_name(void **state)
{
	static const char *const names[] = {"margin", "gpus", "poll"};

	assert_string_equal(text_closest("marign", names, 3), "margin");
	assert_string_equal(text_closest("pol", names, 3), "poll");
	assert_null(text_closest("xyzzy", names, 3));
}

static void errors_wrap(void **state)
{
	struct err e = {0};

	assert_int_equal(err_sys(&e, -ENOENT, "cannot open %s", "x"), -ENOENT);
	assert_int_equal(err_wrap(&e, -ENOENT, "job %d", 3), -ENOENT);
	assert_string_equal(e.text, "job 3: cannot open x: No such file or directory");
}

static char *make_dir(void)
{
	static char path[64];

	snprintf(path, sizeof(path), "/tmp/gpustow-base-XXXXXX");
	assert_non_null(mkdtemp(path));
	return path;
}

static void replaces_whole_files(void **state)
{
	char *dir = make_dir();
	CLEANUP_CLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY);
	CLEANUP(buf_done) struct buf b = {0};
	struct stat st;

	assert_int_equal(fd_replace_at(fd, "f", "one", 3, true), 0);
	assert_int_equal(fd_replace_at(fd, "f", "twotwo", 6, false), 0);
	assert_int_equal(fd_read_file_at(fd, "f", &b, 100), 0);
	assert_string_equal(buf_str(&b), "twotwo");
	assert_int_equal(fstatat(fd, "f", &st, 0), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(fd_read_file_at(fd, "f", &b, 5), -EFBIG);
	assert_int_equal(symlinkat("f", fd, "l"), 0);
	assert_int_equal(fd_read_file_at(fd, "l", &b, 100), -ELOOP);
	assert_int_equal(mkfifoat(fd, "p", 0600), 0);
	assert_int_equal(fd_read_file_at(fd, "p", &b, 100), -EINVAL);
	assert_int_equal(fd_remove_tree_at(AT_FDCWD, dir), 0);
	assert_int_equal(access(dir, F_OK), -1);
}

static void trees_go_without_following_links(void **state)
{
	char *dir = make_dir();
	char outside[] = "/tmp/gpustow-kept-XXXXXX";
	CLEANUP_CLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY);

	assert_non_null(mkdtemp(outside));
	assert_int_equal(mkdirat(fd, "d", 0700), 0);
	assert_int_equal(symlinkat(outside, fd, "d/link"), 0);
	assert_int_equal(fd_remove_tree_at(AT_FDCWD, dir), 0);
	assert_int_equal(access(outside, F_OK), 0);
	rmdir(outside);
}

static void locks_exclude_other_processes(void **state)
{
	char *dir = make_dir();
	CLEANUP_CLOSE int d = open(dir, O_RDONLY | O_DIRECTORY);
	CLEANUP_CLOSE int fd = openat(d, "lock", O_RDWR | O_CREAT, 0600);
	int status;
	pid_t child;

	assert_int_equal(fd_lock(fd, NULL), 0);
	child = fork();
	if (!child) {
		int again = openat(d, "lock", O_RDWR);
		pid_t holder = 0;
		int r = fd_lock(again, &holder);

		_exit(r == -EAGAIN && holder == getppid() ? 0 : 1);
	}
	waitpid(child, &status, 0);
	assert_int_equal(status, 0);
	fd_remove_tree_at(AT_FDCWD, dir);
}

static void closes_all_but_the_kept(void **state)
{
	int status;
	pid_t child = fork();

	if (!child) {
		int a = dup(0), b = dup(0), c = dup(0);
		int keep[] = {b};

		fd_close_from(a, keep, 1);
		_exit(fcntl(a, F_GETFD) < 0 && fcntl(b, F_GETFD) >= 0 && fcntl(c, F_GETFD) < 0 ? 0
											       : 1);
	}
	waitpid(child, &status, 0);
	assert_int_equal(status, 0);
}

/* A network's file system can't be mounted here; that the others aren't taken for one, and that a failure isn't an answer, can be seen. */
static void tells_file_systems(void **state)
{
	(void)state;
	assert_int_equal(fs_is_network("/proc"), 0);
	assert_int_equal(fs_is_network("/dev/shm"), 0);
	assert_int_equal(fs_is_network("/nowhere/at/all"), -ENOENT);
}

/* Files and a directory, in the process that asked first and in one forked from it; what can't be synced has its own error. */
static void sync_some(void)
{
	char path[] = "/tmp/gpustow-sync-XXXXXX", name[64];
	struct fd_sync s[200];

	assert_non_null(mkdtemp(path));
	for (size_t i = 0; i < ARRAY_LEN(s); i++) {
		snprintf(name, sizeof(name), "%s/%zu", path, i);
		s[i] = (struct fd_sync){.fd = i ? open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600)
						: open(path, O_RDONLY | O_CLOEXEC),
			.is_dir = !i,
			.code = 77};
		assert_true(s[i].fd >= 0);
		assert_true(!i || write(s[i].fd, "x", 1) == 1);
	}
	fd_sync_all(s, ARRAY_LEN(s));
	for (size_t i = 0; i < ARRAY_LEN(s); i++)
		assert_int_equal(s[i].code, 0);
	close(s[3].fd);
	close(s[199].fd);
	fd_sync_all(s, ARRAY_LEN(s));
	for (size_t i = 0; i < ARRAY_LEN(s); i++)
		assert_int_equal(s[i].code, i == 3 || i == 199 ? -EBADF : 0);
	fd_sync_all(s + 3, 1);
	assert_int_equal(s[3].code, -EBADF);
	fd_sync_all(s, 0);
	for (size_t i = 0; i < ARRAY_LEN(s); i++) {
		if (i != 3 && i != 199)
			close(s[i].fd);
		snprintf(name, sizeof(name), "%s/%zu", path, i);
		unlink(name);
	}
	rmdir(path);
}

static void syncs_together(void **state)
{
	int status;
	pid_t pid;

	sync_some();
	pid = fork();
	if (pid == 0) {
		sync_some();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(sha1_vectors),
		cmocka_unit_test(sha256_vectors), cmocka_unit_test(crc32_vector),
		cmocka_unit_test(sizes_P4), cmocka_unit_test(durations_P8_P9),
		cmocka_unit_test(python_integers), cmocka_unit_test(reals),
		cmocka_unit_test(floats_as_python), cmocka_unit_test(utf8_rejects),
		cmocka_unit_test(trims_as_python), cmocka_unit_test(cleans_for_a_terminal),
		cmocka_unit_test(json_ascii), cmocka_unit_test(integers_in_decimal),
		cmocka_unit_test(repr_quotes), cmocka_unit_test(closest_name),
		cmocka_unit_test(errors_wrap), cmocka_unit_test(replaces_whole_files),
		cmocka_unit_test(trees_go_without_following_links),
		cmocka_unit_test(locks_exclude_other_processes),
		cmocka_unit_test(closes_all_but_the_kept), cmocka_unit_test(tells_file_systems),
		cmocka_unit_test(syncs_together)};

	return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
