/* What a run says: one line each, time in front, flushed; the live panel below them on a terminal. Decides nothing. */
#include "run/state.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/text.h"
#include "run/view.h"

#include <langinfo.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

static void put_time(struct buf *b)
{
	time_t now = (time_t)(clock_wall_ms() / 1000);
	struct tm tm;

	localtime_r(&now, &tm);
	buf_printf(b, "[%02d:%02d:%02d] ", tm.tm_hour, tm.tm_min, tm.tm_sec);
}

__attribute__((format(printf, 3, 0))) static void say(
	struct run *r, const char *prefix, const char *fmt, va_list ap)
{
	put_time(&r->out);
	buf_puts(&r->out, prefix);
	buf_vprintf(&r->out, fmt, ap);
	buf_putc(&r->out, '\n');
}

void run_say(struct run *r, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(r, "", fmt, ap);
	va_end(ap);
}

void run_warn(struct run *r, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(r, "WARN  ", fmt, ap);
	va_end(ap);
}

static struct buf *next_text(struct run *r)
{
	struct buf *b = &r->texts[r->next_text++ % RUN_TEXTS];

	buf_clear(b);
	return b;
}

const char *run_text(struct run *r, const char *s)
{
	struct buf *b = next_text(r);

	text_put_clean(b, s, strlen(s));
	return buf_str(b);
}

const char *run_gpus_text(struct run *r, const int32_t *gpus, uint32_t n, const char *sep)
{
	struct buf *b = next_text(r);

	for (uint32_t i = 0; i < n; i++)
		buf_printf(b, "%s%d", i ? sep : "", gpus[i]);
	return buf_str(b);
}

const char *run_cards_text(
	struct run *r, const int32_t *gpus, const char *const *uuids, uint32_t n, const char *sep)
{
	struct buf *b = next_text(r);

	for (uint32_t i = 0; i < n; i++) {
		int at = uuids && r->has_sample ? gpu_find_uuid(&r->sample.snap, uuids[i]) : -1;
		const struct gpu_card *c = at < 0 ? NULL : &r->sample.snap.cards[at];
		char label[GPU_LABEL_LEN];

		gpu_label(gpus[i], c ? c->gi : 0, c ? c->ci : 0, label);
		buf_printf(b, "%s%s", i ? sep : "", label);
	}
	return buf_str(b);
}

/* The panel's text for this terminal; empty when there's no room. */
static void put_panel(struct run *r, struct buf *out, size_t *ret_rows)
{
	struct winsize size = {0};
	struct run_view view;
	struct run_view_memory *memory;
	CLEANUP(buf_done) struct buf panel = {0};

	*ret_rows = 0;
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_row < 6 || size.ws_col < 20)
		return;
	memory = run_view_make(r, size.ws_row, &view);
	view_panel(&view, size.ws_col - 1U, size.ws_row / 2U, !getenv("NO_COLOR"),
		!strcmp(nl_langinfo(CODESET), "UTF-8"), &panel);
	run_view_free(memory);
	if (!panel.len)
		return;
	while (panel.len && panel.data[panel.len - 1] == '\n')
		panel.data[--panel.len] = '\0';
	*ret_rows = 1;
	for (size_t i = 0; i < panel.len; i++)
		*ret_rows += panel.data[i] == '\n';
	buf_put(out, panel.data, panel.len);
	buf_putc(out, '\n');
}

/* A reader that went away ends our talking, never the jobs. */
static void write_out(struct run *r, const struct buf *b)
{
	if (!r->stdout_is_gone &&
		fd_write_all(r->config->json ? STDERR_FILENO : STDOUT_FILENO, b->data, b->len) < 0)
		r->stdout_is_gone = true;
}

void run_flush(struct run *r)
{
	CLEANUP(buf_done) struct buf screen = {0};

	if (!r->config->has_panel || r->stdout_is_gone) {
		if (r->out.len)
			write_out(r, &r->out);
		buf_clear(&r->out);
		return;
	}
	if (r->panel_rows)
		buf_printf(&screen, "\033[%zuA\r\033[J", r->panel_rows);
	buf_put(&screen, buf_str(&r->out), r->out.len);
	buf_clear(&r->out);
	r->panel_rows = 0;
	if (!r->is_over)
		put_panel(r, &screen, &r->panel_rows);
	if (screen.len)
		write_out(r, &screen);
}
