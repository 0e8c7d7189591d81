/*
 * The "sample" message: a snapshot, whose rows are charged to whom, and the ledger. What only the agent's ledger needs
 * of a process (session, ancestors, mark) doesn't travel. Process rows are arrays, so that the largest snapshot stays
 * below the limit of a message:
 *
 *   [card, kind, pid, start ticks, MiB or the reason as a word, uid or -1, comm, row + 1 or 0]
 *
 * What a sample with details has besides is sample_details.c's.
 *
 * Members may be added to objects, and values to the end of the arrays; both sides ignore what they don't know.
 */
#include "core/sample.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "core/sample_details.h"

#include <string.h>

#define SAMPLE_ROWS_MAX 65536
#define MIB_MAX (INT64_C(1) << 44)

void sample_done(struct sample *s)
{
	if (!s)
		return;
	gpu_snapshot_done(&s->snap);
	free(s->proc_row);
	free(s->promised_mib);
	free(s->lane_mib);
	free(s->rows);
	*s = (struct sample){0};
}

/* Names come from drivers and processes: whatever bytes they hold, they go out as valid and harmless text. */
json_t *sample_text(const char *s)
{
	CLEANUP(buf_done) struct buf b = {0};

	text_put_clean(&b, s, strlen(s));
	return json_string(buf_str(&b));
}

static size_t metrics_of(const struct sample *s)
{
	if (s->with_details && s->with_profiling)
		return METRIC_N;
	return s->with_details ? METRIC_PROFILE_FIRST : METRIC_PLAIN_N;
}

void sample_put_metrics(
	const struct value *m, size_t n, bool with_details, const struct value *base, json_t *o)
{
	json_t *absent = json_object(), *present = json_object();

	for (size_t i = 0; i < n; i++) {
		if (base && value_is_same(base[i], m[i]))
			continue;
		if (value_is_present(m[i]))
			json_object_set_new_nocheck(
				present, metric_info[i].key, json_integer(m[i].v));
		else if (with_details || m[i].state != VALUE_NOT_ASKED)
			json_object_set_new_nocheck(absent, metric_info[i].key,
				json_string(value_state_name(m[i].state)));
	}
	json_object_set_new_nocheck(o, "m", present);
	json_object_set_new_nocheck(o, "absent", absent);
}

/* Members that only some cards have are left out of the others: they'd be in every sample of every machine. */
static void put_instance(const struct gpu_card *c, json_t *o)
{
	if (c->is_mig_parent)
		json_object_set_new_nocheck(o, "is_mig_parent", json_true());
	if (!gpu_is_instance(c))
		return;
	json_object_set_new_nocheck(o, "parent", sample_text(c->parent));
	json_object_set_new_nocheck(o, "gi", json_integer(c->gi - 1));
	json_object_set_new_nocheck(o, "ci", json_integer(c->ci - 1));
	json_object_set_new_nocheck(o, "profile", sample_text(c->profile));
}

static void put_ills(const struct gpu_card *c, json_t *o)
{
	if (c->xid.count > 0)
		json_object_set_new_nocheck(o, "xid",
			json_pack("{s:I, s:I, s:I}", "last", (json_int_t)c->xid.last, "boot_ms",
				(json_int_t)c->xid.boot_ms, "count", (json_int_t)c->xid.count));
	if (c->reset != GPU_RESET_NONE)
		json_object_set_new_nocheck(o, "reset", json_string(gpu_reset_name(c->reset)));
}

