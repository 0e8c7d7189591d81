/*
 * Alerts to people: from the store to log, desktop, command, webhook and e-mail (nvidb 8.2 and ours). Delivered at least once, with a
 * stable id in the body; each channel by itself, in children with a bound on their time, retried with back-off; nothing
 * here ever waits.
 */
#pragma once

#include "config/queue.h"
#include "store/store.h"

#include <event2/event.h>

struct notify;

/* home: alerts.log lies there. program: what messages call us. */
struct notify *notify_new(
	struct event_base *base, struct store *s, const char *home, const char *program);
/* New settings; the ones before are forgotten. settings must outlive the next call of this. */
void notify_configure(struct notify *n, const struct notify_settings *settings);
/* Takes undelivered alerts up and begins what's due. Call after each pass, and when notify_wait_ms is over. */
void notify_turn(struct notify *n);
int64_t notify_wait_ms(const struct notify *n); /* until something is due; -1: nothing waits */
bool notify_is_sending(const struct notify *n); /* something is on its way to somebody */
/* Of this process: alerts that all channels have taken (or that no channel wants). */
int64_t notify_delivered(const struct notify *n);
/* What hasn't worked lately, a line for each channel; "" all well. */
void notify_problems(const struct notify *n, struct buf *out);
/* One made-up alert through every channel, waiting for the outcome: `queue notify test`. A row for each channel. */
struct notify_outcome {
	const char *channel; /* "log", "desktop", "command", "webhook", "email" */
	bool is_on, worked;
	char text[512];
};
size_t notify_test(const struct notify_settings *settings, const char *home, const char *program,
	struct notify_outcome ret[8]);
void notify_free(struct notify *n); /* ends its children */
