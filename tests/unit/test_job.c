/* The table of transitions and the words of the queue. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "core/job.h"

#include "base/cleanup.h"

#include <string.h>

static void test_words_go_both_ways(void **state)
{
	(void)state;
	for (int i = 1; i < JOB_STATE_N; i++) {
		enum job_state s = JOB_STATE_NONE;

		assert_int_equal(job_state_from_name(job_state_name((enum job_state)i), &s), 0);
		assert_int_equal(s, i);
	}
	for (int i = 1; i < EVENT_KIND_N; i++) {
		enum event_kind k = EVENT_NONE;

		assert_int_equal(event_kind_from_name(event_kind_name((enum event_kind)i), &k), 0);
		assert_int_equal(k, i);
	}
	for (int i = 1; i < ALERT_KIND_N; i++) {
		enum alert_kind k = ALERT_NONE;

		assert_int_equal(alert_kind_from_name(alert_kind_name((enum alert_kind)i), &k), 0);
		assert_int_equal(k, i);
	}
	for (int i = 1; i < JOB_CAUSE_N; i++) {
		enum job_cause c = JOB_CAUSE_NONE;
		const char *text = job_cause_text((enum job_cause)i);

		assert_int_equal(job_cause_from_name(job_cause_name((enum job_cause)i), &c), 0);
		assert_int_equal(c, i);
		assert_true(strlen(text) > 10 && text[strlen(text) - 1] == '.');
	}
	enum job_state s = JOB_STATE_LOST;
	assert_int_equal(job_state_from_name("held", &s), -EINVAL);
	assert_int_equal(job_state_from_name("", &s), -EINVAL);
	assert_int_equal(job_state_from_name(NULL, &s), -EINVAL);
	assert_int_equal(s, JOB_STATE_LOST);
}

static void test_severities_are_the_specs(void **state)
{
	(void)state;
	assert_int_equal(alert_kind_severity(ALERT_JOB_RETRIED), ALERT_WARNING);
	assert_int_equal(alert_kind_severity(ALERT_LAUNCH_FAILED), ALERT_WARNING);
	assert_int_equal(alert_kind_severity(ALERT_DEPENDENCY_FAILED), ALERT_ERROR);
	assert_int_equal(alert_kind_severity(ALERT_JOB_FAILED), ALERT_ERROR);
	assert_int_equal(alert_kind_severity(ALERT_NODE_DOWN), ALERT_ERROR);
}

/* What the specification's table of states allows, written down once more and independently: a letter a target. */
static const char *expected(enum job_state from, enum job_step step)
{
	static const struct {
		enum job_step step;
		const char *from, *to; /* letters: - p r c f x t l */
	} rows[] = {
		{JOB_STEP_SUBMIT, "-", "p"},
		{JOB_STEP_BIND, "p", "p"},
		{JOB_STEP_UNBIND, "p", "p"},
		{JOB_STEP_REFUSED, "p", "p"},
		{JOB_STEP_START, "p", "r"},
		{JOB_STEP_COMPLETE, "pr", "c"},
		{JOB_STEP_FAIL, "pr", "f"},
		{JOB_STEP_TIMEOUT, "pr", "t"},
		{JOB_STEP_STOP, "pr", "x"},
		{JOB_STEP_LOSE, "pr", "l"},
		{JOB_STEP_RETRY, "pr", "p"},
		{JOB_STEP_UNSCHEDULABLE, "p", "f"},
		{JOB_STEP_DEPENDENCY, "p", "f"},
		{JOB_STEP_HOLD, "p", "p"},
		{JOB_STEP_UNHOLD, "p", "p"},
		{JOB_STEP_RELEASE, "p", "p"},
		{JOB_STEP_CANCEL, "p", "x"},
		{JOB_STEP_WANT_CANCEL, "pr", "="},
		{JOB_STEP_REQUEUE, "cfxtl", "p"},
		{JOB_STEP_EDIT_NEEDS, "pr", "="},
		{JOB_STEP_EDIT_PRIORITY, "pr", "="},
		{JOB_STEP_EDIT_VRAM, "p", "p"},
		{JOB_STEP_PURGE, "cfxtl", "-"},
	};
	static const char letters[] = "-prcfxtl";

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		if (rows[i].step == step)
			return strchr(rows[i].from, letters[from]) ? rows[i].to : NULL;
	}
	return NULL;
}

