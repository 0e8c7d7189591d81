/* How an end is judged: each cause by its evidence, what comes first, who gets another attempt and with how much. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "queue/judge.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <signal.h>
#include <string.h>

#define OFFSET 5000 /* the node's clock is ahead */

struct scene {
	struct job job;
	struct queue_settings set;
	struct end_facts f;
	struct judgement g;
};

static void end_as(struct scene *s, enum end_how how, int code)
{
	s->f.end = (struct attempt_end){.how = how,
		.code = code,
		.seen_by_shim = true,
		.started_boot_ms = 1000,
		.ended_boot_ms = 61000,
		.started_wall_ms = 1000000 + OFFSET,
		.ended_wall_ms = 1060000 + OFFSET};
}

static int begin(void **state)
{
	struct scene *s = xcalloc(1, sizeof(*s));

	job_init(&s->job);
	s->job.id = 7;
	s->job.attempt = 1;
	s->job.vram_mib = 8000;
	s->job.bind.n_cards = 1;
	s->job.bind.cards = xcalloc(1, sizeof(*s->job.bind.cards));
	s->set = (struct queue_settings){.retry_on = 1u << JOB_CAUSE_VANISHED |
						     1u << JOB_CAUSE_NODE_REBOOTED |
						     1u << JOB_CAUSE_SIGNAL,
		.card_fault_fast_ms = 30000,
		.captured_output_bytes = 16384};
	s->f = (struct end_facts){.oom_kills = -1, .peak_mib = -1, .clock_offset_ms = OFFSET};
	end_as(s, END_EXIT, 0);
	*state = s;
	return 0;
}

static int drop(void **state)
{
	struct scene *s = *state;

	job_done(&s->job);
	end_facts_done(&s->f);
	judgement_done(&s->g);
	free(s);
	return 0;
}

static void judged(struct scene *s)
{
	judgement_done(&s->g);
	judge(&s->job, &s->f, &s->set, 24000, &s->g);
}

/* The only XID: on that card of the scene's job, or on one that it hasn't got. 0: none. */
static void reports(struct scene *s, const char *uuid, int64_t xid)
{
	free(s->f.xids);
	s->f.xids = xcalloc(2, sizeof(*s->f.xids));
	s->f.n_xids = xid != 0;
	snprintf(s->f.xids[0].uuid, sizeof(s->f.xids[0].uuid), "%s", uuid);
	s->f.xids[0].xid = xid;
}

/* Judged anew, and it came to this. */
static void comes_to(struct scene *s, enum job_step step, enum job_cause cause)
{
	judged(s);
	assert_string_equal(job_step_name(s->g.end.step), job_step_name(step));
	assert_string_equal(job_cause_name(s->g.end.cause), job_cause_name(cause));
}

static void says(struct scene *s, const char *tail)
{
	free(s->f.tail);
	s->f.tail = xstrdup(tail);
}

static void test_good_end(void **state)
{
	struct scene *s = *state;

	s->f.says_cuda_oom = s->f.says_disk_full = s->f.says_gpu_fault = true;
	reports(s, "GPU-a", 31);
	comes_to(s, JOB_STEP_COMPLETE, JOB_CAUSE_NONE);
	assert_null(s->g.end.error);
	assert_null(s->g.end.detail);
	assert_true(s->g.end.has_exit_code);
	assert_int_equal(s->g.end.exit_code, 0);
	assert_false(s->g.is_card_fault);
}

static void test_times_are_boottime_and_our_wall_clock(void **state)
{
	struct scene *s = *state;

	comes_to(s, JOB_STEP_COMPLETE, JOB_CAUSE_NONE);
	assert_int_equal(s->g.end.elapsed_ms, 60000);
	assert_int_equal(s->g.end.started_ms, 1000000);
	assert_int_equal(s->g.end.finished_ms, 1060000);
	/* A wall clock that was set while it ran makes it neither longer nor shorter (W-28). */
	s->f.end.ended_wall_ms = 90000000000;
	judged(s);
	assert_int_equal(s->g.end.elapsed_ms, 60000);
	s->f.end.started_boot_ms = s->f.end.started_wall_ms = 0;
	judged(s);
	assert_int_equal(s->g.end.elapsed_ms, -1);
	assert_int_equal(s->g.end.started_ms, 0);
}

