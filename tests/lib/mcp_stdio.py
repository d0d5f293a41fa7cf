# SPDX-License-Identifier: Apache-2.0
"""`cloche mcp` and a client of its protocol that says exactly what a test wants said. Only the standard library.

    with Mcp(["--text", "plain"], env) as m:
        m.hello()
        assert m.tool("run_python", code="print(6 * 7)").text == "42"
"""
import json
import os
import select
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import cloche

REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
META = "io.modelcontextprotocol/"
MODERN = {META + "protocolVersion": "2026-07-28", META + "clientCapabilities": {}}


class Mcp:
    """A running `cloche mcp`; ended when the block ends, as a client does it: stdin is closed."""
    def __init__(self, args=(), env=None, modern=False):
        self.process = cloche.start(["mcp", *args], env=env)
        self.modern, self.last, self.rest, self.notes = modern, 0, b"", []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(10)
            finally:
                if self.process.poll() is None:
                    os.killpg(self.process.pid, signal.SIGKILL)
                    self.process.wait()

    def raw(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, message):
        self.raw(json.dumps(message).encode() + b"\n")

    def read(self, timeout=20):
        """The next message, whatever it is."""
        deadline = time.monotonic() + timeout
        while b"\n" not in self.rest:
            left = deadline - time.monotonic()
            assert left > 0 and select.select([self.process.stdout], [], [], left)[0], "no message"
            piece = os.read(self.process.stdout.fileno(), 1 << 20)
            assert piece, f"the server ended: {self.process.wait(10)} {self.process.stderr.read()[-800:]!r}"
            self.rest += piece
        line, _, self.rest = self.rest.partition(b"\n")
        message = json.loads(line)
        assert isinstance(message, list) or message["jsonrpc"] == "2.0", message
        return message

    def quiet(self, seconds=0.2):
        """Nothing comes."""
        return not self.rest and not select.select([self.process.stdout], [], [], seconds)[0]

    def begin(self, method, params=None, **more):
        """Send a request; its id."""
        self.last += 1
        params = dict(params or {})
        if self.modern:
            params["_meta"] = {**MODERN, **params.get("_meta", {})}
        self.send({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params, **more})
        return self.last

    def end(self, number, timeout=20):
        """Its answer; notifications on the way are kept in notes."""
        while True:
            message = self.read(timeout)
            if "id" in message:
                assert message["id"] == number, message
                return message
            self.notes.append(message)

    def ask(self, method, params=None, timeout=20):
        return self.end(self.begin(method, params), timeout)

    def result(self, method, params=None):
        answer = self.ask(method, params)
        assert "result" in answer, answer
        return answer["result"]

    def error(self, method, params=None):
        answer = self.ask(method, params)
        assert "error" in answer, answer
        return answer["error"]

    def hello(self, revision="2025-11-25"):
        r = self.result("initialize", {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return r

    def tool(self, name, _meta=None, _timeout=20, **arguments):
        """Call a tool: text, content, structured and is_error of its result."""
        params = {"name": name, "arguments": arguments, **({"_meta": _meta} if _meta else {})}
        answer = self.ask("tools/call", params, _timeout)
        assert "result" in answer, answer
        return outcome(answer["result"])

    def memory(self):
        """The most memory it had, in bytes; 0 with a sanitizer inside, whose own memory is most of it."""
        if "libasan" in Path(f"/proc/{self.process.pid}/maps").read_text():
            return 0
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
        raise AssertionError("no VmHWM")


def outcome(result):
    texts = [c["text"] for c in result["content"] if c["type"] == "text"]
    return SimpleNamespace(text=texts[0] if texts else None, texts=texts, content=result["content"], is_error=result["isError"],
                           structured=result.get("structuredContent"), result=result)


def processes_with(word):
    """Pids of live processes that have this word in their command line."""
    found = []
    for d in Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (d / "cmdline").read_bytes().split(b"\0"):
                found.append(int(d.name))
        except OSError:
            continue
    return found


def until(condition, timeout=10):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it does not become so"
        time.sleep(0.02)
    return True
