/* The shim and the watch over a job: real processes, each test waiting for what it wants to see. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "claim_fixture.h"

#include "agent/shim.h"
#include "agent/supervise.h"
#include "base/parse.h"

#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>

struct job {
	struct fixture f;
	struct claim_spec s;
	pid_t shim;
	int fd;
};

static void job_init(struct job *j, const char *command)
{
	fixture_init(&j->f);
	spec_init(&j->f, 7, command, &j->s);
	j->shim = 0;
	j->fd = -1;
}

static void job_claim(struct job *j)
{
	must_claim(&j->f, &j->s);
	j->fd = claim_open(&j->f.root, &j->s.name);
	assert_true(j->fd >= 0);
}

static void job_fork(struct job *j)
{
	j->shim = shim_fork(&j->f.root, &j->s, &j->f.e);
	assert_true(j->shim > 0);
}

static void job_start(struct job *j)
{
	job_claim(j);
	job_fork(j);
}

static void job_done(struct job *j)
{
	close(j->fd);
	claim_spec_done(&j->s);
	fixture_done(&j->f);
}

/* The shim's own exit code, once it has gone. */
static int wait_shim(struct job *j)
{
	int status = 0;
	WAIT_FOR(waitpid(j->shim, &status, WNOHANG) == j->shim);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static struct attempt_end wait_end(struct job *j)
{
	WAIT_FOR(read_record(&j->f, &j->s).state == ATTEMPT_ENDED);
	return read_record(&j->f, &j->s).end;
}

static void stop_job(struct job *j, enum stop_reason reason, int64_t grace_ms)
{
	struct claim_record rec = read_record(&j->f, &j->s);
	assert_int_equal(claim_put_stop(j->fd, reason, grace_ms), 0);
	assert_int_equal(proc_signal(rec.shim_pid, rec.shim_start_ticks, SIGUSR1), 0);
}

/* The pid that a job wrote into a file of the fixture, once it's there whole. */
static pid_t wait_pid_file(struct job *j, const char *name)
{
	pid_t pid = 0;
	for (int64_t until = clock_boot_ms() + DEADLINE_MS; !pid;) {
		CLEANUP_FREE char *text = file_text(&j->f, name);
		if (strchr(text, '\n'))
			pid = (pid_t)strtol(text, NULL, 10);
		if (clock_boot_ms() > until)
			fail_msg("waited in vain for the file %s", name);
		sleep_ms(2);
	}
	assert_true(pid > 1);
	return pid;
}

static void make_file(struct job *j, const char *name)
{
	char path[4096];
	snprintf(path, sizeof(path), "%s/%s", j->f.dir, name);
	assert_int_equal(mknod(path, S_IFREG | 0600, 0), 0);
}

static bool is_gone(pid_t pid)
{
	return !proc_is_alive(pid, 0);
}

static void assert_output(struct job *j, const char *want)
{
	CLEANUP_FREE char *text = file_text(&j->f, "out7");
	assert_string_equal(text, want);
}

/* --- made ready ahead of the claim --- */

static pid_t child_of(pid_t pid)
{
	CLEANUP_FREE char *path = xasprintf("/proc/%d/task/%d/children", (int)pid, (int)pid);
	CLEANUP(buf_done) struct buf b = {0};
	int64_t child = 0;
	if (fd_read_file_at(AT_FDCWD, path, &b, 4096) == 0 && b.len > 0) {
		b.data[strcspn(b.data, " ")] = '\0';
		assert_int_equal(parse_int64(b.data, &child), 0);
	}
	return (pid_t)child;
}

/* It's called as a shim is, and its leader is there. */
static void wait_prepared(const struct shim_ready *x)
{
	WAIT_FOR(child_of(x->pid) > 0);
}

static void test_ready_waits_for_its_word(void **state)
{
	struct job j;
	struct shim_ready x = {0};
	int64_t before;
	job_init(&j, "echo out; exit 5");
	assert_int_equal(shim_prepare(&j.f.root, &j.s, &x, &j.f.e), 0);
	wait_prepared(&x);
	job_claim(&j);
	assert_int_equal(read_record(&j.f, &j.s).state, ATTEMPT_CLAIMED);
	assert_int_equal(access("out7", F_OK), -1);
	before = clock_boot_ms();
	j.shim = x.pid;
	assert_int_equal(shim_go(&x), j.shim);
	assert_int_equal(x.pid, 0);
	assert_int_equal(wait_shim(&j), 0);
	struct claim_record rec = read_record(&j.f, &j.s);
	assert_int_equal(rec.shim_pid, j.shim);
	assert_int_equal(rec.end.how, END_EXIT);
	assert_int_equal(rec.end.code, 5);
	assert_true(rec.end.started_boot_ms >= before);
	assert_output(&j, "out\n");
	job_done(&j);
}

/* Dropped, or its maker dies: it leaves, its leader with it, and nothing has run. */
static void test_ready_and_not_wanted(void **state)
{
	struct job j;
	struct shim_ready x = {0};
	int up[2];
	pid_t maker;
	job_init(&j, "touch ran");
	job_claim(&j);
	assert_int_equal(shim_prepare(&j.f.root, &j.s, &x, &j.f.e), 0);
	wait_prepared(&x);
	j.shim = x.pid;
	shim_drop(&x);
	assert_int_equal(wait_shim(&j), 1);
	assert_int_equal(pipe(up), 0);
	maker = fork();
	if (!maker) {
		if (!shim_prepare(&j.f.root, &j.s, &x, NULL))
			fd_write_all(up[1], &x.pid, sizeof(x.pid));
		for (;;)
			pause();
	}
	assert_int_equal(read(up[0], &x.pid, sizeof(x.pid)), sizeof(x.pid));
	close(up[0]);
	close(up[1]);
	wait_prepared(&x);
	kill(maker, SIGKILL);
	waitpid(maker, NULL, 0);
	WAIT_FOR(waitpid(x.pid, NULL, WNOHANG) == x.pid || is_gone(x.pid));
	assert_int_equal(read_record(&j.f, &j.s).state, ATTEMPT_CLAIMED);
	assert_int_equal(access("ran", F_OK), -1);
	job_done(&j);
}

/* Who was killed before he was told has started nothing, and that's heard: another one may be made. */
static void test_ready_and_killed(void **state)
{
	struct job j;
	struct shim_ready x = {0};
	CLEANUP_FREE char *leader = NULL;
	job_init(&j, "echo out");
	job_claim(&j);
	assert_int_equal(shim_prepare(&j.f.root, &j.s, &x, &j.f.e), 0);
	wait_prepared(&x);
	leader = xasprintf("/proc/%d/fd/0", (int)child_of(x.pid));
	signal(SIGPIPE, SIG_IGN);
	kill(x.pid, SIGKILL);
	assert_int_equal(waitpid(x.pid, NULL, 0), x.pid);
	WAIT_FOR(access(leader, F_OK) <
		 0); /* it has the word's pipe, too, until it closes what isn't its own */
	assert_true(shim_go(&x) < 0);
	job_fork(&j);
	assert_int_equal(wait_shim(&j), 0);
	assert_output(&j, "out\n");
	job_done(&j);
}

/* The wish to end comes between the birth and the word. */
static void test_ready_and_stopped(void **state)
{
	struct job j;
	struct shim_ready x = {0};
	job_init(&j, "touch ran");
	job_claim(&j);
	assert_int_equal(shim_prepare(&j.f.root, &j.s, &x, &j.f.e), 0);
	wait_prepared(&x);
	assert_int_equal(claim_put_stop(j.fd, STOP_CANCEL, 1000), 0);
	j.shim = shim_go(&x);
	assert_true(j.shim > 0);
	assert_int_equal(wait_shim(&j), 0);
	assert_int_equal(read_record(&j.f, &j.s).end.how, END_NOT_STARTED);
	assert_int_equal(access("ran", F_OK), -1);
	job_done(&j);
}

/* --- how a job is started, and how it ends by itself --- */

static void test_exit_code(void **state)
{
	struct job j;
	job_init(&j, "echo out; echo err >&2; exit 7");
	int64_t before = clock_boot_ms();
	job_start(&j);
	assert_int_equal(wait_shim(&j), 0);
	struct claim_record rec = read_record(&j.f, &j.s);
	assert_int_equal(rec.state, ATTEMPT_ENDED);
	assert_int_equal(rec.shim_pid, j.shim);
	assert_true(rec.pid > 1 && rec.start_ticks > 0 && rec.shim_start_ticks > 0);
	assert_int_equal(rec.end.how, END_EXIT);
	assert_int_equal(rec.end.code, 7);
	assert_int_equal(rec.end.reason, STOP_NONE);
	assert_false(rec.end.by_signal || rec.end.was_killed);
	assert_true(rec.end.seen_by_shim);
	assert_true(rec.end.started_boot_ms >= before);
	assert_true(rec.end.ended_boot_ms >= rec.end.started_boot_ms);
	assert_true(rec.end.ended_wall_ms >= rec.end.started_wall_ms);
	assert_true(rec.end.started_wall_ms > 1500000000000);
	assert_string_equal(rec.end.text, "");
	assert_output(&j, "out\nerr\n");
	job_done(&j);
}

static void test_signal(void **state)
{
	struct job j;
	job_init(&j, "kill -9 $$");
	job_start(&j);
	assert_int_equal(wait_shim(&j), 0);
	struct attempt_end end = wait_end(&j);
	assert_int_equal(end.how, END_SIGNAL);
	assert_int_equal(end.code, 9);
	assert_int_equal(end.reason, STOP_NONE);
	job_done(&j);
}

/* What the job finds around it, whatever the agent was like. */
static void test_surroundings(void **state)
{
	struct job j;
	job_init(&j,
		"pwd; umask; cat; echo \"stdin $?\"; env | grep -v -e ^PWD -e ^SHLVL -e ^_ | sort; "
		"cut -d' ' -f1,5,6 /proc/$$/stat; echo $$; "
		"grep -E '^Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd | wc -l");
	char line[8192];
	int leaked = open("/dev/zero", O_RDONLY); /* no close-on-exec: an agent's mistake */
	assert_true(leaked > 2);
	signal(SIGTERM, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGUSR2, SIG_IGN);
	sigset_t mask, before;
	sigemptyset(&mask);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGUSR2);
	sigprocmask(SIG_BLOCK, &mask, &before);
	job_start(&j);
	sigset_t now;
	sigprocmask(SIG_SETMASK, &before, &now);
	assert_int_equal(sigismember(&now, SIGUSR2), 1); /* the agent's own mask came back */
	assert_int_equal(sigismember(&now, SIGUSR1), 0);
	signal(SIGTERM, SIG_DFL);
	signal(SIGPIPE, SIG_DFL);
	signal(SIGUSR2, SIG_DFL);
	assert_int_equal(wait_shim(&j), 0);
	assert_int_equal(wait_end(&j).code, 0);
	int pid = read_record(&j.f, &j.s).pid;
	snprintf(line, sizeof(line),
		"%s\n0027\nstdin 0\nGREETING=hello\nPATH=/usr/local/bin:/usr/bin:/bin\n"
		"%d %d %d\n%d\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n4\n",
		j.f.dir, pid, pid, pid, pid);
	assert_output(&j, line);
	close(leaked);
	struct sys_stat st;
	assert_int_equal(sys_stat_at(AT_FDCWD, j.s.output, 0, &st), 0);
	assert_int_equal(st.mode & 0777, 0600);
	job_done(&j);
}

