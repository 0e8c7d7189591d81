"""
A queue over three hosts with real sshds (tests/lab) and a client beside them, each in namespaces of its own: how they're
looked at and struck from outside, through /proc, so that looking costs no process. Files of a host are read below
/proc/PID/root; its processes are those of its pid namespace. Only those are ever signalled.
"""
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import queue_judge
from bed import comm, lock_holder, promise_rows, state_of, wait_for
from queue_judge import Record, Wish

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
from lab import Lab, missing  # noqa: E402,F401

NODES = ("key", "jump", "fish")
CARD_MIB = 24576
DB = "/root/.gpustow/queue.db"
FILL = "filler"
ENDED = 3  # bed.state_of
HOUR_MS = 3600 * 1000
JOB = Path(__file__).with_name("job.sh")
SETTINGS = {"headroom_mb": 0, "max_jobs_per_gpu": 0, "max_cpu_jobs_per_node": 0, "tick_min_interval": 0, "card_faults": 0,
            "guard_after": 0, "probe_timeout": 15, "launch_timeout": 20, "kill_grace": 2}


def state_letter(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "X"


class Hosts:
    def __init__(self, settings=None):
        self.lab = Lab(NODES)
        self.inits = {host: int((self.lab.dir / host / "init.pid").read_text()) for host in ("ctl", *NODES)}
        self.spaces = {os.readlink(f"/proc/{pid}/ns/pid"): host for host, pid in self.inits.items()}
        self.struck, self.rebooted, self.wishes = set(), {}, {}
        self.said = open(self.lab.dir / "said", "ab")
        self.guard = threading.Lock()  # of the wire's files
        self.power = threading.Lock()  # the client goes down
        for node in NODES:
            (self.path(node, "/home/job.sh")).write_bytes(JOB.read_bytes())
            (self.path(node, "/run/wall")).write_text("0")
            (self.path(node, "/root/.ssh/environment")).write_text("GPUSTOW_TEST_WALL_OFFSET=/run/wall\n")
        self.path("ctl", "/run/wall").write_text("0")
        self.path("ctl", "/root/.gpustow").mkdir(mode=0o700)
        lines = ["queue:", *(f"  {k}: {v}" for k, v in {**SETTINGS, **(settings or {})}.items()), "servers:"]
        for node in NODES:
            lines += [f"  - nickname: {node}", f"    hostname: {node}"]
        self.path("ctl", "/root/.gpustow/config.yml").write_text("\n".join(lines) + "\n")

    def down(self):
        self.said.close()
        self.lab.down()

    # --- looking ---

    def path(self, host, path):
        return Path(f"/proc/{self.inits[host]}/root{path}")

    def processes(self):
        """{host: [pid]} of all of them, their first ones left out."""
        found = {host: [] for host in self.inits}
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    host = self.spaces.get(os.readlink(f"/proc/{name}/ns/pid"))
                except OSError:
                    continue
                if host and int(name) not in self.inits.values():
                    found[host].append(int(name))
        return found

    def holders(self, paths):
        """{path: pid} of the fcntl locks that somebody has on these files."""
        return {path: pid for path in paths if (pid := lock_holder(path))}

    def agents(self):
        """{node: pid}"""
        found = {}
        for node in NODES:
            for pid in self.holders(self.path(node, "/root/.gpustow/agent").glob("*/agent.lock")).values():
                if pid > 0:
                    found[node] = pid
        return found

    def claims(self, node):
        return [p for p in self.path(node, "/root/.gpustow/agent").glob("*/claims/*/*") if (p / "state").exists()]

    def shims(self):
        """[(mark, pid)]"""
        agents, found = set(self.agents().values()), []
        for node in NODES:
            for path, pid in self.holders(c / "lock" for c in self.claims(node)).items():
                if pid > 0 and pid not in agents:
                    found.append((f"{path.parent.parent.name}/{path.parent.name}", pid))
        return found

    def jobs(self):
        """[(mark, pid)] of the jobs' own processes."""
        found = []
        for node, pids in self.processes().items():
            for pid in pids if node != "ctl" else ():
                try:
                    env = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                except OSError:
                    continue
                mark = next((v[13:].decode() for v in env if v.startswith(b"GPUSTOW_MARK=")), None)
                if mark and comm(pid) in ("bash", "sh", "sleep"):
                    found.append((mark, pid))
        return found

    def named(self, host, *names):
        return [pid for pid in self.processes()[host] if comm(pid) in names and state_letter(pid) not in "ZX"]

    def rows(self):
        """What the jobs wrote, on all nodes."""
        found = []
        for node in NODES:
            path = self.path(node, "/home/judge")
            if path.exists():
                found += [(node, *line.split()) for line in path.read_text().splitlines() if len(line.split()) == 5]
        return found

    def record(self):
        return Record(json.loads(self.lab.run("ctl", "/usr/bin/python3", "/usr/bin/queue_judge.py", DB)))

    def has_record(self):
        return self.path("ctl", DB).exists()

    # --- striking ---

    @staticmethod
    def kill(pid, signo=signal.SIGKILL):
        try:
            os.kill(pid, signo)
        except OSError:
            pass

    def cut(self, node, is_cut):
        with self.guard:
            self.lab.wire(node, cut=int(is_cut))

    def set_clock(self, host, offset_ms):
        new = self.path(host, "/run/wall.new")
        new.write_text(str(offset_ms))
        os.rename(new, self.path(host, "/run/wall"))

    def fill(self, host):
        """Every byte of the disk that has its home: database, claims, jobs' directories."""
        with open(self.path(host, f"/root/{FILL}"), "ab", buffering=0) as out:
            for size in (1 << 20, 65536, 4096, 512, 1):
                try:
                    while out.write(b"\0" * size):
                        pass
                except OSError:
                    pass

    def free(self, host):
        self.path(host, f"/root/{FILL}").unlink(missing_ok=True)

    def start_sshd(self, node):
        self.lab.run(node, "/usr/sbin/sshd", "-f", "/etc/ssh/sshd_lab", "-E", "/var/log/sshd.log", check=False)

    def is_listening(self, node):
        return any(b"[listener]" in cmdline(pid) for pid in self.named(node, "sshd"))

    def power_off(self, host):
        """
        The machine goes down under everything: all of its processes at once, and with them what lies in its memory only. (A
        look at the record on the client isn't part of it.) The next boot has another id; sshd is started by whoever boots it.
        """
        def living():
            # The first process's own sleep is as good as itself (tests/lab/init.sh).
            return [p for p in self.processes()[host] if state_letter(p) not in "ZX" and comm(p) not in ("python3", "nsenter") and
                    cmdline(p) != b"sleep\x001000\0"]

        def are_all(letters, signo):
            pids = [p for p in living() if state_letter(p) not in letters]
            for pid in pids:
                self.kill(pid, signo)
            return not pids

        def twice(letters, signo):
            wait_for(lambda: are_all(letters, signo) and are_all(letters, signo), 20, f"{host} doesn't come to rest")
        if host != "ctl":
            # First all stand still: what has ended by then has ended.
            twice("TtZX", signal.SIGSTOP)
            torn = {f"{c.parent.name}/{c.name}" for c in self.claims(host) if state_of(c / "state") < ENDED}
            self.rebooted.update({mark: mark not in self.struck for mark in torn})
            self.struck |= torn
        # Nobody logs in meanwhile.
        with self.power:
            twice("ZX", signal.SIGKILL)
            for path in self.path(host, "/tmp").glob(".gpustow-*"):
                path.unlink()
            self.path(host, "/run/boot_id").write_text(f"{uuid.uuid4()}\n")

    # --- commands on the client ---

    def spawn(self, *words, env=()):
        command = self.lab.command("ctl", "env", *self.lab.env, "GPUSTOW_TEST_WALL_OFFSET=/run/wall", *env, "gpustow", *words)
        with self.power:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.said, text=True, cwd="/",
                                    start_new_session=True)

    def ask(self, *words, env=(), deadline=180):
        """(exit code, document or None)"""
        process = self.spawn(*words, env=env)
        try:
            text = process.communicate(timeout=deadline)[0]
        except subprocess.TimeoutExpired:
            # nsenter is killed; what it began is one of the client's processes.
            for pid in self.named("ctl", "gpustow"):
                self.kill(pid)
            process.kill()
            raise AssertionError(f"not over in {deadline} s: {words}") from None
        try:
            return process.returncode, json.loads(text)
        except ValueError:
            return process.returncode, None

    def tick(self, env=()):
        return self.ask("queue", "tick", "--json", env=env)[1]

    def submit(self, name, *options, n=1, seconds=0.2, code=0, retries=0, key=None, is_limited=False, env=()):
        """
        n jobs in one command, as `NAME-1`, ... Returns their numbers, none when nobody said that they're in. Each name stands for
        one job, so a submit that died unanswered is made again only under its key.
        """
        names = [name] if n == 1 else [f"{name}-{i}" for i in range(1, n + 1)]
        for each in names:
            self.wishes.setdefault(each, Wish(each, code, retries, is_limited=is_limited))
        command = f"sh /home/job.sh {names[0] if n == 1 else name + '-{index}'} 0 {seconds} {code}"
        words = ["job", "submit", "--json", *(["--array", f"1-{n}"] if n > 1 else []), *(["--key", key] if key else []),
                 *(["--retries", str(retries)] if retries else []), *options, "--", command]
        _, doc = self.ask(*words, env=env)
        is_in = bool(doc and doc.get("ok"))
        for each in names if is_in else ():
            self.wishes[each].is_accepted = True
        return [job["id"] for job in doc.get("jobs", [doc.get("job")])] if is_in else []

    # --- the end ---

    def calm(self):
        """Everything that was done to the hosts is undone."""
        for node in NODES:
            self.cut(node, False)
            self.set_clock(node, 0)
            self.free(node)
            if not self.is_listening(node):
                self.start_sshd(node)
            for pid in self.processes()[node]:
                self.kill(pid, signal.SIGCONT)
        self.free("ctl")
        self.set_clock("ctl", 0)

    def settle_all(self, seconds):
        """Passes until the record is quiet and no node has anything more to tell. The seconds are those in which nothing goes on."""
        left, end = None, 0
        while True:
            self.tick()
            record = self.record()
            if record.is_quiet():
                break
            now = [(j["id"], j["state"], j["attempt"]) for j in record.jobs.values()], sum(a["wants_reap"] for a in record.attempts.values())
            if left != now:
                left, end = now, time.monotonic() + seconds
            assert time.monotonic() < end, f"nothing has gone on for {seconds} s\n{self.story()}"

        def is_clean():
            self.tick()
            return not any(self.claims(node) for node in NODES)
        wait_for(is_clean, 60, lambda: f"no claims: {[list(map(str, self.claims(n))) for n in NODES]}\n{self.story()}")

    def sanitizer_words(self):
        self.said.flush()
        found = []
        logs = [Path(self.said.name)]
        for node in NODES:
            logs += self.path(node, "/root/.gpustow/agent").glob("*/log")
        for path in logs:
            found += [line for line in path.read_text(errors="replace").splitlines()
                      if "Sanitizer" in line and "ERROR" in line or "runtime error:" in line]
        return [f"sanitizer: {line}" for line in found[:3]]

    def complaints(self):
        record = self.record()
        wrong = queue_judge.complaints(record, self.rows(), self.wishes, self.struck)
        if record.jobs:
            last = max(record.jobs)
            shown = self.ask("job", "show", "--json", "--no-tick", str(last))[1]
            tries = [a["exit_code"] for key, a in sorted(record.attempts.items()) if key[0] == last]
            if not shown or [a["exit_code"] for a in shown["attempts"]] != tries:
                wrong.append(f"`job show` tells {shown} of {tries}")
        for mark, pid in self.shims():
            wrong.append(f"{mark} still has a shim, {pid}")
        return wrong + self.sanitizer_words()

    def story(self):
        self.said.flush()
        lines = ["--- not at their ends"] + [str(row) for row in self.record().unquiet()]
        lines += ["--- said", Path(self.said.name).read_text(errors="replace")[-3000:]]
        for node in NODES:
            for log in self.path(node, "/root/.gpustow/agent").glob("*/log"):
                lines += [f"--- agent of {node}", log.read_text(errors="replace")[-1500:]]
        return "\n".join(lines)


