/* From the words of a queue's command to what is sent to the queue's host: see queue_remote.h. */
#include "cli/queue_remote.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/parse.h"
#include "cli/global.h"
#include "cli/queue_common.h"
#include "cli/submit.h"
#include "cli/tty.h"
#include "run/jobsfile.h"
#include "svc/forward.h"
#include "tui/lend.h"

#include <langinfo.h>
#include <locale.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *queue_submitter(const struct program *p)
{
	const char *given = queue_env(p, "SUBMITTER");
	const struct passwd *pw = getpwuid(getuid());
	char host[256] = "";

	if (given)
		return xstrdup(given);
	if (gethostname(host, sizeof(host) - 1) < 0)
		snprintf(host, sizeof(host), "localhost");
	return pw ? xasprintf("%s@%s:%d", pw->pw_name, host, (int)getpid())
		  : xasprintf("%u@%s:%d", (unsigned)getuid(), host, (int)getpid());
}

/* ---- words ---- */

/* One word of the command, or an option with its value. */
struct word {
	const struct option_spec *spec; /* NULL: no option of ours */
	const char *value; /* NULL: none */
	int n; /* words that it takes up */
	bool has_equals;
	bool is_rest; /* "--": what follows is the command's alone */
};

static const struct option_spec *find(const struct option_spec *specs, const char *name, size_t n)
{
	const struct option_spec *o;

	for (size_t i = 0; (o = option_at(specs, i)); i++)
		if (strlen(o->name) == n && !strncmp(o->name, name, n))
			return o;
	return NULL;
}

static const struct option_spec *find_letter(const struct option_spec *specs, char letter)
{
	const struct option_spec *o;

	for (size_t i = 0; (o = option_at(specs, i)); i++)
		if (o->letter && o->letter == letter)
			return o;
	return NULL;
}

/* The value in the next word, where the option takes one. */
static void take_next(struct word *w, int argc, char **argv)
{
	int64_t any;

	if (!w->spec || w->spec->kind == OPTION_FLAG || argc < 2)
		return;
	if (w->spec->bare && parse_int64(argv[1], &any) < 0)
		return;
	w->value = argv[1];
	w->n = 2;
}

/* "-vn5": flags may stand before the one that has a value. */
static void read_letters(const struct option_spec *specs, int argc, char **argv, struct word *ret)
{
	const char *c = argv[0] + 1;

	for (; *c; c++) {
		ret->spec = find_letter(specs, *c);
		if (!ret->spec || ret->spec->kind != OPTION_FLAG)
			break;
	}
	if (ret->spec && *c && c[1])
		ret->value = c + 1;
	else
		take_next(ret, argc, argv);
}

static struct word read_word(const struct option_spec *specs, int argc, char **argv)
{
	const char *word = argv[0], *equals;
	struct word w = {.n = 1};

	if (word[0] != '-' || !word[1])
		return w;
	if (!strcmp(word, "--")) {
		w.is_rest = true;
	} else if (word[1] != '-') {
		read_letters(specs, argc, argv, &w);
	} else if ((equals = strchr(word, '='))) {
		w.spec = find(specs, word + 2, (size_t)(equals - word - 2));
		w.value = equals + 1;
		w.has_equals = true;
	} else {
		w.spec = find(specs, word + 2, strlen(word + 2));
		take_next(&w, argc, argv);
	}
	return w;
}

static bool is_named(const struct word *w, const char *name)
{
	return w->spec && !strcmp(w->spec->name, name);
}

struct flags {
	bool json, local, help;
};

static struct flags read_flags(const struct command *c, int argc, char **argv)
{
	struct flags f = {0};

	for (int i = 0; i < argc;) {
		struct word w = read_word(c->options, argc - i, argv + i);

		if (w.is_rest)
			break;
		f.json |= is_named(&w, "json");
		f.local |= is_named(&w, "local");
		f.help |= is_named(&w, "help") || is_named(&w, "version");
		i += w.n;
	}
	return f;
}

/* ---- what is sent ---- */

struct making {
	const struct program *p;
	struct forward_header *h;
	size_t cap;
	struct err *e;
};

static void add(struct making *m, char *word)
{
	struct forward_header *h = m->h;

	if ((size_t)h->argc + 1 >= m->cap) {
		m->cap = m->cap ? m->cap * 2 : 32;
		h->argv = xreallocarray(h->argv, m->cap, sizeof(*h->argv));
	}
	h->argv[h->argc++] = word;
	h->argv[h->argc] = NULL;
}

static int send_file(struct making *m, const struct word *w)
{
	bool is_script = is_named(w, "script");
	struct forward_header *h = m->h;
	struct forward_file *f;

	for (size_t i = 0; i < h->n_files; i++)
		if (!strcmp(h->files[i].name, w->value))
			return 0;
	if (h->n_files == FORWARD_FILES_MAX)
		return err_set(
			m->e, -E2BIG, "at most %d files can be sent along", FORWARD_FILES_MAX);
	h->files = xreallocarray(h->files, h->n_files + 1, sizeof(*h->files));
	f = &h->files[h->n_files++];
	*f = (struct forward_file){.name = xstrdup(w->value)};
	return submit_read(m->p, is_script ? "script" : "jobs file", w->value,
		is_script ? JOB_TEXT_MAX : JOBSFILE_MAX, &f->bytes, m->e);
}

/* Of this environment, so it's told there value by value; --env, which is given too, still wins by coming later. */
static int send_export(struct making *m, const struct word *w)
{
	json_t *env = json_object(), *value;
	int r = submit_export(w->value, env, m->e);
	const char *name;

	if (r == 0)
		json_object_foreach(env, name, value)
			add(m, xasprintf("--env=%s=%s", name, json_string_value(value)));
	json_decref(env);
	return r;
}

