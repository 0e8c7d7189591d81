/*
 * Whom a process belongs to by the path of its control group: container, Kubernetes pod, Slurm job, systemd unit. Pure:
 * bytes of /proc/PID/cgroup in, names out.
 */
#pragma once

#include <stddef.h>

struct cgroup_names {
	char container
		[65]; /* 64 hex digits as Docker, containerd, CRI-O and Podman write them; "" without */
	char pod[64]; /* the pod's uid, with dashes */
	char slurm_job[32]; /* "1234", or "1234.0" with its step */
	char unit
		[96]; /* "nginx.service", "session-3.scope"; the innermost, "" inside a container */
};

/* Any text is accepted; what can't be recognised is "". */
void cgroup_parse(const char *text, size_t n, struct cgroup_names *ret);
