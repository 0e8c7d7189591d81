/* Reads the scenario file and the simulated jobs' files. A bad line ends the program: a test with a slip must not pass. */
#include "scenario.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* A whole host of the lab has the library where the driver would put it, and no environment reaches its agent. */
#define MACHINE_SCENARIO "/etc/gpustow-fake-nvml"

static struct fake_scenario current;
static struct stat seen;
static bool is_read;
static int64_t read_at_ms, read_wall_us;

static int64_t clock_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int64_t wall_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int64_t fake_now_ms(void)
{
	return clock_ms() - read_at_ms;
}

int64_t fake_read_wall_us(void)
{
	return read_wall_us;
}

static void die(const char *what, const char *line)
{
	fprintf(stderr, "fake nvml: %s: %s\n", what, line);
	abort();
}

/* The next word of *s, quotes around values with blanks taken off: name="NVIDIA A100". Cuts the line. */
static char *word(char **s)
{
	char *from = *s, *to, *start;
	bool quoted = false;

	while (isspace((unsigned char)*from))
		from++;
	if (*from == '\0')
		return NULL;
	start = to = from;
	for (; *from != '\0' && (quoted || !isspace((unsigned char)*from)); from++) {
		if (*from == '"')
			quoted = !quoted;
		else
			*to++ = *from;
	}
	*s = *from != '\0' ? from + 1 : from;
	*to = '\0';
	return start;
}

static int64_t number(const char *s, const char *line)
{
	char *end;
	long long v = strtoll(s, &end, 0);

	if (end == s || *end != '\0')
		die("not a number", line);
	return v;
}

struct field {
	const char *key;
	size_t offset;
};

#define FIELD(member) \
	{ \
#member, offsetof(struct fake_card, member) \
	}
static const struct field fields[] = {
	FIELD(memory),
	FIELD(reserved),
	FIELD(used),
	FIELD(util),
	FIELD(memutil),
	FIELD(temp),
	FIELD(power),
	FIELD(limit),
	FIELD(fan),
	FIELD(sm),
	FIELD(mem),
	FIELD(throttle),
	FIELD(pstate),
	FIELD(mig),
	FIELD(numa),
	FIELD(recovery),
	FIELD(arch),
	FIELD(enc),
	FIELD(dec),
	FIELD(jpg),
	FIELD(ofa),
	FIELD(graphics),
	FIELD(video),
	FIELD(slowdown),
	FIELD(shutdown),
	FIELD(gen),
	FIELD(width),
	FIELD(genmax),
	FIELD(widthmax),
	FIELD(replays),
	FIELD(mask),
	FIELD(ecc),
	FIELD(bar1),
	FIELD(bar1used),
	FIELD(persistence),
	FIELD(computemode),
	FIELD(migpending),
};

static void card_word(struct fake_card *c, char *w)
{
	char *eq = strchr(w, '=');

	if (strcmp(w, "unified") == 0) {
		c->is_unified = true;
		return;
	}
	if (strcmp(w, "blind") == 0) {
		c->is_blind = true;
		return;
	}
	if (eq == NULL)
		die("unknown word for a card", w);
	*eq++ = '\0';
	if (strcmp(w, "uuid") == 0) {
		snprintf(c->uuid, sizeof(c->uuid), "%s", eq);
		return;
	}
	if (strcmp(w, "name") == 0) {
		snprintf(c->name, sizeof(c->name), "%s", eq);
		return;
	}
	if (strcmp(w, "bus") == 0) {
		snprintf(c->bus, sizeof(c->bus), "%s", eq);
		return;
	}
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		if (strcmp(w, fields[i].key) == 0) {
			*(int64_t *)((char *)c + fields[i].offset) = number(eq, w);
			return;
		}
	}
	die("unknown key for a card", w);
}

static int card_number(char **s, const char *line)
{
	char *w = word(s);
	int64_t v = w != NULL ? number(w, line) : -1;

	if (v < 0 || v >= FAKE_CARDS)
		die("which card?", line);
	return (int)v;
}

