/* What surrounds an SSH link and is pure: prompts, failures in OpenSSH's own words, arguments, the configuration's text. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/hash.h"
#include "fleet/askpass.h"
#include "fleet/host.h"
#include "fleet/ssh_command.h"
#include "fleet/ssh_failure.h"
#include "fleet/ssh_site.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- whose password is asked for ---- */

static void password_goes_to_its_account_only(void **state)
{
	assert_true(askpass_is_password("alice@10.99.2.2's password: ", "alice", "10.99.2.2"));
	assert_true(askpass_is_password("alice@gpu1.lab's password: ", "alice", "GPU1.lab"));
	assert_true(askpass_is_password("(alice@gpu1) Password: ", "alice", "gpu1"));
	assert_true(askpass_is_password("(alice@gpu1) password:", "alice", "gpu1"));
	/* Another account, another host, a jump host, a host whose name only begins alike. */
	assert_false(askpass_is_password("bob@gpu1's password: ", "alice", "gpu1"));
	assert_false(askpass_is_password("Alice@gpu1's password: ", "alice", "gpu1"));
	assert_false(askpass_is_password("alice@gpu2's password: ", "alice", "gpu1"));
	assert_false(askpass_is_password("alice@gpu1.evil's password: ", "alice", "gpu1"));
	assert_false(askpass_is_password("xalice@gpu1's password: ", "alice", "gpu1"));
	assert_false(askpass_is_password("(alice@gpu2) Password: ", "alice", "gpu1"));
	/* Words that a server chose. */
	assert_false(askpass_is_password("(alice@gpu1) Verification code: ", "alice", "gpu1"));
	assert_false(askpass_is_password("(alice@gpu1) Password: for bob@bank: ", "alice", "gpu1"));
	assert_false(askpass_is_password("(alice@gpu1) New password:", "alice", "gpu1"));
	assert_false(askpass_is_password("Password: ", "alice", "gpu1"));
	assert_false(askpass_is_password(
		"alice@gpu1's password: \nalice@gpu1's password: ", "alice", "gpu1"));
	/* Nothing is known of who will be asked for. */
	assert_false(askpass_is_password("@'s password: ", "", ""));
	assert_false(askpass_is_password("alice@gpu1's password: ", NULL, NULL));
	assert_false(askpass_is_password(
		"Enter passphrase for key '/home/alice/.ssh/id_ed25519': ", "alice", "gpu1"));
}

static void host_key_answers_may_be_seen(void **state)
{
	assert_false(askpass_is_secret(
		"Are you sure you want to continue connecting (yes/no/[fingerprint])? "));
	assert_true(askpass_is_secret("alice@gpu1's password: "));
	assert_true(askpass_is_secret("Enter passphrase for key '/x': "));
	assert_true(askpass_is_secret("(alice@gpu1) Verification code: "));
}

/* ---- failures: what OpenSSH 9.2 printed ---- */

#define CHANGED \
	"@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\r\n" \
	"@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r\n" \
	"@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\r\n" \
	"IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!\r\n" \
	"Someone could be eavesdropping on you right now (man-in-the-middle attack)!\r\n" \
	"It is also possible that a host key has just been changed.\r\n" \
	"The fingerprint for the ED25519 key sent by the remote host is\nSHA256:ZxFTDtpKFeYPQYZbuN8APYSNhZPf8.\r\n" \
	"Please contact your system administrator.\r\n" \
	"Add correct host key in /root/.ssh/known_hosts to get rid of this message.\r\n" \
	"Offending ED25519 key in /root/.ssh/known_hosts:1\r\n  remove with:\r\n" \
	"  ssh-keygen -f \"/root/.ssh/known_hosts\" -R \"10.99.1.2\"\r\n" \
	"Host key for 10.99.1.2 has changed and you have requested strict checking.\r\nHost key verification failed.\r\n"

