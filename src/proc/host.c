/* Figures of the machine (host.h). Files that are missing or odd leave their figures absent. */
#include "proc/host.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "proc/proc.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#define FILE_MAX (4 * 1024 * 1024) /* /proc/stat has a number for each interrupt */
#define CPU_PERIOD_MS 250 /* below it a difference of ticks is mostly rounding */

int meminfo_kib(const char *text, const char *key, int64_t *ret)
{
	size_t n = strlen(key);

	for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, n) == 0 && line[n] == ':') {
			char *end;
			long long v = strtoll(line + n + 1, &end, 10);

			if (end == line + n + 1 || v < 0)
				return -EINVAL;
			*ret = v;
			return 0;
		}
	}
	return -ENOENT;
}

void host_parse_meminfo(const char *text, struct host_figures *ret)
{
	int64_t total, available, free_pages, page_kib, huge, swap, swap_free;

	ret->mem_total_mib = ret->mem_used_mib = value_absent(VALUE_FAILED);
	ret->swap_total_mib = ret->swap_used_mib = value_absent(VALUE_FAILED);
	if (meminfo_kib(text, "MemTotal", &total) == 0) {
		ret->mem_total_mib = value_of(total / 1024);
		if (meminfo_kib(text, "MemAvailable", &available) < 0)
			ret->mem_used_mib = value_absent(VALUE_UNSUPPORTED);
		else {
			if (meminfo_kib(text, "HugePages_Free", &free_pages) == 0 &&
				meminfo_kib(text, "Hugepagesize", &page_kib) == 0 &&
				!__builtin_mul_overflow(free_pages, page_kib, &huge) &&
				huge <= total)
				available += huge;
			available = available > total ? total : available;
			ret->mem_used_mib = value_of((total - available) / 1024);
		}
	}
	if (meminfo_kib(text, "SwapTotal", &swap) == 0 &&
		meminfo_kib(text, "SwapFree", &swap_free) == 0 && swap_free <= swap) {
		ret->swap_total_mib = value_of(swap / 1024);
		ret->swap_used_mib = value_of((swap - swap_free) / 1024);
	}
}

int host_parse_cpu(const char *text, uint64_t *ret_busy, uint64_t *ret_total)
{
	uint64_t v[8] = {0}, total = 0;
	const char *s = text + 4;

	if (strncmp(text, "cpu ", 4) != 0)
		return -EINVAL;
	/* user nice system idle iowait irq softirq steal; guests are in user already. */
	for (size_t i = 0; i < ARRAY_LEN(v); i++) {
		char *end;

		while (*s == ' ')
			s++;
		if (!isdigit((unsigned char)*s))
			break;
		v[i] = strtoull(s, &end, 10);
		s = end;
		total += v[i];
	}
	if (total == 0)
		return -EINVAL;
	*ret_total = total;
	*ret_busy = total - v[3] - v[4];
	return 0;
}

void host_parse_os(const char *text, char *ret, size_t size)
{
	const char *s = text;
	size_t n = 0;
	char quote;

	ret[0] = '\0';
	while (strncmp(s, "PRETTY_NAME=", 12) != 0) {
		s = strchr(s, '\n');
		if (s == NULL)
			return;
		s++;
	}
	s += 12;
	quote = *s == '"' || *s == '\'' ? *s++ : '\n';
	while (*s != '\0' && *s != '\n' && *s != quote && n < size - 1) {
		if (*s == '\\' && s[1] != '\0' && s[1] != '\n')
			s++;
		ret[n++] = *s++;
	}
	ret[n] = '\0';
}

static const char *read_text(const struct host_reader *r, const char *path, struct buf *b)
{
	CLEANUP(buf_done) struct buf full = {0};

	buf_clear(b);
	buf_printf(&full, "%s%s", r->root != NULL ? r->root : "", path);
	return fd_read_file_at(AT_FDCWD, full.data, b, FILE_MAX) < 0 ? "" : buf_str(b);
}

static void read_fixed(struct host_reader *r, struct buf *b)
{
	struct host_figures *f = &r->fixed;
	struct utsname u;
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	if (gethostname(f->host_name, sizeof(f->host_name) - 1) < 0)
		f->host_name[0] = '\0';
	host_parse_os(read_text(r, "/etc/os-release", b), f->os, sizeof(f->os));
	if (f->os[0] == '\0')
		host_parse_os(read_text(r, "/usr/lib/os-release", b), f->os, sizeof(f->os));
	if (uname(&u) == 0)
		snprintf(f->kernel, sizeof(f->kernel), "%.95s", u.release);
	if (proc_boot_id(f->boot_id) < 0)
		f->boot_id[0] = '\0';
	f->cores = cores > 0 && cores < INT32_MAX ? (int32_t)cores : 0;
	r->is_known = true;
}

static struct value use_of(struct host_reader *r, int64_t now_ms, const char *text)
{
	uint64_t busy, total;

	if (host_parse_cpu(text, &busy, &total) < 0)
		return value_absent(VALUE_FAILED);
	if (r->cpu_ms != 0 && (now_ms - r->cpu_ms < CPU_PERIOD_MS || total <= r->total))
		return r->cpu_pct;
	r->cpu_pct = value_absent(VALUE_EMPTY);
	if (r->cpu_ms != 0 && busy >= r->busy && busy - r->busy <= total - r->total)
		r->cpu_pct =
			value_of((int64_t)(((busy - r->busy) * 200 / (total - r->total) + 1) / 2));
	r->cpu_ms = now_ms;
	r->busy = busy;
	r->total = total;
	return r->cpu_pct;
}

/* "0.52 0.58 0.59 ...": each by a thousand, without a detour by floating point. */
static struct value take_milli(const char **s)
{
	char *end;
	long long whole = strtoll(*s, &end, 10), part = 0;

	if (end == *s || whole < 0 || whole > 1000000000)
		return value_absent(VALUE_FAILED);
	if (*end == '.') {
		int digits = 0;

		for (end++; isdigit((unsigned char)*end); end++) {
			if (digits++ < 3)
				part = part * 10 + (*end - '0');
		}
		for (; digits < 3; digits++)
			part *= 10;
	}
	*s = end;
	return value_of(whole * 1000 + part);
}

void host_read(struct host_reader *r, int64_t now_ms, struct host_figures *ret)
{
	const char *s, *elsewhere = getenv("GPUSTOW_HOST_ROOT");
	CLEANUP(buf_done) struct buf b = {0};

	if (!r->is_known)
		read_fixed(r, &b);
	*ret = r->fixed;
	host_parse_meminfo(read_text(r, "/proc/meminfo", &b), ret);
	ret->cpu_pct = use_of(r, now_ms, read_text(r, "/proc/stat", &b));
	s = read_text(r, "/proc/loadavg", &b);
	ret->load_1m_milli = take_milli(&s);
	ret->load_5m_milli = take_milli(&s);
	ret->load_15m_milli = take_milli(&s);
	s = read_text(r, "/proc/uptime", &b);
	ret->uptime_ms = take_milli(&s);
	ret->on_battery = host_on_battery(r->root != NULL     ? r->root
					  : elsewhere != NULL ? elsewhere
							      : "");
}

void host_reader_done(struct host_reader *r)
{
	free(r->root);
	*r = (struct host_reader){0};
}
