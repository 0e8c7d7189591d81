/* What is asked of a store: pages of jobs, events without gaps, alerts, nodes, its own facts. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "store_fixture.h"

static void test_pages_and_filters(void **state)
{
	struct bed *b = *state;
	struct store_question q = {.limit = 4};
	struct store_jobs l;
	struct job j;
	int64_t id, seen = 0;

	OK(store_begin(b->s, NULL, &why));
	for (int i = 0; i < 10; i++) {
		job_init(&j);
		j.command = (char *)"sleep 100";
		j.priority = i % 3;
		j.tags = i % 2 ? (char *)"[\"odd\"]" : NULL;
		j.node_constraint = i == 7 ? (char *)"n7" : NULL;
		OK(store_submit(b->s, &j, &id, &why));
	}
	commit(b);
	for (;;) {
		OK(store_jobs(b->s, &q, &l, &why));
		for (size_t i = 0; i < l.n; i++)
			assert_int_equal(l.v[i].id, ++seen);
		q.behind_id = seen;
		bool more = l.has_more;
		store_jobs_done(&l);
		if (!more)
			break;
	}
	assert_int_equal(seen, 10);
	q = (struct store_question){.newest = true, .limit = 3, .command_max = 5};
	OK(store_jobs(b->s, &q, &l, &why));
	assert_int_equal(l.n, 3);
	assert_int_equal(l.v[0].id, 8);
	assert_string_equal(l.v[0].command, "sleep");
	store_jobs_done(&l);
	q = (struct store_question){.order = STORE_BY_TURN};
	OK(store_jobs(b->s, &q, &l, &why));
	assert_int_equal(l.n, 10);
	for (size_t i = 1; i < l.n; i++)
		assert_true(l.v[i - 1].priority > l.v[i].priority ||
			    (l.v[i - 1].priority == l.v[i].priority && l.v[i - 1].id < l.v[i].id));
	store_jobs_done(&l);
	/* For the plan: none in flight, nothing that only a start asks for. */
	begin(b);
	bind_job(b->s, 3);
	commit(b);
	q = (struct store_question){.order = STORE_BY_TURN, .to_place = true, .no_needs = true};
	OK(store_jobs(b->s, &q, &l, &why));
	assert_int_equal(l.n, 9);
	for (size_t i = 0; i < l.n; i++) {
		assert_int_not_equal(l.v[i].id, 3);
		assert_null(l.v[i].tags);
		assert_null(l.v[i].bind.node);
		assert_int_equal(l.v[i].grace_ms, -1);
		assert_null(l.v[i].command);
		assert_null(l.v[i].name);
		assert_int_equal(l.v[i].vram_mib, -1);
		assert_int_equal(l.v[i].created_ms > 0, true);
		assert_string_equal(l.v[i].shape, "sleep <n>");
		assert_true((l.v[i].id == 8) == (l.v[i].node_constraint != NULL));
	}
	store_jobs_done(&l);
	q = (struct store_question){.tag = "odd"};
	OK(store_jobs(b->s, &q, &l, &why));
	assert_int_equal(l.n, 5);
	store_jobs_done(&l);
	q = (struct store_question){.node = "n7"};
	OK(store_jobs(b->s, &q, &l, &why));
	assert_int_equal(l.n, 1);
	assert_int_equal(l.v[0].id, 8);
	store_jobs_done(&l);
	q = (struct store_question){.states = JOB_STATES_TERMINAL};
	OK(store_jobs(b->s, &q, &l, &why));
	assert_int_equal(l.n, 0);
	store_jobs_done(&l);
	q = (struct store_question){.name = "' OR 1=1 --"};
	OK(store_jobs(b->s, &q, &l, &why));
	assert_int_equal(l.n, 0);
	store_jobs_done(&l);
}

/*
 * Jobs put in together that each say something else, more sets of columns than there are statements for: what was said is
 * there, what wasn't is as the table has it, and each has the shape of its own command.
 */
