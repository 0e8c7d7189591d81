/*
 * What one line of the journal does to its key: gpusched's rules (section 11 of its specification), then ours. It's used
 * for reading and, on the very text that goes to the file, for writing, so a reload always ends where memory was.
 *
 *   pending --bind--> running --(unbind, interrupted, oom)--> pending
 *      |                 '------------done--> terminal --retry--> pending
 *      '--started (gpusched's has no bind)--> running
 */
#include "run/journal_inner.h"

#include "base/parse.h"

#include <jansson.h>
#include <string.h>

/* Counters and numbers past this are nonsense, and one more than them must still be a number JSON can hold. */
#define COUNT_MAX INT64_C(1000000000)
#define NUMBER_MAX (INT64_C(1) << 53)
#define TIME_LEN 31

static int64_t int_value(const json_t *v, int64_t otherwise)
{
	if (json_is_integer(v))
		return json_integer_value(v);
	if (json_is_real(v) && json_real_value(v) > -9e18 && json_real_value(v) < 9e18)
		return (int64_t)json_real_value(v);
	return otherwise;
}

static int64_t int_of(const json_t *o, const char *name, int64_t otherwise)
{
	return int_value(json_object_get(o, name), otherwise);
}

/* An integer within bounds, or what's said otherwise. */
static int64_t count_of(const json_t *o, const char *name, int64_t max, int64_t otherwise)
{
	int64_t v = int_of(o, name, otherwise);

	return v >= 0 && v <= max ? v : otherwise;
}

static const char *str_of(const json_t *o, const char *name)
{
	const char *s = json_string_value(json_object_get(o, name));

	return s ? s : "";
}

static void set_text(struct journal *j, char **field, const char *s)
{
	if (!*field || strcmp(*field, s) != 0)
		*field = journal_keep(j, s);
}

static void copy_text(char *ret, size_t size, const char *s)
{
	size_t n = strnlen(s, size - 1);

	memcpy(ret, s, n);
	ret[n] = '\0';
}

/* A text that changes often and is never long has one place, made when it's first needed: most jobs of a long list wait. */
static void put_text(struct journal *j, const char **field, size_t size, const char *s)
{
	char *place = (char *)(uintptr_t)*field;

	if (!*place && !*s)
		return;
	if (!*place)
		*field = place = journal_alloc(j, size);
	copy_text(place, size, s);
}

/* The attempt is over, one way or other. */
static void no_longer_runs(struct journal *j, struct job_record *r, enum job_status status)
{
	struct job_last *l;

	r->status = status;
	r->is_bound = false;
	r->was_started = false;
	if (!r->last->pgid && !r->last->start_ticks)
		return;
	l = journal_last(j, r);
	l->pgid = 0;
	l->start_ticks = 0;
}

static void fold_seen(struct journal *j, struct job_record *r, const json_t *o)
{
	int64_t no = count_of(o, "no", NUMBER_MAX, 0);

	if (no > 0)
		journal_number(j, r, (uint64_t)no);
	if (json_is_string(json_object_get(o, "command")))
		set_text(j, &r->command, str_of(o, "command"));
}

static void take_gpus(struct journal *j, struct job_last *l, const json_t *o)
{
	const json_t *gpus = json_object_get(o, "gpus"), *uuids = json_object_get(o, "uuids");
	size_t n = json_array_size(gpus);

	n = n < GPU_MAX ? n : GPU_MAX;
	if (n > l->n_gpus) {
		l->uuids = journal_alloc(j, n * (sizeof(*l->uuids) + sizeof(*l->gpus)));
		l->gpus = (int32_t *)(l->uuids + n);
	}
	l->n_gpus = (uint32_t)n;
	for (size_t i = 0; i < n; i++) {
		const char *s = json_string_value(json_array_get(uuids, i));
		l->gpus[i] = (int32_t)json_integer_value(json_array_get(gpus, i));
		l->uuids[i] = journal_share(j, s ? s : "");
	}
}

static void fold_started(struct journal *j, struct job_record *r, const json_t *o)
{
	struct job_last *l = journal_last(j, r);

	r->status = JOB_RUNNING;
	r->was_started = true;
	l->pgid = int_of(o, "pgid", 0);
	l->start_ticks = (uint64_t)int_of(o, "start_ticks", 0);
	if (*str_of(o, "boot_id"))
		l->boot_id = journal_share(j, str_of(o, "boot_id"));
	/* What a bind of ours said of the cards is more than this record has. */
	if (!r->is_bound && json_is_array(json_object_get(o, "gpus")))
		take_gpus(j, l, o);
}

static void fold_bind(struct journal *j, struct job_record *r, const json_t *o)
{
	int64_t attempt = count_of(o, "attempt", COUNT_MAX, 0);
	struct job_last *l = journal_last(j, r);

	no_longer_runs(j, r, JOB_RUNNING);
	r->is_bound = true;
	l->attempt = attempt > 0 ? (uint32_t)attempt : l->attempt + 1;
	put_text(j, &l->token, ID_LEN, str_of(o, "token"));
	l->root_id = journal_share(j, str_of(o, "root_id"));
	l->machine_key = journal_share(j, str_of(o, "machine_key"));
	l->boot_id = journal_share(j, str_of(o, "boot_id"));
	take_gpus(j, l, o);
	l->bound_vram = int_of(o, "vram", -1);
	set_text(j, &l->log, str_of(o, "log"));
	l->log_offset = int_of(o, "log_offset", 0);
}

