"""Hosts over real sshd's (tests/lab): first contact, second contact, everything that may go wrong on the way."""
import os
import random
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from lab import Lab, missing, until  # noqa: E402

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")
ROUNDS = int(os.environ.get("GPUSTOW_TEST_CUT_ROUNDS", "20"))
CARDS = {"key": ["GPU-key-0", "GPU-key-1"]}
AGENT_HOSTS = ["key", "jump", "inner", "fish", "csh", "noexec", "rohome", "noisy"]


@pytest.fixture(scope="module")
def lab():
    made = Lab()
    yield made
    made.down()


@pytest.fixture(autouse=True)
def quiet(request):
    """Wires whole and the client's masters gone before each test."""
    if "lab" not in request.fixturenames:
        yield
        return
    made = request.getfixturevalue("lab")
    yield
    for host in (made.dir / "hosts").read_text().split():
        if (made.dir / host / "wire").read_text().split() != ["0", "0", "0", "0"]:
            made.wire(host)
    forget_masters(made)


def forget_masters(lab):
    lab.bash("ctl", "for s in /root/.gpustow*/ssh/*; do [ -S $s ] && ssh -o ControlPath=$s -O exit x; done; true", check=False)


def cards(host):
    return CARDS.get(host, [f"GPU-{host}-0"])


def no_agent(lab, host):
    """As if nobody had ever been there."""
    lab.bash(host, "pkill -KILL -f '[a]gent-|[g]pustow-agent' ; rm -rf ~/.cache/gpustow ~/.gpustow /var/tmp/gpustow-* /tmp/gpustow-*; true",
             check=False)


# --- contact ---

def test_cold_and_warm_contact_with_every_kind_of_host(lab):
    cold = lab.look(*AGENT_HOSTS)
    warm = lab.look(*AGENT_HOSTS)
    for host in AGENT_HOSTS:
        for got in (cold[host], warm[host]):
            assert (got["state"], got["cards"], got["source"]) == ("up", cards(host), "nvml"), got
        assert 0 <= warm[host]["connected_ms"] <= warm[host]["hello_ms"] <= warm[host]["first_sample_ms"]


def test_agent_lies_in_the_first_place_that_is_private_and_executable(lab):
    lab.look("key", "noexec", "rohome")
    for host, place in (("key", "/root/.cache/gpustow"), ("noexec", "/var/tmp/gpustow-0"), ("rohome", "/var/tmp/gpustow-0")):
        found = lab.bash(host, f"cd {place} && ls -l && for f in agent-*; do [ agent-$(./$f id) = $f ] || echo bad $f; done")
        assert "agent-" in found and "bad" not in found, found
    assert "No such" in lab.bash("noexec", "ls -d /nonexistent /null 2>&1; true")


def test_host_without_a_place_for_the_agent_is_read_as_text(lab):
    got = lab.look("noagent", "full")
    assert (got["noagent"]["state"], got["noagent"]["cards"]) == ("text", ["GPU-noagent-0"])
    assert "/root/.cache/gpustow:exec" in got["noagent"]["why"] and "/dev/shm/gpustow-0:exec" in got["noagent"]["why"]
    assert (got["full"]["state"], got["full"]["cards"]) == ("text", ["GPU-full-0"])
    assert "No space left on device" in got["full"]["why"]


def test_host_without_gpu_is_a_state_and_not_an_error(lab):
    got = lab.look("nogpu")["nogpu"]
    assert got["state"] == "none" and got["cards"] == [] and "driver" in got["why"], got
    lab.bash("noagent", "mv /usr/bin/nvidia-smi /usr/bin/away")
    try:
        got = lab.look("noagent")["noagent"]
        assert got["state"] == "none" and "there's no nvidia-smi" in got["why"], got
    finally:
        lab.bash("noagent", "mv /usr/bin/away /usr/bin/nvidia-smi")


def test_text_goes_on_and_comes_back(lab):
    w = lab.watch("noagent", "--interval", 500, "--seconds", 60)
    try:
        _, at = w.sees("noagent", "text")
        _, at = w.sees("noagent", "text", after=at)
        lab.sh("crash", "noagent")
        _, at = w.sees("noagent", "suspect", after=at)
        _, at = w.sees("noagent", "down", after=at)
        lab.sh("boot", "noagent")
        w.sees("noagent", "text", after=at)
    finally:
        w.end()


