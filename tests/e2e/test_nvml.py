"""The path of real cards, through the fake NVML library and a fake nvidia-smi: rows X1 to X4, X20; W1, W3, W12, W16."""
import json
import os
import re

import pytest

from harness import BUILD, is_alive, note, simjob, until, wait_for

FAKE = BUILD / "tests" / "fake" / "libnvidia-ml.so.1"


class Cards:
    """A machine with the fake driver."""

    def __init__(self, world, *lines, library="libnvidia-ml.so.1"):
        self.path = world.dir / "scenario"
        self.world = world
        self.say(*lines)
        world.env.update({"GPUSTOW_NVML_PATH": str(BUILD / "tests" / "fake" / library), "GPUSTOW_FAKE_NVML": str(self.path),
                          "GPUSTOW_FAKE_NVML_LOG": str(world.dir / "calls"), "GPUSTOW_HOST_ROOT": str(world.dir / "host")})
        (world.dir / "host").mkdir(exist_ok=True)

    def say(self, *lines):
        self.world.write("\n".join(lines) + "\n", self.path)

    def calls(self, name):
        return self.world.text("calls").count(name)


CARD = 'card {} name="NVIDIA A100" memory=40960 reserved=0 used=0'


def initial_namespace():
    return os.readlink("/proc/self/ns/pid") == "pid:[4026531836]"


needs_host_pids = pytest.mark.skipif(not initial_namespace(), reason="the driver's pids mean other processes in a container")


@needs_host_pids
def test_nvml_places_and_measures(world):
    Cards(world, "cards 2", CARD.format(0), CARD.format(1), "proc 0 pid=1 used=30000")
    world.jobs("[vram=20G] echo $CUDA_DEVICE_ORDER $CUDA_VISIBLE_DEVICES >> $W/judge; " + simjob("20G", 1.2))
    r = world.finish(sim=None)
    assert "discovered GPUs: [0, 1]" in r.out and "job 1 started on gpu [1]" in r.out
    assert world.judge() == ["PCI_BUS_ID 1"]
    assert "gpu1:20480 MiB | declared 20480 MiB → within ±10%" in r.out
    assert world.ask_json("run", "status", "--json")["jobs"][0]["use"][0]["peak_mib"] == 20480


@needs_host_pids
@pytest.mark.parametrize("library", ["libnvidia-ml-535.so", "libnvidia-ml-old.so"])
def test_nvml_older_libraries(world, library):
    Cards(world, "cards 2", CARD.format(0), CARD.format(1), "proc 0 pid=1 used=30000", library=library)
    world.jobs("[vram=20G] " + simjob("20G", 1.2), "[vram=10G] " + simjob(9800, 1.2))
    r = world.finish(sim=None)
    assert "gpu1:20480 MiB" in r.out and re.search(r"gpu[01]:9800 MiB", r.out)


def test_W12_a_lost_card_makes_jobs_get_uuids(world):
    cards = Cards(world, "cards 2", CARD.format(0) + " uuid=GPU-zero", CARD.format(1) + " uuid=GPU-one")
    world.jobs("[vram=20G gpu=1] echo $CUDA_VISIBLE_DEVICES >> $W/judge", "[vram=20G gpu=1] " + wait_for("go"))
    r = world.run("--watch", sim=None)
    r.sees("job 2 started on gpu .1.")
    cards.say("cards 2", CARD.format(0) + " uuid=GPU-zero", CARD.format(1) + " uuid=GPU-one", "lost 0")
    until(lambda: [c["state"] for c in world.ask_json("run", "status", "--json")["cards"]] == ["lost", "ok"]
          or [c["index"] for c in world.ask_json("run", "status", "--json")["cards"]] == [1])
    world.append("[vram=10G gpus=1] echo $CUDA_VISIBLE_DEVICES >> $W/judge\n[vram=10G gpus=2] " + note("both") + "\n")
    r.sees("job 3 finished")
    assert world.judge() == ["1", "GPU-one"]
    # W16, X20: a card that's away is no reason to call a job infeasible.
    until(lambda: "job 4 (pending)" in world.ask("run", "why", "4").out)
    assert "INFEASIBLE" not in r.out
    cards.say("cards 2", CARD.format(0) + " uuid=GPU-zero", CARD.format(1) + " uuid=GPU-one")
    (world.dir / "go").touch()
    r.sees("job 4 finished", deadline=60)
    assert world.judge() == ["1", "GPU-one", "both"]
    r.kill(2).wait(130)