class PromiseWatch(threading.Thread):
    """Looks at what's promised on every node's cards, all the time."""

    def __init__(self, hosts):
        super().__init__(daemon=True)
        self.hosts, self.over, self.wrong, self.looks, self.most = hosts, threading.Event(), [], 0, 0

    def run(self):
        while not self.over.wait(0.1):
            for node in NODES:
                self.look(node)

    def look(self, node):
        """
        What counts are the files whose owner lives, after they were read as before (protocol.md 9). Of a killed agent that
        hasn't gone yet while the next one is there already, both tell of the same jobs: the one with the root's lock counts.
        """
        paths = list(self.hosts.path(node, "/tmp").glob(".gpustow-*"))
        before, held, rows = self.hosts.holders(paths), {}, {}
        for path in before:
            try:
                rows[path] = promise_rows(path)
            except OSError:
                pass
        after, agent = self.hosts.holders(paths), self.hosts.agents().get(node)
        for path, cards in rows.items():
            if after.get(path) == before[path] == agent:
                for card, mib in cards.items():
                    held[card] = held.get(card, 0) + mib
        for card, mib in held.items():
            self.looks += 1
            self.most = max(self.most, mib)
            if mib > CARD_MIB:
                self.wrong.append(f"{mib} MiB of {card} on {node} are promised")

    def stop(self):
        self.over.set()
        self.join()
        return self.wrong[:5]


def cmdline(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def sleep_until(moment):
    while time.monotonic() < moment:
        time.sleep(0.02)
