"""`gpustow doctor`: what it finds wrong, in words, and the way to mend it."""
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness import BUILD

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from lab import Lab, missing  # noqa: E402

FAKE = BUILD / "tests" / "fake" / "libnvidia-ml.so.1"


def checks(world, *args, code=0, env=None):
    doc = json.loads(world.ask("doctor", "--json", *args, code=code, env=env).out)
    assert doc["schema_version"] == 1
    for c in doc["checks"]:
        assert set(c) == {"id", "result", "text", "mend", "took_ms"} and c["result"] in ("ok", "warn", "bad")
    assert doc["ok"] == (code == 0)
    return doc["checks"]


def of(found, name, result=None):
    return [c for c in found if c["id"] == name and (result is None or c["result"] == result)]


def machine(world, scenario="cards 2\n", version="550.54.15", nodes=("nvidia0", "nvidia1", "nvidiactl")):
    """A machine's /proc and /dev, and the fake driver."""
    root = world.dir / "machine"
    (root / "proc/driver/nvidia").mkdir(parents=True)
    (root / "dev").mkdir()
    for n in nodes:
        (root / "dev" / n).touch()
    if version:
        (root / "proc/driver/nvidia/version").write_text(
            f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Tue Jan  1 00:00:00 UTC 2024\n")
    (world.dir / "scenario").write_text(scenario)
    return {"GPUSTOW_HOST_ROOT": str(root), "GPUSTOW_NVML_PATH": str(FAKE), "GPUSTOW_FAKE_NVML": str(world.dir / "scenario"),
            "GPUSTOW_NVIDIA_SMI": "/bin/true"}


def test_simulated_machine_is_well(world):
    found = checks(world, "--sim", "2")
    assert not [c for c in found if c["result"] == "bad"]
    assert of(found, "agent", "ok") and of(found, "figures", "ok") and of(found, "program", "ok") and of(found, "root", "ok")
    text = world.ask("doctor", "--sim", "2").out
    assert text.rstrip().split("\n")[-1] in ("all is well", "it works; some things could be better")


def test_machine_with_a_driver_is_well(world):
    found = checks(world, env=machine(world))
    assert of(found, "module", "ok") and of(found, "library", "ok") and of(found, "nvml", "ok") and of(found, "devices", "ok")
    assert "2 cards" in of(found, "nvml")[0]["text"] and of(found, "nvidia-smi", "ok")


def test_library_of_another_version(world):
    found = checks(world, env=machine(world, version="535.54.03"), code=1)
    (c,) = of(found, "versions", "bad")
    assert "535.54.03" in c["text"] and "550.54.15" in c["text"] and "reboot" in c["mend"]


def test_no_library_no_module_no_nodes(world):
    env = {**machine(world, version=None, nodes=()), "GPUSTOW_NVML_PATH": "/nonexistent/libnvidia-ml.so.1",
           "GPUSTOW_NVIDIA_SMI": "/nonexistent/nvidia-smi"}
    found = checks(world, env=env, code=1)
    assert "/nonexistent/libnvidia-ml.so.1" in of(found, "library", "bad")[0]["text"]
    assert of(found, "module", "warn") and of(found, "devices", "warn") and of(found, "nvidia-smi", "warn")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open every file")
def test_node_that_may_not_be_opened(world):
    env = machine(world)
    (Path(env["GPUSTOW_HOST_ROOT"]) / "dev/nvidia0").chmod(0)
    (c,) = of(checks(world, env=env, code=1), "devices", "bad")
    assert "mode 0000" in c["text"]


def test_cards_that_are_unwell(world):
    found = checks(world, env=machine(world, "cards 2\ncard 0 recovery=2\nlost 1\n"), code=1)
    texts = [c["text"] for c in of(found, "card", "bad")]
    assert any("reboot of the machine" in t for t in texts) and any("card 1" in t and "lost" in t for t in texts), texts


def test_driver_that_hangs_hangs_nobody(world):
    found = checks(world, "--timeout", "2", env=machine(world, "cards 1\nhang nvmlInit_v2\n"), code=1)
    assert any("hangs" in c["text"] for c in of(found, "nvml", "bad"))


def test_promise_directory_that_cannot_be_used(world):
    found = checks(world, "--sim", "1", env={"GPUSTOW_PROMISE_DIR": str(world.dir / "nowhere")}, code=1)
    assert of(found, "promises", "bad")[0]["mend"]


def test_machine_without_gpu_is_well(world):
    (world.dir / "empty").mkdir()
    env = {"GPUSTOW_HOST_ROOT": str(world.dir / "empty"), "GPUSTOW_NVIDIA_SMI": "/nonexistent/nvidia-smi"}
    found = checks(world, env=env)
    assert "no NVIDIA GPU" in of(found, "driver", "ok")[0]["text"] and of(found, "figures", "ok")


def test_mistakes(world):
    assert world.ask("doctor", "nobody", code=None).process.returncode in (1, 2)
    world.ask("doctor", "a", "b", code=2)


# --- hosts ---

@pytest.fixture(scope="module")
def lab():
    made = Lab(["key", "pass", "noagent", "noisy"])
    made.bash("ctl", "mkdir -p ~/.gpustow && printf 'servers:\\n' > ~/.gpustow/config.yml; "
              + "; ".join(f"printf '  - hostname: {h}\\n    username: {u}\\n    nickname: {h}\\n' >> ~/.gpustow/config.yml"
                          for h, u in (("key", "root"), ("pass", "alice"), ("noagent", "root"), ("noisy", "root")))
              + "; chmod 600 ~/.gpustow/config.yml")
    yield made
    made.down()


def visit(lab, host, *args):
    r = subprocess.run(lab.command("ctl", "env", *lab.env, "gpustow", "doctor", "--json", *args, host), stdin=subprocess.DEVNULL,
                       capture_output=True, text=True, timeout=120, cwd="/")
    assert "Sanitizer" not in r.stderr, r.stderr
    return json.loads(r.stdout)["checks"], r.returncode


needs_lab = pytest.mark.skipif(missing() is not None, reason=missing() or "")


@needs_lab
def test_each_step_to_a_host_is_told_and_timed(lab):
    for host in ("key", "noisy"):
        found, code = visit(lab, host)
        assert code == 0, [c for c in found if c["result"] == "bad"]
        for name in ("config", "resolve", "connect", "agent", "figures", "clock", "round trip", "system"):
            assert of(found, name, "ok"), (name, found)
        assert all(of(found, n)[0]["took_ms"] is not None for n in ("resolve", "connect", "agent", "figures", "round trip"))
        assert "Linux" in of(found, "system")[0]["text"] and "KiB free" in of(found, "system")[0]["text"]


@needs_lab
def test_login_that_wants_a_password(lab):
    found, code = visit(lab, "pass")
    assert code == 1 and of(found, "login", "bad") and of(found, "connect", "ok") and of(found, "host key", "ok"), found


@needs_lab
def test_host_key_that_is_not_known(lab):
    lab.bash("ctl", "cp ~/.ssh/known_hosts /tmp/known; : > ~/.ssh/known_hosts")
    lab.bash("ctl", "for s in /root/.gpustow*/ssh/*; do [ -S $s ] && ssh -o ControlPath=$s -O exit x; done; true", check=False)
    try:
        found, code = visit(lab, "key")
        assert code == 1 and of(found, "host key", "bad") and of(found, "connect", "ok"), found
    finally:
        lab.bash("ctl", "cp /tmp/known ~/.ssh/known_hosts")


@needs_lab
def test_host_that_does_not_answer(lab):
    def timed():
        lab.bash("ctl", "for s in /root/.gpustow*/ssh/*; do [ -S $s ] && ssh -o ControlPath=$s -O exit x; done; true", check=False)
        begun = time.monotonic()
        return *visit(lab, "noisy", "--timeout", "3"), time.monotonic() - begun
    *_, alone = timed()
    lab.wire("noisy", cut=1)
    try:
        found, code, took = timed()
        assert code == 1 and of(found, "connect", "bad"), found
        assert took < 6 + 2 * alone, (took, alone)
    finally:
        lab.wire("noisy")


@needs_lab
def test_host_where_the_agent_cannot_run(lab):
    found, code = visit(lab, "noagent")
    assert of(found, "agent", "warn") and of(found, "connect", "ok") and of(found, "shell", "ok"), found