static void fold_unbind(struct journal *j, struct job_record *r, const json_t *o)
{
	if (r->is_bound && int_of(o, "attempt", r->last->attempt) == (int64_t)r->last->attempt)
		no_longer_runs(j, r, JOB_PENDING);
}

static void fold_interrupted(struct journal *j, struct job_record *r, const json_t *o)
{
	no_longer_runs(j, r, JOB_PENDING);
}

static void take_seconds(struct job_last *l, const json_t *o)
{
	const json_t *v = json_object_get(o, "seconds");

	l->seconds = json_is_number(v) ? json_number_value(v) : -1;
}

static void fold_oom(struct journal *j, struct job_record *r, const json_t *o)
{
	const json_t *next = json_object_get(o, "next_vram");
	struct job_last *l = journal_last(j, r);

	l->attempts = count_of(o, "attempts", COUNT_MAX, l->attempts + 1);
	if (next)
		r->next_vram = int_of(o, "next_vram", -1);
	take_seconds(l, o);
	no_longer_runs(j, r, JOB_PENDING);
}

/* gpusched writes the index as a string, and a figure written as one is understood as well. */
static int64_t mib_of(const json_t *v)
{
	int64_t mib = 0;

	if (json_is_string(v))
		return parse_int64(json_string_value(v), &mib) < 0 ? 0 : mib;
	return int_value(v, 0);
}

static void take_peaks(struct journal *j, struct job_last *l, json_t *peaks)
{
	const char *gpu;
	json_t *v;

	if (json_object_size(peaks) > l->n_peaks)
		l->peaks = journal_alloc(j, json_object_size(peaks) * sizeof(*l->peaks));
	l->n_peaks = 0;
	json_object_foreach(peaks, gpu, v)
	{
		int64_t index;
		if (parse_int64(gpu, &index) == 0 && index >= 0 && index <= INT32_MAX)
			l->peaks[l->n_peaks++] = (struct journal_peak){(int32_t)index, mib_of(v)};
	}
}

/* A word we don't know is some other way to be over: better never again than twice. */
static enum job_status status_of(const json_t *o)
{
	const char *word = str_of(o, "status");

	for (enum job_status s = JOB_OK; s <= JOB_CANCELLED; s++)
		if (strcmp(job_status_name(s), word) == 0)
			return s;
	return JOB_FAILED;
}

static void fold_done(struct journal *j, struct job_record *r, const json_t *o)
{
	const json_t *code = json_object_get(o, "returncode"),
		     *util = json_object_get(o, "avg_util");
	struct job_last *l = journal_last(j, r);

	l->attempts++;
	r->has_returncode = json_is_integer(code);
	l->returncode = json_integer_value(code);
	r->has_util = json_is_number(util);
	l->avg_util = json_number_value(util);
	take_peaks(j, l, json_object_get(o, "peak_mib"));
	take_seconds(l, o);
	if (l->why || *str_of(o, "why"))
		set_text(j, &l->why, str_of(o, "why"));
	no_longer_runs(j, r, status_of(o));
}

static void fold_retry(struct journal *j, struct job_record *r, const json_t *o)
{
	if (job_status_is_terminal(r->status))
		r->status = JOB_PENDING;
}

static const struct {
	const char *event;
	void (*fold)(struct journal *j, struct job_record *r, const json_t *o);
} events[] = {
	{"seen", fold_seen},
	{"bind", fold_bind},
	{"started", fold_started},
	{"done", fold_done},
	{"unbind", fold_unbind},
	{"interrupted", fold_interrupted},
	{"oom", fold_oom},
	{"retry", fold_retry},
};

/* Ours that belong to no job. */
static bool fold_keyless(struct journal *j, const json_t *o)
{
	const char *event = str_of(o, "event");

	if (strcmp(event, "queue") == 0 && strlen(str_of(o, "queue")) == ID_LEN - 1) {
		copy_text(j->queue, sizeof(j->queue), str_of(o, "queue"));
		j->incarnation = (uint64_t)count_of(o, "incarnation", NUMBER_MAX, 1);
		return true;
	}
	int64_t epoch = count_of(o, "epoch", NUMBER_MAX, 0);
	if (strcmp(event, "epoch") != 0 || epoch < 1)
		return false;
	if ((uint64_t)epoch > j->epoch)
		j->epoch = (uint64_t)epoch;
	journal_set_sim(j, str_of(o, "sim"), str_of(o, "sim_dir"));
	return true;
}

static void fold_keyed(struct journal *j, const char *key, const json_t *o)
{
	struct job_record *r = journal_get(j, key);
	const char *event = str_of(o, "event");

	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
		if (strcmp(events[i].event, event) == 0)
			events[i].fold(j, r, o);
	if (*str_of(o, "time"))
		put_text(j, &r->time, TIME_LEN, str_of(o, "time"));
}

bool journal_fold(struct journal *j, const char *line, size_t n)
{
	json_t *o = json_loadb(line, n, 0, NULL);
	const char *key = json_string_value(json_object_get(o, "key"));
	bool is_record = json_is_object(o);

	if (is_record && !json_object_get(o, "key"))
		is_record = fold_keyless(j, o);
	else if (is_record && key && *key && strlen(key) < sizeof(((struct job_record *)0)->key))
		fold_keyed(j, key, o);
	else
		is_record = false;
	json_decref(o);
	return is_record;
}
