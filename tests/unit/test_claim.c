/* Claims: born whole and once, two slots that survive a torn write, a lock that says who may start, names that stay. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "claim_fixture.h"

#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

static void test_root(void **state)
{
	struct fixture f;
	fixture_init(&f);
	assert_true(id_is_valid(f.root.id));
	/* Found again: the same id. Twice at once: one id. */
	for (int round = 0; round < 20; round++) {
		char path[4096], text[2][ID_LEN];
		snprintf(path, sizeof(path), "%s/r%d", f.dir, round);
		int answer[2];
		assert_int_equal(pipe(answer), 0);
		for (int i = 0; i < 2; i++) {
			if (fork() == 0) {
				struct root r;
				root_init(&r);
				_exit(root_open(&r, path, NULL) < 0 ||
					write(answer[1], r.id, ID_LEN) != ID_LEN);
			}
		}
		for (int i = 0; i < 2; i++) {
			int status;
			assert_true(wait(&status) > 0);
			assert_int_equal(status, 0);
			assert_int_equal(read(answer[0], text[i], ID_LEN), ID_LEN);
		}
		assert_string_equal(text[0], text[1]);
		close(answer[0]);
		close(answer[1]);
	}
	fixture_done(&f);
}

static void test_root_refuses_a_place_that_is_not_ours_alone(void **state)
{
	struct fixture f;
	struct root r;
	char path[4096], link[128];
	fixture_init(&f);
	root_init(&r);
	snprintf(path, sizeof(path), "%s/open", f.dir);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(chmod(path, 0777), 0);
	assert_int_equal(root_open(&r, path, &f.e), -EPERM);
	assert_non_null(strstr(f.e.text, path));
	snprintf(link, sizeof(link), "%s/link", f.dir);
	assert_int_equal(symlink(f.root.path, link), 0);
	assert_true(root_open(&r, link, &f.e) < 0);
	assert_true(root_open(&r, "relative", &f.e) < 0);
	assert_int_equal(r.fd, -1);
	/* A damaged id is not replaced: "there is no claim" hangs on it. */
	snprintf(path, sizeof(path), "%s/id", f.root.path);
	assert_int_equal(truncate(path, 5), 0);
	assert_int_equal(root_open(&r, f.root.path, &f.e), -EBADMSG);
	fixture_done(&f);
}

static void test_root_path(void **state)
{
	char path[3072], sim4[3072], other[3072];
	setenv("GPUSTOW_AGENT_ROOT", "/somewhere/else", 1);
	unsetenv("GPUSTOW_SIM");
	assert_int_equal(root_path(path, sizeof(path), NULL), 0);
	assert_string_equal(path, "/somewhere/else");
	setenv("GPUSTOW_SIM", "4", 1);
	setenv("GPUSTOW_SIM_DIR", "/tmp/a", 1);
	assert_int_equal(root_path(sim4, sizeof(sim4), NULL), 0);
	assert_memory_equal(sim4, "/somewhere/else/sim-", strlen("/somewhere/else/sim-"));
	setenv("GPUSTOW_SIM_DIR", "/tmp/b", 1);
	assert_int_equal(root_path(other, sizeof(other), NULL), 0);
	assert_string_not_equal(other, sim4);
	setenv("GPUSTOW_SIM_DIR", "/tmp/a", 1);
	setenv("GPUSTOW_SIM", "2", 1);
	assert_int_equal(root_path(other, sizeof(other), NULL), 0);
	assert_string_not_equal(other, sim4);
	unsetenv("GPUSTOW_SIM");
	unsetenv("GPUSTOW_SIM_DIR");
	struct err e;
	assert_int_equal(root_path(path, 8, &e), -ENAMETOOLONG);
	setenv("GPUSTOW_AGENT_ROOT", "relative", 1);
	assert_int_equal(root_path(path, sizeof(path), &e), -EINVAL);
	unsetenv("GPUSTOW_AGENT_ROOT");
	assert_int_equal(root_path(path, sizeof(path), NULL), 0);
	assert_int_equal(path[0], '/');
}

static void test_socket_names(void **state)
{
	struct fixture f;
	struct sockaddr_un a;
	char deep[512], want[4096];
	fixture_init(&f);
	assert_int_equal(root_sockaddr(&f.root, "bell", &a, NULL), 0);
	snprintf(want, sizeof(want), "%s/bell", f.root.path);
	assert_string_equal(a.sun_path, want);
	assert_int_equal(root_ring(&f.root, "x"), -ENOENT);

	/* Below a long path the same socket is reached another way. */
	struct root r;
	root_init(&r);
	snprintf(deep, sizeof(deep), "%s/%0120d", f.dir, 7);
	assert_int_equal(root_open(&r, deep, NULL), 0);
	assert_int_equal(root_sockaddr(&r, "bell", &a, NULL), 0);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(root_ring(&r, "ding"), 0);
	char text[16] = "";
	assert_int_equal(recv(fd, text, sizeof(text), 0), 4);
	assert_string_equal(text, "ding");
	close(fd);
	assert_int_equal(root_ring(&r, "ding"), -ECONNREFUSED);
	root_done(&r);
	fixture_done(&f);
}

/* --- the spec --- */

static void add_card(struct claim_spec *s, const char *uuid, int64_t mib)
{
	struct claim_card *card = &s->cards[s->n_cards++];
	snprintf(card->uuid, sizeof(card->uuid), "%s", uuid);
	card->declared_mib = mib;
}

static void test_spec_round_trip(void **state)
{
	struct fixture f;
	struct claim_spec s, back = {0};
	fixture_init(&f);
	spec_init(&f, 7, "echo \"ü\" \n\t'", &s);
	add_card(&s, "GPU-1111", 8192);
	add_card(&s, "GPU-2222", -1);
	s.timeout_ms = 1500;
	s.policy = (struct claim_policy){.margin_mib = 512,
		.idle_threshold_mib = 200,
		.spike_buffer = 0.1,
		.high_water = true,
		.max_jobs_per_card = 3};
	json_t *o = claim_spec_encode(&s);
	json_object_set_new(o, "from_a_later_build", json_integer(3));
	assert_int_equal(claim_spec_decode(o, &back, &f.e), 0);
	json_t *again = claim_spec_encode(&back);
	json_object_del(o, "from_a_later_build");
	assert_true(json_equal(o, again));
	assert_string_equal(back.boot_id, s.boot_id);
	assert_int_equal(back.n_cards, 2);
	assert_int_equal(back.cards[1].declared_mib, -1);
	assert_int_equal(back.umask_bits, 027);
	json_decref(o);
	json_decref(again);
	claim_spec_done(&s);
	claim_spec_done(&back);
	fixture_done(&f);
}

/* What a job of the queue has besides; and a spec of before, which has none of it. */
static void test_spec_of_a_queue_job(void **state)
{
	static const char *const new_keys[] = {
		"dir", "error_output", "login", "lead_signal", "lead_ms", "oom_kills"};
	struct fixture f;
	struct claim_spec s, back = {0};
	fixture_init(&f);
	spec_init(&f, 7, "true", &s);
	json_t *o = claim_spec_encode(&s);
	for (size_t i = 0; i < ARRAY_LEN(new_keys); i++)
		assert_null(json_object_get(o, new_keys[i]));
	assert_int_equal(claim_spec_decode(o, &back, &f.e), 0);
	assert_null(back.dir);
	assert_int_equal(back.lead_signal, 0);
	claim_spec_done(&back);
	json_decref(o);

	s.dir = xstrdup("/d");
	s.error_output = xstrdup("/d/stderr.log");
	s.login = true;
	s.lead_signal = 10;
	s.lead_ms = 120000;
	s.oom_kills = 4;
	s.body = xstrdup("not for the claim");
	o = claim_spec_encode(&s);
	assert_null(json_object_get(o, "body"));
	assert_int_equal(claim_spec_decode(o, &back, &f.e), 0);
	json_t *again = claim_spec_encode(&back);
	assert_true(json_equal(o, again));
	assert_string_equal(back.dir, "/d");
	assert_string_equal(back.error_output, "/d/stderr.log");
	assert_true(back.login);
	assert_int_equal(back.lead_signal, 10);
	assert_int_equal(back.lead_ms, 120000);
	assert_int_equal(back.oom_kills, 4);
	claim_spec_done(&back);
	/* With a directory and nothing else of these. */
	for (size_t i = 1; i < ARRAY_LEN(new_keys); i++)
		json_object_del(o, new_keys[i]);
	assert_int_equal(claim_spec_decode(o, &back, &f.e), 0);
	assert_int_equal(back.oom_kills, -1);
	assert_null(back.error_output);
	json_decref(o);
	json_decref(again);
	claim_spec_done(&s);
	claim_spec_done(&back);
	fixture_done(&f);
}

