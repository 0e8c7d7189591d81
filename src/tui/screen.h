/*
 * The terminal, the only file that touches one: alternate screen, colours, mouse reports, keys, and the way back on
 * every way out. At most one at a time, for the way back from a signal needs it.
 */
#pragma once

#include "base/err.h"
#include "tui/frame.h"
#include "tui/input.h"
#include "tui/theme.h"

#include <stdbool.h>
#include <stdint.h>

struct screen;

/*
 * Takes the terminal at stdin and stdout over: raw mode, alternate screen, cursor hidden. -ENOTTY with a sentence where
 * there's none or it can't move its cursor (TERM=dumb, unset, unknown). SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT give it
 * back before they end the process, and so does exit().
 */
int screen_open(struct screen **ret, const struct theme *theme, bool wants_mouse, struct err *e);
void screen_close(struct screen *s); /* gives it back; NULL does nothing */
void screen_size(const struct screen *s, int *ret_cols, int *ret_rows);
bool screen_is_ascii(const struct screen *s);
/*
 * What changed since the last picture, and nothing when nothing did; the bottom row is never written. Nothing waits for the
 * terminal: what it doesn't take at once is the backlog, which never has more than one picture. While there's one, further
 * pictures are left out; the first after it is drawn whole. Returns whether this one is on its way; screen_push sends it.
 */
bool screen_show(struct screen *s, const struct frame *f);
/* As much of the backlog as the terminal takes now; -EIO when it's gone. */
int screen_push(struct screen *s);
bool screen_has_backlog(const struct screen *s);
/* A picture was left out: the latest is to be shown once there's no backlog. */
bool screen_is_behind(const struct screen *s);
/* To wait for its being writable. */
int screen_fd(const struct screen *s);
/* The next one is drawn whole (Ctrl-L, after a stop). */
void screen_forget(struct screen *s);
void screen_theme(struct screen *s, const struct theme *theme);
/* Bytes that are there, without waiting, into the input; -EIO when the terminal is gone. Events go to `take`. */
int screen_read(struct screen *s, void (*take)(void *arg, const struct input_event *ev), void *arg);
/* Esc's time is over. */
void screen_idle(
	struct screen *s, void (*take)(void *arg, const struct input_event *ev), void *arg);
bool screen_is_waiting(const struct screen *s);
/* The terminal has another size (SIGWINCH): reads it and forgets the picture. */
void screen_resized(struct screen *s);
/* Gives the terminal back and stops the process group as Ctrl-Z does; takes it over again when it goes on. */
void screen_stop(struct screen *s);
