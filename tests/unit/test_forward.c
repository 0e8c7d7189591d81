/* What a forwarded command is as text: the header there and back, lines for every login shell, and the reader of what comes. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "svc/forward.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct err why;

static const char nonce[] = "0123456789abcdef";

static void add_file(struct forward_header *h, const char *name, const char *bytes, size_t n)
{
	h->files = xreallocarray(h->files, h->n_files + 1, sizeof(*h->files));
	h->files[h->n_files] = (struct forward_file){.name = xstrdup(name)};
	buf_put(&h->files[h->n_files++].bytes, bytes, n);
}

static struct forward_header header_of(int argc, const char *const *argv)
{
	struct forward_header h = {.argc = argc, .submitter = xstrdup("ann@laptop:7")};

	h.argv = xcalloc((size_t)argc + 1, sizeof(*h.argv));
	for (int i = 0; i < argc; i++)
		h.argv[i] = xstrdup(argv[i]);
	return h;
}

static const char *const odd[] = {"job", "submit", "--env", "A=it's \"quoted\" $HOME `id` \\ !x",
	"--", "printf 'a\nb'\n", "\t tab", "", "ä ☃ 𝄞", "-rf *", "\x01\x7f", "}{][,:"};

static void test_header_there_and_back(void **state)
{
	CLEANUP(forward_header_done)
	struct forward_header h = header_of(ARRAY_LEN(odd), odd), got = {0};
	CLEANUP(buf_done) struct buf text = {0};
	size_t sizes[FORWARD_FILES_MAX];

	(void)state;
	add_file(&h, "-", "bytes\0and\n", 10);
	add_file(&h, "we \"ird\n.sh", "", 0);
	h.columns = 132;
	h.no_color = h.ensure = true;
	h.home = xstrdup("~/q");
	assert_int_equal(forward_header_put(&h, &text, &why), 0);
	/* One line. */
	assert_ptr_equal(strchr(buf_str(&text), '\n'), text.data + text.len - 1);
	assert_int_equal(forward_header_parse(text.data, text.len, &got, sizes, &why), 0);
	assert_int_equal(got.argc, (int)ARRAY_LEN(odd));
	for (size_t i = 0; i < ARRAY_LEN(odd); i++)
		assert_string_equal(got.argv[i], odd[i]);
	assert_null(got.argv[got.argc]);
	assert_string_equal(got.submitter, "ann@laptop:7");
	assert_string_equal(got.home, "~/q");
	assert_int_equal(got.columns, 132);
	assert_true(got.no_color && got.ensure);
	assert_int_equal(got.n_files, 2);
	assert_string_equal(got.files[1].name, "we \"ird\n.sh");
	assert_int_equal(sizes[0], 10);
	assert_int_equal(sizes[1], 0);
}

static void test_header_refuses(void **state)
{
	static const char *const bad[] = {"", "[]", "{}", "{\"argv\":[]}", "{\"argv\":[1]}",
		"{\"argv\":\"ls\"}", "{\"argv\":[\"a\"],\"home\":3}",
		"{\"argv\":[\"a\"],\"files\":[{\"name\":\"x\"}]}",
		"{\"argv\":[\"a\"],\"files\":[{\"name\":\"x\",\"bytes\":-1}]}",
		"{\"argv\":[\"a\"],\"files\":[{\"name\":\"x\",\"bytes\":99999999999}]}",
		"{\"argv\":[\"a\"],\"files\":[{\"bytes\":1}]}", "{\"argv\":[\"a\\u0000b\"]}",
		"{\"argv\":[\"a\"]} x", "{\"argv\":[\"a\"],\"argv\":[\"b\"]}"};
	const char *const words[] = {"job", "\xff\xfe"};
	CLEANUP(forward_header_done) struct forward_header h = header_of(2, words);
	CLEANUP(buf_done) struct buf text = {0};
	size_t sizes[FORWARD_FILES_MAX];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct forward_header got = {0};

		if (forward_header_parse(bad[i], strlen(bad[i]), &got, sizes, &why) != -EINVAL)
			fail_msg("taken: %s", bad[i]);
		assert_null(got.argv);
	}
	assert_int_equal(forward_header_put(&h, &text, &why), -EILSEQ);
	/* More files than there are places. */
	buf_puts(&text, "{\"argv\":[\"a\"],\"files\":[");
	for (int i = 0; i <= FORWARD_FILES_MAX; i++)
		buf_printf(&text, "%s{\"name\":\"%d\",\"bytes\":0}", i ? "," : "", i);
	buf_puts(&text, "]}");
	{
		struct forward_header got = {0};

		assert_int_equal(
			forward_header_parse(text.data, text.len, &got, sizes, &why), -EINVAL);
	}
}

