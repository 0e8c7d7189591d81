/*
 * Random operations against a small model of what a queue is: after each transaction, kept or taken back, the store holds
 * exactly what the model does. The model knows nothing of the table in core/job.c.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "store_fixture.h"

#include "base/cleanup.h"

#define JOBS 60
#define ROUNDS 400

struct mirror {
	enum job_state state;
	bool bound, held, cancel;
	int64_t attempt, base, settled;
	int64_t priority;
};

struct model {
	struct mirror jobs[JOBS + 1];
	int64_t n, events, alerts;
};

static bool is_over(const struct mirror *m)
{
	return m->state != JOB_STATE_PENDING && m->state != JOB_STATE_RUNNING;
}

static void expect(const char *what, int64_t id, bool may, int r)
{
	if (may != (r == 0))
		fail_msg("%s of job %" PRId64 ": expected %s, was %d (%s)", what, id,
			may ? "yes" : "no", r, why.text);
}

static void op_submit(struct bed *b, struct model *m)
{
	int64_t id;

	if (m->n == JOBS)
		return;
	id = add_job(b->s, "x", NULL, 0);
	assert_int_equal(id, ++m->n);
	m->jobs[id] = (struct mirror){.state = JOB_STATE_PENDING};
	m->events++;
}

static void op_bind(struct bed *b, struct mirror *j, int64_t id)
{
	int64_t attempt = 0;
	bool may = j->state == JOB_STATE_PENDING && !j->bound && !j->held && !j->cancel;

	expect("bind", id, may, try_bind(b->s, id, &attempt));
	if (!may)
		return;
	assert_int_equal(attempt, j->attempt + 1);
	j->attempt++;
	j->bound = true;
}

static void op_unbind(struct bed *b, struct model *m, struct mirror *j, int64_t id)
{
	bool may = j->state == JOB_STATE_PENDING && j->bound;
	int r = store_unbind(b->s, id, j->attempt, "no", &why);

	if (!may) {
		assert_int_not_equal(r, 0);
		return;
	}
	expect("unbind", id, true, r);
	j->bound = false;
	j->attempt--;
	if (j->cancel) {
		j->state = JOB_STATE_CANCELLED;
		m->events++;
	}
}

static void op_start(struct bed *b, struct model *m, struct mirror *j, int64_t id)
{
	bool may = j->state == JOB_STATE_PENDING && j->bound;

	expect("start", id, may, try_start(b->s, id, j->attempt));
	if (may) {
		j->state = JOB_STATE_RUNNING;
		m->events++;
	}
}

static void op_settle(struct bed *b, struct model *m, struct mirror *j, int64_t id)
{
	static const struct {
		enum job_step step;
		enum job_cause cause;
		enum job_state to;
		int alerts;
	} ends[] = {
		{JOB_STEP_COMPLETE, JOB_CAUSE_NONE, JOB_STATE_COMPLETED, 0},
		{JOB_STEP_FAIL, JOB_CAUSE_EXIT_CODE, JOB_STATE_FAILED, 1},
		{JOB_STEP_TIMEOUT, JOB_CAUSE_TIMEOUT, JOB_STATE_TIMEOUT, 1},
		{JOB_STEP_STOP, JOB_CAUSE_CANCELLED, JOB_STATE_CANCELLED, 0},
		{JOB_STEP_LOSE, JOB_CAUSE_NODE_LOST, JOB_STATE_LOST, 1},
		{JOB_STEP_RETRY, JOB_CAUSE_VANISHED, JOB_STATE_PENDING, 1},
	};
	int k = rand() % (int)ARRAY_LEN(ends);
	bool may = j->bound && !(ends[k].step == JOB_STEP_RETRY && j->cancel);

	expect("settle", id, may, try_settle(b->s, id, j->attempt, ends[k].step, ends[k].cause));
	if (!may)
		return;
	j->state = ends[k].to;
	j->bound = false;
	m->events++;
	m->alerts += ends[k].alerts;
	/* Told again it changes nothing. */
	assert_int_equal(try_settle(b->s, id, j->attempt, JOB_STEP_FAIL, JOB_CAUSE_SIGNAL), 1);
}

static void op_cancel(struct bed *b, struct model *m, struct mirror *j, int64_t id)
{
	enum store_cancelled c;

	OK(store_cancel(b->s, id, "by hand", &c, &why));
	assert_int_equal(c, is_over(j) ? STORE_CANCEL_LATE
			    : j->bound ? STORE_CANCEL_WANTED
				       : STORE_CANCELLED);
	if (is_over(j))
		return;
	j->cancel = true;
	if (!j->bound) {
		j->state = JOB_STATE_CANCELLED;
		j->held = false;
		m->events++;
	}
}

static void op_hold(struct bed *b, struct model *m, struct mirror *j, int64_t id)
{
	bool may = j->state == JOB_STATE_PENDING && !j->bound && !j->held;

	expect("hold", id, may, store_hold(b->s, id, "because", &why));
	if (may) {
		j->held = true;
		m->events++;
		m->alerts++;
	}
}

