/* Facts about processes: what a stat file says, who is still the one that was meant, and whose child is whose. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/cleanup.h"
#include "proc/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

static int parse(const char *text, struct proc_stat *ret)
{
	return proc_parse_stat(text, strlen(text), ret);
}

#define TAIL \
	" S 7 4242 4242 0 -1 4194560 100 0 0 0 12 30 0 0 20 0 1 0 987654 8192 321 " \
	"18446744073709551615 1 1 0\n"

static void test_parse(void **state)
{
	static const struct {
		const char *text, *comm;
	} rows[] = {
		{"4242 (sleep)" TAIL, "sleep"},
		{"4242 (a b)" TAIL, "a b"},
		{"4242 (x) R 1 1 1 () ()" TAIL, "x) R 1 1 1 () ("},
		{"4242 ()" TAIL, ""},
		{"4242 (kworker/u256:3-events_unbound_and_so_on_and_on)" TAIL,
			"kworker/u256:3-events_unbound_a"},
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct proc_stat s;
		assert_int_equal(parse(rows[i].text, &s), 0);
		assert_string_equal(s.comm, rows[i].comm);
		assert_int_equal(s.pid, 4242);
		assert_int_equal(s.state, 'S');
		assert_int_equal(s.ppid, 7);
		assert_int_equal(s.pgid, 4242);
		assert_int_equal(s.sid, 4242);
		assert_int_equal(s.cpu_ticks, 42);
		assert_int_equal(s.start_ticks, 987654);
		assert_int_equal(s.rss_pages, 321);
	}
}

static void test_parse_refuses(void **state)
{
	static const char *const texts[] = {"", "4242", "4242 (sleep", "4242 sleep) S 1 1 1", ")(",
		"4242 (sleep)", "4242 (sleep) S", "4242 (sleep) S 1 2 3", "x (sleep)" TAIL,
		"0 (sleep)" TAIL, "-3 (sleep)" TAIL, "99999999999 (sleep)" TAIL,
		"4242 (sleep) S 99999999999 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 9 8 3",
		("4242 (sleep) S 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 "
		 "99999999999999999999999 8 3")};
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		struct proc_stat s = {.pid = 1}, before = s;
		assert_true(parse(texts[i], &s) < 0);
		assert_memory_equal(&s, &before, sizeof(s));
	}
}

static pid_t child_that_waits(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	assert_true(pid > 0);
	return pid;
}

static void end_child(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void test_g1_g2_own_group_and_a_process_that_cannot_be(void **state)
{
	struct proc_stat s;

	assert_int_equal(proc_read_stat(getpid(), &s), 0);
	assert_int_equal(s.pgid, getpgid(0));
	assert_int_equal(s.sid, getsid(0));
	assert_int_equal(proc_read_stat(INT32_MAX, &s), -ESRCH);

	pid_t pid = child_that_waits();
	assert_int_equal(setpgid(pid, pid), 0);
	assert_int_equal(proc_read_stat(pid, &s), 0);
	assert_int_equal(s.pgid, pid);
	end_child(pid);
}

static void test_identity(void **state)
{
	struct proc_stat own, s;
	assert_int_equal(proc_read_stat(getpid(), &own), 0);
	assert_int_equal(own.pid, getpid());
	assert_int_equal(own.ppid, getppid());
	assert_true(own.start_ticks > 0);
	assert_true(proc_is_alive(getpid(), own.start_ticks));
	assert_true(proc_is_alive(getpid(), 0));
	assert_false(proc_is_alive(getpid(), own.start_ticks + 1));
	assert_false(proc_is_alive(0, 0));
	assert_false(proc_is_alive(-1, 0));

	pid_t pid = child_that_waits();
	assert_int_equal(proc_read_stat(pid, &s), 0);
	assert_true(proc_is_alive(pid, s.start_ticks));
	kill(pid, SIGKILL);
	siginfo_t info;
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	assert_int_equal(proc_read_stat(pid, &s), 0);
	assert_int_equal(s.state, 'Z');
	assert_false(proc_is_alive(pid, s.start_ticks)); /* a zombie is dead */
	end_child(pid);
	assert_int_equal(proc_read_stat(pid, &s), -ESRCH);
}

