/*
 * The journal in memory: reading the file, records by key and by number, the memory they lie in. What a line does to a
 * record is journal_fold.c; writing is journal_append.c.
 *
 * Records are made in blocks and never move, so that callers may hold pointers to them; strings lie in larger pieces and
 * go with the journal.
 */
#include "run/journal_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/sys.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const status_names[] = {
	[JOB_PENDING] = "pending",
	[JOB_RUNNING] = "running",
	[JOB_OK] = "ok",
	[JOB_FAILED] = "failed",
	[JOB_TIMEOUT] = "timeout",
	[JOB_INFEASIBLE] = "infeasible",
	[JOB_FAILED_OOM] = "failed_oom",
	[JOB_CANCELLED] = "cancelled",
};

const char *job_status_name(enum job_status s)
{
	return s < ARRAY_LEN(status_names) ? status_names[s] : "failed";
}

bool job_status_is_terminal(enum job_status s)
{
	return s != JOB_PENDING && s != JOB_RUNNING;
}

static void *take_memory(struct journal *j, size_t n, size_t align)
{
	struct journal_text *t = j->texts;
	size_t at = t ? (t->used + align - 1) / align * align : 0, size = n > 4096 ? n : 16384;

	if (!t || at > t->size || t->size - at < n) {
		t = xmalloc(sizeof(*t) + size);
		*t = (struct journal_text){.before = j->texts, .size = size};
		j->texts = t;
		at = 0;
	}
	t->used = at + n;
	return t->bytes + at;
}

void *journal_alloc(struct journal *j, size_t n)
{
	return take_memory(j, n, 8);
}

char *journal_keep(struct journal *j, const char *s)
{
	size_t n = strlen(s) + 1;

	return memcpy(take_memory(j, n, 1), s, n);
}

const char *journal_share(struct journal *j, const char *s)
{
	size_t n = j->n_shared < ARRAY_LEN(j->shared) ? j->n_shared : ARRAY_LEN(j->shared);

	if (!*s)
		return "";
	for (size_t i = 0; i < n; i++)
		if (strcmp(j->shared[i], s) == 0)
			return j->shared[i];
	return j->shared[j->n_shared++ % ARRAY_LEN(j->shared)] = journal_keep(j, s);
}

static uint64_t hash_bytes(const char *s)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * UINT64_C(0x100000001b3);
	return h ^ h >> 29;
}

static uint64_t hash_number(uint64_t no)
{
	no *= UINT64_C(0x9e3779b97f4a7c15);
	return no ^ no >> 32;
}

static void index_put(struct journal_index *x, uint64_t hash, uint32_t position)
{
	size_t at = hash & (x->cap - 1);

	while (x->slots[at])
		at = (at + 1) & (x->cap - 1);
	x->slots[at] = position + 1;
	x->n++;
}

/* Room for one more. The table is made anew from the records, all of them or those with a number. */
static void index_grow(struct journal *j, struct journal_index *x)
{
	if (x->n + 1 <= x->cap / 2)
		return;
	x->cap = x->cap ? x->cap * 2 : 64;
	free(x->slots);
	x->slots = xcalloc(x->cap, sizeof(*x->slots));
	x->n = 0;
	for (size_t i = 0; i < j->n; i++) {
		const struct job_record *r = journal_at(j, i);
		if (x == &j->by_key)
			index_put(x, hash_bytes(r->key), (uint32_t)i);
		else if (r->no > 0)
			index_put(x, hash_number(r->no), (uint32_t)i);
	}
}

struct job_record *journal_at(const struct journal *j, size_t i)
{
	return &j->blocks[i / RECORDS_BLOCK][i % RECORDS_BLOCK];
}

size_t journal_count(const struct journal *j)
{
	return j->n;
}

struct job_record *journal_find(const struct journal *j, const char *key)
{
	const struct journal_index *x = &j->by_key;

	if (x->cap == 0)
		return NULL;
	for (size_t at = hash_bytes(key) & (x->cap - 1); x->slots[at];
		at = (at + 1) & (x->cap - 1)) {
		struct job_record *r = journal_at(j, x->slots[at] - 1);
		if (strcmp(r->key, key) == 0)
			return r;
	}
	return NULL;
}

