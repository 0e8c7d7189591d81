"""Lanes with a real agent: handed out whole, started with no client alive, changed by request, one admission for all."""
import copy
import json
import os
import signal
import time
from pathlib import Path

import pytest
from harness import MARK, note, program, until, wait_for
from queue_bed import Queue

LANE = "local:0"


class Lanes(Queue):
    """A queue whose jobs are submitted by gpustow itself, since lanes are its business."""

    def put(self, command, *more, lane=LANE, vram=1000, tick=False, code=0):
        own = {k: self.world.env[k] for k in ("W", "PATH", MARK)}
        own.update({k: v for k, v in self.world.env.items() if k.endswith("SAN_OPTIONS")})
        words = [f"--env={k}={v}" for k, v in own.items()] + (["--lane", lane] if lane else [])
        words += [] if vram is None else ["--vram", vram]
        r = self.world.ask("job", "submit", "--json", *words, *([] if tick else ["--no-tick"]), *more, "--", command, code=code)
        got = json.loads(r.out)
        return got if code else got["job"]["id"]

    def ask(self, *args, code=0):
        return json.loads(self.world.ask("queue", *args, "--json", code=code).out)

    def lane(self, *args, lane=LANE, code=0):
        return self.ask("lane", lane, *args, code=code)

    def view(self, lane=LANE):
        return self.lane("--no-tick", lane=lane)

    def queued(self, lane=LANE):
        return [j["id"] for j in self.view(lane)["queued"]]

    def state(self, job):
        return self.job(job)["state"]

    def runs(self, *jobs):
        self.tick_until(lambda: all(self.state(j) == "running" for j in jobs))


@pytest.fixture
def queue(world):
    q = Lanes(world)
    q.tick()
    return q


@pytest.fixture
def frozen(world):
    """Takes the agent off the line: it answers nobody, and what runs goes on. Who waits for it for long replaces it: that fails,
    too, until it's on the line again."""
    stopped = []

    def freeze():
        world.env["GPUSTOW_AGENT"] = "/bin/false"
        stopped.extend(world.agents())
        world.signal(stopped, signal.SIGSTOP)
        return thaw

    def thaw():
        world.env.pop("GPUSTOW_AGENT", None)
        world.signal(stopped, signal.SIGCONT)
        stopped.clear()
    yield freeze
    thaw()


# --- in order, with nobody there ---

def test_w20_lane_goes_on_in_its_order_with_no_client_alive(world, queue):
    jobs = [queue.put(note(f"job{i}", "sleep 0.1")) for i in range(6)]
    queue.lane("move", jobs[4], "--to", "head")
    queue.lane("swap", jobs[0], jobs[1])
    t = queue.tick()
    assert t["errors"] == [], t
    until(lambda: len(world.judge()) == 6)
    assert world.judge() == ["job4", "job1", "job0", "job2", "job3", "job5"]
    queue.ends(*jobs)
    assert [queue.job(j)["attempt"] for j in jobs] == [1] * 6
    assert all(queue.events(j).count("job_started") == 1 and queue.events(j).count("job_finished") == 1 for j in jobs)
    assert all(queue.attempts(j)[0]["run_dir"] == str(queue.dir(j)) for j in jobs)


def test_lanes_are_made_for_each_card_and_told_in_the_status(world, queue):
    assert [x["name"] for x in queue.ask("lanes", "--no-tick")["lanes"]] == ["local:0", "local:1"]
    job = queue.put(wait_for("go"))
    waits = queue.put("true")
    queue.runs(job)
    before = queue.attempts(waits), queue.rows("SELECT generation, acked_generation FROM lanes ORDER BY name")
    queue.tick()
    # What its node has is left alone.
    assert (queue.attempts(waits), queue.rows("SELECT generation, acked_generation FROM lanes ORDER BY name")) == before
    s = json.loads(world.ask("queue", "status", "--no-tick", "--json").out)
    lane = s["lanes"][0]
    assert list(lane)[:15] == ["name", "node", "gpu_ids", "paused", "concurrency", "runner", "runner_up", "runner_state",
                               "runner_seen_at", "created_at", "updated_at", "stopped", "generation", "acked_generation", "request"]
    assert (lane["name"], lane["gpu_ids"], lane["runner_up"], lane["node_state"], lane["blocked"]) == (LANE, [0], True, "up", None)
    assert [j["id"] for j in lane["running"]] == [job] and [j["id"] for j in lane["queued"]] == [waits]
    text = world.ask("queue", "status", "--no-tick").out
    assert "LANES" in text and f"{LANE}" in text
    table = world.ask("queue", "lanes", "--no-tick").out.splitlines()
    assert table[0].split() == ["LANE", "STATE", "RUNNER", "RUN", "QUEUED", "NOW", "NEXT", "BLOCKED"]
    assert table[1].split()[:5] == [LANE, "open", "up", "1", "1"]
    why = json.loads(world.ask("job", "why", str(waits), "--no-tick", "--json").out)
    assert f"place 1 in lane {LANE}, behind {job} (running)" in json.dumps(why)
    (world.dir / "go").touch()
    queue.ends(job, waits)


