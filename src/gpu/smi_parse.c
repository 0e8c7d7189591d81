/*
 * Single figures of nvidia-smi, its CSV, and the table of rows. A figure that isn't one is absent with a reason and
 * never drops its card; a line that isn't a row is passed over.
 */
#include "gpu/smi_parse.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/parse.h"
#include "gpu/smi_table.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool is_blank(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

void smi_trim(const char **s, size_t *n)
{
	while (*n > 0 && is_blank(**s))
		(*s)++, (*n)--;
	while (*n > 0 && is_blank((*s)[*n - 1]))
		(*n)--;
}

void smi_copy(const char *s, size_t n, char *ret, size_t size)
{
	size_t len = 0;

	for (size_t i = 0; i < n && len < size - 1; i++)
		ret[len++] = s[i] >= ' ' && s[i] <= '~' ? s[i] : '?';
	ret[len] = '\0';
}

struct spelling {
	const char *text;
	enum value_state state;
};

static const struct spelling spellings[] = {
	{"", VALUE_UNSUPPORTED},
	{"n/a", VALUE_UNSUPPORTED},
	{"na", VALUE_UNSUPPORTED},
	{"none", VALUE_UNSUPPORTED},
	{"-", VALUE_UNSUPPORTED},
	{"not supported", VALUE_UNSUPPORTED},
	{"not available", VALUE_UNSUPPORTED},
	{"unknown", VALUE_UNSUPPORTED},
	{"not active", VALUE_EMPTY},
	{"not found", VALUE_EMPTY},
	{"no data", VALUE_EMPTY},
	{"insufficient permissions", VALUE_FORBIDDEN},
	{"insufficient permission", VALUE_FORBIDDEN},
	{"requires root", VALUE_FORBIDDEN},
	{"gpu access blocked by the operating system", VALUE_FORBIDDEN},
	{"gpu is lost", VALUE_LOST},
	{"gpu lost", VALUE_LOST},
	{"gpu requires reset", VALUE_LOST},
	{"unknown error", VALUE_FAILED},
	{"err!", VALUE_FAILED},
	{"error", VALUE_FAILED},
};

enum value_state smi_absence(const char *s, size_t n)
{
	bool has_brackets = n >= 2 && s[0] == '[' && s[n - 1] == ']';

	if (has_brackets) {
		s++;
		n -= 2;
		smi_trim(&s, &n);
	}
	for (size_t i = 0; i < ARRAY_LEN(spellings); i++) {
		if (strlen(spellings[i].text) == n && strncasecmp(s, spellings[i].text, n) == 0)
			return spellings[i].state;
	}
	/* A bracket holds an excuse, never a figure. */
	return has_brackets ? VALUE_UNSUPPORTED : VALUE_PRESENT;
}

struct unit_info {
	const char *suffix;
	double scale;
	int64_t min, max;
};

static const struct unit_info units[] = {
	[SMI_MIB] = {"MiB", 1, 0, INT32_MAX},
	[SMI_PERCENT] = {"%", 1, 0, 1000},
	[SMI_CELSIUS] = {"C", 1, -100, 300},
	[SMI_WATT] = {"W", 1000, 0, 100000000},
	[SMI_MHZ] = {"MHz", 1, 0, 100000},
	[SMI_COUNT] = {"", 1, 0, INT64_C(1) << 53},
	[SMI_LANES] = {"x", 1, 1, 64},
	[SMI_KIB_S] = {"KB/s", 1, 0, INT64_C(1) << 34},
	[SMI_MJ] = {"J", 1000, 0, INT64_C(1) << 53},
};

static struct value number(const char *s, size_t n, const struct unit_info *u)
{
	size_t len = strlen(u->suffix);
	char digits[32];
	double v;

	if (n > len && strncasecmp(s + n - len, u->suffix, len) == 0) {
		n -= len;
		smi_trim(&s, &n);
	}
	if (n == 0 || n >= sizeof(digits))
		return value_absent(VALUE_FAILED);
	memcpy(digits, s, n);
	digits[n] = '\0';
	if (strspn(digits, "+-.0123456789") < n || parse_double(digits, &v) < 0)
		return value_absent(VALUE_FAILED);
	v *= u->scale;
	if (v < (double)u->min || v > (double)u->max)
		return value_absent(VALUE_FAILED);
	return value_of((int64_t)(v < 0 ? v - 0.5 : v + 0.5));
}

static struct value recovery(const char *s, size_t n)
{
	static const char *const actions[] = {
		"None", "Reset", "Reboot", "Drain P2P", "Drain and Reset", "Recover Fabric"};

