/*
 * The cluster out of a real store: room of cards, what counts and what doesn't, what jobs ask for, learning, the guard between
 * passes, reasons, JSON. Nodes are written as the controller writes them: an inventory with the node's row.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "queue/cluster.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "store_fixture.h"

#include <math.h>

#define NOW 1000000000
#define TOTAL 24000

/* ---- making worlds ---- */

/* One node under work, until put_node writes it. */
static struct inv_card cards[8];
static struct inv_charge charges[16];
static struct inventory inv;

static void node_begin(size_t n_cards)
{
	memset(cards, 0, sizeof(cards));
	memset(charges, 0, sizeof(charges));
	inv = (struct inventory){.cards = cards,
		.n_cards = n_cards,
		.charges = charges,
		.sampled_wall_ms = NOW - 1000,
		.source = (char *)"sim",
		.mem_total_mib = -1,
		.mem_available_mib = -1};
	for (size_t i = 0; i < n_cards; i++) {
		cards[i] = (struct inv_card){.index = (int32_t)i,
			.gi = -1,
			.ci = -1,
			.name = (char *)"NVIDIA A100-SXM4-80GB",
			.is_present = true,
			.total_mib = TOTAL,
			.util_pct = 1,
			.mem_util_pct = 2,
			.temperature_c = 30,
			.numa = -1};
	}
}

static void add_charge(
	const char *queue, int64_t job, int64_t attempt, uint32_t card, int64_t budget)
{
	struct inv_charge *c = &charges[inv.n_charges++];

	*c = (struct inv_charge){.name = {.job = (uint64_t)job, .attempt = (uint32_t)attempt},
		.card = card,
		.declared_mib = budget,
		.budget_mib = budget,
		.held_mib = budget / 2,
		.is_sampled = true};
	memcpy(c->name.queue, queue, ID_LEN);
}

static void put_node_as(struct bed *b, const char *name, const char *state, const char *error)
{
	for (size_t i = 0; i < inv.n_cards; i++)
		if (!cards[i].uuid[0])
			snprintf(cards[i].uuid, sizeof(cards[i].uuid), "GPU-%s-%zu", name, i);
	CLEANUP_FREE char *text = inventory_encode(&inv);
	struct store_node row = {.name = (char *)name,
		.hostname = (char *)name,
		.state = (char *)state,
		.last_error = (char *)error,
		.inventory = text,
		.last_seen_ms = NOW - 1000,
		.observed_incarnation = 1};

	begin(b);
	OK(store_node_put(b->s, &row, &why));
	commit(b);
}

static void put_node(struct bed *b, const char *name)
{
	put_node_as(b, name, "up", NULL);
}

static struct queue_config config;

static void configure(const char *yaml)
{
	queue_config_done(&config);
	OK(queue_config_parse(yaml, strlen(yaml), "/h/config.yml", NULL, 0, "/h/queue.yml", false,
		&config, &why));
}

#define TWO \
	"servers:\n  - {nickname: n1, hostname: n1}\n  - {nickname: n2, hostname: n2}\n" \
	"queue:\n  headroom_mb: 0\n"
#define ONE "servers:\n  - {nickname: n1, hostname: n1}\nqueue:\n  headroom_mb: 0\n"

static void job_make(struct job *j, int64_t vram)
{
	job_init(j);
	j->command = (char *)"python train.py";
	j->vram_mib = vram;
	j->vram_source = vram >= 0 ? VRAM_DECLARED : VRAM_NONE;
	j->created_ms = NOW - 60000;
}

static int64_t add(struct bed *b, const struct job *j)
{
	int64_t id = 0;

	begin(b);
	OK(store_submit(b->s, j, &id, &why));
	commit(b);
	return id;
}

static int64_t add_vram(struct bed *b, int64_t vram)
{
	struct job j;

	job_make(&j, vram);
	return add(b, &j);
}

/* In flight on cards of the node: position by position of its name. */
static int64_t bind(struct bed *b, int64_t id, const char *node, int card, int64_t mib, bool starts)
{
	struct job_card c = {.index = card, .mib = mib};
	struct job_bind bind = {.node = (char *)node, .cards = &c, .n_cards = card >= 0};
	int64_t attempt = 0;

	snprintf(c.uuid, sizeof(c.uuid), "GPU-%s-%d", node, card);
	random_hex(16, bind.token);
	random_hex(16, bind.root_id);
	begin(b);
	OK(store_bind(b->s, id, &bind, &attempt, &why));
	if (starts) {
		struct store_started st = {.pid = 5, .start_ticks = 5, .started_ms = NOW - 30000};
		OK(store_started(b->s, id, attempt, &st, &why));
	}
	commit(b);
	return attempt;
}

static int64_t runs_on(struct bed *b, const char *node, int card, int64_t mib)
{
	int64_t id = add_vram(b, mib);

	bind(b, id, node, card, mib, true);
	return id;
}

struct view {
	struct cluster c;
	struct cluster_plan p;
	struct buf text;
};

static void view_done(struct view *v)
{
	cluster_plan_done(&v->p);
	cluster_done(&v->c);
	buf_done(&v->text);
}

static void look_at(struct bed *b, struct view *v, int64_t now)
{
	OK(cluster_load(b->s, &config, now, true, &v->c, &why));
	cluster_plan(&v->c, NULL, &v->p);
}

static void look(struct bed *b, struct view *v)
{
	look_at(b, v, NOW);
}

static const struct plan_decision *decision(struct view *v, int64_t id)
{
	ssize_t i = cluster_pending(&v->c, id);

	assert_true(i >= 0);
	return &v->p.decisions[i];
}

static const char *why_of(struct view *v, int64_t id)
{
	ssize_t i = cluster_pending(&v->c, id);

	assert_true(i >= 0);
	buf_clear(&v->text);
	cluster_why(&v->c, &v->p, (size_t)i, &v->text);
	return buf_str(&v->text);
}

static void assert_why(struct view *v, int64_t id, const char *expected)
{
	if (strcmp(why_of(v, id), expected) != 0)
		fail_msg("expected: %s\n     got: %s", expected, buf_str(&v->text));
}

