/*
 * The terminal in somebody's hands for a while: keys as they're pressed, signals as events, and everything put back by
 * tty_end, whichever way one leaves. And plain questions with a line for an answer.
 */
#pragma once

#include "base/err.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <termios.h>

/* Zeroed: not begun. */
struct tty {
	bool is_begun;
	struct termios before;
	sigset_t mask_before;
	int signal_fd;
};

/* stdin and stdout are a terminal, and one that can be spoken to. */
bool tty_is_there(void);
/* No echo, key by key; Ctrl-C is the byte 3. SIGINT, TERM, HUP, QUIT and WINCH come through tty_wait. */
int tty_begin(struct tty *t, struct err *e);
void tty_end(struct tty *t);
/* 1: stdin can be read; 0: the time is over (ms < 0: never); -EINTR: the window's size changed; -ECANCELED: told to end. */
int tty_wait(struct tty *t, int ms);
/* Rows and columns; 24 and 80 where nobody says. */
void tty_size(int *ret_rows, int *ret_cols);

/*
 * Prompts on stdout, reads a line from stdin without its end and the blanks around it. -ECANCELED with a sentence when the
 * input ends. ret is cut at size - 1.
 */
int tty_ask(const char *prompt, char *ret, size_t size, struct err *e);
/* y or n, Enter is the default. "[Y/n]" is part of the prompt. */
int tty_ask_yes(const char *prompt, bool enter_is_yes, bool *ret, struct err *e);
/* The first line of stdin, to its end; on a terminal after the prompt and without echo. */
int tty_ask_secret(const char *prompt, char *ret, size_t size, struct err *e);
