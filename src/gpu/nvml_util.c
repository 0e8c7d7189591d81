/*
 * How much of a card each of its processes used. The driver keeps a ring of samples and hands out all of it: dead
 * processes, slots that were never written, figures of millions of percent. What is believed is newer than what was
 * had before, in range, and of a process that is listed. A poll faster than the driver's own period finds nothing new:
 * the last figure is held for one period, and is 0 then.
 */
#include "gpu/nvml.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <stdlib.h>

#define ROWS_MAX 65536
#define FUTURE_US \
	60000000 /* a stamp from later than that is garbage, and would hide all that come */
#define FIRST_SPAN_US 2000000 /* what of the ring counts when it's read for the first time */

static struct nvml_use *find(struct nvml_card *c, uint32_t pid)
{
	for (uint32_t i = 0; i < c->n_use; i++) {
		if (c->use[i].pid == pid)
			return &c->use[i];
	}
	return NULL;
}

static bool is_listed(const struct gpu_proc *rows, uint32_t n, uint32_t pid)
{
	for (uint32_t i = 0; i < n; i++) {
		if ((uint32_t)rows[i].pid == pid)
			return true;
	}
	return false;
}

static void take(struct nvml_card *c, const struct nvml_process_sample *s,
	const struct gpu_proc *rows, uint32_t n_rows, int64_t now_ms, uint64_t wall_us)
{
	struct nvml_use *u;

	if (s->stamp_us == 0 || s->pid == 0)
		return;
	if (s->stamp_us > wall_us + FUTURE_US || s->sm > 100 || s->mem > 100 || s->enc > 100 ||
		s->dec > 100) {
		c->rejected++;
		return;
	}
	if (!is_listed(rows, n_rows, s->pid))
		return;
	u = find(c, s->pid);
	if (u == NULL && c->n_use < NVML_UTIL_MAX) {
		u = &c->use[c->n_use++];
		*u = (struct nvml_use){.pid = s->pid};
	}
	if (u == NULL || s->stamp_us <= u->stamp_us)
		return;
	*u = (struct nvml_use){s->pid, s->stamp_us, now_ms, (uint8_t)s->sm, (uint8_t)s->mem,
		(uint8_t)s->enc, (uint8_t)s->dec};
}

/* Reads what is newer than the newest stamp had. 0, or the code when nothing could be read. */
static int read_ring(struct nvml *n, struct nvml_card *c, const struct gpu_proc *rows,
	uint32_t n_rows, int64_t now_ms)
{
	uint64_t since = c->use_stamp_us, newest = c->use_stamp_us, wall_us;
	int code = NVML_INSUFFICIENT_SIZE;

	wall_us = (uint64_t)clock_wall_ms() * 1000;
	if (since == 0 && wall_us > FIRST_SPAN_US)
		since = wall_us - FIRST_SPAN_US;
	if (c->use_room == 0)
		c->use_room = 128;
	for (int attempt = 0; attempt < 3 && code == NVML_INSUFFICIENT_SIZE; attempt++) {
		uint32_t count = c->use_room;
		struct nvml_process_sample *s = xcalloc(count, sizeof(*s));
		int64_t begun_us = nvml_call_begin();

		code = n->lib.fn.process_util(c->handle, s, &count, since);
		nvml_call_end(n, c, "use by process", begun_us);
		for (uint32_t i = 0; code == NVML_OK && i < count && i < c->use_room; i++) {
			if (s[i].stamp_us <= since)
				continue;
			take(c, &s[i], rows, n_rows, now_ms, wall_us);
			if (s[i].stamp_us > newest && s[i].stamp_us <= wall_us + FUTURE_US)
				newest = s[i].stamp_us;
		}
		free(s);
		if (code == NVML_INSUFFICIENT_SIZE)
			c->use_room =
				count > c->use_room && count < ROWS_MAX ? count : 2 * c->use_room;
	}
	c->use_stamp_us = newest;
	return code;
}

static void forget(struct nvml_card *c, const struct gpu_proc *rows, uint32_t n_rows)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < c->n_use; i++) {
		if (is_listed(rows, n_rows, c->use[i].pid))
			c->use[kept++] = c->use[i];
	}
	c->n_use = kept;
}

static void put(struct nvml_card *c, uint32_t pid, int64_t now_ms, struct gpu_proc_more *m)
{
	const struct nvml_use *u = find(c, pid);

	if (u != NULL && now_ms - u->seen_ms < NVML_USE_HOLD_MS) {
		m->sm_pct = value_of(u->sm);
		m->mem_pct = value_of(u->mem);
		m->enc_pct = value_of(u->enc);
		m->dec_pct = value_of(u->dec);
	} else {
		/* Of processes beyond what is remembered nothing is known, which isn't 0. */
		m->sm_pct = u == NULL && c->n_use == NVML_UTIL_MAX ? value_absent(VALUE_EMPTY)
								   : value_of(0);
		m->mem_pct = m->enc_pct = m->dec_pct = m->sm_pct;
	}
}

static void put_absent(enum value_state why, struct gpu_proc_more *m)
{
	m->sm_pct = m->mem_pct = m->enc_pct = m->dec_pct = value_absent(why);
}

void nvml_card_use(struct nvml *n, struct nvml_card *c, bool has_mig, const struct gpu_proc *rows,
	uint32_t n_rows, int64_t now_ms, struct gpu_proc_more *more)
{
	enum value_state why = VALUE_UNSUPPORTED;
	int code = NVML_NOT_SUPPORTED;

	if (n->lib.fn.process_util != NULL && !has_mig && !c->use_gone && n_rows > 0) {
		code = read_ring(n, c, rows, n_rows, now_ms);
		if (nvml_card_drop(n, c, code))
			return;
		c->use_gone = nvml_code_is_permanent(code);
		why = nvml_code_value(code);
	}
	forget(c, rows, n_rows);
	for (uint32_t i = 0; i < n_rows; i++) {
		/* "Not found" is an empty ring. */
		if (code == NVML_OK || code == NVML_NOT_FOUND)
			put(c, (uint32_t)rows[i].pid, now_ms, &more[i]);
		else
			put_absent(why, &more[i]);
	}
}
