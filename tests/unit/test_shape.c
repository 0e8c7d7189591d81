/* Which commands are "the same" and which aren't, by examples. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "core/shape.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static char *shape(const char *command)
{
	struct buf b = {0};

	shape_of(command, strlen(command), &b);
	return buf_take(&b);
}

static void is(const char *command, const char *want)
{
	CLEANUP_FREE char *got = shape(command);

	if (strcmp(got, want) != 0)
		fail_msg("%s\n  has the shape  %s\n  and should     %s", command, got, want);
}

static void same(const char *a, const char *b)
{
	CLEANUP_FREE char *x = shape(a), *y = shape(b);

	if (strcmp(x, y) != 0)
		fail_msg("%s\n%s\n  have the shapes\n%s\n%s", a, b, x, y);
}

static void other(const char *a, const char *b)
{
	CLEANUP_FREE char *x = shape(a), *y = shape(b);

	if (strcmp(x, y) == 0)
		fail_msg("%s\n%s\n  have one shape: %s", a, b, x);
}

static void test_numbers(void **state)
{
	(void)state;
	is("python train.py --lr 1e-3 --seed 4", "python train.py --lr <n> --seed <n>");
	same("python train.py --lr 1e-3 --seed 4", "python train.py --lr 0.05 --seed 17");
	same("python train.py --lr=1e-3", "python train.py --lr=.5");
	same("python train.py -1 -0.5 +3", "python train.py 100 2e10 7");
	same("./run -j8", "./run -j16");
	same("train lr=3e-4 model.depth=12", "train lr=1 model.depth=24");
	is("train lr=3e-4 model.depth=12", "train lr=<n> model.depth=<n>");
	is("x --mem 8GiB --wait 250ms --drop 10% --n 10_000",
		"x --mem <n> --wait <n> --drop <n> --n <n>");
	is("x --size 224x224 --steps 0-7 --part 1/4 --hex 0x1F --v 1.2.3 --at 3.",
		"x --size <n> --steps <n> --part <n> --hex <n> --v <n> --at <n>");
	is("x --layers 64,128,256 --device cuda:0", "x --layers <n>,<n>,<n> --device cuda:<n>");
	is("x '{\"lr\": 0.1, \"opt\": \"adam\"}'", "x {\"lr\": <n>, \"opt\": \"adam\"}");
}

static void test_numbers_inside_words_stay(void **state)
{
	(void)state;
	is("python train.py --model resnet50 --opt adam8bit vit_b_16",
		"python train.py --model resnet50 --opt adam8bit vit_b_16");
	other("python train.py --model resnet50", "python train.py --model resnet101");
	/* Sizes of models are words. */
	other("serve --size 7b", "serve --size 70b");
	other("serve meta-llama/Llama-3.1-8B", "serve meta-llama/Llama-3.1-70B");
	is("python3.11 train2.py", "python3.11 train2.py");
	is("x fp16 bf16 int8 --fp16", "x fp16 bf16 int8 --fp16");
	is("x - -- --", "x - -- --");
}

static void test_programs_scripts_and_options_stay(void **state)
{
	(void)state;
	other("python train.py --lr 1", "python eval.py --lr 1");
	other("python train.py --lr 1", "python train.py --wd 1");
	other("python train.py --opt adam", "python train.py --opt sgd");
	other("python /home/a/train.py", "python /home/a/eval.py");
	other("python -m pkg.train", "python -m pkg.eval");
	other("/opt/a/bin/sim 3", "/opt/b/bin/sim 3");
	is("/opt/conda3/bin/python -u /home/a/train.py 3",
		"/opt/conda3/bin/python -u /home/a/train.py <n>");
	is("bash /home/a/go 3", "bash /home/a/go <n>");
	is("torchrun --nproc_per_node 4 /home/a/train.py --lr 3",
		"torchrun --nproc_per_node <n> /home/a/train.py --lr <n>");
	is("accelerate launch train.py", "accelerate launch train.py");
}

static void test_paths(void **state)
{
	(void)state;
	is("python train.py --data /data/imagenet", "python train.py --data <path>");
	same("x --data /data/a", "x --data ~/b");
	same("x --data ../a", "x --data $HOME/b");
	same("x --data s3://bucket/key", "x --data https://host:8080/x?y=1");
	same("x out/a/b", "x c/d/");
	same("x data/a.tar", "x data/b.tar");
	is("x --data=\"/data/my dir/x, y\"", "x --data=<path>");
	is("x --ckpt-dir runs17 --output exp --log_file l",
		"x --ckpt-dir <path> --output <name> --log_file <path>");
	/* But a model isn't just anywhere. */
	is("x --model-path org/name", "x --model-path org/name");
	is("x > log.txt 2>&1", "x > <path> <n> >& <n>");
	same("x > a", "x > b");
	same("x <a", "x < b/c");
}

static void test_dates_hashes_names(void **state)
{
	(void)state;
	is("x --day 2026-11-30", "x --day <date>");
	is("x '{2026-11-30: 2026-12-01_10}'", "x {<date>: <date>}");
	same("x --at 2026-11-30T12:05:00Z", "x --at 20261130_120500");
	is("x --rev 3f2a9c1", "x --rev <hash>");
	same("x --rev 3f2a9c1d", "x --rev 0123456789abcdef0123456789abcdef01234567");
	same("x 6d1f0f66-9b0a-4f43-8a5e-2c1d8f6b7a90", "x 00000000-0000-4000-8000-000000000001");
	is("x --word deadbeef decade", "x --word deadbeef decade");
	same("x --seed 4", "x --seed abc");
	same("x trainer.seed=4", "x trainer.seed=77");
	same("x seed3 run_17 fold-2", "x seed4 run_2 fold-9");
	is("x seed3 run_17 seedling", "x seed<n> run_<n> seedling");
	same("x --run-name first-try", "x --run-name second");
	other("x --name first", "x --name second");
}

