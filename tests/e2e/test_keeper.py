"""The keeper: its shell script in all its states with a stand-in for the daemon, and a real user's systemd in a namespace."""
import json
import os
import pwd
import re
import shutil
import stat
import subprocess
import time

import pytest

from harness import ROOT, is_alive, program, stat_of, until

FAST = {"GPUSTOW_KEEPER_DELAY": "1", "GPUSTOW_KEEPER_DELAY_MAX": "4", "GPUSTOW_KEEPER_LOOK": "1",
        "GPUSTOW_KEEPER_GRACE": "3"}

DAEMON = """#!/bin/sh
# Says what it was started with, and does as the files beside it say.
w=$(dirname "$0")
[ -e $w/deaf ] && trap '' TERM || trap 'echo term >> '$w'/ended; exit 0' TERM
echo "$* home=${GPUSTOW_HOME:-}${NVIDB_HOME:-}" >> $w/starts
echo "a word on stdout"; echo "a word on stderr" >&2
[ -e $w/crash ] && exit 7
while :; do [ -e $w/loud ] && echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; sleep 0.05; done
"""


class Keeper:
    def __init__(self, world, name="gpustow", env=FAST):
        self.world, self.name, self.env = world, name, env
        self.home = world.dir / "home" / f".{name}"
        self.d = world.dir / "d"  # the stand-in's
        self.d.mkdir(exist_ok=True)
        self.program = self.d / "it's the daemon"
        self.program.write_text(DAEMON)
        self.program.chmod(0o755)

    def __call__(self, *words, code=0):
        return self.world.ask_json("queue", "keeper", *words, "--json", code=code, name=self.name, env=self.env)

    def install(self, *more, code=0):
        return self("install", "--program", str(self.program), *more, code=code)

    def starts(self):
        return (self.d / "starts").read_text().splitlines() if (self.d / "starts").exists() else []

    def daemon(self):
        """The running stand-in."""
        until(lambda: (self.home / "queue-keeper.session").exists())
        pid = int((self.home / "queue-keeper.session").read_text().split()[0])
        return pid

    def up(self):
        """The stand-in runs and listens to TERM."""
        n = len(self.starts())
        return until(lambda: len(self.starts()) >= max(n, 1) and is_alive(self.daemon()) and self.daemon())

    def log(self):
        path = self.home / "queue-keeper.log"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def keeper(world):
    k = Keeper(world)
    yield k
    script = k.home / "queue-keeper.sh"
    if script.exists():
        subprocess.run(["/bin/sh", script, "stop"], env={**world.env, **FAST}, stdout=subprocess.DEVNULL)


