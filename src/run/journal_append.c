/*
 * Writing the journal. A record is made as text, folded into memory from that text, and waits in the batch until a commit
 * writes all of it with one write.
 *
 * `size` is where the good part of the file ends. A commit that fails leaves the file cut back to it and the batch as it
 * was; where even the cut fails, has_tail remembers it and no commit writes before the cut has been made up for.
 */
#include "run/journal_inner.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/sys.h"
#include "base/text.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BATCH_KEPT 65536 /* bytes of room that stay for the next batch */

static void put_string(struct buf *b, const char *s)
{
	CLEANUP(buf_done) struct buf clean = {0};
	size_t n = strlen(s);

	/* A path may be any bytes, JSON may not. */
	if (utf8_valid_len(s, n) < n) {
		text_put_clean(&clean, s, n);
		s = buf_str(&clean);
		n = clean.len;
	}
	text_put_json_ascii(b, s, n);
}

static void put_member(struct buf *b, const char *name, const char *value)
{
	buf_printf(b, ", \"%s\": ", name);
	put_string(b, value);
}

/* ISO 8601 with the zone's offset: "2026-06-14T02:16:56.123+02:00". */
static void put_time(struct buf *b)
{
	int64_t ms = clock_wall_ms();
	time_t s = (time_t)(ms / 1000);
	struct tm tm;
	char date[32], zone[8];

	if (!localtime_r(&s, &tm) || !strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm) ||
		!strftime(zone, sizeof(zone), "%z", &tm) || strlen(zone) != 5)
		return;
	buf_printf(b, ", \"time\": \"%s.%03d%.3s:%s\"", date, (int)(ms % 1000), zone, zone + 3);
}

static void put_gpus(struct buf *b, const struct job_last *l)
{
	buf_puts(b, ", \"gpus\": [");
	for (uint32_t i = 0; i < l->n_gpus; i++)
		buf_printf(b, "%s%" PRId32, i ? ", " : "", l->gpus[i]);
	buf_puts(b, "]");
}

static void open_record(struct buf *b, const char *key, const char *event)
{
	buf_puts(b, "{\"key\": ");
	put_string(b, key);
	buf_printf(b, ", \"event\": \"%s\"", event);
}

/* Closes the record, folds it, and puts it into the batch. */
static void close_record(struct journal *j, struct buf *b)
{
	buf_putc(b, '}');
	journal_fold(j, b->data, b->len);
	buf_putc(b, '\n');
	buf_put(&j->batch, b->data, b->len);
	j->must_last = true;
}

struct job_record *journal_seen(struct journal *j, const char *key, const char *command)
{
	CLEANUP(buf_done) struct buf b = {0};
	struct job_record *r = journal_find(j, key);

	if (r && r->no > 0)
		return r;
	open_record(&b, key, "seen");
	buf_printf(&b, ", \"no\": %" PRIu64, j->highest_no + 1);
	put_member(&b, "command", command);
	close_record(j, &b);
	return journal_find(j, key);
}

static const char *or_empty(const char *s)
{
	return s ? s : "";
}

void journal_bind(struct journal *j, struct job_record *r, const struct job_last *bound)
{
	CLEANUP(buf_done) struct buf b = {0};

	open_record(&b, r->key, "bind");
	buf_printf(&b, ", \"attempt\": %" PRIu32, bound->attempt);
	put_member(&b, "token", or_empty(bound->token));
	put_member(&b, "root_id", or_empty(bound->root_id));
	put_member(&b, "machine_key", or_empty(bound->machine_key));
	put_member(&b, "boot_id", or_empty(bound->boot_id));
	put_gpus(&b, bound);
	buf_puts(&b, ", \"uuids\": [");
	for (uint32_t i = 0; i < bound->n_gpus; i++) {
		buf_puts(&b, i ? ", " : "");
		put_string(&b, bound->uuids[i]);
	}
	buf_puts(&b, "], \"vram\": ");
	if (bound->bound_vram >= 0)
		buf_printf(&b, "%" PRId64, bound->bound_vram);
	else
		buf_puts(&b, "null");
	put_member(&b, "log", or_empty(bound->log));
	buf_printf(&b, ", \"log_offset\": %" PRId64, bound->log_offset);
	put_time(&b);
	close_record(j, &b);
}