static void test_each_job_says_what_it_says(void **state)
{
	static const char *const commands[] = {
		"python a.py --lr 0.1", "python a.py --lr 0.2", "python b.py --lz abc"};
	struct bed *b = *state;
	int64_t id, last = 0;
	struct job j;

	OK(store_begin(b->s, NULL, &why));
	for (int i = 0; i < 64; i++) {
		job_init(&j);
		j.command = (char *)commands[i % 3];
		j.name = i & 1 ? (char *)"sweep" : NULL;
		j.vram_mib = i & 2 ? i : -1;
		j.exclusive = i & 4;
		j.max_runtime_ms = i & 8 ? i : 0;
		j.node_constraint = i & 16 ? (char *)"n1" : NULL;
		j.gpus = i & 32 ? 0 : 3;
		j.priority = i % 5 - 2;
		OK(store_submit(b->s, &j, &id, &why));
		assert_int_equal(id, ++last);
	}
	commit(b);
	for (int i = 0; i < 64; i++) {
		OK(store_job(b->s, i + 1, &j, &why));
		assert_string_equal(j.command, commands[i % 3]);
		assert_string_equal(j.shape, i % 3 == 2 ? commands[2] : "python a.py --lr <n>");
		assert_true(i & 1 ? j.name && !strcmp(j.name, "sweep") : !j.name);
		assert_int_equal(j.vram_mib, i & 2 ? i : -1);
		assert_true(j.exclusive == ((i & 4) != 0) && !j.idle && !j.nvlink && !j.login);
		assert_int_equal(j.max_runtime_ms, i & 8 ? i : 0);
		assert_true(i & 16 ? j.node_constraint && !strcmp(j.node_constraint, "n1")
				   : !j.node_constraint);
		assert_int_equal(j.gpus, i & 32 ? 0 : 3);
		assert_int_equal(j.priority, i % 5 - 2);
		assert_true(j.oom_retries == -1 && j.grace_ms == -1 && !j.workdir && !j.env);
		assert_true(j.state == JOB_STATE_PENDING && !j.is_bound && j.created_ms > 0);
		job_done(&j);
	}
}

static int64_t fake_now;
static int64_t fake_wall(void)
{
	return fake_now;
}

static void reopen_with_clock(struct bed *b)
{
	struct store_options o = {.mode = STORE_WRITE, .wall_ms = fake_wall};

	store_close(b->s);
	b->s = NULL;
	OK(store_open(b->path, &o, &b->s, &why));
}

/* The wall clock steps back by an hour: numbers, not times, order what is told, and the lease doesn't care. */
static void test_events_have_no_gaps_whatever_the_clock_does(void **state)
{
	struct bed *b = *state;
	struct store_events l;
	int64_t since = 0, n = 0, removed;

	reopen_with_clock(b);
	fake_now = 10000000;
	take_lease(b);
	for (int i = 0; i < 30; i++) {
		fake_now += i == 15 ? -3600000 : 1000;
		submit(b, "x");
	}
	begin(b);
	commit(b);
	do {
		OK(store_events(b->s, since, 0, 7, &l, &why));
		for (size_t i = 0; i < l.n; i++, n++)
			assert_int_equal(l.v[i].id, since + 1 + (int64_t)i);
		assert_false(l.has_gap);
		since = l.last_id;
		store_events_done(&l);
	} while (since < 30);
	assert_int_equal(n, 30);
	OK(store_events(b->s, 30, 0, 7, &l, &why));
	assert_int_equal(l.last_id, 30);
	assert_int_equal(l.n, 0);
	store_events_done(&l);
	OK(store_events(b->s, -1, 0, 3, &l, &why));
	assert_int_equal(l.n, 3);
	assert_int_equal(l.v[0].id, 28);
	store_events_done(&l);
	/* Retention takes from the old end only, and a reader who was behind it learns so. */
	OK(store_begin(b->s, NULL, &why));
	OK(store_trim(b->s, 10005000, 0, &removed, &why));
	commit(b);
	assert_int_equal(removed, 4);
	OK(store_events(b->s, 2, 0, 0, &l, &why));
	assert_true(l.has_gap);
	assert_int_equal(l.v[0].id, 5);
	store_events_done(&l);
	OK(store_events(b->s, 4, 0, 0, &l, &why));
	assert_false(l.has_gap);
	store_events_done(&l);
	OK(store_begin(b->s, NULL, &why));
	OK(store_trim(b->s, INT64_MAX, 0, &removed, &why));
	commit(b);
	submit(b, "y");
	OK(store_events(b->s, 30, 0, 0, &l, &why));
	assert_int_equal(l.n, 1);
	assert_int_equal(l.v[0].id, 31);
	store_events_done(&l);
}

