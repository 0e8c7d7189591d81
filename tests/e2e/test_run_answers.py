"""What a run tells a person or a program is true, whole, and of use: cards left out, retries, lines done before, peaks, why."""
import os
import re
import shutil
import signal
import socket
import threading

import pytest

from harness import ROOT, note, simjob, until, wait_for
from test_nvml import Cards, smi

OOM = "echo 'RuntimeError: CUDA out of memory. Tried to allocate 2.50 GiB'; exit 1"


def rows(world, *args, code=0):
    return {j["job"]: j for j in world.ask_json("run", "--sim", "1x80G,1x24G", "--check", "--json", *args, world.file, code=code)["jobs"]}


# --- cards that --gpus leaves out ---

def test_infeasible_is_judged_by_the_cards_that_may_be_used(world):
    """Section 7: more GPUs than usable ones, or too few usable ones that are large enough."""
    world.jobs("[vram=40G] a", "[vram=1G gpus=2] b", "[gpus=2] c", "[gpu=0] d", "[vram=1G] " + note("e"))
    r = world.finish("--gpus", "1", sim="1x80G,1x24G", code=1)
    assert "job 1 INFEASIBLE — declared 40960 MiB + 512 MiB margin exceeds total capacity of 1 required GPU(s)" in r.out
    assert "job 2 INFEASIBLE — needs 2 GPUs but only 1 are usable" in r.out
    assert "job 3 INFEASIBLE — needs 2 GPUs but only 1 are usable" in r.out
    assert "job 4 INFEASIBLE — every card of the gpu= list is left out by --gpus" in r.out
    assert world.judge() == ["e"]


def test_check_finds_the_same_infeasible_as_the_run(world):
    world.jobs("[vram=40G] a", "[gpu=0] b", "[gpu=5] c", "[gpu=GPU-none] d", "[gpus=0] e")
    found = rows(world, "--gpus", "1", code=1)
    assert [found[i]["plan"] for i in range(1, 6)] == ["never"] * 4 + ["starts"]
    assert found[2]["why"] == "every card of the gpu= list is left out by --gpus"


def test_check_says_cpu_for_a_job_without_cards(world):
    world.jobs("[gpus=0] a", "[vram=1G] b")
    lines = world.finish("--check").lines()
    assert "starts  on cpu — a" in lines[0] and "starts  on gpu [0] — b" in lines[1]


# --- the bump after an OOM ---

@pytest.mark.parametrize("line, options", [
    ("[vram=22G gpus=2 retries=1] ", []),
    ("[vram=22G gpu=1 retries=1] ", []),
    ("[vram=22G retries=1] ", ["--gpus", "1"]),
])
def test_W11_a_bump_is_capped_by_the_cards_the_job_may_have(world, line, options):
    """The largest card of the machine is 80 GiB; these can't have it, or not it alone."""
    world.jobs(line + f"if [ -e $W/m ]; then {note('got $GPUSTOW_JOB_VRAM_MIB')}; else touch $W/m; {OOM}; fi")
    r = world.finish(*options, sim="1x80G,1x24G")
    assert "requeued with vram 22528 → 24064 MiB" in r.out and world.judge() == ["got 24064"]


# --- lines that were done before ---

def test_a_line_appended_that_an_earlier_run_did_is_named(world):
    world.jobs("[gpus=0] " + note("a"), "[gpus=0] false")
    world.finish(code=1)
    world.jobs("[gpus=0] " + wait_for("go"))
    r = world.run()
    r.sees("job 3 started")
    world.append("[gpus=0] " + note("a") + "\n")
    r.sees("job 1 already completed ok — skipping .journal.: echo a", count=1)
    world.append("# touched again\n[gpus=0] " + note("b") + "\n")
    r.sees("job 4 finished")
    (world.dir / "go").touch()
    r.wait()
    assert r.out.count("already completed ok") == 1 and world.judge() == ["a", "b"]


def test_retry_failed_holds_for_lines_appended_later(world):
    world.jobs("[gpus=0] " + note("a", "false"))
    world.finish(code=1)
    world.jobs("[gpus=0] " + wait_for("go"))
    r = world.run("--retry-failed")
    r.sees("job 2 started")
    world.append("[gpus=0] " + note("a", "false") + "\n")
    r.sees("job 1 finished")
    world.append("# once is enough\n")
    world.append("[gpus=0] " + note("b") + "\n")
    r.sees("job 3 finished")
    (world.dir / "go").touch()
    r.wait(1)
    assert world.judge() == ["a", "a", "b"]