static void test_output_is_appended_to(void **state)
{
	struct job j;
	job_init(&j, "echo more");
	CLEANUP_CLOSE int fd = open(j.s.output, O_WRONLY | O_CREAT, 0640);
	assert_int_equal(write(fd, "before\n", 7), 7);
	job_start(&j);
	assert_int_equal(wait_shim(&j), 0);
	assert_output(&j, "before\nmore\n");
	job_done(&j);
}

/* A job that cannot be launched says which step failed, on what, and why. */
static void test_launch_fails(void **state)
{
	for (int i = 0; i < 3; i++) {
		struct job j;
		job_init(&j, "echo ran > ran");
		char **which = i == 0 ? &j.s.cwd : i == 1 ? &j.s.output : &j.s.argv[0];
		free(*which);
		*which = xasprintf("%s/missing/x", j.f.dir);
		job_start(&j);
		assert_int_equal(wait_shim(&j), 0);
		struct attempt_end end = wait_end(&j);
		assert_int_equal(end.how, END_LAUNCH_FAILED);
		assert_int_equal(end.code, ENOENT);
		assert_int_equal(end.started_boot_ms, 0);
		assert_true(end.ended_boot_ms > 0);
		static const char *const words[] = {"cannot change to the directory",
			"cannot open the output file", "cannot execute"};
		assert_non_null(strstr(end.text, words[i]));
		assert_non_null(strstr(end.text, *which));
		assert_non_null(strstr(end.text, "No such file or directory"));
		assert_false(file_exists(&j.f, "ran"));
		assert_false(file_exists(&j.f, "missing"));
		job_done(&j);
	}
}

static void test_long_failure_is_cut(void **state)
{
	struct job j;
	job_init(&j, "true");
	free(j.s.cwd);
	j.s.cwd = xasprintf("%s/\x1b[31m%0200d", j.f.dir, 1);
	job_start(&j);
	assert_int_equal(wait_shim(&j), 0);
	struct attempt_end end = wait_end(&j);
	assert_int_equal(end.how, END_LAUNCH_FAILED);
	assert_null(strchr(end.text, '\x1b'));
	assert_true(strlen(end.text) > 140 && strlen(end.text) < sizeof(end.text));
	job_done(&j);
}

