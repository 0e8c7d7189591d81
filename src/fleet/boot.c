/* The boot line and the reader of its answers. Runs nothing; whoever owns the channel sends and receives. */
#include "fleet/boot.h"

#include "base/parse.h"
#include "base/text.h"

#include <string.h>

/*
 * Known processor, usual place: no process is started before the agent. HAVE tells "there, but broken" from "never got
 * here". DIR, HASH, MARK, NONCE and TABLE are put in.
 */
static const char fast_part[] =
	"a=\"DIR/agent-HASH\"; "
	"[ -O \"$a\" ] && { echo; echo \"MARK HAVE\"; exec \"$a\" attach MARK HASH; }; ";

static const char careful_part[] =
	/* An rc file may have emptied PATH. A dead connection must not kill the shell before it has cleaned up. */
	"PATH=\"${PATH:-/usr/bin}:/usr/bin:/bin\"; trap \"\" PIPE; u=$(id -u); say() { echo; echo \"MARK $*\"; }; "
	/* m: the processor, h: SHA-256 of the agent for it, n: its size. */
	"case $(uname -m) in TABLE *) say OTHER $(uname -sm); exit 0;; esac; "
	/* own DIR: a real directory (no link), ours, and nobody else may write to it. */
	"own() { set -- $(ls -ldn \"$1\" 2>/dev/null); case \"$1 $3\" in drwx?-?"
	"?-*\" $u\") ;; *) return 1;; esac; }; "
	/* is FILE: it runs here and is what its name says. An empty file would run as an empty script: hence the words. */
	"is() { [ -s \"$1\" ] && [ \"$(\"$1\" id 2>/dev/null </dev/null)\" = $h ]; }; "
	/* The places, best first: lives longest, seen by fewest. */
	"set -- PLACES; "
	"for d do own \"$d\" && is \"$d/agent-$h\" && exec \"$d/agent-$h\" attach MARK; done; w=; "
	"for d do [ -d \"${d%/*}\" ] || mkdir -p \"${d%/*}\" 2>/dev/null; mkdir -m 700 \"$d\" 2>/dev/null; "
	"own \"$d\" || { w=\"$w $d:private\"; continue; }; "
	/* A dummy as large as the agent that answers like it: is there room, and may one run things here? */
	"t=$d/.new-NONCE; (trap \"\" XFSZ; echo \"echo $h; exit\"; head -c $n /dev/zero) 2>/dev/null >\"$t\" && "
	"[ $(wc -c <\"$t\") -gt $n ] && chmod 700 \"$t\" || { rm -f \"$t\"; w=\"$w $d:write\"; continue; }; "
	"is \"$t\" || { rm -f \"$t\"; w=\"$w $d:exec\"; continue; }; "
	"say NEED $m $n; head -c $n >\"$t\"; "
	"if [ $(wc -c <\"$t\") -eq $n ] && is \"$t\" && mv -f \"$t\" \"$d/agent-$h\"; then exec \"$d/agent-$h\" attach MARK; fi; "
	"rm -f \"$t\"; say FAIL $m does not run from $d; exit 1; done; say FAIL no place:$w";

/* Below /dev/null even root can make nothing: what stands for a place that this machine doesn't have. */
static const char usual_dir[] = "${XDG_CACHE_HOME:-${HOME:-/dev/null}/.cache}/gpustow";
static const char usual_places[] =
	"\"${XDG_CACHE_HOME:-${HOME:-/dev/null}/.cache}/gpustow\" /var/tmp/gpustow-$u "
	"\"${XDG_RUNTIME_DIR:-/dev/null}/gpustow\" /tmp/gpustow-$u /dev/shm/gpustow-$u";

struct word {
	const char *name;
	const char *value;
};

/* `text` with every capital word of the list replaced. */
static void put_text(struct buf *out, const char *text, const struct word *words)
{
	while (*text) {
		const struct word *w = words;
		size_t n = 1;

		while (w->name && strncmp(text, w->name, strlen(w->name)) != 0)
			w++;
		if (w->name) {
			buf_puts(out, w->value);
			text += strlen(w->name);
		} else {
			/* A word begins with a capital. */
			while (text[n] && (text[n] < 'A' || text[n] > 'Z'))
				n++;
			buf_put(out, text, n);
			text += n;
		}
	}
}

static void put_table(struct buf *out, const struct boot_ask *a)
{
	for (size_t i = 0; i < a->n_agents; i++)
		buf_printf(out, "%s%s) m=%s h=%s n=%zu;;", i ? " " : "", a->agents[i].cpu,
			a->agents[i].cpu, a->agents[i].hash, a->agents[i].n);
}