def test_damaged_agent_is_mended(lab):
    lab.look("key")
    for damage in (": >$f", "truncate -s 3000 $f", "truncate -s 0 $f; head -c 50000 /dev/zero >$f", "chmod 600 $f",
                   "rm $f; ln -s /bin/true $f", "printf X | dd of=$f bs=1 seek=2000 conv=notrunc status=none"):
        lab.bash("key", "pkill -KILL -f 'serve /root' ; cd /root/.cache/gpustow; f=$(ls -d agent-*); " + damage, check=False)
        got = lab.look("key")["key"]
        assert got["state"] == "up", (damage, got)
        found = lab.bash("key", "cd /root/.cache/gpustow; for f in agent-*; do [ agent-$(./$f id) = $f ] && echo good; done; ls -A")
        assert "good" in found and ".new" not in found, (damage, found)


def test_old_agents_and_unfinished_uploads_are_tidied(lab):
    lab.look("key")
    name = "agent-" + "0" * 64
    lab.bash("key", f"cd /root/.cache/gpustow && touch -d '61 days ago' {name} && touch -d '59 days ago' {name[:-1]}1 && "
             "touch -d '2 hours ago' .new-0123456789abcdef && touch .new-fedcba9876543210 && touch -d '90 days ago' notes")
    lab.look("key")
    left = lab.bash("key", "ls -A /root/.cache/gpustow").split()
    assert name not in left and name[:-1] + "1" in left and ".new-0123456789abcdef" not in left
    assert ".new-fedcba9876543210" in left and "notes" in left
    lab.bash("key", "cd /root/.cache/gpustow && rm -f notes .new-* agent-000*")


def test_words_in_the_middle_of_the_protocol_are_skipped(lab):
    w = lab.watch("noisy", "--interval", 200, "--seconds", 20)
    try:
        w.sees("noisy", "up", cards=cards("noisy"))
        # The login file's background process has written half a second after the login.
        until(lambda: len(w.of("noisy")) > 10)
        assert {line["state"] for line in w.of("noisy")} == {"up"}, w.of("noisy")
    finally:
        w.end()


def test_two_clients_at_once_find_one_agent(lab):
    no_agent(lab, "key")
    watches = [lab.watch("key", "--interval", 500, "--seconds", 30, home=f"/root/.gpustow{i}") for i in range(4)]
    try:
        for w in watches:
            w.sees("key", "up", cards=cards("key"))
        # The agent and its sampler; whoever came too late for the lock is gone in a moment.
        until(lambda: len(lab.processes("key", "gpustow-agent serve")) == 2, why=lambda: lab.processes("key", ""))
        left = lab.bash("key", "ls -A /root/.cache/gpustow").split()
        assert len(left) == 1, left
    finally:
        for w in watches:
            w.end()


# --- cuts ---

def test_upload_cut_at_random_points_leaves_nothing(lab):
    chance = random.Random(20)
    lab.wire("key", 20)
    for round_ in range(ROUNDS):
        no_agent(lab, "key")
        # From the connection to the hello takes about a second on this wire.
        wait = chance.uniform(0.05, 1.6)
        w = lab.watch("key", "--seconds", 30)
        time.sleep(wait)
        lab.bash("ctl", "pkill -KILL -x ssh; true", check=False)
        w.end()
        until(lambda: not lab.processes("key", "/bin/sh -c") and not lab.processes("key", "attach"), 20,
              lambda: f"round {round_} ({wait}): {lab.processes('key', '')}")
        left = lab.bash("key", "cd /root/.cache/gpustow 2>/dev/null || exit 0; ls -A; for f in agent-*; do [ -e $f ] || continue; "
                        "[ agent-$(./$f id) = $f ] || echo bad; done")
        assert "bad" not in left and ".new" not in left, (round_, wait, left)
        forget_masters(lab)
    lab.wire("key")
    assert lab.look("key")["key"]["state"] == "up"


def test_killed_ssh_leaves_nothing_and_comes_back(lab):
    w = lab.watch("key", "--interval", 500, "--seconds", 60)
    try:
        _, at = w.sees("key", "up", cards=cards("key"))
        until(lambda: len(lab.processes("key", "attach gpustow:")) == 1)
        lab.bash("ctl", "pkill -KILL -x ssh")
        _, at = w.sees("key", "suspect", after=at)
        w.sees("key", "up", after=at, cards=cards("key"))
        until(lambda: len(lab.processes("key", "attach gpustow:")) == 1, why=lambda: lab.processes("key", ""))
    finally:
        w.end()
    until(lambda: not lab.processes("key", "attach gpustow:"), why=lambda: lab.processes("key", ""))


