/*
 * A claim's spec as JSON, in both directions. It comes from a controller or from disk: every size is bounded, every
 * complaint names its key. Unknown keys are passed over, so a later build may add some. Pure.
 */
#include "agent/claim.h"
#include "base/alloc.h"
#include "base/cleanup.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES_MAX 4095
#define MIB_MAX ((int64_t)1 << 40)
#define TIME_MS_MAX ((int64_t)1 << 53)

void claim_spec_done(struct claim_spec *s)
{
	for (size_t i = 0; s->argv && s->argv[i]; i++)
		free(s->argv[i]);
	for (size_t i = 0; s->env && s->env[i]; i++)
		free(s->env[i]);
	free(s->argv);
	free(s->env);
	free(s->cwd);
	free(s->output);
	free(s->dir);
	free(s->error_output);
	free(s->body);
	*s = (struct claim_spec){0};
}

static json_t *encode_strings(char *const *list)
{
	json_t *a = json_array();
	for (size_t i = 0; list && list[i]; i++)
		json_array_append_new(a, json_string(list[i]));
	return a;
}

static json_t *encode_cards(const struct claim_spec *s)
{
	json_t *a = json_array();
	for (uint32_t i = 0; i < s->n_cards && i < CLAIM_CARDS_MAX; i++)
		json_array_append_new(
			a, json_pack("{s:s, s:I}", "uuid", s->cards[i].uuid, "declared_mib",
				   (json_int_t)s->cards[i].declared_mib));
	return a;
}

/* What only a job of the queue has; an older agent that reads it passes it over and runs the job all the same. */
static void encode_queue_job(const struct claim_spec *s, json_t *o)
{
	json_object_set_new(o, "dir", json_string(s->dir));
	json_object_set_new(o, "error_output", json_string(s->error_output));
	json_object_set_new(o, "login", json_boolean(s->login));
	json_object_set_new(o, "lead_signal", json_integer(s->lead_signal));
	json_object_set_new(o, "lead_ms", json_integer((json_int_t)s->lead_ms));
	json_object_set_new(o, "oom_kills", json_integer((json_int_t)s->oom_kills));
}

json_t *claim_policy_encode(const struct claim_policy *p)
{
	return json_pack("{s:I, s:I, s:f, s:b, s:b, s:I}", "margin_mib", (json_int_t)p->margin_mib,
		"idle_threshold_mib", (json_int_t)p->idle_threshold_mib, "spike_buffer",
		p->spike_buffer, "high_water", p->high_water, "exclusive", p->exclusive,
		"max_jobs_per_card", (json_int_t)p->max_jobs_per_card);
}

bool claim_policy_equal(const struct claim_policy *a, const struct claim_policy *b)
{
	double apart = a->spike_buffer - b->spike_buffer;

	return a->margin_mib == b->margin_mib && a->idle_threshold_mib == b->idle_threshold_mib &&
	       apart < 1e-9 && apart > -1e-9 && a->high_water == b->high_water &&
	       a->exclusive == b->exclusive && a->max_jobs_per_card == b->max_jobs_per_card;
}

json_t *claim_spec_encode(const struct claim_spec *s)
{
	json_t *o = json_pack("{s:i, s:s, s:I, s:I, s:s, s:s, s:o, s:o,"
			      " s:o, s:o, s:s, s:s, s:I, s:I, s:I}",
		"version", 1, "queue", s->name.queue, "job", (json_int_t)s->name.job, "attempt",
		(json_int_t)s->name.attempt, "token", s->token, "boot_id", s->boot_id, "cards",
		encode_cards(s), "policy", claim_policy_encode(&s->policy), "argv",
		encode_strings(s->argv), "env", encode_strings(s->env), "cwd", s->cwd, "output",
		s->output, "timeout_ms", (json_int_t)s->timeout_ms, "grace_ms",
		(json_int_t)s->grace_ms, "umask", (json_int_t)s->umask_bits);
	if (o && s->dir)
		encode_queue_job(s, o);
	return o;
}

