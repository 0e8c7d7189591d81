/*
 * What a tick thinks, apart from asking nodes: cluster_load and cluster_plan over a real store with 10,000 pending jobs of
 * many sizes and wishes, 64 nodes of 8 cards, three jobs and four processes on each card, 2,000 shapes learned, 2,000 jobs
 * that wait for others. Prints median and least of CPU time. Usage: bench_cluster [DIRECTORY].
 */
#include "queue/cluster.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/hash.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NODES 64
#define CARDS 8
#define ON_CARD 3
#define PENDING 10000
#define SHAPES 2000
#define RUNS 15

static struct err e;

static void must(int r)
{
	if (r >= 0)
		return;
	fprintf(stderr, "bench_cluster: %s\n", e.text);
	exit(1);
}

static uint64_t seed = 42;

static uint64_t next_random(uint64_t below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed % below;
}

static void put_uuid(char *ret, int node, int card)
{
	snprintf(ret, GPU_UUID_LEN, "GPU-%08d-0000-0000-0000-%012d", node, card);
}

static void make_config(struct queue_config *ret)
{
	CLEANUP(buf_done) struct buf y = {0};

	buf_puts(&y, "servers:\n");
	for (int i = 0; i < NODES; i++)
		buf_printf(&y, "  - nickname: node%02d\n    hostname: node%02d\n", i, i);
	must(queue_config_parse(
		buf_str(&y), y.len, "config.yml", NULL, 0, "queue.yml", false, ret, &e));
}

static void put_card(struct inventory *v, struct inv_proc *procs, int node, int i)
{
	struct inv_card *c = &v->cards[i];

	*c = (struct inv_card){.index = i,
		.gi = -1,
		.ci = -1,
		.name = (char *)(node % 2 ? "NVIDIA A100-SXM4-80GB" : "NVIDIA H100 80GB HBM3"),
		.is_present = true,
		.total_mib = 81559,
		.used_mib = 40000,
		.util_pct = 50,
		.mem_util_pct = 30,
		.temperature_c = 60,
		.external_mib = (int64_t)next_random(3000),
		.numa = i / 4,
		.nvlink_peers = 0xff & ~(UINT64_C(1) << i),
		.procs = procs + (ptrdiff_t)i * 4,
		.n_procs = 4,
		.n_procs_kept = 4};
	put_uuid(c->uuid, node, i);
	for (int k = 0; k < 4; k++)
		c->procs[k] = (struct inv_proc){.pid = 1000 + k,
			.mem_mib = 9000,
			.name = (char *)"python",
			.user = (char *)"1000",
			.kind = 'C',
			.is_managed = true,
			.job = 1 + (int64_t)next_random(1000)};
}

/* What runs on one node: binds in the store, rows in the agent's ledger. */
static void put_node(struct store *s, int node)
{
	static struct inv_card cards[CARDS];
	static struct inv_proc procs[(ptrdiff_t)CARDS * 4];
	struct inv_charge charges[CARDS * ON_CARD];
	struct inventory v = {.cards = cards,
		.n_cards = CARDS,
		.charges = charges,
		.sampled_wall_ms = clock_wall_ms(),
		.source = (char *)"nvml",
		.cores = 128,
		.mem_total_mib = 1024 * 1024,
		.mem_available_mib = 512 * 1024};
	char name[16];

	snprintf(name, sizeof(name), "node%02d", node);
	for (int i = 0; i < CARDS; i++) {
		put_card(&v, procs, node, i);
		for (int k = 0; k < ON_CARD; k++) {
			struct job j;
			struct job_card card = {
				.index = i, .mib = 5000 + (int64_t)next_random(20000)};
			struct job_bind b = {.node = name, .cards = &card, .n_cards = 1};
			struct inv_charge *c = &charges[v.n_charges++];
			int64_t id, attempt;

			job_init(&j);
			j.command = (char *)"python train.py";
			j.vram_mib = card.mib;
			must(store_submit(s, &j, &id, &e));
			put_uuid(card.uuid, node, i);
			random_hex(16, b.token);
			random_hex(16, b.root_id);
			must(store_bind(s, id, &b, &attempt, &e));
			*c = (struct inv_charge){.name = {.job = (uint64_t)id, .attempt = 1},
				.card = (uint32_t)i,
				.declared_mib = card.mib,
				.budget_mib = card.mib,
				.held_mib = card.mib / 2,
				.peak_mib = card.mib / 2,
				.is_sampled = true};
			memcpy(c->name.queue, store_queue(s), ID_LEN);
		}
	}
	CLEANUP_FREE char *text = inventory_encode(&v);
	struct store_node row = {.name = name,
		.hostname = name,
		.state = (char *)"up",
		.root_id = (char *)"00000000000000000000000000000000",
		.inventory = text,
		.last_seen_ms = v.sampled_wall_ms,
		.observed_incarnation = 1,
		.sort_order = node};
	must(store_node_put(s, &row, &e));
}

