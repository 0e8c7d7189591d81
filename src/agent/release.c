/* Who wants the driver let go of, and what stands in the way. */
#include "agent/release.h"

#include "agent/answer.h"
#include "agent/server.h"

#include <string.h>

#define CLOSE_MS 5000

void release_ask(struct agent *a, struct client *c, bool is_forced)
{
	c->release = RELEASE_WANTED;
	c->release_forced = is_forced;
	c->release_since_ms = a->now_ms;
}

void release_resume(struct agent *a, struct client *c)
{
	c->release = RELEASE_NONE;
	release_turn(a);
}

/* The attempts that use a card or are about to: the whole list, of all of this user's queues. */
static json_t *jobs_on_cards(const struct agent *a)
{
	json_t *list = json_array();

	for (size_t i = 0; i < a->attempts.n; i++) {
		const struct attempt *at = a->attempts.items[i];

		if (at->n_cards && attempt_is_live(at))
			json_array_append_new(list,
				json_pack("{s:s, s:I, s:I, s:i}", "queue", at->name.queue, "job",
					(json_int_t)at->name.job, "attempt",
					(json_int_t)at->name.attempt, "pid", (int)at->rec.pid));
	}
	return list;
}

static void begin(struct agent *a, struct client *c)
{
	json_t *jobs;

	if (!launch_is_empty(&a->launch))
		return;
	jobs = jobs_on_cards(a);
	if (json_array_size(jobs) && !c->release_forced) {
		client_send(c, json_pack("{s:s, s:o}", "op", "held-by", "jobs", jobs));
		c->release = RELEASE_NONE;
		return;
	}
	json_decref(jobs);
	if (!sampler_is_released(a->sampler)) {
		agent_log(a, "the GPU driver is let go of for %s", c->who);
		sampler_release(a->sampler, a->now_ms);
	}
	c->release = RELEASE_CLOSING;
	c->release_since_ms = a->now_ms;
}

static void finish(struct agent *a, struct client *c)
{
	if (sampler_has_let_go(a->sampler) && profiler_is_gone(a->profiler)) {
		c->release = RELEASE_HELD;
		client_send(c, json_pack("{s:s}", "op", "released"));
	} else if (a->now_ms - c->release_since_ms >= CLOSE_MS) {
		c->release = RELEASE_NONE;
		client_error(c,
			"the driver doesn't let gpustow's sampler end: it hangs in the kernel, and the card is in use until a reboot");
	}
}

void release_turn(struct agent *a)
{
	bool is_wanted = false;

	for (size_t i = 0; i < a->n_clients; i++) {
		struct client *c = a->clients[i];

		if (c->is_dead || c->is_closing)
			continue;
		if (c->release == RELEASE_WANTED)
			begin(a, c);
		if (c->release == RELEASE_CLOSING)
			finish(a, c);
		is_wanted |= c->release == RELEASE_CLOSING || c->release == RELEASE_HELD;
	}
	if (!is_wanted && sampler_is_released(a->sampler)) {
		agent_log(a, "the GPU driver may be opened again");
		sampler_resume(a->sampler, a->now_ms);
	}
}
