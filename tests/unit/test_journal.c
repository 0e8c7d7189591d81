/* The journal: gpusched's folding and shapes, ours beside them, torn files, full disks, and that a reload ends where memory was. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "run/journal.h"

#include "base/cleanup.h"
#include "base/fd.h"

#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct dir {
	char path[64];
	int fd;
};

static int dir_make(void **state)
{
	struct dir *d = calloc(1, sizeof(*d));

	if (!d)
		return -1;
	/* Thousands of syncs are made here: in memory, where there's a place for that. */
	snprintf(d->path, sizeof(d->path), "%s/gpustow-journal-XXXXXX",
		access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
	if (!mkdtemp(d->path))
		return -1;
	d->fd = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*state = d;
	return d->fd < 0;
}

static int dir_remove(void **state)
{
	struct dir *d = *state;

	close(d->fd);
	fd_remove_tree_at(AT_FDCWD, d->path);
	free(d);
	return 0;
}

static struct journal *load(const struct dir *d)
{
	struct err e = {0};
	struct journal *j = NULL;

	if (journal_load(d->fd, &j, &e) < 0)
		fail_msg("%s", e.text);
	return j;
}

static void open_append(struct journal *j)
{
	struct err e = {0};

	if (journal_open_append(j, &e) < 0)
		fail_msg("%s", e.text);
}

static void commit(struct journal *j)
{
	struct err e = {0};

	if (journal_commit(j, true, &e) < 0)
		fail_msg("%s", e.text);
	assert_false(journal_has_batch(j));
}

static void read_file(const struct dir *d, struct buf *b)
{
	buf_clear(b);
	assert_int_equal(fd_read_file_at(d->fd, "journal.jsonl", b, 1 << 26), 0);
}

static void write_file(const struct dir *d, const char *bytes, size_t n)
{
	assert_int_equal(fd_replace_at(d->fd, "journal.jsonl", bytes, n, false), 0);
}

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

#define SEEN "{\"key\": \"k#0\", \"event\": \"seen\", \"no\": 7, \"command\": \"true\"}\n"
#define STARTED "{\"key\": \"k#0\", \"event\": \"started\", \"pgid\": 4711, \"gpus\": [0, 1]}\n"

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
	assert_int_equal(r->attempts, 1);
	assert_true(r->has_returncode && r->returncode == 0);
	assert_int_equal(r->n_peaks, 2);
	assert_int_equal(r->peaks[1].gpu, 1);
	assert_int_equal(r->peaks[1].mib, 7801);
	assert_true(r->has_util && r->avg_util == 84.0);
	r = journal_find_no(j, 2);
	assert_string_equal(r->command, "echo \"\xc3\xa9\" \xf0\x9f\x98\x80\x7f\t");
	assert_int_equal(r->status, JOB_FAILED);
	assert_int_equal(r->attempts, 2);
	assert_int_equal(r->next_vram, 9750);
	assert_int_equal(r->returncode, -9);
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
	assert_int_equal(r->pgid, 4711);
	assert_true(r->was_started);
	assert_false(r->is_bound);
	assert_int_equal(r->start_ticks, 0);
	assert_int_equal(r->n_gpus, 2);
	assert_int_equal(r->gpus[1], 1);
	assert_string_equal(r->uuids[1], "");
	assert_string_equal(r->root_id, "");
	assert_int_equal(journal_find_no(j, 3)->pgid, 0);
	assert_int_equal(journal_find_no(j, 3)->attempts, 0);
	assert_int_equal(journal_find_no(j, 4)->attempts, 1);
	assert_int_equal(journal_find_no(j, 4)->next_vram, -1);
	assert_true(journal_find_no(j, 6)->avg_util == 67.5);
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
	assert_int_equal(r->attempts, 2);
	assert_int_equal(r->next_vram, 100);
	assert_int_equal(r->status, JOB_PENDING);
	assert_int_equal(r->pgid, 0);
	journal_free(j);

	j = fold("{\"key\": \"k#0\", \"event\": \"oom\", \"attempts\": 5, \"next_vram\": 7}\n"
		 "{\"key\": \"k#0\", \"event\": \"oom\", \"attempts\": 6, \"next_vram\": null}\n");
	assert_int_equal(journal_find(j, "k#0")->attempts, 6);
	assert_int_equal(journal_find(j, "k#0")->next_vram, -1);
	journal_free(j);

	j = fold(
		"{\"key\": \"k#0\", \"event\": \"done\"}\n{\"key\": \"m#0\", \"event\": \"done\", \"status\": \"new word\"}\n");
	assert_int_equal(journal_find(j, "k#0")->status, JOB_FAILED);
	assert_int_equal(journal_find(j, "k#0")->attempts, 1);
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

	assert_int_equal(r->n_peaks, 4);
	assert_int_equal(r->peaks[0].mib, 10);
	assert_int_equal(r->peaks[1].mib, 20);
	assert_int_equal(r->peaks[2].mib, 30);
	assert_int_equal(r->peaks[3].mib, 0);
	assert_true(r->has_util && r->avg_util == 7.0);
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
	assert_int_equal(journal_find(j, "k#0")->attempts, 2);
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

