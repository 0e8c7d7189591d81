"""A laptop without a queue (`ctl`) and the queue's host (`key`, `fish`, `csh`, `noisy`), over real sshd's (tests/lab): commands of
the queue given on the laptop are run on the host."""
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from lab import DEADLINE, PROGRAM, Lab, missing, until  # noqa: E402

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")
HOSTS = ["key", "fish", "csh", "noisy"]
FAR = "/usr/local/bin/gpustow"

OLD_NVIDB = r"""#!/usr/bin/python3
import json, os, sys
if sys.argv[1] not in ("queue", "q", "job"):
    print(f"nvidb: error: argument command: invalid choice: {sys.argv[1]!r} (choose from 'queue', 'job')", file=sys.stderr)
    sys.exit(2)
files = {a: open(a, "rb").read().decode() for a in sys.argv[2:] if os.path.isfile(a)}
print(json.dumps({"argv": sys.argv[1:], "files": list(files.values()), "submitter": os.environ.get("NVIDB_SUBMITTER"),
                  "no_remote": os.environ.get("NVIDB_QUEUE_NO_REMOTE"), "home": os.environ.get("NVIDB_HOME"),
                  "stdin": sys.stdin.read()}))
print("a word on stderr", file=sys.stderr)
sys.exit(7 if "fail" in sys.argv else 0)
"""


