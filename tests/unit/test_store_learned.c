/* What the store learns of commands and cards, passes, nodes' failures, moving, the pages of a status. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "store_fixture.h"

#include "base/cleanup.h"
#include "store/store_inner.h"

static int64_t now = 1000;
static int64_t my_wall(void)
{
	return now;
}

/* The fixture's store, by a clock of ours. */
static int bed_make_timed(void **state)
{
	struct store_options o = {.mode = STORE_WRITE, .wall_ms = my_wall};
	struct bed *b;

	if (bed_make(state) < 0)
		return -1;
	b = *state;
	store_close(b->s);
	now = 1000000;
	return store_open(b->path, &o, &b->s, &why);
}

static void run_to(struct bed *b, const char *command, struct store_end end)
{
	int64_t id, attempt;

	begin(b);
	id = add_job(b->s, command, NULL, 0);
	attempt = bind_job(b->s, id);
	OK(store_settle(b->s, id, attempt, &end, &why));
	/* Told twice, it counts once. */
	assert_int_equal(store_settle(b->s, id, attempt, &end, &why), 1);
	commit(b);
}

static struct store_end good(int64_t peak_mib, int64_t elapsed_ms)
{
	return (struct store_end){.step = JOB_STEP_COMPLETE,
		.has_exit_code = true,
		.vram_mib = -1,
		.peak_mib = peak_mib,
		.elapsed_ms = elapsed_ms};
}

static struct store_end bad(enum job_cause cause, int64_t peak_mib)
{
	return (struct store_end){.step = JOB_STEP_FAIL,
		.cause = cause,
		.vram_mib = -1,
		.peak_mib = peak_mib,
		.elapsed_ms = 999999};
}

static struct store_learned learned(struct bed *b, const char *shape, int64_t gpus)
{
	struct store_learned l = {0};

	OK(store_learned(b->s, shape, gpus, &l, &why));
	return l;
}

#define SHAPE "python train.py --lr <n>"

static void test_runs_of_one_shape(void **state)
{
	struct bed *b = *state;
	struct store_learned l, *all;
	size_t n;

	run_to(b, "python bad.py", bad(JOB_CAUSE_EXIT_CODE, 9999));
	assert_int_equal(store_learned(b->s, "python bad.py", 1, &l, &why), -ENOENT);
	run_to(b, "python train.py --lr 1", good(3000, 100));
	run_to(b, "python train.py --lr 2", good(5000, 300));
	run_to(b, "python train.py --lr 3", good(4000, 200));
	run_to(b, "python train.py --lr 4", good(-1, -1)); /* too short to be seen */
	run_to(b, "python train.py --lr 4", bad(JOB_CAUSE_EXIT_CODE, 9999));
	now += 5;
	run_to(b, "python eval.py --lr 4", good(100, 7));
	l = learned(b, SHAPE, 1);
	assert_int_equal(l.n, 4);
	assert_int_equal(l.n_peaks, 3);
	assert_int_equal(l.n_oom, 0);
	assert_int_equal(l.peak_max_mib, 5000);
	assert_int_equal(l.peak_last_mib, 4000);
	assert_int_equal(l.oom_max_mib, 0);
	assert_int_equal(l.run_mean_ms, 200);
	assert_int_equal(l.run_max_ms, 300);
	assert_int_equal(l.last_ms, 1000000);
	free(l.shape);
	assert_int_equal(store_learned(b->s, SHAPE, 2, &l, &why), -ENOENT);
	OK(store_learned_all(b->s, 0, &all, &n, &why));
	assert_int_equal(n, 2);
	assert_string_equal(all[0].shape, "python eval.py --lr <n>");
	store_learned_done(all, n);
	OK(store_learned_all(b->s, 1, &all, &n, &why));
	assert_int_equal(n, 1);
	store_learned_done(all, n);
}