static void bind(struct journal *j, struct job_record *r, uint32_t attempt)
{
	struct job_record bound = {.attempt = attempt,
		.token = "00112233445566778899aabbccddeeff",
		.root_id = "root",
		.machine_key = "machine",
		.boot_id = "boot",
		.bound_vram = 8192,
		.log_offset = 17};
	char log[] = "logs/job001_gpu0-1.log";

	bound.log = log;
	job_record_set_gpus(&bound, (int32_t[]){0, 1}, (const char *const[]){"GPU-a", "GPU-b"}, 2);
	journal_bind(j, r, &bound);
	job_record_clear_gpus(&bound);
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
	assert_int_equal(r->bound_vram, 8192);
	assert_string_equal(r->uuids[1], "GPU-b");
	assert_string_equal(r->machine_key, "machine");
	assert_int_equal(r->log_offset, 17);
	journal_unbind(j, r, "");
	assert_true(!r->is_bound && r->status == JOB_PENDING && r->attempt == 1);
	bind(j, r, 2);
	journal_started(j, r, 5, 6);
	assert_true(r->is_bound && r->was_started && r->pgid == 5 && r->start_ticks == 6);
	assert_int_equal(r->n_gpus, 2);
	journal_done_record(
		j, r, &(struct journal_done){.status = JOB_FAILED, .returncode = 3, .seconds = 1});
	assert_true(!r->is_bound && r->pgid == 0 && r->attempts == 1 && r->seconds == 1.0);
	journal_retry(j, r);
	assert_int_equal(r->status, JOB_PENDING);
	assert_int_equal(r->attempts, 1);
	assert_int_equal(strlen(r->time), 29);
	/* A retry of what runs changes nothing. */
	bind(j, r, 3);
	journal_retry(j, r);
	assert_int_equal(r->status, JOB_RUNNING);
	journal_free(j);
}

