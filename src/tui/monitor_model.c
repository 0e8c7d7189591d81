/* The monitor's state (monitor_model.h): settings, nodes, and which cards are shown in which order. */
#include "tui/monitor_model.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "show/figure.h"
#include "tui/theme.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- settings ---- */

static const char *const modes[] = {"nodes", "unified", NULL};
static const char *const sorts[] = {"node", "available", "utilization", NULL};
static const char *const filters[] = {"all", "available", "busy", "errors", NULL};

static const struct {
	const char *key;
	const char *const *words; /* NULL: a bool, or the theme */
	size_t offset;
} view_keys[] = {
	{"mode", modes, offsetof(struct view_settings, mode)},
	{"detailed", NULL, offsetof(struct view_settings, detailed)},
	{"sort", sorts, offsetof(struct view_settings, sort)},
	{"filter", filters, offsetof(struct view_settings, filter)},
	{"processes", NULL, offsetof(struct view_settings, processes)},
	{"trends", NULL, offsetof(struct view_settings, trends)},
	{"group_by_node", NULL, offsetof(struct view_settings, group_by_node)},
	{"hide_unsupported", NULL, offsetof(struct view_settings, hide_unsupported)},
	{"mouse", NULL, offsetof(struct view_settings, mouse)},
	{"theme", NULL, 0},
};

void view_defaults(struct view_settings *v)
{
	*v = (struct view_settings){.group_by_node = true,
		.hide_unsupported = true,
		.mouse = true,
		.theme = themes[0].name};
}

static bool set_word(void *at, const char *const *words, const char *value)
{
	for (int i = 0; words[i]; i++)
		if (!strcmp(words[i], value)) {
			*(int *)at = i;
			return true;
		}
	return false;
}

static bool set_bool(void *at, const char *value)
{
	if (strcmp(value, "true") != 0 && strcmp(value, "false") != 0)
		return false;
	*(bool *)at = value[0] == 't';
	return true;
}

static bool set_theme(struct view_settings *v, const char *value)
{
	const struct theme *t = theme_find(value);

	if (t)
		v->theme = t->name;
	return t != NULL;
}

bool view_set(struct view_settings *v, const char *key, const char *value)
{
	for (size_t i = 0; i < ARRAY_LEN(view_keys); i++) {
		void *at = (char *)v + view_keys[i].offset;

		if (strcmp(view_keys[i].key, key) != 0)
			continue;
		if (view_keys[i].words)
			return set_word(at, view_keys[i].words, value);
		return !strcmp(key, "theme") ? set_theme(v, value) : set_bool(at, value);
	}
	return false;
}

bool view_get(const struct view_settings *v, size_t i, const char **ret_key, const char **ret_value)
{
	const void *at;

	if (i >= ARRAY_LEN(view_keys))
		return false;
	at = (const char *)v + view_keys[i].offset;
	*ret_key = view_keys[i].key;
	if (view_keys[i].words)
		*ret_value = view_keys[i].words[*(const int *)at];
	else if (!strcmp(view_keys[i].key, "theme"))
		*ret_value = v->theme;
	else
		*ret_value = *(const bool *)at ? "true" : "false";
	return true;
}

/* ---- life ---- */

void monitor_init(struct monitor *m, size_t n_nodes)
{
	*m = (struct monitor){0};
	view_defaults(&m->view);
	m->nodes = xcalloc(n_nodes ? n_nodes : 1, sizeof(*m->nodes));
	m->n_nodes = n_nodes;
	m->proc_sort = BY_VRAM;
	m->proc_filter.limit = PROC_FILTER_MAX;
	m->page = m->proc_page = m->command_page = 1;
}

static void drop_question(struct monitor *m)
{
	struct question *q = m->questions;

	m->questions = q->next;
	free(q->host);
	free(q->text);
	free(q);
	edit_clear(&m->answer);
	m->answer.is_secret = m->questions && m->questions->is_secret;
}