static void test_spec_refuses(void **state)
{
	static const struct {
		const char *key, *value; /* NULL: taken out */
	} rows[] = {
		{"job", "0"},
		{"job", "-1"},
		{"job", "\"7\""},
		{"job", NULL},
		{"attempt", "0"},
		{"attempt", "4294967296"},
		{"token", "\"short\""},
		{"token", NULL},
		{"queue", "\"../../../../../../../../../../etc\""},
		{"argv", "[]"},
		{"argv", "[\"sh\"]"},
		{"argv", "[\"/bin/sh\", 3]"},
		{"argv", "\"/bin/sh\""},
		{"env", "[\"NOVALUE\"]"},
		{"env", "[\"A=1\", \"=x\"]"},
		{"env", NULL},
		{"env", "[\"A=1\", \"A=2\", \"B\"]"},
		{"cwd", "\"tmp\""},
		{"cwd", NULL},
		{"output", "\"\""},
		{"output", "[]"},
		{"timeout_ms", "-1"},
		{"timeout_ms", "1.5"},
		{"grace_ms", NULL},
		{"umask", "512"},
		{"policy", "[]"},
		{"policy", "{\"margin_mib\": -1}"},
		{"boot_id", "\"a b\""},
		{"boot_id", "7"},
		{"dir", "\"jobs/7.1\""},
		{"dir", "7"},
		{"cards", "{}"},
		{"cards", "[{\"uuid\": \"\", \"declared_mib\": 1}]"},
		{"cards", "[{\"uuid\": \"GPU-1\", \"declared_mib\": -2}]"},
		{"cards", "[{\"uuid\": \"GPU-1\"}]"},
		{"cards", "[{\"uuid\": \"a\", \"declared_mib\": 1}, {\"uuid\": \"a\", "
			  "\"declared_mib\": 1}]"},
	};
	struct fixture f;
	struct claim_spec s, back = {0}, zero = {0};
	fixture_init(&f);
	spec_init(&f, 7, "true", &s);
	json_t *whole = claim_spec_encode(&s);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		json_t *o = json_deep_copy(whole);
		if (rows[i].value)
			json_object_set_new(
				o, rows[i].key, json_loads(rows[i].value, JSON_DECODE_ANY, NULL));
		else
			json_object_del(o, rows[i].key);
		f.e.text[0] = '\0';
		if (claim_spec_decode(o, &back, &f.e) >= 0)
			fail_msg("%s = %s was taken", rows[i].key, rows[i].value);
		assert_true(f.e.text[0] != '\0');
		assert_memory_equal(&back, &zero, sizeof(back));
		json_decref(o);
	}
	json_decref(whole);
	claim_spec_done(&s);
	fixture_done(&f);
}

static void test_later_variable_wins(void **state)
{
	struct fixture f;
	struct claim_spec s, back = {0};
	fixture_init(&f);
	spec_init(&f, 7, "true", &s);
	json_t *o = claim_spec_encode(&s);
	json_object_set_new(
		o, "env", json_pack("[s,s,s,s,s,s]", "A=1", "AB=2", "A=", "B=3", "A=4=5", "AB=6"));
	json_object_del(o, "queue");
	json_object_del(o, "boot_id");
	assert_int_equal(claim_spec_decode(o, &back, &f.e), 0);
	assert_string_equal(back.env[0], "A=4=5");
	assert_string_equal(back.env[1], "AB=6");
	assert_string_equal(back.env[2], "B=3");
	assert_null(back.env[3]);
	assert_string_equal(back.name.queue, "");
	assert_string_equal(back.boot_id, "");
	/* What a message leaves out must be filled in before it's a claim. */
	enum claim_made made;
	assert_int_equal(claim_make(&f.root, &back, &made, &f.e), -EINVAL);
	json_decref(o);
	claim_spec_done(&s);
	claim_spec_done(&back);
	fixture_done(&f);
}

/* --- the two slots --- */

static struct claim_record a_record(enum attempt_state st, uint64_t seq)
{
	struct claim_record rec = {
		.state = st,
		.seq = seq,
		.shim_pid = 4000000,
		.shim_start_ticks = UINT64_MAX - 1,
		.pid = 4000001,
		.start_ticks = 123456789012345u,
		.boot_id = "00000000-0000-4000-8000-000000000001",
		.pid_ns = 0xEFFFFFFC,
		.end = {.started_boot_ms = 1000, .started_wall_ms = 1700000000000},
	};
	if (st == ATTEMPT_ENDED) {
		rec.end.how = END_STOPPED;
		rec.end.reason = STOP_TIMEOUT;
		rec.end.code = -1;
		rec.end.by_signal = rec.end.was_killed = rec.end.seen_by_shim = true;
		rec.end.ended_boot_ms = 2000;
		rec.end.ended_wall_ms = 1700000001000;
		memset(rec.end.text, 'x', sizeof(rec.end.text) - 1);
	}
	return rec;
}

static void test_slots(void **state)
{
	uint8_t bytes[CLAIM_STATE_SIZE] = {0};
	struct claim_record a = a_record(ATTEMPT_STARTED, 6), b = a_record(ATTEMPT_ENDED, 7), got;
	assert_int_equal(claim_state_decode(bytes, sizeof(bytes), &got), -EBADMSG);
	assert_int_equal(claim_state_decode(bytes, 0, &got), -EBADMSG);
	/* The newest counts in both orders. */
	for (int swap = 0; swap < 2; swap++) {
		claim_slot_encode(&a, bytes + (swap ? CLAIM_SLOT_SIZE : 0));
		claim_slot_encode(&b, bytes + (swap ? 0 : CLAIM_SLOT_SIZE));
		assert_int_equal(claim_state_decode(bytes, sizeof(bytes), &got), 0);
		assert_memory_equal(&got, &b, sizeof(got));
		/* A write torn at any byte, or one bit wrong: the other slot stands. */
		for (size_t i = 0; i < CLAIM_SLOT_SIZE; i++) {
			uint8_t torn[CLAIM_STATE_SIZE];
			memcpy(torn, bytes, sizeof(torn));
			torn[(swap ? 0 : CLAIM_SLOT_SIZE) + i] ^= 1;
			assert_int_equal(claim_state_decode(torn, sizeof(torn), &got), 0);
			assert_memory_equal(&got, &a, sizeof(got));
			memcpy(torn, bytes, sizeof(torn));
			torn[(swap ? CLAIM_SLOT_SIZE : 0) + i] ^= 0x80;
			assert_int_equal(claim_state_decode(torn, sizeof(torn), &got), 0);
			assert_memory_equal(&got, &b, sizeof(got));
		}
	}
	/* Half a file: its whole slot is read. */
	claim_slot_encode(&a, bytes);
	assert_int_equal(claim_state_decode(bytes, CLAIM_SLOT_SIZE + 100, &got), 0);
	assert_int_equal(got.seq, 6);
	assert_int_equal(claim_state_decode(bytes, CLAIM_SLOT_SIZE - 1, &got), -EBADMSG);
}

