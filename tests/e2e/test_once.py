"""`gpustow --once`: what it prints of this machine and of hosts, its document, its exit codes, and how long it takes."""
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness import BUILD, MARK, program

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from lab import Lab, missing  # noqa: E402

needs_lab = pytest.mark.skipif(missing() is not None, reason=missing() or "")
FAKE = BUILD / "tests" / "fake" / "libnvidia-ml.so.1"


def fake(world, text, **env):
    """Environment of a machine whose driver is the fake library with that scenario."""
    path = world.dir / "scenario"
    path.write_text(text)
    return {"GPUSTOW_NVML_PATH": str(FAKE), "GPUSTOW_FAKE_NVML": str(path), **env}


def once(world, *args, code=0, env=None, **more):
    return world.ask(*args, "--once", code=code, env=env, **more)


def document(world, *args, code=0, env=None):
    return json.loads(once(world, *args, "--json", code=code, env=env).out)


def cells(text):
    """The widest line of it."""
    import unicodedata
    def width(line):
        return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)
    return max(map(width, text.splitlines()))


def test_simulated_cards_and_their_users(world):
    world.foreign({0: 5000, 1: 300})
    doc = document(world, "--sim", "2x40G")
    (host,) = doc["hosts"]
    assert (doc["schema_version"], doc["errors"], host["name"], host["address"]) == (1, [], "local", None)
    assert (host["state"], host["source"], host["has_answered"]) == ("up", "sim", True)
    assert [(c["index"], c["mem_used_mib"], c["mem_total_mib"]) for c in host["cards"]] == [(0, 5000, 40960), (1, 300, 40960)]
    absent = host["cards"][0]["absent"]
    assert absent and all(host["cards"][0][k] is None for k in absent) and "mem_used_mib" not in absent
    assert {(p["gpu_index"], p["used_mib"], p["name"]) for p in host["processes"]} == {(0, 5000, "sleep"), (1, 300, "sleep")}
    text = once(world, "--sim", "2x40G").out
    assert re.match(r"Time \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \| Server\(s\): 1\n", text)
    assert "[1] local  2 GPUs" in text and "5000/40960 MiB" in text and "(5.2G)" in text, text


def test_figures_of_a_driver_its_health_and_a_lost_card(world):
    env = fake(world, 'cards 3\ncard 0 name="NVIDIA A100-SXM4-40GB" memory=40960 util=97 temp=84 throttle=64 recovery=1\nlost 1\n'
                      f'card 2 unified\nproc 0 pid={os.getpid()} used=20000\n')
    doc = document(world, env=env)
    zero, one, two = doc["hosts"][0]["cards"]
    assert zero["throttle"] == ["hw_thermal"] and {h["kind"] for h in zero["health"]} == {"throttle", "recovery"}
    assert one["state"] == "lost" and one["temp_c"] is None
    assert two["has_unified_memory"] and two["mem_total_mib"] > 0
    assert doc["hosts"][0]["driver_version"] == "550.54.15"
    text = once(world, env=env).out
    assert "A100-SXM4-40GB" in text and "NVIDIA" not in text.replace("NVIDIA driver", "")
    assert "! card 0: the driver asks for a reset" in text and "! card 1: the GPU is lost" in text
    assert "(unified memory)" in text


def test_machine_without_gpu_answers(world):
    empty = world.dir / "empty"
    empty.mkdir()
    env = {"GPUSTOW_NVML_PATH": "/nonexistent/libnvidia-ml.so.1", "GPUSTOW_NVIDIA_SMI": "/nonexistent/nvidia-smi",
           "GPUSTOW_HOST_ROOT": str(empty)}
    doc = document(world, env=env)
    assert doc["errors"] == [] and doc["hosts"][0]["state"] == "none" and doc["hosts"][0]["cards"] == []
    assert doc["hosts"][0]["why"]


@pytest.mark.parametrize("columns", [1, 20, 60, 80, 200])
def test_nothing_is_wider_than_the_terminal(world, columns):
    world.foreign({0: 5000})
    for color in ({}, {"NO_COLOR": "1"}):
        out = once(world, "--sim", "8", env={"COLUMNS": str(columns), "TERM": "xterm", **color}).out
        assert cells(out) <= columns and "\x1b" not in out  # not a terminal


def test_colours_only_on_a_terminal_that_wants_them(world):
    def on_terminal(**env):
        pid, fd = os.forkpty()
        if pid == 0:
            os.execve(program(), ["gpustow", "--sim", "1", "--once"], {**world.env, "TERM": "xterm", **env})
        out = b""
        try:
            while True:
                out += os.read(fd, 65536)
        except OSError:
            pass
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, out
        os.close(fd)
        return out.decode()
    assert "\x1b[" in on_terminal()
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in on_terminal(**env)


