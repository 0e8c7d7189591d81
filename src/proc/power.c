/*
 * Whether the machine runs on its battery, out of /sys/class/power_supply. A mouse or a UPS of somebody else's has a
 * battery too (scope "Device"): only those that feed the machine count, and mains that is plugged in settles it.
 */
#include "proc/host.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>

#define WORD_MAX 64

static bool says(const char *dir, const char *supply, const char *file, const char *word)
{
	CLEANUP(buf_done) struct buf path = {0}, b = {0};
	size_t n = strlen(word);

	buf_printf(&path, "%s/%s/%s", dir, supply, file);
	return fd_read_file_at(AT_FDCWD, path.data, &b, WORD_MAX) == 0 && b.len >= n &&
	       memcmp(b.data, word, n) == 0 && (b.len == n || b.data[n] == '\n');
}

struct value host_on_battery(const char *root)
{
	CLEANUP(buf_done) struct buf path = {0};
	CLEANUP_CLOSEDIR DIR *d = NULL;
	bool has_battery = false, discharges = false;
	const struct dirent *x;

	buf_printf(&path, "%s/sys/class/power_supply", root);
	d = opendir(path.data);
	while (d != NULL && (x = readdir(d)) != NULL) {
		if (x->d_name[0] == '.')
			continue;
		if (says(path.data, x->d_name, "type", "Mains") &&
			says(path.data, x->d_name, "online", "1"))
			return value_of(0);
		if (!says(path.data, x->d_name, "type", "Battery") ||
			says(path.data, x->d_name, "scope", "Device"))
			continue;
		has_battery = true;
		discharges |= says(path.data, x->d_name, "status", "Discharging");
	}
	return has_battery ? value_of(discharges) : value_absent(VALUE_UNSUPPORTED);
}