def test_install_start_ensure_stop_restart_status_logs(world, keeper):
    state = keeper("status", code=1)
    assert state == dict(installed=False, running=False, pid=None, manager=None, script=None, unit=None, log=None)
    assert "no keeper is installed" in keeper("start", code=1)["error"]
    made = keeper.install("--interval", "7")
    script = keeper.home / "queue-keeper.sh"
    assert made["log"] == str(keeper.home / "queue-keeper.log")
    assert made["ok"] and made["script"] == str(script) and made["nvidb"] == str(keeper.program)
    assert made["interval"] == 7 and made["replaced"] is False and made["manager"] == "shell" and made["unit"] is None
    assert made["started"] is None and made["start_error"] is None and made["state"]["running"] is False
    assert stat.S_IMODE(script.stat().st_mode) == 0o755
    assert stat.S_IMODE((keeper.home / "queue-keeper.manager").stat().st_mode) == 0o600

    did = keeper("start")
    pid = did["state"]["pid"]
    assert did["ok"] and did["action"] == "start" and did["output"] == f"started (pid {pid})" and is_alive(pid)
    assert stat_of(pid)[2] == pid, "a session of its own"
    daemon = keeper.up()
    assert keeper.starts() == [f"queue daemon --interval 7 home={keeper.home}"]
    for again in ("start", "ensure"):
        assert keeper(again)["output"] == f"already running (pid {pid})"
    assert keeper("status") == {**keeper("status"), "installed": True, "running": True, "pid": pid, "manager": "shell",
                                "script": str(script)}
    # The script itself says the same.
    by_hand = subprocess.run(["sh", script, "status"], env=world.env, capture_output=True, text=True)
    assert (by_hand.returncode, by_hand.stdout) == (0, f"running (pid {pid})\n")
    assert subprocess.run(["sh", script, "dance"], env=world.env, capture_output=True).returncode == 2

    did = keeper("restart")
    assert did["state"]["pid"] != pid and not is_alive(pid) and not is_alive(daemon)
    until(lambda: len(keeper.starts()) == 2)
    r = world.ask("queue", "keeper", "logs", "-n", "2", env=FAST)
    assert len(r.lines()) == 2
    until(lambda: "a word on stderr" in world.ask("queue", "keeper", "logs", env=FAST).out)
    assert "a word on stdout" in keeper("logs")["output"]
    assert stat.S_IMODE((keeper.home / "queue-keeper.log").stat().st_mode) == 0o600

    daemon, pid = keeper.up(), keeper("status")["pid"]
    did = keeper("stop")
    assert did["output"] == "stopped" and did["state"]["running"] is False and did["state"]["pid"] is None
    assert not is_alive(daemon) and not is_alive(pid)
    assert (keeper.d / "ended").read_text() == "term\nterm\n"
    assert keeper("stop")["output"] == "not running"
    assert keeper("status", code=1)["installed"] is True
    assert not (keeper.home / "queue-keeper.pid").exists() and not (keeper.home / "queue-keeper.lock").exists()


def test_keeper_that_cannot_write_down_who_it_is_does_not_stay(world, keeper):
    """As on a full disk: what runs and isn't known would never be stopped, and the next start would be a second one."""
    keeper.install()
    (keeper.home / "queue-keeper.pid.new").mkdir()
    keeper("start", code=1)
    (keeper.home / "queue-keeper.pid.new").rmdir()
    keeper("start")
    keeper.up()
    assert len(keeper.starts()) == 1
    # The daemon's name is written as soon as that can be.
    (keeper.home / "queue-keeper.session.new").mkdir()
    os.kill(keeper.daemon(), 9)
    until(lambda: len(keeper.starts()) == 2)
    (keeper.home / "queue-keeper.session.new").rmdir()
    assert is_alive(until(lambda: is_alive(keeper.daemon()) and keeper.daemon()))
    keeper("stop")
    assert not [p for p in world.processes().values() if "_loop" in p]



def test_words_for_people_and_the_name_nvidb(world):
    k = Keeper(world, "nvidb", {})
    r = world.ask("queue", "keeper", code=1, name="nvidb")
    assert r.out == "not installed\n`nvidb queue keeper install` makes one\n"
    r = world.ask("queue", "keeper", "install", "--nvidb", k.program, "--start", name="nvidb")
    assert re.fullmatch(rf"installed: {k.home}/queue-keeper.sh\nrunning \(pid \d+\)\n", r.out)
    until(lambda: k.starts() == [f"queue daemon --interval 15 home={k.home}"])
    assert world.ask("queue", "keeper", "stop", name="nvidb").out == "stopped\n"
    r = world.ask("queue", "keeper", "status", code=1, name="nvidb")
    assert r.out == f"stopped, shell: {k.home}/queue-keeper.sh\n"
    for bad, why, code in (["dance"], "is nothing a keeper does", 2), (["stop", "--start"], "go with install", 2), \
                          (["start", "--systemd"], "go with install", 2), (["--start"], "go with install", 2), \
                          (["install", "--program", "/nowhere/x"], "/nowhere/x can't be executed", 1), \
                          (["status", "--db-path", "x"], "set NVIDB_HOME", 1):
        assert why in world.ask("queue", "keeper", *bad, code=code, name="nvidb").err
    assert "--interval" in world.ask("queue", "keeper", "install", "--interval", "1", code=2, name="nvidb").err