void monitor_done(struct monitor *m)
{
	for (size_t i = 0; i < m->n_nodes; i++) {
		free(m->nodes[i].name);
		free(m->nodes[i].address);
		free(m->nodes[i].why);
		history_done(&m->nodes[i].history);
	}
	while (m->questions)
		drop_question(m);
	explicit_bzero(m->wishes.answer, sizeof(m->wishes.answer));
	free(m->nodes);
	*m = (struct monitor){0};
}

static void keep_text(char **at, const char *text)
{
	if (*at && text && !strcmp(*at, text))
		return;
	free(*at);
	*at = text ? xstrdup(text) : NULL;
}

void monitor_take(struct monitor *m, size_t i, const struct show_host *h, int64_t sample_at_ms)
{
	struct monitor_node *n = &m->nodes[i];

	keep_text(&n->name, h->name);
	keep_text(&n->address, h->address);
	keep_text(&n->why, h->why ? h->why : "");
	/* It got in all the same: the next question is about something else. */
	if (h->has_answered)
		n->refuses = false;
	n->host = *h;
	n->host.name = n->name;
	n->host.address = n->address;
	n->host.why = n->why;
	if (h->sample && sample_at_ms != n->sample_at_ms)
		history_take(&n->history, h->sample, sample_at_ms);
	n->sample_at_ms = sample_at_ms;
}

void monitor_notice(struct monitor *m, enum ink ink, int64_t now_ms, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(m->notice, sizeof(m->notice), fmt, ap);
	va_end(ap);
	m->notice_ink = (uint8_t)ink;
	m->notice_until_ms = now_ms + NOTICE_MS;
}

bool monitor_tick(struct monitor *m, int64_t now_ms)
{
	bool changed = false;

	if (m->armed.signo && now_ms >= m->armed.until_ms) {
		monitor_cancel_signal(m);
		changed = true;
	}
	if (m->notice[0] && now_ms >= m->notice_until_ms) {
		m->notice[0] = '\0';
		changed = true;
	}
	return changed;
}

bool monitor_ask(struct monitor *m, uint64_t id, uint32_t node, const char *text, bool is_secret)
{
	struct question *q, **at = &m->questions;
	const char *host =
		node < m->n_nodes && m->nodes[node].name ? m->nodes[node].name : "a host";

	if (node < m->n_nodes && m->nodes[node].refuses)
		return false;
	q = xcalloc(1, sizeof(*q));

	q->id = id;
	q->node = node;
	q->host = xstrdup(host);
	q->text = xstrdup(text);
	q->is_secret = is_secret;
	if (!*at)
		m->answer.is_secret = is_secret;
	while (*at)
		at = &(*at)->next;
	*at = q;
	return true;
}

void monitor_answer(struct monitor *m, bool is_refused)
{
	if (!m->questions)
		return;
	m->wishes.has_answer = true;
	m->wishes.question = m->questions->id;
	m->wishes.is_refused = is_refused;
	if (is_refused && m->questions->node < m->n_nodes)
		m->nodes[m->questions->node].refuses = true;
	memcpy(m->wishes.answer, m->answer.text, sizeof(m->wishes.answer));
	drop_question(m);
}

void monitor_cancel_signal(struct monitor *m)
{
	m->armed = (struct armed){0};
}

/* ---- nodes ---- */

bool node_has_failed(const struct monitor_node *n)
{
	const char *s = n->host.state;

	return s && (!strcmp(s, "down") || !strcmp(s, "auth") || !strcmp(s, "suspect"));
}

static bool has_cards(const struct monitor_node *n)
{
	return n->host.sample && n->host.sample->snap.n_cards > 0;
}

bool monitor_shows_node(const struct monitor *m, size_t i)
{
	const struct monitor_node *n = &m->nodes[i];

	/* This machine has its line at the top. */
	if (!n->address && n->name)
		return m->n_nodes == 1 || has_cards(n) || node_has_failed(n);
	return !m->view.hide_unsupported || !n->host.state || strcmp(n->host.state, "none") != 0;
}

bool node_is_open(const struct monitor *m, const struct monitor_node *n)
{
	if (n->host.state && !strcmp(n->host.state, "auth"))
		return false;
	return n->was_toggled ? n->is_open : !m->view.hide_unsupported || has_cards(n);
}

