"""A queue in a world: its database by hand (queue_hand), its passes by `gpustow queue tick`, its record by SQLite, read only."""
import json
import os
import sqlite3
import subprocess

from harness import BUILD, DEADLINE, MARK, program, until

HAND = BUILD / "tests" / "queue_hand"
TERMINAL = ("completed", "failed", "cancelled", "timeout", "lost")


class Queue:
    def __init__(self, world, sim="2", settings=()):
        self.world = world
        self.home = world.dir / "home" / ".gpustow"
        self.home.mkdir(parents=True, exist_ok=True)
        self.path = self.home / "queue.db"
        # Not below the account's home: a test leaves nothing there.
        lines = ["queue:", f"  job_root: {world.dir}/jobs", *(f"  {s}" for s in settings)]
        (self.home / "config.yml").write_text("\n".join(lines) + "\n")
        world.env["GPUSTOW_SIM"] = sim

    # --- by hand ---

    def hand(self, *args, check=True, said=""):
        r = subprocess.run([HAND, self.path, *map(str, args)], input=said, capture_output=True, text=True, timeout=60,
                           env={**os.environ, **self.world.env, MARK: self.world.mark})
        assert not check or r.returncode == 0, r.stderr
        return r.stdout.split()

    def submit(self, command, **more):
        # A job's environment is its account's: what the test's own words need is said with it.
        own = {k: self.world.env[k] for k in ("W", "PATH", MARK)}
        own.update({k: v for k, v in self.world.env.items() if k.endswith("SAN_OPTIONS")})
        job = {"command": command, **more, "env": {**own, **more.get("env", {})}}
        return int(self.hand("submit", said=json.dumps(job))[0])

    # --- passes ---

    def tick(self, code=0, env=None):
        r = self.world.ask("queue", "tick", "--json", code=code, env=env)
        return json.loads(r.out) if code == 0 else r

    def tick_until(self, what, deadline=DEADLINE):
        """Passes until it's so; all their summaries."""
        seen = []

        def once():
            seen.append(self.tick())
            return what()
        until(once, deadline, every=0.1, why=lambda: json.dumps([seen[-3:], self.jobs(), self.events()], default=str)[:6000])
        return seen

    def ends(self, *ids, deadline=DEADLINE):
        return self.tick_until(lambda: all(self.job(i)["state"] in TERMINAL for i in ids), deadline)

    # --- the record ---

    def rows(self, sql, *args):
        db = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=10)
        db.row_factory = sqlite3.Row
        try:
            return [dict(r) for r in db.execute(sql, args)]
        finally:
            db.close()

    def job(self, job):
        return self.rows("SELECT * FROM jobs WHERE id = ?", job)[0]

    def jobs(self):
        return self.rows("SELECT id, state, is_bound, attempt, cause, last_error, held_reason FROM jobs ORDER BY id")

    def attempts(self, job):
        return self.rows("SELECT * FROM attempts WHERE job = ? ORDER BY attempt", job)

    def events(self, job=None):
        return [r["kind"] for r in self.rows("SELECT kind, job FROM events ORDER BY id") if job in (None, r["job"])]

    def alerts(self):
        return self.rows("SELECT * FROM alerts ORDER BY id")

    def nodes(self):
        return {r["name"]: r for r in self.rows("SELECT * FROM nodes")}

    def uuid(self):
        return self.rows("SELECT value FROM meta WHERE key = 'queue'")[0]["value"]

    def dir(self, job, attempt=1):
        return self.world.dir / "jobs" / self.uuid() / f"{job}.{attempt}"


__all__ = ["Queue", "program", "until"]
