/*
 * XID errors: the driver's own event set, one for all cards, looked into with every sample without waiting. It's made
 * with each enumeration and given back before the library is shut down. A library without events has no XIDs.
 */
#include "gpu/nvml.h"

#include "core/xid.h"

#define EVENTS_MAX 256 /* taken at once; a storm is counted further with the next sample */

void nvml_event_start(struct nvml *n)
{
	const struct nvml_functions *f = &n->lib.fn;

	n->events = NULL;
	if (f->event_set_create == NULL || f->event_set_free == NULL || f->event_types == NULL ||
		f->event_register == NULL || f->event_wait == NULL)
		return;
	for (uint32_t i = 0; i < n->n_cards; i++) {
		struct nvml_card *c = &n->cards[i];
		uint64_t types = 0;

		c->has_xids = false;
		if (c->handle == NULL || f->event_types(c->handle, &types) != NVML_OK ||
			!(types & NVML_EVENT_XID))
			continue;
		if (n->events == NULL && f->event_set_create(&n->events) != NVML_OK) {
			n->events = NULL;
			return;
		}
		c->has_xids = f->event_register(c->handle, NVML_EVENT_XID, n->events) == NVML_OK;
	}
}

void nvml_event_stop(struct nvml *n)
{
	if (n->events != NULL)
		n->lib.fn.event_set_free(n->events);
	n->events = NULL;
}

static void take_xid(struct nvml_card *c, int64_t xid, int64_t wall_ms, int64_t boot_ms)
{
	c->xid_count++;
	if (!xid_replaces(xid, c->xid_last, boot_ms - c->xid_boot_ms))
		return;
	c->xid_last = xid;
	c->xid_wall_ms = wall_ms;
	c->xid_boot_ms = boot_ms;
}

void nvml_event_take(struct nvml *n, int64_t wall_ms, int64_t boot_ms)
{
	for (int k = 0; n->events != NULL && k < EVENTS_MAX; k++) {
		struct nvml_event ev = {0};

		int64_t begun_us = nvml_call_begin();
		int code = n->lib.fn.event_wait(n->events, &ev, 0);

		nvml_call_end(n, NULL, "events", begun_us);
		/* A time-out is "nothing more"; with an error there's nothing either. */
		if (code != NVML_OK)
			return;
		for (uint32_t i = 0; ev.type == NVML_EVENT_XID && i < n->n_cards; i++) {
			struct nvml_card *c = &n->cards[i];

			if (ev.device == NULL || c->handle != ev.device)
				continue;
			take_xid(
				c, ev.value > INT32_MAX ? -1 : (int64_t)ev.value, wall_ms, boot_ms);
		}
	}
}