	for (size_t i = 0; i < ARRAY_LEN(actions); i++) {
		if (strlen(actions[i]) == n && strncasecmp(s, actions[i], n) == 0)
			return value_of((int64_t)i);
	}
	return value_absent(smi_absence(s, n) == VALUE_PRESENT ? VALUE_FAILED : smi_absence(s, n));
}

static struct value one_of(const char *s, size_t n, const char *const *words, size_t n_words)
{
	for (size_t i = 0; i < n_words; i++) {
		if (strlen(words[i]) == n && strncasecmp(s, words[i], n) == 0)
			return value_of((int64_t)i);
	}
	return value_absent(VALUE_FAILED);
}

static struct value onoff(const char *s, size_t n)
{
	if (n == 7 && strncasecmp(s, "Enabled", n) == 0)
		return value_of(1);
	if (n == 8 && strncasecmp(s, "Disabled", n) == 0)
		return value_of(0);
	return value_absent(VALUE_FAILED);
}

struct value smi_figure(const char *s, size_t n, enum smi_unit unit)
{
	enum value_state absent;

	smi_trim(&s, &n);
	/* Here "None" is an answer. */
	if (unit == SMI_RECOVERY)
		return recovery(s, n);
	absent = smi_absence(s, n);
	if (absent != VALUE_PRESENT)
		return value_absent(absent);
	if (unit == SMI_SWITCH)
		return onoff(s, n);
	if (unit == SMI_YESNO)
		return one_of(s, n, (const char *const[]){"No", "Yes"}, 2);
	if (unit == SMI_COMPUTE_MODE)
		return one_of(s, n,
			(const char *const[]){
				"Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process"},
			4);
	if (unit == SMI_PSTATE) {
		struct value v = value_absent(VALUE_FAILED);

		if (n > 1 && (s[0] == 'P' || s[0] == 'p') && s[1] >= '0' && s[1] <= '9')
			v = number(s + 1, n - 1, &(struct unit_info){"", 1, 0, 15});
		return v;
	}
	return number(s, n, &units[unit]);
}

void smi_table_init(struct smi_table *t)
{
	*t = (struct smi_table){
		.cards = xcalloc(GPU_MAX, sizeof(*t->cards)),
		.procs = xcalloc(GPU_PROC_MAX, sizeof(*t->procs)),
		.instances = xcalloc(GPU_INSTANCE_MAX, sizeof(*t->instances)),
	};
}

void smi_table_done(struct smi_table *t)
{
	free(t->cards);
	free(t->procs);
	free(t->instances);
	*t = (struct smi_table){0};
}

struct gpu_card *smi_table_card(struct smi_table *t)
{
	struct gpu_card *c;

	if (t->n_cards == GPU_MAX)
		return NULL;
	c = &t->cards[t->n_cards];
	*c = (struct gpu_card){.index = (int32_t)t->n_cards++, .state = GPU_OK, .numa = -1};
	for (int m = 0; m < METRIC_N; m++)
		c->m[m] = value_absent(VALUE_UNSUPPORTED);
	return c;
}

void smi_table_proc(struct smi_table *t, struct gpu_proc p)
{
	for (uint32_t i = 0; i < t->n_procs; i++) {
		struct gpu_proc *was = &t->procs[i];

		if (was->pid != p.pid || was->card != p.card)
			continue;
		was->kind |= p.kind;
		if (was->gi != p.gi || was->ci != p.ci)
			was->gi = was->ci = 0;
		if (!value_is_present(was->used_mib) ||
			(value_is_present(p.used_mib) && p.used_mib.v > was->used_mib.v))
			was->used_mib = p.used_mib;
		return;
	}
	if (t->n_procs < GPU_PROC_MAX)
		t->procs[t->n_procs++] = p;
}

void smi_table_take(struct smi_table *t, struct gpu_snapshot *ret)
{
	for (uint32_t c = 0; c < t->n_cards; c++) {
		uint32_t rows = 0, named = 0;

		for (uint32_t i = 0; i < t->n_procs; i++) {
			if (t->procs[i].card != c)
				continue;
			rows++;
			named += value_is_present(t->procs[i].used_mib);
		}
		t->cards[c].is_blind = rows > 0 && named == 0;
	}
	ret->cards = xreallocarray(t->cards, t->n_cards ? t->n_cards : 1, sizeof(*t->cards));
	ret->n_cards = t->n_cards;
	ret->procs = xreallocarray(t->procs, t->n_procs ? t->n_procs : 1, sizeof(*t->procs));
	ret->n_procs = t->n_procs;
	ret->instances = t->instances;
	ret->n_instances = t->n_instances;
	memcpy(ret->driver, t->driver, sizeof(ret->driver));
	memcpy(ret->cuda, t->cuda, sizeof(ret->cuda));
	*t = (struct smi_table){0};
}

