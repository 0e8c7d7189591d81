"""Backups of the queue's database while it's used, and the way back: every job that was accepted before is there."""
import json
import os
import sqlite3
import subprocess
import threading
from pathlib import Path

import pytest

from harness import program, until


@pytest.fixture
def queue(world):
    world.env["GPUSTOW_HOME"] = str(world.dir / "home" / ".gpustow")
    world.env["GPUSTOW_SIM"] = "1"
    # A job's directory would lie in the real home: an agent doesn't ask $HOME.
    Path(world.env["GPUSTOW_HOME"]).mkdir()
    (Path(world.env["GPUSTOW_HOME"]) / "queue.yml").write_text(
        f"queue:\n  include_local: true\n  tick_min_interval: 0\n  job_root: {world.dir}/jobs\n")
    world.db = Path(world.env["GPUSTOW_HOME"]) / "queue.db"
    world.backups = Path(world.env["GPUSTOW_HOME"]) / "backups"
    return world


def submit(queue, *words, args=()):
    return queue.ask_json("job", "submit", "--json", "--no-tick", *args, "--", *words)["job"]["id"]


def jobs_in(path):
    """What SQLite itself finds there: {id: command}; the file must be whole and alone."""
    assert not [p for p in Path(path).parent.iterdir() if p.name.startswith(Path(path).name + "-")]
    db = sqlite3.connect(f"file:{path}?immutable=1", uri=True)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert db.execute("SELECT owner FROM lease").fetchone() == (None,)
    return dict(db.execute("SELECT id, command FROM jobs"))


def backup(queue, *args, **more):
    return queue.ask_json("queue", "backup", "--json", *args, **more)["backup"]


def test_backup_says_what_it_made(queue):
    assert submit(queue, "true")
    made = backup(queue)
    assert set(made) == {"path", "source", "created_at", "bytes", "verified", "pruned"}
    assert made["source"] == str(queue.db) and made["verified"] is True and made["pruned"] == []
    assert os.stat(made["path"]).st_size == made["bytes"] and os.stat(made["path"]).st_mode & 0o777 == 0o600
    assert Path(made["path"]).parent == queue.backups
    assert queue.ask_json("queue", "status", "--json", "--no-tick")["last_backup_at"] == made["created_at"]
    assert queue.ask_json("queue", "check", "--json")["last_backup_at"] == made["created_at"]
    out = queue.ask("queue", "backup").out
    assert str(queue.backups) in out and "checked" in out
    assert "last backup" in queue.ask("queue", "status", "--no-tick").out


def test_explicit_path_is_never_replaced(queue):
    submit(queue, "true")
    path = queue.dir / "mine.db"
    made = backup(queue, path)
    before = path.read_bytes()
    for _ in range(2):
        err = json.loads(queue.ask("queue", "backup", path, "--json", code=1).out)["error"]
        assert "never replaces" in err
    assert path.read_bytes() == before and made["path"] == str(path)
    err = queue.ask("queue", "backup", queue.db, code=1).err
    assert "database itself" in err
    assert jobs_in(path)


def test_w63_keep(queue):
    submit(queue, "true")
    queue.backups.mkdir(parents=True)
    notes = queue.backups / "queue-notes.db"
    notes.write_text("mine")
    made = [backup(queue)["path"] for _ in range(4)]
    last = backup(queue, "--keep", "2")
    assert sorted(last["pruned"]) == sorted(made[:3])
    assert sorted(p.name for p in queue.backups.iterdir()) == sorted([Path(made[3]).name, Path(last["path"]).name, notes.name])


