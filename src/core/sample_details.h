/* Inside of the sample's codec: what sample.c and sample_details.c share. */
#pragma once

#include "core/sample.h"

/* Whatever bytes s holds, it goes out as valid and harmless text. */
json_t *sample_text(const char *s);
/* A number, or the reason of its absence as a word. */
json_t *sample_value(struct value v);
struct value sample_take_value(const json_t *v);
/* A card's "m" and "absent" into its figures; those that aren't named stay. */
void sample_take_metrics(const json_t *o, struct value *m);
/* The first n into "m" and "absent" of o; those that are as in base aren't told (NULL: all are). */
void sample_put_metrics(
	const struct value *m, size_t n, bool with_details, const struct value *base, json_t *o);
/* A text of at most size - 1 bytes, cut between characters. */
int sample_take_text(const json_t *v, char *ret, size_t size, const char *key, struct err *e);

/* Adds what only a sample with details has to a finished message; the process rows' values go to the end of their arrays. */
void sample_put_details(const struct sample *s, json_t *msg);
/* Does nothing for a message without details. procs is its checked array of process rows. */
int sample_take_details(const json_t *msg, const json_t *procs, struct sample *s, struct err *e);