def test_concurrency_and_a_lane_of_two_cards(world, queue):
    jobs = [queue.put(wait_for("go"), lane="local:0,1") for _ in range(3)]
    queue.lane("concurrency", "2", lane="local:0,1")
    queue.runs(*jobs[:2])
    assert sorted(g for j in queue.view("local:0,1")["running"] for g in j["gpu_ids"]) == [0, 1]
    assert queue.state(jobs[2]) == "pending"
    (world.dir / "go").touch()
    queue.ends(*jobs)


# --- by number ---

def test_w02_drained_node_and_card_start_nothing_of_a_lane(world, queue):
    first, second = queue.put(wait_for("go")), queue.put(note("second"))
    queue.runs(first)
    queue.ask("drain", "local")
    queue.tick()
    (world.dir / "go").touch()
    queue.ends(first)
    queue.tick()
    assert queue.state(second) == "pending" and world.judge() == []
    assert queue.view()["blocked"] == "local: drained" and queue.view()["runner_state"]["paused"] is True
    # Handed out or not: what comes now isn't started either.
    third = queue.put(note("third"), tick=True)
    assert queue.state(third) == "pending"
    world.ask("queue", "card", "drain", LANE)
    queue.ask("resume", "local")
    queue.tick()
    assert "out of service" in queue.view()["blocked"] and world.judge() == []
    world.ask("queue", "card", "resume", LANE)
    queue.ends(second, third)
    assert world.judge() == ["second", "third"]


@pytest.mark.parametrize("setting, said", [("max_jobs_per_gpu: 1", "limit is 1"), ("headroom_mb: 4000", "24000 MiB are needed")])
def test_w02_limits_of_a_card_hold_for_its_lane(world, setting, said):
    """Its node starts the next one by itself, and asks itself what a pass would ask."""
    queue = Lanes(world, sim="1", settings=(setting,))
    queue.tick()
    pool = queue.put(wait_for("go"), lane=None)
    queue.runs(pool)
    lane = queue.put(note("lane"), vram=20000, tick=True)
    until(lambda: queue.tick() and said in (queue.view()["blocked"] or ""), why=lambda: str(queue.view()))
    assert queue.state(lane) == "pending" and world.judge() == []
    (world.dir / "go").touch()
    queue.ends(pool, lane)
    assert world.judge() == ["lane"]


def test_w19_pool_leaves_what_a_lanes_next_one_needs(world):
    queue = Lanes(world, sim="1")
    queue.tick()
    small, large = queue.put(wait_for("go"), vram=10000), queue.put(note("large"), vram=20000)
    queue.runs(small)
    pool = queue.put(note("pool"), lane=None, vram=5000)
    # Neither started nor refused: the plan knows what the lane holds.
    assert [queue.tick()["errors"] for _ in range(2)] == [[], []]
    assert queue.state(pool) == "pending"  # 24576 - 20000 - 512 is less
    fits = queue.put(wait_for("go"), lane=None, vram=4000)
    queue.runs(fits)
    (world.dir / "go").touch()
    queue.ends(small, large, pool, fits)
    assert set(world.judge()) == {"large", "pool"}


def test_w19_lane_waits_for_what_the_pool_holds(world):
    queue = Lanes(world, sim="1")
    queue.tick()
    pool = queue.put(wait_for("go"), lane=None, vram=20000)
    queue.runs(pool)
    lane = queue.put(note("lane"), vram=20000, tick=True)
    queue.tick()
    assert queue.state(lane) == "pending"
    until(lambda: queue.tick() and "20512 MiB are needed" in (queue.view()["blocked"] or ""), why=lambda: str(queue.view()))
    (world.dir / "go").touch()
    queue.ends(pool, lane)


class Second(Lanes):
    """Another queue of the same user, on the same machine."""

    def __init__(self, first):
        self.world = copy.copy(first.world)
        self.home = self.world.dir / "home" / "second"
        self.world.env = {**first.world.env, "GPUSTOW_HOME": str(self.home)}
        self.home.mkdir()
        self.path = self.home / "queue.db"
        (self.home / "config.yml").write_text((first.home / "config.yml").read_text())


def test_w19_plan_leaves_what_another_queues_lane_was_promised(world, queue):
    """By room alone card 0 is the better fit for the other queue's job; its lane's next one needs it all."""
    go = [queue.put(wait_for("go"), vram=13000), queue.put(wait_for("go"), lane="local:1", vram=12000)]
    queue.runs(*go)
    large = queue.put(note("large"), vram=20000, tick=True)
    second = Second(queue)
    second.tick()
    job = second.put("echo $CUDA_VISIBLE_DEVICES >$W/where; " + note("beside") + "; " + wait_for("go"), lane=None, vram=6000)
    second.runs(job)
    until(lambda: (world.dir / "where").exists() and (world.dir / "where").read_text() == "1\n")
    # One that card 0 alone would have room for isn't tried there: the plan says who keeps it.
    big = second.put(note("big"), lane=None, vram=9000)
    seen = [second.tick() for _ in range(2)]
    assert [t["errors"] + t["dispatched"] for t in seen] == [[], []]
    assert second.state(big) == "pending" and second.job(big)["last_error"] is None, second.job(big)
    why = json.loads(world.ask("job", "why", str(big), "--no-tick", "--json", env=second.world.env).out)
    assert why["best"] == {"node": "local", "gpu": "1", "free_mib": 24576 - 12000 - 6000 - 512}, why
    # Its own lane on that card waits behind the older hold, and nothing is given twice.
    behind = second.put(note("behind"), vram=9000, tick=True)
    second.tick()
    assert second.state(behind) == "pending" and world.judge() == ["beside"]
    (world.dir / "go").touch()
    queue.ends(*go, large)
    second.ends(job, big, behind)
    assert sorted(world.judge()) == ["behind", "beside", "big", "large"]