static void assert_has(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("no '%s' in: %s", part, text);
}

#define LOOK(v) CLEANUP(view_done) struct view v = {0}

/* ---- room ---- */

static void test_charges_of_a_card(void **state)
{
	struct bed *b = *state;
	LOOK(v);
	int64_t heard, unheard;

	configure(ONE);
	node_begin(2);
	heard = runs_on(b, "n1", 0, 4000);
	unheard = add_vram(b, 3000);
	/* The agent's figure counts where it has one (it has grown); else the bind's, from the moment it's in the store. */
	add_charge(store_queue(b->s), heard, 1, 0, 5000);
	bind(b, unheard, "n1", 0, 3000, false);
	/* Another queue of this user; and what an ended job left behind. */
	add_charge("ffffffffffffffffffffffffffffffff", 9, 1, 0, 2000);
	add_charge(store_queue(b->s), 999, 1, 0, 700);
	charges[2].has_ended = true;
	cards[0].external_mib = 1000;
	cards[0].used_mib = 6000;
	cards[0].promised_mib = 100;
	put_node(b, "n1");
	look(b, &v);
	const struct cluster_card *c = &v.c.nodes[0].cards[0];
	assert_int_equal(c->room.budgets_mib, 5000 + 3000 + 2000 + 700);
	assert_int_equal(c->room.n_ours, 4);
	assert_int_equal(c->queue_jobs, 2);
	assert_int_equal(c->reserved_mib, 5000 + 3000 + 700);
	assert_int_equal(c->others_mib, 2000);
	assert_int_equal(c->queue_mem_mib, 2500 + 350);
	assert_int_equal(c->free_mib, TOTAL - 10700 - 1000 - 100);
	assert_false(c->room.has_whole);
	assert_int_equal(v.c.nodes[0].cards[1].free_mib, TOTAL);
	assert_int_equal(v.c.nodes[0].n_jobs, 2);
}

/* What another queue's lane keeps isn't free; where none of its jobs runs, its next one takes a place as well. */
static void test_lanes_of_another_queue(void **state)
{
	struct bed *b = *state;
	LOOK(v);

	configure(ONE);
	node_begin(2);
	add_charge("ffffffffffffffffffffffffffffffff", 9, 1, 0, 2000);
	cards[0].others_lanes_mib = 5000;
	cards[1].others_lanes_mib = 4000;
	put_node(b, "n1");
	look(b, &v);
	const struct cluster_card *c = v.c.nodes[0].cards;
	assert_int_equal(c[0].room.budgets_mib, 7000);
	assert_int_equal(c[0].others_mib, 7000);
	assert_int_equal(c[0].room.n_ours, 1);
	assert_int_equal(c[0].free_mib, TOTAL - 7000);
	assert_int_equal(c[1].room.n_ours, 1);
	assert_int_equal(c[1].free_mib, TOTAL - 4000);
}

static void test_whole_cards(void **state)
{
	struct bed *b = *state;
	LOOK(v);
	struct job j;
	int64_t waits;

	configure(ONE);
	node_begin(3);
	bind(b, add_vram(b, -1), "n1", 0, -1, true);
	job_make(&j, 100);
	j.exclusive = true;
	bind(b, add(b, &j), "n1", 1, 100, true);
	job_make(&j, 100);
	j.idle = true;
	bind(b, add(b, &j), "n1", 2, 100, true);
	waits = add_vram(b, 0);
	put_node(b, "n1");
	look(b, &v);
	for (int i = 0; i < 3; i++)
		assert_true(v.c.nodes[0].cards[i].room.has_whole);
	assert_int_equal(v.c.nodes[0].cards[0].room.budgets_mib, TOTAL);
	assert_int_equal(decision(&v, waits)->what, PLAN_WAIT);
}

static void test_blind_card(void **state)
{
	struct bed *b = *state;
	LOOK(v);

	configure(ONE);
	node_begin(1);
	cards[0].is_blind = true;
	cards[0].used_mib = 9000;
	cards[0].external_mib = 9000;
	runs_on(b, "n1", 0, 5000);
	put_node(b, "n1");
	look(b, &v);
	assert_int_equal(v.c.nodes[0].cards[0].room.foreign_mib, 4000);
	assert_int_equal(v.c.nodes[0].cards[0].free_mib, TOTAL - 9000);
}

static void test_limits(void **state)
{
	struct bed *b = *state;
	LOOK(v);
	struct job j;
	int64_t gpu, cpu;

	configure(
		"servers:\n  - {nickname: n1, hostname: n1}\nqueue: {headroom_mb: 0, max_jobs_per_gpu: 2, max_cpu_jobs_per_node: 1}\n");
	node_begin(1);
	runs_on(b, "n1", 0, 100);
	runs_on(b, "n1", 0, 100);
	job_make(&j, 0);
	j.gpus = 0;
	bind(b, add(b, &j), "n1", -1, 0, true);
	cpu = add(b, &j);
	gpu = add_vram(b, 100);
	put_node(b, "n1");
	look(b, &v);
	assert_why(&v, gpu, "there is room, but 2 jobs on a GPU are the limit (max_jobs_per_gpu)");
	assert_why(&v, cpu,
		"1 CPU jobs run on every node that it may use, and that's the limit (max_cpu_jobs_per_node)");
}

static void test_host_amounts(void **state)
{
	struct bed *b = *state;
	LOOK(v);
	struct job j;
	int64_t waits, never;

	configure(ONE);
	node_begin(1);
	inv.cores = 8;
	inv.mem_total_mib = 64000;
	job_make(&j, 100);
	j.cpus = 6;
	j.mem_mib = 1000;
	bind(b, add(b, &j), "n1", 0, 100, true);
	waits = add(b, &j);
	j.cpus = 9;
	never = add(b, &j);
	put_node(b, "n1");
	look(b, &v);
	assert_int_equal(v.c.nodes[0].cpus_used, 6);
	assert_int_equal(v.c.nodes[0].mem_used_mib, 1000);
	assert_why(&v, waits,
		"needs 6 CPUs and 1000 MiB of memory of its machine; it has the most left: 2 CPUs and 63000 MiB of memory (n1)");
	assert_int_equal(decision(&v, never)->what, PLAN_NEVER);
	assert_why(&v, never,
		"can't start on any node: needs 9 CPUs and 1000 MiB of memory of its machine; it has at most 8 CPUs and 64000 MiB of memory (n1)");
}

