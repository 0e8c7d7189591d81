/*
 * The record's values as JSON: jobs, events, alerts, key by key as nvidb's section 9 has them, with keys of ours besides.
 * Pure. Times are UTC, ISO 8601 with seconds and offset.
 */
#pragma once

#include "store/store.h"

#include <jansson.h>

/* "2026-11-30T09:07:01+00:00"; null for 0. */
json_t *record_time(int64_t wall_ms);
/* The text form of it; "" for 0. */
#define RECORD_TIME_LEN 32
void record_time_text(int64_t wall_ms, char ret[RECORD_TIME_LEN]);
/* now_ms: wall clock, for the elapsed time of one that runs. */
json_t *record_job(const struct job *j, int64_t now_ms);
json_t *record_event(const struct store_event *ev);
json_t *record_alert(const struct store_alert *a);
/* "waits", "handed to n1, start not confirmed", ...: the word that people read, besides job_state_name: "held". */
const char *record_state(const struct job *j);
/* Of one that runs until now, of one that ended all; -1: it never started. */
int64_t record_elapsed_ms(const struct job *j, int64_t now_ms);
