"""`gpustow wait`: when it ends, with what, and what doesn't count as free."""
import json
import time

from harness import program


def start(world, *args, sim="2", **more):
    return world.spawn(program(), "wait", "--sim", sim, "--interval", "0.1", *args, **more)


def test_a_free_card_is_named_at_once(world):
    r = start(world, "--free", "20G")
    r.wait(0)
    assert r.out == "0\n"
    doc = world.ask_json("wait", "--sim", "2", "--count", "2", "--json")
    assert doc["ok"] and doc["host"] == "local" and [c["index"] for c in doc["cards"]] == [0, 1]
    assert doc["cards"][0]["free_mib"] == 24576


def test_it_waits_until_the_memory_is_given_back(world):
    f = [world.foreign({0: 20000}), world.foreign({1: 20000})]
    r = start(world, "--free", "10G")
    time.sleep(1)
    assert r.process.poll() is None
    f[1].end()
    r.wait(0)
    assert r.out == "1\n"


def test_a_break_begins_the_time_anew(world):
    f = world.foreign({0: 0})
    begun = time.monotonic()
    r = start(world, "--free", "10G", "--for", "3", sim="1")
    time.sleep(1.5)
    f.set({0: 20000})
    time.sleep(1)
    f.set({0: 0})
    r.wait(0)
    assert time.monotonic() - begun > 1.5 + 1 + 2.5


def test_what_is_promised_to_our_own_jobs_is_not_free(world):
    world.jobs("[vram=20G] while [ ! -e $W/go ]; do sleep 0.05; done")
    run = world.run(sim="1")
    run.sees("started")
    assert world.ask("wait", "--sim", "1", "--free", "10G", "--timeout", "1", code=3).out == ""
    assert world.ask("wait", "--sim", "1", "--idle", "--timeout", "1", code=3).out == ""
    assert world.ask("wait", "--sim", "1", "--free", "3G").out == "0\n"
    (world.dir / "go").touch()
    run.wait(0)


def test_time_is_over_with_its_own_code(world):
    world.foreign({0: 20000})
    begun = time.monotonic()
    r = world.ask("wait", "--sim", "1", "--idle", "--timeout", "1.5", code=3)
    assert 1.4 < time.monotonic() - begun < 10 and "not within 1.5 s" in r.err
    assert json.loads(world.ask("wait", "--sim", "1", "--idle", "--timeout", "0.5", "--json", code=3).out)["ok"] is False


def test_exactly_these_cards_or_some_of_them(world):
    world.foreign({1: 20000})
    assert world.ask("wait", "--sim", "4", "--gpu", "0,2").out == "0,2\n"
    world.ask("wait", "--sim", "4", "--gpu", "0,1", "--timeout", "0.5", code=3)
    assert world.ask("wait", "--sim", "4", "--gpu", "2-of:0,1,3").out == "0,3\n"
    world.ask("wait", "--sim", "4", "--gpu", "4-of", "--timeout", "0.5", code=3)


def test_a_doubt_is_told_and_waited_for(world):
    r = world.ask("wait", "--sim", "1", "--free", "40G", "--timeout", "5", code=3)
    assert "only 0 of the cards have 40.0 GiB at all" in r.err


def test_mistakes(world):
    for args in (["--gpu", "x"], ["--gpu", "0,1", "--count", "3"], ["--free", "lots"], ["--for", "-1"], ["--gpu", "0-of"],
                 ["--gpu", "2-of", "--count", "3"], ["--host", "nobody"]):
        assert world.ask("wait", "--sim", "1", *args, code=None).process.returncode in (1, 2), args
