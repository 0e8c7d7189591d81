/* Under the commands about hosts: the checklist's keys and its screen, the Host lines of an ssh_config, programs run for what they print, the disk. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "cli/capture.h"
#include "cli/checklist.h"
#include "cli/disk.h"
#include "cli/ssh_hosts.h"

#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

static enum checklist_answer feed(struct checklist *c, const char *keys)
{
	return checklist_feed(c, keys, strlen(keys));
}

/* "x.x" for what's checked, then the cursor. */
static void expect_list(const struct checklist *c, const char *checks, size_t cursor)
{
	char got[16] = "";

	for (size_t i = 0; i < c->n; i++)
		got[i] = c->items[i].is_checked ? 'x' : '.';
	assert_string_equal(got, checks);
	assert_int_equal(c->cursor, cursor);
}

static void checklist_keys(void **state)
{
	struct checklist_item items[] = {{"a", true}, {"b", true}, {"c", true}};
	struct checklist c = {.title = "t", .items = items, .n = 3}, none = {.title = "t"};

	(void)state;
	assert_int_equal(feed(&c, "j "), CHECKLIST_OPEN);
	expect_list(&c, "x.x", 1);
	assert_int_equal(feed(&c, "jjjj"), CHECKLIST_OPEN);
	expect_list(&c, "x.x", 2);
	assert_int_equal(feed(&c, "kkkkk"), CHECKLIST_OPEN);
	expect_list(&c, "x.x", 0);
	feed(&c, "i");
	expect_list(&c, ".x.", 0);
	feed(&c, "a");
	expect_list(&c, "xxx", 0);
	feed(&c, "n");
	expect_list(&c, "...", 0);
	feed(&c, "\x1b[B\x1bOB");
	expect_list(&c, "...", 2);
	feed(&c, "\x1b[A \x1b[H\x1b[F\x1b[5~");
	expect_list(&c, ".x.", 0);
	/* Sequences of keys that mean nothing here don't cancel and press no letters. */
	assert_int_equal(feed(&c, "\x1b[15;2~\x1b[I\x1bOP\x1bq"), CHECKLIST_OPEN);
	expect_list(&c, ".x.", 0);
	assert_int_equal(feed(&c, "s"), CHECKLIST_SAVE);
	assert_int_equal(feed(&c, "\r"), CHECKLIST_SAVE);
	assert_int_equal(feed(&c, "q"), CHECKLIST_CANCEL);
	assert_int_equal(feed(&c, "\x1b"), CHECKLIST_CANCEL);
	assert_int_equal(feed(&c, "\x03"), CHECKLIST_CANCEL);
	assert_int_equal(feed(&none, "jk ani\x1b[F"), CHECKLIST_OPEN);
}

static void checklist_scrolls(void **state)
{
	struct checklist_item items[30];
	struct checklist c = {.title = "Title", .items = items, .n = 30};
	char labels[30][8];

	(void)state;
	for (size_t i = 0; i < 30; i++) {
		snprintf(labels[i], sizeof(labels[i]), "h%zu", i);
		items[i] = (struct checklist_item){labels[i], i != 1};
	}
	for (int rows = 1; rows < 40; rows++) {
		for (size_t at = 0; at < 30; at++) {
			CLEANUP(buf_done) struct buf out = {0};
			char want[32];
			size_t lines = 1;

			c.cursor = at;
			checklist_put(&c, rows, 40, &out);
			snprintf(want, sizeof(want), "> [%c] h%zu\x1b[0m", at == 1 ? ' ' : 'x', at);
			assert_non_null(strstr(out.data, want));
			for (const char *p = out.data; (p = strstr(p, "\r\n")); p++)
				lines++;
			assert_true(lines <= (size_t)(rows < 4 ? 4 : rows));
			assert_non_null(strstr(out.data, "29 of 30 chosen"));
		}
	}
}

/* Cut at cells, not at bytes. */
static void checklist_cuts(void **state)
{
	struct checklist_item items[] = {{"大大大大", false}, {"b", false}};
	struct checklist c = {.title = "A title that's long", .items = items, .n = 2, .cursor = 1};
	CLEANUP(buf_done) struct buf out = {0};

	(void)state;
	if (!setlocale(LC_CTYPE, "C.UTF-8"))
		skip();
	checklist_put(&c, 10, 11, &out);
	assert_non_null(strstr(out.data, "A title tha\x1b[K"));
	assert_non_null(strstr(out.data, "  [ ] 大大\x1b[K"));
}

struct place {
	char dir[64];
};

static void place_init(struct place *p)
{
	snprintf(p->dir, sizeof(p->dir), "/tmp/test_hosts.XXXXXX");
	assert_non_null(mkdtemp(p->dir));
}

static void place_done(struct place *p)
{
	(void)fd_remove_tree_at(AT_FDCWD, p->dir);
}

static void put(const struct place *p, const char *name, const char *text)
{
	CLEANUP_FREE char *path = xasprintf("%s/%s", p->dir, name);

	assert_int_equal(fd_replace_at(AT_FDCWD, path, text, strlen(text), false), 0);
}

