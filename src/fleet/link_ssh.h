/* Inside of the SSH transport, shared by link_ssh.c (the agent's channel) and link_text.c (single commands). */
#pragma once

#include "base/buf.h"
#include "fleet/askpass.h"
#include "fleet/boot.h"
#include "fleet/child.h"
#include "fleet/link_inner.h"
#include "fleet/ssh_site.h"

enum ssh_phase {
	SSH_IDLE,
	SSH_RESOLVING, /* `ssh -G`: who is it that will be asked for a password? */
	SSH_WAITING, /* at the gate */
	SSH_BOOTING, /* the node's shell is to speak */
	SSH_OPEN, /* frames flow; the descriptor is the link's */
	SSH_ENDING, /* the channel has ended, ssh hasn't yet */
};

struct text_run;

struct link_ssh {
	struct transport t;
	struct event_base *base;
	const struct host_config *host;
	struct ssh_site *site;
	bool owns_site, can_ask;
	void (*asks)(void *arg, uint64_t question, const char *prompt, bool is_secret);
	void *asks_arg;
	struct buf key, by_hand;
	struct askpass *askpass; /* NULL: ssh is in batch mode */
	char *user,
		*prompt_host; /* as ssh resolves them, for the password's prompt; NULL: not needed or not known */
	bool has_resolved;
	bool password_given; /* in this connection */

	enum ssh_phase phase;
	struct gate_seat seat;
	struct child *child;
	struct event *readable, *writable, *deadline;
	struct boot_reader reader;
	struct boot_ask ask;
	struct ssh_memory memory;
	bool is_loud; /* this connection is made once more, to hear what the jump host says */
	bool is_careful; /* the fast line has failed in this connection */
	bool has_have, has_spoken;
	const struct boot_agent *upload;
	size_t upload_at;
	struct buf resolved;
	char *why; /* what the link saw; NULL: nothing */
	bool has_ended; /* the child, while the channel is open still */
	int status;
	struct link_ssh_steps steps;
	struct text_run *runs;
};

#define SSH_SILENT_MS 30000 /* between ssh's start and the first byte, and between two steps */

/* ---- link_ssh.c ---- */

void link_ssh_set_deadline(struct link_ssh *l, int64_t ms);
void link_ssh_drop_events(struct link_ssh *l);
/* Ends this connection and tells the link. */
void link_ssh_fail(struct link_ssh *l, enum link_failure kind, const char *why);
/* The channel has ended; ssh's own end then says why. */
void link_ssh_wait_for_end(struct link_ssh *l);
void link_ssh_ended(void *arg, int status);

/* ---- ssh_contact.c ---- */

void link_ssh_boot(struct link_ssh *l);
/* Takes what has arrived; may leave the phase. */
void link_ssh_read_boot(struct link_ssh *l);

/* Arguments, environment and child of one ssh to this host. */
int link_ssh_start(struct link_ssh *l, const char *what, const char *command,
	void (*ended)(void *arg, int status), void *arg, struct child **ret, struct err *e);
/* ssh's exit code from a wait status: a signal counts as ssh's own failure. */
int link_ssh_code(int status);

void link_text_run(struct transport *t, const char *command, int64_t limit_ms, size_t max_bytes,
	void (*done)(void *arg, int status, const char *out, size_t n, const char *err_text),
	void *arg);
void link_text_free_all(struct link_ssh *l);