static void test_out_of_memory_is_a_lower_bound(void **state)
{
	struct bed *b = *state;
	struct store_end again = bad(JOB_CAUSE_CUDA_OOM, 7000);
	struct store_learned l;
	int64_t id, attempt;

	run_to(b, "python train.py --lr 1", bad(JOB_CAUSE_CUDA_OOM, 6000));
	l = learned(b, SHAPE, 1);
	assert_true(l.n == 0 && l.n_oom == 1 && l.oom_max_mib == 6000 && !l.peak_max_mib &&
		    !l.run_max_ms);
	free(l.shape);
	/* One that is tried again counts as well, and the next attempt by itself. */
	again.step = JOB_STEP_RETRY;
	again.is_oom_retry = true;
	begin(b);
	id = add_job(b->s, "python train.py --lr 2", NULL, 0);
	attempt = bind_job(b->s, id);
	OK(store_settle(b->s, id, attempt, &again, &why));
	attempt = bind_job(b->s, id);
	again = good(8000, 10);
	OK(store_settle(b->s, id, attempt, &again, &why));
	commit(b);
	l = learned(b, SHAPE, 1);
	assert_true(l.n == 1 && l.n_oom == 2 && l.oom_max_mib == 7000 && l.peak_max_mib == 8000);
	free(l.shape);
}

static void test_what_is_taken_back_isnt_learned(void **state)
{
	struct bed *b = *state;
	struct store_end end = good(10, 10);
	struct store_learned l;
	int64_t id, attempt;

	begin(b);
	id = add_job(b->s, "python train.py --lr 1", NULL, 0);
	attempt = bind_job(b->s, id);
	OK(store_settle(b->s, id, attempt, &end, &why));
	store_abort(b->s);
	assert_int_equal(store_learned(b->s, SHAPE, 1, &l, &why), -ENOENT);
}

/* As many as that are made by SQL: settling them all would take minutes under a sanitizer. */
static void test_shapes_are_forgotten_in_the_end(void **state)
{
	struct bed *b = *state;
	struct store_learned l, *all;
	int64_t removed;
	size_t n;

	OK(store_begin(b->s, NULL, &why));
	OK(db_run(b->s, &why,
		"WITH RECURSIVE k (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < ?1)"
		" INSERT INTO learned SELECT 'c' || i, 1, 1, 0, 1, 5, 5, NULL, 1, 1, 1, i FROM k",
		"i", DB_I64(STORE_LEARNED_MAX + 5)));
	OK(store_trim(b->s, 0, 0, &removed, &why));
	commit(b);
	assert_int_equal(store_learned(b->s, "c5", 1, &l, &why), -ENOENT);
	l = learned(b, "c6", 1);
	free(l.shape);
	OK(store_learned_all(b->s, 0, &all, &n, &why));
	assert_int_equal(n, STORE_LEARNED_MAX);
	store_learned_done(all, n);
}

/* ---- cards ---- */

static int64_t fault(struct bed *b, const char *uuid, const char *shape, int64_t xid)
{
	int64_t n = -1;

	OK(store_begin(b->s, NULL, &why));
	OK(store_card_fault(b->s, "n1", uuid, 7, shape, xid, "exit 1 after 2 s", 1000, &n, &why));
	commit(b);
	return n;
}

static size_t count_faults(struct bed *b, const char *uuid)
{
	struct store_faults l;
	size_t n;

	OK(store_card_faults(b->s, "n1", uuid, &l, &why));
	n = l.n;
	store_card_faults_done(&l);
	return n;
}

static void test_faults_of_a_card(void **state)
{
	struct bed *b = *state;
	struct store_faults l;

	assert_int_equal(fault(b, "A", "x", 0), 1);
	now += 10;
	assert_int_equal(fault(b, "A", "x", 0), 1); /* the same command again says nothing new */
	assert_int_equal(fault(b, "B", "y", 0), 1); /* another card */
	now += 10;
	assert_int_equal(fault(b, "A", NULL, 79), 1); /* an XID is of no command */
	assert_int_equal(fault(b, "A", "y", 0), 2);
	OK(store_card_faults(b->s, "n1", "A", &l, &why));
	assert_int_equal(l.n, 3);
	assert_true(l.v[0].n == 2 && l.v[0].last_ms == 1000010 && l.v[0].job == 7);
	assert_string_equal(l.v[0].what, "exit 1 after 2 s");
	assert_true(l.v[1].xid == 79 && !*l.v[1].shape);
	store_card_faults_done(&l);
	now += 995; /* the first one is too old by now, the rest isn't */
	assert_int_equal(fault(b, "A", "z", 0), 2);
	OK(store_begin(b->s, NULL, &why));
	OK(store_card_good(b->s, "n1", "A", &why));
	commit(b);
	assert_int_equal(count_faults(b, "A"), 0);
	assert_int_equal(count_faults(b, "B"), 1);
	assert_int_equal(fault(b, "A", "q", 0), 1);
}