/* An exit code of 127 by the job itself is an exit code. */
static void test_exit_127(void **state)
{
	struct job j;
	job_init(&j, "/missing/program");
	job_start(&j);
	assert_int_equal(wait_shim(&j), 0);
	struct attempt_end end = wait_end(&j);
	assert_int_equal(end.how, END_EXIT);
	assert_int_equal(end.code, 127);
	job_done(&j);
}

/* --- the limit, the grace, the kill --- */

/* The shell dies at once; what it ran saves for half a second and isn't cut short. */
static void test_limit_gives_the_whole_tree_its_grace(void **state)
{
	struct job j;
	int64_t limit_ms = 700;
	/* A limit that came before the trap was set, on a busy machine, says nothing. */
	for (bool is_up = false; !is_up; limit_ms *= 4) {
		assert_true(limit_ms < DEADLINE_MS);
		job_init(&j, "sh -c 'trap \"sleep 0.5; echo saved > saved; exit 0\" TERM; "
			     "echo $$ > up; while :; do sleep 0.02; done' & wait");
		j.s.timeout_ms = limit_ms;
		job_start(&j);
		assert_int_equal(wait_shim(&j), 0);
		is_up = file_exists(&j.f, "up");
		if (!is_up)
			job_done(&j);
	}
	struct attempt_end end = wait_end(&j);
	assert_int_equal(end.how, END_STOPPED);
	assert_int_equal(end.reason, STOP_TIMEOUT);
	assert_true(end.by_signal);
	assert_int_equal(end.code, SIGTERM);
	assert_false(end.was_killed);
	assert_true(end.ended_boot_ms - end.started_boot_ms >= 700);
	CLEANUP_FREE char *text = file_text(&j.f, "saved");
	assert_string_equal(text, "saved\n");
	assert_true(is_gone(wait_pid_file(&j, "up")));
	job_done(&j);
}

/* The leader goes at TERM; its child ignores it, gets the grace, and then KILL. */
static void test_grace_over(void **state)
{
	struct attempt_end end = {0};
	/* A grace in which a busy machine didn't let the leader have its TERM says nothing. */
	for (int64_t grace_ms = 300; end.code != SIGTERM; grace_ms *= 4) {
		struct job j;
		assert_true(grace_ms < DEADLINE_MS);
		job_init(&j, "sh -c 'trap \"\" TERM; echo $$ > up; exec sleep 1000' & wait");
		job_start(&j);
		pid_t child = wait_pid_file(&j, "up");
		int64_t asked_ms = clock_boot_ms();
		stop_job(&j, STOP_CANCEL, grace_ms);
		end = wait_end(&j);
		assert_true(clock_boot_ms() - asked_ms >= grace_ms);
		assert_int_equal(end.how, END_STOPPED);
		assert_int_equal(end.reason, STOP_CANCEL);
		assert_true(end.was_killed);
		assert_true(is_gone(child));
		assert_int_equal(wait_shim(&j), 0);
		job_done(&j);
	}
	assert_int_equal(end.code, SIGTERM); /* what the leader said */
}

static void test_leader_that_ignores_term(void **state)
{
	struct job j;
	job_init(&j, "trap '' TERM; echo $$ > up; while :; do sleep 0.05; done");
	job_start(&j);
	wait_pid_file(&j, "up");
	stop_job(&j, STOP_SHUTDOWN, 200);
	struct attempt_end end = wait_end(&j);
	assert_int_equal(end.how, END_STOPPED);
	assert_int_equal(end.reason, STOP_SHUTDOWN);
	assert_true(end.was_killed && end.by_signal);
	assert_int_equal(end.code, SIGKILL);
	assert_int_equal(wait_shim(&j), 0);
	job_done(&j);
}

/* A grace of zero kills at the next turn; a job that is stopped hears of TERM all the same. */
static void test_stopped_job_hears_term(void **state)
{
	struct job j;
	job_init(&j,
		"trap 'echo heard > heard; exit 5' TERM; echo $$ > up; while :; do sleep 0.02; done");
	job_start(&j);
	pid_t leader = wait_pid_file(&j, "up");
	assert_int_equal(kill(-leader, SIGSTOP), 0);
	stop_job(&j, STOP_CANCEL, 20000);
	struct attempt_end end = wait_end(&j);
	assert_int_equal(end.how, END_STOPPED);
	assert_false(end.by_signal || end.was_killed);
	assert_int_equal(end.code, 5);
	assert_true(file_exists(&j.f, "heard"));
	assert_int_equal(wait_shim(&j), 0);
	job_done(&j);
}

/* A session of its own doesn't take a process out of the tree, as long as it's below the shim; nor does its parent's death. */
static void test_other_sessions_are_in_the_tree(void **state)
{
	struct job j;
	job_init(&j,
		"(setsid sh -c 'echo $$ > up1; exec sleep 1000' &); "
		"setsid sh -c 'setsid sh -c \"echo \\$\\$ > up2; exec sleep 1000\"' & wait; sleep 1000");
	job_start(&j);
	pid_t a = wait_pid_file(&j, "up1"), b = wait_pid_file(&j, "up2");
	stop_job(&j, STOP_CANCEL, 100);
	struct attempt_end end = wait_end(&j);
	assert_int_equal(end.how, END_STOPPED);
	assert_true(end.was_killed);
	assert_true(is_gone(a));
	assert_true(is_gone(b));
	assert_int_equal(wait_shim(&j), 0);
	job_done(&j);
}

static void test_stop_before_start(void **state)
{
	struct job j;
	job_init(&j, "echo ran > ran");
	job_claim(&j);
	assert_int_equal(claim_put_stop(j.fd, STOP_CANCEL, 1000), 0);
	job_fork(&j);
	assert_int_equal(wait_shim(&j), 0);
	struct claim_record rec = read_record(&j.f, &j.s);
	assert_int_equal(rec.state, ATTEMPT_ENDED);
	assert_int_equal(rec.pid, 0);
	assert_int_equal(rec.end.how, END_NOT_STARTED);
	assert_int_equal(rec.end.reason, STOP_CANCEL);
	assert_int_equal(rec.end.started_boot_ms, 0);
	assert_true(rec.end.seen_by_shim);
	assert_false(file_exists(&j.f, "ran"));
	job_done(&j);
}

static void test_stop_twice(void **state)
{
	struct job j;
	job_init(&j, "trap 'echo term >> terms; until test -e go; do sleep 0.02; done; sleep 0.3; "
		     "exit 3' TERM; echo $$ > up; while :; do sleep 0.02; done");
	job_start(&j);
	wait_pid_file(&j, "up");
	stop_job(&j, STOP_CANCEL, DEADLINE_MS);
	stop_job(&j, STOP_SHUTDOWN, 0);
	make_file(&j, "go"); /* and a moment more, for a second TERM or a KILL to show */
	struct attempt_end end = wait_end(&j);
	assert_int_equal(end.how, END_STOPPED);
	assert_int_equal(end.reason, STOP_CANCEL);
	assert_int_equal(end.code, 3);
	assert_false(end.was_killed);
	CLEANUP_FREE char *text = file_text(&j.f, "terms");
	assert_string_equal(text, "term\n");
	assert_int_equal(wait_shim(&j), 0);
	job_done(&j);
}

