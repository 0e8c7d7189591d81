/* The store's changes, one client, on the real SQLite. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "store_fixture.h"

#include "base/cleanup.h"

static void test_a_jobs_way(void **state)
{
	struct bed *b = *state;
	int64_t id = submit(b, "train.py"), attempt;
	struct job j;

	begin(b);
	attempt = bind_job(b->s, id);
	assert_int_equal(attempt, 1);
	commit(b);
	j = get(b, id);
	assert_int_equal(j.state, JOB_STATE_PENDING);
	assert_true(j.is_bound);
	assert_string_equal(j.bind.node, "n1");
	assert_int_equal(j.bind.n_cards, 1);
	assert_string_equal(j.bind.cards[0].uuid, "GPU-11");
	assert_int_equal(j.bind.cards[0].mib, 4096);
	job_done(&j);
	begin(b);
	OK(try_start(b->s, id, attempt));
	assert_int_equal(try_start(b->s, id, attempt), 1);
	commit(b);
	j = get(b, id);
	assert_int_equal(j.state, JOB_STATE_RUNNING);
	assert_int_equal(j.pid, 4711);
	assert_string_equal(j.run_dir, "/run/1");
	job_done(&j);
	begin(b);
	assert_int_equal(try_settle(b->s, id, attempt, JOB_STEP_FAIL, JOB_CAUSE_EXIT_CODE), 0);
	commit(b);
	/* The second time, another story even: nothing changes and nothing is told. */
	int64_t told = count_events(b, id);
	begin(b);
	assert_int_equal(try_settle(b->s, id, attempt, JOB_STEP_COMPLETE, JOB_CAUSE_NONE), 1);
	commit(b);
	assert_int_equal(count_events(b, id), told);
	j = get(b, id);
	assert_int_equal(j.state, JOB_STATE_FAILED);
	assert_int_equal(j.cause, JOB_CAUSE_EXIT_CODE);
	assert_true(j.has_exit_code);
	assert_int_equal(j.exit_code, 3);
	assert_string_equal(j.bind.node, "n1");
	job_done(&j);
	struct store_alerts a;
	OK(store_alerts(b->s, STORE_ALERTS_OPEN, 0, &a, &why));
	assert_int_equal(a.n, 1);
	assert_int_equal(a.v[0].kind, ALERT_JOB_FAILED);
	assert_int_equal(a.v[0].job, id);
	store_alerts_done(&a);
	assert_int_equal(told, 3);
}

static void test_only_the_controller_decides(void **state)
{
	struct bed *b = *state;
	int64_t id = submit(b, "x"), attempt;

	OK(store_begin(b->s, NULL, &why));
	assert_int_equal(try_bind(b->s, id, &attempt), -EPERM);
	assert_non_null(strstr(why.text, "lease"));
	commit(b);
	assert_int_equal(store_hold(b->s, id, "x", &why), -EINVAL);
}

static void test_a_stale_epoch_is_refused(void **state)
{
	struct bed *b = *state;
	struct store_lease old;

	take_lease(b);
	old = b->lease;
	take_lease(b); /* the same process may, and it's a new epoch */
	assert_int_equal(b->lease.epoch, old.epoch + 1);
	assert_int_equal(store_begin(b->s, &old, &why), -ESTALE);
	assert_int_equal(store_lease_renew(b->s, &old, 1000, &why), -ESTALE);
	begin(b);
	commit(b);
	OK(store_lease_release(b->s, &b->lease, &why));
	assert_int_equal(store_begin(b->s, &b->lease, &why), -ESTALE);
}