def test_check_minds_retry_failed_and_fresh(world):
    world.jobs("[gpus=0] true", "[gpus=0] false")
    world.finish(code=1)
    before = world.text("gpusched_logs/journal.jsonl")
    assert [rows(world)[i]["plan"] for i in (1, 2)] == ["done", "done"]
    assert [rows(world, "--retry-failed")[i]["plan"] for i in (1, 2)] == ["done", "starts"]
    assert [rows(world, "--fresh")[i]["plan"] for i in (1, 2)] == ["starts", "starts"]
    assert world.text("gpusched_logs/journal.jsonl") == before


def test_retry_of_a_line_that_says_cancel_is_refused(world):
    """It would run until the next change of the file, and be stopped by that."""
    world.jobs("[cancel gpus=0] " + note("a"), "[gpus=0] " + wait_for("go"))
    r = world.run()
    r.sees("job 1 cancelled before start")
    refused = world.ask("run", "retry", "1", code=1)
    assert "job 1: its line in the jobs file says cancel; take that word out first" in refused.err
    world.jobs("[gpus=0] " + note("a"), "[gpus=0] " + wait_for("go"), "[gpus=0] " + note("b"))
    r.sees("job 3 finished")
    assert world.judge() == ["b"]  # taking the word out doesn't revive it; asking does
    world.ask("run", "retry", "1")
    r.sees("job 1 finished")
    (world.dir / "go").touch()
    r.wait()
    assert world.judge() == ["b", "a"]


def test_retry_of_a_line_that_is_gone_says_what_it_waits_for(world):
    world.jobs("[gpus=0] " + note("a"), "[gpus=0] " + wait_for("go"))
    r = world.run()
    r.sees("job 1 finished")
    world.jobs("[gpus=0] " + wait_for("go"), "[gpus=0] " + note("b"))
    r.sees("job 3 finished")
    assert world.ask("run", "retry", "1").out == "job 1 will wait again once its line is back in the jobs file\n"
    world.jobs("[gpus=0] " + wait_for("go"), "[gpus=0] " + note("a"))
    r.sees("job 1 finished", count=2)
    (world.dir / "go").touch()
    r.wait()
    assert world.judge() == ["a", "b", "a"]


# --- what was seen of a job's memory ---

def test_a_long_job_that_never_held_anything_is_not_called_short(world):
    world.jobs("[vram=1G] " + wait_for("go"))
    r = world.run()
    r.sees("job 1 started")
    until(lambda: world.ask_json("run", "status", "--json")["jobs"][0]["seconds"] > 1)
    (world.dir / "go").touch()
    r.wait()
    assert "peak vram n/a (not sampled: no sample saw it hold memory of its GPU)" in r.out


def test_what_nobody_saw_is_null_and_not_zero(world):
    world.jobs("[vram=1G] " + wait_for("go"))
    r = world.run()
    r.sees("job 1 started")
    job = until(lambda: (j := world.ask_json("run", "status", "--json")["jobs"][0])["state"] == "running" and j)
    assert job["is_sampled"] is False and job["use"] == [{"gpu": 0, "now_mib": None, "peak_mib": None}]
    (world.dir / "go").touch()
    r.wait()


# --- a request that ends the run ---

def test_who_cancels_the_last_job_gets_an_answer(world):
    world.foreign({0: 20000})
    world.jobs("[vram=20G] " + note("a"), "[vram=20G name=" + "x" * 60 + "] " + "true " + "y" * 50000)
    r = world.run()
    until(lambda: "needs 20992" in world.ask("run", "why", "1").out)
    answer = world.ask_json("run", "cancel", "1", "2", "--json")
    assert [(j["job"], j["did"]) for j in answer["jobs"]] == [(1, "was cancelled before it started"), (2, "was cancelled before it started")]
    r.wait()