/* HUP, INT and TERM at the shim: it stays, and sees the end. */
static void test_shim_is_not_scared_away(void **state)
{
	struct job j;
	job_init(&j, "echo $$ > up; while ! test -e go; do sleep 0.02; done; exit 4");
	job_start(&j);
	wait_pid_file(&j, "up");
	kill(j.shim, SIGHUP);
	kill(j.shim, SIGINT);
	kill(j.shim, SIGTERM);
	kill(j.shim, SIGUSR1);
	char path[4096];
	snprintf(path, sizeof(path), "%s/go", j.f.dir);
	assert_int_equal(mknod(path, S_IFREG | 0600, 0), 0);
	assert_int_equal(wait_shim(&j), 0);
	assert_int_equal(wait_end(&j).code, 4);
	job_done(&j);
}

/* --- the right to start --- */

static void test_second_shim_leaves(void **state)
{
	struct job j;
	job_init(&j, "echo x >> ran; while ! test -e go; do sleep 0.02; done");
	job_start(&j);
	WAIT_FOR(read_record(&j.f, &j.s).state == ATTEMPT_STARTED);
	WAIT_FOR(file_exists(&j.f, "ran"));
	pid_t first = j.shim;
	job_fork(&j);
	assert_int_equal(wait_shim(&j), 1); /* the door is shut */
	assert_int_equal(read_record(&j.f, &j.s).shim_pid, first);
	char path[4096];
	snprintf(path, sizeof(path), "%s/go", j.f.dir);
	assert_int_equal(mknod(path, S_IFREG | 0600, 0), 0);
	j.shim = first;
	assert_int_equal(wait_shim(&j), 0);
	job_fork(&j);
	assert_int_equal(wait_shim(&j), 1); /* open, but the job is over */
	CLEANUP_FREE char *text = file_text(&j.f, "ran");
	assert_string_equal(text, "x\n");
	job_done(&j);
}

/* Ten at once: one starts it. */
static void test_race_of_shims(void **state)
{
	for (int round = 0; round < 10; round++) {
		struct job j;
		job_init(&j, "echo x >> ran");
		job_claim(&j);
		int n_left = 0;
		for (int i = 0; i < 10; i++)
			job_fork(&j);
		for (int i = 0; i < 10; i++) {
			int status;
			assert_true(wait(&status) > 0);
			n_left += WIFEXITED(status) && WEXITSTATUS(status) == 1;
		}
		assert_int_equal(n_left, 9);
		CLEANUP_FREE char *text = file_text(&j.f, "ran");
		assert_string_equal(text, "x\n");
		job_done(&j);
	}
}

/* Claimed before a reboot: it may have been started there, so nothing starts it here. */
static void test_claim_of_another_boot(void **state)
{
	struct job j;
	job_init(&j, "echo x >> ran");
	snprintf(j.s.boot_id, sizeof(j.s.boot_id), "00000000-0000-4000-8000-000000000001");
	job_start(&j);
	assert_int_equal(wait_shim(&j), 1);
	assert_int_equal(read_record(&j.f, &j.s).state, ATTEMPT_CLAIMED);
	assert_false(file_exists(&j.f, "ran"));
	job_done(&j);
}

/* --- what is left behind --- */

static void test_background_child(void **state)
{
	struct job j;
	job_init(&j,
		"sh -c 'echo $$ > up; exec sleep 1000' & while ! test -s up; do sleep 0.02; done; exit 6");
	job_start(&j);
	struct attempt_end end = wait_end(&j);
	assert_int_equal(end.how, END_EXIT);
	assert_int_equal(end.code, 6);
	pid_t child = wait_pid_file(&j, "up");
	assert_false(is_gone(child));
	/* The shim is still there: it holds the lock and is the child's parent. */
	pid_t holder = 0;
	assert_int_equal(claim_lock_holder(j.fd, &holder), 0);
	assert_int_equal(holder, j.shim);
	struct proc_stat st;
	assert_int_equal(proc_read_stat(child, &st), 0);
	assert_int_equal(st.ppid, j.shim);
	struct supervise seen = {
		.rec = read_record(&j.f, &j.s), .tree_root = j.shim, .leader_ended = true};
	assert_int_equal(supervise_survivors(&seen), 1);
	kill(child, SIGKILL);
	assert_int_equal(wait_shim(&j), 0);
	assert_int_equal(supervise_survivors(&seen), 0);
	assert_int_equal(claim_lock_holder(j.fd, &holder), 0);
	assert_int_equal(holder, 0);
	assert_int_equal(read_record(&j.f, &j.s).end.code, 6);
	job_done(&j);
}

/*
 * An agent or another shim that was started inside the job isn't the job's: neither it nor what it runs is killed, nor waited
 * for.
 */
static void gpustow_in_the_tree_lives(const char *role)
{
	struct job j;
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	assert_true(n > 0);
	self[n] = '\0';
	job_init(&j, "");
	free(j.s.argv[2]);
	j.s.argv[2] = xasprintf(
		"ROLE=%s '%s' & sh -c 'echo $$ > up; exec setsid sleep 1000' & wait", role, self);
	job_start(&j);
	pid_t ours = wait_pid_file(&j, "ours"), its_job = wait_pid_file(&j, "its_job");
	pid_t ordinary = wait_pid_file(&j, "up");
	stop_job(&j, STOP_CANCEL, 100);
	struct attempt_end end = wait_end(&j);
	assert_int_equal(end.how, END_STOPPED);
	assert_int_equal(wait_shim(&j), 0);
	assert_true(is_gone(ordinary));
	assert_false(is_gone(ours));
	assert_false(is_gone(its_job));
	kill(its_job, SIGKILL);
	kill(ours, SIGKILL);
	job_done(&j);
}

static void test_agent_in_the_tree_lives(void **state)
{
	gpustow_in_the_tree_lives("agent");
}

static void test_shim_in_the_tree_lives(void **state)
{
	gpustow_in_the_tree_lives("shim");
}

/* The doorbell rings before the shim has its house in order. */
static void test_early_doorbell(void **state)
{
	for (int round = 0; round < 20; round++) {
		struct job j;
		job_init(&j, "exit 2");
		job_claim(&j);
		job_fork(&j);
		kill(j.shim, SIGUSR1);
		assert_int_equal(wait_shim(&j), 0);
		assert_int_equal(wait_end(&j).code, 2);
		job_done(&j);
	}
}

