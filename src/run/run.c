/*
 * The loop of a run. Events (the agent spoke, the file changed, a signal, a timer, a second terminal) only leave word and
 * wake it; a turn then does everything in one order: time, file, cancels, plan, commit, acks, launches, words, board, end.
 *
 * The order is what keeps the promises: ends and binds become durable in the commit, acks and launches leave only after it.
 */
#include "run/state.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/sys.h"
#include "base/text.h"
#include "gpu/sim_spec.h"
#include "run/view.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BOARD_EVERY_MS 1000
#define INTRODUCE_MS 2000
#define UNHEARD_MS 5000 /* beyond the grace, for an agent that is being started anew */

static struct timeval timeval_of(int64_t ms)
{
	return (struct timeval){.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
}

static bool is_before(const struct timeval *a, const struct timeval *b)
{
	return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_usec < b->tv_usec;
}

void run_wake(struct run *r)
{
	run_wake_in(r, 0);
}

void run_wake_to_tell(struct run *r)
{
	event_active(r->turn_event, 0, 0);
}

void run_wake_in(struct run *r, int64_t ms)
{
	struct timeval t = timeval_of(ms), left, now;

	if (!ms) {
		r->plan_is_due = true;
		event_active(r->turn_event, 0, 0);
		return;
	}
	/* The sooner of two wishes stands. */
	if (evtimer_pending(r->soon_event, &left)) {
		event_base_gettimeofday_cached(r->base, &now);
		evutil_timeradd(&now, &t, &now);
		if (is_before(&left, &now))
			return;
	}
	evtimer_add(r->soon_event, &t);
}

void run_end(struct run *r, int code)
{
	r->is_over = true;
	r->exit_code = code;
	event_base_loopbreak(r->base);
}

/* --- the turn --- */

static bool is_busy(const struct run *r)
{
	for (size_t i = 0; i < r->n_jobs; i++)
		if (r->jobs[i]->phase != PHASE_IDLE)
			return true;
	return false;
}

/* Lines that may still start by themselves. */
static size_t count_hopeful(const struct run *r)
{
	size_t n = 0;

	for (size_t i = 0; i < r->n_lines; i++)
		n += run_job_is_pending(r->lines[i]) && !r->lines[i]->is_stuck;
	return n;
}

/* Binds and ends become durable here, together. */
static int commit_batch(struct run *r, struct err *e)
{
	int code = fault_point("run.journal");

	if (code < 0)
		return err_sys(e, code, "cannot write the journal in %s", r->log_dir);
	if (r->has_launches)
		fault_point("run.before-bind");
	if (r->n_acks)
		fault_point("run.before-settle");
	return journal_commit(r->journal, journal_must_last(r->journal), e);
}

/*
 * What is retired makes room for what is launched, so the acks come first; both leave as one, and the agent takes them in one
 * turn. Without a commit there are only acks: of ends that are on record already, for an earlier run settled them and
 * didn't come to say so.
 */
static void send_committed(struct run *r)
{
	bool has_acks = r->n_acks > 0, has_launches = r->has_launches;

	if (has_acks)
		fault_point("run.after-settle");
	if (has_launches)
		fault_point("run.after-bind");
	link_hold(r->link, true);
	run_node_send_acks(r);
	if (has_launches)
		run_place_send(r);
	link_hold(r->link, false);
	if (has_acks)
		fault_point("run.after-ack");
	if (has_launches)
		fault_point("run.after-launch");
}

static void commit(struct run *r)
{
	struct err e = {0};

	if (!journal_has_batch(r->journal)) {
		send_committed(r);
		return;
	}
	if (commit_batch(r, &e) < 0) {
		if (!r->said_journal)
			run_warn(r, "%s; nothing new is started until it can be written", e.text);
		r->said_journal = true;
		run_place_unsend(r);
		run_wake_in(r, 1000);
		return;
	}
	if (r->said_journal)
		run_say(r, "the journal can be written again");
	r->said_journal = false;
	send_committed(r);
}

static void stop_everything(struct run *r, int64_t grace_ms)
{
	for (size_t i = 0; i < r->n_jobs; i++)
		if (r->jobs[i]->attempt || r->jobs[i]->phase == PHASE_ORPHAN)
			run_node_stop(r, r->jobs[i], STOP_SHUTDOWN, grace_ms);
}

/* --json: the results as one document, however the run ended. */
static void print_results(struct run *r)
{
	struct run_view v;
	struct run_view_memory *m = run_view_make(r, SIZE_MAX, &v);
	json_t *document = view_json(&v);

	json_dumpf(document, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(document);
	run_view_free(m);
}

static void finish(struct run *r)
{
	if (r->config->only_settle) {
		run_end(r, 0);
		return;
	}
	run_summary(r);
	run_end(r, run_exit_code(r));
}

static void say_skipped(struct run *r)
{
	for (size_t i = 0; i < r->n_lines; i++) {
		if (r->lines[i]->was_ok)
			run_jobs_say_skipped(r, r->lines[i]);
	}
}

/* In gpusched's order: first the cards, then what of the file isn't run. Where no card answers that's not waited for. */
static void introduce(struct run *r)
{
	int64_t left_ms = r->begun_ms + INTRODUCE_MS - clock_boot_ms();

	if (r->is_introduced)
		return;
	if (!r->said_gpus && !r->query_failures && !r->is_stopping && left_ms > 0) {
		run_wake_in(r, left_ms);
		return;
	}
	r->is_introduced = true;
	if (!r->config->only_settle)
		say_skipped(r);
}

static const char leaving_unheard[] =
	"leaving; this machine's agent can't be reached, so running jobs go on until the next run takes them over";

/* Who is to stop and reaches no agent can't wait for what it would say. */
static void look_for_unheard_stop(struct run *r)
{
	int64_t left_ms = r->stop_ms + r->config->grace_ms + UNHEARD_MS - clock_boot_ms();

	if (link_is_up(r->link))
		return;
	if (left_ms > 0) {
		run_wake_in(r, left_ms);
		return;
	}
	run_warn(r, "%s", leaving_unheard);
	run_end(r, 128 + r->signal);
}

static void look_for_end(struct run *r)
{
	if (!r->is_introduced || r->said_journal || (!r->is_observed && !r->is_stopping))
		return;
	if (is_busy(r)) {
		r->said_drained = false;
		if (r->is_stopping)
			look_for_unheard_stop(r);
		return;
	}
	if (r->is_stopping) {
		run_end(r, 128 + r->signal);
	} else if (r->is_draining) {
		run_summary(r);
		run_end(r, count_hopeful(r) ? 128 + SIGINT : run_exit_code(r));
	} else if (!count_hopeful(r) && !r->file.is_waiting) {
		if (!r->config->watch) {
			finish(r);
		} else if (!r->said_drained && r->said_gpus) {
			run_say(r,
				"queue drained — watching jobs file for new lines (Ctrl-C to stop)");
			r->said_drained = true;
		}
	} else {
		r->said_drained = false;
	}
}

static void turn(struct run *r, bool plans)
{
	introduce(r);
	run_flight_time(r);
	run_jobs_reread(r);
	run_node_cancels(r);
	run_node_look(r);
	if (plans)
		run_place(r);
	commit(r);
	look_for_end(r);
	if (!r->is_over && r->board_is_old && clock_boot_ms() - r->board_ms >= BOARD_EVERY_MS)
		run_board_write(r);
	else if (!r->is_over && r->board_is_old)
		run_wake_in(r, BOARD_EVERY_MS);
	run_flush(r);
}

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
	struct run *r = arg;
	bool plans = r->plan_is_due || (what & EV_TIMEOUT);

	r->plan_is_due = false;
	turn(r, plans);
}

static void on_poll(evutil_socket_t fd, short what, void *arg)
{
	struct run *r = arg;

	r->board_is_old = true;
	/* The samples come at the same pace, and each is planned with: twice would find the same. */
	turn(r, false);
}

static void on_file(evutil_socket_t fd, short what, void *arg)
{
	struct run *r = arg;

	if (watchfile_rang(&r->file))
		run_wake(r);
}

static void on_panel(evutil_socket_t fd, short what, void *arg)
{
	run_flush(arg);
}

/* --- signals --- */

static void begin_stop(struct run *r, int signo)
{
	r->signal = signo;
	if (r->is_stopping) {
		/* The wish lies on the node: it's carried through without us. */
		run_warn(r, "%s",
			link_is_up(r->link)
				? "leaving now; the node ends the running jobs by itself"
				: leaving_unheard);
		run_end(r, 128 + signo);
		return;
	}
	r->is_stopping = true;
	r->stop_ms = clock_boot_ms();
	run_warn(r, "interrupted — terminating running jobs");
	run_place_unsend(r);
	stop_everything(r, r->config->grace_ms);
}

static void on_signal(evutil_socket_t signo, short what, void *arg)
{
	struct run *r = arg;

	if (signo == SIGINT && r->config->first_interrupt_drains && !r->is_draining &&
		!r->is_stopping) {
		r->is_draining = true;
		run_warn(r,
			"draining: nothing new is started, what runs goes on; Ctrl-C again stops it");
	} else {
		begin_stop(r, (int)signo);
	}
	run_wake(r);
}

/* --- start and end --- */

static int lock_log_dir(struct run *r, struct err *e)
{
	pid_t holder = 0;
	char text[64];
	int code, n;

	r->lock_fd = openat(r->dirfd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (r->lock_fd < 0)
		return err_sys(e, -errno, "cannot write in the log directory %s", r->log_dir);
	code = fd_lock(r->lock_fd, &holder);
	if (code == -EAGAIN)
		return err_set(e, code,
			"%s is in use by another scheduler (pid %d); `gpustow run status --log-dir %s` shows it, --log-dir chooses another directory",
			r->config->log_dir, (int)holder, r->config->log_dir);
	if (code < 0)
		return err_sys(e, code, "cannot lock %s/lock", r->log_dir);
	n = snprintf(text, sizeof(text), "%d\n", (int)getpid());
	if (ftruncate(r->lock_fd, 0) < 0 || fd_pwrite_all(r->lock_fd, text, (size_t)n, 0) < 0) {
		/* Only a note for people; the lock itself holds. */
	}
	return 0;
}

static int open_log_dir(struct run *r, struct err *e)
{
	CLEANUP_FREE char *cwd = getcwd(NULL, 0);
	const char *dir = r->config->log_dir;
	int code;

	if (!cwd)
		return err_sys(e, -errno, "cannot tell the current directory");
	r->cwd = xstrdup(cwd);
	r->log_dir = dir[0] == '/' ? xstrdup(dir) : xasprintf("%s/%s", cwd, dir);
	code = fd_mkdirs(r->log_dir, e);
	if (code < 0)
		return code;
	r->dirfd = open(r->log_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (r->dirfd < 0)
		return err_sys(e, -errno, "cannot open the log directory %s", r->log_dir);
	return lock_log_dir(r, e);
}

/* --fresh while something of the old journal may still run would start it twice. */
static int begin_fresh(struct run *r, struct err *e)
{
	for (size_t i = 0; i < journal_count(r->journal); i++) {
		const struct job_record *rec = journal_at(r->journal, i);

		if (rec->status == JOB_RUNNING && (rec->is_bound || run_flight_lives(r, rec)))
			return err_set(e, -EBUSY,
				"--fresh: job %" PRIu64
				" of the previous run may still be running (%s); run without --fresh to take it over, or stop "
				"it with `gpustow run cancel %" PRIu64 "`",
				rec->no, rec->command ? rec->command : "?", rec->no);
	}
	if (unlinkat(r->dirfd, "journal.jsonl", 0) < 0 && errno != ENOENT)
		return err_sys(e, -errno, "--fresh: cannot remove %s/journal.jsonl", r->log_dir);
	journal_free(r->journal);
	r->journal = NULL;
	return journal_load(r->dirfd, &r->journal, e);
}

int run_load_journal(struct run *r, struct err *e)
{
	CLEANUP_CLOSE int dirfd = open(r->config->log_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dirfd >= 0)
		return journal_load(dirfd, &r->journal, e);
	if (errno != ENOENT)
		return err_sys(e, -errno, "cannot open the log directory %s", r->config->log_dir);
	r->journal = journal_load_bytes("", 0);
	return 0;
}

/* Simulated cards are a machine of their own: which one, the environment says to a run, and the journal to who comes after. */
static int settle_on_node(struct run *r, struct err *e)
{
	const char *cards = getenv("GPUSTOW_SIM");
	char dir[4096] = "";
	int code = 0;

	if (!r->config->only_settle) {
		code = cards && *cards ? sim_dir(dir, sizeof(dir), e) : 0;
		journal_set_sim(r->journal, cards, dir);
	} else if (!*journal_sim(r->journal)) {
		unsetenv("GPUSTOW_SIM");
	} else if (setenv("GPUSTOW_SIM", journal_sim(r->journal), 1) < 0 ||
		   setenv("GPUSTOW_SIM_DIR", journal_sim_dir(r->journal), 1) < 0) {
		code = err_sys(e, -errno, "cannot set the environment");
	}
	return code;
}

static int open_journal(struct run *r, struct err *e)
{
	struct sys_stat st;
	int code;

	if (!sys_stat_at(r->dirfd, "journal.jsonl", AT_SYMLINK_NOFOLLOW, &st))
		r->journal_wall_ms = st.mtime_ns / 1000000;
	code = journal_load(r->dirfd, &r->journal, e);
	if (!code && r->config->fresh)
		code = begin_fresh(r, e);
	if (!code)
		code = settle_on_node(r, e);
	if (!code && journal_skipped(r->journal))
		run_warn(r, "%zu line%s of the journal can't be read and %s left aside",
			journal_skipped(r->journal), journal_skipped(r->journal) == 1 ? "" : "s",
			journal_skipped(r->journal) == 1 ? "is" : "are");
	return code;
}

/* Jobs of an earlier scheduler whose last word is a bind or a start. */
static void adopt_journal(struct run *r)
{
	for (size_t i = 0; i < journal_count(r->journal); i++) {
		struct job_record *rec = journal_at(r->journal, i);
		struct run_job *j;

		if (rec->status != JOB_RUNNING)
			continue;
		j = run_job_of(r, rec);
		if (!rec->is_bound) {
			j->phase = PHASE_ORPHAN;
			continue;
		}
		run_attempt_new(j);
		j->attempt->was_taken_over = true;
		j->attempt->declared_mib = rec->last->bound_vram;
		j->attempt->n_use = rec->last->n_gpus;
		for (uint32_t k = 0; k < rec->last->n_gpus; k++)
			j->attempt->use[k].gpu = rec->last->gpus[k];
		j->phase = PHASE_UNKNOWN;
	}
}

static void say_header(struct run *r)
{
	CLEANUP(buf_done) struct buf poll = {0};

	text_put_float(&poll, r->config->poll_s);
	run_say(r,
		"%zu jobs queued [live queue (file re-read each tick)] (poll every %ss; status board: %s/status.txt)",
		r->n_lines, buf_str(&poll), run_text(r, r->config->log_dir));
}

static void make_env(struct run *r)
{
	r->env = json_array();
	for (char **p = environ; *p; p++) {
		/* JSON carries text only; a variable that isn't would reach the job changed, so it doesn't reach it at all. */
		if (utf8_valid_len(*p, strlen(*p)) == strlen(*p))
			json_array_append_new(r->env, json_string(*p));
		else
			run_warn(r,
				"the environment variable %.*s is not UTF-8 and isn't passed on to jobs",
				(int)strcspn(*p, "="), *p);
	}
}

static bool is_ignored(int signo)
{
	struct sigaction now;

	return sigaction(signo, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

static void make_events(struct run *r)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	struct timeval poll = timeval_of((int64_t)(r->config->poll_s * 1000)),
		       second = timeval_of(1000);
	sigset_t set;

	/* Started with `&` a signal may be ignored or blocked: ours aren't. nohup means it. */
	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
		if (signals[i] == SIGHUP && is_ignored(SIGHUP))
			continue;
		sigaddset(&set, signals[i]);
		r->signals[i] = evsignal_new(r->base, signals[i], on_signal, r);
		evsignal_add(r->signals[i], NULL);
	}
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	r->turn_event = event_new(r->base, -1, 0, on_turn, r);
	r->soon_event = evtimer_new(r->base, on_turn, r);
	r->poll_event = event_new(r->base, -1, EV_PERSIST, on_poll, r);
	event_add(r->poll_event, &poll);
	if (r->config->has_panel) {
		r->panel_event = event_new(r->base, -1, EV_PERSIST, on_panel, r);
		event_add(r->panel_event, &second);
	}
	if (!r->config->only_settle && r->file.inotify >= 0) {
		r->file_event =
			event_new(r->base, r->file.inotify, EV_READ | EV_PERSIST, on_file, r);
		event_add(r->file_event, NULL);
	}
}

static void ask_cancels(struct run *r)
{
	for (size_t i = 0; i < r->config->n_cancel; i++) {
		struct job_record *rec = journal_find_no(r->journal, r->config->cancel_no[i]);

		if (rec)
			run_job_of(r, rec)->cancel = true;
	}
}

static int begin(struct run *r, struct err *e)
{
	struct link_who who;
	int code = open_journal(r, e);

	if (!code)
		code = journal_open_append(r->journal, e);
	if (!code && !r->config->only_settle)
		code = run_jobs_read_first(r, e);
	if (!code)
		code = journal_commit(r->journal, true, e);
	if (code < 0)
		return code;
	run_jobs_give_back();
	adopt_journal(r);
	ask_cancels(r);
	if (!r->config->only_settle)
		say_header(r);
	r->begun_ms = clock_boot_ms();
	make_env(r);
	make_events(r);
	code = run_control_open(r, e);
	if (code < 0)
		return code;
	who = (struct link_who){.who = r->config->program,
		.queue = journal_queue(r->journal),
		.incarnation = journal_incarnation(r->journal),
		.epoch = journal_epoch(r->journal)};
	r->link = link_new_local(r->base, &who,
		&(struct link_owner){.arg = r,
			.up = run_link_owner_template.up,
			.message = run_link_owner_template.message,
			.down = run_link_owner_template.down});
	run_flush(r);
	return 0;
}

static void free_events(struct run *r)
{
	struct event *all[] = {r->turn_event, r->soon_event, r->poll_event, r->panel_event,
		r->file_event, r->signals[0], r->signals[1], r->signals[2]};

	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		if (all[i])
			event_free(all[i]);
}

static void run_done(struct run *r)
{
	run_control_close(r);
	link_free(r->link);
	free_events(r);
	run_jobs_free(r);
	journal_free(r->journal);
	watchfile_done(&r->file);
	sample_done(&r->sample);
	track_free(r->track);
	json_decref(r->env);
	json_decref(r->observing);
	free(r->acks);
	free(r->decisions);
	free(r->file_error);
	free(r->down_why);
	free(r->log_dir);
	free(r->cwd);
	buf_done(&r->out);
	for (size_t i = 0; i < RUN_TEXTS; i++)
		buf_done(&r->texts[i]);
	if (r->dirfd >= 0)
		close(r->dirfd);
	if (r->lock_fd >= 0)
		close(r->lock_fd);
	if (r->base)
		event_base_free(r->base);
}

/* The jobs file is looked at before anything is made: a bad one leaves no trace. */
static int look_at_file(const struct run_config *c, struct err *e)
{
	struct run r = {.config = c, .dirfd = -1, .lock_fd = -1, .file.inotify = -1};
	int code = c->only_settle ? 0 : run_load_journal(&r, e);

	if (!code && !c->only_settle)
		code = run_jobs_read_first(&r, e);
	run_done(&r);
	return code;
}

int run_main(const struct run_config *c, struct err *e)
{
	struct run r = {.config = c, .dirfd = -1, .lock_fd = -1, .file.inotify = -1};
	int code = look_at_file(c, e);

	if (code < 0)
		return code;
	r.track = track_new();
	r.observing = json_array();
	r.base = event_base_new();
	if (!r.base)
		return err_set(e, -ENOMEM, "cannot make an event loop");
	code = open_log_dir(&r, e);
	if (!code)
		code = begin(&r, e);
	if (!code) {
		event_base_dispatch(r.base);
		if (journal_has_batch(r.journal) && journal_commit(r.journal, true, &r.failure) < 0)
			run_warn(&r, "%s", r.failure.text);
		else
			run_node_send_acks(&r);
		if (r.dirfd >= 0)
			run_board_write(&r);
		if (c->json && !c->only_settle)
			print_results(&r);
		code = r.exit_code;
		if (code < 0 && e)
			*e = r.failure;
	}
	run_flush(&r);
	run_done(&r);
	return code;
}