static void test_alerts_are_acknowledged_once(void **state)
{
	struct bed *b = *state;
	struct store_alerts l;
	int64_t n, removed;

	OK(store_begin(b->s, NULL, &why));
	OK(store_alert_add(b->s, ALERT_NODE_DOWN, 0, "n1", "n1 is down", "detail", &why));
	OK(store_alert_add(b->s, ALERT_NODE_DOWN, 0, "n2", "n2 is down", NULL, &why));
	commit(b);
	OK(store_begin(b->s, NULL, &why));
	OK(store_alert_ack(b->s, &(int64_t){1}, 1, &n, &why));
	assert_int_equal(n, 1);
	OK(store_alert_ack(b->s, &(int64_t){1}, 1, &n, &why));
	assert_int_equal(n, 0);
	OK(store_alert_notified(b->s, 2, &why));
	OK(store_trim(b->s, 0, INT64_MAX, &removed, &why));
	assert_int_equal(removed, 1);
	commit(b);
	OK(store_alerts(b->s, STORE_ALERTS_UNDELIVERED, 0, &l, &why));
	assert_int_equal(l.n, 0);
	store_alerts_done(&l);
	OK(store_alerts(b->s, STORE_ALERTS_OPEN, 0, &l, &why));
	assert_int_equal(l.n, 1);
	assert_string_equal(l.v[0].node, "n2");
	store_alerts_done(&l);
}

static void test_what_is_still_waited_for(void **state)
{
	struct bed *b = *state;
	struct store_unmet_row *rows;
	int64_t bad, good, slow, ids[3], one, two, gone;
	enum store_cancelled c;
	size_t n;

	begin(b);
	bad = add_job(b->s, "bad", NULL, 0);
	good = add_job(b->s, "good", NULL, 0);
	slow = add_job(b->s, "slow", NULL, 0);
	ids[0] = bad, ids[1] = good, ids[2] = slow;
	one = add_job(b->s, "success of all", ids, 3);
	two = add_job(b->s, "any end of two", NULL, 0);
	OK(store_set_needs(b->s, two, NULL, 0, ids, 2, &why));
	struct job j;
	job_init(&j);
	j.id = 50;
	j.command = (char *)"its prerequisite was purged";
	j.after = (int64_t[]){44};
	j.n_after = 1;
	j.created_ms = 1;
	OK(store_import_job(b->s, &j, &why));
	gone = 50;
	/* One that doesn't wait any more isn't asked about. */
	OK(store_cancel(b->s, add_job(b->s, "dropped", &slow, 1), "x", &c, &why));
	OK(store_cancel(b->s, bad, "x", &c, &why));
	bind_job(b->s, good);
	OK(try_settle(b->s, good, 1, JOB_STEP_COMPLETE, JOB_CAUSE_NONE));
	commit(b);
	OK(store_unmet(b->s, &rows, &n, &why));
	assert_int_equal(n, 3);
	assert_true(
		rows[0].job == one && rows[0].needs == bad && rows[0].state == JOB_STATE_CANCELLED);
	assert_true(
		rows[1].job == one && rows[1].needs == slow && rows[1].state == JOB_STATE_PENDING);
	assert_true(rows[2].job == gone && rows[2].needs == 44 && rows[2].state == JOB_STATE_NONE);
	free(rows);
}