static struct fake_card *card_at(struct fake_scenario *to, int i)
{
	while (to->n_cards <= i) {
		struct fake_card *c = &to->cards[to->n_cards];

		*c = (struct fake_card){.memory = 24576,
			.temp = 40,
			.power = 30000,
			.limit = 250000,
			.fan = 30,
			.sm = 210,
			.mem = 405,
			.throttle = 1,
			.pstate = 8,
			.numa = -1,
			.arch = 7,
			.graphics = 210,
			.video = 555,
			.slowdown = 90,
			.shutdown = 95,
			.gen = 1,
			.width = 16,
			.genmax = 4,
			.widthmax = 16,
			.mask = 0x1ff,
			.bar1 = 256,
			.lost_from = -1};
		snprintf(
			c->uuid, sizeof(c->uuid), "GPU-fa4e0000-0000-0000-0000-%012d", to->n_cards);
		snprintf(c->name, sizeof(c->name), "Fake GPU");
		snprintf(c->bus, sizeof(c->bus), "00000000:%02X:00.0", 0x10 + to->n_cards);
		to->n_cards++;
	}
	return &to->cards[i];
}

static void proc_line(struct fake_scenario *to, char *s, const char *line)
{
	struct fake_proc *p = &to->procs[to->n_procs++];
	char *w;

	if (to->n_procs == FAKE_PROCS)
		die("too many processes", line);
	*p = (struct fake_proc){.card = card_number(&s, line), .kind = FAKE_C, .gi = -1};
	card_at(to, p->card);
	while ((w = word(&s)) != NULL) {
		if (strncmp(w, "pid=", 4) == 0)
			p->pid = number(w + 4, line);
		else if (strcmp(w, "used=absent") == 0)
			p->used = -1;
		else if (strncmp(w, "used=", 5) == 0)
			p->used = number(w + 5, line);
		else if (strncmp(w, "gi=", 3) == 0)
			p->gi = (int)number(w + 3, line);
		else if (strncmp(w, "kind=", 5) == 0)
			p->kind = (strchr(w + 5, 'C') ? FAKE_C : 0) |
				  (strchr(w + 5, 'G') ? FAKE_G : 0) |
				  (strchr(w + 5, 'M') ? FAKE_M : 0);
		else
			die("unknown word for a process", line);
	}
}

/* "lost 1 after=500 for=1000": from then on, for so long. */
static void lost_line(struct fake_scenario *to, char *s, const char *line)
{
	struct fake_card *c = card_at(to, card_number(&s, line));
	int64_t length = INT64_MAX / 4;
	char *w;

	c->lost_from = 0;
	while ((w = word(&s)) != NULL) {
		if (strncmp(w, "after=", 6) == 0)
			c->lost_from = number(w + 6, line);
		else if (strncmp(w, "for=", 4) == 0)
			length = number(w + 4, line);
		else
			die("unknown word", line);
	}
	c->lost_to = c->lost_from + length;
}

static void rule_line(struct fake_scenario *to, enum fake_act act, char *s, const char *line)
{
	struct fake_rule *r = &to->rules[to->n_rules++];
	char *w = word(&s);

	if (to->n_rules == FAKE_RULES || w == NULL)
		die("which call?", line);
	*r = (struct fake_rule){.act = act, .card = -1, .until = INT64_MAX};
	snprintf(r->call, sizeof(r->call), "%s", w);
	while ((w = word(&s)) != NULL) {
		if (strncmp(w, "card=", 5) == 0)
			r->card = (int)number(w + 5, line);
		else if (strncmp(w, "after=", 6) == 0)
			r->after = number(w + 6, line);
		else if (strncmp(w, "for=", 4) == 0)
			r->until = r->after + number(w + 4, line);
		else
			r->value = number(w, line);
	}
}

/* "field 0 197 1000 rate=5 type=3", "field 0 82 err=4" */
static void field_line(struct fake_scenario *to, char *s, const char *line)
{
	struct fake_field *f = &to->fields[to->n_fields++];
	char *w;

	if (to->n_fields == FAKE_FIELDS)
		die("too many fields", line);
	*f = (struct fake_field){.card = card_number(&s, line), .type = 3, .link = -1};
	card_at(to, f->card);
	w = word(&s);
	f->id = number(w != NULL ? w : "", line);
	while ((w = word(&s)) != NULL) {
		if (strncmp(w, "err=", 4) == 0)
			f->code = (int)number(w + 4, line);
		else if (strncmp(w, "rate=", 5) == 0)
			f->rate = number(w + 5, line);
		else if (strncmp(w, "type=", 5) == 0)
			f->type = number(w + 5, line);
		else if (strncmp(w, "link=", 5) == 0)
			f->link = number(w + 5, line);
		else
			f->value = number(w, line);
	}
}