static void test_retry_requeue_and_history(void **state)
{
	struct bed *b = *state;
	int64_t id = submit(b, "x");
	struct job j;

	for (int i = 1; i <= 3; i++) {
		begin(b);
		assert_int_equal(bind_job(b->s, id), i);
		OK(try_start(b->s, id, i));
		assert_int_equal(try_settle(b->s, id, i, i < 3 ? JOB_STEP_RETRY : JOB_STEP_LOSE,
					 JOB_CAUSE_VANISHED),
			0);
		commit(b);
	}
	OK(store_begin(b->s, NULL, &why));
	OK(store_set_result(b->s, id, "{\"loss\": 1}", &why));
	OK(store_set_notes(b->s, id, "keep me", &why));
	OK(store_requeue(b->s, id, &why));
	assert_int_equal(store_requeue(b->s, id, &why), -EPERM);
	commit(b);
	j = get(b, id);
	assert_int_equal(j.state, JOB_STATE_PENDING);
	assert_int_equal(job_attempt_count(&j), 0);
	assert_null(j.result);
	assert_null(j.last_error);
	assert_null(j.bind.node);
	assert_false(j.has_exit_code);
	assert_int_equal(j.cause, JOB_CAUSE_NONE);
	assert_string_equal(j.notes, "keep me");
	job_done(&j);
	begin(b);
	assert_int_equal(bind_job(b->s, id), 4); /* no number twice */
	commit(b);
	struct store_attempts h;
	OK(store_attempts(b->s, id, &h, &why));
	assert_int_equal(h.n, 4);
	assert_int_equal(h.v[0].cause, JOB_CAUSE_VANISHED);
	assert_int_equal(h.v[2].ended_as, JOB_STEP_LOSE);
	assert_false(h.v[3].is_settled);
	store_attempts_done(&h);
}

static void test_unbind_gives_the_number_back(void **state)
{
	struct bed *b = *state;
	int64_t id = submit(b, "x"), other = submit(b, "y");
	enum store_cancelled c;
	struct job j;

	begin(b);
	assert_int_equal(bind_job(b->s, id), 1);
	assert_int_equal(store_unbind(b->s, id, 1, "no room", &why), 0);
	assert_int_equal(store_unbind(b->s, id, 1, "no room", &why), 1);
	assert_int_equal(bind_job(b->s, id), 1);
	/* A cancel wanted meanwhile is met as soon as the node has said that nothing started. */
	bind_job(b->s, other);
	OK(store_cancel(b->s, other, "by hand", &c, &why));
	assert_int_equal(c, STORE_CANCEL_WANTED);
	OK(store_unbind(b->s, other, 1, NULL, &why));
	commit(b);
	j = get(b, other);
	assert_int_equal(j.state, JOB_STATE_CANCELLED);
	assert_int_equal(j.cause, JOB_CAUSE_CANCELLED);
	job_done(&j);
	assert_int_equal(last_event(b, other), EVENT_JOB_CANCELLED);
}

static void test_a_wish_to_cancel_is_never_taken_back(void **state)
{
	struct bed *b = *state;
	int64_t id = submit(b, "x"), waiting = submit(b, "y");
	enum store_cancelled c;
	struct job j;

	begin(b);
	bind_job(b->s, id);
	OK(try_start(b->s, id, 1));
	OK(store_cancel(b->s, id, "first", &c, &why));
	assert_int_equal(c, STORE_CANCEL_WANTED);
	OK(store_cancel(b->s, id, "second", &c, &why));
	OK(store_cancel(b->s, waiting, "now", &c, &why));
	assert_int_equal(c, STORE_CANCELLED);
	assert_int_equal(try_settle(b->s, id, 1, JOB_STEP_RETRY, JOB_CAUSE_VANISHED), -EPERM);
	commit(b);
	j = get(b, id);
	assert_int_equal(j.state, JOB_STATE_RUNNING);
	assert_string_equal(j.cancel_reason, "first");
	job_done(&j);
	/* It ended by itself first: that end stands. */
	begin(b);
	assert_int_equal(try_settle(b->s, id, 1, JOB_STEP_COMPLETE, JOB_CAUSE_NONE), 0);
	OK(store_cancel(b->s, id, "late", &c, &why));
	assert_int_equal(c, STORE_CANCEL_LATE);
	commit(b);
	j = get(b, id);
	assert_int_equal(j.state, JOB_STATE_COMPLETED);
	job_done(&j);
}

