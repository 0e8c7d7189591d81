/*
 * How far an attempt came, in two slots of 512 bytes written in turn (claim.h, invariants 3 and 4), an end as JSON, and
 * the wish to end it.
 *
 * A slot, little-endian:  0 magic, 4 version, 6 bytes of payload, 8 sequence, 16 payload, 508 CRC of all before it.
 * The payload only grows: a reader takes what it knows and leaves zero what an older writer didn't have. The version
 * is raised only if old readers must not believe a slot.
 */
#include "agent/claim.h"
#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/text.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLOT_MAGIC 0x31545347u /* "GST1" */
#define SLOT_VERSION 1
#define PAYLOAD_AT 16
#define CRC_AT (CLAIM_SLOT_SIZE - 4)

enum { FLAG_BY_SIGNAL = 1, FLAG_WAS_KILLED = 2, FLAG_SEEN_BY_SHIM = 4 };

/* Positions in the payload. */
enum {
	AT_STATE = 0,
	AT_HOW = 1,
	AT_REASON = 2,
	AT_FLAGS = 3,
	AT_CODE = 4,
	AT_SHIM_PID = 8,
	AT_PID = 12,
	AT_SHIM_START = 16,
	AT_START = 24,
	AT_PID_NS = 32,
	AT_STARTED_BOOT = 40,
	AT_ENDED_BOOT = 48,
	AT_STARTED_WALL = 56,
	AT_ENDED_WALL = 64,
	AT_BOOT_ID = 72,
	AT_TEXT = 112,
	AT_LEAD_SENT = 272,
	PAYLOAD_SIZE = 280,
};

