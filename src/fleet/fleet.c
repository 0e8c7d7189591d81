/* The list of hosts and what they share. Everything about one host is in host.c. */
#include "fleet/fleet.h"

#include "base/alloc.h"
#include "fleet/host.h"
#include "fleet/ssh_site.h"

#include <stdlib.h>
#include <string.h>

struct fleet {
	struct event_base *base;
	struct fleet_options options;
	char *home;
	struct fleet_owner owner;
	struct ssh_site *site; /* made with the first host that needs it */
	struct err no_site; /* why there's none */
	struct host **hosts;
	size_t n, cap;
};

const char *host_state_name(enum host_state s)
{
	switch (s) {
	case HOST_CONNECTING:
		return "connecting";
	case HOST_UP:
		return "up";
	case HOST_TEXT:
		return "text";
	case HOST_NONE:
		return "none";
	case HOST_SUSPECT:
		return "suspect";
	case HOST_DOWN:
		return "down";
	case HOST_AUTH:
		return "auth";
	}
	return "?";
}

struct fleet *fleet_new(
	struct event_base *base, const struct fleet_options *o, const struct fleet_owner *owner)
{
	struct fleet *f = xcalloc(1, sizeof(*f));

	f->base = base;
	f->options = *o;
	f->home = xstrdup(o->home ? o->home : "");
	f->options.home = f->home;
	f->owner = *owner;
	return f;
}

void fleet_add(struct fleet *f, const struct host_config *config)
{
	if (config && !f->site && !f->no_site.text[0])
		ssh_site_new(f->base, f->home, f->options.can_ask, &f->site, &f->no_site);
	if (f->n == f->cap) {
		f->cap = f->cap ? f->cap * 2 : 8;
		f->hosts = xreallocarray(f->hosts, f->cap, sizeof(struct host *));
	}
	f->hosts[f->n] =
		host_new(f->base, config, f->n, &f->options, &f->owner, f->site, f->no_site.text);
	f->n++;
}

size_t fleet_count(const struct fleet *f)
{
	return f->n;
}

const struct fleet_host *fleet_at(const struct fleet *f, size_t i)
{
	return i < f->n ? &f->hosts[i]->pub : NULL;
}

void fleet_retry(struct fleet *f, size_t i)
{
	if (i < f->n)
		host_retry(f->hosts[i]);
}

void fleet_answer(struct fleet *f, uint64_t question, const char *answer)
{
	uint64_t i = question >> 32;

	if (i >= 1 && i <= f->n && f->hosts[i - 1]->link)
		link_answer(f->hosts[i - 1]->link, question & UINT32_MAX, answer);
}

int fleet_signal(struct fleet *f, size_t i, uint64_t request, int32_t pid, uint64_t start_ticks,
	int signo, struct err *e)
{
	if (i >= f->n)
		return err_set(e, -EINVAL, "there's no such host");
	return host_signal(f->hosts[i], request, pid, start_ticks, signo, e);
}

char *fleet_address(const struct fleet_host *h)
{
	const struct host_config *c = h->config;
	bool is_v6;

	if (!c)
		return NULL;
	is_v6 = strchr(c->hostname, ':') != NULL;
	return xasprintf("%s%s%s%s%s:%d", c->username ? c->username : "", c->username ? "@" : "",
		is_v6 ? "[" : "", c->hostname, is_v6 ? "]" : "", c->port);
}

bool fleet_has_answered(const struct fleet_host *h)
{
	switch (h->state) {
	case HOST_UP:
	case HOST_TEXT:
		return h->sample != NULL;
	case HOST_NONE:
		return true;
	case HOST_CONNECTING:
	case HOST_SUSPECT:
	case HOST_DOWN:
	case HOST_AUTH:
		break;
	}
	return false;
}

void fleet_free(struct fleet *f)
{
	if (!f)
		return;
	for (size_t i = 0; i < f->n; i++)
		host_free(f->hosts[i]);
	free(f->hosts);
	ssh_site_free(f->site);
	free(f->home);
	free(f);
}
