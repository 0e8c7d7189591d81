"""Each weakness of nvidb's queue (W-nn) that takes hosts to be seen, over real SSH (tests/lab): see test_queue_weaknesses.py."""
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_queue_nodes import DB, Queue, lab  # noqa: F401

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from lab import missing, until  # noqa: E402

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")
NVML = "/etc/gpustow-fake-nvml"
COUNT = Path(__file__).with_name("counting_ssh.py").read_text()


@pytest.fixture(autouse=True)
def whole(request):
    """Wires and cards as they were, whatever a test made of them."""
    made = request.getfixturevalue("lab")
    cards = {h: made.run(h, "cat", NVML) for h in ("key", "fish")}
    yield
    for host in ("key", "fish", "noagent"):
        if (made.dir / host / "wire").read_text().split() != ["0", "0", "0", "0"]:
            made.wire(host)
    for host, text in cards.items():
        made.write(host, NVML, text)


def ask(lab, *words, env=(), code=0):
    r = subprocess.run(lab.command("ctl", "env", *lab.env, *env, "gpustow", *words), stdin=subprocess.DEVNULL, capture_output=True,
                       text=True, timeout=120, cwd="/")
    assert code is None or r.returncode == code, (words, r.returncode, r.stdout, r.stderr)
    return r.stdout + ("" if code == 0 else r.stderr)


def large_key(lab):
    lab.write("key", NVML, "cards 2\n" + "".join(f"card {i} uuid=GPU-key-{i} name=Large memory=81920 used=0\n" for i in range(2)))


# --- placement ---

def test_w01_nothing_fails_because_a_node_is_away(lab):
    large_key(lab)
    q = Queue(lab, settings=("node_down_after: 1",)).up()
    lab.wire("key", cut=1)
    job = q.submit("true", gpus=1, vram_mib=40000)
    small = q.submit("true", gpus=1, vram_mib=1000)
    q.until(lambda: q.node("key")["state"] == "down" and q.state(small) == "completed")
    for _ in range(5):
        q.tick()
    assert q.state(job) == "pending" and q.job(job)["last_error"] is None
    why = ask(lab, "job", "why", str(job), "--no-tick")
    assert "key" in why, why
    lab.wire("key")
    q.until(lambda: q.state(job) == "completed")
    assert q.job(job)["node"] == "key"


def test_w01_nothing_fails_because_a_driver_hiccups(lab):
    large_key(lab)
    q = Queue(lab).up()
    good = lab.run("key", "cat", NVML)
    lab.write("key", NVML, good + "err * 999\n")
    job = q.submit("true", gpus=1, vram_mib=40000)
    for _ in range(6):
        q.tick()
    assert q.state(job) == "pending" and q.job(job)["last_error"] is None
    lab.write("key", NVML, good)
    q.until(lambda: q.state(job) == "completed")


def test_w45_card_that_fell_off_takes_no_number_with_it(lab):
    """Cards are known by UUID: card 0 goes, the other one is 0 now, and each job is still charged where it is."""
    q = Queue(lab, servers=(("key", "key"),))
    q.until(lambda: q.node("key")["state"] == "up")
    mib = {q.submit("sleep 300", gpus=1, vram_mib=m): m for m in (23000, 20000)}
    q.until(lambda: all(q.state(j) == "running" for j in mib))
    cards = {json.loads(q.rows(f"SELECT cards FROM attempts WHERE job = {j}")[0]["cards"])[0]["uuid"]: j for j in mib}
    stays = cards["GPU-key-1"]
    lab.write("key", NVML, "cards 1\ncard 0 uuid=GPU-key-1 name=Left memory=24576 used=0\n")
    q.tick()
    waits = q.submit("true", gpus=1, vram_mib=5000)
    for _ in range(4):
        assert q.tick()["errors"] == []
    assert q.state(waits) == "pending" and all(q.state(j) == "running" for j in mib)
    shown = {g["uuid"]: g for g in json.loads(ask(lab, "queue", "nodes", "--json", "--tick"))["nodes"][0]["gpus"]}
    left, gone = shown["GPU-key-1"], shown["GPU-key-0"]
    assert (left["index"], left["reserved_mb"], left["present"]) == (0, mib[stays], True), shown
    assert (gone["present"], gone["placeable"], gone["reserved_mb"]) == (False, False, sum(mib.values()) - mib[stays]), shown
    # A number would name another card now, so the next job gets the UUID.
    q.hand("cancel", str(stays))
    last = q.submit("echo $CUDA_VISIBLE_DEVICES", gpus=1, vram_mib=100)
    q.until(lambda: q.state(last) == "completed")
    assert ask(lab, "job", "logs", str(last)).strip() == "GPU-key-1"
    for j in (*mib, waits):
        q.hand("cancel", str(j))
    q.until(lambda: all(q.state(j) in ("cancelled", "completed") for j in (*mib, waits)))


