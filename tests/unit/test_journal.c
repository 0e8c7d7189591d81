/* The journal in memory: gpusched's folding and shapes, ours beside them, and what a record costs. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "journal_dir.h"

#include <malloc.h>

static struct journal *fold(const char *text)
{
	return journal_load_bytes(text, strlen(text));
}

static void load_fixture(const char *name, struct buf *b)
{
	const char *root = getenv("SOURCE_ROOT");
	char path[512];

	snprintf(path, sizeof(path), "%s/tests/unit/journal/%s", root ? root : ".", name);
	assert_int_equal(fd_read_file_at(AT_FDCWD, path, b, 1 << 20), 0);
}

static void test_a_journal_of_gpusched_0_3(void **state)
{
	CLEANUP(buf_done) struct buf b = {0};
	load_fixture("gpusched-0.3.jsonl", &b);
	struct journal *j = journal_load_bytes(b.data, b.len);

	assert_int_equal(journal_count(j), 2);
	assert_int_equal(journal_skipped(j), 0);
	assert_int_equal(journal_highest_no(j), 2);
	struct job_record *r = journal_find_no(j, 1);
	assert_string_equal(r->command, "true");
	assert_int_equal(r->status, JOB_OK);
	assert_int_equal(r->last->attempts, 1);
	assert_true(r->has_returncode && r->last->returncode == 0);
	assert_int_equal(r->last->n_peaks, 2);
	assert_int_equal(r->last->peaks[1].gpu, 1);
	assert_int_equal(r->last->peaks[1].mib, 7801);
	assert_true(r->has_util && r->last->avg_util == 84.0);
	r = journal_find_no(j, 2);
	assert_string_equal(r->command, "echo \"\xc3\xa9\" \xf0\x9f\x98\x80\x7f\t");
	assert_int_equal(r->status, JOB_FAILED);
	assert_int_equal(r->last->attempts, 2);
	assert_int_equal(r->next_vram, 9750);
	assert_int_equal(r->last->returncode, -9);
	assert_false(r->has_util);
	journal_free(j);
}

static void test_a_journal_of_gpusched_0_4(void **state)
{
	CLEANUP(buf_done) struct buf b = {0};
	load_fixture("gpusched-0.4.jsonl", &b);
	struct journal *j = journal_load_bytes(b.data, b.len);
	static const enum job_status wanted[] = {
		JOB_CANCELLED, JOB_RUNNING, JOB_PENDING, JOB_PENDING, JOB_INFEASIBLE, JOB_TIMEOUT};

	assert_int_equal(journal_count(j), 6);
	for (uint64_t no = 1; no <= 6; no++)
		assert_int_equal(journal_find_no(j, no)->status, wanted[no - 1]);
	struct job_record *r = journal_find_no(j, 2);
	assert_int_equal(r->last->pgid, 4711);
	assert_true(r->was_started);
	assert_false(r->is_bound);
	assert_int_equal(r->last->start_ticks, 0);
	assert_int_equal(r->last->n_gpus, 2);
	assert_int_equal(r->last->gpus[1], 1);
	assert_string_equal(r->last->uuids[1], "");
	assert_string_equal(r->last->root_id, "");
	assert_int_equal(journal_find_no(j, 3)->last->pgid, 0);
	assert_int_equal(journal_find_no(j, 3)->last->attempts, 0);
	assert_int_equal(journal_find_no(j, 4)->last->attempts, 1);
	assert_int_equal(journal_find_no(j, 4)->next_vram, -1);
	assert_true(journal_find_no(j, 6)->last->avg_util == 67.5);
	assert_string_equal(journal_queue(j), "");
	assert_int_equal(journal_epoch(j), 0);
	journal_free(j);
}

static void test_folding_of_what_is_absent(void **state)
{
	struct journal *j =
		fold(SEEN STARTED "{\"key\": \"k#0\", \"event\": \"oom\", \"next_vram\": 100}\n"
				  "{\"key\": \"k#0\", \"event\": \"oom\"}\n");
	struct job_record *r = journal_find(j, "k#0");

	/* attempts + 1 each, the bump unchanged where it isn't named. */
	assert_int_equal(r->last->attempts, 2);
	assert_int_equal(r->next_vram, 100);
	assert_int_equal(r->status, JOB_PENDING);
	assert_int_equal(r->last->pgid, 0);
	journal_free(j);

	j = fold("{\"key\": \"k#0\", \"event\": \"oom\", \"attempts\": 5, \"next_vram\": 7}\n"
		 "{\"key\": \"k#0\", \"event\": \"oom\", \"attempts\": 6, \"next_vram\": null}\n");
	assert_int_equal(journal_find(j, "k#0")->last->attempts, 6);
	assert_int_equal(journal_find(j, "k#0")->next_vram, -1);
	journal_free(j);

	j = fold(
		"{\"key\": \"k#0\", \"event\": \"done\"}\n{\"key\": \"m#0\", \"event\": \"done\", \"status\": \"new word\"}\n");
	assert_int_equal(journal_find(j, "k#0")->status, JOB_FAILED);
	assert_int_equal(journal_find(j, "k#0")->last->attempts, 1);
	assert_false(journal_find(j, "k#0")->has_returncode);
	assert_true(job_status_is_terminal(journal_find(j, "m#0")->status));
	journal_free(j);
}