def test_status_of_a_run_that_ends_while_it_is_asked(world):
    world.jobs("[gpus=0] true")
    world.finish()
    s = socket.socket(socket.AF_UNIX)
    s.bind(str(world.logs / "run.sock"))
    s.listen()
    hangs_up = threading.Thread(target=lambda: [s.accept()[0].close() for _ in range(3)])
    hangs_up.start()
    assert "1/1 done" in world.ask("run", "status").out
    assert "job 1 (ok): it has ended: ok" in world.ask("run", "why", "1").out
    # Whether a change was made, nobody knows: it isn't made a second time.
    assert "left before it answered" in world.ask("run", "retry", "1", code=1).err
    hangs_up.join()
    s.close()


# --- why ---

def test_why_of_what_ran_out_of_memory_says_what_helps(world):
    world.jobs("[vram=8000] " + OOM)
    world.finish(code=1)
    assert world.ask("run", "why", "1").out.startswith(
        "job 1 (failed_oom): it has ended: failed_oom (exit 1) after 0s; it ran out of GPU memory with vram=8000: vram=10240 is a "
        "quarter more, and retries=1 on its line does that by itself; its output is in ")
    assert world.ask_json("run", "status", "--json")["jobs"][0]["suggested_vram_mib"] == 10240
    assert "try vram=10240" in world.ask("run", "status").out


def test_why_of_what_was_infeasible_still_has_the_reason(world):
    world.jobs("[vram=40G] a", "[gpus=3] b")
    world.finish(code=1)
    out = world.ask("run", "why", "1", "2").out
    assert "job 1 (infeasible): it has ended: infeasible (exit 1); declared 40960 MiB + 512 MiB margin exceeds" in out
    assert "job 2 (infeasible): it has ended: infeasible (exit 1); needs 3 GPUs but only 1 are usable" in out
    assert world.ask_json("run", "status", "--json")["jobs"][1]["why"] == "needs 3 GPUs but only 1 are usable"
    # Tried again elsewhere and done, the old reason is gone.
    world.finish("--retry-failed", sim="3x80G", code=127)
    assert "needs 3 GPUs" not in world.ask("run", "why", "2").out


def test_why_of_what_runs_says_where_since_when_and_how_much(world):
    world.jobs("[vram=8G] " + simjob(3000, 300, 0))
    r = world.run()
    out = until(lambda: "3000" in (t := world.ask("run", "why", "1").out) and t)
    assert out.startswith("job 1 (running): it is running for ") and " on gpu0:3000 MiB, declared 8192 MiB; its output is in " in out
    r.kill(15).wait(143)


def test_why_of_a_failure_names_the_log(world):
    world.jobs("[gpus=0] exit 3", "[gpus=0 timeout=0.1s] sleep 60")
    world.finish(code=3)
    out = world.ask("run", "why", "1", "2").out
    assert f"it has ended: failed (exit 3) after 0s; its output is in {world.logs}/job001_cpu.log\n" in out
    assert "it has ended: timeout (exit -15) after 0s; its time limit was over; its output is in " in out


def test_a_name_without_a_scheduler_is_told_apart_from_a_wrong_one(world):
    world.jobs("[gpus=0 name=a] true")
    world.finish()
    assert "without a scheduler running, jobs are known by number only" in world.ask("run", "why", "a", code=1).err
    assert world.ask("run", "why", "9", code=1).err == "gpustow: job 9: there is no such job\n"


def test_an_attempt_of_which_nothing_can_be_known_says_what_to_do(world):
    """Not that it's being asked, which is over."""
    world.jobs("[vram=1G] " + wait_for("go"))
    r = world.run()
    r.sees("job 1 started")
    r.process.kill()
    r.process.wait()
    # Another state directory: an administrator's, or a home that's another one.
    r = world.run(env={"GPUSTOW_AGENT_ROOT": str(world.dir / "other")})
    r.sees("WARN  job 1: what became of attempt 1 can't be known")
    out = world.ask("run", "why", "1").out
    assert out.startswith("job 1 (handed): what became of attempt 1 can't be known (the node's state directory is another one); ")
    assert "`gpustow run retry 1` starts it again, `gpustow run cancel 1` gives it up" in out
    world.ask("run", "cancel", "1")
    r.sees("job 1: attempt 1 is given up")
    r.wait()
    (world.dir / "go").touch()
    world.may_leave = True  # the first agent, of which this world knows nothing any more