def test_w61_gpus_and_gpu_ids_both_say_which_cards(lab):
    for key in ("gpus", "gpu_ids"):
        q = Queue(lab, servers=(("key", "key"),))
        lab.write("ctl", "/root/.gpustow/config.yml", f"servers:\n  - nickname: key\n    hostname: key\n    {key}: [1]\n")
        jobs = [q.submit("true", gpus=1, vram_mib=100) for _ in range(2)]
        q.until(lambda: all(q.state(j) == "completed" for j in jobs))
        assert all("GPU-key-1" in r["cards"] for r in q.rows("SELECT cards FROM attempts")), key


def lane_job(lab, command):
    """In the lane key:0; it isn't handed out yet."""
    return json.loads(ask(lab, "job", "submit", "--json", "--no-tick", "--lane", "key:0", "--vram", "100M", "--", command))["job"]["id"]


@pytest.mark.parametrize("change, said", [("list", "not in the node's list of GPUs"), ("removal", "not in the configuration any more")])
def test_w02_lane_obeys_the_configuration(lab, change, said):
    """Its node has been handed the whole lane, and starts the next one by itself."""
    q = Queue(lab, servers=(("key", "key"),))
    q.until(lambda: q.node("key")["state"] == "up")
    lab.run("key", "rm", "-f", "/root/go", "/root/second")
    first, second = lane_job(lab, "while [ ! -e /root/go ]; do sleep 0.1; done"), lane_job(lab, "touch /root/second")
    q.until(lambda: q.state(first) == "running" and q.job(second)["is_bound"])
    if change == "list":
        lab.write("ctl", "/root/.gpustow/config.yml", "servers:\n  - nickname: key\n    hostname: key\n    gpus: [1]\n")
    else:
        q.configure([("fish", "fish")])
    q.tick()
    lab.run("key", "touch", "/root/go")
    q.until(lambda: q.state(first) == "completed")
    for _ in range(3):
        q.tick()
    assert q.state(second) == "pending" and lab.bash("key", "ls /root/second", check=False) == ""
    assert said in json.loads(ask(lab, "queue", "lane", "key:0", "--json", "--no-tick"))["blocked"]
    q.configure([("key", "key")])
    q.until(lambda: q.state(second) == "completed")


# --- what is known of a node ---

def test_w05_node_that_trickles_words_ends(lab):
    """Each read was answered in time, and the command never came to an end."""
    q = Queue(lab, settings=("probe_timeout: 10",)).up()
    lab.bash("ctl", "for s in /root/.gpustow/ssh/*; do [ -S $s ] && ssh -o ControlPath=$s -O exit x; done; true", check=False)
    lab.write("key", "/root/.bashrc", "while :; do echo words; sleep 0.2; done\n")
    try:
        job = q.submit("true", node="fish")
        q.until(lambda: q.state(job) == "completed")
        assert q.node("key")["state"] in ("suspect", "down")
    finally:
        lab.run("key", "rm", "/root/.bashrc")
    q.up()


def test_w31_what_becomes_of_jobs_on_a_lost_node_is_set(lab):
    """(The third policy, `requeue`, is test_queue_nodes.py's.)"""
    q = Queue(lab, settings=("node_down_after: 1", "node_loss: fail", "node_loss_after: 2")).up()
    job = q.submit("sleep 300", gpus=1, vram_mib=100, node="key")
    after = q.submit("true", after_any=[job])
    q.until(lambda: q.state(job) == "running")
    lab.wire("key", cut=1)
    q.until(lambda: q.state(job) == "lost" and q.state(after) == "completed")
    assert q.job(job)["cause"] == "node-lost"
    lab.wire("key")
    q.until(lambda: q.events("job_reaped"))
    assert lab.processes("key", "sleep 300") == []