def test_client_that_is_killed_leaves_no_process(lab):
    w = lab.watch("key", "inner", "--interval", 500, "--seconds", 60)
    w.sees("key", "up")
    w.sees("inner", "up")
    lab.bash("ctl", "pkill -KILL -x gpustow")
    w.end()
    until(lambda: not lab.processes("key", "attach gpustow:") and not lab.processes("inner", "attach gpustow:"))
    # What's left is the masters and their way through the jump host, which go when they have been unused for a while.
    until(lambda: not [p for p in lab.processes("ctl", "ssh -F") if " -W " not in p], why=lambda: lab.processes("ctl", "ssh"))


def test_cut_wire_is_suspect_then_down_then_up(lab):
    w = lab.watch("key", "jump", "--interval", 500, "--seconds", 120)
    try:
        _, at = w.sees("key", "up", cards=cards("key"))
        w.sees("jump", "up", cards=cards("jump"))
        lab.wire("key", cut=1)
        began = time.monotonic()
        line, at = w.sees("key", "suspect", after=at)
        assert line["cards"] == cards("key"), "the last sample stays"
        line, at = w.sees("key", "down", after=at)
        assert time.monotonic() - began >= 8
        # The other host hasn't noticed: no state but up, and its samples came all the while. (Two each second; a loop that
        # waits for the dead one has none for seconds.)
        assert {line["state"] for line in w.of("jump")} == {"up"}
        stamps = [line["ms"] for line in w.of("jump") if "seq" in line]
        began, over = (next(x["ms"] for x in w.of("key") if x["state"] == s) for s in ("suspect", "down"))
        assert sum(began < ms < over for ms in stamps) > (over - began) / 1500, (began, over, stamps)
        lab.wire("key")
        w.sees("key", "up", after=at, cards=cards("key"), deadline=60)
    finally:
        w.end()


def test_reboot(lab):
    w = lab.watch("fish", "--interval", 500, "--seconds", 120)
    try:
        _, at = w.sees("fish", "up", cards=cards("fish"))
        lab.sh("crash", "fish")
        _, at = w.sees("fish", "down", after=at, deadline=60)
        lab.sh("boot", "fish")
        w.sees("fish", "up", after=at, cards=cards("fish"), deadline=60)
    finally:
        w.end()


def test_delay_and_loss(lab):
    lab.wire("csh", 150, 20, 5)
    got = lab.look("csh", deadline=120)["csh"]
    assert got["state"] == "up" and got["rtt_ms"] >= 250, got


def test_w47_dead_hosts_cost_the_others_nothing(lab):
    lab.wire("key", cut=1)
    w = lab.watch("key", "10.99.200.2", "jump", "csh", "--seconds", 60)
    try:
        line, _ = w.sees("key", "down")
        assert "timed out" in line["why"], line
        # The others were there before it was given up.
        first = {h: next((x["ms"] for x in w.of(h) if x["state"] == "up"), None) for h in ("jump", "csh")}
        assert all(ms is not None and ms < line["ms"] for ms in first.values()), (first, w.lines)
        assert [w.sees(h, "up", cards=cards(h)) for h in ("jump", "csh")]
        line, _ = w.sees("10.99.200.2", "down")
        assert "unreachable" in line["why"], line
    finally:
        w.end()


# --- who may come in ---

def test_stored_password(lab):
    lab.write("ctl", "/root/password", "sesame\n")
    got = lab.look("--password-file", "/root/password", "alice@pass")["alice@pass"]
    assert got["state"] == "up" and got["cards"] == cards("pass"), got
    forget_masters(lab)
    # It isn't told to a jump host that asks for another account's, nor shown anywhere.
    lab.write("ctl", "/root/password", "wrong\n")
    got = lab.look("--password-file", "/root/password", "alice@pass")["alice@pass"]
    assert got["state"] == "auth" and "Permission denied" in got["why"], got