def set_limits(queue, **settings):
    path = queue.home / "config.yml"
    kept = [line for line in path.read_text().splitlines() if line.strip().split(":")[0] not in settings]
    path.write_text("\n".join([*kept, *(f"  {k}: {v}" for k, v in settings.items())]) + "\n")


def generation(queue, lane=LANE):
    return queue.rows("SELECT generation, acked_generation FROM lanes WHERE name = ?", lane)[0]


def test_w02_limits_that_change_count_for_what_was_handed_out(world):
    queue = Lanes(world, sim="1")
    queue.tick()
    first, second = queue.put(wait_for("go"), vram=1000), queue.put(note("second"), vram=9000)
    queue.runs(first)
    before = generation(queue)
    # A tick under the same values says nothing new.
    queue.tick()
    assert generation(queue) == before
    set_limits(queue, headroom_mb=20000)
    queue.tick()
    assert generation(queue)["acked_generation"] > before["acked_generation"]
    (world.dir / "go").touch()
    queue.ends(first)
    until(lambda: queue.tick() and "29000 MiB are needed" in (queue.view()["blocked"] or ""), why=lambda: str(queue.view()))
    assert queue.state(second) == "pending" and world.judge() == []
    set_limits(queue, headroom_mb=512)
    queue.ends(second)
    # Places on the card, while the pool's job has one.
    pool = queue.put(wait_for("go2"), lane=None)
    queue.runs(pool)
    set_limits(queue, max_jobs_per_gpu=1)
    third = queue.put(note("third"), tick=True)
    until(lambda: queue.tick() and "the limit is 1" in (queue.view()["blocked"] or ""), why=lambda: str(queue.view()))
    set_limits(queue, max_jobs_per_gpu=2)
    queue.ends(third)
    assert queue.state(pool) == "running" and world.judge() == ["second", "third"]
    (world.dir / "go2").touch()
    queue.ends(pool)
    assert [queue.job(j)["attempt"] for j in (second, third)] == [1, 1]


def test_default_memory_and_grace_that_change_count_for_what_was_handed_out(world):
    """Only what nobody said of the job itself; and a pass that finds all as it was hands nothing out anew."""
    queue = Lanes(world, sim="1", settings=("default_vram: 2000", "kill_grace: 11"))
    queue.tick()
    first = queue.put(wait_for("go"), vram=500)
    plain, said = queue.put(note("plain"), vram=None), queue.put(note("said"), "--grace", "7", vram=3000)
    queue.runs(first)

    def handed():
        return [(promised_to(queue, j), queue.attempts(j)[0]["token"]) for j in (plain, said)]

    def promised():
        return [mib for mib, _ in handed()]
    before = handed(), generation(queue)
    assert promised() == [2000, 3000]
    queue.tick()
    assert (handed(), generation(queue)) == before
    set_limits(queue, default_vram=4000)
    queue.tick()
    assert promised() == [4000, 3000] and queue.job(plain)["vram_mib"] == 4000
    for default, mib in (("auto", -1), (0, 0), (24000, 24000), (5000, 5000)):
        set_limits(queue, default_vram=default)
        queue.tick()
        assert promised() == [mib, 3000], default
        before = handed(), generation(queue)
        queue.tick()
        assert (handed(), generation(queue)) == before, default
    # The grace is told to the node; a job's own stays.
    set_limits(queue, kill_grace=13)
    queue.tick()
    assert handed()[0] != before[0][0] and promised() == [5000, 3000]
    until(lambda: queue.tick() and [grace_of(world, j) for j in (plain, said)] == [13000, 7000], 10,
          why=lambda: str([grace_of(world, j) for j in (plain, said)]))
    before = handed(), generation(queue)
    queue.tick()
    assert (handed(), generation(queue)) == before
    (world.dir / "go").touch()
    queue.ends(first, plain, said)
    assert world.judge() == ["plain", "said"] and [queue.job(j)["attempt"] for j in (plain, said)] == [1, 1]