def test_X2_W2_a_driver_that_hangs_stops_starts_and_nothing_else(world):
    cards = Cards(world, "cards 1", CARD.format(0))
    world.jobs("[vram=20G timeout=30s] " + note("a", wait_for("go")))
    r = world.run(sim=None)
    r.sees("job 1 started")
    cards.say("cards 1", CARD.format(0), "hang nvmlDeviceGetMemoryInfo_v2")
    pid = until(lambda: world.events("started"))[0]["pgid"]
    world.append("[vram=1G] " + note("b") + "\n")
    until(lambda: len(world.events("seen")) == 2)
    assert is_alive(pid)
    # The end of a job and a cancel are heard all the same.
    (world.dir / "go").touch()
    r.sees("job 1 finished .OK.")
    assert world.judge() == ["a"]
    cards.say("cards 1", CARD.format(0))
    r.wait(deadline=90)
    assert world.judge() == ["a", "b"]


def test_X2_W2_a_driver_that_fails_stops_starts_and_nothing_else(world):
    cards = Cards(world, "cards 1", CARD.format(0))
    world.jobs("[vram=20G] " + note("a", wait_for("go")))
    r = world.run(sim=None)
    r.sees("job 1 started")
    cards.say("cards 1", CARD.format(0), "err * 999")
    world.append("[vram=1G] " + note("b") + "\n[vram=1G] " + note("c") + "\n")
    r.sees(r"WARN  GPU query failed|job 2 started", deadline=60)
    (world.dir / "go").touch()
    r.sees("job 1 finished .OK.")
    cards.say("cards 1", CARD.format(0))
    r.wait(deadline=90)
    assert sorted(world.judge()) == ["a", "b", "c"]


def test_X1_W1_no_driver_is_no_success(world):
    world.env["GPUSTOW_NVML_PATH"] = str(world.dir / "no-such-library")
    world.env["GPUSTOW_NVIDIA_SMI"] = str(world.dir / "no-such-program")
    world.jobs("[vram=1G] " + note("a"), "[gpus=0] " + note("cpu"))
    r = world.finish(sim=None, code=1)
    assert "WARN  GPU query failed (" in r.out and "all 0 jobs done" not in r.out
    assert "no GPU could be asked, so nothing that needs one was started" in r.err
    assert world.judge() == ["cpu"]


def test_X1_check_without_a_driver(world):
    world.env["GPUSTOW_NVML_PATH"] = str(world.dir / "no-such-library")
    world.env["GPUSTOW_NVIDIA_SMI"] = str(world.dir / "no-such-program")
    world.jobs("[vram=1G] " + note("a"))
    r = world.finish("--check", sim=None, code=1)
    assert r.err.startswith("gpustow: ") and r.err.count("\n") == 1


def smi(world, gpus, apps="", code=0, before=""):
    """A fake nvidia-smi that knows gpusched's two CSV queries only."""
    path = world.dir / "bin" / "nvidia-smi"
    (world.dir / "gpus").write_text(gpus)
    (world.dir / "apps").write_text(apps)
    path.write_text(f"""#!/bin/sh
{before}
case "$*" in
*--query-gpu*) cat {world.dir}/gpus; exit {code};;
*--query-compute-apps*) cat {world.dir}/apps; exit {code};;
*) echo "unknown option" >&2; exit 6;;
esac
""")
    path.chmod(0o755)
    world.env["GPUSTOW_NVML_PATH"] = str(world.dir / "no-such-library")
    world.env["GPUSTOW_NVIDIA_SMI"] = str(path)
    world.env["GPUSTOW_HOST_ROOT"] = str(world.dir / "host")


def test_smi_text_is_a_fallback(world):
    smi(world, "0, GPU-zero, 24000, 20000, 10\n1, GPU-one, 24000, 50, 10\n")
    world.jobs("[vram=8000] echo $CUDA_VISIBLE_DEVICES >> $W/judge")
    r = world.finish(sim=None)
    assert world.judge() == ["1"] and "discovered GPUs: [0, 1]" in r.out
    world.jobs("[vram=8000] " + wait_for("go"))
    r = world.run(sim=None)
    r.sees("job 2 started")
    assert world.ask_json("run", "status", "--json")["source"] == "nvidia-smi"
    (world.dir / "go").touch()
    r.wait()