static void test_signal_reaches_only_the_one_meant(void **state)
{
	struct proc_stat s;
	pid_t pid = child_that_waits();
	assert_int_equal(proc_read_stat(pid, &s), 0);
	/* The number is given to another process: its start differs. */
	assert_int_equal(proc_signal(pid, s.start_ticks + 1, SIGKILL), -ESRCH);
	assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
	assert_true(proc_is_alive(pid, s.start_ticks));
	assert_int_equal(proc_signal(pid, s.start_ticks, SIGKILL), 0);
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_int_equal(proc_signal(pid, s.start_ticks, SIGKILL), -ESRCH);
	/* A group, everybody, and process 1 are never one process of a job. */
	assert_int_equal(proc_signal(0, 0, SIGCONT), -EINVAL);
	assert_int_equal(proc_signal(-1, 0, SIGCONT), -EINVAL);
	assert_int_equal(proc_signal(1, 0, SIGCONT), -EINVAL);
}

static void test_env(void **state)
{
	char long_value[9000], value[64] = "before";
	memset(long_value, 'x', sizeof(long_value) - 1);
	long_value[sizeof(long_value) - 1] = '\0';
	int ready[2];
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (pid == 0) {
		char a[] = "MARKED=no", b[] = "MARK=", c[] = "NOMARK=1", d[] = "WANTED=a=b c",
		     e[] = "LAST", f[10000] = "LONG=";
		memcpy(f + 5, long_value, sizeof(long_value));
		char *const env[] = {a, f, b, c, d, e, NULL};
		char name[] = "sleep", time[] = "1000";
		char *const command[] = {name, time, NULL};
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execve("/bin/sleep", command, env);
		_exit(127);
	}
	close(ready[1]);
	char byte;
	assert_int_equal(read(ready[0], &byte, 1), 0); /* closed by the exec */
	close(ready[0]);
	/* The pipe is closed a moment before the new environment can be seen. */
	for (int i = 0; i < 10000 && proc_env(pid, "WANTED", value, sizeof(value)) < 0; i++)
		nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
	assert_string_equal(value, "a=b c");
	assert_int_equal(proc_env(pid, "MARK", value, sizeof(value)), 0);
	assert_string_equal(value, "");
	memcpy(value, "before", 7);
	assert_int_equal(proc_env(pid, "ANTED", value, sizeof(value)), -ENOENT);
	assert_int_equal(proc_env(pid, "LAST", value, sizeof(value)), -ENOENT);
	assert_int_equal(proc_env(pid, "WANTED", value, 5), -ERANGE);
	assert_int_equal(proc_env(pid, "LONG", value, sizeof(value)), -ERANGE);
	assert_string_equal(value, "before");
	end_child(pid);
	assert_int_equal(proc_env(pid, "WANTED", value, sizeof(value)), -ESRCH);
}

static void test_ancestors_and_owner(void **state)
{
	int answer[2];
	assert_int_equal(pipe(answer), 0);
	pid_t pid = fork();
	if (pid == 0) {
		pid_t inner = fork();
		if (inner == 0) {
			pid_t found[4] = {0};
			size_t n = proc_ancestors(getpid(), found, 2);
			char ok = n == 2 && found[0] == getppid();
			pid_t more[4] = {0};
			ok = ok && proc_ancestors(getppid(), more, 1) == 1 && more[0] == found[1];
			if (write(answer[1], &found[1], sizeof(found[1])) < 0 || !ok)
				_exit(1);
			_exit(0);
		}
		int status;
		waitpid(inner, &status, 0);
		_exit(WEXITSTATUS(status));
	}
	pid_t grandparent = 0;
	assert_int_equal(read(answer[0], &grandparent, sizeof(grandparent)), sizeof(grandparent));
	assert_int_equal(grandparent, getpid());
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WEXITSTATUS(status), 0);
	close(answer[0]);
	close(answer[1]);
	assert_int_equal(proc_uid(getpid()), getuid());
	assert_true(proc_uid(pid) == (uid_t)-1);
}

static void test_owner_of_what_may_not_be_dumped(void **state)
{
	if (getuid() != 0) {
		print_message("skipped: only root can become somebody else\n");
		skip();
	}
	int ready[2];
	assert_int_equal(pipe(ready), 0);
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (setresuid(12345, 12345, 12345) < 0 || prctl(PR_SET_DUMPABLE, 0) < 0 ||
			write(ready[1], "", 1) < 0)
			_exit(1);
		for (;;)
			pause();
	}
	char byte;
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(proc_uid(pid), 12345);
	end_child(pid);
	close(ready[0]);
	close(ready[1]);
}

/* A made-up table: 10 - 20 - {30 - 31, 40(barrier) - 41}, 50 apart but in session 20, 60 a zombie below 10; 5 below 31. */
static bool is_40(void *arg, const struct proc_stat *row)
{
	++*(int *)arg;
	return row->pid == 40;
}

