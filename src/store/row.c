/*
 * A job as a row and back. One table lists the columns; reading, submitting and importing are made from it. The schema has
 * them once more, and a statement that doesn't fit it can't be prepared.
 */
#include "store/store_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "core/shape.h"

#include <inttypes.h>
#include <jansson.h>
#include <stddef.h>
#include <string.h>

#define SHAPED_MAX 4096 /* bytes of a command that are kept to be compared with the next one */

enum kind {
	K_TEXT,
	K_INT,
	K_OPT, /* -1 is NULL */
	K_TIME, /* 0 is NULL */
	K_BOOL,
	K_STATE,
	K_CAUSE,
	K_SOURCE,
	K_ON_DEPENDENCY,
	K_EXIT, /* with has_exit_code */
};

static const struct column {
	char name[24];
	enum kind kind;
	size_t at;
	bool is_asked; /* what a submit sets; the rest comes later */
	bool is_apart; /* of no interest to who only wants to know where a waiting job fits */
} columns[] = {
#define C(name, kind, asked) \
	{ \
#name, kind, offsetof(struct job, name), asked, false \
	}
#define APART(name, kind, asked) \
	{ \
#name, kind, offsetof(struct job, name), asked, true \
	}
	C(state, K_STATE, true),
	C(is_bound, K_BOOL, false),
	C(priority, K_INT, true),
	C(gpus, K_INT, true),
	C(vram_mib, K_OPT, true),
	C(vram_source, K_SOURCE, true),
	C(min_total_mib, K_TIME, true),
	C(cpus, K_TIME, true),
	C(mem_mib, K_TIME, true),
	C(exclusive, K_BOOL, true),
	C(idle, K_BOOL, true),
	C(nvlink, K_BOOL, true),
	APART(login, K_BOOL, true),
	C(max_runtime_ms, K_TIME, true),
	APART(grace_ms, K_OPT, true),
	APART(lead_signal, K_TIME, true),
	APART(lead_ms, K_TIME, true),
	APART(max_retries, K_INT, true),
	APART(oom_retries, K_OPT, true),
	APART(retry_on, K_TIME, true),
	C(on_dependency, K_ON_DEPENDENCY, true),
	C(created_ms, K_INT, true),
	C(updated_ms, K_INT, true),
	APART(started_ms, K_TIME, false),
	APART(finished_ms, K_TIME, false),
	APART(elapsed_ms, K_OPT, false),
	C(attempt, K_INT, false),
	C(attempt_base, K_INT, false),
	C(n_oom, K_INT, false),
	APART(heartbeat_ms, K_TIME, false),
	APART(gpu_mem_mib, K_OPT, false),
	C(peak_mib, K_OPT, false),
	APART(progress_ms, K_TIME, false),
	C(lane_seq, K_TIME, true),
	C(cancel_ms, K_TIME, false),
	APART(exit_code, K_EXIT, false),
	APART(cause, K_CAUSE, false),
	C(shape, K_TEXT, true),
	APART(name, K_TEXT, true),
	APART(submitter, K_TEXT, true),
	APART(key, K_TEXT, true),
	C(node_constraint, K_TEXT, true),
	C(gpu_constraint, K_TEXT, true),
	C(gpu_model, K_TEXT, true),
	C(lane, K_TEXT, true),
	C(lane_next, K_TEXT, false),
	APART(progress, K_TEXT, false),
	C(held_reason, K_TEXT, false),
	APART(cancel_reason, K_TEXT, false),
	C(last_error, K_TEXT, false),
	APART(workdir, K_TEXT, true),
	APART(tags, K_TEXT, true),
	APART(notes, K_TEXT, true),
	APART(result, K_TEXT, false),
	APART(env, K_TEXT, true),
	APART(command, K_TEXT, true),
#undef C
#undef APART
};

/* Behind the columns: the attempt in flight, or the last one of a job that has ended. */
#define PLACE \
	", a.token, a.node, a.root_id, a.boot_id, a.machine_key, a.cards, a.pid, a.start_ticks, a.run_dir"