static void test_peaks_in_any_dress(void **state)
{
	struct journal *j = fold(
		"{\"key\": \"k#0\", \"event\": \"done\", \"status\": \"ok\", \"returncode\": 0, \"peak_mib\": "
		"{\"0\": 10, \"1\": 20.9, \"2\": \"30\", \"x\": 4, \"3\": null}, \"avg_util\": 7}\n");
	struct job_record *r = journal_find(j, "k#0");

	assert_int_equal(r->last->n_peaks, 4);
	assert_int_equal(r->last->peaks[0].mib, 10);
	assert_int_equal(r->last->peaks[1].mib, 20);
	assert_int_equal(r->last->peaks[2].mib, 30);
	assert_int_equal(r->last->peaks[3].mib, 0);
	assert_true(r->has_util && r->last->avg_util == 7.0);
	journal_free(j);
}

static void test_an_unknown_event_makes_an_empty_state(void **state)
{
	struct journal *j = fold("{\"key\": \"k#0\", \"event\": \"dreamt\"}\n{\"key\": \"m#0\"}\n");

	assert_int_equal(journal_count(j), 2);
	assert_int_equal(journal_skipped(j), 0);
	assert_int_equal(journal_at(j, 0)->status, JOB_PENDING);
	assert_int_equal(journal_at(j, 0)->no, 0);
	journal_free(j);
}

static void test_strange_lines_are_skipped_and_counted(void **state)
{
	static const char text[] =
		"[1]\n17\nnull\n\"x\"\n{}\n{\"event\": \"seen\"}\n{\"key\": 5, \"event\": \"seen\"}\n"
		"{\"key\": \"\"}\n\xff\xfe\n{\"key\": \"a\0b\"}\n\n   \n{\"key\": \"k#0\", \"ev" SEEN
			SEEN "{\"key\": \"waytoolongforakeyofgpusched00000000\"}\n"
		"{\"key\": \"n#0\", \"event\": \"seen\", \"no\": 99999999999999999999}\n";
	struct journal *j = journal_load_bytes(text, sizeof(text) - 1);

	assert_int_equal(journal_skipped(j), 13);
	assert_int_equal(journal_count(j), 1);
	assert_int_equal(journal_find_no(j, 7)->status, JOB_PENDING);
	journal_free(j);
}

static void test_numbers_that_would_overflow(void **state)
{
	struct journal *j = fold(
		"{\"key\": \"k#0\", \"event\": \"seen\", \"no\": 9223372036854775807, \"command\": \"x\"}\n"
		"{\"key\": \"k#0\", \"event\": \"oom\", \"attempts\": 9223372036854775807}\n"
		"{\"key\": \"k#0\", \"event\": \"done\", \"peak_mib\": {\"0\": 1e300}}\n"
		"{\"event\": \"epoch\", \"epoch\": 9223372036854775807}\n");

	assert_int_equal(journal_highest_no(j), 0);
	assert_int_equal(journal_epoch(j), 0);
	assert_int_equal(journal_find(j, "k#0")->last->attempts, 2);
	assert_int_equal(journal_seen(j, "m#0", "y")->no, 1);
	journal_free(j);
}

/* Replaces what follows `"time": "` up to the quote, so that lines can be compared. */
static void mask_times(struct buf *b)
{
	static const char mark[] = "\"time\": \"";

	for (char *at = b->data; at && (at = strstr(at, mark)); at++) {
		char *from = at + strlen(mark), *to = strchr(from, '"');
		assert_int_equal(to - from, 29);
		memset(from, 'T', 29);
	}
}

#define T "\"time\": \"TTTTTTTTTTTTTTTTTTTTTTTTTTTTT\""

/* A start may be lost with the machine, for it ends with it; whatever else lies in the batch may not. */
static void test_what_must_last(void **state)
{
	struct dir *d = *state;
	struct journal *j = load(d);

	open_append(j);
	assert_false(journal_must_last(j));
	struct job_record *r = journal_seen(j, "5ffe533b830f#0", "x");
	assert_true(journal_must_last(j));
	bind(j, r, 1);
	assert_int_equal(journal_commit(j, journal_must_last(j), NULL), 0);
	journal_started(j, r, 4711, 99);
	assert_true(journal_has_batch(j) && !journal_must_last(j));
	assert_int_equal(journal_commit(j, journal_must_last(j), NULL), 0);
	assert_false(journal_has_batch(j));
	journal_interrupted(j, r);
	bind(j, r, 2);
	journal_started(j, r, 4712, 100);
	assert_true(journal_must_last(j));
	journal_free(j);
}