static void put_crc(uint8_t *slot)
{
	uint32_t crc = crc32_ieee(slot, CLAIM_SLOT_SIZE - 4);
	for (int i = 0; i < 4; i++)
		slot[CLAIM_SLOT_SIZE - 4 + i] = (uint8_t)(crc >> (8 * i));
}

/* The format grows: a longer payload is read as far as it's known, a shorter one has zeros behind. */
static void test_slots_of_other_builds(void **state)
{
	uint8_t slot[CLAIM_SLOT_SIZE];
	struct claim_record a = a_record(ATTEMPT_ENDED, 6), got;
	claim_slot_encode(&a, slot);
	slot[6] = (uint8_t)400, slot[7] = 400 >> 8;
	slot[400] = 77;
	put_crc(slot);
	assert_int_equal(claim_state_decode(slot, sizeof(slot), &got), 0);
	assert_memory_equal(&got, &a, sizeof(got));
	slot[6] = 72, slot[7] = 0; /* before there was a boot id */
	put_crc(slot);
	assert_int_equal(claim_state_decode(slot, sizeof(slot), &got), 0);
	assert_int_equal(got.pid, a.pid);
	assert_string_equal(got.boot_id, "");
	assert_string_equal(got.end.text, "");
	/* What says too much of itself, is of a version to come, or makes no sense, isn't believed. */
	static const struct {
		size_t at;
		uint8_t value;
	} wrong[] = {{7, 2}, {4, 2}, {16, 0}, {16, 4}, {17, 99}, {17, 0}, {18, 99}};
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		claim_slot_encode(&a, slot);
		slot[wrong[i].at] = wrong[i].value;
		put_crc(slot);
		assert_int_equal(claim_state_decode(slot, sizeof(slot), &got), -EBADMSG);
	}
}

static void test_records_are_written_in_turn(void **state)
{
	struct fixture f;
	struct claim_spec s;
	fixture_init(&f);
	spec_init(&f, 7, "true", &s);
	must_claim(&f, &s);
	CLEANUP_CLOSE int fd = claim_open(&f.root, &s.name);
	struct claim_record rec, got;
	assert_int_equal(claim_read_record(fd, &rec, NULL), 0);
	assert_int_equal(rec.state, ATTEMPT_CLAIMED);
	assert_int_equal(rec.seq, 1);
	assert_int_equal(rec.pid_ns, proc_pid_ns());
	assert_string_equal(rec.boot_id, s.boot_id);
	for (int i = 0; i < 5; i++) {
		uint8_t before[CLAIM_STATE_SIZE], after[CLAIM_STATE_SIZE];
		CLEANUP_CLOSE int st = openat(fd, "state", O_RDONLY);
		assert_int_equal(pread(st, before, sizeof(before), 0), sizeof(before));
		rec.pid = 100 + i;
		assert_int_equal(claim_write_record(fd, &rec, i & 1, NULL), 0);
		assert_int_equal(pread(st, after, sizeof(after), 0), sizeof(after));
		/* Only one slot was touched, and not the one that was the newest. */
		size_t newest = (rec.seq - 1) & 1 ? CLAIM_SLOT_SIZE : 0;
		assert_memory_equal(before + newest, after + newest, CLAIM_SLOT_SIZE);
		assert_int_equal(claim_read_record(fd, &got, NULL), 0);
		assert_int_equal(got.pid, 100 + i);
		assert_int_equal(got.seq, 2 + i);
	}
	claim_spec_done(&s);
	fixture_done(&f);
}

/* --- making --- */

static void test_make_twice(void **state)
{
	struct fixture f;
	struct claim_spec s, back = {0};
	enum claim_made made = CLAIM_MADE;
	fixture_init(&f);
	spec_init(&f, 7, "true", &s);
	must_claim(&f, &s);
	assert_int_equal(count_names(&f, "new"), 0);
	assert_int_equal(claim_make(&f.root, &s, &made, NULL), 0);
	assert_int_equal(made, CLAIM_SAME_TOKEN);
	char token[ID_LEN];
	memcpy(token, s.token, ID_LEN);
	random_hex(16, s.token);
	assert_int_equal(claim_make(&f.root, &s, &made, NULL), 0);
	assert_int_equal(made, CLAIM_OTHER_TOKEN);
	assert_int_equal(count_names(&f, "new"), 0);
	CLEANUP_CLOSE int fd = claim_open(&f.root, &s.name);
	assert_int_equal(claim_read_spec(fd, &back, NULL), 0);
	assert_string_equal(back.token, token);
	claim_spec_done(&back);
	s.name.attempt = 2;
	must_claim(&f, &s);
	s.name.attempt = 3;
	assert_int_equal(claim_open(&f.root, &s.name), -ENOENT);
	claim_spec_done(&s);
	fixture_done(&f);
}

#define TOGETHER 70

static void orders_init(const struct fixture *f, struct claim_spec *s, struct claim_order *o)
{
	for (size_t i = 0; i < TOGETHER; i++) {
		spec_init(f, 100 + i, "true", &s[i]);
		o[i] = (struct claim_order){.spec = &s[i], .made = CLAIM_OTHER_TOKEN};
	}
}

static void orders_done(struct claim_spec *s)
{
	for (size_t i = 0; i < TOGETHER; i++)
		claim_spec_done(&s[i]);
}

/* Each of many has the outcome that it would have had alone. */
static void test_make_all(void **state)
{
	static struct claim_order o[TOGETHER];
	static struct claim_spec s[TOGETHER];
	struct fixture f;
	fixture_init(&f);
	orders_init(&f, s, o);
	must_claim(&f, &s[3]);
	must_claim(&f, &s[4]);
	random_hex(16, s[4].token);
	s[5].token[0] = '\0';
	/* One name twice in a portion, one token twice, and another queue between. */
	s[7].name = s[6].name;
	memcpy(s[9].token, s[8].token, ID_LEN);
	memset(s[10].name.queue, 'e', ID_LEN - 1);
	claim_make_all(&f.root, o, TOGETHER);
	for (size_t i = 0; i < TOGETHER; i++) {
		if (i != 5 && o[i].code)
			print_error("%zu: %s\n", i, o[i].err.text);
		assert_int_equal(o[i].code, i == 5 ? -EINVAL : 0);
		if (i != 5)
			assert_int_equal(o[i].made, i == 3	       ? CLAIM_SAME_TOKEN
						    : i == 4 || i == 7 ? CLAIM_OTHER_TOKEN
								       : CLAIM_MADE);
		if (i == 5 || i == 4 || i == 7)
			continue;
		struct claim_spec back = {0};
		CLEANUP_CLOSE int fd = claim_open(&f.root, &s[i].name);
		assert_int_equal(claim_read_spec(fd, &back, NULL), 0);
		assert_string_equal(back.token, s[i].token);
		assert_int_equal(back.name.job, s[i].name.job);
		claim_spec_done(&back);
		assert_int_equal(read_record(&f, &s[i]).state, ATTEMPT_CLAIMED);
	}
	assert_int_equal(count_names(&f, "new"), 0);
	orders_done(s);
	fixture_done(&f);
}