@pytest.mark.parametrize("ends_with", ["", "/"])
def test_another_job_root_counts_for_what_was_handed_out(world, queue, ends_with):
    """The message of a node that can't make a directory names this way out."""
    first = queue.put(wait_for("go"))
    queue.runs(first)
    (world.dir / "jobs").rename(world.dir / "was")
    (world.dir / "jobs").write_text("no directory")
    a, b = queue.put(note("a"), tick=True), queue.put(note("b"), tick=True)
    (world.dir / "go").touch()
    until(lambda: queue.tick() and "let job_root name another place" in (queue.view()["blocked"] or ""), 20, why=lambda: str(queue.view()))
    set_limits(queue, job_root=f"{world.dir}/elsewhere{ends_with}")
    queue.ends(first, a, b)
    assert world.judge() == ["a", "b"] and queue.attempts(a)[0]["run_dir"].startswith(f"{world.dir}/elsewhere/")
    # Nothing of it is told twice.
    waits = [queue.put(wait_for("go2")), queue.put("true")]
    queue.runs(waits[0])
    before = queue.attempts(waits[1]), generation(queue)
    queue.tick()
    assert (queue.attempts(waits[1]), generation(queue)) == before
    (world.dir / "go2").touch()
    queue.ends(*waits)


def promised_to(queue, job):
    return json.loads(queue.attempts(job)[0]["cards"])[0]["mib"]


def grace_of(world, job):
    """As the node has it in its lane's file."""
    for path in [Path(top) / f for top, _, files in os.walk(world.dir / "agent") for f in files if Path(top).name == "lanes"]:
        for line in path.read_bytes().split(b"\n"):
            try:
                spec = json.loads(line)["spec"]
            except (ValueError, KeyError, TypeError):
                continue
            if spec["job"] == job:
                return spec["grace_ms"]
    return None


def test_job_that_is_next_in_its_lane_is_edited(world, queue):
    """Its node has it, and lets go of it: other memory and other prerequisites, in the place that it had."""
    first = queue.put(wait_for("go"))
    a, b = queue.put(note("a")), queue.put(note("b"))
    queue.runs(first)
    assert queue.job(a)["is_bound"] == 1
    said = world.ask("job", "submit", "--lane", LANE, "--vram", "1000", "--", "true").out
    assert said == f"job {b + 1} submitted: place 3 in lane {LANE}, behind {first} (running), {a}, {b}; handed to local\n"
    world.ask("job", "cancel", b + 1)
    r = json.loads(world.ask("job", "edit", a, "--vram", "3000", "--json").out)
    assert (r["job"]["vram_mb"], r["request"]) == (3000, False)
    assert promised_to(queue, a) == 3000 and queue.queued() == [a, b]
    # One that waits for a job of another place goes out, and those behind it wait with it.
    other = queue.put(wait_for("go2"), lane=None)
    queue.runs(other)
    world.ask("job", "edit", a, "--add-after", other)
    (world.dir / "go").touch()
    queue.ends(first)
    queue.tick()
    assert queue.queued() == [a, b] and world.judge() == []
    (world.dir / "go2").touch()
    queue.ends(other, a, b)
    assert world.judge() == ["a", "b"] and [queue.job(j)["attempt"] for j in (a, b)] == [1, 1]
    # Before its node has heard of it it's a request, and is called one.
    last = [queue.put(wait_for("go3")), queue.put(note("c"))]
    queue.runs(last[0])
    r = json.loads(world.ask("job", "edit", last[1], "--vram", "4000", "--no-tick", "--json").out)
    assert r["request"] is True
    said = world.ask("job", "edit", last[1], "--vram", "5000", "--no-tick").out
    assert said == f"job {last[1]} changed; it's pending; a request until local has acknowledged it\n"
    # One of the pool that is on its way is left alone, as before; so is what runs.
    assert "it's running" in world.ask("job", "edit", last[0], "--vram", "5000", code=1).err
    (world.dir / "go3").touch()
    queue.ends(*last)
    assert queue.job(last[1])["vram_mib"] == 5000


def test_w21_lane_job_that_nobody_saw_end_runs_once(world, queue):
    world.agent_may_die = world.may_leave = True
    job, after = queue.put(note("once", "sleep 300")), queue.put(note("after"))
    queue.tick()
    until(lambda: world.judge() == ["once"])
    world.power_off()
    queue.ends(job, after)
    assert (queue.state(job), queue.job(job)["cause"], queue.state(after)) == ("lost", "vanished", "completed")
    assert world.judge() == ["once", "after"] and [a["kind"] for a in queue.alerts()] == ["job_lost"]


def test_w22_stopped_runner_goes_on_when_it_is_told(world, queue):
    first, second = queue.put(wait_for("go")), queue.put(note("second"))
    queue.runs(first)
    r = queue.lane("runner", "stop", "--hard")
    assert (r["stopped"], r["hard"], r["lane"], r["request"]) == (True, True, LANE, True)
    queue.tick()
    queue.tick()
    assert queue.state(first) == "running"
    (world.dir / "go").touch()
    queue.ends(first)
    queue.tick()
    assert queue.state(second) == "pending" and "runner is stopped" in queue.view()["blocked"]
    assert queue.lane("runner", "restart")["tick"]["ran"]
    queue.ends(second)