static void test_shapes_byte_for_byte(void **state)
{
	struct dir *d = *state;
	CLEANUP(buf_done) struct buf b = {0}, wanted = {0};
	struct journal *j = load(d);

	open_append(j);
	struct job_record *r =
		journal_seen(j, "5ffe533b830f#0", "echo \"\xc3\xa9\" \\ \xf0\x9f\x98\x80\t\x7f");
	bind(j, r, 1);
	journal_unbind(j, r, "refused: no room");
	bind(j, r, 2);
	journal_started(j, r, 4711, 99);
	journal_interrupted(j, r);
	bind(j, r, 3);
	journal_started(j, r, 4712, 100);
	journal_oom(j, r, 9750, 1.5);
	bind(j, r, 4);
	journal_oom(j, r, -1, -1);
	bind(j, r, 5);
	journal_started(j, r, 4713, 101);
	journal_done_record(j, r,
		&(struct journal_done){.status = JOB_FAILED_OOM,
			.returncode = -9,
			.peaks = (struct journal_peak[]){{0, 7800}, {1, 0}, {2, 5}},
			.n_peaks = 3,
			.has_util = true,
			.avg_util = 84,
			.seconds = 2,
			.how = "signal"});
	journal_retry(j, r);
	r = journal_seen(j, "k#0", "x");
	journal_done_record(j, r, &(struct journal_done){.status = JOB_CANCELLED, .seconds = -1});
	commit(j);
	read_file(d, &b);
	mask_times(&b);
#define BIND(a) \
	"{\"key\": \"5ffe533b830f#0\", \"event\": \"bind\", \"attempt\": " a \
	", \"token\": \"00112233445566778899aabbccddeeff\", \"root_id\": \"root\", \"machine_key\": " \
	"\"machine\", \"boot_id\": \"boot\", \"gpus\": [0, 1], \"uuids\": [\"GPU-a\", \"GPU-b\"], \"vram\": 8192, " \
	"\"log\": \"logs/job001_gpu0-1.log\", \"log_offset\": 17, " T "}\n"
#define START(g, a, t) \
	"{\"key\": \"5ffe533b830f#0\", \"event\": \"started\", \"pgid\": " g \
	", \"gpus\": [0, 1], \"attempt\": " a ", \"pid\": " g ", \"start_ticks\": " t \
	", \"boot_id\": \"boot\", " T "}\n"
	buf_printf(&wanted,
		"{\"event\": \"queue\", \"version\": 1, \"queue\": \"%s\", \"incarnation\": 1, " T
		"}\n",
		journal_queue(j));
	buf_puts(&wanted,
		"{\"event\": \"epoch\", \"epoch\": 1, " T "}\n"
		"{\"key\": \"5ffe533b830f#0\", \"event\": \"seen\", \"no\": 1, \"command\": \"echo \\\"\\u00e9\\\" "
		"\\\\ \\ud83d\\ude00\\t\\u007f\"}\n" BIND("1") "{\"key\": \"5ffe533b830f#0\", \"event\": \"unbind\", \"attempt\": 1, \"why\": \"refused: no room\"}\n" BIND(
			"2") START("4711", "2",
			"99") "{\"key\": \"5ffe533b830f#0\", \"event\": \"interrupted\"}\n" BIND("3") START("4712",
			"3",
			"100") "{\"key\": \"5ffe533b830f#0\", \"event\": \"oom\", \"attempts\": 1, \"next_vram\": 9750, \"attempt\": 3, "
			       "\"seconds\": 1.5, " T
			       ", \"log\": \"logs/job001_gpu0-1.log\"}\n" BIND(
				       "4") "{\"key\": \"5ffe533b830f#0\", \"event\": \"oom\", \"attempts\": 2, \"next_vram\": null, \"attempt\": 4, " T
					    ", \"log\": \"logs/job001_gpu0-1.log\"}\n" BIND(
						    "5") START("4713", "5",
						    "101") "{\"key\": \"5ffe533b830f#0\", \"event\": \"done\", \"status\": \"failed_oom\", \"returncode\": -9, "
							   "\"peak_mib\": {\"0\": 7800, \"2\": 5}, \"avg_util\": 84.0, \"attempt\": 5, \"seconds\": 2.0, " T
							   ", \"how\": \"signal\", \"log\": \"logs/job001_gpu0-1.log\"}\n"
							   "{\"key\": \"5ffe533b830f#0\", \"event\": \"retry\", " T
							   "}\n"
							   "{\"key\": \"k#0\", \"event\": \"seen\", \"no\": 2, \"command\": \"x\"}\n"
							   "{\"key\": \"k#0\", \"event\": \"done\", \"status\": \"cancelled\", \"returncode\": 0, \"peak_mib\": {}, "
							   "\"avg_util\": null, " T "}\n");
	assert_string_equal(b.data, wanted.data);
	journal_free(j);
}

