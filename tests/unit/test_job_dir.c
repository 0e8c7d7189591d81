/* Job directories: what a launch says turned into paths, making one among hostile names and links, taking many away. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "claim_fixture.h"

#include "agent/job_dir.h"

#define LEAF QUEUE "/7.1"

struct place {
	struct fixture f;
	struct claim_spec s;
	char top[128]; /* the job root */
};

static void place_init(struct place *p)
{
	fixture_init(&p->f);
	spec_init(&p->f, 7, "true", &p->s);
	snprintf(p->top, sizeof(p->top), "%s/jobs", p->f.dir);
	p->s.dir = xasprintf("%s/%s", p->top, LEAF);
	p->s.body = xstrdup("#!/bin/sh\necho 'ü' $X\n");
}

static void place_done(struct place *p)
{
	claim_spec_done(&p->s);
	fixture_done(&p->f);
}

static void path_of(const struct place *p, const char *below, char ret[512])
{
	assert_true(snprintf(ret, 512, "%s/%s", p->f.dir, below) < 512);
}

static void put_file(const struct place *p, const char *below, const char *text)
{
	char path[512];
	path_of(p, below, path);
	CLEANUP_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
}

static void make_dir(const struct place *p, const char *below)
{
	char path[512];
	path_of(p, below, path);
	assert_int_equal(mkdir(path, 0700), 0);
}

static void make_link(const struct place *p, const char *target, const char *below)
{
	char path[512];
	path_of(p, below, path);
	assert_int_equal(symlink(target, path), 0);
}

static struct sys_stat look(const struct place *p, const char *below)
{
	char path[512];
	struct sys_stat st = {0};
	path_of(p, below, path);
	sys_stat_at(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, &st);
	return st;
}

static void must_make(struct place *p)
{
	if (job_dir_make(&p->f.root, &p->s, &p->f.e) != 0)
		fail_msg("%s", p->f.e.text);
}

static void must_refuse(struct place *p, int code, const char *word)
{
	p->f.e.text[0] = '\0';
	assert_int_equal(job_dir_make(&p->f.root, &p->s, &p->f.e), code);
	if (!strstr(p->f.e.text, word))
		fail_msg("\"%s\" isn't in: %s", word, p->f.e.text);
}

/* --- making --- */

static void test_make(void **state)
{
	struct place p;
	place_init(&p);
	must_make(&p);
	CLEANUP_FREE char *text = file_text(&p.f, "jobs/" LEAF "/run.sh");
	assert_string_equal(text, p.s.body);
	assert_int_equal(look(&p, "jobs/" LEAF "/run.sh").mode, S_IFREG | 0700);
	assert_int_equal(look(&p, "jobs/" LEAF).mode, S_IFDIR | 0700);
	assert_int_equal(look(&p, "jobs/" QUEUE).mode, S_IFDIR | 0700);
	assert_int_equal(look(&p, "jobs").mode, S_IFDIR | 0700);
	job_dir_drop(&p.s);
	assert_false(file_exists(&p.f, "jobs/" LEAF));
	assert_true(file_exists(&p.f, "jobs/" QUEUE));
	place_done(&p);
}

/* Whatever lies there under its name is what an earlier launch left; what a link there points to isn't. */
static void test_leftovers_go_and_their_targets_stay(void **state)
{
	struct place p;
	char target[512];
	place_init(&p);
	make_dir(&p, "precious");
	put_file(&p, "precious/data", "x");
	path_of(&p, "precious", target);
	must_make(&p);
	put_file(&p, "jobs/" LEAF "/stdout.log", "of another life");
	make_link(&p, target, "jobs/" LEAF "/link");
	make_dir(&p, "jobs/" LEAF "/deep");
	put_file(&p, "jobs/" LEAF "/deep/er", "x");
	must_make(&p);
	assert_false(file_exists(&p.f, "jobs/" LEAF "/stdout.log"));
	assert_false(file_exists(&p.f, "jobs/" LEAF "/deep"));
	assert_true(file_exists(&p.f, "precious/data"));

	job_dir_drop(&p.s);
	make_link(&p, target, "jobs/" LEAF);
	must_make(&p);
	assert_int_equal(look(&p, "jobs/" LEAF).mode, S_IFDIR | 0700);
	assert_false(file_exists(&p.f, "precious/run.sh"));
	assert_true(file_exists(&p.f, "precious/data"));

	job_dir_drop(&p.s);
	path_of(&p, "jobs/" LEAF, target);
	assert_int_equal(mkfifo(target, 0600), 0);
	must_make(&p);
	assert_true(file_exists(&p.f, "jobs/" LEAF "/run.sh"));
	place_done(&p);
}