/* A name is not enough: a stranger that calls itself a shim is killed. */
static void test_name_alone_saves_nobody(void **state)
{
	if (access("/usr/bin/perl", X_OK) < 0) {
		print_message("skipped: no perl to give a process another name\n");
		skip();
	}
	struct job j;
	job_init(&j,
		"setsid perl -e '$0=\"gpustow-shim\"; open(F,\">up\"); print F \"$$\\n\"; close F; sleep 1000' & wait");
	job_start(&j);
	pid_t child = wait_pid_file(&j, "up");
	struct proc_stat st;
	assert_int_equal(proc_read_stat(child, &st), 0);
	assert_string_equal(st.comm, SUPERVISE_SHIM_NAME);
	stop_job(&j, STOP_CANCEL, 100);
	assert_true(wait_end(&j).was_killed);
	assert_true(is_gone(child));
	assert_int_equal(wait_shim(&j), 0);
	job_done(&j);
}

/* --- the shim was killed: the agent watches --- */

static struct attempt_end turn_to_the_end(struct job *j, struct supervise *s)
{
	struct attempt_end end = {0};
	s->claim_fd = j->fd;
	s->rec = read_record(&j->f, &j->s);
	s->timeout_ms = j->s.timeout_ms;
	s->grace_ms = j->s.grace_ms;
	for (int64_t until = clock_boot_ms() + DEADLINE_MS; s->phase != SUPERVISE_ENDED;) {
		int status;
		if (s->is_parent && waitpid(s->rec.pid, &status, WNOHANG) == s->rec.pid)
			supervise_leader_status(s, status, clock_boot_ms());
		int64_t wait_ms = supervise_turn(s, clock_boot_ms(), true, &end);
		if (clock_boot_ms() > until)
			fail_msg("the attempt didn't end");
		sleep_ms(wait_ms >= 0 && wait_ms < 5 ? wait_ms : 5);
	}
	return end;
}

static void start_and_kill_shim(struct job *j)
{
	job_start(j);
	wait_pid_file(j, "up");
	kill(j->shim, SIGKILL);
	assert_int_equal(waitpid(j->shim, NULL, 0), j->shim);
	assert_int_equal(read_record(&j->f, &j->s).state, ATTEMPT_STARTED);
}

static void test_not_the_parent(void **state)
{
	struct job j;
	struct supervise s = {0};
	job_init(&j, "echo $$ > up; while ! test -e go; do sleep 0.02; done; exit 3");
	start_and_kill_shim(&j);
	make_file(&j, "go");
	struct attempt_end end = turn_to_the_end(&j, &s);
	assert_int_equal(end.how, END_VANISHED);
	assert_false(end.seen_by_shim);
	assert_true(end.started_boot_ms > 0 && end.ended_boot_ms >= end.started_boot_ms);
	job_done(&j);
}

static void test_not_the_parent_stops(void **state)
{
	struct job j;
	struct supervise s = {0};
	job_init(&j, "sh -c 'trap \"\" TERM; echo $$ > up; exec sleep 1000' & wait");
	start_and_kill_shim(&j);
	pid_t child = wait_pid_file(&j, "up");
	assert_int_equal(claim_put_stop(j.fd, STOP_CANCEL, 200), 0);
	struct attempt_end end = turn_to_the_end(&j, &s);
	assert_int_equal(end.how, END_STOPPED);
	assert_int_equal(end.reason, STOP_CANCEL);
	assert_int_equal(end.code, -1); /* nobody saw it */
	assert_true(end.was_killed);
	assert_true(is_gone(child));
	job_done(&j);
}

static void test_not_the_parent_keeps_the_limit(void **state)
{
	struct job j;
	struct supervise s = {0};
	job_init(&j, "echo $$ > up; exec sleep 1000");
	j.s.timeout_ms = 60 * 1000;
	start_and_kill_shim(&j);
	struct attempt_end end = {0};
	s.claim_fd = j.fd;
	s.rec = read_record(&j.f, &j.s);
	s.timeout_ms = j.s.timeout_ms;
	s.grace_ms = j.s.grace_ms;
	/* The clock is ours: a machine that slept through limit and grace still gives TERM its grace. */
	int64_t start = s.rec.end.started_boot_ms;
	assert_true(supervise_turn(&s, start + 59999, true, &end) >= 0);
	assert_int_equal(s.phase, SUPERVISE_RUNNING);
	assert_int_equal(supervise_turn(&s, start + 500000, true, &end), 0);
	assert_int_equal(s.phase, SUPERVISE_TERMINATING);
	assert_int_equal(s.kill_at_ms, start + 500000 + 20000);
	WAIT_FOR(is_gone(s.rec.pid));
	supervise_turn(&s, start + 500100, true, &end);
	assert_int_equal(s.phase, SUPERVISE_ENDED);
	assert_int_equal(end.reason, STOP_TIMEOUT);
	assert_int_equal(end.ended_boot_ms, start + 500100);
	job_done(&j);
}

/* What the job heard, once it's as much as that. */
static void wait_heard(struct job *j, const char *want)
{
	for (int64_t until = clock_boot_ms() + DEADLINE_MS;;) {
		CLEANUP_FREE char *text = file_text(&j->f, "heard");
		if (strcmp(text, want) == 0)
			return;
		if (clock_boot_ms() > until)
			fail_msg("the job heard %s instead of %s", text, want);
		sleep_ms(2);
	}
}

static void start_listener(struct job *j, struct supervise *s, int64_t limit_ms, int64_t lead_ms)
{
	job_init(j, "trap 'echo led >> heard' USR1; trap 'echo term >> heard; exit 3' TERM\n"
		    "echo $$ > up; while :; do sleep 0.01; done");
	start_and_kill_shim(j);
	*s = (struct supervise){.claim_fd = j->fd, .rec = read_record(&j->f, &j->s)};
	supervise_set_limits(s, limit_ms, 20000, SIGUSR1, lead_ms);
}

/* The clock is ours. The lead signal comes before the limit, once, and TERM at the limit. */
static void test_lead_signal(void **state)
{
	struct job j;
	struct supervise s;
	struct attempt_end end = {0};
	start_listener(&j, &s, 60000, 10000);
	int64_t start = s.rec.end.started_boot_ms;
	assert_true(supervise_turn(&s, start + 49500, true, &end) <= 500);
	assert_int_equal(s.lead_sent_ms, 0);
	supervise_turn(&s, start + 50000, true, &end);
	assert_int_equal(s.lead_sent_ms, start + 50000);
	wait_heard(&j, "led\n");
	supervise_turn(&s, start + 59999, true, &end);
	assert_int_equal(s.phase, SUPERVISE_RUNNING);
	supervise_turn(&s, start + 60000, true, &end);
	assert_int_equal(s.phase, SUPERVISE_TERMINATING);
	wait_heard(&j, "led\nterm\n");
	WAIT_FOR(is_gone(s.rec.pid));
	job_done(&j);
}

