"""Nodes over real SSH (tests/lab): placed, refused, away, restarted, mistaken for each other."""
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from lab import Lab, missing, until  # noqa: E402

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")
HOSTS = ["key", "fish", "noagent"]
USUAL = HOSTS[:2]  # what a queue has when a test says nothing else
DB = "/root/.gpustow/queue.db"
READ = """
import json, sqlite3, sys
db = sqlite3.connect("file:%s?mode=ro" % sys.argv[1], uri=True, timeout=10)
db.row_factory = sqlite3.Row
print(json.dumps([dict(r) for r in db.execute(sys.argv[2])]))
"""


@pytest.fixture(scope="module")
def lab():
    made = Lab(HOSTS)
    yield made
    made.down()


class Queue:
    def __init__(self, lab, servers=(("key", "key"), ("fish", "fish")), settings=()):
        self.lab, self.settings = lab, settings
        for host in HOSTS:
            lab.bash(host, "pkill -KILL -f '[a]gent-|[g]pustow-agent'; pkill sleep; rm -rf /root/.gpustow /root/queue-test /tmp/*; true", check=False)
        lab.bash("ctl", "rm -rf /root/.gpustow/queue* /root/.gpustow/config.yml; mkdir -p /root/.gpustow; true")
        self.configure(servers)

    def configure(self, servers):
        lines = ["queue:", *(f"  {s}" for s in self.settings), "servers:"]
        for nickname, host in servers:
            lines += [f"  - nickname: {nickname}", f"    hostname: {host}"]
        self.lab.write("ctl", "/root/.gpustow/config.yml", "\n".join(lines) + "\n")

    def hand(self, *args, said=""):
        r = subprocess.run(self.lab.command("ctl", "env", *self.lab.env, "queue_hand", DB, *args), input=said,
                           capture_output=True, text=True, timeout=60, cwd="/")
        assert r.returncode == 0, r.stderr
        return r.stdout.split()

    def submit(self, command, **more):
        return int(self.hand("submit", said=json.dumps({"command": command, **more}))[0])

    def tick(self):
        out = self.lab.run("ctl", "env", *self.lab.env, "gpustow", "queue", "tick", "--json")
        return json.loads(out)

    def rows(self, sql):
        return json.loads(self.lab.run("ctl", "/usr/bin/python3", "-c", READ, DB, sql))

    def job(self, job):
        return self.rows(f"SELECT j.*, a.node FROM jobs j LEFT JOIN attempts a ON a.job = j.id AND a.attempt = j.attempt WHERE j.id = {job}")[0]

    def state(self, job):
        return self.job(job)["state"]

    def node(self, name):
        return self.rows(f"SELECT * FROM nodes WHERE name = '{name}'")[0]

    def events(self, *kinds):
        return [(r["kind"], r["node"]) for r in self.rows("SELECT kind, node FROM events ORDER BY id") if r["kind"] in kinds]

    def until(self, what, deadline=180):  # a silent node is asked less and less often
        seen = []

        def once():
            seen.append(self.tick())
            return what()
        until(once, deadline, lambda: json.dumps([seen[-3:], self.rows("SELECT id, state, last_error FROM jobs")])[:5000])
        return seen

    def up(self):
        """Agents have been brought to all nodes: what's timed later isn't that."""
        self.until(lambda: all(self.node(h)["state"] == "up" for h in USUAL))
        return self


def test_jobs_go_to_all_nodes_and_come_back(lab):
    q = Queue(lab)
    # `key` has two cards, `fish` one.
    jobs = [q.submit("sleep 0.5; hostname", gpus=1, vram_mib=100, exclusive=1) for _ in range(3)]
    q.until(lambda: all(q.state(j) == "completed" for j in jobs))
    assert sorted(q.job(j)["node"] for j in jobs) == ["fish", "key", "key"]
    for j in jobs:
        where = q.rows(f"SELECT run_dir, node FROM attempts WHERE job = {j}")[0]
        assert where["run_dir"].startswith("/root/.gpustow/jobs/")
        assert lab.bash(where["node"], f"cat {where['run_dir']}/stdout.log").strip() == where["node"]
    assert q.events("node_up") == [("node_up", "key"), ("node_up", "fish")]


def test_refusal_is_told_and_the_next_node_takes_the_job_in_the_same_pass(lab):
    q = Queue(lab).up()
    uuid = q.rows("SELECT value FROM meta WHERE key = 'queue'")[0]["value"]
    # Whichever has more room is tried first: it can't write the claim.
    first = "key"
    lab.bash(first, f"for r in /root/.gpustow/agent/*/; do mkdir -p $r/claims; rm -rf $r/claims/{uuid}; touch $r/claims/{uuid}; done")
    jobs = []

    def whole_pass():
        jobs.extend(q.submit("true", gpus=1, vram_mib=100) for _ in range(2))
        t = q.tick()
        return t if t["nodes_up"] == 2 else None  # else the machine is too busy for that
    t = until(whole_pass, 180)
    assert {d["node"] for d in t["dispatched"]} == {"fish"} and len(t["dispatched"]) >= 2, t
    assert any(e.get("node") == first and "refused it" in e["error"] for e in t["errors"]), t
    assert all(q.job(j)["attempt"] == 1 for j in jobs)  # what was refused has given its number back
    assert ("job_failed", first) in q.events("job_failed")
    q.until(lambda: all(q.state(j) == "completed" for j in jobs))


