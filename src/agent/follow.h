/*
 * One file on its way to one client (docs/wire.md, `file`): from its last lines or from an offset, to its end or for as long
 * as an attempt lives. Never more of it under way than the client gave credit for, nor more in the client's buffer than a
 * moment's worth; whatever else is to be said to the client doesn't wait for it.
 *
 * It's done by a process of its own (follow_fork), for opening, reading and even closing may hang with the disk.
 *
 *   waiting --it's there--> scanning (lines only) --> sending --all is out, nothing more will come--> over
 *      `------ nothing will come ------------------------^ `-- shrunk, or another file of that name: anew at 0
 */
#pragma once

#include "agent/client.h"
#include "agent/tail.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define FOLLOW_MAX (64 * 1024 * 1024)

enum follow_state { FOLLOW_WAITING, FOLLOW_SCANNING, FOLLOW_SENDING, FOLLOW_OVER };

struct follow {
	int64_t id; /* the stream's */
	enum follow_state state;
	char *path; /* owned */
	int64_t lines; /* -1: from `offset` */
	int64_t offset, max;
	bool follow; /* more as it grows; max then bounds only what `lines` begins with */
	bool has_ended; /* nothing more will be written: known before a look */
	int fd; /* -1: not open */
	uint64_t dev, ino;
	bool is_new_fd; /* it isn't watched yet */
	bool is_absent_told, is_name_due;
	bool has_more; /* the end wasn't met yet */
	struct tail tail;
	int64_t pos, end; /* next byte; where it ends, -1: wherever the file does */
	int64_t sent, credited;
	int64_t look_at_ms;
};

void follow_done(struct follow *f);
/* Takes the client's word that it has taken n bytes. */
void follow_credit(struct follow *f, int64_t n);
/*
 * Goes as far as it can and says so to the client. Negative: it's to be told as an error, and the stream is over. At
 * FOLLOW_OVER everything was said.
 */
int follow_turn(struct follow *f, struct client *c, int64_t now_ms, struct err *e);
/* Until something is to be done; -1: when something happens. */
int64_t follow_wait_ms(const struct follow *f, const struct client *c, int64_t now_ms);

#define FOLLOW_NAME "gpustow-reader" /* of the process */
/*
 * Forks a process that follows *f, and says so on *ret_fd in frames: `file`, `over`, `error`, and its bytes; `over` or
 * `error` is the last one. To it go {"credit": n} and, when the attempt's state has changed, {"ended": bool}. It ends when
 * the descriptor is closed, and with its parent. Its pid, or -errno.
 */
pid_t follow_fork(const struct follow *f, int *ret_fd);