/* ---- what counts ---- */

static void test_a_node_that_is_away_fails_nothing(void **state)
{
	struct bed *b = *state;
	LOOK(v);
	int64_t large, huge;

	configure(TWO);
	node_begin(1);
	put_node(b, "n1");
	node_begin(1);
	cards[0].total_mib = 80000;
	put_node_as(b, "n2", "down", "no route to host");
	large = add_vram(b, 40000);
	huge = add_vram(b, 90000);
	look(b, &v);
	assert_int_equal(decision(&v, large)->what, PLAN_WAIT);
	assert_why(&v, large,
		"needs 40000 MiB on one GPU; the best is n1 gpu0 with 24000 MiB free: of 24000 MiB; not counted: n2: down: no route to host");
	assert_int_equal(decision(&v, huge)->what, PLAN_NEVER);
	assert_why(&v, huge,
		"can't start on any node: needs 90000 MiB on one GPU; the largest is n2 gpu0 with 80000 MiB, of which 0 are kept free (headroom_mb)");
}

/* A node that has never told what it has may have anything. */
static void test_a_node_never_seen_fails_nothing(void **state)
{
	struct bed *b = *state;
	int64_t huge;

	configure(TWO);
	node_begin(1);
	put_node(b, "n1");
	huge = add_vram(b, 90000);
	{
		LOOK(v);
		look(b, &v);
		assert_int_equal(decision(&v, huge)->what, PLAN_WAIT);
		assert_has(why_of(&v, huge), "n2: not asked yet");
	}
	/* A person says that it doesn't matter. */
	OK(store_begin(b->s, NULL, &why));
	OK(store_node_ignore(b->s, "n2", true, &why));
	commit(b);
	LOOK(v);
	look(b, &v);
	assert_int_equal(decision(&v, huge)->what, PLAN_NEVER);
}

static void test_missing_cards_and_errors(void **state)
{
	struct bed *b = *state;
	LOOK(v);
	int64_t id;

	configure(TWO);
	node_begin(2);
	cards[0].is_present = false;
	cards[0].total_mib = 80000;
	put_node(b, "n1");
	node_begin(1);
	cards[0].is_present = false;
	cards[0].total_mib = 80000;
	inv.error = (char *)"the driver doesn't answer";
	put_node(b, "n2");
	id = add_vram(b, 40000);
	look(b, &v);
	assert_int_equal(decision(&v, id)->what, PLAN_WAIT);
	assert_has(why_of(&v, id), "n1 gpu0: missing from the node's last look");
	assert_has(why_of(&v, id), "n2 gpu0: the GPUs can't be asked: the driver doesn't answer");
}

static void test_drained_ignored_and_states(void **state)
{
	static const struct {
		const char *state, *error, *why;
	} rows[] = {
		{"up", NULL, ""},
		{"down", "no\x1b[31m route", "down: no\xef\xbf\xbd[31m route"},
		{"suspect", NULL, "suspect"},
		{"text", NULL, "runs no agent (nvidia-smi text only)"},
		{"refused", "its root is another's", "refused: its root is another's"},
		{"unknown", NULL, "not asked yet"},
	};
	struct bed *b = *state;

	configure(ONE);
	int64_t id = add_vram(b, 100);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		LOOK(v);
		node_begin(1);
		put_node_as(b, "n1", rows[i].state, rows[i].error);
		look(b, &v);
		assert_string_equal(v.c.nodes[0].why_not, rows[i].why);
		assert_int_equal(v.c.nodes[0].is_usable, !*rows[i].why);
		assert_int_equal(decision(&v, id)->what, *rows[i].why ? PLAN_WAIT : PLAN_START);
	}
	node_begin(1);
	put_node(b, "n1");
	OK(store_begin(b->s, NULL, &why));
	OK(store_node_drain(b->s, "n1", true, &why));
	commit(b);
	LOOK(v);
	look(b, &v);
	assert_why(&v, id,
		"needs 100 MiB on one GPU; none that would do can be used now; not counted: n1: drained");
}

static void test_fresh_nodes_only(void **state)
{
	struct bed *b = *state;
	LOOK(v);
	bool fresh[2] = {false, true};
	int64_t id = add_vram(b, 100);

	configure(TWO);
	node_begin(1);
	put_node(b, "n1");
	node_begin(1);
	put_node(b, "n2");
	OK(cluster_load(b->s, &config, NOW, true, &v.c, &why));
	cluster_plan(&v.c, fresh, &v.p);
	assert_int_equal(decision(&v, id)->node, 1);
}

/* The pool's jobs are many, and no lane is any the wiser for them. */
static void test_what_waits_is_loaded_for_those_who_ask(void **state)
{
	struct bed *b = *state;
	int64_t id = add_vram(b, 100), in_lane;
	struct job j;

	configure(ONE);
	node_begin(1);
	put_node(b, "n1");
	{
		LOOK(v);
		OK(cluster_load(b->s, &config, NOW, false, &v.c, &why));
		assert_int_equal(v.c.pending.n, 0);
		assert_int_equal(v.c.counts.by_state[JOB_STATE_PENDING], 1);
	}
	{
		LOOK(v);
		OK(cluster_load_for_lanes(b->s, &config, NOW, &v.c, &why));
		assert_int_equal(v.c.pending.n, 0);
		assert_int_equal(v.c.in_lanes.n, 0);
	}
	begin(b);
	OK(store_lane_make(b->s, "n1", "0", &why));
	commit(b);
	job_make(&j, 100);
	j.lane = (char *)"n1:0";
	in_lane = add(b, &j);
	{
		LOOK(v);
		OK(cluster_load_for_lanes(b->s, &config, NOW, &v.c, &why));
		assert_int_equal(v.c.in_lanes.n, 1);
		/* All of them: one of the lane may have to wait for one of the pool. */
		assert_int_equal(cluster_pending(&v.c, in_lane), 0);
		assert_int_equal(cluster_pending(&v.c, id), 1);
	}
}