struct job_record *journal_find_no(const struct journal *j, uint64_t no)
{
	const struct journal_index *x = &j->by_no;

	if (x->cap == 0 || no == 0)
		return NULL;
	for (size_t at = hash_number(no) & (x->cap - 1); x->slots[at];
		at = (at + 1) & (x->cap - 1)) {
		struct job_record *r = journal_at(j, x->slots[at] - 1);
		if (r->no == no)
			return r;
	}
	return NULL;
}

static const struct job_last none = {.root_id = "",
	.machine_key = "",
	.boot_id = "",
	.token = "",
	.bound_vram = -1,
	.seconds = -1};

struct job_last *journal_last(struct journal *j, struct job_record *r)
{
	struct job_last *l;

	if (r->last != &none)
		return (struct job_last *)(uintptr_t)r->last;
	l = journal_alloc(j, sizeof(*l));
	*l = none;
	r->last = l;
	return l;
}

struct job_record *journal_get(struct journal *j, const char *key)
{
	struct job_record *r = journal_find(j, key);

	if (r)
		return r;
	index_grow(j, &j->by_key);
	if (j->n % RECORDS_BLOCK == 0) {
		size_t n_blocks = j->n / RECORDS_BLOCK;
		GROW(j->blocks, n_blocks, j->cap_blocks);
		j->blocks[n_blocks] = xcalloc(RECORDS_BLOCK, sizeof(struct job_record));
	}
	r = journal_at(j, j->n);
	memcpy(r->key, key, strnlen(key, sizeof(r->key) - 1));
	r->next_vram = -1;
	r->time = "";
	r->last = &none;
	index_put(&j->by_key, hash_bytes(r->key), (uint32_t)j->n++);
	return r;
}

static uint32_t position_of(const struct journal *j, const struct job_record *r)
{
	/* The newest is asked for nearly always. */
	for (size_t i = (j->n + RECORDS_BLOCK - 1) / RECORDS_BLOCK; i-- > 0;)
		if (r >= j->blocks[i] && r < j->blocks[i] + RECORDS_BLOCK)
			return (uint32_t)(i * RECORDS_BLOCK + (size_t)(r - j->blocks[i]));
	return 0;
}

/* Numbers don't change; where a strange file says otherwise, the last word counts, and the old number finds nobody. */
void journal_number(struct journal *j, struct job_record *r, uint64_t no)
{
	if (r->no == no)
		return;
	r->no = 0;
	index_grow(j, &j->by_no);
	r->no = no;
	index_put(&j->by_no, hash_number(no), position_of(j, r));
	if (no > j->highest_no)
		j->highest_no = no;
}

static struct journal *journal_new(void)
{
	struct journal *j = xcalloc(1, sizeof(*j));

	j->dirfd = j->fd = -1;
	return j;
}

static void take_line(struct journal *j, const char *line, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (line[i] == ' ' || line[i] == '\t' || line[i] == '\r')
			continue;
		j->skipped += n > JOURNAL_LINE_MAX || !journal_fold(j, line, n);
		return;
	}
}

struct journal *journal_load_bytes(const char *bytes, size_t n)
{
	struct journal *j = journal_new();

	while (n > 0) {
		const char *end = memchr(bytes, '\n', n);
		size_t len = end ? (size_t)(end - bytes) : n;
		take_line(j, bytes, len);
		len += end != NULL;
		bytes += len;
		n -= len;
		j->size += (int64_t)len;
	}
	return j;
}

/* Takes the whole lines off the buffer. A line beyond all bounds is dropped as it comes; *is_long says we're inside one. */
static void take_lines(struct journal *j, struct buf *b, bool *is_long)
{
	size_t at = 0;

	for (;;) {
		const char *end = memchr(b->data + at, '\n', b->len - at);
		if (!end)
			break;
		size_t len = (size_t)(end - b->data) - at;
		if (!*is_long)
			take_line(j, b->data + at, len);
		*is_long = false;
		at += len + 1;
	}
	buf_drop(b, at);
	if (b->len > JOURNAL_LINE_MAX) {
		j->skipped += !*is_long;
		*is_long = true;
		buf_clear(b);
	}
}

