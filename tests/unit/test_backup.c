/* Names of backups and what of a directory is pruned; publishing without hard links; when one is due; the way back. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "store_fixture.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "store/store_inner.h"
#include "svc/backup.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char *in(const struct bed *b, const char *name)
{
	return xasprintf("%s/%s", b->dir, name);
}

static void write_text(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static struct backup_made backup(struct bed *b, const char *path, int64_t keep)
{
	CLEANUP_FREE char *dir = in(b, "backups");
	struct backup_made made = {0};

	OK(backup_make(b->s, dir, path, keep, &made, &why));
	return made;
}

static bool is_there(const char *path)
{
	return access(path, F_OK) == 0;
}

static void test_names(void **state)
{
	static const char *const bad[] = {"", "queue.db", "queue-20260102T030405Z.db",
		"queue-20260102T030405.678000Z.db.old", "queue-20260102T030405.678000Z-1.db",
		"queue-20260102T030405.678000Z-.db", "queue-20260102T030405.678000Z-02.db",
		"queue-20260102T030405.67800xZ.db", "xqueue-20260102T030405.678000Z.db",
		"queue-20260102T030405.678000Z-99999999.db", "queue-replaced-20260102T030405Z.db",
		"queue-20260102T030405.678000Z"};
	char name[BACKUP_NAME_MAX];
	struct backup_order order;

	(void)state;
	backup_name(1767323045678, 1, name);
	assert_string_equal(name, "queue-20260102T030405.678000Z.db");
	assert_true(backup_name_parse(name, &order));
	assert_string_equal(order.stamp, "20260102T030405.678000Z");
	assert_int_equal(order.nth, 1);
	backup_name(1767323045678, 12, name);
	assert_string_equal(name, "queue-20260102T030405.678000Z-12.db");
	assert_true(backup_name_parse(name, &order));
	assert_int_equal(order.nth, 12);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (backup_name_parse(bad[i], &order))
			fail_msg("'%s' is taken for a backup", bad[i]);
}

/* One file, nobody's lease, checked, private, with the time in it; and the same jobs. */
static void test_backup_is_a_whole_database(void **state)
{
	struct bed *b = *state;
	CLEANUP(backup_made_done) struct backup_made made = {0};
	CLEANUP_FREE char *wal = NULL, *text = NULL;
	struct store_lease_row lease = {0};
	struct store *copy;
	struct stat st;
	unsigned char head[20];
	FILE *f;

	submit(b, "echo one");
	take_lease(b);
	submit(b, "echo two");
	made = backup(b, NULL, 0);
	assert_int_equal(stat(made.path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(st.st_nlink, 1);
	assert_int_equal(st.st_size, made.bytes);
	f = fopen(made.path, "r");
	assert_int_equal(fread(head, 1, 20, f), 20);
	fclose(f);
	assert_int_equal(head[18], 1);
	assert_int_equal(head[19], 1);
	wal = xasprintf("%s-wal", made.path);
	assert_false(is_there(wal));
	OK(open_as(made.path, STORE_READ, &copy));
	assert_string_equal(store_queue(copy), store_queue(b->s));
	OK(store_meta_get(copy, STORE_LAST_BACKUP, &text, &why));
	assert_int_equal(strtoll(text, NULL, 10), made.created_ms);
	OK(store_lease_read(copy, &lease, &why));
	assert_null(lease.owner);
	{
		struct store_jobs l;
		struct store_question q = {0};

		OK(store_jobs(copy, &q, &l, &why));
		assert_int_equal(l.n, 2);
		store_jobs_done(&l);
	}
	store_close(copy);
	assert_int_equal(backup_last_ms(b->s), made.created_ms);
	/* The lease of the queue itself is as it was. */
	OK(store_lease_renew(b->s, &b->lease, 1000, &why));
}

static void test_explicit_path(void **state)
{
	struct bed *b = *state;
	CLEANUP(backup_made_done) struct backup_made made = {0}, again = {0};
	CLEANUP_FREE char *path = in(b, "mine.db"), *other = in(b, "new"), *link = in(b, "link.db"),
			  *below = xasprintf("%s/new/", b->dir);

	made = backup(b, path, 0);
	assert_string_equal(made.path, path);
	assert_int_equal(backup_make(b->s, "/nowhere", path, 0, &again, &why), -EEXIST);
	assert_non_null(strstr(why.text, "never replaces"));
	assert_int_equal(backup_make(b->s, "/nowhere", b->path, 0, &again, &why), -EINVAL);
	assert_non_null(strstr(why.text, "database itself"));
	/* A link to nothing is there, too. */
	assert_int_equal(symlink("/nonexistent/x", link), 0);
	assert_int_equal(backup_make(b->s, "/nowhere", link, 0, &again, &why), -EEXIST);
	again = backup(b, below, 0);
	assert_int_equal(strncmp(again.path, other, strlen(other)), 0);
}

/* W-63: of all that lies there only this queue's backups go, the oldest first, whatever else is called queue-*.db. */
static void test_w63_keep_prunes_only_backups_of_this_queue(void **state)
{
	static const char *const others[] = {"queue-old.db", "queue-20200101T000000.000000Z.db",
		"queue-20200101T000001.000000Z.db.gz", "queue-replaced-20200101T000000Z.db"};
	struct bed *b = *state;
	CLEANUP_FREE char *stranger = in(b, "backups/queue-20200101T000002.000000Z.db"),
			  *renamed = in(b, "backups/important.db"),
			  *linked = in(b, "backups/queue-20200101T000003.000000Z.db"),
			  *dir = in(b, "backups"), *second = in(b, "second.db");
	struct backup_made made[5] = {0};
	CLEANUP(backup_made_done) struct backup_made foreign = {0}, mine = {0};
	struct store *s;

	for (size_t i = 0; i < ARRAY_LEN(others); i++) {
		CLEANUP_FREE char *name = xasprintf("%s/%s", dir, others[i]);

		OK(fd_mkdirs(dir, &why));
		write_text(name, "somebody's own");
	}
	/* Another queue's backup of that name; ours under another name; a link to ours. */
	OK(open_as(second, STORE_WRITE, &s));
	OK(backup_make(s, dir, stranger, 0, &foreign, &why));
	store_close(s);
	mine = backup(b, renamed, 0);
	assert_int_equal(symlink(renamed, linked), 0);
	for (int i = 0; i < 5; i++)
		made[i] = backup(b, NULL, i == 4 ? 2 : 0);
	assert_int_equal(made[4].n_pruned, 3);
	for (int i = 0; i < 3; i++)
		assert_false(is_there(made[i].path));
	assert_true(is_there(made[3].path));
	assert_true(is_there(made[4].path));
	for (size_t i = 0; i < ARRAY_LEN(others); i++) {
		CLEANUP_FREE char *name = xasprintf("%s/%s", dir, others[i]);

		assert_true(is_there(name));
	}
	assert_true(is_there(stranger));
	assert_true(is_there(renamed));
	assert_true(is_there(linked));
	for (int i = 0; i < 5; i++)
		backup_made_done(&made[i]);
}

static size_t count_files(const char *dir, const char *start)
{
	DIR *d = opendir(dir);
	const struct dirent *entry;
	size_t n = 0;

	while (d && (entry = readdir(d)))
		n += strncmp(entry->d_name, start, strlen(start)) == 0;
	if (d)
		closedir(d);
	return n;
}

/* W-63: without hard links, and without the newer rename too, a backup is still made, and still replaces nothing. */
static void test_w63_file_systems_without_hard_links(void **state)
{
	static const char *const lacks[] = {"link", "link,rename"};
	struct bed *b = *state;
	CLEANUP_FREE char *dir = in(b, "backups");

	for (size_t i = 0; i < ARRAY_LEN(lacks); i++) {
		CLEANUP(backup_made_done) struct backup_made made = {0}, again = {0};
		struct store *copy;

		setenv("GPUSTOW_TEST_LACKS", lacks[i], 1);
		made = backup(b, NULL, 0);
		OK(open_as(made.path, STORE_READ, &copy));
		OK(store_check(copy, &why));
		store_close(copy);
		assert_int_equal(backup_make(b->s, dir, made.path, 0, &again, &why), -EEXIST);
		unsetenv("GPUSTOW_TEST_LACKS");
	}
	assert_int_equal(count_files(dir, ".queue-backup-"), 0);
}

/* W-63: somebody makes a file of that name while the copy is made. In each way of publishing it's left alone. */
static void test_w63_a_name_taken_meanwhile(void **state)
{
	static const char *const lacks[] = {"", "link", "link,rename"};
	struct bed *b = *state;
	CLEANUP_FREE char *path = in(b, "mine.db");

	store_close(b->s);
	b->s = NULL;
	for (size_t i = 0; i < ARRAY_LEN(lacks); i++) {
		struct backup_made made = {0};
		char text[16] = "";
		int status, fd;
		pid_t child = fork();

		if (child == 0) {
			struct store *s;

			alarm(60);
			setenv("GPUSTOW_TEST_LACKS", lacks[i], 1);
			setenv("GPUSTOW_FAULT", "store.backup-after-copy:stop", 1);
			_exit(open_as(b->path, STORE_WRITE, &s) == 0 &&
						backup_make(s, b->dir, path, 0, &made, &why) ==
							-EEXIST
					? 42
					: 1);
		}
		assert_int_equal(waitpid(child, &status, WUNTRACED), child);
		assert_true(WIFSTOPPED(status));
		write_text(path, "somebody's");
		kill(child, SIGCONT);
		waitpid(child, &status, 0);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 42);
		fd = open(path, O_RDONLY);
		assert_int_equal(read(fd, text, sizeof(text) - 1), 10);
		close(fd);
		assert_string_equal(text, "somebody's");
		unlink(path);
	}
	assert_int_equal(count_files(b->dir, ".queue-backup-"), 0);
}

static void test_due(void **state)
{
	struct bed *b = *state;
	struct backup_settings set = {.enabled = true, .interval_ms = 3600000};
	CLEANUP(backup_made_done) struct backup_made made = {0}, failed = {0};
	int64_t now = clock_wall_ms();

	assert_true(backup_is_due(b->s, &set, now));
	made = backup(b, NULL, 0);
	assert_false(backup_is_due(b->s, &set, made.created_ms));
	assert_false(backup_is_due(b->s, &set, made.created_ms + set.interval_ms - 1));
	assert_true(backup_is_due(b->s, &set, made.created_ms + set.interval_ms));
	/* The clock was wrong when the last one was made. */
	assert_true(backup_is_due(b->s, &set, made.created_ms - 1));
	set.enabled = false;
	assert_false(backup_is_due(b->s, &set, made.created_ms + set.interval_ms));
	set.enabled = true;
	/* One that failed isn't tried again at every pass; but by hand at once. */
	assert_true(backup_make(b->s, "/proc/nowhere", NULL, 0, &failed, &why) < 0);
	assert_false(backup_is_due(b->s, &set, made.created_ms + set.interval_ms));
	failed = backup(b, NULL, 0);
	assert_true(backup_is_due(b->s, &set, failed.created_ms + set.interval_ms));
}

/* Another process is at it: one at a time; and one that died doesn't count. */
static void test_one_at_a_time(void **state)
{
	struct bed *b = *state;
	CLEANUP(backup_made_done) struct backup_made made = {0};
	struct backup_settings set = {.enabled = true, .interval_ms = 1};
	CLEANUP_FREE char *dir = in(b, "backups");
	int go[2], status;
	pid_t child;
	char c;

	store_close(b->s);
	assert_int_equal(pipe(go), 0);
	child = fork();
	if (child == 0) {
		struct store *s;

		/* Dies with all pages copied and nothing published. */
		setenv("GPUSTOW_FAULT", "store.backup-after-copy:stop", 1);
		if (open_as(b->path, STORE_WRITE, &s) == 0) {
			(void)!write(go[1], "x", 1);
			backup_make(s, dir, NULL, 0, &made, &why);
		}
		_exit(1);
	}
	assert_int_equal(read(go[0], &c, 1), 1);
	assert_int_equal(waitpid(child, &status, WUNTRACED), child);
	assert_true(WIFSTOPPED(status));
	OK(open_as(b->path, STORE_WRITE, &b->s));
	assert_int_equal(backup_make(b->s, dir, NULL, 0, &made, &why), -EBUSY);
	assert_false(backup_is_due(b->s, &set, clock_wall_ms()));
	assert_int_equal(count_files(dir, ".queue-backup-"), 1);
	/* Writers don't wait for it. */
	submit(b, "true");
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	made = backup(b, NULL, 0);
	assert_int_equal(count_files(dir, ".queue-backup-"), 0);
	assert_int_equal(count_files(dir, "queue-"), 1);
	close(go[0]);
	close(go[1]);
}

/* ---- the way back ---- */

static int64_t incarnation(struct store *s)
{
	int64_t n = 0;

	OK(store_incarnation(s, &n, &why));
	return n;
}

static void test_restore(void **state)
{
	struct bed *b = *state;
	CLEANUP(backup_made_done) struct backup_made made = {0};
	CLEANUP_FREE char *kept = NULL;
	struct store_node node = {.name = (char *)"n1", .observed_incarnation = 1};
	struct store_nodes nodes;
	struct store_lease lease;
	int64_t before, id;
	struct store *s;

	id = submit(b, "echo kept");
	OK(store_begin(b->s, NULL, &why));
	OK(store_node_put(b->s, &node, &why));
	commit(b);
	before = incarnation(b->s);
	made = backup(b, NULL, 0);
	assert_int_equal(submit(b, "echo later"), id + 1);
	take_lease(b);

	/* It's live: by its lease, and by who has it open. */
	assert_int_equal(backup_restore(made.path, b->path, &kept, &why), -EBUSY);
	OK(store_lease_release(b->s, &b->lease, &why));
	store_close(b->s);
	b->s = NULL;
	OK(backup_restore(made.path, b->path, &kept, &why));
	assert_non_null(kept);

	OK(open_as(b->path, STORE_WRITE, &b->s));
	assert_true(incarnation(b->s) > before);
	/* No node counts as observed, and no number is given twice. */
	OK(store_nodes(b->s, &nodes, &why));
	assert_true(nodes.v[0].observed_incarnation < incarnation(b->s));
	store_nodes_done(&nodes);
	assert_true(submit(b, "echo new") > id + 1000);
	OK(store_lease_take(b->s, "test", 1000, &lease, NULL, &why));
	assert_true(lease.incarnation > before);
	OK(store_lease_release(b->s, &lease, &why));
	/* What was there is whole beside it. */
	OK(open_as(kept, STORE_READ, &s));
	OK(store_check(s, &why));
	{
		struct job j = {0};

		OK(store_job(s, id + 1, &j, &why));
		assert_string_equal(j.command, "echo later");
		job_done(&j);
	}
	store_close(s);

	/* The same backup once more: the numbers still only grow. */
	before = incarnation(b->s);
	store_close(b->s);
	b->s = NULL;
	free(TAKE_PTR(kept));
	OK(backup_restore(made.path, b->path, &kept, &why));
	OK(open_as(b->path, STORE_WRITE, &b->s));
	OK(store_lease_take(b->s, "test", 1000, &lease, NULL, &why));
	assert_true(lease.incarnation > before);
	OK(store_lease_release(b->s, &lease, &why));
}

static void test_restore_of_an_open_database_is_refused(void **state)
{
	struct bed *b = *state;
	CLEANUP(backup_made_done) struct backup_made made = backup(b, NULL, 0);
	CLEANUP_FREE char *kept = NULL, *said = NULL;
	int go[2], status;
	pid_t child;
	char c;

	store_close(b->s);
	b->s = NULL;
	assert_int_equal(pipe(go), 0);
	child = fork();
	if (child == 0) {
		struct store *s;
		struct store_counts counts;

		if (open_as(b->path, STORE_READ, &s) == 0 && store_counts(s, &counts, &why) == 0)
			(void)!write(go[1], "x", 1);
		alarm(60); /* whatever becomes of the test */
		pause();
		_exit(0);
	}
	assert_int_equal(read(go[0], &c, 1), 1);
	assert_int_equal(backup_restore(made.path, b->path, &kept, &why), -EBUSY);
	said = xasprintf("process %d", (int)child);
	assert_non_null(strstr(why.text, said));
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	OK(backup_restore(made.path, b->path, &kept, &why));
	close(go[0]);
	close(go[1]);
}

/* A database that can't be opened any more is why one restores. */
static void test_restore_over_a_damaged_database(void **state)
{
	struct bed *b = *state;
	CLEANUP(backup_made_done) struct backup_made made = {0};
	CLEANUP_FREE char *kept = NULL, *text = in(b, "text.db"), *torn = in(b, "torn.db");
	char *junk = xcalloc(1, 65536);
	int fd;

	submit(b, "echo kept");
	made = backup(b, NULL, 0);
	store_close(b->s);
	b->s = NULL;
	fd = open(b->path, O_WRONLY);
	memset(junk, 'x', 65536);
	assert_int_equal(pwrite(fd, junk, 65536, 100), 65536);
	close(fd);
	/* Neither is anything else put there. */
	write_text(text, "no database");
	assert_int_equal(backup_restore(text, b->path, &kept, &why), -EMEDIUMTYPE);
	assert_int_equal(backup_restore("/nonexistent", b->path, &kept, &why), -ENOENT);
	assert_int_equal(backup_restore(b->path, b->path, &kept, &why), -EINVAL);
	{
		CLEANUP(buf_done) struct buf copy = {0};

		assert_int_equal(fd_read_file_at(AT_FDCWD, made.path, &copy, 64 << 20), 0);
		assert_int_equal(fd_replace_at(AT_FDCWD, torn, copy.data, copy.len, false), 0);
		fd = open(torn, O_WRONLY);
		assert_int_equal(pwrite(fd, junk, 20000, 4096), 20000);
		close(fd);
	}
	assert_true(backup_restore(torn, b->path, &kept, &why) < 0);
	assert_int_equal(count_files(b->dir, "queue.db.new"), 0);
	OK(backup_restore(made.path, b->path, &kept, &why));
	OK(open_as(b->path, STORE_WRITE, &b->s));
	OK(store_check(b->s, &why));
	assert_int_equal(store_is_elsewheres(b->s), 0);
	free(junk);
}

/* A queue with a damaged page that nobody has read yet: that's said instead of a backup. */
static void test_damage_is_found(void **state)
{
	struct bed *b = *state;
	CLEANUP(backup_made_done) struct backup_made made = {0}, bad = {0};
	CLEANUP_FREE char *to = in(b, "to");
	char page[4096];
	struct store *s;
	int fd;

	memset(page, 'x', sizeof(page));
	page[sizeof(page) - 1] = '\0';
	for (int i = 0; i < 20; i++)
		submit(b, page);
	made = backup(b, NULL, 0);
	fd = open(made.path, O_WRONLY);
	memset(page, 0xff, sizeof(page));
	assert_int_equal(
		pwrite(fd, page, sizeof(page), made.bytes - (off_t)sizeof(page)), sizeof(page));
	close(fd);
	OK(open_as(made.path, STORE_WRITE, &s));
	assert_int_equal(backup_make(s, to, NULL, 0, &bad, &why), -EBADMSG);
	assert_non_null(strstr(why.text, "check"));
	store_close(s);
	assert_int_equal(count_files(to, "queue-") + count_files(to, ".queue-"), 0);
}

/* A backup of another machine's queue becomes this one's. */
static void test_restore_on_another_machine(void **state)
{
	struct bed *b = *state;
	CLEANUP_FREE char *kept = NULL, *path = in(b, "elsewhere.db"),
			  *to = in(b, "other/queue.db");
	CLEANUP(backup_made_done) struct backup_made made = {0};
	struct store_options there = {.mode = STORE_WRITE, .machine_key = "ffff"};
	struct store *s;

	OK(store_open(path, &there, &s, &why));
	OK(backup_make(s, b->dir, NULL, 0, &made, &why));
	store_close(s);
	OK(backup_restore(made.path, to, &kept, &why));
	assert_null(kept);
	OK(open_as(to, STORE_WRITE, &s));
	assert_false(store_is_elsewheres(s));
	assert_true(incarnation(s) > 1);
	store_close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test_setup_teardown(
			test_backup_is_a_whole_database, bed_make, bed_drop),
		cmocka_unit_test_setup_teardown(test_explicit_path, bed_make, bed_drop),
		cmocka_unit_test_setup_teardown(
			test_w63_keep_prunes_only_backups_of_this_queue, bed_make, bed_drop),
		cmocka_unit_test_setup_teardown(
			test_w63_file_systems_without_hard_links, bed_make, bed_drop),
		cmocka_unit_test_setup_teardown(
			test_w63_a_name_taken_meanwhile, bed_make, bed_drop),
		cmocka_unit_test_setup_teardown(test_due, bed_make, bed_drop),
		cmocka_unit_test_setup_teardown(test_one_at_a_time, bed_make, bed_drop),
		cmocka_unit_test_setup_teardown(test_restore, bed_make, bed_drop),
		cmocka_unit_test_setup_teardown(
			test_restore_of_an_open_database_is_refused, bed_make, bed_drop),
		cmocka_unit_test_setup_teardown(
			test_restore_over_a_damaged_database, bed_make, bed_drop),
		cmocka_unit_test_setup_teardown(test_damage_is_found, bed_make, bed_drop),
		cmocka_unit_test_setup_teardown(
			test_restore_on_another_machine, bed_make, bed_drop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
