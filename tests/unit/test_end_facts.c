/* Facts of an end and progress, from files that a job may have made to be anything; and the phrases of its output. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "agent/facts_of_end.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/fd.h"
#include "base/text.h"
#include "core/says.h"
#include "proc/proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];
static struct attempt a;
static struct attempt_card cards[3];

static int set_up(void **state)
{
	snprintf(dir, sizeof(dir), "/tmp/gpustow-test-XXXXXX");
	assert_non_null(mkdtemp(dir));
	memset(cards, 0, sizeof(cards));
	a = (struct attempt){.dir = dir, .oom_kills = -1, .oom_kills_end = -1, .cards = cards};
	a.rec.state = ATTEMPT_ENDED;
	return 0;
}

static int tear_down(void **state)
{
	job_files_free(a.files);
	a.files = NULL;
	return fd_remove_tree_at(AT_FDCWD, dir);
}

static void path_of(const char *name, char ret[160])
{
	snprintf(ret, 160, "%s/%s", dir, name);
}

static void append(const char *name, const char *text, size_t n)
{
	char path[160];
	int fd;

	path_of(name, path);
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, n), 0);
	close(fd);
}

static void put(const char *name, const char *text)
{
	char path[160];

	path_of(name, path);
	unlink(path);
	append(name, text, strlen(text));
}

static const char *member(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "(none)";
}

static bool is_true(const json_t *o, const char *key)
{
	return json_is_true(json_object_get(o, key));
}

/* As the agent has it after a child has read. */
static void read_now(bool has_ended)
{
	if (!a.files)
		a.files = xcalloc(1, sizeof(*a.files));
	json_decref(a.files->read);
	a.files->read = facts_read(a.dir, has_ended, &a.files->says, NULL, NULL);
	a.files->has_end = has_ended;
}

static json_t *progress_now(void)
{
	read_now(false);
	return progress_of(&a);
}

static json_t *facts(void)
{
	json_t *o;

	read_now(true);
	assert_true(facts_are_there(&a));
	o = facts_of_end(&a);
	char *text;

	assert_non_null(o);
	/* It can always be sent. */
	text = json_dumps(o, JSON_COMPACT);
	assert_non_null(text);
	assert_int_equal(utf8_valid_len(text, strlen(text)), strlen(text));
	free(text);
	return o;
}

static void assert_progress(const char *status, const char *want)
{
	json_t *v;

	put("status", status);
	v = progress_now();
	assert_string_equal(json_string_value(v), want);
	json_decref(v);
}

static void test_progress(void **state)
{
	json_t *v = progress_now();

	assert_string_equal(json_string_value(v), "");
	json_decref(v);
	assert_progress("", "");
	assert_progress("\n\n", "");
	assert_progress("10%\n20%\n", "20%");
	assert_progress("10%\n20%", "20%");
	assert_progress("epoch 3\n\n  \n", "epoch 3");
	assert_progress("10%\r20%\r30%\r", "30%");
	assert_progress("\033[32mfine\033[0m\n", "fine");
	assert_progress("a\tb\n", "a b");
	assert_progress("bad \xff\xfe byte\n", "bad \xEF\xBF\xBD\xEF\xBF\xBD byte");
	assert_progress("bell \a\033]0;title\n", "bell \xEF\xBF\xBD\xEF\xBF\xBD]0;title");
}

/* 500 bytes, and no half character at the end. */
static void test_progress_is_cut(void **state)
{
	struct buf b = {0};
	json_t *v;

	buf_putc(&b, 'x');
	for (size_t i = 0; i < 400; i++)
		buf_puts(&b, "ü");
	put("status", buf_str(&b));
	v = progress_now();
	assert_int_equal(json_string_length(v), 499);
	assert_int_equal(utf8_valid_len(json_string_value(v), 499), 499);
	json_decref(v);
	buf_done(&b);
}

