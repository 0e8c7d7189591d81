/*
 * One submit that is many jobs: --array 1-100 and --sweep lr=1e-3,1e-4, their product in the order given (the last one
 * varies fastest), and {name} in a text replaced by this job's value. Pure.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>
#include <stddef.h>

#define EXPAND_MAX 100000 /* jobs of one submit */

struct expand_param {
	char *name; /* "index" for the array */
	char **values;
	size_t n, cap;
};
/* Zeroed is one job without parameters. */
struct expand {
	struct expand_param *params;
	size_t n, cap;
};

/*
 * "lr=1e-3,1e-4", "seed=1-5": values apart by commas; a-b of whole numbers is all of these. -EINVAL with a sentence; -E2BIG when
 * the product passes EXPAND_MAX.
 */
int expand_sweep(struct expand *x, const char *spec, struct err *e);
/* "1-100", "1,5,9-12", "0-30:10": {index} in the command, GPUSTOW_ARRAY_INDEX in the environment. */
int expand_array(struct expand *x, const char *spec, struct err *e);
void expand_done(struct expand *x);
size_t expand_count(const struct expand *x);
/* The text of job i: each {name} of a parameter replaced; ${name} and all other braces stay as they are. */
void expand_text(const struct expand *x, size_t i, const char *text, struct buf *out);
/* "lr=1e-3 seed=1" of job i. */
void expand_label(const struct expand *x, size_t i, struct buf *out);
/* GPUSTOW_SWEEP_<name> and GPUSTOW_ARRAY_INDEX, the latter with NVIDB_ too. */
void expand_env(const struct expand *x, size_t i, json_t *env);
/* Parameters whose {name} stands in none of the texts: the first one's name, or NULL. A likely slip. */
const char *expand_unused(const struct expand *x, const char *const *texts, size_t n);
