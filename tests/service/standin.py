# SPDX-License-Identifier: Apache-2.0
"""A service that says what a test tells it to: for answers that the real one never gives.

    with Standin({"GET /v1/sandboxes": reply({"sandboxes": [], "next": None})}) as s:
        s.run(["ls"])

A route's value is bytes (sent as they are), a list of bytes (sent one after the other), or a function of the request
that returns one of those. `requests` is what came, in order. A connection serves one request after the other, until
an answer says close or is cut by HANG_UP.
"""
import json
import os
import shutil
import socket
import tempfile
import threading
from dataclasses import dataclass, field

import cloche

HANG_UP = object()
SANDBOX = "sbx_0123456789abcdef"
BOX = f"/v1/sandboxes/{SANDBOX}"


@dataclass
class Request:
    method: str
    target: str
    fields: dict
    body: bytes
    fds: list = field(default_factory=list)

    @property
    def path(self):
        return self.target.partition("?")[0]

    @property
    def query(self):
        return self.target.partition("?")[2]

    @property
    def json(self):
        return json.loads(self.body)


def head(status=200, kind="application/json", *fields):
    lines = [f"HTTP/1.1 {status} Word", f"Content-Type: {kind}", *fields]
    return ("\r\n".join(lines) + "\r\n").encode()


def reply(value, status=200, kind="application/json"):
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return head(status, kind, f"Content-Length: {len(data)}") + b"\r\n" + data


def problem(status, detail, code="NOT_FOUND"):
    return reply({"type": "about:blank", "title": "no", "status": status, "detail": detail, "code": code,
                  "retryable": False}, status, "application/problem+json")


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data) if data else b""


def stream(*events, kind="application/x-ndjson", end=True):
    """Events (objects or bytes) as one chunk each."""
    pieces = [head(200, kind, "Transfer-Encoding: chunked") + b"\r\n"]
    for e in events:
        pieces.append(chunk(e if isinstance(e, bytes) else json.dumps(e).encode() + b"\n"))
    return [*pieces, b"0\r\n\r\n" if end else HANG_UP]


def result(reason="exited", exit_code=0, **more):
    counts = {"bytes": 0, "kept": 0, "dropped": 0}
    return {"id": "run_1", "sandbox": SANDBOX, "ok": reason == "exited" and exit_code == 0, "reason": reason,
            "error_code": None, "stage": None, "message": reason, "exit_code": exit_code, "signal": None,
            "output": {"stdout": counts, "stderr": counts}, **more}


def exited(*a, **kw):
    return {"type": "exited", "t": 1.0, "result": result(*a, **kw)}


class Standin:
    def __init__(self, routes, tcp=False):
        self.routes, self.requests, self.connections = routes, [], 0
        self.folder = tempfile.mkdtemp(prefix="clo-standin.")
        self.listener = socket.socket(socket.AF_INET if tcp else socket.AF_UNIX)
        self.listener.bind(("127.0.0.1", 0) if tcp else os.path.join(self.folder, "s"))
        self.listener.listen(16)
        self.name = f"127.0.0.1:{self.listener.getsockname()[1]}" if tcp else os.path.join(self.folder, "s")
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)  # wakes the thread, before its descriptor's number means something else
        self.thread.join()
        self.listener.close()
        shutil.rmtree(self.folder)

    def accept(self):
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self.serve, args=(peer,), daemon=True).start()

    def serve(self, peer):
        data, fds = b"", []
        with peer:
            try:
                while True:
                    while b"\r\n\r\n" not in data:
                        more, new, _, _ = socket.recv_fds(peer, 65536, 40) if peer.family == socket.AF_UNIX else \
                            (peer.recv(65536), [], 0, None)
                        fds += new
                        if not more:
                            return
                        data += more
                    request, data = self.read(peer, data)
                    request.fds, fds = fds, []
                    self.requests.append(request)
                    for piece in self.answer(request):
                        if piece is HANG_UP:
                            return
                        peer.sendall(piece)
            except OSError:
                return

    def read(self, peer, data):
        text, _, data = data.partition(b"\r\n\r\n")
        lines = text.decode().split("\r\n")
        method, target, _ = lines[0].split(" ")
        fields = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}

        def need(n):
            nonlocal data
            while len(data) < n:
                more = peer.recv(1 << 20)
                if not more:
                    raise ConnectionError
                data += more
            got, data = data[:n], data[n:]
            return got

        if fields.get("transfer-encoding") == "chunked":
            body = b""
            while True:
                line = b""
                while not line.endswith(b"\r\n"):
                    line += need(1)
                size = int(line, 16)
                body += need(size)
                assert need(2) == b"\r\n"
                if not size:
                    break
        else:
            body = need(int(fields.get("content-length", 0)))
        return Request(method, target, fields, body), data

    def answer(self, request):
        what = self.routes.get(f"{request.method} {request.path}", problem(404, "no such route"))
        what = what(request) if callable(what) else what
        return [what] if isinstance(what, bytes) else what

    def environment(self, **more):
        return {"CLOCHE_SOCKET": self.name, **more}

    def run(self, args, **kw):
        env = self.environment(**kw.pop("env", {}))
        return cloche.run(args, json=False, env=env, **kw)

    def paths(self):
        return [f"{r.method} {r.target}" for r in self.requests]