static void test_each_cause_by_its_evidence(void **state)
{
	struct scene *s = *state;

	end_as(s, END_EXIT, 3);
	comes_to(s, JOB_STEP_FAIL, JOB_CAUSE_EXIT_CODE);
	assert_int_equal(s->g.end.exit_code, 3);
	s->f.says_disk_full = true;
	comes_to(s, JOB_STEP_FAIL, JOB_CAUSE_DISK_FULL);
	s->f.says_gpu_fault = true;
	comes_to(s, JOB_STEP_FAIL, JOB_CAUSE_GPU_FAULT);
	s->f.says_gpu_fault = false;
	reports(s, "GPU-a", 79);
	comes_to(s, JOB_STEP_FAIL, JOB_CAUSE_GPU_FAULT);
	assert_non_null(strstr(s->g.end.error, "Xid 79"));
	end_as(s, END_SIGNAL, SIGKILL);
	s->f.oom_kills = 1;
	comes_to(s, JOB_STEP_FAIL, JOB_CAUSE_HOST_OOM);
	s->f.says_cuda_oom = true;
	comes_to(s, JOB_STEP_FAIL, JOB_CAUSE_CUDA_OOM);
}

static void test_what_is_no_exit(void **state)
{
	struct scene *s = *state;

	end_as(s, END_LAUNCH_FAILED, 2);
	snprintf(s->f.end.text, sizeof(s->f.end.text), "chdir /nowhere: No such file or directory");
	comes_to(s, JOB_STEP_FAIL, JOB_CAUSE_LAUNCH_FAILED);
	assert_string_equal(
		s->g.end.error, "could not be started: chdir /nowhere: No such file or directory");
	assert_false(s->g.end.has_exit_code);
	end_as(s, END_REBOOTED, 0);
	comes_to(s, JOB_STEP_LOSE, JOB_CAUSE_NODE_REBOOTED);
	end_as(s, END_VANISHED, 0);
	comes_to(s, JOB_STEP_LOSE, JOB_CAUSE_VANISHED);
	end_as(s, END_SIGNAL, SIGSEGV);
	comes_to(s, JOB_STEP_FAIL, JOB_CAUSE_SIGNAL);
	assert_int_equal(s->g.end.exit_code, 139);
}

static void test_what_we_did_comes_first(void **state)
{
	struct scene *s = *state;

	s->f.says_cuda_oom = true;
	reports(s, "GPU-a", 79);
	s->f.oom_kills = 5;
	end_as(s, END_STOPPED, SIGKILL);
	s->f.end.by_signal = true;
	s->f.end.reason = STOP_TIMEOUT;
	s->job.max_runtime_ms = 1500;
	comes_to(s, JOB_STEP_TIMEOUT, JOB_CAUSE_TIMEOUT);
	assert_string_equal(s->g.end.error, "ran longer than its limit of 1.5 s");
	assert_int_equal(s->g.end.exit_code, 137);
	assert_true(s->g.is_card_fault); /* the Xid stays one */
	reports(s, "GPU-a", 0);
	s->f.end.reason = STOP_CANCEL;
	s->job.cancel_ms = 1;
	s->job.cancel_reason = xstrdup("by hand");
	comes_to(s, JOB_STEP_STOP, JOB_CAUSE_CANCELLED);
	assert_string_equal(s->g.end.error, "cancelled: by hand");
	assert_false(s->g.is_card_fault);
	s->f.end.how = END_NOT_STARTED;
	comes_to(s, JOB_STEP_STOP, JOB_CAUSE_CANCELLED);
	assert_false(s->g.end.has_exit_code);
	/* Nobody of this queue stopped it. */
	s->job.cancel_ms = 0;
	s->f.end.how = END_STOPPED;
	s->f.end.reason = STOP_SHUTDOWN;
	comes_to(s, JOB_STEP_LOSE, JOB_CAUSE_VANISHED);
}

/* If it ended by itself first, that end stands. */
static void test_end_before_the_cancel_came(void **state)
{
	struct scene *s = *state;

	s->job.cancel_ms = 1;
	s->job.max_retries = s->job.oom_retries = 5;
	comes_to(s, JOB_STEP_COMPLETE, JOB_CAUSE_NONE);
	end_as(s, END_SIGNAL, SIGKILL);
	comes_to(s, JOB_STEP_FAIL, JOB_CAUSE_SIGNAL);
	s->f.says_cuda_oom = true;
	comes_to(s, JOB_STEP_FAIL, JOB_CAUSE_CUDA_OOM);
	end_as(s, END_REBOOTED, 0);
	comes_to(s, JOB_STEP_LOSE, JOB_CAUSE_NODE_REBOOTED);
}

