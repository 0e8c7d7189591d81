/* Any bytes as a stream of frames, and any message among them as a sample: what a client does with what an agent sends. */
#include "core/sample.h"
#include "core/wire.h"

#include <stdlib.h>

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

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	struct buf in = {0};
	struct err e = {0};
	json_t *msg;
	int r;

	buf_put(&in, bytes, n);
	while ((r = wire_get_json(&in, &msg, &e)) > 0) {
		try_sample(msg);
		json_decref(msg);
	}
	if (r < 0 && !e.text[0])
		abort();
	buf_done(&in);
	return 0;
}
