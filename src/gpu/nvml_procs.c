/*
 * Process lists of a card. Compute, graphics and MPS are three lists, each in three versions with two element sizes
 * under the same names, and one series of drivers that used a third size: the buffer always has room for the widest
 * element, and the size is chosen by what the rows then say.
 */
#include "gpu/nvml.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "proc/proc.h"

#include <stdlib.h>
#include <string.h>

#define WIDEST sizeof(struct nvml_process_535)
#define LIST_MAX 65536 /* processes on one card that we believe in */
#define PID_LARGEST 4194304 /* the kernel's PID_MAX_LIMIT */
#define MIB (1024 * 1024)

typedef int nvml_list_call(struct nvml_device *, uint32_t *, void *);

struct raw_list {
	uint8_t *rows; /* WIDEST bytes each, zeroed before the call */
	uint32_t n;
	size_t stride;
};

struct raw_row {
	uint32_t pid;
	uint64_t used;
	uint64_t instance; /* GPU and compute instance (the upper half), all ones without MIG */
};

static nvml_list_call *list_call(const struct nvml_functions *f, enum nvml_list list, int variant)
{
	nvml_list_call *const calls[LIST_N][LIST_VARIANTS] = {
		[LIST_COMPUTE] = {f->compute_v3, f->compute_v2, f->compute_v1},
		[LIST_GRAPHICS] = {f->graphics_v3, f->graphics_v2, f->graphics_v1},
		[LIST_MPS] = {f->mps_v3, f->mps_v2, f->mps_v1},
	};

	return calls[list][variant];
}

/* How many of n rows hold a possible pid, and how many of these are there in /proc. */
static void score(
	const uint8_t *rows, uint32_t n, size_t stride, uint32_t *possible, uint32_t *alive)
{
	*possible = *alive = 0;
	for (uint32_t i = 0; i < n; i++) {
		struct proc_stat st;
		uint32_t pid;

		memcpy(&pid, rows + i * stride, sizeof(pid));
		if (pid == 0 || pid > PID_LARGEST)
			continue;
		*possible += 1;
		*alive += proc_read_stat((pid_t)pid, &st) == 0;
	}
}

size_t nvml_pick_stride(const uint8_t *rows, uint32_t n, size_t expected, size_t other)
{
	uint32_t possible[2], alive[2];

	score(rows, n, expected, &possible[0], &alive[0]);
	if (possible[0] == n && alive[0] == n)
		return expected;
	score(rows, n, other, &possible[1], &alive[1]);
	if (possible[1] > possible[0])
		return other;
	return possible[1] == possible[0] && alive[1] > alive[0] ? other : expected;
}

static size_t stride_of(const struct nvml *n, const struct raw_list *l, int variant)
{
	const size_t narrow = sizeof(struct nvml_process_v2), wide = WIDEST;

	if (variant == 2)
		return sizeof(struct nvml_process_v1);
	if (variant == 1)
		return narrow;
	return n->has_wide_processes ? nvml_pick_stride(l->rows, l->n, wide, narrow)
				     : nvml_pick_stride(l->rows, l->n, narrow, wide);
}

/* One call of one variant, with room that grows: processes come and go between question and answer. */
static int read_variant(struct nvml *n, const struct nvml_card *c, struct nvml_device *d,
	nvml_list_call *call, int variant, struct raw_list *ret)
{
	uint32_t room = 32;

	for (int attempt = 0; attempt < 4; attempt++) {
		struct raw_list l = {.rows = xcalloc(room, WIDEST), .n = room};
		int64_t begun_us = nvml_call_begin();
		int code = call(d, &l.n, l.rows);

		nvml_call_end(n, c, "process list", begun_us);
		if (code == NVML_OK) {
			l.n = l.n > room ? room : l.n;
			l.stride = stride_of(n, &l, variant);
			*ret = l;
			return code;
		}
		free(l.rows);
		if (code != NVML_INSUFFICIENT_SIZE)
			return code;
		room = l.n > LIST_MAX ? 2 * LIST_MAX : 2 * l.n + 5;
	}
	return NVML_INSUFFICIENT_SIZE;
}

/*
 * The newest variant that works. Only "there is no such function" moves the library's starting point for good; an
 * unknown error is given one chance with the older variants, for there are drivers whose newest one never works.
 */
static int read_list(struct nvml *n, const struct nvml_card *c, struct nvml_device *d,
	enum nvml_list list, struct raw_list *ret)
{
	int first = NVML_FUNCTION_NOT_FOUND;
	bool is_first = true;

	for (int variant = n->first_variant[list]; variant < LIST_VARIANTS; variant++) {
		nvml_list_call *call = list_call(&n->lib.fn, list, variant);
		int code = call == NULL ? NVML_FUNCTION_NOT_FOUND
					: read_variant(n, c, d, call, variant, ret);

		if (code == NVML_OK)
			return code;
		if (code == NVML_FUNCTION_NOT_FOUND) {
			if (variant == n->first_variant[list])
				n->first_variant[list] = variant + 1;
			continue;
		}
		if (is_first)
			first = code;
		is_first = false;
		if (!nvml_code_is_permanent(code) && code != NVML_UNKNOWN &&
			code != NVML_INVALID_ARGUMENT)
			return code;
	}
	return first;
}

static struct raw_row row_at(const struct raw_list *l, uint32_t i)
{
	const uint8_t *at = l->rows + i * l->stride;
	struct raw_row r = {.instance = NVML_ABSENT_U64};

	memcpy(&r.pid, at, sizeof(r.pid));
	memcpy(&r.used, at + offsetof(struct nvml_process_v1, used), sizeof(r.used));
	if (l->stride >= sizeof(struct nvml_process_v2))
		memcpy(&r.instance, at + offsetof(struct nvml_process_v2, gpu_instance),
			sizeof(r.instance));
	return r;
}