static const struct {
	int status;
	const char *said;
	enum link_failure kind;
	const char *part; /* of the sentence */
} failures[] = {
	{255, "Host key verification failed.\r\n", LINK_FAIL_HOST_KEY,
		"run `ssh gpu1 -o StrictHostKeyChecking=ask true`"},
	{255, "No ED25519 host key is known for 10.99.1.2 and you have requested strict checking.\r\nHost key verification failed.\r\n",
		LINK_FAIL_HOST_KEY, "isn't known yet"},
	{255, CHANGED, LINK_FAIL_HOST_KEY,
		"run `ssh-keygen -f \"/root/.ssh/known_hosts\" -R \"10.99.1.2\"` and then `ssh gpu1 true`"},
	{255, "alice@10.99.2.2: Permission denied (publickey,password).\r\n", LINK_FAIL_AUTH,
		"alice@10.99.2.2: Permission denied"},
	{255, "Load key \"/root/.ssh/id\": bad permissions\r\nalice@h: Permission denied (publickey).\r\n",
		LINK_FAIL_AUTH, "Load key \"/root/.ssh/id\": bad permissions"},
	{255, "Received disconnect from 10.99.1.2 port 22:2: Too many authentication failures\r\nDisconnected from 10.99.1.2 port 22\r\n",
		LINK_FAIL_AUTH, "Too many authentication failures"},
	{255, "Bad owner or permissions on /root/.ssh/config\r\n", LINK_FAIL_AUTH,
		"mend ssh's configuration"},
	{255, "/root/.ssh/config: line 3: Bad configuration option: colour\r\n/root/.ssh/config: terminating, 1 bad configuration options\r\n",
		LINK_FAIL_AUTH, "colour"},
	{255, "Unable to negotiate with 10.0.0.1 port 22: no matching host key type found. Their offer: ssh-rsa\r\n",
		LINK_FAIL_AUTH, "Their offer: ssh-rsa"},
	{255, "ssh: Could not resolve hostname nowhere: Name or service not known\r\n",
		LINK_FAIL_NET, "Could not resolve hostname nowhere"},
	{255, "ssh: connect to host 10.99.1.2 port 22: Connection refused\r\n", LINK_FAIL_NET,
		"Connection refused"},
	{255, "ssh: connect to host 10.99.1.2 port 22: Connection timed out\r\n", LINK_FAIL_NET,
		"Connection timed out"},
	{255, "ssh: connect to host 10.99.1.2 port 22: No route to host\r\n", LINK_FAIL_NET,
		"No route to host"},
	{255, "ssh: connect to host 10.99.4.2 port 22: Network is unreachable\r\n", LINK_FAIL_NET,
		"Network is unreachable"},
	{255, "Connection timed out during banner exchange\r\nConnection to 10.99.1.2 port 22 timed out\r\n",
		LINK_FAIL_NET, "timed out"},
	{255, "kex_exchange_identification: Connection closed by remote host\r\nConnection closed by 10.99.1.2 port 22\r\n",
		LINK_FAIL_NET, "Connection closed"},
	{255, "Timeout, server 10.99.1.2 not responding.\r\n", LINK_FAIL_NET, "not responding"},
	{255, "\"System is booting up. Unprivileged users are not permitted to log in yet.\"\r\nConnection closed by 10.99.9.2 port 22\r\n",
		LINK_FAIL_NET, "System is booting up"},
	/* The jump host's words come before the outer ssh's, which only sees its pipe closed. */
	{255, "channel 0: open failed: connect failed: Connection refused\r\nstdio forwarding failed\r\nConnection closed by UNKNOWN port 65535\r\n",
		LINK_FAIL_NET, "connect failed: Connection refused"},
	{255, "root@jump: Permission denied (publickey).\r\nConnection closed by UNKNOWN port 65535\r\n",
		LINK_FAIL_AUTH, "root@jump"},
	{255, "Host key verification failed.\r\nConnection closed by UNKNOWN port 65535\r\n",
		LINK_FAIL_HOST_KEY, "host key"},
	{255, "", LINK_FAIL_NET, "ssh said nothing"},
	{255, "something new\r\n", LINK_FAIL_NET, "something new"},
	{1, "open terminal failed: not a terminal\n", LINK_FAIL_SHELL,
		"open terminal failed: not a terminal"},
	{0, "", LINK_FAIL_SHELL, "~/.bashrc"},
	{127, "bash: exec: restricted\n", LINK_FAIL_SHELL, "exec: restricted"},
};

static void failures_have_their_kind_and_way_out(void **state)
{
	for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
		struct buf why = {0};
		enum link_failure kind =
			ssh_failure(failures[i].status, failures[i].said, "ssh gpu1", "", &why);

		if (kind != failures[i].kind || !strstr(buf_str(&why), failures[i].part))
			print_message("# %s -> %d %s\n", failures[i].said, kind, buf_str(&why));
		assert_int_equal(kind, failures[i].kind);
		assert_non_null(strstr(buf_str(&why), failures[i].part));
		assert_null(strpbrk(buf_str(&why), "\r\n\033"));
		buf_done(&why);
	}
}

static void failure_quotes_the_shell(void **state)
{
	struct buf why = {0};

	assert_int_equal(ssh_failure(3, "", "ssh gpu1", "Welcome, choose a project:", &why),
		LINK_FAIL_SHELL);
	assert_non_null(strstr(why.data, "status 3"));
	assert_non_null(strstr(why.data, "\"Welcome, choose a project:\""));
	buf_clear(&why);
	/* Bytes from a server have no power over a terminal. */
	ssh_failure(255, "\033]0;title\007evil", "ssh gpu1", "", &why);
	assert_null(strpbrk(why.data, "\033\007"));
	buf_done(&why);
}

/* ---- arguments ---- */

