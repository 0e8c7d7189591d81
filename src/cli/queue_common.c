/* Shared by the commands of the queue: see queue_common.h. */
#include "cli/queue_common.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/parse.h"
#include "base/row.h"
#include "base/text.h"
#include "cli/global.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IDS_MAX 1000000
#define TICK_WAIT_MS 60000

bool queue_wants_json(const void *opts)
{
	const struct queue_options *o = opts;

	return o->json;
}

const char *queue_env(const struct program *p, const char *name)
{
	char key[64];
	const char *v;

	snprintf(key, sizeof(key), "%s%s", p->env_prefix, name);
	v = getenv(key);
	return v && *v ? v : NULL;
}

int queue_load_config(const struct queue *q, struct queue_config *ret, struct err *e)
{
	const struct program *p = q->program;

	return queue_config_load(
		q->home, queue_env(p, "QUEUE_CONFIG"), !strcmp(p->name, "nvidb"), ret, e);
}

void queue_say_warnings(const struct program *p, const struct buf *warnings)
{
	CLEANUP(buf_done) struct buf clean = {0};
	const char *line = buf_str(warnings);

	while (*line) {
		size_t n = strcspn(line, "\n");

		buf_clear(&clean);
		text_put_clean(&clean, line, n);
		fprintf(stderr, "%s: warning: %s\n", p->name, buf_str(&clean));
		line += n + (line[n] == '\n');
	}
}

static int choose_path(struct queue *q, struct err *e)
{
	const char *path = q->o->db_path ? q->o->db_path : queue_env(q->program, "QUEUE_DB");
	int n = path ? snprintf(q->path, sizeof(q->path), "%s", path)
		     : snprintf(q->path, sizeof(q->path), "%s/queue.db", q->home);

	if (n < 0 || (size_t)n >= sizeof(q->path))
		return err_set(e, -ENAMETOOLONG,
			"the path of the queue's database is longer than %zu bytes",
			sizeof(q->path) - 1);
	return 0;
}

int queue_find_quietly(
	struct queue *q, const struct program *p, const struct queue_options *o, struct err *e)
{
	int r;

	*q = (struct queue){.program = p, .o = o, .json = o->json || p->global->json};
	r = hosts_home(p, q->home, e);
	if (!r)
		r = queue_load_config(q, &q->config, e);
	if (r < 0)
		return r;
	if (q->config.remote.host && !o->local && !queue_env(p, "QUEUE_NO_REMOTE"))
		return err_set(e, -ENOTSUP,
			"queue.yml says that the queue lies on %s (remote:); run this there by ssh, or say --local for this machine's own",
			q->config.remote.host);
	return choose_path(q, e);
}

int queue_find(
	struct queue *q, const struct program *p, const struct queue_options *o, struct err *e)
{
	int r = queue_find_quietly(q, p, o, e);

	queue_say_warnings(p, &q->config.warnings);
	return r;
}

static int open_store(struct queue *q, enum store_mode mode, struct err *e)
{
	struct store_options o = {.mode = mode};
	int r;

	q->mode = mode;
	r = store_open(q->path, &o, &q->store, e);

	/* A queue that nobody made yet is an empty one: made now, so that all that follows has one way. */
	if (r == -ENOENT && mode == STORE_READ) {
		o.mode = q->mode = STORE_WRITE;
		r = store_open(q->path, &o, &q->store, e);
	}
	return r;
}

int queue_open(struct queue *q, const struct program *p, const struct queue_options *o,
	enum store_mode mode, struct err *e)
{
	int r = queue_find(q, p, o, e);

	return r < 0 ? r : open_store(q, mode, e);
}

int queue_open_existing(struct queue *q, const struct program *p, const struct queue_options *o,
	enum store_mode mode, struct err *e)
{
	int r = queue_find(q, p, o, e);