static void test_a_bad_end_has_a_cause_that_fits(void **state)
{
	struct bed *b = *state;
	int64_t id = submit(b, "x");

	begin(b);
	bind_job(b->s, id);
	assert_int_equal(try_settle(b->s, id, 1, JOB_STEP_FAIL, JOB_CAUSE_NONE), -EINVAL);
	assert_int_equal(try_settle(b->s, id, 1, JOB_STEP_COMPLETE, JOB_CAUSE_SIGNAL), -EINVAL);
	assert_int_equal(try_settle(b->s, id, 1, JOB_STEP_LOSE, JOB_CAUSE_EXIT_CODE), -EINVAL);
	assert_int_equal(try_settle(b->s, id, 1, JOB_STEP_TIMEOUT, JOB_CAUSE_SIGNAL), -EINVAL);
	assert_int_equal(try_settle(b->s, id, 2, JOB_STEP_FAIL, JOB_CAUSE_SIGNAL), -ESTALE);
	assert_int_equal(try_settle(b->s, 99, 1, JOB_STEP_FAIL, JOB_CAUSE_SIGNAL), -ENOENT);
	/* An end whose start nobody saw makes both steps. */
	struct store_end end = {.step = JOB_STEP_TIMEOUT,
		.cause = JOB_CAUSE_TIMEOUT,
		.started_ms = 1000,
		.finished_ms = 5000,
		.elapsed_ms = 4000,
		.vram_mib = -1,
		.peak_mib = 77};
	OK(store_settle(b->s, id, 1, &end, &why));
	commit(b);
	struct store_events l;
	OK(store_events(b->s, 0, id, 0, &l, &why));
	assert_int_equal(l.n, 3);
	assert_int_equal(l.v[1].kind, EVENT_JOB_STARTED);
	assert_int_equal(l.v[2].kind, EVENT_JOB_TIMEOUT);
	store_events_done(&l);
	struct job j = get(b, id);
	assert_int_equal(j.started_ms, 1000);
	assert_int_equal(j.finished_ms, 5000);
	assert_int_equal(j.elapsed_ms, 4000);
	assert_int_equal(j.peak_mib, 77);
	job_done(&j);
}

static void test_everything_asked_for_comes_back(void **state)
{
	struct bed *b = *state;
	int64_t first = submit(b, "a"), second = submit(b, "b"), id, again;
	int64_t any[] = {first, second};
	struct job j, back;

	job_init(&j);
	j.name = (char *)"caf\xc3\xa9";
	j.command = (char *)"line one\nline 'two'";
	j.env = (char *)"{\"A\": \"1\"}";
	j.tags = (char *)"[\"night\", \"big\", \"night\"]";
	j.key = (char *)"k1";
	j.gpus = 2;
	j.vram_mib = 0;
	j.vram_source = VRAM_DECLARED;
	j.exclusive = j.login = true;
	j.max_runtime_ms = 60000;
	j.oom_retries = 0;
	j.lead_signal = 10;
	j.retry_on = 1 << JOB_CAUSE_VANISHED;
	j.on_dependency = ON_DEPENDENCY_RUN;
	j.after = any;
	j.n_after = 1;
	j.after_any = any;
	j.n_after_any = 2;
	j.notes = (char *)"n";
	OK(store_begin(b->s, NULL, &why));
	assert_int_equal(store_submit(b->s, &j, &id, &why), 0);
	assert_int_equal(store_submit(b->s, &j, &again, &why), 1);
	assert_int_equal(again, id);
	commit(b);
	back = get(b, id);
	assert_string_equal(back.name, j.name);
	assert_string_equal(back.command, j.command);
	assert_string_equal(back.env, j.env);
	assert_string_equal(back.tags, j.tags);
	assert_int_equal(back.gpus, 2);
	assert_int_equal(back.vram_mib, 0);
	assert_int_equal(back.vram_source, VRAM_DECLARED);
	assert_true(back.exclusive && back.login && !back.idle && !back.nvlink);
	assert_int_equal(back.max_runtime_ms, 60000);
	assert_int_equal(back.oom_retries, 0);
	assert_int_equal(back.grace_ms, -1);
	assert_int_equal(back.retry_on, 1 << JOB_CAUSE_VANISHED);
	assert_int_equal(back.on_dependency, ON_DEPENDENCY_RUN);
	assert_int_equal(back.n_after, 1);
	assert_int_equal(back.n_after_any, 2);
	assert_int_equal(back.after_any[1], second);
	job_done(&back);
	int64_t *deps;
	size_t n;
	OK(store_dependents(b->s, first, &deps, &n, &why));
	assert_int_equal(n, 1);
	assert_int_equal(deps[0], id);
	free(deps);
}