static void test_links_on_the_way(void **state)
{
	struct place p;
	char target[512], link[512];
	place_init(&p);
	make_dir(&p, "scratch");
	path_of(&p, "scratch", target);
	make_link(&p, target, "jobs");
	must_make(&p); /* our own link is where we want it */
	assert_true(file_exists(&p.f, "scratch/" LEAF "/run.sh"));
	job_dir_drop(&p.s);
	assert_false(file_exists(&p.f, "scratch/" LEAF));
	if (geteuid() == 0) {
		path_of(&p, "jobs", link);
		assert_int_equal(lchown(link, 12345, 12345), 0);
		must_refuse(&p, -EPERM, "uid 12345");
		assert_false(file_exists(&p.f, "scratch/" LEAF));
	}
	place_done(&p);
}

static void test_places_that_wont_do(void **state)
{
	struct place p;
	char path[512];
	place_init(&p);
	put_file(&p, "jobs", "a file");
	must_refuse(&p, -ENOTDIR, "isn't a directory");
	path_of(&p, "jobs", path);
	unlink(path);
	make_dir(&p, "jobs");
	make_dir(&p, "jobs/" QUEUE);
	path_of(&p, "jobs/" QUEUE, path);
	assert_int_equal(chmod(path, 0770), 0);
	must_refuse(&p, -EPERM, "chmod 700");
	assert_false(file_exists(&p.f, "jobs/" LEAF));
	if (geteuid() == 0) {
		assert_int_equal(chmod(path, 0700), 0);
		assert_int_equal(chown(path, 12345, 12345), 0);
		must_refuse(&p, -EPERM, "belongs to uid 12345");
	}
	place_done(&p);
}

static void test_staged(void **state)
{
	struct place p;
	char stage[512], path[320];
	place_init(&p);
	free(p.s.body);
	p.s.body = NULL;
	p.s.is_staged = true;
	must_refuse(&p, -ENOENT, "launch it anew");
	assert_false(file_exists(&p.f, "jobs"));
	snprintf(stage, 128, "root/new/%s", p.s.token);
	make_dir(&p, stage);
	snprintf(path, sizeof(path), "root/new/%s/body", p.s.token);
	make_link(&p, "/etc/passwd", path);
	must_refuse(&p, -ELOOP, "body");
	snprintf(stage, sizeof(stage), "%s/%s", p.f.dir, path);
	unlink(stage);
	put_file(&p, path, "echo staged\n");
	must_make(&p);
	CLEANUP_FREE char *text = file_text(&p.f, "jobs/" LEAF "/run.sh");
	assert_string_equal(text, "echo staged\n");
	place_done(&p);
}

/* A real disk without room: nothing of it is left, and the sentence says where and what to do. */
static void test_full_disk(void **state)
{
	struct place p;
	char path[512];
	place_init(&p);
	make_dir(&p, "tiny");
	path_of(&p, "tiny", path);
	if (geteuid() != 0 || mount("tmpfs", path, "tmpfs", 0, "size=64k,mode=700") < 0) {
		print_message("skipped: a full disk needs a mount, and that needs root\n");
		place_done(&p);
		skip();
	}
	free(p.s.dir);
	p.s.dir = xasprintf("%s/" LEAF, path);
	free(p.s.body);
	p.s.body = xmalloc(100001);
	memset(p.s.body, '#', 100000);
	p.s.body[100000] = '\0';
	must_refuse(&p, -ENOSPC, "make room there");
	assert_non_null(strstr(p.f.e.text, p.s.dir));
	assert_false(file_exists(&p.f, "tiny/" LEAF));
	p.s.body[100] = '\0';
	must_make(&p);
	assert_int_equal(umount2(path, MNT_DETACH), 0);
	place_done(&p);
}

