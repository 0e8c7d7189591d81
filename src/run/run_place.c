/*
 * From the sample and what is in flight to the plan's input, and from the plan to binds and launches. It never starts
 * anything whose bind isn't committed: run_place makes binds, run_turn commits, run_place_send sends.
 */
#include "run/state.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/fd.h"
#include "base/sys.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NEVER_SAMPLES 3 /* snapshots in a row that must agree before a job is called infeasible */
#define SCRIPT_FROM \
	100000 /* bytes of a command from which on it's run from a file: one argument has a limit */
#define LAUNCH_BYTES 200000 /* commands in one message */
#define LONG_WAIT_MS 300000

/* --- the plan's input --- */

static int64_t own_held(const struct run *r, uint32_t card)
{
	int64_t sum = 0;

	for (uint32_t i = 0; i < r->sample.n_rows; i++)
		if (r->sample.rows[i].card == card)
			sum += r->sample.rows[i].held_mib;
	return sum;
}

/* Attempts the ledger names but we don't hold: other runs of this user, and what ended jobs left behind. */
static void charge_strangers_rows(const struct run *r, struct run_cluster *c)
{
	for (uint32_t i = 0; i < r->sample.n_rows; i++) {
		const struct ledger_row *row = &r->sample.rows[i];
		struct card_room *room = &c->cards[row->card].room;
		struct job_record *rec = strcmp(row->name.queue, journal_queue(r->journal))
						 ? NULL
						 : journal_find_no(r->journal, row->name.job);
		const struct run_job *j = rec ? rec->user : NULL;

		if (row->card >= c->node.n_cards ||
			(j && j->attempt && rec->last->attempt == row->name.attempt))
			continue;
		/* Ended and settled since this sample was taken: its memory is going, and the node checks once more. */
		if (rec && !row->has_ended)
			continue;
		room->budgets_mib += row->budget_mib;
		room->has_whole |= row->declared_mib == UNDECLARED && !row->has_ended;
		room->n_ours++;
	}
}

static int position_of(const struct run *r, const struct job_record *rec, uint32_t i)
{
	int at = gpu_find_uuid(&r->sample.snap, rec->last->uuids[i]);

	return at >= 0 ? at : gpu_find_index(&r->sample.snap, rec->last->gpus[i]);
}

static void charge_job(const struct run *r, const struct run_job *j, struct run_cluster *c)
{
	const struct run_attempt *a = j->attempt;

	for (uint32_t i = 0; i < j->rec->last->n_gpus; i++) {
		int at = position_of(r, j->rec, i);
		struct card_room *room = at < 0 ? NULL : &c->cards[at].room;

		if (!room)
			continue;
		room->n_ours++;
		if (a->declared_mib == UNDECLARED) {
			room->has_whole = true;
			room->budgets_mib += room->total_mib;
		} else {
			room->budgets_mib += budget_of(a->declared_mib, a->use[i].now_mib,
				a->use[i].peak_mib, r->config->spike_buffer);
		}
	}
}

static void fill_card(const struct run *r, uint32_t i, struct plan_card *ret)
{
	const struct gpu_card *card = &r->sample.snap.cards[i];
	struct value total = card->m[METRIC_MEM_TOTAL], used = card->m[METRIC_MEM_USED];
	int64_t held = own_held(r, i);

	*ret = (struct plan_card){.index = card->index,
		.gi = card->gi,
		.ci = card->ci,
		.numa = card->numa,
		.nvlink_peers = card->nvlink_peers,
		/* A card that --gpus leaves out is never a hope for anything. */
		.was_seen = gpu_is_placeable(card) && run_is_chosen(r, card->index)};
	ret->is_usable = card->state == GPU_OK && gpu_is_placeable(card) &&
			 value_is_present(total) && value_is_present(used) &&
			 run_is_chosen(r, card->index);
	ret->room.total_mib = value_is_present(total) ? total.v : 0;
	/* What a lane keeps for its next one is as little free as what others were promised. */
	ret->room.promised_mib =
		r->sample.promised_mib[i] + (r->sample.lane_mib ? r->sample.lane_mib[i] : 0);
	ret->room.foreign_mib = budget_foreign(value_is_present(used) ? used.v : 0, held,
		track_foreign_peaks(r->track, card->uuid), r->config->spike_buffer, true);
}

