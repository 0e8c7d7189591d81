/* run/watchfile: which edits of a jobs file are believed at once, and which only after they held still. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "run/watchfile.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SETTLE 1000

static char dir[64], path[96];

static int set_up(void **state)
{
	snprintf(dir, sizeof(dir), "/tmp/gpustow-watch-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/jobs", dir);
	return 0;
}

static int tear_down(void **state)
{
	return fd_remove_tree_at(AT_FDCWD, dir);
}

/* Writes in place, with a time stamp of its own so that two writes within a tick differ. */
static void write_jobs(const char *text)
{
	static long stamp = 1000;
	CLEANUP_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	struct timespec times[2] = {{.tv_sec = stamp + 1}, {.tv_sec = stamp + 1}};

	stamp++;
	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
	futimens(fd, times);
}

static void expect(struct watchfile *w, int64_t now, enum watch_result result, const char *text)
{
	const char *bytes;
	struct err e;
	size_t n;

	assert_int_equal(watchfile_look(w, now, SETTLE, &bytes, &n, &e), result);
	if (result == WATCH_NEW) {
		assert_int_equal(n, strlen(text));
		assert_memory_equal(bytes, text, n);
	}
}

static void open_with(struct watchfile *w, const char *text)
{
	struct err e;

	write_jobs(text);
	assert_int_equal(watchfile_open(w, path, &e), 0);
	assert_string_equal(buf_str(&w->believed), text);
}

static void appended_lines_count_at_once(void **state)
{
	CLEANUP(watchfile_done) struct watchfile w;

	open_with(&w, "a\n");
	expect(&w, 0, WATCH_SAME, NULL);
	write_jobs("a\nb\n");
	expect(&w, 1, WATCH_NEW, "a\nb\n");
	expect(&w, 2, WATCH_SAME, NULL);
}

static void W8_half_written_last_line_waits(void **state)
{
	CLEANUP(watchfile_done) struct watchfile w;

	open_with(&w, "a\n");
	write_jobs("a\nb\necho --lr 1");
	expect(&w, 0, WATCH_NEW, "a\nb\n");
	expect(&w, SETTLE - 1, WATCH_SAME, NULL);
	write_jobs("a\nb\necho --lr 1e-4");
	expect(&w, SETTLE, WATCH_SAME, NULL);
	expect(&w, 2 * SETTLE - 1, WATCH_SAME, NULL);
	expect(&w, 2 * SETTLE, WATCH_NEW, "a\nb\necho --lr 1e-4");
}

static void last_line_without_newline_is_believed_at_start(void **state)
{
	CLEANUP(watchfile_done) struct watchfile w;

	open_with(&w, "a\nb");
	expect(&w, 0, WATCH_SAME, NULL);
}

static void X7_emptied_file_waits(void **state)
{
	CLEANUP(watchfile_done) struct watchfile w;

	open_with(&w, "a\nb\n");
	write_jobs("");
	expect(&w, 0, WATCH_SAME, NULL);
	write_jobs("a\nb\nc\n");
	expect(&w, 10, WATCH_NEW, "a\nb\nc\n");
	write_jobs("c\n");
	expect(&w, 20, WATCH_SAME, NULL);
	expect(&w, 20 + SETTLE, WATCH_NEW, "c\n");
}

static void lost_file_keeps_the_list_and_comes_back(void **state)
{
	CLEANUP(watchfile_done) struct watchfile w;
	const char *bytes;
	struct err e = {0};
	size_t n;

	open_with(&w, "a\n");
	unlink(path);
	assert_int_equal(watchfile_look(&w, 0, SETTLE, &bytes, &n, &e), WATCH_FAILED);
	assert_non_null(strstr(e.text, "No such file"));
	write_jobs("a\nb\n");
	expect(&w, 1, WATCH_NEW, "a\nb\n");
}

static void replaced_by_rename_rings(void **state)
{
	CLEANUP(watchfile_done) struct watchfile w;
	CLEANUP_CLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY);

	open_with(&w, "a\n");
	assert_int_equal(fd_replace_at(fd, "jobs", "b\na\n", 4, false), 0);
	assert_true(watchfile_rang(&w));
	expect(&w, 0, WATCH_NEW, "b\na\n");
	assert_int_equal(fd_replace_at(fd, "other", "x", 1, false), 0);
	assert_false(watchfile_rang(&w));
}

static void other_kinds_of_file_are_refused(void **state)
{
	struct watchfile w;
	struct err e = {0};

	assert_true(watchfile_open(&w, dir, &e) < 0);
	assert_non_null(strstr(e.text, "is a directory"));
	watchfile_done(&w);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_true(watchfile_open(&w, path, &e) < 0);
	assert_non_null(strstr(e.text, "is a pipe"));
	watchfile_done(&w);
}

#define ROW(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {ROW(appended_lines_count_at_once),
		ROW(W8_half_written_last_line_waits),
		ROW(last_line_without_newline_is_believed_at_start), ROW(X7_emptied_file_waits),
		ROW(lost_file_keeps_the_list_and_comes_back), ROW(replaced_by_rename_rings),
		ROW(other_kinds_of_file_are_refused)};

	return cmocka_run_group_tests_name("watchfile", tests, NULL, NULL);
}