static json_t *encode_card(const struct sample *s, uint32_t i, const struct value *base)
{
	const struct gpu_card *c = &s->snap.cards[i];
	json_t *o = json_object();

	json_object_set_new_nocheck(o, "index", json_integer(c->index));
	json_object_set_new_nocheck(o, "uuid", sample_text(c->uuid));
	json_object_set_new_nocheck(o, "name", sample_text(c->name));
	json_object_set_new_nocheck(o, "bus_id", sample_text(c->bus_id));
	json_object_set_new_nocheck(o, "state", json_string(gpu_state_name(c->state)));
	json_object_set_new_nocheck(o, "is_unified", json_boolean(c->is_unified));
	json_object_set_new_nocheck(o, "is_blind", json_boolean(c->is_blind));
	json_object_set_new_nocheck(o, "numa", json_integer(c->numa));
	json_object_set_new_nocheck(o, "nvlink_peers", json_integer((json_int_t)c->nvlink_peers));
	json_object_set_new_nocheck(
		o, "promised_mib", json_integer(s->promised_mib ? s->promised_mib[i] : 0));
	put_instance(c, o);
	put_ills(c, o);
	sample_put_metrics(c->m, metrics_of(s), s->with_details, base, o);
	if (s->with_details)
		json_object_set_new_nocheck(o, "arch", sample_text(c->arch));
	return o;
}

json_t *sample_value(struct value v)
{
	return value_is_present(v) ? json_integer(v.v) : json_string(value_state_name(v.state));
}

static json_t *encode_proc(const struct gpu_proc *p, uint32_t row)
{
	json_t *a = json_array();

	json_array_append_new(a, json_integer(p->card));
	json_array_append_new(a, json_integer(p->kind));
	json_array_append_new(a, json_integer(p->pid));
	json_array_append_new(a, json_integer((json_int_t)p->start_ticks));
	json_array_append_new(a, sample_value(p->used_mib));
	json_array_append_new(a, json_integer(p->uid == (uint32_t)-1 ? -1 : (json_int_t)p->uid));
	json_array_append_new(a, sample_text(p->comm));
	json_array_append_new(a, json_integer(row));
	return a;
}

static json_t *encode_row(const struct ledger_row *r)
{
	json_t *o = json_object();

	json_object_set_new_nocheck(o, "queue", json_string(r->name.queue));
	json_object_set_new_nocheck(o, "job", json_integer((json_int_t)r->name.job));
	json_object_set_new_nocheck(o, "attempt", json_integer(r->name.attempt));
	json_object_set_new_nocheck(o, "card", json_integer(r->card));
	json_object_set_new_nocheck(o, "declared_mib", json_integer(r->declared_mib));
	json_object_set_new_nocheck(o, "budget_mib", json_integer(r->budget_mib));
	json_object_set_new_nocheck(o, "held_mib", json_integer(r->held_mib));
	json_object_set_new_nocheck(o, "peak_mib", json_integer(r->peak_mib));
	json_object_set_new_nocheck(o, "is_sampled", json_boolean(r->is_sampled));
	json_object_set_new_nocheck(o, "has_ended", json_boolean(r->has_ended));
	return o;
}

static json_t *encode_node(const struct node_figures *n)
{
	json_t *o = json_object();

	json_object_set_new_nocheck(o, "host_name", sample_text(n->host_name));
	json_object_set_new_nocheck(o, "cores", json_integer(n->cores));
	json_object_set_new_nocheck(o, "mem_total_mib", json_integer(n->mem_total_mib));
	json_object_set_new_nocheck(o, "mem_available_mib", json_integer(n->mem_available_mib));
	json_object_set_new_nocheck(o, "oom_kills", json_integer(n->oom_kills));
	return o;
}

json_t *sample_encode(const struct sample *s)
{
	return sample_encode_on(s, NULL);
}

