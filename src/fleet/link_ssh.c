/*
 * The transport over the user's own ssh: one child for the agent's channel, from the boot line to the end. It knows the
 * steps of first contact and why a channel ended; frames are the link's.
 *
 *   idle -> resolving (a stored password only) -> waiting (gate) -> booting -> open -> ending -> idle
 *                                                        `-- HAVE, then the end: once more, with the careful line alone
 */
#include "fleet/link_ssh.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "fleet/ssh_command.h"
#include "fleet/ssh_failure.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define RESOLVE_MS 20000 /* `Match exec` may run anything */
#define HELLO_MS 10000
#define LAST_MS 2000 /* what a login left in the background may keep ssh from ending */
#define AFTER_MS 200

static void begin(struct link_ssh *l);

static struct link_ssh *of(struct transport *t)
{
	return (struct link_ssh *)t;
}

void link_ssh_set_deadline(struct link_ssh *l, int64_t ms)
{
	struct timeval t = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	event_add(l->deadline, &t);
}

void link_ssh_drop_events(struct link_ssh *l)
{
	if (l->readable)
		event_free(l->readable);
	if (l->writable)
		event_free(l->writable);
	l->readable = l->writable = NULL;
}

/* Ends everything of this connection. Before frames flowed nothing that ssh started is of use to anybody. */
static void drop(struct link_ssh *l)
{
	link_ssh_drop_events(l);
	event_del(l->deadline);
	gate_leave(&l->seat);
	child_free(l->child, l->phase == SSH_BOOTING || l->phase == SSH_RESOLVING);
	l->child = NULL;
	boot_reader_done(&l->reader);
	l->reader = (struct boot_reader){0};
	l->upload = NULL;
	free(l->why);
	l->why = NULL;
	l->has_ended = false;
	l->phase = SSH_IDLE;
}

void link_ssh_fail(struct link_ssh *l, enum link_failure kind, const char *why)
{
	char *own = xstrdup(why);

	if (kind == LINK_FAIL_NET && l->phase != SSH_OPEN && l->memory.seen_wall_ms) {
		/* The next start, of whatever program, tries the others first. */
		l->memory.seen_wall_ms = 0;
		ssh_site_remember(l->site, buf_str(&l->key), &l->memory);
	}
	drop(l);
	l->is_careful = l->is_loud = false;
	link_failed(l->t.link, kind, own);
	free(own);
}

int link_ssh_code(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

/* ---- starting ssh ---- */

int link_ssh_start(struct link_ssh *l, const char *what, const char *command,
	void (*ended)(void *arg, int status), void *arg, struct child **ret, struct err *e)
{
	char *env[6] = {NULL};
	struct ssh_argv argv;
	size_t n = 0;
	int r;

	if (l->askpass) {
		env[n++] = xasprintf("SSH_ASKPASS=%s", l->site->askpass);
		env[n++] = xstrdup("SSH_ASKPASS_REQUIRE=force");
		env[n++] = xasprintf(ASKPASS_SOCKET "=%s", askpass_path(l->askpass));
		env[n++] = xasprintf(ASKPASS_TOKEN "=%s", askpass_token(l->askpass));
		/* Before OpenSSH 8.4 a display was what made ssh ask a program. */
		if (!getenv("DISPLAY"))
			env[n++] = xstrdup("DISPLAY=none");
	}
	ssh_argv_make(l->host, l->site->config, l->can_ask, l->is_loud, what, command, &argv);
	r = child_new(l->base,
		&(struct child_spec){
			.argv = (const char *const *)argv.v, .env = (const char *const *)env},
		ended, arg, ret, e);
	ssh_argv_done(&argv);
	while (n)
		free(env[--n]);
	return r;
}

/* ---- who will be asked ---- */

static void on_resolved(evutil_socket_t fd, short what, void *arg)
{
	struct link_ssh *l = arg;
	char bytes[4096];
	ssize_t n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);

	if (n > 0 && l->resolved.len < 1024 * 1024)
		buf_put(&l->resolved, bytes, (size_t)n);
	else if (n == 0)
		event_del(l->readable);
}

static void on_resolve_ended(void *arg, int status)
{
	struct link_ssh *l = arg;
	char bytes[4096];
	ssize_t n;

	while ((n = recv(child_fd(l->child), bytes, sizeof(bytes), MSG_DONTWAIT)) > 0 &&
		l->resolved.len < 1024 * 1024)
		buf_put(&l->resolved, bytes, (size_t)n);
	/* If ssh doesn't know, the channel's own ssh will say why; the password then goes nowhere. */
	ssh_read_resolved(buf_str(&l->resolved), &l->user, &l->prompt_host);
	buf_done(&l->resolved);
	drop(l);
	begin(l);
}

