#!/usr/bin/env python3
"""What the agent costs a node: 8 cards, 200 processes, 1 sample a second with details, over the fake NVML library.

CPU and memory of the agent and its sampler are read from /proc; what the fake library itself used is taken off, as NVML's
own would be. usage: agent_cost.py BUILD [--seconds 60]. Prints "met" or "NOT met" and ends with 1 if not.
"""
import argparse
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

CARDS, PROCESSES = 8, 200
CPU_PCT, RSS_MIB, PACE = 1.5, 8.0, 0.9


def scenario(pids):
    lines = [f"cards {CARDS}"]
    for card in range(CARDS):
        lines.append(f"card {card} util=80 memutil=40 mig=0 ecc=1")
        for field, value in (82, 60), (83, 1000), (186, 250000), (94, 0), (3, 0), (4, 0), (138, 5), (139, 5):
            lines.append(f"field {card} {field} {value}")
        for field in 197, 198:
            lines.append(f"field {card} {field} 0 rate=1000000")
        for field in range(74, 80):
            lines.append(f"field {card} {field} 0 rate=1000")
    for i, pid in enumerate(pids):
        lines.append(f"proc {i % CARDS} pid={pid} used=100")
        lines.append(f"use {i % CARDS} pid={pid} sm=3 mem=1")
    return "\n".join(lines) + "\n"


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        return [int(word) for word in f.read().split()]


def cpu_s(pid):
    with open(f"/proc/{pid}/stat", "rb") as f:
        fields = f.read().rsplit(b")", 1)[1].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    # Of its helpers that have ended.
    return own + (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid):
    """Resident, and of that what is this process's alone or shared with its kin only (Pss)."""
    rss = pss = 0
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
        for line in f:
            if line.startswith("Rss:"):
                rss = int(line.split()[1])
            elif line.startswith("Pss:"):
                pss = int(line.split()[1])
    return rss / 1024, pss / 1024


class Watcher:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        self.socket.connect(path)
        self.data = b""

    def send(self, **message):
        body = json.dumps(message).encode()
        self.socket.sendall(struct.pack(">I", len(body) + 1) + b"J" + body)

    def receive(self):
        while True:
            if len(self.data) >= 4:
                n = struct.unpack(">I", self.data[:4])[0]
                if len(self.data) >= 4 + n:
                    body, self.data = self.data[5:4 + n], self.data[4 + n:]
                    return n, json.loads(body)
            more = self.socket.recv(1 << 16)
            if not more:
                raise SystemExit("the agent closed the link")
            self.data += more


def watch(watcher, seconds):
    """Samples received, bytes, and the last one."""
    samples = size = 0
    last, until = None, time.monotonic() + seconds
    while time.monotonic() < until:
        n, message = watcher.receive()
        if message["op"] == "sample":
            samples, size, last = samples + 1, size + n, message
    return samples, size, last


def measure(build, directory, sleepers, seconds):
    root, cpu_file = directory / "root", directory / "cpu"
    (directory / "scenario").write_text(scenario([p.pid for p in sleepers]))
    cpu_file.write_bytes(bytes(8))
    env = dict(os.environ, GPUSTOW_NVML_PATH=str(build / "tests/fake/libnvidia-ml.so.1"),
               GPUSTOW_FAKE_NVML=str(directory / "scenario"), GPUSTOW_FAKE_NVML_CPU=str(cpu_file),
               GPUSTOW_PROMISE_DIR=str(directory))
    for name in "GPUSTOW_SIM", "GPUSTOW_SIM_DIR", "GPUSCHED_SIM_DIR":
        env.pop(name, None)
    subprocess.run([build / "src/gpustow-agent", "serve", root], env=env, check=True)
    watcher = Watcher(str(root / "agent.sock"))
    watcher.send(op="hello", protocol=1, build=1, who="agent_cost")
    agent = watcher.receive()[1]["pid"]
    try:
        watcher.send(op="watch", interval_ms=1000, details=True)
        watch(watcher, 3)
        kin = [agent] + children(agent)
        fake = struct.unpack("q", cpu_file.read_bytes())[0]
        before, began = sum(map(cpu_s, kin)), time.monotonic()
        samples, size, last = watch(watcher, seconds)
        took = time.monotonic() - began
        used = sum(map(cpu_s, kin)) - before
        fake = (struct.unpack("q", cpu_file.read_bytes())[0] - fake) / 1e9
        return samples / took, size / max(samples, 1), last, (used - fake) / took * 100, fake / took * 100, {
            name: memory_mib(pid) for name, pid in zip(("agent", "sampler"), kin)}
    finally:
        os.kill(agent, signal.SIGTERM)


def cost(build, seconds):
    """One measurement as figures; the library's own CPU is taken off."""
    sleepers = [subprocess.Popen(["sleep", "100000"]) for _ in range(PROCESSES)]
    try:
        with tempfile.TemporaryDirectory(prefix="gpustow-cost-", ignore_cleanup_errors=True) as directory:
            pace, size, last, cpu, fake, memory = measure(
                build.resolve(), pathlib.Path(directory), sleepers, seconds)
    finally:
        for p in sleepers:
            p.kill()
            p.wait()
    rows, cards = len(last["procs"]), len(last["cards"])
    if (cards, rows) != (CARDS, PROCESSES) or len(last["procs"][0]) < 20:
        sys.exit(f"measured the wrong thing: {cards} cards, {rows} processes")
    return {"pace": pace, "sample_kib": size / 1024, "cpu_pct": cpu, "fake_pct": fake, "memory": memory,
            "resident_mib": sum(pss for _, pss in memory.values())}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    c = cost(options.build, options.seconds)
    print(f"agent, {CARDS} cards, {PROCESSES} processes, {c['pace']:.2f} samples/s of {c['sample_kib']:.0f} KiB, {options.seconds:.0f} s")
    for name, (rss, pss) in c["memory"].items():
        print(f"  {name}: {rss:.1f} MiB resident, {pss:.1f} MiB its share")
    met = c["cpu_pct"] <= CPU_PCT and c["resident_mib"] <= RSS_MIB and c["pace"] >= PACE
    print(f"  CPU {c['cpu_pct']:.2f} % of a core (at most {CPU_PCT}), besides {c['fake_pct']:.2f} % of the library's own; "
          f"memory {c['resident_mib']:.1f} MiB (at most {RSS_MIB:.0f}): {'met' if met else 'NOT met'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