static void test_bad_jobs_are_refused_and_the_rest_stays(void **state)
{
	struct bed *b = *state;
	int64_t id, gone = 999;
	struct job j;

	OK(store_begin(b->s, NULL, &why));
	job_init(&j);
	assert_int_equal(store_submit(b->s, &j, &id, &why), -EINVAL);
	j.command = (char *)"x";
	j.name = (char *)"\xff";
	assert_int_equal(store_submit(b->s, &j, &id, &why), -EINVAL);
	assert_non_null(strstr(why.text, "name"));
	j.name = NULL;
	j.env = (char *)"[1]";
	assert_int_equal(store_submit(b->s, &j, &id, &why), -EINVAL);
	j.env = NULL;
	j.tags = (char *)"[1]";
	assert_int_equal(store_submit(b->s, &j, &id, &why), -EINVAL);
	j.tags = NULL;
	j.after = &gone;
	j.n_after = 1;
	assert_int_equal(store_submit(b->s, &j, &id, &why), -EINVAL);
	assert_non_null(strstr(why.text, "999"));
	assert_int_equal(add_job(b->s, "good", NULL, 0), 1);
	commit(b);
	struct store_counts c;
	OK(store_counts(b->s, &c, &why));
	assert_int_equal(c.by_state[JOB_STATE_PENDING], 1);
}

static void test_rings_are_refused(void **state)
{
	struct bed *b = *state;
	int64_t a, c, d;

	OK(store_begin(b->s, NULL, &why));
	a = add_job(b->s, "a", NULL, 0);
	c = add_job(b->s, "c", &a, 1);
	d = add_job(b->s, "d", &c, 1);
	assert_int_equal(store_set_needs(b->s, a, &a, 1, NULL, 0, &why), -EINVAL);
	assert_int_equal(store_set_needs(b->s, a, NULL, 0, &d, 1, &why), -ELOOP);
	assert_int_equal(store_set_needs(b->s, a, &(int64_t){77}, 1, NULL, 0, &why), -EINVAL);
	OK(store_set_needs(b->s, d, NULL, 0, &a, 1, &why));
	OK(store_set_needs(b->s, c, &d, 1, NULL, 0, &why));
	commit(b);
	assert_int_equal(last_event(b, c), EVENT_JOB_DEPENDENCIES);
}

static void test_hold_release_and_failing_for_a_prerequisite(void **state)
{
	struct bed *b = *state;
	int64_t a = submit(b, "a"), c, *dropped, fails;
	struct store_counts counts;
	enum store_cancelled how;
	bool held, waiting;
	size_t n;

	begin(b);
	c = add_job(b->s, "c", &a, 1);
	fails = add_job(b->s, "f", &a, 1);
	OK(store_some_wait(b->s, true, &held, &why));
	OK(store_some_wait(b->s, false, &waiting, &why));
	assert_true(!held && waiting);
	OK(store_cancel(b->s, a, "x", &how, &why));
	assert_int_equal(store_hold(b->s, c, "job 1 was cancelled", &why), 0);
	assert_int_equal(store_hold(b->s, c, "job 1 was cancelled", &why), 1);
	assert_int_equal(try_bind(b->s, c, &(int64_t){0}), -EPERM);
	OK(store_fail(b->s, fails, JOB_STEP_DEPENDENCY, "job 1 was cancelled", &why));
	commit(b);
	OK(store_counts(b->s, &counts, &why));
	OK(store_some_wait(b->s, true, &held, &why));
	OK(store_some_wait(b->s, false, &waiting, &why));
	assert_true(held && !waiting);
	assert_int_equal(counts.held, 1);
	assert_int_equal(counts.by_state[JOB_STATE_PENDING], 0);
	assert_int_equal(counts.by_state[JOB_STATE_FAILED], 1);
	assert_int_equal(counts.open_alerts, 2);
	assert_int_equal(last_event(b, c), EVENT_JOB_HELD);
	OK(store_begin(b->s, NULL, &why));
	OK(store_release(b->s, c, &dropped, &n, &why));
	assert_int_equal(n, 1);
	assert_int_equal(dropped[0], a);
	free(dropped);
	assert_int_equal(store_release(b->s, c, NULL, NULL, &why), -EPERM);
	commit(b);
	struct job j = get(b, c);
	assert_int_equal(j.n_after, 0);
	assert_null(j.held_reason);
	job_done(&j);
}

