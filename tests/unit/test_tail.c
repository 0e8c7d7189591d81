/* The last lines of a file, read from behind: every edge by name, and any content against a plain reading of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/tail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int file_of(const char *bytes, size_t n)
{
	FILE *f = tmpfile();

	assert_non_null(f);
	assert_int_equal(fwrite(bytes, 1, n, f), n);
	fflush(f);
	return dup(fileno(f));
}

static int64_t tail_of(int fd, int64_t size, int64_t lines, int64_t max, size_t budget)
{
	struct tail t;
	int64_t start = -7;
	bool is_cut = false;
	int r;

	tail_begin(&t, size, lines, max);
	while (!(r = tail_step(&t, fd, budget, &start, &is_cut)))
		;
	assert_int_equal(r, 1);
	assert_int_equal(is_cut, start > 0);
	return start;
}

/* From the front, as one reads the contract. */
static int64_t plainly(const char *bytes, int64_t size, int64_t lines, int64_t max)
{
	int64_t floor = size > max ? size - max : 0, n = 0, start = size;

	if (!lines)
		return size;
	for (int64_t i = size; i-- > floor;) {
		bool is_begin = i == 0 || bytes[i - 1] == '\n';

		if (is_begin && n < lines) {
			start = i;
			n++;
		}
	}
	/* Not even one line begins there. */
	return n ? start : floor;
}

static void edges(void **state)
{
	static const struct {
		const char *bytes;
		int64_t size, lines, max, start;
	} rows[] = {
		{"", 0, 5, 100, 0},
		{"", 0, 0, 100, 0},
		{"a", 1, 1, 100, 0},
		{"a", 1, 0, 100, 1},
		{"a\n", 2, 1, 100, 0},
		{"\n", 1, 1, 100, 0},
		{"\n\n", 2, 1, 100, 1},
		{"a\nb", 3, 1, 100, 2},
		{"a\nb\n", 4, 1, 100, 2},
		{"a\nb\n", 4, 2, 100, 0},
		{"a\nb\n", 4, 3, 100, 0},
		{"a\n\nb\n", 5, 2, 100, 2},
		{"a\r\nb\r\nc\r\n", 9, 2, 100, 3},
		{"1%\r2%\r3%", 8, 1, 100, 0},
		{"a\0b\n\0\n", 6, 1, 100, 4},
		/* max: whole lines, or the midst of the only one. */
		{"aaaa\nbbbb\ncccc\n", 15, 9, 12, 5},
		{"aaaa\nbbbb\ncccc\n", 15, 9, 10, 5},
		{"aaaa\nbbbb\ncccc\n", 15, 9, 9, 10},
		{"aaaa\nbbbb\ncccc\n", 15, 9, 3, 12},
		{"aaaa", 4, 1, 0, 4},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		int fd = file_of(rows[i].bytes, (size_t)rows[i].size);
		int64_t got = tail_of(fd, rows[i].size, rows[i].lines, rows[i].max, 1 << 20);

		if (got != rows[i].start)
			print_message("# row %zu\n", i);
		assert_int_equal(got, rows[i].start);
		assert_int_equal(plainly(rows[i].bytes, rows[i].size, rows[i].lines, rows[i].max),
			rows[i].start);
		close(fd);
	}
}

static void any_content(void **state)
{
	unsigned seed = (unsigned)getpid();
	char *bytes = malloc(70000);

	print_message("# seed %u\n", seed);
	srand(seed);
	for (int round = 0; round < 300; round++) {
		int64_t size = rand() % 3 ? rand() % 200 : rand() % 70000;
		int rare = rand() % 4 ? 4 : 20000;
		int fd;

		for (int64_t i = 0; i < size; i++)
			bytes[i] = rand() % rare ? (char)(rand() % 256) : '\n';
		fd = file_of(bytes, (size_t)size);
		for (int i = 0; i < 10; i++) {
			int64_t lines = rand() % 40, max = rand() % (2 * size + 2);

			assert_int_equal(
				tail_of(fd, size, lines, max, (size_t)(1 + rand() % 100000)),
				plainly(bytes, size, lines, max));
		}
		close(fd);
	}
	free(bytes);
}

/* A progress bar's log: one line of 100 MB. It's looked through a bit at a time, and no further than max. */
static void huge_line(void **state)
{
	const int64_t size = 100 * 1000 * 1000;
	FILE *f = tmpfile();
	int fd = fileno(f), steps = 0, r;
	struct tail t;
	int64_t start;
	bool is_cut;

	assert_int_equal(ftruncate(fd, size), 0);
	assert_int_equal(pwrite(fd, "end\n", 4, size - 4), 4);
	tail_begin(&t, size, 25, 64 << 20);
	while (!(r = tail_step(&t, fd, 1 << 20, &start, &is_cut)))
		steps++;
	assert_int_equal(r, 1);
	assert_int_equal(steps, 64);
	assert_int_equal(start, size - (64 << 20));
	assert_true(is_cut);
	fclose(f);
}

/* Shorter than it was said to be, while it's being read. */
static void shrinks_meanwhile(void **state)
{
	int fd = file_of("a\nb\n", 4);

	assert_int_equal(tail_of(fd, 100000, 1, 1 << 20, 1 << 20), 4);
	assert_int_equal(tail_of(fd, 100000, 50, 1 << 20, 1 << 20), 0);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(edges),
		cmocka_unit_test(any_content),
		cmocka_unit_test(huge_line),
		cmocka_unit_test(shrinks_meanwhile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
