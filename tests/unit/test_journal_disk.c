/* The journal on disk: torn files, cut at every byte, full disks, somebody else's hand, and reloading. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "journal_dir.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

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
		assert_int_equal(x->last->attempts, y->last->attempts);
		assert_int_equal(x->last->attempt, y->last->attempt);
		assert_int_equal(x->is_bound, y->is_bound);
		assert_int_equal(x->was_started, y->was_started);
		assert_int_equal(x->last->pgid, y->last->pgid);
		assert_int_equal(x->last->start_ticks, y->last->start_ticks);
		assert_int_equal(x->next_vram, y->next_vram);
		assert_int_equal(x->last->n_peaks, y->last->n_peaks);
		assert_true(x->last->avg_util == y->last->avg_util);
		assert_true(x->last->seconds == y->last->seconds);
		assert_string_equal(x->time, y->time);
		assert_string_equal(x->last->token, y->last->token);
		assert_string_equal(x->last->boot_id, y->last->boot_id);
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
		bind(j, r, r->last->attempt + 1);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_DIR(test_a_missing_file_is_empty_and_nothing_is_written),
		WITH_DIR(test_only_plain_files),
		WITH_DIR(test_a_torn_last_line_is_closed),
		WITH_DIR(test_a_whole_last_line_without_newline_counts),
		WITH_DIR(test_somebody_else_wrote_meanwhile),
		WITH_DIR(test_a_reload_ends_where_memory_was),
		WITH_DIR(test_cut_at_every_byte),
		WITH_DIR(test_a_short_write_is_taken_back),
		WITH_DIR(test_a_full_disk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