def test_X25_a_wait_for_ever_is_said_at_once(world):
    world.jobs("true")
    r = world.run("--idle-threshold", "0")
    r.sees("job 1 waits for ever: declares no vram, and with an idle threshold of 0 MiB no GPU ever counts as idle")
    r.kill(15).wait(143)
    assert r.out.count("waits for ever") == 1


# --- options ---

@pytest.mark.parametrize("args, words", [
    (["--gpus", "x"], "argument --gpus: 'x' is no list of GPU indices"),
    (["--sim", "x"], "argument --sim: "),
    (["--log-dir", ""], "argument --log-dir: '' is no directory"),
])
def test_options_that_are_wrong_get_the_usage_line_like_all_others(world, args, words):
    world.jobs("true")
    r = world.ask(*args, world.file, name="gpusched", code=2)
    usage, error = r.err.splitlines()
    assert usage == "usage: gpusched [options] JOBS_FILE" and error.startswith("gpusched: error: " + words) and r.out == ""
    assert not (world.dir / "journal.jsonl").exists()
    if args[0] == "--log-dir":
        assert words in world.ask("run", "status", *args, code=2).err


# --- cards that go away, clocks that jump ---

def test_a_card_that_stops_answering_is_said_once_and_so_is_its_return(world):
    zero, one = "0, GPU-zero, 24000, 50, 10\n", "1, GPU-one, 24000, 50, 10\n"
    smi(world, zero + one)
    world.jobs("[vram=20000 gpu=1] " + wait_for("go"), "[vram=10000 gpu=1] true", "[gpus=0] " + wait_for("go"))
    r = world.run("--watch", sim=None)
    r.sees("job 1 started on gpu .1.")
    world.write(zero, world.dir / "gpus")
    r.sees(r"WARN  gpu 1 does not answer any more \(missing\): nothing is started on it; running there: job 1$")
    assert "job 2 (pending): no card of the gpu= list is here now" in world.ask("run", "why", "2").out
    world.write(zero + one, world.dir / "gpus")
    r.sees("gpu 1 answers again")
    (world.dir / "go").touch()
    r.sees("queue drained")
    r.kill(2).wait(130)
    assert r.out.count("does not answer any more") == 1 and r.out.count("answers again") == 1


def test_a_job_that_waits_for_a_lost_card_says_so(world):
    card = 'card {} name="NVIDIA A100" memory=40960 reserved=0 used=0 uuid=GPU-{}'
    cards = Cards(world, "cards 2", card.format(0, "zero"), card.format(1, "one"))
    world.jobs("[vram=30G gpu=1] " + wait_for("go"), "[vram=30G gpu=1] true")
    r = world.run(sim=None)
    r.sees("job 1 started")
    cards.say("cards 2", card.format(0, "zero"), card.format(1, "one"), "lost 1")
    r.sees(r"WARN  gpu 1 does not answer any more \(lost\): nothing is started on it; running there: job 1$")
    until(lambda: "no card of the gpu= list answers now" in world.ask("run", "why", "2").out)
    r.kill(15).wait(143)


def test_a_clock_that_was_set_makes_no_time_limit_pass(world):
    """The next scheduler counts from the job's start as the kernel has it."""
    world.jobs("[gpus=0 timeout=1h] " + wait_for("go"))
    r = world.run(env={"GPUSTOW_TEST_WALL_OFFSET": str(world.write("0", world.dir / "offset"))})
    r.sees("job 1 started")
    r.process.kill()
    r.process.wait()
    offset = world.write(str(2 * 3600 * 1000), world.dir / "offset")
    r = world.run(env={"GPUSTOW_TEST_WALL_OFFSET": str(offset)})
    r.sees("job 1 still runs .* taken over")
    assert world.ask_json("run", "status", "--json")["jobs"][0]["seconds"] < 600
    (world.dir / "go").touch()
    r.wait()
    assert "TIMEOUT" not in r.out and "job 1 finished [OK]" in r.out


