"""
`gpustow --once --remote` over eight hosts of the lab (tests/lab: namespaces, real sshd's, fake cards), beside eight parallel
`ssh host true` over the same warm connections and a loop of `ssh host nvidia-smi`. Called by run.py; needs root.
"""
import json
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "lab"))

HOSTS = ["key", "jump", "inner", "fish", "csh", "noexec", "rohome", "noisy"]
DEAD = ["noagent", "nogpu"]
TIMEOUT = 3

# Runs on the client of the lab: everything that's compared is timed there, in turn, in one process.
ON_CLIENT = r"""
import glob, json, subprocess, sys, time
hosts, rounds, timeout = json.loads(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
quiet = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

def timed(what):
    began = time.monotonic()
    what()
    return time.monotonic() - began

def once(check=True):
    got = subprocess.run(["gpustow", "--once", "--remote", "--json", "--timeout", timeout], stdin=subprocess.DEVNULL, capture_output=True)
    if check and got.returncode:
        sys.exit(got.stderr.decode())
    return json.loads(got.stdout)

def true():
    config = glob.glob("/root/.gpustow/ssh/config-*") + glob.glob("/root/.gpustow*/ssh/config-*")
    running = [subprocess.Popen(["ssh", "-F", config[0], "-l", "root", h, "true"], **quiet) for h in hosts]
    if any([p.wait() for p in running]):
        sys.exit("ssh failed")

def smi():
    for h in hosts:
        subprocess.run(["ssh", h, "nvidia-smi"], **quiet)

def masters():
    out = subprocess.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '", shell=True, capture_output=True).stdout
    return out.count(b"[mux]")

answer = {"cold": timed(lambda: once(rounds > 0)), "once": [], "true": [], "smi": []}
answer["masters"] = [masters()]
for _ in range(rounds):
    answer["true"].append(timed(true))
    answer["once"].append(timed(once))
for _ in range(min(rounds, 2)):
    answer["smi"].append(timed(smi))
answer["masters"].append(masters())
answer["failed"] = [e["host"] for e in once(False)["errors"]]
print(json.dumps(answer))
"""


def configure(lab, hosts):
    lines = "".join(f"  - hostname: {h}\n    username: root\n    nickname: {h}\n" for h in hosts)
    lab.bash("ctl", "mkdir -p ~/.gpustow && umask 077 && cat > ~/.gpustow/config.yml <<'END'\nservers:\n" + lines + "END")


def on_client(lab, hosts, rounds, timeout):
    text = subprocess.run(lab.command("ctl", "env", *lab.env, "/usr/bin/python3", "-c", ON_CLIENT, json.dumps(hosts), rounds, timeout),
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd="/", timeout=600)
    if text.returncode:
        sys.exit(f"bench: on the lab's client: {text.stderr[-2000:]}")
    return json.loads(text.stdout)


def measure(build, told, at_most, report):
    import os
    os.environ["GPUSTOW_BUILD"] = str(build)
    from lab import Lab, missing
    if missing():
        print(f"hosts: not measured: {missing()}")
        return
    lab = Lab(HOSTS + DEAD)
    try:
        for h in HOSTS:
            lab.bash(h, "printf '#!/bin/sh\\necho GPU 0\\n' > /usr/bin/nvidia-smi; chmod 755 /usr/bin/nvidia-smi", check=False)
        configure(lab, HOSTS)
        got = on_client(lab, HOSTS, 15, 30)
        once, true, smi = (statistics.median(got[k]) for k in ("once", "true", "smi"))
        told("8 hosts: gpustow --once --remote, first contact", got["cold"], " s")
        told("8 hosts: gpustow --once --remote, warm", once, " s", f"[{min(got['once']):.3g} to {max(got['once']):.3g}]")
        told("8 hosts: eight parallel ssh host true, warm", true, " s", f"[{min(got['true']):.3g} to {max(got['true']):.3g}]")
        told("8 hosts: a loop of ssh host nvidia-smi (a script), cold", smi, " s")
        at_most("8 hosts: times eight parallel ssh host true", once / true, 1.2)
        report("8 hosts: connections made by later calls", got["masters"][1] - got["masters"][0], 0,
               0 < got["masters"][0] == got["masters"][1], note=f"{got['masters'][0]} masters")
        for h in DEAD:
            lab.wire(h, cut=1)
        configure(lab, HOSTS + DEAD)
        got = on_client(lab, HOSTS, 0, TIMEOUT)
        # Reading the fleet, printing it and the program's own start are not the hosts' fault.
        at_most("8 hosts and 2 dead ones: over --timeout", max(0, got["cold"] - TIMEOUT), 0.25, " s",
                f"{got['cold']:.2f} s; failed: {', '.join(got['failed'])}")
    finally:
        lab.down()