static int read_lines(struct journal *j, int fd)
{
	CLEANUP(buf_done) struct buf b = {0};
	bool is_long = false;

	for (;;) {
		buf_reserve(&b, 256 * 1024);
		ssize_t n = read(fd, b.data + b.len, 256 * 1024);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		b.len += (size_t)n;
		b.data[b.len] = '\0';
		j->size += n;
		take_lines(j, &b, &is_long);
	}
	if (b.len > 0 && !is_long)
		take_line(j, b.data, b.len);
	return 0;
}

int journal_load(int dirfd, struct journal **ret, struct err *e)
{
	CLEANUP_CLOSE int fd =
		openat(dirfd, JOURNAL_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	int error = errno;
	struct sys_stat st;

	if (fd < 0 && error != ENOENT)
		return err_sys(e, -error, "the journal (" JOURNAL_FILE ") can't be opened");
	if (fd >= 0) {
		int r = sys_fstat(fd, &st);
		if (r < 0)
			return err_sys(e, r, "the journal (" JOURNAL_FILE ") can't be looked at");
		if (!S_ISREG(st.mode))
			return err_set(e, -EINVAL,
				"the journal (" JOURNAL_FILE ") is not a plain file; move it away");
	}
	int own_dirfd = fcntl(dirfd, F_DUPFD_CLOEXEC, 3);
	if (own_dirfd < 0)
		return err_sys(e, -errno, "the log directory can't be kept open");
	struct journal *j = journal_new();
	j->dirfd = own_dirfd;
	int r = fd >= 0 ? read_lines(j, fd) : 0;
	if (r < 0) {
		journal_free(j);
		return err_sys(e, r, "the journal (" JOURNAL_FILE ") can't be read");
	}
	*ret = j;
	return 0;
}

void journal_free(struct journal *j)
{
	if (!j)
		return;
	for (size_t i = 0; i * RECORDS_BLOCK < j->n; i++)
		free(j->blocks[i]);
	while (j->texts) {
		struct journal_text *before = j->texts->before;
		free(j->texts);
		j->texts = before;
	}
	if (j->dirfd >= 0)
		close(j->dirfd);
	if (j->fd >= 0)
		close(j->fd);
	free(j->blocks);
	free(j->by_key.slots);
	free(j->by_no.slots);
	buf_done(&j->batch);
	free(j);
}

size_t journal_skipped(const struct journal *j)
{
	return j->skipped;
}

const char *journal_queue(const struct journal *j)
{
	return j->queue;
}

uint64_t journal_epoch(const struct journal *j)
{
	return j->epoch;
}

uint64_t journal_incarnation(const struct journal *j)
{
	return j->incarnation;
}

void journal_set_sim(struct journal *j, const char *cards, const char *dir)
{
	j->sim = cards && *cards ? journal_keep(j, cards) : NULL;
	j->sim_dir = j->sim && dir && *dir ? journal_keep(j, dir) : NULL;
}

const char *journal_sim(const struct journal *j)
{
	return j->sim ? j->sim : "";
}

const char *journal_sim_dir(const struct journal *j)
{
	return j->sim_dir ? j->sim_dir : "";
}

uint64_t journal_highest_no(const struct journal *j)
{
	return j->highest_no;
}

void job_last_set_gpus(
	struct job_last *l, const int32_t *gpus, const char *const *uuids, uint32_t n)
{
	size_t text = 0;

	job_last_clear_gpus(l);
	if (n == 0)
		return;
	for (uint32_t i = 0; i < n; i++)
		text += (uuids ? strlen(uuids[i]) : 0) + 1;
	/* Pointers, indices and the texts, in one piece. */
	l->uuids = xmalloc(n * (sizeof(*l->uuids) + sizeof(*l->gpus)) + text);
	l->gpus = (int32_t *)(l->uuids + n);
	char *at = (char *)(l->gpus + n);
	for (uint32_t i = 0; i < n; i++) {
		size_t len = uuids ? strlen(uuids[i]) : 0;
		l->gpus[i] = gpus[i];
		l->uuids[i] = at;
		if (len > 0)
			memcpy(at, uuids[i], len);
		at[len] = '\0';
		at += len + 1;
	}
	l->n_gpus = n;
}

void job_last_clear_gpus(struct job_last *l)
{
	free(l->uuids);
	l->gpus = NULL;
	l->uuids = NULL;
	l->n_gpus = 0;
}