static void put_pending(struct store *s)
{
	static const int gpus[] = {1, 1, 1, 1, 1, 1, 2, 2, 4, 8};
	int64_t last = 0;

	for (int i = 0; i < PENDING; i++) {
		CLEANUP_FREE char *command = xasprintf(
			"python train%d.py --lr 0.1 --seed %d", (int)next_random(SHAPES), i);
		char node[16];
		struct job j;

		job_init(&j);
		j.command = command;
		j.gpus = gpus[next_random(10)];
		if (next_random(10)) {
			j.vram_mib = 1000 + (int64_t)next_random(79000);
			j.vram_source = VRAM_DECLARED;
		}
		j.priority = (int64_t)next_random(5);
		j.created_ms = clock_wall_ms() - (int64_t)next_random(3600000);
		if (next_random(4) == 0)
			j.gpu_model = (char *)(next_random(2) ? "a100" : "h100");
		if (next_random(20) == 0)
			j.min_total_mib = 40000;
		snprintf(node, sizeof(node), "node%02d", (int)next_random(NODES));
		if (next_random(20) == 0)
			j.node_constraint = node;
		if (next_random(5) == 0)
			j.cpus = 8;
		j.exclusive = next_random(20) == 0;
		if (last && next_random(5) == 0) {
			j.after = &last;
			j.n_after = 1;
		}
		int64_t id;
		must(store_submit(s, &j, &id, &e));
		last = id;
	}
}

/* Runs that ended well, each with a peak: what learning is fed with. */
static void put_history(struct store *s)
{
	for (int i = 0; i < SHAPES; i++) {
		CLEANUP_FREE char *command = xasprintf("python train%d.py --lr 0.1 --seed 1", i);
		struct job_card card = {.uuid = "GPU-gone", .mib = 1000};
		struct job_bind b = {.node = (char *)"gone", .cards = &card, .n_cards = 1};
		struct store_end end = {.step = JOB_STEP_COMPLETE,
			.has_exit_code = true,
			.vram_mib = -1,
			.elapsed_ms = 60000,
			.peak_mib = 2000 + i};
		struct store_started st = {.pid = 1, .start_ticks = 1};
		struct job j;
		int64_t id, attempt;

		job_init(&j);
		j.command = command;
		must(store_submit(s, &j, &id, &e));
		random_hex(16, b.token);
		random_hex(16, b.root_id);
		must(store_bind(s, id, &b, &attempt, &e));
		must(store_started(s, id, attempt, &st, &e));
		must(store_settle(s, id, attempt, &end, &e));
	}
}

static double cpu_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void print(const char *what, double *t)
{
	qsort(t, RUNS, sizeof(*t), by_size);
	printf("%-16s median %6.2f ms  least %6.2f ms\n", what, t[RUNS / 2], t[0]);
}

static void measure(struct store *s, const struct queue_config *config)
{
	double load[RUNS], plan[RUNS], all[RUNS], nodes[RUNS];
	size_t n[3] = {0}, n_kept = 0, n_learned = 0;

	for (int i = 0; i < RUNS; i++) {
		CLEANUP(cluster_done) struct cluster c = {0};
		CLEANUP(cluster_plan_done) struct cluster_plan p = {0};
		double before = cpu_ms(), loaded;

		must(cluster_load(s, config, clock_wall_ms(), true, &c, &e));
		loaded = cpu_ms();
		cluster_plan(&c, NULL, &p);
		plan[i] = cpu_ms() - loaded;
		load[i] = loaded - before;
		for (size_t k = 0; i == 0 && k < p.n; k++) {
			enum vram_source from;
			n[p.decisions[k].what]++;
			n_kept += p.decisions[k].guard_cards != 0;
			cluster_need_mib(&c, &p, k, &from);
			n_learned += from == VRAM_LEARNED;
		}
		cluster_plan_done(&p);
		cluster_done(&c);
		all[i] = cpu_ms() - before;
		before = cpu_ms();
		must(cluster_load(s, config, clock_wall_ms(), false, &c, &e));
		nodes[i] = cpu_ms() - before;
	}
	printf("%zu start, %zu wait, %zu never, %zu guarded, %zu learned\n", n[PLAN_START],
		n[PLAN_WAIT], n[PLAN_NEVER], n_kept, n_learned);
	print("load", load);
	print("plan", plan);
	print("load, plan, free", all);
	print("load, no pending", nodes);
}

int main(int argc, char **argv)
{
	CLEANUP_FREE char *dir = xasprintf("%s/bench-cluster-XXXXXX", argc > 1 ? argv[1] : "/tmp");
	struct store_options o = {.mode = STORE_WRITE};
	struct queue_config config;
	struct store_lease lease;
	struct store *s = NULL;

	if (!mkdtemp(dir)) {
		perror(dir);
		return 1;
	}
	CLEANUP_FREE char *path = xasprintf("%s/queue.db", dir);
	make_config(&config);
	must(store_open(path, &o, &s, &e));
	must(store_lease_take(s, "bench", 600000, &lease, NULL, &e));
	must(store_begin(s, &lease, &e));
	put_history(s);
	for (int i = 0; i < NODES; i++)
		put_node(s, i);
	put_pending(s);
	must(store_commit(s, &e));
	printf("%d pending, %d nodes of %d cards, %d jobs in flight\n", PENDING, NODES, CARDS,
		NODES * CARDS * ON_CARD);
	measure(s, &config);
	store_close(s);
	queue_config_done(&config);
	return fd_remove_tree_at(AT_FDCWD, dir) < 0;
}