static void assert_nothing_read(void)
{
	json_t *o = facts();

	assert_string_equal(member(o, "tail"), "");
	assert_true(json_is_null(json_object_get(o, "result")));
	assert_string_equal(member(o, "progress"), "");
	assert_int_equal(json_array_size(json_object_get(o, "says")), 0);
	json_decref(o);
}

static const char *const files[] = {"stdout.log", "stderr.log", "status", "result.json"};

static void test_what_isnt_a_plain_file(void **state)
{
	char path[160];

	assert_nothing_read();
	for (size_t i = 0; i < 4; i++) {
		path_of(files[i], path);
		assert_int_equal(mkfifo(path, 0600), 0);
	}
	assert_nothing_read(); /* nobody writes into them: a reader that waits would wait for ever */
	put("secret", "CUDA out of memory\n");
	for (size_t i = 0; i < 4; i++) {
		path_of(files[i], path);
		unlink(path);
		assert_int_equal(symlink("secret", path), 0);
	}
	assert_nothing_read();
	for (size_t i = 0; i < 4; i++) {
		path_of(files[i], path);
		unlink(path);
		assert_int_equal(mkdir(path, 0700), 0);
	}
	assert_nothing_read();
}

/* The directory itself may be gone, or be a link to another's. */
static void test_no_directory(void **state)
{
	char path[160];

	put("stderr.log", "CUDA out of memory\n");
	path_of("link", path);
	assert_int_equal(symlink(dir, path), 0);
	a.dir = path;
	assert_nothing_read();
	unlink(path);
	assert_nothing_read();
	a.dir = dir;
}

static void test_tail(void **state)
{
	struct buf b = {0};
	json_t *o;

	put("stdout.log", "out 1\nout 2\n");
	o = facts();
	assert_string_equal(member(o, "tail"), "out 1\nout 2\n");
	assert_string_equal(member(o, "tail_of"), "stdout");
	assert_false(is_true(o, "tail_is_cut"));
	json_decref(o);
	for (int i = 1; i <= 26; i++)
		buf_printf(&b, "line %d\n", i);
	put("stderr.log", buf_str(&b));
	o = facts();
	assert_true(!strncmp(member(o, "tail"), "line 2\n", 7));
	assert_non_null(strstr(member(o, "tail"), "line 26\n"));
	assert_string_equal(member(o, "tail_of"), "stderr");
	assert_true(is_true(o, "tail_is_cut"));
	json_decref(o);
	put("stderr.log", strchr(buf_str(&b), '\n') + 1);
	o = facts();
	assert_true(!strncmp(member(o, "tail"), "line 2\n", 7));
	assert_false(is_true(o, "tail_is_cut"));
	json_decref(o);
	put("stderr.log", "0%\r50%\r100%\r\nno \xc3 end");
	o = facts();
	assert_string_equal(member(o, "tail"), "100%\nno \xEF\xBF\xBD end");
	json_decref(o);
	buf_done(&b);
}

/* A line without an end, of gigabytes. */
static void test_huge(void **state)
{
	char path[160];
	json_t *o;

	path_of("stderr.log", path);
	append("stderr.log", "CUDA out of memory, long ago\n", 29);
	assert_int_equal(truncate(path, (off_t)8 << 30), 0);
	for (int i = 0; i < 6000; i++)
		append("stderr.log", "xxxxü", 6);
	append("stderr.log", "end", 3); /* so that the limit falls into a character */
	path_of("result.json", path);
	append("result.json", "{", 1);
	assert_int_equal(truncate(path, (off_t)8 << 30), 0);
	path_of("status", path);
	append("status", "5%\n", 3);
	o = facts();
	assert_true(strlen(member(o, "tail")) <= FACTS_TAIL_MAX);
	assert_true(strlen(member(o, "tail")) > FACTS_TAIL_MAX - 8);
	assert_true(is_true(o, "tail_is_cut"));
	assert_true(is_true(o, "result_is_cut"));
	assert_true(json_string_length(json_object_get(o, "result")) <= FACTS_RESULT_MAX);
	/* Said before the last 64 MiB: not looked for. */
	assert_int_equal(json_array_size(json_object_get(o, "says")), 0);
	json_decref(o);
}