static void test_header_is_bounded(void **state)
{
	char *big = xmalloc(FORWARD_HEADER_MAX + 1);
	const char *words[] = {"job", big};
	struct forward_header h, got = {0};
	CLEANUP(buf_done) struct buf text = {0};
	size_t sizes[FORWARD_FILES_MAX];

	(void)state;
	memset(big, 'x', FORWARD_HEADER_MAX);
	big[FORWARD_HEADER_MAX] = '\0';
	h = header_of(2, words);
	assert_int_equal(forward_header_put(&h, &text, &why), -E2BIG);
	memset(big, ' ', FORWARD_HEADER_MAX);
	memcpy(big, "{\"argv\":[\"a\"]}", 14);
	assert_int_equal(
		forward_header_parse(big, FORWARD_HEADER_MAX + 1, &got, sizes, &why), -EINVAL);
	assert_int_equal(forward_header_parse(big, FORWARD_HEADER_MAX, &got, sizes, &why), 0);
	forward_header_done(&got);
	forward_header_done(&h);
	free(big);
}

/* ---- lines ---- */

static void test_lines(void **state)
{
	const char *const words[] = {"queue", "tui", "--refresh", "2"}, *bad[] = {"queue", "it's"};
	struct queue_remote r = {.program = (char *)"~/bin/gpustow", .home = (char *)"/srv/q"};
	CLEANUP(forward_header_done)
	struct forward_header h = header_of(4, words), odd_one = header_of(2, bad);
	CLEANUP(buf_done) struct buf line = {0}, screen = {0};

	(void)state;
	assert_int_equal(forward_line("~/my bin/gpustow", nonce, &line, &why), 0);
	assert_string_equal(buf_str(&line),
		"exec /bin/sh -c 'exec \"$HOME/my bin/gpustow\" __forwarded 0123456789abcdef'");
	assert_int_equal(forward_screen_line(&r, &h, &screen, &why), 0);
	assert_null(strchr(buf_str(&screen), '\n'));
	assert_non_null(strstr(buf_str(&screen),
		"exec \"$HOME/bin/gpustow\" \"queue\" \"tui\" \"--refresh\" \"2\"'"));
	assert_non_null(strstr(buf_str(&screen), "GPUSTOW_HOME=\"/srv/q\""));
	assert_null(strstr(buf_str(&screen), "UTF-8"));
	h.is_utf8 = true;
	buf_clear(&screen);
	assert_int_equal(forward_screen_line(&r, &h, &screen, &why), 0);
	assert_non_null(strstr(buf_str(&screen), "LC_ALL=C.UTF-8; export LC_ALL"));
	assert_null(strpbrk(buf_str(&screen), "!\\\n"));
	assert_int_equal(forward_screen_line(&r, &odd_one, &screen, &why), -EINVAL);
	for (const char *c = "'\"\\!$`\n"; *c; c++) {
		CLEANUP_FREE char *program = xasprintf("/opt/a%cb", *c);

		assert_int_equal(forward_line(program, nonce, &line, &why), -EINVAL);
	}
}

