/* The fences of all queues. Owns <root>/fence/. A file that can't be read refuses: a forgotten fence lets old ones in. */
#include "agent/fence.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/parse.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FENCE_FILE_MAX 256

void fences_init(struct fences *f, struct root *r)
{
	*f = (struct fences){.root = r};
}

void fences_done(struct fences *f)
{
	free(f->items);
	*f = (struct fences){0};
}

int fence_compare(const struct fence *a, const struct fence *b)
{
	for (int i = 0; i < 3; i++)
		if (a->v[i] != b->v[i])
			return a->v[i] < b->v[i] ? -1 : 1;
	return 0;
}

/* "incarnation epoch link" and a newline. */
static int fence_parse(char *text, struct fence *ret)
{
	struct fence f;

	text[strcspn(text, "\n")] = '\0';
	for (int i = 0; i < 3; i++) {
		size_t n = strcspn(text, " ");
		bool is_last = text[n] == '\0';
		int64_t v;

		text[n] = '\0';
		if (is_last != (i == 2) || parse_int64(text, &v) || v < 0)
			return -EBADMSG;
		f.v[i] = (uint64_t)v;
		text += n + 1;
	}
	*ret = f;
	return 0;
}

static int fence_load(const struct fences *f, const char *queue, struct fence *ret, struct err *e)
{
	CLEANUP(buf_done) struct buf b = {0};
	char path[64];
	int r;

	snprintf(path, sizeof(path), "fence/%s", queue);
	r = fd_read_file_at(f->root->fd, path, &b, FENCE_FILE_MAX);
	if (r == -ENOENT) {
		*ret = (struct fence){0};
		return 0;
	}
	if (!r)
		r = b.len ? fence_parse(b.data, ret) : -EBADMSG;
	if (r)
		return err_sys(e, r,
			"%s/%s can't be read, so nobody can say who commands this queue",
			f->root->path, path);
	return 0;
}

static int entry_get(struct fences *f, const char *queue, struct fence_entry **ret, struct err *e)
{
	struct fence_entry x = {.is_stored = true};
	int r;

	for (size_t i = 0; i < f->n; i++) {
		if (!strcmp(f->items[i].queue, queue)) {
			*ret = &f->items[i];
			return 0;
		}
	}
	r = fence_load(f, queue, &x.highest, e);
	if (r)
		return r;
	memcpy(x.queue, queue, strlen(queue) + 1);
	GROW(f->items, f->n, f->cap);
	f->items[f->n++] = x;
	*ret = &f->items[f->n - 1];
	return 0;
}

int fences_highest(struct fences *f, const char *queue, struct fence *ret, struct err *e)
{
	struct fence_entry *x;
	int r = entry_get(f, queue, &x, e);

	if (!r)
		*ret = x->highest;
	return r;
}

int fences_raise(struct fences *f, const char *queue, const struct fence *fence, struct err *e)
{
	struct fence_entry *x;
	int r = entry_get(f, queue, &x, e);

	if (r)
		return r;
	if (fence_compare(fence, &x->highest) <= 0)
		return err_set(e, -ESTALE, "a newer controller commands this queue");
	x->highest = *fence;
	x->is_stored = false;
	return 0;
}

int fences_store(struct fences *f, const char *queue, struct err *e)
{
	struct fence_entry *x;
	char path[64], text[96];
	int n, r = entry_get(f, queue, &x, e);

	if (r || x->is_stored)
		return r;
	if (mkdirat(f->root->fd, "fence", 0700) && errno != EEXIST)
		return err_sys(e, -errno, "%s/fence can't be made", f->root->path);
	snprintf(path, sizeof(path), "fence/%s", queue);
	n = snprintf(text, sizeof(text), "%llu %llu %llu\n", (unsigned long long)x->highest.v[0],
		(unsigned long long)x->highest.v[1], (unsigned long long)x->highest.v[2]);
	r = fd_replace_at(f->root->fd, path, text, (size_t)n, true);
	if (r)
		return err_sys(e, r, "%s/%s can't be written", f->root->path, path);
	x->is_stored = true;
	fault_point("agent.after-fence");
	return 0;
}
