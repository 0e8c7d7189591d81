/*
 * First contact with a node (docs/ssh.md): the one line that its login shell is given, and the reader of what comes back
 * until frames begin. Pure: text out, bytes in, events out.
 *
 *   -> line            <- noise of rc files, skipped
 *                      <- HAVE                         a file of the right name is there and is being started
 *                      <- NEED cpu n  -> n bytes       and not one more until the node has spoken
 *                      <- READY build=N cpu=C          frames begin with the next byte
 *                      <- OTHER system cpu             no agent for such a machine
 *                      <- FAIL reason                  no place, doesn't run, doesn't start
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BOOT_NONCE_LEN 17 /* 16 hex digits and a NUL */
#define BOOT_NOISE_MAX \
	(4 * 1024 * 1024) /* what a login may print before our first line, and between our lines */
#define BOOT_LINE_MAX 4096 /* a line of ours is never longer */

/* An agent that is carried along. */
struct boot_agent {
	const char *cpu; /* as `uname -m` says it */
	char hash[65];
	const void *bytes;
	size_t n;
};

struct boot_ask {
	const struct boot_agent *agents;
	size_t n_agents;
	char nonce[BOOT_NONCE_LEN];
	const char *
		cpu; /* the node's processor, known from an earlier contact: starts the agent without a process before it; NULL */
	const char *
		agent_dir; /* absolute, the first place to look and to put it; NULL: the usual places */
};

/*
 * The whole command for ssh's last argument, one line without ' inside its quotes, \, ! or newline: what every login shell
 * that was tried takes unchanged. -EINVAL when agent_dir can't be said in such a line.
 */
int boot_line(const struct boot_ask *a, struct buf *out, struct err *e);

/*
 * A line for any other command, its output between "MARK OUT" and "MARK END status". -EINVAL if the command holds one of
 * the characters above.
 */
int boot_text_line(const char *nonce, const char *command, struct buf *out, struct err *e);

enum boot_word {
	BOOT_MORE, /* nothing yet */
	BOOT_HAVE,
	BOOT_NEED,
	BOOT_READY,
	BOOT_OTHER,
	BOOT_FAIL,
	BOOT_OUT,
	BOOT_END,
	BOOT_NONSENSE, /* a line of ours that can't be understood, or more noise than BOOT_NOISE_MAX */
};

struct boot_event {
	enum boot_word word;
	char text[1024]; /* what follows the word, control characters replaced */
	char cpu[32]; /* NEED, READY */
	int64_t number; /* NEED: bytes; READY: build; END: status */
};

struct boot_reader {
	char mark[8 + BOOT_NONCE_LEN];
	struct buf line;
	size_t n_noise;
	bool is_skipping; /* in a line too long to be ours */
	char last[256]; /* the end of the noise, for the error's text */
	size_t n_last;
};

void boot_reader_init(struct boot_reader *r, const char *nonce);
void boot_reader_done(struct boot_reader *r);
/* Takes bytes up to the end of the first line of ours, at most n; returns how many. ret->word says what it was. */
size_t boot_reader_put(struct boot_reader *r, const char *bytes, size_t n, struct boot_event *ret);
/* The end of the noise as one clean line; "" when nothing was said. */
void boot_reader_noise(const struct boot_reader *r, struct buf *out);
