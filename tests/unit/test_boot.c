/* The boot line's text and the reader of its answers: every word, noise, every way of being cut in pieces, the limits. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "fleet/boot.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NONCE "0011223344556677"
#define MARK "gpustow:" NONCE
#define HASH "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define OTHER_HASH "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static const struct boot_agent agents[] = {
	{.cpu = "x86_64", .hash = HASH, .n = 57001},
	{.cpu = "aarch64", .hash = OTHER_HASH, .n = 67000},
};

static struct boot_ask ask_of(const char *cpu, const char *dir)
{
	struct boot_ask a = {.agents = agents, .n_agents = 2, .cpu = cpu, .agent_dir = dir};

	memcpy(a.nonce, NONCE, sizeof(a.nonce));
	return a;
}

/* ---- the line ---- */

static void line_is_plain(void **state)
{
	const char *cpus[] = {NULL, "x86_64", "aarch64", "riscv64"};

	for (size_t i = 0; i < 4; i++) {
		struct boot_ask a = ask_of(cpus[i], NULL);
		struct buf line = {0};
		const char *body;
		size_t n;

		assert_int_equal(boot_line(&a, &line, NULL), 0);
		assert_int_equal(strncmp(line.data, "exec /bin/sh -c '", 17), 0);
		body = line.data + 17;
		n = strcspn(body, "'\\!\n\r");
		assert_string_equal(body + n, "'");
		assert_null(strstr(body, "NONCE"));
		assert_null(strstr(body, "MARK"));
		assert_null(strstr(body, "TABLE"));
		assert_null(strstr(body, "PLACES"));
		assert_non_null(strstr(body,
			"x86_64) m=x86_64 h=" HASH " n=57001;; aarch64) m=aarch64 h=" OTHER_HASH
			" n=67000;; *)"));
		assert_true(line.len < 2200);
		buf_done(&line);
	}
}

static void line_knows_the_processor(void **state)
{
	struct boot_ask a = ask_of("aarch64", NULL);
	struct buf line = {0};

	assert_int_equal(boot_line(&a, &line, NULL), 0);
	assert_non_null(strstr(line.data, "/gpustow/agent-" OTHER_HASH "\"; [ -O \"$a\" ] &&"));
	assert_non_null(strstr(line.data, "exec \"$a\" attach " MARK " " OTHER_HASH));
	buf_clear(&line);
	a.cpu = NULL;
	assert_int_equal(boot_line(&a, &line, NULL), 0);
	assert_null(strstr(line.data, "HAVE"));
	buf_done(&line);
}

static void line_has_the_users_place_first(void **state)
{
	struct boot_ask a = ask_of("x86_64", "/data/alice/agents");
	struct buf line = {0};
	const char *bad[] = {"relative", "/a b", "/a'b", "/a\"b", "/a$b", "/a`b", "/a/", "/", "",
		"/a\\b", "/a!b"};

	assert_int_equal(boot_line(&a, &line, NULL), 0);
	assert_non_null(strstr(line.data, "a=\"/data/alice/agents/agent-" HASH "\""));
	assert_non_null(strstr(line.data, "set -- \"/data/alice/agents\" \"${XDG_CACHE_HOME"));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct err e = {0};
		size_t before = line.len;

		a.agent_dir = bad[i];
		assert_int_equal(boot_line(&a, &line, &e), -EINVAL);
		assert_int_equal(line.len, before);
		assert_non_null(strstr(e.text, "agent_dir"));
	}
	buf_done(&line);
}

/* A place that isn't there must not be made, not even by root. */
static void line_makes_no_stray_directory(void **state)
{
	struct boot_ask a = ask_of(NULL, NULL);
	struct buf line = {0};

	assert_int_equal(boot_line(&a, &line, NULL), 0);
	assert_null(strstr(line.data, "nonexistent"));
	assert_non_null(strstr(line.data, "${XDG_RUNTIME_DIR:-/dev/null}/gpustow"));
	buf_done(&line);
}