static bool is_file(const struct word *w)
{
	return w->spec && w->spec->kind == OPTION_TEXT &&
	       (is_named(w, "script") || is_named(w, "file"));
}

static int send_word(struct making *m, const struct word *w, char **argv)
{
	int r = 0;

	/* Of this machine: another's database, and where the command goes. */
	if (is_named(w, "db-path") || is_named(w, "local"))
		return 0;
	if (w->value && is_named(w, "export"))
		return 0; /* sent before all others */
	if (w->value && is_named(w, "workdir")) {
		CLEANUP_FREE char *dir = submit_expand_home(w->value);

		add(m, xasprintf("--workdir=%s", dir));
		return 0;
	}
	if (w->value && is_file(w))
		r = send_file(m, w);
	for (int i = 0; i < w->n; i++)
		add(m, xstrdup(argv[i]));
	return r;
}

/* Exported variables go first, for --env is to win whichever stood first. */
static int send_exports(struct making *m, const struct command *c, int argc, char **argv)
{
	struct word last = {0};

	for (int i = 0; i < argc;) {
		struct word w = read_word(c->options, argc - i, argv + i);

		if (w.is_rest)
			break;
		if (w.value && is_named(&w, "export"))
			last = w;
		i += w.n;
	}
	return last.value ? send_export(m, &last) : 0;
}

static int send_words(struct making *m, const struct command *c, int n_words, int argc, char **argv)
{
	int i = n_words, r;

	/* Options before the command that mean something to a queue's: --json alone. */
	if (m->p->global->json)
		add(m, xstrdup("--json"));
	for (int k = 0; k < n_words; k++)
		add(m, xstrdup(argv[k]));
	r = send_exports(m, c, argc - i, argv + i);
	while (r == 0 && i < argc) {
		struct word w = read_word(c->options, argc - i, argv + i);

		if (w.is_rest)
			break;
		r = send_word(m, &w, argv + i);
		i += w.n;
	}
	for (; r == 0 && i < argc; i++)
		add(m, xstrdup(argv[i]));
	return r;
}

static void send_terminal(struct forward_header *h)
{
	const char *columns = getenv("COLUMNS"), *no_color = getenv("NO_COLOR");
	int64_t n;
	int rows, cols;

	if (columns && !parse_int64(columns, &n) && n > 0 && n <= 10000) {
		h->columns = (int)n;
	} else if (isatty(STDOUT_FILENO)) {
		tty_size(&rows, &cols);
		h->columns = cols;
	}
	h->no_color = no_color && *no_color;
	h->is_utf8 = setlocale(LC_CTYPE, "") && !strcmp(nl_langinfo(CODESET), "UTF-8");
}

/* `queue keeper`, whatever options stand between: its own command would find it already seen to. */
static bool is_keeper(const struct command *c, int argc, char **argv)
{
	for (int i = 1; i < argc && !strcmp(argv[0], "queue");) {
		struct word w = read_word(c->options, argc - i, argv + i);

		if (argv[i][0] != '-')
			return !strcmp(argv[i], "keeper");
		i += w.n;
	}
	return false;
}

/* `queue` and `queue tui` are screens, where there's one to show them on. */
static bool is_screen(int n_plain, char **argv)
{
	return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && !strcmp(argv[0], "queue") &&
	       (n_plain == 1 || !strcmp(argv[1], "tui"));
}

static int count_leading(int argc, char **argv)
{
	int n = 0;

	while (n < argc && n < 2 && argv[n][0] != '-')
		n++;
	return n;
}

static int run_there(const struct program *p, const struct command *c, int n_words, int argc,
	char **argv, const struct queue_remote *r, struct err *e)
{
	CLEANUP(forward_header_done) struct forward_header h = {0};
	struct making m = {.p = p, .h = &h, .e = e};
	bool was_cut = false;
	struct forward f = {.header = &h, .was_cut = &was_cut};
	char home[HOSTS_PATH];
	int k = hosts_home(p, home, e);

	if (k == 0)
		k = send_words(&m, c, n_words, argc, argv);
	if (k < 0)
		return k;
	h.submitter = queue_submitter(p);
	h.home = r->home ? xstrdup(r->home) : NULL;
	h.ensure = r->keeper_ensure && !is_keeper(c, argc, argv);
	send_terminal(&h);
	f.home = home;
	f.is_tui = is_screen(count_leading(argc, argv), argv);
	if (f.is_tui)
		screen_lend();
	k = forward_run(r, &f, e);
	if (was_cut)
		screen_take_back();
	return k;
}

int queue_remote(const struct program *p, const struct command *c, int n_words, int argc,
	char **argv, struct queue_away *ret, struct err *e)
{
	struct flags flags = read_flags(c, argc - n_words, argv + n_words);
	struct queue_config config = {0};
	struct err ignored = {0};
	char home[HOSTS_PATH];
	int r = 0;

	ret->wants_json = flags.json || p->global->json;
	if (flags.local || flags.help || queue_env(p, "QUEUE_NO_REMOTE"))
		return 0;
	/* What's wrong with the configuration the command itself tells, which reads it again. */
	if (hosts_home(p, home, &ignored) < 0 ||
		queue_config_load(home, queue_env(p, "QUEUE_CONFIG"), !strcmp(p->name, "nvidb"),
			&config, &ignored) < 0 ||
		!config.remote.host) {
		queue_config_done(&config);
		return 0;
	}
	ret->is_away = true;
	queue_say_warnings(p, &config.warnings);
	r = run_there(p, c, n_words, argc, argv, &config.remote, e);
	queue_config_done(&config);
	return r;
}
