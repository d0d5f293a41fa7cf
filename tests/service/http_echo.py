# SPDX-License-Identifier: Apache-2.0
"""Starts http-echo and talks to it with raw sockets, so that every byte is the test's own."""
import json
import os
import select
import socket
import subprocess
import time
from pathlib import Path

import cloche

# wherever cloche is: its build folder
PROGRAM = Path(os.environ.get("HTTP_ECHO") or Path(cloche.binary()).parent / "tests/service/http-echo")
END = b"\r\n\r\n"


class Echo:
    """One running http-echo with a unix socket and a TCP port."""

    def __init__(self, folder, *options, preexec_fn=None):
        self.path = str(Path(folder) / f"echo-{time.monotonic_ns()}")
        self.process = subprocess.Popen(
            [PROGRAM, "--unix", self.path, "--tcp", "0", *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, preexec_fn=preexec_fn)
        ready = self.process.stdout.readline().split()
        assert ready and ready[0] == b"ready", self.process.stderr.read().decode()
        self.port = int(ready[1])

    def connect(self, kind="unix", timeout=5):
        s = socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET)
        s.settimeout(timeout)
        s.connect(self.path if kind == "unix" else ("127.0.0.1", self.port))
        return s

    def talk(self, data, kind="unix", timeout=5):
        """Send, then everything up to the end of the connection."""
        with self.connect(kind, timeout) as s:
            s.sendall(data)
            return read_all(s)

    def get(self, path, kind="unix"):
        """Status and body, on a connection of its own."""
        with self.connect(kind) as s:
            s.sendall(request(path))
            status, _, body = Reader(s).answer()
            return status, body

    def facts(self):
        return json.loads(self.get("/facts")[1])

    def memory_kb(self, what="VmHWM"):
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line.split()[1] for line in text.splitlines() if line.startswith(what + ":")))

    def until(self, condition, seconds=5):
        """Ask for the facts until they are so: they change by what the server notices."""
        end = time.monotonic() + seconds
        while True:
            facts = self.facts()
            if condition(facts):
                return facts
            assert time.monotonic() < end, facts

    def stop(self):
        """Ends; every exchange and, with a sanitizer, every byte has to be freed."""
        if self.process.poll() is None:
            self.process.stdin.close()
        errors = self.process.stderr.read().decode()
        status = self.process.wait(10)
        self.process.stdout.close()
        self.process.stderr.close()
        assert status == 0 and not errors, f"http-echo ended with {status}\n{errors}"


def request(path="/", method="GET", fields="", body=b"", version="1.1"):
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    return f"{method} {path} HTTP/{version}\r\nHost: x\r\n{length}{fields}\r\n".encode() + body


def read_all(s):
    data = bytearray()
    while True:
        try:
            piece = s.recv(65536)
        except ConnectionResetError:
            return bytes(data)
        if not piece:
            return bytes(data)
        data += piece


class Reader:
    """Answers off a socket, one after the other."""

    def __init__(self, s):
        self.s, self.rest = s, bytearray()

    def more(self):
        piece = self.s.recv(1 << 20)
        if not piece:
            raise EOFError(self.rest)
        self.rest += piece

    def until(self, end):
        while end not in self.rest:
            self.more()
        at = self.rest.index(end)
        found = self.exactly(at)
        del self.rest[:len(end)]
        return found

    def exactly(self, n):
        while len(self.rest) < n:
            self.more()
        found = bytes(memoryview(self.rest)[:n])
        del self.rest[:n]
        return found

    def answer(self, head=False):
        """(status, {name: value}, body)"""
        lines = self.until(END).decode().split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in lines[1:])
        status, body = int(lines[0].split()[1]), bytearray()
        if head or status in (100, 101, 204, 304):
            pass
        elif fields.get("transfer-encoding") == "chunked":
            while size := int(self.until(b"\r\n"), 16):
                body += self.exactly(size)
                assert self.exactly(2) == b"\r\n"
            assert self.exactly(2) == b"\r\n"
        else:
            body = self.exactly(int(fields["content-length"]))
        return status, fields, bytes(body)


def problem(answer, status, code):
    """One whole answer with this problem document, that hangs up."""
    head, body = answer.split(END, 1)
    assert head.startswith(f"HTTP/1.1 {status} ".encode()), answer
    assert b"\r\nConnection: close" in head and b"application/problem+json" in head
    document = json.loads(body)
    assert (document["status"], document["code"]) == (status, code), document
    return document


def quiet(s, seconds):
    """Nothing comes and nobody hangs up for so long."""
    return not select.select([s], [], [], seconds)[0]
