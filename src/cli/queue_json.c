/* Documents with long lists: see queue_json.h. */
#include "cli/queue_json.h"

#include "base/cleanup.h"
#include "cli/command.h"

#include <errno.h>
#include <string.h>

#define PIECE (256 * 1024) /* bytes that are kept back at most */

void queue_json_begin(struct queue_json *j, struct err *e)
{
	*j = (struct queue_json){.e = e};
	buf_putc(&j->out, '{');
}

static void flush(struct queue_json *j, size_t above)
{
	if (j->code || j->out.len <= above)
		return;
	j->code = command_print(&j->out, j->e);
	j->is_begun = true;
	j->is_broken = j->code != 0;
	buf_clear(&j->out);
}

static char *text_of(struct queue_json *j, json_t *v, size_t flags)
{
	char *text = json_dumps(v, flags | JSON_REAL_PRECISION(15));

	json_decref(v);
	if (!text && !j->code)
		j->code = err_set(j->e, -EILSEQ, "the answer holds text that JSON can't carry");
	return text;
}

static void next_member(struct queue_json *j)
{
	if (j->has_member)
		buf_putc(&j->out, ',');
	j->has_member = true;
}

void queue_json_members(struct queue_json *j, json_t *o)
{
	CLEANUP_FREE char *text = text_of(j, o, JSON_INDENT(2));

	/* "{\n  ...\n}": what's between the braces. */
	if (!text || strlen(text) < 4)
		return;
	next_member(j);
	buf_put(&j->out, text + 1, strlen(text) - 3);
	flush(j, PIECE);
}

void queue_json_list(struct queue_json *j, const char *key)
{
	next_member(j);
	buf_printf(&j->out, "\n  \"%s\": [", key);
	j->has_item = false;
}

void queue_json_item(struct queue_json *j, json_t *item)
{
	CLEANUP_FREE char *text = text_of(j, item, 0);

	buf_printf(&j->out, "%s\n    %s", j->has_item ? "," : "", text ? text : "null");
	j->has_item = true;
	flush(j, PIECE);
}

void queue_json_list_end(struct queue_json *j)
{
	buf_puts(&j->out, j->has_item ? "\n  ]" : "]");
}

/* What was written can't be taken back. */
static int end_with_error(struct queue_json *j)
{
	json_t *o = json_pack("{s:b, s:s}", "ok", 0, "error", j->e->text);

	j->code = 0;
	queue_json_members(j, o ? o : json_pack("{s:b}", "ok", 0));
	buf_puts(&j->out, "\n}\n");
	flush(j, 0);
	return j->code ? j->code : EXIT_FAILED;
}

int queue_json_end(struct queue_json *j, int code)
{
	code = code ? code : j->code;
	if (code && j->is_begun && !j->is_broken) {
		code = end_with_error(j);
	} else if (!code) {
		buf_puts(&j->out, "\n}\n");
		flush(j, 0);
		code = j->code;
	}
	buf_done(&j->out);
	return code;
}
