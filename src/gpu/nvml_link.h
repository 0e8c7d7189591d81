/* Which cards are joined by NVLink, as bits over positions in the list: read once for each enumeration. */
#pragma once

#include "gpu/nvml.h"

/* Fills link_peers of all cards. A link that can't be read is no link. */
void nvml_link_peers(struct nvml *n);