/* Two processes, one name: one claim, whole, and both know whose. */
static void race(bool same_token)
{
	struct fixture f;
	struct claim_spec s;
	fixture_init(&f);
	spec_init(&f, 1, "true", &s);
	for (int round = 0; round < 200; round++) {
		int go[2], answer[2];
		assert_int_equal(pipe(go), 0);
		assert_int_equal(pipe(answer), 0);
		s.name.job = (uint64_t)round + 1;
		random_hex(16, s.token);
		for (int i = 0; i < 2; i++) {
			if (fork() == 0) {
				struct {
					int code, made;
					char token[ID_LEN];
				} said = {0};
				enum claim_made made = CLAIM_MADE;
				char byte;
				close(go[1]);
				if (!same_token)
					random_hex(16, s.token);
				if (read(go[0], &byte, 1) != 0)
					_exit(1);
				said.code = claim_make(&f.root, &s, &made, NULL);
				said.made = (int)made;
				memcpy(said.token, s.token, ID_LEN);
				_exit(write(answer[1], &said, sizeof(said)) != sizeof(said));
			}
		}
		close(go[0]);
		close(go[1]);
		int n_made = 0, n_lost = 0;
		char winner[ID_LEN] = "";
		for (int i = 0; i < 2; i++) {
			struct {
				int code, made;
				char token[ID_LEN];
			} said;
			assert_int_equal(read(answer[0], &said, sizeof(said)), sizeof(said));
			assert_int_equal(said.code, 0);
			n_made += said.made == CLAIM_MADE;
			n_lost += said.made == (same_token ? CLAIM_SAME_TOKEN : CLAIM_OTHER_TOKEN);
			if (said.made == CLAIM_MADE)
				memcpy(winner, said.token, ID_LEN);
		}
		assert_int_equal(n_made, 1);
		assert_int_equal(n_lost, 1);
		while (wait(NULL) > 0)
			;
		close(answer[0]);
		close(answer[1]);
		struct claim_spec back = {0};
		struct claim_record rec;
		CLEANUP_CLOSE int fd = claim_open(&f.root, &s.name);
		assert_int_equal(claim_read_spec(fd, &back, NULL), 0);
		assert_string_equal(back.token, winner);
		assert_int_equal(claim_read_record(fd, &rec, NULL), 0);
		assert_int_equal(rec.state, ATTEMPT_CLAIMED);
		claim_spec_done(&back);
	}
	assert_int_equal(count_names(&f, "new"), 0);
	claim_spec_done(&s);
	fixture_done(&f);
}

static void test_race_other_token(void **state)
{
	race(false);
}

static void test_race_same_token(void **state)
{
	race(true);
}

/* What a crash left in the stage is taken over, and what it left under the name of a claim is no claim. */
static void test_make_after_a_crash(void **state)
{
	struct fixture f;
	struct claim_spec s, back = {0};
	char path[4096];
	fixture_init(&f);
	spec_init(&f, 7, "true", &s);
	snprintf(path, sizeof(path), "%s/new/%s", f.root.path, s.token);
	assert_int_equal(mkdir(path, 0700), 0);
	CLEANUP_CLOSE int stage = open(path, O_RDONLY | O_DIRECTORY);
	assert_int_equal(
		fd_replace_at(stage, "spec", "{\"half\": a spec that is longer than", 30, false),
		0);
	snprintf(path, sizeof(path), "%s/claims/%s", f.root.path, QUEUE);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/claims/%s/7.1", f.root.path, QUEUE);
	assert_int_equal(mkdir(path, 0700), 0); /* empty */
	must_claim(&f, &s);
	CLEANUP_CLOSE int fd = claim_open(&f.root, &s.name);
	assert_int_equal(claim_read_spec(fd, &back, NULL), 0);
	assert_string_equal(back.argv[2], "true");
	claim_spec_done(&back);
	claim_spec_done(&s);
	fixture_done(&f);
}

#ifdef GPUSTOW_FAULT_POINTS
static void test_make_fails_cleanly(void **state)
{
	static const char *const points[] = {"claim.before-sync:enospc",
		"claim.between-sync-and-rename:enospc", "claim.after-rename:enospc"};
	struct fixture f;
	struct claim_spec s;
	fixture_init(&f);
	spec_init(&f, 7, "true", &s);
	for (size_t i = 0; i < ARRAY_LEN(points); i++) {
		enum claim_made made = CLAIM_OTHER_TOKEN;
		setenv("GPUSTOW_FAULT", points[i], 1);
		f.e.text[0] = '\0';
		assert_int_equal(claim_make(&f.root, &s, &made, &f.e), -ENOSPC);
		unsetenv("GPUSTOW_FAULT");
		assert_non_null(strstr(f.e.text, f.root.path));
		assert_int_equal(made, CLAIM_OTHER_TOKEN);
		assert_int_equal(count_names(&f, "new"), 0);
		assert_int_equal(claim_open(&f.root, &s.name), -ENOENT);
	}
	must_claim(&f, &s);
	claim_spec_done(&s);
	fixture_done(&f);
}

/* Of many, what fails for one fails for it alone; a parent that can't be synced fails for all below it. */
static void test_make_all_fails_cleanly(void **state)
{
	static const struct {
		const char *fault;
		size_t n_failed; /* of the first portion, and of all */
	} rows[] = {{"claim.before-sync:enospc#3", 1},
		{"claim.between-sync-and-rename:enospc#3", 1},
		{"claim.after-rename:enospc#1", CLAIM_TOGETHER_MAX}};
	static struct claim_order o[TOGETHER];
	static struct claim_spec s[TOGETHER];
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct fixture f;
		int status;
		fixture_init(&f);
		orders_init(&f, s, o);
		/* The count of passages is a process's own. */
		pid_t pid = fork();
		if (pid == 0) {
			setenv("GPUSTOW_FAULT", rows[i].fault, 1);
			claim_make_all(&f.root, o, TOGETHER);
			size_t n = 0;
			for (size_t k = 0; k < TOGETHER; k++)
				n += o[k].code == -ENOSPC && strstr(o[k].err.text, f.root.path);
			_exit((int)n);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(WEXITSTATUS(status), rows[i].n_failed);
		assert_int_equal(count_names(&f, "claims/" QUEUE), TOGETHER - rows[i].n_failed);
		assert_int_equal(count_names(&f, "new"), 0);
		orders_done(s);
		fixture_done(&f);
	}
}

/* Killed between any two steps: what was born is whole, and the rest was never there. */
static void test_make_all_is_killed(void **state)
{
	static const struct {
		const char *fault;
		size_t n_born;
	} rows[] = {{"claim.before-sync:kill#3", 0}, {"claim.between-sync-and-rename:kill#1", 0},
		{"claim.between-sync-and-rename:kill#3", 2},
		{"claim.after-rename:kill#1", CLAIM_TOGETHER_MAX}};
	static struct claim_order o[TOGETHER];
	static struct claim_spec s[TOGETHER];
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct fixture f;
		int status;
		fixture_init(&f);
		orders_init(&f, s, o);
		pid_t pid = fork();
		if (pid == 0) {
			setenv("GPUSTOW_FAULT", rows[i].fault, 1);
			claim_make_all(&f.root, o, TOGETHER);
			_exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));
		assert_int_equal(count_names(&f, "claims/" QUEUE), rows[i].n_born);
		for (size_t k = 0; k < rows[i].n_born; k++)
			assert_int_equal(read_record(&f, &s[k]).state, ATTEMPT_CLAIMED);
		claim_make_all(&f.root, o, TOGETHER);
		for (size_t k = 0; k < TOGETHER; k++) {
			assert_int_equal(o[k].code, 0);
			assert_int_equal(
				o[k].made, k < rows[i].n_born ? CLAIM_SAME_TOKEN : CLAIM_MADE);
		}
		orders_done(s);
		fixture_done(&f);
	}
}