#ifdef GPUSTOW_FAULT_POINTS
static void test_struck(void **state)
{
	struct place p;
	int status;
	place_init(&p);
	setenv("GPUSTOW_FAULT", "jobdir.before-run-sh:enospc", 1);
	must_refuse(&p, -ENOSPC, "make room there");
	unsetenv("GPUSTOW_FAULT");
	assert_false(file_exists(&p.f, "jobs/" LEAF));
	pid_t pid = fork();
	if (pid == 0) {
		setenv("GPUSTOW_FAULT", "jobdir.before-run-sh:kill", 1);
		job_dir_make(&p.f.root, &p.s, NULL);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_true(file_exists(&p.f, "jobs/" LEAF));
	assert_false(file_exists(&p.f, "jobs/" LEAF "/run.sh"));
	must_make(&p);
	place_done(&p);
}
#endif

/* --- what a launch says --- */

static const struct account account = {
	.is_known = true, .home = "/home/ann", .user = "ann", .shell = "/bin/zsh"};
static const struct attempt_name name7 = {.queue = QUEUE, .job = 7, .attempt = 1};

static json_t *job_of(const char *dir, const char *cwd)
{
	return json_pack("{s:s, s:s, s:s, s:[s], s:s, s:i}", "dir", dir, "cwd", cwd, "body", "x",
		"argv", "/bin/evil", "output", "/evil", "oom_kills", 0);
}

static const char *member(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));
	return s ? s : "(none)";
}

static bool has_text(const json_t *list, const char *text)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		if (!strcmp(json_string_value(json_array_get(list, i)), text))
			return true;
	return false;
}

static void test_expand(void **state)
{
	static const struct {
		const char *dir, *cwd, *want_dir, *want_cwd;
	} rows[] = {
		{".gpustow/jobs/" LEAF, "", "/home/ann/.gpustow/jobs/" LEAF, "/home/ann"},
		{"/data//jobs/" LEAF, "~", "/data//jobs/" LEAF, "/home/ann"},
		{"~/jobs/" LEAF, "~/x y", "/home/ann/jobs/" LEAF, "/home/ann/x y"},
		{"/" LEAF, "/x", "/" LEAF, "/x"},
	};
	struct err e;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		json_t *o = job_of(rows[i].dir, rows[i].cwd), *env = json_array();
		assert_int_equal(job_dir_expand(o, &name7, &account, env, &e), 0);
		assert_string_equal(member(o, "dir"), rows[i].want_dir);
		assert_string_equal(member(o, "cwd"), rows[i].want_cwd);
		assert_null(json_object_get(o, "argv"));
		assert_null(json_object_get(o, "output"));
		assert_null(json_object_get(o, "oom_kills"));
		json_decref(o);
		json_decref(env);
	}
}

static void test_expand_refuses(void **state)
{
	static const char *const dirs[] = {"/", "", "/home/ann", "/data/" QUEUE,
		"/data/" QUEUE "/7.2", "/data/" QUEUE "/8.1", "/data/x" LEAF, "/data/../" LEAF,
		"./" LEAF, "/a/./" LEAF, "/data/ffffffffffffffffffffffffffffffff/7.1", LEAF "/",
		"/data/" LEAF "/.."};
	struct err e = {0};
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		json_t *o = job_of(dirs[i], ""), *env = json_array();
		if (job_dir_expand(o, &name7, &account, env, &e) >= 0)
			fail_msg("%s was taken", dirs[i]);
		assert_non_null(strstr(e.text, "\"dir\""));
		json_decref(o);
		json_decref(env);
	}
	static const struct account homeless = {.is_known = true};
	json_t *o = job_of(LEAF, ""), *env = json_array();
	assert_int_equal(job_dir_expand(o, &name7, &homeless, env, &e), -ENOENT);
	assert_non_null(strstr(e.text, "no home"));
	json_object_set_new(o, "dir", json_string("/data/" LEAF));
	json_object_set_new(o, "cwd", json_string("/"));
	json_object_del(o, "body");
	assert_int_equal(job_dir_expand(o, &name7, &homeless, env, &e), -EINVAL);
	assert_non_null(strstr(e.text, "staged"));
	json_object_set_new(o, "staged", json_true());
	assert_int_equal(job_dir_expand(o, &name7, &homeless, env, &e), 0);
	json_decref(o);
	json_decref(env);
}