	if (r == 0 && access(q->path, F_OK) < 0 && errno == ENOENT)
		return err_set(e, -ENOENT,
			"there's no queue at %s; if it's lost, `%s queue restore FILE` puts a backup there",
			q->path, p->name);
	return r < 0 ? r : open_store(q, mode, e);
}

void queue_close(struct queue *q)
{
	if (q->store)
		store_close(q->store);
	q->store = NULL;
	queue_config_done(&q->config);
}

static int run_pass(struct queue *q, bool is_forced, struct tick_summary *ret, struct err *e)
{
	struct tick_options o = {.home = q->home, .is_forced = is_forced, .wait_ms = TICK_WAIT_MS};

	return tick(q->store, &q->config, &o, ret, e);
}

static void warn(const struct queue *q, const struct err *e)
{
	CLEANUP(buf_done) struct buf b = {0};

	text_put_clean(&b, e->text, strlen(e->text));
	fprintf(stderr, "%s: warning: %s\n", q->program->name, buf_str(&b));
}

/* A pass writes; a command that only reads may have opened the store for reading. */
static int reopen(struct queue *q, enum store_mode mode, struct err *e)
{
	struct store_options o = {.mode = mode};

	if (q->store && q->mode == mode)
		return 0;
	if (q->store)
		store_close(q->store);
	q->store = NULL;
	q->mode = mode;
	return store_open(q->path, &o, &q->store, e);
}

void queue_refresh(struct queue *q)
{
	CLEANUP(tick_summary_done) struct tick_summary t = {0};
	struct err e = {0};
	int r;

	/* Of another machine's queue only what it wrote down can be told. */
	if (q->o->no_tick || store_is_elsewheres(q->store))
		return;
	r = reopen(q, STORE_WRITE, &e);
	if (!r)
		r = run_pass(q, q->o->tick, &t, &e);
	/* The pass has ended where it may be ended, and so does the command: whoever pressed Ctrl-C didn't mean only the pass. */
	if (r == -EINTR)
		raise(SIGINT);
	if (r < 0)
		warn(q, &e);
	/* What can't be written here can still be read. */
	if (!q->store && reopen(q, STORE_READ, &e) < 0)
		warn(q, &e);
}

json_t *queue_tick_after(struct queue *q)
{
	CLEANUP(tick_summary_done) struct tick_summary t = {0};
	struct err e = {0};

	if (q->o->no_tick)
		return json_pack("{s:s}", "skipped", "disabled");
	if (run_pass(q, true, &t, &e) < 0) {
		warn(q, &e);
		return json_pack("{s:b, s:s, s:s}", "ran", 0, "skipped", "error", "error", e.text);
	}
	return tick_summary_json(&t);
}

bool queue_is_away(struct queue *q, const char *node, char **ret)
{
	CLEANUP(store_nodes_done) struct store_nodes rows = {0};
	CLEANUP(buf_done) struct buf b = {0};
	struct err e;

	if (!node || store_nodes(q->store, &rows, &e) < 0)
		return false;
	for (size_t i = 0; i < rows.n; i++) {
		const struct store_node *n = &rows.v[i];

		if (strcmp(n->name, node) != 0 || !n->state || !strcmp(n->state, "up"))
			continue;
		buf_printf(&b, "%s is %s", n->name, n->state);
		if (n->last_error && *n->last_error) {
			buf_puts(&b, ": ");
			queue_put_line(&b, n->last_error, 200);
		}
		*ret = buf_take(&b);
		return true;
	}
	return false;
}

int queue_print_json(json_t *o, struct err *e)
{
	return hosts_print_json(o, e);
}

int queue_parse_id(const char *word, int64_t *ret, struct err *e)
{
	CLEANUP(buf_done) struct buf q = {0};

	if (!parse_int64(word, ret) && *ret > 0)
		return 0;
	text_put_repr(&q, word, strnlen(word, 100));
	return err_set(e, -EINVAL, "%s is no job's number; `job ls` lists them", buf_str(&q));
}

