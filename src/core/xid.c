/* The table of XIDs. A number that isn't in it is told as a number: a guess would send people the wrong way. */
#include "core/xid.h"

#include "base/cleanup.h"

#include <stddef.h>

#define AFTERMATH_MS 60000

static const struct xid_info xids[] = {
	{8, 8, XID_DRIVER, "the card stopped working on something",
		"end the program; reset the card if it comes again"},
	{13, 13, XID_APP, "a program failed on the card",
		"look for a bad memory access in it (compute-sanitizer)"},
	{31, 31, XID_APP, "a program touched memory that isn't there",
		"look for a bad address in it (compute-sanitizer)"},
	{32, 32, XID_DRIVER, "the commands for the card arrived damaged",
		"start the program again; if it comes again, suspect the hardware"},
	{43, 43, XID_APP, "a program's work on the card was torn down", "start that program again"},
	{45, 45, XID_INFO, "cleaning up after an earlier error or a kill",
		"the XID before it says why, if there was one"},
	{46, 46, XID_DRIVER, "the card stopped working", "reset the card"},
	{48, 48, XID_CRITICAL, "a memory error of two bits, which can't be corrected",
		"drain the card and reset it; watch remap_uncorrected_count"},
	{54, 54, XID_CRITICAL, "the card's own power cable isn't connected", "check the cable"},
	{61, 61, XID_WARNING, "the card's microcontroller has met a problem",
		"reset the card, or reboot"},
	{62, 62, XID_CRITICAL, "the card's microcontroller stopped", "reset the card, or reboot"},
	{63, 63, XID_WARNING, "bad memory was noted for retiring or remapping",
		"reset the card when it's idle"},
	{64, 64, XID_CRITICAL, "bad memory couldn't be retired or remapped",
		"reset the card; have it replaced if it comes again"},
	{68, 68, XID_APP, "a program failed on the video decoder", ""},
	{69, 69, XID_DRIVER, "the graphics engine refused what it was given", ""},
	{74, 74, XID_CRITICAL, "an NVLink failed",
		"reset the card; check the bridge or the switch"},
	{79, 79, XID_CRITICAL, "the card fell off the bus",
		"reboot; check its power, its seat or riser, and its temperature"},
	{92, 92, XID_WARNING, "very many memory errors had to be corrected",
		"plan to replace the card"},
	{94, 94, XID_WARNING, "a memory error that hit one program only",
		"that program must be started again; the others are well"},
	{95, 95, XID_CRITICAL, "a memory error that may have hit every program",
		"end everything on this card and reset it"},
	{109, 109, XID_DRIVER, "changing from one program to another took too long", ""},
	{119, 119, XID_CRITICAL, "the card's system processor (GSP) doesn't answer",
		"reset the card, or reboot; until then questions to the driver may hang"},
	{120, 120, XID_CRITICAL, "the card's system processor (GSP) failed",
		"reset the card, or reboot; until then questions to the driver may hang"},
	{121, 121, XID_WARNING, "the link between chip and CPU (C2C) had an error", ""},
	{136, 136, XID_WARNING, "a link couldn't be trained", ""},
	{137, 137, XID_WARNING, "something reached over NVLink where it may not", ""},
	{140, 140, XID_CRITICAL, "a memory error that wasn't recovered from", "reset the card"},
	{143, 143, XID_CRITICAL, "the card couldn't be initialised", "reboot"},
	{144, 150, XID_CRITICAL, "a unit of NVLink 5 failed",
		"look at the fabric's state (nvidia-smi -q)"},
	{154, 154, XID_INFO, "what the driver asks for has changed", "recovery_action has it"},
	{156, 156, XID_WARNING, "a part of the card was retired", ""},
	{157, 157, XID_CRITICAL, "a part of the card couldn't be retired", ""},
	{171, 171, XID_CRITICAL, "an error in the card's memory that can't be corrected",
		"drain the card"},
	{172, 172, XID_CRITICAL, "an error inside of the chip that can't be corrected",
		"drain the card"},
};

const struct xid_info *xid_find(int64_t xid)
{
	for (size_t i = 0; i < ARRAY_LEN(xids); i++)
		if (xid >= xids[i].first && xid <= xids[i].last)
			return &xids[i];
	return NULL;
}

bool xid_is_of_card(int64_t xid)
{
	const struct xid_info *x = xid_find(xid);

	return xid && (!x || (x->tier != XID_APP && x->tier != XID_INFO));
}

static bool is_aftermath(int64_t xid)
{
	const struct xid_info *x = xid_find(xid);

	return x && x->tier == XID_INFO;
}

bool xid_replaces(int64_t xid, int64_t last, int64_t after_ms)
{
	return !last || !is_aftermath(xid) || is_aftermath(last) || after_ms >= AFTERMATH_MS;
}

void xid_put(const struct xid_info *x, struct buf *out)
{
	if (x)
		buf_printf(out, "%s%s%s", x->what, *x->mend ? ": " : "", x->mend);
}