static void test_allowlist(void **state)
{
	struct bed *b = *state;
	LOOK(v);
	int64_t a = add_vram(b, 20000), c = add_vram(b, 20000), two;
	struct job j;

	configure(
		"servers:\n  - {nickname: n1, hostname: n1, gpus: [1]}\nqueue: {headroom_mb: 0}\n");
	job_make(&j, 100);
	j.gpus = 2;
	two = add(b, &j);
	node_begin(3);
	/* Instances of a card that is allowed are. */
	cards[2] = cards[1];
	snprintf(cards[2].parent, sizeof(cards[2].parent), "GPU-n1-1");
	cards[2].gi = cards[2].ci = 0;
	cards[2].total_mib = 1000;
	put_node(b, "n1");
	look(b, &v);
	assert_false(v.c.nodes[0].cards[0].is_usable);
	assert_true(v.c.nodes[0].cards[2].is_usable);
	assert_int_equal(decision(&v, a)->cards, 2);
	assert_int_equal(decision(&v, c)->what, PLAN_WAIT);
	assert_int_equal(decision(&v, two)->what, PLAN_START);
	assert_int_equal(decision(&v, two)->cards, 6);
}

static void test_cards_out_of_service(void **state)
{
	struct bed *b = *state;
	LOOK(v);
	int64_t id = add_vram(b, 100);

	configure(ONE);
	node_begin(1);
	put_node(b, "n1");
	OK(store_begin(b->s, NULL, &why));
	OK(store_card_out(b->s, "n1", "GPU-n1-0", "XID 79", "faults", NULL, &why));
	commit(b);
	look(b, &v);
	assert_int_equal(decision(&v, id)->why, WHY_OUT_OF_SERVICE);
	assert_why(&v, id,
		"needs 100 MiB on one GPU; none that would do can be used now; not counted: n1 gpu0: out of service: XID 79");
}

static void test_mig(void **state)
{
	struct bed *b = *state;
	LOOK(v);
	struct job j;
	int64_t small = add_vram(b, 9000), large = add_vram(b, 20000), profile;

	configure(ONE);
	node_begin(3);
	cards[0].is_mig_parent = true;
	for (int i = 1; i < 3; i++) {
		cards[i].index = 0;
		cards[i].gi = i;
		cards[i].ci = 0;
		cards[i].total_mib = 10000;
		cards[i].profile = (char *)(i == 1 ? "1g.10gb" : "1g.10gb+me");
		snprintf(cards[i].parent, sizeof(cards[i].parent), "GPU-n1-0");
	}
	job_make(&j, 100);
	j.gpu_constraint = (char *)"0:2";
	j.gpu_model = (char *)"a100, 1g.10gb";
	profile = add(b, &j);
	put_node(b, "n1");
	look(b, &v);
	assert_int_equal(decision(&v, small)->cards, 2);
	assert_int_equal(decision(&v, profile)->cards, 4);
	/* What it was cut from is no card for a job, and no reason for hope either. */
	assert_int_equal(decision(&v, large)->what, PLAN_NEVER);
	assert_why(&v, small, "starts with the next pass on n1 gpu0:1");
}

/* ---- what jobs ask for ---- */

static void test_wishes(void **state)
{
	static const struct {
		const char *node, *gpu, *model, *lane;
		int64_t min_total;
		int32_t on_node; /* -1: never, -2 waits */
		uint64_t cards;
	} rows[] = {
		{NULL, NULL, "H100", NULL, 0, 1, 1},
		{NULL, NULL, "h100 80gb", NULL, 0, 1, 1},
		{NULL, NULL, "v100", NULL, 0, -1, 0},
		{NULL, NULL, "v100,nvidia-a100", NULL, 0, 0, 1},
		{NULL, NULL, "", NULL, 0, 1, 1},
		{NULL, NULL, NULL, NULL, 50000, 1, 1},
		{NULL, NULL, NULL, NULL, 90000, -1, 0},
		{"n1", NULL, NULL, NULL, 0, 0, 1},
		{"n1", "1", NULL, NULL, 0, 0, 2},
		{"n1", "GPU-n1-1", NULL, NULL, 0, 0, 2},
		{NULL, "1", NULL, NULL, 0, 0, 2},
		{"n1", "7", NULL, NULL, 0, -1, 0},
		{"n1", NULL, "h100", NULL, 0, -1, 0},
		{"gone", NULL, NULL, NULL, 0, -2, 0},
		{NULL, NULL, NULL, "n1:1", 0, 0, 2},
		{NULL, NULL, NULL, "n2:0", 0, 1, 1},
		{"n2", NULL, NULL, "n1:1", 0, -2, 0},
	};
	struct bed *b = *state;

	configure(TWO);
	node_begin(2);
	put_node(b, "n1");
	node_begin(1);
	cards[0].name = (char *)"NVIDIA H100 80GB HBM3";
	cards[0].total_mib = 80000;
	put_node(b, "n2");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		LOOK(v);
		CLEANUP(buf_done) struct buf text = {0};
		struct plan_decision d;
		struct job j;

		job_make(&j, 1000);
		j.node_constraint = (char *)rows[i].node;
		j.gpu_constraint = (char *)rows[i].gpu;
		j.gpu_model = (char *)rows[i].model;
		j.lane = (char *)rows[i].lane;
		j.min_total_mib = rows[i].min_total;
		look(b, &v);
		cluster_try(&v.c, &j, &d, &text);
		if (rows[i].on_node == -1)
			assert_int_equal(d.what, PLAN_NEVER);
		else
			assert_int_equal(d.node, rows[i].on_node == -2 ? -1 : rows[i].on_node);
		assert_int_equal(d.cards, rows[i].cards);
		assert_true(text.len > 0);
		/* As if it had never been there. */
		assert_int_equal(v.c.pending.n, 0);
	}
}