static void xid_line(struct fake_scenario *to, char *s, const char *line)
{
	struct fake_xid *x = &to->xids[to->n_xids++];
	char *w;

	if (to->n_xids == FAKE_XIDS)
		die("too many XIDs", line);
	*x = (struct fake_xid){.card = card_number(&s, line)};
	w = word(&s);
	x->xid = number(w != NULL ? w : "", line);
	if ((w = word(&s)) != NULL && strncmp(w, "after=", 6) == 0)
		x->after = number(w + 6, line);
}

static void use_line(struct fake_scenario *to, char *s, const char *line)
{
	struct fake_use *u = &to->uses[to->n_uses++];
	char *w;

	if (to->n_uses == FAKE_USES)
		die("too many samples of use", line);
	*u = (struct fake_use){.card = card_number(&s, line)};
	while ((w = word(&s)) != NULL) {
		int64_t *at = strncmp(w, "pid=", 4) == 0     ? &u->pid
			      : strncmp(w, "sm=", 3) == 0    ? &u->sm
			      : strncmp(w, "mem=", 4) == 0   ? &u->mem
			      : strncmp(w, "enc=", 4) == 0   ? &u->enc
			      : strncmp(w, "dec=", 4) == 0   ? &u->dec
			      : strncmp(w, "after=", 6) == 0 ? &u->after
							     : NULL;

		if (at == NULL)
			die("unknown word for a use", line);
		*at = number(strchr(w, '=') + 1, line);
	}
}

static void link_line(struct fake_scenario *to, char *s, const char *line)
{
	int a = card_number(&s, line);
	char *w = word(&s);

	if (w == NULL)
		die("a link to what?", line);
	if (strcmp(w, "switch") == 0) {
		card_at(to, a)->is_switched = true;
		return;
	}
	card_at(to, a)->links |= UINT64_C(1) << number(w, line);
	card_at(to, (int)number(w, line))->links |= UINT64_C(1) << a;
}

const char *const fake_counter_names[FAKE_COUNTERS] = {"sm", "occupancy", "tensor", "fp64", "fp32",
	"fp16", "int", "dram", "pcietx", "pcierx", "nvlinktx", "nvlinkrx"};

static double real(const char *s, const char *line)
{
	char *end;
	double v = strtod(s, &end);

	if (end == s || *end != '\0')
		die("not a number", line);
	return v;
}

/* "gpm 0 sm=0.5 tensor=none pcietx=1000000": what isn't named is 0. "gpm 0 instance=3 sm=0.1": of that MIG device's. */
static void counters_line(struct fake_scenario *to, char *s, bool is_gpm, const char *line)
{
	struct fake_card *card = card_at(to, card_number(&s, line));
	struct fake_counters *c = is_gpm ? &card->gpm : &card->dcgm;
	char *w;

	to->allows_profiling = true;
	c->is_there = true;
	while ((w = word(&s)) != NULL) {
		char *eq = strchr(w, '=');
		int i = 0;

		if (eq == NULL)
			die("unknown word for counters", line);
		*eq++ = '\0';
		if (is_gpm && strcmp(w, "instance") == 0) {
			c = &card->part[number(eq, line) % FAKE_INSTANCES];
			continue;
		}
		while (i < FAKE_COUNTERS && strcmp(w, fake_counter_names[i]) != 0)
			i++;
		if (i == FAKE_COUNTERS)
			die("unknown counter", line);
		c->v[i] = strcmp(eq, "none") == 0 ? -1 : real(eq, line);
	}
}

