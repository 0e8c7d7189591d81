/*
 * The limits that a lane's jobs were handed out with: headroom, jobs on a card and the like stand in each entry, and its node
 * goes by them with nobody there. When the settings have changed since, what waits there is let go of and handed out anew
 * (W-02). Kept in the record as {"n1:0": "limits"}, so that it doesn't matter who made the change, or when.
 */
#include "queue/lanes.h"

#include "base/cleanup.h"
#include "queue/launch.h"

#include <stdlib.h>
#include <string.h>

#define META_KEY "lane_limits"

int lane_limits_load(struct lane_docs *d, struct err *e)
{
	CLEANUP_FREE char *text = NULL;
	json_t *now = launch_limits(&d->pass->config->settings);
	int r = store_meta_get(d->pass->store, META_KEY, &text, e);

	d->limits_now = json_dumps(now, JSON_COMPACT | JSON_SORT_KEYS);
	json_decref(now);
	d->limits = text ? json_loads(text, 0, NULL) : NULL;
	if (!json_is_object(d->limits)) {
		json_decref(d->limits);
		d->limits = json_object();
	}
	return r == -ENOENT ? 0 : r;
}

bool lane_limits_are_old(const struct lane_docs *d, const char *lane)
{
	const char *then = json_string_value(json_object_get(d->limits, lane));

	return then && strcmp(then, d->limits_now) != 0;
}

void lane_limits_first(struct lane_docs *d, const char *lane)
{
	if (!json_object_get(d->limits, lane))
		lane_limits_hold(d, lane);
}

void lane_limits_hold(struct lane_docs *d, const char *lane)
{
	const char *then = json_string_value(json_object_get(d->limits, lane));

	if (then && !strcmp(then, d->limits_now))
		return;
	json_object_set_new(d->limits, lane, json_string(d->limits_now));
	d->has_new_limits = true;
}

int lane_limits_put(struct lane_docs *d, struct err *e)
{
	CLEANUP_FREE char *text = NULL;
	const char *lane;
	json_t *v;
	void *next;
	int r;

	if (!d->has_new_limits)
		return 0;
	json_object_foreach_safe(d->limits, next, lane, v)
	{
		if (!cluster_lane_named(&d->cluster, lane))
			json_object_del(d->limits, lane);
	}
	text = json_dumps(d->limits, JSON_COMPACT | JSON_SORT_KEYS);
	r = store_meta_set(d->pass->store, META_KEY, text, e);
	d->has_new_limits = false;
	return r < 0 ? r : 0;
}

void lane_limits_done(struct lane_docs *d)
{
	json_decref(d->limits);
	free(d->limits_now);
}