def test_backup_under_load_by_several_writers(queue):
    """Each backup is one moment: what was acknowledged before it began is in it, and nothing half; no writer fails."""
    submit(queue, "true")
    accepted, stop, failures = [], threading.Event(), []

    def write(n):
        while not stop.is_set():
            r = subprocess.run([program(), "job", "submit", "--json", "--no-tick", "--array", "1-20", "--", f"echo {n} {{index}}" + "x" * 2000],
                               env=queue.env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
            if r.returncode:
                failures.append(r.stdout + r.stderr)
                return
            accepted.append(json.loads(r.stdout)["jobs"])

    writers = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    for w in writers:
        w.start()
    try:
        until(lambda: len(accepted) > 3 or failures)
        for _ in range(6):
            before = [j["id"] for batch in list(accepted) for j in batch]
            found = jobs_in(backup(queue)["path"])
            assert set(before) <= set(found)
            # A submit is one transaction: all of its twenty or none.
            assert len(found) % 20 == 1, len(found)
    finally:
        stop.set()
        for w in writers:
            w.join()
    assert not failures, failures[0]
    assert queue.ask_json("queue", "check", "--json")["ok"]


def test_without_hard_links(queue):
    submit(queue, "true")
    for lacks in ("link", "link,rename"):
        made = backup(queue, env={"GPUSTOW_TEST_LACKS": lacks})
        assert jobs_in(made["path"])
        assert "never replaces" in queue.ask("queue", "backup", made["path"], code=1, env={"GPUSTOW_TEST_LACKS": lacks}).err
    assert {p.name[:6] for p in queue.backups.iterdir()} == {"queue-"}


@pytest.fixture
def small(queue):
    """A disk of 300 KiB."""
    if os.geteuid():
        pytest.skip("mounting needs root")
    at = queue.dir / "small"
    at.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "small", at], capture_output=True).returncode:
        pytest.skip("nothing may be mounted here")
    yield at
    subprocess.run(["umount", at], check=True)


def test_full_disk_leaves_nothing(queue, small):
    big = queue.write("# " + "x" * 400000 + "\n", queue.dir / "big.sh")
    queue.ask("job", "submit", "--no-tick", "--script", big)
    err = json.loads(queue.ask("queue", "backup", small, "--json", code=1).out)["error"]
    assert "no room" in err and str(small) in err
    assert list(small.iterdir()) == []
    # By hand it can be tried again at once.
    assert jobs_in(backup(queue)["path"])
    r = queue.ask("queue", "backup", code=1, env={"GPUSTOW_FAULT": "store.backup-after-copy:enospc"})
    assert "no room" in r.err
    assert len(list(queue.backups.iterdir())) == 1


def test_killed_backup_leaves_nothing_for_long(queue):
    submit(queue, "true")
    queue.ask("queue", "backup", code=-9, env={"GPUSTOW_FAULT": "store.backup-after-copy:kill"})
    assert [p.name[:14] for p in queue.backups.iterdir()] == [".queue-backup-"]
    made = backup(queue)
    assert [p for p in queue.backups.iterdir()] == [Path(made["path"])]


# --- the way back ---

def test_restore_drill(queue):
    """Everything is lost but the backup: each accepted job is there again, and what had ended has ended."""
    done = queue.ask_json("job", "submit", "--json", "--gpus", "0", "--wait", "--", "true")["job"]["id"]
    ids = [submit(queue, "echo", f"job {i}", args=("--note", f"note {i}", "--priority", str(i))) for i in range(20)]
    was = {j["id"]: j for j in queue.ask_json("job", "ls", "--json", "--no-tick")["jobs"]}
    made = backup(queue, queue.dir / "safe.db")
    for p in [queue.db, *queue.db.parent.glob("queue.db-*")]:
        p.unlink()
    out = queue.ask_json("queue", "restore", made["path"], "--json")
    assert out["ok"] and out["kept"] is None and out["db_path"] == str(queue.db)
    now = {j["id"]: j for j in queue.ask_json("job", "ls", "--json", "--no-tick")["jobs"]}
    assert set(now) == set(was) == {done, *ids}
    for i in was:
        assert {k: now[i][k] for k in ("state", "command", "notes", "priority", "name", "exit_code")} == \
               {k: was[i][k] for k in ("state", "command", "notes", "priority", "name", "exit_code")}
    assert queue.ask("queue", "check").out.endswith(": whole\n")
    assert submit(queue, "later") > max(was) + 1000


def test_restored_queue_starts_nothing_twice(queue):
    """The backup is from before the job ran: its node knows better, and is asked before anything starts."""
    job = submit(queue, f"echo once >> {queue.dir}/judge; sleep 1; echo >> {queue.dir}/ended", args=("--gpus", "0", "--name", "once"))
    made = backup(queue)
    queue.ask("queue", "tick")
    until(lambda: queue.judge() == ["once"])
    queue.ask("queue", "restore", made["path"])
    before = queue.ask_json("job", "show", job, "--json", "--no-tick")
    assert before["state"] == "pending"
    # Its node knows of an attempt that this database doesn't: a person is to look.
    queue.ask("queue", "tick")
    after = queue.ask_json("job", "show", job, "--json", "--no-tick")
    assert after["held"] and "put back" in after["held_reason"], after
    queue.ask("job", "wait", job, code=1)
    for _ in range(3):
        queue.ask("queue", "tick")
    assert queue.judge() == ["once"], queue.judge()
    queue.has("ended")
    # What the backup knows nothing of at all goes on, too: new jobs run.
    assert queue.ask_json("job", "submit", "--json", "--gpus", "0", "--wait", "--", "true")["job"]["id"] > job + 1000