static void text_line_is_plain(void **state)
{
	struct buf line = {0};
	struct err e = {0};

	assert_int_equal(boot_text_line(NONCE, "nvidia-smi -q -x", &line, &e), 0);
	assert_non_null(strstr(line.data, MARK " OUT"));
	assert_non_null(strstr(line.data, MARK " END $r"));
	buf_clear(&line);
	assert_int_equal(boot_text_line(NONCE, "echo 'x'", &line, &e), -EINVAL);
	assert_int_equal(line.len, 0);
	buf_done(&line);
}

/* ---- the line, run by the shells that are here ---- */

/* An agent that says what it was asked to do: first as `id`, then as attach. */
static char *make_agent(size_t *ret_n)
{
	char *text = xasprintf(
		"#!/bin/sh\ncase $1 in id) echo %s;; attach) echo; echo \"$2 READY build=1 cpu=z80\";; esac\n",
		HASH);

	*ret_n = strlen(text);
	return text;
}

/* Runs the line in `shell` with a home of its own; feeds it the agent when it's asked for; returns all it said. */
static void run_line(const char *shell, const char *line, const char *home, const char *agent,
	size_t n, struct buf *said)
{
	int in[2], out[2];
	char bytes[4096];
	ssize_t got;
	pid_t pid;

	assert_int_equal(pipe(in), 0);
	assert_int_equal(pipe(out), 0);
	pid = fork();
	if (!pid) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		close(in[0]), close(in[1]), close(out[0]), close(out[1]);
		setenv("HOME", home, 1);
		unsetenv("XDG_CACHE_HOME");
		execlp(shell, shell, "-c", line, (char *)NULL);
		_exit(127);
	}
	close(in[0]), close(out[1]);
	while ((got = read(out[0], bytes, sizeof(bytes))) > 0) {
		buf_put(said, bytes, (size_t)got);
		if (strstr(said->data, " NEED ") && agent) {
			assert_int_equal(write(in[1], agent, n), (ssize_t)n);
			agent = NULL;
		}
	}
	close(in[1]), close(out[0]);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void try_shell(const char *shell)
{
	char home[] = "/tmp/gpustow-test-boot-XXXXXX", *agent, *file;
	struct boot_agent one = {.hash = HASH};
	struct boot_ask a = {.agents = &one, .n_agents = 1, .nonce = NONCE};
	struct buf line = {0}, said = {0};
	struct stat st;
	size_t n;

	agent = make_agent(&n);
	one.n = n;
#ifdef __aarch64__
	one.cpu = "aarch64";
#else
	one.cpu = "x86_64";
#endif
	assert_non_null(mkdtemp(home));
	assert_int_equal(boot_line(&a, &line, NULL), 0);
	run_line(shell, line.data, home, agent, n, &said);
	assert_non_null(strstr(buf_str(&said), "\n" MARK " NEED "));
	assert_non_null(strstr(said.data, "\n" MARK " READY build=1 cpu=z80\n"));
	file = xasprintf("%s/.cache/gpustow/agent-" HASH, home);
	assert_int_equal(stat(file, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	/* It's there: started by the careful line, and by the fast one. */
	for (int i = 0; i < 2; i++) {
		buf_clear(&said);
		buf_clear(&line);
		a.cpu = i ? one.cpu : NULL;
		assert_int_equal(boot_line(&a, &line, NULL), 0);
		run_line(shell, line.data, home, NULL, 0, &said);
		assert_null(strstr(buf_str(&said), "NEED"));
		assert_non_null(strstr(said.data, "\n" MARK " READY"));
		assert_int_equal(strstr(said.data, "HAVE") != NULL, i);
	}
	/* Cut short: the careful line looks closer, and asks for it again. */
	assert_int_equal(truncate(file, 10), 0);
	buf_clear(&said);
	buf_clear(&line);
	a.cpu = NULL;
	assert_int_equal(boot_line(&a, &line, NULL), 0);
	run_line(shell, line.data, home, agent, n, &said);
	assert_non_null(strstr(buf_str(&said), " NEED "));
	assert_non_null(strstr(said.data, "\n" MARK " READY"));
	free(file);
	/* Some shells leave files of their own there. */
	assert_int_equal(fd_remove_tree_at(AT_FDCWD, home), 0);
	buf_done(&line);
	buf_done(&said);
	free(agent);
}

static void line_runs_in_every_shell_here(void **state)
{
	static const char *const shells[] = {
		"dash", "bash", "zsh", "fish", "tcsh", "csh", "mksh", "ksh93", "elvish", "rc"};
	size_t n = 0;

	for (size_t i = 0; i < sizeof(shells) / sizeof(shells[0]); i++) {
		char *look = xasprintf("command -v %s >/dev/null", shells[i]);
		pid_t pid = fork();
		int status;

		if (!pid) {
			execl("/bin/sh", "sh", "-c", look, (char *)NULL);
			_exit(127);
		}
		waitpid(pid, &status, 0);
		if (!status) {
			print_message("# %s\n", shells[i]);
			try_shell(shells[i]);
			n++;
		}
		free(look);
	}
	assert_true(n >= 2);
}

/* ---- the reader ---- */

static struct boot_event read_one(const char *text, size_t n, size_t piece, size_t *ret_taken)
{
	struct boot_reader r;
	struct boot_event ev = {0};
	size_t at = 0;

	boot_reader_init(&r, NONCE);
	while (at < n && ev.word == BOOT_MORE) {
		size_t len = n - at < piece ? n - at : piece;

		at += boot_reader_put(&r, text + at, len, &ev);
	}
	boot_reader_done(&r);
	*ret_taken = at;
	return ev;
}

static struct boot_event read_text(const char *text)
{
	size_t taken;

	return read_one(text, strlen(text), 100000, &taken);
}

static void reads_every_word(void **state)
{
	struct boot_event ev = read_text("\n" MARK " HAVE\n");

	assert_int_equal(ev.word, BOOT_HAVE);
	ev = read_text("\n" MARK " NEED x86_64 57001\n");
	assert_int_equal(ev.word, BOOT_NEED);
	assert_string_equal(ev.cpu, "x86_64");
	assert_int_equal(ev.number, 57001);
	ev = read_text("\n" MARK " READY build=100 cpu=aarch64\n");
	assert_int_equal(ev.word, BOOT_READY);
	assert_int_equal(ev.number, 100);
	assert_string_equal(ev.cpu, "aarch64");
	ev = read_text("\n" MARK " READY build=101 cpu=x86_64 more=1\n");
	assert_int_equal(ev.word, BOOT_READY);
	assert_string_equal(ev.cpu, "x86_64");
	ev = read_text("\n" MARK " OTHER Linux riscv64\n");
	assert_int_equal(ev.word, BOOT_OTHER);
	assert_string_equal(ev.text, "Linux riscv64");
	ev = read_text("\n" MARK " FAIL no place: /a:exec /b:private\n");
	assert_int_equal(ev.word, BOOT_FAIL);
	assert_string_equal(ev.text, "no place: /a:exec /b:private");
	ev = read_text("\n" MARK " OUT\n");
	assert_int_equal(ev.word, BOOT_OUT);
	ev = read_text("\n" MARK " END 9\n");
	assert_int_equal(ev.word, BOOT_END);
	assert_int_equal(ev.number, 9);
	ev = read_text("\r\n" MARK " NEED x86_64 5\r\n");
	assert_int_equal(ev.word, BOOT_NEED);
	assert_int_equal(ev.number, 5);
}

static void refuses_nonsense(void **state)
{
	static const char *const bad[] = {"", "WHAT", "NEED", "NEED x86_64", "NEED x86_64 ",
		"NEED x86_64 0", "NEED x86_64 -5", "NEED x86_64 1x", "NEED x86_64 99999999999",
		"NEED  5", "READY", "READY build=", "READY build=1", "READY build=x cpu=a",
		"READY build=1 cpu=", "END", "END 256", "END -1", "HAVEN",
		"NEED aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 5"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char *text = xasprintf("\n" MARK " %s\n", bad[i]);

		if (read_text(text).word != BOOT_NONSENSE)
			print_message("# \"%s\"\n", bad[i]);
		assert_int_equal(read_text(text).word, BOOT_NONSENSE);
		free(text);
	}
}

static void skips_noise(void **state)
{
	/* Another nonce, the mark not at the line's start, no newline before the empty line, control bytes, a NUL. */
	static const char text[] =
		"Welcome\n\033[1mbold\033[0m" MARK
		" HAVE\ngpustow:ffffffffffffffff NEED x86_64 5\n" MARK "NEED x86_64 6\n\0\n" MARK
		" NEED x86\0_64 6\n no newline\n" MARK " NEED x86_64 7\nJUNK";
	size_t taken;
	struct boot_event ev = read_one(text, sizeof(text) - 1, 100000, &taken);

	assert_int_equal(ev.word, BOOT_NEED);
	assert_int_equal(ev.number, 7);
	/* What follows the line isn't touched: frames may begin there. */
	assert_int_equal(taken, sizeof(text) - 1 - 4);
}

static void is_the_same_in_any_pieces(void **state)
{
	static const char text[] = "noise\r\n\n" MARK " READY build=7 cpu=x86_64\n\0\0\0\5Jframe";
	size_t n = sizeof(text) - 1, taken;

	for (size_t piece = 1; piece <= n; piece++) {
		struct boot_event ev = read_one(text, n, piece, &taken);

		assert_int_equal(ev.word, BOOT_READY);
		assert_int_equal(ev.number, 7);
		assert_memory_equal(text + taken, "\0\0\0\5J", 5);
	}
}

static void has_limits(void **state)
{
	struct boot_reader r;
	struct boot_event ev = {0};
	struct buf big = {0}, said = {0};
	size_t at = 0;

	/* A line too long to be ours isn't, though it begins like one; the next is. */
	buf_puts(&big, MARK " FAIL ");
	while (big.len < BOOT_LINE_MAX + 10)
		buf_putc(&big, 'x');
	buf_puts(&big, "\n" MARK " HAVE\n");
	assert_int_equal(read_one(big.data, big.len, 7, &at).word, BOOT_HAVE);
	assert_int_equal(read_one(big.data, big.len, 100000, &at).word, BOOT_HAVE);
	/* Nor is its end, where it happens to be cut. */
	boot_reader_init(&r, NONCE);
	boot_reader_put(&r, big.data, BOOT_LINE_MAX + 1, &ev);
	boot_reader_put(&r, MARK " HAVE\n", strlen(MARK) + 6, &ev);
	assert_int_equal(ev.word, BOOT_MORE);
	boot_reader_put(&r, MARK " HAVE\n", strlen(MARK) + 6, &ev);
	assert_int_equal(ev.word, BOOT_HAVE);
	boot_reader_done(&r);
	ev.word = BOOT_MORE;
	/* 310 KB of banner are fine, 5 MB aren't. */
	buf_clear(&big);
	while (big.len < 310000)
		buf_puts(&big, "a banner line\n");
	boot_reader_init(&r, NONCE);
	boot_reader_put(&r, big.data, big.len, &ev);
	assert_int_equal(ev.word, BOOT_MORE);
	for (int i = 0; i < 20 && ev.word == BOOT_MORE; i++)
		boot_reader_put(&r, big.data, big.len, &ev);
	assert_int_equal(ev.word, BOOT_NONSENSE);
	assert_true(r.line.cap < 1024 * 1024);
	/* What it said last, as one clean line. */
	boot_reader_done(&r);
	boot_reader_init(&r, NONCE);
	boot_reader_put(&r, "a banner line\n", 14, &ev);
	boot_reader_put(&r, "open terminal\n failed:\033 x", 25, &ev);
	boot_reader_noise(&r, &said);
	assert_non_null(strstr(said.data, "banner line open terminal failed: x"));
	assert_null(strchr(said.data, '\n'));
	boot_reader_done(&r);
	buf_done(&big);
	buf_done(&said);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(line_is_plain),
		cmocka_unit_test(line_knows_the_processor),
		cmocka_unit_test(line_has_the_users_place_first),
		cmocka_unit_test(line_makes_no_stray_directory),
		cmocka_unit_test(text_line_is_plain),
		cmocka_unit_test(line_runs_in_every_shell_here),
		cmocka_unit_test(reads_every_word),
		cmocka_unit_test(refuses_nonsense),
		cmocka_unit_test(skips_noise),
		cmocka_unit_test(is_the_same_in_any_pieces),
		cmocka_unit_test(has_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