static void test_retries_cover_what_the_job_is_not_to_blame_for(void **state)
{
	struct scene *s = *state;

	s->job.max_retries = 1;
	end_as(s, END_VANISHED, 0);
	comes_to(s, JOB_STEP_RETRY, JOB_CAUSE_VANISHED);
	end_as(s, END_REBOOTED, 0);
	comes_to(s, JOB_STEP_RETRY, JOB_CAUSE_NODE_REBOOTED);
	end_as(s, END_SIGNAL, SIGKILL);
	comes_to(s, JOB_STEP_RETRY, JOB_CAUSE_SIGNAL);
	/* As the job's shell tells it of its command. */
	end_as(s, END_EXIT, 137);
	comes_to(s, JOB_STEP_RETRY, JOB_CAUSE_SIGNAL);
	s->f.oom_kills = 1;
	comes_to(s, JOB_STEP_RETRY, JOB_CAUSE_HOST_OOM);
	s->f.oom_kills = -1;
	end_as(s, END_SIGNAL, SIGSEGV);
	comes_to(s, JOB_STEP_FAIL, JOB_CAUSE_SIGNAL);
	end_as(s, END_EXIT, 1);
	comes_to(s, JOB_STEP_FAIL, JOB_CAUSE_EXIT_CODE);
	/* A time-out is a failure whatever else. */
	end_as(s, END_STOPPED, 0);
	s->f.end.reason = STOP_TIMEOUT;
	comes_to(s, JOB_STEP_TIMEOUT, JOB_CAUSE_TIMEOUT);
}

static void test_retry_on_names_its_own(void **state)
{
	struct scene *s = *state;

	s->job.max_retries = 1;
	s->job.retry_on = 1u << JOB_CAUSE_EXIT_CODE | 1u << JOB_CAUSE_SIGNAL;
	end_as(s, END_EXIT, 1);
	comes_to(s, JOB_STEP_RETRY, JOB_CAUSE_EXIT_CODE);
	end_as(s, END_SIGNAL, SIGSEGV);
	comes_to(s, JOB_STEP_RETRY, JOB_CAUSE_SIGNAL);
	end_as(s, END_VANISHED, 0);
	comes_to(s, JOB_STEP_LOSE, JOB_CAUSE_VANISHED);
	s->job.retry_on = 1u << JOB_CAUSE_TIMEOUT;
	end_as(s, END_STOPPED, 0);
	s->f.end.reason = STOP_TIMEOUT;
	comes_to(s, JOB_STEP_RETRY, JOB_CAUSE_TIMEOUT);
}

static void test_retries_are_counted_since_the_requeue(void **state)
{
	struct scene *s = *state;

	s->job.max_retries = 2;
	end_as(s, END_VANISHED, 0);
	s->job.attempt = 2;
	comes_to(s, JOB_STEP_RETRY, JOB_CAUSE_VANISHED);
	s->job.attempt = 3;
	comes_to(s, JOB_STEP_LOSE, JOB_CAUSE_VANISHED);
	s->job.attempt_base = 3; /* requeued (W-27) */
	s->job.attempt = 5;
	comes_to(s, JOB_STEP_RETRY, JOB_CAUSE_VANISHED);
	/* Attempts that ran out of memory are counted by themselves. */
	s->job.attempt_base = 0;
	s->job.n_oom = 3;
	comes_to(s, JOB_STEP_RETRY, JOB_CAUSE_VANISHED);
	s->job.n_oom = 2;
	comes_to(s, JOB_STEP_LOSE, JOB_CAUSE_VANISHED);
}

