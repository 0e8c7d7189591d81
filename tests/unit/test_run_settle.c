/* What is said and remembered of a job's memory when it ends: only what the samples bear out. */
#include "run/state.h"

#include "base/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define GIB 1024

struct world {
	struct run_config config;
	struct run run;
	struct run_job *job;
};

static void nothing(evutil_socket_t fd, short what, void *arg)
{
}

/* A job of one card that declared 20 GiB, bound and started. */
static void setup_with_log(struct world *w, char *log)
{
	const int32_t gpu = 0;
	struct job_last bound = {.attempt = 1, .bound_vram = 20 * GIB, .log = log};

	*w = (struct world){.config = {.program = "gpusched", .tolerance = 0.1, .log_dir = "."}};
	w->run.config = &w->config;
	w->run.base = event_base_new();
	w->run.turn_event = event_new(w->run.base, -1, 0, nothing, NULL);
	w->run.journal = journal_load_bytes("", 0);
	w->job = run_job_of(&w->run, journal_seen(w->run.journal, "k#0", "train"));
	job_last_set_gpus(&bound, &gpu, NULL, 1);
	journal_bind(w->run.journal, w->job->rec, &bound);
	job_last_clear_gpus(&bound);
	run_attempt_new(w->job);
	w->job->attempt->declared_mib = 20 * GIB;
	w->job->attempt->n_use = 1;
	w->job->phase = PHASE_STARTED;
}

static void setup(struct world *w)
{
	setup_with_log(w, NULL);
}

static void teardown(struct world *w)
{
	run_jobs_free(&w->run);
	journal_free(w->run.journal);
	event_free(w->run.turn_event);
	event_base_free(w->run.base);
	buf_done(&w->run.out);
	for (size_t i = 0; i < RUN_TEXTS; i++)
		buf_done(&w->run.texts[i]);
}

/* It ran from 1000 to 11000 and was seen last at seen_ms (0: never), with that peak; what was said of its end. */
static const char *end_of(struct world *w, int64_t seen_ms, int64_t peak_mib, int code)
{
	struct attempt_end end = {
		.how = END_EXIT, .code = code, .started_boot_ms = 1000, .ended_boot_ms = 11000};

	w->job->attempt->is_sampled = seen_ms > 0;
	w->job->attempt->seen_boot_ms = seen_ms;
	w->job->attempt->use[0].peak_mib = peak_mib;
	run_settle(&w->run, w->job, &end, 0);
	return buf_str(&w->run.out);
}

static void seen_to_the_end(void **state)
{
	struct world w;

	setup(&w);
	assert_non_null(strstr(end_of(&w, 6000, 4 * GIB, 0), "over-declared (-80%)"));
	assert_int_equal(w.job->rec->last->n_peaks, 1);
	assert_string_equal(w.job->result->verdict, "under");
	teardown(&w);
}

static void seen_while_it_was_loading(void **state)
{
	struct world w;
	const char *said;

	setup(&w);
	said = end_of(&w, 5999, 300, 0);
	assert_non_null(strstr(
		said, "peak vram gpu0:300 MiB or more (no sample saw the second half of it)"));
	assert_null(strstr(said, "declared"));
	assert_int_equal(w.job->rec->last->n_peaks, 0);
	assert_string_equal(w.job->result->verdict, "unattributed");
	teardown(&w);
}

/* More than it declared is more than it declared, whenever it was seen. */
static void seen_early_and_too_large(void **state)
{
	struct world w;

	setup(&w);
	assert_non_null(strstr(end_of(&w, 1500, 30 * GIB, 0), "UNDER-DECLARED (+50%); raise it"));
	assert_int_equal(w.job->rec->last->peaks[0].mib, 30 * GIB);
	assert_string_equal(w.job->result->verdict, "over");
	teardown(&w);
}

/* How far a job came that failed is worth knowing, but isn't what it needs. */
static void failed_early(void **state)
{
	struct world w;

	setup(&w);
	assert_non_null(strstr(end_of(&w, 1500, 300, 1), "[EXIT 1]"));
	assert_int_equal(w.job->rec->last->peaks[0].mib, 300);
	teardown(&w);
}

static void never_seen(void **state)
{
	struct world w;

	setup(&w);
	assert_non_null(
		strstr(end_of(&w, 0, 0, 0), "not sampled: it ended before a sample saw it"));
	teardown(&w);
	setup(&w);
	w.job->attempt->n_looks = 2;
	assert_non_null(strstr(
		end_of(&w, 0, 0, 0), "not sampled: no sample saw it hold memory of its GPU"));
	assert_string_equal(w.job->result->verdict, "unattributed");
	teardown(&w);
}

/* It ran out of memory by itself just before it was to be stopped: its retry is the next run's. */
static void out_of_memory_while_the_run_stops(void **state)
{
	static const char said[] = "CUDA out of memory";
	char path[] = "/tmp/gpustow-settle-XXXXXX";
	int fd = mkstemp(path);
	struct world w;

	assert_true(fd >= 0 && write(fd, said, strlen(said)) == (ssize_t)strlen(said));
	setup_with_log(&w, path);
	w.config.oom_retries = 1;
	w.run.is_stopping = true;
	assert_non_null(strstr(end_of(&w, 0, 0, 1), "hit CUDA OOM (attempt 1/2)"));
	assert_int_equal(w.job->rec->status, JOB_PENDING);
	assert_int_equal(w.job->rec->next_vram, 25 * GIB);
	teardown(&w);
	close(fd);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(seen_to_the_end),
		cmocka_unit_test(seen_while_it_was_loading),
		cmocka_unit_test(seen_early_and_too_large),
		cmocka_unit_test(failed_early),
		cmocka_unit_test(never_seen),
		cmocka_unit_test(out_of_memory_while_the_run_stops),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