static const char to_letter[] = "-prcfxtl";

/* Each state, step, bound or not, held or not, cancelling or not, controller or not: allowed exactly where it should be. */
static void test_every_transition(void **state)
{
	size_t allowed = 0;

	(void)state;
	for (int from = 0; from < JOB_STATE_N; from++) {
		for (int step = 0; step < JOB_STEP_N; step++) {
			for (int bits = 0; bits < 32; bits++) {
				struct job j = {.id = 7,
					.state = (enum job_state)from,
					.is_bound = bits & 1,
					.held_reason = bits & 2 ? (char *)"x" : NULL,
					.cancel_ms = bits & 4 ? 5 : 0,
					.lane = bits & 16 ? (char *)"n1:0" : NULL};
				bool controller = bits & 8, inflight, waiting, may;
				const char *to = expected(j.state, (enum job_step)step);
				struct err e = {0};
				const struct job_rule *r =
					job_can(&j, (enum job_step)step, controller, &e);

				inflight = (step >= JOB_STEP_START && step <= JOB_STEP_RETRY) ||
					   step == JOB_STEP_UNBIND;
				waiting = step == JOB_STEP_BIND || step == JOB_STEP_REFUSED ||
					  (step >= JOB_STEP_UNSCHEDULABLE &&
						  step <= JOB_STEP_CANCEL) ||
					  step == JOB_STEP_EDIT_VRAM || step == JOB_STEP_REQUEUE ||
					  step == JOB_STEP_PURGE || step == JOB_STEP_SUBMIT;
				may = to != NULL;
				if (inflight || step == JOB_STEP_WANT_CANCEL)
					may = may && j.is_bound;
				/* Its node lets go of one that waits in a lane. */
				if (step == JOB_STEP_EDIT_VRAM)
					waiting = !j.lane;
				if (waiting)
					may = may && !j.is_bound;
				if (step == JOB_STEP_EDIT_NEEDS)
					may = may && (j.is_bound == (from == JOB_STATE_RUNNING) ||
							     (j.lane && from == JOB_STATE_PENDING));
				if (step == JOB_STEP_EDIT_PRIORITY && from == JOB_STATE_RUNNING)
					may = may && j.is_bound;
				if (inflight || step == JOB_STEP_BIND || step == JOB_STEP_REFUSED)
					may = may && !job_is_held(&j) && controller;
				if (step == JOB_STEP_UNHOLD || step == JOB_STEP_RELEASE)
					may = may && job_is_held(&j);
				if (step == JOB_STEP_UNSCHEDULABLE || step == JOB_STEP_DEPENDENCY ||
					step == JOB_STEP_HOLD || step == JOB_STEP_UNHOLD)
					may = may && controller;
				if (step == JOB_STEP_BIND || step == JOB_STEP_RETRY)
					may = may && !j.cancel_ms;
				if (may != (r != NULL))
					fail_msg("%s, %s, bits %d: %s", job_state_name(j.state),
						job_step_name((enum job_step)step), bits, e.text);
				if (!r) {
					assert_non_null(strstr(e.text, "job 7 can't be "));
					continue;
				}
				allowed++;
				assert_int_equal(
					*to == '=' ? to_letter[from] : *to, to_letter[r->to]);
			}
		}
	}
	assert_true(allowed > 100);
}

static void test_each_change_of_state_is_told(void **state)
{
	(void)state;
	for (size_t i = 0; i < job_rules_n; i++) {
		const struct job_rule *r = &job_rules[i];

		if (r->from != r->to && r->step != JOB_STEP_PURGE)
			assert_int_not_equal(r->event, EVENT_NONE);
		/* A bad end is never silent; what a person wanted is. */
		if (job_state_is_terminal(r->to))
			assert_int_equal(r->alert != ALERT_NONE,
				r->to != JOB_STATE_COMPLETED && r->to != JOB_STATE_CANCELLED);
		for (size_t k = 0; k < i; k++)
			assert_false(job_rules[k].from == r->from && job_rules[k].step == r->step);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words_go_both_ways),
		cmocka_unit_test(test_severities_are_the_specs),
		cmocka_unit_test(test_every_transition),
		cmocka_unit_test(test_each_change_of_state_is_told),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