json_t *sample_encode_on(const struct sample *s, const struct sample_base *b)
{
	json_t *o = json_object(), *cards = json_array(), *procs = json_array(),
	       *rows = json_array();

	for (uint32_t i = 0; i < s->snap.n_cards; i++) {
		json_t *card = encode_card(s, i, b ? b->cards[i].m : NULL);

		if (s->lane_mib && s->lane_mib[i] > 0)
			json_object_set_new_nocheck(card, "lane_mib", json_integer(s->lane_mib[i]));
		json_array_append_new(cards, card);
	}
	for (uint32_t i = 0; i < s->snap.n_procs; i++)
		json_array_append_new(
			procs, encode_proc(&s->snap.procs[i], s->proc_row ? s->proc_row[i] : 0));
	for (uint32_t i = 0; i < s->n_rows; i++)
		json_array_append_new(rows, encode_row(&s->rows[i]));
	json_object_set_new_nocheck(o, "op", json_string("sample"));
	json_object_set_new_nocheck(o, "seq", json_integer((json_int_t)s->snap.seq));
	json_object_set_new_nocheck(o, "begun_boot_ms", json_integer(s->snap.begun_ms));
	json_object_set_new_nocheck(o, "ended_boot_ms", json_integer(s->snap.ended_ms));
	json_object_set_new_nocheck(o, "wall_ms", json_integer(s->wall_ms));
	json_object_set_new_nocheck(o, "source", sample_text(s->snap.source));
	json_object_set_new_nocheck(o, "error", sample_text(s->snap.error));
	if (b)
		json_object_set_new_nocheck(o, "base", json_integer((json_int_t)b->key));
	json_object_set_new_nocheck(o, "cards", cards);
	json_object_set_new_nocheck(o, "procs", procs);
	json_object_set_new_nocheck(o, "rows", rows);
	if (s->snap.n_left_out > 0)
		json_object_set_new_nocheck(o, "left_out", json_integer(s->snap.n_left_out));
	if (s->has_node)
		json_object_set_new_nocheck(o, "node", encode_node(&s->node));
	if (s->with_details)
		sample_put_details(s, o);
	return o;
}

/* A text of at most size - 1 bytes, cut between characters: cleaning may have made it longer than it was. */
int sample_take_text(const json_t *v, char *ret, size_t size, const char *key, struct err *e)
{
	size_t n;

	if (!json_is_string(v))
		return err_set(e, -EINVAL, "the sample's \"%s\" is missing or not a text", key);
	n = json_string_length(v);
	if (n >= size)
		n = utf8_valid_len(json_string_value(v), size - 1);
	memcpy(ret, json_string_value(v), n);
	ret[n] = '\0';
	return 0;
}

static int member_text(const json_t *o, const char *key, char *ret, size_t size, struct err *e)
{
	return sample_take_text(json_object_get(o, key), ret, size, key, e);
}

/* No figure is larger; one that is would overflow in the first sum that it's part of. Bits aren't figures. */
#define FIGURE_MAX (INT64_C(1) << 53)

static struct value figure_of(int64_t v)
{
	return v >= -FIGURE_MAX && v <= FIGURE_MAX ? value_of(v) : value_absent(VALUE_FAILED);
}

/*
 * The figure of that name; METRIC_N: unknown here. They mostly come in the table's order, so the search begins behind the
 * last one.
 */
static size_t find_metric(const char *key, size_t *at)
{
	for (size_t n = 0; n < METRIC_N; n++) {
		size_t i = (*at + n) % METRIC_N;

		if (!strcmp(metric_info[i].key, key)) {
			*at = i + 1;
			return i;
		}
	}
	return METRIC_N;
}

static struct value metric_value(size_t i, int64_t v)
{
	return strcmp(metric_info[i].unit, "bits") == 0 ? value_of(v) : figure_of(v);
}

void sample_take_metrics(const json_t *o, struct value *m)
{
	const char *key;
	size_t at = 0, i;
	json_t *v;

	json_object_foreach(json_object_get(o, "absent"), key,
		v) if (json_is_string(v) && (i = find_metric(key, &at)) < METRIC_N) m[i] =
		sample_take_value(v);
	at = 0;
	json_object_foreach(json_object_get(o, "m"), key,
		v) if (json_is_integer(v) && (i = find_metric(key, &at)) < METRIC_N) m[i] =
		metric_value(i, json_integer_value(v));
}