def test_password_is_in_no_command_line_and_no_environment(lab):
    lab.write("ctl", "/root/password", "sesame\n")
    lab.wire("pass", 100)
    w = lab.watch("--password-file", "/root/password", "--seconds", 20, "--interval", 500, "alice@pass")
    try:
        seen = ""
        while not any(line["state"] == "up" for line in w.of("alice@pass")):
            seen += lab.bash("ctl", "for p in /proc/[0-9]*; do cat $p/cmdline $p/environ; done 2>/dev/null | tr '\\0' '\\n'",
                             check=False)
            assert w.process.poll() is None
        assert "GPUSTOW_ASKPASS_TOKEN" in seen and "sesame" not in seen
    finally:
        w.end()


def test_password_is_asked_for(lab):
    got = lab.look("--answer", "sesame", "alice@pass")
    assert got["alice@pass"]["state"] == "up"
    assert [(q["asks"], q["secret"]) for q in got[None]] == [("alice@10.99.2.2's password: ", True)]


def test_auth_failure_waits_for_a_person(lab):
    def tries():
        return int(lab.bash("pass", "grep -c 'Connection closed by authenticating' /var/log/sshd.log; true"))
    before = tries()
    w = lab.watch("--auth", "key", "--seconds", 60, "alice@pass")
    try:
        line, at = w.sees("alice@pass", "auth")
        assert "Permission denied" in line["why"] and "`ssh alice@pass true`" in line["why"]
        # The other side hears of it a moment later.
        until(lambda: tries() > before)
        made = tries()
        time.sleep(6)  # the first two retries of any other failure would have come
        assert tries() == made
        assert len(w.of("alice@pass")) == at
        # A person asks for another try: that's one.
        lab.bash("ctl", "pkill -HUP -x gpustow")
        w.sees("alice@pass", "auth", after=at)
    finally:
        w.end()


def test_unknown_host_key(lab):
    lab.bash("ctl", "mv /root/.ssh/known_hosts /root/.ssh/known")
    try:
        got = lab.look("key", "inner")
        for host in ("key", "inner"):
            assert got[host]["state"] == "auth", got[host]["why"]
            assert f"`ssh {host} -o StrictHostKeyChecking=ask true`" in got[host]["why"], got
        # Nothing was accepted on the way.
        assert "10.99" not in lab.bash("ctl", "cat /root/.ssh/known_hosts 2>/dev/null; true")
        got = lab.look("--answer", "no", "key")
        assert got["key"]["state"] == "auth"
        got = lab.look("--answer", "yes", "key")
        assert got["key"]["state"] == "up"
        assert [q["secret"] for q in got[None]] == [False] and "SHA256:" in got[None][0]["asks"]
        assert lab.run("ctl", "ssh-keygen", "-F", "10.99.1.2")
    finally:
        lab.bash("ctl", "mv /root/.ssh/known /root/.ssh/known_hosts")


def test_changed_host_key(lab):
    lab.bash("ctl", "cp /root/.ssh/known_hosts /root/.ssh/known; "
             "sed -i '/^10.99.1.2 /d; s/^10.99.2.2 /10.99.1.2 /' /root/.ssh/known_hosts")
    try:
        got = lab.look("key")["key"]
        assert got["state"] == "auth" and "another one than before" in got["why"], got
        assert 'ssh-keygen -f "/root/.ssh/known_hosts" -R "10.99.1.2"' in got["why"], got
    finally:
        lab.bash("ctl", "mv /root/.ssh/known /root/.ssh/known_hosts")


# --- connections ---

def test_proxyjump_of_the_configuration_and_of_ours(lab):
    got = lab.look("inner")
    assert got["inner"]["cards"] == cards("inner")
    forget_masters(lab)
    got = lab.look("--jump", "jump", "10.99.4.2")
    assert got["10.99.4.2"]["cards"] == cards("inner")
    # One master for the jump host, one for the host behind it.
    assert len(lab.processes("ctl", "[mux]")) == 2, lab.processes("ctl", "ssh")


def test_second_call_uses_the_first_ones_connection(lab):
    lab.look("key")
    before = lab.bash("key", "grep -c 'Accepted publickey' /var/log/sshd.log")
    masters = lab.processes("ctl", "[mux]")
    assert len(masters) == 1, masters
    assert lab.look("key")["key"]["state"] == "up"
    assert lab.bash("key", "grep -c 'Accepted publickey' /var/log/sshd.log") == before
    assert lab.bash("ctl", "stat -c %a /root/.gpustow/ssh").strip() == "700"


