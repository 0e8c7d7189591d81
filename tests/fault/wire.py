"""A client of the agent, by hand: docs/wire.md. It sends what a well-behaved one never would."""
import json
import socket
import struct
import time


class Client:
    def __init__(self, root):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(str(root / "agent.sock"))
        self.data = b""

    def __enter__(self):
        return self

    def __exit__(self, *rest):
        self.socket.close()

    @staticmethod
    def frame(message):
        body = json.dumps(message).encode()
        return struct.pack(">I", len(body) + 1) + b"J" + body

    def send(self, **message):
        self.socket.sendall(self.frame(message))

    def receive(self):
        while True:
            if len(self.data) >= 4:
                n = struct.unpack(">I", self.data[:4])[0]
                if len(self.data) >= 4 + n:
                    body, self.data = self.data[5:4 + n], self.data[4 + n:]
                    return json.loads(body)
            more = self.socket.recv(65536)
            if not more:
                raise ConnectionError("the agent closed the link")
            self.data += more

    def until(self, *ops):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            message = self.receive()
            if message["op"] in ops:
                return message
        raise AssertionError(f"the agent did not say {ops}")

    def hello(self, who, queue=None, fence=None):
        more = {"queue": queue, "fence": fence} if queue else {}
        self.send(op="hello", protocol=1, build=1, who=who, **more)
        return self.until("hello", "stale")