def test_w32_one_look_that_failed_is_no_alarm(lab):
    q = Queue(lab, settings=("node_down_after: 600", "probe_timeout: 10")).up()
    known = q.node("key")["inventory"]
    for _ in range(2):
        lab.wire("key", cut=1)
        q.tick()
        assert q.node("key")["state"] == "suspect" and json.loads(q.node("key")["inventory"]).keys() == json.loads(known).keys()
        lab.wire("key")
        q.until(lambda: q.node("key")["state"] == "up")
    assert q.events("node_down") == [] and q.rows("SELECT * FROM alerts") == []
    assert q.events("node_up") == [("node_up", "key"), ("node_up", "fish")]


def test_w42_renamed_node_keeps_its_jobs(lab):
    q = Queue(lab).up()
    job = q.submit("while [ ! -e /root/go ]; do sleep 0.1; done; rm /root/go", gpus=1, vram_mib=100, node="key")
    q.until(lambda: q.state(job) == "running")
    q.configure([("big", "key"), ("fish", "fish")])
    lab.run("key", "touch", "/root/go")
    q.until(lambda: q.state(job) == "completed")
    assert q.job(job)["attempt"] == 1


def test_w55_unknown_host_key_is_not_accepted(lab):
    q = Queue(lab, servers=(("key", "key"),))
    lab.bash("ctl", "for s in /root/.gpustow/ssh/*; do [ -S $s ] && ssh -o ControlPath=$s -O exit x; done; mv /root/.ssh/known_hosts /root/kh; true",
             check=False)
    try:
        job = q.submit("true", gpus=1, vram_mib=100)
        for _ in range(2):
            t = q.tick()
        said = q.node("key")["last_error"]
        assert q.state(job) == "pending" and "host key" in said, (said, t)
        assert "10.99" not in lab.bash("ctl", "cat /root/.ssh/known_hosts /root/.gpustow/known_hosts 2>/dev/null; true")
    finally:
        lab.bash("ctl", "mv /root/kh /root/.ssh/known_hosts")
    q.until(lambda: q.state(job) == "completed")


def test_w44_node_needs_a_posix_shell_and_nothing_else(lab):
    tools = "bash base64 ps tail grep egrep pkill setsid python3 nohup flock stat tee awk sed"
    lab.run("fish", "sh", "-c", f"pkill -KILL agent-; for t in {tools}; do [ ! -e /usr/bin/$t ] || mv /usr/bin/$t /usr/bin/$t.away; done")
    try:
        q = Queue(lab, servers=(("fish", "fish"),))
        lab.run("fish", "sh", "-c", "rm -rf /root/.cache/gpustow")
        job = q.submit("echo $0; echo out; exit 3", gpus=1, vram_mib=100)
        nap = q.submit("sleep 300 & wait", gpus=1, vram_mib=100)
        q.until(lambda: q.state(job) == "failed" and q.state(nap) == "running")
        assert q.job(job)["exit_code"] == 3 and "out" in ask(lab, "job", "logs", str(job))
        q.hand("cancel", str(nap))
        q.until(lambda: q.state(nap) == "cancelled")
    finally:
        lab.run("fish", "sh", "-c", f"for t in {tools}; do [ ! -e /usr/bin/$t.away ] || mv /usr/bin/$t.away /usr/bin/$t; done")
    assert lab.processes("fish", "sleep 300") == []


def test_w41_cancel_on_a_node_that_is_away_is_told_as_a_wish(lab):
    q = Queue(lab, settings=("node_down_after: 600", "probe_timeout: 10")).up()
    job = q.submit("sleep 300", gpus=1, vram_mib=100, node="key")
    q.until(lambda: q.state(job) == "running")
    assert "it runs on key" in ask(lab, "job", "why", str(job))
    lab.wire("key", cut=1)
    q.tick()
    assert "key is suspect" in ask(lab, "job", "why", str(job), "--no-tick")
    said = ask(lab, "job", "cancel", str(job))
    assert "when its node answers" in said and "key is suspect" in said and q.state(job) == "running", said
    lab.wire("key")
    q.until(lambda: q.state(job) == "cancelled")


# --- cost ---

