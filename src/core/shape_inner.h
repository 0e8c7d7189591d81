/* What the two files of shapes share: stretches of a command, and how a value among them is put down. Nobody else's. */
#pragma once

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

static inline bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static inline bool is_alpha(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static inline bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* What parts atoms; and what ends a stretch of a word that can be taken as it is. */
enum { SEPARATES = 1, BLANK = 2, STOPS_WORD = 4 };
extern const unsigned char piece_kinds[256];

static inline bool is_kind(char c, unsigned kind)
{
	return (piece_kinds[(unsigned char)c] & kind) != 0;
}

/* A piece of text that isn't ours. */
struct piece {
	const char *s;
	size_t n;
};

/* Words are compared whatever their case. */
bool piece_is_one_of(struct piece p, const char *const *words, size_t n);
bool piece_starts(struct piece p, const char *word);
bool piece_ends(struct piece p, const char *word);
bool piece_contains(struct piece p, const char *word);
bool piece_has(struct piece p, char c);
bool piece_has_blank(struct piece p);
bool piece_is_number(struct piece p);
/* As it is, but on one line. */
void piece_put(struct buf *b, struct piece p);
/* Free text: blanks become one, everything between blanks and separators is looked at by itself. */
void piece_put_text(struct buf *b, struct piece p);
/* The value of an option or of an assignment, or an operand. */
void piece_put_value(struct buf *b, struct piece p);
