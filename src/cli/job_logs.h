/* A job's output, read where the job is or was: for `job logs`, `job show --logs` and `job wait --logs`. */
#pragma once

#include "cli/queue_common.h"
#include "fleet/node_file.h"

#define JOB_TAIL_LINES 40
#define JOB_TAIL_BYTES (64 * 1024)
#define JOB_LOG_TIMEOUT_MS 20000 /* until a node has said something of the file */

/*
 * The last `lines` of "stdout" or "stderr" of the job's last attempt, appended to *ret. "" for a job that never ran. -ENOENT with a
 * sentence when its directory is gone; other errors when the node can't be asked.
 */
int job_logs_tail(struct queue *q, const struct job *j, const char *stream, int64_t lines,
	size_t max_bytes, struct buf *ret, bool *ret_is_cut, struct err *e);
/*
 * Where the file is and which end ends a follower's waiting; *ret borrows from j, q and the stream's name. -ENOENT: it has no
 * directory (yet), or its node isn't known any more.
 */
int job_logs_where(const struct queue *q, const struct job *j, const char *stream,
	struct stream_want *ret, const struct host_config **ret_host, struct err *e);
/* What a terminal may have: control bytes out but for colours, a line that \r wrote over shown as it ended. */
void job_logs_put_clean(const char *bytes, size_t n, bool colors, struct buf *out);
/* Any bytes as a JSON string: what isn't UTF-8 becomes U+FFFD. */
json_t *job_logs_json(const char *bytes, size_t n);
