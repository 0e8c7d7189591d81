/*
 * NVLink peers by bus id. Cards whose links end at a switch are peers of all other such cards. It asks only about
 * active links and stops at the last one the card has; a stale handle ends the card's turn.
 */
#include "gpu/nvml_link.h"

#include <string.h>
#include <strings.h>

static uint32_t link_count(struct nvml *n, struct nvml_card *c)
{
	struct nvml_field f = {.id = NVML_FIELD_LINK_COUNT};
	int code = n->lib.fn.fields == NULL ? NVML_FUNCTION_NOT_FOUND
					    : n->lib.fn.fields(c->handle, 1, &f);

	if (nvml_card_drop(n, c, code))
		return 0;
	if (code != NVML_OK || f.code != NVML_OK || f.value.u32 > NVML_LINKS_MAX)
		return NVML_LINKS_MAX;
	return f.value.u32;
}

/* The far end's place in the list, -1 for none of ours, -2 for a switch. */
static int far_end(struct nvml *n, struct nvml_card *c, uint32_t link)
{
	struct nvml_pci pci = {0};
	int32_t kind = NVML_LINK_DEVICE_GPU;
	const char *bus;

	if (n->lib.fn.link_kind != NULL) {
		if (nvml_card_drop(n, c, n->lib.fn.link_kind(c->handle, link, &kind)))
			return -1;
		if (kind == NVML_LINK_DEVICE_SWITCH)
			return -2;
	}
	if (n->lib.fn.link_pci == NULL)
		return -1;
	if (n->lib.fn.link_pci(c->handle, link, &pci) != NVML_OK)
		return -1;
	pci.bus_id[sizeof(pci.bus_id) - 1] = pci.bus_id_legacy[sizeof(pci.bus_id_legacy) - 1] =
		'\0';
	bus = pci.bus_id[0] != '\0' ? pci.bus_id : pci.bus_id_legacy;
	for (uint32_t i = 0; i < n->n_cards; i++) {
		if (bus[0] != '\0' && strcasecmp(n->cards[i].bus_id, bus) == 0)
			return (int)i;
	}
	return -1;
}

static void read_links(struct nvml *n, uint32_t at, uint64_t *on_switch)
{
	struct nvml_card *c = &n->cards[at];
	uint32_t max = link_count(n, c);

	c->links_active = c->handle != NULL ? 0 : -1;
	for (uint32_t link = 0; link < max && c->handle != NULL; link++) {
		int32_t is_active = 0;
		int code = n->lib.fn.link_state(c->handle, link, &is_active), far;

		if (nvml_card_drop(n, c, code) || code == NVML_NOT_SUPPORTED ||
			code == NVML_INVALID_ARGUMENT) {
			if (link == 0 && code == NVML_NOT_SUPPORTED)
				c->links_active = -1;
			return;
		}
		if (code != NVML_OK || is_active != 1)
			continue;
		c->links_active++;
		far = far_end(n, c, link);
		if (far == -2)
			*on_switch |= UINT64_C(1) << at;
		else if (far >= 0 && (uint32_t)far != at)
			c->link_peers |= UINT64_C(1) << far;
	}
}

void nvml_link_peers(struct nvml *n)
{
	uint64_t on_switch = 0;

	for (uint32_t i = 0; i < n->n_cards; i++)
		n->cards[i].link_peers = 0;
	for (uint32_t i = 0; n->lib.fn.link_state != NULL && i < n->n_cards; i++) {
		if (n->cards[i].handle != NULL)
			read_links(n, i, &on_switch);
	}
	for (uint32_t i = 0; i < n->n_cards; i++) {
		if (on_switch >> i & 1)
			n->cards[i].link_peers |= on_switch & ~(UINT64_C(1) << i);
	}
}
