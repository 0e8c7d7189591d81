/* Frames: whole at every split, and every way a peer may break the rules. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/wire.h"

#include <stdlib.h>
#include <string.h>

static void put_raw(struct buf *b, uint32_t n, char kind, const char *bytes, size_t len)
{
	char head[5] = {(char)(n >> 24), (char)(n >> 16), (char)(n >> 8), (char)n, kind};

	buf_put(b, head, sizeof(head));
	buf_put(b, bytes, len);
}

static void split_at_every_byte(void **state)
{
	struct buf whole = {0};
	json_t *a = json_pack("{s:s, s:i}", "op", "ping", "n", 1),
	       *b = json_pack("{s:s}", "op", "\xc3\xa9");

	assert_int_equal(wire_put_json(&whole, a, NULL), 0);
	assert_int_equal(wire_put_json(&whole, b, NULL), 0);
	for (size_t cut = 0; cut <= whole.len; cut++) {
		struct buf in = {0};
		json_t *got[2] = {0}, *msg;
		int n = 0;

		buf_put(&in, whole.data, cut);
		while (wire_get_json(&in, &msg, NULL) == 1)
			got[n++] = msg;
		buf_put(&in, whole.data + cut, whole.len - cut);
		while (wire_get_json(&in, &msg, NULL) == 1)
			got[n++] = msg;
		assert_int_equal(n, 2);
		assert_true(json_equal(got[0], a));
		assert_true(json_equal(got[1], b));
		assert_int_equal(in.len, 0);
		json_decref(got[0]);
		json_decref(got[1]);
		buf_done(&in);
	}
	buf_done(&whole);
	json_decref(a);
	json_decref(b);
}

static void length_is_big_endian(void **state)
{
	struct buf b = {0};
	json_t *o = json_pack("{s:i}", "a", 1);

	assert_int_equal(wire_put_json(&b, o, NULL), 0);
	assert_int_equal(b.len, 4 + 1 + 7);
	assert_memory_equal(b.data, "\0\0\0\10J{\"a\":1}", 12);
	buf_done(&b);
	json_decref(o);
}

static void refuse_frame(uint32_t n, char kind, const char *bytes, size_t len)
{
	struct buf in = {0};
	struct err e = {0};
	json_t *msg = NULL;

	put_raw(&in, n, kind, bytes, len);
	assert_true(wire_get_json(&in, &msg, &e) < 0);
	assert_null(msg);
	assert_true(e.text[0]);
	buf_done(&in);
}

static void refuse_json(const char *text)
{
	refuse_frame((uint32_t)strlen(text) + 1, 'J', text, strlen(text));
}

static void broken_rules(void **state)
{
	refuse_frame(0, 'J', "", 0);
	refuse_frame(WIRE_JSON_MAX + 2, 'J', "", 0);
	refuse_frame(UINT32_MAX, 'J', "", 0);
	refuse_frame(3, 'B', "xx", 2);
	refuse_frame(3, 0, "xx", 2);
	refuse_json("{");
	refuse_json("");
	refuse_json("[1]");
	refuse_json("7");
	refuse_json("{\"a\":1,\"a\":2}");
	refuse_json("{\"a\":1} x");
	refuse_json("{\"a\":\"\xff\"}");
	refuse_json("{\"a\":\"\\u0000\"}");
	refuse_json("{\"a\":99999999999999999999}");
}

/* The length alone condemns: nobody waits for, or makes room for, a gigabyte. */
static void oversize_is_refused_at_once(void **state)
{
	struct buf in = {0};
	json_t *msg = NULL;

	buf_put(&in, "\x40\0\0\0", 4);
	assert_true(wire_get_json(&in, &msg, NULL) < 0);
	buf_done(&in);
}

static void limit_on_the_way_out(void **state)
{
	struct buf b = {0};
	struct err e = {0};
	size_t overhead = strlen("{\"a\":\"\"}"), n = WIRE_JSON_MAX - overhead;
	char *s = malloc(n + 2);
	json_t *o, *msg = NULL;

	memset(s, 'x', n + 1);
	s[n + 1] = '\0';
	o = json_pack("{s:s}", "a", s);
	buf_puts(&b, "before");
	assert_int_equal(wire_put_json(&b, o, &e), -E2BIG);
	assert_string_equal(buf_str(&b), "before");
	assert_int_equal(b.len, 6);
	buf_clear(&b);
	json_decref(o);
	s[n] = '\0';
	o = json_pack("{s:s}", "a", s);
	assert_int_equal(wire_put_json(&b, o, &e), 0);
	assert_int_equal(wire_get_json(&b, &msg, &e), 1);
	assert_true(json_equal(msg, o));
	json_decref(msg);
	json_decref(o);
	free(s);
	buf_done(&b);
}

