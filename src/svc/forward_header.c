/* What is sent to the far side, as text and back, and the lines for its shells. Pure. */
#include "svc/forward.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/text.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

void forward_header_done(struct forward_header *h)
{
	for (int i = 0; i < h->argc; i++)
		free(h->argv[i]);
	for (size_t i = 0; i < h->n_files; i++) {
		free(h->files[i].name);
		buf_done(&h->files[i].bytes);
	}
	free(h->argv);
	free(h->files);
	free(h->submitter);
	free(h->home);
	*h = (struct forward_header){0};
}

/* ---- to text ---- */

static json_t *words_json(const struct forward_header *h, struct err *e)
{
	json_t *a = json_array();

	for (int i = 0; i < h->argc; i++) {
		const char *word = h->argv[i];
		size_t n = strlen(word);

		if (utf8_valid_len(word, n) != n) {
			CLEANUP(buf_done) struct buf q = {0};

			text_put_clean(&q, word, n < 100 ? n : 100);
			err_fill(e, "the argument '%s' isn't valid UTF-8 and can't be sent on",
				buf_str(&q));
			json_decref(a);
			return NULL;
		}
		json_array_append_new(a, json_string(word));
	}
	return a;
}

static json_t *files_json(const struct forward_header *h)
{
	json_t *a = json_array();

	for (size_t i = 0; i < h->n_files; i++)
		json_array_append_new(a, json_pack("{s:s, s:I}", "name", h->files[i].name, "bytes",
						 (json_int_t)h->files[i].bytes.len));
	return a;
}

int forward_header_put(const struct forward_header *h, struct buf *ret, struct err *e)
{
	CLEANUP_FREE char *text = NULL;
	json_t *o, *words = words_json(h, e);

	if (!words)
		return -EILSEQ;
	o = json_pack("{s:i, s:o, s:s?, s:s?, s:i, s:b, s:b, s:o}", "v", 1, "argv", words,
		"submitter", h->submitter, "home", h->home, "columns", h->columns, "no_color",
		h->no_color, "ensure", h->ensure, "files", files_json(h));
	text = o ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	if (!text)
		return err_set(e, -EILSEQ, "the command has text that can't be sent on");
	if (strlen(text) + 1 > FORWARD_HEADER_MAX)
		return err_set(e, -E2BIG, "the command is longer than %d MiB",
			FORWARD_HEADER_MAX / 1024 / 1024);
	buf_printf(ret, "%s\n", text);
	return 0;
}

/* ---- back ---- */

static bool take_text(const json_t *o, const char *key, char **ret)
{
	const json_t *v = json_object_get(o, key);

	if (!v || json_is_null(v))
		return true;
	if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
		return false;
	*ret = xstrdup(json_string_value(v));
	return true;
}

static bool take_words(const json_t *a, struct forward_header *ret)
{
	size_t n = json_array_size(a);

	if (!json_is_array(a) || n == 0 || n > FORWARD_WORDS_MAX)
		return false;
	ret->argv = xcalloc(n + 1, sizeof(*ret->argv));
	for (size_t i = 0; i < n; i++) {
		const json_t *word = json_array_get(a, i);

		if (!json_is_string(word) ||
			strlen(json_string_value(word)) != json_string_length(word))
			return false;
		ret->argv[ret->argc++] = xstrdup(json_string_value(word));
	}
	return true;
}

static bool take_files(
	const json_t *a, struct forward_header *ret, size_t ret_sizes[FORWARD_FILES_MAX])
{
	size_t n = json_array_size(a);

	if (a && (!json_is_array(a) || n > FORWARD_FILES_MAX))
		return false;
	ret->files = xcalloc(n + 1, sizeof(*ret->files));
	for (size_t i = 0; i < n; i++) {
		const json_t *file = json_array_get(a, i), *bytes = json_object_get(file, "bytes");

		if (!take_text(file, "name", &ret->files[i].name) || !ret->files[i].name ||
			!json_is_integer(bytes) || json_integer_value(bytes) < 0 ||
			json_integer_value(bytes) > FORWARD_FILE_MAX) {
			free(ret->files[i].name);
			return false;
		}
		ret_sizes[ret->n_files++] = (size_t)json_integer_value(bytes);
	}
	return true;
}

static bool take_all(
	const json_t *o, struct forward_header *ret, size_t ret_sizes[FORWARD_FILES_MAX])
{
	const json_t *columns = json_object_get(o, "columns");
	json_int_t n = json_integer_value(columns);

	ret->columns = n > 0 && n <= 10000 ? (int)n : 0;
	ret->no_color = json_is_true(json_object_get(o, "no_color"));
	ret->ensure = json_is_true(json_object_get(o, "ensure"));
	return take_words(json_object_get(o, "argv"), ret) &&
	       take_text(o, "submitter", &ret->submitter) && take_text(o, "home", &ret->home) &&
	       take_files(json_object_get(o, "files"), ret, ret_sizes);
}

