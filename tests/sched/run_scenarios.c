/*
 * Plays the scenarios of this directory: a text file tells of machines, cards, what runs there and what waits; `plan`
 * makes the plan; `expect` lines say what it has to be, for every job that waits, to the word. What started then runs,
 * kept places are handed on, and the story may go on to the next `plan`. README.md here has the words.
 */
#include "sched/plan.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/parse.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES 8
#define CARDS 16
#define THINGS 64

struct card {
	int64_t used, foreign_peak, promised, total;
	int32_t index, numa;
	uint64_t nvlink;
	bool is_usable, was_seen, is_out, has_strangers;
};

struct node {
	char name[32];
	struct card cards[CARDS];
	size_t n;
	bool is_usable, is_unknown;
	uint32_t max_cpu, n_cpu;
	int64_t cpus, mem;
};

struct occupant {
	uint64_t id, cards, beside;
	int64_t vram, actual, peak, cpus, mem;
	size_t node;
	bool is_exclusive;
};

struct story {
	const char *path;
	uint32_t line;
	struct node nodes[NODES];
	size_t n_nodes;
	struct occupant occupants[THINGS];
	size_t n_occupants;
	struct plan_job jobs[THINGS];
	size_t n_jobs;
	uint64_t masks[THINGS][NODES]; /* node_cards of jobs, never moved */
	size_t n_masks;
	struct plan_policy policy;
	double buffer;
	int64_t headroom, now;
	/* The last plan. */
	struct plan_card plan_cards[NODES][CARDS];
	struct plan_running running[NODES][THINGS * 4];
	struct plan_node plan_nodes[NODES];
	const char *names[NODES];
	struct plan_decision decisions[THINGS];
	struct plan_job planned[THINGS];
	bool is_expected[THINGS];
	size_t n_planned;
	size_t n_checks;
};