static int get_int(
	const json_t *o, const char *key, int64_t min, int64_t max, int64_t *ret, struct err *e)
{
	const json_t *v = json_object_get(o, key);
	if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max)
		return err_set(e, -EINVAL, "\"%s\" must be a whole number from %lld to %lld", key,
			(long long)min, (long long)max);
	*ret = json_integer_value(v);
	return 0;
}

static int get_bool(const json_t *o, const char *key, bool *ret, struct err *e)
{
	const json_t *v = json_object_get(o, key);
	if (!json_is_boolean(v))
		return err_set(e, -EINVAL, "\"%s\" must be true or false", key);
	*ret = json_is_true(v);
	return 0;
}

/* A string without NUL bytes of at most max bytes; borrowed. */
static int check_string(
	const json_t *v, const char *key, size_t max, const char **ret, struct err *e)
{
	if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
		return err_set(e, -EINVAL, "\"%s\" must be text without NUL bytes", key);
	if (json_string_length(v) > max)
		return err_set(e, -E2BIG, "\"%s\" is longer than %zu bytes", key, max);
	*ret = json_string_value(v);
	return 0;
}

static int get_id(const json_t *o, const char *key, char ret[ID_LEN], struct err *e)
{
	const char *s = json_string_value(json_object_get(o, key));
	if (!s || !id_is_valid(s))
		return err_set(e, -EINVAL, "\"%s\" must be 32 lower-case hex digits", key);
	memcpy(ret, s, ID_LEN);
	return 0;
}

static int get_path(const json_t *o, const char *key, char **ret, struct err *e)
{
	const char *s = NULL;
	int r = check_string(json_object_get(o, key), key, PATH_BYTES_MAX, &s, e);
	if (r)
		return r;
	if (s[0] != '/')
		return err_set(e, -EINVAL, "\"%s\" must be an absolute path", key);
	*ret = xstrdup(s);
	return 0;
}

/* Printable ASCII without blanks, quotes and slashes: it is put into messages and file names of others. */
static bool is_plain_word(const char *s)
{
	for (; *s; s++) {
		if (*s <= ' ' || *s > '~' || *s == '"' || *s == '\\')
			return false;
	}
	return true;
}

static int decode_name(const json_t *o, struct claim_spec *s, struct err *e)
{
	int64_t job = 0, attempt = 0;
	int r = get_int(o, "job", 1, INT64_MAX, &job, e);
	if (!r)
		r = get_int(o, "attempt", 1, UINT32_MAX, &attempt, e);
	if (!r)
		r = get_id(o, "token", s->token, e);
	if (!r && json_object_get(o, "queue"))
		r = get_id(o, "queue", s->name.queue, e);
	if (r)
		return r;
	s->name.job = (uint64_t)job;
	s->name.attempt = (uint32_t)attempt;
	const json_t *boot = json_object_get(o, "boot_id");
	if (!boot)
		return 0;
	const char *text = NULL;
	r = check_string(boot, "boot_id", sizeof(s->boot_id) - 1, &text, e);
	if (r)
		return r;
	if (!is_plain_word(text))
		return err_set(e, -EINVAL, "\"boot_id\" must be one word");
	memcpy(s->boot_id, text, strlen(text) + 1);
	return 0;
}

static int decode_card(const json_t *o, struct claim_spec *s, struct err *e)
{
	struct claim_card *card = &s->cards[s->n_cards];
	const char *uuid = NULL;
	int r = check_string(json_object_get(o, "uuid"), "uuid", sizeof(card->uuid) - 1, &uuid, e);
	if (!r && (!*uuid || !is_plain_word(uuid)))
		r = err_set(e, -EINVAL, "\"uuid\" must be one word");
	if (!r)
		r = get_int(o, "declared_mib", -1, MIB_MAX, &card->declared_mib, e);
	if (r)
		return r;
	for (uint32_t i = 0; i < s->n_cards; i++) {
		if (strcmp(s->cards[i].uuid, uuid) == 0)
			return err_set(e, -EINVAL, "\"cards\" names %s twice", uuid);
	}
	memcpy(card->uuid, uuid, strlen(uuid) + 1);
	s->n_cards++;
	return 0;
}