/* Both kinds in one stream of bytes, and every cut through it. */
static void bulk_among_messages(void **state)
{
	struct buf whole = {0};
	json_t *a = json_pack("{s:s}", "op", "over");
	const char piece[] = "a\0b\n";

	assert_int_equal(wire_put_bulk(&whole, 0x0102030405060708u, piece, 5, NULL), 0);
	assert_memory_equal(whole.data, "\0\0\0\16B\1\2\3\4\5\6\7\10a\0b\n\0", 18);
	assert_int_equal(wire_put_json(&whole, a, NULL), 0);
	assert_int_equal(wire_put_bulk(&whole, UINT64_MAX, NULL, 0, NULL), 0);
	for (size_t cut = 0; cut <= whole.len; cut++) {
		struct buf in = {0};
		struct wire_frame f = {0};
		int n = 0, r;

		buf_put(&in, whole.data, cut);
		for (int half = 0; half < 2; half++) {
			while ((r = wire_get(&in, &f, NULL)) == 1) {
				assert_int_equal(f.kind, n == 1 ? WIRE_JSON : WIRE_BULK);
				assert_int_equal(f.bytes.len, n ? 0 : 5);
				if (n == 0) {
					assert_true(f.stream == 0x0102030405060708u);
					assert_memory_equal(f.bytes.data, piece, 5);
				} else if (n == 1) {
					assert_true(json_equal(f.msg, a));
				} else {
					assert_true(f.stream == UINT64_MAX);
				}
				json_decref(f.msg);
				f.msg = NULL;
				n++;
			}
			assert_int_equal(r, 0);
			if (!half)
				buf_put(&in, whole.data + cut, whole.len - cut);
		}
		assert_int_equal(n, 3);
		assert_int_equal(in.len, 0);
		wire_frame_done(&f);
		buf_done(&in);
	}
	buf_done(&whole);
	json_decref(a);
}

static void refuse_bulk(uint32_t n, size_t len)
{
	char zeros[64] = {0};
	struct wire_frame f = {0};
	struct buf in = {0};
	struct err e = {0};

	put_raw(&in, n, 'B', zeros, len);
	assert_true(wire_get(&in, &f, &e) < 0);
	assert_true(e.text[0]);
	assert_null(f.msg);
	wire_frame_done(&f);
	buf_done(&in);
}

static void bulk_has_bounds(void **state)
{
	char *piece = calloc(1, WIRE_BULK_MAX + 1);
	struct wire_frame f = {0};
	struct buf b = {0};
	struct err e = {0};

	buf_puts(&b, "before");
	assert_int_equal(wire_put_bulk(&b, 1, piece, WIRE_BULK_MAX + 1, &e), -E2BIG);
	assert_int_equal(b.len, 6);
	buf_clear(&b);
	assert_int_equal(wire_put_bulk(&b, 1, piece, WIRE_BULK_MAX, &e), 0);
	assert_int_equal(wire_get(&b, &f, &e), 1);
	assert_int_equal(f.bytes.len, WIRE_BULK_MAX);
	/* No stream, half a stream's id, one byte too many: the head condemns, whatever follows. */
	refuse_bulk(1, 0);
	refuse_bulk(8, 7);
	refuse_bulk(1 + 8 + WIRE_BULK_MAX + 1, 8);
	wire_frame_done(&f);
	buf_done(&b);
	free(piece);
}

static void members(void **state)
{
	json_t *o = json_pack("{s:s, s:i, s:b, s:n}", "s", "abc", "i", 5, "b", 1, "z");
	struct err e = {0};
	char s[4] = "?", small[3] = "?";
	int64_t i = -7;
	bool b = false;

	assert_int_equal(wire_str(o, "s", s, sizeof(s), &e), 0);
	assert_string_equal(s, "abc");
	assert_int_equal(wire_str(o, "s", small, sizeof(small), &e), -EINVAL);
	assert_string_equal(small, "?");
	assert_int_equal(wire_int(o, "i", 5, 5, &i, &e), 0);
	assert_int_equal(i, 5);
	i = -7;
	assert_int_equal(wire_int(o, "i", 6, 9, &i, &e), -EINVAL);
	assert_int_equal(wire_int(o, "i", 0, 4, &i, &e), -EINVAL);
	assert_int_equal(wire_int(o, "s", 0, 9, &i, &e), -EINVAL);
	assert_int_equal(wire_int(o, "none", 0, 9, &i, &e), -EINVAL);
	assert_non_null(strstr(e.text, "\"none\" is missing"));
	assert_int_equal(i, -7);
	assert_int_equal(wire_bool(o, "b", &b, &e), 0);
	assert_true(b);
	assert_int_equal(wire_bool(o, "i", &b, &e), -EINVAL);
	assert_int_equal(wire_bool(o, "z", &b, &e), -EINVAL);
	json_decref(o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(split_at_every_byte),
		cmocka_unit_test(length_is_big_endian),
		cmocka_unit_test(broken_rules),
		cmocka_unit_test(oversize_is_refused_at_once),
		cmocka_unit_test(limit_on_the_way_out),
		cmocka_unit_test(bulk_among_messages),
		cmocka_unit_test(bulk_has_bounds),
		cmocka_unit_test(members),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