static void test_faults_are_bounded(void **state)
{
	struct bed *b = *state;
	char shape[16];

	for (int i = 0; i < STORE_FAULTS_MAX + 10; i++) {
		snprintf(shape, sizeof(shape), "s%d", i);
		now++;
		fault(b, "A", shape, 0);
	}
	assert_int_equal(count_faults(b, "A"), STORE_FAULTS_MAX);
}

static void test_out_of_service(void **state)
{
	struct bed *b = *state;
	struct store_cards l;

	fault(b, "A", "x", 0);
	OK(store_begin(b->s, NULL, &why));
	assert_int_equal(store_card_out(b->s, "n1", "A", "two commands failed", "faults",
				 "[{\"shape\":\"x\"}]", &why),
		0);
	now += 9;
	assert_int_equal(store_card_out(b->s, "n1", "A", "later", "person", NULL, &why), 1);
	assert_int_equal(store_card_out(b->s, "n1", "B", "x", "somebody", NULL, &why), -EINVAL);
	assert_int_equal(store_card_out(b->s, "n1", "B", "x", "faults", "{", &why), -EINVAL);
	assert_int_equal(store_card_out(b->s, "n1", "", "x", "faults", NULL, &why), -EINVAL);
	commit(b);
	OK(store_cards(b->s, &l, &why));
	assert_int_equal(l.n, 1);
	assert_string_equal(l.v[0].why, "two commands failed");
	assert_string_equal(l.v[0].by, "faults");
	assert_string_equal(l.v[0].evidence, "[{\"shape\":\"x\"}]");
	assert_int_equal(l.v[0].since_ms, 1000000);
	store_cards_done(&l);
	OK(store_begin(b->s, NULL, &why));
	assert_int_equal(store_card_in(b->s, "n1", "A", &why), 0);
	assert_int_equal(store_card_in(b->s, "n1", "A", &why), 1);
	commit(b);
	OK(store_cards(b->s, &l, &why));
	assert_int_equal(l.n, 0);
	store_cards_done(&l);
	assert_int_equal(count_faults(b, "A"), 0);
}

/* ---- passes and nodes ---- */

static void test_passes(void **state)
{
	struct bed *b = *state;
	struct store_lease stale;
	int64_t n = 0, begun = -1, done = -1;

	take_lease(b);
	OK(store_pass_begin(b->s, &b->lease, &n, &why));
	assert_int_equal(n, 1);
	begin(b); /* and inside of one that is open */
	OK(store_pass_begin(b->s, &b->lease, &n, &why));
	assert_int_equal(n, 2);
	OK(store_pass_done(b->s, &b->lease, 1, &why));
	commit(b);
	OK(store_passes(b->s, &begun, &done, &why));
	assert_true(begun == 2 && done == 1);
	OK(store_pass_done(b->s, &b->lease, 2, &why));
	OK(store_pass_done(b->s, &b->lease, 1, &why)); /* never back */
	OK(store_pass_done(b->s, &b->lease, 77, &why)); /* nor beyond */
	OK(store_passes(b->s, &begun, &done, &why));
	assert_true(begun == 2 && done == 2);
	/* Only under the lease. */
	assert_int_equal(store_pass_begin(b->s, NULL, &n, &why), -EPERM);
	OK(store_begin(b->s, NULL, &why));
	assert_int_equal(store_pass_begin(b->s, &b->lease, &n, &why), -EPERM);
	store_abort(b->s);
	stale = b->lease;
	take_lease(b);
	assert_int_equal(store_pass_begin(b->s, &stale, &n, &why), -ESTALE);
	assert_int_equal(store_pass_done(b->s, &stale, 2, &why), -ESTALE);
}

static void test_failures_of_a_node_are_remembered(void **state)
{
	struct bed *b = *state;
	struct store_node n = {
		.name = (char *)"n1", .failed_since_ms = 5, .n_failures = 3, .next_try_ms = 99};
	struct store_nodes l;

	for (int i = 0; i < 2; i++) {
		OK(store_begin(b->s, NULL, &why));
		OK(store_node_put(b->s, &n, &why));
		commit(b);
		OK(store_nodes(b->s, &l, &why));
		assert_int_equal(l.v[0].failed_since_ms, i ? 0 : 5);
		assert_int_equal(l.v[0].n_failures, i ? 0 : 3);
		assert_int_equal(l.v[0].next_try_ms, i ? 0 : 99);
		store_nodes_done(&l);
		n.failed_since_ms = n.n_failures = n.next_try_ms = 0;
	}
}

