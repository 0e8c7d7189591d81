/*
 * The far end of a client's channel (docs/ssh.md): finds or starts this user's resident agent, says so on a line of its
 * own, and carries bytes both ways until either side ends. It knows frames only for its one question to the agent.
 *
 *   ""                            an empty line, so that what came before it can't swallow the next
 *   "MARK READY build=N cpu=C"    frames begin with the next byte; N is the build of the agent that answers
 *   "MARK FAIL <sentence>"        there's no agent to be had here
 */
#pragma once

/*
 * `hash` (may be NULL): what this program's file must be; another one and it leaves without a word, for the client then
 * sends the line that looks more closely. Returns the exit status.
 */
int attach_run(const char *mark, const char *hash);