static struct value used_of(uint64_t bytes)
{
	/* All bits one is "not available"; as a figure it's 2^44 MiB, which has been seen on screens. */
	if (bytes / MIB > INT32_MAX)
		return value_absent(VALUE_UNSUPPORTED);
	return value_of((int64_t)(bytes / MIB + (bytes % MIB != 0)));
}

static struct value larger(struct value a, struct value b)
{
	if (!value_is_present(a) || (value_is_present(b) && b.v > a.v))
		return b;
	return a;
}

/* Not every version of a list names the instance. */
static bool is_same(const struct gpu_proc *a, const struct gpu_proc *b)
{
	return a->pid == b->pid && (a->gi == 0 || b->gi == 0 || (a->gi == b->gi && a->ci == b->ci));
}

/*
 * Rows of this card begin at `from`. The same process in two lists is one row with the larger figure; on two MIG
 * instances it has two rows.
 */
static void add_row(struct nvml_rows *rows, uint32_t from, struct gpu_proc p)
{
	for (uint32_t i = from; i < rows->n; i++) {
		if (!is_same(&rows->items[i], &p))
			continue;
		rows->items[i].kind |= p.kind;
		if (rows->items[i].gi == 0) {
			rows->items[i].gi = p.gi;
			rows->items[i].ci = p.ci;
		}
		rows->items[i].used_mib = larger(rows->items[i].used_mib, p.used_mib);
		return;
	}
	if (rows->n < GPU_PROC_MAX)
		rows->items[rows->n++] = p;
}

static int32_t instance_id(uint32_t id)
{
	return id >= INT32_MAX ? 0 : (int32_t)id + 1;
}

/* `where` names the instance of rows that don't: the list was asked of that one. */
static void add_list(const struct raw_list *l, enum nvml_list list, uint32_t position,
	struct gpu_instance where, uint32_t from, struct nvml_rows *rows)
{
	for (uint32_t i = 0; i < l->n; i++) {
		struct raw_row r = row_at(l, i);
		bool has_instance = (uint32_t)r.instance < INT32_MAX;

		if (r.pid == 0 || r.pid > PID_LARGEST)
			continue;
		add_row(rows, from,
			(struct gpu_proc){
				.card = position,
				.kind = 1u << list,
				.pid = (int32_t)r.pid,
				.used_mib = used_of(r.used),
				.gi = has_instance ? instance_id((uint32_t)r.instance) : where.gi,
				.ci = has_instance ? instance_id((uint32_t)(r.instance >> 32))
						   : where.ci,
			});
	}
}

/* An unprivileged caller sees nothing on the parent of MIG instances, but may see each instance. */
static int list_instances(struct nvml *n, struct nvml_card *c, enum nvml_list list,
	uint32_t position, uint32_t from, struct nvml_rows *rows)
{
	uint32_t max = 0;
	int code = n->lib.fn.mig_max == NULL || n->lib.fn.mig_handle == NULL
			   ? NVML_FUNCTION_NOT_FOUND
			   : n->lib.fn.mig_max(c->handle, &max);
	int seen = code;

	for (uint32_t i = 0; code == NVML_OK && i < max && i < 64; i++) {
		struct nvml_device *instance = NULL;
		struct raw_list l;
		int r = n->lib.fn.mig_handle(c->handle, i, &instance);

		if (nvml_code_is_stale(r))
			return r;
		if (r != NVML_OK || instance == NULL)
			continue; /* numbers of instances have gaps */
		seen = read_list(n, c, instance, list, &l);
		if (nvml_code_is_stale(seen))
			return seen;
		if (seen == NVML_OK) {
			add_list(&l, list, position,
				(struct gpu_instance){.gi = nvml_mig_id(n->lib.fn.gi_id, instance),
					.ci = nvml_mig_id(n->lib.fn.ci_id, instance)},
				from, rows);
			free(l.rows);
		}
	}
	return seen;
}

/* Whether the list could be read. */
static bool sample_list(struct nvml *n, struct nvml_card *c, enum nvml_list list, uint32_t position,
	bool has_mig, uint32_t from, struct nvml_rows *rows)
{
	struct raw_list l;
	int code = read_list(n, c, c->handle, list, &l);

	if (code == NVML_OK) {
		add_list(&l, list, position, (struct gpu_instance){0}, from, rows);
		free(l.rows);
		return true;
	}
	if (nvml_card_drop(n, c, code))
		return false;
	if (nvml_code_is_permanent(code) && !has_mig)
		c->list_gone[list] = true;
	if (!has_mig)
		return false;
	code = list_instances(n, c, list, position, from, rows);
	nvml_card_drop(n, c, code);
	return code == NVML_OK;
}

void nvml_card_procs(struct nvml *n, struct nvml_card *c, uint32_t position, bool has_mig,
	struct nvml_rows *rows)
{
	uint32_t from = rows->n, named = 0;
	bool has_compute = false;

	for (enum nvml_list list = 0; list < LIST_N && c->handle != NULL; list++) {
		bool ok = !c->list_gone[list] &&
			  sample_list(n, c, list, position, has_mig, from, rows);

		has_compute |= ok && list == LIST_COMPUTE;
	}
	if (c->handle == NULL) {
		rows->n = from;
		return;
	}
	for (uint32_t i = from; i < rows->n; i++)
		named += value_is_present(rows->items[i].used_mib);
	/* Without the list of compute processes nobody can say who holds the card's memory. */
	if (!has_compute)
		c->is_blind = true;
	else if (rows->n > from)
		c->is_blind = named == 0;
	else if (!n->is_wsl)
		c->is_blind = false;
}
