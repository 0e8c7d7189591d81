/*
 * What the agent reads of lanes: the first byte says what the rest is. 'f' a lane's file, 'm' messages of a controller, one a
 * line, each as `lane` says it; "R" as its "root_id" is this root's. A real agent's root lies in memory, and nothing of it is
 * ever turned, so nothing starts. Besides not crashing: a lane that was taken comes back the same when it's written and read
 * again, each of its entries can be read, and what the agent goes by after any messages is what lies in its files.
 */
#include "agent/lane_command.h"
#include "agent/lanes.h"
#include "agent/server.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define QUEUE "0123456789abcdef0123456789abcdef"
#define MESSAGES_MAX 16

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static struct agent agent;
static char dir[64];
static pid_t owner;

static void must(bool is_so)
{
	if (!is_so)
		abort();
}

static void done(void)
{
	if (getpid() != owner)
		return;
	agent_done(&agent);
	fd_remove_tree_at(AT_FDCWD, dir);
}

/* On a file system in memory, if there's one: everything here is synced. */
static void begin(void)
{
	const struct agent_options options = {.promise_dir = dir, .idle_ms = 1000000};
	struct err e = {0};
	char root[80];
	sigset_t none;

	if (owner)
		return;
	owner = getpid();
	snprintf(dir, sizeof(dir), "/dev/shm/fuzz_lane-XXXXXX");
	if (!mkdtemp(dir)) {
		snprintf(dir, sizeof(dir), "/tmp/fuzz_lane-XXXXXX");
		must(mkdtemp(dir) != NULL);
	}
	setenv("GPUSTOW_SIM", "2", 1);
	setenv("GPUSTOW_SIM_DIR", dir, 1);
	snprintf(root, sizeof(root), "%s/root", dir);
	must(agent_init(&agent, root, &options, &e) == 0);
	/* Who runs the fuzzer may stop it. */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	atexit(done);
}

/* ---- a lane that was taken ---- */

static void must_be_equal(const struct lane *a, const struct lane *b)
{
	must(!strcmp(a->queue, b->queue) && !strcmp(a->name, b->name));
	must(!lane_compare_word(a, &b->fence, b->generation));
	must(a->concurrency == b->concurrency && a->paused == b->paused && a->n == b->n &&
		a->n_left == b->n_left && a->has_policy == b->has_policy);
	must(!a->has_policy || claim_policy_equal(&a->policy, &b->policy));
	for (size_t i = 0; i < a->n; i++) {
		const struct lane_entry *x = &a->entries[i], *y = &b->entries[i];

		must(attempt_name_equal(&x->name, &y->name) && !strcmp(x->token, y->token));
		must(x->crc == y->crc && x->size == y->size && x->n_cards == y->n_cards);
	}
}

static void must_be_bounded(const struct lane *l)
{
	must(l->n <= LANE_ENTRIES_MAX && l->concurrency >= 1 &&
		l->concurrency <= LANE_CONCURRENCY_MAX);
	must(lane_name_is_valid(l->name, strlen(l->name)));
	for (size_t i = 0; i < l->n; i++)
		must(lane_find(l, &l->entries[i].name) >= 0);
}

static void must_be_readable(const struct lane *l)
{
	for (size_t i = 0; i < l->n; i++) {
		CLEANUP(claim_spec_done) struct claim_spec s = {0};
		struct err e = {0};

		must(lane_read_spec(&agent.root, l, i, &s, &e) == 0);
		must(!strcmp(s.token, l->entries[i].token));
		must(!l->has_policy || s.policy.margin_mib == l->policy.margin_mib);
	}
}

/* ---- the file ---- */