static void test_oom_gets_more(void **state)
{
	struct scene *s = *state;

	end_as(s, END_EXIT, 1);
	s->f.says_cuda_oom = true;
	s->set.oom_retries = 1;
	comes_to(s, JOB_STEP_RETRY, JOB_CAUSE_CUDA_OOM);
	assert_true(s->g.end.is_oom_retry);
	assert_int_equal(s->g.end.vram_mib, 10000);
	s->f.peak_mib = 8001;
	judged(s);
	assert_int_equal(s->g.end.vram_mib, 10002); /* rounded up */
	assert_int_equal(s->g.end.peak_mib, 8001);
	s->job.peak_mib = 9000; /* an earlier look saw more */
	judged(s);
	assert_int_equal(s->g.end.vram_mib, 11250);
	s->job.peak_mib = 23000;
	judged(s);
	assert_int_equal(s->g.end.vram_mib, 24000); /* no card has more */
	s->job.peak_mib = 25000;
	judged(s);
	assert_int_equal(s->g.end.vram_mib, 25000); /* never below what it had */
	s->job.n_oom = 1;
	comes_to(s, JOB_STEP_FAIL, JOB_CAUSE_CUDA_OOM);
	s->job.oom_retries = 2; /* its own word counts */
	comes_to(s, JOB_STEP_RETRY, JOB_CAUSE_CUDA_OOM);
	s->job.n_oom = 0;
	s->job.oom_retries = 0;
	comes_to(s, JOB_STEP_FAIL, JOB_CAUSE_CUDA_OOM);
	assert_int_equal(s->g.end.vram_mib, -1);
}

static void test_oom_of_an_undeclared_job(void **state)
{
	struct scene *s = *state;

	s->job.vram_mib = -1;
	s->job.oom_retries = 1;
	end_as(s, END_EXIT, 1);
	s->f.says_cuda_oom = true;
	comes_to(s, JOB_STEP_RETRY, JOB_CAUSE_CUDA_OOM);
	assert_int_equal(s->g.end.vram_mib, -1); /* nothing to go by */
	s->f.peak_mib = 100;
	judged(s);
	assert_int_equal(s->g.end.vram_mib, 125);
}

static void test_words(void **state)
{
	struct scene *s = *state;
	CLEANUP(buf_done) struct buf long_line = {0};

	end_as(s, END_EXIT, 2);
	judged(s);
	assert_string_equal(s->g.end.error, "exit code 2");
	says(s, "Traceback\n  x\nValueError: no\x1b[31m such\n\n");
	judged(s);
	assert_string_equal(s->g.end.error, "exit code 2: ValueError: no\xef\xbf\xbd[31m such");
	assert_string_equal(s->g.end.detail, "Traceback\n  x\nValueError: no\x1b[31m such\n\n");
	for (int i = 0; i < 150; i++)
		buf_puts(&long_line, "\xc3\xa4");
	says(s, buf_str(&long_line));
	judged(s);
	assert_int_equal(strlen(s->g.end.error), strlen("exit code 2: ") + 200);
	/* What's kept for the alert begins with a whole line. */
	says(s, "one\ntwo\nthree\n");
	s->set.captured_output_bytes = 8;
	s->f.tail_of = xstrdup("stderr");
	judged(s);
	assert_string_equal(s->g.end.detail, "(the end of its stderr)\nthree\n");
	s->set.captured_output_bytes = 0;
	judged(s);
	assert_null(s->g.end.detail);
	s->f.survivors = 2;
	judged(s);
	assert_non_null(strstr(s->g.end.detail, "2 processes behind"));
}

static void test_results(void **state)
{
	struct scene *s = *state;

	s->f.result = xstrdup(" { \"loss\" : 1.5 } ");
	judged(s);
	assert_string_equal(s->g.end.result, "{\"loss\":1.5}");
	free(s->f.result);
	s->f.result = xstrdup("loss 1.5");
	judged(s);
	assert_string_equal(s->g.end.result, "{\"raw\":\"loss 1.5\"}");
	free(s->f.result);
	s->f.result = xstrdup("[1, 2]");
	s->f.result_is_cut = true;
	judged(s);
	assert_string_equal(s->g.end.result, "{\"raw\":\"[1, 2]\"}");
}

