/*
 * One client's link, as the agent has it: who it is, what it may command, what waits to be read and written. Reads and
 * writes without waiting; knows frames, not messages.
 *
 * A client that doesn't read loses nothing that counts: samples are replaced by the latest, events above the limit are
 * dropped and made up for by telling the whole state once it reads again (events are hints; the truth is observe), and
 * one that leaves 1 MiB unread for 30 s is closed.
 */
#pragma once

#include "agent/fence.h"
#include "base/buf.h"
#include "base/err.h"
#include "core/attempt.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CLIENT_UNREAD_MAX (1024 * 1024)
#define CLIENT_UNREAD_MS 30000
#define CLIENT_SILENT_MS 35000
#define CLIENT_WANTS_MAX 16 /* samples asked for by number and not answered yet */

struct sample_want {
	int64_t id;
	uint64_t number; /* the sampler's request that answers it */
	bool details;
};

/* How far a client's wish has come that the driver be let go of (release.h). */
enum client_release { RELEASE_NONE, RELEASE_WANTED, RELEASE_CLOSING, RELEASE_HELD };

struct client {
	uint64_t id; /* never used twice */
	int fd;
	bool has_hello;
	bool is_closing; /* what's written goes out, nothing more is read */
	bool has_left; /* the peer has closed, and a command of it still waits */
	bool is_deaf; /* writing to it failed: what's said to it is dropped, what it said is still read */
	bool is_dead; /* to be freed at the end of the turn */
	char who[80];
	char queue[ID_LEN]; /* "" for one that only watches */
	struct fence fence;
	uint32_t
		n_launching; /* launches of it that aren't answered: commands that bind wait for them */
	json_t *held; /* such a command, waiting */
	int64_t facts_until_ms; /* an observe waits for files to be read, until then; 0 */
	struct buf in;
	struct buf out;
	size_t out_at; /* written so far */
	struct buf sample; /* a whole frame that goes out when `out` is empty */
	bool has_lost_events; /* told anew when it reads again */
	uint64_t lost_after; /* of all attempts with a serial above this one */
	bool has_pinged;
	int64_t heard_ms, over_since_ms; /* 0: not over the limit */
	int64_t watch_ms, due_ms; /* 0: does not watch */
	bool watches_details, watches_profiling; /* profiling only with details */
	bool takes_base; /* with details: samples that build on figures it has */
	uint64_t base_key; /* of the figures it has been sent; 0 none */
	uint64_t waiting_base; /* of those in `sample`; 0: it has none */
	bool may_slow; /* half the pace will do while the machine runs on battery */
	uint64_t seen_number; /* of the last sample it got by watching */
	enum client_release release;
	bool release_forced;
	int64_t release_since_ms;
	struct sample_want wants[CLIENT_WANTS_MAX];
	size_t n_wants;
};

/* Takes the descriptor; -EPERM when the peer isn't our user. */
int client_new(int fd, uint64_t id, int64_t now_ms, struct client **ret, struct err *e);
void client_free(struct client *c);

/* Reads what has arrived. False when the peer has gone. */
bool client_read(struct client *c, int64_t now_ms);
/* Reading goes on only while there's room on both sides. */
bool client_wants_read(const struct client *c);
bool client_wants_write(const struct client *c);
/* Writes what goes. False when the peer hears nothing any more; what it said before it left may still have to be read. */
bool client_write(struct client *c);

/* An answer: takes the reference. */
void client_send(struct client *c, json_t *msg);
/* A hint: dropped (false) when too much is unread, and then has_lost_events. Takes the reference. */
bool client_push(struct client *c, json_t *msg);
/*
 * A sample's whole frame: replaces one that hasn't begun to go out. base: the frame of the figures it builds on, whose key
 * is `key`, for one that hasn't got them yet; NULL: it builds on none.
 */
void client_put_sample(
	struct client *c, const struct buf *base, uint64_t key, const struct buf *frame);
/* A piece of a stream, at most WIRE_BULK_MAX bytes; only while client_takes_bulk. */
void client_send_bulk(struct client *c, uint64_t stream, const char *bytes, size_t n);
/*
 * Streams fill only what's left: nothing waits behind more than a moment's worth of them, and a sample that waits for its
 * turn goes first.
 */
bool client_takes_bulk(const struct client *c);
/* The text of "error". */
void client_error(struct client *c, const char *text);
/* The same with the id of the stream it's about. */
void client_error_of(struct client *c, int64_t id, const char *text);
/* Limits on silence and unread bytes: false when it must be closed. */
bool client_is_alive(struct client *c, int64_t now_ms);