/* ---- moving ---- */

/* Ids by turn as "3 1 2". */
static char *turn(struct bed *b)
{
	struct store_question q = {.order = STORE_BY_TURN};
	struct buf s = {0};
	struct store_jobs l;

	OK(store_jobs(b->s, &q, &l, &why));
	for (size_t i = 0; i < l.n; i++)
		buf_printf(&s, "%s%" PRId64 ":%" PRId64, i ? " " : "", l.v[i].id, l.v[i].priority);
	store_jobs_done(&l);
	return buf_take(&s);
}

static void move(struct bed *b, int64_t id, int64_t slots, int64_t moved, const char *want)
{
	CLEANUP_FREE char *got = NULL;
	int64_t n = 99;

	OK(store_begin(b->s, NULL, &why));
	OK(store_move(b->s, id, slots, &n, &why));
	commit(b);
	assert_int_equal(n, moved);
	got = turn(b);
	assert_string_equal(got, want);
}

static void set_priority(struct bed *b, int64_t id, int64_t priority)
{
	OK(store_begin(b->s, NULL, &why));
	OK(store_set_priority(b->s, id, priority, &why));
	commit(b);
}

static void test_move_lowers_what_is_out_of_place(void **state)
{
	struct bed *b = *state;

	for (int i = 0; i < 5; i++)
		submit(b, "x");
	move(b, 5, 1, 1, "1:0 2:0 3:0 5:0 4:-1");
	assert_int_equal(last_event(b, 5), EVENT_JOB_PRIORITY);
	assert_int_equal(count_events(b, 4), 1); /* it only made room */
	move(b, 5, 100, 3, "5:0 1:-1 2:-1 3:-1 4:-1");
	move(b, 5, 1, 0, "5:0 1:-1 2:-1 3:-1 4:-1");
	move(b, 5, 0, 0, "5:0 1:-1 2:-1 3:-1 4:-1");
	move(b, 5, -2, -2, "1:-1 2:-1 5:-1 3:-2 4:-2");
	move(b, 1, INT64_MIN, -4, "2:-1 5:-1 3:-2 4:-2 1:-3");
	move(b, 1, INT64_MAX, 4, "1:-3 2:-3 5:-3 3:-4 4:-4");
	set_priority(b, 2, 10);
	set_priority(b, 5, 5);
	/* The last goes up to the first: those above come down to it, no further. */
	move(b, 4, 4, 4, "4:-4 2:-5 5:-5 1:-6 3:-6");
}

static void test_move_is_for_the_pool(void **state)
{
	struct bed *b = *state;
	struct job j;
	int64_t lane, bound, n;

	submit(b, "x");
	bound = submit(b, "x");
	submit(b, "x");
	begin(b);
	bind_job(b->s, bound);
	OK(store_lane_make(b->s, "n1", "0", &why));
	job_init(&j);
	j.command = (char *)"x";
	j.lane = (char *)"n1:0";
	j.lane_seq = 1000;
	OK(store_submit(b->s, &j, &lane, &why));
	assert_int_equal(store_move(b->s, bound, 1, &n, &why), -EPERM);
	assert_int_equal(store_move(b->s, lane, 1, &n, &why), -EPERM);
	assert_non_null(strstr(why.text, "gpustow queue lane n1:0 move 4"));
	assert_int_equal(store_move(b->s, 77, 1, &n, &why), -ENOENT);
	commit(b);
	/* Neither counts as a place. */
	move(b, 3, 1, 1, "2:0 3:0 4:0 1:-1");
}

static void test_move_says_when_there_is_no_room_below(void **state)
{
	struct bed *b = *state;
	int64_t n = 7;

	submit(b, "x");
	submit(b, "x");
	set_priority(b, 1, INT64_MIN);
	set_priority(b, 2, INT64_MIN);
	OK(store_begin(b->s, NULL, &why));
	assert_int_equal(store_move(b->s, 2, 1, &n, &why), -ERANGE);
	assert_int_equal(n, 7);
	store_abort(b->s);
}