def test_master_is_gone_when_it_has_been_unused(lab):
    env = ["GPUSTOW_TEST_SSH_PERSIST=10"]
    lab.look("key", env=env, home="/root/.gpustow-short")
    assert lab.processes("ctl", "[mux]")
    until(lambda: not lab.processes("ctl", "[mux]"))
    assert "S" not in [line[:1] for line in lab.bash("ctl", "ls -l /root/.gpustow-short/ssh").splitlines()]


def test_the_users_own_control_path_is_used(lab):
    lab.bash("ctl", "cp /root/.ssh/config /root/.ssh/kept; printf 'Host *\\n\\tControlPath /root/.ssh/own-%%C\\n\\tControlMaster auto\\n"
             "\\tControlPersist 30\\n' >>/root/.ssh/config")
    try:
        assert lab.look("key")["key"]["state"] == "up"
        assert "own-" in lab.bash("ctl", "ls /root/.ssh")
        assert not [s for s in lab.bash("ctl", "find /root/.gpustow/ssh -type s").split()]
    finally:
        lab.bash("ctl", "for s in /root/.ssh/own-*; do ssh -o ControlPath=$s -O exit x; done; mv /root/.ssh/kept /root/.ssh/config",
                 check=False)


def test_settings_that_would_take_the_channel_away(lab):
    lab.bash("ctl", "cp /root/.ssh/config /root/.ssh/kept; printf 'Host *\\n\\tRemoteCommand echo no\\n\\tRequestTTY force\\n"
             "\\tStdinNull yes\\n\\tSessionType none\\n\\tForkAfterAuthentication yes\\n\\tLocalForward 4711 127.0.0.1:22\\n"
             "\\tLogLevel QUIET\\n' >>/root/.ssh/config")
    try:
        got = lab.look("key", "inner")
        assert got["key"]["state"] == "up" and got["inner"]["state"] == "up", got
    finally:
        lab.bash("ctl", "mv /root/.ssh/kept /root/.ssh/config")


def test_long_home_has_its_sockets_elsewhere(lab):
    home = "/root/" + "h" * 90
    assert lab.look("key", home=home)["key"]["state"] == "up"
    assert lab.bash("ctl", "find /tmp/gpustow-0/ssh -type s").strip()


def test_login_shell_that_leaves(lab):
    lab.bash("key", "echo 'echo choose a project; exit 3' > /root/.bashrc")
    try:
        got = lab.look("key")["key"]
        assert got["state"] == "down" and "status 3" in got["why"] and "choose a project" in got["why"], got
    finally:
        lab.run("key", "rm", "/root/.bashrc")


def test_hung_agent_is_replaced(lab):
    lab.look("key")
    lab.bash("key", "pkill -STOP -f 'gpustow-agent serve'")
    began = time.monotonic()
    got = lab.look("key")["key"]
    assert got["state"] == "up" and time.monotonic() - began > 2.5, got
    lab.bash("key", "pkill -KILL -f 'gpustow-agent serve'; true", check=False)


def test_hung_agent_of_this_machine_is_replaced(lab):
    w = lab.watch("local", "--interval", 500, "--seconds", 60)
    try:
        _, at = w.sees("local", "none")
        lab.bash("ctl", "pkill -STOP -f 'gpustow-agent serve'")
        _, at = w.sees("local", "suspect", after=at)
    finally:
        w.end()
    w = lab.watch("local", "--interval", 500, "--seconds", 60)
    try:
        w.sees("local", "none", deadline=30)
    finally:
        w.end()
    lab.bash("ctl", "pkill -KILL -f 'gpustow-agent serve'; true", check=False)


def test_the_started_agent_does_not_hold_the_channel(lab):
    no_agent(lab, "jump")
    lab.look("jump")
    path = lab.bash("jump", "ls /root/.cache/gpustow/agent-*").strip()
    lab.bash("jump", "pkill -KILL -f 'gpustow-agent serve'; true", check=False)
    # As ssh sees it: the command that starts an agent ends when its input does, and not with the agent, a minute later.
    lab.bash("ctl", f"timeout 40 ssh jump {path} attach gpustow:0000000000000000 </dev/null")
    assert lab.processes("jump", "gpustow-agent serve")