/* sh with that file as its input, in `dir`: what it wrote, and its exit code. */
static int run_sh(const char *dir, const char *script, struct buf *ret)
{
	int out[2], status;
	pid_t pid;

	assert_int_equal(pipe(out), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		int in = open(script, O_RDONLY);

		dup2(in, STDIN_FILENO);
		dup2(out[1], STDOUT_FILENO);
		close(out[0]);
		setenv("TMPDIR", dir, 1);
		if (chdir(dir) == 0)
			execl("/bin/sh", "sh", (char *)NULL);
		_exit(126);
	}
	close(out[1]);
	assert_int_equal(fd_read_all(out[0], ret, 65536), 0);
	close(out[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int count_files(const char *dir)
{
	DIR *d = opendir(dir);
	int n = 0;

	assert_non_null(d);
	for (const struct dirent *x; (x = readdir(d));)
		n += x->d_name[0] != '.';
	closedir(d);
	return n;
}

/* Read by the real sh: words arrive as they were, files with their bytes, and the exit code comes back. */
static void test_script_through_a_shell(void **state)
{
	static const char body[] = "#!/bin/sh\necho 'a\"b' $x \\\n\xff\n";
	CLEANUP(forward_header_done) struct forward_header h = {0};
	CLEANUP(buf_done) struct buf script = {0}, want = {0}, got = {0};
	char dir[] = "/tmp/forward-XXXXXX";
	CLEANUP_FREE char *program = NULL, *path = NULL;
	const char *words[ARRAY_LEN(odd) + 3];
	struct queue_remote r = {0};
	FILE *f;

	(void)state;
	memcpy(words, odd, sizeof(odd));
	words[ARRAY_LEN(odd)] = "--script";
	words[ARRAY_LEN(odd) + 1] = "my job.sh";
	words[ARRAY_LEN(odd) + 2] = "--file=my job.sh";
	h = header_of(ARRAY_LEN(words), words);
	add_file(&h, "my job.sh", body, sizeof(body) - 1);
	assert_non_null(mkdtemp(dir));
	program = xasprintf("%s/it's nvidb", dir);
	f = fopen(program, "w");
	fputs("#!/bin/sh\nfor a; do case $p in --script) cat \"$a\";; *) case $a in --file=*) cat \"${a#--file=}\";;"
	      " *) printf '[%s]' \"$a\";; esac;; esac; p=$a; done\n"
	      "echo \"$NVIDB_SUBMITTER $NVIDB_QUEUE_NO_REMOTE $NVIDB_HOME\"; exit 7\n",
		f);
	fclose(f);
	assert_int_equal(chmod(program, 0755), 0);
	r.program = program;
	r.home = (char *)"/srv/it's";
	assert_int_equal(forward_script(&r, &h, nonce, &script, &why), 0);
	path = xasprintf("%s/script", dir);
	f = fopen(path, "w");
	fwrite(script.data, 1, script.len, f);
	fclose(f);
	assert_int_equal(run_sh(dir, path, &got), 7);

	buf_printf(&want, "\ngpustow:%s SCRIPT\n", nonce);
	for (size_t i = 0; i < ARRAY_LEN(odd); i++)
		buf_printf(&want, "[%s]", odd[i]);
	buf_puts(&want, "[--script]");
	buf_put(&want, body, sizeof(body) - 1);
	buf_put(&want, body, sizeof(body) - 1);
	buf_printf(&want, "ann@laptop:7 1 /srv/it's\n\1gpustow:%s END 7\n", nonce);
	assert_int_equal(got.len, want.len);
	assert_memory_equal(got.data, want.data, got.len);
	/* The files are gone again: only the program and the script are left. */
	assert_int_equal(count_files(dir), 2);
	assert_int_equal(fd_remove_tree_at(AT_FDCWD, dir), 0);
}

/* ---- reading ---- */

static struct forward_reader reader_of(void)
{
	struct forward_reader r = {0};

	memcpy(r.nonce, nonce, sizeof(nonce));
	return r;
}

/* In pieces of every size: the same. */
static void read_all(const char *text, size_t n, const char *want, size_t n_want,
	enum forward_phase phase, int code)
{
	for (size_t step = 1; step <= n; step++) {
		CLEANUP(forward_reader_done) struct forward_reader r = reader_of();
		CLEANUP(buf_done) struct buf out = {0};

		for (size_t at = 0; at < n; at += step)
			forward_reader_put(&r, text + at, n - at < step ? n - at : step, &out);
		forward_reader_end(&r, &out);
		assert_int_equal(r.phase, phase);
		assert_int_equal(out.len, n_want);
		assert_memory_equal(buf_str(&out), want, n_want);
		if (phase == FORWARD_ENDED)
			assert_int_equal(r.code, code);
	}
}

#define READ(text, want, phase, code) \
	read_all((text), sizeof(text) - 1, (want), sizeof(want) - 1, (phase), (code))
#define MARK "gpustow:0123456789abcdef "

static void test_reader(void **state)
{
	CLEANUP(forward_reader_done) struct forward_reader r = reader_of();
	CLEANUP(buf_done) struct buf out = {0};

	(void)state;
	READ("hello\n\n" MARK "FORWARD 1\nout\n\1" MARK "END 3\n", "out\n", FORWARD_ENDED, 3);
	READ("\n" MARK "SCRIPT\n\1" MARK "END 255\n", "", FORWARD_ENDED, 255);
	/* Another's mark, a later version, no mark at all. */
	READ("\ngpustow:0123456789abcdee FORWARD 1\nx\n", "", FORWARD_NOISE, 0);
	READ("\n" MARK "FORWARD 2\nx\n", "", FORWARD_NOISE, 0);
	READ("x " MARK "FORWARD 1\nx\n", "", FORWARD_NOISE, 0);
	/* What only looks like END is output. */
	READ("\n" MARK "FORWARD 1\na\1b\1\1" MARK "END x\n\1" MARK "END 256\n\1" MARK "END 0\n",
		"a\1b\1\1" MARK "END x\n\1" MARK "END 256\n", FORWARD_ENDED, 0);
	READ("\n" MARK "FORWARD 1\nbytes\0\xff\1" MARK "END ", "bytes\0\xff\1" MARK "END ",
		FORWARD_OPEN, 0);
	READ("\n" MARK "FORWARD 1\n\1gpustow:0123456789abcdee END 0\n",
		"\1gpustow:0123456789abcdee END 0\n", FORWARD_OPEN, 0);
	READ("\n" MARK "FORWARD 1\n\1\1" MARK "END 5\n", "\1", FORWARD_ENDED, 5);
	/* Noise has a bound, and its end is kept. */
	for (int i = 0; i < 100000; i++)
		forward_reader_put(&r, "noise", 5, &out);
	forward_reader_put(&r, "last\n\n" MARK "FORWARD 1\n", 6 + strlen(MARK) + 10, &out);
	assert_int_equal(r.phase, FORWARD_OPEN);
	assert_true(r.noise.len <= FORWARD_NOISE_KEPT);
	assert_non_null(strstr(buf_str(&r.noise), "noiselast"));
	assert_int_equal(out.len, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_header_there_and_back),
		cmocka_unit_test(test_header_refuses),
		cmocka_unit_test(test_header_is_bounded),
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_script_through_a_shell),
		cmocka_unit_test(test_reader),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