/* Another one opened the stage, slept, and wakes up when it has become a claim that was started: it must not touch it. */
static void test_late_stager_keeps_off(void **state)
{
	struct fixture f;
	struct claim_spec s;
	fixture_init(&f);
	spec_init(&f, 7, "true", &s);
	pid_t pid = fork();
	if (pid == 0) {
		enum claim_made made = CLAIM_MADE;
		setenv("GPUSTOW_FAULT", "claim.before-stage-lock:stop", 1);
		int r = claim_make(&f.root, &s, &made, NULL);
		_exit(r < 0 ? 1 : 10 + (int)made);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
	must_claim(&f, &s);
	struct claim_record rec = read_record(&f, &s);
	CLEANUP_CLOSE int fd = claim_open(&f.root, &s.name);
	rec.state = ATTEMPT_STARTED;
	rec.pid = 4242;
	assert_int_equal(claim_write_record(fd, &rec, false, NULL), 0);
	kill(pid, SIGCONT);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 10 + CLAIM_SAME_TOKEN);
	assert_int_equal(read_record(&f, &s).state, ATTEMPT_STARTED);
	assert_int_equal(read_record(&f, &s).pid, 4242);
	claim_spec_done(&s);
	fixture_done(&f);
}

/* Killed at each point: nothing, or all of it. */
static void test_make_is_killed(void **state)
{
	static const struct {
		const char *point;
		enum claim_made then;
	} rows[] = {
		{"claim.before-sync:kill", CLAIM_MADE},
		{"claim.between-sync-and-rename:kill", CLAIM_MADE},
		{"claim.after-rename:kill", CLAIM_SAME_TOKEN},
	};
	struct fixture f;
	struct claim_spec s;
	fixture_init(&f);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		spec_init(&f, i + 1, "true", &s);
		pid_t pid = fork();
		enum claim_made made = CLAIM_OTHER_TOKEN;
		if (pid == 0) {
			setenv("GPUSTOW_FAULT", rows[i].point, 1);
			claim_make(&f.root, &s, &made, NULL);
			_exit(0);
		}
		int status;
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));
		assert_int_equal(claim_make(&f.root, &s, &made, NULL), 0);
		assert_int_equal(made, rows[i].then);
		assert_int_equal(read_record(&f, &s).state, ATTEMPT_CLAIMED);
		claim_spec_done(&s);
	}
	fixture_done(&f);
}
#endif

/* A file system of 256 KB, filled to the last byte. */
static bool mount_tiny(struct fixture *f)
{
	char path[4096];
	snprintf(path, sizeof(path), "%s/tiny", f->dir);
	assert_int_equal(mkdir(path, 0700), 0);
	return mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "size=256k,mode=700") == 0;
}

static void fill_disk(const struct fixture *f)
{
	char path[4096];
	static const char block[4096] = {1};
	snprintf(path, sizeof(path), "%s/tiny/filler", f->dir);
	CLEANUP_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	while (write(fd, block, sizeof(block)) > 0)
		;
	assert_int_equal(errno, ENOSPC);
}

static void test_full_disk(void **state)
{
	struct fixture f;
	struct claim_spec s, t;
	char path[4096];
	fixture_init(&f);
	if (getuid() != 0 || !mount_tiny(&f)) {
		print_message("skipped: a full disk needs a mount, and that needs root\n");
		fixture_done(&f);
		skip();
	}
	root_done(&f.root);
	snprintf(path, sizeof(path), "%s/tiny/root", f.dir);
	assert_int_equal(root_open(&f.root, path, &f.e), 0);
	struct retired_index *x;
	assert_int_equal(retired_load(&f.root, &x, NULL), 0);
	spec_init(&f, 1, "true", &s);
	spec_init(&f, 2, "true", &t);
	must_claim(&f, &s);
	CLEANUP_CLOSE int fd = claim_open(&f.root, &s.name);
	fill_disk(&f);
	/* The next claim is refused and leaves nothing. */
	enum claim_made made;
	assert_int_equal(claim_make(&f.root, &t, &made, &f.e), -ENOSPC);
	assert_int_equal(count_names(&f, "new"), 0);
	assert_int_equal(claim_open(&f.root, &t.name), -ENOENT);
	/* The end of the one that's there is written, and so is the wish to end it. */
	fill_disk(&f);
	struct claim_record rec = read_record(&f, &s);
	rec.state = ATTEMPT_ENDED;
	rec.end = (struct attempt_end){.how = END_EXIT, .code = 3};
	assert_int_equal(claim_write_record(fd, &rec, true, NULL), 0);
	assert_int_equal(read_record(&f, &s).end.code, 3);
	assert_int_equal(claim_put_stop(fd, STOP_CANCEL, 1000), 0);
	/* It can't be retired, and stays what it was. */
	struct claim_retire item = {.name = s.name, .end = rec.end};
	memcpy(item.token, s.token, ID_LEN);
	assert_int_equal(claim_retire(&f.root, &item, 1, &f.e), -ENOSPC);
	assert_int_equal(read_record(&f, &s).end.code, 3);
	assert_int_equal(retired_count(x), 0);
	snprintf(path, sizeof(path), "%s/tiny/filler", f.dir);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(claim_retire(&f.root, &item, 1, &f.e), 0);
	assert_int_equal(claim_open(&f.root, &s.name), -ENOENT);
	assert_int_equal(retired_count(x), 1);
	must_claim(&f, &t);
	retired_free(x);
	close(fd);
	fd = -1;
	claim_spec_done(&s);
	claim_spec_done(&t);
	root_done(&f.root);
	snprintf(path, sizeof(path), "%s/tiny", f.dir);
	assert_int_equal(umount(path), 0);
	fixture_done(&f);
}

/* --- lock, stop, retired --- */

static void test_lock(void **state)
{
	struct fixture f;
	struct claim_spec s;
	fixture_init(&f);
	spec_init(&f, 7, "true", &s);
	must_claim(&f, &s);
	CLEANUP_CLOSE int fd = claim_open(&f.root, &s.name);
	pid_t holder = -1;
	assert_int_equal(claim_lock_holder(fd, &holder), 0);
	assert_int_equal(holder, 0);
	int ready[2], go[2];
	assert_int_equal(pipe(ready), 0);
	assert_int_equal(pipe(go), 0);
	pid_t pid = fork();
	if (pid == 0) {
		close(go[1]);
		int lock = claim_lock(fd);
		/* A child of the holder doesn't hold it, whatever it does with the descriptor. */
		pid_t inner = fork();
		if (inner == 0) {
			pid_t who = 0;
			_exit(claim_lock(fd) != -EAGAIN || claim_lock_holder(fd, &who) < 0 ||
				who != getppid() || close(lock) < 0);
		}
		int status;
		char byte;
		waitpid(inner, &status, 0);
		if (lock < 0 || status || write(ready[1], "", 1) < 0)
			_exit(1);
		_exit(read(go[0], &byte, 1) != 0);
	}
	char byte;
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(claim_lock(fd), -EAGAIN);
	assert_int_equal(claim_lock_holder(fd, &holder), 0);
	assert_int_equal(holder, pid);
	close(go[1]);
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	int lock = claim_lock(fd);
	assert_true(lock >= 0);
	close(lock);
	close(go[0]);
	close(ready[0]);
	claim_spec_done(&s);
	fixture_done(&f);
}