def test_locales(world, tmp_path):
    world.foreign({0: 5000})
    ascii_only = once(world, "--sim", "1", env={"LC_ALL": "C"}).out
    assert ascii_only.isascii() and "5000/24576" in ascii_only
    if not shutil.which("localedef") or subprocess.run(
            ["localedef", "-i", "de_DE", "-f", "UTF-8", str(tmp_path / "de_DE.UTF-8")], capture_output=True).returncode > 1 or not (tmp_path / "de_DE.UTF-8" / "LC_CTYPE").exists():
        pytest.skip("no sources of the German locale here")
    german = once(world, "--sim", "1", env={"LC_ALL": "de_DE.UTF-8", "LOCPATH": str(tmp_path)}).out
    assert "\u2500" in german and not re.search(r"\d,\d", german) and "(4.9G)" in german, german


def test_hostile_names_have_no_power(world):
    sleep = os.path.join(os.fsencode(world.dir), b"\x1b[2J\x9b31m\nX")
    shutil.copy("/bin/sleep", sleep)
    process = subprocess.Popen([sleep, b"300"], env={**os.environ, MARK: world.mark}, start_new_session=True)
    (world.sim / "hostile.json").write_text(json.dumps({"pid": process.pid, "usage": {"0": 100}}))
    for args in ((), ("--json",)):
        out = world.ask("--sim", "1", "--once", *args).out_path.read_bytes()
        out.decode()
        assert not set(out) & (set(range(32)) - {10} | {127}) and b"\\u001b" not in out
        assert args == () or b"[2J" in out
    process.kill()
    process.wait()


def test_mistakes(world):
    for args in (["--once", "--timeout", "0"], ["--once", "--sim", "0"], ["--onec"], ["--once", "run", "x"], ["--json", "ls"]):
        r = world.ask(*args, code=2)
        assert r.err and not r.out, args
    (world.dir / "home" / ".gpustow").mkdir()
    (world.dir / "home" / ".gpustow" / "config.yml").write_text("servers:\n  - hostname: [\n")
    assert "line" in once(world, "--sim", "1", code=2).err


def test_a_hung_driver_costs_no_more_than_the_timeout(world):
    env = fake(world, "cards 1\nhang nvmlDeviceGetMemoryInfo_v2\n")
    r = once(world, "--timeout", "2", code=1, env=env)
    # Its own words come when it's over. (What hangs does so for ever, and the agent says so after five seconds.)
    assert "local didn't answer" in r.err and "within 2.0 s" in r.err
    assert "[1] local" in r.out


# --- hosts over real sshd's ---

HOSTS = ["key", "jump", "inner", "fish", "csh", "noagent", "nogpu"]


@pytest.fixture(scope="module")
def lab():
    made = Lab(HOSTS)
    made.bash("ctl", "mkdir -p ~/.gpustow && printf 'basic:\\n  remote: false\\nservers:\\n' > ~/.gpustow/config.yml; "
              + "; ".join(f"printf '  - hostname: {h}\\n    username: root\\n    nickname: n-{h}\\n' >> ~/.gpustow/config.yml" for h in HOSTS)
              + "; chmod 600 ~/.gpustow/config.yml")
    yield made
    made.down()


def remote(lab, *args):
    r = subprocess.run(lab.command("ctl", "env", *lab.env, "LC_ALL=C.UTF-8", "gpustow", "--once", "--remote", *args),
                       stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, cwd="/")
    assert "Sanitizer" not in r.stderr, r.stderr
    return r


@needs_lab
def test_all_hosts_are_asked_and_shown_in_order(lab):
    r = remote(lab, "--json", "--timeout", "60")
    doc = json.loads(r.stdout)
    assert r.returncode == 0 and not doc["errors"], (r.stderr, [(h["name"], h["state"], h["why"]) for h in doc["hosts"]])
    assert [h["name"] for h in doc["hosts"]] == ["local"] + [f"n-{h}" for h in HOSTS]
    states = {h["name"]: h["state"] for h in doc["hosts"]}
    assert states["n-key"] == "up" and states["n-noagent"] == "text" and states["n-nogpu"] == "none", states
    assert [c["uuid"] for c in doc["hosts"][1]["cards"]] == ["GPU-key-0", "GPU-key-1"]
    text = remote(lab)
    assert text.returncode == 0 and "Server(s): 8" in text.stdout and "[2] n-key  2 GPUs" in text.stdout, text.stdout


@needs_lab
def test_dead_hosts_cost_the_timeout_at_most_and_are_named(lab):
    def timed(seconds):
        begun = time.monotonic()
        r = remote(lab, "--json", "--timeout", str(seconds))
        return time.monotonic() - begun, r
    # The others must have the time to answer: their connections are made, and on a busy machine it's as long as they need there.
    timed(60)
    alone, _ = timed(60)
    limit = max(6, 3 * alone)
    lab.wire("fish", cut=1)
    lab.wire("csh", cut=1)
    try:
        took, r = timed(limit)
        doc = json.loads(r.stdout)
        assert r.returncode == 1 and {e["host"] for e in doc["errors"]} == {"n-fish", "n-csh"}, doc["errors"]
        assert all(e["why"] for e in doc["errors"]) and "n-fish didn't answer" in r.stderr
        # ssh itself gives up after fifteen seconds.
        assert took < limit + max(2, 2 * alone), (took, alone)
        text = remote(lab, "--timeout", "6")
        assert text.returncode == 1 and re.search(r"^\[5\] n-fish  \w+: ", text.stdout, re.M), text.stdout
    finally:
        lab.wire("fish")
        lab.wire("csh")
        lab.bash("ctl", "for s in /root/.gpustow*/ssh/*; do [ -S $s ] && ssh -o ControlPath=$s -O exit x; done; true", check=False)