static void test_result(void **state)
{
	char *big;
	json_t *o;

	put("result.json", "{\"a\":\n 1}\n");
	o = facts();
	assert_string_equal(member(o, "result"), "{\"a\":\n 1}\n");
	assert_false(is_true(o, "result_is_cut"));
	json_decref(o);
	put("result.json", "");
	o = facts();
	assert_string_equal(member(o, "result"), "");
	json_decref(o);
	append("result.json", "a\0b\xff", 4);
	o = facts();
	assert_string_equal(member(o, "result"), "a\xEF\xBF\xBD"
						 "b\xEF\xBF\xBD");
	json_decref(o);
	big = xmalloc(FACTS_RESULT_MAX + 2);
	memset(big, 'x', FACTS_RESULT_MAX + 1);
	big[FACTS_RESULT_MAX + 1] = '\0';
	put("result.json", big);
	o = facts();
	assert_int_equal(strlen(member(o, "result")), FACTS_RESULT_MAX);
	assert_true(is_true(o, "result_is_cut"));
	json_decref(o);
	big[FACTS_RESULT_MAX] = '\0';
	put("result.json", big);
	o = facts();
	assert_false(is_true(o, "result_is_cut"));
	json_decref(o);
	free(big);
}

static void assert_says(const char *want)
{
	json_t *o = facts();
	char *got = json_dumps(json_object_get(o, "says"), JSON_COMPACT);

	assert_string_equal(got, want);
	free(got);
	json_decref(o);
}

