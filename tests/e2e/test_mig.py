"""MIG instances as what jobs are placed on; XIDs and the node's own amounts in the samples that placing goes by."""
import json
import os
import signal
import socket
import struct

from harness import is_alive, note, read_text, simjob, until, wait_for
from test_nvml import Cards, needs_host_pids

CUT = "1x80G/mig:2x20G"


def each_waits_for_the_other(a, b):
    """A job that leaves its card's name, and goes on only when the other has begun."""
    return note("$CUDA_VISIBLE_DEVICES $GPUSTOW_JOB_GPUS", f"touch $W/{a}; {wait_for(b)}")


def cards_of(world):
    return {c["uuid"]: c for c in world.ask_json("run", "status", "--json")["cards"]}


def test_two_jobs_on_two_instances_at_once(world):
    """They'd not fit on one together, and the card that was cut takes neither, though it has 80 GiB."""
    world.jobs("[vram=15G] " + each_waits_for_the_other("a", "b"), "[vram=15G] " + each_waits_for_the_other("b", "a"),
               "[vram=30G] " + note("never"))
    r = world.finish(sim=CUT, code=1)
    assert "discovered GPUs: [0:1, 0:2]" in r.out
    assert "job 1 started on gpu [0:1]" in r.out and "job 2 started on gpu [0:2]" in r.out
    got = sorted(line.split() for line in world.judge())
    assert len(got) == 2 and all(uuid.startswith("MIG-") for uuid, _ in got) and got[0][0] != got[1][0]
    assert {gpus for _, gpus in got} == {"0:1", "0:2"}
    assert "job 3 INFEASIBLE" in r.out
    bound = [b for b in world.events("bind")]
    assert [b["gpus"] for b in bound] == [[0], [0]] and {b["uuids"][0] for b in bound} == {uuid for uuid, _ in got}


def test_memory_on_an_instance_is_measured_and_charged_there(world):
    world.jobs("[vram=15G] " + simjob("15G", 60), "[vram=4G] " + note("$GPUSTOW_JOB_GPUS", wait_for("go")), "[vram=8G] true")
    r = world.run(sim=CUT)
    for said in ("job 3 finished .OK.", r"job 2 started on gpu \[0:1\]", r"job 3 started on gpu \[0:2\]"):
        r.sees(said)
    cards = until(lambda: (c := cards_of(world)) and any(x["own_mib"] == 15360 for x in c.values()) and c)
    by_instance = {c["gpu_instance"]: c for c in cards.values()}
    assert by_instance[1]["own_mib"] == 15360 and by_instance[1]["jobs"] == 2 and by_instance[2]["own_mib"] == 0
    assert by_instance[None]["is_usable"] is False and by_instance[None]["used_mib"] == 15360
    world.ask("run", "cancel", "1")
    (world.dir / "go").touch()
    r.wait(None)


def test_numbers_mean_whole_cards(world):
    world.jobs("[vram=1G gpu=0:2] " + note("$GPUSTOW_JOB_GPUS"), "[vram=1G gpu=1] " + note("$GPUSTOW_JOB_GPUS"),
               "[vram=1G gpus=2] " + note("two"), "[vram=1G gpu=0] " + note("cut"))
    r = world.finish(sim=CUT + ",2x24G", code=1)
    assert sorted(world.judge()) == ["0:2", "1", "two"]
    assert "job 3 started on gpu [1,2]" in r.out
    assert "job 4 INFEASIBLE" in r.out and "cut into MIG instances; name one of these, as gpu=0:1" in r.out


def test_once_shows_instances_below_their_card(world):
    doc = world.ask_json("--sim", CUT, "--once", "--json")
    [card] = doc["hosts"][0]["cards"]
    assert [i["gpu_instance"] for i in card["instances"]] == [1, 2]
    text = world.ask("--sim", CUT, "--once").out
    assert "1 GPU " in text and text.count("MIG 1g.20gb") == 2
    got = world.ask("wait", "--sim", CUT, "--free", "15G", "--timeout", "20").out.split()
    assert got == [card["instances"][0]["uuid"]]


