/* Lanes in the store: their order, who comes and goes, and what their generation says. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "store_fixture.h"

#include "base/buf.h"
#include "base/cleanup.h"

#define LANE "n1:0"
#define OTHER "n1:1"

static int64_t submit_to(struct bed *b, const char *lane)
{
	struct job j;
	int64_t id;

	job_init(&j);
	j.command = (char *)"true";
	j.lane = (char *)(uintptr_t)lane;
	OK(store_begin(b->s, NULL, &why));
	OK(store_submit(b->s, &j, &id, &why));
	commit(b);
	return id;
}

static int bed_make_lanes(void **state)
{
	struct bed *b;

	if (bed_make(state) < 0)
		return -1;
	b = *state;
	OK(store_begin(b->s, NULL, &why));
	OK(store_lane_make(b->s, "n1", "0", &why));
	OK(store_lane_make(b->s, "n1", "1", &why));
	assert_int_equal(store_lane_make(b->s, "n1", "0", &why), 1);
	commit(b);
	return 0;
}

static int64_t generation(struct bed *b, const char *lane)
{
	CLEANUP(store_lane_done) struct store_lane l = {0};

	OK(store_lane(b->s, lane, &l, &why));
	return l.generation;
}

/* "1 3 2": those of the lane, running ones first. */
static void expect(struct bed *b, const char *lane, const char *order)
{
	CLEANUP(store_jobs_done) struct store_jobs l = {0};
	CLEANUP(buf_done) struct buf text = {0};
	struct store_question q = {.order = STORE_BY_LANE, .lane = lane};

	OK(store_jobs(b->s, &q, &l, &why));
	for (size_t i = 0; i < l.n; i++)
		buf_printf(&text, "%s%" PRId64, i ? " " : "", l.v[i].id);
	assert_string_equal(buf_str(&text), order);
}

static void bind(struct bed *b, int64_t id)
{
	struct job_bind bind = {.node = (char *)"n1"};
	int64_t attempt;

	random_hex(16, bind.token);
	OK(store_bind(b->s, id, &bind, &attempt, &why));
}

static void start(struct bed *b, int64_t id)
{
	struct store_started st = {.pid = 1};

	OK(store_started(b->s, id, 1, &st, &why));
}

static void end(
	struct bed *b, int64_t id, int64_t attempt, enum job_step step, enum job_cause cause)
{
	struct store_end e = {
		.step = step, .cause = cause, .elapsed_ms = 1, .vram_mib = -1, .peak_mib = -1};

	OK(store_settle(b->s, id, attempt, &e, &why));
}

static void move(struct bed *b, int64_t id, enum store_place_how how, int64_t n, int64_t place,
	const char *order)
{
	struct store_place to = {how, n};
	int64_t position = 0;

	OK(store_begin(b->s, NULL, &why));
	OK(store_lane_move(b->s, LANE, id, &to, &position, &why));
	commit(b);
	assert_int_equal(position, place);
	expect(b, LANE, order);
}

static void test_order_and_moves(void **state)
{
	struct bed *b = *state;
	int64_t g;

	for (int i = 0; i < 5; i++)
		submit_to(b, LANE);
	expect(b, LANE, "1 2 3 4 5");
	g = generation(b, LANE);
	assert_int_equal(g, 5);
	move(b, 5, STORE_PLACE_HEAD, 0, 1, "5 1 2 3 4");
	move(b, 5, STORE_PLACE_TAIL, 0, 5, "1 2 3 4 5");
	move(b, 1, STORE_PLACE_AT, 3, 3, "2 3 1 4 5");
	move(b, 1, STORE_PLACE_AT, 99, 5, "2 3 4 5 1");
	move(b, 1, STORE_PLACE_BEFORE, 4, 3, "2 3 1 4 5");
	move(b, 2, STORE_PLACE_BEFORE, 4, 3, "3 1 2 4 5");
	move(b, 2, STORE_PLACE_AFTER, 5, 5, "3 1 4 5 2");
	move(b, 5, STORE_PLACE_AFTER, 3, 2, "3 5 1 4 2");
	assert_int_equal(generation(b, LANE), g + 8);
	/* Nothing has changed: nothing is new. */
	move(b, 5, STORE_PLACE_AT, 2, 2, "3 5 1 4 2");
	move(b, 5, STORE_PLACE_AFTER, 5, 2, "3 5 1 4 2");
	assert_int_equal(generation(b, LANE), g + 8);
}