static int add_range(struct id_list *l, int64_t from, int64_t to, struct err *e)
{
	if (to < from || to - from >= IDS_MAX || l->n + (size_t)(to - from) >= IDS_MAX)
		return err_set(e, -EINVAL,
			"%" PRId64 "-%" PRId64
			" is no range: the smaller number comes first, and it has at most %d",
			from, to, IDS_MAX);
	for (int64_t id = from; id <= to; id++) {
		GROW(l->v, l->n, l->cap);
		l->v[l->n++] = id;
	}
	return 0;
}

static int parse_part(const char *part, struct id_list *ret, struct err *e)
{
	CLEANUP_FREE char *copy = xstrdup(part);
	char *dash = strchr(copy + (*copy != '\0'), '-');
	int64_t from, to;
	int r;

	if (dash)
		*dash = '\0';
	r = queue_parse_id(copy, &from, e);
	to = from;
	if (!r && dash)
		r = queue_parse_id(dash + 1, &to, e);
	return r ? r : add_range(ret, from, to, e);
}

int queue_parse_ids(const char *word, struct id_list *ret, struct err *e)
{
	CLEANUP_FREE char *copy = xstrdup(word);
	char *save = NULL;
	size_t before = ret->n;

	for (char *part = strtok_r(copy, ", ", &save); part; part = strtok_r(NULL, ", ", &save)) {
		int r = parse_part(part, ret, e);

		if (r)
			return r;
	}
	return ret->n > before ? 0 : queue_parse_id(word, &(int64_t){0}, e);
}

void id_list_done(struct id_list *l)
{
	free(l->v);
	*l = (struct id_list){0};
}

int queue_parse_node(
	const struct queue *q, const char *word, const struct queue_node **ret, struct err *e)
{
	size_t i;
	int r = queue_config_find(&q->config, word, &i, e);

	if (!r)
		*ret = &q->config.nodes[i];
	return r;
}

void queue_put_duration(struct buf *b, int64_t ms)
{
	int64_t s = ms / 1000;

	if (ms < 0) {
		buf_putc(b, '-');
		return;
	}
	if (s >= 86400)
		buf_printf(b, "%" PRId64 "-", s / 86400);
	buf_printf(b, "%02d:%02d:%02d", (int)(s / 3600 % 24), (int)(s / 60 % 60), (int)(s % 60));
}

void queue_put_size(struct buf *b, int64_t mib)
{
	if (mib < 0)
		buf_putc(b, '-');
	else if (mib < 1024)
		buf_printf(b, "%" PRId64 "M", mib);
	else if (mib < 100 * 1024)
		buf_printf(b, "%.1fG", (double)mib / 1024);
	else
		buf_printf(b, "%.0fG", (double)mib / 1024);
}

void queue_put_line(struct buf *b, const char *text, size_t max)
{
	CLEANUP(buf_done) struct buf clean = {0};
	size_t n = strlen(text), cells, fit;

	/* Newlines and tabs are blanks; one line is one line. */
	for (size_t i = 0; i < n && clean.len < 4 * max + 16; i++) {
		bool is_blank = strchr(" \t\r\n", text[i]) != NULL;

		if (is_blank && (!clean.len || clean.data[clean.len - 1] == ' '))
			continue;
		buf_putc(&clean, is_blank ? ' ' : text[i]);
	}
	{
		CLEANUP(buf_done) struct buf safe = {0};

		text_put_clean(&safe, buf_str(&clean), clean.len);
		fit = row_fitting(buf_str(&safe), safe.len, max, &cells);
		if (fit == safe.len) {
			buf_put(b, buf_str(&safe), safe.len);
			return;
		}
		fit = row_fitting(buf_str(&safe), safe.len, max ? max - 1 : 0, &cells);
		buf_put(b, buf_str(&safe), fit);
		buf_puts(b, "…");
	}
}
