"""
Side-by-side measurements: python3 bench/run.py BUILD_DIR [NAME...], a release build. Everything that is compared is
measured in the same run, in turn, on the same file system. What is compared is compared within each round, which measures
everything there and back again, and the median of the rounds' ratios counts: a load that comes and goes falls on both sides.
"""
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import agent_cost
import monitor_keys
import queue_cost
import queue_screen
import recorded

TICK = os.sysconf("SC_CLK_TCK")
rows = []


def report(name, figure, asked, is_met, unit="", note=""):
    """One row of the table. asked None: for information."""
    verdict = "" if asked is None else "met" if is_met else "NOT met"
    rows.append(verdict != "NOT met")
    limit = "" if asked is None else f"<= {asked:g}{unit}"
    print(f"{name:<58} {figure:>9.3g}{unit:<4} {limit:>10} {verdict:<8} {note}", flush=True)


def at_most(name, figure, asked, unit="", note=""):
    report(name, figure, asked, figure <= asked, unit, note)


def told(name, figure, unit="", note=""):
    report(name, figure, None, True, unit, note)


def cpu_s(pid, children=False):
    """utime + stime of a process (of its ended and awaited children), in seconds. Whole ticks: for sums over many jobs."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    at = 13 if children else 11
    return (int(fields[at]) + int(fields[at + 1])) / TICK


def exact_cpu_s(pid):
    """CPU of the main thread in nanoseconds, as seconds."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def children_of(pid):
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


class Bed:
    """One directory with its own agent, cards and log directory."""

    def __init__(self, top, program, cards):
        self.dir = Path(tempfile.mkdtemp(prefix="bed-", dir=top))
        (self.dir / "sim").mkdir()
        (self.dir / "promises").mkdir()
        self.program, self.cards, self.agent = program, cards, None
        self.env = {**os.environ, "GPUSTOW_AGENT_ROOT": str(self.dir / "root"), "GPUSTOW_SIM_DIR": str(self.dir / "sim"),
                    "GPUSTOW_PROMISE_DIR": str(self.dir / "promises"), "HOME": str(self.dir), "XDG_CACHE_HOME": str(Path(top) / "cache")}
        for name in ("GPUSTOW_AGENT", "GPUSTOW_SIM"):
            self.env.pop(name, None)

    def start(self, lines, *options):
        (self.dir / "jobs.txt").write_text("".join(line + "\n" for line in lines))
        return subprocess.Popen([self.program, "run", "--sim", self.cards, "--log-dir", str(self.dir / "logs"), *options,
                                 str(self.dir / "jobs.txt")], cwd=self.dir, env=self.env, stdin=subprocess.DEVNULL,
                                stdout=open(self.dir / "said", "wb"), stderr=subprocess.STDOUT)

    def find_agent(self):
        """The agent is who holds the root's lock."""
        lock = next((self.dir / "root").glob("sim-*/agent.lock"), None)
        inode = os.stat(lock).st_ino if lock else -1
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if "POSIX" in fields and fields[-3].endswith(f":{inode}"):
                return int(fields[-4])
        return None

    def done(self):
        agent = self.find_agent()
        if agent:
            os.kill(agent, 15)
            end = time.monotonic() + 10
            # A container's first process may leave it a zombie.
            while self.find_agent() and time.monotonic() < end:
                time.sleep(0.02)


def spread_directories(top):
    """
    Each directory below top gets its files from another part of the disk, as directories of people who don't know each other
    do; and nothing is removed before all is measured. For minutes after a file's end ext4 passes over its place, at a
    price: who makes files beside what a round before him removed would pay for it.
    """
    if shutil.which("chattr"):
        subprocess.run(["chattr", "+T", top], stderr=subprocess.DEVNULL)


def measured(run):
    """Wall and CPU of what run() does with children."""
    before, began = os.times(), time.monotonic()
    run()
    wall, after = time.monotonic() - began, os.times()
    return wall, {"all": after.children_user + after.children_system - before.children_user - before.children_system}


def through_gpustow(top, program, lines):
    """One whole run, the agent's start included. Wall, CPU of run, agent, sampler, and what the agent's children used."""
    bed = Bed(top, program, "4")
    began = time.monotonic()
    run = bed.start(lines)
    _, status, usage = os.wait4(run.pid, 0)
    wall = time.monotonic() - began
    run.returncode = os.waitstatus_to_exitcode(status)
    agent = bed.find_agent()
    said = (bed.dir / "said").read_text()
    if run.returncode or f"{len(lines)} ok" not in said or agent is None:
        sys.exit(f"bench: the run failed ({run.returncode}):\n{said[-2000:]}")
    cpu = {"run": usage.ru_utime + usage.ru_stime, "agent": cpu_s(agent), "children": cpu_s(agent, children=True),
           "sampler": sum(cpu_s(pid) for pid in children_of(agent))}
    bed.done()
    return wall, {"all": sum(cpu.values()), **cpu}