static void test_running_ones_stand_first_and_are_not_moved(void **state)
{
	struct bed *b = *state;
	struct store_place head = {STORE_PLACE_HEAD, 0};
	int64_t position;

	for (int i = 0; i < 4; i++)
		submit_to(b, LANE);
	begin(b);
	bind(b, 2);
	start(b, 2);
	bind(b, 1);
	assert_int_equal(store_lane_move(b->s, LANE, 2, &head, &position, &why), -EPERM);
	/* What a node has is moved like what it hasn't. */
	OK(store_lane_move(b->s, LANE, 1, &(struct store_place){0}, &position, &why));
	assert_int_equal(position, 3);
	commit(b);
	expect(b, LANE, "2 3 4 1");
	/* A new one goes behind the highest number that there ever was, and ended ones count. */
	begin(b);
	end(b, 2, 1, JOB_STEP_COMPLETE, JOB_CAUSE_NONE);
	commit(b);
	submit_to(b, LANE);
	expect(b, LANE, "3 4 1 5");
}

static void test_swap_and_skip(void **state)
{
	struct bed *b = *state;
	int64_t id;

	for (int i = 0; i < 3; i++)
		submit_to(b, LANE);
	submit_to(b, OTHER);
	OK(store_begin(b->s, NULL, &why));
	OK(store_lane_swap(b->s, LANE, 1, 3, &why));
	assert_int_equal(store_lane_swap(b->s, LANE, 1, 4, &why), -EINVAL);
	assert_non_null(strstr(why.text, OTHER));
	commit(b);
	expect(b, LANE, "3 2 1");
	OK(store_begin(b->s, NULL, &why));
	OK(store_lane_skip(b->s, LANE, &id, &why));
	assert_int_equal(id, 3);
	OK(store_lane_skip(b->s, OTHER, &id, &why));
	assert_int_equal(id, 0);
	commit(b);
	expect(b, LANE, "2 1 3");
}

static void assign(struct bed *b, int64_t id, const char *lane, size_t cards, bool is_request,
	int64_t position)
{
	struct store_assigned a = {0};
	struct store_place at = {STORE_PLACE_AT, 1};

	OK(store_lane_assign(b->s, id, lane, cards, &at, &a, &why));
	assert_int_equal(a.is_request, is_request);
	assert_int_equal(a.position, position);
	free(a.previous);
}

static void expect_lane(struct bed *b, int64_t id, const char *lane, const char *next)
{
	CLEANUP(job_done) struct job j = {0};

	OK(store_job(b->s, id, &j, &why));
	if (lane)
		assert_string_equal(j.lane, lane);
	else
		assert_null(j.lane);
	if (next)
		assert_string_equal(j.lane_next, next);
	else
		assert_null(j.lane_next);
}

static void test_assign_of_what_no_node_has(void **state)
{
	struct bed *b = *state;
	struct store_assigned a = {0};
	int64_t g, o;

	submit_to(b, LANE);
	submit_to(b, LANE);
	submit_to(b, OTHER);
	g = generation(b, LANE);
	o = generation(b, OTHER);
	OK(store_begin(b->s, NULL, &why));
	assign(b, 2, OTHER, 1, false, 1);
	assign(b, 1, NULL, 0, false, 0);
	assert_int_equal(
		store_lane_assign(b->s, 3, LANE, 0, &(struct store_place){0}, &a, &why), -EINVAL);
	commit(b);
	expect(b, LANE, "");
	expect(b, OTHER, "2 3");
	expect_lane(b, 1, NULL, NULL);
	assert_int_equal(generation(b, LANE), g + 2);
	assert_int_equal(generation(b, OTHER), o + 1);
}