def test_the_default_program_is_this_one_under_its_name(world, keeper):
    made = keeper("install")
    assert made["nvidb"] == program("gpustow")
    assert keeper("install", "--nvidb", "simjob-that-isnt", code=1)["ok"] is False


def test_a_broken_queue_yml_does_not_keep_one_from_stopping(world, keeper):
    keeper.install("--start")
    (keeper.home / "queue.yml").write_text("queue: [\n")
    assert keeper("stop")["output"] == "stopped"


def test_w64_a_daemon_that_fails_is_started_again_with_growing_waits(world, keeper):
    (keeper.d / "crash").write_text("")
    keeper.install("--start")
    until(lambda: len(keeper.starts()) >= 4)
    waits = [int(w) for w in re.findall(r"exit code 7\) after \d+ s; it's started again in (\d+) s", keeper.log())]
    assert waits[:3] == [1, 2, 4]
    until(lambda: len(re.findall("started again", keeper.log())) >= 4)
    assert re.findall(r"again in (\d+) s", keeper.log())[3] == "4", "not above the most"
    # Still up, for it's the keeper's business to go on.
    assert keeper("status")["running"]
    keeper("stop")
    # It ends in the middle of a wait, and needn't be killed for that.
    keeper.env = {**FAST, "GPUSTOW_KEEPER_DELAY": "600", "GPUSTOW_KEEPER_DELAY_MAX": "600"}
    keeper("start")
    until(lambda: "again in 600 s" in keeper.log())
    assert keeper("stop")["output"] == "stopped"
    n = len(keeper.starts())
    time.sleep(1.5)
    assert len(keeper.starts()) == n


def test_w64_the_waits_begin_anew_after_a_steady_life(world, keeper):
    keeper.env = {**FAST, "GPUSTOW_KEEPER_STEADY": "2"}
    (keeper.d / "crash").write_text("")
    keeper.install("--start")
    until(lambda: "again in 2 s" in keeper.log())
    (keeper.d / "crash").unlink()
    pid = keeper.up()
    until(lambda: int(re.search(r"\d+", open("/proc/uptime").read()).group()) and is_alive(pid))
    time.sleep(3.2)
    os.kill(pid, 9)
    until(lambda: "exit code 137" in keeper.log())
    assert re.search(r"exit code 137\) after \d+ s; it's started again in 1 s", keeper.log())


def test_w64_the_log_is_bounded_while_the_daemon_goes_on_writing(world, keeper):
    keeper.env = {**FAST, "GPUSTOW_KEEPER_LOG_MAX": "3000"}
    (keeper.d / "loud").write_text("")
    keeper.install("--start")
    daemon, old = keeper.up(), keeper.home / "queue-keeper.log.1"
    until(lambda: old.exists() and old.stat().st_size > 3000)
    first = old.stat().st_ino
    until(lambda: old.stat().st_ino != first)
    assert (keeper.home / "queue-keeper.log").stat().st_size < 20000 and old.stat().st_size < 20000
    assert is_alive(daemon) and len(keeper.starts()) == 1
    # What's written after that is in the log, without a hole in front.
    until(lambda: keeper.log().startswith("x"))