/* An agent of before has only whole cards. */
static int decode_instance(const json_t *o, struct gpu_card *c, struct err *e)
{
	int64_t gi, ci;

	c->is_mig_parent = json_is_true(json_object_get(o, "is_mig_parent"));
	if (!json_object_get(o, "parent"))
		return 0;
	if (member_text(o, "parent", c->parent, sizeof(c->parent), e) ||
		member_text(o, "profile", c->profile, sizeof(c->profile), e) ||
		wire_int(o, "gi", -1, INT32_MAX - 1, &gi, e) ||
		wire_int(o, "ci", -1, INT32_MAX - 1, &ci, e))
		return -EINVAL;
	c->gi = (int32_t)gi + 1;
	c->ci = (int32_t)ci + 1;
	return 0;
}

static int decode_ills(const json_t *o, struct gpu_card *c, struct err *e)
{
	const json_t *xid = json_object_get(o, "xid"), *reset = json_object_get(o, "reset");

	/* A word of a later agent: something is to be done about the card, whatever it is. */
	if (json_is_string(reset) && gpu_reset_from_name(json_string_value(reset), &c->reset))
		c->reset = GPU_RESET_PENDING;
	if (!json_is_object(xid))
		return 0;
	if (wire_int(xid, "last", -1, INT32_MAX, &c->xid.last, e) ||
		wire_int(xid, "boot_ms", 0, INT64_MAX, &c->xid.boot_ms, e) ||
		wire_int(xid, "count", 1, INT64_MAX, &c->xid.count, e))
		return -EINVAL;
	return 0;
}

static int decode_card(const json_t *o, struct gpu_card *c, int64_t *ret_promised, struct err *e)
{
	char state[32];
	int64_t index, numa, peers;

	if (wire_int(o, "index", 0, INT32_MAX, &index, e) ||
		wire_int(o, "numa", -1, INT32_MAX, &numa, e) ||
		wire_int(o, "nvlink_peers", INT64_MIN, INT64_MAX, &peers, e) ||
		wire_int(o, "promised_mib", 0, MIB_MAX, ret_promised, e) ||
		wire_str(o, "state", state, sizeof(state), e) ||
		wire_bool(o, "is_unified", &c->is_unified, e) ||
		wire_bool(o, "is_blind", &c->is_blind, e) ||
		member_text(o, "uuid", c->uuid, sizeof(c->uuid), e) ||
		member_text(o, "name", c->name, sizeof(c->name), e) ||
		member_text(o, "bus_id", c->bus_id, sizeof(c->bus_id), e))
		return -EINVAL;
	c->index = (int32_t)index;
	c->numa = (int32_t)numa;
	c->nvlink_peers = (uint64_t)peers;
	if (gpu_state_from_name(state, &c->state))
		c->state = GPU_FAILED;
	sample_take_metrics(o, c->m);
	if (decode_instance(o, c, e) || decode_ills(o, c, e))
		return -EINVAL;
	if (json_is_string(json_object_get(o, "arch")))
		return member_text(o, "arch", c->arch, sizeof(c->arch), e);
	return 0;
}

/* Only where a lane holds something; an agent of before has no lanes. */
static int decode_lane_mib(const json_t *o, struct sample *s, uint32_t i, struct err *e)
{
	if (!json_object_get(o, "lane_mib"))
		return 0;
	if (!s->lane_mib)
		s->lane_mib = xcalloc(s->snap.n_cards, sizeof(*s->lane_mib));
	return wire_int(o, "lane_mib", 0, MIB_MAX, &s->lane_mib[i], e);
}

static int array_int(const json_t *a, size_t i, int64_t min, int64_t max, int64_t *ret)
{
	const json_t *v = json_array_get(a, i);

	if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max)
		return -EINVAL;
	*ret = json_integer_value(v);
	return 0;
}

struct value sample_take_value(const json_t *v)
{
	enum value_state state = VALUE_FAILED;

	if (json_is_integer(v))
		return figure_of(json_integer_value(v));
	if (json_is_string(v))
		value_state_from_name(json_string_value(v), &state);
	return value_absent(state == VALUE_PRESENT ? VALUE_FAILED : state);
}