static void test_stop(void **state)
{
	struct fixture f;
	struct claim_spec s;
	enum stop_reason reason = STOP_NONE;
	int64_t grace = -1;
	fixture_init(&f);
	spec_init(&f, 7, "true", &s);
	must_claim(&f, &s);
	CLEANUP_CLOSE int fd = claim_open(&f.root, &s.name);
	assert_int_equal(claim_get_stop(fd, &reason, &grace), -ENOENT);
	assert_int_equal(claim_put_stop(fd, STOP_NONE, 5), -EINVAL);
	assert_int_equal(claim_put_stop(fd, STOP_SHUTDOWN, 2500), 0);
	assert_int_equal(claim_put_stop(fd, STOP_CANCEL, 1), 0);
	assert_int_equal(claim_get_stop(fd, &reason, &grace), 0);
	assert_int_equal(reason, STOP_SHUTDOWN);
	assert_int_equal(grace, 2500);
	/* A word of a build to come is a wish to end all the same. */
	assert_int_equal(unlinkat(fd, "stop", 0), 0);
	assert_int_equal(symlinkat("preempt 70 later", fd, "stop"), 0);
	assert_int_equal(claim_get_stop(fd, &reason, &grace), 0);
	assert_int_equal(reason, STOP_CANCEL);
	assert_int_equal(grace, 70);
	claim_spec_done(&s);
	fixture_done(&f);
}

static void retire(struct fixture *f, const struct claim_spec *s, int32_t code)
{
	struct claim_retire item = {
		.name = s->name, .end = {.how = END_EXIT, .code = code, .text = "a \"quoted\" ü"}};
	memcpy(item.token, s->token, ID_LEN);
	assert_int_equal(claim_retire(&f->root, &item, 1, &f->e), 0);
}

static int count_claim(void *arg, const struct attempt_name *n, int claim_fd)
{
	struct claim_record rec;
	assert_int_equal(claim_read_record(claim_fd, &rec, NULL), 0);
	*(uint64_t *)arg += n->job;
	return n->job == 1000 ? 42 : 0;
}

static void test_retired(void **state)
{
	struct fixture f;
	struct claim_spec s;
	struct retired_index *x;
	enum claim_made made;
	char token[ID_LEN];
	struct attempt_end end;
	fixture_init(&f);
	assert_int_equal(retired_load(&f.root, &x, NULL), 0);
	spec_init(&f, 1, "true", &s);
	for (uint64_t i = 1; i <= 300; i++) {
		s.name.job = i;
		must_claim(&f, &s);
		if (i > 200)
			continue;
		retire(&f, &s, (int32_t)i);
		assert_int_equal(claim_open(&f.root, &s.name), -ENOENT);
	}
	assert_int_equal(retired_count(x), 200);
	assert_int_equal(count_names(&f, "new"), 0);
	/* A name that was retired is never born again, by this agent or the next one. */
	for (int round = 0; round < 2; round++) {
		for (uint64_t i = 1; i <= 200; i++) {
			s.name.job = i;
			assert_int_equal(retired_find(x, &s.name, token, &end), 0);
			assert_string_equal(token, s.token);
			assert_int_equal(end.code, i);
			assert_string_equal(end.text, "a \"quoted\" ü");
			assert_int_equal(claim_make(&f.root, &s, &made, NULL), 0);
			assert_int_equal(made, CLAIM_SAME_TOKEN);
		}
		s.name.attempt = 2;
		assert_int_equal(retired_find(x, &s.name, token, &end), -ENOENT);
		s.name.attempt = 1;
		s.name.job = 201;
		assert_int_equal(retired_find(x, &s.name, token, &end), -ENOENT);
		retired_free(x);
		assert_null(f.root.retired);
		assert_int_equal(retired_load(&f.root, &x, NULL), 0);
		assert_int_equal(retired_count(x), 200);
	}
	char other[ID_LEN];
	memcpy(other, s.token, ID_LEN);
	random_hex(16, s.token);
	s.name.job = 3;
	assert_int_equal(claim_make(&f.root, &s, &made, NULL), 0);
	assert_int_equal(made, CLAIM_OTHER_TOKEN);
	memcpy(s.token, other, ID_LEN);
	uint64_t sum = 0;
	assert_int_equal(claim_each(&f.root, count_claim, &sum), 0);
	assert_int_equal(sum, (201 + 300) * 100 / 2);
	s.name.job = 1000;
	must_claim(&f, &s);
	assert_int_equal(claim_each(&f.root, count_claim, &sum), 42);
	claim_spec_done(&s);
	fixture_done(&f);
}

static uint64_t inode_of(const struct fixture *f, const struct attempt_name *n)
{
	struct sys_stat st = {0};
	CLEANUP_CLOSE int fd = claim_open(&f->root, n);
	assert_int_equal(sys_fstat(fd, &st), 0);
	return st.ino;
}