def test_node_that_is_away_costs_the_others_nothing_and_keeps_its_jobs(lab):
    q = Queue(lab, settings=("node_down_after: 2", "probe_timeout: 100")).up()
    there = q.submit("sleep 4; echo done", gpus=1, vram_mib=100, node="key")
    q.until(lambda: q.state(there) == "running")
    lab.wire("key", cut=1)
    try:
        begun = time.monotonic()
        here = q.submit("true", node="fish")
        t = q.tick()
        assert here in [d["id"] for d in t["dispatched"]] or q.node("fish")["state"] != "up"  # on a machine that's too busy
        assert time.monotonic() - begun < 50  # not probe_timeout, though the node was up a moment ago
        assert q.node("key")["state"] == "suspect" and ("node_down", "key") not in q.events("node_down")
        q.until(lambda: q.node("key")["state"] == "down" and q.state(here) == "completed")
        assert q.state(there) == "running"
        assert q.node("key")["inventory"] and "GPU-key-0" in q.node("key")["inventory"]
        for _ in range(3):
            q.tick()
        assert q.events("node_down").count(("node_down", "key")) == 1
        alerts = [a for a in q.rows("SELECT * FROM alerts") if a["kind"] == "node_down" and a["node"] == "key"]
        assert len(alerts) == 1 and "1 job of it can't be checked" in alerts[0]["title"]
        waits = q.submit("true", node="key")
        begun = time.monotonic()
        q.tick()
        assert time.monotonic() - begun < 50 and q.state(waits) == "pending"
    finally:
        lab.wire("key")
    q.until(lambda: q.state(there) == "completed" and q.state(waits) == "completed")
    assert q.events("node_up").count(("node_up", "key")) == 2
    assert q.job(there)["attempt"] == 1


def test_restarted_node_says_what_became_of_its_jobs(lab):
    q = Queue(lab, settings=("node_down_after: 1",)).up()
    once = q.submit("sleep 300", node="fish")
    again = q.submit("[ $GPUSTOW_ATTEMPT = 2 ] || sleep 300", node="fish", max_retries=1)
    q.until(lambda: q.state(once) == "running" and q.state(again) == "running")
    lab.sh("crash", "fish")
    q.tick()
    assert q.state(once) == "running"
    # Its disk is empty now, too: another root and another boot of the same machine.
    lab.sh("boot", "fish")
    q.until(lambda: q.state(once) == "lost" and q.state(again) == "completed")
    assert q.job(once)["cause"] == "node-rebooted" and "restarted" in q.job(once)["last_error"]
    assert q.job(again)["attempt"] == 2


def test_one_machine_under_two_names_is_refused(lab):
    q = Queue(lab, servers=(("one", "key"), ("two", "key"), ("fish", "fish")))
    job = q.submit("true", gpus=1, vram_mib=100)
    q.until(lambda: q.state(job) == "completed")
    assert q.job(job)["node"] == "fish"
    def is_told():
        t = q.tick()
        said = [e["error"] for e in t["errors"] if e.get("node") in ("one", "two")]
        return said and all("same account on the same machine" in s for s in said) and t["nodes_up"] == 1
    until(is_told)
    assert q.node("one")["state"] == q.node("two")["state"] == "refused"


def test_attempt_that_was_given_up_is_stopped_when_its_node_is_back(lab):
    q = Queue(lab, settings=("node_down_after: 1", "node_loss: requeue", "node_loss_after: 2")).up()
    lab.bash("key", "rm -f /root/ran")
    job = q.submit("hostname >> /root/ran; sleep 300", gpus=1, vram_mib=100, exclusive=1)
    q.until(lambda: q.state(job) == "running")
    first = q.job(job)["node"]
    other = "fish" if first == "key" else "key"
    lab.wire(first, cut=1)
    try:
        q.until(lambda: q.state(job) == "running" and q.job(job)["node"] == other)
        assert q.job(job)["attempt"] == 2
    finally:
        lab.wire(first)
    seen = q.until(lambda: q.events("job_reaped"))
    assert [r["job"] for t in seen for r in t.get("reaped", [])] == [job]
    assert lab.processes(first, "sleep 300") == [] and lab.processes(other, "sleep 300")
    q.hand("cancel", str(job))
    q.until(lambda: q.state(job) == "cancelled")


def test_moved_record_starts_nothing_before_all_nodes_were_asked(lab):
    q = Queue(lab, settings=("node_down_after: 1",)).up()
    lab.wire("key", cut=1)
    try:
        q.until(lambda: q.node("key")["state"] == "down")
        q.hand("adopt")
        job = q.submit("true", node="fish")
        t = q.tick()
        assert q.state(job) == "pending" and any("moved or put back" in e["error"] for e in t["errors"]), t
        q.hand("ignore", "key", "on")
        q.until(lambda: q.state(job) == "completed")
        q.hand("ignore", "key", "off")
    finally:
        lab.wire("key")