static void test_what_each_record_does(void **state)
{
	struct journal *j = fold("");
	struct job_record *r = journal_seen(j, "k#0", "x");

	assert_ptr_equal(journal_seen(j, "k#0", "x"), r);
	bind(j, r, 1);
	assert_true(r->is_bound && r->status == JOB_RUNNING && !r->was_started);
	assert_int_equal(r->last->bound_vram, 8192);
	assert_string_equal(r->last->uuids[1], "GPU-b");
	assert_string_equal(r->last->machine_key, "machine");
	assert_int_equal(r->last->log_offset, 17);
	journal_unbind(j, r, "");
	assert_true(!r->is_bound && r->status == JOB_PENDING && r->last->attempt == 1);
	bind(j, r, 2);
	journal_started(j, r, 5, 6);
	assert_true(
		r->is_bound && r->was_started && r->last->pgid == 5 && r->last->start_ticks == 6);
	assert_int_equal(r->last->n_gpus, 2);
	journal_done_record(
		j, r, &(struct journal_done){.status = JOB_FAILED, .returncode = 3, .seconds = 1});
	assert_true(!r->is_bound && r->last->pgid == 0 && r->last->attempts == 1 &&
		    r->last->seconds == 1.0);
	journal_retry(j, r);
	assert_int_equal(r->status, JOB_PENDING);
	assert_int_equal(r->last->attempts, 1);
	assert_int_equal(strlen(r->time), 29);
	/* A retry of what runs changes nothing. */
	bind(j, r, 3);
	journal_retry(j, r);
	assert_int_equal(r->status, JOB_RUNNING);
	journal_free(j);
}

static void test_ten_thousand_keys_in_memory(void **state)
{
	CLEANUP(buf_done) struct buf text = {0};

	for (int i = 0; i < 10000; i++) {
		buf_printf(&text,
			"{\"key\": \"%012x#0\", \"event\": \"seen\", \"no\": %d, \"command\": \"python train.py --lr 1e-4 --seed %d\"}\n",
			i * 7919, i + 1, i);
		buf_printf(&text,
			"{\"key\": \"%012x#0\", \"event\": \"bind\", \"attempt\": 1, \"token\": "
			"\"00112233445566778899aabbccddeeff\", \"root_id\": \"00112233445566778899aabbccddeeff\", "
			"\"machine_key\": \"%064d\", \"boot_id\": \"0f0e0d0c-0000-0000-0000-000000000000\", \"gpus\": [0], "
			"\"uuids\": [\"GPU-01234567-89ab-cdef-0123-456789abcdef\"], \"vram\": 8192, \"log\": "
			"\"gpusched_logs/job%d_gpu0.log\", \"log_offset\": 0, \"time\": \"2026-06-14T02:16:56.123+02:00\"}\n",
			i * 7919, 7, i);
		buf_printf(&text,
			"{\"key\": \"%012x#0\", \"event\": \"done\", \"status\": \"ok\", \"returncode\": 0, "
			"\"peak_mib\": {\"0\": 7800}, \"avg_util\": 84.0}\n",
			i * 7919);
	}
	size_t before = mallinfo2().uordblks;
	struct journal *j = journal_load_bytes(text.data, text.len);
	size_t after = mallinfo2().uordblks;
	assert_int_equal(journal_count(j), 10000);
	assert_int_equal(journal_find_no(j, 9999)->last->n_peaks, 1);
	print_message("# 10,000 keys: %.2f MB\n", (double)(after - before) / 1e6);
	/* Under a sanitizer mallinfo2 tells nothing. */
	assert_true(after - before < 5000000);
	journal_free(j);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_journal_of_gpusched_0_3),
		cmocka_unit_test(test_a_journal_of_gpusched_0_4),
		cmocka_unit_test(test_folding_of_what_is_absent),
		cmocka_unit_test(test_peaks_in_any_dress),
		cmocka_unit_test(test_an_unknown_event_makes_an_empty_state),
		cmocka_unit_test(test_strange_lines_are_skipped_and_counted),
		cmocka_unit_test(test_numbers_that_would_overflow),
		WITH_DIR(test_what_must_last),
		WITH_DIR(test_shapes_byte_for_byte),
		cmocka_unit_test(test_what_each_record_does),
		cmocka_unit_test(test_ten_thousand_keys_in_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