/* Where the driver names no memory per process, our own jobs are credited up to their promise. */
static void credit_blind(const struct run *r, struct run_cluster *c)
{
	for (uint32_t i = 0; i < r->sample.snap.n_cards; i++) {
		struct card_room *room = &c->cards[i].room;

		if (!r->sample.snap.cards[i].is_blind)
			continue;
		room->foreign_mib -= room->budgets_mib;
		if (room->foreign_mib < 0)
			room->foreign_mib = 0;
	}
}

void run_cluster_make(const struct run *r, struct run_cluster *ret)
{
	*ret = (struct run_cluster){
		.node = {.cards = ret->cards, .is_usable = true}, .now_ms = clock_boot_ms()};
	if (!r->has_sample || r->sample.snap.error[0]) {
		snprintf(ret->why_none, sizeof(ret->why_none), "%s%s",
			r->has_sample ? "the GPUs can't be asked at the moment: "
				      : "waiting for the first look at the GPUs",
			r->has_sample ? r->sample.snap.error : "");
		return;
	}
	ret->node.n_cards = r->sample.snap.n_cards;
	for (uint32_t i = 0; i < r->sample.snap.n_cards; i++)
		fill_card(r, i, &ret->cards[i]);
	charge_strangers_rows(r, ret);
	for (size_t i = 0; i < r->n_jobs; i++)
		if (r->jobs[i]->attempt)
			charge_job(r, r->jobs[i], ret);
	credit_blind(r, ret);
}

struct plan_policy run_policy(const struct run *r)
{
	const struct run_config *c = r->config;

	return (struct plan_policy){.place = PLACE_BEST_FIT,
		.margin_mib = c->margin_mib,
		.idle_threshold_mib = c->idle_threshold_mib,
		.exclusive = c->exclusive,
		.need_nvlink = c->need_nvlink};
}

/* --- what a job waits for besides room --- */

static void set_why(struct run_job *j, const char *text)
{
	if (j->why_text && text && !strcmp(j->why_text, text))
		return;
	free(j->why_text);
	j->why_text = text ? xstrdup(text) : NULL;
}

/* after=: all of them ended well? The first that hasn't is the reason. */
static bool waits_for_others(struct run *r, struct run_job *j)
{
	const char *p = j->after;

	j->is_stuck = false;
	while (p && *p) {
		size_t n = strcspn(p, ",");
		CLEANUP_FREE char *word = xstrndup(p, n), *text = NULL;
		const struct run_job *other = run_job_find(r, word);

		p += n + (p[n] == ',');
		if (other && other->rec->status == JOB_OK)
			continue;
		if (!other)
			text = xasprintf("waits for %s, which is not in the file", word);
		else if (job_status_is_terminal(other->rec->status))
			text = xasprintf("waits for job %" PRIu64 ", which ended badly (%s)",
				other->rec->no, job_status_name(other->rec->status));
		else
			text = xasprintf("waits for job %" PRIu64 "%s", other->rec->no,
				other->is_stuck ? ", which can't start" : "");
		j->is_stuck =
			!other || job_status_is_terminal(other->rec->status) || other->is_stuck;
		set_why(j, text);
		return true;
	}
	return false;
}

static bool is_held_back(struct run *r, struct run_job *j)
{
	if (waits_for_others(r, j))
		return true;
	if (j->refused_seq && r->sample.snap.seq <= j->refused_seq)
		return true;
	j->refused_seq = 0;
	set_why(j, NULL);
	return false;
}

/* --- binds --- */

static int32_t cards_of(
	const struct run *r, uint64_t bits, int32_t index[GPU_MAX], const char *uuid[GPU_MAX])
{
	int32_t n = 0;

	for (uint32_t i = 0; i < r->sample.snap.n_cards; i++) {
		if (!(bits >> i & 1))
			continue;
		index[n] = r->sample.snap.cards[i].index;
		uuid[n++] = r->sample.snap.cards[i].uuid;
	}
	return n;
}

static char *log_path(const struct run *r, const struct run_job *j, const int32_t *index, int32_t n)
{
	CLEANUP(buf_done) struct buf b = {0};

	buf_printf(&b, "%s/job%03" PRIu64 "_", r->log_dir, j->rec->no);
	if (!n)
		buf_puts(&b, "cpu");
	else
		buf_puts(&b, "gpu");
	for (int32_t i = 0; i < n; i++)
		buf_printf(&b, "%s%d", i ? "-" : "", index[i]);
	buf_puts(&b, ".log");
	return buf_take(&b);
}

