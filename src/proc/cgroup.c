/*
 * Reads the paths in /proc/PID/cgroup, of both hierarchies. Each component of a path is looked at by itself, outermost
 * first, so that the innermost of a kind wins; a component may hold any byte, and only what has the right shape counts.
 */
#include "proc/cgroup.h"

#include "base/cleanup.h"

#include <stdbool.h>
#include <string.h>

#define ID_DIGITS 64

struct piece {
	const char *s;
	size_t n;
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_hex(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'f');
}

static bool has_prefix(struct piece p, const char *prefix)
{
	return p.n >= strlen(prefix) && memcmp(p.s, prefix, strlen(prefix)) == 0;
}

static bool has_suffix(struct piece p, const char *suffix)
{
	size_t n = strlen(suffix);

	return p.n > n && memcmp(p.s + p.n - n, suffix, n) == 0;
}

/* 64 hex digits at the end, or before ".scope", after nothing, a dash or a colon: docker-<id>.scope, <id>, cri-containerd-<id>. */
static void take_container(struct piece p, struct cgroup_names *ret)
{
	const char *id;

	if (has_suffix(p, ".scope"))
		p.n -= strlen(".scope");
	/* Podman and CRI-O keep a monitor of the container beside it. */
	if (p.n < ID_DIGITS || has_prefix(p, "crio-conmon-") || has_prefix(p, "libpod-conmon-"))
		return;
	id = p.s + p.n - ID_DIGITS;
	if (id > p.s && id[-1] != '-' && id[-1] != ':')
		return;
	for (size_t i = 0; i < ID_DIGITS; i++) {
		if (!is_hex(id[i]))
			return;
	}
	memcpy(ret->container, id, ID_DIGITS);
	ret->container[ID_DIGITS] = '\0';
}

/* "pod<uid>", or "kubepods-burstable-pod<uid with _>.slice". */
static void take_pod(struct piece p, struct cgroup_names *ret)
{
	const char *at = has_prefix(p, "pod") ? p.s : NULL;
	char pod[sizeof(ret->pod)];
	size_t n;

	if (has_suffix(p, ".slice"))
		p.n -= strlen(".slice");
	if (at == NULL && has_prefix(p, "kubepods")) {
		at = memmem(p.s, p.n, "-pod", 4);
		at = at != NULL ? at + 1 : NULL;
	}
	if (at == NULL)
		return;
	at += 3;
	n = p.n - (size_t)(at - p.s);
	if (n < 32 || n >= sizeof(pod))
		return;
	for (size_t i = 0; i < n; i++) {
		if (!is_hex(at[i]) && at[i] != '-' && at[i] != '_')
			return;
		pod[i] = at[i];
		if (at[i] == '_')
			pod[i] = '-';
	}
	pod[n] = '\0';
	memcpy(ret->pod, pod, n + 1);
}

/* "job_1234" below something of Slurm's, then perhaps "step_0" or "step_batch". */
static void take_slurm(struct piece p, bool *in_slurm, struct cgroup_names *ret)
{
	size_t n = 0, at = strlen(ret->slurm_job);

	if (has_prefix(p, "slurm"))
		*in_slurm = true;
	if (*in_slurm && has_prefix(p, "job_")) {
		p.s += 4;
		p.n -= 4;
		while (n < p.n && is_digit(p.s[n]))
			n++;
		if (n == 0 || n < p.n || n >= 16)
			return;
		memcpy(ret->slurm_job, p.s, n);
		ret->slurm_job[n] = '\0';
	} else if (*in_slurm && at > 0 && has_prefix(p, "step_") &&
		   memchr(ret->slurm_job, '.', at) == NULL) {
		p.s += 5;
		p.n -= 5;
		while (n < p.n && (is_digit(p.s[n]) || (p.s[n] >= 'a' && p.s[n] <= 'z')))
			n++;
		if (n == 0 || n < p.n || n >= 12)
			return;
		ret->slurm_job[at++] = '.';
		memcpy(ret->slurm_job + at, p.s, n);
		ret->slurm_job[at + n] = '\0';
	}
}

static void take_unit(struct piece p, struct cgroup_names *ret)
{
	if ((!has_suffix(p, ".service") && !has_suffix(p, ".scope")) || p.n >= sizeof(ret->unit))
		return;
	memcpy(ret->unit, p.s, p.n);
	ret->unit[p.n] = '\0';
}

static void take_path(const char *s, size_t n, struct cgroup_names *ret)
{
	bool in_slurm = false;
	const char *end = s + n;

	while (s < end) {
		const char *slash = memchr(s, '/', (size_t)(end - s));
		struct piece p = {s, (size_t)((slash != NULL ? slash : end) - s)};
		bool had_container = ret->container[0] != '\0';

		take_container(p, ret);
		take_pod(p, ret);
		take_slurm(p, &in_slurm, ret);
		/* A container's own scope, and what runs inside of it, are no units of this machine. */
		if (!had_container && ret->container[0] == '\0')
			take_unit(p, ret);
		s += p.n + 1;
	}
}

void cgroup_parse(const char *text, size_t n, struct cgroup_names *ret)
{
	const char *end = text + n;

	*ret = (struct cgroup_names){0};
	while (text < end) {
		const char *nl = memchr(text, '\n', (size_t)(end - text));
		const char *stop = nl != NULL ? nl : end;
		struct cgroup_names of_line = {0};
		const char *path = memchr(text, ':', (size_t)(stop - text));

		/* "0::/path", "4:memory:/path" */
		path = path != NULL ? memchr(path + 1, ':', (size_t)(stop - path - 1)) : NULL;
		if (path != NULL)
			take_path(path + 1, (size_t)(stop - path - 1), &of_line);
		/* Hierarchies may differ; the first that knows something of a kind tells it. */
		if (ret->container[0] == '\0')
			memcpy(ret->container, of_line.container, sizeof(ret->container));
		if (ret->pod[0] == '\0')
			memcpy(ret->pod, of_line.pod, sizeof(ret->pod));
		if (ret->slurm_job[0] == '\0')
			memcpy(ret->slurm_job, of_line.slurm_job, sizeof(ret->slurm_job));
		if (ret->unit[0] == '\0')
			memcpy(ret->unit, of_line.unit, sizeof(ret->unit));
		text = stop + 1;
	}
	if (ret->container[0] != '\0')
		ret->unit[0] = '\0';
}
