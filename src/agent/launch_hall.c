/*
 * The hall before the line (launch.h): jobs of the queue get their directories here, one of a name at a time, so that
 * nobody empties what another launch of that name goes by. Decides nothing about room.
 */
#include "agent/chores.h"
#include "agent/launch.h"
#include "agent/server.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void launch_hall_done(struct launch *l)
{
	for (size_t i = 0; i < l->n_hall; i++)
		claim_spec_done(&l->hall[i].spec);
	free(l->hall);
}

void launch_hall_add(struct agent *a, uint64_t client, struct claim_spec *spec)
{
	struct launch *l = &a->launch;

	GROW(l->hall, l->n_hall, l->cap_hall);
	l->hall[l->n_hall++] = (struct launch_guest){.client = client, .spec = *spec};
	*spec = (struct claim_spec){0};
}

static struct launch_guest take(struct launch *l, size_t i)
{
	struct launch_guest g = l->hall[i];

	memmove(&l->hall[i], &l->hall[i + 1], (l->n_hall - i - 1) * sizeof(*l->hall));
	l->n_hall--;
	return g;
}

static void to_line(struct agent *a, struct launch_guest *g, bool has_new_dir)
{
	struct launch *l = &a->launch;

	launch_add(a, g->client, &g->spec);
	l->line[l->n - 1].has_new_dir = has_new_dir;
}

/* Its directory is somebody's, or will be nobody's: the line has the answer. */
static bool is_known(struct agent *a, const struct attempt_name *n)
{
	CLEANUP_CLOSE int fd = -1;
	struct attempt_end end;
	char token[ID_LEN];

	if (attempts_find(&a->attempts, n) || !retired_find(a->retired, n, token, &end))
		return true;
	fd = claim_open(&a->root, n);
	return fd != -ENOENT;
}

/* Another launch of that name comes before it and isn't decided. */
static bool must_wait(const struct launch *l, size_t i)
{
	const struct attempt_name *n = &l->hall[i].spec.name;

	for (size_t k = 0; k < i; k++)
		if (attempt_name_equal(&l->hall[k].spec.name, n))
			return true;
	for (size_t k = 0; k < l->n; k++)
		if (attempt_name_equal(&l->line[k].spec.name, n))
			return true;
	return false;
}

static void is_made(
	struct agent *a, uint64_t number, const json_t *answer, int code, const struct err *e)
{
	struct launch *l = &a->launch;
	struct refusal r = {.reason = "disk"};
	struct launch_guest g;
	size_t i = 0;

	while (i < l->n_hall && l->hall[i].number != number)
		i++;
	if (i == l->n_hall)
		return;
	g = take(l, i);
	if (answer)
		fault_point("jobdir.after-sync");
	if (answer || code == -EEXIST) {
		to_line(a, &g, answer != NULL);
		return;
	}
	snprintf(r.text, sizeof(r.text), "%.500s", e->text);
	launch_refuse(a, g.client, &g.spec, &r);
	claim_spec_done(&g.spec);
}

void launch_hall_turn(struct agent *a)
{
	struct launch *l = &a->launch;

	for (size_t i = 0; i < l->n_hall; i++) {
		struct launch_guest *at = &l->hall[i], g;

		if (at->number || must_wait(l, i))
			continue;
		if (!is_known(a, &at->spec.name)) {
			at->number = chores_make(a, &at->spec, is_made);
			continue;
		}
		g = take(l, i--);
		to_line(a, &g, false);
	}
}
