"""What somebody who has read the README only sees: no configuration, mistakes, and what the queue says about them."""
import json
import re
import signal

import pytest
from harness import program, until
from queue_bed import Queue


@pytest.fixture
def queue(world):
    q = Queue(world)
    return q


def test_nothing_configured_is_this_machine(world, queue):
    (queue.home / "config.yml").unlink()
    out = world.ask("queue", "status").out
    assert "local [up]" in out and "JOBS  no jobs" in out
    assert "`job submit` makes one" in world.ask("job", "ls").out


def test_options_of_the_command_belong_behind_the_dashes(world, queue):
    r = world.ask("job", "submit", "--vram", "2G", "python", "train.py", "--lr", "3", code=2)
    assert "unknown option '--lr'" in r.err and "behind --" in r.err
    assert "behind --" not in world.ask("job", "submit", "--vrma", "2G", "--", "x", code=2).err
    assert "behind --" not in world.ask("job", "cancel", "3", "--lr", code=2).err


def test_an_option_that_may_be_the_commands_is_not_guessed_at(world, queue):
    """`sleep -n 5` isn't a job called 5."""
    for words in (("sleep", "-n", "5"), ("--gpus", "0", "./train.sh", "--vram", "2G"), ("-n", "x", "python", "t.py", "--note=y")):
        r = world.ask("job", "submit", "--no-tick", *words, code=2)
        assert "whose option is it?" in r.err and "behind --" in r.err and "'job submit'" in r.err, r.err
    assert world.ask_json("job", "ls", "--json", "--no-tick")["jobs"] == []
    # There's no doubt about these.
    for words, command, name in ((("--", "sleep", "-n", "5"), "sleep -n 5", ""), (("sleep 5 -n", "-n", "x"), "sleep 5 -n", "x"),
                                 (("-n", "x", "sleep", "-"), "sleep -", "x"), (("-n", "x", "--", "sleep", "--", "-n"), "sleep -- -n", "x")):
        job = world.ask_json("job", "submit", "--no-tick", "--json", *words)["job"]
        assert (job["command"], job["name"] or "") == (command, name)
    assert world.ask_json("job", "advise", "1", "--json")
    assert "usage" in world.ask("job", "submit", "sleep", "--help").out


def test_a_sweep_says_once_what_it_waits_for(world, queue):
    r = world.ask("job", "submit", "--vram", "20G", "--sweep", "a=1-6", f"--env=W={world.dir}", "--",
                  "while [ ! -e $W/go ]; do sleep 0.1; done # {a}")
    lines = r.out.splitlines()
    assert [re.sub(r"job \d+ ", "", line)[:17] for line in lines] == ["submitted: runnin"] * 2 + ["submitted: waits:"] + ["submitted: likewi"] * 3
    assert "charged 20480" in lines[2]
    r = world.ask("job", "submit", "--no-tick", "--vram", "1G", "--", "true")
    assert r.out == "job 7 submitted: waits for the next pass\n"
    world.ask("job", "cancel", "--state", "pending", "--no-tick")
    (world.dir / "go").touch()
    queue.ends(1, 2)


def test_what_can_never_run_says_what_becomes_of_it(world, queue):
    assert "It's failed when the next passes come to the same" in world.ask("job", "submit", "--vram", "90G", "--", "true").out


def test_waiting_submit_says_why_it_failed(world, queue):
    r = world.ask("job", "submit", "--wait", "--gpus", "0", "--", "echo oh no >&2; exit 4", code=1)
    assert r.out.splitlines()[-1] == "job 1: failed: exit code 4: oh no"
    logs = world.ask("job", "logs", "1")
    assert logs.out == "" and "--stderr shows the other" in logs.err
    assert world.ask("job", "logs", "1", "--stderr").out == "oh no\n"


def test_ctrl_c_ends_the_waiting_and_not_the_job(world, queue):
    waits = world.spawn(program(), "job", "submit", "--wait", "--gpus", "0", f"--env=W={world.dir}", "--",
                        "while [ ! -e $W/go ]; do sleep 0.1; done")
    waits.sees("job 1 submitted")
    until(lambda: queue.job(1)["state"] == "running")
    waits.kill(signal.SIGINT).wait(130)
    assert "stopped waiting; the jobs go on" in waits.out
    (world.dir / "go").touch()
    queue.ends(1)
    assert queue.job(1)["state"] == "completed"


def test_attempts_after_out_of_memory_are_told_as_such(world, queue):
    world.ask("job", "submit", "--no-tick", "--vram", "1G", "--oom-retries", "1", "--", "echo 'CUDA out of memory' >&2; exit 1")
    queue.ends(1)
    shown = world.ask("job", "show", "1").out
    assert re.search(r"^attempt +2, 1 of them after CUDA ran out of memory$", shown, re.M) and "failed, exit code 1, cuda-oom" in shown
    world.ask("job", "submit", "--no-tick", "--gpus", "0", "--", "true")
    world.ask("job", "cancel", "2", "--no-tick")
    assert re.search(r"^state +cancelled$", world.ask("job", "show", "2").out, re.M)
    assert json.loads(world.ask("job", "show", "2", "--json").out)["cause"] == "cancelled"


@pytest.mark.parametrize("words", [("queue", "status"), ("job", "ls"), ("queue", "nodes"), ("queue", "events"), ("queue", "cards"), ("queue", "alerts")])
def test_narrow_and_plain_terminals_get_whole_lines(world, queue, words):
    queue.ends(queue.submit("true", name="a name that is rather long for a column"), queue.submit("false"))
    r = world.ask(*words, env={"COLUMNS": "60", "TERM": "dumb", "LC_ALL": "C"}, code=None)
    assert r.out.isascii() and "\x1b" not in r.out
    wide = [line for line in r.out.splitlines() if len(line) > 60 and not re.match(r"\S*(/|GPU-)|.*(queue\.db|GPU-|`)", line)]
    assert wide == [], wide