void journal_unbind(struct journal *j, struct job_record *r, const char *why)
{
	CLEANUP(buf_done) struct buf b = {0};

	open_record(&b, r->key, "unbind");
	buf_printf(&b, ", \"attempt\": %" PRIu32, r->last->attempt);
	put_member(&b, "why", why);
	close_record(j, &b);
}

void journal_started(struct journal *j, struct job_record *r, int64_t pgid, uint64_t start_ticks)
{
	CLEANUP(buf_done) struct buf b = {0};

	open_record(&b, r->key, "started");
	buf_printf(&b, ", \"pgid\": %" PRId64, pgid);
	put_gpus(&b, r->last);
	buf_printf(&b,
		", \"attempt\": %" PRIu32 ", \"pid\": %" PRId64 ", \"start_ticks\": %" PRIu64,
		r->last->attempt, pgid, start_ticks);
	put_member(&b, "boot_id", r->last->boot_id);
	put_time(&b);
	bool must_last = j->must_last;
	close_record(j, &b);
	j->must_last = must_last;
}

void journal_interrupted(struct journal *j, struct job_record *r)
{
	CLEANUP(buf_done) struct buf b = {0};

	open_record(&b, r->key, "interrupted");
	close_record(j, &b);
}

/* What ours know more of an end than gpusched's. */
static void put_end(struct buf *b, const struct job_record *r, double seconds, const char *how)
{
	if (r->last->attempt > 0)
		buf_printf(b, ", \"attempt\": %" PRIu32, r->last->attempt);
	if (seconds >= 0) {
		buf_puts(b, ", \"seconds\": ");
		text_put_float(b, seconds);
	}
	put_time(b);
	if (how)
		put_member(b, "how", how);
	if (r->last->log && *r->last->log)
		put_member(b, "log", r->last->log);
}

void journal_oom(struct journal *j, struct job_record *r, int64_t next_vram, double seconds)
{
	CLEANUP(buf_done) struct buf b = {0};

	open_record(&b, r->key, "oom");
	buf_printf(&b, ", \"attempts\": %" PRId64 ", \"next_vram\": ", r->last->attempts + 1);
	if (next_vram >= 0)
		buf_printf(&b, "%" PRId64, next_vram);
	else
		buf_puts(&b, "null");
	put_end(&b, r, seconds, NULL);
	close_record(j, &b);
}

static void put_peaks(struct buf *b, const struct journal_done *d)
{
	const char *between = "";

	buf_puts(b, ", \"peak_mib\": {");
	for (size_t i = 0; i < d->n_peaks; i++) {
		if (d->peaks[i].mib <= 0)
			continue;
		buf_printf(b, "%s\"%" PRId32 "\": %" PRId64, between, d->peaks[i].gpu,
			d->peaks[i].mib);
		between = ", ";
	}
	buf_puts(b, "}");
}

void journal_done_record(struct journal *j, struct job_record *r, const struct journal_done *d)
{
	CLEANUP(buf_done) struct buf b = {0};

	open_record(&b, r->key, "done");
	put_member(&b, "status", job_status_name(d->status));
	buf_printf(&b, ", \"returncode\": %" PRId64, d->returncode);
	put_peaks(&b, d);
	buf_puts(&b, ", \"avg_util\": ");
	if (d->has_util)
		text_put_float(&b, d->avg_util);
	else
		buf_puts(&b, "null");
	put_end(&b, r, d->seconds, d->how);
	if (d->why)
		put_member(&b, "why", d->why);
	close_record(j, &b);
}

void journal_retry(struct journal *j, struct job_record *r)
{
	CLEANUP(buf_done) struct buf b = {0};

	open_record(&b, r->key, "retry");
	put_time(&b);
	close_record(j, &b);
}

bool journal_has_batch(const struct journal *j)
{
	return j->batch.len > 0;
}

bool journal_must_last(const struct journal *j)
{
	return j->must_last;
}

/* Cuts the file back to its good part after a failed write. */
static void cut_tail(struct journal *j)
{
	j->has_tail = ftruncate(j->fd, (off_t)j->size) < 0;
}

static int write_batch(struct journal *j, struct err *e)
{
	if (j->has_tail)
		cut_tail(j);
	if (j->has_tail)
		return err_sys(e, -errno,
			"the torn end of the journal (" JOURNAL_FILE ") can't be cut off");
	int r = fault_point("journal.before-write");
	if (r == 0)
		r = fd_write_all(j->fd, j->batch.data, j->batch.len);
	if (r == 0)
		return 0;
	cut_tail(j);
	return err_sys(e, r,
		"the journal (" JOURNAL_FILE
		") can't be written; nothing is lost as long as this goes on running");
}