static void join(const struct ssh_argv *a, struct buf *out)
{
	buf_clear(out);
	for (size_t i = 0; a->v[i]; i++)
		buf_printf(out, "%s%s", i ? " " : "", a->v[i]);
}

static void argv_is(const struct host_config *h, bool can_ask, const char *want)
{
	struct ssh_argv a;
	struct buf text = {0};

	ssh_argv_make(h, "/c", can_ask, false, NULL, "LINE", &a);
	join(&a, &text);
	assert_string_equal(text.data, want);
	assert_null(strstr(text.data, "hunter2"));
	ssh_argv_done(&a);
	buf_done(&text);
}

static void arguments_say_the_way(void **state)
{
	argv_is(&(struct host_config){.hostname = (char *)"gpu1", .port = 22}, false,
		"ssh -F /c -T -- gpu1 LINE");
	argv_is(&(struct host_config){.hostname = (char *)"[2001:db8::1]",
			.port = 2222,
			.username = (char *)"alice",
			.proxyjump = (char *)"a,b@c:22"},
		false, "ssh -F /c -T -l alice -p 2222 -J a,b@c:22 -- 2001:db8::1 LINE");
	argv_is(&(struct host_config){.hostname = (char *)"-oProxyCommand=x", .port = 22}, false,
		"ssh -F /c -T -- -oProxyCommand=x LINE");
	argv_is(
		&(struct host_config){
			.hostname = (char *)"h", .auth = AUTH_KEY, .identityfile = (char *)"/k"},
		false,
		"ssh -F /c -T -o PasswordAuthentication=no -o KbdInteractiveAuthentication=no -i /k -o IdentitiesOnly=yes -- h LINE");
	/* A stored password lifts batch mode for that host alone, and is tried once. */
	argv_is(&(struct host_config){.hostname = (char *)"h",
			.auth = AUTH_PASSWORD,
			.password = (char *)"hunter2"},
		false,
		"ssh -F /c -T -o PubkeyAuthentication=no -o PreferredAuthentications=password,keyboard-interactive -o BatchMode=no "
		"-o NumberOfPasswordPrompts=1 -- h LINE");
	argv_is(&(struct host_config){.hostname = (char *)"h", .password = (char *)"hunter2"}, true,
		"ssh -F /c -T -- h LINE");
}

static void resolved_names_are_read(void **state)
{
	char *user = NULL, *host = NULL;

	assert_int_equal(ssh_read_resolved("host gpu1\nuser alice\nhostname 10.0.0.1\nport 22\n",
				 &user, &host),
		0);
	assert_string_equal(user, "alice");
	assert_string_equal(host, "10.0.0.1");
	free(user), free(host);
	assert_int_equal(
		ssh_read_resolved("user a\nhostkeyalias lab\nhostname 10.0.0.1\n", &user, &host),
		0);
	assert_string_equal(host, "lab");
	free(user), free(host);
	user = host = NULL;
	assert_int_equal(ssh_read_resolved("user alice\n", &user, &host), -EINVAL);
	assert_null(user);
}

/* ---- configuration ---- */

static void configuration_has_its_order(void **state)
{
	struct buf text = {0};
	const char *user, *ours;

	ssh_config_text("/home/a/.gpustow/ssh", true, 60, &text);
	user = strstr(text.data, "Include ~/.ssh/config");
	assert_non_null(user);
	/* What would take the channel comes before the user's word, multiplexing after it. */
	for (const char *const *o = (const char *const[]){"IgnoreUnknown SessionType",
		     "RemoteCommand none", "RequestTTY no", "StdinNull no", "ForwardAgent no",
		     "ClearAllForwardings yes", "BatchMode yes", "ConnectTimeout 8", NULL};
		*o; o++) {
		ours = strstr(text.data, *o);
		assert_true(ours && ours < user);
	}
	assert_true(strstr(text.data, "SessionType default") > strstr(text.data, "IgnoreUnknown"));
	for (const char *const *o = (const char *const[]){"ControlMaster auto",
		     "ControlPath /home/a/.gpustow/ssh/%C", "ControlPersist 60", NULL};
		*o; o++) {
		ours = strstr(text.data, *o);
		assert_true(ours && ours > user);
	}
	assert_null(strstr(text.data, "StrictHostKeyChecking"));
	buf_clear(&text);
	ssh_config_text("/x", false, 60, &text);
	assert_null(strstr(text.data, "BatchMode"));
	buf_done(&text);
}

/* ---- what is remembered of a host ---- */

static void hash_of_name(const char *key, const char *dir, struct buf *out)
{
	uint8_t sum[32];
	char hex[17];

	sha256(key, strlen(key), sum);
	hex_encode(sum, 8, hex);
	buf_printf(out, "%s/host-%s", dir, hex);
}