/* So many needs that they're looked at the other way round, from the jobs that wait: it's the same list. */
static void test_what_is_still_waited_for_by_many(void **state)
{
	enum { N = 3000 };
	struct bed *b = *state;
	struct store_question turn = {.order = STORE_BY_TURN, .to_place = true, .no_needs = true};
	struct store_unmet_row *rows;
	struct store_jobs l;
	int64_t ids[N], all, after_all;
	enum store_cancelled c;
	size_t n;

	OK(store_unmet(b->s, &rows, &n, &why));
	assert_int_equal(n, 0);
	free(rows);
	begin(b);
	for (size_t i = 0; i < N; i++)
		ids[i] = add_job(b->s, "one", NULL, 0);
	all = add_job(b->s, "all", ids, N);
	after_all = add_job(b->s, "after all", &all, 1);
	OK(store_cancel(b->s, ids[7], "x", &c, &why));
	bind_job(b->s, ids[9]);
	OK(try_settle(b->s, ids[9], 1, JOB_STEP_COMPLETE, JOB_CAUSE_NONE));
	commit(b);
	OK(store_unmet(b->s, &rows, &n, &why));
	assert_int_equal(n, N); /* all but the one that completed, and the last job's */
	for (size_t i = 0, k = 0; i < N; i++) {
		if (i == 9)
			continue;
		assert_true(rows[k].job == all && rows[k].needs == ids[i]);
		assert_int_equal(rows[k++].state, i == 7 ? JOB_STATE_CANCELLED : JOB_STATE_PENDING);
	}
	assert_true(rows[N - 1].job == after_all && rows[N - 1].needs == all);
	free(rows);
	/* A list that's long enough to be moved while it grows. */
	OK(store_jobs(b->s, &turn, &l, &why));
	assert_int_equal(l.n, N);
	for (size_t i = 1; i < l.n; i++)
		assert_true(l.v[i].id > l.v[i - 1].id &&
			    !strcmp(l.v[i].shape, l.v[0].shape) == (l.v[i].id < all));
	store_jobs_done(&l);
	/* Of those few that are left it's asked the short way. */
	begin(b);
	OK(store_cancel(b->s, all, "x", &c, &why));
	for (size_t i = 0; i < N; i++)
		if (i != 9 && i != 7)
			OK(store_cancel(b->s, ids[i], "x", &c, &why));
	commit(b);
	OK(store_unmet(b->s, &rows, &n, &why));
	assert_int_equal(n, 1);
	assert_true(rows[0].job == after_all && rows[0].state == JOB_STATE_CANCELLED);
	free(rows);
}

static void test_nodes_keep_what_people_said(void **state)
{
	struct bed *b = *state;
	struct store_node n = {.name = (char *)"n1",
		.hostname = (char *)"h",
		.port = 22,
		.state = (char *)"up",
		.inventory = (char *)"[]",
		.sort_order = 2,
		.observed_incarnation = 1};
	struct store_nodes l;
	int64_t id = submit(b, "x");

	begin(b);
	OK(store_node_drain(b->s, "n1", true, &why));
	OK(store_node_put(b->s, &n, &why));
	OK(store_node_put(b->s, &n, &why));
	bind_job(b->s, id);
	assert_int_equal(store_node_remove(b->s, "n1", &why), -EPERM);
	commit(b);
	OK(store_nodes(b->s, &l, &why));
	assert_int_equal(l.n, 1);
	assert_true(l.v[0].is_drained && !l.v[0].is_ignored);
	assert_string_equal(l.v[0].state, "up");
	assert_int_equal(l.v[0].port, 22);
	store_nodes_done(&l);
}

static void expect_silent_since(struct bed *b, int64_t since, int64_t next)
{
	struct store_nodes l;

	OK(store_nodes(b->s, &l, &why));
	assert_int_equal(l.v[0].failed_since_ms, since);
	assert_int_equal(l.v[0].next_try_ms, next);
	assert_int_equal(l.v[1].failed_since_ms, 0);
	store_nodes_done(&l);
}