static void test_evidence_against_cards(void **state)
{
	struct scene *s = *state;

	end_as(s, END_EXIT, 1);
	judged(s);
	assert_false(s->g.is_card_fault); /* it ran for a minute */
	s->f.end.ended_boot_ms = s->f.end.started_boot_ms + 29999;
	judged(s);
	assert_true(s->g.is_card_fault);
	s->f.end.code = 127; /* there's no such program: no card's fault */
	judged(s);
	assert_false(s->g.is_card_fault);
	s->f.end.code = 1;
	s->f.says_cuda_oom = true;
	judged(s);
	assert_false(s->g.is_card_fault);
	s->f.says_cuda_oom = false;
	s->f.end.ended_boot_ms = s->f.end.started_boot_ms + 60000;
	reports(s, "GPU-a", 31); /* a program's own fault */
	comes_to(s, JOB_STEP_FAIL, JOB_CAUSE_EXIT_CODE);
	assert_non_null(strstr(s->g.end.error, "Xid 31"));
	assert_false(s->g.is_card_fault);
	reports(s, "GPU-a", 999); /* nobody knows: not the program's, as far as that goes */
	comes_to(s, JOB_STEP_FAIL, JOB_CAUSE_GPU_FAULT);
	assert_true(s->g.is_card_fault);
	reports(s, "GPU-a", 79);
	s->job.bind.n_cards = 0;
	judged(s);
	assert_false(s->g.is_card_fault);
}

/* Of several cards the one that reported it is to blame; where none did, all are. */
static void test_evidence_is_of_the_card_that_reported_it(void **state)
{
	static const char *const uuids[] = {"GPU-a", "GPU-b"};
	struct scene *s = *state;
	int64_t xid;

	free(s->job.bind.cards);
	s->job.bind.cards = xcalloc(2, sizeof(*s->job.bind.cards));
	s->job.bind.n_cards = 2;
	for (int i = 0; i < 2; i++) {
		snprintf(s->job.bind.cards[i].uuid, sizeof(s->job.bind.cards[i].uuid), "%s",
			uuids[i]);
		s->job.bind.cards[i].index = 4 + i;
	}
	end_as(s, END_EXIT, 1);
	reports(s, "GPU-b", 79);
	comes_to(s, JOB_STEP_FAIL, JOB_CAUSE_GPU_FAULT);
	assert_non_null(strstr(s->g.end.error, "Xid 79 on its GPU 5"));
	assert_true(judge_is_against(&s->g, &s->f, "GPU-b", &xid));
	assert_int_equal(xid, 79);
	assert_false(judge_is_against(&s->g, &s->f, "GPU-a", &xid));
	/* A program's own on the other one, told first and with a larger number, hides nothing and blames nobody. */
	s->f.n_xids = 2;
	s->f.xids[1] = s->f.xids[0];
	snprintf(s->f.xids[0].uuid, sizeof(s->f.xids[0].uuid), "GPU-a");
	s->f.xids[0].xid = 31;
	s->f.xids[1].xid = 8;
	comes_to(s, JOB_STEP_FAIL, JOB_CAUSE_GPU_FAULT);
	assert_non_null(strstr(s->g.end.error, "Xid 8 on its GPU 5"));
	assert_false(judge_is_against(&s->g, &s->f, "GPU-a", &xid));
	assert_int_equal(xid, 31);
	assert_true(judge_is_against(&s->g, &s->f, "GPU-b", &xid));
	/* The job's words, or a quick end, name no card. */
	reports(s, "", 0);
	s->f.says_gpu_fault = true;
	comes_to(s, JOB_STEP_FAIL, JOB_CAUSE_GPU_FAULT);
	assert_true(judge_is_against(&s->g, &s->f, "GPU-a", &xid));
	assert_true(judge_is_against(&s->g, &s->f, "GPU-b", &xid));
	assert_int_equal(xid, 0);
	s->f.says_gpu_fault = false;
	comes_to(s, JOB_STEP_FAIL, JOB_CAUSE_EXIT_CODE);
	assert_false(judge_is_against(&s->g, &s->f, "GPU-a", &xid));
}

