"""config.yml and the commands about hosts, as a person and as a script use them: on a real terminal, several at once, on a
full disk, in a home that can't be written."""
import json
import os
import re
import signal
import stat
import subprocess
import time

import pexpect
import pyte
import pytest

from harness import DEADLINE, program, stat_of, until

CONFIG = """# Our machines.
basic:
  remote: true   # all of them

servers:
  # rack 1
  - hostname: gpu1   # the old one
    username: ann
    nickname: one
    colour: green

queue:
  headroom_mb: 512
"""


@pytest.fixture
def home(world):
    path = world.dir / "gpustow-home"
    path.mkdir(mode=0o700)
    world.env["GPUSTOW_HOME"] = str(path)
    return path


def write(home, text=CONFIG, mode=0o600):
    path = home / "config.yml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return path


class Terminal:
    """A program on a terminal of its own; `screen` is what a person sees."""

    def __init__(self, world, *args, rows=24, cols=200, env=None, name="gpustow"):
        self.screen = pyte.Screen(cols, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.child = pexpect.spawn(program(name), list(args), dimensions=(rows, cols), timeout=DEADLINE, cwd=str(world.dir),
                                   env={**world.env, "TERM": "xterm-256color", **(env or {})})
        self.child.delaybeforesend = None

    def pump(self, seconds=0.05):
        try:
            data = self.child.read_nonblocking(65536, timeout=seconds)
        except (pexpect.TIMEOUT, pexpect.EOF):
            return
        self.raw += data
        self.stream.feed(data)

    def text(self):
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    def sees(self, pattern):
        """On the screen; blanks at its end aren't seen."""
        pattern = pattern.replace(" $", "$")

        def look():
            self.pump()
            return re.search(pattern, self.text())
        return until(look, every=0, why=lambda: f"{pattern!r} on\n{self.text()}")

    def send(self, keys):
        self.child.send(keys)
        return self

    def line(self, text):
        return self.send(text + "\r")

    def ends(self, code=0):
        def look():
            self.pump()
            return not self.child.isalive()
        until(look, every=0, why=lambda: f"the end of\n{self.text()}")
        for _ in range(3):
            self.pump(0)
        got = self.child.exitstatus if self.child.exitstatus is not None else -self.child.signalstatus
        assert got == code, f"{got}, not {code}\n{self.text()}"
        return self

    def has_echo(self):
        return self.child.getecho()


# --- by options ---

def test_w57_add_keeps_everything_else(world, home):
    path = write(home, mode=0o640)
    world.ask("add", "--host", "10.0.0.7", "--port", "2222", "--user", "bob", "--nickname", "two", "--auth", "key",
              "--identity", "~/.ssh/id", "--proxyjump", "a, b@c:23", "--gpus", "0,1")
    text = path.read_text()
    added = """
  - hostname: 10.0.0.7
    port: 2222
    username: bob
    nickname: two
    auth: key
    identityfile: ~/.ssh/id
    proxyjump: a,b@c:23
    gpus: [0, 1]
"""
    assert text.replace(added, "", 1) == CONFIG and added in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    doc = world.ask_json("ls", "--json")
    assert [s["nickname"] for s in doc["servers"]] == ["one", "two"]
    assert doc["servers"][1] == {"nickname": "two", "hostname": "10.0.0.7", "port": 2222, "username": "bob", "auth": "key",
                                 "identityfile": f"{world.dir}/home/.ssh/id", "proxyjump": "a,b@c:23", "agent_dir": None,
                                 "gpus": [0, 1], "has_password": False}
    assert world.ask_json("info", "--json")["config"]["exists"]
    detail = world.ask("ls", "--detail").out
    assert "[2] two (10.0.0.7:2222)" in detail and "Via:      a,b@c:23" in detail and "GPUs:     0, 1" in detail


@pytest.mark.parametrize("options, sentence", [
    (["--host", "-oProxyCommand=x"], "hostname: '-oProxyCommand=x' won't do"),
    (["--host", "x", "--port", "70000"], "--port takes a whole number from 1 to 65535, not '70000'"),
    (["--host", "x", "--auth", "none"], "auth: 'none' won't do; write auto, key or password"),
    (["--host", "x", "--gpus", "a"], "gpus: 'a' won't do"),
    (["--host", "x", "--proxyjump", "none,a"], "none stands alone"),
    (["--user", "x"], "--host is needed"),
    ([], "--host is needed where no questions can be asked"),
])
def test_add_refuses(world, home, options, sentence):
    path = write(home)
    r = world.ask("add", *options, code=2)
    assert sentence in r.err
    assert path.read_text() == CONFIG


def test_duplicates_are_refused(world, home):
    path = write(home)
    assert "gpu1:22 with user ann is there already, as one" in world.ask(
        "add", "--host", "gpu1", "--user", "ann", "--nickname", "other", code=1).err
    assert "called one already" in world.ask("add", "--host", "x", "--nickname", "one", code=1).err
    assert path.read_text() == CONFIG


def test_names_have_homes_of_their_own(world):
    world.ask("add", "--host", "a", name="gpustow")
    world.ask("add", "--host", "b", name="nvidb")
    for directory, host in ((".gpustow", "a"), (".nvidb", "b")):
        path = world.dir / "home" / directory / "config.yml"
        assert f"hostname: {host}" in path.read_text()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    world.ask("add", "--host", "c", name="nvidb", env={"NVIDB_HOME": str(world.dir / "n"), "GPUSTOW_HOME": str(world.dir / "g")})
    assert (world.dir / "n/config.yml").exists() and not (world.dir / "g").exists()


def test_password_by_stdin(world, home):
    with open(world.dir / "secret", "w") as f:
        f.write("it's: # s\u00e4cret\nrest\n")
    r = world.ask("add", "--host", "a", "--auth", "password", "--password-stdin", stdin=open(world.dir / "secret"))
    assert "s\u00e4cret" not in r.out + r.err
    assert "password: 'it''s: # s\u00e4cret'" in (home / "config.yml").read_text()
    assert "cret" not in world.ask("ls", "--detail").out + world.ask("ls", "--json").out
    (home / "config.yml").chmod(0o644)
    r = world.ask("ls")
    assert "others may read it (mode 0644); 'chmod 600" in r.err and "cret" not in r.err
    before = (home / "config.yml").read_bytes()
    r = world.ask("add", "--host", "b", "--password-stdin", stdin=open(world.dir / "secret"), code=1)
    assert "no password is put there" in r.err and (home / "config.yml").read_bytes() == before


def test_password_on_a_terminal_has_no_echo(world, home):
    t = Terminal(world, "add", "--host", "a", "--password-stdin")
    t.sees("Password:")
    until(lambda: not t.has_echo())
    t.line("hidden\x7fn")
    t.ends()
    assert "hidde" not in t.text() and t.has_echo()
    assert "password: hidden" in (home / "config.yml").read_text()
    t = Terminal(world, "add", "--host", "b", "--password-stdin")
    t.sees("Password:")
    until(lambda: not t.has_echo())
    t.child.kill(signal.SIGTERM)
    t.ends(1)
    assert t.has_echo() and "hostname: b" not in (home / "config.yml").read_text()


def test_mistakes_are_named(world, home):
    write(home, "basic:\n  remote: maybe\n")
    for command in (["ls"], ["add", "--host", "x"], ["clean", "server", "x", "--yes"], ["import", "--json"]):
        assert "config.yml line 2: remote: 'maybe' won't do; write true or false" in world.ask(*command, code=2).err
    r = world.ask("info", code=2)
    assert "config.yml (not readable)" in r.out and "line 2" in r.err
    assert (home / "config.yml").read_text() == "basic:\n  remote: maybe\n"
    write(home, "basic:\n  remoet: true\n")
    assert "warning: config.yml line 2: unknown key 'remoet' in basic: is ignored; did you mean remote?" in world.ask("ls").err


def test_flow_style_is_refused_with_the_lines(world, home):
    path = write(home, "servers: [{hostname: a}]\n")
    r = world.ask("add", "--host", "b", code=1)
    assert "line 1: [...] and {...} aren't edited" in r.err and "  - hostname: b\n" in r.err
    assert path.read_text() == "servers: [{hostname: a}]\n"


# --- the wizard ---

def test_wizard(world, home):
    path = write(home)
    t = Terminal(world, "add")
    t.sees("Host: $")
    t.line("").sees("this one is needed")
    t.line("a b").sees("won't do; write a host's name")
    t.line("gpu2")
    t.sees(r"Port \[22\]: $")
    t.line("70000").sees("write a number from 1 to 65535")
    t.line("")
    t.sees("Username: $")
    t.line("bob")
    t.sees(r"Nickname \[bob@gpu2:22\]: $")
    t.line("one").sees("There's a server called one already")
    t.line("two")
    t.sees(r"1 auto, 2 key, 3 password \[1\]: $")
    t.line("4").sees("1, 2 or 3")
    t.line("2")
    t.sees("Identity file .*: $")
    t.line("~/.ssh/id")
    t.sees("Proxy jump .*: $")
    t.line("jump")
    t.sees(r"Nickname: +two(.|\n)*Via: +jump(.|\n)*\[Y/n\] $")
    assert path.read_text() == CONFIG
    t.line("")
    t.sees("Added two to")
    t.ends()
    text = path.read_text()
    assert "# rack 1" in text and "colour: green" in text
    assert ("  - hostname: gpu2\n    port: 22\n    username: bob\n    nickname: two\n    auth: key\n"
            "    identityfile: ~/.ssh/id\n    proxyjump: jump\n") in text


def test_wizard_with_password_asks_for_no_key_and_no_password(world, home):
    t = Terminal(world, "add")
    for prompt, answer in (("Host: $", "h"), ("Port.*: $", "2200"), ("Username: $", "u"), ("Nickname.*: $", ""),
                           ("password.*: $", "3"), ("Proxy jump.*: $", "none"), (r"\[Y/n\] $", "y")):
        t.sees(prompt)
        t.line(answer)
    t.sees("Added u@h:2200")
    t.ends()
    assert "Identity" not in t.text() and "Password" not in t.text()
    assert "auth: password" in (home / "config.yml").read_text() and "proxyjump" not in (home / "config.yml").read_text()


@pytest.mark.parametrize("way", ["ctrl-c", "ctrl-d", "no", "kill", "ctrl-c at once"])
def test_wizard_given_up_leaves_the_file(world, home, way):
    path = write(home)
    before = path.stat()
    t = Terminal(world, "add")
    t.sees("Host: $")
    if way != "ctrl-c at once":
        for prompt, answer in (("Host: $", "h"), ("Port.*: $", ""), ("Username: $", "u"), ("Nickname.*: $", ""),
                               ("password.*: $", ""), ("Identity.*: $", ""), ("Proxy jump.*: $", "")):
            t.sees(prompt)
            t.line(answer)
        t.sees(r"\[Y/n\] $")
    if way == "ctrl-d":
        t.send("\x04").ends(1)
        assert "nothing was changed" in t.text()
    elif way == "no":
        t.line("n").ends(0)
        assert "Nothing was added." in t.text()
    elif way == "kill":
        t.child.kill(signal.SIGTERM)
        t.ends(-signal.SIGTERM)
    else:
        t.send("\x03").ends(-signal.SIGINT)
    assert path.read_text() == CONFIG and path.stat().st_mtime_ns == before.st_mtime_ns
    assert sorted(os.listdir(home)) == ["config.yml"]


# --- import ---

SSH = """
Host gamma
  HostName 10.0.0.3
Host alpha
  HostName 10.0.0.1
  User ann
  Port 2201
  IdentityFile ~/.ssh/special
Host beta
  HostName 10.0.0.2
  User bob
  ProxyJump alpha
Host *.lab !no
  User nobody
Include %s
"""


@pytest.fixture
def ssh_config(world):
    (world.dir / "more.conf").write_text("Host delta\n  ProxyCommand /bin/nc %h %p\n  User d\n")
    path = world.dir / "ssh_config"
    path.write_text(SSH % (world.dir / "more.conf"))
    return path


def test_import_all(world, home, ssh_config):
    path = write(home)
    r = world.ask("import", ssh_config, "--all")
    assert r.out == "4 added, 0 skipped\n"
    servers = {s["nickname"]: s for s in world.ask_json("ls", "--json")["servers"]}
    assert list(servers) == ["one", "alpha", "beta", "delta", "gamma"]
    assert servers["alpha"]["identityfile"] == f"{world.dir}/home/.ssh/special"
    assert (servers["alpha"]["hostname"], servers["alpha"]["port"], servers["alpha"]["username"]) == ("10.0.0.1", 2201, "ann")
    assert (servers["beta"]["proxyjump"], servers["beta"]["identityfile"]) == ("alpha", None)
    assert servers["delta"]["hostname"] == "delta", "its ProxyCommand is ssh's to know"
    assert all(s["auth"] == "auto" for s in servers.values())
    assert "# rack 1" in path.read_text()
    r = world.ask("import", ssh_config, "--all")
    assert r.out.splitlines()[0] == "0 added, 4 skipped:" and "  alpha: already there as alpha" in r.out


def test_import_by_name_and_json(world, home, ssh_config):
    doc = world.ask_json("import", ssh_config, "--json")
    assert [s["nickname"] for s in doc["importable"]] == ["alpha", "beta", "delta", "gamma"] and not (home / "config.yml").exists()
    doc = world.ask_json("import", ssh_config, "beta", "gamma", "--json")
    assert [s["nickname"] for s in doc["added"]] == ["beta", "gamma"] and doc["skipped"] == []
    assert "there's no host 'nope'" in world.ask("import", ssh_config, "nope", code=1).err
    assert "name the hosts, or say --all" in world.ask("import", ssh_config, code=2).err
    assert "cannot read" in world.ask("import", world.dir / "nothing.conf", "--all", code=1).err
    # Another machine of the same name isn't taken for it.
    write(home, "servers:\n- {hostname: other, nickname: alpha}\n")
    assert "alpha: another server is called alpha" in world.ask("import", ssh_config, "alpha").out


def test_import_from_the_usual_place(world, home, ssh_config):
    (world.dir / "home" / ".ssh").mkdir()
    ssh_config.rename(world.dir / "home" / ".ssh" / "config")
    assert world.ask("import", "alpha").out == "1 added, 0 skipped\n"


def test_import_says_what_ssh_says(world, home):
    bad = world.dir / "bad.conf"
    bad.write_text("Host a\n  Port nothing\n")
    r = world.ask("import", bad, "--all", code=1)
    assert "  a: ssh can't say what a means (exit code 255)" in r.out and "nothing" in r.out and "line 2" in r.out
    assert not (home / "config.yml").exists()


def test_checklist(world, home, ssh_config):
    path = write(home, "servers:\n- {hostname: 10.0.0.3, username: %s, nickname: old}\n" % os.popen("id -un").read().strip())
    t = Terminal(world, "import", str(ssh_config))
    t.sees(r"> \[x\] alpha +ann@10.0.0.1:2201\n  \[x\] beta .* via alpha\n  \[x\] delta .*\n  \[x\] gamma .*already there as old")
    t.sees("4 of 4 chosen")
    until(lambda: not t.has_echo())
    t.send("j ").sees(r"  \[x\] alpha.*\n> \[ \] beta")
    t.send("\x1b[B\x1b[B\x1b[B").sees(r"> \[x\] gamma")
    t.send("k").sees(r"> \[x\] delta")
    t.send("n").sees("0 of 4 chosen")
    t.send("a").sees("4 of 4 chosen")
    t.send("\x1b[A ").sees(r"> \[ \] beta")
    t.send("i").sees("1 of 4 chosen")
    t.send("i").sees("3 of 4 chosen")
    assert "hostname: 10.0.0.1" not in path.read_text()
    t.send("s")
    t.sees(r"Add 2 servers to .*\? \[Y/n\] $")
    assert t.has_echo() and b"\x1b[?1049l" in t.raw and "[x]" not in t.text()
    t.line("")
    t.sees(r"2 added, 1 skipped:\n +gamma: already there as old")
    t.ends()
    assert [s["nickname"] for s in world.ask_json("ls", "--json")["servers"]] == ["old", "alpha", "delta"]


@pytest.mark.parametrize("way", ["q", "\x1b", "\x03", "s-n", "kill", "hangup"])
def test_checklist_given_up(world, home, ssh_config, way):
    t = Terminal(world, "import", str(ssh_config))
    t.sees("4 of 4 chosen")
    if way == "s-n":
        t.send("\r").sees(r"\[Y/n\] $")
        t.line("n").sees("Nothing was added")
        t.ends(0)
    elif way in ("kill", "hangup"):
        t.child.kill(signal.SIGTERM if way == "kill" else signal.SIGHUP)
        t.ends(1)
        assert "interrupted; nothing was changed" in t.text()
    else:
        t.send(way).sees("Nothing was added")
        t.ends(0)
    assert t.raw.rindex(b"\x1b[?1049l") > t.raw.rindex(b"\x1b[?1049h") and t.raw.rindex(b"\x1b[?25h") > t.raw.rindex(b"\x1b[?25l")
    assert t.has_echo() and not (home / "config.yml").exists()


def test_checklist_scrolls_and_follows_the_window(world, home):
    path = world.dir / "many"
    path.write_text("".join(f"Host h{i:02}\n  HostName 10.0.1.{i}\n" for i in range(30)))
    t = Terminal(world, "import", str(path), rows=10, cols=30)
    t.sees("30 of 30 chosen")
    t.send("j" * 29).sees(r"> \[x\] h29")
    assert "h00" not in t.text() and len(t.text().splitlines()) == 10
    t.screen.resize(20, 60)
    t.child.setwinsize(20, 60)
    t.sees(r"h13(.|\n)*> \[x\] h29")
    t.send("q").ends(0)


def test_checklist_needs_a_terminal_that_can(world, home, ssh_config):
    t = Terminal(world, "import", str(ssh_config), env={"TERM": "dumb"})
    t.ends(2)
    assert "no checklist can be shown" in t.text() and b"\x1b" not in t.raw


# --- clean ---

def test_clean_server(world, home):
    path = write(home)
    assert "nobody is there to say yes" in world.ask("clean", "server", "one", code=2).err
    assert "there's no server 'two'; config.yml has one" in world.ask("clean", "server", "two", "--yes", code=1).err
    assert path.read_text() == CONFIG
    world.ask("clean", "server", "on", "--yes")
    assert path.read_text() == CONFIG.replace(
        "  - hostname: gpu1   # the old one\n    username: ann\n    nickname: one\n    colour: green\n", "")


def test_clean_menu(world, home):
    path = write(home)
    t = Terminal(world, "clean")
    t.sees(r"1  remove a server\n  2  delete the GPU log\n  3  cancel\nWhat\? \[3\] $")
    t.line("1").sees(r"1  one \(ann@gpu1:22\)\nWhich one")
    t.line("7").sees("A number from 1 to 1")
    t.line("1").sees(r"Remove one .*\[y/N\] $")
    t.line("").sees("Nothing was deleted")
    t.ends()
    assert path.read_text() == CONFIG
    (home / "gpu_log.db").write_bytes(b"x" * 5000)
    (home / "gpu_log.db-wal").write_bytes(b"x")
    t = Terminal(world, "clean")
    t.sees("What")
    t.line("2").sees(r"Delete the GPU log .*gpu_log.db \(4.9 KiB\)\? \[y/N\] $")
    t.line("y").sees("Deleted")
    t.ends()
    assert sorted(os.listdir(home)) == ["config.yml"]
    t = Terminal(world, "clean")
    t.sees("What")
    t.line("3").ends()


def test_clean_all_asks_twice(world, home):
    write(home)
    t = Terminal(world, "clean", "all")
    t.sees(r"Delete .* with everything in it .*\[y/N\] $")
    t.line("y").sees("Type DELETE to go on: $")
    t.line("delete").sees("Nothing was deleted")
    t.ends()
    assert (home / "config.yml").exists()
    t = Terminal(world, "clean", "all")
    t.sees(r"\[y/N\] $")
    t.line("y").sees("Type DELETE")
    t.line("DELETE").sees("Deleted")
    t.ends()
    assert not home.exists()
    assert "There's nothing to delete" in world.ask("clean", "all", "--yes").out


def test_clean_all_spares_what_isnt_ours(world, home):
    (world.dir / "home" / "thesis.tex").write_text("x")
    for where in (world.dir / "home", world.dir, "/"):
        assert "holds your home directory" in world.ask("clean", "all", "--yes", code=1, env={"GPUSTOW_HOME": str(where)}).err
    (home / "thesis.tex").write_text("x")
    assert "holds nothing that gpustow made" in world.ask("clean", "all", "--yes", code=1).err
    assert (home / "thesis.tex").exists() and (world.dir / "home" / "thesis.tex").exists()


def test_clean_all_spares_running_jobs(world, home):
    """An agent's state below the home: deleting it would let a job start twice."""
    home = world.dir / "agent-home"  # where the world looks for agents at its end
    home.mkdir(mode=0o700)
    write(home)
    world.env.update(GPUSTOW_AGENT_ROOT=str(home / "agent"), GPUSTOW_HOME=str(home))
    world.jobs("touch $W/up; while [ ! -e $W/go ]; do sleep 0.05; done")
    run = world.run()
    until(lambda: (world.dir / "up").exists())
    r = world.ask("clean", "all", "--yes", code=1)
    assert re.search(r"process \d+ uses .*/agent/", r.err)
    assert (home / "config.yml").exists()
    (world.dir / "go").touch()
    run.wait()


# --- several at once, and disks ---

def test_w57_ten_at_once_lose_none(world, home):
    path = write(home)
    started = [world.spawn(program(), "add", "--host", f"h{i}", "--nickname", f"n{i}") for i in range(10)]
    for s in started:
        s.wait(0)
    text = path.read_text()
    assert sorted(re.findall(r"nickname: (n\d)", text)) == [f"n{i}" for i in range(10)]
    assert text.startswith(CONFIG[:CONFIG.index("\nqueue:")]) and text.endswith("queue:\n  headroom_mb: 512\n")
    assert sorted(os.listdir(home)) == ["config.lock", "config.yml"]


def test_adds_and_removes_at_once(world, home):
    write(home, "servers:\n" + "".join(f"- hostname: o{i}\n  nickname: old{i}\n" for i in range(8)))
    started = []
    for i in range(8):
        started.append(world.spawn(program(), "add", "--host", f"h{i}", "--nickname", f"new{i}"))
        started.append(world.spawn(program(), "clean", "server", f"old{i}", "--yes"))
    for s in started:
        s.wait(0)
    names = sorted(s["nickname"] for s in world.ask_json("ls", "--json")["servers"])
    assert names == [f"new{i}" for i in range(8)]


def has_open(pid, path):
    try:
        return str(path) in [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return False


def held_before_replace(world, *args):
    """A command stopped when the new file lies beside the old one."""
    r = world.spawn(program(), *args, env={"GPUSTOW_FAULT": "config.before-replace:stop#1"})
    until(lambda: stat_of(r.pid) and stat_of(r.pid)[0] == "T", why=r.tell)
    return r


def test_w57_an_editor_that_saves_meanwhile_loses_nothing(world, home):
    """The lock is ours alone: what an editor saves between our look and our rename is looked at again."""
    path = write(home)
    r = held_before_replace(world, "add", "--host", "new")
    saved = CONFIG.replace("# all of them", "# none of them, on second thoughts")
    world.write(saved, path)
    r.kill(signal.SIGCONT).wait(0)
    text = path.read_text()
    assert "hostname: new" in text and "on second thoughts" in text
    assert sorted(os.listdir(home)) == ["config.lock", "config.yml"]


def test_the_second_waits_for_the_first(world, home):
    path = write(home)
    first = held_before_replace(world, "add", "--host", "first")
    second = world.spawn(program(), "add", "--host", "second")
    for _ in range(3):  # it has the lock's file open, and still has it a while later
        until(lambda: has_open(second.pid, home / "config.lock"), why=second.tell)
        time.sleep(0.1)
    first.kill(signal.SIGCONT).wait(0)
    second.wait(0)
    assert path.read_text().index("hostname: first") < path.read_text().index("hostname: second")


def test_ctrl_c_while_it_writes(world, home):
    path = write(home)
    r = held_before_replace(world, "add", "--host", "new")
    r.kill(signal.SIGINT)
    r.kill(signal.SIGCONT)
    r.wait(-signal.SIGINT)
    assert "hostname: new" in path.read_text() and sorted(os.listdir(home)) == ["config.lock", "config.yml"]


def test_killed_while_it_writes(world, home):
    path = write(home)
    r = world.spawn(program(), "add", "--host", "new", env={"GPUSTOW_FAULT": "config.before-replace:kill"})
    r.wait(-signal.SIGKILL)
    assert path.read_text() == CONFIG
    world.ask("add", "--host", "new")
    assert "hostname: new" in path.read_text()
    r = world.spawn(program(), "add", "--host", "more", env={"GPUSTOW_FAULT": "config.before-replace:enospc"})
    r.wait(1)
    assert "No space left on device" in r.err and "hostname: more" not in path.read_text()


def needs_mount(world, home, *options):
    """A file system of its own at the home, in a name space of its own: returns a function that runs a script there."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("needs root and mount name spaces")

    def run(script, code=None):
        r = world.spawn("unshare", "-m", "--propagation", "private", "sh", "-c",
                        f"mount -t tmpfs {' '.join(options)} none {home} && {script}")
        r.wait(code)
        return r
    return run


def test_full_disk_leaves_the_file(world, home):
    run = needs_mount(world, home, "-o", "size=64k")
    before = "# " + "x" * 3000 + "\n" + CONFIG
    (world.dir / "before").write_text(before)
    r = run(f"cp {world.dir}/before {home}/config.yml && chmod 640 {home}/config.yml && touch {home}/config.lock && "
            f"(head -c 1000000 /dev/zero >{home}/fill; true) 2>/dev/null; {program()} add --host new; echo code $?; "
            f"cmp {home}/config.yml {world.dir}/before && ls {home} && stat -c %a {home}/config.yml; rm {home}/fill; "
            f"{program()} add --host new && grep -c new {home}/config.yml", 0)
    assert "code 1" in r.out and "No space left on device" in r.err
    assert "which stays as it was" in r.err
    assert "config.lock\nconfig.yml\nfill\n640\n" in r.out
    assert r.out.rstrip().endswith("2")


def test_read_only_home(world, home):
    run = needs_mount(world, home)
    (world.dir / "before").write_text(CONFIG)
    r = run(f"cp {world.dir}/before {home}/config.yml && mount -o remount,ro {home} && {program()} ls && "
            f"{program()} add --host new; echo code $?; {program()} clean server one --yes; echo code $?; {program()} info; "
            f"cmp {home}/config.yml {world.dir}/before", 0)
    assert r.out.count("code 1") == 2 and "[1] one (gpu1:22)" in r.out
    assert r.err.count("Read-only file system") == 2


def test_home_of_somebody_else(world, home):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    path = write(home, mode=0o644)
    home.chmod(0o755)
    r = world.spawn("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", program(), "add", "--host", "x")
    r.wait(1)
    assert "Permission denied" in r.err and path.read_text() == CONFIG


def test_link_is_followed(world, home):
    target = world.dir / "dotfiles" / "gpustow.yml"
    target.parent.mkdir()
    target.write_text(CONFIG)
    target.chmod(0o600)
    (home / "config.yml").symlink_to(target)
    world.ask("add", "--host", "new")
    assert (home / "config.yml").is_symlink() and "hostname: new" in target.read_text()
    assert os.listdir(target.parent) == ["gpustow.yml"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_output_that_goes_nowhere(world, home):
    write(home)
    with open("/dev/full", "w") as full:
        assert "No space left" in world.ask("ls", code=1, stdout=full).err
        assert "No space left" in world.ask("ls", "--json", code=1, stdout=full).err


def test_odd_names_have_no_power_over_the_terminal(world, home):
    write(home, 'servers:\n- hostname: a\n  "x\\e[2J\\nb": 1\n'.encode())
    assert "\x1b" not in world.ask("ls").err
    bad = world.dir / "bad"
    bad.write_bytes(b"Host a\x1b[31mb ok\n")
    doc = world.ask_json("import", bad, "--json")
    assert [s["nickname"] for s in doc["importable"]] == ["ok"]


def test_json_is_json(world, home):
    write(home, "servers:\n- hostname: a\n  nickname: 'gr\u00f6\u00dfe \"x\" \U0001f600'\n")
    assert json.loads(world.ask("ls", "--json").out)["servers"][0]["nickname"] == 'gr\u00f6\u00dfe "x" \U0001f600'