/* A machine that slept through both still gives the lead signal its full lead before TERM, and TERM its grace. */
static void test_lead_signal_after_a_sleep(void **state)
{
	struct job j;
	struct supervise s;
	struct attempt_end end = {0};
	start_listener(&j, &s, 60000, 10000);
	int64_t start = s.rec.end.started_boot_ms;
	supervise_turn(&s, start + 500000, true, &end);
	assert_int_equal(s.phase, SUPERVISE_RUNNING);
	wait_heard(&j, "led\n");
	supervise_turn(&s, start + 509999, true, &end);
	assert_int_equal(s.phase, SUPERVISE_RUNNING);
	supervise_turn(&s, start + 510000, true, &end);
	assert_int_equal(s.phase, SUPERVISE_TERMINATING);
	assert_int_equal(s.kill_at_ms, start + 510000 + 20000);
	wait_heard(&j, "led\nterm\n");
	job_done(&j);
}

/* Who comes after the one that sent it reads in the record that it was, and when. */
static void test_lead_signal_on_record(void **state)
{
	struct job j;
	struct supervise s;
	struct attempt_end end = {0};
	start_listener(&j, &s, 60000, 10000);
	int64_t start = s.rec.end.started_boot_ms;
	s.rec.lead_sent_boot_ms = start + 55000;
	assert_int_equal(claim_write_record(j.fd, &s.rec, false, NULL), 0);
	s.rec = read_record(&j.f, &j.s);
	supervise_set_limits(&s, 60000, 20000, SIGUSR1, 10000);
	supervise_turn(&s, start + 64999, true, &end);
	assert_int_equal(s.phase, SUPERVISE_RUNNING);
	supervise_turn(&s, start + 65000, true, &end);
	assert_int_equal(s.phase, SUPERVISE_TERMINATING);
	wait_heard(&j, "term\n");
	job_done(&j);
}

/* A lead longer than the limit doesn't move the limit; without a limit there's nothing to lead to. */
static void test_lead_signal_at_the_edges(void **state)
{
	struct job j;
	struct supervise s;
	struct attempt_end end = {0};
	start_listener(&j, &s, 60000, 90000);
	int64_t start = s.rec.end.started_boot_ms;
	supervise_turn(&s, start, true, &end);
	wait_heard(&j, "led\n");
	supervise_turn(&s, start + 60000, true, &end);
	assert_int_equal(s.phase, SUPERVISE_TERMINATING);
	wait_heard(&j, "led\nterm\n");
	job_done(&j);
	start_listener(&j, &s, 0, 10000);
	supervise_turn(&s, start + 1000000, true, &end);
	assert_int_equal(s.phase, SUPERVISE_RUNNING);
	assert_int_equal(s.lead_sent_ms, 0);
	/* A wish to end doesn't wait for a lead. */
	supervise_set_limits(&s, 60000, 20000, SIGUSR1, 10000);
	assert_int_equal(claim_put_stop(j.fd, STOP_CANCEL, 5000), 0);
	supervise_turn(&s, start + 100, true, &end);
	assert_int_equal(s.phase, SUPERVISE_TERMINATING);
	wait_heard(&j, "term\n");
	job_done(&j);
}

/* stderr apart, both appended to; in a directory of its own no link is followed. */
static void test_error_output(void **state)
{
	struct job j;
	job_init(&j, "echo out; echo err >&2; exit 7");
	j.s.error_output = xasprintf("%s/err7", j.f.dir);
	job_start(&j);
	assert_int_equal(wait_shim(&j), 0);
	assert_output(&j, "out\n");
	CLEANUP_FREE char *text = file_text(&j.f, "err7");
	assert_string_equal(text, "err\n");
	job_done(&j);
	job_init(&j, "echo out");
	j.s.dir = xstrdup(j.f.dir);
	j.s.error_output = xasprintf("%s/err7", j.f.dir);
	assert_int_equal(symlink("elsewhere", j.s.error_output), 0);
	job_start(&j);
	assert_int_equal(wait_shim(&j), 0);
	struct attempt_end end = wait_end(&j);
	assert_int_equal(end.how, END_LAUNCH_FAILED);
	assert_int_equal(end.code, ELOOP);
	assert_non_null(strstr(end.text, "cannot open the file for stderr"));
	assert_false(file_exists(&j.f, "elsewhere"));
	job_done(&j);
}

/* A subreaper that forked the shim inherits the job, and has its exit code. */
static void test_heir_has_the_exit_code(void **state)
{
	struct job j;
	struct supervise s = {.is_parent = true};
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	job_init(&j, "echo $$ > up; while ! test -e go; do sleep 0.02; done; exit 3");
	start_and_kill_shim(&j);
	make_file(&j, "go");
	struct attempt_end end = turn_to_the_end(&j, &s);
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
	assert_int_equal(end.how, END_EXIT);
	assert_int_equal(end.code, 3);
	assert_false(end.seen_by_shim);
	job_done(&j);
}

/* The leader ended by itself before our TERM, though nobody has taken its status: that end stands. */
static void test_own_end_stands(void **state)
{
	struct job j;
	job_init(&j, "true");
	job_claim(&j);
	pid_t pid = fork();
	if (pid == 0)
		_exit(9);
	siginfo_t info;
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	struct attempt_end end = {0};
	struct supervise s = {.claim_fd = j.fd, .is_parent = true, .rec = {.pid = pid}};
	assert_int_equal(claim_put_stop(j.fd, STOP_CANCEL, 0), 0);
	assert_int_equal(supervise_turn(&s, 1000, true, &end), 0);
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	supervise_leader_status(&s, status, 1001);
	assert_int_equal(supervise_turn(&s, 1002, true, &end), -1);
	assert_int_equal(s.phase, SUPERVISE_ENDED);
	assert_int_equal(end.how, END_EXIT);
	assert_int_equal(end.code, 9);
	assert_int_equal(end.ended_boot_ms, 1001);
	job_done(&j);
}

/* A stranger who got the leader's number is neither signalled nor counted. */
static void test_reused_number(void **state)
{
	struct job j;
	job_init(&j, "true");
	job_claim(&j);
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setsid();
		if (fork() == 0)
			prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	struct proc_stat st;
	assert_int_equal(proc_read_stat(pid, &st), 0);
	WAIT_FOR(proc_read_stat(pid, &st) == 0 && st.sid == pid);
	struct attempt_end end = {0};
	struct supervise s = {.claim_fd = j.fd,
		.rec = {.pid = pid, .start_ticks = st.start_ticks - 1}, /* an older one had it */
		.phase = SUPERVISE_TERMINATING};
	assert_int_equal(claim_put_stop(j.fd, STOP_CANCEL, 0), 0);
	assert_int_equal(supervise_survivors(&s), 0);
	supervise_turn(&s, 1000, true, &end);
	assert_int_equal(s.phase, SUPERVISE_ENDED);
	assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	job_done(&j);
}