static void aliases(void **state)
{
	CLEANUP(place_done) struct place p;
	CLEANUP(ssh_aliases_done) struct ssh_aliases a = {0};
	CLEANUP(buf_done) struct buf got = {0};
	CLEANUP_FREE char *text = NULL, *path = NULL;
	struct err e = {0};

	(void)state;
	place_init(&p);
	text = xasprintf(
		"# Host no\nHost b a\t*.x !c d? # trailing\nhost=\"with blank\"   \"q\"\nHOST = e\r\n"
		"Hostname no\n  Host f f a\nHostNo no\nInclude %s/inc/*.conf %s/missing\nInclude \"%s/self\"\nMatch host m\n  Host g\nHost -x\nHost \x1b[31m",
		p.dir, p.dir, p.dir);
	put(&p, "config", text);
	put(&p, "self", text); /* includes itself */
	{
		CLEANUP_FREE char *inc = xasprintf("%s/inc", p.dir);

		assert_int_equal(mkdir(inc, 0700), 0);
	}
	put(&p, "inc/1.conf", "Host i1\n");
	put(&p, "inc/2.conf", "Host i2 b\n");
	put(&p, "inc/3.txt", "Host no\n");
	path = xasprintf("%s/config", p.dir);
	if (ssh_aliases_read(path, &a, &e) < 0)
		fail_msg("%s", e.text);
	for (size_t i = 0; i < a.n; i++)
		buf_printf(&got, "%s|", a.names[i]);
	assert_string_equal(got.data, "a|b|e|f|g|i1|i2|q|with blank|");
	assert_true(ssh_aliases_have(&a, "i2"));
	assert_false(ssh_aliases_have(&a, "no"));
	free(path);
	path = xasprintf("%s/nothing", p.dir);
	assert_int_equal(ssh_aliases_read(path, &a, &e), -ENOENT);
	assert_int_equal(ssh_aliases_read(p.dir, &a, &e), -EISDIR);
}

static void captures(void **state)
{
	CLEANUP(buf_done) struct buf out = {0}, complaints = {0};
	struct err e = {0};
	int code = -1;
	int64_t start = clock_boot_ms();

	(void)state;
	assert_int_equal(
		capture((const char *const[]){"sh", "-c", "echo out; echo bad >&2; exit 3", NULL},
			10000, 4096, &out, &complaints, &code, &e),
		0);
	assert_int_equal(code, 3);
	assert_string_equal(out.data, "out\n");
	assert_string_equal(complaints.data, "bad\n");
	/* A program that fills both pipes and more. */
	buf_clear(&out);
	buf_clear(&complaints);
	assert_int_equal(
		capture((const char *const[]){"sh", "-c",
				"head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero; kill -9 $$",
				NULL},
			10000, 1000, &out, &complaints, &code, &e),
		0);
	assert_int_equal(code, 128 + 9);
	assert_int_equal(out.len, 1000);
	assert_int_equal(complaints.len, 1000);
	/* One that doesn't end, and a child that holds its output. */
	assert_int_equal(capture((const char *const[]){"sh", "-c", "sleep 60 & sleep 60", NULL},
				 200, 100, &out, &complaints, &code, &e),
		-ETIMEDOUT);
	assert_true(clock_boot_ms() - start < 30000);
	assert_int_equal(capture((const char *const[]){"/no/such", NULL}, 200, 100, &out,
				 &complaints, &code, &e),
		-ENOENT);
	assert_string_equal(e.text, "cannot start /no/such: No such file or directory");
}

static void disk(void **state)
{
	CLEANUP(place_done) struct place p;
	CLEANUP(buf_done) struct buf held = {0}, text = {0};
	CLEANUP_FREE char *path = NULL;
	int ready[2];
	pid_t child;
	char c;

	(void)state;
	place_init(&p);
	assert_true(disk_is_ours(p.dir));
	put(&p, "config.yml", "basic:\n");
	path = xasprintf("%s/config.yml", p.dir);
	assert_true(disk_usage(p.dir) >= 4096 || disk_usage(p.dir) > 0);
	assert_int_equal(disk_usage("/no/such"), 0);
	assert_true(disk_is_ours(p.dir));
	assert_int_equal(disk_user(p.dir, &held), 0);
	assert_int_equal(pipe(ready), 0);
	child = fork();
	if (child == 0) {
		int fd = open(path, O_RDWR);
		pid_t holder;

		c = fd_lock(fd, &holder) == 0 ? 'y' : 'n';
		(void)!write(ready[1], &c, 1);
		pause();
		_exit(0);
	}
	assert_int_equal(read(ready[0], &c, 1), 1);
	assert_int_equal(c, 'y');
	assert_int_equal(disk_user(p.dir, &held), child);
	assert_string_equal(held.data, path);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	put(&p, "thesis.tex", "x");
	assert_false(disk_is_ours(p.dir));
	disk_put_bytes(&text, 512);
	disk_put_bytes(&text, 1024 * 1536);
	assert_string_equal(text.data, "512 bytes1.5 MiB");
	close(ready[0]);
	close(ready[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(checklist_keys),
		cmocka_unit_test(checklist_scrolls),
		cmocka_unit_test(checklist_cuts),
		cmocka_unit_test(aliases),
		cmocka_unit_test(captures),
		cmocka_unit_test(disk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