static void test_purge_keeps_what_is_needed(void **state)
{
	struct bed *b = *state;
	int64_t a, other, c, removed;
	enum store_cancelled how;

	OK(store_begin(b->s, NULL, &why));
	a = add_job(b->s, "a", NULL, 0);
	other = add_job(b->s, "b", NULL, 0);
	c = add_job(b->s, "c", &a, 1);
	OK(store_cancel(b->s, a, "x", &how, &why));
	OK(store_cancel(b->s, other, "x", &how, &why));
	assert_int_equal(store_purge(b->s, 1u << JOB_STATE_PENDING, &removed, &why), -EPERM);
	OK(store_purge(b->s, JOB_STATES_TERMINAL, &removed, &why));
	assert_int_equal(removed, 1);
	OK(store_cancel(b->s, c, "x", &how, &why));
	OK(store_purge(b->s, JOB_STATES_TERMINAL, &removed, &why));
	assert_int_equal(removed, 2);
	/* Numbers aren't used again. */
	assert_int_equal(add_job(b->s, "d", NULL, 0), 4);
	commit(b);
}

static void test_what_is_seen_of_an_attempt(void **state)
{
	struct bed *b = *state;
	int64_t id = submit(b, "x");
	struct store_seen seen = {
		.heartbeat_ms = 5000, .gpu_mem_mib = 100, .peak_mib = 300, .progress = "epoch 1"};
	struct job j;

	begin(b);
	bind_job(b->s, id);
	OK(store_seen(b->s, id, 1, &seen, &why));
	seen = (struct store_seen){.heartbeat_ms = -1, .gpu_mem_mib = -1, .peak_mib = 200};
	OK(store_seen(b->s, id, 1, &seen, &why));
	assert_int_equal(store_seen(b->s, id, 2, &seen, &why), -ESTALE);
	commit(b);
	j = get(b, id);
	assert_int_equal(j.heartbeat_ms, 5000);
	assert_int_equal(j.gpu_mem_mib, 100);
	assert_int_equal(j.peak_mib, 300);
	assert_string_equal(j.progress, "epoch 1");
	assert_true(j.progress_ms > 0);
	job_done(&j);
}

static void test_what_was_given_up_is_stopped_later(void **state)
{
	struct bed *b = *state;
	int64_t id = submit(b, "x"), removed;
	struct store_attempts l;
	struct store_counts c;

	begin(b);
	bind_job(b->s, id);
	OK(try_settle(b->s, id, 1, JOB_STEP_RETRY, JOB_CAUSE_NODE_LOST));
	bind_job(b->s, id);
	OK(try_settle(b->s, id, 2, JOB_STEP_LOSE, JOB_CAUSE_VANISHED));
	OK(store_purge(b->s, JOB_STATES_TERMINAL, &removed, &why));
	assert_int_equal(removed, 1);
	commit(b);
	OK(store_counts(b->s, &c, &why));
	assert_int_equal(c.pending_reaps, 1);
	OK(store_reaps(b->s, "n2", &l, &why));
	assert_int_equal(l.n, 0);
	store_attempts_done(&l);
	OK(store_reaps(b->s, "n1", &l, &why));
	assert_int_equal(l.n, 1);
	assert_int_equal(l.v[0].attempt, 1);
	assert_int_equal(strlen(l.v[0].bind.token), 32);
	store_attempts_done(&l);
	begin(b);
	assert_int_equal(store_reaped(b->s, id, 1, "it was still there", &why), 0);
	assert_int_equal(store_reaped(b->s, id, 1, "it was still there", &why), 1);
	commit(b);
	assert_int_equal(last_event(b, id), EVENT_JOB_REAPED);
	OK(store_counts(b->s, &c, &why));
	assert_int_equal(c.pending_reaps, 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, bed_make, bed_drop)
	const struct CMUnitTest tests[] = {
		T(test_a_jobs_way),
		T(test_only_the_controller_decides),
		T(test_a_stale_epoch_is_refused),
		T(test_retry_requeue_and_history),
		T(test_unbind_gives_the_number_back),
		T(test_a_wish_to_cancel_is_never_taken_back),
		T(test_a_bad_end_has_a_cause_that_fits),
		T(test_everything_asked_for_comes_back),
		T(test_bad_jobs_are_refused_and_the_rest_stays),
		T(test_rings_are_refused),
		T(test_hold_release_and_failing_for_a_prerequisite),
		T(test_purge_keeps_what_is_needed),
		T(test_what_is_seen_of_an_attempt),
		T(test_what_was_given_up_is_stopped_later),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