def test_w23_runner_is_up_only_while_it_was_seen_alive(world, queue):
    jobs = [queue.put(wait_for("go")), queue.put("true")]
    queue.runs(jobs[0])
    r = queue.lane("runner")
    assert list(r)[:6] == ["lane", "enabled", "up", "seen", "state", "blocked"] and r["up"] is True
    for pid in world.agents():
        os.kill(pid, signal.SIGKILL)
    queue.tick(code=None, env={"GPUSTOW_AGENT": "/bin/false"})  # a stopped one would be replaced
    r = queue.lane("runner", "status", "--no-tick", code=1)
    assert r["up"] is False and r["enabled"] is True and r["blocked"]
    (world.dir / "go").touch()
    queue.ends(*jobs)
    queue.lane("runner", "off")
    assert queue.lane("runner", "--no-tick")["enabled"] is False


def test_w24_limit_of_a_lane_job_is_a_timeout(world, queue):
    job = queue.put("trap '' TERM; echo up >> $W/judge; while :; do sleep 0.05; done", "--timeout", "1", "--grace", "1")
    after = queue.put(note("after"))
    queue.tick()
    until(lambda: world.judge() == ["up", "after"])  # with no pass in between
    queue.ends(job, after)
    assert (queue.state(job), queue.job(job)["cause"]) == ("timeout", "timeout")
    assert [a["kind"] for a in queue.alerts()] == ["job_timeout"]


def test_w25_cancel_in_a_paused_lane_starts_nothing(world, queue):
    jobs = [queue.put(note(f"job{i}")) for i in range(3)]
    p = queue.lane("pause")
    assert p["lane"]["paused"] is True and p["tick"] == {}
    queue.tick()
    r = json.loads(world.ask("job", "cancel", str(jobs[1]), "--json").out)
    assert r["results"][0]["cancelled"] is True, r
    queue.tick()
    assert [queue.state(j) for j in jobs] == ["pending", "cancelled", "pending"] and world.judge() == []
    assert queue.view()["blocked"].startswith("paused")
    assert queue.lane("resume")["tick"]["ran"]
    queue.ends(*jobs)
    assert world.judge() == ["job0", "job2"]
    assert [k for k in queue.events() if k.startswith("lane_")] == ["lane_paused", "lane_resumed"]


def test_w26_job_gets_the_cards_that_it_asked_for(world, queue):
    cpu = queue.put('echo "[$CUDA_VISIBLE_DEVICES]" >> $W/judge', "--gpus", "0", vram=None)
    one = queue.put('echo "[$CUDA_VISIBLE_DEVICES]" >> $W/judge', lane="local:0,1")
    two = queue.put('echo "[$CUDA_VISIBLE_DEVICES]" >> $W/judge', "--gpus", "2", lane="local:0,1")
    queue.ends(cpu, one, two)
    assert sorted(world.judge()) == ["[0,1]", "[0]", "[]"]
    assert "more than lane local:0 has" in queue.put("true", "--gpus", "2", code=1)["error"]
    assert "GPU 1, which isn't lane local:0's" in queue.put("true", "--gpu", "1", code=1)["error"]
    other = queue.put(wait_for("go"), "--gpu", "1", "--node", "local", lane=None)
    assert "GPU 1, which isn't lane local:0's" in queue.lane("assign", other, code=1)["error"]
    assert queue.lane("assign", other, lane="local:0,1")["lane"] == "local:0,1"
    pool = queue.put(wait_for("go"), "--gpus", "2", lane=None)
    assert "asks for 2 GPUs, and lane local:0 has 1" in queue.lane("assign", pool, code=1)["error"]
    (world.dir / "go").touch()
    queue.ends(other, pool)


def test_w27_requeue_goes_to_the_end_and_begins_anew(world, queue):
    first = queue.put(note("first", "echo '{\"n\": 1}' > $GPUSTOW_RESULT_FILE; exit 3"))
    queue.ends(first)
    queue.lane("pause")
    others = [queue.put(note(f"other{i}")) for i in range(2)]
    world.ask("job", "requeue", str(first), "--no-tick")
    assert queue.queued() == [*others, first]
    j = queue.view()["queued"][2]
    assert (j["result"], j["attempt"], j["exit_code"]) == (None, 0, None)
    queue.lane("resume")
    queue.ends(first, *others)
    assert world.judge() == ["first", "other0", "other1", "first"]


def test_retry_goes_to_the_end_but_before_what_needs_it(world, queue):
    fails = queue.put(note("fails", "[ $GPUSTOW_ATTEMPT = 2 ]"), "--retries", "1", "--retry-on", "exit-code")
    other = queue.put(note("other"))
    needs = queue.put(note("needs"), "--after", str(fails))
    last = queue.put(note("last"))
    queue.ends(fails, other, needs, last)
    assert [w for w in world.judge() if w != "last"] == ["fails", "other", "fails", "needs"]