def test_w10_dead_nodes_cost_the_others_nothing(lab):
    """The same two nodes, with ten dead ones beside them and without, in turn."""
    q = Queue(lab).up()
    lab.wire("noagent", cut=1)
    dead = "".join(f"  - nickname: dead{i}\n    hostname: noagent\n    port: {1000 + i}\n" for i in range(10))
    config = lab.run("ctl", "cat", "/root/.gpustow/config.yml")
    lab.run("ctl", "mkdir", "-p", "/root/dead")
    lab.write("ctl", "/root/dead/config.yml", config.replace("servers:\n", "  node_down_after: 1\nservers:\n") + dead)
    with_dead = ("GPUSTOW_HOME=/root/dead",)

    def tick(env=()):
        return json.loads(ask(lab, "queue", "tick", "--json", env=env))

    def cost(env):
        """(time, CPU of it and its children) of a pass."""
        begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        tick(env)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.monotonic() - begun, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    until(lambda: (lambda t: t["nodes_up"] == 2 and t["nodes_down"] == 10)(tick(with_dead)))
    until(lambda: not [n for n in json.loads(ask(lab, "queue", "nodes", "--json", "--no-tick", env=with_dead))["nodes"] if n["state"] == "suspect"] or not tick(with_dead))
    alone, beside = [], []
    for i in range(9):
        for env in ((), with_dead) if i % 2 else (with_dead, ()):
            (beside if env else alone).append(cost(env))
    # The best of each: what the machine does besides only adds. The sanitizers make the little that's done for each cost more;
    # and who waits for a dead one does so for one and a half seconds.
    (wall, cpu), (wall_beside, cpu_beside) = (map(min, zip(*costs)) for costs in (alone, beside))
    assert cpu_beside < 2.5 * cpu and wall_beside < 1.5 * wall + 0.7, (alone, beside)


def test_w10_a_slow_handshake_comes_back_too(lab):
    """A node that was down is asked seldom and waited for shortly, but not so shortly each time that it's never heard."""
    q = Queue(lab, settings=("node_down_after: 1", "probe_timeout: 10")).up()
    lab.wire("key", cut=1)
    q.until(lambda: q.node("key")["state"] == "down")
    lab.bash("ctl", "pkill -x ssh; true")
    lab.wire("key", delay_ms=200)
    q.until(lambda: q.node("key")["state"] == "up", deadline=90)
    lab.wire("key")


class Count:
    """What the passes of a queue send and get, counted on the way."""

    def __init__(self, lab):
        self.lab = lab
        lab.bash("ctl", "rm -rf /root/count; mkdir -p /root/count/out")
        lab.write("ctl", "/root/count/ssh", COUNT)
        lab.run("ctl", "chmod", "755", "/root/count/ssh")
        self.env = ("COUNT_DIR=/root/count/out", "COUNT_HOSTS=key fish", f"PATH=/root/count:/usr/sbin:/usr/bin:/sbin:/bin")

    def tick(self, host="key"):
        self.lab.bash("ctl", "rm -f /root/count/out/*")
        self.last = json.loads(ask(self.lab, "queue", "tick", "--json", env=self.env))
        text = self.lab.bash("ctl", "for f in /root/count/out/*; do cat $f; echo; done")
        found = [f for f in map(json.loads, text.splitlines()) if f["host"] == host]
        assert found, text
        return {k: sum(f[k] for f in found) for k in ("sent", "got", "turns")}


def test_w12_a_pass_is_a_few_turns_whatever_ended(lab):
    """nvidb: one turn more for each that ended, two for each that failed, one for each launch."""
    q = Queue(lab, servers=(("key", "key"),), settings=("max_cpu_jobs_per_node: 20",))
    q.until(lambda: q.node("key")["state"] == "up")
    c = Count(lab)
    idle = c.tick()

    def measured(n):
        lab.run("key", "rm", "-f", "/root/go")
        jobs = [q.submit("while [ ! -e /root/go ]; do sleep 0.1; done; echo some words; exit 1") for _ in range(n)]
        q.until(lambda: all(q.state(j) == "running" for j in jobs))
        lab.run("key", "touch", "/root/go")
        until(lambda: lab.processes("key", "run.sh") == [])
        jobs += [q.submit("true") for _ in range(n)]
        turns = c.tick()["turns"]
        if any("in time" in e["error"] for e in c.last["errors"]):  # on a machine that's too busy: that's no whole pass
            q.until(lambda: all(q.state(j) in ("completed", "failed") for j in jobs))
            return None
        assert len(c.last["finished"]) >= n and len(c.last["dispatched"]) == n, c.last
        return turns
    turns = [until(lambda: measured(n), 300) for n in (1, 9)]
    assert turns[1] <= turns[0] + 3 and turns[1] <= idle["turns"] + 6, (idle, turns)


