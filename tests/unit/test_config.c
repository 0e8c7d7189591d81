/* config.yml as it's read: every default, every mistake with its sentence, aliases of keys, ranges, the file's mode, the home. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "config/config_inner.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void parse(const char *text, struct config *c)
{
	struct err e = {0};

	if (config_parse(text, strlen(text), "/h/config.yml", c, &e) < 0)
		fail_msg("%s\n%s", e.text, text);
}

static void defaults(void **state)
{
	static const char *const empty[] = {"", "\n", "# nothing\n", "---\n", "~\n", "{}\n",
		"basic:\n", "servers:\n", "servers: []\n", "view:\nqueue:\nbasic: {}\n",
		"\xef\xbb\xbf# bom\n"};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(empty); i++) {
		CLEANUP(config_done) struct config c = {.compact = true};

		parse(empty[i], &c);
		assert_false(c.compact);
		assert_false(c.remote);
		assert_false(c.is_missing);
		assert_int_equal(c.n_servers, 0);
		assert_int_equal(c.warnings.len, 0);
		assert_string_equal(c.path, "/h/config.yml");
	}
}

static void server_defaults(void **state)
{
	CLEANUP(config_done) struct config c = {0};
	const struct host_config *h;

	(void)state;
	parse("servers:\n- hostname: a\n- {hostname: b, username: u, port: 2222}\n", &c);
	assert_int_equal(c.n_servers, 2);
	h = &c.servers[0];
	assert_string_equal(h->hostname, "a");
	assert_string_equal(h->nickname, "a:22");
	assert_int_equal(h->port, 22);
	assert_int_equal(h->auth, AUTH_AUTO);
	assert_null(h->username);
	assert_null(h->identityfile);
	assert_null(h->password);
	assert_null(h->proxyjump);
	assert_null(h->agent_dir);
	assert_false(h->has_gpus);
	assert_int_equal(h->line, 2);
	assert_string_equal(c.servers[1].nickname, "u@b:2222");
	assert_int_equal(c.servers[1].line, 3);
}

static void everything(void **state)
{
	CLEANUP(config_done) struct config c = {0};
	const struct host_config *h;

	(void)state;
	setenv("HOME", "/home/ann", 1);
	parse("basic: {compact: On, remote: YES}\n"
	      "servers:\n"
	      "- host: a\n  description: one\n  port: 0x16\n  username: no\n  password: 0x10\n  auth: password\n"
	      "  identityfile: ~/.ssh/id\n  proxyjump: ' a , b@c:23,[::1],u@[fe80::1]:22 '\n  gpus: [3, 0x1, 3, 1_0]\n"
	      "  agent_dir: /scratch\n"
	      "- hostname: 2001:db8::1\n  nickname: two\n  port: \"23\"\n  proxyjump: [x, 'u@y']\n  gpu_ids: []\n"
	      "- hostname: c\n  username: ~\n  password:\n  proxyjump: None\n  gpus:\n  auth: key\n  nickname: !!str 12\n",
		&c);
	assert_true(c.compact && c.remote);
	h = &c.servers[0];
	assert_string_equal(h->hostname, "a");
	assert_string_equal(h->nickname, "one");
	assert_int_equal(h->port, 22);
	assert_string_equal(h->username, "no");
	assert_string_equal(h->password, "0x10");
	assert_int_equal(h->auth, AUTH_PASSWORD);
	assert_string_equal(h->identityfile, "/home/ann/.ssh/id");
	assert_string_equal(h->proxyjump, "a,b@c:23,[::1],u@[fe80::1]:22");
	assert_string_equal(h->agent_dir, "/scratch");
	assert_true(h->has_gpus);
	assert_int_equal(h->n_gpus, 3);
	assert_int_equal(h->gpus[0], 3);
	assert_int_equal(h->gpus[1], 1);
	assert_int_equal(h->gpus[2], 10);
	h = &c.servers[1];
	assert_int_equal(h->port, 23);
	assert_string_equal(h->proxyjump, "x,u@y");
	assert_true(h->has_gpus && h->n_gpus == 0);
	h = &c.servers[2];
	assert_null(h->username);
	assert_null(h->password);
	assert_null(h->proxyjump);
	assert_false(h->has_gpus);
	assert_int_equal(h->auth, AUTH_KEY);
	assert_string_equal(h->nickname, "12");
	assert_string_equal(buf_str(&c.warnings),
		"config.yml line 3: host: is an old name; write hostname:\n"
		"config.yml line 4: description: is an old name; write nickname:\n");
}

static void mistakes(void **state)
{
#define S "servers:\n- hostname: a\n  "
	static const struct {
		const char *text, *sentence;
	} rows[] = {
		{"- a\n", "config.yml line 1: the file must hold lines \"key: value\""},
		{"text\n", "config.yml line 1: the file must hold lines \"key: value\""},
		{"a: 1\nb: [\n",
			"config.yml line 3: this isn't YAML: while parsing a flow node, did not find expected node content"},
		{"a: 'b\n",
			"config.yml line 2: this isn't YAML: while scanning a quoted scalar, found unexpected end of stream"},
		{"basic:\n\tremote: true\n",
			"config.yml line 2: a tab stands where YAML takes only blanks"},
		{"a: \x01\n",
			"config.yml line 1: this isn't YAML: control characters are not allowed"},
		{"a: 1\nb: \xff\n", "config.yml line 2: this isn't UTF-8; save the file as UTF-8"},
		{"a: 1\n---\nb: 2\n",
			"config.yml line 2: a second document begins here; one file holds one"},
		{"a: &x 1\n",
			"config.yml line 1: anchors and aliases (&name, *name) aren't read here; write the values out"},
		{"a: 1\nb: {<<: *x}\n",
			"config.yml line 2: anchors and aliases (&name, *name) aren't read here; write the values out"},
		{"[a]: 1\n", "config.yml line 1: the file has a key that isn't a word"},
		{"basic:\n  remote: true\nbasic:\n",
			"config.yml line 3: the file has the key 'basic' twice, here and in line 1; keep one"},
		{"basic: 1\n", "config.yml line 1: basic: must hold lines \"key: value\""},
		{"basic: !!map {remote: 1}\n",
			"config.yml line 1: basic: must hold lines \"key: value\""},
		{"basic:\n  remote: 1\n",
			"config.yml line 2: remote: '1' won't do; write true or false, without quotes"},
		{"basic:\n  compact: 'true'\n",
			"config.yml line 2: compact: 'true' won't do; write true or false, without quotes"},
		{"basic:\n  compact: y\n",
			"config.yml line 2: compact: 'y' won't do; write true or false, without quotes"},
		{"basic:\n  compact: [true]\n",
			"config.yml line 2: compact: write true or false, without quotes"},
		{"basic:\n  compact: !!bool true\n",
			"config.yml line 2: compact: 'true' won't do; write true or false, without quotes"},
		{"view: [a]\n", "config.yml line 1: view: must hold lines \"key: value\""},
		{"queue: 3\n", "config.yml line 1: queue: must hold lines \"key: value\""},
		{"servers: a\n",
			"config.yml line 1: servers: must be a list; each server begins with \"- hostname: ...\""},
		{"servers: {hostname: a}\n",
			"config.yml line 1: servers: must be a list; each server begins with \"- hostname: ...\""},
		{"servers:\n- a\n", "config.yml line 2: a server must hold lines \"key: value\""},
		{"servers:\n- username: u\n",
			"config.yml line 2: hostname: is missing; every server needs one"},
		{"servers:\n- hostname:\n",
			"config.yml line 2: hostname: is missing; every server needs one"},
		{"servers:\n- hostname: a\n  host: b\n",
			"config.yml line 3: hostname: and host: mean the same; keep hostname:"},
		{"servers:\n- hostname: a\n  gpu_ids: [1]\n  gpus: [1]\n",
			"config.yml line 4: gpu_ids: and gpus: mean the same; keep gpus:"},
		{"servers:\n- hostname: -oProxyCommand=x\n",
			"config.yml line 2: hostname: '-oProxyCommand=x' won't do; write a host's name, address or ssh alias"},
		{"servers:\n- hostname: a b\n",
			"config.yml line 2: hostname: 'a b' won't do; write a host's name, address or ssh alias"},
		{"servers:\n- hostname: a;b\n",
			"config.yml line 2: hostname: 'a;b' won't do; write a host's name, address or ssh alias"},
		{"servers:\n- hostname: u@a\n",
			"config.yml line 2: hostname: 'u@a' won't do; the part before @ goes into username:"},
		{"servers:\n- hostname: [a]\n",
			"config.yml line 2: hostname: takes one value, not a list or a mapping"},
		{"servers:\n- hostname: \"a\\0b\"\n",
			"config.yml line 2: hostname: it holds control characters; write plain text"},
		{"servers:\n- hostname: \"a\\eb\"\n",
			"config.yml line 2: hostname: it holds control characters; write plain text"},
		{S "port: 0\n",
			"config.yml line 3: port: '0' won't do; write a number from 1 to 65535"},
		{S "port: 65536\n",
			"config.yml line 3: port: '65536' won't do; write a number from 1 to 65535"},
		{S "port: -22\n",
			"config.yml line 3: port: '-22' won't do; write a number from 1 to 65535"},
		{S "port: 99999999999999999999\n",
			"config.yml line 3: port: '99999999999999999999' won't do; write a number from 1 to 65535"},
		{S "port: ssh\n",
			"config.yml line 3: port: 'ssh' won't do; write a number from 1 to 65535"},
		{S "port: true\n",
			"config.yml line 3: port: 'true' won't do; write a number from 1 to 65535"},
		{S "port: 22.0\n",
			"config.yml line 3: port: '22.0' won't do; write a number from 1 to 65535"},
		{S "port: 022\n",
			"config.yml line 3: port: YAML reads 022 as another number; write it without the leading 0 or colon"},
		{S "port: 1:30\n",
			"config.yml line 3: port: YAML reads 1:30 as another number; write it without the leading 0 or colon"},
		{S "username: a b\n",
			"config.yml line 3: username: 'a b' won't do; write the account's name on that host"},
		{S "username: -x\n",
			"config.yml line 3: username: '-x' won't do; write the account's name on that host"},
		{S "auth: kerberos\n",
			"config.yml line 3: auth: 'kerberos' won't do; write auto, key or password"},
		{S "identityfile: -x\n",
			"config.yml line 3: identityfile: '-x' won't do; a path can't begin with a hyphen; write ./ in front"},
		{S "password: \"se\\ncret\"\n",
			"config.yml line 3: password: it holds control characters; write plain text"},
		{S "password: [secret]\n",
			"config.yml line 3: password: takes one value, not a list or a mapping"},
		{S "proxyjump: a,none\n",
			"config.yml line 3: proxyjump: 'a,none' won't do; none stands alone: it means a direct connection"},
		{S "proxyjump: a,,b\n",
			"config.yml line 3: proxyjump: 'a,,b' won't do; write [user@]host[:port], several with commas, an IPv6 address in brackets"},
		{S "proxyjump: a:0\n",
			"config.yml line 3: proxyjump: 'a:0' won't do; write [user@]host[:port], several with commas, an IPv6 address in brackets"},
		{S "proxyjump: a:65536\n",
			"config.yml line 3: proxyjump: 'a:65536' won't do; write [user@]host[:port], several with commas, an IPv6 address in brackets"},
		{S "proxyjump: ::1\n",
			"config.yml line 3: proxyjump: '::1' won't do; write [user@]host[:port], several with commas, an IPv6 address in brackets"},
		{S "proxyjump: '@a'\n",
			"config.yml line 3: proxyjump: '@a' won't do; write [user@]host[:port], several with commas, an IPv6 address in brackets"},
		{S "proxyjump: '-J x'\n",
			"config.yml line 3: proxyjump: '-J x' won't do; write [user@]host[:port], several with commas, an IPv6 address in brackets"},
		{S "proxyjump: '[::1'\n",
			"config.yml line 3: proxyjump: '[::1' won't do; write [user@]host[:port], several with commas, an IPv6 address in brackets"},
		{S "gpus: 0\n",
			"config.yml line 3: gpus: takes a list of GPU numbers, as [0, 1]; [] means no GPU jobs there"},
		{S "gpus: [true]\n",
			"config.yml line 3: gpus: each entry is a whole number from 0 to 1023, without quotes"},
		{S "gpus: [0,\n   -1]\n",
			"config.yml line 4: gpus: each entry is a whole number from 0 to 1023, without quotes"},
		{S "gpus: ['0']\n",
			"config.yml line 3: gpus: each entry is a whole number from 0 to 1023, without quotes"},
		{S "gpus: [1.0]\n",
			"config.yml line 3: gpus: each entry is a whole number from 0 to 1023, without quotes"},
		{S "gpus: [1024]\n",
			"config.yml line 3: gpus: each entry is a whole number from 0 to 1023, without quotes"},
		{S "port: 1\n  port: 2\n",
			"config.yml line 4: a server has the key 'port' twice, here and in line 3; keep one"},
		{"servers:\n- hostname: a\n\n- hostname: a\n",
			"config.yml line 4: nickname: 'a:22' belongs to the server in line 2 already; names are unique"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct config c = {.n_servers = 77};
		struct err e = {0};
		int r = config_parse(rows[i].text, strlen(rows[i].text), "/h/config.yml", &c, &e);

		if (r != -EINVAL || strcmp(e.text, rows[i].sentence) != 0)
			fail_msg("%s\nwant %s\ngot  %s (%d)", rows[i].text, rows[i].sentence,
				e.text, r);
		/* Untouched on failure. */
		assert_int_equal(c.n_servers, 77);
		assert_null(c.path);
		assert_null(strstr(e.text, "secret"));
	}
}

