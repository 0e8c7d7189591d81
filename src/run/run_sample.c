/*
 * A sample taken into the run: which cards there are, what each job holds, what strangers hold; and the words said about
 * it (EXCEEDS, --verbose, a driver that can't be asked). It starts and ends nothing but a run that never saw a GPU.
 */
#include "run/state.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define QUERY_FAILURES_MAX 5

static struct run_use *use_of(struct run_attempt *a, int32_t gpu)
{
	for (uint32_t i = 0; i < a->n_use; i++)
		if (a->use[i].gpu == gpu)
			return &a->use[i];
	return NULL;
}

static void remember_cards(struct run *r)
{
	const struct gpu_snapshot *s = &r->sample.snap;

	for (uint32_t i = 0; i < s->n_cards; i++) {
		const struct gpu_card *card = &s->cards[i];
		uint32_t k = 0;

		if (card->state != GPU_OK || !value_is_present(card->m[METRIC_MEM_TOTAL]))
			continue;
		while (k < r->n_known && strcmp(r->known[k].uuid, card->uuid))
			k++;
		if (k == GPU_MAX)
			continue;
		if (k == r->n_known) {
			r->n_known++;
			memcpy(r->known[k].uuid, card->uuid, GPU_UUID_LEN);
		}
		r->known[k].index = card->index;
		r->known[k].gi = card->gi;
		r->known[k].ci = card->ci;
		r->known[k].is_instance = gpu_is_instance(card);
		r->known[k].is_mig_parent = card->is_mig_parent;
		r->known[k].total_mib = card->m[METRIC_MEM_TOTAL].v;
	}
}

/* Which jobs of this run are on it: "; job 2 and 7 are on it". */
static void put_jobs_on(const struct run *r, int32_t index, struct buf *b)
{
	size_t n = 0;

	for (size_t i = 0; i < r->n_jobs; i++) {
		struct run_job *j = r->jobs[i];

		if (j->attempt && use_of(j->attempt, index))
			buf_printf(
				b, "%s%" PRIu64, n++ ? ", " : "; running there: job ", j->rec->no);
	}
}

/* A card that stops answering, and one that's back: jobs wait for it, and some are on it. */
static void say_away(struct run *r)
{
	const struct gpu_snapshot *s = &r->sample.snap;

	for (uint32_t k = 0; k < r->n_known; k++) {
		CLEANUP(buf_done) struct buf b = {0};
		int at = gpu_find_uuid(s, r->known[k].uuid);
		bool is_away = at < 0 || s->cards[at].state != GPU_OK;

		if (is_away == r->known[k].is_away || r->known[k].is_instance ||
			!run_is_chosen(r, r->known[k].index))
			continue;
		r->known[k].is_away = is_away;
		if (!is_away) {
			run_say(r, "gpu %d answers again", r->known[k].index);
			continue;
		}
		put_jobs_on(r, r->known[k].index, &b);
		run_warn(r, "gpu %d does not answer any more (%s): nothing is started on it%s",
			r->known[k].index, at < 0 ? "missing" : gpu_state_name(s->cards[at].state),
			buf_str(&b));
	}
}

static bool is_known_index(const struct run *r, int32_t index)
{
	for (uint32_t i = 0; i < r->n_known; i++)
		if (r->known[i].index == index && !r->known[i].is_instance)
			return true;
	return false;
}

/* --gpus that names a card which isn't there ends a run before it began. */
static bool check_gpus_option(struct run *r)
{
	const struct run_config *c = r->config;
	int32_t all[GPU_MAX];
	uint32_t n = 0;

	for (uint32_t i = 0; i < r->n_known; i++)
		if (!r->known[i].is_instance)
			all[n++] = r->known[i].index;
	for (uint32_t i = 0; i < c->n_gpus; i++) {
		if (is_known_index(r, c->gpus[i]))
			continue;
		err_set(&r->failure, -EINVAL,
			"--gpus %d: there is no such GPU; this machine has %s", c->gpus[i],
			run_gpus_text(r, all, n, ", "));
		run_end(r, -EINVAL);
		return false;
	}
	return true;
}

static void say_gpus(struct run *r)
{
	CLEANUP(buf_done) struct buf b = {0};

	for (uint32_t i = 0; i < r->n_known; i++) {
		char label[GPU_LABEL_LEN];

		/* What jobs can be placed on: the instances in place of the card that they were cut from. */
		if (r->known[i].is_mig_parent)
			continue;
		gpu_label(r->known[i].index, r->known[i].gi, r->known[i].ci, label);
		buf_printf(&b, "%s%s", b.len ? ", " : "", label);
	}
	if (!r->config->n_gpus && !r->config->only_settle)
		run_say(r, "discovered GPUs: [%s]", buf_str(&b));
	r->said_gpus = true;
}

static int64_t overall_peak(const struct run_attempt *a, int32_t *ret_gpu)
{
	int64_t peak = 0;

	for (uint32_t i = 0; i < a->n_use; i++) {
		if (a->use[i].peak_mib <= peak)
			continue;
		peak = a->use[i].peak_mib;
		if (ret_gpu)
			*ret_gpu = a->use[i].gpu;
	}
	return peak;
}

static void say_peak(struct run *r, struct run_job *j)
{
	struct run_attempt *a = j->attempt;
	CLEANUP(buf_done) struct buf b = {0};
	int64_t peak = overall_peak(a, NULL);

	if (!r->config->verbose || (a->said_peak_mib ? peak < a->said_peak_mib + 256 : peak < 255))
		return;
	for (uint32_t i = 0; i < a->n_use; i++)
		buf_printf(&b, "%sgpu%d:%" PRId64 " MiB", i ? ", " : "", a->use[i].gpu,
			a->use[i].now_mib);
	run_say(r, "job %" PRIu64 " vram now %s (peak %" PRId64 " MiB)", j->rec->no, buf_str(&b),
		peak);
	a->said_peak_mib = peak;
}