/* ---- pages ---- */

static void ids_are(struct bed *b, const struct store_question *q, const char *want)
{
	CLEANUP(buf_done) struct buf s = {0};
	struct store_jobs l;

	OK(store_jobs(b->s, q, &l, &why));
	for (size_t i = 0; i < l.n; i++)
		buf_printf(&s, "%s%" PRId64, i ? " " : "", l.v[i].id);
	if (l.has_more)
		buf_puts(&s, " +");
	store_jobs_done(&l);
	assert_string_equal(buf_str(&s), want);
}

static void test_the_last_to_finish(void **state)
{
	struct bed *b = *state;
	struct store_question recent = {.order = STORE_BY_END, .limit = 3},
			      cancelled = {
				      .order = STORE_BY_END, .states = 1u << JOB_STATE_CANCELLED};
	enum store_cancelled c;
	int64_t attempt;

	for (int i = 0; i < 6; i++)
		submit(b, "x");
	ids_are(b, &recent, "");
	for (int64_t id = 5; id >= 2; id--) { /* the older ones last */
		now += 10;
		begin(b);
		if (id % 2) {
			OK(store_cancel(b->s, id, "x", &c, &why));
		} else {
			attempt = bind_job(b->s, id);
			OK(try_settle(b->s, id, attempt, JOB_STEP_COMPLETE, JOB_CAUSE_NONE));
		}
		commit(b);
	}
	ids_are(b, &recent, "2 3 4 +");
	ids_are(b, &cancelled, "3 5");
	/* One that runs again hasn't ended. */
	begin(b);
	OK(store_requeue(b->s, 2, &why));
	commit(b);
	ids_are(b, &recent, "3 4 5");
}

static void test_pages_of_several_states(void **state)
{
	struct bed *b = *state;
	struct store_question q = {
		.states = JOB_STATES_ACTIVE | 1u << JOB_STATE_CANCELLED, .limit = 3};
	enum store_cancelled c;
	int64_t attempt;

	for (int i = 0; i < 9; i++)
		submit(b, "x");
	begin(b);
	OK(store_cancel(b->s, 2, "x", &c, &why));
	OK(store_cancel(b->s, 8, "x", &c, &why));
	for (int64_t id = 3; id <= 9; id += 3) {
		attempt = bind_job(b->s, id);
		OK(try_start(b->s, id, attempt));
	}
	OK(try_settle(b->s, 6, 1, JOB_STEP_COMPLETE, JOB_CAUSE_NONE));
	commit(b);
	ids_are(b, &q, "1 2 3 +");
	q.behind_id = 3;
	ids_are(b, &q, "4 5 7 +");
	q.behind_id = 7;
	ids_are(b, &q, "8 9");
	q.behind_id = 0;
	q.newest = true;
	ids_are(b, &q, "7 8 9 +");
	q.max_id = 5;
	ids_are(b, &q, "3 4 5 +");
	q.min_id = 4;
	ids_are(b, &q, "4 5");
	q.states = JOB_STATES_TERMINAL;
	q.min_id = q.max_id = 0;
	ids_are(b, &q, "2 6 8");
	q.states = 1u << JOB_STATE_PENDING | 1u << JOB_STATE_COMPLETED;
	q.limit = 1;
	ids_are(b, &q, "7 +");
	q.newest = false;
	q.behind_id = 5;
	ids_are(b, &q, "6 +");
	q.behind_id = 0;
	q.states = 1u << 30 | 1u << 31; /* none of ours */
	ids_are(b, &q, "");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, bed_make_timed, bed_drop)
	const struct CMUnitTest tests[] = {
		T(test_runs_of_one_shape),
		T(test_out_of_memory_is_a_lower_bound),
		T(test_what_is_taken_back_isnt_learned),
		T(test_shapes_are_forgotten_in_the_end),
		T(test_faults_of_a_card),
		T(test_faults_are_bounded),
		T(test_out_of_service),
		T(test_passes),
		T(test_failures_of_a_node_are_remembered),
		T(test_move_lowers_what_is_out_of_place),
		T(test_move_is_for_the_pool),
		T(test_move_says_when_there_is_no_room_below),
		T(test_the_last_to_finish),
		T(test_pages_of_several_states),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