/* --- who hears of it --- */

static int bind_bell(const struct root *r)
{
	struct sockaddr_un a;
	assert_int_equal(root_sockaddr(r, "bell", &a, NULL), 0);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

/* The next ring, or "" when there's none by now. */
static const char *next_ring(int bell)
{
	static char text[128];
	ssize_t n = recv(bell, text, sizeof(text) - 1, MSG_DONTWAIT);
	text[n < 0 ? 0 : n] = '\0';
	return text;
}

static void test_bell(void **state)
{
	struct job j;
	const char *text = "";
	job_init(&j, "until test -e go; do sleep 0.01; done");
	int bell = bind_bell(&j.f.root);
	job_start(&j);
	WAIT_FOR(*(text = next_ring(bell)));
	assert_string_equal(text, QUEUE "/7.1"); /* it was started */
	assert_string_equal(next_ring(bell), "");
	make_file(&j, "go");
	assert_int_equal(wait_shim(&j), 0);
	assert_string_equal(next_ring(bell), QUEUE "/7.1"); /* it has ended */
	assert_string_equal(next_ring(bell), "");
	close(bell);
	job_done(&j);
}

/* A job that has ended before anybody could look is told of once. How long it takes is the machine's business: one will do. */
static void test_bell_of_a_short_job(void **state)
{
	bool was_once = false;
	for (int i = 0; i < 100 && !was_once; i++) {
		struct job j;
		job_init(&j, "true");
		int bell = bind_bell(&j.f.root);
		job_start(&j);
		assert_int_equal(wait_shim(&j), 0);
		assert_string_equal(next_ring(bell), QUEUE "/7.1");
		was_once = !*next_ring(bell);
		close(bell);
		job_done(&j);
	}
	assert_true(was_once);
}

/* Who waits in the lane hears that its processes have ended before that is on record; elsewhere nobody asks. */
static void test_bell_of_a_lane(void **state)
{
	for (int is_of_lane = 0; is_of_lane < 2; is_of_lane++) {
		struct job j;
		const char *text;
		bool rang_early = false;
		job_init(&j, "true");
		j.s.n_cards = 1;
		snprintf(j.s.cards[0].uuid, sizeof(j.s.cards[0].uuid), "GPU-1");
		j.s.is_of_lane = is_of_lane;
		int bell = bind_bell(&j.f.root);
		job_start(&j);
		assert_int_equal(wait_shim(&j), 0);
		while (*(text = next_ring(bell)))
			rang_early |= !strcmp(text, QUEUE "/7.1!");
		assert_int_equal(rang_early, is_of_lane);
		close(bell);
		job_done(&j);
	}
}

/* An end that nobody hears starts an agent; one that is heard doesn't. */
static void test_unheard_end_starts_an_agent(void **state)
{
	for (int heard = 0; heard < 2; heard++) {
		struct job j;
		char path[4096];
		job_init(&j, "true");
		snprintf(path, sizeof(path), "%s/started-agent", j.f.dir);
		setenv("ROLE", "started-agent", 1);
		setenv("ROLE_FILE", path, 1);
		j.f.root.agent_exe = "/proc/self/exe";
		int bell = heard ? bind_bell(&j.f.root) : -1;
		job_start(&j);
		assert_int_equal(wait_shim(&j), 0);
		unsetenv("ROLE");
		unsetenv("ROLE_FILE");
		if (heard) {
			close(bell);
			assert_false(file_exists(&j.f, "started-agent"));
		} else {
			char want[8192];
			WAIT_FOR(file_exists(&j.f, "started-agent"));
			snprintf(want, sizeof(want), "gpustow-agent serve %s\n", j.f.root.path);
			CLEANUP_FREE char *text = file_text(&j.f, "started-agent");
			assert_string_equal(text, want);
		}
		job_done(&j);
	}
}

/* --- faults --- */

/* Somebody removes the root under a running job: its end can be told to nobody, and the shim doesn't stay for ever. */
static void test_claim_is_removed(void **state)
{
	struct job j;
	job_init(&j, "echo $$ > up; while ! test -e go; do sleep 0.02; done; exit 3");
	job_start(&j);
	wait_pid_file(&j, "up");
	assert_int_equal(fd_remove_tree_at(AT_FDCWD, j.f.root.path), 0);
	make_file(&j, "go");
	assert_int_equal(wait_shim(&j), 0);
	job_done(&j);
}

#ifdef GPUSTOW_FAULT_POINTS
static void fork_with_fault(struct job *j, const char *fault)
{
	setenv("GPUSTOW_FAULT", fault, 1);
	job_fork(j);
	unsetenv("GPUSTOW_FAULT");
}

/* Killed before the leader was let go: nothing of the job has run, and the lock is free. */
static void test_shim_killed_before_exec(void **state)
{
	static const struct {
		const char *fault;
		enum attempt_state left;
	} rows[] = {
		{"shim.before-lock:kill", ATTEMPT_CLAIMED},
		{"shim.after-lock:kill", ATTEMPT_CLAIMED},
		{"shim.before-started:kill", ATTEMPT_CLAIMED},
		{"shim.between-started-and-exec:kill", ATTEMPT_STARTED},
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct job j;
		job_init(&j, "echo x >> ran");
		job_claim(&j);
		fork_with_fault(&j, rows[i].fault);
		int status;
		assert_int_equal(waitpid(j.shim, &status, 0), j.shim);
		assert_true(WIFSIGNALED(status));
		struct claim_record rec = read_record(&j.f, &j.s);
		assert_int_equal(rec.state, rows[i].left);
		pid_t holder = 1;
		assert_int_equal(claim_lock_holder(j.fd, &holder), 0);
		assert_int_equal(holder, 0);
		if (rows[i].left == ATTEMPT_STARTED)
			WAIT_FOR(!proc_is_alive(rec.pid, rec.start_ticks));
		assert_false(file_exists(&j.f, "ran"));
		job_fork(&j);
		assert_int_equal(wait_shim(&j), rows[i].left == ATTEMPT_CLAIMED ? 0 : 1);
		assert_int_equal(file_exists(&j.f, "ran"), rows[i].left == ATTEMPT_CLAIMED);
		job_done(&j);
	}
}

/* The start can't be put on record: nothing runs, and the end says so. */
static void test_start_that_cannot_be_recorded(void **state)
{
	struct job j;
	job_init(&j, "echo x >> ran");
	job_claim(&j);
	fork_with_fault(&j, "shim.before-started:enospc");
	assert_int_equal(wait_shim(&j), 0);
	struct claim_record rec = read_record(&j.f, &j.s);
	assert_int_equal(rec.end.how, END_LAUNCH_FAILED);
	assert_int_equal(rec.end.code, ENOSPC);
	assert_int_equal(rec.pid, 0);
	assert_false(file_exists(&j.f, "ran"));
	job_done(&j);
}

/* An end that can't be written is kept and tried again; the shim doesn't go. */
static void test_end_is_tried_again(void **state)
{
	struct job j;
	job_init(&j, "exit 8");
	job_claim(&j);
	fork_with_fault(&j, "shim.before-ended:enospc#1");
	assert_int_equal(wait_shim(&j), 0);
	struct claim_record rec = read_record(&j.f, &j.s);
	assert_int_equal(rec.state, ATTEMPT_ENDED);
	assert_int_equal(rec.end.code, 8);
	/* What is told is when the job ended, not when the disk had room. */
	assert_true(clock_boot_ms() - rec.end.ended_boot_ms >= 4000);
	job_done(&j);
}

static void test_shim_killed_after_its_end(void **state)
{
	struct job j;
	job_init(&j, "exit 8");
	job_claim(&j);
	fork_with_fault(&j, "shim.after-ended-before-ring:kill");
	int status;
	assert_int_equal(waitpid(j.shim, &status, 0), j.shim);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(read_record(&j.f, &j.s).end.code, 8);
	job_done(&j);
}
#endif

/* A job fills the disk that its own claim is on: its end is on record. */
static void test_job_fills_the_disk(void **state)
{
	struct job j;
	char path[4096];
	job_init(&j, "");
	snprintf(path, sizeof(path), "%s/tiny", j.f.dir);
	assert_int_equal(mkdir(path, 0700), 0);
	if (getuid() != 0 || mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "size=256k") < 0) {
		print_message("skipped: a full disk needs a mount, and that needs root\n");
		claim_spec_done(&j.s);
		fixture_done(&j.f);
		skip();
	}
	free(j.s.argv[2]);
	j.s.argv[2] = xstrdup("cat /dev/zero > tiny/filler; exit 11");
	root_done(&j.f.root);
	snprintf(path, sizeof(path), "%s/tiny/root", j.f.dir);
	assert_int_equal(root_open(&j.f.root, path, NULL), 0);
	job_start(&j);
	assert_int_equal(wait_shim(&j), 0);
	assert_int_equal(wait_end(&j).code, 11);
	close(j.fd);
	root_done(&j.f.root);
	snprintf(path, sizeof(path), "%s/tiny", j.f.dir);
	assert_int_equal(umount(path), 0);
	j.fd = -1;
	job_done(&j);
}