def test_room_that_others_were_promised_is_in_the_figures(world):
    """Else a card with nothing on it would have less free than it has, and nothing would say why."""
    theirs = {"GPUSTOW_AGENT_ROOT": str(world.dir / "theirs")}
    world.jobs("[vram=20G] " + wait_for("go"))
    other = world.run("--log-dir", "other", env=theirs)
    other.sees("job 1 started")
    world.jobs("[vram=10G] true")
    r = world.run()
    card = until(lambda: (c := world.ask_json("run", "status", "--json")["cards"]) and c[0]["promised_to_others_mib"] and c[0])
    assert card["promised_to_others_mib"] == 20480 and card["free_mib"] == 4096 and card["budget_mib"] == 0
    assert "free 4.0 GiB  promised to others 20.0 GiB" in world.ask("run", "status").out
    (world.dir / "go").touch()
    other.wait()
    r.wait()
    world.may_leave = True  # the other one's agent


def test_W15_a_hangup_that_nohup_ignores_stops_nothing(world):
    world.jobs("[gpus=0] " + wait_for("go"))
    r = world.run(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    r.sees("job 1 started")
    r.kill(signal.SIGHUP)
    (world.dir / "go").touch()
    r.wait()
    assert "interrupted" not in r.out and "job 1 finished [OK]" in r.out


def keys_of(document):
    if isinstance(document, dict):
        return set(document).union(*map(keys_of, document.values()))
    return set().union(*map(keys_of, document)) if isinstance(document, list) else set()


def test_the_manual_has_every_key_of_every_document(world):
    manual = set(re.findall(r"`([a-z_]+)`", (ROOT / "docs" / "run.md").read_text()))
    world.jobs("[vram=8G] " + simjob(3000, 300, 0), "[vram=20G] true", "[gpus=0] false")
    r = world.run()
    r.sees("job 3 finished")
    documents = [until(lambda: (s := world.ask_json("run", "status", "--json"))["jobs"][0]["is_sampled"] and s),
                 world.ask_json("run", "why", "2", "9", "--json", code=1), world.ask_json("run", "cancel", "2", "3", "--json", code=1),
                 {"plan": rows(world)}]
    r.kill(15).wait(143)
    world.jobs("[vram=x] a")
    documents.append(world.ask_json("run", "--check", "--json", "--sim", "1", world.file, code=2))
    assert {k for k in set().union(*map(keys_of, documents)) if isinstance(k, str)} - manual == set()


# --- an agent that can't be heard ---

def test_a_stop_ends_the_run_also_when_its_agent_is_away(world):
    """Else a SIGTERM would wait for ever for what the agent says of the jobs."""
    world.agent_may_die = world.may_leave = True
    world.jobs("[gpus=0] " + wait_for("go"))
    r = world.run("--grace", "0.2")
    r.sees("job 1 started")
    root = next(p for p in (world.dir / "agent").glob("sim-*"))
    for pid, words in world.processes().items():
        if "gpustow-agent serve" in words:
            os.kill(pid, signal.SIGKILL)
    root.rename(root.with_name("away"))
    root.write_text("no agent can live here")
    r.sees("the link to this machine's agent is down")
    r.kill(15).sees("leaving; this machine's agent can't be reached, so running jobs go on until the next run takes them over")
    r.wait(143)
    root.unlink()
    root.with_name("away").rename(root)
    (world.dir / "go").touch()


def test_a_run_whose_log_directory_was_copied_ends_with_a_sentence(world):
    world.agent_may_die = True  # for the first one it does: it hangs up on it
    world.jobs("[gpus=0] " + wait_for("go"))
    first = world.run()
    first.sees("job 1 started")
    until(lambda: world.events("started"))
    shutil.copytree(world.logs, world.dir / "copy", ignore=shutil.ignore_patterns("run.sock"))
    second = world.run("--log-dir", "copy")
    second.sees("taken over")
    first.wait(1)
    assert "another scheduler commands the jobs of this log directory now" in first.err
    (world.dir / "go").touch()
    second.wait()
    assert "job 1 finished [OK]" in second.out


def test_a_log_directory_that_is_deleted_is_said(world):
    world.jobs("[gpus=0 name=x] " + wait_for("go"), "[gpus=0 after=x] true", "[gpus=0 after=x] true")
    r = world.run()
    r.sees("job 1 started")
    shutil.rmtree(world.logs)
    (world.dir / "go").touch()
    r.sees("WARN  job 2 waits: its log can't be written: No such file or directory .*/gpusched_logs/job002_cpu.log.$")
    world.logs.mkdir(0o700)
    r.wait()
    assert "all 3 jobs done — 3 ok" in r.out and r.out.count("its log can't be written") == 1