def test_X20_W16_a_card_missing_from_the_list(world):
    """W16: nothing is infeasible for it, and numbers, which would be shifted, give way to UUIDs (W12)."""
    zero, one = "0, GPU-zero, 24000, 50, 10\n", "1, GPU-one, 24000, 50, 10\n"
    smi(world, zero + one)
    world.jobs("[vram=20000 gpu=1] " + note("$CUDA_VISIBLE_DEVICES", wait_for("go")))
    r = world.run("--watch", sim=None)
    r.sees("job 1 started on gpu .1.")
    world.write(one, world.dir / "gpus")
    until(lambda: [c["index"] for c in world.ask_json("run", "status", "--json")["cards"]] == [1])
    world.append("[vram=1000 gpus=2] " + note("both") + "\n[vram=1000] " + note("$CUDA_VISIBLE_DEVICES") + "\n")
    r.sees("job 3 finished")
    # More samples than it takes to call a job infeasible.
    seen = {world.ask_json("run", "status", "--json")["sample_age_ms"]}
    until(lambda: seen.add(world.ask_json("run", "status", "--json")["sample_age_ms"]) or len(seen) > 12)
    assert "INFEASIBLE" not in r.out and world.judge() == ["1", "GPU-one"]
    world.write(zero + one, world.dir / "gpus")
    r.sees("job 2 finished .OK.")
    (world.dir / "go").touch()
    r.sees("queue drained")
    r.kill(2).wait(130)


def test_X3_W3_memory_that_is_not_available(world):
    smi(world, "0, GPU-zero, [N/A], [N/A], 10\n1, GPU-one, 24000, 50, 10\n")
    world.jobs("[vram=8000] echo $CUDA_VISIBLE_DEVICES >> $W/judge")
    world.finish(sim=None)
    assert world.judge() == ["1"] or world.judge() == ["GPU-one"]


@needs_host_pids
def test_X4_figures_that_are_missing_and_strange_rows(world):
    smi(world, "0, GPU-zero, 24000, 50, [N/A]\n", "GPU-unknown, 1, 500\nGPU-zero, 1, [N/A]\nnonsense\n")
    world.jobs("[vram=8000] sleep 0.5; " + note("a"))
    r = world.finish(sim=None)
    assert world.judge() == ["a"] and "avg gpu util" not in r.out
    assert world.events("done")[0]["avg_util"] is None


def test_X2_W2_a_failing_nvidia_smi_ends_nothing(world):
    smi(world, "0, GPU-zero, 24000, 50, 10\n", before=f"test -e {world.dir}/broken && {{ echo 'boom' >&2; exit 9; }}")
    world.jobs("[vram=20000] " + note("a", wait_for("go")), "[vram=20000] " + note("b"))
    r = world.run(sim=None)
    r.sees("job 1 started")
    (world.dir / "broken").touch()
    r.sees(r"WARN  GPU query failed \(.*\); attempt 5", deadline=60)
    (world.dir / "go").touch()
    r.sees("job 1 finished .OK.")
    (world.dir / "broken").unlink()
    r.wait(deadline=60)
    assert world.judge() == ["a", "b"]


def test_calls_are_made_by_a_child_and_not_by_the_scheduler(world):
    cards = Cards(world, "cards 1", CARD.format(0))
    world.jobs("[vram=20G] " + note("a", wait_for("go")))
    r = world.run(sim=None)
    r.sees("job 1 started")
    until(lambda: cards.calls("nvmlInit_v2") >= 1)
    maps = open(f"/proc/{r.pid}/maps").read()
    assert "libnvidia-ml" not in maps
    assert not any("libnvidia-ml" in open(f"/proc/{a}/maps").read() for a in world.agents())
    (world.dir / "go").touch()
    r.wait()


@needs_host_pids
def test_W3_the_unified_memory_board(world):
    """W3: DGX Spark and the like print no memory at all; the machine's own is the card's."""
    cards = Cards(world, "cards 1", 'card 0 name="NVIDIA GB10" unified')
    (world.dir / "host" / "proc").mkdir(parents=True)
    (world.dir / "host" / "proc" / "meminfo").write_text("MemTotal: 125829120 kB\nMemAvailable: 104857600 kB\n")
    world.jobs("[vram=20G] " + note("a", simjob("20G", 1.0)))
    r = world.finish(sim=None)
    assert world.judge() == ["a"] and "job 1 finished [OK]" in r.out
    assert cards.calls("nvmlInit_v2") and json.dumps(world.events("done")[0]["status"]) == '"ok"'