static int decode_proc(const json_t *a, const struct sample *s, struct gpu_proc *p,
	uint32_t *ret_row, struct err *e)
{
	int64_t card, kind, pid, start, uid, row;

	if (array_int(a, 0, 0, (int64_t)s->snap.n_cards - 1, &card) ||
		array_int(a, 1, 0, UINT32_MAX, &kind) || array_int(a, 2, 0, INT32_MAX, &pid) ||
		array_int(a, 3, INT64_MIN, INT64_MAX, &start) ||
		array_int(a, 5, -1, UINT32_MAX, &uid) || array_int(a, 7, 0, s->n_rows, &row))
		return err_set(e, -EINVAL,
			"the sample has a process row with a figure missing or out of range");
	if (sample_take_text(json_array_get(a, 6), p->comm, sizeof(p->comm), "comm", e))
		return -EINVAL;
	p->card = (uint32_t)card;
	p->kind = (uint32_t)kind;
	p->pid = (int32_t)pid;
	p->start_ticks = (uint64_t)start;
	p->uid = uid < 0 ? (uint32_t)-1 : (uint32_t)uid;
	p->used_mib = sample_take_value(json_array_get(a, 4));
	if (value_is_present(p->used_mib) && (p->used_mib.v < 0 || p->used_mib.v > MIB_MAX))
		p->used_mib = value_absent(VALUE_FAILED);
	*ret_row = (uint32_t)row;
	return 0;
}

static int decode_row(const json_t *o, uint32_t n_cards, struct ledger_row *r, struct err *e)
{
	int64_t job, attempt, card;

	if (wire_str(o, "queue", r->name.queue, sizeof(r->name.queue), e) ||
		wire_int(o, "job", 1, INT64_MAX, &job, e) ||
		wire_int(o, "attempt", 1, UINT32_MAX, &attempt, e) ||
		wire_int(o, "card", 0, (int64_t)n_cards - 1, &card, e) ||
		wire_int(o, "declared_mib", -1, MIB_MAX, &r->declared_mib, e) ||
		wire_int(o, "budget_mib", 0, MIB_MAX, &r->budget_mib, e) ||
		wire_int(o, "held_mib", 0, MIB_MAX, &r->held_mib, e) ||
		wire_int(o, "peak_mib", 0, MIB_MAX, &r->peak_mib, e) ||
		wire_bool(o, "is_sampled", &r->is_sampled, e) ||
		wire_bool(o, "has_ended", &r->has_ended, e))
		return -EINVAL;
	r->name.job = (uint64_t)job;
	r->name.attempt = (uint32_t)attempt;
	r->card = (uint32_t)card;
	return 0;
}

static int decode_node(const json_t *o, struct sample *s, struct err *e)
{
	struct node_figures *n = &s->node;
	int64_t cores;

	if (!json_is_object(o))
		return 0;
	if (member_text(o, "host_name", n->host_name, sizeof(n->host_name), e) ||
		wire_int(o, "cores", 0, INT32_MAX, &cores, e) ||
		wire_int(o, "mem_total_mib", -1, MIB_MAX, &n->mem_total_mib, e) ||
		wire_int(o, "mem_available_mib", -1, MIB_MAX, &n->mem_available_mib, e) ||
		wire_int(o, "oom_kills", -1, INT64_MAX, &n->oom_kills, e))
		return -EINVAL;
	n->cores = (int32_t)cores;
	s->has_node = true;
	return 0;
}

static int decode_head(const json_t *msg, struct sample *s, struct err *e)
{
	const json_t *left_out = json_object_get(msg, "left_out");
	int64_t seq;

	if (wire_int(msg, "seq", 0, INT64_MAX, &seq, e) ||
		wire_int(msg, "begun_boot_ms", 0, INT64_MAX, &s->snap.begun_ms, e) ||
		wire_int(msg, "ended_boot_ms", 0, INT64_MAX, &s->snap.ended_ms, e) ||
		wire_int(msg, "wall_ms", INT64_MIN, INT64_MAX, &s->wall_ms, e) ||
		member_text(msg, "source", s->snap.source, sizeof(s->snap.source), e) ||
		member_text(msg, "error", s->snap.error, sizeof(s->snap.error), e))
		return -EINVAL;
	s->snap.seq = (uint64_t)seq;
	if (json_is_integer(left_out) && json_integer_value(left_out) > 0)
		s->snap.n_left_out = json_integer_value(left_out) > UINT32_MAX
					     ? UINT32_MAX
					     : (uint32_t)json_integer_value(left_out);
	return decode_node(json_object_get(msg, "node"), s, e);
}