static const struct boot_agent *find_agent(const struct boot_ask *a)
{
	for (size_t i = 0; a->cpu && i < a->n_agents; i++)
		if (!strcmp(a->agents[i].cpu, a->cpu))
			return &a->agents[i];
	return NULL;
}

/* A directory that stands in double quotes as itself in every shell. */
static int check_dir(const char *dir, struct err *e)
{
	static const char plain[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/_-.+,=@:";

	if (dir[0] == '/' && dir[1] && strspn(dir, plain) == strlen(dir) && strlen(dir) < 512 &&
		dir[strlen(dir) - 1] != '/')
		return 0;
	return err_set(e, -EINVAL,
		"agent_dir must be an absolute path of letters, digits and /_-.+,=@: that doesn't end with a slash, "
		"but it is \"%.200s\"",
		dir);
}

/* One line that means the same to every login shell that was tried. */
static int wrap(const struct buf *body, struct buf *out, struct err *e)
{
	if (strpbrk(buf_str(body), "'\\!\n\r"))
		return err_set(
			e, -EINVAL, "a command for a node may not hold ', \\, ! or a newline");
	buf_printf(out, "exec /bin/sh -c '%s'", buf_str(body));
	return 0;
}

int boot_line(const struct boot_ask *a, struct buf *out, struct err *e)
{
	struct buf table = {0}, places = {0}, body = {0};
	const struct boot_agent *known = find_agent(a);
	char mark[8 + BOOT_NONCE_LEN] = "gpustow:";
	int r = a->agent_dir ? check_dir(a->agent_dir, e) : 0;

	if (r)
		return r;
	memcpy(mark + 8, a->nonce, BOOT_NONCE_LEN - 1);
	put_table(&table, a);
	if (a->agent_dir)
		buf_printf(&places, "\"%s\" ", a->agent_dir);
	buf_puts(&places, usual_places);
	const struct word words[] = {
		{"TABLE", buf_str(&table)},
		{"PLACES", buf_str(&places)},
		{"DIR", known && a->agent_dir ? a->agent_dir : usual_dir},
		{"HASH", known ? known->hash : ""},
		{"MARK", mark},
		{"NONCE", a->nonce},
		{NULL, NULL},
	};
	if (known)
		put_text(&body, fast_part, words);
	put_text(&body, careful_part, words);
	r = wrap(&body, out, e);
	buf_done(&table);
	buf_done(&places);
	buf_done(&body);
	return r;
}

int boot_text_line(const char *nonce, const char *command, struct buf *out, struct err *e)
{
	struct buf body = {0};
	int r;

	buf_printf(&body,
		"PATH=\"${PATH:-/usr/bin}:/usr/bin:/bin\"; echo; echo \"gpustow:%s OUT\"; { %s; } </dev/null; r=$?; echo; "
		"echo \"gpustow:%s END $r\"",
		nonce, command, nonce);
	r = wrap(&body, out, e);
	buf_done(&body);
	return r;
}

/* ---- reading ---- */

void boot_reader_init(struct boot_reader *r, const char *nonce)
{
	*r = (struct boot_reader){.mark = "gpustow:"};
	memcpy(r->mark + 8, nonce, BOOT_NONCE_LEN - 1);
}

void boot_reader_done(struct boot_reader *r)
{
	buf_done(&r->line);
}

static void keep_last(struct boot_reader *r, const char *bytes, size_t n)
{
	size_t size = sizeof(r->last);

	r->n_noise += n;
	if (n > size) {
		bytes += n - size;
		n = size;
	}
	if (r->n_last + n > size) {
		size_t drop = r->n_last + n - size;

		memmove(r->last, r->last + drop, r->n_last - drop);
		r->n_last -= drop;
	}
	memcpy(r->last + r->n_last, bytes, n);
	r->n_last += n;
}

static bool take_number(const char *text, int64_t max, int64_t *ret)
{
	return *text >= '0' && *text <= '9' && !parse_int64(text, ret) && *ret >= 0 && *ret <= max;
}

static bool take_cpu(const char *text, size_t n, struct boot_event *ev)
{
	if (!n || n >= sizeof(ev->cpu))
		return false;
	memcpy(ev->cpu, text, n);
	ev->cpu[n] = '\0';
	return true;
}

/* "x86_64 57344": whether we carry such a one is for whoever asked. */
static bool take_need(struct boot_event *ev)
{
	size_t n = strcspn(ev->text, " ");

	return ev->text[n] == ' ' && take_cpu(ev->text, n, ev) &&
	       take_number(ev->text + n + 1, INT32_MAX, &ev->number) && ev->number > 0;
}

/* "build=100 cpu=x86_64", and perhaps more from a later agent. */
static bool take_ready(struct boot_event *ev)
{
	size_t n = strcspn(ev->text, " ");
	char number[24] = "";
	const char *cpu = ev->text + n;

	if (strncmp(ev->text, "build=", 6) != 0 || n - 6 >= sizeof(number) ||
		strncmp(cpu, " cpu=", 5) != 0)
		return false;
	memcpy(number, ev->text + 6, n - 6);
	return take_number(number, INT64_MAX, &ev->number) &&
	       take_cpu(cpu + 5, strcspn(cpu + 5, " "), ev);
}

static void take_word(const char *said, struct boot_event *ev)
{
	static const struct {
		const char *name;
		enum boot_word word;
	} words[] = {{"HAVE", BOOT_HAVE}, {"NEED", BOOT_NEED}, {"READY", BOOT_READY},
		{"OTHER", BOOT_OTHER}, {"FAIL", BOOT_FAIL}, {"OUT", BOOT_OUT}, {"END", BOOT_END}};
	size_t n = strcspn(said, " ");
	struct buf clean = {0};
	bool is_good = true;

	*ev = (struct boot_event){.word = BOOT_NONSENSE};
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strlen(words[i].name) == n && !strncmp(said, words[i].name, n))
			ev->word = words[i].word;
	said += said[n] ? n + 1 : n;
	text_put_clean(&clean, said, strlen(said));
	n = clean.len < sizeof(ev->text) ? clean.len
					 : utf8_valid_len(clean.data, sizeof(ev->text) - 1);
	memcpy(ev->text, buf_str(&clean), n);
	buf_done(&clean);
	if (ev->word == BOOT_NEED)
		is_good = take_need(ev);
	else if (ev->word == BOOT_READY)
		is_good = take_ready(ev);
	else if (ev->word == BOOT_END)
		is_good = take_number(ev->text, 255, &ev->number);
	if (!is_good)
		ev->word = BOOT_NONSENSE;
}