static void warnings(void **state)
{
	static const struct {
		const char *text, *warning;
	} rows[] = {
		{"server: []\n",
			"config.yml line 1: unknown key 'server' is ignored; did you mean servers?\n"},
		{"whatever: 1\n", "config.yml line 1: unknown key 'whatever' is ignored\n"},
		{"basic:\n  colour: 1\n",
			"config.yml line 2: unknown key 'colour' in basic: is ignored\n"},
		{"basic:\n  remotes: 1\n",
			"config.yml line 2: unknown key 'remotes' in basic: is ignored; did you mean remote?\n"},
		{"servers:\n- hostname: a\n  user_name: b\n",
			"config.yml line 3: unknown key 'user_name' in servers: is ignored; did you mean username?\n"},
		{"\"a\\e[2Jb\": 1\n", "config.yml line 1: unknown key 'a\\x1b[2Jb' is ignored\n"},
		{"view:\n  mode: tree\n",
			"config.yml line 2: mode in view: takes nodes, unified; its default is used\n"},
		{"view:\n  mouse: maybe\n",
			"config.yml line 2: mouse in view: takes true or false; its default is used\n"},
		{"view:\n  filter: [all]\n",
			"config.yml line 2: filter in view: takes all, available, busy, errors; its default is used\n"},
		{"view:\n  moose: true\n",
			"config.yml line 2: unknown key 'moose' in view: is ignored; did you mean mouse?\n"},
		{"view:\n  mode: unified\n  sort: utilization\n  theme: classic\n  mouse: off\n  detailed:\n",
			""},
		{"queue:\n  lane_lookahead: 1\n  lane_poll_interval: 3\n  lane_spool_root: x\n  lane_idle_exit: 9\n  probe_timeout: 25\n"
		 "  launch_timeout: 60\n  lock_ttl: 180\n  tick_min_interval: 3\n  backup: true\n  notify: {enabled: no}\n",
			""},
		{"servers:\n- host: a\n- host: b\n",
			"config.yml line 2: host: is an old name; write hostname:\n"},
		{"servers:\n- hostname: a\n  nickname: x\n- hostname: A\n  nickname: y\n",
			"config.yml line 4: 'y' is the same machine and user as the server in line 2\n"},
		{"servers:\n- hostname: a\n  nickname: local\n",
			"config.yml line 2: nickname: 'local' is this machine's own name; call the server something else\n"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		CLEANUP(config_done) struct config c = {0};

		parse(rows[i].text, &c);
		assert_string_equal(buf_str(&c.warnings), rows[i].warning);
	}
}

static void bounds(void **state)
{
	CLEANUP(buf_done) struct buf deep = {0}, big = {0}, many = {0};
	struct config c = {0};
	struct err e = {0};

	(void)state;
	buf_puts(&deep, "queue: {a: ");
	for (int i = 0; i < 40; i++)
		buf_putc(&deep, '[');
	assert_int_equal(config_parse(deep.data, deep.len, "config.yml", &c, &e), -EINVAL);
	assert_string_equal(e.text,
		"config.yml line 1: more than 32 levels, one inside the other, aren't read");
	while (big.len <= DOC_BYTES)
		buf_puts(&big, "# a line that says nothing, again and again and again\n");
	assert_int_equal(config_parse(big.data, big.len, "config.yml", &c, &e), -EFBIG);
	assert_string_equal(e.text, "config.yml is larger than 1 MiB, which no such file is");
	buf_puts(&many, "x: [");
	for (int i = 0; i < 200000; i++)
		buf_puts(&many, "a,");
	buf_puts(&many, "]");
	assert_int_equal(config_parse(many.data, many.len, "config.yml", &c, &e), -EINVAL);
	assert_string_equal(e.text, "config.yml line 1: more than 100000 values aren't read");
	buf_clear(&many);
	for (int i = 0; i < 300; i++)
		buf_printf(&many, "k%d: 1\n", i);
	assert_int_equal(config_parse(many.data, many.len, "config.yml", &c, &e), -EINVAL);
	assert_string_equal(e.text, "config.yml line 1: the file has more than 256 keys");
}

static void finds_by_name(void **state)
{
	CLEANUP(config_done) struct config c = {0};
	struct err e = {0};
	size_t i = 99;

	(void)state;
	parse("servers:\n- {hostname: a, nickname: gpu}\n- {hostname: b, nickname: GPU2}\n- {hostname: c, nickname: gpu2}\n"
	      "- {hostname: d, nickname: Train}\n",
		&c);
	assert_int_equal(config_find(&c, "gpu", &i, &e), 0);
	assert_int_equal(i, 0);
	assert_int_equal(config_find(&c, "gpu2", &i, &e), 0);
	assert_int_equal(i, 2);
	assert_int_equal(config_find(&c, "TRAIN", &i, &e), 0);
	assert_int_equal(i, 3);
	assert_int_equal(config_find(&c, "rai", &i, &e), 0);
	assert_int_equal(i, 3);
	i = 99;
	assert_int_equal(config_find(&c, "Gpu2", &i, &e), -EEXIST);
	assert_string_equal(e.text, "'Gpu2' isn't clear: it could be GPU2, gpu2");
	assert_int_equal(config_find(&c, "u2", &i, &e), -EEXIST);
	assert_int_equal(config_find(&c, "", &i, &e), -ENOENT);
	assert_int_equal(config_find(&c, "nine", &i, &e), -ENOENT);
	assert_string_equal(
		e.text, "there's no server 'nine'; config.yml has gpu, GPU2, gpu2, Train");
	assert_int_equal(i, 99);
}

/* --- on the disk --- */

struct place {
	char dir[64];
	char *file;
};

static void place_init(struct place *p)
{
	snprintf(p->dir, sizeof(p->dir), "/tmp/test_config.XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	p->file = xasprintf("%s/config.yml", p->dir);
}

static void place_done(struct place *p)
{
	(void)fd_remove_tree_at(AT_FDCWD, p->dir);
	free(p->file);
}

static void put(const char *path, const char *text, mode_t mode)
{
	assert_int_equal(fd_replace_at(AT_FDCWD, path, text, strlen(text), false), 0);
	assert_int_equal(chmod(path, mode), 0);
}

static void expect(const char *path, const char *text, mode_t mode)
{
	CLEANUP(buf_done) struct buf b = {0};
	struct stat st;

	assert_int_equal(fd_read_file_at(AT_FDCWD, path, &b, 1 << 20), 0);
	assert_string_equal(buf_str(&b), text);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, mode);
}

#define HOST(...) \
	{ \
		.port = 22, __VA_ARGS__ \
	}

static void adds_and_removes(void **state)
{
	CLEANUP(place_done) struct place p;
	struct host_config h = HOST(.hostname = (char *)"a", .nickname = (char *)"one");
	struct err e = {0};

	(void)state;
	place_init(&p);
	/* A new file in a home that isn't there yet. */
	assert_int_equal(fd_remove_tree_at(AT_FDCWD, p.dir), 0);
	assert_int_equal(config_add(p.dir, &h, 1, &e), 0);
	expect(p.file,
		"servers:\n  - hostname: a\n    port: 22\n    nickname: one\n    auth: auto\n",
		0600);
	assert_int_equal(config_add(p.dir, &h, 1, &e), -EEXIST);
	assert_string_equal(
		e.text, "there's a server called one already; give this one another nickname");
	h.nickname = (char *)"two";
	assert_int_equal(config_add(p.dir, &h, 1, &e), -EEXIST);
	assert_string_equal(e.text, "a:22 is there already, as one");
	assert_int_equal(config_remove(p.dir, "three", &e), -ENOENT);
	assert_int_equal(config_remove(p.dir, "one", &e), 0);
	expect(p.file, "servers:\n", 0600);
	assert_int_equal(config_set(p.dir, "view", "mode", "unified", &e), 0);
	expect(p.file, "view:\n  mode: unified\n\nservers:\n", 0600);
}

static void keeps_mode_and_link(void **state)
{
	CLEANUP(place_done) struct place p;
	CLEANUP_FREE char *target = NULL, *link_text = NULL;
	struct err e = {0};
	struct stat st;

	(void)state;
	place_init(&p);
	target = xasprintf("%s/dotfiles.yml", p.dir);
	put(target, "view:\n  mode: nodes # x\n", 0640);
	assert_int_equal(symlink("dotfiles.yml", p.file), 0);
	assert_int_equal(config_set(p.dir, "view", "mode", "unified", &e), 0);
	expect(target, "view:\n  mode: unified # x\n", 0640);
	assert_int_equal(lstat(p.file, &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	assert_int_equal(unlink(target), 0);
	assert_int_equal(config_set(p.dir, "view", "mode", "nodes", &e), -ENOENT);
	link_text = xasprintf("%s is a link to a file that isn't there", p.file);
	assert_string_equal(e.text, link_text);
}

static void passwords(void **state)
{
	CLEANUP(place_done) struct place p;
	CLEANUP(config_done) struct config c = {0};
	struct host_config h = HOST(.hostname = (char *)"b", .nickname = (char *)"b",
		.password = (char *)"secret");
	struct err e = {0};

	(void)state;
	place_init(&p);
	put(p.file, "servers:\n- hostname: a\n  password: x\n", 0644);
	assert_int_equal(config_load(p.dir, &c, &e), 0);
	assert_non_null(strstr(buf_str(&c.warnings),
		"config.yml holds a password and others may read it (mode 0644); 'chmod 600 "));
	config_done(&c);
	assert_int_equal(config_add(p.dir, &h, 1, &e), -EPERM);
	assert_null(strstr(e.text, "secret"));
	expect(p.file, "servers:\n- hostname: a\n  password: x\n", 0644);
	assert_int_equal(chmod(p.file, 0600), 0);
	assert_int_equal(config_add(p.dir, &h, 1, &e), 0);
	assert_int_equal(config_load(p.dir, &c, &e), 0);
	assert_int_equal(c.warnings.len, 0);
	assert_string_equal(c.servers[1].password, "secret");
	config_done(&c);
	put(p.file, "servers:\n- hostname: a\n", 0644);
	assert_int_equal(config_load(p.dir, &c, &e), 0);
	assert_int_equal(c.warnings.len, 0);
}

static void odd_files(void **state)
{
	CLEANUP(place_done) struct place p;
	struct config c = {0};
	struct err e = {0};

	(void)state;
	place_init(&p);
	assert_int_equal(config_load(p.dir, &c, &e), 0);
	assert_true(c.is_missing);
	config_done(&c);
	/* Neither waits for a writer. */
	assert_int_equal(mkfifo(p.file, 0600), 0);
	assert_int_equal(config_load(p.dir, &c, &e), -EINVAL);
	assert_non_null(strstr(e.text, "is no plain file"));
	assert_int_equal(unlink(p.file), 0);
	assert_int_equal(mkdir(p.file, 0700), 0);
	assert_true(config_load(p.dir, &c, &e) < 0);
	assert_int_equal(config_set(p.dir, "view", "mode", "nodes", &e), -EINVAL);
}

static void homes(void **state)
{
	char got[256];
	struct err e = {0};

	(void)state;
	setenv("HOME", "/home/ann", 1);
	unsetenv("X_HOME");
	assert_int_equal(home_path("X_HOME", ".gpustow", got, sizeof(got), &e), 0);
	assert_string_equal(got, "/home/ann/.gpustow");
	setenv("X_HOME", "", 1);
	assert_int_equal(home_path("X_HOME", ".gpustow", got, sizeof(got), &e), 0);
	assert_string_equal(got, "/home/ann/.gpustow");
	setenv("X_HOME", "/data/x//", 1);
	assert_int_equal(home_path("X_HOME", ".gpustow", got, sizeof(got), &e), 0);
	assert_string_equal(got, "/data/x");
	setenv("X_HOME", "~/y", 1);
	assert_int_equal(home_path("X_HOME", ".gpustow", got, sizeof(got), &e), 0);
	assert_string_equal(got, "/home/ann/y");
	assert_int_equal(chdir("/usr"), 0);
	setenv("X_HOME", "lib", 1);
	assert_int_equal(home_path("X_HOME", ".gpustow", got, sizeof(got), &e), 0);
	assert_string_equal(got, "/usr/lib");
	assert_int_equal(home_path("X_HOME", ".gpustow", got, 3, &e), -ENAMETOOLONG);
	assert_string_equal(got, "/usr/lib");
}

/* What the manual shows is read without a word of complaint. */
static void check_clean(const char *what, const char *text, size_t n, size_t servers)
{
	CLEANUP(config_done) struct config c = {0};
	struct err e = {0};

	if (config_parse(text, n, "config.yml", &c, &e) < 0)
		fail_msg("%s: %s", what, e.text);
	if (c.warnings.len)
		fail_msg("%s: %s", what, buf_str(&c.warnings));
	if (servers)
		assert_int_equal(c.n_servers, servers);
}

static void manual(void **state)
{
	const char *root = getenv("SOURCE_ROOT");
	CLEANUP_FREE char *example = xasprintf("%s/config.example.yml", root ? root : "."),
			  *manual = xasprintf("%s/docs/config.md", root ? root : ".");
	CLEANUP(buf_done) struct buf text = {0}, md = {0};
	size_t n = 0;

	(void)state;
	assert_int_equal(fd_read_file_at(AT_FDCWD, example, &text, 1 << 20), 0);
	check_clean("config.example.yml", text.data, text.len, 3);
	assert_int_equal(fd_read_file_at(AT_FDCWD, manual, &md, 1 << 20), 0);
	/* What stands behind that is another file's: test_queue_config. */
	*strstr(md.data, "\n## queue.yml\n") = '\0';
	for (char *s = md.data; (s = strstr(s, "```yaml\n"));) {
		char *end;

		s += strlen("```yaml\n");
		end = strstr(s, "```");
		assert_non_null(end);
		check_clean("config.md", s, (size_t)(end - s), 0);
		s = end + 3;
		n++;
	}
	assert_true(n >= 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults),
		cmocka_unit_test(server_defaults),
		cmocka_unit_test(everything),
		cmocka_unit_test(mistakes),
		cmocka_unit_test(warnings),
		cmocka_unit_test(bounds),
		cmocka_unit_test(finds_by_name),
		cmocka_unit_test(adds_and_removes),
		cmocka_unit_test(keeps_mode_and_link),
		cmocka_unit_test(passwords),
		cmocka_unit_test(odd_files),
		cmocka_unit_test(homes),
		cmocka_unit_test(manual),
	};

	umask(022);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
