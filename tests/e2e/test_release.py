"""`gpustow release`: the driver is let go of while the command runs, and only then."""
import os
import re
import signal

from harness import BUILD, is_alive, program, until

HOLD = "touch $W/runs; while [ ! -e $W/go ]; do sleep 0.05; done"
FAKE = BUILD / "tests" / "fake" / "libnvidia-ml.so.1"


def holders(world):
    """Processes of this world that have the driver's library mapped."""
    found = []
    for pid in world.processes():
        try:
            maps = open(f"/proc/{pid}/maps").read()
        except OSError:
            continue
        if "libnvidia-ml" in maps:
            found.append(pid)
    return found


def driver(world):
    (world.dir / "scenario").write_text("cards 2\n")
    return {"GPUSTOW_NVML_PATH": str(FAKE), "GPUSTOW_FAKE_NVML": str(world.dir / "scenario")}


def test_nobody_holds_the_driver_while_the_command_runs(world):
    env = driver(world)
    world.ask("--once", env=env)
    assert holders(world)
    r = world.spawn(program(), "release", "--", "sh", "-c", "touch $W/runs; while [ ! -e $W/go ]; do sleep 0.05; done; exit 7", env=env)
    until(lambda: (world.dir / "runs").exists(), why=r.tell)
    assert not holders(world)
    # Who looks meanwhile hears why, and opens nothing.
    look = world.ask("--once", env=env, code=None)
    assert "gpustow release" in look.out + look.err and not holders(world), look.tell()
    (world.dir / "go").touch()
    r.wait(7)
    world.ask("--once", env=env)
    assert holders(world)


def test_exit_codes_are_passed_through(world):
    for script, code in (("exit 0", 0), ("exit 99", 99), ("kill -KILL $$", 137)):
        world.ask("release", "--sim", "1", "--", "sh", "-c", script, code=code)
    world.ask("release", "--sim", "1", "--", "/nonexistent/program", code=127)
    assert world.ask("release", "--sim", "1", "--", "sh", "-c", "echo $1", "x", "--force").out == "--force\n"
    world.ask("release", "--sim", "1", code=2)


def test_jobs_on_cards_are_named_unless_forced(world):
    world.jobs("[vram=1G] while [ ! -e $W/go ]; do sleep 0.05; done")
    run = world.run(sim="1")
    run.sees("started")
    r = world.ask("release", "--sim", "1", "--", "touch", world.dir / "ran", code=1)
    assert "job 1" in r.err and "--force" in r.err and not (world.dir / "ran").exists()
    world.ask("release", "--sim", "1", "--force", "--", "touch", world.dir / "ran")
    assert (world.dir / "ran").exists()
    (world.dir / "go").touch()
    run.wait(0)


def test_jobs_wait_until_it_is_over(world):
    world.jobs("[gpus=0] while [ ! -e $W/end ]; do sleep 0.05; done")
    run = world.run(sim="1")
    run.sees("job 1 started")
    r = world.spawn(program(), "release", "--sim", "1", "--", "sh", "-c", HOLD)
    until(lambda: (world.dir / "runs").exists(), why=r.tell)
    world.append("[vram=1G] touch $W/ran\n")
    until(lambda: re.search("job 2.*release", world.ask("run", "why", "2", code=None).out), why=run.tell)
    assert not (world.dir / "ran").exists()
    (world.dir / "go").touch()
    r.wait(0)
    until(lambda: (world.dir / "ran").exists(), why=run.tell)
    (world.dir / "end").touch()
    run.wait(0)


def test_its_death_gives_the_driver_back(world):
    env = driver(world)
    r = world.spawn(program(), "release", "--", "sleep", "60", env=env)
    child = until(lambda: [p for p, c in world.processes().items() if c == "sleep 60"], why=r.tell)[0]
    r.kill(signal.SIGKILL).wait(-signal.SIGKILL)
    until(lambda: world.ask("--once", env=env, code=None).process.returncode == 0 and holders(world))
    os.kill(child, signal.SIGKILL)


def test_a_new_agent_keeps_its_hands_off(world):
    r = world.spawn(program(), "release", "--sim", "1", "--", "sh", "-c", HOLD)
    until(lambda: (world.dir / "runs").exists(), why=r.tell)
    (agent,) = world.agents()
    os.kill(agent, signal.SIGKILL)
    until(lambda: not is_alive(agent))
    until(lambda: "gpustow release" in world.ask("--sim", "1", "--once", code=None).out, why=world.tell)
    (world.dir / "go").touch()
    r.wait(0)


def test_term_ends_the_command(world):
    r = world.spawn(program(), "release", "--sim", "1", "--", "sh", "-c", "trap 'exit 5' TERM; touch $W/runs; while :; do sleep 0.05; done")
    until(lambda: (world.dir / "runs").exists(), why=r.tell)
    r.kill(signal.SIGTERM).wait(5)