def test_live_queue_is_not_replaced(queue):
    submit(queue, "true")
    made = backup(queue)
    watch = queue.spawn(program(), "queue", "tick", "--watch", "60")
    watch.sees("node")
    r = queue.ask("queue", "restore", made["path"], "--json", code=1)
    assert str(watch.pid) in json.loads(r.out)["error"]
    watch.kill(2).wait(0)
    kept = queue.ask_json("queue", "restore", made["path"], "--json")["kept"]
    assert Path(kept).exists() and len(queue.ask_json("job", "ls", "--json", "--no-tick", "--db-path", kept)["jobs"]) == 1


def test_restore_killed_in_the_middle(queue):
    first = submit(queue, "first")
    made = backup(queue)
    second = submit(queue, "second")
    queue.ask("queue", "restore", made["path"], code=-9, env={"GPUSTOW_FAULT": "store.restore-before-rename:kill"})
    # What was there is whole under its second name; once more, and it's done.
    kept = list(queue.db.parent.glob("queue-replaced-*.db"))
    assert len(kept) == 1
    assert {j["id"] for j in queue.ask_json("job", "ls", "--json", "--no-tick", "--db-path", kept[0])["jobs"]} == {first, second}
    queue.ask("queue", "restore", made["path"])
    assert {j["id"] for j in queue.ask_json("job", "ls", "--json", "--no-tick")["jobs"]} == {first}


def test_check_of_a_damaged_database(queue):
    for _ in range(5):
        submit(queue, "x" * 1000)
    made = backup(queue)
    with open(queue.db, "r+b") as f:
        f.seek(4096)
        f.write(b"\xff" * 20000)
    for p in queue.db.parent.glob("queue.db-*"):
        p.unlink()
    r = queue.ask("queue", "check", "--json", code=1)
    assert "damaged" in json.loads(r.out)["error"]
    queue.ask("queue", "backup", code=1)
    queue.ask("queue", "restore", made["path"])
    queue.ask("queue", "check")


def test_queue_that_is_not_there_is_neither_whole_nor_backed_up(queue):
    """A lost database isn't made anew by the question whether it's whole, and no empty one pushes good backups out."""
    submit(queue, "true")
    made = backup(queue)
    for end in ("", "-wal", "-shm"):
        Path(str(queue.db) + end).unlink(missing_ok=True)
    for words in (("check",), ("backup", "--keep", "1")):
        err = json.loads(queue.ask("queue", *words, "--json", code=1).out)["error"]
        assert f"there's no queue at {queue.db}" in err and "queue restore" in err
    assert not queue.db.exists() and [p.name for p in queue.backups.iterdir()] == [Path(made["path"]).name]
    queue.ask("queue", "restore", made["path"])
    queue.ask("queue", "check")


def test_restore_says_what_is_wrong_with_the_file(queue):
    for i in range(40):
        submit(queue, "echo " + "x" * 3000)
    good = Path(backup(queue)["path"]).read_bytes()
    path = queue.dir / "one.db"
    middle = len(good) // 8192 * 4096
    for content, said in ((None, "there's no backup at"), (b"", "it's empty"), (b"x" * 9000, "isn't a backup of a gpustow queue"),
                          (good[:middle], "it's damaged"), (good[:4096] + b"\xff" * 40000 + good[44096:], "it's damaged")):
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        err = json.loads(queue.ask("queue", "restore", path, "--json", code=1).out)["error"]
        assert str(path) in err and said in err and ".new-" not in err and "\n" not in err, err
    assert "no plain file" in queue.ask("queue", "restore", "/dev/zero", code=1).err
    assert sorted(p.name for p in queue.db.parent.iterdir() if p.name.startswith("queue.db.new")) == []
    assert "an empty name" in queue.ask("queue", "backup", "", code=1).err
    # A directory is named as people do, with a slash at its end.
    made = backup(queue, f"{queue.dir}/")
    assert "//" not in made["path"] and Path(made["path"]).parent == queue.dir