/* A whole line without its newline: ours, or noise. */
static void take_line(struct boot_reader *r, struct boot_event *ev)
{
	size_t n = strlen(r->mark);

	if (r->line.len && r->line.data[r->line.len - 1] == '\r')
		r->line.data[--r->line.len] = '\0';
	if (!r->is_skipping && r->line.len > n && !memcmp(r->line.data, r->mark, n) &&
		r->line.data[n] == ' ' && !memchr(r->line.data, '\0', r->line.len)) {
		take_word(r->line.data + n + 1, ev);
		r->n_noise = 0;
	} else if (r->line.len) {
		keep_last(r, r->line.data, r->line.len);
		keep_last(r, "\n", 1);
	}
	buf_clear(&r->line);
	r->is_skipping = false;
}

size_t boot_reader_put(struct boot_reader *r, const char *bytes, size_t n, struct boot_event *ret)
{
	size_t at = 0;

	ret->word = BOOT_MORE;
	while (at < n && ret->word == BOOT_MORE) {
		const char *end = memchr(bytes + at, '\n', n - at);
		size_t len = end ? (size_t)(end - bytes) - at : n - at;

		buf_put(&r->line, bytes + at, len);
		at += len;
		if (r->line.len > BOOT_LINE_MAX) {
			keep_last(r, r->line.data, r->line.len);
			buf_clear(&r->line);
			r->is_skipping = true;
		}
		if (end) {
			take_line(r, ret);
			at++;
		}
		if (r->n_noise > BOOT_NOISE_MAX && ret->word == BOOT_MORE)
			ret->word = BOOT_NONSENSE;
	}
	return at;
}

void boot_reader_noise(const struct boot_reader *r, struct buf *out)
{
	struct buf all = {0};
	size_t start = out->len;

	buf_put(&all, r->last, r->n_last);
	buf_put(&all, buf_str(&r->line),
		r->line.len < sizeof(r->last) ? r->line.len : sizeof(r->last));
	for (size_t i = 0; i < all.len; i++) {
		bool is_blank = (unsigned char)all.data[i] <= ' ';

		/* One blank stands for any run of them. */
		if (!is_blank)
			buf_putc(out, all.data[i]);
		else if (out->len > start && out->data[out->len - 1] != ' ')
			buf_putc(out, ' ');
	}
	while (out->len > start && out->data[out->len - 1] == ' ')
		out->data[--out->len] = '\0';
	buf_clear(&all);
	text_put_clean(&all, buf_str(out) + start, out->len - start);
	out->len = start;
	buf_put(out, all.data ? all.data : "", all.len);
	buf_done(&all);
}