static void resolve(struct link_ssh *l)
{
	struct err e = {0};

	l->phase = SSH_RESOLVING;
	if (link_ssh_start(l, "-G", NULL, on_resolve_ended, l, &l->child, &e)) {
		link_ssh_fail(l, LINK_FAIL_AUTH, e.text);
		return;
	}
	shutdown(child_fd(l->child), SHUT_WR);
	l->readable = event_new(l->base, child_fd(l->child), EV_READ | EV_PERSIST, on_resolved, l);
	event_add(l->readable, NULL);
	link_ssh_set_deadline(l, RESOLVE_MS);
}

/* ---- the end ---- */

/* The child has ended and all it wrote was read: why? */
static void judge(struct link_ssh *l)
{
	struct buf noise = {0}, why = {0};
	int code = link_ssh_code(l->status);
	enum link_failure kind = LINK_FAIL_NET;

	/* The file was there and didn't come to speak: damaged, or of another processor. The careful line mends it. */
	if (l->has_have && !l->is_careful) {
		drop(l);
		l->is_careful = true;
		begin(l);
		return;
	}
	/* Only a jump host's connection comes from nowhere, and what its own ssh said was thrown away. */
	if (code == 255 && !l->why && !l->is_loud &&
		strstr(child_said(l->child), "UNKNOWN port 65535")) {
		drop(l);
		l->is_loud = true;
		begin(l);
		return;
	}
	boot_reader_noise(&l->reader, &noise);
	if (l->why && (code != 255 || !child_said(l->child)[0]))
		buf_puts(&why, l->why);
	else if (l->has_spoken && code != 255)
		buf_puts(&why, "the node ended the channel in the middle of the first contact");
	else
		kind = ssh_failure(
			code, child_said(l->child), buf_str(&l->by_hand), buf_str(&noise), &why);
	link_ssh_fail(l, kind, buf_str(&why));
	buf_done(&noise);
	buf_done(&why);
}

void link_ssh_ended(void *arg, int status)
{
	struct link_ssh *l = arg;

	l->status = status;
	l->has_ended = true;
	if (l->phase == SSH_BOOTING)
		link_ssh_read_boot(l);
	if (l->phase == SSH_BOOTING || l->phase == SSH_ENDING)
		judge(l);
	else if (l->phase == SSH_OPEN)
		/* The last frames may still be on their way to the link, which then closes by itself. */
		link_ssh_set_deadline(l, AFTER_MS);
}

void link_ssh_wait_for_end(struct link_ssh *l)
{
	link_ssh_drop_events(l);
	event_del(l->deadline);
	l->phase = SSH_ENDING;
	if (l->has_ended)
		judge(l);
	else
		child_end(l->child, LAST_MS);
}

/* ---- beginning ---- */

static void on_gate(void *arg)
{
	link_ssh_boot(arg);
}

/* A host that was reached a moment ago most likely has a master still: no handshake, so no gate. */
static void begin(struct link_ssh *l)
{
	ssh_site_recall(l->site, buf_str(&l->key), &l->memory);
	l->steps = (struct link_ssh_steps){.connected_at_ms = -1};
	if (l->host->password && l->host->auth != AUTH_KEY && !l->has_resolved) {
		l->has_resolved = true;
		resolve(l);
	} else if (l->is_careful || l->is_loud ||
		   clock_wall_ms() - l->memory.seen_wall_ms < SSH_PERSIST_S * 1000) {
		link_ssh_boot(l);
	} else {
		l->phase = SSH_WAITING;
		gate_wait(l->site->gate, &l->seat, l->memory.seen_wall_ms != 0, on_gate, l);
	}
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
	struct link_ssh *l = arg;
	struct buf noise = {0}, why = {0};

	if (l->phase == SSH_OPEN) {
		l->phase = SSH_ENDING;
		judge(l);
	} else if (l->phase == SSH_RESOLVING) {
		link_ssh_fail(l, LINK_FAIL_AUTH,
			"`ssh -G` doesn't come to an end; look at the Match lines of ssh's configuration");
	} else if (l->askpass && askpass_open(l->askpass)) {
		/* Somebody is thinking about a password. */
		link_ssh_set_deadline(l, SSH_SILENT_MS);
	} else {
		boot_reader_noise(&l->reader, &noise);
		buf_printf(&why, "no answer in %d s", SSH_SILENT_MS / 1000);
		if (noise.len)
			buf_printf(&why,
				"; the login shell has said \"%s\" so far: look at the account's login files",
				buf_str(&noise));
		link_ssh_fail(l, noise.len ? LINK_FAIL_SHELL : LINK_FAIL_NET, buf_str(&why));
		buf_done(&noise);
		buf_done(&why);
	}
}

