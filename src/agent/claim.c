/*
 * Making a claim, opening it, its lock (claim.h). Owns the order of syncs and renames; what the
 * files say is claim_spec.c's and claim_state.c's business. Must not decide whether a job may start.
 *
 * The stage new/<token>/ has the same `lock` as the claim it becomes: only its holder writes there or renames it, so that a
 * second launch with the same token can't reach into a claim that was born in between.
 */
#include "agent/claim.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/sync.h"
#include "base/sys.h"
#include "proc/proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define CLAIM_PATH_LEN (ATTEMPT_NAME_LEN + 8)
#define STAGE_PATH_LEN (ID_LEN + 16)
/* Claims kept for the next ones: a file that is written over in place costs a tenth of a new one and its removal. */
#define SPARES_MAX 128
#define SPARE_SPEC_MAX 65536
#define STAGE_TRIES 2000 /* of a millisecond each */

/* One claim on its way: the files stay open from the writing to the sync. */
struct claim_stage {
	char path[STAGE_PATH_LEN]; /* below the root; "": there's none (any more) */
	int fd, lock_fd, state_fd, spec_fd;
	bool was_spare, is_born, is_durable;
};

static void claim_path(const struct attempt_name *n, char ret[CLAIM_PATH_LEN])
{
	char name[ATTEMPT_NAME_LEN];
	attempt_name_format(n, name);
	snprintf(ret, CLAIM_PATH_LEN, "claims/%s", name);
}

