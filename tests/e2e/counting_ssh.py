#!/usr/bin/python3
"""An `ssh` for tests that counts: what went to the host, what came back, and how often the direction changed to the host's.

It stands before the real one in PATH; each connection's figures are a file of its own in $COUNT_DIR, kept as they grow.
"""
import json
import os
import selectors
import subprocess
import sys

REAL = "/usr/bin/ssh"
if "-O" in sys.argv or "-G" in sys.argv or "-N" in sys.argv:
    os.execv(REAL, [REAL, *sys.argv[1:]])
child = subprocess.Popen([REAL, *sys.argv[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=False)
host = next((a for a in os.environ.get("COUNT_HOSTS", "").split() if any(w == a or w.endswith("@" + a) for w in sys.argv)), "")
figures = {"host": host, "sent": 0, "got": 0, "turns": 0}
out = os.open(f"{os.environ['COUNT_DIR']}/{os.getpid()}.json", os.O_WRONLY | os.O_CREAT, 0o600)
last = "got"
both = selectors.DefaultSelector()
both.register(0, selectors.EVENT_READ, ("sent", child.stdin.fileno()))
both.register(child.stdout.fileno(), selectors.EVENT_READ, ("got", 1))
while both.get_map():
    for key, _ in both.select():
        way, to = key.data
        got = os.read(key.fd, 1 << 16)
        if not got:
            both.unregister(key.fd)
            if way == "got":
                sys.exit(child.wait())
            child.stdin.close()
            continue
        figures[way] += len(got)
        figures["turns"] += way == "sent" and last == "got"
        last = way
        os.pwrite(out, json.dumps(figures).ljust(200).encode(), 0)
        while got:
            got = got[os.write(to, got):]