static void test_no_such_model_names_those_there_are(void **state)
{
	struct bed *b = *state;
	LOOK(v);
	struct job j;

	configure(ONE);
	node_begin(2);
	put_node(b, "n1");
	job_make(&j, 1000);
	j.gpu_model = (char *)"h200";
	int64_t id = add(b, &j);
	look(b, &v);
	assert_why(&v, id,
		"can't start on any node: needs 1000 MiB on one GPU of the model h200; there are: NVIDIA A100-SXM4-80GB");
}

static void test_order_and_try(void **state)
{
	struct bed *b = *state;
	LOOK(v);
	CLEANUP(buf_done) struct buf text = {0};
	struct plan_decision d;
	struct job j;
	int64_t low, high;

	configure(ONE);
	node_begin(1);
	put_node(b, "n1");
	low = add_vram(b, 20000);
	job_make(&j, 20000);
	j.priority = 5;
	j.created_ms = NOW;
	high = add(b, &j);
	look(b, &v);
	assert_int_equal(decision(&v, high)->what, PLAN_START);
	assert_int_equal(decision(&v, low)->what, PLAN_WAIT);
	/* Behind those of its priority, before those below. */
	j.vram_mib = 4000;
	cluster_try(&v.c, &j, &d, &text);
	assert_int_equal(d.what, PLAN_START);
	j.vram_mib = 20000;
	cluster_try(&v.c, &j, &d, &text);
	assert_int_equal(d.what, PLAN_WAIT);
	j.priority = 9;
	cluster_try(&v.c, &j, &d, &text);
	assert_int_equal(d.what, PLAN_START);
	/* It waits for one that hasn't ended. */
	j.after = &low;
	j.n_after = 1;
	buf_clear(&text);
	cluster_try(&v.c, &j, &d, &text);
	assert_int_equal(d.why, WHY_BLOCKED);
	assert_has(buf_str(&text), "waits itself");
	assert_int_equal(v.c.pending.n, 2);
}

/* ---- memory that nobody declared ---- */

static void finish(struct bed *b, const char *command, int64_t peak, enum job_step step)
{
	struct store_end end = {.step = step,
		.cause = step == JOB_STEP_FAIL ? JOB_CAUSE_CUDA_OOM : JOB_CAUSE_NONE,
		.has_exit_code = true,
		.exit_code = step == JOB_STEP_FAIL,
		.vram_mib = -1,
		.elapsed_ms = 60000,
		.peak_mib = peak};
	struct job j;
	int64_t id, attempt;

	job_make(&j, 1000);
	j.command = (char *)command;
	id = add(b, &j);
	attempt = bind(b, id, "elsewhere", 0, 1000, true);
	begin(b);
	OK(store_settle(b->s, id, attempt, &end, &why));
	commit(b);
}

static int64_t need_of(struct view *v, int64_t id, enum vram_source *from)
{
	ssize_t i = cluster_pending(&v->c, id);

	assert_true(i >= 0);
	return cluster_need_mib(&v->c, &v->p, (size_t)i, from);
}

static void assert_need(struct bed *b, int64_t id, int64_t mib, enum vram_source source)
{
	LOOK(v);
	enum vram_source from;

	look(b, &v);
	assert_int_equal(need_of(&v, id, &from), mib);
	assert_int_equal(from, source);
}

static void test_learning(void **state)
{
	struct bed *b = *state;
	struct job j;
	int64_t id, two, other;

	configure(ONE);
	node_begin(2);
	put_node(b, "n1");
	job_make(&j, -1);
	j.command = (char *)"python sweep.py --seed 7";
	id = add(b, &j);
	j.gpus = 2;
	two = add(b, &j);
	other = add_vram(b, -1);
	assert_need(b, id, UNDECLARED, VRAM_NONE);
	/* One run: a fifth on top. Three: a tenth. At least 256. */
	finish(b, "python sweep.py --seed 1", 10000, JOB_STEP_COMPLETE);
	assert_need(b, id, 12000, VRAM_LEARNED);
	finish(b, "python sweep.py --seed 2", 9000, JOB_STEP_COMPLETE);
	finish(b, "python sweep.py --seed 3", 10005, JOB_STEP_COMPLETE);
	assert_need(b, id, 11006, VRAM_LEARNED);
	/* Not for another shape, nor on more cards. */
	assert_need(b, two, UNDECLARED, VRAM_NONE);
	assert_need(b, other, UNDECLARED, VRAM_NONE);
	/* One went out of memory beyond that. */
	finish(b, "python sweep.py --seed 4", 12000, JOB_STEP_FAIL);
	assert_need(b, id, 15000, VRAM_LEARNED);
	/* A guess beyond every card is none: never because of a guess is wrong. */
	finish(b, "python sweep.py --seed 5", 23900, JOB_STEP_COMPLETE);
	assert_need(b, id, UNDECLARED, VRAM_NONE);
}

static void test_small_and_only_oom(void **state)
{
	struct bed *b = *state;
	struct job j;
	int64_t small, oom;

	configure(ONE);
	node_begin(2);
	put_node(b, "n1");
	job_make(&j, -1);
	j.command = (char *)"tiny";
	small = add(b, &j);
	j.command = (char *)"greedy";
	oom = add(b, &j);
	finish(b, "tiny", 100, JOB_STEP_COMPLETE);
	finish(b, "greedy", 9000, JOB_STEP_FAIL);
	assert_need(b, small, 356, VRAM_LEARNED);
	assert_need(b, oom, UNDECLARED, VRAM_NONE);
	LOOK(v);
	look(b, &v);
	assert_int_equal(decision(&v, small)->what, PLAN_START);
	assert_int_equal(decision(&v, oom)->what, PLAN_START);
}

