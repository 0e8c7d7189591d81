/* What the kernel and its modules print about processes and machines: any bytes may stand in a cgroup's name. */
#include "base/text.h"
#include "gpu/nvml.h"
#include "proc/cgroup.h"
#include "proc/host.h"

#include <stdlib.h>
#include <string.h>

static void check_text(const char *s, size_t size)
{
	if (memchr(s, '\0', size) == NULL)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	struct cgroup_names names;
	struct host_figures h = {0};
	char uuid[GPU_UUID_LEN] = "", name[GPU_NAME_LEN] = "", *text = malloc(n + 1);
	uint64_t busy = 0, total = 0;

	memcpy(text, bytes, n);
	text[n] = '\0';
	cgroup_parse((const char *)bytes, n, &names);
	check_text(names.container, sizeof(names.container));
	check_text(names.pod, sizeof(names.pod));
	check_text(names.slurm_job, sizeof(names.slurm_job));
	check_text(names.unit, sizeof(names.unit));
	host_parse_meminfo(text, &h);
	if (value_is_present(h.mem_used_mib) &&
		(h.mem_used_mib.v < 0 || h.mem_used_mib.v > h.mem_total_mib.v))
		abort();
	if (host_parse_cpu(text, &busy, &total) == 0 && total == 0)
		abort();
	host_parse_os(text, h.os, sizeof(h.os));
	check_text(h.os, sizeof(h.os));
	if (nvml_parse_information(text, uuid, name) && strncmp(uuid, "GPU-", 4) != 0)
		abort();
	free(text);
	return 0;
}