#define JOIN \
	" LEFT JOIN attempts a ON a.job = j.id AND a.attempt = j.attempt" \
	" AND (j.is_bound = 1 OR j.state <> 'pending')"

void row_put_select(struct buf *b, size_t command_max, bool to_place, const char *index)
{
	buf_puts(b, "SELECT j.id");
	for (size_t i = 0; i < ARRAY_LEN(columns); i++) {
		if (to_place && columns[i].is_apart)
			continue;
		if (command_max && strcmp(columns[i].name, "command") == 0)
			buf_printf(b, ", substr(j.command, 1, %zu)", command_max);
		else
			buf_printf(b, ", j.%s", columns[i].name);
	}
	buf_printf(b, "%s FROM jobs j", to_place ? "" : PLACE);
	if (index)
		buf_printf(b, " INDEXED BY %s", index);
	if (!to_place)
		buf_puts(b, JOIN);
}

#define ALL_COLUMNS UINT64_MAX
_Static_assert(ARRAY_LEN(columns) <= 64, "a set of columns is one word");

static bool has_column(uint64_t which, size_t i)
{
	return which >> i & 1;
}

/* which: the columns by position; with_id: and the number, which else is the next one. */
static char *insert_text(uint64_t which, bool with_id)
{
	struct buf b = {0};
	const char *mark = with_id ? ", " : "";

	buf_puts(&b, with_id ? "INSERT INTO jobs (id" : "INSERT INTO jobs (");
	for (size_t i = 0; i < ARRAY_LEN(columns); i++) {
		if (has_column(which, i)) {
			buf_printf(&b, "%s%s", mark, columns[i].name);
			mark = ", ";
		}
	}
	buf_puts(&b, with_id ? ") VALUES (?" : ") VALUES (");
	mark = with_id ? ", ?" : "?";
	for (size_t i = 0; i < ARRAY_LEN(columns); i++) {
		if (has_column(which, i)) {
			buf_puts(&b, mark);
			mark = ", ?";
		}
	}
	buf_puts(&b, ")");
	return buf_take(&b);
}

void row_init(struct store *s)
{
	struct buf b = {0};

	row_put_select(&b, 0, false, NULL);
	buf_puts(&b, " WHERE j.id = ?1");
	s->sql_job = buf_take(&b);
	row_put_select(&b, 200, false, NULL);
	buf_puts(&b, " WHERE j.id = ?1");
	s->sql_brief = buf_take(&b);
	s->sql_import = insert_text(ALL_COLUMNS, true);
}

void row_done(struct store *s)
{
	free(s->sql_job);
	free(s->sql_brief);
	free(s->sql_import);
	for (size_t i = 0; i < s->n_inserts; i++)
		free(s->inserts[i].sql);
	buf_done(&s->shape);
	buf_done(&s->shaped);
	buf_done(&s->told);
}

char *text_cut(const char *s, size_t max)
{
	size_t n;

	if (!s)
		return NULL;
	n = strnlen(s, max + 1);
	if (n <= max)
		return xstrdup(s);
	/* Not inside a character. */
	for (n = max; n > 0 && ((unsigned char)s[n] & 0xC0) == 0x80; n--)
		;
	return xstrndup(s, n);
}

