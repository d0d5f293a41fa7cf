# SPDX-License-Identifier: Apache-2.0
"""ME-06 again, by what is left for others: things that the kernel counts by user or for nobody."""
import ctypes
import os
import subprocess
import threading

import pytest
import service as services

import cloche

pytestmark = [pytest.mark.needs("native"), pytest.mark.needs("root"), pytest.mark.needs("python")]

INOTIFY = """
import ctypes, time
libc, n = ctypes.CDLL(None), 0
while n < 4000 and libc.inotify_init1(0) >= 0:
    n += 1
print(n, flush=True)
time.sleep(3)
"""


def inotify_of_root():
    """How many this process could still make, as the host's root."""
    libc, made = ctypes.CDLL(None), []
    while len(made) < 32 and (fd := libc.inotify_init1(0)) >= 0:
        made.append(fd)
    for fd in made:
        os.close(fd)
    return len(made)


def test_ME_06_inotify_of_one_is_not_the_others():
    """The kernel counts for the owner of a user namespace, too: that was root, whose services then could watch nothing."""
    assert inotify_of_root() > 0
    with subprocess.Popen([cloche.binary(), "run", "--direct", "--", "/usr/bin/python3", "-c", INOTIFY], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, env=cloche.environment()) as p:
        took = int(p.stdout.readline())
        mine = inotify_of_root()
        other = cloche.run(["run", "--direct", "--", "/usr/bin/python3", "-c", INOTIFY])
    assert took > 16 and p.wait() == 0
    assert mine > 0 and int(other.out) > 16, (took, mine, other.out)


def test_ME_06_inotify_of_prepared_sandboxes():
    """Those of one caller share what is counted for their nest; root, and who comes another way, do not. The ids are not those of
    the machine's own folder: whose sandboxes have the same slots would share what is counted, too."""
    with services.Service({"pool": 2, "pool_floor": 2}, more={"uid_range": "1900000000:4096"}) as one:
        assert one.root.run(language="python", code="print(1)").out == b"1\n"
        before = one.root.expect(200, "GET", "/metrics").body
        got = []
        t = threading.Thread(target=lambda: got.append(one.root.run(language="python", code=INOTIFY)))
        with one.root.stream("POST", "/v1/runs", query={"stream": True}, json={"language": "python", "code": INOTIFY}) as s:
            took = int(s.until(lambda e: e.get("type") == "stdout")["data"])
            mine = inotify_of_root()
            other = cloche.run(["run", "--direct", "--", "/usr/bin/python3", "-c", INOTIFY])
            t.start()
            s.until(lambda e: e["type"] == "exited")
        t.join()
    assert before and took > 16 and mine > 0 and int(other.out) > 16 and got[0].ok


UNREAD = """
import socket
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen(50)
kept, sent, block = [], 0, b"x" * 65536
for i in range(150):
    c = socket.socket()
    c.connect(listener.getsockname())
    kept += [c, listener.accept()[0]]
    c.setblocking(False)
    for _ in range(1000):
        try:
            sent += c.send(block)
        except BlockingIOError:
            break
print(sent)
"""


def test_ME_06_what_sockets_hold_is_limited():
    """Cgroup v1 counts it apart, and not at all unless it is asked to: 64 MB held 400."""
    r = cloche.run(["run", "--direct", "--memory", "64m", "--", "/usr/bin/python3", "-c", UNREAD])
    wide = cloche.run(["run", "--direct", "--memory", "2g", "--", "/usr/bin/python3", "-c", UNREAD])
    assert int(wide.out) > 100 << 20, wide
    assert r.exit_code != 0 or int(r.out) < 64 << 20, r


WAITING = """
import errno, socket
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen(4096)
n = 0
while n < 3000:
    with socket.socket() as c:
        c.settimeout(0.5)
        try:
            c.connect(listener.getsockname())
        except TimeoutError:
            break
    n += 1
print(n)
"""


def test_ME_06_connections_that_nobody_accepts():
    """Each is memory of the kernel's that no cgroup is charged for."""
    bare = subprocess.run(["/usr/bin/python3", "-c", WAITING], capture_output=True, check=True)
    r = cloche.run(["run", "--direct", "--", "/usr/bin/python3", "-c", WAITING])
    assert int(bare.stdout) > 1000, "the host's own limit is as low"
    assert 100 <= int(r.out) <= 140, r