static void op_release(struct bed *b, struct model *m, struct mirror *j, int64_t id)
{
	bool may = j->held;

	expect("release", id, may,
		rand() % 2 ? store_release(b->s, id, NULL, NULL, &why)
			   : store_unhold(b->s, id, "gone", &why));
	if (may) {
		j->held = false;
		m->events++;
	}
}

static void op_requeue(struct bed *b, struct model *m, struct mirror *j, int64_t id)
{
	bool may = is_over(j);

	expect("requeue", id, may, store_requeue(b->s, id, &why));
	if (may) {
		*j = (struct mirror){.state = JOB_STATE_PENDING,
			.attempt = j->attempt,
			.base = j->attempt,
			.priority = j->priority};
		m->events++;
	}
}

static void op_priority(struct bed *b, struct model *m, struct mirror *j, int64_t id)
{
	int64_t p = rand() % 3;
	bool may = !is_over(j);

	expect("priority", id, may, store_set_priority(b->s, id, p, &why));
	if (may && p != j->priority) {
		j->priority = p;
		m->events++;
	}
}

static void op_fail(struct bed *b, struct model *m, struct mirror *j, int64_t id)
{
	bool may = j->state == JOB_STATE_PENDING && !j->bound;

	expect("fail", id, may, store_fail(b->s, id, JOB_STEP_UNSCHEDULABLE, "too large", &why));
	if (may) {
		j->state = JOB_STATE_FAILED;
		j->held = false;
		m->events++;
		m->alerts++;
	}
}

static void one_op(struct bed *b, struct model *m)
{
	int64_t id = m->n ? 1 + rand() % m->n : 0;
	struct mirror *j = &m->jobs[id];
	int what = id ? rand() % 14 : 0;

	switch (what) {
	case 0:
		op_submit(b, m);
		break;
	case 1:
	case 2:
		op_bind(b, j, id);
		break;
	case 3:
		op_unbind(b, m, j, id);
		break;
	case 4:
	case 5:
		op_start(b, m, j, id);
		break;
	case 6:
	case 7:
		op_settle(b, m, j, id);
		break;
	case 8:
		op_cancel(b, m, j, id);
		break;
	case 9:
		op_hold(b, m, j, id);
		break;
	case 10:
		op_release(b, m, j, id);
		break;
	case 11:
		op_requeue(b, m, j, id);
		break;
	case 12:
		op_priority(b, m, j, id);
		break;
	default:
		op_fail(b, m, j, id);
	}
}

static void compare(struct bed *b, const struct model *m)
{
	struct store_question q = {0};
	struct store_counts c;
	struct store_jobs l;
	int64_t by_state[JOB_STATE_N] = {0}, held = 0;

	OK(store_jobs(b->s, &q, &l, &why));
	assert_int_equal(l.n, m->n);
	for (size_t i = 0; i < l.n; i++) {
		const struct mirror *x = &m->jobs[i + 1];
		const struct job *j = &l.v[i];

		assert_int_equal(j->id, i + 1);
		if (j->state != x->state || j->is_bound != x->bound || job_is_held(j) != x->held ||
			(j->cancel_ms != 0) != x->cancel || j->attempt != x->attempt ||
			j->attempt_base != x->base || j->priority != x->priority)
			fail_msg(
				"job %zu is %s, bound %d, held %d, attempt %d; expected %s, %d, %d, %d",
				i + 1, job_state_name(j->state), j->is_bound, job_is_held(j),
				(int)j->attempt, job_state_name(x->state), x->bound, x->held,
				(int)x->attempt);
		by_state[x->state] += !x->held;
		held += x->held;
	}
	store_jobs_done(&l);
	OK(store_counts(b->s, &c, &why));
	for (int i = 1; i < JOB_STATE_N; i++)
		assert_int_equal(c.by_state[i], by_state[i]);
	assert_int_equal(c.held, held);
	assert_int_equal(c.open_alerts, m->alerts);
	assert_int_equal(c.last_event, m->events);
}

static void test_random_operations(void **state)
{
	struct bed *b = *state;
	const char *given = getenv("SEED");
	unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)clock_boot_us();
	struct model m = {0}, tried;

	print_message("# SEED=%u\n", seed);
	srand(seed);
	for (int round = 0; round < ROUNDS; round++) {
		begin(b);
		tried = m;
		for (int i = rand() % 8; i >= 0; i--)
			one_op(b, &tried);
		if (rand() % 4) {
			commit(b);
			m = tried;
		} else {
			store_abort(b->s);
		}
		if (rand() % 40 == 0) {
			store_close(b->s);
			OK(open_as(b->path, STORE_WRITE, &b->s));
		}
		compare(b, &m);
	}
	assert_true(m.n > JOBS / 2);
	OK(store_check(b->s, &why));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_random_operations, bed_make, bed_drop),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