static void test_says(void **state)
{
	static char filler[300000];

	memset(filler, 'y', sizeof(filler));
	assert_says("[]");
	put("stdout.log", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate\n");
	assert_says("[\"cuda-oom\"]");
	put("stderr.log", "OSError: [Errno 28] No space left on device\n");
	assert_says("[\"cuda-oom\",\"disk-full\"]");
	append("stderr.log", filler,
		sizeof(filler)); /* far from the end, it's found all the same */
	append("stderr.log", "\0CUDA error: uncorrectable ECC error encountered\n", 49);
	assert_says("[\"cuda-oom\",\"disk-full\",\"gpu-fault\"]");
	/* What was found is kept while nothing changes, and forgotten when the output does. */
	put("stdout.log", "fine\n");
	put("stderr.log", "fine\n");
	assert_says("[]");
	put("stderr.log", "CUDA error: an illegal memory access was encountered\n"
			  "CUDA error: unspecified launch failure\nmemory\nno space left\n");
	assert_says("[]");
}

static unsigned says(const char *text, size_t n, size_t step)
{
	struct says_search *s = xcalloc(1, sizeof(*s));
	unsigned found;

	for (size_t at = 0; at < n; at += step)
		says_put(s, text + at, step < n - at ? step : n - at);
	found = s->found;
	free(s);
	return found;
}

/* A phrase may lie across any two pieces, and at any distance from the beginning. */
static void test_search_in_pieces(void **state)
{
	static char text[200000];
	static const char phrase[] = "GPU has fallen off the bus";
	size_t n = strlen(phrase);

	for (size_t at = SAYS_STEP - 2 * n; at < SAYS_STEP + SAYS_CARRY + 2 * n; at++) {
		memset(text, ' ', sizeof(text));
		memcpy(text + at, phrase, n);
		assert_int_equal(says(text, sizeof(text), SAYS_STEP), 1u << SAYS_GPU_FAULT);
		assert_int_equal(says(text, sizeof(text), sizeof(text)), 1u << SAYS_GPU_FAULT);
	}
	for (size_t step = 1; step < 80; step++)
		assert_int_equal(says(phrase, n, step), 1u << SAYS_GPU_FAULT);
	assert_int_equal(says(phrase, n - 1, 7), 0);
}

static void test_every_phrase(void **state)
{
	static const struct {
		enum says means;
		const char *text;
	} rows[] = {
		{SAYS_CUDA_OOM, "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB"},
		{SAYS_CUDA_OOM, "torch.OutOfMemoryError: x"},
		{SAYS_CUDA_OOM, "CUDA error: out of memory"},
		{SAYS_CUDA_OOM, "failed: CUDA_ERROR_OUT_OF_MEMORY"},
		{SAYS_CUDA_OOM, "(cudaErrorMemoryAllocation)"},
		{SAYS_CUDA_OOM, "RESOURCE_EXHAUSTED: Out of memory"},
		{SAYS_DISK_FULL, "write error: No space left on device"},
		{SAYS_DISK_FULL, "Disk quota exceeded"},
		{SAYS_GPU_FAULT, "CUDA error: uncorrectable ECC error encountered"},
		{SAYS_GPU_FAULT, "cudaErrorECCUncorrectable"},
		{SAYS_GPU_FAULT, "CUDA_ERROR_ECC_UNCORRECTABLE"},
		{SAYS_GPU_FAULT, "uncorrectable NVLink error detected during the execution"},
		{SAYS_GPU_FAULT, "CUDA_ERROR_NVLINK_UNCORRECTABLE"},
		{SAYS_GPU_FAULT, "NVRM: GPU has fallen off the bus."},
		{SAYS_GPU_FAULT, "GPU is lost"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (size_t step = 1; step < 90; step += 11)
			if (says(rows[i].text, strlen(rows[i].text), step) != 1u << rows[i].means)
				fail_msg("%s isn't understood", rows[i].text);
}

static void test_of_the_machine(void **state)
{
	json_t *o, *want;

	a.n_cards = 3;
	for (int i = 0; i < 3; i++)
		snprintf(cards[i].uuid, sizeof(cards[i].uuid), "GPU-%c", 'a' + i);
	cards[0].is_sampled = cards[2].is_sampled = true;
	cards[0].peak_mib = 4096;
	a.oom_kills = 5;
	a.oom_kills_end = 7;
	o = facts();
	want = json_pack("[[s, i], [s, i]]", "GPU-a", 4096, "GPU-c", 0);
	assert_true(json_equal(json_object_get(o, "peaks"), want));
	assert_int_equal(json_integer_value(json_object_get(o, "oom_kills")), 2);
	assert_int_equal(json_array_size(json_object_get(o, "xids")), 0);
	assert_true(json_is_array(json_object_get(o, "xids")));
	json_decref(want);
	json_decref(o);
	a.oom_kills_end = 4; /* it began anew: another boot */
	o = facts();
	assert_int_equal(json_integer_value(json_object_get(o, "oom_kills")), -1);
	json_decref(o);
}

static void test_vmstat(void **state)
{
	assert_int_equal(proc_parse_oom_kills("nr_free 1\noom_kill 17\nz 2\n"), 17);
	assert_int_equal(proc_parse_oom_kills("oom_kill 0"), 0);
	assert_int_equal(proc_parse_oom_kills("oom_killer 3\nxoom_kill 4\n"), -1);
	assert_int_equal(proc_parse_oom_kills("oom_kill -3\n"), -1);
	assert_int_equal(proc_parse_oom_kills("oom_kill x\n"), -1);
	assert_int_equal(proc_parse_oom_kills(""), -1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_progress),
		TEST(test_progress_is_cut),
		TEST(test_what_isnt_a_plain_file),
		TEST(test_no_directory),
		TEST(test_tail),
		TEST(test_huge),
		TEST(test_result),
		TEST(test_says),
		cmocka_unit_test(test_search_in_pieces),
		cmocka_unit_test(test_every_phrase),
		TEST(test_of_the_machine),
		cmocka_unit_test(test_vmstat),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
