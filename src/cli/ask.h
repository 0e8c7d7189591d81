/*
 * Questions of ssh to the person at the terminal (a password, a host key), one after another, while the hosts that ask
 * nothing go on being looked at. It owns the terminal's echo: whatever ends a question puts it back.
 */
#pragma once

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

struct ask;

/* NULL when there's no terminal to ask at. answered: text is NULL when it was refused (an empty line, the end of input). */
struct ask *ask_new(struct event_base *base,
	void (*answered)(void *arg, uint64_t question, const char *text), void *arg);
/* host and prompt may be anything: they're cleaned. */
void ask_put(
	struct ask *a, uint64_t question, const char *host, const char *prompt, bool is_secret);
/* Time during which somebody was thought about, so far: it isn't the hosts' fault. */
int64_t ask_spent_ms(const struct ask *a);
bool ask_is_open(const struct ask *a);
void ask_free(struct ask *a);
