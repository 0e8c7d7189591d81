"""What the queue's commands cost on one database: a durable submit, the first page and the whole status of 10,000 and 100,000
jobs, and the CPU of a pass over many nodes while 10,000 jobs wait."""
import os
import shutil
import sqlite3
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

ROW = ("INSERT INTO jobs (state, vram_mib, vram_source, created_ms, updated_ms, shape, submitter, command)"
       " VALUES ('pending', 1024, 'declared', 1, 1, 'true', 'someone@host:1234', 'true')")
EVENT = "INSERT INTO events (ts_ms, kind, job, message, data) VALUES (1, 'job_submitted', last_insert_rowid(), 'true', '{\"gpus\": 1}')"


class Home:
    """A queue of its own, and an agent of its own with simulated cards."""

    def __init__(self, top, program, sim="2"):
        self.dir = Path(tempfile.mkdtemp(prefix="queue-", dir=top))
        for d in ("sim", "promise", "home/.gpustow"):
            (self.dir / d).mkdir(parents=True)
        (self.dir / "promise").chmod(0o1777)
        self.program, self.db = program, self.dir / "home" / ".gpustow" / "queue.db"
        (self.db.parent / "queue.yml").write_text(f"queue:\n  job_root: {self.dir}/jobs\n")
        self.env = {"PATH": os.environ["PATH"], "HOME": str(self.dir / "home"), "GPUSTOW_SIM": sim,
                    "GPUSTOW_AGENT_ROOT": str(self.dir / "agent"), "GPUSTOW_SIM_DIR": str(self.dir / "sim"),
                    "GPUSTOW_PROMISE_DIR": str(self.dir / "promise"), "GPUSTOW_AGENT_IDLE": "5"}

    def ask(self, *words):
        return subprocess.run([self.program, *map(str, words)], env=self.env, check=True, capture_output=True, text=True).stdout

    def submit_many(self, n, line="[vram=20G] ./train.sh --seed {i}"):
        (self.dir / "many.txt").write_text("".join(line.format(i=i) + "\n" for i in range(n)))
        self.ask("job", "submit", "--no-tick", "--file", self.dir / "many.txt")

    def spawn_us(self, *argv):
        null = [(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)]
        began = time.perf_counter_ns()
        pid = os.posix_spawn(argv[0], [str(a) for a in argv], self.env, file_actions=null)
        _, status = os.waitpid(pid, 0)
        took = (time.perf_counter_ns() - began) / 1000
        assert status == 0, argv
        return took

    def cpu_ms(self, *argv):
        """User and system time of one command and all that it waited for."""
        pid = os.posix_spawn(argv[0], [str(a) for a in argv], self.env,
                             file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
        _, status, usage = os.wait4(pid, 0)
        assert status == 0, argv
        return (usage.ru_utime + usage.ru_stime) * 1000

    def done(self):
        shutil.rmtree(self.dir, ignore_errors=True)


def submit_rounds(top, build, program, rounds=61):
    """[(true, commit, submit, one_row) in us]. The commit is a resident connection's, into a database of the same tables."""
    home = Home(top, program)
    home.ask("job", "submit", "--no-tick", "--vram", "1G", "--", "true")
    bare, other = home.dir / "bare.db", home.dir / "other.db"
    for path in (bare, other):
        with sqlite3.connect(home.db) as source, sqlite3.connect(path) as to:
            source.backup(to)
            to.execute("PRAGMA journal_mode=WAL")
    db = sqlite3.connect(bare, isolation_level=None)
    db.execute("PRAGMA synchronous=FULL")

    def commit():
        began = time.perf_counter_ns()
        for sql in ("BEGIN IMMEDIATE", ROW, EVENT, "COMMIT"):
            db.execute(sql)
        return (time.perf_counter_ns() - began) / 1000
    ways = [lambda: home.spawn_us("/bin/true"), commit,
            lambda: home.spawn_us(program, "job", "submit", "--no-tick", "--vram", "1G", "--", "true"),
            lambda: home.spawn_us(build / "bench" / "one_row", other)]
    found = []
    for i in range(rounds):
        got = [None] * len(ways)
        for k in (range(len(ways)) if i % 2 else reversed(range(len(ways)))):
            got[k] = ways[k]()
        found.append(got)
    db.close()
    home.done()
    return found[1:]


def reading_ms(top, program, n, rounds=15):
    """Whole CPU time of `job ls -n 50` and of `queue status --no-tick --json`, as commands; n jobs, nine of ten over."""
    home = Home(top, program)
    home.submit_many(n)
    home.ask("job", "cancel", f"1-{n * 9 // 10}", "--no-tick", "--json")
    page = [home.cpu_ms(program, "job", "ls", "--no-tick", "-n", "50") for _ in range(rounds)]
    status = [home.cpu_ms(program, "queue", "status", "--no-tick", "--json") for _ in range(rounds)]
    home.done()
    return statistics.median(page), statistics.median(status)


SSH = """#!/bin/sh
# A host for each name, on this machine: the boot line runs here, with a home, a root and cards of that name.
for word; do
	case $word in --) break ;; -O) exit 255 ;; -G) exec /usr/bin/ssh "$@" ;; esac
done
while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done
export HOME="$HOSTS_DIR/$2" GPUSTOW_AGENT_ROOT="$HOSTS_DIR/$2/root"
mkdir -p "$HOME"
case $2 in
"$HOST_HUNG") export GPUSTOW_FAKE_NVML="$HOSTS_DIR/hung" ;;
"$HOST_SLOW") sleep 4 ;;
esac
exec /bin/sh -c "$3"
"""
HOSTS = 64
CARDS = "cards 8\n" + "".join(f"card {i} uuid=GPU-{{}}-{i} name=Fake memory=24576 used=12000\n" for i in range(8))


def with_hosts(top, build, program, hung="", slow=""):
    """A home whose queue has 64 nodes of 8 cards: agents of this machine behind a stand-in for ssh, the same bytes over the
    same kind of pipe. The driver of `hung` hangs, and `slow` is reached after 4 s only."""
    home = Home(top, program)
    hosts, ways = home.dir / "hosts", home.dir / "bin"
    hosts.mkdir()
    ways.mkdir()
    (ways / "ssh").write_text(SSH)
    (ways / "ssh").chmod(0o755)
    (home.dir / "cards").write_text(CARDS.format(*["x"] * 8))
    (hosts / "hung").write_text(CARDS.format(*["h"] * 8) + "hang nvmlDeviceGetMemoryInfo_v2\n")
    home.env.update(PATH=f"{ways}:{home.env['PATH']}", HOSTS_DIR=str(hosts), XDG_CACHE_HOME=str(home.dir / "cache"),
                    GPUSTOW_NVML_PATH=str(build / "tests" / "fake" / "libnvidia-ml.so.1"), GPUSTOW_FAKE_NVML=str(home.dir / "cards"),
                    GPUSTOW_AGENT_IDLE="20", HOST_HUNG=hung, HOST_SLOW=slow)
    del home.env["GPUSTOW_SIM"]
    (home.db.parent / "queue.yml").write_text(
        f"queue:\n  job_root: {home.dir}/jobs\n  max_cpu_jobs_per_node: 1\n  default_vram: 0\nservers:\n"
        + "".join(f"  - nickname: n{i}\n    hostname: n{i}\n" for i in range(HOSTS)))
    return home


def pass_cpu_ms(top, build, program, n, rounds=9):
    """CPU of one `queue tick` in ms, its children apart: 64 nodes of 8 cards, one job running on each, n that fit nowhere."""
    home = with_hosts(top, build, program)
    try:
        home.ask("job", "submit", "--no-tick", "--gpus", "0", "--array", f"1-{HOSTS}", "--", "sleep 300")
        end = time.monotonic() + 120
        while home.ask("job", "ls", "--state", "running", "--json", "--tick").count('"id"') < HOSTS:
            assert time.monotonic() < end, home.ask("queue", "nodes", "--no-tick")[:3000]
        if n:
            home.submit_many(n)
        own = []
        for _ in range(rounds):
            pid = os.posix_spawn(program, [program, "queue", "tick", "--json"], home.env,
                                 file_actions=[(os.POSIX_SPAWN_OPEN, 1, home.dir / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)])
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            own.append(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6)
            assert os.waitpid(pid, 0)[1] == 0
            assert f'"nodes_up": {HOSTS}' in (home.dir / "said").read_text(), (home.dir / "said").read_text()[:2000]
        return own
    finally:
        home.ask("job", "cancel", "--state", "running")
        home.done()