static void die(const struct story *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3), noreturn));
static void die(const struct story *s, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s:%u: ", s->path, s->line);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

static int64_t number(const struct story *s, const char *text)
{
	int64_t v;

	if (strcmp(text, "undeclared") == 0)
		return UNDECLARED;
	if (parse_int64(text, &v) < 0)
		die(s, "'%s' isn't a number", text);
	return v;
}

/* "0,2" as bits. */
static uint64_t bits(const struct story *s, char *list)
{
	uint64_t set = 0;
	char *rest = NULL;

	for (char *word = strtok_r(list, ",", &rest); word; word = strtok_r(NULL, ",", &rest))
		set |= UINT64_C(1) << number(s, word);
	return set;
}

/* Splits "key=value" in place; a bare word has the value "". */
static char *value_of_word(char *word)
{
	char *equals = strchr(word, '=');

	if (!equals)
		return word + strlen(word);
	*equals = 0;
	return equals + 1;
}

static size_t find_node(const struct story *s, const char *name)
{
	for (size_t i = 0; i < s->n_nodes; i++)
		if (strcmp(s->nodes[i].name, name) == 0)
			return i;
	die(s, "there's no node '%s'", name);
}

static struct node *last_node(struct story *s)
{
	if (s->n_nodes == 0)
		s->nodes[s->n_nodes++] = (struct node){.is_usable = true};
	return &s->nodes[s->n_nodes - 1];
}

static void say_policy(struct story *s, const char *key, char *v)
{
	struct plan_policy *p = &s->policy;

	if (strcmp(key, "margin") == 0)
		p->margin_mib = number(s, v);
	else if (strcmp(key, "idle") == 0)
		p->idle_threshold_mib = number(s, v);
	else if (strcmp(key, "headroom") == 0)
		s->headroom = number(s, v);
	else if (strcmp(key, "exclusive") == 0)
		p->exclusive = true;
	else if (strcmp(key, "nvlink") == 0)
		p->need_nvlink = true;
	else if (strcmp(key, "guard_after") == 0)
		p->guard_after_ms = number(s, v);
	else if (strcmp(key, "jobs_per_card") == 0)
		p->max_jobs_per_card = (uint32_t)number(s, v);
	else if (strcmp(key, "max_jobs") == 0)
		p->max_jobs = (uint32_t)number(s, v);
	else if (strcmp(key, "in_order") == 0)
		p->is_in_order = true;
	else if (strcmp(key, "place") == 0)
		p->place = strcmp(v, "spread") == 0 ? PLACE_SPREAD
			   : strcmp(v, "pack") == 0 ? PLACE_PACK
						    : PLACE_BEST_FIT;
	else
		die(s, "policy has no '%s'", key);
}

static void say_node(struct story *s, const char *key, char *v)
{
	struct node *n = last_node(s);

	if (strcmp(key, "down") == 0)
		n->is_usable = false;
	else if (strcmp(key, "max_cpu") == 0)
		n->max_cpu = (uint32_t)number(s, v);
	else if (strcmp(key, "cpu_jobs") == 0)
		n->n_cpu = (uint32_t)number(s, v);
	else if (strcmp(key, "cpus") == 0)
		n->cpus = number(s, v);
	else if (strcmp(key, "mem") == 0)
		n->mem = number(s, v);
	else if (strcmp(key, "unknown") == 0)
		n->is_unknown = true;
	else
		die(s, "a node has no '%s'", key);
}

static void say_card(struct story *s, const char *key, char *v)
{
	struct node *n = last_node(s);
	struct card *c = &n->cards[n->n - 1];

	if (strcmp(key, "total") == 0)
		c->total = number(s, v);
	else if (strcmp(key, "used") == 0)
		c->used = number(s, v);
	else if (strcmp(key, "foreign_peak") == 0)
		c->foreign_peak = number(s, v);
	else if (strcmp(key, "promised") == 0)
		c->promised = number(s, v);
	else if (strcmp(key, "numa") == 0)
		c->numa = (int32_t)number(s, v);
	else if (strcmp(key, "nvlink") == 0)
		c->nvlink = bits(s, v);
	else if (strcmp(key, "lost") == 0)
		c->is_usable = false;
	else if (strcmp(key, "excluded") == 0)
		c->is_usable = c->was_seen = false;
	else if (strcmp(key, "out") == 0)
		c->is_usable = !(c->is_out = true);
	else if (strcmp(key, "strangers") == 0)
		c->has_strangers = true;
	else
		die(s, "a card has no '%s'", key);
}

static void say_occupant(struct story *s, const char *key, char *v)
{
	struct occupant *o = &s->occupants[s->n_occupants - 1];

	if (strcmp(key, "on") == 0)
		o->cards = bits(s, v);
	else if (strcmp(key, "node") == 0)
		o->node = find_node(s, v);
	else if (strcmp(key, "vram") == 0)
		o->vram = number(s, v);
	else if (strcmp(key, "actual") == 0)
		o->actual = number(s, v);
	else if (strcmp(key, "peak") == 0)
		o->peak = number(s, v);
	else if (strcmp(key, "exclusive") == 0)
		o->is_exclusive = true;
	else if (strcmp(key, "cpus") == 0)
		o->cpus = number(s, v);
	else if (strcmp(key, "mem") == 0)
		o->mem = number(s, v);
	else
		die(s, "an occupant has no '%s'", key);
}

/* "n1:0,1+n2:0": what of which node will do. */
static const uint64_t *masks(struct story *s, char *list)
{
	uint64_t *ret = s->masks[s->n_masks++];
	char *rest = NULL;

	for (char *word = strtok_r(list, "+", &rest); word; word = strtok_r(NULL, "+", &rest)) {
		char *colon = strchr(word, ':');
		if (!colon)
			die(s, "'%s' names no cards", word);
		*colon = 0;
		ret[find_node(s, word)] = bits(s, colon + 1);
	}
	return ret;
}

static void say_job(struct story *s, const char *key, char *v)
{
	struct plan_job *j = &s->jobs[s->n_jobs - 1];

	if (strcmp(key, "vram") == 0)
		j->declared_mib = number(s, v);
	else if (strcmp(key, "gpus") == 0)
		j->gpus = (uint32_t)number(s, v);
	else if (strcmp(key, "priority") == 0)
		j->priority = (int32_t)number(s, v);
	else if (strcmp(key, "since") == 0)
		j->waiting_since_ms = number(s, v);
	else if (strcmp(key, "exclusive") == 0)
		j->exclusive = true;
	else if (strcmp(key, "blocked") == 0)
		j->is_blocked = true;
	else if (strcmp(key, "nvlink") == 0)
		j->need_nvlink = true;
	else if (strcmp(key, "idle") == 0)
		j->idle = true;
	else if (strcmp(key, "cpus") == 0)
		j->cpus = number(s, v);
	else if (strcmp(key, "mem") == 0)
		j->mem_mib = number(s, v);
	else if (strcmp(key, "cards") == 0)
		j->node_cards = masks(s, v);
	else if (strcmp(key, "only") == 0)
		j->only_cards = bits(s, v);
	else if (strcmp(key, "node") == 0)
		j->only_node = (int32_t)find_node(s, v);
	else
		die(s, "a job has no '%s'", key);
}

static void say_words(
	struct story *s, char **rest, void (*say)(struct story *, const char *, char *))
{
	for (char *word = strtok_r(NULL, " ", rest); word; word = strtok_r(NULL, " ", rest)) {
		char *v = value_of_word(word);
		say(s, word, v);
	}
}

static char *next_word(const struct story *s, char **rest, const char *what)
{
	char *word = strtok_r(NULL, " ", rest);

	if (!word)
		die(s, "%s is missing", what);
	return word;
}

static int64_t charge_of(const struct story *s, const struct occupant *o, int64_t total)
{
	if (o->vram < 0)
		return total;
	return budget_of(o->vram, o->actual, o->peak > o->actual ? o->peak : o->actual, s->buffer);
}

static void load_card(struct story *s, size_t node, size_t i)
{
	const struct card *c = &s->nodes[node].cards[i];
	struct plan_card *ret = &s->plan_cards[node][i];
	int64_t own = 0;

	*ret = (struct plan_card){.index = c->index,
		.is_usable = c->is_usable,
		.was_seen = c->was_seen,
		.is_out = c->is_out,
		.has_strangers = c->has_strangers,
		.numa = c->numa,
		.nvlink_peers = c->nvlink};
	ret->room = (struct card_room){
		.total_mib = c->total, .promised_mib = c->promised, .headroom_mib = s->headroom};
	for (size_t k = 0; k < s->n_occupants; k++) {
		const struct occupant *o = &s->occupants[k];
		if (o->node != node || !(o->cards & (UINT64_C(1) << i)))
			continue;
		struct plan_node *pn = &s->plan_nodes[node];
		int64_t charge = charge_of(s, o, c->total);
		s->running[node][pn->n_running++] =
			(struct plan_running){o->id, (uint32_t)i, charge, o->beside};
		ret->room.budgets_mib += charge;
		ret->room.n_ours++;
		ret->room.has_whole |= o->vram < 0 || o->is_exclusive || s->policy.exclusive;
		own += o->actual;
	}
	ret->room.foreign_mib = budget_foreign(c->used, own, c->foreign_peak, s->buffer, true);
}

static void check_all_were_expected(const struct story *s)
{
	for (size_t i = 0; i < s->n_planned; i++)
		if (!s->is_expected[i])
			die(s, "the story doesn't say what it expects of job %" PRIu64,
				s->planned[i].id);
}

/* What started runs from now on; what waits keeps its place. */
static void settle_plan(struct story *s)
{
	size_t kept = 0;

	for (size_t i = 0; i < s->n_planned; i++) {
		const struct plan_decision *d = &s->decisions[i];
		struct plan_job *j = &s->jobs[i];
		if (d->what == PLAN_NEVER)
			continue;
		if (d->what == PLAN_WAIT) {
			j->guard_node = d->guard_node;
			j->guard_cards = d->guard_cards;
			s->jobs[kept++] = *j;
			continue;
		}
		if (j->gpus == 0)
			s->nodes[d->node].n_cpu++;
		s->occupants[s->n_occupants++] = (struct occupant){.id = j->id,
			.cards = d->cards,
			.beside = d->guard_id,
			.vram = j->declared_mib,
			.node = (size_t)d->node,
			.cpus = j->cpus,
			.mem = j->mem_mib,
			.is_exclusive = j->exclusive || j->idle};
	}
	s->n_jobs = kept;
}

static void plan(struct story *s)
{
	check_all_were_expected(s);
	for (size_t i = 0; i < s->n_nodes; i++) {
		struct node *n = &s->nodes[i];
		s->plan_nodes[i] = (struct plan_node){.cards = s->plan_cards[i],
			.n_cards = n->n,
			.is_usable = n->is_usable,
			.n_cpu_jobs = n->n_cpu,
			.max_cpu_jobs = n->max_cpu,
			.is_unknown = n->is_unknown,
			.cpus = n->cpus,
			.mem_mib = n->mem,
			.running = s->running[i]};
		s->names[i] = n->name[0] ? n->name : NULL;
		for (size_t k = 0; k < n->n; k++)
			load_card(s, i, k);
		for (size_t k = 0; k < s->n_occupants; k++) {
			if (s->occupants[k].node != i)
				continue;
			s->plan_nodes[i].cpus_used += s->occupants[k].cpus;
			s->plan_nodes[i].mem_used_mib += s->occupants[k].mem;
		}
	}
	s->n_planned = s->n_jobs;
	memcpy(s->planned, s->jobs, sizeof(s->jobs));
	memset(s->is_expected, 0, sizeof(s->is_expected));
	plan_make(s->plan_nodes, s->n_nodes, s->planned, s->n_planned, &s->policy, s->now,
		s->decisions);
	settle_plan(s);
}

static size_t find_planned(const struct story *s, uint64_t id)
{
	for (size_t i = 0; i < s->n_planned; i++)
		if (s->planned[i].id == id)
			return i;
	die(s, "job %" PRIu64 " wasn't in the last plan", id);
}

static void put_place(const struct story *s, int32_t node, uint64_t cards, struct buf *out)
{
	const char *between = "";

	if (s->names[node])
		buf_printf(out, "%s ", s->names[node]);
	if (!cards)
		buf_puts(out, "cpu");
	for (size_t i = 0; i < CARDS; i++) {
		if (cards & (UINT64_C(1) << i)) {
			buf_printf(out, "%s%zu", between, i);
			between = ",";
		}
	}
}

/* The decision in the words of an `expect` line. */
static void tell(const struct story *s, size_t i, struct buf *out)
{
	const struct plan_decision *d = &s->decisions[i];

	if (d->what == PLAN_START) {
		buf_puts(out, "starts ");
		put_place(s, d->node, d->cards, out);
		if (d->guard_id)
			buf_printf(out, " beside %" PRIu64, d->guard_id);
		return;
	}
	buf_puts(out, d->what == PLAN_WAIT ? "waits: " : "never: ");
	plan_why_text(d, s->plan_nodes, s->names, &s->planned[i], out);
}

static void expect(struct story *s, char *rest)
{
	CLEANUP(buf_done) struct buf told = {0};
	uint64_t id = (uint64_t)number(s, next_word(s, &rest, "the job"));
	size_t i = find_planned(s, id);

	rest += strspn(rest, " ");
	tell(s, i, &told);
	if (strcmp(buf_str(&told), rest) != 0)
		die(s, "job %" PRIu64 "\n  expected: %s\n  the plan: %s", id, rest, buf_str(&told));
	s->is_expected[i] = true;
	s->n_checks++;
}

static void expect_charge(struct story *s, char *rest)
{
	uint64_t id = (uint64_t)number(s, next_word(s, &rest, "the occupant"));
	int64_t wanted = number(s, next_word(s, &rest, "the charge"));

	for (size_t i = 0; i < s->n_occupants; i++) {
		const struct occupant *o = &s->occupants[i];
		if (o->id != id)
			continue;
		if (charge_of(s, o, 0) != wanted)
			die(s, "occupant %" PRIu64 " is charged %" PRId64 ", not %" PRId64, id,
				charge_of(s, o, 0), wanted);
		s->n_checks++;
		return;
	}
	die(s, "there's no occupant %" PRIu64, id);
}

static void end_occupant(struct story *s, uint64_t id)
{
	for (size_t i = 0; i < s->n_occupants; i++) {
		if (s->occupants[i].id != id)
			continue;
		memmove(&s->occupants[i], &s->occupants[i + 1],
			(s->n_occupants - i - 1) * sizeof(s->occupants[0]));
		s->n_occupants--;
		return;
	}
	die(s, "occupant %" PRIu64 " isn't there", id);
}

/* "use 0 500" or "use n1 0 500": what the card shows from now on. */
static void use(struct story *s, char *rest)
{
	char *word = next_word(s, &rest, "the card");
	size_t node = 0;

	if (strspn(word, "0123456789") != strlen(word)) {
		node = find_node(s, word);
		word = next_word(s, &rest, "the card");
	}
	s->nodes[node].cards[number(s, word)].used = number(s, next_word(s, &rest, "the figure"));
}

static void add_card(struct story *s, char *rest)
{
	struct node *n = last_node(s);

	if (n->n == CARDS)
		die(s, "too many cards");
	n->cards[n->n++] =
		(struct card){.index = (int32_t)number(s, next_word(s, &rest, "the index")),
			.total = 24000,
			.numa = -1,
			.is_usable = true,
			.was_seen = true};
	say_words(s, &rest, say_card);
}

static void add_node(struct story *s, char *rest)
{
	if (s->n_nodes == NODES)
		die(s, "too many nodes");
	struct node *n = &s->nodes[s->n_nodes++];
	*n = (struct node){.is_usable = true};
	snprintf(n->name, sizeof(n->name), "%s", next_word(s, &rest, "the name"));
	say_words(s, &rest, say_node);
}

static void sentence(struct story *s, char *line)
{
	char *rest = NULL, *verb = strtok_r(line, " ", &rest);

	if (s->n_jobs == THINGS || s->n_occupants == THINGS)
		die(s, "too many jobs");
	if (!verb)
		return;
	if (strcmp(verb, "policy") == 0) {
		say_words(s, &rest, say_policy);
	} else if (strcmp(verb, "node") == 0) {
		add_node(s, rest);
	} else if (strcmp(verb, "card") == 0) {
		add_card(s, rest);
	} else if (strcmp(verb, "occupant") == 0) {
		s->occupants[s->n_occupants++] = (struct occupant){
			.id = (uint64_t)number(s, next_word(s, &rest, "the number")),
			.cards = 1,
			.vram = -1};
		say_words(s, &rest, say_occupant);
	} else if (strcmp(verb, "job") == 0) {
		s->jobs[s->n_jobs++] = (struct plan_job){
			.id = (uint64_t)number(s, next_word(s, &rest, "the number")),
			.declared_mib = UNDECLARED,
			.gpus = 1,
			.only_node = -1,
			.guard_node = -1};
		say_words(s, &rest, say_job);
	} else if (strcmp(verb, "now") == 0) {
		s->now = number(s, next_word(s, &rest, "the time"));
	} else if (strcmp(verb, "use") == 0) {
		use(s, rest);
	} else if (strcmp(verb, "end") == 0) {
		end_occupant(s, (uint64_t)number(s, next_word(s, &rest, "the number")));
	} else if (strcmp(verb, "plan") == 0) {
		plan(s);
	} else if (strcmp(verb, "expect") == 0) {
		expect(s, rest);
	} else if (strcmp(verb, "charge") == 0) {
		expect_charge(s, rest);
	} else {
		die(s, "what is '%s'?", verb);
	}
}

static void play(const char *path)
{
	struct story *s = xcalloc(1, sizeof(*s));
	CLEANUP_FCLOSE FILE *f = fopen(path, "re");
	char line[1024];

	s->path = path;
	s->buffer = 0.10;
	s->policy.margin_mib = 512;
	s->policy.idle_threshold_mib = 200;
	if (!f)
		die(s, "can't be opened");
	while (fgets(line, sizeof(line), f)) {
		s->line++;
		line[strcspn(line, "\n")] = 0;
		if (line[0] != '#')
			sentence(s, line);
	}
	check_all_were_expected(s);
	if (s->n_checks == 0)
		die(s, "the story expects nothing");
	free(s);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		play(argv[i]);
	return argc > 1 ? 0 : 1;
}