def test_w64_stop_kills_what_is_deaf_and_says_so(world, keeper):
    (keeper.d / "deaf").write_text("")
    keeper.install("--start")
    daemon = keeper.up()
    did = keeper("stop")
    assert re.search(rf"no end after 3 s: killing .*\b{daemon}\b", did["output"]) and did["output"].endswith("stopped")
    assert not is_alive(daemon) and not did["state"]["running"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a process that the keeper's user can't end")
def test_w64_stop_says_the_truth_when_something_stays(world, keeper):
    keeper.install()
    stays = subprocess.Popen(["sleep", "600"])
    boot = open("/proc/sys/kernel/random/boot_id").read().strip()
    (keeper.home / "queue-keeper.pid").write_text(f"999999999 1 {boot} x setsid\n")
    (keeper.home / "queue-keeper.session").write_text(f"{stays.pid} {stat_of(stays.pid)[1]}\n")
    nobody = pwd.getpwnam("nobody")
    for path in [keeper.home, *keeper.home.iterdir()]:
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    keeper.home.parent.chmod(0o755)
    r = subprocess.run(["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups", "sh",
                        keeper.home / "queue-keeper.sh", "stop"], env={**world.env, **FAST, "GPUSTOW_KEEPER_GRACE": "1"},
                       capture_output=True, text=True)
    stays.kill()
    stays.wait()
    assert r.returncode == 1 and f"still running, whatever was tried: {stays.pid}" in r.stdout, r
    (keeper.home / "queue-keeper.pid").unlink()


def test_a_pid_that_is_somebody_elses_now_is_left_alone(world, keeper):
    keeper.install()
    other = subprocess.Popen(["sleep", "600"], start_new_session=True)
    boot = open("/proc/sys/kernel/random/boot_id").read().strip()
    start = stat_of(other.pid)[1]
    for line in (f"{other.pid} {start + 1} {boot} x setsid", f"{other.pid} {start} not-this-boot x setsid",
                 "nonsense", ""):
        (keeper.home / "queue-keeper.pid").write_text(line + "\n")
        assert keeper("status", code=1)["running"] is False
        assert keeper("stop")["output"] == "not running"
        assert is_alive(other.pid)
    other.kill()
    other.wait()


def test_a_killed_loop_leaves_no_second_daemon(world, keeper):
    keeper.install("--start")
    daemon, pid = keeper.up(), keeper("status")["pid"]
    os.kill(pid, 9)
    until(lambda: not is_alive(pid))
    assert keeper("status", code=1)["running"] is False and is_alive(daemon)
    did = keeper("ensure")
    assert "the daemon of a keeper that's gone still runs" in did["output"] and not is_alive(daemon)
    assert did["state"]["running"] and did["state"]["pid"] != pid
    daemon, pid = keeper.up(), keeper("status")["pid"]
    os.kill(pid, 9)
    until(lambda: not is_alive(pid))
    keeper("stop")
    assert not is_alive(daemon)


def test_what_the_daemon_started_for_good_survives_a_stop(world, keeper):
    """As agents and jobs do: they have sessions of their own."""
    keeper.program.write_text(DAEMON.replace("while :;", "setsid sleep 50 & while :;"))
    keeper.install("--start")
    keeper.up()
    agent = until(lambda: [p for p, c in world.processes().items() if c == "sleep 50"])
    keeper("stop")
    assert is_alive(agent[0])
    os.kill(agent[0], 9)


def test_many_starts_at_once_make_one_daemon(world, keeper):
    keeper.install()
    started = [world.spawn(program(), "queue", "keeper", "start", env=FAST) for _ in range(6)]
    for s in started:
        s.wait()
    pids = {re.search(r"pid (\d+)", s.out).group(1) for s in started}
    assert len(pids) == 1 and sum("started" in s.out for s in started) == 1
    until(lambda: len(keeper.starts()) == 1)


def test_a_loop_that_is_slow_to_come_is_waited_for(world, keeper):
    """Else the start fails, the loop comes all the same, and nobody who's told to start or stop anything meanwhile knows of it."""
    keeper.install()
    slow = world.dir / "bin" / "setsid"
    slow.write_text(f"#!/bin/sh\nsleep 7\nexec {shutil.which('setsid')} \"$@\"\n")
    slow.chmod(0o755)
    assert re.fullmatch(r"started \(pid \d+\)", keeper("start")["output"])
    keeper.up()
    assert len(keeper.starts()) == 1


def test_a_lock_whose_owner_died_is_taken_over(world, keeper):
    keeper.install()
    lock = keeper.home / "queue-keeper.lock"
    for left in ([], ["owner.999999999.1", f"owner.{os.getpid()}.1"]):
        lock.mkdir()
        for name in left:
            (lock / name).write_text("")
        assert keeper("start")["ok"] and not lock.exists()
        keeper("stop")
    # One that lives is waited for, and named.
    lock.mkdir()
    (lock / f"owner.{os.getpid()}.{stat_of(os.getpid())[1]}").write_text("")
    did = keeper("start", code=1)
    assert f"another start or stop is going on (pid {os.getpid()}" in did["output"]
    shutil.rmtree(lock)


def test_without_setsid_stop_still_ends_everything(world, keeper):
    """A PATH with everything but setsid."""
    tools = world.dir / "tools"
    tools.mkdir()
    for name in ("sh", "nohup", "sleep", "date", "wc", "cp", "mv", "rm", "mkdir", "rmdir", "tr", "tail", "dirname", "true"):
        (tools / name).symlink_to(shutil.which(name))
    keeper.env = {**FAST, "PATH": str(tools), "GPUSTOW_KEEPER_LOOK": "30"}
    keeper.install("--start")
    daemon, pid = keeper.up(), keeper("status")["pid"]
    assert stat_of(pid)[2] != pid
    until(lambda: "sleep 30" in world.processes().values())
    keeper("stop")
    assert not is_alive(daemon) and not is_alive(pid)
    assert not [c for c in world.processes().values() if "_loop" in c or c == "sleep 30"]


def test_a_new_install_replaces_and_start_takes_it_over(world, keeper):
    keeper.install("--start")
    keeper.up()
    pid = keeper("status")["pid"]
    made = keeper.install("--interval", "9")
    assert made["replaced"] and made["state"]["pid"] == pid and "keeper restart" in made["advice"]
    made = keeper.install("--interval", "9", "--start")
    assert made["started"] and made["state"]["pid"] != pid and not is_alive(pid)
    until(lambda: keeper.starts()[-1].startswith("queue daemon --interval 9 "))


def test_start_says_why_when_the_program_is_gone(world, keeper):
    keeper.install()
    keeper.program.unlink()
    did = keeper("start", code=1)
    assert "can't be executed" in did["output"] and "gpustow queue keeper install" in did["output"]


def test_the_script_is_clean(world, keeper):
    keeper.install()
    script = keeper.home / "queue-keeper.sh"
    for shell in ("sh", "dash", "bash"):
        if shutil.which(shell):
            subprocess.run([shell, "-n", script], check=True)
    if shutil.which("shellcheck"):
        done = subprocess.run(["shellcheck", "-s", "sh", "-S", "warning", script], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
    assert not re.search(r"@[A-Z_]+@", script.read_text())


# --- systemd ---

UNIT = """#!/usr/bin/python3
import os, signal, socket, sys, time
w = os.path.dirname(os.path.abspath(__file__))
with open(w + "/starts", "a") as f:
    f.write(" ".join(sys.argv[1:]) + " home=" + os.environ["GPUSTOW_HOME"] + " watchdog=" + os.environ.get("WATCHDOG_USEC", "") + "\\n")
if os.path.exists(w + "/crash"):
    sys.exit(7)
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect(os.environ["NOTIFY_SOCKET"])
s.send(b"READY=1")
if os.fork() == 0:
    os.setsid()
    open(w + "/agent", "w").write(str(os.getpid()) + "\\n")
    time.sleep(100)
    os._exit(0)
while True:
    time.sleep(1)
"""


def can_unshare():
    return os.geteuid() == 0 and os.path.exists("/lib/systemd/systemd") and os.path.isdir("/sys/fs/cgroup/systemd")


@pytest.fixture
def systemd(world):
    """Runs commands beside a user's systemd."""
    if not can_unshare():
        pytest.skip("needs root, systemd's program and its cgroup hierarchy")
    tag = f"{os.getpid()}"
    host = world.spawn("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh",
                       ROOT / "tests" / "lab" / "systemd_user.sh", world.dir, tag)
    until(lambda: (world.dir / "systemd.ready").exists() or host.process.poll() is not None, why=host.tell)
    assert host.process.poll() is None, host.tell()
    inner = int(open(f"/proc/{host.pid}/task/{host.pid}/children").read().split()[0])

    def run(*argv, code=0):
        r = world.spawn("nsenter", "-t", inner, "-m", "-p", "--wd=/", *argv)
        r.wait(code)
        return r.out

    yield run
    host.process.kill()
    host.process.wait()
    until(lambda: not is_alive(inner))
    top = f"/sys/fs/cgroup/systemd/gpustow-test-{tag}"
    for d, _, _ in os.walk(top, topdown=False):
        try:
            os.rmdir(d)
        except OSError:
            pass


def test_systemd_unit_install_start_crash_restart_stop(world, keeper, systemd):
    keeper.program.write_text(UNIT)

    def ask(*words, code=0):
        return json.loads(systemd(program(), "queue", "keeper", *words, "--json", code=code))

    # Begun with the shell's keeper, which has to go first.
    ask("install", "--program", str(keeper.program))
    made = ask("install", "--program", str(keeper.program), "--systemd", "--interval", "4", "--start")
    unit = world.dir / "home" / ".config" / "systemd" / "user" / "gpustow-queue.service"
    assert made["ok"] and made["started"] and made["manager"] == "systemd" and made["unit"] == str(unit)
    assert made["replaced"] and made["script"] is None and made["log"] is None
    assert not (keeper.home / "queue-keeper.sh").exists()
    assert "enable-linger" in made["advice"] or os.path.exists("/var/lib/systemd/linger/root")
    pid = made["state"]["pid"]
    assert made["state"]["running"] and pid > 0
    assert keeper.starts() == [f"queue daemon --interval 4 home={keeper.home} watchdog=300000000"]
    assert systemd("env", "XDG_RUNTIME_DIR=/run/user/0", "systemctl", "--user", "is-enabled", unit.name).strip() == "enabled"
    said = subprocess.run(["systemd-analyze", "--user", "verify", unit], env={**world.env, "XDG_RUNTIME_DIR": str(world.dir)},
                          capture_output=True, text=True)
    assert unit.name not in said.stderr, said.stderr
    # It comes back by itself, and what it started for good isn't ended with it.
    agent = int(world.has("d/agent"))
    systemd("kill", "-9", str(pid))
    until(lambda: len(keeper.starts()) == 2)
    state = until(lambda: (lambda s: s if s["pid"] and s["pid"] != pid else None)(ask("status")))
    assert state["running"] and state["installed"]
    systemd("kill", "-0", str(agent))
    assert ask("ensure")["output"] == f"running (pid {state['pid']})"
    did = ask("restart")
    assert did["ok"] and did["state"]["pid"] != state["pid"]
    did = ask("stop")
    assert did["ok"] and did["output"].endswith("stopped") and did["state"]["running"] is False
    systemd("kill", "-0", str(agent))
    assert ask("status", code=1)["running"] is False
    assert systemd("env", "XDG_RUNTIME_DIR=/run/user/0", "systemctl", "--user", "is-enabled", unit.name, code=1).strip() == "disabled"
    # And back to the shell's.
    ask("start")
    made = ask("install", "--program", str(keeper.program))
    assert made["replaced"] and made["manager"] == "shell" and not unit.exists() and made["state"]["running"] is False


def test_systemd_that_cannot_be_asked_is_an_error_that_changes_nothing(world, keeper):
    keeper.install("--start")
    answer = keeper.install("--systemd", code=1)
    assert "your systemd can't be asked" in answer["error"] and "--systemd" in answer["error"]
    assert keeper("status")["running"]