static void test_defaults_and_zero(void **state)
{
	struct bed *b = *state;
	int64_t undeclared = add_vram(b, -1), zero = add_vram(b, 0);

	configure(ONE);
	node_begin(1);
	cards[0].external_mib = cards[0].used_mib = TOTAL + 100;
	put_node(b, "n1");
	assert_need(b, zero, 0, VRAM_DECLARED);
	{
		LOOK(v);
		look(b, &v);
		/* 0 reserves nothing, and fits a full card. */
		assert_int_equal(decision(&v, zero)->what, PLAN_START);
		assert_has(why_of(&v, undeclared), "needs 1 wholly idle GPU, since nothing says");
	}
	configure("servers:\n  - {nickname: n1, hostname: n1}\nqueue: {default_vram: 3G}\n");
	assert_need(b, undeclared, 3072, VRAM_DEFAULT);
	assert_need(b, zero, 0, VRAM_DECLARED);
}

/* ---- what waits ---- */

static void test_prerequisites_and_holds(void **state)
{
	struct bed *b = *state;
	LOOK(v);
	int64_t first = add_vram(b, 100), running = runs_on(b, "n1", 0, 10), after, held, run;
	int64_t needs[2] = {first, running}, failed = runs_on(b, "n1", 0, 10);
	struct job j;

	configure(ONE);
	node_begin(1);
	put_node(b, "n1");
	job_make(&j, 100);
	j.after = needs;
	j.n_after = 2;
	after = add(b, &j);
	held = add_vram(b, 100);
	begin(b);
	OK(store_hold(b->s, held, "job 1 failed", &why));
	OK(try_settle(b->s, failed, 1, JOB_STEP_FAIL, JOB_CAUSE_EXIT_CODE));
	commit(b);
	j.after = &failed;
	j.n_after = 1;
	j.on_dependency = ON_DEPENDENCY_RUN;
	run = add(b, &j);
	look(b, &v);
	char expected[200];
	snprintf(expected, sizeof(expected),
		"waits for job %" PRId64 " (waits itself), %" PRId64 " (running)", first, running);
	assert_why(&v, after, expected);
	snprintf(expected, sizeof(expected),
		"held: job 1 failed; `job release %" PRId64
		"` lets it run all the same, `job cancel %" PRId64 "` ends it",
		held, held);
	assert_why(&v, held, expected);
	/* One that runs in any case isn't kept by a failure. */
	assert_int_equal(decision(&v, run)->what, PLAN_START);
	json_t *o = cluster_why_json(&v.c, &v.p, (size_t)cluster_pending(&v.c, after));
	assert_string_equal(json_string_value(json_object_get(o, "reason")), "needs");
	assert_int_equal(json_array_size(json_object_get(o, "blocked_by")), 2);
	json_decref(o);
	o = cluster_why_json(&v.c, &v.p, (size_t)cluster_pending(&v.c, held));
	assert_string_equal(json_string_value(json_object_get(o, "reason")), "held");
	json_decref(o);
}

static void test_bound_and_refused(void **state)
{
	struct bed *b = *state;
	LOOK(v);
	int64_t bound = add_vram(b, 100), refused = add_vram(b, 100);

	configure(ONE);
	node_begin(2);
	put_node_as(b, "n1", "down", "gone");
	bind(b, bound, "n1", 1, 100, false);
	begin(b);
	OK(store_refused(
		b->s, refused, "n1", "card 0: 500 MiB are promised to jobs of user 1001", &why));
	commit(b);
	look(b, &v);
	assert_int_equal(cluster_pending(&v.c, bound), -1);
	struct job j = get(b, bound);
	cluster_why_bound(&v.c, &j, &v.text);
	assert_string_equal(buf_str(&v.text),
		"handed to n1 gpu1, its start isn't confirmed yet; n1: down: gone");
	job_done(&j);
	assert_has(why_of(&v, refused), "; the last try: ");
	assert_has(why_of(&v, refused), "user 1001");
}

static void test_best_card_and_holders(void **state)
{
	struct bed *b = *state;
	LOOK(v);
	char expected[300];
	int64_t r, id;

	configure("servers:\n  - {nickname: n1, hostname: n1}\nqueue: {headroom_mb: 500}\n");
	node_begin(2);
	r = runs_on(b, "n1", 0, 12000);
	runs_on(b, "n1", 1, 13000);
	cards[0].external_mib = 1000;
	cards[0].promised_mib = 70;
	put_node(b, "n1");
	id = add_vram(b, 20000);
	look(b, &v);
	snprintf(expected, sizeof(expected),
		"needs 20000 MiB on one GPU; the best is n1 gpu1 with 10500 MiB free: of 24000 MiB, job %" PRId64
		" is charged 13000, 500 are kept free",
		r + 1);
	/* gpu0: 24000 - 12000 - 1000 - 70 - 500 = 10430, a little less. */
	assert_why(&v, id, expected);
}

/* ---- the guard and estimates ---- */

static void save_guard(struct bed *b, struct view *v)
{
	CLEANUP_FREE char *text = cluster_guard_text(&v->c, &v->p);

	begin(b);
	OK(store_meta_set(b->s, CLUSTER_GUARD_KEY, text, &why));
	commit(b);
}