static int decode_cards(const json_t *o, struct claim_spec *s, struct err *e)
{
	const json_t *a = json_object_get(o, "cards");
	if (!a)
		return 0;
	if (!json_is_array(a) || json_array_size(a) > CLAIM_CARDS_MAX)
		return err_set(e, -EINVAL, "\"cards\" must be a list of at most %d cards",
			CLAIM_CARDS_MAX);
	for (size_t i = 0; i < json_array_size(a); i++) {
		int r = decode_card(json_array_get(a, i), s, e);
		if (r < 0)
			return r;
	}
	return 0;
}

int claim_policy_decode(const json_t *d, struct claim_policy *p, struct err *e)
{
	if (!json_is_object(d))
		return err_set(e, -EINVAL, "\"policy\" must be an object");
	int r = get_int(d, "margin_mib", 0, MIB_MAX, &p->margin_mib, e);
	if (!r)
		r = get_int(d, "idle_threshold_mib", 0, MIB_MAX, &p->idle_threshold_mib, e);
	if (!r)
		r = get_bool(d, "high_water", &p->high_water, e);
	if (!r)
		r = get_bool(d, "exclusive", &p->exclusive, e);
	if (!r)
		r = get_int(d, "max_jobs_per_card", 0, INT32_MAX, &p->max_jobs_per_card, e);
	if (r < 0)
		return r;
	const json_t *v = json_object_get(d, "spike_buffer");
	p->spike_buffer = json_number_value(v);
	if (!json_is_number(v) || !(p->spike_buffer >= 0 && p->spike_buffer <= 100))
		return err_set(e, -EINVAL, "\"spike_buffer\" must be a number from 0 to 100");
	return 0;
}

static int decode_strings(
	const json_t *o, const char *key, size_t max_n, char ***ret, struct err *e)
{
	const json_t *a = json_object_get(o, key);
	size_t n = json_array_size(a), total = 0;
	if (!json_is_array(a) || n > max_n)
		return err_set(
			e, -EINVAL, "\"%s\" must be a list of at most %zu strings", key, max_n);
	*ret = xcalloc(n + 1, sizeof(**ret));
	for (size_t i = 0; i < n; i++) {
		const char *s = NULL;
		int r = check_string(json_array_get(a, i), key, CLAIM_STRING_MAX, &s, e);
		if (r)
			return r;
		total += strlen(s);
		if (total > CLAIM_SPEC_MAX)
			return err_set(
				e, -E2BIG, "\"%s\" is longer than %d bytes", key, CLAIM_SPEC_MAX);
		(*ret)[i] = xstrdup(s);
	}
	return 0;
}

static uint32_t name_hash(const char *s, size_t n)
{
	uint32_t h = 2166136261u;
	for (size_t i = 0; i < n; i++)
		h = (h ^ (unsigned char)s[i]) * 16777619u;
	return h;
}

/* Keeps the later value of a variable that is named twice, in the place of the earlier one. */
static int drop_duplicates(char **env, struct err *e)
{
	size_t n = 0, size = 16, kept = 0;
	while (env[n])
		n++;
	while (size < n * 2)
		size *= 2;
	CLEANUP_FREE uint32_t *slots = xcalloc(size, sizeof(*slots)); /* position + 1 */
	for (size_t i = 0; i < n; i++) {
		char *entry = env[i];
		const char *equals = strchr(entry, '=');
		if (!equals || equals == entry) {
			/* What isn't in env[0..kept) any more is freed by nobody else. */
			memmove(env + kept, env + i, (n - i + 1) * sizeof(*env));
			return err_set(e, -EINVAL,
				"\"env\" must hold NAME=VALUE strings, but one is \"%.60s\"",
				entry);
		}
		size_t name_n = (size_t)(equals - entry) + 1;
		size_t at = name_hash(entry, name_n) & (size - 1);
		while (slots[at] && strncmp(env[slots[at] - 1], entry, name_n) != 0)
			at = (at + 1) & (size - 1);
		if (slots[at]) {
			free(env[slots[at] - 1]);
			env[slots[at] - 1] = entry;
		} else {
			env[kept++] = entry;
			slots[at] = (uint32_t)kept;
		}
	}
	env[kept] = NULL;
	return 0;
}