/* What is retired is written over by the next claim, and nothing of it shines through. */
static void test_spares(void **state)
{
	struct fixture f;
	struct claim_spec s, found;
	struct retired_index *x;
	char long_command[3000];
	fixture_init(&f);
	assert_int_equal(retired_load(&f.root, &x, NULL), 0);
	memset(long_command, 'x', sizeof(long_command) - 1);
	long_command[sizeof(long_command) - 1] = '\0';
	spec_init(&f, 1, long_command, &s);
	must_claim(&f, &s);
	uint64_t first = inode_of(&f, &s.name);
	retire(&f, &s, 0);
	assert_int_equal(count_names(&f, "new"), 1);
	claim_spec_done(&s);

	spec_init(&f, 2, "true", &s);
	must_claim(&f, &s);
	assert_int_equal(count_names(&f, "new"), 0);
	assert_int_equal(inode_of(&f, &s.name), first);
	CLEANUP_CLOSE int fd = claim_open(&f.root, &s.name);
	assert_int_equal(claim_read_spec(fd, &found, &f.e), 0);
	assert_string_equal(found.argv[2], "true");
	assert_string_equal(found.token, s.token);
	assert_int_equal(found.name.job, 2);
	claim_spec_done(&found);
	struct claim_record rec = read_record(&f, &s);
	assert_int_equal(rec.state, ATTEMPT_CLAIMED);
	assert_int_equal(rec.seq, 1);

	/* Somebody's wish to end stays with the claim it was for. */
	assert_int_equal(claim_put_stop(fd, STOP_CANCEL, 0), 0);
	retire(&f, &s, 0);
	assert_int_equal(count_names(&f, "new"), 0);

	/* Nor does a text that was staged for one come to another. */
	s.name.job = 3;
	must_claim(&f, &s);
	CLEANUP_CLOSE int with_body = claim_open(&f.root, &s.name);
	close(openat(with_body, "body", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	retire(&f, &s, 0);
	assert_int_equal(count_names(&f, "new"), 0);

	/* No more than a few are kept, and if they vanish that's no harm. */
	for (uint64_t i = 10; i < 160; i++) {
		s.name.job = i;
		must_claim(&f, &s);
	}
	for (uint64_t i = 10; i < 160; i++) {
		s.name.job = i;
		retire(&f, &s, 0);
	}
	size_t kept = count_names(&f, "new");
	assert_true(kept >= 8 && kept <= 128);
	/* They outlast a sweep as long as this root means to use them; what is over is swept. */
	claim_sweep_stage(&f.root, clock_wall_ms());
	assert_int_equal(count_names(&f, "new"), kept);
	f.root.n_spares -= 3;
	claim_sweep_stage(&f.root, clock_wall_ms());
	assert_int_equal(count_names(&f, "new"), kept - 3);
	unsigned n_spares = f.root.n_spares;
	f.root.n_spares = 0;
	claim_sweep_stage(&f.root, clock_wall_ms());
	assert_int_equal(count_names(&f, "new"), 0);
	f.root.n_spares = n_spares;
	for (uint64_t i = 160; i < 180; i++) {
		s.name.job = i;
		must_claim(&f, &s);
	}
	claim_spec_done(&s);
	fixture_done(&f);
}

/* It serves under its own name until it's a claim: who dies in between leaves nothing that could be one, or be in the way. */
static void test_killed_with_a_spare(void **state)
{
	struct fixture f;
	struct claim_spec s;
	struct retired_index *x;
	int status;
	fixture_init(&f);
	assert_int_equal(retired_load(&f.root, &x, NULL), 0);
	spec_init(&f, 1, "true", &s);
	must_claim(&f, &s);
	retire(&f, &s, 0);
	s.name.job = 2;
	pid_t pid = fork();
	if (pid == 0) {
		enum claim_made made;
		setenv("GPUSTOW_FAULT", "claim.between-sync-and-rename:kill#1", 1);
		claim_make(&f.root, &s, &made, NULL);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(claim_open(&f.root, &s.name), -ENOENT);
	assert_int_equal(count_names(&f, "new"), 1);
	f.root.n_spares = 0; /* the next agent knows of none */
	claim_sweep_stage(&f.root, clock_wall_ms());
	assert_int_equal(count_names(&f, "new"), 0);
	must_claim(&f, &s);
	assert_int_equal(read_record(&f, &s).state, ATTEMPT_CLAIMED);
	claim_spec_done(&s);
	fixture_done(&f);
}

/* A power cut that undoes the renames leaves the next claim's files under the old, retired name. */
static void test_spare_under_its_old_name(void **state)
{
	struct fixture f;
	struct claim_spec s;
	struct retired_index *x;
	char from[ATTEMPT_NAME_LEN + 16], to[ATTEMPT_NAME_LEN + 16], name[ATTEMPT_NAME_LEN];
	uint64_t sum = 0;
	fixture_init(&f);
	assert_int_equal(retired_load(&f.root, &x, NULL), 0);
	spec_init(&f, 1, "true", &s);
	must_claim(&f, &s);
	retire(&f, &s, 0);
	attempt_name_format(&s.name, name);
	snprintf(to, sizeof(to), "claims/%s", name);
	s.name.job = 2;
	random_hex(16, s.token);
	must_claim(&f, &s);
	attempt_name_format(&s.name, name);
	snprintf(from, sizeof(from), "claims/%s", name);
	assert_int_equal(renameat(f.root.fd, from, f.root.fd, to), 0);
	assert_int_equal(claim_each(&f.root, count_claim, &sum), 0);
	assert_int_equal(sum, 0);
	assert_int_equal(count_names(&f, "claims/" QUEUE), 0);
	claim_spec_done(&s);
	fixture_done(&f);
}

/* A name in the file that a queue retired `age_ms` before `now_ms`. */
static void put_retired(FILE *f, uint64_t job, int64_t ended_ms)
{
	fprintf(f,
		QUEUE
		"/%llu.1 " QUEUE
		" {\"how\":\"exit\",\"reason\":\"none\",\"code\":%d,\"by_signal\":false,"
		"\"was_killed\":false,\"seen_by_shim\":true,\"started_boot_ms\":1,\"ended_boot_ms\":2,"
		"\"started_wall_ms\":3,\"ended_wall_ms\":%lld,\"text\":\"\"}\n",
		(unsigned long long)job, job == 9 ? 3 : 0, (long long)ended_ms);
}

/* When it ended; 0: its line doesn't say so any more, -1: there's none. */
static int64_t find_retired(const struct fixture *f, uint64_t job)
{
	struct attempt_name n = {.queue = QUEUE, .job = job, .attempt = 1};
	struct attempt_end end;
	char token[ID_LEN];
	if (retired_find(f->root.retired, &n, token, &end))
		return -1;
	assert_string_equal(token, QUEUE);
	assert_int_equal(end.how, END_EXIT);
	assert_int_equal(end.code, job == 9 ? 3 : 0);
	return end.ended_wall_ms;
}

/* Of 25,000: old ones to 14,000, young ones to 14,500, old ones again. What is young or among the newest 10,000 stays whole. */
static void write_retired(const struct fixture *f, int64_t now_ms)
{
	char path[4096];
	snprintf(path, sizeof(path), "%s/retired", f->root.path);
	FILE *file = fopen(path, "we");
	assert_non_null(file);
	for (uint64_t i = 1; i <= 25000; i++)
		put_retired(file, i,
			now_ms - RETIRED_KEEP_MS + (i > 14000 && i <= 14500 ? 1000 : -1000));
	assert_int_equal(fclose(file), 0);
}

static void test_retired_are_compacted(void **state)
{
	struct fixture f;
	struct claim_spec s;
	struct retired_index *x;
	int64_t now_ms = clock_wall_ms();
	struct sys_stat before, after;
	fixture_init(&f);
	write_retired(&f, now_ms);
	assert_int_equal(retired_load(&f.root, &x, NULL), 0);
	assert_int_equal(retired_count(x), 25000);
	assert_int_equal(sys_stat_at(f.root.fd, "retired", 0, &before), 0);

	assert_int_equal(retired_compact(&f.root, now_ms, &f.e), 14500);
	assert_ptr_equal(f.root.retired, x);
	assert_int_equal(retired_count(x), 25000);
	for (uint64_t i = 1; i <= 25000; i++)
		assert_int_equal(find_retired(&f, i) > 0, (i > 14000 && i <= 14500) || i > 15000);
	assert_int_equal(find_retired(&f, 1), 0);
	assert_int_equal(sys_stat_at(f.root.fd, "retired", 0, &after), 0);
	assert_true(after.size < before.size * 2 / 3);
	/* However old, its name can't be claimed again: not by who had it, nor by anybody else. */
	enum claim_made made;
	spec_init(&f, 9, "true", &s);
	assert_int_equal(claim_make(&f.root, &s, &made, &f.e), 0);
	assert_int_equal(made, CLAIM_OTHER_TOKEN);
	memcpy(s.token, QUEUE, ID_LEN);
	assert_int_equal(claim_make(&f.root, &s, &made, &f.e), 0);
	assert_int_equal(made, CLAIM_SAME_TOKEN);
	claim_spec_done(&s);

	/* The index follows the new file: what is retired from now on is known, now and to the next agent. */
	spec_init(&f, 30000, "true", &s);
	must_claim(&f, &s);
	retire(&f, &s, 3);
	assert_int_equal(retired_count(x), 25001);
	assert_int_equal(retired_compact(&f.root, now_ms, &f.e), 0);
	retired_free(x);
	assert_int_equal(retired_load(&f.root, &x, NULL), 0);
	assert_int_equal(retired_count(x), 25001);
	struct attempt_end end;
	char token[ID_LEN];
	assert_int_equal(retired_find(x, &s.name, token, &end), 0);
	assert_string_equal(token, s.token);
	assert_int_equal(find_retired(&f, 9), 0);
	assert_true(find_retired(&f, 20000) > 0);
	claim_spec_done(&s);
	fixture_done(&f);
}

/* Killed before the rename the file is what it was; an error leaves file and index alone. */
static void test_compacting_is_killed(void **state)
{
	struct fixture f;
	struct retired_index *x;
	int64_t now_ms = clock_wall_ms();
	fixture_init(&f);
	write_retired(&f, now_ms);
	assert_int_equal(retired_load(&f.root, &x, NULL), 0);
	for (int kills = 0; kills < 2; kills++) {
		pid_t pid = fork();
		if (pid == 0) {
			setenv("GPUSTOW_FAULT",
				kills ? "retired.before-rename:kill"
				      : "retired.before-rename:enospc",
				1);
			int code = (int)retired_compact(&f.root, now_ms, NULL);
			_exit(code == -ENOSPC && retired_count(f.root.retired) == 25000 ? 0 : 1);
		}
		int status = 0;
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(
			kills ? WIFSIGNALED(status) : WIFEXITED(status) && !WEXITSTATUS(status));
		retired_free(x);
		assert_int_equal(retired_load(&f.root, &x, NULL), 0);
		assert_int_equal(retired_count(x), 25000);
	}
	/* What the killed one left is in nobody's way. */
	assert_int_equal(retired_compact(&f.root, now_ms, &f.e), 14500);
	assert_int_equal(retired_count(x), 25000);
	assert_int_equal(find_retired(&f, 1), 0);
	fixture_done(&f);
}

/* Half a line went in before the disk was full: it's taken out again. */
static void test_retired_line_cut_short(void **state)
{
	struct fixture f;
	struct claim_spec s;
	char path[4096];
	struct sys_stat before, after;
	fixture_init(&f);
	spec_init(&f, 1, "true", &s);
	must_claim(&f, &s);
	retire(&f, &s, 1);
	snprintf(path, sizeof(path), "%s/retired", f.root.path);
	assert_int_equal(sys_stat_at(AT_FDCWD, path, 0, &before), 0);
	s.name.job = 2;
	must_claim(&f, &s);
	pid_t pid = fork();
	if (pid == 0) {
		struct rlimit limit = {(rlim_t)before.size + 40, (rlim_t)before.size + 40};
		struct claim_retire item = {.name = s.name, .end = {.how = END_EXIT}};
		memcpy(item.token, s.token, ID_LEN);
		signal(SIGXFSZ, SIG_IGN);
		setrlimit(RLIMIT_FSIZE, &limit);
		_exit(claim_retire(&f.root, &item, 1, NULL) != -EFBIG);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(sys_stat_at(AT_FDCWD, path, 0, &after), 0);
	assert_int_equal(after.size, before.size);
	assert_int_equal(read_record(&f, &s).state, ATTEMPT_CLAIMED);
	claim_spec_done(&s);
	fixture_done(&f);
}

#ifdef GPUSTOW_FAULT_POINTS
/* A line that a crash tore doesn't swallow the next, and a claim that has its line already is cleared away. */
static void test_retired_after_a_crash(void **state)
{
	struct fixture f;
	struct claim_spec s;
	struct retired_index *x;
	char token[ID_LEN], path[4096];
	struct attempt_end end;
	fixture_init(&f);
	spec_init(&f, 1, "true", &s);
	must_claim(&f, &s);
	retire(&f, &s, 1);
	snprintf(path, sizeof(path), "%s/retired", f.root.path);
	CLEANUP_CLOSE int fd = open(path, O_WRONLY | O_APPEND);
	static const char torn[] = QUEUE "/2.1 0123456789abcdef";
	assert_int_equal(write(fd, torn, sizeof(torn) - 1), sizeof(torn) - 1);
	assert_int_equal(retired_load(&f.root, &x, NULL), 0);
	assert_int_equal(retired_count(x), 1);
	s.name.job = 2;
	must_claim(&f, &s);
	s.name.job = 3;
	must_claim(&f, &s);
	retire(&f, &s, 33);
	assert_int_equal(retired_find(x, &s.name, token, &end), 0);
	assert_int_equal(end.code, 33);
	s.name.job = 2;
	assert_int_equal(retired_find(x, &s.name, token, &end), -ENOENT);
	assert_int_equal(claim_open(&f.root, &s.name) >= 0, 1);
	retired_free(x);

	pid_t pid = fork();
	if (pid == 0) {
		setenv("GPUSTOW_FAULT", "claim.after-retired-line:kill", 1);
		retire(&f, &s, 22);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(retired_load(&f.root, &x, NULL), 0);
	assert_int_equal(retired_find(x, &s.name, token, &end), 0);
	assert_int_equal(end.code, 22);
	uint64_t sum = 0;
	assert_int_equal(claim_each(&f.root, count_claim, &sum), 0);
	assert_int_equal(sum, 0);
	assert_int_equal(claim_open(&f.root, &s.name), -ENOENT);
	claim_spec_done(&s);
	fixture_done(&f);
}

#endif

static void test_sweep(void **state)
{
	struct fixture f;
	char path[4096];
	fixture_init(&f);
	static const char *const names[] = {"0123456789abcdef0123456789abcdef",
		"1123456789abcdef0123456789abcdef", "gone-2123456789abcdef0123456789abcdef"};
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		snprintf(path, sizeof(path), "%s/new/%s", f.root.path, names[i]);
		assert_int_equal(mkdir(path, 0700), 0);
		snprintf(path, sizeof(path), "%s/new/%s/spec", f.root.path, names[i]);
		assert_int_equal(mknod(path, S_IFREG | 0600, 0), 0);
	}
	int64_t now = clock_wall_ms();
	snprintf(path, sizeof(path), "%s/new/%s", f.root.path, names[1]);
	struct timespec old[2] = {{.tv_sec = now / 1000 - 3700}, {.tv_sec = now / 1000 - 3700}};
	assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
	claim_sweep_stage(&f.root, now);
	assert_int_equal(count_names(&f, "new"), 1);
	claim_sweep_stage(&f.root, now + 3700 * 1000);
	assert_int_equal(count_names(&f, "new"), 0);
	fixture_done(&f);
}

static void test_end_as_json(void **state)
{
	struct attempt_end end = {.how = END_STOPPED,
				   .reason = STOP_SHUTDOWN,
				   .code = 15,
				   .by_signal = true,
				   .started_boot_ms = 5,
				   .ended_boot_ms = 9,
				   .ended_wall_ms = 1700000000000,
				   .text = "x"},
			   back = {0};
	json_t *o = attempt_end_encode(&end);
	assert_int_equal(attempt_end_decode(o, &back, NULL), 0);
	assert_memory_equal(&end, &back, sizeof(end));
	struct err e;
	json_object_set_new(o, "how", json_string("eaten"));
	assert_int_equal(attempt_end_decode(o, &back, &e), -EINVAL);
	json_object_set_new(o, "how", json_string("exit"));
	json_object_set_new(o, "code", json_integer((json_int_t)1 << 40));
	assert_int_equal(attempt_end_decode(o, &back, &e), -EINVAL);
	assert_memory_equal(&end, &back, sizeof(end));
	json_decref(o);
}

static int run_all(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_root),
		cmocka_unit_test(test_root_refuses_a_place_that_is_not_ours_alone),
		cmocka_unit_test(test_root_path),
		cmocka_unit_test(test_socket_names),
		cmocka_unit_test(test_spec_round_trip),
		cmocka_unit_test(test_spec_of_a_queue_job),
		cmocka_unit_test(test_spec_refuses),
		cmocka_unit_test(test_later_variable_wins),
		cmocka_unit_test(test_slots),
		cmocka_unit_test(test_slots_of_other_builds),
		cmocka_unit_test(test_records_are_written_in_turn),
		cmocka_unit_test(test_make_twice),
		cmocka_unit_test(test_make_all),
		cmocka_unit_test(test_race_other_token),
		cmocka_unit_test(test_race_same_token),
		cmocka_unit_test(test_make_after_a_crash),
#ifdef GPUSTOW_FAULT_POINTS
		cmocka_unit_test(test_make_fails_cleanly),
		cmocka_unit_test(test_make_all_fails_cleanly),
		cmocka_unit_test(test_make_all_is_killed),
		cmocka_unit_test(test_late_stager_keeps_off),
		cmocka_unit_test(test_make_is_killed),
		cmocka_unit_test(test_retired_after_a_crash),
#endif
		cmocka_unit_test(test_full_disk),
		cmocka_unit_test(test_lock),
		cmocka_unit_test(test_stop),
		cmocka_unit_test(test_retired),
		cmocka_unit_test(test_spares),
		cmocka_unit_test(test_killed_with_a_spare),
		cmocka_unit_test(test_spare_under_its_old_name),
		cmocka_unit_test(test_retired_are_compacted),
		cmocka_unit_test(test_compacting_is_killed),
		cmocka_unit_test(test_retired_line_cut_short),
		cmocka_unit_test(test_sweep),
		cmocka_unit_test(test_end_as_json),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return guarded(run_all);
}