static void test_silence_of_a_node_goes_with_a_clock_that_is_set(void **state)
{
	struct bed *b = *state;
	struct store_node silent = {.name = (char *)"a",
				  .failed_since_ms = 7000,
				  .next_try_ms = 9000},
			  well = {.name = (char *)"b"};

	reopen_with_clock(b);
	fake_now = 10000;
	take_lease(b);
	begin(b);
	OK(store_node_put(b->s, &silent, &why));
	OK(store_node_put(b->s, &well, &why));
	commit(b);
	/* BOOTTIME has gone on by next to nothing. */
	fake_now += 3600000;
	take_lease(b);
	struct store_nodes l;
	OK(store_nodes(b->s, &l, &why));
	assert_true(l.v[0].failed_since_ms > 3606000 && l.v[0].failed_since_ms <= 3607000);
	store_nodes_done(&l);
	fake_now -= 3600000;
	take_lease(b);
	OK(store_nodes(b->s, &l, &why));
	assert_true(l.v[0].failed_since_ms > 6000 && l.v[0].failed_since_ms <= 7000);
	silent.failed_since_ms = 7000;
	store_nodes_done(&l);
	begin(b);
	OK(store_node_put(b->s, &silent, &why));
	commit(b);
	/* Of another boot nothing can be told, and what's there stays. */
	setenv("GPUSTOW_TEST_BOOT_ID", "11111111-1111-1111-1111-111111111111", 1);
	fake_now += 7200000;
	take_lease(b);
	unsetenv("GPUSTOW_TEST_BOOT_ID");
	expect_silent_since(b, 7000, 9000);
}

static void test_jobs_of_another_queue(void **state)
{
	struct bed *b = *state;
	struct job j;

	job_init(&j);
	j.id = 41;
	j.command = (char *)"old";
	j.state = JOB_STATE_FAILED;
	j.cause = JOB_CAUSE_EXIT_CODE;
	j.has_exit_code = true;
	j.exit_code = 9;
	j.created_ms = 1000;
	j.after = (int64_t[]){12};
	j.n_after = 1;
	OK(store_begin(b->s, NULL, &why));
	OK(store_import_job(b->s, &j, &why));
	assert_int_equal(store_import_job(b->s, &j, &why), -EEXIST);
	j.id = 42;
	j.state = JOB_STATE_RUNNING;
	assert_int_equal(store_import_job(b->s, &j, &why), -EINVAL);
	assert_int_equal(add_job(b->s, "new", NULL, 0), 42);
	commit(b);
	struct job back = get(b, 41);
	assert_int_equal(back.exit_code, 9);
	assert_int_equal(back.cause, JOB_CAUSE_EXIT_CODE);
	assert_int_equal(back.created_ms, 1000);
	assert_int_equal(back.after[0], 12);
	job_done(&back);
}

static void test_own_facts_are_safe(void **state)
{
	struct bed *b = *state;
	char *v = NULL;

	OK(store_begin(b->s, NULL, &why));
	OK(store_meta_set(b->s, "last_tick_at", "x", &why));
	assert_int_equal(store_meta_set(b->s, "queue", "x", &why), -EINVAL);
	commit(b);
	OK(store_meta_get(b->s, "last_tick_at", &v, &why));
	assert_string_equal(v, "x");
	free(v);
	assert_int_equal(store_meta_get(b->s, "none", &v, &why), -ENOENT);
	assert_int_equal(strlen(store_queue(b->s)), 32);
	OK(store_check(b->s, &why));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, bed_make, bed_drop)
	const struct CMUnitTest tests[] = {
		T(test_pages_and_filters),
		T(test_each_job_says_what_it_says),
		T(test_events_have_no_gaps_whatever_the_clock_does),
		T(test_alerts_are_acknowledged_once),
		T(test_what_is_still_waited_for),
		T(test_what_is_still_waited_for_by_many),
		T(test_nodes_keep_what_people_said),
		T(test_silence_of_a_node_goes_with_a_clock_that_is_set),
		T(test_jobs_of_another_queue),
		T(test_own_facts_are_safe),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
