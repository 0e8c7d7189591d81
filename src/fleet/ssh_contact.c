/*
 * First contact over SSH: from the boot line to the first frame. It sends the agent when it's asked for, learns the
 * host's processor, and says why it didn't come to frames. What happens around it is link_ssh.c's.
 */
#include "fleet/link_ssh.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "config/config.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define REFUSED_MS \
	((int64_t)3600 * \
		1000) /* an agent that was sent and didn't run isn't sent again for so long */

static void remember(struct link_ssh *l)
{
	l->memory.seen_wall_ms = clock_wall_ms();
	ssh_site_remember(l->site, buf_str(&l->key), &l->memory);
}

static void write_upload(struct link_ssh *l)
{
	while (l->upload_at < l->upload->n) {
		ssize_t n = send(child_fd(l->child), (const char *)l->upload->bytes + l->upload_at,
			l->upload->n - l->upload_at, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			event_add(l->writable, NULL);
			link_ssh_set_deadline(l, SSH_SILENT_MS);
			return;
		}
		/* The end of what can be read tells why. */
		if (n < 0)
			return;
		l->upload_at += (size_t)n;
	}
	link_ssh_set_deadline(l, SSH_SILENT_MS);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	write_upload(arg);
}

static void start_upload(struct link_ssh *l, const struct boot_event *ev)
{
	bool is_recent = clock_wall_ms() - l->memory.seen_wall_ms < REFUSED_MS;

	for (size_t i = 0; i < l->ask.n_agents; i++)
		if (!strcmp(l->ask.agents[i].cpu, ev->cpu) &&
			l->ask.agents[i].n == (size_t)ev->number)
			l->upload = &l->ask.agents[i];
	if (!l->upload) {
		link_ssh_fail(l, LINK_FAIL_AGENT, "the node asked for an agent that isn't carried");
		return;
	}
	if (is_recent && !strcmp(l->memory.refused, l->upload->hash)) {
		link_ssh_fail(l, LINK_FAIL_AGENT,
			"the agent doesn't run there (tried within the last hour): another C library, or a "
			"policy against it");
		return;
	}
	l->upload_at = 0;
	l->steps.was_uploaded = true;
	write_upload(l);
}

static void take_ready(struct link_ssh *l, const struct boot_event *ev, const char *rest, size_t n)
{
	memcpy(l->memory.cpu, ev->cpu, sizeof(l->memory.cpu));
	memcpy(l->steps.cpu, ev->cpu, sizeof(l->steps.cpu));
	l->memory.refused[0] = '\0';
	remember(l);
	link_ssh_drop_events(l);
	event_del(l->deadline);
	l->phase = SSH_OPEN;
	l->is_careful = l->is_loud = false;
	link_opened(l->t.link, child_take_fd(l->child), rest, n);
}

static void take_fail(struct link_ssh *l, const struct boot_event *ev)
{
	char *why = xasprintf("the agent can't run there: %s", ev->text);

	/* Only what was sent and then didn't run would be sent again each time. */
	if (l->upload && strstr(ev->text, "does not run from")) {
		memcpy(l->memory.refused, l->upload->hash, sizeof(l->memory.refused));
		remember(l);
	}
	link_ssh_fail(l, LINK_FAIL_AGENT, why);
	free(why);
}

static void take_nonsense(struct link_ssh *l)
{
	struct buf why = {0}, noise = {0};

	boot_reader_noise(&l->reader, &noise);
	buf_printf(&why,
		"the login shell printed more than gpustow reads, or something it can't understand; the last was "
		"\"%s\"",
		buf_str(&noise));
	link_ssh_fail(l, LINK_FAIL_SHELL, buf_str(&why));
	buf_done(&noise);
	buf_done(&why);
}

/* True while more may be read for this phase. */
static bool take_event(struct link_ssh *l, const struct boot_event *ev, const char *rest, size_t n)
{
	char *why;

	if (ev->word == BOOT_MORE)
		return true;
	if (!l->has_spoken)
		l->steps.connected_at_ms = clock_boot_ms();
	l->has_spoken = true;
	gate_leave(&l->seat);
	link_ssh_set_deadline(l, SSH_SILENT_MS);
	switch (ev->word) {
	case BOOT_HAVE:
		l->has_have = true;
		break;
	case BOOT_NEED:
		start_upload(l, ev);
		break;
	case BOOT_READY:
		take_ready(l, ev, rest, n);
		break;
	case BOOT_OTHER:
		why = xasprintf("there's no agent for %s", ev->text);
		link_ssh_fail(l, LINK_FAIL_AGENT, why);
		free(why);
		break;
	case BOOT_FAIL:
		take_fail(l, ev);
		break;
	default:
		take_nonsense(l);
		break;
	}
	return l->phase == SSH_BOOTING;
}

/* Reads what's there; may leave the phase. */
void link_ssh_read_boot(struct link_ssh *l)
{
	char bytes[16384];
	ssize_t n;

	while (l->phase == SSH_BOOTING &&
		(n = recv(child_fd(l->child), bytes, sizeof(bytes), MSG_DONTWAIT)) != 0) {
		size_t at = 0;
		struct boot_event ev;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0)
			break;
		link_ssh_set_deadline(l, SSH_SILENT_MS);
		do {
			at += boot_reader_put(&l->reader, bytes + at, (size_t)n - at, &ev);
		} while (take_event(l, &ev, bytes + at, (size_t)n - at) && at < (size_t)n);
	}
	if (l->phase == SSH_BOOTING && !l->has_ended)
		link_ssh_wait_for_end(l);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	link_ssh_read_boot(arg);
}

void link_ssh_boot(struct link_ssh *l)
{
	struct buf line = {0};
	struct err e = {0};
	int r;

	l->phase = SSH_BOOTING;
	l->has_have = l->has_spoken = l->password_given = false;
	l->ask = (struct boot_ask){.agents = l->site->agents,
		.n_agents = l->site->n_agents,
		.agent_dir = l->host->agent_dir,
		.cpu = l->is_careful || !l->memory.cpu[0] ? NULL : l->memory.cpu};
	random_hex((BOOT_NONCE_LEN - 1) / 2, l->ask.nonce);
	boot_reader_init(&l->reader, l->ask.nonce);
	r = boot_line(&l->ask, &line, &e);
	if (r) {
		link_ssh_fail(l, LINK_FAIL_AGENT, e.text);
	} else if (link_ssh_start(l, NULL, buf_str(&line), link_ssh_ended, l, &l->child, &e)) {
		link_ssh_fail(l, LINK_FAIL_AUTH, e.text);
	} else {
		l->readable = event_new(
			l->base, child_fd(l->child), EV_READ | EV_PERSIST, on_readable, l);
		l->writable = event_new(l->base, child_fd(l->child), EV_WRITE, on_writable, l);
		event_add(l->readable, NULL);
		link_ssh_set_deadline(l, SSH_SILENT_MS);
	}
	buf_done(&line);
}