@needs_host_pids
def test_nvml_two_jobs_on_two_instances(world):
    """The same through the driver's library: CUDA's word for an instance is its UUID."""
    Cards(world, "cards 2", 'card 0 name="NVIDIA H100" memory=81920 mig=1', "instance 0 0", "instance 0 4",
          'card 1 name="NVIDIA A100" memory=40960 used=40000', "proc 0 pid=1 used=3000 gi=5")
    hold = simjob("6G", 1.5)
    world.jobs(f"[vram=8G] {each_waits_for_the_other('a', 'b')}; {hold}", f"[vram=6400] {each_waits_for_the_other('b', 'a')}; {hold}")
    r = world.finish(sim=None)
    assert "discovered GPUs: [1, 0:1, 0:5]" in r.out
    # An instance has 10 GiB, and a stranger holds 3 of the second one's.
    assert "job 1 started on gpu [0:1]" in r.out and "job 2 started on gpu [0:5]" in r.out
    assert sorted(world.judge()) == ["MIG-fa4e0000-0000-0000-0000-000000000000 0:1", "MIG-fa4e0000-0000-0000-0000-000000000004 0:5"]
    assert r.out.count("6144 MiB") == 2


class Agent:
    """A client of this world's agent that asks it what the queue asks it."""

    def __init__(self, world):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        [path] = world.in_roots("agent.lock")
        # Its path is longer than an address may be.
        directory = os.open(path.parent, os.O_PATH)
        self.socket.connect(f"/proc/self/fd/{directory}/agent.sock")
        os.close(directory)
        self.data = b""
        self.send(op="hello", protocol=1, build=1, who="test")

    def send(self, **message):
        body = json.dumps(message).encode()
        self.socket.sendall(struct.pack(">I", len(body) + 1) + b"J" + body)

    def receive(self):
        while len(self.data) < 4 or len(self.data) < 4 + struct.unpack(">I", self.data[:4])[0]:
            self.data += self.socket.recv(1 << 16) or self.fail()
        n = struct.unpack(">I", self.data[:4])[0]
        body, self.data = self.data[5:4 + n], self.data[4 + n:]
        return json.loads(body)

    @staticmethod
    def fail():
        raise AssertionError("the agent closed the link")

    def sample(self):
        self.send(op="sample", id=7)
        while (m := self.receive())["op"] != "sample" or m.get("id") != 7:
            pass
        return m


def test_xids_resets_and_amounts_in_a_plain_sample(world):
    world.jobs("[vram=1G] " + wait_for("go"))
    r = world.run(sim="1x24G," + CUT)
    r.sees("job 1 started")
    agent = Agent(world)
    s = agent.sample()
    assert "details" not in s and not any("xid" in c or "reset" in c for c in s["cards"])
    assert [c.get("parent", "") for c in s["cards"]] == ["", "", s["cards"][1]["uuid"], s["cards"][1]["uuid"]]
    assert s["cards"][1]["is_mig_parent"] is True and [c.get("gi") for c in s["cards"]] == [None, None, 1, 2]
    node = s["node"]
    assert node["cores"] >= 1 and 0 < node["mem_available_mib"] <= node["mem_total_mib"]
    assert node["host_name"] == socket.gethostname() and node["oom_kills"] >= -1
    (world.sim / "ills.1").write_text("31\n79\nreset\n")
    s = until(lambda: (x := agent.sample()) and "xid" in x["cards"][1] and x)
    assert "xid" not in s["cards"][0]
    for c in s["cards"][1:]:
        assert (c["xid"]["last"], c["xid"]["count"], c["reset"]) == (79, 2, "needed")
        assert 0 < c["xid"]["boot_ms"] <= s["ended_boot_ms"]
    # The sampler that saw them is gone with a driver that hangs; the agent remembers.
    (world.sim / "ills.1").unlink()
    [sampler] = [p for p in world.processes() if read_text(f"/proc/{p}/comm") == "gpustow-sampler\n"]
    os.kill(sampler, signal.SIGKILL)
    until(lambda: not is_alive(sampler))
    s = agent.sample()
    assert (s["cards"][1]["xid"]["last"], s["cards"][1]["xid"]["count"]) == (79, 2) and "reset" not in s["cards"][1]
    (world.dir / "go").touch()
    r.wait()