/* The name that a lane of this queue and name has: that of the only file, once it's stored. */
static void own_path(const char *queue, const char *name, char *ret, size_t size)
{
	struct lane empty = {.generation = 1, .concurrency = 1};
	int fd;
	DIR *d;

	memcpy(empty.queue, queue, ID_LEN);
	snprintf(empty.name, sizeof(empty.name), "%s", name);
	must(lane_store(&agent.root, &empty, NULL) == 0);
	fd = openat(agent.root.fd, "lanes", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	d = fdopendir(fd);
	must(d != NULL);
	ret[0] = '\0';
	for (struct dirent *entry; (entry = readdir(d));)
		if (entry->d_name[0] != '.' && strcmp(entry->d_name, "in") != 0)
			snprintf(ret, size, "lanes/%s", entry->d_name);
	closedir(d);
	must(ret[0]);
}

struct found {
	struct lane l;
	size_t n, n_bad;
};

static void take(void *arg, struct lane *l)
{
	struct found *f = arg;

	must(!f->n++);
	f->l = *l;
	*l = (struct lane){0};
}

static void refuse(void *arg, const char *file, const struct err *e)
{
	struct found *f = arg;

	must(file[0] && e->text[0]);
	f->n_bad++;
}

static void fuzz_file(const uint8_t *bytes, size_t n)
{
	CLEANUP(lane_done) struct lane again = {0}, third = {0};
	struct found f = {0};
	char path[400];

	mkdirat(agent.root.fd, "lanes", 0700);
	must(fd_replace_at(agent.root.fd, "lanes/in", bytes, n, false) == 0);
	must(lane_each(&agent.root, take, refuse, &f) == 0);
	must(f.n + f.n_bad <= 1);
	if (!f.n)
		return;
	must_be_bounded(&f.l);
	own_path(f.l.queue, f.l.name, path, sizeof(path));
	must(renameat(agent.root.fd, "lanes/in", agent.root.fd, path) == 0);
	must(lane_load(&agent.root, f.l.queue, f.l.name, &again, NULL) == 0);
	must_be_equal(&f.l, &again);
	must_be_readable(&again);
	must(lane_store(&agent.root, &again, NULL) == 0);
	must(lane_load(&agent.root, f.l.queue, f.l.name, &third, NULL) == 0);
	must_be_equal(&f.l, &third);
	must_be_readable(&third);
	lane_done(&f.l);
}

/* ---- messages ---- */

static struct client *connect_as(const char *queue)
{
	struct client *c = NULL;
	int fd[2];

	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd) == 0);
	close(fd[1]);
	must(client_new(fd[0], ++agent.last_client, agent.now_ms, &c, NULL) == 0);
	memcpy(c->queue, queue, ID_LEN);
	c->has_hello = true;
	must(fences_highest(&agent.fences, queue, &c->fence, NULL) == 0);
	return c;
}

static void say(struct client *c, const char *text, size_t n)
{
	json_t *msg = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
	const char *root = json_string_value(json_object_get(msg, "root_id"));
	struct err e = {0};

	if (root && !strcmp(root, "R"))
		json_object_set_new(msg, "root_id", json_string(agent.root.id));
	/* The agent has read it, so it's an object. */
	if (json_is_object(msg) && lane_command(&agent, c, msg, &e) < 0)
		must(e.text[0]);
	json_decref(msg);
}

static void must_be_what_lies_there(void)
{
	for (size_t i = 0; i < lanes_count(&agent); i++) {
		const struct lane *l = lanes_at(&agent, i);
		CLEANUP(lane_done) struct lane there = {0};
		json_t *o = lane_encode(&agent, l);

		must(o != NULL);
		json_decref(o);
		must_be_bounded(l);
		must(lane_load(&agent.root, l->queue, l->name, &there, NULL) == 0);
		must_be_equal(l, &there);
		must_be_readable(l);
	}
}

static void fuzz_messages(const char *text, size_t n)
{
	struct client *c = connect_as(QUEUE);

	for (size_t i = 0; i < MESSAGES_MAX && n; i++) {
		const char *end = memchr(text, '\n', n);
		size_t line = end ? (size_t)(end - text) : n;

		say(c, text, line);
		n -= end ? line + 1 : line;
		text += end ? line + 1 : line;
	}
	client_free(c);
	must_be_what_lies_there();
}

static void forget(void)
{
	lane_drafts_free(agent.lane_drafts);
	agent.lane_drafts = lane_drafts_new();
	lanes_free(agent.lanes);
	agent.lanes = lanes_new();
	fd_remove_tree_at(agent.root.fd, "lanes");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	if (!n)
		return 0;
	begin();
	if (*bytes == 'f')
		fuzz_file(bytes + 1, n - 1);
	else if (*bytes == 'm')
		fuzz_messages((const char *)bytes + 1, n - 1);
	forget();
	return 0;
}