def test_w33_lane_is_found_exactly_and_its_card_must_be_there(world):
    queue = Lanes(world, sim="12")
    queue.tick()
    ten = queue.put("true", lane="local:10", tick=False)
    assert queue.view("local:1")["name"] == "local:1" and queue.queued("local:1") == [] and queue.queued("local:10") == [ten]
    for word, said in (("local:99", "has no GPU 99"), ("local:0,77", "has no GPU 77"), ("elsewhere:0", "no node 'elsewhere'"),
                       ("local", "is no lane")):
        assert said in queue.lane("--no-tick", lane=word, code=1)["error"]
        assert said in queue.put("true", lane=word, code=1)["error"]
    assert queue.view("loc:1,0")["name"] == "local:0,1"  # the node by a part of its name, the cards in their usual order
    queue.ends(ten)


def test_w34_job_of_another_lane_is_an_error(world, queue):
    mine, other, pool = queue.put("true"), queue.put("true", lane="local:1"), queue.put("true", lane=None)
    for words in (("move", other, "--to", "head"), ("swap", mine, other), ("assign", other, "--none")):
        assert "local:1" in queue.lane(*words, code=1)["error"]
    assert "in no lane" in queue.lane("move", pool, "--to", "head", code=1)["error"]
    # What the sentence recommends is what the parser takes.
    error = queue.lane("move", other, "--to", "head", code=1)["error"]
    words = error.split("`")[1].split()
    assert words[:3] == ["gpustow", "queue", "lane"]
    assert queue.ask(*words[2:], "--no-tick")["position"] == 2
    assert queue.queued() == [mine, other]


def test_w60_options_count_wherever_they_stand(world, queue):
    queue.lane("pause")
    jobs = [queue.put("true") for _ in range(2)]
    r = json.loads(world.ask("queue", "lane", LANE, "--json", "skip", "--no-tick").out)
    assert (r["skipped"], r["order"], r["lane"], r["tick"]) == (jobs[0], jobs[::-1], LANE, {"skipped": "disabled"})
    r = json.loads(world.ask("queue", "--json", "lane", LANE, "move", str(jobs[0]), "--to", "1").out)
    assert (r["ok"], r["id"], r["lane"], r["position"]) == (True, jobs[0], LANE, 1)
    for words in (("move", jobs[0]), ("move", jobs[0], "--to", "1", "--after", "2"), ("swap", "1"), ("dance",), ("pause", "--at", "1"),
                  ("runner", "fly"), ("skip", "--tick")):
        world.ask("queue", "lane", LANE, *map(str, words), code=2)


def test_what_changes_nothing_is_no_change(world, queue):
    """Neither swapped with itself nor put before itself; and a node without a name is none."""
    queue.lane("pause")
    a, b = queue.put("true"), queue.put("true")
    before = generation(queue)
    assert f"both are {a}" in queue.lane("swap", a, a, code=1)["error"]
    for where in ("--before", "--after"):
        assert "itself" in queue.lane("move", a, where, a, code=1)["error"]
    assert "no node ''" in queue.lane("--no-tick", lane=":0", code=1)["error"]
    assert generation(queue) == before and queue.queued() == [a, b]
    assert "LANE is missing" in world.ask("queue", "lane", code=2).err


# --- requests ---

def test_changes_while_the_node_is_away_are_requests_that_come_true(world, queue, frozen):
    jobs = [queue.put(wait_for("go"))] + [queue.put(note(f"job{i}")) for i in range(1, 5)]
    queue.runs(jobs[0])
    thaw = frozen()
    queue.tick()
    moved = queue.lane("move", jobs[4], "--to", "head")
    assert moved["request"] is True and moved["position"] == 1
    assert "a request until local has acknowledged it" in world.ask("queue", "lane", LANE, "move", str(jobs[4]), "--to", "1").out
    r = json.loads(world.ask("job", "cancel", str(jobs[2]), "--json", "--no-tick").out)["results"][0]
    assert (r["cancelled"], r["cancel_requested"]) == (False, True)
    assert "a request until its node has let go of it" in world.ask("job", "cancel", str(jobs[2]), "--no-tick").out
    a = queue.lane("assign", jobs[3], "--none", "--no-tick")
    assert (a["lane"], a["previous"], a["moved"], a["request"]) == (None, LANE, False, True)
    assert queue.job(jobs[3])["lane"] == LANE and queue.state(jobs[2]) == "pending"
    assert queue.view()["request"] is True
    thaw()
    queue.tick()
    assert queue.state(jobs[2]) == "cancelled" and queue.job(jobs[3])["lane"] is None
    assert queue.view()["request"] is False and queue.queued() == [jobs[4], jobs[1]]
    (world.dir / "go").touch()
    queue.ends(*jobs)
    assert [w for w in world.judge() if w != "job3"] == ["job4", "job1"] and "job2" not in world.judge()
    assert queue.events(jobs[3]).count("lane_assigned") == 1


def test_pause_while_the_node_is_away(world, queue, frozen):
    first, second = queue.put(wait_for("go")), queue.put(note("second"))
    queue.runs(first)
    thaw = frozen()
    p = queue.lane("pause")
    assert p["request"] is True
    thaw()
    queue.tick()
    assert queue.view()["request"] is False
    (world.dir / "go").touch()
    queue.ends(first)
    queue.tick()
    assert world.judge() == [] and queue.state(second) == "pending"
    queue.lane("resume")
    queue.ends(second)