/* "profiling [engine] [id=7] [after=2000]" */
static void profiling_line(struct fake_scenario *to, char *s, const char *line)
{
	char *w;

	to->allows_profiling = true;
	while ((w = word(&s)) != NULL) {
		if (strcmp(w, "engine") == 0)
			to->has_engine = true;
		else if (strncmp(w, "id=", 3) == 0)
			to->dcgm_id = number(w + 3, line);
		else if (strncmp(w, "after=", 6) == 0)
			to->dcgm_after = number(w + 6, line);
		else
			die("unknown word for profiling", line);
	}
}

static void take_line(struct fake_scenario *to, char *s, const char *line)
{
	char *verb, *w;

	s[strcspn(s, "#\n")] = '\0';
	verb = word(&s);
	if (verb == NULL)
		return;
	if (strcmp(verb, "cards") == 0) {
		int64_t n = number((w = word(&s)) ? w : "", line);

		if (n > 0)
			card_at(to, (int)n - 1);
	} else if (strcmp(verb, "card") == 0) {
		struct fake_card *c = card_at(to, card_number(&s, line));

		while ((w = word(&s)) != NULL)
			card_word(c, w);
	} else if (strcmp(verb, "proc") == 0) {
		proc_line(to, s, line);
	} else if (strcmp(verb, "lost") == 0) {
		lost_line(to, s, line);
	} else if (strcmp(verb, "link") == 0) {
		link_line(to, s, line);
	} else if (strcmp(verb, "field") == 0) {
		field_line(to, s, line);
	} else if (strcmp(verb, "xid") == 0) {
		xid_line(to, s, line);
	} else if (strcmp(verb, "use") == 0) {
		use_line(to, s, line);
	} else if (strcmp(verb, "garbage") == 0) {
		to->garbage = number((w = word(&s)) ? w : "", line);
	} else if (strcmp(verb, "instance") == 0) {
		struct fake_card *c = card_at(to, card_number(&s, line));

		c->has_instance[card_number(&s, line) % FAKE_INSTANCES] = true;
	} else if (strcmp(verb, "err") == 0) {
		rule_line(to, FAKE_ERR, s, line);
	} else if (strcmp(verb, "parent-err") == 0) {
		rule_line(to, FAKE_ERR, s, line);
		to->rules[to->n_rules - 1].is_parent_only = true;
	} else if (strcmp(verb, "hang") == 0) {
		rule_line(to, FAKE_HANG, s, line);
	} else if (strcmp(verb, "crash") == 0) {
		rule_line(to, FAKE_CRASH, s, line);
	} else if (strcmp(verb, "gpm") == 0 || strcmp(verb, "dcgm") == 0) {
		counters_line(to, s, verb[0] == 'g', line);
	} else if (strcmp(verb, "profiling") == 0) {
		profiling_line(to, s, line);
	} else if (strcmp(verb, "slow") == 0) {
		rule_line(to, FAKE_SLOW, s, line);
	} else if (strcmp(verb, "element") == 0) {
		to->element = number((w = word(&s)) ? w : "", line);
	} else if (strcmp(verb, "driver") == 0 && (w = word(&s)) != NULL) {
		snprintf(to->driver, sizeof(to->driver), "%s", w);
	} else if (strcmp(verb, "nvml") == 0 && (w = word(&s)) != NULL) {
		snprintf(to->nvml, sizeof(to->nvml), "%s", w);
	} else {
		die("unknown line", line);
	}
}

static void read_scenario(const char *path)
{
	static struct fake_scenario next;
	char line[1024], copy[1024];
	FILE *f = fopen(path, "re");

	if (f == NULL)
		die("cannot open the scenario", path);
	memset(&next, 0, sizeof(next));
	snprintf(next.driver, sizeof(next.driver), "550.54.15");
	snprintf(next.nvml, sizeof(next.nvml), "12.550.54.15");
	while (fgets(line, sizeof(line), f) != NULL) {
		memcpy(copy, line, sizeof(copy));
		take_line(&next, line, copy);
	}
	fclose(f);
	memcpy(&current, &next, sizeof(current));
	read_at_ms = clock_ms();
	read_wall_us = wall_us();
}

struct fake_scenario *fake_scenario(void)
{
	const char *path = getenv("GPUSTOW_FAKE_NVML");
	struct stat st;