/* Makes the log if it isn't there: how long it is, or -errno. On a full disk the job waits instead of failing. */
static int64_t open_log(const char *path)
{
	CLEANUP_CLOSE int fd =
		open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
	struct sys_stat st = {0};
	int code = fd < 0 ? -errno : sys_fstat(fd, &st);

	return code < 0 ? code : st.size;
}

static void add_env(json_t *env, const char *name, const char *value)
{
	json_array_append_new(env, json_sprintf("%s=%s", name, value));
}

static void add_both(json_t *env, const char *name, const char *value)
{
	CLEANUP_FREE char *ours = xasprintf("GPUSTOW_%s", name),
			  *theirs = xasprintf("NVIDB_%s", name);

	add_env(env, ours, value);
	add_env(env, theirs, value);
}

static json_t *job_env(struct run *r, const struct run_job *j, const int32_t *index,
	const char *const *uuid, int32_t n, const char *log)
{
	json_t *env = json_array();
	CLEANUP(buf_done) struct buf visible = {0};
	char number[32];

	for (int32_t i = 0; i < n; i++) {
		if (run_numbers_hold(r))
			buf_printf(&visible, "%s%d", i ? "," : "", index[i]);
		else
			buf_printf(&visible, "%s%s", i ? "," : "", uuid[i]);
	}
	add_env(env, "CUDA_VISIBLE_DEVICES", buf_str(&visible));
	add_env(env, "CUDA_DEVICE_ORDER", "PCI_BUS_ID");
	snprintf(number, sizeof(number), "%" PRIu64, j->rec->no);
	add_both(env, "JOB_ID", number);
	add_both(env, "JOB_NAME", j->name ? j->name : "");
	snprintf(number, sizeof(number), "%u", j->rec->last->attempt + 1);
	add_both(env, "JOB_ATTEMPT", number);
	add_both(env, "JOB_GPUS", run_cards_text(r, index, uuid, (uint32_t)n, ","));
	add_both(env, "JOB_LOG", log);
	if (j->attempt->declared_mib > 0) {
		snprintf(number, sizeof(number), "%" PRId64, j->attempt->declared_mib);
		add_both(env, "JOB_VRAM_MIB", number);
	}
	return env;
}

/* Commands longer than one argument may be are run from a file in the log directory. NULL: it couldn't be written. */
static json_t *job_argv(struct run *r, const struct run_job *j)
{
	CLEANUP_FREE char *path = NULL;
	CLEANUP(buf_done) struct buf text = {0};

	if (strlen(j->rec->command) < SCRIPT_FROM)
		return json_pack("[s,s,s]", "/bin/sh", "-c", j->rec->command);
	path = xasprintf("%s/job%03" PRIu64 ".sh", r->log_dir, j->rec->no);
	buf_printf(&text, "%s\n", j->rec->command);
	if (fd_replace_at(AT_FDCWD, path, text.data, text.len, true) < 0)
		return NULL;
	return json_pack("[s,s]", "/bin/sh", path);
}

static json_t *policy_json(const struct run *r)
{
	const struct run_config *c = r->config;

	return json_pack("{s:I,s:I,s:f,s:b,s:b,s:i}", "margin_mib", (json_int_t)c->margin_mib,
		"idle_threshold_mib", (json_int_t)c->idle_threshold_mib, "spike_buffer",
		c->spike_buffer, "high_water", 1, "exclusive", c->exclusive, "max_jobs_per_card",
		0);
}

static json_t *launch_json(struct run *r, const struct run_job *j, const struct job_last *bound,
	json_t *argv, const char *const *uuid)
{
	json_t *cards = json_array();
	mode_t mask = umask(077);

	umask(mask);
	for (uint32_t i = 0; i < bound->n_gpus; i++)
		json_array_append_new(cards, json_pack("{s:s,s:I}", "uuid", uuid[i], "declared_mib",
						     (json_int_t)j->attempt->declared_mib));
	return json_pack("{s:I,s:I,s:s,s:o,s:o,s:o,s:o,s:s,s:s,s:I,s:I,s:i}", "job",
		(json_int_t)j->rec->no, "attempt", (json_int_t)bound->attempt, "token",
		bound->token, "cards", cards, "policy", policy_json(r), "argv", argv, "env",
		job_env(r, j, bound->gpus, uuid, (int32_t)bound->n_gpus, bound->log), "cwd", r->cwd,
		"output", bound->log, "timeout_ms", (json_int_t)j->attempt->timeout_ms, "grace_ms",
		(json_int_t)r->config->grace_ms, "umask", (int)mask);
}