static void what_was_remembered_last_counts(void **state)
{
	char refused[65], dir[] = "/tmp/gpustow-site-XXXXXX";
	struct ssh_memory m = {.cpu = "x86_64", .seen_wall_ms = 1700000000000}, got;
	struct ssh_site s = {0};
	struct buf b = {0};

	memset(refused, 'a', 64);
	refused[64] = 0;
	assert_non_null(mkdtemp(dir));
	snprintf(s.dir, sizeof(s.dir), "%s", dir);
	ssh_site_recall(&s, "gpu1", &got);
	assert_string_equal(got.cpu, "");
	/* Longer and shorter ones over each other, in the one file: nothing of an earlier one shines through. */
	memcpy(m.refused, refused, 65);
	ssh_site_remember(&s, "gpu1", &m);
	ssh_site_recall(&s, "gpu1", &got);
	assert_string_equal(got.refused, refused);
	m = (struct ssh_memory){.cpu = "arm"};
	ssh_site_remember(&s, "gpu1", &m);
	ssh_site_recall(&s, "gpu1", &got);
	assert_memory_equal(&got, &m, sizeof(m));
	m = (struct ssh_memory){.cpu = "x86_64", .seen_wall_ms = 1700000000001};
	ssh_site_remember(&s, "gpu1", &m);
	ssh_site_recall(&s, "gpu1", &got);
	assert_memory_equal(&got, &m, sizeof(m));
	/* One that another program of this user wrote, shorter. */
	hash_of_name("gpu1", dir, &b);
	assert_int_equal(fd_replace_at(AT_FDCWD, b.data, "riscv64 17 -\n", 13, false), 0);
	ssh_site_recall(&s, "gpu1", &got);
	assert_string_equal(got.cpu, "riscv64");
	assert_int_equal(got.seen_wall_ms, 17);
	ssh_site_remember(&s, "gpu1", &m);
	ssh_site_recall(&s, "gpu1", &got);
	assert_memory_equal(&got, &m, sizeof(m));
	/* And a link is never written through. */
	assert_int_equal(unlink(b.data), 0);
	CLEANUP(buf_done) struct buf other = {0}, kept = {0};
	buf_printf(&other, "%s/other", dir);
	assert_int_equal(fd_replace_at(AT_FDCWD, other.data, "kept", 4, false), 0);
	assert_int_equal(symlink(other.data, b.data), 0);
	ssh_site_remember(&s, "gpu1", &m);
	ssh_site_recall(&s, "gpu1", &got);
	assert_memory_equal(&got, &m, sizeof(m));
	assert_int_equal(fd_read_file_at(AT_FDCWD, other.data, &kept, 100), 0);
	assert_string_equal(kept.data, "kept");
	buf_done(&b);
	fd_remove_tree_at(AT_FDCWD, dir);
}

/* ---- nvidia-smi's text ---- */

static void text_of_nvidia_smi(void **state)
{
	static const char csv[] =
		"NVIDIA-SMI: no such option -q\n\ngpustow-gpus\n0, GPU-a, 24576, 1234, 17\n1, GPU-b, 24576, 0, 0\n"
		"gpustow-apps\nGPU-a, 4242, 1000\n";
	static const char failed[] =
		"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n\n\ngpustow-gpus\n"
		"NVIDIA-SMI has failed\ngpustow-apps\nNVIDIA-SMI has failed\n";
	struct sample s = {0};
	struct err e = {0};

	assert_int_equal(text_sample_parse(csv, sizeof(csv) - 1, &s, &e), 0);
	assert_int_equal(s.snap.n_cards, 2);
	assert_int_equal(s.snap.n_procs, 1);
	assert_string_equal(s.snap.cards[1].uuid, "GPU-b");
	assert_string_equal(s.snap.source, "nvidia-smi");
	assert_int_equal(s.proc_row[0], 0);
	sample_done(&s);
	assert_int_equal(text_sample_parse(failed, sizeof(failed) - 1, &s, &e), -ENODEV);
	assert_non_null(strstr(e.text, "couldn't communicate"));
	assert_int_equal(text_sample_parse("", 0, &s, &e), -ENODEV);
	assert_int_equal(text_sample_parse("\ngpustow-gpus\ngpustow-apps\n", 28, &s, &e), -ENODEV);
	assert_string_equal(e.text, "nvidia-smi is there, but names no GPU");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(password_goes_to_its_account_only),
		cmocka_unit_test(host_key_answers_may_be_seen),
		cmocka_unit_test(failures_have_their_kind_and_way_out),
		cmocka_unit_test(failure_quotes_the_shell),
		cmocka_unit_test(arguments_say_the_way),
		cmocka_unit_test(resolved_names_are_read),
		cmocka_unit_test(configuration_has_its_order),
		cmocka_unit_test(what_was_remembered_last_counts),
		cmocka_unit_test(text_of_nvidia_smi),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
