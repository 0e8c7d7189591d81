/* A pass without nodes: who may have one, who waits for whom, what its summary is. Passes over nodes: tests/e2e/test_queue_*.py. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "queue/controller.h"
#include "store_fixture.h"

#include "base/cleanup.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static struct queue_config *config(void)
{
	static struct queue_config c;

	queue_settings_defaults(&c.settings, false);
	c.settings.tick_min_interval_ms = 600000; /* longer than any machine takes for two passes */
	return &c;
}

static int pass(struct bed *b, bool is_forced, int64_t wait_ms, struct tick_summary *ret)
{
	struct queue_config *c = config();
	struct tick_options o = {.home = b->dir, .is_forced = is_forced, .wait_ms = wait_ms};
	int r = tick(b->s, c, &o, ret, &why);

	queue_settings_done(&c->settings);
	return r;
}

static void ran(struct bed *b, bool is_forced)
{
	CLEANUP(tick_summary_done) struct tick_summary t = {0};

	OK(pass(b, is_forced, 0, &t));
	assert_true(t.ran);
	assert_null(t.skipped);
}

static void was_skipped(struct bed *b, bool is_forced, const char *word, const char *owner)
{
	CLEANUP(tick_summary_done) struct tick_summary t = {0};

	OK(pass(b, is_forced, 0, &t));
	assert_false(t.ran);
	assert_string_equal(t.skipped, word);
	if (owner)
		assert_string_equal(t.lock_owner, owner);
}

static void test_unforced_passes_keep_their_distance(void **state)
{
	struct bed *b = *state;

	ran(b, false);
	was_skipped(b, false, "rate_limited", NULL);
	ran(b, true);
	/* A clock that was set back by a day stops nobody for a day. */
	OK(store_begin(b->s, NULL, &why));
	OK(store_meta_set(b->s, "last_tick_at", "99999999999999", &why));
	OK(store_commit(b->s, &why));
	ran(b, false);
}

/* Somebody waits for the lease: his call has begun. */
static void wait_for_nudge(struct store *s)
{
	CLEANUP_FREE char *nudge = NULL;

	while (store_meta_get(s, "nudged_at", &nudge, &why) < 0)
		poll(NULL, 0, 5);
}

enum then { STAYS, GOES_WHEN_NUDGED, MAKES_A_PASS_WHEN_NUDGED };

/* Holds the lease in a process of its own. */
static pid_t hold(struct bed *b, enum then then)
{
	int ready[2];
	char c;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		struct store_lease l;
		struct store *s = NULL;
		int64_t n = 0;
		int r;

		prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test ends nobody */
		r = open_as(b->path, STORE_WRITE, &s);

		if (!r)
			r = store_lease_take(s, "holder", 600000, &l, NULL, &why);
		if (write(ready[1], r ? "-" : "+", 1) != 1)
			_exit(1);
		if (then != STAYS)
			wait_for_nudge(s);
		if (!r && then == MAKES_A_PASS_WHEN_NUDGED)
			r = store_pass_begin(s, &l, &n, &why);
		if (!r && then == MAKES_A_PASS_WHEN_NUDGED)
			r = store_pass_done(s, &l, n, &why);
		/* And goes on holding: only the pass is over. */
		while (then != GOES_WHEN_NUDGED)
			pause();
		store_lease_release(s, &l, &why);
		_exit(r != 0);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &c, 1), 1);
	assert_int_equal(c, '+');
	close(ready[0]);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void test_locked(void **state)
{
	struct bed *b = *state;
	pid_t pid = hold(b, STAYS);
	CLEANUP(tick_summary_done) struct tick_summary t = {0};

	was_skipped(b, false, "locked", "holder");
	was_skipped(b, true, "locked", "holder");
	/* Who only looks doesn't wait, whatever time he'd have. */
	OK(pass(b, false, 600000, &t));
	assert_string_equal(t.skipped, "locked");
	end(pid);
	/* Dead, so no obstacle. */
	ran(b, true);
}

static void test_forced_waits_for_the_lease(void **state)
{
	struct bed *b = *state;
	pid_t pid = hold(b, GOES_WHEN_NUDGED);
	CLEANUP(tick_summary_done) struct tick_summary t = {0};
	int64_t begun, done;

	OK(pass(b, true, 30000, &t));
	assert_true(t.ran);
	OK(store_passes(b->s, &begun, &done, &why));
	assert_int_equal(done, 1); /* its own */
	end(pid);
}

/* The holder's next pass began after the call: it will do, and nobody makes another one. */
static void test_forced_takes_a_later_pass_for_its_own(void **state)
{
	struct bed *b = *state;
	pid_t pid = hold(b, MAKES_A_PASS_WHEN_NUDGED);
	CLEANUP(tick_summary_done) struct tick_summary t = {0};
	CLEANUP_FREE char *nudge = NULL;
	int64_t begun, done;

	OK(pass(b, true, 30000, &t));
	assert_true(t.ran);
	OK(store_passes(b->s, &begun, &done, &why));
	assert_int_equal(begun, 1);
	OK(store_meta_get(b->s, "nudged_at", &nudge, &why));
	end(pid);
}

static void test_forced_gives_up_in_time(void **state)
{
	struct bed *b = *state;
	pid_t pid = hold(b, STAYS);
	CLEANUP(tick_summary_done) struct tick_summary t = {0};

	OK(pass(b, true, 200, &t));
	assert_string_equal(t.skipped, "locked");
	assert_string_equal(t.lock_owner, "holder");
	end(pid);
}

static void test_record_of_another_machine_is_only_read(void **state)
{
	struct bed *b = *state;
	struct store_options o = {.mode = STORE_WRITE, .machine_key = "another"};
	CLEANUP(tick_summary_done) struct tick_summary t = {0};

	store_close(b->s);
	OK(store_open(b->path, &o, &b->s, &why));
	assert_int_equal(pass(b, true, 0, &t), -EROFS);
	assert_non_null(strstr(why.text, "another machine"));
}

static void test_summary_has_the_keys_that_are_agreed(void **state)
{
	struct bed *b = *state;
	CLEANUP(tick_summary_done) struct tick_summary t = {0};
	CLEANUP_FREE char *text = NULL;
	json_t *o;

	OK(pass(b, true, 0, &t));
	o = tick_summary_json(&t);
	text = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	assert_string_equal(text,
		"{\"ran\":true,\"skipped\":null,\"nodes_up\":0,\"nodes_down\":0,\"nodes_ignored\":0,"
		"\"finished\":[],\"dispatched\":[],\"errors\":[],\"alerts\":[]}");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, bed_make, bed_drop)
	const struct CMUnitTest tests[] = {
		T(test_unforced_passes_keep_their_distance),
		T(test_locked),
		T(test_forced_waits_for_the_lease),
		T(test_forced_takes_a_later_pass_for_its_own),
		T(test_forced_gives_up_in_time),
		T(test_record_of_another_machine_is_only_read),
		T(test_summary_has_the_keys_that_are_agreed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
