/* Any bytes as a stream of frames, and any message among them as a sample: what a client does with what an agent sends. */
#include "core/sample.h"
#include "core/wire.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* What was decoded once is encoded and decoded again without loss. */
static void try_sample(const json_t *msg)
{
	struct sample s, again;
	struct err e = {0};
	json_t *out;

	if (sample_decode(msg, &s, &e)) {
		if (!e.text[0])
			abort();
		return;
	}
	out = sample_encode(&s);
	if (sample_decode(out, &again, &e))
		abort();
	if (again.snap.n_cards != s.snap.n_cards || again.snap.n_procs != s.snap.n_procs ||
		again.n_rows != s.n_rows)
		abort();
	json_decref(out);
	sample_done(&again);
	sample_done(&s);
}

/* Figures to build on stay for the messages behind them, as with a client. */
static void try_base(const json_t *msg, struct sample_base *base)
{
	struct sample s;
	struct err e = {0};

	if (sample_base_decode(msg, base, &e) && !e.text[0])
		abort();
	e.text[0] = '\0';
	if (!sample_decode_on(msg, base, &s, &e))
		sample_done(&s);
	else if (!e.text[0])
		abort();
}

/* A piece of a stream that was taken off is put on again as it came. */
static void try_bulk(const struct wire_frame *f)
{
	struct wire_frame again = {0};
	struct buf b = {0};

	if (f->msg || wire_put_bulk(&b, f->stream, f->bytes.data, f->bytes.len, NULL) ||
		wire_get(&b, &again, NULL) != 1 || b.len)
		abort();
	if (again.kind != WIRE_BULK || again.stream != f->stream ||
		again.bytes.len != f->bytes.len ||
		(f->bytes.len && memcmp(again.bytes.data, f->bytes.data, f->bytes.len) != 0))
		abort();
	wire_frame_done(&again);
	buf_done(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	struct wire_frame f = {0};
	struct buf in = {0};
	struct sample_base base = {0};
	struct err e = {0};
	int r;

	buf_put(&in, bytes, n);
	while ((r = wire_get(&in, &f, &e)) > 0) {
		if (f.kind == WIRE_BULK)
			try_bulk(&f);
		else {
			try_sample(f.msg);
			try_base(f.msg, &base);
		}
		json_decref(f.msg);
		f.msg = NULL;
	}
	if (r < 0 && !e.text[0])
		abort();
	sample_base_done(&base);
	wire_frame_done(&f);
	buf_done(&in);
	return 0;
}