static void test_guard_between_passes(void **state)
{
	struct bed *b = *state;
	int64_t blocker, big, small, later, attempt;
	struct job j;

	configure(TWO);
	node_begin(1);
	put_node(b, "n1");
	node_begin(1);
	put_node(b, "n2");
	blocker = runs_on(b, "n1", 0, 14000);
	runs_on(b, "n2", 0, 23000);
	job_make(&j, 20000);
	j.created_ms = NOW - 16 * 60000;
	big = add(b, &j);
	small = add_vram(b, 3000);
	{
		LOOK(v);
		char expected[100];
		look(b, &v);
		/* n1 is nearer: 10000 free there. */
		assert_int_equal(decision(&v, big)->guard_node, 0);
		assert_int_equal(decision(&v, small)->node, 0);
		assert_int_equal(decision(&v, small)->guard_id, big);
		snprintf(expected, sizeof(expected),
			"its place on n1 gpu0 is kept until job %" PRId64 " has ended", blocker);
		assert_has(why_of(&v, big), expected);
		save_guard(b, &v);
	}
	attempt = bind(b, small, "n1", 0, 3000, true);
	assert_int_equal(attempt, 1);
	/* n2 would be nearer now; the place stays. And the companion isn't a blocker of it in the next pass. */
	node_begin(1);
	cards[0].total_mib = 45000;
	put_node(b, "n2");
	later = add_vram(b, 3000);
	{
		LOOK(v);
		runs_on(b, "n2", 0, 3000);
		look(b, &v);
		assert_int_equal(decision(&v, big)->guard_node, 0);
		/* 24000 - 3000 (companion) - 20000: 1000 is left beside it; it goes to n2. */
		assert_int_equal(decision(&v, later)->node, 1);
		assert_has(why_of(&v, big), "until job ");
		assert_null(strstr(why_of(&v, big), "until jobs"));
		save_guard(b, &v);
	}
	/* Without what was kept the place would be chosen anew. */
	begin(b);
	OK(store_meta_set(b->s, CLUSTER_GUARD_KEY, NULL, &why));
	commit(b);
	{
		LOOK(v);
		look(b, &v);
		assert_int_equal(decision(&v, big)->guard_node, 1);
	}
	/* Rubbish is nothing. */
	begin(b);
	OK(store_meta_set(b->s, CLUSTER_GUARD_KEY,
		"{\"guards\": [[1], 2, [1,\"n1\",[7]]], \"beside\": 3}", &why));
	commit(b);
	LOOK(v);
	look(b, &v);
	assert_int_equal(decision(&v, big)->guard_node, 1);
}

static void test_guarded_newcomer_and_text(void **state)
{
	struct bed *b = *state;
	LOOK(v);
	struct job j;
	int64_t blocker, big, small;
	char expected[200];
	json_t *o;

	configure(ONE);
	node_begin(1);
	put_node(b, "n1");
	blocker = runs_on(b, "n1", 0, 14000);
	job_make(&j, 20000);
	j.created_ms = NOW - 16 * 60000;
	big = add(b, &j);
	small = add_vram(b, 9000);
	look(b, &v);
	snprintf(expected, sizeof(expected),
		"would delay job %" PRId64
		", which has waited long: its place on n1 gpu0 is kept until job %" PRId64
		" has ended",
		big, blocker);
	assert_why(&v, small, expected);
	o = cluster_why_json(&v.c, &v.p, (size_t)cluster_pending(&v.c, small));
	assert_int_equal(json_integer_value(json_object_get(o, "guard")), big);
	assert_string_equal(json_string_value(json_object_get(o, "reason")), "guarded");
	json_decref(o);
	/* One blocker has a limit, the other doesn't: nothing honest can be said of the kept place. */
	job_make(&j, 1000);
	j.max_runtime_ms = 90000;
	bind(b, add(b, &j), "n1", 0, 1000, true);
	view_done(&v);
	v = (struct view){0};
	look(b, &v);
	o = cluster_why_json(&v.c, &v.p, (size_t)cluster_pending(&v.c, big));
	assert_int_equal(json_array_size(json_object_get(o, "blocked_by")), 2);
	assert_true(json_is_null(json_object_get(o, "estimate_s")));
	json_decref(o);
}

static void test_estimates(void **state)
{
	struct bed *b = *state;
	struct job j;
	int64_t id, behind;

	configure(ONE);
	node_begin(1);
	put_node(b, "n1");
	job_make(&j, 14000);
	j.max_runtime_ms = 90000;
	bind(b, add(b, &j), "n1", 0, 14000, true);
	id = add_vram(b, 20000);
	behind = add_vram(b, 20000);
	{
		LOOK(v);
		look(b, &v);
		/* It has run for 30 s of its 90. */
		assert_has(why_of(&v, id), "; by the others' time limits in 1m 00s at most");
		/* Whoever is behind may wait for that one too: nothing honest can be said. */
		assert_null(strstr(why_of(&v, behind), "by the others"));
		json_t *o = cluster_why_json(&v.c, &v.p, (size_t)cluster_pending(&v.c, id));
		assert_int_equal(json_integer_value(json_object_get(o, "estimate_s")), 60);
		json_decref(o);
		o = cluster_why_json(&v.c, &v.p, (size_t)cluster_pending(&v.c, behind));
		assert_true(json_is_null(json_object_get(o, "estimate_s")));
		json_decref(o);
	}
	/* Known from earlier runs: 60 s each, half of it over. */
	finish(b, "python train.py", 100, JOB_STEP_COMPLETE);
	{
		LOOK(v);
		look(b, &v);
		assert_has(why_of(&v, id), "; by earlier runs in about 30s");
	}
	/* One more in its way, of which nothing is known: nothing is said. */
	job_make(&j, 9000);
	j.command = (char *)"mystery";
	bind(b, add(b, &j), "n1", 0, 9000, true);
	LOOK(v);
	look(b, &v);
	assert_null(strstr(why_of(&v, id), "by earlier"));
}

/* ---- after a restore ---- */

static void test_nothing_starts_before_all_were_asked(void **state)
{
	struct bed *b = *state;
	int64_t id = add_vram(b, 100);

	configure(TWO);
	node_begin(1);
	put_node(b, "n1");
	node_begin(1);
	put_node(b, "n2");
	{
		LOOK(v);
		look(b, &v);
		assert_int_equal(decision(&v, id)->what, PLAN_START);
	}
	begin(b);
	commit(b);
	OK(store_lease_release(b->s, &b->lease, &why));
	b->lease.epoch = 0;
	OK(store_adopt(b->s, &why));
	{
		LOOK(v);
		look(b, &v);
		assert_int_equal(decision(&v, id)->why, WHY_BLOCKED);
		assert_has(why_of(&v, id), "what runs on n1, n2 hasn't been asked since");
	}
	begin(b);
	struct store_node row = {
		.name = (char *)"n1", .state = (char *)"up", .observed_incarnation = 2};
	OK(store_node_put(b->s, &row, &why));
	commit(b);
	OK(store_begin(b->s, NULL, &why));
	OK(store_node_ignore(b->s, "n2", true, &why));
	commit(b);
	LOOK(v);
	look(b, &v);
	assert_null(v.c.waits_for_nodes);
}