/* ---- questions ---- */

static void on_asks(void *arg, uint64_t question, const char *prompt, bool is_secret)
{
	struct link_ssh *l = arg;

	if (l->host->password && !l->password_given &&
		askpass_is_password(prompt, l->user, l->prompt_host)) {
		l->password_given = true;
		askpass_answer(l->askpass, question, l->host->password);
	} else if (l->can_ask && l->asks) {
		l->asks(l->asks_arg, question, prompt, is_secret);
	} else {
		askpass_answer(l->askpass, question, NULL);
	}
}

/* ---- the transport ---- */

static void ssh_open(struct transport *t)
{
	begin(of(t));
}

static bool ssh_close(struct transport *t, const char *why)
{
	struct link_ssh *l = of(t);

	if (!why) {
		drop(l);
		return false;
	}
	if (l->phase != SSH_OPEN)
		return false;
	l->has_have = false;
	l->why = xstrdup(why);
	link_ssh_wait_for_end(l);
	return true;
}

static void ssh_free(struct transport *t)
{
	struct link_ssh *l = of(t);

	link_text_free_all(l);
	event_free(l->deadline);
	askpass_free(l->askpass);
	if (l->owns_site)
		ssh_site_free(l->site);
	buf_done(&l->key);
	buf_done(&l->by_hand);
	buf_done(&l->resolved);
	free(l->user);
	free(l->prompt_host);
	free(l);
}

static void ssh_answer(struct transport *t, uint64_t question, const char *answer)
{
	struct link_ssh *l = of(t);

	if (l->askpass)
		askpass_answer(l->askpass, question, answer);
}

static const struct link_ssh_steps *ssh_steps(const struct transport *t)
{
	return &((const struct link_ssh *)t)->steps;
}

/* 2, 5, 10, then 15 s, and up to a fifth more so that a lab doesn't come back all at once. */
static int64_t ssh_delay_ms(
	struct transport *t, enum link_failure kind, unsigned n_failures, bool was_up)
{
	static const int64_t delays_ms[] = {2000, 5000, 10000, 15000};
	int64_t ms = delays_ms[n_failures < 4 ? n_failures : 3];
	uint32_t chance;

	if (kind == LINK_FAIL_AUTH || kind == LINK_FAIL_HOST_KEY || kind == LINK_FAIL_AGENT)
		return -1;
	if (was_up)
		return 0;
	random_bytes(&chance, sizeof(chance));
	return ms + (int64_t)(chance % (uint32_t)(ms / 5));
}

static const struct transport_impl ssh_impl = {
	.open = ssh_open,
	.close = ssh_close,
	.free = ssh_free,
	.answer = ssh_answer,
	.run_text = link_text_run,
	.steps = ssh_steps,
	.delay_ms = ssh_delay_ms,
	.has_noise = true,
	.hello_ms = HELLO_MS,
};

/* A site that can't be had is told by the first try to connect. */
static int make_site(struct link_ssh *l, const struct link_ssh_options *o, struct err *e)
{
	static const struct askpass_owner no_owner;
	struct askpass_owner owner = no_owner;
	int r = 0;

	l->site = o->site;
	if (!l->site) {
		r = ssh_site_new(l->base, o->home, o->can_ask, &l->site, e);
		l->owns_site = !r;
	}
	if (r || (!l->can_ask && !(l->host->password && l->host->auth != AUTH_KEY)))
		return r;
	owner.arg = l;
	owner.asks = on_asks;
	return askpass_new(l->base, l->site->dir, &owner, &l->askpass, e);
}

struct link *link_new_ssh(struct event_base *base, const struct host_config *host,
	const struct link_ssh_options *o, const struct link_who *who,
	const struct link_owner *owner, struct err *e)
{
	struct link_ssh *l = xcalloc(1, sizeof(*l));

	l->t.impl = &ssh_impl;
	l->base = base;
	l->host = host;
	l->can_ask = o->can_ask;
	l->asks = o->asks;
	l->asks_arg = owner->arg;
	l->deadline = evtimer_new(base, on_deadline, l);
	if (make_site(l, o, e)) {
		ssh_free(&l->t);
		return NULL;
	}
	ssh_key(host, &l->key);
	ssh_by_hand(host, &l->by_hand);
	return link_new(base, &l->t, who, owner);
}