/* --- this program in other roles --- */

static void put_pid(const char *name, pid_t pid)
{
	FILE *f = fopen(name, "w");
	if (f) {
		fprintf(f, "%d\n", (int)pid);
		fclose(f);
	}
}

/* An agent with a job of its own, in the directory it was started in. */
static int play_gpustow(const char *name)
{
	prctl(PR_SET_NAME, name);
	setsid();
	pid_t pid = fork();
	if (pid == 0) {
		setsid();
		execl("/bin/sleep", "sleep", "1000", (char *)NULL);
		_exit(127);
	}
	put_pid("its_job", pid);
	put_pid("ours", getpid());
	for (;;)
		pause();
}

static int play_started_agent(int argc, char **argv)
{
	char temporary[4096];
	const char *path = getenv("ROLE_FILE");
	snprintf(temporary, sizeof(temporary), "%s.new", path);
	FILE *f = fopen(temporary, "w");
	if (!f)
		return 1;
	for (int i = 0; i < argc; i++)
		fprintf(f, "%s%c", argv[i], i + 1 < argc ? ' ' : '\n');
	fclose(f);
	return rename(temporary, path) < 0;
}

static int run_all(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ready_waits_for_its_word),
		cmocka_unit_test(test_ready_and_not_wanted),
		cmocka_unit_test(test_ready_and_killed),
		cmocka_unit_test(test_ready_and_stopped),
		cmocka_unit_test(test_exit_code),
		cmocka_unit_test(test_signal),
		cmocka_unit_test(test_surroundings),
		cmocka_unit_test(test_output_is_appended_to),
		cmocka_unit_test(test_launch_fails),
		cmocka_unit_test(test_long_failure_is_cut),
		cmocka_unit_test(test_exit_127),
		cmocka_unit_test(test_limit_gives_the_whole_tree_its_grace),
		cmocka_unit_test(test_grace_over),
		cmocka_unit_test(test_leader_that_ignores_term),
		cmocka_unit_test(test_stopped_job_hears_term),
		cmocka_unit_test(test_other_sessions_are_in_the_tree),
		cmocka_unit_test(test_stop_before_start),
		cmocka_unit_test(test_stop_twice),
		cmocka_unit_test(test_shim_is_not_scared_away),
		cmocka_unit_test(test_second_shim_leaves),
		cmocka_unit_test(test_race_of_shims),
		cmocka_unit_test(test_claim_of_another_boot),
		cmocka_unit_test(test_background_child),
		cmocka_unit_test(test_agent_in_the_tree_lives),
		cmocka_unit_test(test_shim_in_the_tree_lives),
		cmocka_unit_test(test_early_doorbell),
		cmocka_unit_test(test_name_alone_saves_nobody),
		cmocka_unit_test(test_not_the_parent),
		cmocka_unit_test(test_not_the_parent_stops),
		cmocka_unit_test(test_not_the_parent_keeps_the_limit),
		cmocka_unit_test(test_lead_signal),
		cmocka_unit_test(test_lead_signal_after_a_sleep),
		cmocka_unit_test(test_lead_signal_on_record),
		cmocka_unit_test(test_lead_signal_at_the_edges),
		cmocka_unit_test(test_error_output),
		cmocka_unit_test(test_heir_has_the_exit_code),
		cmocka_unit_test(test_own_end_stands),
		cmocka_unit_test(test_reused_number),
		cmocka_unit_test(test_bell),
		cmocka_unit_test(test_bell_of_a_short_job),
		cmocka_unit_test(test_bell_of_a_lane),
		cmocka_unit_test(test_unheard_end_starts_an_agent),
		cmocka_unit_test(test_claim_is_removed),
#ifdef GPUSTOW_FAULT_POINTS
		cmocka_unit_test(test_shim_killed_before_exec),
		cmocka_unit_test(test_start_that_cannot_be_recorded),
		cmocka_unit_test(test_end_is_tried_again),
		cmocka_unit_test(test_shim_killed_after_its_end),
#endif
		cmocka_unit_test(test_job_fills_the_disk),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv)
{
	const char *role = getenv("ROLE");
	if (role && strcmp(role, "agent") == 0)
		return play_gpustow(SUPERVISE_AGENT_NAME);
	if (role && strcmp(role, "shim") == 0)
		return play_gpustow(SUPERVISE_SHIM_NAME);
	if (role && strcmp(role, "started-agent") == 0)
		return play_started_agent(argc, argv);
	return guarded(run_all);
}
