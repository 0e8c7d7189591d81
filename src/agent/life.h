/*
 * How an agent comes and goes (protocol.md 10): the lock on agent.lock owns the sockets' names. Coming: lock, unlink,
 * bind, listen. Leaving: accept once more, stop listening, unlink, unlock.
 */
#pragma once

#include <stdbool.h>

struct agent;

/* The socket's name is there and still ours. */
bool life_has_socket(const struct agent *a);
/* Tells everybody, removes the names. False when somebody came at the last moment, and it stays. */
bool life_leave(struct agent *a);
/*
 * After the leave: jobs whose shims were killed are this process's children, and only their parent learns how they end. It
 * gives the lock, the sockets and the promises to the next agent and stays as their shim, holding their claims' locks.
 */
void life_stay(struct agent *a);
