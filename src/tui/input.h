/*
 * What a person does, as values: bytes of a terminal in, events out. Keys, SGR mouse reports (DECSET 1000 and 1006) and
 * pasted text, also when a sequence comes in pieces. Pure; the time is the caller's: an Esc that nothing follows for
 * INPUT_ESC_MS is a key, and input_idle releases it. A sequence nobody knows is swallowed whole.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { INPUT_ESC_MS = 40, INPUT_SEQ_MAX = 24, INPUT_LEARNED_MAX = 64 };

enum event_kind { EVENT_KEY, EVENT_CLICK, EVENT_WHEEL, EVENT_RESIZE, EVENT_CLOSED };

/* Keys that aren't characters; those are their code points. */
enum key {
	KEY_CTRL_C = 3,
	KEY_CTRL_L = 12,
	KEY_CTRL_U = 21,
	KEY_CTRL_Z = 26,
	KEY_TAB = 9,
	KEY_RETURN = 13,
	KEY_ESC = 27,
	KEY_ERASE = 127, /* Backspace, whichever byte it sends */
	KEY_ARROW_UP = 0x110000, /* beyond Unicode */
	KEY_ARROW_DOWN,
	KEY_ARROW_LEFT,
	KEY_ARROW_RIGHT,
	KEY_PAGE_UP,
	KEY_PAGE_DOWN,
	KEY_FIRST, /* Home */
	KEY_LAST, /* End */
	KEY_DELETE,
	KEY_BACKTAB,
	KEY_FN, /* KEY_FN + 1 is F1, to F12 */
	KEY_FN_LAST = KEY_FN + 12,
};

struct input_event {
	enum event_kind kind;
	uint32_t key; /* EVENT_KEY: a code point or enum key */
	int x, y; /* EVENT_CLICK (left button pressed), EVENT_WHEEL: the cell, from 0 */
	int wheel; /* -1 up, 1 down */
	bool is_shifted; /* EVENT_KEY: an arrow with Shift alone, where the terminal tells */
	bool is_pasted; /* EVENT_KEY: came from a paste: text for a line that's edited, never a command */
};

struct input {
	char seq[INPUT_SEQ_MAX]; /* an unfinished sequence, from its Esc or its lead byte on */
	size_t n;
	bool is_swallowing; /* of a sequence longer than that: up to its last byte */
	bool is_pasting; /* between the marks of a bracketed paste: Esc, Enter and control bytes are left out */
	struct {
		char seq[INPUT_SEQ_MAX];
		uint32_t key;
	} learned[INPUT_LEARNED_MAX]; /* what terminfo knows of this terminal */
	size_t n_learned;
};

/* Another spelling of a key; too long or too many are left out. */
void input_learn(struct input *in, const char *seq, uint32_t key);
/* One byte; true: *ret is an event. */
bool input_byte(struct input *in, char c, struct input_event *ret);
/* Nothing came for INPUT_ESC_MS: an unfinished sequence that is a lone Esc becomes the key. */
bool input_idle(struct input *in, struct input_event *ret);
bool input_is_waiting(const struct input *in);
/* "q", "Esc", "PgUp", "F6": as help says it. */
void input_key_name(uint32_t key, char ret[16]);