def test_job_goes_to_another_lane_and_from_the_pool(world, queue):
    first, moved = queue.put(wait_for("go")), queue.put('echo "$CUDA_VISIBLE_DEVICES" >> $W/judge')
    queue.runs(first)
    r = queue.lane("assign", moved, lane="local:1")
    assert (r["lane"], r["previous"], r["position"], r["moved"]) == ("local:1", LANE, 1, True)
    queue.ends(moved)
    assert world.judge() == ["1"]
    pool = queue.put(note("pool"), "--after", str(first), lane=None)
    r = queue.lane("assign", pool, "--at", "head")
    assert (r["previous"], r["position"]) == (None, 1)
    assert queue.job(pool)["node_constraint"] == "local"
    (world.dir / "go").touch()
    until(lambda: "pool" in world.judge())
    queue.ends(first, pool)


# --- prerequisites ---

def test_local_prerequisites_are_met_on_the_node(world, queue):
    first = queue.put(note("first", wait_for("go")))
    second = queue.put(note("second"), "--after", str(first), lane="local:1")
    third = queue.put(note("third"), "--after", str(second))
    t = queue.tick()
    assert t["errors"] == [], t
    until(lambda: world.judge() == ["first"])
    assert [queue.job(j)["is_bound"] for j in (first, second, third)] == [1, 1, 1]
    (world.dir / "go").touch()
    until(lambda: len(world.judge()) == 3)  # with nobody there
    assert world.judge() == ["first", "second", "third"]
    queue.ends(first, second, third)


def test_failed_prerequisite_holds_and_does_not_stop_the_lane_for_good(world, queue):
    bad = queue.put(note("bad", "exit 1"), lane="local:1")
    needs = queue.put(note("needs"), "--after", str(bad))
    last = queue.put(note("last"))
    queue.ends(bad)
    queue.tick_until(lambda: queue.job(needs)["held_reason"])
    # A held head keeps the others back, and the view says so.
    queue.tick()
    assert world.judge() == ["bad"] and queue.view()["blocked"].startswith(f"job {needs} is held")
    assert queue.job(last)["is_bound"] == 0
    world.ask("job", "release", str(needs))
    queue.ends(needs, last)
    assert world.judge() == ["bad", "needs", "last"]


def test_what_waits_for_the_pool_is_the_last_that_is_told(world, queue):
    big = queue.put(wait_for("go"), lane=None, vram=100)
    held_up = queue.put(note("held_up"), "--after", str(big + 0))
    queue.runs(big)
    queue.ask("drain", "local")
    elsewhere = queue.put(note("elsewhere"), lane=None)  # it can't start now
    waits = queue.put(note("waits"), "--after", str(elsewhere))
    last = queue.put(note("last"))
    queue.ask("resume", "local")
    (world.dir / "go").touch()
    queue.ends(big, held_up, elsewhere, waits, last)
    order = world.judge()
    assert order.index("elsewhere") < order.index("waits") < order.index("last")


def test_unschedulable_head_is_failed_and_passed(world, queue):
    never = queue.put(note("never"), vram=90000)
    after = queue.put(note("after"))
    queue.ends(never, after)
    assert (queue.state(never), queue.job(never)["cause"], queue.state(after)) == ("failed", "unschedulable", "completed")


# --- without a runner ---

def test_without_a_runner_passes_start_the_jobs(world, queue):
    first, second, third = queue.put(wait_for("go")), queue.put(note("second")), queue.put(note("third"))
    queue.runs(first)
    assert queue.lane("runner", "off")["lane"]["runner"] is False
    queue.tick()
    assert [queue.job(j)["is_bound"] for j in (first, second, third)] == [1, 0, 0]
    (world.dir / "go").touch()
    until(lambda: not any(p for p in world.processes().values() if "sleep 0.05" in p))
    time.sleep(0.3)
    assert world.judge() == []
    queue.ends(second)
    assert queue.state(first) == "completed"
    queue.ends(third)
    assert world.judge() == ["second", "third"]
    queue.lane("runner", "on")
    again = queue.put(note("again"), tick=True)
    queue.ends(again)


# --- crashes ---

@pytest.mark.parametrize("point", ["queue.before-lane-bind", "queue.after-lane-bind", "queue.before-lane-ack"])
def test_controller_dies_while_it_hands_out_a_lane(world, queue, point):
    fault = {"GPUSTOW_FAULT": f"{point}:kill", "GPUSTOW_TEST_FAULT_DIR": str(world.dir / "faults")}
    (world.dir / "faults").mkdir()
    jobs = [queue.put(note(f"job{i}-$GPUSTOW_ATTEMPT")) for i in range(4)]

    def died():
        r = world.spawn(*tick_words(), env=fault)
        r.wait(None)
        return r.process.returncode == -signal.SIGKILL
    until(died, every=0.2)
    queue.ends(*jobs)
    assert world.judge() == [f"job{i}-1" for i in range(4)]
    assert [queue.events(j).count("job_started") for j in jobs] == [1] * 4