/* ---- nodes ---- */

static void test_find_node_and_leftover_nodes(void **state)
{
	struct bed *b = *state;
	LOOK(v);
	size_t at;

	configure(
		"servers:\n  - {nickname: alpha, hostname: a}\n  - {nickname: alphabet, hostname: b}\n  - {nickname: Beta, hostname: c}\n");
	node_begin(1);
	put_node(b, "gone");
	put_node(b, "idle");
	runs_on(b, "gone", 0, 100);
	look(b, &v);
	/* Only those that are configured, or still have work. */
	assert_int_equal(v.c.n_nodes, 4);
	assert_string_equal(v.c.nodes[3].why_not, "not in the configuration any more");
	OK(cluster_find_node(&v.c, "alpha", &at, &why));
	assert_int_equal(at, 0);
	OK(cluster_find_node(&v.c, "beta", &at, &why));
	assert_int_equal(at, 2);
	assert_int_equal(cluster_find_node(&v.c, "bet", &at, &why), -EEXIST);
	OK(cluster_find_node(&v.c, "gone", &at, &why));
	assert_int_equal(at, 3);
	assert_int_equal(cluster_find_node(&v.c, "lph", &at, &why), -EEXIST);
	assert_has(why.text, "alpha, alphabet");
	assert_int_equal(cluster_find_node(&v.c, "x", &at, &why), -ENOENT);
}

static void assert_keys(const json_t *o, const char *keys)
{
	CLEANUP_FREE char *copy = xstrdup(keys);
	char *rest = copy, *key;
	const char *its;
	json_t *value;
	size_t n = 0, known = 0;

	while ((key = strsep(&rest, " "))) {
		n++;
		if (!json_object_get(o, key))
			fail_msg("'%s' is missing", key);
	}
	/* In that order, before ours. */
	rest = copy;
	memcpy(copy, keys, strlen(keys) + 1);
	json_object_foreach((json_t *)o, its, value)
	{
		key = strsep(&rest, " ");
		if (!key)
			break;
		assert_string_equal(its, key);
		known++;
	}
	assert_int_equal(known, n);
}

static void test_node_json(void **state)
{
	struct bed *b = *state;
	LOOK(v);
	struct inv_proc procs[1] = {{.pid = 77,
		.mem_mib = 50,
		.name = (char *)"python",
		.user = (char *)"1000",
		.kind = 'C',
		.is_managed = true}};

	configure(
		"servers:\n  - {nickname: n1, hostname: n1.lab, gpus: [0], username: me}\nqueue: {headroom_mb: 0}\n");
	node_begin(2);
	cards[0].used_mib = 8000;
	cards[0].external_mib = 6000;
	cards[0].external_procs = 3;
	cards[0].procs = procs;
	cards[0].n_procs = cards[0].n_procs_kept = 1;
	cards[1].util_pct = -1;
	procs[0].job = runs_on(b, "n1", 0, 2000);
	put_node(b, "n1");
	look(b, &v);
	json_t *o = cluster_node_json(&v.c, 0, false), *g, *p;
	assert_keys(o,
		"name hostname port username state enabled ignored last_seen last_error gpu_count probed_at gpus");
	assert_int_equal(json_integer_value(json_object_get(o, "gpu_count")), 2);
	assert_true(json_is_true(json_object_get(o, "enabled")));
	g = json_array_get(json_object_get(o, "gpus"), 0);
	assert_keys(g,
		"node index name mem_total_mb mem_used_mb mem_used_percent external_mem_mb external_procs queue_mem_mb"
		" attribution reserved_mb queue_jobs free_mb util_percent mem_util_percent temperature_c processes updated_at");
	assert_int_equal(json_integer_value(json_object_get(g, "reserved_mb")), 2000);
	assert_int_equal(json_integer_value(json_object_get(g, "free_mb")), TOTAL - 8000);
	assert_true(fabs(json_real_value(json_object_get(g, "mem_used_percent")) - 33.3) < 0.01);
	assert_true(json_is_null(json_object_get(g, "why_not_placeable")));
	p = json_array_get(json_object_get(g, "processes"), 0);
	assert_keys(p, "pid mem_mb name user type job_id job_name managed");
	assert_int_equal(json_integer_value(json_object_get(p, "job_id")), procs[0].job);
	g = json_array_get(json_object_get(o, "gpus"), 1);
	assert_string_equal(json_string_value(json_object_get(g, "why_not_placeable")),
		"not in the node's list of GPUs");
	assert_true(json_is_null(json_object_get(g, "util_percent")));
	json_decref(o);
	o = cluster_node_json(&v.c, 0, true);
	assert_int_equal(json_array_size(json_object_get(o, "gpus")), 1);
	json_decref(o);
}

#define T(f) cmocka_unit_test_setup_teardown(f, bed_make, bed_drop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_charges_of_a_card),
		T(test_lanes_of_another_queue),
		T(test_whole_cards),
		T(test_blind_card),
		T(test_limits),
		T(test_host_amounts),
		T(test_a_node_that_is_away_fails_nothing),
		T(test_a_node_never_seen_fails_nothing),
		T(test_missing_cards_and_errors),
		T(test_drained_ignored_and_states),
		T(test_fresh_nodes_only),
		T(test_what_waits_is_loaded_for_those_who_ask),
		T(test_allowlist),
		T(test_cards_out_of_service),
		T(test_mig),
		T(test_wishes),
		T(test_no_such_model_names_those_there_are),
		T(test_order_and_try),
		T(test_learning),
		T(test_small_and_only_oom),
		T(test_defaults_and_zero),
		T(test_prerequisites_and_holds),
		T(test_bound_and_refused),
		T(test_best_card_and_holders),
		T(test_guard_between_passes),
		T(test_guarded_newcomer_and_text),
		T(test_estimates),
		T(test_nothing_starts_before_all_were_asked),
		T(test_find_node_and_leftover_nodes),
		T(test_node_json),
	};
	int r = cmocka_run_group_tests(tests, NULL, NULL);

	queue_config_done(&config);
	return r;
}