def masters(lab):
    """Process numbers of the client's ssh masters."""
    return sorted(lab.bash("ctl", "grep -l '\\[mux\\]' /proc/[0-9]*/cmdline 2>/dev/null; true").split())


@needs_lab
def test_a_second_call_reuses_the_connections(lab):
    remote(lab, "--timeout", "60")
    first = masters(lab)
    r = remote(lab, "--json", "--debug")
    doc = json.loads(r.stdout)
    assert r.returncode == 0 and doc["hosts"][1]["timings"]["first_sample_ms"] is not None
    assert first and masters(lab) == first


def test_item_7_help_says_what_memory_leaves_out(world):
    """CUDA's managed memory isn't in the memory of a process; the help says so, and so does the manual."""
    told = " ".join(world.ask("--once", "--help").out.split())
    assert "excludes CUDA managed memory" in told
    assert "managed memory isn't in the memory of a process" in (Path(__file__).resolve().parents[2] / "docs/once.md").read_text()


def can_unshare():
    return os.geteuid() == 0 and shutil.which("unshare") and not subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True).returncode


@pytest.mark.skipif(not can_unshare(), reason="no pid namespace to be had here")
def test_item_19_in_a_pid_namespace_of_its_own(world):
    """The driver names the host's numbers: there processes have no names, a line says why once, and the doctor too."""
    sleeper = subprocess.Popen(["sleep", "1000"])
    try:
        env = {**world.env, **fake(world, f"cards 2\nproc 0 pid={sleeper.pid} used=20000\nproc 1 pid=2 used=5\n")}

        def inside(*args):
            # The agent of this namespace ends with it; it has a place of its own, for the other one's pids mean nothing in it.
            root = world.dir / f"inside-{len(args)}"
            got = subprocess.run(["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", program(), *args], capture_output=True,
                                 text=True, timeout=60, env={**env, "GPUSTOW_AGENT_ROOT": str(root), MARK: world.env[MARK]})
            return got.stdout, got.stderr
        out, err = inside("--once", "--json")
        host = json.loads(out)["hosts"][0]
        assert host["has_foreign_pids"] and [p["used_mib"] for p in host["processes"]] == [20000, 5], err
        # Number 2 is somebody in there, but not the one that the driver means.
        assert all(p["name"] is None and p["user"] is None and p["command"] is None for p in host["processes"])
        assert all(c["is_blind"] for c in host["cards"])
        assert inside("--once")[0].count("--pid=host") == 1
        found = json.loads(inside("doctor", "--json", "--timeout", "5")[0])["checks"]
        (c,) = [c for c in found if c["id"] == "container"]
        assert c["result"] == "warn" and "--pid=host" in c["mend"]
        outside = document(world, env=env)["hosts"][0]
        assert not outside["has_foreign_pids"] and outside["processes"][0]["name"] == "sleep"
        assert "--pid=host" not in once(world, env=env).out
    finally:
        sleeper.kill()
        sleeper.wait()


def test_item_45_slowest_answer_of_the_driver(world):
    env = fake(world, "cards 2\nslow nvmlDeviceGetPowerUsage card=1 80\n")
    host = document(world, env=env)["hosts"][0]
    assert host["slowest_call"]["what"] == "power_mw" and host["slowest_call"]["gpu_index"] == 1
    assert 80000 <= host["slowest_call"]["took_us"] <= host["driver_took_us"] < 60_000_000
    assert "slowest: power_mw of card 1 8" in world.ask("--once", "--debug", env=env).out


def test_item_43_xids_are_explained(world):
    env = fake(world, "cards 2\nxid 0 79\nxid 1 31\n")
    zero, one = document(world, env=env)["hosts"][0]["cards"]
    assert zero["xid_last"] == 79 and "reboot" in zero["xid_text"] and zero["health"][0]["weight"] == "bad"
    assert "compute-sanitizer" in one["xid_text"] and one["health"][0]["weight"] == "note"
    assert "79, the card fell off the bus: reboot" in once(world, env=env).out
    found = json.loads(world.ask("doctor", "--json", code=None, env=env).out)["checks"]
    texts = {c["text"]: (c["result"], c["mend"]) for c in found if c["id"] == "xid"}
    assert texts["card 0: XID 79, the card fell off the bus"][0] == "bad" and "reboot" in texts["card 0: XID 79, the card fell off the bus"][1]
    assert len(texts) == 2


def test_item_32_says_that_it_let_go(world):
    env = fake(world, "cards 2\ncard 0 mig=0 migpending=1\n")
    first = document(world, env=env)["hosts"][0]
    assert first["source_error"] is None and first["cards"][0]["temp_c"] is not None
    assert "let go of for" in once(world, env=env).out
