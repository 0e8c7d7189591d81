"""What a job of the queue is given to run in: its cards, its login files, its time to save."""
import json

import pytest
from harness import until, wait_for
from queue_bed import Queue


def submit(world, *args):
    out = world.ask("job", "submit", "--json", "--env", f"W={world.dir}", *args)
    return json.loads(out.out)["job"]["id"]


def test_signal_comes_before_the_limit_and_is_time_to_save(world):
    queue = Queue(world)
    saves = submit(world, "--gpus", "0", "--timeout", "9", "--signal", "USR1@5", "--",
                   "trap 'echo saved > $W/saved; exit 0' USR1; touch $W/up; while :; do sleep 0.05; done")
    deaf = submit(world, "--gpus", "0", "--timeout", "5", "--grace", "1", "--signal", "USR1@1", "--",
                  "trap '' USR1 TERM; while :; do sleep 0.05; done")
    queue.ends(saves, deaf)
    job = queue.job(saves)
    assert (job["state"], world.text("saved")) == ("completed", "saved\n"), job
    job = queue.job(deaf)
    assert (job["state"], job["cause"], job["exit_code"]) == ("timeout", "timeout", 137), job


def test_login_files_are_read_and_do_not_choose_the_card(world):
    world.env["GPUSTOW_TEST_HOME"] = str(world.dir / "account")
    (world.dir / "account").mkdir()
    (world.dir / "account" / ".profile").write_text(
        "export FROM_LOGIN=yes CUDA_VISIBLE_DEVICES=7\nmodule() { echo \"module $*\"; }\n")
    queue = Queue(world)
    words = 'echo "$FROM_LOGIN $CUDA_VISIBLE_DEVICES $(module load cuda)" > $W/said'
    queue.ends(submit(world, "--vram", "20G", "--login", "--", words))
    assert world.text("said") == "yes 0 module load cuda\n"
    queue.ends(submit(world, "--vram", "20G", "--", words + " 2>/dev/null; true"))
    assert world.text("said") == " 0 \n"


def test_instances_are_cards_of_their_own(world):
    queue = Queue(world, sim="1x80G/mig:1x40G+2x20G")
    words = 'echo $CUDA_VISIBLE_DEVICES > $W/%s; ' + wait_for("go")
    large = submit(world, "--vram", "30G", "--no-tick", "--", words % "large")
    small = [submit(world, "--vram", "15G", "--no-tick", "--", words % name) for name in ("a", "b")]
    queue.tick_until(lambda: all(queue.job(j)["state"] == "running" for j in (*small, large)))
    until(lambda: all((world.dir / name).exists() and world.text(name) for name in ("a", "b", "large")))
    got = [world.text(name).strip() for name in ("a", "b", "large")]
    assert len(set(got)) == 3 and all(x.startswith("MIG-") for x in got), got
    more = submit(world, "--vram", "30G", "--", "true")
    assert queue.job(more)["state"] == "pending"
    why = world.ask("job", "why", str(more), "--no-tick").out
    assert "30720 MiB" in why and "0:" in why, why
    # The card that was cut is nobody's, however much it seems to have.
    out = json.loads(world.ask("job", "submit", "--json", "--dry-run", "--vram", "70G", "--", "true").out)
    assert out["jobs"][0]["would"] == "never", out
    (world.dir / "go").touch()
    queue.ends(*small, large, more)