int forward_header_parse(const char *text, size_t n, struct forward_header *ret,
	size_t ret_sizes[FORWARD_FILES_MAX], struct err *e)
{
	struct forward_header h = {0};
	json_t *o =
		n <= FORWARD_HEADER_MAX ? json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL) : NULL;
	bool ok = json_is_object(o) && take_all(o, &h, ret_sizes);

	json_decref(o);
	if (!ok) {
		forward_header_done(&h);
		return err_set(e, -EINVAL, "what was sent isn't a forwarded command of gpustow's");
	}
	*ret = h;
	return 0;
}

/* ---- lines for shells ---- */

/* "~/x" as the far side's home, the rest as itself, within double quotes that stand within single ones. */
static void put_path(struct buf *out, const char *path)
{
	bool is_home = path[0] == '~' && path[1] == '/';

	buf_puts(out, is_home ? "\"$HOME/" : "\"");
	buf_puts(out, is_home ? path + 2 : path);
	buf_putc(out, '"');
}

static int check_plain(const char *what, const char *word, struct err *e)
{
	if (!strpbrk(word, "'\"\\!$`\n\r"))
		return 0;
	return err_set(e, -EINVAL,
		"%s '%.200s' has one of ' \" \\ ! $ ` in it, which some login shell would take for its own",
		what, word);
}

int forward_line(const char *program, const char *nonce, struct buf *ret, struct err *e)
{
	int r = check_plain("remote: the program's path", program, e);

	if (r < 0)
		return r;
	buf_puts(ret, "exec /bin/sh -c 'exec ");
	put_path(ret, program);
	buf_printf(ret, " " FORWARD_WORD " %s'", nonce);
	return 0;
}

int forward_screen_line(const struct queue_remote *r, const struct forward_header *h,
	struct buf *ret, struct err *e)
{
	int k = check_plain("remote: the program's path", r->program, e);

	if (k == 0 && r->home)
		k = check_plain("remote: the home", r->home, e);
	for (int i = 0; k == 0 && i < h->argc; i++)
		k = check_plain("the argument", h->argv[i], e);
	if (k < 0)
		return k;
	buf_puts(ret, "exec /bin/sh -c 'GPUSTOW_QUEUE_NO_REMOTE=1; NVIDB_QUEUE_NO_REMOTE=1; "
		      "export GPUSTOW_QUEUE_NO_REMOTE NVIDB_QUEUE_NO_REMOTE; ");
	if (r->home) {
		buf_puts(ret, "GPUSTOW_HOME=");
		put_path(ret, r->home);
		buf_puts(ret, "; NVIDB_HOME=$GPUSTOW_HOME; export GPUSTOW_HOME NVIDB_HOME; ");
	}
	/* Most sshd's take the locale along; where one doesn't, the screen would be drawn in ASCII. */
	if (h->is_utf8)
		buf_puts(ret,
			"case \"${LC_ALL:-${LC_CTYPE:-$LANG}}\" in *[Uu][Tt][Ff]*) ;; *) LC_ALL=C.UTF-8; export LC_ALL;; esac; ");
	if (h->ensure) {
		put_path(ret, r->program);
		buf_puts(ret, " queue keeper ensure </dev/null >/dev/null 2>&1 || "
			      "echo \"warning: the keeper of the queue is not at work\" >&2; ");
	}
	buf_puts(ret, "exec ");
	put_path(ret, r->program);
	for (int i = 0; i < h->argc; i++)
		buf_printf(ret, " \"%s\"", h->argv[i]);
	buf_putc(ret, '\'');
	return 0;
}

/* As sh reads it back, whatever is in it. */
static void put_quoted(struct buf *out, const char *text)
{
	buf_putc(out, '\'');
	for (; *text; text++) {
		if (*text == '\'')
			buf_puts(out, "'\\''");
		else
			buf_putc(out, *text);
	}
	buf_putc(out, '\'');
}

static void put_variable(struct buf *out, const char *name, const char *value)
{
	if (!value)
		return;
	buf_printf(out, "%s=", name);
	if (value[0] == '~' && value[1] == '/') {
		buf_puts(out, "\"$HOME\"");
		value++;
	}
	put_quoted(out, value);
	buf_printf(out, "; export %s\n", name);
}

