/*
 * Names of users by uid, asked for in a process of their own: the directory behind getpwuid may be a server that
 * doesn't answer, and who asks for GPU figures mustn't wait for it. A name that isn't known yet is "", and is there in
 * a later sample.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#define USER_NAME_LEN 33

struct users; /* opaque */

struct users *users_new(void);
/* Ends a look-up in hand; doesn't wait for one that can't die. */
void users_free(struct users *u);

/* The name, or "" when there's none, or none yet. Never waits. Remembers that the uid is wanted. */
const char *users_name(struct users *u, uint32_t uid, int64_t now_ms);
/* Starts a look-up of what's wanted, and takes in what one has found; waits wait_ms at most. */
void users_turn(struct users *u, int64_t now_ms, int wait_ms);