def through_xargs(n):
    text = "".join(f"{i}\n" for i in range(n)).encode()
    return measured(lambda: subprocess.run(["xargs", "-P4", "-n1", "sh", "-c", "true"], input=text, check=True))


def through_yardstick(top, build, n, which):
    path = tempfile.mkdtemp(prefix="yardstick-", dir=top)
    return measured(lambda: subprocess.run([build / "bench" / "yardstick", which, path, str(n), "4"], check=True))


def sync_ms(top):
    """What durability costs here and now: 512 bytes overwritten in place, and a file made in a new directory, each synced."""
    path = Path(tempfile.mkdtemp(prefix="sync-", dir=top))
    place, made = [], []
    fd = os.open(path / "place", os.O_RDWR | os.O_CREAT, 0o600)
    os.pwrite(fd, bytes(1024), 0)
    os.fsync(fd)
    for i in range(30):
        began = time.monotonic()
        os.pwrite(fd, bytes(512), 512 * (i % 2))
        os.fdatasync(fd)
        place.append(time.monotonic() - began)
        began = time.monotonic()
        new = os.open(path / str(i), os.O_RDWR | os.O_CREAT, 0o600)
        os.write(new, bytes(512))
        os.fsync(new)
        made.append(time.monotonic() - began)
        os.close(new)
    os.close(fd)
    shutil.rmtree(path)
    return statistics.median(place) * 1000, statistics.median(made) * 1000


def a_round(top, build, program, kinds):
    """Everything once, and once more in the opposite order: sums of wall and of CPU."""
    n = len(next(iter(kinds.values())))
    ways = {"xargs": lambda: through_xargs(n), "bare": lambda: through_yardstick(top, build, n, "bare"),
            "yardstick": lambda: through_yardstick(top, build, n, "jobs"),
            **{kind: lambda lines=lines: through_gpustow(top, program, lines) for kind, lines in kinds.items()}}
    there = [(name, *ways[name]()) for name in ways]
    back = [(name, *ways[name]()) for name in reversed(ways)]
    walls, cpus = {}, {}
    for name, wall, cpu in there + back:
        walls[name] = walls.get(name, 0) + wall
        cpus[name] = {part: cpus.get(name, {}).get(part, 0) + s for part, s in cpu.items()}
    return walls, cpus


def jobs(top, build, program):
    print("xargs: xargs -P4 sh -c true. bare: four spawned sh -c true at once, what starts and ends at one moment synced in place; no\n"
          "shim, no claim, so nothing of it outlives the program. yardstick: for each job a directory with spec and state staged, three\n"
          "syncs, a rename and the sync of its parent; a forked shim, a session, sh -c true; the end written in place, one sync; four at\n"
          "once; no binds, no journal, no samples. A round is everything there and back again")
    spread_directories(top)
    for n, rounds in ((200, 5), (2000, 2)):
        kinds = {"declared 1G": [f"[vram=1G] true # {i}" for i in range(n)],
                 "undeclared": [f"true # {i}" for i in range(n)]}
        done = [a_round(top, build, program, kinds) for _ in range(rounds)]
        place, made = sync_ms(top)
        told(f"{n} true: a sync in place, then", place, " ms", f"of a new file {made:.2f} ms")
        for name in ("xargs", "bare", "yardstick"):
            tell_way(n, name, done)
        for name in ("bare", "yardstick"):
            ratio, _, note = median_of([walls[name] / walls["xargs"] for walls, _ in done], "")
            told(f"{n} true: {name}: times xargs -P4", ratio, "", note)
        for name in kinds:
            judge_kind(n, name, done)


def tell_way(n, name, done):
    cpu = statistics.median(cpus[name]["all"] for _, cpus in done) / 2 / n * 1000
    times = statistics.median(cpus[name]["all"] / cpus["xargs"]["all"] for _, cpus in done)
    value, unit, note = median_of([walls[name] / 2 for walls, _ in done], " s")
    told(f"{n} true, {name}: wall", value, unit, f"{note}; CPU {cpu:.2f} ms a job, {times:.2f} times xargs")