static void put_base64(struct buf *out, const struct buf *bytes)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const unsigned char *b = (const unsigned char *)buf_str(bytes);

	for (size_t i = 0; i < bytes->len; i += 3) {
		size_t n = bytes->len - i < 3 ? bytes->len - i : 3;
		uint32_t v = (uint32_t)b[i] << 16 | (n > 1 ? (uint32_t)b[i + 1] << 8 : 0) |
			     (n > 2 ? b[i + 2] : 0);

		buf_putc(out, digits[v >> 18]);
		buf_putc(out, digits[v >> 12 & 63]);
		buf_putc(out, n > 1 ? digits[v >> 6 & 63] : '=');
		buf_putc(out, n > 2 ? digits[v & 63] : '=');
		if (i % 57 == 54)
			buf_putc(out, '\n');
	}
	buf_putc(out, '\n');
}

/* Each file sent along gets a place in a directory of ours, t, which goes at the end. */
static void put_files(struct buf *out, const struct forward_header *h)
{
	if (!h->n_files)
		return;
	buf_puts(out,
		"umask 077; t=$(mktemp -d) || exit 1\n"
		"trap 'rm -rf \"$t\"' EXIT; trap 'exit 129' HUP; trap 'exit 130' INT; trap 'exit 143' TERM\n");
	for (size_t i = 0; i < h->n_files; i++) {
		buf_printf(out, "base64 -d >\"$t\"/%zu <<'END' || exit 1\n", i);
		put_base64(out, &h->files[i].bytes);
		buf_puts(out, "END\n");
	}
}

/* The word, or the place of the file that it names: behind --script or --file. */
static void put_word(struct buf *out, const struct forward_header *h, int i)
{
	static const char *const options[] = {"--script", "--file"};
	const char *word = h->argv[i];

	buf_putc(out, ' ');
	for (size_t k = 0; k < ARRAY_LEN(options); k++) {
		size_t n = strlen(options[k]);
		bool is_behind = i > 0 && !strcmp(h->argv[i - 1], options[k]);
		const char *name = is_behind					     ? word
				   : !strncmp(word, options[k], n) && word[n] == '=' ? word + n + 1
										     : NULL;

		for (size_t f = 0; name && f < h->n_files; f++) {
			if (strcmp(name, h->files[f].name) != 0)
				continue;
			if (!is_behind)
				buf_printf(out, "%s=", options[k]);
			buf_printf(out, "\"$t\"/%zu", f);
			return;
		}
	}
	put_quoted(out, word);
}

/* nvidb's own script for its keeper is asked, not its command line. */
static void put_keeper(struct buf *out)
{
	buf_puts(out, "k=${NVIDB_HOME:-$HOME/.nvidb}/queue-keeper.sh\n"
		      "if [ -x \"$k\" ]; then \"$k\" ensure >/dev/null 2>&1 </dev/null ||"
		      " echo \"warning: the queue's keeper could not be started\" >&2\n"
		      "else echo \"warning: no keeper is installed for the queue\" >&2; fi\n");
}

int forward_script(const struct queue_remote *r, const struct forward_header *h, const char *nonce,
	struct buf *ret, struct err *e)
{
	size_t size = 0;

	for (int i = 0; i < h->argc; i++)
		size += strlen(h->argv[i]) + 1;
	if (size > FORWARD_HEADER_MAX)
		return err_set(e, -E2BIG, "the command is too long to be sent on");
	buf_printf(ret, "printf '\\ngpustow:%s SCRIPT\\n'\n", nonce);
	/* A login file may have emptied it. */
	buf_puts(ret, "PATH=\"${PATH:-/usr/bin}:/usr/bin:/bin\"\n");
	put_variable(ret, "GPUSTOW_QUEUE_NO_REMOTE", "1");
	put_variable(ret, "GPUSTOW_HOME", r->home);
	put_variable(ret, "GPUSTOW_SUBMITTER", h->submitter);
	put_variable(ret, "NVIDB_QUEUE_NO_REMOTE", "1");
	put_variable(ret, "NVIDB_HOME", r->home);
	put_variable(ret, "NVIDB_SUBMITTER", h->submitter);
	if (h->ensure)
		put_keeper(ret);
	put_files(ret, h);
	if (r->program[0] == '~' && r->program[1] == '/') {
		buf_puts(ret, "\"$HOME\"");
		put_quoted(ret, r->program + 1);
	} else {
		put_quoted(ret, r->program);
	}
	for (int i = 0; i < h->argc; i++)
		put_word(ret, h, i);
	buf_printf(
		ret, " </dev/null\nc=$?; printf '\\001gpustow:%s END %%d\\n' $c; exit $c\n", nonce);
	return 0;
}
