/* The job's first process: a stop that comes before it has become the job isn't lost. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "agent/leader.h"
#include "base/alloc.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct claim_spec spec_of(char *dir, const char *command)
{
	struct claim_spec s = {.umask_bits = 022};

	s.argv = xcalloc(4, sizeof(*s.argv));
	s.argv[0] = xstrdup("/bin/sh");
	s.argv[1] = xstrdup("-c");
	s.argv[2] = xstrdup(command);
	s.env = xcalloc(1, sizeof(*s.env));
	s.cwd = xstrdup(dir);
	s.output = xasprintf("%s/out", dir);
	return s;
}

static int run(const char *command, int early_signal)
{
	char dir[] = "/tmp/gpustow-test-XXXXXX", *out;
	struct leader leader = {.hold_fd = -1, .error_fd = -1};
	struct attempt_end end = {0};
	int status;

	assert_non_null(mkdtemp(dir));
	struct claim_spec s = spec_of(dir, command);
	assert_int_equal(leader_fork(&s, &leader), 0);
	/* At once, most likely before the child has run at all; it's ignored here, as in a shim. */
	if (early_signal)
		assert_int_equal(kill(leader.pid, early_signal), 0);
	leader_let_go(&leader);
	assert_int_equal(waitpid(leader.pid, &status, 0), leader.pid);
	assert_int_equal(leader_failure(&leader, &s, &end), 0);
	out = xasprintf("%s/out", dir);
	unlink(out);
	free(out);
	rmdir(dir);
	claim_spec_done(&s);
	return status;
}

static void test_early_term_is_not_lost(void **state)
{
	for (int i = 0; i < 50; i++) {
		int status = run("exit 3", SIGTERM);

		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), SIGTERM);
	}
}

static void test_nothing_is_blocked_in_the_job(void **state)
{
	int status = run(
		"grep -q 'SigBlk:.*[1-9a-f]' /proc/self/status && exit 9; kill -TERM $$; exit 8",
		0);

	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGTERM);
}

static void test_the_shims_own_mask_is_as_before(void **state)
{
	sigset_t before, after;

	sigprocmask(SIG_BLOCK, NULL, &before);
	run("true", 0);
	sigprocmask(SIG_BLOCK, NULL, &after);
	for (int i = 1; i < SIGRTMIN; i++)
		assert_int_equal(sigismember(&before, i), sigismember(&after, i));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_early_term_is_not_lost),
		cmocka_unit_test(test_nothing_is_blocked_in_the_job),
		cmocka_unit_test(test_the_shims_own_mask_is_as_before),
	};

	signal(SIGTERM, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