def judge_kind(n, name, done):
    tell_way(n, name, done)
    for other, asked, words in (("xargs", 1.5, "xargs -P4"), ("yardstick", 1.15, "forked shim + claim + end")):
        ratio, _, note = median_of([walls[name] / walls[other] for walls, _ in done], "")
        at_most(f"{n} true, {name}: times {words}", ratio, asked, "", note)
    a_job = {part: statistics.median(cpus[name][part] for _, cpus in done) / 2 / n * 1000 for part in done[0][1][name]}
    both = statistics.median(sum(cpus[name][part] for part in ("run", "agent", "sampler")) for _, cpus in done) / 2 / n * 1000
    at_most(f"{n} true, {name}: CPU of run and agent, a job", both, 2, " ms",
            f"run {a_job['run']:.2f}, agent {a_job['agent']:.2f}, sampler {a_job['sampler']:.2f}")
    told(f"{n} true, {name}: CPU of shims and jobs, a job", a_job["children"], " ms")


def median_of(values, unit):
    return statistics.median(values), unit, spread(values)


def spread(values):
    return f"[{min(values):.3g} to {max(values):.3g}], {len(values)} rounds"


def memory_kib(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    rss = int(re.search(r"VmRSS:\s+(\d+)", status)[1])
    return rss, int(re.search(r"\nPss:\s+(\d+)", rollup)[1]), int(re.search(r"VmHWM:\s+(\d+)", status)[1])


def cpu_of_polls(pid, poll, seconds):
    """CPU for each poll in ms, over seven stretches."""
    each = []
    for _ in range(7):
        before, at = exact_cpu_s(pid), time.monotonic()
        time.sleep(seconds)
        each.append((exact_cpu_s(pid) - before) / ((time.monotonic() - at) / poll) * 1000)
    return each


def blocked(top, build, program):
    """The status board is written once a second at most: so both a fast pace and one at which every poll writes it."""
    for poll in (0.1, 1.0):
        blocked_at(top, program, poll)


def blocked_at(top, program, poll):
    """Four cards are taken, 10,000 lines wait. CPU of the run alone, over many polls."""
    bed = Bed(top, program, "4")
    lines = [f"[vram=20G] sleep 600 # {i}" for i in range(4)] + [f"[vram=20G] true # {i}" for i in range(10000)]
    began = time.monotonic()
    run = bed.start(lines, "--poll", str(poll))
    try:
        while (bed.dir / "said").read_text().count("started on") < 4:
            if run.poll() is not None or time.monotonic() - began > 60:
                sys.exit("bench: four jobs did not start:\n" + (bed.dir / "said").read_text()[-2000:])
            time.sleep(0.02)
        told("10,000 lines: until four jobs run", time.monotonic() - began, " s")
        time.sleep(2)
        agent = bed.find_agent()
        agent_before, polls = exact_cpu_s(agent), 14 / poll
        each = cpu_of_polls(run.pid, poll, 2)
        at_most(f"10,000 blocked lines: CPU of run, a poll of {poll} s", statistics.median(each), 3, " ms", spread(each))
        told("10,000 blocked lines: CPU of agent, a poll", (exact_cpu_s(agent) - agent_before) / polls * 1000, " ms")
        rss, pss, high = memory_kib(run.pid)
        at_most("10,000 blocked lines: memory of run, RSS", rss * 1024 / 1e6, 10, " MB", f"PSS {pss * 1024 / 1e6:.1f}, at most {high * 1024 / 1e6:.1f}")
        rss, pss, high = memory_kib(agent)
        told("10,000 blocked lines: memory of agent, RSS", rss / 1024, " MiB", f"PSS {pss / 1024:.1f}")
    finally:
        run.terminate()
        try:
            run.wait(30)
        except subprocess.TimeoutExpired:
            run.kill()
        bed.done()


def version(top, build, program):
    """
    Of copies, as an installation makes them, of both: what the linker wrote lies in the page cache in single pages, and to
    map those costs a start three hundredths more than what was copied or read from the disk.
    """
    program, nothing = (shutil.copy(p, top) for p in (program, build / "bench" / "empty"))
    text = subprocess.run([build / "bench" / "yardstick", "spawn", "1000", nothing, "--", program, "--version"],
                          check=True, capture_output=True, text=True).stdout
    empty, ours = json.loads(text)["a"], json.loads(text)["b"]
    at_most("gpustow --version: times an empty C program", ours["median_us"] / empty["median_us"], 1.25, "",
            f"{ours['median_us']:.0f} us and {empty['median_us']:.0f} us, 1000 rounds in turn")
    at_most("gpustow --version: minor page faults", ours["faults"], 90, "", f"empty program: {empty['faults']}")
    if shutil.which("valgrind"):
        for name, command in (("an empty C program", [nothing]), ("gpustow --version", [program, "--version"])):
            said = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *map(str, command)],
                                  capture_output=True, text=True).stderr
            counted = re.search(r"Collected\s*:\s*(\d+)", said)
            if counted:
                told(f"{name}: instructions", int(counted[1]) / 1000, " k")
    else:
        print("valgrind isn't here: no instruction counts")