static void test_shell(void **state)
{
	(void)state;
	same("cd /home/a && python x.py 3", "cd b && python x.py 4");
	is("cd /home/a && python x.py 3", "cd <path> && python x.py <n>");
	same("env A=1 python x.py", "env A=2 python x.py");
	same("A=1 B=/x python x.py", "A=2 B=/y python x.py");
	is("CUDA_LAUNCH_BLOCKING=1 nohup nice -n 5 /opt/x/run /data/y",
		"CUDA_LAUNCH_BLOCKING=<n> nohup nice -n <n> /opt/x/run <path>");
	other("A=1 python x.py", "B=1 python x.py");
	same("python x.py \"3\" '4'", "python x.py 3 4");
	is("x 'it is' \"a  b\" c\\ d", "x it is a b c d");
	is("x \"--lr 3\"", "x --lr <n>");
	is("bash -c 'cd /a && /opt/run 3 | tee /tmp/x'",
		"bash -c {cd <path> && /opt/run <n> | tee <path>}");
	same("bash -lc \"python x.py --lr 3\"", "bash -lc 'python x.py --lr 4'");
	other("bash -c 'python x.py'", "bash -c 'python y.py'");
	is("a;b|c&&d||e&", "a ; b | c && d || e &");
	is("(a 1; b 2)", "( a <n> ; b <n> )");
	is("for i in 1 2 3; do ./x $i; done", "for i in <n> <n> <n> ; do ./x $i ; done");
}

static void test_scripts_of_several_lines(void **state)
{
	(void)state;
	is("#!/bin/bash\n# trains\n\nset -e\ncd /x   # there\n\npython a.py \\\n  --lr 3\n\n",
		"set -e ; cd <path> ; python a.py --lr <n>");
	same("set -e\npython a.py 1\n", "set -e;   python a.py 2");
	is("", "");
	is(" \n\t\n", "");
	is("# only a comment", "");
	is("a#b 'c", "a#b c");
	is("a \\", "a \\");
}

static void test_bounds(void **state)
{
	CLEANUP(buf_done) struct buf a = {0}, b = {0}, deep = {0};
	CLEANUP_FREE char *x = NULL, *y = NULL, *z = NULL;

	(void)state;
	buf_puts(&a, "python x.py");
	while (a.len < 5000)
		buf_puts(&a, " \xc3\xa4word");
	buf_puts(&b, buf_str(&a));
	buf_puts(&b, " more");
	x = shape(buf_str(&a));
	y = shape(buf_str(&b));
	assert_in_range(strlen(x), SHAPE_MAX - 8, SHAPE_MAX);
	assert_string_not_equal(x, y); /* the end counts too */
	assert_int_equal(utf8_valid_len(x, strlen(x)), strlen(x));
	assert_memory_equal(x, y, 400);
	is("sh -c 'sh -c \"sh -c \\\"/opt/a 3 /b\\\"\"'",
		"sh -c {sh -c {sh -c {/opt/a <n> <path>}}}");
	/* The fourth within another is only text. */
	is("sh -c \"sh -c \\\"sh -c \\\\\\\"sh -c '/a 3'\\\\\\\"\\\"\"",
		"sh -c {sh -c {sh -c {sh -c {<path> <n>}}}}");
	for (int i = 0; i < 100; i++)
		buf_puts(&deep, "bash -c \"");
	z = shape(buf_str(&deep));
	assert_true(strlen(z) <= SHAPE_MAX);
}

/* Whatever comes in: bounded, ends, the same for the same bytes, nothing behind its end is read. */
static void test_anything(void **state)
{
	static const char letters[] = "ab19.-_/=,:;'\"\\ \n\t#()<>|&{}$~ex%\xc3\xa4\0Z";
	unsigned seed = (unsigned)time(NULL);

	(void)state;
	print_message("# seed %u\n", seed);
	srand(seed);
	for (int i = 0; i < 20000; i++) {
		size_t n = (size_t)rand() % 60;
		char *bytes = xmalloc(n + 1);
		struct buf x = {0}, y = {0};

		for (size_t k = 0; k < n; k++)
			bytes[k] = letters[(size_t)rand() % sizeof(letters)];
		bytes = xreallocarray(bytes, n ? n : 1, 1);
		shape_of(bytes, n, &x);
		shape_of(bytes, n, &y);
		assert_true(x.len <= SHAPE_MAX);
		assert_string_equal(buf_str(&x), buf_str(&y));
		assert_int_equal(strlen(buf_str(&x)), x.len);
		assert_null(strchr(buf_str(&x), '\n'));
		buf_done(&x);
		buf_done(&y);
		free(bytes);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_numbers_inside_words_stay),
		cmocka_unit_test(test_programs_scripts_and_options_stay),
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_dates_hashes_names),
		cmocka_unit_test(test_shell),
		cmocka_unit_test(test_scripts_of_several_lines),
		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_anything),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