static void test_variables(void **state)
{
	json_t *o = job_of("/data/" LEAF, ""), *env = json_array();
	struct err e;
	setenv("LANG", "xx_YY.UTF-8", 1);
	assert_int_equal(job_dir_expand(o, &name7, &account, env, &e), 0);
	unsetenv("LANG");
	static const char *const want[] = {"HOME=/home/ann", "USER=ann", "LOGNAME=ann",
		"SHELL=/bin/zsh", "LANG=xx_YY.UTF-8", "GPUSTOW_JOB_DIR=/data/" LEAF,
		"NVIDB_JOB_DIR=/data/" LEAF, "GPUSTOW_STATUS_FILE=/data/" LEAF "/status",
		"NVIDB_STATUS_FILE=/data/" LEAF "/status",
		"GPUSTOW_RESULT_FILE=/data/" LEAF "/result.json",
		"NVIDB_RESULT_FILE=/data/" LEAF "/result.json"};
	for (size_t i = 0; i < ARRAY_LEN(want); i++)
		if (!has_text(env, want[i]))
			fail_msg("%s isn't there", want[i]);
	assert_int_equal(json_array_size(env), ARRAY_LEN(want) + 1); /* and PATH */
	json_decref(o);
	json_decref(env);
}

/* --- taking away --- */

static void make_job(struct place *p, const char *leaf)
{
	char path[256];
	snprintf(path, sizeof(path), "jobs/" QUEUE "/%s", leaf);
	make_dir(p, path);
	snprintf(path, sizeof(path), "jobs/" QUEUE "/%s/stdout.log", leaf);
	put_file(p, path, "x");
}

static size_t names_in_queue(struct place *p)
{
	return count_names(&p->f, "../jobs/" QUEUE);
}

static void test_remove(void **state)
{
	struct place p;
	char target[512];
	struct attempt_name names[] = {name7, {.queue = QUEUE, .job = 8, .attempt = 2},
		{.queue = QUEUE, .job = 99, .attempt = 1},
		{.queue = QUEUE, .job = 10, .attempt = 1}};
	place_init(&p);
	/* No root, no queue: nothing to remove. */
	assert_int_equal(job_dir_remove(p.top, names, 2, &p.f.e), 0);
	make_dir(&p, "precious");
	put_file(&p, "precious/data", "x");
	path_of(&p, "precious", target);
	make_dir(&p, "jobs");
	make_dir(&p, "jobs/" QUEUE);
	make_job(&p, "7.1");
	make_link(&p, target, "jobs/" QUEUE "/7.1/link");
	make_job(&p, "8.2");
	make_job(&p, "9.1");
	make_link(&p, target, "jobs/" QUEUE "/10.1");
	/* What an agent that died over it left behind goes with the next one. */
	make_job(&p, ".gone-0123456789abcdef");
	assert_int_equal(job_dir_remove(p.top, names, 4, &p.f.e), 3);
	assert_false(file_exists(&p.f, "jobs/" LEAF));
	WAIT_FOR(names_in_queue(&p) == 1);
	assert_true(file_exists(&p.f, "jobs/" QUEUE "/9.1/stdout.log"));
	assert_true(file_exists(&p.f, "precious/data"));
	/* A queue's directory behind somebody else's link is not ours to clear. */
	if (geteuid() == 0) {
		path_of(&p, "jobs", target);
		assert_int_equal(rename(target, p.s.output), 0);
		assert_int_equal(symlink(p.s.output, target), 0);
		assert_int_equal(lchown(target, 12345, 12345), 0);
		names[0].job = 9;
		assert_int_equal(job_dir_remove(p.top, names, 1, &p.f.e), -EPERM);
		unlink(target);
		fd_remove_tree_at(AT_FDCWD, p.s.output);
	}
	while (waitpid(-1, NULL, 0) > 0)
		;
	place_done(&p);
}

static int run_all(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_make),
		cmocka_unit_test(test_leftovers_go_and_their_targets_stay),
		cmocka_unit_test(test_links_on_the_way),
		cmocka_unit_test(test_places_that_wont_do),
		cmocka_unit_test(test_staged),
		cmocka_unit_test(test_full_disk),
#ifdef GPUSTOW_FAULT_POINTS
		cmocka_unit_test(test_struck),
#endif
		cmocka_unit_test(test_expand),
		cmocka_unit_test(test_expand_refuses),
		cmocka_unit_test(test_variables),
		cmocka_unit_test(test_remove),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return guarded(run_all);
}
