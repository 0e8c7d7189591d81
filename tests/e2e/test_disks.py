"""Databases and backups on file systems that aren't like the local disk: one without hard links and without the rename that
replaces nothing (exFAT), one that several machines share (sshfs). Both are real, by FUSE; without root or the programs it's
skipped."""
import hashlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from harness import is_alive, note, program, until, wait_for

SFTP = "/usr/lib/openssh/sftp-server"


def sh(*words, **more):
    return subprocess.run([str(w) for w in words], capture_output=True, text=True, **more)


class Disk:
    """A file system at `at`; drop() takes it away."""

    def __init__(self, at):
        self.at = at
        at.mkdir()

    def need(self, *programs):
        lacks = [p for p in programs if not shutil.which(p, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") and not os.path.exists(p)]
        if os.geteuid() or lacks or not os.path.exists("/dev/fuse"):
            pytest.skip(f"needs root, /dev/fuse and {', '.join(programs)}")

    def drop(self):
        until(lambda: sh("umount", self.at).returncode == 0, why=lambda: sh("sh", "-c", f"mount | grep {self.at}").stdout)


class ExFat(Disk):
    has_links, keeps_modes = False, False

    def __init__(self, directory):
        super().__init__(directory / "exfat")
        self.need("mkfs.exfat", "mount.exfat-fuse", "losetup")
        image = directory / "image"
        with open(image, "wb") as f:
            f.truncate(64 << 20)
        assert sh("mkfs.exfat", image).returncode == 0
        r = sh("losetup", "-f", "--show", image)
        self.device = r.stdout.strip()
        if r.returncode or sh("mount.exfat-fuse", self.device, self.at, "-o", "umask=077").returncode or not os.path.ismount(self.at):
            pytest.skip("no such image can be mounted here")

    def drop(self):
        super().drop()
        # The driver goes a moment after the mount.
        until(lambda: sh("losetup", "-d", self.device).returncode == 0 or not sh("losetup", self.device).stdout)


class Sshfs(Disk):
    """What the server has lies in `behind`."""
    has_links, keeps_modes = True, True

    def __init__(self, directory, *options):
        super().__init__(directory / "sshfs")
        self.need("sshfs", SFTP)
        self.behind = directory / "behind"
        self.behind.mkdir()
        server = directory / "sftp"
        # Its number, for those who stop it: then the disk hangs.
        self.server = directory / "sftp.pid"
        server.write_text(f"#!/bin/sh\necho $$ >{self.server}\nexec {SFTP}\n")
        server.chmod(0o755)
        r = sh("sshfs", "-o", f"ssh_command={server}", *options, f"x:{self.behind}", self.at)
        if r.returncode:
            pytest.skip(f"sshfs can't be mounted here: {r.stderr}")


class SshfsWithoutLinks(Sshfs):
    has_links = False

    def __init__(self, directory):
        super().__init__(directory, "-o", "disable_hardlink")


@pytest.fixture(params=[ExFat, Sshfs, SshfsWithoutLinks], ids=["exfat", "sshfs", "sshfs-without-links"])
def disk(world, request):
    made = request.param(world.dir)
    try:
        os.link(__file__, made.at / "x")
        assert False, "another file system's file was linked"
    except OSError:
        pass
    (made.at / "a").touch()
    if made.has_links:
        os.link(made.at / "a", made.at / "b")
    else:
        with pytest.raises(OSError):
            os.link(made.at / "a", made.at / "b")
    for name in ("a", "b"):
        (made.at / name).unlink(missing_ok=True)
    yield made
    # Whoever has something open there would keep it.
    for s in world.started:
        if s.process.poll() is None:
            s.process.kill()
            s.process.wait()
    made.drop()


class Queue:
    def __init__(self, world, home):
        self.world, self.home, self.db, self.backups = world, home, home / "queue.db", home / "backups"
        home.mkdir(exist_ok=True)
        world.env["GPUSTOW_HOME"], world.env["GPUSTOW_SIM"] = str(home), "1"
        (home / "queue.yml").write_text(f"queue:\n  include_local: true\n  tick_min_interval: 0\n  job_root: {world.dir}/jobs\n")

    def submit(self, command, *options):
        env = [x for k in ("W", "PATH") for x in ("--env", f"{k}={self.world.env[k]}")]
        return self.world.ask_json("job", "submit", "--json", "--no-tick", "--gpus", "0", *env, *options, "--", command)["job"]["id"]

    def state(self, job):
        return self.world.ask_json("job", "show", str(job), "--json", "--no-tick")["state"]

    def backup(self, *args, **more):
        return self.world.ask_json("queue", "backup", "--json", *args, **more)["backup"]


def jobs_in(path):
    """What SQLite itself finds there; the file must be whole and alone."""
    assert not [p for p in Path(path).parent.iterdir() if p.name.startswith(Path(path).name + "-")]
    db = sqlite3.connect(f"file:{path}?immutable=1", uri=True)
    try:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return dict(db.execute("SELECT id, command FROM jobs"))
    finally:
        db.close()


def journal_of(path):
    """1: none of the database's pages may be in a log beside it, 2: they may."""
    return Path(path).read_bytes()[18]


# --- backups there ---

def test_backups_of_a_local_queue_on_that_disk_and_back(world, disk):
    queue = Queue(world, world.dir / "home" / ".gpustow")
    first = queue.submit("true")
    made = queue.backup(str(disk.at))
    assert made["verified"] and list(jobs_in(made["path"])) == [first]
    if disk.keeps_modes:
        assert os.stat(made["path"]).st_mode & 0o777 == 0o600
    # By name, twice: nothing is ever replaced, and the one that's there is what it was.
    named = disk.at / "mine.db"
    queue.backup(str(named))
    before = named.read_bytes()
    second = queue.submit("true")
    assert "never replaces" in world.ask("queue", "backup", named, code=1).err
    assert named.read_bytes() == before
    # Many at once get names of their own.
    many = [world.spawn(program(), "queue", "backup", disk.at, "--json") for _ in range(4)]
    paths = {json.loads(s.out)["backup"]["path"] for s in many if not s.wait(None)}
    assert paths and all(list(jobs_in(p)) == [first, second] for p in paths)
    left = queue.backup(str(disk.at), "--keep", "2")
    assert sorted(p.name for p in disk.at.iterdir()) == sorted(
        ["mine.db", *sorted(p.name for p in disk.at.iterdir() if p.name.startswith("queue-"))[-2:]]), left
    # The way back.
    world.ask("queue", "restore", named)
    assert [j["id"] for j in world.ask_json("job", "ls", "--json", "--no-tick")["jobs"]] == [first]
    assert journal_of(queue.db) == 2
    world.ask("queue", "check")


def test_full_disk_leaves_no_backup_behind(world, disk):
    if isinstance(disk, Sshfs):
        pytest.skip("its disk is this machine's own")
    queue = Queue(world, world.dir / "home" / ".gpustow")
    (world.dir / "big.sh").write_text("# " + "x" * 300000 + "\n")
    world.ask("job", "submit", "--no-tick", "--gpus", "0", "--script", world.dir / "big.sh")
    with open(disk.at / "filler", "wb") as f:
        try:
            while True:
                f.write(b"x" * 65536)
                f.flush()
        except OSError:
            pass
    err = json.loads(world.ask("queue", "backup", disk.at, "--json", code=1).out)["error"]
    assert str(disk.at) in err, err
    assert [p.name for p in disk.at.iterdir()] == ["filler"]


# --- the database there ---

def test_queue_lives_there_with_a_truncated_journal(world, disk):
    queue = Queue(world, disk.at / "home")
    failures, ids = [], []

    def write(n):
        for _ in range(n):
            r = subprocess.run([program(), "job", "submit", "--json", "--no-tick", "--gpus", "0", "--", "true"], env=world.env,
                               capture_output=True, text=True, timeout=60)
            ids.append(json.loads(r.stdout)["job"]["id"]) if r.returncode == 0 else failures.append(r.stdout + r.stderr)
    queue.submit("true")
    writers = [threading.Thread(target=write, args=(4,)) for _ in range(3)]
    for w in writers:
        w.start()
    made = queue.backup()
    for w in writers:
        w.join()
    assert not failures, failures[0]
    assert sorted(ids) == list(range(2, 14)) and jobs_in(made["path"])
    assert journal_of(queue.db) == 1 and not (queue.home / "queue.db-wal").exists() and not (queue.home / "queue.db-shm").exists()
    world.ask("queue", "tick")
    world.ask("job", "wait", "1-13")
    # Killed in the middle of a commit: nothing of it, or all.
    world.ask("job", "submit", "--no-tick", "--gpus", "0", "--", "half", code=-9, env={"GPUSTOW_FAULT": "store.before-commit:kill"})
    assert queue.submit("true") == 14
    world.ask("queue", "check")
    # The way back, with the database and what was there on that disk.
    done = json.loads(world.ask("queue", "restore", made["path"], "--json").out)
    assert journal_of(queue.db) == 1 and list(jobs_in(queue.db)) == list(jobs_in(made["path"]))
    kept = [p for p in queue.home.iterdir() if p.name.startswith("queue-replaced-")]
    assert len(kept) == 1 and list(jobs_in(kept[0])) == list(range(1, 15)), done
    # Killed between the names: what was there is whole under one of them.
    world.ask("queue", "restore", made["path"], code=-9, env={"GPUSTOW_FAULT": "store.restore-before-rename:kill"})
    whole = [p for p in queue.home.iterdir() if p.name == "queue.db" or p.name.startswith("queue-replaced-")]
    assert sum(list(jobs_in(p)) == list(jobs_in(made["path"])) for p in whole) >= 1
    world.ask("queue", "restore", made["path"])
    world.ask("queue", "check")


def test_daemon_of_a_queue_there_listens_in_a_local_place(world, disk):
    """Neither file system has sockets; where one has them, they're of use on one machine only."""
    queue = Queue(world, disk.at / "home")
    with pytest.raises(OSError):
        socket.socket(socket.AF_UNIX).bind(str(disk.at / "s"))
    job = queue.submit(note("ran", wait_for("go")))
    d = world.spawn(program(), "queue", "daemon", "--interval", "600")

    def state():
        return world.ask_json("queue", "status", "--json", "--no-tick")["daemon"]
    until(lambda: state() or d.process.poll() is not None, why=d.tell)
    assert until(state, why=d.tell)["pid"] == d.pid
    until(lambda: queue.state(job) == "running")
    # The same one by another way to the file, and no second one.
    link = world.dir / "link"
    link.symlink_to(queue.home)
    told = until(lambda: world.ask_json("queue", "status", "--json", "--no-tick", "--db-path", str(link / "queue.db"))["daemon"])
    assert told["pid"] == d.pid
    assert f"process {d.pid}" in world.ask("queue", "daemon", code=1).err
    # What's decided for isn't replaced.
    made = queue.backup()
    assert "deciding for the queue" in world.ask("queue", "restore", made["path"], code=1).err
    (world.dir / "go").touch()
    until(lambda: queue.state(job) == "completed")
    # Others' daemons may have theirs in the same place.
    place = Path(f"/var/tmp/gpustow-{os.geteuid()}")
    own = place / f"queue-{hashlib.sha256(os.path.realpath(queue.db).encode()).hexdigest()[:16]}.sock"
    assert own.is_socket()
    d.kill(signal.SIGTERM).wait(0)
    assert not own.exists()
    assert world.judge() == ["ran"] and not is_alive(d.pid)


def old(path):
    then = time.time() - 100
    os.utime(path, (then, then))


def test_what_a_killed_daemon_left_in_the_local_place_is_tidied(world, disk):
    queue = Queue(world, disk.at / "home")
    place = Path(f"/var/tmp/gpustow-{os.geteuid()}")
    place.mkdir(mode=0o700, exist_ok=True)

    def of(name):
        return place / f"queue-{hashlib.sha256(str(name).encode()).hexdigest()[:16]}.sock"
    own = of(os.path.realpath(queue.home / "queue.db"))

    def daemon():
        d = world.spawn(program(), "queue", "daemon", "--interval", "600")
        until(lambda: world.ask_json("queue", "status", "--json", "--no-tick")["daemon"] or d.process.poll() is not None, why=d.tell)
        return d

    def killed():
        d = daemon()
        d.kill(signal.SIGKILL).wait(None)
        assert own.is_socket()
    queue.submit("true")
    killed()
    # A young one stays: its daemon may be about to listen.
    world.ask("queue", "status", "--no-tick")
    assert own.is_socket()
    # A command that finds nobody tidies; a plain file and one that's listened at stay, however old.
    dead, lives, other = (of(f"{world.dir} {word}") for word in ("dead", "lives", "other"))
    clients, listener, idle = [], socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    listener.bind(str(lives))
    listener.listen(1)
    try:
        for _ in range(3):  # more than it takes up at once
            c = socket.socket(socket.AF_UNIX)
            c.setblocking(False)
            clients.append(c)
            c.connect_ex(str(lives))
        for s in (dead, other):
            s.unlink(missing_ok=True)
        idle.bind(str(dead))
        idle.close()
        other.write_text("")
        for p in (own, dead, lives, other):
            old(p)
        world.ask("queue", "status", "--no-tick")
        assert [p.exists() for p in (own, dead, lives, other)] == [False, False, True, True]
        # And a daemon that starts: its own is a new one then.
        killed()
        idle = socket.socket(socket.AF_UNIX)
        idle.bind(str(dead))
        idle.close()
        old(dead)
        d = daemon()
        assert not dead.exists() and own.is_socket() and lives.is_socket()
        old(own)
        # Busy, it greets late; but it doesn't refuse.
        for _ in range(3):
            world.ask("queue", "status", "--no-tick")
        told = until(lambda: world.ask_json("queue", "status", "--json", "--no-tick")["daemon"])
        assert told["pid"] == d.pid and own.is_socket()
        d.kill(signal.SIGTERM).wait(0)
    finally:
        for c in (*clients, listener):
            c.close()
        for p in (own, dead, lives, other):
            p.unlink(missing_ok=True)


def elsewhere(world, *words, code=0):
    """As on another machine: one with another id, the same one in a mount namespace with another /etc/machine-id."""
    other = world.dir / "machine-id"
    other.write_text("0123456789abcdef0123456789abcdef\n")
    if sh("unshare", "--mount", "mount", "--bind", other, "/etc/machine-id").returncode:
        pytest.skip("no mount namespace can be made here")
    s = world.spawn("unshare", "--mount", "sh", "-c", f"mount --bind {other} /etc/machine-id && exec \"$@\"", "sh", program(), *words)
    s.wait(code)
    return s


# Killed with a part of its change in the file, and what was there before in the journal beside it.
HALF = """
import os, sqlite3, sys
d = sqlite3.connect(sys.argv[1], isolation_level=None)
d.execute("PRAGMA cache_size=1")
d.execute("BEGIN IMMEDIATE")
d.execute("UPDATE jobs SET command = hex(zeroblob(400000))")
os.kill(os.getpid(), 9)
"""


def test_a_writer_that_was_killed_stops_no_reader(world, disk):
    queue = Queue(world, disk.at / "home")
    queue.submit("true")
    db, journal = queue.home / "queue.db", queue.home / "queue.db-journal"

    def half():
        subprocess.run([sys.executable, "-c", HALF, str(db)], check=False)
        assert is_half()

    def is_half():
        return journal.exists() and journal.stat().st_size > 0
    half()
    world.ask("queue", "status", "--no-tick")
    assert not is_half()
    # Another machine can't know whether that's a change under way here: it changes nothing, and says so.
    half()
    r = elsewhere(world, "job", "ls", code=1)
    assert "in the middle of a change" in r.err and is_half(), r.err
    r = elsewhere(world, "job", "submit", "--no-tick", "--", "true", code=1)
    assert "in the middle of a change" in r.err and is_half(), r.err
    assert len(world.ask_json("job", "ls", "--json", "--no-tick")["jobs"]) == 1 and not is_half()


def test_restore_sees_who_has_it_open_there(world, disk):
    """There's no log there whose lock would tell: a command that only looks on has the file open, and that's seen."""
    queue = Queue(world, disk.at / "home")
    queue.submit("true")
    made = queue.backup()
    looks = world.spawn(program(), "queue", "events", "-f", "--json")
    until(lambda: queue.submit("true") and looks.out, why=looks.tell)
    r = world.ask("queue", "restore", made["path"], code=1)
    assert f"process {looks.pid} has the queue's database" in r.err, r.err
    looks.kill(signal.SIGTERM).wait(None)
    world.ask("queue", "restore", made["path"])


def test_another_machine_only_reads_it(world, disk):
    queue = Queue(world, disk.at / "home")
    first = queue.submit("true")
    listed = json.loads(elsewhere(world, "job", "ls", "--json").out)
    assert [j["id"] for j in listed["jobs"]] == [first]
    assert json.loads(elsewhere(world, "queue", "events", "--json").out)["last_id"] == 1
    before = queue.db.read_bytes()
    for words in (("job", "submit", "--gpus", "0", "--", "true"), ("job", "cancel", str(first)), ("queue", "tick"), ("queue", "daemon")):
        assert "belongs to another machine" in elsewhere(world, *words, code=1).err, words
    assert queue.db.read_bytes() == before
    # Its backup, too, is only read; and it sees what the other one does.
    made = json.loads(elsewhere(world, "queue", "backup", world.dir / "copy.db", "--json").out)["backup"]
    assert list(jobs_in(made["path"])) == [first]
    second = queue.submit("true")
    assert [j["id"] for j in json.loads(elsewhere(world, "job", "ls", "--json").out)["jobs"]] == [first, second]
    world.ask("job", "cancel", str(first), str(second))


def test_log_of_another_machines_queue_is_left_alone(world, disk):
    """A queue on its own machine's disk has a log, which can't be read over a network: that's said, and nothing is touched."""
    if not isinstance(disk, Sshfs):
        pytest.skip("nobody else has this disk")
    queue = Queue(world, disk.behind / "home")
    queue.submit("true")
    (world.dir / "machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    before = {p.name: p.read_bytes() for p in queue.home.iterdir() if not p.name.endswith(("-shm", ".lock"))}
    s = world.spawn("unshare", "--mount", "sh", "-c", f"mount --bind {world.dir}/machine-id /etc/machine-id && exec \"$@\"", "sh",
                    program(), "job", "ls", env={"GPUSTOW_HOME": str(disk.at / "home")})
    s.wait(1)
    assert "belongs to another machine" in s.err and "use it there" in s.err
    assert {p.name: p.read_bytes() for p in queue.home.iterdir() if not p.name.endswith(("-shm", ".lock"))} == before
    assert journal_of(queue.db) == 2