/* The job is bound to these cards: in memory and in the journal's batch. */
static void bind_job(struct run *r, struct run_job *j, uint64_t bits)
{
	struct job_last bound = {
		.attempt = j->rec->last->attempt + 1, .bound_vram = run_job_declared(j)};
	const char *uuid[GPU_MAX];
	int32_t index[GPU_MAX];
	char token[ID_LEN];
	int32_t n = cards_of(r, bits, index, uuid);
	CLEANUP_FREE char *log = log_path(r, j, index, n);
	struct run_attempt *a;
	json_t *argv = job_argv(r, j);

	bound.log = log;
	bound.log_offset = open_log(log);
	if (!argv || bound.log_offset < 0) {
		CLEANUP_FREE char *why =
			!argv ? xstrdup("its script can't be written to the log directory")
			      : xasprintf("its log can't be written: %s",
					strerror((int)-bound.log_offset));

		set_why(j, why);
		if (!r->said_log)
			run_warn(r, "job %" PRIu64 " waits: %s (%s)", j->rec->no, why, log);
		r->said_log = true;
		json_decref(argv);
		run_wake_in(r, 2000);
		return;
	}
	r->said_log = false;
	a = run_attempt_new(j);
	a->declared_mib = bound.bound_vram;
	a->timeout_ms = j->timeout_ms;
	a->n_use = (uint32_t)n;
	for (int32_t i = 0; i < n; i++)
		a->use[i].gpu = index[i];
	random_hex(16, token);
	bound.token = token;
	bound.root_id = r->hello.root_id;
	bound.machine_key = r->hello.machine_key;
	bound.boot_id = r->hello.boot_id;
	job_last_set_gpus(&bound, index, uuid, (uint32_t)n);
	a->launch = launch_json(r, j, &bound, argv, uuid);
	journal_bind(r->journal, j->rec, &bound);
	job_last_clear_gpus(&bound);
	j->phase = PHASE_SENT;
	r->has_launches = true;
	r->board_is_old = true;
}

/* --- the plan --- */

static void fill_job(
	struct run *r, struct run_job *j, const struct run_cluster *c, struct plan_job *ret)
{
	*ret = (struct plan_job){.id = j->rec->no,
		.declared_mib = run_job_declared(j),
		.gpus = j->gpus,
		.only_node = -1};
	ret->is_blocked = is_held_back(r, j);
	ret->only_cards = run_only_cards(r, j);
	if (j->gpu || ret->only_cards)
		ret->only_node = 0;
	if (j->gpu && c->node.n_cards && run_why_no_card(r, j)) {
		ret->only_cards = 0;
		ret->is_blocked = true;
		set_why(j, run_why_no_card(r, j));
	} else if (j->gpu && !ret->only_cards && c->node.n_cards) {
		ret->is_blocked = true;
		set_why(j, "a job of several cards can't have MIG instances");
	}
}

/* Three samples in a row must agree, none of which may lack a card that answered before. */
static void count_never(
	struct run *r, struct run_job *j, const struct run_cluster *c, const struct plan_job *p)
{
	CLEANUP(buf_done) struct buf text = {0};

	if (!run_has_all_cards(r)) {
		j->never_n = 0;
		return;
	}
	if (j->never_seq != r->sample.snap.seq)
		j->never_n++;
	j->never_seq = r->sample.snap.seq;
	if (j->never_n < NEVER_SAMPLES) {
		run_wake_in(r, 50);
		return;
	}
	if (j->gpu && !p->only_cards && run_names_cards(r, j))
		buf_puts(&text, j->why_text ? j->why_text : "");
	else if (j->gpu && !p->only_cards)
		buf_printf(&text, "no card of the list gpu=%s is in this machine", j->gpu);
	else
		plan_why_text(j->why, &c->node, NULL, p, &text);
	run_settle_infeasible(r, j, buf_str(&text));
}

static void say_long_wait(
	struct run *r, struct run_job *j, const struct run_cluster *c, const struct plan_job *p)
{
	CLEANUP(buf_done) struct buf text = {0};

	bool is_hopeless = j->why->why == WHY_THRESHOLD; /* until an option is another */