struct field {
	const char *s;
	size_t n;
};

/* Splits a line at commas into at most max trimmed fields; returns how many there are. */
static size_t split(const char *s, size_t n, struct field *ret, size_t max)
{
	size_t fields = 0;

	for (;;) {
		const char *comma = memchr(s, ',', n);
		size_t len = comma != NULL ? (size_t)(comma - s) : n;

		if (fields < max) {
			ret[fields] = (struct field){s, len};
			smi_trim(&ret[fields].s, &ret[fields].n);
		}
		fields++;
		if (comma == NULL)
			return fields;
		s += len + 1;
		n -= len + 1;
	}
}

static bool next_line(const char **s, const char *end, struct field *ret)
{
	const char *nl;

	if (*s >= end)
		return false;
	nl = memchr(*s, '\n', (size_t)(end - *s));
	*ret = (struct field){*s, (size_t)((nl != NULL ? nl : end) - *s)};
	*s = nl != NULL ? nl + 1 : end;
	return true;
}

static int integer(struct field f, int64_t *ret)
{
	char digits[24];

	if (f.n == 0 || f.n >= sizeof(digits))
		return -EINVAL;
	memcpy(digits, f.s, f.n);
	digits[f.n] = '\0';
	return parse_int64(digits, ret);
}

static void csv_card(struct smi_table *t, struct field line)
{
	struct field f[5];
	struct gpu_card *c;
	int64_t index;

	if (split(line.s, line.n, f, 5) != 5 || integer(f[0], &index) < 0 || index < 0 ||
		index > 9999)
		return;
	c = smi_table_card(t);
	if (c == NULL)
		return;
	c->index = (int32_t)index;
	if (smi_absence(f[1].s, f[1].n) == VALUE_PRESENT)
		smi_copy(f[1].s, f[1].n, c->uuid, sizeof(c->uuid));
	c->m[METRIC_MEM_TOTAL] = smi_figure(f[2].s, f[2].n, SMI_MIB);
	c->m[METRIC_MEM_USED] = smi_figure(f[3].s, f[3].n, SMI_MIB);
	c->m[METRIC_UTIL_GPU] = smi_figure(f[4].s, f[4].n, SMI_PERCENT);
	if (c->m[METRIC_MEM_TOTAL].state == VALUE_LOST || c->uuid[0] == '\0')
		c->state = GPU_LOST;
}

static void csv_app(struct smi_table *t, struct field line)
{
	struct field f[3];
	char uuid[GPU_UUID_LEN];
	int64_t pid;

	if (split(line.s, line.n, f, 3) != 3 || integer(f[1], &pid) < 0 || pid < 1 || pid > INT_MAX)
		return;
	smi_copy(f[0].s, f[0].n, uuid, sizeof(uuid));
	for (uint32_t i = 0; i < t->n_cards; i++) {
		if (uuid[0] == '\0' || strcmp(t->cards[i].uuid, uuid) != 0)
			continue;
		smi_table_proc(t, (struct gpu_proc){
					  .card = i,
					  .kind = GPU_PROC_COMPUTE,
					  .pid = (int32_t)pid,
					  .used_mib = smi_figure(f[2].s, f[2].n, SMI_MIB),
				  });
		return;
	}
}

static int by_card_index(const void *a, const void *b)
{
	const struct gpu_card *x = a, *y = b;

	return (x->index > y->index) - (x->index < y->index);
}

int smi_parse_csv(const char *gpus, size_t n_gpus, const char *apps, size_t n_apps,
	struct gpu_snapshot *ret, struct err *e)
{
	CLEANUP(smi_table_done) struct smi_table t;
	struct field line;
	const char *s = gpus;

	smi_table_init(&t);
	while (next_line(&s, gpus + n_gpus, &line))
		csv_card(&t, line);
	if (t.n_cards == 0)
		return err_set(e, -EINVAL, "nvidia-smi failed: it named no GPU");
	qsort(t.cards, t.n_cards, sizeof(*t.cards), by_card_index);
	s = apps;
	while (next_line(&s, apps + n_apps, &line))
		csv_app(&t, line);
	smi_table_take(&t, ret);
	return 0;
}
