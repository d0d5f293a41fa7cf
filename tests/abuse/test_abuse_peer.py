# SPDX-License-Identifier: Apache-2.0
"""The peer canary: a second sandbox beats every 10 ms while each denial-of-service attack runs. Its worst gap must stay
within the worst idle gap of the same run + 50 ms. [HD, PD] of the catalogue.

Machines have other users, so a measurement that fails is repeated, idle window included, up to three times; all numbers
are printed (pytest -s) and the last ones are in the failure. Attacker and peer have half a CPU each; on a machine with
one CPU they would share it, which is what the kernel's scheduler then divides.
"""
import os
import threading
import time

import pytest

import arena
import cloche

pytestmark = [pytest.mark.needs("native"), pytest.mark.needs("root"), pytest.mark.needs("python"), pytest.mark.needs("gcc")]

ALLOWANCE_MS = 50
IDLE_S = 1.0
ATTACK_S = 1.5

THREADS = "import threading\ndef f():\n    while True: pass\nfor _ in range(40): threading.Thread(target=f).start()\n"
# id, name, program, options
DOS = [
    ("PR-05", "fork_bomb", "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n", ()),
    ("PR-06", "thread_bomb", "import threading, time\nwhile True:\n    try: threading.Thread(target=time.sleep, args=(0.01,)).start()\n"
     "    except RuntimeError: pass\n", ()),
    ("PR-11", "zombie_flood", "import os\nwhile True:\n    try:\n        if os.fork() == 0: os._exit(0)\n    except OSError:\n"
     "        try:\n            while True: os.waitpid(-1, os.WNOHANG)\n        except OSError: pass\n", ()),
    ("PR-13", "exit_flood", "import os\nwhile True:\n    if os.fork() == 0: os._exit(0)\n    os.wait()\n", ()),
    ("ME-01", "memory_bomb", "import os\nwhile True:\n    if os.fork() == 0:\n        b = [bytearray(b'x') * (4 << 20) for _ in range(200)]\n    os.wait()\n", ()),
    ("ME-06", "kernel_objects", "import os, mmap\nwhile True:\n    kept = []\n    try:\n        while True: kept.append(os.eventfd(0))\n    except OSError: pass\n"
     "    for f in kept: os.close(f)\n    for n in range(3000):\n        try: os.stat('/usr/' + 'n' * 200 + str(n))\n        except OSError: pass\n", ()),
    ("ME-07", "page_cache_thrash", "import os\nwhile True:\n    for d, _, files in os.walk('/usr/lib'):\n        for f in files:\n            try:\n"
     "                with open(d + '/' + f, 'rb') as x:\n                    while x.read(1 << 20): pass\n            except OSError: pass\n", ()),
    ("CP-01", "spin", THREADS, ()),
    ("CP-09", "interrupts", "import ctypes, socket, threading, os\nlibc = ctypes.CDLL(None)\n"
     "def udp():\n    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('127.0.0.1', 0)); a = s.getsockname(); s.setblocking(False)\n"
     "    while True:\n        try: s.sendto(b'x' * 1400, a)\n        except OSError: pass\n        try: s.recv(2000)\n        except OSError: pass\n"
     "def timer():\n    fd = libc.timerfd_create(1, 0o4000); t = (ctypes.c_long * 4)(0, 1, 0, 1); libc.timerfd_settime(fd, 0, t, None)\n"
     "    while True: libc.usleep(1)\n"
     "def yields():\n    while True: os.sched_yield()\n"
     "def barrier():\n    while True: libc.syscall(324, 1, 0, 0)\n"
     "import mmap\ndef ipi():\n    m = mmap.mmap(-1, 1 << 16); a = ctypes.addressof(ctypes.c_char.from_buffer(m))\n"
     "    while True: libc.mprotect(ctypes.c_void_p(a), 1 << 16, 1); libc.mprotect(ctypes.c_void_p(a), 1 << 16, 3); m[0] = 1\n"
     "for f in (udp, udp, timer, timer, yields, barrier, ipi): threading.Thread(target=f).start()\n", ()),
    ("DK-01", "disk_fill", "import os\nwhile True:\n    try:\n        with open('/tmp/f', 'wb') as f:\n            while True: f.write(bytes(1 << 20))\n"
     "    except OSError: pass\n    os.unlink('/tmp/f')\n", ()),
    ("DK-02", "inode_flood", "import os\nwhile True:\n    n = 0\n    try:\n        while True: os.mknod(f'/tmp/{n}'); n += 1\n    except OSError: pass\n"
     "    for i in range(n): os.unlink(f'/tmp/{i}')\n", ()),
    ("DK-06", "fsync_storm", "import os\nf = os.open('/workspace/f', os.O_CREAT | os.O_RDWR)\ng = os.open('/usr/bin/env', os.O_RDONLY)\nwhile True:\n"
     "    os.pwrite(f, bytes(4096), 0); os.fsync(f); os.fsync(g); os.fdatasync(f)\n", ()),
    ("OU-01", "output_flood", "import os\nb = bytes(65536)\nwhile True: os.write(1, b)\n", ()),
    ("OU-04", "tiny_output", "import os\nwhile True: os.write(1, b'x'); os.write(2, b'y')\n", ()),
    ("NE-12", "socket_flood", "import socket\nwhile True:\n    kept = []\n    try:\n        while True:\n            s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\n"
     "            c = socket.create_connection(s.getsockname()); kept += [s, c]\n    except OSError: pass\n    for s in kept: s.close()\n", ()),
    ("KS-24", "refused_calls", "import ctypes\nlibc = ctypes.CDLL(None)\nwhile True:\n    libc.syscall(317, 1, 0, 0); libc.unshare(0x10000000); libc.syscall(425, 4, 0)\n", ()),
]