def test_refused_lane_is_told_at_once_with_its_nodes_reason(world):
    (world.dir / "faults").mkdir()
    queue = Lanes(world)
    queue.tick(env={"GPUSTOW_FAULT": "agent.before-lane-stored:enospc", "GPUSTOW_TEST_FAULT_DIR": str(world.dir / "faults")})
    job = queue.put(note("job"))
    errors = queue.tick()["errors"]
    assert any("its agent refused it" in e["error"] and "No space left" in e["error"] for e in errors), errors
    queue.ends(job)
    assert world.judge() == ["job"]


# --- under the daemon ---

@pytest.fixture
def daemon(world, queue):
    s = world.spawn(program(), "queue", "daemon", "--interval", "600")
    until(lambda: (queue.home / "queue.sock").exists() or s.process.poll() is not None, why=s.tell)
    yield s
    s.kill(signal.SIGTERM).wait(0)


def test_daemon_hands_out_a_lane_and_takes_its_changes(world, queue, daemon):
    queue.lane("pause")
    head = queue.put(wait_for("go"))
    jobs = [queue.put(note(f"job{i}"), tick=True) for i in range(4)]
    queue.lane("move", jobs[3], "--to", "head")
    queue.tick()
    assert queue.view()["request"] is False and queue.queued() == [jobs[3], head, *jobs[:3]]
    queue.lane("move", head, "--to", "head")
    queue.lane("resume")
    until(lambda: queue.state(head) == "running")
    # What its node has is left alone: one bind each.
    until(lambda: queue.view()["request"] is False and queue.queued() == [jobs[3], *jobs[:3]])
    waiting = [jobs[3], *jobs[:3]]
    before = [queue.attempts(j) for j in waiting], queue.rows("SELECT name, generation FROM lanes ORDER BY name")
    for _ in range(2):
        queue.tick()
        assert ([queue.attempts(j) for j in waiting], queue.rows("SELECT name, generation FROM lanes ORDER BY name")) == before
    world.ask("job", "cancel", str(jobs[1]))
    until(lambda: queue.state(jobs[1]) == "cancelled")
    (world.dir / "go").touch()
    # Nobody asks for a pass any more: the daemon hears of each start and end.
    until(lambda: all(queue.state(j) == "completed" for j in (head, jobs[3], jobs[0], jobs[2])),
          why=lambda: json.dumps([queue.jobs(), queue.view()]))
    assert world.judge() == ["job3", "job0", "job2"]
    assert [queue.job(j)["attempt"] for j in (head, jobs[3], jobs[0], jobs[2])] == [1] * 4
    assert all(queue.events(j).count("job_started") == 1 and queue.events(j).count("job_finished") == 1
               for j in (head, jobs[3], jobs[0], jobs[2]))
    assert all(queue.attempts(j)[0]["run_dir"] == str(queue.dir(j)) for j in (head, jobs[3], jobs[0], jobs[2]))
    assert queue.rows("SELECT epoch FROM lease")[0]["epoch"] == 2  # the fixture's tick, then the daemon's alone


def test_daemon_sends_large_bodies_ahead_of_a_lane(world, queue, daemon):
    queue.lane("pause")
    queue.ask("drain", "local")  # else the pool's turn comes before the lane has them
    own = [queue.submit("# " + "x" * 3000000 + "\n" + note(f"large{i}"), gpus=1, vram_mib=10) for i in range(3)]
    for j in own:
        queue.lane("assign", j, "--no-tick")
    queue.ask("resume", "local")
    queue.tick()
    until(lambda: queue.view()["request"] is False and queue.queued() == own)
    queue.lane("resume")
    until(lambda: all(queue.state(j) == "completed" for j in own), why=lambda: json.dumps([queue.jobs(), queue.view()]))
    assert world.judge() == [f"large{i}" for i in range(3)]
    assert [queue.job(j)["attempt"] for j in own] == [1] * 3


def test_frozen_node_holds_up_the_daemons_pass_for_a_second_at_most(world, queue, daemon, frozen):
    queue.lane("pause")
    jobs = [queue.put(note(f"job{i}")) for i in range(2)]
    queue.tick()
    thaw = frozen()
    queue.lane("resume", "--no-tick")
    queue.tick()
    assert [queue.state(j) for j in jobs] == ["pending"] * 2 and queue.view()["request"] is True
    thaw()
    until(lambda: all(queue.state(j) == "completed" for j in jobs))
    assert world.judge() == ["job0", "job1"]


def test_large_lane_and_large_bodies(world, queue):
    queue.lane("pause")
    own = queue.submit("# " + "x" * 200000 + "\n" + note("large"), gpus=1, vram_mib=10)  # too large for a message: sent ahead
    queue.lane("assign", own, "--no-tick")
    jobs = [queue.put(note(f"job{i}", "# " + "y" * 60000)) for i in range(20)]
    queue.tick()
    assert queue.view()["request"] is False and len(queue.view()["runner_state"]["queued"]) == 21
    queue.lane("resume")
    until(lambda: len(world.judge()) == 21)
    assert world.judge() == ["large"] + [f"job{i}" for i in range(20)]
    queue.ends(own, *jobs)


def tick_words():
    return program(), "queue", "tick", "--json"