/* A list of at most `max` entries, or NULL with a sentence. */
static const json_t *member_array(
	const json_t *msg, const char *key, size_t max, uint32_t *ret_n, struct err *e)
{
	const json_t *a = json_object_get(msg, key);

	if (!json_is_array(a) || json_array_size(a) > max) {
		err_set(e, -EINVAL,
			"the sample's \"%s\" is missing, no list, or has more than %zu entries",
			key, max);
		return NULL;
	}
	*ret_n = (uint32_t)json_array_size(a);
	return a;
}

/* The figures that the sample builds on go to its cards first. */
static int start_on(
	const json_t *msg, const struct sample_base *b, struct gpu_snapshot *snap, struct err *e)
{
	const json_t *key = json_object_get(msg, "base");

	if (!key)
		return 0;
	if (!b || !b->key || json_integer_value(key) != (json_int_t)b->key ||
		b->n_cards != snap->n_cards)
		return err_set(
			e, -EINVAL, "the sample builds on figures that haven't come before it");
	for (uint32_t i = 0; i < snap->n_cards; i++)
		memcpy(snap->cards[i].m, b->cards[i].m, sizeof(b->cards[i].m));
	return 0;
}

static int decode_all(
	const json_t *msg, const struct sample_base *b, struct sample *s, struct err *e)
{
	const json_t *cards, *procs, *rows;
	uint32_t n_cards = 0, n_procs = 0, n_rows = 0;
	int r = decode_head(msg, s, e);

	if (r)
		return r;
	if (!(cards = member_array(msg, "cards", GPU_MAX, &n_cards, e)) ||
		!(procs = member_array(msg, "procs", GPU_PROC_MAX, &n_procs, e)) ||
		!(rows = member_array(msg, "rows", SAMPLE_ROWS_MAX, &n_rows, e)))
		return -EINVAL;
	s->snap.cards = xcalloc(n_cards, sizeof(*s->snap.cards));
	s->promised_mib = xcalloc(n_cards, sizeof(*s->promised_mib));
	s->snap.procs = xcalloc(n_procs, sizeof(*s->snap.procs));
	s->proc_row = xcalloc(n_procs, sizeof(*s->proc_row));
	s->rows = xcalloc(n_rows, sizeof(*s->rows));
	s->snap.n_cards = n_cards;
	s->snap.n_procs = n_procs;
	s->n_rows = n_rows;
	r = start_on(msg, b, &s->snap, e);
	for (uint32_t i = 0; !r && i < n_cards; i++) {
		const json_t *card = json_array_get(cards, i);

		r = decode_card(card, &s->snap.cards[i], &s->promised_mib[i], e);
		if (!r)
			r = decode_lane_mib(card, s, i, e);
	}
	for (uint32_t i = 0; !r && i < n_rows; i++)
		r = decode_row(json_array_get(rows, i), n_cards, &s->rows[i], e);
	for (uint32_t i = 0; !r && i < n_procs; i++)
		r = decode_proc(json_array_get(procs, i), s, &s->snap.procs[i], &s->proc_row[i], e);
	return r ? r : sample_take_details(msg, procs, s, e);
}

int sample_decode(const json_t *msg, struct sample *ret, struct err *e)
{
	return sample_decode_on(msg, NULL, ret, e);
}

int sample_decode_on(
	const json_t *msg, const struct sample_base *b, struct sample *ret, struct err *e)
{
	struct sample s = {0};
	int r = decode_all(msg, b, &s, e);

	if (r) {
		sample_done(&s);
		return r;
	}
	*ret = s;
	return 0;
}
