/*
 * One attempt of one job, as the node knows it: its name, its token, how far it came and how it ended.
 *
 *   claimed --> started --> ended          protocol.md 2, 4 and 5
 *      `----------------------^            launch failed, cancelled before the start, rebooted
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define ID_LEN 33 /* 128 random bits as 32 hex digits and a NUL */

struct attempt_name {
	char queue[ID_LEN];
	uint64_t job; /* the queue's number, from 1 */
	uint32_t attempt; /* from 1, a new one for each bind */
};

/* "<queue>/<job>.<attempt>": the claim's directory below claims/, and the value of GPUSTOW_MARK. */
#define ATTEMPT_NAME_LEN 72
void attempt_name_format(const struct attempt_name *n, char ret[ATTEMPT_NAME_LEN]);
int attempt_name_parse(const char *s, struct attempt_name *ret);
/* 32 lower-case hex digits and nothing else. */
bool id_is_valid(const char *s);
bool attempt_name_equal(const struct attempt_name *a, const struct attempt_name *b);

enum attempt_state { ATTEMPT_CLAIMED = 1, ATTEMPT_STARTED, ATTEMPT_ENDED };

enum end_how {
	END_EXIT = 1, /* exit code in .code */
	END_SIGNAL, /* killed by signal .code, not by our doing */
	END_STOPPED, /* our TERM or KILL; .reason says why; .code/.by_signal what the leader then said */
	END_LAUNCH_FAILED, /* never ran: chdir, log file or exec failed; .code = errno */
	END_NOT_STARTED, /* cancelled before the start */
	END_VANISHED, /* the process is gone and nobody saw how */
	END_REBOOTED, /* the machine went down under it */
	END_HOW_N,
};

enum stop_reason { STOP_NONE, STOP_CANCEL, STOP_TIMEOUT, STOP_SHUTDOWN, STOP_REASON_N };

struct attempt_end {
	enum end_how how;
	enum stop_reason reason;
	int32_t code; /* with END_STOPPED: -1 when nobody saw what the leader said */
	bool by_signal; /* with END_STOPPED: code is a signal number */
	bool was_killed; /* KILL was needed after the grace */
	bool seen_by_shim; /* false: the agent or a later one wrote it down */
	int64_t started_boot_ms, ended_boot_ms; /* 0 when it never started */
	int64_t started_wall_ms, ended_wall_ms;
	char text[160]; /* launch failed: the step that failed, as words; else "" */
};

const char *attempt_state_name(enum attempt_state s);
const char *end_how_name(enum end_how h);
const char *stop_reason_name(enum stop_reason r);
int attempt_state_from_name(const char *s, enum attempt_state *ret);
int end_how_from_name(const char *s, enum end_how *ret);
int stop_reason_from_name(const char *s, enum stop_reason *ret);