static void test_bound_one_leaves_once_its_node_lets_go(void **state)
{
	struct bed *b = *state;
	int64_t g;

	submit_to(b, LANE);
	submit_to(b, LANE);
	submit_to(b, OTHER);
	begin(b);
	bind(b, 1);
	bind(b, 2);
	g = generation(b, LANE);
	assign(b, 1, OTHER, 1, true, 1);
	assign(b, 2, NULL, 0, true, 0);
	assert_int_equal(generation(b, LANE), g + 2);
	commit(b);
	expect(b, LANE, "1 2");
	expect_lane(b, 1, LANE, OTHER);
	expect_lane(b, 2, LANE, "");
	begin(b);
	OK(store_unbind(b->s, 1, 1, NULL, &why));
	OK(store_unbind(b->s, 2, 1, NULL, &why));
	commit(b);
	expect(b, LANE, "");
	expect(b, OTHER, "1 3");
	expect_lane(b, 1, OTHER, NULL);
	expect_lane(b, 2, NULL, NULL);
}

static void test_bound_one_that_started_stays(void **state)
{
	struct bed *b = *state;

	submit_to(b, LANE);
	begin(b);
	bind(b, 1);
	assign(b, 1, OTHER, 1, true, 1);
	start(b, 1);
	end(b, 1, 1, JOB_STEP_COMPLETE, JOB_CAUSE_NONE);
	commit(b);
	expect_lane(b, 1, LANE, NULL);
}

/* Asked to stay after all. */
static void test_wish_to_leave_is_taken_back(void **state)
{
	struct bed *b = *state;

	submit_to(b, LANE);
	begin(b);
	bind(b, 1);
	assign(b, 1, OTHER, 1, true, 1);
	assign(b, 1, LANE, 1, false, 1);
	OK(store_unbind(b->s, 1, 1, NULL, &why));
	commit(b);
	expect_lane(b, 1, LANE, NULL);
}

static void test_retry_and_requeue_go_to_the_end(void **state)
{
	struct bed *b = *state;
	int64_t needs = 1;

	for (int i = 0; i < 3; i++)
		submit_to(b, LANE);
	begin(b);
	bind(b, 1);
	end(b, 1, 1, JOB_STEP_RETRY, JOB_CAUSE_EXIT_CODE);
	commit(b);
	expect(b, LANE, "2 3 1");
	/* Behind what needs it, it'd never be reached. */
	begin(b);
	OK(store_set_needs(b->s, 3, &needs, 1, NULL, 0, &why));
	bind(b, 1);
	end(b, 1, 2, JOB_STEP_FAIL, JOB_CAUSE_EXIT_CODE);
	commit(b);
	expect(b, LANE, "2 3");
	OK(store_begin(b->s, NULL, &why));
	OK(store_requeue(b->s, 1, &why));
	commit(b);
	expect(b, LANE, "2 1 3");
}

static void test_generation_grows_with_what_the_node_must_hear_of(void **state)
{
	struct bed *b = *state;
	enum store_cancelled c;
	int64_t g;

	submit_to(b, LANE);
	submit_to(b, LANE);
	submit_to(b, LANE);
	g = generation(b, LANE);
	begin(b);
#define GROWS(call) \
	do { \
		OK(call); \
		assert_int_equal(generation(b, LANE), ++g); \
	} while (0)
	GROWS(store_hold(b->s, 1, "why", &why));
	GROWS(store_release(b->s, 1, NULL, NULL, &why));
	GROWS(store_set_vram(b->s, 1, 100, VRAM_DECLARED, &why));
	GROWS(store_set_needs(b->s, 2, (const int64_t[]){1}, 1, NULL, 0, &why));
	bind(b, 1);
	GROWS(store_cancel(b->s, 1, "x", &c, &why));
	/* Asked again, nothing is new; nor by what the node itself knows first. */
	OK(store_cancel(b->s, 1, "x", &c, &why));
	end(b, 1, 1, JOB_STEP_STOP, JOB_CAUSE_CANCELLED);
	assert_int_equal(generation(b, LANE), g);
	GROWS(store_cancel(b->s, 3, "x", &c, &why));
	GROWS(store_lane_pause(b->s, LANE, true, &why));
	assert_int_equal(store_lane_pause(b->s, LANE, true, &why), 1);
	GROWS(store_lane_concurrency(b->s, LANE, 2, &why));
	assert_int_equal(store_lane_concurrency(b->s, LANE, 0, &why), -EINVAL);
	GROWS(store_lane_runner(b->s, LANE, true, true, &why));
	GROWS(store_lane_runner(b->s, LANE, false, false, &why));
	assert_int_equal(store_lane_runner(b->s, "n9:0", false, false, &why), -ENOENT);
	assert_int_equal(generation(b, LANE), g);
	commit(b);
}

