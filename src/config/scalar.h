/*
 * What a plain YAML scalar means here, decided on purpose: YAML 1.1's words for yes and no are bools where a bool is
 * wanted, its numbers are numbers where a number is wanted (but not 022, which it takes for 18, nor 1:30, for 90), and
 * text is always text as it's written. And the other way: how text is written so that every YAML reader gets it back.
 */
#pragma once

#include "base/buf.h"
#include "config/doc.h"

/* Nothing, ~, null. */
bool scalar_is_null(const struct doc_node *n);
/* true, yes, on, false, no, off, as YAML 1.1 spells them, unquoted; else -EINVAL. */
int scalar_bool(const struct doc_node *n, bool *ret);
/* 22, +22, 1_000, 0x10, 0b11, unquoted; -EDOM: a form that YAML 1.1 reads otherwise than people do; -EINVAL, -ERANGE. */
int scalar_int(const struct doc_node *n, int64_t *ret);
/* Plain where no reader could take it for anything else, else in quotes. text is UTF-8. */
void scalar_put(struct buf *b, const char *text);