def test_node_that_can_only_be_looked_at(lab):
    q = Queue(lab, servers=(("noagent", "noagent"), ("fish", "fish")))
    job = q.submit("true", gpus=1, vram_mib=100)
    q.until(lambda: q.state(job) == "completed")
    assert q.job(job)["node"] == "fish"
    node = q.node("noagent")
    assert node["state"] == "text" and "GPU-noagent-0" in node["inventory"], node
    assert "exec" in node["last_error"] and ("node_down", "noagent") not in q.events("node_down")
    # Nothing goes there by name either, and that's said.
    job = q.submit("true", gpus=1, vram_mib=100, node="noagent")
    for _ in range(4):
        assert q.tick()["dispatched"] == []
    assert q.state(job) == "pending" and not q.job(job)["is_bound"] and q.job(job)["last_error"] is None
    assert "runs no agent" in lab.run("ctl", "env", *lab.env, "gpustow", "job", "why", job, "--no-tick")


def test_another_machine_under_the_name_gets_nothing_until_the_old_work_is_over(lab):
    q = Queue(lab).up()
    job = q.submit("sleep 300", gpus=1, vram_mib=100, node="key")
    q.until(lambda: q.state(job) == "running")
    before = q.node("key")
    q.configure([("key", "fish")])
    waits = q.submit("true", gpus=1, vram_mib=100)
    t = q.tick()
    assert any("another machine than before" in e["error"] for e in t["errors"]), t
    node = q.node("key")
    assert node["state"] == "refused" and node["machine_key"] == before["machine_key"]
    assert (q.state(job), q.state(waits)) == ("running", "pending")
    q.tick()
    assert q.events("node_down") == [("node_down", "key")]
    # A person gives it up; then the name is the new machine's.
    q.hand("cancel", str(job))
    q.until(lambda: q.state(waits) == "completed")
    assert (q.state(job), q.job(job)["cause"]) == ("lost", "node-lost")
    assert q.node("key")["machine_key"] != before["machine_key"]
    # The old one is back under its name: what was given up there is stopped.
    q.configure([("new", "fish"), ("key", "key")])
    q.until(lambda: q.events("job_reaped") == [("job_reaped", "key")])
    assert lab.processes("key", "sleep 300") == []


def test_link_that_is_lost_with_the_launch_on_its_way(lab):
    q = Queue(lab, settings=("node_down_after: 60",)).up()
    lab.bash("key", "rm -f /root/ran")
    job = q.submit("echo $GPUSTOW_ATTEMPT >> /root/ran", gpus=1, vram_mib=100, node="key")
    tick = subprocess.Popen(lab.command("ctl", "env", *lab.env, "GPUSTOW_FAULT=queue.after-bind:stop", "gpustow", "queue", "tick", "--json"),
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, cwd="/")
    try:
        until(lambda: q.job(job)["is_bound"])
        # nsenter stops with what it runs, and lets it go on with itself.
        until(lambda: Path(f"/proc/{tick.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T")
        lab.wire("key", cut=1)
        knock = "timeout 0.5 bash -c \"</dev/tcp/$(ssh -G key | sed -n 's/^hostname //p')/22\" && echo open"
        until(lambda: "open" not in lab.bash("ctl", knock, check=False))
        tick.send_signal(signal.SIGCONT)
        out = json.loads(tick.communicate(timeout=60)[0])
        assert any("start not confirmed" in e["error"] for e in out["errors"]), out
        q.tick()
        assert q.job(job)["is_bound"] and q.state(job) == "pending"
    finally:
        lab.wire("key")
        tick.kill()
    q.until(lambda: q.state(job) == "completed")
    assert lab.bash("key", "cat /root/ran").split() == ["1"] and q.job(job)["attempt"] == 1


def test_node_that_was_renamed_keeps_its_work(lab):
    q = Queue(lab).up()
    ends = q.submit("while [ ! -e /root/renamed ]; do sleep 0.1; done", gpus=1, vram_mib=100, node="key")
    stops = q.submit("sleep 300", gpus=1, vram_mib=100, node="key")
    q.until(lambda: q.state(ends) == "running" and q.state(stops) == "running")
    q.configure([("other", "key"), ("fish", "fish")])
    t = q.tick()
    assert t["errors"] == [] and t["nodes_up"] == 2, t
    q.hand("cancel", str(stops))
    lab.bash("key", "touch /root/renamed")
    q.until(lambda: q.state(ends) == "completed" and q.state(stops) == "cancelled")
    lab.bash("key", "rm /root/renamed")
    uuid = q.rows("SELECT value FROM meta WHERE key = 'queue'")[0]["value"]
    q.until(lambda: lab.bash("key", f"ls -d /root/.gpustow/agent/*/claims/{uuid}/* 2>/dev/null; true").strip() == "")