static void test_acknowledgements_are_the_controllers(void **state)
{
	struct bed *b = *state;
	const char *root = "0123456789abcdef0123456789abcdef";
	CLEANUP(store_lane_done) struct store_lane l = {0};
	int64_t g;

	submit_to(b, LANE);
	OK(store_begin(b->s, NULL, &why));
	assert_int_equal(store_lane_acked(b->s, LANE, root, 1, "{}", &why), -EPERM);
	assert_int_equal(store_lane_bump(b->s, LANE, 1, &g, &why), -EPERM);
	store_abort(b->s);
	begin(b);
	OK(store_lane_bump(b->s, LANE, 7, &g, &why));
	assert_int_equal(g, 7);
	OK(store_lane_bump(b->s, LANE, 3, &g, &why));
	assert_int_equal(g, 8);
	OK(store_lane_acked(b->s, LANE, root, 8, "{\"waits\": null}", &why));
	commit(b);
	OK(store_lane(b->s, LANE, &l, &why));
	assert_int_equal(l.acked_generation, 8);
	assert_string_equal(l.acked_root, root);
	assert_string_equal(l.runner_state, "{\"waits\": null}");
	assert_true(l.acked_ms && l.runner_seen_ms);
}

static void test_needs_of_what_was_handed_out(void **state)
{
	struct bed *b = *state;
	struct store_lane_needs *v = NULL;
	size_t n = 0;

	submit_to(b, LANE);
	begin(b);
	bind(b, 1);
	OK(store_lane_needs_put(b->s, 1, 1, "[]", &why));
	commit(b);
	OK(store_lane_needs(b->s, &v, &n, &why));
	assert_int_equal(n, 1);
	assert_int_equal(v[0].job, 1);
	assert_int_equal(v[0].attempt, 1);
	assert_string_equal(v[0].needs, "[]");
	store_lane_needs_done(v, n);
	/* It goes with the attempt. */
	begin(b);
	OK(store_unbind(b->s, 1, 1, NULL, &why));
	commit(b);
	v = NULL;
	OK(store_lane_needs(b->s, &v, &n, &why));
	assert_int_equal(n, 0);
	store_lane_needs_done(v, n);
}

static void test_submit_needs_its_lane(void **state)
{
	struct bed *b = *state;
	CLEANUP(job_done) struct job back = {0};
	struct job j;
	int64_t id;

	job_init(&j);
	j.command = (char *)"true";
	j.lane = (char *)"n7:0";
	OK(store_begin(b->s, NULL, &why));
	assert_int_equal(store_submit(b->s, &j, &id, &why), -EINVAL);
	commit(b);
	id = submit_to(b, LANE);
	OK(store_job(b->s, id, &back, &why));
	assert_string_equal(back.node_constraint, "n1");
	assert_int_equal(back.lane_seq, 1000);
}

#define T(name) cmocka_unit_test_setup_teardown(name, bed_make_lanes, bed_drop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_order_and_moves),
		T(test_running_ones_stand_first_and_are_not_moved),
		T(test_swap_and_skip),
		T(test_assign_of_what_no_node_has),
		T(test_bound_one_leaves_once_its_node_lets_go),
		T(test_bound_one_that_started_stays),
		T(test_wish_to_leave_is_taken_back),
		T(test_retry_and_requeue_go_to_the_end),
		T(test_generation_grows_with_what_the_node_must_hear_of),
		T(test_acknowledgements_are_the_controllers),
		T(test_needs_of_what_was_handed_out),
		T(test_submit_needs_its_lane),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
