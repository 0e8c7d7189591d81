"""`--dcgm`: figures of profiling from DCGM in a process of its own, from NVML's counters otherwise, and nothing of it unasked."""
import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from harness import BUILD, is_alive, program, read_text, until
from test_monitor import Tmux

FAKE = BUILD / "tests" / "fake"
needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux isn't installed")
TWO = "cards 2\nprofiling id=4\ndcgm 0 sm=0.83 occupancy=0.4 tensor=0.5 dram=0.71 nvlinktx=2097152\ndcgm 1 sm=0.1 fp64=none\n"


def machine(world, text, dcgm="libdcgm.so.4"):
    write(world, text)
    return {"GPUSTOW_NVML_PATH": str(FAKE / "libnvidia-ml.so.1"), "GPUSTOW_DCGM_PATH": str(FAKE / dcgm),
            "GPUSTOW_FAKE_NVML": str(world.dir / "scenario"), "GPUSTOW_FAKE_NVML_LOG": str(world.dir / "calls")}


def write(world, text):
    new = world.dir / "scenario.new"
    new.write_text(text)
    new.rename(world.dir / "scenario")


def calls(world, prefix):
    return sum(line.startswith(prefix) for line in read_text(world.dir / "calls").splitlines())


def named(world, name):
    """Processes of this world that the kernel knows by that name."""
    found = []
    for pid in world.processes():
        try:
            if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                found.append(pid)
        except OSError:
            pass
    return found


def helpers(world):
    return named(world, "gpustow-dcgm")


def helper(world):
    return until(lambda: helpers(world), why=world.tell)[0]


def document(world, *args, env, code=0):
    (host,) = json.loads(world.ask("--once", "--json", *args, env=env, code=code).out)["hosts"]
    return host


def test_nothing_unasked(world):
    env = machine(world, "cards 2\n")  # the fakes end whoever asks for profiling in such a scenario
    host = document(world, env=env)
    assert host["profiling"] == {"source": None, "error": None, "why": None}
    assert {c["absent"]["sm_active_pct"] for c in host["cards"]} == {"not-asked"}
    assert "rofiling" not in world.ask("--once", env=env).out
    assert not helpers(world) and not calls(world, "dcgm") and not calls(world, "nvmlGpm")


@pytest.mark.parametrize("library", ["libdcgm.so.3", "libdcgm.so.4"])
def test_the_document_and_the_text(world, library):
    env = machine(world, TWO, library)
    host = document(world, "--dcgm", env=env)
    zero, one = host["cards"]
    assert host["profiling"] == {"source": "dcgm", "error": None, "why": None}
    assert [zero[k + "_pct"] for k in ("sm_active", "sm_occupancy", "tensor_active", "dram_active", "int_active")] == [83, 40, 50, 71, 0]
    assert (zero["instruction_throughput_pct"], zero["sol_pct"], zero["nvlink_tx_kib_s"]) == (50, 71, 2048)
    assert one["sm_active_pct"] == 10 and one["fp64_active_pct"] is None and one["absent"]["fp64_active_pct"] == "unsupported"
    assert not calls(world, "nvmlGpm")
    text = world.ask("--once", "--dcgm", env=env).out
    assert "profiling: dcgm" in text and "83%" in text and "SOL" in text
    # Nobody wants them any more.
    until(lambda: not helpers(world), why=world.tell)


def test_nvmls_own_counters_where_there_is_no_dcgm(world):
    env = machine(world, "cards 2\ngpm 1 sm=0.5 tensor=0.25\n", "no-such-library.so")
    host = document(world, "--dcgm", env=env)
    assert host["profiling"]["source"] == "gpm" and host["profiling"]["error"] == "dcgm_import_failed" and host["profiling"]["why"]
    assert host["cards"][1]["sm_active_pct"] == 50 and host["cards"][0]["absent"]["sm_active_pct"] == "unsupported"


def test_mig_instances_have_their_own(world):
    env = machine(world, "card 0 mig=1\ninstance 0 0\ninstance 0 4\ngpm 0 sm=0.6\ngpm 0 instance=0 sm=0.9\n"
                         "gpm 0 instance=4 sm=0.2 dram=0.3\n", "no-such-library.so")
    (card,) = document(world, "--dcgm", env=env)["cards"]
    assert card["sm_active_pct"] == 60
    assert [(i["gpu_instance"], i["sm_active_pct"], i["sol_pct"]) for i in card["instances"]] == [(1, 90, 0), (5, 20, 30)]
    text = world.ask("--once", "--dcgm", env=env).out
    assert re.search(r"(?m)^0 +60%", text) and re.search(r"(?m)^0:1 +90%", text) and re.search(r"(?m)^0:5 +20%", text)
    (card,) = document(world, env=env)["cards"]
    assert [i["sm_active_pct"] for i in card["instances"]] == [None, None]


@pytest.mark.parametrize("way, library", [("dcgm", "libdcgm.so.4"), ("gpm", "no-such-library.so")])
def test_a_second_look_has_nothing_of_the_first(world, way, library):
    env = machine(world, f"profiling\n{way} 0 sm=0.5\n", library)
    assert document(world, "--dcgm", env=env)["cards"][0]["sm_active_pct"] == 50
    write(world, f"profiling\n{way} 0 sm=0.25\n")
    assert document(world, "--dcgm", env=env)["cards"][0]["sm_active_pct"] == 25
    assert len(world.agents()) == 1


