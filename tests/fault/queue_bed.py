"""
A queue on this machine with simulated cards, in a directory of its own: database, agent's root, promises, the judge's file.
Its commands are gpustow's own; its processes are known by the directory in their environment (bed.Bed).
"""
import json
import os
import signal
import subprocess
import time

import queue_judge
from bed import Bed, wait_for
from queue_judge import Record, Wish

OWN = ("GPUSTOW_TEST_BED", "GPUSTOW_TEST_PROGRAM", "GPUSTOW_SIM_DIR", "PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS")
SETTINGS = {"headroom_mb": 0, "max_jobs_per_gpu": 0, "max_cpu_jobs_per_node": 0, "tick_min_interval": 0, "card_faults": 0,
            "guard_after": 0}


class QueueBed(Bed):
    def __init__(self, cards="2", settings=None, like=None, **more):
        """like: a bed whose home (configuration and database) this one has: another controller of the same queue."""
        super().__init__(cards, **more)
        self.home = like.home if like else self.dir / "home" / ".gpustow"
        self.wishes = like.wishes if like else {}
        self.struck, self.n_said = set(), 0
        if not like:
            self.home.mkdir()
            self.configure(settings or {})
        # Another user reads neither this process's own home nor what lies in it.
        self.env.update(GPUSTOW_HOME=str(self.home), GPUSTOW_TEST_HOME=str(self.dir / "home"), GPUSTOW_SIM=cards)
        if self.uid is not None:
            for path in (self.home, self.home / "queue.yml"):
                os.chown(path, self.uid, self.uid)

    def configure(self, settings):
        lines = ["queue:", "  include_local: true", f"  job_root: {self.dir}/jobs",
                 *(f"  {key}: {value}" for key, value in {**SETTINGS, **settings}.items())]
        (self.home / "queue.yml").write_text("\n".join(lines) + "\n")

    @property
    def db(self):
        return self.home / "queue.db"

    # --- commands ---

    def spawn(self, *words, env=None):
        """A command, its words in a file of its own: nobody waits for a reader."""
        self.n_said += 1
        out = open(self.dir / f"said{self.n_said}", "wb+")
        command = [str(self.program), *map(str, words)]
        if self.uid is not None:
            command = ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups", *command]
        process = subprocess.Popen(command, cwd=self.dir, env={**self.env, **(env or {})}, stdin=subprocess.DEVNULL,
                                   stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        process.out = out
        return process

    def finish(self, process, deadline=60):
        """(exit code, its words)"""
        try:
            code = process.wait(deadline)
        except subprocess.TimeoutExpired:
            kill_and_wait(process)
            raise AssertionError(f"a command hasn't ended in {deadline} s: {process.args}\n{self.story()}") from None
        process.out.seek(0)
        text = process.out.read().decode(errors="replace")
        process.out.close()
        return code, text

    def ask(self, *words, env=None):
        return self.finish(self.spawn(*words, env=env))

    @staticmethod
    def document(text):
        """The JSON in a command's words; None when it didn't come to that."""
        try:
            return json.loads(text[text.index("{"):text.rindex("}") + 1])
        except ValueError:
            return None

    def command(self, name, mib=0, seconds=0.1, code=0, oom=False):
        return f"sh {self.dir}/job.sh {name} {mib} {seconds} {code}" + (" oom" if oom else "")

    def submit(self, name, *options, mib=0, seconds=0.1, code=0, retries=0, oom=False, key=None, is_limited=False, tick=False,
               env=None, again=0):
        """One job; with `again`, and a key, as often until it's in. Returns its number, None when nobody said that it's in."""
        wish = self.wishes.setdefault(name, Wish(name, code, retries, is_limited=is_limited))
        words = ["job", "submit", "--json", "-n", name, *([] if tick else ["--no-tick"]), *(["--key", key] if key else []),
                 *(["--retries", retries] if retries else []), *options]
        for var in OWN:
            if var in self.env:
                words += ["--env", f"{var}={self.env[var]}"]
        for _ in range(1 + again):
            # A killed one may leave half a document: what it said counts only with its exit code.
            status, text = self.ask(*words, "--", self.command(name, mib, seconds, code, oom), env=env)
            doc = self.document(text)
            if status in (0, 1) and doc and doc.get("ok"):  # 1: it has ended already, badly
                wish.is_accepted = True
                return doc["job"]["id"]
        return None

    def tick(self, env=None):
        """One pass's summary; None when it didn't come to its end."""
        status, text = self.ask("queue", "tick", "--json", env=env)
        return self.document(text) if status == 0 else None

    def tick_until(self, what, seconds=30, env=None):
        def once():
            self.tick(env)
            return what()
        wait_for(once, seconds, self.story)

    # --- what's on record, and what the jobs wrote ---

    def record(self):
        return Record(queue_judge.read(self.db))

    def rows(self):
        return [("here", *row) for row in self.judged() if len(row) == 5]

    def is_over(self):
        return self.record().is_quiet() and not list((self.root / "claims").glob("*/*/state"))

    def settle_all(self, seconds=60):
        """Passes until nothing is left to do, then until the node has nothing more to tell."""
        self.tick_until(lambda: self.record().is_quiet(), seconds)
        self.tick_until(self.is_over, 30)

    def complaints(self, others=()):
        wrong = queue_judge.complaints(self.record(), self.rows(), self.wishes, self.struck, others)
        status, text = self.ask("job", "show", "--json", "--no-tick", str(max(self.record().jobs, default=0)))
        shown = self.document(text) or {}
        on_record = [a for (job, _), a in self.record().attempts.items() if job == shown.get("id")]
        if status or [a["exit_code"] for a in shown["attempts"]] != [a["exit_code"] for a in on_record]:
            wrong.append(f"`job show` tells {text} of {on_record}")
        return wrong + [f"sanitizer: {text}" for text in self.sanitizer_words()]

    def sanitizer_words(self):
        found = []
        for path in [*self.dir.glob("said*"), self.root / "log"]:
            if path.exists():
                found += [line for line in path.read_text(errors="replace").splitlines()
                          if "Sanitizer" in line and "ERROR" in line or "runtime error:" in line]
        return found[:3]

    def end(self):
        """The agent leaves, nothing of the bed lives on."""
        wrong = []
        agent = self.agent()
        if agent:
            self.kill(agent, signal.SIGTERM)
        try:
            wait_for(lambda: not self.ours(), 20, "processes are left")
        except AssertionError:
            wrong.append(f"processes are left: {[open(f'/proc/{p}/cmdline').read() for p in self.ours()]}")
        return wrong

    def story(self):
        record = self.record()
        log = self.root / "log"
        said = "".join(p.read_text(errors="replace")[-1500:] + "\n" for p in
                       sorted(self.dir.glob("said*"), key=lambda p: p.stat().st_mtime)[-4:])
        lines = [f"--- {self.dir}", "--- jobs"]
        lines += [f"{j['id']} {j['name']} {j['state']} {j['cause']} {j['held_reason']} {j['last_error']}"
                  for j in record.jobs.values()][:40]
        lines += ["--- attempts"] + [str({k: a[k] for k in ("job", "attempt", "node", "is_settled", "exit_code", "cause", "error")})
                                     for a in record.attempts.values()][:40]
        lines += ["--- judge"] + [" ".join(row) for row in self.judged()][-60:]
        lines += ["--- said", said[-3000:], "--- agent", log.read_text(errors="replace")[-2000:] if log.exists() else ""]
        return "\n".join(lines)


def kill_and_wait(process):
    try:
        os.kill(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def stopped(process, seconds=20):
    """Waits until a process has stopped itself at a fault point (":stop")."""
    def look():
        try:
            return open(f"/proc/{process.pid}/stat").read().rsplit(")", 1)[1].split()[0] == "T" or process.poll() is not None
        except OSError:
            return True
    wait_for(look, seconds, "it doesn't stop at its point")
    assert process.poll() is None, f"it ended with {process.returncode} instead of stopping"


def wait_seconds(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.02)