size_t monitor_failures(const struct monitor *m)
{
	size_t n = 0;

	for (size_t i = 0; i < m->n_nodes; i++)
		n += node_has_failed(&m->nodes[i]);
	return n;
}

/* ---- cards ---- */

const struct gpu_card *monitor_card(const struct monitor *m, struct card_row r)
{
	const struct sample *s = r.node < m->n_nodes ? m->nodes[r.node].host.sample : NULL;

	return s && r.card < s->snap.n_cards ? &s->snap.cards[r.card] : NULL;
}

/* The track of a metric; -1: history doesn't have it. */
static int track_of(enum metric metric)
{
	switch ((int)metric) {
	case METRIC_UTIL_GPU:
		return CARD_UTIL;
	case METRIC_UTIL_MEM:
		return CARD_UTIL_MEM;
	case METRIC_MEM_USED:
		return CARD_USED;
	case METRIC_TEMP:
		return CARD_TEMP;
	case METRIC_FAN:
		return CARD_FAN;
	case METRIC_POWER:
		return CARD_POWER;
	case METRIC_PCIE_RX:
		return CARD_RX;
	case METRIC_PCIE_TX:
		return CARD_TX;
	default:
		return -1;
	}
}

struct value monitor_value(const struct monitor *m, struct card_row r, enum metric metric)
{
	const struct gpu_card *c = monitor_card(m, r);
	const struct history *h = &m->nodes[r.node].history;
	const struct card_series *s;
	int track = track_of(metric);
	int32_t v;

	if (!c)
		return value_absent(VALUE_LOST);
	if (!m->travel_ms || track < 0)
		return c->m[metric];
	s = history_card(h, c);
	v = s ? history_at(h, s->v[track], history_back(h, m->travel_ms)) : GRAPH_GAP;
	return v == GRAPH_GAP ? value_absent(VALUE_EMPTY) : value_of(v);
}

static bool is_available(const struct monitor *m, struct card_row r)
{
	struct gpu_card c = *monitor_card(m, r);

	c.m[METRIC_UTIL_GPU] = monitor_value(m, r, METRIC_UTIL_GPU);
	c.m[METRIC_MEM_USED] = monitor_value(m, r, METRIC_MEM_USED);
	return show_card_is_idle(&c);
}

static bool passes(const struct monitor *m, struct card_row r)
{
	struct value util;

	switch (m->view.filter) {
	case FILTER_AVAILABLE:
		return is_available(m, r);
	case FILTER_BUSY:
		util = monitor_value(m, r, METRIC_UTIL_GPU);
		return value_is_present(util) && util.v >= 50;
	case FILTER_ERRORS:
		return false;
	default:
		return true;
	}
}

/* What a row is sorted by, worked out once. */
struct sort_row {
	struct card_row r;
	size_t order;
	bool is_available;
	int64_t util, free_mib, mem_pct;
};

static int compare(int64_t a, int64_t b)
{
	return a < b ? -1 : a > b;
}

static int by_available(const void *a, const void *b)
{
	const struct sort_row *x = a, *y = b;
	int r = compare(y->is_available, x->is_available);

	if (!r)
		r = compare(x->util, y->util);
	if (!r)
		r = compare(y->free_mib, x->free_mib);
	if (!r)
		r = compare(x->mem_pct, y->mem_pct);
	return r ? r : compare((int64_t)x->order, (int64_t)y->order);
}

static int by_utilization(const void *a, const void *b)
{
	const struct sort_row *x = a, *y = b;
	int r = compare(y->util, x->util);

	if (!r)
		r = compare(y->mem_pct, x->mem_pct);
	return r ? r : compare((int64_t)x->order, (int64_t)y->order);
}

/* Cards whose figures aren't known come last in either order. */
static struct sort_row sort_row_of(const struct monitor *m, struct card_row r, size_t order)
{
	struct value util = monitor_value(m, r, METRIC_UTIL_GPU),
		     used = monitor_value(m, r, METRIC_MEM_USED),
		     total = monitor_value(m, r, METRIC_MEM_TOTAL);
	bool has_mem = value_is_present(used) && value_is_present(total);
	bool is_up = m->view.sort == SORT_UTILIZATION;

