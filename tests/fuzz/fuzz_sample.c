/* A sample from an agent that may be anybody's: what is decoded can be encoded, and says the same again. */
#include "core/sample.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	json_t *msg = json_loadb((const char *)bytes, n, JSON_REJECT_DUPLICATES, NULL), *again;
	struct sample s = {0}, t = {0};
	struct err e = {0};

	if (json_is_object(msg) && sample_decode(msg, &s, &e) == 0) {
		again = sample_encode(&s);
		if (sample_decode(again, &t, &e) != 0 || t.snap.n_procs != s.snap.n_procs ||
			t.with_details != s.with_details ||
			t.snap.n_instances != s.snap.n_instances)
			abort();
		sample_done(&t);
		sample_done(&s);
		json_decref(again);
	}
	json_decref(msg);
	return 0;
}
