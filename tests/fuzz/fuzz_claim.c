/*
 * What a claim is read from: the first byte says what the rest is. 's' a spec or a job of a launch message as JSON, 'e' an end
 * as JSON, 'r' the bytes of `state`, 'p' a stat file of /proc, 'n' the name of an attempt. Besides not crashing, what was
 * taken must come back the same when it's written and read again.
 *
 * clang -g -O1 -std=gnu17 -D_GNU_SOURCE -Isrc -fsanitize=fuzzer,address,undefined tests/fuzz/fuzz_claim.c src/base/[a-z]*.c
 *	src/proc/[a-z]*.c src/core/attempt.c src/agent/{root,claim,claim_spec,claim_state,claim_scan,retired}.c -ljansson -lm
 * Run it with tests/fuzz/corpus/claim.
 */
#include "agent/claim.h"
#include "base/alloc.h"
#include "base/hash.h"
#include "proc/proc.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void must(bool is_so)
{
	if (!is_so)
		abort();
}

static void fuzz_spec(const json_t *o)
{
	struct claim_spec s = {0}, again = {0};
	struct err e = {0};
	if (claim_spec_decode(o, &s, &e) < 0) {
		must(e.text[0] && !s.argv && !s.env);
		return;
	}
	json_t *written = claim_spec_encode(&s);
	/* A message lacks the queue and the boot id; as a claim's spec it's read only with them. */
	if (!s.name.queue[0])
		json_object_del(written, "queue");
	must(claim_spec_decode(written, &again, &e) == 0);
	json_t *rewritten = claim_spec_encode(&again);
	if (!s.name.queue[0])
		json_object_del(rewritten, "queue");
	must(json_equal(written, rewritten));
	json_decref(written);
	json_decref(rewritten);
	claim_spec_done(&s);
	claim_spec_done(&again);
}

static void fuzz_end(const json_t *o)
{
	struct attempt_end end, again;
	if (attempt_end_decode(o, &end, NULL) < 0)
		return;
	json_t *written = attempt_end_encode(&end);
	must(written && attempt_end_decode(written, &again, NULL) == 0);
	must(end.how == again.how && end.code == again.code && strcmp(end.text, again.text) == 0);
	json_decref(written);
}

static void fuzz_record(const uint8_t *bytes, size_t n)
{
	struct claim_record rec, again;
	uint8_t slot[CLAIM_SLOT_SIZE];
	if (claim_state_decode(bytes, n, &rec) < 0)
		return;
	claim_slot_encode(&rec, slot);
	must(claim_state_decode(slot, sizeof(slot), &again) == 0);
	must(memcmp(&rec, &again, sizeof(rec)) == 0);
	json_t *o = attempt_end_encode(&rec.end);
	must(o != NULL);
	json_decref(o);
}

/* A random checksum is never right: put the right one, so that what's behind it is reached too. */
static void fuzz_record_with_sums(const uint8_t *bytes, size_t n)
{
	uint8_t state[CLAIM_STATE_SIZE] = {0};
	memcpy(state, bytes, n < sizeof(state) ? n : sizeof(state));
	for (size_t at = 0; at < sizeof(state); at += CLAIM_SLOT_SIZE) {
		uint32_t crc = crc32_ieee(state + at, CLAIM_SLOT_SIZE - 4);
		for (size_t i = 0; i < 4; i++)
			state[at + CLAIM_SLOT_SIZE - 4 + i] = (uint8_t)(crc >> (8 * i));
	}
	fuzz_record(state, sizeof(state));
}

static void fuzz_name(const char *text)
{
	struct attempt_name name;
	char written[ATTEMPT_NAME_LEN];
	if (attempt_name_parse(text, &name) < 0)
		return;
	attempt_name_format(&name, written);
	must(strcmp(written, text) == 0);
}

static void fuzz_json(uint8_t kind, const uint8_t *bytes, size_t n)
{
	json_t *o =
		json_loadb((const char *)bytes, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
	if (!o)
		return;
	if (kind == 's')
		fuzz_spec(o);
	else
		fuzz_end(o);
	json_decref(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	struct proc_stat st;
	if (!n)
		return 0;
	uint8_t kind = *bytes++;
	n--;
	if (kind == 's' || kind == 'e') {
		fuzz_json(kind, bytes, n);
	} else if (kind == 'r') {
		fuzz_record(bytes, n);
		fuzz_record_with_sums(bytes, n);
	} else if (kind == 'p') {
		proc_parse_stat((const char *)bytes, n, &st);
	} else if (kind == 'n') {
		char *text = xstrndup((const char *)bytes, n);
		fuzz_name(text);
		free(text);
	}
	return 0;
}