class Peer:
    """The beating sandbox; gaps(begin, end) in host time."""

    def __init__(self):
        self.p = cloche.start(["run", "--timeout", "600s", "--max-output", "unlimited", "--in", f"{arena.compiled('heartbeat')}:/workspace/heartbeat",
                               "--", "/workspace/heartbeat"])
        self.beats, self.offset = [], None
        threading.Thread(target=self.listen, daemon=True).start()
        time.sleep(0.3)
        assert self.beats, "the peer does not beat"

    def listen(self):
        # The sandbox's clock starts near zero: its difference to ours is the smallest delay seen.
        for line in self.p.stdout:
            stamp, now = int(line) / 1e9, time.monotonic()
            self.offset = now - stamp if self.offset is None else min(self.offset, now - stamp)
            self.beats.append(stamp)

    def worst_ms(self, begin, end):
        inside = [b for b in self.beats[-5000:] if begin <= b + self.offset <= end]
        # the ends count: a peer that stops altogether has one gap, as long as the window
        marks = [begin - self.offset, *inside, end - self.offset]
        return max(b - a for a, b in zip(marks, marks[1:])) * 1000

    def stop(self):
        self.p.terminate()
        self.p.communicate(timeout=20)


@pytest.fixture(scope="module")
def peer():
    p = Peer()
    yield p
    p.stop()


def measure(peer, code, options, layers_off=None):
    """(worst idle gap, worst gap under attack) in ms, and the attacker's result."""
    begin = time.monotonic()
    time.sleep(IDLE_S)
    middle = time.monotonic()
    r = arena.inside(code, "--timeout", f"{int(ATTACK_S * 1000)}ms", *options, layers_off=layers_off)
    end = time.monotonic()
    time.sleep(0.05)
    return peer.worst_ms(begin, middle), peer.worst_ms(middle, end), r


@pytest.mark.parametrize("id, name, code, options", DOS, ids=[f"{i.replace('-', '_')}_{n}" for i, n, _, _ in DOS])
def test_peer(peer, id, name, code, options):
    tried = []
    for _ in range(5):
        idle, attacked, r = measure(peer, code, options)
        tried.append(f"{attacked:.1f} (idle {idle:.1f})")
        assert r.reason in ("timeout", "oom"), f"{id} was no attack: {r}"
        if attacked <= idle + ALLOWANCE_MS:
            break
    print(f"peer\t{id} {name}\tworst gap ms: {', '.join(tried)}")
    report = os.environ.get("CLOCHE_PEER_REPORT")
    if report:
        with open(report, "a") as f:
            f.write(f"{id} {name}\t{', '.join(tried)}\n")
    assert attacked <= idle + ALLOWANCE_MS, f"worst gap {tried} ms, allowed: idle + {ALLOWANCE_MS}"
    assert peer.p.poll() is None


def test_peer_control(peer):
    """The canary can die: with the attacker's limits off it is late, or the gap is at least measured as one when the
    peer is stopped."""
    begin = time.monotonic()
    victims = arena.descend(peer.p.pid)
    assert victims
    for v in victims:
        os.kill(v, 19)
    time.sleep(0.2)
    for v in victims:
        os.kill(v, 18)
    time.sleep(0.1)
    assert peer.worst_ms(begin, time.monotonic()) >= 150
