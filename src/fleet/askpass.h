/*
 * ssh's questions (a password, a passphrase, a host key) on their way to who can answer. ssh starts SSH_ASKPASS, which is
 * this program under the name gpustow-askpass; it brings the question to a private socket and prints the answer. The
 * environment holds the socket's path and a random word, never a secret; the socket is ours alone, and a peer must be of
 * our user and know the word.
 *
 *   askpass -> link:   "<token>\n<kind>\n<prompt>" and the end of writing; kind is $SSH_ASKPASS_PROMPT or ""
 *   link -> askpass:   "+<answer>" or "-", and the end
 */
#pragma once

#include "base/err.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

#define ASKPASS_NAME "gpustow-askpass"
#define ASKPASS_SOCKET "GPUSTOW_ASKPASS_SOCKET"
#define ASKPASS_TOKEN "GPUSTOW_ASKPASS_TOKEN"
#define ASKPASS_PROMPT_MAX 4096

/* ---- the program's side ---- */

/* What `gpustow-askpass PROMPT` does; returns the exit code. */
int askpass_main(int argc, char **argv);

/* ---- prompts; pure ---- */

/*
 * ssh's own question for exactly that account's password: "user@host's password: ", or "(user@host) Password: " of the
 * keyboard-interactive kind. What stands before the colon is made by ssh and not by the server in the first, and up to
 * the parenthesis in the second; anything else that a server may say there is no password prompt.
 */
bool askpass_is_password(const char *prompt, const char *user, const char *host);
/* Must the answer be hidden? Not for a yes or no about a host key. */
bool askpass_is_secret(const char *prompt);

/* ---- the link's side ---- */

struct askpass;

struct askpass_owner {
	void *arg;
	/* Answer with askpass_answer, now or later. */
	void (*asks)(void *arg, uint64_t question, const char *prompt, bool is_secret);
};

/* Listens below dir. */
int askpass_new(struct event_base *base, const char *dir, const struct askpass_owner *owner,
	struct askpass **ret, struct err *e);
const char *askpass_path(const struct askpass *a);
const char *askpass_token(const struct askpass *a);
/* NULL: refused. A question that isn't open any more is ignored. */
void askpass_answer(struct askpass *a, uint64_t question, const char *answer);
size_t askpass_open(const struct askpass *a); /* questions that wait */
void askpass_free(struct askpass *a);
