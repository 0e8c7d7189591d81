"""A controller that dies, repeats itself or comes too late, as seen by the agent: docs/wire.md, protocol.md 3 and 4."""
import secrets

import pytest

from bed import Bed, wait_for
from wire import Client


@pytest.fixture
def bed():
    with Bed() as bed:
        # A run of one job brings the agent up and ends; the agent stays for a while.
        bed.add("opener", "gpus=0", 0, 0.01, 0)
        bed.write_lines()
        bed.restart_until_done(30)
        yield bed


def launch(bed, root_id, card, attempt=1, token=None, name="wire"):
    job = {"job": 1, "attempt": attempt, "token": token or secrets.token_hex(16),
           "cards": [{"uuid": card, "declared_mib": 2048}],
           "policy": {"margin_mib": 512, "idle_threshold_mib": 200, "spike_buffer": 0.1, "high_water": True,
                      "exclusive": False, "max_jobs_per_card": 0},
           "argv": ["/bin/sh", "-c", f"sh {bed.dir}/job.sh {name} 0 0.2 4"], "env": [], "cwd": "/",
           "output": str(bed.dir / f"{name}.log"), "timeout_ms": 0, "grace_ms": 1000, "umask": 63}
    env = [f"{k}={v}" for k, v in bed.env.items()]
    return {"op": "launch", "root_id": root_id, "env": env, "jobs": [job]}


def card_of(client):
    client.send(op="sample", id=1)
    sample = client.until("sample")
    return (sample.get("snap") or sample)["cards"][0]["uuid"]


def rows(bed, name="wire"):
    return [row for row in bed.judged() if row[1] == name]


@pytest.mark.parametrize("part", [0.02, 0.5, 0.98])
def test_half_a_launch_starts_nothing(bed, part):
    queue = secrets.token_hex(16)
    with Client(bed.root) as client:
        root_id = client.hello("half", queue, [1, 1, 1])["root_id"]
        frame = client.frame(launch(bed, root_id, card_of(client)))
        client.socket.sendall(frame[:int(len(frame) * part)])
    with Client(bed.root) as client:
        client.hello("next", queue, [1, 2, 1])
        client.send(op="observe", id=1, want=[[1, 1]])
        assert client.until("observed")["claims"] == []
    assert rows(bed) == []


def test_a_launch_whose_answer_was_lost_starts_once_however_often_it_is_sent(bed):
    queue, token = secrets.token_hex(16), secrets.token_hex(16)
    message = None
    for epoch in (1, 2, 3):
        with Client(bed.root) as client:
            hello = client.hello("again", queue, [1, epoch, 1])
            message = message or launch(bed, hello["root_id"], card_of(client), token=token)
            client.send(**message)
            client.send(**message)
            if epoch > 1:
                client.until("claimed", "started", "ended")
    wait_for(lambda: len(rows(bed)) == 2, 10, lambda: f"the job's two lines: {rows(bed)}")
    with Client(bed.root) as client:
        client.hello("last", queue, [1, 9, 1])
        client.send(op="observe", id=1)
        wait_for(lambda: not bed.shims(), 10, "the shim is still there")
        client.send(op="observe", id=2)
        client.until("observed")
        claims = client.until("observed")["claims"]
        assert [(c["state"], c["end"]["code"]) for c in claims] == [("ended", 4)]
        client.send(op="ack", jobs=[[1, 1]])
        wait_for(lambda: not list((bed.root / "claims").glob("*/1.1/state")), 10, "it has not been retired")
        # Retired is not forgotten: the same launch, much later, starts nothing.
        client.send(**message)
        assert client.until("ended", "refused", "conflict")["op"] == "ended"
    assert [row[0] for row in rows(bed)] == ["start", "end"]


def test_another_token_under_the_same_name_is_a_conflict(bed):
    queue = secrets.token_hex(16)
    with Client(bed.root) as client:
        root_id = client.hello("one", queue, [1, 1, 1])["root_id"]
        card = card_of(client)
        client.send(**launch(bed, root_id, card))
        client.until("claimed")
        client.send(**launch(bed, root_id, card, name="twin"))
        assert client.until("conflict", "claimed")["op"] == "conflict"
        wait_for(lambda: len(rows(bed)) == 2, 10, "the first has not run")
    assert rows(bed, "twin") == []


def test_an_older_controller_starts_nothing_once_a_newer_one_was_answered(bed):
    queue = secrets.token_hex(16)
    with Client(bed.root) as old, Client(bed.root) as new:
        root_id = old.hello("old", queue, [1, 1, 1])["root_id"]
        message = launch(bed, root_id, card_of(old), name="stale")
        assert new.hello("new", queue, [1, 2, 1])["op"] == "hello"
        try:
            old.send(**message)
            old.until("stale")
        except (ConnectionError, OSError):
            pass
        new.send(op="observe", id=1, want=[[1, 1]])
        assert new.until("observed")["claims"] == []
        with Client(bed.root) as late:
            assert late.hello("late", queue, [1, 1, 7])["op"] == "stale"
    assert rows(bed, "stale") == []


def test_another_root_id_starts_nothing(bed):
    with Client(bed.root) as client:
        client.hello("elsewhere", secrets.token_hex(16), [1, 1, 1])
        client.send(**launch(bed, secrets.token_hex(16), card_of(client), name="elsewhere"))
        assert client.until("other-root", "claimed", "refused")["op"] == "other-root"
    assert rows(bed, "elsewhere") == []


def test_the_same_job_twice_in_one_message_is_claimed_only_once_it_is_there():
    with Bed() as bed:
        bed.add("opener", "gpus=0", 0, 0.01, 0)
        bed.write_lines()
        # The opener's claim is the first that passes; the next one fails, and the twin behind it must not be told of it.
        bed.restart_until_done(30, GPUSTOW_FAULT="claim.before-sync:enospc#2")
        with Client(bed.root) as client:
            message = launch(bed, client.hello("twice", secrets.token_hex(16), [1, 1, 1])["root_id"], "")
            message["jobs"][0]["cards"] = []
            message["jobs"] *= 3
            client.send(**message)
            said = [client.until("claimed", "refused")["op"] for _ in range(3)]
            assert said == ["refused", "claimed", "claimed"]
            client.until("ended")
        assert [row[0] for row in rows(bed)] == ["start", "end"]
