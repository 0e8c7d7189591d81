/* A terminal's bytes to keys and mouse reports (input.h): one state machine, fed byte by byte. */
#include "tui/input.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

/* What terminals send in common, the Esc left out; screen.c adds what terminfo has besides. */
static const struct {
	char seq[8];
	uint32_t key;
} known[] = {
	{"[A", KEY_ARROW_UP},
	{"OA", KEY_ARROW_UP},
	{"[B", KEY_ARROW_DOWN},
	{"OB", KEY_ARROW_DOWN},
	{"[C", KEY_ARROW_RIGHT},
	{"OC", KEY_ARROW_RIGHT},
	{"[D", KEY_ARROW_LEFT},
	{"OD", KEY_ARROW_LEFT},
	{"[H", KEY_FIRST},
	{"OH", KEY_FIRST},
	{"[1~", KEY_FIRST},
	{"[7~", KEY_FIRST},
	{"[F", KEY_LAST},
	{"OF", KEY_LAST},
	{"[4~", KEY_LAST},
	{"[8~", KEY_LAST},
	{"[3~", KEY_DELETE},
	{"[5~", KEY_PAGE_UP},
	{"[6~", KEY_PAGE_DOWN},
	{"[Z", KEY_BACKTAB},
	{"OP", KEY_FN + 1},
	{"OQ", KEY_FN + 2},
	{"OR", KEY_FN + 3},
	{"OS", KEY_FN + 4},
	{"[11~", KEY_FN + 1},
	{"[12~", KEY_FN + 2},
	{"[13~", KEY_FN + 3},
	{"[14~", KEY_FN + 4},
	{"[[A", KEY_FN + 1},
	{"[[B", KEY_FN + 2},
	{"[[C", KEY_FN + 3},
	{"[[D", KEY_FN + 4},
	{"[[E", KEY_FN + 5},
	{"[15~", KEY_FN + 5},
	{"[17~", KEY_FN + 6},
	{"[18~", KEY_FN + 7},
	{"[19~", KEY_FN + 8},
	{"[20~", KEY_FN + 9},
	{"[21~", KEY_FN + 10},
	{"[23~", KEY_FN + 11},
	{"[24~", KEY_FN + 12},
};

void input_learn(struct input *in, const char *seq, uint32_t key)
{
	if (seq[0] != '\033' || !seq[1] || strlen(seq) >= INPUT_SEQ_MAX ||
		in->n_learned == INPUT_LEARNED_MAX)
		return;
	snprintf(in->learned[in->n_learned].seq, INPUT_SEQ_MAX, "%s", seq);
	in->learned[in->n_learned++].key = key;
}

static bool key_event(struct input_event *ret, uint32_t key)
{
	*ret = (struct input_event){.kind = EVENT_KEY, .key = key};
	return true;
}

/* A number of at most five digits; NULL: there's none. */
static const char *take_number(const char *s, int *ret)
{
	int v = 0, n = 0;

	while (*s >= '0' && *s <= '9' && n++ < 5)
		v = v * 10 + (*s++ - '0');
	*ret = v;
	return n ? s : NULL;
}

/* "<0;11;3M": button, column, line. */
static bool mouse_event(const char *s, struct input_event *ret)
{
	int button = 0, x = 0, y = 0;

	s = take_number(s + 1, &button);
	s = s && *s == ';' ? take_number(s + 1, &x) : NULL;
	s = s && *s == ';' ? take_number(s + 1, &y) : NULL;
	if (!s || strcmp(s, "M") != 0 || x < 1 || y < 1)
		return false;
	/* Shift, Alt and Control (4, 8, 16) say nothing here; 32 is a movement. */
	if (button & 32)
		return false;
	button &= ~(4 | 8 | 16);
	*ret = (struct input_event){.kind = EVENT_CLICK, .x = x - 1, .y = y - 1};
	if (button == 64 || button == 65) {
		ret->kind = EVENT_WHEEL;
		ret->wheel = button == 64 ? -1 : 1;
		return true;
	}
	return button == 0;
}

/* "[1;5A": a key with Shift, Alt or Control is the key. */
static void drop_modifier(char *s)
{
	char *semi = strchr(s, ';');
	size_t n = strlen(s);

	if (!semi || s[0] != '[' || s[1] == '<')
		return;
	if (s[n - 1] == '~') {
		memmove(semi, "~", 2);
	} else if (!strncmp(s, "[1;", 3)) {
		s[1] = s[n - 1];
		s[2] = '\0';
	}
}

static bool is_learned(const struct input *in, struct input_event *ret)
{
	for (size_t i = 0; i < in->n_learned; i++)
		if (!strcmp(in->learned[i].seq, in->seq))
			return key_event(ret, in->learned[i].key);
	return false;
}

