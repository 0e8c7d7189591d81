/*
 * NVLink peers by bus id. Cards whose links end at a switch are peers of all other such cards. It asks only about
 * active links and stops at the last one the card has; a stale handle ends the card's turn.
 */
#include "gpu/nvml_link.h"

#include "base/cleanup.h"

#include <string.h>
#include <strings.h>

uint32_t nvml_link_count(struct nvml *n, struct nvml_card *c)
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
	uint32_t max = nvml_link_count(n, c);

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

static const uint32_t new_ids[] = {
	NVML_FIELD_LINK_RECOVERY_ALL, NVML_FIELD_LINK_RECOVERY_OK, NVML_FIELD_LINK_RECOVERY_BAD};
#define NEW_IDS ARRAY_LEN(new_ids)

/* Of one link: the count of all, or that of the good and the bad ones. */
static int recoveries_of(const struct nvml_field *f, uint32_t each, int64_t *ret)
{
	int64_t v[NEW_IDS] = {0};
	int codes[NEW_IDS] = {NVML_NOT_SUPPORTED, NVML_NOT_SUPPORTED, NVML_NOT_SUPPORTED};

	for (uint32_t k = 0; k < each; k++)
		codes[k] = f[k].code != NVML_OK ? f[k].code : nvml_field_value(&f[k], &v[k]);
	if (codes[0] == NVML_OK)
		*ret = v[0];
	else if (codes[1] == NVML_OK && codes[2] == NVML_OK)
		*ret = v[1] + v[2];
	else
		return codes[0];
	return NVML_OK;
}

int nvml_link_recoveries(struct nvml *n, struct nvml_card *c, int64_t *ret)
{
	struct nvml_field f[NEW_IDS * NVML_LINKS_MAX];
	uint32_t each = c->is_blackwell ? NEW_IDS : 1, links;
	int code = NVML_NOT_SUPPORTED;
	bool has_any = false;
	int64_t sum = 0, v;

	if (c->links_active <= 0 || n->lib.fn.fields == NULL)
		return code;
	links = nvml_link_count(n, c);
	if (c->handle == NULL || links == 0)
		return code;
	for (uint32_t i = 0; i < links * each; i++)
		f[i] = (struct nvml_field){.scope = i / each,
			.id = each == 1 ? NVML_FIELD_LINK_RECOVERY_OLD : new_ids[i % each]};
	code = n->lib.fn.fields(c->handle, (int32_t)(links * each), f);
	if (code != NVML_OK)
		return code;
	for (uint32_t i = 0; i < links; i++) {
		if (recoveries_of(&f[i * each], each, &v) != NVML_OK)
			continue;
		has_any = true;
		sum += v;
	}
	if (!has_any)
		return NVML_NOT_SUPPORTED;
	*ret = sum;
	return NVML_OK;
}