class Laptop:
    """gpustow on ctl, with a queue.yml."""

    def __init__(self, lab):
        self.lab = lab

    def remote(self, host, **keys):
        keys = {"gpustow": FAR, "keeper": "none", **keys}
        lines = [f"  {k}: {json.dumps(v)}" for k, v in keys.items()]
        self.lab.bash("ctl", "mkdir -p /root/.gpustow; chmod 700 /root/.gpustow")
        self.lab.write("ctl", "/root/.gpustow/queue.yml", "\n".join(["remote:", f"  host: {host}", *lines]) + "\n")

    def command(self, *args, env=()):
        return self.lab.command("ctl", "env", *self.lab.env, *env, "gpustow", *args)

    def ask(self, *args, code=0, env=(), stdin=b"", cwd="/root"):
        r = subprocess.run(self.command(*args, env=[f"PWD={cwd}", *env]), input=stdin, capture_output=True, timeout=DEADLINE)
        out, err = r.stdout.decode("utf-8", "replace"), r.stderr.decode("utf-8", "replace")
        assert code is None or r.returncode == code, f"{args}: {r.returncode}\n{out}\n{err}"
        assert "Sanitizer" not in err, err
        return out, err

    def ask_json(self, *args, **more):
        # The noisy host's login files go on writing in the background.
        return json.loads(self.ask(*args, **more)[0].replace("late words of a login file\n", ""))

    def start(self, *args, env=()):
        # nsenter forks for the pid namespace: the group is what a terminal's Ctrl-C reaches.
        return subprocess.Popen(self.command(*args, env=env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, start_new_session=True)


@pytest.fixture(scope="module")
def lab():
    made = Lab(HOSTS)
    for host in HOSTS:
        with open(PROGRAM, "rb") as program:
            subprocess.run(made.command(host, "dd", f"of={FAR}", "status=none"), stdin=program, check=True, cwd="/")
        made.bash(host, f"chmod 755 {FAR}")
        made.write(host, "/usr/local/bin/oldnvidb", OLD_NVIDB)
        made.bash(host, "chmod 755 /usr/local/bin/oldnvidb")
    yield made
    for host in HOSTS:
        made.bash(host, "pkill -TERM -f 'agent-|gpustow-agent'; true", check=False)
    made.down()


@pytest.fixture
def laptop(lab):
    made = Laptop(lab)
    made.remote("key")
    yield made
    lab.wire("key")
    forget_masters(lab)


def forget_masters(lab):
    lab.bash("ctl", "for s in /root/.gpustow*/ssh/*; do [ -S $s ] && ssh -o ControlPath=$s -O exit x; done; true", check=False)


def logins(lab, host):
    return lab.bash(host, "grep -c 'Accepted publickey' /var/log/sshd.log || true").strip()


def far(lab, host="key"):
    """Forwarded commands that are running there."""
    return lab.processes(host, "__forwarded")


# --- the round trip ---

def test_submit_and_look_at_it(laptop, lab):
    job = laptop.ask_json("job", "submit", "--json", "--no-tick", "--name", "first", "--", "echo", "hello")["job"]
    listed = laptop.ask_json("job", "ls", "--json")["jobs"]
    assert [j["name"] for j in listed if j["id"] == job["id"]] == ["first"]
    # It's there and not here.
    there = json.loads(lab.bash("key", f"HOME=/root {FAR} job ls --json --no-tick"))["jobs"]
    assert [j["id"] for j in there] == [j["id"] for j in listed]
    assert "queue.db" not in lab.bash("ctl", "ls /root/.gpustow")
    assert "first" in laptop.ask("job", "ls")[0]
    assert laptop.ask_json("--json", "job", "show", job["id"])["id"] == job["id"]


def test_exit_codes_come_through(laptop):
    ok = laptop.ask_json("job", "submit", "--json", "--gpus", "0", "--", "true")["job"]["id"]
    laptop.ask("job", "wait", ok)
    bad = laptop.ask_json("job", "submit", "--json", "--gpus", "0", "--", "exit 3")["job"]["id"]
    laptop.ask("job", "wait", bad, code=1)
    slow = laptop.ask_json("job", "submit", "--json", "--gpus", "0", "--", "sleep 60")["job"]["id"]
    laptop.ask("job", "wait", slow, "--timeout", "1", code=2)
    laptop.ask("job", "cancel", slow)
    laptop.ask("job", "wait", slow, code=1)
    out, err = laptop.ask("job", "show", "99999999", "--json", code=1)
    assert json.loads(out)["ok"] is False and not err
    # A newer far side may know options that this one doesn't: it's the one to say no.
    _, err = laptop.ask("job", "ls", "--no-such-option", code=2)
    assert "--no-such-option" in err


def test_words_arrive_as_they_were(laptop):
    odd = "printf 'a\nb' \"$HOME\" `id` \\ !! $(x) %s \t ä☃𝄞 \x7f"
    job = laptop.ask_json("job", "submit", "--json", "--no-tick", "--note", "it's\n\"so\"", "--", odd)["job"]
    shown = laptop.ask_json("job", "show", job["id"], "--json")
    assert shown["command"] == odd and shown["notes"] == "it's\n\"so\""
    words = laptop.ask_json("job", "submit", "--json", "--no-tick", "--", "echo", "two words", "--json", "--local", "it's")["job"]
    assert words["command"] == "echo 'two words' --json --local 'it'\"'\"'s'"


def test_one_connection_for_many_commands(laptop, lab):
    laptop.ask("job", "ls")
    before = logins(lab, "key")
    for _ in range(5):
        laptop.ask("job", "ls")
    assert logins(lab, "key") == before
    forget_masters(lab)
    laptop.ask("job", "ls")
    assert int(logins(lab, "key")) == int(before) + 1


def test_much_output_and_a_reader_that_goes(laptop, lab):
    lab.write("ctl", "/root/many.txt", "".join(f"echo {i} {'x' * 500}\n" for i in range(3000)))
    laptop.ask("job", "submit", "--gpus", "0", "--file", "/root/many.txt", "--no-tick")
    assert len(laptop.ask_json("job", "ls", "--json", "--no-tick")["jobs"]) >= 3000
    try:
        out = lab.bash("ctl", f"env {' '.join(lab.env)} gpustow job ls --json --no-tick | head -c 100; s=${{PIPESTATUS[0]}}; echo; echo $s")
        assert out.splitlines()[-1] == "1"
        until(lambda: not far(lab), why=lambda: far(lab))
    finally:
        ids = [j["id"] for j in laptop.ask_json("job", "ls", "--json", "--no-tick", "--state", "pending")["jobs"]]
        laptop.ask("job", "cancel", f"{ids[0]}-{ids[-1]}", code=None)


# --- what is this side's ---

def test_scripts_and_files_are_read_here(laptop, lab):
    body = "#!/bin/bash\n# it's \"quoted\"\necho $((1 + 1))\n"
    lab.write("ctl", "/root/my job.sh", body)
    for args, stdin in ((["--script", "/root/my job.sh"], b""), (["--script=~/my job.sh"], b""), (["--script", "-"], body.encode())):
        job = laptop.ask_json("job", "submit", "--json", "--no-tick", *args, stdin=stdin)["job"]
        assert laptop.ask_json("job", "show", job["id"], "--json")["command"].rstrip("\n") == body.rstrip("\n")
    jobs = laptop.ask_json("job", "submit", "--json", "--no-tick", "--file", "-", stdin=b"echo a\necho b\n")
    assert len(jobs["jobs"]) == 2
    # Mistakes have the name that was given here, and the sentence is the far side's.
    lab.write("ctl", "/root/bad.txt", "[gpus=x] echo\n")
    _, err = laptop.ask("job", "submit", "--file", "/root/bad.txt", code=1)
    assert "/root/bad.txt line 1" in err
    out, _ = laptop.ask("job", "submit", "--json", "--script", "/root/none.sh", code=1)
    assert "/root/none.sh" in json.loads(out)["error"]


def test_exported_variables_and_the_home_are_this_sides(laptop):
    job = laptop.ask_json("job", "submit", "--json", "--no-tick", "--env", "A=given", "--export", "A,B", "--workdir", "~/data", "--",
                          "true", env=["A=mine", "B=b \"c\"\nd", "HOME=/root"])["job"]
    shown = laptop.ask_json("job", "show", job["id"], "--json")
    assert shown["env"] == {"A": "given", "B": "b \"c\"\nd"} and shown["workdir"] == "/root/data"


def test_local_is_here(laptop, lab):
    laptop.ask("job", "submit", "--local", "--db-path", "/tmp/own.db", "--no-tick", "--", "true")
    assert len(laptop.ask_json("job", "ls", "--local", "--db-path", "/tmp/own.db", "--no-tick", "--json")["jobs"]) == 1
    assert len(laptop.ask_json("job", "ls", "--db-path", "/tmp/own.db", "--no-tick", "--json",
                               env=["GPUSTOW_QUEUE_NO_REMOTE=1"])["jobs"]) == 1
    # A database's path is this machine's and says nothing over there.
    assert laptop.ask_json("job", "ls", "--db-path", "/tmp/own.db", "--json")["jobs"] == laptop.ask_json("job", "ls", "--json")["jobs"]
    laptop.remote("nowhere.invalid")
    assert "usage" in laptop.ask("job", "submit", "--help")[0]
    laptop.ask("job", "ls", "--local", "--db-path", "/tmp/own.db", "--no-tick")


def test_home_over_there(laptop, lab):
    laptop.remote("key", gpustow_home="~/other home")
    laptop.ask("job", "submit", "--no-tick", "--", "true")
    assert "queue.db" in lab.bash("key", "ls '/root/other home'")


# --- W-59 ---

def test_w59_submitter_is_who_gave_the_command(laptop):
    job = laptop.ask_json("job", "submit", "--json", "--no-tick", "--", "true")["job"]
    assert re.fullmatch(r"root@ctl:\d+", job["submitter"]), job
    for args, env, want in (([], ["GPUSTOW_SUBMITTER=ann"], "ann"), (["--submitter", "bob"], ["GPUSTOW_SUBMITTER=ann"], "bob")):
        assert laptop.ask_json("job", "submit", "--json", "--no-tick", *args, "--", "true", env=env)["job"]["submitter"] == want


def test_w59_failures_of_ssh_are_errors_with_a_sentence(laptop, lab):
    for keys, what in (({"host": "nowhere.invalid"}, "nowhere.invalid"), ({"host": "key", "port": 9}, "refused"),
                       ({"host": "key", "username": "alice", "ssh_options": ["IdentitiesOnly=yes", "IdentityFile=/nonexistent"]},
                        "let"),
                       ({"host": "key", "ssh_options": ["UserKnownHostsFile=/dev/null"]}, "host key")):
        laptop.remote(keys.pop("host"), **keys)
        out, err = laptop.ask("job", "ls", "--json", code=1)
        assert json.loads(out)["ok"] is False and what in json.loads(out)["error"], out
        out, err = laptop.ask("job", "ls", code=1)
        assert not out and err.startswith("gpustow: ") and what in err, err
    laptop.remote("key", gpustow="/nonexistent/gpustow")
    _, err = laptop.ask("job", "ls", code=1)
    assert "can't run '/nonexistent/gpustow'" in err
    laptop.remote("key", gpustow="/it's")
    _, err = laptop.ask("job", "ls", code=1)
    assert "login shell" in err
    laptop.remote("key")
    lab.bash("ctl", "mkdir -p /nossh; ln -sf /usr/bin/env /usr/bin/gpustow /nossh")
    out, _ = laptop.ask("job", "ls", "--json", code=1, env=["PATH=/nossh"])
    assert "there's no ssh here" in json.loads(out)["error"]


def test_w59_keeper_is_known_wherever_the_word_stands(laptop):
    laptop.remote("key", keeper="ensure")
    # There's none over there, which is said once for a command; but not for the keeper's own.
    _, err = laptop.ask("job", "ls")
    assert err.count("warning") == 1 and "keeper install" in err
    for args in (["queue", "keeper"], ["queue", "--json", "keeper", "status"], ["q", "--db-path", "x", "keeper"]):
        _, err = laptop.ask(*args, code=None)
        assert "warning" not in err, (args, err)


# --- secrets ---

class Watcher(threading.Thread):
    """All command lines of a host, as often as can be, until it's told to end."""

    LOOK = ("import os,sys\nseen=set()\nend='/tmp/watch-end'\n"
            "while not os.path.exists(end):\n"
            " open('/tmp/watch-began','w').close()\n"
            " for p in os.listdir('/proc'):\n"
            "  if p.isdigit():\n"
            "   try: seen.add(open('/proc/%s/cmdline'%p,'rb').read())\n"
            "   except OSError: pass\n"
            "sys.stdout.buffer.write(b'\\n'.join(seen))\n")

    def __init__(self, lab, host):
        super().__init__()
        self.lab, self.host, self.seen = lab, host, b""
        lab.bash(host, "rm -f /tmp/watch-end /tmp/watch-began")
        self.start()
        until(lambda: lab.bash(host, "ls /tmp/watch-began", check=False))

    def run(self):
        self.seen = subprocess.run(self.lab.command(self.host, "python3", "-c", self.LOOK), stdout=subprocess.PIPE).stdout

    def end(self):
        self.lab.bash(self.host, "touch /tmp/watch-end")
        self.join()
        return self.seen


def test_w58_secrets_are_in_no_process_list(laptop, lab):
    lab.write("ctl", "/root/secret.sh", "# script-s3cret\nsleep 1\n")
    watchers = [Watcher(lab, "ctl"), Watcher(lab, "key")]
    laptop.ask("job", "submit", "--gpus", "0", "--wait", "--export", "TOKEN", "--script", "/root/secret.sh", env=["TOKEN=token-s3cret"])
    laptop.ask("job", "submit", "--gpus", "0", "--wait", "--env", "TOKEN=given-s3cret", "--", "sleep", "1")
    ctl, key = (w.end() for w in watchers)
    # What one types oneself is in one's own list; nothing else is.
    assert b"__forwarded" in key and b"__forwarded" in ctl
    assert b"script-s3cret" not in ctl and b"token-s3cret" not in b"\n".join(c for c in ctl.split(b"\n") if b"ssh\0" in c)
    assert all(b"s3cret" not in c for c in ctl.split(b"\n") if c.startswith(b"ssh")), ctl
    assert b"s3cret" not in key


# --- ends ---

def interrupt(lab):
    """What a terminal does at Ctrl-C: the whole foreground group, which is gpustow and its ssh."""
    lab.bash("ctl", "pkill -INT -f '^(gpustow|ssh) '")


def waiting(laptop, lab):
    job = laptop.ask_json("job", "submit", "--json", "--gpus", "0", "--", "sleep 300")["job"]["id"]
    w = laptop.start("job", "wait", job)
    until(lambda: len(far(lab)) >= 2, why=lambda: far(lab))
    return job, w


def test_ctrl_c_ends_the_far_command(laptop, lab):
    job, w = waiting(laptop, lab)
    time.sleep(0.5)
    interrupt(lab)
    assert w.wait(DEADLINE) == 130, w.stderr.read()
    until(lambda: not far(lab), why=lambda: far(lab))
    # A loop that ends well at Ctrl-C does so here, too.
    t = laptop.start("queue", "tick", "--watch", "60")
    assert t.stdout.readline()
    time.sleep(1)  # into the pause
    interrupt(lab)
    assert t.wait(DEADLINE) == 0, t.stderr.read()
    laptop.ask("job", "cancel", job)


@pytest.mark.parametrize("signo", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_far_command_ends_with_this_side(laptop, lab, signo):
    job, w = waiting(laptop, lab)
    own = lab.bash("ctl", f"pgrep -f 'gpustow job wait {job}' | head -1; true").split()
    lab.bash("ctl", f"pkill -{signo.name[3:]} -f '^gpustow job wait {job}'")
    until(lambda: not far(lab), why=lambda: (own, far(lab)))
    w.wait(DEADLINE)
    laptop.ask("job", "cancel", job)


def test_cut_link_is_an_error_and_not_an_answer(laptop, lab):
    job, w = waiting(laptop, lab)
    lab.wire("key", cut=1)
    assert w.wait(DEADLINE) == 1
    assert b"was lost" in w.stderr.read() and not w.stdout.read()
    lab.wire("key")
    forget_masters(lab)
    laptop.ask("job", "cancel", job)
    # The same as JSON: one document.
    lab.bash("key", "pkill -KILL -f [_]_forwarded; true")  # what of the first one hasn't noticed yet
    until(lambda: not far(lab), why=lambda: far(lab))
    job, _ = waiting(laptop, lab)
    n = len(far(lab))
    w = laptop.start("job", "wait", job, "--json")
    until(lambda: len(far(lab)) == 2 * n, why=lambda: far(lab))
    lab.bash("key", "pkill -KILL -f 'sshd: root@notty'")
    assert w.wait(DEADLINE) == 1
    assert "was lost" in json.loads(w.stdout.read())["error"]
    forget_masters(lab)
    laptop.ask("job", "cancel", job)


# --- far sides ---

@pytest.mark.parametrize("host", ["fish", "csh", "noisy"])
def test_login_shells(laptop, lab, host):
    laptop.remote(host)
    odd = "echo 'it''s' \"$HOME\" !! `id` \\\n(x) # ä"
    job = laptop.ask_json("job", "submit", "--json", "--no-tick", "--", odd)["job"]
    assert laptop.ask_json("job", "show", job["id"], "--json")["command"] == odd
    _, err = laptop.ask("job", "show", 424242, code=1)
    assert "424242" in err


@pytest.mark.parametrize("host", ["key", "fish", "csh", "noisy"])
def test_far_side_without_gpustow(laptop, lab, host):
    lab.write("ctl", "/root/.gpustow/queue.yml",
              f"remote:\n  host: {host}\n  nvidb: /usr/local/bin/oldnvidb\n  nvidb_home: ~/.nv idb\n  keeper: none\n")
    lab.write("ctl", "/root/s.sh", "echo 'it''s' \"$x\"\nexit\n")
    out, err = laptop.ask("job", "submit", "--script", "/root/s.sh", "--env", "A=it's \"so\"\n!x", "--", "fail", code=7,
                          env=["GPUSTOW_SUBMITTER=ann"])
    got = json.loads(out.replace("late words of a login file\n", ""))
    assert got["argv"][:3] == ["job", "submit", "--script"] and got["argv"][4:] == ["--env", "A=it's \"so\"\n!x", "--", "fail"]
    assert got["files"] == ["echo 'it''s' \"$x\"\nexit\n"]
    assert (got["submitter"], got["no_remote"], got["stdin"]) == ("ann", "1", "")
    assert got["home"].endswith("/.nv idb")
    assert err.endswith("a word on stderr\n") and "invalid choice" not in err
    assert "/tmp/tmp." not in lab.bash(host, "ls -d /tmp/tmp.* 2>&1 | grep -v 'No such' || true")


def test_keeper_over_there_is_ensured_told_of_and_stopped(laptop, lab):
    """The whole life of a real keeper and its daemon, each step given on the laptop and looked at on the host itself."""
    def runs(pid):
        return pid and lab.bash("key", f"kill -0 {pid} 2>&1 && echo yes; true").strip() == "yes"

    def keeper(*words, code=0):
        return laptop.ask_json("queue", "keeper", *words, "--json", code=code)

    def daemon():
        """As the queue over there has it: the one that answers."""
        return (laptop.ask_json("queue", "status", "--json", "--no-tick")["daemon"] or {}).get("pid")
    home = {"gpustow_home": "~/kept"}
    laptop.remote("key", keeper="none", **home)
    try:
        assert keeper("status", code=1)["installed"] is False
        made = keeper("install", "--interval", "2")
        assert made["ok"] and made["script"] == "/root/kept/queue-keeper.sh" and made["nvidb"] == FAR
        assert "queue-keeper.sh" in lab.bash("key", "ls /root/kept") and "queue-keeper" not in lab.bash("ctl", "ls /root/.gpustow")
        # Nobody ensures anything yet.
        laptop.ask("job", "ls", "--no-tick")
        state = keeper("status", code=1)
        assert state["installed"] and not state["running"] and state["pid"] is None and daemon() is None
        # Each command does now; the first one starts it.
        laptop.remote("key", keeper="ensure", **home)
        _, err = laptop.ask("job", "ls", "--no-tick")
        assert "warning" not in err
        pid = keeper("status")["pid"]
        assert runs(pid) and "queue-keeper.sh" in lab.bash("key", f"tr '\\0' ' ' </proc/{pid}/cmdline")
        until(daemon)
        first = daemon()
        assert runs(first) and "queue daemon --interval 2" in lab.bash("key", f"tr '\\0' ' ' </proc/{first}/cmdline")
        # The daemon over there does the work: no pass of a command.
        job = laptop.ask_json("job", "submit", "--json", "--no-tick", "--gpus", "0", "--", "true")["job"]["id"]
        until(lambda: laptop.ask_json("job", "show", job, "--json", "--no-tick")["state"] == "completed")
        assert keeper("status")["pid"] == pid and daemon() == first
        # Told as it is, whatever happened to it, and started again by the next command.
        lab.bash("key", f"kill -KILL {pid} {first}")
        until(lambda: not runs(pid) and not runs(first))
        state = keeper("status", code=1)
        assert state["installed"] and not state["running"] and state["pid"] is None
        _, err = laptop.ask("job", "ls", "--no-tick")
        assert "warning" not in err
        again = keeper("status")["pid"]
        assert again != pid and runs(again)
        until(lambda: daemon() not in (None, first))
        # A link that's down says nothing about the keeper.
        forget_masters(lab)
        lab.wire("key", cut=1)
        lost = laptop.ask_json("queue", "keeper", "status", "--json", code=1)
        assert lost["ok"] is False and lost["error"] and "running" not in lost
        lab.wire("key")
        forget_masters(lab)
        assert keeper("status")["pid"] == again
        # Stopped, nothing of it is left, and that isn't undone by asking for it.
        second = daemon()
        did = keeper("stop")
        assert did["ok"] and did["output"] == "stopped" and not did["state"]["running"]
        assert not runs(again) and not runs(second)
        assert keeper("status", code=1)["running"] is False and keeper("stop")["output"] == "not running"
        assert not runs(again)
        # It can't be started: that's warned of, and the command is run all the same.
        lab.bash("key", "sed -i 's|/usr/local/bin/gpustow|/nonexistent/gpustow|g' /root/kept/queue-keeper.sh")
        out, err = laptop.ask("job", "ls", "--no-tick", "--json")
        assert "warning" in err and [j["id"] for j in json.loads(out)["jobs"]] == [job], err
        laptop.remote("key", keeper="none", **home)
        assert keeper("status", code=1)["running"] is False
    finally:
        lab.wire("key")
        lab.bash("key", "sh /root/kept/queue-keeper.sh stop; rm -rf /root/kept", check=False)


def test_keeper_of_a_python_nvidb(laptop, lab):
    lab.write("ctl", "/root/.gpustow/queue.yml", "remote:\n  host: key\n  nvidb: /usr/local/bin/oldnvidb\n")
    _, err = laptop.ask("job", "ls")
    assert "no keeper is installed" in err
    lab.bash("key", "mkdir -p /root/.nvidb; printf '#!/bin/sh\\necho \"$1\" >>/root/kept\\n' >/root/.nvidb/queue-keeper.sh; "
             "chmod 755 /root/.nvidb/queue-keeper.sh")
    _, err = laptop.ask("job", "ls")
    assert "warning" not in err and lab.bash("key", "cat /root/kept") == "ensure\n"


def test_screen_gets_the_terminal(laptop, lab):
    """On a terminal `queue` goes by ssh -t, with the words on the line."""
    lab.write("key", "/usr/local/bin/screen", "#!/bin/sh\n[ -t 0 ] && [ -t 1 ] && echo \"screen: $* $GPUSTOW_QUEUE_NO_REMOTE\"\nexit 5\n")
    lab.bash("key", "chmod 755 /usr/local/bin/screen")
    laptop.remote("key", gpustow="/usr/local/bin/screen")
    parent, child = pty.openpty()
    w = subprocess.Popen(laptop.command("queue", "tui", "--refresh", "2"), stdin=child, stdout=child, stderr=child, start_new_session=True)
    os.close(child)
    said = b""
    while True:
        try:
            piece = os.read(parent, 4096)
        except OSError:
            break
        if not piece:
            break
        said += piece
    assert w.wait(DEADLINE) == 5, said
    assert b"screen: queue tui --refresh 2 1" in said