def test_w13_nothing_is_brought_that_is_there(lab):
    q = Queue(lab, servers=(("key", "key"),))
    c = Count(lab)
    lab.bash("key", "rm -rf /root/.cache/gpustow /var/tmp/gpustow-* /tmp/gpustow-*")
    cold = c.tick()
    q.until(lambda: q.node("key")["state"] == "up")
    warm = c.tick()
    assert cold["sent"] > 30_000 and warm["sent"] < 4_000, (cold, warm)


def test_w14_processes_without_a_card_are_not_told(lab):
    q = Queue(lab, servers=(("key", "key"),))
    q.until(lambda: q.node("key")["state"] == "up")
    c = Count(lab)
    few = min(c.tick()["got"] for _ in range(2))
    lab.bash("key", "for i in $(seq 300); do sleep 300 </dev/null >/dev/null 2>&1 & done")
    try:
        lots = c.tick()["got"]
        assert lots < few + 2_000, (few, lots)
    finally:
        lab.bash("key", "pkill sleep; true", check=False)


def test_w58_secrets_are_in_nobodys_arguments(lab):
    """Neither here nor on the node, while it's brought, started and run."""
    q = Queue(lab, servers=(("key", "key"),))
    secret = "hunter22222222"
    q.submit(f": {secret}; sleep 1; : {secret}", env={"TOKEN": secret})
    seen = []

    def has_started():
        tick = subprocess.Popen(lab.command("ctl", "env", *lab.env, "gpustow", "queue", "tick"), stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
        while tick.poll() is None or lab.processes("key", "run.sh"):
            seen.extend(lab.processes("ctl", secret) + lab.processes("key", secret))
        return tick.returncode == 0 and q.state(1) in ("running", "completed")
    until(has_started, 180)
    assert seen == []
    q.until(lambda: q.state(1) == "completed")
    bad = lab.bash("key", "find /root/.gpustow /root/.cache/gpustow -perm /077 ! -type l")
    assert bad == "", bad


def test_followed_log_is_whole_whatever_happens_to_the_link(lab, tmp_path):
    """`job logs -f` while the job writes: its connections killed twice, then the wire cut until that's noticed. Not a byte is
    lost, none comes twice, and the end is told of."""
    q = Queue(lab, servers=(("key", "key"),))
    q.until(lambda: q.node("key")["state"] == "up")
    pieces, lines = 400, 400
    job = q.submit(f"for i in $(seq {pieces}); do seq -f \"line %.0f\" $((i * {lines})) $((i * {lines} + {lines - 1})); "
                   "printf '\\377\\000\\r'; [ -e /tmp/quick ] || sleep 0.1; done", gpus=0)
    want = b"".join("".join(f"line {n}\n" for n in range(i * lines, (i + 1) * lines)).encode() + b"\xff\0\r" for i in range(1, pieces + 1))
    q.until(lambda: q.state(job) == "running")
    out = tmp_path / "out"
    with open(out, "wb") as to, open(tmp_path / "err", "wb") as err:
        f = subprocess.Popen(lab.command("ctl", "env", *lab.env, "gpustow", "job", "logs", "-f", job, "-n", "1000000"),
                             stdin=subprocess.DEVNULL, stdout=to, stderr=err, cwd="/")

    def told():
        return (tmp_path / "err").read_text(errors="replace").count("the connection was lost")

    def tell():
        return f"{out.stat().st_size} of {len(want)} bytes, {f.poll()}, {(tmp_path / 'err').read_text(errors='replace')[-2000:]}"

    def has_more():
        before = out.stat().st_size
        until(lambda: out.stat().st_size > before, 120, tell)
    try:
        for n in (1, 2):
            has_more()
            lab.bash("ctl", "pkill -KILL -x ssh; true", check=False)
            until(lambda: told() == n, why=tell)
        has_more()
        lab.wire("key", cut=1)
        until(lambda: told() == 3, 120, tell)
        before = out.stat().st_size
        lab.bash("key", "touch /tmp/quick")
        lab.wire("key")
        until(lambda: out.stat().st_size > before, 120, tell)
        assert f.wait(180) == 0, tell()
    finally:
        lab.wire("key")
        if f.poll() is None:
            lab.bash("ctl", "pkill -KILL -f 'job logs'; true", check=False)
            f.wait(20)
    got = out.read_bytes()
    at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
    assert got == want, f"{len(got)} bytes instead of {len(want)}, the first difference at {at}: {got[at:at + 60]} for {want[at:at + 60]}"
    said = (tmp_path / "err").read_text()
    assert told() == 3 and f"job {job} has ended: completed" in said and "left out" not in said, said