int text_check_json(const char *what, const char *json, char kind, struct err *e)
{
	size_t n = json ? strlen(json) : 0;
	json_t *v;
	bool ok;

	if (!json)
		return 0;
	if (n > STORE_JSON_MAX)
		return err_set(e, -E2BIG, "%s is larger than %d MiB", what, STORE_JSON_MAX >> 20);
	v = json_loadb(json, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
	ok = v && (kind == '*' || (kind == 'o' && json_is_object(v)) ||
			  (kind == 'a' && json_is_array(v)));
	for (size_t i = 0; ok && kind == 'a' && i < json_array_size(v); i++)
		ok = json_is_string(json_array_get(v, i));
	json_decref(v);
	return ok ? 0
		  : err_set(e, -EINVAL, "%s isn't the JSON %s that it should be", what,
			    kind == 'o'	  ? "object"
			    : kind == 'a' ? "array of texts"
					  : "value");
}

int row_check(const struct job *j, struct err *e)
{
	int r;

	if (!j->command || !*j->command)
		return err_set(e, -EINVAL, "a job needs a command");
	if (strnlen(j->command, JOB_TEXT_MAX + 1) > JOB_TEXT_MAX)
		return err_set(e, -E2BIG, "the command is larger than %d MiB; put it into a file",
			JOB_TEXT_MAX >> 20);
	if (j->gpus < 0 || j->max_runtime_ms < 0 || j->max_retries < 0 || j->vram_mib < -1)
		return err_set(e, -EINVAL, "a job can't ask for less than nothing");
	for (size_t i = 0; i < ARRAY_LEN(columns); i++) {
		const char *text;

		if (columns[i].kind != K_TEXT)
			continue;
		text = *(char *const *)((const char *)j + columns[i].at);
		if (text && utf8_valid_len(text, strlen(text)) != strlen(text))
			return err_set(
				e, -EINVAL, "the job's %s isn't valid UTF-8", columns[i].name);
	}
	r = text_check_json("the environment", j->env, 'o', e);
	if (r == 0)
		r = text_check_json("the list of tags", j->tags, 'a', e);
	return r == 0 ? text_check_json("the result", j->result, '*', e) : r;
}

static void bind_text(sqlite3_stmt *st, int i, const char *text)
{
	sqlite3_bind_text(st, i, text, -1, SQLITE_STATIC);
}

static void bind_number(sqlite3_stmt *st, int i, int64_t v, bool is_null)
{
	if (is_null)
		sqlite3_bind_null(st, i);
	else
		sqlite3_bind_int64(st, i, v);
}

static void bind_column(sqlite3_stmt *st, int i, const struct column *c, const struct job *j)
{
	const char *at = (const char *)j + c->at;

	switch (c->kind) {
	case K_TEXT:
		bind_text(st, i, *(char *const *)at);
		break;
	case K_INT:
		bind_number(st, i, *(const int64_t *)at, false);
		break;
	case K_OPT:
		bind_number(st, i, *(const int64_t *)at, *(const int64_t *)at == -1);
		break;
	case K_TIME:
		bind_number(st, i, *(const int64_t *)at, *(const int64_t *)at == 0);
		break;
	case K_BOOL:
		bind_number(st, i, *(const bool *)at, false);
		break;
	case K_STATE:
		bind_text(st, i, job_state_name(j->state));
		break;
	case K_CAUSE:
		bind_text(st, i, j->cause ? job_cause_name(j->cause) : NULL);
		break;
	case K_SOURCE:
		bind_text(st, i, vram_source_name(j->vram_source));
		break;
	case K_ON_DEPENDENCY:
		bind_text(st, i, on_dependency_name(j->on_dependency));
		break;
	case K_EXIT:
		bind_number(st, i, j->exit_code, !j->has_exit_code);
		break;
	}
}

/* What the table says of it when nobody does: NULL, or false. The shape is the store's to say. */
static bool is_unsaid(const struct column *c, const struct job *j)
{
	const char *at = (const char *)j + c->at;

	switch (c->kind) {
	case K_TEXT:
		return !*(char *const *)at && c->at != offsetof(struct job, shape);
	case K_OPT:
		return *(const int64_t *)at == -1;
	case K_TIME:
		return *(const int64_t *)at == 0;
	case K_BOOL:
		return !*(const bool *)at;
	default:
		return false;
	}
}

/*
 * Of the forty columns that a submit may set most say nothing, and each of those would be bound, checked and dropped again.
 * Jobs that come together mostly say the same ones: a statement for each such set, of the first few; then one that has all.
 */
static const char *insert_for(struct store *s, const struct job *j, uint64_t *ret_which)
{
	uint64_t asked = 0, said = 0;
	struct db_insert *last = &s->inserts[ARRAY_LEN(s->inserts) - 1];

	for (size_t i = 0; i < ARRAY_LEN(columns); i++) {
		asked |= (uint64_t)columns[i].is_asked << i;
		said |= (uint64_t)(columns[i].is_asked && !is_unsaid(&columns[i], j)) << i;
	}
	for (size_t i = 0; i < s->n_inserts; i++) {
		if (s->inserts[i].which == said || &s->inserts[i] == last) {
			*ret_which = s->inserts[i].which;
			return s->inserts[i].sql;
		}
	}
	*ret_which = &s->inserts[s->n_inserts] == last ? asked : said;
	s->inserts[s->n_inserts].which = *ret_which;
	s->inserts[s->n_inserts].sql = insert_text(*ret_which, false);
	return s->inserts[s->n_inserts++].sql;
}

/* An array has one command many times over. */
static void find_shape(struct store *s, const char *command)
{
	size_t n = strlen(command);

	if (n && s->shaped.len == n && memcmp(s->shaped.data, command, n) == 0)
		return;
	shape_of(command, n, &s->shape);
	buf_clear(&s->shaped);
	if (n <= SHAPED_MAX)
		buf_put(&s->shaped, command, n);
}

int row_insert(struct store *s, const struct job *j, bool all, int64_t *ret_id, struct err *e)
{
	uint64_t which = ALL_COLUMNS;
	const char *sql = all ? s->sql_import : insert_for(s, j, &which);
	sqlite3_stmt *st = db_kept(s, sql, e);
	int i = 1, r;

	if (!st)
		return -EIO;
	if (all)
		sqlite3_bind_int64(st, i++, j->id);
	find_shape(s, j->command);
	for (size_t c = 0; c < ARRAY_LEN(columns); c++) {
		if (!has_column(which, c))
			continue;
		if (columns[c].at == offsetof(struct job, shape))
			bind_text(st, i++, buf_str(&s->shape));
		else
			bind_column(st, i++, &columns[c], j);
	}
	r = db_next(s, st, e);
	if (r < 0)
		return r;
	*ret_id = sqlite3_last_insert_rowid(s->db);
	return 0;
}

/* Only of columns that hold a word: a number would be written out as a text first. */
static const char *word_in(sqlite3_stmt *st, int i)
{
	return (const char *)sqlite3_column_text(st, i);
}

static void read_column(sqlite3_stmt *st, int i, const struct column *c, struct job *j)
{
	char *at = (char *)j + c->at;

	switch (c->kind) {
	case K_TEXT:
		*(char **)at = db_text(st, i);
		break;
	case K_OPT:
		*(int64_t *)at = db_i64(st, i, -1);
		break;
	case K_INT:
	case K_TIME:
		/* NULL is 0 to SQLite too. */
		*(int64_t *)at = sqlite3_column_int64(st, i);
		break;
	case K_BOOL:
		*(bool *)at = sqlite3_column_int(st, i) != 0;
		break;
	case K_STATE:
		job_state_from_name(word_in(st, i), &j->state);
		break;
	case K_CAUSE:
		job_cause_from_name(word_in(st, i), &j->cause);
		break;
	case K_SOURCE:
		vram_source_from_name(word_in(st, i), &j->vram_source);
		break;
	case K_ON_DEPENDENCY:
		on_dependency_from_name(word_in(st, i), &j->on_dependency);
		break;
	case K_EXIT:
		j->has_exit_code = sqlite3_column_type(st, i) != SQLITE_NULL;
		j->exit_code = db_i64(st, i, 0);
		break;
	}
}

/* ---- the cards of a bind ---- */

void row_put_cards(struct buf *b, const struct job_card *cards, size_t n)
{
	buf_putc(b, '[');
	for (size_t i = 0; i < n; i++) {
		buf_printf(b,
			"%s{\"index\":%" PRId32 ",\"mib\":%" PRId64 ",\"uuid\":", i ? "," : "",
			cards[i].index, cards[i].mib);
		text_put_json_ascii(b, cards[i].uuid, strlen(cards[i].uuid));
		buf_putc(b, '}');
	}
	buf_putc(b, ']');
}

static void read_cards(const char *text, struct job_bind *ret)
{
	json_t *list = text ? json_loads(text, 0, NULL) : NULL;
	size_t n = json_array_size(list);

	if (n > JOB_CARDS_MAX)
		n = JOB_CARDS_MAX;
	if (n)
		ret->cards = xcalloc(n, sizeof(*ret->cards));
	for (size_t i = 0; i < n; i++) {
		json_t *o = json_array_get(list, i);
		const char *uuid = json_string_value(json_object_get(o, "uuid"));
		struct job_card *c = &ret->cards[ret->n_cards++];

		c->index = (int32_t)json_integer_value(json_object_get(o, "index"));
		c->mib = json_integer_value(json_object_get(o, "mib"));
		snprintf(c->uuid, sizeof(c->uuid), "%s", uuid ? uuid : "");
	}
	json_decref(list);
}

static void read_small(sqlite3_stmt *st, int col, char *ret, size_t size)
{
	const char *text = (const char *)sqlite3_column_text(st, col);
	size_t n = text ? strnlen(text, size - 1) : 0;

	if (n)
		memcpy(ret, text, n);
	ret[n] = '\0';
}

void row_read_bind(sqlite3_stmt *st, int col, struct job_bind *ret)
{
	read_small(st, col, ret->token, sizeof(ret->token));
	ret->node = db_text(st, col + 1);
	read_small(st, col + 2, ret->root_id, sizeof(ret->root_id));
	read_small(st, col + 3, ret->boot_id, sizeof(ret->boot_id));
	read_small(st, col + 4, ret->machine_key, sizeof(ret->machine_key));
	read_cards((const char *)sqlite3_column_text(st, col + 5), ret);
}

void row_read(sqlite3_stmt *st, struct job *ret)
{
	int n = (int)ARRAY_LEN(columns), col = n + 1;

	job_init(ret);
	ret->id = sqlite3_column_int64(st, 0);
	for (int i = 0; i < n; i++)
		read_column(st, i + 1, &columns[i], ret);
	row_read_bind(st, col, &ret->bind);
	ret->pid = db_i64(st, col + 6, 0);
	ret->start_ticks = db_i64(st, col + 7, 0);
	ret->run_dir = db_text(st, col + 8);
}

/* Thousands of them are read in each pass. */
void row_read_to_place(sqlite3_stmt *st, struct job *ret)
{
	int col = 0;

	job_init(ret);
	ret->id = sqlite3_column_int64(st, col++);
	for (size_t i = 0; i < ARRAY_LEN(columns); i++)
		if (!columns[i].is_apart)
			read_column(st, col++, &columns[i], ret);
}

int row_read_needs(struct store *s, struct job *j, struct err *e)
{
	size_t cap[2] = {0}, *n;
	int64_t **list;
	sqlite3_stmt *st = NULL;
	int r = db_ask(s, &st, e,
		"SELECT kind, needs FROM needs WHERE job = ?1 ORDER BY kind, needs", "i", j->id);

	for (; r > 0; r = db_next(s, st, e)) {
		int kind = sqlite3_column_int(st, 0) != 0;

		list = kind ? &j->after_any : &j->after;
		n = kind ? &j->n_after_any : &j->n_after;
		GROW(*list, *n, cap[kind]);
		(*list)[(*n)++] = sqlite3_column_int64(st, 1);
	}
	return r;
}

int row_brief(struct store *s, int64_t id, struct job *ret, struct err *e)
{
	sqlite3_stmt *st = NULL;
	int r = db_ask(s, &st, e, s->sql_brief, "i", id);

	if (r < 0)
		return r;
	if (r == 0)
		return err_set(e, -ENOENT, "there's no job %" PRId64, id);
	row_read(st, ret);
	db_done(st);
	return 0;
}
