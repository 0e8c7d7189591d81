/*
 * The reader of JSON against jansson's own: what one takes the other takes, with the same values, whatever the bytes are. Written
 * texts for each rule, then those texts with random damage.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "core/json_read.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const texts[] = {"{}", "[]", " { } ", "[ ]\n", "", " ", "{", "[", "}", "null",
	"true", "false", "nul", "trueish", "[true,false,null]", "[truefalse]", "[true1]", "[nulll]",
	"0", "-0", "7", "-7", "007", "[01]", "-", "[-]", "+1", "1.", "1.0", "[.5]", "-1.5e3", "1e5",
	"1E-5", "1e", "1e+", "1.5.5", "1e400", "-1e400", "1-1", "9223372036854775807",
	"9223372036854775808", "-9223372036854775808", "-9223372036854775809",
	"99999999999999999999999999", "[1,2,3]", "[1,2,]", "[,1]", "[1 2]", "[1,,2]", "[1}", "{1}",
	"{\"a\":1}", "{\"a\":1,}", "{,}", "{\"a\"}", "{\"a\":}", "{\"a\" : 1 , \"b\":[{}]}",
	"{a:1}", "{'a':1}", "{\"a\":1 \"b\":2}", "{\"a\":1,\"a\":1}", "{\"a\":1,\"b\":{\"a\":1}}",
	"{\"a\":1,\"\\u0061\":2}", "{\"\":1}", "{\"\":1,\"\":2}", "{\"a\":1}{}", "{} x", "[] ]",
	"\"\"", "\"a\"", "\"a", "\"a\\", "\"\\\"", "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\x\"",
	"\"\\'\"", "\"a\\nb\"", "\"\\u0041\\u00e9\\u20ac\"", "\"\\u00E9\"", "\"\\u00g9\"",
	"\"\\u12\"", "\"\\u\"", "\"\\u0000\"", "{\"a\\u0000b\":1}", "\"\\ud83d\\ude00\"",
	"\"\\ud83d\"", "\"\\ude00\"", "\"\\ud83d\\ud83d\"", "\"\\ud83dx\"", "\"\\ud83d\\n\"",
	"\"\\uFFFF\"", "\"tab\there\"", "\"line\nhere\"", "\"\x7f\"", "\"\xc3\xa9\"",
	"\"\xe2\x82\xac\"", "\"\xf0\x9f\x98\x80\"", "\"\xc3\"", "\"\xc3(\"", "\"\xa9\"",
	"\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"", "\"\xff\"", "\"a\\n\xc3\"",
	"\"\xc3\\u00a9\"", "{\"\xff\":1}", "\xef\xbb\xbf{}", "\xa0{}", "\"\xe2\x80\xa8\"",
	"/* c */ {}", "[NaN]", "[Infinity]", "\v[]",
	"{\"op\":\"sample\",\"id\":3,\"cards\":[{\"uuid\":\"GPU-x\",\"m\":{\"mem_total\":24576,\"temp\":-3},\"absent\":{}}],"
	"\"procs\":[[0,1,4242,99,100,\"unknown\",-1,\"a\\tb\\u00fc \xc3\xbc\",0]],\"rows\":[],\"error\":\"\",\"load\":0.25}"};

/* An ending byte that isn't part of it: who reads beyond it is seen by the sanitizer. */
static void compare(const char *bytes, size_t n)
{
	CLEANUP_FREE char *exact = xmalloc(n ? n : 1);
	struct err e = {0};
	json_t *ours, *theirs;

	if (n)
		memcpy(exact, bytes, n);
	theirs = json_loadb(exact, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
	ours = json_read(exact, n, &e);
	if (!ours != !theirs || (ours && !json_equal(ours, theirs)))
		fail_msg("%s by us, %s by jansson: %.*s", ours ? "taken" : e.text,
			theirs ? "taken" : "refused", (int)n, bytes);
	assert_true(ours || (e.text[0] && strstr(e.text, "(byte ")));
	json_decref(ours);
	json_decref(theirs);
}

static void what_jansson_takes(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		compare(texts[i], strlen(texts[i]));
	compare("\"a\0b\"", 5);
	compare("[1]\0", 4);
	compare("\0", 1);
	/* Behind a number jansson doesn't see it. */
	assert_null(json_read("[8\0]", 4, NULL));
	/* A name that doesn't fit into the small place for names. */
	for (size_t n = 60; n < 70; n++) {
		CLEANUP(buf_done) struct buf b = {0};

		buf_puts(&b, "{\"");
		for (size_t i = 0; i < n; i++)
			buf_putc(&b, (char)('a' + i % 26));
		buf_puts(&b, "\":[1]}");
		compare(b.data, b.len);
	}
}

static void depth_has_its_end(void **state)
{
	for (size_t n = JSON_READ_DEPTH - 1; n <= JSON_READ_DEPTH + 1; n++) {
		CLEANUP(buf_done) struct buf b = {0};
		struct err e = {0};
		json_t *v;

		for (size_t i = 0; i < n; i++)
			buf_putc(&b, '[');
		for (size_t i = 0; i < n; i++)
			buf_putc(&b, ']');
		compare(b.data, b.len);
		v = json_read(b.data, b.len, &e);
		assert_true(!v == (n > JSON_READ_DEPTH));
		json_decref(v);
	}
}

static uint64_t next_random(uint64_t *seed, uint64_t below)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed % below;
}

/* Bytes put in, left out, changed and doubled, of those that mean something to JSON or to UTF-8. */
static void damage(struct buf *b, uint64_t *seed)
{
	static const char odd[] =
		"{}[]\",:\\ u0019-+.eEtfn\n\t\x01\x7f\x80\xc3\xa9\xed\xe2\x82\xac\xf0\x9f\xff"
		"d8";
	size_t at = b->len ? next_random(seed, b->len) : 0;
	char c = odd[next_random(seed, sizeof(odd) - 1)];

	switch (next_random(seed, 4)) {
	case 0:
		buf_putc(b, c);
		memmove(b->data + at + 1, b->data + at, b->len - 1 - at);
		b->data[at] = c;
		break;
	case 1:
		if (b->len) {
			memmove(b->data + at, b->data + at + 1, b->len - at);
			b->len--;
		}
		break;
	case 2:
		if (b->len)
			b->data[at] = c;
		break;
	default:
		buf_put(b, b->data ? b->data + at : "", b->len - at < 30 ? b->len - at : 30);
	}
}

static void damaged_texts(void **state)
{
	uint64_t seed = (uint64_t)time(NULL) * 2654435761u | 1;

	print_message("# seed %llu\n", (unsigned long long)seed);
	for (int i = 0; i < 60000; i++) {
		const char *text = texts[next_random(&seed, ARRAY_LEN(texts))];
		CLEANUP(buf_done) struct buf b = {0};

		buf_reserve(&b, strlen(text) + 200);
		buf_puts(&b, text);
		for (uint64_t n = 1 + next_random(&seed, 3); n; n--)
			damage(&b, &seed);
		compare(b.data, b.len);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_jansson_takes),
		cmocka_unit_test(depth_has_its_end),
		cmocka_unit_test(damaged_texts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
