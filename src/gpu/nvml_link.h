/* Which cards are joined by NVLink, as bits over positions in the list: read once for each enumeration. */
#pragma once

#include "gpu/nvml.h"

/* Fills link_peers of all cards. A link that can't be read is no link. */
void nvml_link_peers(struct nvml *n);
/* Links the card has, at most NVML_LINKS_MAX; that many where it doesn't tell. */
uint32_t nvml_link_count(struct nvml *n, struct nvml_card *c);
/*
 * Times that links were brought up again, all of them together, by the counters of each link: one call. From Blackwell on
 * the old one is gone and there are three new ones. A code of NVML's.
 */
int nvml_link_recoveries(struct nvml *n, struct nvml_card *c, int64_t *ret);
