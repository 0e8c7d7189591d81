/* Why ssh ended, from its exit code and what it said: the kind, and one sentence with the way out. Pure. */
#pragma once

#include "base/buf.h"
#include "fleet/link.h"

/*
 * status: ssh's exit code; 255 is its own failure, anything else the remote command's. said: its stderr. command: how a
 * person reaches the host by hand ("ssh -p 2222 alice@gpu1"), for the way out. noise: what the login printed before it
 * ended; "" for nothing. *out gets the sentence.
 */
enum link_failure ssh_failure(
	int status, const char *said, const char *command, const char *noise, struct buf *out);