int claim_open(const struct root *r, const struct attempt_name *n)
{
	char path[CLAIM_PATH_LEN];
	claim_path(n, path);
	int fd = openat(r->fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static bool is_same_file(int fd, int dirfd, const char *path)
{
	struct sys_stat a, b;
	return sys_fstat(fd, &a) == 0 && sys_stat_at(dirfd, path, AT_SYMLINK_NOFOLLOW, &b) == 0 &&
	       a.dev == b.dev && a.ino == b.ino;
}

bool claim_is_at(const struct root *r, const struct attempt_name *n, int claim_fd)
{
	char path[CLAIM_PATH_LEN];
	claim_path(n, path);
	return is_same_file(claim_fd, r->fd, path);
}

int claim_read_spec(int claim_fd, struct claim_spec *ret, struct err *e)
{
	CLEANUP(buf_done) struct buf b = {0};
	int r = fd_read_file_at(claim_fd, "spec", &b, CLAIM_SPEC_MAX);
	if (r < 0)
		return err_sys(e, r, "cannot read the spec of a claim");
	json_t *o = json_loadb(b.data, b.len, JSON_REJECT_DUPLICATES, NULL);
	if (!o)
		return err_set(e, -EBADMSG, "the spec of a claim is damaged: it is not JSON");
	r = claim_spec_decode(o, ret, e);
	json_decref(o);
	return r < 0 ? err_wrap(e, -EBADMSG, "the spec of a claim is damaged") : 0;
}

static enum claim_made compare_token(const char *found, const struct claim_spec *s)
{
	return strcmp(found, s->token) == 0 ? CLAIM_SAME_TOKEN : CLAIM_OTHER_TOKEN;
}

/* 1 and *ret when a claim or a retired line of that name is there, 0 when there's none. */
static int find_existing(
	struct root *r, const struct claim_spec *s, enum claim_made *ret, struct err *e)
{
	char token[ID_LEN];
	struct attempt_end end;
	if (r->retired && retired_find(r->retired, &s->name, token, &end) == 0) {
		*ret = compare_token(token, s);
		return 1;
	}
	CLEANUP_CLOSE int fd = claim_open(r, &s->name);
	if (fd == -ENOENT)
		return 0;
	if (fd < 0)
		return err_sys(e, fd, "cannot look for a claim of that name");
	struct sys_stat st;
	if (sys_stat_at(fd, "spec", AT_SYMLINK_NOFOLLOW, &st) == -ENOENT)
		return 0; /* an empty directory: the rename replaces it, and fails if it's anything else */
	CLEANUP(claim_spec_done) struct claim_spec found = {0};
	int code = claim_read_spec(fd, &found, e);
	if (code < 0)
		return code;
	*ret = compare_token(found.token, s);
	return 1;
}

static void close_one(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void stage_close(struct claim_stage *g)
{
	close_one(&g->state_fd);
	close_one(&g->spec_fd);
	close_one(&g->lock_fd);
	close_one(&g->fd);
}

/* One try: -EAGAIN when another one is at it, or has just turned it into a claim. */
static int stage_try(struct root *r, struct claim_stage *g)
{
	if (!g->was_spare && mkdirat(r->fd, g->path, 0700) < 0 && errno != EEXIST)
		return -errno;
	g->fd = openat(r->fd, g->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (g->fd < 0)
		return errno == ENOENT ? -EAGAIN : -errno;
	fault_point("claim.before-stage-lock");
	g->lock_fd = openat(g->fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (g->lock_fd < 0)
		return errno == ENOENT ? -EAGAIN : -errno;
	int code = fd_lock(g->lock_fd, NULL);
	if (code < 0)
		return code;
	return is_same_file(g->fd, r->fd, g->path) ? 0 : -EAGAIN;
}

/* A spare's file is written over in place: what is left of a longer one becomes blanks, so that nothing but data changes. */
static int blank_rest(int fd, size_t from)
{
	char blanks[1024];
	struct sys_stat st;
	int r = sys_fstat(fd, &st);
	memset(blanks, ' ', sizeof(blanks));
	for (size_t n; !r && (int64_t)from < st.size; from += n) {
		n = (size_t)st.size - from < sizeof(blanks) ? (size_t)st.size - from
							    : sizeof(blanks);
		r = fd_pwrite_all(fd, blanks, n, (off_t)from);
	}
	return r;
}

/*
 * Writes a file and has the kernel begin to bring it to disk; the sync is the caller's. Where the file system puts every
 * change of one moment into one transaction (ext4, XFS), the first sync that follows then carries all that was begun.
 */
static int write_file(int dirfd, const char *name, const void *bytes, size_t n, int *ret_fd)
{
	CLEANUP_CLOSE int fd =
		openat(dirfd, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	int r = fd_write_all(fd, bytes, n);
	if (!r)
		r = blank_rest(fd, n);
	if (r < 0)
		return r;
	/* Only a beginning: a file system without it loses nothing but time. */
	sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static int stage_write(
	struct claim_stage *g, const struct claim_spec *s, const char *spec, size_t n)
{
	struct claim_record rec = {.state = ATTEMPT_CLAIMED, .seq = 1, .pid_ns = proc_pid_ns()};
	uint8_t state[CLAIM_STATE_SIZE] = {0};
	memcpy(rec.boot_id, s->boot_id, sizeof(rec.boot_id));
	claim_slot_encode(&rec, state + CLAIM_SLOT_SIZE); /* sequence 1: the odd slot */

	int r = fault_point("claim.before-sync");
	if (!r)
		r = write_file(g->fd, "state", state, sizeof(state), &g->state_fd);
	if (!r)
		r = write_file(g->fd, "spec", spec, n, &g->spec_fd);
	return r;
}

#define STAGE_SYNCS 3

/* What of a stage has to be durable; how many that are. */
static size_t list_syncs(const struct claim_stage *g, struct fd_sync ret[STAGE_SYNCS])
{
	ret[0] = (struct fd_sync){.fd = g->state_fd};
	ret[1] = (struct fd_sync){.fd = g->spec_fd};
	ret[2] = (struct fd_sync){.fd = g->fd, .is_dir = true};
	/* A spare's names are durable already. */
	return g->was_spare ? 2 : 3;
}

/* The first error among the n that were listed; closes the files. */
static int end_sync(struct claim_stage *g, const struct fd_sync *s, size_t n)
{
	int r = 0;
	for (size_t i = 0; !r && i < n; i++)
		r = s[i].code;
	close_one(&g->state_fd);
	close_one(&g->spec_fd);
	return r;
}

static int stage_sync(struct claim_stage *g)
{
	struct fd_sync s[STAGE_SYNCS];
	size_t n = list_syncs(g, s);
	fd_sync_all(s, n);
	return end_sync(g, s, n);
}

/* The directory of a queue's claims is made with its first one. */
static int make_queue_dir(struct root *r, const char *path)
{
	if (mkdirat(r->fd, path, 0700) < 0)
		return errno == EEXIST ? 0 : -errno;
	return fd_sync_dir_at(r->fd, "claims");
}

static void remove_claim_at(struct root *r, const char *path, const char *token)
{
	char gone[STAGE_PATH_LEN];
	snprintf(gone, sizeof(gone), "new/gone-%s", token);
	/* Out of the way in one step, so that nobody meets half a claim. */
	fd_remove_tree_at(r->fd, gone);
	if (renameat(r->fd, path, r->fd, gone) < 0)
		return;
	static const char *const files[] = {"state", "spec", "lock", "stop", "body"};
	CLEANUP_CLOSE int fd = openat(r->fd, gone, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	for (size_t i = 0; fd >= 0 && i < ARRAY_LEN(files); i++)
		unlinkat(fd, files[i], 0);
	if (unlinkat(r->fd, gone, AT_REMOVEDIR) < 0)
		fd_remove_tree_at(r->fd, gone);
}

void claim_remove(struct root *r, const struct attempt_name *n, const char *token)
{
	char path[CLAIM_PATH_LEN];
	claim_path(n, path);
	remove_claim_at(r, path, token);
}

/* Only a claim that is like a fresh one, but for what its files say: nobody's wish lies in it, and it's small. */
static bool may_be_spare(struct root *r, const char *path)
{
	CLEANUP_CLOSE int fd = openat(r->fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct sys_stat st;
	return fd >= 0 && sys_stat_at(fd, "stop", AT_SYMLINK_NOFOLLOW, &st) == -ENOENT &&
	       sys_stat_at(fd, "body", AT_SYMLINK_NOFOLLOW, &st) == -ENOENT &&
	       sys_stat_at(fd, "spec", AT_SYMLINK_NOFOLLOW, &st) == 0 &&
	       st.size <= SPARE_SPEC_MAX &&
	       sys_stat_at(fd, "state", AT_SYMLINK_NOFOLLOW, &st) == 0 &&
	       st.size == CLAIM_STATE_SIZE;
}

void claim_recycle(struct root *r, const struct attempt_name *n, const char *token)
{
	char path[CLAIM_PATH_LEN], spare[STAGE_PATH_LEN];
	claim_path(n, path);
	snprintf(spare, sizeof(spare), "new/spare-%u", r->n_spares);
	if (r->n_spares < SPARES_MAX && may_be_spare(r, path) &&
		renameat(r->fd, path, r->fd, spare) == 0)
		r->n_spares++;
	else
		remove_claim_at(r, path, token);
}

/*
 * A spare, if there's one, serves as the stage: under its own name when it's a claim in a moment, for a rename is a write
 * to two directories; under the token's when it's to wait there.
 */
static void take_spare(struct root *r, struct claim_stage *g, bool is_to_wait)
{
	char spare[STAGE_PATH_LEN];
	if (!r->n_spares)
		return;
	snprintf(spare, sizeof(spare), "new/spare-%u", r->n_spares - 1);
	g->was_spare = !is_to_wait || renameat(r->fd, spare, r->fd, g->path) == 0;
	if (g->was_spare || errno == ENOENT)
		r->n_spares--;
	if (g->was_spare && !is_to_wait)
		memcpy(g->path, spare, sizeof(spare));
}

static void parent_path(const struct attempt_name *n, char ret[CLAIM_PATH_LEN])
{
	snprintf(ret, CLAIM_PATH_LEN, "claims/%s", n->queue);
}

/* The stage becomes the claim: 1 when it has, 0 and *ret when another one was there, negative when nothing is there. */
static int stage_rename(struct root *r, struct claim_stage *g, const struct claim_spec *s,
	enum claim_made *ret, struct err *e)
{
	char to[CLAIM_PATH_LEN], parent[CLAIM_PATH_LEN];
	claim_path(&s->name, to);
	parent_path(&s->name, parent);

	int code = fault_point("claim.between-sync-and-rename");
	if (!code && renameat(r->fd, g->path, r->fd, to) < 0)
		code = -errno;
	if (code == -ENOENT) {
		code = make_queue_dir(r, parent);
		if (!code && renameat(r->fd, g->path, r->fd, to) < 0)
			code = -errno;
	}
	/* An error may be told of a rename that was done: what lies there now decides. */
	if (code < 0 && !is_same_file(g->fd, r->fd, to)) {
		int found = find_existing(r, s, ret, e);
		if (found > 0)
			return 0;
		return found < 0 ? found : err_sys(e, code, "cannot put a claim into %s", r->path);
	}
	g->path[0] = '\0';
	return 1;
}

static int check_spec(const struct claim_spec *s, char **ret_text, struct err *e)
{
	if (!id_is_valid(s->name.queue) || !id_is_valid(s->token) || !s->name.job ||
		!s->name.attempt || s->name.job > INT64_MAX || !s->boot_id[0])
		return err_set(e, -EINVAL,
			"a claim needs queue, job, attempt, token and boot id before it's made");
	json_t *o = claim_spec_encode(s);
	char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	if (!text)
		return err_set(e, -EINVAL,
			"the job has text that is not UTF-8, or lacks a command, directory or output file");
	if (strlen(text) > CLAIM_SPEC_MAX) {
		free(text);
		return err_set(e, -E2BIG, "the job's command and environment pass %d bytes",
			CLAIM_SPEC_MAX);
	}
	*ret_text = text;
	return 0;
}

/* 1: *g is ours alone; 0 and *ret: a claim turned up while we waited for it. */
static int stage_open(struct root *r, struct claim_stage *g, const struct claim_spec *s,
	bool is_to_wait, enum claim_made *ret, struct err *e)
{
	snprintf(g->path, sizeof(g->path), "new/%s", s->token);
	/* What was sent ahead lies below the token's name. */
	if (!s->is_staged)
		take_spare(r, g, is_to_wait);
	for (int i = 0; i < STAGE_TRIES; i++) {
		int code = stage_try(r, g);
		if (!code)
			return 1;
		stage_close(g);
		if (g->was_spare) {
			g->was_spare = false;
			snprintf(g->path, sizeof(g->path), "new/%s", s->token);
			continue;
		}
		if (code != -EAGAIN)
			return err_sys(e, code, "cannot make %s/%s", r->path, g->path);
		int found = find_existing(r, s, ret, e);
		if (found)
			return found < 0 ? found : 0;
		nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
	}
	return err_set(e, -EBUSY, "another process keeps %s/%s locked", r->path, g->path);
}

/* ---- a batch ---- */

/* What has failed, or was there before, leaves the batch; nothing of its stage stays. */
static void leave(struct root *r, struct claim_stage *g, struct claim_order *o, int code)
{
	o->code = code;
	g->is_born = false;
	if (g->path[0])
		fd_remove_tree_at(r->fd, g->path);
	g->path[0] = '\0';
	stage_close(g);
}

static void prepare(struct root *r, struct claim_order *o, struct claim_stage *g)
{
	CLEANUP_FREE char *text = NULL;
	*g = (struct claim_stage){.fd = -1, .lock_fd = -1, .state_fd = -1, .spec_fd = -1};
	o->made = CLAIM_MADE;
	o->code = check_spec(o->spec, &text, &o->err);
	if (o->code < 0)
		return;
	int code = find_existing(r, o->spec, &o->made, &o->err);
	if (code) {
		o->code = code < 0 ? code : 0;
		return;
	}
	code = stage_open(r, g, o->spec, false, &o->made, &o->err);
	if (code <= 0) {
		/* Whatever lies at the stage's name is somebody else's. */
		g->path[0] = '\0';
		o->code = code;
		return;
	}
	code = stage_write(g, o->spec, text, strlen(text));
	if (code < 0)
		leave(r, g, o, err_sys(&o->err, code, "cannot write a claim into %s", r->path));
}

static void sync_some(struct root *r, struct claim_order *o, struct claim_stage *g, size_t n)
{
	struct fd_sync s[CLAIM_TOGETHER_MAX * STAGE_SYNCS];
	size_t first[CLAIM_TOGETHER_MAX + 1], n_syncs = 0;
	for (size_t i = 0; i < n; i++) {
		first[i] = n_syncs;
		n_syncs += g[i].path[0] ? list_syncs(&g[i], s + n_syncs) : 0;
	}
	first[n] = n_syncs;
	fd_sync_all(s, n_syncs);
	for (size_t i = 0; i < n; i++) {
		int code =
			g[i].path[0] ? end_sync(&g[i], s + first[i], first[i + 1] - first[i]) : 0;
		if (code < 0)
			leave(r, &g[i], &o[i],
				err_sys(&o[i].err, code, "cannot write a claim into %s", r->path));
	}
}

static void bear(struct root *r, struct claim_order *o, struct claim_stage *g)
{
	int code = stage_rename(r, g, o->spec, &o->made, &o->err);
	g->is_born = code > 0;
	if (code <= 0)
		leave(r, g, o, code);
}

/* One sync for all that were born below the same parent as the i-th. A name that may not last takes its claim with it. */
static void sync_parent(
	struct root *r, struct claim_order *o, struct claim_stage *g, size_t i, size_t n)
{
	char parent[CLAIM_PATH_LEN], path[CLAIM_PATH_LEN];
	parent_path(&o[i].spec->name, parent);
	int code = fault_point("claim.after-rename");
	if (!code)
		code = fd_sync_dir_at(r->fd, parent);
	for (size_t k = i; k < n; k++) {
		if (!g[k].is_born || strcmp(o[k].spec->name.queue, o[i].spec->name.queue) != 0)
			continue;
		g[k].is_durable = true;
		if (!code)
			continue;
		claim_path(&o[k].spec->name, path);
		if (is_same_file(g[k].fd, r->fd, path))
			remove_claim_at(r, path, o[k].spec->token);
		leave(r, &g[k], &o[k],
			err_sys(&o[k].err, code, "cannot make a claim durable in %s", r->path));
	}
}

/* Each step is done for all before the next one begins, and what has to be durable before it is synced together. */
static void make_some(struct root *r, struct claim_order *o, size_t n)
{
	struct claim_stage g[CLAIM_TOGETHER_MAX];
	for (size_t i = 0; i < n; i++)
		prepare(r, &o[i], &g[i]);
	sync_some(r, o, g, n);
	for (size_t i = 0; i < n; i++) {
		if (g[i].path[0])
			bear(r, &o[i], &g[i]);
	}
	for (size_t i = 0; i < n; i++) {
		if (g[i].is_born && !g[i].is_durable)
			sync_parent(r, o, g, i, n);
	}
	for (size_t i = 0; i < n; i++)
		stage_close(&g[i]);
}

static bool has_token(const struct claim_order *o, size_t n, const char *token)
{
	for (size_t i = 0; i < n; i++) {
		if (strcmp(o[i].spec->token, token) == 0)
			return true;
	}
	return false;
}

void claim_make_all(struct root *r, struct claim_order *o, size_t n)
{
	for (size_t at = 0, next = 0; at < n; at = next) {
		/* A stage's lock doesn't keep its own process out: two with one token are made one after the other. */
		do
			next++;
		while (next < n && next - at < CLAIM_TOGETHER_MAX &&
			!has_token(o + at, next - at, o[next].spec->token));
		make_some(r, o + at, next - at);
	}
}

int claim_make(struct root *r, const struct claim_spec *s, enum claim_made *ret, struct err *e)
{
	struct claim_order o = {.spec = s};
	claim_make_all(r, &o, 1);
	if (o.code < 0 && e)
		*e = o.err;
	if (o.code >= 0)
		*ret = o.made;
	return o.code;
}

void claim_stage_free(struct claim_stage *g)
{
	if (!g)
		return;
	stage_close(g);
	free(g);
}

void claim_stage_drop(struct root *r, struct claim_stage *g)
{
	if (g && is_same_file(g->fd, r->fd, g->path))
		fd_remove_tree_at(r->fd, g->path);
	claim_stage_free(g);
}

void claim_stage_touch(const struct claim_stage *g)
{
	futimens(g->fd, NULL);
}

int claim_stage_new(
	struct root *r, const struct claim_spec *s, struct claim_stage **ret, struct err *e)
{
	CLEANUP_FREE char *text = NULL;
	enum claim_made made = CLAIM_MADE;
	struct claim_stage *g;
	int code = check_spec(s, &text, e);
	if (code < 0)
		return code;
	g = xcalloc(1, sizeof(*g));
	g->fd = g->lock_fd = g->state_fd = g->spec_fd = -1;
	code = find_existing(r, s, &made, e);
	if (!code) {
		code = stage_open(r, g, s, true, &made, e);
		code = code > 0 ? 0 : code < 0 ? code : 1;
	}
	if (code > 0)
		code = err_set(e, -EEXIST, "there is a claim of that name already");
	if (!code && text) {
		code = stage_write(g, s, text, strlen(text));
		if (!code)
			code = stage_sync(g);
		if (code < 0) {
			err_sys(e, code, "cannot write a claim into %s", r->path);
			fd_remove_tree_at(r->fd, g->path);
		}
	}
	if (code < 0) {
		claim_stage_free(g);
		return code;
	}
	*ret = g;
	return 0;
}

int claim_stage_birth(struct root *r, struct claim_stage *g, const struct claim_spec *s,
	enum claim_made *ret, struct err *e)
{
	enum claim_made made = CLAIM_MADE;
	int code = find_existing(r, s, &made, e);
	/* Swept, or taken away: what is gone is made anew. */
	if (!code && !is_same_file(g->fd, r->fd, g->path)) {
		claim_stage_free(g);
		return claim_make(r, s, ret, e);
	}
	if (!code)
		code = stage_rename(r, g, s, &made, e);
	if (code > 0) {
		struct claim_order o = {.spec = s, .made = CLAIM_MADE};

		g->is_born = true;
		sync_parent(r, &o, g, 0, 1);
		code = o.code;
		if (code < 0 && e)
			*e = o.err;
	}
	if (code >= 0)
		*ret = made;
	if (code < 0 || made != CLAIM_MADE)
		claim_stage_drop(r, g);
	else
		claim_stage_free(g);
	return code < 0 ? code : 0;
}

int claim_lock(int claim_fd)
{
	int fd = openat(claim_fd, "lock", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	int r = fd_lock(fd, NULL);
	if (r < 0) {
		close(fd);
		return r;
	}
	return fd;
}

int claim_lock_holder(int claim_fd, pid_t *ret_pid)
{
	CLEANUP_CLOSE int fd = openat(claim_fd, "lock", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd_lock_holder(fd, ret_pid);
}