	if (j->said_wait || (!is_hopeless && c->now_ms - j->waiting_since_ms < LONG_WAIT_MS))
		return;
	j->said_wait = true;
	plan_why_text(j->why, &c->node, NULL, p, &text);
	run_say(r, "job %" PRIu64 " %s: %s", j->rec->no,
		is_hopeless ? "waits for ever" : "has been waiting for 5 minutes",
		j->why_text ? j->why_text : buf_str(&text));
}

static void apply(struct run *r, struct run_job *j, const struct plan_decision *d,
	const struct run_cluster *c, const struct plan_job *p)
{
	j->why = d;
	if (d->what == PLAN_START) {
		j->never_n = 0;
		bind_job(r, j, d->cards);
	} else if (c->node.n_cards && (d->what == PLAN_NEVER || (j->gpu && !p->only_cards))) {
		count_never(r, j, c, p);
	} else {
		j->never_n = 0;
		say_long_wait(r, j, c, p);
	}
}

/* Room for a new plan's decisions in the old one's place; nobody points to those any more. */
static struct plan_decision *fresh_decisions(struct run *r, size_t n)
{
	for (size_t i = 0; i < r->n_jobs; i++)
		r->jobs[i]->why = NULL;
	r->decisions = xreallocarray(r->decisions, n, sizeof(*r->decisions));
	return r->decisions;
}

static size_t in_flight(const struct run *r)
{
	size_t n = 0;

	for (size_t i = 0; i < r->n_jobs; i++)
		n += r->jobs[i]->phase != PHASE_IDLE;
	return n;
}

void run_place(struct run *r)
{
	CLEANUP_FREE struct plan_job *jobs = NULL;
	struct plan_decision *decisions;
	CLEANUP_FREE struct run_job **who = NULL;
	struct plan_policy policy = run_policy(r);
	struct run_cluster c;
	size_t n = 0;

	if (r->is_draining || r->is_stopping || !r->is_observed || !r->has_sample ||
		r->config->only_settle || r->said_journal)
		return;
	if (r->config->max_jobs) {
		size_t busy = in_flight(r);

		if (busy >= (size_t)r->config->max_jobs)
			return;
		policy.max_jobs = (uint32_t)(r->config->max_jobs - (int64_t)busy);
	}
	jobs = xcalloc(r->n_lines, sizeof(*jobs));
	who = xcalloc(r->n_lines, sizeof(*who));
	run_cluster_make(r, &c);
	for (size_t i = 0; i < r->n_lines; i++) {
		if (!run_job_is_pending(r->lines[i]))
			continue;
		who[n] = r->lines[i];
		fill_job(r, who[n], &c, &jobs[n]);
		n++;
	}
	if (!n)
		return;
	decisions = fresh_decisions(r, n);
	plan_make(&c.node, 1, jobs, n, &policy, 0, decisions);
	for (size_t i = 0; i < n; i++)
		apply(r, who[decisions[i].job], &decisions[i], &c, &jobs[decisions[i].job]);
}

/* --- sending --- */

static void send_batch(struct run *r, json_t *jobs)
{
	link_send(r->link, json_pack("{s:s,s:s,s:O,s:o}", "op", "launch", "root_id",
				   r->hello.root_id, "env", r->env, "jobs", jobs));
}

void run_place_send(struct run *r)
{
	json_t *jobs = NULL;
	size_t bytes = 0;

	if (!r->has_launches || !link_is_up(r->link) || !r->is_observed)
		return;
	r->has_launches = false;
	for (size_t i = 0; i < r->n_jobs; i++) {
		struct run_job *j = r->jobs[i];

		if (!j->attempt || !j->attempt->launch)
			continue;
		if (!jobs)
			jobs = json_array();
		json_array_append_new(jobs, TAKE_PTR(j->attempt->launch));
		bytes += strlen(j->rec->command) + 1000;
		if (bytes > LAUNCH_BYTES) {
			send_batch(r, TAKE_PTR(jobs));
			bytes = 0;
		}
	}
	if (jobs)
		send_batch(r, jobs);
}

/* The binds weren't committed: nothing was sent, and the jobs wait again. */
void run_place_unsend(struct run *r)
{
	for (size_t i = 0; i < r->n_jobs; i++) {
		struct run_job *j = r->jobs[i];

		if (!j->attempt || !j->attempt->launch)
			continue;
		run_node_undo_bind(r, j, "the journal could not be written");
		set_why(j, "the journal can't be written");
	}
	r->has_launches = false;
}