/* Text of any length that a message may have. */
static int get_text(const json_t *o, const char *key, char **ret, struct err *e)
{
	const char *s = NULL;
	int r = check_string(json_object_get(o, key), key, CLAIM_SPEC_MAX, &s, e);
	if (!r)
		*ret = xstrdup(s);
	return r;
}

static int decode_optional_bool(const json_t *o, const char *key, bool *ret, struct err *e)
{
	return json_object_get(o, key) ? get_bool(o, key, ret, e) : 0;
}

static int decode_lead(const json_t *o, struct claim_spec *s, struct err *e)
{
	int64_t signal = 0;
	int r = json_object_get(o, "lead_signal") ? get_int(o, "lead_signal", 0, 64, &signal, e)
						  : 0;
	if (!r && json_object_get(o, "lead_ms"))
		r = get_int(o, "lead_ms", 0, TIME_MS_MAX, &s->lead_ms, e);
	s->lead_signal = (int32_t)signal;
	return r;
}

/* Members of a job of the queue; *s is as it was when it has no "dir". */
static int decode_queue_job(const json_t *o, struct claim_spec *s, struct err *e)
{
	if (!json_object_get(o, "dir"))
		return 0;
	s->oom_kills = -1;
	int r = get_path(o, "dir", &s->dir, e);
	if (!r && json_object_get(o, "error_output"))
		r = get_path(o, "error_output", &s->error_output, e);
	if (!r && json_object_get(o, "body"))
		r = get_text(o, "body", &s->body, e);
	if (!r)
		r = decode_optional_bool(o, "staged", &s->is_staged, e);
	if (!r)
		r = decode_optional_bool(o, "login", &s->login, e);
	if (!r)
		r = decode_lead(o, s, e);
	if (!r && json_object_get(o, "oom_kills"))
		r = get_int(o, "oom_kills", -1, INT64_MAX, &s->oom_kills, e);
	if (!r && s->body && s->is_staged)
		r = err_set(e, -EINVAL, "a job has a \"body\" or is \"staged\", not both");
	return r;
}

static int decode_argv(const json_t *o, struct claim_spec *s, struct err *e)
{
	int r = decode_strings(o, "argv", CLAIM_ARGS_MAX, &s->argv, e);
	if (!r && (!s->argv[0] || s->argv[0][0] != '/'))
		r = err_set(e, -EINVAL, "\"argv\" must begin with an absolute path");
	return r ? r : get_path(o, "output", &s->output, e);
}

static int decode_command(const json_t *o, struct claim_spec *s, struct err *e)
{
	int64_t bits = 0;
	int r = decode_queue_job(o, s, e);
	if (!r && !s->body && !s->is_staged)
		r = decode_argv(o, s, e);
	if (!r)
		r = decode_strings(o, "env", CLAIM_ENV_MAX, &s->env, e);
	if (!r)
		r = drop_duplicates(s->env, e);
	if (!r)
		r = get_path(o, "cwd", &s->cwd, e);
	if (!r)
		r = get_int(o, "timeout_ms", 0, TIME_MS_MAX, &s->timeout_ms, e);
	if (!r)
		r = get_int(o, "grace_ms", 0, TIME_MS_MAX, &s->grace_ms, e);
	if (!r)
		r = get_int(o, "umask", 0, 0777, &bits, e);
	if (!r)
		s->umask_bits = (uint32_t)bits;
	return r;
}

int claim_spec_decode(const json_t *o, struct claim_spec *ret, struct err *e)
{
	struct claim_spec s = {0};
	if (!json_is_object(o))
		return err_set(e, -EINVAL, "a job must be an object");
	int r = decode_name(o, &s, e);
	if (!r)
		r = decode_cards(o, &s, e);
	if (!r)
		r = claim_policy_decode(json_object_get(o, "policy"), &s.policy, e);
	if (!r)
		r = decode_command(o, &s, e);
	if (r < 0) {
		claim_spec_done(&s);
		return r;
	}
	*ret = s;
	return 0;
}
