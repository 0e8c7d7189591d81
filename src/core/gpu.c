/* Life and look-ups of a GPU snapshot. Pure: nothing here asks a driver, a clock or a file. */
#include "core/gpu.h"
#include "base/alloc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const state_names[GPU_STATE_N] = {
	[GPU_OK] = "ok",
	[GPU_LOST] = "lost",
	[GPU_NEEDS_RESET] = "needs-reset",
	[GPU_FORBIDDEN] = "forbidden",
	[GPU_FAILED] = "failed",
};

static const char *const state_texts[GPU_STATE_N] = {
	[GPU_OK] = "",
	[GPU_LOST] =
		"the GPU is lost: it has fallen off the bus or was taken away; look at its power and "
		"the kernel log, then reboot",
	[GPU_NEEDS_RESET] =
		"the GPU needs a reset: end what uses it, then nvidia-smi --gpu-reset, or reboot",
	[GPU_FORBIDDEN] =
		"the GPU may not be opened: device rules of a container or cgroup, or a missing "
		"permission",
	[GPU_FAILED] =
		"the driver answers with errors for this GPU; in a container that had it before, its "
		"device rules were rewritten: start the container again",
};

void gpu_snapshot_done(struct gpu_snapshot *s)
{
	if (s == NULL)
		return;
	free(s->cards);
	free(s->procs);
	free(s->more);
	free(s->instances);
	*s = (struct gpu_snapshot){0};
}

static void *copy_rows(const void *from, uint32_t n, size_t size)
{
	void *to;

	if (n == 0)
		return NULL;
	to = xcalloc(n, size);
	memcpy(to, from, n * size);
	return to;
}

void gpu_snapshot_copy(const struct gpu_snapshot *from, struct gpu_snapshot *ret)
{
	struct gpu_snapshot to = *from;

	to.cards = copy_rows(from->cards, from->n_cards, sizeof(*from->cards));
	to.procs = copy_rows(from->procs, from->n_procs, sizeof(*from->procs));
	to.more = from->more ? copy_rows(from->more, from->n_procs, sizeof(*from->more)) : NULL;
	to.instances = copy_rows(from->instances, from->n_instances, sizeof(*from->instances));
	*ret = to;
}

int gpu_find_uuid(const struct gpu_snapshot *s, const char *uuid)
{
	/* A lost card that never told its UUID has "": nobody may find it by asking for nothing. */
	if (uuid == NULL || uuid[0] == '\0')
		return -1;
	for (uint32_t i = 0; i < s->n_cards; i++) {
		if (strcmp(s->cards[i].uuid, uuid) == 0)
			return (int)i;
	}
	return -1;
}

int gpu_find_index(const struct gpu_snapshot *s, int index)
{
	for (uint32_t i = 0; i < s->n_cards; i++) {
		if (s->cards[i].index == index && !gpu_is_instance(&s->cards[i]))
			return (int)i;
	}
	return -1;
}

int gpu_find_label(const struct gpu_snapshot *s, const char *label)
{
	for (uint32_t i = 0; i < s->n_cards; i++) {
		char own[GPU_LABEL_LEN];

		gpu_label(s->cards[i].index, s->cards[i].gi, s->cards[i].ci, own);
		if (strcmp(own, label) == 0)
			return (int)i;
	}
	return -1;
}

bool gpu_is_instance(const struct gpu_card *c)
{
	return c->parent[0] != '\0';
}

bool gpu_is_placeable(const struct gpu_card *c)
{
	return !c->is_mig_parent;
}

uint32_t gpu_whole_of(const struct gpu_snapshot *s, uint32_t card)
{
	int at = card < s->n_cards ? gpu_find_uuid(s, s->cards[card].parent) : -1;

	return at < 0 ? card : (uint32_t)at;
}

uint32_t gpu_count_whole(const struct gpu_snapshot *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->n_cards; i++)
		n += !gpu_is_instance(&s->cards[i]);
	return n;
}

void gpu_label(int32_t index, int32_t gi, int32_t ci, char ret[GPU_LABEL_LEN])
{
	if (gi <= 0)
		snprintf(ret, GPU_LABEL_LEN, "%d", index);
	else if (ci <= 1)
		snprintf(ret, GPU_LABEL_LEN, "%d:%d", index, gi - 1);
	else
		snprintf(ret, GPU_LABEL_LEN, "%d:%d:%d", index, gi - 1, ci - 1);
}

static const char *const reset_names[GPU_RESET_N] = {
	[GPU_RESET_NONE] = "none", [GPU_RESET_PENDING] = "pending", [GPU_RESET_NEEDED] = "needed"};

const char *gpu_reset_name(enum gpu_reset r)
{
	return (unsigned)r < GPU_RESET_N ? reset_names[r] : NULL;
}

int gpu_reset_from_name(const char *name, enum gpu_reset *ret)
{
	for (size_t i = 0; name != NULL && i < GPU_RESET_N; i++) {
		if (strcmp(name, reset_names[i]) == 0) {
			*ret = i;
			return 0;
		}
	}
	return -EINVAL;
}

const char *gpu_state_name(enum gpu_state s)
{
	return (unsigned)s < GPU_STATE_N ? state_names[s] : NULL;
}

const char *gpu_state_text(enum gpu_state s)
{
	return (unsigned)s < GPU_STATE_N ? state_texts[s] : "";
}

int gpu_state_from_name(const char *name, enum gpu_state *ret)
{
	for (size_t i = 0; name != NULL && i < GPU_STATE_N; i++) {
		if (strcmp(name, state_names[i]) == 0) {
			*ret = i;
			return 0;
		}
	}
	return -EINVAL;
}