static int sync_file(struct journal *j, struct err *e)
{
	int r = fault_point("journal.before-sync");

	if (r == 0 && fdatasync(j->fd) < 0)
		r = -errno;
	if (r == 0)
		return 0;
	return err_sys(e, r, "the journal (" JOURNAL_FILE ") can't be brought to disk");
}

int journal_commit(struct journal *j, bool durable, struct err *e)
{
	int r = 0;

	if (j->fd < 0)
		return err_set(e, -EBADF, "the journal (" JOURNAL_FILE ") isn't open for writing");
	if (j->batch.len > 0)
		r = write_batch(j, e);
	if (r < 0)
		return r;
	if (durable && (j->batch.len > 0 || j->is_unsynced))
		r = sync_file(j, e);
	if (r < 0) {
		/* After a failed sync nobody knows what is on disk: the batch is written anew next time. */
		if (j->batch.len > 0)
			cut_tail(j);
		return r;
	}
	j->is_unsynced = !durable && (j->is_unsynced || j->batch.len > 0);
	j->size += (int64_t)j->batch.len;
	/* The first batch of a long list is large, and none after it. */
	if (j->batch.len > BATCH_KEPT)
		buf_done(&j->batch);
	buf_clear(&j->batch);
	j->must_last = false;
	return 0;
}

/* A last line without its newline gets it, whatever it holds: else the next record would be glued to it. */
static int put_missing_newline(struct journal *j, struct err *e)
{
	char last;

	if (j->size == 0)
		return 0;
	if (pread(j->fd, &last, 1, (off_t)j->size - 1) != 1)
		return err_sys(
			e, -errno, "the end of the journal (" JOURNAL_FILE ") can't be read");
	if (last != '\n') {
		/* Before what may have been put in already. */
		CLEANUP(buf_done) struct buf rest = j->batch;
		j->batch = (struct buf){0};
		buf_putc(&j->batch, '\n');
		buf_put(&j->batch, rest.data, rest.len);
	}
	return 0;
}

static void put_start_records(struct journal *j)
{
	CLEANUP(buf_done) struct buf b = {0};
	char id[ID_LEN];

	if (!j->queue[0]) {
		random_hex(16, id);
		buf_printf(&b,
			"{\"event\": \"queue\", \"version\": 1, \"queue\": \"%s\", \"incarnation\": 1",
			id);
		put_time(&b);
		close_record(j, &b);
		buf_clear(&b);
	}
	buf_printf(&b, "{\"event\": \"epoch\", \"epoch\": %" PRIu64, j->epoch + 1);
	if (j->sim)
		put_member(&b, "sim", j->sim);
	if (j->sim_dir)
		put_member(&b, "sim_dir", j->sim_dir);
	put_time(&b);
	close_record(j, &b);
}

static int open_file(struct journal *j, struct err *e)
{
	CLEANUP_CLOSE int fd = openat(j->dirfd, JOURNAL_FILE,
		O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	struct sys_stat st;

	if (fd < 0)
		return err_sys(
			e, -errno, "the journal (" JOURNAL_FILE ") can't be opened for writing");
	int r = sys_fstat(fd, &st);
	if (r < 0)
		return err_sys(e, r, "the journal (" JOURNAL_FILE ") can't be looked at");
	if (!S_ISREG(st.mode))
		return err_set(e, -EINVAL,
			"the journal (" JOURNAL_FILE ") is not a plain file; move it away");
	if (st.size != j->size)
		return err_set(e, -EBUSY,
			"the journal (" JOURNAL_FILE
			") changed while it was read; is another scheduler at work on this log directory?");
	j->fd = TAKE_FD(fd);
	return 0;
}

int journal_open_append(struct journal *j, struct err *e)
{
	if (j->dirfd < 0)
		return err_set(e, -EBADF, "this journal was read from memory and has no file");
	int r;

	/* A second call, after a full disk, tries the commit again. */
	if (j->fd < 0) {
		r = open_file(j, e);
		if (r == 0)
			r = put_missing_newline(j, e);
		if (r < 0)
			return r;
		put_start_records(j);
	}
	r = journal_commit(j, true, e);
	if (r < 0)
		return r;
	r = fd_sync_dir_at(j->dirfd, ".");
	return r < 0 ? err_sys(e, r, "the log directory can't be brought to disk") : 0;
}