static void test_tree(void **state)
{
	struct proc_stat rows[] = {
		{.pid = 5, .ppid = 31, .sid = 5, .state = 'S'},
		{.pid = 10, .ppid = 1, .sid = 10, .state = 'S'},
		{.pid = 20, .ppid = 10, .sid = 20, .state = 'S'},
		{.pid = 30, .ppid = 20, .sid = 20, .state = 'R'},
		{.pid = 31, .ppid = 30, .sid = 31, .state = 'D'},
		{.pid = 40, .ppid = 20, .sid = 40, .state = 'S'},
		{.pid = 41, .ppid = 40, .sid = 41, .state = 'S'},
		{.pid = 50, .ppid = 1, .sid = 20, .state = 'T'},
		{.pid = 60, .ppid = 10, .sid = 20, .state = 'Z'},
		{.pid = 70, .ppid = 1, .sid = 70, .state = 'S'},
	};
	struct proc_table t = {.rows = rows, .n = ARRAY_LEN(rows)};
	size_t found[16];
	static const size_t by_descent[] = {0, 2, 3, 4, 5, 6};
	assert_int_equal(proc_table_tree(&t, 10, 0, found, 16), 6);
	assert_memory_equal(found, by_descent, sizeof(by_descent));
	static const size_t both[] = {0, 2, 3, 4, 5, 6, 7};
	assert_int_equal(proc_table_tree(&t, 10, 20, found, 16), 7);
	assert_memory_equal(found, both, sizeof(both));
	assert_int_equal(proc_table_tree(&t, 10, 20, found, 3), 3);
	static const size_t by_session[] = {0, 2, 3, 4, 5, 6, 7};
	assert_int_equal(proc_table_tree(&t, 0, 20, found, 16), 7);
	assert_memory_equal(found, by_session, sizeof(by_session));
	assert_int_equal(proc_table_tree(&t, 99, 0, found, 16), 0);
	assert_int_equal(proc_table_tree(&t, 0, 0, found, 16), 0);

	int asked = 0;
	struct proc_tree q = {.root = 10, .is_barrier = is_40, .arg = &asked};
	static const size_t without_40[] = {0, 2, 3, 4};
	assert_int_equal(proc_table_select(&t, &q, found, 16), 4);
	assert_memory_equal(found, without_40, sizeof(without_40));
	assert_int_equal(asked, 6); /* the zombie too; not 41, which is only below 40 */
}

static void test_table(void **state)
{
	pid_t pid = child_that_waits();
	struct proc_table t;
	assert_int_equal(proc_table_read(&t), 0);
	bool has_own = false, has_child = false;
	for (size_t i = 0; i < t.n; i++) {
		assert_true(i == 0 || t.rows[i - 1].pid < t.rows[i].pid);
		has_own |= t.rows[i].pid == getpid();
		has_child |= t.rows[i].pid == pid && t.rows[i].ppid == getpid();
	}
	assert_true(has_own && has_child);
	size_t found[64];
	size_t n = proc_table_tree(&t, getpid(), 0, found, 64);
	assert_int_equal(n, 1);
	assert_int_equal(t.rows[found[0]].pid, pid);
	proc_table_done(&t);
	end_child(pid);
}

static void test_host(void **state)
{
	char boot[40], again[40], key[65], key2[65];
	unsetenv("GPUSTOW_TEST_BOOT_ID");
	assert_int_equal(proc_boot_id(boot), 0);
	assert_int_equal(strlen(boot), 36);
#ifdef GPUSTOW_FAULT_POINTS
	setenv("GPUSTOW_TEST_BOOT_ID", "00000000-0000-4000-8000-000000000001", 1);
	assert_int_equal(proc_boot_id(again), 0);
	assert_string_equal(again, "00000000-0000-4000-8000-000000000001");
	setenv("GPUSTOW_TEST_BOOT_ID", "nonsense", 1);
#endif
	assert_int_equal(proc_boot_id(again), 0);
	assert_string_equal(again, boot);
	unsetenv("GPUSTOW_TEST_BOOT_ID");
	assert_true(proc_pid_ns() != 0);
	assert_int_equal(proc_machine_key(key), 0);
	assert_int_equal(strspn(key, "0123456789abcdef"), 64);
	assert_int_equal(proc_machine_key(key2), 0);
	assert_string_equal(key, key2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse),
		cmocka_unit_test(test_parse_refuses),
		cmocka_unit_test(test_g1_g2_own_group_and_a_process_that_cannot_be),
		cmocka_unit_test(test_identity),
		cmocka_unit_test(test_signal_reaches_only_the_one_meant),
		cmocka_unit_test(test_env),
		cmocka_unit_test(test_ancestors_and_owner),
		cmocka_unit_test(test_owner_of_what_may_not_be_dumped),
		cmocka_unit_test(test_tree),
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_host),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