def plan(top, build, program):
    said = subprocess.run([build / "bench" / "bench_plan"], check=True, capture_output=True, text=True).stdout
    for name, median in re.findall(r"^(.+?)\s+median\s+([\d.]+) ms", said, re.M):
        at_most(f"plan, 10,000 pending, 64 x 8 cards: {name.strip()}", float(median), 10, " ms", "CPU time")


def store(top, build, program):
    said = subprocess.run([build / "bench" / "bench_store", top], check=True, capture_output=True, text=True).stdout
    for row in map(json.loads, said.splitlines()):
        name = f"store: {row['what']}"
        if "at_least" in row:
            at_most(f"{name} (time)", 1 / row["ratio"], round(1 / row["at_least"], 2), "x")
        elif "at_most_ms" in row:
            at_most(name, row["ms"], row["at_most_ms"], " ms")
        else:
            told(name, row["ratio"], "x")


def queue(top, build, program):
    done = queue_cost.submit_rounds(top, build, program)
    for k, name in enumerate(("/bin/true", "one durable commit, connection open", "job submit --no-tick", "a bare program: open, one job, close")):
        told(f"queue: {name}, wall", *median_of([r[k] / 1000 for r in done], " ms"))
    ratio, _, note = median_of([r[2] / (r[0] + r[1]) for r in done], "")
    at_most("queue: job submit --no-tick: times /bin/true + one durable commit", ratio, 1.3, "", note)
    told("queue: job submit --no-tick: times the bare program", *median_of([r[2] / r[3] for r in done], ""))
    for n in (10_000, 100_000):
        page, status = queue_cost.reading_ms(top, program, n)
        at_most(f"queue: job ls -n 50, {n:,} jobs: CPU of the command", page, 15, " ms")
        at_most(f"queue: queue status --no-tick --json, {n:,} jobs: CPU", status, 100, " ms")
    told("queue: a pass over 64 nodes, none waits: CPU besides ssh's", *median_of(queue_cost.pass_cpu_ms(top, build, program, 0), " ms"))
    each = queue_cost.pass_cpu_ms(top, build, program, 10_000)
    at_most("queue: a pass over 64 nodes, 10,000 wait: CPU besides ssh's", statistics.median(each), 50, " ms", spread(each))


def python_gpusched(top, build, program):
    python = next((p for p in ("/usr/bin/python3", sys.executable)
                   if subprocess.run([p, "-c", "import gpusched"], capture_output=True).returncode == 0), None)
    if not python:
        print("Python's gpusched isn't on this machine: not measured")
        return
    n = 200
    path = Path(tempfile.mkdtemp(dir=top))
    (path / "jobs.txt").write_text("".join(f"[vram=1G] true # {i}\n" for i in range(n)))
    began = time.monotonic()
    subprocess.run([python, "-m", "gpusched", "--sim", "4", "--poll", "0.1", "jobs.txt"], cwd=path, check=True,
                   stdout=subprocess.DEVNULL, env={**os.environ, "GPUSCHED_SIM_DIR": str(path / "sim")})
    theirs = time.monotonic() - began
    ours, _ = through_gpustow(top, program, [f"[vram=1G] true # {i}" for i in range(n)])
    told(f"{n} true, declared: Python's gpusched, wall", theirs, " s", f"gpustow: {ours:.2f} s")


def agent(top, build, program):
    """What a node pays for being watched: see agent_cost.py, which can also be run alone."""
    cost = agent_cost.cost(build, 20)
    name = f"agent, {agent_cost.CARDS} cards, {agent_cost.PROCESSES} processes, 1 sample/s"
    at_most(f"{name}: CPU", cost["cpu_pct"], agent_cost.CPU_PCT, " %", f"besides {cost['fake_pct']:.2f} % of the library's own")
    at_most(f"{name}: memory", cost["resident_mib"], agent_cost.RSS_MIB, " MiB", "agent and sampler, shared pages by their share")
    report(f"{name}: samples/s", cost["pace"], None, True, "", f"of {cost['sample_kib']:.0f} KiB; static figures in each")
    rows.append(cost["pace"] >= agent_cost.PACE)