static void put(uint8_t *at, uint64_t v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		at[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get(const uint8_t *at, size_t n)
{
	uint64_t v = 0;
	for (size_t i = 0; i < n; i++)
		v |= (uint64_t)at[i] << (8 * i);
	return v;
}

void claim_slot_encode(const struct claim_record *rec, uint8_t ret[CLAIM_SLOT_SIZE])
{
	const struct attempt_end *end = &rec->end;
	uint8_t *p = ret + PAYLOAD_AT;
	memset(ret, 0, CLAIM_SLOT_SIZE);
	put(ret, SLOT_MAGIC, 4);
	put(ret + 4, SLOT_VERSION, 2);
	put(ret + 6, PAYLOAD_SIZE, 2);
	put(ret + 8, rec->seq, 8);
	p[AT_STATE] = (uint8_t)rec->state;
	p[AT_HOW] = (uint8_t)end->how;
	p[AT_REASON] = (uint8_t)end->reason;
	p[AT_FLAGS] = (uint8_t)((end->by_signal ? FLAG_BY_SIGNAL : 0) |
				(end->was_killed ? FLAG_WAS_KILLED : 0) |
				(end->seen_by_shim ? FLAG_SEEN_BY_SHIM : 0));
	put(p + AT_CODE, (uint32_t)end->code, 4);
	put(p + AT_SHIM_PID, (uint32_t)rec->shim_pid, 4);
	put(p + AT_PID, (uint32_t)rec->pid, 4);
	put(p + AT_SHIM_START, rec->shim_start_ticks, 8);
	put(p + AT_START, rec->start_ticks, 8);
	put(p + AT_PID_NS, rec->pid_ns, 8);
	put(p + AT_STARTED_BOOT, (uint64_t)end->started_boot_ms, 8);
	put(p + AT_ENDED_BOOT, (uint64_t)end->ended_boot_ms, 8);
	put(p + AT_STARTED_WALL, (uint64_t)end->started_wall_ms, 8);
	put(p + AT_ENDED_WALL, (uint64_t)end->ended_wall_ms, 8);
	memcpy(p + AT_BOOT_ID, rec->boot_id, strnlen(rec->boot_id, sizeof(rec->boot_id) - 1));
	memcpy(p + AT_TEXT, end->text, strnlen(end->text, sizeof(end->text) - 1));
	put(p + AT_LEAD_SENT, (uint64_t)rec->lead_sent_boot_ms, 8);
	put(ret + CRC_AT, crc32_ieee(ret, CRC_AT), 4);
}

/* A word from disk without bytes that would trouble a screen or a JSON string. */
static void take_text(const uint8_t *from, char *ret, size_t size)
{
	size_t n = strnlen((const char *)from, size - 1);
	n = utf8_valid_len((const char *)from, n);
	memcpy(ret, from, n);
	memset(ret + n, 0, size - n);
}

static bool slot_decode(const uint8_t *slot, struct claim_record *ret)
{
	size_t n = get(slot + 6, 2);
	if (get(slot, 4) != SLOT_MAGIC || get(slot + 4, 2) != SLOT_VERSION ||
		n > CRC_AT - PAYLOAD_AT || get(slot + CRC_AT, 4) != crc32_ieee(slot, CRC_AT))
		return false;
	uint8_t p[PAYLOAD_SIZE] = {0};
	memcpy(p, slot + PAYLOAD_AT, n < PAYLOAD_SIZE ? n : PAYLOAD_SIZE);
	if (p[AT_STATE] < ATTEMPT_CLAIMED || p[AT_STATE] > ATTEMPT_ENDED ||
		p[AT_HOW] >= END_HOW_N || p[AT_REASON] >= STOP_REASON_N ||
		(p[AT_STATE] == ATTEMPT_ENDED) != (p[AT_HOW] != 0))
		return false;
	struct claim_record rec = {
		.state = (enum attempt_state)p[AT_STATE],
		.seq = get(slot + 8, 8),
		.shim_pid = (pid_t)(int32_t)get(p + AT_SHIM_PID, 4),
		.shim_start_ticks = get(p + AT_SHIM_START, 8),
		.pid = (pid_t)(int32_t)get(p + AT_PID, 4),
		.start_ticks = get(p + AT_START, 8),
		.pid_ns = get(p + AT_PID_NS, 8),
		.lead_sent_boot_ms = (int64_t)get(p + AT_LEAD_SENT, 8),
		.end =
			{
				.how = (enum end_how)p[AT_HOW],
				.reason = (enum stop_reason)p[AT_REASON],
				.code = (int32_t)get(p + AT_CODE, 4),
				.by_signal = p[AT_FLAGS] & FLAG_BY_SIGNAL,
				.was_killed = p[AT_FLAGS] & FLAG_WAS_KILLED,
				.seen_by_shim = p[AT_FLAGS] & FLAG_SEEN_BY_SHIM,
				.started_boot_ms = (int64_t)get(p + AT_STARTED_BOOT, 8),
				.ended_boot_ms = (int64_t)get(p + AT_ENDED_BOOT, 8),
				.started_wall_ms = (int64_t)get(p + AT_STARTED_WALL, 8),
				.ended_wall_ms = (int64_t)get(p + AT_ENDED_WALL, 8),
			},
	};
	take_text(p + AT_BOOT_ID, rec.boot_id, sizeof(rec.boot_id));
	take_text(p + AT_TEXT, rec.end.text, sizeof(rec.end.text));
	*ret = rec;
	return true;
}

int claim_state_decode(const uint8_t *bytes, size_t n, struct claim_record *ret)
{
	struct claim_record best, rec;
	bool has_best = false;
	for (size_t at = 0; at + CLAIM_SLOT_SIZE <= n && at < CLAIM_STATE_SIZE;
		at += CLAIM_SLOT_SIZE) {
		if (!slot_decode(bytes + at, &rec) || (has_best && rec.seq <= best.seq))
			continue;
		best = rec;
		has_best = true;
	}
	if (!has_best)
		return -EBADMSG;
	*ret = best;
	return 0;
}

int claim_read_record(int claim_fd, struct claim_record *ret, struct err *e)
{
	uint8_t bytes[CLAIM_STATE_SIZE];
	CLEANUP_CLOSE int fd = openat(claim_fd, "state", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return err_sys(e, -errno, "cannot open the state of a claim");
	ssize_t n;
	do
		n = pread(fd, bytes, sizeof(bytes), 0);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return err_sys(e, -errno, "cannot read the state of a claim");
	int r = claim_state_decode(bytes, (size_t)n, ret);
	return r < 0 ? err_set(e, r, "the state of a claim is damaged: neither slot is whole") : 0;
}

int claim_write_record(int claim_fd, struct claim_record *rec, bool durable, struct err *e)
{
	uint8_t slot[CLAIM_SLOT_SIZE];
	struct claim_record next = *rec;
	next.seq++;
	claim_slot_encode(&next, slot);
	int r = fault_point("claim.write-record");
	CLEANUP_CLOSE int fd = r < 0 ? -1
				     : openat(claim_fd, "state",
					       O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (!r && fd < 0)
		r = -errno;
	if (!r)
		r = fd_pwrite_all(fd, slot, sizeof(slot), (off_t)(next.seq & 1) * CLAIM_SLOT_SIZE);
	if (!r && durable && fdatasync(fd) < 0)
		r = -errno;
	if (r < 0)
		return err_sys(e, r, "cannot write the state of a claim");
	rec->seq = next.seq;
	return 0;
}

int claim_put_stop(int claim_fd, enum stop_reason reason, int64_t grace_ms)
{
	char target[64];
	const char *name = stop_reason_name(reason);
	if (!name || reason == STOP_NONE || grace_ms < 0)
		return -EINVAL;
	snprintf(target, sizeof(target), "%s %lld", name, (long long)grace_ms);
	if (symlinkat(target, claim_fd, "stop") < 0 && errno != EEXIST)
		return -errno;
	return 0;
}

int claim_get_stop(int claim_fd, enum stop_reason *ret_reason, int64_t *ret_grace_ms)
{
	char target[64];
	ssize_t n = readlinkat(claim_fd, "stop", target, sizeof(target) - 1);
	if (n < 0)
		return -errno;
	target[n] = '\0';
	char *blank = strchr(target, ' ');
	enum stop_reason reason = STOP_CANCEL;
	int64_t grace = 0;
	/* Whatever a later build writes there, it's a wish to end. */
	if (blank) {
		*blank = '\0';
		grace = strtoll(blank + 1, NULL, 10);
	}
	if (stop_reason_from_name(target, &reason) < 0 || reason == STOP_NONE)
		reason = STOP_CANCEL;
	*ret_reason = reason;
	*ret_grace_ms = grace < 0 ? 0 : grace;
	return 0;
}

json_t *attempt_end_encode(const struct attempt_end *end)
{
	const char *how = end_how_name(end->how), *reason = stop_reason_name(end->reason);
	return json_pack("{s:s, s:s, s:i, s:b, s:b, s:b, s:I, s:I, s:I, s:I, s:s}", "how",
		how ? how : "vanished", "reason", reason ? reason : "none", "code", (int)end->code,
		"by_signal", end->by_signal, "was_killed", end->was_killed, "seen_by_shim",
		end->seen_by_shim, "started_boot_ms", (json_int_t)end->started_boot_ms,
		"ended_boot_ms", (json_int_t)end->ended_boot_ms, "started_wall_ms",
		(json_int_t)end->started_wall_ms, "ended_wall_ms", (json_int_t)end->ended_wall_ms,
		"text", end->text);
}

static int end_int(
	const json_t *o, const char *key, int64_t min, int64_t max, int64_t *ret, struct err *e)
{
	const json_t *v = json_object_get(o, key);
	if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max)
		return err_set(e, -EINVAL, "\"%s\" of an end must be a whole number", key);
	*ret = json_integer_value(v);
	return 0;
}

static int end_times(const json_t *o, struct attempt_end *end, struct err *e)
{
	int r = end_int(o, "started_boot_ms", 0, INT64_MAX, &end->started_boot_ms, e);
	if (!r)
		r = end_int(o, "ended_boot_ms", 0, INT64_MAX, &end->ended_boot_ms, e);
	if (!r)
		r = end_int(o, "started_wall_ms", INT64_MIN, INT64_MAX, &end->started_wall_ms, e);
	if (!r)
		r = end_int(o, "ended_wall_ms", INT64_MIN, INT64_MAX, &end->ended_wall_ms, e);
	return r;
}

int attempt_end_decode(const json_t *o, struct attempt_end *ret, struct err *e)
{
	struct attempt_end end = {0};
	const char *how = json_string_value(json_object_get(o, "how"));
	const char *reason = json_string_value(json_object_get(o, "reason"));
	const json_t *text = json_object_get(o, "text");
	if (!how || end_how_from_name(how, &end.how) < 0)
		return err_set(e, -EINVAL, "\"how\" of an end must be a word such as \"exit\"");
	if (!reason || stop_reason_from_name(reason, &end.reason) < 0)
		return err_set(e, -EINVAL, "\"reason\" of an end must be a word such as \"none\"");
	int64_t code = 0;
	int r = end_int(o, "code", INT32_MIN, INT32_MAX, &code, e);
	if (!r)
		r = end_times(o, &end, e);
	if (r < 0)
		return r;
	end.code = (int32_t)code;
	end.by_signal = json_is_true(json_object_get(o, "by_signal"));
	end.was_killed = json_is_true(json_object_get(o, "was_killed"));
	end.seen_by_shim = json_is_true(json_object_get(o, "seen_by_shim"));
	if (json_is_string(text)) {
		size_t n = json_string_length(text);
		n = n < sizeof(end.text) ? n : sizeof(end.text) - 1;
		n = strnlen(json_string_value(text), n);
		n = utf8_valid_len(json_string_value(text), n);
		memcpy(end.text, json_string_value(text), n);
	}
	*ret = end;
	return 0;
}