/* A whole sequence lies in seq. */
static bool finish(struct input *in, struct input_event *ret)
{
	char s[INPUT_SEQ_MAX];
	bool found = false, is_shifted;

	in->seq[in->n] = '\0';
	snprintf(s, sizeof(s), "%s", in->seq + 1);
	in->n = 0;
	if (!strcmp(s, "[200~")) {
		in->is_pasting = true;
		return false;
	}
	if (!strcmp(s, "[201~")) {
		in->is_pasting = false;
		return false;
	}
	if (in->is_pasting)
		return false;
	if (is_learned(in, ret))
		return true;
	if (s[0] == '[' && s[1] == '<')
		return mouse_event(s + 1, ret);
	is_shifted = !strncmp(s, "[1;2", 4);
	drop_modifier(s);
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]) && !found; i++)
		if (!strcmp(s, known[i].seq))
			found = key_event(ret, known[i].key);
	if (found)
		ret->is_shifted = is_shifted;
	return found;
}

static bool typed(const struct input *in, struct input_event *ret, uint32_t key)
{
	key_event(ret, key);
	ret->is_pasted = in->is_pasting;
	return true;
}

static bool plain_byte(struct input *in, unsigned char c, struct input_event *ret)
{
	if (in->is_pasting && (c < 0x20 || c == 0x7F))
		return false;
	if (c == '\n' || c == '\r')
		return key_event(ret, KEY_RETURN);
	if (c == 8 || c == 127)
		return key_event(ret, KEY_ERASE);
	return typed(in, ret, c);
}

/* The next byte of a character of more than one. */
static bool char_byte(struct input *in, char c, struct input_event *ret)
{
	unsigned char lead = (unsigned char)in->seq[0];
	size_t want = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
	uint32_t cp;

	in->seq[in->n++] = c;
	if (((unsigned char)c & 0xC0) != 0x80) {
		in->n = 0;
		return false;
	}
	if (in->n < want)
		return false;
	in->n = 0;
	if (utf8_valid_len(in->seq, want) != want)
		return false;
	utf8_decode(in->seq, want, &cp);
	return typed(in, ret, cp);
}

/* A CSI sequence ends with a byte from @ to ~; "[[" is the console's own beginning. */
static bool ends_sequence(const struct input *in)
{
	char c = in->seq[in->n - 1];

	if (in->n == 2)
		return c != '[' && c != 'O';
	if (in->n == 3 && in->seq[1] == '[' && c == '[')
		return false;
	return c >= '@' && c <= '~';
}

bool input_byte(struct input *in, char c, struct input_event *ret)
{
	unsigned char u = (unsigned char)c;

	if (in->is_swallowing) {
		in->is_swallowing = !(u >= '@' && u <= '~') && u != 27;
		if (u != 27)
			return false;
	}
	if (in->n && in->seq[0] != '\033')
		return char_byte(in, c, ret);
	if (!in->n && u != 27 && u < 0xC2)
		return u < 0x80 ? plain_byte(in, u, ret) : false;
	if (!in->n) {
		if (u > 0xF4)
			return false;
		in->seq[in->n++] = c;
		return false;
	}
	/* An Esc within a sequence: what was before it is let go, or was the key. */
	if (u == 27) {
		bool was_alone = in->n == 1;

		in->n = 1;
		return was_alone && !in->is_pasting && key_event(ret, KEY_ESC);
	}
	in->seq[in->n++] = c;
	if (ends_sequence(in))
		return finish(in, ret);
	if (in->n == INPUT_SEQ_MAX - 1) {
		in->n = 0;
		in->is_swallowing = true;
	}
	return false;
}

bool input_idle(struct input *in, struct input_event *ret)
{
	bool was_esc = in->n == 1 && in->seq[0] == '\033' && !in->is_pasting;

	/* A mouse report may take long over a slow line; only the Esc itself is let go, or what no terminal sends. */
	if (!was_esc && in->n && in->seq[0] == '\033' && in->n > 1 && in->seq[1] == '[')
		return false;
	in->n = 0;
	return was_esc && key_event(ret, KEY_ESC);
}

bool input_is_waiting(const struct input *in)
{
	return in->n > 0;
}

void input_key_name(uint32_t key, char ret[16])
{
	static const struct {
		uint32_t key;
		const char *name;
	} names[] = {{KEY_TAB, "Tab"}, {KEY_RETURN, "Enter"}, {KEY_ESC, "Esc"}, {' ', "Space"},
		{KEY_ERASE, "Backspace"}, {KEY_ARROW_UP, "Up"}, {KEY_ARROW_DOWN, "Down"},
		{KEY_ARROW_LEFT, "Left"}, {KEY_ARROW_RIGHT, "Right"}, {KEY_PAGE_UP, "PgUp"},
		{KEY_PAGE_DOWN, "PgDn"}, {KEY_FIRST, "Home"}, {KEY_LAST, "End"},
		{KEY_DELETE, "Del"}, {KEY_BACKTAB, "Shift-Tab"}};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].key == key) {
			snprintf(ret, 16, "%s", names[i].name);
			return;
		}
	if (key > KEY_FN && key <= KEY_FN_LAST)
		snprintf(ret, 16, "F%u", key - KEY_FN);
	else if (key < 0x20)
		snprintf(ret, 16, "Ctrl-%c", (char)('@' + key));
	else if (key < 0x7F)
		snprintf(ret, 16, "%c", (char)key);
	else
		snprintf(ret, 16, "?");
}