def tell_keys(name, keys):
    """What the program does between a key and its picture is its own; how long it waits for a core is the machine's."""
    median, longest, less_waiting, cpu = recorded.tell_keys(keys)
    at_most(f"{name}: key to screen, the program's CPU, longest", cpu, 50, " ms", f"{len(keys)} keys")
    busy = os.getloadavg()[0] >= os.cpu_count()
    report(f"{name}: key to screen, longest", longest, None if busy else 50, longest <= 50, " ms",
           f"median {median:.1f}; {less_waiting:.1f} without the wait for a core" + (f"; not judged, load {os.getloadavg()[0]:.0f}" if busy else ""))


def monitor(top, build, program):
    """The real program over 100 recorded hosts of 8 cards at one sample a second, on a pty of 250x70; one host's driver hangs."""
    got = recorded.monitor(build, Path(top) / "hosts")
    cpu, children, to_terminal = got["load"]
    name = "monitor, 100 hosts x 8 cards"
    at_most(f"{name}: CPU of a core", cpu, 5, " %", f"samples of {got['sample_kib']:.1f} KiB; what stands in for ssh {children:.2f} %")
    at_most(f"{name}, all cards in one table: CPU of a core", got["load_cards"][0], 5, " %", f"{got['load_cards'][2] / 1000:.1f} KB/s to the terminal")
    at_most(f"{name}: memory, RSS", got["memory_mib"][0], 60, " MiB", f"PSS {got['memory_mib'][1]:.1f}; besides ssh's")
    told(f"{name}: to the terminal", to_terminal / 1000, " KB/s")
    tell_keys(name, got["keys"])
    still, rows_changed = recorded.at_rest(build, Path(top) / "still")
    report(f"{name} whose figures don't change: to the terminal", still, 100, still <= 100 and set(rows_changed) <= {0, 1}, " B/s",
           f"the clock and this machine's figures: rows {rows_changed}")
    for who in (program, shutil.which("nvtop")):
        if not who:
            print("nvtop isn't on this machine: not measured")
            continue
        cpu, children, to_terminal, rss, pss = recorded.one_host(build, Path(top) / f"one-{Path(who).name}", who)
        told(f"{Path(who).name}, this machine's 8 cards: CPU of a core", cpu, " %",
             f"RSS {rss:.1f}, PSS {pss:.1f} MiB, {to_terminal / 1000:.2f} KB/s to the terminal")
    for name, _, longest in monitor_keys.figures(build):
        at_most(f"monitor, {name}: key to screen, longest", longest, monitor_keys.LIMIT_MS, " ms")


def queue_keys(top, build, program):
    """The queue's screen: 10,000 jobs wait, 64 nodes, of which one's driver hangs, one answers after seconds, one is stopped."""
    for what, keys, (rss, pss) in queue_screen.measure(top, build, program):
        tell_keys(f"queue screen, {what}", keys)
        told(f"queue screen, {what}: memory, RSS", rss, " MiB", f"PSS {pss:.1f}")


def hosts(top, build, program):
    """Needs root, for the lab's namespaces."""
    import once
    once.measure(build, told, at_most, report)


ALL = {"version": version, "jobs": jobs, "blocked": blocked, "plan": plan, "store": store, "queue": queue, "hosts": hosts, "gpusched": python_gpusched,
       "agent": agent, "monitor": monitor, "screen": queue_keys}


def main():
    if len(sys.argv) < 2:
        sys.exit(f"usage: bench/run.py BUILD_DIR [{'|'.join(ALL)}]...")
    build = Path(sys.argv[1]).resolve()
    program = build / "src" / "gpustow"
    wanted = sys.argv[2:] or list(ALL)
    unknown = [name for name in wanted if name not in ALL]
    if unknown:
        sys.exit(f"bench: there is no {', '.join(unknown)}; there are {', '.join(ALL)}")
    top = tempfile.mkdtemp(prefix="gpustow-bench-", dir=os.environ.get("TMPDIR", "/tmp"))
    try:
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, file system of {top}: "
              + subprocess.run(["stat", "-f", "-c", "%T", top], capture_output=True, text=True).stdout.strip())
        for name in wanted:
            ALL[name](top, build, str(program))
    finally:
        shutil.rmtree(top, ignore_errors=True)

    print(f"{rows.count(False)} figures not met" if False in rows else "every figure asked for is met")


main()