static void test_lost_nodes(void **state)
{
	struct scene *s = *state;

	judge_lost(&s->job, JOB_CAUSE_NODE_REBOOTED, "n1 was restarted", &s->set, &s->g);
	assert_int_equal(s->g.end.step, JOB_STEP_LOSE);
	assert_string_equal(s->g.end.error, "n1 was restarted");
	assert_int_equal(s->g.end.elapsed_ms, -1);
	judgement_done(&s->g);
	s->job.max_retries = 1;
	judge_lost(&s->job, JOB_CAUSE_NODE_REBOOTED, "n1 was restarted", &s->set, &s->g);
	assert_int_equal(s->g.end.step, JOB_STEP_RETRY);
	judgement_done(&s->g);
	/* Not a matter of retries: the queue's rule. */
	s->set.node_loss = NODE_LOSS_FAIL;
	judge_lost(&s->job, JOB_CAUSE_NODE_LOST, "away", &s->set, &s->g);
	assert_int_equal(s->g.end.step, JOB_STEP_LOSE);
	judgement_done(&s->g);
	s->job.max_retries = 0;
	s->set.node_loss = NODE_LOSS_REQUEUE;
	judge_lost(&s->job, JOB_CAUSE_NODE_LOST, "away", &s->set, &s->g);
	assert_int_equal(s->g.end.step, JOB_STEP_RETRY);
	judgement_done(&s->g);
	s->job.cancel_ms = 1;
	judge_lost(&s->job, JOB_CAUSE_NODE_LOST, "away", &s->set, &s->g);
	assert_int_equal(s->g.end.step, JOB_STEP_LOSE);
}

static const char whole[] =
	"{\"op\":\"ended\",\"job\":7,\"attempt\":1,\"survivors\":3,"
	"\"end\":{\"how\":\"signal\",\"reason\":\"none\",\"code\":9,\"by_signal\":true,\"was_killed\":false,"
	"\"seen_by_shim\":true,\"started_boot_ms\":5,\"ended_boot_ms\":9,\"started_wall_ms\":50,\"ended_wall_ms\":90,\"text\":\"\"},"
	"\"facts\":{\"tail\":\"x\\n\",\"tail_of\":\"stderr\",\"tail_is_cut\":true,\"result\":null,\"result_is_cut\":false,"
	"\"progress\":\"90%\",\"says\":[\"cuda-oom\",\"new-word\",5],\"oom_kills\":2,"
	"\"peaks\":[[\"GPU-a\",100],[\"GPU-b\",300],\"x\"],\"xids\":[[\"GPU-a\",31],[\"GPU-b\",-1],[\"GPU-b\"],5,[7,8]]}}";

static void test_facts_are_read(void **state)
{
	struct end_facts f;
	struct err e = {0};
	json_t *o = json_loads(whole, 0, NULL);

	(void)state;
	assert_int_equal(end_facts_decode(o, &f, &e), 0);
	assert_int_equal(f.end.how, END_SIGNAL);
	assert_int_equal(f.end.ended_boot_ms, 9);
	assert_int_equal(f.survivors, 3);
	assert_string_equal(f.tail, "x\n");
	assert_true(f.tail_is_cut);
	assert_null(f.result);
	assert_string_equal(f.progress, "90%");
	assert_true(f.says_cuda_oom);
	assert_false(f.says_disk_full);
	assert_int_equal(f.oom_kills, 2);
	assert_int_equal(f.peak_mib, 300);
	assert_int_equal(f.n_xids, 1);
	assert_string_equal(f.xids[0].uuid, "GPU-a");
	assert_int_equal(f.xids[0].xid, 31);
	end_facts_done(&f);
	/* Of gpustow run's jobs there are none. */
	json_object_del(o, "facts");
	assert_int_equal(end_facts_decode(o, &f, &e), 0);
	assert_int_equal(f.oom_kills, -1);
	assert_int_equal(f.peak_mib, -1);
	end_facts_done(&f);
	json_object_del(json_object_get(o, "end"), "how");
	assert_int_equal(end_facts_decode(o, &f, &e), -EINVAL);
	json_object_del(o, "end");
	assert_int_equal(end_facts_decode(o, &f, &e), -EINVAL);
	json_decref(o);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, begin, drop)
	const struct CMUnitTest tests[] = {
		T(test_good_end),
		T(test_times_are_boottime_and_our_wall_clock),
		T(test_each_cause_by_its_evidence),
		T(test_what_is_no_exit),
		T(test_what_we_did_comes_first),
		T(test_end_before_the_cancel_came),
		T(test_retries_cover_what_the_job_is_not_to_blame_for),
		T(test_retry_on_names_its_own),
		T(test_retries_are_counted_since_the_requeue),
		T(test_oom_gets_more),
		T(test_oom_of_an_undeclared_job),
		T(test_words),
		T(test_results),
		T(test_evidence_against_cards),
		T(test_evidence_is_of_the_card_that_reported_it),
		T(test_lost_nodes),
		T(test_facts_are_read),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