	return (struct sort_row){
		.r = r,
		.order = order,
		.is_available = is_available(m, r),
		.util = value_is_present(util) ? util.v
			: is_up		       ? -1
					       : 101,
		.free_mib = has_mem ? total.v - used.v : -1,
		.mem_pct = has_mem ? show_percent(used.v, total.v)
			   : is_up ? -1
				   : 101,
	};
}

static void sort_cards(const struct monitor *m, struct card_row *rows, size_t n)
{
	CLEANUP_FREE struct sort_row *s = xcalloc(n ? n : 1, sizeof(*s));

	for (size_t i = 0; i < n; i++)
		s[i] = sort_row_of(m, rows[i], i);
	qsort(s, n, sizeof(*s), m->view.sort == SORT_AVAILABLE ? by_available : by_utilization);
	for (size_t i = 0; i < n; i++)
		rows[i] = s[i].r;
}

struct card_row *monitor_cards(const struct monitor *m, size_t *ret_n, size_t *ret_all)
{
	struct card_row *rows;
	size_t n = 0, all = 0;

	for (size_t i = 0; i < m->n_nodes; i++)
		all += m->nodes[i].host.sample ? m->nodes[i].host.sample->snap.n_cards : 0;
	rows = xcalloc(all ? all : 1, sizeof(*rows));
	for (uint32_t i = 0; i < m->n_nodes; i++) {
		const struct sample *s = m->nodes[i].host.sample;

		/* Instances stand below their card, wherever the sample has them. */
		for (uint32_t k = 0; s && k < s->snap.n_cards; k++) {
			if (gpu_is_instance(&s->snap.cards[k]))
				continue;
			if (passes(m, (struct card_row){i, k}))
				rows[n++] = (struct card_row){i, k};
			for (uint32_t g = 0; g < s->snap.n_cards; g++)
				if (gpu_is_instance(&s->snap.cards[g]) &&
					gpu_whole_of(&s->snap, g) == k &&
					passes(m, (struct card_row){i, g}))
					rows[n++] = (struct card_row){i, g};
		}
	}
	if (m->view.sort != SORT_NODE)
		sort_cards(m, rows, n);
	*ret_n = n;
	*ret_all = all;
	return rows;
}

size_t monitor_selected(const struct monitor *m, const struct card_row *rows, size_t n)
{
	size_t near = 0;

	for (size_t i = 0; i < n; i++) {
		const struct gpu_card *c = monitor_card(m, rows[i]);

		if (rows[i].node != m->card.node)
			continue;
		near = i;
		if (c->index == m->card.index && c->gi == m->card.gi && c->ci == m->card.ci)
			return i;
	}
	return near;
}

void monitor_select_card(struct monitor *m, struct card_row r)
{
	const struct gpu_card *c = monitor_card(m, r);
	struct card_key key;

	if (!c)
		return;
	key = (struct card_key){r.node, c->index, c->gi, c->ci};
	if (memcmp(&key, &m->card, sizeof(key)) != 0) {
		m->proc = (struct proc_key){0};
		m->first_proc = m->first_command = 0;
		monitor_cancel_signal(m);
	}
	m->card = key;
	m->node = r.node;
}

static bool is_same_key(const struct proc_key *a, const struct proc_key *b)
{
	return a->pid == b->pid && a->start_ticks == b->start_ticks && !strcmp(a->head, b->head);
}

void monitor_select_proc(struct monitor *m, const struct proc_row *p)
{
	struct proc_key key = {.pid = p->pid, .start_ticks = p->start_ticks};

	if (p->is_head)
		snprintf(key.head, sizeof(key.head), "%s", p->user);
	if (!is_same_key(&key, &m->proc)) {
		m->first_command = 0;
		monitor_cancel_signal(m);
	}
	m->proc = key;
}

bool monitor_pane_is_wanted(const struct monitor *m)
{
	return m->view.mode == MODE_UNIFIED && m->view.filter != FILTER_ERRORS &&
	       (m->view.detailed ? !m->hides_pane : m->view.processes);
}
