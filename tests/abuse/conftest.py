# SPDX-License-Identifier: Apache-2.0
"""Host canaries: what an attack would reach if a wall were missing. They stand during the whole abuse suite, and every
test is followed by a look at them."""
import hashlib
import os
import secrets
import socket
import sys
import threading
import warnings
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import cloche  # noqa: E402


class Canary:
    """token: in a file, in the environment of cloche's caller, and said by every listener to whoever connects."""
    file = Path("/root/CANARY")
    abstract = "canary"
    path = Path("/run/canary.sock")
    port = 7777

    def __init__(self):
        self.token = "canary-" + secrets.token_hex(16)
        self.reached = []
        self.sockets = []

    def listen(self, family, address, name):
        s = socket.socket(family, socket.SOCK_STREAM)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(address)
        s.listen(16)
        self.sockets.append(s)
        threading.Thread(target=self.serve, args=(s, name), daemon=True).start()

    def serve(self, s, name):
        while True:
            try:
                c, _ = s.accept()
            except OSError:
                return
            self.reached.append(name)
            try:
                c.sendall(self.token.encode())
            except OSError:
                pass
            c.close()

    def start(self):
        self.file.write_text(self.token)
        self.file.chmod(0o644)  # only walls between a user and it, not its mode
        os.environ["CANARY"] = self.token
        self.listen(socket.AF_INET, ("127.0.0.1", self.port), "tcp")
        self.listen(socket.AF_UNIX, "\0" + self.abstract, "abstract")
        self.path.unlink(missing_ok=True)
        self.listen(socket.AF_UNIX, str(self.path), "path")
        self.path.chmod(0o777)

    def stop(self):
        for s in self.sockets:
            s.shutdown(socket.SHUT_RDWR)
            s.close()
        self.path.unlink(missing_ok=True)
        self.file.unlink(missing_ok=True)
        os.environ.pop("CANARY", None)


def digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def host_state():
    """What no attack may change: files of the machine, its mounts, its modules."""
    files = ["/etc/passwd", "/etc/group", "/etc/hosts", "/usr/bin/env", "/usr/bin/python3", "/usr/bin/dash"]
    state = {f"sha256 {f}": digest(f) for f in files if os.path.exists(f)}
    for f in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname"):
        state[f] = Path(f).read_text() if os.path.exists(f) else None
    for d in ("/etc", "/usr/bin", "/root", "/usr/local/bin", "/etc/cron.d"):
        if os.path.isdir(d):
            state[f"entries of {d}"] = len(set(os.listdir(d)) - {"cloche"})  # /etc/cloche is for the tests of the configuration
    state["modules"] = len(Path("/proc/modules").read_text().splitlines()) if os.path.exists("/proc/modules") else 0
    return state


@pytest.fixture(scope="session")
def canary():
    cloche.need("root")
    c = Canary()
    c.start()
    yield c
    c.stop()


@pytest.fixture(scope="session", autouse=True)
def host_untouched(request):
    """The whole suite leaves the machine as it was: counts before = after, hashes too, our binary included."""
    if os.geteuid() != 0:
        yield
        return
    canary = request.getfixturevalue("canary")
    host, before = host_state(), cloche.snapshot()
    open_before = set(cloche.fds())
    yield
    now = host_state()
    changed = [f"{k}: {host[k]!r} -> {now[k]!r}" for k in host if host[k] != now[k]]
    left = cloche.leftovers(before, 10)
    others = [p for p in cloche.processes() if p not in before["processes"]]
    if left and others:  # somebody else uses cloche on this machine now: what is there may be theirs
        warnings.warn(f"not judged, other runs are under way: {left[:5]}")
    else:
        changed += left
    lost = set(cloche.fds()) - open_before
    if lost:
        changed.append(f"descriptors of the test process left open: {[cloche.fds().get(f) for f in lost]}")
    assert canary.file.read_text() == canary.token
    assert not changed, "the machine has changed:\n" + "\n".join(changed)


@pytest.fixture(autouse=True)
def canary_unreached(request):
    """No sandbox of this test has reached a listener of the host. Controls are meant to."""
    if os.geteuid() != 0:
        yield
        return
    canary = request.getfixturevalue("canary")
    canary.reached.clear()
    yield
    weak = any(word in request.node.nodeid for word in ("_control", "test_abuse_mutation", "test_abuse_alone"))
    if not weak:
        assert not canary.reached, f"a listener of the host was reached: {canary.reached}"