	if (path == NULL && stat(MACHINE_SCENARIO, &st) == 0)
		path = MACHINE_SCENARIO;
	if (path == NULL || path[0] == '\0') {
		if (!is_read) {
			read_at_ms = clock_ms();
			read_wall_us = wall_us();
			snprintf(current.driver, sizeof(current.driver), "550.54.15");
			snprintf(current.nvml, sizeof(current.nvml), "12.550.54.15");
			card_at(&current, 0);
		}
		is_read = true;
		return &current;
	}
	/* A file that is being replaced has no name for a moment: what was read last holds. */
	if (stat(path, &st) < 0) {
		if (!is_read)
			die("cannot open the scenario", path);
		return &current;
	}
	if (!is_read || st.st_ino != seen.st_ino || st.st_size != seen.st_size ||
		st.st_mtim.tv_sec != seen.st_mtim.tv_sec ||
		st.st_mtim.tv_nsec != seen.st_mtim.tv_nsec) {
		seen = st;
		is_read = true;
		read_scenario(path);
	}
	return &current;
}

void fake_mig_uuid(int card, int instance, char ret[FAKE_UUID_LEN])
{
	snprintf(ret, FAKE_UUID_LEN, "MIG-fa4e0000-0000-0000-%04d-%012d", card, instance);
}

/* -1: of the card itself; -2: neither of it nor of an instance of it; else the GPU instance. */
static int instance_of_key(int card, const struct fake_card *c, const char *key)
{
	char text[FAKE_UUID_LEN];

	snprintf(text, sizeof(text), "%d", card);
	if (strcmp(key, text) == 0 || strcmp(key, c->uuid) == 0)
		return -1;
	for (int i = 0; i < FAKE_INSTANCES; i++) {
		fake_mig_uuid(card, i, text);
		if (c->has_instance[i] && strcmp(key, text) == 0)
			return i + 1;
	}
	return -2;
}

/* {"pid":P,...,"usage":{"0":MiB,"GPU-...":MiB}}, as jobs write it: no nested braces, no escapes. */
static void sim_file(const char *path, int card, const struct fake_card *c, struct fake_proc *out,
	int *n, int max)
{
	char text[16384], *pid, *usage;
	size_t len;
	long long p;
	FILE *f = fopen(path, "re");

	if (f == NULL)
		return;
	len = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[len] = '\0';
	pid = strstr(text, "\"pid\"");
	usage = strstr(text, "\"usage\"");
	if (pid == NULL || usage == NULL || strchr(pid, ':') == NULL || strchr(usage, '{') == NULL)
		return;
	p = strtoll(strchr(pid, ':') + 1, NULL, 10);
	if (p <= 0 || (kill((pid_t)p, 0) < 0 && errno == ESRCH))
		return;
	for (char *key = strchr(strchr(usage, '{'), '"'); key != NULL && *n < max;) {
		char *end = strchr(key + 1, '"'), *colon = end != NULL ? strchr(end, ':') : NULL;
		int gi;

		if (colon == NULL)
			return;
		*end = '\0';
		gi = instance_of_key(card, c, key + 1);
		if (gi != -2)
			out[(*n)++] = (struct fake_proc){.card = card,
				.kind = FAKE_C,
				.gi = gi,
				.pid = p,
				.used = strtoll(colon + 1, NULL, 10)};
		key = strchr(colon, '"');
	}
}

int fake_sim_procs(int card, const struct fake_card *c, struct fake_proc *out, int max)
{
	const char *dir = getenv("GPUSTOW_SIM_DIR");
	struct dirent *ent;
	int n = 0;
	DIR *d;

	if (dir == NULL || dir[0] == '\0')
		dir = getenv("GPUSCHED_SIM_DIR");
	if (dir == NULL || (d = opendir(dir)) == NULL)
		return 0;
	while ((ent = readdir(d)) != NULL) {
		size_t len = strlen(ent->d_name);
		char path[4352];

		if (len < 6 || strcmp(ent->d_name + len - 5, ".json") != 0)
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, ent->d_name);
		sim_file(path, card, c, out, &n, max);
	}
	closedir(d);
	return n;
}