@pytest.mark.parametrize("rule, word, sentence", [
    ("err dcgmStartEmbedded_v2 -29", "dcgm_connect_failed", "root"),
    ("err dcgmWatchFields -34", "dcgm_group_failed", "another profiler"),
    ("crash dcgmInit", "dcgm_connect_failed", "crashed (signal 11)"),
])
def test_neither_is_said_with_its_reason(world, rule, word, sentence):
    env = machine(world, f"cards 2\nprofiling\ndcgm 0 sm=1\ndcgm 1 sm=1\n{rule}\n")
    host = document(world, "--dcgm", env=env)
    assert (host["profiling"]["source"], host["profiling"]["error"]) == ("none", word)
    assert sentence in host["profiling"]["why"] and "Hopper" in host["profiling"]["why"]
    assert [c["mem_total_mib"] for c in host["cards"]] == [24576] * 2
    assert "profiling isn't available" in world.ask("--once", "--dcgm", env=env).out
    assert len(world.agents()) == 1


def test_simulated_cards(world):
    world.foreign({0: 5000})
    host = document(world, "--sim", "2", "--dcgm", env={"GPUSTOW_DCGM_PATH": str(FAKE / "libdcgm.so.4")})
    assert host["profiling"]["source"] == "sim" and host["cards"][0]["sm_active_pct"] > 0 and host["cards"][1]["sm_active_pct"] == 0


@needs_tmux
def test_a_library_that_hangs_delays_nothing(world):
    env = machine(world, "cards 2\nprofiling\nhang dcgmInit\n")
    s = world.spawn(program(), "--once", "--dcgm", "--json", env=env)
    stuck = helper(world)
    s.wait()
    (host,) = json.loads(s.out)["hosts"]
    assert host["profiling"]["source"] == "starting" and len(host["cards"]) == 2
    until(lambda: not is_alive(stuck), why=world.tell)
    # Somebody who goes on asking: others, and samples without profiling, have their answer while it hangs.
    t = Tmux(world, "--dcgm", cols=130, env=env)
    try:
        stuck = helper(world)
        before = calls(world, "nvmlDeviceGetMemoryInfo_v2 0")
        until(lambda: calls(world, "nvmlDeviceGetMemoryInfo_v2 0") >= before + 2, why=world.tell)
        assert document(world, env=env)["cards"][0]["mem_total_mib"] == 24576
        assert helpers(world) == [stuck]
        t.keys("q")
        t.sees("EXIT 0")
    finally:
        t.end()
    until(lambda: not is_alive(stuck), why=world.tell)


@needs_tmux
def test_the_monitor(world):
    env = machine(world, TWO.replace("id=4", "engine id=4"))
    t = Tmux(world, "--dcgm", cols=130, env=env)
    try:
        t.sees("Servers", r"profiling: dcgm", r"GPU +SM +occupancy +tensor", r"0 +83% +40% +50%", gone=("waiting for profiling", "isn't available"))
        one = helper(world)
        t.keys("v", "d").sees(r"PROFILE +SM 83%  occupancy 40%")
        # The engine goes: the cards stay, the header says so.
        write(world, "cards 2\nprofiling\nerr dcgmEntitiesGetLatestValues -21\nerr dcgmStartEmbedded_v2 -29\n")
        t.sees("profiling isn't available", "GPU 1 ", gone=("PROFILE",))
        until(lambda: not is_alive(one) and not helpers(world), why=world.tell)
        t.keys("q")
        t.sees("EXIT 0")
    finally:
        t.end()


@needs_tmux
def test_the_helper_is_there_while_somebody_wants_it(world):
    env = machine(world, TWO)
    plain = Tmux(world, cols=130, env=env)
    t = None
    try:
        plain.sees("2 GPUs")
        assert not helpers(world)
        t = Tmux(world, "--dcgm", cols=130, env=env)
        t.sees("profiling: dcgm")
        one = helper(world)
        assert not calls(world, "nvmlGpm")
        # An engine of its own holds the driver: it goes with `release`, and comes back.
        r = world.spawn(program(), "release", "--", "sh", "-c", "touch $W/runs; while [ ! -e $W/go ]; do sleep 0.05; done", env=env)
        until(lambda: (world.dir / "runs").exists(), why=r.tell)
        assert not is_alive(one) and not helpers(world)
        (world.dir / "go").touch()
        r.wait()
        two = helper(world)
        # Killed, it is another one's turn later; the cards stay.
        os.kill(two, signal.SIGKILL)
        t.sees("profiling isn't available", r"2 GPUs")
        t.keys("q")
        t.sees("EXIT 0")
        plain.sees("2 GPUs")
        t.end()
        # Another wish begins anew, and ends with the last who has it.
        t = Tmux(world, "--dcgm", cols=130, env=env)
        t.sees("profiling: dcgm")
        three = helper(world)
        t.keys("q")
        t.sees("EXIT 0")
        until(lambda: not is_alive(three), why=world.tell)
        assert not helpers(world) and len(world.agents()) == 1
    finally:
        plain.end()
        if t:
            t.end()


@needs_tmux
def test_it_goes_with_its_agent(world):
    env = machine(world, TWO)
    world.agent_may_die = True
    t = Tmux(world, "--dcgm", cols=130, env=env)
    try:
        t.sees("profiling: dcgm")
        one = helper(world)
        (agent,) = world.agents()
        os.kill(agent, signal.SIGKILL)
        until(lambda: not is_alive(one), why=world.tell)
        t.keys("q")
        t.sees("EXIT 0")
    finally:
        t.end()