static void say_exceeds(struct run *r, struct run_job *j)
{
	struct run_attempt *a = j->attempt;
	int32_t gpu = 0;
	int64_t peak = overall_peak(a, &gpu);

	if (a->said_exceeds || a->declared_mib <= 0 ||
		(double)peak <= (double)a->declared_mib * (1 + r->config->tolerance))
		return;
	a->said_exceeds = true;
	run_warn(r,
		"job %" PRIu64 " EXCEEDS declared VRAM: %" PRId64
		" MiB observed on gpu %d vs %" PRId64 " MiB declared (+%.0f%%) — neighbors may OOM",
		j->rec->no, peak, gpu, a->declared_mib,
		100.0 * (double)(peak - a->declared_mib) / (double)a->declared_mib);
}

static void add_util(const struct run *r, struct run_job *j)
{
	const struct gpu_snapshot *s = &r->sample.snap;
	double sum = 0;
	uint32_t n = 0;

	for (uint32_t i = 0; i < j->attempt->n_use; i++) {
		int at = gpu_find_index(s, j->attempt->use[i].gpu);

		if (at < 0 || !value_is_present(s->cards[at].m[METRIC_UTIL_GPU]))
			continue;
		sum += (double)s->cards[at].m[METRIC_UTIL_GPU].v;
		n++;
	}
	if (n) {
		j->attempt->util_sum += sum / n;
		j->attempt->util_n++;
	}
}

/* Once: the machine won't change while this runs. */
static void say_left_out(struct run *r)
{
	uint32_t n = r->sample.snap.n_left_out;

	if (n == 0 || r->said_left_out)
		return;
	r->said_left_out = true;
	run_warn(r,
		"%u card%s or MIG instance%s of this machine can't be used: there are more than %d of both together, or they have no UUID of their own",
		n, n == 1 ? "" : "s", n == 1 ? "" : "s", GPU_MAX);
}

static void take_rows(struct run *r)
{
	const struct sample *s = &r->sample;
	const char *queue = journal_queue(r->journal);

	for (size_t i = 0; i < r->n_jobs; i++)
		for (uint32_t k = 0; r->jobs[i]->attempt && k < r->jobs[i]->attempt->n_use; k++)
			r->jobs[i]->attempt->use[k].now_mib = 0;
	for (uint32_t i = 0; i < s->n_rows; i++) {
		const struct ledger_row *row = &s->rows[i];
		struct run_job *j = strcmp(row->name.queue, queue)
					    ? NULL
					    : run_job_attempt(r, row->name.job, row->name.attempt);
		struct run_use *use = j && row->card < s->snap.n_cards
					      ? use_of(j->attempt, s->snap.cards[row->card].index)
					      : NULL;

		if (!use)
			continue;
		use->now_mib = row->held_mib;
		if (row->peak_mib > use->peak_mib)
			use->peak_mib = row->peak_mib;
		j->attempt->is_sampled |= row->is_sampled;
		if (row->is_sampled)
			j->attempt->seen_boot_ms = s->snap.ended_ms;
	}
}

static void tell_of_jobs(struct run *r)
{
	for (size_t i = 0; i < r->n_jobs; i++) {
		struct run_job *j = r->jobs[i];

		if (!j->attempt || j->phase != PHASE_STARTED)
			continue;
		j->attempt->n_looks++;
		add_util(r, j);
		if (j->attempt->is_sampled) {
			say_peak(r, j);
			say_exceeds(r, j);
		}
	}
}

/* The driver couldn't be asked: said, counted, and the end of a run that has nothing else to do (W1). */
static void query_failed(struct run *r)
{
	bool is_busy = false, wants = false;

	r->query_failures++;
	if (r->query_failures <= QUERY_FAILURES_MAX)
		run_warn(r, "GPU query failed (%s); attempt %u", run_text(r, r->sample.snap.error),
			r->query_failures);
	if (r->query_failures < QUERY_FAILURES_MAX || r->has_seen_gpus)
		return;
	for (size_t i = 0; i < r->n_jobs; i++)
		is_busy |= r->jobs[i]->phase != PHASE_IDLE;
	for (size_t i = 0; i < r->n_lines; i++)
		wants |= run_job_is_pending(r->lines[i]);
	if (is_busy || !wants || r->config->watch)
		return;
	err_set(&r->failure, -ENODEV,
		"no GPU could be asked, so nothing that needs one was started: %s",
		r->sample.snap.error);
	run_end(r, -ENODEV);
}

void run_take_sample(struct run *r, const json_t *msg)
{
	struct sample s = {0};
	CLEANUP_FREE uint8_t *own = NULL;
	struct err e = {0};

	if (sample_decode(msg, &s, &e) < 0) {
		run_warn(r, "the agent sent a sample that can't be read: %s", e.text);
		return;
	}
	sample_done(&r->sample);
	r->sample = s;
	r->has_sample = true;
	if (s.snap.error[0]) {
		query_failed(r);
		run_wake(r);
		return;
	}
	r->query_failures = 0;
	r->samples++;
	r->has_seen_gpus |= s.snap.n_cards > 0;
	own = xcalloc(s.snap.n_procs, 1);
	for (uint32_t i = 0; i < s.snap.n_procs; i++)
		own[i] = s.proc_row[i] != 0;
	track_update(r->track, &r->sample.snap, own);
	remember_cards(r);
	if (!r->said_gpus && !check_gpus_option(r))
		return;
	if (!r->said_gpus)
		say_gpus(r);
	say_left_out(r);
	say_away(r);
	take_rows(r);
	tell_of_jobs(r);
	run_wake(r);
}