static void test_a_missing_file_is_empty_and_nothing_is_written(void **state)
{
	struct dir *d = *state;
	struct journal *j = load(d);
	struct stat st;

	assert_int_equal(journal_count(j), 0);
	assert_int_equal(fstatat(d->fd, "journal.jsonl", &st, 0), -1);
	open_append(j);
	assert_int_equal(fstatat(d->fd, "journal.jsonl", &st, 0), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(strlen(journal_queue(j)), 32);
	assert_int_equal(journal_epoch(j), 1);
	assert_int_equal(journal_incarnation(j), 1);
	journal_free(j);
	j = load(d);
	open_append(j);
	assert_int_equal(journal_epoch(j), 2);
	journal_free(j);
}

static void test_only_plain_files(void **state)
{
	struct dir *d = *state;
	struct err e = {0};
	struct journal *j = NULL;

	assert_int_equal(mkfifoat(d->fd, "journal.jsonl", 0600), 0);
	assert_int_equal(journal_load(d->fd, &j, &e), -EINVAL);
	assert_null(j);
	assert_string_equal(
		e.text, "the journal (journal.jsonl) is not a plain file; move it away");
}

static void test_a_torn_last_line_is_closed(void **state)
{
	struct dir *d = *state;
	CLEANUP(buf_done) struct buf b = {0};

	write_file(d, SEEN "{\"key\": \"k#0\", \"event\": \"do", strlen(SEEN) + 28);
	struct journal *j = load(d);
	assert_int_equal(journal_skipped(j), 1);
	open_append(j);
	journal_seen(j, "m#0", "y");
	commit(j);
	journal_free(j);
	j = load(d);
	assert_int_equal(journal_skipped(j), 1);
	assert_int_equal(journal_find_no(j, 8)->status, JOB_PENDING);
	assert_int_equal(journal_epoch(j), 1);
	journal_free(j);
}

static void test_a_whole_last_line_without_newline_counts(void **state)
{
	struct dir *d = *state;

	write_file(d, SEEN, strlen(SEEN) - 1);
	struct journal *j = load(d);
	assert_int_equal(journal_highest_no(j), 7);
	open_append(j);
	journal_free(j);
	j = load(d);
	assert_int_equal(journal_skipped(j), 0);
	assert_int_equal(journal_highest_no(j), 7);
	journal_free(j);
}

static void test_somebody_else_wrote_meanwhile(void **state)
{
	struct dir *d = *state;
	struct err e = {0};

	write_file(d, SEEN, strlen(SEEN));
	struct journal *j = load(d);
	write_file(d, SEEN STARTED, strlen(SEEN STARTED));
	assert_int_equal(journal_open_append(j, &e), -EBUSY);
	assert_non_null(strstr(e.text, "another scheduler"));
	journal_free(j);
}

static void assert_same_records(const struct journal *a, const struct journal *b)
{
	assert_int_equal(journal_count(a), journal_count(b));
	assert_int_equal(journal_highest_no(a), journal_highest_no(b));
	for (size_t i = 0; i < journal_count(a); i++) {
		const struct job_record *x = journal_at(a, i), *y = journal_at(b, i);
		assert_string_equal(x->key, y->key);
		assert_int_equal(x->no, y->no);
		assert_int_equal(x->status, y->status);
		assert_int_equal(x->attempts, y->attempts);
		assert_int_equal(x->attempt, y->attempt);
		assert_int_equal(x->is_bound, y->is_bound);
		assert_int_equal(x->was_started, y->was_started);
		assert_int_equal(x->pgid, y->pgid);
		assert_int_equal(x->start_ticks, y->start_ticks);
		assert_int_equal(x->next_vram, y->next_vram);
		assert_int_equal(x->n_peaks, y->n_peaks);
		assert_true(x->avg_util == y->avg_util);
		assert_true(x->seconds == y->seconds);
		assert_string_equal(x->time, y->time);
		assert_string_equal(x->token, y->token);
		assert_string_equal(x->boot_id, y->boot_id);
	}
}

static void random_step(struct journal *j, unsigned *seed)
{
	char key[32], command[48];
	struct journal_peak peak = {0, (int64_t)rand_r(seed) % 90000};

	snprintf(key, sizeof(key), "%d#0", rand_r(seed) % 300);
	snprintf(command, sizeof(command), "run %s", key);
	struct job_record *r = journal_seen(j, key, command);
	switch (rand_r(seed) % 7) {
	case 0:
		bind(j, r, r->attempt + 1);
		break;
	case 1:
		journal_started(j, r, 1 + rand_r(seed) % 99999, (uint64_t)rand_r(seed));
		break;
	case 2:
		journal_unbind(j, r, "why");
		break;
	case 3:
		journal_interrupted(j, r);
		break;
	case 4:
		journal_oom(j, r, rand_r(seed) % 2 ? -1 : rand_r(seed) % 5000, rand_r(seed) / 1e7);
		break;
	case 5:
		journal_done_record(j, r,
			&(struct journal_done){
				.status = JOB_OK + (enum job_status)(rand_r(seed) % 6),
				.returncode = rand_r(seed) % 300 - 100,
				.peaks = &peak,
				.n_peaks = 1,
				.has_util = rand_r(seed) % 2,
				.avg_util = rand_r(seed) / 2.1e7,
				.seconds = rand_r(seed) / 1e6});
		break;
	default:
		journal_retry(j, r);
	}
}

static void test_a_reload_ends_where_memory_was(void **state)
{
	struct dir *d = *state;
	struct journal *j = load(d);
	unsigned seed = 12345;

	open_append(j);
	for (int i = 0; i < 3000; i++) {
		random_step(j, &seed);
		if (i % 100 == 0)
			commit(j);
	}
	commit(j);
	struct journal *again = load(d);
	assert_int_equal(journal_skipped(again), 0);
	assert_same_records(j, again);
	journal_free(again);
	journal_free(j);
}

/* A crash may leave any prefix: whole lines count, and the file can be gone on with. */
static void test_cut_at_every_byte(void **state)
{
	struct dir *d = *state;
	CLEANUP(buf_done) struct buf b = {0};
	struct journal *j = load(d);

	open_append(j);
	struct job_record *r = journal_seen(j, "k#0", "x");
	bind(j, r, 1);
	journal_started(j, r, 4, 5);
	journal_done_record(j, r, &(struct journal_done){.status = JOB_OK, .seconds = 1});
	journal_seen(j, "m#0", "y");
	commit(j);
	journal_free(j);
	read_file(d, &b);
	for (size_t cut = 0; cut <= b.len; cut++) {
		size_t whole = cut;
		while (whole > 0 && b.data[whole - 1] != '\n')
			whole--;
		/* Only the newline is missing: the line is whole. */
		if (cut < b.len && b.data[cut] == '\n')
			whole = cut;
		struct journal *wanted = journal_load_bytes(b.data, whole);
		write_file(d, b.data, cut);
		j = load(d);
		assert_int_equal(journal_skipped(j), whole < cut);
		assert_same_records(wanted, j);
		open_append(j);
		uint64_t no = journal_seen(j, "n#0", "z")->no;
		commit(j);
		journal_free(j);
		j = load(d);
		assert_int_equal(journal_count(j), journal_count(wanted) + 1);
		assert_int_equal(journal_find_no(j, no)->status, JOB_PENDING);
		assert_int_equal(journal_epoch(j), journal_epoch(wanted) + 1);
		journal_free(j);
		journal_free(wanted);
	}
}

/* A write that stops in the middle leaves no torn line, and the batch for the next time. */
static void test_a_short_write_is_taken_back(void **state)
{
	struct dir *d = *state;
	CLEANUP(buf_done) struct buf before = {0}, after = {0};
	struct err e = {0};
	struct rlimit old, small;
	struct journal *j = load(d);

	open_append(j);
	read_file(d, &before);
	struct job_record *r = journal_seen(j, "k#0", "a command of some length");
	bind(j, r, 1);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	void (*was)(int) = signal(SIGXFSZ, SIG_IGN);
	for (size_t room = 0; room < 300; room += 37) {
		small = (struct rlimit){before.len + room, old.rlim_max};
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
		int got = journal_commit(j, true, &e);
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
		assert_int_equal(got, -EFBIG);
		assert_non_null(strstr(e.text, "nothing is lost"));
		assert_true(journal_has_batch(j));
		read_file(d, &after);
		assert_int_equal(after.len, before.len);
	}
	signal(SIGXFSZ, was);
	/* More comes in the meantime; then all of it is written, once. */
	journal_started(j, r, 4, 5);
	commit(j);
	struct journal *again = load(d);
	assert_int_equal(journal_skipped(again), 0);
	assert_same_records(j, again);
	assert_true(journal_find(again, "k#0")->was_started);
	journal_free(again);
	journal_free(j);
}

/* In a child with mounts of its own. Exit code: 0 good, 77 not possible here, else the step that failed. */
static int fill_a_tmpfs(const struct dir *d)
{
	static char junk[4096];
	struct err e = {0};
	struct journal *j = NULL;

	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		mount("none", d->path, "tmpfs", 0, "size=65536") < 0)
		return 77;
	int dirfd = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (journal_load(dirfd, &j, &e) < 0 || journal_open_append(j, &e) < 0)
		return 1;
	int fd = openat(dirfd, "junk", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	while (write(fd, junk, sizeof(junk)) > 0)
		;
	struct stat before, after;
	fstatat(dirfd, "journal.jsonl", &before, 0);
	for (int i = 0; i < 200; i++) {
		char key[32];
		snprintf(key, sizeof(key), "%d#0", i);
		journal_seen(j, key, "a command that takes its room");
	}
	for (int i = 0; i < 3; i++)
		if (journal_commit(j, true, &e) != -ENOSPC || !journal_has_batch(j))
			return 2;
	fstatat(dirfd, "journal.jsonl", &after, 0);
	if (before.st_size != after.st_size)
		return 3;
	unlinkat(dirfd, "junk", 0);
	close(fd);
	if (journal_commit(j, true, &e) < 0 || journal_has_batch(j))
		return 4;
	journal_free(j);
	if (journal_load(dirfd, &j, &e) < 0 || journal_count(j) != 200 || journal_skipped(j) > 0)
		return 5;
	journal_free(j);
	close(dirfd);
	return 0;
}

static void test_a_full_disk(void **state)
{
	struct dir *d = *state;
	int status = 0;

	if (geteuid() != 0) {
		print_message("# only root may mount a small tmpfs\n");
		skip();
	}
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0)
		_exit(fill_a_tmpfs(d));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77) {
		print_message("# no mounts in this sandbox\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(status), 0);
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
	assert_int_equal(journal_find_no(j, 9999)->n_peaks, 1);
	print_message("# 10,000 keys: %.2f MB\n", (double)(after - before) / 1e6);
	/* Under a sanitizer mallinfo2 tells nothing. */
	assert_true(after - before < 5000000);
	journal_free(j);
}

#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, dir_make, dir_remove)

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
		WITH_DIR(test_shapes_byte_for_byte),
		cmocka_unit_test(test_what_each_record_does),
		WITH_DIR(test_a_missing_file_is_empty_and_nothing_is_written),
		WITH_DIR(test_only_plain_files),
		WITH_DIR(test_a_torn_last_line_is_closed),
		WITH_DIR(test_a_whole_last_line_without_newline_counts),
		WITH_DIR(test_somebody_else_wrote_meanwhile),
		WITH_DIR(test_a_reload_ends_where_memory_was),
		WITH_DIR(test_cut_at_every_byte),
		WITH_DIR(test_a_short_write_is_taken_back),
		WITH_DIR(test_a_full_disk),
		cmocka_unit_test(test_ten_thousand_keys_in_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
