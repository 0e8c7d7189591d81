/* A job's output, read where the job is or was: for `job logs`, `job show --logs` and `job wait --logs`. */
#pragma once

#include "cli/queue_common.h"

#define JOB_TAIL_LINES 40
#define JOB_TAIL_BYTES (64 * 1024)

/*
 * The last `lines` of "stdout" or "stderr" of the job's last attempt, appended to *ret. "" for a job that never ran. -ENOENT with a
 * sentence when its directory is gone; other errors when the node can't be asked.
 */
int job_logs_tail(struct queue *q, const struct job *j, const char *stream, int64_t lines,
	size_t max_bytes, struct buf *ret, bool *ret_is_cut, struct err *e);
/* What a terminal may have: control bytes out but for colours, a line that \r wrote over shown as it ended. */
void job_logs_put_clean(const char *bytes, size_t n, bool colors, struct buf *out);
